"""What a site refuses before it touches its data, from public facts alone.

Sites enforce, the aggregator only asks. :func:`admit` is every rule that does not need
the data; :class:`.site.Site` adds those on the stage and the query's
parameters. A rule's name is all that leaves a site that refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capeneuro.federation.messages import Message, pack
from capeneuro.federation.secagg import signing
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.accounting import Relation, Unit

Kind = Literal["private", "simulated", "public"]
# Arms that send exact statistics; they run on simulated or public data only.
EXACT_ARMS = ("non-private", "pooled")
# Arms in which a site relies on the noise of others, by a secure sum.
COOPERATIVE_ARMS = ("cape", "secure_sum")
# Study of the release of tables whose rows have no names: the first of sites called
# "table". That of a study file ends in a digest.
TABLE = "table-0"
Arm = Literal["non-private", "pooled", "local", "conventional", "cape", "secure_sum"]
# A loss above 1e15 is none that a ceiling allows; its inverse square stays finite.
SMALLEST_VARIANCE = 1e-30


class Refused(Exception):
    """The site's own rule forbids the request; the argument names the rule."""


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
        What the parties agreed on, in a word that all of them sign: the lineage of
        their manifest, or in one process the study.
    lineage
        What the promise is counted by, over versions of the data and of the manifest;
        empty: by the study that a request names.
    stages
        Identities of the study's stages, whose releases that promise counts, too.
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


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Described(_Form):
    """What a site says of itself, see :meth:`.site.Site.describe`."""

    n_units: int = Field(gt=0, lt=2**40)
    key: bytes
    kind: Kind
    version: str
    signature: bytes


class _Request(_Form):
    """Form of a request for a release; parameters are checked by their query."""

    study: str
    query: str
    parameters: dict[str, Any]
    round: int = Field(ge=0)
    attempt: int = Field(ge=0)
    reduction: str
    arm: Arm
    unit: Unit
    relation: Relation
    # Zero in the exact arm alone; the range keeps ratios and squares finite.
    variances: dict[str, Annotated[float, Field(ge=0, lt=1e30)]]
    n_colluding: int = Field(ge=0)
    survivor_threshold: int = Field(ge=1)
    consistency: bool
    noise_ratio: float = Field(ge=0, lt=1e30)
    noise: Literal["rounded", "exact"]
    roster: dict[str, _Described]


class _Describe(_Form):
    unit: Unit


class _Project(_Form):
    matrix: Any  # these are checked against the features, see `queries.projects`
    norm_bound: Any
    center: Any


class _Advertise(_Form):
    request: dict[str, Any]


class _Share(_Advertise):
    advertised: dict[str, bytes]


class _Release(_Advertise):
    advertised: dict[str, bytes] = {}
    sealed: dict[str, bytes] = {}


class _Confirm(_Form):
    request: str
    survivors: list[str] | tuple[str, ...]
    signatures: dict[str, bytes] = {}


# What an exchange takes; of a request for a release see `_Request`.
FORMS = {
    "describe": _Describe,
    "project": _Project,
    "advertise": _Advertise,
    "share": _Share,
    "release": _Release,
    "confirm": _Confirm,
    "unmask": _Confirm,
}


def check_fields(what: str, message: Message) -> None:
    """Refuse a message that has not the fields of its exchange.

    Parameters
    ----------
    what
        Name of an exchange.
    message
        As it came over the wire: anything.

    Raises
    ------
    Refused
        If there is no such exchange; with the name of the first field that is wrong.

    Guarantee
    ---------
    It reads no data.
    """
    form = FORMS.get(what) if isinstance(what, str) else None
    if form is None:
        raise Refused("unknown request")
    try:
        form.model_validate(message)
    except ValidationError as error:
        where = error.errors(include_input=False)[0]["loc"]
        field = where[0] if where and where[0] in form.model_fields else "fields"
        raise Refused(f"form of the message, {field}") from None


