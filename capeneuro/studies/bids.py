"""One site's derivatives as a BIDS app would take them: `participant`, then `group`."""

import os
from pathlib import Path

from capeneuro.config.errors import ConfigError
from capeneuro.config.names import label
from capeneuro.config.site import Derivatives, SiteConfig
from capeneuro.data import derivatives
from capeneuro.studies import init_from_folders, one_process

STUDY = "config/config.yaml"


def halves(
    folder: Path, base: Path, kind: str, labels: list[str], tasks: list[str]
) -> list[init_from_folders.SiteFolder]:
    """Split a site's people into two sites, since sums are over two sites or more.

    Parameters
    ----------
    folder
        Derivatives, or a BIDS folder with derivatives in it.
    base
        Folder of the study, which paths are relative to.
    kind
        The data are public or simulated.
    labels, tasks
        People and tasks to take, with or without `sub-` and `task-`; empty: all.

    Raises
    ------
    ConfigError
        If a person is missing, or there are fewer than two.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"BIDS_DIR: {folder}: is no folder; name one with sub-<label>/"
        )
    site_folder = init_from_folders.inspect(folder, "all", kind, base)
    images = derivatives.selection(site_folder.site)
    if not Path(images.derivatives).is_dir():
        raise ConfigError(
            f"BIDS_DIR: {folder}: has no sub-<label>/ with 4-D images named as in "
            "BIDS; plain files are for capeneuro init --from"
        )

    def site_with(**keys: list[str]) -> SiteConfig:
        selected = Derivatives.model_validate({**images.model_dump(), **keys})
        return site_folder.site.model_copy(update={"images": selected})

    task_keys = {"task": tasks} if tasks else {}
    people = list(map(label, derivatives.find_runs(site_with(**task_keys))))
    wanted = list(map(label, labels)) or people
    if missing := [person for person in wanted if person not in people]:
        raise ConfigError(
            f"--participant-label: {folder} has no {missing[0]} with such images; "
            f"it has {', '.join(people)}"
        )
    if len(wanted) < 2:
        raise ConfigError(
            f"--participant-label: components of a group need two people or more, got "
            f"{len(wanted)}; all are prepared in one call"
        )
    site_folders = []
    for i, name in enumerate(("half-1", "half-2")):
        site = site_with(**task_keys, people=sorted(set(wanted))[i::2])
        site = site.model_copy(update={"name": name})
        keys = site.images.model_dump(mode="json", exclude_defaults=True)
        half = site_folder._replace(
            name=name, site=site, images=init_from_folders.moved(keys, base)
        )
        site_folders.append(half._replace(notes=[]) if i else half)
    return site_folders


def run(
    folder: Path,
    out: Path,
    level: str,
    kind: str,
    labels: list[str],
    tasks: list[str],
    cores: int,
) -> int:
    """Run a site's study, written first where there is none; return the exit status.

    Parameters
    ----------
    folder, kind, labels, tasks
        As of :func:`halves`.
    out
        Folder of the study and its results.
    level
        `participant` ends with everybody's features, `group` with the report.
    cores
        How many processors it may use.
    """
    if (out / STUDY).exists():
        if labels or tasks:
            raise ConfigError(
                f"{out / STUDY}: was begun with its people and tasks; leave "
                "--participant-label and --task-id out, or name another OUT_DIR"
            )
    else:
        site_folders = halves(folder, out, kind, labels, tasks)
        lines, todo = init_from_folders.write_study(out, site_folders, kind)
        print("\n".join([*lines, *todo]), flush=True)
    os.chdir(out)
    until = "prepare" if level == "participant" else "report"
    return one_process.run(STUDY, cores, until)
