"""Series on the surface: means of parcels, and what is no such series."""

import gzip
import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import surface
from images import site
from nibabel.cifti2 import BrainModelAxis, LabelAxis, ParcelsAxis, ScalarAxis

from capeneuro.config.errors import ConfigError
from capeneuro.config.names import stem
from capeneuro.config.sections import Cleaning, Space
from capeneuro.data import beside, cifti, derivatives, nifti

T, NAMES = 30, surface.NAMES
ONE = ("CIFTI_STRUCTURE_CORTEX_LEFT", 0)


@pytest.fixture
def data(tmp_path) -> dict[str, Path]:
    """One run, dense and as parcels, with the parcellation of both."""
    V = surface.values(np.random.default_rng(0), T)
    folder, name = tmp_path / "xcp_d/sub-01/func", "sub-01_task-rest_space-fsLR"
    return {
        "V": V,
        "dense": surface.write(
            folder / f"{name}_den-91k_desc-denoised_bold.dtseries.nii",
            *(V, surface.series(T), surface.dense()),
        ),
        "parcels": surface.write(
            folder / f"{name}_seg-Toy_den-91k_stat-mean_timeseries.ptseries.nii",
            *(surface.means(V), surface.series(T), surface.parcels()),
        ),
        "atlas": surface.parcellation(tmp_path / "toy.dlabel.nii"),
    }


def features(run: Path, atlas: Path, own=None, **cleaning) -> np.ndarray:
    space = Space(mask=str(atlas), basis="parcels")
    asked = Cleaning(**{"standardize": "none", "detrend": False, **cleaning})
    mask = nifti.read_mask(atlas)
    basis = nifti.build_basis(space, mask)
    reader = nifti.RunReader(own or site(run.parent), space, asked, mask)
    reader.check(run)
    return reader.features(run, basis)


@pytest.mark.parametrize("kind", ["dense", "parcels"])
@pytest.mark.parametrize("public", ["atlas", "parcels", "written", "list"])
def test_both_kinds_of_series_become_means_of_the_public_parcels(
    data, tmp_path, kind, public
):
    path = data.get(public)
    if public == "written":  # as `validate` keeps it
        mask = nifti.read_mask(data["atlas"])
        nifti.write_mask(tmp_path / "mask.nii.gz", mask)
        path = tmp_path / "mask.pscalar.nii"
    if public == "list":
        path = tmp_path / "parcels.tsv"
        path.write_text("index\tname\n" + "".join(f"1\t{n}\n" for n in NAMES))
    assert nifti.basis_labels(
        Space(mask=str(path), basis="parcels"), nifti.read_mask(path), None
    ) == (NAMES)
    if (kind, public) == ("dense", "list"):
        with pytest.raises(ConfigError, match="needs a parcellation"):
            features(data[kind], path)
        return
    X = features(data[kind], path)
    assert X.shape == (9, T) and X.dtype == np.float32
    np.testing.assert_allclose(X, surface.means(data["V"]).T, rtol=1e-6)


def test_parcels_are_found_by_name_and_a_list_may_name_some(data, tmp_path):
    own, order = surface.parcels(), [4, 8, 0, 1, 2, 3, 5, 6, 7]
    run = data["parcels"]
    shuffled = surface.means(data["V"])[:, order]
    surface.write(run, shuffled, surface.series(T), own[order])
    expected = surface.means(data["V"]).T
    np.testing.assert_allclose(features(run, data["atlas"]), expected, rtol=1e-6)
    few = tmp_path / "few.tsv"
    few.write_text("label\nTHALAMUS\nL_2\n")  # as XCP-D's tables of atlases
    np.testing.assert_allclose(features(run, few), expected[[8, 2]], rtol=1e-6)


