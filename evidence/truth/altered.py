"""One network altered: does a study around a prior show which, and how.

A public network is moved by 24 mm, removed or split between the hemispheres in all or
in 30% of the private people of ABIDE (folds, noise and budget as in
:mod:`evidence.truth.priors`); six networks, one after the other. Asked is what a
release shows of the *alteration alone*: the exact statistic with it less that
without it; sites differ from any prior besides. Four ways to look:

========= =====================================================================
moment    the product's release: the posterior deviation E along a public source
          p, E p: how people's covariance with that network differs
regressed dual regression of the public maps in the posterior second moment
maps      spatial components of the posterior (1000 people, epsilon 2)
dual      another release, of the same design, clip and sensitivity: the mean of
          people's dual-regression maps around public people's, along the prior
========= =====================================================================

``r`` is the correlation of the altered network's map with the alteration alone,
``r0`` the mean size of that for releases of the same people unaltered. ``first`` is
how often this network stands out most of the 20: for ``moment`` by what the product's
verdict compares, else by how many times as far from the prior as public sites are
(variance, less noise and sampling); where nothing is altered, how often each of the six
is first, 1/20 by chance. ``excess`` is that number for the altered network, or the
largest. ``changed`` is how often the verdict calls the altered network changed,
``others`` the other 19 (all, where nothing is altered), ``any`` at least one.
``unaltered`` are people of other sites, ``public`` the prior's own people.

    python -m evidence.truth.altered

Writes ``altered.tsv``; half an hour.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import prior, prior_maps, verdicts
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.prior import BLOCKS, CLIP, FACTOR, Posterior, Prior
from capeneuro.data import files
from capeneuro.privacy import accounting
from capeneuro.privacy.deviations import MEAN_WEIGHT, OF_CLIP
from evidence.truth import priors, rates
from evidence.truth.priors import DELTA, OVER, K, Series, moment
from papers.cells import abide

HOW = ("moved", "removed", "split")
# Every third of the public maps, in their order.
NETWORKS = (1, 4, 7, 10, 13, 16)
MM, SOME = 24, 0.3
# Added to the variance of a public source, 1: without it the map of a network that
# is absent would be noise over nothing. Fixed on fold A.
RIDGE = 0.5
PEOPLE, EPSILONS = (250, 1000, 5000), (1.0, 2.0, 4.0)
# Where components are found, too. Fold B is looked at with so many people only.
FULL = (1000, 2.0)
# Draws of noise alone behind each verdict: fewer than in a study, for time.
N_NOISE = 300
LOOKS = ("moment", "regressed", "maps", "dual")
SCORES = [f"{what}_{look}" for what in ("r", "r0", "first") for look in LOOKS]
SCORES = [s for s in SCORES if s != "first_maps"]
SCORES += ["excess_regressed", "excess_dual", "changed", "others", "any"]
HEAD = ["fold", "how", "share", "people", "epsilon", "draws", *SCORES]


class People(NamedTuple):
    """What is exact of people: second moments, and maps along the prior."""

    moments: np.ndarray  # (M, D, D)
    maps: np.ndarray  # (M, R, q)


# What people add to the release, by how many they are and epsilon; unaltered, altered.
Sent = list[dict[tuple[int, float], np.ndarray]]
Random = np.random.Generator


class Study(NamedTuple):
    """A fold: a prior with its components, design of maps, and people."""

    prior: Prior
    alone: Unmixing
    mean: np.ndarray  # maps of public people (R, q)
    spreads: Prior  # with the spreads of maps, (R q,)
    volumes: list[np.ndarray]
    private: People
    public: People


class Look(NamedTuple):
    """What one draw of the noise shows."""

    maps: dict[str, np.ndarray]  # by way to look, (R, D)
    large: dict[str, np.ndarray]  # how much networks stand out, (R,)
    above: np.ndarray  # the verdicts


def centres(atlas: Path) -> np.ndarray:
    """Centres of the 200 parcels, in mm."""
    image = nib.load(atlas)
    labels = np.asarray(image.dataobj).astype(int)
    at = scipy.ndimage.center_of_mass(labels > 0, labels, np.arange(1, 201))
    return nib.affines.apply_affine(image.affine, np.array(at))


def altered(
    X: np.ndarray, alone: Unmixing, m: int, how: str, at: np.ndarray
) -> np.ndarray:
    """A person's volumes with a network moved forward, removed or split."""
    X = X.astype(np.float64)
    S = alone.unmixing @ X
    d, s = np.linalg.lstsq(S.T, X.T)[0][m], S[m]
    if how == "removed":
        return X - np.outer(d, s)
    if how == "moved":
        _, behind = scipy.spatial.KDTree(at).query(at - [0, MM, 0])
        return X + np.outer(d[behind] - d, s)
    # The right half has the same time course backwards.
    return X + np.outer(d * (at[:, 0] > 0), s[::-1] - s)


