"""A study of whole brains over lines of a given rate: no healthy site is lost.

    PYTHONPATH=. .venv/bin/python benchmarks/slow_line.py [bytes a second ...]
    ... slow_line.py --jobs 1e7          # each release in a job of its own

Three sites as processes over mutual TLS; 60,000 voxels, six directions, two rounds of
power iteration: answers of some 6 MB, with ``--directions 40`` of 38. One site's line
has each of the rates, default 100 kB/s and 1 MB/s, both ways, by a proxy between it and
the server. Prints whether the released arrays are those of one process to the last bit,
sites that were left out, the seconds that the study took, and what passed the proxy.
Needs the extra `federated`.
With ``--jobs`` a job ends after each release, so that its sites are projected again.
"""

import argparse
import contextlib
import json
import re
import socket
import tempfile
import time
from functools import partial
from pathlib import Path

import federation
import nibabel as nib
import numpy as np
import yaml
from proxy import Proxy

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.flare import parties
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files
from capeneuro.studies.components import SUBSPACE, ComponentsKind

SITES, D, R, SLOW = ("a", "b", "c"), 60_000, 3, "a"
STUDY = federation.STUDY


def write(root: Path) -> None:
    """Every party's folder, and one with all sites, of whole brains."""
    federation.SITES, federation.D, federation.R = SITES, 4, 2
    federation.write(root)
    study = yaml.safe_load((root / "together" / STUDY).read_text())
    study["n_components"] = R
    study["pca"] = {"norm_bound": 60.0, "method": "power", "n_iterations": 2}
    study["ica"] = {"n_rounds": 1}
    mask = nib.Nifti1Image(np.ones((D, 1, 1), "u1"), np.eye(4))
    rng = np.random.default_rng(1)
    maps = rng.standard_normal((D, R))
    for folder in (*SITES, "together", "aggregator"):
        nib.save(mask, root / folder / federation.MASK)
        (root / folder / STUDY).write_text(yaml.safe_dump(study))
    for name in SITES:
        people = {
            f"{name}{i}": (
                maps @ rng.laplace(size=(R, 30)) * 0.2 + rng.standard_normal((D, 30))
            ).astype("f4")
            for i in range(2)
        }
        for folder in (name, "together"):
            path = root / folder / "private" / name / "bench" / "projected.npz"
            with contextlib.chdir(root / folder):
                layout = registry.of(load.load_study(STUDY)).layout
            files.write_features(path, people.items(), layout)


def over(root: Path, rate: float, segment: int) -> list[str]:
    """Run the study with one slow line; a row of the table."""
    with contextlib.chdir(root / "together"):
        study = load.load_study(STUDY)
        ComponentsKind(study).release("pca", site_files.load_sites(study))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    proxy = Proxy(port, rate=rate)
    running = federation.start(root, port, {SLOW: proxy.port})
    log = root / federation.LOG
    try:
        start = time.monotonic()
        state, number = "over", 0
        while state != "finished":
            number += 1
            with contextlib.chdir(root / "aggregator"):
                options = {"job": str(number), "segment": segment}
                options |= {"timeout": 600.0, "patience": 120.0}
                job = root / f"job{number}"
                parties.write_job(job, load.load_study(STUDY), options)
                status = site_files.status_file(load.load_study(STUDY)).resolve()
            done = partial(_is_done, status, str(number))
            federation.submit(root, job, done, 1800.0)
            state = json.loads(status.read_text())["state"]
        seconds = time.monotonic() - start
    finally:
        for party in running.values():
            party.stop()
        federation.LISTED.close()
    equal = [
        files.read_arrays(root / folder / "results/bench" / SUBSPACE)["eigenvectors"]
        for folder in ("together", "aggregator")
    ]
    lost = re.findall(r"process is gone|no answer in time", log.read_text())
    megabytes = [f"{proxy.passed[way] / 1e6:.1f}" for way in ("up", "down")]
    is_equal = str(np.array_equal(*equal))
    return [f"{rate:g}", is_equal, str(len(lost)), f"{seconds:.0f}", *megabytes]


def _is_done(status: Path, job: str) -> bool:
    """Whether a job has ended; a study that failed ends the benchmark."""
    content = json.loads(status.read_text()) if status.exists() else {"job": ""}
    if content["job"] != job:
        return False
    assert content["state"] not in ("failed", "lost"), content
    return content["state"] in ("finished", "over")


def main() -> None:
    """Print the table."""
    global R
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rates", nargs="*", type=float, default=[1e5, 1e6])
    parser.add_argument("--directions", type=int, default=2 * R)
    parser.add_argument("--jobs", action="store_true")
    arguments = parser.parse_args()
    R, segment = arguments.directions // 2, 1 if arguments.jobs else 1000
    print("bytes/s equal lost seconds up/MB down/MB")
    for rate in arguments.rates:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            print(*over(Path(folder), rate, segment), flush=True)


if __name__ == "__main__":
    main()
