"""A study whose outcomes are connectivity of people's runs."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import scipy.signal
import yaml
from tiny_study import (
    N_VOLUMES,
    SIDE,
    STUDY,
    command,
    edit,
    run_path,
    study_content,
    tiny,
    write_image,
)

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.report import plots
from capeneuro.studies import contrast

__all__ = ["tiny"]
SITES = [f"site-{i}" for i in range(3)]


@pytest.fixture
def runs(tiny):
    """Six parcels in three networks, and who is how old."""
    labels = np.zeros((SIDE, SIDE, SIDE))
    for k in range(6):
        labels[k] = 2 * k + 1
    write_image(Path("data/parcels.nii.gz"), labels)
    rows = [[str(2 * k + 1), "abc"[k // 2]] for k in range(6)]
    files.write_table(Path("data/domains.tsv"), ["index", "lobe"], rows)
    whole = study_content(3)
    for key in ("n_components", "pca", "ica", "score", "cleaning"):
        del whole[key]
    whole["space"] = {
        "mask": "data/mask.nii.gz",
        "basis": "atlas",
        "basis_file": "data/parcels.nii.gz",
    }
    domains = {"file": "data/domains.tsv", "column": "lobe"}
    whole["rows"] = {
        "features": {
            "kind": "runs",
            "domains": domains,
            "cleaning": {"standardize": "none"},
        }
    }
    whole["contrast"] = {
        "covariates": {"age": {"mean": 40, "deviation": 10}},
    }
    Path(STUDY).write_text(yaml.safe_dump(whole))
    for i, name in enumerate(SITES):
        table = [[f"sub-{i}{k}", str(30 + 10 * k + i)] for k in range(2)]
        path = Path(f"data/{name}/participants.tsv")
        files.write_table(path, ["participant_id", "age"], table)
        edit(f"{name}.yaml", "unit", "subject")


def test_connectivity_of_runs_is_that_of_their_parcels(runs):
    assert command("validate", STUDY) == 0
    assert command("plan", STUDY) == 0
    for name in SITES:
        assert command("prepare", STUDY, "--site", name) == 0
    V = nib.load(run_path(1, 0)).get_fdata()
    # A plane is a parcel, and each run is detrended.
    S = scipy.signal.detrend(V.reshape(SIDE, -1, N_VOLUMES).mean(axis=1))
    z = np.clip(np.arctanh(np.corrcoef(S) - 2 * np.eye(6) * (1 - 1e-9)), -2, 2)
    found = files.Features(Path("private/site-1/tiny/projected.npz"))["sub-10"][-6:, 0]
    blocks = z.reshape(3, 2, 3, 2)
    expected = [z[2 * a, 2 * a + 1] for a in range(3)]
    own = np.array([blocks[a, :, b].mean() for a, b in ((0, 1), (0, 2), (1, 2))])
    # Outcomes stand over their assumed deviations, all alike: the ratio is one number.
    order = [expected[0], own[0], own[1], expected[1], own[2], expected[2]]
    ratio = found / np.array(order)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)
    assert command("contrast", STUDY) == 0 and command("maps", STUDY) == 0
    results = load.load_study(STUDY).results
    assert not list(results.glob("*.nii.gz"))  # means of networks are no places
    table = files.read_table(results / "group_desc-contrast_table.tsv")
    assert {row[1] for row in table} == {"a", "a - b", "a - c", "b", "b - c", "c"}
    # What is drawn of them is a square of networks, where something is found.
    kind = contrast.ContrastKind(load.load_study(STUDY))
    names, square = kind._networks, kind._between_networks(np.arange(6.0))
    assert names == ["a", "b", "c"]
    np.testing.assert_array_equal(square, [[0, 1, 2], [1, 3, 4], [2, 4, 5]])
    figure = plots.between_networks(names, square, square > 3, "size")
    assert "from 0.00 to 5.00; 2 above the noise" in figure.get_label()


def test_what_runs_cannot_be_measured_by_is_one_line(runs, capsys):
    edit(STUDY, "rows.features.measures", ["spectra"])
    assert command("validate", STUDY) == 2
    assert "spectra need one repetition time" in capsys.readouterr().err
    for name in SITES:
        edit(f"{name}.yaml", "repetition_time", 5.0)
    assert command("validate", STUDY) == 2
    assert "bands of spectra must end below half the" in capsys.readouterr().err
    edit(STUDY, "space.basis", "grid")
    edit(STUDY, "space.basis_file", None)
    assert command("validate", STUDY) == 2
    assert "must be atlas, template or parcels" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["silent", "outside"])
def test_a_region_without_signal_in_one_person_is_refused(runs, capsys, lost):
    """N25: its connectivity would be 0, as if it had been measured."""
    edit(STUDY, "rows.features.cleaning.max_constant_voxels", 0.4)
    run = run_path(1, 0)
    if lost == "silent":
        data = nib.load(run).get_fdata()
        data[2] = 0
        write_image(run, data)
    else:
        own = np.ones((SIDE, SIDE, SIDE))
        own[2] = 0
        mask = str(run).replace("_bold.nii.gz", "_desc-brain_mask.nii.gz")
        write_image(Path(mask), own)
        for i in range(3):
            for k in range(2):
                other = str(run_path(i, k)).replace("_bold.", "_desc-brain_mask.")
                if not Path(other).exists():
                    write_image(Path(other), np.ones((SIDE, SIDE, SIDE)))
        edit(STUDY, "rows.features.cleaning.run_mask", True)
    assert command("validate", STUDY) == 2
    text = capsys.readouterr().err
    assert f"{run}: every region must have a signal, there is none in 5 (" in text
    assert 'without: ["10"]' in text and text.count("\n") == 1
    # A region that no domain counts has nothing to measure.
    rows = [[str(2 * k + 1), "" if k == 2 else "abc"[k // 2]] for k in range(6)]
    files.write_table(Path("data/domains.tsv"), ["index", "lobe"], rows)
    assert command("validate", STUDY) == 0
