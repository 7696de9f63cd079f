"""What was found at a site: each file is a person's, or set aside for a reason.

Every reader takes its files through here: people as :mod:`.people` has them, less those
whom the site leaves out, and each scan once.
"""

import difflib
import functools
import glob
import gzip
import hashlib
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from capeneuro.config.errors import ConfigError
from capeneuro.config.names import OF_EEG, label, plain, stem, tidy
from capeneuro.config.site import SiteConfig
from capeneuro.data import files as tables
from capeneuro.data import people
from capeneuro.data.door import check_link, is_compressed

HEAD = ["participant_id", "file", "taken"]
NAME = "inventory.tsv"
# Names of folders that hold people's files.
OF_FOLDERS = r"(?i)(sub|ses)-[^.]*|func|anat|eeg"
# Bytes of a file's beginning, middle and end that are compared before the whole.
SAMPLE = 2**16
# Data beside the headers of BrainVision, EEGLAB and Analyze.
DATA_OF = {".vhdr": (".eeg", ".dat"), ".set": (".fdt",), ".hdr": (".img", ".img.gz")}
# Length of what ends a compressed file: a checksum of its content, and its size.
END_OF_GZIP = 8
# What SPM writes before the names of files that it made of others.
OF_SPM = r"(?i)^[a-z]{1,6}(?=sub-)"
# Entities by which files of one scan differ; where several do, the site's file chooses.
SAME_SCAN = ("space", "res", "den", "cohort", "desc", "echo", "part", "rec", "proc")
SAME_SCAN += ("setting", "split")  # HALFpipe's; parts of recordings
SAME_SCAN += ("seg", "atlas")  # of parcels


class Inventory(NamedTuple):
    """Files of one reader at one site."""

    people: dict[str, list[Path]]
    """Files that are taken, by person."""
    aside: dict[Path, str]
    """Why each other file that was found is not taken."""
    left_out: frozenset[str] = frozenset()
    """People who do not take part."""
    person_of_file: Mapping[Path, str] = MappingProxyType({})
    """Person of each file that was found."""

    def rows(self) -> list[list[str]]:
        """A row of :data:`HEAD` for each file, and each person left out of a table."""
        rows = [
            [name, str(f), "yes"]
            for name, files_of_person in self.people.items()
            for f in files_of_person
        ]
        for file, reason in self.aside.items():
            rows.append([self.person_of_file.get(file, ""), str(file), f"no: {reason}"])
        if not self.aside:
            rows += [[name, "n/a", "no"] for name in sorted(self.left_out)]
        return rows

    def lines(self) -> list[str]:
        """Numbers of files that are set aside, a line for each reason."""
        reasons = Counter(self.aside.values())
        return [
            f"  set aside: {n} file{'s' * (n > 1)}: {reason}"
            for reason, n in reasons.items()
        ]


def write(path: Path, inventories: Iterable[Inventory]) -> None:
    """Write a site's inventory; it names people, and stays at the site."""
    rows = [row for inventory in inventories for row in inventory.rows()]
    tables.write_table(path, HEAD, rows)


def of_rows(
    site: SiteConfig, table: Path, names: Collection[str], *, is_whole: bool = True
) -> Inventory:
    """The people of a table, without those that are left out."""
    location = f"site {site.name}: {table}"
    people.check_names(names, location)
    absent = reasons_not_to_take(site, names, location, is_whole=is_whole)
    tables = {name: [table] for name in names if not absent[name]}
    return Inventory(tables, {}, frozenset(names) - frozenset(tables))


def search(pattern: str) -> tuple[list[Path], Path]:
    """Find the files of a pattern, sorted, and the folder that it begins in.

    Of images of two files the header stands for both.
    """
    parts = Path(pattern).parts[:-1]
    fixed = [i for i, part in enumerate(parts) if glob.has_magic(part)]
    root = Path(*parts[: fixed[0] if fixed else len(parts)])
    matches = {Path(path) for path in glob.glob(pattern, recursive=True)}
    data = {beside for path in matches if (beside := data_of(path)) != path}
    return sorted(matches - data), root


