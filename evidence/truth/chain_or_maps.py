"""Networks that go with potentials: by a chain of stages, or by maps in one stage.

Of the people of `config/linked_chain`, once that study has prepared its stages
`components` and `fusion`, in the folder that holds their data::

    python -m evidence.truth.chain_or_maps --epsilon 6 20 60
    python -m evidence.truth.chain_or_maps --draws 40 --chain-alone --shares 0.3 0.5 0.7

The chain: capePCA and spatial ICA of runs, then capeCCA of how strong each network is
in a person with the person's potentials; by default half of the budget each. Maps: how
much every cube of the brain varies in a person, over the mean of all cubes (amplitude
of low frequencies), by capeCCA with the same potentials and with all of the budget; in
cubes of 24 mm, and in means over regions that lie together. Norm bounds of maps are the
middle norms of these very people, which no private study could know.

A pair is found if it stands above the noise and its variates, over people, are those of
a true pair: the network's strength and the potential's by more than .5 each.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy

import capeneuro as cn
from capeneuro.algorithms import cca, metrics, verdicts
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.ica import spatial_components
from capeneuro.config import load
from capeneuro.config.study import CENTER_SHARE
from capeneuro.data import files, nifti
from capeneuro.data.tables import open_table
from capeneuro.persons.measures import by_components
from capeneuro.privacy import accounting

STUDY = "config/linked_chain/study.yaml"
REASON = "a benchmark on simulated people"
FOUND = 0.5
People = dict[str, dict[str, np.ndarray]]


def read(study: str, stage: str) -> People:
    """Prepared features of a stage by site and person."""
    own = load.load_study(study, stage)
    found = {
        n: files.Features(own.private(n) / "projected.npz") for n in own.site_names
    }
    return {
        name: {who: np.array(one[who]) for who in one} for name, one in found.items()
    }


def amplitudes(X: np.ndarray) -> np.ndarray:
    """Deviation of each feature of a person over their mean."""
    own = X.std(axis=1)
    return own / own.mean()


def regions(n_features: int, mask: object, space: object, n: int) -> np.ndarray:
    """Which of n regions each cube is in, as weights of a mean, (n, n_features)."""
    basis = nifti.build_basis(space, mask)
    at = np.argwhere(mask.get_fdata() > 0).astype(float)
    middles = basis.analysis @ at / (basis.analysis @ np.ones(len(at)))[:, None]
    start = np.linspace(0, n_features - 1, n).astype(int)
    centers = middles[start]
    for _ in range(50):
        own = scipy.spatial.distance.cdist(middles, centers).argmin(axis=1)
        for k in set(own):
            centers[k] = middles[own == k].mean(axis=0)
    weights = (own == np.unique(own)[:, None]).astype(float)
    return weights / weights.sum(axis=1, keepdims=True)


def linked(
    people: People, n_first: int, bound: float, budget: cn.Budget, arm: str
) -> CanonicalDirections:
    """CapeCCA of people's z = [x / bound; y], as the study's fusion does it."""
    sites = cn.federate(people, budget, arm, accept=REASON)
    S = len(sites.names)
    federation = sites.federation(
        lambda k, X: cca.stack(X[:n_first] / bound, X[n_first:], k, S)
    )
    first = sites.mechanism(1, CENTER_SHARE)
    center = cca.rough_center(federation, first, n_first, 2.0, S)
    second = sites.mechanism(1, 1 - CENTER_SHARE)
    about = 2, n_first, 1.0, center
    return cca.canonical_directions(
        federation, second, *about, n_groups=S, within=True, debias=True
    )


def part(budget: cn.Budget, share: float) -> cn.Budget:
    """A share of a budget's mu^2."""
    epsilon = accounting.epsilon_from_mu(budget.mu * share**0.5, budget.delta)
    return replace(budget, epsilon=epsilon)


class Truth:
    """What is true of the people, and what a result says of it."""

    def __init__(self, study: str, people: People, y: People) -> None:
        config = load.load_study(study, "components")
        folder = Path(config.score.truth).parent
        table = open_table(folder / "desc-truth_people.tsv").set_index("participant_id")
        self.names = [who for own in people.values() for who in own]
        self.site = np.repeat(np.arange(len(people)), [len(o) for o in people.values()])
        K = sum(name.startswith("potential") for name in table)
        own = table.loc[self.names]
        self.x = own[[f"network{k + 1}" for k in range(K)]].to_numpy()
        self.y = own[[f"potential{k + 1}" for k in range(K)]].to_numpy()
        self.correlations = np.array(config.data.coupled.correlations)
        mask = nifti.read_mask(Path(config.space.mask))
        basis = nifti.build_basis(config.space, mask)
        self.maps = basis.analysis @ nifti.read_maps(config.score.truth, mask)[:, :K]

    def said(
        self,
        found: CanonicalDirections,
        z: People,
        n_first: int,
        bound: float,
        maps: Callable[[np.ndarray], np.ndarray],
        truth: np.ndarray,
    ) -> dict[str, float]:
        """Pairs found, their error, and agreement with the truth."""
        Z = np.concatenate([x for own in z.values() for x in own.values()], axis=1)
        u = found.x_directions.T @ (Z[:n_first] / bound) / cca.NORM_BOUND
        v = found.y_directions.T @ Z[n_first:] / cca.NORM_BOUND
        r_x, r_y = (
            np.abs(np.corrcoef(a, b.T)[: len(a), len(a) :])
            for a, b in ((u, self.x), (v, self.y))
        )
        above = verdicts.of_pairs(found).exceeds_noise
        right = above[:, None] & (r_x > FOUND) & (r_y > FOUND)
        said = np.nan_to_num(found.variates[:, 0])
        r = np.where(above, np.clip(said, 0, 1), 0.0)
        _, agree = metrics.match(maps(found.x_patterns), truth)
        return {
            "above noise": float(above.sum()),
            "pairs found": float(right.any(axis=0).sum()),
            "strength r": float(r_x.max(axis=0).mean()),
            "potential r": float(r_y.max(axis=0).mean()),
            "maps r": float(np.abs(agree).mean()),
            "error": float(np.linalg.norm(np.sort(r)[::-1] - self.correlations) / 2),
        }


