"""Who a person is, in the names that projects use; and every scan counts once."""

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sites import site

from capeneuro.config.errors import ConfigError
from capeneuro.data import derivatives, inventory, recordings
from capeneuro.data.people_tables import inventory_of_maps

LABELS = st.from_regex("[A-Za-z0-9]{1,4}", fullmatch=True)
BOLD = "task-rest_desc-preproc_bold.nii.gz"
HCP = "MNINonLinear/Results/rfMRI_REST1_{0}/rfMRI_REST1_{0}_hp2000_clean.nii.gz"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(*names: str) -> None:
    """Files of different contents."""
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def n_files(images, **more) -> dict[str, int]:
    people = derivatives.find_runs(site(images=images, **more))
    return {name: len(runs) for name, runs in people.items()}


def of_folder(label: str, *names: str) -> list[str]:
    return [f"data/sub-{label}/func/sub-{label}_{name}" for name in names]


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        pytest.param(
            "d/*.nii.gz",
            ["d/Sub-01_run-1_bold.nii.gz", "d/Sub-01_run-2_bold.nii.gz"],
            {"sub-01": 2},
            id="C04-case",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/SUB-1_ses-1_bold.nii.gz", "d/sub-1_ses-2_bold.nii.gz"],
            {"sub-1": 2},
            id="C04-two-cases",
        ),
        pytest.param(
            "u/*.nii.gz",
            [f"u/100000{k}_20227_{i}_0.nii.gz" for k, i in ((1, 2), (1, 3), (2, 2))],
            {"1000001": 2, "1000002": 1},
            id="C05-uk-biobank-bulk",
        ),
        pytest.param(
            "d/*.nii.gz",
            [f"d/errts.sub-0{k}.nii.gz" for k in range(3)],
            {"sub-00": 1, "sub-01": 1, "sub-02": 1},
            id="C03-afni",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/rest.s1.nii.gz", "d/rest.s2.nii.gz"],
            {"rest.s1": 1, "rest.s2": 1},
            id="C03-dots",
        ),
        pytest.param(
            "d/*/*.nii.gz",
            ["d/patients/01.nii.gz", "d/patients/02.nii.gz", "d/controls/03.nii.gz"],
            {"01": 1, "02": 1, "03": 1},
            id="folders-of-groups",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/ctrl_01.nii.gz", "d/ctrl_02.nii.gz", "d/pat_01.nii.gz"],
            {"ctrl_01": 1, "ctrl_02": 1, "pat_01": 1},
            id="groups-in-names",
        ),
        pytest.param(
            "h/*/MNINonLinear/Results/*/*_hp2000_clean.nii.gz",
            [f"h/{k}/{HCP.format(way)}" for k in (100307, 100408) for way in "LR"],
            {"100307": 2, "100408": 2},
            id="C18-human-connectome-project",
        ),
        pytest.param(
            "u/*/fMRI/rfMRI.ica/filtered_func_data_clean.nii.gz",
            [
                f"u/100000{k}/fMRI/rfMRI.ica/filtered_func_data_clean.nii.gz"
                for k in (1, 2)
            ],
            {"1000001": 1, "1000002": 1},
            id="C18-uk-biobank",
        ),
        pytest.param(
            "h/*/MNINonLinear/Results/*/*_hp2000_clean.nii.gz",
            [
                f"h/HCA6002236_{visit}/{HCP.format('AP')}"
                for visit in ("V1_MR", "V2_MR")
            ],
            {"HCA6002236": 2},
            id="visits-of-the-human-connectome-project",
        ),
        pytest.param(
            "d/*/filtered_func_data.nii.gz",
            [
                f"d/sub-{k}{end}.feat/filtered_func_data.nii.gz"
                for k, end in (("01", "_run-1"), ("01", "_run-2"), ("02", "+"))
            ],
            {"sub-01": 2, "sub-02": 1},
            id="folders-of-fsl",
        ),
        pytest.param(
            "d/*/errts.*.nii.gz",
            [f"d/sub-{k}.results/errts.sub-{k}.tproject.nii.gz" for k in "12"],
            {"sub-1": 1, "sub-2": 1},
            id="folders-of-afni",
        ),
        pytest.param(
            "d/*.hdr", ["d/sub-1_bold.hdr", "d/sub-2_bold.hdr"], {}, id="headers-alike"
        ),
        pytest.param(
            "d/*/*/rest.nii.gz",
            ["d/sub-01/ses-1/rest.nii.gz", "d/sub-01/ses-2/rest.nii.gz"],
            {"sub-01": 2},
            id="label-in-a-folder-alone",
        ),
    ],
)
def test_a_pattern_finds_people(pattern, names, expected):
    write(*names)
    if not expected:  # headers of one grid are alike, and their data are not
        expected = {"sub-1": 1, "sub-2": 1}
        for name in names:
            write(str(Path(name).with_suffix(".img")))
            Path(name).write_text("a header")
    assert n_files(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "names", "expected"),
    [
        (
            "d/*.edf",
            ["d/aaaaaaac_s001_t000.edf", "d/aaaaaaac_s002_t000.edf"],
            {"aaaaaaac": 2},
        ),
        (
            "d/*-PSG.edf",
            ["d/SC4001E0-PSG.edf", "d/SC4002E0-PSG.edf", "d/SC4011E0-PSG.edf"],
            {"SC400": 2, "SC401": 1},
        ),
        ("d/*.edf", ["d/S001R01.edf", "d/S001R02.edf"], {"S001": 2}),
    ],
    ids=["temple-university-hospital", "sleep-edf", "physionet"],
)
def test_a_pattern_finds_whose_recordings_are(pattern, names, expected):
    write(*names)
    found = recordings.find_recordings(site(eeg=pattern))
    assert {name: len(files) for name, files in found.items()} == expected


