"""Plots of the verbs' results: ``plot(result)``, with one function for each type.

The plots are those of the report; ``load("results/demo").plot(1)`` draws a study's
results from its files.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from capeneuro.algorithms import model_order
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.regression import CrossValidation, LinearModel
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.notebook.verdicts import verdicts
from capeneuro.report import plots


@singledispatch
def plot(
    result: Any, which: int | None = None, names: Sequence[str] | None = None
) -> Figure:
    """Draw the result of a verb.

    Parameters
    ----------
    result
        Of any verb: a subspace or patterns as the spectrum beside what noise alone
        reaches (or sampling, if no noise was added); pairs of views by their
        correlations; a mixture or topics by their shares; regressions and contrasts by
        effects with intervals; components and networks by the norm of their gradients.
        Or the results of a study, as their own ``plot`` draws them.
    which
        A single component, or covariate, from 1, by its largest features; None: all.
    names
        Of the features, or outcomes; None: their numbers, from 1.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``figure.savefig("it.png")`` keeps it.

    Raises
    ------
    TypeError
        If there is no picture of such a thing.
    ValueError
        If there is no such component.
    """
    if hasattr(result, "plot"):
        return result.plot(which or 1)
    raise TypeError(f"plot: needs the result of a verb, got {type(result).__name__}")


@plot.register
def _(result: Subspace, which: int | None = None, names: Any = None) -> Figure:
    if which is not None:
        return _column(result.eigenvectors, which, names, "weight in direction")
    K = len(result.eigenvalues)
    if not len(result.spectrum):
        return plots.spectrum(result.eigenvalues, 0.0, K)
    return _spectrum(result, K)


@plot.register
def _(result: Patterns, which: int | None = None, names: Any = None) -> Figure:
    if which is not None:
        return _column(result.patterns, which, names, "weight in pattern")
    return _spectrum(result, len(result.shares))


@plot.register
def _(result: Unmixing, which: int | None = None, names: Any = None) -> Figure:
    if which is not None:
        label = verdicts(result).labels[_index(which, result.mixing.shape[1])]
        figure = _column(result.mixing, which, names, "weight in component")
        figure.suptitle(f"component {which}: {label}")
        return figure
    return plots.convergence(result.trace, np.zeros(len(result.trace)))


@plot.register
def _(result: CanonicalDirections, which: int | None = None, names: Any = None):
    return plots.correlations(
        result.in_sample_correlations, result.variates, result.null_level
    )


@plot.register
def _(result: TensorComponents, which: int | None = None, names: Any = None) -> Figure:
    if which is not None:
        return _column(result.components, which, names, "component")
    return plots.weights(result.weights, {})


@plot.register
def _(result: LinearModel, which: int | None = None, names: Any = None) -> Figure:
    return plots.effects(
        _names(names, len(result.coefficients)),
        result.estimates,
        "coefficient, with its 95% interval",
        result.intervals,
    )


@plot.register
def _(result: CrossValidation, which: int | None = None, names: Any = None) -> Figure:
    return plot(result.model, which, names)


@plot.register
def _(result: Contrasts, which: int | None = None, names: Any = None) -> Figure:
    k = _index(1 if which is None else which, len(result.effects))
    title, values, intervals = result.for_figure(k)
    return plots.effects(
        _names(names, len(values)), values, title, intervals, rows="outcome"
    )


@plot.register
def _(result: Network, which: int | None = None, names: Any = None) -> Figure:
    return plots.convergence(result.trace, np.zeros(len(result.trace)))


def _spectrum(result: Subspace | Patterns, n_components: int) -> Figure:
    """Released energies beside the largest that noise alone gives."""
    edge = model_order.threshold(
        result.spectrum, result.noise_deviation, max(result.n_units, 2)
    ).edge
    is_exact = not result.noise_deviation
    return plots.spectrum(result.spectrum, edge, n_components, is_exact)


def _column(columns: np.ndarray, which: int, names: Any, label: str) -> Figure:
    """One column of (D, K) by its largest features."""
    column = columns[:, _index(which, columns.shape[1])]
    feature_names = _names(names, len(columns), "feature ")
    return plots.effects(feature_names, column, f"{label} {which}")


def _names(names: Sequence[str] | None, D: int, prefix: str = "") -> Sequence[str]:
    if names is not None and len(names) != D:
        raise ValueError(f"names: must be {D}, got {len(names)}")
    return [f"{prefix}{i + 1}" for i in range(D)] if names is None else names


def _index(which: int, K: int) -> int:
    if not 1 <= which <= K:
        raise ValueError(f"which: must be 1 to {K}, got {which}")
    return which - 1
