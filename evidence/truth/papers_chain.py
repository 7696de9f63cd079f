"""The chain of the papers again and again: what of one run is luck.

Of the people of `config/papers_chain`, once that study has run, in its folder::

    python -m evidence.truth.papers_chain --draws 20
    python -m evidence.truth.papers_chain --draws 20 --epsilon 2

Each draw is the whole chain with new noise for the same people: capePCA, capeDJICA,
capeCCA of how strong networks are with potentials, and the contrast, each with its part
of the one budget. Beside it the same without privacy, and the rotation that the rounds
of ICA start from. Components are matched with the true networks: patients differ in the
first, age goes with the second.
"""

import argparse
from pathlib import Path

import numpy as np

import capeneuro as cn
from capeneuro.algorithms import metrics, verdicts
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate
from capeneuro.algorithms.ica import rotation
from capeneuro.config import load
from capeneuro.config.stages import StagedStudy
from capeneuro.data.tables import open_table
from capeneuro.persons.measures import by_components
from capeneuro.studies import registry
from capeneuro.studies.components import ComponentsKind
from evidence.truth.chain_or_maps import REASON, People, linked, part, read

STUDY = "config/papers_chain/study.yaml"


def read_covariates(study: StagedStudy, X: People) -> People:
    """Covariates of each person by site, in the order of the contrast, (n,)."""
    names = [*study.members["contrast"].contrast.covariates]
    covariates = {}
    for path in study.sites:
        site = load.load_site(path)
        table = open_table(Path(site.folder) / "participants.tsv")
        table = table.set_index("participant_id")[names]
        covariates[site.name] = {
            person: table.loc[person].to_numpy(float) for person in X[site.name]
        }
    return covariates


class Chain:
    """The study's people and public numbers, from which chains are drawn."""

    def __init__(self, path: str) -> None:
        self.study = load.load_study(path)
        self.components, self.fusion, self.contrast = self.study.members.values()
        kind = registry.of(self.components)
        assert isinstance(kind, ComponentsKind)
        self.truth = kind.true_maps()
        self.X = read(path, "components")
        z, R = read(path, "fusion"), self.components.n_components
        self.potentials = {
            site: {person: row[R : -len(z)] for person, row in people.items()}
            for site, people in z.items()
        }
        self.covariates = read_covariates(self.study, self.X)

    def draw(self, arm: str, epsilon: float) -> dict[str, float]:
        """Numbers of one run of the chain, by name."""
        study, options, bound = self.study, self.components, self.components.pca
        promise = study.budget
        budget = cn.Budget(epsilon, promise.delta, "subject", n_colluding=1)
        weights = {
            name: w / sum(study.weights.values()) for name, w in study.weights.items()
        }
        part_of_components = part(budget, weights["components"])
        sites = cn.federate(self.X, part_of_components, arm, accept=REASON)
        V = cn.principal_subspace(
            sites,
            options.n_components,
            norm_bound=bound.norm_bound,
            clip=bound.clip,
            share=promise.pca_share,
        )
        U = cn.infomax(sites, V, n_rounds=options.ica.n_rounds, clip=options.ica.clip)
        W = rotation(V, "varimax")
        numbers = {
            "NGI": self.gain_index(U.unmixing, U.W),
            "NGI of the start": self.gain_index(W @ V.whitening(), W),
            "components reproducible": cn.verdicts(U).is_drawn.sum(),
        }
        A = U.mixing * bound.norm_bound
        amplitudes = {
            site: {person: self.amplitudes(x, A) for person, x in people.items()}
            for site, people in self.X.items()
        }
        numbers |= self.pairs(amplitudes, part(budget, weights["fusion"]), arm)
        of_network = metrics.match(A, self.truth)[0]
        effects = self.effects(amplitudes, part(budget, weights["contrast"]), arm)
        return numbers | planted_effects(effects, of_network)

    def gain_index(self, unmixing: np.ndarray, W: np.ndarray) -> float:
        """Normalised gain index against the true maps."""
        G = metrics.gain(unmixing / self.components.pca.norm_bound, W, self.truth)
        return metrics.normalized_gain_index(G)

    def amplitudes(self, X: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Share of each component in a person's variance, (R,)."""
        names, measure = tuple(map(str, range(A.shape[1]))), self.fusion.fusion.fmri
        return by_components(measure, X, A, np.zeros(len(A)), names)

    def pairs(self, amplitudes: People, budget: cn.Budget, arm: str) -> dict:
        """Correlations of the pairs with potentials, and how many are above noise."""
        views = {
            site: {
                person: np.concatenate([a[:, None], self.potentials[site][person]])
                for person, a in people.items()
            }
            for site, people in amplitudes.items()
        }
        n, bound = self.components.n_components, self.fusion.fusion.fmri.norm_bound
        pairs = verdicts.of_pairs(linked(views, n, bound, budget, arm))
        return {
            "pairs above noise": pairs.exceeds_noise.sum(),
            "correlation of pair 1": pairs.intervals[0, 0],
            "of pair 2": pairs.intervals[1, 0],
        }

    def effects(self, amplitudes: People, budget: cn.Budget, arm: str) -> Contrasts:
        """The contrast of the shares on group and age."""
        kind, options = registry.of(self.contrast), self.contrast.contrast
        rows = {
            site: {
                person: np.concatenate([a, self.covariates[site][person]])[:, None]
                for person, a in people.items()
            }
            for site, people in amplitudes.items()
        }
        table = open_table(options.means).set_index("site")
        return cn.linear_contrasts(
            cn.federate(rows, budget, arm, accept=REASON),
            {c.name: rule_of(c) for c in kind.design.covariates},
            kind.outcomes.center,
            kind.outcomes.covariance,
            means={site: dict(row) for site, row in table.iterrows()},
            primary=options.primary,
            clip=options.clip,
        )


def rule_of(covariate: Covariate) -> dict:
    """A covariate as the verbs of a notebook take it."""
    if covariate.groups:
        return {"groups": covariate.groups}
    return {"mean": covariate.mean, "deviation": covariate.deviation}


def planted_effects(effects: Contrasts, of_network: np.ndarray) -> dict[str, float]:
    """Planted effects, and whether these and others are above noise."""
    k = ~effects.is_constant
    d = effects.effects.shape[1]
    judged = verdicts.of_contrasts(effects, k, [list(map(str, range(d)))] * len(k))
    above = judged.exceeds_noise.reshape(-1, d)[:, of_network]
    B = effects.effects[k][:, of_network]
    return {
        "patients, network 1": B[0, 0],
        "it is above noise": above[0, 0],
        "age, network 2": B[1, 1],
        "this one, too": above[1, 1],
        "others above noise": above.sum() - above[0, 0] - above[1, 1],
    }


def main() -> None:
    """Print each number without privacy, and its mean and deviation over draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--epsilon", type=float, help="of the whole; the study's own")
    parser.add_argument("--study", default=STUDY)
    options = parser.parse_args()
    chain = Chain(options.study)
    epsilon = options.epsilon or chain.study.budget.epsilon
    exact = chain.draw("non-private", epsilon)
    draws = [chain.draw("cape", epsilon) for _ in range(options.draws)]
    print(f"{'':24}{'exact':>9}{'mean':>9}{'SD':>9}{'least':>9}{'most':>9}")
    for name, value in exact.items():
        of_draws = np.array([draw[name] for draw in draws], float)
        numbers = value, of_draws.mean(), of_draws.std(ddof=1)
        numbers += of_draws.min(), of_draws.max()
        print(f"{name:24}" + "".join(f"{number:9.4f}" for number in numbers))


if __name__ == "__main__":
    main()
