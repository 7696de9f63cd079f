"""Commands that run a study or a step of it, make a prior of it or use its model."""

import argparse
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from capeneuro.cli.command import STUDY, Command, study_argument
from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.studies.steps import steps


def step(options: argparse.Namespace) -> None:
    """Run one step of a study."""
    from capeneuro.data import files
    from capeneuro.studies import one_process
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study, options.stage)
    sites = load_sites(study)
    files.keep_private()
    names = steps()[options.step].options
    settings = {name: getattr(options, name) for name in names}
    one_process.run_step(study, sites, options.step, **settings)


# Options that steps take, see `studies/steps.py`; the text is that of the example.
STEP_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "site": ("--site site-1", {"required": True, "help": "name of the site"}),
    "people": ("", {"type": int, "help": "people at all sites together"}),
    "volumes": ("", {"type": int, "help": "volumes of one person"}),
    "features": ("", {"type": int, "help": "features of the basis"}),
    "threads": (
        "--threads 2",
        {"type": int, "default": 1, "help": "sites (people, pictures) at a time"},
    ),
    "part": (
        "",
        {
            "default": "",
            "metavar": "K/N",
            "help": "store a part of the people, for a call without it that gathers",
        },
    ),
    "reference": (
        "",
        {"action": "store_true", "help": "without privacy (simulated or public data)"},
    ),
}


def _step_arguments(command: argparse.ArgumentParser, names: Iterable[str]) -> None:
    study_argument(command)
    command.add_argument("--stage", default="", help="one of several stages")
    for name in names:
        command.add_argument(f"--{name}", **STEP_OPTIONS[name][1])


def run_study(options: argparse.Namespace) -> int:
    """Run a study from its files to its report; a second call continues the first.

    It runs only what is new or changed, in this process. With arguments after `--` it
    calls Snakemake, to which they go unchanged, such as `-- --until prepare`.
    """
    from capeneuro.studies import one_process, workflow

    cores = options.cores or os.cpu_count() or 1
    arguments = [*options.snakemake, *["--unlock"] * options.unlock]
    if not arguments:
        return one_process.run(options.study, cores, is_dry=options.dry_run)
    arguments += ["-n"] * options.dry_run
    return workflow.run(options.study, cores, arguments)


def _run_arguments(command: argparse.ArgumentParser) -> None:
    study_argument(command)
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "-n", "--dry-run", action="store_true", help="print what it would spend"
    )
    command.add_argument(
        "--unlock", action="store_true", help="after a run that was killed"
    )
    command.add_argument(
        "snakemake", nargs="*", default=[], help="after --: arguments of Snakemake"
    )


def bids(options: argparse.Namespace) -> int:
    """Run one site's derivatives as a BIDS app: `participant`, then `group`.

    `participant` prepares everybody's features, `group` finds components and writes
    maps and the report, both in OUT_DIR. It is for public or simulated data: no noise
    is added, and every output says NOT PRIVATE. Private data need a study of several
    sites.
    """
    from capeneuro.studies import bids as app

    return app.run(
        options.bids_dir,
        options.out_dir,
        options.level,
        options.data,
        options.participant_label,
        options.task_id,
        options.cores or os.cpu_count() or 1,
    )


def _bids_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("bids_dir", type=Path, help="derivatives, as of fMRIPrep")
    command.add_argument("out_dir", type=Path, help="folder for study and results")
    command.add_argument("level", choices=["participant", "group"])
    command.add_argument(
        "--data",
        choices=["public", "simulated"],
        required=True,
        help="kind of the data; private data need a study of several sites",
    )
    for name in ("participant-label", "task-id"):
        command.add_argument(
            f"--{name}",
            nargs="+",
            default=[],
            metavar="LABEL",
            help="only these; else all",
        )
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "--skip-bids-validation", action="store_true", help="no effect: none is done"
    )


def prior(options: argparse.Namespace) -> None:
    """Make a prior from public data, for other studies to start from.

    Needs a study whose sites' data are all public or simulated. Of a study of
    components it writes the file (.npz) that others name as `prior`; these must have
    the same space and cleaning. Of a study of contrasts, of images or tables, it
    writes the table (.tsv) that others name as `contrast.covariance`; these must have
    the same outcomes.
    """
    from capeneuro.studies import make_prior
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    make_prior.make(
        study,
        load_sites(study),
        options.out,
        options.source,
        options.licence,
        options.threads,
    )


def _prior_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", help="study file, of public or simulated data")
    command.add_argument(
        "--out", type=Path, required=True, help="file: .npz, or of contrasts .tsv"
    )
    command.add_argument("--source", required=True, help="origin of the data")
    command.add_argument("--licence", default="", help="licence of the data")
    command.add_argument("--threads", type=int, default=1, help="people at a time")


def predict(options: argparse.Namespace) -> None:
    """Predict the target of the people in a table by a study's regression model.

    Features are clipped to the study's bounds, as in the fit of the model.
    """
    from capeneuro.data import files
    from capeneuro.studies import model_file

    if options.out is not None and options.out.resolve() == options.table.resolve():
        raise ConfigError(f"--out: {options.out} is the table itself; name another")
    header, rows = model_file.predicted(options.model, options.table, options.site)
    if options.out is not None:
        files.write_table(options.out, header, rows)
        return
    for row in (header, *rows):
        print(*map(files.cell, row), sep="\t")


def _predict_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, help="model file of a study")
    command.add_argument("table", type=Path, help="participant_id and the features")
    command.add_argument("--site", help="site of the study that the people belong to")
    command.add_argument("--out", type=Path, help="table to write; else printed")


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    for name, of_study in steps().items():
        add_arguments = partial(_step_arguments, names=of_study.options)
        words = [STUDY, *(STEP_OPTIONS[option][0] for option in of_study.options)]
        example = " ".join(filter(None, words))
        yield Command(step, add_arguments, example, name, of_study.summary)
    yield Command(run_study, _run_arguments, STUDY, "run")
    yield Command(bids, _bids_arguments, "fmriprep out participant --data public")
    prior_example = f"{STUDY} --out public.npz --source ABIDE"
    yield Command(prior, _prior_arguments, prior_example)
    model = "results/my-study/group_desc-regression_model.json"
    yield Command(predict, _predict_arguments, f"{model} new.tsv")
