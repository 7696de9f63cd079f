"""The privacy record as others can check it: its form, its sums, its export."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capeneuro.config.errors import ConfigError
from capeneuro.federation import vouching
from capeneuro.federation.entries import ReleaseLine
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import protection

FORMAT = "capeneuro-privacy-2"
SIGNATURES = "signatures"
# Relative difference of numbers that are recomputed, on another machine as well.
TOLERANCE = 1e-9
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[float, Field(ge=0)]


class Part(BaseModel):
    """A part of the record: no unknown keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Spent(Part):
    """Epsilon at the record's delta, as it is counted in three ways."""

    gdp: Size
    """Exact, of Gaussian releases; what budgets count."""
    rdp: Size
    """By Renyi differential privacy (moments accountant)."""
    basic: Size
    """By basic composition."""


class SiteTotal(Part):
    """What one site's people were promised, and what was spent of it."""

    promise: Size
    """Epsilon."""
    releases: Count
    present: Count
    """Releases that the site is in; it was charged for all."""
    reader: Spent | None
    partner: Spent | None
    partners: Spent | None
    aggregator: Spent | None
    aggregator_and_colluders: Spent | None
    """The class that ledgers charge; null, here and above: exact numbers were seen."""
    site_as_aggregator: Spent | None


class SiteRelease(Part):
    """One site's part in one release."""

    n_units: Count
    """Public number of people, or of volumes, of the site."""
    sensitivity: Size | None
    """How far one unit moves the site's average; null: nothing was bounded."""
    variance: Size
    """Of the site's noise in one number of the weighted answer, at sensitivity 1."""
    mu: dict[str, Size | None]
    """Loss by class of parties."""


class Release(Part):
    """One noisy average over the sites."""

    query: str
    round: Count
    size: Count
    """Numbers in the answer."""
    arm: str
    clip: Size | None
    noise_deviation: Size | None
    """Of the noise in each number; null: a void round, which gave nothing."""
    survivors: list[str]
    """Sites that are in it."""
    sites: dict[str, SiteRelease]


class Promise(Part):
    """The promise of the whole study."""

    epsilon: Size
    mu: Size
    right_guesses: Share
    """Bound on right guesses at two candidates that are equally likely."""
    holds: bool
    """Whether any noise was added for it."""
    kept: bool
    """Whether what was spent is within it."""


class Person(Part):
    """What the promise means for everything of one person; null: not bounded."""

    units: Count | None
    """Most that anybody may have, as each site enforces it."""
    epsilon_at_worst: Size | None
    right_guesses_at_worst: Share | None


class Constant(Part):
    """A public constant of the study file, and where it is from."""

    key: str
    value: str
    source: str
    what: str


class Exact(Part):
    """Something that leaves each site without noise, outside the promise."""

    what: str
    stated_by: str
    sent_as: str
    """Its name in a site's messages; empty: it is in a public file of the study."""


class Digests(Part):
    """SHA-256 of what the record is about."""

    study: str
    """Of the whole study file as it was read."""
    identities: list[str]
    """Names and digests under which ledgers charged this study, stage by stage."""
    package: str
    """Of the package's source files."""


class Dossier(Part):
    """Content of ``privacy.json``."""

    format: str
    study: str
    stamp: str
    """NOT PRIVATE, where data are simulated or public; WEAK PROMISE, above epsilon 10
    for a person; else empty."""
    arm: str
    unit: accounting.Unit
    relation: accounting.Relation
    n_colluding: Count
    aggregator: str
    against: str
    survivor_threshold: Count
    n_sites: Count
    delta: Annotated[float, Field(gt=0, lt=1)]
    noise_ratio: Size
    """Variance of the zero-sum noise over that of the noise that remains."""
    promise: Promise
    person: Person
    people: Count | None
    """Null: not told by anything public."""
    n_units: dict[str, Count]
    """Public numbers of people, or of volumes, by site."""
    asked: dict[str, str]
    """What was asked in each stage, in words."""
    source: str | None
    constants: list[Constant]
    without_noise: list[Exact]
    governance: dict[str, str]
    accepted: dict[str, str]
    """Rules that were set aside, with the reason."""
    assumptions: list[str]
    versions: dict[str, str]
    digests: Digests
    sites: dict[str, SiteTotal]
    releases: list[Release]
    digest: str
    """SHA-256 of all the rest, as JSON without blanks and with sorted keys."""


