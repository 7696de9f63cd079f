"""Nobody's features of EEG depend on another person's recording [proofs.md, A8].

Two sites' folders differ in one person's recording; what a site prepares of everybody
else is the same bit by bit. Every option that looks at the data is on: epochs with a
large range are dropped, channels marked as bad interpolated, rates resampled, the
band filtered and the average reference taken.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import two_views
from tiny_study import command, edit
from two_views import BANDS, CHANNELS, EEG, PEOPLE, STUDY, mne, only_eeg, recording

from capeneuro.config import load
from capeneuro.data import eeg, files

# Fixtures.
study, template = two_views.study, two_views.template

SECONDS, SITE = 12, "a"
OPTIONS = {
    "resample": True,
    "interpolate": True,
    "reference": "average",
    "reject": 150.0,
    "high_pass": 1.0,
    "low_pass": 30.0,
    "min_epochs": 1,
    "min_share": 0.0,
}
KINDS = {
    "fusion": {**EEG, **OPTIONS},
    "potentials": {**EEG, **OPTIONS, "bounds": [-60, 60]},
    "bands": {**BANDS, **OPTIONS},
}
del KINDS["potentials"]["norm_bound"]


def write_recording(
    person: str, seed: int, scale: float, rate: float, bad: tuple[str, ...] = ()
) -> None:
    """Six channels of noise, of which the first has a jump, and some are bad."""
    rng, names = np.random.default_rng(seed), [*CHANNELS, "C3", "C4", "Oz"]
    X = scale * rng.standard_normal((6, round(SECONDS * rate)))
    X[0, round(2 * rate) : round(2.2 * rate)] += 500
    raw = mne.io.RawArray(
        1e-6 * X, mne.create_info(names, rate, "eeg"), verbose="error"
    )
    raw.annotations.append(1 + np.arange(10.0), 0.0, "target")
    raw.info["bads"] = list(bad)
    raw.save(recording(person), overwrite=True, verbose="error")


def write_study(kind: str) -> str:
    """Recordings of all people, and a study of them; its name."""
    for seed, person in enumerate(PEOPLE["a"] + PEOPLE["b"]):
        write_recording(
            person, seed, 10 + 0.4 * (seed % 6), 100, bad=("Pz",) * (seed % 2)
        )
    if kind != "fusion":
        only_eeg(KINDS[kind])
        return "alone"
    edit(STUDY, "fusion.eeg", KINDS[kind])
    return "pair"


def prepared(name: str) -> dict[str, bytes]:
    """What a site prepares, from its recordings alone: nothing is kept of before."""
    folder = Path("private") / SITE / name
    shutil.rmtree(folder, ignore_errors=True)
    assert command("prepare", STUDY, "--site", SITE) == 0
    features = files.Features(folder / "projected.npz")
    return {person: X.tobytes() for person, X in features.items()}


def people_changed_by(kind: str, person: str) -> set[str]:
    """Whose features change with the recording of one person."""
    name = write_study(kind)
    before = prepared(name)
    # Louder, at another rate, another channel bad: still one whom the study takes.
    write_recording(person, 99, 12.5, 125, bad=("Fz",))
    after = prepared(name)
    assert before.keys() == after.keys() == set(PEOPLE[SITE])
    return {label for label in before if before[label] != after[label]}


@pytest.mark.parametrize("person", [PEOPLE[SITE][0], PEOPLE[SITE][-1]])
@pytest.mark.parametrize("kind", KINDS)
def test_nobodys_features_depend_on_another_persons_recording(kind, person, study):
    assert people_changed_by(kind, person) == {person}


def recordings_of_site() -> list[Path]:
    return [recording(label) for label in PEOPLE[SITE]]


def median_threshold():
    """Of a site: the median deviation of its recordings, for one of the protocol."""
    deviations = [
        np.median(mne.io.read_raw(path, verbose="error").get_data().std(axis=1))
        for path in recordings_of_site()
    ]
    return {"reject": 4.3e6 * float(np.median(deviations))}


def largest_rate():
    """Of a site: the highest cut-off that all its recordings have."""
    rates = [
        mne.io.read_raw(path, verbose="error").info["sfreq"]
        for path in recordings_of_site()
    ]
    return {"low_pass": max(rates) / 4}


def reference_of_all():
    """Of a site: an average reference, if few channels are bad in anybody."""
    bad = {
        name
        for path in recordings_of_site()
        for name in mne.io.read_raw(path, verbose="error").info["bads"]
    }
    return {"reference": "average" if len(bad) < 2 else "recorded"}


@pytest.mark.parametrize("choice", [median_threshold, largest_rate, reference_of_all])
@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_of_the_sites_recordings_is_noticed(kind, choice, study, monkeypatch):
    """The planted errors: what the study file says is taken from the site's people."""
    read_features = eeg.read_features

    def by_site(paths, options, eeg_info=None):
        chosen = options.model_copy(update=choice())
        return read_features(paths, chosen, eeg_info)

    monkeypatch.setattr(eeg, "read_features", by_site)
    first = PEOPLE[SITE][0]
    assert people_changed_by(kind, first) > {first}


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_is_at_work(kind, study):
    """Each changes the features of these recordings, so that above none is idle."""
    write_study(kind)
    options = load.load_study(STUDY)
    options = options.fusion.eeg if kind == "fusion" else options.rows.features
    paths = [recording(PEOPLE[SITE][1])]
    features = eeg.read_features(paths, options)
    counts = dict(zip(eeg.COUNTS, features.n_epochs[0][1:], strict=True))
    assert counts["range_above_reject"] > 0 and counts[eeg.INTERPOLATED] == 1
    for change in (
        {"reject": None},
        {"reference": "recorded"},
        {"low_pass": None},
        {"high_pass": None},
    ):
        changed = eeg.read_features(paths, options.model_copy(update=change))
        assert (changed.features != features.features).any(), change
