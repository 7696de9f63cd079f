"""Measure the rows of docs/statements.md again, and compare them with their targets.

    python -m evidence truth                  every row, few draws each
    python -m evidence truth --full r2        rows by name, as docs/statements.md has it
    python -m evidence truth --part 3/20      a twentieth of the rows
    python -m evidence truth --list

`rows.tsv` is the only list of rows. ``row`` is the sentence's name, a slash, and the
data; a docstring line ``Row: NAME`` marks the functions that write the sentence.
``needs`` are public data, files in the folder that ``$CAPENEURO_DATA`` names
(../shared/data by default); where they are absent the row is skipped. ``target`` is a
range of the rate, or ``-`` for a row that is measured and not judged. ``command`` are
a script of this folder and its options, ``small`` the options that make it quick.

The exit status is 1 if a rate is outside its target by more than its draws explain, or
if a command gives no rate. Results are kept in ``measured.tsv``, a line a row.
"""

import argparse
import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import scipy.stats

from capeneuro.data import files
from capeneuro.studies.site_people import parse_part
from evidence.truth.rates import DATA

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
ROWS, OUT, PAGE = HERE / "rows.tsv", HERE / "measured.tsv", "docs/statements.md"
RATE = re.compile(r"^rate (\S+) (\S+) of (\d+)$", re.MULTILINE)
HEAD = ["row", "data", "rate", "draws", "target", "verdict", "command", "commit"]
COLUMNS = "Row", "Sentence", "Estimand", "Data", "Target", "Rate", "Command"
# Chance that a rate on the border of its target is called outside.
SURE = 1e-6


class Row(NamedTuple):
    """A sentence on some data, and how to measure it."""

    row: str
    section: str
    """Of docs/statements.md."""
    sentence: str
    estimand: str
    needs: str
    data: str
    target: str
    rate: str
    """As measured in full, for docs/statements.md."""
    command: str
    small: str

    @property
    def name(self) -> str:
        """Name of the sentence."""
        return self.row.split("/")[0]

    @property
    def is_here(self) -> bool:
        """Whether its data are."""
        return all((DATA / path).exists() for path in self.needs.split())

    def verdict(self, rate: float, n: int) -> str:
        """Compare a rate of n draws with the target."""
        if self.target == "-":
            return "not judged"
        low, high = map(float, self.target.split(" to "))
        if low <= rate <= high:
            return "inside"
        if n and 0 <= rate <= 1:
            p = low if rate < low else high
            alternative = "less" if rate < low else "greater"
            test = scipy.stats.binomtest(round(rate * n), n, p, alternative)
            if test.pvalue > SURE:
                return "inside, for so few draws"
        return "OUTSIDE"


def read_rows() -> list[Row]:
    """All rows, in the order of docs/statements.md."""
    about = {"dtype": str, "keep_default_na": False, "quoting": csv.QUOTE_NONE}
    table = pd.read_csv(ROWS, sep="\t", **about)
    return [Row(**line) for line in table.to_dict("records")]


def page(text: str, rows: list[Row]) -> str:
    """The page with new tables, each below its comment ``rows: SECTION``."""

    def table(match: re.Match) -> str:
        lines = [COLUMNS, ["---"] * len(COLUMNS)]
        for row in rows:
            if row.section == match[2]:
                data = row.data + " (real)" * bool(row.needs)
                about = row.sentence, row.estimand, data, row.target, row.rate
                command = f"`python -m evidence.truth.{row.command}`"
                lines.append([f"`{row.row}`", *about, command])
        return match[1] + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    return re.sub(r"(<!-- rows: (.+?) -->\n\n)(?:\|.*\n)*", table, text)


def run(command: str) -> str:
    """Run a script of this folder; what it prints, or why it failed."""
    script, *options = shlex.split(command)
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", f"evidence.truth.{script}", *options],
        env=threads | os.environ,
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(done.stdout[-2000:], (done.stderr or "")[-2000:], file=sys.stderr)
    return done.stdout


def measure(row: Row, printed: str, command: str, commit: str) -> list[str]:
    """Line of the table, from what the row's command printed."""
    said = {name: (value, n) for name, value, n in RATE.findall(printed)}
    kind = "real" if row.needs else "simulated"
    if row.row not in said:
        skipped = re.search(r"skipped: .*", printed)
        verdict, (rate, n) = skipped[0] if skipped else "NO RATE", ("", "")
    else:
        rate, n = said[row.row]
        verdict = row.verdict(float(rate), int(n))
    return [row.row, kind, rate, n, row.target, verdict, command, commit]


def main(arguments: list[str]) -> int:
    """Measure rows, print and keep a line of each; 1 where one is outside."""
    parser = argparse.ArgumentParser(
        prog="python -m evidence truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="name, or name/data")
    parser.add_argument("--part", metavar="K/N", help="every Nth command from the Kth")
    parser.add_argument("--full", action="store_true", help="all draws: hours")
    parser.add_argument("--list", action="store_true", help="rows and commands")
    parser.add_argument("--page", action="store_true", help=f"write tables of {PAGE}")
    given, rows = parser.parse_args(arguments), read_rows()
    if given.page:
        files.write_text(ROOT / PAGE, page((ROOT / PAGE).read_text(), rows))
        return 0
    if unknown := set(given.rows) - {x for row in rows for x in (row.row, row.name)}:
        parser.error(f"unknown rows {', '.join(sorted(unknown))}; see --list")
    if given.rows:
        rows = [row for row in rows if {row.row, row.name} & set(given.rows)]
    commands: dict[str, list[Row]] = {}
    for row in rows:
        small = "" if given.full else f" {row.small}".rstrip()
        commands.setdefault(row.command + small, []).append(row)
    chosen = list(commands)
    if given.part:
        k, n = parse_part(given.part)
        chosen = chosen[k - 1 :: n]
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    kept = OUT.read_text().splitlines()[1:] if OUT.exists() else []
    lines, failed = {line.split("\t")[0]: line.split("\t") for line in kept}, 0
    for command in chosen:
        own = commands[command]
        if given.list:
            print(*(row.row for row in own), command, own[0].needs, sep="\t")
            continue
        absent = {row.needs for row in own if not row.is_here}
        printed = (
            f"skipped: {', '.join(absent)} not in {DATA}" if absent else run(command)
        )
        for row in own:
            line = lines[row.row] = measure(row, printed, command, commit)
            print(*line[:6], sep="\t", flush=True)
            failed += line[5] in ("OUTSIDE", "NO RATE")
        files.write_table(OUT, HEAD, list(lines.values()))
    return min(failed, 1)
