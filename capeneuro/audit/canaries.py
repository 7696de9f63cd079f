"""The audit: an attack on the real code that could prove the promise wrong.

Two worlds differ in one unit of the first site, and the statistic moves as far as its
sensitivity allows. In each world the real protocol runs many times; the adversary
keeps all that the aggregator and the colluding sites see, learns from examples to tell
the worlds apart, with no formula of ours, and is tested on fresh transcripts. Its error
rates, by Clopper-Pearson bounds, show mu >= Phi^-1(1 - FPR) - Phi^-1(FNR).

``LEAKS``: that is more than the site's ledger says was spent. ``WRONG ANSWER``: the
released average is biased, or its noise is not the recorded one, as when masks do not
cancel. ``holds``: neither. An audit never proves privacy; it fails to refute it.

The canary lies far beyond the clip, so that missing clipping shows. Its sign is
constant or alternates from round to round: noise that rounds share averages out under
the first and stands still under the second [docs/threat-model.md].
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import scipy

from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.requests import Answer, Release
from capeneuro.federation.rules import Limits
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.queries import QUERIES

ARMS = ("pooled", "local", "conventional", "cape", "secure_sum")
DELTA = 1e-5
# Both volumes of the attacked person in the two worlds. Clipped contributions: x and
# -x; x x' of two orthogonal x; nearly x h' and -x h'; x x x and -x x x; x x' and 0
# about 2 I; nearly v and -v, with squares; nearly u y and -u y, with n n near 0 and 1;
# K and -K; about I and -I; q and -q. Every entry moves, so none may lack noise.
CANARIES = {
    "mean": ([[1e3, 1e3], [500, 500]], [[-1e3, -1e3], [-500, -500]]),
    "second_moment": ([[1e3, 1e3], [500, 500]], [[-500, -500], [1e3, 1e3]]),
    "moment_product": ([[-5200, -5200], [8600, 8600]], [[6800, 6800], [-7400, -7400]]),
    "network_gradient": ([[14, 14], [0, 0]], [[14, 14], [1, 1]]),
    "third_moment": ([[1e3, 1e3], [500, 500]], [[-1e3, -1e3], [-500, -500]]),
    "white_second_moment": ([[1e3, 1e3], [500, 500]], [[-500, -500], [1e3, 1e3]]),
    "deviation": ([[1e3, 1e3], [1e3, 1e3]], [[0, 0], [0, 0]]),
    "pilot_moments": ([[1e3, 1e3]] * 3, [[-0.95, -0.95], [1, 1], [-0.95, -0.95]]),
    "linear_moments": (
        [[1e-3, 1e-3], [1, 1], [1e4, 1e4]],
        [[-1e3, -1e3], [1, 1], [789, 789]],
    ),
    "infomax_skew": ([[1e3, 1e3], [1, 1]], [[1, 1], [1e3, 1e3]]),
    "infomax_gradient": ([[0, 0], [0, 0]], [[1e3, 0], [0.2, 1e3]]),
    "infomax_curvature": ([[0, 0], [0, 0]], [[1e3, 1e3], [1e3, 1e3]]),
}
# Of the moment product: x and y nearly opposite, Q'x and Q'y nearly alike.
Q = [[0.8, -0.6], [0.6, 0.8]] @ np.diag([1, 1e-3]) @ [[0.6, 0.8], [-0.8, 0.6]]
PARAMETERS = {
    "mean": {"norm_bound": 1.0, "clip": 1.0},
    "second_moment": {"norm_bound": 1.0, "clip": 1.0},
    "moment_product": {"Q": Q.astype("f4"), "norm_bound": 1.0, "clip": 1.0},
    # One hidden unit that gives probability 1/2: labels 0 and 1 pull opposite ways.
    "network_gradient": {
        "weights": np.array([1.0, 0.0, 15.0, -210.0]),
        "norm_bound": 1.0,
        "clip": 1.0,
    },
    "third_moment": {"covariance": 0.1 * np.eye(2), "clip": 1.0},
    "white_second_moment": {"clip": 1.0},
    # Nobody's second moment is as far below the public one as another's is above.
    "deviation": {"energies": np.full(2, 2.0), "weights": np.eye(2), "clip": 1.0},
    # Without a histogram, most of whose bins nobody would be in.
    "pilot_moments": {
        "weights": np.ones(1),
        "n_sites": 1,
        "center": np.zeros(3),
        "radius": 1.0,
        "unit": 1.0,
        "parts": np.array([1.0, 1.0, 1.0, 0.3, 0.3, 0.0]),
        "clip": 1.0,
    },
    "linear_moments": {
        "weights": np.ones(1),
        "norms_of": np.ones(1),
        "longest": 1.0,
        "centers": np.zeros((1, 1)),
        "means": np.zeros((1, 1)),
        "slopes": np.zeros((1, 1)),
        "clip": 1.0,
    },
    "infomax_skew": {"W": np.eye(2), "clip": 1.0},
    "infomax_gradient": {"W": np.eye(2), "b": np.zeros(2), "clip": 1.0},
    "infomax_curvature": {"W": np.eye(2), "clip": 1.0},
}
# Sites of the adversary by class of parties, n_colluding where it is not here; and the
# classes that have the messages, not the answers alone.
PARTNERS = {"reader": 0, "partner": 1, "aggregator": 0, "site_as_aggregator": 1}
HEARS = ("aggregator", "aggregator_and_colluders", "site_as_aggregator")
OTHER = np.float32(0.5)  # everyone else's data; the adversary knows
CEILING = accounting.Budget(1e8, DELTA, "sample", "replace-one", 0)  # never met


@dataclass(frozen=True)
class Case:
    """A setting that is attacked; ``mu`` is for all rounds of a transcript together.

    ``party`` is a class of :func:`.parties.views`: whose view the adversary has.
    """

    arm: str
    query: str
    unit: accounting.Unit
    canary: str
    mu: float
    n_sites: int
    n_colluding: int
    n_rounds: int
    noise_ratio: float
    party: str


@dataclass(frozen=True)
class Finding(Case):
    """One row: ``mu`` as the ledger claims it, ``mu_lower`` as the attack shows it.

    ``n_pairs`` counts transcripts of each world; ``deviation`` is that of the released
    averages, measured over recorded. Epsilons are at :data:`DELTA`.
    """

    n_pairs: int
    epsilon: float
    mu_lower: float
    epsilon_lower: float
    deviation: float
    verdict: str


def audit(
    arms: Iterable[str] = ARMS,
    queries: Iterable[str] = tuple(CANARIES),
    units: Iterable[accounting.Unit] = ("subject",),
    canaries: Iterable[str] = ("constant", "alternating"),
    mus: Iterable[float] = (1.0, 2.0),
    n_pairs: int = 10_000,
    n_sites: int = 3,
    n_colluding: int = 1,
    n_rounds: int = 2,
    noise_ratio: float | None = None,
    party: str = "aggregator_and_colluders",
    alpha: float = 1e-6,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
    run: Callable[..., tuple] | None = None,
) -> Iterator[Finding]:
    """Attack every combination and report one finding each, as they come.

    Parameters
    ----------
    arms, queries, units, canaries, mus
        What to attack; a mu is asked for the ``n_rounds`` of a transcript together.
    n_pairs
        Transcripts of each world; 10,000 show about 0.8 of mu.
    n_sites, n_colluding, n_rounds, noise_ratio
        The study; the noise ratio is by default that of CAPE.
    party
        Whose view the adversary has: a class of :func:`.parties.views`.
    alpha
        Probability of a false ``LEAKS``, and of a false ``WRONG ANSWER``, per row.
    progress
        Wraps the loop over the transcripts of a row, ``tqdm`` for example.
    run
        What gives them, as :func:`transcript` does; the latter by default.
    """
    run = run or transcript
    ratio = cape.NOISE_RATIO_PER_SITE * n_sites if noise_ratio is None else noise_ratio
    for settings in product(arms, queries, units, canaries, mus):
        coalition_sizes = (1, 0) if settings[0] == "local" else (n_sites, n_colluding)
        case = Case(*settings, *coalition_sizes, n_rounds, ratio, party)
        exact = [run(replace(case, arm="non-private"), w)[1] for w in (0, 1)]
        views, errors, claims = ([], []), [], []
        for i in progress(range(2 * n_pairs)):
            view, answers, recorded, mu = run(case, i % 2, str(i))
            views[i % 2].append(view)
            errors.append((answers - exact[i % 2]) / recorded)
            claims.append(mu)
        mu, mu_shown = max(claims), attack(*map(np.array, views), alpha)
        deviation, right = judge_answer(np.array(errors), alpha)
        verdict = "LEAKS" if mu_shown > mu else "holds" if right else "WRONG ANSWER"
        e, epsilon_shown = (
            accounting.epsilon_from_mu(m, DELTA) for m in (mu, mu_shown)
        )
        claim = vars(replace(case, mu=mu))
        yield Finding(
            *claim.values(), n_pairs, e, mu_shown, epsilon_shown, deviation, verdict
        )


class Witness(Site):
    """A real site that also keeps its last request, its reply and its draws."""

    def release(self, message: Release) -> Answer:
        """Answer as :class:`Site` does."""
        self.drawn, self.asked = [], message
        self.reply = super().release(message)
        return self.reply

    def _normal(self, *args, **options) -> np.ndarray:
        self.drawn.append(super()._normal(*args, **options))
        return self.drawn[-1]

    def masks_with(self, partner: str) -> np.ndarray:
        """Masks that this site shares with another one, which subtracts them."""
        secrets = {partner: self._pair_secret(partner, self.asked)}
        size = self.reply.masked.size
        context = self._context(self.asked)
        return one_exchange.masks(secrets, self.name, context, size)


class Clipping(Mechanism):
    """A mechanism whose exact arm clips, too, to compare noisy answers with."""

    def clip(self, bound: float) -> float:
        """Bound that one unit's part is clipped to, whatever the arm."""
        return float(bound)


