"""Small studies of every kind, each party's part in a folder of its own."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import yaml
from parties import SITES, STUDY
from tiny_study import ACCEPT, command

from capeneuro.data import files

SCORES = [f"score_{i}" for i in range(6)]
ROWS = {"features": {"kind": "table", "features": "features.tsv"}}
VIEW = {"kind": "table", "norm_bound": 3.0}
KINDS = {
    # Tensors, whose second release sites reduce first.
    "tensors": {"rows": ROWS, "n_components": 2, "tensors": {"projected": True}},
    "patterns": {"rows": ROWS, "n_components": 2, "patterns": {}},
    "regression": {"rows": ROWS, "regression": {"target": "y", "bounds": [-1, 1]}},
    "network": {
        "rows": ROWS,
        "network": {"target": "g", "bounds": [0, 1], "n_rounds": 4},
    },
    "contrast": {
        "rows": ROWS,
        "contrast": {"covariates": {"g": {"groups": [0, 1]}}},
    },
    "distribution": {"rows": ROWS, "distribution": {"n_bins": 8}},
    "fusion": {
        "n_components": 2,
        "fusion": {
            "fmri": VIEW | {"features": "x.txt"},
            "eeg": VIEW | {"features": "y.txt"},
        },
    },
}


def write_kind(
    root: Path,
    kind: str,
    federation: str = "nvflare",
    names: tuple[str, ...] = SITES,
    n_rounds: int = 4,
    **budget: object,
) -> None:
    """All of a study in ``root/together``, and each party's part beside it.

    ``n_rounds`` of a network; ``budget``: further keys of the study's budget.
    """
    rng, together = np.random.default_rng(20), root / "together"
    together.mkdir(parents=True)
    own = KINDS[kind]
    if kind == "network":
        own = {**own, kind: {**own[kind], "n_rounds": n_rounds}}
    study = {
        "study": kind,
        "sites": [f"{name}.yaml" for name in names],
        "federation": federation,
        "expected": {"people": 60 * len(names)},
        "arm": "cape",
        "accept": ACCEPT,
        "space": None,
        "budget": {
            "epsilon": 50.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 0,
            **budget,
        },
        **own,
    }
    with contextlib.chdir(together):
        Path(STUDY).write_text(yaml.safe_dump(study))
        rows = ([name, -2, 2] for name in SCORES)
        files.write_table(Path("features.tsv"), ["feature", "low", "high"], rows)
        for view in "xy":
            Path(f"{view}.txt").write_text("\n".join(SCORES))
        centers = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 1, -1, 0]])
        for name in names:
            g = rng.integers(0, 2, 60)
            X = centers[g] + 0.3 * rng.standard_normal((60, 6))
            for view, Z in (("x", X), ("y", X + rng.standard_normal(X.shape))):
                people = (
                    [f"sub-{i}", *map("{:.4f}".format, z), f"{z[0] / 3:.3f}", g[i]]
                    for i, z in enumerate(Z)
                )
                head = ["participant_id", *SCORES, "y", "g"]
                files.write_table(Path(f"{view}-{name}.tsv"), head, people)
            site = {"name": name, "images": f"x-{name}.tsv", "data": "simulated"}
            site |= {"eeg": f"y-{name}.tsv"} if kind == "fusion" else {}
            site |= {"epsilon": 50.0, "delta": 1e-5, "unit": "subject", "seed": 5}
            site |= {"ledger": f"private/{name}/ledger", "min_colluding": 0}
            Path(f"{name}.yaml").write_text(yaml.safe_dump(site))
        assert command("validate", STUDY) == 0
        for name in names:
            assert command("prepare", STUDY, "--site", name) == 0
            shutil.copytree(f"private/{name}", root / name / "private" / name)
            shutil.copy(f"{name}.yaml", root / name)
        (root / "aggregator").mkdir()
        for party in ("aggregator", *names):
            for path in (STUDY, "features.tsv", "x.txt", "y.txt"):
                shutil.copy(path, root / party)
