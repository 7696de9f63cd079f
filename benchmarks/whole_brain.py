"""PCA of a whole brain of voxels: time, memory, and what the noise leaves.

    python -m benchmarks.whole_brain [--folder DIR] [--only cost peers energy ...]

Simulated 3-D data of four sites (40 people, 150 volumes, int16 ``.nii.gz``, 3 mm:
69,765 voxels in the mask), written once to the folder. The study's own commands run on
them, each in a process of its own, whose peak memory the system tells; peers read the
same files. Everybody may use two threads: BLAS of the peers, two sites at a time of
ours. Parts:

- ``cost``: reading all files once, against ``prepare`` and ``pca`` with method power;
- ``peers``: scikit-learn's IncrementalPCA and nilearn's multi-subject PCA;
- ``energy``: captured energy beside chance and beside a public basis of cubes;
- ``sweeps``: time of ``pca`` against voxels and against people;
- ``streams``: many people, drawn when they are looked at: where voxels win.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import yaml
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
SITES = [f"site-{i + 1}" for i in range(4)]
K, N_PEOPLE, N_VOLUMES, THREADS = 20, 40, 150, 2
# Root mean square norm of a volume at 3 mm, in percent; others by the root of voxels.
NORM_BOUND, VOXEL = 105.0, 3
# Edge [mm] of the cubes of the first directions and of the public basis; the root mean
# square norm of a volume of their means.
EDGE, CUBE_BOUND = 18, 6.7
PARTS = ("cost", "peers", "energy", "sweeps", "streams")


def main() -> None:
    """Run the parts and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where data go, and stay")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2, 8, 32, 1000])
    parser.add_argument("--people", type=int, default=512, help="of `streams`")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        CHILDREN[options.child[0]](*options.child[1:])
        return
    with tempfile.TemporaryDirectory() as temporary:
        base = (options.folder or Path(temporary)).resolve()
        if "cost" in options.only:
            cost(base)
        if "peers" in options.only:
            peers(base)
        if "energy" in options.only:
            energy(base, options.epsilons)
        if "sweeps" in options.only:
            sweeps(base)
        if "streams" in options.only:
            streams(options.people)


# --- studies and their commands ------------------------------------------------------


