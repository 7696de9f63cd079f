"""Voxel grids: the brain, where its voxels are, and putting them back into volumes."""

import numpy as np

from capeneuro.data import nifti


def head_mask_3d(voxel_size: float) -> tuple[np.ndarray, np.ndarray]:
    """Load the MNI152 brain at a voxel size, cropped to its box.

    The mask comes with nilearn; no network is used.

    Parameters
    ----------
    voxel_size
        Edge of the cubic voxels [mm].

    Returns
    -------
    mask : numpy.ndarray
        Shape (X, Y, Z), bool.
    affine : numpy.ndarray
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    """
    image = nifti.cropped_brain(voxel_size)
    return np.asarray(image.dataobj) > 0, image.affine


def crop(labels: np.ndarray, affine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut a mask or an atlas to the box of its nonzero voxels.

    Parameters
    ----------
    labels
        Shape (X, Y, Z).
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).

    Returns
    -------
    labels : numpy.ndarray
        The box, of the same type.
    affine : numpy.ndarray
        That of the box, shape (4, 4).
    """
    corners = np.argwhere(labels)
    low, high = corners.min(axis=0), corners.max(axis=0) + 1
    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    moved = affine.copy()
    moved[:3, 3] += affine[:3, :3] @ low
    return labels[box], moved


def voxel_coordinates(mask: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Locate the voxels of a mask in MNI space.

    Parameters
    ----------
    mask
        Shape (X, Y, Z), bool.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, 3) [mm], in the order of ``volumes[mask]``.
    """
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def fill_volumes(voxels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Put the voxels of a mask back into their grid, zeros elsewhere.

    Parameters
    ----------
    voxels
        Shape (n_voxels, T), rows in the order of ``volumes[mask]``.
    mask
        Shape (X, Y, Z), bool.

    Returns
    -------
    numpy.ndarray
        Shape (X, Y, Z, T), of the type of ``voxels``, in the memory order of NIfTI.
    """
    # Filling time-major memory and viewing it backwards is several times faster than
    # letting nibabel reorder a C array.
    volumes = np.zeros((voxels.shape[1], mask.size), dtype=voxels.dtype)
    volumes[:, np.ravel_multi_index(np.nonzero(mask), mask.shape, order="F")] = voxels.T
    return volumes.reshape(-1, *mask.shape[::-1]).T
