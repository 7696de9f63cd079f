"""Regression and classification over tables, as scikit-learn's estimators.

``fit(X, y, groups=site)``, ``predict``, ``score``, ``clone`` and ``get_params`` are
scikit-learn's; what is fitted is the verb :func:`.linear_model`. Rows are people
here, as tables have them, and all are in this process: for trying out, teaching and
simulation, and for one curator who holds several cohorts. A study across institutions
is a study file, where no one sees another's table.

Bounds, labels and the promise are parameters of the constructor, for they are public
and written down before the data are looked at. Two rules differ from scikit-learn's:

* A fit to private data spends the whole promise, and its sites' ledgers remember it
  after this process. The same fit again is answered again and costs nothing; another
  is refused once the ledger's ceiling is reached.
* scikit-learn's cross-validation, grid search and anything else that fits copies is
  refused where data are private: each fit charges, so ten folds cost ten releases,
  and the choice among them one more. Where ``kind`` is ``"public"`` or ``"simulated"``
  it works. ``n_folds`` is cross-validation within the promise of one fit: a row is in
  one fold, so moments of all folds are one release.

``score`` is scikit-learn's, and exact: of private rows it is for their holder alone.
``model_.r2``, with its interval, may be published: the release has paid for it. A
transformer in front of an estimator, such as ``StandardScaler``, reads the data without
a charge: scale by public constants instead, or let ``bounds`` do it.

Exceptions to scikit-learn's ``check_estimator`` (``tests/studies/test_estimators.py``):
without privacy there is none. With it two fits to public data are two draws of the
noise, as the tag ``non_deterministic`` says, so these, which compare two fits, do not
hold: ``check_fit_idempotent``, ``check_supervised_y_2d``, ``check_regressors_int``,
``check_regressor_data_not_an_array``, ``check_classifier_data_not_an_array``. And
``check_regressors_train`` and ``check_classifiers_train`` ask for no score, as the tag
``poor_score`` says: of some hundred rows privacy leaves little.
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import LinearModel, Task
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.requests import EXACT_ARMS, Arm, Kind
from capeneuro.federation.rules import TABLE
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import models
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import RANGE

Bounds = tuple[float, float]
# Who is charged: rows have no names, so any two tables on a ledger may be of the same
# people.
ROWS = "rows"
# The one site of rows without groups.
ALL = "all"


class PrivateRegressor(RegressorMixin, BaseEstimator):
    """Linear regression over the tables of several sites, differentially private.

    Parameters
    ----------
    epsilon, delta
        The promise to each row, against the aggregator and ``n_colluding`` sites. One
        fit spends all of it. Epsilon has no default: ``fit`` refuses None.
    bounds
        Smallest and largest value of each feature, shape (D, 2), or one pair for all of
        them. Public: known before the data are looked at, such as a scale's range.
        Values are limited to them; wide bounds cost accuracy.
    target_bounds
        Smallest and largest value of the target, under the same rules.
    within_sites
        An intercept for each site: differences of sites in the target are not
        attributed to features, and ``predict`` uses the mean intercept. False: one
        intercept for all.
    arm
        One of :data:`.requests.Arm`.
    kind
        ``"public"`` or ``"simulated"`` where the tables are; ``"private"`` needs
        ``ledgers`` and refuses exact arms and cross-validation.
    ledgers
        By site, :class:`.ledger.Ledger` on disk: they outlive this object, and a
        promise holds over everything that was ever spent. None: in memory.
    n_colluding
        Sites that may collude with the aggregator, its own among them; None:
        :func:`.accounting.coalition`.
    clip, ridge
        See :func:`.regression.linear_model`; features are scaled to norms of at most 1.
    n_folds
        Folds of rows to cross-validate the model within the same promise, see
        :func:`.cross_validate`: K leave ``model_`` sqrt(K) times the noise. None:
        no cross-validation.
    accept
        Why a model is wanted whose noise is predicted to exceed its signal; empty: the
        fit is refused before anything is spent.

    Attributes
    ----------
    coef_ : (D,)
    intercept_ : float
    model_ : LinearModel
        In the units of the table, with intervals, and an intercept for each site.
    cross_validation_ : CrossValidation
        The same of all folds but one, and how well they predict; with ``n_folds``.
    sites_ : tuple of str
        Names in ``groups``, in the order of ``model_.intercepts``.
    n_features_in_, feature_names_in_
        As scikit-learn sets them.
    privacy_ : dict
        Promise to a row and spent budget, see :meth:`.sites.Sites.privacy`.

    Examples
    --------
    >>> X = rng.random((4000, 2))
    >>> age, site = 18 + 60 * X[:, 0], np.repeat(["north", "south"], 2000)
    >>> model = PrivateRegressor(1.0, bounds=(0, 1), target_bounds=(18, 90),
    ...                          kind="public")
    >>> bool(model.fit(X, age, groups=site).score(X, age) > 0.5)
    True

    Guarantee
    ---------
    One release of ``second_moment`` under the whole promise, unit ``sample`` (a row),
    replace-one; numbers of rows of each site are public. None for exact arms. A person
    in several rows has the sum of their losses.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-5,
        *,
        bounds: Bounds | Sequence[Bounds] | np.ndarray | None = None,
        target_bounds: Bounds | None = None,
        within_sites: bool = True,
        arm: Arm = "cape",
        kind: Kind = "private",
        ledgers: Mapping[str, Ledger] | None = None,
        n_colluding: int | None = None,
        clip: float = regression.CLIP,
        ridge: float | None = None,
        n_folds: int | None = None,
        accept: str = "",
    ) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.bounds, self.target_bounds = bounds, target_bounds
        self.within_sites, self.arm, self.kind = within_sites, arm, kind
        self.ledgers, self.n_colluding = ledgers, n_colluding
        self.clip, self.ridge = clip, ridge
        self.n_folds, self.accept = n_folds, accept

    def fit(self, X: Any, y: Any, groups: Any = None) -> "PrivateRegressor":
        """Fit over the rows of all sites.

        Parameters
        ----------
        X
            Features, shape (n_rows, D); a data frame's columns are remembered.
        y
            Target, shape (n_rows,).
        groups
            The site of each row, shape (n_rows,); None: one site of all.

        Raises
        ------
        ValueError
            If data do not fit together or the bounds, or hold missing values; if they
            are private and a site has no ledger, or this is a clone.
        BudgetExceeded
            If a ledger's ceiling is reached, or noise is predicted to exceed the
            signal.
        """
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        if self.target_bounds is None:
            raise ValueError(
                "target_bounds: give the smallest and the largest target that can be, "
                "from what is public; the data's own are a release that nobody charged"
            )
        low, high = _pairs("target_bounds", self.target_bounds, 1)[0]
        return _fit(self, X, y, groups, "linear", (low, high))

    def predict(self, X: Any) -> np.ndarray:
        """Targets of rows, shape (n_rows,), limited to ``target_bounds``.

        Features are limited to ``bounds``, as in ``fit``.
        """
        return _predicted(self, X)

    def __sklearn_clone__(self) -> "PrivateRegressor":
        return _cloned(self)

    def __sklearn_tags__(self) -> Any:
        return _tagged(self, super().__sklearn_tags__())


