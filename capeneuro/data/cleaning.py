"""A run cleaned in time: confounds, volumes that are left out, filters; by nilearn."""

from pathlib import Path

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

    t_r, confounds, kept = regressors(run, site, cleaning, len(F))
    # What is cut off at the ends is no gap that a filter would have to bridge.
    ends = slice(kept[0], kept[-1] + 1)
    F, inside = F[ends], kept - kept[0]
    confounds = None if confounds is None else confounds[ends]
    is_filtered = cleaning.low_pass is not None or cleaning.high_pass is not None
    own = cleaning.model_dump(include={"detrend", "low_pass", "high_pass"})
    features = np.zeros((reached.size, kept.size), dtype=np.float32)
    rows, constant, least = np.flatnonzero(reached), 0, 1e-6 * np.abs(F).max()
    for first in range(0, rows.size, BLOCK):
        block = slice(first, first + BLOCK)
        cleaned = clean(
            F[:, block],
            **own,
            standardize=None,
            confounds=confounds,
            standardize_confounds=False,  # least squares needs no scale
            sample_mask=inside if inside.size < len(F) else None,
            filter="butterworth" if is_filtered else False,
            t_r=t_r,
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
) -> tuple[float | None, np.ndarray | None, np.ndarray]:
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
    confounds, kept = _confounds(run, cleaning, n_volumes)
    n = 0 if confounds is None else confounds.shape[1]
    if not kept.size or (n and kept.size <= n + 2):  # with a line and a mean
        raise ConfigError(
            f"{run}: {kept.size} of {n_volumes} volumes are left, too few for {n} "
            "confounds; exclude the run (cleaning.exclude), or take fewer confounds"
        )
    if edges and kept[-1] - kept[0] < PADS * len(edges) + PAD:
        raise ConfigError(
            f"{run}: the filter needs {PADS * len(edges) + PAD + 1} volumes, has "
            f"{kept[-1] - kept[0] + 1}; exclude the run, or take no low_pass, high_pass"
        )
    return t_r, confounds, kept


def left_out(run: Path, cleaning: Cleaning, n_volumes: int, coverage: float) -> str:
    """Why a run is left out, by the numbers of `cleaning.exclude`; empty: it is not."""
    rule = cleaning.exclude
    if rule is None:
        return ""
    if rule.min_coverage and coverage < rule.min_coverage:
        return f"covers {coverage:.2f} of the mask, min_coverage {rule.min_coverage:g}"
    about = n_volumes, cleaning.dummy_scans
    if rule.max_mean_fd and (fd := mean_displacement(run, *about)) > rule.max_mean_fd:
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
    about = n_volumes, "cleaning.exclude", n_first
    return float(np.nanmean(read_columns(run, [DISPLACEMENT], *about)))


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
    asked, scrub, n_first = cleaning.confounds, cleaning.scrubs, cleaning.dummy_scans
    kept, confounds = np.arange(n_volumes), None
    if isinstance(asked, Confounds):
        confounds, kept = _by_strategy(run, asked, scrub, n_volumes, n_first)
    elif asked:
        about = n_volumes, "cleaning.confounds", n_first
        confounds = filled(read_columns(run, asked, *about))
    if scrub is not None and getattr(asked, "strategy", "") != "scrubbing":
        kept = np.intersect1d(kept, _scrubbed(run, scrub, n_volumes, n_first))
    kept = kept[kept >= n_first]
    if confounds is not None and confounds.shape[1] == 0:
        confounds = None
    return confounds, kept


def _scrubbed(run: Path, scrub: Scrub, n_volumes: int, n_first: int) -> np.ndarray:
    """Volumes that scrubbing leaves, as nilearn's, which needs a column of DVARS."""
    about = n_volumes, "cleaning.scrub", n_first
    largest = {DISPLACEMENT: scrub.fd_threshold, DVARS: scrub.std_dvars_threshold}
    asked = {name: limit for name, limit in largest.items() if limit is not None}
    moved = read_columns(run, [*asked], *about) > [*asked.values()]
    still = np.flatnonzero(~moved.any(axis=1))
    if still.size < n_volumes:
        segments = np.split(still, 1 + np.flatnonzero(np.diff(still) > 1))
        long = [s for s in segments if s.size >= scrub.min_segment]
        still = np.concatenate([*long, still[:0]])
    return np.intersect1d(still, steady(run, *about))


def _by_strategy(
    run: Path, asked: Confounds, scrub: Scrub | None, n_volumes: int, n_first: int
) -> tuple[np.ndarray | None, np.ndarray]:
    given = {k: v for k, v in asked.model_dump(exclude={"strategy"}).items() if v}
    about = n_volumes, "cleaning.confounds", n_first
    if asked.strategy == "scrubbing":
        given |= _thresholds(scrub)
        kept = _scrubbed(run, scrub, n_volumes, n_first)
    else:
        kept = steady(run, *about)
    if not kept.size:  # of which nilearn warns, and goes on
        return None, kept
    return by_nilearn(run, asked.strategy, *about, **given)


def _thresholds(scrub: Scrub) -> dict[str, float]:
    """Always said: nilearn changed its own defaults."""
    given = scrub.model_dump(include={"fd_threshold", "std_dvars_threshold"})
    return {**given, "scrub": scrub.min_segment}
