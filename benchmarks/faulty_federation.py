"""Studies over a federation that is broken on purpose, again and again.

    PYTHONPATH=. .venv/bin/python benchmarks/faulty_federation.py --n 100 --seed 1

Sites as processes over mutual TLS, each with a line of its own; small studies of every
kind, where all of three sites must answer (one exchange a sum) or four of five (four
exchanges). What strikes, whom, after how many releases and for how long is drawn from
the seed. After each study its released arrays are compared with those of one process
over the same survivors, and what left the sites with their ledgers.

Prints a row for each kind of fault, and ends with status 1 if anything differs. With
``--out FILE`` faults are kept as they come, and the same command goes on where it
stopped, for ``--minutes`` at a time. ``--plant`` lets a party make an error on purpose,
which must be found. Needs the extra `federated`; half a minute a fault.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).parents[1] / "tests" / "tools"))
import breaking
import kinds
import parties

NAMES = tuple(f"site-{i}" for i in range(5))
LONG = ("components", "network")
SHORT = ("prior", "spatial", *sorted(kinds.KINDS.keys() - {"network"}))
ALL, ENOUGH = 3, 4
# Rounds of a long study, and seconds of a site's work in one.
ROUNDS, WORK = 80, 0.4
PLANTS = {"early": "site-1", "survivors": breaking.HUB}


def write(root: Path, study: str, waits: bool) -> tuple[str, ...]:
    """Write a study, and each party's part beside it; the names of its sites."""
    names, budget = NAMES, {"n_colluding": 0}
    if waits:
        names = NAMES[:ALL]
    else:
        budget["survivor_threshold"] = ENOUGH
    if study in kinds.KINDS:
        kinds.write_kind(root, study, names=names, n_rounds=ROUNDS, **budget)
        parties.join_all(root, names)
    else:
        own = {study: True} if study in SHORT else {}
        parties.write_parties(root, ROUNDS, names, is_run=False, **own, **budget)
    return names


def schedule(draw: Random, kept: list[str], n: int):
    """Studies without end: name, whether all must answer, and kinds of faults."""
    deck: list[str] = []
    long = draw.sample([(s, w) for s in LONG for w in (True, False)], 4)
    short = draw.sample([(s, w) for s in SHORT for w in (True, False)], 2 * len(SHORT))
    while True:
        for at in (long, short, short):
            study, waits = at[0]
            at.append(at.pop(0))
            size = min(n, 8 if study in LONG else 2)
            while len(deck) < size:
                deck += draw.sample(kept, len(kept))
            yield study, waits, deck[:size]
            del deck[:size]


def run_study(
    root: Path,
    kits: Path,
    lines: dict,
    plan: tuple[str, bool, list[str]],
    draw: Random,
    plant: str,
    last: float,
) -> list[dict]:
    """Run one study through its faults, none after ``last``; a row for each."""
    study, waits, struck = plan
    with contextlib.redirect_stdout(io.StringIO()):
        names, outcomes = write(root, study, waits), []
    own = {name: lines[name] for name in names}
    plants = {PLANTS[plant]: plant} if plant else {}
    error, verdict = "", breaking.Verdict([], [], [])
    try:
        with breaking.Running(root, kits, names, own, plants, WORK) as run:
            _break_one_after_another(run, study, struck, draw, last, outcomes)
        with contextlib.redirect_stdout(io.StringIO()):
            verdict = breaking.examine(root, names, run.notes)
    except Exception as failure:  # a row, not the end of the others
        error = f"{type(failure).__name__}: {failure}"
    about = {"study": study, "waits": waits, "error": error, **vars(verdict)}
    return [outcome.row | about for outcome in outcomes] or [{"kind": "", **about}]


