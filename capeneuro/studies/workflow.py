"""Run a study by Snakemake: checks before, the Snakefile's inputs, failures after."""

import errno
import importlib.metadata
import logging
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from capeneuro.config import scaffold
from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.studies import cluster, endings, registry
from capeneuro.studies.counts import assumed
from capeneuro.studies.flow import outcome
from capeneuro.studies.forecasts import Unknown
from capeneuro.studies.gate import (
    check_ready,
    print_payments,
    print_spending,
    promise_line,
    refuse,
)
from capeneuro.studies.registry import check_inputs, makes_data
from capeneuro.studies.sites import Sites, load_sites
from capeneuro.studies.tasks import Task

# In the environment of steps that `capeneuro run` started.
RUN = "CAPENEURO_RUN"
# Folder of the installed package that holds `sim`, which a checkout has beside it.
MAKERS = "_makers"
# Key of Snakemake's `--config` that says how many jobs share a site's people.
SITE_JOBS = "site_jobs"
# Oldest Snakemake that the rules work with.
LEAST_SNAKEMAKE = (9, 20)
# Snakemake, which has no word for an interruption before it runs.
SNAKEMAKE = """
import sys
try:
    from snakemake.cli import main
    main()
except KeyboardInterrupt:
    sys.exit(130)
"""
# Last line of the log of a step that failed, before its exit status.
ENDED = "ended with status"


class StudyFile(NamedTuple):
    """The study file of a run of Snakemake, read."""

    path: str
    """Relative to the folder of the run."""
    study: StudyConfig
    sites: Sites
    """Sites whose files are here."""
    n_parts: int
    """Jobs that share the people of one site, before one gathers them; 0: none."""


def read_study(
    paths: list[Any], config: dict[str, Any], most_jobs: int | None = None
) -> StudyFile:
    """Read the study file of a run of Snakemake, as the steps will read it.

    Parameters
    ----------
    paths, config
        Snakemake's files of configuration, and the keys that it merged from them.
    most_jobs
        Jobs of a cluster that may wait or run at a time; None: there is no cluster.

    Raises
    ------
    ConfigError
        If there is more than one file, or keys were overridden on the command line: a
        study is one file, and the steps read that file; only :data:`SITE_JOBS` is no
        key of it. If a site has no file that its keys name.
    """
    n_parts = config.pop(SITE_JOBS, 0)
    find_commands()
    find_makers()
    # Privacy: Snakemake's records of its jobs name the files of people.
    files.keep_private(".snakemake")
    path = os.path.relpath(paths[-1])
    study = load_study(path)
    if len(paths) > 1 or yaml.safe_load(Path(path).read_text()) != config:
        raise ConfigError(
            f"{path}: a study is one file; write overrides into it instead of --config "
            "or a second --configfile"
        )
    if not isinstance(n_parts, int) or n_parts < 0:
        raise ConfigError(
            f"{SITE_JOBS}: must be a number of jobs of a site, got {n_parts!r}"
        )
    sites = load_sites(study)
    if most_jobs is not None and n_parts * len(sites) > most_jobs:
        # Snakemake would wait for ever for the rest of an array of jobs.
        raise ConfigError(
            f"{SITE_JOBS}: jobs of all {len(sites)} sites must be at most jobs: "
            f"{most_jobs} of the profile, got {n_parts} each; raise jobs"
        )
    check_inputs(study, sites)
    return StudyFile(path, study, sites, n_parts)


def find_commands() -> None:
    """Let `.venv/bin/snakemake`, without activation, find the `capeneuro` beside it."""
    folder = str(Path(sys.executable).parent)
    if folder not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")


def find_makers() -> None:
    """Let `python -m sim` find the data makers that an installed package carries."""
    makers = str(Path(find_spec("capeneuro").origin).parent / MAKERS)
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if makers not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, folders), makers])


def simulate(maker: str, folder: Path, **numbers: int) -> int:
    """Write folders of simulated people, by one of the data makers; its exit status.

    Parameters
    ----------
    maker
        Its module, such as ``grey_matter``.
    folder
        Where the sites' folders go, and public files beside them.
    **numbers
        Options of the maker: ``people`` and ``sites``, ``seed``, ``volumes``.
    """
    find_makers()
    command = [sys.executable, "-m", f"sim.{maker}", str(folder)]
    for name, number in numbers.items():
        command += [f"--{name}", str(number)]
    return subprocess.run(command).returncode


def made_data(study: StudyConfig, sites: Sites) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    is_made = makes_data(study, sites)
    return Task(study, "make_data").outputs(sites) if is_made else []


