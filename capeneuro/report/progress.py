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
    """A stream that writes a bar's states as lines of the log."""

    def write(self, text: str) -> int:
        if line := text.strip():
            logging.info(line)
        return len(text)


def bar(items: Iterable[Any], label: str, total: int | None = None) -> tqdm:
    """Wrap items in a bar that shows how many are left, and for how long.

    Where standard error is no terminal (a cluster's job, a file) a line in the log of
    the step replaces it every half minute; shorter work has none.

    Parameters
    ----------
    items
        To iterate over.
    label
        Name of the work.
    total
        Number of items, if ``len`` does not give it.
    """
    if sys.stderr.isatty():
        return tqdm(items, label, total)
    return tqdm(
        items,
        label,
        total,
        leave=False,
        file=_Lines(),
        mininterval=EVERY,
        miniters=1,
        delay=EVERY,
        bar_format="{desc}: {n_fmt} of {total_fmt}, about {remaining} left",
    )


def named(label: str, total: int | None = None) -> partial[tqdm]:
    """A :func:`bar` without its items, for functions that wrap their rounds in it."""
    return partial(bar, label=label, total=total)
