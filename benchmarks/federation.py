"""A study over FLARE against the same study in one process, and the engine alone.

    PYTHONPATH=. .venv/bin/python benchmarks/federation.py [folder]

Four sites as processes over loopback mutual TLS; 400 features, 20 components, 30 rounds
of ICA. Prints whether the released arrays are those of one process to the last bit, the
time of a round, what its exchanges cost bare with the same bytes, what the sites worked
in it, and the memory of a site's processes. Needs the extra `federated`; a minute.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import nibabel as nib
import numpy as np
import psutil
import yaml

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.flare import controller, daemon, kit, parties
from capeneuro.flare import running as studies
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files
from capeneuro.studies.components import SUBSPACE, UNMIXING, ComponentsKind

sys.path.append(str(Path(__file__).parents[1] / "tests" / "tools"))
from parties import free_port, join_all

SITES, D, R, ROUNDS = ("a", "b", "c", "d"), 400, 20, 30
PEOPLE, VOLUMES = 20, 250  # of a site, and of a person
STUDY, MASK = "config.yaml", "mask.nii.gz"
EXCHANGES = ("release",)
LINE = re.compile(
    r"^(\S+ \S+) - .*? (\w+) (\w+): (\d+) bytes, (\d+) back, ([\d.]+) s", re.M
)
WORK = re.compile(r"(\w+): answered in ([\d.]+) s")


def write(root: Path) -> None:
    """Every party's folder, and one with all sites."""
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((D, R)) / D**0.5
    study = {
        "study": "bench",
        "federation": "nvflare",
        "sites": [f"{name}.yaml" for name in SITES],
        "space": {"mask": MASK, "basis": "voxels"},
        "cleaning": {"standardize": "none"},
        "n_components": R,
        "aggregator": "independent",
        "arm": "cape",
        "expected": {"people": PEOPLE * len(SITES), "volumes": VOLUMES},
        "accept": [{"rule": "noise", "reason": "the time of a round is measured"}],
        "budget": {
            "epsilon": 8.0,
            "delta": 1e-5,
            "unit": "sample",
            "relation": "replace-one",
        },
        "pca": {"norm_bound": 5.0},
        "ica": {"n_rounds": ROUNDS},
    }
    for folder in (*SITES, "together", "aggregator"):
        (root / folder).mkdir(parents=True)
        nib.save(
            nib.Nifti1Image(np.ones((D, 1, 1), "u1"), np.eye(4)), root / folder / MASK
        )
        (root / folder / STUDY).write_text(yaml.safe_dump(study))
    for name in SITES:
        site = {
            "name": name,
            "images": f"images-{name}",
            "data": "simulated",
            "epsilon": 10.0,
            "delta": 1e-5,
            "unit": "sample",
            "ledger": f"ledger-{name}",
            "seed": 1,
        }
        people = {}
        for i in range(PEOPLE):
            S = rng.laplace(size=(R, VOLUMES))
            X = maps @ S + 0.02 * rng.standard_normal((D, VOLUMES))
            people[f"{name}{i}"] = X.astype("f4")
        for folder in (name, "together"):
            (root / folder / f"{name}.yaml").write_text(yaml.safe_dump(site))
            path = root / folder / "private" / name / "bench" / "projected.npz"
            with contextlib.chdir(root / folder):
                layout = registry.of(load.load_study(STUDY)).layout
            files.write_features(path, people.items(), layout)


def in_process(folder: Path) -> float:
    """Run the study in this process; seconds of a round of ICA."""
    with contextlib.chdir(folder):
        study = load.load_study(STUDY)
        sites = site_files.load_sites(study)
        ComponentsKind(study).release("pca", sites)
        start = time.perf_counter()
        ComponentsKind(study).release("ica", sites)
        return (time.perf_counter() - start) / ROUNDS


# Of the aggregator's job.
LOG = "aggregator/private/_aggregator/bench/server.log"
# Studies that run with kits here.
LISTED = contextlib.ExitStack()


def start(
    root: Path, port: int, proxies: dict[str, int] | None = None
) -> dict[str, daemon.Process]:
    """Make kits, allow the echo in them, and start all processes.

    ``proxies`` are ports by which some sites reach the server.
    """
    with contextlib.chdir(root / "together"):
        kit.init(
            load.load_study(STUDY), root / "kits", "localhost", port, is_local=True
        )
    join_all(root, SITES)
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    running = {}
    for name in ("server", *SITES):
        own = root / "kits" / name / "kit"
        path = own / "local/resources.json"
        resources = json.loads(path.read_text())
        resources["class_allow_list"].append("federation_echo.")
        path.write_text(json.dumps(resources))
        if name in (proxies or {}):
            path = own / "startup/fed_client.json"
            text = path.read_text().replace(f":{port}", f":{proxies[name]}")
            path.write_text(text)
        folder = root / ("aggregator" if name == "server" else name)
        with contextlib.chdir(folder):
            list_study(own, name)
            running[name] = daemon.Process(own)
            running[name].keep()
    return running


def list_study(kit_folder: Path, name: str) -> None:
    """List the study of the working directory as running with a party's kit."""
    study = load.load_study(STUDY)
    run = studies.run_of(study.identity, Path(STUDY), "", name)
    LISTED.enter_context(studies.listed(kit_folder, run))()


