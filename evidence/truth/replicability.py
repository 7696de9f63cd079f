"""How well two halves of a study agree on components, without any privacy.

What one half of the people gives is matched with what the other gives, as a share of
what chance (a random turn of the same maps) leaves open. No private study of so many
people can be expected to do better. Means of five splits, for temporal and spatial ICA:
ABIDE (128 people at 11 sites, 200 parcels), the Haxby runs of one person, and the
simulator's sources.

    python -m evidence.truth.replicability

Writes ``replicability.tsv``; some minutes.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from capeneuro.algorithms import metrics
from capeneuro.data import files
from evidence.truth import rates
from papers.cells import abide, ica

OUT = Path(__file__).with_suffix(".tsv")
HEAD = ["data", "people", "volumes", "components", "temporal", "spatial"]
COMPONENTS, SPLITS = (5, 10, 20), 5
EXACT = {"arm": "non-private", "n_rounds": 1000, "tol": 1e-4}

People = list[np.ndarray]


def halves(
    people: People, n_people: int, n_components: int, seed: int
) -> tuple[float, float]:
    """Agreement of two halves by temporal and by spatial ICA, at most 1."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(people))[:n_people]
    maps: dict[str, list[np.ndarray]] = {"temporal": [], "spatial": []}
    norm = float(np.sqrt(np.mean(np.concatenate([X.ravel() for X in people]) ** 2)))
    bound = norm * len(people[0]) ** 0.5
    about = {"n_components": n_components, "norm_bound": bound, **EXACT}
    for own in (chosen[::2], chosen[1::2]):
        site = {"all": {str(i): people[i] for i in own}}
        for kind, found in maps.items():
            found.append(abide.maps(site, about | {"independence": kind}))
    return tuple(_agreement(*found) for found in maps.values())


def _agreement(A: np.ndarray, B: np.ndarray) -> float:
    r = float(np.abs(metrics.match(A, B)[1]).mean())
    r0 = metrics.chance_match(B)
    return (r - r0) / (1 - r0)


def data(folder: Path) -> Iterator[tuple[str, People]]:
    """Name and features of each person, (n_features, n_volumes)."""
    series = abide.load(folder / "abide_cc200")
    yield "ABIDE", [X for site in series.values() for X in site.values()]
    for name, cnr in (("simulated", 3.0), ("simulated, noisy", 0.3)):
        _, made = ica.simulate(128, 0, n_volumes=180, cnr=cnr, cube=2)
        yield name, [X for site in made.values() for X in site.values()]


def main() -> None:
    """Run all, print and write the table."""
    warnings.simplefilter("ignore")  # that ICA did not converge is a result here
    rows = []
    print(*HEAD, sep="\t")
    for name, people in data(rates.DATA):
        for R in COMPONENTS:
            for n in (8, 16, 32, 64, 128):
                work = (delayed(halves)(people, n, R, seed) for seed in range(SPLITS))
                found = np.mean(Parallel(2)(work), axis=0)
                volumes = round(np.mean([X.shape[1] for X in people]) * n)
                rows.append([name, n, volumes, R, *(f"{x:.2f}" for x in found)])
                print(*rows[-1], sep="\t", flush=True)
    files.write_table(OUT, HEAD, rows)


if __name__ == "__main__":
    main()
