"""The simulated data have the laws, shapes and truth that their makers claim."""

import contextlib
import json
import os
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy.stats import kurtosis

from capeneuro.config import load
from capeneuro.config.components import Simulation
from capeneuro.config.errors import ConfigError
from sim import (
    bids,
    fmri,
    garch,
    grid,
    hemodynamics,
    painting,
    plane,
    scanner,
    sources,
)
from sim.__main__ import simulate

CONFIG = Path(__file__).resolve().parents[2] / "config/config.yaml"
DATA = Path(
    os.environ.get(
        "CAPENEURO_DATA", Path(__file__).resolve().parents[2] / "../shared/data"
    )
)
needs_data = pytest.mark.skipif(
    not (DATA / "abide_cc200").is_dir(),
    reason="no shared data; set CAPENEURO_DATA to their folder",
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(scope="module")
def brain() -> tuple[np.ndarray, np.ndarray]:
    return grid.head_mask_3d(12.0)


def _correlation(maps: np.ndarray) -> float:
    C = np.corrcoef(maps.T)
    return np.abs(C - np.diag(np.diag(C))).max()


# Time courses


def test_garch_variance_and_autocorrelation_are_the_stationary_ones(rng):
    # alpha 0.2 and beta 0.3 have a fourth moment, so 3 % is over five deviations.
    parameters = garch.GarchParameters(
        alpha=np.array([0.2, 0.1]), beta=np.array([0.3, 0.3]), ar=np.array([0.3, 0.0])
    )
    S = garch.garch(parameters, 1000, 250, rng)
    assert S.shape == (1000, 2, 250)
    assert S.dtype == np.float32
    np.testing.assert_allclose(S.var(axis=(0, 2)), 1, rtol=0.03)
    lag_one = (S[..., 1:] * S[..., :-1]).mean(axis=(0, 2))
    np.testing.assert_allclose(lag_one, parameters.ar, atol=0.02)


def test_garch_squares_remember_and_tails_are_heavy(rng):
    alpha, beta = 0.2, 0.3
    parameters = garch.GarchParameters(*(np.array([p]) for p in (alpha, beta, 0.0)))
    e = garch.garch(parameters, 4000, 250, rng)[:, 0].astype(float)
    # Bollerslev's fourth moment and first autocorrelation of the squares.
    excess = 6 * alpha**2 / (1 - 3 * alpha**2 - 2 * alpha * beta - beta**2)
    memory = alpha * (1 - alpha * beta - beta**2) / (1 - 2 * alpha * beta - beta**2)
    assert kurtosis(e, axis=None) == pytest.approx(excess, rel=0.1)
    squares = e**2 - 1
    lag_one = (squares[:, 1:] * squares[:, :-1]).mean() / squares.var()
    assert lag_one == pytest.approx(memory, rel=0.1)


def test_garch_parameters_are_stationary_and_within_their_ranges(rng):
    p = garch.garch_parameters(500, rng, alpha=(0.2, 0.9), beta=(0.3, 0.9))
    assert (p.alpha + p.beta < 1).all()
    assert p.alpha.min() >= 0.2
    assert p.beta.min() >= 0.3
    assert p.ar.max() <= 0.3
    with pytest.raises(ValueError, match="sum to less than 1"):
        garch.garch_parameters(5, rng, alpha=(0.6, 0.7), beta=(0.5, 0.6))


def test_block_design_is_balanced_and_starts_with_rest(rng):
    design = hemodynamics.block_design(3, 240, rng, length=10, interval=10)
    assert design.shape == (3, 240)
    np.testing.assert_array_equal(design.sum(axis=1), 40)
    assert design.sum(axis=0).max() == 1
    assert design[:, :10].sum() == 0
    assert design[:, 10:20].sum() == 10


def test_events_have_their_probabilities_and_exclude_each_other(rng):
    design = hemodynamics.event_design([0.3, 0.1], 20000, rng)
    np.testing.assert_allclose(design.mean(axis=1), [0.3, 0.1], atol=0.015)
    assert design.sum(axis=0).max() == 1
    with pytest.raises(ValueError, match="at most 1"):
        hemodynamics.event_design([0.7, 0.5], 10, rng)


def test_task_time_courses_follow_the_design_and_are_scaled(rng):
    design = hemodynamics.block_design(2, 300, rng, length=15, interval=15)
    amplitudes = np.array([[1.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    S = hemodynamics.task_time_courses(design, amplitudes, rng, unique_probability=0)
    assert S.shape == (3, 300)
    np.testing.assert_allclose(S.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(np.ptp(S, axis=1), [1, 1, 0], atol=1e-6)
    # Half a block after its start, the response to the block is high.
    lagged = np.roll(design, 4, axis=1)
    assert np.corrcoef(S[0], lagged[0])[0, 1] > 0.5
    assert np.corrcoef(S[1], lagged[1])[0, 1] < -0.5


def test_hemodynamic_response_peaks_then_undershoots():
    p = hemodynamics.Hemodynamics(6, 16, 1, 1, 6, 0, 32)
    kernel = hemodynamics.double_gamma(p, 0.1)
    assert kernel.sum() == pytest.approx(1)
    assert np.argmax(kernel) * 0.1 == pytest.approx(5, abs=0.2)
    assert np.argmin(kernel) * 0.1 == pytest.approx(15.5, abs=1.5)


# Maps


@pytest.mark.parametrize("indices", [sources.DEFAULT_20, sources.DEFAULT_10])
def test_default_maps_are_separable(indices, brain):
    plane, inside = sources.maps_2d(indices, 30)
    maps = sources.maps_3d(sources.named(indices), grid.voxel_coordinates(*brain))
    assert plane.shape == (900, len(indices))
    assert not plane[~inside.ravel()].any()
    for M in (plane, maps):
        np.testing.assert_allclose(M.max(axis=0), 1, rtol=1e-6)
        assert _correlation(M) < 0.6
        assert np.linalg.cond(M) < 5


def test_maps_lie_on_their_side():
    left, right = (
        next(i for i, s in enumerate(sources.SOURCES) if s.name == f"{side} auditory")
        for side in ("left", "right")
    )
    maps, _ = sources.maps_2d([left, right], 30)
    column_weight = maps.reshape(30, 30, 2).sum(axis=0)
    assert column_weight[:15, 0].sum() > 10 * column_weight[15:, 0].sum()
    assert column_weight[15:, 1].sum() > 10 * column_weight[:15, 1].sum()
    assert len(sources.SOURCES) == 30


@pytest.mark.parametrize("number", [4, 8, 9])  # of one blob, of four, on one side
def test_other_people_differ_in_one_network_alone(brain, number):
    coordinates, n = grid.voxel_coordinates(*brain), number - 1
    networks = sources.named(sources.DEFAULT_10)
    usual = sources.maps_3d(networks, coordinates)
    moved, missing, split = (
        sources.maps_3d(sources.altered(networks, number, how), coordinates)
        for how in ("moved", "missing", "split")
    )
    others = np.delete(usual, n, axis=1)
    np.testing.assert_array_equal(missing, others)
    np.testing.assert_array_equal(np.delete(moved, n, axis=1), others)
    np.testing.assert_array_equal(np.delete(split, [n, n + 1], axis=1), others)
    own = usual[:, n]
    assert np.corrcoef(own, moved[:, n])[0, 1] < 0.6
    middle = [own @ coordinates / own.sum() for own in (own, moved[:, n])]
    assert abs(middle[0][0] - middle[1][0]) < 3 and abs(middle[0][2] - middle[1][2]) < 3
    # Both parts are of the network, and of different places.
    parts = split[:, n : n + 2]
    assert np.corrcoef(parts.T)[0, 1] < 0.3
    assert np.corrcoef(own, parts.sum(axis=1))[0, 1] > 0.9
    assert (np.corrcoef(own, parts.T)[0, 1:] > 0.4).all()


def test_sites_shift_maps_for_all_their_people_alike(tmp_path, brain):
    same = {"translation_deviation": 0.0, "rotation_deviation": 0.0}
    same |= {"spread_deviation": 0.0, "tissue_contrast": False}
    usual = _site(tmp_path / "usual", brain, **same)
    shifted = _site(tmp_path / "shifted", brain, site_deviation=4.0, **same)
    r = [np.corrcoef(a, b)[0, 1] for a, b in zip(usual.T, shifted.T, strict=True)]
    assert 0.5 < min(r) < 0.95 and max(r) < 1 - 1e-4
    # Both people have the mean's peak, where the site's map is 1.
    np.testing.assert_allclose(shifted.max(axis=0), 1, rtol=1e-6)


def test_subject_differences_move_turn_and_widen_a_map(brain):
    coordinates = grid.voxel_coordinates(*brain)
    still = sources.maps_3d(sources.named([10]), coordinates)
    step = brain[1][0, 0]
    moved = sources.maps_3d(sources.named([10]), coordinates - [step, 0, 0])
    shifted = sources.maps_3d(
        sources.named([10]), coordinates, translation=[[step, 0, 0]]
    )
    np.testing.assert_allclose(shifted, moved, rtol=1e-5, atol=1e-7)
    wide = sources.maps_3d(sources.named([10]), coordinates, spread=[2.0])
    np.testing.assert_allclose(wide, np.sqrt(still), rtol=1e-5, atol=1e-6)
    # A half turn maps every ellipse onto itself, a quarter turn does not.
    half, quarter = (
        sources.maps_3d(sources.named([12]), coordinates, rotation=[a])
        for a in (180, 90)
    )
    unturned = sources.maps_3d(sources.named([12]), coordinates)
    np.testing.assert_allclose(half, unturned, atol=1e-6)
    assert np.abs(quarter - unturned).max() > 0.1


def test_tissue_weights_stay_between_the_levels(brain):
    indices = range(1, 30)
    maps = sources.maps_3d(sources.named(indices), grid.voxel_coordinates(*brain))
    weights = sources.tissue_weights(maps)
    assert weights.min() >= 0.3
    assert weights.max() <= 1.5
    gray = maps * (np.arange(29) == 6)  # the default mode alone
    np.testing.assert_array_equal(sources.tissue_weights(gray), 1)


# Scanner


def test_noiseless_signal_in_percent_is_mixing_times_time_courses(rng):
    maps, _ = sources.maps_2d(sources.DEFAULT_10, 20)
    S = rng.standard_normal((10, 40))
    tissue = rng.uniform(0.5, 1.5, len(maps))
    change = rng.uniform(0.5, 2, 10)
    Y = scanner.noiseless_signal(maps, S, percent_signal_change=change, tissue=tissue)
    rest = 800 * tissue[:, np.newaxis]
    np.testing.assert_allclose(100 * (Y / rest - 1), (maps * change) @ S, atol=1e-4)


def test_noise_has_the_asked_contrast(rng):
    S = rng.standard_normal((10, 250))
    maps, inside = sources.maps_2d(sources.DEFAULT_10, 30)
    clean = scanner.noiseless_signal(maps[inside.ravel()], S)
    noisy = scanner.add_rician_noise(clean, scanner.noise_deviation(clean, 2.0), rng)
    deviations = np.sort(clean.std(axis=1))
    tail = int(0.15 * len(deviations))
    contrast = deviations[tail:-tail].mean()
    assert contrast / (noisy - clean).std() == pytest.approx(2, rel=0.05)


def test_rician_noise_has_a_floor(rng):
    air = scanner.add_rician_noise(np.zeros((200, 500), np.float32), 3.0, rng)
    assert air.min() >= 0
    assert air.mean() == pytest.approx(3 * np.sqrt(np.pi / 2), rel=0.01)


def test_motion_stays_within_both_limits_and_starts_at_rest(rng):
    motion = scanner.head_motion(5000, rng, max_translation=0.2, max_rotation=2.0)
    assert motion.shape == (6, 5000)
    assert not motion[:, 0].any()
    for rows, limit in ((motion[:3], 0.2), (motion[3:], 2.0)):
        assert rows.max() == pytest.approx(limit)
        assert rows.min() == pytest.approx(-limit)


def test_head_moves_by_whole_voxels_exactly(rng):
    mask = np.ones((5, 6, 7), dtype=bool)
    affine = np.diag([-8.0, 8.0, 8.0, 1.0])
    signal = rng.random((mask.sum(), 2), dtype=np.float32)
    motion = np.zeros((6, 2))
    motion[0, 1], motion[2, 1] = -8.0, 16.0  # one voxel along i, two along k
    moved = grid.fill_volumes(scanner.move_head(signal, motion, mask, affine), mask)
    still = grid.fill_volumes(signal, mask)
    np.testing.assert_allclose(moved[..., 0], still[..., 0], atol=1e-6)
    np.testing.assert_allclose(moved[1:, :, 2:, 1], still[:-1, :, :-2, 1], atol=1e-6)
    assert not moved[0, ..., 1].any()


def test_head_turns_without_losing_its_edges(brain):
    mask, affine = brain
    motion = np.zeros((6, 2))
    motion[5, 1] = 0.01
    signal = np.full((mask.sum(), 2), 800, dtype=np.float32)
    moved = scanner.move_head(signal, motion, mask, affine)
    np.testing.assert_allclose(moved, 800, rtol=0.01)


# Studies


def test_matrix_study_has_the_papers_shapes_and_rank():
    maps, subjects = fmri.matrix_study(3, np.random.default_rng(0))
    X = next(subjects)
    assert maps.shape == (900, 20)
    assert X.shape == (900, 250)
    assert X.dtype == np.float32
    assert np.linalg.matrix_rank(X, tol=1e-3) == 20
    assert len(list(subjects)) == 2


def test_distributed_networks_share_regions_of_others_on_plane_and_in_brain(rng):
    networks = sources.named(sources.DEFAULT_10)
    wide = sources.distributed(networks, 3, rng)
    maps, _ = sources.maps_2d(wide, 30)
    compact, _ = sources.maps_2d(networks, 30)
    for own, before in zip(wide, networks, strict=True):
        assert len(own.plane) == len(own.brain) == len(before.brain) + 3
        theirs = {blob.center for s in sources.SOURCES[1:] for blob in s.brain}
        assert {blob.center for blob in own.brain} <= theirs
        assert all(0.4 <= abs(blob.weight) <= 1 for blob in own.brain[-3:])
    assert maps.min() < -0.3
    np.testing.assert_allclose(np.abs(maps).max(axis=0), 1, rtol=1e-6)
    # Together they cover far more, and their maps are further from simple.
    cover = [(np.abs(m) > 0.3).sum(axis=1).mean() for m in (compact, maps)]
    assert cover[1] > 1.5 * cover[0]


def test_people_and_sites_of_a_mixture_differ_as_asked():
    assert fmri.site_sizes(20, 4) == [5, 5, 5, 5]
    assert fmri.site_sizes(20, 4, 4.0) == [2, 4, 6, 8]
    networks = sources.named(sources.DEFAULT_10)
    about = {"n_volumes": 200, "cnr": 1e6}

    def made(**asked):
        rng = np.random.default_rng(2)
        maps, sites = plane.mixed_study([2, 3], networks, rng, **about, **asked)
        return maps, [np.stack(own) for own in sites]

    maps, sites = made()
    assert [len(own) for own in sites] == [2, 3]
    # Nothing differs: everybody's data lie in the span of the same ten maps.
    assert np.linalg.matrix_rank(np.hstack([*sites[0], *sites[1]]), tol=0.1) == 10
    S = np.linalg.pinv(maps) @ sites[1][0]
    assert np.abs(S.std(axis=1) - 1).max() < 0.5  # maps are of sources of variance 1
    _, moved = made(translation=1.0)
    assert np.linalg.matrix_rank(np.hstack([*moved[0], *moved[1]]), tol=0.1) == 50
    _, absent = made(presence=0.5)
    ranks = [np.linalg.matrix_rank(X, tol=0.1) for own in absent for X in own]
    assert max(ranks) < 10
    _, scanned = made(scanner=1.0)
    ratio = [b.std() / a.std() for a, b in zip(sites, scanned, strict=True)]
    assert not 0.9 < ratio[0] / ratio[1] < 1.1
    _, task = made(courses="events")
    r = np.corrcoef(np.linalg.pinv(maps) @ np.hstack(list(task[1])))
    assert np.abs(r[np.triu_indices(10, 1)]).max() > 0.4  # responses to one task


def test_matrix_study_noise_spares_the_corners():
    _, subjects = fmri.matrix_study(1, np.random.default_rng(0), cnr=1.0)
    X = next(subjects).reshape(30, 30, 250)
    assert not X[0, 0].any()
    assert X[15, 15].std() > 0


def test_subject_labels_are_unique_across_sites():
    labels = fmri.subject_labels([3, 2])
    assert labels == [["001", "002", "003"], ["004", "005"]]


def _site(folder: Path, brain: tuple[np.ndarray, np.ndarray], **asked) -> np.ndarray:
    """Write two subjects with everything that can vary switched on."""
    rng = np.random.default_rng(3)
    parameters = garch.garch_parameters(20, rng)
    S = garch.garch(parameters, 2, 40, rng)
    settings = {
        "translation_deviation": 2.0,
        "rotation_deviation": 5.0,
        "spread_deviation": 0.03,
        "max_translation": 1.0,
        "max_rotation": 1.0,
        "tissue_contrast": True,
        **asked,
    }
    return fmri.write_site(
        folder,
        ["001", "002"],
        S,
        rng,
        networks=sources.named(sources.DEFAULT_20),
        mask=brain[0],
        affine=brain[1],
        **settings,
    )


def test_a_seed_gives_the_same_bytes(tmp_path, brain):
    for name in ("first", "second"):
        _site(tmp_path / name, brain)
    written = sorted(p for p in (tmp_path / "first").rglob("*") if p.is_file())
    assert len(written) == 2 + 2 * 2
    for path in written:
        twin = tmp_path / "second" / path.relative_to(tmp_path / "first")
        assert path.read_bytes() == twin.read_bytes()
        assert not path.name.endswith(".part")


def test_site_is_a_bids_like_folder_in_mni_space(tmp_path, brain):
    _site(tmp_path, brain)
    stem = tmp_path / "sub-002/func/sub-002_task-rest_bold"
    image = nib.load(f"{stem}.nii.gz")
    assert image.shape == (*brain[0].shape, 40)
    assert image.header.get_zooms()[3] == 2.0
    assert image.header.get_xyzt_units() == ("mm", "sec")
    assert image.get_data_dtype() == np.int16
    np.testing.assert_allclose(image.affine, brain[1])
    assert not image.get_fdata()[~brain[0]].any()
    assert json.loads(Path(f"{stem}.json").read_text())["RepetitionTime"] == 2.0
    rows = (tmp_path / "participants.tsv").read_text().split()
    assert rows == ["participant_id", "sub-001", "sub-002"]


def test_quantization_is_far_below_the_noise(tmp_path, rng, brain):
    mask, affine = brain
    maps = sources.maps_3d(
        sources.named(sources.DEFAULT_20), grid.voxel_coordinates(mask, affine)
    )
    clean = scanner.noiseless_signal(maps, rng.standard_normal((20, 30)))
    noisy = scanner.add_rician_noise(clean, scanner.noise_deviation(clean, 1.0), rng)
    bids.write_run(tmp_path, "x", noisy, mask, affine, 2.0)
    image = nib.load(tmp_path / "sub-x/func/sub-x_task-rest_bold.nii.gz")
    error = image.get_fdata()[mask] - noisy
    assert error.std() < 0.02 * (noisy - clean).std()


def test_truth_is_the_mixing_in_percent(tmp_path, brain):
    maps = _site(tmp_path, brain, translation_deviation=0.0)
    S = np.ones((20, 40))
    fmri.write_truth(
        tmp_path,
        maps,
        {"001": S},
        networks=sources.named(sources.DEFAULT_20),
        mask=brain[0],
        affine=brain[1],
        percent_signal_change=1.5,
        parameters={"seed": 3},
    )
    components = nib.load(tmp_path / "truth/desc-truth_components.nii.gz")
    mask = nib.load(tmp_path / "mask.nii.gz")
    assert mask.get_data_dtype() == np.uint8
    written = components.get_fdata()[np.asarray(mask.dataobj) > 0]
    np.testing.assert_allclose(written, 1.5 * maps, rtol=1e-6, atol=1e-12)
    sidecar = json.loads((tmp_path / "truth/desc-truth_components.json").read_text())
    assert sidecar["Parameters"] == {"seed": 3}
    assert sidecar["Sources"][6 - 1] == "default mode"
    table = (tmp_path / "truth/sub-001_timecourses.tsv").read_text().splitlines()
    assert table[0].split("\t") == sidecar["Sources"]
    assert len(table) == 41


def made(**changes) -> tuple[np.ndarray, list[str]]:
    """Make a small demo study of one site here; its true maps and their names."""
    with contextlib.chdir(CONFIG.parents[1]):
        study = load.load_study(CONFIG)
    about = {"n_subjects": 2, "n_volumes": 12, "voxel_size": 16.0, **changes}
    data = Simulation.model_validate({**study.data.model_dump(), **about})
    simulate(study, data, {"demo-1": Path("data/demo/demo-1")})
    truth = Path("data/demo/truth/desc-truth_components.nii.gz")
    sidecar = json.loads(truth.with_name("desc-truth_components.json").read_text())
    return nib.load(truth).get_fdata(), sidecar["Sources"]


def test_a_study_of_other_people_has_their_truth(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual, names = made()
    for how, n in (("moved", 10), ("missing", 9), ("split", 11)):
        other, others = made(altered={"network": 2, "how": how})
        assert other.shape[3] == len(others) == n
        np.testing.assert_array_equal(other[..., 0], usual[..., 0])
        np.testing.assert_array_equal(other[..., 2 - 10 :], usual[..., 2:])
        assert set(names) - set(others) == {"default mode"}
    courses = Path("data/demo/truth/sub-001_timecourses.tsv").read_text()
    assert "default mode, part 2" in courses


def test_a_study_file_makes_networks_that_overlap_and_some_people_lack(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    usual, names = made()
    wide, same = made(patches=3, presence=0.5, tissue=True, scanner=0.5)
    assert same == names
    assert usual.min() >= 0 > wide.min()
    table = "data/demo/truth/sub-001_timecourses.tsv"
    courses = np.loadtxt(table, skiprows=1)
    assert 0 < (~courses.any(axis=0)).sum() < 10
    with contextlib.chdir(CONFIG.parents[1]):
        study = load.load_study(CONFIG)
    few = {**study.data.model_dump(), "n_subjects": 1, "unequal": 9}
    few, folders = Simulation.model_validate(few), {n: Path("data") / n for n in "ab"}
    with pytest.raises(ConfigError, match="unequal: must leave every site somebody"):
        simulate(study, few, folders)


def test_people_of_another_study_do_not_stay_unnoticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made(n_subjects=3)
    with pytest.raises(ConfigError, match="not of this study, such as sub-003; remove"):
        made()


# Painting


def test_a_vanished_label_takes_the_nearest_voxel_that_can_be_spared():
    labels = np.ones((9, 9, 9), dtype=int)
    labels[4, 4, 5] = 2
    resampled, affine = painting.resample_atlas(labels, np.eye(4), 4.0)
    assert np.unique(resampled).tolist() == [1, 2]
    position = grid.voxel_coordinates(resampled == 2, affine)
    np.testing.assert_array_equal(position, [[4, 4, 4]])


@needs_data
@pytest.mark.parametrize("voxel_size", [8.0, 10.0])
def test_resampling_keeps_all_parcels(voxel_size):
    atlas = nib.load(DATA / "atlases/CC200_4mm.nii.gz")
    labels, affine = painting.resample_atlas(
        np.asarray(atlas.dataobj).astype(int), atlas.affine, voxel_size
    )
    assert np.unique(labels).tolist() == list(range(201))
    np.testing.assert_array_equal(np.diag(affine), [voxel_size] * 3 + [1])


@needs_data
def test_painted_voxels_carry_the_series_of_their_parcel(tmp_path):
    folder = DATA / "abide_cc200"
    with np.load(folder / "SDSU.npz") as archive:
        key = archive.files[0]
        series = archive[key].astype(float)
        np.savez(tmp_path / "SDSU.npz", **{key: archive[key]})
    atlas = nib.load(DATA / "atlases/CC200_4mm.nii.gz")
    labels, affine = painting.resample_atlas(
        np.asarray(atlas.dataobj).astype(int), atlas.affine, 8.0
    )
    painting.paint_site(
        tmp_path / "SDSU.npz", folder / "participants.csv", labels, affine, tmp_path
    )
    label = painting.subject_label(key)
    run = tmp_path / f"sub-{label}/func/sub-{label}_task-rest_bold.nii.gz"
    voxels = nib.load(run).get_fdata()[labels > 0]
    expected = series.T[labels[labels > 0] - 1]
    assert np.abs(voxels - expected).max() <= np.abs(expected).max() / 32000
    assert json.loads(run.with_name(run.name.replace("nii.gz", "json")).read_text())[
        "RepetitionTime"
    ] == pytest.approx(2.0)
