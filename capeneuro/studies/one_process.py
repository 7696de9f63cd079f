"""Steps of a study in this process: one of them, or all that are not done yet."""

import fcntl
import logging
import multiprocessing
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.studies import apart, registry, workflow
from capeneuro.studies.flow import StepFailed, one_site, outcome
from capeneuro.studies.gate import plan
from capeneuro.studies.reports import report
from capeneuro.studies.site_people import SitePeople, parse_part
from capeneuro.studies.sites import Sites
from capeneuro.studies.tasks import Task, tasks
from capeneuro.studies.threads import limit_threads
from capeneuro.studies.usage import Usage


def run_step(study: StudyConfig, sites: Sites, step: str, **options: Any) -> Any:
    """Run one step of a study, or of a stage, by the name of its command.

    Linear algebra has one thread: what a step computes must not depend on how many
    cores there are. `plan` and `report`, which foretell and draw, have all.

    Parameters
    ----------
    study, sites
        The study, and its sites whose files are here.
    step
        One of :func:`.steps.steps`.
    **options
        Those that the step has.

    Raises
    ------
    ConfigError
        If studies of this kind have no such step, or it is one of a stage.
    """
    if step in ("plan", "report"):
        return {"plan": plan, "report": report}[step](study, sites, **options)
    with limit_threads(1):
        return _run_step(study, sites, step, **options)


def _run_step(study: StudyConfig, sites: Sites, step: str, **options: Any) -> Any:
    if step in ("validate", "prepare"):
        apart.check(study, sites)
    if step == "validate":
        for name, stage in study.members.items():
            if name:
                print(f"{name}:")
            registry.of(stage).validate(sites, **options)
        return None
    if "" not in study.members:
        raise ConfigError(
            f"study {study.study}: {step}: is a step of one stage; --stage says which "
            f"of {', '.join(study.members)}"
        )
    kind = registry.of(study)
    if step in kind.result_files:
        return kind.release(step, sites, **options)
    if step == "prepare":
        return _prepare(study, sites, **options)
    if step == "reconstruct":
        return _reconstruct(study, sites, **options)
    methods = {"maps": kind.maps, "score": kind.score}
    if step not in methods:
        raise ConfigError(
            f"study {study.study}: {step}: no step of a study of {kind.name}; its "
            f"steps are {', '.join(kind.steps)}"
        )
    return methods[step](sites, **options)


def _site_people(
    task: Task, sites: Sites, threads: int, part: str, **options: Any
) -> SitePeople:
    """Describe a job's share of a site's people, such as ``3/8``; empty: everybody."""
    one_site(sites, task.site)
    number, n_parts = parse_part(part) if part else (0, 1)
    key = task.digest(sites)
    return SitePeople(task.people_folder, key, number, n_parts, threads, **options)


def _prepare(
    study: StudyConfig, sites: Sites, site: str, threads: int = 1, part: str = ""
) -> None:
    """Prepare a site's people, or store a part of them."""
    task = Task(study, "prepare", site=site)
    own_key = partial(task.digest_without_people, sites)
    people = _site_people(task, sites, threads, part, key_without_people=own_key)
    registry.of(study).prepare(sites, site, people)
    people.end()


def _reconstruct(
    study: StudyConfig, sites: Sites, site: str, threads: int = 1, part: str = ""
) -> None:
    """Write the result for the people of a site, or for a part of them."""
    task, kind = Task(study, "reconstruct", site=site), registry.of(study)
    if part and "reconstruct" not in kind.steps_in_parts:
        raise ConfigError(
            f"--part: reconstruct of a study of {kind.name} is one job; leave --part "
            "out"
        )
    people = _site_people(task, sites, threads, part, stores_all=True)
    kind.reconstruct(sites, site, people)
    people.end()


def run(path: str, cores: int, until: str = "report", is_dry: bool = False) -> int:
    """Run a study's steps that are not done, in this process; return the exit status.

    Where sites work at their institutions, Snakemake runs it.

    Parameters
    ----------
    path
        Study file.
    cores
        Number of processors.
    until
        The last step to run.
    is_dry
        Whether to print only which steps would run.

    Raises
    ------
    ConfigError
        If the study is not well formed, or another run is under way in this folder.
    PermissionError
        If this folder may not be written to.
    """
    study, sites = workflow.open_study(path)
    if study.federation == "files":
        raise ConfigError(
            f"{path}: federation: files: the aggregator types capeneuro aggregate "
            f"{path} --folder DIR; a site prepares with capeneuro prepare {path} "
            "--site NAME"
        )
    if study.federation == "nvflare":
        limit = [] if until == "report" else ["--until", until]
        return workflow.run(path, cores, [*["-n"] * is_dry, *limit])
    if is_dry:
        _print_due(tasks(study, sites), sites)
        workflow.preview(study, sites)
        return 0
    titles: list[str] = []

    def show(title: str) -> None:
        titles.append(title)
        print(title, flush=True)

    for _ in run_study(path, study, sites, cores, show, until):
        pass
    if not titles:
        print(f"all done before: {study.results / 'report.html'}")
    return 0


def run_study(
    path: str | Path,
    study: StudyConfig,
    sites: Sites,
    cores: int,
    show: Callable[[str], object],
    until: str = "report",
    release: Callable[[Task], object] | None = None,
) -> Iterator[Task]:
    """Run the tasks of a study that are not done; yield each task once it is done.

    Parameters
    ----------
    path, study, sites
        The study file, its keys as read, and its sites.
    cores, show
        As of :func:`run_tasks`.
    until
        The last step to run.
    release
        Called for a task that asks sites elsewhere.
    """
    due = tasks(study, sites)
    last = max(i for i, task in enumerate(due) if task.step == until)
    with _alone(path):
        yield from run_tasks(path, due[: last + 1], sites, cores, show, release)


