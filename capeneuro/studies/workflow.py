"""What the Snakefile needs to know of a study: rules themselves hold no logic."""

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
from typing import Any

import yaml

from capeneuro.config import scaffold
from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.studies import cluster, endings, kinds
from capeneuro.studies.counts import assumed
from capeneuro.studies.flow import outcome
from capeneuro.studies.forecasts import Unknown
from capeneuro.studies.kinds import check_inputs, makes_data
from capeneuro.studies.plan import check_ready, promised, refuse, spending
from capeneuro.studies.plan import preview as what_is_paid
from capeneuro.studies.sites import Sites, load_sites
from capeneuro.studies.tasks import Task

# In the environment of steps that `capeneuro run` had started.
RUN = "CAPENEURO_RUN"
# The Snakemake that the rules are written for.
LEAST_SNAKEMAKE = (9, 20)
# How the log of a step that failed ends, before its status.
ENDED = "ended with status"


def read_study(
    paths: list[Any], given: dict[str, Any]
) -> tuple[str, StudyConfig, Sites]:
    """Read the study that Snakemake was given, as the steps will read it.

    Raises
    ------
    ConfigError
        If there is more than one file, or keys were overridden on the command line: a
        study is one file, and the steps read that file. If a site has nothing of what
        its file names.
    """
    find_commands()
    # Privacy: what Snakemake keeps of its jobs names the files of people.
    files.keep_private(".snakemake")
    path = os.path.relpath(paths[-1])
    study = load_study(path)
    if len(paths) > 1 or yaml.safe_load(Path(path).read_text()) != given:
        raise ConfigError(
            f"{path}: a study is one file; write overrides into it instead of --config "
            "or a second --configfile"
        )
    sites = load_sites(study)
    check_inputs(study, sites)
    return path, study, sites


def find_commands() -> None:
    """Let `.venv/bin/snakemake`, without activation, find the `capeneuro` beside it."""
    here = str(Path(sys.executable).parent)
    if here not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = here + os.pathsep + os.environ.get("PATH", "")


def find_maker(path: str | Path) -> None:
    """Refuse a study that has its data made where the data makers are not."""
    if find_spec("sim") is None and not Path("sim").is_dir():
        raise ConfigError(
            f"{path}: data: is made by `python -m sim`, which a checkout of capeneuro "
            "has and the package of `pip install` has not; install the checkout: "
            "pip install -e '.[workflow]'"
        )


def made_data(study: StudyConfig, sites: Sites) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    is_made = makes_data(study, sites)
    return Task(study, "make_data").outputs(sites) if is_made else []


def preview(study: StudyConfig, sites: Sites) -> None:
    """Print what a run would release, what is paid already, and what ceilings leave."""
    if RUN in os.environ:  # who started Snakemake says it
        return
    print()
    try:
        print(promised(study))
        spending(study)
        what_is_paid(study, sites)
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
    """Read a study and its sites, and refuse what a run would stumble on."""
    study = load_study(path)
    sites = load_sites(study)
    kinds.check(study)
    check_inputs(study, sites)
    if not all(Path(made).exists() for made in made_data(study, sites)):
        find_maker(path)
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


def run(path: str, cores: int, more: list[str]) -> int:
    """Run a study by Snakemake, whose own messages nobody reads; its exit status.

    Steps show their progress and say what is wrong themselves. If one fails, the last
    lines say again why, and nothing else of Snakemake.

    Parameters
    ----------
    path
        Study file.
    cores
        How many processors it may use.
    more
        Further arguments of Snakemake.

    Raises
    ------
    ConfigError
        If the study is not well formed, or another run is under way in this folder.
    PermissionError
        If nothing may be written here.
    """
    _check_snakemake(more)
    study, sites = open_study(path)
    if "--unlock" not in more:
        refuse_beside_snakemake(path)
    os.environ |= endings.usable_caches()
    command = [sys.executable, "-m", "snakemake", "--configfile", path]
    command += ["--snakefile", str(_snakefile()), "--cores", str(cores)]
    command += ["--workflow-profile", "none", "--rerun-incomplete", *more]
    if {"-n", "--dry-run", "--dryrun"} & set(more):
        return _foretell_run(path, study, sites, command)
    since = time.time()
    child = subprocess.Popen([*command, "--quiet", "all"], env={**os.environ, RUN: "1"})
    status, interrupted = None, False
    while status is None:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # Snakemake was told, too, and ends its steps
            interrupted = True
    if status and interrupted:
        raise KeyboardInterrupt
    if not status:
        report = study.results / "report.html"
        if not more and report.is_file() and report.stat().st_mtime < since:
            print(f"all done before: {report}")
        return 0
    if failed := failures(study, since):
        for line in dict.fromkeys(line for _, lines in failed for line in lines):
            print(line, file=sys.stderr)
        return max(own for own, _ in failed)
    if status < 0:
        out_of_memory = ", most often because memory ran out; use fewer --cores"
        why = out_of_memory if status == -signal.SIGKILL else ""
        print(
            f"error: snakemake was killed by signal {-status}{why}; then: capeneuro "
            f"run {path} --unlock, and run it again",
            file=sys.stderr,
        )
        return 1
    if lines := _unsaid(study, since, path):
        print(*lines, sep="\n", file=sys.stderr)
        return 1 if "was killed" in lines[0] else 2
    # No step began: Snakemake says why, if it is asked once more.
    raise _no_start(path, status, _ask([*command, "-n"]))