def preview(study: StudyConfig, sites: Sites) -> None:
    """Print a run's releases, those paid already, and the rest of each ceiling."""
    if RUN in os.environ:  # `capeneuro run` prints it
        return
    print()
    try:
        print(promise_line(study))
        print_spending(study)
        print_payments(study, sites)
        if study.arm != "non-private":
            for member in study.members.values():
                with suppress(Unknown):  # of a study on paper
                    counts = assumed(member, sites).counts
                    refuse(member, sites, counts)
        check_ready(study, sites)
    except Exception as error:
        for line in outcome(error)[1]:
            print(f"error: {line}")


def open_study(path: str) -> tuple[StudyConfig, Sites]:
    """Read a study and its sites, and refuse errors that would end a run."""
    study = load_study(path)
    sites = load_sites(study)
    registry.check(study)
    check_inputs(study, sites)
    if not os.access(".", os.W_OK):
        raise PermissionError(errno.EACCES, "may not be written to", os.getcwd())
    return study, sites


def refuse_beside_snakemake(path: str) -> None:
    """Refuse to run beside Snakemake in the same folder."""
    locks = Path(".snakemake/locks")
    if any(locks.glob("*.lock")):
        raise ConfigError(
            f"{locks}: another run is under way in this folder; wait for it, or, if it "
            f"was killed: capeneuro run {path} --unlock"
        )


def run(path: str, cores: int, options: list[str]) -> int:
    """Run a study by Snakemake without Snakemake's messages; return the exit status.

    Steps print their progress and errors themselves. If a step fails, its errors are
    printed again last of all.

    Parameters
    ----------
    path
        Study file.
    cores
        Number of processors.
    options
        Further arguments of Snakemake.

    Raises
    ------
    ConfigError
        If the study is not well formed, or another run is under way in this folder.
    PermissionError
        If this folder may not be written to.
    """
    _check_snakemake(options)
    study, sites = open_study(path)
    if "--unlock" not in options:
        refuse_beside_snakemake(path)
    os.environ |= endings.usable_caches()
    command = [sys.executable, "-c", SNAKEMAKE, "--configfile", path]
    command += ["--snakefile", str(_snakefile()), "--cores", str(cores)]
    command += ["--workflow-profile", "none", "--rerun-incomplete", *options]
    if {"-n", "--dry-run", "--dryrun"} & set(options):
        return _dry_run(path, study, sites, command)
    since = time.time()
    status = _wait_for([*command, "--quiet", "all"])
    if not status:
        report = study.results / "report.html"
        if not options and report.is_file() and report.stat().st_mtime < since:
            print(f"all done before: {report}")
        return 0
    if failed := failures(study, since):
        for line in dict.fromkeys(line for _, lines in failed for line in lines):
            print(line, file=sys.stderr)
        return max(status_of_step for status_of_step, _ in failed)
    if status < 0:
        out_of_memory = ", most often because memory ran out; use fewer --cores"
        why = out_of_memory if status == -signal.SIGKILL else ""
        print(
            f"error: snakemake was killed by signal {-status}{why}; then: capeneuro "
            f"run {path} --unlock, and run it again",
            file=sys.stderr,
        )
        return 1
    if lines := _unlogged_failures(study, since, path):
        print("\n".join(lines), file=sys.stderr)
        return 1 if "was killed" in lines[0] else 2
    # No step began: Snakemake prints why in a dry run.
    raise _start_error(path, status, _run_aside([*command, "-n"]))


def _wait_for(command: list[str]) -> int:
    """Run Snakemake to its end, also if interrupted: it ends its steps itself."""
    child = subprocess.Popen(command, env={**os.environ, RUN: "1"})
    status, interrupted = None, False
    while status is None:
        try:
            status = child.wait()
        except KeyboardInterrupt:
            interrupted = True
    if status and interrupted:
        raise KeyboardInterrupt
    return status


def _check_snakemake(options: list[str]) -> None:
    """Refuse a Snakemake that is missing or too old, and profiles without a folder."""
    if find_spec("snakemake") is None:
        raise ConfigError("run: needs snakemake; pip install 'capeneuro[workflow]'")
    version = importlib.metadata.version("snakemake")
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < LEAST_SNAKEMAKE:
        least = ".".join(map(str, LEAST_SNAKEMAKE))
        raise ConfigError(
            f"run: needs snakemake {least} or later, got {version}; pip install -U "
            "'capeneuro[workflow]'"
        )
    for option, profile in pairwise(options):
        if option != "--workflow-profile" or profile == "none":
            continue
        # Snakemake would run here without it, and print nothing of it.
        if not Path(profile).is_dir():
            raise ConfigError(
                f"--workflow-profile: no folder {profile}; the one for a cluster is "
                "workflow/profiles/slurm"
            )


