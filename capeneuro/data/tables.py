"""One person's features: a row of a table, or what a basis keeps of an image."""

import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.sections import Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import nifti
from capeneuro.data.basis import Basis
from capeneuro.data.door import check_file
from capeneuro.data.inventory import Inventory, search, take, walk
from capeneuro.data.people import PERSON


def find_maps(site: SiteConfig) -> dict[str, Path]:
    """Find a site's 3-D images, one of each person; as :func:`inventory_of_maps`."""
    return {name: own[0] for name, own in inventory_of_maps(site).people.items()}


def inventory_of_maps(site: SiteConfig, *, is_whole: bool = True) -> Inventory:
    """Find a site's 3-D images, one of each person, and who is left out.

    Raises
    ------
    ConfigError
        If there are none, or two of one person.
    """
    task = f"_task-{site.task}(_.*)?" if site.task else ".*"
    names = re.compile(rf"(?i)sub-.*{task}_[^_]*statmap\.nii(\.gz)?")
    root = Path(site.folder)
    if root.is_dir():
        people = root.glob("[sS][uU][bB]-*")
        files = [file for own in people for file in walk(own)]
        files = sorted(file for file in files if names.fullmatch(file.name))
    else:
        files, root = search(site.folder)
    if not files:
        raise ConfigError(
            f"site {site.name}: images: no maps found at {site.folder!r}; put the data "
            "there (in a BIDS folder *_statmap.nii.gz) or change `images`"
        )
    maps = take(site, files, root, "images", is_whole=is_whole)
    if several := next((own for own in maps.people.values() if len(own) > 1), None):
        raise ConfigError(
            f"site {site.name}: images: {several[0]} and {several[1]} are of one "
            "person; give a pattern that takes one of them, or `task`"
        )
    return maps


def open_table(path: Path, **options: Any) -> Any:
    """Read a table, of commas if .csv, else of tabs; names of people are texts.

    Parameters
    ----------
    path
        The file.
    options
        More for :func:`pandas.read_csv`.

    Raises
    ------
    ConfigError
        If the file is missing or no table.
    """
    import pandas as pd

    check_file(path)
    options = {"dtype": {"participant_id": str}, "index_col": False, **options}
    try:
        with warnings.catch_warnings():
            # Rows longer than the header would shift everybody's columns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            sep = "," if ".csv" in path.suffixes else "\t"
            return pd.read_csv(path, sep=sep, **options)
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        why = getattr(error, "strerror", None) or "not a table"
        raise ConfigError(f"{path}: {why}; give a .tsv or .csv file") from None


def read_rows(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Read a table: features of each person."""
    import pandas as pd

    table = open_table(path)
    if missing := [c for c in ("participant_id", *names) if c not in table]:
        raise ConfigError(
            f"{path}: lacks {len(missing)} columns: {some(missing)}; it has "
            f"{some(table)}"
        )
    people = table["participant_id"].fillna("").str.strip().tolist()
    odd = [i for i, person in enumerate(people) if not re.fullmatch(PERSON, person)]
    if odd:
        raise ConfigError(
            f"{path}: participant_id must be a name of up to 100 letters and signs "
            f"without blanks, row {odd[0] + 2} has {people[odd[0]]!r:.40}"
        )
    if twice := {p for p, n in Counter(people).items() if n > 1}:
        raise ConfigError(
            f"{path}: must have a row for each person, twice: {some(sorted(twice))}"
        )
    numbers = table[names].apply(pd.to_numeric, errors="coerce")
    are_text = (numbers.isna() & table[names].notna()).any()
    if are_text.any():
        raise ConfigError(
            f"{path}: features must be numbers, text stands in "
            f"{some(are_text.index[are_text])}; two groups are two numbers"
        )
    with np.errstate(over="ignore"):  # too large is not finite, below
        rows = numbers.to_numpy(np.float32)
    finite = np.isfinite(rows)
    if not finite.all():
        columns = [n for n, ok in zip(names, finite.all(axis=0), strict=True) if not ok]
        bad = [p for p, ok in zip(people, finite.all(axis=1), strict=True) if not ok]
        raise ConfigError(
            f"{path}: features must be finite numbers, those of {some(bad)} in "
            f"{some(columns)} are not; fill them in or remove the rows"
        )
    return dict(zip(people, rows, strict=True))


def map_features(
    path: Path, space: Space, standardize: str, mask: Any, basis: Basis
) -> np.ndarray:
    """Features of one image, (D_x,)."""
    image = nifti.on_grid(nifti.open_image(path, 3), mask, space.resample)
    v = nifti.read_data(image)[np.asarray(mask.dataobj) > 0]
    if bad := int((~np.isfinite(v)).sum()):
        raise ConfigError(
            f"{path}: voxels must be finite, {bad} in the mask hold NaN or Inf; use a "
            "tighter mask or mend it"
        )
    if standardize == "zscore":
        deviation = v.std(dtype=np.float64)
        if deviation == 0:
            raise ConfigError(f"{path}: constant over the mask; exclude the person")
        v = (v - v.mean(dtype=np.float64)) / deviation
    return basis.analysis @ v.astype(np.float32)


def column_names(path: Path) -> list[str]:
    """Names of a table's features."""
    try:
        names = path.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"{path}: {why}; check the path") from None
    names = [name.strip() for name in names if name.strip()]
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
