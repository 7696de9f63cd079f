"""A run's table of confounds: its columns as numbers, and what nilearn takes of it."""

import csv
import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.names import label, name_of
from capeneuro.data.beside import check_one_table, confounds_file
from capeneuro.data.derivatives import entities
from capeneuro.data.door import check_file

DISPLACEMENT, DVARS = "framewise_displacement", "std_dvars"
# What a cell without a number says.
EMPTY = {"", "n/a", "na", "nan", "null", "none"}
# Columns of nilearn's strategies, and those of them that are many and seldom needed.
OF_STRATEGIES = (
    f"{DISPLACEMENT}|{DVARS}|trans_|rot_|csf|white_matter|global_signal|cosine|aroma|"
    "non_steady"
)
COMPONENTS = "comp_cor"
# Columns that fMRIPrep renamed in its version 1.2.
OLD = {"FramewiseDisplacement", "stdDVARS", "WhiteMatter", "GlobalSignal", "RotX"}
# Descriptions of series that were denoised before.
DENOISED = ("denoised", "smoothAROMA")
# Where a table lacks what is asked for.
REMEDIES = {
    "cleaning.confounds": "choose another cleaning.confounds",
    "cleaning.scrub": "std_dvars_threshold: null scrubs by displacement alone",
}


def read_table(run: Path, n_volumes: int, key: str) -> tuple[Path, dict[str, list]]:
    """Read a run's table of confounds as text.

    Parameters
    ----------
    run
        The image.
    n_volumes
        How many volumes it has.
    key
        Of the study file: what asks for the table.

    Returns
    -------
    path
        Where the table is.
    columns
        Cells of each column, (n_volumes,).

    Raises
    ------
    ConfigError
        If there is no table, if several fit, if it is no table of tabs with a header,
        or has another number of rows than the run has volumes.
    """
    check_one_table(run, f"drop {key}")
    path = check_file(confounds_file(run))
    try:
        text = path.read_text("utf-8-sig")
        lines = list(csv.reader(text.splitlines(), delimiter="\t"))
        if "\0" in text:
            raise csv.Error
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError(
            f"{path}: must be a table as text in UTF-8; save it again as .tsv"
        ) from None
    header = [name.strip() for name in lines[0]] if lines else []
    if not any(header):
        raise ConfigError(f"{path}: is empty; copy or make it again")
    if len(header) == 1 and (sign := re.search("[,;]", header[0])):
        raise ConfigError(
            f"{path}: columns must be separated by tabs, the header has {sign[0]!r}; "
            "save it again as .tsv"
        )
    if all(_number(name) is not None for name in header):
        raise ConfigError(
            f"{path}: must have a header, its first line holds numbers ({header[0]}); "
            "confounds of an fMRIPrep before 1.2 are not read"
        )
    if names := repeated(filter(None, header)):
        raise ConfigError(
            f"{path}: columns must be called differently, {some(names)} is there "
            "twice; keep one"
        )
    rows = []
    for line, row in enumerate(lines[1:], 2):
        if (len(row) < len(header) and row) or any(row[len(header) :]):
            raise ConfigError(
                f"{path}: line {line} has {len(row)} columns and the header "
                f"{len(header)}; copy or make it again"
            )
        if row:
            rows.append(row[: len(header)])
    if len(rows) != n_volumes:
        raise ConfigError(
            f"{path}: must have a row per volume, got {len(rows)} for {n_volumes}; "
            "is it of another run?"
        )
    return path, dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def read_columns(
    run: Path, names: list[str], n_volumes: int, key: str, n_first: int = 0
) -> np.ndarray:
    """Read some columns of a run's table as numbers.

    Parameters
    ----------
    run, n_volumes, key
        As of :func:`read_table`.
    names
        Of columns.
    n_first
        Volumes at the beginning that are left out, where numbers may lack.

    Returns
    -------
    numpy.ndarray
        (n_volumes, n_names): NaN at the beginning alone, in the first volume (which has
        no difference to one before) or those that are left out.

    Raises
    ------
    ConfigError
        If a column is missing, or says anything but finite numbers elsewhere.
    """
    path, columns = read_table(run, n_volumes, key)
    if missing := [name for name in names if name not in columns]:
        raise ConfigError(f"{path}: {_lacks(missing[0], columns, key)}")
    values = [_numbers(path, name, columns[name], n_first) for name in names]
    return np.column_stack(values)


