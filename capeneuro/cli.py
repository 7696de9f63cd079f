"""The command line: one subcommand per step of a study.

Exit status: 0 done, 2 bad input (one clear line), 3 budget refused, 1 failure.
"""

import argparse
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro import __version__, config, privacy
from capeneuro.config import Config, ConfigError, SiteConfig
from capeneuro.ledger import BudgetExceeded, Ledger, LedgerDamaged
from capeneuro.mechanism import Mechanism, RoundFailed

MASK = "group_desc-brain_mask.nii.gz"
SUBSPACE = "group_desc-pca_subspace.npz"
UNMIXING = "group_desc-ica_unmixing.npz"
COMPONENTS = "group_desc-ica_components.nii.gz"


# --- before anything is computed -----------------------------------------------------


def init(options: argparse.Namespace) -> None:
    """Write a new study with every key explained, ready to be filled in."""
    folder = Path(options.folder)
    if (folder / "config").exists():
        raise ConfigError(f"{folder / 'config'}: exists already; choose another folder")
    from capeneuro import io, scaffold

    names = [f"site-{i + 1}" for i in range(options.sites)]
    for name in names:
        text = scaffold.site_file(name)
        io.write_text(folder / "config" / "sites" / f"{name}.yaml", text)
    io.write_text(folder / "config" / "config.yaml", scaffold.study_file(names))
    io.write_text(folder / "workflow" / "Snakefile", scaffold.snakefile())
    print(f"wrote {folder}/config; fill in the keys, then: capeneuro check")


def check(options: argparse.Namespace) -> None:
    """Check a study file and its site files, without looking at data."""
    study = config.load(options.study)
    sites = config.load_sites(study)
    print(
        f"{options.study}: study {study.study!r} with {len(sites)} sites is well formed"
    )


def validate(options: argparse.Namespace) -> None:
    """Check the sites' images against the study; write the study's mask."""
    study, sites = _study(options)
    from capeneuro import io

    runs = {name: io.find_runs(site) for name, site in sites.items()}
    images = [run for site in runs.values() for files in site.values() for run in files]
    for run in images:
        io.open_image(run, 4)
    computed = study.space.mask == "computed"
    mask = io.compute_mask(images) if computed else io.read_mask(Path(study.space.mask))
    for run in images:
        io.on_grid(io.open_image(run, 4), mask, study.space.resample)
    n_features = io.build_basis(study.space, mask).n_features
    if study.n_components > n_features:
        raise ConfigError(
            f"{options.study}: n_components: must be at most the {n_features} features "
            f"of the basis, got {study.n_components}"
        )
    io.write_mask(study.results / MASK, mask)
    n_people = sum(len(site) for site in runs.values())
    print(f"{len(sites)} sites, {n_people} people, {n_features} features: valid")


def plan(options: argparse.Namespace) -> None:
    """Show what a study will spend, before it spends anything."""
    study, sites = _study(options)
    promise, multipliers = study.promise, _multipliers(study)
    print(
        f"promise: epsilon {promise.epsilon:g}, delta {promise.delta:g}, unit "
        f"{promise.unit}, {promise.relation}, {promise.n_colluding} of {len(sites)} "
        f"sites colluding; mu {promise.mu:.4f}"
    )
    rounds = {"pca": 1, "ica": study.ica.n_rounds}
    for stage, multiplier in multipliers.items():
        mu = rounds[stage] ** 0.5 / multiplier
        print(
            f"{stage}: {rounds[stage]} rounds at noise multiplier {multiplier:.3f}, "
            f"epsilon {privacy.epsilon_from_mu(mu, promise.delta):.3f} alone"
        )
    for name, site in sites.items():
        spent = _check_ceiling(study, name, site)
        print(f"{name}: ceiling epsilon {site.epsilon:g}, spent so far {spent:.4f}")
    if promise.unit == "subject" and promise.epsilon <= 2:
        print(
            "note: at subject level and epsilon <= 2, ICA wants thousands of subjects"
        )


