"""A site's runs, chosen by what BIDS file names say.

Names alone are read here. Why not PyBIDS: see docs/derivatives.md.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.names import stem
from capeneuro.config.sections import is_cifti
from capeneuro.config.site import Derivatives, SiteConfig
from capeneuro.data.inventory import (
    Inventory,
    is_one_of,
    people_in,
    search,
    sessions,
    take,
    walk,
)

# Entities that a message names, in their order in file names.
SHOWN = ("task", "ses", "acq", "run", "echo", "space", "res", "seg", "atlas")
SHOWN += ("setting", "desc")
# Entities that preprocessed images have one of: fMRIPrep's, XCP-D's, and HALFpipe's.
DONE = {"desc", "setting"}
# Entities of which a site has one value, unless its file asks for several.
KINDS = ("space", "cohort", "res", "den", "setting", "desc", "echo", "part")
# What is meant where a name says nothing of them; of others nothing is.
USUAL = {"part": "mag"}
# Keys of the `images` block that are not called as the entity is.
KEYS = {"ses": "session"}

# How names of runs end, by `series` of the `images` block.
ENDINGS = {"volumes": "_bold", "dense": r"\.dtseries", "parcels": r"\.ptseries"}


def entities(file: Path) -> dict[str, str]:
    """What a BIDS name says: ``sub-01_task-rest_bold.nii.gz`` has sub and task.

    A session that only a folder names is one, too.
    """
    parts = stem(file).split("_")
    return dict(part.split("-", 1) for part in (*sessions(file), *parts) if "-" in part)


def space(file: Path) -> str:
    """Template space of an image; HALFpipe and HCP have but one, and do not name it."""
    own = entities(file)
    if is_cifti(file):  # HCP's and ABCD's do not name it
        return own.get("space", "fsLR")
    if {"MNINonLinear", "reg_standard"} & {*file.parts}:
        return "MNI152NLin6Asym"
    return own.get("space", "MNI152NLin2009cAsym" if "setting" in own else "")


def check_templates(
    images: Mapping[str, Inventory], public: Iterable[Path | None]
) -> None:
    """Refuse images in the spaces of several templates, as far as names say.

    Resampling brings images to one grid, and not one template's brain onto another's.

    Parameters
    ----------
    images
        What was found at each site.
    public
        The study's mask and atlas, whose names may say a template, too.

    Raises
    ------
    ConfigError
        If two are named.
    """
    owners: dict[str, set[str]] = defaultdict(set)
    for site, inventory in images.items():
        for file in (file for own in inventory.people.values() for file in own):
            owners[space(file)].add(f"site {site}")
    for path in filter(None, public):
        named = re.search(r"(?:^|_)(?:tpl|space)-([A-Za-z0-9]+)", Path(path).name)
        owners[named[1] if named else ""].add(str(path))
    owners.pop("", None)
    if len(owners) > 1:
        shown = " and ".join(f"{t} ({some(sorted(o))})" for t, o in owners.items())
        raise ConfigError(
            f"space: all images must be in one template's space, names say {shown}; "
            "choose one in `images.space` of the site files, or warp the others to it: "
            "resampling changes their grid alone"
        )


def find_runs(site: SiteConfig, *, is_whole: bool = True) -> dict[str, list[Path]]:
    """Find a site's 4-D images, grouped by person; as :func:`inventory`."""
    return inventory(site, is_whole=is_whole).people


def inventory(site: SiteConfig, *, is_whole: bool = True) -> Inventory:
    """Find a site's 4-D images: whose they are, and why others are set aside.

    Parameters
    ----------
    site
        Its file: what to take of a folder of derivatives; a BIDS folder, or a pattern
        of image files, and a task.
    is_whole
        As of :func:`.inventory.take`.

    Raises
    ------
    ConfigError
        If there are none, or if a scan would count twice. It names what there is, and
        stays at the site.
    """
    if isinstance(site.images, str) and not Path(site.images).is_dir():
        files, root = search(site.images)
        aside: dict[Path, str] = {}
        if not files:
            raise ConfigError(
                f"site {site.name}: images: nothing found at {site.images!r}; put the "
                "data there or change `images` in its site file"
            )
    else:
        asked = selection(site)
        root = Path(asked.derivatives)
        files = candidates(root, asked.series)
        aside = _not_asked_for(files, asked)
    found = take(site, files, root, "images", aside, is_whole=is_whole)
    if not found.people:
        raise ConfigError(_nothing(site, files))
    _check_kinds(site, found)
    for own in found.people.values():
        _check_combined(site, own)
    return found


