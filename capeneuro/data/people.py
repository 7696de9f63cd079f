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
from capeneuro.config.names import (
    LABEL,
    OF_EEG,
    WHOLE_LABEL,
    by_layout,
    folder_label,
    label,
    plain,
    repeats,
    stated,
    stem,
    tidy,
)

# Names of people; they become names of files and of parts of projected.npz.
PERSON = r"[^\W_][^\s/\\\x00]{0,99}"
REMEDY = (
    "say in the site file what of a path is the person, as in person: '{person}_*', "
    "'{person}/*' or '*/{person}.nii'"
)
# Parts of a name by which files of one person usually differ.
OF_ONE_PERSON = (
    r"(?i)(^|[_\-. ])((run|sess?|session|visit|rest|echo|part|day|week|month|year|tp|"
    r"timepoint|wave|task|rec|block|trial|night|fu|follow[_\-. ]?up)[_\-. ]?\d*|"
    r"(?<=[_\-. ])([tv]|scan)\d+|lr|rl|ap|pa|pre|post|baseline|bl|eo|ec|"
    r"(eyes?)?[_\-. ]?(open|closed))(?=[_\-. ]|$)"
)


def by_person(
    files: Sequence[Path],
    root: Path,
    where: str,
    pattern: str | None = None,
    remedy: str = REMEDY,
) -> dict[str, list[Path]]:
    """Put files together by person.

    The site's own pattern counts first. Else the person is the folder `sub-<label>`
    that a file lies in, which its name must repeat if it has a label; the label in the
    name; the part of the path that :data:`.names.LAYOUTS` know; or, where no file has
    any of these, each file is of one person.

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
    remedy
        What to do where names can be read in two ways.

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
        whose = {file: _stated(file, root, where) for file in files}
        labelled = [file for file, person in whose.items() if person is not None]
        if not labelled:
            whose = {file: re.sub(OF_EEG, "", tidy(stem(file))) for file in files}
            _check_unlabelled(whose, root, where, remedy)
        elif others := [file.name for file in files if whose[file] is None]:
            raise ConfigError(
                f"{where}: {len(labelled)} names say whose files they are, as "
                f"{labelled[0].name} does, and {len(others)} do not: {some(others)}; "
                f"narrow the pattern, or {remedy}"
            )
        else:
            _check_labels(files, whose, root, where, remedy)
    odd = [name for name in whose.values() if not re.fullmatch(PERSON, name)]
    if odd:
        raise ConfigError(
            f"{where}: a person must be called by letters and signs without blanks, "
            f"got {odd[0]!r:.60}; rename the file, or {remedy}"
        )
    people: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        people[whose[file]].append(file)
    return dict(sorted(people.items()))


def _by_pattern(
    files: Iterable[Path], root: Path, where: str, pattern: str
) -> dict[Path, str]:
    """Person of each file by the site's own pattern."""
    parts = [re.escape(part).replace(r"\*", ".*") for part in pattern.split("{person}")]
    whole, longest = (
        re.compile(f"(?P<person>{text})".join(parts)) for text in ("[^/]+?", "[^/]+")
    )
    whose, other = {}, {}
    for file in files:
        path = _below(file, root).as_posix()
        match = whole.fullmatch(path)
        if match is None:
            raise ConfigError(
                f"{where}: person: must match every file below {root}, {pattern!r} "
                f"does not match {path}"
            )
        whose[file], other[file] = (
            tidy(one["person"]) for one in (match, longest.fullmatch(path))
        )
    file = next(iter(files), None)
    is_numbered = file is not None and re.search(r"\d", whose[file])
    if len({*whose.values()}) == 1 < len({*other.values()}) and not is_numbered:
        raise ConfigError(
            f"{where}: person: {pattern!r} makes all {len(whose)} files one person's, "
            f"{whose[file]!r}; is {other[file]!r} the person in {file.name}? Write "
            "all that stands before and behind, as in "
            f"'{whose[file]}_{{person}}_*'"
        )
    return whose


