"""A prior of public people, and a study of others that starts from it."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_study import (
    SIDE,
    STUDY,
    command,
    edit,
    run_steps,
    site_content,
    study_content,
    write_image,
    write_study,
)

from capeneuro.algorithms import stand_ins
from capeneuro.algorithms.prior import Prior
from capeneuro.config import load
from capeneuro.data import files, priors
from capeneuro.studies import around_prior, components
from capeneuro.studies import sites as site_files
from capeneuro.studies.priors import open_prior

PUBLIC, PRIOR = "public.yaml", "public.npz"
SAID = {"file": PRIOR, "source": "three simulated sites"}
NAMES = [
    {"file": "data/truth.nii.gz", "labels": "template.tsv"},
    {"file": "data/atlas.nii.gz", "labels": "atlas.tsv"},
]
WHY = "a test of the steps, not of a result"
GAIN, NOISE = {"rule": "gain", "reason": WHY}, {"rule": "noise", "reason": WHY}


def write_public(**changes) -> None:
    """A study of the same people as public ones, and without privacy."""
    for i in range(3):
        own = site_content(i) | {"data": "public", "name": f"open-{i}"}
        Path(f"open-{i}.yaml").write_text(yaml.safe_dump(own))
    content = study_content(3) | {"study": "open", "arm": "non-private"}
    content |= {"sites": [f"open-{i}.yaml" for i in range(3)]} | changes
    Path(PUBLIC).write_text(yaml.safe_dump(content))


def use(name: str) -> None:
    """The study of that name: ``subject``, ``sample`` or ``temporal``."""
    edit(STUDY, "study", name)
    edit(STUDY, "budget.unit", "subject" if name == "subject" else "sample")
    ica = {"n_rounds": 3} if name == "temporal" else {"independence": "spatial"}
    edit(STUDY, "ica", ica)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A study, its prior, and all its steps around it."""
    folder = tmp_path_factory.mktemp("priors")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_study(folder)
        write_public()
        about = "--out", PRIOR, "--source", "simulated", "--licence", "CC0"
        assert command("prior", PUBLIC, *about) == 0
        edit(STUDY, "prior", SAID)
        regions = np.arange(SIDE**3).reshape((SIDE,) * 3) // (SIDE**3 // 4) + 1
        write_image(Path("data/atlas.nii.gz"), regions)
        files.write_table(
            Path("atlas.tsv"),
            ["index", "name", "network"],
            [[str(i + 1), f"R{i + 1}", "net"] for i in range(4)],
        )
        template = [[str(i), f"T{i}"] for i in range(1, 4)]
        files.write_table(Path("template.tsv"), ["index", "name"], template)
        edit(STUDY, "names", NAMES)
        edit(STUDY, "accept", [GAIN, NOISE])
        for i in range(3):
            edit(f"site-{i}.yaml", "epsilon", 1e4)
        use("subject")
        run_steps("validate", "plan", "prepare", "pca", "ica", "maps")
        run_steps("reconstruct", "score", "report")
        # The others without what the kind of the release and of ICA does not change.
        edit(STUDY, "score.reference", False)
        for unit in ("sample", "temporal"):
            use(unit)
            run_steps("validate", "prepare")
            for step in ("pca", "ica", "maps", "score"):
                assert command(step, STUDY) == 0, step
        run_steps("report")
        edit(STUDY, "score.reference", True)
    return folder


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    """In the folder; the study and its prior are put back afterwards."""
    monkeypatch.chdir(folder)
    kept = {path: Path(path).read_bytes() for path in (STUDY, PRIOR)}
    yield
    for path, content in kept.items():
        Path(path).write_bytes(content)


def test_a_prior_is_made_of_public_people_and_says_of_whom():
    arrays = files.read_arrays(Path(PRIOR))
    about = json.loads(str(arrays["about"]))
    assert about["source"] == "simulated" and about["licence"] == "CC0"
    found = Prior(**priors.read(Path(PRIOR), Prior.__dataclass_fields__, {}))
    assert found.n_people == 6 and found.n_sites == 3
    assert found.directions.shape == (27, 27)


