"""How far long work is: a bar in a terminal, lines in a log where there is none."""

import io
import logging
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

from tqdm import tqdm

# Seconds between lines of a log: a night's work is a thousand.
EVERY = 30.0


class _Lines(io.TextIOBase):
    """Writes what a bar draws as lines of the log."""

    def write(self, text: str) -> int:
        if line := text.strip():
            logging.info(line)
        return len(text)


def bar(items: Iterable[Any], what: str, total: int | None = None) -> tqdm:
    """Wrap items in a bar that shows how many are left, and for how long.

    Where standard error is no terminal (a cluster's job, a file) a line in the log of
    the step says it every half minute instead; work that takes less says nothing.

    Parameters
    ----------
    items
        What is gone through.
    what
        Its name.
    total
        How many there are, where the items do not know.
    """
    if sys.stderr.isatty():
        return tqdm(items, what, total)
    return tqdm(
        items,
        what,
        total,
        leave=False,
        file=_Lines(),
        mininterval=EVERY,
        miniters=1,
        delay=EVERY,
        bar_format="{desc}: {n_fmt} of {total_fmt}, about {remaining} left",
    )


def named(what: str, total: int | None = None) -> partial[tqdm]:
    """The same, for functions that take what wraps their rounds."""
    return partial(bar, what=what, total=total)
