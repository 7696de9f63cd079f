"""Blocks of samples: what a sum over units reads of a site's data at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from capeneuro.privacy.accounting import Unit


@dataclass(frozen=True)
class Block:
    """Samples of some people, and whose contribution is clipped.

    Of the unit ``"sample"`` every column contributes; of ``"subject"`` every person
    does, with the mean over the person's columns.

    Parameters
    ----------
    X
        Samples as columns, (n_features, n_samples), with any entries.
    starts
        First column of each person, (n_people,), ascending from 0: a person's columns
        are consecutive.
    unit
        ``"sample"`` or ``"subject"``.
    """

    X: np.ndarray
    starts: np.ndarray
    unit: Unit

    @property
    def cuts(self) -> list[int]:
        """First column of each person, and the number of columns."""
        return [*self.starts.tolist(), self.X.shape[1]]

    @property
    def has_one_sample_each(self) -> bool:
        """Whether every person has one column: not one two, and another none."""
        return np.array_equal(self.starts, np.arange(self.X.shape[1]))

    @property
    def shares(self) -> np.ndarray:
        """Share of each sample in its unit's mean, (n_samples,)."""
        if self.unit == "sample":
            return np.ones(self.X.shape[1])
        lengths = np.diff(self.cuts)
        return np.repeat(1 / lengths, lengths)

    def of_people(self, X: np.ndarray) -> Iterator[np.ndarray]:
        """Columns of each person in an array with the block's columns.

        Parameters
        ----------
        X
            Any rows of the block's samples, (n_rows, n_samples).

        Returns
        -------
        iterator of numpy.ndarray
            Of each person, (n_rows, n).
        """
        return (X[:, a:b] for a, b in pairwise(self.cuts))


def people(
    subjects: Mapping[str, np.ndarray], n_together: int, unit: Unit
) -> Iterator[Block]:
    """Yield blocks of ``n_together`` people; the last one may have fewer.

    Parameters
    ----------
    subjects
        Samples of each person, (n_features, n_samples), by id; read one block at a
        time.
    n_together
        People in a block, at least 1: a number of the study, never of the data.
    unit
        Whose contribution is clipped.

    Yields
    ------
    Block
        All samples of its people.

    Raises
    ------
    ValueError
        If there are several in a block, and not one sample of each.

    Guarantee
    ---------
    Which people share a block depends on public numbers and their order alone.
    """
    names = list(subjects)
    for first in range(0, len(names), n_together):
        samples = [subjects[name] for name in names[first : first + n_together]]
        X = np.concatenate(samples, axis=1) if n_together > 1 else samples[0]
        # Privacy: blocks are the study's, whatever the data are; otherwise one person's
        # samples would change the rounding of everybody's sums.
        if n_together > 1 and any(x.shape[1] != 1 for x in samples):
            raise ValueError("blocks of several people need one sample of each")
        yield Block(X, np.arange(len(samples)), unit)
