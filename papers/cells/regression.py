"""The papers' regressions [paper 2023, 5; thesis, 8.4]: each method on the same rows.

The experiment ``regression``; ``papers/grids/fm_*.yaml``
say what is run. Data are public or simulated, so exact scores may be computed. A sample
is a person, so that the units ``sample`` and ``subject`` are one. No model has an
intercept, as in the papers; features are at least 0 on the tables, so that coefficients
take its place.

Data sets
---------
``warfarin``
    5,700 patients of the IWPC less those without a dose: nine features [WARFARIN], in
    [0, 1] by public bounds, over 3; dose over 100 mg a week, at most 1.
``crime``, ``twitter``
    1,800 rows of 101 features and 10,000 of 77 as the authors published them, scaled by
    the data's largest norm.
``synthetic``, ``synthetic_50``
    `sim/rows.py`: 20 and 50 features, uniform.
``phishing``
    11,055 rows of 30 features in {-1, 0, 1}, over sqrt(30).
``adult``
    48,842 rows of 13 features [`_adult`] in [0, 1], over sqrt(13).
``synthetic_labels``
    `sim/rows.py`: 50 features; the best rule is right for 84%.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import Task
from capeneuro.config.errors import ConfigError
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting, cape
from papers import as_printed, baselines, in_memory
from sim.rows import rows

LOGISTIC = ("phishing", "adult", "synthetic_labels")
SIZES = {"synthetic": 20, "synthetic_50": 50, "synthetic_labels": 50}
# Rows of a simulated set that are scored.
N_TEST = 10_000
# Steps of noisy gradient descent: paper 2023's, and fewer, which the whole promise
# serves better.
T_PRINTED, T_EQUAL = 1000, 100
# Of objective perturbation.
REGULARIZER = 1e-3
# Joint sensitivity of Lambda_1 and Lambda_2 over each one's own, as paper 2023 scales
# their noise: sqrt(8 a^2 + 2 + 8 a^4) at a = 1 / 4, and one record less [X9].
JOINT = math.sqrt(8 / 16 + 2 + 8 / 256)


class Table(NamedTuple):
    """Rows to learn from, and rows to score."""

    X: np.ndarray
    """Features, shape (D, N), norms at most 1."""
    y: np.ndarray
    """Target in [-1, 1], or labels 0 and 1, shape (N,)."""
    X_new: np.ndarray
    y_new: np.ndarray
    task: Task
    chance: float
    """Share of labels that the larger class has wrong; of a target, nan."""


class Found(NamedTuple):
    """What a method says."""

    w: np.ndarray
    """Coefficients, shape (D,)."""
    epsilon: float | None
    """Exact epsilon at the delta of the setting; None without privacy."""


def load(data: str, folder: str, n_samples: int, seed: int) -> Table:
    """Make or read one data set, in random order; a tenth of a real one is scored.

    Parameters
    ----------
    data, folder
        One of those above, and where the real ones are.
    n_samples
        Rows to learn from, N; 0: all that are left of a real set, 10,000 simulated.
    seed
        Fixes what is drawn, and who is in which part.

    Raises
    ------
    ConfigError
        If there is no such set, or it has fewer rows.
    """
    task: Task = "logistic" if data in LOGISTIC else "linear"
    rng = np.random.default_rng(seed)
    if data in SIZES:
        n = n_samples or 10_000
        made = rows(SIZES[data], n + N_TEST, rng, task)
        X, y, n_new, chance = made.X, made.y, N_TEST, 0.5
    elif data in READERS:
        X, y = READERS[data](Path(folder) / "tabular")
        chance = round(min(y.mean(), 1 - y.mean()), 4)
        order = rng.permutation(y.size)
        X, y, n_new = X[:, order], y[order], y.size // 10
    else:
        raise ConfigError(f"data: unknown set {data!r}")
    n = n_samples or y.size - n_new
    if n > y.size - n_new:
        raise ConfigError(f"n_samples: {data} has {y.size - n_new} rows, got {n}")
    old = slice(n_new, n_new + n)
    X = np.ascontiguousarray(X)
    chance = chance if task == "logistic" else math.nan
    return Table(X[:, old], y[old], X[:, :n_new], y[:n_new], task, chance)


def _warfarin(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    known = pd.read_csv(folder / "iwpc_warfarin.csv.gz", low_memory=False)
    known = known[pd.to_numeric(known["Therapeutic Dose of Warfarin"]).notna()]
    gene = known["VKORC1 -1639 consensus"].fillna(
        known["VKORC1 QC genotype: -1639 G>A (3673); chr16:31015190; rs9923231; C/T"]
    )
    enzyme = known["CYP2C9 consensus"].fillna("*1/*1")
    features = [
        known["Age"].str[0].astype(float) / 9,  # decade
        (known["Height (cm)"] - 120) / 90,
        (known["Weight (kg)"] - 30) / 170,
        gene.str.count("A") / 2,
        enzyme.str.count(r"\*2") / 2,
        enzyme.str.count(r"\*3") / 2,
        known["Race"].eq("Asian"),
        known["Race"].str.startswith("Black", na=False),
        known["Amiodarone (Cordarone)"].eq(1),
    ]
    X = np.array([f.astype(float).fillna(0.5).clip(0, 1) for f in features]) / 3
    dose = known["Therapeutic Dose of Warfarin"].astype(float).to_numpy()
    return X, np.minimum(dose / 100, 1)


def _published(name: str) -> Any:
    def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
        known = loadmat(folder / f"capefm_{name}.mat")
        return known["X"].T.astype(float), known["y"].ravel().astype(float)

    return read


def _phishing(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    known = np.loadtxt(folder / "phishing_websites.csv.gz", delimiter=",")
    return known[:, :-1].T / math.sqrt(30), (known[:, -1] < 0).astype(float)


def _adult(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    about: dict[str, Any] = {"header": None, "skipinitialspace": True, "comment": "|"}
    files = [folder / name for name in ("adult.data.gz", "adult.test.gz")]
    known = pd.concat([pd.read_csv(f, **about) for f in files])
    features = [
        known[0] / 90,  # age
        known[4] / 16,  # years of school
        np.log1p(known[10]) / 11.6,  # capital gain
        np.log1p(known[11]) / 11.6,  # and loss
        known[12] / 99,  # hours a week
        known[9] == "Male",
        known[5] == "Married-civ-spouse",
        known[5] == "Never-married",
        known[8] == "White",
        known[13] == "United-States",
        known[1].str.startswith("Self"),
        known[1].str.contains("gov"),
        known[6].isin(["Exec-managerial", "Prof-specialty"]),
    ]
    X = np.array([f.astype(float) for f in features]) / math.sqrt(13)
    return X, known[14].str.startswith(">").to_numpy(float)


READERS = {
    "warfarin": _warfarin,
    "crime": _published("crime_D_101_N_1800"),
    "twitter": _published("twitter_D_77_N_10000"),
    "phishing": _phishing,
    "adult": _adult,
}


def part(table: Table, n_sites: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Share the rows out over sites, as equal as can be; X and y of each."""
    cuts = np.array_split(np.arange(table.y.size), n_sites)
    return [(table.X[:, c[0] : c[-1] + 1], table.y[c]) for c in cuts]


