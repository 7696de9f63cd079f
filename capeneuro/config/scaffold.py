"""Files of a new study, written from the models: one text explains each key."""

import importlib.util
import re
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from capeneuro.config.components import ComponentsConfig, Simulation
from capeneuro.config.load import KINDS
from capeneuro.config.sections import key_texts
from capeneuro.config.site import SiteConfig

# How a study runs: on one machine, or on a cluster with SLURM.
PROFILES = ("default", "slurm")
FILL_IN: dict[str, Any] = {
    "study": "my-study",
    "source": "the defaults of capeneuro init",
    "mask": "data/mask.nii.gz",
    "basis": "grid",
    "standardize": "zscore",
    # What the halves of a consortium of some hundred people agree on.
    "n_components": 10,
    "ica.independence": "spatial",
    "arm": "cape",
    "epsilon": 2.0,
    "delta": "1.0e-5",
    "unit": "subject",
    "relation": "replace-one",
    "norm_bound": 30.0,
    # A person's at R = 10 and 180 volumes; the models' defaults are those of a volume.
    "pca.clip": 0.32,
    "ica.clip": 0.1,
    "events": ["target"],
    "channels": ["Fz", "Cz", "Pz"],
    "montage": "easycap-M1",
    "sampling_rate": 250.0,
    "tmin": -0.1,
    "tmax": 0.8,
    "n_windows": 15,
    # Grey matter in a voxel, and years.
    "features.bounds": [0.0, 1.0],
    "regression.bounds": [18.0, 90.0],
    "regression.target": "age",
    "network.bounds": [0.0, 1.0],
    "network.target": "patient",
    "rows.norm_bound": None,
    "contrast.covariates": {
        "patient": {"groups": [0, 1]},
        "age": {"mean": 40, "deviation": 12},
    },
    "contrast.primary": "patient",
}
# People whom the simulator makes: 900 bear the noise of a promise to a person in 212
# cubes of 24 mm, whose root is the norm bound.
SIMULATED: dict[str, Any] = {
    "source": "simulated data, whose scale is known",
    "data": Simulation,
    "data.seed": 1,
    "space.grid_size": 3,
    "norm_bound": 14.6,
    "score.truth": "data/truth/desc-truth_components.nii.gz",
    "score.reference": True,
}
PEOPLE, VOLUMES = 900, 60


def label(text: str) -> str:
    """A folder's name as that of a study or of a site; empty: nothing is left of it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")


def study_files(
    sites: list[str], kind: str, name: str = "", **of: Any
) -> dict[str, str]:
    """Text of each file of a new study's parties, by its path in the study's folder.

    Parameters
    ----------
    sites, kind, name
        The sites' names, what is looked for, and the study's name.
    **of
        ``data``, what the sites' data are; ``people`` and ``volumes`` as of
        :func:`study_file`.
    """
    data = of.get("data", "private")
    texts = {f"config/sites/{site}.yaml": site_file(site, kind, data) for site in sites}
    texts["config/config.yaml"] = study_file(sites, kind, name, **of)
    return texts


def study_file(
    sites: list[str],
    kind: str = "components",
    name: str = "",
    data: str = "private",
    people: int | None = None,
    volumes: int | None = None,
) -> str:
    """Text of a study file with every key explained beside it.

    Parameters
    ----------
    sites, kind, name
        The sites' names, what is looked for, and the study's name.
    data
        What the sites' data are. Public ones need no noise; of `simulated` the study
        of components makes them before it starts.
    people, volumes
        At all sites together, and of each: of people who are made, else expected.
    """
    values = {**FILL_IN, "sites": [f"config/sites/{site}.yaml" for site in sites]}
    values["study"] = name or values["study"]
    if data == "simulated":
        n = -(-(people or PEOPLE) // len(sites))
        sizes = {"data.n_subjects": n, "data.n_volumes": volumes or VOLUMES}
        return _describe(ComponentsConfig, {**values, **SIMULATED, **sizes})
    values |= {"expected.people": people, "expected.volumes": volumes}
    if data == "public":
        values["arm"] = "non-private"
    if kind != "components":
        return _describe(KINDS[kind], {**values, "n_components": 5})
    return _describe(ComponentsConfig, values)


def site_file(name: str, kind: str = "components", data: str = "private") -> str:
    """Text of a site file with every key explained beside it."""
    values = {**FILL_IN, "mask": None, "name": name, "images": f"data/{name}"}
    values["eeg"] = f"data/{name}" if kind == "fusion" else None
    if data == "simulated":  # for some tries with other numbers
        values["epsilon"] = 10.0
    return _describe(SiteConfig, {**values, "data": data})


def snakefile() -> str:
    """Text of the Snakefile of a new study: the installed workflow, unchanged."""
    # Snakemake ignores the default target of an included file.
    return (
        f'include: "{workflow() / "Snakefile"}"\n\n\nrule study:\n'
        "    default_target: True\n    input:\n        rules.all.input,\n"
    )


def workflow_files() -> dict[str, str]:
    """Text of each file that runs a study, here or on a cluster, by its path."""
    texts = {"workflow/Snakefile": snakefile()}
    for name in PROFILES:
        path = f"profiles/{name}/profile.yaml"
        texts[f"workflow/{path}"] = (workflow() / path).read_text()
    return texts


def workflow() -> Path:
    """The workflow's folder, installed or in a checkout."""
    package = Path(importlib.util.find_spec("capeneuro").origin).parent
    installed = package / "_workflow"
    return installed if installed.exists() else package.parent / "workflow"


def _describe(
    model: type[BaseModel], values: dict[str, Any], indent: str = "", within: str = ""
) -> str:
    lines: list[str] = []
    texts = key_texts(model)
    for name, field in model.model_fields.items():
        chosen = values.get(name) if not within else None
        is_chosen = isinstance(chosen, type)
        inner = chosen if is_chosen else _inner(field.annotation, field.is_required())
        text = texts.get(name) or (inner.__doc__ if inner else "") or ""
        wrapped = textwrap.wrap(" ".join(text.split()), 84 - len(indent))
        lines += [f"{indent}# {line}" for line in wrapped]
        default = field.get_default(call_default_factory=True)
        if inner is not None and (default is not None or is_chosen):
            block = _describe(inner, values, indent + "  ", f"{name}.")
            lines += [f"{indent}{name}:", block]
            continue
        unset = default is None or default is PydanticUndefined
        value = values.get(name) if unset else default
        value = values.get(f"{within}{name}", value) if within else value
        lines.append(f"{indent}{name}: {_scalar(value)}")
    return "\n".join(lines) + ("\n" if not indent else "")


def _inner(annotation: Any, is_required: bool) -> type[BaseModel] | None:
    """Return the model an annotation stands for: of several that of a required key."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        if not is_required:
            return None
        annotation = typing.get_args(annotation)[0]
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


def _scalar(value: Any) -> str:
    if isinstance(value, str) and value == FILL_IN["delta"]:
        return value
    text = yaml.safe_dump(value, default_flow_style=True)
    return text.removesuffix("\n").removesuffix("...").strip()
