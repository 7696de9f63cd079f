"""The verbs of the public face: on arrays, in every arm, and what they refuse."""

import doctest
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nibabel as nib
import numpy as np
import pytest
from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker, NiftiMasker
from workflows import ROOT

import capeneuro as cn
from capeneuro.algorithms import metrics
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.notebook import estimators
from capeneuro.notebook.verbs import (
    components,
    contrasts,
    distributions,
    groups,
    models,
)

D, R, T = 12, 3, 30
MAPS = np.kron(np.diag([1.0, 0.8, 0.6]), np.ones((D // R, 1)))
PROMISE = cn.Budget(8, 1e-5, unit="subject")


def persons(rng, n: int) -> list[np.ndarray]:
    return [MAPS @ rng.laplace(size=(R, T)) for _ in range(n)]


@pytest.mark.parametrize("arm", ["non-private", "pooled", "cape", "secure_sum"])
def test_five_lines_from_arrays_to_components(rng, arm):
    people, others = persons(rng, 300), persons(rng, 300)
    sites = cn.federate({"north": people, "south": others}, PROMISE, arm=arm)
    V = cn.principal_subspace(sites, R, norm_bound=4, share=0.5)
    U = cn.infomax(sites, V)
    assert metrics.match(U.mixing, MAPS)[1] == pytest.approx(1, abs=0.05) or (
        np.abs(metrics.match(U.mixing, MAPS)[1]).min() > 0.95
    )
    assert sites.privacy()["left"] == (1 if arm == "non-private" else 0)
    maps = cn.spatial_components(V)  # of what was released: it costs nothing
    assert maps.mixing.shape == (D, R)
    shown = repr(V), repr(U), repr(maps)
    assert all(len(line) < 300 and "\n" not in line for line in shown)
    assert f"eigenvectors ({D}, {R})" in shown[0] and "prior" not in shown[0]
    if arm != "non-private":
        assert sites.privacy()["spent"] == pytest.approx(8)
        with pytest.raises(BudgetExceeded, match="nothing is left"):
            cn.infomax(sites, V)


@pytest.mark.parametrize(
    "module",
    [components, groups, models, contrasts, distributions, estimators],
    ids=lambda module: module.__name__.rpartition(".")[2],
)
def test_the_examples_of_docstrings_run(module):
    names = {"np": np, "cn": cn, "rng": np.random.default_rng(0)}
    names["promise"] = cn.Budget(2, 1e-5, unit="subject")
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3 and not result.failed


def test_three_sites_of_one_person_refuse_in_one_line_and_spend_nothing(rng):
    three = {name: persons(rng, 1) for name in "abc"}
    sites = cn.federate(three, cn.Budget(2, 1e-5, unit="subject"), arm="cape")
    with pytest.raises(
        BudgetExceeded, match=r"times what the result can bear: .*accept"
    ) as e:
        cn.principal_subspace(sites, R, norm_bound=4, share=0.5)
    assert "\n" not in str(e.value)
    assert sites.privacy()["spent"] == 0 and sites.unplanned_share == 1
    budget = cn.Budget(2, 1e-5, unit="subject")
    accepted = cn.federate(three, budget, accept="to look at noise")
    cn.principal_subspace(accepted, R, norm_bound=4, share=0.5)
    assert accepted.privacy()["accepted"] == "to look at noise"


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: cn.canonical_directions(s, 2, 6, (2.0, 2.0)),
        lambda s: cn.pattern_components(s, 2, norm_bound=4.0),
        lambda s: cn.mixture_components(s, 2, norm_bound=4.0),
        lambda s: cn.topic_components(s, 2),
        lambda s: cn.linear_model(s, 4.0, (0.0, 1.0)),
        lambda s: cn.train_network(s, 4.0, n_rounds=5),
    ],
    ids=["pairs", "patterns", "mixture", "topics", "regression", "network"],
)
def test_every_verb_refuses_what_noise_would_drown(rng, verb):
    three = {name: [rng.integers(0, 2, (D, 1)).astype(float)] for name in "abc"}
    sites = cn.federate(three, cn.Budget(2, 1e-5, unit="subject"))
    with pytest.raises(BudgetExceeded, match=r"noise is foretold to be .* the result"):
        verb(sites)
    assert sites.unplanned_share == 1 and not sites.mechanisms


def columns(*parts: np.ndarray) -> list[np.ndarray]:
    return [column[:, None] for column in np.vstack(parts).T]


def shared(data: list[np.ndarray], arm: str = "cape", n_sites: int = 2):
    return cn.federate(
        {f"s{k}": data[k::n_sites] for k in range(n_sites)}, PROMISE, arm
    )


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_every_other_verb_from_the_same_call(rng, arm):
    N = 2000
    x = rng.uniform(-1, 1, (4, N))
    w = np.array([2.0, -1.0, 0.0, 1.0])
    y = 40 + 5 * (w @ x) + rng.standard_normal(N)
    model = cn.linear_model(shared(columns(x, y), arm), 2.0, (20.0, 60.0))
    np.testing.assert_allclose(model.coefficients, 5 * w, atol=1.5)
    logistic = cn.linear_model(
        shared(columns(x, y > 40), arm), 2.0, (0.0, 1.0), task="logistic"
    )
    assert np.corrcoef(logistic.coefficients, w)[0, 1] > 0.97
    network = cn.train_network(
        shared(columns(x, w @ x > 0), arm), norm_bound=1.2, n_rounds=30
    )
    assert np.mean(network.predict(x) == (w @ x > 0)) > 0.85
    u, v = 0.1 * rng.standard_normal((2, 4, N))
    u[0] = rng.standard_normal(N)
    v[0] = 0.8 * u[0] + 0.6 * rng.standard_normal(N)
    found = cn.canonical_directions(shared(columns(u, v), arm), 1, 4, (2.0, 2.0))
    assert found.correlations[0] == pytest.approx(0.8, abs=0.06)
    groups = 0.9 * np.eye(4)[rng.integers(3, size=N)].T
    near = columns(groups + 0.05 * rng.standard_normal((4, N)))
    centers = cn.mixture_components(shared(near, arm), 3, norm_bound=1.0)
    true = 0.9 * np.eye(4)[:, :3]
    assert metrics.component_error(centers.components, true, True) < 0.1
    topics = rng.dirichlet(np.full(6, 0.3), 2)
    counts = [rng.multinomial(12, topics[k])[:, None] for k in rng.integers(2, size=N)]
    told = cn.topic_components(shared(counts, arm), 2)
    assert metrics.component_error(told.components, topics.T, True) < 0.1


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_patterns_that_people_differ_by_from_the_same_call(rng, arm):
    A = np.zeros((8, 2))
    A[:3, 0], A[5:, 1] = 1.0, (0.6, -0.6, 0.6)
    x = A @ rng.standard_normal((2, 4000)) + 0.05 * rng.standard_normal((8, 4000))
    x[:, ::2] += 1.0  # what sites differ by is no pattern
    found = cn.pattern_components(shared(columns(x), arm), 2, norm_bound=4.0)
    r = metrics.match(found.patterns, A)[1]
    assert (np.abs(r) > 0.95).all()
    assert found.shares[0] > found.shares[1] > 0.1
    assert "eigenvalues by rank" in cn.plot(found).get_label()
    assert "pattern 2" in cn.plot(found, 2).get_label()
    principal = cn.pattern_components(
        shared(columns(x), arm), 2, norm_bound=4.0, independent=False
    )
    assert abs(principal.patterns[:, 0] @ principal.patterns[:, 1]) < 1e-6
    with pytest.raises(ValueError, match="n_components: must be from 1 to 7"):
        cn.pattern_components(shared(columns(x), arm), 8, norm_bound=4.0)


def test_every_result_of_a_verb_is_drawn_by_one_function(rng):
    x = rng.uniform(-1, 1, (4, 2000))
    y = 5 * x[0] + rng.standard_normal(2000)
    rows = shared(columns(x, y))
    model = cn.linear_model(rows, 2.0, (-10.0, 10.0))
    figure = cn.plot(model, names=["age", "dose", "sex", "motion"])
    assert "age" in figure.get_label()
    few = {"a": persons(rng, 4), "b": persons(rng, 4)}
    exact = cn.federate(few, PROMISE, "pooled", accept="to draw")
    V = cn.principal_subspace(exact, R, norm_bound=4, share=0.5)
    assert "eigenvalues by rank" in cn.plot(V).get_label()
    assert "direction 2" in cn.plot(V, 2).get_label()
    U = cn.infomax(exact, V, n_rounds=2)
    assert "gradient over 2 rounds" in cn.plot(U).get_label()
    assert "component 1" in cn.plot(U, 1).get_label()
    with pytest.raises(ValueError, match="which: must be 1 to 3, got 4"):
        cn.plot(U, 4)
    with pytest.raises(ValueError, match="names: must be 4, got 1"):
        cn.plot(model, names=["age"])
    with pytest.raises(TypeError, match="needs the result of a verb, got int"):
        cn.plot(3)
    plt.close("all")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:nilearn")
@pytest.mark.filterwarnings("ignore:Applying:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_images_come_by_way_of_a_public_masker_and_go_back_by_it(rng):
    cube = np.ones((3, 3, 3))
    mask = nib.Nifti1Image(cube.astype(np.int8), np.eye(4))
    labels = nib.Nifti1Image(np.arange(27).reshape(3, 3, 3).astype(np.int16), np.eye(4))
    atlas = rng.random((3, 3, 3, 4)).astype(np.float32)
    atlas = nib.Nifti1Image(atlas, np.eye(4))
    run = nib.Nifti1Image(rng.random((3, 3, 3, 5)).astype(np.float32), np.eye(4))
    for masker, n in (
        (NiftiMasker(mask_img=mask), 27),
        (NiftiLabelsMasker(labels_img=labels), 26),
        (NiftiMapsMasker(maps_img=atlas), 4),
    ):
        people = {"north": {"a": run}, "south": [run]}
        sites = cn.federate(people, PROMISE, "non-private", basis=masker)
        X = sites.people["north"]["a"]
        assert X.shape == (n, 5)
        np.testing.assert_allclose(X, masker.transform(run).T, rtol=1e-6)
        V = cn.principal_subspace(sites, 2, norm_bound=4)
        assert masker.inverse_transform(V.eigenvectors.T).shape == (3, 3, 3, 2)
    with pytest.raises(ValueError, match=r"basis: must be a masker .* public mask_img"):
        cn.federate(people, PROMISE, basis=NiftiMasker())


def test_views_of_several_samples_are_refused(rng):
    with pytest.raises(ValueError, match="one sample"):
        cn.canonical_directions(shared(persons(rng, 8)), 1, 4, (1.0, 1.0))


# --- the face ------------------------------------------------------------------------


def test_importing_is_quick_and_loads_no_numpy():
    code = (
        "import capeneuro, sys; print('numpy' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_face_lists_what_it_has_and_has_what_it_lists():
    assert set(cn.__all__) < set(dir(cn))
    for name in cn.__all__:
        assert getattr(cn, name).__doc__
        assert name in cn.__doc__
    with pytest.raises(AttributeError, match="no attribute 'infomx'"):
        cn.infomx  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "arrays",
        "table",
        pytest.param("fusion", marks=pytest.mark.slow),
        pytest.param("exact", marks=pytest.mark.slow),
        pytest.param("files", marks=pytest.mark.slow),
    ],
)
def test_examples_run(name, tmp_path):
    example = ROOT / f"examples/{name}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if name == "arrays":
        assert Path(tmp_path / "results/examples/arrays.png").stat().st_size > 5000
    if name == "table":
        assert "explains" in done.stdout


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_a_group_contrast_from_arrays(rng, arm):
    d, sites, means = 4, {}, {}
    for name, off in (("north", 0.3), ("south", -0.3)):
        group = (rng.random(700) < 0.5).astype(float)
        age = 40 + 12 * rng.standard_normal(700)
        Y = rng.standard_normal((d, 700)) + off
        Y[0] += 0.6 * group
        sites[name] = list(np.vstack([Y, group, age]).T[:, :, None])
        counts = {"patient=0": np.sum(group == 0), "patient=1": np.sum(group)}
        means[name] = {**counts, "age": np.clip(age, 10, 70).mean()}
    promise = cn.Budget(2, 1e-5, unit="subject")
    about = {"patient": {"groups": (0, 1)}, "age": {"mean": 40, "deviation": 12}}
    public = about, np.zeros(d), np.eye(d)
    shared = cn.federate(sites, promise, arm=arm)
    with pytest.raises(ValueError, match="must be among patient, age"):
        cn.linear_contrasts(shared, *public, means=means, primary="sex")
    with pytest.raises(ValueError, match="must be of 4 outcomes"):
        cn.linear_contrasts(shared, about, np.zeros(3), np.eye(3), means=means)
    pairs = [("patient", "age")]
    with pytest.raises(ValueError, match="must be None with interactions"):
        cn.linear_contrasts(shared, *public, means=means, interactions=pairs)
    without = {**about, "age": {"deviation": 12}}
    with pytest.raises(ValueError, match="age: a number needs its public mean"):
        cn.linear_contrasts(shared, without, *public[1:])
    other = {**about, "patient": {"groups": (2, 1)}}
    with pytest.raises(ValueError, match="patient: must be one of 2, 1"):
        cn.linear_contrasts(shared, other, *public[1:])
    assert shared.privacy()["spent"] in (0, np.inf)
    found = cn.linear_contrasts(shared, *public, means=means, primary="patient")
    assert list(found.names) == ["patient 1 - 0", "age", "mean"]
    true = np.array([0.6, 0, 0, 0])
    assert np.abs((found.effects[0] - true) / found.errors[0]).max() < 4.5
    assert found.corrected[0, 0] < 1e-3 and np.isnan(found.corrected[1]).all()
    assert np.all(found.errors[0] < 0.15)
    shared = cn.federate(sites, promise, arm=arm)
    noised = cn.linear_contrasts(shared, *public, primary="patient")
    assert list(noised.names) == ["patient 1 - 0", "age", "mean"]
    assert np.abs((noised.effects[0] - true) / noised.errors[0]).max() < 4.5
    assert np.median(noised.errors[0] / found.errors[0]) < 1.3


def test_a_contrast_stops_after_a_pilot_that_forecasts_too_much(rng, capsys):
    group = np.arange(600) % 2
    rows = np.vstack([rng.standard_normal((3, 600)), group]).T[:, :, None]
    people = {"north": list(rows[:300]), "south": list(rows[300:])}
    shared = cn.federate(people, cn.Budget(4, 1e-5, unit="subject"))
    about = {"group": {"groups": (0, 1)}}, np.zeros(3), np.eye(3)
    with pytest.raises(BudgetExceeded, match="stopped after the pilot"):
        cn.linear_contrasts(shared, *about, largest_error=0.01)
    assert "the pilot forecasts a standard error of" in capsys.readouterr().out
    assert 0 < shared.privacy()["spent"] < 2.5
    shared = cn.federate(people, cn.Budget(4, 1e-5, unit="subject"))
    assert cn.linear_contrasts(shared, *about, largest_error=1.0).is_estimable[0]
