"""Numbers of people and volumes that a forecast is for, and their source.

Public numbers alone: options of `plan`, or counts of `validate`, or the study file's.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import cifti, files
from capeneuro.studies import registry
from capeneuro.studies.forecasts import Counts, amount
from capeneuro.studies.sites import Sites, is_complete

# Under private/_aggregator/<study>/: numbers that `validate` counted.
SIZES = "sizes.json"


class Assumed(NamedTuple):
    """Numbers that a forecast is for, without options of `plan`, and their source."""

    units: int | None
    """People at all sites, or under the unit `sample` their volumes."""
    volumes: int | None
    """Of one person."""
    source: str
    per_sample: bool
    is_counted: bool
    """Whether the numbers were counted, as a run would."""

    @property
    def counts(self) -> Counts:
        """The numbers of a run: under the unit `sample` each volume is a unit."""
        units_are_volumes = self.per_sample and self.is_counted
        return Counts(self.units, 1 if units_are_volumes else self.volumes, None)

    def replaced_by(self, options: Counts) -> Counts:
        """Replace numbers by options of `plan`, where these are not None."""
        people, volumes = self.counts[:2]
        if options.people or options.volumes:  # then of people, each with volumes
            volumes = self.volumes
            if self.per_sample and self.is_counted:
                people = round(people / volumes) if volumes else None
        people, volumes = options.people or people, options.volumes or volumes
        return Counts(people, volumes, options.features)

    def in_words(self, counts: Counts) -> str:
        """Numbers of a forecast and their source, in words."""
        text = amount(counts)
        if counts[:2] == self.counts[:2]:
            return f"{text} ({self.source})"
        if not self.is_counted:
            return f"{text} (as given)"
        return f"{text} (as given; a run is for {amount(self.counts)}, {self.source})"


def write_sizes(
    study: StudyConfig, sites: Sites, lengths: Mapping[str, Sequence[int]]
) -> None:
    """Write the numbers of units, and of volumes where they are public.

    Parameters
    ----------
    study, sites
        The study, and its sites as far as their files are here.
    lengths
        By site the number of volumes of each of its people.

    Guarantee
    ---------
    Numbers of units alone, persons or samples, which are public under replace-one. How
    many volumes a person has is written only where all data are simulated or public.
    """
    sizes = _sizes(study, sites, lengths)
    files.write_json(study.private("_aggregator") / SIZES, sizes)


def note_other_lengths(
    study: StudyConfig, lengths: Mapping[str, Sequence[int]]
) -> None:
    """Print a note where people's volumes are far from the study's expected number.

    Parameters
    ----------
    study
        A study of volumes; where a person is one row nobody has counted volumes.
    lengths
        By site the number of volumes of each of its people.
    """
    if (expected := study.expected.volumes) is None:
        return
    for name, of_site in lengths.items():
        median = np.median(of_site)
        if not expected / 2 <= median <= 2 * expected:
            print(
                f"note: {name}: half of the people have {median:g} volumes or fewer, "
                f"expected.volumes is {expected}; the forecast is for {expected}"
            )


def _sizes(
    study: StudyConfig, sites: Sites, lengths: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Units by site, and the median of volumes where no data are private."""
    per_sample = study.budget.unit == "sample"
    count = sum if per_sample else len
    units = {name: count(of_site) for name, of_site in lengths.items()}
    is_open = all(sites[name].data != "private" for name in lengths)
    volumes = [n for of_site in lengths.values() for n in of_site]
    median = int(np.median(volumes)) if is_open and volumes else None
    return {"unit": study.budget.unit, "units": units, "volumes": median}


def counted(study: StudyConfig, sites: Sites) -> Counts:
    """People and volumes as far as they are public: counted, made, or expected."""
    return _validated(study, sites).counts


def assumed(study: StudyConfig, sites: Sites) -> Assumed:
    """Public numbers before `validate`, too: people whose images are here count."""
    expected = _validated(study, sites)
    makes = registry.makes_data(study.full_study, sites)
    if expected.is_counted or makes or not is_complete(study, sites):
        return expected
    # Privacy: under the unit subject volumes of private people are not counted.
    is_public = expected.per_sample or all(s.data != "private" for s in sites.values())

    def length(runs: Sequence[Path]) -> int:
        skipped = study.cleaning.dummy_scans
        return sum(cifti.n_volumes(run) - skipped for run in runs)

    try:
        people = {name: registry.of(study).runs(site) for name, site in sites.items()}
        if None in people.values():
            return expected
        volumes = {
            name: [length(runs) if is_public else 0 for runs in of_site.values()]
            for name, of_site in people.items()
        }
    except ConfigError:  # `validate` reports it
        return expected
    return _counted(study, _sizes(study, sites, volumes), "whose images are here")


def _validated(study: StudyConfig, sites: Sites) -> Assumed:
    """Numbers that `validate` counted, or else simulated or expected ones."""
    path = study.private("_aggregator") / SIZES
    per_sample = study.budget.unit == "sample"
    if path.is_file() and is_complete(study, sites):
        sizes = json.loads(path.read_text())
        if sizes["unit"] == study.budget.unit:
            return _counted(study, sizes, "as validate counted")
    if n_simulated := getattr(study.data, "n_subjects", None):
        volumes = getattr(study.data, "n_volumes", None)
        people = n_simulated * len(study.sites)
        return Assumed(people, volumes, "that the study makes", per_sample, False)
    people, volumes = study.expected.people, study.expected.volumes
    return Assumed(people, volumes, "as the study file expects", per_sample, False)


def _counted(study: StudyConfig, sizes: Mapping[str, Any], source: str) -> Assumed:
    volumes = sizes["volumes"] or study.expected.volumes
    if volumes and not sizes["volumes"]:
        source = f"people {source}, volumes by expected.volumes"
    per_sample = sizes["unit"] == "sample"
    return Assumed(sum(sizes["units"].values()), volumes, source, per_sample, True)
