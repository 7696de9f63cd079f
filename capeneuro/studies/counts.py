"""How many people, and volumes of each, a forecast is of, and how that is known.

Numbers that are public alone: given, written by `validate`, or told by the study file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import cifti, files
from capeneuro.studies import kinds
from capeneuro.studies.forecasts import Counts, amount
from capeneuro.studies.sites import Sites, is_complete

# Under private/_aggregator/<study>/: what `validate` counted.
SIZES = "sizes.json"


class Assumed(NamedTuple):
    """What a forecast is of, before numbers that are given, and how it is known."""

    units: int | None
    """People at all sites, or under the unit `sample` their volumes."""
    volumes: int | None
    """Of one person."""
    source: str
    per_sample: bool
    is_counted: bool
    """Whether a run would count the same."""

    @property
    def counts(self) -> Counts:
        """As a run would count."""
        one = self.per_sample and self.is_counted
        return Counts(self.units, 1 if one else self.volumes, None)

    def of(self, given: Counts) -> Counts:
        """With the given numbers before the others."""
        people, volumes = self.counts[:2]
        if given.people or given.volumes:  # then of people, each with volumes
            volumes = self.volumes
            if self.per_sample and self.is_counted:
                people = round(people / volumes) if volumes else None
        return Counts(given.people or people, given.volumes or volumes, given.features)

    def in_words(self, counts: Counts) -> str:
        """What a forecast is of, and where it is from."""
        said, own = amount(counts), self.counts
        if counts[:2] == own[:2]:
            return f"{said} ({self.source})"
        if not self.is_counted:
            return f"{said} (as given)"
        return f"{said} (as given; a run is for {amount(own)}, {self.source})"


def write_sizes(
    study: StudyConfig, sites: Sites, found: Mapping[str, Sequence[int]]
) -> None:
    """Write what `validate` counted and is public under the study's unit.

    Parameters
    ----------
    study, sites
        The study, and its sites as far as their files are here.
    found
        By site the number of volumes of each of its people.

    Guarantee
    ---------
    Numbers of units alone, persons or samples, which are public under replace-one. How
    many volumes a person has is written only where all data are simulated or public.
    """
    about = _sizes(study, sites, found)
    files.write_json(study.private("_aggregator") / SIZES, about)
    if (told := study.expected.volumes) is None:
        return
    for name, own in found.items():
        if not told / 2 <= np.median(own) <= 2 * told:
            print(
                f"note: {name}: half of the people have {np.median(own):g} volumes or "
                f"fewer, expected.volumes says {told}; the forecast is for the latter"
            )


def _sizes(
    study: StudyConfig, sites: Sites, found: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    per_sample = study.budget.unit == "sample"
    units = {n: sum(own) if per_sample else len(own) for n, own in found.items()}
    is_open = all(sites[name].data != "private" for name in found)
    lengths = [n for own in found.values() for n in own]
    volumes = int(np.median(lengths)) if is_open and lengths else None
    return {"unit": study.budget.unit, "units": units, "volumes": volumes}


def counted(study: StudyConfig, sites: Sites) -> Counts:
    """People and volumes as far as they are public: counted, made, or expected."""
    return _known(study, sites).counts


def assumed(study: StudyConfig, sites: Sites) -> Assumed:
    """The same before `validate`: people whose images are here count already."""
    expected = _known(study, sites)
    makes = kinds.makes_data(study.full_study, sites)
    if expected.is_counted or makes or not is_complete(study, sites):
        return expected
    # Privacy: under the unit subject nobody counts the volumes of private people.
    tells = expected.per_sample or all(s.data != "private" for s in sites.values())

    def length(runs: Sequence[Path]) -> int:
        skipped = study.cleaning.dummy_scans
        return sum(cifti.n_volumes(run) - skipped for run in runs)

    try:
        people = {name: kinds.of(study).runs(site) for name, site in sites.items()}
        if None in people.values():
            return expected
        volumes = {
            name: [length(runs) if tells else 0 for runs in of.values()]
            for name, of in people.items()
        }
    except ConfigError:  # which who runs the study is told
        return expected
    return _counted(study, _sizes(study, sites, volumes), "whose images are here")


def _known(study: StudyConfig, sites: Sites) -> Assumed:
    path, per_sample = (
        study.private("_aggregator") / SIZES,
        study.budget.unit == "sample",
    )
    if path.is_file() and is_complete(study, sites):
        about = json.loads(path.read_text())
        if about["unit"] == study.budget.unit:
            return _counted(study, about, "as validate counted")
    if made := getattr(study.data, "n_subjects", None):
        volumes = getattr(study.data, "n_volumes", None)
        people = made * len(study.sites)
        return Assumed(people, volumes, "that the study makes", per_sample, False)
    told = study.expected.people, study.expected.volumes
    return Assumed(*told, "as the study file expects", per_sample, False)


def _counted(study: StudyConfig, about: Mapping[str, Any], source: str) -> Assumed:
    volumes = about["volumes"] or study.expected.volumes
    per_sample = about["unit"] == "sample"
    return Assumed(sum(about["units"].values()), volumes, source, per_sample, True)
