"""A study from what the sites' folders hold: it is well formed, and public."""

import os
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from tiny_study import command, write_image

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import beside, derivatives, files
from capeneuro.studies import init_from_folders, one_process

# A coarse box around the brain of MNI152.
AFFINE = np.array([[12.0, 0, 0, -90], [0, 12, 0, -126], [0, 0, 12, -72], [0, 0, 0, 1]])
SHAPE, T = (16, 19, 16), 15
NAME = "sub-{}_task-{}_space-MNI152NLin2009cAsym_res-{}_desc-preproc_bold.nii.gz"


@pytest.fixture
def two(tmp_path, monkeypatch) -> list[str]:
    """Derivatives of two hospitals: 3 and 2 people, two tasks, two resolutions."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for place, n in (("north/derivatives/fmriprep", 3), ("south/fmriprep-24.1", 2)):
        for k in range(n):
            folder = Path(place) / f"sub-{k}/func"
            data = 100 + rng.standard_normal((*SHAPE, T))
            write_image(folder / NAME.format(k, "rest", 2), data, AFFINE)
            for other in (NAME.format(k, "rest", 1), NAME.format(k, "faces", 2)):
                (folder / other).touch()
    return ["north", "south"]


XCP_D = "xcp_d/{0}/func/{0}_task-rest_run-1_space-MNI152NLin2009cAsym_res-2_{1}"
HALFPIPE = "derivatives/halfpipe/{0}/func/{0}_task-rest_{1}"


@pytest.mark.parametrize(
    ("layout", "taken", "others", "chosen"),
    [
        (
            XCP_D,
            "desc-denoised_bold",
            ["desc-denoisedSmoothed_bold", "boldref", "stat-alff_boldmap"],
            {"desc": ("denoised",), "res": ("2",)},
        ),
        (
            HALFPIPE,
            "setting-a_bold",
            ["setting-b_bold", "feature-fc_seed-pcc_stat-z_statmap"],
            {"desc": (), "filters": {"setting": ("a",)}},
        ),
    ],
    ids=["XCP-D", "HALFpipe"],
)
def test_other_programs_layouts(
    tmp_path, monkeypatch, capsys, layout, taken, others, chosen
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for place in ("north", "south"):
        for k in range(2):
            path = f"{place}/{layout}.nii.gz"
            data = 100 + rng.standard_normal((*SHAPE, T))
            write_image(Path(path.format(f"sub-{k}", taken)), data, AFFINE)
            for other in others:
                Path(path.format(f"sub-{k}", other)).touch()
    run = Path(f"north/{layout}.nii.gz".format("sub-0", taken))
    beside.mask_file(run).touch()
    assert command("init", "aging", "--from", "north", "south", "--data", "public") == 0
    said = capsys.readouterr().out
    assert "north: 2 people, 2 runs" in said
    assert f"no brain mask of 1: {run.name.replace('sub-0', 'sub-1')}" in said
    os.chdir("aging")
    study = load.load_study("config/config.yaml")
    assert study.space.mask == "config/mask.nii.gz"  # both are in MNI152
    assert study.cleaning.confounds == []
    site = load.load_site(study.sites[0])
    assert chosen.items() <= dict(site.images).items()
    assert command("check", "config/config.yaml") == 0
    if layout == HALFPIPE:  # one scan would count twice
        both = site.images.model_copy(update={"filters": {}})
        with pytest.raises(ConfigError, match="say in `filters` which setting: a or b"):
            derivatives.find_runs(site.model_copy(update={"images": both}))


@pytest.mark.parametrize(
    ("names", "person", "said"),
    [
        pytest.param(
            [
                f"{k}/MNINonLinear/Results/rfMRI_REST1_{way}/rfMRI_REST1_{way}{end}"
                for k in (100307, 100408)
                for way in ("LR", "RL")
                for end in ("_hp2000_clean.nii.gz", ".nii.gz")
            ],
            None,
            ["2 people, 4 runs", "the Human Connectome Project", "ICA-FIX"],
            id="HCP",
        ),
        pytest.param(
            [
                f"HCA{k}_V1_MR/MNINonLinear/Results/{run}/{run}_hp0_clean.nii.gz"
                for k in (1, 2)
                for run in ("rfMRI_REST", "rfMRI_REST1_AP", "rfMRI_REST2_PA")
            ],
            None,
            ["2 people, 4 runs", "the Human Connectome Project"],
            id="HCP-with-all-runs-in-one",
        ),
        pytest.param(
            [
                f"{k}/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR{end}"
                for k in (100307, 100408)
                for end in (
                    "_hp2000_clean_rclean_tclean.nii.gz",
                    "_hp2000_clean.nii.gz",
                )
            ],
            None,
            ["2 people, 2 runs", "rclean_tclean", "ICA-FIX"],
            id="HCP-cleaned-again",
        ),
        pytest.param(
            [
                f"sub-1_ses-{s}/func/sub-1_ses-{s}_task-rest_space-template"
                "_desc-preproc_bold.nii.gz"
                for s in (1, 2)
            ],
            None,
            ["1 person, 2 runs"],
            id="C-PAC",
        ),
        pytest.param(
            ["01.nii.gz", "02.nii", "03.nii"],
            None,
            ["3 people, 3 runs in north/*.nii*", "each file counts as ONE PERSON"],
            id="two-formats",
        ),
        pytest.param(
            [f"FunImgARCWF/Sub_00{k}/Filtered_4DVolume.nii" for k in (1, 2)],
            "FunImgARCWF/{person}/*",
            ["2 people, 2 runs"],
            id="DPARSF",
        ),
        pytest.param(
            [f"{k}/func/{prefix}rest.nii" for k in "AB" for prefix in ("swa", "a", "")],
            "{person}/*",
            ["2 people, 2 runs", "SPM", "space: config/mask.nii.gz"],
            id="SPM-folders-of-people",
        ),
        pytest.param(
            [
                f"sub-0{k}/func/sub-0{k}_task-rest{run}_space-MNI152NLin2009cAsym_desc-"
                "denoised_bold.nii.gz"
                for k in (1, 2)
                for run in ("_run-1", "_run-2", "")
            ],
            None,
            ["2 people, 4 runs", "run: took 1, 2; there is also none"],
            id="XCP-D-with-combined-runs",
        ),
        pytest.param(
            [
                f"100000{k}_20227_2_0/fMRI/rfMRI.ica/reg_standard/"
                "filtered_func_data_clean.nii.gz"
                for k in (1, 2)
            ],
            None,
            ["2 people, 2 runs", "UK Biobank"],
            id="UK-Biobank",
        ),
        pytest.param(
            [f"niftiDATA_Subject00{k}_Condition000.nii" for k in (1, 2)],
            None,
            ["2 people, 2 runs", "CONN"],
            id="CONN",
        ),
        pytest.param(
            [f"sub-0{k}/func/swausub-0{k}_run-{i}.nii" for k in (1, 2) for i in (1, 2)],
            None,
            ["2 people, 4 runs", "SPM"],
            id="SPM",
        ),
        pytest.param(
            [
                f"sub-NDARINV{k}/ses-baselineYear1Arm1/func/sub-NDARINV{k}"
                f"_ses-baselineYear1Arm1_task-rest_run-0{i}_space-MNI_bold.nii.gz"
                for k in "AB"
                for i in (1, 2)
            ],
            None,
            ["2 people, 4 runs"],
            id="ABCD-BIDS",
        ),
        pytest.param(
            [
                f"fmriprep/sub-CMU_005064{k}/func/sub-CMU_005064{k}_task-rest"
                "_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
                for k in (2, 3)
            ],
            None,
            ["2 people, 2 runs"],
            id="N26-ABIDE",
        ),
        pytest.param(
            [f"P0{k}_run{i}.nii.gz" for k in (1, 2) for i in (1, 2)],
            "{person}_*",
            ["2 people, 4 runs"],
            id="names-that-nobody-knows",
        ),
    ],
)
def test_layouts_that_are_not_bids(tmp_path, monkeypatch, capsys, names, person, said):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for place in ("north", "south"):
        for name in names:
            data = 100 + rng.standard_normal((*SHAPE, T))
            write_image(Path(place, name), data, AFFINE)
            if person == "{person}/*":  # SPM says the space in its headers
                image = nib.load(Path(place, name))
                image.set_sform(AFFINE, code=4)
                nib.save(
                    nib.Nifti1Image(data, AFFINE, image.header), image.get_filename()
                )
    begun = ["init", "aging", "--from", "north", "south", "--data", "public"]
    if person is not None:
        assert command(*begun) == 2
        assert f"--person '{person}'" in capsys.readouterr().err
        begun += ["--person", person]
    assert command(*begun) == 0
    output = capsys.readouterr().out
    assert all(part in output for part in said), output
    os.chdir("aging")
    assert command("check", "config/config.yaml") == 0
    sites = map(load.load_site, load.load_study("config/config.yaml").sites)
    n_people = int(said[0].split()[0])
    assert [len(derivatives.find_runs(site)) for site in sites] == [n_people] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "1000001/fMRI/rfMRI.ica/filtered_func_data_clean.nii.gz",
            "in each person's own space; warp them",
        ),
        ("1000001_20227_2_0.zip", "unzip each"),
    ],
)
def test_layouts_that_cannot_be_taken(tmp_path, monkeypatch, capsys, name, said):
    monkeypatch.chdir(tmp_path)
    for place in ("north", "south"):
        path = Path(place, name)
        path.parent.mkdir(parents=True)
        path.touch()
    assert command("init", "aging", "--from", "north", "south") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("sub-01/eeg/sub-01_eeg.vhdr", "contrast, and `eeg`", id="EEG"),
        pytest.param("covariates.csv", "--kind contrast --from", id="COINSTAC"),
    ],
)
def test_other_data_are_sent_to_their_kind_of_study(
    tmp_path, monkeypatch, capsys, name, said
):
    monkeypatch.chdir(tmp_path)
    for path in (Path("north", name), Path("north/participants.tsv")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    begun = ["init", "aging", "--from", "north", "north"]
    assert command(*begun) == 2
    assert said in capsys.readouterr().err
    assert command(*begun, "--kind", "network") == 2
    assert "got --kind network; leave --from out" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["private", "public"])
def test_the_study_runs_and_tells_no_count(two, capsys, kind):
    assert (
        command("init", "aging", "--from", *two, "--data", kind, "--volumes", "180")
        == 0
    )
    said = capsys.readouterr().out
    assert "north: 3 people, 3 runs" in said and "south: 2 people, 2 runs" in said
    assert "task: took rest; there is also faces" in said
    assert "res: took 2; there is also 1" in said
    assert ("ledger init config/sites/north.yaml" in said) == (kind == "private")
    os.chdir("aging")
    assert command("check", "config/config.yaml") == 0
    study = load.load_study("config/config.yaml")
    sites = [load.load_site(path) for path in study.sites]
    assert [site.name for site in sites] == ["north", "south"]
    assert study.arm == ("cape" if kind == "private" else "non-private")
    found = [list(derivatives.find_runs(site)) for site in sites]
    assert list(map(len, found)) == [3, 2]
    mask = nib.load(study.space.mask)
    np.testing.assert_allclose(mask.affine, AFFINE)
    litres = np.asarray(mask.dataobj).sum() * 12**3 / 1e6
    assert 1.4 < litres < 2.2  # a brain's
    # Of z-scores the mean squared norm is the number of features.
    text = Path("config/config.yaml").read_text()
    n = int(text.split("are the features, ")[1].split()[0])
    assert study.pca.norm_bound == pytest.approx(n**0.5, rel=5e-3)
    # Privacy: what all parties read is the same whoever took part, and for how long.
    content = yaml.safe_load(text)
    assert not {"images", "data"} & set(content)
    assert content["expected"] == {"people": None, "volumes": 180}
    assert "sub-" not in text and f" {T} " not in text


def test_one_site_as_a_bids_app(two, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(one_process, "run", lambda *options: ran.append(options) or 0)
    there, public = Path.cwd(), ("--data", "public", "--cores", "2")
    wanted = ("--participant-label", "sub-0", "2", "--skip-bids-validation")
    for labels, rule in [
        (["7", "0"], "has no 7 with such images; it has 0, 1, 2"),
        (["1"], "need two people or more, got 1"),
    ]:
        own = ("--participant-label", *labels)
        assert command("bids", "north", "out", "participant", *public, *own) == 2
        assert rule in capsys.readouterr().err and not Path("out").exists()
    assert command("bids", "nowhere", "out", "group", *public) == 2
    assert "BIDS_DIR: nowhere: is no folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):  # nobody's data are public by default
        command("bids", "north", "out", "participant")
    faces = ("--task-id", "faces")
    assert command("bids", "north", "faces", "participant", *public, *faces) != 0
    assert command("bids", "north", "out", "participant", *public, *wanted) == 0
    os.chdir(there)
    assert command("bids", "north", "out", "group", *public) == 0
    assert ran == [
        ("config/config.yaml", 2, "prepare"),
        ("config/config.yaml", 2, "report"),
    ]
    study = load.load_study("config/config.yaml")
    sites = [load.load_site(path) for path in study.sites]
    assert study.arm == "non-private" and [s.data for s in sites] == ["public"] * 2
    assert [list(derivatives.find_runs(s)) for s in sites] == [["sub-0"], ["sub-2"]]
    os.chdir(there)
    assert command("bids", "north", "out", "group", *public, *wanted) == 2
    assert "was begun with its people and tasks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [(init_from_folders.MOTION, init_from_folders.MOTION), (["trans_x"], [])],
)
def test_tables_of_motion_alone_give_the_six_parameters(two, capsys, columns, chosen):
    for place in two:
        for run in Path(place).rglob("*task-rest*res-2*bold.nii.gz"):
            rows = np.random.default_rng(0).standard_normal((T, len(columns)))
            files.write_table(beside.confounds_file(run), columns, rows.tolist())
    assert command("init", "s", "--from", *two) == 0
    assert ("choose cleaning.confounds" in capsys.readouterr().out) == (not chosen)
    os.chdir("s")
    assert load.load_study("config/config.yaml").cleaning.confounds == chosen
    assert command("check", "config/config.yaml") == 0


def test_the_study_file_does_not_depend_on_who_took_part(two, capsys):
    assert command("init", "all", "--from", *two) == 0
    for path in Path("north").rglob("sub-2_*"):
        path.unlink()
    path = Path("north/derivatives/fmriprep/sub-0/func") / NAME.format(0, "rest", 2)
    image = nib.load(path)
    write_image(path, np.asarray(image.dataobj)[..., :9] * 7, AFFINE)
    assert command("init", "fewer", "--from", *two) == 0
    texts = [
        Path(f"{name}/config/config.yaml").read_text() for name in ("all", "fewer")
    ]
    assert texts[0].replace("study: all", "study: fewer") == texts[1]


def test_a_folder_called_by_a_number_is_a_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("1", "2"):
        write_image(Path(f"{name}/scan0.nii.gz"), np.full((4, 5, 5, T), 1.0))
    assert command("init", "s", "--from", "1", "2") == 0
    assert load.load_site(Path("s/config/sites/1.yaml")).name == "1"


def test_files_that_say_their_person_are_not_said_to_be_people(
    tmp_path, monkeypatch, capsys
):
    """One run each, in folders of fMRIPrep."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        for k in (1, 2):
            run = Path(name) / f"sub-{k}/func" / NAME.format(k, "rest", 2)
            write_image(run, np.full((5, 5, 5, T), float(k)))
    assert command("init", "s", "--from", "a", "b") == 0
    said = capsys.readouterr().out
    assert "2 people, 2 runs" in said and "ONE PERSON" not in said


