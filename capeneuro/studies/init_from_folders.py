"""`capeneuro init --from`: write a study that runs from the sites' folders of images.

The study file gets choices of design that a protocol states (task, space, grid, rules
of thumb with their source). Counts of people, runs and volumes are printed and written
nowhere.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from capeneuro.config import scaffold
from capeneuro.config.errors import ConfigError
from capeneuro.config.names import name_of, stated
from capeneuro.config.sections import Cleaning, is_cifti
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cifti, cleaning, derivatives, files, nifti, survey
from capeneuro.data.images import same_grid
from capeneuro.studies import layouts, surface

# Folders that programs name, not sites.
OF_PROGRAMS = r"(fmriprep|xcp_d|xcpd|halfpipe|derivatives|bids|data|output|out)[-_.\d]*"
ENDS = ".nii.gz", ".nii"
SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
# Preprocessing by fMRIPrep, XCP-D and ABCD-BIDS.
DESC = ("preproc", "denoised", "filtered")
EEG = (".vhdr", ".set", ".edf", ".bdf", ".fif", ".csv", ".xdf")
# A second moment of 1000 features takes little time, and its noise is small enough for
# some thousand people.
FEATURES = 1000
R = 10
MASK = "config/mask.nii.gz"
WHY_STANDARD = "the brain of MNI152 as nilearn has it, on the images' grid"
# Keys of the cleaning that do not depend on the images.
CLEANING: dict[str, Any] = {"standardize": "zscore", "max_constant_voxels": 0.2}
# The user puts a mask here where none could be made.
TO_DECIDE = "data/mask.nii.gz"
SOURCE = f"arithmetic of z-scores, and {scaffold.RULES_OF_INIT}"
# Motion parameters that all versions of fMRIPrep write.
MOTION = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]


class NoRuns(ConfigError):
    """A folder has no 4-D images."""


class SiteFolder(NamedTuple):
    """A site whose folder was inspected."""

    name: str
    site: SiteConfig
    """Its images, as a site file would choose them."""
    images: dict[str, Any] | str
    notes: list[str]
    """Other choices that the user has."""
    is_denoised: bool = False
    """Whether XCP-D, a setting of HALFpipe or ICA-FIX has removed noise before."""
    people: Path | None = None
    """Table of people, seen from the study's folder; None: the study reads none."""


def inspect(
    folder: Path, name: str, kind: str, base: Path, person: str | None = None
) -> SiteFolder:
    """Find a site's 4-D images and how to choose them.

    Parameters
    ----------
    folder
        As the user gave it: derivatives, a BIDS folder with derivatives in it, or a
        folder of images.
    name, kind
        Name of the site; its data are private, public or simulated.
    base
        Folder of the study, which paths are relative to.
    person
        Part of a path that names the person, as in a site file; None: as in BIDS.

    Raises
    ------
    ConfigError
        If there are no 4-D images, or their names do not give the person; with the
        files that there are.
    """
    inner = sorted(folder.glob("derivatives/*")) + sorted(folder.glob("*"))
    series = {p: derivatives.candidates(p) for p in (*inner, folder) if p.is_dir()}
    preprocessed = [p for p, runs in series.items() if any(map(_is_preprocessed, runs))]
    surface_folder, surface_series = surface.find([*inner, folder]) or (None, "")
    is_denoised = False
    if preprocessed:
        images, notes = _choices(preprocessed[0], series[preprocessed[0]])
        # Of XCP-D, and of HALFpipe, whose settings remove noise.
        is_denoised = images.get("desc") == "denoised" or "filters" in images
        if surface_folder is not None:
            notes.append(f"took volumes; {surface.BESIDE} {surface_series}")
        if preprocessed[1:]:
            unused = ", ".join(map(str, preprocessed[1:]))
            note = f"took {preprocessed[0]}; for others name them in --from: {unused}"
            notes.append(note)
    elif surface_folder is not None:
        runs = derivatives.candidates(surface_folder, surface_series)
        images, notes = _choices(surface_folder, runs)
        images["series"] = surface_series
        notes.append(f"took series on the surface (CIFTI), {surface_series}")
    elif (layout := layouts.find(folder)) is not None:
        images, notes, is_denoised = layout.images, layout.notes, layout.is_denoised
    elif series[folder]:
        images, notes = str(folder), ["raw BIDS: were these images preprocessed?"]
    else:
        images, notes = _plain(folder), []
    keys = {"images": images, "name": name, "data": kind, "person": person}
    promise = {"epsilon": 2.0, "delta": 1e-5, "unit": "subject"}
    site = SiteConfig.model_validate({**keys, **promise})
    try:
        people = derivatives.find_runs(site)
    except ConfigError as error:
        text = (
            str(error).replace("in the site file ", "").replace("person: ", "--person ")
        )
        raise ConfigError(f"--from: {text}") from None
    paths = [path for runs in people.values() for path in runs]
    if not notes and len(paths) == len(people) and not any(map(stated, paths)):
        notes = ["each file counts as ONE PERSON; those of one person are to be named"]
        notes = [f"{notes[0]} sub-<label>_run-1_bold.nii.gz, sub-<label>_run-2_..."]
    return SiteFolder(name, site, moved(images, base), notes, is_denoised)


