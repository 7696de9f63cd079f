"""Questions to a released second moment: of a study of components, or of patterns.

``components=20`` finds another number of components in it, ``connectivity`` and
``partial`` are correlations of features, ``seed=NAME`` those of one with all others,
``strength`` their sums, ``merge=FILE.tsv`` those of unions of features.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import (
    correlations,
    metrics,
    model_order,
    patterns,
    pca,
    shrinkage,
)
from capeneuro.algorithms.component_verdicts import of_components, with_evidence
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.correlations import Correlations
from capeneuro.algorithms.covariance import Covariance
from capeneuro.algorithms.ica import spatial_components
from capeneuro.algorithms.verdict import (
    ABOVE,
    ABOVE_ALONE,
    NOT_ABOVE,
    NOT_TESTED,
    UNTOLD,
    Verdicts,
)
from capeneuro.algorithms.verdicts import of_answers, of_patterns
from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.data import files
from capeneuro.data.tables import check_columns, open_texts
from capeneuro.linalg import TINY
from capeneuro.report.figures import Figure
from capeneuro.studies.ask import (
    MOST_KEPT,
    OF_VERDICTS,
    SHOWN,
    Reply,
    place_of,
)

SUBSPACE = "group_desc-pca_subspace.npz"
UNMIXING = "group_desc-ica_unmixing.npz"
PATTERNS = "group_desc-pattern_components.npz"
# Names of arrays in these files that questions are answered from.
MOMENT, NAMES, SIZES, UNITS = "moment", "feature_names", "feature_sizes", "units"
INDEPENDENT = "independent"
QUESTIONS = "components=20, connectivity, partial, seed=NAME, strength, merge=FILE.tsv"
ENDS = ["low", "high", "low_of_all", "high_of_all"]
END_MEANINGS = {
    "low": "of the 95% interval, if this was the only question",
    "high": "",
    "low_of_all": "of the interval that holds for all of them at once",
    "high_of_all": "",
    "verdict": OF_VERDICTS,
}
HEADER = ["feature", "with", "correlation", *ENDS, "verdict"]
MEANINGS = {"feature": "", "with": "", "correlation": "", **END_MEANINGS}
STRENGTH_HEADER = ["feature", "strength", *ENDS, "verdict"]
STRENGTH_MEANINGS = {
    "feature": "",
    "strength": "sum of correlations with the other features, signs included",
    **END_MEANINGS,
}
COMPONENT_HEADER = ["result", "value", "share", "of_data", "verdict", "like", "r"]
COMPONENT_MEANINGS = {
    "result": "principal directions, and the maps that these are turned into",
    "value": "eigenvalue as released, or norm of the map",
    "share": "of the energy of all features",
    "of_data": "how much of it is the data's and not the noise's, about",
    "verdict": "",
    "like": "map of the study, matched one to one",
    "r": "correlation of both",
}
# Features of which a picture marks the pairs that differ from 0.
MOST_MARKED = 20
# Pairs or features that are drawn, with intervals farthest from 0.
MOST_PAIRS = 20


class Released(NamedTuple):
    """A second moment from the results of a study."""

    moment: pca.SecondMoment
    names: list[str]
    """Of its D features."""
    sizes: np.ndarray
    """Voxels of each feature, or 1, (D,)."""
    units: np.ndarray
    """Size of a released unit of each feature in its own unit, (D,)."""
    arrays: dict[str, np.ndarray]
    """All of the file."""
    is_of_rows: bool
    """Whether a person is one row of it, so that people are its sample."""

    @property
    def judged(self) -> Moment:
        """The moment, about the one that statements are of."""
        C, tau, n_units = self.moment
        return Moment(C, tau, n_units if self.is_of_rows else np.inf)

    @property
    def has_errors(self) -> bool:
        """Whether numbers have intervals: of noise, or of sampling."""
        return self.is_of_rows or self.moment.deviation > 0


def answer(folder: Path, question: str) -> Reply:
    """Answer a question from the results of a study of components or of patterns.

    Parameters
    ----------
    folder
        Results of the study.
    question
        One of the text above.

    Returns
    -------
    Reply
        With the strongest pairs or features in lines and pictures.

    Raises
    ------
    ConfigError
        If the results hold no second moment, or the question is another.
    """
    word, _, value = (part.strip() for part in question.partition("="))
    with_value = {"components": _components, "seed": _seed, "merge": _merge}
    alone = {"connectivity": _pairs, "partial": _partial, "strength": _strength}
    answerers: dict[str, Callable[..., Reply]] = with_value if value else alone
    if word not in answerers:
        raise ConfigError(f"question: must be one of {QUESTIONS}, got {question!r}")
    released = _read(folder)
    if word == "components":
        return _components(released, value, folder)
    return answerers[word](released, value) if value else answerers[word](released)


def arrays_to_keep(
    names: list[str], sizes: np.ndarray, units: np.ndarray
) -> dict[str, Any]:
    """Descriptions of features that answers need; none of more than are kept.

    Parameters
    ----------
    names, sizes, units
        Of features, as in :class:`Released`.
    """
    if len(sizes) > MOST_KEPT:
        return {}
    return {NAMES: np.array(names), SIZES: sizes, UNITS: units}


def _read(folder: Path) -> Released:
    """Released second moment."""
    is_of_rows = not (folder / SUBSPACE).is_file()
    path = folder / (PATTERNS if is_of_rows else SUBSPACE)
    arrays = files.read_arrays(path)
    if "posterior" in arrays:
        raise ConfigError(
            f"{path}: the study released how people differ from a public prior, and "
            "not their second moment; ask a study without prior"
        )
    if NAMES not in arrays:
        raise ConfigError(
            f"{path}: holds no second moment. That of power iteration or of more than "
            f"{MOST_KEPT} features is not kept; an earlier version kept none: remove "
            "the file and run the step again, the same request costs nothing"
        )
    C = linalg.unpack_symmetric(arrays[MOMENT])
    tau, n_units = arrays["noise_deviation"].item(), arrays["n_units"].item()
    names = [str(name) for name in arrays[NAMES]]
    moment = pca.SecondMoment(C, tau, n_units)
    return Released(moment, names, arrays[SIZES], arrays[UNITS], arrays, is_of_rows)


# --- components ----------------------------------------------------------------------


def _components(released: Released, value: str, folder: Path) -> Reply:
    """Another number of components: directions, and maps that they are turned into.

    Row: eigenvalues-above-noise, component-told
    """
    D, (C, tau, n_units) = len(released.names), released.moment
    most = D - 1 if released.is_of_rows else D
    if not re.fullmatch(r"\d+", value) or not 1 <= int(value) <= most:
        raise ConfigError(
            f"components: must be a whole number from 1 to {most}, got {value!r}"
        )
    K = int(value)
    subspace, A, verdicts = _maps(released, K)
    spectrum = subspace.spectrum
    edge, n_above = _edge(released, spectrum)
    reliable = shrinkage.reliabilities(
        spectrum, tau, K, _center_deviation(released), n_units
    )
    labels = [ABOVE if k < n_above else NOT_ABOVE for k in range(K)]
    shares = subspace.eigenvalues / max(float(np.trace(C)), TINY)
    rows = _rows("direction", [spectrum[:K], shares, reliable], tau, labels)
    study_maps, partners = _study_maps(released, folder), {}
    if study_maps is not None:
        partners = _partners(A, study_maps)
    norms, energies = np.linalg.norm(released.units[:, None] * A, axis=0), (A**2).sum(0)
    numbers = [norms, energies / max(float(energies.sum()), TINY), verdicts.values]
    rows += _rows("map", numbers, tau, verdicts.labels, partners)
    figures = _component_figures(subspace, edge, A, study_maps)
    alone = "noise" if tau else "sampling"
    lines = [
        f"{n_above} of {D} eigenvalues are above what {alone} alone reaches, "
        f"{min(n_above, K)} of the {K} that were asked for"
    ]
    if tau:
        n_told = sum(label == ABOVE for label in verdicts.labels)
        lines.append(f"{n_told} of {A.shape[1]} maps are above the noise")
    if study_maps is not None:
        alike = [r for _, r in partners.values()]
        lines.append(
            f"{len(partners)} of {A.shape[1]} maps are matched with the study's "
            f"{study_maps.shape[1]}, with correlations from {min(alike)} to "
            f"{max(alike)}"
        )
    arrays = {"mixing": released.units[:, None] * A, NAMES: np.array(released.names)}
    return Reply(lines, COMPONENT_HEADER, rows, COMPONENT_MEANINGS, figures, arrays)


def _edge(released: Released, spectrum: np.ndarray) -> tuple[float, int]:
    """Value that noise alone reaches, and number of eigenvalues above it."""
    _, tau, n_units = released.moment
    if released.is_of_rows:
        edge = shrinkage.edge(tau, len(spectrum))
        return edge, int((spectrum > edge).sum())
    order, _, edge = model_order.threshold(spectrum, tau, n_units)
    return edge, order


def _rows(
    kind: str,
    numbers: list[np.ndarray],
    tau: float,
    labels: Sequence[str],
    partners: Mapping[int, tuple[str, str]] | None = None,
) -> list[list[str]]:
    """Rows of the table of components."""
    return [
        [
            f"{kind} {k + 1}",
            *(f"{number:.4g}" for number in values),
            label if tau else NOT_TESTED,
            *(partners or {}).get(k, ("", "")),
        ]
        for k, (values, label) in enumerate(
            zip(np.column_stack(numbers), labels, strict=True)
        )
    ]


def _component_figures(
    subspace: pca.Subspace, edge: float, A: np.ndarray, study_maps: np.ndarray | None
) -> list[Figure]:
    """The spectrum, and the correlation of maps with the study's own.

    Row: eigenvalues-above-noise
    """
    from capeneuro.report import plots

    K, is_exact = subspace.eigenvectors.shape[1], not subspace.noise_deviation
    title = f"Spectrum of the released second moment, and the first {K}"
    draw = partial(plots.spectrum, subspace.spectrum, edge, K, is_exact)
    figures = [Figure(title, draw)]
    if study_maps is not None:
        r = metrics.matched_correlation(A, study_maps)
        title = "Maps matched with the study's own, one to one"
        figures.append(Figure(title, partial(plots.matching, r)))
    return figures


def _maps(released: Released, K: int) -> tuple[pca.Subspace, np.ndarray, Verdicts]:
    """Subspace of K directions, maps (D, K) in released units, and their verdicts.

    Row: component-told
    """
    arrays, (C, tau, n_units) = released.arrays, released.moment
    if released.is_of_rows:
        none = np.zeros((len(C), 0))
        weight = arrays["clip_weight"].item()
        covariance = Covariance(
            C, np.zeros(len(C)), none, np.zeros(0), tau, n_units, weight
        )
        independent = bool(arrays[INDEPENDENT])
        estimates = patterns.from_covariance(
            covariance, K, 1.0, independent=independent
        )
        subspace = pca.from_moment(released.moment, K, 1.0)
        return subspace, estimates.patterns, of_patterns(estimates)
    bound, center = arrays["norm_bound"].item(), arrays["center"]
    subspace = pca.from_moment(released.moment, K, bound, center)
    unmixing = spatial_components(subspace)
    subspace = replace(
        subspace,
        positions=arrays["positions"],
        n_samples=arrays["n_samples"].item(),
        center_deviation=_center_deviation(released),
    )
    unmixing = with_evidence(unmixing, subspace)
    return subspace, unmixing.mixing, of_components(unmixing)


def _center_deviation(released: Released) -> float:
    """Deviation of the noise in a coordinate of the mean that was subtracted first."""
    if released.is_of_rows:
        return 0.0
    return released.arrays["center_deviation"].item()


def _study_maps(released: Released, folder: Path) -> np.ndarray | None:
    """Maps of the study itself, (D, R); None: it has none yet."""
    if released.is_of_rows:
        return released.arrays["patterns"]
    path = folder / UNMIXING
    return files.read_arrays(path)["mixing"] if path.is_file() else None


def _partners(A: np.ndarray, study_maps: np.ndarray) -> dict[int, tuple[str, str]]:
    """Name and correlation of the study's map that each map is matched with."""
    if A.shape[1] < study_maps.shape[1]:
        places, r = metrics.match(study_maps, A)
        pairs = enumerate(places)
    else:
        places, r = metrics.match(A, study_maps)
        pairs = ((k, place) for place, k in enumerate(places))
    return {
        int(k): (f"component {place + 1}", f"{abs(x):.2f}")
        for (k, place), x in zip(pairs, r, strict=True)
    }


