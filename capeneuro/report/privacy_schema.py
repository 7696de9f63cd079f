"""The privacy record as others can check it: its form, its sums, its export."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capeneuro.config.errors import ConfigError
from capeneuro.federation import vouching
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.requests import EXACT_ARMS
from capeneuro.privacy import accountants, accounting, parties, ring
from capeneuro.privacy import rounding as rounding_cost
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import protection

FORMAT = "capeneuro-privacy-3"
SIGNATURES = "signatures"
# Relative difference of numbers that are recomputed, on another machine as well.
TOLERANCE = 1e-9
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[float, Field(ge=0)]


class RecordPart(BaseModel):
    """A part of the record: no unknown keys."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SpentRecord(RecordPart):
    """Epsilon at the record's delta, as it is counted in three ways."""

    gdp: Size
    """Exact, of Gaussian releases; what budgets count."""
    rdp: Size
    """By Renyi differential privacy (moments accountant)."""
    basic: Size
    """By basic composition."""


class SiteRecord(RecordPart):
    """Promise to one site's people, and the part of it that was spent."""

    promise: Size
    """Epsilon."""
    releases: Count
    n_survived: Count
    """Releases that the site is in; it was charged for all."""
    reader: SpentRecord | None
    partner: SpentRecord | None
    partners: SpentRecord | None
    aggregator: SpentRecord | None
    aggregator_and_colluders: SpentRecord | None
    """The class that ledgers charge; null, here and above: exact numbers were seen."""
    site_as_aggregator: SpentRecord | None


class SiteReleaseRecord(RecordPart):
    """One site's part in one release."""

    n_units: Count
    """Public number of people, or of volumes, of the site."""
    sensitivity: Size | None
    """How far one unit moves the site's average; null: nothing was bounded."""
    variance: Size
    """Of the site's noise in one number of the weighted answer, at sensitivity 1."""
    mu: dict[str, Size | None]
    """Loss by class of parties."""


class ReleaseRecord(RecordPart):
    """One noisy average over the sites."""

    query: str
    round: Count
    size: Count
    """Numbers in the answer."""
    arm: str
    clip: Size | None
    distance: Size | None = None
    """Largest distance of two units over the clip, where parts of the answer that were
    asked for decide it; null: the query's own."""
    noise_deviation: Size | None
    """Of the noise in each number; null: a void round, which gave nothing."""
    survivors: list[str]
    """Sites that are in it."""
    sites: dict[str, SiteReleaseRecord]


class PromiseRecord(RecordPart):
    """The promise of the whole study."""

    epsilon: Size
    mu: Size
    attack_accuracy_bound: Share
    """Bound on the accuracy of an attack that has to choose the true one of two
    candidates that are equally likely."""
    has_noise: bool
    """Whether noise was added to every release."""
    within_promise: bool
    """Whether the releases of every site together are within its promise."""


class GivenUpRecord(RecordPart):
    """Why a site was given up, and when."""

    reason: str
    on: str


class PersonRecord(RecordPart):
    """The promise for all data of one person; null: not bounded."""

    units: Count | None
    """Most that anybody may have, as each site enforces it."""
    epsilon_at_worst: Size | None
    attack_accuracy_bound: Share | None


class ConstantRecord(RecordPart):
    """A public constant of the study file, and where it is from."""

    key: str
    value: str
    source: str
    description: str


class ExactRecord(RecordPart):
    """Something that leaves each site without noise, outside the promise."""

    description: str
    stated_by: str
    sent_as: str
    """Its name in a site's messages; empty: it is in a public file of the study, or in
    the site's entry."""


class RoundingRecord(RecordPart):
    """Addition to the promise for noise that is drawn as doubles; docs/proofs.md."""

    noise: str
    """Sampler of the sites: ``rounded``, or ``exact``, which adds nothing."""
    epsilon: Size
    delta: Size


class DigestsRecord(RecordPart):
    """SHA-256 of the study, the package and the stages."""

    study: str
    """Of the whole study file as it was read."""
    identities: list[str]
    """Names and digests under which ledgers charged this study, stage by stage."""
    package: str
    """Of the package's source files."""


