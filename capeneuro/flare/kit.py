"""Kits: what a party needs to join a federation, made, made safe, and checked.

NVIDIA FLARE makes the kits (its own command, in a process of its own); each private key
is made in its owner's folder and never travels. What FLARE leaves open by default is
closed here: a job may build this package's classes only and carries no code, no log
leaves a site, nobody looks into a site's folders.
"""

import importlib.metadata
import json
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.flare import running

VERSIONS = ((2, 9), (2, 10))
# All that FLARE may build from a job, at a site and at the server.
ALLOWED = [
    "capeneuro.flare.controller.StudyController",
    "capeneuro.flare.controller.SiteExecutor",
]
# The same in kits of versions before the package had rooms.
MOVED = ["capeneuro.flare.StudyController", "capeneuro.flare.SiteExecutor"]
# All that a role may do: start and end jobs; at the server also see how they go.
JOBS = {"submit_job": "any", "manage_job": "n:submitter", "byoc": "none"}
PERMISSIONS = {
    "site": {"lead": JOBS},
    "server": {"lead": {**JOBS, "view": "any"}},
}
# Components that send, and receive, sites' logs.
LOGGERS = {"site_log_streamer", "log_receiver"}
CONFIGURATION = {
    "site": "fed_client.json",
    "server": "fed_server.json",
    "lead": "fed_admin.json",
}
# Sites that may register; FLARE's own limit is 100, and the others try for ever.
SITES = 1000
# What a server listens with. FLARE's own has a thread for each of 100 connections, and
# lets the next one wait without a word; a site has two while a study runs.
CONNECTIONS = "comm_config.json"
LARGEST_FRAME = 2**31 - 2**21  # [bytes]; named together, or gRPC's own 4 MB hold
LISTENING = {
    "grpc": {
        "max_workers": 2 * SITES,
        "options": [
            ["grpc.max_send_message_length", LARGEST_FRAME],
            ["grpc.max_receive_message_length", LARGEST_FRAME],
        ],
    }
}
# Days before the end of a certificate from which it is to be renewed.
WARN_DAYS = 30
# Locked by the process that runs FLARE with the kit.
LOCK = "tmp/lock"
# Jobs at a time: one a study, and one more of each that is about to end.
MOST_JOBS = 2 * running.MOST


class Finding(NamedTuple):
    """One rule of :func:`check`: an error with its remedy, or none."""

    rule: str
    wrong: str = ""
    warning: bool = False
    value: str = ""
    """Where nothing is wrong: what there is."""

    @property
    def failed(self) -> bool:
        """Whether a study must not start with it."""
        return bool(self.wrong) and not self.warning

    @property
    def line(self) -> str:
        """State, rule, value or error, remedy."""
        state = "failed" if self.failed else "warning" if self.wrong else "ok"
        text = self.wrong or self.value
        return f"{state:8} {self.rule}{': ' if text else ''}{text}"


# --- making kits ---------------------------------------------------------------------


