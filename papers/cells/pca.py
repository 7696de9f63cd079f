"""The papers' PCA experiments: captured energy of every method on the same data.

The experiment ``pca``; ``papers/grids/pca_*.yaml`` say
what is run. Data are public or simulated, so exact scores may be computed; bounds and
clips are constants of the figure file all the same.

Data sets
---------
``synthetic``
    D = 200: normal, spectrum 1 / k up to K, then a tenth of the last (`sim/tables.py`).
``mnist``
    D = 784: 3,500 digits, pixels in [0, 1].
``table``
    D = 50: UCI Adult, 48,842 people, six numbers divided by public ranges and 44
    indicators of six categories. Covertype, which the papers used, has 10 numbers and
    44 indicators; of the tables at hand this one is nearest in kind and in size.
``abide``
    D = 200: z-scored parcel series of 128 people at 11 sites.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms.pca import Subspace, released_center
from capeneuro.config.errors import ConfigError
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from capeneuro.privacy.clipping import bounded
from papers import in_memory, printed_noise
from papers.cells import abide
from papers.dp_djica import private_global_pca
from sim.tables import decaying_spectrum, normal_table

# Numbers of UCI Adult by column, with what they are divided by: the top codes that its
# documentation gives, rounded up.
RANGES = {0: 90, 2: 1.5e6, 4: 16, 10: 1e5, 11: 5000, 12: 100}
# Its categories but education, which repeats column 4, and native country.
CATEGORIES = (1, 5, 6, 7, 8, 9)
# Methods whose epsilon is nothing, or is not at this delta.
NO_PROMISE = ("non-private", "chance", "wishart")


def load(
    data: str, folder: str, n_samples: int, n_sites: int, seed: int
) -> in_memory.People:
    """Make or read one data set and share it out at random.

    Parameters
    ----------
    data, folder
        One of those above, and where the real ones are.
    n_samples, n_sites
        Samples of each site and sites; ABIDE has its own.
    seed
        Fixes what is drawn. A smaller ``n_samples`` is not a part of a larger one.

    Returns
    -------
    dict
        By site and person, arrays (D, N), float32; each site's samples are one
        "person" where samples are independent.
    """
    rng = np.random.default_rng(seed)
    if data == "abide":
        return abide.load(Path(folder) / "abide_cc200")
    if data == "synthetic":
        X = normal_table(decaying_spectrum(200, 50), n_sites * n_samples, rng)
    else:
        known = {"mnist": _digits, "table": _adult}
        if data not in known:
            raise ConfigError(f"data: unknown set {data!r}")
        X = known[data](Path(folder))
        if n_sites * n_samples > X.shape[1]:
            raise ConfigError(f"n_samples: {data} has {X.shape[1]} samples in all")
        X = X[:, rng.permutation(X.shape[1])[: n_sites * n_samples]]
    blocks = np.split(X, n_sites, axis=1)
    return {f"site-{s}": {"all": np.ascontiguousarray(x)} for s, x in enumerate(blocks)}


def _digits(folder: Path) -> np.ndarray:
    X = np.load(folder / "images" / "mnist_3500.npz")["X"]
    return np.float32(X.T / 255)


def _adult(folder: Path) -> np.ndarray:
    import pandas as pd

    files = [folder / "tabular" / f"adult.{part}.gz" for part in ("data", "test")]
    options = {"header": None, "skipinitialspace": True, "comment": "|"}
    rows = pd.concat([pd.read_csv(file, **options) for file in files])
    numbers = rows[list(RANGES)] / list(RANGES.values())
    indicators = pd.get_dummies(rows[list(CATEGORIES)].astype(str))
    return np.hstack([numbers, indicators]).T.astype(np.float32)


def with_baseline(
    people: in_memory.People, common: float, own: float, seed: int
) -> in_memory.People:
    """Add a mean to each feature: a common one and each person's own, both normal."""
    rng = np.random.default_rng(seed)
    D = len(next(iter(next(iter(people.values())).values())))
    shared = common * rng.standard_normal(D)
    return _each(people, lambda X: X + (shared + own * rng.standard_normal(D))[:, None])