NFC, NFD = "Jos\u00e9", "Jose\u0301"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"data/sub-{NFC}/func/sub-{NFD}_{BOLD}"], {f"sub-{NFC}": 1}),
        (
            [
                f"data/sub-{own}/func/sub-{own}_run-{run}_{BOLD}"
                for run, own in enumerate((NFC, NFD))
            ],
            {f"sub-{NFC}": 2},
        ),
        (
            [
                f"data/sub-01{end}/func/sub-01{end}_run-{run}_{BOLD}"
                for run, end in enumerate(("", "\u200b", "\u2060"))
            ],
            {"sub-01": 3},
        ),
        ([f"data/sub-01 /func/sub-01_{BOLD}"], {"sub-01": 1}),
        (
            [f"data/sub-01_ses-{s}/func/sub-01_ses-{s}_{BOLD}" for s in "12"],
            {"sub-01": 2},
        ),
    ],
    ids=["accent", "accents", "unseen-signs", "blank-behind", "c-pac"],
)
def test_however_a_name_is_written_it_is_one_person(names, expected):
    write(*names, *of_folder("99", BOLD))
    images = {"derivatives": "data"}
    assert n_files(images) == {**expected, "sub-99": 1}
    (person,) = expected
    for written in (person, NFD if "Jos" in person else "SUB-1"):
        assert n_files(images, without=[written]) == {"sub-99": 1}


def test_an_image_of_two_files_is_one():
    write(*(f"d/sub-{k}_bold.{end}" for k in "12" for end in ("hdr", "img")))
    assert n_files("d/*") == {"sub-1": 1, "sub-2": 1}
    assert n_files("d/*.img") == {"sub-1": 1, "sub-2": 1}


def test_what_stands_before_every_name_is_no_person():
    write("d/subj_1_a.nii", "d/subj_2_a.nii", "e/S1_a_x.nii", "e/S1_b_x.nii")
    with pytest.raises(
        ConfigError, match=r"all 2 files one person's, 'subj'; .* as in"
    ):
        n_files("d/*.nii", person="{person}_*")
    assert n_files("d/*.nii", person="subj_{person}_*") == {"1": 1, "2": 1}
    assert n_files("e/*.nii", person="{person}_*") == {"S1": 2}


