"""Print why jobs of a cluster wait, from SLURM's queue.

Snakemake waits for its jobs and prints nothing: for a job that no node can take, for
one that SLURM has forgotten, and while SLURM does not answer.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from capeneuro.studies import endings

# Seconds: between queries; that a job waits, or SLURM does not answer, before a line is
# printed; until the same line is printed again.
LOOK, PATIENCE, AGAIN = 30.0, 90.0, 1800.0
SUBMITTED = re.compile(
    r"Job (\d+) has been submitted with SLURM jobid (\d+) "
    r"\(log: .*?/rule_([^/]+)/(?:(.*)/)?\d+\.log\)"
)
ARRAY = re.compile(
    r"Submitted array job with Snakemake IDs ([\d,]+) and SLURM job ID (\d+)"
)
RUN = re.compile(r"SLURM run ID: (\S+)")
ENDED = re.compile(r"(?:Finished jobid: |Error in rule \w+, jobid: )(\d+)")


def watch(path: Path = endings.MESSAGES) -> None:
    """Print which jobs of this run wait, and why, as long as the process lives.

    Parameters
    ----------
    path
        File of Snakemake's messages, see :mod:`.endings`.
    """
    threading.Thread(target=_watch, args=(path,), daemon=True).start()


def _watch(path: Path) -> None:
    since: dict[str, float] = {}  # when each line was first true
    last: dict[str, float] = {}  # when it was printed
    while True:
        time.sleep(min(LOOK, PATIENCE))
        now = time.monotonic()
        lines = waiting(path.read_text(errors="replace")) if path.is_file() else []
        since = {line: since.get(line, now) for line in lines}
        for line, start in since.items():
            late = now - start >= PATIENCE
            if late and now - last.get(line, -AGAIN) >= AGAIN:
                last[line] = now
                print(f"waiting: {line}", file=sys.stderr, flush=True)


def waiting(messages: str) -> list[str]:
    """Jobs of a run that wait, or that SLURM has lost, one line each.

    Parameters
    ----------
    messages
        Snakemake's messages of the run.

    Returns
    -------
    list of str
        Empty where no job waits, or there is no run of SLURM.
    """
    run = RUN.search(messages)
    ended = set(ENDED.findall(messages))
    jobs = {
        job: " of ".join(filter(None, [rule, site]))
        for number, job, rule, site in SUBMITTED.findall(messages)
        if number not in ended
    }
    for numbers, job in ARRAY.findall(messages):
        if n := len({*numbers.split(",")} - ended):
            jobs[job] = f"an array of jobs, {n} not done,"
    if run is None or not jobs:
        return []
    states, trouble = _states(run[1])
    if trouble:
        return [
            f"{trouble}; jobs go on, and so does this when SLURM answers; if it does "
            "not, ask who keeps the cluster"
        ]
    lines = []
    for job, name in jobs.items():
        state, reason = states.get(job, ("", ""))
        if not state:
            lines.append(
                f"{name} (SLURM job {job}) is not known to SLURM any more; its end was "
                "missed: press Ctrl-C and type the same command again, which keeps "
                "what is done; where SLURM keeps accounts set slurm-status-command: "
                "sacct in the profile"
            )
        elif state in ("PENDING", "SUSPENDED", "REQUEUE_HOLD", "SPECIAL_EXIT"):
            lines.append(f"{name} (SLURM job {job}), {reason}: {_remedy(reason)}")
    return lines


def _states(run: str) -> tuple[dict[str, tuple[str, str]], str]:
    """State and reason of each job of a run; or why `squeue` failed."""
    command = ["squeue", "--states=all", "--noheader", "--format=%i|%T|%r"]
    try:
        process = subprocess.run(
            [*command, f"--name={run}"], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        return {}, "squeue: not found"
    except (OSError, subprocess.TimeoutExpired):
        return {}, "squeue: no answer in a minute"
    if process.returncode:
        words = process.stderr.strip().splitlines() or ["it failed"]
        return {}, f"squeue does not answer ({words[-1]})"
    states: dict[str, tuple[str, str]] = {}
    for line in process.stdout.splitlines():
        number, state, reason = [*line.split("|"), "", ""][:3]
        job = number.strip().partition("_")[0]  # an array is one job
        if state == "RUNNING" or job not in states:
            states[job] = state, reason.strip("() ")
    return states, ""


def _remedy(reason: str) -> str:
    """Remedy for the reason for which SLURM lets a job wait."""
    for pattern, line in endings.WAITS.items():
        if re.search(pattern, reason):
            return line
    return "see scontrol show job"