def transcript(case: Case, world: int, study: str = "") -> tuple:
    """Run a study of ``n_rounds`` releases, with new sites, ledgers and keys.

    Returns the adversary's view, the released averages, the deviation on record for
    each of their entries, and the mu that is claimed for the whole.
    """
    sites, people, ledgers = [], [], []
    typical_samples = np.full_like(CANARIES[case.query][0], OTHER, dtype=np.float32)
    for s in range(case.n_sites):
        n_volumes = {f"{s}-{i}": 2 for i in range(1 + s % 2)}
        people.append(dict.fromkeys(n_volumes, typical_samples))
        ledgers.append(Ledger(None, CEILING))
        limits = Limits("simulated")
        sites.append(Witness(f"s{s}", people[s], n_volumes, ledgers[s], limits))
    multiplier = case.n_rounds**0.5 / case.mu
    budget = accounting.Budget(1.0, DELTA, case.unit, "replace-one", case.n_colluding)
    mechanism = Clipping(study, case.arm, multiplier, budget, case.noise_ratio)
    federation = Ungated({site.name: site for site in sites})
    parameters, view, answers, shares = PARAMETERS[case.query], [], [], []
    for j in range(case.n_rounds):
        side = (world + j) % 2 if case.canary == "alternating" else world
        # A real aggregator would turn the sign by the query's parameters; sites read
        # lazily, so here the data turn, for all queries alike.
        people[0]["0-0"] = X = typical_samples.copy()
        replaced = slice(1 if case.unit == "sample" else 2)
        X[:, replaced] = np.array(CANARIES[case.query][side])[:, replaced]
        reduction = ""
        if QUERIES[case.query].stage == "components":
            reduction = mechanism.project(federation, np.eye(len(X)), 1.0)
        release = mechanism.answer(federation, case.query, parameters, j, reduction)
        answers.append(release.value)
        seen, shares = seen_by(case, sites, release.value, shares)
        view += seen
    recorded = [[r["noise_deviation"]] * r["size"] for r in mechanism.releases]
    mu = claimed(case, ledgers[0], mechanism.releases)
    return *map(np.concatenate, (view, answers, recorded)), mu