def _is_preprocessed(file: Path) -> bool:
    """Whether a file is preprocessed, by the entities of its name."""
    return not {*derivatives.DONE, "space"}.isdisjoint(derivatives.entities(file))


def moved(images: dict[str, Any] | str, base: Path) -> dict[str, Any] | str:
    """The same images, seen from the study's folder."""
    if isinstance(images, str):
        return images if os.path.isabs(images) else os.path.relpath(images, base)
    folder = moved(images["derivatives"], base)
    return {**images, "derivatives": folder}


def _choices(place: Path, series: list[Path]) -> tuple[dict[str, Any], list[str]]:
    """Choose the keys of `images`; of several labels the usual one, with a note."""
    images: dict[str, Any] = {"derivatives": str(place)}
    notes = []
    usual = {"task": ("rest",), "desc": DESC, "setting": ()}
    usual |= {"space": SPACES, "res": ("2",), **surface.USUAL}
    selected = series
    for key, best in usual.items():
        labels = Counter(derivatives.entities(file).get(key) for file in selected)
        named = [value for value in labels if value is not None]
        first = next((v for v in best if v in named), None)
        chosen = first or (named[0] if len(named) == 1 else None)
        if key == "task" and len(named) > 1 and first is None:
            notes.append(f"task: all of {', '.join(sorted(named))}; name one")
        if chosen is None and len(named) > 1 and key != "task":
            chosen = sorted(named)[0]
        if key == "desc" and chosen is None:
            images[key] = []
        if chosen is None:
            continue
        if key == "setting" or key in surface.USUAL:
            images.setdefault("filters", {})[key] = chosen
        elif key != "desc" or chosen != "preproc":
            images[key] = chosen
        alternatives = sorted(str(v or "none") for v in labels if v != chosen)
        if alternatives:
            also = ", ".join(alternatives)
            notes.append(f"{key}: took {chosen}; there is also {also}")
        selected = [f for f in selected if derivatives.entities(f).get(key) == chosen]
    if runs := _single_runs(selected):
        images["run"] = runs
        notes.append(
            f"run: took {', '.join(runs)}; there is also none, which may hold all runs "
            "of a person: write run: none into the site files for these"
        )
    return images, notes


def _single_runs(series: list[Path]) -> list[str]:
    """Labels of single runs, where a person also has a file of all runs together."""
    people: dict[str, list[Path]] = defaultdict(list)
    for file in series:
        people[name_of(file)].append(file)
    if not any(map(derivatives.combined, people.values())):
        return []
    labels = {derivatives.entities(file).get("run") for file in series}
    return sorted(label for label in labels if label is not None)


def _is_series(file: Path) -> bool:
    return len(nifti.open_image(file, 3, 4).shape) == 4


