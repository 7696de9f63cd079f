"""Jobs of a cluster that wait: SLURM is asked why, and a line says it.

Snakemake waits for its jobs without a word: for one that no node can take, for one that
SLURM has forgotten, and while SLURM does not answer.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from capeneuro.studies import endings

# Seconds: between looks; that a job waits, or SLURM is silent, before it is said; until
# the same is said again.
LOOK, PATIENCE, AGAIN = 30.0, 90.0, 1800.0
SUBMITTED = re.compile(
    r"Job (\d+) has been submitted with SLURM jobid (\d+) "
    r"\(log: .*?/rule_([^/]+)/(?:(.*)/)?\d+\.log\)"
)
RUN = re.compile(r"SLURM run ID: (\S+)")
ENDED = re.compile(r"(?:Finished jobid: |Error in rule \w+, jobid: )(\d+)")


def watch(path: Path = endings.KEPT) -> None:
    """Say which jobs of this run wait, and why, for as long as the process lives.

    Parameters
    ----------
    path
        File of what Snakemake says, see :mod:`.endings`.
    """
    threading.Thread(target=_watch, args=(path,), daemon=True).start()


def _watch(path: Path) -> None:
    since: dict[str, float] = {}  # when what is said now was first true
    last: dict[str, float] = {}  # when it was said
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


def waiting(said: str) -> list[str]:
    """Jobs of a run that do not go on as SLURM has them now, one line each.

    Parameters
    ----------
    said
        What Snakemake has said of the run.

    Returns
    -------
    list of str
        Empty where no job waits, or there is no run of SLURM.
    """
    run = RUN.search(said)
    over = set(ENDED.findall(said))
    jobs = {
        job: " of ".join(filter(None, [rule, who]))
        for own, job, rule, who in SUBMITTED.findall(said)
        if own not in over
    }
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
    """State and reason of each job of a run; or what is wrong with `squeue`."""
    command = ["squeue", "--states=all", "--noheader", "--format=%i|%T|%r"]
    try:
        done = subprocess.run(
            [*command, f"--name={run}"], capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        return {}, "squeue: not found"
    except (OSError, subprocess.TimeoutExpired):
        return {}, "squeue: no answer in a minute"
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["it failed"]
        return {}, f"squeue does not answer ({words[-1]})"
    rows = [line.split("|") for line in done.stdout.splitlines()]
    states = {row[0].strip(): (row[1], row[2].strip("() ")) for row in rows if row[2:]}
    return states, ""


def _remedy(reason: str) -> str:
    """What to do about the reason for which SLURM lets a job wait."""
    for pattern, line in endings.WAITS.items():
        if re.search(pattern, reason):
            return line
    return "see scontrol show job"
