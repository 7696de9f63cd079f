"""Tables of people: who has a row, what it says of them, and which file is theirs."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.names import label, plain, stated, tidy
from capeneuro.config.sections import BOOLEANS, MISSING
from capeneuro.config.site import ImageTable, SiteConfig
from capeneuro.data.door import check_file
from capeneuro.data.inventory import Inventory, check_once, reasons_not_to_take
from capeneuro.data.people import PERSON, by_person, check_names
from capeneuro.data.tables import check_columns, maps_in_folder, open_table

ID = "participant_id"
# What a spreadsheet calls rows that sum up the others.
SUMMARIES = ("average", "mean", "median", "sd", "std", "sum", "total")
NAMES_PEOPLE = "call the column with the names of people, as files have them, "
NAMES_PEOPLE += "participant_id"
# What spreadsheets make of labels such as 1-2 and 12E5.
MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
SPOILT = re.compile(
    rf"\d+-(?:{MONTHS})|(?:{MONTHS})-\d+|\d+(?:[.,]\d+)?e\+\d+", re.IGNORECASE
)
# Numbers by which tables say that a value is missing; -9 where none can be negative.
CODES = (-99, -999, -9999, -99999, 999, 9999, 99999)
CODE_OF_COUNTS = -9
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
REMOVE_ROW = "remove the row of {}"
NO_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def leave_out(site: SiteConfig, person: str) -> str:
    """Remedy that leaves a person out."""
    return f"leave the person out, {site.leaving_out([person])}"


# --- files that a table names ---------------------------------------------------------


def inventory_of_maps(site: SiteConfig, *, is_whole: bool = True) -> Inventory:
    """Find a site's 3-D images, one of each person: those that its table names, if any.

    Raises
    ------
    ConfigError
        If there are none, or two of one person, or one of two people.
    """
    if not isinstance(site.images, ImageTable):
        return maps_in_folder(site, is_whole=is_whole)
    listed, table = site.images, _open(site.images.table, site.images.column)
    people = person_names(listed.table, table, listed.column)
    check_names(people, str(listed.table))
    folder = listed.folder or listed.table.parent
    names = table[listed.column].fillna("").str.strip().tolist()
    _check_owners(listed, dict(zip(people, names, strict=True)))
    location = f"site {site.name}: images"
    absent = reasons_not_to_take(site, people, location, is_whole=is_whole)
    files = {
        person: _as_spelled(folder, name)
        for person, name in zip(people, names, strict=True)
        if not absent[person]
    }
    if lacking := [person for person, file in files.items() if file == folder]:
        raise ConfigError(
            f"{listed.table}: {listed.column}: must name the file of each person, is "
            f"empty for {some(lacking)}; {leave_out(site, lacking[0])}"
        )
    times = Counter(file.resolve() for file in files.values())
    if twice := [file.name for file in files.values() if times[file.resolve()] > 1]:
        raise ConfigError(
            f"{listed.table}: {listed.column}: must name each file once, "
            f"{some(twice)} are one file; give each person a file"
        )
    remedy = f"files of {listed.column} start from images.folder of the site file"
    check_all(partial(check_file, path, remedy) for path in files.values())
    if not files:
        raise ConfigError(f"{listed.table}: must have rows of people, got none")
    files_by_person = {person: [file] for person, file in files.items()}
    check_once(files_by_person, folder, location)
    return Inventory(
        files_by_person, {}, frozenset(people) - frozenset(files_by_person)
    )


def _as_spelled(folder: Path, name: str) -> Path:
    """A file that a table names, however its file system codes letters with accents."""
    forms = [folder / unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    return next((path for path in forms if path.exists()), folder / name)


def _check_owners(listed: ImageTable, files: Mapping[str, str]) -> None:
    """Refuse a file that is called after the person of another row.

    Parameters
    ----------
    listed
        The table.
    files
        Name of the file of each person in it.
    """
    people = {plain(person): person for person in files}
    for person, name in files.items():
        owner = people.get(plain(stated(Path(name)) or person))
        if owner not in (None, person):
            raise ConfigError(
                f"{listed.table}: {listed.column}: must name each person's own file, "
                f"{name} is of {owner} by its name and of {person} by its row; mend "
                "the row, or rename the file"
            )


# --- rows -----------------------------------------------------------------------------


def _open(path: Path, *texts: str) -> Any:
    """Open a table of people, without blank rows; some of its columns are texts."""
    if not path.is_file():
        return _opened(path, 0, 0, texts)
    status = path.stat()
    return _opened(path.absolute(), status.st_mtime_ns, status.st_size, texts)


@lru_cache(maxsize=1)  # names, features and covariates are read one after the other
def _opened(path: Path, time: int, size: int, texts: tuple[str, ...]) -> Any:
    """Open a table as it was written at a time; callers change nothing in it."""
    table = open_table(path, dtype=dict.fromkeys((ID, *texts), str))
    return table.dropna(how="all")


def person_names(path: Path, table: Any, file_column: str = "") -> list[str]:
    """Names of the people of a table, one a row.

    Parameters
    ----------
    path, table
        A table of people, as opened.
    file_column
        Where it has no `participant_id` people are called by their files, whose names
        are in this column; empty: it must have one.

    Raises
    ------
    ConfigError
        If a row has no name, or two have the same, with or without `sub-`.
    """
    column = ID if ID in table or not file_column else file_column
    check_columns(path, table, [column, *filter(None, [file_column])], NAMES_PEOPLE)
    cells = table[column].fillna("").map(tidy).tolist()
    if column == ID:
        people = [re.sub("^(?i:sub)-", "sub-", cell) for cell in cells]
    else:
        files = [Path(cell) for cell in cells if cell]
        by_name = by_person(files, Path(), str(path), remedy=f"give it a column {ID}")
        person_of_file = {
            file: person for person, files in by_name.items() for file in files
        }
        people = [person_of_file.get(Path(cell), "") for cell in cells]
    odd = [
        i for i, person in enumerate(people) if not re.fullmatch(PERSON, label(person))
    ]
    if odd:
        raise ConfigError(
            f"{path}: {column} must be a name of up to 100 letters and signs "
            f"without blanks, row {odd[0] + 2} has {people[odd[0]]!r:.40}; mend it, or "
            "take the row out"
        )
    if sums := [person for person in people if person.casefold() in SUMMARIES]:
        raise ConfigError(
            f"{path}: {column} must name people, {some(sums)} sums up others; take "
            "that row out"
        )
    times = Counter(map(label, people))
    if twice := sorted({p for p in people if times[label(p)] > 1}):
        raise ConfigError(
            f"{path}: must have a row for each person, twice: {some(twice)}; keep one, "
            "or none where no person of the study is called so"
        )
    return people


def read_rows(
    path: Path,
    names: Sequence[str],
    words: Mapping[str, tuple[str, ...]] = NO_WORDS,
    file_column: str = "",
    people: Collection[str] | None = None,
    remedy: Callable[[str], str] = REMOVE_ROW.format,
) -> dict[str, np.ndarray]:
    """Read a table of people: numbers of each person, in the order of the columns.

    Parameters
    ----------
    path
        The file, as of :func:`.open_table`, with `participant_id`.
    names
        Columns that are read.
    words
        Of columns whose values are words: these, which become 0, 1, and so on.
    file_column
        As of :func:`person_names`.
    people
        Whose rows are read, named as their files are; None: all.
    remedy
        Of a person's name: what to do so that the person does not take part.

    Returns
    -------
    dict
        By person, a row of float32, shape (len(names),).

    Raises
    ------
    ConfigError
        If a column, a person's row or a value is missing, or is no finite number, or
        none of the words.
    """
    table = _open(path, *words, *filter(None, [file_column]))
    ids = person_names(path, table, file_column)
    check_columns(path, table, names, "name it as the study file does")
    if people is None:
        people = ids
    else:
        rows = match(path, people, ids)
        _check_rows(path, people, ids, rows, remedy)
        places = {name: i for i, name in enumerate(ids)}
        table = table.iloc[[places[rows[person]] for person in people]]
        people = list(people)
    columns = [
        _coded(path, table[name], words[name], people)
        if name in words
        else _numbers(table[name])
        for name in names
    ]
    values = np.stack(columns, axis=1) if columns else np.zeros((len(people), 0))
    _check_numbers(path, table[list(names)], values, people, remedy)
    return dict(zip(people, values.astype(np.float32), strict=True))


def _numbers(column: Any) -> np.ndarray:
    """Numbers of a column; NaN where there is none. Booleans are no numbers."""
    import pandas as pd

    is_number = column.dtype.kind in "iuf"
    if not is_number:
        column = pd.to_numeric(column.astype(str), errors="coerce")
    return column.to_numpy(float)


def _coded(
    path: Path, column: Any, words: tuple[str, ...], people: Sequence[str]
) -> np.ndarray:
    """Places of a column's words among those of the study; NaN where one is missing."""
    place_of_word = {word: float(i) for i, word in enumerate(words)}
    booleans = {w.casefold(): i for w, i in place_of_word.items()}
    booleans = {w: i for w, i in booleans.items() if w in BOOLEANS.values()}
    cells = column.fillna("").str.strip()
    places = [
        place_of_word.get(cell, booleans.get(cell.casefold(), np.nan)) for cell in cells
    ]
    for cell, place, person in zip(cells, places, people, strict=True):
        if place != place and cell.casefold() not in MISSING:
            raise ConfigError(
                f"{path}: {column.name} must be one of {', '.join(words)}, the words "
                f"of the study file, is {cell!r:.40} for {person}; mend it"
            )
    return np.array(places)