def _break_one_after_another(
    run: breaking.Running,
    study: str,
    struck: list[str],
    draw: Random,
    last: float,
    outcomes: list[breaking.Outcome],
) -> None:
    """Let faults strike until the study is done; each is in ``outcomes`` before."""
    for kind in struck:
        if outcomes and time.monotonic() > last:
            break
        fault = breaking.drawn(kind, run.names, study in LONG, draw)
        outcomes.append(breaking.Outcome(fault))
        if not breaking.strike(run, outcomes[-1]):
            outcomes.pop()
            break
        print(f"  {outcomes[-1]}", flush=True)
    breaking.finish(run)


def is_right(row: dict) -> bool:
    """Whether nothing of a row's study differs."""
    return not any(row[k] for k in ("error", "different", "uncharged", "undeclared"))


def table(rows: list[dict]) -> list[str]:
    """A line for each kind of fault."""
    lines = [
        "| fault | number | noticed, s | back, s | typed again | equal | uncharged |"
    ]
    lines.append("|" + "---|" * 7)
    for kind in breaking.KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        seen = [row["noticed"] for row in own if row["noticed"] is not None]
        equal = sum(not row["error"] and not row["different"] for row in own)
        cells = [
            kind,
            len(own),
            f"{_spread(seen)} ({len(seen)} of {len(own)})",
            _spread([row["back"] for row in own if row["back"] is not None]),
            sum(len(row["again"]) for row in own),
            f"{equal} of {len(own)}",
            sum(len(row["uncharged"]) + len(row["undeclared"]) for row in own),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _spread(seconds: list[float]) -> str:
    """Median and range."""
    if not seconds:
        return "-"
    middle = statistics.median(seconds)
    return f"{middle:.0f}; {min(seconds):.0f} to {max(seconds):.0f}"


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=100, help="number of faults")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--kinds", nargs="*", default=[""], help="words of their names")
    parser.add_argument("--studies", nargs="*", default=[], help="kinds of studies")
    parser.add_argument("--plant", choices=PLANTS, help="an error to be found")
    parser.add_argument(
        "--minutes", type=float, default=1e9, help="break nothing later"
    )
    parser.add_argument("--out", type=Path, help="lines of JSON, a fault each")
    return parser.parse_args()


def main() -> int:
    """Break federations, print the table; 1 if anything differs."""
    options = read_options()
    last = time.monotonic() + 60 * options.minutes
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    is_kept = options.out and options.out.exists()
    lines = options.out.read_text().splitlines() if is_kept else []
    rows, done = [json.loads(line) for line in lines], -1
    if rows:
        done = rows[-1]["number"]
    kept = [k for k in breaking.KINDS if any(word in k for word in options.kinds)]
    with tempfile.TemporaryDirectory() as folder:
        parties.write_parties(Path(folder) / "any", 3, NAMES)
        port = parties.free_port()
        parties.make_kits(Path(folder) / "any/together", port)
        kits = Path(folder) / "any/together/kits"
        proxies = breaking.make_lines(kits, NAMES, port)
        plans = schedule(Random(options.seed), kept, options.n)
        for number, plan in enumerate(plans):
            struck = sum(bool(row["kind"]) for row in rows)
            over = time.monotonic() > last
            if struck >= options.n or over or (options.plant and rows):
                break
            study, waits, _ = plan
            if number <= done or (options.studies and study not in options.studies):
                continue
            if options.plant == "survivors" and waits:
                continue  # masks would not cancel: the study would never end
            print(f"{number}: {study}, {'all' if waits else 'one less'}", flush=True)
            draw = Random(f"{options.seed} {number}")
            root = Path(folder) / f"study-{number}"
            new = run_study(root, kits, proxies, plan, draw, options.plant or "", last)
            new = [{"number": number, **row} for row in new]
            for row in new:
                for key in ("error", "different", "uncharged", "undeclared"):
                    if row[key]:
                        print(f"  {key}: {row[key]}", flush=True)
            rows += new
            if options.out:
                with open(options.out, "a") as out:
                    out.writelines(json.dumps(row) + "\n" for row in new)
    print("\n".join(table(rows)))
    return 0 if all(map(is_right, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
