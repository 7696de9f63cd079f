"""Requests and answers as files that people carry: one zip for a site and a visit.

A request is what would go over a network, byte for byte: signed for one site, its parts
in the order in which they are to be answered. An answer is sealed for the aggregator.
The same request made again is the same file, so an aggregator that was stopped goes on,
and an answer fits the request that it was made for and no other.

Nothing in a zip is compressed, and every name in it is one that is expected: what
unpacks to more than it is, or outside its folder, is refused before anything is read.
"""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import LARGE
from capeneuro.federation.messages import Message, pack
from capeneuro.federation.rounds import some
from capeneuro.federation.transport import Replies, sort_reply

# Names of all that may be in a zip.
REQUEST = re.compile(r"manifest\.json|README\.txt|\d-[a-z_]{1,16}\.request")
ANSWER = re.compile(
    r"answer\.json|approval\.json|DISCLOSURE\.(json|txt|html)|\d-[a-z_]{1,16}\.answer"
)
MOST_MEMBERS = 16
# What a zip is that holds a file of this name, where the other one is needed.
WHOSE = {
    "manifest.json": "is a request for a site, not a site's answer",
    "answer.json": "is a site's answer, not a request; the aggregator reads it",
}
README = """A request of the study {study} for {site}.

At {site}, in the folder of the study, type
  capeneuro answer {file}
It shows what is asked and what it costs, and writes nothing before a yes.
"""
# Equal content makes equal files.
NO_DATE = (1980, 1, 1, 0, 0, 0)


class Waiting(Exception):
    """Some sites have not answered yet; ``missing`` are their names."""

    def __init__(self, visit: str, missing: Sequence[str], n_asked: int) -> None:
        self.visit, self.missing, self.n_asked = visit, list(missing), n_asked
        super().__init__(
            f"waiting for {len(missing)} of {n_asked} sites: {some(missing)}"
        )


class Part(NamedTuple):
    """One task of a visit, with its message."""

    task: str
    message: Message


def write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    """Write a zip whose members are stored as they are; whole when it is there.

    Parameters
    ----------
    path
        The file; its folder is made.
    members
        Contents by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, NO_DATE), content)
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    partial.rename(path)


def read_zip(path: Path, names: re.Pattern[str]) -> dict[str, bytes]:
    """Read a zip that somebody carried here.

    Parameters
    ----------
    path
        The file.
    names
        Names that a member may have.

    Returns
    -------
    dict
        Contents by name.

    Raises
    ------
    ValueError
        With one line, if it is no whole zip, or holds anything else.

    Guarantee
    ---------
    It takes no more memory than the file is long, and writes nothing.
    """
    try:
        size = path.stat().st_size
        if size > LARGE:
            raise ValueError(f"is larger than {LARGE >> 20} MiB")
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            _check_members(infos, names, size)
            return {info.filename: archive.read(info) for info in infos}
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        raise ValueError(
            "is no whole zip: it was cut or changed; copy it again"
        ) from None


def _check_members(
    infos: Sequence[zipfile.ZipInfo], names: re.Pattern[str], size: int
) -> None:
    """Refuse members that were not written by :func:`write_zip`."""
    if len(infos) > MOST_MEMBERS:
        raise ValueError(f"holds {len(infos)} files, at most {MOST_MEMBERS} may be")
    if len({info.filename for info in infos}) < len(infos):
        raise ValueError("holds two files of one name")
    for info in infos:
        if not names.fullmatch(info.filename):
            for name in WHOSE.keys() & {i.filename for i in infos}:
                raise ValueError(WHOSE[name])
            raise ValueError(f"holds a file of another name: {info.filename[:80]!r}")
        is_stored = info.compress_type == zipfile.ZIP_STORED
        # Privacy: a bomb, or a tool that packed it anew.
        if not is_stored or info.file_size != info.compress_size or info.flag_bits & 1:
            raise ValueError(
                f"holds {info.filename} compressed or encrypted; carry the file as it "
                "was written, not packed again"
            )
    if sum(info.file_size for info in infos) > size:
        raise ValueError("unpacks to more than it is; it was made to do harm")


def parts_of(members: Mapping[str, bytes], ending: str) -> list[bytes]:
    """Parts of a request or an answer, in their order.

    Parameters
    ----------
    members
        Contents of :func:`read_zip`.
    ending
        ``"request"`` or ``"answer"``.

    Returns
    -------
    list of bytes
        One for each task.
    """
    names = sorted(name for name in members if name.endswith(f".{ending}"))
    return [members[name] for name in names]


def digest_of_parts(parts: Iterable[bytes]) -> str:
    """Identity of a request: SHA-256 of its parts in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