# --- at one site ---------------------------------------------------------------------


def prepare(options: argparse.Namespace) -> None:
    """Turn one site's images into features; nothing leaves the site."""
    study, sites = _study(options)
    site = _site(sites, options.site)
    from tqdm import tqdm

    from capeneuro import io, plots, report

    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
    rows: list[dict[str, Any]] = []
    all_norms: list[np.ndarray] = []

    def people():
        runs = io.find_runs(site)
        for person, files in tqdm(
            runs.items(), desc=f"prepare {site.name}", disable=None
        ):
            parts = [
                io.run_features(run, site, study.space, study.cleaning, mask, basis)
                for run in files
            ]
            X = np.concatenate(parts, axis=1)
            if X.shape[1] < study.n_components:
                raise ConfigError(
                    f"{files[0]}: {person} has {X.shape[1]} volumes, fewer than "
                    f"n_components {study.n_components}; exclude the person"
                )
            norms = np.linalg.norm(X, axis=0)
            all_norms.append(norms)
            rows.append(
                {
                    "subject": person,
                    "n_samples": X.shape[1],
                    "median": np.median(norms),
                    "high": np.percentile(norms, 95),
                    "clipped": np.mean(norms > study.pca.norm_bound),
                }
            )
            yield person, X

    folder = study.private(site.name)
    io.write_features(folder / "projected.npz", people())
    figure = plots.norms(all_norms, study.pca.norm_bound)
    page = report.render_quality(site.name, rows, figure, study.pca.norm_bound)
    io.write_text(folder / "qc.html", page)


def reconstruct(options: argparse.Namespace) -> None:
    """Write one site's time courses; they stay at the site."""
    study, sites = _study(options)
    site = _site(sites, options.site)
    from capeneuro import io

    folder = study.private(site.name)
    unmixing = io.read_arrays(study.results / UNMIXING)["unmixing"]
    unmixing = unmixing / study.pca.norm_bound
    people = io.Features(folder / "projected.npz")
    header = ["subject", "volume"]
    header += [f"component-{i + 1}" for i in range(len(unmixing))]
    rows = (
        [person, t, *(f"{z:.6g}" for z in sources)]
        for person in people
        for t, sources in enumerate((unmixing @ people[person]).T)
    )
    io.write_table(folder / "timecourses.tsv", header, rows)


# --- over all sites ------------------------------------------------------------------


def pca(options: argparse.Namespace) -> None:
    """Find the sites' common subspace: capePCA, or the arm of the study."""
    study, sites = _study(options)
    from capeneuro import io, report
    from capeneuro.pca import principal_subspace

    folder, mechanism, exact = _arm(study, options.reference, "pca")
    if not exact:  # Before anything is spent that the study could not finish.
        for name, site in sites.items():
            _check_ceiling(study, name, site)
    with _federation(study, sites, options.threads) as federation:
        subspace = principal_subspace(
            federation,
            mechanism,
            study.n_components,
            study.pca.norm_bound,
            clip=np.inf if exact else 1.0,
        )
    releases = json.dumps(mechanism.releases)
    io.write_arrays(folder / SUBSPACE, **vars(subspace), releases=releases)
    report.write_beside(study, sites, folder)


