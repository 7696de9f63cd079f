"""The steps of a study of components, each from files of the step before to its own.

`prepare` and `reconstruct` are one site's alone; what they compute of a person stays
there, the mean over a site's people, too. The steps over all sites do not care where
the sites work: in this process, or behind a network.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from capeneuro import __version__
from capeneuro.algorithms import metrics, prior_maps
from capeneuro.algorithms.ica import Unmixing, repeated, spatial_components
from capeneuro.algorithms.pca import (
    Subspace,
    power_start,
    power_subspace,
    principal_subspace,
    released_center,
)
from capeneuro.algorithms.prior_fit import PriorFit
from capeneuro.algorithms.verdicts import Verdicts, of_changes, of_components, unmixed
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.load import section
from capeneuro.config.sections import is_cifti
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cleaning, derivatives, files, labels, nifti, survey
from capeneuro.federation.in_process import Federation
from capeneuro.persons.components import RUNS, write_people
from capeneuro.persons.quality import Seen, seen
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores, words
from capeneuro.studies import around_prior
from capeneuro.studies.components_plan import (
    check_features,
    check_told,
    foretell,
    foretold_line,
)
from capeneuro.studies.counts import write_sizes
from capeneuro.studies.flow import (
    MASK,
    VERDICTS,
    Kind,
    check_each,
    folder_of,
    is_exact,
    mask_file,
    mask_path,
    mechanism_of,
    one_site,
    read_released,
    releases_of,
    validated_mask,
    write_released,
    write_verdicts,
)
from capeneuro.studies.plan import FORECAST, gate, plan
from capeneuro.studies.priors import open_prior
from capeneuro.studies.reports import report
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    keep_inventory,
    keep_people,
)

# What is released, under results/<study>/.
SUBSPACE = "group_desc-pca_subspace.npz"
UNMIXING = "group_desc-ica_unmixing.npz"
# Rounds of power iteration without privacy, which stops when it has converged.
MOST_EXACT = 100
# Of whom the clip keeps less is named at the site.
MOSTLY = 0.25
# What `reconstruct` writes at a site.
KEPT = ("timecourses.tsv", "spectra.tsv", "connectivity.tsv", "reconstruction.html")
KEPT += ("dualregression/",)
SITE_KEYS = {
    "validate": ("images", "task"),
    "prepare": ("images", "task", "mask", "repetition_time"),
    "reconstruct": ("images", "task", "repetition_time"),
}
# Of each step the sections of the study file that it depends on.
KEYS = {
    "make_data": ("data", "n_components"),
    "validate": ("space", "n_components", "prior"),
    "prepare": ("space", "cleaning", "n_components"),
    "pca": ("arm", "noise", "budget", "pca", "n_components", "prior"),
    "ica": ("arm", "noise", "budget", "ica", "prior"),
    "reference_pca": ("pca", "n_components"),
    "reference_ica": ("ica",),
    "maps": ("space", "names", "prior"),
    "score": ("score", "prior"),
    "report": (
        *("study", "space", "cleaning", "pca", "score", "names", "prior"),
        *("accept", "source", "governance"),
    ),
}


# --- before anything is computed -----------------------------------------------------


def validate(study: ComponentsConfig, sites: Sites, threads: int = 1) -> None:
    """Check the sites' images and budgets against the study; write the study's mask."""
    check_told(study, sites)
    inventories = {name: derivatives.inventory(site) for name, site in sites.items()}
    public = [None if study.computes_mask else study.space.mask, study.space.basis_file]
    derivatives.check_templates(inventories, public)
    runs = {name: own.people for name, own in inventories.items()}
    if study.computes_mask:
        images = [r for people in runs.values() for own in people.values() for r in own]
        mask = nifti.compute_mask(images)
    else:
        mask = nifti.read_mask(Path(study.space.mask))
    n_features = nifti.build_basis(study.space, mask).n_features
    regions = nifti.start_regions(study.space, mask, study.pca.start_grid)
    check_features(study, n_features, None if regions is None else regions.max() + 1)
    check_ceilings(study, sites)
    kept, tables = {}, {}
    open_all = (
        partial(_keep, study, site, runs[name], mask, kept, tables)
        for name, site in sites.items()
    )
    read_all = partial(_check_people, study, sites, kept, tables, mask, threads)
    try:  # all that is wrong of anybody is told at once
        check_all(chain(open_all, [read_all]))
    except ConfigError as error:
        raise ConfigError(_with_remedy(error, sites, runs)) from None
    lengths = {name: _lengths(rows) for name, rows in tables.items()}
    nifti.write_mask(study.results / MASK, mask)
    if study.prior is not None:
        open_prior(study)
    write_sizes(study, sites, {n: [*own.values()] for n, own in lengths.items()})
    for name, people in kept.items():
        n_runs = sum(len(own) for own in people.values())
        print(f"{name}: {survey.how_many(len(people), n_runs)}")
        keep_inventory(study, name, inventories[name])
        for who, session, task, run, *_, why in tables[name]:
            if why != "n/a":
                print(f"  left out: {who} session {session} {task} run {run}: {why}")
    print(f"{len(sites)} sites, {n_features} features: valid")


def _keep(
    study: ComponentsConfig,
    site: SiteConfig,
    people: dict[str, list[Path]],
    mask: Any,
    kept: dict[str, dict[str, list[Path]]],
    tables: dict[str, list[list[Any]]],
) -> None:
    """Fill in which runs are kept; of those who can be read where some cannot."""
    about = site, study.space, study.cleaning, mask
    kept[site.name], tables[site.name] = {}, []
    try:
        kept[site.name], tables[site.name] = nifti.keep_runs(people, *about)
    except ConfigError:
        for who, own in people.items():
            with suppress(ConfigError):
                alone, rows = nifti.keep_runs({who: own}, *about)
                kept[site.name] |= alone
                tables[site.name] += rows
        raise


def _check_people(
    study: ComponentsConfig,
    sites: Sites,
    kept: dict[str, dict[str, list[Path]]],
    tables: dict[str, list[list[Any]]],
    mask: Any,
    threads: int,
) -> None:
    """Check the images of everybody whose runs are kept."""
    lengths = {name: _lengths(rows) for name, rows in tables.items()}
    everybody = [
        (study, sites[name], own, mask, lengths[name][who])
        for name, people in kept.items()
        for who, own in people.items()
    ]
    check_each(_check_person, everybody, threads)


def _with_remedy(
    error: ConfigError, sites: Sites, runs: dict[str, dict[str, list[Path]]]
) -> str:
    """What is wrong with files, and how sites do without the people whose they are."""
    files = {line.partition(": ")[0] for line in error.each}
    text = str(error)
    for name, people in runs.items():
        bad = [who for who, own in people.items() if files & set(map(str, own))]
        remedy = sites[name].leaving_out(bad)
        if len(bad) == len(error.each) == 1 < len(people):
            text += f"; or do without the person: {remedy}"
        elif 1 < len(bad) < len(people):
            text += (
                f"\nsite {name}: mend these files, or do without {len(bad)} of its "
                f"{len(people)} people: {remedy}"
            )
    return text


def _lengths(rows: list[list[Any]]) -> dict[str, int]:
    """Volumes of each person that are kept, from a table of runs."""
    found: dict[str, int] = {}
    for who, *_, n, _ in rows:
        found[who] = found.get(who, 0) + n
    return found


def _check_person(
    study: ComponentsConfig,
    site: SiteConfig,
    runs: list[Path],
    mask: Any,
    n: int,
) -> None:
    """Refuse what `prepare` would, after hours of other people."""
    if n < study.n_components:
        raise ConfigError(
            f"{runs[0]}: the person has {n} volumes, fewer than n_components "
            f"{study.n_components}; exclude the person"
        )
    about = site, study.space, study.cleaning, mask
    check_all(partial(nifti.check_run, run, *about) for run in runs)


# --- at one site ---------------------------------------------------------------------


def prepare(study: ComponentsConfig, sites: Sites, site: str, threads: int = 1) -> None:
    """Turn one site's images into features; nothing leaves the site.

    ``threads`` people at a time, each in a process of its own.
    """
    from capeneuro.report import plots, slices

    own, bound = one_site(sites, site), study.pca.norm_bound
    mask = nifti.read_mask(validated_mask(study))
    basis = nifti.build_basis(study.space, mask)
    about = own, study.space, study.cleaning, mask
    runs, table = nifti.keep_runs(derivatives.find_runs(own), *about)
    rows: list[dict[str, Any]] = []
    norms: list[np.ndarray] = []

    def person(folder: Path, images: list[Path]) -> tuple[np.ndarray, list[Seen]]:
        os.chdir(folder)  # a worker may have been started elsewhere
        parts, looked = [], []
        for image in images:
            motion = cleaning.motion(image)

            def look(V: np.ndarray, covered: np.ndarray, motion=motion) -> None:
                looked.append(seen(V, covered, motion))

            parts.append(nifti.run_features(image, *about, basis, look))
        return np.concatenate(parts, axis=1), looked

    def people() -> Iterator[tuple[str, np.ndarray]]:
        # In order and as they come: few people are in memory at a time.
        work = Parallel(threads, return_as="generator")
        here = Path.cwd()
        features = work(delayed(person)(here, images) for images in runs.values())
        bar = progress.bar(runs.items(), f"prepare {site}")
        for (name, images), (X, looked) in zip(bar, features, strict=True):
            if X.shape[1] < study.n_components:
                raise ConfigError(
                    f"{images[0]}: {name} has {X.shape[1]} volumes, fewer than "
                    f"n_components {study.n_components}; exclude the person"
                )
            norms.append(np.linalg.norm(X, axis=0))
            rows.append(page.quality(name, X, looked, study))
            rows[-1]["picture"] = None
            if not study.space.has_parcels:
                face = slices.portrait(looked[0].image, mask)
                rows[-1]["picture"] = page.Picture("", face, f"axial plane of {name}")
            yield name, X

    folder = study.private(site)
    files.write_features(folder / "projected.npz", people())
    keep_people(study, own)
    files.write_table(folder / RUNS, nifti.RUNS, table)
    text = page.render_quality(site, rows, plots.norms(norms, bound), study)
    files.write_text(folder / "qc.html", text)
    if far := sum(row["kept"] < MOSTLY for row in rows):
        print(
            f"note: {site}: {survey.how_many(far)} of {len(rows)} far above the norm "
            f"bound; of their second moments pca.clip keeps less than "
            f"{100 * MOSTLY:.0f}%: {folder}/qc.html says who"
        )


def reconstruct(study: ComponentsConfig, sites: Sites, site: str) -> None:
    """Write what one site's people have in the components; it stays at the site."""
    from capeneuro.report import plots

    own, folder = one_site(sites, site), study.private(site)
    mask = nifti.read_mask(validated_mask(study))
    result = files.read_arrays(study.results / UNMIXING)
    runs = [run for each in derivatives.find_runs(own).values() for run in each]
    t_r, why = beside.one_time(runs, own)
    if t_r is None:
        print(f"note: {site}: spectra are in cycles per volume: {why}")
    found = write_people(
        folder,
        result,
        study.pca.norm_bound,
        files.read_arrays(study.results / SUBSPACE)["center"],
        nifti.build_basis(study.space, mask),
        mask,
        t_r,
        progress.named(f"reconstruct {site}"),
    )
    figures = {
        "Mean power spectrum of each component's time courses": plots.power(
            found["frequencies"], found["power"], found["unit"]
        ),
        "Mean functional network connectivity": plots.connectivity(
            found["connectivity"], [own.name for own in _called(study)]
        ),
    }
    pictures = [page.picture(title, figure) for title, figure in figures.items()]
    text = page.template_of("reconstruction.html.jinja").render(
        site=site, n_people=found["n_people"], pictures=pictures, why_no_time=why
    )
    files.write_text(folder / "reconstruction.html", text)