def test_cleaning_is_that_of_images(data):
    X = features(data["dense"], data["atlas"], standardize="zscore", detrend=True)
    np.testing.assert_allclose(X.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(X.std(axis=1, ddof=1), 1, rtol=1e-5)
    own = site(data["dense"].parent)
    assert beside.timing(data["dense"], own)[0] == 0.8
    sidecar = data["dense"].with_name(stem(data["dense"]) + ".json")
    sidecar.write_text(json.dumps({"RepetitionTime": 2.0}))
    with pytest.raises(ConfigError, match=r"is 2 s, and the header of .* says 0.8 s"):
        features(data["dense"], data["atlas"])
    given = site(data["parcels"].parent, repetition_time=2.0)
    assert beside.timing(data["parcels"], given)[0] == 2.0


def test_values_are_scaled_by_the_slope(data):
    """Integers with a slope, as programs pack series."""
    image = nib.load(data["dense"])
    header = image.nifti_header.copy()
    header.set_data_dtype("int16")
    nib.save(nib.Cifti2Image(data["V"], image.header, header), data["dense"])
    assert nib.load(data["dense"]).dataobj.slope not in (0.0, 1.0)
    X = features(data["dense"], data["atlas"])
    np.testing.assert_allclose(X, surface.means(data["V"]).T, atol=0.01)


def other(name: str, data: dict[str, Path]) -> Path:
    """A file as it should not be, in place of the study's or the site's."""
    V, dense, parcels = data["V"].copy(), surface.dense(), surface.parcels()
    t, own = surface.series(T), surface.labels(dense)
    write, run, series = surface.write, data["dense"], data["parcels"]
    if name == "gzip":
        path = run.with_name(run.name + ".gz")
        content = bytearray(gzip.compress(run.read_bytes()))
        content[-6] ^= 255
        path.write_bytes(content)
        return path
    if name == "cut":
        run.write_bytes(run.read_bytes()[:-5000])
    if name == "cut header":
        run.write_bytes(run.read_bytes()[:700])
    if name == "text":
        run.write_text("not an image, but a text that is long enough" * 30)
    if name == "plain":
        nib.save(nib.Nifti2Image(np.zeros((3, 3, 3, T), "f4"), np.eye(4)), run)
    if name == "scalars":
        write(run, V[:1], ScalarAxis(["thickness"]), dense)
    if name == "transposed":
        write(run, V.T, dense, t)
    if name == "volume":
        path = run.with_name("sub-01_task-rest_bold.nii.gz")
        nib.save(nib.Nifti1Image(np.zeros((3, 3, 3, T), "f4"), np.eye(4)), path)
        return path
    if name == "NaN in time":
        V[4, own == 3] = np.nan
        write(run, V, t, dense)
    if name == "NaN of one vertex":
        V[:, 3] = np.nan
        write(run, V, t, dense)
    if name == "constant parcel":
        V[:, own == 9] = 7.0
        write(run, V, t, dense)
    if name == "NaN parcel":
        P = surface.means(V)
        P[:, 2] = np.nan
        return write(series, P, t, parcels)
    if name == "empty volume":
        V[5] = 0
        write(run, V, t, dense)
    if name == "other surface":
        more = surface.dense(60)
        values = np.random.default_rng(1).standard_normal((T, len(more)))
        write(run, values, t, more)
    if name == "no nucleus":
        write(run, V[:, dense.surface_mask], t, dense[dense.surface_mask])
    if name == "one hemisphere":
        left = dense.name == ONE[0]
        write(run, V[:, left], t, dense[left])
    if name == "moved volume":
        place = surface.AFFINE.copy()
        place[0, 3] = 2
        moved = BrainModelAxis(
            *(dense.name, dense.voxel, dense.vertex, place, surface.SHAPE),
            dense.nvertices,
        )
        write(run, V, t, moved)
    if name == "lacks vertices":
        kept = np.arange(len(dense)) > 2
        write(run, V[:, kept], t, dense[kept])
    if name == "other names":
        renamed = ParcelsAxis(
            *([f"Area{k}" for k in range(9)], parcels.voxels, parcels.vertices),
            *(parcels.affine, parcels.volume_shape, parcels.nvertices),
        )
        return write(series, surface.means(V), t, renamed)
    if name == "fewer parcels":
        return write(series, surface.means(V)[:, :7], t, parcels[:7])
    if name == "more parcels":
        own = np.where(own == 9, 0, own)
        pairs = [(n, dense[own == k + 1]) for k, n in enumerate(NAMES[:8])]
        data["atlas"] = write(
            data["atlas"].with_name("few.pscalar.nii"),
            np.ones((1, 8)),
            *(ScalarAxis(["x"]), ParcelsAxis.from_brain_models(pairs)),
        )
        return series
    if name == "swapped hemispheres":
        swapped = ParcelsAxis(
            [*NAMES[4:8], *NAMES[:4], "THALAMUS"],
            *(parcels.voxels, parcels.vertices, parcels.affine),
            *(parcels.volume_shape, parcels.nvertices),
        )
        return write(series, surface.means(V), t, swapped)
    if name == "names twice":
        double = ParcelsAxis(
            [*NAMES[:8], "L_0"],
            *(parcels.voxels, parcels.vertices, parcels.affine),
            *(parcels.volume_shape, parcels.nvertices),
        )
        return write(series, surface.means(V), t, double)
    return run


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gzip", "checksum is wrong"),
        ("cut", "cannot be read to the end; copy it again"),
        ("cut header", "not a readable CIFTI"),
        ("text", "not a readable CIFTI"),
        ("plain", "not a readable CIFTI-2 file, its header is wrong"),
        ("scalars", "must be a series of parcels or of grayordinates, its axes are Sc"),
        ("transposed", "its axes are BrainModel and Series"),
        ("volume", "must be a series on the surface"),
        ("NaN in time", "1 hold NaN or Inf in some volumes: L_2"),
        ("NaN of one vertex", "1 of 64 grayordinates in parcels have no signal"),
        ("constant parcel", "1 of 9 parcels have no signal"),
        ("NaN parcel", "1 of 9 parcels have no signal (constant, or NaN througho"),
        ("empty volume", "1 of 30 are empty, the first is 6"),
        ("other surface", "must have the 40 vertices of"),
        ("no nucleus", "voxels must be of the volume of"),
        ("one hemisphere", "CIFTI_STRUCTURE_CORTEX_RIGHT must have the 40 vertices"),
        ("moved volume", "voxels must be of the volume of"),
        ("lacks vertices", "3 of 64 grayordinates in parcels have no signal"),
        ("other names", "lacks 9 of 9: L_0"),
        ("fewer parcels", "lacks 2 of 9: R_3, THALAMUS"),
        ("more parcels", "and no others, has 1 more: THALAMUS"),
        ("swapped hemispheres", "8 of 9 lie elsewhere: L_0"),
        ("names twice", "must name each parcel once, got L_0 again"),
    ],
)
def test_what_is_no_series_of_the_study_is_one_line(data, name, said):
    run = other(name, data)
    with pytest.raises(ConfigError) as caught:
        features(run, data["atlas"])
    text = str(caught.value)
    assert said in text and text.startswith(f"{run}: ") and "\n" not in text


