"""The sampler has the normal law, and its bytes come from the operating system."""

import importlib.util
import inspect
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import assert_same_law
from scipy.special import ndtr
from scipy.stats import kstest

from capeneuro.privacy import noise


def _from_words(
    monkeypatch: pytest.MonkeyPatch, words: list[int], second: int = 0
) -> np.ndarray:
    raw = np.array([words, len(words) * [second]], dtype="<u8").tobytes()
    monkeypatch.setattr(noise, "key_stream", lambda _: lambda text: raw[: len(text)])
    return noise.standard_normal(len(words))


@pytest.mark.usefixtures("fixed_noise")
def test_law_is_standard_normal():
    assert_same_law(noise.standard_normal(200_000), 1.0)


@pytest.mark.usefixtures("fixed_noise")
def test_values_are_independent():
    z = noise.standard_normal(200_000)
    for x in (z, np.abs(z) - np.sqrt(2 / np.pi)):
        r = np.correlate(x, x[:-20], mode="valid")[1:] / (x @ x)
        assert np.abs(r).max() < 5 / np.sqrt(z.size)


@pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**64 - 2, 1 << 11, (1 << 63) + 5])
def test_no_bytes_give_an_infinite_value(monkeypatch, word):
    (z,) = _from_words(monkeypatch, [word])
    assert np.isfinite(z)
    assert abs(z) <= noise.LARGEST


@pytest.mark.parametrize("k", [0, 1, 10, 2**19])
def test_far_tails_are_finer_than_the_grid(monkeypatch, k):
    # Neighboring first words leave a gap that the second words fill evenly.
    seconds = [int(share * 2**64) for share in (0, 0.25, 0.5, 0.75)]
    z = [_from_words(monkeypatch, [k << 11], s)[0] for s in seconds]
    assert len(set(z)) == 4
    tails = ndtr(-np.abs(z))
    np.testing.assert_allclose(np.diff(tails), 2.0**-56, rtol=1e-6)


def test_magnitude_is_inversion_and_sign_is_one_bit(monkeypatch):
    words = [(2**52) << 11, ((2**52) << 11) + 1]  # a tail of a quarter
    z = _from_words(monkeypatch, words)
    np.testing.assert_allclose(ndtr(-np.abs(z)), 0.25, rtol=1e-14)
    np.testing.assert_array_equal(np.sign(z), [-1, 1])


def test_blocks_are_drawn_from_one_stream_and_calls_from_another():
    z, again = (noise.standard_normal(2 * noise.BLOCK + 5) for _ in range(2))
    assert len(np.unique(z)) == z.size
    assert not np.isin(z, again).any()


@pytest.mark.parametrize("deviation", [2.5, 2.0**20, 2.0**36])
def test_exact_noise_has_the_discrete_normal_law(deviation):
    pytest.importorskip("opendp", reason="needs the extra `exact`")
    k = noise.discrete_normal(4000, deviation)
    assert k.dtype == np.int64
    # Uniform jitter turns the integer law into one without steps.
    x = (k + np.random.default_rng(1).uniform(-0.5, 0.5, k.size)) / deviation
    p = kstest(x / np.sqrt(1 + 1 / 12 / deviation**2), "norm").pvalue
    assert p > 1e-6  # drawn anew in every run: one false alarm in a million


def test_noise_comes_from_the_operating_system():
    # In tests it is fed by a seed (tests/conftest.py); here is the module as it is.
    spec = importlib.util.find_spec("capeneuro.privacy.noise")
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    assert own.os is os and "os.urandom(" in inspect.getsource(own)
    assert not (noise.standard_normal(500) == noise.standard_normal(500)).any()


def _draw(_: int) -> bytes:
    noise.os = os  # the operating system's own bytes, as outside of tests
    return noise.standard_normal(8).tobytes()


@pytest.mark.parametrize("way", ["fork", "spawn", "threads"])
def test_noise_is_fresh_in_every_process_and_thread(way):
    """A fork copies all state of a generator; there is none to copy."""
    _draw(0)
    if way == "threads":
        with ThreadPoolExecutor(8) as pool:
            drawn = [*pool.map(_draw, range(24))]
    else:
        with multiprocessing.get_context(way).Pool(3, maxtasksperchild=1) as pool:
            drawn = pool.map(_draw, range(6), chunksize=1)
    assert len(set(drawn)) == len(drawn)


def test_a_generator_that_a_fork_copies_is_noticed(monkeypatch):
    """Planted: noise from state that children inherit is alike in all of them."""
    state = np.random.default_rng(1)
    monkeypatch.setattr(noise, "standard_normal", state.standard_normal)
    with multiprocessing.get_context("fork").Pool(3, maxtasksperchild=1) as pool:
        drawn = pool.map(_draw, range(6), chunksize=1)
    assert len(set(drawn)) == 1
