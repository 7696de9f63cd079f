"""Other programs' last words: each known ending is one line, with what to do."""

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import slurm
from tiny_study import (
    STUDY,
    command,
    edit,
    run_path,
    run_steps,
    write_image,
    write_study,
)
from workflows import ROOT, run

from capeneuro import machine
from capeneuro.config import load
from capeneuro.federation import hash_chain as ledger_lines
from capeneuro.federation import registry
from capeneuro.federation.ledger import Ledger, LedgerWithoutLocks
from capeneuro.privacy import accounting
from capeneuro.studies import apart, cluster, endings, flow, workflow

# --- the machine ---------------------------------------------------------------------


@pytest.mark.parametrize("number", sorted(machine.REMEDIES))
def test_what_the_machine_refuses_has_a_remedy(number):
    status, (line,) = flow.outcome(OSError(number, os.strerror(number), "a/file"))
    assert status == 1
    assert line.startswith(f"a/file: {os.strerror(number)}; ")
    assert line.endswith(machine.REMEDIES[number])


def test_a_full_disk_says_which_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, (line,) = flow.outcome(OSError(errno.ENOSPC, "No space left on device"))
    assert line == f"{tmp_path}: No space left on device; make room on this disk, " + (
        "or work on another one"
    )


def test_memory_that_ran_out_has_a_remedy():
    status, (line,) = flow.outcome(MemoryError("Unable to allocate 9 GiB"))
    assert status == 1 and "9 GiB; ask for more memory" in line


