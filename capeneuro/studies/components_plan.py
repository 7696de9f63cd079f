"""What noise leaves of a study of components: foretold from public numbers alone."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capeneuro.algorithms import prediction, prior_fit
from capeneuro.algorithms.prior_maps import predicted_agreement
from capeneuro.config.components import ComponentsConfig, Simulation
from capeneuro.config.errors import ConfigError
from capeneuro.data import files, nifti
from capeneuro.privacy.deviations import OF_CLIP
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import words
from capeneuro.studies.flow import MOST_FEATURES, mask_file
from capeneuro.studies.forecasts import Counts, Forecast, require
from capeneuro.studies.plan import LEAST_GAIN, must_tell, noise_over_pooled
from capeneuro.studies.priors import open_prior
from capeneuro.studies.sites import Sites

# Cubes of a coarse grid where the study names none.
CUBES = 500
# What helps a study that starts from a prior.
REMEDY = "More people or a larger epsilon"
# A range of agreements so wide says nothing of a new data set.
TELLS_NOTHING = 0.85
# Under private/_aggregator/<study>/: what private data were foretold to add to a prior.
FORETOLD = "prior.json"


def forecast(
    study: ComponentsConfig, everyone: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell the quality of components, and each stage's noise over its signal.

    Parameters
    ----------
    study, everyone
        The study, and the names of its sites.
    counts
        People, volumes of one person, and features; these are counted where the mask
        is there.

    Returns
    -------
    Forecast
        Of PCA, and of ICA where that is paid for.

    Raises
    ------
    Unknown
        If a number is missing.
    """
    if study.has_prior:
        return _forecast_with_prior(study, everyone, counts)
    return forecast_alone(study, everyone, counts)


def forecast_alone(
    study: ComponentsConfig, everyone: Sequence[str], counts: Counts
) -> Forecast:
    """The same as if a prior that the study starts from were not there.

    Parameters
    ----------
    study, everyone, counts
        As of :func:`forecast`.
    """
    design = _design(study, everyone, counts)
    if "ica" in study.n_releases:
        at = prediction.predict(design, study.own_promise)
        bearable = at.ratio_pca / prediction.MOST_NOISE
        ratios = {"PCA": bearable, "ICA": at.ratio_ica}
        agrees = at.agreement
    else:
        ratio = prediction.predict_subspace(design, study.own_promise).ratio
        ratios = {"PCA": ratio / prediction.MOST_NOISE}
        agrees = prediction.agreement("spatial", design.n_components, ratio)

    def show(keep: bool) -> None:
        if design.n_iterations:
            _routes(study, design)
        if "ica" in study.n_releases:
            _quality(study, design, keep)
        else:
            _subspace(study, design)

    remedy = "More people, a larger epsilon, fewer features or clips as `plan` shows"
    drowned = max(ratios.values()) > 1
    said = "" if drowned else _in_short(study, *agrees)
    return _compared(study, design, Forecast(ratios, remedy, show, in_short=said))


def _in_short(study: ComponentsConfig, low: float, middle: float, high: float) -> str:
    """How near maps will come to the pooled ones, as a sentence for anybody."""
    said = (
        "how near the maps come to those of the pooled data cannot be foretold for "
        "data like these, since data sets bear very different noise"
    )
    if high - low < TELLS_NOTHING:
        said = (
            f"maps will agree with those of the pooled data by about {middle:.2f} "
            f"({low:.2f} to {high:.2f}, by data set), where 1 is the same and 0 no "
            "better than chance"
        )
    if isinstance(study.data, Simulation):
        said += "; the simulator's clean maps bore more than all others tried"
    return said


def noise_of_prior(study: ComponentsConfig, everyone: Sequence[str], n: int) -> float:
    """Deviation of the noise of what n units add to a prior, over their clip."""
    people = study.budget.unit == "subject"
    query = "deviation" if people else "white_second_moment"
    return _noise(study, everyone, n, "pca", query, 1.0) / (OF_CLIP if people else 1.0)


def _noise(
    study: ComponentsConfig,
    everyone: Sequence[str],
    n: int,
    stage: str,
    query: str,
    clip: float,
) -> float:
    """Deviation of the noise of one of a stage's releases, of n units."""
    _, n, over = noise_over_pooled(study, everyone, n)
    t = QUERIES[query].sensitivity(n, study.own_promise.relation, {"clip": clip})
    share = study.shares[stage] / study.n_releases[stage]
    return over * t / (study.own_promise.mu * share**0.5)