# --- correlations of features --------------------------------------------------------


def _pairs(released: Released) -> Reply:
    """Correlations of all pairs of features.

    Row: correlation, all-correlations
    """
    estimates = correlations.correlations(released.judged)
    title = "Correlations of features"
    return _of_pairs(released, estimates, released.names, _caveats(released), title)


def _partial(released: Released) -> Reply:
    """Partial correlations of all pairs of features.

    Row: partial-correlation, all-partial-correlations
    """
    estimates = correlations.partial_correlations(released.judged)
    share = estimates.ridge / max(float(np.trace(released.moment.value)), TINY)
    line = "each when all other features are held fixed"
    if released.has_errors:
        line += (
            f", with a ridge of {share * len(released.names):.2g} times the mean "
            "energy of a feature, which follows from the noise: correlations are "
            "those of features with so much white noise added"
        )
    lines = [line, *_caveats(released)]
    title = "Partial correlations of features"
    return _of_pairs(released, estimates, released.names, lines, title)


def _merge(released: Released, value: str) -> Reply:
    """Correlations of unions of features.

    Row: correlation
    """
    path = Path(value)
    table = open_texts(path)
    check_columns(path, table, ["feature", "union"], "")
    members = table["feature"].tolist()
    if twice := repeated(members):
        raise ConfigError(
            f"{path}: must have each feature once, has {some(twice)} again; unions "
            "share no feature"
        )
    unions = sorted(
        set(filter(None, table["union"])), key=table["union"].tolist().index
    )
    if len(unions) < 2:
        raise ConfigError(f"{path}: must name two unions at least, got {len(unions)}")
    groups = [
        np.array(
            [place_of(f, released.names) for f in table["feature"][table["union"] == u]]
        )
        for u in unions
    ]
    moment = correlations.merged(released.judged, groups, released.sizes)
    estimates = correlations.correlations(moment)
    n = sum(map(len, groups))
    line = f"{len(unions)} unions of {n} of the {len(released.names)} features, each "
    line += "the mean of its own"
    lines = [line, *_caveats(released)]
    title = "Correlations of unions of features"
    return _of_pairs(released, estimates, unions, lines, title)


