"""Forecast the noise of a study of components, from public numbers alone."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capeneuro.algorithms import forecast_components, prior_fit
from capeneuro.algorithms.prior_maps import predicted_agreement
from capeneuro.config.components import ComponentsConfig, Simulation
from capeneuro.config.errors import ConfigError
from capeneuro.data import files, nifti
from capeneuro.privacy.deviations import OF_CLIP
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import sentences
from capeneuro.studies.ask import MOST_KEPT
from capeneuro.studies.flow import MOST_FEATURES, mask_file
from capeneuro.studies.forecasts import Counts, Forecast, require
from capeneuro.studies.gate import LEAST_GAIN, missing_number, noise_over_pooled
from capeneuro.studies.priors import open_prior
from capeneuro.studies.sites import Sites

# Cubes of a coarse grid, where the study file does not give a grid.
CUBES = 500
# Remedy for a study that starts from a prior.
REMEDY = "More people or a larger epsilon"
# From this width on a range of agreements predicts nothing for a new data set.
TOO_WIDE = 0.85
# Under private/_aggregator/<study>/: agreement of a prior's maps without and with data.
PRIOR_FORECAST = "prior.json"


def forecast(
    study: ComponentsConfig, site_names: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell the quality of components, and each stage's noise over its signal.

    Parameters
    ----------
    study, site_names
        The study, and the names of its sites.
    counts
        People, volumes of one person, and features, which are counted where there is
        a mask.

    Returns
    -------
    Forecast
        Of PCA, and of ICA where it has releases.

    Raises
    ------
    Unknown
        If a number is missing.
    """
    if study.has_prior:
        return _forecast_with_prior(study, site_names, counts)
    return forecast_without_prior(study, site_names, counts)


