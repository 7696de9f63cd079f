"""What contrasts tell of 128 people of ABIDE: diagnosis, age, sex and motion.

Outcomes are 28 means of connectivity within and between Yeo's seven networks, or their
mean alone; 11 sites, three colluding; covariates centered at sites' means, which ABIDE
publishes. No covariance of other people is used: outcomes are taken to have a mean of
.3 and a deviation of .2 (Fisher's z). Nobody can tell much of so few people.

    python -m evidence.truth.abide_contrasts [--draws 20]

Writes ``abide_contrasts.tsv``.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from capeneuro.algorithms import contrasts
from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.verdict import LEVEL
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.persons.connectivity import domain_means
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments
from evidence.truth import rates

OUT = Path(__file__).with_suffix(".tsv")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA, COLLUDING, CLIP = 1e-5, 3, 0.5
MEAN, DEVIATION = 0.3, 0.2
COVARIATES = {
    "diagnosis": Covariate("dx", (2.0, 1.0)),
    "sex": Covariate("sex", (1.0, 2.0)),
    "age": Covariate("age", deviation=6.0),
    "motion": Covariate("mean_fd", deviation=0.06),
}
HEAD = "outcomes primary epsilon error_over_sampling outcomes_found of_exact_found"
HEAD += " draws_with_any draws_together r_with_exact"


def people(data: Path) -> tuple[np.ndarray, pd.DataFrame]:
    """Domain means of everybody, (28, M), and their rows of the table of people."""
    folder, domains = data / "abide_cc200", data / "networks/A_licence_stated"
    labels = pd.read_csv(domains / "cc200_to_yeo7.tsv", sep="\t").sort_values("index")
    yeo = [
        n if n not in ("none", "Cerebellum") else "" for n in labels["yeo7"].astype(str)
    ]
    table = pd.read_csv(folder / "participants.csv").set_index("file_id")
    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                found[name] = domain_means(arrays[name].T.astype(float), yeo)
    return np.array([*found.values()]).T, table.loc[[*found]]


def design_of(table: pd.DataFrame, primary: str) -> Design:
    """Covariates, centered at the sites' means as published."""
    sites, means = tuple(sorted(table["site"].unique())), []
    for site in sites:
        own = table[table["site"] == site]
        means.append({})
        for c in COVARIATES.values():
            values = own[c.name].to_numpy(float)
            means[-1] |= dict(zip(c.columns, c.public(values), strict=True))
    primary = COVARIATES[primary].name
    return Design((*COVARIATES.values(),), sites, tuple(means), (), primary)


def told(
    y: np.ndarray, table: pd.DataFrame, design: Design, epsilon: float, n: int
) -> tuple[Contrasts, list[Contrasts]]:
    """What is found without privacy, and in n draws of its noise."""
    d, M, S = *y.shape, len(design.sites)
    X = np.zeros((2 * len(design.effects) + d, M), np.float32)
    spread = np.full((1, 1) if d == 1 else d, DEVIATION**2)
    outcomes = Outcomes(np.full(d, MEAN), spread)
    for k, site in enumerate(design.sites):
        here = (table["site"] == site).to_numpy()
        values = table.loc[here, [c.name for c in design.covariates]].to_numpy(float).T
        z, x = design.code(values.astype(np.float32).astype(float), k)
        X[:, here] = contrasts.stack(z, x, y[:, here], design.effects, outcomes)
    weights = np.array([e.weight for e in design.effects])

    def mean(clip: float) -> np.ndarray:
        block = Block(X, np.arange(M), "subject")
        return linear_moments(block, weights=weights, clip=clip) / M

    exact = Release(mean(np.inf), 0.0, M, (), np.inf)
    clipped, rng = mean(CLIP**0.5 * REACH), np.random.default_rng(int(10 * epsilon))
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    tau = 2 * CLIP**0.5 * REACH * (S / (S - COLLUDING)) ** 0.5 / (M * mu)
    drawn = [
        Release(clipped + tau * rng.standard_normal(len(clipped)), tau, M, (), mu)
        for _ in range(n)
    ]
    about = design.effects, outcomes, CLIP
    first, *rest = (contrasts.from_release(r, *about) for r in (exact, *drawn))
    return first, rest


def main() -> None:
    """Run, print and write the table."""
    given, held = rates.options(__doc__, 20).parse_args(), []
    Y, table = people(rates.DATA)
    print(*HEAD.split(), sep="\t")
    rows = []
    for y in (Y, Y.mean(axis=0, keepdims=True)):
        for k, primary in enumerate(COVARIATES):
            design = design_of(table, primary)
            for epsilon in EPSILONS:
                exact, drawn = told(y, table, design, epsilon, given.draws)
                level = LEVEL / len(y)
                there = exact.p_values[k] < level
                found = np.array([one.p_values[k] < level for one in drawn])
                found &= np.array([one.is_estimable[k] for one in drawn])[:, None]
                off = [one.effects[k] - exact.effects[k] for one in drawn]
                errors = [WIDTH * one.noise_errors[k] for one in drawn]
                held.append(np.mean(np.abs(off) < errors))
                ratio = np.sqrt(np.mean(np.square(off), axis=0)) / exact.errors[k]
                r = np.nan
                if len(y) > 1:
                    pairs = [
                        np.corrcoef(d.effects[k], exact.effects[k])[0, 1] for d in drawn
                    ]
                    r = float(np.mean(pairs))
                together = np.mean([d.joint_p_values[k] < LEVEL for d in drawn])
                numbers = np.mean(ratio), found.sum(axis=1).mean(), there.sum()
                numbers += found.any(axis=1).mean(), together, r
                rows.append([str(len(y)), primary, f"{epsilon:g}"])
                rows[-1] += [f"{x:.2f}" for x in numbers]
                print(*rows[-1], sep="\t", flush=True)
    files.write_table(OUT, HEAD.split(), rows)
    rates.say("effect/abide", np.mean(held), given.draws)


if __name__ == "__main__":
    main()