class PrivacyRecord(RecordPart):
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
    adversary: str
    """Parties that the promise protects against, in words."""
    survivor_threshold: Count
    n_sites: Count
    delta: Annotated[float, Field(gt=0, lt=1)]
    noise_ratio: Size
    """Variance of the zero-sum noise over that of the noise that remains."""
    rounding: RoundingRecord | None = None
    """Null in records from before it was counted."""
    promise: PromiseRecord
    person: PersonRecord
    people: Count | None
    """Null: no public number."""
    n_units: dict[str, Count]
    """Public numbers of people, or of volumes, by site."""
    requested: dict[str, str]
    """Queries of each stage, in words."""
    source: str | None
    constants: list[ConstantRecord]
    without_noise: list[ExactRecord]
    governance: dict[str, str]
    accepted: dict[str, str]
    """Rules that were set aside, with the reason."""
    given_up: dict[str, GivenUpRecord] = {}
    """Sites that were gone for good, as somebody decided; in releases after that they
    are not."""
    assumptions: list[str]
    versions: dict[str, str]
    digests: DigestsRecord
    sites: dict[str, SiteRecord]
    releases: list[ReleaseRecord]
    digest: str
    """SHA-256 of all the rest, as JSON without blanks and with sorted keys."""


def digest(record: Mapping[str, Any]) -> str:
    """Digest of a record without its own ``digest``."""
    content = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def rounding(
    noise: str,
    noise_ratio: float,
    releases: Iterable[Mapping[str, Any]],
    epsilon: float,
    delta: float,
) -> dict[str, Any]:
    """Cost of rounded noise in all releases together, as a record has it.

    Parameters
    ----------
    noise, noise_ratio
        Sampler, and variance of the zero-sum noise over that of the other.
    releases
        As in the record.
    epsilon, delta
        The promise.

    Returns
    -------
    dict
        Content of :class:`RoundingRecord`.
    """
    draws = [] if noise == "exact" else [*_draws(noise_ratio, [*releases])]
    cost = rounding_cost.cost(draws, epsilon, delta)
    return {"noise": noise, "epsilon": cost.epsilon, "delta": cost.delta}


def _draws(
    noise_ratio: float, releases: list[Mapping[str, Any]]
) -> Iterable[rounding_cost.Draws]:
    """Draws of the sites in private releases, with the coarsest doubles that may be."""
    private = [
        release
        for release in releases
        if release.get("clip") is not None and release["arm"] not in EXACT_ARMS
    ]
    longest = max((release["size"] for release in private), default=0)
    for release in private:
        variances = [site["variance"] for site in release["sites"].values()]
        size = release["size"] or longest  # a void round does not say its size
        for variance in variances:
            deviation = ring.LARGEST_STEPS * math.sqrt(variance / min(variances))
            yield rounding_cost.Draws(size, deviation)
            if release["arm"] == "cape":
                yield rounding_cost.Draws(size, deviation * math.sqrt(noise_ratio))


