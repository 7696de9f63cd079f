"""`capeneuro plan`: what a study will spend, and what that will buy."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from capeneuro.algorithms import prediction
from capeneuro.config.components import ComponentsConfig, Simulation
from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.study import Study
from capeneuro.data import files, nifti, views
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.privacy import accounting, cape
from capeneuro.studies.components import check_features
from capeneuro.studies.flow import MASK, MOST_FEATURES
from capeneuro.studies.sites import Sites, check_ceilings, names

# Cubes of a coarse grid where the study names none.
CUBES = 500


def plan(
    study: ComponentsConfig,
    sites: Sites,
    people: int | None,
    volumes: int | None,
    features: int | None,
    force: bool,
) -> None:
    """Show what a study will spend and what that will buy, before it spends anything.

    Writes the table and a plot of quality against epsilon beside the results; refuses
    a stage whose noise exceeds its signal. What the study file cannot tell (people,
    volumes of one person, features) is asked for; simulated studies tell all.
    """
    spending(study, sites)
    if study.arm == "non-private":
        return
    design = _design(study, sites, people, volumes, features)
    if design is None:
        return
    if design.n_iterations:
        _routes(study, design)
    predict = _quality if "ica" in study.n_releases else _subspace
    ratios = predict(study, design)
    loud = [f"{stage}'s by {ratio:.3g}" for stage, ratio in ratios.items() if ratio > 1]
    if loud and not force:
        raise BudgetExceeded(
            f"study {study.study}: budget.epsilon: noise must not exceed the signal, "
            f"got {' and '.join(loud)} times; more people, fewer features or fair "
            "clips help, or --force"
        )


def plan_fusion(
    study: FusionConfig,
    sites: Sites,
    people: int | None,
    volumes: int | None,
    features: int | None,
    force: bool,
) -> None:
    """Show what a fusion study will spend, and which correlations it can tell.

    ``features`` are those of the fMRI view, where no mask is there yet; ``volumes``
    means nothing here.
    """
    spending(study, sites)
    if study.arm == "non-private":
        return
    if study.data is not None:
        people = people or len(study.sites) * study.data.n_subjects
    mask = None if study.space is None else Path(study.space.mask)
    if features is None and (mask is None or mask.is_file()):
        own = None if mask is None else nifti.read_mask(mask)
        sizes = views.open_views(study, own).sizes
    else:
        sizes = features, views.n_second(study)
    if not known({"--people": people, "--features": sizes[0]}):
        return
    print(
        f"\n{'':40} correlations below   noise over the energy\n"
        f"{'':40} this are lost        of a component"
    )
    rows = {
        "as planned": (people, sizes, study.promise),
        "twice the people": (2 * people, sizes, study.promise),
        "half the features of each view": (
            people,
            (sizes[0] // 2, sizes[1] // 2),
            study.promise,
        ),
        "twice the epsilon": (
            people,
            sizes,
            replace(study.promise, epsilon=2 * study.promise.epsilon),
        ),
    }
    found = {}
    for name, (n, D, promise) in rows.items():
        design = replace(_shape(study, sites, n), n_features=D[0])
        found[name] = prediction.predict_fusion(
            design, promise, D[1], study.fusion.clip
        )
        ratio, level = found[name]
        print(f"{name:40} {min(level, 1):<20.2f} {ratio:.2g}")
    print(
        "\nfor features whose energy is the components', equally strong; an order of "
        "magnitude for others.\nThe noise over the energy grows as the root of the "
        "number of features, not the number\nthat is lost: coarser features help until "
        "it is well below 1"
    )
    ratio, level = found["as planned"]
    if max(ratio, level) > 1 and not force:
        what = (
            f"{ratio:.3g} times the energy of a component"
            if ratio > 1
            else (f"as large as a correlation of {level:.3g}")
        )
        raise BudgetExceeded(
            f"study {study.study}: budget.epsilon: noise must leave correlations to be "
            f"seen, got noise {what}; more people, fewer components, coarser features "
            "or --force"
        )


def _shape(study: FusionConfig, sites: Sites, people: int) -> prediction.Design:
    """What the planner needs of a fusion study, but its features."""
    n_sites, n_units, over = noise_over_pooled(study, sites, people)
    share = study.shares["cca"]
    K = study.n_components
    return prediction.Design(
        n_sites, n_units, 1, K, K, pca_share=share, noise_over_pooled=over
    )


def known(given: dict[str, int | None]) -> bool:
    """Whether all that a prediction needs is given; if not, what is missing is said."""
    for option, value in given.items():
        if value is not None and value < 1:
            raise ConfigError(f"{option}: must be at least 1, got {value}")
    if missing := [option for option, value in given.items() if value is None]:
        print(f"note: give {', '.join(missing)} (as expected) for a prediction")
    return not missing


def spending(study: Study, sites: Sites) -> None:
    """Say what a study promises, what each stage spends, and what sites allow."""
    promise, S = study.promise, len(study.sites)
    print(
        f"promise: epsilon {promise.epsilon:g}, delta {promise.delta:g}, unit "
        f"{promise.unit}, {promise.relation}, {promise.n_colluding} of {S} "
        f"sites colluding; mu {promise.mu:.4f}"
    )
    for name, epsilon in study.budget.site_epsilon.items():
        print(f"{name}: promises epsilon {epsilon:g} instead")
    if n_dropout := promise.n_dropout(S):
        more = (
            (S - promise.n_colluding) / (S - promise.n_colluding - n_dropout)
        ) ** 0.5
        print(f"{n_dropout} of {S} sites may drop out, for {more:.2f} times the noise")
    if promise.n_colluding == 0:
        print("note: no site may pool what it knows with the aggregator")
    for stage, multiplier in study.multipliers.items():
        n = study.n_releases[stage]
        mu = n**0.5 / multiplier
        print(
            f"{stage}: {n} round{'s' * (n > 1)} at noise multiplier {multiplier:.3f}, "
            f"epsilon {accounting.epsilon_from_mu(mu, promise.delta):.3f} alone"
        )
    for name, spent in check_ceilings(study, sites).items():
        print(f"{name}: ceiling {sites[name].epsilon:g}, spent before {spent:.4f}")


def noise_over_pooled(
    study: Study, sites: Sites, people: int
) -> tuple[int, int, float]:
    """Sites and people of a release in the study's arm; its noise over the pooled."""
    S, local = len(study.sites), study.arm == "local"
    factors = [study.mu_factors.get(name, 1.0) for name in names(study, sites)]
    missing = study.n_colluding, S - study.survivor_threshold
    gamma = cape.arm_variances(study.arm, factors, study.noise_ratio, *missing)
    over = float(np.sqrt(gamma[:1].sum() if local else gamma.sum()))
    return (1, max(people // S, 1), over) if local else (S, people, over)


def _routes(study: ComponentsConfig, design: prediction.Design) -> None:
    """Say what power iteration keeps, and what a second moment would keep instead.

    Of the same features while it takes so many, else of cubes.
    """
    promise, D = study.promise, design.n_features
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


def _subspace(study: ComponentsConfig, design: prediction.Design) -> dict[str, float]:
    """Say what is known of a spatial study; PCA's noise over its signal."""
    _, ratio, captured = prediction.predict_subspace(design, study.promise)
    print(
        f"PCA has the whole budget: noise {ratio:.3g} of its signal, energy kept "
        f"{captured:.3f}. The quality of spatial maps is not predicted"
    )
    return {"pca": ratio}


def _quality(study: ComponentsConfig, design: prediction.Design) -> dict[str, float]:
    """Show and write the predicted quality; each stage's noise over its signal."""
    from capeneuro.report import plots

    promise = study.promise
    options = study.ica
    usual = options.update == "orthogonal" and options.start == "varimax"
    if not usual or options.n_runs > 1:
        print(
            "note: predicted for one run, ica.update orthogonal, ica.start varimax;\n"
            "other starts and several runs cost up to 4 times as much, "
            "other updates more"
        )
    rows = prediction.advice(design, promise)
    print(f"\n{'':52} NGI    from    to      PCA noise  ICA noise  energy kept")
    for name, at in rows:
        print(
            f"{name:52} {at.ngi:.3f}  {at.low:.3f}   {at.high:.3f}   "
            f"{at.ratio_pca:<9.3g}  {at.ratio_ica:<9.3g}  {at.captured:.3f}"
        )
    _, at = rows[0]
    print(
        f"\nNGI is 0 if perfect; without privacy {at.ngi_exact:.3f}, by chance "
        f"{at.chance:.3f}. Noise is over the stage's signal: above 1 it is refused.\n"
        f"{prediction.CAVEAT}"
    )
    header = ["design", *vars(at)]
    table = ([name, *(f"{x:.6g}" for x in vars(row).values())] for name, row in rows)
    files.write_table(study.results / "plan.tsv", header, table)
    epsilons = promise.epsilon * np.geomspace(1 / 16, 16, 65)
    curve = [prediction.predict(design, replace(promise, epsilon=e)) for e in epsilons]
    curves = {name: [getattr(c, name) for c in curve] for name in vars(at)}
    figure = plots.quality_against_epsilon(epsilons, curves, promise.epsilon)
    with files.atomic(study.results / "plan.png") as path:
        figure.savefig(path, dpi=150)
    print(f"wrote {study.results}/plan.tsv and plan.png")
    return {"pca": at.ratio_pca, "ica": at.ratio_ica}


def _design(
    study: ComponentsConfig,
    sites: Sites,
    people: int | None,
    volumes: int | None,
    features: int | None,
) -> prediction.Design | None:
    """What the planner needs, from the study file, public files and options."""
    data = study.data if isinstance(study.data, Simulation) else None
    S = len(study.sites)
    if data is not None:
        people, volumes = people or S * data.n_subjects, volumes or data.n_volumes
    masks = [study.results / MASK, Path(study.space.mask)]
    mask = next((path for path in masks if path.is_file()), None)
    edge, n_regions = study.pca.start_grid, None
    if edge is not None and features is not None:
        # Cubes inside the mask; there are more at its rim.
        side = edge / (study.space.grid_size if study.space.basis == "grid" else 1)
        n_regions = max(round(features / side**3), 1)
    elif features is None and mask is not None:
        image = nifti.read_mask(mask)
        features = nifti.build_basis(study.space, image).n_features
        regions = nifti.start_regions(study.space, image, edge)
        n_regions = None if regions is None else int(regions.max()) + 1
    given = {"--people": people, "--volumes": volumes, "--features": features}
    if not known(given):
        return None
    if features < study.n_components:
        raise ConfigError(
            f"--features: must be at least n_components {study.n_components}, got "
            f"{features}"
        )
    check_features(study, features)
    n_sites, people, over = noise_over_pooled(study, sites, people)
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
