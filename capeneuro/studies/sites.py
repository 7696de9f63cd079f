"""The sites of a study, from their files: read together, checked, opened.

In one process all site files are on this machine. In a federation over a network a site
has its own file and knows the names of the other sites'; the aggregator has none.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.load import COMMON, load_site
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import WEAK_EPSILON, WEAKEST_EPSILON, StudyConfig
from capeneuro.data import files, inventory
from capeneuro.data.inventory import Inventory
from capeneuro.federation.entries import PromiseLine, ReleaseLine
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.manifest import Manifest, parse
from capeneuro.federation.requests import COOPERATIVE_ARMS
from capeneuro.federation.rules import TABLE
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting, calibration, ring
from capeneuro.site_data.opening import open_site
from capeneuro.site_data.terms import least_colluding, open_ledger, stages_of
from capeneuro.studies.threads import limit_threads

Sites = dict[str, SiteConfig]
# Relative rounding error of a noise multiplier.
TOLERANCE = 1e-9
# Largest delta of private data, whatever their number.
LARGEST_DELTA = 0.01


def load_sites(study: StudyConfig) -> Sites:
    """Read and check the site files of a study that are here, by site name.

    All of them in one process; where sites are apart those of this party.

    Raises
    ------
    ConfigError
        If a file is wrong, or two of them carry one name.
    """
    sites: Sites = {}
    for path in study.sites:
        if study.is_apart and not path.exists():
            continue
        if study.is_apart and path.with_name(COMMON).is_file():
            # Privacy: no file that another party may have sent sets a site's rules.
            raise ConfigError(
                f"{path.with_name(COMMON)}: with federation: {study.federation} each "
                "site's own file says all its rules; move its keys there and remove it"
            )
        site = load_site(path)
        _check_site(study, path, site, sites)
        sites[site.name] = site
    _check_parties(study, sites)
    return sites


def _check_site(study: StudyConfig, path: Path, site: SiteConfig, sites: Sites) -> None:
    """Refuse a site file that does not fit the study, or repeats a site before it."""
    if study.is_apart and site.name != path.stem:
        raise ConfigError(
            f"{path}: name: must be that of the file, {path.stem!r}, by which the "
            f"other parties know the site, got {site.name!r}"
        )
    if site.name in sites:
        raise ConfigError(
            f"{path}: name: must be unique in the study, got {site.name!r} again"
        )
    _admits(study, path, site)
    if any(_same_people(site, earlier) for earlier in sites.values()):
        raise ConfigError(
            f"{path}: images: must differ between sites, got {site.folder!r} again"
        )
    if any(site.eeg and site.eeg == earlier.eeg for earlier in sites.values()):
        raise ConfigError(
            f"{path}: eeg: must differ between sites, got {site.eeg!r} again"
        )


def _check_parties(study: StudyConfig, sites: Sites) -> None:
    """Refuse a study whose sites, aggregator or kinds of data do not go together."""
    site_names = names(study, sites)
    kinds = {site.data for site in sites.values()}
    if study.arm in COOPERATIVE_ARMS and "private" in kinds and len(kinds) > 1:
        raise ConfigError(
            f"study {study.study}: sites: private data must not rely on the noise of "
            f"open data, got {' and '.join(sorted(kinds))}; separate them"
        )
    if study.aggregator not in (None, "independent", *site_names):
        raise ConfigError(
            f"study {study.study}: aggregator: must be independent or a site of the "
            f"study ({', '.join(site_names)}), got {study.aggregator!r}"
        )
    for name in sorted(set(study.budget.site_epsilon) - set(site_names)):
        raise ConfigError(
            f"study {study.study}: budget.site_epsilon: must name sites of the study "
            f"({', '.join(site_names)}), got {name!r}"
        )
    if study.score.reference and len(sites) < len(site_names):
        raise ConfigError(
            f"study {study.study}: score.reference: the run without privacy needs all "
            f"site files here, got {len(sites)} of {len(site_names)}; set it to false"
        )


def _same_people(a: SiteConfig, b: SiteConfig) -> bool:
    """Whether two sites have the same images; parts of one folder name their people."""
    tables = [getattr(site.images, "table", None) for site in (a, b)]
    if a.folder != b.folder or tables[0] != tables[1]:
        return False
    named = [set(getattr(site.images, "people", ())) for site in (a, b)]
    return not all(named) or bool(named[0] & named[1])


def names(study: StudyConfig, sites: Sites) -> tuple[str, ...]:
    """Names of all sites of a study, in its order, also of those without files here."""
    if study.is_apart:
        return study.site_names
    return tuple(sites)


def n_needed(study: StudyConfig) -> int:
    """Sites that must answer: all until they sent their sizes, then the threshold.

    Without those that were given up.
    """
    rosters = (study.private("_aggregator")).glob("roster-*")
    n = study.survivor_threshold if any(rosters) else len(study.sites)
    return n - len(gone(study))


def status_file(study: StudyConfig) -> Path:
    """The aggregator's file of the state of a federation's running job."""
    return study.private("_aggregator") / "status.json"


def gone_file(study: StudyConfig) -> Path:
    """File of the aggregator with the sites that were given up."""
    return Path("private") / "_aggregator" / study.full_study.study / "gone.json"


def gone(study: StudyConfig) -> dict[str, dict[str, str]]:
    """Sites that were given up, in that order, each with reason and day."""
    path = gone_file(study)
    return json.loads(path.read_text()) if path.exists() else {}


def again_file(study: StudyConfig) -> Path:
    """File that asks the running job to end, so that sites that are back can join."""
    return status_file(study).with_name("again")


def is_complete(study: StudyConfig, sites: Sites) -> bool:
    """Whether the files of all sites are here."""
    return len(sites) == len(study.sites)


def _admits(study: StudyConfig, path: Path, site: SiteConfig) -> None:
    """Refuse a study that breaks the site's own rules, before any site spends."""
    if site.data == "private" and (
        study.score.reference or study.arm in ("non-private", "pooled")
    ):
        raise ConfigError(
            f"{path}: data: runs without privacy need simulated or public data, "
            "got 'private'; choose a private arm and set score.reference: false"
        )
    if site.data == "private" and study.computes_mask:
        raise ConfigError(
            f"{path}: data: a mask computed from private data is not allowed; give "
            "a public mask in space.mask"
        )
    # Privacy: the number of units is public, so nothing in the data may decide it.
    by_volume = study.budget.unit == "sample"
    if site.data == "private" and by_volume and study.leaves_out:
        raise ConfigError(
            f"{path}: data: private data. Study {study.study}: {study.leaves_out}: "
            "must not leave out volumes by what is in them where a volume is the unit, "
            "for the number of units is public; set budget.unit: subject, or take "
            "dummy_scans and columns of confounds"
        )
    least = least_colluding(study, site)
    if study.arm in COOPERATIVE_ARMS and study.n_colluding < least:
        raise ConfigError(
            f"{path}: min_colluding: the study must guard against {least} sites or "
            f"more, got {study.n_colluding}; raise budget.n_colluding"
        )
    if site.data == "private" and study.budget.relation == "zero-out":
        raise ConfigError(
            f"{path}: data: private data need replace-one, got budget.relation "
            "'zero-out'; it only reproduces figures"
        )
    if site.seed is not None and study.noise == "exact":
        raise ConfigError(
            f"{path}: seed: exact noise has no seed, got {site.seed}; remove it, "
            "or set noise: rounded in the study"
        )
    name_line = open_ledger(site).lines.named()
    begun_for = name_line.data if name_line else site.data
    if (begun_for == "private") != (site.data == "private"):
        raise ConfigError(
            f"{path}: data: must be {begun_for}, got {site.data!r}: its ledger "
            f"{site.ledger} is one of {begun_for} data; set data: {begun_for}, or give "
            "these data a ledger of their own"
        )
    if misfit := study.misfit(site):
        raise ConfigError(f"{path}: {misfit}")
    if site.data == "private":
        _admits_promise(study, path, site.name)
    per_person = study.budget.unit == "subject" and study.together == 1
    if times_tell(study, site) and per_person and study.expected.longest is None:
        raise ConfigError(
            f"{path}: data: private data over a network. Study {study.study}: "
            "expected.longest: must be the most volumes that anybody may have, got "
            "none: the time of an answer would tell how many somebody has; take it "
            "from the protocol"
        )


