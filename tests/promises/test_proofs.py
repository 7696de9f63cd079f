"""Each statement of docs/proofs.md has a check here or elsewhere that an error breaks.

A *check* looks at one statement in the code as it is and raises if it is false; an
*error* is planted in the code. Each error of :data:`PLANTED` has to break its check.
"""

import ast
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy
from coalitions import mu_of_view
from helpers import agree, budget, make_site, make_sites, request
from sums import Sum

from capeneuro import linalg
from capeneuro.federation import gate as gates
from capeneuro.federation import noise_addition
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import ROOM, Gate
from capeneuro.federation.hash_chain import Lines
from capeneuro.federation.index import Index, Spent
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.messages import pack
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg.protocol import Mismatch
from capeneuro.federation.site import Site
from capeneuro.privacy import (
    accountants,
    accounting,
    calibration,
    cape,
    clipping,
    contrasts,
    deviations,
    gradients,
    moments,
    noise,
    parties,
    ring,
    rounding,
)
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.queries import QUERIES, Query
from capeneuro.report import privacy_record

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "proofs.md").read_text()
Patch = pytest.MonkeyPatch


# --- how far one person moves a query ------------------------------------------------

FAR, ONE = 1e4, np.eye(2, dtype="f4")[:, :1]
UP, ACROSS = np.array([[30.0], [1.0]]), np.array([[-30.0], [1.0]])
# Of each query, parameters and two people who are as far apart as its table says.
APART: dict[str, tuple[dict[str, Any], np.ndarray, np.ndarray]] = {
    "mean": ({"norm_bound": 1.0}, ONE, -ONE),
    "second_moment": ({"norm_bound": 1.0}, ONE, ONE[::-1]),
    "white_second_moment": ({}, ONE, ONE[::-1]),
    "moment_product": (
        {"norm_bound": 1.0, "Q": ONE[::-1].copy()},
        FAR * UP,
        FAR * ACROSS,
    ),
    "bin_shares": ({}, ONE, ONE[::-1]),
    "third_moment": ({"norm_bound": 1.0, "covariance": np.zeros((2, 2))}, ONE, -ONE),
    "whitened_third_moment": ({"covariance": np.eye(2) / 9}, 9 * ONE, -9 * ONE),
    "word_pairs": ({}, 3 * ONE, 3 * ONE[::-1]),
    "word_triples": ({}, 3 * ONE, 3 * ONE[::-1]),
    "whitened_word_triples": (
        {"Q": np.array([[1.0, 0.0], [-1.0, 0.0]], "f4")},
        3 * ONE,
        3 * ONE[::-1],
    ),
    "deviation": (
        {"energies": np.ones(2), "weights": 9 * np.eye(2)},
        np.array([[9.0], [9.0]]),
        np.zeros((2, 1)),
    ),
    # Opposite products, covariates that are orthogonal but for the one in these, and
    # distances that are in two bins.
    "linear_moments": (
        {
            "weights": np.array([1.0, 1e-9, 1e-9]),
            "norms_of": np.array([1e-9, 1.0, 1.0]),
            "longest": 1.0,
            "centers": np.zeros((3, 1)),
            "means": np.zeros((1, 1)),
            "slopes": np.zeros((3, 1)),
            "unit": 1.0,
        },
        np.array([[1.0], [1.0], [0.0], [1.0], [0.75]]),
        np.array([[-1.0], [0.0], [3.16], [1.0], [7.5]]),
    ),
    # Of another group, of opposite outcomes that are farther away.
    "pilot_moments": (
        {
            "weights": np.ones(1),
            "n_sites": 1,
            "center": np.zeros(3),
            "radius": 1.0,
            "unit": 1.0,
            "parts": np.ones(6) * [2, 1, 1, 1, 1, 1],
        },
        np.array([[1.0], [1.0], [1.0]]),
        np.array([[-1.0], [1.0], [-9.0]]),
    ),
    # One hidden unit that is active, an output of one half, and the two labels.
    "network_gradient": (
        {"weights": np.array([9.0, 9.0, 0.0, 0.0]), "norm_bound": 1.0},
        np.array([[1.0], [0.0]]),
        np.array([[1.0], [1.0]]),
    ),
    # The two labels of one person.
    "log_odds_counts": (
        {"weights": np.array([9.0, 9.0, 1.0, 0.0]), "norm_bound": 1.0},
        np.array([[1.0], [0.0]]),
        np.array([[1.0], [1.0]]),
    ),
    "infomax_gradient": (
        {"W": np.eye(1), "b": np.zeros(1)},
        np.zeros((1, 1)),
        np.full((1, 1), FAR),
    ),
    "infomax_skew": ({"W": np.eye(2)}, 9 * UP, 9 * np.array([[30.0], [-1.0]])),
    "infomax_curvature": ({"W": np.eye(1)}, np.zeros((1, 1)), np.full((1, 1), FAR)),
}
# Clips that bind: of others the unclipped terms are that far apart.
CLIPS = {"third_moment": 0.5, "infomax_curvature": 0.5, "infomax_skew": 0.1}
CLIPS |= {"network_gradient": 0.1, "mean": 0.5}
# The most of its claim that a query is known to attain.
ATTAINED = {"linear_moments": 0.98, "infomax_gradient": 0.7, "deviation": 0.95}
CONTRASTS = ("pilot_moments", "linear_moments")
PAPERS = ("second_moment", "white_second_moment", "word_pairs", "word_triples")


