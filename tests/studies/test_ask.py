"""Questions to the results of a study: algebra of what lies in its folder."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from kinds import write_kind
from parties import SITES, STUDY
from tiny_study import command, edit

from capeneuro.algorithms.verdict import ABOVE, ABOVE_ALONE, NOT_ABOVE
from capeneuro.data import files
from capeneuro.data.tables import open_table
from capeneuro.studies import ask, ask_contrasts


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """A contrast of six outcomes on one group, and nothing but its results."""
    write_kind(tmp_path / "root", "contrast", "in-process")
    monkeypatch.chdir(tmp_path / "root/together")
    edit(STUDY, "federation", "in-process")
    assert command("contrast", STUDY) == 0
    assert command("maps", STUDY) == 0
    alone = tmp_path / "alone"
    shutil.copytree("results/contrast", alone)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "root/together/private/_aggregator")
    return alone


def test_the_question_of_the_study_gets_its_own_answer(results, capsys):
    before = {
        name: next(results.parent.rglob(f"{name}/ledger/ledger.jsonl")).read_bytes()
        for name in SITES
    }
    assert command("ask", str(results), "~ g") == 0
    out = capsys.readouterr().out
    assert "g 1 - 0: " in out and "no privacy was spent" in out
    table = open_table(results / f"answers/{ask.stem_of('~ g')}.tsv")
    study = open_table(results / "group_desc-contrast_table.tsv")
    study = study[study["covariate"] == "g 1 - 0"]
    for ours, theirs in (("effect", "effect"), ("low", "low"), ("p", "p")):
        np.testing.assert_allclose(table[ours], study[theirs], rtol=2e-3, atol=1e-5)
    wide = table["high_of_all"] - table["low_of_all"]
    assert (wide >= table["high"] - table["low"]).all()
    assert set(table["question"]) == {"~ g"}
    # Its verdicts are in the study's words, and no milder than the study's own.
    words = {ABOVE, ABOVE_ALONE, NOT_ABOVE}
    assert {*table["verdict"], *study["verdict"]} <= words
    is_above = (study["verdict"] == ABOVE).to_numpy()
    assert not (table["verdict"] == ABOVE)[~is_above].any()
    of_all = (table["low_of_all"] > 0) | (table["high_of_all"] < 0)
    assert ((table["verdict"] == ABOVE) == of_all).all()
    assert f"{of_all.sum()} of 6 outcomes stand above the noise" in out
    assert ask.stem_of("~ g") != ask.stem_of("g") != ask.stem_of("g" * 99)
    after = {
        name: next(results.parent.rglob(f"{name}/ledger/ledger.jsonl")).read_bytes()
        for name in SITES
    }
    assert after == before


@pytest.mark.parametrize(
    ("question", "why"),
    [("~ height", "was not released; there are g[1]"), ("g +", "must be a sum")],
)
def test_what_cannot_be_answered_is_one_line(results, capsys, question, why):
    assert command("ask", str(results), question) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert not (results / "answers").exists()


def test_on_shows_some_outcomes_and_corrects_for_all(results, capsys):
    _, every = ask.answered(results, "g = 0")
    names = [row[1] for row in every.rows]
    _, single = ask.answered(results, f"g = 0 on {names[2]}")
    assert single.rows == [every.rows[2]]
    assert command("ask", str(results), "g on nowhere") == 2
    assert "on 'nowhere': is in no outcome" in capsys.readouterr().err


def test_results_of_another_kind_or_version_say_so(results, capsys):
    assert command("ask", str(results / "figures"), "~ g") == 2
    assert "questions are to the results" in capsys.readouterr().err
    with np.load(results / ask_contrasts.FILE) as arrays:
        few = {k: v for k, v in arrays.items() if not k.startswith("moments_")}
    np.savez(results / ask_contrasts.FILE, **few)
    assert command("ask", str(results), "~ g") == 2
    assert "earlier version" in capsys.readouterr().err


COVARIATES = {
    "g": {"groups": [0, 1]},
    "age": {"mean": 40.0, "deviation": 10.0},
    "dose": {"groups": [0, 1, 2]},
}
SUBSETS = {
    "~ g": ["g"],
    "~ age": ["age"],
    "~ dose": ["dose"],
    "~ g + age": ["g", "age"],
    "~ dose + g": ["g", "dose"],
    "~ age + dose": ["age", "dose"],
    "~ g + age + dose": ["g", "age", "dose"],
    "~ g + age + g:age": ["g", "age", ("g", "age")],
    "~ dose + age + dose:age": ["age", "dose", ("dose", "age")],
    "~ g + age + dose + g:age": ["g", "age", "dose", ("g", "age")],
}


def run_with(covariates: list, name: str) -> dict:
    """Result of a study of three covariates, or of these, in the exact arm."""
    products = [list(c) for c in covariates if isinstance(c, tuple)]
    singles = [c for c in covariates if isinstance(c, str)]
    edit(STUDY, "study", name)
    edit(STUDY, "contrast.covariates", {c: COVARIATES[c] for c in singles})
    edit(STUDY, "contrast.interactions", products)
    assert command("validate", STUDY) == 0
    for site in SITES:
        assert command("prepare", STUDY, "--site", site) == 0
    assert command("contrast", STUDY) == 0
    return files.read_arrays(Path(f"results/{name}/{ask_contrasts.FILE}"))


def test_answers_are_those_of_studies_that_asked(tmp_path, monkeypatch, rng):
    """Of people without privacy: ten subsets, each against a study of its own."""
    write_kind(tmp_path / "root", "contrast", "in-process")
    monkeypatch.chdir(tmp_path / "root/together")
    for name in SITES:
        table = open_table(Path(f"x-{name}.tsv"))
        table["age"] = (40 + 10 * rng.standard_normal(len(table))).round(1)
        table["dose"] = rng.integers(0, 3, len(table))
        table.to_csv(f"x-{name}.tsv", sep="\t", index=False)
    edit(STUDY, "arm", "non-private")
    edit(STUDY, "federation", "in-process")
    everything = ["g", "age", "dose", ("g", "age"), ("dose", "age")]
    run_with(everything, "all")
    for i, (question, covariates) in enumerate(SUBSETS.items()):
        theirs = run_with(covariates, f"of{i}")
        is_covariate = ~theirs["is_constant"].astype(bool)
        _, reply = ask.answered(Path("results/all"), question)
        ours = {(row[0], row[1]): [float(x) for x in row[2:4]] for row in reply.rows}
        assert len(ours) == is_covariate.sum() * 6
        for name, effects, errors in zip(
            theirs["names"][is_covariate],
            theirs["effects"][is_covariate],
            theirs["errors"][is_covariate],
            strict=True,
        ):
            for j, pair in enumerate(zip(effects, errors, strict=True)):
                outcome = str(theirs["outcome_names"][j])
                effect, error = ours[str(name), outcome]
                assert effect == pytest.approx(pair[0], rel=2e-5, abs=1e-6)
                # Squares are of what all covariates leave, and not these alone.
                assert error == pytest.approx(pair[1], rel=0.1)
