"""`capeneuro init --kind networks`: a study of the connectivity of named networks.

Its parties get the template's maps and a table of networks beside the study file, under
`config/`; all of it is public.
"""

import importlib
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.scaffold import RULES_OF_INIT
from capeneuro.config.sections import is_cifti
from capeneuro.data import beside, cifti, derivatives, files, nifti
from capeneuro.data.tables import as_whole_number, open_texts
from capeneuro.studies import init_from_folders, init_people, surface
from capeneuro.studies.init_from_folders import Design, SiteFolder

MAPS = "config/template.nii.gz"
TABLE = "config/networks.tsv"
# Columns of tables of public templates, the first that is there.
NAME = ("name", "label", "peak_aal", "region", "network")
DOMAIN = ("domain", "network", "family", "yeo7", "best_yeo7")
ATLASES = "capeneuro_atlases"


class Template(NamedTuple):
    """Networks of a public template."""

    image: Path | None
    """Maps (4-D) or labelled regions (3-D); None: parcels of series on the surface."""
    table: Path
    """Table with a row for each."""
    names: list[str]
    """Of networks, each once."""
    domains: list[str]
    """Of each network; empty where the table has none."""
    labels: list[str]
    """What the study finds networks by: number of the map, label, or parcel's name."""


def find_template(template: str) -> Template:
    """Find a template of networks, and read its table.

    Parameters
    ----------
    template
        A name of the package ``capeneuro-atlases``, an image with a table (.tsv) of the
        same name beside it, or, for parcels on the surface, a table.

    Raises
    ------
    ConfigError
        If there is none, or its table lacks rows or names.
    """
    path = Path(template)
    if not path.suffix:
        return _packaged(template)
    if not path.is_file():
        raise ConfigError(f"--template: {path}: is no file")
    if path.suffix == ".tsv":
        return _with_names(None, path)
    stem = path.name.split(".nii")[0]
    tables = [path.with_name(f"{stem}.tsv")]
    tables.append(path.with_name(f"{stem.rpartition('_')[0]}.tsv"))
    table = next((file for file in tables if file.is_file()), None)
    if table is None:
        raise ConfigError(
            f"--template: {path}: needs a table of its networks at {tables[0]}, with "
            "index and name, and domain if they have one"
        )
    return _with_names(path, table)


def _packaged(name: str) -> Template:
    """Read a template of the data package."""
    try:
        atlases = importlib.import_module(ATLASES)
        return _with_names(atlases.path(name), atlases.labels(name))
    except ModuleNotFoundError:
        raise ConfigError(
            f"--template: {name}: is no file, and templates by name need the package "
            "capeneuro-atlases; give an image (.nii.gz) with a table (.tsv) beside it"
        ) from None
    except ValueError as error:
        raise ConfigError(f"--template: {error}") from None


def _with_names(path: Path | None, table: Path) -> Template:
    """Read names and domains of a template's networks."""
    shape = () if path is None else nifti.open_image(path, 3, 4).shape
    n_maps = shape[3] if len(shape) == 4 else None
    rows = open_texts(table)
    name = next((column for column in NAME if column in rows), None)
    if name is None or not len(rows):
        raise ConfigError(
            f"--template: {table}: must have rows of networks with a column "
            f"{' or '.join(NAME)}; it has {some(rows.columns)}"
        )
    if n_maps is not None:
        rows = _in_order(rows, n_maps, table)
    if path is None:
        labels = rows[name].tolist()
    elif n_maps is not None:
        labels = [str(k + 1) for k in range(len(rows))]
    elif "index" in rows:
        labels = rows["index"].tolist()
    else:
        raise ConfigError(f"--template: {table}: regions need a column index")
    domain = next((column for column in DOMAIN if column in rows), None)
    domains = rows[domain].tolist() if domain and domain != name else []
    names = [
        text.strip() or label for text, label in zip(rows[name], labels, strict=True)
    ]
    many = {text for text, n in Counter(names).items() if n > 1}
    names = [
        f"{text} {label}" if text in many else text
        for text, label in zip(names, labels, strict=True)
    ]
    return Template(path, table, names, domains, labels)


def _in_order(rows: Any, n_maps: int, table: Path) -> Any:
    """Rows of a template's table in the order of its maps, by their `index`."""
    if len(rows) != n_maps:
        raise ConfigError(
            f"--template: {table}: must have a row for each of {n_maps} maps, has "
            f"{len(rows)}"
        )
    if "index" not in rows:
        return rows
    index = [as_whole_number(cell) for cell in rows["index"]]
    for first in (0, 1):
        order = [str(first + k) for k in range(n_maps)]
        if sorted(index) == sorted(order):
            return rows.iloc[[index.index(number) for number in order]]
    raise ConfigError(
        f"--template: {table}: index: must number the {n_maps} maps from 1, or from 0, "
        f"each once, got {some(index)}"
    )