def share_of_claim(name: str) -> float:
    """How far two people are apart, as a share of the query's sensitivity."""
    query, (parameters, x, y) = QUERIES[name], APART[name]
    parameters = {**parameters, "clip": CLIPS.get(name, 1.0)}
    assert query.admits(parameters, len(x))
    here, there = (
        query.total(Block(z.astype("f4"), np.zeros(1, int), "sample"), **parameters)
        for z in (x, y)
    )
    claim = query.sensitivity(1, "replace-one", parameters)
    return float(np.linalg.norm(here - there) / claim)


def claim_holds(name: str) -> Callable[[], None]:
    """Two people are apart as claimed, and hardly less."""

    def check() -> None:
        share = share_of_claim(name)
        assert ATTAINED.get(name, 0.99) * CLIP_SAFETY <= share <= 1

    return check


def smaller_claim(name: str) -> Callable[[Patch], None]:
    """The value of the papers, or that of positive terms for terms that are not."""

    def plant(patch: Patch) -> None:
        sensitivity, root = Query.sensitivity, math.sqrt(2.0)
        patch.setattr(Query, "sensitivity", lambda *args: sensitivity(*args) / root)

    return plant


def negative_bins(patch: Patch) -> None:
    query = replace(QUERIES["bin_shares"])

    def total(block: Block, *, clip: float) -> np.ndarray:
        return moments.mean(block, norm_bound=1.0, clip=clip)

    object.__setattr__(query, "total", total)
    patch.setitem(QUERIES, "bin_shares", query)


def bins_are_positive() -> None:
    totals = []
    for x in (ONE, -ONE):
        block = Block(x.copy(), np.zeros(1, int), "sample")
        totals.append(QUERIES["bin_shares"].total(block, clip=1.0))
    claim = QUERIES["bin_shares"].sensitivity(1, "replace-one", {"clip": 1.0})
    assert np.linalg.norm(totals[0] - totals[1]) <= claim


def no_clip(patch: Patch) -> None:
    for module in (clipping, moments, gradients, deviations, contrasts):
        patch.setattr(module, "clip_factors", lambda norms, _: np.ones_like(norms))


def terms_are_clipped() -> None:
    """A person of any size adds a term of norm 1 at most, to each query."""
    for name, (parameters, x, _) in APART.items():
        block = Block(1e3 * x.astype("f4"), np.zeros(1, int), "sample")
        if "word" in name or name in ("network_gradient", "log_odds_counts"):
            block = replace(block, X=x.astype("f4"))
        total = QUERIES[name].total(block, **parameters, clip=0.1)
        assert np.linalg.norm(total) <= 0.1, name


def whole_block(patch: Patch) -> None:
    patch.setattr(moments, "GRAM_BLOCK", 2**30)


def rounding_is_covered() -> None:
    """What any order of adding can round away is less than what the clip leaves."""
    k = moments.GRAM_BLOCK
    assert k * k * 2.0**-23 < math.sqrt(2) * (1 - CLIP_SAFETY)
    assert 2.5 * linalg.CHUNK**2 * 2.0**-23 < 2 * (1 - CLIP_SAFETY)


