"""Parts of a methods text: what people's rows have, and what was done to runs."""

import re
from collections.abc import Sequence
from pathlib import Path

from capeneuro.config.contrast import FARTHEST, ContrastOptions
from capeneuro.config.rows import RowStudy
from capeneuro.config.sections import Cleaning, Confounds, are_words
from capeneuro.config.study import StudyConfig
from capeneuro.report import protection

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


def of_row(config: RowStudy, features: str, n_features: int) -> str:
    """Describe a person's row with its public bounds, in a study of rows.

    Parameters
    ----------
    config
        The study.
    features
        Description of the features, of :func:`.sentences.features`.
    n_features
        Number of them.
    """
    options, covariates = config.rows, config.rows.covariates
    kind, ends = options.features.kind, getattr(options.features, "bounds", None)
    bounds = "public bounds"
    if kind == "table":
        bounds = f"the public bounds of {options.features.features.name}"
    elif ends is not None:
        bounds = f"the public bounds {_ends(ends)}"
    noun = "outcome" if config.kind == "contrast" else "feature"
    text = f"{features} ({n_features:,} {noun}{'s' * (n_features != 1)}"
    if covariates:
        with_bounds = (f"{n} ({_ends(b)})" for n, b in covariates.items())
        text += f", among them {', '.join(with_bounds)}"
    text += f"), limited to {bounds}"
    if config.target is not None:
        name, words = config.target[0], config.target_words
        target = f"the two groups of {name}" if config.groups else name
        text += f", to predict {target} ({_ends(words or config.target[1])})"
    return text


def _ends(ends: Sequence[float] | Sequence[str]) -> str:
    """Two bounds, or the words of two groups."""
    return " or ".join(ends) if are_words(ends) else protection.written(ends)


def covariates(contrast: ContrastOptions) -> str:
    """Covariates of a study of contrasts, the primary one first, as a list in words."""
    names = sorted(contrast.covariates, key=lambda name: name != contrast.primary)
    texts = []
    for name in names:
        covariate = contrast.covariates[name]
        if covariate.groups:
            first, *others = map(protection.written, covariate.groups)
            notes = [f"{' and '.join(others)} compared with {first}"]
        else:
            mean, reach = covariate.mean, FARTHEST * covariate.deviation
            limits = f"to {reach:g} about the sites' mean"
            if mean is not None:
                limits = f"to {mean - reach:g} to {mean + reach:g}"
            notes = [f"per {covariate.deviation:g}, limited {limits}"]
        if covariate.knots:
            knots = ", ".join(f"{knot:g}" for knot in covariate.knots)
            notes.append(f"a restricted cubic spline with knots at {knots}")
        if name == contrast.primary:
            notes.append("the primary one")
        texts.append(f"{name} ({'; '.join(notes)})")
    texts += [f"the product of {a} and {b}" for a, b in contrast.interactions]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


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
