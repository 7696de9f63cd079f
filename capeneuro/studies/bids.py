"""One site's derivatives as a BIDS app would take them: `participant`, then `group`."""

import os
from pathlib import Path

from capeneuro.config.errors import ConfigError
from capeneuro.config.names import label
from capeneuro.config.site import Derivatives, SiteConfig
from capeneuro.data import derivatives
from capeneuro.studies import begin, one_process

STUDY = "config/config.yaml"


def halves(
    folder: Path, base: Path, kind: str, labels: list[str], tasks: list[str]
) -> list[begin.Found]:
    """A site's people in two parts, since sums are over two or more.

    Parameters
    ----------
    folder
        Derivatives, or a BIDS folder with derivatives in it.
    base
        Folder of the study, which paths are relative to.
    kind
        What the data are: public or simulated.
    labels, tasks
        People and tasks to take, with or without `sub-` and `task-`; empty: all.

    Raises
    ------
    ConfigError
        If somebody is not there, or fewer than two people are.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"BIDS_DIR: {folder}: is no folder; name one with sub-<label>/"
        )
    whole = begin.look(folder, "all", kind, base)
    images = derivatives.selection(whole.site)
    if not Path(images.derivatives).is_dir():
        raise ConfigError(
            f"BIDS_DIR: {folder}: has no sub-<label>/ with 4-D images named as in "
            "BIDS; plain files are for capeneuro init --from"
        )

    def chosen(**more: list[str]) -> SiteConfig:
        own = Derivatives.model_validate({**images.model_dump(), **more})
        return whole.site.model_copy(update={"images": own})

    only = {"task": tasks} if tasks else {}
    there = derivatives.find_runs(chosen(**only))
    there = list(map(label, there))
    wanted = list(map(label, labels)) or there
    if missing := [one for one in wanted if one not in there]:
        raise ConfigError(
            f"--participant-label: {folder} has no {missing[0]} with such images; "
            f"it has {', '.join(there)}"
        )
    if len(wanted) < 2:
        raise ConfigError(
            f"--participant-label: components of a group need two people or more, got "
            f"{len(wanted)}; all are prepared in one call"
        )
    found = []
    for i, name in enumerate(("half-1", "half-2")):
        site = chosen(**only, people=sorted(set(wanted))[i::2])
        site = site.model_copy(update={"name": name})
        said = site.images.model_dump(mode="json", exclude_defaults=True)
        notes = [] if i else whole.notes
        found.append(
            begin.Found(name, site, begin.moved(said, base), notes, whole.is_denoised)
        )
    return found


def run(
    folder: Path,
    out: Path,
    level: str,
    kind: str,
    labels: list[str],
    tasks: list[str],
    cores: int,
) -> int:
    """Write the study of one site where there is none, and run it; exit status.

    Parameters
    ----------
    folder, kind, labels, tasks
        As of :func:`halves`.
    out
        Folder of the study and its results.
    level
        `participant`: as far as everybody's features; `group`: to the report.
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
        found = halves(folder, out, kind, labels, tasks)
        said, todo = begin.write_found(out, found, kind)
        print(*said, *todo, sep="\n", flush=True)
    os.chdir(out)
    until = "prepare" if level == "participant" else "report"
    return one_process.run(STUDY, cores, until)
