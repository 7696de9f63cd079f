"""The ceiling and the rules that a site's own file and the study's set."""

from typing import Any

from capeneuro.config.names import plain
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.requests import COOPERATIVE_ARMS
from capeneuro.privacy import accounting


def open_ledger(site: SiteConfig) -> Ledger:
    """Open a site's ledger with its ceiling, and its second place if it has one."""
    ceiling = accounting.Budget(site.epsilon, site.delta, site.unit, "replace-one", 0)
    cohort = site.cohort or ""
    return Ledger(
        site.ledger, ceiling, site.second_place, cohort, site.data, spelling=plain
    )


def stages_of(study: StudyConfig) -> tuple[str, ...]:
    """Identities of all stages of the study that this is a stage of."""
    return tuple(member.identity for member in study.full_study.members.values())


def agreed_fields(study: StudyConfig) -> dict[str, Any]:
    """Fields of a request that this study file fixes."""
    fields = {
        "study": study.identity,
        "arm": study.arm,
        "unit": study.budget.unit,
        "relation": study.budget.relation,
        "noise": study.noise,
    }
    if study.arm in COOPERATIVE_ARMS:
        fields |= {
            "n_colluding": study.n_colluding,
            "consistency": study.consistency,
            "noise_ratio": study.noise_ratio,
            "waits_for_all": study.survivor_threshold == len(study.sites),
        }
        if not fields["waits_for_all"]:
            fields["survivor_threshold"] = study.survivor_threshold
    return fields


def least_colluding(study: StudyConfig, site: SiteConfig) -> int:
    """Smallest coalition that a site wants a study to guard against."""
    S, independent = len(study.sites), study.is_independent
    return accounting.coalition(S, site.min_colluding, independent)
