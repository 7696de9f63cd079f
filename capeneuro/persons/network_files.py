"""Files of a person's networks, named as BIDS derivatives; they stay at the site."""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.data import files, nifti
from capeneuro.persons.named_networks import NetworkOptions, PersonNetworks
from capeneuro.persons.network_features import network_connectivity

# Under private/<site>/<study>/.
FOLDER = "networks"
QUALITY = f"{FOLDER}/quality.tsv"
QUALITY_HEADER = [
    "participant_id",
    "volumes",
    "mean_motion_mm",
    "mean_fit",
    "least_fit",
    "least_fit_network",
    "largest_overlap",
    "not_converged",
]
DESCRIPTION = {
    "Name": "Networks of a site's people",
    "BIDSVersion": "1.10.0",
    "DatasetType": "derivative",
    "GeneratedBy": [{"Name": "capeneuro"}],
}
PRIVATE = "Describes a single participant; it stays at the site"


def write_person(
    folder: Path,
    person: str,
    networks: PersonNetworks,
    names: Sequence[str],
    mask: Any,
    run_lengths: Sequence[int],
    repetition_time: float,
    options: NetworkOptions,
) -> list[str]:
    """Write maps, time courses, connectivity and spectra of one person.

    Parameters
    ----------
    folder
        The site's private folder of the study.
    person
        Begins with ``sub-`` in BIDS.
    networks
        Of the person.
    names
        Of the R networks.
    mask
        The study's mask.
    run_lengths
        Volumes of each run, which follow each other.
    repetition_time
        [s].
    options
        How they were computed.

    Returns
    -------
    list of str
        Row of :data:`QUALITY_HEADER`.
    """
    stem = folder / FOLDER / person / "func" / f"{person}_desc-networks"
    stem.parent.mkdir(parents=True, exist_ok=True)
    description = folder / FOLDER / "dataset_description.json"
    if not description.is_file():
        files.write_json(description, DESCRIPTION)
    common = {"Private": PRIVATE, "Networks": list(names), "Method": options.method}
    common |= {"TimeCourses": options.courses, "RunLengths": list(run_lengths)}

    def path(ending: str) -> Path:
        return stem.with_name(stem.name + ending)

    text = "Maps of the person's networks, z over voxels"
    maps = {"Description": text, **common}
    nifti.write_maps(path("_components.nii.gz"), networks.maps, mask, maps)
    files.write_table(path("_timeseries.tsv"), list(names), map(_cells, networks.S.T))
    courses = {"Description": "Time courses, mean 0 and deviation 1", **common}
    courses["SamplingFrequency"] = 1 / repetition_time
    files.write_json(path("_timeseries.json"), courses)
    links = network_connectivity(networks.S)  # of all runs, as they are released
    files.write_table(path("_relmat.tsv"), list(names), map(_cells, links))
    matrix = {"Description": "Fisher's z of networks' courses over all runs", **common}
    files.write_json(path("_relmat.json"), matrix)
    frequencies = np.array(options.frequencies)[:, None]
    spectra = np.hstack([frequencies, networks.spectra.T])
    header = ["frequency_hz", *names]
    files.write_table(path("_spectra.tsv"), header, map(_cells, spectra))
    shares = {"Description": "Shares of power, mean over runs", **common}
    files.write_json(path("_spectra.json"), shares)
    return quality_row(person, networks, names)


def remove_others(folder: Path, people: Collection[str]) -> None:
    """Remove the networks of withdrawn people.

    Parameters
    ----------
    folder
        The site's private folder of the study.
    people
        Names of those who take part.
    """
    for path in (folder / FOLDER).glob("*"):
        if path.is_dir() and path.name not in people:
            shutil.rmtree(path)


def quality_row(
    person: str, networks: PersonNetworks, names: Sequence[str]
) -> list[str]:
    """Row of :data:`QUALITY_HEADER`: how like the template a person's networks are."""
    quality = networks.quality
    values = quality.mean_fit, quality.least_fit
    worst = names[int(np.argmin(quality.fit))]
    motion = "n/a" if np.isnan(quality.motion) else f"{quality.motion:.3f}"
    counts = [person, str(quality.n_volumes), motion]
    fits = [*(f"{value:.3f}" for value in values), worst, f"{quality.overlap:.3f}"]
    return [*counts, *fits, str(quality.not_converged)]


def _cells(values: np.ndarray) -> list[str]:
    """Cells of a row of numbers."""
    return [f"{value:.6g}" for value in values]