def regressed(C: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Dual regression of sources p (R, D) in second moments (..., D, D)."""
    Y = p @ C
    return np.linalg.solve(Y @ p.T + RIDGE * np.eye(K), Y)


def people(P: Prior, alone: Unmixing, volumes: list[np.ndarray]) -> People:
    """What is exact of them."""
    C = np.stack([moment(X) for X in volumes])
    return People(C, regressed(C, alone.unmixing) @ P.directions)


def design(P: Prior, sites: list[np.ndarray]) -> Prior:
    """Spreads of maps, of people and of sites, as :func:`.prior.from_people` has."""
    M, total = sum(map(len, sites)), np.sum([own.sum(axis=0) for own in sites], axis=0)
    person, between = np.zeros_like(total), np.zeros_like(total)
    for own in sites:
        d = own - (total - own.sum(axis=0)) / (M - len(own))
        person += np.sum(d**2, axis=0) / M
        between += d.mean(axis=0) ** 2 - d.var(axis=0, ddof=1) / len(own)
    between /= len(sites)
    # Alike in blocks of directions, over l; of sites over a person for all networks.
    block = np.searchsorted(BLOCKS, np.arange(len(P.energies)), side="right")
    one = (block[:, None] == np.unique(block)).astype(float)
    v = person @ one / (P.energies @ one) @ one.T * P.energies
    share = (between.sum(axis=0) @ one) / (person.sum(axis=0) @ one) @ one.T
    t = np.maximum(share, prior.LEAST_BETWEEN) * v
    return replace(P, person_variance=v.ravel(), site_variance=t.ravel())


def studies(series: Series) -> Iterator[tuple[str, Study]]:
    """Both folds of :mod:`evidence.truth.priors`."""
    names = sorted(series)
    for name, first in (("A", 0), ("B", 1)):
        public = {s: series[s] for s in names[first::2]}
        P = priors.public_prior(public)
        alone = prior_maps.components(P, None, K)
        sites = [people(P, alone, [*own.values()]) for own in public.values()]
        own = People(*(np.concatenate(part) for part in zip(*sites, strict=True)))
        spreads = design(P, [site.maps for site in sites])
        X = [x for s in names[1 - first :: 2] for x in series[s].values()]
        about = P, alone, own.maps.mean(axis=0), spreads, X
        yield name, Study(*about, people(P, alone, X), own)


def released(
    of: Study, sent: Sent, n_of: np.ndarray, epsilon: float, n: int, rng: Random
) -> list[Posterior]:
    """As :func:`.priors.released`, of people who are there so many times."""
    P, M = of.prior, int(n_of.sum())
    noise = noise_of(M, epsilon)
    s = prior.spread(P, noise / OF_CLIP)
    tau = noise * prior.request(P, s)["clip"]
    own = n_of @ np.concatenate([part[M, epsilon] for part in sent]) / M
    draws = tau * rng.standard_normal((n, len(own)))
    return [prior.of_people(P, s, own + e, tau, M) for e in draws]


def released_maps(
    of: Study, own: np.ndarray, n_of: np.ndarray, epsilon: float, n: int, rng: Random
) -> list[Posterior]:
    """The same of their maps (M, R, q)."""
    P, M = of.spreads, int(n_of.sum())
    noise = noise_of(M, epsilon)
    s = prior.spread(P, noise / OF_CLIP)
    kept, found = np.isfinite(s), []
    clip = CLIP * np.sqrt(np.sum(P.person_variance[kept] / s[kept] ** 2))
    z = (own - of.mean).reshape(len(own), -1)[:, kept] / s[kept]
    f = np.minimum(1, clip / np.linalg.norm(z, axis=1))
    mean = np.r_[(n_of * f) @ z, MEAN_WEIGHT * clip * n_of @ (f - 0.5)] / M
    tau = noise * clip / OF_CLIP
    for _ in range(n):
        *y, share = mean + tau * rng.standard_normal(len(mean))
        told, error = 0.5 + share / (MEAN_WEIGHT * clip), tau / (MEAN_WEIGHT * clip)
        a, b = error**-2, FACTOR**-2
        factor = float(np.clip((a * told + b * CLIP) / (a + b), 0.05, 1))
        value, deviation = np.zeros(len(s)), np.zeros(len(s))
        value[kept], deviation[kept] = y * s[kept], tau * s[kept]
        found.append(
            prior.posterior(P, value, deviation, factor, P.person_variance / M)
        )
    return found


def noise_of(M: int, epsilon: float) -> float:
    """Deviation of the mean's noise, over the clip."""
    return 2 * OVER / (M * accounting.mu_from_epsilon(epsilon, DELTA))


def excess(
    y: np.ndarray, noise: np.ndarray, sampling: np.ndarray, t: np.ndarray
) -> np.ndarray:
    """How many times t each network's variance is, beyond noise and sampling; (R,)."""
    w = t / (noise + sampling + t + 1e-30) ** 2
    return np.sum(w * (y**2 - noise - sampling), axis=1) / np.sum(w * t, axis=1)


def spreads(P: Prior, found: Posterior, M: int) -> list[np.ndarray]:
    """Variance of noise, of sampling and of sites, where anything was sent."""
    sent = found.deviation > 0
    return [found.deviation**2, sent * P.person_variance / M, sent * P.site_variance]


def spreads_regressed(P: Prior, found: Posterior, M: int, p: np.ndarray) -> list:
    """The same of dual regression in the second moment, to first order; (R, q)."""
    q, L = p.shape[1], np.diag(P.energies)
    left = np.linalg.solve(p @ L @ p.T + RIDGE * np.eye(K), p) ** 2
    right = (np.eye(q) - p.T @ regressed(L, p)) ** 2
    half = np.r_[np.ones(q), np.full(len(P.person_variance) - q, linalg.SQRT2)]
    return [
        left @ linalg.unpack_symmetric(x / half) @ right for x in spreads(P, found, M)
    ]


def components(of: Study, found: Posterior, n: int = prior_maps.DRAWS) -> Unmixing:
    """Those of a posterior, in the order of the public ones."""
    return prior_maps.components(of.prior, found, K, of.alone, n_draws=n)


def exact(of: Study, C: np.ndarray, D: np.ndarray, full: bool) -> dict[str, np.ndarray]:
    """Every statistic of a population without noise; C along the prior."""
    U = of.prior.directions.astype(float)
    p = of.alone.unmixing @ U
    found = {"moment": p @ C @ U.T, "regressed": regressed(C, p) @ U.T, "dual": D @ U.T}
    if full:
        d = linalg.pack_symmetric(C - np.diag(of.prior.energies))
        told = Posterior(d, 0 * d, 0 * d + 1, d, 0 * d)
        found["maps"] = components(of, told, 1).mixing.T
    return found


def looks(
    of: Study,
    own: np.ndarray,
    sent: Sent,
    n_of: np.ndarray,
    epsilon: float,
    n: int,
    seed: list[int],
) -> list[Look]:
    """What n draws of the noise show of people with these maps."""
    rng, P, M = np.random.default_rng(seed), of.prior, int(n_of.sum())
    U, L, found = P.directions.astype(float), np.diag(P.energies), []
    p = of.alone.unmixing @ U
    moments = released(of, sent, n_of, epsilon, n, rng)
    of_maps = released_maps(of, own, n_of, epsilon, n, rng)
    for one, two in zip(moments, of_maps, strict=True):
        E = linalg.unpack_symmetric(one.mean)
        maps = {
            "moment": p @ E @ U.T,
            "regressed": (regressed(L + E, p) - regressed(L, p)) @ U.T,
            "dual": two.mean.reshape(K, -1) @ U.T,
        }
        if (M, epsilon) == FULL:
            maps["maps"] = components(of, one).mixing.T - of.alone.mixing.T
        said = verdicts.of_changes(P, one, p, M)
        y = regressed(L + linalg.unpack_symmetric(one.released), p) - regressed(L, p)
        own_spreads = (x.reshape(K, -1) for x in spreads(of.spreads, two, M))
        large = {
            "moment": said.values,
            "regressed": excess(y, *spreads_regressed(P, one, M, p)),
            "dual": excess(two.released.reshape(K, -1), *own_spreads),
        }
        found.append(Look(maps, large, said.exceeds_noise))
    return found


def scores(
    look: Look, m: int | None, moved: dict[str, np.ndarray], without: list[Look]
) -> list[float]:
    """Scores of a look; m: the altered network, none where nothing is altered."""

    def r(of: Look, way: str) -> float:
        if m is None or way not in moved:
            return np.nan
        return float(np.corrcoef(of.maps[way][m], moved[way][m])[0, 1])

    at = NETWORKS if m is None else (m,)
    top = {way: np.isin(at, np.argmax(x)).mean() for way, x in look.large.items()}
    there, others = look.above[slice(None) if m is None else m], np.arange(K) != m
    sizes = [
        look.large[w].max() if m is None else look.large[w][m] for w in LOOKS[1::2]
    ]
    return [
        *(r(look, way) for way in LOOKS),
        *(np.mean([abs(r(x, way)) for x in without or [look]]) for way in LOOKS),
        *(top[way] for way in LOOKS if way in top),
        *sizes,
        *(np.mean(there), np.mean(look.above[others]), np.any(look.above)),
    ]


def of_fold(of: Study, name: str, given: argparse.Namespace, at: np.ndarray) -> dict:
    """Scores of every draw, by cell."""
    cells, without, n = defaultdict(list), {}, len(of.volumes)
    work = product(given.people, given.epsilons, range(given.populations))
    work = [about for about in work if name == "A" or about[0] == FULL[0]]
    P, U = of.prior, of.prior.directions.astype(float)

    def sent_by(own: People) -> dict:
        s = {k[:2]: prior.spread(P, noise_of(*k[:2]) / OF_CLIP) for k in work}
        return {k: priors.contributions(P, x, own.moments) for k, x in s.items()}

    plain = sent_by(of.private)
    for how, own in (("unaltered", of.private), ("public", of.public)):
        sent = [plain if how == "unaltered" else sent_by(own)]
        for M, epsilon, k in work:
            drawn = np.random.default_rng([k, M]).integers(0, len(own.maps), M)
            n_of = np.bincount(drawn, minlength=len(own.maps))
            seed = [k, M, int(10 * epsilon), len(how)]
            found = looks(of, own.maps, sent, n_of, epsilon, len(NETWORKS), seed)
            key = name, how, 0.0, M, epsilon
            cells[key] += [scores(x, None, {}, []) for x in found]
            without.setdefault((M, epsilon, k), found)
    for m, how in product(NETWORKS, HOW):
        X = [altered(x, of.alone, m, how, at) for x in of.volumes]
        other = people(P, of.alone, X)
        sent = [plain, sent_by(other)]
        C, D = (np.concatenate(both) for both in zip(of.private, other, strict=True))
        C = U.T @ C @ U
        for share, (M, epsilon, k) in product((1.0, SOME), work):
            rng = np.random.default_rng([k, M])
            drawn = rng.integers(0, n, M)
            chosen = np.where(rng.random(M) < share, drawn + n, drawn)
            n_of, before = (np.bincount(i, minlength=2 * n) for i in (chosen, drawn))
            with_it, without_it = (
                exact(
                    of,
                    *(np.tensordot(w / M, Y, 1) for Y in (C, D)),
                    (M, epsilon) == FULL,
                )
                for w in (n_of, before)
            )
            moved = {way: with_it[way] - without_it[way] for way in with_it}
            seed = [k, M, int(10 * epsilon), m, len(how), int(share)]
            for x in looks(of, D, sent, n_of, epsilon, given.draws, seed):
                about = x, m, moved, without[M, epsilon, k]
                cells[name, how, share, M, epsilon].append(scores(*about))
        print(name, m, how, flush=True)
    return cells


def main() -> None:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--populations", type=int, default=2)
    parser.add_argument("--draws", type=int, default=1)
    given = parser.parse_args()
    verdicts.N_NOISE = N_NOISE
    at, rows = centres(rates.DATA / "atlases/CC200_4mm.nii.gz"), []
    alarms: list[float] = []
    for name, of in studies(abide.load(rates.DATA / "abide_cc200")):
        for key, found in of_fold(of, name, given, at).items():
            means = [f"{x:.3f}" for x in np.mean(found, axis=0)]
            rows.append([*map(str, key), str(len(found)), *means])
            if key[1] == "public":
                alarms += [one[-1] for one in found]
        # Written after each fold.
        files.write_table(Path(__file__).with_name("altered.tsv"), HEAD, rows)
    for row in [HEAD, *rows]:
        print(*row, sep="\t")
    rates.say("change/abide", np.mean(alarms), len(alarms))


if __name__ == "__main__":
    main()
