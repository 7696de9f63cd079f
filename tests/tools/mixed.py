"""Mixtures of sources dealt to sites, and how well they were separated."""

from collections.abc import Mapping

import numpy as np
import pytest
from helpers import in_process, make_site

from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import Unmixing
from capeneuro.federation import mechanism
from capeneuro.federation.rounds import RoundVoid
from capeneuro.federation.transport import Federation

# Generators of unit variance: Laplace, uniform, Gaussian.
KINDS = {
    "l": lambda rng, n: rng.laplace(size=n) / 2**0.5,
    "u": lambda rng, n: rng.uniform(-(3**0.5), 3**0.5, n),
    "g": lambda rng, n: rng.standard_normal(n),
}


def mixture(
    kinds: str,
    n_subjects: int = 12,
    n_volumes: int = 500,
    seed: int = 0,
    extra: int = 2,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Maps over ``extra`` more features than sources, and what each subject has."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((len(kinds) + extra, len(kinds)))
    subjects = {}
    for i in range(n_subjects):
        S = np.stack([KINDS[kind](rng, n_volumes) for kind in kinds])
        subjects[f"p{i}"] = A @ S
    return A, subjects


def dealt(subjects: Mapping[str, np.ndarray], n_sites: int = 3) -> Federation:
    """The subjects, dealt to sites in turn."""
    names = list(subjects)
    return in_process(
        {
            f"s{k}": make_site(f"s{k}", {i: subjects[i] for i in names[k::n_sites]})
            for k in range(n_sites)
        }
    )


def index_of(A: np.ndarray, result: Unmixing, bound: float = 20.0) -> float:
    G = metrics.gain(result.unmixing / bound, result.W, A)
    return metrics.normalized_gain_index(G)


def void_at(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[str]:
    """Make attempts of these numbers void, after all sites charged them."""
    gather, attempts = mechanism.gather, []

    def sometimes(federation, asked, *others):
        attempts.append(asked.query)
        answer = gather(federation, asked, *others)
        if len(attempts) - 1 in numbers:
            raise RoundVoid({"s0": "failed: no answer"})
        return answer

    monkeypatch.setattr(mechanism, "gather", sometimes)
    return attempts


def charged(federation: Federation) -> set[int]:
    """Numbers of releases that the sites charged."""
    return {len(site._ledger.releases()) for site in federation._sites.values()}
