"""Many sites at one hub: a study over FLARE with 25 to 200 sites on one machine.

    PYTHONPATH=. .venv/bin/python benchmarks/many_sites.py [sites ...]

The hub is real: `Drive` of `capeneuro aggregate`, FLARE's server and its job process,
mutual TLS. Sites are light (:mod:`light_sites`).
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import federation
import light_sites
import numpy as np
import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from capeneuro import warm
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.flare import controller, daemon, kit, parties
from capeneuro.studies import sites as site_files
from capeneuro.studies.components import SUBSPACE, UNMIXING

STUDY = federation.STUDY
LOST = re.compile(r"its process is gone|no answer in time|no connection")


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


class Hub:
    """What the server's processes use."""

    def __init__(self, party: daemon.Daemon) -> None:
        self._party, self.peak, self._seconds = party, 0.0, {}
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def seconds(self) -> float:
        """Of the processors, so far."""
        return sum(self._seconds.values())

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        process = psutil.Process(self._party._process.pid)
        while not self._over.wait(0.5):
            with contextlib.suppress(psutil.Error):
                used = 0.0
                for part in (process, *process.children(recursive=True)):
                    used += part.memory_full_info().pss / 2**20
                    self._seconds[part.pid] = sum(part.cpu_times()[:2])
                self.peak = max(self.peak, used)


def registered(root: Path, n: int, seconds: float) -> float:
    """Seconds until all sites have registered."""
    start = time.monotonic()
    with controller.session(root / "kits/lead/kit", 10.0) as lead:
        before = 0
        while (found := len(lead.get_system_info().client_info)) < n:
            waited = time.monotonic() - start
            assert waited < seconds, f"{found} of {n} sites registered"
            if found != before:
                print(f"{waited:.1f} s: {found} registered", flush=True)
            before = found
            time.sleep(0.5)
    return time.monotonic() - start


def start_sites(root: Path, light: bool = True) -> list[light_sites.Child]:
    """Start every site's client, a fork each."""
    children = []
    for name in federation.SITES:
        folder = root / name
        with contextlib.chdir(folder):
            variables = {"STUDY": STUDY, "STAGE": "", "SITE": name}
            own = daemon.Daemon(root / "kits" / name / "kit", variables, folder / "log")
        children.append(light_sites.client(own, folder, folder / "log"))
    return children


def drive(root: Path, server: daemon.Daemon, segment: int = 1000) -> int:
    """Run the study as `capeneuro aggregate` does."""
    with contextlib.chdir(root / "aggregator"):
        study = load.load_study(STUDY)
        files.write_json(site_files.status_file(study), {"job": None})
        moving = parties._Drive(
            study, controller, server, root / "kits/lead/kit", 600.0, segment
        )
        return moving.run(300.0)


def run(root: Path) -> None:
    """Run and print one size."""
    n = len(federation.SITES)
    clock = time.perf_counter()
    federation.write(root)
    alone = federation.in_process(root / "together")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    make_kits(root, port)
    federation.join_all(root, federation.SITES)
    print(f"prepared in {time.perf_counter() - clock:.0f} s", flush=True)
    with contextlib.chdir(root / "aggregator"):
        variables = {"STUDY": STUDY, "STAGE": ""}
        server = daemon.Daemon(root / "kits/server/kit", variables, Path("log"))
        server.keep()
    hub = Hub(server)
    log = root / "aggregator/log"
    children = []
    try:
        while "Server started" not in server.output():
            time.sleep(0.2)
        children = start_sites(root)
        print(f"registered after {registered(root, n, 300.0):.1f} s", flush=True)
        used, begin = hub.seconds(), time.time()
        status = drive(root, server)
        whole, used = time.time() - begin, hub.seconds() - used
        print(f"status {status} after {whole:.1f} s, hub's processor {used:.1f} s")
        text = log.read_text()
        rows = federation.LINE.findall(text)
        print(f"false losses: {lost(text)}")
        report(rows, begin, n)
        if status == 0:
            compare(root)
        print(f"a round in one process: {alone:.3f} s; hub {hub.peak:.0f} MiB")
    finally:
        hub.stop()
        for child in children:
            child.terminate()
        server.stop()


def lost(text: str) -> int:
    return len(LOST.findall(text))


def report(rows: list[tuple[str, ...]], begin: float, n: int) -> None:
    """Print times of the log's exchanges."""
    asked = [row for row in rows if row[1] != "ping"]
    times = [
        datetime.strptime(r[0], "%Y-%m-%d %H:%M:%S,%f").timestamp() for r in asked
    ]
    print(f"first answer after {times[0] - begin:.1f} s; exchanges {len(times) / n}")
    ends = times[n - 1 :: n]
    print("seconds between exchanges:", np.round(np.diff(ends), 2).tolist())


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
                run((arguments.folder or Path(made)) / str(n))
    finally:
        forks.close()


if __name__ == "__main__":
    main()
