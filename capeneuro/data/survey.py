"""What a site's folder holds, for its own console; headers alone are read."""

import glob
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.names import folder_label
from capeneuro.config.sections import Cleaning
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cifti, cleaning, derivatives
from capeneuro.data.inventory import people_in

COLUMNS = ["task", "session", "run", "space", "res", "seg", "atlas", "setting", "desc"]
ENTITIES = ["task", "ses", "run", "space", "res", "seg", "atlas", "setting", "desc"]
COUNTED = ["people", "volumes", "TR [s]", "confounds", "brain mask"]
BESIDE = {
    "confounds": beside.confounds_file,
    "brain mask": beside.mask_file,
}


def lines(site: SiteConfig) -> list[str]:
    """Lines on the images that a site chose and set aside; they stay at the site.

    Raises
    ------
    ConfigError
        If nothing was chosen, or one scan twice.
    """
    inventory = derivatives.inventory(site)
    runs = inventory.people
    chosen = [run for runs_of_group in runs.values() for run in runs_of_group]
    notes = about_times(chosen, site)
    groups: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for run in chosen:
        its_entities = derivatives.entities(run)
        groups[tuple(its_entities.get(e, "-") for e in ENTITIES)].append(run)
    rows = [[*COLUMNS, *COUNTED]]
    person_of_run = {
        run: name for name, runs_of_group in runs.items() for run in runs_of_group
    }
    for key, runs_of_group in groups.items():
        people = {person_of_run[run] for run in runs_of_group}
        rows.append([*map(str, key), str(len(people)), *_counted(runs_of_group, site)])
    survey_lines = [f"{site.name}: {how_many(len(runs), len(chosen))} in {site.folder}"]
    survey_lines += table(rows)
    for noun, file_of in BESIDE.items():
        lacking = [run.name for run in chosen if not file_of(run).is_file()]
        if 0 < len(lacking) < len(chosen):
            survey_lines.append(f"  no {noun} of {len(lacking)}: {some(lacking)}")
    survey_lines += notes
    folder = Path(site.folder)
    if not folder.is_dir():
        return survey_lines
    survey_lines += inventory.lines()
    folders_of_people = [path for path in people_in(folder) if path.is_dir()]
    everybody = {f"sub-{folder_label(path.name)}" for path in folders_of_people}
    if alone := sorted(everybody - set(runs)):
        survey_lines.append(f"  nothing chosen of {len(alone)}: {some(alone)}")
    return survey_lines


def check_confounds(site: SiteConfig, cleaning_options: Cleaning | None) -> None:
    """Refuse a cleaning that the first run's table has no columns for.

    Raises
    ------
    ConfigError
        As `validate` would for each run.
    """
    if cleaning_options is not None and (
        cleaning_options.confounds or cleaning_options.scrubs
    ):
        run = next(iter(derivatives.find_runs(site).values()))[0]
        cleaning.regressors(run, site, cleaning_options, cifti.n_volumes(run))


def is_there(images: str) -> bool:
    """Whether anything is in a folder, or of a pattern."""
    return any(Path(images).glob("*")) or bool(glob.glob(images, recursive=True))


def how_many(people: int, runs: int | None = None) -> str:
    """A number of people, and of their runs, in words."""
    text = "1 person" if people == 1 else f"{people} people"
    if runs is None:
        return text
    return f"{text}, {'1 run' if runs == 1 else f'{runs} runs'}"


def sites_in_words(n: int) -> str:
    """Number of sites whose files are here, in words."""
    return {0: "no site here", 1: "1 site"}.get(n, f"{n} sites")


def table(rows: list[list[str]]) -> list[str]:
    """Rows in columns of their own widths; one that is empty all over is left out."""
    columns = [c for c in zip(*rows, strict=True) if set(c[1:]) != {"-"}]
    padded = [[cell.ljust(max(map(len, c))) for cell in c] for c in columns]
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def _counted(runs: list[Path], site: SiteConfig) -> list[str]:
    lengths = sorted({cifti.n_volumes(run) for run in runs})
    times = {beside.repetition_time(run, site) for run in runs}
    listing = sorted(f"{t_r:g}" for t_r in times - {None})
    n = len(runs)
    return [
        between(lengths),
        ", ".join(listing)
        + (" or unknown" if listing else "unknown") * (None in times),
        *(of_all([f(run).is_file() for run in runs], n) for f in BESIDE.values()),
    ]


def about_times(runs: list[Path], site: SiteConfig) -> list[str]:
    """Notes on runs whose repetition time is unknown, or another than that of others.

    Raises
    ------
    ConfigError
        If what files say of it cannot be true; of all runs at once.
    """
    names: dict[str, list[str]] = defaultdict(list)
    times: dict[float, list[str]] = defaultdict(list)

    def look(run: Path) -> None:
        t_r, source = beside.timing(run, site)
        if t_r is None:
            names[source].append(run.name)
        else:
            times[t_r].append(run.name)

    check_all(partial(look, run) for run in runs)
    notes = [
        f"  repetition time unknown of {len(run_names)}: {why}; filters and spectra in "
        "Hz "
        f"need `repetition_time` in the site file: {some(dict.fromkeys(run_names))}"
        for why, run_names in names.items()
    ]
    if len(times) > 1 and not beside.is_one_time(times):
        # Names alone are alike of all people of the Human Connectome Project.
        several = "; ".join(
            f"{t:g} s: {some(dict.fromkeys(times[t]))}" for t in sorted(times)
        )
        notes.append(
            f"  repetition times differ, spectra are in cycles per volume: {several}"
        )
    return notes


def notes_on_times(site: SiteConfig) -> list[str]:
    """Lines on all runs of the sites; none where `validate` would refuse them."""
    try:
        people = derivatives.find_runs(site)
    except ConfigError:
        return []
    notes = about_times([run for runs in people.values() for run in runs], site)
    return [f"note: site {site.name}: {note.strip()}" for note in notes]


def between(values: list[Any]) -> str:
    """Smallest and largest of sorted values."""
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def of_all(is_present: list[bool], n: int) -> str:
    """How many of all are there."""
    return (
        "all"
        if all(is_present)
        else "none"
        if not any(is_present)
        else f"{sum(is_present)} of {n}"
    )
