"""Every statistic that may leave a site: what is summed, and how far one unit moves it.

A query is a mean over units of bounded contributions. ``total`` adds the contributions
of one block of data, so a site streams its subjects and holds one block at a time; the
site divides by its public number of units. The contributions, clipped by public
constants, are in :mod:`.moments` and its neighbours, blocks in :mod:`.blocks`.
:data:`QUERIES` is the whole list, and each query there declares what its parameters may
be: another query is another entry, and nothing that is shared changes.

Sensitivities are L2 on the packed vector, which is Frobenius on the matrix, for public
numbers of units n [docs/privacy.md]:

=====================  ===============  ===========
contribution           replace-one      zero-out
=====================  ===============  ===========
positive               ``sqrt(2) B/n``  ``B / n``
any other              ``2 B / n``      ``B / n``
=====================  ===============  ===========

Positive: any two contributions have an inner product of at least 0.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from capeneuro.privacy import contrasts, deviations, gradients, moments
from capeneuro.privacy.accounting import Relation
from capeneuro.privacy.blocks import Block

# Public numbers outside this range are refused: float32 factors would be denormal.
RANGE = (1e-12, 1e12)
LARGEST_WEIGHT = 1e6
# More hidden units would only fill a site's memory.
LARGEST_HIDDEN = 1024
LARGEST_CUBE = 200


# --- what a parameter may be ---------------------------------------------------------


class ParameterKind(Protocol):
    """Kind, shape and range of a parameter that a sensitivity was derived for."""

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is of this kind.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            False for anything that the sensitivity was not derived for.

        Guarantee
        ---------
        It reads no data.
        """
        ...


@dataclass(frozen=True)
class Number:
    """A positive int or float within :data:`RANGE`.

    Parameters
    ----------
    may_be_infinite
        Whether infinity is one, too: a clip that does not bind, of exact arms only. By
        default it is not, since data divided by it would be zero.
    """

    may_be_infinite: bool = False

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is a number of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        In range, it is a normal number in float32, too.
        """
        in_range = type(value) in (int, float) and RANGE[0] <= value <= RANGE[1]
        return in_range or (self.may_be_infinite and value == np.inf)


@dataclass(frozen=True)
class Array:
    """A float64 array whose axes are all as long as the data have rows.

    Parameters
    ----------
    n_axes
        1 for a vector (n_rows,), 2 for a matrix (n_rows, n_rows).
    symmetric
        Whether it must equal its transpose.
    signs
        Whether entries are 1 or -1; otherwise of at most :data:`LARGEST_WEIGHT`.
    """

    n_axes: int
    symmetric: bool = False
    signs: bool = False

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is an array of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        Entries are bounded: whether a sum overflows is never for the data to decide.
        """
        if not _is_float64(value) or value.shape != (n_rows,) * self.n_axes:
            return False
        # Privacy: the norm that is clipped holds for a symmetric covariance.
        if self.symmetric and not np.array_equal(value, value.T):
            return False
        # Privacy: the norm of a rotation holds for psi in [-1, 1] only.
        return bool((np.abs(value) == 1).all()) if self.signs else _is_moderate(value)


@dataclass(frozen=True)
class Directions:
    """A matrix of directions among the data's rows, no more of them than rows.

    Parameters
    ----------
    rows_axis
        Its axis that is as long as the data have rows; the other counts directions.
    dtypes
        Types that it may have.
    largest
        Largest size of an entry; infinity still asks for finite ones.
    """

    rows_axis: int
    dtypes: tuple[type, ...]
    largest: float

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is a matrix of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        Entries are finite, and there are no more directions than rows.
        """
        return (
            isinstance(value, np.ndarray)
            and value.dtype in self.dtypes
            and value.ndim == 2
            and value.size > 0
            and value.shape[self.rows_axis] == n_rows
            # More directions than rows would only make the answer longer.
            and value.shape[1 - self.rows_axis] <= n_rows
            and bool(np.isfinite(value).all())
            # Privacy: whatever the data are, their product with Q is finite.
            and bool((np.abs(value) <= self.largest).all())
        )


@dataclass(frozen=True)
class Weights:
    """Packed float64 weights of a network (:func:`.gradients.layers`).

    Parameters
    ----------
    largest_hidden
        Most hidden units.
    """

    largest_hidden: int

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is weights of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        Entries are finite, and what the site holds of hidden units is bounded.
        """
        if not _is_float64(value):
            return False
        # A row for each hidden unit, a number of the output for each and for its bias.
        n_hidden, remainder = divmod(value.size - 1, n_rows + 1)
        is_size = remainder == 0 and 1 <= n_hidden <= self.largest_hidden
        shape = (value.size,) if is_size and n_rows > 1 else ()
        return value.shape == shape and _is_moderate(value)


