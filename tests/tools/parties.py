"""A federation on this machine: parties in folders of their own, processes to kill."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from tiny_study import ACCEPT, STUDY, command, edit, write_study

from capeneuro.config import load
from capeneuro.flare import joining, kit
from capeneuro.studies import components

BIN = Path(sys.executable).parent
SITES = ("site-0", "site-1", "site-2")
SECOND = "second.yaml"
# What commands say, by study file.
OUT = {STUDY: "out.txt", SECOND: "second.txt"}
RESULTS = (components.SUBSPACE, components.UNMIXING)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_parties(
    root: Path,
    n_rounds: int,
    names=SITES,
    prior: bool = False,
    spatial: bool = False,
    federation: str = "nvflare",
    is_run: bool = True,
    **keys: object,
) -> None:
    """The tiny study: all of it in ``root/together``, and each party's part beside it.

    Together, its steps run in this process; noise is fixed, so the results must be
    the same to the last bit wherever the sites work; unless ``is_run``, nothing is run
    together. ``keys`` of its budget; with
    ``spatial`` one second moment is all that is released; with ``prior`` it starts
    from what these very people tell.
    """
    together = root / "together"
    together.mkdir(parents=True)
    with contextlib.chdir(together):
        write_study(together, len(names))
        for name in names:
            edit(f"{name}.yaml", "seed", 5)
        for key, value in keys.items():
            edit(STUDY, f"budget.{key}", value)
        edit(STUDY, "federation", federation)
        edit(STUDY, "expected", {"people": 2 * len(names), "volumes": 12})
        edit(STUDY, "score.reference", False)
        edit(STUDY, "ica.n_rounds", n_rounds)
        if spatial or prior:
            edit(STUDY, "ica", {"independence": "spatial"})
        if prior:
            about = "--out", "prior.npz", "--source", "these people"
            assert command("prior", STUDY, *about) == 0
            said = {"file": "prior.npz", "source": "these very people"}
            edit(STUDY, "prior", said)
            edit(STUDY, "accept", [*ACCEPT, {**ACCEPT[0], "rule": "gain"}])
        assert command("validate", STUDY) == 0
        for name in names:
            assert command("prepare", STUDY, "--site", name) == 0
        for name in names:
            own = root / name
            (own / "private").mkdir(parents=True)
            shutil.copy(STUDY, own)
            shutil.copy(f"{name}.yaml", own)
            shutil.copytree(f"private/{name}", own / "private" / name)
            shutil.rmtree(own / "private" / name / "ledger", ignore_errors=True)
        (root / "aggregator").mkdir(parents=True)
        shutil.copy(STUDY, root / "aggregator")
        for party in ("aggregator", *names):
            (root / party / "data").mkdir()
            shutil.copy("data/mask.nii.gz", root / party / "data")
        shutil.copy("data/truth.nii.gz", root / "aggregator/data")
        for party in ("aggregator", *names) if prior else ():
            shutil.copy("prior.npz", root / party)
        join_all(root, names)
        for step in ("pca", "ica") if is_run else ():
            assert command(step, STUDY) == 0


def write_second(root: Path, n_rounds: int, **keys: object) -> None:
    """A second study of the same people, in the same folders; ``keys`` of its file."""
    together = root / "together"
    with contextlib.chdir(together):
        shutil.copy(STUDY, SECOND)
        edit(SECOND, "study", "second")
        edit(SECOND, "ica.n_rounds", n_rounds)
        for key, value in keys.items():
            edit(SECOND, key, value)
        assert command("validate", SECOND) == 0
        for name in SITES:
            assert command("prepare", SECOND, "--site", name) == 0
            own = Path("private", name, "second")
            shutil.copytree(own, root / name / own)
        for party in ("aggregator", *SITES):
            shutil.copy(SECOND, root / party)
        join_all(root, path=SECOND)
        assert command("pca", SECOND) == 0
        assert command("ica", SECOND) == 0


def join_all(root: Path, sites=SITES, path: str = STUDY) -> None:
    """The joining ceremony, where every party's folder is on this machine."""
    entries, approvals, hub = [], [], root / "aggregator"
    for name in sites:
        with contextlib.chdir(root / name):
            contact = f"Institute {name}", f"dpo@{name}.example"
            study = load.load_study(path)
            entry = joining.enter(study, name, *contact)
            joining.note_study_file(study, name, Path(path))
            entries.append(root / name / entry)
    with contextlib.chdir(hub):
        manifest = joining.assemble(load.load_study(path), entries)
    for name in sites:
        with contextlib.chdir(root / name):
            signed = hub / "manifest.json", manifest.fingerprint
            approval = joining.approve(load.load_study(path), name, *signed)
            approvals.append(root / name / approval)
    with contextlib.chdir(hub):
        joining.collect(load.load_study(path), approvals)


