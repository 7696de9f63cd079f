"""What a site remembers of the secure sums in one exchange that it answered.

Masks are bound to it (:mod:`.secagg.one_exchange`), and a request that does not follow
on it is refused. It is read from the lines of the ledger, each of them once.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.messages import digest


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
