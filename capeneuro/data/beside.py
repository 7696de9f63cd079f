"""Files beside a run: its confounds and its mask; and the run's repetition time.

Names are read here, small sidecars, and of the image its header.
"""

import itertools
import json
import math
import os
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.names import stem
from capeneuro.config.sections import Cleaning, is_cifti
from capeneuro.config.site import NO_REPETITION_TIME, SiteConfig, is_repetition_time
from capeneuro.data import cifti, files
from capeneuro.data.door import check_file
from capeneuro.data.images import open_image
from capeneuro.data.inventory import SAME_SCAN, data_of

# Endings of tables of confounds, the best first: fMRIPrep's of today, of 1.2 to 20.1
# (and HALFpipe's), of before; XCP-D's tables of motion, which have no other confounds.
TABLES = (
    "desc-confounds_timeseries.tsv",
    "desc-confounds_regressors.tsv",
    "bold_confounds.tsv",
    "confounds.tsv",
    "motion.tsv",
    "desc-filtered_motion.tsv",
)
MASKS = ("desc-brain_mask.nii.gz", "desc-brain_mask.nii")
# Entities that a table does not have: it is of the scan, whatever its images' space.
OF_IMAGES = ("space", "res", "den", "cohort", "desc", "echo", "seg", "atlas", "stat")
# Entities that a mask must have as its run has them, or its grid or scan is another.
OF_MASKS = ("space", "res", "den", "cohort", "ses", "task", "run")
# Of headers, in seconds; what has no unit is not believed.
UNITS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
# What many tools write into headers where they know nothing [s].
DEFAULT_TIME = 1.0
# Repetition times that differ by less are rounded differently.
SAME_TIME = 0.01
# Nanoseconds after which the time of a folder tells whether it has changed since.
SETTLED = 2_000_000_000
LAST = "\U0010ffff"  # behind every letter of a name


def confounds_file(run: Path) -> Path:
    """Confounds table of a run; where not just one fits, the name that it should have.

    A table fits by what names have in common, in any order: one of them may lack an
    entity. It is no table of this run if it fits another scan as well or better.
    """
    tables = confounds_files(run)
    return tables[0] if len(tables) == 1 else _called(run, OF_IMAGES, TABLES[0])


def confounds_files(run: Path) -> list[Path]:
    """Tables of confounds that fit a run equally well."""
    for ending in TABLES[:2]:  # without a look at the folder
        if _is_there(table := _called(run, OF_IMAGES, ending)):
            return [table]
    return _fitting(run, TABLES)


def check_one_table(run: Path, remedy: str) -> None:
    """Refuse a run whose table of confounds is missing, or not the only one that fits.

    Raises
    ------
    ConfigError
        It names the tables that lie beside the run.
    """
    tables = confounds_files(run)
    if len(tables) > 1:
        raise ConfigError(
            f"{run}: confounds: {' and '.join(p.name for p in tables)} fit equally "
            "well; leave one, or give it the names of the image's entities"
        )
    if tables:
        return
    names = [path.name for path in _lying(run.parent) if _is_table(path)]
    person = run.name.split("_")[0] + "_"
    lying = [name for name in names if name.startswith(person)] or names
    around = f"beside the run lies {some(lying)}" if lying else "no table lies there"
    raise ConfigError(
        f"{_called(run, OF_IMAGES, TABLES[0])}: file not found ({around}); put it "
        f"there under that name, or {remedy}"
    )


def mask_file(run: Path) -> Path:
    """The run's own brain mask."""
    for ending in MASKS:
        if (mask := _called(run, ("desc", "echo"), ending)).is_file():
            return mask
    masks = _fitting(run, MASKS, OF_MASKS)
    return masks[0] if len(masks) == 1 else _called(run, ("desc", "echo"), MASKS[0])


