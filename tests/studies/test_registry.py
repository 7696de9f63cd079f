"""A kind of study is one object: a sixth, of this file alone, from YAML to report."""

import html
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, final

import numpy as np
import pytest
import yaml
from pydantic import Field

from capeneuro import cli
from capeneuro.algorithms.forecast_rows import RATIO
from capeneuro.algorithms.verdict import ABOVE, NOT_ABOVE, Verdicts
from capeneuro.config import load
from capeneuro.config.rows import RowStudy
from capeneuro.config.sections import Section
from capeneuro.config.study import ReleaseStep
from capeneuro.data import files
from capeneuro.report.figures import Figure
from capeneuro.studies import registry
from capeneuro.studies.rows import FeatureTable, Figures, RowStudyKind, SizePage

NAMES, LOW, HIGH = ("left", "right", "age"), [0.0, 0.0, 20.0], [4.0, 6.0, 80.0]


class Means(Section):
    """The mean person."""

    clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest norm of a person's row."""


class MeansConfig(RowStudy):
    """A study of the mean person."""

    kind: ClassVar = "means"
    release_steps: ClassVar = {
        "means": ReleaseStep("Find the mean person.", "group_desc-means.npz", "means")
    }
    means: Means

    n_releases: ClassVar = {"means": 1}
    shares: ClassVar = {"means": 1.0}
    queries: ClassVar = {"means": "the mean"}


@dataclass(frozen=True)
class Mean:
    """Mean of scaled features, and the deviation of its noise."""

    center: np.ndarray
    deviation: float


@final
@dataclass(frozen=True)
class MeansKind(RowStudyKind):
    """A study of the mean person, on a query that sites know."""

    study: MeansConfig
    result_type: ClassVar = Mean
    stem: ClassVar = "group_desc-means"
    template: ClassVar = "rows.html.jinja"
    truth_files: ClassVar = ("means.tsv",)
    caveat: ClassVar = "exact"
    most_features: ClassVar = 100

    def check_features(self):
        pass

    def check_people(self, site, people):
        pass

    def not_estimable(self, people):
        return ""

    def encoder(self, site_index, n_sites):
        return lambda x, beside: x.astype(np.float32)

    def decode(self, z):
        return None

    def row_size(self, z):
        return float(np.linalg.norm(z) / self.shape.norm_bound)

    def clip_weight(self, z):
        return 1.0

    def size_page(self):
        return SizePage("Rows.", "norm of a row", "norm", self.study.means.clip, "clip")

    def compute(self, federation, mechanisms):
        bound = self.shape.norm_bound
        options = {"norm_bound": bound, "clip": self.study.means.clip}
        released = mechanisms[0].answer(federation, "mean", options)
        return Mean(bound * released.value, bound * released.deviation)

    def summary(self, result):
        return [f"a mean with noise of {result.deviation:.3g}"]

    def feature_values(self, result):
        shape = self.shape
        return ["mean"], (shape.middle + shape.spread * result.center)[:, None]

    def write_tables(self, sites, result, metadata):
        return FeatureTable({}, "Means", {})

    def extra_files(self):
        return []

    def describe_people(self, result, x, beside, site_index):
        return x - result.center[:, None]

    def people_columns(self):
        return [f"{name}_beyond" for name in NAMES]

    def verdicts(self, result, releases):
        """A mean within its noise of the middle is not above it."""
        values, level = np.abs(result.center), 3 * result.deviation
        words = np.where(values > level, ABOVE, NOT_ABOVE).tolist()
        levels = np.full(len(values), level)
        names = tuple(self.shape.names)
        return Verdicts(names, values, levels, tuple(words), "distance")

    def figures(self, result, record, references, verdicts):
        from capeneuro.report import plots

        mean, title = self.feature_values(result)[1][:, 0], "The mean person"
        draw = partial(plots.effects, self.shape.names, mean, title, None, {})
        return Figures({}, [Figure(title, draw)], [])

    def scores_against(self, result, reference, prefix, people):
        off = np.abs(self.feature_values(result)[1] - reference.values)[:, 0]
        error = float((off / self.shape.spread).max())
        return [(f"{prefix}_error", error, "0 is best", "of a scaled feature")]

    def people_scores(self, result, people, prefix):
        return []

    def predict(self, noise):
        return {RATIO: noise.deviation("mean", self.study.means.clip, "means")}


@pytest.fixture
def study(tmp_path, monkeypatch) -> tuple[Path, np.ndarray]:
    """A study file of the sixth kind, with its sites; and the true mean."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(load.KINDS, "means", MeansConfig)
    monkeypatch.setitem(sys.modules, "capeneuro.studies.means", sys.modules[__name__])
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
    for step in registry.of(load.load_study(path)).steps:
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