def _of_pairs(
    released: Released,
    estimates: Correlations,
    names: list[str],
    notes: list[str],
    title: str,
) -> Reply:
    """Table, lines and pictures of correlations of all pairs.

    Row: correlation, all-correlations
    """
    i, j = np.triu_indices(len(names), 1)
    if not len(i):
        raise ConfigError("question: needs two features at least, there is one")
    r, alone, of_all = (x[i, j] for x in estimates[:3])
    labels = [f"{names[a]} - {names[b]}" for a, b in zip(i, j, strict=True)]
    verdicts = _verdicts(released, r, alone, of_all)
    rows = [
        [names[a], names[b], *cells]
        for a, b, cells in zip(i, j, _cells(r, alone, of_all, verdicts), strict=True)
    ]
    rows = [rows[k] for k in _strongest(r, of_all)]
    lines = _lines(labels, r, alone, of_all, verdicts, "pairs")
    figures = []
    if np.isfinite(r).any():
        is_certain = np.zeros((len(names), len(names)), bool)
        is_certain[i, j] = is_certain[j, i] = verdicts == ABOVE
        draw = partial(_draw, labels, r, alone, of_all, "correlation", "pair")
        figures = [
            Figure(title, partial(_draw_matrix, names, estimates.values, is_certain)),
            Figure("The strongest pairs, with both intervals", draw),
        ]
    return Reply([*lines, *notes], HEADER, rows, MEANINGS, figures)


