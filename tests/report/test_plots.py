"""Pictures: each returns one figure that shows its data, and closes nothing else."""

import base64
import io
import zlib
from functools import partial

import matplotlib.pyplot as plt
import nibabel as nib
import numpy as np
import pytest

from capeneuro.report import page, plots, slices, viewer
from capeneuro.report.figures import Figure


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def _lines(axis) -> list[np.ndarray]:
    return [line.get_ydata() for line in axis.get_lines()]


def test_convergence_shows_gradient_and_noise():
    axis = plots.convergence(np.array([3.0, 2.0, 1.0]), [0.5, 0.5, 0.5]).axes[0]
    np.testing.assert_array_equal(_lines(axis), [[3, 2, 1], [0.5, 0.5, 0.5]])
    assert axis.get_yscale() == "log"
    assert axis.get_xlabel() == "round"


def test_convergence_without_noise_has_one_line():
    axis = plots.convergence(np.array([3.0, 2.0]), [0.0, 0.0]).axes[0]
    assert len(axis.get_lines()) == 1


@pytest.mark.parametrize("n_components", [1, 3, 30])
def test_matching_shows_the_correlations(rng, n_components):
    r = rng.uniform(-1, 1, (n_components, n_components))
    axis = plots.matching(r).axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), r)
    assert axis.images[0].get_clim() == (-1, 1)
    assert axis.get_xticklabels()[0].get_text() == "1"


def test_spectrum_shows_what_is_kept_and_where_noise_ends():
    values = np.array([3.0, 2.0, 0.5, -0.2])
    axis = plots.spectrum(values, 0.4, 2).axes[0]
    kept, left, edge = _lines(axis)
    np.testing.assert_array_equal(kept, values[:2])
    np.testing.assert_array_equal(left, values[2:])
    np.testing.assert_array_equal(edge, [0.4, 0.4])
    assert axis.get_yscale() == "log"
    assert axis.get_ylim()[0] < 0.4 and axis.get_ylim()[1] > 3
    assert axis.get_xlim() == (0, 5)
    exact = plots.spectrum(values, 0.4, 2, exact=True)
    names = [one.get_text() for one in exact.axes[0].get_legend().get_texts()]
    assert names == ["kept", "sampling alone"] and "noise" not in exact.get_label()


def test_spectrum_leaves_out_the_far_end():
    axis = plots.spectrum(np.linspace(9, 1, 500), 20.0, 10).axes[0]
    assert axis.get_ylim()[1] > 20
    assert axis.get_xlim() == (0, 21)


def test_spectrum_of_nothing_is_drawn():
    assert plots.spectrum(np.zeros(3), 0.0, 2).axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("n_components", [1, 3, 30])
def test_connectivity_leaves_the_diagonal_blank(rng, n_components):
    r = np.corrcoef(rng.standard_normal((n_components, 50))).reshape(n_components, -1)
    named = plots.connectivity(r, ["a region of a long name"] * n_components)
    for figure in (plots.connectivity(r), named):  # no label is cut
        figure.draw_without_rendering()
        assert figure.axes[0].yaxis.get_tightbbox().x0 >= 0
    image = plots.connectivity(r).axes[0].images[0]
    shown = np.ma.filled(image.get_array(), np.nan)
    assert np.isnan(np.diag(shown)).all()
    off = ~np.eye(n_components, dtype=bool)
    np.testing.assert_array_equal(shown[off], r[off])
    if n_components > 1:
        assert image.get_clim()[1] == np.abs(r[off]).max()


def test_power_has_a_row_per_component(rng):
    density = rng.uniform(1, 2, (4, 9))
    axis = plots.power(np.linspace(0, 0.25, 9), density, "Hz").axes[0]
    np.testing.assert_array_equal(axis.collections[0].get_array(), density[:, 1:])
    assert axis.get_xlabel() == "frequency [Hz]"
    first, last = axis.get_ylim()
    assert first > last  # component 1 on top


def test_norms_shows_all_volumes_and_the_bound(rng):
    axis = plots.norms([rng.uniform(1, 2, 30), rng.uniform(1, 2, 20)], 1.5).axes[0]
    assert sum(bar.get_height() for bar in axis.patches) == 50
    np.testing.assert_array_equal(axis.get_lines()[0].get_xdata(), [1.5, 1.5])


def test_component_map_of_a_small_image(tmp_path, rng):
    maps = rng.standard_normal((4, 4, 4, 2)).astype(np.float32)
    path = tmp_path / "maps.nii.gz"
    nib.save(nib.Nifti1Image(maps, np.diag([12.0, 12, 12, 1])), path)
    figure = plots.component_map(path, 1, "component 2")
    assert figure.get_suptitle() == "component 2"
    for threshold, seen in ((0.02, "\u00b10.02"), (0.5, "-0.5 0.5"), (0.95, "")):
        maps[...] = threshold / 2
        maps[3, 2:], maps[3, 3, 3] = threshold, 1.0
        nib.save(nib.Nifti1Image(maps, np.diag([12.0, 12, 12, 1])), path)
        texts = [t.get_text() for t in plots.component_map(path, 1, "").axes[0].texts]
        beside = texts[texts.index("1") + 1 : -1]  # after those of the ends
        assert " ".join(beside) == seen


