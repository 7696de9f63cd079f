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
from capeneuro.studies.contrast import HEAVY_TAILED, ContrastKind
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
    assert (own.verdict[differs] == "above noise").sum() >= 2
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


def losses_of(record: dict) -> list[float]:
    """Mu of each release at a site, by its record of privacy."""
    site, view = SITES[0], "aggregator_and_colluders"
    return [release["sites"][site]["mu"][view] for release in record["releases"]]


def test_three_releases_are_charged_and_are_all_that_left(made):
    record = cn.load(made / "results/contrast").privacy
    queries = ["pilot_moments", "linear_moments", "linear_moments"]
    assert [own["query"] for own in record["releases"]] == queries
    mus = losses_of(record)
    assert np.hypot.reduce(mus) == pytest.approx(accounting.mu_from_epsilon(2.0, 1e-5))
    shares = np.square(mus) / np.sum(np.square(mus))
    np.testing.assert_allclose(shares, [0.1, 0.9 * 0.27, 0.9 * 0.73], rtol=1e-6)
    page = (made / "results/contrast/report.html").read_text()
    alts = assert_readable(made / "results/contrast/report.html").alts
    assert any(alt.startswith("diagnosis 1 - 0: effect over") for alt in alts)
    assert re.search(rf"Diagnosis 1 - 0: . of {D} outcomes differ, corrected", page)
    assert f"a row of a table ({D} outcomes), limited to the public bounds of" in page
    assert (
        "Covariates were diagnosis (1 compared with 0; the primary one), age (per 12, "
        "limited to 10 to 70) and sex (2 compared with 1)."
    ) in page
    assert f"corrected for all {D} of them [Holm], is below 0.05" in page
    # Other covariates have intervals, and no verdict.
    assert f"of {D} effects" in page
    table = cn.load(made / "results/contrast").effects
    others = table[table.covariate != "diagnosis 1 - 0"]
    assert others.verdict.isna().all() and others.p_corrected.isna().all()
    assert others.low.notna().all()