def main() -> None:
    """Print what each way finds, at each epsilon, in the mean over draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[6.0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5])
    parser.add_argument("--chain-alone", action="store_true", help="no maps")
    parser.add_argument("--study", default=STUDY)
    options = parser.parse_args()
    X = read(options.study, "components")
    config = load.load_study(options.study, "components")
    fusion = load.load_study(options.study, "fusion")
    n_amplitudes, bound = config.n_components, fusion.fusion.fmri.norm_bound
    z = read(options.study, "fusion")
    # As held: [x; y; constants], of which y is wanted, in its own unit over its bound.
    y = {
        site: {who: one[n_amplitudes : -len(z)] for who, one in own.items()}
        for site, own in z.items()
    }
    truth = Truth(options.study, X, y)
    mask = nifti.read_mask(Path(config.space.mask))
    own = {site: {w: amplitudes(x) for w, x in o.items()} for site, o in X.items()}
    D = len(next(iter(next(iter(own.values())).values())))
    views = {f"maps, {D} cubes": np.eye(D)}
    for n in (50, 20, 6):
        W = regions(D, mask, config.space, n)
        views[f"maps, {len(W)} regions"] = W

    def chain(share: float, budget: cn.Budget, arm: str) -> dict[str, float]:
        sites = cn.federate(X, part(budget, share), arm, accept=REASON)
        about = config.n_components, config.pca.norm_bound
        V = cn.principal_subspace(sites, *about, clip=config.pca.clip)
        A = spatial_components(V).mixing * config.pca.norm_bound
        names, nothing = tuple(map(str, range(A.shape[1]))), np.zeros(D)
        measure = fusion.fusion.fmri
        both = {
            site: {
                who: np.concatenate(
                    [
                        by_components(measure, x, A, nothing, names)[:, None],
                        y[site][who],
                    ]
                )
                for who, x in people.items()
            }
            for site, people in X.items()
        }
        found = linked(both, n_amplitudes, bound, part(budget, 1 - share), arm)
        about = n_amplitudes, bound, lambda P: A @ P, truth.maps
        return truth.said(found, both, *about)

    def maps(W: np.ndarray, budget: cn.Budget, arm: str) -> dict[str, float]:
        m = {s: {who: W @ x for who, x in o.items()} for s, o in own.items()}
        M = np.array([x for o in m.values() for x in o.values()])
        limit = float(np.median(np.linalg.norm(M - M.mean(axis=0), axis=1)))
        both = {
            s: {w: np.concatenate([x[:, None], y[s][w]]) for w, x in o.items()}
            for s, o in m.items()
        }
        found = linked(both, len(W), limit, budget, arm)
        # What maps of people do where a network is stronger, without noise.
        T = truth.x - truth.x.mean(axis=0)
        expected = np.linalg.lstsq(T, M - M.mean(axis=0), rcond=None)[0].T
        return truth.said(found, both, len(W), limit, lambda P: P, expected)

    heads: list[str] = []
    for epsilon in [np.inf, *options.epsilon]:
        arm = "non-private" if epsilon == np.inf else "cape"
        promise = 1.0 if epsilon == np.inf else epsilon
        budget = cn.Budget(promise, 1e-5, unit="subject", n_colluding=1)
        ways = {f"chain, {s:.0%} to PCA": partial(chain, s) for s in options.shares}
        if not options.chain_alone:
            ways |= {name: partial(maps, W) for name, W in views.items()}
        for name, way in ways.items():
            draws = 1 if epsilon == np.inf else options.draws
            rows = [way(budget, arm) for _ in range(draws)]
            if not heads:
                heads = [*rows[0]]
                print(f"{'epsilon':>8} {'':20}", *(f"{h:>12}" for h in heads))
            table = np.array([[*row.values()] for row in rows])
            mean = " ".join(f"{x:>12.3f}" for x in table.mean(axis=0))
            print(f"{epsilon:>8g} {name:20} {mean}", flush=True)


if __name__ == "__main__":
    main()