def _plain(folder: Path) -> str:
    for beginning in ("*", "**/*bold*", "**/*"):
        by_ending = {end: folder.glob(beginning + end) for end in ENDS}
        ends = [end for end, files in by_ending.items() if any(map(_is_series, files))]
        if ends:  # one pattern for both, or people would be passed over
            return f"{folder}/{beginning}{ends[0] if len(ends) == 1 else '.nii*'}"
    tables = [p.name for p in sorted(folder.glob("*.[tc]sv"))]
    recordings = [p.name for p in sorted(folder.rglob("*")) if p.suffix in EEG[:5]]
    if recordings:
        hint = f"EEG such as {recordings[0]}: capeneuro init STUDY --kind contrast"
        hint += ", and `eeg` in its site files, as docs/eeg.md has it"
    elif tables:
        hint = f"the table {tables[0]}: capeneuro init STUDY --kind contrast --from"
        hint += " FOLDERS, or regression, and `images` in its site files: docs/rows.md"
    else:
        hint = "nothing to read; name a folder with sub-*/ or *.nii.gz in it"
    raise NoRuns(f"--from: {folder}: no 4-D images; there is {hint}")


def site_names(folders: list[Path]) -> list[str]:
    """Name sites by the last part of each path that is no program's folder."""
    names: list[str] = []
    for folder in folders:
        parts = [p for p in folder.resolve().parts[1:] if not _is_of_program(p)]
        name = (scaffold.label(parts[-1]) if parts else "") or "site"
        while name in names:
            name = f"{name}-{len(names) + 1}"
        names.append(name)
    return names


def _is_of_program(part: str) -> bool:
    return re.fullmatch(OF_PROGRAMS, part.lower()) is not None


class Design(NamedTuple):
    """Space and cleaning of the study file, all of it public."""

    resample: bool
    mask: str
    size: int
    """Edge of a cube in voxels; 0: features are parcels."""
    features: int | None
    cleaning: Cleaning
    why_mask: str


def choose_design(folders: list[SiteFolder], base: Path) -> Design:
    """Choose mask, cubes and cleaning; a standard mask is written into ``base``.

    Raises
    ------
    ConfigError
        If the sites' images lie on several grids.
    """
    people = {folder.name: derivatives.find_runs(folder.site) for folder in folders}
    runs = {name: list(chain(*persons.values())) for name, persons in people.items()}
    first = {name: of_site[0] for name, of_site in runs.items()}
    if any(map(is_cifti, first.values())):
        return _of_parcels(folders, runs, base)
    is_open = all(folder.site.data != "private" for folder in folders)
    images = [nifti.open_image(run, 4) for run in first.values()]
    mask, features, size = "computed", None, 2
    why = "from the data, which are not private; for private data a public mask"
    like = images[0]
    standard_mask = write_standard_mask(first.values(), images, base)
    if standard_mask is not None:
        mask, why = MASK, WHY_STANDARD
        size, features = nifti.grid_for(standard_mask, FEATURES)
    elif not is_open:  # native images, or such as are called MNI152 and are not
        mask, why = TO_DECIDE, "DECIDE: a public mask in the images' own space"
    elif not _has_computed_mask(first):
        mask = TO_DECIDE
        why = "DECIDE: no mask can be computed of these images; a mask in their space"
    keys = dict(CLEANING)
    if all(beside.mask_file(run).is_file() for run in chain(*runs.values())):
        keys["run_mask"] = True
    if not any(folder.is_denoised for folder in folders):
        keys["confounds"] = _usual_confounds(folders, first)
    resample = not all(same_grid(image, like) for image in images)
    return Design(resample, mask, size, features, Cleaning(**keys), why)