def ica(options: argparse.Namespace) -> None:
    """Find the sites' common components: capeDJICA, or the arm of the study."""
    study, sites = _study(options)
    from tqdm import tqdm

    from capeneuro import io, report
    from capeneuro.ica import infomax
    from capeneuro.pca import Subspace

    folder, mechanism, exact = _arm(study, options.reference, "ica")
    arrays = io.read_arrays(folder / SUBSPACE)
    subspace = Subspace(
        arrays["eigenvalues"],
        arrays["eigenvectors"],
        float(arrays["norm_bound"]),
        float(arrays["clip"]),
    )
    with _federation(study, sites, options.threads) as federation:
        unmixing = infomax(
            federation,
            mechanism,
            subspace,
            update=study.ica.update,
            n_rounds=study.ica.max_rounds_exact if exact else study.ica.n_rounds,
            clip=np.inf if exact else study.ica.clip,
            tol=study.ica.tol,
            progress=lambda r: tqdm(r, desc=f"ica {mechanism.arm}", disable=None),
        )
    releases = json.dumps(mechanism.releases)
    io.write_arrays(folder / UNMIXING, **vars(unmixing), releases=releases)
    report.write_beside(study, sites, folder)


def maps(options: argparse.Namespace) -> None:
    """Write the component maps as NIfTI in the study's space."""
    study, sites = _study(options)
    from capeneuro import io, report

    folder = _folder(study, options.reference)
    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
    mixing = io.read_arrays(folder / UNMIXING)["mixing"] * study.pca.norm_bound
    promise = study.promise
    sidecar = {
        "Description": "Spatial maps of joint temporal ICA, per unit deviation of a "
        "component's time course, strongest first",
        "Stamp": report.stamp(sites),
        "Sources": [f"group_desc-ica_unmixing.npz of study {study.study}"],
        "capeneuro": {
            "version": __version__,
            "arm": "non-private" if options.reference else study.arm,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "unit": promise.unit,
            "n_colluding": promise.n_colluding,
        },
    }
    maps = basis.synthesis @ mixing
    io.write_maps(folder / COMPONENTS, maps, mask, sidecar)


def score(options: argparse.Namespace) -> None:
    """Compare the components with the truth and with a run without privacy."""
    study, _ = _study(options)
    from capeneuro import io, report

    bound = study.pca.norm_bound
    against, unmixing, reference = _comparisons(study)
    rows = [
        row
        for name, A in against.items()
        for row in report.scores(unmixing, A, name, bound)
    ]
    if reference is not None and "truth" in against:
        rows += report.scores(reference, against["truth"], "nonprivate_truth", bound)
    table = [(name, f"{value:.4f}", *notes) for name, value, *notes in rows]
    header = ["name", "value", "reference", "note"]
    io.write_table(study.results / "scores.tsv", header, table)
    for name, value, *_ in table:
        print(f"{name}\t{value}")


def report(options: argparse.Namespace) -> None:
    """Write the study's report: one page that opens offline."""
    study, sites = _study(options)
    from tqdm import tqdm

    from capeneuro import io, metrics, plots
    from capeneuro import report as page

    folder = study.results
    page.write_beside(study, sites, folder)
    record = json.loads((folder / "privacy.json").read_text())
    subspace = io.read_arrays(folder / SUBSPACE)
    unmixing = io.read_arrays(folder / UNMIXING)
    lines = (folder / "scores.tsv").read_text().splitlines()
    rounds = [r for r in record["releases"] if r["query"].startswith("infomax")]
    size = len(unmixing["W"]) * (len(unmixing["W"]) - 1) / 2
    noise = [r["noise_deviation"] * size**0.5 for r in rounds]
    quality = [
        ("Norm of the released gradient", plots.convergence(unmixing["trace"], noise)),
        ("Energy of the subspace", plots.spectrum(subspace["eigenvalues"])),
    ]
    for name, A in _comparisons(study)[0].items():
        r = metrics.matched_correlation(unmixing["mixing"], A)
        quality.append((f"Matched maps, {name}", plots.matching(r)))
    indices = tqdm(range(study.n_components), desc="report", disable=None)
    drawn = [
        page.picture(
            f"component {i + 1}",
            plots.component_map(folder / COMPONENTS, i, f"component {i + 1}"),
        )
        for i in indices
    ]
    text = page.render(
        study,
        record,
        [line.split("\t") for line in lines[1:]],
        {"quality": [page.picture(*q) for q in quality], "maps": drawn},
    )
    io.write_text(folder / "report.html", text)
    print(folder / "report.html")


