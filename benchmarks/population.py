"""The sizes of a biobank: time, memory and disk of the steps inside a site.

    python -m benchmarks.population [--folder DIR] [--only voxels peers template]

Volumes are simulated: smooth maps whose energies fall as a power law, and noise of
single voxels, written as int16 ``.nii.gz`` at 3 mm (69,765 voxels in the brain). The
study's own commands run on them as in :mod:`benchmarks.whole_brain`, two sites at a
time, on two cores. Parts:

- ``voxels``: PCA of whole brains, ``--people`` of 100 volumes (1,600 take 63 GB while
  it runs), against reading all files once, and what is left of an eigenvector's error;
- ``peers``: the same of 60 people beside scikit-learn's IncrementalPCA, nilearn's
  multi-subject PCA and the exact eigenvectors;
- ``template``: 53 maps, 490 volumes, 12 to 132 people, of whom 24 are simulated and the
  others have the same volumes, told apart by their last bytes: what a person more
  costs, beside reading their files bare, and how the cost grows over a decade of people
  more.
"""

import argparse
import gzip
import json
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
from tqdm import tqdm

from benchmarks.whole_brain import (
    SITES,
    head,
    prepared,
    row,
    run,
    step,
    subspace,
    write_study,
)
from capeneuro.data import files, nifti

PARTS = ("voxels", "peers", "template")
# Of the published run that this is set beside, GIFT's [Rachakonda 2016]: 1,600 people.
K, N_VOLUMES, N_PEERS = 75, 100, 60
# Twice as many components as are looked for: no gap behind the last.
N_MAPS, N_TEMPLATE, N_LONG = 150, 53, 490
# People of `template`, and those of a site whose files are simulated.
SIZES, N_DISTINCT = (12, 24, 132), 6
NORM_BOUND = 600.0  # [% of voxels' means], root mean square norm of a volume


