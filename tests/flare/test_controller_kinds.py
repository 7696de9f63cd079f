"""Every other kind of study over one federation with mutual TLS, bit-equal to one."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import parties
import pytest
import yaml
from parties import SITES, STUDY, said
from tiny_study import ACCEPT, command

from capeneuro.audit import one_run
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.studies import registry

pytest.importorskip("nvflare")

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
        "contrast": {"covariates": {"g": {"groups": [0, 1]}}, "sites": "constants"},
    },
    "fusion": {
        "n_components": 2,
        "fusion": {
            "fmri": VIEW | {"features": "x.txt"},
            "eeg": VIEW | {"features": "y.txt"},
        },
    },
}


def write_parties(root: Path, kind: str) -> None:
    """All of the study in ``root/together``, and each party's part beside it."""
    rng, together = np.random.default_rng(20), root / "together"
    together.mkdir(parents=True)
    study = {
        "study": kind,
        "sites": [f"{name}.yaml" for name in SITES],
        "federation": "nvflare",
        "expected": {"people": 180},
        "arm": "cape",
        "accept": ACCEPT,
        "space": None,
        "budget": {
            "epsilon": 50.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 0,
        },
        **KINDS[kind],
    }
    with contextlib.chdir(together):
        Path(STUDY).write_text(yaml.safe_dump(study))
        rows = ([name, -2, 2] for name in SCORES)
        files.write_table(Path("features.tsv"), ["feature", "low", "high"], rows)
        for view in "xy":
            Path(f"{view}.txt").write_text("\n".join(SCORES))
        centers = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 1, -1, 0]])
        for name in SITES:
            g = rng.integers(0, 2, 60)
            X = centers[g] + 0.3 * rng.standard_normal((60, 6))
            for view, Z in (("x", X), ("y", X + rng.standard_normal(X.shape))):
                own = (
                    [f"sub-{i}", *map("{:.4f}".format, z), f"{z[0] / 3:.3f}", g[i]]
                    for i, z in enumerate(Z)
                )
                head = ["participant_id", *SCORES, "y", "g"]
                files.write_table(Path(f"{view}-{name}.tsv"), head, own)
            site = {"name": name, "images": f"x-{name}.tsv", "data": "simulated"}
            site |= {"eeg": f"y-{name}.tsv"} if kind == "fusion" else {}
            site |= {"epsilon": 50.0, "delta": 1e-5, "unit": "subject", "seed": 5}
            site |= {"ledger": f"private/{name}/ledger", "min_colluding": 0}
            Path(f"{name}.yaml").write_text(yaml.safe_dump(site))
        assert command("validate", STUDY) == 0
        for name in SITES:
            assert command("prepare", STUDY, "--site", name) == 0
            shutil.copytree(f"private/{name}", root / name / "private" / name)
            shutil.copy(f"{name}.yaml", root / name)
        (root / "aggregator").mkdir()
        for party in ("aggregator", *SITES):
            for path in (STUDY, "features.tsv", "x.txt", "y.txt"):
                shutil.copy(path, root / party)
    parties.join_all(root)


@pytest.fixture(scope="module")
def kits(tmp_path_factory) -> Path:
    """One federation's kits, for all the studies."""
    root = tmp_path_factory.mktemp("kits")
    write_parties(root, "tensors")
    parties.make_kits(root / "together", parties.free_port())
    return root / "together/kits"


def run_together(root: Path, kind: str) -> list[str]:
    """Run a kind's stages in this process; what they write."""
    write_parties(root, kind)
    with contextlib.chdir(root / "together"):
        kind = registry.of(load.load_study(STUDY))
        for step in kind.result_files:
            assert command(step, STUDY) == 0
        # Every kind can be attacked; what one run shows is never more than promised.
        found = one_run.attack(load.load_study(STUDY), 60, seed=1)
        assert found.n_guesses == 30 and found.epsilon <= found.promised
    return list(kind.result_files.values())


# Two releases, of which sites reduce the second, hold what the others need.
ALSO = sorted(KINDS.keys() - {"tensors"})


@pytest.mark.parametrize("kind", ALSO)
def test_every_kind_can_be_attacked(tmp_path, kind):
    assert run_together(tmp_path / "root", kind)


@pytest.mark.slow  # ICA's study is not, in test_controller.py
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_across_processes_is_that_of_one(tmp_path, kits, kind):
    root = tmp_path / "root"
    results = run_together(root, kind)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(parties.site(root, kits, name, "--once"))
            for name in SITES
        ]
        drive = stack.enter_context(parties.aggregate(root, kits, patience=90))
        assert drive.wait(120) == 0, said(root / "aggregator")
        assert [site.wait(60) for site in started] == [0, 0, 0]
    here, there = (root / who / "results" / kind for who in ("aggregator", "together"))
    for name in results:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    counts = {parties.n_charged(root, name) for name in SITES}
    assert counts == {parties.n_charged(root, "together", name) for name in SITES}
    # What the operators saw.
    told = said(root / "site-0")
    assert "finished; spent" in told and "site-0: the study is finished" in told
    page = root / f"site-0/private/site-0/{kind}/status.html"
    assert "finished" in page.read_text() and page.stat().st_mode & 0o777 == 0o600
