"""Many sites at one hub: a study over FLARE with 25 to 200 sites on one machine.

    PYTHONPATH=. .venv/bin/python benchmarks/many_sites.py [sites ...] [--large]

The hub is real: the loop of `capeneuro aggregate`, FLARE's server and its job process,
mutual TLS. Sites are light, forks of one process (:mod:`light_sites`), with real gates,
ledgers and certificates. 100 features, five components, ten rounds; with ``--large``
60,000 voxels x 40 directions. Prints seconds until all sites have registered and of a
round, beside its bare exchange; sites that were lost; whether released arrays are those
of one process; the hub's memory and processors. ``--prepare`` writes the parties'
folders into ``--folder`` and starts nothing. Needs the extra `federated`.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import federation
import light_sites
import numpy as np
import psutil
import slow_line
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from parties import processes

from capeneuro import warm
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.flare import controller, daemon, kit, parties
from capeneuro.flare import running as studies
from capeneuro.flare.heartbeat import BEAT, pace
from capeneuro.studies import sites as site_files
from capeneuro.studies.components import SUBSPACE, UNMIXING

STUDY = federation.STUDY
# Sites that start at a time: on one machine more of them would keep FLARE's clients
# from connecting in the 10 s after which they end.
STARTING = 8


# --- kits ----------------------------------------------------------------------------


def make_kits(root: Path, port: int) -> None:
    """Make the server's, the lead's and one site's kit by FLARE, the others like it."""
    first, *others = federation.SITES
    few = SimpleNamespace(study="bench", site_names=(first,))
    kit.init(few, root / "kits", "localhost", port, is_local=True)
    for name in ("server", first):
        path = root / "kits" / name / "kit/local/resources.json"
        resources = json.loads(path.read_text())
        resources["class_allow_list"].append("federation_echo.")
        path.write_text(json.dumps(resources))
    for name in others:
        like(root / "kits", first, name)