def _check_numbers(
    path: Path,
    cells: Any,
    values: np.ndarray,
    people: Sequence[str],
    remedy: Callable[[str], str],
) -> None:
    """Refuse texts among numbers, and values that are missing or infinite."""
    with np.errstate(over="ignore"):  # too large is not finite
        odd = ~np.isfinite(values.astype(np.float32))
    if not odd.any():
        return
    names = list(cells)
    is_text = odd & np.isnan(values) & cells.notna().to_numpy()
    if is_text.any():
        columns = [n for n, has in zip(names, is_text.any(axis=0), strict=True) if has]
        i, j = np.argwhere(is_text)[0]
        cell = str(cells.iloc[i, j])
        raise ConfigError(
            f"{path}: must be numbers, text stands in {some(columns)}: {cell!r:.40} of "
            f"{people[i]} in {names[j]}; {_as_number(cell)}"
        )
    columns = [n for n, has in zip(names, odd.any(axis=0), strict=True) if has]
    concerned = [p for p, has in zip(people, odd.any(axis=1), strict=True) if has]
    kind = "missing" if np.isnan(values[odd]).all() else "missing or not finite"
    raise ConfigError(
        f"{path}: must be finite numbers, {some(columns)} of {some(concerned)} "
        f"{'is' if odd.sum() == 1 else 'are'} {kind}; fill in by a public rule, or "
        f"{remedy(concerned[0])}"
    )


