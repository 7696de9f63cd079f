"""What follows the unmixing, against known answers."""

import csv
import json

import nibabel as nib
import numpy as np
import pytest
from scipy import stats

from capeneuro import basis, components, files, io

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


# Group maps


def test_zscores_over_the_voxels_that_features_reach(rng):
    maps = 5 + 3 * rng.standard_normal((50, 2))
    maps[:10] = 0
    z = components.zscore(maps)
    np.testing.assert_allclose(z[10:], stats.zscore(maps[10:]), rtol=1e-12)
    assert not z[:10].any()
    assert not np.allclose(z[10:], maps[10:] / maps[10:].std(axis=0))


def test_a_constant_map_has_no_zscores():
    z = components.zscore(np.column_stack([np.full(4, 0.3), np.arange(4.0)]))
    np.testing.assert_array_equal(z[:, 0], 0)
    assert z[:, 1].std() == pytest.approx(1)


def test_table_of_components():
    A = np.array([[3.0, 0.0], [4.0, -1.0]])
    maps = np.array([[0.0, 0.1], [2.0, 0.1], [2.0, 0.2], [2.0, -0.7], [0.0, 0.0]])
    x = np.arange(5.0)[:, None] * [4.0, 0.0, -1.0]
    rows = components.table(A, maps, x, np.array([np.nan, 0.91234]))
    # Voxels 1 to 3 share the peak: the middle one of them; the sign does not matter.
    assert rows == [
        [1, "5", f"{25 / 26:.4f}", "8.0", "0.0", "-2.0", "n/a"],
        [2, "1", f"{1 / 26:.4f}", "12.0", "0.0", "-3.0", "0.912"],
    ]


# One person


def test_dual_regression_returns_a_persons_exact_maps(rng, A, S):
    # What a person's maps have beyond the group's, orthogonal to those.
    own = rng.standard_normal((D, R))
    own -= A @ np.linalg.lstsq(A, own, rcond=None)[0]
    found, maps = components.dual_regression((A + own) @ S, A)
    np.testing.assert_allclose(found, S, atol=1e-10)
    np.testing.assert_allclose(maps, A + own, atol=1e-10)
    assert not np.allclose(maps, A, atol=0.1)


def test_dual_regression_does_not_see_means(rng, A, S):
    X = A @ S + 0.1 * rng.standard_normal((D, T))
    moved = components.dual_regression(X + rng.standard_normal((D, 1)), A)
    for one, other in zip(components.dual_regression(X, A), moved, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_dual_regression_of_a_silent_source(A, S):
    S[2] = 0.0
    found, maps = components.dual_regression(A @ S, A)
    np.testing.assert_allclose(found[:2], S[:2], atol=1e-10)
    assert not found[2].any() and not maps[:, 2].any()
    np.testing.assert_allclose(maps[:, :2], A[:, :2], atol=1e-10)
    assert np.isfinite(components.connectivity(found)).all()


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
    Z = components.back_projection(result["unmixing"], result["W"], X)
    exact = components.back_projection(result["unmixing"], result["W"], A @ S)
    np.testing.assert_allclose(exact, S, atol=1e-10)
    first = components.dual_regression(X, A)[0]
    np.testing.assert_allclose(first, stats.zscore(Z, axis=1), atol=1e-10)
    assert np.abs(Z - S).max() > 0.01


@pytest.mark.parametrize(("t_r", "expected"), [(2.0, 0.0625), (None, 0.125)])
def test_power_is_where_a_sine_is(t_r, expected):
    course = np.sqrt(2) * np.sin(2 * np.pi * np.arange(256) / 8)
    frequencies, density = components.power(course[None], t_r, 128)
    assert frequencies[density[0].argmax()] == pytest.approx(expected)
    # The density integrates to the variance.
    total = np.trapezoid(density[0], frequencies)
    assert total == pytest.approx(1, rel=0.02)


def test_connectivity_is_pearsons(S):
    r = components.connectivity(3 * S + 7)
    np.testing.assert_allclose(r, np.corrcoef(S), atol=1e-12)
    assert r[0, 1] > 0.3


# Files of a site's people


@pytest.fixture
def site(tmp_path, rng, A):
    """Two people of unequal length on a mask of cubes, and the group's unmixing."""
    inside = np.zeros((8, 8, 8), dtype=np.uint8)
    inside[:6, :6] = 1
    mask = nib.Nifti1Image(inside, np.diag([3.0, 3, 3, 1]))
    grid = basis.grid(inside > 0, 2)
    maps = rng.standard_normal((grid.n_features, R))
    people = {
        f"sub-{i}": (maps + 0.2 * rng.standard_normal(maps.shape))
        @ rng.laplace(size=(R, n))
        for i, n in enumerate((60, 90))
    }
    files.write_features(
        tmp_path / "projected.npz", ((k, X.astype("f4")) for k, X in people.items())
    )
    return tmp_path, people, unmixing_of(rng, maps), grid, mask


def read(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f, delimiter="\t"))