def _each(people: in_memory.People, change: Any) -> in_memory.People:
    return {
        site: {name: change(X).astype(np.float32) for name, X in own.items()}
        for site, own in people.items()
    }


def _centered(X: np.ndarray) -> np.ndarray:
    return X - X.mean(axis=1, dtype=np.float64, keepdims=True)


def truth(people: in_memory.People, unit: accounting.Unit) -> np.ndarray:
    """Exact pooled covariance, (D, D): over samples, or the mean of persons' own."""
    each = [X.astype(np.float64) for own in people.values() for X in own.values()]
    if unit == "subject":
        return np.mean([_centered(X) @ _centered(X).T / X.shape[1] for X in each], 0)
    X = _centered(np.hstack(each))
    return X @ X.T / X.shape[1]


def find_subspace(
    people: in_memory.People,
    budget: accounting.Budget,
    arm: str,
    *,
    n_components: int,
    norm_bound: float,
    clip: float = 1.0,
    center_share: float = 0.0,
    mean_clip: float = 1.0,
    stretch: float = 1.0,
    noise: str = "",
    memo: dict[Any, np.ndarray] | None = None,
) -> Subspace:
    """Find the subspace by one method, everything charged.

    Parameters
    ----------
    people, n_components
        Data and K.
    budget
        The promise, which is each site's ceiling too.
    arm
        One of :data:`.requests.Arm`; ``dpdispca`` [Imtiaz 2018]; ``wishart``
        [imtiaz2016dpdjica], which spends the epsilon that its paper claims; or
        ``chance``, random directions. ``local`` is the largest site.
    norm_bound, clip
        See :func:`.pca.principal_subspace`.
    center_share, mean_clip
        Share of mu^2 for a released center, and its clip; with 0 nothing is centered.
        Wishart noise has the exact center for nothing, as its paper assumes.
    stretch
        Noise is so many times larger than the promise needs.
    noise
        ``printed``: that of :mod:`.printed_noise`, whose promise the budget is.
    memo
        Statistics that were computed before on these data.
    """
    if arm == "local":
        largest = max(people, key=lambda s: sum(X.shape[1] for X in people[s].values()))
        people = {largest: people[largest]}
    if arm == "chance":
        D = len(next(iter(next(iter(people.values())).values())))
        V = np.linalg.qr(np.random.default_rng().standard_normal((D, n_components)))[0]
        return Subspace(np.ones(n_components), V, norm_bound)
    if arm == "wishart":
        return _wishart(
            people, budget.epsilon, n_components, norm_bound, clip, center_share > 0
        )
    sites = in_memory.federate(people, budget, memo)
    mu, center = budget.mu / stretch, None
    if center_share:
        shown = "conventional" if arm == "dpdispca" else arm
        about = shown, budget, len(sites)
        center = released_center(
            Ungated(sites),
            in_memory.mechanism(mu * np.sqrt(center_share), *about),
            norm_bound,
            mean_clip,
        ).value
    mu *= np.sqrt(1 - center_share)

    def found(asked: Mapping[str, Site], shown: str) -> Subspace:
        mechanism = (
            printed_noise.mechanism(mu, budget, len(asked))
            if noise == "printed"
            else in_memory.mechanism(mu, shown, budget, len(asked))
        )
        return in_memory.run_pca(
            asked, mechanism, n_components, norm_bound, clip, center
        )

    if arm == "dpdispca":
        parts = [found({name: site}, "local") for name, site in sites.items()]
        return merged_subspace(parts, n_components)
    return found(sites, arm)


def merged_subspace(parts: Sequence[Subspace], n_components: int) -> Subspace:
    """Merge the sites' own subspaces by partial square roots: DPdisPCA [Imtiaz 2018].

    Each part comes from one site, by :func:`principal_subspace` with the ``local`` arm:
    ``P_s = U_s Lambda_s^(1/2)`` of what noise left positive; then the top directions of
    ``sum_s (N_s / N) P_s P_s'``.

    Parameters
    ----------
    parts
        Subspaces of the sites, each with R >= K directions.
    n_components
        Number K of directions of the result.

    Returns
    -------
    Subspace
        In descending order of energy, signs fixed, with the bound and center of the
        first part, without a spectrum or a level of noise.

    Guarantee
    ---------
    Post-processing of the parts. No person is at two sites, so the losses do not add.
    """
    n_units = sum(part.n_units for part in parts)
    roots = []
    for part in parts:
        released = np.maximum(part.spectrum[: len(part.eigenvalues)], 0)
        roots.append(part.eigenvectors * np.sqrt(part.n_units / n_units * released))
    U, s, _ = np.linalg.svd(np.hstack(roots), full_matrices=False)
    V, first = U[:, :n_components], parts[0]
    values = s[:n_components] ** 2
    return Subspace(
        values,
        V * linalg.peak_signs(V),
        first.norm_bound,
        first.center,
        n_units=n_units,
    )


