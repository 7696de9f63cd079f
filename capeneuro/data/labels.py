"""Public regions and maps by whose names components are called."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.sections import Atlas
from capeneuro.data import nifti
from capeneuro.data.tables import as_whole_number, check_columns, open_texts


class Regions(NamedTuple):
    """Regions of an atlas, or maps of a template, over the voxels of a mask."""

    names: list[str]
    maps: np.ndarray
    """(n_voxels, n): 1 inside a region and 0 outside, or weights."""
    are_labels: bool
    """Whether they are regions."""


def read(atlas: Atlas, mask: Any) -> Regions:
    """Read labelled regions (3-D) or maps (4-D), brought to the mask's grid.

    Raises
    ------
    ConfigError
        If the files do not fit together, or nothing of them is in the mask.
    """
    values, are_labels = nifti.read_atlas(atlas.file, mask)
    names = region_names(atlas.labels)
    if not are_labels and values.shape[1] != len(names):
        raise ConfigError(
            f"{atlas.labels}: must have a row for each of the {values.shape[1]} maps "
            f"of {atlas.file}, has {len(names)}"
        )
    if are_labels:
        regions = {i: values[:, 0] == i for i in names}
        covered = {i: inside for i, inside in regions.items() if inside.any()}
        maps = np.stack([*covered.values()], axis=1) if covered else np.zeros((0, 0))
        named = [names[i] for i in covered]
    else:
        maps, named = values, [*names.values()]
    if not maps.size or not maps.any():
        raise ConfigError(f"{atlas.file}: nothing of it lies in the study's mask")
    return Regions(named, maps.astype(np.float32), are_labels)


def region_names(path: Path) -> dict[int, str]:
    """Names by index, with the network of a region behind its name, if there is one."""
    table = open_texts(path)
    check_columns(path, table, ("index", "name"), "")
    table["index"] = list(map(as_whole_number, table["index"]))
    if odd := [index for index in table["index"] if not index.isdecimal()]:
        raise ConfigError(f"{path}: index must be a whole number, got {odd[0]!r}")
    if twice := repeated(table["index"]):
        raise ConfigError(f"{path}: must name each index once, got {some(twice)} again")
    names = {}
    for row in table.to_dict("records"):
        parts = row["name"], row.get("network", "")
        text = ", ".join(part for part in parts if part)
        names[int(row["index"])] = text or f"region {row['index']}"
    return names
