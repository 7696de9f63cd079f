"""A first study from what the sites' folders hold: files that run, and what was seen.

What is written into the study file is design that a protocol states (task, space, grid,
rules of thumb with their source). Counts of people, runs and volumes are shown and kept
nowhere.
"""

import os
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from capeneuro.config import scaffold
from capeneuro.config.errors import ConfigError
from capeneuro.config.names import name_of
from capeneuro.config.sections import Cleaning, is_cifti
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cifti, cleaning, derivatives, files, nifti, survey
from capeneuro.data.images import same_grid
from capeneuro.studies import layouts, surface

# Names of folders that tell nothing of a site.
OF_PROGRAMS = r"(fmriprep|xcp_d|xcpd|halfpipe|derivatives|bids|data|output|out)[-_.\d]*"
ENDS = ".nii.gz", ".nii"
SPACES = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
# What was done: fMRIPrep's, XCP-D's, and ABCD-BIDS'.
DESC = ("preproc", "denoised", "filtered")
EEG = (".vhdr", ".set", ".edf", ".bdf", ".fif", ".csv", ".xdf")
# A second moment of so many features is quick, and its noise is small enough for some
# thousand people.
FEATURES = 1000
R = 10
MASK = "config/mask.nii.gz"
# Where a mask goes that nobody could make: those who begin the study put it there.
TO_DECIDE = "data/mask.nii.gz"
# What fMRIPrep's tables have of motion at least.
MOTION = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]


class Found(NamedTuple):
    """A site's folder."""

    name: str
    site: SiteConfig
    """Its images, as a site file would choose them."""
    images: dict[str, Any] | str
    notes: list[str]
    """What else there is to choose."""
    is_denoised: bool = False
    """Whether noise was taken out before: by XCP-D, HALFpipe's setting, ICA-FIX."""


def look(
    folder: Path, name: str, kind: str, base: Path, person: str | None = None
) -> Found:
    """Find a site's 4-D images and how to choose them.

    Parameters
    ----------
    folder
        As the user gave it: derivatives, a BIDS folder with derivatives in it, or a
        folder of images.
    name, kind
        Of the site, and what its data are.
    base
        Folder of the study, which paths are relative to.
    person
        What of a path is the person, as in a site file; None: as files are named.

    Raises
    ------
    ConfigError
        If there are no 4-D images, or nobody can tell whose they are; it says what
        there is.
    """
    inner = sorted(folder.glob("derivatives/*")) + sorted(folder.glob("*"))
    series = {p: derivatives.candidates(p) for p in (*inner, folder) if p.is_dir()}
    done = [p for p, files in series.items() if any(map(_is_done, files))]
    on_surface, is_denoised = surface.find([*inner, folder]), False
    if done:
        images, notes = _choices(done[0], series[done[0]])
        # XCP-D's, and HALFpipe's, whose settings say what was taken out.
        is_denoised = images.get("desc") == "denoised" or "filters" in images
        if on_surface is not None:
            notes.append(f"took volumes; {surface.BESIDE} {on_surface[1]}")
        if done[1:]:
            others = ", ".join(str(place) for place in done[1:])
            notes.append(f"took {done[0]}; for others name them in --from: {others}")
    elif on_surface is not None:
        images, notes = _choices(on_surface[0], derivatives.candidates(*on_surface))
        images["series"] = on_surface[1]
        notes.append(f"took series on the surface (CIFTI), {on_surface[1]}")
    elif (layout := layouts.find(folder)) is not None:
        images, notes, is_denoised = layout
    elif series[folder]:
        images, notes = str(folder), ["raw BIDS: were these images preprocessed?"]
    else:
        images, notes = _plain(folder), []
    given = {"images": images, "name": name, "data": kind, "person": person}
    promise = {"epsilon": 2.0, "delta": 1e-5, "unit": "subject"}
    site = SiteConfig.model_validate({**given, **promise})
    try:
        people = derivatives.find_runs(site)
    except ConfigError as error:
        said = (
            str(error).replace("in the site file ", "").replace("person: ", "--person ")
        )
        raise ConfigError(f"--from: {said}") from None
    if not notes and all(len(runs) == 1 for runs in people.values()):
        notes = ["each file counts as ONE PERSON; those of one person are to be named"]
        notes = [f"{notes[0]} sub-<label>_run-1_bold.nii.gz, sub-<label>_run-2_..."]
    return Found(name, site, moved(images, base), notes, is_denoised)


def _is_done(file: Path) -> bool:
    """Whether a file's name says that it was preprocessed."""
    return not {*derivatives.DONE, "space"}.isdisjoint(derivatives.entities(file))