def write_standard_mask(
    files_of_sites: Iterable[Path], images: Sequence[Any], base: Path
) -> Any | None:
    """Write MNI152's brain on the images' grid to :data:`MASK`; None: it has no place.

    Parameters
    ----------
    files_of_sites, images
        One image a site, whose names or headers give their space, and as it was opened.
    base
        Folder of the study.
    """
    spaces = {derivatives.space(file) for file in files_of_sites}
    # SPM, CONN and FSL write the space into headers, ABCD-BIDS also as `space-MNI`.
    in_header = spaces <= {"", "MNI"} and all(map(nifti.is_in_mni152, images))
    by_name = len(spaces) == 1 and min(spaces).startswith("MNI152")
    mask = nifti.standard_mask(images[0]) if by_name or in_header else None
    if mask is not None:
        nifti.write_mask(base / MASK, mask)
    return mask


def _of_parcels(
    folders: list[SiteFolder], runs: dict[str, list[Path]], base: Path
) -> Design:
    """Parcels and cleaning of series on the surface."""
    first = {name: of_site[0] for name, of_site in runs.items()}
    parcels = surface.choose(first, base)
    images = [folder.images for folder in folders if isinstance(folder.images, dict)]
    keys = dict(CLEANING)
    # fMRIPrep's alone are neither denoised nor means of parcels.
    if images and all(i["series"] == "dense" and not i.get("desc") for i in images):
        keys["confounds"] = _usual_confounds(folders, first)
    cleaning = Cleaning(**keys)
    return Design(False, parcels.mask, 0, parcels.number, cleaning, parcels.why)


def _has_computed_mask(first: dict[str, Path]) -> bool:
    try:
        nifti.compute_mask(first.values())
    except ConfigError:
        return False
    return True


def _usual_confounds(
    folders: list[SiteFolder], first: dict[str, Path]
) -> str | list[str]:
    """The usual confounds that each site's first run has, or none."""
    for confounds in ("simple", MOTION):
        options = Cleaning(standardize="zscore", confounds=confounds)
        with suppress(ConfigError):
            for folder in folders:
                run = first[folder.name]
                cleaning.regressors(run, folder.site, options, cifti.n_volumes(run))
            return confounds
    return []


class Beginning(NamedTuple):
    """Folders of data that a new study begins with, and public answers about them."""

    folder: Path
    """New folder of the study."""
    sources: list[Path]
    """Folders of data, one a site."""
    data: str
    """Kind of the data: private, public or simulated."""
    protocol: tuple[int | None, int | None] = (None, None)
    """People at all sites, and volumes of one person, by the study's protocol."""
    person: str | None = None
    """Pattern of the person in a path, as of :func:`inspect`."""
    template: str | None = None
    """Networks or regions, as of :func:`.init_networks.find_template`."""
    columns: Sequence[str] = ()
    """Columns of tables of people, as of :func:`.init_people.covariates_text`."""


def write(beginning: Beginning) -> tuple[list[str], list[str]]:
    """Write a study of components of the sites' folders.

    Returns
    -------
    lines, todo
        Messages for the user, and decisions that only the user can make.
    """
    folder, sources, data, protocol, person, *_ = beginning
    folders = inspect_all(folder, sources, data, person)
    return write_study(folder, folders, data, protocol)


def inspect_all(
    folder: Path, sources: list[Path], kind: str, person: str | None
) -> list[SiteFolder]:
    """Inspect the folders of all sites, see :func:`write` and :func:`inspect`.

    Raises
    ------
    ConfigError
        If there are fewer than two, or two are of the same images.
    """
    for source in sources:
        if not source.is_dir():
            raise ConfigError(f"--from: {source}: is no folder; name one of a site")
    if len(sources) < 2:
        raise ConfigError(
            f"--from: a federation needs at least 2 sites, got {len(sources)}"
        )
    pairs = zip(sources, site_names(sources), strict=True)
    folders = [inspect(source, name, kind, folder, person) for source, name in pairs]
    source_of: dict[Path, Path] = {}
    for source, inspected in zip(sources, folders, strict=True):
        first = source_of.setdefault(Path(inspected.site.folder).resolve(), source)
        if first is not source:
            raise ConfigError(
                f"--from: {source}: has the images that {first} has; people would "
                "count twice: name a folder of each site's own"
            )
    return folders


