"""Tables of a simulated study of rows, one for each site, and what is true of them.

Features are in a unit of their own, with bounds that next to nobody is beyond:

* mixture: centers of norm 1 and noise of ``data.variance``, bounds -2 and 2;
* topics: counts of ``data.n_words`` words, no bounds;
* regression: uniform in [-1, 1], plus what a site differs by; the target is in the
  unit of the study's bounds (a number), or one of the two (groups);
* network: unit variance within a group, bounds -4 and 4;
* distribution: normal numbers of other means and deviations, bounds -4 and 4;
* patterns: sums of patterns that hold some features each, and noise of deviation 0.5,
  bounds -6 and 6;
* contrast: outcomes of deviation about 1, bounds -6 and 6, of which the first third
  differ between the groups of the first covariate by ``data.separation``; sites differ
  by ``data.site_offset``. Public tables of means and covariances go where the study
  looks for them.

Site k has a generator of its own, so a further site leaves the others as they were;
components and coefficients are common to all.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.distribution import DistributionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.patterns import PatternsConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy, SimulatedRows
from capeneuro.config.tensors import TensorConfig
from capeneuro.studies import registry
from capeneuro.studies.contrast_people import covariates_of
from capeneuro.studies.distribution import QUANTILES
from sim import contrasts, mixtures
from sim.bids import write_tsv
from sim.classes import two_classes
from sim.fmri import subject_labels
from sim.rows import rows

WIDEST = {"mixture": 2.0, "network": 4.0, "contrast": 6.0}
WIDEST |= {"distribution": 4.0, "patterns": 6.0}

Drawn = tuple[np.ndarray, np.ndarray | None]


def write_study(tables: dict[str, Path], study: RowStudy) -> None:
    """Write the tables of all sites, the public table of features, and the truth.

    The truth is in ``truth/`` beside the table of features: of a mixture or topics
    ``components.tsv`` (features by components) and ``weights.tsv``, of a regression
    ``coefficients.tsv`` with the mean intercept of the sites; of a distribution
    ``quantiles.tsv``, of patterns ``patterns.tsv``; of a network nothing.

    Parameters
    ----------
    tables
        Where each site's table goes, by its name.
    study
        A study with ``data`` of kind ``rows`` and features of a table.

    Raises
    ------
    ValueError
        If there are more components than features.
    """
    common, *own = np.random.SeedSequence(study.data.seed).spawn(1 + len(tables))
    model = np.random.default_rng(common)
    rngs = [np.random.default_rng(seed) for seed in own]
    makers: dict[type, Callable[..., Any]] = {
        TensorConfig: _components,
        RegressionConfig: _regression,
        NetworkConfig: _groups,
        ContrastConfig: _outcomes,
        DistributionConfig: _numbers,
        PatternsConfig: _patterns,
    }
    names, bounds, sites, truth = makers[type(study)](study, study.data, model, rngs)
    labels = subject_labels([study.data.n_subjects] * len(tables))
    header = ["participant_id", *names, *study.beside]
    for path, people, (X, y) in zip(tables.values(), labels, sites, strict=True):
        values = X.T if y is None else np.column_stack([X.T, y.T])
        write_tsv(path, header, _numbered([f"sub-{p}" for p in people], values))
    public = Path(study.rows.features.features)
    if bounds is None:
        write_tsv(public, ["feature"], [[name] for name in names])
    else:
        rows_ = [[name, f"{-bounds:.6g}", f"{bounds:.6g}"] for name in names]
        write_tsv(public, ["feature", "low", "high"], rows_)
    for name, (head, lines) in zip(registry.of(study).truth_files, truth, strict=True):
        write_tsv(public.parent / "truth" / name, head, lines)


def _numbered(names: Iterable[str], values: np.ndarray) -> list[list[str]]:
    """Rows of a table: a name, then numbers."""
    values = np.asarray(values).reshape(len(values), -1)
    return [
        [name, *(f"{v:.7g}" for v in row)]
        for name, row in zip(names, values.tolist(), strict=True)
    ]


def _names(kind: str, n: int) -> list[str]:
    return [f"{kind}_{i + 1:0{len(str(n))}d}" for i in range(n)]


def _components(
    study: TensorConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float | None, list[Drawn], list[Any]]:
    D, K, N = made.n_features, study.n_components, made.n_subjects
    if study.tensors.model == "topics":
        names, bounds = _names("word", D), None
        drawn = mixtures.draw_topics(D, K, model)
        sites = [mixtures.topic_counts(drawn, N, made.n_words, rng) for rng in own]
    else:
        names, bounds = _names("feature", D), WIDEST["mixture"]
        drawn = mixtures.draw_mixture(D, K, model)
        sites = [mixtures.gaussian_samples(drawn, made.variance, N, r) for r in own]
    order = np.argsort(-drawn.weights, kind="stable")  # as results have them
    w, A = drawn.weights[order], drawn.components[:, order]
    columns = [f"component_{k + 1}" for k in range(K)]
    truth = [
        (["feature", *columns], _numbered(names, A)),
        (["component", "weight"], _numbered(columns, w)),
    ]
    return names, bounds, [(X, None) for X in sites], truth


def _regression(
    study: RegressionConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float, list[Drawn], list[Any]]:
    D, N, task = made.n_features, made.n_subjects, study.regression.task
    low, high = study.regression.bounds
    middle, spread = (low + high) / 2, (high - low) / 2
    # Uniform offsets of that deviation, times the range of 2, so bounds hold.
    reach = 2 * np.sqrt(3) * made.site_offset
    w, names = rows(D, 1, model, task).w, _names("feature", D)
    noise = 6 * made.noise  # over the deviation 1/3 of x'w, from over the range 2
    sites, starts = [], []
    for rng in own:
        found = rows(D, N, rng, task, noise=noise, w=w)
        shift, start = reach * rng.uniform(-1, 1, (D, 1)), reach * rng.uniform(-1, 1)
        X = found.X * np.sqrt(D) + shift
        beta = w / np.sqrt(D)
        starts.append(float(-beta @ shift[:, 0]))
        if task == "linear":
            starts[-1] += start
            sites.append((X, middle + spread * (found.y + start)))
        else:
            sites.append((X, np.where(found.y == 1, high, low)))
    unit = spread if task == "linear" else 1.0
    start = unit * np.mean(starts) + (middle if task == "linear" else 0.0)
    lines = _numbered(["intercept", *names], np.array([start, *(unit * beta)]))
    return names, 1 + reach, sites, [(["feature", "coefficient"], lines)]


def _groups(
    study: NetworkConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float, list[Drawn], list[Any]]:
    D, N = made.n_features, made.n_subjects
    low, high = study.network.bounds
    sites = []
    for rng in own:
        X, y = two_classes(D, N, rng, made.separation)
        sites.append((X, np.where(y == 1, high, low)))
    return _names("feature", D), WIDEST["network"], sites, []


def _outcomes(
    study: ContrastConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float, list[Drawn], list[Any]]:
    names, d = _names("outcome", made.n_features), made.n_features
    S = contrasts.correlations(d, model)
    shown = [title for c in covariates_of(study) for title in c.titles]
    B = 0.2 * model.standard_normal((len(shown), d))
    B[0] = made.separation * (np.arange(d) < d / 3)
    drawn = [contrasts.people(study, made, B, S, rng) for rng in own]
    options = study.contrast
    if options.means is not None:
        columns = [*drawn[0].means]
        rows_ = [
            [site, *(f"{one.means[c]:g}" for c in columns)]
            for site, one in zip(study.site_names, drawn, strict=True)
        ]
        write_tsv(options.means, ["site", *columns], rows_)
    if options.covariance is not None:
        lines = _numbered(names, np.column_stack([np.zeros(d), S]))
        write_tsv(options.covariance, ["feature", "mean", *names], lines)
    sites = [(one.Y, one.beside) for one in drawn]
    lines = _numbered(names, B.T)
    return names, WIDEST["contrast"], sites, [(["feature", *shown], lines)]


def _numbers(
    study: DistributionConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float, list[Drawn], list[Any]]:
    D, N = made.n_features, made.n_subjects
    means, deviations = model.uniform(-1, 1, D), model.uniform(0.5, 1, D)
    sites = [
        (means[:, None] + deviations[:, None] * rng.standard_normal((D, N)), None)
        for rng in own
    ]
    names = _names("number", D)
    laws = means[:, None], deviations[:, None]
    lines = _numbered(names, stats.norm.ppf([*QUANTILES.values()], *laws))
    return names, WIDEST["distribution"], sites, [(["feature", *QUANTILES], lines)]


def _patterns(
    study: PatternsConfig,
    made: SimulatedRows,
    model: np.random.Generator,
    own: list[np.random.Generator],
) -> tuple[list[str], float, list[Drawn], list[Any]]:
    D, K, N = made.n_features, study.n_components, made.n_subjects
    # Half of the features are of no pattern, the others of one: so sparse ones are far
    # from normal over features, and independence tells them apart.
    A = np.where(np.arange(D)[:, None] % (2 * K) == np.arange(K), 1.0, 0.0)
    A *= (model.choice([-1, 1], D) * model.uniform(1, 2, D))[:, None]
    A *= np.linspace(1.2, 0.8, K)
    sites = [
        (A @ rng.standard_normal((K, N)) + 0.5 * rng.standard_normal((D, N)), None)
        for rng in own
    ]
    names, columns = _names("feature", D), [f"component_{k + 1}" for k in range(K)]
    truth = (["feature", *columns], _numbered(names, A))
    return names, WIDEST["patterns"], sites, [truth]
