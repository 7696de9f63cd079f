"""How a table is written in its file: its letters, separators, quotes and lines.

Spreadsheets and programs write tables in many ways. Each is told from the file itself;
where two readings fit, or a row fits none, the file is refused with the line.
"""

import csv
import gzip
import re
import unicodedata
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from capeneuro.config.errors import ConfigError
from capeneuro.data.door import check_file, is_compressed

SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
# Beginnings of files that hold tables in a way of their own.
BINARY = {
    b"PK\x03\x04": "a spreadsheet or an archive",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet",
    b"$FL": "a file of SPSS",
    b"PAR1": "a file of Parquet",
}
MINUS = "\u2212"
UTF16 = b"\xff\xfe", b"\xfe\xff"
# Lines that a separator is tried on.
TRIED = 1000
# What Excel writes before a table, and takes its separator from.
EXCEL_LINE = re.compile(r"sep=(.)")


class TableText(NamedTuple):
    """The text of a table, and how it is divided into cells."""

    lines: list[str]
    """Header and rows, without what is blank at their ends."""
    header: list[str]
    """Names of columns; empty where a column has none."""
    separator: str
    quoting: int
    """Of :mod:`csv`: none in files of tabs, unless their header is quoted."""


def read_table_text(path: Path, comment: str = "") -> TableText:
    """Read a text file as header and rows, from any program.

    Parameters
    ----------
    path
        File of tabs, commas or semicolons, of UTF-8, UTF-16 or Windows' Western
        letters; may be compressed (gzip).
    comment
        What begins a comment; empty: there are none.

    Raises
    ------
    ConfigError
        If it is missing or no text, its separator is not sure, or a row has more cells
        than the header or a quote that does not end on its line.
    """
    lines = lines_of(decoded(path))
    separator = ""
    if first := EXCEL_LINE.fullmatch(lines[0].strip('"')):
        separator, lines[0] = first[1], ""
    if comment:
        lines = [line.split(comment)[0].rstrip(" ") for line in lines]
    while lines and not lines[-1].strip("\t,; "):
        lines.pop()
    start = next((i for i, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise ConfigError(f"{path}: has no header; give a table with one")
    separator = separator or _separator(path, lines[start:])
    is_quoted = separator != "\t" or lines[start].startswith('"')
    quoting = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
    header = [name.strip() for name in _cells(path, lines, start, separator, quoting)]
    while len(header) > 1 and not header[-1]:
        header.pop()
    _fit_rows(path, lines, start, separator, quoting, len(header))
    return TableText(lines[start:], header, separator, quoting)


def decoded(path: Path) -> str:
    """The text of a file, of whichever letters.

    Raises
    ------
    ConfigError
        If it is missing, or no text.
    """
    check_file(path)
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if is_compressed(path) else raw
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "is compressed and damaged"
        raise ConfigError(f"{path}: {why}; copy it again") from None
    for start, kind in BINARY.items():
        if raw.startswith(start):
            raise ConfigError(
                f"{path}: must be a table in text, is {kind}; save it as .tsv or .csv"
            )
    try:
        text = raw.decode("utf-16" if raw.startswith(UTF16) else "utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    text = _as_seen(text)
    if "\0" in text:
        raise ConfigError(
            f"{path}: not a table in UTF-8; save it as .tsv or .csv in UTF-8"
        )
    return text


def lines_of(text: str) -> list[str]:
    """Lines of a text of any system, at their line ends alone."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _as_seen(text: str) -> str:
    """A text without signs that nobody sees, and with plain blanks and minus signs."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    odd = {sign for sign in set(text) if unicodedata.category(sign) in ("Cf", "Zs")}
    return text.translate(
        str.maketrans(dict.fromkeys(odd, " "))
        | {ord(sign): None for sign in odd if unicodedata.category(sign) == "Cf"}
        | {ord(MINUS): "-"}
    )


def _separator(path: Path, lines: list[str]) -> str:
    """Separator of the header; of several, the one that fits all rows."""
    usual = "," if ".csv" in [s.lower() for s in path.suffixes] else "\t"
    header = re.sub('"[^"]*"', "", lines[0])
    candidates = [separator for separator in SEPARATORS if separator in header]
    if usual == "\t" in candidates or not candidates:
        return usual
    if len(candidates) > 1:
        few = [line for line in lines[:TRIED] if line.strip()]
        candidates = [
            separator for separator in candidates if _fits(few, separator)
        ] or candidates
    if len(candidates) > 1:
        named = " or ".join(SEPARATORS[separator] for separator in candidates)
        raise ConfigError(
            f"{path}: must be divided by one sign, its header may be by {named}; save "
            "it with tabs as .tsv"
        )
    return candidates[0]


def _fits(lines: list[str], separator: str) -> bool:
    """Whether all rows have as many cells as the header."""
    try:
        rows = list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return False
    return len({len(row) for row in rows}) == 1


def _cells(
    path: Path, lines: list[str], i: int, separator: str, quoting: int
) -> list[str]:
    """Cells of a line, whose quotes all end on it."""
    if quoting == csv.QUOTE_NONE or '"' not in lines[i]:
        return lines[i].split(separator)
    try:
        return next(csv.reader([lines[i]], delimiter=separator, strict=True))
    except csv.Error:
        raise ConfigError(
            f"{path}, line {i + 1}: a quote opens a cell that does not end with a "
            "quote on this line; take the quote, or the line break in the cell, out"
        ) from None


def _fit_rows(
    path: Path, lines: list[str], start: int, separator: str, quoting: int, width: int
) -> None:
    """Drop blank cells beyond the header, and refuse others."""
    for i in range(start, len(lines)):
        line = lines[i]
        has_quotes = quoting != csv.QUOTE_NONE and '"' in line
        if not has_quotes and line.count(separator) < width:
            continue
        cells = _cells(path, lines, i, separator, quoting)
        if any(cell.strip() for cell in cells[width:]):
            raise ConfigError(
                f"{path}, line {i + 1}: has {len(cells)} cells, the header {width}; "
                + (
                    f"take out what stands above the header: {lines[start]!r:.40}"
                    if width == 1
                    else "give each column a name, and take separators out of cells "
                    "(in R: row.names = FALSE)"
                )
            )
        if len(cells) > width:
            lines[i] = line.rstrip(f"{separator} ")


def unique(header: Iterable[str]) -> list[str]:
    """Names that differ: those without one, or with another's, are numbered."""
    names: dict[str, None] = {}
    for i, name in enumerate(header):
        again = not name or name in names
        names[f"{name} (column {i + 1})".strip() if again else name] = None
    return list(names)