class Study:
    """Rows at S sites, and what was computed on them: methods share exact statistics.

    Parameters
    ----------
    table
        All rows.
    n_sites
        S.
    seed
        Of the comparators' generators.
    sites
        X and y of each site; None: the rows are shared out.
    n_colluding
        Sites that collude; None: ceil(S / 3) - 1.
    """

    def __init__(
        self,
        table: Table,
        n_sites: int,
        seed: int,
        sites: list[tuple[np.ndarray, np.ndarray]] | None = None,
        n_colluding: int | None = None,
    ) -> None:
        self.table, self.sites = table, sites or part(table, n_sites)
        self.weights = [y.size / table.y.size for _, y in self.sites]
        if n_colluding is None:
            n_colluding = accounting.coalition(n_sites, independent=True)
        self.n_colluding = n_colluding
        self.rng = np.random.default_rng([seed, n_sites, table.y.size])
        self.objectives = [baselines.objective(X, y, table.task) for X, y in self.sites]
        self.people: dict[int, in_memory.People] = {}
        self.memo: dict[int, dict[Any, np.ndarray]] = {}

    def budget(self, epsilon: float, delta: float) -> accounting.Budget:
        """The promise to each row."""
        about = epsilon, delta, "sample", "replace-one", self.n_colluding
        return accounting.Budget(*about)

    def stacked(self, n_groups: int) -> tuple[in_memory.People, dict[Any, np.ndarray]]:
        """The sites' z of `regression.stack`, with what was computed on them."""
        if n_groups not in self.people:
            task = self.table.task
            self.people[n_groups] = {
                f"site-{k}": {"all": regression.stack(X, y, task, n_groups=n_groups)}
                for k, (X, y) in enumerate(self.sites)
            }
        return self.people[n_groups], self.memo.setdefault(n_groups, {})