def walk(folder: Path) -> list[Path]:
    """All files below a folder, sorted; links to folders are followed.

    Raises
    ------
    ConfigError
        If a folder may not be read, or a link to one leads nowhere: somebody's files
        would be passed over.
    """
    files: list[Path] = []
    for place, inner, names in os.walk(folder, onerror=_unread, followlinks=True):
        above = Path(place).resolve()
        inner[:] = [
            name
            for name in inner
            if not name.startswith(".")
            # A link to a folder above would never end.
            and not above.is_relative_to(Path(place, name).resolve())
        ]
        files += [Path(place, name) for name in names if not name.startswith(".")]
        for name in names:
            if re.fullmatch(OF_FOLDERS, name):
                check_link(Path(place, name))
    return sorted(files)


def people_in(folder: Path) -> list[Path]:
    """Folders of people in a folder, sorted; refused as by :func:`walk`."""
    folders = sorted(folder.glob("[sS][uU][bB]-*"))
    for path in folders:
        check_link(path)
    return folders


def _unread(error: OSError) -> None:
    raise ConfigError(
        f"{error.filename}: folder cannot be read ({error.strerror}); change its "
        "permissions"
    )


def take(
    site: SiteConfig,
    files: Sequence[Path],
    root: Path,
    key: str,
    aside: Mapping[Path, str] = MappingProxyType({}),
    *,
    is_whole: bool = True,
) -> Inventory:
    """Group a site's files by person, without people that are left out.

    Parameters
    ----------
    site
        Its file: who takes part, and how a path names a person.
    files, root
        All that was found, and the folder that the search began in.
    key
        Of the site's file that says where they are: ``images`` or ``eeg``.
    aside
        Those of them that are not taken, with the reason.
    is_whole
        Whether all of the site's people are among these files; else people who are
        left out may be elsewhere, and who looks there checks them (:func:`named`).

    Raises
    ------
    ConfigError
        If somebody is named who is not there, names can be read in two ways, or a scan
        would count twice.
    """
    location, aside = f"site {site.name}: {key}", dict(aside)
    everybody = people.by_person(files, root, location, site.person)
    absent = reasons_not_to_take(site, everybody, location, is_whole=is_whole)
    chosen = {}
    for name, files_of_person in everybody.items():
        if absent[name]:
            aside |= {
                file: absent[name] for file in files_of_person if file not in aside
            }
        elif remaining := [file for file in files_of_person if file not in aside]:
            chosen[name] = remaining
    check_once(chosen, root, location)
    person_of_file = {file: name for name, files in everybody.items() for file in files}
    left_out = frozenset(name for name in absent if absent[name])
    return Inventory(chosen, aside, left_out, person_of_file)


def check_left_out(site: SiteConfig, names: Collection[str]) -> None:
    """Refuse a label of a site's `without` that matches none of its people."""
    labels = list(map(label, names))
    named(site.without, labels, f"site {site.name}: without")


def reasons_not_to_take(
    site: SiteConfig, names: Collection[str], location: str, *, is_whole: bool = True
) -> dict[str, str]:
    """Why each person does not take part, by the site's file; empty: takes part.

    Raises
    ------
    ConfigError
        If the site's file names somebody who is not there, or may be two.
    """
    labels = list(map(label, names))
    images = None if isinstance(site.images, str) else site.images
    left_out = named(site.without, labels, f"{location}: without", is_whole)
    chosen: set[str] = set()
    if images is not None:
        left_out |= named(images.without, labels, f"{location}.without")
        selected_people = getattr(images, "people", ())
        chosen = named(selected_people, labels, f"{location}.people")
    reasons = {}
    for name, its_label in zip(names, labels, strict=True):
        is_chosen = not chosen or its_label in chosen
        reasons[name] = "" if is_chosen else "the person is not named in people"
        if its_label in left_out:
            reasons[name] = "the person is named in without"
    return reasons


def no_longer_taken(site: SiteConfig, names: Collection[str]) -> list[str]:
    """People that the site's file, as it is now, leaves out.

    Parameters
    ----------
    site
        Its file.
    names
        People who were there before, such as those who were prepared.
    """
    labels, location = list(map(label, names)), f"site {site.name}: without"
    images = None if isinstance(site.images, str) else site.images
    stated = {*site.without, *getattr(images, "without", ())}
    left_out = named(stated, labels, location, must_be_there=False)
    stated = getattr(images, "people", ())
    chosen = (
        named(stated, labels, location, must_be_there=False) if stated else {*labels}
    )
    return [n for n in names if label(n) in left_out or label(n) not in chosen]


