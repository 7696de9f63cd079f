"""How often components and patterns are told where there is nothing to find.

    python -m evidence.truth.components [--draws 200]

Studies of three sites in which nothing is to be found: white volumes, volumes of a
decaying spectrum without independent sources (normal in time, of random maps), also
beside one sparse map; and with sparse sources, what is told of them. Both units,
spatial and temporal components. A false alarm is a study with any verdict "above noise"
of a component that is none; the stated level is :data:`.verdicts.LEVEL`. Beside it the
rule of before: the share of each map along directions above privacy's noise alone.
"""

import argparse
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import capeneuro as cn
from capeneuro.algorithms import shrinkage, verdicts
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.pca import Subspace

FEATURES, COMPONENTS, PEOPLE, VOLUMES = 60, 5, 300, 10
# Features of the one map that is sparse where the others are normal.
SPARSE = np.arange(FEATURES) < 6
DATA = "white", "no sources", "one source", "sources"
WHY = "measures what is told where there is nothing"


class Study(NamedTuple):
    """What one draw is."""

    data: str
    unit: str
    independence: str
    epsilon: float


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
            maps = maps * 0
            each = FEATURES // COMPONENTS
            for k in range(COMPONENTS):
                maps[k * each : (k + 1) * each, k] = each**-0.5
            sources = rng.laplace(size=size) / 2**0.5
        strengths = 0.5 * 0.85 ** np.arange(COMPONENTS)
        X = 0.3 * X + maps @ (strengths[:, None] * sources)
    return np.split(X, PEOPLE, axis=1)


def as_before(V: Subspace, U: Unmixing) -> np.ndarray:
    """Which components stood above privacy's noise alone."""
    found = shrinkage.reliabilities(V.spectrum, V.noise_deviation, len(U.W))
    loadings = V.eigenvectors.T @ U.mixing
    loadings /= np.linalg.norm(loadings, axis=0)
    return found @ loadings**2 >= verdicts.HALF


def told(study: Study, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Which components one study tells, now and before, and which it should."""
    people = people_of(study.data, rng)
    own = {f"site-{s}": people[s::3] for s in range(3)}
    about = {"accept": WHY}
    if study.unit == "sample":
        about["longest"] = VOLUMES
    budget = cn.Budget(study.epsilon, 1e-5, unit=study.unit)
    sites = cn.federate(own, budget, **about)
    spatial = study.independence == "spatial"
    share = None if spatial else 0.5
    V = cn.principal_subspace(sites, COMPONENTS, norm_bound=1.0, share=share)
    U = cn.spatial_components(V) if spatial else cn.infomax(sites, V, n_rounds=8)
    should = np.full(COMPONENTS, study.data == "sources")
    if study.data == "one source":
        alike = np.abs(SPARSE @ U.mixing) / np.linalg.norm(U.mixing, axis=0)
        should[alike.argmax()] = True
    return verdicts.of_components(V, U).exceeds_noise, as_before(V, U), should


def main() -> None:
    """Measure, and print one line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    given = parser.parse_args()
    print("data unit independence epsilon false_alarms before told before")
    for data in given.data:
        for unit in ("sample", "subject"):
            for independence in ("spatial", "temporal"):
                for epsilon in (1.0, 8.0):
                    study, found = Study(data, unit, independence, epsilon), []
                    draws = range(given.draws)
                    for draw in tqdm(draws, str(study), leave=False, disable=None):
                        rng = np.random.default_rng(draw)
                        found.append(told(study, rng))
                    now, before, should = np.array(found).transpose(1, 0, 2)
                    false = [(tell & ~should).any(1).mean() for tell in (now, before)]
                    true = [
                        tell[should].mean() for tell in (now, before) if should.any()
                    ]
                    said = [f"{rate:.3f}" for rate in (*false, *true)]
                    about = f"{epsilon:g}"
                    print(data, unit, independence, about, *said, sep="\t", flush=True)


if __name__ == "__main__":
    main()