def like(kits: Path, first: str, name: str) -> None:
    """Copy a site's kit for another site, with a key and certificate of its own."""
    made = kits / name / "kit"
    shutil.copytree(kits / first / "kit", made)
    path = made / "startup/fed_client.json"
    path.write_text(path.read_text().replace(f'"{first}"', f'"{name}"'))
    key = rsa.generate_private_key(65537, 2048)
    old = x509.load_pem_x509_certificate((made / "startup/client.crt").read_bytes())
    owner = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}
    subject = [
        x509.NameAttribute(part.oid, name if part.oid in owner else part.value)
        for part in old.subject
    ]
    authority = serialization.load_pem_private_key(
        (kits / "ca/rootCA.key").read_bytes(), None
    )
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(old.issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
    )
    for extension in old.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            value = x509.SubjectAlternativeName([x509.DNSName(name)])
        elif isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(value, extension.critical)
    certificate = builder.sign(authority, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.TraditionalOpenSSL
    plain = serialization.NoEncryption()
    (made / "startup/client.key").write_bytes(key.private_bytes(pem, form, plain))
    (made / "startup/client.crt").write_bytes(certificate.public_bytes(pem))


# --- one size ------------------------------------------------------------------------


def prepare(root: Path, is_large: bool) -> None:
    """Write all parties' folders, run the study in one process, and let all join."""
    start = time.perf_counter()
    if is_large:
        slow_line.SITES, slow_line.R = federation.SITES, 20  # 40 directions
        slow_line.write(root)
    else:
        federation.write(root)
    few = not is_large or len(federation.SITES) <= 10
    alone = federation.in_process(root / "together") if few else np.nan
    make_kits(root, federation.free_port())
    federation.join_all(root, federation.SITES)
    seconds = time.perf_counter() - start
    print(f"prepared in {seconds:.0f} s; a round in one process: {alone:.3f} s")


class Hub:
    """What the server's processes use, looked at twice a second."""

    def __init__(self, process: psutil.Process) -> None:
        self.peak = 0.0
        self._process = process
        self._samples: list[tuple[float, float]] = []
        self._seconds: dict[int, float] = {}
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def share(self, begin: float, end: float) -> float:
        """Processors in use between two times, on average."""
        times, seconds = np.transpose(self._samples)
        return float(
            np.diff(np.interp([begin, end], times, seconds))[0] / (end - begin)
        )

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            used = 0.0
            with contextlib.suppress(psutil.Error):
                for part in (self._process, *self._process.children(recursive=True)):
                    used += part.memory_full_info().pss / 2**20
                    self._seconds[part.pid] = sum(part.cpu_times()[:2])
            self.peak = max(self.peak, used)
            self._samples.append((time.time(), sum(self._seconds.values())))


def wait_until_registered(log: Path, n: int, seconds: float = 600.0) -> None:
    """Wait until ``n`` sites have registered, by the server's log."""
    end = time.monotonic() + seconds
    while (found := log.read_text().count("joined. Sent token")) < n:
        assert time.monotonic() < end, f"{found} of {n} sites registered"
        time.sleep(0.5)


def start_sites(root: Path, server_log: Path) -> list[light_sites.Child]:
    """Start every site's client, a fork each, few at a time."""
    children, beat = [], BEAT * pace(len(federation.SITES))
    for i, name in enumerate(federation.SITES):
        wait_until_registered(server_log, i - STARTING)
        folder, log = root / name, root / name / "log"
        kit_folder = root / "kits" / name / "kit"
        with contextlib.chdir(folder):
            federation.list_study(kit_folder, name)
            party = daemon.Process(kit_folder, beat)
        children.append(light_sites.client(party, folder, log))
    return children


def drive(root: Path, server: daemon.Process) -> str:
    """Run the study as `capeneuro aggregate` does; return what that prints."""
    console = root / "aggregate.txt"
    with (
        contextlib.chdir(root / "aggregator"),
        open(console, "w") as printed,
        redirect_stdout(printed),
    ):
        study = load.load_study(STUDY)
        files.write_json(site_files.status_file(study), {"job": None})
        lead = root / "kits/lead/kit"
        party = SimpleNamespace(keep=server.keep, require=lambda: None)
        parties._Drive(study, controller, party, lead, 600.0, 1000).run(600.0)
    return console.read_text()


def run(root: Path, is_large: bool) -> None:
    """Run and print one size."""
    n, kit_folder = len(federation.SITES), root / "kits/server/kit"
    log = kit_folder / studies.LOG
    with contextlib.chdir(root / "aggregator"):
        federation.list_study(kit_folder, "")
    server = daemon.Process(kit_folder)
    server.keep()
    (process,) = processes(root / "kits", "server")
    hub, children = Hub(process), []
    try:
        while "Server started" not in log.read_text():
            time.sleep(0.2)
        start = time.time()
        children = start_sites(root, log)
        wait_until_registered(log, n)
        begin = time.time()
        print(f"all registered: {begin - start:.1f} s", flush=True)
        printed = drive(root, server)
        end = time.time()
        print(f"whole study: {end - begin:.1f} s; hub: {hub.peak:.0f} MiB at most")
        jobs = printed.count("submitted")
        lost = re.findall("(.*); going on without it", printed)
        print(f"jobs: {jobs}; lost: {len(lost)} {lost[:3]}; {printed.splitlines()[-1]}")
        print(
            "memory of the machine in use:", psutil.virtual_memory().used >> 20, "MiB"
        )
        exchanges = read_exchanges((root / federation.LOG).read_text(), n)
        report(root, exchanges, begin, hub)
        if "finished" in printed and (root / "together/results").exists():
            compare(root)
        if not is_large:
            bare(root, exchanges)
    finally:
        hub.stop()
        for child in children:
            child.terminate()
        server.stop()
        federation.LISTED.close()


class Exchange(NamedTuple):
    """All sites asked once."""

    end: float
    sizes: dict[str, list[int]]
    """Bytes to and from each site."""


def read_exchanges(text: str, n: int) -> list[Exchange]:
    """Read the exchanges but pings from the server's log."""
    rows = [row for row in federation.LINE.findall(text) if row[1] != "ping"]
    exchanges = []
    for i in range(0, len(rows), n):
        part = rows[i : i + n]
        end = datetime.strptime(part[-1][0], "%Y-%m-%d %H:%M:%S,%f").timestamp()
        exchanges.append(Exchange(end, {r[2]: [int(r[3]), int(r[4])] for r in part}))
    return exchanges


def report(root: Path, exchanges: list[Exchange], begin: float, hub: Hub) -> None:
    """Print the times of the log's exchanges, and how busy the hub was in them."""
    print(f"first exchange ended after {exchanges[0].end - begin:.1f} s")
    ends = [exchange.end for exchange in exchanges]
    seconds = np.diff(ends)[-federation.ROUNDS :]
    sizes = [next(iter(exchange.sizes.values())) for exchange in exchanges]
    print("bytes to and from a site:", sizes[-3:] if len(sizes) > 9 else sizes)
    print("seconds between exchanges:", np.round(np.diff(ends), 2).tolist())
    print(f"a round: {np.median(seconds):.2f} s (median), {max(seconds):.2f} at most")
    busy = hub.share(ends[0], ends[-1])
    print(f"hub's processors in use in the rounds: {busy:.2f}")
    work = []
    for name in federation.SITES:
        text = (root / name / "log").read_text()
        answered = [float(s) for task, s in federation.WORK.findall(text)]
        work.append(np.median(answered[-federation.ROUNDS :]))
    print(f"a site's work in it: {np.median(work):.3f} s; of all {np.sum(work):.2f} s")


def bare(root: Path, exchanges: list[Exchange]) -> None:
    """Print the time of exchanges of the same sizes with sites that do nothing."""
    with contextlib.chdir(root / "aggregator"):
        study = load.load_study(STUDY)
        options = {"job": "bare", "segment": 1000, "timeout": 60.0, "patience": 60.0}
        parties.write_job(root / "job", study, options)
    sizes = [exchange.sizes for exchange in exchanges[-federation.ROUNDS :]]
    seconds = federation.echo_job(root, sizes, 300.0)
    print(f"bare: {np.median(seconds):.2f} s (median), {max(seconds):.2f} at most")


def compare(root: Path) -> None:
    """Print whether released arrays are those of one process."""
    for name in (SUBSPACE, UNMIXING):
        a, b = (
            files.read_arrays(root / folder / "results/bench" / name)
            for folder in ("together", "aggregator")
        )
        other = [k for k in a if not np.array_equal(a[k], b[k], a[k].dtype.kind == "f")]
        print(f"{name}: {'DIFFERENT: ' + ', '.join(other) if other else 'bit-equal'}")


def main() -> None:
    """Run each size in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sites", nargs="*", type=int, default=[25, 50, 100, 200])
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    federation.D, federation.R, federation.ROUNDS = arguments.features, 5, 10
    federation.PEOPLE, federation.VOLUMES = 2, 60
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    )
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    forks = warm.Warm(*light_sites.MODULES, usual=())
    try:
        for n in arguments.sites:
            print(f"--- {n} sites", flush=True)
            federation.SITES = tuple(f"s{i:03d}" for i in range(n))
            with tempfile.TemporaryDirectory() as made:
                root = (arguments.folder or Path(made)) / str(n)
                if not root.exists():
                    prepare(root, arguments.large)
                if not arguments.prepare:
                    run(root, arguments.large)
    finally:
        forks.close()


if __name__ == "__main__":
    main()
