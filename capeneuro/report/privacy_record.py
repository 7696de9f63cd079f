"""The privacy record, and the other files that stand beside every released file."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from capeneuro.config.load import every_kind
from capeneuro.config.study import WEAK_EPSILON, StudyConfig
from capeneuro.data import files
from capeneuro.privacy import accountants, accounting, parties
from capeneuro.report import privacy_schema, protection

# A second opinion on the record, which imports nothing of this package.
VERIFIER = "capeneuro-verify.py"
PACKAGES = ("capeneuro", "numpy", "scipy", "nibabel", "nilearn", "cryptography")


def versions() -> dict[str, str]:
    """Versions of the software that computed the numbers."""
    of_packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **of_packages}


def write_beside(config: StudyConfig, folder: Path) -> None:
    """Write the files beside every released file: privacy, configuration, BIDS.

    Reads the releases and the sites' kinds of data that each result file carries, so it
    may run after any step, and where no site's file is.
    """
    if folder == config.results:  # of all stages there is one record
        config, folder = config.full_study, config.full_study.results
    releases, kinds, accepted, given_up = [], {}, {}, {}
    # Of all kinds: whatever was released under the study's name is in its record.
    names = [step.file for c in every_kind() for step in c.release_steps.values()]
    stages = [folder / stage for stage in config.members]
    for path in (stage / name for stage in stages for name in names):
        if path.exists():
            arrays = files.read_arrays(path)
            releases += json.loads(str(arrays["releases"]))
            kinds |= json.loads(str(arrays["sites"]))
            # Exceptions when it was released; the study file may have changed since.
            accepted |= json.loads(str(arrays.get("accepted", "{}")))
            given_up |= json.loads(str(arrays.get("given_up", "{}")))
    record = privacy_record(config, kinds, releases) | {"accepted": accepted}
    record["given_up"] = given_up
    record["digest"] = privacy_schema.digest(record)
    files.write_json(folder / "privacy.json", record)
    files.write_text(folder / VERIFIER, verifier().read_text())
    # Privacy: site files stay out of it; they hold paths and limits.
    content = {
        "stamp": stamp(config, kinds),
        "versions": versions(),
        **shareable(config),
    }
    content["sites"] = sorted(kinds)
    files.write_text(folder / "config.yaml", yaml.safe_dump(content, sort_keys=False))
    description = {
        "Name": f"capeneuro results of {config.study}",
        "BIDSVersion": "1.11.2",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "capeneuro", "Version": versions()["capeneuro"]}],
    }
    files.write_json(folder / "dataset_description.json", description)
    ignored = (
        "group_* privacy.json scores.tsv report.html config.yaml forecast.json "
        f"verdicts.tsv reference/ figures/ signatures/ {VERIFIER}"
    )
    files.write_text(folder / ".bidsignore", "\n".join([*ignored.split(), ""]))


def verifier() -> Path:
    """The program that checks a record without this package, installed or not."""
    package = Path(__file__).parent.parent
    installed = package / "_verify" / VERIFIER
    return installed if installed.exists() else package.parent / "packaging" / VERIFIER


def shareable(config: StudyConfig) -> dict[str, Any]:
    """The study's keys with file names instead of paths."""

    def name(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: name(v) for k, v in value.items()}
        if isinstance(value, tuple | list):
            return [name(v) for v in value]
        return value.name if isinstance(value, Path) else value

    content = name(config.model_dump(exclude={"sites", "stages"}))
    if len(config.members) > 1:
        content["stages"] = {
            stage: {k: v for k, v in shareable(member).items() if k in keys}
            for (stage, member), keys in zip(
                config.members.items(), config.stages.values(), strict=True
            )
        }
    if content.get("space") is not None:
        content["space"]["mask"] = Path(content["space"]["mask"]).name
    erp = content.get("fusion", {}).get("eeg", {})
    if erp.get("montage"):
        erp["montage"] = Path(erp["montage"]).name
    return content


def stamp(config: StudyConfig, kinds: Mapping[str, str]) -> str:
    """Stamp of a study without privacy, or with little; empty: an ordinary promise.

    Parameters
    ----------
    config
        The study.
    kinds
        Kind of data of each site.
    """
    stamped = sorted(set(kinds.values()) - {"private"})
    if stamped:
        return f"NOT PRIVATE: {' and '.join(stamped)} data"
    sites = ("", *config.budget.site_epsilon)
    epsilon = max(config.promise_of(site).epsilon for site in sites)
    if config.budget.unit == "sample":
        epsilon = config.person_epsilon
    if epsilon is not None and epsilon <= WEAK_EPSILON:
        return ""
    bound = "nothing" if epsilon is None else f"no more than epsilon {epsilon:,.4g}"
    return f"WEAK PROMISE: {bound} for everything of a person"


