"""The steps of a study, each from the files of the step before to its own.

What the command line and the workflow call. The steps over all sites do not care where
the sites work: in this process, or behind a network.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from capeneuro import __version__, components, files, io, metrics, scores
from capeneuro import report as page
from capeneuro.config import Config, ConfigError, SiteConfig, Study
from capeneuro.consortium import Sites, check_ceilings, in_process
from capeneuro.federation import Federation
from capeneuro.ica import Unmixing
from capeneuro.ledger import BudgetExceeded, LedgerDamaged, LedgerUnwritable
from capeneuro.mechanism import Mechanism
from capeneuro.pca import (
    Subspace,
    power_start,
    power_subspace,
    principal_subspace,
    released_center,
)
from capeneuro.rounds import Checkpoint, RoundFailed, RoundVoid
from capeneuro.spatial import spatial_components
from capeneuro.stability import repeated

MASK = "group_desc-brain_mask.nii.gz"
SUBSPACE = "group_desc-pca_subspace.npz"
# Features of one second moment: 12.5 million numbers, 100 MB a site.
MOST_FEATURES = 5000
# Rounds of power iteration without privacy, which stops when it has converged.
MOST_EXACT = 100
UNMIXING = "group_desc-ica_unmixing.npz"


# --- before anything is computed -----------------------------------------------------


def validate(study: Config, sites: Sites) -> None:
    """Check the sites' images and budgets against the study; write the study's mask."""
    runs = {name: io.find_runs(site) for name, site in sites.items()}
    images = [run for people in runs.values() for own in people.values() for run in own]
    for run in images:
        io.open_image(run, 4)
    computed = study.space.mask == "computed"
    mask = io.compute_mask(images) if computed else io.read_mask(Path(study.space.mask))
    for run in images:
        io.on_grid(io.open_image(run, 4), mask, study.space.resample)
    n_features = io.build_basis(study.space, mask).n_features
    regions = io.start_regions(study.space, mask, study.pca.start_grid)
    check_features(study, n_features, None if regions is None else regions.max() + 1)
    check_ceilings(study, sites)
    io.write_mask(study.results / MASK, mask)
    for name, people in runs.items():
        n_runs = sum(len(own) for own in people.values())
        print(f"{name}: {len(people)} people, {n_runs} runs")
    print(f"{len(sites)} sites, {n_features} features: valid")


def check_features(
    study: Config, n_features: int, n_regions: int | None = None
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


# --- over all sites ------------------------------------------------------------------


def pca(study: Config, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common subspace: capePCA, or the arm of the study."""
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        pca_over(federation, study, sites, reference)


def pca_over(
    federation: Federation, study: Config, sites: Sites, reference: bool = False
) -> None:
    """Find the common subspace of sites that work anywhere; write it."""
    mechanism, exact = mechanism_of(study, "pca", reference), is_exact(study, reference)
    options, bound = study.pca, study.pca.norm_bound
    clip, center, first = np.inf if exact else options.clip, None, None
    power = options.method == "power"
    if power:  # before anything is released: what cannot work shall not be paid for
        mask = io.read_mask(study.results / MASK)
        n_features = io.build_basis(study.space, mask).n_features
        regions = io.start_regions(study.space, mask, options.start_grid)
        start = power_start(n_features, study.n_components, regions)
    if options.center:
        first = mechanism_of(study, "center", reference)
        center = released_center(federation, first, bound, clip**0.5)
    about = federation, mechanism, study.n_components, bound, clip, center
    if power:
        subspace = power_subspace(
            *about,
            start=start,
            n_iterations=MOST_EXACT if exact else options.n_iterations,
            progress=lambda r: tqdm(r, f"pca {mechanism.arm}", disable=None),
        )
        if not exact:
            print(page.shares_line(study, subspace))
    else:
        subspace = principal_subspace(*about)
        print(page.order_line(study, subspace))
    if first is not None:
        mechanism.releases[:0] = first.releases
    write_released(study, sites, reference, SUBSPACE, subspace, mechanism)


