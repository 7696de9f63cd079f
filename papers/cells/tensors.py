"""The papers' tensor experiments: distance of found components to the true ones.

The experiment ``otd``; ``papers/grids/otd_*.yaml`` say
what is run. Data are drawn from the two models [`sim/mixtures.py`]: ``mixture``,
spherical Gaussians with sigma^2 = 0.05, which is given to every method as in the
papers, and ``topics``, documents of a few words. "Paper" is Imtiaz 2018.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple
from unittest import mock

import numpy as np
import scipy.linalg

from capeneuro import linalg
from capeneuro.algorithms import metrics, tensors
from capeneuro.config.errors import ConfigError
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation, Ungated
from capeneuro.privacy import accounting
from capeneuro.privacy.queries import QUERIES
from papers import baselines, in_memory, printed_noise
from papers.as_printed import classic_tau
from sim import mixtures

VARIANCE = 0.05
# Starts and iterations of the power method: errors as with its defaults [tests].
POWER = {"n_restarts": 20, "n_iterations": 25}
FIRST = ("second_moment", "word_pairs")
# The methods below that no arm of the mechanism is.
CURATORS = ("avn", "printed", "printed_conventional", "printed_local", "printed_avn")


class Data(NamedTuple):
    """Samples of a model at sites, and what is public of them."""

    model: Literal["mixture", "topics"]
    people: in_memory.People
    truth: mixtures.Mixture
    norm_bound: float
    """Constant zeta that samples of a mixture are divided by; 1 for topics."""

    @property
    def variance(self) -> float:
        """sigma^2 of samples that are divided by zeta; 0 for topics."""
        return VARIANCE / self.norm_bound**2 if self.model == "mixture" else 0.0


def draw(
    model: str,
    n_features: int,
    n_components: int,
    n_sites: int,
    n_samples: int,
    seed: int,
    norm_bound: float = 1.0,
    n_words: int = 3,
) -> Data:
    """Draw a model, and samples of it at sites.

    Parameters
    ----------
    model
        ``mixture`` or ``topics``.
    n_features, n_components
        D and K.
    n_sites, n_samples
        Sites, and samples N_s of each.
    seed
        Fixes both; a smaller study is not a part of a larger one.
    norm_bound
        zeta, of a mixture.
    n_words
        Words of a document; the papers use three.
    """
    rng, N = np.random.default_rng(seed), n_sites * n_samples
    if model == "mixture":
        truth = mixtures.draw_mixture(n_features, n_components, rng)
        X = mixtures.gaussian_samples(truth, VARIANCE, N, rng)
    elif model == "topics":
        truth = mixtures.draw_topics(n_features, n_components, rng)
        X = mixtures.topic_counts(truth, N, n_words, rng)
    else:
        raise ConfigError(f"model: must be mixture or topics, got {model!r}")
    blocks = np.split(X, n_sites, axis=1)
    people = {
        f"site-{s}": {"all": np.ascontiguousarray(x)} for s, x in enumerate(blocks)
    }
    return Data(model, people, truth, norm_bound)


Noise = Callable[[str, dict[str, Any], np.ndarray], tuple[np.ndarray, float]]


@dataclass(frozen=True)
class Curator(Mechanism):
    """Exact moments of the sites that it has, and noise that no arm draws.

    Parameters
    ----------
    draw
        From a query, its parameters and the moment to the noise, packed like it, and
        to what otd shall know of its deviation.
    """

    draw: Noise = field(kw_only=True)

    def answer(
        self,
        federation: Federation,
        name: str,
        parameters: dict[str, Any],
        round_number: int = 0,
        reduction: str = "",
    ) -> Release:
        """Release one query; `arm` is non-private."""
        exact = super().answer(federation, name, parameters, round_number, reduction)
        added, deviation = self.draw(name, parameters, exact.value)
        return replace(exact, value=exact.value + added, deviation=deviation)

    def clip(self, bound: float) -> float:
        """Clip as the private arms do: the curator adds noise for that."""
        return float(bound)


def avn(budget: accounting.Budget, n_samples: int) -> Noise:
    """Noise of AVN [paper, Alg. 5]: M2 as (epsilon / 2, delta), M3 as epsilon / 2.

    With exact sensitivities, in packed coordinates, and the exact Gaussian for M2; the
    two add up to (epsilon, delta).
    """
    half, rng = budget.epsilon / 2, np.random.default_rng()

    def noise(name: str, asked: dict[str, Any], exact: np.ndarray) -> Any:
        t = QUERIES[name].sensitivity(n_samples, budget.relation, asked)
        if name in FIRST:
            tau = t / accounting.mu_from_epsilon(half, budget.delta)
            return tau * rng.standard_normal(exact.size), tau
        beta = half / t
        deviation = math.sqrt(exact.size + 1) / beta
        return baselines.vector_noise(exact.size, beta, rng), deviation

    return noise


def printed_sensitivities(data: Data) -> tuple[float, float]:
    """N times those of M2 and M3 in the paper; those of a mixture are not right.

    sigma^2 is that of the divided samples, which makes the second smaller; the paper
    does not say.
    """
    if data.model == "topics":
        return math.sqrt(2), math.sqrt(2)
    D = len(data.truth.components)
    return 1.0, 2.0 + 6 * D * data.variance


def real_sensitivities(data: Data) -> tuple[float, float]:
    """N times those of the entries i <= j <= k, by neighbors that attain them.

    e_1 for e_2 in M2, e_1 for -e_1 in M3 of a mixture; of topics, three times one word
    for three times another. What is added to those entries has the same deviation in
    all, so they count once each.
    """
    if data.model == "topics":
        return math.sqrt(2), math.sqrt(2)
    D, s = len(data.truth.components), data.variance
    return math.sqrt(2), 2 * math.sqrt((1 - 3 * s) ** 2 + (D - 1) * s**2)


def printed(
    data: Data, method: str, budget: accounting.Budget, n_sites: int
) -> tuple[Noise, float]:
    """Noise as the paper prints it, and the epsilon that it is, at the same delta.

    Parameters
    ----------
    data, budget
        Samples, and the promise as claimed; half of epsilon and delta for each moment,
        by the classic Gaussian mechanism. AVN has all of delta in M2.
    method
        ``printed``: capeAGN, noise of pooled AGN and, against the aggregator and the
        colluding sites, the loss of CAPE with its noise variances. The others of
        :data:`CURATORS`.
    n_sites
        S of equal size.

    Returns
    -------
    noise
        Independent in entries i <= j <= k. Nothing is said of its deviation: the paper
        has no floor.
    epsilon
        At most: of a mixture no neighbor moves both moments farthest (`theorems.py` has
        the exact one of capeAGN), and for AVN it is the sum of both; that of topics is
        for moments that are symmetric before noise. In the order of words, as printed,
        there is none.
    """
    N_s = next(iter(data.people.values()))["all"].shape[1]
    N, half, rng = n_sites * N_s, budget.epsilon / 2, np.random.default_rng()
    delta = budget.delta if method == "printed_avn" else budget.delta / 2
    claimed, real = printed_sensitivities(data), real_sensitivities(data)
    # Of the mean over sites: tau_s / S, tau_s / sqrt(S), and tau_s of one site.
    scales = {"printed_conventional": math.sqrt(n_sites), "printed_local": n_sites}
    taus = [classic_tau(c / N, half, delta) * scales.get(method, 1) for c in claimed]
    # Privacy losses at the classic mechanism's, which is for the claimed sensitivity.
    mus = [
        r / c / classic_tau(1, half, delta) for c, r in zip(claimed, real, strict=True)
    ]
    if method == "printed_avn":
        epsilon = (
            accounting.epsilon_from_mu(mus[0], delta) + half * real[1] / claimed[1]
        )
    else:
        mu = accounting.compose(mus)
        if method == "printed":
            mu *= printed_noise.cape_loss(n_sites, budget.n_colluding)
        epsilon = accounting.epsilon_from_mu(mu, budget.delta)

    def noise(name: str, asked: dict[str, Any], exact: np.ndarray) -> Any:
        first, D = name in FIRST, len(data.truth.components)
        pack = linalg.pack_symmetric if first else linalg.pack_symmetric3
        weights = pack(np.ones((D,) * (2 if first else 3)))
        if method == "printed_avn" and not first:
            b = baselines.vector_noise(exact.size, half / (claimed[1] / N), rng)
        else:
            b = taus[not first] * rng.standard_normal(exact.size)
        return weights * b, 0.0

    return noise, epsilon


def singular_whitening(
    C: np.ndarray, n_components: int, deviation: float, variance: float = 0.0
) -> tensors.Whitening:
    """Whitening as the paper prints it: the K largest singular values, no floor."""
    values, U = scipy.linalg.eigh(C - variance * np.eye(len(C)))
    top = np.argsort(-np.abs(values))[:n_components]
    chosen = np.abs(values[top])
    return tensors.Whitening(chosen, U[:, top], values[::-1], variance, deviation)


def random_components(data: Data) -> np.ndarray:
    """Vectors that have nothing to do with the data, (D, K)."""
    A = np.abs if data.model == "topics" else np.asarray
    G = A(np.random.default_rng().standard_normal(data.truth.components.shape))
    return G / np.linalg.norm(G, 1 if data.model == "topics" else 2, axis=0)


def find_components(
    data: Data,
    budget: accounting.Budget,
    arm: str,
    *,
    projected: bool | None = None,
    pair_share: float = 0.5,
    memo: dict[Any, np.ndarray] | None = None,
) -> tuple[np.ndarray, float | None]:
    """Find the components by one method, everything charged.

    Parameters
    ----------
    data
        See :func:`draw`.
    budget
        The promise; of what is printed half of it for each moment.
    arm
        One of :data:`.requests.Arm`, ``local`` the first site; one of
        :data:`CURATORS`, as printed where it says so; or ``random``.
    projected
        See :func:`.tensors.mixture_components`; what is printed is not.
    pair_share
        Share of mu^2 for the second moment.
    memo
        Statistics that were computed before on these data.

    Returns
    -------
    components : numpy.ndarray
        Shape (D, K).
    epsilon : float or None
        What it is, at the delta of the budget; None without privacy.
    """
    if arm == "random":
        return random_components(data), None
    sites = in_memory.federate(data.people, budget, memo)
    epsilon: float | None = budget.epsilon
    if arm in CURATORS:
        kept = dict([*sites.items()][:1]) if arm == "printed_local" else sites
        if arm == "avn":
            sizes = [x.shape[1] for own in data.people.values() for x in own.values()]
            noise = avn(budget, sum(sizes))
        else:
            noise, epsilon = printed(data, arm, budget, len(sites))
            projected = False
        common = "figure", "non-private", 1.0, budget, 1.0
        both = tuple(Curator(*common, draw=noise) for _ in range(2))
        sites = kept
    else:
        both = tuple(
            in_memory.mechanism(budget.mu * math.sqrt(s), arm, budget, len(sites))
            for s in (pair_share, 1 - pair_share)
        )
    exact, K = arm == "non-private", data.truth.components.shape[1]
    asked, options = (Ungated(sites), both, K), {"projected": projected, **POWER}
    whitening = singular_whitening if arm.startswith("printed") else tensors.whitening
    with mock.patch.object(tensors, "whitening", whitening):
        if data.model == "topics":
            found = tensors.topic_components(*asked, **options)
        else:
            more = data.norm_bound, 1.0, VARIANCE
            found = tensors.mixture_components(*asked, *more, **options)
    return found.components, None if exact else epsilon


def otd_scores(
    *,
    data: str,
    seed: int,
    model: str,
    n_features: int,
    n_components: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    n_samples: list[int],
    deltas: list[float],
    n_sites: int = 5,
    n_colluding: int | None = None,
    norm_bound: float = 1.0,
    n_words: int = 3,
) -> list[dict[str, Any]]:
    """Find components by each method in each setting, everything charged.

    Parameters
    ----------
    data
        What the figure calls it.
    seed, model, n_features, n_components, n_sites, norm_bound, n_words
        See :func:`draw`; the noise of privacy is drawn afresh.
    methods
        Options of each method, by its name in the figure, see :func:`find_components`.
        ``after`` names another method: see ``behind`` below.
    epsilons, n_samples, deltas, n_colluding
        Promises and samples of each site to sweep over; neighbors differ by one sample
        replaced. By default ceil(S / 3) - 1 sites collude.

    Returns
    -------
    list of dict
        For each setting and method ``error``, q_comp of the paper, and ``matched``, the
        same with components matched one to one; ``real_epsilon``, see :func:`printed`;
        ``behind``: how much smaller the error of the method named ``after`` is, in
        shares of its own; ``rise``: how much the error fell, in shares, since the value
        before of what is swept over; ``to_random`` and ``to_exact``: the error over
        that of random vectors and over that without privacy.
    """
    S_C = n_colluding
    if S_C is None:
        S_C = accounting.coalition(n_sites, independent=True)
    rows: list[dict[str, Any]] = []
    last: dict[Any, float] = {}
    for n in n_samples:
        drawn = draw(
            model, n_features, n_components, n_sites, n, seed, norm_bound, n_words
        )
        memo: dict[Any, np.ndarray] = {}
        exact: dict[str, Any] = {}
        for delta, epsilon in itertools.product(deltas, epsilons):
            budget = accounting.Budget(epsilon, delta, "sample", "replace-one", S_C)
            found: dict[str, Any] = {}
            for method, own in methods.items():
                asked = {name: v for name, v in own.items() if name != "after"}
                found[method] = exact.get(method) or find_components(
                    drawn, budget, memo=memo, **asked
                )
                if own["arm"] == "non-private":  # the same in every setting
                    exact[method] = found[method]
            A = drawn.truth.components
            errors = {
                m: metrics.component_error(f[0], A, False) for m, f in found.items()
            }
            by_arm = {own["arm"]: errors[m] for m, own in methods.items()}
            # What is swept over together: the longest of the three lists.
            sweeps = {"n": n_samples, "delta": deltas, "epsilon": epsilons}
            most = max(sweeps, key=lambda name: len(sweeps[name]))
            value = {"n": n, "delta": delta, "epsilon": epsilon, most: None}
            for method, own in methods.items():
                error, key = errors[method], (method, *value.values())
                compared = {
                    "behind": _share(errors.get(own.get("after")), error),
                    "rise": _share(error, last.get(key)),
                    "to_random": _ratio(error, by_arm.get("random")),
                    "to_exact": _ratio(error, by_arm.get("non-private")),
                }
                last[key] = error
                row = {"n_samples": n, "delta": delta, "method": method}
                row |= {"epsilon": epsilon, "error": error}
                row["matched"] = metrics.component_error(found[method][0], A)
                rows.append({**row, "real_epsilon": found[method][1], **compared})
    return rows


def _ratio(error: float, other: float | None) -> float | None:
    return error / other if other else None


def _share(smaller: float | None, error: float | None) -> float | None:
    return None if smaller is None or error is None else 1 - smaller / error