def inputs(run: Path, cleaning: Cleaning) -> list[Path]:
    """Files that a run's features depend on."""
    side_files = [mask_file(run)] if cleaning.run_mask else []
    if cleaning.confounds or cleaning.scrubs or cleaning.exclude:
        side_files.append(confounds_file(run))
    side_files += [data for data in (data_of(run),) if data not in (None, run)]
    return [run, *(path for path in side_files if path.is_file())]


def state_of(runs: Iterable[Path], cleaning: Cleaning, site: SiteConfig) -> str:
    """Digest of a person's files, on which features and pictures depend."""
    paths: list[Path] = []
    times: list[float | None] = []
    for run in runs:
        paths += [*inputs(run, cleaning), confounds_file(run)]
        with suppress(ConfigError):  # said where it is needed
            times.append(repetition_time(run, site))
    return f"{files.state_of(paths)} {times}"


def _called(run: Path, without: tuple[str, ...], ending: str) -> Path:
    """A file of the same scan: the run's name without some entities, and an ending."""
    parts = stem(run).split("_")[:-1]
    entities = [part for part in parts if part.split("-")[0] not in without]
    return run.with_name("_".join([*entities, ending]))


def _lying(folder: Path, beginning: str = "", ending: str = "") -> list[Path]:
    """Files of a folder by the beginning of their names, in their order.

    It may hold a folder of each of 40,000 people, and is asked for each of them.
    """
    if not folder.is_dir():
        return []
    modified = folder.stat().st_mtime_ns
    is_new = time.time_ns() - modified < SETTLED
    names = (_names.__wrapped__ if is_new else _names)(folder, ending, modified)
    first, last = (bisect_left(names, beginning + end) for end in ("", LAST))
    return [folder / name for name in names[first:last]]


@lru_cache(maxsize=256)
def _names(folder: Path, ending: str, modified: int) -> list[str]:
    """Names in a folder with an ending, sorted, as long as nothing comes or goes."""
    return sorted(name for name in os.listdir(folder) if name.endswith(ending))


def _is_there(path: Path) -> bool:
    """Whether a path exists, be it a link to content that is not fetched yet."""
    return path.exists() or path.is_symlink()


def _is_table(path: Path) -> bool:
    return path.suffix in (".tsv", ".txt", ".csv") and "events" not in path.name


def _fitting(
    run: Path, endings: Iterable[str], equal: tuple[str, ...] = ()
) -> list[Path]:
    """Files with one of some endings that fit a run best; several only if equally."""
    ranks: dict[Path, tuple[int, int, int]] = {}
    names = _lying(run.parent, run.name.split("_")[0] + "_")
    run_parts, scan = _of_run(run), _scan(run)
    images = [p for p in names if ".nii" in p.suffixes and _suffix(p) == _suffix(run)]
    other_runs = [_of_run(p) for p in images if _scan(p) != scan]
    for path in names:
        ending = _ending(path, endings)
        if ending is None or not _is_there(path):
            continue
        parts = _parts(path.name.removesuffix(f"_{ending}").split("_"))
        shared = _n_shared(run_parts, parts)
        if not shared or any(
            _n_shared(other_run, parts) >= shared for other_run in other_runs
        ):
            continue
        if all(parts.get(e) == run_parts.get(e) for e in equal):
            lacking = len({*parts} ^ {*scan})
            ranks[path] = (-shared, lacking, [*endings].index(ending))
    return [path for path in ranks if ranks[path] == min(ranks.values())]


def _ending(path: Path, endings: Iterable[str]) -> str | None:
    """The longest of some endings that a name has after an underscore."""
    ends = [e for e in endings if path.name.endswith(f"_{e}")]
    return max(ends, key=len, default=None)


def _parts(parts: Iterable[str]) -> dict[str, str]:
    """Entities of parts of a name; a part that is none stands for itself."""
    pairs = (part.partition("-")[::2] for part in parts if part != "bold")
    return {key: value for key, value in pairs if key != "desc"}


def _of_run(run: Path) -> dict[str, str]:
    return _parts(stem(run).split("_")[:-1])