def _below(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file


def _stated(file: Path, root: Path, where: str) -> str | None:
    """Person whom a file's folder or name states; None: neither does."""
    below, name = _below(file, root), tidy(stem(file))
    folders = filter(None, map(folder_label, reversed(below.parts[:-1])))
    outer, inner = next(folders, None), re.search(WHOLE_LABEL, name)
    if outer and inner and not repeats(name, outer):
        raise ConfigError(
            f"{where}: {file} lies in the folder 'sub-{outer}' and is of "
            f"'sub-{inner[1]}'; is the folder a copy? Move it elsewhere, or rename one"
        )
    return stated(below) or by_layout(file)


def _check_labels(
    files: Sequence[Path],
    whose: Mapping[Path, str],
    root: Path,
    where: str,
    remedy: str,
) -> None:
    """Refuse labels of which nobody can tell how many people they are."""
    in_folders = all(
        any(map(folder_label, _below(file, root).parts[:-1])) for file in files
    )
    if not in_folders:
        in_names = [file for file in files if re.search(LABEL, stem(file))]
        _check_same(in_names, whose.__getitem__, _first_label, where, remedy)
    _check_same(
        files, whose.__getitem__, lambda file: plain(whose[file]), where, remedy
    )


def _first_label(file: Path) -> str:
    """Label in a name as BIDS has it: letters and digits."""
    return re.search(LABEL, stem(file))[1]


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse names of a table that may be one person's: `sub-1` and `sub-01`.

    Raises
    ------
    ConfigError
        With two of them.
    """
    same: dict[str, str] = {}
    for name in names:
        key = plain(re.sub(OF_ONE_PERSON, "", label(name))) or plain(name)
        other = same.setdefault(key, name)
        if other != name:
            raise ConfigError(
                f"{where}: {other} and {name} differ by case, noughts, signs or a "
                "session alone, and may be one person; remove one, or give both names "
                "that differ"
            )


def _check_unlabelled(
    whose: Mapping[Path, str], root: Path, where: str, remedy: str
) -> None:
    """Refuse files without labels whose names tell of several files of one person."""
    files = list(whose)
    in_names = _first_differing([re.split(r"[_\-. ]+", whose[file]) for file in files])
    in_folders = _first_differing([_below(file, root).parts[:-1] for file in files])

    def without_runs(file: Path) -> str:
        """Name of a file without what tells its run, session or direction."""
        return re.sub(OF_ONE_PERSON, "", whose[file])

    def numbered(parts: Sequence[str]) -> Callable[[Path], str]:
        """First part in which names differ, if it may be a person's number."""
        of = dict(zip(files, parts, strict=True))
        return lambda file: of[file] if re.search(r"\d", of[file]) else str(file)

    beginnings = numbered(in_names), numbered(in_folders)
    for reading in (whose.__getitem__, without_runs, *beginnings):
        _check_same(files, _path, reading, where, remedy)


def _first_differing(parts: Sequence[Sequence[str]]) -> list[str]:
    """Of each of several lists the first part that is not the same in all."""
    alike = itertools.takewhile(
        lambda part: len({*part}) == 1, zip(*parts, strict=False)
    )
    n_alike = len(list(alike))
    return ["".join(names[n_alike : n_alike + 1]) for names in parts]


def _path(file: Path) -> str:
    """Path of a file without its format: files of two formats are one recording."""
    return str(file.with_name(re.sub(OF_EEG, "", stem(file))))


def _check_same(
    files: Sequence[Path],
    first: Callable[[Path], str],
    second: Callable[[Path], str],
    where: str,
    remedy: str,
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
    shown = " and ".join(Path(name).name for name in merged[:2])
    raise ConfigError(
        f"{where}: {len(files)} files may be of {n_people} people or of "
        f"{len(several)}: are {shown} the same person? {remedy[0].upper()}{remedy[1:]}"
    )