@dataclass(frozen=True)
class CovariateWeights:
    """Positive float64 weights of covariates, which are among the data's rows."""

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is weights of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        At least one outcome is left, and no weight is too small to divide by.
        """
        return (
            _is_float64(value)
            and value.ndim == 1
            and 0 < value.size < n_rows
            and bool((value >= RANGE[0]).all())
            and _is_moderate(value)
        )


@dataclass(frozen=True)
class SmallMatrix:
    """A float64 matrix with fewer rows and columns than the data have rows."""

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is a matrix of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        Entries are bounded, and there are fewer rows and columns than the data's rows.
        """
        is_small = _is_float64(value) and value.ndim == 2 and sum(value.shape) < n_rows
        return is_small and value.size > 0 and _is_moderate(value)


@dataclass(frozen=True)
class Parts:
    """Float64 weights of the parts of an answer, 0 or more, not all of them 0.

    Parameters
    ----------
    n
        How many there are.
    """

    n: int

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is weights of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        Their norm is no smaller than a number may be.
        """
        return (
            _is_float64(value)
            and value.shape == (self.n,)
            and bool((value >= 0).all())
            and bool(np.linalg.norm(value) >= RANGE[0])
            and _is_moderate(value)
        )


@dataclass(frozen=True)
class Count:
    """A whole number of some of the data's rows, at least 1."""

    def fits(self, value: Any, n_rows: int) -> bool:
        """Whether a value is a number of this kind; see :meth:`ParameterKind.fits`.

        Parameters
        ----------
        value
            As it came over the wire: anything.
        n_rows
            Rows of the site's data at the query's stage.

        Returns
        -------
        bool
            Whether it is of this kind.

        Guarantee
        ---------
        The answer is no longer than rows allow.
        """
        return type(value) is int and 1 <= value < n_rows


