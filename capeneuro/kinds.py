"""The kinds of study, one entry each: its steps, its rules and its files."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from capeneuro import (
    forecast,
    fusion,
    onsite,
    row_data,
    row_results,
    row_steps,
    steps,
    views,
)
from capeneuro.config import (
    Config,
    FusionConfig,
    NetworkConfig,
    RegressionConfig,
    SiteConfig,
    Study,
    TensorConfig,
)
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


_ROWS = {
    "validate": row_steps.validate,
    "plan": forecast.plan_rows,
    "prepare": row_steps.prepare,
    "maps": row_results.maps,
    "reconstruct": row_steps.reconstruct,
    "score": row_results.score,
    "report": row_results.report,
}


def _of_rows(command: str, step: Callable[..., None]) -> Kind:
    """A kind of study of rows: its step over all sites comes after `prepare`."""
    before, after = dict(list(_ROWS.items())[:3]), dict(list(_ROWS.items())[3:])
    return Kind(
        rules="rows",
        steps={**before, command: step, **after},
        over=row_steps.over,
        inputs=row_data.inputs,
        public_files=row_data.public_files,
        released=row_results.released,
        shown=row_results.shown,
        kept=row_steps.KEPT,
        score_inputs=row_results.score_inputs,
    )


KINDS |= {
    TensorConfig: _of_rows("tensors", row_steps.tensors),
    RegressionConfig: _of_rows("regression", row_steps.regress),
    NetworkConfig: _of_rows("network", row_steps.network),
}


def of(study: Study) -> Kind:
    """Look up the kind of a study."""
    return KINDS[type(study)]