def steady(run: Path, n_volumes: int, key: str, n_first: int = 0) -> np.ndarray:
    """Indices of volumes that fMRIPrep does not call non-steady; all as above."""
    path, columns = read_table(run, n_volumes, key)
    names = [name for name in columns if "non_steady_state" in name]
    marks = [_numbers(path, name, columns[name], n_first) for name in names]
    return np.flatnonzero(~np.any([np.zeros(n_volumes), *marks], axis=0))


def filled(values: np.ndarray) -> np.ndarray:
    """Give volumes without a number that of the next one that has one, as nilearn.

    Parameters
    ----------
    values
        (n_volumes, n_columns): NaN at the beginning alone.

    Returns
    -------
    numpy.ndarray
        Of the same shape, without NaN.
    """
    import pandas as pd

    return pd.DataFrame(values).bfill().to_numpy()


def by_nilearn(
    run: Path,
    strategy: str,
    n_volumes: int,
    key: str,
    n_first: int,
    **nilearn_options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Have nilearn choose confounds and volumes of a run, from a table that is checked.

    nilearn looks for a table by the image's name, and takes what it says: so it is
    given one under a plain name, of the columns that it may choose, all numbers.

    Parameters
    ----------
    run, n_volumes, key, n_first
        As of :func:`read_columns`.
    strategy, nilearn_options
        What nilearn's ``load_confounds_strategy`` is told.

    Returns
    -------
    confounds
        (n_volumes, n_confounds), possibly of no column.
    volumes
        Indices of the volumes that are kept, increasing.

    Raises
    ------
    ConfigError
        As of :func:`read_columns` for what nilearn chose, or if it finds no columns.
    """
    from nilearn.interfaces.fmriprep import load_confounds_strategy

    path, columns = read_table(run, n_volumes, key)
    is_compcor = strategy == "compcor"
    sidecar = _sidecar(path.with_suffix(".json"), key) if is_compcor else {}
    wanted = f"{OF_STRATEGIES}|{COMPONENTS}" if is_compcor else OF_STRATEGIES
    # nilearn takes names with capitals for those of old versions.
    chosen = [n for n in columns if n == n.lower() and re.search(wanted, n)]
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder, f"sub-1_desc-{_desc(run, strategy, key)}_bold.nii.gz")
        table = plain.with_name("sub-1_desc-confounds_timeseries.tsv")
        cells = [_as_far_as_numbers(columns[name], name, n_first) for name in chosen]
        with open(table, "w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(
                [chosen, *zip(*cells, strict=True)] if chosen else [["nothing"]]
            )
        Path(str(table).replace("tsv", "json")).write_text(json.dumps(sidecar))
        try:
            confounds_table, volumes = load_confounds_strategy(
                str(plain), strategy, **nilearn_options
            )
        except (ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path}: {_why(error, columns, key)}") from None
    for name in confounds_table.columns:
        _numbers(path, name, columns[name], n_first)
    every = np.arange(n_volumes)
    confounds = confounds_table.to_numpy(float).reshape(n_volumes, -1)
    return confounds, every if volumes is None else np.asarray(volumes, dtype=int)


def _desc(run: Path, strategy: str, key: str) -> str:
    """Description by which nilearn knows the kind of a series."""
    desc = entities(run).get("desc", "")
    if strategy == "ica_aroma":
        if desc != "smoothAROMAnonaggr":
            raise ConfigError(
                f"{run}: {key}: ica_aroma needs runs with desc-smoothAROMAnonaggr, got "
                f"desc {desc or 'none'}; choose that desc in `images` of the site file"
            )
        return desc
    if desc.startswith(DENOISED):
        raise ConfigError(
            f"{run}: {key}: desc {desc} was denoised before; write cleaning: none, or "
            "choose desc preproc in `images` of the site file"
        )
    return "preproc"


def _sidecar(path: Path, key: str) -> dict[str, Any]:
    """The table's sidecar, which describes components."""
    check_file(path, f"fMRIPrep writes it beside the table; or {REMEDIES[key]}")
    try:
        return dict(json.loads(path.read_text("utf-8-sig")))
    except (ValueError, TypeError):
        raise ConfigError(f"{path}: not a JSON file; mend it") from None


def _as_far_as_numbers(cells: list[str], name: str, n_first: int) -> list[float | str]:
    """A column for nilearn to choose or not: 0 throughout if it is not of numbers.

    What it says is refused if nilearn chooses it.
    """
    try:
        values = _numbers(Path(), name, cells, n_first)
    except ConfigError:
        return [0.0] * len(cells)
    if name not in (DISPLACEMENT, DVARS):
        values = filled(values[:, None])[:, 0]
    return ["n/a" if math.isnan(value) else repr(float(value)) for value in values]


def _numbers(path: Path, name: str, cells: list[str], n_first: int) -> np.ndarray:
    """A column's numbers, (n_volumes,); NaN where the first ones may lack."""
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        is_empty = cell.strip().lower() in EMPTY
        value = math.nan if is_empty else _number(cell)
        if value is None:
            raise ConfigError(
                f"{path}: {name}: must be numbers with a decimal point, got {cell!r} "
                f"in line {i + 2}; {_again(path)}"
            )
        if math.isinf(value):
            raise ConfigError(
                f"{path}: {name}: must be finite, got {cell} in line {i + 2}; "
                f"{_again(path)}"
            )
        values[i] = value
    is_number = np.isfinite(values)
    if not is_number.any():
        raise ConfigError(f"{path}: {name}: is n/a in every row; {_again(path)}")
    first = max(n_first, 1)
    if lacking := np.flatnonzero(~is_number[first:]).tolist():
        remainder = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ConfigError(
            f"{path}: {name}: must be a number in every row but the first, is n/a in "
            f"line {lacking[0] + first + 2}{remainder}; {_again(path)}"
        )
    return values


def _again(table: Path) -> str:
    """Remedy for a table with unusable numbers."""
    person = label(name_of(table))
    return f'make it again, or write without: ["{person}"] into the site file'


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _lacks(name: str, columns: dict[str, list[str]], key: str) -> str:
    """Error about a column that is missing."""
    if OLD & {*columns}:
        return (
            f"no column {name!r}; confounds of an fMRIPrep before 1.2 are not read but "
            f"as a list of their own columns; drop {key}, or run a newer fMRIPrep"
        )
    if name == DVARS:
        return (
            f"cleaning.scrub: no column {name!r}; {REMEDIES['cleaning.scrub']}, or "
            "have fMRIPrep write the table again"
        )
    hint = "; a strategy takes groups of columns" if "*" in name else ""
    return f"no column {name!r}; check {key}{hint}"


def _why(error: Exception, columns: dict[str, list[str]], key: str) -> str:
    """Error about a column that nilearn did not find."""
    text = " ".join(str(error).split())
    names = re.findall("'([^']+)'", text)
    if OLD & {*columns}:
        return _lacks(names[0] if names else "trans_x", columns, key)
    if "parameters are missing" in text or isinstance(error, KeyError):
        text = f"the table has nothing of {', '.join(names) or 'its columns'}"
    return (
        f"{key}: nilearn finds no such columns: {text.rstrip('.'):.200}; "
        f"{REMEDIES[key]}, or have fMRIPrep write the table again"
    )