def functional(
    study: Study,
    epsilon: float,
    delta: float,
    *,
    arm: str,
    clip: float = regression.CLIP,
    intercept: bool = False,
    stretch: float | str = 1.0,
) -> tuple[np.ndarray, float | None]:
    """Fit the package's model, charged by its sites.

    Parameters
    ----------
    study, epsilon, delta
        Rows and promise.
    arm
        One of :data:`.requests.Arm`; ``cape`` at one site is ``pooled``.
    clip, intercept
        See :func:`.regression.linear_model`. An intercept comes last in w.
    stretch
        Noise is so many times larger than the promise needs; ``cape``: sqrt(S / S_H).
    """
    budget, S = study.budget(epsilon, delta), len(study.sites)
    people, memo = study.stacked(int(intercept))
    if arm == "cape" and S == 1:
        arm = "pooled"
    if stretch == "cape":
        stretch = math.sqrt(S / (S - study.n_colluding))
    exact = arm == "non-private"
    with in_memory.whole_release():
        found = regression.linear_model(
            Ungated(in_memory.federate(people, budget, memo)),
            in_memory.mechanism(budget.mu / stretch, arm, budget, S),
            study.table.task,
            clip=clip,
            n_groups=int(intercept),
        )
    w = np.append(found.coefficients, found.intercept) if intercept else None
    return found.coefficients if w is None else w, None if exact else epsilon


def as_paper(
    study: Study, epsilon: float, delta: float, *, aware: bool = False
) -> tuple[np.ndarray, float]:
    """Gaussian FM and capeFM with paper 2023's noise, and what that promises.

    The aggregator's noise is the pooled one. Eigenvalues below 0 are dropped, or, with
    ``aware``, the package's minimizer is used.
    """
    S, table = len(study.sites), study.table
    one = baselines.objective(table.X, table.y, table.task)
    task, N = table.task, table.y.size
    taus = as_printed.functional_taus_2023_not_valid(task, N, epsilon, delta)
    noisy = baselines.noisy_objective([one], [1.0], taus, "normal", study.rng)
    # Zero-sum noise of the site's own variance, tau_s^2, and its S-th part beside it.
    unit = np.ones(S)
    r = cape.losses(unit, unit, unit / S, study.n_colluding)[0] if S > 1 else 1.0
    mu = r * JOINT / as_printed.classic_tau(1.0, epsilon, delta)
    solve = baselines.minimize_positive
    found = baselines.minimize_aware(*noisy, taus) if aware else solve(*noisy)
    return found, accounting.epsilon_from_mu(mu, delta)