def _scan(run: Path) -> dict[str, str]:
    """Entities of a name that identify the scan, not how it was processed."""
    return {e: value for e, value in _of_run(run).items() if e not in SAME_SCAN}


def _suffix(path: Path) -> str:
    return stem(path).rpartition("_")[2]


def _n_shared(run: dict[str, str], file: dict[str, str]) -> int:
    """How many entities a run has in common with a file; 0 if they contradict."""
    shared = {*run} & {*file}
    # A part that is no entity (person1_bold.nii.gz) is no part that may be missing.
    plain = [e for e in {*run} ^ {*file} if not (run.get(e) or file.get(e))]
    return 0 if plain or any(run[e] != file[e] for e in shared) else len(shared)


# --- repetition time -----------------------------------------------------------------


def repetition_time(run: Path, site: SiteConfig) -> float | None:
    """Repetition time of a run [s]; None if unknown. See :func:`timing`."""
    return timing(run, site)[0]


def one_time(runs: Iterable[Path], site: SiteConfig) -> tuple[float | None, str]:
    """Repetition time that all runs have [s]; None and why, if there is none."""
    times: set[float] = set()
    for run in runs:
        t_r, why = timing(run, site)
        if t_r is None:
            return None, why
        times.add(t_r)
    if not is_one_time(times):
        several = " and ".join(f"{t:g} s" for t in sorted(times))
        return None, f"runs have repetition times of {several}"
    return next(iter(times), None), ""


def is_one_time(times: Collection[float]) -> bool:
    """Whether repetition times differ by no more than rounding."""
    return not times or _is_same(min(times), max(times))


def timing(run: Path, site: SiteConfig) -> tuple[float | None, str]:
    """Repetition time of a run [s], and where it stands.

    The site file counts first, then the BIDS sidecar that is nearest to the run, then
    the image's header where it gives a unit and a number that can be meant. 1 s of a
    header alone is not believed: many tools write it where they know nothing.

    Returns
    -------
    tuple
        None and why, if it is unknown.

    Raises
    ------
    ConfigError
        If the sidecar tells another time than the site file or the header, or none that
        can be meant.
    """
    site_time, (sidecar_time, sidecar) = site.repetition_time, _in_sidecars(run, site)
    in_header = None if site_time else _in_header(run)
    if site_time is None and sidecar_time is None:
        if in_header is None:
            return None, "neither a JSON sidecar nor the header tells it"
        if in_header == DEFAULT_TIME:
            return None, (
                "no JSON sidecar tells it, and the header's 1 s is what many tools "
                "write where they know nothing"
            )
        return in_header, f"the header of {run.name}"
    if site_time is None:
        if in_header not in (None, DEFAULT_TIME) and not _is_same(
            sidecar_time, in_header
        ):
            raise ConfigError(
                f"{sidecar}: RepetitionTime: is {sidecar_time:g} s, and the header of "
                f"{run.name} says {in_header:g} s; give the true one as "
                "`repetition_time` in the site file, and mend or remove the sidecar's"
            )
        return sidecar_time, str(sidecar)
    if is_repetition_time(sidecar_time) and not _is_same(site_time, sidecar_time):
        raise ConfigError(
            f"{sidecar}: RepetitionTime: is {sidecar_time:g} s, and the file of site "
            f"{site.name} says repetition_time {site_time:g}; remove that key, or mend "
            "this"
        )
    return site_time, f"the file of site {site.name}"


def _is_same(seconds: float, other_seconds: float) -> bool:
    return math.isclose(seconds, other_seconds, rel_tol=SAME_TIME)


def _in_sidecars(run: Path, site: SiteConfig) -> tuple[Any, Path | None]:
    """Repetition time of the nearest BIDS sidecar that has one, and its path."""
    for sidecar in _sidecars(run, site):
        content = _content(sidecar)
        repetition_time, slices = (
            content.get("RepetitionTime"),
            content.get("SliceTiming"),
        )
        if repetition_time is not None:
            if site.repetition_time is None:
                _check_repetition_time(repetition_time, slices, sidecar)
            return repetition_time, sidecar
    return None, None


