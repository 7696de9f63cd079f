"""The files of a new study: valid as they stand, every key with a line on it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from capeneuro import cli
from capeneuro.algorithms import forecast_components
from capeneuro.config import components, explain, load, scaffold
from capeneuro.config.site import SiteConfig
from capeneuro.studies import decisions
from sim.__main__ import main as make_data

STUDY = scaffold.study_file(["a", "b", "c"])
SITE = scaffold.site_file("a")
MADE = scaffold.study_file(["a", "b"], data="simulated")


def keys(content: dict, within: str = "") -> set[str]:
    """Paths of the keys of a file; of a key of names those are its value."""
    paths = set()
    for name, value in content.items():
        paths.add(f"{within}{name}")
        if isinstance(value, dict) and f"{within}{name}" != "contrast.covariates":
            paths |= keys(value, f"{within}{name}.")
    return paths


@pytest.mark.parametrize("kind", ["components", *load.KINDS])
def test_the_study_file_has_what_must_be_decided_and_is_valid(kind):
    content = yaml.safe_load(scaffold.study_file(["a", "b", "c"], kind))
    model = {"components": components.ComponentsConfig, **load.KINDS}[kind]
    study = model.model_validate(content)
    assert study.sites == [Path(f"config/sites/{s}.yaml") for s in "abc"]
    assert study.arm == "cape"
    every = {key.path: key for key in explain.keys(model)}
    written = keys(content)
    assert written <= every.keys()
    assert {"aggregator", "source", "expected.people"} <= written
    assert len(written) <= 40


def test_the_site_file_has_four_keys_and_is_valid():
    content = yaml.safe_load(SITE)
    assert list(content) == ["name", "images", "data", "epsilon"]
    site = SiteConfig.model_validate(content)
    assert site.name == "a"
    assert site.data == "private"
    assert site.unit == "subject"
    assert site.seed is None
    table = yaml.safe_load(scaffold.site_file("a", "contrast"))
    assert list(table) == ["name", "images", "people", "data", "epsilon"]
    of_both = yaml.safe_load(scaffold.site_file("a", "fusion"))
    assert list(of_both) == ["name", "images", "eeg", "data", "epsilon"]


def test_simulated_people_are_made_and_planned_as_the_files_stand(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    made = ("--data", "simulated", "--sites", "3", "--people", "1000")
    assert cli.main(["init", "own", *made]) == 0
    os.chdir("own")
    content = yaml.safe_load(Path("config/config.yaml").read_text())
    assert content["data"]["n_subjects"] == 334
    capsys.readouterr()
    assert cli.main(["plan", "config/config.yaml"]) == 0
    said = capsys.readouterr().out
    assert "1,002 people at all sites together with 60 volumes each" in said
    # The norm bound is the root of the number of features, which the forecast counts.
    n = int(re.search(r"of (\d+) features of variance 1", said)[1])
    assert content["pca"]["norm_bound"] == pytest.approx(n**0.5, rel=0.01)
    site = load.load_site("config/sites/site-1.yaml")
    assert site.data == "simulated" and site.epsilon >= 2 * content["budget"]["epsilon"]


@pytest.mark.parametrize("kind", load.KINDS)
def test_people_of_each_kind_are_made_and_forecast_as_the_files_stand(
    kind, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    made = ("--kind", kind, "--data", "simulated", "--sites", "3")
    assert cli.main(["init", ".", *made]) == 0
    study = load.load_study("config/config.yaml")
    n = -(-scaffold.PEOPLE[kind] // 3)
    assert study.data.n_subjects == n and study.score.reference
    if kind != "fusion":  # whose images and recordings take long
        assert make_data(["config/config.yaml"]) == 0
        assert len(Path("data/site-2.tsv").read_text().splitlines()) == 1 + n
    capsys.readouterr()
    # The noise is foretold not to drown the result.
    assert cli.main(["plan", "config/config.yaml"]) == 0


def test_a_lead_drafts_the_files_of_sites_that_it_has_no_data_of(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    lead = ("--kind", "contrast", "--federation", "files", "--people", "2000")
    assert cli.main(["init", ".", *lead, "--sites", "north", "south"]) == 0
    study = load.load_study("config/config.yaml")
    assert study.federation == "files" and study.site_names == ("north", "south")
    assert load.load_site("config/sites/south.yaml").name == "south"
    for words, text in [
        (["--sites", "a/b", "c"], "letters, digits, - and _, got 'a/b'"),
        (["--sites", "a", "a"], "at least 2, each once, got a a"),
        (["--federation", "files", "--data", "simulated"], "a lead, who has no data"),
    ]:
        assert cli.main(["init", "other", *words]) == 2
        assert text in capsys.readouterr().err


def test_public_people_need_no_noise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "own", "--data", "public"]) == 0
    content = yaml.safe_load(Path("own/config/config.yaml").read_text())
    assert content["arm"] == "non-private"
    assert load.load_site("own/config/sites/site-1.yaml").data == "public"


@pytest.mark.parametrize(
    "text", [STUDY, SITE, MADE], ids=["study", "site", "simulated"]
)
def test_every_key_is_explained_above_it(text):
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if re.match(r"\s*\w+:", line):
            assert lines[i - 1].lstrip().startswith("#"), line
        assert len(line) <= 100


def test_clips_of_a_new_study_suit_its_unit():
    """A volume's would be five and ten times a person's: noise above the signal."""
    study = components.ComponentsConfig.model_validate(yaml.safe_load(STUDY))
    R, unit = study.n_components, study.promise.unit
    assert study.pca.clip == pytest.approx(
        forecast_components.fair_pca_clip(unit, R), rel=0.1
    )
    fair = forecast_components.fair_clip(unit, R, n_volumes=180)
    assert study.ica.clip == pytest.approx(fair, rel=0.1)


def test_numbers_survive_the_writing():
    assert "delta: 1.0e-5" in STUDY
    assert yaml.safe_load(STUDY)["pca"]["clip"] == 0.32


def test_snakemake_plans_the_whole_new_study(tmp_path, monkeypatch):
    """As the README has it: `init`, then `snakemake` without a target."""
    monkeypatch.chdir(tmp_path)
    cli.main(["init", "."])
    for site in ("site-1", "site-2"):
        image = tmp_path / f"data/{site}/sub-{site[-1]}"
        image = image / f"func/sub-{site[-1]}_task-x_bold.nii.gz"
        image.parent.mkdir(parents=True)
        image.touch()
    (tmp_path / "data/mask.nii.gz").touch()
    snakemake = Path(sys.executable).with_name("snakemake")
    done = subprocess.run(
        [snakemake, "-n", "--cores", "1"], capture_output=True, text=True, check=True
    )
    assert re.search(r"^report +1$", done.stdout + done.stderr, re.MULTILINE)
    assert "executor: slurm" in Path("workflow/profiles/slurm/profile.yaml").read_text()


def test_the_snakefile_includes_the_workflow():
    path = Path(re.search(r'"(.+)"', scaffold.snakefile())[1])
    assert path.is_absolute()
    assert (path.parent / "rules/study.smk").is_file()


def test_a_key_is_explained_by_its_path_or_its_last_part(capsys):
    assert cli.main(["explain", "budget.epsilon"]) == 0
    text = capsys.readouterr().out
    assert "budget.epsilon: number above 0; required\n  Total epsilon of all" in text
    assert cli.main(["explain", "clip"]) == 0
    assert {"pca.clip", "ica.clip"} <= {
        line.split(":")[0] for line in capsys.readouterr().out.splitlines()
    }
    assert cli.main(["explain", "--site"]) == 0
    assert "epsilon (required): Ceiling" in capsys.readouterr().out
    assert cli.main(["explain", "epsilonn"]) == 2
    assert "did you mean epsilon" in capsys.readouterr().err


def test_several_keys_are_explained_at_once(capsys):
    for command in cli.commands():
        if command.run.__name__ == "explain":
            names = command.example.split()
    assert len(names) > 1 and cli.main(["explain", *names, "epsilon"]) == 0
    text = capsys.readouterr().out
    paths = [line.split(":")[0] for line in text.splitlines() if line[0] != " "]
    assert paths[: len(names)] == names and "budget.epsilon" in paths
    assert cli.main(["explain", "epsilonn", "epsilon", "clipp"]) == 2
    error = capsys.readouterr().err
    assert "epsilonn: is no key" in error and "clipp: is no key" in error


def test_what_nobody_decided_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    cli.main(["init", "own", "--kind", "contrast"])
    study = load.KINDS["contrast"].model_validate(
        yaml.safe_load(Path("own/config/config.yaml").read_text())
    )
    sites = {"site-1": load.load_site("own/config/sites/site-1.yaml")}
    lines = [line.split(":")[0] for line in decisions.open_decisions(study, sites)]
    assert lines == [
        "aggregator",
        "budget.n_colluding",
        "source",
        "governance",
        "epsilon of site-1",
        "contrast.covariance",
    ]
    settled = study.model_copy(update={"aggregator": "independent"})
    line = next(decisions.open_decisions(settled, sites))
    assert line.startswith("budget.n_colluding")
    assert line.endswith("the promise is against the aggregator and any 1 site")
    # The lead writes the study file, and has no site's file where sites are apart.
    apart = study.model_copy(update={"federation": "files"})
    assert not any("governance" in x for x in decisions.open_decisions(apart, sites))
    assert any("governance" in line for line in decisions.open_decisions(apart, {}))