def least_share(
    study: ComponentsConfig, everyone: Sequence[str], n: int
) -> tuple[float, float]:
    """Foretell from which share of people's energy on a prior is better than none.

    Parameters
    ----------
    study, everyone
        A study with a prior, and the names of its sites.
    n
        Units of all sites: people, or their volumes.

    Returns
    -------
    least : float
        Share along the prior's first directions, as :func:`.least_energy_share`.
    captured : float
        What a study without the prior is foretold to capture.
    """
    prior, _ = open_prior(study)
    K, unit, D = study.n_components, study.budget.unit, len(prior.directions)
    if study.pca.method == "power":
        design = _design(study, everyone, Counts(n, 1, D))
        captured = prediction.predict_subspace(design, study.own_promise).captured
        captured *= prior_fit.largest_share(prior, K)
    else:
        clip = study.pca.clip
        noise = _noise(study, everyone, n, "pca", "second_moment", clip)
        captured = prior_fit.captured_without(prior, K, noise, clip, unit)
    noise = noise_of_prior(study, everyone, n)
    _, n_own, _ = noise_over_pooled(study, everyone, n)
    # The number is released as twice the share.
    check = _noise(study, everyone, n, "check", "prior_energy_share", 1.0) / 2
    about = noise, unit, n_own, captured, check
    return prior_fit.least_energy_share(prior, K, *about), captured


