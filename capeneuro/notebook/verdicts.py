"""Verdicts of the verbs' results, the same as those of a study's report."""

from functools import singledispatch
from typing import Any

from capeneuro.algorithms import component_verdicts
from capeneuro.algorithms import verdicts as judged
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.verdict import Verdicts


@singledispatch
def verdicts(result: Any) -> Verdicts:
    """State whether each part of a verb's result is distinguishable from noise.

    Parameters
    ----------
    result
        Of any verb but :func:`principal_subspace`, :func:`distribution` and
        :func:`train_network`.

    Returns
    -------
    Verdicts
        ``names``, ``labels``, ``values`` and ``intervals`` of the parts, and the
        ``sentence`` that the verb printed.

    Raises
    ------
    TypeError
        If no verdict is known of such a result.

    Guarantee
    ---------
    Reads what was released.
    """
    raise TypeError(
        f"verdicts: needs the result of a verb such as infomax, got "
        f"{type(result).__name__}"
    )


@verdicts.register
def _(result: Unmixing) -> Verdicts:
    return component_verdicts.of_components(result)


@verdicts.register
def _(result: CanonicalDirections) -> Verdicts:
    return judged.of_pairs(result)


@verdicts.register
def _(result: Patterns) -> Verdicts:
    return judged.of_patterns(result)


@verdicts.register
def _(result: TensorComponents) -> Verdicts:
    return judged.of_groups(result)


@verdicts.register
def _(result: LinearModel) -> Verdicts:
    D = len(result.coefficients)
    return judged.of_coefficients(result, [f"feature {i + 1}" for i in range(D)])


@verdicts.register
def _(result: Contrasts) -> Verdicts:
    outcomes = [f"outcome {i + 1}" for i in range(result.effects.shape[1])]
    names = [[f"{name}, {outcome}" for outcome in outcomes] for name in result.names]
    return judged.of_contrasts(result, names)
