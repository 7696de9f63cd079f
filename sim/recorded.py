"""EEG of patients and controls, as one BIDS folder for each site, with what is public.

A person's potential is everybody's mean plus a normal amount of each source of
:mod:`sim.erp`; patients have more of the first, and the second goes with age.
"""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from capeneuro.algorithms.designs import Covariate
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.eeg import ErpOptions
from capeneuro.config.rows import SimulatedRecordings
from capeneuro.data import eeg
from capeneuro.studies.outcomes import SHRUNK
from sim import erp
from sim.bids import write_dataset, write_json, write_tsv
from sim.coupled import AGE
from sim.fmri import subject_labels
from sim.linked import TASK, sidecar, write_potential

# Channels that tell how windows of the ongoing EEG vary together.
N_SERIES = 2000


def write_study(folders: dict[str, Path], study: ContrastConfig) -> None:
    """Write recordings and people of every site, public tables, and what is true.

    A site has ``sub-<label>/eeg/`` (BrainVision, comments ``target``) and
    ``participants.tsv`` with `patient` and `age`. The tables of means and of covariance
    go where the study looks for them, true effects and sources to ``effects.tsv`` and
    ``patterns.tsv`` in the folder that `score.truth` names.

    Parameters
    ----------
    folders
        Where each site's files go, by its name.
    study
        Of contrasts on potentials, with ``data`` of kind ``recorded``.
    """
    made, options = study.data, study.rows.features
    K, N = len(erp.SOURCES), made.n_subjects
    waveforms, topographies = erp.components(K)
    E, mixing = erp.features(waveforms, topographies), erp.spatial_mixing()
    common, *own = np.random.SeedSequence(made.seed).spawn(1 + len(folders))
    labels, means = subject_labels([N] * len(folders)), []
    for (name, folder), people, seed in zip(folders.items(), labels, own, strict=True):
        drawn, *each = np.random.default_rng(seed).spawn(1 + N)
        patient = (drawn.permutation(N) < N // 2).astype(int)
        years, A = drawn.standard_normal(N), drawn.standard_normal((N, K))
        A[:, 0] += made.group * (patient - 0.5)
        A[:, 1] = made.age * years + np.sqrt(1 - made.age**2) * A[:, 1]
        age = np.round(AGE[0] + AGE[1] * years, 1)
        rows = []
        for i in tqdm(range(N), desc=str(folder), disable=None):
            write_potential(folder, people[i], E @ A[i], made, mixing, each[i])
            rows.append([f"sub-{people[i]}", patient[i], f"{age[i]:.1f}"])
        write_json(folder / f"task-{TASK}_eeg.json", sidecar())
        (mean,) = Covariate("age", (), *AGE).public(age)
        means.append([name, N - N // 2, N // 2, f"{mean:.6g}"])
        # Last, so that a folder with a description is a complete one.
        write_dataset(
            folder, "Simulated EEG", ["participant_id", "patient", "age"], rows
        )
    names, shape = eeg.feature_names(options), (len(topographies), -1)
    B = np.stack([_windows(E[:, k].reshape(shape), options) for k in range(K)])
    if study.contrast.means is not None:
        header = ["site", "patient=0", "patient=1", "age"]
        write_tsv(study.contrast.means, header, means)
    if study.contrast.covariance is not None:
        mean = _windows(erp.group_mean(), options)
        left = np.ones(K)
        left[1] -= made.age**2
        rest = _ongoing(made, options, mixing, np.random.default_rng(common))
        C = (B.T * left) @ B + rest
        # As `capeneuro prior` writes it: channels less their mean have no inverse.
        C = (1 - SHRUNK) * C + SHRUNK * np.diag(np.diag(C))
        lines = _numbered(names, np.column_stack([mean, C]))
        write_tsv(study.contrast.covariance, ["feature", "mean", *names], lines)
    if study.score.truth is not None:
        lines = _numbered(names, np.column_stack([made.group * B[0], made.age * B[1]]))
        path = study.score.truth / "effects.tsv"
        write_tsv(path, ["feature", "patient", "age"], lines)
        header = ["feature", *(f"component_{k + 1}" for k in range(K))]
        path = study.score.truth / "patterns.tsv"
        write_tsv(path, header, _numbered(names, B.T))


def _numbered(names: list[str], values: np.ndarray) -> list[list[str]]:
    return [
        [name, *(f"{v:.7g}" for v in row)]
        for name, row in zip(names, values.tolist(), strict=True)
    ]


def _windows(potential: np.ndarray, options: ErpOptions) -> np.ndarray:
    """Features (D,) of a potential (30, 212) [uV]."""
    at = eeg.epoch_times(options)
    own = [erp.CHANNELS.index(channel) for channel in options.channels]
    curves = [np.interp(at, erp.times(), potential[c]) for c in own]
    return eeg.window_means(np.stack(curves), options).ravel()


def _ongoing(
    made: SimulatedRecordings,
    options: ErpOptions,
    mixing: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Covariance (D, D) of features by the ongoing EEG that an average leaves."""
    own = [erp.CHANNELS.index(channel) for channel in options.channels]
    series = erp.ongoing(np.eye(N_SERIES), options.n_points, made.eeg_noise, rng)
    W = eeg.window_means(series, options)
    S = (mixing @ mixing.T)[np.ix_(own, own)]
    return np.kron(S, W.T @ W / N_SERIES) / made.n_trials
