"""How often components are told where they are, and where nothing is to be found.

    python -m evidence.truth.components --data demo --draws 10
    python -m evidence.truth.components --data smooth white --draws 60
    python -m evidence.truth.components --data abide --draws 4 [--picture]
    python -m evidence.truth.components --data maps --draws 60

demo
    The demo study (its features are read where ``capeneuro run config/config.yaml``
    left them), released anew: how many of ten components are told, and what is said of
    their agreement with the run without privacy beside what came, at once, twice and
    four times the noise.
smooth, white
    Normal noise and nothing else, smoothed by Gaussian kernels on 6 x 6 x 6 and 12 x 12
    features; a false alarm is a study in which any component is told.
images
    The demo study by its command, on NIfTI images of smoothed normal noise; kernels in
    voxels, of which a feature is a cube of two.
abide
    Real people (128 of 11 sites, 200 parcels), as if they were 450 to 5,000: each draw
    leaves out a quarter of them. What is said of each map beside its correlation with
    the map without noise.
maps
    The third gate alone, without positions: maps that are normal over features, one
    sparse map beside four normal ones, and five blocks; told is what stands apart from
    a rotation.
"""

import argparse
import contextlib
import io
import itertools
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import scipy
import yaml
from tqdm import tqdm

import capeneuro as cn
from capeneuro import linalg
from capeneuro.algorithms import halves, pca
from capeneuro.algorithms.component_verdicts import (
    HALF,
    of_components,
    with_evidence,
)
from capeneuro.algorithms.ica import Unmixing, spatial_components
from capeneuro.algorithms.verdict import ABOVE, REPRODUCIBLE
from capeneuro.data import files
from capeneuro.notebook.sites import Sites
from capeneuro.privacy import accounting
from evidence.truth import rates

DATA = "demo", "smooth", "white", "images", "abide", "maps"
WHY = "measures what is told where there is nothing"


def quietly(sites: Sites, K: int, spatial: bool, **options: float):
    """One study by the verbs, whose sentences are not printed."""
    bound = options.pop("norm_bound")
    share = None if spatial else options.pop("share", 0.5)
    with contextlib.redirect_stdout(io.StringIO()):
        subspace = cn.principal_subspace(sites, K, bound, clip=1.0, share=share)
        if spatial:
            return cn.spatial_components(subspace)
        return cn.infomax(sites, subspace, n_rounds=15, **options)


def agreement(found: Unmixing, exact: np.ndarray) -> np.ndarray:
    """Correlation of each map with the exact map that it is matched with, (R,)."""
    return halves.correlation(found.mixing, halves.matched(exact, found.mixing))


# --- the demo ------------------------------------------------------------------------


def demo(n_draws: int) -> None:
    """Release the demo study anew, with more and more noise."""
    folders = sorted(Path("private").glob("demo-*/demo/projected.npz"))
    if not folders:
        print("skipped: private/demo-1: not found; run config/config.yaml first")
        return
    people = {f.parts[1]: dict(files.Features(f).items()) for f in folders}
    arrays = files.read_arrays(Path("results/demo/group_desc-pca_subspace.npz"))
    budget = cn.Budget(2.0, 1e-5, unit="sample", n_colluding=1)
    print("independence noise told runs_of_9 said came below_.7")
    enough, off = [], []
    for spatial, times in itertools.product((False, True), (1, 2, 4)):
        epsilon = accounting.epsilon_from_mu(budget.mu / times, budget.delta)
        promised = cn.Budget(epsilon, 1e-5, unit="sample", n_colluding=1)
        options = {"norm_bound": 10.0, "share": 0.4, "clip": 2.5}
        exact = cn.federate(people, promised, "non-private")
        maps = quietly(exact, 10, spatial, **options).mixing
        told, said, came = [], [], []
        for _ in range(n_draws):
            positions = arrays["positions"]
            sites = cn.federate(people, promised, accept=WHY, positions=positions)
            found = quietly(sites, 10, spatial, **options)
            told.append(of_components(found).exceeds_noise)
            said.append(found.agreement[:, 0])
            came.append(agreement(found, maps))
        told, said, came = map(np.array, (told, said, came))
        least = np.mean(told.sum(axis=1) >= 9)
        low = came[told] < 0.7
        if times == 1:
            enough += (told.sum(axis=1) >= 9).tolist()
            off += np.abs(said - came).ravel().tolist()
        print(
            "spatial" if spatial else "temporal",
            times,
            f"{told.sum(axis=1).mean():.1f} {least:.2f} {said.mean():.3f}",
            f"{came.mean():.3f} {low.sum()} of {low.size}",
            flush=True,
        )
    rates.say("component-told/demo", np.mean(enough), len(enough))
    rates.say("agreement/demo", np.mean(off))


