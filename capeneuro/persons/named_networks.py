"""All that a site computes of one person against a template of named networks."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capeneuro.persons import network_features as features
from capeneuro.persons.connectivity import connectivity
from capeneuro.persons.constrained_ica import (
    GuidedComponents,
    GuidedOptions,
    guided_components,
)
from capeneuro.persons.dual_regression import (
    dual_regression,
    spatial_regression,
    standardized,
)

# Values of options that are words.
METHODS = {
    "method": ("gig-ica", "dual-regression"),
    "courses": ("each", "template"),
}


@dataclasses.dataclass(frozen=True)
class NetworkOptions:
    """Public choices of how a person's networks are computed."""

    method: str = "gig-ica"
    """``gig-ica`` or ``dual-regression``."""
    guided: GuidedOptions = dataclasses.field(default_factory=GuidedOptions)
    """How GIG-ICA seeks."""
    courses: str = "each"
    """Time courses beside maps of GIG-ICA: ``each`` map's own, as in the paper and in
    GIFT, or of the ``template``, as in dual regression, whose FNC is nearer to the
    truth of simulated people, .89 against .68, and tells people of ABIDE better from
    each other [evidence/truth/network_maps.py]. All maps at once are worse, .22."""
    band: tuple[float | None, float | None] = (None, None)
    """Frequencies that connectivity is of [Hz]; spectra are of all. GIFT: up to .15."""
    despike: bool = False
    """Whether spikes are bent before connectivity is computed."""
    max_lag: float | None = None
    """Longest lag of lagged connectivity [s]; None: it is not computed."""
    frequencies: tuple[float, ...] = tuple(k / 100 for k in range(1, 25))
    """Public frequencies of spectra [Hz]."""
    amplitude_band: tuple[float, float] = (0.01, 0.08)
    """Band of the fractional amplitude, fALFF [Hz]."""
    window: float = 44.0
    """Length of a window [s]."""
    step: float | None = None
    """From one window to the next [s]; None: one volume."""
    taper: float = 6.0
    """Deviation of the windows' Gaussian taper [s]."""
    distance: str = "l1"
    """Of windows and states: ``l1`` or ``correlation``."""


class NetworkQuality(NamedTuple):
    """How well a person's networks are those of the template: a line a person."""

    fit: np.ndarray
    """Correlation over features of each map with its template, (R,)."""
    mean_fit: float
    least_fit: float
    overlap: float
    """Largest |r| between maps of two networks: near 1, they are one."""
    motion: float
    """Mean framewise displacement [mm]; NaN where none is given."""
    n_volumes: int
    not_converged: int
    """Networks whose search was ended before its tolerance; 0 of dual regression."""


@dataclasses.dataclass(frozen=True)
class PersonNetworks:
    """Maps, courses and links of a person's R networks; they stay at the site."""

    maps: np.ndarray
    """(n_features, R), float32, z: mean 0 and deviation 1 over features."""
    S: np.ndarray
    """Time courses, (R, T): mean 0 and deviation 1, not filtered."""
    fnc: np.ndarray
    """Fisher's z, (R, R), mean over runs by their volumes; diagonal 0."""
    lagged: features.Lagged | None
    """At the lag of the largest |r|, if it was wanted; of the longest run."""
    spectra: np.ndarray
    """Shares of power at the public frequencies, (R, n_frequencies)."""
    falff: np.ndarray
    """Fractional amplitude, (R,) in [0, 1]."""
    dynamic: np.ndarray
    """Fisher's z of each window, (n_windows, R (R - 1) / 2), run by run."""
    states: features.States | None
    """States of the windows, if public centroids are given."""
    quality: NetworkQuality
    search: GuidedComponents | None
    """Steps and objectives of GIG-ICA; None of dual regression."""


