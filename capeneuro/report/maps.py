"""Group maps as readers see them: as released, in one scale, and a table of components.

Group maps are released values only. They are ``A`` (D, R), features of unit-variance
sources: a person's features ``X`` (D, T) are ``A S + noise``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro import linalg
from capeneuro.data import cifti, files, nifti
from capeneuro.data.basis import Basis
from capeneuro.data.labels import Regions

# Component maps per unit deviation of a time course, the same scaled, their table.
MAPS = "group_desc-ica_components.nii.gz"
SCALED = "group_desc-icaz_components.nii.gz"
# Unit of the scaled maps, beside the scale of colors.
UNIT = "x rms"
TABLE = "group_desc-ica_components.tsv"
FILES = (MAPS, MAPS.replace(".nii.gz", ".json"), TABLE)
FILES += (SCALED, SCALED.replace(".nii.gz", ".json"))


def names_of_files(*, has_parcels: bool) -> list[str]:
    """Names of the group's files; maps of parcels have another format."""
    if not has_parcels:
        return [*FILES]
    return [files.of_parcels(Path(n)).name if n.endswith(".gz") else n for n in FILES]


# --- group maps ----------------------------------------------------------------------


def scaled(maps: np.ndarray) -> np.ndarray:
    """Divide each map by its root mean square over the mask.

    Zero stays zero and signs stay: a component of the whole brain has one sign.

    Parameters
    ----------
    maps
        (n_voxels, R). Voxels that are zero in every map, because no feature reaches
        them, do not count.

    Returns
    -------
    numpy.ndarray
        Of the same shape; an empty map stays empty.
    """
    n_reached = max(int(maps.any(axis=1).sum()), 1)
    size = np.linalg.norm(maps, axis=0) / np.sqrt(n_reached)
    return maps / np.where(size > 0, size, 1.0)


def table(
    mixing: np.ndarray,
    maps: np.ndarray,
    coordinates: np.ndarray | None,
    stability: np.ndarray | None = None,
    agreement: np.ndarray | None = None,
    verdicts: Sequence[str] = (),
) -> list[list[object]]:
    """Describe each component in one row.

    Parameters
    ----------
    mixing
        A in the unit of the features, (n_features, R), strongest first.
    maps
        The same over voxels, (n_voxels, R).
    coordinates
        Of the voxels [mm], (n_voxels, 3); None: of parcels, whose rows say n/a.
    stability
        Of each component over repeated runs, (R,); NaN and None: not measured.
    agreement
        With the map without noise, and its 80% range, (R, 3); empty and None: no noise
        was added.
    verdicts
        Of each component, see :mod:`.verdicts`; empty: not judged.

    Returns
    -------
    list of list
        Order number, strength (norm of the map over features), share of the energy of
        all maps, x, y, z of the peak, the stability, and the agreement with its range.
        The peak is the voxel of the largest value with the component's sign, that of
        the largest entry of its map over features. Voxels of one cube or parcel have
        one value: of those with the largest, the one nearest to their center. The
        verdict is the last.
    """
    strength = np.linalg.norm(mixing, axis=0)
    share = strength**2 / (strength**2).sum()
    index_quality = np.full(len(strength), np.nan) if stability is None else stability
    rows: list[list[object]] = []
    for i, values in enumerate((linalg.peak_signs(mixing) * maps).T):
        xyz = ["n/a"] * 3
        if coordinates is not None:
            peak = coordinates[values >= values.max() - 1e-6 * abs(values.max())]
            distance = np.linalg.norm(peak - peak.mean(axis=0), axis=1)
            xyz = [f"{x:.1f}" for x in peak[distance.argmin()]]
        stable = "n/a" if np.isnan(index_quality[i]) else f"{index_quality[i]:.3f}"
        agrees = ["n/a"] * 3
        if agreement is not None and agreement.size:
            agrees = [f"{r:.3f}" for r in agreement[i]]
        verdict = verdicts[i] if verdicts else "n/a"
        numbers = f"{strength[i]:.6g}", f"{share[i]:.4f}", *xyz, stable, *agrees
        rows.append([i + 1, *numbers, verdict])
    return rows


# Overlap below which a component gets no name.
LIKE = 0.25


class Name(NamedTuple):
    """Name of a component, after the public region or map that resembles it most."""

    name: str
    """Of the region or map; empty: none."""
    overlap: float
    """Correlation with a map, or Dice coefficient of as many voxels as a region has."""
    measure: str
    peak: str
    """Region of the peak; empty: none, or no regions are known."""

    @property
    def title(self) -> str:
        """In words, for a picture."""
        return f"like {self.name} ({self.measure} {self.overlap:.2f})" * bool(self.name)

    @property
    def cells(self) -> list[str]:
        """In a table, under the columns :data:`NAMES`."""
        overlap = f"{self.overlap:.2f}" * bool(self.name)
        return [text or "n/a" for text in (self.name, overlap, self.peak)]


# Columns of a component's name, with their explanations.
NAMES = {
    "like": f"Public region or map that it is most like, above {LIKE:g}",
    "overlap": "Absolute correlation with that map, or Dice coefficient of the region "
    "and as many voxels of the largest magnitude",
    "peak": "Region of the voxel with the largest magnitude",
}