def write_study(
    folder: Path,
    folders: list[SiteFolder],
    kind: str,
    protocol: tuple[int | None, int | None] = (None, None),
    text_of: Callable[..., str] | None = None,
) -> tuple[list[str], list[str]]:
    """Write a study of sites whose folders were inspected; as :func:`write`.

    ``text_of`` makes the study file, as :func:`study_text` does.
    """
    names = [inspected.name for inspected in folders]
    lines = ["What the sites' folders hold (shown here, kept in no file):", ""]
    for inspected in folders:
        lines += survey.lines(inspected.site)
        lines += [f"  {note}" for note in inspected.notes]
    design = choose_design(folders, folder)
    for inspected in folders:
        text = site_text(inspected, kind)
        files.write_text(folder / f"config/sites/{inspected.name}.yaml", text)
    name = scaffold.label(folder.resolve().name) or scaffold.FILL_IN["study"]
    text = (text_of or study_text)(name, names, design, kind, protocol)
    files.write_text(folder / "config/config.yaml", text)
    lines += ["", "What goes into the study file, which all parties read:"]
    basis = f"cubes of {design.size} voxels" if design.size else "means over parcels"
    lines.append(f"  space: {design.mask} ({design.why_mask})")
    if text_of is None:
        lines[-1] += f", {basis}"
    if design.resample:
        lines.append("  the sites' images lie on several grids: resample is true")
    lines.append(f"  cleaning: {_cleaning_line(design.cleaning)}")
    lines.append(
        "  rules of thumb with their sources; no count, and no name of a person"
    )
    lines.append(
        "What stays at each site: its own file in config/sites/, with its path."
    )
    todo = []
    if design.mask == TO_DECIDE:
        todo.append(
            f"put a public mask in the images' space at {TO_DECIDE} (space.mask); "
            "docs/derivatives.md makes one"
        )
    if design.mask == TO_DECIDE and text_of is None:
        todo.append(
            "set pca.norm_bound to the root of the number of features on that mask: "
            "the last line of capeneuro validate config/config.yaml counts them"
        )
    if design.mask == surface.TO_DECIDE:
        todo.append(
            f"put a public parcellation (.dlabel.nii) at {design.mask} (space.mask), "
            "and the root of its number of parcels into pca.norm_bound, if there is "
            "one; docs/derivatives.md says where there are some"
        )
    is_raw = not all(inspected.is_denoised for inspected in folders)
    if is_raw and not design.cleaning.confounds and kind != "simulated":
        todo.append(
            "nothing takes out motion: if tables of confounds are there, choose "
            "cleaning.confounds in the study file"
        )
    if kind == "private" and protocol[1] is None:
        todo.append("write expected.volumes, as the protocol says, into the study file")
    return lines, todo


def _cleaning_line(options: Cleaning) -> str:
    with_ = getattr(options.confounds, "strategy", "no")
    with_ = "six motion parameters as" if options.confounds == MOTION else with_
    masked = ", each run's own brain mask" if options.run_mask else ""
    return f"z-scores, {with_} confounds{masked}"


def site_text(folder: SiteFolder, kind: str) -> str:
    """Text of a site file with the keys that need a decision."""
    import yaml

    people = None if folder.people is None else str(folder.people)
    keys = {"images": folder.images, "person": folder.site.person, "people": people}
    keys = {key: value for key, value in keys.items() if value is not None}
    yaml_keys = yaml.safe_dump(keys, sort_keys=False).strip()
    # A folder called 1 is a name, no number.
    name = yaml.safe_dump({"name": folder.name}).strip()
    return f"""\
# This site's own file, which never leaves it; other keys: capeneuro explain --site.
{name}
# Its images, chosen by what file names say; see docs/derivatives.md. Who must not take
# part stands here by name: without: ["03", "17"].
{yaml_keys}
# private, simulated or public. The last two need no noise: where all sites have them,
# write `arm: non-private` into the study file.
data: {kind}
# The largest loss that this site allows any of its people over all studies, ever. This
# is one study's; 2 to 5 times as much leaves room for others. The ledger of private
# data goes by the site's name above, whatever the study.
epsilon: 2.0
delta: 1.0e-5
unit: subject
"""


