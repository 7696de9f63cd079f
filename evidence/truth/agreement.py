"""How far private maps agree with pooled ones, at a level of noise; fits the planner.

Whole private studies in memory, with the noise that the planner foretells for them, on
real series and simulated ones: ABIDE (128 people, 200 parcels; 48 of them), GIFT (4
people, 488 cubes), Haxby (8 runs of one person, 28 voxels of 25 mm), and the
simulator's sources with little and much noise. Each gives the share of what chance
leaves open, (r - r0) / (1 - r0), of maps matched with those of the same study without
privacy.

The planner knows only the noise's edge over the whole energy, ``e = ratio / R``. The
agreement falls as ``1 / (1 + (e / e0)^2.5)``, and e0 differs from set to set by a
factor of ten. The range is that of a new set, by a t law over the sets
[:mod:`.forecast_components`]; each set is judged by a range that was made without it.

    python -m evidence.truth.agreement [--fit] [--data ../shared/data]

Writes ``agreement.tsv``, some 40 minutes; with ``--fit`` it reads that and
prints the constants and what they hold.
"""

import argparse
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
import scipy.signal
import scipy.stats
from joblib import Parallel, delayed
from nilearn.masking import compute_epi_mask

from capeneuro.algorithms import forecast_components, metrics
from capeneuro.data import basis
from capeneuro.privacy.accounting import Budget
from papers.cells import abide, ica

OUT = Path(__file__).with_suffix(".tsv")
RATIOS = (0.03, 0.08, 0.2, 0.4, 0.7, 1.2)
N_ROUNDS, DRAWS = 15, 2
EXACT = {"arm": "non-private", "n_rounds": 1000, "tol": 1e-4}

People = list[np.ndarray]


class Row(NamedTuple):
    """One private study, and what became of it."""

    data: str
    kind: str
    components: int
    unit: str
    people: int
    draw: int
    epsilon: float
    ratio: float
    agreement: float


def data(folder: Path) -> Iterator[tuple[str, People, tuple[int, ...]]]:
    """Name, features of each person (D, T), and numbers of people to take."""
    series = abide.load(folder / "abide_cc200")
    yield "ABIDE", [X for site in series.values() for X in site.values()], (48, 128)
    for name, cnr in (("simulated", 3.0), ("simulated, noisy", 0.5)):
        _, made = ica.simulate(128, 0, n_volumes=180, cnr=cnr, cube=2)
        yield name, [X for site in made.values() for X in site.values()], (48, 128)
    images = [*map(nib.load, sorted((folder / "fmri4d_gift").glob("*_lowres.nii.gz")))]
    mask = np.all([compute_epi_mask(i).get_fdata() > 0 for i in images], axis=0)
    cubes = basis.grid(mask, 2).analysis
    yield "GIFT", [zscored(cubes @ i.get_fdata()[mask]) for i in images], (4,)
    runs = sorted((folder / "haxby_25mm").glob("task001_run*/bold_25mm.nii.gz"))
    mask = nib.load(folder / "haxby_25mm/mask_gray.nii.gz").get_fdata() > 0
    yield "Haxby", [zscored(nib.load(run).get_fdata()[mask]) for run in runs], (8,)


def zscored(X: np.ndarray) -> np.ndarray:
    """Detrended and scaled to deviation 1, feature by feature."""
    X = scipy.signal.detrend(X.astype(float), axis=1)
    s = X.std(axis=1, keepdims=True)
    return (X / np.where(s > 0, s, 1)).astype(np.float32)


