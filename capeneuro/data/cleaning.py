"""A run cleaned in time: confounds, volumes that are left out, filters; by nilearn."""

import re
from pathlib import Path

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning, Confounds, Scrub
from capeneuro.config.site import SiteConfig
from capeneuro.data.beside import confounds_file, timing
from capeneuro.data.door import check_file

# Volumes at a run's ends that SciPy's filter mirrors: these, and these for each edge.
PAD, PADS = 3, 15
# Features cleaned at a time: nilearn makes copies, a filter's in float64.
BLOCK = 4096
DISPLACEMENT = "framewise_displacement"
# Where a table lacks what is asked for.
REMEDIES = {
    "cleaning.confounds": "choose another cleaning.confounds",
    "cleaning.scrub": "std_dvars_threshold: null scrubs by displacement alone",
}


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
            f"{run}: a band-pass needs a repetition time, none found in a JSON sidecar "
            "or, with its unit, in the header; give `repetition_time` in the site file"
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
    if rule.max_mean_fd and (fd := mean_displacement(run)) > rule.max_mean_fd:
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


def mean_displacement(run: Path) -> float:
    """Mean framewise displacement of a run [mm]; the first volume has none."""
    table = _table(run, [DISPLACEMENT], "cleaning.exclude")
    return float(table[DISPLACEMENT].mean())


def motion(run: Path) -> np.ndarray:
    """Framewise displacement of each volume [mm]; empty where none is given."""
    path, column = confounds_file(run), DISPLACEMENT
    if not path.is_file():
        return np.empty(0)
    import pandas as pd

    table = pd.read_csv(path, sep="\t")
    if column not in table:
        return np.empty(0)
    return pd.to_numeric(table[column], errors="coerce").to_numpy(float)


def _confounds(
    run: Path, cleaning: Cleaning, n_volumes: int
) -> tuple[np.ndarray | None, np.ndarray]:
    asked, scrub = cleaning.confounds, cleaning.scrubs
    kept, confounds = np.arange(n_volumes), None
    if isinstance(asked, Confounds):
        confounds, kept = _by_strategy(run, asked, scrub, kept)
    elif asked:
        # Missing first values, as of derivatives, become 0.
        confounds = _table(run, asked, "cleaning.confounds")[asked].fillna(0.0)
    if scrub is not None and getattr(asked, "strategy", "") != "scrubbing":
        kept = np.intersect1d(kept, _scrubbed(run, scrub, kept))
    if confounds is not None and len(confounds) != n_volumes:
        raise ConfigError(
            f"{confounds_file(run)}: must have a row per volume, got {len(confounds)} "
            f"for {n_volumes}"
        )
    kept = kept[(kept >= cleaning.dummy_scans) & (kept < n_volumes)]
    if isinstance(asked, Confounds) and confounds.shape[1] == 0:
        confounds = None
    return None if confounds is None else confounds.to_numpy(), kept


def _scrubbed(run: Path, scrub: Scrub, every: np.ndarray) -> np.ndarray:
    """Volumes that scrubbing leaves."""
    if scrub.std_dvars_threshold is not None:
        own = {"strategy": ("scrub",), **_thresholds(scrub)}
        kept = _ask("load_confounds", run, "cleaning.scrub", **own)[1]
        return every if kept is None else kept
    # nilearn's needs a column of DVARS, whose threshold is not asked for here.
    table = _table(run, [DISPLACEMENT], "cleaning.scrub")
    still = np.flatnonzero(~(table[DISPLACEMENT] > scrub.fd_threshold))
    if still.size < len(table):
        segments = np.split(still, 1 + np.flatnonzero(np.diff(still) > 1))
        long = [s for s in segments if s.size >= scrub.min_segment]
        still = np.concatenate([*long, still[:0]])
    steady = ~table.filter(like="non_steady_state").any(axis=1)
    return np.intersect1d(still, np.flatnonzero(steady))


def _by_strategy(run: Path, asked: Confounds, scrub: Scrub | None, kept: np.ndarray):
    given = {k: v for k, v in asked.model_dump(exclude={"strategy"}).items() if v}
    if asked.strategy == "scrubbing":
        given |= _thresholds(scrub)
    found, mask = _ask(
        "load_confounds_strategy", run, denoise_strategy=asked.strategy, **given
    )
    return found, kept if mask is None else mask


def _thresholds(scrub: Scrub) -> dict[str, float]:
    """Always said: nilearn changed its own defaults."""
    given = scrub.model_dump(include={"fd_threshold", "std_dvars_threshold"})
    return {**given, "scrub": scrub.min_segment}


def _ask(function: str, run: Path, key: str = "cleaning.confounds", **given: object):
    """Confounds and indices of volumes to keep, by nilearn; None: all of them."""
    from nilearn.interfaces import fmriprep

    check_file(confounds_file(run), "drop cleaning.confounds and cleaning.scrub")
    try:
        return getattr(fmriprep, function)(str(run), **given)
    except (ValueError, KeyError, IndexError) as error:
        text = " ".join(str(error).split())
        if "parameters are missing" in text:  # followed by lists of their names
            lacks = ", ".join(re.findall("'([^']+)'", text)) or "columns"
            text = f"the table has nothing of {lacks}"
        raise ConfigError(
            f"{run}: {key}: nilearn finds no such columns: {text.rstrip('.'):.200}; "
            f"{REMEDIES[key]}, or have fMRIPrep write the table again"
        ) from None


def _table(run: Path, columns: list[str], key: str):
    """The run's confounds table with some columns in it."""
    import pandas as pd

    path = check_file(confounds_file(run), f"drop {key}")
    table = pd.read_csv(path, sep="\t", na_values=["n/a"])
    if missing := [c for c in columns if c not in table]:
        hint = "; a strategy takes groups of columns" if "*" in missing[0] else ""
        raise ConfigError(f"{path}: no column {missing[0]!r}; check {key}{hint}")
    return table
