"""Strictness and fixtures that every test shares."""

import hashlib
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from faulty import Drawn
from hypothesis import settings

from capeneuro.federation import site
from capeneuro.privacy import noise

# Fixtures of a tiny study in files, and of two people and their components.
pytest_plugins = ["tiny_study", "decomposed"]

settings.register_profile("steady", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("steady")
HOME = pytest.StashKey[tempfile.TemporaryDirectory]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")
    config.stash[HOME] = tempfile.TemporaryDirectory()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[HOME].cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test its own home, and the real sampler bytes, so that none can flake.

    Ledgers of private data, and their second places, lie in the user's folders; the
    people of two tests have the same names.
    """
    digest = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
    for kind in ("DATA", "STATE"):
        home = f"{item.config.stash[HOME].name}/{digest}/{kind.lower()}"
        os.environ[f"XDG_{kind}_HOME"] = home
    rng = np.random.default_rng(list(item.nodeid.encode()))
    noise.os = SimpleNamespace(urandom=rng.bytes)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Close what a test drew; results that plot themselves leave that to notebooks."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def few_open_files() -> Iterator[None]:
    """Let this process open 64 files more than it has open, as a small limit would."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 64, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feed the real sampler with fixed bytes, so that law tests cannot flake."""
    source = SimpleNamespace(urandom=np.random.default_rng(7).bytes)
    monkeypatch.setattr(noise, "os", source)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What sites draw for their releases."""
    spy = Drawn()
    monkeypatch.setattr(site, "perturb", spy.spy)
    return spy
