"""No neighbor moves a query beyond its claim, and sums are what they stand for."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contrast_terms import one_linear, one_pilot
from scipy.optimize import minimize

from capeneuro import linalg
from capeneuro.privacy import gradients, queries
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.gradients import SCALE
from capeneuro.privacy.queries import (
    BOUND,
    CLIP,
    COVARIANCE,
    DIRECTIONS,
    LARGEST_HIDDEN,
    MATRIX_OF_ROWS,
    PROJECTION,
    QUERIES,
    VECTOR_OF_ROWS,
    WEIGHTS,
    Query,
    is_projection,
)

D = 4
START = np.zeros(1, dtype=int)
STATE = np.random.default_rng(3)
W_ANY, B_ANY = STATE.standard_normal((D, D)), STATE.standard_normal(D)
# A rank-one W: (I - psi z') W can vanish while its terms are large.
W_THIN = np.outer(W_ANY[0], W_ANY[1]) * 1e3
# Public directions: any, and such that Q'x and Q'y are alike for most x and y.
Q_ANY = STATE.standard_normal((D, 2)).astype("f4")
Q_THIN = (W_ANY[:, :2] * [1.0, 1e-3]).astype("f4")
SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
# Covariances of noise: any, and one of rank 1 that cancels the cube of some samples.
S_ANY = np.add(W_ANY, W_ANY.T)
S_THIN = np.outer(W_ANY[0], W_ANY[0])
S_SPARSE = 1e3 * np.diag([1.0, 0.0, 1e-3, 0.0])
# One covariate, one site and two outcomes.
MOMENTS = {
    "weights": np.array([3.0]),
    "norms_of": np.array([0.5]),
    "longest": 0.7,
    "centers": np.array([[0.4]]),
    "means": np.array([[0.3], [-1.0]]),
    "slopes": np.array([[0.2, -0.1]]),
}
PILOT = {
    "weights": np.array([3.0]),
    "n_sites": 1,
    "center": B_ANY,
    "radius": 2.0,
    "unit": 0.5,
    "parts": np.array([1.0, 0.5, 0.5, 0.2, 0.3, 0.4]),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mean": ("mean", {"norm_bound": 2.0}),
    "second_moment": ("second_moment", {"norm_bound": 2.0}),
    "centered": ("second_moment", {"norm_bound": 2.0, "center": B_ANY}),
    "product": ("moment_product", {"norm_bound": 2.0, "Q": Q_ANY}),
    "product thin": ("moment_product", {"norm_bound": 2.0, "Q": Q_THIN}),
    "product centered": (
        "moment_product",
        {"norm_bound": 2.0, "Q": Q_ANY, "center": B_ANY},
    ),
    "white": ("white_second_moment", {}),
    "deviation": ("deviation", {"energies": np.abs(B_ANY), "weights": S_ANY}),
    "deviation thin": ("deviation", {"energies": B_ANY, "weights": S_SPARSE}),
    "linear moments": ("linear_moments", MOMENTS),
    "linear moments in bins": ("linear_moments", {**MOMENTS, "unit": 0.3}),
    "pilot": ("pilot_moments", PILOT),
    "bin shares": ("bin_shares", {}),
    "third": ("third_moment", {"norm_bound": 2.0, "covariance": 0.05 * np.eye(D)}),
    "third any": ("whitened_third_moment", {"covariance": S_ANY}),
    "third thin": ("whitened_third_moment", {"covariance": S_THIN}),
    "gradient": ("infomax_gradient", {"W": W_ANY, "b": B_ANY}),
    "gradient large": ("infomax_gradient", {"W": 1e4 * W_ANY, "b": B_ANY}),
    "skew": ("infomax_skew", {"W": W_ANY}),
    "skew large": ("infomax_skew", {"W": 1e4 * np.eye(D)}),
    "skew signs": ("infomax_skew", {"W": W_ANY, "signs": SIGNS}),
    "curvature": ("infomax_curvature", {"W": W_ANY}),
}


def _one_hot(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(D)[:, rng.integers(0, D, n)] * rng.choice([-1, 1, 1e3], n)


KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.standard_normal((D, n)),
    "huge": lambda rng, n: 1e6 * rng.standard_normal((D, n)),
    "zero": lambda rng, n: np.zeros((D, n)),
    "denormal": lambda rng, n: 1e-41 * rng.standard_normal((D, n)),
    "one-hot": _one_hot,
    "constant": lambda rng, n: np.full((D, n), rng.choice([-50.0, 0.1, 7.0])),
    "heavy": lambda rng, n: rng.standard_cauchy((D, n)),
    # z = W x is a multiple of a sign vector, so psi is parallel to z.
    "parallel": lambda rng, n: np.linalg.solve(W_ANY, rng.choice([-3.0, 3.0], (D, n))),
}


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request) -> tuple[Any, dict[str, Any]]:
    name, parameters = CASES[request.param]
    return QUERIES[name], parameters


def _total(query, parameters, units: list[np.ndarray], unit: str) -> np.ndarray:
    X = np.concatenate(units, axis=1).astype("f4")
    starts = np.cumsum([0, *(u.shape[1] for u in units[:-1])])
    return query.total(Block(X, starts, unit), **parameters)


def _worst(query, parameters, kind: str, unit: str, clip: float) -> dict[str, float]:
    """Largest distance over random neighbors, as a share of the claimed one."""
    rng = np.random.default_rng(11)
    parameters = {**parameters, "clip": clip}
    sizes = [1] * 5 if unit == "sample" else [1, 30, 7, 2, 5]
    worst = dict.fromkeys(("replace-one", "zero-out"), 0.0)
    for _ in range(12):
        units = [KINDS[rng.choice(list(KINDS))](rng, n) for n in sizes]
        k, other = rng.integers(5), KINDS[rng.choice(list(KINDS))]
        units[k] = KINDS[kind](rng, sizes[k])
        here = _total(query, parameters, units, unit)
        without = _total(query, parameters, units[:k] + units[k + 1 :], unit)
        units[k] = other(rng, rng.integers(1, 9) if unit == "subject" else 1)
        there = _total(query, parameters, units, unit)
        moved = {"replace-one": here - there, "zero-out": here - without}
        for relation, change in moved.items():
            claimed = query.sensitivity(5, relation, parameters)
            share = np.linalg.norm(change) / 5 / claimed
            worst[relation] = max(worst[relation], share)
    return worst


@pytest.mark.parametrize("clip", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbor_moves_a_query_beyond_its_sensitivity(case, kind, unit, clip):
    worst = _worst(*case, kind, unit, clip)
    assert worst["replace-one"] <= 1
    assert worst["zero-out"] <= 1


def _search(query, parameters, n: int, unit: str, relation: str) -> float:
    """Largest share of the claimed sensitivity that an optimizer finds."""
    parameters = {**parameters, "clip": 1.0}
    claimed = query.sensitivity(1, relation, parameters)

    def loss(v: np.ndarray) -> float:
        x, y = v.reshape(2, D, n).astype("f4")
        here = query.total(Block(x, START, unit), **parameters)
        there = query.total(Block(y, START, unit), **parameters)
        change = here - there if relation == "replace-one" else here
        return -np.linalg.norm(change) / claimed

    rng, found = np.random.default_rng(2), 0.0
    for scale in (1.0, 30.0):
        start = scale * rng.standard_normal(2 * D * n)
        options = {"maxfev": 1500, "maxiter": 1500}
        result = minimize(loss, start, method="Powell", options=options)
        found = max(found, -result.fun)
    return found


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_an_optimizer_reaches_the_sensitivity_but_not_more(case, unit, relation):
    share = _search(*case, 3 if unit == "subject" else 1, unit, relation)
    assert 0.8 < share <= 1


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_sqrt_two_is_attained_by_orthogonal_samples(unit):
    query, parameters = QUERIES["second_moment"], {"norm_bound": 1.0, "clip": 1.0}
    x, y = np.eye(D, dtype="f4")[:, :1], np.eye(D, dtype="f4")[:, 1:2]
    others = [np.ones((D, 1))] * 9
    here, there = (_total(query, parameters, [v, *others], unit) for v in (x, y))
    distance = np.linalg.norm(here - there) / 10
    assert distance == pytest.approx(np.sqrt(2) / 10, rel=0.01)
    assert distance <= query.sensitivity(10, "replace-one", parameters)


@pytest.mark.parametrize(
    ("name", "relation", "expected"),
    [
        ("mean", "replace-one", 6 / 8),
        ("mean", "zero-out", 3 / 8),
        ("moment_product", "replace-one", 6 / 8),
        ("moment_product", "zero-out", 3 / 8),
        ("second_moment", "replace-one", np.sqrt(2) * 3 / 8),
        ("second_moment", "zero-out", 3 / 8),
        ("white_second_moment", "replace-one", np.sqrt(2) * 3 / 8),
        ("linear_moments", "replace-one", (4.72 / 1.85) ** 0.5 * 3 / 8),
        ("linear_moments", "zero-out", 3 / 8),
        ("pilot_moments", "replace-one", (6.32 / 1.79) ** 0.5 * 3 / 8),
        ("pilot_moments", "zero-out", 3 / 8),
        ("deviation", "replace-one", 6 / 8),
        ("deviation", "zero-out", 3 / 8),
        ("network_gradient", "replace-one", 6 / 8),
        ("network_gradient", "zero-out", 3 / 8),
        ("log_odds_counts", "replace-one", np.sqrt(2) * 3 / 8),
        ("log_odds_counts", "zero-out", 3 / 8),
        ("third_moment", "replace-one", 6 / 8),
        ("third_moment", "zero-out", 3 / 8),
        ("whitened_third_moment", "replace-one", 6 / 8),
        ("word_pairs", "replace-one", np.sqrt(2) * 3 / 8),
        ("word_triples", "replace-one", np.sqrt(2) * 3 / 8),
        ("word_triples", "zero-out", 3 / 8),
        ("whitened_word_triples", "replace-one", 6 / 8),
        ("infomax_gradient", "replace-one", 6 / 8),
        ("infomax_gradient", "zero-out", 3 / 8),
        ("infomax_skew", "replace-one", 6 / 8),
        ("infomax_skew", "zero-out", 3 / 8),
        ("infomax_curvature", "replace-one", 6 / 8),
        ("infomax_curvature", "zero-out", 3 / 8),
    ],
)
def test_sensitivities_are_those_of_the_table(name, relation, expected):
    parameters = {"clip": 3.0, "parts": PILOT["parts"]}
    found = QUERIES[name].sensitivity(8, relation, parameters)
    assert found == pytest.approx(expected)


def _clipped(x: np.ndarray, bound: float) -> np.ndarray:
    return x * min(1.0, CLIP_SAFETY * bound / max(np.linalg.norm(x), 1e-300))


def _naive(name: str, X: np.ndarray, clip: float, parameters: dict) -> np.ndarray:
    """One unit's contribution, from its own matrices in float64."""
    W = parameters.get("W")
    n = X.shape[1]
    if "norm_bound" in parameters:
        X = (
            X / parameters["norm_bound"]
            - parameters.get("center", np.zeros(D))[:, None]
        )
    if name.endswith("third_moment"):
        S = parameters["covariance"]
        T = np.einsum("in,jn,kn->ijk", X, X, X) / n
        for sides in ("i,jk->ijk", "j,ik->ijk", "k,ij->ijk"):
            T -= np.einsum(sides, X.mean(axis=1), S)
        return linalg.pack_symmetric3(_clipped(T, clip))
    if name == "mean":
        return _clipped(X.mean(axis=1), clip)
    if name == "bin_shares":
        return _clipped(np.maximum(X, 0).mean(axis=1), clip)
    if name == "moment_product":
        return _clipped(X @ X.T @ parameters["Q"] / n, clip).ravel()
    if name == "linear_moments":
        each = [
            one_linear(x, parameters, clip if clip < 1e200 else np.inf) for x in X.T
        ]
        return np.mean(each, axis=0)
    if name == "pilot_moments":
        is_exact = clip > 1e200
        each = [one_pilot(x, parameters, is_exact) for x in X.T]
        return np.mean(each, axis=0) * (1.0 if is_exact else clip)
    if name == "deviation":
        weights = parameters["weights"]
        z = linalg.pack_symmetric(
            (X @ X.T / n - np.diag(parameters["energies"])) * weights
        )[linalg.pack_symmetric(weights) != 0]
        c = clip / np.sqrt(1 + 1 / 16)
        f = min(1.0, CLIP_SAFETY * c / np.linalg.norm(z))
        return np.append(f * z, (c if clip < 1e200 else 1.0) * (f - 0.5) / 2)
    if name.endswith("second_moment"):
        C = X @ X.T / n
        if n == 1:  # samples are clipped as vectors: squared norm, safety twice
            return linalg.pack_symmetric(_clipped(C, clip * CLIP_SAFETY))
        return linalg.pack_symmetric(_clipped(C, clip))
    Z = W @ X + parameters.get("b", np.zeros(D))[:, None]
    psi = np.tanh(Z / 2)
    if name == "infomax_curvature":
        q = SCALE**2 * (1 - psi**2) / 2 - psi * Z
        return _clipped(q.mean(axis=1), clip)
    if name == "infomax_skew":
        P = parameters.get("signs", np.ones(D))[:, None] * psi @ Z.T / n
        return linalg.pack_skew(_clipped((P - P.T) / 2, clip))
    G = np.eye(D) - psi @ Z.T / n
    return _clipped(np.concatenate([G.ravel(), -psi.mean(axis=1)]), clip)