def verify(path: Path) -> dict[str, Any]:
    """Check a record against its form, its digest and its own releases.

    A digest finds accidents. After a deliberate change of a number it can be renewed,
    but the number no longer agrees with the releases.

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
        PrivacyRecord.model_validate(record)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise ConfigError(f"{path}: must be a privacy.json, got no JSON") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{path}: {key}: {first['msg'].lower()}; the file was changed, or its "
            "releases are those of an older version, which recorded less"
        ) from None
    for key, written, recomputed in (*_of_releases(record), *_of_record(record)):
        if not _same(written, recomputed):
            raise ConfigError(
                f"{path}: {key}: must be {recomputed} by the releases, got {written}; "
                "the file was changed"
            )
    if record["digest"] != digest(record):
        raise ConfigError(
            f"{path}: digest: must be that of the rest of the file, is of another; a "
            "part of the file that does not follow from the releases was changed"
        )
    return record


def signed(path: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """Public key of each site that signed a record, from ``signatures/`` beside it.

    The study's manifest, or the site, confirms which key is the site's.

    Raises
    ------
    ConfigError
        If a signature is of another record, of no site in it, or of another key.
    """
    keys = {}
    for file in sorted((path.parent / SIGNATURES).glob("*.json")):
        try:
            signature = json.loads(file.read_text())
        except ValueError:
            signature = {}
        names_site = isinstance(signature, dict) and "site" in signature
        is_site = names_site and signature["site"] in record["sites"]
        if not is_site or not vouching.has_vouched(signature, record["digest"]):
            raise ConfigError(
                f"{file}: must be a site's signature of this record, is not: the "
                "record was written anew since, or the file was changed; ask the site "
                "for another (capeneuro privacy sign)"
            )
        keys[signature["site"]] = signature["key"]
    return keys


def in_ledger(
    record: Mapping[str, Any], site: str, charges: Iterable[ReleaseLine]
) -> int:
    """Number of a record's releases with one site, all charged in its ledger.

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
    releases = [release for release in record["releases"] if site in release["sites"]]
    if not releases:
        raise ConfigError(f"site {site}: the record has no release about it")
    for release in releases:
        key = release["query"], release["round"]
        mu = release["sites"][site]["mu"]["aggregator_and_colluders"]
        if not any(_same(mu, charged_mu) for charged_mu in charged.get(key, [])):
            raise ConfigError(
                f"site {site}: {key[0]}, round {key[1]}: the record says mu {mu}, the "
                f"ledger charged {charged.get(key, 'no such release')}"
            )
    return len(releases)


