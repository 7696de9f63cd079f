"""The kinds of study, one entry each: its steps, its rules and its files."""

from functools import partial

from capeneuro.config.components import ComponentsConfig
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.study import Study
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import views
from capeneuro.studies import components, fusion, network, regression, tensors
from capeneuro.studies.flow import Kind
from capeneuro.studies.plan import plan

KINDS: dict[type[Study], Kind] = {
    ComponentsConfig: Kind(
        name="components",
        steps={
            "validate": components.validate,
            "plan": partial(plan, components.foretell),
            "prepare": components.prepare,
            "pca": components.pca,
            "ica": components.ica,
            "maps": components.maps,
            "reconstruct": components.reconstruct,
            "score": components.score,
            "report": components.report,
        },
        foretell=components.foretell,
        over=components.all_over,
        inputs=components.inputs,
        public_files=components.public_files,
        released=components.released,
        shown=components.shown,
        kept=components.KEPT,
        validated=components.validated,
        stages=(("pca", components.SUBSPACE), ("ica", components.UNMIXING)),
        depends=components.depends,
        site_keys=components.SITE_KEYS,
        made=components.made,
        score_inputs=components.score_inputs,
    ),
    FusionConfig: Kind(
        name="fusion",
        steps={
            "validate": fusion.validate,
            "plan": partial(plan, fusion.foretell),
            "prepare": fusion.prepare,
            "cca": fusion.cca,
            "maps": fusion.maps,
            "reconstruct": fusion.reconstruct,
            "score": fusion.score,
            "report": fusion.report,
        },
        foretell=fusion.foretell,
        over=fusion.cca_over,
        inputs=views.inputs,
        public_files=views.public_files,
        released=fusion.released,
        shown=fusion.shown,
        kept=fusion.KEPT,
        validated=fusion.validated,
        stages=(("cca", fusion.DIRECTIONS),),
        depends=fusion.depends,
        site_keys=fusion.SITE_KEYS,
        made=fusion.made,
        score_inputs=fusion.score_inputs,
    ),
    TensorConfig: tensors.KIND,
    RegressionConfig: regression.KIND,
    NetworkConfig: network.KIND,
}


def of(study: Study) -> Kind:
    """Look up the kind of a study."""
    return KINDS[type(study)]