@pytest.mark.parametrize("clip", [0.3, 2.0, 1e3])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize(
    "label",
    [label for label in CASES if not label.endswith(("thin", "large"))],
)
def test_closed_forms_equal_a_matrix_per_unit(label, unit, clip, rng):
    name, parameters = CASES[label]
    sizes = [1] * 300 if unit == "sample" else [20, 3, 50]
    units = [rng.standard_normal((D, n)) * rng.choice([0.1, 1, 4]) for n in sizes]
    units = [u.astype("f4").astype("f8") for u in units]
    expected = sum(_naive(name, u, clip, parameters) for u in units)
    found = _total(QUERIES[name], {**parameters, "clip": clip}, units, unit)
    error = np.linalg.norm(found - expected)
    assert error < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_streaming_by_subject_equals_one_block(case, unit, rng):
    query, parameters = case
    parameters = {**parameters, "clip": 1.0}
    subjects = [2 * rng.standard_normal((D, n)).astype("f4") for n in (5000, 17, 1)]
    streamed = sum(query.total(Block(X, START, unit), **parameters) for X in subjects)
    together = _total(query, parameters, subjects, unit)
    np.testing.assert_allclose(together, streamed, atol=2e-6 * np.abs(streamed).max())


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_an_infinite_clip_is_the_exact_statistic(case, unit, rng):
    query, parameters = case
    X = rng.standard_normal((D, 50))
    found = query.total(Block(X.astype("f4"), START, unit), **parameters, clip=np.inf)
    columns = [X] if unit == "subject" else [X[:, i : i + 1] for i in range(50)]
    expected = sum(_naive(query.name, x, 1e300, parameters) for x in columns)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=3e-5 * scale)


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("label", ["gradient", "skew", "curvature"])
def test_blocks_of_any_size_give_one_sum(label, unit, rng, monkeypatch):
    name, parameters = CASES[label]
    parameters = {**parameters, "clip": 0.7}
    # Subjects that share a block, that fill one, and that are longer.
    subjects = [rng.standard_normal((D, n)) for n in (3, 61, 64, 200, 1, 1, 17)]
    whole = _total(QUERIES[name], parameters, subjects, unit)
    for size in (1, 64, 100):
        monkeypatch.setattr(gradients, "BLOCK", size)
        parts = _total(QUERIES[name], parameters, subjects, unit)
        np.testing.assert_allclose(parts, whole, atol=1e-5 * np.abs(whole).max())


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("label", ["gradient", "skew", "curvature"])
def test_no_temporary_grows_with_the_data(label, unit, rng):
    name, parameters = CASES[label]
    X = rng.standard_normal((D, 40 * gradients.BLOCK)).astype("f4")
    starts = np.arange(0, X.shape[1], 100)
    tracemalloc.start()
    QUERIES[name].total(Block(X, starts, unit), **parameters, clip=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * D * gradients.BLOCK * 4 < X.nbytes / 3


def test_the_curvature_tells_the_kind_of_a_source(rng):
    n = 50_000
    Z = [rng.laplace(size=n), rng.uniform(-1, 1, n), rng.standard_normal(n)]
    Z = np.array([SCALE * z / z.std() for z in Z])
    f = QUERIES["infomax_curvature"].total
    found = f(Block(Z.astype("f4"), START, "sample"), W=np.eye(3), clip=np.inf) / n
    assert found[0] > 0.1
    assert found[1] < -0.1
    assert abs(found[2]) < 0.02


def test_signs_turn_the_gradient_of_sub_gaussian_sources(rng):
    """Rotated uniform sources: the gradient leads away, with signs it leads back."""
    Z = SCALE * rng.uniform(-np.sqrt(3), np.sqrt(3), (2, 50_000))
    t = 0.3
    X = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) @ Z
    f = QUERIES["infomax_skew"].total
    block = Block(X.astype("f4"), START, "sample")
    common = {"W": np.eye(2), "clip": np.inf}
    (plain,) = f(block, **common)
    (signed,) = f(block, **common, signs=-np.ones(2))
    assert signed == pytest.approx(-plain, rel=1e-5)
    step = linalg.unpack_skew(np.array([signed])) / Z.shape[1]
    angle = np.arctan2(*(np.eye(2) - step)[:, 0][::-1])
    assert angle * t < 0


