"""What a first user gets wrong: one line that says where, which rule, and what to do.

The numbers are those of a list of 59 inputs that were tried on an early version. Where
a function call shows what a user would see it stands in the table; the rest is known
to tests of whole runs, which are named below it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from tiny_study import AFFINE, STUDY, command, edit, make_private, run_path, write_image
from tiny_study import tiny as tiny

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.studies import workflow

SITE, RUN = "site-1.yaml", run_path(1, 0)
MASK = Path("data/mask.nii.gz")
CHECK, VALIDATE = ("check", STUDY), ("validate", STUDY)


def damage(change, path=RUN) -> None:
    image = nib.load(path)
    write_image(path, change(image.get_fdata()), image.affine)


def rename(key: str, new: str, path: str = STUDY) -> None:
    content = yaml.safe_load(Path(path).read_text())
    content[new] = content.pop(key)
    Path(path).write_text(yaml.safe_dump(content))


def with_nan(data: np.ndarray) -> np.ndarray:
    data[1, 1, 1, 1] = np.nan
    return data


def cut(path: Path = RUN) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage() -> None:
    RUN.write_bytes(b"\x1f\x8b not a gzip file")


def private(key: str, value: object) -> None:
    for name in ("site-0.yaml", SITE, "site-2.yaml"):
        make_private(name)
    edit(STUDY, "score.reference", False)
    edit(STUDY, key, value)


def confounds(*columns: str) -> None:
    edit(STUDY, "cleaning.confounds", list(columns))
    for site in range(3):
        for person in range(2):
            run = run_path(site, person)
            name = run.name.replace("_bold.nii.gz", "_desc-confounds_timeseries.tsv")
            rows = [[k] for k in range(12)]
            files.write_table(run.with_name(name), ["trans_x"], rows)


def derivatives(**asked: object) -> None:
    edit(SITE, "images", {"derivatives": "data/site-1", "desc": [], **asked})


def second_space() -> None:
    name = RUN.name.replace("_bold", "_space-T1w_desc-preproc_bold")
    RUN.with_name(name).write_bytes(RUN.read_bytes())


def elsewhere() -> None:
    Path("sub").mkdir()
    os.chdir("sub")


# Number, name, what is done, the command, its status, and what its lines must say.
TABLE = [
    ("01", "a good study", lambda: None, CHECK, 0, []),
    ("02", "a misspelt key", lambda: rename("n_components", "n_component"), CHECK, 2,
     ["n_components: required key is missing", "did you mean 'n_components'?"]),
    ("03", "a misspelt key of a site", lambda: rename("images", "image", SITE), CHECK,
     2, [f"{SITE}: image: unknown key; did you mean 'images'?"]),
    ("04", "a comma", lambda: edit(STUDY, "budget.epsilon", "1,5"), CHECK, 2,
     ["budget.epsilon: must be a number, with a point as in 1.5, got '1,5'"]),
    ("05", "epsilon below 0", lambda: edit(STUDY, "budget.epsilon", -1), CHECK, 2,
     ["budget.epsilon: input should be greater than 0, got -1"]),
    ("06", "no components", lambda: edit(STUDY, "n_components", 0), CHECK, 2,
     ["n_components: input should be greater than or equal to 1, got 0"]),
    ("07", "a large delta", lambda: private("budget.delta", 0.1), CHECK, 2,
     ["budget.delta: must be well below one over the number of people, got 0.1.*take"]),
    ("08", "a unit in the plural", lambda: edit(STUDY, "budget.unit", "subjects"),
     CHECK, 2, ["budget.unit: input should be 'sample' or 'subject', got 'subjects'"]),
    ("09", "a tab", lambda: Path(STUDY).write_text("a:\n\tb: 1"), CHECK, 2,
     [f"{STUDY}: not a YAML file: indent with blanks"]),
    ("10", "no such study", lambda: None, ("check", "confg.yaml"), 2,
     ["confg.yaml: file not found; check the path"]),
    ("10b", "a site file as a study", lambda: None, ("run", SITE), 2,
     [f"{SITE}: must be a study file, this is a site file"]),
    ("10c", "no study in the folder", elsewhere, ("run", STUDY), 2,
     [f"{STUDY}: file not found; check the path, which starts from /.*/sub"]),
    ("11", "no such site file", lambda: Path(SITE).unlink(), CHECK, 2,
     [f"{SITE}: file not found; check the path"]),
    ("12", "one site twice", lambda: edit(SITE, "name", "site-0"), CHECK, 2,
     [f"{SITE}: name: must be unique in the study, got 'site-0' again"]),
    ("13", "one site", lambda: edit(STUDY, "sites", [SITE]), CHECK, 2,
     ["sites: a federation needs at least 2, got 1"]),
    ("14", "no such folder", lambda: edit(SITE, "images", "data/site-9"), VALIDATE, 2,
     ["site site-1: images: nothing found at 'data/site-9'; put the data there"]),
    ("15", "a pattern of nothing",
     lambda: edit(SITE, "images", "data/site-1/**/*_bold.nii.gzz"), VALIDATE, 2,
     ["nothing found at .*gzz'; put the data there or change `images`"]),
    ("16", "a wrong task", lambda: edit(SITE, "task", "faces"), VALIDATE, 2,
     ["nothing found at 'data/site-1' with task faces; there is task rest"]),
    ("16b", "a wrong session", lambda: derivatives(session=3), CHECK, 2,
     ["nothing found at 'data/site-1' with session 3; there is task rest"]),
    ("16c", "a wrong key of derivatives", lambda: derivatives(sesion=3), CHECK, 2,
     ["images.sesion: unknown key; did you mean 'session'?"]),
    ("17", "no mask", MASK.unlink, VALIDATE, 2,
     ["data/mask.nii.gz: file not found; put a mask there, or change `space.mask`"]),
    ("18", "a mask of another shape",
     lambda: write_image(MASK, np.ones((5, 6, 6))), VALIDATE, 2,
     ["grid must equal the mask's: shape .*set space.resample.*the same of 5 more"]),
    ("19", "an image that was cut", cut, VALIDATE, 2,
     [f"{RUN}: data cannot be read to the end; copy it again"]),
    ("20", "an image of garbage", garbage, VALIDATE, 2,
     [f"{RUN}: not a readable NIfTI image; is it cut?"]),
    ("21", "another affine",
     lambda: write_image(RUN, nib.load(RUN).get_fdata(), 1.1 * AFFINE), VALIDATE, 2,
     [f"{RUN}: grid must equal the mask's.*space.resample"]),
    ("22", "another affine, to be resampled",
     lambda: (write_image(RUN, nib.load(RUN).get_fdata(), AFFINE + 0.5 * np.eye(4)),
              edit(STUDY, "space.resample", True)), VALIDATE, 0, []),
    ("23", "one scan in two spaces", second_space, VALIDATE, 2,
     ["site-1: images: .*T1w.* look like one scan; .* give a pattern that takes one"]),
    ("23b", "the same, chosen from derivatives",
     lambda: (second_space(), derivatives()), CHECK, 2,
     ["look like one scan; say in `space` which space: T1w or none"]),
    ("24", "no repetition time, and none needed", lambda: None, VALIDATE, 0, []),
    ("25", "a column that is not there",
     lambda: (confounds("trans_x"), edit(STUDY, "cleaning.confounds", ["trans_y"])),
     VALIDATE, 2,
     ["no column 'trans_y'; check cleaning.confounds; the same of 5 more.*sub-21"]),
    ("26", "good confounds", lambda: confounds("trans_x"), VALIDATE, 0, []),
    ("27", "a pattern of columns",
     lambda: (confounds("trans_x"), edit(STUDY, "cleaning.confounds", ["trans_*"])),
     VALIDATE, 2, ["no column 'trans_\\*'.*a strategy takes groups of columns"]),
    ("28", "no such strategy", lambda: edit(STUDY, "cleaning.confounds", "motion"),
     CHECK, 2, ["cleaning.confounds: must be a list of columns, or a strategy: simple, "
                "scrubbing, compcor, ica_aroma, got 'motion'"]),
    ("28b", "no DVARS with the strategy that needs it",
     lambda: (edit(STUDY, "cleaning.confounds", "scrubbing"),
              edit(STUDY, "cleaning.scrub", {"std_dvars_threshold": None})), CHECK, 2,
     ["cleaning: scrub.std_dvars_threshold must be a number with strategy scrubbing"]),
    ("29", "no task", lambda: None, VALIDATE, 0, []),
    ("30", "a 3-D image", lambda: damage(lambda d: d[..., 0]), VALIDATE, 2,
     [f"{RUN}: must be a 4-D image, got shape"]),
    ("31", "more components than features", lambda: edit(STUDY, "n_components", 40),
     VALIDATE, 2,
     ["n_components: must be at most the 27 features of the basis, got 40"]),
    ("32", "NaN", lambda: damage(with_nan), VALIDATE, 2,
     [f"{RUN}: voxels must be finite, 1 hold NaN or Inf; exclude or mend it"]),
    ("33", "a band above half the rate",
     lambda: (edit(STUDY, "cleaning.low_pass", 0.5), edit(SITE, "repetition_time", 2.0),
              edit("site-0.yaml", "repetition_time", 0.5),
              edit("site-2.yaml", "repetition_time", 0.5)), VALIDATE, 2,
     ["the filter needs 19 volumes, has 12; exclude the run, or",
      "0.25 Hz, got 0.5 .the repetition time is 2 s, of the file of site site-1"]),
    ("43", "more than the ceiling", lambda: edit(SITE, "epsilon", 1.0), VALIDATE, 3,
     ["site site-1: epsilon: the ceiling is 1 .*in the ledger private/site-1/ledger"]),
    ("53", "commands from elsewhere", elsewhere, ("check", f"../{STUDY}"), 2,
     [r"\.\./config.yaml: sites: paths start from the folder.*first cd /"]),
    ("54", "a folder that exists", lambda: Path("old/workflow").mkdir(parents=True),
     ("init", "old"), 2, ["old/workflow: exists already; choose another folder"]),
    ("56", "a higher ceiling", lambda: edit(SITE, "epsilon", 60.0), VALIDATE, 0, []),
    ("57", "a ledger that is not there", lambda: None, ("ledger", "verify", SITE), 2,
     ["ledger: there is none at private/site-1/ledger yet; check the path"]),
    ("33b", "a repetition time in milliseconds",
     lambda: edit(SITE, "repetition_time", 2000), CHECK, 2,
     [r"repetition_time: must be between 0.1 and 20 s \(milliseconds\?\), got 2000"]),
    ("33c", "the same in a sidecar",
     lambda: RUN.with_name(RUN.name[:-7] + ".json").write_text(
         '{"RepetitionTime": 3000}'), VALIDATE, 2,
     [r"bold.json: RepetitionTime: .*\(milliseconds\?\), got 3000; mend it there"]),
    ("16d", "a wrong task, in a run", lambda: edit(SITE, "task", "faces"),
     ("run", STUDY), 2, ["nothing found at 'data/site-1' with task faces; there is"]),
    ("17b", "no mask, in a run", MASK.unlink, ("run", STUDY), 2,
     ["data/mask.nii.gz: file not found; put a mask there, or change `space.mask`"]),
    ("54b", "a study of a folder without images", lambda: Path("e").mkdir(),
     ("init", "new", "--from", "e", "data/site-1"), 2,
     ["--from: e: no 4-D images; there is nothing to read; name a folder"]),
    ("54d", "a folder that is not there", lambda: None,
     ("init", "new", "--from", "nowhere"), 2,
     ["--from: nowhere: is no folder; name one of a site"]),
    ("54c", "people made for a study that is there",
     lambda: command("init", "new"),
     ("init", "new", "--data", "simulated", "--kind", "fusion"), 2,
     ["--data simulated: makes people for a new study, and new has a study"]),
]  # fmt: skip
# Whole runs: who sees to them.
WORKFLOW = "studies/test_workflow.py"
ELSEWHERE = {
    "41": (WORKFLOW, "test_a_changed_key_reruns_what_depends_on_it"),
    "42 44 45 60": (WORKFLOW, "test_a_refused_rerun_keeps_what_was_paid"),
    "47": ("test_cli.py", "test_an_earlier_study_counts_against_the_ceiling"),
    "58": ("test_cli.py", "test_a_ledger_that_is_not_there_is_not_a_clean_one"),
    "71 72 73": (WORKFLOW, "test_a_killed_run_resumes_without_a_second_charge"),
}
# By tests below.
BELOW = "55 70 74"
# Nothing is wrong, or it ends before anything of ours begins, in words of the shell or
# of Snakemake.
NO_MISTAKES, NOT_OURS = "40 46 49 52 59", "48 50 51"


def test_all_59_are_here():
    numbers = {number[:2] for number, *_ in TABLE}
    elsewhere = " ".join([*ELSEWHERE, BELOW, NO_MISTAKES, NOT_OURS]).split()
    assert len(elsewhere) + len(numbers) == len(numbers.union(elsewhere)) == 59


@pytest.mark.parametrize(
    ("wrong", "arguments", "status", "said"),
    [row[2:] for row in TABLE],
    ids=[f"{number} {name}" for number, name, *_ in TABLE],
)
def test_what_is_wrong_is_one_line_that_says_what_to_do(
    tiny, capsys, wrong, arguments, status, said
):
    wrong()
    capsys.readouterr()
    assert command(*arguments) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said), lines
    for line, part in zip(lines, said, strict=True):
        assert line.startswith("error: ") and re.search(part, line), line


@pytest.mark.parametrize("numbers", ELSEWHERE)
def test_the_others_are_tried_in_whole_runs(numbers):
    file, name = ELSEWHERE[numbers]
    assert f"def {name}(" in (Path(__file__).parent / file).read_text()


def test_wrong_arguments_are_one_line(capsys):
    """55, and whatever else argparse would say with its usage."""
    with pytest.raises(SystemExit):
        command("run")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the following arguments are required: study; see")
    with pytest.raises(SystemExit):
        command("init", "xx", "--kind", "ica")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("--kind: invalid choice: 'ica'.*see capeneuro init --help", line)


def test_the_snakefile_refuses_what_run_does(tiny):
    """16, by Snakemake itself, which would else show where in the rules it stumbled."""
    edit(SITE, "task", "faces")
    with pytest.raises(ConfigError, match="with task faces; there is task rest"):
        workflow.read_study([STUDY], yaml.safe_load(Path(STUDY).read_text()))


def test_an_untouched_study_has_its_folders_name_and_says_what_is_missing(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert command("init", "sim 1") == 0
    os.chdir("sim 1")
    capsys.readouterr()
    assert command("check", "config/config.yaml") == 0
    said = capsys.readouterr().out
    assert "note: site site-1: images: nothing is at 'data/site-1' yet" in said
    assert "note: space.mask: nothing is at 'data/mask.nii.gz' yet" in said
    assert "study 'sim-1' with 2 sites is well formed" in said
    # A run would be refused, and so is a plan of it; on paper it may be planned.
    assert command("plan", "config/config.yaml") == 2
    on_paper = ("--people", "4000", "--volumes", "180", "--features", "900")
    assert command("plan", "config/config.yaml", *on_paper) == 0


def test_private_people_are_not_told_to_do_without_noise(tiny, capsys):
    private("accept", [])
    few = ("--people", "40", "--volumes", "150", "--features", "900")
    assert command("plan", STUDY, *few) == 3
    said = capsys.readouterr().err
    assert "noise must not drown" in said and "non-private" not in said


def test_what_is_told_of_people_at_a_site_is_how_many(tiny, capsys):
    edit(STUDY, "pca.norm_bound", 0.01)
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", "site-1") == 0
    said = capsys.readouterr().out
    assert "note: site-1: 2 people of 2 far above the norm bound" in said
    assert "sub-" not in said


def test_a_reader_who_has_read_enough_is_no_error():
    command = [Path(sys.executable).with_name("capeneuro"), "privacy", "schema"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        assert not process.stderr.read()
    assert process.returncode == 141


def test_two_runs_in_one_folder_are_refused(tiny, capsys):
    """70: Snakemake's own words for it are three lines."""
    Path(".snakemake/locks").mkdir(parents=True)
    Path(".snakemake/locks/0.input.lock").touch()
    assert command("run", STUDY) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "another run is under way" in line and "--unlock" in line


def test_a_folder_that_may_not_be_written_is_said(tiny, capsys, monkeypatch):
    """74, for `run`; root may write anywhere, so the question is answered here."""
    monkeypatch.setattr(workflow.os, "access", lambda path, mode: mode != os.W_OK)
    assert command("run", STUDY) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("may not be written to; ask its owner .* folder of yours", line)
