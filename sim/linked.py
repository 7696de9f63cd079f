"""The linked study of fMRI and EEG, in memory or as one folder per site.

After Correa, Li, Adali and Calhoun 2008, as in thesis 7: people differ in K components
of their contrast map and in K components of their event-related potential, and how
much they have of a pair is correlated over people. Maps are pixels of a disc in a
50 x 50 image, potentials those of :mod:`sim.erp`.

# Differs from correa2008linked: profiles have the sample moments asked for, not in
# expectation alone; there may be noise, and files have a mean that people share.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from capeneuro.config.components import Coupling
from capeneuro.config.fusion import SimulatedViews
from sim import erp
from sim.bids import (
    nifti,
    write_bytes,
    write_dataset,
    write_image,
    write_json,
    write_recording,
    write_tsv,
)
from sim.fmri import subject_labels
from sim.grid import fill_volumes
from sim.sources import SOURCES, maps_2d

TASK, EVENT = "oddball", "target"
N_SIDE, PIXEL = 50, 4.0  # [mm]
# Of sources.SOURCES, beside erp.SOURCES: far enough apart that no two share a tenth.
INDICES = (18, 10, 12, 7, 26)
# Wider than a source of the papers' study (sources.maps_2d), as smoothed maps are.
SPREAD = 1.5
# The contrast that people share, by source: visual and motor areas, less default mode.
GROUP_MEAN = {10: 1.0, 9: 1.0, 18: 0.5, 7: -0.5}


class Arrays(NamedTuple):
    """A study in memory; N people as columns of the views."""

    X: np.ndarray
    """Contrast maps, shape (n_pixels, N)."""
    Y: np.ndarray
    """Potentials, shape (6360, N) [uV], the points of channel after channel."""
    A_x: np.ndarray
    """Modulation profiles of the maps, shape (N, K)."""
    A_y: np.ndarray
    """Modulation profiles of the potentials, shape (N, K)."""
    maps: np.ndarray
    """Shape (n_pixels, K), mean square 1."""
    erps: np.ndarray
    """Shape (6360, K), mean 0 and mean square 1 [uV]."""


def profiles(
    n: int, correlations: Sequence[float], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw how much of each component each person has, with exact sample moments.

    Parameters
    ----------
    n
        Number of people N.
    correlations
        Of each of the K pairs.
    rng
        Generator of the directions in which people differ.

    Returns
    -------
    A_x, A_y : numpy.ndarray
        Shape (N, K). Columns have mean 0 and variance 1 (over N) and are orthogonal
        but for those of a pair, whose correlation is the one given.

    Raises
    ------
    ValueError
        If there are no more people than profiles.
    """
    r, K = np.asarray(correlations, dtype=float), len(correlations)
    if n <= 2 * K:
        raise ValueError(
            f"n must be above twice the number of components {K}, got {n} people."
        )
    G = rng.standard_normal((n, 2 * K))
    # Differs from correa2008linked: its two sets of profiles are independent draws,
    # so they correlate at random by about N^-1/2; one set of 2 K does not.
    Q = np.sqrt(n) * np.linalg.qr(G - G.mean(axis=0))[0]
    return Q[:, :K], r * Q[:, :K] + np.sqrt(1 - r**2) * Q[:, K:]