# --- noise and nothing else ----------------------------------------------------------


def noise(shape: tuple[int, ...], n: int, kernel: float, rng: np.random.Generator):
    """Volumes of normal noise, smoothed over a grid, of norm about 1, (features, n)."""
    X = rng.standard_normal((n, *shape))
    if kernel:
        X = scipy.ndimage.gaussian_filter(X, (0, *[kernel] * len(shape)))
    X = X.reshape(n, -1).T
    return X / np.sqrt(np.mean(np.sum(X**2, axis=0)))


def nothing(n_draws: int, kernels: list[float], epsilons: list[float]) -> None:
    """Count studies of noise in which any component is told."""
    shapes, units = ((6, 6, 6), (12, 12)), ("sample", "subject")
    studies = [*itertools.product(units, ("spatial", "temporal"), epsilons)]
    every: list[bool] = []
    print("grid kernel unit independence epsilon told_any reproducible")
    for shape, kernel in itertools.product(shapes, kernels):
        alarms, reproducible = [], []
        for draw in tqdm(range(n_draws), leave=False, disable=None):
            X = noise(shape, 6000, kernel, np.random.default_rng(draw))
            people = np.split(X, 600, axis=1)
            for unit, kind, epsilon in studies:
                sites = cn.federate(
                    {"a": people[:300], "b": people[300:]},
                    cn.Budget(epsilon, 1e-5, unit=unit),
                    accept=WHY,
                    longest=10,
                    positions=np.argwhere(np.ones(shape)),
                )
                told = cn.verdicts(quietly(sites, 10, kind == "spatial", norm_bound=1))
                alarms.append(told.exceeds_noise.any())
                reproducible.append(told.is_drawn.mean())
        every += alarms
        shares = np.reshape([alarms, reproducible], (2, n_draws, -1))
        for study, told_any, drawn in zip(studies, *shares.mean(axis=1), strict=True):
            cell = "x".join(map(str, shape)), kernel, *study
            print(*cell, f"{told_any:.3f} {drawn:.2f}", flush=True)
    data = "smooth" if any(kernels) else "white"
    rates.say(f"component-told/{data}", np.mean(every), len(every))


def images(n_draws: int, kernels: list[float]) -> None:
    """Run the demo study on images of noise, and count runs that tell any component."""
    print("kernel told reproducible")
    alarms: list[bool] = []
    for kernel, draw in itertools.product(kernels, range(n_draws)):
        rng = np.random.default_rng(draw)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree("config", Path(folder, "config"))
            shutil.copytree("data/demo", Path(folder, "data/demo"))
            for path in Path(folder, "data/demo").rglob("*_bold.nii.gz"):
                run = nib.load(path)
                sigma = (*[kernel] * 3, 0)
                V = scipy.ndimage.gaussian_filter(rng.normal(size=run.shape), sigma)
                V = 1000 + 10 * V / V.std()
                nib.save(nib.Nifti1Image(V.astype("f4"), run.affine, run.header), path)
            study = Path(folder, "config/config.yaml")
            keys = yaml.safe_load(study.read_text())
            del keys["data"], keys["score"]  # else the images were made again
            keys["pca"]["norm_bound"], keys["budget"]["epsilon"] = 20.0, 8.0
            study.write_text(yaml.safe_dump(keys))
            command = [sys.executable, "-m", "capeneuro", "run", "config/config.yaml"]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            told = files.read_table(Path(folder, "results/demo/verdicts.tsv"))
        labels = [row[-1] for row in told]
        alarms.append(ABOVE in labels)
        drawn = np.isin(labels, REPRODUCIBLE).sum()
        print(f"{kernel:g} {labels.count(ABOVE)} {drawn}", flush=True)
    rates.say("component-told/images", np.mean(alarms), len(alarms))


# --- real people ---------------------------------------------------------------------