def ica(study: Config, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common components: capeDJICA, or the arm of the study."""
    subspace = read_subspace(study, reference)
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        ica_over(federation, study, sites, subspace, reference)


def ica_over(
    federation: Federation,
    study: Config,
    sites: Sites,
    subspace: Subspace,
    reference: bool = False,
) -> None:
    """Find the common components of sites that work anywhere; write them."""
    stage = "ica" if "ica" in study.n_releases else "pca"
    mechanism, exact = mechanism_of(study, stage, reference), is_exact(study, reference)
    if study.ica.independence == "spatial":
        mechanism.describe(federation)  # what kinds of data the subspace came from
        found = spatial_components(subspace, study.ica.max_rounds_exact, study.ica.tol)
    else:
        found = repeated(
            federation,
            mechanism,
            subspace,
            n_runs=1 if exact else study.ica.n_runs,
            n_rounds=study.ica.max_rounds_exact if exact else study.ica.n_rounds,
            clip=np.inf if exact else study.ica.clip,
            update=study.ica.update,
            start=study.ica.start,
            sub_gaussian=study.ica.sub_gaussian,
            tol=study.ica.tol,
            progress=lambda r: tqdm(r, f"ica {mechanism.arm}", disable=None),
        )
    for line in page.ica_lines(found):
        print(line)
    write_released(study, sites, reference, UNMIXING, found, mechanism)


def all_over(federation: Federation, study: Config, sites: Sites) -> None:
    """Run all steps over sites that work anywhere."""
    pca_over(federation, study, sites)
    ica_over(federation, study, sites, read_subspace(study))


def read_subspace(study: Config, reference: bool = False) -> Subspace:
    """Read the subspace that :func:`pca_over` wrote."""
    arrays = files.read_arrays(folder_of(study, reference) / SUBSPACE)
    return Subspace(
        arrays["eigenvalues"],
        arrays["eigenvectors"],
        float(arrays["norm_bound"]),
        arrays["center"],
        arrays["spectrum"],
        float(arrays["noise_deviation"]),
        int(arrays["n_units"]),
    )


def read_unmixing(study: Config, reference: bool = False) -> Unmixing:
    """Read the unmixing that :func:`ica_over` wrote."""
    arrays = files.read_arrays(folder_of(study, reference) / UNMIXING)
    return Unmixing(**{field.name: arrays[field.name] for field in fields(Unmixing)})


def maps(study: Config, sites: Sites) -> None:
    """Write the component maps as NIfTI in the study's space, and their table."""
    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
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
    A = unmixing["mixing"] * study.pca.norm_bound
    options = study.ica.independence, unmixing["stability"]
    components.write_group(study.results, A, basis, mask, about, *options)


def score(study: Config, sites: Sites) -> None:
    """Compare the components with the truth and with a run without privacy."""
    bound = study.pca.norm_bound
    against = _comparisons(study)
    unmixing = files.read_arrays(study.results / UNMIXING)
    rows = [
        row
        for name, A in against.items()
        for row in scores.components(unmixing, A, name, bound)
    ]
    if {"truth", "reference"} <= set(against):
        exact = files.read_arrays(folder_of(study, reference=True) / UNMIXING)
        rows += scores.components(exact, against["truth"], "nonprivate_truth", bound)
    scores.write(study.results / "scores.tsv", rows, str(unmixing["stamp"]))


def report(study: Config, sites: Sites) -> None:
    """Write the study's report: one page that opens offline."""
    from capeneuro import plots

    folder = study.results
    page.write_beside(study, folder)
    record = json.loads((folder / "privacy.json").read_text())
    subspace, unmixing = read_subspace(study), read_unmixing(study)
    R = study.n_components
    noise = [
        r["noise_deviation"] * r["size"] ** 0.5
        for r in record["releases"]
        if r["query"] in ("infomax_skew", "infomax_gradient") and r["survivors"]
    ] or [0.0] * len(unmixing.trace)
    figures = {}
    if len(subspace.spectrum):
        edge, caption = page.order_in_words(study, subspace)
        figures[caption] = plots.spectrum(subspace.spectrum, edge, R)
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
    quality = [page.picture(title, figure) for title, figure in figures.items()]
    drawn = [
        page.picture(title, plots.component_map(folder / components.ZSCORED, i, title))
        for i in tqdm(range(R), "report", disable=None)
        for title in [f"component {i + 1}"]
    ]
    table = files.read_table(folder / "scores.tsv")
    pictures = {"quality": quality, "maps": drawn}
    notes = page.ica_lines(unmixing)
    if study.pca.method == "power" and not is_exact(study, reference=False):
        notes = [page.shares_line(study, subspace), *notes]
    text = page.render(study, record, table, pictures, notes)
    files.write_text(folder / "report.html", text)
    print(folder / "report.html")


# --- files, for the workflow ---------------------------------------------------------


def public_files(study: Config) -> list[str]:
    """Public files that define the study's space."""
    given = [] if study.computes_mask else [study.space.mask]
    return [*given, *([str(f)] if (f := study.space.basis_file) else [])]


def released(study: Config) -> list[str]:
    """Files that the steps over all sites write."""
    return [str(study.results / name) for name in (SUBSPACE, UNMIXING)]


def shown(study: Config) -> list[str]:
    """Files of the component maps."""
    return [str(study.results / name) for name in components.FILES]


def score_inputs(study: Config) -> list[str]:
    """Files that the components are compared with."""
    found = [] if study.score.truth is None else [str(study.score.truth)]
    if study.score.reference:
        found.append(str(folder_of(study, reference=True) / UNMIXING))
    return found


# --- shared by the steps -------------------------------------------------------------


def outcome(error: Exception) -> tuple[int, list[str]]:
    """Exit status that an error means, and the lines that tell a user why."""
    if isinstance(error, RoundFailed):
        kinds = {why.split(":")[0] for why in error.lost.values()}
        status = 3 if "budget" in kinds else 2 if kinds == {"refused"} else 1
        what = "the round failed"
        if isinstance(error, RoundVoid):
            what = "a charged round is void and the promise pays for no other"
        return status, [f"{what}: {error}"]
    if isinstance(error, BudgetExceeded):
        return 3, [str(error)]
    if isinstance(error, (ConfigError, LedgerDamaged)):
        return 2, str(error).splitlines()
    if isinstance(error, LedgerUnwritable):
        return 1, [str(error)]
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return 1, [f"{where}{error.strerror or error}"]
    return 1, [f"{type(error).__name__}: {error}"]


def one_site(sites: Sites, name: str) -> SiteConfig:
    """The site of that name, if its file is here."""
    if name not in sites:
        known = ", ".join(sites) or "the sites whose files are here (none)"
        raise ConfigError(f"--site: must be one of {known}, got {name!r}")
    return sites[name]


def is_exact(study: Study, reference: bool) -> bool:
    """Whether a run is without privacy."""
    return reference or study.arm == "non-private"


def folder_of(study: Study, reference: bool) -> Path:
    """Where a run's released files go."""
    return study.results / "reference" if reference else study.results


def mechanism_of(study: Study, stage: str, reference: bool) -> Mechanism:
    """How the queries of one stage are answered."""
    # The promise pays for no exact round, so it does not end them.
    paid = None if is_exact(study, reference) else study.n_releases[stage]
    return Mechanism(
        study.identity,
        "non-private" if reference else study.arm,
        study.multipliers[stage],
        study.promise,
        study.noise_ratio,
        study.mu_factors,
        study.noise,
        study.consistency,
        paid,
        Checkpoint(Path("private") / "_aggregator" / study.study),
    )


def write_released(
    study: Study,
    sites: Sites,
    reference: bool,
    name: str,
    result: Any,
    mechanism: Mechanism,
) -> None:
    """Write a result with its releases inside, and the privacy record beside it."""
    folder = folder_of(study, reference)
    kinds = {own: site.data for own, site in sites.items()}
    # Of sites elsewhere what they say of themselves is all that is known.
    kinds |= {own: said["kind"] for own, said in mechanism.roster.items()}
    about = {
        "releases": json.dumps(mechanism.releases),
        "sites": json.dumps(kinds),
        "stamp": page.stamp(kinds),
    }
    files.write_arrays(folder / name, **vars(result), **about)
    page.write_beside(study, folder)


def _comparisons(study: Config) -> dict[str, np.ndarray]:
    """Maps over features that the study's components are compared with."""
    against = {}
    if study.score.truth is not None:
        mask = io.read_mask(study.results / MASK)
        basis = io.build_basis(study.space, mask)
        against["truth"] = basis.analysis @ io.read_maps(study.score.truth, mask)
    if study.score.reference:
        exact = files.read_arrays(folder_of(study, reference=True) / UNMIXING)
        against["reference"] = exact["mixing"] * study.pca.norm_bound
    return against
