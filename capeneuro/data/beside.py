"""Files beside a run: its confounds and its mask; and the run's repetition time.

Names are read here, small sidecars, and where these do not tell the repetition time the
header of the image.
"""

import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning
from capeneuro.config.site import NO_REPETITION_TIME, SiteConfig, is_repetition_time

# Of headers, in seconds; what has no unit is not believed.
UNITS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
# Repetition times that differ by less are rounded differently.
SAME_TIME = 0.01


def _beside(run: Path, without: tuple[str, ...], ending: str) -> Path:
    """A file of the same scan: the run's name without some entities, and an ending."""
    parts = run.name.split(".")[0].split("_")[:-1]
    kept = [part for part in parts if part.split("-")[0] not in without]
    return run.with_name("_".join([*kept, ending]))


def confounds_file(run: Path) -> Path:
    """Confounds table of a run, of fMRIPrep's newer or older name."""
    without = ("space", "res", "den", "cohort", "desc", "echo")
    own = _beside(run, without, "desc-confounds_timeseries.tsv")
    older = own.with_name(own.name.replace("_timeseries", "_regressors"))
    return older if older.is_file() and not own.is_file() else own


def mask_file(run: Path) -> Path:
    """The run's own brain mask."""
    compressed = _beside(run, ("desc", "echo"), "desc-brain_mask.nii.gz")
    plain = compressed.with_suffix("")
    return plain if plain.is_file() and not compressed.is_file() else compressed


def inputs(run: Path, cleaning: Cleaning) -> list[Path]:
    """Files that a run's features depend on."""
    more = [mask_file(run)] if cleaning.run_mask else []
    if cleaning.confounds or cleaning.scrubs or cleaning.exclude:
        more.append(confounds_file(run))
    return [run, *(path for path in more if path.is_file())]


def repetition_time(run: Path, site: SiteConfig) -> float | None:
    """Repetition time of a run [s]; None if unknown. See :func:`timing`."""
    return timing(run, site)[0]


def timing(run: Path, site: SiteConfig) -> tuple[float | None, str]:
    """Repetition time of a run [s], and where it stands.

    The site file counts first, then the BIDS sidecar, then the image's header where it
    gives a unit and a number that can be meant.

    Returns
    -------
    tuple
        None and an empty text if it is unknown.

    Raises
    ------
    ConfigError
        If the sidecar tells another time than the site file, or none that can be meant.
    """
    own, (told, sidecar) = site.repetition_time, _in_sidecar(run, site)
    if own is None and told is None:
        seconds = _in_header(run)
        return seconds, "" if seconds is None else f"the header of {run.name}"
    if own is None:
        if not is_repetition_time(told):
            raise ConfigError(
                f"{sidecar}: RepetitionTime: {NO_REPETITION_TIME}, got {told}; mend it "
                "there, or give `repetition_time` in the site file"
            )
        return told, str(sidecar)
    if is_repetition_time(told) and not math.isclose(own, told, rel_tol=SAME_TIME):
        raise ConfigError(
            f"{sidecar}: RepetitionTime: is {told:g} s, and the file of site "
            f"{site.name} says repetition_time {own:g}; remove that key, or mend this"
        )
    return own, f"the file of site {site.name}"


def _in_sidecar(run: Path, site: SiteConfig) -> tuple[Any, Path | None]:
    """What the first BIDS sidecar says that says something, and which it is."""
    task = re.search(r"task-[A-Za-z0-9]+", run.name)
    sidecars = [run.with_name(run.name.split(".nii")[0] + ".json")]
    if task:  # BIDS inheritance: the data set's own sidecar of the task
        sidecars.append(Path(site.folder) / f"{task[0]}_bold.json")
    for sidecar in filter(Path.is_file, sidecars):
        try:
            t_r = json.loads(sidecar.read_text()).get("RepetitionTime")
        except (ValueError, AttributeError):
            raise ConfigError(f"{sidecar}: not a JSON file; mend it") from None
        if t_r is not None:
            return t_r, sidecar
    return None, None


def _in_header(run: Path) -> float | None:
    """Repetition time that an image's header tells [s]; None if it is not sure."""
    import nibabel as nib

    try:
        header = nib.load(run).header
    except (OSError, EOFError, zlib.error, nib.filebasedimages.ImageFileError):
        return None  # what is wrong says who reads the image
    if not isinstance(header, nib.Nifti1Header) or len(header.get_zooms()) < 4:
        return None
    seconds = float(header.get_zooms()[3]) * UNITS.get(header.get_xyzt_units()[1], 0.0)
    # As it was before float32.
    return float(f"{seconds:.6g}") if is_repetition_time(seconds) else None
