"""A site's runs, chosen by what BIDS file names say.

Names alone are read here. Why not PyBIDS: see docs/derivatives.md.
"""

import errno
import itertools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from capeneuro import machine
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
    """Entities of a BIDS name: ``sub-01_task-rest_bold.nii.gz`` has sub and task.

    A session that only a folder names is one, too.
    """
    parts = stem(file).split("_")
    return dict(part.split("-", 1) for part in (*sessions(file), *parts) if "-" in part)


def space(file: Path) -> str:
    """Template space of an image; HALFpipe and HCP have but one, and do not name it."""
    its_entities = entities(file)
    if is_cifti(file):  # HCP's and ABCD's do not name it
        return its_entities.get("space", "fsLR")
    if {"MNINonLinear", "reg_standard"} & {*file.parts}:
        return "MNI152NLin6Asym"
    return its_entities.get(
        "space", "MNI152NLin2009cAsym" if "setting" in its_entities else ""
    )


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
        for file in (file for runs in inventory.people.values() for file in runs):
            owners[space(file)].add(f"site {site}")
    for path in filter(None, public):
        named = re.search(r"(?:^|_)(?:tpl|space)-([A-Za-z0-9]+)", Path(path).name)
        owners[named[1] if named else ""].add(str(path))
    owners.pop("", None)
    if len(owners) > 1:
        listing = " and ".join(f"{t} ({some(sorted(o))})" for t, o in owners.items())
        raise ConfigError(
            f"space: all images must be in one template's space, names say {listing}; "
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
    _check_rights(site)
    if isinstance(site.images, str) and not Path(site.images).is_dir():
        files, root = search(site.images)
        aside: dict[Path, str] = {}
        if not files:
            raise ConfigError(
                f"site {site.name}: images: nothing found at {site.images!r}; put the "
                "data there or change `images` in its site file"
            )
    else:
        selected = selection(site)
        root = Path(selected.derivatives)
        files = candidates(root, selected.series)
        aside = _not_selected(files, selected)
    site_inventory = take(site, files, root, "images", aside, is_whole=is_whole)
    if not site_inventory.people:
        raise ConfigError(_nothing(site, files))
    _check_kinds(site, site_inventory)
    for runs in site_inventory.people.values():
        _check_combined(site, runs)
    return site_inventory


def candidates(folder: Path, series: str = "volumes") -> list[Path]:
    """All 4-D images of a folder's people, in the order of their names.

    ``series`` is that of :class:`.config.site.Derivatives`.
    """
    people = [path for path in people_in(folder) if path.is_dir()]
    runs = re.compile(rf"(?i)sub-.*{ENDINGS[series]}\.nii(\.gz)?")
    return [
        file
        for folder_of_person in people
        for file in walk(folder_of_person)
        if runs.fullmatch(file.name)
    ]


def selection(site: SiteConfig) -> Derivatives:
    """Selection of a site's files from its folder."""
    if isinstance(site.images, str):
        return Derivatives(derivatives=site.images, task=site.task, desc=())
    if site.task and not site.images.task:
        return site.images.model_copy(update={"task": (site.task,)})
    return site.images


def _selected_entities(site: SiteConfig) -> dict[str, tuple[str, ...]]:
    """Values that a site's file asks for, by entity; none of a pattern."""
    is_pattern = isinstance(site.images, str) and not Path(site.images).is_dir()
    return {} if is_pattern else selection(site).entities()


def _not_selected(files: Iterable[Path], selected: Derivatives) -> dict[Path, str]:
    """Files that a site's file does not ask for, each with the entity that differs."""
    aside = {}
    for file in files:
        named = entities(file)
        for entity, values in selected.entities().items():
            if not is_one_of(named.get(entity), values):
                value = named.get(entity, "none")
                aside[file] = f"{KEYS.get(entity, entity)} is {value}"
                break
    if selected.echo:
        return aside
    scans: dict[str, list[Path]] = defaultdict(list)
    for file in (file for file in files if file not in aside):
        scans[f"{file.parent}/{_without(file, 'echo')}"].append(file)
    for echoes_of_scan in scans.values():
        echoes = [file for file in echoes_of_scan if "echo" in entities(file)]
        if len(echoes) < len(echoes_of_scan):
            aside |= dict.fromkeys(echoes, "one echo beside the combined series")
    return aside


def _without(file: Path, *entities: str) -> str:
    """A name without some entities."""
    parts = stem(file).split("_")
    return "_".join(part for part in parts if part.split("-")[0] not in entities)


def _check_kinds(site: SiteConfig, inventory: Inventory) -> None:
    """Refuse images of several kinds that the site's file does not choose between.

    Resampled as one, images in native space beside those in a template's, or phases
    beside magnitudes, would be taken for the same.
    """
    selected_entities = _selected_entities(site)
    present: dict[str, dict[str, Path]] = {entity: {} for entity in KINDS}
    for run in (run for runs in inventory.people.values() for run in runs):
        named = entities(run)
        for entity, values in present.items():
            values.setdefault(named.get(entity, USUAL.get(entity, "none")), run)
    for entity, values in present.items():
        is_unusual = entity in USUAL and not {*values} <= {USUAL[entity]}
        if entity in selected_entities or not (len(values) > 1 or is_unusual):
            continue
        listed = " and ".join(f"{v} ({run.name})" for v, run in sorted(values.items()))
        key = entity if entity in Derivatives.model_fields else "filters"
        key = key if key == entity else f"{key}: {{{entity}: ...}}"
        raise ConfigError(
            f"site {site.name}: images: must be of one {entity}, there is {listed}; "
            f"say in `{key}` of `images` which to take, or give a pattern of them"
        )


def combined(runs: Iterable[Path]) -> tuple[Path, Path] | None:
    """A run without a number and one of the numbered ones that it may hold, if any.

    Parameters
    ----------
    runs
        Of one person: names as in BIDS with and without `run-` (XCP-D's of all runs),
        or folders of the Human Connectome Project (`rfMRI_REST` of `rfMRI_REST1_AP`).
    """
    series: dict[str, list[Path]] = defaultdict(list)
    scans: dict[str, Path] = {}
    for run in runs:
        if "MNINonLinear" in run.parts:
            scans[run.parent.name] = run
        else:
            series[_without(run, "run", "dir")].append(run)
    for runs_of_series in series.values():
        for joined, part in itertools.permutations(runs_of_series, 2):
            named, numbered = entities(joined), entities(part)
            is_part = named.items() < numbered.items() and "run" in numbered
            if is_part and "run" not in named:
                return joined, part
    for joined, part in itertools.permutations(scans, 2):
        if re.match(rf"{re.escape(joined)}\d", part):
            return scans[joined], scans[part]
    return None


def _check_combined(site: SiteConfig, runs: Iterable[Path]) -> None:
    """Refuse a run without a number beside numbered ones: it may hold them all."""
    pair = combined(runs)
    if pair is None:
        return
    joined, part = pair
    if "MNINonLinear" in part.parts:
        raise ConfigError(
            f"site {site.name}: images: {joined} may hold the scans of {part.parent}, "
            f"too; in the pattern {joined.parent.name}[0-9]*/ takes the single ones, "
            f"{joined.parent.name}/ what holds all"
        )
    raise ConfigError(
        f"site {site.name}: images: {joined} has no run- and {part.name} has one: does "
        "the first hold both? Say which in `images`, run: [1, 2] or run: none"
    )


def _check_rights(site: SiteConfig) -> None:
    """Refuse a folder that this user may not read: it looks as if it were not there."""
    images = (
        site.images if isinstance(site.images, str) else selection(site).derivatives
    )
    path = Path(images).absolute()
    for folder in (*reversed(path.parents), path):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise ConfigError(
                f"site {site.name}: images: this user may not read {str(folder)!r}; "
                + machine.REMEDIES[errno.EACCES]
            )


def _nothing(site: SiteConfig, files: list[Path]) -> str:
    selected = selection(site)
    criteria = ", ".join(
        f"{KEYS.get(entity, entity)} {' or '.join(values)}"
        for entity, values in selected.entities().items()
    )
    text = f"site {site.name}: images: nothing found at {selected.derivatives!r}"
    text += f" with {criteria}" if criteria else ""
    other_series = [s for s in ENDINGS if s != selected.series]
    other_series = [
        s
        for s in other_series
        if not files and candidates(Path(selected.derivatives), s)
    ]
    if other_series:
        return (
            f"{text} as {selected.series}; there are runs as "
            f"{' and '.join(other_series)}: write "
            f"series: {other_series[0]} into `images` of its site file"
        )
    if not files:
        return f"{text}; put the data there or change `images` in its site file"
    if len(_not_selected(files, selected)) < len(files):
        return f"{text}; `people` and `without` leave nobody: change its site file"
    present = [
        f"{entity} {values}" for entity, values in _present_values(files).items()
    ]
    return f"{text}; there is {', '.join(present)}: change `images` in its site file"


def _present_values(files: list[Path]) -> dict[str, str]:
    """Values of each entity that files have, with ``none`` where some have it not."""
    seen = [entities(file) for file in files]
    present = {}
    for entity in SHOWN:
        values = Counter(of_file.get(entity, "none") for of_file in seen)
        if set(values) != {"none"} or entity in ("task", "desc"):
            present[KEYS.get(entity, entity)] = " and ".join(sorted(values))
    return present