def privacy_record(
    config: StudyConfig, kinds: Mapping[str, str], releases: list[dict[str, Any]]
) -> dict[str, Any]:
    """Promise and spend of a study: the content of ``privacy.json``.

    Per site, epsilon at the promise's delta under each view and accountant. Sites are
    assumed to hold different people: releases about one site do not add to another's.
    ``kinds`` is the kind of data of each site.
    """
    p, person_mu = config.promise, config.person_mu
    n_honest = config.survivor_threshold - p.n_colluding
    rounding = privacy_schema.rounding(
        config.noise, config.noise_ratio, releases, p.epsilon, p.delta
    )
    spent = {}
    by_view = {view: mus_of({"releases": releases}, view) for view in parties.VIEWS}
    for site in kinds:
        mus = {view: losses.get(site, []) for view, losses in by_view.items()}
        of_site = [r for r in releases if site in r["sites"]]
        n_survived = sum(site in r["survivors"] for r in of_site)
        spent[site] = {
            "promise": config.promise_of(site).epsilon,
            "releases": len(of_site),
            "n_survived": n_survived,
        } | {
            view: None
            if None in mus[view]
            else accountants.epsilons(mus[view], p.delta)
            for view in parties.VIEWS
        }
    return {
        "format": privacy_schema.FORMAT,
        "study": config.study,
        "stamp": stamp(config, kinds),
        "arm": config.arm,
        "unit": p.unit,
        "relation": p.relation,
        "n_colluding": p.n_colluding,
        "aggregator": config.aggregator or "not declared, counted as a site",
        "adversary": config.adversary,
        "survivor_threshold": config.survivor_threshold,
        "n_sites": len(config.sites),
        "delta": p.delta,
        "promise": {
            "epsilon": p.epsilon,
            "mu": p.mu,
            "attack_accuracy_bound": accounting.attack_accuracy_bound(p.mu),
            "has_noise": all(
                site["mu"]["aggregator_and_colluders"]
                for r in releases
                for site in r["sites"].values()
            ),
            "within_promise": all(
                _is_within_promise(config, site, releases) for site in kinds
            ),
        },
        "person": {
            "units": config.person_units,
            "epsilon_at_worst": config.person_epsilon,
            "attack_accuracy_bound": None
            if person_mu is None
            else accounting.attack_accuracy_bound(person_mu),
        },
        "people": _people(config, releases),
        "n_units": protection.n_units({"releases": releases}),
        "noise_ratio": config.noise_ratio,
        "rounding": rounding,
        "requested": dict(config.queries),
        "source": config.source,
        "constants": _constants(config),
        "without_noise": without_noise(config),
        "governance": config.governance.model_dump(exclude_none=True),
        "accepted": {exception.rule: exception.reason for exception in config.accept},
        "given_up": {},
        "assumptions": [
            "The promise is for all releases of this study, also where its data "
            "changed in between. Another study of the same people spends anew, and "
            "the sites' ledgers add both up.",
            "It is assumed that no person takes part at two sites; someone who does "
            f"has {_at_two_sites(spent, config, releases)}.",
            "Losses are counted for the worst case that the study allows: the noise "
            f"of the honest sites alone (at least {n_honest}), whichever sites "
            "dropped out.",
            *_of_rounding(rounding),
            *_of_a_person(config),
            "How many units (people or volumes) each site has, masks, bases, bounds "
            "and clips are public.",
            "It is assumed that all parties follow the protocol. The parties that the "
            f"promise protects against may pool all that they see: {config.adversary}. "
            "Any other site knows less.",
        ],
        "versions": versions(),
        "digests": {
            "study": config.digest,
            "identities": [member.identity for member in config.members.values()],
            "package": _package(),
        },
        "sites": spent,
        "releases": releases,
    }


def without_noise(config: StudyConfig) -> list[dict[str, str]]:
    """Content that leaves each site without noise in any stage of a study."""
    members = config.full_study.members.values()
    exact = dict.fromkeys(
        description for member in members for description in member.exact_public
    )
    unit, longest = config.budget.unit, config.expected.longest
    waits_for_all = config.survivor_threshold == len(config.sites)
    rows = protection.without_noise(unit, exact, longest, waits_for_all)
    return rows + protection.in_entries() if config.is_apart else rows