def keeps_outliers(patch: Patch) -> None:
    for module in (clipping, contrasts, deviations):
        patch.setattr(module, "without_outliers", lambda X: X)


def sums_are_finite() -> None:
    for name in ("mean", "second_moment", *CONTRASTS, "deviation"):
        parameters, x, _ = APART[name]
        X = np.concatenate([np.full_like(x, np.inf), x], axis=1).astype("f4")
        with np.errstate(all="ignore"):
            block = Block(X, np.arange(2), "sample")
            total = QUERIES[name].total(block, **parameters, clip=1.0)
        assert np.isfinite(total).all(), name


def small_reach(patch: Patch) -> None:
    patch.setattr(contrasts, "reach", lambda _: 1.0)


def squares_of_opposite_people_are_equal() -> None:
    """Two people with any products are no further apart than the pilot's claim."""
    query, (parameters, *_) = QUERIES["pilot_moments"], APART["pilot_moments"]
    parameters = {**parameters, "clip": 1.0, "n_sites": 1, "weights": np.ones(2)}
    parameters |= {"center": np.zeros(4), "parts": np.array([1.0, 0, 0, 0, 2, 0])}
    worst = 0.0
    for angle in np.linspace(0, np.pi, 50):
        x = np.array([[1.0, 0, 1, 0], [np.cos(angle), np.sin(angle), 1, 0]], "f4")
        here, there = (
            query.total(Block(z[:, None], np.zeros(1, int), "sample"), **parameters)
            for z in x
        )
        worst = max(worst, float(np.linalg.norm(here - there)))
    assert 0.99 < worst / query.sensitivity(1, "replace-one", parameters) <= 1


def always_opposite(patch: Patch) -> None:
    query = replace(
        QUERIES["pilot_moments"],
        distance=lambda p: 2 * float(p["parts"][0] / np.linalg.norm(p["parts"])),
    )
    patch.setitem(QUERIES, "pilot_moments", query)


def no_mean_factor(patch: Patch) -> None:
    patch.setattr(deviations, "OF_CLIP", 1.0)


def contributions_fit(name: str) -> Callable[[], None]:
    def check() -> None:
        """The term of the first person, clipped by its outcomes, is within the clip."""
        parameters, x, _ = APART[name]
        block = Block(x.astype("f4"), np.zeros(1, int), "sample")
        for scale in (1.0, 0.1, 0.01):
            block = replace(block, X=(scale * x).astype("f4"))
            total = QUERIES[name].total(block, **parameters, clip=1.0)
            assert np.linalg.norm(total) <= 1

    return check


def other_packing(patch: Patch) -> None:
    patch.setattr(linalg, "SQRT2", 2.0)


def packing_keeps_norms() -> None:
    C = np.random.default_rng(1).standard_normal((7, 7))
    packed = linalg.pack_symmetric(C + C.T)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(C + C.T), rel=1e-12)


# --- noise of all sites --------------------------------------------------------------

GAMMA = np.array([1.0, 4.0, 0.5, 2.0, 1.0])


def worst_losses(gamma: np.ndarray, ratio: float, c: int) -> list[float]:
    """Loss of each site by every coalition's own covariance matrix."""
    from itertools import combinations

    worst = []
    for k in range(len(gamma)):
        others = [s for s in range(len(gamma)) if s != k]
        of_site = 0.0
        for left in combinations(others, len(others) - c):
            g = gamma[[k, *left]]
            e = ratio * g
            Sigma = np.diag([*(g + e), e.sum()])
            Sigma[-1, :-1] = Sigma[:-1, -1] = e
            of_site = max(of_site, np.linalg.inv(Sigma)[0, 0])
        worst.append(math.sqrt(of_site))
    return worst


def losses_are_those_of_the_view() -> None:
    for ratio in (5.0, 50.0):
        for c in (0, 1, 2):
            mus = cape.losses(1.0, ratio * GAMMA, GAMMA, c)
            np.testing.assert_allclose(mus, worst_losses(GAMMA, ratio, c), rtol=1e-8)


def papers_formula(patch: Patch) -> None:
    """Thesis (3.3)-(3.4): for equal sites, and no colluder, S (S + 2) / (S^2 - 1)..."""

    def losses(sensitivity, sigma2, gamma, n_colluding):
        S = len(gamma)
        factor = 1 + 2 / (S - n_colluding)
        return np.asarray(sensitivity) * np.sqrt(
            S / (S + 1) * factor / np.asarray(sigma2)
        )

    patch.setattr(cape, "losses", losses)


