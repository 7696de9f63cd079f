"""Decisions that a study leaves open, or to a default that matters."""

from collections.abc import Iterator, Mapping

from capeneuro.config import scaffold
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.privacy import accounting


def open_decisions(
    study: StudyConfig, sites: Mapping[str, SiteConfig]
) -> Iterator[str]:
    """List keys that somebody should decide, each with its value and the consequence.

    Parameters
    ----------
    study, sites
        The study, and its sites as far as their files are here.
    """
    if study.arm == "non-private":
        return
    is_private = any(site.data == "private" for site in sites.values())
    if study.aggregator is None:
        S, n_colluding = len(study.sites), study.budget.n_colluding
        at_none = accounting.coalition(S, n_colluding, independent=True)
        gain = "takes less noise" if at_none < study.n_colluding else "promises more"
        yield (
            "aggregator: null, so it counts as a site more that may collude; "
            f"`independent` if it sits at no site, which {gain}"
        )
    if study.budget.n_colluding is None:
        yield f"budget.n_colluding: null, so the promise is against {study.adversary}"
    if is_private and study.source == scaffold.FILL_IN["source"]:
        yield "source: as capeneuro init writes it; say where bounds come from"
    elif is_private and (study.source or "").endswith(scaffold.RULES_OF_INIT):
        yield (
            f"source: {scaffold.RULES_OF_INIT}, which holds for its own numbers; say "
            "also where those come from that you changed, as of covariates"
        )
    # Where sites are apart the lead, who writes the study file, has no site's file.
    is_lead = not sites if study.is_apart else is_private
    if is_lead and not any(vars(study.governance).values()):
        yield "governance: names nobody who answers for the study"
    for name, site in sites.items():
        promised = study.promise_of(name).epsilon
        if site.data == "private" and site.epsilon <= promised:
            consequence = "leaves no second one"
            if site.epsilon < promised:
                consequence = f"is below this one's {promised:g}: it will be refused"
            ceiling = f"{site.epsilon:g}, the ceiling of all studies"
            yield f"epsilon of {name}: {ceiling}, {consequence}"
    contrast = getattr(study, "contrast", None)
    if contrast is not None and contrast.covariance is None:
        yield (
            "contrast.covariance: null, so one release more finds where outcomes lie "
            "in their bounds, and the forecast takes these to be uncorrelated"
        )
    if contrast is not None and contrast.primary is None and len(contrast.covariates):
        yield (
            "contrast.primary: null, so verdicts are corrected for all effects, and "
            "the noise of these is alike"
        )
