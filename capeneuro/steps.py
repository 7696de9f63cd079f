"""The steps of a study, each from the files of the step before to its own.

What the command line and the workflow call. All sites run in this process.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from capeneuro import __version__, cape, files, io, metrics, privacy, ring
from capeneuro import report as page
from capeneuro.config import Config, ConfigError, SiteConfig
from capeneuro.federation import InProcess
from capeneuro.ica import infomax
from capeneuro.ledger import BudgetExceeded, Ledger
from capeneuro.mechanism import Mechanism
from capeneuro.pca import Subspace, principal_subspace
from capeneuro.rounds import Checkpoint
from capeneuro.rules import Limits
from capeneuro.site import Site, digest

MASK = "group_desc-brain_mask.nii.gz"
SUBSPACE = "group_desc-pca_subspace.npz"
UNMIXING = "group_desc-ica_unmixing.npz"
COMPONENTS = "group_desc-ica_components.nii.gz"
Sites = dict[str, SiteConfig]


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
    if study.n_components > n_features:
        raise ConfigError(
            f"study {study.study}: n_components: must be at most the {n_features} "
            f"features of the basis, got {study.n_components}"
        )
    check_ceilings(study, sites)
    io.write_mask(study.results / MASK, mask)
    for name, people in runs.items():
        n_runs = sum(len(own) for own in people.values())
        print(f"{name}: {len(people)} people, {n_runs} runs")
    print(f"{len(sites)} sites, {n_features} features: valid")


# --- at one site ---------------------------------------------------------------------


def prepare(study: Config, sites: Sites, site: str) -> None:
    """Turn one site's images into features; nothing leaves the site."""
    from capeneuro import plots

    own, bound = _site(sites, site), study.pca.norm_bound
    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
    rows: list[dict[str, Any]] = []
    norms: list[np.ndarray] = []

    def people() -> Iterator[tuple[str, np.ndarray]]:
        runs = io.find_runs(own)
        for person, images in tqdm(runs.items(), f"prepare {site}", disable=None):
            parts = [
                io.run_features(image, own, study.space, study.cleaning, mask, basis)
                for image in images
            ]
            X = np.concatenate(parts, axis=1)
            if X.shape[1] < study.n_components:
                raise ConfigError(
                    f"{images[0]}: {person} has {X.shape[1]} volumes, fewer than "
                    f"n_components {study.n_components}; exclude the person"
                )
            norms.append(np.linalg.norm(X, axis=0))
            rows.append(page.quality(person, norms[-1], bound))
            yield person, X

    folder = study.private(site)
    files.write_features(folder / "projected.npz", people())
    text = page.render_quality(site, rows, plots.norms(norms, bound), bound)
    files.write_text(folder / "qc.html", text)


def reconstruct(study: Config, sites: Sites, site: str) -> None:
    """Write one site's time courses; they stay at the site."""
    _site(sites, site)
    folder = study.private(site)
    result = files.read_arrays(study.results / UNMIXING)
    # Unit deviation, as the maps assume: data are maps times time courses.
    deviations = np.linalg.norm(result["W"], axis=1)[:, None]
    unmixing = result["unmixing"] / deviations / study.pca.norm_bound
    people = files.Features(folder / "projected.npz")
    header = ["subject", "volume"]
    header += [f"component-{i + 1}" for i in range(len(unmixing))]
    rows = (
        [person, t, *(f"{z:.6g}" for z in sources)]
        for person in people
        for t, sources in enumerate((unmixing @ people[person]).T)
    )
    files.write_table(folder / "timecourses.tsv", header, rows)


# --- over all sites ------------------------------------------------------------------


