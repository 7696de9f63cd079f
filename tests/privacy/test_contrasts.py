"""An adversary who chooses two people and all parameters stays within the distances."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contrast_terms import one_linear, one_pilot

from capeneuro.privacy import contrasts
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES, Query

Q, S, D = 3, 2, 3
ROWS, START = Q + S + D, np.zeros(1, int)
BEGINNINGS, STEPS = 300, 2000
# Weights of the pilot's parts: of a study, of its first step, as much of each, and of
# positive parts mostly.
PARTS = {
    "study": np.array([0.158, 0.074, 0.074, 0.074, 0.071, 0.132]),
    "range": np.array([0, 0.071, 0, 0, 0, 0.071]),
    "equal": np.ones(6),
    "positive": np.array([1.0, 0.2, 0.2, 0.1, 2.0, 1.0]),
    "no covariates": np.array([0, 1.0, 0, 0.5, 0, 0.3]),
}


def pilot(v: Iterator[float], parts: np.ndarray) -> dict[str, Any]:
    """Parameters of a pilot by numbers about 0."""
    return {
        "weights": _positive(v, Q),
        "n_sites": S,
        "center": np.clip(_signed(v, ROWS), -1e6, 1e6),
        "radius": float(_positive(v, 1)[0]),
        "unit": float(_positive(v, 1)[0]),
        "parts": parts,
    }


def linear(v: Iterator[float], has_bins: bool) -> dict[str, Any]:
    """The same of moments."""
    return {
        "weights": _positive(v, Q),
        "norms_of": _positive(v, Q),
        "longest": float(_positive(v, 1)[0]),
        "centers": _signed(v, Q * S).reshape(Q, S),
        "means": _signed(v, D * S).reshape(D, S),
        "slopes": _signed(v, Q * D).reshape(Q, D),
        **({"unit": float(_positive(v, 1)[0])} if has_bins else {}),
    }


def _positive(v: Iterator[float], n: int) -> np.ndarray:
    return np.exp(np.clip([3 * next(v) for _ in range(n)], -13, 13))


def _signed(v: Iterator[float], n: int) -> np.ndarray:
    values = np.array([next(v) for _ in range(n)])
    return np.clip(np.sinh(values) * (np.abs(values) > 0.3), -1e6, 1e6)


ASKED: dict[str, tuple[str, Callable[[Iterator[float]], dict[str, Any]]]] = {
    "moments": ("linear_moments", lambda v: linear(v, False)),
    "moments with bins": ("linear_moments", lambda v: linear(v, True)),
    **{
        f"pilot, {name}": ("pilot_moments", lambda v, p=parts: pilot(v, p))
        for name, parts in PARTS.items()
    },
}
N_NUMBERS = 2 * ROWS + ROWS + 2 * Q + 3 + (Q + D) * S + Q * D


def share(
    query: Query, about: Callable, v: np.ndarray, relation: str = "replace-one"
) -> float:
    """How far two people, and parameters, are apart, over the sensitivity."""
    X = np.sinh(np.clip(v[: 2 * ROWS], -25, 25)).reshape(2, ROWS, 1).astype("f4")
    parameters = {**about(iter(v[2 * ROWS :])), "clip": 1.0}
    assert query.admits(parameters, ROWS)
    here, there = (
        query.total(Block(x, START, "sample"), **parameters).copy() for x in X
    )
    moved = here - there if relation == "replace-one" else here
    return float(np.linalg.norm(moved) / query.sensitivity(1, relation, parameters))


def largest_share(
    query: Query, about: Callable, seed: int, relation: str = "replace-one"
) -> float:
    """Best of many random pairs, from which it climbs by steps of any length."""
    rng, best = np.random.default_rng(seed), (0.0, np.zeros(N_NUMBERS))
    for _ in range(BEGINNINGS):
        v = rng.choice([0.5, 2.0, 6.0]) * rng.standard_normal(N_NUMBERS)
        signs = rng.choice([-1.0, 1.0, 1.0], ROWS)  # the other one, partly opposite
        v[ROWS : 2 * ROWS] = signs * v[:ROWS] + rng.choice([0, 0, 4]) * v[-ROWS:]
        best = max(best, (share(query, about, v, relation), v), key=lambda b: b[0])
    for _ in range(STEPS):
        v = best[1].copy()
        some = rng.random(N_NUMBERS) < rng.choice([0.03, 0.1, 0.5])
        v[some] += 10 ** rng.uniform(-3, 1) * rng.standard_normal(some.sum())
        if rng.random() < 0.1:
            v[rng.integers(N_NUMBERS)] = 0.0
        best = max(best, (share(query, about, v, relation), v), key=lambda b: b[0])
    return best[0]


def climbed(
    name: str, seeds: int = 1, relation: str = "replace-one", **changes
) -> float:
    """The largest share that any of some searches finds."""
    of, about = ASKED[name]
    query = replace(QUERIES[of], **changes)
    return max(largest_share(query, about, seed, relation) for seed in range(seeds))


@pytest.mark.parametrize("name", ASKED)
def test_an_adversary_reaches_the_distance_but_not_more(name):
    reached = climbed(name, 3 if "moments" in name else 1)
    assert 0.97 < reached <= 1


@pytest.mark.parametrize("name", ["moments with bins", "pilot, study"])
def test_an_adversary_reaches_the_clip_but_not_more(name):
    assert 0.97 < climbed(name, relation="zero-out") <= 1


def positive_alone(parameters: dict[str, Any]) -> float:
    """Distance if all parts were positive."""
    return math.sqrt(2.0)


def without_bins(parameters: dict[str, Any]) -> float:
    """Distance if two people were in one bin always."""
    if "parts" not in parameters:
        return math.sqrt(4 + 2 * contrasts.PRODUCTS**2) / contrasts.reach(parameters)
    a = parameters["parts"]
    rest = contrasts.pilot_distance({"parts": a * [1, 1, 1, 1, 1, 0]})
    return rest * float(np.linalg.norm(a[:5]) / np.linalg.norm(a))


def opposite_always(parameters: dict[str, Any]) -> float:
    """Distance if squares of opposite people were all that positive parts are."""
    a = parameters["parts"] ** 2
    return math.sqrt((4 * a[:3].sum() + 2 * a[5]) / a.sum())


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("moments", positive_alone),
        ("moments with bins", without_bins),
        ("pilot, study", positive_alone),
        ("pilot, study", without_bins),
        ("pilot, range", without_bins),
        ("pilot, positive", opposite_always),
    ],
)
def test_an_adversary_finds_a_distance_that_is_too_small(name, distance):
    assert climbed(name, distance=distance) > 1.005


@pytest.mark.parametrize(("signed", "positive"), [(1, 0.09), (2, 1), (1, 3), (0, 1)])
def test_opposite_vectors_have_equal_squares(signed, positive):
    """Of all sizes p of the product of two vectors none is further than is said."""
    p = np.linspace(0, 1, 10_001)
    squares = signed * (2 + 2 * p) + positive * (2 - 2 * p**2)
    assert contrasts.apart(signed, positive) == pytest.approx(squares.max(), rel=1e-7)


def test_distances_are_those_of_the_page():
    """docs/proofs.md, Q10 and Q11."""
    found = [contrasts.moments_distance(p) for p in ({}, {"unit": 1.0})]
    right = [(4 + 2 * 0.36) / 1.85, (4 + 4 * 0.36) / 2.21]
    np.testing.assert_allclose(np.square(found), right)
    for parts, right in (
        (np.ones(6), (4.5 + 8 + 2) / 6),
        (np.array([3.0, 0, 0, 0, 1, 1]), (36 + 2) / 11),
        (np.array([0, 0, 0, 1.0, 1, 1]), 2),
        (np.array([0, 1.0, 1, 0, 0, 0]), 4),
    ):
        assert contrasts.pilot_distance({"parts": parts}) == pytest.approx(right**0.5)


# --- sums are what they stand for ----------------------------------------------------


@pytest.mark.parametrize("clip", [0.3, 5.0, np.inf])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("name", ASKED)
def test_sums_are_those_of_people_one_by_one(name, unit, clip, rng):
    of, about = ASKED[name]
    parameters = about(iter(0.4 * rng.standard_normal(N_NUMBERS)))
    lengths = np.array([1, 3, 1, 20, 2])
    starts = np.cumsum(lengths) - lengths
    X = (2 * rng.standard_normal((ROWS, lengths.sum()))).astype("f4")
    shares = np.repeat(1 / lengths, lengths) if unit == "subject" else np.ones(27)
    if of == "linear_moments":
        each = [one_linear(x, parameters, clip) for x in X.T.astype(float)]
    else:
        c = clip if np.isfinite(clip) else 1.0
        each = [c * one_pilot(x, parameters, c != clip) for x in X.T.astype(float)]
    total = QUERIES[of].total(Block(X, starts, unit), **parameters, clip=clip)
    np.testing.assert_allclose(total, shares @ np.array(each), rtol=1e-9, atol=1e-9)


# --- whatever the data are -----------------------------------------------------------

LARGE = {
    "weights": np.full(Q, 1e6),
    "norms_of": np.full(Q, 1e6),
    "centers": np.full((Q, S), 1e6),
    "means": np.full((D, S), -1e6),
    "slopes": np.full((Q, D), 1e6),
    "center": np.full(ROWS, -1e6),
    "n_sites": S,
    "parts": np.full(6, 1e6),
}
NUMBERS = ("longest", "radius", "unit")


def admitted(query: Query, factor: float, number: float) -> dict[str, Any]:
    """The largest parameters times a factor; all positive numbers are one."""
    about = {k: v if k == "n_sites" else factor * v for k, v in LARGE.items()}
    about |= dict.fromkeys(NUMBERS, number)
    return {k: about[k] for k in query.parameters if k != "clip"}


@pytest.mark.parametrize("clip", [1e-12, 1e12])
@pytest.mark.parametrize("number", [1e-12, 1e12])
@pytest.mark.parametrize("factor", [1.0, 1e-18])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("name", ["linear_moments", "pilot_moments"])
def test_at_every_edge_of_what_is_admitted_sums_are_finite(
    name, unit, factor, number, clip, rng
):
    query = QUERIES[name]
    parameters = {**admitted(query, factor, number), "clip": clip}
    assert query.admits(parameters, ROWS)
    odd = [np.nan, np.inf, -np.inf, 3e38, 1e9, -1e9, 1.1e9, 1e-45, 0.0]
    X = np.concatenate(
        [np.tile(odd, (ROWS, 1)), rng.choice([*odd, 1.0], (ROWS, 300))], axis=1
    ).astype("f4")
    X[:, 60:] = np.where(np.isfinite(X[:, 60:]), X[:, 60:], 1.0)
    lengths = np.array([3, 1, 5, X.shape[1] - 9])
    starts = np.cumsum(lengths) - lengths
    with np.errstate(all="raise", under="ignore"):
        totals = [query.total(Block(X, starts, unit), **parameters)]
    for here in range(4):  # each person alone is within the clip
        x = X[:, starts[here] : starts[here] + lengths[here]]
        alone = [x] if unit == "subject" else [x[:, [i]] for i in range(x.shape[1])]
        totals += [query.total(Block(y, START, unit), **parameters) for y in alone]
    assert all(np.isfinite(total).all() for total in totals)
    assert max(np.linalg.norm(total) for total in totals[1:]) <= clip


@pytest.mark.parametrize("name", ["moments", "pilot, study"])
def test_a_site_of_another_person_changes_nobody_elses_part(name, rng):
    """Rows of sites need not be one-hot, and a row that is none moves one person."""
    of, about = ASKED[name]
    parameters = {**about(iter(0.4 * rng.standard_normal(N_NUMBERS))), "clip": 1.0}
    X = rng.standard_normal((ROWS, 50)).astype("f4")
    other = X.copy()
    other[Q : Q + S, 7] = 1e8, -1e8
    here, there = (
        QUERIES[of].total(Block(x, np.arange(50), "subject"), **parameters)
        for x in (X, other)
    )
    alone = [
        QUERIES[of].total(Block(x[:, 7:8].copy(), START, "subject"), **parameters)
        for x in (X, other)
    ]
    np.testing.assert_allclose(here - there, alone[0] - alone[1], atol=1e-12)


def test_numbers_of_other_rows_are_not_admitted():
    query = QUERIES["linear_moments"]
    usual = {**admitted(query, 1e-6, 1.0), "clip": 1.0}
    assert query.admits(usual, ROWS) and query.admits(
        {k: v for k, v in usual.items() if k != "unit"}, ROWS
    )
    assert not query.admits(usual, ROWS + 1)
    odd = {
        "weights": np.ones(Q - 1),
        "norms_of": np.ones(Q + 1),
        "centers": np.zeros((Q, S + 1)),
        "means": np.zeros((S, D)),
        "slopes": np.zeros((D + 1, Q)),
        "unit": None,
    }
    for key, value in odd.items():
        assert not query.admits({**usual, key: value}, ROWS), key
    pilots = QUERIES["pilot_moments"]
    usual = {**admitted(pilots, 1e-6, 1.0), "clip": 1.0}
    for n_sites, fits in ((1, True), (S, True), (S + D - 1, True), (S + D, False)):
        assert pilots.admits({**usual, "n_sites": n_sites}, ROWS) == fits