def _of_releases(record: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Numbers of each release: key, value in the file, and recomputed value."""
    for i, release in enumerate(record["releases"]):
        at_release, names = f"releases.{i}", list(release["sites"])
        if release["query"] not in QUERIES:
            yield f"{at_release}.query", release["query"], "a query of this version"
            continue
        query, clip_options = QUERIES[release["query"]], {"clip": release["clip"]}
        distance = release.get("distance")
        if query.distance is None:
            yield f"{at_release}.distance", distance, None
        elif distance is None or not math.sqrt(2.0) <= distance <= 2.0:
            yield f"{at_release}.distance", distance, "from sqrt(2) to 2"
            continue
        else:
            query = replace(query, distance=lambda _, distance=distance: distance)
        n_units = [release["sites"][name]["n_units"] for name in names]
        gamma = [release["sites"][name]["variance"] for name in names]
        n_dropout = max(len(names) - record["survivor_threshold"], 0)
        coalition = accounting.Coalition(len(names), record["n_colluding"], n_dropout)
        views = parties.views(release["arm"], gamma, record["noise_ratio"], coalition)
        for k, name in enumerate(names):
            part, at_site = release["sites"][name], f"{at_release}.sites.{name}"
            yield f"n_units.{name}", record["n_units"].get(name), part["n_units"]
            if release["clip"] is not None:
                sensitivity = query.sensitivity(
                    part["n_units"], record["relation"], clip_options
                )
                yield f"{at_site}.sensitivity", part["sensitivity"], sensitivity
            for view, mu in views.items():
                recomputed = None if mu is None else float(mu[k])
                yield f"{at_site}.mu.{view}", part["mu"].get(view), recomputed
        if release["clip"] is None or not release["survivors"]:
            continue
        sensitivity = query.sensitivity(sum(n_units), record["relation"], clip_options)
        is_survivor = [name in release["survivors"] for name in names]
        reweighting = sum(n_units) / np.sum(n_units, where=is_survivor)
        variance = np.sum(
            gamma, where=is_survivor if release["arm"] != "pooled" else True
        )
        recomputed = float(reweighting * sensitivity * np.sqrt(variance))
        yield f"{at_release}.noise_deviation", release["noise_deviation"], recomputed


def _of_record(record: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """Totals: key, value in the file, and value recomputed from the releases."""
    delta, promise, releases = record["delta"], record["promise"], record["releases"]
    mu = accounting.mu_from_epsilon(promise["epsilon"], delta)
    yield "promise.mu", promise["mu"], mu
    yield (
        "promise.attack_accuracy_bound",
        promise["attack_accuracy_bound"],
        accounting.attack_accuracy_bound(mu),
    )
    worst, has_noise, within_promise = mu, True, True
    for name, total in record["sites"].items():
        parts = [
            release["sites"][name] for release in releases if name in release["sites"]
        ]
        at_site = f"sites.{name}"
        yield f"{at_site}.releases", total["releases"], len(parts)
        n = sum(name in release["survivors"] for release in releases)
        yield f"{at_site}.n_survived", total["n_survived"], n
        for view in parties.VIEWS:
            mus = [site["mu"][view] for site in parts]
            exact = None in mus
            recomputed = None if exact else accountants.epsilons(mus, delta)
            if exact or total[view] is None:
                yield f"{at_site}.{view}", total[view], recomputed
                continue
            for way, epsilon in recomputed.items():
                yield f"{at_site}.{view}.{way}", total[view][way], epsilon
        charged = [site["mu"]["aggregator_and_colluders"] for site in parts]
        has_noise &= all(charged)
        site_mu = accounting.mu_from_epsilon(total["promise"], delta)
        worst = max(worst, site_mu)
        spent = accounting.compose([loss or 0.0 for loss in charged])
        within_promise &= None not in charged and spent <= site_mu * (1 + TOLERANCE)
    if written := record.get("rounding"):
        cost = rounding(
            written["noise"],
            record["noise_ratio"],
            releases,
            promise["epsilon"],
            delta,
        )
        for part in ("epsilon", "delta"):
            yield f"rounding.{part}", written[part], cost[part]
    yield "promise.has_noise", promise["has_noise"], has_noise
    yield "promise.within_promise", promise["within_promise"], within_promise
    person = record["person"]
    n = 1 if record["unit"] == "subject" else person["units"]
    yield "person.units", person["units"], n
    recomputed = None if n is None else accountants.person_epsilon(worst, n, delta)
    yield "person.epsilon_at_worst", person["epsilon_at_worst"], recomputed
    bound = None if n is None else accounting.attack_accuracy_bound(n * worst)
    yield "person.attack_accuracy_bound", person["attack_accuracy_bound"], bound
    if record["unit"] == "subject" and len(record["n_units"]) == record["n_sites"]:
        yield "people", record["people"], sum(record["n_units"].values())


def _same(written: Any, recomputed: Any) -> bool:
    if isinstance(written, float) and isinstance(recomputed, float | int):
        return bool(np.isclose(written, recomputed, rtol=TOLERANCE, atol=0))
    return written == recomputed


def _person_in_words(record: Mapping[str, Any]) -> str:
    person = record["person"]
    if person["units"] is None:
        return "not bounded"
    return (
        f"epsilon {person['epsilon_at_worst']:.6g} at worst ({person['units']} units)"
    )


def schema() -> str:
    """The form of every record, as JSON schema."""
    return json.dumps(PrivacyRecord.model_json_schema(), indent=1) + "\n"


def registry(record: Mapping[str, Any]) -> str:
    """The record as an entry of the OpenDP registry of deployments, tier 3, in YAML.

    The entry's form is that of ``schemas/deployments-schema.yaml`` in
    opendp/deployments-registry-data. Fields that no record has are left to fill in.
    """
    governed, unknown = record["governance"], "TO BE FILLED IN"
    unit, p = protection.UNITS[record["unit"]], record["promise"]
    model = {"network", "regression"} & record["requested"].keys()
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    bounds = "; ".join(f"{c['key']} = {c['value']}" for c in record["constants"])
    answers = {release["query"] for release in record["releases"]}
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
                f"{protection.participants(record)}; stages and their queries: "
                + "; ".join(f"{k}: {v}" for k, v in record["requested"].items()),
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
                f"{record['adversary']}; mu = {p['mu']:.6g} of Gaussian differential "
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
                "access_type_details": "The study file fixes all queries.",
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
                    f"{rule} was set aside: {reason}"
                    for rule, reason in record["accepted"].items()
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