def make_kits(folder: Path, port: int) -> None:
    """Kits of the sites, the server and the lead, made by FLARE."""
    with contextlib.chdir(folder):
        kit.init(
            load.load_study(STUDY), folder / "kits", "localhost", port, is_local=True
        )


@contextlib.contextmanager
def running(
    folder: Path, *arguments: str, out: str = "out.txt", **variables: str
) -> Iterator[psutil.Popen]:
    """A command in a party's folder; it and all below it are dead afterwards."""
    with open(folder / out, "ab") as out:
        process = psutil.Popen(
            [str(BIN / "capeneuro"), *arguments],
            cwd=folder,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: psutil.Process) -> None:
    """Kill a process and all below it, without a chance to tidy up."""
    with contextlib.suppress(psutil.NoSuchProcess):
        everyone = [process, *process.children(recursive=True)]
        for one in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(everyone, 10)


def processes(kits: Path, party: str) -> list[psutil.Process]:
    """FLARE's process of a party, which nobody's command is the parent of."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            is_job = any("process" in word for word in line[:4])
            if str(kits / party / "kit") in line and "-s" in line and not is_job:
                found.append(process)
    return found


def site(
    root: Path,
    kits: Path,
    name: str,
    *more: str,
    study: str = STUDY,
    **variables: str,
) -> contextlib.AbstractContextManager:
    own = str(kits / name / "kit")
    arguments = ("site", study, "--site", name, "--kit", own, *more)
    return running(root / name, *arguments, out=OUT[study], **variables)


def aggregate(
    root: Path,
    kits: Path,
    study: str = STUDY,
    variables: dict | None = None,
    **options: float,
):
    given = [str(x) for k, v in options.items() for x in (f"--{k}", v)]
    servers = ["--kit", kits / "server/kit", "--lead", kits / "lead/kit"]
    arguments = ("aggregate", study, *map(str, servers), *given)
    own = variables or {}
    return running(root / "aggregator", *arguments, out=OUT[study], **own)


def said(folder: Path, study: str = STUDY) -> str:
    return (folder / OUT[study]).read_text()


def wait_for(condition, seconds: float, what: str) -> None:
    """Wait until something holds; the test fails after so long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


def charged(root: Path, party: str, name: str = "", study: str = "") -> list[dict]:
    """Releases in the ledger of a site, by default the party's own and of any study."""
    path = root / party / "private" / (name or party) / "ledger" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    entries = [json.loads(json.loads(line)["entry"]) for line in whole]
    releases = [entry for entry in entries if entry["kind"] == "release"]
    return [entry for entry in releases if entry["study"].startswith(study)]


def n_charged(root: Path, party: str, name: str = "", study: str = "") -> int:
    """Number of releases in the ledger of a site; see :func:`charged`."""
    return len(charged(root, party, name, study))


def assert_same_results(root: Path, study: str = "tiny") -> None:
    """Released files over the network are those of one process, to the last bit."""
    for name in RESULTS:
        here = root / "aggregator/results" / study / name
        there = root / "together/results" / study / name
        assert here.read_bytes() == there.read_bytes(), name


def assert_nothing_runs(kits: Path) -> None:
    """No process has a kit's folder in its command."""

    def left() -> list[str]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if str(kits) in line and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(line)
        return found

    wait_for(lambda: not left(), 20, "processes end")
