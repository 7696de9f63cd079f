"""The methods text of a study of images: what was done to the runs, in sentences."""

import re
from pathlib import Path

from capeneuro.config.sections import Cleaning, Confounds
from capeneuro.config.study import Study

# Strategies of nilearn as they are where a study says no more: motion, white matter and
# fluid, principal components (tests/report/test_page.py asks nilearn).
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


def regressors(asked: Confounds) -> str:
    """Confounds of a strategy, by what they are."""
    motion, tissue, compcor = STRATEGIES[asked.strategy]
    motion, tissue = asked.motion or motion, asked.wm_csf or tissue
    compcor, said = asked.compcor or compcor, []
    if motion:
        said.append(
            f"{N_MOTION[motion]} regressors of motion (translations and rotations"
            f"{MORE_OF[motion]})"
        )
    if tissue:
        said.append(
            f"the mean signals of white matter and cerebrospinal fluid{MORE_OF[tissue]}"
        )
    if compcor:
        n = asked.n_compcor or "all"
        said.append(f"{n} principal components ({compcor.replace('_', ' ')} CompCor)")
    if asked.global_signal:
        said.append(f"the global signal{MORE_OF[asked.global_signal]}")
    return f"{'; '.join(said)}; and the slow cosines of fMRIPrep, a high-pass filter"


def of(config: Study, nilearn: str) -> str:
    """What a study did to runs; empty where it reads none. ``nilearn``: its version."""
    features = getattr(getattr(config, "rows", None), "features", None)
    own = getattr(config, "cleaning", None) or getattr(features, "cleaning", None)
    return cleaned(own, nilearn) if own else ""


def cleaned(own: Cleaning, nilearn: str) -> str:
    """What was done to each run before features, in sentences."""
    if own == Cleaning.model_validate("none"):
        return "The runs were taken as they are, cleaned before."
    scrub = own.scrubs
    said = [
        f"They were smoothed by a Gaussian kernel of {own.smoothing_fwhm:g} mm (full "
        "width at half maximum)."
        if own.smoothing_fwhm
        else "They were not smoothed here."
    ]
    if own.run_mask:
        said.append("Voxels outside a run's own brain mask counted as 0.")
    if own.standardize == "psc":
        said.append("Each voxel was expressed in percent of its mean.")
    if own.dummy_scans:
        said.append(f"The first {own.dummy_scans} volumes of each run were left out.")
    if scrub:
        dvars = scrub.std_dvars_threshold
        also = f" or a standardized DVARS above {dvars:g}" if dvars else ""
        said.append(
            "Volumes with a framewise displacement above "
            f"{scrub.fd_threshold:g} mm{also} were left out, and what was left between "
            f"two of them if fewer than {scrub.min_segment} volumes."
        )
    if own.exclude:
        known = own.exclude.model_dump(exclude_none=True).items()
        rules = ", ".join(f"{name.replace('_', ' ')} {x:g}" for name, x in known)
        said.append(f"Runs were left out by numbers fixed beforehand ({rules}).")
    if own.detrend:
        said.append("Of each feature the mean and the linear trend were removed.")
    if isinstance(own.confounds, Confounds):
        said.append(
            f"Regressed out were {regressors(own.confounds)} (the strategy "
            f"{own.confounds.strategy} of nilearn); volumes that fMRIPrep calls "
            "non-steady were left out."
        )
    elif own.confounds:
        columns = ", ".join(own.confounds)
        said.append(f"Regressed out were these columns of confounds: {columns}.")
    else:
        said.append("No confounds were regressed out.")
    low, high = own.high_pass, own.low_pass
    if low or high:
        band = f"{low:g} to {high:g} Hz" if low and high else ""
        band = band or (f"below {high:g} Hz" if high else f"above {low:g} Hz")
        said.append(f"Time courses were filtered to {band}.")
    else:
        other = "other " * isinstance(own.confounds, Confounds)
        said.append(f"No {other}temporal filter was applied.")
    if own.standardize == "zscore":
        said.append("Each feature was scaled to variance 1 over time.")
    said.append(
        "Time courses were cleaned by nilearn (Abraham et al. 2014; version "
        f"{nilearn} where this was written)."
    )
    return " ".join(said)


def template_in(mask: str) -> str:
    """Space of a mask, where its name says it as BIDS does; else empty."""
    found = re.search(r"(?:^|_)(?:tpl|space)-([A-Za-z0-9]+)", Path(mask).name)
    return found[1] if found else ""
