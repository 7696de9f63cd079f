"""Two people in files, and the unmixing of their group."""

import csv

import nibabel as nib
import numpy as np
import pytest

from capeneuro.data import basis, files

R, D, T = 3, 30, 200


@pytest.fixture
def A(rng):
    return rng.standard_normal((D, R))


def unmixing_of(rng, A):
    """Arrays as the solver writes them, for maps A and unit norm bound."""
    Q, diagonal, V = np.linalg.svd(A, full_matrices=False)
    W = 1.8 * V.T  # any scale: sources are divided by the norms of its rows
    unmixing = W @ (Q / diagonal).T
    mixing = np.linalg.pinv(unmixing) * np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(mixing, A, atol=1e-10)
    return {"W": W, "unmixing": unmixing, "mixing": mixing}


@pytest.fixture
def site(tmp_path, rng, A):
    """Two people of unequal length on a mask of cubes, and the group's unmixing."""
    inside = np.zeros((8, 8, 8), dtype=np.uint8)
    inside[:6, :6] = 1
    mask = nib.Nifti1Image(inside, np.diag([3.0, 3, 3, 1]))
    grid = basis.grid(inside > 0, 2)
    truth = rng.standard_normal((grid.n_features, R))
    people = {
        f"sub-{i}": (truth + 0.2 * rng.standard_normal(truth.shape))
        @ rng.laplace(size=(R, n))
        for i, n in enumerate((60, 90))
    }
    files.write_features(
        tmp_path / "projected.npz", ((k, X.astype("f4")) for k, X in people.items())
    )
    return tmp_path, people, unmixing_of(rng, truth), grid, mask


def read(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))
