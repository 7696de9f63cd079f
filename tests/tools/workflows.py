"""Snakemake as a user runs it, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def run(folder: Path, *command: str, **options) -> subprocess.CompletedProcess:
    """Run a command of the environment that is deliberately not on PATH."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def edit(path: Path, **changes) -> None:
    """Change keys of a YAML file; dots in a name stand as double underscores."""
    content = yaml.safe_load(path.read_text())
    for name, value in changes.items():
        *parents, key = name.split("__")
        inner = content
        for parent in parents:
            inner = inner[parent]
        inner[key] = value
    path.write_text(yaml.safe_dump(content))
