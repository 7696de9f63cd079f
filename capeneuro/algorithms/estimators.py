"""Regression for a user with a table: scikit-learn's manner, without scikit-learn.

Rows are people here, as tables have them. All tables are in this process, so this is
for trying out, teaching and simulation, and for one curator who holds several cohorts.
A study across institutions is a study file: there no one sees another's table, and the
promise, the sites' ceilings and their ledgers are written down before anything runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import LinearModel, Task, linear_model
from capeneuro.federation.arrays import Sites
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.rules import EXACT_ARMS, TABLE, Arm, Kind
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import RANGE

Bounds = tuple[float, float]
# Who is charged: rows have no names, so any two tables on a ledger may be of the same
# people.
ROWS = "rows"
# Of the target's weight; nobody would see the target, or the features, beyond.
SCALES = (1e-3, 1e3)


class PrivateRegression:
    """Linear or logistic regression over several tables, differentially private.

    Parameters
    ----------
    epsilon, delta
        The promise to each row, against the aggregator and ``n_colluding`` sites. The
        whole of it is spent by one fit.
    bounds
        Smallest and largest value of each feature, shape (D, 2), or of all of them.
        Public: known before the data are looked at, such as a scale's range. Values
        beyond are clipped to them; wide bounds cost accuracy.
    target_bounds
        The same of the target; of labels 0 and 1 nothing is asked.
    task
        ``"linear"`` or ``"logistic"`` (to second order, see :mod:`.regression`).
    intercept
        True; False, through the origin of the table; or ``"sites"``, one for each: what
        sites differ by in the target is not attributed to features. ``predict`` then
        uses their mean.
    arm
        One of :data:`.rules.Arm`.
    kind
        ``"public"`` or ``"simulated"`` where the tables are; ``"private"`` needs
        ``ledgers``.
    ledgers
        By site, :class:`.ledger.Ledger` on disk: they outlive this object, and
        a promise holds over all that was ever spent. None: in memory.
    n_colluding
        Sites that may pool what they know with the aggregator, its own among them;
        None: :func:`.accounting.coalition`.
    scale, clip, ridge
        See :func:`.linear_model`; features are scaled to norms of at most 1.

    Attributes
    ----------
    coef_ : (D,)
    intercept_ : float
    model_ : LinearModel
        In the units of the tables, with intervals.
    feature_names_in_ : list or None
        Columns of the first table, if it is a data frame.
    releases_ : list
        What was released, for the record.

    Examples
    --------
    >>> model = PrivateRegression(1.0, bounds=(0, 1), target_bounds=(0, 1),
    ...                           kind="public")
    >>> model.fit({"north": (X1, y1), "south": (X2, y2)}).predict(X)  # doctest: +SKIP

    Guarantee
    ---------
    One release of ``second_moment`` under the whole promise, unit ``sample`` (a row),
    replace-one; numbers of rows of each table are public. None for exact arms.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-5,
        *,
        bounds: Bounds | Sequence[Bounds] | np.ndarray,
        target_bounds: Bounds | None = None,
        task: Task = "linear",
        intercept: bool | Literal["sites"] = True,
        arm: Arm = "cape",
        kind: Kind = "private",
        ledgers: Mapping[str, Ledger] | None = None,
        n_colluding: int | None = None,
        scale: float = regression.SCALE,
        clip: float = regression.CLIP,
        ridge: float | None = None,
    ) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.bounds, self.target_bounds = bounds, target_bounds
        self.task, self.intercept, self.arm, self.kind = task, intercept, arm, kind
        self.ledgers, self.n_colluding = ledgers, n_colluding
        self.scale, self.clip, self.ridge = scale, clip, ridge

    def fit(
        self, tables: Mapping[str, Any], target: str | None = None
    ) -> "PrivateRegression":
        """Fit over all tables.

        Parameters
        ----------
        tables
            By site: ``(X, y)`` of shapes (n_rows, D) and (n_rows,), or a data frame.
            Columns of data frames are matched by name.
        target
            Column of the data frames that is the target; the others are features.

        Raises
        ------
        ValueError
            If tables do not fit together or the bounds, or hold missing values; if data
            are private and there is no ledger for a site.
        """
        pairs = {name: _pair(name, table, target) for name, table in tables.items()}
        first = next((X for X, _ in pairs.values()), None)
        self.feature_names_in_ = list(getattr(first, "columns", [])) or None
        data = {
            name: (self._features(X, f"{name}: "), np.asarray(y, float).ravel())
            for name, (X, y) in pairs.items()
        }
        D = self._check(data)
        low, high = np.broadcast_to(np.asarray(self.bounds, float), (D, 2)).T
        y_low, y_high = self.target_bounds or (0.0, 1.0)
        center, spread = self._scaling(low, high)
        y_center, y_spread = self._scaling(y_low, y_high)
        spread = spread * np.sqrt(D)  # so norms are at most 1
        # Of "sites" one intercept each, of True one for all, of False none.
        n_groups = len(data) if self.intercept == "sites" else int(self.intercept)
        people = {}
        for k, (name, (X, y)) in enumerate(data.items()):
            x = (np.clip(X, low, high) - center) / spread
            t = y
            if self.task == "linear":
                t = (np.clip(y, y_low, y_high) - y_center) / y_spread
            group = k if n_groups > 1 else 0
            z = regression.stack(x.T, t, self.task, self.scale, group, n_groups)
            people[name] = {ROWS: z}
        S_C = self.n_colluding
        if S_C is None:
            S_C = accounting.coalition(len(data))
        budget = Budget(self.epsilon, self.delta, "sample", "replace-one", S_C)
        ledgers = {n: (self.ledgers or {}).get(n) or Ledger(None, budget) for n in data}
        ratio = cape.NOISE_RATIO_PER_SITE * len(data)
        about = self.arm, self.kind, ledgers, ratio
        sites = Sites(people, budget, *about, name=TABLE.split("-")[0])
        mechanism = sites.mechanism(1)
        found = linear_model(
            sites.federation(),
            mechanism,
            self.task,
            self.scale,
            self.clip,
            n_groups=n_groups,
            ridge=self.ridge,
        )
        self.model_: LinearModel = replace(
            found.in_unit(center, spread, float(y_center), float(y_spread)),
            bounds=np.stack([low, high], axis=1),
            target_bounds=np.array([y_low, y_high], float),
        )
        self.coef_, self.intercept_ = self.model_.coefficients, self.model_.intercept
        self.releases_ = mechanism.releases
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Targets, or labels 0 and 1, of rows X, shape (n_rows,).

        Features are limited to ``bounds`` and targets to ``target_bounds``, as in
        ``fit``.
        """
        value = self.model_.predict(self._features(X).T)
        return value if self.task == "linear" else (value > 0.5).astype(int)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of labels 0 and 1, shape (n_rows, 2).

        Raises
        ------
        ValueError
            If the task has no labels.
        """
        if self.task != "logistic":
            raise ValueError("predict_proba needs task='logistic'")
        p = self.model_.predict(self._features(X).T)
        return np.stack([1 - p, p], axis=1)

    def _features(self, X: Any, where: str = "") -> np.ndarray:
        """Features of a table, (n_rows, D), those of a data frame by their names."""
        names = self.feature_names_in_
        if names and hasattr(X, "columns"):
            if sorted(map(str, X.columns)) != sorted(map(str, names)):
                raise ValueError(
                    f"{where}columns must be {', '.join(map(str, names))}, got "
                    f"{', '.join(map(str, X.columns))}"
                )
            X = X[names]
        try:
            return np.atleast_2d(np.asarray(X, float))
        except ValueError as error:
            raise ValueError(
                f"{where}{error}; leave out columns that are no features"
            ) from None

    def _scaling(self, low: Any, high: Any) -> tuple[Any, Any]:
        """Middle and half width of bounds, by which values come to lie in [-1, 1]."""
        if self.intercept:
            return (low + high) / 2, (high - low) / 2
        # A model through the origin of the table.
        return 0.0 * low, np.maximum(np.abs(low), np.abs(high))

    def _check(self, data: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> int:
        """Refuse what cannot be fitted; the number D of features."""
        rules = {
            "epsilon: must be above 0": self.epsilon > 0,
            "delta: must be between 0 and 1": 0 < self.delta < 1,
            "task: must be 'linear' or 'logistic'": self.task in get_args(Task),
            "intercept: must be True, False or 'sites'": (
                self.intercept in (True, False, "sites")
            ),
            f"scale: must be {SCALES[0]:g} to {SCALES[1]:g}": (
                SCALES[0] <= self.scale <= SCALES[1]
            ),
            "ridge: must be at least 0": self.ridge is None or 0 <= self.ridge < np.inf,
        }
        for rule, holds in rules.items():
            if not holds:  # else the release would be paid for in vain
                raise ValueError(rule)
        if not data:
            raise ValueError("tables: give at least one site")
        if self.task == "linear" and self.target_bounds is None:
            raise ValueError(
                "target_bounds: give the smallest and the largest target that can be, "
                "from what is public; the data's own are a release that nobody charged"
            )
        sizes = {X.shape[1] for X, _ in data.values()}
        if len(sizes) > 1:
            raise ValueError(f"tables: numbers of features differ: {sorted(sizes)}")
        D = sizes.pop()
        if not D:
            raise ValueError("tables: need at least one feature")
        try:
            bounds = np.broadcast_to(np.asarray(self.bounds, float), (D, 2))
        except ValueError:
            raise ValueError(f"bounds: need a pair, or {D} of them") from None
        pairs = [*bounds, *([self.target_bounds] if self.target_bounds else [])]
        widths = [float(high) - float(low) for low, high in pairs]
        if not all(RANGE[0] <= width <= RANGE[1] for width in widths):
            raise ValueError(
                "bounds: each lower one must be below its upper one, "
                f"{RANGE[0]:g} to {RANGE[1]:g} apart"
            )
        for name, (X, y) in data.items():
            if len(X) != len(y) or not len(y):
                raise ValueError(f"{name}: {len(X)} rows of X, {len(y)} of y")
            if not (np.isfinite(X).all() and np.isfinite(y).all()):
                raise ValueError(
                    f"{name}: values are missing; fill or drop them before"
                )
            if self.task == "logistic" and not np.isin(y, (0, 1)).all():
                raise ValueError(f"{name}: labels must be 0 and 1")
        without = [name for name in data if name not in (self.ledgers or {})]
        if self.kind == "private" and without:
            raise ValueError(
                f"{', '.join(without)}: private data need ledgers on disk, "
                "ledgers={site: Ledger(folder, ceiling)}; kind='public' or 'simulated' "
                "where that is what they are"
            )
        for name, ledger in (self.ledgers or {}).items():
            # Privacy: rows and people who are charged by name cannot be added up.
            if any(e.get("study", TABLE) != TABLE for e in ledger.entries()):
                raise ValueError(
                    f"{name}: its ledger holds studies, to which rows without names "
                    "cannot be added; write a study file for the same people"
                )
        if self.kind == "private" and self.arm in EXACT_ARMS:
            raise ValueError(f"arm {self.arm!r} is for public or simulated data only")
        return D


def _pair(name: str, table: Any, target: str | None) -> tuple[Any, Any]:
    """Features and target of one site's table."""
    if target is None:
        return table
    if target not in table:
        raise ValueError(f"{name}: has no column {target}")
    return table.drop(columns=target), table[target]
