"""What measures of people's time courses are called, and their public bounds."""

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.rows import Domains, MeasuresOptions
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


def networks(domains: Sequence[str]) -> list[str]:
    """Networks in the order of measures: as they come; empty ones are left out."""
    return list(dict.fromkeys(name for name in domains if name))


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


def named(
    options: MeasuresOptions, domains: Sequence[str]
) -> tuple[list[str], list[tuple[float, float]]]:
    """Names of all measures and their bounds, in the order of their values.

    Parameters
    ----------
    options
        Which measures.
    domains
        Network of each course, as of :func:`domains`.
    """
    names = networks(domains)
    measure_names: list[str] = []
    bounds: list[tuple[float, float]] = []
    for measure in options.measures:
        if measure == "connectivity":
            new = pair_names(domains)
        elif measure == "spectra":
            bands = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
            new = [f"{name} at {band}" for name in names for band in bands]
        else:
            new = [f"{measure} of {name}" for name in names]
        is_share = measure in ("amplitude", "spectra")
        limit = (0.0, 1.0) if is_share else (-LARGEST_Z, LARGEST_Z)
        measure_names += new
        bounds += [limit] * len(new)
    return measure_names, bounds


def membership(domains: Sequence[str]) -> np.ndarray:
    """Which courses each network has, (n_networks, n_courses), of zeros and ones."""
    return np.array([np.array(domains) == name for name in networks(domains)], float)