ABIDE_CELLS = [(450, 8.0), (1000, 2.0), (1000, 4.0), (1000, 8.0), (5000, 1.0)]
ABIDE_CELLS += [(5000, 2.0)]
# Noise at the aggregator over that of a trusted curator: 11 sites, 3 of them collude.
OVER = (11 / 8) ** 0.5


class People(NamedTuple):
    """Real people: second moments of norm about 1, (M, D, D), places [mm], volumes."""

    moments: np.ndarray
    positions: np.ndarray
    n_volumes: float


def abide_people(data: Path) -> People:
    """People of ABIDE, each feature of each run scaled to variance 1."""
    moments, lengths = [], []
    for path in sorted((data / "abide_cc200").glob("*.npz")):
        for X in np.load(path).values():
            X = X.astype(float)
            X = (X - X.mean(axis=0)) / X.std(axis=0)
            moments.append(X.T @ X / len(X) / X.shape[1])
            lengths.append(len(X))
    atlas = nib.load(data / "atlases/CC200_4mm.nii.gz")
    labels = np.asarray(atlas.dataobj).astype(int)
    places = [np.argwhere(labels == k).mean(axis=0) for k in range(1, 201)]
    places = np.array(places) @ atlas.affine[:3, :3].T
    return People(np.array(moments), places, float(np.mean(lengths)))