def _run_aside(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run Snakemake dry, and return its messages and errors in one text."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, **streams, text=True, env={**os.environ, RUN: "1"})


def _start_error(
    path: str, status: int, dry_run: subprocess.CompletedProcess[str]
) -> ConfigError:
    """Why Snakemake began no step, by the messages of a dry run."""
    if line := endings.in_words(dry_run.stdout, path):
        return ConfigError(f"{path}: {line}")
    messages = [line.strip() for line in dry_run.stdout.splitlines() if line.strip()]
    why = " ".join(messages[-3:])
    if not dry_run.returncode:  # its own log is empty where it is quiet
        why = f"no step printed why; its messages are in {endings.MESSAGES}"
    return ConfigError(f"{path}: snakemake ended with status {status}: {why}")


def _dry_run(path: str, study: StudyConfig, sites: Sites, command: list[str]) -> int:
    """Print the steps of a run, and its releases; return the exit status."""
    process = _run_aside(command)
    if process.returncode:
        raise _start_error(path, process.returncode, process)
    _, _, jobs = process.stdout.partition("Job stats:\n")
    rows = re.findall(r"^(\w+) +(\d+)$", jobs.partition("\n\n")[0], re.MULTILINE)
    steps = [f"{step} ({n})" for step, n in rows if step not in ("all", "total")]
    print(f"would run: {', '.join(steps) or 'nothing, all is done'}")
    preview(study, sites)
    return 0


def _snakefile() -> Path:
    """The Snakefile of the study's folder, or the installed one."""
    local = Path("workflow/Snakefile")
    return local if local.is_file() else scaffold.workflow() / "Snakefile"


def last_words(study: StudyConfig, since: float) -> None:
    """Print again, last of all, the errors of steps that failed since a time."""
    if RUN in os.environ:  # `capeneuro run` prints them
        return
    lines = [line for _, errors in failures(study, since) for line in errors]
    for line in lines or _unlogged_failures(study, since):
        print(line, file=sys.stderr)


def write_messages(logger: logging.Logger) -> None:
    """Write Snakemake's messages to a file, to look up why a run has failed."""
    with suppress(OSError):  # a step will report a full disk
        logger.addHandler(endings.MessageFile())


def watch_jobs() -> None:
    """Print which jobs of a cluster wait, and why, while Snakemake waits for them."""
    cluster.watch()


def _messages(since: float) -> str:
    """Snakemake's messages since a time."""
    path = endings.MESSAGES
    if not path.is_file() or path.stat().st_mtime < since:
        return ""
    return path.read_text(errors="replace")


def _logs(study: StudyConfig, since: float) -> list[Path]:
    """Logs that steps have written since a time, in their order."""
    logs = [
        *Path("private/_logs").glob(f"{study.study}/**/*.log"),
        *Path("private").glob(f"*/{study.study}/**/logs/*.log"),
    ]
    return [log for log in sorted(logs, key=_written) if _written(log) >= since]


def failures(study: StudyConfig, since: float) -> list[tuple[int, list[str]]]:
    """Exit status and errors of the steps that failed since a time, by their logs."""
    failed = []
    for log in _logs(study, since):
        if lines := errors_of(log):
            text = log.read_text(errors="replace").splitlines()
            statuses = [line.split()[-1] for line in text if line.startswith(ENDED)]
            lines = [f"error: {line}" for line in lines]
            failed.append((int(statuses[-1]) if statuses else 1, lines))
    return failed


def errors_of(log: str | Path) -> list[str]:
    """Errors at the end of a step's log, without the word `error`."""
    lines = Path(log).read_text(errors="replace").splitlines()
    return [line[7:] for line in lines if line.startswith("error: ")]


def _written(log: Path) -> float:
    return log.stat().st_mtime


def _unlogged_failures(study: StudyConfig, since: float, path: str = "") -> list[str]:
    """Why a run has failed of which no step logs an error: Snakemake, or memory."""
    label = path or f"study {study.study}"
    if line := endings.in_words(_messages(since), path or "STUDY"):
        return [f"error: {label}: {line}"]
    return [
        f"error: {label}: {log.stem}{_of_site(log)}: its process was killed, most "
        "often because memory ran out; use fewer --cores, or ask for more memory, and "
        "run the same command again"
        for log in _logs(study, since)
        if endings.is_cut(log.read_text(errors="replace"))
    ]


def _of_site(log: Path) -> str:
    return "" if log.parts[1] == "_logs" else f" of {log.parts[1]}"
