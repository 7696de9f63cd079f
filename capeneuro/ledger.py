"""What a site has spent: an append-only record on its own disk that outlives a study.

A folder with

- ``ledger.jsonl``: one line per cohort (salted subject ids) and one per release, each
  with a checksum. Checksums detect accidents; they do not bind the site's owner.
- ``releases/<request>.bin``: the outgoing bytes of each release, together with the
  entry that charges it. Written and synced before the ledger line, and the line before
  anything leaves. A crash in between leaves a file without a line: it counts as spent.
- ``salt``, ``key``: secrets of the site, mode 0600.

The identical request gets the identical bytes and costs nothing, so a killed study
resumes by asking again; any other request is a new release with fresh noise.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capeneuro import privacy
from capeneuro.federation import pack, unpack


class BudgetExceeded(Exception):
    """A release would take some subject beyond the site's ceiling."""


class LedgerDamaged(Exception):
    """A ledger line does not match its checksum."""


class Ledger:
    """Record of one site's releases.

    Parameters
    ----------
    folder
        Where it lies, or None to keep it in memory (simulated or public data only).
    ceiling
        The site's own limit on the largest total of any subject over all studies.

    Notes
    -----
    The total of a subject is composed over every release of every cohort that holds
    the subject, so an added participant neither resets nor blocks a cohort.
    """

    def __init__(self, folder: Path | None, ceiling: privacy.Budget) -> None:
        self.folder = folder
        self.ceiling = ceiling
        self._memory: list[dict[str, Any]] = []
        self._replies: dict[str, bytes] = {}
        if folder is None:
            self.key = X25519PrivateKey.generate()
            self._salt = secrets.token_bytes(32)
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "releases").mkdir(exist_ok=True, mode=0o700)
        self._salt = _secret(folder / "salt")
        self.key = X25519PrivateKey.from_private_bytes(_secret(folder / "key"))

    def pseudonym(self, text: str) -> str:
        """Keyed digest that only this site can link to ``text``."""
        return hmac.new(self._salt, text.encode(), "sha256").hexdigest()[:16]

    def entries(self) -> list[dict[str, Any]]:
        """All cohorts and releases so far, in order."""
        if self.folder is None:
            return list(self._memory)
        with self._locked():
            return self._read()

    def stored(self, request: str) -> bytes | None:
        """Outgoing bytes of an earlier identical request, if there was one."""
        with self._locked():
            # Reading charges a file that a crash left without its line.
            known = any(e.get("request") == request for e in self._read())
            return self._reply(request) if known else None

    def charge(
        self, request: str, subjects: Iterable[str], entry: dict[str, Any], reply: bytes
    ) -> bytes:
        """Record a release before it leaves, and return the bytes that may leave.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.
        subjects
            Ids of the people in the data; only salted digests are written.
        entry
            What was released; ``mu`` is the charge, for its ``unit``.
        reply
            The outgoing bytes.

        Returns
        -------
        bytes
            ``reply``, or what another process stored for the same request meanwhile.

        Raises
        ------
        BudgetExceeded
            If any subject's total would exceed the ceiling; nothing is written.
        """
        ids = sorted(self.pseudonym(subject) for subject in subjects)
        cohort = hashlib.sha256("".join(ids).encode()).hexdigest()[:16]
        entry = {"kind": "release", "request": request, "cohort": cohort, **entry}
        json.dumps(entry)  # what is no line must not become a file
        with self._locked():
            entries = self._read()
            # Privacy: one request has one answer; two would share their masks.
            if any(e.get("request") == request for e in entries):
                return self._reply(request)
            new = {"kind": "cohort", "cohort": cohort, "subjects": ids}
            is_new = not any(e.get("cohort") == cohort for e in entries)
            # Privacy: the ceiling is checked before anything of the release exists.
            self._check([*entries, *([new] if is_new else []), entry])
            if is_new:
                self._append(new)
            if self.folder is None:
                self._replies[request] = reply
            else:
                # Privacy: bytes first, then the line, both synced, then the answer.
                _write_synced(
                    self._release_path(request), pack({"entry": entry, "reply": reply})
                )
            self._append(entry)
        return reply

    def totals(self, entries: list[dict[str, Any]] | None = None) -> dict[str, float]:
        """Composed mu of every salted subject over all releases."""
        entries = self.entries() if entries is None else entries
        members = {e["cohort"]: e["subjects"] for e in entries if e["kind"] == "cohort"}
        squares: defaultdict[str, float] = defaultdict(float)
        for e in entries:
            if e["kind"] == "release":
                for subject in members[e["cohort"]]:
                    squares[subject] += e["mu"] ** 2
        return {subject: square**0.5 for subject, square in squares.items()}

    def _check(self, entries: list[dict[str, Any]]) -> None:
        units = {e.get("unit") for e in entries if e["kind"] == "release"}
        if self.ceiling.unit == "subject" and "sample" in units:
            raise BudgetExceeded(
                "earlier releases per sample cannot be counted per subject; keep the "
                "ceiling's unit"
            )
        spent = max(self.totals(entries).values())
        if spent > self.ceiling.mu * (1 + privacy.SAFETY):
            now = privacy.epsilon_from_mu(spent, self.ceiling.delta)
            raise BudgetExceeded(
                f"total epsilon would be {now:.4g} at delta {self.ceiling.delta:g}, "
                f"the ceiling is {self.ceiling.epsilon:g}"
            )

    def _reply(self, request: str) -> bytes:
        if self.folder is None:
            return self._replies[request]
        return unpack(self._release_path(request).read_bytes())["reply"]

    def _release_path(self, request: str) -> Path:
        return self.folder / "releases" / f"{request}.bin"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes; two studies may share a site's ledger."""
        if self.folder is None:
            yield
            return
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> list[dict[str, Any]]:
        """Read all lines; charge release files whose line a crash has lost."""
        if self.folder is None:
            return list(self._memory)
        path = self.folder / "ledger.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        entries = [_parse(line, i) for i, line in enumerate(lines[:-1], 1)]
        if lines[-1]:  # torn by a crash: what it charged is read from its file below
            with open(path, "r+b") as f:
                f.truncate(path.stat().st_size - len(lines[-1]))
        known = {e.get("request") for e in entries}
        for file in sorted((self.folder / "releases").glob("*.bin")):
            if file.stem not in known:
                entry = unpack(file.read_bytes())["entry"]
                entries.append(entry)
                self._append(entry)
        return entries

    def _append(self, entry: dict[str, Any]) -> None:
        if self.folder is None:
            self._memory.append(entry)
            return
        text = json.dumps(entry, sort_keys=True)
        line = json.dumps({"check": _checksum(text), "entry": text}) + "\n"
        with open(self.folder / "ledger.jsonl", "ab") as f:
            f.write(line.encode())
            f.flush()
            os.fsync(f.fileno())


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if record["check"] == _checksum(record["entry"]):
            return json.loads(record["entry"])
    except (ValueError, KeyError, TypeError):
        pass
    raise LedgerDamaged(
        f"ledger line {number} does not match its checksum; restore the file from a "
        "backup, nothing is released until then"
    )


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _secret(path: Path) -> bytes:
    """Read 32 secret bytes, made on first use and readable by the owner alone."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(secrets.token_bytes(32))
            f.flush()
            os.fsync(f.fileno())
        # Of two processes one links first; both then read what it wrote, whole.
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
    secret = path.read_bytes()
    if len(secret) != 32:
        raise LedgerDamaged(f"{path.name} is not 32 bytes long; restore a backup")
    return secret


def _write_synced(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is either absent or whole."""
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
