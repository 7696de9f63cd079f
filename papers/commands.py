"""The papers' experiments: ``python -m papers status|cell|table|plot|book|...``.

Run it in a checkout. Cells take long; ``snakemake -s papers/Snakefile`` runs all that
have not run, and goes on where it was.
"""

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from threadpoolctl import threadpool_limits

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from papers import grid, provenance
from papers import status as progress

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
    "ica_autocorrelation": "papers.cells.ica_independence:ica_autocorrelation",
    "curves": "papers.cells.curves:curve_rows",
}


def status(options: argparse.Namespace) -> None:
    """Say of each figure what is finished, stale or missing, and the time left."""
    figures = grid.load_all(options.figures or grid.files_here())
    rows = [progress.HEADER]
    for _, figure in figures.values():
        rows.append(progress.line(figure, module_of(figure)))
        if options.dry_run:
            for told in progress.of_cells(figure, module_of(figure)):
                print(told)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def cell(options: argparse.Namespace) -> None:
    """Run one cell of a figure and keep its rows."""
    figure = grid.load(options.figure)
    found = {c.name: c for c in grid.cells(figure)}.get(options.cell)
    if found is None:
        raise ConfigError(
            f"{options.figure}: no cell {options.cell!r}; see python -m papers status "
            f"{options.figure} --dry-run"
        )
    module = module_of(figure)
    start = time.process_time()  # whatever else runs on this machine
    folder = found.options.get("folder")
    try:
        with threadpool_limits(1), provenance.files_of(folder) as data:
            rows = function(figure.experiment)(**found.options)
    except TypeError as error:
        # An option that the experiment does not know, or lacks.
        if "keyword" not in str(error):
            raise
        raise ConfigError(f"{options.figure}: cell {found.name}: {error}") from None
    except OSError as error:  # a reader may hide what is missing in what it raises
        missing = error.__cause__ or error
        raise ConfigError(f"{missing}; the figure's `folder` says where") from None
    made_of = provenance.made_of(module, data)
    grid.write_cell(found, rows, time.process_time() - start, made_of)


def table(options: argparse.Namespace) -> None:
    """Gather the rows of all cells in tables, and say which goals were met."""
    for goal in grid.write_tables(grid.load(options.figure)).itertuples():
        what = f"{goal.where}: {goal.score} {goal.goal}"
        if goal.n_repeats:
            what += f", mean {goal.mean:.4g} of {goal.n_repeats}"
        print(f"{what}: {goal.verdict}")


def plot(options: argparse.Namespace) -> None:
    """Draw a figure from its finished cells."""
    from papers import plots  # which takes a while to load

    print(*plots.write(grid.load(options.figure)), sep="\n")


def quick(options: argparse.Namespace) -> int:
    """Make figures in minutes, with few repeats and values: for a look at all."""
    paths = []
    for path, figure in grid.load_all(options.figures or grid.files_here()).values():
        paths.append(Path("results/quick") / Path(path).name)
        short = yaml.safe_dump(grid.quick(figure), sort_keys=False)
        files.write_text(paths[-1], short)
    command = ["snakemake", "-s", "papers/Snakefile", "--cores", str(options.cores)]
    command += ["--configfile", *map(str, paths)]
    if options.dry_run:
        print(*command)
        return 0
    return subprocess.run([sys.executable, "-m", *command]).returncode


def record(options: argparse.Namespace) -> None:
    """Keep the summary of figures in papers/results, for the tables in the docs."""
    for figure in map(grid.load, options.figures):
        progress.record(figure, module_of(figure))
        print(f"{figure.figure}: kept; python -m papers book writes the pages")


def book(options: argparse.Namespace) -> None:
    """Write docs/book.md, and the tables of cells in the pages beside it."""
    from papers import book as pages

    print(*pages.write() or ["all pages are as they should be"], sep="\n")


def claim(options: argparse.Namespace) -> None:
    """Compute what is found of claims that take seconds; without a name, of all."""
    from papers import claims

    for name in options.names or claims.CLAIMS:
        if name not in claims.CLAIMS:
            known = ", ".join(claims.CLAIMS)
            raise ConfigError(f"claim: no claim {name!r}; known: {known}")
        print(f"{name}: {claims.said(name)}")


def compare(options: argparse.Namespace) -> None:
    """Run the papers' baselines on a prepared study of simulated or public data."""
    from papers.compare import compare_study

    compare_study(options.study, options.draws)


def function(experiment: str) -> Callable[..., list[dict[str, Any]]]:
    """Look up the function of an experiment; its modules load what they need."""
    module, name = EXPERIMENTS[experiment].split(":")
    return getattr(importlib.import_module(module), name)


def module_of(figure: grid.Figure) -> str:
    """Name the module of a figure's experiment."""
    if figure.experiment not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(
            f"{figure.figure}: experiment: must be of {known}, got "
            f"{figure.experiment!r}"
        )
    return EXPERIMENTS[figure.experiment].split(":")[0]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; status 0 done, 2 bad input, else Snakemake's."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (status, cell, table, plot, quick, record, book, claim, compare):
        about = command.__doc__ or ""
        added = commands.add_parser(command.__name__, help=about, description=about)
        added.set_defaults(run=command)
        if command is compare:
            added.add_argument("study", help="study file, prepared")
            added.add_argument("--draws", type=int, default=5, help="of the noise")
        elif command is quick:
            added.add_argument("figures", nargs="*", help="figure files; default all")
            added.add_argument("--cores", type=int, default=2, help="default 2")
            about = "write the figure files and print the command alone"
            added.add_argument("--dry-run", action="store_true", help=about)
        elif command is status:
            added.add_argument("figures", nargs="*", help="figure files; default all")
            about = "the cells that would run too, each with its time"
            added.add_argument("--dry-run", action="store_true", help=about)
        elif command is record:
            added.add_argument("figures", nargs="+", help="figure files")
        elif command is claim:
            added.add_argument("names", nargs="*", help="as in docs/book.md: X1, T3.1")
        elif command is not book:
            added.add_argument("figure", help="figure file, of papers/grids/")
        if command is cell:
            added.add_argument("cell", help="its name; `status --dry-run` lists them")
    options = parser.parse_args(argv)
    try:
        return options.run(options) or 0
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
