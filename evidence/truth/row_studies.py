"""What the arms of a study of rows keep at each epsilon, over draws of the noise.

Run in the folder that holds the study's data, for example::

    python -m evidence.truth.row_studies STUDY.yaml --draws 20

Rows are read as the study's `prepare` does, sites work in memory (a person is one
sample there), and each result is compared with that of the exact arm. Public or
simulated data only: each draw would be a release.

``python -m evidence.truth.row_studies --consortium`` asks how many people at 50 sites
it takes to find two kinds that lie as in :data:`KINDS`.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.algorithms import metrics
from capeneuro.config import load
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy
from capeneuro.data.rows import Shape, find_people, open_rows, read_row
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting, cape
from capeneuro.studies import registry
from capeneuro.studies.sites import load_sites

ARMS = ("pooled", "secure_sum", "cape", "conventional", "local")
# Of the scikit-learn fit to ABIDE (sim.connectivity --look): 0.18 apart, variance
# 0.0055 in each feature, features' bounds +-0.5.
KINDS = np.array(
    [
        [-0.10, 0.21, -0.05, 0.06, -0.07, 0.00, -0.04, 0.00],
        [-0.07, 0.07, -0.04, 0.11, -0.02, -0.07, -0.03, 0.04],
    ]
).T
SHARES, VARIANCE = (0.58, 0.42), 0.0055

People = Mapping[str, tuple[np.ndarray, np.ndarray]]


def read(study: RowStudy) -> tuple[Shape, People]:
    """Rows (D, N_s) and targets (N_s,) of each site."""
    shape, found = open_rows(study), {}
    for name, site in load_sites(study).items():
        people = list(find_people(study, site, shape).values())
        X = np.concatenate([read_row(study, shape, p) for p in people], axis=1)
        found[name] = X, np.array([p.beside[0] for p in people])
    return shape, found


def draw(
    study: RowStudy, shape: Shape, people: People, epsilon: float, arm: str
) -> Any:
    """Run the study's step once, in memory; sites without a ledger on disk."""
    S, promise = len(people), study.promise
    rest = promise.delta, "sample", "replace-one", promise.n_colluding
    budget = accounting.Budget(epsilon, *rest)
    sites = {}
    for k, (name, (X, y)) in enumerate(people.items()):
        z = registry.of(study).encoder(k, S)(X, y[None])
        book = Ledger(None, budget), Limits("simulated")
        sites[name] = Site(name, {name: z}, {name: z.shape[1]}, *book, digest=name)
    stages = [
        Mechanism(
            stage,
            arm,
            (n / study.shares[stage]) ** 0.5 / budget.mu,
            budget,
            cape.NOISE_RATIO_PER_SITE * S,
        )
        for stage, n in study.n_releases.items()
    ]
    return registry.of(study).compute(InProcess(sites), stages)


def explained(found: Any, shape: Shape, people: People) -> float:
    """Share of the target's variance within sites that coefficients explain."""
    left, whole = 0.0, 0.0
    for X, y in people.values():
        p = (found.coefficients * shape.spread) @ X
        left += np.sum((y - y.mean() - p + p.mean()) ** 2)
        whole += np.sum((y - y.mean()) ** 2)
    return float(1 - left / whole)