def digest(record: Mapping[str, Any]) -> str:
    """Digest of a record without its own ``digest``."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def verify(path: Path) -> dict[str, Any]:
    """Check a record against its form, its digest and its own releases.

    A digest finds accidents; who changes a number on purpose can renew it, but not
    make it agree with the releases.

    Parameters
    ----------
    path
        A ``privacy.json``.

    Returns
    -------
    dict
        The record.

    Raises
    ------
    ConfigError
        One line: where, what it should be, what it is.
    """
    try:
        record = json.loads(path.read_text())
        if isinstance(record, dict) and record.get("format") != FORMAT:
            raise ConfigError(
                f"{path}: format: must be {FORMAT!r}, got {record.get('format')!r}; "
                "`capeneuro report` writes the record of a study anew"
            )
        Dossier.model_validate(record)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise ConfigError(f"{path}: must be a privacy.json, got no JSON") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{path}: {where}: {first['msg'].lower()}; the file was changed, or its "
            "releases are those of an older version, which told less"
        ) from None
    for where, said, true in (*_of_releases(record), *_of_record(record)):
        if not _same(said, true):
            raise ConfigError(
                f"{path}: {where}: must be {true} by the releases, got {said}; the "
                "file was changed"
            )
    if record["digest"] != digest(record):
        raise ConfigError(
            f"{path}: digest: must be that of the rest of the file, is of another: "
            "something that no release tells was changed"
        )
    return record


def signed(path: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Public key of each site that signed a record, from ``signatures/`` beside it.

    Which key is whose tells the study's manifest, or the site.

    Raises
    ------
    ConfigError
        If a signature is of another record, of no site in it, or of another key.
    """
    found = {}
    for own in sorted((path.parent / SIGNATURES).glob("*.json")):
        try:
            said = json.loads(own.read_text())
        except ValueError:
            said = {}
        is_site = isinstance(said, dict) and said.get("site") in record["sites"]
        if not is_site or not vouching.has_vouched(said, record["digest"]):
            raise ConfigError(
                f"{own}: must be a site's signature of this record, is not: the record "
                "was written anew since, or the file was changed; ask the site for "
                "another (capeneuro privacy sign)"
            )
        found[said["site"]] = said["key"]
    return found


def in_ledger(
    record: Mapping[str, Any], site: str, charges: Iterable[ReleaseLine]
) -> int:
    """Releases of a record about one site that its ledger has charged, as many.

    Raises
    ------
    ConfigError
        If one of them is not in the ledger.
    """
    identities = record["digests"]["identities"]
    charged: dict[tuple[str, int], list[float]] = {}
    for entry in charges:
        if entry.study in identities:
            charged.setdefault((entry.query, entry.round), []).append(entry.mu)
    own = [one for one in record["releases"] if site in one["sites"]]
    if not own:
        raise ConfigError(f"site {site}: the record has no release about it")
    for one in own:
        key = one["query"], one["round"]
        mu = one["sites"][site]["mu"]["aggregator_and_colluders"]
        if not any(_same(mu, paid) for paid in charged.get(key, [])):
            raise ConfigError(
                f"site {site}: {key[0]}, round {key[1]}: the record says mu {mu}, the "
                f"ledger charged {charged.get(key, 'no such release')}"
            )
    return len(own)