def main() -> None:
    """Run the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where data go, and stay")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--people", type=int, default=1600, help="of `voxels`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = (options.folder or Path(temporary)).resolve()
        if "template" in options.only:
            template(base)
        if "peers" in options.only:
            peers(base)
        if "voxels" in options.only:
            voxels(base / "voxels", options.people)


# --- simulated people ----------------------------------------------------------------


def maps(n_maps: int) -> np.ndarray:
    """Smooth public maps in the brain, (n_voxels, n_maps), of peak 1."""
    mask = nifti.cropped_brain(3.0)
    inside = np.argwhere(np.asarray(mask.dataobj) > 0)
    rng = np.random.default_rng(0)
    centers = inside[rng.choice(len(inside), n_maps)]
    widths, M = rng.uniform(2, 4, n_maps), np.zeros((len(inside), n_maps), "f4")
    # One by one: a process that is started counts what this one held as its own.
    for k in range(n_maps):
        squares = np.square(inside - centers[k]).sum(axis=1)
        M[:, k] = np.exp(-squares / (2 * widths[k] ** 2))
    return M


def write_person(folder: Path, n_volumes: int, site: str, i: int) -> None:
    """Simulate a person's run and write it."""
    label = f"sub-{i + 1:05}"
    path = folder / "data" / site / label / "func" / f"{label}_task-rest_bold.nii.gz"
    if path.exists():
        return
    if n_volumes == N_LONG and i >= N_DISTINCT:
        # The same volumes with whose they are behind them: `check` and `prepare` look
        # for files with one content, and would read all of them.
        first = str(path).replace(label, f"sub-{i % N_DISTINCT + 1:05}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic(path) as part:
            whose = gzip.compress(f"{site} {label}".encode())
            part.write_bytes(Path(first).read_bytes() + whose)
        return
    mask = nib.load(folder / "data" / "mask.nii.gz")
    inside = np.asarray(mask.dataobj) > 0
    rng = np.random.default_rng([SITES.index(site), i])
    M = np.load(folder / "maps.npy", mmap_mode="r")
    deviations = 2 / np.sqrt(np.arange(1, M.shape[1] + 1))  # [%]
    T = rng.standard_normal((M.shape[1], n_volumes), dtype="f4")
    X = M @ (deviations[:, None] * T).astype("f4")
    X += 2 * rng.standard_normal(X.shape, dtype="f4")
    volumes = np.zeros((*mask.shape, n_volumes), "i2", order="F")
    volumes[inside] = np.rint(1000 + 10 * X)
    image = nib.Nifti1Image(volumes, mask.affine)
    image.header.set_zooms([3, 3, 3, 2])
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.atomic(path) as part:
        nib.save(image, part)


def simulated(folder: Path, n_people: int, n_volumes: int) -> None:
    """Simulate the people of a folder, but those who are there already."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    nib.save(nifti.cropped_brain(3.0), folder / "data" / "mask.nii.gz")
    np.save(folder / "maps.npy", maps(N_MAPS))
    with ProcessPoolExecutor(2) as pool:
        for site in SITES:
            write = partial(write_person, folder, n_volumes, site)
            n_here = n_people // len(SITES)
            progress_bar = partial(tqdm, total=n_here, desc=f"simulate {site}")
            first = min(N_DISTINCT, n_here)  # others may have copies of these
            list(pool.map(write, range(first)))
            list(progress_bar(pool.map(write, range(n_here))))


def pca_study(name: str, **sections: dict) -> dict:
    """Content of the file of a study of PCA of voxels, some sections changed."""
    return {
        "study": name,
        "sites": [f"config/{name}/{site}.yaml" for site in SITES],
        "space": {"mask": "data/mask.nii.gz", "basis": "voxels"},
        "cleaning": {"standardize": "psc"},
        "n_components": K,
        "arm": "cape",
        "budget": {
            "epsilon": 2.0,
            "delta": 1e-5,
            "unit": "sample",
            "relation": "replace-one",
        },
        "accept": [{"rule": "noise", "reason": "what it costs is measured"}],
        "pca": {"norm_bound": NORM_BOUND, "method": "power", "start_grid": 6},
        "ica": {"independence": "spatial", "clip": 1.0},  # PCA has the whole budget
        **sections,
    }


def cells(cost: Sequence[float], reading: Sequence[float]) -> list[str]:
    """Cells of a step: clock, processor, both over those of reading, peak memory."""
    clock, processor, peak = cost
    ratios = f"{clock / reading[0]:.2f} ({processor / reading[1]:.2f})"
    return [f"{clock:.0f}", f"{processor:.0f}", ratios, f"{peak:.2f}"]


def read(folder: Path) -> np.ndarray:
    """Read all files of a folder once, as `nibabel` does; cost."""
    return run(folder, ["-m", "benchmarks.whole_brain", "--child", "read"], 1)


def size(folder: Path) -> float:
    """Size of a folder [GB]."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e9


# --- whole brains --------------------------------------------------------------------


def voxels(folder: Path, n_people: int) -> None:
    """Print the cost of PCA of whole brains, and how far its directions are from done.

    The files are deleted once they are read.
    """
    simulated(folder, n_people, N_VOLUMES)
    write_study(folder, "whole", pca_study("whole"))
    print(f"\n{n_people} people, files of {size(folder / 'data'):.1f} GB")
    reading = read(folder)
    preparing = prepared(folder, "whole")
    features_size = size(folder / "private")
    exact_pca = step(folder, "whole", "pca", "--threads", "2", "--reference")
    private_pca = step(folder, "whole", "pca", "--threads", "2")
    record = folder / "results/whole/reference/privacy.json"
    rounds = len(json.loads(record.read_text())["releases"])
    total = np.array([*(preparing + exact_pca)[:2], max(preparing[2], exact_pca[2])])
    head("step", "s", "processor s", "over reading", "peak GiB")
    row("reading all files once", *cells(reading, reading))
    row(f"prepare, keeps {features_size:.1f} GB", *cells(preparing, reading))
    row(f"pca without privacy, {rounds} rounds", *cells(exact_pca, reading))
    row("both", *cells(total, reading))
    row("pca, epsilon 2, 3 rounds", *cells(private_pca, reading))
    V = subspace(folder, "whole/reference")
    values, error = residual(folder, "whole", V)
    print(
        f"\neigenvalues {values[0]:.4g} to {values[-1]:.4g}; largest "
        f"|C v - v'Cv v| {error[:60].max():.1e} of an eigenvalue up to the 60th, "
        f"{error.max():.1e} of all"
    )
    shutil.rmtree(folder)


def residual(folder: Path, name: str, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Energies v'Cv of directions, and the length of ``C v - v'Cv v`` as a share."""
    Q, CQ, n = np.linalg.qr(V)[0].astype("f4"), np.zeros(V.shape), 0
    for site in SITES:
        path = folder / "private" / site / name / "projected.npz"
        for X in tqdm(files.Features(path).values(), desc="residual"):
            CQ += X @ (X.T @ Q)
            n += X.shape[1]
    CQ /= n
    values, vectors = np.linalg.eigh(Q.T @ CQ)
    values, vectors = values[::-1], vectors[:, ::-1]
    R = CQ @ vectors - Q @ vectors * values
    return values, np.linalg.norm(R, axis=0) / values


# --- peers ---------------------------------------------------------------------------


def peers(base: Path) -> None:
    """Print the cost and the energy of ours, of peers, and of exact eigenvectors."""
    folder = base / "peers"
    simulated(folder, N_PEERS, N_VOLUMES)
    write_study(folder, "private", pca_study("private"))
    reading = read(folder)
    preparing = prepared(folder, "private")
    pca = step(folder, "private", "pca", "--threads", "2", "--reference")
    total = np.array([*(preparing + pca)[:2], max(preparing[2], pca[2])])
    costs, directions = {"ours": total}, {}
    child = ["-m", "benchmarks.whole_brain", "--child"]
    names = {"incremental": "scikit-learn IncrementalPCA, a person a batch"}
    names["multi"] = "nilearn multi-subject PCA"
    for name, title in names.items():
        costs[title] = run(folder, [*child, name, "private", str(K)])
        directions[title] = np.load(folder / f"{name}.npy")
    directions["ours"] = subspace(folder, "private/reference")
    # Last: a process that is started counts what this one held at that time as its own.
    best = energy(folder, exact(folder))
    head(f"{N_PEERS} people", "s", "processor s", "over reading", "peak GiB", "energy")
    for title, cost in costs.items():
        share = energy(folder, directions[title]) / best
        row(title, *cells(cost, reading), f"{share:.6f}")


def features(folder: Path) -> np.ndarray:
    """All volumes of a folder's people, (n_voxels, n_volumes)."""
    paths = [folder / "private" / site / "private/projected.npz" for site in SITES]
    return np.hstack([X for path in paths for X in files.Features(path).values()])


def exact(folder: Path) -> np.ndarray:
    """Exact directions of most energy, by the Gram matrix of volumes."""
    X = features(folder)
    vectors = np.linalg.eigh(X.T.astype("f8") @ X)[1][:, ::-1][:, :K]
    return np.linalg.qr(X @ vectors)[0]


def energy(folder: Path, V: np.ndarray) -> float:
    """Energy of all volumes that directions hold."""
    return float(np.square(np.linalg.qr(V)[0].T @ features(folder)).sum())


# --- a template ----------------------------------------------------------------------


def template(base: Path) -> None:
    """Print the cost of `prepare` of a template study against the number of people."""
    costs = []
    head("people", "reading, s", "prepare, s", "over reading", "peak GiB", "kept, kB")
    for n_people in SIZES:
        folder = base / f"template-{n_people}"
        simulated(folder, n_people, N_LONG)
        atlas = np.zeros((*nifti.cropped_brain(3.0).shape, N_TEMPLATE), "f4")
        mask = nib.load(folder / "data/mask.nii.gz")
        atlas[np.asarray(mask.dataobj) > 0] = maps(N_TEMPLATE)
        nib.save(nib.Nifti1Image(atlas, mask.affine), folder / "template.nii.gz")
        space = {"mask": "data/mask.nii.gz", "basis": "template"}
        space["basis_file"] = "template.nii.gz"
        moment = {"norm_bound": NORM_BOUND, "method": "moment"}
        content = pca_study("maps", space=space, pca=moment, n_components=20)
        write_study(folder, "maps", content)
        reading = read(folder)
        preparing = prepared(folder, "maps")
        features = [folder / "private" / s / "maps/projected.npz" for s in SITES]
        kilobytes = sum(path.stat().st_size for path in features) / n_people / 1e3
        _, processor, ratios, peak = cells(preparing, reading)
        row(n_people, f"{reading[1]:.1f}", processor, ratios, peak, f"{kilobytes:.0f}")
        costs.append((n_people, preparing[1], reading[1]))
        shutil.rmtree(folder)
    # The start of four processes weighs on few people, so all is less the fewest.
    increments = np.array(costs[1:]) - costs[0]
    for n, ours, bare in increments:
        print(f"{n:.0f} people more: {ours / n:.3f} s of a processor each, ", end="")
        print(f"reading bare {bare / n:.3f}")
    slope = np.log(increments[-1, 1] / increments[0, 1]) / np.log(
        increments[-1, 0] / increments[0, 0]
    )
    print(f"slope of the logarithms: {slope:.2f}")


if __name__ == "__main__":
    main()
