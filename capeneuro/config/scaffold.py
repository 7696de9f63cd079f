"""Files of a new study: the keys that must be decided, each explained in one line.

All other keys keep their defaults; `capeneuro explain` says what each is.
"""

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
from capeneuro.config.fusion import SimulatedViews
from capeneuro.config.load import KINDS
from capeneuro.config.rows import ColumnsOptions, SimulatedRows
from capeneuro.config.sections import key_texts
from capeneuro.config.site import SiteConfig

# How a study runs: on one machine, or on a cluster with SLURM.
PROFILES = ("default", "slurm")
# Source of the numbers that `init --from` chooses.
RULES_OF_INIT = "the rules of capeneuro init"
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
# A study whose rows are of tables.
OF_TABLES: dict[str, Any] = {
    "space": None,
    "rows.features": ColumnsOptions,
    "features.kind": "table",
    "features.features": "data/features.tsv",
}
# People whom the simulator makes, of every kind and of each; so many at all sites bear
# the noise.
MADE: dict[str, Any] = {
    "source": "simulated data, whose scale is known",
    "data.seed": 1,
    "score.truth": "data/truth",
    "score.reference": True,
}
MADE_ROWS = {**OF_TABLES, "data": SimulatedRows, "data.kind": "rows"}
MADE_ROWS |= {"data.n_features": 10}
CHANNELS = ["F3", "Fz", "F4", "C3", "Cz", "C4", "P3", "Pz", "P4"]
SIMULATED: dict[str, dict[str, Any]] = {
    "components": {  # the norm is the root of 212 cubes of 24 mm
        "data": Simulation,
        "data.n_volumes": 60,
        "space.grid_size": 3,
        "norm_bound": 14.6,
        "score.truth": "data/truth/desc-truth_components.nii.gz",
    },
    "contrast": {
        **MADE_ROWS,
        "data.n_features": 28,
        "data.separation": 0.4,
        "contrast.covariance": "data/covariance.tsv",
    },
    "regression": MADE_ROWS,
    "network": {
        **MADE_ROWS,
        "rows.norm_bound": 0.8,
        "data.separation": 0.6,
        "score.truth": None,
    },
    "tensors": {**MADE_ROWS, "rows.norm_bound": 0.85, "budget.epsilon": 4.0},
    "distribution": MADE_ROWS,
    "patterns": {**MADE_ROWS, "data.n_features": 30, "n_components": 3},
    "fusion": {
        "data": SimulatedViews,
        "data.kind": "linked",
        "space.grid_size": 5,
        "fmri.norm_bound": 17.0,
        "budget.epsilon": 4.0,
        "eeg.events": ["Comment/target"],
        "eeg.channels": CHANNELS,
        "eeg.sampling_rate": 200.0,
        "eeg.tmin": 0.05,
        "eeg.tmax": 0.75,
        "eeg.n_windows": 10,
        "eeg.min_epochs": 8,
        "eeg.norm_bound": 25.0,
    },
}
PEOPLE = {"components": 900, "contrast": 1800, "regression": 4000, "network": 4000}
PEOPLE |= {"tensors": 10000, "distribution": 2000, "patterns": 6000, "fusion": 1000}
# What each key of a new study asks, by its block: one line beside it. Keys of these
# stand in the file although they have a default.
QUESTIONS = {
    "study": "Name of the study: results go to results/<study>/.",
    "sites": "One file for each site.",
    "aggregator": "Where it runs: `independent`, or the name of a site; null counts as "
    "a site.",
    "arm": "`cape`, with noise; or `non-private`, for public and simulated data.",
    "budget": "The promise to each person, of all releases together.",
    "budget.epsilon": "The smaller, the stronger the promise and the larger the noise.",
    "budget.delta": "Far below one over the number of people.",
    "budget.unit": "Protected: all data of a person (`subject`), or a volume "
    "(`sample`).",
    "budget.relation": "One person in the place of another; how many there are is "
    "public.",
    "expected": "Numbers of the protocol, for the forecast of `capeneuro plan`.",
    "expected.people": "At all sites together; null: counted where all files are here.",
    "source": "Where bounds, clips and public tables come from: not from private data.",
    "space": "Where the features lie.",
    "space.mask": "Public mask image.",
    "space.basis": "Features: `voxels`, cubes of a `grid`, parcels of an `atlas`, maps "
    "of a `template`.",
    "space.grid_size": "Edge of a cube in voxels: the larger, the fewer features.",
    "cleaning": "What is done to each run.",
    "cleaning.standardize": "`zscore`, `psc` (percent of the mean) or `none`.",
    "pca": "The subspace of the components.",
    "pca.norm_bound": "Usual norm of a sample: of z-scores the root of the number of "
    "features.",
    "pca.clip": "Bound on what one person adds, at this number of components.",
    "ica": "The components within it.",
    "ica.independence": "Of maps (`spatial`), or of time courses (`temporal`).",
    "ica.clip": "Bound on what one person adds to a round.",
    "rows": "One row of numbers for each person.",
    "rows.features": "What these numbers are.",
    "features.kind": "`maps`: of an image; `table`: of columns; `runs`: of 4-D runs.",
    "features.bounds": "Least and largest value of each; what lies beyond counts as "
    "these.",
    "contrast": "The question: what differs between groups, or with a number?",
    "contrast.covariates": "Columns of the sites' tables: groups, or a number's public "
    "mean and deviation.",
    "contrast.primary": "The one that the study is about: its effects have the "
    "verdicts and the least noise.",
    "regression": "The question: what predicts this column?",
    "regression.target": "Column of the sites' tables of people.",
    "regression.bounds": "Its least and largest value.",
    "network": "The question: what tells two groups apart?",
    "network.target": "Column of the sites' tables of people.",
    "network.bounds": "The two groups, as numbers or words.",
}
SITE_QUESTIONS = {
    "name": "Name of the site in the study.",
    "images": "A folder, a pattern of files, a table, or `{derivatives: FOLDER, space: "
    "...}`.",
    "eeg": "Folder of its EEG.",
    "data": "`private`, `public` or `simulated`.",
    "epsilon": "Ceiling of all studies together: some times one study's, or it is the "
    "last.",
}
# Beside these, where studies are of a table of people.
TABLE_QUESTION = {
    "people": "Its table of people; null: participants.tsv, or the table in `images`."
}
STUDY_HEAD = """# What this study must decide. All other keys have their defaults, which
# `capeneuro explain` lists; `capeneuro explain KEY` says what one is.

"""
SITE_HEAD = """# This site's own file, which never leaves it. `capeneuro explain --site`
# lists all other keys.

"""


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
        ``data``, what the sites' data are; ``people``, ``volumes`` and ``federation``
        as of :func:`study_file`.
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
    federation: str = "in-process",
) -> str:
    """Text of a study file with the keys that it must decide.

    Parameters
    ----------
    sites, kind, name
        The sites' names, what is looked for, and the study's name.
    data
        What the sites' data are. Public ones need no noise; a study of `simulated`
        ones makes them before it starts.
    people, volumes
        At all sites together, and of each: of people who are made, else expected.
    federation
        Where the sites work.
    """
    values = {**FILL_IN, "sites": [f"config/sites/{site}.yaml" for site in sites]}
    values["study"] = name or values["study"]
    values["federation"] = federation
    if kind != "components":
        values["n_components"] = 5
    if data == "simulated":
        values |= MADE | SIMULATED[kind]
        values["data.n_subjects"] = -(-(people or PEOPLE[kind]) // len(sites))
        if volumes:
            values["data.n_volumes"] = volumes
    else:
        values |= {"expected.people": people, "expected.volumes": volumes}
        if kind == "distribution":  # of numbers, and of no images
            values |= OF_TABLES
    if data == "public":
        values["arm"] = "non-private"
    return STUDY_HEAD + _describe(KINDS.get(kind, ComponentsConfig), values, QUESTIONS)


def site_file(name: str, kind: str = "components", data: str = "private") -> str:
    """Text of a site file with the keys that it must decide."""
    values = {**FILL_IN, "mask": None, "name": name, "images": f"data/{name}"}
    values["eeg"] = f"data/{name}" if kind == "fusion" else None
    if data == "simulated":  # for some tries with other numbers
        values["epsilon"] = 20.0
        if SIMULATED[kind].get("data") is SimulatedRows:
            values["images"] = f"data/{name}.tsv"
    questions = SITE_QUESTIONS
    if kind not in ("components", "fusion"):
        questions = {**SITE_QUESTIONS, **TABLE_QUESTION}
    if kind != "fusion":
        questions = {key: text for key, text in questions.items() if key != "eeg"}
    return SITE_HEAD + _describe(SiteConfig, {**values, "data": data}, questions)


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
    model: type[BaseModel],
    values: dict[str, Any],
    questions: dict[str, str],
    indent: str = "",
    within: str = "",
) -> str:
    """Text of the keys of a section that are required, chosen or asked for."""
    lines: list[str] = []
    texts = key_texts(model)
    for name, field in model.model_fields.items():
        chosen = values.get(f"{within}{name}")
        is_chosen = isinstance(chosen, type)
        inner = chosen if is_chosen else _inner(field.annotation, field.is_required())
        text = questions.get(f"{within}{name}") or in_short(
            texts.get(name) or (inner.__doc__ if inner else "") or ""
        )
        comment = [f"{indent}# {line}" for line in textwrap.wrap(text, 84)]
        default = field.get_default(call_default_factory=True)
        has_none = f"{within}{name}" in values and chosen is None
        if inner is not None and (default is not None or is_chosen) and not has_none:
            block = _describe(inner, values, questions, indent + "  ", f"{name}.")
            if block:
                lines += [*comment, f"{indent}{name}:", block]
            elif field.is_required():  # it tells the kind of the study
                lines += [*comment, f"{indent}{name}: {{}}"]
            continue
        unset = default is None or default is PydanticUndefined
        value = values.get(name) if unset else default
        value = values.get(f"{within}{name}", value)
        is_own = field.is_required() or _plain(value) != _plain(default)
        is_kind = name == "kind"  # of a block of which there are several
        if is_own or is_kind or f"{within}{name}" in questions:
            lines += [*comment, f"{indent}{name}: {_scalar(value)}"]
    return "\n".join(lines) + ("\n" if not indent else "")


def in_short(text: str) -> str:
    """First sentence of an explanation."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def _plain(value: Any) -> Any:
    """A value as a file would have it, so that 1.0e-5 is 1e-5."""
    return yaml.safe_load(_scalar(value)) if isinstance(value, str) else value


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
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("...").strip()
