"""Every statistic that may leave a site: what is summed, and how far one unit moves it.

A query is a mean over units of bounded contributions. ``total`` adds the contributions
of one block of data, so a site streams its subjects and holds one block at a time; the
site divides by its public number of units. The contributions, clipped by public
constants, are in :mod:`.moments`, :mod:`.moments`, :mod:`.gradients` and
:mod:`.gradients`.

A block ``X`` is (n_features, n_samples) with samples as columns; ``starts`` are the
first columns of the subjects in it. With ``unit = "sample"`` every column contributes;
with ``unit = "subject"`` the mean over a subject's columns does, clipped per subject.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from capeneuro.privacy import gradients, moments
from capeneuro.privacy.accounting import Relation

# Public numbers outside this range are refused: float32 factors would be denormal.
RANGE = (1e-12, 1e12)
LARGEST_WEIGHT = 1e6
# More hidden units would only fill a site's memory.
LARGEST_HIDDEN = 1024
LARGEST_CUBE = 200


@dataclass(frozen=True)
class Query:
    """A statistic of bounded sensitivity.

    Parameters
    ----------
    name
        One spelling in messages, ledgers and reports.
    stage
        ``"features"`` or ``"components"``: which data of the site it reads.
    total
        ``(X, starts, unit, **parameters) -> vector``: sum of the contributions.
    positive
        Whether any two contributions have an inner product of at least 0, as positive
        semidefinite matrices and arrays of shares do.
    cubic
        Whether the answer grows as the third power of the data's rows, or of columns of
        Q: more than :data:`LARGEST_CUBE` would only fill a site's memory.
    """

    name: str
    stage: str
    total: Callable[..., np.ndarray]
    positive: bool = False
    cubic: bool = False

    def admits(self, parameters: dict[str, Any], n_rows: int) -> bool:
        """Whether parameters are those that the sensitivity was derived for.

        Parameters
        ----------
        parameters
            As they came over the wire.
        n_rows
            Rows of the site's data at this stage.
        """
        takes = inspect.signature(self.total).parameters.values()
        known = {p.name for p in takes if p.kind is p.KEYWORD_ONLY}
        needed = {p.name for p in takes if p.name in known and p.default is p.empty}
        fit = needed <= set(parameters) <= known and all(
            _fits(name, value, n_rows) for name, value in parameters.items()
        )
        if fit and self.cubic:
            Q = parameters.get("Q")
            fit = (n_rows if Q is None else Q.shape[1]) <= LARGEST_CUBE
        return fit

    def sensitivity(
        self, n_units: int, relation: Relation, parameters: dict[str, Any]
    ) -> float:
        """L2 distance between the means of two neighboring data sets of ``n_units``."""
        bound = largest_contribution(parameters)
        if relation == "zero-out":
            return bound / n_units
        return (np.sqrt(2.0) if self.positive else 2.0) * bound / n_units


def largest_contribution(parameters: dict[str, Any]) -> float:
    """Norm that no unit's contribution to a sum exceeds."""
    return float(parameters["clip"])


def _fits(name: str, value: Any, n_rows: int) -> bool:
    """Whether a parameter has the kind, shape and range that sensitivities assume."""
    if name in ("clip", "norm_bound"):
        in_range = type(value) in (int, float) and RANGE[0] <= value <= RANGE[1]
        return in_range or (name == "clip" and value == np.inf)
    if name == "Q":
        # More directions than features would only make the answer longer.
        fits = _is_matrix(value, (np.float32,)) and (
            value.shape[1] <= value.shape[0] == n_rows
        )
        # Privacy: whatever the data are, their product with it is finite.
        return fits and bool((np.abs(value) <= LARGEST_WEIGHT).all())
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        return False
    if name == "weights":
        # A row for each hidden unit, a number of the output for each and for its bias.
        n_hidden, rest = divmod(value.size - 1, n_rows + 1)
        fits = rest == 0 and 1 <= n_hidden <= LARGEST_HIDDEN and n_rows > 1
        shape: tuple[int, ...] = (value.size,) if fits else ()
    else:
        shape = (n_rows, n_rows) if name in ("W", "covariance") else (n_rows,)
    if value.shape != shape:
        return False
    # Privacy: the norm that is clipped holds for a symmetric covariance.
    if name == "covariance" and not np.array_equal(value, value.T):
        return False
    size = np.abs(value)
    # Privacy: the norm of a rotation holds for psi in [-1, 1] only.
    return bool((size == 1 if name == "signs" else size <= LARGEST_WEIGHT).all())


def _is_matrix(value: Any, dtypes: tuple[type, ...]) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype in dtypes
        and value.ndim == 2
        and value.size > 0
        and bool(np.isfinite(value).all())
    )


def projects(message: dict[str, Any], n_features: int) -> bool:
    """Whether a message is a projection that any data of so many features can take."""
    if message.keys() != {"matrix", "norm_bound", "center"}:
        return False
    V, bound = message["matrix"], message["norm_bound"]
    return (
        _is_matrix(V, (np.float32, np.float64))
        and V.shape[1] == n_features
        and len(V) <= n_features
        and type(bound) in (int, float)
        and _fits("norm_bound", bound, 0)
        and _fits("center", message["center"], n_features)
    )


QUERIES = {
    query.name: query
    for query in (
        Query("mean", "features", moments.mean),
        Query("second_moment", "features", moments.second_moment, positive=True),
        Query("moment_product", "features", moments.moment_product),
        Query("network_gradient", "features", gradients.network_gradient),
        Query("third_moment", "features", moments.third_moment, cubic=True),
        Query("whitened_third_moment", "components", moments.third_moment, cubic=True),
        Query("word_pairs", "features", moments.word_pairs, positive=True),
        Query("word_triples", "features", moments.word_triples, True, cubic=True),
        Query(
            "whitened_word_triples",
            "features",
            moments.whitened_word_triples,
            cubic=True,
        ),
        Query("infomax_gradient", "components", gradients.infomax_gradient),
        Query("infomax_skew", "components", gradients.infomax_skew),
        Query("infomax_curvature", "components", gradients.infomax_curvature),
    )
}
