"""What results say in words: the lines that commands print and reports repeat."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capeneuro.algorithms import model_order, shrinkage, verdicts
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrasts import Contrasts
from capeneuro.algorithms.ica import Unmixing, inseparable
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.prior_fit import PriorFit
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.study import Study
from capeneuro.linalg import TINY

# Mean weight of people below which clipping is worth a word, and below which what is
# said of them as they count is not true of all alike (docs/results-regression.md).
SLIGHTLY, ALIKE = 0.97, 0.995
# Of a norm bound, what people fill on average where it is worth a word.
HALF = 0.5
# Rules of private data that a study set aside.
ACCEPTED = {
    "epsilon": "This study promises an epsilon above 10",
    "weak": "This study promises an epsilon above 20, which hides nobody from who "
    "knows the others",
    "unit": "This study promises something to one volume, not to a person",
    "bounds": "The bounds of this study have no public source",
    "gain": "This study accepts that private data may add nothing to the prior",
}
# In place of a verdict where no noise was added that a result could be held against.
NOT_TESTED = "not tested"

# What verdicts mean, for the readers of a report.
MEANINGS = {
    verdicts.ABOVE: "noise alone would give this in one study of twenty at most",
    verdicts.NOT_ABOVE: "noise alone could well give this, so nothing was found here",
    verdicts.UNTOLD: "there is something, but not which part of the result it is",
    verdicts.AS_PRIOR: "private data change this public result by no more than noise "
    "would",
}
# Below the picture of what private data change.
CHANGES = (
    "How like each map is to the public one that it started from. Sites differ from "
    "any public people, so where private people are many every map changes a little: "
    "the verdict says that it does, the correlation how far."
)


def as_tested(study: Study, told: verdicts.Verdicts) -> verdicts.Verdicts:
    """Verdicts about the noise of privacy alone: none in a run that added none."""
    if study.arm != "non-private":
        return told
    return replace(told, labels=(NOT_TESTED,) * len(told.labels))


def is_shown(told: verdicts.Verdicts) -> np.ndarray:
    """Which results are drawn: above the noise, around a prior, or not tested, (n,)."""
    return told.exceeds_noise | told.from_prior | (np.array(told.labels) == NOT_TESTED)


def titles(told: verdicts.Verdicts, names: Sequence[str]) -> Sequence[str]:
    """Names of results, with their verdict where they are not above the noise."""
    return names if NOT_TESTED in told.labels else told.titles(names)


def found_line(study: Study, told: verdicts.Verdicts) -> str:
    """What was found, in one sentence."""
    if study.arm != "non-private":
        return told.sentence
    if NOT_TESTED in told.labels:
        return "no noise was added and nothing is tested: this is what the data have"
    n, n_above = len(told.labels), int(told.exceeds_noise.sum())
    if n_above == 0:
        return (
            "no noise was added; nothing stands above what sampling alone gives: 0 of "
            f"{n} can be told from it"
        )
    return (
        f"no noise was added; {n_above} of {n} stand above what sampling alone gives, "
        f"which lifts any in {verdicts.LEVEL:.0%} of studies at most"
    )


def parties(study: Study) -> dict[str, str]:
    """Classes of parties of a study in words, by their names in :func:`.cape.views`."""
    n_colluding = study.n_colluding
    c = f"{n_colluding} {'sites' if n_colluding > 1 else 'site'}"
    found = {
        "reader": "a reader of the results",
        "partner": "another site, which takes its own noise off the results",
        "partners": f"{c} together, without the aggregator",
        "aggregator": "the aggregator, if it is at no site",
        "aggregator_and_colluders": f"the aggregator with {c}: what ledgers charge",
        "site_as_aggregator": "one site that is the aggregator, too",
    }
    if n_colluding == 1:
        del found["partners"]  # one partner
    if study.is_independent:
        del found["site_as_aggregator"]
    return found


def features(config: Study) -> str:
    """What the features of a person are, in a study of rows or of two views."""
    rows = getattr(config, "rows", None)
    own = rows.features if rows else getattr(getattr(config, "fusion", None), "fmri", 0)
    if hasattr(own, "measures"):
        what = ", ".join(own.measures)
        of = getattr(own, "of", "")
        where = f"the components of stage {of}" if of else "their runs"
        return f"what each person has of {where} ({what})"
    if getattr(own, "kind", "") == "erp":
        return "means over windows of each person's event-related potential"
    if getattr(own, "kind", "") == "bands":
        return "shares of frequency bands in the power of each person's EEG"
    if config.space is not None:
        return f"features of an image in the public basis {config.space.basis}"
    return "a row of a table"


def order_line(config: ComponentsConfig, subspace: Subspace) -> str:
    """What a released spectrum says of the order, as one line."""
    counted, shortest, _, white = _order(subspace)
    beside = "" if subspace.noise_deviation else " of the run without noise"
    line = f"order{beside}: threshold {counted}, MDL {shortest}; "
    line += f"the study uses {config.n_components}"
    if max(counted, shortest) < config.n_components:
        line += ", more than either supports: take the last ones with care"
    if beside and config.budget.unit == "subject":
        line += " (with people counted for volumes)"
    return line + (" (counts tend to be large: see the report)" if white else "")


def shares_line(config: ComponentsConfig, subspace: Subspace) -> str:
    """What noise left of the directions of power iteration, as one line."""
    about = subspace.noise_deviation, len(subspace.eigenvectors)
    energies, rounds = subspace.eigenvalues, config.pca.n_iterations
    shares = shrinkage.signal_shares(energies, *about, rounds)
    return (
        f"directions: {(shares > 0.5).sum()} of {len(shares)} are more signal than "
        f"noise, on average some {100 * shares.mean():.0f}% is signal"
    )


def order_in_words(config: ComponentsConfig, subspace: Subspace) -> tuple[float, str]:
    """Edge of the noise in the released spectrum, and what it says of the order."""
    (counted, shortest, edge, white), K = _order(subspace), config.n_components
    what, alone = "Spectrum of the released second moment", "noise alone reaches"
    if not subspace.noise_deviation:
        what = "Spectrum of the second moment, to which no noise was added"
        alone = "sampling alone would reach, if measurement noise were white"
    text = (
        f"{what}. {counted} of {len(subspace.spectrum)} eigenvalues stand above what "
        f"{alone}; minimum description length keeps {shortest}; the study uses {K}."
    )
    if subspace.captured.size:
        text += f" {_captured(subspace)}"
    if counted < K and subspace.noise_deviation:
        text += " What lies below the line cannot be told from noise."
    if config.budget.unit == "subject":
        text += (
            " The number of people stands in for that of volumes, so the line is high."
        )
    if white:
        text += (
            " Both counts tend to be large here: what is measured beside the "
            "components is taken as white, which in images it is not."
        )
    return edge, text


def prior_fit(fit: PriorFit, n_components: int) -> str:
    """Whether the prior was used, and why, in one line."""
    low, high = (100 * share for share in fit.interval)
    held = (
        f"along its first {n_components} directions people were released to have "
        f"{100 * fit.energy_share:.0f}% of their energy (95% interval for noise "
        f"{low:.0f}% to {high:.0f}%)"
    )
    if fit.is_kept:
        return f"the prior was used: {held}"
    if fit.least_share >= 1:
        need = "at this noise a study without it is foretold to capture more, whoever "
        need += "they are"
    else:
        need = f"below {100 * fit.least_share:.0f}% a study without it is foretold to "
        need += "capture more at this noise"
    return (
        f"note: the prior was not used: {held}; {need}. Is it of the same parcels, in "
        "the same order?"
    )


def requirement(n_components: int, least: float, captured: float) -> str:
    """From when on a prior is dropped, as `plan` says it."""
    said = f"a study without the prior is foretold to capture {100 * captured:.0f}% of "
    said += "people's energy: "
    if least == -np.inf:
        return said + "no prior would capture less, so it is not dropped"
    if least >= 1:
        return said + "more than around this prior, which will be dropped"
    return said + (
        "the prior is dropped if along its\nfirst "
        f"{n_components} directions less than {100 * least:.0f}% is released, from "
        "where on more is expected around it"
    )


def _captured(subspace: Subspace) -> str:
    """What is known of the share of the energy that the directions hold."""
    least = subspace.captured[1]
    if np.isnan(least):
        return "How much of the energy its directions hold cannot be told."
    if not subspace.noise_deviation:
        return f"Its directions hold {100 * least:.0f}% of the energy of the data."
    return (
        f"Its directions hold at least {100 * least:.0f}% of the energy of the data, "
        "as it was clipped (true of 97 in 100 releases)."
    )


def ica_lines(found: Unmixing) -> list[str]:
    """What the rounds say of the components beside their maps, one line each."""
    lines = []
    if pairs := inseparable(found):
        shown = ", ".join(f"{i + 1} and {j + 1}" for i, j in pairs[:5])
        more = f" and {len(pairs) - 5} pairs more" if len(pairs) > 5 else ""
        lines.append(
            f"note: components {shown}{more}: near Gaussian, so any turn of the pair "
            "is as good; ICA cannot separate them"
        )
    if np.isfinite(found.stability).all():
        least = int(found.stability.argmin())
        of, median = "runs" if found.n_rounds else "draws", np.median(found.stability)
        lines.append(
            f"stability over {of}: median {median:.2f}, least "
            f"{found.stability[least]:.2f} (component {least + 1})"
        )
    return lines


def ending(trace: np.ndarray, noise: list[float]) -> str:
    """Whether more rounds would have helped, from the released gradient."""
    last, alone = float(np.median(trace[-3:])), float(np.median(noise[-3:]))
    told = f"the gradient of the last rounds ({last:.2g}) is "
    if last <= 1.5 * alone:
        return told + (
            f"about what noise alone gives ({alone:.2g}): more rounds would not help, "
            "more people or a larger epsilon would"
        )
    return told + (
        f"above what noise alone gives ({alone:.2g}): more rounds (ica.n_rounds) may "
        "still improve the components, at more noise in each"
    )


def correlation_lines(found: CanonicalDirections) -> list[str]:
    """What is known of canonical correlations, one line each."""
    said, (p, q) = verdicts.of_pairs(found), found.n_directions
    lines = [
        f"{said.exceeds_noise.sum()} of {len(said.labels)} pairs are above noise: were "
        "nothing common, the largest correlation among those found would exceed "
        f"{said.levels[0]:.2f} in one study of twenty"
    ]
    if said.exceeds_noise.any() and found.noise_deviation:
        numbers = [(i, said.intervals[i]) for i in np.flatnonzero(said.exceeds_noise)]
        shown = ", ".join(
            f"{r:.2f} ({low:.2f} to {high:.2f}) of pair {i + 1}"
            for i, (r, low, high) in numbers
        )
        lines.append(
            f"in people like these the variates correlate at {shown}; 95% intervals "
            "for noise, sampling"
            + (" and what clipping takes off" if found.clip_weight < ALIKE else "")
        )
    untold = [i + 1 for i, word in enumerate(said.labels) if word == verdicts.UNTOLD]
    if untold:
        lines.append(
            f"what is common of pair {', '.join(map(str, untold))} cannot be told: "
            "found above chance, but the other half of the noise leaves 0 possible"
        )
    lines.append(f"{p} principal directions of fmri and {q} of eeg were kept")
    if found.clip_weight < ALIKE:
        lines.append(
            f"people count {found.clip_weight:.2f} on average, the rest was clipped: "
            "were all counted alike, correlations would be some hundredths larger, "
            "which intervals allow for as of normal people"
        )
    return lines + _loose_bounds(found)


def _loose_bounds(found: CanonicalDirections) -> list[str]:
    """Norm bounds that people do not fill: no image of anybody tells, a trace does."""
    spectra = {"fmri": found.x_spectrum, "eeg": found.y_spectrum}
    # Views were divided by sqrt(2), too.
    sizes = {view: max(2 * float(v.sum()), 0) ** 0.5 for view, v in spectra.items()}
    return [
        f"people differ from the mean by {size:.2g} of the norm bound of {view} (root "
        "mean square): a bound so much smaller would mean less noise"
        for view, size in sizes.items()
        if size < HALF
    ]


def loose_bound(subspace: Subspace) -> list[str]:
    """That the norm bound is too large, where a released second moment tells; free."""
    tau, D = subspace.noise_deviation, len(subspace.spectrum)
    square = max(float(subspace.spectrum.sum()), 0.0)  # mean of norms, over the bound
    # The trace has the noise of D numbers.
    if not D or square + 2 * tau * D**0.5 >= HALF**2:
        return []
    return [
        "the released second moment puts the usual norm at some "
        f"{100 * square**0.5:.0f}% of pca.norm_bound: a bound so much "
        "smaller would mean less noise"
    ]


def bound_in_words(medians: list[float], bound: float) -> str:
    """What the norms of a site's people say of the public bound; for the site alone."""
    usual = float(np.median(medians))
    said = f"The usual norm is {usual:.3g}, {100 * usual / bound:.0f}% of the bound. "
    if usual < HALF * bound:
        return said + (
            "Studies of such data could take a smaller bound, from a public source: "
            "never from these numbers, which are private."
        )
    if usual > bound / HALF:
        return said + "Most of what people have is clipped; is the unit the same?"
    return said + "That is as it should be."


