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
SAY = "say in the site file what of a path is the person, as in person: "
REMEDY = f"{SAY}'{{person}}_*', '{{person}}/*' or '*/{{person}}.nii'"
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
    location: str,
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
    location
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
        person_of_file = _by_pattern(files, root, location, pattern)
    else:
        person_of_file = {file: _stated(file, root, location) for file in files}
        labelled = [
            file for file, person in person_of_file.items() if person is not None
        ]
        if not labelled:
            person_of_file = {
                file: re.sub(OF_EEG, "", tidy(stem(file))) for file in files
            }
            _check_unlabelled(person_of_file, root, location, remedy)
        elif unlabelled := [
            file.name for file in files if person_of_file[file] is None
        ]:
            raise ConfigError(
                f"{location}: {len(labelled)} names say whose files they are, as "
                f"{labelled[0].name} does, and {len(unlabelled)} do not: "
                f"{some(unlabelled)}; "
                f"narrow the pattern, or {remedy}"
            )
        else:
            _check_labels(files, person_of_file, root, location, remedy)
    odd = [name for name in person_of_file.values() if not re.fullmatch(PERSON, name)]
    if odd:
        raise ConfigError(
            f"{location}: a person must be called by letters and signs without blanks, "
            f"got {odd[0]!r:.60}; rename the file, or {remedy}"
        )
    people: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        people[person_of_file[file]].append(file)
    return dict(sorted(people.items()))


def _by_pattern(
    files: Iterable[Path], root: Path, location: str, pattern: str
) -> dict[Path, str]:
    """Person of each file by the site's own pattern."""
    parts = [re.escape(part).replace(r"\*", ".*") for part in pattern.split("{person}")]
    shortest, longest = (
        re.compile(f"(?P<person>{text})".join(parts)) for text in ("[^/]+?", "[^/]+")
    )
    person_of_file, longer_reading = {}, {}
    for file in files:
        path = _below(file, root).as_posix()
        match = shortest.fullmatch(path)
        if match is None:
            raise ConfigError(
                f"{location}: person: must match every file below {root}, {pattern!r} "
                f"does not match {path}"
            )
        person_of_file[file], longer_reading[file] = (
            tidy(reading["person"]) for reading in (match, longest.fullmatch(path))
        )
    file = next(iter(files), None)
    is_numbered = file is not None and re.search(r"\d", person_of_file[file])
    if (
        len({*person_of_file.values()}) == 1 < len({*longer_reading.values()})
        and not is_numbered
    ):
        raise ConfigError(
            f"{location}: person: {pattern!r} makes all {len(person_of_file)} files "
            "one person's, "
            f"{person_of_file[file]!r}; is {longer_reading[file]!r} the person in "
            f"{file.name}? Write "
            "all that stands before and behind, as in "
            f"'{person_of_file[file]}_{{person}}_*'"
        )
    return person_of_file


def _below(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file


def _stated(file: Path, root: Path, location: str) -> str | None:
    """Person that a file's folder or name states; None: neither does."""
    below, name = _below(file, root), tidy(stem(file))
    folders = filter(None, map(folder_label, reversed(below.parts[:-1])))
    outer, inner = next(folders, None), re.search(WHOLE_LABEL, name)
    if outer and inner and not repeats(name, outer):
        raise ConfigError(
            f"{location}: {file} lies in the folder 'sub-{outer}' and is of "
            f"'sub-{inner[1]}'; is the folder a copy? Move it elsewhere, or rename one"
        )
    return stated(below) or by_layout(file)


def _check_labels(
    files: Sequence[Path],
    person_of_file: Mapping[Path, str],
    root: Path,
    location: str,
    remedy: str,
) -> None:
    """Refuse labels whose number of people is ambiguous."""
    in_folders = all(
        any(map(folder_label, _below(file, root).parts[:-1])) for file in files
    )
    if not in_folders:
        in_names = [file for file in files if re.search(LABEL, stem(file))]
        _check_same(
            in_names, person_of_file.__getitem__, _first_label, location, remedy
        )
    _check_same(
        files,
        person_of_file.__getitem__,
        lambda file: plain(person_of_file[file]),
        location,
        remedy,
    )


def _first_label(file: Path) -> str:
    """Label in a name as BIDS has it: letters and digits."""
    return re.search(LABEL, stem(file))[1]


def check_names(names: Iterable[str], location: str) -> None:
    """Refuse names of a table that may be one person's: `sub-1` and `sub-01`.

    Raises
    ------
    ConfigError
        With two of them.
    """
    first_names: dict[str, str] = {}
    for name in names:
        key = plain(re.sub(OF_ONE_PERSON, "", label(name))) or plain(name)
        first_name = first_names.setdefault(key, name)
        if first_name != name:
            raise ConfigError(
                f"{location}: {first_name} and {name} differ by case, noughts, signs "
                "or a "
                "session alone, and may be one person; remove one, or give both names "
                "that differ"
            )


def _check_unlabelled(
    person_of_file: Mapping[Path, str], root: Path, location: str, remedy: str
) -> None:
    """Refuse files without labels whose names tell of several files of one person."""
    files = list(person_of_file)
    in_names = _first_differing(
        [re.split(r"[_\-. ]+", person_of_file[file]) for file in files]
    )
    in_folders = _first_differing([_below(file, root).parts[:-1] for file in files])

    def without_runs(file: Path) -> str:
        """Name of a file without its run, session and direction."""
        return re.sub(OF_ONE_PERSON, "", person_of_file[file])

    def numbered(parts: Sequence[str]) -> Callable[[Path], str]:
        """First part in which names differ, if it may be a person's number."""
        of = dict(zip(files, parts, strict=True))
        return lambda file: of[file] if re.search(r"\d", of[file]) else str(file)

    beginnings = numbered(in_names), numbered(in_folders)
    for reading in (person_of_file.__getitem__, without_runs, *beginnings):
        _check_same(files, _path, reading, location, remedy, root)


def _first_differing(parts: Sequence[Sequence[str]]) -> list[str]:
    """First part of each list that is not the same in all."""
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
    location: str,
    remedy: str,
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
    examples = " and ".join(Path(name).name for name in merged[:2])
    if root is not None and len({Path(name).name for name in merged}) == 1:
        paths = [_below(Path(name), root) for name in (merged[0], merged[-1])]
        examples = " and ".join(map(str, paths))
        remedy = f"{SAY}{_folder_of_person(*paths)!r}"
    raise ConfigError(
        f"{location}: {len(files)} files may be of {n_people} people or of "
        f"{len(several)}: are {examples} the same person? "
        f"{remedy[0].upper()}{remedy[1:]}"
    )


def _folder_of_person(first: Path, second: Path) -> str:
    """Pattern that takes the folder by which two paths differ first for the person."""
    pairs = zip(first.parts, second.parts, strict=False)
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return "/".join([*(part for part, _ in common), "{person}", "*"])