def _wishart(
    people: in_memory.People,
    epsilon: float,
    K: int,
    norm_bound: float,
    clip: float,
    is_centered: bool,
) -> Subspace:
    """Pass the subspace on from site to site; its samples have norm at most 1."""
    sites = [np.hstack(list(own.values())) for own in people.values()]
    D, n = len(sites[0]), sum(X.shape[1] for X in sites)
    bound = norm_bound * np.sqrt(clip)
    center = np.zeros(D)
    if is_centered:
        center = sum(X.sum(axis=1, dtype=np.float64) for X in sites) / n / bound
    sites = [bounded(X, bound, 1.0, center) for X in sites]
    rng = np.random.default_rng()
    values, U = private_global_pca(sites, K, epsilon, rng, min(D, 5 * K))
    return Subspace(clip * values / n, U, norm_bound, n_units=n)


def scores(
    found: Subspace, C: np.ndarray, best: float | None = None
) -> dict[str, float | None]:
    """Compare a subspace with the exact covariance C of the data.

    Parameters
    ----------
    found, C
        Both in any unit.
    best
        Energy of the best K directions, where it is known; None: computed.

    Returns
    -------
    dict
        ``captured`` energy ``tr(V' C V)`` in the unit of C and its ``share`` of the
        best K directions'. ``energy_error``: of the energies that the subspace states,
        norm of the error over the norm; ``whitening_error``: distance of the whitened
        covariance from I over sqrt(K), whatever its scale, if those energies, at least
        the deviation of the noise, whitened. The same with ``_raw`` for the eigenvalues
        as released; None where there is no spectrum.
    """
    V = found.eigenvectors
    K = V.shape[1]
    best = best or linalg.top_eigenpairs(C, K)[0].sum()
    held = _held(V, C)
    captured = float(held.sum())
    row: dict[str, float | None] = {"captured": captured, "share": captured / best}
    scaled = C / found.norm_bound**2
    floored = np.maximum(found.eigenvalues, found.noise_deviation)
    kinds = {
        "": replace(found, spectrum=floored),
        "_raw": replace(found, eigenvalues=found.spectrum[:K]),
    }
    for end, one in kinds.items():
        for name, error in (("energy", _energy_error), ("whitening", _whitening_error)):
            known = found.spectrum.size
            row[f"{name}_error{end}"] = error(one, scaled) if known else None
    return row


