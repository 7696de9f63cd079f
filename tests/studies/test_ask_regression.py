"""Questions to the results of a study of regression."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from kinds import SCORES, write_kind
from parties import SITES, STUDY
from tiny_study import command, edit

from capeneuro.data import files
from capeneuro.data.tables import open_table
from capeneuro.studies import ask, ask_regression

COLUMNS = ["coefficient", "estimate", "standard_error", "low", "high"]


@pytest.fixture
def study(tmp_path, monkeypatch) -> Path:
    """A regression on six scores, prepared."""
    write_kind(tmp_path / "root", "regression", "in-process")
    monkeypatch.chdir(tmp_path / "root/together")
    return Path("results/regression")


def run(*keys: tuple[str, object]) -> None:
    for key, value in keys:
        edit(STUDY, key, value)
    assert command("validate", STUDY) == 0
    for site in SITES:
        assert command("prepare", STUDY, "--site", site) == 0
    assert command("regression", STUDY) == 0
    assert command("maps", STUDY) == 0


def ledgers() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path().rglob("ledger.jsonl")}


def assert_same(ours, folder: Path) -> None:
    """Whether an answer has the numbers of a study's own table."""
    theirs = open_table(folder / "group_desc-regression_coefficients.tsv")
    assert ours["feature"].tolist() == theirs["feature"].tolist()
    np.testing.assert_allclose(ours[COLUMNS], theirs[COLUMNS], rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("ridge", [0.1, 3.0])
def test_a_ridge_is_that_of_the_study_with_it_and_costs_nothing(study, ridge):
    """With privacy: the study with the ridge asks sites for the same release."""
    run()
    before = ledgers()
    shutil.copytree(study, "alone")
    answer = open_table(ask.answered(Path("alone"), f"ridge={ridge}")[0])
    own = open_table(ask.answered(Path("alone"), f"~ {' + '.join(SCORES)}")[0])
    assert_same(own, study)
    assert ledgers() == before
    run(("regression.ridge", ridge))
    assert ledgers() == before
    assert_same(answer, study)
    deviation = files.read_arrays(study / ask_regression.FILE)["noise_deviation"]
    assert deviation > 0


def test_a_subset_is_that_of_the_study_on_it(study):
    """Without privacy, as features are scaled by their number with it."""
    exact = ("arm", "non-private")
    run(exact)
    features = open_table(Path("features.tsv"))
    few = ["score_1", "score_4"]
    features[features["feature"].isin(few)].to_csv("few.tsv", sep="\t", index=False)
    run(exact, ("rows.features.features", "few.tsv"), ("study", "few"))
    answer = open_table(ask.answered(study, "~ score_4 + score_1")[0])
    assert_same(answer, Path("results/few"))


def test_subsets_of_a_private_release_have_intervals(study, capsys):
    run()
    assert command("ask", str(study), "~ score_1 + score_4, ridge=0.2") == 0
    out = capsys.readouterr().out
    assert "no privacy was spent" in out
    assert "2 coefficients have a 95% interval" in out
    (table,) = study.glob("answers/*.tsv")
    table = open_table(table)
    assert len(table) == 2
    assert (table["low"] < table["high"]).all()
    (page,) = study.glob("answers/*.html")
    assert page.read_text().count("<img") == 1


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("~ score_7", "did you mean"),
        ("~", "must be the name of a feature"),
        ("ridge=-1", "at least 0"),
        ("ridge=much", "at least 0"),
        ("ridge", "question: must be '~ a + b'"),
        ("components=3", "question: must be '~ a + b'"),
        ("~ score_1 ridge=1", "question: must be '~ a + b'"),
        ("", "question: must be '~ a + b'"),
    ],
)
def test_bad_questions_are_one_line(released, capsys, question, why):
    assert command("ask", str(released), question) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert not (released / "answers").exists()


@pytest.fixture(scope="module")
def released_once(tmp_path_factory) -> Path:
    """Results of such a study."""
    root = tmp_path_factory.mktemp("regression") / "root"
    write_kind(root, "regression", "in-process")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root / "together")
        assert command("regression", STUDY) == 0
    return root / "together/results/regression"


@pytest.fixture
def released(released_once, tmp_path) -> Path:
    """A copy of them."""
    return shutil.copytree(released_once, tmp_path / "results")


def test_results_without_moments_say_why(released, capsys):
    arrays = files.read_arrays(released / ask_regression.FILE)
    few = {k: v for k, v in arrays.items() if not k.startswith("moments_")}
    del few["feature_names"]
    files.write_arrays(released / ask_regression.FILE, **few)
    assert command("ask", str(released), "ridge=1") == 2
    assert "earlier version" in capsys.readouterr().err