def _party(case: Case) -> str:
    # A trusted curator sees all; the promise is for readers of the answers.
    return "reader" if case.arm == "pooled" else case.party


def seen_by(
    case: Case, sites: list[Witness], value: np.ndarray, before: list[np.ndarray]
) -> tuple:
    """Arrays that a round, whose answer is ``value``, adds to the adversary's view.

    Also the honest sites' shares of a secure sum, see :func:`overhear`.
    """
    party = _party(case)
    n_honest = case.n_sites - PARTNERS.get(party, case.n_colluding)
    seen, shares = overhear(sites, n_honest, before)
    if party not in HEARS:
        seen = [value, *(x for site in sites[n_honest:] for x in site.drawn)]
    return seen, shares


def claimed(case: Case, ledger: Ledger, releases: list[dict[str, Any]]) -> float:
    """The mu that the first site's ledger, or the record, claims for all releases."""
    mus = [e.mu for e in ledger.releases()]
    party = _party(case)
    if case.arm != "non-private" and party != "aggregator_and_colluders":
        mus = [r["sites"]["s0"]["mu"][party] for r in releases]
    return accounting.compose(mus)


def overhear(sites: list[Witness], n_honest: int, before: list[np.ndarray]) -> tuple:
    """Arrays that a round adds to the view, and honest sites' shares of a secure sum.

    The shares lose the masks that colluders know. The rest is uniform by claim;
    differences between sites and to the round ``before`` show masks that serve twice.
    """
    honest, colluders = sites[:n_honest], sites[n_honest:]
    seen = [noise for site in colluders for noise in site.drawn]
    seen += [site.reply.noisy for site in honest if site.reply.noisy is not None]
    shares = []
    if sites[0].reply.masked is not None:
        colluder_masks = [
            [c.masks_with(site.name) for c in colluders] for site in honest
        ]
        shares = [
            sum(masks, site.reply.masked)
            for masks, site in zip(colluder_masks, honest, strict=True)
        ]
        seen += [sum(site.reply.masked for site in sites), *shares]
    seen += [a - b for a, b in [*pairwise(shares), *zip(shares, before, strict=False)]]
    # Ring elements are read as signed multiples of the grid.
    return [x.view("i8").astype(float) if x.dtype == "u8" else x for x in seen], shares


