"""Digests of what example studies release: for changes that shall move no number.

    python tests/digests.py FOLDER > before.txt

Run it before and after such a change, in two new folders on one machine, and compare:
every line must be the same. All kinds of study, with fixed seeds, two arms, both units,
the routes of PCA and ICA, and the notebook's verbs on arrays. A site's noise depends on
its seed and on the identity of the study, which is pinned here: what keys a study file
has may change, what it releases may not. Four minutes. Digests of other machines
differ, since their matrix products round otherwise.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel
import numpy as np
import yaml

import capeneuro as cn
from capeneuro import cli
from capeneuro.config.study import StudyConfig
from capeneuro.privacy import noise
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
    "patterns": (
        "mixture",
        {"budget": BUDGET, **ROWS},
    ),
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
# Of the privacy record what changes with libraries or with when files were packed.
VERSIONS = {"versions", "digests", "digest"}
STAGES = ("pca", "ica", "cca", "tensors", "patterns")
STAGES += ("regression", "network", "contrast")


def main() -> None:
    """Run all cases in a folder and print the digests of what they wrote."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[*CASES, "verbs"])
    options = parser.parse_args()
    pin()
    options.folder.mkdir(parents=True)
    os.chdir(options.folder)
    for case in [name for name in options.only if name in CASES]:
        for arm in ARMS:
            run(case, arm)
            for line in digests(Path(f"results/{case}-{arm}")):
                print(line, flush=True)
            for path in sorted(Path("private").glob(f"*/{case}-{arm}/*.tsv")):
                print(path, digest(path.read_bytes()), flush=True)
    for arm in ARMS if "verbs" in options.only else ():
        print(*verb_digests(arm), sep="\n", flush=True)


def run(case: str, arm: str) -> None:
    """Write one study's files, make its data and run its steps."""
    example, changes = CASES[case]
    path = ROOT / f"config/{example}/study.yaml"
    path = path if path.exists() else ROOT / "config/config.yaml"
    content = yaml.safe_load(path.read_text())
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value}
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
    messages = io.StringIO()
    with contextlib.redirect_stdout(messages), contextlib.redirect_stderr(messages):
        failed = make_data([study])
    if case == "patterns":  # for which nobody makes data: of the people of a mixture
        del content["tensors"], content["data"], content["score"]["truth"]
        content["patterns"] = {}
        Path(study).write_text(yaml.safe_dump(content))
    steps = ["validate", *(f"prepare --site s{i}" for i in range(4))]
    steps += [s for s in STAGES if s in has(content)]
    steps += [f"{s} --reference" for s in STAGES if s in has(content)]
    steps += ["maps", *(f"reconstruct --site s{i}" for i in range(4)), "score"]
    with contextlib.redirect_stdout(messages), contextlib.redirect_stderr(messages):
        for step in steps:
            name, *options = step.split()
            failed = failed or cli.main([name, study, *options])
    if failed:
        sys.exit(messages.getvalue())


def has(content: dict[str, Any]) -> set[str]:
    """Stages of a study."""
    kinds = {"fusion": {"cca"}, "tensors": {"tensors"}}
    kinds |= {
        name: {name} for name in ("patterns", "regression", "network", "contrast")
    }
    return next((s for k, s in kinds.items() if k in content), {"pca", "ica"})


def pin() -> None:
    """Give studies the identities of their names alone."""
    StudyConfig.identity = property(lambda study: f"{study.study}:pinned")


def verb_digests(arm: str) -> list[str]:
    """Digests of what the notebook's verbs return of made arrays, in one arm."""
    rng = np.random.default_rng(0)
    # Privacy: noise from a seed hides nothing; these are made numbers, of this process.
    noise.os = SimpleNamespace(urandom=np.random.default_rng(1).bytes)
    x = rng.uniform(-1, 1, (4, 600))
    y = 40 + 5 * (np.array([2.0, -1.0, 0.0, 1.0]) @ x) + rng.standard_normal(600)
    is_patient = rng.integers(0, 2, 600)
    groups = 0.9 * np.eye(4)[rng.integers(3, size=600)].T
    groups += 0.05 * rng.standard_normal(groups.shape)
    counts = rng.multinomial(12, rng.dirichlet(np.full(6, 0.3)), 600).T
    maps = np.kron(np.diag([1.0, 0.8, 0.6]), np.ones((4, 1)))
    scans = [maps @ rng.laplace(size=(3, 30)) for _ in range(600)]

    def sites(*rows: np.ndarray) -> Any:
        return federated([column[:, None] for column in np.vstack(rows).T])

    def federated(people: list[np.ndarray]) -> Any:
        budget = cn.Budget(50, 1e-5, unit="subject")
        parts = {f"s{k}": people[k::4] for k in range(4)}
        return cn.federate(parts, budget, arm, accept="bytes are compared")

    scanned = federated(scans)
    subspace = cn.principal_subspace(scanned, 3, norm_bound=4, share=0.5)
    results = {
        "principal_subspace": subspace,
        "infomax": cn.infomax(scanned, subspace),
        "spatial_components": cn.spatial_components(subspace),
        "canonical_directions": cn.canonical_directions(sites(x, y / 40), 1, 4, (2, 2)),
        "pattern_components": cn.pattern_components(sites(x), 2, 2.0),
        "mixture_components": cn.mixture_components(sites(groups), 3, 1.0),
        "topic_components": cn.topic_components(sites(counts), 2),
        "linear_model": cn.linear_model(sites(x, y), 2.0, (20.0, 60.0)),
        "train_network": cn.train_network(sites(x, y > 40), 1.2, n_rounds=10),
        "linear_contrasts": cn.linear_contrasts(
            sites(x, is_patient),
            {"patient": {"groups": (0, 1)}},
            np.zeros(4),
            np.eye(4),
        ),
        "cross_validate": cn.cross_validate(sites(x, y), 2.0, (20.0, 60.0)),
    }
    return [
        f"verbs {arm} {verb}:{name} {digest(np.ascontiguousarray(value).tobytes())}"
        for verb, result in results.items()
        for name, value in sorted(vars(result).items())
        if value is not None and np.asarray(value).dtype != object
    ]


def digests(folder: Path) -> list[str]:
    """Released arrays, images and tables of a folder, and what was charged."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npz":
            arrays = np.load(path)
            for name in sorted(set(arrays.files) - {"releases", "sites", "stamp"}):
                form = f"{arrays[name].dtype}{arrays[name].shape}"
                lines.append(f"{path}:{name} {form} {digest(arrays[name].tobytes())}")
        elif path.name.endswith(".nii.gz"):
            lines.append(f"{path} {digest(nibabel.load(path).get_fdata().tobytes())}")
        elif path.suffix == ".tsv":
            lines.append(f"{path} {digest(path.read_bytes())}")
        elif path.name == "privacy.json":
            record = json.loads(path.read_text())
            for key in VERSIONS & record.keys():
                del record[key]
            for key, value in sorted(record.items()):
                text = json.dumps(value, sort_keys=True)
                lines.append(f"{path}:{key} {digest(text.encode())}")
    return lines


def digest(raw: bytes) -> str:
    """Short name of bytes."""
    return hashlib.sha256(raw).hexdigest()[:16]


if __name__ == "__main__":
    main()
