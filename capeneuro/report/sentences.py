"""Results in sentences, which commands print and reports repeat."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capeneuro.algorithms import model_order, shrinkage, verdict, verdicts
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_fit import (
    COLLINEAR_WITH_OTHERS,
    CONSTANT,
    NOISY_MEANS,
    UNPLACED,
)
from capeneuro.algorithms.contrast_forecast import POWER, Foretold
from capeneuro.algorithms.ica import Unmixing, inseparable
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.stand_ins import Trial
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.verdict import LEVEL, Verdicts
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.study import StudyConfig
from capeneuro.config.tensors import TensorConfig
from capeneuro.linalg import TINY

# Mean weight of people below which clipping is mentioned, and below which statements on
# weighted people do not hold for unweighted ones (docs/results-regression.md).
SLIGHTLY, ALIKE = 0.97, 0.995
# Share of a norm bound below which the usual norm is mentioned.
HALF = 0.5
# Rules of private data that a study set aside.
ACCEPTED = {
    "epsilon": "This study promises an epsilon above 10",
    "weak": "This study promises an epsilon above 20, which hides nobody from an "
    "adversary with the data of all other people",
    "unit": "This study promises something to one volume, not to a person",
    "bounds": "The bounds of this study have no public source",
    "gain": "This study accepts that private data may add nothing to the prior",
}
# Agreement below which no number is stated: .43 is estimated where .28 is true.
LEAST_SAID = 0.6
# Meanings of verdicts, for the readers of a report.
MEANINGS = {
    verdict.ABOVE: "distinguishable from noise (family-wise error at most 5%)",
    verdict.NOT_ABOVE: "consistent with noise: not a finding",
    verdict.UNTOLD: "signal is present but cannot be attributed to a single result",
    verdict.AS_PRIOR: "the change from the public prior is consistent with noise",
    verdict.NOT_REPRODUCIBLE: "privacy noise could have given another map; not shown",
    verdict.UNPLACED: "reproducible under privacy noise; without positions of the "
    "features no test against smooth noise is possible",
    verdict.AS_SMOOTH: "reproducible under privacy noise, but spatially smooth noise "
    "alone gives maps of this energy",
    verdict.ROTATABLE: "reproducible under privacy noise; other rotations of the same "
    "networks fit equally well",
}
# Below the picture of the changes by private data.
CHANGES = (
    "Correlation of each map with the public map that it started from. Sites differ "
    "from any public people, so with many private people every map changes a little: "
    "the verdict says whether it changed, the correlation by how much."
)


def as_tested(study: StudyConfig, judged: Verdicts) -> Verdicts:
    """Verdicts about the noise of privacy alone: none in a run that added none.

    Row: none, withdraws what a run without noise cannot state
    """
    if study.arm != "non-private":
        return judged
    return replace(judged, labels=(verdict.NOT_TESTED,) * len(judged.labels))


def agreements(judged: Verdicts) -> list[str]:
    """Agreement of each map with the map without noise, with its 80% range.

    Row: agreement
    """
    if not judged.is_of_maps or judged.intervals is None:
        return ["n/a"] * len(judged.names)
    in_words = []
    for r, low, high in judged.intervals:
        text = f"{r:.2f} ({low:.2f} to {high:.2f})" if low < high else f"{r:.2f}"
        text = f"below {LEAST_SAID:g}" if r < LEAST_SAID else text
        in_words.append("not known" if np.isnan(r) else text)
    return in_words


def titles(judged: Verdicts, names: Sequence[str]) -> Sequence[str]:
    """Names of results, with their verdict where they are not above the noise."""
    return names if verdict.NOT_TESTED in judged.labels else judged.titles(names)


def found_line(arm: str, judged: Verdicts) -> str:
    """The outcome of a study in one sentence.

    Row: component-told, pattern-told, pair-told, mixture-told, topic-told,
    regression-told, effect-told, feature-told
    """
    if arm != "non-private":
        return judged.sentence
    if verdict.NOT_TESTED in judged.labels:
        return "no noise was added and nothing was tested: the results are exact"
    n, n_above = len(judged.labels), int(judged.exceeds_noise.sum())
    if n_above == 0:
        return (
            "no noise was added; nothing stands above sampling alone: 0 of "
            f"{n} {judged.noun} can be distinguished from it"
        )
    return (
        f"no noise was added; {n_above} of {n} {judged.noun} stand above sampling "
        f"alone, which puts any above it in {verdict.LEVEL:.0%} of studies at most"
    )


def parties(study: StudyConfig) -> dict[str, str]:
    """Classes of parties of a study in words, by name.

    Row: none, names classes of parties

    The names are those of :func:`.privacy.parties.views`.
    """
    n_colluding = study.n_colluding
    c = f"{n_colluding} {'sites' if n_colluding > 1 else 'site'}"
    classes = {
        "reader": "a reader of the results",
        "partner": "another site, which subtracts its own noise from the results",
        "partners": f"{c} together, without the aggregator",
        "aggregator": "the aggregator, if it is at no site",
        "aggregator_and_colluders": f"the aggregator with {c}: what ledgers charge",
        "site_as_aggregator": "one site that is the aggregator, too",
    }
    if n_colluding == 1:
        del classes["partners"]  # one partner
    if study.is_independent:
        del classes["site_as_aggregator"]
    return classes


# How a person's networks are found from a template, by the word in the study file.
WAYS = {
    "regressed": "time courses of a template's maps by dual regression",
    "constrained": "a person's maps by constrained ICA about a template (GIG-ICA, "
    "Du & Fan 2013; weight .8 of the template), time courses by regression on it",
    "gift": "a person's maps and time courses by constrained ICA about a template "
    "(GIG-ICA, Du & Fan 2013; weight .5 of the template)",
}


# Features of an image by the basis of a study's space: how it is reduced, and to what.
IN_BASIS = {
    "voxels": ("in", "the voxels of the public {mask}"),
    "grid": (
        "averaged over",
        "cubes of {size} voxels a side in the public {mask}",
    ),
    "atlas": ("averaged over", "the regions of the public atlas {file}"),
    "template": ("as weights on", "the maps of the public template {file}"),
    "parcels": ("averaged over", "the public parcels of {mask}"),
}


def features(config: StudyConfig) -> str:
    """Description of a person's features, in a study of rows or of two views.

    Row: none, describes a setting
    """
    space, reduced, places = config.space, "", ""
    if space is not None:
        reduced, places = IN_BASIS[space.basis]
        places = places.format(
            mask=space.mask.rpartition("/")[-1],
            size=space.grid_size,
            file=space.basis_file.name if space.basis_file else "",
        )
    rows = getattr(config, "rows", None)
    options = (
        rows.features if rows else getattr(getattr(config, "fusion", None), "fmri", 0)
    )
    if hasattr(options, "measures"):
        measures = ", ".join(options.measures)
        of = getattr(options, "of", "")
        origin = f"the components of stage {of}" if of else f"{places} in their runs"
        way = WAYS.get(getattr(options, "courses", ""), "")
        is_template = space is not None and space.basis == "template"
        way = f"; {way}" if way and is_template else ""
        if options.domains is not None:
            way += f"; within and between the networks of {options.domains.file.name}"
        states = getattr(options, "states", None)
        if states is not None:
            seconds = states.window
            way += f"; states are the nearest public ones in windows of {seconds:g} s"
        return f"measures of each person from {origin} ({measures}{way})"
    if getattr(options, "kind", "") == "erp":
        return "means over windows of each person's event-related potential"
    if getattr(options, "kind", "") == "bands":
        return "shares of frequency bands in the power of each person's EEG"
    if not places:
        return "a row of a table"
    is_scaled = getattr(options, "standardize", "none") == "zscore"
    scaled = ", scaled to mean 0 and variance 1 over the mask," * is_scaled
    return f"an image{scaled} {reduced} {places}"


def order_line(config: ComponentsConfig, subspace: Subspace) -> str:
    """Estimates of the model order from a released spectrum, as one line.

    Row: eigenvalues-above-noise
    """
    order = _order(subspace)
    beside = "" if subspace.noise_deviation else " of the run without noise"
    line = f"order{beside}: threshold {order.above_edge}, MDL {order.shortest}; "
    line += f"the study uses {config.n_components}"
    if max(order.above_edge, order.shortest) < config.n_components:
        line += ", more than either supports: the last ones are uncertain"
    if beside and config.budget.unit == "subject":
        line += " (with people counted for volumes)"
    return line + " (counts tend to be large: see the report)" * order.assumes_white


def shares_line(config: ComponentsConfig, subspace: Subspace) -> str:
    """Shares of signal in the directions of power iteration, as one line.

    Row: signal-share
    """
    shares = shrinkage.signal_shares(
        subspace.eigenvalues,
        subspace.noise_deviation,
        len(subspace.eigenvectors),
        config.pca.n_iterations,
    )
    return (
        f"directions: {(shares > 0.5).sum()} of {len(shares)} are more signal than "
        f"noise, on average some {100 * shares.mean():.0f}% is signal"
    )


def order_in_words(config: ComponentsConfig, subspace: Subspace) -> tuple[float, str]:
    """Edge of the noise in the released spectrum, and the model order in a sentence.

    Row: eigenvalues-above-noise, captured-energy
    """
    order, K = _order(subspace), config.n_components
    title, reference = "Spectrum of the released second moment", "noise alone"
    if not subspace.noise_deviation:
        title = "Spectrum of the second moment, to which no noise was added"
        reference = "sampling alone, if measurement noise is white"
    text = (
        f"{title}. {order.above_edge} of {len(subspace.spectrum)} eigenvalues exceed "
        f"the largest of {reference}; minimum description length keeps "
        f"{order.shortest}; the study uses {K}."
    )
    if subspace.captured.size:
        text += f" {_captured(subspace)}"
    if order.above_edge < K and subspace.noise_deviation:
        text += " Eigenvalues below the line are indistinguishable from noise."
    if config.budget.unit == "subject":
        text += " The number of people replaces that of volumes, so the line is high."
    if order.assumes_white:
        text += (
            " Both counts tend to be large here: measurement noise is assumed to be "
            "white, which it is not in images."
        )
    return order.edge, text


def forecast_of_maps(trial: Trial) -> str:
    """Forecast of the mean correlation of maps with those without noise.

    Row: forecast-agreement
    """
    r, low, high = trial.forecast
    return (
        "the maps are forecast to correlate with the maps without noise at "
        f"r = {r:.2f} on average (80% range {low:.2f} to {high:.2f})"
    )


def prior_choice(trial: Trial | None) -> str:
    """Whether the prior is used, and why, in one line.

    Row: prior-choice
    """
    if trial is None:
        return (
            "the prior is used as the study file says; whether it improves the maps "
            "was not tested, which needs spatial ICA and public stand-in people "
            "(prior.stand_in)"
        )
    around, without = np.mean(trial.around), np.mean(trial.without)
    reason = (
        "on public stand-in people, maps around it correlate with the maps without "
        f"noise at r = {around:.2f}, and maps of a study without it at {without:.2f}"
    )
    if trial.has_prior:
        return f"the prior is used: {reason}"
    return f"note: the prior is not used: {reason}"


def _captured(subspace: Subspace) -> str:
    """The share of the energy along the directions, in a sentence.

    Row: captured-energy
    """
    least = subspace.captured[1]
    if np.isnan(least):
        return "The share of the energy along its directions cannot be estimated."
    if not subspace.noise_deviation:
        return f"Its directions hold {100 * least:.0f}% of the energy of the data."
    return (
        f"Its directions hold at least {100 * least:.0f}% of the energy of the data, "
        "as it was clipped (true of 97 in 100 releases)."
    )


def ica_lines(unmixing: Unmixing) -> list[str]:
    """Separability and stability of components, one line each.

    Row: component-apart
    """
    lines = []
    if pairs := inseparable(unmixing):
        named = ", ".join(f"{i + 1} and {j + 1}" for i, j in pairs[:5])
        suffix = f" and {len(pairs) - 5} pairs more" if len(pairs) > 5 else ""
        lines.append(
            f"note: components {named}{suffix} are near Gaussian: ICA cannot separate "
            "them, because any rotation of the pair fits as well"
        )
    stability = unmixing.stability
    if np.isfinite(stability).all():
        least, repeats = int(stability.argmin()), "draws"
        if unmixing.n_rounds:
            repeats = "runs"
        lines.append(
            f"stability over {repeats}: median {np.median(stability):.2f}, least "
            f"{stability[least]:.2f} (component {least + 1})"
        )
    return lines


def ending(trace: np.ndarray, noise: list[float]) -> str:
    """Whether more rounds would have helped, from the released gradient.

    Row: none, compares two released numbers
    """
    last, alone = float(np.median(trace[-3:])), float(np.median(noise[-3:]))
    start = f"the gradient of the last rounds ({last:.2g}) is "
    if last <= 1.5 * alone:
        return start + (
            f"about what noise alone gives ({alone:.2g}): more rounds would not help, "
            "more people or a larger epsilon would"
        )
    return start + (
        f"above what noise alone gives ({alone:.2g}): more rounds (ica.n_rounds) may "
        "still improve the components, at more noise in each"
    )


def correlation_lines(directions: CanonicalDirections) -> list[str]:
    """Statements on canonical correlations, one line each.

    Row: pair-told, chance-level, pair-correlation
    """
    pairs, (p, q) = verdicts.of_pairs(directions), directions.n_directions
    lines = [
        f"{pairs.exceeds_noise.sum()} of {len(pairs.labels)} pairs are above noise: if "
        "the views had nothing in common, the largest of these correlations would "
        f"exceed {pairs.levels[0]:.2f} in one study of twenty"
    ]
    if pairs.exceeds_noise.any() and directions.noise_deviation:
        numbers = [(i, pairs.intervals[i]) for i in np.flatnonzero(pairs.exceeds_noise)]
        intervals = ", ".join(
            f"{r:.2f} ({low:.2f} to {high:.2f}) of pair {i + 1}"
            for i, (r, low, high) in numbers
        )
        lines.append(
            f"in people like these the variates correlate at {intervals}; 95% "
            "intervals for noise, sampling"
            + (
                " and the shrinkage by clipping"
                if directions.clip_weight < ALIKE
                else ""
            )
        )
    not_estimable = [
        str(i + 1) for i, word in enumerate(pairs.labels) if word == verdict.UNTOLD
    ]
    if not_estimable:
        lines.append(
            f"the correlation of pair {', '.join(not_estimable)} is not estimable: it "
            "is above chance, but the other half of the noise leaves 0 possible"
        )
    lines.append(f"{p} principal directions of fmri and {q} of eeg were kept")
    if directions.clip_weight < ALIKE:
        lines.append(
            f"{_as_counted(directions)}, because of clipping: with equal weights "
            "correlations would be some hundredths larger, which the intervals allow "
            "for, as for normal people"
        )
    return lines + _loose_bounds(directions)


def _loose_bounds(directions: CanonicalDirections) -> list[str]:
    """Norm bounds far above people's norms, by the traces of released moments.

    Row: none, rounds a released number
    """
    spectra = {"fmri": directions.x_spectrum, "eeg": directions.y_spectrum}
    # Views were divided by sqrt(2), too.
    sizes = {view: max(2 * float(v.sum()), 0) ** 0.5 for view, v in spectra.items()}
    return [
        f"people differ from the mean by {size:.2g} of the norm bound of {view} (root "
        "mean square): a bound so much smaller would mean less noise"
        for view, size in sizes.items()
        if size < HALF
    ]


def loose_bound(subspace: Subspace) -> list[str]:
    """A note on a norm bound far above people's norms, by a released second moment.

    Row: none, rounds a released number
    """
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
    """The usual norm at a site beside the public bound; for the site alone.

    Row: none, a site's own number
    """
    usual = float(np.median(medians))
    text = f"The usual norm is {usual:.3g}, {100 * usual / bound:.0f}% of the bound. "
    if usual < HALF * bound:
        return text + (
            "Studies of such data could take a smaller bound, from a public source: "
            "never from these numbers, which are private."
        )
    if usual > bound / HALF:
        return (
            text + "Most of people's features is clipped; check that the unit agrees."
        )
    return text + "The bound fits."


@dataclass(frozen=True)
class _OrderEstimate:
    """Estimates of the model order from a released spectrum.

    Parameters
    ----------
    above_edge, shortest
        Order by the eigenvalues above the edge, and by minimum description length.
    edge
        Largest eigenvalue of noise alone.
    assumes_white
        Whether both rest on measurement noise, which is only assumed to be white.
    """

    above_edge: int
    shortest: int
    edge: float
    assumes_white: bool


def _order(subspace: Subspace) -> _OrderEstimate:
    spectrum, tau, n = subspace.spectrum, subspace.noise_deviation, subspace.n_units
    threshold = model_order.threshold(spectrum, tau, n)
    shortest = model_order.description_length(spectrum, tau, n)
    assumes_white = bool(threshold.level > 0.2 * threshold.edge)
    return _OrderEstimate(threshold.order, shortest, threshold.edge, assumes_white)


def network_lines(network: Network) -> list[str]:
    """Convergence of a network and its calibration, a line each.

    Row: probability, calibration-slope
    """
    first, last = network.trace[[0, -1]] if len(network.trace) else (np.nan, np.nan)
    low, high = network.slope_interval
    return [
        f"{network.n_rounds} rounds; the norm of the released gradient, noise and all, "
        f"was {first:.3g} in the first and {last:.3g} in the last",
        "probabilities are calibrated by released counts: the network's log-odds are "
        f"multiplied by {network.slope:.2f} (95% interval {low:.2f} to {high:.2f})",
    ]


def mixture_line(study: TensorConfig, components: TensorComponents) -> str:
    """Reasons for which a mixture, or topics, do not fit these people; empty: none.

    Row: mixture-told, topic-told

    Empty also if the people may be of one group: noise has such components as well.
    """
    if components.departure <= components.null_departure:
        return ""
    reasons = verdicts.not_mixed(components)
    model = f"a mixture of {study.n_components} round groups does not fit these people"
    if study.counts_words:
        model = f"{study.n_components} topics, one per person, do not fit these people"
    return f"{model}: {'; '.join(reasons)}" if reasons else ""


def tensor_lines(components: TensorComponents) -> list[str]:
    """Shares of people by component, and warnings, one line each.

    Row: mixture-told, topic-told
    """
    w, spectrum = components.weights, components.spectrum
    K, edge = len(w), shrinkage.edge(components.noise_deviations[0], len(spectrum))
    above = int((spectrum[:K] > edge).sum())
    lines = [
        f"shares of people by component: {', '.join(f'{x:.2f}' for x in w)}; they are "
        f"estimated one by one, and add up to {w.sum():.2f}"
    ]
    if above < K:
        lines.append(
            f"note: {above} of {K} directions of the pairs stand above noise alone; "
            "components beyond are indistinguishable from noise"
        )
    # Shares above 1 are impossible: lambda below 1 is noise.
    if (components.eigenvalues < 1).any():
        lines.append(
            "note: a component's strength is below the least possible one; the cause "
            "is noise, or a wrong number of components"
        )
    return lines


def pattern_lines(patterns: Patterns) -> list[str]:
    """Patterns above the noise and their share of variance, one line each.

    Row: pattern-told, pattern-variance
    """
    K, spectrum = len(patterns.shares), patterns.spectrum
    edge = shrinkage.edge(patterns.noise_deviation, len(spectrum))
    above = int((spectrum[:K] > edge).sum())
    value, low, high = patterns.captured
    lines = [
        f"along {above} of {K} directions people vary by more than noise alone would "
        "show; a pattern counts as found where most of it is of the data",
        f"the {K} together explain {value:.0%} ({low:.0%} to {high:.0%}) of the "
        "variance between people"
        if value == value
        else f"the share of the variance between people that the {K} explain is not "
        "estimable",
    ]
    if patterns.clip_weight < 0.95:
        lines.append(
            f"{_as_counted(patterns)}, because people far from the mean are clipped"
        )
    return lines


def _as_counted(
    result: CanonicalDirections | LinearModel | Patterns,
) -> str:
    """How much people count, with its interval: noise alone may leave it below 1.

    Row: clip-weight
    """
    weight, error = result.clip_weight, 1.96 * result.clip_weight_error
    low, high = max(weight - error, 0), min(weight + error, 1)
    text = f"people count {weight:.2f} on average"
    if high - low < 0.005:
        return text
    return f"{text} (95% interval for noise {low:.2f} to {high:.2f})"


def _percent(share: float) -> str:
    """A share in percent; far below 0 the model predicts worse than the mean.

    Row: r2
    """
    return f"{100 * share:.0f}%" if share >= -1 else "less than -100%"


def model_lines(model: LinearModel) -> list[str]:
    """Explained variance, coefficients and warnings of a regression, one line each.

    Row: r2, residual, coefficients, logistic-coefficients
    """
    D = len(model.coefficients)
    estimable = np.isfinite(model.estimates)
    apart = int((model.intervals[estimable].prod(axis=1) > 0).sum())
    of = "target's variance" if model.task == "linear" else "variance of the groups"
    r2, low, high = model.r2
    share = f"the share of the {of} that it explains is not estimable within a half"
    if np.isfinite(r2):
        share = (
            f"explains {100 * r2:.0f}% of the {of} in these people"
            + " as they count" * (model.clip_weight < ALIKE)
            + f" (95% interval {_percent(low)} to {_percent(high)})"
        )
    value, *ends = (f"{x:.3g}" for x in model.residual**0.5)
    spread = f"; standard deviation of the residual {value} ({ends[0]} to {ends[1]})"
    lines = [
        share + spread * (model.task == "linear"),
        f"{apart} of {D} coefficients have a 95% interval without 0"
        + f" (of ridge regression, ridge {model.ridge:.2g})" * (model.ridge > 0),
    ]
    if not estimable.all():
        lines.append(
            f"{D - estimable.sum()} of {D} coefficients cannot be told: their features "
            "vary, beside the others, by less than noise could. More people tell them, "
            "or fewer and less collinear features"
        )
    if model.n_directions < D:
        lines.append(
            f"note: along {D - model.n_directions} of {D} directions the features vary "
            "by less than the noise; coefficients there are close to 0 for any truth"
        )
    if model.clip_weight < ALIKE:
        lines.append(
            f"{_as_counted(model)}, because people far from the middle are clipped. "
            "With equal weights the explained share would be larger, by .02 to .04 at "
            "a weight of .94 and by .05 to .11 at .7, and slopes would be larger, too; "
            "intervals do not include that. "
            "regression.clip: 1 gives equal weights, at twice the noise"
        )
    return lines


def contrast_lines(result: Contrasts) -> list[str]:
    """Precision of each effect, and warnings, one line each.

    Row: effect, effect-told
    """
    lines = []
    for k in np.flatnonzero(~result.is_constant):
        name = result.names[k]
        if not result.is_estimable[k]:
            why = str(result.why_not[k])
            lines.append(f"{name}: cannot be told, since {why}; {REMEDIES[why]}")
            continue
        of_people = np.sqrt(
            np.maximum(result.errors[k] ** 2 - result.noise_errors[k] ** 2, 0)
        )
        text = f"{name}: "
        if result.is_primary[k]:
            n = int(np.sum(result.corrected[k] < LEVEL))
            text += f"{n} of {len(result.effects[k])} outcomes differ, "
            text += "corrected for all of them; "
        times = float(np.median(result.errors[k] / np.maximum(of_people, TINY)))
        if result.noise_deviation:
            text += f"standard errors are {times:.2f} times those of sampling alone"
        if not text.endswith(": "):
            lines.append(text.removesuffix("; "))
    if not result.has_sizes:
        which = "some effects" if result.has_size.any() else "effects"
        lines.append(
            "how far people differ in outcomes is not told well enough above noise, "
            f"so {which} have no size over that; more people tell it"
        )
    if result.clip_weight < SLIGHTLY:
        lines.append(
            f"people with unusual outcomes are shortened (mean weight "
            f"{result.clip_weight:.2f}); if a few people carry an effect, it may be "
            "larger than its interval says"
        )
    return lines


def pilot_forecast(foretold: Foretold) -> str:
    """Forecast of a contrast's pilot for the primary effects, in a line.

    Row: effect-foretold
    """
    if not foretold.is_told.any():
        return "the pilot forecasts that the effect cannot be told"
    return (
        f"the pilot forecasts a standard error of {foretold.error:.2g} deviations of "
        f"an outcome (smallest effect seen {foretold.smallest(LEVEL, POWER):.2g}), "
        f"{foretold.over_sampling:.2g} times that of all data"
    )


# What would tell an effect that cannot be told, by why it cannot.
REMEDIES = {
    COLLINEAR_WITH_OTHERS: "leave out one of them, or ask more people",
    NOISY_MEANS: "more people at each site, or a public table of contrast.means, would "
    "tell it",
    UNPLACED: "narrower public bounds, a public table of contrast.covariance, or more "
    "people would tell it",
    CONSTANT: "more people who differ in it within their site would tell it",
}
