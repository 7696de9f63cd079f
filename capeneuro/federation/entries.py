"""What the lines of a ledger say, by kind: parsed when read, written in one place.

A line is a JSON object (:mod:`.hash_chain` chains them). Fields that a line does not
have are None here, and fields of None are left out again; what no code reads is kept in
``others``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, final

from capeneuro.federation.requests import COOPERATIVE_ARMS


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One line of a ledger."""

    kind: ClassVar[str]
    # Fields that are written also where they are None.
    nullable: ClassVar[tuple[str, ...]] = ()
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> dict[str, Any]:
        """The line as it is written."""
        content = {
            key: value
            for key, value in vars(self).items()
            if key != "others" and (value is not None or key in self.nullable)
        }
        return {"kind": self.kind, **content, **self.others}


@final
@dataclass(frozen=True, kw_only=True)
class NameLine(LedgerEntry):
    """The line that names a ledger and the kind of its data; ``secrets`` by file."""

    kind = "ledger"
    id: str
    data: str = "private"
    secrets: Mapping[str, str] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class RestoredLine(LedgerEntry):
    """The ledger was restored on a day, under secrets that are known by their marks."""

    kind = "restored"
    on: str
    secrets: Mapping[str, str] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class CohortLine(LedgerEntry):
    """People in some releases, by salted ids; ``name`` is public, if they have one."""

    kind = "cohort"
    cohort: str
    subjects: list[str]
    name: str | None = None


@final
@dataclass(frozen=True, kw_only=True)
class PromiseLine(LedgerEntry):
    """The promise of a study to people of the ledger.

    ``named``, ``manifest``, ``revision`` and ``told`` are of the manifest that the site
    signed: the study's name, and by key how many releases other ledgers had.
    """

    kind = "promise"
    nullable = ("n_colluding", "survivor_threshold")
    study: str
    lineage: str
    site: str
    mu: float
    unit: str
    n_colluding: int | None = None
    survivor_threshold: int | None = None
    people: str = ""
    merged: str | None = None
    named: str | None = None
    manifest: str | None = None
    revision: int | None = None
    told: Mapping[str, int] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class SurvivorsLine(LedgerEntry):
    """Sites in one secure sum; ``asked`` is its request as all of them know it."""

    kind = "survivors"
    request: str
    survivors: list[str]
    asked: str | None = None
    lineage: str | None = None
    site: str | None = None


@final
@dataclass(frozen=True, kw_only=True)
class ReleaseLine(LedgerEntry):
    """A release and its charge.

    ``request`` identifies it with the data that it was answered from; ``asked`` and
    ``reply`` are digests of the message and of what left; ``cohort`` names the people
    in the data and ``people`` those who are counted apart; ``merged`` is the ledger
    that answered. ``sum`` is the request as all sites know it; of a secure sum in one
    exchange ``mask_keys`` is the digest of their mask keys, and ``void`` the sums that
    it gave up. ``after`` is the ``request`` of a release that the aggregator had
    finished before it asked for this one.
    """

    kind = "release"
    mu: float
    request: str | None = None
    reply: str | None = None
    asked: str | None = None
    study: str | None = None
    lineage: str | None = None
    site: str | None = None
    query: str | None = None
    round: int | None = None
    attempt: int | None = None
    arm: str | None = None
    unit: str | None = None
    relation: str | None = None
    n_colluding: int | None = None
    survivor_threshold: int | None = None
    roster: str | None = None
    version: str | None = None
    sensitivity: float | None = None
    noise: str | None = None
    noise_multiplier: float | None = None
    people: str | None = None
    cohort: str | None = None
    merged: str | None = None
    sum: str | None = None
    mask_keys: str | None = None
    void: list[str] | None = None
    after: str | None = None

    def is_weaker_than(self, later: "ReleaseLine") -> bool:
        """Whether it was charged against less than a later release will be."""
        if (self.unit, later.unit) == ("sample", "subject"):
            return True
        if self.arm not in COOPERATIVE_ARMS:  # relies on nobody's noise
            return False
        # What an old line does not say counts as nothing that was guarded against. The
        # threshold does not matter: so many sites were in the earlier sum.
        return (self.n_colluding or 0) < (later.n_colluding or 0)


@final
@dataclass(frozen=True, kw_only=True)
class RosterLine(LedgerEntry):
    """Names of the sites in releases whose ``roster`` is the same."""

    kind = "roster"
    roster: str
    sites: list[str]


@final
@dataclass(frozen=True, kw_only=True)
class FinishedLine(LedgerEntry):
    """The aggregator has all that a study, or a stage of one, asked a site for."""

    kind = "finished"
    study: str
    lineage: str | None = None
    site: str | None = None


@final
@dataclass(frozen=True, kw_only=True)
class DistinctLine(LedgerEntry):
    """The reason for which people of another ledger with the same ids are others."""

    kind = "distinct"
    ledger: str
    reason: str


CLASSES = {
    c.kind: c
    for c in (
        NameLine,
        RestoredLine,
        CohortLine,
        PromiseLine,
        SurvivorsLine,
        ReleaseLine,
        RosterLine,
        FinishedLine,
        DistinctLine,
    )
}


def parse(line: Mapping[str, Any]) -> LedgerEntry:
    """Read a line of a ledger.

    Parameters
    ----------
    line
        What was written.

    Returns
    -------
    LedgerEntry
        Of the class of its kind.

    Raises
    ------
    KeyError, TypeError
        If it is of no known kind, or lacks what its kind has.
    """
    form = CLASSES[line["kind"]]
    names = _names(form)
    content = {key: value for key, value in line.items() if key in names}
    unknown_fields = {k: v for k, v in line.items() if k != "kind" and k not in names}
    return form(**content, others=unknown_fields)


@cache
def _names(form: type[LedgerEntry]) -> frozenset[str]:
    return frozenset(f.name for f in fields(form)) - {"others"}