@pytest.mark.parametrize(
    "names",
    [
        ["sub-01_bold.nii", "swsub-01_bold.nii"],
        ["swsub-01_run-1_bold.nii", "wsub-01_run-01_bold.nii.gz"],
    ],
)
def test_a_run_at_two_stages_of_spm_is_one_scan(names):
    write(*(f"d/{name}" for name in names))
    with pytest.raises(ConfigError, match="look like one scan"):
        n_files("d/*")


def test_a_copy_that_was_packed_again_is_seen():
    for label, mtime in (("1", 1), ("2", 2), ("3", 3)):
        content = b"of one" if label != "3" else b"others"
        write(f"d/sub-{label}_bold.nii.gz")
        packed = gzip.compress(content, mtime=mtime)
        Path(f"d/sub-{label}_bold.nii.gz").write_bytes(packed)
    assert n_files("d/sub-[13]*") == {"sub-1": 1, "sub-3": 1}
    with pytest.raises(ConfigError, match=r"sub-1.* and .*sub-2.* have the same conte"):
        n_files("d/*")


def test_two_headers_of_one_recording_are_refused():
    write("e/old.eeg")
    for label in "12":
        write(f"e/sub-{label}_eeg.vhdr")
        text = f"; header {label}\nDataFile=old.eeg\n"
        Path(f"e/sub-{label}_eeg.vhdr").write_text(text)
    with pytest.raises(ConfigError, match=r"lead to the same data old\.eeg"):
        recordings.find_recordings(site(eeg="e/*.vhdr"))
    assert "e/old.eeg" in recordings.inputs(site(eeg="e/sub-1*.vhdr"))


@pytest.mark.parametrize(
    ("label", "names", "expected"),
    [
        ("CMU_0050642", [BOLD], {"sub-CMU_0050642": 1, "sub-CMU_0050643": 1}),
        ("001-2", [BOLD], {"sub-001-2": 1, "sub-CMU_0050643": 1}),
        (
            "NDARINV1",
            [f"ses-{s}_{BOLD}" for s in ("baselineYear1Arm1", "2YearFollowUpYArm1")],
            {"sub-NDARINV1": 2, "sub-CMU_0050643": 1},
        ),
        ("1", [f"dir-{way}_{BOLD}" for way in ("AP", "PA")], None),
        ("1", [f"ses-d001{day}_acq-x_{BOLD}" for day in (3, 4)], None),
    ],
    ids=["C02-underscore", "C02-hyphen", "abcd", "directions", "C34-sessions"],
)
def test_a_folder_of_derivatives_says_who(label, names, expected):
    write(*of_folder(label, *names), *of_folder("CMU_0050643", BOLD))
    expected = expected or {f"sub-{label}": len(names), "sub-CMU_0050643": 1}
    assert n_files({"derivatives": "data"}) == expected


def test_a_linked_session_is_found():
    """C07: half of a person's volumes would be missing."""
    write("real/ses-1/func/sub-01_ses-1_" + BOLD)
    write(*(f"data/sub-{k}/ses-2/func/sub-{k}_ses-2_{BOLD}" for k in ("01", "02")))
    os.symlink("../../real/ses-1", "data/sub-01/ses-1")
    os.symlink("..", "data/sub-02/above")  # which never ends
    assert n_files({"derivatives": "data"}) == {"sub-01": 2, "sub-02": 1}