@cache
def _package() -> str:
    """SHA-256 of the package's source files, in the order of their names."""
    root, sha256 = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha256.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return sha256.hexdigest()


def _constants(config: StudyConfig) -> list[dict[str, str]]:
    """Public constants of a study, or of all its stages, each once."""
    by_key = {}
    for name, member in config.members.items():
        content, unread = shareable(member), _unread(member)
        for constant in protection.constants(content, unread, _stated(member)):
            key = ".".join(part for part in (name, constant["key"]) if part)
            by_key[key] = constant | {"key": key}
    return [*by_key.values()]


def _stated(section: BaseModel) -> dict[str, Any]:
    """Keys of a section that the study file has, with the sections within."""
    values = {name: getattr(section, name) for name in section.model_fields_set}
    return {
        name: _stated(value) if isinstance(value, BaseModel) else value
        for name, value in values.items()
    }


def _unread(config: StudyConfig) -> dict[str, Any]:
    """Keys that no release of this study depends on, by section."""
    unasked = {stage: True for stage, n in config.n_releases.items() if not n}
    if getattr(getattr(config, "ica", None), "independence", "") == "spatial":
        unasked["ica"] = True
    return {**config.idle, **unasked}


def _of_a_person(config: StudyConfig) -> list[str]:
    """Assumptions of the promise to a person, where the unit is a volume."""
    if config.budget.unit == "subject":
        return []
    if config.person_units is None:
        return [
            "The number of volumes of a person is not bounded, so nothing is promised "
            "for everything of a person."
        ]
    return [
        f"Nobody has more than {config.person_units} volumes, which each site enforces "
        "before it answers; the loss mu for everything of a person is that many times "
        "the loss of one volume."
    ]


def _of_rounding(rounding: Mapping[str, Any]) -> list[str]:
    """Assumption of the promise on the sampler, where noise is drawn as doubles."""
    if not rounding["epsilon"]:
        return []
    return [
        "Normal noise is drawn as doubles, which adds at most epsilon "
        f"{rounding['epsilon']:.1e} and delta {rounding['delta']:.1e} to the promise, "
        "for all releases together (docs/proofs.md)."
    ]


def mus_of(record: Mapping[str, Any], view: str) -> dict[str, list[float | None]]:
    """Loss of each release in a view, by site; None: it was exact."""
    mus_by_site: dict[str, list[float | None]] = {}
    for release in record["releases"]:
        for name, site in release["sites"].items():
            mus_by_site.setdefault(name, []).append(site["mu"][view])
    return mus_by_site


def _people(config: StudyConfig, releases: list[dict[str, Any]]) -> int | None:
    """Number of people in a study: charged, simulated, expected, or unknown (None)."""
    charged = protection.n_units({"releases": releases})
    if config.budget.unit == "subject" and len(charged) == len(config.sites):
        return sum(charged.values())
    if n_simulated := getattr(config.data, "n_subjects", None):
        return n_simulated * len(config.sites)
    return config.expected.people


def _is_within_promise(
    config: StudyConfig, site: str, releases: list[dict[str, Any]]
) -> bool:
    """Whether a site's releases together keep its promise.

    They may not where some are an older plan's: each site counts by study.
    """
    parts = [r["sites"][site] for r in releases if site in r["sites"]]
    mus = [part["mu"]["aggregator_and_colluders"] for part in parts]
    return None not in mus and config.promise_of(site).admits(accounting.compose(mus))


def _at_two_sites(
    spent: dict[str, dict[str, Any]],
    config: StudyConfig,
    releases: list[dict[str, Any]],
) -> str:
    """Bound for someone whose data lie at two sites: their losses mu add up."""
    if any(views["aggregator_and_colluders"] is None for views in spent.values()):
        return "no promise"
    mus = []
    for site in spent:  # releases of an older plan may have cost more than promised now
        losses = [r["sites"][site]["mu"] for r in releases if site in r["sites"]]
        charged = accounting.compose([mu["aggregator_and_colluders"] for mu in losses])
        mus.append(max(config.promise_of(site).mu, charged))
    mus.sort()
    epsilon = accounting.epsilon_from_mu(sum(mus[-2:]), config.promise.delta)
    return f"epsilon {epsilon:.3g} at most, for the two losses (mu) add up"