def _of_a_person(study: StudyConfig) -> str:
    if study.person_epsilon is None:
        return "not bounded"
    return f"epsilon {study.person_epsilon:,.3g} at worst"


def times_tell(study: StudyConfig, site: SiteConfig) -> bool:
    """Whether the time of a site's answers would show how many volumes a person has."""
    return site.data == "private" and study.federation == "nvflare"  # people are slow


def _admits_promise(study: StudyConfig, path: Path, name: str) -> None:
    """Refuse a promise that protects less than it seems to, unless accepted."""
    epsilon, accepted = study.promise_of(name).epsilon, {a.rule for a in study.accept}
    if study.budget.delta >= LARGEST_DELTA:
        raise ConfigError(
            f"{path}: data: private data. Study {study.study}: budget.delta: must be "
            f"well below one over the number of people, got {study.budget.delta:g}: "
            "with it somebody might be published as they are; take 1.0e-5"
        )
    weak = {
        "epsilon": WEAK_EPSILON < epsilon <= WEAKEST_EPSILON
        and f"budget.epsilon: above {WEAK_EPSILON:g} a guess at who took part may be "
        f"right almost always, got {epsilon:g}; lower it",
        "weak": epsilon > WEAKEST_EPSILON
        and f"budget.epsilon: above {WEAKEST_EPSILON:g} it hides nobody from who knows "
        f"the others, got {epsilon:g}; lower it",
        "unit": study.budget.unit == "sample"
        and "budget.unit: for everything of a person a promise to one volume is "
        f"{_of_a_person(study)}, got 'sample'; set it to subject",
        "bounds": study.source is None
        and "source: must say which public source the bounds and clips are from, got "
        "none: what was looked up in private data is not covered by any promise; name "
        "it",
    }
    for rule, why in weak.items():
        if why and rule not in accepted:
            raise ConfigError(
                f"{path}: data: private data. Study {study.study}: {why}, or accept: "
                f'[{{rule: {rule}, reason: "why, in a sentence"}}]'
            )