@pytest.mark.parametrize(
    ("pattern", "names", "said"),
    [
        pytest.param(
            "d/*.nii.gz",
            [f"d/sub-CMU_005064{k}.nii.gz" for k in (2, 3)],
            "may be of 2 people or of 1: are sub-CMU_0050642 and sub-CMU_0050643",
            id="C02-without-folders",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/P01_run1.nii.gz", "d/P01_run2.nii.gz", "d/P02_run1.nii.gz"],
            "3 files may be of 3 people or of 2: are P01_run1",
            id="runs-without-labels",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/run-1.nii.gz", "d/run-2.nii.gz"],
            "may be of 2 people or of 1",
            id="nothing-but-runs",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/100307_LR.nii.gz", "d/100307_RL.nii.gz"],
            "may be of 2 people or of 1",
            id="directions",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/sub-01_bold.nii.gz", "d/mean.nii.gz"],
            "1 do not: mean.nii.gz; narrow the pattern",
            id="a-mean-of-all",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/sub-ab_bold.nii.gz", "d/sub-AB_bold.nii.gz"],
            "are sub-AB and sub-ab the same person",
            id="two-cases-of-a-label",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/sub-1_bold.nii.gz", "d/sub-01_bold.nii.gz"],
            "are sub-01 and sub-1 the same person",
            id="noughts",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/anna_pre.nii.gz", "d/anna_post.nii.gz", "d/bert_pre.nii.gz"],
            "may be of 3 people or of 2: are anna_post and anna_pre",
            id="before-and-after",
        ),
        pytest.param(
            "d/*.nii.gz",
            ["d/anna_eyes-open.nii.gz", "d/anna_eyes-closed.nii.gz"],
            "may be of 2 people or of 1",
            id="eyes",
        ),
        pytest.param(
            "d/*/*.nii.gz",
            ["d/S01/a.nii.gz", "d/S01/b.nii.gz", "d/S02/c.nii.gz"],
            "3 files may be of 3 people or of 2: are a and b the same person",
            id="several-in-a-numbered-folder",
        ),
        pytest.param(
            "d/*/rest.nii.gz",
            ["d/a/rest.nii.gz", "d/b/rest.nii.gz"],
            "may be of 2 people or of 1",
            id="the-same-name-in-folders",
        ),
    ],
)
def test_two_readings_are_refused_with_both(pattern, names, said):
    write(*names)
    with pytest.raises(ConfigError) as error:
        n_files(pattern)
    assert said in str(error.value) and "person: '{person}_*'" in str(error.value)


def test_the_site_can_say_who_a_person_is():
    write("d/P01_run1.nii.gz", "d/P01_run2.nii.gz", "d/P02_run1.nii.gz")
    assert n_files("d/*.nii.gz", person="{person}_*") == {"P01": 2, "P02": 1}
    assert n_files("d/*", person="{person}.nii.gz").keys() >= {"P01_run1", "P01_run2"}
    with pytest.raises(ConfigError, match="does not match P01_run1"):
        n_files("d/*", person="sub-{person}_*")
    with pytest.raises(ValueError, match="in it once"):
        site(images="d/*", person="sub-*")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        pytest.param(
            "data/sub-01/derivatives/fmriprep/sub-01/func/sub-01_" + BOLD,
            "look like one scan",
            id="N21-derivatives-inside",
        ),
        pytest.param(
            "data/sub-01 (copy)/func/sub-01_" + BOLD,
            "lies in the folder 'sub-01 (copy)'",
            id="N21-copied-folder",
        ),
        pytest.param(
            "data/sub-01.bak/func/sub-01_" + BOLD, "is the folder a copy", id="N21-bak"
        ),
        pytest.param(
            "data/sub-01/func/sub-01_task-rest_run-1_desc-preproc_bold.nii.gz",
            "does the first hold both",
            id="N22-combined-runs",
        ),
        pytest.param(
            "data/sub-01/func/sub-01_desc-preproc_task-rest_bold.nii",
            "look like one scan",
            id="another-order-and-format",
        ),
    ],
)
def test_a_scan_in_two_places_is_refused(extra, said):
    write(*of_folder("01", BOLD), *of_folder("02", BOLD), extra)
    with pytest.raises(ConfigError, match="sub-01") as error:
        n_files({"derivatives": "data"})
    assert said in str(error.value)