def other_functional(
    study: Study,
    epsilon: float,
    delta: float,
    *,
    law: str,
    bound: str = "norm",
    printed: bool = False,
) -> tuple[np.ndarray, float]:
    """FM (law ``laplace``) and relaxed FM (``normal``), each site with its own noise.

    Parameters
    ----------
    study, epsilon, delta
        Rows and promise; FM's is pure.
    law, bound
        See :mod:`papers.baselines`.
    printed
        Take the noise of the extended Gaussian mechanism, not what the promise needs.
    """
    task, D = study.table.task, len(study.table.X)
    norm = "L1" if law == "laplace" else "L2"
    unit = baselines.objective_sensitivity(task, D, norm, bound)
    said = epsilon
    if law == "laplace":
        s = math.sqrt(2) * unit / epsilon
    elif printed:
        s = baselines.extended_gaussian(unit, epsilon, delta)
        said = accounting.epsilon_from_mu(unit / s, delta)
    else:
        s = unit / accounting.mu_from_epsilon(epsilon, delta)
    sums = np.zeros(D), np.zeros((D, D))
    for known, weight in zip(study.objectives, study.weights, strict=True):
        both = 2 * (s / (weight * study.table.y.size),)
        one = baselines.noisy_objective([known], [1.0], both, law, study.rng)
        sums = tuple(a + weight * b for a, b in zip(sums, one, strict=True))
    # Sites of N_s rows: weight N_s / N times s / N_s.
    deviation = s * math.sqrt(len(study.sites)) / study.table.y.size
    return baselines.minimize_aware(*sums, (deviation, deviation)), said


def objective_perturbation(
    study: Study, epsilon: float, delta: float
) -> tuple[np.ndarray, float]:
    """Objective perturbation at each site, and the mean of their models; pure.

    The papers give no regularizer. It is at least what leaves half of epsilon to the
    noise: just above where Chaudhuri 2011 adds to it, nearly nothing would be left.
    """
    task, c = study.table.task, (0.25 if study.table.task == "logistic" else 1.0)
    each = []
    for X, y in study.sites:
        Lambda = max(REGULARIZER, c / (y.size * math.expm1(epsilon / 4)))
        about = task, epsilon, study.rng, Lambda
        each.append(baselines.objective_perturbation(X, y, *about))
    return np.average(each, axis=0, weights=study.weights), epsilon


def gradient_descent(
    study: Study, epsilon: float, delta: float, *, printed: bool = False
) -> tuple[np.ndarray, float]:
    """Noisy gradient descent, a site's noise its own; one promise a step if printed."""
    S, table = len(study.sites), study.table
    mu, T = accounting.mu_from_epsilon(epsilon, delta), T_EQUAL
    multiplier, said = math.sqrt(T) / mu, epsilon
    if printed:
        T, multiplier = T_PRINTED, as_printed.classic_tau(1.0, epsilon, delta)
        said = accounting.epsilon_from_mu(math.sqrt(T) / multiplier, delta)
    deviation = 2 * multiplier * math.sqrt(S) / table.y.size
    w = baselines.noisy_gradient_descent(
        *(table.X, table.y, table.task, deviation, study.rng), n_steps=T
    )
    return w, said


def maximum_likelihood(study: Study) -> np.ndarray:
    """Coefficients of the least mean squared error, or of the logistic loss, (D,)."""
    X, y, task, rng = *study.table[:2], study.table.task, study.rng
    if task == "linear":
        return np.linalg.lstsq(X.T, y, rcond=None)[0]
    return baselines.objective_perturbation(X, y, task, math.inf, rng, 1e-6)


METHODS = {
    "functional": functional,
    "paper": as_paper,
    "other": other_functional,
    "objective": objective_perturbation,
    "gradient": gradient_descent,
}


def fit(
    study: Study, epsilon: float, delta: float, *, method: str, **options: Any
) -> Found:
    """Coefficients by one of METHODS, or ``exact``, with what it really promises."""
    if method == "exact":
        return Found(maximum_likelihood(study), None)
    return Found(*METHODS[method](study, epsilon, delta, **options))