def moved(images: dict[str, Any] | str, base: Path) -> dict[str, Any] | str:
    """The same images, seen from the study's folder."""
    if isinstance(images, str):
        return images if os.path.isabs(images) else os.path.relpath(images, base)
    where = moved(images["derivatives"], base)
    return {**images, "derivatives": where}


def _choices(place: Path, there: list[Path]) -> tuple[dict[str, Any], list[str]]:
    """What to take of derivatives; of several choices the usual one, with a note."""
    images: dict[str, Any] = {"derivatives": str(place)}
    notes = []
    usual = {"task": ("rest",), "desc": DESC, "setting": ()}
    usual |= {"space": SPACES, "res": ("2",), **surface.USUAL}
    left = there
    for key, best in usual.items():
        seen = Counter(derivatives.entities(file).get(key) for file in left)
        named = [value for value in seen if value is not None]
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
        others = sorted(str(v or "none") for v in seen if v != chosen)
        if others:
            notes.append(f"{key}: took {chosen}; there is also {', '.join(others)}")
        left = [f for f in left if derivatives.entities(f).get(key) == chosen]
    if runs := _single_runs(left):
        images["run"] = runs
        notes.append(
            f"run: took {', '.join(runs)}; there is also none, which may hold all runs "
            "of a person: write run: none into the site files for these"
        )
    return images, notes


def _single_runs(there: list[Path]) -> list[str]:
    """Labels of runs where somebody's are there one by one and in one file, too."""
    people: dict[str, list[Path]] = defaultdict(list)
    for file in there:
        people[name_of(file)].append(file)
    if not any(map(derivatives.combined, people.values())):
        return []
    labels = {derivatives.entities(file).get("run") for file in there}
    return sorted(label for label in labels if label is not None)


def _is_series(file: Path) -> bool:
    return len(nifti.open_image(file, 3, 4).shape) == 4


def _plain(folder: Path) -> str:
    for beginning in ("*", "**/*bold*", "**/*"):
        there = {end: folder.glob(beginning + end) for end in ENDS}
        ends = [end for end, files in there.items() if any(map(_is_series, files))]
        if ends:  # one pattern is of both, or somebody would be passed over
            return f"{folder}/{beginning}{ends[0] if len(ends) == 1 else '.nii*'}"
    tables = [p.name for p in sorted(folder.glob("*.[tc]sv"))]
    recordings = [p.name for p in sorted(folder.rglob("*")) if p.suffix in EEG[:5]]
    if recordings:
        hint = f"EEG such as {recordings[0]}: capeneuro init STUDY --kind contrast"
        hint += ", and `eeg` in its site files, as docs/eeg.md has it"
    elif tables:
        hint = f"the table {tables[0]}: capeneuro init STUDY --kind contrast, or"
        hint += " regression, and `images` in its site files, as docs/rows.md has it"
    else:
        hint = "nothing to read; name a folder with sub-*/ or *.nii.gz in it"
    raise ConfigError(f"--from: {folder}: no 4-D images; there is {hint}")


def site_names(folders: list[Path]) -> list[str]:
    """A name for each folder: the last part of its path that says something."""
    found: list[str] = []
    for folder in folders:
        parts = [p for p in folder.resolve().parts[1:] if not _tells_nothing(p)]
        name = (scaffold.label(parts[-1]) if parts else "") or "site"
        while name in found:
            name = f"{name}-{len(found) + 1}"
        found.append(name)
    return found


def _tells_nothing(part: str) -> bool:
    return re.fullmatch(OF_PROGRAMS, part.lower()) is not None


class Design(NamedTuple):
    """What the study file says of the space and the cleaning, all of it public."""

    resample: bool
    mask: str
    size: int
    """Edge of a cube in voxels; 0: features are parcels."""
    features: int | None
    cleaning: Cleaning
    why_mask: str