def _held(V: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Energy of C along each direction, the diagonal of V' C V."""
    return np.sum(V * (C @ V), axis=0)


def _energy_error(found: Subspace, C: np.ndarray) -> float:
    held = _held(found.eigenvectors, C)
    return float(np.linalg.norm(found.eigenvalues - held) / np.linalg.norm(held))


def _whitening_error(found: Subspace, C: np.ndarray) -> float:
    B = found.whitening()
    M, K = B @ C @ B.T, len(B)
    # A common scale, such as that of clipped samples, is no error of a whitening.
    return float(np.linalg.norm(K / np.trace(M) * M - np.eye(K)) / np.sqrt(K))


def pca_scores(
    *,
    data: str,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    n_components: int,
    norm_bound: float,
    unit: accounting.Unit = "sample",
    n_samples: list[int] | None = None,
    deltas: list[float] | None = None,
    bounds: list[float] | None = None,
    n_sites: int = 10,
    n_colluding: int | None = None,
    folder: str = "../shared/data",
    baseline: list[float] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Find the subspace by each method in each setting, everything charged.

    Parameters
    ----------
    data, n_samples, n_sites, folder
        See :func:`load`; a list of samples of each site is swept over.
    seed
        Fixes the data; the noise of privacy is drawn afresh.
    methods
        Options of each method, by its name in the figure; they override ``options``.
        ``after`` names another method: see ``behind`` below. ``stretch: cape`` is what
        CAPE adds to a trusted curator's noise, sqrt(S / S_H). ``within_person`` takes
        each person's own mean off first, free under the unit ``subject`` only;
        ``n_colluding`` overrides that of the figure. ``noise: printed`` takes epsilon
        and delta as nominal: see :func:`.printed_noise.promise`.
    epsilons, deltas, unit, n_colluding
        The promises; neighbors differ by one unit replaced. By default ceil(S / 3) - 1
        sites collude.
    norm_bound, bounds
        Public constant, and factors of it to sweep over.
    baseline
        Deviations of a mean that is added: see :func:`with_baseline`.
    **options
        Of :func:`find_subspace`; a mapping from epsilon to value is looked up.

    Returns
    -------
    list of dict
        For each setting and method the :func:`scores`; ``behind``: the share of the
        method named ``after`` less its own; ``rise``: its share less that at the value
        before in the list that is swept over; ``real_epsilon``, what is kept at the
        same delta: with printed noise not what it is claimed to be, and none where
        there is no promise.
    """
    rows: list[dict[str, Any]] = []
    for n in n_samples or [0]:
        people = load(data, folder, n, n_sites, seed)
        if baseline:
            people = with_baseline(people, *baseline, seed)
        C = truth(people, unit)
        best = float(linalg.top_eigenpairs(C, n_components)[0].sum())
        known = {False: (people, {})}  # with what was computed on them
        if any(own.get("within_person") for own in methods.values()):
            if unit != "subject":
                raise ConfigError("within_person: free under the unit subject only")
            known[True] = _each(people, _centered), {}
        exact: dict[str, Any] = {}
        for delta, bound, epsilon in itertools.product(
            deltas or [1e-5], bounds or [1.0], epsilons
        ):
            shares: dict[str, float] = {}
            for method, own in methods.items():
                asked = {"norm_bound": norm_bound, "n_colluding": n_colluding}
                asked |= in_memory.at({**options, **own}, epsilon)
                after = asked.pop("after", None)
                used = known[asked.pop("within_person", False)]
                row = exact.get(method)
                if row is None:
                    about = unit, epsilon, delta, bound
                    found, real = _find(
                        *used, *about, n_components=n_components, **asked
                    )
                    row = {**scores(found, C, best), "real_epsilon": real}
                if asked["arm"] == "non-private":  # the same in every setting
                    exact[method] = row
                setting = {"n_samples": n, "delta": delta, "bound": bound}
                setting |= {"method": method, "epsilon": epsilon}
                shares[method] = row["share"]
                before = [r["share"] for r in rows if r["method"] == method]
                compared = {
                    "behind": shares[after] - row["share"] if after else None,
                    "rise": row["share"] - before[-1] if before else None,
                }
                rows.append({**setting, **row, **compared})
    return rows


def _find(
    people: in_memory.People,
    memo: dict[Any, np.ndarray],
    unit: accounting.Unit,
    epsilon: float,
    delta: float,
    bound: float,
    *,
    norm_bound: float,
    n_colluding: int | None,
    mean_clip: float = 1.0,
    stretch: float | str = 1.0,
    **asked: Any,
) -> tuple[Subspace, float | None]:
    """Run one method in one setting; the norm bound, not the clip, is scaled."""
    S = len(people)
    if n_colluding is None:
        n_colluding = accounting.coalition(S, independent=True)
    budget = accounting.Budget(epsilon, delta, unit, "replace-one", n_colluding)
    if asked.get("noise") == "printed":
        budget = printed_noise.promise(budget, S, 1 - asked.get("center_share", 0.0))
    found = find_subspace(
        people,
        budget,
        norm_bound=bound * norm_bound,
        mean_clip=mean_clip / bound,
        stretch=np.sqrt(S / (S - n_colluding)) if stretch == "cape" else stretch,
        memo=memo,
        **asked,
    )
    return found, None if asked["arm"] in NO_PROMISE else budget.epsilon