def _of_releases(record: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Numbers of each release: where, as written, and as they follow from the rest."""
    for i, one in enumerate(record["releases"]):
        here, names = f"releases.{i}", list(one["sites"])
        if one["query"] not in QUERIES:
            yield f"{here}.query", one["query"], "a query of this version"
            continue
        query, asked = QUERIES[one["query"]], {"clip": one["clip"]}
        n_units = [one["sites"][name]["n_units"] for name in names]
        gamma = [one["sites"][name]["variance"] for name in names]
        n_dropout = max(len(names) - record["survivor_threshold"], 0)
        coalition = accounting.Coalition(len(names), record["n_colluding"], n_dropout)
        views = cape.views(one["arm"], gamma, record["noise_ratio"], coalition)
        for k, name in enumerate(names):
            own, at = one["sites"][name], f"{here}.sites.{name}"
            yield f"n_units.{name}", record["n_units"].get(name), own["n_units"]
            if one["clip"] is not None:
                t = query.sensitivity(own["n_units"], record["relation"], asked)
                yield f"{at}.sensitivity", own["sensitivity"], t
            for view, mu in views.items():
                true = None if mu is None else float(mu[k])
                yield f"{at}.mu.{view}", own["mu"].get(view), true
        if one["clip"] is None or not one["survivors"]:
            continue
        t = query.sensitivity(sum(n_units), record["relation"], asked)
        here_is = [name in one["survivors"] for name in names]
        rest = sum(n_units) / np.sum(n_units, where=here_is)
        drawn = np.sum(gamma, where=here_is if one["arm"] != "pooled" else True)
        true = float(rest * t * np.sqrt(drawn))
        yield f"{here}.noise_deviation", one["noise_deviation"], true


def _of_record(record: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Totals: where, as written, and as they follow from the releases."""
    delta, promise, releases = record["delta"], record["promise"], record["releases"]
    mu = accounting.mu_from_epsilon(promise["epsilon"], delta)
    yield "promise.mu", promise["mu"], mu
    yield (
        "promise.right_guesses",
        promise["right_guesses"],
        accounting.right_guesses(mu),
    )
    worst, holds, kept = mu, True, True
    for name, said in record["sites"].items():
        own = [one["sites"][name] for one in releases if name in one["sites"]]
        here = f"sites.{name}"
        yield f"{here}.releases", said["releases"], len(own)
        n = sum(name in one["survivors"] for one in releases)
        yield f"{here}.present", said["present"], n
        for view in cape.VIEWS:
            mus = [site["mu"][view] for site in own]
            exact = None in mus
            true = None if exact else accounting.epsilons(mus, delta)
            if exact or said[view] is None:
                yield f"{here}.{view}", said[view], true
                continue
            for way, epsilon in true.items():
                yield f"{here}.{view}.{way}", said[view][way], epsilon
        charged = [site["mu"]["aggregator_and_colluders"] for site in own]
        holds &= all(charged)
        own_promise = accounting.mu_from_epsilon(said["promise"], delta)
        worst = max(worst, own_promise)
        total = accounting.compose([one or 0.0 for one in charged])
        kept &= None not in charged and total <= own_promise * (1 + TOLERANCE)
    yield "promise.holds", promise["holds"], holds
    yield "promise.kept", promise["kept"], kept
    person = record["person"]
    n = 1 if record["unit"] == "subject" else person["units"]
    yield "person.units", person["units"], n
    true = None if n is None else accounting.person_epsilon(worst, n, delta)
    yield "person.epsilon_at_worst", person["epsilon_at_worst"], true
    true = None if n is None else accounting.right_guesses(n * worst)
    yield "person.right_guesses_at_worst", person["right_guesses_at_worst"], true
    if record["unit"] == "subject" and len(record["n_units"]) == record["n_sites"]:
        yield "people", record["people"], sum(record["n_units"].values())


def _same(said: Any, true: Any) -> bool:
    if isinstance(said, float) and isinstance(true, float | int):
        return bool(np.isclose(said, true, rtol=TOLERANCE, atol=0))
    return said == true


def _person_in_words(record: Mapping[str, Any]) -> str:
    person = record["person"]
    if person["units"] is None:
        return "not bounded"
    return (
        f"epsilon {person['epsilon_at_worst']:.6g} at worst ({person['units']} units)"
    )


def schema() -> str:
    """The form of every record, as JSON schema."""
    return json.dumps(Dossier.model_json_schema(), indent=1) + "\n"


def registry(record: Mapping[str, Any]) -> str:
    """The record as an entry of the OpenDP registry of deployments, tier 3, in YAML.

    The entry's form is that of ``schemas/deployments-schema.yaml`` in
    opendp/deployments-registry-data. What no record tells is left to be filled in.
    """
    governed, unknown = record["governance"], "TO BE FILLED IN"
    unit, p = protection.UNITS[record["unit"]], record["promise"]
    model = {"network", "regression"} & record["asked"].keys()
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    bounds = "; ".join(f"{c['key']} = {c['value']}" for c in record["constants"])
    answers = {one["query"] for one in record["releases"]}
    content = {
        "url_slug": "-".join([record["study"].lower().replace("_", "-"), "capeneuro"]),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": record["study"],
                "data_curators": [governed.get("controller", unknown)],
                "intended_use": governed.get("purpose", unknown),
                "data_product_type": "Machine learning model"
                if model
                else "Summary statistics",
                "data_product_region": unknown,
                "description": "Analysis of the brain imaging of "
                f"{protection.who(record)}; stages and what they ask: "
                + "; ".join(f"{k}: {v}" for k, v in record["asked"].items()),
                "publication_date": date.today().isoformat(),
                "data_product_sector": "Healthcare",
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": "All data sets with the same public number of units at "
                "each site.",
                "unprotected_quantities": "Numbers of units per site "
                f"({', '.join(f'{k}: {v}' for k, v in record['n_units'].items())}), "
                "masks, bases, bounds, clips, and the list of sites.",
            },
            "privacy_loss": {
                "privacy_unit": unit,
                "privacy_unit_details": f"Relation {record['relation']}: two data sets "
                f"are neighbors if they differ in {unit}. A person who takes part at "
                "two sites has the sum of both losses mu.",
                "privacy_parameters": {
                    "epsilon": p["epsilon"],
                    "delta": record["delta"],
                },
                "privacy_parameters_details": f"Of all releases together, against "
                f"{record['against']}; mu = {p['mu']:.6g} of Gaussian differential "
                f"privacy. For everything of a person: {_person_in_words(record)}.",
            },
            "deployment_model": {
                "model_name": "Federated",
                "model_name_details": f"Each of {record['n_sites']} sites adds noise "
                f"before anything leaves; arm {record['arm']}.",
                "actors": f"Sites, which trust themselves; an aggregator ("
                f"{record['aggregator']}); readers. {' '.join(record['assumptions'])}",
                "release_type": "One release",
                "release_type_details": "Other studies of the same people are counted "
                "by each site's own ledger, up to the site's ceiling.",
                "data_source_type": "Static",
                "data_source_type_details": "Data that change are a second spend.",
                "access_type": "Non-interactive",
                "access_type_details": "What was asked is fixed in the study file.",
            },
            "accounting": {
                "post_processing": "All results are computed from the noisy averages.",
                "composition": "Adaptive Gaussian releases, composed exactly (Gaussian "
                f"differential privacy); {len(record['releases'])} releases of "
                f"{', '.join(sorted(answers))}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Within each person only. "
                f"Public constants: {bounds}. Their source: {record['source']}.",
                "mechanisms": "Gaussian mechanism on clipped averages, rounded to a "
                f"public grid; {versions}.",
                "justification": "; ".join(
                    f"{rule} was set aside: {why}"
                    for rule, why in record["accepted"].items()
                )
                or "No rule was set aside.",
            },
            "administrative": {
                "sources": "https://doi.org/10.1109/TSP.2021.3126546",
                "notes": f"SHA-256 of the privacy record: {record['digest']}. "
                f"{record['stamp']}".strip(),
                "registry_authors": [governed.get("contact", unknown)],
            },
        },
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