def ledger(options: argparse.Namespace) -> None:
    """Show or verify a site's ledger."""
    site = config.load_site(options.site_file)
    book = _ledger(site)
    entries = [e for e in book.entries() if e["kind"] == "release"]
    if options.action == "verify":
        print(f"{site.ledger}: {len(entries)} releases, all checksums match")
        return
    for e in entries:
        print(
            f"{e['study']}\t{e['query']}\tround {e['round']}\t{e['arm']}\t"
            f"mu {e['mu']:.5f}\tunit {e['unit']}"
        )
    mu = max(book.totals().values(), default=0.0)
    spent = privacy.epsilon_from_mu(mu, site.delta)
    print(
        f"largest total of a person: epsilon {spent:.4f} of {site.epsilon:g} at delta "
        f"{site.delta:g}, unit {site.unit}"
    )


def _comparisons(study: Config):
    """Maps to compare with, and the unmixings of study and reference."""
    from capeneuro import io

    against, reference = {}, None
    if study.score.truth is not None:
        mask = io.read_mask(study.results / MASK)
        basis = io.build_basis(study.space, mask)
        against["truth"] = basis.analysis @ io.read_maps(study.score.truth, mask)
    if study.score.reference:
        reference = io.read_arrays(study.results / "reference" / UNMIXING)
        against["reference"] = reference["mixing"] * study.pca.norm_bound
    return against, io.read_arrays(study.results / UNMIXING), reference


# --- shared by the steps -------------------------------------------------------------


def _study(options: argparse.Namespace) -> tuple[Config, dict[str, SiteConfig]]:
    study = config.load(options.study)
    return study, config.load_sites(study)


def _site(sites: dict[str, SiteConfig], name: str) -> SiteConfig:
    if name not in sites:
        raise ConfigError(f"--site: must be one of {', '.join(sites)}, got {name!r}")
    return sites[name]


def _ceiling(site: SiteConfig) -> privacy.Budget:
    return privacy.Budget(site.epsilon, site.delta, site.unit, "replace-one", 0)


def _ledger(site: SiteConfig) -> Ledger:
    return Ledger(site.ledger, _ceiling(site))


def _check_ceiling(study: Config, name: str, site: SiteConfig) -> float:
    """Raise if a study does not fit under a site's ceiling; return epsilon spent."""
    book = _ledger(site)
    entries = [e for e in book.entries() if e.get("study") != study.identity]
    cohorts = [e for e in book.entries() if e["kind"] == "cohort"]
    earlier = [e for e in entries if e["kind"] == "release"]
    spent = max(book.totals(cohorts + earlier).values(), default=0.0)
    ceiling = _ceiling(site)
    if privacy.compose([spent, study.promise.mu]) > ceiling.mu * (1 + privacy.SAFETY):
        raise BudgetExceeded(
            f"site {name}: epsilon: the ceiling is {site.epsilon:g} at delta "
            f"{site.delta:g}; this study's {study.promise.epsilon:g} with the "
            f"{privacy.epsilon_from_mu(spent, site.delta):.4g} spent before exceeds "
            "it; lower budget.epsilon"
        )
    return privacy.epsilon_from_mu(spent, site.delta)


def _multipliers(study: Config) -> dict[str, float]:
    """Noise multiplier of one release in each stage, from the promise."""
    mu, share = study.promise.mu, study.budget.pca_share
    return {
        "pca": 1 / (mu * share**0.5),
        "ica": (study.ica.n_rounds / (1 - share)) ** 0.5 / mu,
    }


def _folder(study: Config, reference: bool) -> Path:
    return study.results / "reference" if reference else study.results