def study_text(
    name: str,
    names: list[str],
    design: Design,
    kind: str,
    protocol: tuple[int | None, int | None],
) -> str:
    """Text of a study file with the keys that need a decision."""
    options = design.cleaning
    columns = (
        f"[{', '.join(options.confounds)}]" if options.confounds == MOTION else "[]"
    )
    confounds = getattr(options.confounds, "strategy", columns)
    # With few parcels fewer components can be distinguished.
    n_components = min(R, max((design.features or FEATURES) // 4, 2))
    bound = (design.features or 900) ** 0.5
    sites = ", ".join(f"config/sites/{name}.yaml" for name in names)
    cubes = f", {design.features} of them" if design.features else ""
    space = f"""\
space:
  # {design.why_mask[0].upper() + design.why_mask[1:]}.
  mask: {design.mask}
  # Cubes of so many voxels in edge are the features{cubes}. Fewer features have
  # less noise: `capeneuro plan` says what it leaves.
  basis: grid
  grid_size: {design.size}
  # Images on another grid than the mask's are resampled; false: refused.
  resample: {str(design.resample).lower()}"""
    if not design.size:
        space = surface.space_text(design.mask, design.why_mask, design.features)
    return f"""\
# A study of components (PCA, then ICA). Keys that need a decision; all others have
# defaults, which `capeneuro explain` lists.
study: {name}
sites: [{sites}]

{space}

cleaning:
  # Each feature to variance 1: then the bounds below follow from arithmetic.
  standardize: zscore
  # simple (motion, white matter, fluid), scrubbing, compcor, a list of columns, or []
  # for none (Ciric et al. 2017 compare them).
  confounds: {confounds}
  # Voxels outside a run's own brain mask count as 0.
  run_mask: {str(options.run_mask).lower()}
  # Share of the mask's voxels that a run may lack.
  max_constant_voxels: {options.max_constant_voxels:g}
  # Rules in use elsewhere; none is on. Public numbers all, never tuned on these people:
  # scrub: {{fd_threshold: 0.5, std_dvars_threshold: null}}  # [mm] Power et al. 2012
  # exclude: {{max_mean_fd: 0.55}}  # [mm] Parkes et al. 2018; min_volumes: 4 minutes
  # dummy_scans: 4  # volumes, if the scanner kept them

# 10 networks is what halves of a consortium of some hundred people agree on.
n_components: {n_components}
ica:
  # Maps independent over space, as in group ICA.
  independence: spatial
pca:
  # The root of the number of features: of z-scores a volume's squared norm is that
  # number in the mean, whoever the person is. Change it with grid_size and standardize:
  # twice too large is up to four times the noise, which `capeneuro plan` cannot see.
  norm_bound: {bound:.3g}
  # A person's second moment; 1 / sqrt(n_components) if so many networks were all.
  clip: {n_components**-0.5:.2g}
{ending_text(kind, protocol, SOURCE)}\
"""


def ending_text(kind: str, protocol: tuple[int | None, int | None], source: str) -> str:
    """Text of the last keys of a study file: the protocol's numbers and the promise."""
    people, volumes = ("null" if n is None else n for n in protocol)
    arm = "cape" if kind == "private" else "non-private"
    why = (
        "noise that cancels at the aggregator protects every person"
        if kind == "private"
        else f"{kind} data need no noise; `cape` protects every person"
    )
    return f"""\
expected:
  # DECIDE, if data are private: numbers of the study's protocol, for the forecast.
  # People at all sites together; volumes of one person, whom nobody counts.
  people: {people}
  volumes: {volumes}
# Where these numbers come from; private data need this line.
source: {source}

# {why}.
arm: {arm}
budget:
  # What everybody is promised for the whole study: 1 to 2 is strong, 10 is weak.
  epsilon: 2.0
  # Well below one over the number of people.
  delta: 1.0e-5
  # subject: everything of a person. sample: one volume, which protects a person little.
  unit: subject
  relation: replace-one
"""
