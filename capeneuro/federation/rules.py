"""What a site refuses before it touches its data, from public facts alone.

Sites enforce, the aggregator only asks. :func:`admit` is every rule that does not need
the data; :class:`.site.Site` adds those on the stage and the query's
parameters. A rule's name is all that leaves a site that refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from capeneuro.federation.requests import Description, Kind, Refused, Request
from capeneuro.federation.secagg import signing
from capeneuro.privacy import accounting, cape

# Study of the release of tables whose rows have no names: the first of sites called
# "table". That of a study file ends in a digest.
TABLE = "table-0"
# A loss above 1e15 is none that a ceiling allows; its inverse square stays finite.
SMALLEST_VARIANCE = 1e-30


@dataclass(frozen=True)
class Limits:
    """A site's own rules, from its own file.

    Parameters
    ----------
    kind
        ``"simulated"`` and ``"public"`` allow exact arms and fixed seeds, and stamp
        every output that used them.
    min_noise_multiplier
        Smallest noise multiplier of a single release.
    min_colluding
        Smallest coalition that a study must guard against, the aggregator's own site
        among it; at least 1 over private data, where there are other sites.
    roster
        Sites that it agreed to work with, each with its public key, or None where any
        key will do; None: any sites. Made-up sites would take their share of the noise
        away.
    study
        What the requests of the study it agreed to say, by field, from its own study
        file; None: any study.
    promise
        That study's promise to this site's people; None: its ceiling alone.
    agreed
        What the parties agreed on, in a word that all of them sign: the study, or the
        stage of one.
    lineage
        What the promise is counted by, over versions of the data and of the manifest;
        empty: by the study that a request names.
    stages
        Identities of the study's stages, whose releases that promise counts, too.
    made_from
        Identity of the stage whose results this one's features are made from; empty:
        there is none.
    mask_keys
        Public mask key of each site in the manifest; None: those that sites signed.
    keeps_answers
        Whether large answers are kept when the aggregator has confirmed them: where its
        own memory ends with its process, so that nothing else has what was released.
    """

    kind: Kind = "private"
    min_noise_multiplier: float = 0.0
    min_colluding: int = 0
    roster: Mapping[str, bytes | None] | None = None
    study: Mapping[str, Any] | None = None
    promise: accounting.Budget | None = None
    agreed: str = ""
    lineage: str = ""
    stages: tuple[str, ...] = ()
    made_from: str = ""
    mask_keys: Mapping[str, bytes] | None = None
    keeps_answers: bool = False


def admit(
    request: Request,
    name: str,
    description: Description,
    limits: Limits,
    ceiling: accounting.Budget,
) -> float | None:
    """Check a request against a site's own rules.

    Parameters
    ----------
    request
        What it is asked.
    name
        The site's name in the study.
    description
        What the site says of itself (:meth:`.site.Site.describe`).
    limits, ceiling
        Its rules and its ceiling, both from its own files.

    Returns
    -------
    float or None
        The privacy loss mu that the request costs the site; None if exact.

    Raises
    ------
    Refused
        With the name of the first rule that is broken.

    Guarantee
    ---------
    It reads no data, so a refusal tells nothing about them. The mu is computed from the
    request's own variances: what the aggregator claims of its privacy does not matter.
    """
    roster, private = request.roster, limits.kind == "private"
    exact, cooperative = request.is_exact, request.is_cooperative
    S, S_C, t = len(roster), request.n_colluding, request.survivor_threshold
    mu = None if exact or name not in roster else loss(request, name)
    rules = {
        # Exact arms have a rule of their own; a reference run is of the same study.
        "study that was not agreed on": all(
            getattr(request, field) == value
            for field, value in (limits.study or {}).items()
            if not exact or field == "study"
        ),
        "own entry in the roster": roster.get(name) == description,
        "arm without privacy on private data": not (exact and private),
        "unit weaker than the ceiling's": (
            exact or request.unit == "subject" or ceiling.unit == "sample"
        ),
        "relation": not (private and request.relation == "zero-out"),
        "noise multiplier below the floor": (
            # Also before anything is computed: a release beyond the ceiling by itself
            # could overflow the ring, and that is an answer.
            mu is None
            or (
                ceiling.admits(mu)
                and mu * limits.min_noise_multiplier <= 1 + accounting.SAFETY
            )
        ),
        # Privacy: with a larger one, publishing somebody's data would keep the promise.
        "delta of the promise": (
            limits.promise is None
            or not private
            or limits.promise.delta * min(x.n_units for x in roster.values()) < 1
        ),
        "number of colluding sites": (
            not cooperative or _least_coalition(limits, S) <= S_C < S
        ),
        "survivor threshold": not cooperative or accounting.threshold_holds(S, S_C, t),
        "sites that were not agreed on": (
            not cooperative
            or limits.roster is None
            or _agreed(limits.roster, request.keys, some=request.waits_for_all)
        ),
        # Privacy: of two rosters one honest site remembers both, so that a site which
        # was set back finds nobody who never saw what it forgot.
        "too few of the sites": (
            not cooperative
            or limits.roster is None
            or accounting.threshold_holds(len(limits.roster), S_C, S)
        ),
        # Privacy: sizes and kinds are the sites' own word, not the aggregator's.
        "statements of the roster": not cooperative
        or _are_signed(limits.agreed, tuple(roster.items())),
        "private data among open data": (
            not (cooperative and private)
            or all(site.kind == "private" for site in roster.values())
        ),
    }
    for rule, holds in rules.items():
        # Privacy: each of these rules is part of the promise to the participants.
        if not holds:
            raise Refused(rule)
    return mu


@lru_cache(maxsize=2**4)  # a roster is the same in all rounds
def _are_signed(agreed: str, roster: tuple[tuple[str, Description], ...]) -> bool:
    """Whether each site signed its facts in the roster."""
    statements = {
        name: signing.of_description(agreed, name, site.facts) for name, site in roster
    }
    return all(
        signing.is_signed(site.key, site.signature, statements[name])
        for name, site in roster
    )


def _least_coalition(limits: Limits, n_sites: int) -> int:
    # Privacy: a partner takes its own noise off the result, without the aggregator.
    partner = limits.kind == "private" and n_sites > 1
    return max(limits.min_colluding, int(partner))


def loss(request: Request, name: str) -> float:
    """Privacy loss of a request for one site, as the aggregator computes it.

    Parameters
    ----------
    request
        A private one.
    name
        The site.

    Returns
    -------
    float
        mu, against the aggregator and the colluding sites.

    Raises
    ------
    Refused
        If it has not one noise a site, or one too small to compute with.
    """
    names, variances = sorted(request.roster), request.variances
    gamma = [variances.get(site, 0.0) for site in names]
    if len(variances) > len(names) or min(gamma) < SMALLEST_VARIANCE:
        raise Refused("form of the request, variances")
    n_dropout = max(len(names) - request.survivor_threshold, 0)
    coalition = accounting.Coalition(len(names), request.n_colluding, n_dropout)
    losses = _losses(request.arm, tuple(gamma), request.noise_ratio, coalition)
    return losses[names.index(name)]


@lru_cache(maxsize=2**8)  # a site checks a request in each exchange
def _losses(
    arm: str, gamma: tuple[float, ...], ratio: float, coalition: accounting.Coalition
) -> list[float]:
    variances = np.array(gamma)
    sigma2 = cape.arm_ratio(arm, ratio) * variances
    return cape.losses(1.0, sigma2, variances, coalition.n_missing).tolist()


def _agreed(
    pins: Mapping[str, bytes | None], keys: Mapping[str, bytes], some: bool
) -> bool:
    """Whether a roster has the agreed names, and the agreed keys where pinned.

    ``some``: or some of the names. Who is gone brings no noise, and what is asked of
    those who remain is noised and charged for their number.
    """
    names = set(pins) >= set(keys) if some else set(pins) == set(keys)
    return names and all(pins[name] in (None, key) for name, key in keys.items())
