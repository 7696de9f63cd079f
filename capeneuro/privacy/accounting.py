"""From noise to a promise and back: exact accounting of Gaussian releases.

Every release of a study is a Gaussian mechanism, so its whole privacy loss is one
number mu [Dong, Roth, Su 2022]. Adaptive releases compose to ``sqrt(sum mu^2)``, and

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)

is exact, not a bound [Balle & Wang 2018, Thm 8]; budgets and ceilings use it. Other
accountants stand beside it in :mod:`.accountants`.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import scipy

Unit = Literal["sample", "subject"]
Relation = Literal["replace-one", "zero-out"]

# Calibration must never under-protect at the last digit: roots are moved by this
# relative amount to the safe side, far above the solver's tolerance.
SAFETY = 1e-12


@dataclass(frozen=True)
class Coalition:
    """The sites of a study whose noise does not protect the others.

    Parameters
    ----------
    n_sites
        Sites of the study.
    n_colluding
        Sites that pool what they know with the aggregator, its own among them.
    n_dropout
        Sites that may be missing from a release; 0: all are in it.
    """

    n_sites: int
    n_colluding: int
    n_dropout: int = 0

    @property
    def n_missing(self) -> int:
        """Sites whose noise does not count."""
        return self.n_colluding + self.n_dropout

    @property
    def noise_over_pooled(self) -> float:
        """Noise of a secure sum over that of a trusted curator, sqrt(S / S_H)."""
        return math.sqrt(self.n_sites / (self.n_sites - self.n_missing))


@dataclass(frozen=True)
class Budget:
    """The promise of a study, fixed before its first release.

    Parameters
    ----------
    epsilon, delta
        Total over all releases, against the aggregator and the colluding sites.
    unit
        ``"sample"``: one volume, the person's other volumes held fixed.
        ``"subject"``: everything of one person.
    relation
        ``"replace-one"``; ``"zero-out"`` only reproduces published figures.
    n_colluding
        Sites of the coalition that the promise is against: those that may pool all they
        know with the aggregator, its own site among them if it sits at one. None: the
        default for the number of sites (:func:`coalition`), which :func:`.federate` and
        study files fill in.
    survivor_threshold
        Fewest sites t that a release may rest on; None: all of them. Every loss is
        charged for t sites before anything leaves, so no dropout makes it too small.
    """

    epsilon: float
    delta: float
    unit: Unit
    relation: Relation = "replace-one"
    n_colluding: int | None = None
    survivor_threshold: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are no promise.

        Raises
        ------
        ValueError
            If epsilon or delta is out of range, or unit or relation is unknown.
        """
        if not self.epsilon > 0:
            raise ValueError(f"epsilon: must be above 0, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: must be between 0 and 1, got {self.delta}")
        for name, choices in (("unit", Unit), ("relation", Relation)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(
                    f"{name}: must be of {', '.join(get_args(choices))}, got "
                    f"{getattr(self, name)!r}"
                )

    def coalition(self, n_sites: int) -> "Coalition":
        """Sites whose noise does not count, of ``n_sites``.

        Parameters
        ----------
        n_sites
            Sites of the study.

        Returns
        -------
        Coalition
            All but the survivor threshold may drop out; nobody if all are needed.
        """
        n_dropout = max(n_sites - (self.survivor_threshold or n_sites), 0)
        return Coalition(n_sites, self.n_colluding or 0, n_dropout)

    @property
    def mu(self) -> float:
        """Largest composed mu that keeps the promise."""
        return mu_from_epsilon(self.epsilon, self.delta)

    def admits(self, mu: float) -> bool:
        """Whether a total mu keeps it; a total met to the last digit does.

        Parameters
        ----------
        mu
            Composed over all releases, at least 0.

        Returns
        -------
        bool
            Whether ``mu`` is at most that of (epsilon, delta).

        Guarantee
        ---------
        The tolerance :data:`SAFETY` is what :func:`mu_from_epsilon` was rounded down
        by.
        """
        return mu <= self.mu * (1 + SAFETY)


def coalition(
    n_sites: int, n_others: int | None = None, independent: bool = False
) -> int:
    """Sites of the coalition that a promise is against.

    Parameters
    ----------
    n_sites
        Sites of the study, at least 1.
    n_others
        Sites that may pool what they know with the aggregator, its own not counted.
        None: ``ceil(S / 3) - 1``, less than a third of the sites.
    independent
        Whether the aggregator sits at no site. One that sits at a site knows what that
        site knows, so it counts as one more; so does one that did not say.

    Returns
    -------
    int
        At least 1 where there are other sites, and at most all of them.

    Guarantee
    ---------
    One partner always counts: a site alone takes its own noise off the result, and
    with it knows more than a reader does.
    """
    if n_others is None:
        n_others = math.ceil(n_sites / 3) - 1
    return min(max(1, n_others + (not independent)), n_sites - 1)


def threshold_holds(n_sites: int, n_colluding: int, threshold: int) -> bool:
    """Whether fewer than all sites may be needed for a secure sum.

    More than half of what colluders leave: two different stories about who survived
    would need two disjoint groups of honest sites [Bonawitz et al. 2017]. And one more:
    of the sites that share in a sum without the one that is looked at, one honest site
    has seen the last sum that it survived.

    Parameters
    ----------
    n_sites, n_colluding
        Sites of the study, and those of them that collude.
    threshold
        Fewest sites t that a release may rest on.

    Returns
    -------
    bool
        ``t = S``, or ``t < S`` and ``2 t > S + S_C + 1``.

    Guarantee
    ---------
    Where it holds, no aggregator gets both secrets of one site, whatever it tells which
    site about the survivors (:mod:`.secagg.protocol`); and, unless all others collude,
    a site that was set back within a study is noticed.
    """
    if threshold == n_sites:
        return n_colluding < n_sites
    return threshold < n_sites and 2 * threshold > n_sites + n_colluding + 1


def compose(mus: Iterable[float]) -> float:
    """Mu of adaptive Gaussian releases together [Dong, Roth, Su 2022, Cor. 3.3].

    Parameters
    ----------
    mus
        Loss of each release, at least 0; none of them gives 0.

    Returns
    -------
    float
        ``sqrt(sum mu^2)``.

    Guarantee
    ---------
    All releases together are exactly this mu-GDP, also if each was chosen after the
    others.
    """
    return compose_squares(mu * mu for mu in mus)


def compose_squares(squares: Iterable[float]) -> float:
    """Mu of adaptive Gaussian releases together, from numbers that add up to all mu^2.

    Parameters
    ----------
    squares
        Whose sum is that of the squared losses; in any order.

    Returns
    -------
    float
        The root of their sum, which is rounded once.

    Guarantee
    ---------
    That of :func:`compose`; no loss is rounded away beside a larger one.
    """
    return math.sqrt(math.fsum(squares))


def add_exactly(parts: list[float], number: float) -> None:
    """Add a number to a sum that is kept as parts, without rounding [Shewchuk 1997].

    Parameters
    ----------
    parts
        What was added so far, in numbers whose binary digits do not overlap; it is
        changed, and stays as short as the digits of the sum are few.
    number
        What is added, finite.

    Guarantee
    ---------
    The parts add up to exactly all that was added, so a running total is that of
    :func:`compose`, to the last bit.
    """
    carried, n = number, 0
    for part in parts:
        large, small = (part, carried) if abs(part) > abs(carried) else (carried, part)
        carried = large + small
        if cut_off := small - (carried - large):
            parts[n] = cut_off
            n += 1
    parts[n:] = [carried]


def log_delta(epsilon: float, mu: float) -> float:
    """Natural logarithm of the exact delta; stable far into the tails.

    Parameters
    ----------
    epsilon
        At least 0.
    mu
        Loss of a release; 0 or less gives -infinity.

    Returns
    -------
    float
        Logarithm of the smallest delta that mu-GDP satisfies with ``epsilon``.
    """
    if mu <= 0:
        return -math.inf
    a = scipy.special.log_ndtr(mu / 2 - epsilon / mu)
    b = epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu)
    return a + math.log(-math.expm1(b - a)) if b < a else -math.inf


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon that a mu-GDP release satisfies with ``delta``, rounded up.

    Parameters
    ----------
    mu
        Composed loss; 0 or less costs no epsilon.
    delta
        In (0, 1).

    Returns
    -------
    float
        Epsilon, at least 0.

    Guarantee
    ---------
    Rounded up by :data:`SAFETY`: a loss is never understated.
    """
    if mu <= 0 or log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    root = scipy.optimize.brentq(
        lambda epsilon: log_delta(epsilon, mu) - math.log(delta),
        0.0,
        rdp_epsilon(mu, delta),
        xtol=1e-15,
        rtol=1e-14,
    )
    return root * (1 + SAFETY)


def attack_accuracy_bound(mu: float) -> float:
    """Largest accuracy of an attack that guesses between two equally likely cases.

    Parameters
    ----------
    mu
        Composed loss, at least 0.

    Returns
    -------
    float
        ``Phi(mu / 2)``: one half without any loss, 1 without any privacy.

    Guarantee
    ---------
    Exact for Gaussian releases: no test of the two cases has a smaller sum of errors
    [Dong, Roth, Su 2022, eq. 6].
    """
    return float(scipy.special.ndtr(mu / 2))


@functools.cache
def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest mu that is (epsilon, delta)-DP, rounded down.

    Parameters
    ----------
    epsilon
        At least 0.
    delta
        In (0, 1).

    Returns
    -------
    float
        mu, positive.

    Guarantee
    ---------
    Rounded down by :data:`SAFETY`: noise for this mu is never too small.
    """
    high = 1.0
    while log_delta(epsilon, high) < math.log(delta):
        high *= 2
    root = scipy.optimize.brentq(
        lambda mu: log_delta(epsilon, mu) - math.log(delta),
        1e-12,
        high,
        xtol=1e-15,
        rtol=1e-14,
    )
    return root * (1 - SAFETY)


def rdp_epsilon(mu: float, delta: float) -> float:
    """Epsilon of the papers' moments accountant, best order in closed form.

    ``alpha(t) = t (t + 1) mu^2 / 2`` gives ``mu^2/2 + mu sqrt(2 log(1/delta))``
    [docs/privacy.md].

    # Differs from thesis 6.3.2: the printed log-moment is not 0 at t = 0.

    Parameters
    ----------
    mu
        Composed loss, at least 0.
    delta
        In (0, 1).

    Returns
    -------
    float
        Epsilon, at least that of :func:`epsilon_from_mu`.

    Guarantee
    ---------
    An upper bound: looser than the exact value, never below it.
    """
    return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
