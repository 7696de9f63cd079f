"""A subcommand: what runs it, its arguments and its help."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

# The study file of the examples.
STUDY = "config/config.yaml"


class Command(NamedTuple):
    """One subcommand."""

    run: Callable[[argparse.Namespace], int | None]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    example: str
    """Arguments that its help shows."""
    name: str = ""
    """Empty: the function's name."""
    text: str = ""
    """Of its help; empty: the function's docstring."""


def study_argument(command: argparse.ArgumentParser) -> None:
    """Add the argument that names the study file."""
    command.add_argument("study", help="study file")
