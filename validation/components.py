"""How often components and patterns are told where there is nothing to find.

    python -m validation.components [--draws 200]

Studies of three sites in which nothing is to be found: white volumes, volumes of a
decaying spectrum without independent sources (normal in time, of random maps); and with
sparse sources, what is told of them. Both units, spatial and temporal components, and
patterns of people. A false alarm is a study with any verdict "above noise"; the stated
level is :data:`.verdicts.LEVEL`. Beside it the rule of before: the share of each map
along directions above privacy's noise alone.
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


def told(study: Study, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which components one study tells, now and before."""
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
    return verdicts.of_components(V, U).above, as_before(V, U)


def main() -> None:
    """Measure, and print one line a setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    given = parser.parse_args()
    print("data unit independence epsilon studies_that_tell before share_told before")
    for data in ("white", "no sources", "sources"):
        for unit in ("sample", "subject"):
            for independence in ("spatial", "temporal"):
                for epsilon in (1.0, 8.0):
                    study, found = Study(data, unit, independence, epsilon), []
                    draws = range(given.draws)
                    for draw in tqdm(draws, str(study), leave=False, disable=None):
                        rng = np.random.default_rng(draw)
                        found.append(told(study, rng))
                    now, before = np.array(found).transpose(1, 0, 2)
                    rates = now.any(1), before.any(1), now, before
                    said = [f"{rate.mean():.3f}" for rate in rates]
                    about = f"{epsilon:g}"
                    print(data, unit, independence, about, *said, sep="\t", flush=True)


if __name__ == "__main__":
    main()