def design(found: list[Found], base: Path) -> Design:
    """Choose mask, cubes and cleaning; a standard mask is written into ``base``.

    Raises
    ------
    ConfigError
        If the sites' images lie on several grids.
    """
    people = {own.name: derivatives.find_runs(own.site) for own in found}
    runs = {
        name: [r for each in own.values() for r in each] for name, own in people.items()
    }
    first = {name: own[0] for name, own in runs.items()}
    spaces = {derivatives.space(run) for run in first.values()}
    if any(map(is_cifti, first.values())):
        return _of_parcels(found, runs, base)
    is_open = all(own.site.data != "private" for own in found)
    images = [nifti.open_image(run, 4) for run in first.values()]
    # SPM, CONN and FSL say the space in headers, ABCD-BIDS also as `space-MNI`.
    in_header = spaces <= {"", "MNI"} and all(map(nifti.is_in_mni152, images))
    by_name = len(spaces) == 1 and min(spaces).startswith("MNI152")
    mask, features, size = "computed", None, 2
    why = "from the data, which are not private; for private data a public mask"
    like = images[0]
    made = nifti.standard_mask(like) if by_name or in_header else None
    if made is not None:
        nifti.write_mask(base / MASK, made)
        mask, why = MASK, "the brain of MNI152 as nilearn has it, on the images' grid"
        size, features = nifti.grid_for(made, FEATURES)
    elif not is_open:  # native images, or such as are called MNI152 and are not
        mask, why = TO_DECIDE, "DECIDE: a public mask in the images' own space"
    elif not _has_computed_mask(first):
        mask = TO_DECIDE
        why = "DECIDE: no mask can be computed of these images; a mask in their space"
    given: dict[str, Any] = {"standardize": "zscore", "max_constant_voxels": 0.2}
    every = [run for own in runs.values() for run in own]
    if all(beside.mask_file(run).is_file() for run in every):
        given |= {"run_mask": True}
    if not any(own.is_denoised for own in found):
        asked = (each for each in ("simple", MOTION) if _has(each, found, first))
        given["confounds"] = next(asked, [])
    apart = not all(same_grid(image, like) for image in images)
    return Design(apart, mask, size, features, Cleaning(**given), why)


def _of_parcels(found: list[Found], runs: dict[str, list[Path]], base: Path) -> Design:
    """Parcels and cleaning of series on the surface."""
    first = {name: own[0] for name, own in runs.items()}
    mask, features, why = surface.choose(first, base)
    chosen = [own.images for own in found if isinstance(own.images, dict)]
    given: dict[str, Any] = {"standardize": "zscore", "max_constant_voxels": 0.2}
    # fMRIPrep's alone are neither denoised nor means of parcels.
    if chosen and all(c["series"] == "dense" and not c.get("desc") for c in chosen):
        asked = (each for each in ("simple", MOTION) if _has(each, found, first))
        given["confounds"] = next(asked, [])
    return Design(False, mask, 0, features, Cleaning(**given), why)


def _has_computed_mask(first: dict[str, Path]) -> bool:
    try:
        nifti.compute_mask(first.values())
    except ConfigError:
        return False
    return True


def _has(
    confounds: str | list[str], found: list[Found], first: dict[str, Path]
) -> bool:
    """Whether each site's first run has them."""
    asked = Cleaning(standardize="zscore", confounds=confounds)
    try:
        for own in found:
            run = first[own.name]
            n = cifti.n_volumes(run)
            cleaning.regressors(run, own.site, asked, n)
    except ConfigError:
        return False
    return True


def write(
    folder: Path,
    sources: list[Path],
    kind: str,
    protocol: tuple[int | None, int | None] = (None, None),
    person: str | None = None,
) -> tuple[list[str], list[str]]:
    """Write a study of components of the sites' folders.

    Parameters
    ----------
    folder
        New folder of the study.
    sources
        One folder a site.
    kind
        What the data are: private, public or simulated.
    protocol
        People at all sites, and volumes of one person, as the study's protocol says.
    person
        As of :func:`look`.

    Returns
    -------
    said, todo
        What to tell the user, and what only the user can add.
    """
    for source in sources:
        if not source.is_dir():
            raise ConfigError(f"--from: {source}: is no folder; name one of a site")
    if len(sources) < 2:
        raise ConfigError(
            f"--from: a federation needs at least 2 sites, got {len(sources)}"
        )
    pairs = zip(sources, site_names(sources), strict=True)
    found = [look(source, name, kind, folder, person) for source, name in pairs]
    place: dict[Path, Path] = {}
    for source, own in zip(sources, found, strict=True):
        first = place.setdefault(Path(own.site.folder).resolve(), source)
        if first is not source:
            raise ConfigError(
                f"--from: {source}: has the images that {first} has; people would "
                "count twice: name a folder of each site's own"
            )
    return write_found(folder, found, kind, protocol)