def init(
    study: StudyConfig, folder: Path, server: str, port: int, is_local: bool
) -> None:
    """Write the files by which the project's admin admits the parties of a study.

    Parameters
    ----------
    study
        Its sites, the server and the lead become the parties.
    folder
        New folder for the certificate authority and the parties' files.
    server, port
        Where the sites will reach the aggregator.
    is_local
        Make every party's kit as well, for a rehearsal on this machine.

    Raises
    ------
    ConfigError
        If the folder exists, a name does not do, or FLARE's command refuses.
    """
    if folder.exists():
        raise ConfigError(f"{folder}: exists already; choose another folder")
    sites = list(study.site_names)
    if reserved_names := {"server", "lead", "ca"} & set(sites):
        raise ConfigError(
            f"sites: {', '.join(reserved_names)} is a party's name; rename it"
        )
    folder.mkdir(parents=True, mode=0o700)
    project = study.study.lower()
    profile = {
        "name": project,
        "scheme": "grpc",
        "connection_security": "mtls",
        "server": {"host": server, "fed_learn_port": port, "admin_port": port},
    }
    parties = {site: {"name": site, "type": "client"} for site in sites}
    parties["server"] = {"name": server, "type": "server"}
    lead = {"name": f"lead@{project}.study", "type": "admin", "role": "lead"}
    parties["lead"] = lead
    files.write_text(folder / "project.yaml", yaml.safe_dump(profile))
    for name, party in parties.items():
        # Letters, digits and underscores only; organisations have no rights here.
        party["org"] = re.sub(r"\W", "_", name)
        content = {"name": project, "participants": [party]}
        files.write_text(folder / f"{name}.yaml", yaml.safe_dump(content))
    authority = ["cert", "init", "--profile", "project.yaml", "-o", "ca"]
    certificate_authority = _nvflare(folder, authority)
    fingerprint = certificate_authority["rootca_fingerprint_sha256"]
    if is_local:
        with ThreadPoolExecutor(2) as pool:
            for kit in pool.map(
                lambda name: _make(folder, name, parties[name]["name"], fingerprint),
                parties,
            ):
                print(kit)
        return
    print(f"wrote {folder}/ca (keep it safe) and a file for each party:")
    for name, party in parties.items():
        full = party["name"]
        print(
            f"\n{name} gets {folder}/{name}.yaml and types, with a request to you "
            "between:\n"
            f"  capeneuro federation request {name}.yaml --out {name}\n"
            f"      and sends {name}/{full}.request.zip alone\n"
            f"  capeneuro federation package {full}.signed.zip --from {name} --kit kit "
            f"--fingerprint {fingerprint}\n"
            f"you type, and send back {full}.signed.zip:\n"
            f"  nvflare cert approve {full}.request.zip --ca-dir {folder}/ca "
            f"--profile {folder}/project.yaml"
        )
    print(
        "\ntell the fingerprint by telephone; then each: capeneuro federation check kit"
    )


def _make(folder: Path, name: str, full: str, fingerprint: str) -> Path:
    """Request, approve, package and harden one kit."""
    request_zip = request(folder / f"{name}.yaml", folder / name)
    authority_options = ["--ca-dir", "ca", "--profile", "project.yaml"]
    signed = folder / name / f"{full}.signed.zip"
    output = ["--out", str(signed.resolve())]
    approval = ["cert", "approve", str(request_zip.resolve())]
    _nvflare(folder, approval + authority_options + output)
    return package(signed, folder / name, fingerprint, folder / name / "kit")


def request(party: Path, folder: Path) -> Path:
    """Make a party's private key, and the request that its certificate is made of.

    Parameters
    ----------
    party
        File ``NAME.yaml`` of the project's admin.
    folder
        New folder for the key, which stays there.

    Returns
    -------
    Path
        File for the project's admin, ``NAME.request.zip``.
    """
    if not party.is_file():
        raise ConfigError(f"{party}: not found; it comes from the project's admin")
    if folder.exists():
        raise ConfigError(f"{folder}: exists already; choose another folder")
    arguments = ["-p", str(party.resolve()), "--out", str(folder.resolve())]
    _nvflare(party.parent, ["cert", "request", *arguments])
    (request_zip,) = folder.glob("*.request.zip")
    return request_zip


def package(signed: Path, folder: Path, fingerprint: str, out: Path) -> Path:
    """Make a hardened kit of a signed request.

    Parameters
    ----------
    signed
        File ``NAME.signed.zip`` as the project's admin sent it.
    folder
        Where :func:`request` made the key.
    fingerprint
        Of the federation's authority, as the project's admin told it by another way.
    out
        New folder of the kit.
    """
    if out.exists():
        raise ConfigError(
            f"{out}: exists already; to renew its certificate: capeneuro federation "
            "renew"
        )
    workspace = folder / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    arguments = ["--request-dir", str(folder.resolve()), "--fingerprint", fingerprint]
    arguments += ["--workspace", str(workspace.resolve())]
    _nvflare(folder, ["package", str(signed.resolve()), *arguments])
    (packaged,) = (
        path.parent for path in workspace.glob("*/prod_*/*/startup") if path.is_dir()
    )
    shutil.move(packaged, out)
    shutil.rmtree(workspace)
    harden(out)
    return out


