"""A study by files on this machine: who carries what where."""

import contextlib
import shutil
from pathlib import Path

from parties import SITES, STUDY
from tiny_study import command

from capeneuro.flare.by_files import WAITING


def aggregate(root: Path, *options: str) -> int:
    """Let the aggregator go on as far as it can; its exit status."""
    with contextlib.chdir(root / "aggregator"):
        return command("aggregate", STUDY, "--folder", str(root / "mail"), *options)


def requests(root: Path, name: str) -> list[Path]:
    """Requests for a site that nobody has carried yet."""
    return sorted((root / "mail" / f"to-{name}").glob("*.request.zip"))


def answer(root: Path, name: str, path: Path, *options: str) -> int:
    """Carry a request to a site, let it answer, and carry the answer back."""
    shutil.move(path, root / name / path.name)
    with contextlib.chdir(root / name):
        status = command("answer", path.name, "--yes", *options)
    out = root / name / path.name.replace(".request.", ".answer.")
    if out.exists():
        (root / "mail" / f"from-{name}").mkdir(exist_ok=True)
        shutil.copy(out, root / "mail" / f"from-{name}" / out.name)
    return status


def run(root: Path, names=SITES, most: int = 40) -> int:
    """Carry all files until the study ends; how often each site was asked."""
    for n_visits in range(most):
        status = aggregate(root)
        if status != WAITING:
            assert status == 0
            return n_visits
        for name in names:
            for path in requests(root, name):
                assert answer(root, name, path) == 0
    raise AssertionError(f"not done after {most} visits")
