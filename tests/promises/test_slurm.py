"""Studies on a real SLURM of one machine: equal to local ones, whatever goes wrong.

    python -m pytest -m slow -s tests/promises/test_slurm.py

prints how many seconds each run and each accident took.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tiny_study import ACCEPT
from workflows import BIN, ROOT, edit

from sim import networks

pytestmark = pytest.mark.slow
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PORT, PARTS = os.environ.get("SLURM_PORT", "17217"), 2
# Seconds that a job may take to do what is waited for, on a busy machine.
PATIENCE = 3600


class Cluster(NamedTuple):
    folder: Path
    environment: dict[str, str]
    started: list[subprocess.Popen]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def node(self) -> str:
        """State of the one node."""
        return self.run("sinfo", "--noheader", "--format=%T").strip()

    def state(self, job: str) -> str:
        return self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def start(self, folder: Path, *options: str) -> subprocess.Popen:
        """Start a study; its messages go to a file in its folder."""
        command = [str(BIN / "snakemake"), "--workflow-profile"]
        command += [str(ROOT / "workflow/profiles/slurm")]
        command += ["--config", f"site_jobs={PARTS}", *options]
        with open(folder / "messages.txt", "a") as messages:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=self.environment,
                stdout=messages,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        return process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs extra `slurm`")
    for program in PROGRAMS:
        if not (shutil.which(program) or Path("/usr/sbin", program).exists()):
            pytest.skip(f"needs {program} (see examples/slurm/cluster.sh)")
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    for parent in folder.parents:  # munge wants to see its socket's folders
        if parent.owner() == folder.parent.owner() and "pytest" in str(parent):
            parent.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{BIN}:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": str(ROOT),
        "SLURM_CONF": str(folder / "slurm.conf"),
        "SLURM_PORT": PORT,
        "SLURMD_TIMEOUT": "10",
        "OMP_NUM_THREADS": "1",
    }
    script = str(ROOT / "examples/slurm/cluster.sh")
    here = Cluster(folder, environment, [])
    try:
        print(here.run(script, "start", str(folder)))
        assert "idle" in here.node()
        yield here
    finally:
        for process in here.started:
            process.kill()
        here.run(script, "stop", str(folder))
        # A lost node's jobs live on: SLURM has no cgroups here that would end them.
        for pid in working_in(tmp_path_factory.getbasetemp()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def components(folder: Path, consortium: Path) -> str:
    config = folder / "config/config.yaml"
    sites = [f"config/demo/sites/demo-{k}.yaml" for k in (1, 2)]
    edit(config, sites=sites, budget__epsilon=3.0, n_components=4, ica__n_rounds=6)
    edit(config, data__n_subjects=6, data__n_volumes=60, data__voxel_size=12.0)
    edit(config, accept=ACCEPT)
    return "config/config.yaml"


def contrast(folder: Path, consortium: Path) -> str:
    config = folder / "config/contrast/study.yaml"
    sites = [f"config/contrast/sites/contrast-{k}.yaml" for k in (1, 2, 3)]
    edit(config, sites=sites, accept=ACCEPT, data__n_subjects=60)
    return "config/contrast/study.yaml"


def named_networks(folder: Path, consortium: Path) -> str:
    shutil.rmtree(folder / "config")
    shutil.copytree(consortium, folder / "people")
    template = "people/template.nii.gz"
    command = [sys.executable, "-m", "capeneuro", "init", "new", "--kind", "networks"]
    command += ["--template", template, "--data", "simulated", "--from"]
    command += [f"people/site-{k}" for k in (1, 2)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    shutil.move(folder / "new/config", folder / "config")
    for path in (folder / "config").rglob("*.yaml"):
        path.write_text(path.read_text().replace("../people", "people"))
    return "config/config.yaml"


class Local(NamedTuple):
    """A study that has run on this machine, and its folder of before."""

    study: str
    new: Path
    files: dict[str, str]
    charged: dict[str, int]


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Callable[[Callable], Local]:
    """Runs a study on this machine, once."""
    consortium = tmp_path_factory.mktemp("consortium")
    networks.write(consortium, 24, 2, 60, seed=1, voxel_size=12.0)
    done: dict[str, Local] = {}

    def run_here(make: Callable) -> Local:
        if make.__name__ not in done:
            new = tmp_path_factory.mktemp(make.__name__)
            shutil.copytree(ROOT / "config", new / "config")
            for name in ("workflow", "sim"):
                (new / name).symlink_to(ROOT / name)
            study = make(new, consortium)
            content = yaml.safe_load((new / study).read_text())
            for k, path in enumerate(content["sites"]):
                edit(new / path, seed=k, ledger=f"private/{Path(path).stem}/ledger")
            folder = new.with_name(f"{new.name}-local")
            shutil.copytree(new, folder, symlinks=True)
            command = [str(BIN / "snakemake"), "--cores", "2", "--configfile", study]
            start = time.monotonic()
            process = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            assert process.returncode == 0, process.stdout + process.stderr
            tell(f"{make.__name__} here", start)
            done[make.__name__] = Local(study, new, files_of(folder), charged(folder))
        return done[make.__name__]

    return run_here


def tell(event: str, start: float) -> None:
    print(f"\n{time.monotonic() - start:6.1f} s  {event}", flush=True)


# Folders of a site that differ between runs: who took how long, and was charged when.
APART = {"logs", "settings", "ledger", "prepare-people"}


def files_of(folder: Path) -> dict[str, str]:
    """Digests of what a study wrote: results, and sites' own files."""
    paths = [*folder.glob("results/**/*"), *folder.glob("private/[!_]*/*/**/*")]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file() and not APART & {*path.parts}
    }


