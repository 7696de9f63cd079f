"""A tiny fusion study: people with two views, in files."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tiny_study import ACCEPT, edit, write_image

mne = pytest.importorskip("mne", reason="needs the extra eeg")

STUDY, SIDE, RATE = "config.yaml", 4, 100
CHANNELS = ["Fz", "Cz", "Pz"]
PEOPLE = {site: [f"sub-{site}{i}" for i in range(6)] for site in ("a", "b")}
EEG = {
    "kind": "erp",
    "events": ["target"],
    "channels": CHANNELS,
    "montage": "easycap-M1",
    "sampling_rate": RATE,
    "tmin": 0.0,
    "tmax": 0.39,
    "n_windows": 4,
    "min_epochs": 2,
    "norm_bound": 20.0,
}
BANDS = {"kind": "bands", "channels": CHANNELS, "sampling_rate": 100, "min_epochs": 2}
BANDS |= {"montage": "easycap-M1", "segment": 1.0, "bands": [[4, 8], [8, 13], [13, 30]]}
TABLE = {"kind": "table", "features": "data/columns.txt", "norm_bound": 4.0}


def recording(person: str) -> Path:
    site = person[4]
    return Path(f"data/{site}/{person}/eeg/{person}_task-odd_eeg.fif")


def image(person: str) -> Path:
    site = person[4]
    return Path(f"data/{site}/{person}/func/{person}_stat-effect_statmap.nii.gz")


def write_recording(person: str, X: np.ndarray, rate: float = RATE, event="target"):
    raw = mne.io.RawArray(
        1e-6 * X, mne.create_info(CHANNELS, rate, "eeg"), verbose="error"
    )
    raw.annotations.append([0.5, 1.5], 0.0, event)
    recording(person).parent.mkdir(parents=True, exist_ok=True)
    raw.save(recording(person), overwrite=True, verbose="error")


def write_table(site: str, rows: pd.DataFrame) -> None:
    rows.to_csv(f"data/{site}.tsv", sep="\t", index=False)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Two sites of six people with a map, a recording and a row of a table."""
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rng = np.random.default_rng(1)
        write_image(Path("data/mask.nii.gz"), np.ones((SIDE,) * 3))
        Path("data/columns.txt").write_text("fast\nslow\nsteady\n")
        for site, people in PEOPLE.items():
            rows = pd.DataFrame({"participant_id": people})
            for name in ("age", "slow", "fast", "steady"):
                rows[name] = rng.standard_normal(len(people)).round(3)
            write_table(site, rows)
            for person in people:
                write_image(image(person), rng.standard_normal((SIDE,) * 3))
                write_recording(person, 10 * rng.standard_normal((3, 3 * RATE)))
            own = {"name": site, "images": f"data/{site}", "eeg": f"data/{site}"}
            own |= {"data": "simulated", "epsilon": 50.0, "delta": 1e-5}
            own |= {"unit": "subject", "ledger": f"private/{site}/ledger"}
            Path(f"{site}.yaml").write_text(yaml.safe_dump(own))
        study = {
            "study": "pair",
            "sites": ["a.yaml", "b.yaml"],
            "space": {"mask": "data/mask.nii.gz", "basis": "grid", "grid_size": 2},
            "n_components": 2,
            "arm": "cape",
            "accept": ACCEPT,
            "source": "made for a test",
            "aggregator": "independent",
            "budget": {
                "epsilon": 8.0,
                "delta": 1e-5,
                "unit": "subject",
                "n_colluding": 1,
                "relation": "replace-one",
            },
            "fusion": {"fmri": {"kind": "maps", "norm_bound": 5.0}, "eeg": EEG},
            "score": {"reference": True},
        }
        Path(STUDY).write_text(yaml.safe_dump(study))
    return folder


@pytest.fixture
def study(template, tmp_path, monkeypatch) -> Path:
    """The study above, to be spoiled; it is the working directory."""
    folder = tmp_path / "study"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    return folder


def use_tables() -> None:
    """Both views from tables."""
    edit(STUDY, "space", None)
    for view in ("fmri", "eeg"):
        edit(STUDY, f"fusion.{view}", TABLE)
    for site in PEOPLE:
        edit(f"{site}.yaml", "images", f"data/{site}.tsv")
        edit(f"{site}.yaml", "eeg", f"data/{site}.tsv")


def only_eeg(features: dict) -> None:
    """Make a contrast of patients on EEG alone; site files stay as they are."""
    whole = yaml.safe_load(Path(STUDY).read_text())
    kept = {k: whole[k] for k in whole if k not in ("fusion", "n_components", "score")}
    covariates = {"patient": {"groups": [0, 1]}}
    contrast = {"covariates": covariates, "means": "data/means.tsv"}
    kept |= {"space": None, "rows": {"features": features}, "contrast": contrast}
    kept |= {"study": "alone", "arm": "non-private"}
    Path(STUDY).write_text(yaml.safe_dump(kept))
    Path("data/means.tsv").write_text("site\tpatient=0\tpatient=1\na\t3\t3\nb\t3\t3\n")
    for site, people in PEOPLE.items():
        rows = [f"{person}\t{i % 2}" for i, person in enumerate(people)]
        text = "\n".join(["participant_id\tpatient", *rows])
        Path(f"data/{site}/participants.tsv").write_text(text + "\n")