@pytest.mark.parametrize("name", ["NaN of one vertex", "lacks vertices"])
def test_grayordinates_without_signal_are_left_out_of_means(data, name):
    """As far as the study allows: zeros would draw a parcel's mean to 0."""
    run = other(name, data)
    X = features(run, data["atlas"], max_constant_voxels=0.2)
    left_out = [3] if name == "NaN of one vertex" else [0, 1, 2]
    own = surface.labels(surface.dense()) == 1
    own[left_out] = False
    np.testing.assert_allclose(X[0], data["V"][:, own].mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(X[8], surface.means(data["V"])[:, 8], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("series", "must hold parcels"),
        ("two maps", "must hold one parcellation, has 2: first, second"),
        ("fractions", "labels must be whole numbers"),
        ("empty", "every parcel must have a name, and one be there"),
        ("no column", "name"),
        ("twice", "must name each parcel once, got a again"),
        ("missing", "file not found"),
    ],
)
def test_what_is_no_parcellation_is_one_line(data, tmp_path, name, said):
    axis, path = surface.dense(), tmp_path / "other.dlabel.nii"
    own, table = surface.labels(axis)[None], {0: ("???", (0, 0, 0, 0))}
    if name == "series":
        path = data["dense"]
    if name == "two maps":
        label = LabelAxis(["first", "second"], [table, table])
        surface.write(path, np.concatenate([own, own]), label, axis)
    if name == "fractions":
        surface.write(path, own / 2, LabelAxis(["a"], [table]), axis)
    if name == "empty":
        surface.write(path, 0 * own, LabelAxis(["a"], [table]), axis)
    if name in ("no column", "twice"):
        path = tmp_path / "list.tsv"
        path.write_text("index\n1\n" if name == "no column" else "name\na\nb\na\n")
    with pytest.raises(ConfigError, match=r"^\S+: ") as caught:
        nifti.read_mask(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_medial_walls_are_no_parcels(tmp_path):
    axis = surface.dense(with_wall=True)
    own = np.where(surface.labels(axis) == 0, 10, surface.labels(axis))
    table = {k + 1: (n, (1, 0, 0, 1)) for k, n in enumerate(NAMES)}
    table[10] = ("L_Medial_Wall", (0, 0, 0, 0))
    path = tmp_path / "wall.dlabel.nii"
    surface.write(path, own[None], LabelAxis(["a"], [table]), axis)
    assert cifti.read_parcels(path).names == NAMES


def test_a_study_of_voxels_does_not_take_series_on_the_surface(data):
    with pytest.raises(
        ConfigError, match=r"is on the surface .* space\.basis: parcels"
    ):
        nifti.open_image(data["dense"], 4)


ABCD = "sub-01_ses-2_task-rest_{}desc-filtered_timeseries.{}series.nii"


@pytest.mark.parametrize(
    ("name", "series", "said"),
    [
        ("sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii", "dense", "fsLR"),
        (ABCD.format("bold_", "dt"), "dense", "fsLR"),
        (ABCD.format("bold_atlas-Gordon2014_", "pt"), "parcels", "fsLR"),
    ],
    ids=["fMRIPrep", "ABCD-BIDS", "ABCD-BIDS-parcels"],
)
def test_names_of_programs_are_found(data, tmp_path, name, series, said):
    """Beside them volumes lie, which are another reading of the same scan."""
    folder = tmp_path / "out"
    run = folder / "sub-01/func" / name
    run.parent.mkdir(parents=True)
    shutil.copy(data["dense" if series == "dense" else "parcels"], run)
    (run.parent / "sub-01_task-rest_space-MNI152NLin6Asym_bold.nii.gz").touch()
    images = {"derivatives": str(folder), "desc": [], "series": series}
    assert derivatives.find_runs(site(images)) == {"sub-01": [run]}
    assert derivatives.space(run) == said
    own = site({**images, "series": "volumes"})
    assert run not in derivatives.find_runs(own)["sub-01"]
    table = run.with_name("sub-01_task-rest_desc-confounds_timeseries.tsv")
    if "ses-" in name:
        table = run.with_name("sub-01_ses-2_task-rest_desc-confounds_timeseries.tsv")
    table.write_text("trans_x\n0\n")
    assert beside.confounds_file(run) == table


def test_one_run_in_two_parcellations_counts_once(data):
    second = Path(str(data["parcels"]).replace("seg-Toy", "seg-Other"))
    surface.write(
        second, surface.means(data["V"]) + 1, surface.series(T), surface.parcels()
    )
    folder = str(data["parcels"].parents[2])
    images = {"derivatives": folder, "desc": [], "series": "parcels"}
    with pytest.raises(ConfigError, match="say in `filters` which seg: Other or Toy"):
        derivatives.find_runs(site(images))
    chosen = site({**images, "filters": {"seg": "Toy"}})
    assert derivatives.find_runs(chosen) == {"sub-01": [data["parcels"]]}
    with pytest.raises(ConfigError, match="there are runs as dense and parcels: wri"):
        derivatives.find_runs(site({"derivatives": folder}))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mask": "a.nii.gz"}, "must be a parcellation"),
        ({"basis": "voxels"}, "with basis parcels, and only there"),
        ({"resample": True}, "resample: must be false"),
    ],
)
def test_parcels_and_voxels_are_not_mixed(asked, said):
    with pytest.raises(ValueError, match=said):
        Space(**{"mask": "a.dlabel.nii", "basis": "parcels", **asked})
    own = Space(mask="a.dlabel.nii", basis="parcels")
    assert "smoothing_fwhm" in own.misfit(
        Cleaning(standardize="none", smoothing_fwhm=4)
    )


def test_percent_of_a_mean_needs_one_above_0(data):
    """Denoised series have none."""
    surface.write(
        data["parcels"],
        surface.means(data["V"]) - 100,
        *(surface.series(T), surface.parcels()),
    )
    with pytest.raises(ConfigError, match="needs positive parcel means"):
        features(data["parcels"], data["atlas"], standardize="psc")
    X = features(data["dense"], data["atlas"], standardize="psc")
    np.testing.assert_allclose(X.mean(axis=1), 0, atol=1e-4)
