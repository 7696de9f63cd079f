"""A study of contrasts, from its file to its report, and what it refuses."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import wire
import yaml
from readable import assert_readable
from tiny_study import ACCEPT
from workflows import ROOT, edit

import capeneuro as cn
from capeneuro import cli
from capeneuro.algorithms.verdicts import ABOVE, NOT_ABOVE
from capeneuro.config.load import load_study
from capeneuro.data import files
from capeneuro.data.contrasts import covariance
from capeneuro.data.tables import open_table
from capeneuro.privacy import accounting
from capeneuro.report import page
from capeneuro.studies import ask
from capeneuro.studies.contrast import LESS_VARIED, ContrastKind
from sim import __main__ as sim

D, N, SITES = 8, 220, ("contrast-1", "contrast-2", "contrast-3")
TABLE = "group_desc-contrast_table.tsv"
AGE = {"mean": 40.0, "deviation": 12.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The example study at three of its sites, small, with its data."""
    root = tmp_path_factory.mktemp("contrast")
    here = ROOT / "config/contrast"
    study = yaml.safe_load((here / "study.yaml").read_text())
    study["contrast"]["means"] = "data/contrast/means.tsv"
    study["sites"] = [f"sites/{name}.yaml" for name in SITES]
    study["data"] |= {"n_subjects": N, "n_features": D, "separation": 1.2}
    files.write_text(root / "study.yaml", yaml.safe_dump(study, sort_keys=False))
    for path in (here / "sites").glob("*.yaml"):
        seed = "" if path.stem == "common" else "\nseed: 3\n"
        files.write_text(root / "sites" / path.name, path.read_text() + seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert sim.main(["study.yaml"]) == 0
        done = [("validate",), ("plan",)]
        done += [("prepare", "--site", name) for name in SITES]
        done += [("contrast", "--reference"), ("contrast",), ("maps",), ("score",)]
        done += [("reconstruct", "--site", SITES[0]), ("report",)]
        for step, *more in done:
            assert cli.main([step, "study.yaml", *more]) == 0, step
    return root


def test_a_group_that_differs_is_found_where_it_differs(made):
    found = cn.load(made / "results/contrast")
    table = found.effects
    own = table[table.covariate == "diagnosis 1 - 0"]
    differs = np.arange(D) < D / 3
    assert (own.verdict[differs] == "above noise").all()
    assert (own.verdict[~differs] != "above noise").mean() > 0.5
    truth = np.array(
        [r[1] for r in files.read_table(made / "data/contrast/truth/effects.tsv")]
    )
    off = np.abs(own.effect - truth.astype(float)) / own.standard_error
    assert np.abs(off).max() < 5.5
    assert set(table.covariate) == {"diagnosis 1 - 0", "age", "sex 2 - 1", "mean"}
    means = files.read_table(made / "results/contrast/group_desc-contrast_means.tsv")
    public, raw, error, drawn = np.array([row[1:] for row in means], float).T
    assert (np.abs(drawn - public) <= np.abs(raw - public) + 1e-6).all()
    assert (error > 0).all()
    scores = found.scores.set_index("name").value.astype(float)
    assert scores["truth_coverage"] > 0.6  # of 24 at 95%: less, once in three million
    assert scores["nonprivate_truth_effect_error"] < scores["truth_effect_error"]


def test_public_people_tell_how_outcomes_vary_together(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    about = "--source", "these people", "--out"
    assert cli.main(["prior", "study.yaml", *about, "own.npz"]) == 2
    assert "--out: must end with .tsv" in capsys.readouterr().err
    assert cli.main(["prior", "study.yaml", *about, "own.tsv"]) == 0
    names = [row[0] for row in files.read_table(made / "data/contrast/features.tsv")]
    S = covariance(Path("own.tsv"), names)[2]
    truth = covariance(Path("data/contrast/covariance.tsv"), names)[2]
    upper = np.triu_indices(D, 1)
    assert np.corrcoef(S[upper], truth[upper])[0, 1] > 0.9
    # Sites' people vary by 0.7 to 1.4 times what the public table says.
    assert 0.6 < np.sqrt(np.trace(S) / np.trace(truth)) < 1.4


def test_one_release_is_charged_and_is_all_that_left(made):
    record = cn.load(made / "results/contrast").privacy
    assert [own["query"] for own in record["releases"]] == ["linear_moments"]
    mu = record["releases"][0]["sites"][SITES[0]]["mu"]["aggregator_and_colluders"]
    assert mu == pytest.approx(accounting.mu_from_epsilon(2.0, 1e-5))
    page = (made / "results/contrast/report.html").read_text()
    alts = assert_readable(made / "results/contrast/report.html").alts
    assert any(alt.startswith("diagnosis 1 - 0: effect over") for alt in alts)
    assert re.search(r"Diagnosis 1 - 0: p = .* of all outcomes together", page)
    assert f"a row of a table ({D} outcomes), limited to the public bounds of" in page
    assert (
        "Covariates were diagnosis (1 compared with 0; the primary one), age (per 12, "
        "limited to 10 to 70) and sex (2 compared with 1)."
    ) in page
    assert f"at the two-sided level 0.05 / {3 * D} (Bonferroni" in page
    # Constants have no verdict: they are in the file, and not counted on the page.
    assert f"of {3 * D} effects" in page and f"{D + 10} of {3 * D} rows" in page


def test_without_privacy_it_is_least_squares_of_the_tables(made):
    found = files.read_arrays(
        made / "results/contrast/reference/group_desc-contrast_effects.npz"
    )
    x, y = [], []
    for name in SITES:
        rows = files.read_table(made / f"data/contrast/{name}.tsv")
        values = np.array([row[1:] for row in rows], float)
        own = values[:, D:] - [0, values[:, D + 1].mean(), 1]
        own[:, 1] = np.clip(np.round(own[:, 1], 9) / 12, -2.5, 2.5)
        own[:, [0, 2]] -= own[:, [0, 2]].mean(axis=0)
        x.append(np.column_stack([own, np.ones(len(own))]))
        y.append(values[:, :D])
    b = np.linalg.lstsq(np.concatenate(x), np.concatenate(y), rcond=None)[0]
    # Public means of age are rounded to three digits.
    np.testing.assert_allclose(found["effects"], b, atol=2e-3)


def test_a_site_makes_its_row_of_the_table_of_means(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    capsys.readouterr()
    assert cli.main(["site-means", "study.yaml", "--site", SITES[0]]) == 0
    head, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    table = Path("data/contrast/means.tsv").read_text().splitlines()
    public = dict(zip(table[0].split("\t"), table[1].split("\t"), strict=True))
    for name, value in zip(head, row, strict=True):
        if name == "site":
            assert value == public[name]
        else:  # published with three digits
            assert float(value) == pytest.approx(
                float(public[name]), rel=0.01, abs=0.01
            )
    assert cli.main(["site-means", "study.yaml", "--site", "nowhere"]) == 2
    assert "--site: must be one of" in capsys.readouterr().err


def test_a_group_that_sites_have_whole_or_not_at_all_is_refused(
    made, monkeypatch, capsys
):
    monkeypatch.chdir(made)
    means = Path("data/contrast/means.tsv").read_text().splitlines()
    head, rows = means[0].split("\t"), [line.split("\t") for line in means[1:]]
    at = head.index("diagnosis=0")
    for i, row in enumerate(rows):
        row[at : at + 2] = ["220", "0"] if i % 2 else ["0", "220"]
    files.write_table(Path("apart.tsv"), head, rows)
    Path("apart.yaml").write_text(Path("study.yaml").read_text())
    edit(Path("apart.yaml"), contrast__means="apart.tsv", study="apart")
    assert cli.main(["validate", "apart.yaml"]) == 2
    said = capsys.readouterr().err
    assert (
        "diagnosis 1 - 0 cannot be told from sites" in said and "\n" not in said.strip()
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("contrast__primary", "height", "must be one of age, diagnosis, sex"),
        (
            "contrast",
            {"covariates": {"age": {"deviation": 9}}},
            "age: a number needs its public mean, unless contrast.means is a table",
        ),
        ("contrast__interactions", [["age"]], "must be pairs of two covariates"),
        ("contrast__interactions", [["age", "sex"]], "must be constants with"),
        ("contrast__covariates", {"age": {"mean": 3}}, "not both"),
        ("contrast__covariance", "data/contrast/means.tsv", "lacks"),
        ("contrast__means", "data/contrast/covariance.tsv", "lacks"),
        (
            "contrast",
            {"covariates": {"age": {"deviation": 9}}, "sites": "constants"},
            "age: a number needs its public mean",
        ),
        ("rows__covariates", {"age": [0, 90]}, "see contrast.covariates"),
        (
            "contrast__covariates",
            {"age": AGE | {"knots": [20, 40, 60]}},
            "must be constants with knots of age",
        ),
        ("contrast__covariates", {"age": AGE | {"knots": [20, 40]}}, "must be 3 to 7"),
        ("contrast__covariates", {"age": AGE | {"knots": [20, 60, 40]}}, "increasing"),
        ("contrast__covariates", {"age": AGE | {"knots": [9, 40, 60]}}, "at most 2.5"),
        (
            "contrast__covariates",
            {"sex": {"groups": [1, 2], "knots": [20, 40, 60]}},
            "knots are of a number with a public mean and deviation",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(made, monkeypatch, capsys, key, value, words):
    monkeypatch.chdir(made)
    Path("odd.yaml").write_text(Path("study.yaml").read_text())
    edit(Path("odd.yaml"), **{key: value})
    for command in ("check", "validate"):
        assert cli.main([command, "odd.yaml"]) == 2
        said = capsys.readouterr().err
        assert words in said and "Traceback" not in said and len(said.splitlines()) == 1


def test_a_new_study_releases_means_or_has_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", ".", "--kind", "contrast", "--sites", "2"]) == 0
    assert not Path("config/means.tsv").exists()
    files.write_table(Path("features.tsv"), ["feature", "low", "high"], [["a", 0, 1]])
    features = {"kind": "table", "features": "features.tsv"}
    edit(Path("config/config.yaml"), space=None, rows__features=features)
    check, means = ["check", "config/config.yaml"], Path("config/means.tsv")
    assert cli.main(check) == 0
    edit(Path("config/config.yaml"), contrast__means="config/means.tsv")
    head = ["site", "patient=0", "patient=1", "age", "age clipped"]
    files.write_table(means, head, [[f"site-{k}", "", "", "", ""] for k in (1, 2)])
    capsys.readouterr()
    assert cli.main(check) == 2
    said = capsys.readouterr().err
    assert "site-1: must be a number, got an empty cell" in said
    row = "\t".join(["21", "20", "40.5", "0.02"])
    means.write_text(re.sub(r"(?m)(^site-\d)\t.*$", rf"\1\t{row}", means.read_text()))
    assert cli.main(check) == 0
    Path("features.tsv").write_text("feature\tlow\thigh\na\t1\t0\n")
    assert cli.main(check) == 2
    assert "features.tsv: low must be below high" in capsys.readouterr().err


def test_a_plan_says_how_far_people_are_taken_to_differ(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    study = yaml.safe_load(Path("study.yaml").read_text()) | {"study": "wide"}
    study["contrast"]["covariance"] = None
    names = [row[0] for row in files.read_table(Path("data/contrast/features.tsv"))]
    study["rows"]["features"]["features"] = "wide.tsv"
    files.write_text(Path("wide.yaml"), yaml.safe_dump(study, sort_keys=False))
    for high, deviation in ((0.6, "0.1, a sixth"), (1.2, "0.2, a sixth")):
        rows = [[name, "0", f"{high}"] for name in names]
        files.write_table(Path("wide.tsv"), ["feature", "low", "high"], rows)
        assert cli.main(["plan", "wide.yaml", "--people", "2000"]) == 0
        text = capsys.readouterr().out
        assert deviation in " ".join(text.split())
        of_row = {line[:20].strip(): line[20:].split() for line in text.splitlines()}
        usual, less = (float(of_row[k][0]) for k in ("as planned", LESS_VARIED))
        assert 1.2 * usual < less < 3 * usual
    # With a public covariance nothing is taken.
    assert cli.main(["plan", "study.yaml", "--people", "2000"]) == 0
    text = capsys.readouterr().out
    assert "in short" not in text and LESS_VARIED not in text


def test_a_plan_is_whole_before_ledgers_and_whatever_the_ceiling(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["init", ".", "--kind", "contrast", "--sites", "3"]) == 0
    plan = ["plan", "config/config.yaml", "--features", "100", "--people"]
    assert cli.main([*plan, "900"]) == 0
    assert "no ledger of private data yet" in capsys.readouterr().out
    edit(Path("config/sites/site-2.yaml"), epsilon=1.0)
    for people, drowned in (("900", False), ("300", True)):
        assert cli.main([*plan, people]) == 3
        text, error = capsys.readouterr()
        assert "twice the people" in text and LESS_VARIED in text
        assert ("it would not be" in error) == drowned
        assert "site site-2: epsilon: the ceiling is 1 at delta 1e-05" in error
        assert "this study alone makes 2 (in the ledger" in error
        assert "raise epsilon in its own file" in error and "cohort" not in error


def test_a_report_with_nothing_above_the_noise_says_what_lowers_it(made, monkeypatch):
    monkeypatch.chdir(made)
    study = yaml.safe_load(Path("study.yaml").read_text()) | {"study": "drowned"}
    study["contrast"] |= {"primary": None, "covariance": None}
    study["budget"]["epsilon"] = 0.02
    study["score"] = {}
    study["accept"] = ACCEPT
    files.write_text(Path("drowned.yaml"), yaml.safe_dump(study, sort_keys=False))
    steps = [("validate",), *(("prepare", "--site", name) for name in SITES)]
    steps += [("contrast",), ("maps",), ("score",), ("report",)]
    for step, *more in steps:
        assert cli.main([step, "drowned.yaml", *more]) == 0, step
    page = Path("results/drowned/report.html").read_text()
    # No covariate is primary, so intervals of all are shown.
    alts = page.partition("<details>")[0]
    assert all(f'alt="{name}: effect' in alts for name in ("age", "sex 2 - 1"))
    assert (
        "lowered most by fewer outcomes (their means over domains), a primary" in page
    )
    assert "a public covariance of the outcomes and more people" in page
    assert "cost nothing: <code>capeneuro ask</code>" in page
    # Not where something stands above it.
    page = Path("results/contrast/report.html").read_text()
    assert "lowered most by fewer outcomes" not in page


def test_the_primary_covariate_is_first_and_has_intervals_told_or_not(
    made, monkeypatch
):
    monkeypatch.chdir(made)
    study = load_study("study.yaml")
    options = study.contrast.model_copy(update={"primary": "sex"})
    kind = ContrastKind(study.model_copy(update={"contrast": options}))
    result = kind.read_result()
    verdicts, title = kind.verdicts(result, []), "sex 2 - 1: effects with 95% intervals"
    assert verdicts.exceeds_noise.any() and not verdicts.names[0].startswith("sex")
    assert kind.figures(result, {}, {}, verdicts).findings[0].title == title
    table = page.table_of(study.results / TABLE, kind.headings, kind.primary)
    assert [row[1] for row in table.rows[:D]] == ["sex 2 - 1"] * D
    assert table.most == D + 10
    null = replace(verdicts, labels=(NOT_ABOVE,) * len(verdicts.labels))
    figures = kind.figures(result, {}, {}, null)
    assert [figure.title for figure in figures.findings] == [title]
    assert len(figures.folded) == 2
    assert kind.primary_line(null).endswith("privacy and sampling: not a finding")
    told = replace(verdicts, labels=(ABOVE,) * len(verdicts.labels))
    assert f"{D} of {D} effects are distinguishable" in kind.primary_line(told)


@pytest.fixture(scope="module")
def noised(made) -> Path:
    """The same study without a table: means of sites are released."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        study = yaml.safe_load(Path("study.yaml").read_text()) | {"study": "noised"}
        del study["contrast"]["means"]
        files.write_text(Path("noised.yaml"), yaml.safe_dump(study, sort_keys=False))
        done = [("validate",), ("plan",)]
        done += [("prepare", "--site", name) for name in SITES]
        done += [("contrast", "--reference"), ("contrast",), ("maps",), ("score",)]
        done += [("reconstruct", "--site", SITES[0]), ("report",)]
        for step, *more in done:
            assert cli.main([step, "noised.yaml", *more]) == 0, step
    return made / "results/noised"


def test_means_of_sites_are_released_within_the_promise(noised):
    result = cn.load(noised)
    releases = result.privacy["releases"]
    assert [own["query"] for own in releases] == ["site_sums", "linear_moments"]
    site = SITES[0]
    losses = [r["sites"][site]["mu"]["aggregator_and_colluders"] for r in releases]
    assert np.hypot(*losses) == pytest.approx(accounting.mu_from_epsilon(2.0, 1e-5))
    assert losses[0] == pytest.approx(0.05**0.5 * np.hypot(*losses))
    assert set(result.effects.covariate) == {
        "diagnosis 1 - 0",
        "age",
        "sex 2 - 1",
        "mean",
    }
    page = (noised / "report.html").read_text()
    assert "released with noise within the promise" in page
    assert "After the noised means of covariates at each site" in page
    assert (noised / "group_desc-contrast_means.tsv").exists()


def test_noised_means_of_sites_leave_effects_where_they_are(made, noised):
    def read(folder: Path) -> dict[str, np.ndarray]:
        result = files.read_arrays(folder / "group_desc-contrast_effects.npz")
        order = np.argsort(result["names"])
        return {key: result[key][order] for key in ("names", "effects", "errors")}

    exact, found = read(made / "results/contrast/reference"), read(noised)
    # Without noise it is least squares with a constant for each site.
    reference = read(noised / "reference")
    own = reference["names"] != "mean"
    apart = np.abs(reference["effects"] - exact["effects"])[own]
    assert (apart / exact["errors"][own]).max() < 0.2
    off = np.abs(found["effects"] - reference["effects"]) / found["errors"]
    assert off[own].max() < 5
    errors = found["errors"] / read(made / "results/contrast")["errors"]
    assert np.median(errors[own]) < 2


def test_a_study_says_what_leaves_without_noise(made, noised, monkeypatch):
    monkeypatch.chdir(made)
    assert load_study("study.yaml").exact_public == (
        "number of its people in each group of diagnosis",
        "mean of age, as it is and clipped",
        "number of its people in each group of sex",
    )
    assert load_study("noised.yaml").exact_public == ()
    assert list(load_study("noised.yaml").n_releases) == ["means", "contrast"]


def test_the_report_of_a_run_without_noise_speaks_of_none(made, monkeypatch):
    monkeypatch.chdir(made)
    Path("exact.yaml").write_text(Path("study.yaml").read_text())
    changes = {"contrast__means": None, "score__reference": False}
    edit(Path("exact.yaml"), study="exact", arm="non-private", **changes)
    done = [("validate",), *(("prepare", "--site", name) for name in SITES)]
    for step, *more in [*done, ("contrast",), ("maps",), ("score",), ("report",)]:
        assert cli.main([step, "exact.yaml", *more]) == 0, step
    page = Path("results/exact/report.html").read_text()
    assert "those of ordinary least squares" in page and "without noise. Drawn" in page
    for words in ("released with noise", "noised means", "clipped to", "noise for"):
        assert words not in page, words


def test_a_rough_mean_and_means_of_sites_are_both_charged(made, monkeypatch):
    monkeypatch.chdir(made)
    Path("rough.yaml").write_text(Path("study.yaml").read_text())
    changes = {"contrast__means": None, "contrast__covariance": None}
    edit(Path("rough.yaml"), study="rough", **changes)
    done = [("validate",), *(("prepare", "--site", name) for name in SITES)]
    for step, *more in [*done, ("contrast",), ("maps",)]:
        assert cli.main([step, "rough.yaml", *more]) == 0, step
    record = load_study("rough.yaml")
    assert sum(record.shares.values()) == pytest.approx(1)
    found = files.read_arrays(Path("results/rough/group_desc-contrast_effects.npz"))
    assert np.isfinite(found["errors"]).all()
    assert list(record.n_releases) == ["center", "means", "contrast"]


def test_constants_of_sites_do_without_public_means(made, monkeypatch):
    monkeypatch.chdir(made)
    Path("constants.yaml").write_text(Path("study.yaml").read_text())
    changes = {"contrast__sites": "constants", "contrast__means": None}
    edit(
        Path("constants.yaml"), study="constants", **changes, contrast__covariance=None
    )
    done = [("validate",), *(("prepare", "--site", name) for name in SITES)]
    for step, *more in [*done, ("contrast", "--reference"), ("contrast",), ("maps",)]:
        assert cli.main([step, "constants.yaml", *more]) == 0, step
    found = files.read_arrays(Path("results/constants/group_desc-contrast_effects.npz"))
    exact = files.read_arrays(
        Path("results/constants/reference/group_desc-contrast_effects.npz")
    )
    assert list(found["names"][-3:]) == [f"mean {name}" for name in SITES]
    off = np.abs(found["effects"] - exact["effects"]) / found["errors"]
    assert (
        off.max() < 6
        and found["is_estimable"][found["names"] == "diagnosis 1 - 0"].all()
    )
    record = cn.load(Path("results/constants"))
    assert "verdict" in record.effects


def test_the_record_names_every_number_that_leaves(made, tmp_path, monkeypatch):
    """What is asked again is answered again, by the bytes that left."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "again"))
    for kept in Path("private/_aggregator/contrast").glob("*.bin"):
        kept.unlink()  # or the sites would not be asked again
    sent = wire.listen(monkeypatch)
    assert cli.main(["contrast", "study.yaml"]) == 0
    record = json.loads(Path("results/contrast/privacy.json").read_text())
    wire.assert_named(record, sent)
    declared = [
        row["description"] for row in record["without_noise"] if not row["sent_as"]
    ]
    assert "number of its people in each group of diagnosis" in declared
    assert "mean of age, as it is and clipped" in declared


@pytest.fixture(scope="module")
def charted(made) -> Path:
    """The same people in a study of a curve of age for each sex, at little noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        study = yaml.safe_load(Path("study.yaml").read_text()) | {"study": "charted"}
        del study["contrast"]["means"], study["data"], study["score"]["truth"]
        study["contrast"]["covariates"] = {
            "age": AGE | {"knots": [20, 40, 60]},
            "sex": {"groups": [1, 2]},
        }
        study["contrast"] |= {"primary": None, "interactions": [["age", "sex"]]}
        study["accept"] = ACCEPT
        files.write_text(Path("charted.yaml"), yaml.safe_dump(study, sort_keys=False))
        done = [("validate",), ("plan",)]
        done += [("prepare", "--site", name) for name in SITES]
        done += [("contrast", "--reference"), ("contrast",), ("maps",)]
        done += [("reconstruct", "--site", name) for name in SITES]
        for step, *more in done:
            assert cli.main([step, "charted.yaml", *more]) == 0, step
    return made


def test_a_chart_is_asked_of_the_results_alone(charted, tmp_path, capsys):
    shutil.copytree(charted / "results/charted", tmp_path / "alone")
    assert cli.main(["ask", str(tmp_path / "alone"), "chart age by sex"]) == 0
    said, stem = capsys.readouterr().out, ask.stem_of("chart age by sex")
    assert "people to be normal around the curve" in said
    assert "no privacy was spent" in said
    table = open_table(tmp_path / f"alone/answers/{stem}.tsv")
    assert [*table.columns[1:7]] == ["outcome", "group", "age", "mean", "low", "high"]
    assert (table.age.min(), table.age.max()) == (20, 60)
    assert len(table) == D * 2 * 41
    assert ((table.low < table["mean"]) & (table["mean"] < table.high)).all()
    assert (table.centile_5 < table.centile_95).all()
    page = assert_readable(tmp_path / f"alone/answers/{stem}.html")
    assert sum("over age" in alt for alt in page.alts) >= D
    assert cli.main(["ask", str(tmp_path / "alone"), "chart age"]) == 0
    assert cli.main(["ask", str(tmp_path / "alone"), "~ age[linear] + sex"]) == 0
    capsys.readouterr()
    for question, why in (
        ("chart sex", "sex: must have knots, as age has"),
        ("chart age by age", "age: must have groups, as sex has"),
    ):
        assert cli.main(["ask", str(tmp_path / "alone"), question]) == 2
        assert why in capsys.readouterr().err
    assert cli.main(["ask", str(charted / "results/contrast"), "chart age"]) == 2
    assert "age: must have knots, as no covariate has" in capsys.readouterr().err


def test_people_of_a_site_deviate_from_the_curve_and_that_stays_there(charted):
    """About by one: sites' people vary by 0.7 to 1.4 times the usual deviation."""
    result = files.read_arrays(
        charted / "results/charted/group_desc-contrast_effects.npz"
    )
    names = [str(n) for n in result["outcome_names"]]
    for site in SITES:
        own = open_table(charted / "private" / site / "charted/people.tsv")
        z = own[[f"z_{name}" for name in names]]
        assert len(z) == N
        assert 0.4 < z.to_numpy().std() < 2.0
        # Of the outcome itself, whatever the age.
        tables = files.read_table(charted / f"data/contrast/{site}.tsv")
        y = np.array([row[1] for row in tables], float)
        assert np.corrcoef(z.iloc[:, 0], y)[0, 1] > 0.5
    assert not list((charted / "results/charted").rglob("people.tsv"))
