"""The whole workflow as a user runs it: one small study, from nothing to its report."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
from dp_accounting import dp_event, pld
from helpers import CONTRACT
from tiny_study import ACCEPT, STUDY, write_study
from workflows import BIN, ROOT, edit, run

from capeneuro.privacy import accounting
from capeneuro.studies import workflow


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A folder in which the small demo study has run to its report."""
    folder = tmp_path_factory.mktemp("study")
    shutil.copytree(ROOT / "config", folder / "config")
    for name in ("workflow", "sim"):
        (folder / name).symlink_to(ROOT / name)
    edit(
        folder / "config/config.yaml",
        sites=["config/demo/sites/demo-1.yaml", "config/demo/sites/demo-2.yaml"],
        budget__epsilon=3.0,
        n_components=4,
        ica__n_rounds=6,
        data__n_subjects=3,
        data__n_volumes=60,
        data__voxel_size=12.0,
    )
    # Three people a site: the gate stops it, and the reason is the last line of all.
    done = run(folder, "snakemake", "--cores", "2")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.match("error: study demo: budget.epsilon: noise must not drown", last)
    assert not (folder / "private/demo-1/demo/projected.npz").exists()
    assert not list(folder.glob("private/*/ledger/releases/*"))
    edit(folder / "config/config.yaml", accept=ACCEPT)
    # Who does not know Snakemake reads nothing of it.
    done = run(folder, "capeneuro", "run", "config/config.yaml", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert {"prepare demo-1", "prepare demo-2", "pca", "ica", "report"} <= set(said)
    assert "pca (without noise, to compare)" in said
    assert said[-1] == "results/demo/report.html" and not done.stderr
    again = run(folder, "capeneuro", "run", "config/config.yaml", "--cores", "2")
    assert again.stdout == "all done before: results/demo/report.html\n"
    return folder


def jobs(folder: Path) -> set[str]:
    """Rules that a dry run would execute."""
    return planned(run(folder, "snakemake", "--cores", "2", "-n"))


def planned(done: subprocess.CompletedProcess) -> set[str]:
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return set(re.findall(r"^(?:local)?rule (\w+):", text, re.MULTILINE)) - {"all"}


@pytest.fixture
def changed(study):
    """The study file, restored afterwards."""
    path = study / "config/config.yaml"
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


def test_privacy_record_against_an_independent_accountant(study):
    record = json.loads((study / "results/demo/privacy.json").read_text())
    releases = record["releases"]
    assert [r["query"] for r in releases] == ["second_moment"] + ["infomax_skew"] * 6
    n_samples = 3 * 60
    for site in ("demo-1", "demo-2"):
        own = [r["sites"][site] for r in releases]
        assert own[0]["sensitivity"] == pytest.approx(2**0.5 / n_samples)
        assert own[1]["sensitivity"] == pytest.approx(2 * 2.5 / n_samples)
        mus = [release["mu"]["aggregator_and_colluders"] for release in own]
        events = [dp_event.GaussianDpEvent(1 / mu) for mu in mus]
        accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
        accountant.compose(dp_event.ComposedDpEvent(events))
        epsilon = accountant.get_epsilon(1e-5)
        views = record["sites"][site]
        spent = views["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(epsilon, rel=5e-3)
        assert spent == pytest.approx(record["promise"]["epsilon"], rel=1e-6)
        assert spent <= record["promise"]["epsilon"] * (1 + 1e-9)
        assert views["reader"]["gdp"] <= views["aggregator"]["gdp"] <= spent


def test_each_sites_ledger_holds_exactly_what_the_record_says(study):
    record = json.loads((study / "results/demo/privacy.json").read_text())
    for site in ("demo-1", "demo-2"):
        lines = (study / f"private/{site}/ledger/ledger.jsonl").read_text().splitlines()
        entries = [json.loads(json.loads(line)["entry"]) for line in lines]
        charged = [e["mu"] for e in entries if e["kind"] == "release"]
        own = [r["sites"][site] for r in record["releases"]]
        recorded = [r["mu"]["aggregator_and_colluders"] for r in own]
        np.testing.assert_allclose(charged, recorded, rtol=1e-12)


def test_outputs_are_those_of_the_contract(study):
    folder = study / "results/demo"
    names = {p.name for p in folder.iterdir()}
    assert names == CONTRACT
    maps = nib.load(folder / "group_desc-ica_components.nii.gz")
    assert maps.shape[3] == 4
    assert maps.get_data_dtype() == np.float32
    text = (folder / "report.html").read_text()
    assert "NOT PRIVATE: simulated data" in text
    assert "(3, 1e-05)-differentially private" in text


def test_a_run_leaves_no_process_behind(study):
    left = [p for p in Path("/proc").glob("*/cwd") if is_in(p, study)]
    assert not left


def is_in(link: Path, folder: Path) -> bool:
    try:
        return link.resolve() == folder
    except OSError:  # of another user
        return False


def test_a_dry_run_ends_with_what_it_would_release_and_what_is_paid(study, changed):
    done = run(study, "snakemake", "--cores", "1", "-n")
    assert planned(done) == set()  # nothing reruns where nothing changed
    said = done.stdout.splitlines()
    assert said[-1].startswith("accepted: noise of")
    paid = "demo-1, demo-2: 7 of 7 releases are paid and replayed"
    assert said[-2].startswith(paid)
    edit(changed, ica__n_rounds=9)
    done = run(study, "capeneuro", "run", "config/config.yaml", "-n")
    said = done.stdout.splitlines()
    assert re.match(r"would run: .*ica \(1\), .*report \(1\)$", said[0])
    assert len(said) < 25  # and nothing of Snakemake's own
    assert said[-2].startswith("demo-1, demo-2: 0 of 10 releases are paid and replayed")
    assert "other studies spent 3, with this one 4." in said[-2]


@pytest.mark.parametrize(
    ("gone", "anew"),
    [
        (["private/demo-1/demo/projected.npz"], {"prepare", "pca"}),
        (
            [f"private/_aggregator/demo/{n}.json" for n in ("sizes", "planned")],
            {"validate", "plan"},
        ),
    ],
)
def test_a_file_of_a_site_that_is_gone_is_made_anew_at_no_cost(
    study, tmp_path, gone, anew
):
    own = tmp_path / "study"
    shutil.copytree(study, own, symlinks=True)
    # Without its first result all is asked for again.
    for name in (*gone, "results/demo/group_desc-pca_subspace.npz"):
        (own / name).unlink()
    ledgers = [path.read_bytes() for path in sorted(own.glob("private/*/ledger/*l"))]
    done = run(own, "capeneuro", "run", "config/config.yaml", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    said = {line.split()[0] for line in done.stdout.splitlines() if line}
    assert anew <= said and all((own / name).is_file() for name in gone)
    assert ledgers == [
        path.read_bytes() for path in sorted(own.glob("private/*/ledger/*l"))
    ]


def test_a_refused_rerun_keeps_what_was_paid(study, changed):
    paid = study / "results/demo/group_desc-pca_subspace.npz"
    before = paid.read_bytes()
    # What would be refused later is refused first, and a dry run says so.
    edit(changed, budget__epsilon=2.5, accept=[])
    said = run(study, "snakemake", "--cores", "1", "-n").stdout.splitlines()[-1]
    assert said.startswith("error: study demo: budget.epsilon: noise must not drown")
    done = run(study, "capeneuro", "run", "config/config.yaml")
    assert done.returncode == 3 and "pca" not in done.stdout.splitlines()
    (line,) = done.stderr.splitlines()
    assert line == said
    assert paid.read_bytes() == before
    # Results keep the reason that they were released with.
    assert run(study, "capeneuro", "report", "config/config.yaml").returncode == 0
    record = json.loads((study / "results/demo/privacy.json").read_text())
    assert record["accepted"] == {"noise": ACCEPT[0]["reason"]}
    both = re.search(r"who does has epsilon (\S+) at", str(record["assumptions"]))
    twice = 2 * accounting.mu_from_epsilon(3.0, 1e-5)  # of the releases that there are
    expected = accounting.epsilon_from_mu(twice, 1e-5)
    assert float(both[1]) == pytest.approx(expected, rel=1e-2)
    # A step that fails restores what it would have replaced.
    edit(changed, budget__epsilon=3.0, accept=ACCEPT)
    ledger = study / "private/demo-2/ledger/ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:-20] + b"0" * 19 + b"\n")
    done = run(study, "snakemake", "--cores", "1", "--forcerun", "pca")
    ledger.write_bytes(whole)
    assert done.returncode == 1
    assert re.match("error: .*ledger", done.stderr.splitlines()[-1])
    assert paid.read_bytes() == before
    assert run(study, "snakemake", "--cores", "2").returncode == 0
    assert paid.read_bytes() == before


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("ica__clip", 3.0, {"ica", "reference_ica"}),
        ("budget__epsilon", 2.5, {"pca", "ica"}),
        # With another share of the budget for PCA.
        ("ica__independence", "spatial", {"pca", "ica"}),
        ("cleaning__detrend", False, {"prepare", "pca", "ica", "reference_pca"}),
        ("score__truth", None, {"score"}),
    ],
)
def test_a_changed_key_reruns_what_depends_on_it(study, changed, key, value, expected):
    edit(changed, **{key: value})
    found = jobs(study)
    assert expected <= found
    upstream = {"make_data", "validate", "prepare", "pca", "ica"}
    assert not (upstream & found) - expected
    done = run(study, "capeneuro", "run", "config/config.yaml", "-n")
    line = done.stdout.splitlines()[0]
    assert line.startswith("would run: ")
    assert set(re.findall(r"(\w+) \(", line)) == found


def test_overrides_on_the_command_line_are_refused(study):
    done = run(study, "snakemake", "--cores", "1", "-n", "--config", "study=other")
    assert done.returncode != 0
    assert "a study is one file" in done.stdout + done.stderr


def test_a_misspelled_key_stops_before_the_plan(study, changed):
    edit(changed, ica__n_round=3)
    done = run(study, "snakemake", "--cores", "1", "-n")
    assert done.returncode != 0
    assert "did you mean 'n_rounds'" in done.stdout + done.stderr


def test_no_shell_reads_the_name_of_a_study_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    Path(STUDY).rename(name := "$(touch read) & touch read;.yaml")
    given = ("--cores", "1", "--configfile", name)
    done = run(tmp_path, "snakemake", "validate", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("private/_logs/tiny/validate.log").exists()
    assert not Path("read").exists()
    done = run(tmp_path, "snakemake", "--dry-run", "--printshellcmds", *given)
    commands = re.findall(r"capeneuro \w+ .* --log", done.stdout)
    steps = {command.split()[1] for command in commands}
    assert steps >= {"plan", "prepare", "pca", "maps", "reconstruct", "score", "report"}
    assert all(f" '{name}' " in command for command in commands)


def test_lint_is_clean(study):
    done = run(study, "snakemake", "--lint")
    assert done.returncode == 0
    assert "good condition" in done.stdout + done.stderr


def test_a_killed_run_resumes_without_a_second_charge(study, changed):
    edit(changed, ica__n_rounds=120, study="killed")
    planned = run(study, "capeneuro", "plan", "config/config.yaml")
    assert planned.returncode == 0
    shutil.copytree(
        study / "results/demo", study / "results/killed", dirs_exist_ok=True
    )
    for site in ("demo-1", "demo-2"):
        shutil.copytree(
            study / f"private/{site}/demo", study / f"private/{site}/killed"
        )
    assert run(study, "capeneuro", "pca", "config/config.yaml").returncode == 0
    ledger = study / "private/demo-2/ledger/ledger.jsonl"

    def n_releases() -> int:
        return ledger.read_bytes().count(b'\\"kind\\": \\"release\\"')

    before = n_releases()
    command = [str(BIN / "capeneuro"), "ica", "config/config.yaml"]
    with subprocess.Popen(command, cwd=study, stderr=subprocess.DEVNULL) as process:
        while n_releases() < before + 15:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    killed_at = n_releases() - before
    assert 15 <= killed_at < 120
    assert run(study, "capeneuro", "ica", "config/config.yaml").returncode == 0
    assert n_releases() - before == 120
    first = (study / "results/killed/group_desc-ica_unmixing.npz").read_bytes()
    assert run(study, "capeneuro", "ica", "config/config.yaml").returncode == 0
    assert (study / "results/killed/group_desc-ica_unmixing.npz").read_bytes() == first
    assert n_releases() - before == 120


def test_the_cluster_profile_plans_a_job_per_site_with_its_own_resources(tmp_path):
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs extra `slurm`")
    for name in ("workflow", "config", "sim"):
        (tmp_path / name).symlink_to(ROOT / name)
    # `--cores`, as `capeneuro run` gives it, does not say what a job may have.
    profile = ("--workflow-profile", "workflow/profiles/slurm", "--cores", "2")
    done = run(tmp_path, "snakemake", "-n", "-p", *profile)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    jobs = re.findall(
        r"^rule (prepare|pca):\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL
    )
    assert [step for step, _ in jobs] == ["prepare"] * 4 + ["pca"]
    assert all("threads: 2" in lines for _, lines in jobs)
    assert len(re.findall(r"capeneuro (?:prepare|pca).*OMP_NUM_THREADS", text)) == 6
    assert len(re.findall(r"mem_mb=4000.*runtime=60", text)) >= 4
    # People of a site by several jobs, which are no more than may wait.
    by_parts = (*profile, "--config", "site_jobs=3", "--jobs")
    done = run(tmp_path, "snakemake", "-n", *by_parts, "12")
    text = done.stdout + done.stderr
    assert re.search(r"^prepare_part +12$", text, re.MULTILINE)
    for rule in ("prepare_part", "reconstruct_part"):
        assert len(re.findall(f"rule {rule}:", text)) == 12
    done = run(tmp_path, "snakemake", "-n", *by_parts, "11")
    assert "site_jobs: jobs of all 4 sites must be at most jobs: 11" in done.stdout


@pytest.mark.slow
def test_a_study_runs_on_a_cluster_of_one_machine(tmp_path):
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs extra `slurm`")
    for program in ("slurmctld", "slurmd", "munged"):
        if not (shutil.which(program) or Path("/usr/sbin", program).exists()):
            pytest.skip(f"needs {program} (see examples/slurm/cluster.sh)")
    for name in ("workflow", "sim", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    done = subprocess.run(
        ["examples/slurm/run.sh", "--configfile", "config/contrast/study.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{BIN}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "21 of 21 steps (100%) done" in said
    assert (tmp_path / "results/contrast/report.html").exists()
    # All but the smallest steps were jobs, and nothing is left running.
    assert len(re.findall("has been submitted with SLURM jobid", said)) > 10
    left = subprocess.run(["pgrep", "-f", "slurm-.*/munge"], capture_output=True)
    assert left.returncode == 1, left.stdout


def test_the_installed_package_carries_the_makers_of_data(tmp_path, monkeypatch):
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    carried = wheel["build"]["targets"]["wheel"]["force-include"]["sim"]
    shutil.copytree(ROOT / "sim", tmp_path / carried)
    package = SimpleNamespace(origin=str(tmp_path / "capeneuro/__init__.py"))
    monkeypatch.setattr(workflow, "find_spec", lambda name: package)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # Beside none, one's own, and once where it was done before.
    for own in ([], [str(ROOT)]):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(own))
        workflow.find_makers()
        workflow.find_makers()
        folders = os.environ["PYTHONPATH"].split(os.pathsep)
        assert folders == [*own, str((tmp_path / carried).parent)]
    monkeypatch.setenv("PYTHONPATH", folders[-1])
    code = "import sim; print(sim.__file__)"
    path = subprocess.check_output(
        [sys.executable, "-c", code], cwd=tmp_path, text=True
    )
    assert Path(path.strip()) == tmp_path / carried / "__init__.py"


# Of a study of two views: tests/studies/test_fusion.py.
KINDS = ["mixture", "topics", "regression", "network", "contrast"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_study_has_a_plan(tmp_path, name):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for part in ("workflow", "sim"):
        (tmp_path / part).symlink_to(ROOT / part)
    study = f"config/{name}/study.yaml"
    done = run(tmp_path, "snakemake", "-n", "--cores", "2", "--configfile", study)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^report +1$", done.stdout + done.stderr, re.MULTILINE)


def test_snakemake_that_is_interrupted_as_it_starts_is_silent(tmp_path):
    """`run` says the only line of it."""
    (tmp_path / "snakemake").mkdir()
    (tmp_path / "snakemake/__init__.py").touch()
    (tmp_path / "snakemake/cli.py").write_text(
        "import time\nprint(flush=True)\ntime.sleep(60)\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", workflow.SNAKEMAKE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        text=True,
    )
    started.stdout.readline()
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=30)[1] == ""
    assert started.returncode == 130
