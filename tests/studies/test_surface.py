"""Studies of series on the surface, from folders of programs to results."""

import json
import os
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import surface
import yaml
from tiny_study import STUDY, command, edit, study_content, tiny

from capeneuro.config import load
from capeneuro.data import derivatives, files
from capeneuro.notebook import study_results

__all__ = ["tiny"]
T = 40
HCP = "{0}/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR_{1}.dtseries.nii"
XCP_D = "xcp_d/sub-{0}/func/sub-{0}_task-rest_space-fsLR_{1}"
FMRIPREP = "fmriprep/sub-{0}/func/sub-{0}_task-rest_space-fsLR_den-91k_{1}"
ABCD = "sub-{0}/ses-1/func/sub-{0}_ses-1_task-rest_bold_{1}"
SERIES = "dense", "parcels"


def write(path: Path, seed: int) -> None:
    """One run, dense or of parcels as its name says."""
    V, t = surface.values(np.random.default_rng(seed), T), surface.series(T)
    if ".ptseries." in path.name:
        surface.write(path, surface.means(V), t, surface.parcels())
    else:
        surface.write(path, V, t, surface.dense())


@pytest.mark.parametrize(
    ("layout", "names", "taken", "said"),
    [
        pytest.param(
            XCP_D,
            [
                "seg-4S156Parcels_den-91k_stat-mean_timeseries.ptseries.nii",
                "seg-Glasser_den-91k_stat-mean_timeseries.ptseries.nii",
                "den-91k_desc-denoised_bold.dtseries.nii",
            ],
            {"series": "parcels", "filters": {"seg": "4S156Parcels"}},
            "seg: took 4S156Parcels; there is also Glasser",
            id="XCP-D",
        ),
        pytest.param(
            XCP_D,
            [
                "den-91k_desc-denoised_bold.dtseries.nii",
                "den-91k_desc-denoisedSmoothed_bold.dtseries.nii",
            ],
            {"series": "dense", "desc": "denoised"},
            "there is also denoisedSmoothed",
            id="XCP-D-dense",
        ),
        pytest.param(
            FMRIPREP,
            ["bold.dtseries.nii"],
            {"series": "dense", "desc": []},
            "took series on the surface (CIFTI), dense",
            id="fMRIPrep",
        ),
        pytest.param(
            ABCD,
            [
                "atlas-Gordon_desc-filtered_timeseries.ptseries.nii",
                "desc-filtered_timeseries.dtseries.nii",
                "timeseries.dtseries.nii",
            ],
            {"series": "parcels", "desc": "filtered"},
            "took series on the surface (CIFTI), parcels",
            id="ABCD-BIDS",
        ),
        pytest.param(
            HCP,
            ["Atlas_MSMAll_hp2000_clean", "Atlas", "Atlas_hp2000_clean"],
            None,
            "the Human Connectome Project: took */MNINonLinear/Results/",
            id="HCP",
        ),
        pytest.param(
            HCP.replace("1_LR", ""),
            ["Atlas_MSMAll_hp0_clean"],
            None,
            "Results/rfMRI_REST/rfMRI_REST_Atlas_MSMAll_hp0_clean",
            id="HCP-with-one-joined-scan",
        ),
    ],
)
def test_init_takes_series_on_the_surface(
    tmp_path, monkeypatch, capsys, layout, names, taken, said
):
    monkeypatch.chdir(tmp_path)
    for i, place in enumerate(("north", "south")):
        for k in range(2):
            for j, name in enumerate(names):
                path = Path(place, layout.format(100300 + 2 * i + k, name))
                write(path, 10 * i + k + 100 * j)
    if layout == FMRIPREP:  # motion is in its series, and its table takes it out
        columns = "csf white_matter " + " ".join(
            f"{kind}_{axis}{end}"
            for kind in ("trans", "rot")
            for axis in "xyz"
            for end in ("", "_derivative1", "_power2", "_derivative1_power2")
        )
        rows = np.random.default_rng(0).standard_normal((T, 27))
        columns = [*columns.split(), "cosine00"]
        for path in Path().rglob("*_bold.dtseries.nii"):
            table = path.name.split("_space-")[0] + "_desc-confounds_timeseries.tsv"
            files.write_table(path.with_name(table), columns, rows.tolist())
    assert command("init", "new", "--from", "north", "south", "--data", "public") == 0
    output = capsys.readouterr().out
    assert said in output and "2 people, 2 runs" in output
    os.chdir("new")
    site = yaml.safe_load(Path("config/sites/north.yaml").read_text())
    if taken is not None:
        filters = taken.pop("filters", {})
        assert taken.items() <= site["images"].items()
        assert filters.items() <= site["images"].get("filters", {}).items()
    own = load.load_site(Path("config/sites/north.yaml"))
    runs = [run for each in derivatives.find_runs(own).values() for run in each]
    assert len(runs) == 2 and names[0] in runs[0].name
    study = load.load_study("config/config.yaml")
    assert study.space.has_parcels
    assert (study.cleaning.confounds != []) == (layout == FMRIPREP)
    if ".ptseries." not in names[0]:
        assert "put a public parcellation (.dlabel.nii) at data/" in output
        surface.parcellation(Path("data/parcels.dlabel.nii"))
        edit("config/config.yaml", "n_components", 2)
    assert command("check", "config/config.yaml") == 0
    assert command("validate", "config/config.yaml") == 0
    assert "9 features: valid" in capsys.readouterr().out


