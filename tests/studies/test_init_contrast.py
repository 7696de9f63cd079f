"""A contrast from folders of maps or tables: it runs, and says nothing of people."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_study import command, edit, write_image

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.studies.rows import FEATURES
from sim import grey_matter

CONFIG = "config/config.yaml"


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """Grey matter of 24 simulated people at two sites."""
    folder = tmp_path_factory.mktemp("consortium")
    grey_matter.write(folder, 24, 2, seed=1)
    return folder


def begin(new: Path, consortium: Path, *options: str) -> int:
    sites = [str(consortium / f"site-{k}") for k in (1, 2)]
    return command("init", str(new), "--kind", "contrast", "--from", *sites, *options)


def atlas(consortium: Path) -> tuple[str, str]:
    return "--template", str(consortium / "regions.nii.gz")


def test_maps_run_to_effects_of_regions(consortium, tmp_path, monkeypatch):
    options = ["--data", "simulated", "--covariates", "group", "age", "sex"]
    assert begin(tmp_path / "new", consortium, *atlas(consortium), *options) == 0
    monkeypatch.chdir(tmp_path / "new")
    study = load.load_study(CONFIG)
    contrast = study.contrast
    assert contrast.primary == "group"
    assert contrast.covariates["sex"].groups == ("F", "M")
    tables = [consortium / f"site-{k}/participants.tsv" for k in (1, 2)]
    ages = [float(row[2]) for table in tables for row in files.read_table(table)]
    age = contrast.covariates["age"]
    assert (age.mean, age.deviation) == (round(np.mean(ages)), round(np.std(ages)))
    assert command("run", CONFIG) == 0
    rows = files.read_table(study.results / "group_desc-contrast_table.tsv")
    effects = [row for row in rows if row[0] == "group patient - control"]
    assert len(effects) == 14 and any("medial temporal" in row[1] for row in effects)


def test_plan_says_which_places_are_outcomes(consortium, tmp_path, monkeypatch, capsys):
    options = ["--data", "simulated", "--covariates", "group", "--people", "5000"]
    assert begin(tmp_path / "new", consortium, *options) == 0
    monkeypatch.chdir(tmp_path / "new")
    assert re.search(r"cubes of \d+ voxels \(36 mm\); a --tem", capsys.readouterr().out)
    edit(CONFIG, "arm", "cape")
    edit(CONFIG, "rows.features.bounds", [0.4, 0.9])
    assert command("plan", CONFIG) == 0
    planned = capsys.readouterr().out.splitlines()
    (line,) = [text for text in planned if " outcomes: " in text]
    assert line.endswith(" outcomes: cubes of 36 mm in the mask")
    assert command("validate", CONFIG) == 0
    assert line in capsys.readouterr().out.splitlines()
    n_features = len(files.read_table(load.load_study(CONFIG).results / FEATURES))
    assert line.startswith(f"{n_features} ")


def test_of_private_people_the_file_has_the_names_of_columns(
    consortium, tmp_path, capsys
):
    chosen = ["--covariates", "group", "age"]
    assert begin(tmp_path / "new", consortium, *atlas(consortium), *chosen) == 0
    assert "mean and deviation, of group, age" in capsys.readouterr().out
    texts = [file.read_text() for file in (tmp_path / "new/config").rglob("*.yaml")]
    assert not any("control" in text or "patient" in text for text in texts)
    covariates = yaml.safe_load((tmp_path / "new" / CONFIG).read_text())["contrast"]
    assert covariates["covariates"] == {"group": {}, "age": {}}
    # Until the user has filled them in no step begins.
    assert command("check", str(tmp_path / "new" / CONFIG)) == 2
    error = capsys.readouterr().err
    text = (
        "contrast.covariates.age: still to decide: groups, such as [control, patient]"
    )
    assert text in error


def test_the_study_file_is_the_same_whoever_took_part(tmp_path):
    for seed, n_people in (1, 8), (2, 12):
        of_seed = tmp_path / str(seed)
        grey_matter.write(of_seed, n_people, 2, seed)
        chosen = ["--covariates", "group", "age"]
        assert begin(of_seed / "new", of_seed, *atlas(of_seed), *chosen) == 0
    one, other = (tmp_path / seed / "new/config" for seed in "12")
    for path in [*one.glob("*.yaml"), *one.glob("*.tsv")]:
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes()


@pytest.mark.parametrize("is_smoothed", [True, False])
def test_names_of_cat12_and_others(tmp_path, capsys, is_smoothed):
    rng = np.random.default_rng(0)
    for place in ("north", "south"):
        prefixes = ["smwp1", "mwp1", "mwp2"] if is_smoothed else ["any_"]
        for prefix in prefixes:
            for k in range(2):
                name = f"{prefix}sub-{place}{k}.nii.gz"
                write_image(tmp_path / place / name, rng.random((3, 3, 3)))
    sources = [str(tmp_path / place) for place in ("north", "south")]
    new = tmp_path / "new"
    assert command("init", str(new), "--kind", "contrast", "--from", *sources) == 0
    printed = capsys.readouterr().out
    first = "mwp1sub-north0.nii.gz" if is_smoothed else "any_sub-north0.nii.gz"
    assert f"north: 2 maps, one a person, in {sources[0]}/**/" in printed
    assert f"such as {first}" in printed
    study = yaml.safe_load((new / CONFIG).read_text())
    # Shares of grey matter have bounds by what they are, other maps none.
    bounds = study["rows"]["features"]["bounds"]
    assert bounds == ([0.0, 1.0] if is_smoothed else None)
    assert study["space"]["mask"] == "data/mask.nii.gz"
    assert ("rows.features.bounds of the study file" in printed) != is_smoothed
    assert "put a public mask in the maps' space" in printed


def test_columns_of_tables_are_outcomes_whose_bounds_the_user_knows(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for place, extra in ("north", "scanner"), ("south", "hour"):
        lines = [f"participant_id\tdx\tthickness\tarea\t{extra}"]
        lines += [f"sub-{place}{k}\t{k % 2}\t2.{k}\t3.{k}\t1" for k in range(6)]
        Path(place).mkdir()
        Path(place, "cortex.tsv").write_text("\n".join(lines) + "\n")
    options = ["--kind", "contrast", "--data", "public", "--covariates", "dx"]
    assert command("init", "new", *options, "--from", "north", "south") == 0
    monkeypatch.chdir("new")
    table = Path("config/features.tsv")
    assert table.read_text() == "feature\tlow\thigh\nthickness\t\t\narea\t\t\n"
    assert command("check", CONFIG) == 2
    assert "low must be below high" in capsys.readouterr().err
    table.write_text("feature\tlow\thigh\nthickness\t1\t4\narea\t1\t5\n")
    assert command("validate", CONFIG) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--covariates", "group", "weight"], "lacks weight; it has participant_id"),
        (["--kind", "components", "--covariates", "group"], "goes with --from and"),
        (["--template", "made.nii.gz"], "--template: made.nii.gz: is no file"),
        (["--kind", "regression"], "got --kind regression; leave --from out"),
    ],
)
def test_what_does_not_fit_is_one_line_and_writes_nothing(
    consortium, tmp_path, capsys, options, text
):
    assert begin(tmp_path / "new", consortium, *options) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_runs_need_networks_to_be_compared(tmp_path, capsys):
    for place in ("north", "south"):
        image = tmp_path / place / f"sub-{place}_bold.nii.gz"
        write_image(image, np.ones((3, 3, 3, 5)))
    sources = [str(tmp_path / place) for place in ("north", "south")]
    new = str(tmp_path / "new")
    assert command("init", new, "--kind", "contrast", "--from", *sources) == 2
    assert "--template: the folders have 4-D runs" in capsys.readouterr().err
