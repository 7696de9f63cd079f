"""What the scripts of this folder share: options, public data, how a rate is said.

A script prints what it finds for people, and a line for each row of `rows.tsv` that it
measures, ``rate NAME VALUE of N``: N is the number of independent draws behind a share
of draws, 0 where the value is none. `python -m evidence truth` reads these lines.
"""

import argparse
import os
from pathlib import Path

# Public data, which are not of the repository.
ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("CAPENEURO_DATA", ROOT / "../shared/data"))


def options(description: str, draws: int) -> argparse.ArgumentParser:
    """Options of a script: the number of draws in each cell, and of processes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--draws", type=int, default=draws, help="in each cell")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def say(row: str, value: float, n: int = 0) -> None:
    """Print the rate of a row, a share of n independent draws."""
    print(f"rate {row} {value:.4f} of {n}", flush=True)
