"""Studies of rows in one process: from tables or maps to the report, and bad input."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml

from capeneuro import config, files, kinds
from capeneuro.consortium import load_sites
from sim.mixtures import Mixture, draw_topics, gaussian_samples, topic_counts

SITES = ("north", "south", "west")
D = 6
NAMES = [f"volume {i + 1}" for i in range(D)]
# Public bounds, each feature in a unit of its own.
LOW, HIGH = np.zeros(D), np.array([2.0, 4.0, 10.0, 1.0, 8.0, 100.0])
SLOPES = np.array([3.0, -2.0, 0.0, 0.0, 1.0, 0.0])  # of features scaled to [-1, 1]


def own_unit(x: np.ndarray) -> np.ndarray:
    """Features from rows in [-1, 1]."""
    return ((LOW + HIGH) / 2)[:, None] + ((HIGH - LOW) / 2)[:, None] * x


def write_rows(path: Path, names, X: np.ndarray, **columns) -> None:
    people = [f"sub-{path.stem}{i:04d}" for i in range(X.shape[1])]
    rows = zip(people, *X.tolist(), *map(list, columns.values()), strict=True)
    files.write_table(path, ["participant_id", *names, *columns], rows)


def write_study(folder: Path, name: str, images="data/{}.tsv", epsilon=200.0, **keys):
    """A study file with its site files; ``keys`` are its blocks."""
    sites = []
    for site in SITES:
        own = {
            "name": site,
            "images": images.format(site),
            "data": "simulated",
            "epsilon": 1e6,
            "delta": 1e-5,
            "unit": "subject",
            "ledger": f"private/{site}/{name}-ledger",
            **keys.get("site", {}),
        }
        path = folder / f"config/{name}-{site}.yaml"
        files.write_text(path, yaml.safe_dump(own))
        sites.append(str(path.relative_to(folder)))
    study = {
        "study": name,
        "sites": sites,
        "arm": "cape",
        "budget": {
            "epsilon": epsilon,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
        },
        "space": None,
        "rows": {"features": {"kind": "table", "features": "data/features.tsv"}},
        **{key: value for key, value in keys.items() if key != "site"},
    }
    path = folder / f"config/{name}.yaml"
    files.write_text(path, yaml.safe_dump(study))
    return path


def run(path: Path, force: bool = False) -> tuple[config.Study, dict]:
    """All steps of a study, from the folder that is current."""
    study = config.load(path)
    sites = load_sites(study)
    own = kinds.of(study)
    files.keep_private()
    for name, step in own.steps.items():
        more = {}
        if name == "plan":
            more = {"people": 600, "volumes": None, "features": None, "force": force}
        for site in sites if name in ("prepare", "reconstruct") else [None]:
            given = {"site": site} if site else more
            if name == row_step(study):
                if study.score.reference:
                    step(study, sites, threads=1, reference=True)
                given = {"threads": 1, "reference": False}
            step(study, sites, **given)
    return study, sites


def row_step(study) -> str:
    return next(k for k in ("tensors", "regression", "network") if hasattr(study, k))


# Centers of a mixture in [-1, 1], and how many people are of each.
CENTERS = np.array([[0.7, 0, -0.2], [0.1, 0.6, 0], [-0.2, 0.1, 0.7]])
CENTERS = np.concatenate([CENTERS, CENTERS[:, ::-1] * [1, -1, 1]], axis=1)
SHARES = np.array([0.5, 0.3, 0.2])
SHAPE = (6, 6, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Tables and images of people at three sites, and what they were made of."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    data = folder / "data"
    rows = zip(NAMES, LOW, HIGH, strict=True)
    files.write_table(data / "features.tsv", ["feature", "low", "high"], rows)
    for k, site in enumerate(SITES):
        x = np.clip(0.35 * rng.standard_normal((D, 200)), -1, 1)
        y = 50 + 4 * k + 5 * (SLOPES @ x) + 2 * rng.standard_normal(200)
        group = (SLOPES @ x + 0.3 * rng.standard_normal(200) > 0).astype(int)
        people = {"age": y.tolist(), "group": group.tolist()}
        write_rows(data / f"{site}.tsv", NAMES, own_unit(x), **people)
    w = SLOPES * 5 / (HIGH - LOW) * 2
    truth = [*zip(NAMES, w, strict=True), ("intercept", 0.0)]
    header = ["feature", "coefficient"]
    files.write_table(data / "truth/coefficients.tsv", header, truth)
    mixture, topics = Mixture(SHARES, CENTERS.T), draw_topics(12, 3, rng)
    for site in SITES:
        X = own_unit(np.clip(gaussian_samples(mixture, 0.02, 400, rng), -1, 1))
        write_rows(data / f"mixed/{site}.tsv", NAMES, X)
        counts = topic_counts(topics, 400, 12, rng)
        write_rows(data / f"words/{site}.tsv", [f"word{i}" for i in range(12)], counts)
    write_truth(data / "mixed", NAMES, Mixture(SHARES, own_unit(CENTERS.T)))
    words = [f"word{i}" for i in range(12)]
    write_truth(data / "words", words, topics)
    files.write_table(data / "words/features.tsv", ["feature"], [[w] for w in words])
    return folder


def write_truth(folder: Path, names, truth: Mixture) -> None:
    header = [f"component_{i + 1}" for i in range(len(truth.weights))]
    rows = ([n, *row] for n, row in zip(names, truth.components, strict=True))
    files.write_table(folder / "components.tsv", ["feature", *header], rows)
    rows = enumerate(truth.weights, 1)
    files.write_table(folder / "weights.tsv", ["component", "weight"], rows)


@pytest.fixture(scope="module")
def images(folder) -> Path:
    """Maps of the same people, constant over cubes of 3 voxels and fading, in BIDS."""
    rng = np.random.default_rng(1)
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    mask = np.ones(SHAPE, np.uint8)
    nib.save(nib.Nifti1Image(mask, affine), folder / "data/mask.nii.gz")
    effect = np.zeros(SHAPE)
    effect[:3, :3, :3] = 1.0
    for site in SITES:
        rows = []
        for i in range(60):
            person, a = f"sub-{site}{i:02d}", rng.uniform(-1, 1)
            volume = 0.5 + 0.2 * a * effect + 0.02 * rng.standard_normal(SHAPE)
            path = folder / f"data/bids/{site}/{person}/anat/{person}_statmap.nii.gz"
            path.parent.mkdir(parents=True)
            nib.save(nib.Nifti1Image(volume.astype("f4"), affine), path)
            sex = int(rng.integers(2))
            rows.append([person, 50 + 20 * a + 5 * sex + rng.standard_normal(), sex])
        table = folder / f"data/bids/{site}/participants.tsv"
        files.write_table(table, ["participant_id", "age", "sex"], rows)
    return folder


MAPS = {
    "space": {"mask": "data/mask.nii.gz", "basis": "grid", "grid_size": 3},
    "rows": {
        "features": {"kind": "maps", "bounds": [0.0, 1.0]},
        "covariates": {"sex": [0, 1]},
    },
    "images": "data/bids/{}",
}
BOTH = {"truth": "data/truth", "reference": True}
STUDIES = {
    "age": {"regression": {"target": "age", "bounds": [20, 80]}, "score": BOTH},
    "group": {
        "regression": {"target": "group", "bounds": [0, 1], "task": "logistic"},
        "score": {"reference": True},
    },
    "net": {
        "network": {"target": "group", "bounds": [0, 1], "n_rounds": 30},
        "score": {"reference": True},
    },
    "mixed": {
        "tensors": {},
        "n_components": 3,
        "images": "data/mixed/{}.tsv",
        "score": {"truth": "data/mixed", "reference": True},
    },
    "words": {
        "tensors": {"model": "topics"},
        "n_components": 3,
        "images": "data/words/{}.tsv",
        "space": None,
        "rows": {"features": {"kind": "table", "features": "data/words/features.tsv"}},
        "score": {"truth": "data/words", "reference": True},
    },
    "maps-age": {"regression": {"target": "age", "bounds": [20, 80]}, **MAPS},
    "maps-mixed": {"tensors": {}, "n_components": 2, **MAPS},
}