def _check_snakemake(more: list[str]) -> None:
    """Refuse a Snakemake that is missing or too old, and profiles that are nowhere."""
    if find_spec("snakemake") is None:
        raise ConfigError("run: needs snakemake; pip install 'capeneuro[workflow]'")
    version = importlib.metadata.version("snakemake")
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < LEAST_SNAKEMAKE:
        least = ".".join(map(str, LEAST_SNAKEMAKE))
        raise ConfigError(
            f"run: needs snakemake {least} or later, got {version}; pip install -U "
            "'capeneuro[workflow]'"
        )
    for option, where in pairwise(more):
        profile = Path(where)
        # Snakemake would do without it, silently, and run here.
        if option == "--workflow-profile" and where != "none" and not profile.is_dir():
            raise ConfigError(
                f"--workflow-profile: no folder {where}; the one for a cluster is "
                "workflow/profiles/slurm"
            )


def _ask(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a dry run of Snakemake says, with its errors, and nothing of ours."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, **both, text=True, env={**os.environ, RUN: "1"})


def _no_start(
    path: str, status: int, asked: subprocess.CompletedProcess[str]
) -> ConfigError:
    if line := endings.in_words(asked.stdout, path):
        return ConfigError(f"{path}: {line}")
    said = [line.strip() for line in asked.stdout.splitlines() if line.strip()]
    why = " ".join(said[-3:])
    if not asked.returncode:  # its own log is empty where it is quiet
        why = f"no step said why; what it said is in {endings.KEPT}"
    return ConfigError(f"{path}: snakemake ended with status {status}: {why}")


def _foretell_run(
    path: str, study: StudyConfig, sites: Sites, command: list[str]
) -> int:
    """Print which steps a run would do, and what it would release."""
    asked = _ask(command)
    if asked.returncode:
        raise _no_start(path, asked.returncode, asked)
    _, _, jobs = asked.stdout.partition("Job stats:\n")
    rows = re.findall(r"^(\w+) +(\d+)$", jobs.partition("\n\n")[0], re.MULTILINE)
    steps = [f"{step} ({n})" for step, n in rows if step not in ("all", "total")]
    print(f"would run: {', '.join(steps) or 'nothing, all is done'}")
    preview(study, sites)
    return 0


def _snakefile() -> Path:
    """That of the study's folder, or the installed one."""
    own = Path("workflow/Snakefile")
    return own if own.is_file() else scaffold.workflow() / "Snakefile"


def last_words(study: StudyConfig, since: float) -> None:
    """Print again, last of all, why the steps that failed since then did."""
    if RUN in os.environ:  # who started Snakemake says it
        return
    lines = [line for _, own in failures(study, since) for line in own]
    lines = lines or _unsaid(study, since)
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)


def hear(logger: logging.Logger) -> None:
    """Keep what Snakemake says, for who asks why a run has failed."""
    with suppress(OSError):  # of a disk that is full a step will say it
        logger.addHandler(endings.Heard())


def watch_jobs() -> None:
    """Say which jobs of a cluster wait, and why, while Snakemake waits for them."""
    cluster.watch()


def _heard(since: float) -> str:
    """What Snakemake said since then."""
    path = endings.KEPT
    if not path.is_file() or path.stat().st_mtime < since:
        return ""
    return path.read_text(errors="replace")


def _logs(study: StudyConfig, since: float) -> list[Path]:
    """Logs that steps have written since then, in their order."""
    logs = [
        *Path("private/_logs").glob(f"{study.study}/**/*.log"),
        *Path("private").glob(f"*/{study.study}/**/logs/*.log"),
    ]
    return [log for log in sorted(logs, key=_written) if _written(log) >= since]


def failures(study: StudyConfig, since: float) -> list[tuple[int, list[str]]]:
    """Exit status and lines of the steps that failed since then, by their logs."""
    found = []
    for log in _logs(study, since):
        if lines := errors_of(log):
            text = log.read_text(errors="replace").splitlines()
            ended = [line.split()[-1] for line in text if line.startswith(ENDED)]
            lines = [f"error: {line}" for line in lines]
            found.append((int(ended[-1]) if ended else 1, lines))
    return found


def errors_of(log: str | Path) -> list[str]:
    """Errors that a step's log ends with, without the word."""
    lines = Path(log).read_text(errors="replace").splitlines()
    return [line[7:] for line in lines if line.startswith("error: ")]


def _written(log: Path) -> float:
    return log.stat().st_mtime


def _unsaid(study: StudyConfig, since: float, path: str = "") -> list[str]:
    """Why a run has failed in which no step said it: by Snakemake, or by an end."""
    where = path or f"study {study.study}"
    if line := endings.in_words(_heard(since), path or "STUDY"):
        return [f"error: {where}: {line}"]
    return [
        f"error: {where}: {log.stem}{_of_site(log)}: its process was killed, most "
        "often because memory ran out; use fewer --cores, or ask for more memory, and "
        "run the same command again"
        for log in _logs(study, since)
        if endings.is_cut(log.read_text(errors="replace"))
    ]


def _of_site(log: Path) -> str:
    return "" if log.parts[1] == "_logs" else f" of {log.parts[1]}"
