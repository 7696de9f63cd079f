"""Studies of EEG alone, from the files of a fusion study."""

import csv
from pathlib import Path

import numpy as np
import two_views
import yaml
from tiny_study import command, edit
from two_views import (
    BANDS,
    CHANNELS,
    EEG,
    PEOPLE,
    STUDY,
    mne,
    only_eeg,
    recording,
)

from capeneuro.config import load
from capeneuro.data import eeg

# Fixtures.
study, template = two_views.study, two_views.template


def ran(*steps: str) -> None:
    assert command("check", STUDY) == 0
    assert command("validate", STUDY) == 0
    for site in PEOPLE:
        assert command("prepare", STUDY, "--site", site) == 0
    for step in steps:
        assert command(step, STUDY) == 0


def table(name: str) -> list[dict[str, str]]:
    with open(f"results/alone/{name}", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def effects() -> list[float]:
    rows = table("group_desc-contrast_table.tsv")
    return [float(r["effect"]) for r in rows if r["covariate"].startswith("patient")]


def differences() -> np.ndarray:
    """Patients' means less controls'; the two groups are alike at both sites."""
    options = load.load_study(STUDY).rows.features
    Y = [
        [eeg.read_features([recording(p)], options).features for p in people]
        for people in PEOPLE.values()
    ]
    Y = np.concatenate(Y).astype(float)
    is_patient = np.arange(len(Y)) % 2 == 1
    return Y[is_patient].mean(axis=0) - Y[~is_patient].mean(axis=0)


def test_potentials_of_a_fusion_study_are_contrasted_alone(study, capsys):
    only_eeg({**{k: EEG[k] for k in EEG if k != "norm_bound"}, "bounds": [-60, 60]})
    ran("contrast", "maps", "score", "report")
    np.testing.assert_allclose(effects(), differences(), rtol=1e-3)
    names = [row["feature"] for row in table("group_desc-rows_features.tsv")]
    assert names == [f"{c} {t} ms" for c in CHANNELS for t in (45, 145, 245, 345)]
    assert "a: fewest epochs, 2 of 2 events, has sub-a0" in capsys.readouterr().out
    epochs = Path("private/a/alone/epochs.tsv").read_text().splitlines()
    assert len(epochs) == 7 and epochs[1].startswith("sub-a0\tevents\t2\t2\t0")
    text = Path("results/alone/report.html").read_text()
    assert "waveforms of 3 channels, largest at" in text


def test_shares_of_bands_have_bounds_by_arithmetic(study):
    only_eeg(BANDS)
    for site in PEOPLE:  # no images, no study that needs them
        edit(f"{site}.yaml", "images", None)
    Path("data/tables").mkdir()
    for person in PEOPLE["b"]:  # the same data, as another lab exports them
        raw = mne.io.read_raw_fif(recording(person), verbose="error")
        text = ",".join(CHANNELS)
        path = Path(f"data/tables/{person}_eeg.csv")
        np.savetxt(
            path, 1e3 * raw.get_data().T, delimiter=",", header=text, comments=""
        )
    edit("b.yaml", "eeg", "data/tables/*.csv")
    edit("b.yaml", "eeg_about", {"unit": "mV", "sampling_rate": 100})
    edit("b.yaml", "people", "data/b/participants.tsv")
    ran("contrast", "maps")
    np.testing.assert_allclose(effects(), differences(), rtol=1e-3, atol=1e-6)
    bounds = {
        (row["low"], row["high"]) for row in table("group_desc-rows_features.tsv")
    }
    assert {(float(a), float(b)) for a, b in bounds} == {(0.0, 1.0)}


def only_patterns(independence: str, arm: str) -> None:
    only_eeg(BANDS)
    whole = yaml.safe_load(Path(STUDY).read_text())
    del whole["contrast"]
    options = {"independence": independence, "center": arm == "cape"}
    whole |= {"n_components": 2, "patterns": options, "arm": arm}
    Path(STUDY).write_text(yaml.safe_dump(whole))


def test_patterns_without_privacy_are_principal_components_within_sites(study):
    only_patterns("none", "non-private")
    ran("patterns", "maps")
    options = load.load_study(STUDY).rows.features
    Y = [
        np.array([eeg.read_features([recording(p)], options).features for p in people])
        for people in PEOPLE.values()
    ]
    Y = np.concatenate([own - own.mean(axis=0) for own in Y]).astype(float)
    _, s, Vt = np.linalg.svd(Y, full_matrices=False)
    rows = table("group_desc-pattern_components.tsv")
    found = np.array([[float(r[f"component_{k}"]) for r in rows] for k in (1, 2)])
    expected = Vt[:2] * s[:2, None] / np.sqrt(len(Y))
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-2, atol=1e-5)
    shares = [float(row["share"]) for row in table("group_desc-pattern_shares.tsv")]
    np.testing.assert_allclose(shares, (s**2 / np.sum(s**2))[:2], atol=2e-4)
    for site in PEOPLE:
        assert command("reconstruct", STUDY, "--site", site) == 0
    people = [Path(f"private/{s}/alone/people.tsv").read_text() for s in PEOPLE]
    lines = [line.split("\t")[1:] for text in people for line in text.splitlines()[1:]]
    amounts = np.array(lines, float)
    np.testing.assert_allclose(amounts.T @ amounts / len(Y), np.eye(2), atol=1e-2)


def test_private_patterns_of_twelve_people_are_none(study):
    only_patterns("spatial", "cape")
    ran("patterns", "maps", "score", "report")
    assert {row["verdict"] for row in table("verdicts.tsv")} == {"not above noise"}
    text = Path("results/alone/report.html").read_text()
    assert "long 0 of 2 directions" in text and "morphometry" in text


def test_what_a_site_lacks_is_said_in_a_line(study, capsys):
    def line() -> str:
        capsys.readouterr()
        assert command("validate", STUDY) == 2
        text, *_ = capsys.readouterr().err.splitlines()  # a line a person
        return text

    edit("a.yaml", "images", None)
    assert "a.yaml: images: this study needs them, got null" in line()
    edit("a.yaml", "eeg", None)
    assert "a.yaml: images: must be given" in line()
    only_eeg({**BANDS, "montage": "nowhere"})
    edit("a.yaml", "images", "data/a")
    assert "a.yaml: eeg: a study of EEG needs it, got null" in line()
    edit("a.yaml", "eeg", "data/a")
    assert "rows.features.montage: no montage, or no file of one" in line()
    edit(STUDY, "rows.features.montage", None)
    edit(STUDY, "rows.features.channels", ["Fz", "Oz"])
    assert "must have all of rows.features.channels, missing: Oz" in line()
