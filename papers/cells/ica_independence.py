"""Whether autocorrelation of sources tells if they are separated, paper 2016 figure 1.

The experiment ``ica_autocorrelation``; ``papers/grids/ica_autocorrelation.yaml`` says
what is run. A linear mixture of independent sources has the mean of their
autocorrelations, weighted by how much of each is in it; whether sources are independent
is between two of them. Without noise in the images a source is ``unmixing @ x``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.algorithms import metrics
from capeneuro.privacy import accounting
from papers.cells import ica
from papers.in_memory import People


def sources(unmixing: np.ndarray, people: People) -> np.ndarray:
    """Time courses of unit variance and mean 0 over all people, (R, M, n_volumes)."""
    each = [unmixing @ X for own in people.values() for X in own.values()]
    S = np.stack(each, axis=1)
    S -= S.mean(axis=(1, 2), keepdims=True)
    return S / S.std(axis=(1, 2), keepdims=True)


def correlations(S: np.ndarray, lag: int) -> np.ndarray:
    """Of source i with source j so many volumes later in the same person, (R, R)."""
    T = S.shape[2]
    return np.einsum("imt,jmt->ij", S[:, :, : T - lag], S[:, :, lag:]) / (
        S.shape[1] * (T - lag)
    )


def dependence(S: np.ndarray, lag: int) -> dict[str, float | None]:
    """What is left between volumes so far apart, by what is looked at.

    Parameters
    ----------
    S
        From :func:`sources`.
    lag
        In volumes.

    Returns
    -------
    dict
        ``one source``: mean autocorrelation, none at lag 0, where it is 1; ``two
        sources``: mean absolute correlation of different ones; ``their magnitudes``:
        the same of absolute values, whose tails are lighter than those of squares.
        Independent sources have none of the last two, but for sampling.
    """
    magnitudes = np.abs(S)
    magnitudes -= magnitudes.mean(axis=(1, 2), keepdims=True)
    magnitudes /= magnitudes.std(axis=(1, 2), keepdims=True)
    r = correlations(S, lag)
    others = ~np.eye(len(S), dtype=bool)
    return {
        "one source": float(np.diag(r).mean()) if lag else None,
        "two sources": float(np.abs(r[others]).mean()),
        "their magnitudes": float(np.abs(correlations(magnitudes, lag)[others]).mean()),
    }


def ica_autocorrelation(
    *,
    n_subjects: int,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    lags: list[int],
    delta: float = 1e-5,
    n_colluding: int = 1,
    **options: Any,
) -> list[dict[str, Any]]:
    """Correlations of estimated sources, with themselves and with each other.

    Parameters
    ----------
    n_subjects, seed, delta, n_colluding, **options
        As in :func:`.ica.ica_scores`; the unit is a volume. Images have no noise.
    methods
        As there, each at its own ``epsilon``; the arm ``truth`` has the true maps.
    lags
        In volumes, from 0.

    Returns
    -------
    list of dict
        For each ``method``, each ``lag`` and what is looked ``at`` the
        ``correlation`` of :func:`dependence`; ``ngi`` and ``r`` of
        :func:`.ica.ica_scores` with each.
    """
    A, people = ica.simulate(n_subjects, seed, cnr=None, **ica.data_options(options))
    rows: list[dict[str, Any]] = []
    memo: dict[Any, np.ndarray] = {}
    for method, own in methods.items():
        chosen = {**options, **own, "n_components": A.shape[1]}
        about = delta, "sample", "replace-one", n_colluding
        budget = accounting.Budget(chosen.pop("epsilon", 1.0), *about)
        unmixing, mixing = np.linalg.pinv(A), A
        gain = np.eye(A.shape[1])
        if chosen["arm"] != "truth":
            result = ica.run(people, budget, memo, **chosen)[0]
            unmixing, mixing = result.unmixing, result.mixing
            gain = metrics.gain(unmixing, result.W, A)
        scores = {
            "ngi": metrics.normalized_gain_index(gain),
            "r": float(np.abs(metrics.match(mixing, A)[1]).mean()),
        }
        S = sources(unmixing, people)
        found = {lag: dependence(S, lag) for lag in lags}
        for at in found[lags[0]]:
            for lag in lags:
                row = {"method": method, "lag": lag, "at": at}
                rows.append({**row, "correlation": found[lag][at], **scores})
    return rows
