"""Forecast the noise of a study of components, from public numbers alone."""

import json
from collections.abc import Sequence
from dataclasses import replace

from capeneuro.algorithms import forecast_components
from capeneuro.algorithms.stand_ins import (
    N_DRAWS,
    Trial,
    around_prior,
    without_prior,
)
from capeneuro.config.components import ComponentsConfig, Simulation
from capeneuro.config.errors import ConfigError
from capeneuro.data import files, nifti
from capeneuro.privacy.deviations import OF_CLIP
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import sentences
from capeneuro.studies.ask import MOST_KEPT
from capeneuro.studies.flow import MOST_FEATURES, mask_file
from capeneuro.studies.forecasts import Counts, Forecast, require
from capeneuro.studies.gate import (
    LEAST_GAIN,
    NOISE,
    accepted,
    missing_number,
    noise_over_pooled,
)
from capeneuro.studies.priors import open_prior, open_stand_ins
from capeneuro.studies.sites import Sites

# Cubes of a coarse grid, where the study file does not give a grid.
CUBES = 500
# Remedy for a study that starts from a prior.
REMEDY = "More people or a larger epsilon"
# Under private/_aggregator/<study>/: correlations of maps of public stand-in people.
TRIAL = "prior.json"


def forecast(
    study: ComponentsConfig, site_names: Sequence[str], counts: Counts
) -> Forecast:
    """Forecast each stage's noise over its signal, and of maps where they can be.

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
    trial = None
    if study.has_prior:
        by_volume = study.budget.unit == "sample"
        require(counts, "people", *["volumes"] * by_volume)
        open_prior(study)  # refuses a file that does not fit this study
        trial = tried(study, site_names, _n_units(study, counts))
        if trial is None or trial.has_prior:
            return _forecast_with_prior(study, site_names, counts, trial)
    design, ratios = _design(study, site_names, counts), {}
    ratio = forecast_components.predict_subspace(design, study.own_promise).ratio
    ratios["PCA"] = ratio / forecast_components.MOST_NOISE
    if "ica" in study.n_releases:
        ratios["ICA"] = forecast_components.predict_ica(design, study.own_promise)
    is_refused = max(ratios.values()) > 1 and NOISE not in accepted(study)
    if trial is None and not is_refused:
        trial = tried(study, site_names, _n_units(study, counts))

    def show() -> None:
        if design.n_iterations:
            _print_routes(study, design)
        _print_noise(study, design)
        if study.pca.method == "moment" and design.n_features <= MOST_KEPT:
            print(
                "The released second moment stays with the results: other numbers of "
                "components, correlations\nof features, partial ones, and unions of "
                "parcels can be asked of it afterwards, at no cost: capeneuro ask"
            )
        if trial is not None and trial.public is not None:
            print(f"\nthe prior is not used: {_gain(trial)}")

    remedy = "More people, a larger epsilon, fewer features or clips as `plan` shows"
    adds = None if study.has_prior else _adds(trial)
    D = design.n_features
    return Forecast(ratios, remedy, show, adds, _in_short(study, trial), D)


def _n_units(study: ComponentsConfig, counts: Counts) -> int:
    """Units behind a release: people, or their volumes."""
    by_volume = study.budget.unit == "sample"
    return counts.people * ((counts.volumes or 1) if by_volume else 1)


def _in_short(study: ComponentsConfig, trial: Trial | None) -> str:
    """The choice of a prior, and the forecast of maps, where there are any."""
    words = [sentences.prior_choice(trial)] if study.has_prior else []
    words += [sentences.forecast_of_maps(trial)] if trial else []
    return "; ".join(words)


def tried(study: ComponentsConfig, site_names: Sequence[str], n: int) -> Trial | None:
    """Try a study on public stand-in people; kept in a file, since it takes time.

    Parameters
    ----------
    study, site_names
        The study, and the names of its sites.
    n
        Units of all sites: people, or their volumes.

    Returns
    -------
    Trial or None
        None without a public file of stand-in people; and with temporal ICA, power
        iteration or a released mean, which are not simulated.
    """
    has_one_release = sum(study.n_releases.values()) == 1
    is_simple = has_one_release and study.pca.method == "moment"
    if study.prior is None or not is_simple or mask_file(study) is None:
        return None
    stand_ins = open_stand_ins(study)
    if stand_ins is None or (study.has_prior and stand_ins.prior is None):
        return None
    prior, C, digest = stand_ins
    K, clip, unit = study.n_components, study.pca.clip, study.budget.unit
    noise = _noise(study, site_names, n, "second_moment", clip)
    noise_around = noise_of_prior(study, site_names, n)
    n_people = noise_over_pooled(study, site_names, n).n_people
    numbers = noise, noise_around, n_people, unit, K, clip, study.pca.norm_bound
    key = f"{digest} {numbers} {study.has_prior} {study.space}"
    path = study.private("_aggregator") / TRIAL
    record = json.loads(path.read_text()) if path.is_file() else {}
    if record.get("of") != key:
        trial = Trial(without_prior(C, K, noise, clip, unit))
        if prior is not None:
            n_draws = N_DRAWS if study.has_prior else 0
            around, public = around_prior(
                prior, C, K, noise_around, unit, n_people, n_draws
            )
            trial = Trial(trial.without, around or None, public)
        record = {"of": key, **trial._asdict()}
        files.write_json(path, record)
    return Trial(*(record[name] for name in Trial._fields))


def _adds(trial: Trial | None) -> float | None:
    """Correlation that private data add to the prior's own maps."""
    if trial is None or trial.public is None:
        return None
    return trial.forecast[0] - trial.public