def _as_number(cell: str) -> str:
    """Remedy for a cell that is no number."""
    if THOUSANDS.fullmatch(cell):
        point, without_commas = cell.replace(",", "."), cell.replace(",", "")
        return f"write {point} or {without_commas}, whichever is meant"
    if DECIMAL_COMMA.fullmatch(cell):
        return f"write a point, {cell.replace(',', '.')}, and no sign for thousands"
    if DATE.fullmatch(cell):
        return "dates are no numbers: give years, or days from a public one"
    if cell.startswith("#"):
        return "a formula failed there: mend it, and save the table again"
    if cell.casefold() in BOOLEANS.values():
        return "name both as groups in the study file, [false, true]"
    if '"' in cell:
        return "take quotes out, which files of tabs do not have"
    if re.search(r"\d", cell):
        return "write it with a point, and no unit or sign for thousands"
    if not re.search(r"\w", cell):
        return "fill in what is missing, by a public rule"
    return "of groups name the words in the study file, as in [control, patient]"


# --- whose row ------------------------------------------------------------------------


def match(
    location: Path | str, people: Collection[str], ids: Collection[str]
) -> dict[str, str]:
    """Match rows to people: by name, or by a plain form that is unique.

    Parameters
    ----------
    location
        The table, for what is wrong.
    people
        Names by files, `sub-01`.
    ids
        Names in the table: `sub-01`, `01`, `1`, `1.0`, `SUB-01`.

    Returns
    -------
    dict
        By person the name of the row; without people who have none.

    Raises
    ------
    ConfigError
        If a name may be that of several people or rows.
    """
    by_label = {label(name): name for name in ids}
    rows = {p: by_label[label(p)] for p in people if label(p) in by_label}
    alike, called = _alike(ids), _alike(people)
    for person in people:
        candidates = alike[plain(person)]
        if not candidates or (person in rows and len(candidates) == 1):
            continue
        if len(candidates) > 1 or len(called[plain(person)]) > 1:
            raise ConfigError(
                f"{location}: {ID}: {some(candidates)} may be of "
                f"{some(called[plain(person)])}; "
                f"write names as in the names of files, {person}"
            )
        rows[person] = candidates[0]
    return rows