@pytest.mark.parametrize("run", [[1], "01", "none"])
def test_a_site_says_which_of_combined_runs(run):
    runs = [f"task-rest_run-{k}_desc-denoised_bold.nii.gz" for k in (1, 2)]
    write(*of_folder("01", *runs, "task-rest_desc-denoised_bold.nii.gz"))
    images = {"derivatives": "data", "desc": "denoised", "run": run}
    assert n_files(images) == {"sub-01": 1}


@pytest.mark.parametrize(
    ("names", "asked", "said"),
    [
        (
            ["space-A", "space-B"],
            {},
            "one space, there is A (.*) and B (.*); say in `sp",
        ),
        (
            ["space-A", ""],
            {},
            "one space, there is A (.*) and none (.*); say in `space`",
        ),
        (["space-A_res-2", "space-A"], {}, "one res, there is 2 (.*) and none"),
        (
            ["space-A_cohort-1", "space-A_cohort-2"],
            {},
            "say in `filters: {cohort: ...}`",
        ),
        (["part-phase", "part-phase"], {}, "one part, there is phase (.*); say in"),
        (["part-mag", "part-phase"], {}, "one part, there is mag (.*) and phase"),
        (["echo-1", "echo-2"], {}, "one echo, there is 1 (.*) and 2"),
        (["space-A", "space-B"], {"space": ["A", "B"]}, ""),
        (["space-A", ""], {"space": "A"}, ""),
        (["part-phase", "part-phase"], {"filters": {"part": "phase"}}, ""),
        (["part-mag", ""], {}, ""),
        (["acq-mb", "dir-AP"], {}, ""),
    ],
)
def test_images_of_several_kinds_are_chosen_between(names, asked, said):
    """Native images resampled with those of a template would be taken for the same."""
    for label, part in zip("12", names, strict=True):
        write(
            *of_folder(
                label, f"task-rest_{part}_desc-preproc_bold.nii".replace("__", "_")
            )
        )
    images = {"derivatives": "data", **asked}
    if not said:
        assert "sub-1" in n_files(images)
        return
    with pytest.raises(ConfigError, match=re.escape(said).replace(r"\.\*", ".*")):
        n_files(images)


def test_echoes_without_their_combined_series_are_nobody_left_out():
    echoes = [f"task-rest_echo-{k}_desc-preproc_bold.nii" for k in (1, 2)]
    write(*of_folder("1", *echoes, BOLD), *of_folder("2", BOLD))
    assert n_files({"derivatives": "data"}) == {"sub-1": 1, "sub-2": 1}
    write(*of_folder("3", *echoes))
    with pytest.raises(ConfigError, match=r"sub-3.* say in `echo` which echo"):
        n_files({"derivatives": "data"})


def test_runs_combined_over_directions_are_seen():
    parts = [
        f"task-rest_dir-{way}_run-{k}_bold.nii" for k, way in enumerate(("AP", "PA"))
    ]
    write(*of_folder("1", *parts))
    assert n_files("data") == {"sub-1": 2}
    write(*of_folder("1", "task-rest_bold.nii"))
    with pytest.raises(ConfigError, match="does the first hold both"):
        n_files("data")


def test_sessions_that_a_folder_of_c_pac_names():
    write(*(f"data/sub-1_ses-{s}/func/sub-1_{BOLD}" for s in ("A1", "B2")))
    images = {"derivatives": "data"}
    assert n_files(images) == {"sub-1": 2}
    assert n_files({**images, "session": "A1"}) == {"sub-1": 1}


@pytest.mark.parametrize("link", ["data/sub-2", "data/sub-1/ses-2", "data/sub-1/func"])
def test_a_folder_that_is_a_link_to_nothing_is_named(link):
    write(f"data/sub-1/ses-1/func/sub-1_ses-1_{BOLD}")
    os.symlink("nowhere", link)
    with pytest.raises(
        ConfigError, match=f"{link}: is a link to nowhere, which is not"
    ):
        n_files({"derivatives": "data"})