def _gain(trial: Trial) -> str:
    """Correlations of public maps and of those with private data, in words."""
    adds = _adds(trial)
    gain = "adds nothing measurable" if adds < LEAST_GAIN else f"+{adds:.2f}"
    return (
        f"public maps, epsilon 0: r = {trial.public:.2f}; with private data: "
        f"{trial.forecast[0]:.2f} ({gain})"
    )


def noise_of_prior(study: ComponentsConfig, site_names: Sequence[str], n: int) -> float:
    """Deviation of the noise of n units' deviation from a prior, over their clip."""
    people = study.budget.unit == "subject"
    query = "deviation" if people else "white_second_moment"
    return _noise(study, site_names, n, query, 1.0) / (OF_CLIP if people else 1.0)


def _noise(
    study: ComponentsConfig, site_names: Sequence[str], n: int, query: str, clip: float
) -> float:
    """Deviation of the noise of PCA's one release, of n units."""
    arm = noise_over_pooled(study, site_names, n)
    relation = study.own_promise.relation
    t = QUERIES[query].sensitivity(arm.n_people, relation, {"clip": clip})
    return arm.over_pooled * t / (study.own_promise.mu * study.shares["pca"] ** 0.5)


def _forecast_with_prior(
    study: ComponentsConfig,
    site_names: Sequence[str],
    counts: Counts,
    trial: Trial | None,
) -> Forecast:
    """Forecast a study around its prior, by stand-in people if there are any."""
    ratios = {}
    if "ica" in study.n_releases:
        design = _design(study, site_names, counts)
        ratios["ICA"] = forecast_components.predict_ica(design, study.own_promise)

    def show() -> None:
        if trial is not None:
            print(f"\non public stand-in people: {_gain(trial)}")

    return Forecast(ratios, REMEDY, show, _adds(trial), _in_short(study, trial))


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


def _print_noise(study: ComponentsConfig, design: forecast_components.Design) -> None:
    """Print the noise of each stage as planned, and at other numbers."""
    has_ica = "ica" in study.n_releases
    if has_ica and study.ica.update != "orthogonal":
        print(
            "note: the noise of ICA is forecast for ica.update orthogonal; others more"
        )
    head = "PCA noise" + "  ICA noise" * has_ica
    print(f"\n{'Noise at other numbers':40} {head}")
    rows = forecast_components.alternatives(design, study.own_promise)
    for name, changed, promise in rows:
        ratio = forecast_components.predict_subspace(changed, promise).ratio
        cells = f"{ratio:<9.3g}"
        if has_ica:
            cells += f"  {forecast_components.predict_ica(changed, promise):<9.3g}"
        print(f"{name:40} {cells}")
    most = f"{forecast_components.MOST_NOISE:g}"
    print(
        f"\nNoise is over the stage's signal; a study above {most} of PCA"
        + " or 1 of ICA" * has_ica
        + " is refused."
    )
    _print_norm_bound(study, design)


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