# --- parameters ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "signs",
    [np.ones(D - 1), np.zeros(D), 2 * SIGNS, np.nan * SIGNS, SIGNS.astype("f4"), None],
    ids=str,
)
def test_odd_signs_are_not_admitted(signs):
    query = QUERIES["infomax_skew"]
    assert query.admits({"W": W_ANY, "clip": 1.0, "signs": SIGNS}, D)
    assert not query.admits({"W": W_ANY, "clip": 1.0, "signs": signs}, D)


SIX = np.ones(6)
NAN_LAST = np.append(np.zeros(D - 1), np.nan)
SKEWED = np.eye(D) + np.eye(D, k=1)
NUMBERS = [1, 1.0, 1e-12, 1e12, 10**12]
ODD = [
    *(None, True, "1", b"1", 1j, [1.0], {}, 0, -1.0, 9e-13, 1.1e12, 10**400),
    *(np.nan, -np.inf, np.float64(1), np.float32(1), np.int64(1), np.array(1.0)),
]
# By kind: values that fit data of D rows, and values that do not.
EXAMPLES = {
    "bound": (BOUND, NUMBERS, [*ODD, np.inf]),
    "clip": (CLIP, [*NUMBERS, np.inf], ODD),
    "vector": (
        VECTOR_OF_ROWS,
        [np.zeros(D), np.full(D, 1e6), np.full(D, -1e6), np.zeros(2 * D)[::2]],
        [
            *(*NUMBERS, None, [0.0] * D, np.zeros(D - 1), np.zeros((D, 1)), NAN_LAST),
            *(np.full(D, 1.1e6), np.full(D, np.inf), np.zeros(0), np.array(0.0)),
            *(np.zeros(D, kind) for kind in ("f4", "f2", ">f8", "i8", "c16", "O", "?")),
        ],
    ),
    "matrix": (
        MATRIX_OF_ROWS,
        [np.eye(D), SKEWED, np.asfortranarray(SKEWED), np.full((D, D), -1e6)],
        [
            *(*NUMBERS, None, np.zeros(D), np.zeros(D * D), np.zeros((D, D, D))),
            *(np.zeros((D, D - 1)), np.zeros((D + 1, D)), np.eye(D, dtype="f4")),
            *(np.eye(D) * np.nan, np.eye(D) * 1.1e6, np.eye(D).tolist()),
        ],
    ),
    "signs": (
        queries.SIGNS,
        [np.ones(D), -np.ones(D), SIGNS],
        [np.zeros(D), 2 * SIGNS, SIGNS[:-1], SIGNS[None], SIGNS.astype("i8"), NAN_LAST],
    ),
    "covariance": (
        COVARIANCE,
        [np.zeros((D, D)), np.eye(D), S_ANY, -S_ANY],
        [
            SKEWED,
            np.eye(D) * np.nan,
            np.eye(D, dtype="f4"),
            np.eye(D + 1),
            1e7 * S_THIN,
        ],
    ),
    "directions": (
        DIRECTIONS,
        [Q_ANY, Q_THIN, np.eye(D, dtype="f4"), np.full((D, 1), -1e6, "f4")],
        [
            *(np.eye(D), np.eye(D, D + 1, dtype="f4"), np.eye(D + 1, D, dtype="f4")),
            *(np.zeros((D, 0), "f4"), np.zeros(D, "f4"), np.full((D, 1), 1.1e6, "f4")),
            *(Q_ANY * np.float32(np.nan), Q_ANY * np.float32(np.inf), Q_ANY.T, None),
        ],
    ),
    "weights": (
        WEIGHTS,
        [np.zeros(h * (D + 1) + 1) for h in (1, 2, LARGEST_HIDDEN)],
        [
            *(np.zeros(h * (D + 1) + 1) for h in (0, LARGEST_HIDDEN + 1)),
            *(np.zeros(D + 1), np.zeros(D + 3), np.zeros((1, D + 2)), np.zeros(0), 1.0),
            *(np.zeros(D + 2, "f4"), np.full(D + 2, np.nan), np.full(D + 2, 1.1e6)),
        ],
    ),
    "covariates": (
        queries.COVARIATES,
        [np.ones(1), np.full(1, 1e-12), np.full(1, 1e6), np.ones(D - 1)],
        [
            *(np.zeros(1), np.zeros(2), -np.ones(1), np.ones(0), np.ones((1, 1)), 1.0),
            *(np.ones(1, "f4"), np.full(1, np.nan), np.full(1, 1.1e6), np.ones(D)),
        ],
    ),
    "site matrix": (
        queries.SITE_MATRIX,
        [np.zeros((1, 2)), np.full((2, 1), -1e6), np.eye(1)],
        [
            *(np.ones((2, 2)), np.ones(1), np.ones((0, 2)), np.ones((1, 1, 1)), None),
            *(np.ones((1, 1), "f4"), np.full((1, 1), np.nan), np.full((1, 1), 1.1e6)),
        ],
    ),
    "parts": (
        queries.PARTS,
        [np.ones(6), np.eye(6)[0], np.full(6, 1e6), 1e-12 * np.eye(6)[5], -0.0 + SIX],
        [
            *(np.zeros(6), -np.eye(6)[0], SIX[:5], SIX[None], [1.0] * 6, 1.0, None),
            *(SIX.astype("f4"), 1.1e6 * SIX, np.nan * SIX, np.inf * SIX, 1e-13 * SIX),
        ],
    ),
    "count": (queries.COUNT, [1, 2, 3], [0, -1, 4, 1.0, True, np.int64(1), None]),
    "projection": (
        PROJECTION["matrix"],
        [np.eye(2, D), np.eye(2, D, dtype="f4"), np.eye(D), np.full((1, D), 1e30)],
        [
            *(np.eye(D + 1, D), np.eye(2, D + 1), np.zeros((0, D)), np.zeros(D), None),
            *(np.eye(2, D, dtype="i8"), np.full((2, D), np.inf), np.eye(2, D) * np.nan),
        ],
    ),
}


