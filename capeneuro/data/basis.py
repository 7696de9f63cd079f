"""The public feature basis: voxels become D features, and maps go back to voxels.

A second moment over raw voxels is neither storable nor privately estimable, so each
study names a public linear map: features ``F X`` of voxels ``X``, maps ``B A`` from
mixing over features ``A``. Both depend on public files only.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy


@dataclass(frozen=True)
class Basis:
    """A public linear map between voxels and features.

    Parameters
    ----------
    analysis
        Features of voxels, (n_features, n_voxels).
    synthesis
        Voxels of features, (n_voxels, n_features); ``analysis @ synthesis`` is the
        identity.
    """

    analysis: "scipy.sparse.csr_array"
    synthesis: "scipy.sparse.csr_array"

    @cached_property
    def weights(self) -> np.ndarray | None:
        """The analysis as an array where most of it is not zero, as a template's is.

        A product with it takes a fifth of the time then; None: it is sparse.
        """
        n_features, n_voxels = self.analysis.shape
        is_sparse = self.analysis.nnz < n_features * n_voxels / 2
        return None if is_sparse else self.analysis.toarray()

    @property
    def n_features(self) -> int:
        """Number D of features."""
        return self.analysis.shape[0]

    @property
    def sizes(self) -> np.ndarray:
        """Voxels that each feature is the mean of; 1 of weights of maps, (D,)."""
        is_mean = bool((self.synthesis.data == 1).all())
        sizes = np.asarray(self.synthesis.sum(axis=0)).ravel().astype(float)
        return sizes if is_mean else np.ones(self.n_features)


def voxels(n_voxels: int) -> Basis:
    """Every in-mask voxel is a feature."""
    identity = scipy.sparse.eye_array(n_voxels, dtype=np.float32, format="csr")
    return Basis(identity, identity)


def grid(mask: np.ndarray, size: int) -> Basis:
    """Means over cubes of ``size`` voxels a side, those that meet the mask.

    Parameters
    ----------
    mask
        Boolean volume.
    size
        Edge of a cube [voxels].
    """
    return _means(_cubes(np.stack(np.nonzero(mask)), size)[1])


def regions(mask: np.ndarray, size: int, edge: int) -> np.ndarray:
    """Cube of ``edge`` voxels a side that each feature lies in, numbered from 0.

    Parameters
    ----------
    mask
        Boolean volume.
    size
        Edge of a feature [voxels]: 1 of :func:`voxels`, else that of :func:`grid`.
    edge
        Edge of a cube [voxels], a multiple of ``size``.

    Returns
    -------
    numpy.ndarray
        Shape (n_features,), integers; every number up to the largest occurs.
    """
    features, _ = _cubes(np.stack(np.nonzero(mask)), size)
    return _cubes(features, edge // size)[1]


def _cubes(places: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cubes that meet the places, shape (3, n), and the cube of each place."""
    cubes, labels = np.unique(places // size, axis=1, return_inverse=True)
    return cubes, labels.ravel()


def atlas(
    mask: np.ndarray, labels: np.ndarray, n_voxels: Mapping[int, int] | None = None
) -> Basis:
    """Means over the parcels of an atlas; label 0 is outside.

    Parameters
    ----------
    mask
        Boolean volume.
    labels
        Integer volume on the same grid.
    n_voxels
        Of each parcel before the atlas was brought to this grid, by label; None: as in
        ``labels``.

    Raises
    ------
    ValueError
        If a parcel has no voxel inside the mask.
    """
    inside = labels[mask].astype(int)
    n_voxels = n_voxels or Counter(labels[labels > 0].astype(int).tolist())
    parcels = np.array(sorted(n_voxels))
    missing = np.setdiff1d(parcels, inside)
    if missing.size:
        raise ValueError(
            f"{missing.size} of {parcels.size} parcels have no voxel in the mask "
            f"on its grid, first label {missing[0]} of {n_voxels[missing[0]]} voxels "
            "in the atlas; use a larger mask or a finer grid, or set such labels to 0"
        )
    return _means(np.searchsorted(parcels, inside), inside > 0)


def template(maps: np.ndarray) -> Basis:
    """Least-squares weights of given component maps.

    Parameters
    ----------
    maps
        Shape (n_voxels, n_maps), of full column rank.

    Raises
    ------
    ValueError
        If the maps are linearly dependent inside the mask.
    """
    if np.linalg.matrix_rank(maps) < maps.shape[1]:
        raise ValueError("template maps are linearly dependent inside the mask")
    return Basis(
        scipy.sparse.csr_array(np.linalg.pinv(maps).astype(np.float32)),
        scipy.sparse.csr_array(maps.astype(np.float32)),
    )


def _means(labels: np.ndarray, inside: np.ndarray | None = None) -> Basis:
    """Means over groups of voxels; voxels not ``inside`` any group are left out."""
    voxel = np.arange(labels.size) if inside is None else np.flatnonzero(inside)
    group = labels[voxel]
    shape = (int(group.max()) + 1, labels.size)
    ones = np.ones(voxel.size, dtype=np.float32)
    member = scipy.sparse.csr_array((ones, (group, voxel)), shape=shape)
    size = np.asarray(member.sum(axis=1)).ravel()
    return Basis(
        (scipy.sparse.diags_array(1 / size) @ member).tocsr().astype("f4"),
        member.T.tocsr(),
    )