# --- what was spent, and what may be -------------------------------------------------


def without_ledger(study: StudyConfig, sites: Sites) -> dict[str, str]:
    """Files of sites whose ledger of private data is yet to be made, by name.

    It is made by hand, once; a ledger that has gone is another error.
    """
    site_files = {}
    for name, site in sites.items():
        if site.second_place is None or site.ledger.is_dir():
            continue
        if any(record.n_lines for record in open_ledger(site).lines.remembered()):
            continue
        files = (path for path in study.sites if path.exists())
        file = next((f for f in files if load_site(f).name == name), "SITE_FILE")
        site_files[name] = str(file)
    return site_files


def make_ledgers(site_files: Mapping[str, str]) -> str:
    """Advice to make the ledgers of sites, whose files are given, as one line."""
    file, times = "SITE_FILE", "each once"
    if len(site_files) == 1:
        (file,), times = site_files.values(), "it once"
    return (
        f"{some(site_files)}: no ledger of private data yet; make {times}: capeneuro "
        f"ledger init {file}"
    )


class Commitment(NamedTuple):
    """Promise of a site to a study, as it counts for another study at the same time.

    Parameters
    ----------
    study
        Its name.
    ledger
        Of the site's people.
    mu
        Its whole promise.
    requests
        Its releases so far, which are part of that.
    """

    study: str
    ledger: Path
    mu: float
    requests: list[str]


def commitment(study: StudyConfig, name: str, site: SiteConfig) -> Commitment:
    """Read a site's promise to a study, in the folder of that study."""
    book = open_ledger(site)
    lineage = _lineage(study, name, book)
    lines = book.of_lineage(lineage, study.identity, name, stages_of(study))
    requests = [line.request for line in lines]
    mu = 0.0 if study.arm == "non-private" else study.promise_of(name).mu
    return Commitment(study.study, site.ledger.resolve(), mu, requests)


def check_ceilings(
    study: StudyConfig,
    sites: Sites,
    on_paper: bool = False,
    beside: Collection[Commitment] = (),
) -> dict[str, float]:
    """Raise if a study does not fit under a site's ceiling; epsilon spent by site.

    Earlier releases of this study from the same data are part of its promise, not added
    to it; a study whose releases are all paid spends nothing and is not refused. With
    ``on_paper`` a ledger that is yet to be made counts as empty. Studies ``beside`` it
    may still spend all that they were promised.
    """
    if study.arm == "non-private":
        return {}
    site_names = names(study, sites)
    factors = [study.mu_factors.get(name, 1.0) for name in site_names]
    n_dropout = len(site_names) - study.survivor_threshold
    coalition = accounting.Coalition(len(site_names), study.n_colluding, n_dropout)
    gamma = calibration.arm_variances(study.arm, factors, study.noise_ratio, coalition)
    spread = float(np.sqrt(gamma.max() / gamma.min()))
    if study.noise == "rounded" and spread > ring.LARGEST_SPREAD:
        raise ConfigError(
            f"study {study.study}: budget.site_epsilon: the sites' noises must lie "
            f"within a factor of {ring.LARGEST_SPREAD:g}, got {spread:.3g}: one grid "
            "cannot hold them; set noise: exact, or bring the promises closer"
        )
    unmade = without_ledger(study, sites)
    if unmade and not on_paper:
        raise ConfigError(make_ledgers(unmade))
    spent: dict[str, float] = {}
    refusals: dict[str, BudgetExceeded] = {}
    for name, site in sites.items():
        try:
            spent[name] = _spent_before(study, name, site, name in unmade, beside)
        except BudgetExceeded as refusal:
            refusals[name] = refusal
    if refusals:
        first, *later_sites = refusals
        too = f"; refused at {some(later_sites)}, too, by their own ceilings"
        raise BudgetExceeded(f"{refusals[first]}{too if later_sites else ''}")
    return spent


