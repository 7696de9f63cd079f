"""A person's own maps and time courses, against known answers."""

import nibabel as nib
import numpy as np
import pytest
from nilearn import maskers
from scipy import stats

from capeneuro.persons import connectivity, dual_regression

R, D, T = 3, 30, 200


@pytest.fixture
def A(rng):
    return rng.standard_normal((D, R))


@pytest.fixture
def S(rng):
    """Sources of exactly zero mean and unit variance, correlated."""
    z = stats.zscore(rng.laplace(size=(R, T)), axis=1)
    z[1] = stats.zscore(z[1] + 0.5 * z[0])
    return z


def test_dual_regression_returns_a_persons_exact_maps(rng, A, S):
    # What a person's maps have beyond the group's, orthogonal to those.
    own = rng.standard_normal((D, R))
    own -= A @ np.linalg.lstsq(A, own, rcond=None)[0]
    found, maps = dual_regression.dual_regression((A + own) @ S, A)
    np.testing.assert_allclose(found, S, atol=1e-10)
    np.testing.assert_allclose(maps, A + own, atol=1e-10)
    assert not np.allclose(maps, A, atol=0.1)


def test_dual_regression_does_not_see_means(rng, A, S):
    X = A @ S + 0.1 * rng.standard_normal((D, T))
    moved = dual_regression.dual_regression(X + rng.standard_normal((D, 1)), A)
    for one, other in zip(dual_regression.dual_regression(X, A), moved, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_dual_regression_of_a_silent_source(A, S):
    S[2] = 0.0
    found, maps = dual_regression.dual_regression(A @ S, A)
    np.testing.assert_allclose(found[:2], S[:2], atol=1e-10)
    assert not found[2].any() and not maps[:, 2].any()
    np.testing.assert_allclose(maps[:, :2], A[:, :2], atol=1e-10)
    assert np.isfinite(connectivity.connectivity(found)).all()


def unmixing_of(rng, A):
    """Arrays as the solver writes them, for maps A and unit norm bound."""
    Q, diagonal, V = np.linalg.svd(A, full_matrices=False)
    W = 1.8 * V.T  # any scale: sources are divided by the norms of its rows
    unmixing = W @ (Q / diagonal).T
    mixing = np.linalg.pinv(unmixing) * np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(mixing, A, atol=1e-10)
    return {"W": W, "unmixing": unmixing, "mixing": mixing}


def test_back_projection_is_the_first_stage_of_dual_regression(rng, A, S):
    result = unmixing_of(rng, A)
    X = A @ S + 0.3 * rng.standard_normal((D, T))
    Z = dual_regression.back_projection(result["unmixing"], result["W"], X)
    exact = dual_regression.back_projection(result["unmixing"], result["W"], A @ S)
    np.testing.assert_allclose(exact, S, atol=1e-10)
    first = dual_regression.dual_regression(X, A)[0]
    np.testing.assert_allclose(first, stats.zscore(Z, axis=1), atol=1e-10)
    assert np.abs(Z - S).max() > 0.01


# nilearn 0.12.1 warns that later ones leave empty parcels out; there are none here.
@pytest.mark.filterwarnings("ignore:Applying:DeprecationWarning")
def test_time_courses_are_those_of_nilearns_maps_masker(rng):
    shape = (5, 6, 7)
    inside = rng.random(shape) < 0.7
    maps, volumes = rng.random((*shape, R)), rng.standard_normal((*shape, 40))
    affine = np.diag([3.0, 3.0, 3.0, 1.0])
    mask, maps_image, run = (
        nib.Nifti1Image(part, affine)
        for part in (inside.astype(np.uint8), maps * inside[..., None], volumes)
    )
    masker = maskers.NiftiMapsMasker(maps_image, mask, standardize=None)
    theirs = masker.fit_transform(run).T
    ours, _ = dual_regression.dual_regression(volumes[inside], maps[inside])
    np.testing.assert_allclose(ours, stats.zscore(theirs, axis=1), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Applying:DeprecationWarning")
def test_time_courses_of_parcels_are_those_of_nilearns_labels_masker(rng):
    shape = (5, 6, 7)
    labels = rng.integers(0, R + 1, shape)
    volumes, affine = rng.standard_normal((*shape, 40)), np.eye(4)
    run = nib.Nifti1Image(volumes, affine)
    masker = maskers.NiftiLabelsMasker(
        nib.Nifti1Image(labels.astype(np.int32), affine), standardize=None
    )
    theirs = masker.fit_transform(run).T
    parcels = (labels[..., None] == np.arange(1, R + 1)).reshape(-1, R).astype(float)
    ours, _ = dual_regression.dual_regression(volumes.reshape(-1, 40), parcels)
    np.testing.assert_allclose(ours, stats.zscore(theirs, axis=1), atol=1e-6)
