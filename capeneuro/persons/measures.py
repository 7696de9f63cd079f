"""Numbers of one person from the time courses of regions or networks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capeneuro.config.rows import MeasuresOptions, StatesOptions
from capeneuro.data.measures import States, membership, named
from capeneuro.linalg import TINY
from capeneuro.persons.connectivity import domain_means, fisher_z, means_of_domains
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.persons.network_features import (
    dynamic_connectivity,
    tapered_windows,
)
from capeneuro.persons.network_features import (
    states as nearest_states,
)
from capeneuro.persons.spectra import power

# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128


class PersonCourses(NamedTuple):
    """Time courses of a person, with the numbers that measures of them need."""

    S: np.ndarray
    """Time courses, (R, T); runs follow each other."""
    repetition_time: float | None = None
    """[s]; spectra and occupancy need it."""
    run_lengths: tuple[int, ...] = ()
    """Volumes of each run, which no window of time reaches across; none: one run."""
    maps: np.ndarray | None = None
    """The person's own maps, (n_features, R); similarity and maps need them."""
    group_maps: np.ndarray | None = None
    """The group's, or the template's, (n_features, R)."""

    @property
    def runs(self) -> list[np.ndarray]:
        """Time courses of each run, (R, T_run)."""
        ends = np.cumsum(self.run_lengths or (self.S.shape[1],))
        return np.split(self.S, ends[:-1], axis=1)


def measured(
    options: MeasuresOptions,
    courses: PersonCourses,
    domains: Sequence[str],
    states: States | None = None,
) -> np.ndarray:
    """Measures of a person's time courses, ordered as :func:`.data.measures.named`.

    Parameters
    ----------
    options
        Which measures.
    courses
        Of the person.
    domains
        Public network of each course; those of an empty one are left out.
    states
        Public states of connectivity; occupancy needs them.

    Returns
    -------
    numpy.ndarray
        Within the public bounds, whatever the person's data are.

    Guarantee
    ---------
    It depends on this person's data and on public or released numbers alone, so that
    one person moves nothing but their own row. It stays at the site.
    """
    S, of = courses.S, membership(domains)
    mean, values_by_measure = of / of.sum(axis=1, keepdims=True), []
    for measure in options.measures:
        if measure == "connectivity":
            values_by_measure.append(domain_means(S, domains))
        elif measure == "amplitude":
            values_by_measure.append(shares(of @ S.var(axis=1)))
        elif measure == "spectra":
            segment = min(SEGMENT, S.shape[1])
            frequency, density = power(S, courses.repetition_time, segment)
            bands = [
                density[:, (low <= frequency) & (frequency < high)].sum(axis=1)
                for low, high in options.bands
            ]
            values_by_measure.append((mean @ shares(np.array(bands)).T).ravel())
        elif measure == "occupancy":
            values_by_measure.append(
                occupancy(options.states, courses, domains, states)
            )
        elif measure == "maps":
            weights = map_weights(courses.maps, courses.group_maps)
            values_by_measure.append((of @ weights @ mean.T).T.ravel())
        else:
            pairs_of_maps = zip(courses.maps.T, courses.group_maps.T, strict=True)
            r = np.array([_r(a, b) for a, b in pairs_of_maps])
            values_by_measure.append(mean @ fisher_z(r))
    state_names = states.names if states else ()
    low, high = np.array(named(options, domains, state_names)[1]).T
    # Privacy: bounds are public, whatever the numbers are; what is none counts as 0.
    values = np.nan_to_num(np.concatenate(values_by_measure), nan=0.0)
    return np.clip(values, low, high)


def occupancy(
    options: StatesOptions,
    courses: PersonCourses,
    domains: Sequence[str],
    states: States,
) -> np.ndarray:
    """Share of a person's windows of time that are nearest to each public state.

    Nearest by the sum of differences over pairs of networks [Allen et al. 2014]; zero
    where no run is as long as a window.

    Parameters
    ----------
    options
        The windows.
    courses, domains, states
        As in :func:`measured`.

    Returns
    -------
    numpy.ndarray
        (n_states,), of sum 1 or 0.
    """
    R, means = len(courses.S), []
    upper = np.triu_indices(R, 1)
    for S in courses.runs:
        windows = tapered_windows(
            S.shape[1],
            courses.repetition_time,
            options.window,
            taper=options.window / 7,
        )
        for z_pairs in dynamic_connectivity(S, windows):
            z = np.zeros((R, R))
            z[upper] = z_pairs
            means.append(means_of_domains(z + z.T, domains))
    z_windows = np.reshape(means, (len(means), states.centroids.shape[1]))
    return nearest_states(z_windows, states.centroids).occupancy


def map_weights(maps: np.ndarray, template: np.ndarray) -> np.ndarray:
    """Regress a person's maps on those of a template, all over their root mean square.

    Parameters
    ----------
    maps, template
        (n_voxels, R) both.

    Returns
    -------
    numpy.ndarray
        Weight of each network of the template (rows) in each map of the person
        (columns), (R, R); the identity where the person has the template's maps.
    """
    scaled = [
        A / np.maximum(np.sqrt(np.mean(A**2, axis=0)), TINY) for A in (template, maps)
    ]
    return np.linalg.lstsq(*scaled, rcond=None)[0]


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
    options, domains
        As in :func:`measured`.
    repetition_time
        [s]; spectra need it.
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
    courses = PersonCourses(S, repetition_time, (), own_maps, A)
    return measured(options, courses, domains)


def shares(values: np.ndarray) -> np.ndarray:
    """Shares of non-negative numbers in their sum, over the first axis; of none, 0."""
    total = values.sum(axis=0)
    return values / np.where(total > 0, total, np.inf)


def _r(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation; 0 of a constant."""
    a, b = a - a.mean(), b - b.mean()
    n = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / n) if n > 0 else 0.0