def _seed(released: Released, value: str) -> Reply:
    """Correlations of one feature with all others.

    Row: correlation, all-correlations
    """
    estimates, place = (
        correlations.correlations(released.judged),
        place_of(value, released.names),
    )
    places = np.delete(np.arange(len(released.names)), place)
    names = [released.names[k] for k in places]
    r, alone, of_all = (x[place, places] for x in estimates[:3])
    verdicts = _verdicts(released, r, alone, of_all)
    rows = [
        [released.names[place], name, *cells]
        for name, cells in zip(names, _cells(r, alone, of_all, verdicts), strict=True)
    ]
    rows = [rows[k] for k in _strongest(r, of_all)]
    lines = _lines(names, r, alone, of_all, verdicts, "features")
    title = f"Correlations with {released.names[place]}, with both intervals"
    draw = partial(_draw, names, r, alone, of_all, "correlation", "feature")
    notes, figures = (
        _caveats(released),
        [Figure(title, draw)] * bool(np.isfinite(r).any()),
    )
    return Reply([*lines, *notes], HEADER, rows, MEANINGS, figures)


def _strength(released: Released) -> Reply:
    """Graph strength of each feature.

    Row: strength
    """
    values, alone, of_all = correlations.strengths(released.judged)
    names, verdicts = released.names, _verdicts(released, values, alone, of_all)
    rows = [
        [name, *cells]
        for name, cells in zip(
            names, _cells(values, alone, of_all, verdicts), strict=True
        )
    ]
    rows = [rows[k] for k in _strongest(values, of_all)]
    lines = _lines(names, values, alone, of_all, verdicts, "features")
    if np.isnan(values).any():
        lines.append(
            "a feature whose own energy is not told from the noise is in no sum, and "
            "where most are like that there is none"
        )
    title = "Graph strength, with both intervals"
    draw = partial(
        _draw, names, values, alone, of_all, "sum of correlations", "feature"
    )
    figures = [Figure(title, draw)] * bool(np.isfinite(values).any())
    notes = _caveats(released)
    return Reply([*lines, *notes], STRENGTH_HEADER, rows, STRENGTH_MEANINGS, figures)


