"""Write the versions, and the digests of their files, that the container installs.

    python packaging/lock.py                 # asks pip; writes requirements.lock
    python packaging/lock.py --check         # exit status 1 where it does not install

pip resolves the wheel's dependencies with these extras once for each Python and each
processor below; where two of them need other versions of a package the line says for
which Python it holds. Only the standard library and pip are needed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "packaging/container/requirements.lock"
EXTRAS = "exact,federated,eeg"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    processor: [f"manylinux_{glibc}_{processor}" for glibc in ("2_17", "2_27", "2_28")]
    + [f"manylinux2014_{processor}"]
    for processor in ("x86_64", "aarch64")
}
# Versions and, for each, the digests of its files, by package and Python.
Resolved = dict[str, dict[str, str]]


def resolve(python: str, processor: str, digests: dict[tuple[str, str], set]) -> dict:
    """Versions by package for one Python; digests of their files are added."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        platforms = [x for name in PLATFORMS[processor] for x in ("--platform", name)]
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
        command += ["--ignore-installed", "--only-binary=:all:", "--target", folder]
        command += ["--python-version", python, *platforms, "--report", str(report)]
        # A machine's own index or folder of wheels is no source of a public lock.
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
        subprocess.run(
            [*command, f"{ROOT}[{EXTRAS}]"], env={**os.environ, **own}, check=True
        )
        packages = json.loads(report.read_text())["install"]
    versions = {}
    for package in packages:
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if name == "capeneuro":
            continue
        name = name.lower().replace("_", "-").replace(".", "-")
        versions[name] = version
        digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
        digests.setdefault((name, version), set()).add(digest)
    return versions


def lines(resolved: dict[str, dict], digests: dict[tuple[str, str], set]) -> list[str]:
    """Lines of the lock, sorted by package."""
    pythons, processors = ", ".join(PYTHONS), ", ".join(PLATFORMS)
    written = [
        f"# Written by `python packaging/lock.py`: what capeneuro[{EXTRAS}] needs,",
        f"# for Python {pythons} on Linux ({processors}). Install with "
        "--require-hashes.",
    ]
    for name in sorted({n for versions in resolved.values() for n in versions}):
        pythons_of: dict[str, list[str]] = {}
        for python, versions in resolved.items():
            if name in versions:
                pythons_of.setdefault(versions[name], []).append(python)
        for version, pythons in sorted(pythons_of.items()):
            every = len(pythons) == len(resolved)
            marks = " or ".join(f"python_version == '{p}'" for p in pythons)
            written.append(f"{name}=={version}{'' if every else f' ; {marks}'} \\")
            hashes = [f"    --hash=sha256:{d}" for d in sorted(digests[name, version])]
            written += [f"{h} \\" for h in hashes[:-1]] + hashes[-1:]
    return written


def write() -> None:
    """Ask pip, and write the lock."""
    resolved: dict[str, dict] = {}
    digests: dict[tuple[str, str], set] = {}
    for python in PYTHONS:
        for processor in PLATFORMS:
            versions = resolve(python, processor, digests)
            before = resolved.setdefault(python, versions)
            if odd := {n for n in versions if versions[n] != before.get(n)}:
                sys.exit(f"{python}: {', '.join(sorted(odd))}: differ by processor")
            print(f"Python {python}, {processor}: {len(versions)} packages")
    LOCK.write_text("\n".join(lines(resolved, digests)) + "\n")
    print(f"wrote {LOCK}")


def check() -> int:
    """Whether the lock installs on this Python, without installing it."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
    command += ["--ignore-installed", "--require-hashes", "-r", str(LOCK)]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only try the lock")
    sys.exit(check() if parser.parse_args().check else write())