def named(
    labels: Collection[str],
    present: Collection[str],
    location: str,
    must_be_there: bool = True,
) -> set[str]:
    """People that a site's file names; each label must match one person.

    A label is meant as it is written; where nobody has it, as :func:`.names.plain` has
    it: 1 is 01, and a1 is A01.

    Raises
    ------
    ConfigError
        If a label is nobody's, or as another writing that of several: who withdrew
        would stay.
    """
    meant = set()
    for stated in labels if present else ():
        matches = [person for person in present if person == stated]
        matches = matches or [
            person for person in present if plain(person) == plain(stated)
        ]
        if len(matches) == 1:
            meant |= {*matches}
        elif matches or must_be_there:
            problem = "several people are" if matches else "nobody is"
            longer = [person for person in present if stated in person][:3]
            near = (
                matches or longer or difflib.get_close_matches(stated, present, 3, 0.5)
            )
            beside = f" (there is {', '.join(near)})" if near else ""
            raise ConfigError(
                f"{location}: {problem} called {stated!r}{beside}; write labels in "
                "quotes, "
                "as in the names of files"
                + ", or take out one whose data are gone"
                * (not matches)
            )
    return meant


def is_one_of(value: str | None, accepted: tuple[str, ...]) -> bool:
    """Whether a label is one of those asked for; numbers as numbers."""
    if value is None:
        return "none" in accepted
    return any(
        value == accepted_label
        or (
            value.isdecimal()
            and accepted_label.isdecimal()
            and int(value) == int(accepted_label)
        )
        for accepted_label in accepted
    )


# --- each scan once ------------------------------------------------------------------


def check_once(
    files_by_person: Mapping[str, Sequence[Path]], root: Path, location: str
) -> None:
    """Refuse files that would count a person's scan twice, or as another person's.

    Raises
    ------
    ConfigError
        If two files of a person are of one scan, two paths are one file, or two files
        have the same content.
    """
    scans: dict[tuple[str, str], Path] = {}
    for name, file in (
        (name, file) for name, files in files_by_person.items() for file in files
    ):
        key = name, scan(file, root)
        if key in scans:
            raise ConfigError(
                f"{location}: {scans[key]} and {file} look like one scan; "
                + _remedy(scans[key], file)
            )
        scans[key] = file
    for first, second in copies(
        file for files in files_by_person.values() for file in files
    ):
        relation = "are one file" if first.samefile(second) else "have the same content"
        if first != second and data_of(first) == data_of(second):
            relation = f"lead to the same data {data_of(first).name}"
        raise ConfigError(
            f"{location}: {first} and {second} {relation}; take one of them away, or "
            "leave one "
            "of the people out"
        )


def scan(file: Path, root: Path) -> str:
    """Parts of a path that distinguish one scan of a person from another.

    Of names as in BIDS, also behind SPM's letters, all parts but the person's label and
    :data:`SAME_SCAN`, in any order and with numbers as numbers, wherever the file lies;
    of others the path.
    """
    name = re.sub(OF_SPM, "", re.sub(OF_EEG, "", tidy(stem(file))))
    if not re.match("(?i)sub-", name):
        below = file.relative_to(root) if file.is_relative_to(root) else file
        return str(below.with_name(name))
    parts = [part.lower() for part in name.split("_")[1:]]
    if not any(part.startswith("ses-") for part in parts):
        parts += map(str.lower, sessions(file))
    entities = [part for part in parts if part.split("-")[0] not in SAME_SCAN]
    return "_".join(sorted(re.sub(r"(?<!\d)0+(?=\d)", "", part) for part in entities))


def sessions(file: Path) -> list[str]:
    """Sessions that folders name, as in `ses-1` and `sub-01_ses-1`."""
    inner = "/".join(file.parts[:-1])
    return re.findall(r"(?:^|[/_])(ses-[^/_]+)", inner)


