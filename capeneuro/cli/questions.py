"""The command that answers questions from what a study has released."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from capeneuro.cli.command import Command


def ask(options: argparse.Namespace) -> None:
    """Answer a question from what a study has released; nothing is asked of sites.

    `~ patient + age` regresses outcomes on these covariates alone, `dose[2] - dose[1]`
    is a difference of groups, `dose[1] = dose[2] = 0` tests them together, `chart age
    by sex` draws means and centiles over a number with knots. Of a study of components
    or patterns: `components=20`, `connectivity`, `partial`, `seed=NAME`, `strength`,
    `merge=FILE.tsv`; of a regression: `~ a + b`, `ridge=0.1`. No privacy is spent: it
    is algebra of the released moments, in the folder of results alone.
    """
    from capeneuro.studies import ask as questions

    print(*questions.ask(options.results, options.question), sep="\n")


def _ask_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("results", type=Path, help="folder of a study's results")
    command.add_argument("question", help="such as '~ patient + age'")


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    yield Command(ask, _ask_arguments, "results/my-study '~ patient + age'")