def attack(view0: np.ndarray, view1: np.ndarray, alpha: float) -> float:
    """Lower bound on mu from transcripts of two worlds, as rows, equally many.

    The direction is learned on the first quarter, the threshold on the second; errors
    are counted on the rest, which nothing was fitted to.
    """
    a, b = len(view0) // 4, len(view0) // 2
    w = discriminant(view0[:a], view1[:a])
    s0, s1 = view0 @ w, view1 @ w
    grid = np.quantile([s0[a:b], s1[a:b]], np.linspace(0, 1, 101))
    middle = (grid[1:] + grid[:-1]) / 2
    best = max(middle, key=lambda x: mu_lower(s0[a:b], s1[a:b], x, alpha))
    return max(0.0, mu_lower(s0[b:], s1[b:], best, alpha))


def discriminant(x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
    """Fisher's linear discriminant: covariance within worlds, difference of means."""
    scale = np.std(np.vstack([x0, x1]), axis=0)
    # A column as wide as the ring tells nothing; leaving it out costs less to learn.
    is_usable = (scale > 0) & (scale < 2.0**60)
    x0, x1 = x0[:, is_usable] / scale[is_usable], x1[:, is_usable] / scale[is_usable]
    C = np.atleast_2d(np.cov(x0.T) + np.cov(x1.T)) / 2
    # Far below any noise and far above rounding: a direction without noise wins.
    C[np.diag_indices_from(C)] += 1e-12
    w = np.zeros(scale.size)
    w[is_usable] = (
        np.linalg.solve(C, x1.mean(axis=0) - x0.mean(axis=0)) / scale[is_usable]
    )
    return w


def mu_lower(s0: np.ndarray, s1: np.ndarray, threshold: float, alpha: float) -> float:
    """Bound on mu from guessing world 1 above a threshold, wrong at most ``alpha``."""
    k0, k1 = np.sum(s0 > threshold), np.sum(s1 <= threshold)
    if k0 == len(s0) or k1 == len(s1):
        return -np.inf
    fpr = scipy.special.betainccinv(k0 + 1, len(s0) - k0, alpha / 2)
    fnr = scipy.special.betainccinv(k1 + 1, len(s1) - k1, alpha / 2)
    return float(-scipy.special.ndtri(fpr) - scipy.special.ndtri(fnr))


def judge_answer(errors: np.ndarray, alpha: float) -> tuple[float, bool]:
    """Deviation of errors, one row per transcript, and whether they may be N(0, 1)."""
    square, bias = np.sum(errors**2), len(errors) * np.sum(errors.mean(axis=0) ** 2)
    low, high = scipy.special.chdtri(errors.size, [1 - alpha / 4, alpha / 4])
    right = low < square < high and bias < scipy.special.chdtri(
        errors.shape[1], alpha / 2
    )
    return float(np.sqrt(square / errors.size)), bool(right)
