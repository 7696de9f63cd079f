"""Public atlases of the brain's networks, each with its source, licence and checksum.

    >>> import capeneuro_atlases
    >>> capeneuro_atlases.path("yeo7")  # doctest: +SKIP
    PosixPath('.../capeneuro_atlases/data/yeo2011_7_2mm.nii.gz')

Nothing is downloaded. What each file is, who made it and under which licence it may be
passed on is in ``atlases.tsv``; ``noncommercial`` marks those that may not be used for
profit. Other packages find it by the entry point ``path`` of the group
``capeneuro.atlases``.
"""

import csv
import difflib
import hashlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
DATA = FOLDER / "data"


class Atlas(NamedTuple):
    """A row of the table."""

    name: str
    kind: str
    """``parcels``, an image of whole numbers, or ``table``, of networks alone."""
    n: int
    """Parcels, or rows of the table."""
    space: str
    file: str
    sha256: str
    labels: str
    """Table of the parcels' names and networks."""
    labels_sha256: str
    licence: str
    noncommercial: bool
    source: str
    citation: str


def atlases() -> dict[str, Atlas]:
    """Every atlas of the table by its name, whether or not this build has its files."""
    with (FOLDER / "atlases.tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {
            row["name"]: Atlas(
                **row
                | {"n": int(row["n"]), "noncommercial": row["noncommercial"] == "yes"}
            )
            for row in rows
        }


def path(name: str) -> Path:
    """File of an atlas.

    Raises
    ------
    ValueError
        If no atlas has this name, or this build was made without it.
    """
    return _file(atlas(name).file, name)


def labels(name: str) -> Path:
    """Table of an atlas' parcels: ``index``, ``name``, and mostly their network."""
    return _file(atlas(name).labels, name)


def atlas(name: str) -> Atlas:
    """Row of an atlas; refuses a name that none has."""
    known = atlases()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.4) or sorted(known)
        raise ValueError(
            f"atlas: no atlas is called {name!r}; there is {', '.join(near)}"
        )
    return known[name]


def altered() -> list[str]:
    """Files of this build that are not those of the table, by their checksums."""
    rows = atlases().values()
    sums = {row.file: row.sha256 for row in rows}
    sums |= {row.labels: row.labels_sha256 for row in rows}
    return [
        name
        for name, expected in sums.items()
        if (DATA / name).is_file() and sha256(DATA / name) != expected
    ]


def sha256(file: Path) -> str:
    """Checksum of a file, hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _file(file_name: str, name: str) -> Path:
    if not (DATA / file_name).is_file():
        raise ValueError(
            f"atlas: {name!r} is not in this build, which has no {file_name}; install "
            "one that has it"
        )
    return DATA / file_name
