"""A run cleaned in time: confounds, volumes that are left out, filters; by nilearn."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning, Confounds, Scrub
from capeneuro.config.site import SiteConfig
from capeneuro.data.beside import confounds_file, timing
from capeneuro.data.confounds import (
    DISPLACEMENT,
    DVARS,
    by_nilearn,
    filled,
    read_columns,
    steady,
)

# Volumes at a run's ends that SciPy's filter mirrors: these, and these for each edge.
PAD, PADS = 3, 15
# Features cleaned at a time: nilearn makes copies, a filter's in float64.
BLOCK = 4096


class Regressors(NamedTuple):
    """Inputs of a run's cleaning in time."""

    t_r: float | None
    """Repetition time [s]; None: unknown."""
    confounds: np.ndarray | None
    """(n_volumes, n_confounds); None: there are none."""
    kept_volumes: np.ndarray
    """Indices of the volumes that are kept, increasing."""


def clean(
    F: np.ndarray,
    reached: np.ndarray,
    run: Path,
    site: SiteConfig,
    cleaning: Cleaning,
) -> np.ndarray:
    """Have nilearn clean features.

    Parameters
    ----------
    F
        (n_volumes, n_reached).
    reached
        Which of the features they are, (n_features,); others are 0.
    run, site, cleaning
        Whose they are, and what is done.

    Returns
    -------
    numpy.ndarray
        (n_features, n_kept), float32: volumes that are left out are gone.
    """
    from nilearn.signal import clean

    inputs = regressors(run, site, cleaning, len(F))
    confounds, volumes = inputs.confounds, inputs.kept_volumes
    # What is cut off at the ends is no gap that a filter would have to bridge.
    ends = slice(volumes[0], volumes[-1] + 1)
    F, inside = F[ends], volumes - volumes[0]
    confounds = None if confounds is None else confounds[ends]
    is_filtered = cleaning.low_pass is not None or cleaning.high_pass is not None
    options = cleaning.model_dump(include={"detrend", "low_pass", "high_pass"})
    features = np.zeros((reached.size, volumes.size), dtype=np.float32)
    rows, constant, least = np.flatnonzero(reached), 0, 1e-6 * np.abs(F).max()
    for first in range(0, rows.size, BLOCK):
        block = slice(first, first + BLOCK)
        cleaned = clean(
            F[:, block],
            **options,
            standardize=None,
            confounds=confounds,
            standardize_confounds=False,  # least squares needs no scale
            sample_mask=inside if inside.size < len(F) else None,
            filter="butterworth" if is_filtered else False,
            t_r=inputs.t_r,
        )
        if cleaning.standardize == "zscore":
            deviation = cleaned.std(axis=0, ddof=1)
            flat = deviation < least
            constant += int(flat.sum())
            deviation[flat] = np.inf
            cleaned = (cleaned - cleaned.mean(axis=0)) / deviation
        features[rows[block]] = cleaned.T
    if constant > cleaning.max_constant_voxels * rows.size:
        raise ConfigError(
            f"{run}: features must vary, {constant} are constant; use a tighter "
            "mask or exclude the run"
        )
    return features


def regressors(
    run: Path, site: SiteConfig, cleaning: Cleaning, n_volumes: int
) -> Regressors:
    """Repetition time [s] and confounds of a run, and which volumes are kept."""
    t_r, source = timing(run, site)
    edges = [e for e in (cleaning.low_pass, cleaning.high_pass) if e is not None]
    if t_r is not None and edges and max(edges) >= 0.5 / t_r:
        raise ConfigError(
            f"{run}: cleaning.low_pass and high_pass must be below half the sampling "
            f"rate {0.5 / t_r:g} Hz, got {max(edges):g} (the repetition time is "
            f"{t_r:g} s, of {source})"
        )
    if edges and t_r is None:
        raise ConfigError(
            f"{run}: a band-pass needs a repetition time, and {source}; give "
            "`repetition_time` in the site file"
        )
    confounds, volumes = _confounds(run, cleaning, n_volumes)
    n = 0 if confounds is None else confounds.shape[1]
    if not volumes.size or (n and volumes.size <= n + 2):  # with a line and a mean
        raise ConfigError(
            f"{run}: {volumes.size} of {n_volumes} volumes are left, too few for {n} "
            "confounds; exclude the run (cleaning.exclude), or take fewer confounds"
        )
    if edges and volumes[-1] - volumes[0] < PADS * len(edges) + PAD:
        raise ConfigError(
            f"{run}: the filter needs {PADS * len(edges) + PAD + 1} volumes, has "
            f"{volumes[-1] - volumes[0] + 1}; exclude the run, or take no low_pass, "
            "high_pass"
        )
    return Regressors(t_r, confounds, volumes)


