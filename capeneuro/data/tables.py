"""Tables opened, and one person's features of one image."""

import difflib
import re
import warnings
from collections.abc import Iterable
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import MOST_NAMES, ConfigError, repeated, some
from capeneuro.config.site import SiteConfig
from capeneuro.data.inventory import Inventory, people_in, search, take, walk
from capeneuro.data.table_text import decoded, lines_of, read_table_text, unique


def maps_in_folder(site: SiteConfig, *, is_whole: bool = True) -> Inventory:
    """Find a site's 3-D images, one a person, and the people that are left out.

    Raises
    ------
    ConfigError
        If there are none, or two of one person.
    """
    task = f"_task-{site.task}(_.*)?" if site.task else ".*"
    names = re.compile(rf"(?i)sub-.*{task}_[^_]*statmap\.nii(\.gz)?")
    root = Path(site.folder)
    if root.is_dir():
        files = [
            file
            for folder_or_files in people_in(root)
            for file in walk(folder_or_files)
        ]
        files = sorted(file for file in files if names.fullmatch(file.name))
    else:
        files, root = search(site.folder)
    if not files:
        raise ConfigError(
            f"site {site.name}: images: no maps found at {site.folder!r}; put the data "
            "there (in a BIDS folder *_statmap.nii.gz) or change `images`"
        )
    maps = take(site, files, root, "images", is_whole=is_whole)
    if several := next(
        (
            folder_or_files
            for folder_or_files in maps.people.values()
            if len(folder_or_files) > 1
        ),
        None,
    ):
        raise ConfigError(
            f"site {site.name}: images: {several[0]} and {several[1]} are of one "
            "person; give a pattern that takes one of them, or `task`"
        )
    return maps


def open_table(path: Path, comment: str = "", **options: Any) -> Any:
    """Read a table from any program; names of people are texts.

    Parameters
    ----------
    path
        The file: of tabs (no quotes, as in BIDS), commas or semicolons.
    comment
        What begins a comment; empty: there are none.
    options
        More for :func:`pandas.read_csv`.

    Returns
    -------
    pandas.DataFrame
        A row for each line. Columns of which there are several, and blank ones, are
        numbered; see :func:`check_columns`.

    Raises
    ------
    ConfigError
        If the file is missing or no table, see :func:`.read_table_text`.
    """
    import pandas as pd

    text = read_table_text(path, comment)
    options = {"dtype": {"participant_id": str}, "index_col": False, **options}
    form = {"sep": text.separator, "quoting": text.quoting, "header": 0}
    try:
        with warnings.catch_warnings():
            # Rows longer than the header would shift everybody's columns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # Of bytes: StringIO takes four for each letter.
            content = BytesIO("\n".join(text.lines).encode())
            table = pd.read_csv(content, names=unique(text.header), **form, **options)
    except (ValueError, pd.errors.ParserWarning):
        raise ConfigError(f"{path}: not a table; give a .tsv or .csv file") from None
    table.attrs["repeated"] = repeated(filter(None, text.header))
    return table


def open_texts(path: Path, comment: str = "") -> Any:
    """Read a table whose cells are all texts, without blanks around.

    Parameters
    ----------
    path, comment
        As of :func:`open_table`.

    Returns
    -------
    pandas.DataFrame
        Of texts; empty where a cell is.
    """
    table = open_table(path, comment, dtype=str, keep_default_na=False).fillna("")
    for name in table:
        table[name] = table[name].str.strip()
    return table


def as_whole_number(cell: str) -> str:
    """A whole number as text, however it was written: `01` and `1.0` are `1`."""
    return re.sub(r"^0+(?=\d)|\.0*$", "", cell)


def check_columns(path: Path, table: Any, names: Iterable[str], remedy: str) -> None:
    """Refuse a table that lacks columns, or has one of them twice.

    Raises
    ------
    ConfigError
        With the columns that it has.
    """
    names = list(names)
    if lacking := [name for name in names if name not in table]:
        header = list(map(str, table))
        name_by_case = {name.casefold(): name for name in header}
        # Of many names that lack some are compared, and each suggestion is named once.
        matches = (
            difflib.get_close_matches(name.casefold(), name_by_case, 1, 0.8)
            for name in lacking[:MOST_NAMES]
        )
        near = dict.fromkeys(name_by_case[match] for match in chain(*matches))
        hint = f"; did you mean {some(near)}?" if near else ""
        if len(header) == 1 and len(header[0].split()) > 1:
            hint = "; divide columns by tabs, not by blanks"
        raise ConfigError(
            f"{path}: lacks the columns {some(lacking)}; it has "
            f"{some(header)}{hint or (remedy and f'; {remedy}')}"
        )
    if twice := [name for name in table.attrs["repeated"] if name in names]:
        raise ConfigError(
            f"{path}: must have each column once, has {some(twice)} again; rename or "
            "remove one of them"
        )


def column_names(path: Path) -> list[str]:
    """Names of a table's features."""
    lines = lines_of(decoded(path))
    names = [name.strip() for name in lines if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{path}: must name columns, one a line, each once, got "
            f"{len(names)} lines with {len(set(names))} names"
        )
    return names


def constant_features(ranges: np.ndarray, names: list[str]) -> str:
    """Say which features are the same for everybody at a site; empty: none.

    Parameters
    ----------
    ranges
        Largest minus smallest value of each feature, (D,).
    names
        Of the D features.
    """
    constant = [name for name, r in zip(names, ranges, strict=True) if r == 0]
    if not constant:
        return ""
    return (
        f"features must vary between people, {len(constant)} of {len(names)} do not: "
        f"{some(constant)}; leave them out, mend their bounds, or use a tighter mask "
        "or a coarser basis"
    )