@pytest.mark.parametrize("unit", ["subject", "sample", "temporal"])
def test_a_study_starts_from_it_and_says_what_private_data_add(unit):
    results = Path("results") / unit
    record = json.loads((results / "privacy.json").read_text())
    query = "deviation" if unit == "subject" else "white_second_moment"
    asked = [query] + ["infomax_skew"] * (3 if unit == "temporal" else 0)
    assert [one["query"] for one in record["releases"]] == asked
    use(unit)
    study = load.load_study(STUDY)
    alone = around_prior.public(study, open_prior(study)[0]).mixing
    found = components.ComponentsKind(study).read_unmixing().mixing
    r = [np.corrcoef(a, b)[0, 1] for a, b in zip(found.T, alone.T, strict=True)]
    assert np.mean(r) > 0.3  # in the prior's order and with its signs
    subspace = files.read_arrays(results / "group_desc-pca_subspace.npz")
    n = 27 * 28 // 2
    assert subspace["posterior"].shape == (5, n)
    scores = {row[0]: row for row in files.read_table(results / "scores.tsv")}
    assert scores["public_truth_mean_abs_r"][3].startswith("public, epsilon 0: mean")
    # The prior is of the very same people, so it can hardly be improved.
    assert float(scores["public_truth_mean_abs_r"][1]) > 0.6
    if unit != "sample":  # temporal asks the same of volumes
        report = (results / "report.html").read_text()
        assert "public maps by more than privacy noise would" in report
        assert "difference of private data from a public prior" in report
        assert (
            "Correlation of each map with the public map that it started from" in report
        )
        assert "This study accepts that private data may add nothing" in report
        tested = "Forecast: the prior is used: on public stand-in people" in report
        assert tested == (unit == "subject")
        assert ("whether it improves the maps was not tested" in report) != tested
    words = {row[-1] for row in files.read_table(results / "verdicts.tsv")}
    assert words <= {"above noise", "as the prior", "cannot be told", "verdict"}


def test_components_are_called_after_the_truth():
    path = Path("results/subject/group_desc-ica_components.tsv")
    header, *rows = path.read_text().splitlines()
    assert header.split("\t")[-3:] == ["like", "overlap", "peak"]
    rows = [row.split("\t")[-3:] for row in rows]
    assert {row[0] for row in rows} <= {"T1", "T2", "T3"}
    assert all(float(row[1]) > 0.25 and row[2].endswith(", net") for row in rows)
    report = Path("results/subject/report.html").read_text()
    assert f"component 1, like {rows[0][0]} (r {rows[0][1]})" in report


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([["1", "T1"]], "must have a row for each of the 3 maps"),
        ([["x", "T1"]] * 3, "index must be a whole number, got 'x'"),
    ],
)
def test_names_that_do_not_fit_are_refused(names, said, capsys):
    files.write_table(Path("odd.tsv"), ["index", "name"], names)
    use("subject")
    edit(STUDY, "names", [NAMES[0] | {"labels": "odd.tsv"}])
    assert command("maps", STUDY) == 2
    assert said in capsys.readouterr().err


def test_a_study_that_adds_nothing_is_refused(capsys):
    use("subject")
    edit(STUDY, "accept", [])
    assert command("plan", STUDY) == 3
    said = capsys.readouterr()
    assert "public maps, epsilon 0: r = " in said.out
    assert "adds nothing measurable" in said.out
    assert "prior: private data must be forecast to add 0.01 or more" in said.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pca.center": True}, "pca.center: must be false with a prior"),
        ({"prior.file": "none.npz"}, "prior.file: no such file: none.npz"),
        ({"cleaning.standardize": "zscore"}, "was made with another cleaning"),
        ({"prior.file": "data/odd.npy"}, "second moment of the 27 features"),
        ({"prior.file": "data/mask4.nii.gz"}, "must hold two public maps or more"),
        ({"prior.file": "data/broken.npz"}, "no prior of this version, lacks"),
        ({"prior.source": "me"}, "prior.source"),
    ],
)
def test_what_is_no_prior_of_the_study_is_refused(changes, said, capsys):
    np.save("data/odd.npy", np.eye(3))
    np.savez("data/broken.npz", a=1)
    write_image(Path("data/mask4.nii.gz"), np.ones((SIDE, SIDE, SIDE, 1)))
    for key, value in changes.items():
        edit(STUDY, key, value)
    assert command("plan", STUDY) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("file", ["data/truth.nii.gz", "data/moment.npy"])