def _order(subspace: Subspace) -> tuple[int, int, float, bool]:
    """Order by threshold, by description length, the edge of the noise.

    And whether it rests on measurement noise, which is only assumed to be white.
    """
    released = subspace.spectrum, subspace.noise_deviation, subspace.n_units
    counted, level, edge = model_order.threshold(*released)
    return counted, model_order.description_length(*released), edge, level > 0.2 * edge


def network_lines(found: Network) -> list[str]:
    """What a network says beside its numbers, one line each."""
    first, last = found.trace[[0, -1]] if len(found.trace) else (np.nan, np.nan)
    return [
        f"{found.n_rounds} rounds; the norm of the released gradient, noise and all, "
        f"was {first:.3g} in the first and {last:.3g} in the last"
    ]


def tensor_lines(found: TensorComponents) -> list[str]:
    """What components say beside their numbers, one line each."""
    w = found.weights
    K, edge = len(w), shrinkage.edge(found.noise_deviations[0], len(found.spectrum))
    above = int((found.spectrum[:K] > edge).sum())
    lines = [
        f"shares of people by component: {', '.join(f'{x:.2f}' for x in w)}; they are "
        f"found one by one, and add up to {w.sum():.2f}"
    ]
    if above < K:
        lines.append(
            f"note: {above} of {K} directions of the pairs stand above what noise "
            "alone reaches; components beyond cannot be told from noise"
        )
    # Shares above 1 are impossible: lambda below 1 is noise.
    if (found.eigenvalues < 1).any():
        lines.append(
            "note: a component's strength is below the least possible one; noise or a "
            "wrong number of components"
        )
    return lines