def test_a_folder_that_may_not_be_read_is_named(monkeypatch):
    write(*of_folder("1", BOLD), *of_folder("2", BOLD))
    scandir = os.scandir

    def guarded(path):
        if "sub-2" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(ConfigError, match="sub-2: folder cannot be read"):
        n_files({"derivatives": "data"})


@pytest.mark.parametrize(
    ("people", "without", "chosen", "expected"),
    [
        (["sub-01", "sub-02"], ["2"], [], ["sub-02"]),
        (["sub-01", "SUB_2"], ["02", "99"], [], ["SUB_2"]),
        (["sub-01", "sub-02"], [], ["01"], ["sub-02"]),
        (["sub-01", "sub-02"], ["99"], [], []),
    ],
)
def test_who_left_since_is_told(people, without, chosen, expected):
    images = {"derivatives": "data", "people": chosen}
    found = site(images=images, without=without)
    assert inventory.no_longer_taken(found, people) == expected
    images |= {"without": without}
    assert inventory.no_longer_taken(site(images=images), people) == expected


def readers():
    """Each way of finding people, with a name of a file for a label."""
    yield (
        lambda **more: derivatives.find_runs(site(images="p/*.nii.gz", **more)),
        "p/sub-{}_bold.nii.gz",
    )
    yield (
        lambda **more: derivatives.find_runs(
            site(images={"derivatives": "data"}, **more)
        ),
        "data/sub-{0}/func/sub-{0}_" + BOLD,
    )
    yield (
        lambda **more: inventory_of_maps(site(images="maps", **more)).people,
        "maps/sub-{0}/anat/sub-{0}_stat-z_statmap.nii.gz",
    )
    yield (
        lambda **more: recordings.find_recordings(site(eeg="eegs", **more)),
        "eegs/sub-{0}/eeg/sub-{0}_task-x_eeg.vhdr",
    )
    yield (
        lambda **more: (
            inventory.of_rows(
                site(images="t.tsv", **more),
                Path("t.tsv"),
                [path.name for path in Path("rows").iterdir()],
            ).people
        ),
        "rows/sub-{}",
    )


