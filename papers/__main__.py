"""The papers' experiments: ``python -m papers status|cell|table|plot|compare``.

Run it in a checkout. Cells take long; ``snakemake -s papers/Snakefile`` runs all that
have not run, and goes on where it was.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from threadpoolctl import threadpool_limits

from capeneuro.config.errors import ConfigError
from papers import grid

# Function of each experiment, by its module.
EXPERIMENTS = {
    "ica": "papers.cells.ica:ica_scores",
    "abide": "papers.cells.abide:abide_scores",
    "pca": "papers.cells.pca:pca_scores",
    "cca": "papers.cells.cca:cca_scores",
    "network": "papers.cells.network:network_scores",
    "otd": "papers.cells.tensors:otd_scores",
    "regression": "papers.cells.regression:regression_scores",
    "ica_rounds": "papers.cells.ica_thesis:ica_rounds",
    "ica_maps": "papers.cells.ica_thesis:ica_maps",
    "curves": "papers.cells.curves:curve_rows",
}


def status(options: argparse.Namespace) -> None:
    """List the cells of a figure, with the time each took, and how many have to run."""
    figure = grid.load(options.figure)
    for cell in grid.cells(figure):
        done = cell.path.exists()
        state = f"{grid.read_cell(cell)['seconds']} s" if done else "to run"
        print(cell.name, *(f"{k}={v}" for k, v in cell.axes.items()), state)
    print(grid.progress(figure))


def cell(options: argparse.Namespace) -> None:
    """Run one cell of a figure and keep its rows."""
    figure = grid.load(options.figure)
    found = {c.name: c for c in grid.cells(figure)}.get(options.cell)
    if found is None:
        raise ConfigError(
            f"{options.figure}: no cell {options.cell!r}; see python -m papers status "
            f"{options.figure}"
        )
    if figure.experiment not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(
            f"{options.figure}: experiment: must be of {known}, got "
            f"{figure.experiment!r}"
        )
    start = time.perf_counter()
    try:
        with threadpool_limits(1):
            rows = function(figure.experiment)(**found.options)
    except TypeError as error:
        # An option that the experiment does not know, or lacks.
        if "keyword" not in str(error):
            raise
        raise ConfigError(f"{options.figure}: cell {found.name}: {error}") from None
    except OSError as error:  # a reader may hide what is missing in what it raises
        missing = error.__cause__ or error
        raise ConfigError(f"{missing}; the figure's `folder` says where") from None
    grid.write_cell(found, rows, time.perf_counter() - start)


def table(options: argparse.Namespace) -> None:
    """Gather the rows of all cells in tables, and say which goals were met."""
    for goal in grid.write_tables(grid.load(options.figure)).itertuples():
        reached = f", mean {goal.mean:.4g} of {goal.n_repeats}"
        what = f"{goal.where}: {goal.score} {goal.goal}"
        print(f"{what}{reached if goal.n_repeats else ''}: {goal.verdict}")


def plot(options: argparse.Namespace) -> None:
    """Draw a figure from its finished cells."""
    print(*grid.write_plot(grid.load(options.figure)), sep="\n")


def compare(options: argparse.Namespace) -> None:
    """Run the papers' baselines on a prepared study of simulated or public data."""
    from papers.compare import compare_study

    compare_study(options.study, options.draws)


def function(experiment: str) -> Callable[..., list[dict[str, Any]]]:
    """Look up the function of an experiment; its modules load what they need."""
    module, name = EXPERIMENTS[experiment].split(":")
    return getattr(importlib.import_module(module), name)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; status 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (status, cell, table, plot, compare):
        about = command.__doc__ or ""
        added = commands.add_parser(command.__name__, help=about, description=about)
        added.set_defaults(run=command)
        if command is compare:
            added.add_argument("study", help="study file, prepared")
            added.add_argument("--draws", type=int, default=5, help="of the noise")
            continue
        added.add_argument("figure", help="figure file, of papers/grids/")
        if command is cell:
            added.add_argument("cell", help="its name; `status` lists them")
    options = parser.parse_args(argv)
    try:
        options.run(options)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