def _remedy(first: Path, second: Path) -> str:
    """How to take one of two files of one scan."""
    entities = [
        dict(p.split("-", 1) for p in stem(f).split("_") if "-" in p)
        for f in (first, second)
    ]
    differ = [e for e in SAME_SCAN if entities[0].get(e) != entities[1].get(e)]
    if not differ:
        return (
            "take one of them away, or give a pattern that takes one; sessions are "
            "told apart by ses- in names or folders"
        )
    values = sorted({of_file.get(differ[0], "none") for of_file in entities})
    key = "" if differ[0] in ("space", "res", "echo", "desc") else "filters"
    choice = f"which {differ[0]}: {' or '.join(values)}"
    return f"say in `{key or differ[0]}` {choice}, or give a pattern that takes one"


def copies(files: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Each file that has the content of one before it, behind that one.

    The content of a header is the data that it leads to, and that of a compressed file
    what is in it. Sizes are compared first, then a few places of files, then all bytes.
    A link counts as a copy; files that are empty, or not there, are passed over.
    """
    by_size: dict[tuple[bool, int], list[tuple[Path, Path]]] = defaultdict(list)
    for file in files:
        data = data_of(file)
        if data is not None and data.is_file() and os.access(data, os.R_OK):
            by_size[_size(data, data.stat().st_mtime_ns)].append((file, data))
    for (_, size), same_size in by_size.items():
        by_sample: dict[bytes, list[tuple[Path, Path]]] = defaultdict(list)
        for file, data in same_size if size and len(same_size) > 1 else ():
            by_sample[_sample(data, data.stat().st_mtime_ns)].append((file, data))
        for alike in by_sample.values():
            first: dict[bytes, Path] = {}
            for file, data in alike if len(alike) > 1 else ():
                digest = _digest(data, data.stat().st_mtime_ns)
                if digest in first:
                    yield first[digest], file
                first.setdefault(digest, file)


def data_of(file: Path) -> Path | None:
    """The file that holds the data of a recording or image: itself, or beside it.

    None where a header has none beside it.
    """
    suffix = file.suffix.lower()
    if suffix not in DATA_OF or not (file.is_file() and os.access(file, os.R_OK)):
        return file
    beside = [file.with_suffix(end) for end in DATA_OF[suffix]]
    if suffix == ".vhdr":
        text = file.read_text(encoding="latin-1")
        named = re.search(r"(?im)^\s*DataFile\s*=[ \t]*(\S.*?)\s*$", text)
        beside = (
            [file.with_name(named[1].replace("$b", file.stem))] if named else beside
        )
    alone = file if suffix == ".set" else None  # whose data are mostly in it
    return next((path for path in beside if path.is_file()), alone)


@functools.lru_cache(2**16)
def _size(file: Path, modified: int) -> tuple[bool, int]:
    """Whether a file is compressed, and the size of its content."""
    size = file.stat().st_size
    if not size or not is_compressed(file):
        return False, size
    return True, int.from_bytes(_end(file)[-4:], "little")


def _end(file: Path) -> bytes:
    """Last bytes of a file, which identify the content of a compressed one."""
    with open(file, "rb") as content:
        content.seek(max(file.stat().st_size - END_OF_GZIP, 0))
        return content.read()


@functools.lru_cache(2**16)
def _sample(file: Path, modified: int) -> bytes:
    """Digest of a file's beginning, middle and end; of a compressed one, its sum."""
    if is_compressed(file):
        return _end(file)
    size, digest = file.stat().st_size, hashlib.sha256()
    with open(file, "rb") as content:
        for start in (0, size // 2, max(size - SAMPLE, 0)):
            content.seek(start)
            digest.update(content.read(SAMPLE))
    return digest.digest()


@functools.lru_cache(2**12)
def _digest(file: Path, modified: int) -> bytes:
    """Digest of a file's content; of a damaged one, of the file."""
    for unpack in (gzip.open, open) if is_compressed(file) else (open,):
        try:
            with unpack(file, "rb") as content:
                return hashlib.file_digest(content, "sha256").digest()
        except (OSError, EOFError, zlib.error):
            continue
    return b""
