"""`capeneuro init --from`: covariates of a contrast, from the sites' tables of people.

Names of columns are shown, and those that the user names go into the study file.
"""

import re
import statistics
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from capeneuro.config.errors import ConfigError, some
from capeneuro.data.tables import open_texts

# Columns of tables of people that often tell groups.
GROUP = ("group", "diagnosis", "dx", "patient", "sex", "gender")
MISSING = {"", "n/a", "nan"}
# More values than these are no groups.
MOST_GROUPS = 4


class CovariatesText(NamedTuple):
    """Covariates as a study file has them."""

    lines: str
    """Of the block `contrast`, with the primary covariate."""
    decisions: list[str]
    """Decisions that only the user can make."""


def find_people(source: Path) -> Path | None:
    """Find the table of people in a site's folder of images, or above it."""
    places = [source, *source.resolve().parents[:2]]
    tables = (place / "participants.tsv" for place in places)
    return next((table for table in tables if table.is_file()), None)


def find_groups(tables: Sequence[Path]) -> dict[str, list[str]]:
    """Find columns that tell groups at every site, with the groups' names in order."""
    contents = [open_texts(table) for table in tables]
    columns = contents[0].columns if contents else ()
    named = [c for c in columns if c.lower() in GROUP and all(c in t for t in contents)]
    groups = {column: sorted({*_cells(contents, column)}) for column in named}
    return {c: values for c, values in groups.items() if _are_groups(values)}


def covariates_text(
    tables: Sequence[Path | None], data: str, columns: Sequence[str] = ()
) -> CovariatesText:
    """Write covariates, with values where the data are not private.

    Parameters
    ----------
    tables
        Of people, one a site; None: the site has none.
    data
        The data are private, public or simulated.
    columns
        Columns that the user chose, the primary one first; none: those that often tell
        groups.

    Raises
    ------
    ConfigError
        If a site's table lacks a column; with those that it has.
    """
    present = [table for table in tables if table is not None]
    if columns:
        return _of_columns(present, len(tables), data, columns)
    groups = find_groups(present) if len(present) == len(tables) else {}
    # Privacy: values of private tables go into no file; the protocol says them.
    stated = {} if data == "private" else groups
    lines = [f"    {_scalar(c)}: {_groups(g)}" for c, g in stated.items()]
    if not lines:
        lines = ["    # DECIDE: yours.", "    patient: {groups: [0, 1]}"]
    lines = ["  covariates:", *lines, "    # age: {mean: 40, deviation: 12}"]
    decisions = [] if stated else [_decision(groups, present)]
    return CovariatesText("\n".join(lines), decisions)


def _of_columns(
    tables: Sequence[Path], n_sites: int, data: str, columns: Sequence[str]
) -> CovariatesText:
    """Write the covariates that the user named."""
    if len(tables) < n_sites:
        raise ConfigError(
            f"--covariates: only {len(tables)} of {n_sites} sites have the table that "
            "columns are of, participants.tsv in the folder of --from or above it"
        )
    contents = [open_texts(table) for table in tables]
    for table, content in zip(tables, contents, strict=True):
        if lacking := [column for column in columns if column not in content]:
            raise ConfigError(
                f"--covariates: {table}: lacks {some(lacking)}; it has "
                f"{some(content.columns)}"
            )
    lines, open_columns = ["  covariates:"], []
    for column in columns:
        # Privacy: of private people the file gets the names of columns alone.
        values = "" if data == "private" else _options(_cells(contents, column))
        if not values:
            open_columns.append(column)
        text = values or "{}  # DECIDE: groups: [A, B], or mean: 40, deviation: 12"
        lines.append(f"    {_scalar(column)}: {text}")
    lines += [
        "  # Its effects have the verdicts; null: all are alike.",
        f"  primary: {_scalar(columns[0])}",
    ]
    decision = (
        f"write the groups, or the published mean and deviation, of "
        f"{some(open_columns)} into contrast.covariates of the study file, as the "
        "protocol says them"
    )
    return CovariatesText("\n".join(lines), [decision] if open_columns else [])


def _cells(contents: Sequence[Any], column: str) -> list[str]:
    """Cells of a column at all sites, without missing ones."""
    cells = chain.from_iterable(content[column] for content in contents)
    return [cell for cell in cells if cell not in MISSING]


def _are_groups(values: Sequence[str]) -> bool:
    return 2 <= len(values) <= MOST_GROUPS


def _groups(values: Sequence[str]) -> str:
    return f"{{groups: [{', '.join(map(_scalar, values))}]}}"


def _scalar(text: str) -> str:
    """A cell as YAML has it: a number, or a word, in quotes where it needs them."""
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return text
    return yaml.safe_dump(text, width=1000).splitlines()[0]


def _options(cells: Sequence[str]) -> str:
    """Groups, or mean and deviation of a number; empty: cells are neither."""
    if _are_groups(values := sorted({*cells})):
        return _groups(values)
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return ""
    if len(values) < 2:
        return ""
    mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
    return f"{{mean: {mean:.2g}, deviation: {deviation:.2g}}}"


def _decision(groups: dict[str, list[str]], tables: Sequence[Path]) -> str:
    """Decision on covariates that nobody named."""
    if not tables:
        return (
            "write `people`, the table with everybody's participant_id and group, into "
            "the site files, and contrast.covariates into the study file"
        )
    line = f"write contrast.covariates into the study file; {tables[0]} has "
    line += some(open_texts(tables[0]).columns)
    if groups:
        line += ", with groups that the protocol has to state: "
        line += "; ".join(f"{c} {', '.join(g)}" for c, g in groups.items())
    return line
