"""Numbers of one person from the time courses of regions or networks."""

from collections.abc import Sequence

import numpy as np

from capeneuro.config.rows import MeasuresOptions
from capeneuro.data.measures import membership, named
from capeneuro.persons.connectivity import domain_means, fisher_z
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.persons.spectra import power

# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128


def measured(
    options: MeasuresOptions,
    S: np.ndarray,
    domains: Sequence[str],
    repetition_time: float | None = None,
    maps: np.ndarray | None = None,
    A: np.ndarray | None = None,
) -> np.ndarray:
    """Measures of a person's time courses, ordered as :func:`.data.measures.named`.

    Parameters
    ----------
    options
        Which measures.
    S
        The person's time courses, (R, T).
    domains
        Public network of each course; those of an empty one are left out.
    repetition_time
        [s]; spectra need it.
    maps, A
        The person's own maps and the group's, (n_features, R); similarity needs them.

    Returns
    -------
    numpy.ndarray
        Within the public bounds, whatever the person's data are.

    Guarantee
    ---------
    It depends on this person's data and on public or released numbers alone, so that
    one person moves nothing but their own row. It stays at the site.
    """
    of = membership(domains)
    mean, values_by_measure = of / of.sum(axis=1, keepdims=True), []
    for measure in options.measures:
        if measure == "connectivity":
            values_by_measure.append(domain_means(S, domains))
        elif measure == "amplitude":
            values_by_measure.append(shares(of @ S.var(axis=1)))
        elif measure == "spectra":
            segment = min(SEGMENT, S.shape[1])
            frequency, density = power(S, repetition_time, segment)
            bands = [
                density[:, (low <= frequency) & (frequency < high)].sum(axis=1)
                for low, high in options.bands
            ]
            values_by_measure.append((mean @ shares(np.array(bands)).T).ravel())
        else:
            r = np.array([_r(a, b) for a, b in zip(maps.T, A.T, strict=True)])
            values_by_measure.append(mean @ fisher_z(r))
    low, high = np.array(named(options, domains)[1]).T
    # Privacy: bounds are public, whatever the numbers are; what is none counts as 0.
    values = np.nan_to_num(np.concatenate(values_by_measure), nan=0.0)
    return np.clip(values, low, high)


def by_components(
    options: MeasuresOptions,
    X: np.ndarray,
    A: np.ndarray,
    center: np.ndarray,
    domains: Sequence[str],
    repetition_time: float | None = None,
) -> np.ndarray:
    """Measures of a person's features by released components.

    Parameters
    ----------
    options, domains, repetition_time
        As in :func:`measured`.
    X
        The person's features, (n_features, T); what is no number counts as the center.
    A, center
        Maps and mean over features, (n_features, R) and (n_features,).

    Returns
    -------
    numpy.ndarray
        As of :func:`measured`.

    Guarantee
    ---------
    As of :func:`measured`: of this person's data and released numbers alone.
    """
    X = X.astype(np.float64) - center[:, None]
    X = np.where(np.isfinite(X), X, 0.0)
    S = np.linalg.lstsq(A, X, rcond=None)[0]
    own_maps = dual_regression(X, A)[1] if "similarity" in options.measures else None
    return measured(options, S, domains, repetition_time, own_maps, A)


def shares(values: np.ndarray) -> np.ndarray:
    """Shares of non-negative numbers in their sum, over the first axis; of none, 0."""
    total = values.sum(axis=0)
    return values / np.where(total > 0, total, np.inf)


def _r(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation; 0 of a constant."""
    a, b = a - a.mean(), b - b.mean()
    n = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / n) if n > 0 else 0.0
