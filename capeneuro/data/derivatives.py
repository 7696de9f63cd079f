"""A site's runs, chosen by what BIDS file names say.

Names alone are read here. Why not PyBIDS: see docs/derivatives.md.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from capeneuro.config.errors import ConfigError
from capeneuro.config.site import Derivatives, SiteConfig
from capeneuro.data.files import found, person

# Entities by which files of one scan differ.
SAME_SCAN = ("space", "res", "den", "cohort", "desc", "echo", "part", "rec", "setting")
# Entities that a message names, in their order in file names.
SHOWN = ("task", "ses", "acq", "run", "echo", "space", "res", "setting", "desc")
# Entities that preprocessed images have one of: fMRIPrep's, XCP-D's, and HALFpipe's.
DONE = {"desc", "setting"}
# Keys of the `images` block that are not called as the entity is.
KEYS = {"ses": "session"}


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
