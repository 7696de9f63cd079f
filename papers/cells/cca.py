"""The thesis' CCA experiments [thesis, 7.3]: every method on the same two views.

The experiment ``cca``; ``papers/grids/cca_*.yaml`` say
what is run. Data are public or simulated, so exact scores may be computed; bounds and
clips are constants of the figure file all the same. A sample is a person, so that the
units ``sample`` and ``subject`` are one.

Data sets
---------
``mnist``
    3,500 digits, pixels in [0, 1]: top and bottom halves, 50 principal components each.
``multiview``
    2,000 digits of UCI Multiple Features: 76 Fourier coefficients of the shape and 64
    Karhunen-Loeve coefficients, 25 principal components each. Two public views in place
    of the thesis' XRMB, which is not at hand.
``linked``
    `sim/linked.py`, K = 5, without noise as in the thesis: 39 means over squares of
    8 x 8 pixels, and of the ERP 30 means over 5 windows of 6 channels.
``linked_noise``
    The same with the noise of `config/linked/study.yaml`.
``linked_pca``
    ``linked`` reduced to 5 principal components a view, as the thesis' code does.

Principal components are those of all samples without privacy, as in the thesis: an
advantage that nobody pays for. A study has a public basis.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from scipy.cluster.vq import kmeans, vq
from scipy.optimize import linear_sum_assignment

from capeneuro import linalg
from capeneuro.algorithms import cca, metrics
from capeneuro.algorithms.cca import canonical_directions, rough_center, stack
from capeneuro.config.errors import ConfigError
from capeneuro.data import basis
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from papers import in_memory, printed_noise
from sim import erp, linked

# Noise of config/linked/study.yaml: of a pixel over the components, of a mean of 8
# trials.
MAP_NOISE, EEG_NOISE = 0.5, 5 / np.sqrt(8)
SQUARE = 8
# Of the ERP: channels, and edges of the windows [s].
CHANNELS = ("FCz", "Pz", "O2", "F8", "F3", "T8")
WINDOWS = np.linspace(0.05, 0.75, 6)
FEATURES = {"mnist": 50, "multiview": 25, "linked_pca": 5}
N_CLUSTERS, N_STARTS = 10, 5


class Views(NamedTuple):
    """Two views of the same N people, and what is known of them."""

    X: np.ndarray
    """First view, shape (D_x, N)."""
    Y: np.ndarray
    """Second view, shape (D_y, N)."""
    labels: np.ndarray | None = None
    """Class of each person, shape (N,)."""
    r: np.ndarray | None = None
    """True correlations, shape (K,)."""
    profiles: tuple[np.ndarray, np.ndarray] | None = None
    """True modulation profiles of both views, each (N, K)."""


def load(data: str, folder: str, n_samples: int, seed: int) -> Views:
    """Make or read one data set, in random order.

    Parameters
    ----------
    data, folder
        One of those above, and where the real ones are.
    n_samples
        People of a simulated study; real sets are read as a whole.
    seed
        Fixes what is drawn. A smaller simulated study is not a part of a larger one.
    """
    if data in ("linked", "linked_noise", "linked_pca"):
        views = _linked(n_samples, seed, data == "linked_noise")
    elif data in ("mnist", "multiview"):
        views = (_digits if data == "mnist" else _multiview)(Path(folder))
        order = np.random.default_rng(seed).permutation(views.X.shape[1])
        views = Views(views.X[:, order], views.Y[:, order], views.labels[order])
    else:
        raise ConfigError(f"data: unknown set {data!r}")
    if data in FEATURES:
        reduced = [_reduced(view, FEATURES[data]) for view in views[:2]]
        views = views._replace(X=reduced[0], Y=reduced[1])
    return views


def _digits(folder: Path) -> Views:
    known = np.load(folder / "images" / "mnist_3500.npz")
    X = np.float32(known["X"].T / 255)
    half = len(X) // 2  # rows of the image from the top
    return Views(X[:half], X[half:], known["y"])


def _multiview(folder: Path) -> Views:
    import pandas as pd

    files = [folder / "multiview" / f"mfeat-{name}.csv.gz" for name in ("fou", "kar")]
    first, second = (pd.read_csv(file).to_numpy(np.float32).T for file in files)
    return Views(first[:-1], second[:-1], first[-1].astype(int))


def _linked(n: int, seed: int, noisy: bool) -> Views:
    noise = {"map_noise": MAP_NOISE, "eeg_noise": EEG_NOISE} if noisy else {}
    made = linked.arrays(n, seed, **noise)
    mask = linked.component_maps(linked.INDICES)[1]
    X = basis.grid(mask, SQUARE).analysis @ made.X
    at = [erp.CHANNELS.index(channel) for channel in CHANNELS]
    points = made.Y.reshape(len(erp.CHANNELS), -1, n)[at]
    cuts = np.searchsorted(erp.times(), WINDOWS)
    Y = [points[:, a:b].mean(axis=1) for a, b in itertools.pairwise(cuts)]
    r = np.einsum("nk,nk->k", made.A_x, made.A_y) / n
    return Views(X, np.concatenate(Y), None, r, (made.A_x, made.A_y))


def _reduced(X: np.ndarray, n_features: int) -> np.ndarray:
    """Principal components of all samples; their mean stays, as in what is released."""
    U = linalg.top_eigenpairs(np.cov(X), n_features)[1]
    return (U.T @ X).astype(np.float32)


def federate(
    views: Views, norm_bounds: tuple[float, float], n_sites: int, n_samples: int = 0
) -> in_memory.People:
    """Share the first people (0: all) out over equal sites, as z of `cca.stack`."""
    z = stack(*(view / b for view, b in zip(views[:2], norm_bounds, strict=True)))
    if n_samples > z.shape[1] or (n_samples or z.shape[1]) % n_sites:
        have = f"{n_samples} of {z.shape[1]} people"
        raise ConfigError(f"n_samples: {have} are no {n_sites} equal sites")
    z = z[:, : n_samples or None]
    parts = np.split(z, n_sites, axis=1)
    return {f"site-{s}": {"all": np.ascontiguousarray(x)} for s, x in enumerate(parts)}


class Found(NamedTuple):
    """What a method says: directions of both views, (D, K) each, and correlations."""

    U: np.ndarray
    V: np.ndarray
    r: np.ndarray


def find_directions(
    people: in_memory.People,
    n_first: int,
    budget: accounting.Budget,
    arm: str,
    *,
    n_components: int,
    clip: float = 1.0,
    center_share: float = 0.0,
    mean_clip: float = 1.0,
    stretch: float = 1.0,
    n_directions: int | None = None,
    ridge: float = cca.RIDGE,
    debias: bool = True,
    noise: str = "",
    memo: dict[Any, np.ndarray] | None = None,
) -> Found:
    """Find canonical directions by one method, everything charged.

    Parameters
    ----------
    people, n_first, n_components
        Sites from :func:`federate`, D_x and K.
    budget
        The promise, which is each site's ceiling too.
    arm
        One of :data:`.requests.Arm`, ``local`` the first site; or ``chance``,
        random directions and correlations of 0.5.
    clip, n_directions, debias
        See :func:`.cca.canonical_directions`; ``n_directions`` of 0 keeps all
        features, as the thesis does.
    ridge
        See :data:`.cca.RIDGE`; the thesis has none.
    center_share, mean_clip
        Share of mu^2 for a released center, and its clip; with 0 nothing is centered.
    stretch
        Noise is so many times larger than the promise needs.
    noise
        ``printed``: that of :mod:`.printed_noise`, whose promise the budget is.
    memo
        Statistics that were computed before on these data.
    """
    D, K = len(next(iter(people.values()))["all"]) - 1, n_components
    if arm == "chance":
        G = np.random.default_rng().standard_normal((D, K))
        return Found(G[:n_first], G[n_first:], np.full(K, 0.5))
    sites = in_memory.federate(people, budget, memo)
    asked, mu = Ungated(sites), budget.mu / stretch
    about, center = (arm, budget, len(sites)), None
    if center_share:
        first = in_memory.mechanism(mu * np.sqrt(center_share), *about)
        center = rough_center(asked, first, n_first, mean_clip)
    # Intervals are not scored, and as released no correlation needs draws.
    draws = mock.patch.object(cca, "DRAWS", cca.DRAWS if debias else 1)
    ridges = mock.patch.object(cca, "RIDGE", ridge)
    mu *= np.sqrt(1 - center_share)
    mechanism = (
        printed_noise.mechanism(mu, *about[1:])
        if noise == "printed"
        else in_memory.mechanism(mu, *about)
    )
    with draws, ridges, in_memory.whole_release():
        found = canonical_directions(
            asked,
            mechanism,
            K,
            n_first,
            clip,
            center,
            n_directions=D if n_directions == 0 else n_directions,
            debias=debias,
        )
    return Found(found.x_directions, found.y_directions, found.correlations)


def variates(directions: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Variates of a view with mean 0, scaled as a method says, (N, K)."""
    F = (directions.T @ X).astype(np.float64)
    return (F - F.mean(axis=1, keepdims=True)).T