def test_regions_are_named_in_full_where_numbers_would_cut_them():
    regions = "left frontal", "right medial temporal gyrus", "left insula"
    names = [f"atlas {k} {region} (22 -18 {k})" for k, region in enumerate(regions, 9)]
    assert plots.short_names(names[::2]) == names[::2]  # nothing would be cut
    nowhere = "grid 27 (-4 -58 32)"
    assert plots.short_names([*names, nowhere]) == [*regions, nowhere]
    alike = names[1], names[1].replace("22", "24")  # as cubes of a region are
    assert plots.short_names(alike) == [
        f"right medial temp\u2026gyrus ({x} -18 10)" for x in (22, 24)
    ]


def test_changes_tell_which_maps_private_data_changed():
    figure = plots.changes(np.array([0.9, 0.4, -0.1]), np.array([False, True, True]))
    bars = {bar.get_x() + 0.35: bar for bar in figure.axes[0].patches}
    assert [bars[x].get_height() for x in sorted(bars)] == [0.9, 0.4, -0.1]
    color = {x: bar.get_facecolor() for x, bar in bars.items()}
    assert len(set(color.values())) == 2 and figure.axes[0].get_ylim() == (-0.1, 1)


def test_a_flat_image_is_grey_and_a_bright_one_reaches_white():
    mask = nib.Nifti1Image(np.ones((6, 6, 6), np.uint8), np.eye(4))

    def seen(values: np.ndarray) -> np.ndarray:
        png = base64.b64decode(slices.portrait(values, mask).partition(",")[2])
        return plt.imread(io.BytesIO(png), format="png")[..., 0]

    assert 0.5 < seen(np.full(216, 7.0)).max() < 0.8
    assert seen(np.repeat([0.2, 1.0], 108)).max() == 1


def test_component_map_of_an_empty_map(tmp_path):
    path = tmp_path / "maps.nii.gz"
    zeros = np.zeros((4, 4, 4, 1), np.float32)
    nib.save(nib.Nifti1Image(zeros, np.diag([12.0, 12, 12, 1])), path)
    figure = plots.component_map(path, 0, "nothing")
    assert figure.get_label() == "nothing: an empty map"


@pytest.mark.parametrize("sform", [1, 2, 4])
def test_a_map_lies_on_anatomy_whatever_its_header_says(tmp_path, sform):
    """A mask of MNI space with any code; the same far away lies on no anatomy."""
    template = slices._template()
    values = np.where(template.values[::4, ::4, ::4] > 0.1, 0.1, 0).astype("f4")
    values[12, 8, 10] = -3.0
    affine = template.affine @ np.diag([4.0, 4, 4, 1])
    for moved, said in ((0, "on the MNI template"), (120, "no anatomy below")):
        affine[0, 3] += moved
        image = nib.Nifti1Image(values[..., None], affine)
        image.header.set_sform(affine, code=sform)
        path = tmp_path / f"maps{moved}.nii.gz"
        nib.save(image, path)
        seen = plots.component_map(path, 0, "a").get_label()
        place = affine @ [12, 8, 10, 1]
        assert said in seen and "3 below zero" in seen
        assert f"({place[0]:.0f}, {place[1]:.0f}, {place[2]:.0f}) mm" in seen


def test_a_picture_is_closed_when_encoded():
    before = plt.get_fignums()
    one = page.picture("a title", plots.spectrum(np.ones(3), 0.5, 2))
    assert one.title == "a title" and "noise alone reaches 0.5" in one.alt
    assert base64.b64decode(one.data.removeprefix(page.SVG)).startswith(b"<?xml")
    assert plt.get_fignums() == before


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def test_the_viewer_holds_each_map_on_one_grid(tmp_path, rng):
    """Values come back within a byte's step, and planes meet at the peak."""
    maps = np.zeros((20, 24, 20, 2), np.float32)
    maps[4:16, 4:20, 4:16] = rng.standard_normal((12, 16, 12, 2))
    maps[6, 8, 10, 1] = -9.0
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = 500  # far from the template: points are the voxels' own
    path = tmp_path / "maps.nii.gz"
    nib.save(nib.Nifti1Image(maps, affine), path)
    other = Figure("no map", partial(plots.spectrum, np.ones(3), 0.5, 2))
    found = viewer.viewer(
        [other, *(plots.map_figure(path, i, f"map {i}") for i in (0, 1))]
    )
    assert [one["name"] for one in found["maps"]] == ["map 0", "map 1"]
    second = found["maps"][1]
    half = [n // 2 for n in found["shape"]]
    values = unpacked(second["values"]).reshape(half)
    assert second["largest"] == 9.0 and found["step"] == 2.0
    size = np.abs(maps[4:16, 4:20, 4:16, 1])
    assert second["threshold"] == pytest.approx(np.percentile(size, 95))
    assert half == [12, 16, 12] and values[2, 4, 6] == 1
    seen = (values.astype(float) - 128) / 127 * 9
    np.testing.assert_allclose(seen, maps[4:16, 4:20, 4:16, 1], atol=9 / 254 + 1e-6)
    assert [int(x) // 2 for x in second["at"]] == [2, 4, 6]
    assert second["mm"] == [524, 532, 540]  # as the table and the pictures say
    assert viewer.viewer([other]) == {}