def pca(study: Config, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common subspace: capePCA, or the arm of the study."""
    mechanism = _mechanism(study, "pca", reference)
    exact = mechanism.arm == "non-private"
    with _federation(study, sites, threads, exact) as federation:
        subspace = principal_subspace(
            federation,
            mechanism,
            study.n_components,
            study.pca.norm_bound,
            clip=np.inf if exact else 1.0,
        )
    _write_released(study, sites, reference, SUBSPACE, subspace, mechanism)


def ica(study: Config, sites: Sites, threads: int, reference: bool) -> None:
    """Find the sites' common components: capeDJICA, or the arm of the study."""
    mechanism = _mechanism(study, "ica", reference)
    exact = mechanism.arm == "non-private"
    arrays = files.read_arrays(_folder(study, reference) / SUBSPACE)
    subspace = Subspace(
        arrays["eigenvalues"],
        arrays["eigenvectors"],
        float(arrays["norm_bound"]),
        float(arrays["clip"]),
    )
    with _federation(study, sites, threads, exact) as federation:
        unmixing = infomax(
            federation,
            mechanism,
            subspace,
            update=study.ica.update,
            n_rounds=study.ica.max_rounds_exact if exact else study.ica.n_rounds,
            clip=np.inf if exact else study.ica.clip,
            tol=study.ica.tol,
            progress=lambda r: tqdm(r, f"ica {mechanism.arm}", disable=None),
        )
    _write_released(study, sites, reference, UNMIXING, unmixing, mechanism)


def maps(study: Config, sites: Sites) -> None:
    """Write the component maps as NIfTI in the study's space."""
    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
    mixing = files.read_arrays(study.results / UNMIXING)["mixing"]
    sidecar = {
        "Description": "Spatial maps of joint temporal ICA, per unit deviation of a "
        "component's time course, strongest first",
        "Stamp": page.stamp(sites),
        "Sources": [UNMIXING],
        "capeneuro": {
            "version": __version__,
            "study": study.study,
            "arm": study.arm,
            **vars(study.promise),
        },
    }
    voxels = basis.synthesis @ (mixing * study.pca.norm_bound)
    io.write_maps(study.results / COMPONENTS, voxels, mask, sidecar)


def score(study: Config, sites: Sites) -> None:
    """Compare the components with the truth and with a run without privacy."""
    bound = study.pca.norm_bound
    against = _comparisons(study)
    unmixing = files.read_arrays(study.results / UNMIXING)
    rows = [
        row
        for name, A in against.items()
        for row in page.scores(unmixing, A, name, bound)
    ]
    if {"truth", "reference"} <= set(against):
        exact = files.read_arrays(_folder(study, reference=True) / UNMIXING)
        rows += page.scores(exact, against["truth"], "nonprivate_truth", bound)
    table = [(name, f"{value:.4f}", *notes) for name, value, *notes in rows]
    if rows and page.stamp(sites):
        table.append(("stamp", "", "", page.stamp(sites)))
    header = ["name", "value", "reference", "note"]
    files.write_table(study.results / "scores.tsv", header, table)
    for name, value, *_ in table:
        print(f"{name}\t{value}")


def report(study: Config, sites: Sites) -> None:
    """Write the study's report: one page that opens offline."""
    from capeneuro import plots

    folder = study.results
    page.write_beside(study, sites, folder)
    record = json.loads((folder / "privacy.json").read_text())
    subspace = files.read_arrays(folder / SUBSPACE)
    unmixing = files.read_arrays(folder / UNMIXING)
    lines = (folder / "scores.tsv").read_text().splitlines()
    R = study.n_components
    rounds = [r for r in record["releases"] if r["query"].startswith("infomax")]
    noise = [r["noise_deviation"] * r["size"] ** 0.5 for r in rounds]
    figures = {
        "Norm of the released gradient": plots.convergence(unmixing["trace"], noise),
        "Energy of the subspace": plots.spectrum(subspace["eigenvalues"]),
    }
    for name, A in _comparisons(study).items():
        r = metrics.matched_correlation(unmixing["mixing"], A)
        figures[f"Maps matched with the {page.AGAINST[name]}"] = plots.matching(r)
    quality = [page.picture(title, figure) for title, figure in figures.items()]
    drawn = [
        page.picture(title, plots.component_map(folder / COMPONENTS, i, title))
        for i in tqdm(range(R), "report", disable=None)
        for title in [f"component {i + 1}"]
    ]
    scores = [line.split("\t") for line in lines[1:]]
    pictures = {"quality": quality, "maps": drawn}
    files.write_text(
        folder / "report.html", page.render(study, record, scores, pictures)
    )
    print(folder / "report.html")


# --- shared by the steps -------------------------------------------------------------


def open_ledger(site: SiteConfig) -> Ledger:
    """Open a site's ledger with its ceiling."""
    ceiling = privacy.Budget(site.epsilon, site.delta, site.unit, "replace-one", 0)
    return Ledger(site.ledger, ceiling)


def _site(sites: Sites, name: str) -> SiteConfig:
    if name not in sites:
        raise ConfigError(f"--site: must be one of {', '.join(sites)}, got {name!r}")
    return sites[name]


def check_ceilings(study: Config, sites: Sites) -> dict[str, float]:
    """Raise if a study does not fit under a site's ceiling; epsilon spent by site.

    What this study spent with the same roster is part of its promise, not beside it.
    """
    if study.arm == "non-private":
        return {}
    factors = [study.mu_factors.get(name, 1.0) for name in sites]
    ratio = study.pca.noise_ratio_per_site * len(sites)
    missing = study.n_colluding, len(sites) - study.survivor_threshold
    gamma = cape.arm_variances(study.arm, factors, ratio, *missing)
    apart = float(np.sqrt(gamma.max() / gamma.min()))
    if study.noise == "rounded" and apart > ring.LARGEST_SPREAD:
        raise ConfigError(
            f"study {study.study}: budget.site_epsilon: the sites' noises must lie "
            f"within a factor of {ring.LARGEST_SPREAD:g}, got {apart:.3g}: one grid "
            "cannot hold them; set noise: exact, or bring the promises closer"
        )
    same = (study.identity, _roster(study, sites))
    return {name: _spent_before(study, name, sites[name], same) for name in sites}


def _spent_before(
    study: Config, name: str, site: SiteConfig, same: tuple[str, str]
) -> float:
    if site.unit == "subject" and study.budget.unit == "sample":
        raise ConfigError(
            f"site {name}: unit: its ceiling is per subject, got a study per sample; "
            "set budget.unit: subject"
        )
    book = open_ledger(site)
    entries = book.entries()
    if site.unit == "subject" and any(e.get("unit") == "sample" for e in entries):
        raise BudgetExceeded(
            f"site {name}: unit: earlier releases per sample cannot be counted per "
            "subject; keep the ceiling's unit, or start a ledger for other people"
        )
    own = [
        entry["request"]
        for entry in entries
        if (entry.get("study"), entry.get("roster")) == same
    ]
    spent = max(book.totals(without=own).values(), default=0.0)
    before = privacy.epsilon_from_mu(spent, site.delta)
    promise = study.promise_of(name)
    total = privacy.compose([spent, promise.mu])
    if not book.ceiling.admits(total):
        own_promise = study.budget.site_epsilon
        after = privacy.epsilon_from_mu(total, site.delta)
        raise BudgetExceeded(
            f"site {name}: epsilon: the ceiling is {site.epsilon:g} at delta "
            f"{site.delta:g}; this study's {promise.epsilon:g} with the "
            f"{before:.4g} spent before makes {after:.4g}; lower "
            f"{'budget.site_epsilon' if name in own_promise else 'budget.epsilon'}"
        )
    return before


def _roster(study: Config, sites: Sites) -> str:
    """Digest of what the sites say of themselves; empty before they are prepared."""
    if not all((study.private(name) / "projected.npz").exists() for name in sites):
        return ""
    described = _mechanism(study, "pca", False).describe(
        InProcess(_members(study, sites))
    )
    return digest(described)


def multipliers(study: Config) -> dict[str, float]:
    """Noise multiplier of one release in each stage, from the promise."""
    mu, share = study.promise.mu, study.budget.pca_share
    return {
        "pca": 1 / (mu * share**0.5),
        "ica": (study.ica.n_rounds / (1 - share)) ** 0.5 / mu,
    }


def _folder(study: Config, reference: bool) -> Path:
    return study.results / "reference" if reference else study.results


def _mechanism(study: Config, stage: str, reference: bool) -> Mechanism:
    return Mechanism(
        study.identity,
        "non-private" if reference else study.arm,
        multipliers(study)[stage],
        study.promise,
        study.pca.noise_ratio_per_site * len(study.sites),
        study.mu_factors,
        study.noise,
        study.budget.consistency,
        {"pca": 1, "ica": study.ica.n_rounds}[stage],
        Checkpoint(Path("private") / "_aggregator" / study.study),
    )


@contextmanager
def _federation(
    study: Config, sites: Sites, n_workers: int, exact: bool
) -> Iterator[InProcess]:
    """All sites in this process; one BLAS thread each, so that runs are bit-equal."""
    if not exact:  # Before anything is spent that the study could not finish.
        check_ceilings(study, sites)
        if study.noise == "exact" and find_spec("opendp") is None:
            raise ConfigError(
                f"study {study.study}: noise: exact needs a sampler that is not "
                "installed; pip install 'capeneuro[exact]', or set noise: rounded"
            )
    with threadpool_limits(1):
        yield InProcess(_members(study, sites), n_workers)


def _members(study: Config, sites: Sites) -> dict[str, Site]:
    """Open every site on its prepared features, with its own rules."""
    default = privacy.default_n_colluding(len(sites))
    members = {}
    for name, site in sites.items():
        people = files.Features(study.private(name) / "projected.npz")
        colluding = default if site.min_colluding is None else site.min_colluding
        pins = dict.fromkeys(sites, None)
        if site.peers is not None:
            pins = {name: None} | {n: bytes.fromhex(k) for n, k in site.peers.items()}
        agreed = (pins, study.identity, study.promise_of(name))
        limits = Limits(site.data, site.min_noise_multiplier, colluding, *agreed)
        ledger = open_ledger(site)
        members[name] = Site(
            name, people, people.n_samples, ledger, limits, people.digest, site.seed
        )
    return members


def _write_released(
    study: Config,
    sites: Sites,
    reference: bool,
    name: str,
    result: Any,
    mechanism: Mechanism,
) -> None:
    """Write a result with its releases inside, and the privacy record beside it."""
    folder = _folder(study, reference)
    about = {"releases": json.dumps(mechanism.releases), "stamp": page.stamp(sites)}
    files.write_arrays(folder / name, **vars(result), **about)
    page.write_beside(study, sites, folder)


def _comparisons(study: Config) -> dict[str, np.ndarray]:
    """Maps over features that the study's components are compared with."""
    against = {}
    if study.score.truth is not None:
        mask = io.read_mask(study.results / MASK)
        basis = io.build_basis(study.space, mask)
        against["truth"] = basis.analysis @ io.read_maps(study.score.truth, mask)
    if study.score.reference:
        exact = files.read_arrays(_folder(study, reference=True) / UNMIXING)
        against["reference"] = exact["mixing"] * study.pca.norm_bound
    return against
