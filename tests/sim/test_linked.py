"""The linked study has exactly the profiles it claims, and its files hold them."""

import csv
import hashlib
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest

from capeneuro import machine
from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import SimulatedViews
from capeneuro.studies import endings
from sim import __main__ as makers
from sim import bids, erp, linked

mne = pytest.importorskip("mne", reason="needs the extra eeg")
pytest.importorskip("pybv", reason="needs the extra eeg")

CORRELATIONS = (0.9, 0.7, 0.5, 0.3, 0.1)
BEFORE = round(-erp.TMIN * erp.RATE)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(33)


def made(**changed) -> SimulatedViews:
    return SimulatedViews(**{"kind": "linked", "seed": 5, "n_subjects": 40, **changed})


def write(root: Path, **changed) -> dict[str, Path]:
    folders = {name: root / name for name in ("east", "west")}
    linked.write_study(folders, made(**changed), root / "mask.nii.gz")
    return folders


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("linked")
    write(root)
    return root


def table(path: Path) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="") as lines:
        header, *rows = csv.reader(lines, delimiter="\t")
    return header, rows


def numbers(path: Path, n_names: int) -> np.ndarray:
    return np.array([row[n_names:] for row in table(path)[1]], dtype=float)


def alike(found: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Correlation of each column with its like."""
    return np.array(
        [np.corrcoef(f, t)[0, 1] for f, t in zip(found.T, true.T, strict=True)]
    )


def check_profiles(A_x: np.ndarray, A_y: np.ndarray, r, atol: float = 1e-12) -> None:
    N, one = len(A_x), np.eye(len(r))
    np.testing.assert_allclose(np.mean([A_x, A_y], axis=1), 0, atol=atol)
    np.testing.assert_allclose(A_x.T @ A_x / N, one, atol=atol)
    np.testing.assert_allclose(A_y.T @ A_y / N, one, atol=atol)
    np.testing.assert_allclose(A_x.T @ A_y / N, np.diag(r), atol=atol)


# Profiles and components


@pytest.mark.parametrize("n", [11, 200])
def test_profiles_have_exactly_the_moments_asked_for(n, rng):
    check_profiles(*linked.profiles(n, CORRELATIONS, rng), CORRELATIONS)


def test_a_wrong_correlation_or_the_papers_recipe_would_be_seen(rng):
    A_x, A_y = linked.profiles(200, (0.9, 0.7, 0.5, 0.3, 0.101), rng)
    with pytest.raises(AssertionError):
        check_profiles(A_x, A_y, CORRELATIONS)
    # As printed: two orthonormal sets drawn apart, so 200 people miss by some 0.07.
    Q, P = (np.linalg.qr(rng.standard_normal((200, 5)))[0] for _ in range(2))
    r = np.array(CORRELATIONS)
    with pytest.raises(AssertionError):
        check_profiles(200**0.5 * Q, 200**0.5 * (r * Q + (1 - r**2) ** 0.5 * P), r)


def test_profiles_need_more_people_than_there_are_of_them(rng):
    with pytest.raises(ValueError, match="above twice the number of components 5"):
        linked.profiles(10, CORRELATIONS, rng)


def test_correlation_one_gives_one_profile(rng):
    A_x, A_y = linked.profiles(30, (1.0, 0.0), rng)
    np.testing.assert_array_equal(A_x[:, 0], A_y[:, 0])


def test_potentials_are_standard_nearly_uncorrelated_and_end_in_time():
    waveforms, topographies = erp.components(5)
    assert waveforms.shape == (5, 212) and topographies.shape == (30, 5)
    C = erp.features(waveforms, topographies)
    assert C.shape == (6360, 5)
    np.testing.assert_array_equal(
        C[7 * 212 : 8 * 212, 2], topographies[7, 2] * waveforms[2]
    )
    np.testing.assert_allclose(topographies.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(C.var(axis=0), 1, rtol=1e-9)
    assert np.abs(np.corrcoef(C.T) - np.eye(5)).max() < 0.1
    # Nothing before the event (baselines), nothing at the end (trials are added up).
    assert np.abs(waveforms[:, [*range(BEFORE + 1), -1]]).max() < 0.01
    with pytest.raises(ValueError, match="at most the 5 sources, got 6"):
        erp.components(6)


def test_potentials_peak_where_they_are_named_for():
    waveforms, topographies = erp.components(5)
    peak = erp.times()[np.abs(waveforms).argmax(axis=1)]
    np.testing.assert_allclose(peak, [0.41, 0.165, 0.305, 0.65, 0.26], atol=0.01)
    sites = [erp.CHANNELS[i] for i in np.abs(topographies).argmax(axis=0)]
    assert sites[0] == "Pz" and sites[1] in ("O1", "O2") and sites[2] == "FCz"
    group = erp.group_mean()
    assert group.shape == (30, 212)
    assert 6 < group[erp.CHANNELS.index("Pz")].max() < 12  # [uV]


def test_maps_overlap_little_and_lie_as_in_the_head():
    maps, mask = linked.component_maps(linked.INDICES)
    assert mask.shape == (50, 50, 1) and maps.shape == (mask.sum(), 5)
    overlap = maps.T @ maps / len(maps)
    np.testing.assert_allclose(np.diag(overlap), 1)
    assert np.abs(overlap - np.eye(5)).max() < 0.1
    x, y, _ = np.argwhere(mask)[maps.argmax(axis=0)].T
    assert x[0] > 30  # right frontoparietal
    assert y[1] < 12  # medial visual
    assert x[4] < 10  # left auditory


def test_arrays_without_noise_are_the_thesis_model():
    made = linked.arrays(60, 3)
    assert made.X.dtype == made.Y.dtype == np.float32
    np.testing.assert_allclose(made.X, made.maps @ made.A_x.T, atol=1e-4)
    np.testing.assert_allclose(made.Y, made.erps @ made.A_y.T, atol=1e-4)
    check_profiles(made.A_x, made.A_y, CORRELATIONS)


def test_arrays_have_the_noise_asked_for():
    exact, noisy = (
        linked.arrays(60, 3),
        linked.arrays(60, 3, map_noise=0.5, eeg_noise=2),
    )
    np.testing.assert_array_equal(exact.A_y, noisy.A_y)
    assert (noisy.X - exact.X).std() == pytest.approx(0.5 * exact.X.std(), rel=0.05)
    # Slow ongoing EEG: few independent points, and the mean over time is part of it.
    assert (noisy.Y - exact.Y).std() == pytest.approx(2, rel=0.05)
    assert linked.arrays(60, 4).A_x[0, 0] != exact.A_x[0, 0]


# Recordings


def test_ongoing_eeg_has_its_deviation_an_alpha_peak_and_like_neighbors(rng):
    noise = erp.ongoing(erp.spatial_mixing(), 20000, 5.0, rng)
    assert noise.shape == (30, 20000)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=1e-9)
    assert np.sqrt((noise**2).mean()) == pytest.approx(5, rel=0.03)
    power = (np.abs(np.fft.rfft(noise, axis=1)) ** 2).mean(axis=0)
    f = np.fft.rfftfreq(20000, 1 / erp.RATE)

    def band(low: float, high: float) -> float:
        return power[(f >= low) & (f < high)].mean()

    assert band(9.5, 10.5) > 3 * band(6, 7) and band(9.5, 10.5) > 3 * band(13, 14)
    assert band(2, 4) / band(20, 40) == pytest.approx(10, rel=0.25)
    C = np.corrcoef(noise)
    at = erp.CHANNELS.index
    assert C[at("Pz"), at("CPz")] > 0.7 > 0.2 > C[at("Pz"), at("Fp1")]


def test_recordings_hold_every_epoch_whole(rng):
    potential = erp.group_mean()
    mixing = erp.spatial_mixing()
    data, onsets = erp.recording(potential, 8, mixing, rng, eeg_noise=0)
    assert len(onsets) == 8 and np.diff(onsets).min() >= erp.N_POINTS
    for onset in onsets:
        start = onset - BEFORE
        assert start >= 0.5 * erp.RATE and start + erp.N_POINTS <= data.shape[1] - 100
        np.testing.assert_array_equal(data[:, start : start + erp.N_POINTS], potential)


def test_jitter_moves_trials_and_widens_their_average(rng):
    potential, mixing = erp.group_mean(), erp.spatial_mixing()

    def trial(jitter: float) -> np.ndarray:
        options = {"eeg_noise": 0, "jitter": jitter}
        data, (onset,) = erp.recording(potential, 1, mixing, rng, **options)
        return data[erp.CHANNELS.index("Pz"), onset - BEFORE : onset - BEFORE + 212]

    trials = np.array([trial(0.05) for _ in range(300)])
    latency = trials.argmax(axis=1) / erp.RATE
    assert latency.std() == pytest.approx(0.05, rel=0.15)
    assert trials.mean(axis=0).max() < 0.95 * trial(0).max()


# Files


def features(site: Path) -> tuple[np.ndarray, np.ndarray]:
    """Contrast maps and averaged potentials of a site's people, as others read them."""
    maps, potentials = [], []
    for person in sorted(site.glob("sub-*")):
        (image,) = person.glob("func/*_task-oddball_stat-effect_statmap.nii.gz")
        maps.append(nib.load(image).get_fdata()[..., 0])
        (header,) = person.glob("eeg/*_task-oddball_eeg.vhdr")
        raw = mne.io.read_raw_brainvision(header, preload=True, verbose="error")
        events, _ = mne.events_from_annotations(
            raw, {"Comment/target": 1}, verbose="error"
        )
        options = {"baseline": None, "preload": True, "verbose": "error"}
        epochs = mne.Epochs(raw, events, None, erp.TMIN, 0.855, **options)
        assert len(epochs) == 8 and raw.ch_names == list(erp.CHANNELS)
        potentials.append(epochs.average().data.ravel() * 1e6)
    return np.array(maps), np.array(potentials).T


def test_files_read_back_give_components_and_correlations(study):
    truth = study / "truth"
    mask = nib.load(study / "mask.nii.gz").get_fdata() > 0
    image = nib.load(truth / "desc-truth_components.nii.gz")
    assert mask.shape == (50, 50, 1) and image.shape == (50, 50, 1, 5)
    assert image.header.get_zooms()[:2] == (4, 4)
    true_maps, true_erps = (
        image.get_fdata()[mask],
        numbers(truth / "desc-truth_waveforms.tsv", 2),
    )
    header, rows = table(truth / "desc-truth_waveforms.tsv")
    assert header[:3] == ["channel", "time", "component1"] and len(rows) == 6360
    assert rows[212 + BEFORE][:2] == ["Fp2", "0.000"]
    np.testing.assert_allclose(true_erps, erp.features(*erp.components(5)), atol=1e-5)
    r = numbers(truth / "desc-truth_correlations.tsv", 1)[:, 0]
    A = numbers(truth / "desc-truth_profiles.tsv", 1)
    A_x, A_y = A[:, :5], A[:, 5:]
    check_profiles(A_x, A_y, r, atol=1e-7)
    np.testing.assert_array_equal(r, CORRELATIONS)

    read = [features(study / site) for site in ("east", "west")]
    X = np.concatenate([maps[..., None] for maps, _ in read])[:, mask[..., 0], 0].T
    Y = np.hstack([potentials for _, potentials in read])
    assert X.shape == (mask.sum(), 80) and Y.shape == (6360, 80)
    assert alike(X @ A_x, true_maps).min() > 0.95
    assert alike(Y @ A_y, true_erps).min() > 0.95
    # The other modality's profiles bring back only their share.
    crossed = true_erps.T @ Y @ A_x / (6360 * 80)
    np.testing.assert_allclose(np.diag(crossed), r, atol=0.1)
    # Someone else's people would not.
    assert np.abs(alike(Y @ A_y[::-1], true_erps)).max() < 0.9
    np.testing.assert_allclose(
        Y.mean(axis=1), erp.group_mean().ravel(), atol=5 * 5 / np.sqrt(8 * 80)
    )


def test_annotations_and_events_table_agree(study):
    person = study / "west" / "sub-041" / "eeg"
    header, rows = table(person / "sub-041_task-oddball_events.tsv")
    assert header == ["onset", "duration", "trial_type", "sample"]
    raw = mne.io.read_raw_brainvision(
        person / "sub-041_task-oddball_eeg.vhdr", verbose="error"
    )
    assert raw.info["sfreq"] == 200
    np.testing.assert_allclose(raw.annotations.onset, [float(row[0]) for row in rows])
    assert {row[2] for row in rows} == {"target"}
    assert set(raw.annotations.description) == {"Comment/target"}
    # Half a second on either side of every epoch.
    last = raw.annotations.onset[-1] + erp.TMIN + erp.N_POINTS / erp.RATE
    assert raw.n_times / erp.RATE == pytest.approx(last + 0.5)


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_bytes_are_a_function_of_the_seed(tmp_path):
    small = {"n_subjects": 6, "n_trials": 2}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / name, seed=seed, **small)
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert a == b and a.keys() == c.keys()
    data = [name for name in a if name.endswith((".eeg", "statmap.nii.gz"))]
    assert len(data) == 24 and not {a[name] for name in data} & {c[n] for n in data}