def abide_study(
    people: People, K: int, M: int, epsilon: float, rng: np.random.Generator
) -> tuple[Unmixing, np.ndarray]:
    """A study of M such people, and the maps that it would have without noise."""
    kept = rng.permutation(len(people.moments))[: 3 * len(people.moments) // 4]
    sizes = np.linalg.norm(people.moments[kept], axis=(1, 2))
    weights = np.minimum(K**-0.5 / sizes, 1.0) / len(kept)
    C = np.tensordot(weights, people.moments[kept], axes=1)
    mu = accounting.Budget(epsilon, 1e-5, unit="subject").mu
    tau = 2**0.5 * K**-0.5 / M / mu * OVER
    packed = linalg.pack_symmetric(C)
    Y = linalg.unpack_symmetric(packed + tau * rng.standard_normal(len(packed)))
    released = pca.from_moment(pca.SecondMoment(Y, tau, M), K, 1.0)
    found = spatial_components(released)
    n_samples = M * people.n_volumes / 10
    placed = replace(released, positions=people.positions, n_samples=n_samples)
    exact = pca.from_moment(pca.SecondMoment(C, 0.0, M), K, 1.0)
    return with_evidence(found, placed), spatial_components(exact).mixing


def abide(n_draws: int, data: Path, picture: Path | None) -> None:
    """Measure what is said of each map, and what came."""
    people, every = abide_people(data), []
    print("K people epsilon told came_of_told said_of_told least_of_told")
    for K, (M, epsilon) in itertools.product((10, 20), ABIDE_CELLS):
        cell = []
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            found, exact = abide_study(people, K, M, epsilon, rng)
            told = of_components(found).exceeds_noise
            cell.append(
                np.column_stack([found.agreement, agreement(found, exact), told])
            )
        rows = np.concatenate(cell)
        every.append(rows)
        told = rows[rows[:, 4] > 0]
        numbers = [len(told) / n_draws]
        if len(told):
            numbers += [*told[:, [3, 0]].mean(axis=0), told[:, 3].min()]
        print(K, M, f"{epsilon:g}", *(f"{x:.2f}" for x in numbers), flush=True)
    rows = np.concatenate(every)
    r, low, high, came, told = rows.T
    print("said came maps")
    for start in np.arange(0.4, 1.0, 0.1):
        inside = (r >= start) & (r < start + 0.1 + (start > 0.85))
        if inside.any():
            print(f"{r[inside].mean():.2f} {came[inside].mean():.2f} {inside.sum()}")
    right = came[told > 0] >= 0.7
    inside = ((came >= low) & (came <= high))[r >= 0.6]
    print(f"r >= .7 in {right.mean():.3f} of {right.size} told; the 80% range holds")
    print(f"{inside.mean():.2f} of {inside.size} of which .6 and more is said")
    rates.say("component-told/abide", right.mean(), right.size)
    rates.say("agreement/abide", inside.mean(), inside.size)
    if picture:
        _draw(r, came, picture)


def _draw(said: np.ndarray, came: np.ndarray, path: Path) -> None:
    """What is said beside what came, a dot for each map."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color="0.6", lw=1)
    axis.scatter(said, came, s=4, color="#c44e2d", alpha=0.5, linewidths=0)
    axis.set(xlabel="agreement as estimated", ylabel="agreement with the exact map")
    figure.savefig(path, dpi=130)


# --- the third gate ------------------------------------------------------------------

FEATURES, COMPONENTS, PEOPLE, VOLUMES = 60, 5, 300, 10
# Features of the one map that is sparse where the others are normal.
SPARSE = np.arange(FEATURES) < 6
KINDS = "white", "no sources", "one source", "sources"


def people_of(data: str, rng: np.random.Generator) -> list[np.ndarray]:
    """People's volumes, (features, volumes) each, of norm about 1."""
    size = COMPONENTS, VOLUMES * PEOPLE
    X = rng.standard_normal((FEATURES, size[1])) / FEATURES**0.5
    if data != "white":
        maps = np.linalg.qr(rng.standard_normal((FEATURES, COMPONENTS)))[0]
        sources = rng.standard_normal(size)
        if data == "one source":
            normal = rng.standard_normal((FEATURES, COMPONENTS - 1))
            maps = np.linalg.qr(np.column_stack([SPARSE, normal]))[0]
        if data == "sources":
            maps = np.kron(np.eye(COMPONENTS), np.ones((FEATURES // COMPONENTS, 1)))
            maps /= np.linalg.norm(maps, axis=0)
            sources = rng.laplace(size=size) / 2**0.5
        strengths = 0.5 * 0.85 ** np.arange(COMPONENTS)
        X = 0.3 * X + maps @ (strengths[:, None] * sources)
    return np.split(X, PEOPLE, axis=1)


def apart(
    data: str, unit: str, spatial: bool, epsilon: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Components that stand apart from a rotation, and those that should, (R,)."""
    people = people_of(data, rng)
    sites = cn.federate(
        {f"site-{s}": people[s::3] for s in range(3)},
        cn.Budget(epsilon, 1e-5, unit=unit),
        accept=WHY,
        longest=VOLUMES if unit == "sample" else None,
    )
    found = quietly(sites, COMPONENTS, spatial, norm_bound=1.0)
    should = np.full(COMPONENTS, data == "sources")
    if data == "one source":
        alike = np.abs(SPARSE @ found.mixing) / np.linalg.norm(found.mixing, axis=0)
        should[alike.argmax()] = True
    return found.structure >= HALF, should


def maps(n_draws: int, epsilons: list[float]) -> None:
    """Count studies in which a normal map stands apart, and sparse ones that do."""
    print("data unit independence epsilon false_alarms found")
    every: list[float] = []
    cells = itertools.product(KINDS, ("sample", "subject"), (True, False), epsilons)
    for data, unit, spatial, epsilon in cells:
        found = [
            apart(data, unit, spatial, epsilon, np.random.default_rng(draw))
            for draw in tqdm(range(n_draws), leave=False, disable=None)
        ]
        tell, should = np.array(found).transpose(1, 0, 2)
        shares = [(tell & ~should).any(axis=1).mean()]
        every += shares * (data != "sources")
        shares += [tell[should].mean()] if should.any() else []
        kind = "spatial" if spatial else "temporal"
        print(
            data, unit, kind, f"{epsilon:g}", *(f"{r:.3f}" for r in shares), flush=True
        )
    rates.say("component-apart/normal-maps", np.mean(every), n_draws * len(every))


def main() -> None:
    """Measure, and print one line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--kernels", nargs="+", type=float, default=[0.5, 0.8, 1.2, 2])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[4.0, 32.0])
    parser.add_argument("--picture", type=Path, help="where ABIDE's figure goes")
    given = parser.parse_args()
    for data in given.data:
        if data == "demo":
            demo(given.draws)
        elif data == "abide":
            abide(given.draws, rates.DATA, given.picture)
        elif data == "maps":
            maps(given.draws, [1.0, 8.0])
        elif data == "images":
            images(given.draws, given.kernels)
        else:
            kernels = given.kernels if data == "smooth" else [0.0]
            nothing(given.draws, kernels, given.epsilons)


if __name__ == "__main__":
    main()