def friendly_coalition(patch: Patch) -> None:
    def sums(values, n_missing):
        n_others = max(len(values) - 1 - n_missing, 0)
        return np.array(
            [
                v + np.sort(np.delete(values, k))[::-1][:n_others].sum()
                for k, v in enumerate(values)
            ]
        )

    patch.setattr(cape, "least_sums", sums)


def calibration_keeps_promises() -> None:
    mu = np.array([0.3, 1.0, 2.0, 0.3])
    for c in (0, 1):
        gamma = calibration.calibrate(mu, 40.0, c)
        assert (cape.losses(1.0, 40.0 * gamma, gamma, c) <= mu).all()


def unscaled(patch: Patch) -> None:
    patch.setattr(calibration, "_scaled", lambda gamma, *_: gamma)


def partners_take_their_noise_off() -> None:
    views = parties.views("cape", GAMMA, 50.0, accounting.Coalition(5, 2))
    # Site 0 without the noise of the two that have most.
    assert views["partners"][0] == pytest.approx(1 / math.sqrt(1 + 0.5 + 1))
    assert views["partner"][0] == pytest.approx(1 / math.sqrt(1 + 0.5 + 1 + 2))


def partners_as_readers(patch: Patch) -> None:
    least = cape.least_sums
    patch.setattr(parties, "least_sums", lambda values, n: least(values, 0))


def lost_sites_are_counted() -> None:
    """With three of five in a sum, and one colluder, two sites' noise is left."""
    promise = replace(budget(), n_colluding=1, survivor_threshold=4)
    coalition = promise.coalition(5)
    gamma = calibration.arm_variances("secure_sum", np.ones(5), 0.0, coalition)
    assert 1 / math.sqrt(3 * gamma[0]) <= 1


def lost_as_present(patch: Patch) -> None:
    patch.setattr(accounting.Coalition, "n_missing", property(lambda c: c.n_colluding))


# --- the sampler ---------------------------------------------------------------------


def is_a_function_of_the_exact_sum() -> None:
    """Of doubles whose exact sum is one, in fractions: to its last digit and ties."""
    rng, h = np.random.default_rng(4), 2.0**-14
    u = np.concatenate([rng.standard_normal(300) * s for s in (1e-9, 1.0, 1e9)])
    z = rng.standard_normal(u.size)
    z[::3] = np.rint(z[::3] / h) * h + h / 2 - u[::3]  # near the edges of cells
    asked = SimpleNamespace(noise="rounded", roster=["a"])
    k = noise_addition._on_grid(
        u, variance=1.0, h=h, request=asked, draw=lambda *_: z.copy(), term="g"
    ).view(np.int64)
    for i in range(u.size):
        exact = Fraction(u[i]) + Fraction(z[i])
        assert k[i] == round(Fraction(float(exact)) / Fraction(h))


def rounded_apart(patch: Patch) -> None:
    def on_grid(u, *, variance, h, request, draw, term):
        z = draw(u.size, variance, request, term)
        return ring.to_ring(u, h, 1) + ring.to_ring(z, h, 1)

    patch.setattr(noise_addition, "_on_grid", on_grid)


def draws_are_normal_values() -> None:
    """Within E(Z) of the normal value of the exact tail, with 40 digits (R2)."""
    rng = np.random.default_rng(6)
    words = rng.integers(0, 2**64, 2000, "u8")
    words[:600] >>= rng.integers(0, 50, 600, "u8")  # far tails
    words[:600] <<= np.uint64(11)
    words[:600] &= (np.uint64(1) << np.uint64(62)) - np.uint64(1)
    second = rng.integers(0, 2**64, words.size, "u8")
    raw = np.concatenate([words, second]).astype("<u8").tobytes()
    with Patch.context() as patch:
        patch.setattr(noise, "key_stream", lambda _: lambda text: raw[: len(text)])
        z = noise.standard_normal(words.size)
    mpmath.mp.dps = 40
    for word, low, value in zip(
        words.tolist(), second.tolist(), z.tolist(), strict=True
    ):
        j = (word >> 11) * 2**53 + (low >> 11) + 1
        U = mpmath.mpf(j) / mpmath.mpf(2) ** 107
        if 2.0**65 * U < 1:
            continue
        Z = abs(mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * U)) if U > 1e-9 else _far(U)
        bound = float(Z) * (2.0**-50 + 2.0**-52) + 1.2534 * 2.0**-53
        bound += 2.0**-107 / (float(U) * max(float(Z), 0.79))
        assert abs(abs(value) - Z) <= bound