def test_writing_again_replaces_the_files(tmp_path):
    write(tmp_path, n_subjects=6, n_trials=2)
    before = digests(tmp_path)
    write(tmp_path, n_subjects=6, n_trials=2)
    assert digests(tmp_path) == before


def test_large_amplitudes_fit_into_the_recording(tmp_path):
    # 3 mV is a hundred times any EEG.
    data = np.full((30, 50), 3000.0)
    bids.write_recording(tmp_path, "1", "t", data, np.array([3]), "x")
    raw = mne.io.read_raw_brainvision(
        tmp_path / "sub-1/eeg/sub-1_task-t_eeg.vhdr", verbose="error"
    )
    np.testing.assert_allclose(raw.get_data(), 3e-3)


# The command


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"correlations": [0.5] * 6}, "data.correlations: must be 1 to 5"),
        ({"correlations": []}, "data.correlations: must be 1 to 5"),
        ({"n_subjects": 5}, "data.n_subjects: all sites together need more than 10"),
    ],
)
def test_impossible_studies_are_refused_before_anything_is_written(
    changed, line, tmp_path
):
    study = SimpleNamespace(space=SimpleNamespace(mask=tmp_path / "mask.nii.gz"))
    folders = {name: tmp_path / name for name in ("east", "west")}
    with pytest.raises(ConfigError, match=line):
        makers.link(study, made(**changed), folders)
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    study = SimpleNamespace(space=SimpleNamespace(mask=tmp_path / "mask.nii.gz"))
    monkeypatch.setattr(makers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs mne; pip install 'capeneuro\[eeg\]'"):
        makers.link(study, made(), {"east": tmp_path / "east"})


def test_the_command_makes_a_linked_study(tmp_path, monkeypatch):
    study = SimpleNamespace(
        data=made(n_subjects=6, n_trials=1, correlations=[0.9]),
        space=SimpleNamespace(mask=str(tmp_path / "made" / "mask.nii.gz")),
    )
    study.members = {"": study}
    sites = {"east": SimpleNamespace(folder=str(tmp_path / "made" / "east"))}
    monkeypatch.setattr(makers.load, "load_study", lambda path: study)
    monkeypatch.setattr(makers, "load_sites", lambda study: sites)
    monkeypatch.setattr(makers, "is_complete", lambda study, sites: True)
    assert makers.main(["study.yaml"]) == 0
    assert (tmp_path / "made" / "east" / "dataset_description.json").is_file()
    assert len(list((tmp_path / "made" / "truth").glob("desc-truth_*"))) == 5
    truth = nib.load(tmp_path / "made" / "truth" / "desc-truth_components.nii.gz")
    assert truth.shape == (50, 50, 1, 1)


def test_the_log_of_the_command_says_how_it_ended(tmp_path, monkeypatch, capsys):
    """A run looks there for errors, and takes a log without an end for a crash."""
    log = tmp_path / "logs" / "make_data.log"
    asked = [str(tmp_path / "study.yaml"), "--log", str(log)]
    assert makers.main(asked) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "file not found" in error
    assert log.read_text() == f"{error}ended with status 2\n"

    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(makers.load, "load_study", interrupted)
    assert makers.main(asked) == 130
    assert not endings.is_cut(log.read_text())
    assert capsys.readouterr().err == f"{machine.INTERRUPTED}\n"
