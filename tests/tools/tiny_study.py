"""A tiny study in files, and the command line in this process."""

import logging
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml

from capeneuro import cli
from capeneuro.config import load
from capeneuro.federation import ledger_backup
from capeneuro.studies import sites as site_files

AFFINE = np.diag([12.0, 12.0, 12.0, 1.0])
SIDE, N_VOLUMES, N_COMPONENTS = 6, 12, 3
STUDY = "config.yaml"

# What a study says that tests the steps with too few people for a result.
ACCEPT = [{"rule": "noise", "reason": "a test of the steps, not of a result"}]


def write_image(path: Path, data: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(np.asarray(data, np.float32), affine)
    image.header.set_xyzt_units("mm")  # a repetition time is nobody's word
    nib.save(image, path)
    return path


def run_path(site: int, person: int) -> Path:
    label = f"sub-{site}{person}"
    return Path(f"data/site-{site}/{label}/func/{label}_task-rest_bold.nii.gz")


def write_data(n_sites: int) -> None:
    """Common maps with Laplace time courses on a baseline, two people a site."""
    rng = np.random.default_rng(3)
    shape = (SIDE, SIDE, SIDE)
    # Maps that are constant over the grid's cubes, so that the basis holds them.
    coarse = rng.standard_normal((SIDE // 2,) * 3 + (N_COMPONENTS,))
    maps = coarse.repeat(2, 0).repeat(2, 1).repeat(2, 2)
    write_image(Path("data/truth.nii.gz"), maps)
    write_image(Path("data/mask.nii.gz"), np.ones(shape))
    for site in range(n_sites):
        for person in range(2):
            sources = rng.laplace(size=(N_COMPONENTS, N_VOLUMES))
            noise = rng.standard_normal((*shape, N_VOLUMES))
            write_image(run_path(site, person), 100 + maps @ sources + 0.1 * noise)


def site_content(index: int) -> dict:
    return {
        "name": f"site-{index}",
        "images": f"data/site-{index}",
        "data": "simulated",
        "epsilon": 50.0,
        "delta": 1e-5,
        "unit": "sample",
        "ledger": f"private/site-{index}/ledger",
    }


def study_content(n_sites: int) -> dict:
    return {
        "study": "tiny",
        "sites": [f"site-{i}.yaml" for i in range(n_sites)],
        "space": {"mask": "data/mask.nii.gz", "basis": "grid"},
        "cleaning": {"standardize": "psc"},
        "n_components": N_COMPONENTS,
        "aggregator": "independent",
        "arm": "cape",
        "accept": ACCEPT,
        "source": "made for a test",
        "budget": {
            "epsilon": 5.0,
            "delta": 1e-5,
            "unit": "subject",
            "n_colluding": 1,
            "relation": "replace-one",
        },
        "pca": {"norm_bound": 10.0},
        "ica": {"n_rounds": 3},
        "score": {"truth": "data/truth.nii.gz", "reference": True},
    }


def write_study(folder: Path, n_sites: int = 3) -> None:
    """A whole study in ``folder``, which must be the working directory."""
    write_data(n_sites)
    for i in range(n_sites):
        (folder / f"site-{i}.yaml").write_text(yaml.safe_dump(site_content(i)))
    (folder / STUDY).write_text(yaml.safe_dump(study_content(n_sites)))


def edit(path: str, key: str, value: object) -> None:
    """Change one key; dots separate sections."""
    content = yaml.safe_load(Path(path).read_text())
    *parents, last = key.split(".")
    inner = content
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    Path(path).write_text(yaml.safe_dump(content))


def make_private(path: str | Path) -> None:
    """Let a site's data be private: its ledger is begun, as its file says."""
    edit(str(path), "data", "private")
    begin(path)


def begin(path: str | Path) -> None:
    """Make the ledger of a site file, as `capeneuro ledger init` does."""
    ledger_backup.begin(site_files.open_ledger(load.load_site(Path(path))))


def command(*arguments: str) -> int:
    """Run the command line in this process, as its entry point would."""
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        return cli.main(list(arguments))
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = before


def run_steps(*steps: str, n_sites: int = 3) -> None:
    """Run steps of the study in order; each must end well."""
    for step in steps:
        if step in ("prepare", "reconstruct"):
            for i in range(n_sites):
                assert command(step, STUDY, "--site", f"site-{i}") == 0, (step, i)
            continue
        assert command(step, STUDY) == 0, step
        if step in ("pca", "ica"):
            assert command(step, STUDY, "--reference") == 0, step


def tree() -> dict[str, bytes]:
    """Every file here with its bytes, the secrets and locks of ledgers apart."""
    files = {str(p): p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    return {p: b for p, b in files.items() if not re.search(r"/(salt|key|lock)$", p)}


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """Three sites, two people each, in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    return tmp_path