def charged(folder: Path) -> dict[str, int]:
    """Numbers of releases in the ledgers of the sites."""
    kind = b'\\"kind\\": \\"release\\"'
    return {
        path.parts[-3]: path.read_bytes().count(kind)
        for path in folder.glob("private/*/ledger/ledger.jsonl")
    }


def wait_for(condition: Callable[[], object], process: subprocess.Popen) -> object:
    """What a condition returns once it holds, while a study runs."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    return value


def working_in(folder: Path) -> list[int]:
    """Processes whose working directory is in a folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if Path(os.readlink(path / "cwd")).is_relative_to(folder):
                pids.append(int(path.name))
    return pids


def processes(folder: Path, step: str) -> list[int]:
    """Processes of a step of the study in a folder, and of no other one."""
    pids = []
    for pid in working_in(folder):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if len(words) > 1 and words[1].endswith("/capeneuro") and step in words:
                pids.append(pid)
    return pids


def jobs(folder: Path, rule: str) -> list[str]:
    """SLURM's numbers of the jobs of a rule, the last one last."""
    text = (folder / "messages.txt").read_text()
    return re.findall(rf"SLURM jobid (\d+) \(log: \S+/rule_{rule}/", text)


@pytest.mark.parametrize("make", [components, contrast, named_networks])
def test_a_study_on_slurm_equals_a_local_one(make, cluster, local, tmp_path):
    here = local(make)
    folder = shutil.copytree(here.new, tmp_path / "study", symlinks=True)
    start = time.monotonic()
    process = cluster.start(folder, "--configfile", here.study)
    assert process.wait() == 0, (folder / "messages.txt").read_text()
    tell(f"{make.__name__} by SLURM, {len(jobs(folder, '.*?'))} jobs", start)
    assert files_of(folder) == here.files
    assert charged(folder) == here.charged
    assert all(here.charged.values())


def cancel(cluster: Cluster, job: str, pids: list[int]) -> None:
    """scancel"""
    cluster.run("scancel", job)