def _nvflare(folder: Path, arguments: list[str]) -> dict[str, Any]:
    """Run FLARE's command in a folder; return its answer."""
    command = Path(sys.executable).parent / "nvflare"
    if not command.exists():
        raise ConfigError("nvflare: not installed; pip install 'capeneuro[federated]'")
    process = subprocess.run(
        [str(command), "--format", "json", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    try:
        answer = json.loads(process.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        answer = {"message": " ".join(process.stderr.split())[-200:]}
    if process.returncode != 0:
        subcommand = " ".join(arguments[:2])
        raise ConfigError(f"nvflare {subcommand}: {answer.get('message', 'failed')}")
    return answer["data"]


# --- making them safe ----------------------------------------------------------------


def harden(kit: Path) -> None:
    """Close the settings that FLARE leaves open in a kit; a repeat changes nothing.

    Raises
    ------
    ConfigError
        If the folder is not a kit.
    """
    kind = kind_of(kit)
    kit.chmod(0o700)
    for key in _keys(kit):
        key.chmod(0o600)
    if kind == "lead":
        startup = _startup(kit)
        transfer_folder = str(kit.resolve() / "transfer")
        startup["admin"] |= {
            "upload_dir": transfer_folder,
            "download_dir": transfer_folder,
        }
        files.write_json(kit / "startup" / CONFIGURATION[kind], startup)
        return
    (kit / "tmp").mkdir(mode=0o700, exist_ok=True)
    (kit / "tmp").chmod(0o700)
    resources = _read(kit, "resources.json")
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = ALLOWED
    resources["components"] = [
        c for c in resources["components"] if c["id"] not in LOGGERS
    ]
    if kind == "site":
        resources["allow_log_streaming"] = False
    else:
        snapshots, jobs, _ = _storage(kit)
        storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
        storage["root_dir"] = str(snapshots)
        components = {c["id"]: c for c in resources["components"]}
        components["job_manager"]["args"]["uri_root"] = str(jobs)
        components["job_scheduler"]["args"]["max_jobs"] = MOST_JOBS
        resources["servers"][0]["admin_storage"] = str(_storage(kit)[2])
        resources["servers"][0]["max_num_clients"] = SITES
        _write(kit, CONNECTIONS, LISTENING)
    _write(kit, "resources.json", resources)
    rights = {"format_version": "1.0", "permissions": PERMISSIONS[kind]}
    _write(kit, "authorization.json", rights)


def kind_of(kit: Path) -> str:
    """Whose kit it is: a ``site``'s, the ``server``'s or the ``lead``'s."""
    for kind, name in CONFIGURATION.items():
        if (kit / "startup" / name).is_file():
            return kind
    raise ConfigError(f"{kit}: not a kit of nvflare; give the folder above startup/")


def owner(kit: Path) -> tuple[str, str]:
    """Name and organisation in a kit's certificate."""
    subject = certificate(kit).subject
    parts = [NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME]
    names = [subject.get_attributes_for_oid(part)[0].value for part in parts]
    return str(names[0]), str(names[1])


def address(kit: Path) -> tuple[str, int]:
    """Host and port of the server that a kit names."""
    startup = _startup(kit)
    if kind_of(kit) == "lead":
        return startup["admin"]["host"], int(startup["admin"]["port"])
    host, port = startup["servers"][0]["service"]["target"].rsplit(":", 1)
    return host, int(port)


# --- checking them -------------------------------------------------------------------


def is_in_use(kit: Path) -> bool:
    """Whether FLARE runs with a kit."""
    return running.is_locked(kit / LOCK)


def check(kit: Path, name: str | None = None, is_idle: bool = False) -> list[Finding]:
    """Check a kit, rule by rule; ``name`` is the site whose kit it must be.

    With ``is_idle`` the server's port must be free also while somebody has the kit.

    Raises
    ------
    ConfigError
        If the folder is not a kit.
    """
    kind = kind_of(kit)
    is_idle = is_idle or not is_in_use(kit)
    findings = [*_identity(kit, name), *_host(kit, kind, is_idle)]
    if kind != "lead":
        findings += _settings(kit, kind)
    return findings


def require(
    kit: Path, kind: str, name: str | None = None, is_idle: bool = False
) -> None:
    """Raise with all that is wrong with a kit, before anything starts with it."""
    if kind_of(kit) != kind:
        raise ConfigError(f"{kit}: must be a {kind}'s kit, got a {kind_of(kit)}'s")
    wrong = [f for f in check(kit, name, is_idle) if f.failed]
    if wrong:
        lines = [f"{kit}: {f.rule}: {f.wrong}" for f in wrong]
        raise ConfigError("\n".join(lines))


def _identity(kit: Path, name: str | None) -> Iterator[Finding]:
    loose = [k.name for k in _keys(kit) if stat.S_IMODE(k.stat().st_mode) & 0o077]
    text = f"{', '.join(loose)} can be read by others; harden the kit"
    yield Finding("private key", text if loose else "")
    root = x509.load_pem_x509_certificate((kit / "startup/rootCA.pem").read_bytes())
    subject = certificate(kit)
    try:
        subject.verify_directly_issued_by(root)
        text = ""
    except (ValueError, TypeError, InvalidSignature):
        text = "not issued by the kit's rootCA.pem; package the kit again"
    yield Finding("certificate authority", text)
    now, begin = datetime.now(UTC), subject.not_valid_before_utc
    text = (
        f"this machine's time is {now:%Y-%m-%d %H:%M} UTC, and the certificate was "
        f"made at {begin:%Y-%m-%d %H:%M}: the clock is behind by "
        f"{_long((begin - now).total_seconds())} or more; switch on a time service"
    )
    yield Finding("clock of this machine", text if now < begin else "")
    days = (subject.not_valid_after_utc - now).days
    word = "expired" if days < 0 else "expires"
    end = f"{subject.not_valid_after_utc:%Y-%m-%d}"
    text = f"{word} on {end}; get a new one: capeneuro federation renew --help"
    text = text if days < WARN_DAYS else ""
    soon = 0 <= days < WARN_DAYS
    yield Finding("certificate date", text, soon, f"until {end}, {days} days left")
    if name is not None and owner(kit)[0] != name:
        text = f"made for {owner(kit)[0]!r}, not for {name!r}; use that site's kit"
        yield Finding("owner", text)
    startup = _startup(kit)
    end = startup.get("admin") or startup.get("client") or startup["servers"][0]
    text = "connections are not mutual TLS; package the kit again"
    mutual = end.get("connection_security") == "mtls"
    yield Finding("mutual TLS", "" if mutual else text)


def _host(kit: Path, kind: str, is_idle: bool) -> Iterator[Finding]:
    low, high = (".".join(map(str, v)) for v in VERSIONS)
    try:
        version = importlib.metadata.version("nvflare")
        release = tuple(int(x) for x in version.split(".")[:2])
        text = f"{version}, must be >={low},<{high}"
        text = "" if VERSIONS[0] <= release < VERSIONS[1] else text
    except importlib.metadata.PackageNotFoundError:
        text = "not installed; pip install 'capeneuro[federated]'"
    yield Finding("version of nvflare", text)
    if kind == "server" and is_idle:
        port = address(kit)[1]
        # One that was killed may still be ending.
        tries = (_is_free(port) or time.sleep(0.5) for _ in range(16))
        text = "" if any(tries) else f"{port} is in use; stop what listens there"
        yield Finding("free port", text)
    yield Finding("clock", *_clock())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # A second server would not fail: both would get half of the sites.
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _clock() -> tuple[str, bool]:
    """The fault of this machine's clock, and whether it is only a warning."""
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=10)
        answer = process.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    if answer == "yes":
        return "", False
    if answer == "no":
        # Also where a virtual machine has the time of its host, which is right.
        return "no time service is at work here; see that the time is right", True
    return "this system cannot tell; make sure a time service runs", True


def _long(seconds: float) -> str:
    """A time in the largest unit of which there is one."""
    for unit, length in ("days", 86400), ("hours", 3600), ("minutes", 60):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _settings(kit: Path, kind: str) -> Iterator[Finding]:
    resources = _read(kit, "resources.json")
    allowed = (
        resources.get("class_allow_list") == ALLOWED
        and resources.get("class_list_enforcement_mode") == "enforce"
    )
    remedy = "run: capeneuro federation harden KIT"
    text = f"jobs may build more than this package's two classes; {remedy}"
    if resources.get("class_allow_list") == MOVED:
        text = f"made for an earlier version, whose classes lay elsewhere; {remedy}"
    yield Finding("classes of a job", "" if allowed else text)
    rights = _read(kit, "authorization.json").get("permissions")
    text = f"roles may do more than start and end jobs; {remedy}"
    yield Finding("rights", "" if rights == PERMISSIONS[kind] else text)
    custom = [str(path) for path in [kit / "local/custom"] if path.exists()]
    text = f"{', '.join(custom)} would be imported; remove it"
    yield Finding("code beside the package", text if custom else "")
    components = {c["id"]: c for c in resources["components"]}
    streams = LOGGERS & set(components) or resources.get("allow_log_streaming", False)
    yield Finding("logs", f"logs leave the site; {remedy}" if streams else "")
    private = stat.S_IMODE(kit.stat().st_mode) & 0o077 == 0 and (kit / "tmp").is_dir()
    text = f"open to others, or no folder tmp of its own; {remedy}"
    yield Finding("folder", "" if private else text)
    if kind == "server":
        stored = [
            resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"],
            components["job_manager"]["args"]["uri_root"],
            resources["servers"][0]["admin_storage"],
        ]
        text = f"jobs are stored outside the kit; {remedy}"
        inside = stored == [str(path) for path in _storage(kit)]
        yield Finding("storage", "" if inside else text)
        most = components["job_scheduler"]["args"].get("max_jobs")
        yield Finding("jobs at a time", "" if most == MOST_JOBS else remedy)
        path = kit / "local" / CONNECTIONS
        many = path.is_file() and _read(kit, CONNECTIONS) == LISTENING
        many = many and resources["servers"][0].get("max_num_clients") == SITES
        text = f"made for an earlier version, which took 49 sites; {remedy}"
        yield Finding("connections", "" if many else text)


def _storage(kit: Path) -> list[Path]:
    return [kit.resolve() / "storage" / x for x in ("snapshots", "jobs", "transfer")]


def _keys(kit: Path) -> list[Path]:
    return sorted((kit / "startup").glob("*.key"))


def certificate(kit: Path) -> x509.Certificate:
    """Certificate of a kit's owner."""
    name = "server.crt" if kind_of(kit) == "server" else "client.crt"
    return x509.load_pem_x509_certificate((kit / "startup" / name).read_bytes())


def _startup(kit: Path) -> dict[str, Any]:
    return json.loads((kit / "startup" / CONFIGURATION[kind_of(kit)]).read_text())


def _read(kit: Path, name: str) -> dict[str, Any]:
    """Read a local setting: the kit's own, or FLARE's default beside it."""
    kit_file = kit / "local" / name
    path = kit_file if kit_file.exists() else kit / "local" / f"{name}.default"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        raise ConfigError(f"{path}: not readable; package the kit again") from None


def _write(kit: Path, name: str, content: dict[str, Any]) -> None:
    files.write_json(kit / "local" / name, content)
    (kit / "local" / f"{name}.default").unlink(missing_ok=True)