def _far(U: Any) -> Any:
    """Normal value of a small tail, by Newton's method."""
    x = mpmath.mpf(-scipy.special.ndtri(float(U)))
    for _ in range(3):
        tail = mpmath.erfc(x / mpmath.sqrt(2)) / 2
        x += (tail - U) / mpmath.npdf(x)
    return x


def one_word(patch: Patch) -> None:
    def standard_normal(size: int) -> np.ndarray:
        stream = noise.key_stream(bytes(32))
        x, _ = np.frombuffer(stream(bytes(16 * size)), dtype="<u8").reshape(2, -1)
        z = scipy.special.ndtri(((x >> 11) + 1.0) * 2.0**-54)
        return z * (1.0 - 2.0 * (x & 1))

    patch.setattr(noise, "standard_normal", standard_normal)


def _law_of_cells(a: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of outputs, and factors as bad as R2 allows, of a coarse law."""
    edges = np.linspace(-8, 8, 2001)
    q = np.diff(scipy.special.ndtr(edges))
    size = a * 5.5 * 2.0**-50 / 1.38 * (1.25 * np.abs(edges[1:]) + 0.16)
    return q / q.sum(), size * np.where(np.arange(q.size) % 2, 1, -1)


def cost_is_above_that_of_the_law() -> None:
    """What many draws add, by the deviation of the log likelihood ratio."""
    for n, a in ((4 * 405_450, 2.0**15), (10**7, 2.0**21)):
        q, factor = _law_of_cells(a)
        deviation = math.sqrt(n * (q * factor**2).sum())
        epsilon = rounding.cost([rounding.Draws(n, a)], 1.0, 1e-5).epsilon
        # Both worlds, beyond which the law is with a probability of 2^-80.
        assert 2 * 10.0 * deviation <= epsilon <= 40 * deviation


def means_are_not_added(patch: Patch) -> None:
    cost = rounding.cost
    patch.setattr(
        rounding,
        "cost",
        lambda draws, *promise: cost([d._replace(size=1) for d in draws], *promise),
    )


def grid_is_coarse_enough() -> None:
    """A release of a whole brain's 405,450 numbers at four sites adds little."""
    h = ring.grid([1.0], 1.0, 405_450, "rounded")
    draws = [rounding.Draws(4 * 405_450, x / h) for x in (1.0, math.sqrt(400))]
    assert rounding.cost(draws, 1.0, 1e-5).epsilon < 2e-4


def fine_grid(patch: Patch) -> None:
    patch.setattr(ring, "GRID_BITS", 20)


def exact_grid_is_fine_enough() -> None:
    for size in (1, 405_450):
        h = ring.grid([1e10], 1.0, size, "exact")
        assert math.sqrt(size) * h <= (1 - CLIP_SAFETY) / 4


def coarse_exact_grid(patch: Patch) -> None:
    patch.setattr(ring, "ROUNDING_BITS", 8)


# --- accounting ----------------------------------------------------------------------


def delta_is_the_integral() -> None:
    x = np.linspace(-12, 15, 400_001)
    for mu, epsilon in ((0.3, 0.5), (1.0, 1.0), (2.0, 6.0)):
        p, q = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0))
        delta = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0])
        assert accounting.log_delta(epsilon, mu) == pytest.approx(
            np.log(delta), rel=1e-4
        )


def one_tail(patch: Patch) -> None:
    def log_delta(epsilon: float, mu: float) -> float:
        return float(scipy.special.log_ndtr(-epsilon / mu - mu / 2))

    patch.setattr(accounting, "log_delta", log_delta)


def releases_compose() -> None:
    """The likelihood ratio of independent answers has the variance of the total."""
    mus = [0.3, 0.4, 1.2]
    assert accounting.compose(mus) == pytest.approx(np.linalg.norm(mus))


def largest_for_all(patch: Patch) -> None:
    patch.setattr(accounting, "compose", lambda mus: max(mus, default=0.0))