def kill(cluster: Cluster, job: str, pids: list[int]) -> None:
    """kill -9 of the job's processes"""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def lose_node(cluster: Cluster, job: str, pids: list[int]) -> None:
    """the node set DOWN, and RESUMEd after 20 s"""
    name = cluster.run("hostname", "-s").strip()
    update = ["scontrol", "update", f"NodeName={name}"]
    # Its jobs end at once; it may itself be back when slurmd next reports.
    cluster.run(*update, "State=DOWN", "Reason=trial")
    time.sleep(20)
    cluster.run(*update, "State=RESUME")


def kill_slurmd(cluster: Cluster, job: str, pids: list[int]) -> None:
    """kill -9 of the node's slurmd, whose job goes on; started again after 40 s"""
    for pid in pids:  # or it may be done before SLURM misses its node
        os.kill(pid, signal.SIGSTOP)
    os.kill(int((cluster.folder / "slurmd.pid").read_text()), signal.SIGKILL)
    time.sleep(40)
    assert "down" in cluster.node()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    cluster.run("slurmd")


def hang(cluster: Cluster, job: str, pids: list[int]) -> None:
    """stopped, until a time limit of 1 minute strikes"""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")


ACCIDENTS = {
    cancel: "CANCELLED",
    kill: "FAILED",
    lose_node: "NODE_FAIL",
    kill_slurmd: "NODE_FAIL",
    hang: "TIMEOUT",
}


def test_a_site_is_prepared_whatever_happens_to_its_jobs(cluster, local, tmp_path):
    here = local(named_networks)
    folder = shutil.copytree(here.new, tmp_path / "study", symlinks=True)
    start = time.monotonic()
    process = cluster.start(folder, "--configfile", here.study, "--retries", "5")
    injured: list[str] = []

    def stored() -> set[Path]:
        return {*folder.glob("private/*/*/prepare-people/*.npz")}

    def working() -> tuple[str, list[int]] | None:
        """A job that has stored somebody since, with people left to prepare."""
        pids = processes(folder, "--part")
        states = cluster.run("squeue", "-h", "-r", "-t", "R", "-o", "%i %k")
        rows = re.findall(r"^(\S+) rule_prepare_part", states, re.MULTILINE)
        running = [job for job in rows if job not in injured]
        return (running[0], pids) if pids and running and stored() - before else None

    for accident, state in ACCIDENTS.items():
        before = stored()
        job, pids = wait_for(working, process)
        began, n_before = time.monotonic(), len(stored())
        accident(cluster, job, pids)
        injured.append(job)
        wait_for(
            lambda job=job: cluster.state(job) not in ("RUNNING", "COMPLETING"), process
        )
        assert cluster.state(job) == state
        tell(f"{accident.__doc__}: {state}; {n_before} people were stored", began)
    assert process.wait() == 0, (folder / "messages.txt").read_text()
    tell(f"named_networks by SLURM with {len(ACCIDENTS)} accidents", start)
    assert files_of(folder) == here.files
    assert charged(folder) == here.charged


@pytest.mark.parametrize("accident", [cancel, lose_node])
def test_a_release_is_never_started_again_by_itself(accident, cluster, local, tmp_path):
    here = local(components)
    folder = shutil.copytree(here.new, tmp_path / "study", symlinks=True)
    process = cluster.start(folder, "--configfile", here.study, "--retries", "5")

    def releasing() -> list[int] | None:
        pids = processes(folder, "ica")
        return pids if sum(charged(folder).values()) > 2 else None  # of `pca` two

    pids = wait_for(releasing, process)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    accident(cluster, jobs(folder, "ica")[-1], pids)
    assert process.wait() == 1
    tell(f"release, {accident.__doc__}: snakemake ended", began)
    text = (folder / "messages.txt").read_text()
    assert len(jobs(folder, "ica")) == 1
    assert "the same command goes on" in text.splitlines()[-1]
    began = time.monotonic()
    process = cluster.start(folder, "--configfile", here.study)
    assert process.wait() == 0, (folder / "messages.txt").read_text()
    tell("the same command again", began)
    assert files_of(folder) == here.files
    assert charged(folder) == here.charged
