"""Digests of what example studies release: for changes that shall move no number.

    python tests/digests.py FOLDER > before.txt

Run it before and after such a change, in two new folders on one machine, and compare:
every line must be the same. All kinds of study but patterns, with fixed seeds, two
arms, both units, and the routes of PCA and ICA. A site's noise depends on its seed and
on the identity of the study, which is pinned here: what keys a study file has may
change, what it releases may not. Four minutes. Digests of other machines differ, since
their matrix products round otherwise.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import yaml

from capeneuro import cli
from capeneuro.config.study import Study
from sim.__main__ import main as make_data

ROOT = Path(__file__).resolve().parent.parent
BUDGET = {"epsilon": 50.0}
SMALL = {"data": {"n_subjects": 6, "n_volumes": 80}}
ROWS = {"data": {"n_subjects": 60}}
# Example study, changes to it; each in two arms.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "demo": ("demo", {}),
    "people": ("demo", {"budget": {"unit": "subject", **BUDGET}, **SMALL}),
    "spatial": ("demo", {"ica": {"independence": "spatial"}, **SMALL}),
    "newton": (
        "demo",
        {"ica": {"update": "relative-newton"}, "pca": {"center": True}, **SMALL},
    ),
    "descent": ("demo", {"ica": {"update": "gradient", "start": "identity"}, **SMALL}),
    "runs": ("demo", {"ica": {"n_runs": 3, "sub_gaussian": "measured"}, **SMALL}),
    "power": (
        "demo",
        {
            "pca": {"method": "power", "start_grid": 4},
            "space": {"basis": "voxels"},
            "budget": {"unit": "subject", **BUDGET},
            **SMALL,
        },
    ),
    "linked": ("linked", {"data": {"n_subjects": 40}, "budget": BUDGET}),
    "mixture": ("mixture", {"budget": BUDGET, **ROWS}),
    "whole": ("mixture", {"budget": BUDGET, "tensors": {"projected": False}, **ROWS}),
    "topics": ("topics", {"budget": BUDGET, **ROWS}),
    "regression": ("regression", {"budget": BUDGET, **ROWS}),
    "logistic": (
        "regression",
        {
            "budget": BUDGET,
            "regression": {"task": "logistic", "center": False},
            **ROWS,
        },
    ),
    "network": ("network", {"budget": BUDGET, "network": {"n_rounds": 12}, **ROWS}),
    "contrast": ("contrast", {"budget": BUDGET, **ROWS}),
}
ARMS = ("cape", "conventional")
STAGES = ("pca", "ica", "cca", "tensors", "regression", "network", "contrast")


def main() -> None:
    """Run all cases in a folder and print the digests of what they wrote."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    given = parser.parse_args()
    pin()
    given.folder.mkdir(parents=True)
    os.chdir(given.folder)
    for case in given.only:
        for arm in ARMS:
            run(case, arm)
            for line in digests(Path(f"results/{case}-{arm}")):
                print(line, flush=True)
            for path in sorted(Path("private").glob(f"*/{case}-{arm}/*.tsv")):
                print(path, digest(path.read_bytes()), flush=True)


def run(case: str, arm: str) -> None:
    """Write one study's files, make its data and run its steps."""
    example, changes = CASES[case]
    path = ROOT / f"config/{example}/study.yaml"
    path = path if path.exists() else ROOT / "config/config.yaml"
    content = yaml.safe_load(path.read_text())
    for key, value in changes.items():
        content[key] = {**content[key], **value}
    content |= {"study": f"{case}-{arm}", "arm": arm}
    content["accept"] = [{"rule": "noise", "reason": "bytes are compared, not results"}]
    where = f"data/{content['study']}"
    text = yaml.safe_dump(content).replace(f"data/{example}/", f"{where}/")
    content = yaml.safe_load(text)
    content["sites"] = [f"{where}/sites/s{i}.yaml" for i in range(4)]
    Path(where, "sites").mkdir(parents=True)
    for i, path in enumerate(content["sites"]):
        is_table = example not in ("demo", "linked")
        images = f"{where}/s{i}" + ".tsv" * is_table
        site = {"name": f"s{i}", "images": images, "data": "simulated", "seed": i}
        site |= {"epsilon": 1e3, "delta": 1e-5, "unit": content["budget"]["unit"]}
        site |= {"ledger": f"private/s{i}/ledger-{case}-{arm}", "min_colluding": 0}
        site |= {"eeg": images} if example == "linked" else {}
        Path(path).write_text(yaml.safe_dump(site))
    study = f"{where}/study.yaml"
    Path(study).write_text(yaml.safe_dump(content))
    steps = ["validate", *(f"prepare --site s{i}" for i in range(4))]
    steps += [s for s in STAGES if s in has(content)]
    steps += [f"{s} --reference" for s in STAGES if s in has(content)]
    steps += ["maps", *(f"reconstruct --site s{i}" for i in range(4)), "score"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        failed = make_data([study])
        for step in steps:
            name, *options = step.split()
            failed = failed or cli.main([name, study, *options])
    if failed:
        sys.exit(said.getvalue())


def has(content: dict[str, Any]) -> set[str]:
    """Stages of a study."""
    kinds = {"fusion": {"cca"}, "tensors": {"tensors"}}
    kinds |= {name: {name} for name in ("regression", "network", "contrast")}
    return next((s for k, s in kinds.items() if k in content), {"pca", "ica"})


def pin() -> None:
    """Give studies the identities of their names alone."""
    Study.identity = property(lambda study: f"{study.study}:pinned")


def digests(folder: Path) -> list[str]:
    """Released arrays, images and tables of a folder, and what was charged."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npz":
            arrays = np.load(path)
            told = {"releases", "sites", "stamp"}
            for name in sorted(set(arrays.files) - told):
                about = f"{arrays[name].dtype}{arrays[name].shape}"
                lines.append(f"{path}:{name} {about} {digest(arrays[name].tobytes())}")
        elif path.name.endswith(".nii.gz"):
            lines.append(f"{path} {digest(nibabel.load(path).get_fdata().tobytes())}")
        elif path.suffix == ".tsv":
            lines.append(f"{path} {digest(path.read_bytes())}")
        elif path.name == "privacy.json":
            record = json.loads(path.read_text())
            kept = {key: record[key] for key in ("promise", "releases", "sites")}
            for release in kept["releases"]:
                release.pop("parameters", None)
            text = json.dumps(kept, sort_keys=True)
            lines.append(f"{path} {digest(text.encode())}")
    return lines


def digest(raw: bytes) -> str:
    """Short name of bytes."""
    return hashlib.sha256(raw).hexdigest()[:16]


if __name__ == "__main__":
    main()