def _caveats(released: Released) -> list[str]:
    """Scope of the intervals, a line each.

    Row: correlation, partial-correlation
    """
    is_noisy = bool(released.moment.deviation)
    if released.is_of_rows:
        line = "intervals count the sampling of people like these, as if features were "
        line += "normal" + ", and the noise of privacy" * is_noisy
    elif is_noisy:
        line = (
            "intervals count the noise of privacy alone: they are about these people "
        )
        line += "as they were counted, and leave out how other people would differ"
    else:
        line = "no noise was added, and how other people would differ is not released: "
        line += "intervals have no width"
    lines = [
        line + "; correlations are of the mean second moment, in which people with "
        "more variance count more" * (not released.is_of_rows)
    ]
    if is_noisy or released.is_of_rows:
        lines.append(
            "asked after the results were seen, so one of many: judge each by the "
            "wider interval, which holds for all of them at once"
        )
    return lines


def _verdicts(
    released: Released, values: np.ndarray, alone: np.ndarray, of_all: np.ndarray
) -> np.ndarray:
    """Verdict of each number, (n,), by its intervals, (n, 2) each."""
    if not released.has_errors:
        return np.full(len(alone), NOT_TESTED)
    return np.where(np.isnan(values), UNTOLD, of_answers(alone, of_all))


def _strongest(values: np.ndarray, intervals: np.ndarray) -> np.ndarray:
    """Places of numbers, with intervals farthest from 0 first; no estimate: last."""
    distances = np.maximum(intervals[:, 0], -intervals[:, 1])
    return np.lexsort([-np.abs(values), -distances, np.isnan(values)])


def _cells(
    values: np.ndarray, alone: np.ndarray, of_all: np.ndarray, verdicts: np.ndarray
) -> Iterator[list[str]]:
    """Cells of a number, its intervals and its verdict."""
    numbers = np.column_stack([values, alone, of_all])
    for row, verdict in zip(numbers, verdicts, strict=True):
        yield [*map(files.number_cell, row), str(verdict)]


def _lines(
    names: Sequence[str],
    values: np.ndarray,
    alone: np.ndarray,
    of_all: np.ndarray,
    verdicts: np.ndarray,
    noun: str,
) -> list[str]:
    """Counts of numbers that are not 0, and the strongest ones, in lines.

    Row: correlation, all-correlations
    """
    n, n_certain = len(values), int((verdicts == ABOVE).sum())
    n_alone = n_certain + int((verdicts == ABOVE_ALONE).sum())
    lines = [f"{n} {noun}"]
    if NOT_TESTED not in verdicts:
        lines = [
            f"{n_certain} of {n} {noun} stand above the noise whatever else was asked, "
            f"{n_alone} if this was the only question"
        ]
    if n_lost := int(np.isnan(values).sum()):
        lines.append(f"{n_lost} of {n} are not estimable: the noise is too large")
    for k in _strongest(values, of_all)[: min(SHOWN, n - n_lost)]:
        line = f"  {names[k]}: {values[k]:.3g}"
        if verdicts[k] != NOT_TESTED:
            line += " (95% interval {:.3g} to {:.3g}; ".format(*alone[k])
            line += "of all at once {:.3g} to {:.3g})".format(*of_all[k])
        lines.append(line)
    return lines


def _draw_matrix(names: Sequence[str], r: np.ndarray, is_certain: np.ndarray):
    """Draw a matrix of correlations; of few features certain pairs have a dot."""
    from capeneuro.report import plots

    values = np.where(np.eye(len(names), dtype=bool), np.nan, r)
    marks = is_certain & np.isfinite(values)
    marks = marks if len(names) <= MOST_MARKED and marks.any() else None
    return plots.between_networks(names, values, marks, "correlation", noun="features")


def _draw(
    names: Sequence[str],
    values: np.ndarray,
    alone: np.ndarray,
    of_all: np.ndarray,
    label: str,
    rows: str,
):
    """Draw the strongest numbers with both intervals."""
    from capeneuro.report import plots

    places = _strongest(values, of_all)[: min(MOST_PAIRS, np.isfinite(values).sum())]
    names = [names[k] for k in places]
    values, alone, of_all = values[places], alone[places], of_all[places]
    return plots.effects(names, values, label, alone, rows=rows, wide=of_all)