def person_networks(
    X: np.ndarray,
    template: np.ndarray,
    repetition_time: float,
    options: NetworkOptions | None = None,
    lengths: Sequence[int] | None = None,
    centroids: np.ndarray | None = None,
    motion: np.ndarray | None = None,
) -> PersonNetworks:
    """One person's maps, time courses, connectivity, spectra and states of networks.

    Maps are of all runs together; detrending, filter, spectra and windows of each run.

    Parameters
    ----------
    X
        The person's features, (n_features, T), cleaned; runs follow each other.
    template
        Public maps, (n_features, R), on the grid and mask of X.
    repetition_time
        [s].
    options
        What is computed; None: :class:`NetworkOptions`.
    lengths
        Volumes of each run, of sum T; None: one run.
    centroids
        Public states, (n_states, R (R - 1) / 2), Fisher's z; None: no occupancy.
    motion
        Framewise displacement [mm] of volumes, NaN where there is none; None: unknown.

    Raises
    ------
    ValueError
        If an option, the template or the centroids do not fit.

    Guarantee
    ---------
    It depends on this person's data and on public numbers alone, so that one person
    moves nothing but their own. It stays at the site.
    """
    options = options or NetworkOptions()
    lengths = list(lengths or [X.shape[1]])
    if sum(lengths) != X.shape[1]:
        raise ValueError(
            f"lengths: must add up to the {X.shape[1]} volumes, got {sum(lengths)}; "
            "give the volumes of each run"
        )
    maps, S, search = _maps_and_courses(X, template, options)
    parts = np.split(S, np.cumsum(lengths)[:-1], axis=1)
    by_run = [_of_run(part, repetition_time, options) for part in parts]
    fnc, spectra, falff = (
        np.average([run[i] for run in by_run], axis=0, weights=lengths)
        for i in range(3)
    )
    dynamic = np.concatenate([run.dynamic for run in by_run])
    return PersonNetworks(
        maps=maps,
        S=S,
        fnc=fnc,
        lagged=by_run[int(np.argmax(lengths))].lagged,
        spectra=spectra,
        falff=falff,
        dynamic=dynamic,
        states=None
        if centroids is None
        else features.states(
            dynamic, centroids, options.distance, [len(run.dynamic) for run in by_run]
        ),
        quality=network_quality(maps, template, S.shape[1], motion, search),
        search=search,
    )


def _maps_and_courses(
    X: np.ndarray, template: np.ndarray, options: NetworkOptions
) -> tuple[np.ndarray, np.ndarray, GuidedComponents | None]:
    """Maps (n_features, R) and courses (R, T) by the method that is wanted."""
    for name, choices in METHODS.items():
        if (value := getattr(options, name)) not in choices:
            raise ValueError(
                f"{name}: must be one of {', '.join(choices)}, got {value!r}"
            )
    if options.method == "dual-regression":
        S, maps = dual_regression(X, template)
        return standardized(maps.T).T.astype(np.float32), S, None
    search = guided_components(X, template, options.guided)
    if options.courses == "each":
        return search.maps, search.S, search
    return search.maps, spatial_regression(X, template), search


class _Run(NamedTuple):
    """Numbers of one run, as in :class:`PersonNetworks`."""

    fnc: np.ndarray
    spectra: np.ndarray
    falff: np.ndarray
    dynamic: np.ndarray
    lagged: features.Lagged | None


def _of_run(S: np.ndarray, repetition_time: float, options: NetworkOptions) -> _Run:
    """Connectivity, spectra and windows of the time courses (R, T) of one run."""
    detrended = features.cleaned(S)
    filtered = features.cleaned(S, repetition_time, options.band, options.despike)
    windows = features.tapered_windows(
        S.shape[1], repetition_time, options.window, options.step, options.taper
    )
    return _Run(
        fnc=features.network_connectivity(filtered),
        spectra=features.relative_spectra(
            detrended, repetition_time, np.array(options.frequencies)
        ),
        falff=features.fractional_amplitude(
            detrended, repetition_time, options.amplitude_band
        ),
        dynamic=features.dynamic_connectivity(filtered, windows),
        lagged=None
        if options.max_lag is None
        else features.lagged_connectivity(filtered, repetition_time, options.max_lag),
    )


def network_quality(
    maps: np.ndarray,
    template: np.ndarray,
    n_volumes: int,
    motion: np.ndarray | None = None,
    search: GuidedComponents | None = None,
) -> NetworkQuality:
    """How well a person's maps (n_features, R) are those of the template.

    The other parameters are as in :func:`person_networks` and :class:`PersonNetworks`.
    """
    # Correlations of maps over features are those of courses over volumes.
    fit = (standardized(maps.T) * standardized(template.T)).mean(axis=1)
    between = np.abs(connectivity(maps.T)) - np.eye(maps.shape[1])
    is_finite = np.zeros(0, bool) if motion is None else np.isfinite(motion)
    return NetworkQuality(
        fit=fit,
        mean_fit=float(fit.mean()),
        least_fit=float(fit.min()),
        overlap=float(between.max()),
        motion=float(motion[is_finite].mean()) if is_finite.any() else np.nan,
        n_volumes=n_volumes,
        not_converged=0 if search is None else int((~search.converged).sum()),
    )
