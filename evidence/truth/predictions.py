"""How many new people a regression's prediction interval holds.

Five public tables at four sites, 300 to 4000 people and epsilon 1 to 32, three of them
real. Each draw takes other people of the table for the study, and noise of its own;
everybody else of the table is a new person.

    python -m evidence.truth.predictions [--draws 20]

Writes ``predictions.tsv``: how often an interval is written (where r2 can be
told), the share of new people that it holds, and its width.
"""

import argparse
from pathlib import Path

import numpy as np

from evidence.truth import statements, table_ranges
from evidence.truth.statements import Table

OUT = Path(__file__).with_suffix(".tsv")
EPSILONS = (1.0, 4.0, 8.0, 32.0)
# New people that a table must have left.
LEAST_NEW = 300


def coverage(cell: Table, folder: Path, n_draws: int) -> tuple[float, float, float]:
    """Share of draws with an interval; of new people that it holds; its median width.

    Parameters
    ----------
    cell
        The table and the promise.
    folder
        Where the tables are.
    n_draws
        Draws of people and noise.
    """
    rng = np.random.default_rng([cell.D, cell.N, int(10 * cell.epsilon)])
    X, y = table_ranges.scaled_table(cell.name, folder)
    site, drawn = np.arange(len(y)) % cell.S, []
    for _ in range(n_draws):
        order = rng.permutation(len(y))
        _, hits = statements.judged(cell, X[:, order], y[order], site, 1, rng)
        drawn += hits["prediction"]
    has_interval, inside, width = np.array(drawn, float).T
    written = has_interval > 0
    if not written.any():
        return 0.0, np.nan, np.nan
    return written.mean(), inside[written].mean(), float(np.median(width[written]))


def main() -> None:
    """Measure all cells and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    lines, covered = ["table\tN\tepsilon\twritten\tholds\twidth"], []
    for name in table_ranges.TABLES:
        D, n = table_ranges.scaled_table(name, options.data)[0].shape
        for N in (300, 1000, 4000):
            for epsilon in EPSILONS if n >= N + LEAST_NEW else ():
                cell = Table(name, D, table_ranges.SITES, N, epsilon)
                row = coverage(cell, options.data, options.draws)
                lines.append(
                    "\t".join([name, *(f"{v:.3g}" for v in (N, epsilon, *row))])
                )
                print(lines[-1], flush=True)
                covered.append(row[:2])
    OUT.write_text("\n".join(lines) + "\n")
    written, holds = np.array(covered).T
    mean = np.average(holds[written > 0], weights=written[written > 0])
    print(f"mean over releases {mean:.3f}, worst cell {np.nanmin(holds):.3f}")


if __name__ == "__main__":
    main()
