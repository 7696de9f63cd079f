"""`capeneuro init --kind contrast --from`: a comparison from the sites' folders.

Folders of 4-D runs begin a study of the connectivity of a template's networks, see
:mod:`.init_networks`; folders of maps, such as grey matter of voxel-based morphometry,
one of their means over an atlas's regions; folders with a table one of its columns.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capeneuro.config import scaffold
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import SiteConfig
from capeneuro.data import files, labels, nifti
from capeneuro.data.images import same_grid
from capeneuro.data.inventory import search
from capeneuro.data.people_tables import ID
from capeneuro.data.tables import maps_in_folder, open_texts
from capeneuro.studies import init_from_folders, init_networks, init_people
from capeneuro.studies.init_from_folders import SiteFolder
from capeneuro.studies.init_networks import Template
from capeneuro.studies.init_people import CovariatesText

ATLAS, REGIONS = "config/atlas.nii.gz", "config/regions.tsv"
FEATURES = "config/features.tsv"
# Names of maps in a folder that is not BIDS, the best first: CAT12's and SPM's of grey
# matter, smoothed ones after others, fMRIPrep's, and any.
PATTERNS = ("mwp1*", "*mwp1*", "mwc1*", "*wc1*", "*space-MNI*_label-GM_probseg*", "*")
GREY_MATTER = r"(?i)wp1|wc1|label-GM"
# Shares of grey matter lie between these, whoever the person is.
SHARES = "[0.0, 1.0]"
# Means over fewer places have less noise.
MOST_CUBES = 100


class Outcomes(NamedTuple):
    """Outcomes of a contrast, as a study file and the sites' files say them."""

    sites: list[SiteFolder]
    covariates: CovariatesText
    text: str
    """Blocks of the space and the features."""
    lines: list[str]
    """What the sites' folders hold."""
    line: str
    """What the study is of."""
    decisions: list[str]


def write(beginning: init_from_folders.Beginning) -> tuple[list[str], list[str]]:
    """Write a contrast of the sites' folders.

    Of maps without a template cubes are outcomes.

    Returns
    -------
    lines, todo
        Messages for the user, and decisions that only the user can make.
    """
    try:
        return init_networks.write(beginning)
    except init_from_folders.NoRuns:
        pass  # maps, or tables
    folder, sources, data, protocol, person, template, columns = beginning
    names = init_from_folders.site_names(sources)
    keys = [{"name": n, "data": data, "person": person, "epsilon": 2.0} for n in names]
    if any(search(f"{source}/**/*.nii*")[0] for source in sources):
        outcomes = _of_maps(folder, sources, template, keys, columns)
    elif template is None:
        outcomes = _of_tables(folder, sources, keys, columns)
    else:
        raise ConfigError("--template: is of images, and the folders have none")
    for site in outcomes.sites:
        text = init_from_folders.site_text(site, data)
        files.write_text(folder / f"config/sites/{site.name}.yaml", text)
    name = scaffold.label(folder.resolve().name) or scaffold.FILL_IN["study"]
    text = study_text(name, names, outcomes.text, outcomes.covariates.lines)
    ending = init_from_folders.ending_text(data, protocol, scaffold.RULES_OF_INIT)
    files.write_text(folder / "config/config.yaml", text + ending)
    lines = ["What the sites' folders hold (shown here, kept in no file):"]
    lines += [*outcomes.lines, "", "What goes into the study file, which all parties "]
    lines[-1] += "read:"
    return [*lines, outcomes.line], [
        *outcomes.decisions,
        *outcomes.covariates.decisions,
    ]


def _of_maps(
    folder: Path,
    sources: Sequence[Path],
    template: str | None,
    keys: Sequence[dict[str, Any]],
    columns: Sequence[str],
) -> Outcomes:
    """Outcomes that are means of maps over an atlas's regions, or over cubes."""
    regions = None if template is None else init_networks.find_template(template)
    if regions is not None and (
        regions.image is None or not init_networks.is_atlas(regions)
    ):
        raise ConfigError(
            f"--template: {template}: outcomes of maps are means over the regions of "
            "an atlas, a 3-D image of labels; give one, or leave it out for cubes"
        )
    tables = [init_people.find_people(source) for source in sources]
    covariates = init_people.covariates_text(tables, keys[0]["data"], columns)
    sites, lines, first, are_shares = [], [], [], True
    for source, table, site_keys in zip(sources, tables, keys, strict=True):
        site, maps = find_maps(source, site_keys)
        images = init_from_folders.moved(site.images, folder)
        people = table and Path(os.path.relpath(table, folder))
        sites.append(SiteFolder(site.name, site, images, [], people=people))
        first.append(maps[0])
        are_shares &= all(re.search(GREY_MATTER, file.name) for file in maps)
        lines.append(
            f"{site.name}: {len(maps)} maps, one a person, in {site.images}, such as "
            f"{maps[0].name}"
        )
    decisions = []
    if not are_shares:
        decisions.append(
            "write the least and largest value of an outcome, that public maps have, "
            "into rows.features.bounds of the study file"
        )
    space, line = _space(folder, first, regions)
    if init_from_folders.TO_DECIDE in space:
        decisions.append(
            f"put a public mask in the maps' space at {init_from_folders.TO_DECIDE} "
            "(space.mask); docs/derivatives.md makes one"
        )
    bounds = SHARES if are_shares else "null  # DECIDE: [low, high] of public maps"
    text = f"""\
{space}

rows:
  features:
    kind: maps
    # Least and largest value of each outcome. Narrower ones, that public people of the
    # same maps have, leave less noise where there is no public covariance.
    bounds: {bounds}"""
    return Outcomes(sites, covariates, text, lines, line, decisions)


