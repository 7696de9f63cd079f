"""The methods text of a study of images: what was done to the runs, in sentences."""

import re
from pathlib import Path

from capeneuro.config.sections import Cleaning, Confounds
from capeneuro.config.study import StudyConfig

# Defaults of nilearn's strategies: motion, white matter and fluid, principal components
# (tests/report/test_page.py compares them with nilearn).
STRATEGIES = {
    "simple": ("full", "basic", ""),
    "scrubbing": ("full", "full", ""),
    "compcor": ("full", "", "anat_combined"),
    "ica_aroma": ("", "basic", ""),
}
MORE_OF = {
    "basic": "",
    "power2": ", their squares",
    "derivatives": ", their derivatives",
    "full": ", their derivatives, and the squares of both",
}
N_MOTION = {"basic": 6, "power2": 12, "derivatives": 12, "full": 24}


def regressors(confounds: Confounds) -> str:
    """Regressors of a strategy of confounds, in words."""
    motion, tissue, compcor = STRATEGIES[confounds.strategy]
    motion, tissue = confounds.motion or motion, confounds.wm_csf or tissue
    compcor, phrases = confounds.compcor or compcor, []
    if motion:
        phrases.append(
            f"{N_MOTION[motion]} regressors of motion (translations and rotations"
            f"{MORE_OF[motion]})"
        )
    if tissue:
        phrases.append(
            f"the mean signals of white matter and cerebrospinal fluid{MORE_OF[tissue]}"
        )
    if compcor:
        n = confounds.n_compcor or "all"
        phrases.append(
            f"{n} principal components ({compcor.replace('_', ' ')} CompCor)"
        )
    if confounds.global_signal:
        phrases.append(f"the global signal{MORE_OF[confounds.global_signal]}")
    return f"{'; '.join(phrases)}; and the slow cosines of fMRIPrep, a high-pass filter"


def of(config: StudyConfig, nilearn: str) -> str:
    """Preprocessing of a study's runs, in sentences; empty for a study without runs.

    ``nilearn`` is the library's version.
    """
    features = getattr(getattr(config, "rows", None), "features", None)
    cleaning = getattr(config, "cleaning", None) or getattr(features, "cleaning", None)
    return cleaned(cleaning, nilearn) if cleaning else ""


def cleaned(cleaning: Cleaning, nilearn: str) -> str:
    """Preprocessing of each run before features are formed, in sentences."""
    if cleaning == Cleaning.model_validate("none"):
        return "The runs were used as they were, denoised beforehand."
    scrub = cleaning.scrubs
    sentences = [
        f"They were smoothed by a Gaussian kernel of {cleaning.smoothing_fwhm:g} mm "
        "(full width at half maximum)."
        if cleaning.smoothing_fwhm
        else "They were not smoothed here."
    ]
    if cleaning.run_mask:
        sentences.append("Voxels outside a run's own brain mask counted as 0.")
    if cleaning.standardize == "psc":
        sentences.append("Each voxel was expressed in percent of its mean.")
    if cleaning.dummy_scans:
        sentences.append(
            f"The first {cleaning.dummy_scans} volumes of each run were left out."
        )
    if scrub:
        dvars = scrub.std_dvars_threshold
        also = f" or a standardized DVARS above {dvars:g}" if dvars else ""
        sentences.append(
            "Volumes with a framewise displacement above "
            f"{scrub.fd_threshold:g} mm{also} were left out, and so were the volumes "
            f"between two of them if fewer than {scrub.min_segment}."
        )
    if cleaning.exclude:
        limits = cleaning.exclude.model_dump(exclude_none=True).items()
        rules = ", ".join(f"{name.replace('_', ' ')} {x:g}" for name, x in limits)
        sentences.append(f"Runs were left out by numbers fixed beforehand ({rules}).")
    if cleaning.detrend:
        sentences.append("Of each feature the mean and the linear trend were removed.")
    if isinstance(cleaning.confounds, Confounds):
        sentences.append(
            f"Confounds were regressed out: {regressors(cleaning.confounds)} (the "
            f"strategy {cleaning.confounds.strategy} of nilearn); volumes that "
            "fMRIPrep flags as non-steady were left out."
        )
    elif cleaning.confounds:
        columns = ", ".join(cleaning.confounds)
        sentences.append(f"Regressed out were these columns of confounds: {columns}.")
    else:
        sentences.append("No confounds were regressed out.")
    low, high = cleaning.high_pass, cleaning.low_pass
    if low or high:
        band = f"{low:g} to {high:g} Hz" if low and high else ""
        band = band or (f"below {high:g} Hz" if high else f"above {low:g} Hz")
        sentences.append(f"Time courses were filtered to {band}.")
    else:
        kind = "other " * isinstance(cleaning.confounds, Confounds)
        sentences.append(f"No {kind}temporal filter was applied.")
    if cleaning.standardize == "zscore":
        sentences.append("Each feature was scaled to variance 1 over time.")
    sentences.append(
        "Time courses were cleaned by nilearn (Abraham et al. 2014; version "
        f"{nilearn} where this was written)."
    )
    return " ".join(sentences)


def template_in(mask: str) -> str:
    """Template space in a mask's file name, by the entities of BIDS; empty: none."""
    match = re.search(r"(?:^|_)(?:tpl|space)-([A-Za-z0-9]+)", Path(mask).name)
    return match[1] if match else ""