def epsilon_of(design: forecast_components.Design, unit: str, ratio: float) -> float:
    """Epsilon at which noise of PCA is foretold to be so much of its signal."""
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = (low * high) ** 0.5
        budget = Budget(middle, 1e-5, unit, "replace-one", design.n_sites // 4)
        above = forecast_components.predict_subspace(design, budget).ratio > ratio
        low, high = (middle, high) if above else (low, middle)
    return high


def cells(
    name: str, people: People, numbers: tuple[int, ...]
) -> Iterator[tuple[object, ...]]:
    """All designs of a data set."""
    for kind, R, unit, M in itertools.product(
        ("spatial", "temporal"), (5, 10, 20), ("sample", "subject"), numbers
    ):
        if len(people[0]) < 2 * R or (unit == "subject" and M < 8):
            continue  # nothing is left to find, or of so few people
        S, T = min(8, M), int(np.mean([X.shape[1] for X in people]))
        share = 1.0 if kind == "spatial" else 0.5
        design = forecast_components.Design(S, M, T, len(people[0]), R, N_ROUNDS, share)
        for ratio, draw in itertools.product(RATIOS, range(DRAWS)):
            yield name, people, kind, design, unit, ratio, draw


def run(
    name: str,
    people: People,
    kind: str,
    design: forecast_components.Design,
    unit: str,
    ratio: float,
    draw: int,
) -> Row:
    """Run one private study, and the same without privacy."""
    warnings.simplefilter("ignore")  # that ICA did not converge is a result here
    R, M, T, S = design.n_components, design.n_subjects, design.n_volumes, 8
    own = [people[i] for i in np.random.default_rng(draw).permutation(len(people))[:M]]
    S = design.n_sites
    sites = {
        f"site-{k}": {str(i): X for i, X in enumerate(own) if i % S == k}
        for k in range(S)
    }
    bound = float(np.sqrt(np.mean([np.sum(X**2.0, axis=0).mean() for X in own])))
    about = {"n_components": R, "norm_bound": bound, "independence": kind}
    exact = abide.maps(sites, about | EXACT)
    options = about | {
        "arm": "cape",
        "pca_clip": forecast_components.fair_pca_clip(unit, R),
    }
    if kind == "temporal":
        clip = forecast_components.fair_clip(unit, R, T)
        options |= {"n_rounds": N_ROUNDS, "clip": clip, "pca_share": design.pca_share}
    epsilon = epsilon_of(design, unit, ratio)
    budget = Budget(epsilon, 1e-5, unit, "replace-one", S // 4)
    found = abide.maps(sites, options, budget)
    r0 = metrics.chance_match(exact)
    r = float(np.abs(metrics.match(found, exact)[1]).mean())
    share = (r - r0) / (1 - r0)
    return Row(name, kind, R, unit, M, draw, epsilon, ratio, share)


def fit(rows: pd.DataFrame) -> None:
    """Print e0 of the sets, the constants, and how often ranges hold others."""
    rows = rows.assign(e=rows.ratio / rows.components, y=rows.agreement.clip(0, 1))
    grid = np.geomspace(3e-4, 0.5, 200)

    def curve(e: np.ndarray, e0: float) -> np.ndarray:
        return 1 / (1 + (e / e0) ** forecast_components.STEEP)

    of = ["data", "kind", "components", "unit", "people"]
    found = [
        (*key, min(grid, key=lambda g: np.sum((curve(own.e, g) - own.y) ** 2)))
        for key, own in rows.groupby(of)
    ]
    groups = pd.DataFrame(found, columns=[*of, "e0"])

    def span(of_kind: pd.DataFrame) -> tuple[float, float, float]:
        logs = np.log(of_kind.e0).groupby(of_kind.data)
        n, between = logs.ngroups, logs.mean().var()
        deviation = (between * (1 + 1 / n) + logs.var().mean()) ** 0.5
        middle, t = logs.mean().mean(), scipy.stats.t.ppf(0.9, n - 1)
        return tuple(np.exp(middle + deviation * np.array([-t, 0, t])))

    print(groups.groupby(["kind", "data"]).e0.describe()[["min", "50%", "max"]])
    for kind, own in groups.groupby("kind"):
        low, middle, high = span(own)
        print(f"{kind}: e0 {low:.4f} {middle:.4f} {high:.4f}")
        for name in own.data.unique():
            low, _, high = span(own[own.data != name])
            left = rows[(rows.kind == kind) & (rows.data == name)]
            a, b = curve(left.e, low), curve(left.e, high)
            held = np.mean((left.y >= a - 0.03) & (left.y <= b + 0.03))
            print(
                f"  {name}, left out: held {held:.2f}, mean width {np.mean(b - a):.2f}"
            )


def main() -> None:
    """Run all studies, or fit what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--fit", action="store_true", help="read the table")
    given = parser.parse_args()
    if not given.fit:
        work = (delayed(run)(*cell) for d in data(given.data) for cell in cells(*d))
        rows = []
        for row in Parallel(2, return_as="generator")(work):
            rows.append(row)
            print(*row, sep="\t", flush=True)
            table = pd.DataFrame(rows, columns=Row._fields)
            table.to_csv(OUT, sep="\t", index=False, float_format="%.4g")
    fit(pd.read_csv(OUT, sep="\t"))


if __name__ == "__main__":
    main()
