"""What measures of people's time courses are called, and their public bounds."""

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.rows import Domains, MeasuresOptions, StatesOptions
from capeneuro.data.tables import as_whole_number, check_columns, open_texts

# Fisher's z of a correlation is not larger: a public bound of every mean.
LARGEST_Z = 2.0


def domains(options: Domains | None, labels: Sequence[Any]) -> tuple[str, ...]:
    """Network of each course; its own label where none are given.

    Parameters
    ----------
    options
        Table of networks, or None.
    labels
        Of the courses: numbers, found in the table's `index`, or names of parcels,
        found in its `name`.

    Raises
    ------
    ConfigError
        If a course is missing, or there are fewer than two networks.
    """
    if options is None:
        return tuple(map(str, labels))
    path, column = options.file, options.column
    table = open_texts(path)
    key = "name" if any(isinstance(label, str) for label in labels) else "index"
    check_columns(path, table, (key, column), "")
    if key == "index":
        table[key] = list(map(as_whole_number, table[key]))
    if twice := repeated(table[key]):
        raise ConfigError(f"{path}: must name each {key} once, got {some(twice)} again")
    network_of_label = dict(zip(table[key], table[column], strict=True))
    if lacking := [
        str(label) for label in labels if str(label) not in network_of_label
    ]:
        raise ConfigError(
            f"{path}: must have a row for each region or map, lacks {some(lacking)}"
        )
    if unknown := [
        name for name in options.without if name not in network_of_label.values()
    ]:
        near = difflib.get_close_matches(
            unknown[0], set(network_of_label.values()), 3, 0.5
        )
        raise ConfigError(
            f"{path}: {column}: domains.without: no network is called {unknown[0]!r}; "
            f"it has {some(near or sorted(set(network_of_label.values())))}"
        )
    networks = [network_of_label[str(label)] for label in labels]
    networks = ["" if name in options.without else name for name in networks]
    if len(set(networks) - {""}) < 2:
        raise ConfigError(f"{path}: {column}: must name two networks or more")
    return tuple(networks)


def families(options: Domains | None, domains: Sequence[str]) -> tuple[str, ...]:
    """Domain of each network, in the order of :func:`networks`; none where not stated.

    Raises
    ------
    ConfigError
        If the column is missing, or a network is in two domains.
    """
    if options is None or options.families is None:
        return ()
    path, column = options.file, options.families
    table = open_texts(path)
    check_columns(path, table, (column,), "")
    family_of: dict[str, str] = {}
    for network, family in zip(table[options.column], table[column], strict=True):
        if family_of.setdefault(network, family) != family:
            raise ConfigError(
                f"{path}: {column}: must be one for each of {options.column}, got "
                f"{family_of[network]!r} and {family!r} for {network!r}"
            )
    return tuple(family_of[name] for name in networks(domains))


class States(NamedTuple):
    """Public states of connectivity between networks."""

    names: list[str]
    centroids: np.ndarray
    """Fisher's z of each pair of :func:`pairs` in each state, (n_states, n_pairs)."""


def open_states(options: StatesOptions, domains: Sequence[str]) -> States:
    """Read the states of connectivity.

    Raises
    ------
    ConfigError
        If a pair of networks is missing, or a value is no number.
    """
    import pandas as pd

    path, columns = options.file, pair_names(domains)
    table = open_texts(path)
    check_columns(path, table, ("state", *columns), "")
    names = table["state"].tolist()
    if len(names) < 2 or repeated(names):
        raise ConfigError(f"{path}: must name two states or more, each once")
    values = table[columns].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not np.isfinite(values).all():
        raise ConfigError(f"{path}: must have a number for each pair of each state")
    return States(names, values)


def networks(domains: Sequence[str]) -> list[str]:
    """Networks in the order of measures: as they come; empty ones are left out."""
    return list(dict.fromkeys(name for name in domains if name))


# Columns of a table of networks that may name each of its maps.
NAMES = ("network", "name")


def course_names(
    options: Domains | None, labels: Sequence[Any], domains: Sequence[str]
) -> tuple[str, ...]:
    """A name for each course: as its table has it, else its network's with a number.

    Parameters
    ----------
    options, labels
        As of :func:`domains`.
    domains
        Network of each course.
    """
    if options is not None:
        table = open_texts(options.file)
        keys = {column: list(table[column]) for column in table}
        places = [str(label) for label in labels]
        index = [as_whole_number(cell) for cell in keys.get("index", [])]
        for column in NAMES:
            name_of = dict(zip(index, keys.get(column, []), strict=False))
            names = [name_of.get(place, "") for place in places]
            if all(names) and not repeated(names):
                return tuple(names)
    many = {name for name in domains if not name or list(domains).count(name) > 1}
    return tuple(
        f"{name or 'other'} {k}" if name in many else name
        for k, name in enumerate(domains, 1)
    )


def pairs(domains: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of networks that connectivity is of; one of a single course is no pair."""
    names = networks(domains)
    many = [list(domains).count(name) > 1 for name in names]
    R = range(len(names))
    return [(a, b) for a in R for b in R[a:] if a < b or many[a]]


def pair_names(domains: Sequence[str]) -> list[str]:
    """Names of the pairs of :func:`pairs`: ``Visual``, ``Visual - Default``."""
    names = networks(domains)
    name_pairs = [(names[a], names[b]) for a, b in pairs(domains)]
    return [a if a == b else f"{a} - {b}" for a, b in name_pairs]


def square(values: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    """Arrange values of :func:`pairs` in a symmetric matrix; NaN where none is."""
    R = len(networks(domains))
    matrix = np.full((R, R), np.nan)
    for (a, b), value in zip(pairs(domains), values, strict=True):
        matrix[a, b] = matrix[b, a] = value
    return matrix


def named(
    options: MeasuresOptions, domains: Sequence[str], state_names: Sequence[str] = ()
) -> tuple[list[str], list[tuple[float, float]]]:
    """Names of all measures and their bounds, in the order of their values.

    Parameters
    ----------
    options
        Which measures.
    domains
        Network of each course, as of :func:`domains`.
    state_names
        Of the states of `occupancy`.
    """
    names = networks(domains)
    measure_names: list[str] = []
    bounds: list[tuple[float, float]] = []
    for measure in options.measures:
        if measure == "connectivity":
            new = pair_names(domains)
        elif measure == "occupancy":
            new = [f"occupancy of {state}" for state in state_names]
        elif measure == "maps":
            new = [f"{name} in the map of {of}" for of in names for name in names]
        elif measure == "spectra":
            bands = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
            new = [f"{name} at {band}" for name in names for band in bands]
        else:
            new = [f"{measure} of {name}" for name in names]
        is_share = measure in ("amplitude", "spectra", "occupancy")
        limit = (0.0, 1.0) if is_share else (-LARGEST_Z, LARGEST_Z)
        measure_names += new
        bounds += [limit] * len(new)
    return measure_names, bounds


def membership(domains: Sequence[str]) -> np.ndarray:
    """Which courses each network has, (n_networks, n_courses), of zeros and ones."""
    return np.array([np.array(domains) == name for name in networks(domains)], float)