def candidates(folder: Path, series: str = "volumes") -> list[Path]:
    """All 4-D images of a folder's people, in the order of their names.

    ``series`` is that of :class:`.config.site.Derivatives`.
    """
    people = [path for path in people_in(folder) if path.is_dir()]
    runs = re.compile(rf"(?i)sub-.*{ENDINGS[series]}\.nii(\.gz)?")
    return [file for own in people for file in walk(own) if runs.fullmatch(file.name)]


def selection(site: SiteConfig) -> Derivatives:
    """What a site takes of its folder."""
    if isinstance(site.images, str):
        return Derivatives(derivatives=site.images, task=site.task, desc=())
    if site.task and not site.images.task:
        return site.images.model_copy(update={"task": (site.task,)})
    return site.images


def _asked(site: SiteConfig) -> dict[str, tuple[str, ...]]:
    """Values that a site's file asks for, by entity; none of a pattern."""
    is_pattern = isinstance(site.images, str) and not Path(site.images).is_dir()
    return {} if is_pattern else selection(site).entities()


def _not_asked_for(files: Iterable[Path], asked: Derivatives) -> dict[Path, str]:
    """Files that a site's file does not ask for, each with the entity that differs."""
    aside = {}
    for file in files:
        named = entities(file)
        for entity, values in asked.entities().items():
            if not is_one_of(named.get(entity), values):
                value = named.get(entity, "none")
                aside[file] = f"{KEYS.get(entity, entity)} is {value}"
                break
    if asked.echo:
        return aside
    scans: dict[str, list[Path]] = defaultdict(list)
    for file in (file for file in files if file not in aside):
        scans[f"{file.parent}/{_without(file, 'echo')}"].append(file)
    for same in scans.values():
        echoes = [file for file in same if "echo" in entities(file)]
        if len(echoes) < len(same):
            aside |= dict.fromkeys(echoes, "one echo beside the combined series")
    return aside


def _without(file: Path, *left: str) -> str:
    """A name without some entities."""
    parts = stem(file).split("_")
    return "_".join(part for part in parts if part.split("-")[0] not in left)


def _check_kinds(site: SiteConfig, inventory: Inventory) -> None:
    """Refuse images of several kinds that the site's file does not choose between.

    Resampled as one, images in native space beside those in a template's, or phases
    beside magnitudes, would be taken for the same.
    """
    asked = _asked(site)
    there: dict[str, dict[str, Path]] = {entity: {} for entity in KINDS}
    for run in (run for runs in inventory.people.values() for run in runs):
        named = entities(run)
        for entity, values in there.items():
            values.setdefault(named.get(entity, USUAL.get(entity, "none")), run)
    for entity, values in there.items():
        is_unusual = entity in USUAL and not {*values} <= {USUAL[entity]}
        if entity in asked or not (len(values) > 1 or is_unusual):
            continue
        listed = " and ".join(f"{v} ({run.name})" for v, run in sorted(values.items()))
        key = entity if entity in Derivatives.model_fields else "filters"
        key = key if key == entity else f"{key}: {{{entity}: ...}}"
        raise ConfigError(
            f"site {site.name}: images: must be of one {entity}, there is {listed}; "
            f"say in `{key}` of `images` which to take, or give a pattern of them"
        )


def _check_combined(site: SiteConfig, runs: Iterable[Path]) -> None:
    """Refuse a run without a number beside numbered ones: it may hold them all."""
    series: dict[str, list[Path]] = defaultdict(list)
    for run in runs:
        series[_without(run, "run", "dir")].append(run)
    for same in series.values():
        numbered = [run for run in same if "run" in entities(run)]
        for run in same:
            mine = entities(run)
            parts = (
                other for other in numbered if mine.items() < entities(other).items()
            )
            if "run" not in mine and (part := next(parts, None)):
                raise ConfigError(
                    f"site {site.name}: images: {run} has no run- and {part.name} has "
                    "one: does the first hold both? Say which in `images`, run: [1, 2] "
                    "or run: none"
                )


def _nothing(site: SiteConfig, there: list[Path]) -> str:
    own = selection(site)
    asked = ", ".join(
        f"{KEYS.get(entity, entity)} {' or '.join(values)}"
        for entity, values in own.entities().items()
    )
    text = f"site {site.name}: images: nothing found at {own.derivatives!r}"
    text += f" with {asked}" if asked else ""
    others = [s for s in ENDINGS if s != own.series]
    others = [s for s in others if not there and candidates(Path(own.derivatives), s)]
    if others:
        return (
            f"{text} as {own.series}; there are runs as {' and '.join(others)}: write "
            f"series: {others[0]} into `images` of its site file"
        )
    if not there:
        return f"{text}; put the data there or change `images` in its site file"
    if len(_not_asked_for(there, own)) < len(there):
        return f"{text}; `people` and `without` leave nobody: change its site file"
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
