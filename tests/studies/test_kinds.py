"""A kind of study is one object: a sixth, of this file alone, from YAML to report."""

import html
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, ClassVar

import numpy as np
import pytest
import yaml
from pydantic import Field

from capeneuro import cli
from capeneuro.algorithms.row_prediction import RATIO
from capeneuro.algorithms.verdicts import ABOVE, NOT_ABOVE, Verdicts
from capeneuro.config import load
from capeneuro.config.rows import RowStudy
from capeneuro.config.sections import Section
from capeneuro.data import files
from capeneuro.studies import kinds
from capeneuro.studies.rows import RowKind, kind_of

NAMES, LOW, HIGH = ("left", "right", "age"), [0.0, 0.0, 20.0], [4.0, 6.0, 80.0]


class Means(Section):
    """The mean person."""

    clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest norm of a person's row."""


class MeansConfig(RowStudy):
    """A study of the mean person."""

    means: Means

    n_releases: ClassVar = {"means": 1}
    shares: ClassVar = {"means": 1.0}
    asked: ClassVar = {"means": "the mean"}


@dataclass(frozen=True)
class Found:
    """Mean of scaled features, and the deviation of its noise."""

    center: np.ndarray
    deviation: float


def compute(federation, study, shape, stages) -> Found:
    asked = {"norm_bound": shape.norm_bound, "clip": study.means.clip}
    released = stages[0].answer(federation, "mean", asked)
    return Found(*(shape.norm_bound * x for x in (released.value, released.deviation)))


def columns(study, shape, found):
    return ["mean"], (shape.middle + shape.spread * found.center)[:, None]


def against(study, shape, found, other, prefix, people):
    off = np.abs((columns(study, shape, found)[1] - other.values)[:, 0] / shape.spread)
    return [(f"{prefix}_error", float(off.max()), "0 is best", "of a scaled feature")]


def told(study, shape, found, releases):
    """The mean is where it is; a mean within its noise of the middle is not."""
    values, level = np.abs(found.center), 3 * found.deviation
    words = np.where(values > level, ABOVE, NOT_ABOVE).tolist()
    levels = np.full(len(values), level)
    return Verdicts(tuple(shape.names), values, levels, tuple(words), "distance")


def figures(study, shape, found, record, others, verdicts):
    from capeneuro.report import plots

    mean = columns(study, shape, found)[1][:, 0]
    title = "The mean person"
    return {}, {title: lambda: plots.effects(shape.names, mean, title, None, {})}, {}


KIND = kind_of(
    RowKind(
        command="means",
        result=Found,
        file="group_desc-means.npz",
        stem="group_desc-means",
        check=lambda study, shape: None,
        holder=lambda study, shape, place: lambda x, beside: x.astype(np.float32),
        size=lambda study, shape, z: float(np.linalg.norm(z) / shape.norm_bound),
        kept=lambda study, shape, z: 1.0,
        limit=lambda study: (study.means.clip, "norm of a row", "clip"),
        page=lambda study: {"about": "Rows.", "size": "norm", "clipped": True},
        template="rows.html.jinja",
        compute=compute,
        lines=lambda found: [f"a mean with noise of {found.deviation:.3g}"],
        told=lambda study, shape, found, x, place: x - found.center[:, None],
        header=lambda study: [f"{name}_beyond" for name in NAMES],
        columns=columns,
        tables=lambda study, sites, shape, found, about: ({}, "Means", {}),
        more=lambda study: [],
        truths=("means.tsv",),
        against=against,
        verdicts=told,
        figures=figures,
        predict=lambda study, expected: {
            RATIO: expected.noise("mean", study.means.clip, "means")
        },
        caveat="exact",
    )
)


@pytest.fixture
def study(tmp_path, monkeypatch) -> tuple[Path, np.ndarray]:
    """A study file of the sixth kind, with its sites; and the true mean."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(load.KINDS, "means", MeansConfig)
    monkeypatch.setitem(sys.modules, "means", SimpleNamespace(KIND=KIND))
    monkeypatch.setitem(kinds.KINDS, MeansConfig, "means")
    monkeypatch.setitem(cli.STEPS, "means", ("Find the mean person.", cli.OVER))
    rng, everyone, sites = np.random.default_rng(3), [], []
    table = zip(NAMES, LOW, HIGH, strict=True)
    files.write_table(Path("data/features.tsv"), ["feature", "low", "high"], table)
    for k, name in enumerate(("north", "south", "west")):
        X = rng.uniform([1, 1, 30], [2, 5, 60], (300, 3))
        everyone.append(X)
        rows = ((f"sub-{name}{i}", *x) for i, x in enumerate(X.tolist()))
        files.write_table(Path(f"data/{name}.tsv"), ["participant_id", *NAMES], rows)
        own = {"name": name, "images": f"data/{name}.tsv", "data": "simulated"}
        own |= {"epsilon": 100.0, "delta": 1e-5, "unit": "subject", "seed": k}
        own |= {"ledger": f"private/{name}/ledger"}
        sites.append(f"config/{name}.yaml")
        files.write_text(Path(sites[-1]), yaml.safe_dump(own))
    truth = np.concatenate(everyone).mean(axis=0)
    rows = zip(NAMES, truth.tolist(), strict=True)
    files.write_table(Path("data/truth/means.tsv"), ["feature", "mean"], rows)
    said = {
        "study": "sixth",
        "sites": sites,
        "arm": "cape",
        "budget": {
            "epsilon": 8.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
        },
        "space": None,
        "rows": {"features": {"kind": "table", "features": "data/features.tsv"}},
        "means": {"clip": 1.0},
        "score": {"truth": "data/truth", "reference": True},
    }
    files.write_text(Path("config/study.yaml"), yaml.safe_dump(said))
    return Path("config/study.yaml"), truth


def test_a_sixth_kind_runs_from_yaml_to_report(study, capsys):
    path, truth = study
    for step in KIND.steps:
        given = [["--site", s] for s in ("north", "south", "west")]
        if step == "means":
            given = [["--reference"], []]
        elif step not in ("prepare", "reconstruct"):
            given = [["--people", "900"] if step == "plan" else []]
        for more in given:
            assert cli.main([step, str(path), *more]) == 0, capsys.readouterr().err
    folder = Path("results/sixth")
    table = dict(row[:2] for row in files.read_table(folder / "group_desc-means.tsv"))
    exact = files.read_arrays(folder / "reference/group_desc-means.npz")["center"]
    middle, spread = np.add(LOW, HIGH) / 2, np.subtract(HIGH, LOW) / 2
    np.testing.assert_allclose(middle + spread * exact, truth, rtol=1e-5)
    found = files.read_arrays(folder / "group_desc-means.npz")
    off = (np.array([*map(float, table.values())]) - truth) / spread
    assert 0 < np.abs(off).max() < 6 * found["deviation"] < 0.2
    page = html.unescape((folder / "report.html").read_text())
    assert "The mean person" in page and "a row of a table" in page
    assert f"A mean with noise of {found['deviation']:.3g}" in page
    assert re.search(r"truth_error", (folder / "scores.tsv").read_text())
    assert len(files.read_table(Path("private/north/sixth/people.tsv"))) == 300
