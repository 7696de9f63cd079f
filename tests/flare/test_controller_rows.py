"""A study of rows over mutual TLS: tensors, whose second release sites reduce first."""

import contextlib
import shutil

import numpy as np
import parties
import pytest
import yaml
from parties import SITES, STUDY, said
from tiny_study import command

from capeneuro.data import files
from capeneuro.studies import tensors

pytest.importorskip("nvflare")

RESULT = tensors.KIND.own.file
STUDY_FILE = {
    "study": "kinds",
    "sites": [f"{name}.yaml" for name in SITES],
    "federation": "nvflare",
    "expected": {"people": 180},
    "arm": "cape",
    "budget": {
        "epsilon": 50.0,
        "delta": 1e-5,
        "unit": "subject",
        "relation": "replace-one",
        "n_colluding": 0,
    },
    "space": None,
    "rows": {"features": {"kind": "table", "features": "features.tsv"}},
    "n_components": 2,
    "tensors": {"projected": True},
}


def write_parties(root, rng) -> None:
    """All of the study in ``root/together``, and each party's part beside it."""
    together = root / "together"
    together.mkdir(parents=True)
    names = [f"score_{i}" for i in range(6)]
    with contextlib.chdir(together):
        (together / STUDY).write_text(yaml.safe_dump(STUDY_FILE))
        rows = ([name, -2, 2] for name in names)
        files.write_table(together / "features.tsv", ["feature", "low", "high"], rows)
        centers = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 1, -1, 0]])
        for name in SITES:
            X = centers[rng.integers(0, 2, 60)] + 0.3 * rng.standard_normal((60, 6))
            own = ([f"sub-{i}", *map("{:.4f}".format, x)] for i, x in enumerate(X))
            files.write_table(together / f"{name}.tsv", ["participant_id", *names], own)
            site = {"name": name, "images": f"{name}.tsv", "data": "simulated"}
            site |= {"epsilon": 50.0, "delta": 1e-5, "unit": "subject", "seed": 5}
            site |= {"ledger": f"private/{name}/ledger", "min_colluding": 0}
            (together / f"{name}.yaml").write_text(yaml.safe_dump(site))
        assert command("validate", STUDY) == 0
        for name in SITES:
            assert command("prepare", STUDY, "--site", name) == 0
            shutil.copytree(f"private/{name}", root / name / "private" / name)
            shutil.copy(f"{name}.yaml", root / name)
        (root / "aggregator").mkdir()
        for party in ("aggregator", *SITES):
            shutil.copy(STUDY, root / party)
            shutil.copy("features.tsv", root / party)
        assert command("tensors", STUDY) == 0
    parties.join_all(root, SITES)


def test_tensors_across_processes_are_those_of_one(tmp_path, rng):
    root = tmp_path / "root"
    write_parties(root, rng)
    parties.make_kits(root / "together", parties.free_port())
    kits = root / "together/kits"
    with contextlib.ExitStack() as stack:
        for name in SITES:
            stack.enter_context(parties.site(root, kits, name))
        drive = stack.enter_context(parties.aggregate(root, kits, patience=90))
        assert drive.wait(120) == 0, said(root / "aggregator")
    here, there = (root / who / "results/kinds" for who in ("aggregator", "together"))
    assert (here / RESULT).read_bytes() == (there / RESULT).read_bytes()
    assert [parties.n_charged(root, name) for name in SITES] == [2, 2, 2]
    found = files.read_arrays(here / RESULT)
    np.testing.assert_allclose(found["weights"], 0.5, atol=0.15)