def a_person_has_n_times_the_loss() -> None:
    right = accounting.epsilon_from_mu(9 * 0.1, 1e-5)
    assert accountants.person_epsilon(0.1, 9, 1e-5) == pytest.approx(right)


def root_of_n(patch: Patch) -> None:
    def person_epsilon(mu: float, n: int, delta: float) -> float:
        return accounting.epsilon_from_mu(math.sqrt(n) * mu, delta)

    patch.setattr(accountants, "person_epsilon", person_epsilon)


def two_sites_lose_the_sum() -> None:
    """What the record says of somebody at two sites, beside the covariance."""
    gamma = np.ones(3)
    mu = mu_of_view([1.0, 1.0, 0.0], 300 * gamma, gamma)
    one = float(cape.losses(1.0, 300 * gamma, gamma, 0)[0])
    spent = {n: {"aggregator_and_colluders": 1} for n in "ab"}
    site = {"mu": {"aggregator_and_colluders": one}}
    promise = SimpleNamespace(mu=one, delta=1e-5)
    config = SimpleNamespace(promise=promise, promise_of=lambda _: promise)
    words = privacy_record._at_two_sites(
        spent, config, [{"sites": dict.fromkeys("ab", site)}]
    )
    epsilon = float(re.search(r"epsilon (\S+)", words)[1])
    assert epsilon >= accounting.epsilon_from_mu(mu, 1e-5)


def larger_of_two(patch: Patch) -> None:
    def at_two_sites(spent, config, releases):
        epsilon = accounting.epsilon_from_mu(config.promise.mu, 1e-5)
        return f"epsilon {epsilon:.3g} at most"

    patch.setattr(privacy_record, "_at_two_sites", at_two_sites)


PROMISE = budget(1.0)
HALF = ReleaseLine(
    mu=0.9 * PROMISE.mu, query="q", unit="subject", lineage="root", study="first"
)


def _charge(ledger: Ledger, i: int, entry: ReleaseLine, **promise: Any) -> None:
    ledger.charge(f"{i:064x}", ["ann"], entry, b"x", **promise)


def a_lineage_has_one_promise() -> None:
    """Stages, and studies of one root, count together."""
    for later in (
        replace(HALF, study="second"),
        replace(HALF, study="second", lineage="another"),
    ):
        ledger = Ledger(None, replace(PROMISE, epsilon=100.0))
        stages = ("first", "second")
        _charge(ledger, 0, HALF, promise=PROMISE, stages=stages)
        with pytest.raises(BudgetExceeded):
            _charge(ledger, 1, later, promise=PROMISE, stages=stages)


def each_stage_apart(patch: Patch) -> None:
    check = Ledger._check

    def alone(self, entry, promise, stages=()):
        check(self, replace(entry, lineage=""), promise)

    patch.setattr(Ledger, "_check", alone)


def all_studies_share_a_ceiling() -> None:
    ledger = Ledger(None, PROMISE)
    _charge(ledger, 0, HALF)
    with pytest.raises(BudgetExceeded):
        _charge(ledger, 1, replace(HALF, study="second", lineage="another"))


def last_study_alone(patch: Patch) -> None:
    patch.setattr(Index, "counted", lambda self, cohort: Spent())


def what_left_is_charged() -> None:
    site = make_site("site0", {"a": np.zeros((3, 2))})
    sites = {"site0": site}
    message = agree(sites, request(sites, arm="conventional"))["site0"]
    assert "error" not in site.answer("release", message)
    assert site._ledger.total() > 0


def line_is_not_written(patch: Patch) -> None:
    append = Lines.append

    def without_releases(self: Lines, entry: Any) -> None:
        if not isinstance(entry, ReleaseLine):
            append(self, entry)

    patch.setattr(Lines, "append", without_releases)


# --- secure sums ---------------------------------------------------------------------


def masks_of_two_rounds_differ() -> None:
    """The difference of one site's answers in two rounds hides what it hides."""
    sites = make_sites([2, 2, 2], 6, 3, np.random.default_rng(5))
    masked = []
    after = ""
    for number in range(2):
        asked = request(sites, arm="secure_sum", round=number, after=after)
        message = agree(sites, asked)["site0"]
        masked.append(sites["site0"].answer("release", message)["masked"])
    difference = np.abs((masked[0] - masked[1]).view(np.int64).astype(float))
    assert np.median(difference) > 2.0**58