class PrivateClassifier(ClassifierMixin, BaseEstimator):
    """Logistic regression of two groups over several tables, differentially private.

    To second order at 0, as in the papers (:mod:`.regression`): it ranks people as
    logistic regression does while effects are weak, and its probabilities are too near
    one half where they are strong.

    Parameters
    ----------
    epsilon, delta, bounds, within_sites, arm, kind, ledgers, n_colluding, clip, \
ridge, n_folds, accept
        As in :class:`PrivateRegressor`.
    labels
        The two labels, first the reference label, coded 0. Public; None: those in the
        data, if these are public or simulated.

    Attributes
    ----------
    classes_ : (2,)
        The labels.
    coef_ : (1, D)
        Of the log-odds.
    intercept_ : (1,)
    model_, cross_validation_, sites_, n_features_in_, feature_names_in_, privacy_
        As in :class:`PrivateRegressor`.

    Examples
    --------
    >>> X = rng.random((4000, 2))
    >>> group = np.where(X[:, 0] > 0.5, "patient", "control")
    >>> model = PrivateClassifier(1.0, bounds=(0, 1), labels=("control", "patient"),
    ...                           kind="public")
    >>> model.fit(X, group).predict_proba(X).shape
    (4000, 2)

    Guarantee
    ---------
    That of :class:`PrivateRegressor`.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float = 1e-5,
        *,
        bounds: Bounds | Sequence[Bounds] | np.ndarray | None = None,
        labels: Sequence[Any] | None = None,
        within_sites: bool = True,
        arm: Arm = "cape",
        kind: Kind = "private",
        ledgers: Mapping[str, Ledger] | None = None,
        n_colluding: int | None = None,
        clip: float = regression.CLIP,
        ridge: float | None = None,
        n_folds: int | None = None,
        accept: str = "",
    ) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.bounds, self.labels = bounds, labels
        self.within_sites, self.arm, self.kind = within_sites, arm, kind
        self.ledgers, self.n_colluding = ledgers, n_colluding
        self.clip, self.ridge = clip, ridge
        self.n_folds, self.accept = n_folds, accept

    def fit(self, X: Any, y: Any, groups: Any = None) -> "PrivateClassifier":
        """Fit over the rows of all sites.

        Parameters
        ----------
        X, groups
            As in :meth:`PrivateRegressor.fit`.
        y
            Labels, shape (n_rows,).

        Raises
        ------
        ValueError, BudgetExceeded
            As in :meth:`PrivateRegressor.fit`; and if a label is not one of the two.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        y = column_or_1d(y)
        if self.labels is None and self.kind == "private":
            # Privacy: the set of labels would be a release that nobody charged.
            raise ValueError("labels: give the two labels; private data do not tell")
        labels = np.unique(y) if self.labels is None else np.asarray(self.labels)
        if labels.shape != (2,) or not np.isin(y, labels).all():
            got = labels if self.labels is not None else f"{len(labels)} classes"
            raise ValueError(
                "labels: Only binary classification is supported: every label must be "
                f"one of two classes, got {got}"
            )
        self.classes_ = labels
        _fit(self, X, (y == labels[1]).astype(float), groups, "logistic", (0.0, 1.0))
        self.coef_, self.intercept_ = self.coef_[None], np.array([self.intercept_])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels of rows, shape (n_rows,)."""
        likely = (_predicted(self, X) > 0.5).astype(int)
        return self.classes_[likely]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of both labels, shape (n_rows, 2)."""
        p = _predicted(self, X)
        return np.stack([1 - p, p], axis=1)

    def __sklearn_clone__(self) -> "PrivateClassifier":
        return _cloned(self)

    def __sklearn_tags__(self) -> Any:
        tags = _tagged(self, super().__sklearn_tags__())
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = tags.non_deterministic
        return tags