@pytest.mark.parametrize("label", EXAMPLES)
def test_a_kind_takes_what_its_sensitivity_was_derived_for(label):
    kind, fitting, odd = EXAMPLES[label]
    assert [kind.fits(value, D) for value in fitting] == [True] * len(fitting)
    assert [kind.fits(value, D) for value in odd] == [False] * len(odd)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_takes_every_kind_it_declares_and_nothing_else(name):
    examples = {id(kind): (good, bad) for kind, good, bad in EXAMPLES.values()}
    query = QUERIES[name]
    of = {key: examples[id(kind)] for key, kind in query.parameters.items()}
    usual = {key: good[0] for key, (good, _) in of.items()}
    if name == "linear_moments":
        usual |= MOMENTS
    assert query.admits(usual, D)
    for key, (good, bad) in of.items():
        for value in good:
            changed = {**usual, key: value}
            assert query.admits(changed, D) == query.agree(changed, D)
        assert not any(query.admits({**usual, key: value}, D) for value in bad)
    optional = {"signs", *(["unit"] if name == "linear_moments" else [])}
    optional |= {"norm_bound"} if "third" in name else set()
    optional |= {"center"} if name != "pilot_moments" else set()
    for key in usual:
        without = {k: v for k, v in usual.items() if k != key}
        assert query.admits(without, D) == (key in optional)
    assert not query.admits({**usual, "X": np.eye(D)}, D)