def _check_rows(
    path: Path,
    people: Collection[str],
    ids: Collection[str],
    rows: Mapping[str, str],
    remedy: Callable[[str], str],
) -> None:
    """Refuse a table that lacks rows of people."""
    if lacking := [person for person in people if person not in rows]:
        if pattern := _longer(lacking, ids):
            raise ConfigError(
                f"{path}: must have a row for each person of the site, calls people "
                f"without the ends that names of files have, {lacking[0]}; write into "
                f"the site file what of a path is the person, person: '{pattern}'"
            )
        raise ConfigError(
            f"{path}: must have a row for each person of the site, lacks "
            f"{some(lacking)}{_unlike(ids, rows.values())}; add them, or "
            f"{remedy(lacking[0])}"
        )


def _longer(people: Collection[str], ids: Collection[str]) -> str:
    """Pattern of paths where each person is an id of the table, and one same end."""
    ends = set()
    for person in people:
        begin = max(
            (name for name in ids if person.startswith(name)), key=len, default=""
        )
        ends.add(person.removeprefix(begin) if begin else "")
    end = ends.pop()
    return f"{{person}}{end}*" if not ends and end[:1] in ("_", "-", ".") else ""


def _alike(people: Iterable[str]) -> dict[str, list[str]]:
    """Names that may be one person's, by their common plain form."""
    alike = defaultdict(list)
    for person in people:
        alike[plain(person)].append(person)
    return alike


def _unlike(ids: Collection[str], used: Collection[str]) -> str:
    """Names of rows without a person; it may be a mistyped label."""
    unused_ids = [name for name in ids if name not in set(used)]
    if not unused_ids:
        return ""
    spoilt = [name for name in unused_ids if SPOILT.fullmatch(label(name))]
    if spoilt:
        return (
            f" (has {some(spoilt)}, which a spreadsheet made of labels: write them as "
            "text)"
        )
    return f" (has {some(unused_ids)}, after whom no file is named)"


def check_codes(
    path: Path,
    names: Sequence[str],
    rows: Mapping[str, np.ndarray],
    bounds: np.ndarray,
    remedy: Callable[[str], str],
) -> None:
    """Refuse codes of missing values among numbers, like -9999.

    Parameters
    ----------
    path, names
        A table and its columns.
    rows
        Of each person, shape (len(names),).
    bounds
        Public low and high of each column, shape (len(names), 2); a number within them
        is meant.
    remedy
        Of a person's name: what to do so that the person does not take part.

    Raises
    ------
    ConfigError
        If there is one.
    """
    if not rows or not len(names):
        return
    values = np.stack(list(rows.values()))
    beyond = (values < bounds[:, 0]) | (values > bounds[:, 1])
    is_code = np.isin(values, np.float32(CODES))
    is_code |= (values == CODE_OF_COUNTS) & (bounds[:, 0] >= 0)
    odd = np.argwhere(beyond & is_code)
    if len(odd):
        i, j = odd[0]
        person = list(rows)[i]
        raise ConfigError(
            f"{path}: {names[j]} of {person} is {values[i, j]:g}, beyond its public "
            "bounds, as missing values are written; fill it in by a public rule, or "
            f"{remedy(person)}"
        )


def unused(path: Path, people: Collection[str], file_column: str = "") -> list[str]:
    """People of a table without files.

    Parameters
    ----------
    path, file_column
        As of :func:`read_rows`.
    people
        Who takes part, named as their files are.
    """
    table = _open(path, *filter(None, [file_column]))
    ids = person_names(path, table, file_column)
    matched = set(match(path, people, ids).values())
    return [name for name in ids if name not in matched]