def left_out(run: Path, cleaning: Cleaning, n_volumes: int, coverage: float) -> str:
    """Why a run is left out, by the numbers of `cleaning.exclude`; empty: it is not."""
    rule = cleaning.exclude
    if rule is None:
        return ""
    if rule.min_coverage and coverage < rule.min_coverage:
        return f"covers {coverage:.2f} of the mask, min_coverage {rule.min_coverage:g}"
    n_first = cleaning.dummy_scans
    fd = mean_displacement(run, n_volumes, n_first) if rule.max_mean_fd else 0.0
    if rule.max_mean_fd and fd > rule.max_mean_fd:
        return f"mean FD is {fd:.2f} mm, max_mean_fd {rule.max_mean_fd:g}"
    if not (rule.min_volumes or rule.max_scrubbed):
        return ""
    n = kept_volumes(run, cleaning, n_volumes).size
    scrubbed = 1 - n / max(n_volumes - cleaning.dummy_scans, 1)
    if rule.max_scrubbed and scrubbed > rule.max_scrubbed:
        return f"{scrubbed:.2f} is scrubbed, max_scrubbed {rule.max_scrubbed:g}"
    if rule.min_volumes and n < rule.min_volumes:
        return f"{n} volumes are left, min_volumes {rule.min_volumes}"
    return ""


def kept_volumes(run: Path, cleaning: Cleaning, n_volumes: int) -> np.ndarray:
    """Indices of the volumes that are kept; the table is read only if it may tell."""
    if cleaning.scrubs is None and not isinstance(cleaning.confounds, Confounds):
        return np.arange(cleaning.dummy_scans, n_volumes)
    return _confounds(run, cleaning, n_volumes)[1]


def mean_displacement(run: Path, n_volumes: int, n_first: int = 0) -> float:
    """Mean framewise displacement of a run [mm]; the first volume has none.

    ``n_first`` volumes are left out, and may have none either.
    """
    columns = read_columns(run, [DISPLACEMENT], n_volumes, "cleaning.exclude", n_first)
    return float(np.nanmean(columns))


def motion(run: Path) -> np.ndarray:
    """Framewise displacement of each volume [mm]; empty where none is given."""
    path, column = confounds_file(run), DISPLACEMENT
    if not path.is_file():
        return np.empty(0)
    import pandas as pd

    try:
        table = pd.read_csv(path, sep="\t")
    except (OSError, ValueError):  # who asks for the table refuses it
        return np.empty(0)
    if column not in table:
        return np.empty(0)
    return pd.to_numeric(table[column], errors="coerce").to_numpy(float)


def _confounds(
    run: Path, cleaning: Cleaning, n_volumes: int
) -> tuple[np.ndarray | None, np.ndarray]:
    """Confounds, (n_volumes, n), and which volumes are kept, increasing."""
    wanted, scrub, n_first = cleaning.confounds, cleaning.scrubs, cleaning.dummy_scans
    volumes, confounds = np.arange(n_volumes), None
    if isinstance(wanted, Confounds):
        confounds, volumes = _by_strategy(run, wanted, scrub, n_volumes, n_first)
    elif wanted:
        key = "cleaning.confounds"
        confounds = filled(read_columns(run, wanted, n_volumes, key, n_first))
    if scrub is not None and getattr(wanted, "strategy", "") != "scrubbing":
        volumes = np.intersect1d(volumes, _scrubbed(run, scrub, n_volumes, n_first))
    volumes = volumes[volumes >= n_first]
    if confounds is not None and confounds.shape[1] == 0:
        confounds = None
    return confounds, volumes


def _scrubbed(run: Path, scrub: Scrub, n_volumes: int, n_first: int) -> np.ndarray:
    """Volumes that scrubbing leaves, as nilearn's, which needs a column of DVARS."""
    key = "cleaning.scrub"
    largest = {DISPLACEMENT: scrub.fd_threshold, DVARS: scrub.std_dvars_threshold}
    limits = {name: limit for name, limit in largest.items() if limit is not None}
    moved = read_columns(run, [*limits], n_volumes, key, n_first) > [*limits.values()]
    still = np.flatnonzero(~moved.any(axis=1))
    if still.size < n_volumes:
        segments = np.split(still, 1 + np.flatnonzero(np.diff(still) > 1))
        long = [s for s in segments if s.size >= scrub.min_segment]
        still = np.concatenate([*long, still[:0]])
    return np.intersect1d(still, steady(run, n_volumes, key, n_first))


def _by_strategy(
    run: Path, wanted: Confounds, scrub: Scrub | None, n_volumes: int, n_first: int
) -> tuple[np.ndarray | None, np.ndarray]:
    options = {k: v for k, v in wanted.model_dump(exclude={"strategy"}).items() if v}
    key = "cleaning.confounds"
    if wanted.strategy == "scrubbing":
        options |= _thresholds(scrub)
        volumes = _scrubbed(run, scrub, n_volumes, n_first)
    else:
        volumes = steady(run, n_volumes, key, n_first)
    if not volumes.size:  # of which nilearn warns, and goes on
        return None, volumes
    return by_nilearn(run, wanted.strategy, n_volumes, key, n_first, **options)


def _thresholds(scrub: Scrub) -> dict[str, float]:
    """Thresholds of scrubbing for nilearn, whose defaults changed between versions."""
    thresholds = scrub.model_dump(include={"fd_threshold", "std_dvars_threshold"})
    return {**thresholds, "scrub": scrub.min_segment}