def context_of_nothing(patch: Patch) -> None:
    patch.setattr(one_exchange, "context", lambda *_: bytes(32))


def one_request_has_one_answer() -> None:
    sites = make_sites([2, 2], 4, 3)
    message = agree(sites, request(sites))["site0"]
    first, again = (pack(sites["site0"].answer("release", message)) for _ in range(2))
    assert first == again


def forgets_answers(patch: Patch) -> None:
    charge = Ledger.charge

    def anew(self, request, *content, **options):
        self._index.releases.pop(request, None)
        return charge(self, request, *content, **options)

    patch.setattr(Ledger, "stored", lambda *_: None)
    patch.setattr(Ledger, "charge", anew)


def one_share_of_each_site() -> None:
    run = Sum(5, 4, release=["s4"])
    for shares in run.shares.values():
        assert {len(share) for share in shares.values()} == {33}


def both_shares(patch: Patch) -> None:
    def unmask(party, advertised, sealed, survivors):
        return secagg._opened(party, advertised, sealed)

    patch.setattr(secagg, "unmask", unmask)


def an_unknown_word_stops_a_site() -> None:
    """Another site saw this one survive a sum that its own ledger does not know."""
    run = Sum(5, 4)
    party, other = run.parties["s0"], run.parties["s1"]
    sealed = dict(run.sealed["s0"])
    word = {"s0": b"w" * 32}
    sealed["s1"] = secagg.share(other, run.advertised, word)["s0"]
    with pytest.raises(Mismatch, match="does not know"):
        secagg.masks(party, run.advertised, sealed, 4, lambda word: False)


def knows_every_sum(patch: Patch) -> None:
    masks = secagg.masks

    def all_known(party, advertised, sealed, size, knows=None):
        return masks(party, advertised, sealed, size, lambda word: True)

    patch.setattr(secagg, "masks", all_known)


def survivors_are_fixed_once() -> None:
    ledger = Ledger(None, PROMISE)
    assert ledger.fix_survivors("1" * 64, ["a", "b", "c"])
    assert not ledger.fix_survivors("1" * 64, ["a", "b"])


def second_survivors(patch: Patch) -> None:
    patch.setattr(Ledger, "fix_survivors", lambda *_, **__: True)


def two_groups_have_an_honest_site_in_common() -> None:
    """Of two sets of t among S sites, c of which collude: more than c are in both."""
    for S in range(2, 12):
        for c in range(S):
            for t in range(1, S):
                if accounting.threshold_holds(S, c, t):
                    assert 2 * t - S > c


def half_of_the_sites(patch: Patch) -> None:
    patch.setattr(accounting, "threshold_holds", lambda S, c, t: 2 * t >= S)


# --- what else is seen ---------------------------------------------------------------


def answers_have_one_size() -> None:
    authority = Authority(bytes(32))
    answer: Callable[..., dict] = lambda task, message: {"told": message["value"]}  # noqa: E731
    gate = Gate("a", bytes(32), authority.public, answer)
    authority.read("a", *_sent(authority, gate, "ping", {}))
    sizes = {
        len(_sent(authority, gate, "describe", {"value": "x" * n})[1]) for n in (1, 99)
    }
    assert len(sizes) == 1


def _sent(authority: Authority, gate: Gate, *asked: Any) -> tuple[bytes, bytes]:
    raw = authority.request("a", *asked)
    return raw, gate.answer(raw)


def as_long_as_they_are(patch: Patch) -> None:
    padded = gates.padded
    patch.setattr(gates, "padded", lambda answer, _: padded(answer, len(pack(answer))))
    assert ROOM


def quantum_is_public() -> None:
    """Measured on as many volumes as anybody may have, not as many as somebody has."""
    lengths, query = [], QUERIES["second_moment"]

    def total(block: Block, **parameters: Any) -> np.ndarray:
        lengths.append(block.X.shape[1])
        return query.total(block, **parameters)

    seen = replace(query)
    object.__setattr__(seen, "total", total)
    with Patch.context() as patch:
        patch.setitem(QUERIES, "second_moment", seen)
        site = make_site("site0", {"a": np.zeros((3, 2))})
        site._longest = 50
        site.quantum("release", {"request": request({"site0": site})})
    assert max(lengths) == 50


