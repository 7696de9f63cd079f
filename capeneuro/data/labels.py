"""Public regions and maps by whose names components and features are called."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.sections import Atlas, Space
from capeneuro.data import nifti
from capeneuro.data.basis import Basis
from capeneuro.data.images import is_placed
from capeneuro.data.tables import as_whole_number, check_columns, open_texts

# Farthest that a public region may lie from a feature that is called after it [mm].
FARTHEST = 15


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


def feature_names(
    kind: str, mask: Any, basis: Basis, atlases: Sequence[Atlas]
) -> list[str]:
    """Names of features of images: number, region, and position in space [mm].

    For example ``grid 27 Precuneus (-4 -58 32)``. The position is that of the feature's
    voxel nearest to its middle, or of a map's largest weight; the region is the one
    that this voxel lies in, if any. Without an atlas, in the space of MNI152 by the
    mask's header, it is ``near`` one of 160 public regions [Dosenbach et al. 2010].

    Parameters
    ----------
    kind
        What features are, as `space.basis` says.
    mask
        The study's mask; one that does not say where it lies gives no positions.
    basis
        Features of its voxels.
    atlases
        Atlases that the study names. The first of labelled regions counts.
    """
    names = [f"{kind} {k + 1}" for k in range(basis.n_features)]
    if not is_placed(mask):
        return names
    voxels = np.argwhere(np.asarray(mask.dataobj) > 0)
    positions = voxels @ mask.affine[:3, :3].T + mask.affine[:3, 3]
    regions = next((r for a in atlases if (r := read(a, mask)).are_labels), None)
    weights = abs(basis.synthesis).tocsc()
    is_in_mni = regions is None and nifti.is_in_mni152(mask)
    for k, name in enumerate(names):
        inside = slice(weights.indptr[k], weights.indptr[k + 1])
        indices, w = weights.indices[inside], weights.data[inside]
        if not indices.size:
            continue
        middle = np.average(positions[indices], axis=0, weights=w)
        distances = np.linalg.norm(positions[indices] - middle, axis=1)
        is_mean = np.ptp(w) == 0
        voxel = indices[np.argmin(distances) if is_mean else np.argmax(w)]
        region = ""
        if regions is not None and regions.maps[voxel].any():
            region = regions.names[int(np.argmax(regions.maps[voxel]))] + " "
        elif is_in_mni:
            region = _near(positions[voxel])
        x, y, z = np.rint(positions[voxel]).astype(int)
        names[k] = f"{name} {region}({x} {y} {z})"
    return names


def _near(position: np.ndarray) -> str:
    """Name of the nearest public region to a place in the MNI's space, if one is."""
    names, centers = _public_regions()
    distances = np.linalg.norm(centers - position, axis=1)
    nearest = int(np.argmin(distances))
    return f"near {names[nearest]} " if distances[nearest] <= FARTHEST else ""


@cache
def _public_regions() -> tuple[list[str], np.ndarray]:
    """Names and centers [mm] of regions that nilearn brings along."""
    from nilearn.datasets import fetch_coords_dosenbach_2010

    regions = fetch_coords_dosenbach_2010()
    # Each label ends with a number of its own.
    names = [str(label).rpartition(" ")[0] for label in regions.labels]
    return names, np.array([*zip(*(regions.rois[a] for a in "xyz"), strict=True)])


def places(space: Space, mask: Any) -> str:
    """Describe features of images: voxels, cubes, regions or maps, with sizes [mm]."""
    edge = extent(mask, space.grid_size if space.basis == "grid" else 1)
    return {
        "voxels": f"voxels of the mask at {edge}",
        "grid": f"cubes of {edge} in the mask",
        "atlas": f"means over regions of {space.basis_file}",
        "template": f"weights of maps of {space.basis_file}",
    }[space.basis]


def extent(mask: Any, n_voxels: int) -> str:
    """Format the edges [mm] of a cube of voxels."""
    size = n_voxels * np.linalg.norm(mask.affine[:3, :3], axis=0)
    edges = dict.fromkeys(f"{edge:.3g}" for edge in size)  # one where all are alike
    edges = edges if len(edges) == 1 else (f"{x:.3g}" for x in size)
    return f"{' x '.join(edges)} mm"


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
