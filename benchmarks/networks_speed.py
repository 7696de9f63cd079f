"""Time and memory of one person's named networks, on one core.

    python -m benchmarks.networks_speed [--repeats 5]

A simulated person of 60,000 voxels, 200 volumes and 53 networks, whose maps are the
template's moved by a voxel or two, with sources that no template has and noise ten
times a network's deviation. A process of its own for each way: the median seconds of
each part over repeats, and how far the process' memory rose above what it was with the
data and the template in float32 (the system's peak). ``reading`` is the person's run
as int16 ``.nii.gz`` by nibabel, to compare.
"""

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro.persons import constrained_ica
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.persons.named_networks import NetworkOptions, person_networks

SIDE, N_VOXELS, T, R, N_OTHERS, NOISE = 49, 60_000, 200, 53, 15, 10.0
TR = 2.0


def main() -> None:
    """Measure each way in a process of its own and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print("| part | seconds | memory added [MB] |\n|---|---|---|")
    for name in WAYS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, megabytes = pool.apply(measure, (name, options.repeats))
        print(f"| {name} | {seconds:.2f} | {megabytes:.0f} |")
    with threadpool_limits(1):
        X, A, own = person()
        for tolerance in (0.1, 0.03, 0.01, 0.003, 0.001):
            begin = time.perf_counter()
            result = constrained_ica.guided_components(
                X, A, constrained_ica.GuidedOptions(tolerance=tolerance)
            )
            print(
                f"tolerance {tolerance:g}: {time.perf_counter() - begin:.2f} s, "
                f"{result.n_steps.mean():.1f} steps (at most {result.n_steps.max()}), "
                f"{result.converged.mean():.2f} converged, mean objective "
                f"{result.end.mean():.4f} from {result.start.mean():.4f}, "
                f"r of maps with the truth {similarity(result.maps, own):.4f}"
            )
        print(f"dual regression: {similarity(dual_regression(X, A)[1], own):.4f}")


def person() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (n_voxels, T), template and true maps (n_voxels, R), float32."""
    rng = np.random.default_rng(0)
    grid = np.indices((SIDE,) * 3).reshape(3, -1).T.astype(np.float32)
    middle = (SIDE - 1) / 2
    grid = grid[np.argsort(((grid - middle) ** 2).sum(axis=1))[:N_VOXELS]]

    def blobs(centers: np.ndarray) -> np.ndarray:
        """One map of two blobs for each pair of centers, (n_voxels, n)."""
        maps = np.zeros((len(grid), len(centers)), np.float32)
        for k, pair in enumerate(centers):
            for center in pair:
                distance = ((grid - center) ** 2).sum(axis=1)
                maps[:, k] += np.exp(-distance / (2 * 3.0**2))
        return maps / maps.std(axis=0)

    centers = rng.choice(grid, (R, 2))
    own = blobs(centers + rng.normal(0, 1, centers.shape))
    maps = np.hstack([own, blobs(rng.choice(grid, (N_OTHERS, 2)))])
    S = rng.standard_normal((R + N_OTHERS, T), np.float32)
    X = maps @ S
    X += NOISE * rng.standard_normal(X.shape, np.float32)
    return X, blobs(centers), own


def similarity(maps: np.ndarray, truth: np.ndarray) -> float:
    """Mean correlation of maps with true ones, column by column."""
    rows = zip(maps.T, truth.T, strict=True)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in rows]))


def measure(name: str, repeats: int) -> tuple[float, float]:
    """Median seconds of a way and the peak memory it added [MB]; on one core."""
    X, A, _ = person()
    run = WAYS[name](X, A)
    with threadpool_limits(1):
        # So far the peak is the simulation's.
        before = settled()
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    return statistics.median(times), peak() - before


def settled() -> float:
    """Memory of this process now [MB]; its peak is counted from here on."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """Largest memory of this process since :func:`settled` [MB]."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reading(X: np.ndarray, A: np.ndarray) -> Callable[[], object]:
    """Read the person's run, written once."""
    volumes = np.zeros((SIDE**3, T), np.int16)
    volumes[: len(X)] = np.clip(X * 500, -32000, 32000)
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "run.nii.gz"
    image = nib.Nifti1Image(volumes.reshape(SIDE, SIDE, SIDE, T), np.eye(4))
    nib.save(image, path)

    def read(folder: object = folder) -> np.ndarray:
        return nib.load(path).get_fdata(dtype=np.float32)

    return read


def networks(method: str, **options: object) -> Callable[..., Callable[[], object]]:
    """All of a person: maps, courses, connectivity, spectra, windows and states."""
    chosen = NetworkOptions(method=method, band=(None, 0.15), max_lag=4.0, **options)
    centroids = np.random.default_rng(1).standard_normal((5, R * (R - 1) // 2)) / 5
    return lambda X, A: lambda: person_networks(X, A, TR, chosen, centroids=centroids)


WAYS: dict[str, Callable[[np.ndarray, np.ndarray], Callable[[], object]]] = {
    "reading": reading,
    "whitening": lambda X, A: lambda: constrained_ica.whiten(X),
    "GIG-ICA": lambda X, A: lambda: constrained_ica.guided_components(X, A),
    "dual regression": lambda X, A: lambda: dual_regression(X, A),
    "a person by GIG-ICA": networks("gig-ica"),
    "a person by dual regression": networks("dual-regression"),
}


if __name__ == "__main__":
    main()