def _forecast_with_prior(
    study: ComponentsConfig, everyone: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell what private data add to a prior, by populations drawn from it."""
    people, by_volume = counts.people, study.budget.unit == "sample"
    require(counts, "people", *["volumes"] * by_volume)
    ratios = {}
    if "ica" in study.n_releases:
        design = _design(study, everyone, counts)
        ratios["ICA"] = prediction.predict(design, study.own_promise).ratio_ica
    # A volume is a unit, of a person several.
    n_units = people * (counts.volumes if by_volume else 1)

    def require_share() -> None:
        least = least_share(study, everyone, n_units)
        print(words.requirement(study.n_components, *least))

    if by_volume:
        open_prior(study)  # refuses what is none of this study

        def say(keep: bool) -> None:
            # Populations that differ as sites do said +.09 to +.23 where 0 came.
            print(
                "\nwhat private data add to a prior is not foretold at the unit of a "
                "volume"
            )
            require_share()

        return Forecast(ratios, REMEDY, say)
    public, private = _known(study, noise_of_prior(study, everyone, people), people)
    # Worth nothing is nothing, however much worse the prior is.
    adds = private - public if private > prediction.NOTHING else 0.0

    def show(keep: bool) -> None:
        print(
            "\nagreement of spatial maps with the pooled ones, of populations that "
            "differ from the prior as\npublic sites do: " + _beside(public, private)
        )
        require_share()

    return Forecast(ratios, REMEDY, show, adds)


def _known(study: ComponentsConfig, noise: float, n: int) -> tuple[float, float]:
    """Agreement of public maps, and of private ones; kept, since it takes a while."""
    prior, digest = open_prior(study)
    path = study.private("_aggregator") / FORETOLD
    about = noise, n, study.budget.unit, study.n_components, study.pca.norm_bound
    key = f"{digest} {about} {study.space}"
    known = json.loads(path.read_text()) if path.is_file() else {}
    if known.get("of") != key:
        about = study.n_components, noise, study.budget.unit, n
        public, private = predicted_agreement(prior, *about)
        known = {"of": key, "public": public, "private": private}
        files.write_json(path, known)
    return known["public"], known["private"]


def foretold_line(study: ComponentsConfig) -> str:
    """What private data were foretold to add to a prior, as a sentence; or nothing."""
    path = study.private("_aggregator") / FORETOLD
    if not path.is_file():
        return ""
    known = json.loads(path.read_text())
    return (
        "Foretold agreement with the pooled maps, as a share of what chance leaves: "
        f"{_beside(known['public'], known['private'])}."
    )


def _beside(public: float, private: float) -> str:
    adds = private - public
    gain = "adds nothing that can be told" if adds < LEAST_GAIN else f"+{adds:.2f}"
    return f"public, epsilon 0: {public:.2f}; with private data: {private:.2f} ({gain})"


def _compared(
    study: ComponentsConfig, design: prediction.Design, found: Forecast
) -> Forecast:
    """The forecast of a study that names a prior for comparison only."""
    if study.prior is None or study.has_prior or mask_file(study) is None:
        return found
    public, _ = _known(study, 0.0, 0)
    kind, R = study.ica.independence, design.n_components
    ratio = prediction.predict_subspace(design, study.own_promise).ratio
    private = prediction.agreement(kind, R, ratio).middle

    def show(keep: bool) -> None:
        found.show(keep)
        print(f"\nbeside the prior, which is not used: {_beside(public, private)}")

    return found._replace(show=show, adds=private - public)


def _routes(study: ComponentsConfig, design: prediction.Design) -> None:
    """Say what power iteration keeps, and what a second moment would keep instead.

    Of the same features while it takes so many, else of cubes.
    """
    promise, D = study.own_promise, design.n_features
    _, ratio, captured = prediction.predict_subspace(design, promise)
    moment, held = replace(design, n_iterations=0), 1.0
    of, instead = f"the same {D}", "method moment"
    if D > MOST_FEATURES:
        cubes = design.n_regions or CUBES
        moment = replace(moment, n_features=cubes, pca_clip=None)
        held = prediction.CUBES_HOLD
        of, instead = f"{cubes} cubes", f"basis grid with some {cubes} cubes"
    _, other, kept = prediction.predict_subspace(moment, promise)
    kept *= held
    what = "raw voxels" if study.space.basis == "voxels" else f"{D} features"
    print(
        f"\n{what} in {design.n_iterations} rounds: noise {ratio:.3g} of the signal, "
        f"energy kept {captured:.3f}\n"
        f"second moment of {of}: noise {other:.3g}, energy kept {kept:.3f}\n"
        f"better: {what if captured > kept else instead}"
        " (known from simulated whole brains alone)"
    )


def _subspace(study: ComponentsConfig, design: prediction.Design) -> None:
    """Say what is known of a spatial study."""
    _, ratio, captured = prediction.predict_subspace(design, study.own_promise)
    agrees = _range(*prediction.agreement("spatial", design.n_components, ratio))
    print(
        f"PCA has the whole budget: noise {ratio:.3g} of its signal (above "
        f"{prediction.MOST_NOISE:g} it is refused); it keeps\n{captured:.3f} of the "
        f"pooled subspace's energy. Agreement of maps with the pooled ones: {agrees}"
    )
    _bound(study, design)
    _others(study, design)


def _bound(study: ComponentsConfig, design: prediction.Design) -> None:
    """Say what is assumed of norms, and what a bound twice too large would cost."""
    bound, D = study.pca.norm_bound, design.n_features
    # Half of a norm is a quarter of its second moment: as four times the clip.
    loose = replace(design, pca_clip=4 * study.pca.clip)
    own, more = (
        prediction.predict_subspace(one, study.own_promise).ratio
        for one in (design, loose)
    )
    drowns = ", which drowns the result" if more > prediction.MOST_NOISE else ""
    print(
        "\nThe norm bound. This takes the usual norm of a volume to be pca.norm_bound, "
        f"{bound:g}. If it is half\nof that, the noise of PCA is {more / own:.2g} "
        f"times as much, {more:.3g} of its signal{drowns}. The "
        "usual\nnorm changes with space.basis, space.grid_size and cleaning, and the "
        "bound has to change with it"
    )
    if study.cleaning.standardize == "zscore":
        print(f"(of {D} features of variance 1 it is {D**0.5:.3g}, the root of {D})")


def _others(study: ComponentsConfig, design: prediction.Design) -> None:
    """Say what other kinds of ICA and numbers of components would give, and why."""
    own, R = study.ica.independence, design.n_components
    rows = prediction.choices(design, study.own_promise, own)
    least, most = (f"{100 * held:.0f}" for held in prediction.HELD)
    print(
        "\nOther choices. Agreement: of maps with those of the pooled run without "
        "privacy, as a share of what\nchance leaves; 1 is the same, 0 no better than a "
        "random turn. First for a data set in the middle, then\nthe range over data "
        f"sets, which held {least} to {most}% of outcomes, give or take 0.03, on five, "
        "each left\nout of its own calibration. `or anything`: the range is nearly all "
        "that there is.\n\n"
        f"{'at this budget':23} agreement              two halves agree without privacy"
    )
    for kind, n, (low, middle, high), halves in rows:
        said = _range(low, middle, high) if high else "refused"
        print(f"{f'{kind}, {n} components':23} {said:22} {max(halves, 0.0):.2f}")
    kind, n, (low, _, high), _ = rows[0]
    print(
        "Halves are of as many volumes of ABIDE, with 5 to 20 components and at most "
        "128 people; beyond\nthat the nearest is shown. What does not replicate "
        "without privacy will not with it."
    )
    if rows[0].expected < prediction.NOTHING:
        print("Of none of these is anything to be expected")
    elif high - low < TELLS_NOTHING:
        print(f"Most is expected of {kind} ICA with {n} components")
    mine = next(row.replicates for row in rows if row[:2] == (own, R))
    if mine < prediction.REPLICATES:
        print(
            f"note: {own} ICA with {R} components hardly replicates there: two halves "
            f"agree by {max(mine, 0.0):.2f} without privacy"
        )


def _quality(study: ComponentsConfig, design: prediction.Design, keep: bool) -> None:
    """Show the predicted quality, and write it."""
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
    rows = prediction.advice(design, promise)
    head = "agreement            PCA noise  ICA noise  energy kept  NGI if simulated"
    print(f"\n{'Noise at other numbers':52} {head}")
    for name, at in rows:
        print(
            f"{name:52} {_range(*at.agreement):19}  "
            f"{at.ratio_pca:<9.3g}  {at.ratio_ica:<9.3g}  {at.captured:<11.3f}  "
            f"{at.ngi:.3f}"
        )
    _, at = rows[0]
    print(
        f"\nNoise is over the stage's signal: above {prediction.MOST_NOISE:g} of PCA "
        "and 1 of ICA it is refused. NGI (0 is\nperfect; without privacy "
        f"{at.ngi_exact:.3f}, by chance {at.chance:.3f}) is of the simulator's "
        "sources, within a factor\nof 2 in 8 of 10 studies; of real data it says "
        f"nothing: ABIDE was predicted {prediction.ABIDE_SAID:g} and\nscored "
        f"{prediction.ABIDE_SCORED:g}."
    )
    _bound(study, design)
    _others(study, design)
    if not keep:
        return
    header = ["design", *vars(at)]
    table = ([name, *(f"{x:.6g}" for x in vars(row).values())] for name, row in rows)
    files.write_table(study.results / "plan.tsv", header, table)
    epsilons = promise.epsilon * np.geomspace(1 / 16, 16, 65)
    curve = [prediction.predict(design, replace(promise, epsilon=e)) for e in epsilons]
    curves = {name: [getattr(c, name) for c in curve] for name in vars(at)}
    drowned = [c.ratio_pca > prediction.MOST_NOISE or c.ratio_ica > 1 for c in curve]
    figure = plots.quality_against_epsilon(epsilons, curves, promise.epsilon, drowned)
    with files.atomic(study.results / "plan.png") as path:
        figure.savefig(path, dpi=150)
    print(f"wrote {study.results}/plan.tsv and plan.png")


def _range(low: float, middle: float, high: float) -> str:
    """An agreement, its middle first."""
    if high - low >= TELLS_NOTHING:
        return f"{middle:.2f}, or anything"
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _design(
    study: ComponentsConfig, everyone: Sequence[str], counts: Counts
) -> prediction.Design:
    """What the planner needs, from the study file, public files and options."""
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
        else:  # the simulator has yet to make it
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
    n_sites, people, over = noise_over_pooled(study, everyone, people)
    return prediction.Design(
        n_sites,
        people,
        volumes,
        features,
        study.n_components,
        study.ica.n_rounds * study.ica.n_runs,
        study.budget.pca_share if "ica" in study.n_releases else 1.0,
        study.ica.clip,
        study.pca.clip,
        over,
        study.n_releases["pca"] if study.pca.method == "power" else 0,
        n_regions,
    )


def check_told(study: ComponentsConfig, sites: Sites) -> None:
    """Refuse a study that no forecast can be made for, before anything is read."""
    is_private = any(site.data == "private" for site in sites.values())
    secret = is_private and study.budget.unit == "subject" and "ica" in study.n_releases
    if secret and study.arm != "non-private" and study.expected.volumes is None:
        raise must_tell(study, "volumes")


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