def _check_repetition_time(repetition_time: Any, slices: Any, sidecar: Path) -> None:
    """Refuse a RepetitionTime that is none, or shorter than its slices take."""
    remedy = "mend it there, or give `repetition_time` in the site file"
    if isinstance(repetition_time, bool) or not isinstance(
        repetition_time, (int, float)
    ):
        raise ConfigError(
            f"{sidecar}: RepetitionTime: must be a number of seconds, got "
            f"{repetition_time!r:.40}; {remedy}"
        )
    if not is_repetition_time(repetition_time):
        raise ConfigError(
            f"{sidecar}: RepetitionTime: {NO_REPETITION_TIME}, got {repetition_time}; "
            f"{remedy}"
        )
    times = slices if isinstance(slices, list) else []
    last = max((t for t in times if isinstance(t, (int, float))), default=0)
    # Slices in milliseconds tell nothing about the unit of the other.
    if is_repetition_time(last) and last > repetition_time * (1 + SAME_TIME):
        raise ConfigError(
            f"{sidecar}: RepetitionTime: is {repetition_time:g} s, and its SliceTiming "
            "goes to "
            f"{last:g} s, but a volume takes longer than its slices; mend it there, or "
            "remove it and give `repetition_time` in the site file"
        )


def _sidecars(run: Path, site: SiteConfig) -> Iterator[Path]:
    """JSON files that tell of a run by BIDS inheritance, the nearest first.

    Each is in the run's folder or one above, up to the data set's, and has no entity
    that the run does not have.
    """
    named = run.with_name(stem(run) + ".json")
    if named.exists() or named.is_symlink():
        yield named
    parts = {*stem(run).split("_")[:-1]}
    for folder in _folders(run, Path(site.folder)):
        fitting: list[tuple[int, Path]] = []
        for path in _lying(folder, ending=f"{_suffix(run)}.json"):
            has = {*stem(path).split("_")[:-1]}
            if _suffix(path) == _suffix(run) and has <= parts and path != named:
                fitting.append((-len(has), path))
        _check_equal(fitting)
        yield from (path for _, path in sorted(fitting))


def _check_equal(fitting: list[tuple[int, Path]]) -> None:
    """Refuse sidecars of one folder that fit a run equally well, and differ."""
    for (n, path), (n_other, other_path) in itertools.pairwise(sorted(fitting)):
        times = [_content(file).get("RepetitionTime") for file in (path, other_path)]
        if n == n_other and None not in times and times[0] != times[1]:
            raise ConfigError(
                f"{path}: RepetitionTime: is {times[0]}, and {other_path.name}, which "
                "is of "
                f"the same runs, says {times[1]}; mend one, or remove it"
            )


def _content(sidecar: Path) -> dict[str, Any]:
    """Content of a sidecar."""
    try:
        content = json.loads(check_file(sidecar).read_text("utf-8-sig"))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ConfigError(f"{sidecar}: not a JSON file; mend it")
    return content


def _folders(run: Path, root: Path) -> list[Path]:
    """A run's folder and those above it, up to the data set's."""
    above = list(run.parents)
    if root in above:
        return above[: above.index(root) + 1]
    people = [i for i, folder in enumerate(above) if folder.name.startswith("sub-")]
    return above[: max(people) + 2] if people else above[:1]


def _in_header(run: Path) -> float | None:
    """Repetition time in an image's header [s]; None if it is not sure."""
    try:
        if is_cifti(run):
            step = cifti.open_series(run).step
            return step if is_repetition_time(step) else None
        header = open_image(run, 4).header
    except ConfigError:
        return None  # what is wrong says who reads the image
    try:
        unit = header.get_xyzt_units()[1]
    except KeyError:  # a code that stands for none
        return None
    seconds = float(header.get_zooms()[3]) * UNITS.get(unit, 0.0)
    # As it was before float32.
    return float(f"{seconds:.6g}") if is_repetition_time(seconds) else None