def pattern_lines(found: Patterns) -> list[str]:
    """What patterns say beside their numbers, one line each."""
    K, edge = (
        len(found.shares),
        shrinkage.edge(found.noise_deviation, len(found.spectrum)),
    )
    above = int((found.spectrum[:K] > edge).sum())
    value, low, high = found.captured
    lines = [
        f"{above} of {K} directions stand above what noise alone reaches",
        f"they hold {value:.0%} ({low:.0%} to {high:.0%}) of what people differ by"
        if value == value
        else "what share of people's differences they hold cannot be told",
    ]
    if found.clip_weight < 0.95:
        lines.append(
            f"people count {found.clip_weight:.2f} on average; who is far from the "
            "mean is clipped"
        )
    return lines


def _percent(share: float) -> str:
    """A share; one far below 0 is of a model that is worse than none."""
    return f"{100 * share:.0f}%" if share >= -1 else "less than -100%"


def model_lines(found: LinearModel) -> list[str]:
    """What a regression says beside its numbers, one line each."""
    D = len(found.coefficients)
    apart = int((found.intervals.prod(axis=1) > 0).sum())
    of = "target's variance" if found.task == "linear" else "variance of the groups"
    r2, low, high = found.r2
    share = f"how much of the {of} it explains cannot be told within half of it"
    if np.isfinite(r2):
        share = (
            f"explains {100 * r2:.0f}% of the {of} in these people"
            + " as they count" * (found.clip_weight < ALIKE)
            + f" (95% interval {_percent(low)} to {_percent(high)})"
        )
    value, *ends = (f"{x:.3g}" for x in found.residual**0.5)
    left = f"; deviation of what is left {value} ({ends[0]} to {ends[1]})"
    lines = [
        share + left * (found.task == "linear"),
        f"{apart} of {D} coefficients have a 95% interval that leaves out 0"
        + f" (of ridge regression, ridge {found.ridge:.2g})" * (found.ridge > 0),
    ]
    if found.n_directions < D:
        lines.append(
            f"note: along {D - found.n_directions} of {D} directions the features vary "
            "by less than the noise; coefficients there are close to 0 whatever is true"
        )
    if found.clip_weight < ALIKE:
        lines.append(
            f"people count {found.clip_weight:.2f} on average: who is far from the "
            "middle is clipped. Were all counted alike, the share explained would "
            "differ by some hundredths and slopes would be as much larger; intervals "
            "leave that out. regression.clip: 1 counts all alike, at twice the noise"
        )
    return lines


