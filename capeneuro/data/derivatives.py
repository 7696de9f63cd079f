"""A site's runs, chosen by what BIDS file names say; and the files beside a run.

Names alone are read here, small sidecars, and where these do not tell the repetition
time the header of the image. Why not PyBIDS: see docs/derivatives.md.
"""

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning
from capeneuro.config.site import (
    NO_REPETITION_TIME,
    Derivatives,
    SiteConfig,
    is_repetition_time,
)
from capeneuro.data.files import found, person
from capeneuro.data.images import open_image

# Entities by which files of one scan differ.
SAME_SCAN = ("space", "res", "den", "cohort", "desc", "echo", "part", "rec", "setting")
# Entities that a message names, in their order in file names.
SHOWN = ("task", "ses", "acq", "run", "echo", "space", "res", "setting", "desc")
# Entities that preprocessed images have one of: fMRIPrep's, XCP-D's, and HALFpipe's.
DONE = {"desc", "setting"}
# Keys of the `images` block that are not called as the entity is.
KEYS = {"ses": "session"}
# Of headers, in seconds; what has no unit is not believed.
UNITS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}
# Repetition times that differ by less are rounded differently.
SAME_TIME = 0.01


def entities(file: Path) -> dict[str, str]:
    """What a BIDS name says: ``sub-01_task-rest_bold.nii.gz`` has sub and task."""
    parts = file.name.split(".")[0].split("_")
    return dict(part.split("-", 1) for part in parts if "-" in part)


def space(file: Path) -> str:
    """Template space of an image; HALFpipe has but one, and does not name it."""
    own = entities(file)
    return own.get("space", "MNI152NLin2009cAsym" if "setting" in own else "")


def find_runs(site: SiteConfig) -> dict[str, list[Path]]:
    """Find a site's 4-D images, grouped by person.

    Parameters
    ----------
    site
        Its file: what to take of a folder of derivatives; a BIDS folder, or a pattern
        of image files, and a task.

    Returns
    -------
    dict
        Runs by subject id, both sorted.

    Raises
    ------
    ConfigError
        If there are none, or if two files look like one scan. It names what there is,
        and stays at the site.
    """
    if isinstance(site.images, str) and not Path(site.images).is_dir():
        files = found(site.images, "")
        if not files:
            raise ConfigError(
                f"site {site.name}: images: nothing found at {site.images!r}; put the "
                "data there or change `images` in its site file"
            )
    else:
        files = _chosen(site)
    runs: dict[str, list[Path]] = {}
    seen: dict[object, Path] = {}
    for file in files:
        # One scan in two spaces or echoes would count a person's volumes twice.
        scan: object = file.name
        if file.name.startswith("sub-"):
            own = {k: v for k, v in entities(file).items() if k not in SAME_SCAN}
            scan = (file.parent, tuple(own.items()))
        if scan in seen:
            raise ConfigError(_one_scan(site, file, seen[scan]))
        seen[scan] = file
        runs.setdefault(person(file), []).append(file)
    return runs


def _one_scan(site: SiteConfig, file: Path, other: Path) -> str:
    first, second = entities(other), entities(file)
    differ = [e for e in SAME_SCAN if first.get(e) != second.get(e)]
    if not file.name.startswith("sub-"):
        remedy = (
            "give files names of their own, sub-<label>_... where people have several"
        )
    elif isinstance(site.images, str) or not differ:
        remedy = "give a pattern that takes one of them"
    else:
        of = differ[0]
        both = " or ".join(sorted({first.get(of, "none"), second.get(of, "none")}))
        where = (
            KEYS.get(of, of) if of in ("space", "res", "echo", "desc") else "filters"
        )
        remedy = f"say in `{where}` which {of}: {both}"
    return f"site {site.name}: images: {file} and {other} look like one scan; {remedy}"


def candidates(folder: Path) -> list[Path]:
    """All 4-D images of a folder's people, in the order of their names."""
    people = sorted(path for path in folder.glob("sub-*") if path.is_dir())
    return [file for own in people for file in sorted(own.rglob("sub-*_bold.nii*"))]