def _arm(study: Config, reference: bool, stage: str) -> tuple[Path, Mechanism, bool]:
    """Output folder and mechanism of a stage, and whether it is exact."""
    arm = "non-private" if reference else study.arm
    mechanism = Mechanism(
        study.identity,
        arm,
        _multipliers(study)[stage],
        study.promise,
        study.pca.noise_ratio_per_site * len(study.sites),
    )
    return _folder(study, reference), mechanism, arm == "non-private"


def _federation(study: Config, sites: dict[str, SiteConfig], n_workers: int):
    """All sites in this process; one BLAS thread each, so that runs are bit-equal."""
    from contextlib import contextmanager

    from threadpoolctl import threadpool_limits

    from capeneuro.federation import InProcess
    from capeneuro.io import Features
    from capeneuro.site import Limits, Site

    @contextmanager
    def opened():
        members = {}
        for name, site in sites.items():
            people = Features(study.private(name) / "projected.npz")
            min_colluding = site.min_colluding
            if min_colluding is None:
                min_colluding = privacy.default_n_colluding(len(sites))
            limits = Limits(site.data, site.min_noise_multiplier, min_colluding)
            members[name] = Site(
                name,
                people,
                people.n_samples,
                _ledger(site),
                limits,
                people.digest,
                site.seed,
            )
        with threadpool_limits(1):
            yield InProcess(members, n_workers)

    return opened()


# --- arguments -----------------------------------------------------------------------

COMMANDS: dict[Callable[[argparse.Namespace], None], str] = {
    check: "capeneuro check config/config.yaml",
    validate: "capeneuro validate config/config.yaml",
    plan: "capeneuro plan config/config.yaml",
    prepare: "capeneuro prepare config/config.yaml --site demo-1",
    pca: "capeneuro pca config/config.yaml --threads 2",
    ica: "capeneuro ica config/config.yaml --threads 2",
    maps: "capeneuro maps config/config.yaml",
    reconstruct: "capeneuro reconstruct config/config.yaml --site demo-1",
    score: "capeneuro score config/config.yaml",
    report: "capeneuro report config/config.yaml",
}


def parser() -> argparse.ArgumentParser:
    """Build the command line's parser."""
    top = argparse.ArgumentParser(prog="capeneuro", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(function: Callable[[argparse.Namespace], None], example: str):
        summary = function.__doc__ or ""
        command = commands.add_parser(
            function.__name__,
            help=summary.splitlines()[0],
            description=summary,
            epilog=f"example: {example}",
        )
        command.set_defaults(run=function)
        command.add_argument("--log", type=Path, help="also write messages here")
        return command

    command = add(init, "capeneuro init my-study --sites 3")
    command.add_argument("folder")
    command.add_argument("--sites", type=int, default=2)
    for function, example in COMMANDS.items():
        command = add(function, example)
        command.add_argument("study", help="study file")
        if function in (prepare, reconstruct):
            command.add_argument("--site", required=True, help="name of the site")
        if function in (pca, ica):
            command.add_argument(
                "--threads", type=int, default=1, help="sites at a time"
            )
        if function in (pca, ica, maps):
            text = "run without privacy (simulated or public data)"
            command.add_argument("--reference", action="store_true", help=text)
    command = add(ledger, "capeneuro ledger show config/sites/demo-1.yaml")
    command.add_argument("action", choices=["show", "verify"])
    command.add_argument("site_file")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = parser().parse_args(argv)
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if options.log is not None:
        options.log.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(options.log, mode="w"))
    logging.basicConfig(format="%(message)s", handlers=handlers, force=True)
    try:
        options.run(options)
    except RoundFailed as error:
        logging.error("error: the round failed: %s", error)
        kinds = {why.split(":")[0] for why in error.lost.values()}
        return 3 if "budget" in kinds else 2 if kinds == {"refused"} else 1
    except BudgetExceeded as error:
        logging.error("error: %s", error)
        return 3
    except (ConfigError, LedgerDamaged) as error:
        for line in str(error).splitlines():
            logging.error("error: %s", line)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