def write_found(
    folder: Path,
    found: list[Found],
    kind: str,
    protocol: tuple[int | None, int | None] = (None, None),
) -> tuple[list[str], list[str]]:
    """Write a study of sites that were looked at; all as of :func:`write`."""
    names = [own.name for own in found]
    said = ["What the sites' folders hold (shown here, kept in no file):", ""]
    for own in found:
        said += survey.lines(own.site)
        said += [f"  {note}" for note in own.notes]
    chosen = design(found, folder)
    for own in found:
        text = site_text(own, kind)
        files.write_text(folder / f"config/sites/{own.name}.yaml", text)
    name = scaffold.label(folder.resolve().name) or scaffold.FILL_IN["study"]
    text = study_text(name, names, chosen, kind, protocol)
    files.write_text(folder / "config/config.yaml", text)
    said += ["", "What goes into the study file, which all parties read:"]
    basis = f"cubes of {chosen.size} voxels" if chosen.size else "means over parcels"
    said.append(f"  space: {chosen.mask} ({chosen.why_mask}), {basis}")
    if chosen.resample:
        said.append("  the sites' images lie on several grids: resample is true")
    said.append(f"  cleaning: {_cleaning_line(chosen.cleaning)}")
    said.append(
        "  rules of thumb with their sources; no count, and no name of a person"
    )
    said.append(
        "What stays at each site: its own file in config/sites/, with its path."
    )
    todo = []
    if chosen.mask == TO_DECIDE:
        todo.append(
            f"put a public mask in the images' space at {TO_DECIDE} (space.mask); "
            "docs/derivatives.md makes one"
        )
        todo.append(
            "set pca.norm_bound to the root of the number of features on that mask: "
            "the last line of capeneuro validate config/config.yaml counts them"
        )
    if chosen.mask == surface.TO_DECIDE:
        todo.append(
            f"put a public parcellation (.dlabel.nii) at {chosen.mask} (space.mask), "
            "and the root of its number of parcels into pca.norm_bound; "
            "docs/derivatives.md says where there are some"
        )
    is_raw = not all(own.is_denoised for own in found)
    if is_raw and not chosen.cleaning.confounds and kind != "simulated":
        todo.append(
            "nothing takes out motion: if tables of confounds are there, choose "
            "cleaning.confounds in the study file"
        )
    if kind == "private" and protocol[1] is None:
        todo.append("write expected.volumes, as the protocol says, into the study file")
    return said, todo


def _cleaning_line(own: Cleaning) -> str:
    with_ = getattr(own.confounds, "strategy", "no")
    with_ = "six motion parameters as" if own.confounds == MOTION else with_
    masked = ", each run's own brain mask" if own.run_mask else ""
    return f"z-scores, {with_} confounds{masked}"


def site_text(own: Found, kind: str) -> str:
    """Text of a site file with the keys that need a decision."""
    import yaml

    keys = {"images": own.images, "person": own.site.person}
    keys = {key: value for key, value in keys.items() if value is not None}
    shown = yaml.safe_dump(keys, sort_keys=False).strip()
    return f"""\
# One site's own file; it never leaves the site. All other keys: capeneuro init --sites.
name: {own.name}
# Its images, chosen by what file names say; see docs/derivatives.md. Who must not take
# part stands here by name: without: ["03", "17"].
{shown}
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
    chosen: Design,
    kind: str,
    protocol: tuple[int | None, int | None],
) -> str:
    """Text of a study file with the keys that need a decision."""
    people, volumes = ("null" if n is None else n for n in protocol)
    private = kind == "private"
    arm = "cape" if private else "non-private"
    why = (
        "noise that cancels at the aggregator protects every person"
        if private
        else f"{kind} data need no noise; `cape` protects every person"
    )
    own = chosen.cleaning
    columns = f"[{', '.join(own.confounds)}]" if own.confounds == MOTION else "[]"
    confounds = getattr(own.confounds, "strategy", columns)
    # Of a few parcels fewer components can be told apart.
    n_components = min(R, max((chosen.features or FEATURES) // 4, 2))
    bound = (chosen.features or 900) ** 0.5
    sites = ", ".join(f"config/sites/{name}.yaml" for name in names)
    cubes = f", {chosen.features} of them" if chosen.features else ""
    space = f"""\
space:
  # {chosen.why_mask[0].upper() + chosen.why_mask[1:]}.
  mask: {chosen.mask}
  # Cubes of so many voxels in edge are the features{cubes}. Fewer features have
  # less noise: `capeneuro plan` says what it leaves.
  basis: grid
  grid_size: {chosen.size}
  # Images on another grid than the mask's are resampled; false: refused.
  resample: {str(chosen.resample).lower()}"""
    if not chosen.size:
        space = surface.space_text(chosen.mask, chosen.why_mask, chosen.features)
    return f"""\
# A study of components (PCA, then ICA). Keys that need a decision; all others have
# defaults, and `capeneuro init FOLDER --sites 2` shows every one.
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
  run_mask: {str(own.run_mask).lower()}
  # Share of the mask's voxels that a run may lack.
  max_constant_voxels: {own.max_constant_voxels:g}
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
expected:
  # DECIDE, if data are private: numbers of the study's protocol, for the forecast.
  # People at all sites together; volumes of one person, whom nobody counts.
  people: {people}
  volumes: {volumes}
# Where these numbers come from; private data need this line.
source: arithmetic of z-scores, and the rules of capeneuro init

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