@contextmanager
def _alone(path: str | Path) -> Iterator[None]:
    """Lock this folder against other runs; the lock ends with the process."""
    files.keep_private()
    workflow.refuse_beside_snakemake(path)
    with open("private/run.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "private/run.lock: another run is under way in this folder; wait for it"
            ) from None
        except OSError:  # a network disk without locks
            pass
        yield


def _print_due(tasks: list[Task], sites: Sites) -> None:
    """Print how often each step would run: not done, or after a step that runs."""
    counts: Counter[str] = Counter()
    renewed: set[str] = set()
    for task in tasks:
        if renewed & set(task.inputs(sites)) or not task.is_done(sites):
            renewed |= set(task.outputs(sites))
            counts[task.rule] += 1
    steps = [f"{rule} ({n})" for rule, n in counts.items()]
    print(f"would run: {', '.join(steps) or 'nothing, all is done'}")


def run_tasks(
    path: str | Path,
    tasks: Sequence[Task],
    sites: Sites,
    cores: int,
    show: Callable[[str], object] = print,
    release: Callable[[Task], object] | None = None,
) -> Iterator[Task]:
    """Run the tasks that are not done, in their order; yield each once it is done.

    Tasks of one step at several sites run in parallel, each in a process that is forked
    from this one, where that is safe: on Linux.

    Parameters
    ----------
    path, tasks, sites
        The study file, its tasks in an order in which they can be done, and its sites.
    cores
        Number of processors.
    show
        Called with the title of each task that begins.
    release
        Called for a task that asks sites elsewhere.

    Raises
    ------
    StepFailed
        If tasks of one step at several sites fail; any other task raises its own error.
    """
    for _, group in groupby(tasks, key=lambda task: (task.step, task.stage)):
        due = []
        for task in group:
            if task.is_done(sites):
                yield task
            else:
                due.append(task)
        if len(due) > 1 and cores > 1 and due[0].site and sys.platform == "linux":
            yield from _run_forked(due, sites, cores, show)
            continue
        for task in due:
            show(task.title)
            task.note_settings(sites)
            if task.step == "make_data":
                _make_data(path, task, cores)
            elif task.step == "aggregate" and release is not None:
                release(task)
            else:
                _run(task, sites, cores)
            yield task


def _make_data(path: str | Path, task: Task, cores: int) -> None:
    """Simulate the data of a study, as the workflow's rule does."""
    workflow.find_makers()
    command = [sys.executable, "-m", "sim", str(path), "--threads", str(cores)]
    command += ["--log", task.log]
    # A terminal would interrupt it, too; this process ends it.
    with _without_interruptions():
        maker = subprocess.Popen(command)
    try:
        status = maker.wait()
    finally:
        maker.terminate()  # nothing where it has ended
    if status:
        raise StepFailed(status, workflow.errors_of(task.log))


@contextmanager
def _without_interruptions() -> Iterator[None]:
    """Hold back interruptions of this process, and of one that is started here."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _run_forked(
    tasks: Sequence[Task], sites: Sites, cores: int, show: Callable[[str], object]
) -> Iterator[Task]:
    """Run each task in a process of its own, at most ``cores`` at a time."""
    context = multiprocessing.get_context("fork")
    waiting, running, failed = list(tasks), {}, []
    try:
        while running or (waiting and not failed):
            while waiting and len(running) < cores and not failed:
                task = waiting.pop(0)
                show(task.title)
                task.note_settings(sites)
                sys.stdout.flush()  # or the child prints it again
                process = context.Process(target=_run_and_exit, args=(task, sites))
                with _without_interruptions():
                    process.start()
                running[process.sentinel] = process, task
            for sentinel in wait(list(running)):
                process, task = running.pop(sentinel)
                process.join()
                if process.exitcode:
                    failed.append((process.exitcode, task))
                else:
                    yield task
    finally:
        for process, _ in running.values():
            process.terminate()
    if failed:
        lines = [line for status, task in failed for line in _errors(status, task)]
        raise StepFailed(max(1, *(status for status, _ in failed)), lines)


def _run_and_exit(task: Task, sites: Sites) -> None:
    """Run a task in a forked process, and exit; errors are in the task's log.

    A terminal interrupts this process, too; the one that started it ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        _run(task, sites, 1)
    except Exception as error:
        sys.exit(outcome(error)[0])


def _errors(status: int, task: Task) -> list[str]:
    """Errors of a task that failed in a process of its own."""
    if status > 0:
        return workflow.errors_of(task.log)
    return [
        f"study {task.study.study}: {task.title}: its process was killed, most often "
        "because memory ran out; use fewer --cores and run the same command again"
    ]


def _run(task: Task, sites: Sites, cores: int) -> None:
    """Run one task, with its messages and exit status in its log."""
    path = Path(task.log)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = logging.FileHandler(path, mode="w")
    log.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger().addHandler(log)
    usage = Usage()
    try:
        with limit_threads(cores):
            run_step(task.study, sites, task.step, **task.options(cores))
        log.stream.write(f"{usage.in_words()}\n")
    except Exception as error:
        status, lines = outcome(error)
        log.stream.writelines(f"error: {line}\n" for line in lines)
        log.stream.write(f"ended with status {status}\n")
        raise
    finally:
        logging.getLogger().removeHandler(log)
        log.close()