def test_sites_of_volumes_and_of_surfaces_are_told_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for k in range(2):
        write(Path("north", FMRIPREP.format(k, "bold.dtseries.nii")), k)
        path = Path(f"south/sub-{k}/func/sub-{k}_task-rest_desc-preproc_bold.nii.gz")
        path.parent.mkdir(parents=True)
        image = np.random.default_rng(k).standard_normal((4, 4, 4, T))
        nib.save(nib.Nifti1Image(image, np.eye(4)), path)
    assert command("init", "new", "--from", "north", "south") == 2
    error = capsys.readouterr().err
    assert "series of north are on the surface (CIFTI), and those of south" in error


@pytest.fixture
def mixed(tmp_path, monkeypatch) -> Path:
    """One site with dense series, two with parcels; one public parcellation."""
    monkeypatch.chdir(tmp_path)
    surface.parcellation(Path("data/atlas.dlabel.nii"))
    for i in range(3):
        for k in range(2):
            series = "den-91k_desc-denoised_bold.dtseries.nii"
            if i:
                series = "seg-Toy_den-91k_stat-mean_timeseries.ptseries.nii"
            write(Path(f"data/site-{i}", XCP_D.format(f"{i}{k}", series)), 10 * i + k)
        images = {"derivatives": f"data/site-{i}/xcp_d", "desc": []}
        images |= {"series": SERIES[i > 0]}
        if i == 0:
            images["desc"] = "denoised"
        content = {"name": f"site-{i}", "images": images, "data": "simulated"}
        content |= {"epsilon": 50.0, "delta": 1e-5, "unit": "subject"}
        Path(f"site-{i}.yaml").write_text(yaml.safe_dump(content))
    whole = study_content(3)
    whole["space"] = {"mask": "data/atlas.dlabel.nii", "basis": "parcels"}
    whole["cleaning"] = {"standardize": "zscore"}
    whole["n_components"], whole["score"] = 2, {}
    whole["pca"], whole["ica"] = {"norm_bound": 3.0}, {"independence": "spatial"}
    Path(STUDY).write_text(yaml.safe_dump(whole))
    return tmp_path


def test_components_of_dense_series_and_of_parcels(mixed):
    edit(STUDY, "arm", "non-private")
    assert command("validate", STUDY) == 0 and command("plan", STUDY) == 0
    for i in range(3):
        assert command("prepare", STUDY, "--site", f"site-{i}") == 0
    V = surface.means(surface.values(np.random.default_rng(0), T))
    X = files.Features(Path("private/site-0/tiny/projected.npz"))["sub-00"]
    own = np.corrcoef(X)  # lines are taken out of X
    np.testing.assert_allclose(own, np.corrcoef(_without_line(V).T), atol=1e-4)
    for step in ("pca", "ica", "maps", "score"):
        assert command(step, STUDY) == 0, step
    assert command("reconstruct", STUDY, "--site", "site-0") == 0
    assert command("report", STUDY) == 0
    folder = load.load_study(STUDY).results
    assert not list(folder.glob("*.nii.gz"))
    results = study_results.Results(folder)
    maps = results.components
    assert [*maps.header.get_axis(1).name] == surface.NAMES
    assert maps.header.get_axis(1) == surface.parcels() and maps.shape == (2, 9)
    assert set(results.table["peak"]) <= set(surface.NAMES)
    told = json.loads((folder / "group_desc-icaz_components.json").read_text())
    assert "The maps of group_desc-ica_components.pscalar.nii" in told["Description"]
    assert "largest" in results.plot(1).get_label()
    page = (folder / "report.html").read_text()
    assert "a bar for each parcel" in page and "the planes meet" not in page
    person = Path("private/site-0/tiny/dualregression")
    assert nib.load(next(person.glob("sub-00*.pscalar.nii"))).shape == (2, 9)


