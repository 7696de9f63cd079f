"""Models of two groups: accurate where one is rare, probabilities that are true."""

from pathlib import Path

import numpy as np
import pytest
import yaml

import capeneuro as cn
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.data.rows import open_rows
from evidence.truth.row_studies import draw
from evidence.truth.two_groups import (
    NORMS,
    Table,
    best,
    log_loss,
    table,
    trained,
    with_share,
)
from sim.classes import two_classes
from sim.rows import rows

DATA = Path(__file__).parents[3] / "shared/data"
SITES, EPSILON = ("a", "b", "c", "d"), 3.0


def people(share: float) -> Table:
    """12,000 people of whom a share is of group 1; features in [-1, 1]."""
    made = rows(3, 40_000, np.random.default_rng(0), "logistic", margin=1.0)
    table = with_share(Table(made.X * 3**0.5, made.y.astype(int)), share)[0]
    order = np.random.default_rng(1).permutation(len(table.y))
    return Table(table.X[:, order], table.y[order])


def by_study(own: Table, folder, arm: str):
    """Coefficients and intercept of a study file with its default center."""
    bounds = [[f"x{i}", -1, 1] for i in range(3)]
    files.write_table(folder / "features.tsv", ["feature", "low", "high"], bounds)
    content = {
        "study": "groups",
        "sites": [f"{name}.yaml" for name in SITES],
        "arm": arm,
        "aggregator": "independent",
        "budget": {
            "epsilon": EPSILON,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
        },
        "space": None,
        "rows": {
            "features": {"kind": "table", "features": str(folder / "features.tsv")}
        },
        "regression": {"target": "group", "bounds": [0, 1], "task": "logistic"},
    }
    files.write_text(folder / "study.yaml", yaml.safe_dump(content))
    study = load.load_study(folder / "study.yaml")
    parts = np.array_split(np.arange(len(own.y)), len(SITES))
    found = {n: (own.X[:, i], own.y[i]) for n, i in zip(SITES, parts, strict=True)}
    model = draw(study, open_rows(study), found, EPSILON, arm)
    return model.coefficients, model.intercept


def by_verb(own: Table, folder, arm: str):
    """The same of :func:`capeneuro.linear_model`."""
    columns = [z[:, None] for z in np.vstack([own.X, own.y]).T]
    promise = cn.Budget(EPSILON, 1e-5, unit="subject", n_colluding=1)
    sites = {name: columns[k :: len(SITES)] for k, name in enumerate(SITES)}
    model = cn.linear_model(
        cn.federate(sites, promise, arm), 3**0.5, (0, 1), task="logistic"
    )
    return model.coefficients, model.intercept


def by_estimator(own: Table, folder, arm: str):
    """The same of :class:`capeneuro.PrivateClassifier`."""
    model = cn.PrivateClassifier(
        EPSILON, bounds=(-1, 1), kind="simulated", arm=arm, n_colluding=1
    )
    model.fit(own.X.T, own.y, groups=np.arange(len(own.y)) % len(SITES))
    return model.coef_[0], model.intercept_[0]


@pytest.mark.parametrize("door", [by_study, by_verb, by_estimator])
@pytest.mark.parametrize("share", [0.5, 0.34, 0.1])
def test_a_rare_group_counts_behind_every_door(door, share, tmp_path):
    """Subtracting the mean from the group, too, is off by .28 at a third."""
    own = people(share)
    true, _ = by_study(own, tmp_path, "non-private")
    w, start = door(own, tmp_path, "cape")
    assert np.linalg.norm(w - true) < 0.08 * np.linalg.norm(true)
    if share == 0.34:
        assert np.mean((w @ own.X + start > 0) == own.y) > 0.715


def spheres() -> Table:
    return Table(*two_classes(50, 20_000, np.random.default_rng(0), 0.3))


def phishing() -> Table:
    if not DATA.exists():
        pytest.skip(f"needs the tables in {DATA}")
    people = table("phishing", DATA, np.random.default_rng(0))
    return people._replace(X=people.X * 31**0.5)


@pytest.mark.parametrize("made", [spheres, phishing])
def test_probabilities_of_a_network_are_true_after_calibration_alone(made):
    """Before it they are surer than is true: a slope of a third."""
    everybody, n_new = made(), 3000
    people = Table(*(a[..., n_new:] for a in everybody))
    new = Table(*(a[..., :n_new] for a in everybody))
    found = trained(people, NORMS[made.__name__], 4.0, seed=0)
    after = found.log_odds(new.X)
    raw = (after - found.intercept) / found.slope
    (a, b), (_, slope) = best(raw, new.y), best(after, new.y)
    assert b < 0.5 and 0.8 < slope < 1.25
    assert log_loss(after, new.y) < log_loss(a + b * raw, new.y) + 0.02
    assert log_loss(after, new.y) < log_loss(raw, new.y) - 0.1
    assert abs(b - found.slope) < 3 * found.slope_error < 0.4 * b
    right = [np.mean((x > 0) == new.y) for x in (raw, after)]
    assert right[1] > right[0] - 0.01