def test_plain_images_are_people_and_another_grid_is_said(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name, side in (("a", 4), ("b", 5)):
        for k in range(2):
            image = np.full((side, 5, 5, T), 1.0 + k)
            write_image(Path(f"{name}/scan{k}.nii.gz"), image)
    assert command("init", "s", "--from", "a", "b") == 0
    said = capsys.readouterr().out
    assert "each file counts as ONE PERSON" in said and "several grids" in said
    order = ("cd s", "put a public mask", "write expected.volumes", "capeneuro check")
    lines = said.partition("next, in this order:")[2].splitlines()
    at = [next(i for i, x in enumerate(lines) if part in x) for part in order]
    assert at == sorted(at)
    assert "DECIDE" in Path("s/config/config.yaml").read_text()
    for name in ("a", "b"):  # names that say MNI152, of a corner of that space
        run = Path(name) / "sub-1/func" / NAME.format(1, "rest", 2)
        write_image(run, np.ones((5, 5, 5, T)))
    assert command("init", "u", "--from", "a", "b") == 0
    assert "DECIDE" in Path("u/config/config.yaml").read_text()
    capsys.readouterr()
    assert command("init", "t", "--from", "a") == 2
    assert "at least 2 sites, got 1" in capsys.readouterr().err
    # One site's people must not count as those of two.
    assert command("init", "t", "--from", "a", "b", "b/../a") == 2
    assert "b/../a: has the images that a has" in capsys.readouterr().err
    assert not Path("t").exists()


def test_images_without_a_brain_in_a_surround_need_a_mask(
    tmp_path, monkeypatch, capsys, rng
):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        noise = 100 + rng.standard_normal((7, 8, 7, T))
        write_image(Path(f"{name}/scan.nii.gz"), noise)
    assert command("init", "s", "--from", "a", "b", "--data", "public") == 0
    assert "DECIDE: no mask can be computed" in capsys.readouterr().out
    os.chdir("s")
    path = Path("config/config.yaml")
    assert load.load_study(path).space.mask == "data/mask.nii.gz"
    path.write_text(path.read_text().replace("data/mask.nii.gz", "computed"))
    assert command("validate", "config/config.yaml") == 2
    assert "space.mask" in capsys.readouterr().err