def paid_for(study: StudyConfig, name: str, site: SiteConfig) -> int:
    """Releases of a study that a site has charged for its data as they are."""
    ledger, n = open_ledger(site), 0
    for member in study.members.values():
        lines = _of_study(member, name, ledger)
        n += len({(line.query, line.round) for line in lines})
    return n


def _is_paid(study: StudyConfig, name: str, site: SiteConfig) -> bool:
    """Whether a site has charged all releases of a study, which then costs no more."""
    return paid_for(study, name, site) >= sum(study.n_releases.values())


def _of_study(study: StudyConfig, name: str, ledger: Ledger) -> list[ReleaseLine]:
    """Releases that a study charged to a ledger for a site's data as they are."""
    key = (study.identity, _version(study, name, ledger))
    lines = ledger.releases()
    return [line for line in lines if (line.study, line.version or "") == key]


def _version(study: StudyConfig, name: str, book: Ledger) -> str | None:
    """Version of a site's data as its ledger writes it; None before they are prepared.

    Before that nothing was spent on them.
    """
    features = study.private(name) / "projected.npz"
    exists = features.exists()
    return book.pseudonym(files.Features(features).digest) if exists else None


def signed(study: str, name: str, book: Ledger) -> list[PromiseLine]:
    """Promises that a site signed for a study of this name, by number of revision.

    A restored ledger has them in any order; those of a ledger that was merged into this
    one come first.
    """
    lines = [p for p in book.promises() if (p.named, p.site) == (study, name)]
    return sorted(lines, key=lambda p: (p.merged is None, p.revision or 0))


def _lineage(study: StudyConfig, name: str, book: Ledger) -> str:
    """Lineage under which a site's releases of a study count."""
    lineages = [p.lineage for p in signed(study.full_study.study, name, book)]
    with suppress(OSError, ValueError):
        path = study.full_study.private(name) / "manifest.json"
        root = parse(Manifest, path.read_bytes()).root
        lineages += [root] if root in lineages else []
    return lineages[-1] if lineages else study.lineage


def _check_rules(study: StudyConfig, name: str, site: SiteConfig) -> None:
    """Refuse a study whose unit, multiplier or delta breaks the site's rules."""
    if site.unit == "subject" and study.budget.unit == "sample":
        raise ConfigError(
            f"site {name}: unit: its ceiling is per subject, got a study per sample; "
            "set budget.unit: subject"
        )
    least = min(study.multipliers.values()) / study.mu_factors.get(name, 1.0)
    if study.arm != "pooled" and least < site.min_noise_multiplier * (1 - TOLERANCE):
        raise ConfigError(
            f"site {name}: min_noise_multiplier: no release may have less than "
            f"{site.min_noise_multiplier:g}, the study's least is {least:.4g}; lower "
            "budget.epsilon"
        )
    features = study.private(name) / "projected.npz"
    n_samples = files.Features(features).n_samples if features.exists() else {}
    per_person = study.budget.unit == "subject"
    n_units = len(n_samples) if per_person else sum(n_samples.values())
    delta, noun = study.budget.delta, "people" if per_person else "volumes"
    if site.data == "private" and delta * n_units >= 1:
        raise ConfigError(
            f"site {name}: budget.delta: must be below one over its {n_units} "
            f"{noun}, got {delta:g}: with it one of them might be published as they "
            "are; lower it"
        )


