"""The studies on real data, where the data are there; else their clear refusal."""

import csv
import json
import os
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from workflows import ROOT, run

DATA = Path(os.environ.get("CAPENEURO_DATA", ROOT / "../shared/data")).resolve()
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real data are not here; set CAPENEURO_DATA"
)


STUDIES = "evidence/truth/studies"


def study_folder(folder: Path, data: Path) -> Path:
    """A copy of the configuration that looks for its data in ``data``."""
    for part in ("config", STUDIES):
        shutil.copytree(ROOT / part, folder / part)
    for path in folder.rglob("*.yaml"):
        path.write_text(path.read_text().replace("../shared/data", str(data)))
    for name in ("workflow", "sim"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def finished(folder: Path, name: str, *targets: str) -> Path:
    study = "--cores", "2", "--configfile", f"{STUDIES}/{name}/study.yaml"
    done = run(folder, "snakemake", *targets, *study)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "results" / name


@needs_data
def test_gift_runs_to_maps_and_a_stamped_report(tmp_path):
    results = finished(study_folder(tmp_path, DATA), "gift")
    maps = nib.load(results / "group_desc-ica_components.nii.gz")
    assert maps.shape == (26, 31, 22, 8)
    values = maps.get_fdata()
    assert np.isfinite(values).all()
    assert (np.abs(values).max(axis=(0, 1, 2)) > 0.3).all()
    assert "NOT PRIVATE: public data" in (results / "report.html").read_text()
    record = json.loads((results / "privacy.json").read_text())
    assert record["promise"]["has_noise"] is False
    unmixing = np.load(results / "group_desc-ica_unmixing.npz")
    assert unmixing["converged"]
    courses = [
        np.loadtxt(path, delimiter="\t", skiprows=1, usecols=range(4, 12))
        for path in tmp_path.glob("private/gift-*/gift/timecourses.tsv")
    ]
    z = np.concatenate(courses)
    assert z.shape == (200, 8)
    # Unit deviation, as the maps assume.
    np.testing.assert_allclose(np.sqrt((z**2).mean(axis=0)), 1, rtol=1e-3)


@needs_data
def test_abide_runs_private_and_beside_it_without_privacy(tmp_path):
    # Nobody's own maps, and no page: the study above has both.
    scores = "results/abide/scores.tsv"
    results = finished(study_folder(tmp_path, DATA), "abide", scores)
    record = json.loads((results / "privacy.json").read_text())
    assert len(record["sites"]) == 11
    for views in record["sites"].values():
        assert views["aggregator_and_colluders"]["gdp"] == pytest.approx(4, rel=1e-6)
    first = record["releases"][0]["sites"].values()
    sizes = {round(1 / site["sensitivity"]) for site in first}
    assert len(sizes) > 5  # sites of unequal size
    with open(results / "scores.tsv", newline="") as f:
        rows = {row["name"]: row for row in csv.DictReader(f, delimiter="\t")}
    score = rows["reference_mean_abs_r"]
    chance = float(score["reference"].removeprefix("chance "))
    assert float(score["value"]) > chance + 0.04
    assert sum(p.stat().st_size for p in tmp_path.rglob("*.nii.gz")) < 2**30


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (
            ("capeneuro", "validate", f"{STUDIES}/gift/study.yaml"),
            "sub-007_lowres.nii.gz",
        ),
        (
            ("python", "-m", "sim", f"{STUDIES}/abide/study.yaml"),
            "CC200_4mm.nii.gz",
        ),
    ],
)
def test_absent_data_are_named_with_where_to_put_them(tmp_path, command, missing):
    folder = study_folder(tmp_path, tmp_path / "nowhere")
    done = run(folder, *command)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error:")
    assert missing in line
    assert "put the data there" in line
    assert not (folder / "results").exists()