def answers_in(folder: Path) -> list[Path]:
    """Zips in a folder that may be answers: all but the requests under ``to-SITE/``."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() == ".zip"
        and not path.relative_to(folder).parts[0].startswith("to-")
    ]


class FolderFederation:
    """Sites that answer by files in a folder (see ``Federation``).

    Parameters
    ----------
    folder
        Requests are written to ``to-SITE/`` in it; answers may lie anywhere else in it.
    study
        Name of the study in the names of files.
    names
        Sites, in the study's order.
    authority
        Who asks: signs requests, reads answers.
    greeting
        First part of every visit.
    descriptions
        By site what it said of itself already, signed in its entry.
    members
        What else goes into each request, such as the manifest.
    visits
        File of the aggregator that numbers the visits.
    """

    def __init__(
        self,
        folder: Path,
        study: str,
        names: tuple[str, ...],
        authority: Authority,
        greeting: Message,
        descriptions: Mapping[str, Message],
        members: Mapping[str, bytes],
        visits: Path,
    ) -> None:
        self.names = names
        self.notes: dict[Path, str] = {}  # files that are no answers, and why
        self._folder, self._study, self._authority = folder, study, authority
        self._greeting, self._descriptions = Part("ping", greeting), descriptions
        self._members, self._visits = dict(members), visits
        self._projection: Mapping[str, Message] = {}

    def ask(
        self,
        task: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        """Ask the named sites; raise :class:`Waiting` until all answers are there."""
        replies = Replies()
        facts = self._descriptions if task == "describe" else {}
        if task == "project":  # it rides with the release that follows
            self._projection = messages
            replies.ok.update({name: {} for name in messages})
            return replies
        requests = {
            name: self._signed(name, [*self._before(name), Part(task, message)])
            for name, message in messages.items()
            if name not in facts
        }
        answers = self._answers(requests) if requests else {}
        for name in messages:
            reply = facts[name] if name in facts else answers[name]()
            sort_reply(replies, name, reply, fold)
        return replies

    def close(self) -> None:
        """Write a last request for each site: to note that the study is finished."""
        ending = Part("ping", {**self._greeting.message, "done": True})
        for name in self.names:
            requests = self._signed(name, [ending])
            self._write(name, f"{self._study}-finished", requests)

    def _before(self, name: str) -> Iterator[Part]:
        """Parts of a visit before the question itself."""
        yield self._greeting
        if name in self._projection:
            yield Part("project", self._projection[name])

    def _signed(self, name: str, parts: Iterable[Part]) -> dict[str, bytes]:
        """Signed requests by the name of their file in the zip."""
        return {
            f"{i}-{part.task}.request": self._authority.request(
                name, part.task, part.message
            )
            for i, part in enumerate(parts, 1)
        }

    def _answers(
        self, requests: Mapping[str, Mapping[str, bytes]]
    ) -> dict[str, Callable[[], Message]]:
        """Find the sites' answers; write requests for sites that have not answered."""
        digests = {n: digest_of_parts(parts.values()) for n, parts in requests.items()}
        visit = self._visit(digests)
        answer_files = self._find(digests)
        missing = [name for name in requests if not answer_files[name]]
        for name in missing:
            self._write(name, visit, requests[name])
        if missing:
            raise Waiting(visit, missing, len(requests))
        return {
            name: lambda name=name: self._read(name, requests[name], answer_files[name])
            for name in requests
        }

    def _visit(self, digests: Mapping[str, str]) -> str:
        """Name of the files of a visit, numbered in the order in which they began."""
        visit_numbers = (
            json.loads(self._visits.read_text()) if self._visits.exists() else {}
        )
        key = digest_of_parts(f"{n} {d}".encode() for n, d in sorted(digests.items()))
        if key not in visit_numbers:
            visit_numbers[key] = len(visit_numbers) + 1
            self._visits.parent.mkdir(parents=True, exist_ok=True)
            partial = self._visits.with_suffix(".part")
            partial.write_text(json.dumps(visit_numbers))
            partial.rename(self._visits)
        return f"{self._study}-{visit_numbers[key]}"

    def _write(self, name: str, visit: str, requests: Mapping[str, bytes]) -> None:
        path = self._folder / f"to-{name}" / f"{visit}.{name}.request.zip"
        if not path.exists():
            readme = README.format(study=self._study, site=name, file=path.name)
            write_zip(
                path, {"README.txt": readme.encode(), **self._members, **requests}
            )

    def _find(self, digests: Mapping[str, str]) -> dict[str, list[Path]]:
        """Files that say to be the answer of a site to its request."""
        answer_files: dict[str, list[Path]] = {name: [] for name in digests}
        for path in answers_in(self._folder):
            try:
                content = json.loads(read_zip(path, ANSWER)["answer.json"])
                name, digest = str(content["site"]), content["request"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self.notes[path] = _why(error)
                continue
            if name in digests and digests[name] == digest:
                answer_files[name].append(path)
        return answer_files

    def _read(
        self, name: str, requests: Mapping[str, bytes], paths: Sequence[Path]
    ) -> Message:
        """Open the answer of one site; several files must hold the same."""
        opened: dict[bytes, Message] = {}
        for path in paths:
            sealed = parts_of(read_zip(path, ANSWER), "answer")
            try:
                if len(sealed) != len(requests):
                    raise ValueError("holds another number of parts")
                replies = [
                    self._authority.read(name, request, answer)
                    for request, answer in zip(requests.values(), sealed, strict=True)
                ]
            except ValueError as error:
                self.notes[path] = _why(error)
                continue
            reply = next((r for r in replies if "error" in r), replies[-1])
            opened[pack(reply)] = reply
        # A refusal that was mended since is followed by an answer.
        answers = [r for r in opened.values() if "error" not in r]
        if len(answers) > 1:
            # Privacy: two answers to one request share their masks.
            return {"error": "refused", "rule": TWO_COPIES}
        if not opened:
            return {"error": "failed", "rule": NO_ANSWER}
        return (answers or list(opened.values()))[-1]


NO_ANSWER = "its file is not an answer to this request"
TWO_COPIES = "two different answers to one request; two copies of its ledger are in use"


def _why(error: Exception) -> str:
    """Reason why a file is no answer, in a few words."""
    if isinstance(error, KeyError):
        return "is no answer: it holds no answer.json"
    if isinstance(error, RecursionError):
        return "is no answer: its answer.json is not one that a site writes"
    return str(error)