def test_public_maps_or_a_moment_are_a_prior(file, capsys):
    np.save("data/moment.npy", np.diag(np.linspace(9, 1, 27)))
    edit(STUDY, "prior.file", file)
    assert command("plan", STUDY) == 0
    said = capsys.readouterr().out
    assert "was not tested" in said and "r = " not in said
    # Public people of another file can test it.
    edit(STUDY, "ica.independence", "spatial")
    edit(STUDY, "prior.stand_in", "data/moment.npy")
    assert command("plan", STUDY) == 0
    said = capsys.readouterr().out
    assert "the prior is" in said and "used: on public stand-in people" in said


def test_another_prior_than_that_of_the_release_is_refused(capsys):
    use("subject")
    arrays = files.read_arrays(Path(PRIOR))
    files.write_arrays(Path(PRIOR), **arrays | {"n_people": 7})
    assert command("maps", STUDY) == 2
    assert "is another than when `pca` ran" in capsys.readouterr().err


def test_a_prior_may_be_there_to_compare_with_alone(capsys):
    use("subject")
    edit(STUDY, "prior", SAID | {"use": False})
    edit(STUDY, "study", "beside")
    edit(STUDY, "accept", [GAIN, NOISE])
    run_steps("validate", "plan", "prepare", "pca", "ica", "score")
    said = capsys.readouterr().out
    assert "the prior is not used: public maps, epsilon 0: r = " in said
    rows = files.read_table(Path("results/beside/scores.tsv"))
    names = {row[0] for row in rows}
    assert {"truth_mean_abs_r", "public_truth_mean_abs_r"} <= names
    edit(STUDY, "accept", [NOISE])
    assert command("plan", STUDY) == 3


def test_a_prior_of_other_parcels_is_left_out_before_anything_is_spent(capsys):
    """The stand-ins are of these parcels, the prior is of permuted ones."""
    use("sample")
    edit(STUDY, "study", "others")
    edit(STUDY, "budget.epsilon", 500.0)
    arrays = files.read_arrays(Path(PRIOR))
    order = np.random.default_rng(0).permutation(len(arrays["directions"]))
    permuted = {"half_directions": arrays["half_directions"][order]}
    permuted |= {"directions": arrays["directions"][order]}
    files.write_arrays(Path(PRIOR), **arrays | permuted)
    run_steps("validate", "plan", "prepare", "pca", "ica", "maps", "score", "report")
    assert "note: the prior is not used: on public stand-in people" in (
        capsys.readouterr().out
    )
    record = json.loads(Path("results/others/privacy.json").read_text())
    assert [own["query"] for own in record["releases"]] == ["second_moment"]
    report = Path("results/others/report.html").read_text()
    assert "Forecast: note: the prior is not used" in report
    assert "difference of private data from a public prior" not in report


def test_a_study_that_noise_would_drown_without_its_prior_spends_nothing(
    capsys, monkeypatch
):
    monkeypatch.setattr(stand_ins.Trial, "has_prior", property(lambda trial: False))
    use("subject")
    edit(STUDY, "study", "drowned")
    edit(STUDY, "accept", [GAIN])
    edit(STUDY, "pca.clip", 1e6)
    run_steps("validate", "prepare")
    assert command("plan", STUDY) == 3
    assert command("pca", STUDY) == 3
    said = capsys.readouterr()
    assert "note: the prior is not used" in said.out
    assert "nothing of it is released" in said.err
    charged = site_files.open_ledger(load.load_site(Path("site-0.yaml"))).releases()
    assert not [one for one in charged if one.study.startswith("drowned")]


def test_private_people_are_no_prior(capsys):
    write_public(arm="cape", score={"reference": False})
    for i in range(3):
        edit(f"open-{i}.yaml", "data", "private")
    about = "--out", "x.npz", "--source", "simulated"
    assert command("prior", PUBLIC, *about) == 2
    assert "must be public or simulated to make a prior of" in capsys.readouterr().err
    assert not Path("x.npz").exists()
    write_public()
    assert command("prior", PUBLIC, "--out", "x.txt", "--source", "simulated") == 2
    assert "--out: must end with .npz" in capsys.readouterr().err
