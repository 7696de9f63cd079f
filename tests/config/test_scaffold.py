"""The files of a new study: valid as they stand, every key with its explanation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from capeneuro import cli
from capeneuro.algorithms import forecast_components
from capeneuro.config import components, load, scaffold
from capeneuro.config.site import SiteConfig
from capeneuro.studies import workflow

STUDY = scaffold.study_file(["a", "b", "c"])
SITE = scaffold.site_file("a")
MADE = scaffold.study_file(["a", "b"], data="simulated")


def keys(model: type[BaseModel], content: dict) -> None:
    """Every key of a model stands in a file, the nested ones too."""
    assert list(content) == list(model.model_fields)
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys(inner, content[name])


def test_the_study_file_holds_every_key_and_is_valid():
    content = yaml.safe_load(STUDY)
    keys(components.ComponentsConfig, content)
    study = components.ComponentsConfig.model_validate(content)
    assert study.sites == [Path(f"config/sites/{s}.yaml") for s in "abc"]
    assert study.arm == "cape"


def test_the_site_file_holds_every_key_and_is_valid():
    content = yaml.safe_load(SITE)
    keys(SiteConfig, content)
    site = SiteConfig.model_validate(content)
    assert site.name == "a"
    assert site.data == "private"
    assert site.seed is None


def test_simulated_people_are_made_and_planned_as_the_files_stand(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    made = ("--data", "simulated", "--sites", "3", "--people", "1000")
    assert cli.main(["init", "own", *made]) == 0
    os.chdir("own")
    content = yaml.safe_load(Path("config/config.yaml").read_text())
    keys(components.ComponentsConfig, content)
    keys(components.Simulation, content["data"])
    assert content["data"]["n_subjects"] == 334
    capsys.readouterr()
    assert cli.main(["plan", "config/config.yaml"]) == 0
    said = capsys.readouterr().out
    assert "1,002 people at all sites together with 60 volumes each" in said
    # The norm bound is the root of the number of features, which the forecast counts.
    n = int(re.search(r"of (\d+) features of variance 1", said)[1])
    assert content["pca"]["norm_bound"] == pytest.approx(n**0.5, rel=0.01)
    # Where the package alone is installed a run says what it lacks, before it begins.
    monkeypatch.setattr(workflow, "find_spec", lambda name: name != "sim" or None)
    assert cli.main(["run", "config/config.yaml"]) == 2
    assert "data: is made by `python -m sim`" in capsys.readouterr().err
    site = load.load_site("config/sites/site-1.yaml")
    assert site.data == "simulated" and site.epsilon >= 2 * content["budget"]["epsilon"]


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


def test_what_is_left_out_is_what_is_shown():
    """Defaults written into the file equal those of the models; clips: next test."""
    content = yaml.safe_load(STUDY)
    content["pca"]["clip"], content["ica"]["clip"] = 1.0, 2.5
    # Temporal as in the papers; proposed is what replicates.
    assert content["ica"]["independence"] == "spatial"
    content["ica"]["independence"] = "temporal"
    shown = components.ComponentsConfig.model_validate(content)
    del content["score"], content["data"]
    for section in ("space", "cleaning", "budget", "pca", "ica"):
        model = components.ComponentsConfig.model_fields[section].annotation
        required = {k for k, f in model.model_fields.items() if f.is_required()}
        content[section] = {k: content[section][k] for k in required}
        assert not required or content[section]
    assert components.ComponentsConfig.model_validate(content) == shown


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
    content = yaml.safe_load(STUDY)
    assert content["ica"]["tol"] == 1e-6
    assert content["space"]["resample"] is False
    assert content["data"] is None


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