def named(maps: np.ndarray, atlases: Sequence[Regions]) -> list[Name]:
    """Name each map after the public region or map that it resembles most.

    Parameters
    ----------
    maps
        (n_voxels, R).
    atlases
        Public regions and maps over the same voxels.
    """
    component_names = []
    for z in maps.T:
        order = np.argsort(-np.abs(z), kind="stable")
        best, peak = Name("", 0.0, "", ""), ""
        for atlas in atlases:
            if atlas.are_labels:
                sizes = atlas.maps.sum(axis=0).astype(int)
                inside = np.cumsum(atlas.maps[order], axis=0)
                scores = inside[sizes - 1, np.arange(len(sizes))] / sizes
                regions = np.flatnonzero(atlas.maps[order[0]])
                peak = peak or (atlas.names[regions[0]] if len(regions) else "")
            else:
                varied = np.maximum(atlas.maps.std(axis=0) * z.std(), 1e-12)
                cross = (z - z.mean()) @ (atlas.maps - atlas.maps.mean(axis=0)) / len(z)
                scores = np.abs(cross) / varied
            k = int(np.argmax(scores))
            if scores[k] > max(best.overlap, LIKE):
                measure = "Dice" if atlas.are_labels else "r"
                best = Name(atlas.names[k], float(scores[k]), measure, "")
        component_names.append(best._replace(peak=peak))
    return component_names


def write_group(
    folder: Path,
    A: np.ndarray,
    basis: Basis,
    mask: Any,
    metadata: dict[str, Any],
    independence: str = "temporal",
    stability: np.ndarray | None = None,
    agreement: np.ndarray | None = None,
    verdicts: Sequence[str] = (),
    atlases: Sequence[Regions] = (),
) -> None:
    """Write the group maps, raw and scaled, and the table of components.

    Parameters
    ----------
    folder
        Of the study's results.
    A
        Group maps over features, (n_features, R), strongest first.
    basis, mask
        The study's space.
    metadata
        Goes into both sidecars; the first also describes the table.
    independence, stability, agreement, verdicts
        Kind of the ICA, and see :func:`table`.
    atlases
        Public regions and maps to call components after.
    """
    maps = basis.synthesis @ A
    parcels = cifti.parcels_of(mask)
    names = names_of_files(has_parcels=parcels is not None)
    over = "mask" if parcels is None else "parcels"
    order = {
        "Order": "by strength, the norm of a released map over features, descending",
        "Sign": "the entry of largest magnitude of a map over features is positive",
    }
    if agreement is not None and agreement.size:
        order["Agreement"] = [[round(float(r), 3) for r in row] for row in agreement]
    raw = {
        "Description": f"Spatial maps of joint {independence} ICA, per unit deviation "
        "of a component's time course, strongest first",
        **order,
        **metadata,
    }
    in_scale = {
        "Description": f"The maps of {names[0]}, each divided by its root mean square "
        f"over the {over}; no mean is subtracted; not a test statistic",
        **order,
        **metadata,
    }
    columns = {
        "component": "Order number, as in the maps",
        "strength": "Norm of the map over features, in the unit of the features",
        "share": "Share of the energy of all maps: strength squared over its sum",
        **{
            axis: f"Coordinate {axis} of the voxel with the largest value of the "
            "component's sign [mm], nearest to the center of those that share it"
            for axis in "xyz"
        },
        "stability": "Agreement of the component over repeated runs, I_q of ICASSO",
        "agreement": "Correlation over features with the map without noise, estimated "
        "from the law of the noise",
        "agreement_low": "Lower end of the 80% range of the agreement",
        "agreement_high": "Upper end of the 80% range of the agreement",
        "verdict": "Whether the map is reproducible under the noise of privacy, more "
        "than smooth noise, and apart from other rotations",
    }
    if atlases:
        columns |= NAMES
    if parcels is not None:
        columns |= dict.fromkeys("xyz", "n/a: parcels are called by name")
        columns["peak"] = "Parcel with the largest value of the component's sign"
    described = {name: {"Description": text} for name, text in columns.items()}
    inside = np.argwhere(np.asarray(mask.dataobj) > 0)
    coordinates = inside @ mask.affine[:3, :3].T + mask.affine[:3, 3]
    if parcels is not None:
        coordinates = None
    rows = table(A, maps, coordinates, stability, agreement, verdicts)
    if parcels is not None:
        upright = linalg.peak_signs(A) * maps
        peaks = [parcels.names[k] for k in upright.argmax(axis=0)]
        rows = [[*row, peak] for row, peak in zip(rows, peaks, strict=True)]
    if atlases:
        called = named(maps, atlases)
        rows = [[*row, *n.cells] for row, n in zip(rows, called, strict=True)]
    files.write_table(folder / TABLE, list(columns), rows)
    nifti.write_maps(folder / SCALED, scaled(maps), mask, in_scale)
    nifti.write_maps(folder / MAPS, maps, mask, raw | described)