def test_without_privacy_it_is_least_squares_of_the_tables(made):
    found = files.read_arrays(
        made / "results/contrast/reference/group_desc-contrast_effects.npz"
    )
    x, y = [], []
    for k, name in enumerate(SITES):
        rows = files.read_table(made / f"data/contrast/{name}.tsv")
        values = np.array([row[1:] for row in rows], float)
        group, age, sex = values[:, D:].T
        age = np.clip((age - AGE["mean"]) / AGE["deviation"], -2.5, 2.5)
        site = np.tile(np.arange(len(SITES)) == k, (len(rows), 1))
        x.append(np.column_stack([group, age, sex - 1, site]))
        y.append(values[:, :D])
    b = np.linalg.lstsq(np.concatenate(x), np.concatenate(y), rcond=None)[0]
    # Public means of age are rounded to three digits.
    np.testing.assert_allclose(found["effects"][:3], b[:3], atol=2e-3)


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
            "age: a number needs its public mean",
        ),
        ("contrast__interactions", [["age"]], "must be pairs of two covariates"),
        (
            "contrast__interactions",
            [["age", "sex"]],
            "contrast.means: must be null with interactions",
        ),
        ("contrast__covariates", {"age": {"mean": 3}}, "not both"),
        ("contrast__covariance", "data/contrast/means.tsv", "lacks"),
        ("contrast__means", "data/contrast/covariance.tsv", "lacks"),
        ("contrast__sites", "constants", "contrast.sites: unknown key"),
        ("contrast__releases", 3, "contrast.releases"),
        ("contrast__largest_error", 0, "contrast.largest_error"),
        ("rows__covariates", {"age": [0, 90]}, "see contrast.covariates"),
        (
            "contrast__covariates",
            {"age": AGE | {"knots": [20, 40, 60]}},
            "contrast.means: must be null with knots of age",
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
    head = ["site", "patient=0", "patient=1", "age"]
    files.write_table(means, head, [[f"site-{k}", "", "", ""] for k in (1, 2)])
    capsys.readouterr()
    assert cli.main(check) == 2
    said = capsys.readouterr().err
    assert "site-1: must be a number, got an empty cell" in said
    row = "\t".join(["21", "20", "40.5"])
    means.write_text(re.sub(r"(?m)(^site-\d)\t.*$", rf"\1\t{row}", means.read_text()))
    assert cli.main(check) == 0
    Path("features.tsv").write_text("feature\tlow\thigh\na\t1\t0\n")
    assert cli.main(check) == 2
    assert "features.tsv: low must be below high" in capsys.readouterr().err


def test_a_plan_gives_a_range_by_how_far_some_people_are(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    study = yaml.safe_load(Path("study.yaml").read_text()) | {"study": "wide"}
    study["contrast"]["covariance"] = None
    files.write_text(Path("wide.yaml"), yaml.safe_dump(study, sort_keys=False))
    for path, is_taken in (("wide.yaml", True), ("study.yaml", False)):
        assert cli.main(["plan", path, "--people", "2000"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        of_row = [
            re.search(rf"{name} ([0-9.]+) ([0-9.]+) ([0-9.]+)", text).groups()
            for name in ("as planned", HEAVY_TAILED)
        ]
        usual, heavy = np.array(of_row, float)
        assert (heavy > usual).all() and heavy[0] < 4 * usual[0]
        # With a public covariance nothing is taken of how people vary.
        assert ("contrast.covariance is null" in text) == is_taken


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
        assert "twice the people" in text and HEAVY_TAILED in text
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
    result, title = kind.read_result(), "sex 2 - 1: effects with 95% intervals"
    result = replace(result, is_primary=result.names == "sex 2 - 1")
    verdicts = kind.verdicts(result, [])
    assert [*verdicts.names] == [f"sex 2 - 1: {name}" for name in kind.shape.names]
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
    mus = losses_of(result.privacy)
    assert len(mus) == 3
    total = np.hypot.reduce(mus)
    assert total == pytest.approx(accounting.mu_from_epsilon(2.0, 1e-5))
    assert mus[0] == pytest.approx(0.2**0.5 * total)
    assert set(result.effects.covariate) == {
        "diagnosis 1 - 0",
        "age",
        "sex 2 - 1",
        "mean",
    }
    page = (noised / "report.html").read_text()
    assert "were released with noise, within the promise" in page
    assert "released the noised means of covariates and outcomes at each site" in page
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
        "mean of age",
        "number of its people in each group of sex",
    )
    assert load_study("noised.yaml").exact_public == ()


def test_the_report_of_a_run_without_noise_speaks_of_none(made, monkeypatch):
    monkeypatch.chdir(made)
    Path("exact.yaml").write_text(Path("study.yaml").read_text())
    changes = {"contrast__means": None, "score__reference": False}
    edit(Path("exact.yaml"), study="exact", arm="non-private", **changes)
    done = [("validate",), *(("prepare", "--site", name) for name in SITES)]
    for step, *more in [*done, ("contrast",), ("maps",), ("score",), ("report",)]:
        assert cli.main([step, "exact.yaml", *more]) == 0, step
    page = Path("results/exact/report.html").read_text()
    assert "coefficients of ordinary least squares" in page
    assert "nothing was shortened" in page
    for words in ("released with noise", "noised means", "Fieller", "noise for"):
        assert words not in page, words


def another(name: str, **changes) -> None:
    """The same people in another study, prepared."""
    path = Path(f"{name}.yaml")
    path.write_text(Path("study.yaml").read_text())
    edit(path, study=name, score__reference=False, **changes)
    assert cli.main(["validate", str(path)]) == 0
    for site in SITES:
        assert cli.main(["prepare", str(path), "--site", site]) == 0


def charged(study: str) -> list[float]:
    """Mu of each release of a study in a site's ledger."""
    lines = Path(f"private/{SITES[0]}/ledger/ledger.jsonl").read_text().splitlines()
    entries = [json.loads(json.loads(line)["entry"]) for line in lines]
    releases = [entry for entry in entries if entry["kind"] == "release"]
    return [own["mu"] for own in releases if own["study"].startswith(f"{study}:")]


def test_with_bounds_alone_a_range_is_charged_before_the_pilot(made, monkeypatch):
    monkeypatch.chdir(made)
    another("bounds", contrast__means=None, contrast__covariance=None)
    assert cli.main(["contrast", "bounds.yaml"]) == 0
    shares = load_study("bounds.yaml").shares
    assert list(shares) == ["range", "pilot", "draft", "contrast"]
    assert sum(shares.values()) == pytest.approx(1)
    found = files.read_arrays(Path("results/bounds/group_desc-contrast_effects.npz"))
    is_told = found["is_estimable"]
    assert np.isfinite(found["errors"][is_told]).all()
    assert ((found["why_not"] == "") == is_told).all()


def test_effects_are_released_once_where_that_is_asked_for(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    another("once", contrast__releases=1)
    assert cli.main(["contrast", "once.yaml"]) == 0
    assert list(load_study("once.yaml").shares) == ["pilot", "contrast"]
    assert len(charged("once")) == 2
    found, twice = (
        files.read_arrays(Path(f"results/{name}/group_desc-contrast_effects.npz"))
        for name in ("once", "contrast")
    )
    off = np.abs(found["effects"] - twice["effects"])[0]
    assert (off / np.hypot(found["errors"], twice["errors"])[0]).max() < 5
    study = load_study("study.yaml")
    by_files = study.model_copy(update={"federation": "files"})
    assert (study.releases, by_files.releases) == (2, 1)


def test_a_study_stops_after_the_pilot_if_that_foretells_too_little(
    made, monkeypatch, capsys
):
    monkeypatch.chdir(made)
    another("stopped", contrast__largest_error=0.01)
    capsys.readouterr()
    assert cli.main(["contrast", "stopped.yaml"]) == 3
    out, error = capsys.readouterr()
    foretold = re.search(r"the pilot forecasts a standard error of ([0-9.]+)", out)
    assert 0.01 < float(foretold[1]) < 1
    assert len(error.splitlines()) == 1
    assert f"which forecasts {foretold[1]}, more than 0.01" in error
    total = accounting.mu_from_epsilon(2.0, 1e-5)
    assert charged("stopped") == [pytest.approx(0.1**0.5 * total)]
    assert not list(Path("results/stopped").glob("group_desc-contrast_effects.npz"))
    # A larger value goes on from there: the pilot is not asked, nor paid, again.
    identity = load_study("stopped.yaml").identity
    edit(Path("stopped.yaml"), contrast__largest_error=1.0)
    assert load_study("stopped.yaml").identity == identity
    assert cli.main(["contrast", "stopped.yaml"]) == 0
    assert f"standard error of {foretold[1]} " in capsys.readouterr().out
    assert len(charged("stopped")) == 3 and np.hypot.reduce(
        charged("stopped")
    ) == pytest.approx(total)


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
    assert "mean of age" in declared


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
        study["budget"]["epsilon"], study["accept"] = 9.0, ACCEPT
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