def forecast_without_prior(
    study: ComponentsConfig, site_names: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell the same for the study without its prior.

    Parameters
    ----------
    study, site_names, counts
        As of :func:`forecast`.
    """
    design = _design(study, site_names, counts)
    if "ica" in study.n_releases:
        predicted = forecast_components.predict(design, study.own_promise)
        bearable = predicted.ratio_pca / forecast_components.MOST_NOISE
        ratios = {"PCA": bearable, "ICA": predicted.ratio_ica}
        agreement = predicted.agreement
    else:
        ratio = forecast_components.predict_subspace(design, study.own_promise).ratio
        ratios = {"PCA": ratio / forecast_components.MOST_NOISE}
        agreement = forecast_components.agreement("spatial", design.n_components, ratio)

    def show(keep: bool) -> None:
        if design.n_iterations:
            _print_routes(study, design)
        if "ica" in study.n_releases:
            _print_quality(study, design, keep)
        else:
            _print_subspace(study, design)
        if study.pca.method == "moment" and design.n_features <= MOST_KEPT:
            print(
                "The released second moment stays with the results: other numbers of "
                "components, correlations\nof features, partial ones, and unions of "
                "parcels can be asked of it afterwards, at no cost: capeneuro ask"
            )

    remedy = "More people, a larger epsilon, fewer features or clips as `plan` shows"
    is_drowned = max(ratios.values()) > 1
    in_short = "" if is_drowned else _agreement_sentence(study, agreement)
    D = design.n_features
    alone = Forecast(ratios, remedy, show, in_short=in_short, n_features=D)
    return _compared(study, design, alone)


def _agreement_sentence(
    study: ComponentsConfig, agreement: forecast_components.Agreement
) -> str:
    """Agreement of maps with the pooled ones, as a sentence for anybody."""
    low, middle, high = agreement
    if high - low >= TOO_WIDE:
        return (
            "how near the maps come to those of the pooled data cannot be foretold for "
            "data like these, since data sets bear very different noise"
        )
    is_made = isinstance(study.data, Simulation)
    return (
        f"maps {'of real data would' if is_made else 'will'} agree with those of the "
        f"pooled data by about {middle:.2f} ({low:.2f} to {high:.2f}, by data set), "
        "where 1 is the same and 0 no better than chance"
        + "; the simulator's are cleaner, and agree by more"
        * is_made
    )


def noise_of_prior(study: ComponentsConfig, site_names: Sequence[str], n: int) -> float:
    """Deviation of the noise of n units' deviation from a prior, over their clip."""
    people = study.budget.unit == "subject"
    query = "deviation" if people else "white_second_moment"
    return _noise(study, site_names, n, "pca", query, 1.0) / (
        OF_CLIP if people else 1.0
    )


def _noise(
    study: ComponentsConfig,
    site_names: Sequence[str],
    n: int,
    stage: str,
    query: str,
    clip: float,
) -> float:
    """Deviation of the noise of one of a stage's releases, of n units."""
    arm = noise_over_pooled(study, site_names, n)
    relation = study.own_promise.relation
    t = QUERIES[query].sensitivity(arm.n_people, relation, {"clip": clip})
    share = study.shares[stage] / study.n_releases[stage]
    return arm.over_pooled * t / (study.own_promise.mu * share**0.5)


def least_share(
    study: ComponentsConfig, site_names: Sequence[str], n: int
) -> tuple[float, float]:
    """Foretell the least share of energy with which a prior is better than none.

    Parameters
    ----------
    study, site_names
        A study with a prior, and the names of its sites.
    n
        Units of all sites: people, or their volumes.

    Returns
    -------
    least : float
        Share along the prior's first directions, as :func:`.least_energy_share`.
    captured : float
        Share of energy that a study without the prior is foretold to capture.
    """
    prior, _ = open_prior(study)
    K, unit, D = study.n_components, study.budget.unit, len(prior.directions)
    if study.pca.method == "power":
        design = _design(study, site_names, Counts(n, 1, D))
        captured = forecast_components.predict_subspace(
            design, study.own_promise
        ).captured
        captured *= prior_fit.largest_share(prior, K)
    else:
        clip = study.pca.clip
        noise = _noise(study, site_names, n, "pca", "second_moment", clip)
        captured = prior_fit.captured_without(prior, K, noise, clip, unit)
    noise = noise_of_prior(study, site_names, n)
    n_people = noise_over_pooled(study, site_names, n).n_people
    # The number is released as twice the share.
    check = _noise(study, site_names, n, "check", "prior_energy_share", 1.0) / 2
    least = prior_fit.least_energy_share(
        prior, K, noise, unit, n_people, captured, check
    )
    return least, captured


def _forecast_with_prior(
    study: ComponentsConfig, site_names: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell how private data improve a prior's maps, by simulated populations."""
    people, by_volume = counts.people, study.budget.unit == "sample"
    require(counts, "people", *["volumes"] * by_volume)
    ratios = {}
    if "ica" in study.n_releases:
        design = _design(study, site_names, counts)
        ratios["ICA"] = forecast_components.predict(design, study.own_promise).ratio_ica
    # A volume is a unit, of a person several.
    n_units = people * (counts.volumes if by_volume else 1)

    def require_share() -> None:
        least, captured = least_share(study, site_names, n_units)
        print(sentences.requirement(study.n_components, least, captured))

    if by_volume:
        open_prior(study)  # refuses a file that does not fit this study

        def show_share(keep: bool) -> None:
            # Simulated populations gave +.09 to +.23 where data added 0.
            print(
                "\nwhat private data add to a prior is not foretold at the unit of a "
                "volume"
            )
            require_share()

        return Forecast(ratios, REMEDY, show_share)
    noise = noise_of_prior(study, site_names, people)
    public, private = _prior_agreement(study, noise, people)
    # Maps without any agreement add nothing, however much worse the prior is.
    adds = private - public if private > forecast_components.NOTHING else 0.0

    def show(keep: bool) -> None:
        print(
            "\nagreement of spatial maps with the pooled ones, of populations that "
            "differ from the prior as\npublic sites do: " + _gain_text(public, private)
        )
        require_share()

    return Forecast(ratios, REMEDY, show, adds)


def _prior_agreement(
    study: ComponentsConfig, noise: float, n: int
) -> tuple[float, float]:
    """Agreement of public maps, and of private ones; in a file, since it takes time."""
    prior, digest = open_prior(study)
    path = study.private("_aggregator") / PRIOR_FORECAST
    unit, K = study.budget.unit, study.n_components
    key = f"{digest} {(noise, n, unit, K, study.pca.norm_bound)} {study.space}"
    agreement = json.loads(path.read_text()) if path.is_file() else {}
    if agreement.get("of") != key:
        public, private = predicted_agreement(prior, K, noise, unit, n)
        agreement = {"of": key, "public": public, "private": private}
        files.write_json(path, agreement)
    return agreement["public"], agreement["private"]


def prior_forecast_line(study: ComponentsConfig) -> str:
    """Forecast of a prior's maps without and with private data; empty: none."""
    path = study.private("_aggregator") / PRIOR_FORECAST
    if not path.is_file():
        return ""
    agreement = json.loads(path.read_text())
    gain = _gain_text(agreement["public"], agreement["private"])
    return (
        "Foretold agreement with the pooled maps, as a share of what chance leaves: "
        f"{gain}."
    )


def _gain_text(public: float, private: float) -> str:
    adds = private - public
    gain = "adds nothing measurable" if adds < LEAST_GAIN else f"+{adds:.2f}"
    return f"public, epsilon 0: {public:.2f}; with private data: {private:.2f} ({gain})"


def _compared(
    study: ComponentsConfig, design: forecast_components.Design, alone: Forecast
) -> Forecast:
    """Compare a forecast with a prior that the study names but does not use."""
    if study.prior is None or study.has_prior or mask_file(study) is None:
        return alone
    public, _ = _prior_agreement(study, 0.0, 0)
    kind, R = study.ica.independence, design.n_components
    ratio = forecast_components.predict_subspace(design, study.own_promise).ratio
    private = forecast_components.agreement(kind, R, ratio).middle

    def show(keep: bool) -> None:
        alone.show(keep)
        print(f"\nbeside the prior, which is not used: {_gain_text(public, private)}")

    return alone._replace(show=show, adds=private - public)


def _print_routes(study: ComponentsConfig, design: forecast_components.Design) -> None:
    """Print noise and energy of power iteration, beside those of a second moment.

    The latter of the same features, or of cubes where they are too many.
    """
    promise, D = study.own_promise, design.n_features
    _, ratio, captured = forecast_components.predict_subspace(design, promise)
    moment, cube_share = replace(design, n_iterations=0), 1.0
    of, instead = f"the same {D}", "method moment"
    if D > MOST_FEATURES:
        cubes = design.n_regions or CUBES
        moment = replace(moment, n_features=cubes, pca_clip=None)
        cube_share = forecast_components.CUBES_HOLD
        of, instead = f"{cubes} cubes", f"basis grid with some {cubes} cubes"
    _, coarse, coarse_captured = forecast_components.predict_subspace(moment, promise)
    coarse_captured *= cube_share
    features = "raw voxels" if study.space.basis == "voxels" else f"{D} features"
    print(
        f"\n{features} in {design.n_iterations} rounds: noise {ratio:.3g} of the "
        f"signal, energy kept {captured:.3f}\n"
        f"second moment of {of}: noise {coarse:.3g}, energy kept "
        f"{coarse_captured:.3f}\n"
        f"better: {features if captured > coarse_captured else instead}"
        " (known from simulated whole brains alone)"
    )


def _print_subspace(
    study: ComponentsConfig, design: forecast_components.Design
) -> None:
    """Print the predicted quality of a study of spatial ICA."""
    _, ratio, captured = forecast_components.predict_subspace(design, study.own_promise)
    agreement = forecast_components.agreement("spatial", design.n_components, ratio)
    print(
        f"PCA has the whole budget: noise {ratio:.3g} of its signal (above "
        f"{forecast_components.MOST_NOISE:g} it is refused); it keeps\n{captured:.3f} "
        "of the "
        f"pooled subspace's energy. Agreement of maps with the pooled ones: "
        f"{_range(agreement)}"
    )
    _print_norm_bound(study, design)
    _print_alternatives(study, design)


def _print_norm_bound(
    study: ComponentsConfig, design: forecast_components.Design
) -> None:
    """Print the noise of PCA if the norm bound were twice too large."""
    bound, D = study.pca.norm_bound, design.n_features
    # Half of a norm is a quarter of its second moment: as four times the clip.
    loose = replace(design, pca_clip=4 * study.pca.clip)
    usual, ratio = (
        forecast_components.predict_subspace(bounded, study.own_promise).ratio
        for bounded in (design, loose)
    )
    drowns = (
        ", which drowns the result" if ratio > forecast_components.MOST_NOISE else ""
    )
    print(
        "\nThe norm bound. This takes the usual norm of a volume to be pca.norm_bound, "
        f"{bound:g}. If it is half\nof that, the noise of PCA is {ratio / usual:.2g} "
        f"times as much, {ratio:.3g} of its signal{drowns}. The "
        "usual\nnorm changes with space.basis, space.grid_size and cleaning, and the "
        "bound has to change with it"
    )
    if study.cleaning.standardize == "zscore":
        print(f"(of {D} features of variance 1 it is {D**0.5:.3g}, the root of {D})")


def _print_alternatives(
    study: ComponentsConfig, design: forecast_components.Design
) -> None:
    """Print agreement of maps for other kinds of ICA and numbers of components."""
    kind_of_ica, R = study.ica.independence, design.n_components
    rows = forecast_components.choices(design, study.own_promise, kind_of_ica)
    least, most = (f"{100 * coverage:.0f}" for coverage in forecast_components.HELD)
    print(
        "\nOther choices. Agreement: of maps with those of the pooled run without "
        "privacy, as a share of what\nchance leaves; 1 is the same, 0 no better than a "
        "random turn. First for a data set in the middle, then\nthe range over data "
        f"sets, which held {least} to {most}% of outcomes, give or take 0.03, on five, "
        "each left\nout of its own calibration. `or anything`: the range is nearly all "
        "that there is.\n\n"
        f"{'at this budget':23} agreement              two halves agree without privacy"
    )
    for kind, n, agreement, halves in rows:
        text = _range(agreement) if agreement.high else "refused"
        print(f"{f'{kind}, {n} components':23} {text:22} {max(halves, 0.0):.2f}")
    kind, n, (low, _, high), _ = rows[0]
    print(
        "Halves are of as many volumes of ABIDE, with 5 to 20 components and at most "
        "128 people; beyond\nthat the nearest is shown. What does not replicate "
        "without privacy will not with it."
    )
    if rows[0].expected < forecast_components.NOTHING:
        print("Of none of these is anything to be expected")
    elif high - low < TOO_WIDE:
        print(f"Most is expected of {kind} ICA with {n} components")
    replicates = next(row.replicates for row in rows if row[:2] == (kind_of_ica, R))
    if replicates < forecast_components.REPLICATES:
        print(
            f"note: {kind_of_ica} ICA with {R} components hardly replicates there: two "
            f"halves agree by {max(replicates, 0.0):.2f} without privacy"
        )


def _print_quality(
    study: ComponentsConfig, design: forecast_components.Design, keep: bool
) -> None:
    """Print the predicted quality; with ``keep`` write it, too."""
    from capeneuro.report import plots

    promise = study.own_promise
    options = study.ica
    usual = options.update == "orthogonal" and options.start == "varimax"
    if not usual or options.n_runs > 1:
        print(
            "note: predicted for one run, ica.update orthogonal, ica.start varimax;\n"
            "other starts and several runs cost up to 4 times as much, "
            "other updates more"
        )
    rows = forecast_components.advice(design, promise)
    head = "agreement            PCA noise  ICA noise  energy kept  NGI if simulated"
    print(f"\n{'Noise at other numbers':52} {head}")
    for name, row in rows:
        print(
            f"{name:52} {_range(row.agreement):19}  "
            f"{row.ratio_pca:<9.3g}  {row.ratio_ica:<9.3g}  {row.captured:<11.3f}  "
            f"{row.ngi:.3f}"
        )
    _, planned = rows[0]
    print(
        f"\nNoise is over the stage's signal: above {forecast_components.MOST_NOISE:g} "
        "of PCA "
        "and 1 of ICA it is refused. NGI (0 is\nperfect; without privacy "
        f"{planned.ngi_exact:.3f}, by chance {planned.chance:.3f}) is of the "
        "simulator's sources, within a factor\nof 2 in 8 of 10 studies; of real data "
        f"it says nothing: ABIDE was predicted {forecast_components.ABIDE_SAID:g} "
        "and\nscored "
        f"{forecast_components.ABIDE_SCORED:g}."
    )
    _print_norm_bound(study, design)
    _print_alternatives(study, design)
    if not keep:
        return
    header = ["design", *vars(planned)]
    table = ([name, *(f"{x:.6g}" for x in vars(row).values())] for name, row in rows)
    files.write_table(study.results / "plan.tsv", header, table)
    epsilons = promise.epsilon * np.geomspace(1 / 16, 16, 65)
    curve = [
        forecast_components.predict(design, replace(promise, epsilon=e))
        for e in epsilons
    ]
    curves = {name: [getattr(c, name) for c in curve] for name in vars(planned)}
    drowned = [
        c.ratio_pca > forecast_components.MOST_NOISE or c.ratio_ica > 1 for c in curve
    ]
    figure = plots.quality_against_epsilon(epsilons, curves, promise.epsilon, drowned)
    with files.atomic(study.results / "plan.png") as path:
        figure.savefig(path, dpi=150)
    print(f"wrote {study.results}/plan.tsv and plan.png")


def _range(agreement: forecast_components.Agreement) -> str:
    """An agreement, its middle first, as text."""
    low, middle, high = agreement
    if high - low >= TOO_WIDE:
        return f"{middle:.2f}, or anything"
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _design(
    study: ComponentsConfig, site_names: Sequence[str], counts: Counts
) -> forecast_components.Design:
    """The planner's design, from the study file, public files and options."""
    people, volumes, features = counts
    mask = mask_file(study)
    edge, n_regions = study.pca.start_grid, None
    if edge is not None and features is not None:
        # Cubes inside the mask; there are more at its rim.
        side = edge / (study.space.grid_size if study.space.basis == "grid" else 1)
        n_regions = max(round(features / side**3), 1)
    elif features is None and (mask or isinstance(study.data, Simulation)):
        if mask is not None:
            image = nifti.read_mask(mask)
        else:  # before the simulator has made the mask
            image = nifti.cropped_brain(study.data.voxel_size)
        features = nifti.build_basis(study.space, image).n_features
        regions = nifti.start_regions(study.space, image, edge)
        n_regions = None if regions is None else int(regions.max()) + 1
    require(Counts(people, volumes, features), *Counts._fields)
    if features < study.n_components:
        raise ConfigError(
            f"--features: must be at least n_components {study.n_components}, got "
            f"{features}"
        )
    check_features(study, features)
    arm = noise_over_pooled(study, site_names, people)
    return forecast_components.Design(
        arm.n_sites,
        arm.n_people,
        volumes,
        features,
        study.n_components,
        study.ica.n_rounds * study.ica.n_runs,
        study.budget.pca_share if "ica" in study.n_releases else 1.0,
        study.ica.clip,
        study.pca.clip,
        arm.over_pooled,
        study.n_releases["pca"] if study.pca.method == "power" else 0,
        n_regions,
    )


def check_expected(study: ComponentsConfig, sites: Sites) -> None:
    """Refuse a study without the numbers of a forecast, before anything is read."""
    is_private = any(site.data == "private" for site in sites.values())
    has_ica, unit = "ica" in study.n_releases, study.budget.unit
    is_uncounted = is_private and unit == "subject" and has_ica
    if is_uncounted and study.arm != "non-private" and study.expected.volumes is None:
        raise missing_number(study, "volumes")


def check_features(
    study: ComponentsConfig, n_features: int, n_regions: int | None = None
) -> None:
    """Refuse a basis, or cubes to start from, that PCA cannot find R components in."""
    R, options = study.n_components, study.pca
    if n_features < R:
        raise ConfigError(
            f"study {study.study}: n_components: must be at most the {n_features} "
            f"features of the basis, got {R}"
        )
    if options.method == "moment" and n_features > MOST_FEATURES:
        raise ConfigError(
            f"study {study.study}: pca.method: moment takes at most {MOST_FEATURES} "
            f"features, the basis has {n_features}; use method power or a coarser basis"
        )
    if options.method == "power" and n_regions is not None and n_regions < R:
        raise ConfigError(
            f"study {study.study}: pca.start_grid: cubes of {options.start_grid} "
            f"voxels are only {n_regions}, fewer than n_components {R};"
            " take a smaller edge"
        )
