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
    """What was chosen of a site's images, and what was not; it stays at the site.

    Raises
    ------
    ConfigError
        If nothing was chosen, or one scan twice.
    """
    inventory = derivatives.inventory(site)
    runs = inventory.people
    chosen = [run for own in runs.values() for run in own]
    notes = about_times(chosen, site)
    groups: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for run in chosen:
        said = derivatives.entities(run)
        groups[tuple(said.get(e, "-") for e in ENTITIES)].append(run)
    rows = [[*COLUMNS, *COUNTED]]
    whose = {run: name for name, own in runs.items() for run in own}
    for key, own in groups.items():
        people = {whose[run] for run in own}
        rows.append([*map(str, key), str(len(people)), *_counted(own, site)])
    found = [f"{site.name}: {how_many(len(runs), len(chosen))} in {site.folder}"]
    found += table(rows)
    for what, file_of in BESIDE.items():
        lacking = [run.name for run in chosen if not file_of(run).is_file()]
        if 0 < len(lacking) < len(chosen):
            found.append(f"  no {what} of {len(lacking)}: {some(lacking)}")
    found += notes
    folder = Path(site.folder)
    if not folder.is_dir():
        return found
    found += inventory.lines()
    folders_of_people = [path for path in people_in(folder) if path.is_dir()]
    everybody = {f"sub-{folder_label(path.name)}" for path in folders_of_people}
    if alone := sorted(everybody - set(runs)):
        found.append(f"  nothing chosen of {len(alone)}: {some(alone)}")
    return found


def check_confounds(site: SiteConfig, asked: Cleaning | None) -> None:
    """Refuse a cleaning that the first run's table has no columns for.

    Raises
    ------
    ConfigError
        As `validate` would for each run.
    """
    if asked is not None and (asked.confounds or asked.scrubs):
        run = next(iter(derivatives.find_runs(site).values()))[0]
        cleaning.regressors(run, site, asked, cifti.n_volumes(run))


def is_there(images: str) -> bool:
    """Whether anything is in a folder, or of a pattern."""
    return any(Path(images).glob("*")) or bool(glob.glob(images, recursive=True))


def how_many(people: int, runs: int | None = None) -> str:
    """A number of people, and of their runs, in words."""
    said = "1 person" if people == 1 else f"{people} people"
    if runs is None:
        return said
    return f"{said}, {'1 run' if runs == 1 else f'{runs} runs'}"


def table(rows: list[list[str]]) -> list[str]:
    """Rows in columns of their own widths; one that is empty all over is left out."""
    kept = [c for c in zip(*rows, strict=True) if set(c[1:]) != {"-"}]
    padded = [[cell.ljust(max(map(len, c))) for cell in c] for c in kept]
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def _counted(runs: list[Path], site: SiteConfig) -> list[str]:
    lengths = sorted({cifti.n_volumes(run) for run in runs})
    times = {beside.repetition_time(run, site) for run in runs}
    told = sorted(f"{t_r:g}" for t_r in times - {None})
    n = len(runs)
    return [
        between(lengths),
        ", ".join(told) + (" or unknown" if told else "unknown") * (None in times),
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
        f"  repetition time unknown of {len(whose)}: {why}; filters and spectra in Hz "
        f"need `repetition_time` in the site file: {some(whose)}"
        for why, whose in names.items()
    ]
    if len(times) > 1 and not beside.is_one_time(times):
        several = "; ".join(f"{t:g} s: {some(times[t])}" for t in sorted(times))
        notes.append(
            f"  repetition times differ, spectra are in cycles per volume: {several}"
        )
    return notes


def notes_on_times(site: SiteConfig) -> list[str]:
    """As above of all runs; nothing where they are not found, which `validate` says."""
    try:
        people = derivatives.find_runs(site)
    except ConfigError:
        return []
    notes = about_times([run for runs in people.values() for run in runs], site)
    return [f"note: site {site.name}: {note.strip()}" for note in notes]


def between(values: list[Any]) -> str:
    """Smallest and largest of sorted values."""
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def of_all(there: list[bool], n: int) -> str:
    """How many of all are there."""
    return "all" if all(there) else "none" if not any(there) else f"{sum(there)} of {n}"