def test_a_projection_has_its_three_fields_and_no_other():
    usual = {"matrix": np.eye(2, D), "norm_bound": 1.0, "center": np.zeros(D)}
    assert is_projection(usual, D)
    assert not is_projection({**usual, "clip": 1.0}, D)
    assert not is_projection({**usual, "norm_bound": np.inf}, D)
    assert not is_projection({**usual, "center": None}, D)
    for key in usual:
        assert not is_projection({k: v for k, v in usual.items() if k != key}, D)


def test_a_query_that_declares_other_keywords_than_its_sum_cannot_be_made():
    total = QUERIES["mean"].total
    for wrong in ({"clip": CLIP}, {"clip": CLIP, "norm_bound": BOUND, "b": BOUND}):
        with pytest.raises(ValueError, match="wrong: declares"):
            Query("wrong", "features", total, parameters=wrong)


# Attacks that once worked


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_value_that_is_not_finite_counts_as_zero(value, unit):
    X = np.ones((D, 3), "f4")
    X[0, 1] = value
    total = QUERIES["second_moment"].total
    f = total(Block(X, np.arange(3), unit), norm_bound=1e-3, clip=1.0)
    assert np.isfinite(f).all()


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("label", ["gradient", "skew", "curvature"])
def test_the_largest_data_and_weights_that_are_let_in_stay_finite(label, unit, rng):
    name, parameters = CASES[label]
    W = 1e6 * np.sign(rng.standard_normal((D, D)))
    X = np.float32(1e9) * np.sign(rng.standard_normal((D, 5))).astype("f4")
    parameters = {**parameters, "W": W, "clip": 1.0}
    with np.errstate(over="ignore"):
        f = QUERIES[name].total(Block(X, np.arange(5), unit), **parameters)
    assert np.isfinite(f).all()
    assert np.linalg.norm(f) <= 5