def find_maps(source: Path, keys: dict[str, Any]) -> tuple[SiteConfig, list[Path]]:
    """Find a site's maps, one of each person, and the site file that chooses them.

    Raises
    ------
    ConfigError
        If there are none, or two of a person.
    """
    patterns = [f"{source}/**/{pattern}.nii*" for pattern in PATTERNS]
    images = next((p for p in patterns if search(p)[0]), str(source))
    if any(source.glob("sub-*/**/*statmap.nii*")):
        images = str(source)
    site = SiteConfig.model_validate({**keys, "images": images})
    try:
        people = maps_in_folder(site).people
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
    maps = [file for files_of_person in people.values() for file in files_of_person]
    return site, maps


def _space(
    folder: Path, first: list[Path], regions: Template | None
) -> tuple[str, str]:
    """Write the mask and the atlas; the study file's block, and a line on it."""
    images = [nifti.open_image(file, 3) for file in first]
    resample = not all(same_grid(image, images[0]) for image in images)
    mask = init_from_folders.write_standard_mask(first, images, folder)
    path, why = init_from_folders.MASK, init_from_folders.WHY_STANDARD
    if mask is None:
        path, why = init_from_folders.TO_DECIDE, "DECIDE: a mask in the maps' space"
    if regions is None:
        size = 2 if mask is None else nifti.grid_for(mask, MOST_CUBES)[0]
        basis = "  # Cubes of so many voxels in edge are the outcomes.\n"
        basis += f"  basis: grid\n  grid_size: {size}"
        # Images of one grid have the edges of the first, with or without a mask.
        edge = labels.extent(images[0], size)
        names, places = "", f"cubes of {size} voxels ({edge})"
        places += "; a --template of few regions has fewer, with names, and less noise"
    else:
        shutil.copyfile(regions.image, folder / ATLAS)
        rows = list(map(list, zip(regions.labels, regions.names, strict=True)))
        files.write_table(folder / REGIONS, ["index", "name"], rows)
        basis = f"  basis: atlas\n  basis_file: {ATLAS}"
        names = f"\nnames: [{{file: {ATLAS}, labels: {REGIONS}}}]"
        places = f"{len(rows)} regions"
    text = f"""\
space:
  # {why[0].upper() + why[1:]}.
  mask: {path}
{basis}
  # Maps on another grid than the mask's are resampled; false: refused.
  resample: {str(resample).lower()}{names}"""
    return text, f"  space: {path} ({why}); outcomes are means over {places}"


def _of_tables(
    folder: Path,
    sources: Sequence[Path],
    keys: Sequence[dict[str, Any]],
    columns: Sequence[str],
) -> Outcomes:
    """Outcomes that are columns of a table of each site."""
    sites, tables, lines, names = [], [], [], []
    for source, site_keys in zip(sources, keys, strict=True):
        table, people = find_table(source), init_people.find_people(source)
        people = None if people == table else people
        site = SiteConfig.model_validate({**site_keys, "images": str(table)})
        images = init_from_folders.moved(site.images, folder)
        relative = people and Path(os.path.relpath(people, folder))
        sites.append(SiteFolder(site.name, site, images, [], people=relative))
        tables.append(people or table)
        contents = open_texts(table)
        lines.append(f"{site.name}: {len(contents)} rows in {table}")
        names.append([c for c in contents if c not in {ID, *columns}])
    shared = [name for name in names[0] if all(name in of_site for of_site in names)]
    if not shared:
        raise ConfigError(
            "--from: the sites' tables share no column that could be an outcome; the "
            f"first has {some(names[0])}"
        )
    covariates = init_people.covariates_text(tables, keys[0]["data"], columns)
    # Privacy: names of columns alone; bounds are public, and never read off the data.
    rows = [[name, "", ""] for name in shared]
    files.write_table(folder / FEATURES, ["feature", "low", "high"], rows)
    text = f"""\
# Features are of no image.
space: null

rows:
  features:
    kind: table
    # A row for each column that is an outcome, with its public low and high.
    features: {FEATURES}"""
    decision = (
        f"keep in {FEATURES} the columns that are outcomes, and write the public low "
        "and high of each"
    )
    line = f"  outcomes: {len(shared)} columns of all sites' tables, in {FEATURES}"
    return Outcomes(sites, covariates, text, lines, line, [decision])


def find_table(source: Path) -> Path:
    """Find the only table of a folder beside `participants.tsv`, or that one.

    Raises
    ------
    ConfigError
        If there is none, or more than one.
    """
    tables = sorted(source.glob("*.[tc]sv"))
    of_features = [file for file in tables if file.name != "participants.tsv"]
    if len(of_features or tables) == 1:
        return (of_features or tables)[0]
    raise ConfigError(
        f"--from: {source}: has no 4-D images, no maps and "
        + (
            f"several tables ({some(f.name for f in of_features)})"
            if tables
            else "no table"
        )
        + "; name a folder with runs, with a map of each person, or with one table"
    )


def study_text(name: str, names: list[str], outcomes: str, covariates: str) -> str:
    """Text of a study file of maps or tables with the keys that need a decision."""
    sites = ", ".join(f"config/sites/{site}.yaml" for site in names)
    return f"""\
# A contrast: by how much outcomes differ between groups of people, or with a number.
# Keys that need a decision; all others have defaults, see docs/contrasts.md.
study: {name}
sites: [{sites}]

{outcomes}
contrast:
  # Columns of each site's table of people, participants.tsv: groups, which are compared
  # with the first, or numbers with their public mean and deviation.
{covariates}
  # Public covariance and means of these outcomes, of other people, lower the noise:
  # capeneuro prior makes such a table.
  covariance: null
"""