def study(base: Path, name: str, voxel: int = VOXEL, **changes: dict) -> Path:
    """Write the files of a study, simulate its data if there are none; its folder."""
    folder = base / f"{voxel}mm"
    bound = round(NORM_BOUND * (VOXEL / voxel) ** 1.5, 1)
    content = {
        "study": name,
        "sites": [f"config/{name}/{site}.yaml" for site in SITES],
        "space": {"mask": "data/mask.nii.gz", "basis": "voxels"},
        "cleaning": {"standardize": "psc"},
        "n_components": K,
        "arm": "cape",
        "budget": {"epsilon": 2.0, "delta": 1e-5, "unit": "sample"},
        "accept": [{"rule": "noise", "reason": "what it costs is measured"}],
        "pca": {"norm_bound": bound, "method": "power", "start_grid": EDGE // voxel},
        # PCA then has the whole budget.
        "ica": {"independence": "spatial", "clip": 1.0},
        "data": {
            "kind": "simtb",
            "seed": 1,
            "n_subjects": N_PEOPLE // len(SITES),
            "n_volumes": N_VOLUMES,
            "voxel_size": float(voxel),
        },
    }
    content["budget"]["relation"] = "replace-one"
    for section, keys in changes.items():
        content[section] = content[section] | keys
    write_study(folder, name, content)
    if not (folder / "data" / "mask.nii.gz").exists():  # what is written last
        run(folder, ["-m", "sim", f"config/{name}.yaml"])
    return folder


def write_study(folder: Path, name: str, content: dict) -> None:
    """Write the file of a study of simulated people, and those of its sites."""
    (folder / "config" / name).mkdir(parents=True, exist_ok=True)
    for site in SITES:
        own = {"name": site, "images": f"data/{site}", "data": "simulated"}
        own |= {"epsilon": 1e6, "delta": 1e-5, "unit": "sample"}
        own["ledger"] = f"ledgers/{name}/{site}"
        path = folder / "config" / name / f"{site}.yaml"
        path.write_text(yaml.safe_dump(own))
    (folder / "config" / f"{name}.yaml").write_text(yaml.safe_dump(content))


def run(folder: Path, arguments: Sequence[str], n_threads: int = THREADS) -> np.ndarray:
    """Run Python on arguments; [s] by the clock, [s] of processors, peak [GiB]."""
    threads = {f"{x}_NUM_THREADS": str(n_threads) for x in ("OMP", "OPENBLAS", "MKL")}
    environment = os.environ | threads | {"PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    with open(folder / "log.txt", "a") as log:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed; see log.txt in the folder")
    processors = usage.ru_utime + usage.ru_stime
    return np.array([time.perf_counter() - begin, processors, usage.ru_maxrss / 2**20])


def step(folder: Path, name: str, what: str, *options: str) -> np.ndarray:
    """Run a command of a study."""
    return run(folder, ["-m", "capeneuro", what, f"config/{name}.yaml", *options], 1)


def prepared(folder: Path, name: str, source: str | None = None) -> np.ndarray:
    """Validate and prepare a study, or give it the features of another; their cost."""
    shutil.rmtree(folder / "ledgers" / name, ignore_errors=True)
    shutil.rmtree(folder / "private" / "_aggregator" / name, ignore_errors=True)
    step(folder, name, "validate")
    begin = time.perf_counter()

    def one(site: str) -> np.ndarray:
        own = folder / "private" / site
        (own / name).mkdir(parents=True, exist_ok=True)
        target = own / name / "projected.npz"
        if source is None:
            return step(folder, name, "prepare", "--site", site)
        if not target.exists():
            os.link(own / source / "projected.npz", target)
        return np.zeros(3)

    with ThreadPoolExecutor(THREADS) as pool:  # as `snakemake --cores 2` does
        costs = np.array(list(pool.map(one, SITES)))
    clock, peaks = time.perf_counter() - begin, np.sort(costs[:, 2])
    return np.array([clock, costs[:, 1].sum(), peaks[-THREADS:].sum()])


def pca(folder: Path, name: str, *options: str) -> np.ndarray:
    """Run `pca` of a study; its ledgers, which keep every answer, are not kept."""
    found = step(folder, name, "pca", "--threads", str(THREADS), *options)
    shutil.rmtree(folder / "ledgers" / name, ignore_errors=True)
    shutil.rmtree(folder / "private" / "_aggregator" / name, ignore_errors=True)
    return found


def together(costs: Sequence[np.ndarray]) -> np.ndarray:
    """Cost of processes that run one after the other."""
    C = np.array(costs)
    return np.array([*C[:, :2].sum(axis=0), C[:, 2].max()])


def row(*cells: object) -> None:
    """Print a row of a table."""
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def head(*cells: str) -> None:
    """Print the head of a table."""
    print()
    row(*cells)
    row(*["---"] * len(cells))


# --- cost ----------------------------------------------------------------------------


def cost(base: Path) -> None:
    """Print time and memory of the steps, against reading the files once."""
    folder = study(base, "private")
    read = run(folder, ["-m", "benchmarks.whole_brain", "--child", "read"])
    ready = prepared(folder, "private")
    noisy = pca(folder, "private")
    exact = pca(folder, "private", "--reference")
    # What each command takes before it does anything.
    loads = "import capeneuro.cli, capeneuro.report.plots, nilearn.signal"
    start = together([run(folder, ["-c", loads], 1)] * (len(SITES) + 1))
    record = folder / "results/private/reference/privacy.json"
    rounds = len(json.loads(record.read_text())["releases"])
    head("step", "s", "processor s", "over reading", "peak GiB")
    rows = {
        "reading all files once": read,
        "prepare, two of four sites at a time": ready,
        "pca, epsilon 2, 3 rounds, two sites at a time": noisy,
        "prepare and pca": together([ready, noisy]),
        "of that, importing packages, five times": start,
        f"pca without privacy, {rounds} rounds": exact,
    }
    for name, (clock, processors, peak) in rows.items():
        ratio = f"{clock / read[0]:.2f} ({processors / read[1]:.2f})"
        row(name, f"{clock:.1f}", f"{processors:.1f}", ratio, f"{peak:.2f}")


def peers(base: Path) -> None:
    """Print time, memory and captured energy of the other libraries' PCA."""
    folder = study(base, "private")
    if not (folder / "results/private/reference").exists():
        prepared(folder, "private")
        pca(folder, "private", "--reference")
    best = captured(folder, subspace(folder, "private/reference"))
    head("on the same files", "s", "processor s", "peak GiB", "energy, share of best")
    names = {"incremental": "scikit-learn IncrementalPCA, a person a batch"}
    names["multi"] = "nilearn multi-subject PCA"
    for child, name in names.items():
        arguments = ["-m", "benchmarks.whole_brain", "--child", child, "private"]
        clock, processors, peak = run(folder, arguments)
        share = captured(folder, np.load(folder / f"{child}.npy")) / best
        row(name, f"{clock:.1f}", f"{processors:.1f}", f"{peak:.2f}", f"{share:.4f}")


def read_all() -> None:
    """Read all files once."""
    import nibabel as nib

    for path in tqdm(images()):
        nib.load(path).get_fdata(dtype=np.float32, caching="unchanged")


def images() -> list[Path]:
    """Return all runs of the study in the working directory."""
    return sorted(Path("data").glob("site-*/sub-*/func/*_bold.nii.gz"))


def incremental(name: str, n_components: str = str(K)) -> None:
    """Fit scikit-learn's IncrementalPCA to cleaned runs, one after the other."""
    from sklearn.decomposition import IncrementalPCA

    from capeneuro.config import load
    from capeneuro.data import nifti
    from capeneuro.studies.sites import load_sites

    chosen = load.load_study(f"config/{name}.yaml")
    site = next(iter(load_sites(chosen).values()))
    mask = nifti.read_mask(Path(chosen.space.mask))
    basis = nifti.build_basis(chosen.space, mask)
    model = IncrementalPCA(int(n_components))
    reader = nifti.RunReader(site, chosen.space, chosen.cleaning, mask)
    for path in tqdm(images()):
        model.partial_fit(reader.features(path, basis).T)
    np.save("incremental.npy", model.components_.T)


def multi(name: str, n_components: str = str(K)) -> None:
    """Fit nilearn's multi-subject PCA, the first step of its CanICA."""
    from nilearn.decomposition._multi_pca import _MultiPCA

    model = _MultiPCA(
        int(n_components),
        mask="data/mask.nii.gz",
        standardize="psc",
        detrend=True,
        smoothing_fwhm=None,
        random_state=0,
        verbose=0,
    )
    model.fit([str(path) for path in images()])
    np.save("multi.npy", model.components_.T)


CHILDREN = {"read": read_all, "incremental": incremental, "multi": multi}


# --- energy --------------------------------------------------------------------------


def subspace(folder: Path, name: str) -> np.ndarray:
    """Read the directions that a study found."""
    with np.load(folder / "results" / name / "group_desc-pca_subspace.npz") as arrays:
        return arrays["eigenvectors"]


def captured(folder: Path, V: np.ndarray) -> float:
    """Energy tr(V'CV) of the pooled second moment C of voxels, one person at a time."""
    from capeneuro.data.files import Features

    V, total, n = np.linalg.qr(V)[0].astype("f4"), 0.0, 0
    for site in SITES:
        for X in Features(folder / "private" / site / "private/projected.npz").values():
            total += np.square(V.T @ X, dtype="f8").sum()
            n += X.shape[1]
    return total / n


def energy(base: Path, epsilons: Sequence[float]) -> None:
    """Print the captured energy of both routes at equal epsilon, beside chance."""
    from capeneuro.data import basis, nifti

    folder = study(base, "private")
    if not (folder / "results/private/reference").exists():
        prepared(folder, "private")
        pca(folder, "private", "--reference")
    reference = subspace(folder, "private/reference")
    best, D = captured(folder, reference), len(reference)
    rng = np.random.default_rng(0)
    chance = captured(folder, rng.standard_normal((D, K))) / best
    edge, cubes = EDGE // VOXEL, "cubes"
    space = {"basis": "grid", "grid_size": edge}
    mask = nifti.read_mask(folder / "data/mask.nii.gz")
    made = basis.grid(np.asarray(mask.dataobj) > 0, edge)
    own = {"norm_bound": CUBE_BOUND, "method": "moment", "start_grid": None}
    study(base, cubes, space=space, pca=own)
    prepared(folder, cubes)
    pca(folder, cubes, "--reference")

    def share(name: str, synthesis=None) -> float:
        V = subspace(folder, name)
        return captured(folder, V if synthesis is None else synthesis @ V) / best

    print(f"\nchance {chance:.4f}; cubes without privacy ", end="")
    print(f"{share(f'{cubes}/reference', made.synthesis):.3f}; ", end="")
    print(f"{D} voxels, {made.n_features} cubes; best {best:.4g}")
    head("epsilon", f"{D} voxels, power", f"{made.n_features} cubes, moment")
    for epsilon in epsilons:
        name, budget = f"voxels-{epsilon:g}", {"epsilon": float(epsilon)}
        study(base, name, budget=budget)
        prepared(folder, name, "private")
        pca(folder, name)
        coarse = f"cubes-{epsilon:g}"
        study(base, coarse, space=space, pca=own, budget=budget)
        prepared(folder, coarse, cubes)
        pca(folder, coarse)
        row(
            f"{epsilon:g}", f"{share(name):.4f}", f"{share(coarse, made.synthesis):.4f}"
        )


# --- sweeps --------------------------------------------------------------------------


def sweeps(base: Path) -> None:
    """Print the time of `pca` against voxels and people, with slopes in log-log."""
    found = []
    head("voxels", "people", "pca, s", "processor s", "peak GiB")
    for voxel in (6, 5, 4, 3):
        folder = study(base, "private", voxel)
        if not (folder / "private" / SITES[-1] / "private/projected.npz").exists():
            prepared(folder, "private")
        found.append(("voxels", *sized(folder, N_PEOPLE)))
    found.append(("people", N_PEOPLE, *found[-1][2:]))
    for n_people in (20, 10, 5):
        found.append(("people", *sized(folder, n_people)))
    print()
    for what in ("voxels", "people"):
        sizes, clock, processors = np.log([f[1:] for f in found if f[0] == what]).T
        slopes = [np.polyfit(sizes, t, 1)[0] for t in (clock, processors)]
        print("slope over {}: {:.2f} (processor {:.2f})".format(what, *slopes))


def sized(folder: Path, n_people: int) -> tuple[int, float, float]:
    """Print the cost of `pca` on the first people; their number or that of voxels."""
    from capeneuro.data import files

    name, D = f"people-{n_people}", 0
    study(folder.parent, name, int(folder.name[0]))
    shutil.rmtree(folder / "results" / name, ignore_errors=True)
    step(folder, name, "validate")
    for k, site in enumerate(SITES):
        own = folder / "private" / site
        people = files.Features(own / "private/projected.npz")
        kept = list(people)[: (n_people + len(SITES) - 1 - k) // len(SITES)]
        (own / name).mkdir(exist_ok=True)
        chosen = ((person, people[person]) for person in kept)
        files.write_features(own / name / "projected.npz", chosen)
        D = len(people[kept[0]])
    clock, processors, peak = pca(folder, name)
    row(D, n_people, f"{clock:.1f}", f"{processors:.1f}", f"{peak:.2f}")
    return (D if n_people == N_PEOPLE else n_people), clock, processors


# --- streams -------------------------------------------------------------------------

# Energy of the components in a volume of norm 1 in the mean square; rest: white noise.
SIGNAL = 0.2
STREAM_VOXEL, STREAM_VOLUMES = 4, 250


class Drawn(Mapping[str, np.ndarray]):
    """People whose volumes are drawn from their own seed when they are looked at."""

    def __init__(self, names: Sequence[str], M: np.ndarray, analysis=None) -> None:
        self._names, self._analysis = names, analysis
        self._M = (M * np.sqrt(SIGNAL / np.square(M).sum())).astype("f4")

    def __getitem__(self, name: str) -> np.ndarray:
        rng, (D, R) = np.random.default_rng(int(name)), self._M.shape
        X = rng.standard_normal((D, STREAM_VOLUMES), dtype="f4")
        X *= np.float32(np.sqrt((1 - SIGNAL) / D))
        X += self._M @ rng.standard_normal((R, STREAM_VOLUMES), dtype="f4")
        return X if self._analysis is None else self._analysis @ X

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def streams(n_people: int) -> None:
    """Print the captured energy of both routes where people are many."""
    from threadpoolctl import threadpool_limits

    from capeneuro.algorithms import pca
    from capeneuro.data import basis
    from sim import grid, sources

    mask, affine = grid.head_mask_3d(STREAM_VOXEL)
    coordinates = grid.voxel_coordinates(mask, affine)
    M = sources.maps_3d(sources.named(sources.DEFAULT_20), coordinates).astype("f8")
    M *= np.sqrt(SIGNAL / np.square(M).sum())
    D, white = len(M), (1 - SIGNAL) / len(M)
    best = np.square(np.linalg.svd(M, compute_uv=False)).sum() + K * white

    def share(V: np.ndarray) -> float:
        V = np.linalg.qr(V)[0]  # the moment that people are drawn from is known
        return (np.square(M.T @ V).sum() + K * white) / best

    def timed(method: str, V: np.ndarray, begin: float) -> None:
        row(method, f"{share(V):.3f}", f"{time.process_time() - begin:.0f}")

    N, epsilon = n_people * STREAM_VOLUMES, 4.0
    print(f"\n{N} volumes of {D} voxels, epsilon {epsilon:g}; chance {K / D:.4f}")
    head("method", "energy, share of best", "processor s")
    with threadpool_limits(1):
        for edge in (4, 3):
            begin, made = time.process_time(), basis.grid(mask, edge)
            size = 1 / made.analysis.power(2).sum(axis=1)
            norm = np.square(made.analysis @ M).sum() + white * (1 / size).sum()
            federation = drawn(n_people, M, made.analysis)
            about = federation, mechanism(epsilon, 1), K, float(np.sqrt(norm))
            V = made.synthesis @ pca.principal_subspace(*about).eigenvectors
            what = f"{made.n_features} cubes of {edge * STREAM_VOXEL} mm, moment"
            timed(what, V, begin)
        begin, edge = time.process_time(), EDGE // STREAM_VOXEL
        start = pca.power_start(D, K, basis.regions(mask, 1, edge))
        about = drawn(n_people, M), mechanism(epsilon, 3), K, 1.0
        found = pca.power_subspace(
            *about, start=start, n_iterations=3, progress=lambda r: tqdm(r, "power")
        )
        timed(f"{D} voxels, power, 3 rounds", found.eigenvectors, begin)


def drawn(n_people: int, M: np.ndarray, analysis=None):
    """Sites of people who are drawn when looked at."""
    from capeneuro.federation.ledger import Ledger
    from capeneuro.federation.rules import Limits
    from capeneuro.federation.site import Site
    from capeneuro.federation.transport import InProcess
    from capeneuro.privacy import accounting

    ceiling = accounting.Budget(1e3, 1e-5, "sample", "replace-one", 0)
    sites = {}
    for k, name in enumerate(SITES):
        people = Drawn([str(i) for i in range(k, n_people, len(SITES))], M, analysis)
        lengths = dict.fromkeys(people, STREAM_VOLUMES)
        limits = Limits("simulated", min_colluding=0)
        sites[name] = Site(name, people, lengths, Ledger(None, ceiling), limits)
    return InProcess(sites, THREADS)


def mechanism(epsilon: float, n_releases: int):
    """CAPE that spends epsilon on some releases."""
    from capeneuro.federation.mechanism import Mechanism
    from capeneuro.privacy import accounting, cape

    budget = accounting.Budget(epsilon, 1e-5, "sample", "replace-one", 1)
    ratio = cape.NOISE_RATIO_PER_SITE * len(SITES)
    multiplier = np.sqrt(n_releases) / budget.mu
    return Mechanism(os.urandom(8).hex(), "cape", multiplier, budget, ratio)


if __name__ == "__main__":
    main()