def component_maps(indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Draw maps on the disc.

    Parameters
    ----------
    indices
        Positions of the K sources in ``sources.SOURCES``.

    Returns
    -------
    maps : numpy.ndarray
        Shape (n_pixels, K), mean square 1, rows in the order of ``image[mask]``.
    mask : numpy.ndarray
        Shape (50, 50, 1), bool; axes to the right, front and top.
    """
    flat, disc = maps_2d(indices, N_SIDE, spread=np.full(len(indices), SPREAD))

    def image(rows: np.ndarray) -> np.ndarray:
        """Turn rows from the front by columns from the left to the image's axes."""
        return np.swapaxes(rows[::-1], 0, 1)[:, :, np.newaxis]

    mask = image(disc)
    maps = image(flat.reshape(N_SIDE, N_SIDE, -1))[mask].astype(float)
    return maps / np.sqrt((maps**2).mean(axis=0)), mask


def arrays(
    n: int,
    seed: int,
    *,
    correlations: Sequence[float] = (0.9, 0.7, 0.5, 0.3, 0.1),
    map_noise: float = 0.0,
    eeg_noise: float = 0.0,
) -> Arrays:
    """Make the study in memory: ``X = C_x A_x'``, ``Y = C_y A_y'``, no common mean.

    Parameters
    ----------
    n
        Number of people N.
    seed
        Fixes everything; profiles are those of the files with this seed.
    correlations
        Of each of the K pairs of profiles; the default is that of the thesis.
    map_noise
        Deviation of noise in a pixel over that of the components together. 0, as in
        the thesis: none.
    eeg_noise
        Deviation of the noise in a person's potential [uV]: that of the ongoing EEG
        over the root of the number of trials. 0: none.

    Returns
    -------
    Arrays
        Views (float32), profiles and components.

    Raises
    ------
    ValueError
        If there are too few people or more correlations than components.
    """
    common, *own = _seeds(seed, n)
    A_x, A_y = profiles(n, correlations, common)
    maps, erps, _ = _components(len(correlations))
    X, Y = (maps @ A_x.T).astype(np.float32), (erps @ A_y.T).astype(np.float32)
    if map_noise or eeg_noise:
        mixing = erp.spatial_mixing()
        for i, rng in enumerate(own):
            X[:, i] += _pixel_noise(maps, map_noise, rng)
            Y[:, i] += erp.ongoing(mixing, erp.N_POINTS, eeg_noise, rng).ravel()
    return Arrays(X, Y, A_x, A_y, maps, erps)


def write_study(
    folders: dict[str, Path], made: SimulatedViews, mask_path: Path
) -> None:
    """Write contrast maps and EEG of every site, the mask, and what is true.

    A person has ``func/sub-<label>_task-oddball_stat-effect_statmap.nii.gz`` and
    ``eeg/sub-<label>_task-oddball_eeg.vhdr`` (BrainVision, with comments ``target``)
    with ``_events.tsv``. Beside the mask is ``truth/``: ``desc-truth_components``
    (maps), ``_waveforms`` (potentials [uV]), ``_correlations`` and ``_profiles``.

    Parameters
    ----------
    folders
        Where each site's files go, by its name.
    made
        What to make.
    mask_path
        Where the image of the disc goes.

    Raises
    ------
    ValueError
        If there are too few people or more correlations than components.
    """
    K, labels = len(made.correlations), subject_labels([made.n_subjects] * len(folders))
    common, *own = _seeds(made.seed, made.n_subjects * len(folders))
    A_x, A_y = profiles(len(own), made.correlations, common)
    maps, erps, mask = _components(K)
    mean_map = component_maps(tuple(GROUP_MEAN))[0] @ np.array([*GROUP_MEAN.values()])
    mixing = erp.spatial_mixing()
    write_image(mask_path, _on_disc(mask.astype(np.uint8)))
    names = [label for site in labels for label in site]
    _write_truth(mask_path.parent / "truth", made, names, A_x, A_y)
    people = iter(zip(own, A_x, A_y, strict=True))
    for folder, site in zip(folders.values(), labels, strict=True):
        for label in tqdm(site, desc=str(folder), disable=None):
            rng, a_x, a_y = next(people)
            stem = f"sub-{label}/func/sub-{label}_task-{TASK}_stat-effect_statmap"
            contrast = mean_map + maps @ a_x + _pixel_noise(maps, made.map_noise, rng)
            image = _volumes(contrast[:, np.newaxis], mask)[..., 0]
            write_image(folder / f"{stem}.nii.gz", _on_disc(image))
            write_potential(folder, label, erps @ a_y, made, mixing, rng)
        write_json(folder / f"task-{TASK}_eeg.json", sidecar())
        write_bytes(folder / ".bidsignore", b"*_statmap.nii.gz\n")
        # Last, so that a folder with a description is a complete one.
        rows = [[f"sub-{label}"] for label in site]
        write_dataset(folder, "Simulated linked study", ["participant_id"], rows)


def write_potential(
    folder: Path,
    label: str,
    own: np.ndarray,
    made: SimulatedViews | Coupling,
    mixing: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Write one person's recording of trials.

    Parameters
    ----------
    folder, label
        Of the site, and of the person.
    own
        The person's potential less everybody's mean, (6360,) [uV].
    made
        Says how many trials, and how loud the ongoing EEG is.
    mixing
        Of the ongoing EEG over channels, :func:`sim.erp.spatial_mixing`.
    rng
        Of this person.
    """
    mean = erp.group_mean()
    data, onsets = erp.recording(
        mean + own.reshape(mean.shape),
        made.n_trials,
        mixing,
        rng,
        eeg_noise=made.eeg_noise,
    )
    write_recording(folder, label, TASK, data, onsets, EVENT)


def _seeds(seed: int, n: int) -> list[np.random.Generator]:
    """Generators: that of the profiles, then one of each person's noise."""
    return [
        np.random.default_rng(child)
        for child in np.random.SeedSequence(seed).spawn(1 + n)
    ]


def _components(K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps (n_pixels, K), potentials (6360, K) and mask of the first K pairs."""
    waveforms, topographies = erp.components(K)
    maps, mask = component_maps(INDICES[:K])
    return maps, erp.features(waveforms, topographies), mask


def _pixel_noise(
    maps: np.ndarray, ratio: float, rng: np.random.Generator
) -> np.ndarray:
    """Noise (n_pixels,); profiles have variance 1, so maps tell the signal's."""
    deviation = ratio * np.sqrt((maps**2).sum(axis=1).mean())
    return deviation * rng.standard_normal(len(maps))


def _on_disc(volumes: np.ndarray):
    """Image of a disc, which is no brain in any standard space."""
    image = nifti(volumes, _affine())
    image.set_sform(_affine(), code="aligned")
    image.set_qform(_affine(), code="aligned")
    return image


def _affine() -> np.ndarray:
    """Pixels to millimeters, with the middle of the image at 0."""
    affine = np.diag([PIXEL] * 3 + [1.0])
    affine[:2, 3] = -PIXEL * (N_SIDE - 1) / 2
    return affine


def _volumes(pixels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Put pixels (n_pixels, n) back into images (50, 50, 1, n), float32."""
    return fill_volumes(pixels.astype(np.float32), mask)


def sidecar() -> dict[str, Any]:
    """What BIDS asks of a recording; the data set's own file serves all people."""
    return {
        "TaskName": TASK,
        "SamplingFrequency": erp.RATE,
        "EEGReference": "average",
        "PowerLineFrequency": "n/a",
        "SoftwareFilters": "n/a",
        "EEGChannelCount": len(erp.CHANNELS),
        "CapManufacturer": "simulated",
    }


def _write_truth(
    truth: Path,
    made: SimulatedViews,
    labels: list[str],
    A_x: np.ndarray,
    A_y: np.ndarray,
) -> None:
    """Write components, correlations and profiles, with a sidecar that names them."""
    K = len(made.correlations)
    maps, erps, mask = _components(K)
    images = _on_disc(_volumes(maps, mask))
    write_image(truth / "desc-truth_components.nii.gz", images)
    about = {
        "Maps": [SOURCES[i].name for i in INDICES[:K]],
        "Waveforms": [source.name for source in erp.SOURCES[:K]],
        "Parameters": made.model_dump(mode="json"),
    }
    write_json(truth / "desc-truth_components.json", about)
    points = [(c, f"{t:.3f}") for c in erp.CHANNELS for t in erp.times()]
    rows = [
        [*point, *(f"{v:.6f}" for v in values)]
        for point, values in zip(points, erps.tolist(), strict=True)
    ]
    numbered = [f"component{k + 1}" for k in range(K)]
    write_tsv(truth / "desc-truth_waveforms.tsv", ["channel", "time", *numbered], rows)
    pairs = list(enumerate(made.correlations, start=1))
    write_tsv(
        truth / "desc-truth_correlations.tsv", ["component", "correlation"], pairs
    )
    header = [f"{view}{k + 1}" for view in ("fmri", "eeg") for k in range(K)]
    rows = [
        [f"sub-{label}", *(f"{a:.9g}" for a in both)]
        for label, both in zip(labels, np.hstack([A_x, A_y]).tolist(), strict=True)
    ]
    write_tsv(truth / "desc-truth_profiles.tsv", ["participant_id", *header], rows)