def scores(found: Found, table: Table, best: np.ndarray) -> dict[str, float | None]:
    """Compare coefficients with rows not seen, and with the best ones, (D,).

    Returns
    -------
    dict
        Linear: ``mse`` on new rows, predictions moved into [-1, 1], which is public;
        ``loss`` f_D(w) on those learned from, as predicted, and ``err_w``:
        ``|w* - w| / D`` [thesis, 8.4]. Logistic: ``accuracy`` and ``wrong``, shares of
        new rows. ``error`` is mse over that of no coefficients, ``one``, or wrong over
        that of the larger class, ``chance``. ``spent`` is the exact epsilon.
    """
    D, new = len(best), table.y_new
    w, start = found.w[:D], found.w[D] if len(found.w) > D else 0.0
    value = w @ table.X_new + start
    row: dict[str, float | None] = {"spent": found.epsilon}
    if table.task == "linear":
        row["mse"] = error = float(np.mean((value.clip(-1, 1) - new) ** 2))
        row["loss"] = float(np.mean((w @ table.X + start - table.y) ** 2))
        row["err_w"] = float(np.linalg.norm(w - best) / D)
        row["one"], chance = 1.0, float(np.mean(new**2))
    else:
        row["wrong"] = error = float(np.mean((value > 0) != new))
        row["accuracy"] = 1 - error
        row["chance"] = chance = table.chance
    return {**row, "error": error / chance}


def regression_scores(
    *,
    data: str,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    deltas: list[float] | None = None,
    n_samples: list[int] | None = None,
    n_sites: list[int] | None = None,
    sweep: str = "epsilon",
    folder: str = "../shared/data",
) -> list[dict[str, Any]]:
    """Fit each method in each setting, all at the same nominal promise.

    Parameters
    ----------
    data, n_samples, folder
        See :func:`load`; a list of rows to learn from is swept over.
    seed
        Fixes the data; the noise of privacy is drawn afresh, that of comparators not.
    methods
        By its name in the figure, ``method``, one of METHODS, and its options.
        ``after`` names another method: see ``behind`` below. ``together``: it is
        given all rows at one site, a trusted curator's.
    epsilons, deltas, n_sites
        The promises, and sites S to sweep over; ceil(S / 3) - 1 collude. Neighbors
        differ by one row replaced.
    sweep
        Column that ``rise`` below is about.

    Returns
    -------
    list of dict
        For each setting and method the :func:`scores`; ``behind``: its error less that
        of the method named ``after``; ``rise``: how much its error rose from the value
        before in the sweep; ``excess``: its error over that without privacy,
        less 1.
    """
    found: list[dict[str, Any]] = []
    last: dict[Any, float] = {}
    for n in n_samples or [0]:
        table = load(data, folder, n, seed)
        studies = {S: Study(table, S, seed) for S in {1, *(n_sites or [1])}}
        best = maximum_likelihood(studies[1])
        least = scores(Found(best, None), table, best)["error"]
        for S, delta, epsilon in itertools.product(
            n_sites or [1], deltas or [1e-5], epsilons
        ):
            setting = {"n_samples": n or table.y.size, "n_sites": S}
            setting |= {"delta": delta, "epsilon": epsilon}
            others = tuple(value for key, value in setting.items() if key != sweep)
            errors: dict[str, float] = {}
            for name, own in methods.items():
                asked = dict(own)
                after = asked.pop("after", None)
                study = studies[1 if asked.pop("together", False) else S]
                row = scores(fit(study, epsilon, delta, **asked), table, best)
                error = errors[name] = row["error"]
                compared = {
                    "behind": error - errors[after] if after else None,
                    "rise": error - last[name, others]
                    if (name, others) in last
                    else None,
                    "excess": error / least - 1,
                }
                last[name, others] = error
                found.append({**setting, "method": name, **row, **compared})
    return found
