"""Results of named networks: their group maps, and states with time spent in them."""

from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import contrast_effects
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.verdict import ABOVE, LEVEL, NOT_ABOVE
from capeneuro.config.contrast import ContrastConfig
from capeneuro.data import measures, nifti
from capeneuro.data.rows import Shape
from capeneuro.report.figures import Figure

MAPS = "group_desc-networks_components.nii.gz"
FAMILIES = "group_desc-contrast_families.tsv"
FAMILIES_HEADER = ["covariate", "domains", "outcomes", "p", "p_of_all", "verdict"]
DEVIATIONS = "group_desc-networks_deviations.nii.gz"


def map_files(study: ContrastConfig, shape: Shape) -> list[str]:
    """Names of the images of :func:`write_maps`; empty without outcomes `maps`."""
    has_maps = shape.courses is not None and "maps" in study.rows.features.measures
    return [MAPS, DEVIATIONS] if has_maps else []


def write_maps(
    study: ContrastConfig,
    shape: Shape,
    result: Contrasts,
    public: np.ndarray,
    metadata: dict[str, Any],
) -> None:
    """Write the group's map of each network, and how it deviates from the template.

    Maps are the template's maps times the mean weights of people's maps on them, shrunk
    to the public weights for their noise: deviations lie in the span of the template.

    Parameters
    ----------
    study, shape
        With outcomes `maps`.
    result
        With one constant.
    public
        Public means of all outcomes, (d,), where there are some; else the template's
        own weights are taken.
    metadata
        For the sidecars.
    """
    names = measures.networks(shape.courses.domains)
    titles = [f"{name} in the map of {of}" for of in names for name in names]
    places, k = _places(shape, titles), result.is_constant
    if study.contrast.covariance is None:
        center = np.eye(len(names)).ravel()
    else:
        center = public[places]
    means, errors = result.effects[k][0, places], result.errors[k][0, places]
    scale = result.within_group_sd[places]
    shrunk = contrast_effects.shrunk(means, errors, scale, center)
    weights = shrunk.reshape(len(names), -1).T
    template = shape.courses.basis.synthesis.toarray()
    template = template / np.sqrt(np.mean(template**2, axis=0))
    folder, mask = study.results, shape.courses.mask
    common = {**metadata, "Networks": names}
    for file, values, text in (
        (
            MAPS,
            template @ weights,
            "The template times people's mean weights on it",
        ),
        (DEVIATIONS, template @ (weights - np.eye(len(names))), "Less the template's"),
    ):
        nifti.write_maps(folder / file, values, mask, {"Description": text, **common})


def families_of(shape: Shape) -> dict[str, np.ndarray]:
    """Places of outcomes of connectivity by pair of domains; none without domains."""
    courses = shape.courses
    if courses is None or not courses.families:
        return {}
    place_of = {name: k for k, name in enumerate(shape.names)}
    places: dict[str, list[int]] = {}
    pairs, names = measures.pairs(courses.domains), measures.pair_names(courses.domains)
    blocks = list(dict.fromkeys(courses.families))
    for pair, name in zip(pairs, names, strict=True):
        ends = sorted({courses.families[k] for k in pair}, key=blocks.index)
        if name in place_of:
            places.setdefault(" - ".join(ends), []).append(place_of[name])
    return {family: np.array(members) for family, members in places.items()}


def family_rows(shape: Shape, result: Contrasts) -> list[list[str]]:
    """Rows of :data:`FAMILIES_HEADER`: whether anything differs in a pair of domains.

    The least p value of a pair of domains is corrected for its outcomes, and then for
    all pairs of domains [Bonferroni, twice].
    """
    families, rows = families_of(shape), []
    for k in np.flatnonzero(result.is_primary & result.is_estimable):
        for family, places in families.items():
            of_family = min(1.0, len(places) * float(result.p_values[k, places].min()))
            of_all = min(1.0, len(families) * of_family)
            verdict = ABOVE if of_all < LEVEL else NOT_ABOVE
            cells = [str(len(places)), f"{of_family:.3g}", f"{of_all:.3g}", verdict]
            rows.append([str(result.names[k]), family, *cells])
    return rows


def family_lines(shape: Shape, result: Contrasts) -> list[str]:
    """Pairs of domains in which something differs, a line for each covariate.

    Row: domains-told
    """
    differing: dict[str, list[str]] = {}
    for covariate, family, *_, verdict in family_rows(shape, result):
        if verdict == ABOVE:
            differing.setdefault(covariate, []).append(family)
    n = len(families_of(shape))
    return [
        f"{covariate}: something differs in {', '.join(names)}, of {n} pairs of domains"
        for covariate, names in differing.items()
    ]


def figures(study: ContrastConfig, shape: Shape, result: Contrasts) -> list[Figure]:
    """Draw public states with the time spent in each, and the group's maps by name."""
    if shape.courses is None:
        return []
    from capeneuro.report import plots

    names = measures.networks(shape.courses.domains)
    images = map_files(study, shape)
    how = "in the span of the template"
    if study.arm != "non-private":
        how += ", drawn to it for its noise"
    return _state_figures(shape, result, names) + [
        plots.map_figure(study.results / MAPS, k, f"{name}: map of the group, {how}")
        for k, name in enumerate(names if images else [])
    ]


def _state_figures(shape: Shape, result: Contrasts, names: list[str]) -> list[Figure]:
    """Draw each public state, with the share of time that people spend in it."""
    states, domains = shape.courses.states, shape.courses.domains
    if states is None:
        return []
    from capeneuro.report import plots

    places = _places(shape, [f"occupancy of {name}" for name in states.names])
    k, pictures = result.is_constant, []
    means, errors = result.effects[k][0, places], result.errors[k][0, places]
    for name, mean, error, centroid in zip(
        states.names, means, errors, states.centroids, strict=True
    ):
        low, high = np.clip(mean + result.width * error * np.array([-1, 1]), 0, 1)
        draw = partial(
            plots.between_networks,
            names,
            measures.square(centroid, domains),
            label="connectivity of the public state",
            largest=float(np.abs(states.centroids).max()),
            families=shape.courses.families,
        )
        title = f"State {name}: people are nearest to it {mean:.0%} of the time (95% "
        title += f"interval {low:.0%} to {high:.0%})"
        pictures.append(Figure(title, draw))
    return pictures


def _places(shape: Shape, names: list[str]) -> np.ndarray:
    """Places of outcomes by name."""
    places = {name: k for k, name in enumerate(shape.names)}
    return np.array([places[name] for name in names])