def _without_line(V: np.ndarray) -> np.ndarray:
    line = np.stack([np.ones(len(V)), np.arange(len(V))], axis=1)
    return V - line @ np.linalg.lstsq(line, V, rcond=None)[0]


def test_connectivity_of_parcels_by_networks(mixed, capsys):
    names = [
        "index\tname\tnetwork",
        *(f"{k}\t{n}" for k, n in enumerate(surface.NAMES)),
    ]
    networks = [*"aabb", *"aabb", ""]  # the nucleus is left out
    rows = [f"{row}\t{net}" for row, net in zip(names[1:], networks, strict=True)]
    Path("data/networks.tsv").write_text("\n".join([names[0], *rows]) + "\n")
    whole = yaml.safe_load(Path(STUDY).read_text())
    for key in ("n_components", "pca", "ica", "score"):
        del whole[key]
    whole["rows"] = {
        "features": {
            "kind": "runs",
            "measures": ["connectivity", "spectra"],
            "domains": {"file": "data/networks.tsv"},
            "cleaning": whole.pop("cleaning"),
        }
    }
    whole["contrast"] = {
        "covariates": {"age": {"mean": 40, "deviation": 10}},
    }
    Path(STUDY).write_text(yaml.safe_dump(whole))
    for i in range(3):
        table = [[f"sub-{i}{k}", str(30 + 10 * k + i)] for k in range(2)]
        path = Path(f"data/site-{i}/participants.tsv")
        files.write_table(path, ["participant_id", "age"], table)
        edit(f"site-{i}.yaml", "people", str(path))
    assert command("validate", STUDY) == 0
    assert "9 features: valid" in capsys.readouterr().out  # a, a - b, b; 3 bands of two
    assert command("plan", STUDY) == 0
    for i in range(3):
        assert command("prepare", STUDY, "--site", f"site-{i}") == 0
    for step in ("contrast", "maps", "score", "report"):
        assert command(step, STUDY) == 0, step
    table = study_results.Results(load.load_study(STUDY).results).effects
    assert {"a", "a - b", "b", "a at 0.01-0.03 Hz"} <= set(table.iloc[:, 1])
    # Somebody's parcel without signal is refused, but one that no network has.
    run = next(Path("data/site-1").rglob("sub-10*.ptseries.nii"))
    P = surface.means(surface.values(np.random.default_rng(10), T))
    for k, code in ((1, 2), (8, 0)):
        silent = P.copy()
        silent[:, k] = np.nan
        surface.write(run, silent, surface.series(T), surface.parcels())
        edit(STUDY, "rows.features.cleaning.max_constant_voxels", 0.2)
        capsys.readouterr()
        assert command("validate", STUDY) == code
    edit(STUDY, "rows.features.cleaning.max_constant_voxels", 0.0)
    assert command("validate", STUDY) == 2
    error = capsys.readouterr().err
    assert "1 of 9 parcels have no signal" in error and 'without: ["10"]' in error


@pytest.mark.parametrize(
    ("file", "key", "value", "said"),
    [
        ("site-0.yaml", "mask", "m.nii.gz", "mask: is of voxels"),
        (STUDY, "cleaning.smoothing_fwhm", 4.0, "goes with voxels"),
        (STUDY, "cleaning.run_mask", True, "goes with voxels"),
        (STUDY, "cleaning.exclude", {"min_coverage": 0.5}, "goes with voxels"),
        (STUDY, "score", {"truth": "t.nii.gz"}, "need voxels, got basis parcels"),
        (STUDY, "space.basis", "voxels", "must be a parcellation"),
        (STUDY, "space.mask", "data/no.dlabel.nii", "file not found"),
    ],
)
def test_what_goes_with_voxels_alone_is_one_line(mixed, capsys, file, key, value, said):
    edit(file, key, value)
    assert command("validate", STUDY) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_every_damaged_series_is_told_at_once(mixed, capsys):
    runs = sorted(Path("data").rglob("*series.nii"))
    runs[0].write_bytes(runs[0].read_bytes()[:-300])
    shutil.copy("data/atlas.dlabel.nii", runs[2])
    runs[4].write_bytes(b"")
    assert command("validate", STUDY) == 2
    error = capsys.readouterr().err
    assert all(str(runs[i]) in error for i in (0, 2, 4))