# --- shared by both ------------------------------------------------------------------


def _fit(
    self: Any,
    X: np.ndarray,
    y: np.ndarray,
    groups: Any,
    task: Task,
    target_bounds: Bounds,
) -> Any:
    """Scale rows by their public bounds, and fit :func:`.linear_model`."""
    D = X.shape[1]
    if self.bounds is None:
        raise ValueError(
            "bounds: give the smallest and the largest value of each feature that can "
            "be, from what is public; the data's own are a release that nobody charged"
        )
    low, high = _pairs("bounds", self.bounds, D).T
    site_of = np.full(len(X), ALL) if groups is None else np.asarray(groups).astype(str)
    site_of = column_or_1d(site_of)
    check_consistent_length(X, site_of)
    self.sites_ = tuple(map(str, np.unique(site_of)))
    _check(self, self.sites_)
    # Norms are at most 1 then.
    center, spread = (low + high) / 2, (high - low) / 2 * np.sqrt(D)
    x = (np.clip(X, low, high) - center) / spread
    z = np.column_stack([x, y]).T.astype(np.float32)
    S, S_C = len(self.sites_), self.n_colluding
    S_C = accounting.coalition(S) if S_C is None else S_C
    budget = Budget(self.epsilon, self.delta, "sample", "replace-one", S_C)
    ledgers = self.ledgers or {}
    ledgers = {n: ledgers.get(n) or Ledger(None, budget) for n in self.sites_}
    sites = Sites(
        {name: {ROWS: z[:, site_of == name]} for name in self.sites_},
        budget,
        self.arm,
        self.kind,
        ledgers,
        cape.NOISE_RATIO_PER_SITE * S,
        self.accept,
        name=TABLE.split("-")[0],
    )
    settings = {
        "task": task,
        "clip": self.clip,
        "within_sites": self.within_sites,
        "ridge": self.ridge,
    }
    limits = np.stack([low, high], axis=1)
    vars(self).pop("cross_validation_", None)  # of an earlier fit
    if self.n_folds is None:
        model = models.fitted_model(sites, 1.0, target_bounds, **settings)
        model = model.in_unit(center, spread, bounds=limits)
    else:
        validation = models.cross_validate(
            sites, 1.0, target_bounds, n_folds=self.n_folds, **settings
        )
        self.cross_validation_ = validation.in_unit(center, spread, bounds=limits)
        model = self.cross_validation_.model
    self.model_: LinearModel = model
    self.coef_, self.intercept_ = self.model_.coefficients, self.model_.intercept
    privacy = sites.privacy()
    del privacy["person"]  # of all rows of a site; here each is a person's
    self.privacy_ = {**privacy, "unit": "row"}
    return self