def _spent_before(
    study: StudyConfig,
    name: str,
    site: SiteConfig,
    on_paper: bool,
    beside: Collection[Commitment],
) -> float:
    """Epsilon that a site spent before; raises if the study exceeds its ceiling."""
    _check_rules(study, name, site)
    book = open_ledger(site)
    if on_paper:
        book = Ledger(None, book.ceiling)
    entries = *book.releases(), *book.promises()
    if site.unit == "subject" and any(e.unit == "sample" for e in entries):
        raise BudgetExceeded(
            f"site {name}: unit: earlier releases per sample cannot be counted per "
            "subject; keep the ceiling's unit, or start a ledger for other people"
        )
    if any(e.study == TABLE for e in entries):
        raise BudgetExceeded(
            f"site {name}: ledger: holds releases of tables whose rows have no names, "
            "to which people's cannot be added; start a ledger for other people"
        )
    lineage = _lineage(study, name, book)
    earlier = book.of_lineage(lineage, study.identity, name, stages_of(study))
    current = _version(study, name, book)
    # Other stages have other features of the same people. Where features are missing
    # nothing is released of them, and `prepare` makes them anew.
    if current is not None and any(
        e.query != "restored"
        and e.study.rsplit(":", 1)[0] == study.study
        and (e.version or "") != current
        for e in earlier
    ):
        raise BudgetExceeded(
            f"site {name}: images: this study has charged its people for the data as "
            "they were before, and its promise counts that; restore them, or give "
            "the study another name: what was spent stays spent"
        )
    spent = book.total(without=[entry.request for entry in earlier])
    before = accounting.epsilon_from_mu(spent, site.delta)
    promise = study.promise_of(name)
    beside = [b for b in beside if b.ledger == site.ledger.resolve()]
    counted = [entry.request for entry in earlier]
    counted += chain.from_iterable(neighbour.requests for neighbour in beside)
    promised = [promise.mu, *(neighbour.mu for neighbour in beside)]
    total = accounting.compose([book.total(without=counted), *promised])
    is_paid = not on_paper and _is_paid(study, name, site)
    if not book.ceiling.admits(total) and not is_paid:
        neighbours = ", ".join(neighbour.study for neighbour in beside)
        unspent = f" and all that {neighbours} may still spend" if beside else ""
        key = "budget.epsilon"
        if name in study.budget.site_epsilon:
            key = "budget.site_epsilon"
        after = accounting.epsilon_from_mu(total, site.delta)
        cohorts = ""
        charge = f"this study alone makes {after:.4g} (in the ledger {site.ledger})"
        if before or beside:
            charge = (
                f"this study's {promise.epsilon:g} with the {before:.4g} spent before "
                f"(in the ledger {site.ledger}){unspent} makes {after:.4g}"
            )
            cohorts = (
                ", if nobody is in both studies let each name its people in cohort"
            )
        raise BudgetExceeded(
            f"site {name}: epsilon: the ceiling is {site.epsilon:g} at delta "
            f"{site.delta:g}; {charge}; lower {key}{cohorts}, or let the site raise "
            "epsilon in its own file, if it decides to"
            f"{'; or wait until they have ended' if beside else ''}"
        )
    return before


def keep_inventory(study: StudyConfig, site: str, *inventories: Inventory) -> None:
    """Print how many files of a site are not used; list them in its folder."""
    path = study.private(site) / inventory.NAME
    inventory.write(path, inventories)
    if lines := [line for i in inventories for line in i.lines()]:
        print("\n".join([*lines, f"  each of them: {path}"]))


# --- the sites at work ---------------------------------------------------------------


@contextmanager
def in_process(
    study: StudyConfig, sites: Sites, n_workers: int, exact: bool
) -> Iterator[InProcess]:
    """Open all sites here; with one BLAS thread each, runs are equal bit by bit."""
    if not is_complete(study, sites):
        raise ConfigError(
            f"study {study.study}: federation: only {len(sites)} of "
            f"{len(study.sites)} site files are here; run: capeneuro aggregate"
        )
    if not exact:  # Before anything is spent that the study could not finish.
        check_ceilings(study, sites)
        check_sampler(study)
    with limit_threads(1):
        members = {name: open_site(study, sites, name) for name in sites}
        yield InProcess(members, n_workers)


def check_sampler(study: StudyConfig) -> None:
    """Raise if the study's noise needs a sampler that is not installed."""
    if study.noise == "exact" and find_spec("opendp") is None:
        raise ConfigError(
            f"study {study.study}: noise: exact needs a sampler that is not "
            "installed; pip install 'capeneuro[exact]', or set noise: rounded"
        )