def compare(
    study: RowStudy, epsilons: list[float], n_draws: int, arms: tuple[str, ...] = ARMS
) -> None:
    """Print a line for each arm and epsilon: the median over draws."""
    shape, people = read(study)
    exact = draw(study, shape, people, 1.0, "non-private")
    N = sum(X.shape[1] for X, _ in people.values())
    if isinstance(study, RegressionConfig):
        total = exact.coefficients.sum()
        print(f"{N} people; exact: r2 {explained(exact, shape, people):.2f}")
        print("coefficients", exact.coefficients.round(1), f"sum {total:.0f}")
    else:
        chance = np.linalg.norm(exact.components[:, 0] - exact.components[:, -1])
        print(f"{N} people; exact: weights {exact.weights.round(2)}")
        print(f"first and last component are {chance:.2f} apart, scaled")
    for arm in arms:
        for epsilon in epsilons:
            drawn = [draw(study, shape, people, epsilon, arm) for _ in range(n_draws)]
            if isinstance(study, RegressionConfig):
                r2 = [explained(d, shape, people) for d in drawn]
                sums = np.array([d.coefficients.sum() for d in drawn])
                inside = [
                    np.mean(
                        (d.intervals[told, 0] < exact.coefficients[told])
                        & (exact.coefficients[told] < d.intervals[told, 1])
                    )
                    for d in drawn
                    for told in [np.isfinite(d.estimates)]
                    if told.any()
                ]
                r = np.quantile(r2, [0.5, 0.1, 0.9])
                print(
                    f"{arm:12} {epsilon:5g} r2 {r[0]:.2f} ({r[1]:.2f} to {r[2]:.2f}) "
                    f"said {np.nanmedian([d.r2[0] for d in drawn]):.2f} "
                    f"sum {sums.mean():.0f}+-{sums.std():.0f} "
                    f"right sign {np.mean(np.sign(sums) == np.sign(total)):.2f} "
                    f"intervals hold {np.mean(inside):.2f}"
                )
            else:
                e = [
                    metrics.component_error(d.components, exact.components)
                    for d in drawn
                ]
                q = np.quantile(e, [0.5, 0.1, 0.9])
                print(
                    f"{arm:12} {epsilon:5g} error {q[0]:.2f} ({q[1]:.2f} to {q[2]:.2f})"
                )


def consortium(
    study: RowStudy,
    sizes: tuple[int, ...] = (20, 100, 500),
    epsilons: tuple[float, ...] = (1.0, 4.0),
    n_sites: int = 50,
    n_draws: int = 5,
    arms: tuple[str, ...] = ("pooled", "conventional"),
) -> None:
    """Print the error of two planted kinds, over their distance, by people per site.

    CAPE's noise is that of ``pooled`` times ``sqrt(S / S_H)``, 1.03 here; a draw of it
    at 50 sites takes its time.
    """
    shape = open_rows(study)
    truth = KINDS / shape.spread[:, None]
    apart = np.linalg.norm(truth[:, 0] - truth[:, 1])
    for n in sizes:
        rng = np.random.default_rng(n)
        people = {}
        for k in range(n_sites):
            kind = rng.choice(2, n, p=SHARES)
            noise = np.sqrt(VARIANCE) * rng.standard_normal((len(KINDS), n))
            X = KINDS[:, kind] + noise
            people[f"site-{k}"] = shape.scaled(X + shape.middle[:, None]), np.zeros(n)
        asked = [("non-private", 1.0), *((a, e) for a in arms for e in epsilons)]
        for arm, epsilon in asked:
            errors = [
                metrics.component_error(
                    draw(study, shape, people, epsilon, arm).components, truth
                )
                / apart
                for _ in range(1 if arm == "non-private" else n_draws)
            ]
            print(f"{n_sites} x {n:5} {arm:12} {epsilon:g} {np.median(errors):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "study", nargs="?", default="evidence/truth/studies/abide_mixture/study.yaml"
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--atlas", help="another atlas than the study's")
    parser.add_argument("--norm-bound", type=float, help="with the other atlas")
    parser.add_argument("--consortium", action="store_true")
    given = parser.parse_args()
    chosen = load.load_study(given.study)
    if given.atlas:
        said = chosen.model_dump(mode="json")
        said["space"]["basis_file"] = given.atlas
        said["rows"]["norm_bound"] = given.norm_bound
        chosen = type(chosen).model_validate(said)
    if given.consortium:
        consortium(chosen)
    else:
        compare(chosen, given.epsilon, given.draws)