def _is_float64(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def _is_moderate(value: np.ndarray) -> bool:
    """Whether all entries are at most :data:`LARGEST_WEIGHT`; NaN is not."""
    return bool((np.abs(value) <= LARGEST_WEIGHT).all())


BOUND = Number()
CLIP = Number(may_be_infinite=True)
VECTOR_OF_ROWS = Array(1)
MATRIX_OF_ROWS = Array(2)
SIGNS = Array(1, signs=True)
COVARIANCE = Array(2, symmetric=True)
DIRECTIONS = Directions(0, (np.float32,), LARGEST_WEIGHT)
WEIGHTS = Weights(LARGEST_HIDDEN)
COVARIATES = CovariateWeights()
SITE_MATRIX = SmallMatrix()
PARTS = Parts(len(contrasts.PILOT_DISTANCES))
COUNT = Count()
# Fields of the message of a projection; its matrix holds a direction in each row.
PROJECTION: Mapping[str, ParameterKind] = {
    "matrix": Directions(1, (np.float32, np.float64), np.inf),
    "norm_bound": BOUND,
    "center": VECTOR_OF_ROWS,
}


def is_projection(message: dict[str, Any], n_features: int) -> bool:
    """Whether a message is a projection that fits any data of ``n_features`` rows.

    Parameters
    ----------
    message
        As it came over the wire; the fields of :data:`PROJECTION`, no other.
    n_features
        Rows of the site's data before the projection.

    Returns
    -------
    bool
        False if a field lacks, is one too many, or does not fit its kind.

    Guarantee
    ---------
    It reads no data. What an odd projection would make of data, an error or none, would
    be an answer that nobody charged.
    """
    return message.keys() == PROJECTION.keys() and all(
        kind.fits(message[name], n_features) for name, kind in PROJECTION.items()
    )


# --- what a query is ------------------------------------------------------------------


@cache
def _keywords(total: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    takes = inspect.signature(total).parameters
    return {name: p for name, p in takes.items() if p.kind is p.KEYWORD_ONLY}


@dataclass(frozen=True)
class Query:
    """A statistic of bounded sensitivity, and all that may be asked of it.

    Parameters
    ----------
    name
        One spelling in messages, ledgers and reports.
    stage
        ``"features"`` or ``"components"``: which data of the site it reads.
    total
        ``(block, **parameters) -> vector``: sum of a :class:`.Block`'s contributions.
    parameters
        Kind of each keyword of ``total``; those with a default there may be left out.
    positive
        Whether any two contributions have an inner product of at least 0, as positive
        semidefinite matrices and arrays of shares do. False by default: it is the
        claim that lowers noise.
    distance
        Largest distance of two contributions over clip, where parts of them are
        positive, by parameters; None: 2, or sqrt(2) of a positive query.
    cubic
        Whether the answer grows as the third power of the data's rows, or of columns of
        Q: more than :data:`LARGEST_CUBE` would only fill a site's memory.
    agree
        (parameters, n_rows): whether parameters that fit their kinds fit each other.

    Raises
    ------
    ValueError
        If ``parameters`` are not the keywords of ``total``.
    """

    name: str
    stage: str
    total: Callable[..., np.ndarray]
    parameters: Mapping[str, ParameterKind] = field(hash=False)
    positive: bool = False
    distance: Callable[[dict[str, Any]], float] | None = None
    cubic: bool = False
    agree: Callable[[dict[str, Any], int], bool] = lambda parameters, n_rows: True

    def __post_init__(self) -> None:
        if self.parameters.keys() != self._keywords().keys():
            raise ValueError(
                f"{self.name}: declares {sorted(self.parameters)}, its sum takes "
                f"{sorted(self._keywords())}"
            )

    def _keywords(self) -> dict[str, inspect.Parameter]:
        """Keyword-only parameters of the sum."""
        return _keywords(self.total)

    def admits(self, parameters: dict[str, Any], n_rows: int) -> bool:
        """Whether parameters are those that the sensitivity was derived for.

        Parameters
        ----------
        parameters
            As they came over the wire.
        n_rows
            Rows of the site's data at this stage.

        Returns
        -------
        bool
            False if one lacks, is one too many or does not fit its kind, or if the
            answer would fill a memory.

        Guarantee
        ---------
        It reads no data. For admitted parameters, whatever the data are, the sum is
        finite and its sensitivity is that of :meth:`sensitivity`.
        """
        needed = {n for n, p in self._keywords().items() if p.default is p.empty}
        fit = needed <= set(parameters) <= self.parameters.keys() and all(
            self.parameters[name].fits(value, n_rows)
            for name, value in parameters.items()
        )
        if fit and self.cubic:
            Q = parameters.get("Q")
            fit = (n_rows if Q is None else Q.shape[1]) <= LARGEST_CUBE
        return fit and self.agree(parameters, n_rows)

    def sensitivity(
        self, n_units: int, relation: Relation, parameters: dict[str, Any]
    ) -> float:
        """L2 distance between the means of two neighboring data sets of ``n_units``.

        Parameters
        ----------
        n_units
            Public number of persons or samples, at least 1.
        relation
            ``"replace-one"`` (one unit's data are others) or ``"zero-out"`` (they count
            as zero).
        parameters
            Admitted ones; ``clip`` matters, and what parts are asked for.

        Returns
        -------
        float
            ``clip / n`` for zero-out, else ``2 clip / n``, ``sqrt(2) clip / n`` of a
            positive query, or between them where parts are; infinite where nothing is
            clipped.

        Guarantee
        ---------
        No two neighboring data sets are further apart: noise is for this distance.
        """
        bound = largest_contribution(parameters)
        if relation == "zero-out":
            return bound / n_units
        if self.distance is not None:
            return self.distance(parameters) * bound / n_units
        return (np.sqrt(2.0) if self.positive else 2.0) * bound / n_units

    def size(self, n_rows: int, parameters: dict[str, Any]) -> int:
        """Numbers in the answer: public, whatever the data are.

        Parameters
        ----------
        n_rows
            Rows of the site's data at this stage.
        parameters
            Admitted ones.

        Returns
        -------
        int
            Length of the vector that :attr:`total` gives.
        """
        # The sum over one sample of zeros is as long as any.
        block = Block(np.zeros((n_rows, 1), np.float32), np.zeros(1, int), "sample")
        with np.errstate(all="ignore"):
            return self.total(block, **parameters).size


def largest_contribution(parameters: dict[str, Any]) -> float:
    """Norm that no unit's contribution to a sum exceeds.

    Parameters
    ----------
    parameters
        Admitted ones of any query.

    Returns
    -------
    float
        ``clip``, in the unit of the query.

    Guarantee
    ---------
    True of every sum in :data:`QUERIES`, each of which clips its own contributions.
    """
    return float(parameters["clip"])


QUERIES = {
    query.name: query
    for query in (
        Query(
            "mean",
            "features",
            moments.mean,
            parameters={"norm_bound": BOUND, "clip": CLIP},
        ),
        Query(
            "second_moment",
            "features",
            moments.second_moment,
            parameters={"norm_bound": BOUND, "clip": CLIP, "center": VECTOR_OF_ROWS},
            positive=True,
        ),
        Query(
            "moment_product",
            "features",
            moments.moment_product,
            parameters={
                "Q": DIRECTIONS,
                "norm_bound": BOUND,
                "clip": CLIP,
                "center": VECTOR_OF_ROWS,
            },
        ),
        Query(
            "bin_shares",
            "features",
            moments.bin_shares,
            parameters={"clip": CLIP},
            positive=True,
        ),
        Query(
            "network_gradient",
            "features",
            gradients.network_gradient,
            parameters={"weights": WEIGHTS, "norm_bound": BOUND, "clip": CLIP},
        ),
        Query(
            "log_odds_counts",
            "features",
            gradients.log_odds_counts,
            parameters={"weights": WEIGHTS, "norm_bound": BOUND, "clip": CLIP},
            positive=True,
        ),
        Query(
            "third_moment",
            "features",
            moments.third_moment,
            parameters={"covariance": COVARIANCE, "clip": CLIP, "norm_bound": BOUND},
            cubic=True,
        ),
        Query(
            "whitened_third_moment",
            "components",
            moments.third_moment,
            parameters={"covariance": COVARIANCE, "clip": CLIP, "norm_bound": BOUND},
            cubic=True,
        ),
        Query(
            "word_pairs",
            "features",
            moments.word_pairs,
            parameters={"clip": CLIP},
            positive=True,
        ),
        Query(
            "word_triples",
            "features",
            moments.word_triples,
            parameters={"clip": CLIP},
            positive=True,
            cubic=True,
        ),
        Query(
            "whitened_word_triples",
            "features",
            moments.whitened_word_triples,
            parameters={"Q": DIRECTIONS, "clip": CLIP},
            cubic=True,
        ),
        Query(
            "white_second_moment",
            "components",
            moments.white_second_moment,
            parameters={"clip": CLIP},
            positive=True,
        ),
        Query(
            "deviation",
            "components",
            deviations.deviation,
            parameters={
                "energies": VECTOR_OF_ROWS,
                "weights": COVARIANCE,
                "clip": CLIP,
            },
        ),
        Query(
            "pilot_moments",
            "features",
            contrasts.pilot_moments,
            parameters={
                "weights": COVARIATES,
                "n_sites": COUNT,
                "center": VECTOR_OF_ROWS,
                "radius": BOUND,
                "unit": BOUND,
                "parts": PARTS,
                "clip": CLIP,
            },
            distance=contrasts.pilot_distance,
            agree=contrasts.pilot_agrees,
        ),
        Query(
            "linear_moments",
            "features",
            contrasts.linear_moments,
            parameters={
                "weights": COVARIATES,
                "norms_of": COVARIATES,
                "longest": BOUND,
                "centers": SITE_MATRIX,
                "means": SITE_MATRIX,
                "slopes": SITE_MATRIX,
                "unit": BOUND,
                "clip": CLIP,
            },
            distance=contrasts.moments_distance,
            agree=contrasts.moments_agree,
        ),
        Query(
            "infomax_gradient",
            "components",
            gradients.infomax_gradient,
            parameters={"W": MATRIX_OF_ROWS, "b": VECTOR_OF_ROWS, "clip": CLIP},
        ),
        Query(
            "infomax_skew",
            "components",
            gradients.infomax_skew,
            parameters={"W": MATRIX_OF_ROWS, "clip": CLIP, "signs": SIGNS},
        ),
        Query(
            "infomax_curvature",
            "components",
            gradients.infomax_curvature,
            parameters={"W": MATRIX_OF_ROWS, "clip": CLIP},
        ),
    )
}