@pytest.mark.parametrize("i", range(5), ids=["pattern", "bids", "maps", "eeg", "rows"])
def test_who_is_left_out_is_so_in_every_reader(here, i):
    find, name = list(readers())[i]
    number = 0

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(st.sets(LABELS, min_size=2), st.data())
    def check(labels, data):
        nonlocal number
        number += 1
        Path(str(number)).mkdir()
        os.chdir(str(number))
        write(*map(name.format, labels))
        some = st.sets(st.sampled_from(sorted(labels)), min_size=1)
        left_out = data.draw(some.filter(lambda drawn: drawn != labels))
        try:
            everybody = set(find())
            people = {own.removeprefix("sub-") for own in find(without=[*left_out])}
        except ConfigError:
            assert len({own.lower().lstrip("0") for own in labels}) < len(labels)
            return
        finally:
            os.chdir(here)
        assert people == labels - left_out
        assert everybody == {f"sub-{label}" for label in labels}

    check()
    write(*map(name.format, ("11", "12")))
    with pytest.raises(ConfigError, match="without: nobody is called 'l1'"):
        find(without=["l1"])


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(
    people=st.integers(2, 5),
    how=st.sampled_from(["copy", "link", "symlink", "rename", "split"]),
    data=st.data(),
)
def test_units_are_the_people_who_are_there(tmp_path_factory, people, how, data):
    """Whatever is copied, linked or renamed: each scan once, or refused."""
    os.chdir(tmp_path_factory.mktemp("once"))
    names = [of_folder(f"{k:02}", BOLD)[0] for k in range(people)]
    write(*names)
    source = Path(data.draw(st.sampled_from(names)))
    label = source.name[4:6]
    target = Path(
        data.draw(
            st.sampled_from(
                [
                    f"data/sub-{label}/ses-2/func/sub-{label}_ses-2_{BOLD}",
                    f"data/sub-{label}/func/sub-{label}_task-rest2_desc-preproc_bold.nii.gz",
                    f"data/sub-99/func/sub-99_{BOLD}",
                    f"data/sub-{label}/func/old/sub-{label}_{BOLD}",
                ]
            )
        )
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    if how == "split":  # another part of the same scan, of other content
        target.write_text("another part")
    else:
        make = {"copy": shutil.copy, "link": os.link, "rename": os.rename}
        make["symlink"] = os.symlink
        make[how](source.resolve(), target)
    try:
        counted = n_files({"derivatives": "data"})
    except ConfigError:
        assert how != "rename"
        return
    assert how in ("rename", "split")
    assert sum(counted.values()) == people + (how == "split")
    folders = {path.parts[1] for path in Path().glob("data/*/**/*.gz")}
    assert counted.keys() == folders


def test_a_planted_merge_of_people_is_noticed(monkeypatch):
    monkeypatch.setattr(inventory.people, "_check_same", lambda *_: None)
    names = [f"d/sub-CMU_005064{k}_bold.nii.gz" for k in (2, 3)]
    with pytest.raises(pytest.fail.Exception):
        test_two_readings_are_refused_with_both("d/*.nii.gz", names, "")


def test_the_inventory_says_why_a_file_is_set_aside(here):
    write(*of_folder("01", BOLD), *of_folder("02", BOLD), *of_folder("03", BOLD))
    write(*of_folder("01", "task-faces_desc-preproc_bold.nii.gz"))
    images = {"derivatives": "data", "task": "rest", "without": ["02"]}
    found = derivatives.inventory(site(images=images, without=["03"]))
    assert list(found.people) == ["sub-01"]
    assert sorted(found.aside.values()) == [
        "task is faces",
        "the person is named in without",
        "the person is named in without",
    ]
    inventory.write(here / "inventory.tsv", [found])
    lines = (here / "inventory.tsv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[1].startswith("sub-01\tdata/sub-01/func/") and lines[1].endswith("yes")
    assert found.lines() == [
        "  set aside: 1 file: task is faces",
        "  set aside: 2 files: the person is named in without",
    ]


def test_the_inventory_calls_people_as_the_site_does():
    write("d/P1_run1.nii", "d/P1_run2.nii", "d/P2_run1.nii")
    own = site(images="d/*.nii", person="{person}_*", without=["P1"])
    rows = derivatives.inventory(own).rows()
    assert [(row[0], row[2][:3]) for row in rows] == [
        ("P2", "yes"),
        ("P1", "no:"),
        ("P1", "no:"),
    ]


@pytest.mark.parametrize(
    ("second", "mask", "is_right"),
    [
        ("MNI152NLin6Asym", "mask.nii.gz", False),
        (
            "MNI152NLin2009cAsym",
            "tpl-MNI152NLin6Asym_desc-brain_mask.nii.gz",
            False,
        ),
        ("MNI152NLin2009cAsym", "tpl-MNI152NLin2009cAsym_desc-brain_mask.nii.gz", True),
        ("MNI152NLin2009cAsym", "mask.nii.gz", True),
    ],
    ids=["C27", "C27-mask", "one-template", "a-mask-that-says-nothing"],
)
def test_two_templates_are_refused(second, mask, is_right):
    spaces = {"north": "MNI152NLin2009cAsym", "south": second}
    images = {}
    for place, space in spaces.items():
        write(f"{place}/sub-1/func/sub-1_task-rest_space-{space}_desc-preproc_bold.nii")
        images[place] = derivatives.inventory(site(images={"derivatives": place}))
    if is_right:
        derivatives.check_templates(images, [Path(mask), None])
        return
    with pytest.raises(
        ConfigError, match=r"MNI152NLin2009cAsym \(site.*MNI152NLin6Asym"
    ):
        derivatives.check_templates(images, [Path(mask), None])