def submit(root: Path, job: Path, done, seconds: float) -> None:
    """Submit a job with the lead's kit and wait until it is done."""
    end = time.monotonic() + seconds
    with controller.session(root / "kits/lead/kit", 10.0) as lead:
        while len(lead.get_system_info().client_info) < len(SITES):
            assert time.monotonic() < end, "sites did not register"
            time.sleep(0.2)
        identity = lead.submit_job(str(job))
        while not done():
            assert time.monotonic() < end, "the job did not end"
            assert not str(lead.get_job_status(identity)).endswith("ABNORMAL")
            time.sleep(0.2)
        while not str(lead.get_job_status(identity)).startswith(parties.ENDED):
            time.sleep(0.2)


def study_job(root: Path) -> None:
    """Run the study; its status file says when it is done."""
    with contextlib.chdir(root / "aggregator"):
        study = load.load_study(STUDY)
        options = {"job": "1", "segment": 1000, "timeout": 60.0, "patience": 60.0}
        parties.write_job(root / "job", study, options)
        status = site_files.status_file(study).resolve()

    def done() -> bool:
        told = json.loads(status.read_text()) if status.exists() else {"state": ""}
        assert told["state"] not in ("failed", "lost"), told
        return told["state"] == "finished"

    submit(root, root / "job", done, 120.0)


def echo_job(
    root: Path, exchanges: list[dict[str, list[int]]], within: float = 120.0
) -> list[float]:
    """Seconds of each exchange with sites that do nothing."""
    files.write_json(root / "exchanges.json", exchanges)
    results = root / "seconds.json"
    job = root / "echo"
    shutil.copytree(root / "job", job)
    path = job / "app/config/config_fed_server.json"
    content = json.loads(path.read_text())
    arguments = {"exchanges": str(root / "exchanges.json"), "results": str(results)}
    content["workflows"][0] |= {
        "path": "federation_echo.EchoController",
        "args": arguments,
    }
    files.write_json(path, content)
    path = job / "app/config/config_fed_client.json"
    content = json.loads(path.read_text())
    content["executors"][0]["executor"]["path"] = "federation_echo.EchoExecutor"
    files.write_json(path, content)
    submit(root, job, results.exists, within)
    return json.loads(results.read_text())


def watch_memory(running: dict[str, daemon.Process], peaks: dict[str, float]) -> None:
    """Keep the peak of each party's processes in MiB (proportional set size)."""
    while running:
        for name, party in list(running.items()):
            with contextlib.suppress(psutil.Error, AttributeError):
                process = party._process
                below = [process, *process.children(recursive=True)]
                used = sum(p.memory_full_info().pss for p in below) / 2**20
                peaks[name] = max(peaks.get(name, 0.0), used)
        time.sleep(0.5)


def main(root: Path) -> None:
    """Run all three and print."""
    write(root)
    alone = in_process(root / "together")
    running, peaks = start(root, free_port()), {}
    watcher = threading.Thread(target=watch_memory, args=(running, peaks))
    watcher.start()
    try:
        study_job(root)
        rows = LINE.findall((root / LOG).read_text())
        sizes = [
            {r[2]: [int(r[3]), int(r[4])] for r in rows[i : i + len(SITES)]}
            for i in range(0, len(rows), len(SITES))
        ]
        first = max(i for i, r in enumerate(rows) if r[1] == "project") + 1
        ends = [
            datetime.strptime(r[0], "%Y-%m-%d %H:%M:%S,%f").timestamp()
            for r in rows[first - 1 :]
        ]
        per_round = len(SITES) * len(EXCHANGES)
        seconds = np.diff(ends[::per_round])
        bare = echo_job(root, sizes[first // len(SITES) :])
    finally:
        parts = list(running.values())
        running.clear()
        watcher.join()
        for part in parts:
            part.stop()
        LISTED.close()
    bare = np.reshape(bare, (-1, len(EXCHANGES))).sum(axis=1)
    worked = []
    for name in SITES:
        found = WORK.findall((root / name / "log").read_text())
        found = [float(s) for what, s in found if what in EXCHANGES]
        worked.append(np.reshape(found, (-1, len(EXCHANGES)))[-ROUNDS:].sum(axis=1))
    for name in (SUBSPACE, UNMIXING):
        a, b = (
            files.read_arrays(root / folder / "results/bench" / name)
            for folder in ("together", "aggregator")
        )
        other = [k for k in a if not np.array_equal(a[k], b[k], a[k].dtype.kind == "f")]
        print(f"{name}: {'DIFFERENT: ' + ', '.join(other) if other else 'bit-equal'}")
    work, whole, alone_bare = np.median(worked), np.median(seconds), np.median(bare)
    carried = sum(sum(pair) for e in sizes[-len(EXCHANGES) :] for pair in e.values())
    print(f"rounds of ICA: {len(seconds)}, bytes of a round: {carried}")
    print(f"a round over FLARE: {whole:.3f} s (median)")
    print(f"a site's work in it: {work:.3f} s")
    print(f"its exchange bare: {alone_bare:.3f} s")
    print(f"ratio without the sites' work: {(whole - work) / alone_bare:.2f}")
    print(f"a round in one process: {alone:.3f} s")
    for name, peak in sorted(peaks.items()):
        print(f"memory of {name}'s processes, peak: {peak:.0f} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
