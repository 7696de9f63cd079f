"""Experiments over grids: the file, its cells, its tables, and the whole workflow."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import yaml
from workflows import BIN, ROOT, run

from capeneuro.algorithms import metrics
from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting
from papers import commands as command
from papers import grid, in_memory, plots, status
from papers.cells import ica as experiments
from papers.cells import ica_thesis

SMOKE = "papers/grids/smoke.yaml"
PLOT = {"x": "n", "y": "score", "line": "method"}


def make(**changes) -> grid.Figure:
    """A figure of four cells, with some keys changed."""
    content = {
        "figure": "toy",
        "experiment": "toy",
        "grids": [{"method": ["a", "b"], "n": [10], "seed": [0, 1]}],
        "fixed": {"rounds": 5},
        "scores": ["score", "extra"],
        "plot": PLOT,
    }
    return grid.Figure.model_validate(content | changes)


def finish(figure: grid.Figure, score) -> None:
    """Write every cell with the score of a function of its axes."""
    for cell in grid.cells(figure):
        grid.write_cell(cell, [{"extra": None, **score(cell.axes)}], 1.0)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- the file ------------------------------------------------------------------------


def test_cells_are_the_product_of_each_block_and_each_comes_once():
    grids = [
        {"method": ["a", "b"], "n": [10, 20], "seed": [0, 1]},
        {"method": ["b", "c"], "n": [10], "seed": [0]},
    ]
    found = [tuple(c.axes.values()) for c in grid.cells(make(grids=grids))]
    assert len(found) == len(set(found)) == 8 + 1
    assert found[-1] == ("c", 10, 0)


def test_options_of_a_value_override_the_fixed_ones():
    options = {"method": {"a": {"rounds": 7}, "b": {}}}
    for cell in grid.cells(make(options=options)):
        rounds = 7 if cell.axes["method"] == "a" else 5
        assert cell.options == {**cell.axes, "rounds": rounds}


def names(figure: grid.Figure) -> set[str]:
    return {cell.name for cell in grid.cells(figure)}


def test_a_name_changes_with_the_options_of_its_own_cell_only():
    options = {"method": {"a": {"x": 1, "y": 2}, "b": {}}}
    before = names(make(options=options))
    swapped = {"method": {"b": {}, "a": {"y": 2, "x": 1}}}
    assert names(make(options=swapped, plot=PLOT | {"log": ["x"]})) == before
    changed = {"method": {"a": {"x": 1, "y": 3}, "b": {}}}
    assert len(names(make(options=changed)) & before) == 2
    more = [{"method": ["a", "b"], "n": [10], "seed": [0, 1, 2]}]
    assert len(names(make(options=options, grids=more)) - before) == 2
    assert names(make(options=options, experiment="other")).isdisjoint(before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": []}, "grid: unknown key; did you mean 'grids'?"),
        ({"grids": []}, "grids: needs at least one block of axes"),
        (
            {"fixed": {"a": {"delta": "1.0e-5"}}},
            "'1.0e-5' is text in quotes; write numbers without them",
        ),
        ({"fixed": {"clip": float("inf")}}, "must hold finite numbers, words and"),
        ({"plot": PLOT | {"lines": 1}}, "plot.lines: unknown key; did you mean 'line'"),
        ({"plot": PLOT | {"y": "scor"}}, "scores: lacks 'scor'; did you mean 'score'"),
        ({"repeat": "draw"}, "grids: lacks the axis 'draw' that `repeat` names"),
        (
            {"options": {"metod": {}}},
            "options.metod: no axis of the grid; did you",
        ),
        ({"options": {"method": {"a": {}}}}, "options.method: lacks 'b'"),
        (
            {"quick": {"sead": [1]}},
            "quick: nothing to replace is called 'sead'; did you",
        ),
        ({"goals": [{"where": {}}]}, "goals.0: needs one of at_most, at_least"),
        (
            {"grids": [{"seed": [0], "n": [1]}, {"seed": [1]}]},
            "grids.1: must have the axes of the first block: seed, n",
        ),
    ],
)
def test_errors_are_one_line_with_a_remedy(here, changes, said, capsys):
    content = make().model_dump(mode="json", exclude_defaults=True) | changes
    Path("toy.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert command.main(["table", "toy.yaml"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: toy.yaml: ")
    assert said in line


def test_a_study_file_is_no_figure_file(capsys):
    assert command.main(["table", str(ROOT / "config/config.yaml")]) == 2
    assert "must be a figure file, this is a study file" in capsys.readouterr().err


def test_two_figures_may_not_share_a_name(here):
    content = yaml.safe_dump(make().model_dump(mode="json", exclude_defaults=True))
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text(content)
    with pytest.raises(ConfigError, match=r"b.yaml: figure: 'toy' is a.yaml's name"):
        grid.load_all(["a.yaml", "b.yaml"])


def test_every_figure_file_is_well_formed_and_names_an_experiment():
    found = grid.load_all(sorted((ROOT / "papers/grids").glob("*.yaml")))
    assert {
        "smoke",
        "ica_epsilon",
        "ica_people",
        "ica_subject",
        "ica_baselines",
    } <= set(found)
    for name, (path, figure) in found.items():
        assert name == Path(path).stem
        assert figure.experiment in command.EXPERIMENTS
        # The quick one is whole, too, and has at most two repeats of each setting.
        short = grid.Figure.model_validate(grid.quick(figure))
        found = [{**c.axes, figure.repeat: 0} for c in grid.cells(short)]
        assert all(found.count(axes) <= 2 for axes in found)
        assert short.figure == f"{name}_quick" and len(found) <= len(grid.cells(figure))


# --- tables and plot -----------------------------------------------------------------


def test_summary_is_over_the_repeats(here):
    figure = make()
    finish(figure, lambda axes: {"score": axes["seed"] + 10 * (axes["method"] == "b")})
    means = grid.summary(figure, grid.table(figure))
    settings = ["method", "n"]
    assert list(means) == [*settings, "score", *grid.SUMMARY[1:]]
    assert means["score"].tolist() == ["score"] * 2  # `extra` was never measured
    assert means["mean"].tolist() == [0.5, 10.5]
    assert means["min"].tolist() == [0, 10]
    assert means["max"].tolist() == [1, 11]
    assert means["n_repeats"].tolist() == [2, 2]
    assert means["se"].tolist() == [0.5, 0.5]
    # A level that differs by repeat makes no further settings.
    figure = make(plot=PLOT | {"level": "chance"})
    finish(figure, lambda axes: {"score": 1, "chance": 40 + 2 * axes["seed"]})
    means = grid.summary(figure, grid.table(figure))
    assert means["chance"].tolist() == [41, 41] and list(means)[:2] == settings


def test_goals_stand_beside_what_was_reached(here, capsys):
    goals = [
        {"where": {"method": "a"}, "at_most": 0.5},
        {"where": {"method": "a"}, "at_most": 0.4},
        {"where": {"method": "b", "n": 10}, "at_least": 0.5},
        {"where": {"method": "b"}, "score": "extra", "at_least": 3},
        {"where": {"method": "a"}, "at_least": -0.4, "errors": 2},
        {"where": {"method": "a"}, "at_most": 1.6, "errors": 2},
    ]
    figure = make(goals=goals)
    finish(figure, lambda axes: {"score": axes["seed"]})
    found = grid.compare(figure, grid.summary(figure, grid.table(figure)))
    # The mean is 0.5, its standard error 0.5.
    told = ["met", "not met", "met", "not measured", "not clear", "met"]
    assert found["verdict"].tolist() == told
    content = figure.model_dump(mode="json") | {"quick": {"seed": [7]}}
    Path("toy.yaml").write_text(yaml.safe_dump(content))
    assert command.main(["table", "toy.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "method a: score <= 0.4, mean 0.5 of 2: not met"
    assert lines[3] == "method b: extra >= 3: not measured"
    # Nor does it stumble where nothing that a goal is about was measured.
    other = content | {"goals": [{"where": {"method": "c"}, "at_most": 1}]}
    Path("other.yaml").write_text(yaml.safe_dump(other))
    assert command.main(["table", "other.yaml"]) == 0
    assert capsys.readouterr().out == "method c: score <= 1: not measured\n"
    for name in ("table", "summary", "goals"):
        assert (figure.folder / f"{name}.tsv").exists()
    assert command.main(["quick", "toy.yaml", "--dry-run"]) == 0
    assert "--configfile results/quick/toy.yaml" in capsys.readouterr().out
    quick = grid.load("results/quick/toy.yaml")
    assert quick.figure == "toy_quick" and quick.grids[0]["seed"] == [7]


def test_a_table_wants_every_cell_whole(here):
    figure = make()
    finish(figure, lambda axes: {"score": 1.0})
    cell = grid.cells(figure)[2]
    cell.path.write_text(cell.path.read_text()[:20])
    with pytest.raises(ConfigError, match="not readable; delete it"):
        grid.table(figure)
    cell.path.unlink()
    told = status.progress(figure, "papers.grid")
    # Cells of tests say nothing of what they were made of.
    assert told == "toy: 4 cells, 4 to run (3 are stale), 0.1 minutes of a core"
    with pytest.raises(ConfigError, match=f"1 of 4 cells .* first {cell.name}"):
        grid.table(figure)


def test_a_plotted_name_must_be_a_column(here):
    figure = make(plot=PLOT | {"line": "metod"})
    finish(figure, lambda axes: {"score": 1.0})
    with pytest.raises(ConfigError, match=r"toy: metod: no column.*mean 'method'"):
        grid.table(figure)


def test_a_line_has_one_value_at_each_x(here):
    grids = [{"method": ["a"], "n": [10], "unit": [1, 2], "seed": [0]}]
    figure = make(grids=grids)
    finish(figure, lambda axes: {"score": axes["unit"]})
    with pytest.raises(ConfigError, match="at one n; give panels to unit by"):
        plots.write(figure)
    plots.write(make(grids=grids, plot=PLOT | {"rows": "unit"}))
    plt.close("all")


def test_the_plot_draws_means_ranges_goals_and_levels(here):
    figure = make(
        grids=[{"method": ["a", "b"], "n": [10, 20], "unit": [1, 2], "seed": [0, 1]}],
        plot=PLOT | {"columns": "unit", "level": "chance", "reference": ["b"]},
        goals=[{"where": {"n": 20, "unit": 2}, "at_most": 0.25}],
    )
    finish(
        figure,
        lambda axes: {"score": axes["seed"] + axes["n"] * axes["unit"], "chance": 7.0},
    )
    means = grid.summary(figure, grid.table(figure))
    picture = plots.over_grid(means, figure.plot, figure.goals, figure.title)
    first, second = picture.axes
    a, b, level = first.lines
    assert a.get_ydata().tolist() == [10.5, 20.5]
    assert (a.get_linestyle(), b.get_linestyle()) == ("-", "--")
    assert set(level.get_ydata()) == {7.0}
    band = first.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (10, 21)
    assert second.lines[0].get_ydata().tolist() == [20.5, 40.5]
    assert second.lines[-1].get_xydata().tolist() == [
        [20, 0.25]
    ]  # the goal, there only
    assert [len(first.lines), len(second.lines)] == [3, 4]
    plt.close(picture)


def test_an_arm_looks_the_same_in_every_figure():
    first = plots._looks(["capePCA", "conv", "local", "other"])
    second = plots._looks(["other", "local as printed", "capeDJICA", "conventional"])
    assert first["capePCA"] == second["capeDJICA"]
    assert first["conv"] == second["conventional"]
    assert second["local as printed"] == (*first["local"][:2], 1)
    third = plots._looks(
        ["capeFM (printed noise)", "capeFM (as printed)", "gauss-fm", "dp-fm", "fm"]
    )
    assert [variant for *_, variant in third.values()] == [1, 2, 0, 0, 0]
    assert {color for color, *_ in list(third.values())[:3]} == {first["capePCA"][0]}
    assert third["dp-fm"] == third["fm"]
    for looks in (first, second):
        assert len({color for color, *_ in looks.values()}) == 4


def test_a_second_axis_and_images_show_what_was_measured(here):
    figure = make(
        grids=[{"method": ["a"], "n": [10, 20], "seed": [0, 2]}],
        plot=PLOT | {"band": "errors", "second": "extra"},
    )
    finish(figure, lambda axes: {"score": axes["seed"], "extra": 3.0 * axes["n"]})
    means = grid.summary(figure, grid.table(figure))
    picture = plots.over_grid(means, figure.plot, ())
    left, right = picture.axes
    assert right.lines[0].get_ydata().tolist() == [30, 60]
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (1 - 2, 1 + 2)  # two standard errors
    figure = make(
        grids=[{"method": ["a"], "n": [0, 1], "y": [0, 1], "seed": [0]}],
        plot=PLOT | {"image": "y", "rows": "method", "columns": "method"},
    )
    finish(figure, lambda axes: {"score": axes["n"] - 0.5 * axes["y"]})
    means = grid.summary(figure, grid.table(figure))
    shown = plots.images(means, figure.plot).axes[0].images[0].get_array()
    assert shown.tolist() == [[0, 1], [-0.5, 0.5]]
    plt.close("all")


def test_the_same_cells_draw_the_same_bytes(here):
    figure = make()
    finish(figure, lambda axes: {"score": 1.0 + axes["seed"]})
    first = [path.read_bytes() for path in plots.write(figure)]
    assert [path.read_bytes() for path in plots.write(figure)] == first
    plt.close("all")


# --- what cells run ------------------------------------------------------------------

BUDGET = accounting.Budget(5.0, 1e-5, "sample", "replace-one", 1)
SMALL = {"n_components": 3, "norm_bound": 1.0, "n_rounds": 3, "clip": 2.0}


@pytest.fixture(scope="module")
def small():
    """Maps and people of a study of seconds."""
    return experiments.simulate(8, seed=0, n_components=3, n_volumes=60, cube=5)


def test_data_come_from_the_seed_and_are_shared_out(small):
    A, people = small
    again = experiments.simulate(8, seed=0, n_components=3, n_volumes=60, cube=5)
    other = experiments.simulate(8, seed=1, n_components=3, n_volumes=60, cube=5)
    np.testing.assert_array_equal(
        again[1]["site-2"]["sub-2"], people["site-2"]["sub-2"]
    )
    assert not np.array_equal(other[1]["site-2"]["sub-2"], people["site-2"]["sub-2"])
    assert [len(own) for own in people.values()] == [2, 2, 2, 2]
    X = people["site-1"]["sub-0"]
    assert X.shape == (len(A), 60)
    inside = np.linalg.lstsq(A, X, rcond=None)[0]
    assert np.linalg.norm(X - A @ inside) < 0.5 * np.linalg.norm(X)


def test_the_papers_feature_counts():
    assert len(experiments.simulate(4, seed=0, n_volumes=2, cube=1)[0]) == 648
    assert len(experiments.simulate(4, seed=0, n_volumes=2, cube=3)[0]) == 88


def test_remembered_statistics_change_no_answer(small):
    _, people = small
    memo = {}
    exact = [
        experiments.run_ica(people, BUDGET, "non-private", memo=memo, **SMALL)[0]
        for _ in range(2)
    ]
    fresh = experiments.run_ica(people, BUDGET, "non-private", **SMALL)[0]
    assert len(memo) == len(people)
    for result in exact:
        np.testing.assert_array_equal(result.unmixing, fresh.unmixing)
    # Another clip or unit is another statistic.
    experiments.run_ica(people, BUDGET, "cape", memo=memo, **SMALL)
    assert len(memo) == 2 * len(people)


def test_each_run_draws_noise_of_its_own(small):
    memo = {}
    a, b = (
        experiments.run_ica(small[1], BUDGET, "cape", memo=memo, **SMALL)[0]
        for _ in range(2)
    )
    assert not np.allclose(a.unmixing, b.unmixing)


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "conventional", "local"])
def test_a_release_that_is_not_paid_for_is_refused(small, arm, monkeypatch):
    experiments.run_ica(small[1], BUDGET, arm, **SMALL)
    infomax = experiments.ica.infomax

    def one_more(*arguments, n_rounds, **options):
        return infomax(*arguments, n_rounds=n_rounds + 1, **options)

    monkeypatch.setattr(experiments.ica, "infomax", one_more)
    with pytest.raises(RoundFailed, match="budget"):
        experiments.run_ica(small[1], BUDGET, arm, **SMALL)


def test_scores_of_a_cell(small):
    methods = {"exact": {"arm": "non-private"}, "ours": {"arm": "pooled", "clip": 3.0}}
    options = {**SMALL, "clip": {1: 1.0, 9: 2.0}, "n_rounds": 30}
    rows = experiments.ica_scores(
        n_subjects=64, unit="sample", seed=0, methods=methods, epsilons=[1, 9],
        n_volumes=60, cube=5, **options,
    )  # fmt: skip
    assert [(r["method"], r["epsilon"]) for r in rows] == [
        ("exact", 1), ("exact", 9), ("ours", 1), ("ours", 9)
    ]  # fmt: skip
    exact, again, _, _ = rows
    assert exact == {**again, "epsilon": 1}
    assert exact["ngi"] < 0.25 * exact["chance"]
    assert exact["chance"] == pytest.approx(metrics.chance_gain_index(3), abs=1e-4)
    assert 0.99 < exact["captured"] <= 1 + 1e-9
    assert all(r["rounds_to_10_percent"] <= r["n_rounds"] for r in rows)
    json.dumps(rows, allow_nan=False)


def scores(methods, **options):
    """Rows of the small study, one for each method."""
    small = {"n_subjects": 8, "n_volumes": 60, "cube": 5, "n_components": 3}
    chosen = {**small, "epsilons": [5], "norm_bound": 1.0, **options}
    return experiments.ica_scores(unit="sample", seed=0, methods=methods, **chosen)


def test_without_rounds_the_start_is_scored_and_none_is_charged(small):
    started = {"arm": "cape", "n_rounds": 0}
    (row,) = scores({"start alone": started})
    assert (row["n_rounds"], row["rounds_to_10_percent"]) == (0, None)
    found, _, weights = experiments.run_ica(
        small[1], BUDGET, "non-private", n_components=3, norm_bound=1.0, n_rounds=0
    )
    assert weights == []
    # Varimax of the subspace, turned no further: orthonormal up to the common scale.
    np.testing.assert_allclose(found.W @ found.W.T, np.pi**2 / 3 * np.eye(3), atol=1e-9)
    assert not np.allclose(np.abs(found.W), np.eye(3) * np.pi / 3**0.5, atol=0.1)


def test_networks_that_overlap_defeat_varimax_alone_and_rounds_are_counted():
    mixture = {"patches": 3, "presence": 0.9, "translation": 0.5, "unequal": 3}
    options = {"n_subjects": 24, "seed": 5, "n_components": 5, "cube": 3}
    options |= {"n_volumes": 100, "norm_bound": 6, "clip": 2, "mixture": mixture}
    exact = {"arm": "non-private", "n_rounds": 200}
    spatial = {**exact, "independence": "spatial"}
    known = {"unit": "sample", "epsilons": [1]}
    methods = {
        "ICA": exact,
        "varimax": {**exact, "n_rounds": 0, "after": "ICA"},
        "spatial": spatial,
        "its start": {**spatial, "n_rounds": 0},
    }
    rows = {
        r["method"]: r
        for r in experiments.ica_scores(**options, **known, methods=methods)
    }
    assert rows["ICA"]["ngi"] < 0.5 * rows["varimax"]["ngi"]
    assert rows["varimax"]["behind"] == rows["varimax"]["ngi"] - rows["ICA"]["ngi"]
    # The same rotation of the same subspace.
    assert rows["its start"]["r"] == pytest.approx(rows["varimax"]["r"])
    methods = {
        "capeDJICA": {"arm": "cape"},
        "printed": {"arm": "cape", "noise": "printed", "after": "capeDJICA"},
        "DP-djICA": {"arm": "dp-djica"},
    }
    about = {"round_epsilons": [0.5], "n_rounds": 3, "pca_share": 0.25}
    cape, printed, other = ica_thesis.ica_rounds(**options, **about, methods=methods)
    mu = accounting.mu_from_epsilon(0.5, 1e-2)
    assert cape["total"] == pytest.approx(accounting.epsilon_from_mu(2 * mu, 1e-5))
    # S = 4 and one colluder: 28 / 15 times the squared loss that the thesis counts.
    nominal = 0.5 / math.sqrt(2 * math.log(125)) * math.sqrt(28 / 15)
    known = accounting.epsilon_from_mu(2 * nominal, 1e-5)
    assert printed["total"] == pytest.approx(known)
    assert (other["total"], other["total_printed"]) == (None, 0.5 * 4)


def test_dp_djica_is_a_method_that_no_ledger_knows():
    method = {"arm": "dp-djica", "n_rounds": 100, "norm_bound": 30}  # clips no volume
    noisy, absurd = scores({"theirs": method}, n_subjects=40, epsilons=[5, 1e9])
    assert noisy["n_rounds"] == 100
    assert noisy["rounds_to_10_percent"] is None
    assert absurd["ngi"] < 0.5 * noisy["ngi"]


def test_mini_blocks_are_rounds_and_scored_by_epoch():
    """Rounds to the end are told in rounds, though weights are kept once an epoch."""
    djica = {"arm": "djica", "tol": 0.0, "n_epochs": 10, "n_blocks": 4}
    (row,) = scores({"djICA": djica})
    assert row["n_rounds"] == 40
    assert row["converged"] == 0
    assert row["rounds_to_10_percent"] % 4 == 0
    assert 4 <= row["rounds_to_10_percent"] <= 40


def test_rounds_until_a_score_stays_near_its_end():
    assert experiments.rounds_to_final([0.4, 0.2, 0.109, 0.12, 0.105, 0.1]) == 4
    assert experiments.rounds_to_final([0.1, 0.1]) == 0
    assert experiments.rounds_to([0.4, 0.2, 0.3, 0.1], 0.2) == 1
    assert experiments.rounds_to([0.4, 0.2, 0.3], 0.1) == 2


def test_options_by_epsilon():
    given = {"clip": {0.1: 1.5, 1: 3}, "schedule": {"max_step": 0.2}, "n": 1}
    assert in_memory.at(given, 1.0)["clip"] == 3
    assert in_memory.at(given, 0.1) == {**given, "clip": 1.5}
    with pytest.raises(ConfigError, match=r"clip: lacks epsilon 2, has 0.1, 1"):
        in_memory.at(given, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"experiment": "icaa"},
            "experiment: must be of ica, abide, pca, cca,",
        ),
        ({"fixed": {"epsilon": [1]}}, "required keyword-only argument"),
    ],
)
def test_a_cell_that_cannot_run_says_why(here, changes, said, capsys):
    content = yaml.safe_load((ROOT / SMOKE).read_text()) | changes
    Path("smoke.yaml").write_text(yaml.safe_dump(content))
    cell = grid.cells(grid.load("smoke.yaml"))[0]
    assert command.main(["cell", "smoke.yaml", cell.name]) == 2
    assert said in capsys.readouterr().err
    assert not cell.path.exists()
    assert command.main(["cell", "smoke.yaml", "0" * 16]) == 2
    assert "papers status smoke.yaml" in capsys.readouterr().err


# --- the workflow --------------------------------------------------------------------

COMMAND = ("snakemake", "-s", "papers/Snakefile", "--cores", "2")
COMMAND += ("--configfile", SMOKE)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    """A folder in which the smoke figure was drawn."""
    folder = tmp_path_factory.mktemp("figures")
    shutil.copytree(ROOT / "papers", folder / "papers")
    for name in ("workflow", "sim"):
        (folder / name).symlink_to(ROOT / name)
    done = run(folder, *COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke: 4 cells, 4 to run" in done.stderr
    assert "Execute 2 jobs" in done.stdout + done.stderr
    return folder


@pytest.fixture
def edited(smoke):
    """Edit the figure file; it is restored afterwards."""
    path = smoke / SMOKE
    before = path.read_text()

    def edit(old: str, new: str) -> None:
        assert old in before
        path.write_text(before.replace(old, new))

    yield edit
    path.write_text(before)


def planned(folder: Path) -> dict[str, int]:
    """Jobs of a dry run, by rule."""
    done = run(folder, *COMMAND, "-n")
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout + done.stderr
    return {
        rule: len(re.findall(rf"^(?:local)?rule {rule}:", text, re.MULTILINE))
        for rule in ("figure_cell", "figure_table", "figure_plot")
    }


def test_the_figure_is_drawn_and_then_nothing_runs_again(smoke):
    folder = smoke / "results/figures/smoke"
    made = {"table.tsv", "summary.tsv", "goals.tsv", "smoke.png", "smoke.svg"}
    assert {path.name for path in folder.iterdir()} == made | {"cells", "logs"}
    assert len(list((folder / "cells").iterdir())) == 4
    picture = plt.imread(folder / "smoke.png")
    assert 800 <= picture.shape[1] <= 1200
    assert len((folder / "table.tsv").read_text().splitlines()) == 1 + 2 * 2 * 2
    assert planned(smoke) == {"figure_cell": 0, "figure_table": 0, "figure_plot": 0}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seed: [0, 1]", "seed: [0, 1, 2]", (2, 1, 1)),  # one in each group
        ("at_most: 0.3", "at_most: 0.2", (0, 1, 1)),
        ("A very small", "A tiny", (0, 0, 1)),
    ],
)
def test_an_edit_runs_what_depends_on_it(smoke, edited, old, new, expected):
    edited(old, new)
    assert tuple(planned(smoke).values()) == expected


def test_a_cell_says_what_it_was_made_of_and_other_code_runs_it(smoke, monkeypatch):
    cell = next((smoke / "results/figures/smoke/cells").glob("*.json"))
    made = json.loads(cell.read_text())["made_of"]
    used = {"papers.cells.ica", "capeneuro.privacy.cape", "sim.garch"}
    assert used < set(made["code"]) and "papers.grid" not in made["code"]
    assert made["finished"] and made["versions"]["numpy"] == np.__version__
    # The workflow, too, takes the copy in this folder.
    monkeypatch.setenv("PYTHONPATH", str(smoke))
    module = smoke / "papers/cells/ica.py"
    before = module.read_text()
    module.write_text(before + "\nMORE = 1\n")
    assert tuple(planned(smoke).values()) == (4, 1, 1)
    done = run(smoke, "python", "-m", "papers", "status", SMOKE, "--dry-run")
    module.write_text(before)
    assert done.stdout.count("stale (papers.cells.ica)") == 4
    assert re.search(r"^smoke +4 +0 +4 +0 +\d+\.\d +not recorded$", done.stdout, re.M)


def test_overrides_on_the_command_line_are_refused(smoke):
    done = run(smoke, *COMMAND, "-n", "--config", "figure=other")
    assert done.returncode != 0
    assert "a figure is one file" in done.stdout + done.stderr


def test_without_a_file_all_figures_are_planned(smoke):
    done = run(smoke, *COMMAND[:-2], "-n")
    jobs = re.findall(r"output: results/figures/(\w+)/cells", done.stdout + done.stderr)
    assert "ica_epsilon" in jobs
    assert "smoke" not in jobs  # was made by another command, and stays
    assert re.search(r"^ica_epsilon: \d+ cells, \d+ to run", done.stderr, re.MULTILINE)


def test_lint_is_clean(smoke):
    done = run(smoke, *COMMAND, "--lint")
    assert done.returncode == 0
    assert "good condition" in done.stdout + done.stderr


def test_a_killed_run_resumes(smoke, edited):
    folder = smoke / "results/figures/smoke/cells"
    before = set(folder.iterdir())
    edited("seed: [0, 1]", "seed: [0, 1, 2]")
    # One at a time: the first of two new cells is done, the second is killed.
    command = [str(BIN / COMMAND[0]), *COMMAND[1:], "--cores", "1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        command, cwd=smoke, start_new_session=True, **quiet
    ) as process:
        while set(folder.glob("[!.]*.json")) == before:
            assert process.poll() is None
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    kept = {path: path.read_bytes() for path in folder.glob("[!.]*.json")}
    assert len(kept) == len(before) + 1
    assert run(smoke, *COMMAND, "--unlock").returncode == 0
    # The kill may have come before the first of them was marked as done.
    done = run(smoke, *COMMAND, "--rerun-incomplete")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke: 6 cells, 1 to run" in done.stderr
    assert len(list(folder.iterdir())) == 6
    assert all(path.read_bytes() == kept[path] for path in before)
