"""The kinds of study, one entry each: its steps, its rules and its files."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from capeneuro import forecast, fusion, onsite, steps, views
from capeneuro.config import Config, FusionConfig, SiteConfig, Study
from capeneuro.consortium import Sites
from capeneuro.federation import Federation


class Kind(NamedTuple):
    """What a kind of study consists of."""

    rules: str
    """Name of its file of Snakemake rules."""
    steps: Mapping[str, Callable[..., None]]
    """Its steps in their order, by the name of their command."""
    over: Callable[[Federation, Study, Sites], None]
    """All steps over all sites, wherever these work."""
    inputs: Callable[[Study, SiteConfig], list[str]]
    """Files of a site that its features depend on."""
    public_files: Callable[[Study], list[str]]
    """Public files that define the features."""
    released: Callable[[Study], list[str]]
    """Files that the steps over all sites write."""
    shown: Callable[[Study], list[str]]
    """Files that `maps` writes."""
    kept: str
    """File of a site that `reconstruct` writes last."""
    score_inputs: Callable[[Study], list[str]]
    """Files that the results are compared with."""


KINDS: dict[type[Study], Kind] = {
    Config: Kind(
        rules="components",
        steps={
            "validate": steps.validate,
            "plan": forecast.plan,
            "prepare": onsite.prepare,
            "pca": steps.pca,
            "ica": steps.ica,
            "maps": steps.maps,
            "reconstruct": onsite.reconstruct,
            "score": steps.score,
            "report": steps.report,
        },
        over=steps.all_over,
        inputs=onsite.inputs,
        public_files=steps.public_files,
        released=steps.released,
        shown=steps.shown,
        kept=onsite.KEPT,
        score_inputs=steps.score_inputs,
    ),
    FusionConfig: Kind(
        rules="fusion",
        steps={
            "validate": fusion.validate,
            "plan": forecast.plan_fusion,
            "prepare": fusion.prepare,
            "cca": fusion.cca,
            "maps": fusion.maps,
            "reconstruct": fusion.reconstruct,
            "score": fusion.score,
            "report": fusion.report,
        },
        over=fusion.cca_over,
        inputs=views.inputs,
        public_files=views.public_files,
        released=fusion.released,
        shown=fusion.shown,
        kept=fusion.KEPT,
        score_inputs=fusion.score_inputs,
    ),
}


def of(study: Study) -> Kind:
    """Look up the kind of a study."""
    return KINDS[type(study)]