def check_form(message: Message) -> None:
    """Refuse what is not a request for a release.

    Parameters
    ----------
    message
        As it came over the wire: anything.

    Raises
    ------
    Refused
        With the name of the first field whose kind or range is wrong, one that lacks,
        or one too many.

    Guarantee
    ---------
    It reads no data: the field's name is the aggregator's own.
    """
    try:
        _Request.model_validate(message)
    except ValidationError as error:
        field = str(error.errors(include_input=False)[0]["loc"][0])
        raise Refused(f"form of the request, {field}") from None


def admit(
    message: Message,
    name: str,
    described: Message,
    limits: Limits,
    ceiling: accounting.Budget,
) -> float | None:
    """Check a well-formed request against a site's own rules.

    Parameters
    ----------
    message
        A request that :func:`check_form` lets pass.
    name
        The site's name in the study.
    described
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
    arm, roster = message["arm"], message["roster"]
    exact, private = arm in EXACT_ARMS, limits.kind == "private"
    cooperative = arm in COOPERATIVE_ARMS
    S, S_C, t = len(roster), message["n_colluding"], message["survivor_threshold"]
    mu = None if exact or name not in roster else _loss(message, name)
    rules = {
        # Exact arms have a rule of their own; a reference run is of the same study.
        "study that was not agreed on": all(
            message[field] == value
            for field, value in (limits.study or {}).items()
            if not exact or field == "study"
        ),
        "own entry in the roster": roster.get(name) == described,
        "arm without privacy on private data": not (exact and private),
        "unit weaker than the ceiling's": (
            exact or message["unit"] == "subject" or ceiling.unit == "sample"
        ),
        "relation": not (private and message["relation"] == "zero-out"),
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
            or limits.promise.delta * min(x["n_units"] for x in roster.values()) < 1
        ),
        "number of colluding sites": (
            not cooperative or _least_coalition(limits, S) <= S_C < S
        ),
        "survivor threshold": not cooperative or accounting.threshold_holds(S, S_C, t),
        "sites that were not agreed on": (
            not cooperative or limits.roster is None or _agreed(limits.roster, roster)
        ),
        # Privacy: sizes and kinds are the sites' own word, not the aggregator's.
        "statements of the roster": not cooperative
        or all(_stated(limits.agreed, other, said) for other, said in roster.items()),
        "private data among open data": (
            not (cooperative and private)
            or all(site["kind"] == "private" for site in roster.values())
        ),
    }
    for rule, holds in rules.items():
        # Privacy: each of these rules is part of the promise to the participants.
        if not holds:
            raise Refused(rule)
    return mu


def _stated(agreed: str, name: str, described: Mapping[str, Any]) -> bool:
    """Whether a site signed what the roster says of it."""
    said = {key: value for key, value in described.items() if key != "signature"}
    statement = signing.of_description(agreed, name, pack(said))
    return signing.is_signed(said["key"], described["signature"], statement)


def _least_coalition(limits: Limits, n_sites: int) -> int:
    # Privacy: a partner takes its own noise off the result, without the aggregator.
    partner = limits.kind == "private" and n_sites > 1
    return max(limits.min_colluding, int(partner))


def _loss(message: Message, name: str) -> float:
    """Privacy loss of a request for one site, as the aggregator computes it."""
    names, variances = sorted(message["roster"]), message["variances"]
    gamma = [variances.get(other, 0.0) for other in names]
    if len(variances) > len(names) or min(gamma) < SMALLEST_VARIANCE:
        raise Refused("form of the request, variances")
    arm, ratio, S_C = (message[key] for key in ("arm", "noise_ratio", "n_colluding"))
    n_dropout = max(len(names) - message["survivor_threshold"], 0)
    return _losses(arm, tuple(gamma), ratio, S_C, n_dropout)[names.index(name)]


@lru_cache(maxsize=2**8)  # a site checks a request in each exchange
def _losses(arm: str, gamma: tuple[float, ...], *others: float) -> list[float]:
    return cape.views(arm, gamma, *others)["aggregator_and_colluders"].tolist()


def _agreed(pins: Mapping[str, bytes | None], roster: Mapping[str, Any]) -> bool:
    """Whether a roster has the agreed names, and the agreed keys where pinned."""
    return set(pins) == set(roster) and all(
        key in (None, roster[name]["key"]) for name, key in pins.items()
    )