def selection(site: SiteConfig) -> Derivatives:
    """What a site takes of its folder."""
    if isinstance(site.images, str):
        return Derivatives(derivatives=site.images, task=site.task, desc=())
    if site.task and not site.images.task:
        return site.images.model_copy(update={"task": (site.task,)})
    return site.images


def _chosen(site: SiteConfig) -> list[Path]:
    own = selection(site)
    there = candidates(Path(own.derivatives))
    asked = own.entities()
    labels = sorted({person(file).removeprefix("sub-") for file in there})
    people = _named(site, "people", own.people, labels)
    without = _named(site, "without", own.without, labels)
    files = [
        file
        for file in there
        if (not people or person(file).removeprefix("sub-") in people)
        and person(file).removeprefix("sub-") not in without
        and all(_is(entities(file).get(e), values) for e, values in asked.items())
    ]
    if not own.echo and any("echo" not in entities(file) for file in files):
        files = [file for file in files if "echo" not in entities(file)]
    if not files:
        raise ConfigError(_nothing(site, own, there))
    return files


def _named(
    site: SiteConfig, key: str, named: Collection[str], labels: Sequence[str]
) -> set[str]:
    """People whom a site's file names, each of whom must be there, and be one person.

    A label is meant as it is written; where nobody has it, as a number: 1 is 01.

    Raises
    ------
    ConfigError
        If a label is nobody's, or as a number that of several: who withdrew would stay.
    """
    people = set()
    for label in named if labels else ():
        same = [own for own in labels if own == label]
        same = same or [own for own in labels if _is(own, (label,))]
        if len(same) == 1:
            people |= {*same}
            continue
        whose = "nobody is called" if not same else "several people are called"
        near = same or difflib.get_close_matches(label, labels, 3, 0.5)
        beside = f" (there is {', '.join(near)})" if near else ""
        raise ConfigError(
            f"site {site.name}: images.{key}: {whose} {label!r}{beside}; write labels "
            "in quotes, as in the names of files"
        )
    return people


def _is(value: str | None, asked: tuple[str, ...]) -> bool:
    """Whether a label is one of those asked for; numbers as numbers."""
    if value is None:
        return "none" in asked
    return any(
        value == one or (value.isdigit() and one.isdigit() and int(value) == int(one))
        for one in asked
    )


def _nothing(site: SiteConfig, own: Derivatives, there: list[Path]) -> str:
    asked = ", ".join(
        f"{KEYS.get(entity, entity)} {' or '.join(values)}"
        for entity, values in own.entities().items()
    )
    text = f"site {site.name}: images: nothing found at {own.derivatives!r}"
    text += f" with {asked}" if asked else ""
    if not there:
        return f"{text}; put the data there or change `images` in its site file"
    if own.without and all(_is(person(file)[4:], own.without) for file in there):
        return f"{text}; `without` leaves nobody: change it in its site file"
    said = [f"{entity} {values}" for entity, values in _there(there).items()]
    return f"{text}; there is {', '.join(said)}: change `images` in its site file"


def _there(files: list[Path]) -> dict[str, str]:
    """Values of each entity that files have, with ``none`` where some have it not."""
    seen = [entities(file) for file in files]
    found = {}
    for entity in SHOWN:
        values = Counter(own.get(entity, "none") for own in seen)
        if set(values) != {"none"} or entity in ("task", "desc"):
            found[KEYS.get(entity, entity)] = " and ".join(sorted(values))
    return found


# --- beside a run --------------------------------------------------------------------


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
    try:
        header = open_image(run, 4).header
    except ConfigError:
        return None  # what is wrong says who reads the image
    seconds = float(header.get_zooms()[3]) * UNITS.get(header.get_xyzt_units()[1], 0.0)
    # As it was before float32.
    return float(f"{seconds:.6g}") if is_repetition_time(seconds) else None
