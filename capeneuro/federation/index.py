"""Look-ups in the lines of a ledger, as quick with ten thousand lines as with ten.

Each line is booked once, when it is read or written. Losses are kept as running sums
without rounding, so that a verdict is the one that adding them all anew would give.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from capeneuro.federation.entries import (
    CohortLine,
    FinishedLine,
    LedgerEntry,
    NameLine,
    PromiseLine,
    ReleaseLine,
    RestoredLine,
    RosterLine,
    SurvivorsLine,
)
from capeneuro.federation.sums import FixedSums, Memory, Sums
from capeneuro.privacy import accounting


class Stage(NamedTuple):
    """Whose releases follow one another: a study, or a stage of one, at one site."""

    lineage: str | None
    study: str | None
    site: str | None


@dataclass
class Spent:
    """Losses that count together.

    Parameters
    ----------
    n
        Number of releases.
    parts
        Numbers whose sum is that of all mu^2, without rounding.
    forms
        One release for each unit, arm and coalition.
    """

    n: int = 0
    parts: list[float] = field(default_factory=list)
    forms: dict[tuple[str | int | None, ...], ReleaseLine] = field(default_factory=dict)

    @classmethod
    def together(cls, several: Iterable[Self]) -> Self:
        """Count several of them as one."""
        total = cls()
        for spent in several:
            total.n += spent.n
            total.parts += spent.parts
            total.forms |= spent.forms
        return total

    @property
    def units(self) -> set[str | None]:
        """Units for which the losses hold."""
        return {line.unit for line in self.forms.values()}

    def add(self, line: ReleaseLine) -> None:
        """Count one more release."""
        self.n += 1
        self.forms.setdefault((line.unit, line.arm, line.n_colluding), line)
        accounting.add_exactly(self.parts, line.mu * line.mu)

    def mu(self, later: Iterable[float] = (), without: Iterable[float] = ()) -> float:
        """Composed loss, with later ones and without some of those that it counts."""
        squares = (mu * mu for mu in later), (-mu * mu for mu in without)
        return accounting.compose_squares([*self.parts, *squares[0], *squares[1]])


class Index:
    """Lines of a ledger by all that they are looked up by.

    Attributes
    ----------
    releases, survivors
        Lines by request.
    gone
        Requests whose answers are not in this ledger, and never will be.
    confirmed
        Requests whose answers the aggregator has for good.
    removable
        Confirmed since somebody looked last: their answers may be removed.
    cohorts, rosters
        Salted ids, and names of sites, by digest.
    marks
        Of the ledger's secrets, by file.
    promises
        The last one by study, lineage and site.
    """

    def __init__(self) -> None:
        self.releases: dict[str, ReleaseLine] = {}
        self.survivors: dict[str, SurvivorsLine] = {}
        self.gone: set[str] = set()
        self.confirmed: set[str] = set()
        self.removable: dict[str, None] = {}
        self.cohorts: dict[str, list[str]] = {}
        self.rosters: dict[str, list[str]] = {}
        self.marks: dict[str, str] = {}
        self.promises: dict[tuple[str, str, str], PromiseLine] = {}
        self._unconfirmed: dict[Stage, dict[str, None]] = defaultdict(dict)
        self._summed: dict[tuple[str | None, str | None], list[ReleaseLine]] = {}
        self._sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
        self._fixed: dict[tuple[str | None, str | None], FixedSums]
        self._fixed = defaultdict(FixedSums)
        self._spent: dict[Stage, Spent] = defaultdict(Spent)
        self._stages: dict[str, set[Stage]] = defaultdict(set)  # by lineage and study
        self._of_people: dict[str | None, Spent] = defaultdict(Spent)

    def book(self, entry: LedgerEntry) -> None:
        """Add one line.

        Parameters
        ----------
        entry
            The next line of the ledger.
        """
        if isinstance(entry, ReleaseLine):
            self._book_release(entry)
        elif isinstance(entry, SurvivorsLine):
            self.survivors[entry.request] = entry
            self._fixed[entry.lineage, entry.site].add(entry)
        elif isinstance(entry, CohortLine):
            self.cohorts[entry.cohort] = entry.subjects
        elif isinstance(entry, RosterLine):
            self.rosters[entry.roster] = entry.sites
        elif isinstance(entry, PromiseLine) and not entry.merged:
            self.promises[entry.study, entry.lineage, entry.site] = entry
        elif isinstance(entry, FinishedLine):
            stage = Stage(entry.lineage, entry.study, entry.site)
            self._confirm(stage, [*self._unconfirmed[stage]])
        elif isinstance(entry, NameLine):
            self.marks |= entry.secrets or {}
        elif isinstance(entry, RestoredLine):
            self._restore(entry)

    def _book_release(self, line: ReleaseLine) -> None:
        stage = Stage(line.lineage, line.study, line.site)
        self.releases[line.request] = line
        self._spent[stage].add(line)
        self._of_people[line.people].add(line)
        for name in (line.lineage, line.study):
            self._stages[name or ""].add(stage)
        if line.merged is not None:  # its answer is in another ledger
            self.gone.add(line.request)
            return
        self._summed.setdefault((line.mask_keys, line.site), []).append(line)
        self._book_confirmed(line, stage)
        self._unconfirmed[stage][line.request] = None

    def _book_confirmed(self, line: ReleaseLine, stage: Stage) -> None:
        """Note answers that the aggregator has, or gave up, by a later request."""
        if line.void:
            waiting = self._unconfirmed[stage]
            void = [r for r in waiting if self.releases[r].sum in line.void]
            self._confirm(stage, void)
        finished = self.releases.get(line.after or "")
        if finished is None:
            return
        earlier = Stage(finished.lineage, finished.study, finished.site)
        # Privacy: another study has no say in what is kept for this one's aggregator.
        is_same = earlier == stage or (line.lineage and earlier[::2] == stage[::2])
        waiting = self._unconfirmed[earlier]
        if is_same and finished.request in waiting:
            n = [*waiting].index(finished.request) + 1
            self._confirm(earlier, [*waiting][:n])

    def _confirm(self, stage: Stage, requests: Iterable[str]) -> None:
        for request in requests:
            del self._unconfirmed[stage][request]
            self.confirmed.add(request)
            self.removable[request] = None

    def _restore(self, line: RestoredLine) -> None:
        # The key is another one: no answer can be asked again.
        self.gone = set(self.releases)
        self._unconfirmed.clear()
        marks = line.secrets or {}
        if marks.get("salt") != self.marks.get("salt"):
            self.cohorts.clear()  # written with a salt that is lost: anybody
        self.marks |= marks

    def unconfirmed(self, stage: Stage) -> list[str]:
        """Requests of a stage whose answers the aggregator may not have yet.

        Parameters
        ----------
        stage
            The stage.

        Returns
        -------
        list of str
            In order.
        """
        return [*self._unconfirmed[stage]] if stage in self._unconfirmed else []

    def sums(self, mask_keys: str, site: str) -> Sums:
        """Secure sums in one exchange that a site answered under some mask keys.

        Parameters
        ----------
        mask_keys, site
            As in their lines.

        Returns
        -------
        Sums
            Those that were given up since among them.
        """
        sums = self._sums[mask_keys, site]
        sums.read(self._summed.get((mask_keys, site), []))
        return sums

    def fixed_before(self, request: str, lineage: str, site: str) -> Memory:
        """Sums of a lineage whose survivors were fixed before those of a request.

        Parameters
        ----------
        request
            As in the line of its survivors.
        lineage, site
            As in their lines.

        Returns
        -------
        Memory
            Of all of them if those of the request are not fixed.
        """
        return self._fixed[lineage, site].before(request)

    def spent(self, lineage: str, studies: Collection[str], site: str) -> Spent:
        """Losses that count against one promise.

        Parameters
        ----------
        lineage
            Of the parties' manifest; empty: the studies alone count.
        studies
            Identities of the study and of its stages.
        site
            Whose; empty: all sites'.

        Returns
        -------
        Spent
            Of the site, and of lines that name none.
        """
        stages, sites = set(), (None, site)
        if lineage:
            of_lineage = self._stages.get(lineage, ())
            stages |= {stage for stage in of_lineage if stage.lineage == lineage}
        for study in studies:
            of_study = self._stages.get(study, ())
            stages |= {stage for stage in of_study if stage.study == study}
        return Spent.together(
            self._spent[stage] for stage in stages if not site or stage.site in sites
        )

    def counted(self, cohort: str) -> Spent:
        """Losses that the ceiling counts: of all people, or of a named cohort.

        Parameters
        ----------
        cohort
            Its name; empty: all people.

        Returns
        -------
        Spent
            What was released before there were names counts for everybody.
        """
        return Spent.together(
            spent for people, spent in self._of_people.items() if counts(people, cohort)
        )


def counts(people: str | None, cohort: str) -> bool:
    """Whether a release of some people counts for a cohort; empty: for all people."""
    return not cohort or people in (None, "", cohort)