def own_longest(patch: Patch) -> None:
    rehearsed = Site._rehearsed

    def on_own(self: Site, form: Any) -> float:
        self._longest = max(self._n_samples.values())
        return rehearsed(self, form)

    patch.setattr(Site, "_rehearsed", on_own)


Check, Plant = Callable[[], None], Callable[[Patch], None]
PLANTED: dict[str, tuple[Check, Plant]] = {
    "no-clip": (terms_are_clipped, no_clip),
    "long-block": (rounding_is_covered, whole_block),
    "outliers": (sums_are_finite, keeps_outliers),
    **{
        name: (claim_holds(name), smaller_claim(name))
        for name in APART
        if name != "bin_shares"
    },
    "bin_shares": (bins_are_positive, negative_bins),
    "reach": (contributions_fit("linear_moments"), small_reach),
    "opposite": (squares_of_opposite_people_are_equal, always_opposite),
    "mean-factor": (contributions_fit("deviation"), no_mean_factor),
    "packing": (packing_keeps_norms, other_packing),
    "papers": (losses_are_those_of_the_view, papers_formula),
    "coalition": (losses_are_those_of_the_view, friendly_coalition),
    "calibration": (calibration_keeps_promises, unscaled),
    "partner": (partners_take_their_noise_off, partners_as_readers),
    "lost-sites": (lost_sites_are_counted, lost_as_present),
    "rounding-before": (is_a_function_of_the_exact_sum, rounded_apart),
    "one-word": (draws_are_normal_values, one_word),
    "cost": (cost_is_above_that_of_the_law, means_are_not_added),
    "grid": (grid_is_coarse_enough, fine_grid),
    "exact-grid": (exact_grid_is_fine_enough, coarse_exact_grid),
    "one-tail": (delta_is_the_integral, one_tail),
    "compose": (releases_compose, largest_for_all),
    "group": (a_person_has_n_times_the_loss, root_of_n),
    "two-sites": (two_sites_lose_the_sum, larger_of_two),
    "lineage": (a_lineage_has_one_promise, each_stage_apart),
    "ceiling": (all_studies_share_a_ceiling, last_study_alone),
    "uncharged": (what_left_is_charged, line_is_not_written),
    "context": (masks_of_two_rounds_differ, context_of_nothing),
    "two-answers": (one_request_has_one_answer, forgets_answers),
    "both-shares": (one_share_of_each_site, both_shares),
    "word": (an_unknown_word_stops_a_site, knows_every_sum),
    "survivors": (survivors_are_fixed_once, second_survivors),
    "threshold": (two_groups_have_an_honest_site_in_common, half_of_the_sites),
    "padding": (answers_have_one_size, as_long_as_they_are),
    "quantum": (quantum_is_public, own_longest),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_error_that_is_planted_is_noticed(name, monkeypatch):
    check, plant = PLANTED[name]
    check()
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_the_cost_of_rounding_is_above_that_of_the_law():
    cost_is_above_that_of_the_law()


# --- the page ------------------------------------------------------------------------


def rows() -> list[list[str]]:
    table = PAGE[PAGE.index("## 8.") :]
    lines = re.findall(r"^\| [A-Z]\w+ \|.*\|$", table, re.M)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_row_has_code_a_test_and_a_planted_error():
    """Each file has the function, each test is there, and each word is planted."""
    words = set()
    for name, _, code, test, planted in rows():
        path, function = re.fullmatch(r"`(\S+)` `(\w+)`", code).groups()
        assert function in functions(ROOT / "capeneuro" / path), name
        tests = re.findall(r"`(\w+/\S+\.py)` `(\w+)`", f"{test} {planted}")
        assert tests or test.startswith("as "), name
        for path, function in tests:
            assert function in functions(ROOT / "tests" / path), function
        own = {w for w in re.findall(r"`([\w-]+)`", planted)} & PLANTED.keys()
        assert own or "test_" in planted, name
        words |= own
    assert words == PLANTED.keys()


def test_every_query_is_on_the_page():
    assert APART.keys() == QUERIES.keys()
    named = {word for row in rows() for word in re.findall(r"`(\w+)`", row[1])}
    assert QUERIES.keys() <= named | {"whitened_third_moment"}