# --- over all sites ------------------------------------------------------------------


def pca(study: ComponentsConfig, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common subspace: capePCA, or the arm of the study."""
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        pca_over(federation, study, sites, reference)


def pca_over(
    federation: Federation,
    study: ComponentsConfig,
    sites: Sites,
    reference: bool = False,
) -> None:
    """Find the common subspace of sites that work anywhere; write it."""
    check, exact = partial(gate, foretell, study, sites), is_exact(study, reference)
    mechanism = mechanism_of(study, "pca", reference, check)
    options, bound = study.pca, study.pca.norm_bound
    center, stages, prior_fit = None, [mechanism], np.zeros(0)
    if study.has_prior and not exact:
        stages = [mechanism_of(study, "check", reference, check), mechanism]
        subspace = around_prior.subspace(federation, stages, study, sites)
        if subspace.posterior.size:
            write_released(study, sites, reference, SUBSPACE, subspace, stages)
            return
        prior_fit = subspace.prior_fit
    power = options.method == "power"
    if power:  # before anything is released: what cannot work shall not be paid for
        mask = nifti.read_mask(mask_file(study))
        n_features = nifti.build_basis(study.space, mask).n_features
        regions = nifti.start_regions(study.space, mask, options.start_grid)
        start = power_start(n_features, study.n_components, regions)
    if options.center:
        stages = [mechanism_of(study, "center", reference, check), mechanism]
        center = released_center(federation, stages[0], bound, options.clip**0.5).value
    about = federation, mechanism, study.n_components, bound, options.clip, center
    if power:
        subspace = power_subspace(
            *about,
            start=start,
            n_iterations=MOST_EXACT if exact else options.n_iterations,
            progress=progress.named(f"pca {mechanism.arm}"),
        )
        if not exact:
            print(words.shares_line(study, subspace))
    else:
        subspace = principal_subspace(*about)
        print(words.order_line(study, subspace))
    subspace = replace(subspace, prior_fit=prior_fit)
    write_released(study, sites, reference, SUBSPACE, subspace, stages)


def ica(study: ComponentsConfig, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common components: capeDJICA, or the arm of the study."""
    subspace = read_subspace(study, reference)
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        ica_over(federation, study, sites, subspace, reference)


def ica_over(
    federation: Federation,
    study: ComponentsConfig,
    sites: Sites,
    subspace: Subspace,
    reference: bool = False,
) -> None:
    """Find the common components of sites that work anywhere; write them."""
    stage = "ica" if "ica" in study.n_releases else "pca"
    check, exact = partial(gate, foretell, study, sites), is_exact(study, reference)
    mechanism = mechanism_of(study, stage, reference, check)
    start: Any = study.ica.start
    if subspace.posterior.size:
        prior, posterior = around_prior.known(study, subspace)
        alone = around_prior.public(study, prior)
        if study.ica.independence == "temporal":
            start = alone.mixing
    if subspace.posterior.size and study.ica.independence == "spatial":
        mechanism.describe(federation)
        bar = progress.named("ica")
        about = prior, posterior, study.n_components, alone
        found = prior_maps.components(*about, progress=bar)
    elif study.ica.independence == "spatial":
        mechanism.describe(federation)  # what kinds of data the subspace came from
        found = spatial_components(subspace, study.ica.max_rounds_exact, study.ica.tol)
    else:
        found = repeated(
            federation,
            mechanism,
            subspace,
            n_runs=1 if exact else study.ica.n_runs,
            n_rounds=study.ica.max_rounds_exact if exact else study.ica.n_rounds,
            clip=study.ica.clip,
            update=study.ica.update,
            start=start,
            sub_gaussian=study.ica.sub_gaussian,
            tol=study.ica.tol,
            progress=progress.named(f"ica {mechanism.arm}"),
        )
        if subspace.posterior.size:
            found = prior_maps.in_order_of(found, alone.mixing)
    for line in words.ica_lines(found):
        print(line)
    write_released(study, sites, reference, UNMIXING, found, [mechanism])


def all_over(federation: Federation, study: ComponentsConfig, sites: Sites) -> None:
    """Run all steps over sites that work anywhere."""
    pca_over(federation, study, sites)
    ica_over(federation, study, sites, read_subspace(study))


def read_subspace(study: ComponentsConfig, reference: bool = False) -> Subspace:
    """Read the subspace that :func:`pca_over` wrote."""
    return read_released(study, SUBSPACE, Subspace, "pca", reference)


def read_unmixing(study: ComponentsConfig) -> Unmixing:
    """Read the unmixing that :func:`ica_over` wrote."""
    return read_released(study, UNMIXING, Unmixing, "ica")


# --- what readers see ----------------------------------------------------------------


def maps(study: ComponentsConfig, sites: Sites) -> None:
    """Write the component maps as NIfTI in the study's space, and their table."""
    mask = nifti.read_mask(validated_mask(study))
    basis = nifti.build_basis(study.space, mask)
    unmixing = files.read_arrays(study.results / UNMIXING)
    about = {
        "Stamp": str(unmixing["stamp"]),
        "Sources": [UNMIXING],
        "capeneuro": {
            "version": __version__,
            "study": study.study,
            "arm": study.arm,
            **vars(study.promise),
        },
    }
    if read_subspace(study).posterior.size:
        about["Order"] = about["Sign"] = "as of the prior's own maps"
    A = unmixing["mixing"] * study.pca.norm_bound
    told = _verdicts(study)
    write_verdicts(study, told)
    options = study.ica.independence, unmixing["stability"], told.words
    options += ([labels.read(atlas, mask) for atlas in study.names],)
    group_maps.write_group(study.results, A, basis, mask, about, *options)


def _verdicts(study: ComponentsConfig) -> Verdicts:
    subspace, unmixing = read_subspace(study), read_unmixing(study)
    if subspace.posterior.size:
        prior, found = around_prior.known(study, subspace)
        alone = around_prior.public(study, prior).unmixing @ prior.directions
        people = subspace.n_units if study.budget.unit == "subject" else 0
        told = of_changes(prior, found, alone, people)
        return _as_rounds_bear(study, told, unmixing)
    n = study.pca.n_iterations if study.pca.method == "power" else 0
    means = [r for r in releases_of(study, SUBSPACE) if r["query"] == "mean"]
    center = max((r["noise_deviation"] or 0.0 for r in means), default=0.0)
    told = of_components(subspace, unmixing, n, center)
    return words.as_tested(study, _as_rounds_bear(study, told, unmixing))


def _as_rounds_bear(
    study: ComponentsConfig, told: Verdicts, unmixing: Unmixing
) -> Verdicts:
    """Verdicts, of which none is told where rounds had more noise than they bear."""
    if study.ica.independence != "temporal":
        return told
    path = study.results / FORECAST
    ratios = json.loads(path.read_text()) if path.is_file() else {}
    return unmixed(told, unmixing, ratios.get("ICA", 0.0) > 1)


def score(study: ComponentsConfig, sites: Sites) -> None:
    """Compare the components with the truth and with a run without privacy."""
    bound = study.pca.norm_bound
    against = _comparisons(study)
    unmixing = files.read_arrays(study.results / UNMIXING)
    whose = {"": unmixing}
    if study.prior is not None and study.arm != "non-private":
        whose["public"] = vars(around_prior.public(study, open_prior(study)[0]))
    rows = [
        row
        for name, A in against.items()
        for who, found in whose.items()
        for row in scores.components(found, A, name, bound, who)
    ]
    if {"truth", "reference"} <= set(against):
        exact = files.read_arrays(folder_of(study, reference=True) / UNMIXING)
        rows += scores.components(exact, against["truth"], "nonprivate_truth", bound)
    scores.write(study.results / "scores.tsv", rows, str(unmixing["stamp"]))


def chapter(
    study: ComponentsConfig, record: dict[str, Any], threads: int = 1
) -> page.Chapter:
    """What the report says of the study: pictures, verdicts and scores."""
    from capeneuro.report import plots, viewer

    folder = study.results
    subspace, unmixing = read_subspace(study), read_unmixing(study)
    R = study.n_components
    noise = [
        r["noise_deviation"] * r["size"] ** 0.5
        for r in releases_of(study, UNMIXING)
        if r["query"] in ("infomax_skew", "infomax_gradient") and r["survivors"]
    ] or [0.0] * len(unmixing.trace)
    figures = {}
    if len(subspace.spectrum) and not subspace.posterior.size:
        edge, caption = words.order_in_words(study, subspace)
        exact = not subspace.noise_deviation
        figures[caption] = plots.spectrum(subspace.spectrum, edge, R, exact)
    if len(unmixing.trace):
        title = "Norm of the released gradient"
        if study.ica.independence == "spatial":
            title = "Norm of the gradient of spatial ICA, at no cost"
        if study.ica.n_runs > 1 and not is_exact(study, reference=False):
            title += f", {study.ica.n_runs} runs one after the other"
        figures[title] = plots.convergence(unmixing.trace, noise)
    for name, A in _comparisons(study).items():
        r = metrics.matched_correlation(unmixing.mixing, A)
        figures[f"Maps matched with the {scores.AGAINST[name]}"] = plots.matching(r)
    found = _added(study, subspace, unmixing, told := _verdicts(study))
    quality = [page.picture(title, figure) for title, figure in figures.items()]
    called = _called(study)
    titles = [
        f"{name}, {own.title}" if own.title else name
        for name, own in zip(told.names, called, strict=True)
    ]
    titles = words.titles(told, titles)
    described = files.read_table(folder / group_maps.TABLE)
    no_place = study.space.has_parcels
    peaks = [None if no_place else tuple(map(float, row[3:6])) for row in described]
    path = folder / group_maps.ZSCORED
    if study.space.has_parcels:
        path = files.of_parcels(path)
    maps = [
        (title, partial(plots.component_map, path, i, title, peaks[i], "z"))
        for i, title in enumerate(titles)
    ]
    pictures = {"found": found, "quality": quality, **page.gallery(told, maps, threads)}
    notes = words.ica_lines(unmixing)
    if not subspace.posterior.size:
        notes += words.loose_bound(subspace)
    if len(unmixing.trace) and max(noise) > 0:
        notes = [*notes, words.ending(unmixing.trace, noise)]
    if subspace.prior_fit.size:
        notes = [words.prior_fit(PriorFit(*subspace.prior_fit), R), *notes]
    if study.pca.method == "power" and not (
        study.has_prior or is_exact(study, reference=False)
    ):
        notes = [words.shares_line(study, subspace), *notes]
    return page.Chapter(
        study,
        "components.html.jinja",
        told,
        files.read_table(folder / "scores.tsv"),
        pictures,
        notes,
        _table(told, described, called, [path, peaks]),
        viewer.viewer(page.told_of(told, maps)),
        page.forecast_of(study),
    )


def _table(
    told: Verdicts,
    described: list[list[str]],
    called: list[group_maps.Name],
    drawn: list[Any],
) -> page.Table:
    """The table of components as the page shows it, with a thumbnail of each."""
    from capeneuro.report import slices

    path, peaks = drawn
    is_mapped = not is_cifti(path)
    columns = {
        "component": "order number, as in the maps",
        "map": "axial plane at the peak",
        "strength": "norm of the map over features, in their unit",
        "share": "of the energy of all maps",
        "peak [mm]": "x, y, z of the largest magnitude as drawn; of a cube or parcel "
        "its middle",
        "stability": "agreement of the component over repeated runs, 1 is perfect; n/a "
        "without repeated runs",
        "verdict": "",
    }
    if not is_mapped:
        del columns["map"]
        of = {"peak [mm]": "peak"}
        columns = {of.get(name, name): text for name, text in columns.items()}
        columns["peak"] = "parcel of the largest magnitude"
    if any(own.measure or own.peak for own in called):
        columns |= {
            "most like": "public region or map, with the overlap: Dice coefficient (of "
            "as many voxels as the region has) or correlation r",
            "peak in": "region of the peak",
        }
    rows, shown = [], words.is_shown(told)
    for i, (number, strength, share, x, y, z, stability, *more) in enumerate(described):
        if not is_mapped:
            row = [f"component {number}", f"{float(strength):.3g}", share, more[-1]]
            rows.append([*row, stability, told.words[i]])
            continue
        alt = f"component {number} at z = {z} mm"
        small = "not drawn"
        if shown[i]:  # else no finding is drawn
            small = page.Picture("", slices.thumbnail(path, i, peaks[i]), alt)
        own, at = called[i], ", ".join(f"{float(v):.0f}" for v in (x, y, z))
        row = [f"component {number}", small, f"{float(strength):.3g}", share, at]
        row += [stability, told.words[i]]
        if len(columns) > len(row):
            like = (
                f"{own.name} ({own.measure} {own.overlap:.2f})" if own.name else "none"
            )
            row += [like, own.peak or "none"]
        rows.append(row)
    return page.Table(columns, rows, group_maps.TABLE)


def _added(
    study: ComponentsConfig, subspace: Subspace, unmixing: Unmixing, told: Verdicts
) -> list[page.Picture]:
    """Picture of how far private data moved public maps, if there was a prior."""
    from capeneuro.report import plots

    if not subspace.posterior.size:
        return []
    public = around_prior.public(study, around_prior.known(study, subspace)[0]).mixing
    R = study.n_components
    r = np.diag(np.corrcoef(unmixing.mixing.T, public.T)[:R, R:])
    title = f"{words.CHANGES} {foretold_line(study)}".strip()
    return [page.picture(title, plots.changes(r, told.above))]


def _called(study: ComponentsConfig) -> list[group_maps.Name]:
    """What each component is like, if the study names atlases or templates."""
    if not study.names:
        return [group_maps.Name("", 0.0, "", "")] * study.n_components
    mask = nifti.read_mask(validated_mask(study))
    known = [labels.read(atlas, mask) for atlas in study.names]
    # Not of the maps' files, which a site need not have.
    A = files.read_arrays(study.results / UNMIXING)["mixing"]
    maps = nifti.build_basis(study.space, mask).synthesis @ A
    return group_maps.named(group_maps.zscore(maps), known)


# --- files, for the workflow ---------------------------------------------------------


def public_files(study: ComponentsConfig) -> list[str]:
    """Public files that define the study's space."""
    given = [] if study.computes_mask else [study.space.mask]
    if study.prior is not None:
        given.append(str(study.prior.file))
    for atlas in study.names:
        given += [str(atlas.file), str(atlas.labels)]
    return [*given, *([str(f)] if (f := study.space.basis_file) else [])]


def released(study: ComponentsConfig) -> list[str]:
    """Files that the steps over all sites write."""
    return [str(study.results / name) for name in (SUBSPACE, UNMIXING)]


def shown(study: ComponentsConfig) -> list[str]:
    """Files of the component maps."""
    names = group_maps.names_of_files(has_parcels=study.space.has_parcels)
    return [str(study.results / name) for name in (*names, VERDICTS)]


def validated(study: ComponentsConfig) -> list[str]:
    """The study's mask."""
    return [str(mask_path(study))]


def depends(study: ComponentsConfig, step: str) -> str:
    """What of the study file a step depends on."""
    cleaning = study.cleaning
    more = {
        # What a run's length depends on, which `validate` counts.
        "validate": [cleaning.scrubs, cleaning.dummy_scans, cleaning.exclude],
        "prepare": study.pca.norm_bound,
        # PCA's share of the budget depends on it.
        "pca": study.ica.independence,
        "reference_pca": study.budget.unit,
    }
    return f"{section(study, *KEYS[step])} {more.get(step, '')}"


def made(study: ComponentsConfig, sites: Sites) -> list[str]:
    """Files that the data makers write last."""
    found = [f"{site.folder}/dataset_description.json" for site in sites.values()]
    last = {"simtb": "truth/desc-truth_components.nii.gz", "painted": "atlas.nii.gz"}
    folder = Path(study.space.mask).parent
    if getattr(study.data, "coupled", None):
        found.append(str(folder / "means.tsv"))
    return [*found, study.space.mask, str(folder / last[study.data.kind])]


def score_inputs(study: ComponentsConfig) -> list[str]:
    """Files that the components are compared with."""
    found = [] if study.score.truth is None else [str(study.score.truth)]
    if study.score.reference:
        found.append(str(folder_of(study, reference=True) / UNMIXING))
    return found


def _comparisons(study: ComponentsConfig) -> dict[str, np.ndarray]:
    """Maps over features that the study's components are compared with."""
    against = {}
    if study.score.truth is not None:
        mask = nifti.read_mask(validated_mask(study))
        basis = nifti.build_basis(study.space, mask)
        against["truth"] = basis.analysis @ nifti.read_maps(study.score.truth, mask)
    if study.score.reference:
        exact = files.read_arrays(folder_of(study, reference=True) / UNMIXING)
        against["reference"] = exact["mixing"] * study.pca.norm_bound
    return against


def inputs(study: ComponentsConfig, site: SiteConfig) -> list[str]:
    """Files of a site that its features depend on."""
    runs = [run for own in derivatives.find_runs(site).values() for run in own]
    return [str(path) for run in runs for path in beside.inputs(run, study.cleaning)]


KIND = Kind(
    name="components",
    steps={
        "validate": validate,
        "plan": partial(plan, foretell),
        "prepare": prepare,
        "pca": pca,
        "ica": ica,
        "maps": maps,
        "reconstruct": reconstruct,
        "score": score,
        "report": report,
    },
    chapter=chapter,
    foretell=foretell,
    over=all_over,
    inputs=inputs,
    public_files=public_files,
    released=released,
    shown=shown,
    kept=KEPT,
    validated=validated,
    stages=(("pca", SUBSPACE), ("ica", UNMIXING)),
    depends=depends,
    site_keys=SITE_KEYS,
    made=made,
    score_inputs=score_inputs,
    runs=derivatives.find_runs,
)