def test_rounding_of_a_long_block_stays_within_the_safety():
    rng = np.random.default_rng(0)
    query, parameters = QUERIES["infomax_skew"], {"W": np.eye(6), "clip": 1.0}
    worst = 0.0
    for _ in range(10):
        X = (500 * (1 + 0.01 * rng.standard_normal((6, 4096)))).astype("f4")
        totals = []
        for a, b in ((500.0, 0.3), (0.3, 500.0)):  # K and -K, both at the bound
            X[:, 1365], X[:2, 1365] = 0, (a, b)
            totals.append(query.total(Block(X, START, "sample"), **parameters))
        worst = max(worst, float(np.linalg.norm(totals[0] - totals[1])))
    assert worst <= query.sensitivity(1, "replace-one", parameters)


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<f4"])
def test_weights_of_another_type_are_not_admitted(dtype):
    # -2^63 has no absolute value in int64, and its square wraps to 0.
    W = np.full((D, D), np.iinfo("i8").min if dtype == "<i8" else 1).astype(dtype)
    query = QUERIES["infomax_skew"]
    assert not query.admits({"W": W, "clip": 1.0}, D)
    assert query.admits({"W": np.eye(D), "clip": 1.0}, D)


def test_many_volumes_of_one_person_do_not_swallow_one(rng):
    # Many equal samples just below a power of two: float32 rounds what is added last.
    n, query = 100_000, QUERIES["second_moment"]
    claimed = query.sensitivity(1, "replace-one", {"clip": 1.0})
    worst = 0.0
    for _ in range(40):
        big = int(n * rng.uniform(0.2, 0.95))
        target = 2.0 ** np.floor(np.log2(big))
        X = np.zeros((2, n), dtype="f4")
        X[0, :big] = np.sqrt((target - rng.uniform(-1, 1)) / big)
        X[0, big:] = np.sqrt(target * 2.0**-24 * rng.choice([0.5, 1, 2, 4]))
        totals = []
        for sample in ((1, 0), (0, 1)):
            X[:, 0] = sample
            totals.append(
                query.total(Block(X, START, "sample"), norm_bound=1.0, clip=1.0).copy()
            )
        worst = max(worst, np.linalg.norm(totals[0] - totals[1]) / claimed)
    assert worst <= 1


@pytest.mark.parametrize("label", ["gradient", "skew", "curvature"])
def test_the_length_of_one_person_moves_nobody_elses_part(label, rng):
    """BLAS rounds a column by its place; a W that cancels makes rounding a direction.

    One product for all people broke this by up to 3 times the sensitivity.
    """
    R, T, n_others = 20, 120, 60
    query = QUERIES[f"infomax_{label}"]
    others = rng.standard_normal((R, n_others * T)).astype("f4")
    parameters = {"W": np.full((R, R), 1e6), "clip": 1e-12}
    if label == "gradient":
        parameters["b"] = np.zeros(R)

    def total(length: int) -> np.ndarray:
        X = np.concatenate([rng.standard_normal((R, length)).astype("f4"), others], 1)
        starts = np.array([0, *(length + T * np.arange(n_others))])
        return query.total(Block(X, starts, "subject"), **parameters)

    distance = np.linalg.norm(total(T) - total(T + 37))
    # Of sums over units: n_units times that of means.
    assert distance <= query.sensitivity(1, "replace-one", parameters)