def contrast_lines(found: Contrasts) -> list[str]:
    """What contrasts say beside their numbers, one line each."""
    lines = []
    for k in np.flatnonzero(~found.is_constant):
        if not found.is_estimable[k]:
            name, alike = found.names[k], str(found.alike[k])
            line = f"{name}: cannot be told; it varies by too little above noise"
            if alike:
                names = " and ".join(sorted({str(name), *alike.split(" and ")}))
                line = f"not estimable: {names}; they differ by too little above noise"
            lines += [line] * (line not in lines)
            continue
        of_people = np.sqrt(found.errors[k] ** 2 - found.noise_errors[k] ** 2)
        times = float(np.median(found.null_errors[k] / np.maximum(of_people, TINY)))
        errors = f"; standard errors are {times:.2f} times those of sampling alone"
        p, one = found.joint_p_values[k], found.effects.shape[1] == 1
        lines.append(
            f"{found.names[k]}: "
            + f"p = {p:.2g}{' of all outcomes together' * (not one)}"
            + errors * bool(of_people.any())
        )
    if found.clip_weight < ALIKE:
        lines.append(
            f"people count {found.clip_weight:.2f} on average: whose outcomes are far "
            "from the usual ones is clipped; effects and intervals are corrected for "
            "that, as normal outcomes need it that vary alike in all groups"
            + ", but not for outcomes that vary together, which is not public: effects "
            "on what all of them have in common are understated, and their intervals "
            "held 80 to 90% in simulations" * (not found.outcome_covariance_public)
        )
    return lines