def _predicted(self: Any, X: Any) -> np.ndarray:
    """Predict the targets of rows, or probabilities of the second label, (n_rows,)."""
    check_is_fitted(self, "model_")
    X = validate_data(self, X, reset=False, dtype=np.float64)
    return self.model_.predict(X.T)


def _cloned(self: Any) -> Any:
    """Make an estimator of the same parameters, which refuses private data."""
    # Privacy: ledgers are shared; a copy of one in memory would forget what is spent.
    clone = type(self)(**self.get_params(deep=False))
    clone._is_clone = True
    return clone


def _tagged(self: Any, tags: Any) -> Any:
    tags.non_deterministic = self.arm != "non-private"
    if tags.regressor_tags is not None:
        tags.regressor_tags.poor_score = tags.non_deterministic
    return tags


def _pairs(name: str, bounds: Any, D: int) -> np.ndarray:
    """Bounds of each of D features, shape (D, 2)."""
    try:
        pairs = np.broadcast_to(np.asarray(bounds, float), (D, 2))
    except (TypeError, ValueError):
        wanted = f"a pair, or {D} of them" if D > 1 else "a pair"
        raise ValueError(f"{name}: need {wanted}") from None
    widths = [float(high) - float(low) for low, high in pairs]
    if not all(RANGE[0] <= width <= RANGE[1] for width in widths):
        raise ValueError(
            f"{name}: each lower one must be below its upper one, {RANGE[0]:g} to "
            f"{RANGE[1]:g} apart"
        )
    return pairs


def _check(self: Any, names: Sequence[str]) -> None:
    """Refuse parameters that cannot be fitted, before anything is charged."""
    for key, options in (("arm", get_args(Arm)), ("kind", get_args(Kind))):
        if (value := getattr(self, key)) not in options:
            raise ValueError(f"{key}: must be of {', '.join(options)}, got {value!r}")
    rules = {
        "epsilon: give the promise to each row, above 0": (
            self.epsilon is not None and self.epsilon > 0
        ),
        "delta: must be between 0 and 1": 0 < self.delta < 1,
        "clip: must be above 0 and at most 1": 0 < self.clip <= 1,
        "ridge: must be at least 0": self.ridge is None or 0 <= self.ridge < np.inf,
        f"n_colluding: must be 0 to {len(names) - 1}, below the number of sites": (
            self.n_colluding is None or 0 <= self.n_colluding < len(names)
        ),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(rule)
    for name, ledger in (self.ledgers or {}).items():
        # Privacy: rows and people who are charged by name cannot be added up.
        entries = *ledger.releases(), *ledger.promises()
        if any((e.study or TABLE) != TABLE for e in entries):
            raise ValueError(
                f"{name}: its ledger holds studies, to which rows without names "
                "cannot be added; write a study file for the same people"
            )
    if self.kind != "private":
        return
    if getattr(self, "_is_clone", False):
        # Privacy: copies are fitted to many parts of the data.
        raise ValueError(
            "kind: a clone is not fitted to private data: in cross-validation and "
            "searches each fit would spend the whole promise again; choose on public "
            "or simulated data, then fit one estimator made by its constructor"
        )
    lacking = [
        n for n in names if getattr((self.ledgers or {}).get(n), "folder", None) is None
    ]
    if lacking:
        raise ValueError(
            f"{', '.join(lacking)}: private data need ledgers on disk, "
            "ledgers={site: Ledger(folder, ceiling)}; kind='public' or 'simulated' "
            "where that is what they are"
        )
    if self.arm in EXACT_ARMS:
        raise ValueError(f"arm {self.arm!r} is for public or simulated data only")