@pytest.fixture
def without_locks(monkeypatch):
    """A file system without locks, as some network disks are."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    return lambda: monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_ledger_without_locks_is_not_made(tiny, capsys, without_locks):
    """C53"""
    edit("site-0.yaml", "data", "private")
    edit("site-0.yaml", "ledger", "there/ledger")
    without_locks()
    assert command("ledger", "init", "site-0.yaml") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "error: there/ledger: this file system has no locks (No locks available), so "
        "nothing was charged or released; name one on a local disk, and put that into "
        "the site file (key ledger)"
    )


def test_nothing_is_charged_without_locks(tmp_path, without_locks):
    """C53-charge"""
    ceiling = accounting.Budget(50.0, 1e-5, "subject")
    book = Ledger(tmp_path / "ledger", ceiling, data="simulated")
    book.public_key  # noqa: B018 (makes the folder)
    before = sorted(tmp_path.rglob("*.bin"))
    without_locks()
    with pytest.raises(LedgerWithoutLocks, match="key ledger"):
        book.entries()
    assert sorted(tmp_path.rglob("*.bin")) == before


def test_a_second_place_without_locks_is_named(tmp_path, monkeypatch, without_locks):
    """C53-second-place"""
    own = ledger_lines.Lines(tmp_path / "ledger", tmp_path, lambda _: None)
    without_locks()
    with pytest.raises(LedgerWithoutLocks, match="key second_place"):
        registry.enter(own, ["sub-1"])


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        pytest.param(
            {"HOME": "/dev/null", "XDG_DATA_HOME": "", "XDG_STATE_HOME": ""},
            ["/dev/null", "(keys ledger and second_place)"],
            id="C52-home-cannot-be",
        ),
        pytest.param(
            {"XDG_DATA_HOME": "/dev/null/x", "XDG_STATE_HOME": "/dev/null/x"},
            ["/dev/null/x", "(keys ledger and second_place)"],
            id="C52-xdg",
        ),
    ],
)
def test_a_home_without_room_for_a_ledger_names_the_keys(
    tiny, capsys, monkeypatch, variables, parts
):
    edit("site-0.yaml", "data", "private")
    edit("site-0.yaml", "ledger", None)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert command("ledger", "init", "site-0.yaml") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert all(part in line for part in parts) and "nothing was released" in line


def test_a_user_without_a_home_has_to_name_folders(tiny, capsys, monkeypatch):
    """C52-no-home"""
    edit("site-0.yaml", "data", "private")
    edit("site-0.yaml", "ledger", None)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert command("ledger", "init", "site-0.yaml") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "ledger, second_place: this user has no home folder" in line
    assert not Path("~").exists()


@pytest.mark.parametrize("home", ["/dev/null", "/dev/null/home", ""])
def test_caches_lie_in_the_study_where_there_is_no_home(tiny, monkeypatch, home):
    """C52-caches"""
    monkeypatch.setenv("HOME", home)
    if not home:  # as for a user that the machine does not know
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for name in endings.CACHES:
        monkeypatch.delenv(name, raising=False)
    caches = endings.usable_caches()
    assert set(caches) == set(endings.CACHES)
    assert all(value.startswith(f"{tiny}/.snakemake/") for value in caches.values())


def test_a_users_own_cache_stays_where_it_is(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert endings.usable_caches() == {}


# --- Snakemake -----------------------------------------------------------------------

FULL = "OSError: [Errno 28] No space left on device: '.snakemake/metadata/x'"
MISSING = (
    "MissingInputException in rule prepare:\nMissing input files for rule prepare:\n"
    "    output: private/a.npz\n    affected files:\n        data/sub-1.nii.gz\n"
)
SAID = {
    "no such rule": (
        "MissingRuleException:\nNo rule to produce nonesuch (if you use input",
        ["no step and no file is called nonesuch", "run my.yaml -n"],
    ),
    "missing input": (MISSING, ["data/sub-1.nii.gz: file not found"]),
    "slow disk": (
        "MissingOutputException in rule a:\nJob 3 completed successfully, but some "
        "output files are missing.\nMissing files after 60 seconds. This might be due "
        "to filesystem latency.:\nprivate/a.npz (missing locally)",
        ["private/a.npz was written and is not seen", "latency-wait"],
    ),
    "cycle": (
        "CyclicGraphException in rule a:\nCyclic dependency on rule prepare.",
        ["step prepare would need its own output"],
    ),
    "locked": (
        "LockException:\nError: Directory cannot be locked.",
        ["another run is under way", "run my.yaml --unlock"],
    ),
    "argument": ("error: unrecognized arguments: --bogus", ["argument --bogus"]),
    "profile": (
        "error: Couldn't parse config file: while parsing a flow node\nexpected, but\n"
        '  in "p/profile.yaml", line 2',
        ["not YAML: while parsing a flow node expected, but in", "line 2; mend it"],
    ),
    "executor": (
        "argument --executor/-e: invalid choice: 'pbs' (choose from 'local', 'touch')",
        ["there is no pbs; known are 'local', 'touch'", "capeneuro[slurm]"],
    ),
    "too old": (
        "Expecting Snakemake version 9.20 or higher (you are currently using 8.1).",
        ["9.20 or later", "pip install -U"],
    ),
    "disk full": (FULL, ["the disk is full; make room"]),
    "quota": ("OSError: [Errno 122] Disk quota exceeded", ["your quota"]),
    "open files": ("OSError: [Errno 24] Too many open files", ["ulimit -n"]),
    "read only": (
        "OSError: [Errno 30] Read-only file system: '.snakemake'",
        [".snakemake: work on a disk that can be written"],
    ),
    "forbidden": (
        "PermissionError: [Errno 13] Permission denied: '/x/.cache'",
        ["/x/.cache: may not be written or read; ask its owner"],
    ),
    "a file in the way": (
        "[Errno 17] File exists: 'private'",
        ["private: a file is where a folder must be"],
    ),
    "C56 partition": (
        "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition "
        "specified: big\nsbatch: error: Batch job submission failed: Invalid partition "
        "name specified'",
        ["SLURM has no partition big", "slurm_partition", "sinfo"],
    ),
    "C56 account": (
        "sbatch: error: Batch job submission failed: Invalid account or "
        "account/partition combination specified",
        ["SLURM refuses the account; set slurm_account"],
    ),
    "C56 account of the plugin": (
        "The given account nope appears to be invalid. Available",
        ["SLURM refuses the account nope; set slurm_account"],
    ),
    "C56 sacct": (
        "[Errno 2] No such file or directory: 'sacct'",
        ["sacct: not found", "login node"],
    ),
    "C56 controller": (
        "sbatch: error: Unable to contact slurm controller (connect failure)",
        ["SLURM does not answer"],
    ),
    "C56 limit": (
        "Batch job submission failed: QOSMaxSubmitJobPerUserLimit",
        ["(QOSMaxSubmitJobPerUserLimit)", "lower jobs"],
    ),
    "C56 memory": (
        "SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'. Detailed",
        ["ended job 7", "raise mem_mb"],
    ),
    "C56 time": (
        "SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Detailed",
        ["ended job 7", "raise runtime"],
    ),
    "C56 nodes": (
        "sbatch: error: Requested node configuration is not available",
        ["lower mem_mb or max-threads"],
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_known_last_words_are_one_line(name):
    text, parts = SAID[name]
    line = endings.in_words(
        f"Building DAG of jobs...\n{text}\nShutting down", "my.yaml"
    )
    assert "\n" not in line
    assert all(part in line for part in parts), line


def test_unknown_last_words_are_nobodys():
    assert endings.in_words("Something new went wrong.") == ""
    line = endings.in_words("Terminating processes on user request, this might take.")
    assert line == machine.INTERRUPTED  # and no step has run out of memory


@pytest.mark.parametrize(
    ("log", "is_cut"),
    [
        ("", True),
        ("said\n", True),
        ("said\ntook 3.0 s, 1.0 s of a processor\n", False),
        ("error: x\nended with status 2\n", False),
        ("interrupted; run the same command again to continue\n", False),
    ],
)
def test_a_step_that_was_killed_is_told_by_its_log(log, is_cut):
    assert endings.is_cut(log) is is_cut


def test_a_killed_step_is_the_last_line(tiny, capsys):
    log = Path("private/site-1/tiny/logs/prepare.log")
    log.parent.mkdir(parents=True)
    log.write_text("begun\n")
    workflow.last_words(load.load_study(STUDY), 0.0)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: study tiny: prepare of site-1: its process was kill")
    assert "memory" in line and "--cores" in line


def _old_snakemake(monkeypatch):
    monkeypatch.setattr(workflow.importlib.metadata, "version", lambda _: "8.30.0")
    return ["--", "--quiet"]


def _dead_snakemake(monkeypatch):
    kill = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **given: popen(kill, **given))
    return ["--", "--quiet"]


STARTS = {
    "too old": (_old_snakemake, 2, "needs snakemake 9.20 or later, got 8.30.0"),
    "no profile": (
        lambda _: ["--", "--workflow-profile", "nowhere"],
        2,
        "--workflow-profile: no folder nowhere",
    ),
    "killed": (_dead_snakemake, 1, "killed by signal 9.*run config.yaml --unlock"),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_run_that_cannot_be_says_why(tiny, capsys, monkeypatch, name):
    change, status, text = STARTS[name]
    assert command("run", STUDY, *change(monkeypatch)) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(text, line)


def test_a_run_without_a_home_is_right(tmp_path, monkeypatch):
    """C52-run"""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, 2)
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    done = run(tmp_path, "capeneuro", "run", STUDY, "--", "--until", "validate")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" and Path(".snakemake/cache/snakemake").is_dir()


# --- SLURM ---------------------------------------------------------------------------

SUBMITTED = (
    "SLURM run ID: 1234\n"
    "Job 3 has been submitted with SLURM jobid 7 (log: /x/slurm_logs/rule_prepare/"
    "site-0/7.log).\n"
)
WAITING = {
    "C56-PartitionConfig": ["PartitionConfig: no node", "mem_mb"],
    "C56-Resources": ["Resources: it waits for its turn", "for ever"],
    "C56-AssocGrpCpuLimit": ["AssocGrpCpuLimit: the account", "slurm_account"],
    "C56-JobHeldUser": ["JobHeldUser: it is held: scontrol release"],
    "C56-SomethingNew": ["SomethingNew: see scontrol show job"],
}


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """SLURM's commands as stand-ins; called with what goes wrong."""
    folder = slurm.install(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda wrong: monkeypatch.setenv("FAKE_SLURM", wrong)


@pytest.mark.parametrize("name", WAITING)
def test_a_job_that_waits_is_named_with_its_reason(fake_slurm, name):
    fake_slurm(name.removeprefix("C56-"))
    (line,) = cluster.waiting(SUBMITTED)
    assert line.startswith("prepare of site-0 (SLURM job 7), ")
    assert all(part in line for part in WAITING[name])


def test_an_array_that_waits_is_one_line(fake_slurm):
    fake_slurm("Resources")
    array = "SLURM run ID: 1\nSubmitted array job with Snakemake IDs 12,8,14 and SLURM "
    array += "job ID 7. The individual task IDs are 1-3.\nFinished jobid: 8 (Rule: x)\n"
    (line,) = cluster.waiting(array)
    assert line.startswith("an array of jobs, 2 not done, (SLURM job 7), Resources: it")
    ended = "".join(f"Finished jobid: {job} (Rule: x)\n" for job in (12, 14))
    assert cluster.waiting(array + ended) == []


def test_a_job_that_slurm_forgot_is_named(fake_slurm):
    """C56-vanished"""
    fake_slurm("vanished")
    (line,) = cluster.waiting(SUBMITTED)
    assert "not known to SLURM any more" in line and "Ctrl-C" in line


def test_a_silent_slurm_is_said(fake_slurm):
    """C56-down"""
    fake_slurm("down")
    (line,) = cluster.waiting(SUBMITTED)
    assert "squeue does not answer (slurm_load_jobs error: Unable to contact" in line


@pytest.mark.parametrize("end", ["Finished jobid: 3 (Rule: prepare)", ""])
def test_jobs_that_go_on_or_have_ended_are_not_told(fake_slurm, end):
    fake_slurm("vanished" if end else "runs")
    assert cluster.waiting(f"{SUBMITTED}{end}\n") == []
    assert cluster.waiting("no run of SLURM") == []


@pytest.mark.slow
def test_a_run_on_a_cluster_ends_with_what_slurm_says(tmp_path, monkeypatch):
    """C56-run"""
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs extra `slurm`")
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, 2)
    folder = slurm.install(tmp_path / "slurm")
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    profile = str(ROOT / "workflow/profiles/slurm")
    given = "--workflow-profile", profile, "--until", "validate"
    done = subprocess.run(
        [sys.executable, "-m", "capeneuro", "run", STUDY, "--", *given],
        env=environment | {"FAKE_SLURM": "partition", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "SLURM has no partition nonesuch" in done.stderr.splitlines()[-1]


# --- people --------------------------------------------------------------------------


def test_every_damaged_file_is_told_with_what_leaves_its_person_out(tiny, capsys):
    """C63: two of twenty, one cut in its header and one in its data."""
    rng = np.random.default_rng(5)
    for i in range(20):
        name = f"sub-{i:03d}_task-rest_desc-preproc_bold.nii.gz"
        data = 100 + rng.standard_normal((6, 6, 6, 12))
        write_image(Path(f"twenty/sub-{i:03d}/func/{name}"), data)
    images = {"derivatives": "twenty", "task": "rest"}
    edit("site-0.yaml", "images", images)
    for who, left in ("010", 60), ("015", 4000):
        (path,) = Path(f"twenty/sub-{who}/func").glob("*.nii.gz")
        path.write_bytes(path.read_bytes()[:left])
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "sub-010_task-rest" in lines[0] and "sub-015_task-rest" in lines[1]
    assert "2 of its 20 people" in lines[2] and '["010", "015"]' in lines[2]
    edit("site-0.yaml", "images", images | {"without": ["010", "015"]})
    assert command("validate", STUDY) == 0
    assert "site-0: 18 people" in capsys.readouterr().out


def _copied(source: Path, target: Path) -> None:
    shutil.copy(source, target)


def _linked(source: Path, target: Path) -> None:
    target.unlink()
    target.symlink_to(source.absolute())


def _hard_linked(source: Path, target: Path) -> None:
    target.unlink()
    target.hardlink_to(source)


@pytest.mark.parametrize("step", ["validate", "prepare"])
@pytest.mark.parametrize("how", [_copied, _linked, _hard_linked])
@pytest.mark.parametrize("to", [(1, 0), (0, 1)], ids=["other-site", "same-site"])
def test_equal_files_of_two_people_are_refused(tiny, capsys, to, how, step):
    """N08"""
    if step == "prepare":
        run_steps("validate")
    how(run_path(0, 0), run_path(*to))
    capsys.readouterr()
    site = ["--site", "site-0"] if step == "prepare" else []
    assert command(step, STUDY, *site) == 2
    (line,) = capsys.readouterr().err.splitlines()
    if to[0] == 0:
        both = f"{run_path(0, 0)} and {run_path(*to)}"
        assert re.search(f"{both} (are one file|have the same content); take", line)
        return
    assert line.startswith(f"error: {run_path(*to)}: has the bytes of {run_path(0, 0)}")
    assert "promised as two" in line and f'without: ["{to[0]}{to[1]}"]' in line


def test_equal_files_are_told_with_what_leaves_one_out(tiny, capsys):
    """N08-block"""
    for site in (0, 1):
        for own in Path(f"data/site-{site}").rglob("*_bold.nii.gz"):
            own.rename(own.with_name(own.name.replace("_bold", "_desc-preproc_bold")))
        images = {"derivatives": f"data/site-{site}"}
        edit(f"site-{site}.yaml", "images", images)
    (source,) = Path("data/site-0/sub-00").rglob("*.nii.gz")
    (target,) = Path("data/site-1/sub-11").rglob("*.nii.gz")
    shutil.copy(source, target)
    assert command("validate", STUDY) == 2
    assert 'without: ["11"]' in capsys.readouterr().err


def test_files_that_are_alike_in_size_alone_are_right(tiny):
    """N08-size"""
    for path in (paths := list(Path("data").rglob("*_bold.nii.gz"))):
        path.write_bytes(path.read_bytes().ljust(30000, b"\0"))
    assert {path.stat().st_size for path in paths} == {30000} and len(paths) == 6
    study = load.load_study(STUDY)
    apart.check(study, workflow.load_sites(study))


def test_what_people_share_by_rights_is_no_person(tiny):
    """N08-sidecars"""
    for i in range(3):
        for person in range(2):
            sidecar = Path(str(run_path(i, person)).replace(".nii.gz", ".json"))
            sidecar.write_text('{"RepetitionTime": 2}')
        edit(f"site-{i}.yaml", "mask", "data/mask.nii.gz")
    assert command("validate", STUDY) == 0