def whitened(F: np.ndarray) -> np.ndarray:
    """Variates with covariance I exactly, (N, rank): only their span counts.

    Noise gives them wrong scales, and the index below rewards that: one large variate
    is a line, which clusters well.
    """
    left, s, _ = np.linalg.svd(F / np.linalg.norm(F, axis=0), full_matrices=False)
    return np.sqrt(len(F)) * left[:, s > 1e-6 * s[0]]


def clusters(Z: np.ndarray, n_clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Cluster of each row of Z by K-means, the best of several starts, (N,)."""
    starts = [Z[rng.choice(len(Z), n_clusters, replace=False)] for _ in range(N_STARTS)]
    found = [kmeans(Z, start) for start in starts]
    return vq(Z, min(found, key=lambda one: one[1])[0])[0]


def calinski_harabasz(Z: np.ndarray, labels: np.ndarray) -> float:
    """Variance between clusters over that within [thesis, 7.3]; Z is (N, K)."""
    N, K = len(Z), len(set(labels.tolist()))
    groups = [Z[labels == one] for one in set(labels.tolist())]
    between = sum(len(g) * np.sum((g.mean(0) - Z.mean(0)) ** 2) for g in groups)
    within = sum(np.sum((g - g.mean(0)) ** 2) for g in groups)
    return float(between / (K - 1) / (within / (N - K)))


def accuracy(found: np.ndarray, labels: np.ndarray) -> float:
    """Share of people in the right cluster, clusters and classes matched one to one."""
    table = np.zeros((found.max() + 1, labels.max() + 1))
    np.add.at(table, (found, labels), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(labels))


def scores(found: Found, views: Views, seed: int) -> dict[str, float]:
    """Compare what was found with the data themselves.

    Returns
    -------
    dict
        ``held``: mean of the exact canonical correlations between the two spans, what
        CCA makes largest. With classes, of K-means on the variates of both views, white
        in each: ``ch``, the Calinski-Harabasz index, and ``accuracy``; ``ch_first`` on
        those of the first view alone, scaled as the method says. With a truth:
        ``err_corr``, ``|r - r_hat| / K``, and ``matched``: mean absolute correlation
        of variates with the true profiles, matched one to one, both views.
    """
    both = variates(found.U, views.X), variates(found.V, views.Y)
    Z, W = map(whitened, both)
    K, rng = len(found.r), np.random.default_rng(seed)
    row = {"held": float(np.linalg.svd(Z.T @ W / len(Z), compute_uv=False).sum() / K)}
    if views.labels is not None:
        ZW = np.hstack([Z, W])
        groups = clusters(ZW, N_CLUSTERS, rng)
        row["ch"] = calinski_harabasz(ZW, groups)
        row["accuracy"] = accuracy(groups, views.labels)
        row["ch_first"] = calinski_harabasz(both[0], clusters(both[0], N_CLUSTERS, rng))
    if views.r is not None and views.profiles is not None:
        row["err_corr"] = float(np.linalg.norm(views.r - found.r) / K)
        both_known = zip(both, views.profiles, strict=True)
        each = [np.abs(metrics.match(F, A)[1]).mean() for F, A in both_known]
        row["matched"] = float(np.mean(each))
    return row


def cca_scores(
    *,
    data: str,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    n_components: int,
    norm_bounds: tuple[float, float],
    n_samples: list[int] | None = None,
    deltas: list[float] | None = None,
    n_sites: int = 10,
    n_colluding: int | None = None,
    folder: str = "../shared/data",
    **options: Any,
) -> list[dict[str, Any]]:
    """Find canonical directions by each method in each setting, everything charged.

    Parameters
    ----------
    data, n_samples, folder
        See :func:`load`; a list of people in all is swept over. Of a real set so many
        are used, and all are scored: the index grows with those it is computed on.
    seed
        Fixes the data; the noise of privacy is drawn afresh.
    methods
        Options of each method, by its name in the figure; they override ``options``.
        ``after`` names another method: see ``behind`` below. ``stretch: cape`` is what
        CAPE adds to a trusted curator's noise, sqrt(S / S_H). ``noise: printed`` takes
        epsilon and delta as nominal: see :func:`.printed_noise.promise`.
    epsilons, deltas, n_sites, n_colluding
        The promises; neighbors differ by one person replaced. By default
        ceil(S / 3) - 1 sites collude.
    norm_bounds
        Public constants that the views are divided by.
    **options
        Of :func:`find_directions`; a mapping from epsilon to value is looked up.

    Returns
    -------
    list of dict
        For each setting and method the :func:`scores`; ``behind``: how much better the
        method named ``after`` is, in the logarithm of ``ch`` or in ``err_corr``,
        whichever there is; ``rise``: how much better it is than at the value before;
        ``real_epsilon``, what is kept at the same delta: with printed noise not what it
        is claimed to be, and none where there is no promise.
    """
    S_C = n_colluding
    if S_C is None:
        S_C = accounting.coalition(n_sites, independent=True)
    rows: list[dict[str, Any]] = []
    last: dict[Any, float] = {}
    for n in n_samples or [0]:
        views = load(data, folder, n, seed)
        people = federate(views, norm_bounds, n_sites, n)
        memo: dict[Any, np.ndarray] = {}
        exact: dict[str, dict[str, float]] = {}
        for delta, epsilon in itertools.product(deltas or [1e-5], epsilons):
            # What is swept over together: epsilon, else delta, else people.
            sweep = (n, delta) if len(epsilons) > 1 else (n if deltas else 0,)
            # With one sample a person this is the unit `subject`.
            budget = accounting.Budget(epsilon, delta, "sample", "replace-one", S_C)
            quality: dict[str, float] = {}
            for method, own in methods.items():
                asked = in_memory.at({**options, **own}, epsilon)
                after = asked.pop("after", None)
                if asked.get("stretch") == "cape":
                    asked["stretch"] = np.sqrt(n_sites / (n_sites - S_C))
                row = exact.get(method)
                promise = budget
                if asked.get("noise") == "printed":
                    share = 1 - asked.get("center_share", 0.0)
                    promise = printed_noise.promise(budget, n_sites, share)
                if row is None:
                    about = people, len(views.X), promise
                    asked |= {"n_components": n_components, "memo": memo}
                    row = scores(find_directions(*about, **asked), views, seed)
                if asked["arm"] == "non-private":  # the same in every setting
                    exact[method] = row
                key = (method, *sweep)
                good = np.log(row["ch"]) if "ch" in row else -row["err_corr"]
                compared = {
                    "behind": quality[after] - good if after else None,
                    "rise": good - last[key] if key in last else None,
                }
                quality[method] = last[key] = good
                setting = {"n_samples": n or views.X.shape[1], "delta": delta}
                setting |= {"method": method, "epsilon": epsilon}
                exists = asked["arm"] not in ("non-private", "chance")
                compared["real_epsilon"] = promise.epsilon if exists else None
                rows.append({**setting, **row, **compared})
    return rows
