"""The kinds of study, one entry each: its steps, its rules and its files."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from capeneuro.config.components import ComponentsConfig
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import Study
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import rows as row_files
from capeneuro.data import views
from capeneuro.federation.in_process import Federation
from capeneuro.studies import components, fusion, plan, row_results, rows
from capeneuro.studies.sites import Sites


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
    ComponentsConfig: Kind(
        rules="components",
        steps={
            "validate": components.validate,
            "plan": plan.plan,
            "prepare": components.prepare,
            "pca": components.pca,
            "ica": components.ica,
            "maps": components.maps,
            "reconstruct": components.reconstruct,
            "score": components.score,
            "report": components.report,
        },
        over=components.all_over,
        inputs=components.inputs,
        public_files=components.public_files,
        released=components.released,
        shown=components.shown,
        kept=components.KEPT,
        score_inputs=components.score_inputs,
    ),
    FusionConfig: Kind(
        rules="fusion",
        steps={
            "validate": fusion.validate,
            "plan": plan.plan_fusion,
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


_ROWS = {
    "validate": rows.validate,
    "plan": plan.plan_rows,
    "prepare": rows.prepare,
    "maps": row_results.maps,
    "reconstruct": rows.reconstruct,
    "score": row_results.score,
    "report": row_results.report,
}


def _of_rows(command: str) -> Kind:
    """A kind of study of rows: its step over all sites comes after `prepare`."""
    before, after = dict(list(_ROWS.items())[:3]), dict(list(_ROWS.items())[3:])
    return Kind(
        rules="rows",
        steps={**before, command: rows.run, **after},
        over=rows.over,
        inputs=row_files.inputs,
        public_files=row_files.public_files,
        released=row_results.released,
        shown=row_results.shown,
        kept=rows.KEPT,
        score_inputs=row_results.score_inputs,
    )


KINDS |= {
    TensorConfig: _of_rows("tensors"),
    RegressionConfig: _of_rows("regression"),
    NetworkConfig: _of_rows("network"),
}


def of(study: Study) -> Kind:
    """Look up the kind of a study."""
    return KINDS[type(study)]
