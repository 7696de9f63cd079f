"""Who a person is: the one way in which every reader puts files together by person.

The promise is made to each person, so two people must never become one, nor one person
two. Where names of files can be read in two ways, the set is refused with both.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from capeneuro.config.errors import ConfigError, some

# Names of people; they become names of files and of parts of projected.npz.
PERSON = r"[^\W_][^\s/\\\x00]{0,99}"
# Where projects other than BIDS have the person in a path.
LAYOUTS = {
    "the Human Connectome Project": r"(?:^|/)([^/]+)/MNINonLinear/",
    "UK Biobank": r"(?:^|/)(\d{7})(?:_\d+_\d+_\d+)?/fMRI/",
    "UK Biobank's bulk files": r"(?:^|/)(\d{7})_\d{5}_\d+_\d+[^/]*$",
    "CONN": r"niftiDATA_(Subject\d+)_Condition\d+",
    "PhysioNet": r"(?:^|/)(S\d{3})R\d{2}\.[^/]*$",
}
# What may stand before a label: nothing, a separator, or SPM's prefixes.
BEFORE = r"(?:^[a-z]{0,6}|[^a-z0-9])"
# Label in a name: letters and digits as BIDS has it, or all up to the next entity.
LABEL = rf"(?i){BEFORE}sub-([a-z0-9]+)"
END_OF_LABEL = r"_[a-z]+-|_[a-z][a-z0-9]*$|-(?:epo|raw|eeg|ave)$|\.|$"
WHOLE_LABEL = rf"(?i){BEFORE}sub-(.+?)(?={END_OF_LABEL})"
REMEDY = "say in the site file what of a path is the person, as in person: '{person}_*'"
# Parts of a name by which files of one person usually differ.
OF_ONE_PERSON = (
    r"(?i)(^|[_\-. ])((run|ses|session|visit|rest|echo|part|day|tp|wave|task|rec"
    r"|block)[_\-. ]?\d*|lr|rl|ap|pa)(?=[_\-. ]|$)"
)
# Ends of names of EEG, which tell what a file holds and not whose it is.
OF_EEG = r"(?i)[-_](eeg|epo|raw)$"
FORMATS = r"\.(nii|hdr|img|edf|bdf|vhdr|set|fif|xdfz?|csv|tsv)(\.gz)?$|\.[^.]*$"


def stem(file: Path) -> str:
    """Name of a file without its format."""
    return re.sub(FORMATS, "", file.name, count=1, flags=re.IGNORECASE)


def name_of(file: Path) -> str:
    """Whose file it is, by its name alone: `sub-<label>`, or its name."""
    match = re.search(LABEL, stem(file))
    return f"sub-{match[1]}" if match else stem(file)


def by_person(
    files: Sequence[Path], root: Path, where: str, pattern: str | None = None
) -> dict[str, list[Path]]:
    """Put files together by person.

    The site's own pattern counts first. Else the person is the folder `sub-<label>`
    that a file lies in, which its name must repeat if it has a label; the label in the
    name; the part of the path that :data:`LAYOUTS` knows; or, where no file has any of
    these, each file is of one person.

    Parameters
    ----------
    files
        Those of one reader at one site.
    root
        Folder that the search began in; what lies above says nothing of people.
    where
        Place named in errors, such as ``site north: images``.
    pattern
        Path below ``root`` with ``{person}`` in it, such as
        ``{person}/MNINonLinear/*``; ``*`` is any text.

    Returns
    -------
    dict
        Files by person, people in the order of their names.

    Raises
    ------
    ConfigError
        If a file has no person, or names can be read in two ways. It names people, and
        stays at the site.
    """
    if pattern is not None:
        whose = _by_pattern(files, root, where, pattern)
    else:
        whose = {file: _labelled(file, root, where) for file in files}
        labelled = [file for file, person in whose.items() if person is not None]
        if not labelled:
            whose = {file: re.sub(OF_EEG, "", stem(file)) for file in files}
            _check_unlabelled(whose, root, where)
        elif others := [file.name for file in files if whose[file] is None]:
            raise ConfigError(
                f"{where}: {len(labelled)} names say whose files they are, as "
                f"{labelled[0].name} does, and {len(others)} do not: {some(others)}; "
                f"narrow the pattern, or {REMEDY}"
            )
        else:
            _check_labels(files, whose, root, where)
    odd = [name for name in whose.values() if not re.fullmatch(PERSON, name)]
    if odd:
        raise ConfigError(
            f"{where}: a person must be called by letters and signs without blanks, "
            f"got {odd[0]!r:.60}; rename the file, or {REMEDY}"
        )
    people: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        people[whose[file]].append(file)
    return dict(sorted(people.items()))


def _by_pattern(
    files: Iterable[Path], root: Path, where: str, pattern: str
) -> dict[Path, str]:
    """Person of each file by the site's own pattern."""
    parts = (re.escape(part).replace(r"\*", ".*") for part in pattern.split("{person}"))
    whole = re.compile("(?P<person>[^/]+?)".join(parts))
    whose = {}
    for file in files:
        path = _below(file, root).as_posix()
        match = whole.fullmatch(path)
        if match is None:
            raise ConfigError(
                f"{where}: person: must match every file below {root}, {pattern!r} "
                f"does not match {path}"
            )
        whose[file] = match["person"]
    return whose


def _below(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file


def _labelled(file: Path, root: Path, where: str) -> str | None:
    """Person whom a file's folder or name states; None: neither does."""
    folders = _below(file, root).parts[:-1]
    name, labels = stem(file), [re.match("(?i)sub-(.+)", part) for part in folders]
    label = next((match[1] for match in reversed(labels) if match), None)
    if label is None:
        match = re.search(WHOLE_LABEL, name)
        if match:
            return f"sub-{match[1]}"
        known = (re.search(layout, file.as_posix()) for layout in LAYOUTS.values())
        return next((match[1] for match in known if match), None)
    repeats = re.search(rf"(?i){BEFORE}sub-{re.escape(label)}(?![A-Za-z0-9])", name)
    if re.search(LABEL, name) and not repeats:
        raise ConfigError(
            f"{where}: {file} lies in the folder 'sub-{label}' and is of "
            f"{name_of(file)!r}; is the folder a copy? Move it elsewhere, or rename one"
        )
    return f"sub-{label}"


def _check_labels(
    files: Sequence[Path], whose: Mapping[Path, str], root: Path, where: str
) -> None:
    """Refuse labels of which nobody can tell how many people they are."""
    in_folders = all(
        any(re.match("(?i)sub-", part) for part in _below(file, root).parts[:-1])
        for file in files
    )
    if not in_folders:
        in_names = [file for file in files if re.search(LABEL, stem(file))]
        _check_same(in_names, whose.__getitem__, name_of, where)
    _check_same(files, whose.__getitem__, lambda file: _plain(whose[file]), where)


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse names of a table that may be one person's: `sub-1` and `sub-01`.

    Raises
    ------
    ConfigError
        With two of them.
    """
    same: dict[str, str] = {}
    for name in names:
        other = same.setdefault(_plain(name.removeprefix("sub-")), name)
        if other != name:
            raise ConfigError(
                f"{where}: {other} and {name} differ by case or noughts alone, and may "
                "be one person; remove one, or give both names that differ"
            )


def _plain(name: str) -> str:
    """A name without case, numbers without noughts before them."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", name.casefold())


def _check_unlabelled(whose: Mapping[Path, str], root: Path, where: str) -> None:
    """Refuse files without labels whose names tell of several files of one person."""
    files = list(whose)
    parts = [re.split(r"[_\-. ]+", name) for name in whose.values()]
    shared = itertools.takewhile(
        lambda part: len({*part}) == 1, zip(*parts, strict=False)
    )
    n_shared = len(list(shared))
    first = {
        file: "".join(names[n_shared : n_shared + 1])
        for file, names in zip(files, parts, strict=True)
    }

    def without_runs(file: Path) -> str:
        """Name of a file without what tells its run, session or direction."""
        return re.sub(OF_ONE_PERSON, "", whose[file])

    def beginning(file: Path) -> str:
        """First part in which names differ, if it may be a person's number."""
        return first[file] if re.search(r"\d", first[file]) else str(file)

    for reading in (whose.__getitem__, without_runs, beginning):
        _check_same(files, _path, reading, where, root)


def _path(file: Path) -> str:
    """Path of a file without its format: files of two formats are one recording."""
    return str(file.with_name(re.sub(OF_EEG, "", stem(file))))


def _check_same(
    files: Sequence[Path],
    first: Callable[[Path], str],
    second: Callable[[Path], str],
    where: str,
    root: Path | None = None,
) -> None:
    """Refuse files that two readings of their names put together differently.

    Raises
    ------
    ConfigError
        With the number of people by each, and an example.
    """
    several: dict[str, set[str]] = defaultdict(set)
    for file in files:
        several[second(file)].add(first(file))
    merged = next((sorted(names) for names in several.values() if len(names) > 1), None)
    if merged is None:
        return
    n_people = len({first(file) for file in files})
    shown, remedy = " and ".join(Path(name).name for name in merged[:2]), REMEDY
    if root is not None and len({Path(name).name for name in merged}) == 1:
        paths = [_below(Path(name), root) for name in (merged[0], merged[-1])]
        shown = " and ".join(map(str, paths))
        remedy = REMEDY.replace("{person}_*", _folder_of_person(*paths))
    raise ConfigError(
        f"{where}: {len(files)} files may be of {n_people} people or of "
        f"{len(several)}: are {shown} the same person? {remedy[0].upper()}{remedy[1:]}"
    )


def _folder_of_person(first: Path, second: Path) -> str:
    """Pattern that takes the folder by which two paths differ first for the person."""
    pairs = zip(first.parts, second.parts, strict=False)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return "/".join([*(part for part, _ in same), "{person}", "*"])