def write(beginning: init_from_folders.Beginning) -> tuple[list[str], list[str]]:
    """Write a study of named networks of the sites' folders.

    Returns
    -------
    lines, todo
        Messages for the user, and decisions that only the user can make.
    """
    folder, sources, kind, protocol, person, template, columns = beginning
    folders = init_from_folders.inspect_all(folder, sources, kind, person)
    if template is None:
        raise ConfigError(
            "--template: the folders have 4-D runs, and a contrast compares the "
            "connectivity of named networks in them; give maps or an atlas of networks"
        )
    networks = find_template(template)
    tables = [init_people.find_people(source) for source in sources]
    covariates = init_people.covariates_text(tables, kind, columns)
    folders = [
        site._replace(people=table and Path(os.path.relpath(table, folder)))
        for site, table in zip(folders, tables, strict=True)
    ]
    text_of = partial(study_text, networks, covariates.lines)
    lines, todo = init_from_folders.write_study(
        folder, folders, kind, protocol, text_of
    )
    _copy(networks, folder)
    n, n_domains = len(networks.names), len(set(networks.domains))
    lines.append(f"  networks: {n} of {template}, in {n_domains or 'no'} domains")
    if init_from_folders.TO_DECIDE in (folder / "config/config.yaml").read_text():
        todo.append(
            f"put a public mask in the images' space at {init_from_folders.TO_DECIDE} "
            "(space.mask); docs/derivatives.md makes one"
        )
    todo += [text for site in folders if (text := _without_time(site))]
    return lines, [*dict.fromkeys(todo), *covariates.decisions]


def _without_time(site: SiteFolder) -> str:
    """Decision about a site whose repetition time is not known; empty: it is."""
    people = derivatives.find_runs(site.site)
    runs = next(iter(people.values()))
    if any(map(is_cifti, runs)) or beside.one_time(runs, site.site)[0] is not None:
        return ""
    return f"write repetition_time [s] into config/sites/{site.name}.yaml"


def _copy(template: Template, folder: Path) -> None:
    """Write the template's maps and table into the study's folder."""
    key = "name" if template.image is None else "index"
    if template.image is None:
        parcels = cifti.read_parcels(folder / surface.PARCELS).names
        if lacking := sorted(set(parcels) - set(template.labels)):
            raise ConfigError(
                f"--template: {template.table}: must have a row for each parcel of the "
                f"series, lacks {some(lacking)}"
            )
    else:
        shutil.copyfile(template.image, folder / MAPS)
    domains = template.domains or [""] * len(template.names)
    rows = zip(template.labels, template.names, domains, strict=True)
    header = [key, "network", "domain"]
    files.write_table(folder / TABLE, header, list(map(list, rows)))


def study_text(
    template: Template,
    covariates: str,
    name: str,
    names: list[str],
    design: Design,
    kind: str,
    protocol: tuple[int | None, int | None],
) -> str:
    """Text of a study file of networks with the keys that need a decision."""
    by_domain = bool(template.domains) and len(template.names) > MOST_NETWORKS
    column = "domain" if by_domain else "network"
    families = "domain" if template.domains and not by_domain else "null"
    sites = ", ".join(f"config/sites/{site}.yaml" for site in names)
    return f"""\
# A study of named networks: how strongly they go together in each person (functional
# network connectivity), and by how much groups of people differ in it. Keys that need a
# decision; all others have defaults, see docs/networks.md.
study: {name}
sites: [{sites}]

{_space(template, design)}

rows:
  features:
    kind: runs
{_courses(template)}
    # connectivity: Fisher's z of each pair. Also amplitude, spectra, occupancy.
    measures: [connectivity]
    domains:
      file: {TABLE}
      # network: each pair of them. domain: means over domains, with less noise.
      column: {column}
      families: {families}
    cleaning:
      standardize: zscore
{_cleaning(design)}
contrast:
  # Columns of each site's table of people, participants.tsv: groups, which are compared
  # with the first, or numbers with their public mean and deviation.
{covariates}
  # Public covariance and means of these outcomes, of other people, lower the noise and
  # give the mean connectivity of the group: capeneuro prior makes such a table.
  covariance: null
{init_from_folders.ending_text(kind, protocol, RULES_OF_INIT)}\
"""


# Networks of which each pair is an outcome, without being told so.
MOST_NETWORKS = 20


def _space(template: Template, design: Design) -> str:
    """The space block."""
    if template.image is None:
        return f"space:\n  mask: {design.mask}\n  basis: parcels"
    basis = "atlas" if is_atlas(template) else "template"
    mask, why = design.mask, design.why_mask
    if mask == "computed":
        mask, why = init_from_folders.TO_DECIDE, "DECIDE: a mask in the images' space"
    return f"""\
space:
  # {why[0].upper() + why[1:]}.
  mask: {mask}
  basis: {basis}
  basis_file: {MAPS}
  # Images on another grid than the mask's are resampled; false: refused.
  resample: {str(design.resample).lower()}"""


def is_atlas(template: Template) -> bool:
    """Whether a template is of labelled regions, and not of maps."""
    return len(nifti.open_image(template.image, 3, 4).shape) == 3


def _courses(template: Template) -> str:
    """How time courses are found."""
    if template.image is None or is_atlas(template):
        return "    # Means over regions are time courses."
    return """\
    # constrained: maps where each person has them (GIG-ICA), time courses by regression
    # on the template. regressed: a dual regression. gift: both by GIG-ICA.
    courses: constrained"""


def _cleaning(design: Design) -> str:
    """Keys of the cleaning that the images decide."""
    cleaning = design.cleaning
    columns = [] if isinstance(cleaning.confounds, str) else cleaning.confounds
    strategy = getattr(cleaning.confounds, "strategy", None)
    confounds = strategy or f"[{', '.join(columns)}]"
    masked = f"      run_mask: {str(cleaning.run_mask).lower()}\n"
    voxels = f"      max_constant_voxels: {cleaning.max_constant_voxels:g}\n"
    on_surface = not design.size
    return f"      confounds: {confounds}\n" + ("" if on_surface else masked + voxels)
