"""What a site remembers of the secure sums that it answered.

Masks are bound to it (:mod:`.secagg`), and a request for a sum in one exchange that
does not follow on it is refused. It is read from the lines of the ledger, each of them
once.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from capeneuro.federation.entries import ReleaseLine, SurvivorsLine
from capeneuro.federation.messages import digest


class Memory(NamedTuple):
    """Sums in four exchanges of a lineage whose survivors a site fixed, in order.

    Parameters
    ----------
    digest
        Of all of them.
    last
        By site the last request that it survived in.
    """

    digest: str
    last: Mapping[str, str]


class FixedSums:
    """Sums in four exchanges of one lineage at one site."""

    def __init__(self) -> None:
        self._lines: list[SurvivorsLine] = []
        self._places: dict[str, int] = {}  # by request
        self._digests = [digest({"fixed": []})]  # after so many sums
        self._last: dict[str, str] = {}

    def add(self, line: SurvivorsLine) -> None:
        """Remember one more.

        Parameters
        ----------
        line
            Of its survivors.
        """
        self._places[line.request] = len(self._lines)
        self._lines.append(line)
        content = {"before": self._digests[-1], "sum": line.asked}
        self._digests.append(digest({**content, "survivors": line.survivors}))
        self._last |= _last([line])

    def before(self, request: str) -> Memory:
        """Sums that were fixed before that of a request.

        Parameters
        ----------
        request
            As in the line of its survivors; all are before one that has none.

        Returns
        -------
        Memory
            The same whenever the request comes again.
        """
        n = self._places.get(request)
        if n is None:
            return Memory(self._digests[-1], dict(self._last))
        return Memory(self._digests[n], _last(self._lines[:n]))


def _last(lines: Sequence[SurvivorsLine]) -> dict[str, str]:
    return {name: line.asked or "" for line in lines for name in line.survivors}


class Sums:
    """Sums that one site answered under the mask keys of one manifest.

    Attributes
    ----------
    by_digest
        Lines of the sums, by the digest of the request that all sites know.
    of_stage
        The same by identity of the study or stage, in order.
    void
        Digests of sums that were given up: not all sites answered them.
    """

    def __init__(self) -> None:
        self.by_digest: dict[str | None, ReleaseLine] = {}
        self.of_stage: dict[str | None, list[ReleaseLine]] = defaultdict(list)
        self.void: set[str] = set()
        self._n_read = 0
        # By stage digests of sums, each with that of all sums up to it.
        self._chains: dict[str, dict[str, str]] = defaultdict(dict)
        self._before: dict[str | None, dict[str, str]] = {}  # by digest of the sum

    def read(self, lines: Sequence[ReleaseLine]) -> None:
        """Read the lines that came since the last reading.

        Parameters
        ----------
        lines
            All of them, in order.
        """
        for line in lines[self._n_read :]:
            if line.void:
                self.void |= {*line.void}
                for study in self._chains:
                    self._leave_out(study)
            self._before[line.sum] = {
                study: next(reversed(chain.values()))
                for study, chain in self._chains.items()
                if chain
            }
            self.by_digest[line.sum] = line
            self.of_stage[line.study].append(line)
            if line.sum not in self.void:
                self._extend(line.study, line.sum)
        self._n_read = len(lines)

    def _extend(self, study: str, digest_of_sum: str) -> None:
        """Chain a sum to those of its stage before it."""
        chain = self._chains[study]
        before = next(reversed(chain.values()), "")
        # Chained: what was forgotten once is missing for good.
        chain[digest_of_sum] = digest({"before": before, "sum": digest_of_sum})

    def _leave_out(self, study: str) -> None:
        """Take sums that were given up out of a stage's chain: mostly its last ones."""
        remaining, later = self._chains[study], []
        while self.void & remaining.keys():
            digest_of_sum, _ = remaining.popitem()
            later.append(digest_of_sum)
        for digest_of_sum in reversed(later):
            if digest_of_sum not in self.void:
                self._extend(study, digest_of_sum)

    def memory(
        self, digest_of_sum: str, stages: Collection[str], void: Collection[str]
    ) -> dict[str, str]:
        """Digest of all sums that were answered before one, by stage.

        Parameters
        ----------
        digest_of_sum
            Of the sum, which was answered or not.
        stages
            Identities of the stages that count.
        void
            Sums that its request gives up, the last ones of a stage.

        Returns
        -------
        dict
            Of the stages that have any. Sums that were given up are left out.
        """
        if digest_of_sum in self._before:
            before = self._before[digest_of_sum]
            return {study: before[study] for study in stages if study in before}
        memory = {}
        for study in stages & self._chains.keys():
            chain = self._chains[study]
            last = next((s for s in reversed(chain) if s not in void), None)
            if last is not None:
                memory[study] = chain[last]
        return memory