@pytest.mark.parametrize("t_r", [2.0, None])
def test_people_are_written(site, t_r):
    folder, people, result, grid, mask = site
    seen = []

    def progress(names):
        for name in names:
            seen.append(name)
            yield name

    # Features are divided by the norm bound before the unmixing: one of 2 says so.
    halved = {
        **result,
        "mixing": result["mixing"] / 2,
        "unmixing": result["unmixing"] * 2,
    }
    # A released center of the divided features is taken off first.
    center = np.linspace(-1, 1, grid.n_features)
    files.write_features(
        folder / "projected.npz",
        ((k, (X + 2 * center[:, None]).astype("f4")) for k, X in people.items()),
    )
    about = halved, 2.0, center, grid, mask, t_r, progress
    found = components.write_people(folder, *about)
    assert seen == ["sub-0", "sub-1"]
    courses = read(folder / "timecourses.tsv")
    assert len(courses) == 60 + 90
    mean = np.zeros((R, R))
    links = read(folder / "connectivity.tsv")
    for row, (name, X) in zip(links, people.items(), strict=True):
        S, own = components.dual_regression(X, result["mixing"])
        r = np.corrcoef(S)
        mean += r / 2
        assert list(row) == ["subject", "1-2", "1-3", "2-3"]
        values = [float(row[k]) for k in ("1-2", "1-3", "2-3")]
        np.testing.assert_allclose(values, r[np.triu_indices(R, 1)], atol=1e-4)
        path = folder / components.PERSON.format(name)
        written = io.read_maps(path, mask)
        np.testing.assert_allclose(written, grid.synthesis @ own, atol=1e-3)
        sidecar = json.loads(path.with_name(path.name[:-7] + ".json").read_text())
        assert "stays at the site" in sidecar["Private"]
    np.testing.assert_allclose(found["connectivity"], mean, atol=1e-4)
    spectra = read(folder / "spectra.tsv")
    header = "frequency [Hz]" if t_r else "frequency [cycles per volume]"
    assert list(spectra[0])[:3] == ["subject", header, "component-1"]
    # One length of segment for all, so that means over people exist.
    assert len(spectra) == 2 * (60 // 2 + 1)
    assert max(float(row[header]) for row in spectra) == (0.25 if t_r else 0.5)
    first = np.array([float(row["component-1"]) for row in spectra]).reshape(2, -1)
    np.testing.assert_allclose(found["power"][0], first.mean(axis=0), rtol=1e-4)


def test_group_files_agree_with_each_other(tmp_path, site):
    _, _, result, grid, mask = site
    components.write_group(tmp_path, result["mixing"], grid, mask, {"Stamp": "s"})
    raw = io.read_maps(tmp_path / components.MAPS, mask)
    z = io.read_maps(tmp_path / components.ZSCORED, mask)
    np.testing.assert_allclose(raw, grid.synthesis @ result["mixing"], rtol=1e-6)
    np.testing.assert_allclose(z, stats.zscore(raw), atol=1e-5)
    inside = np.asarray(mask.dataobj) > 0
    volume = np.zeros((*mask.shape, R))
    volume[inside] = raw
    for i, row in enumerate(read(tmp_path / components.TABLE)):
        voxel = np.array([float(row[k]) for k in "xyz"]) / 3
        value = volume[(*voxel.astype(int), i)]
        assert abs(value) == pytest.approx(np.abs(raw[:, i]).max())
        assert float(row["strength"]) == pytest.approx(
            np.linalg.norm(result["mixing"][:, i]), rel=1e-5
        )
    for name in (components.MAPS, components.ZSCORED):
        sidecar = json.loads((tmp_path / name.replace(".nii.gz", ".json")).read_text())
        assert sidecar["Stamp"] == "s"
        assert "strength" in sidecar["Order"] and "positive" in sidecar["Sign"]
    assert "z-scores" in sidecar["Description"]
