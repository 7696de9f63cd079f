"""Steps of every kind of study: a kind is one final class, made of a study file."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.transport import Federation
from capeneuro.studies.forecasts import Counts, Forecast
from capeneuro.studies.site_people import EVERYBODY, SitePeople
from capeneuro.studies.sites import Sites
from capeneuro.studies.steps import Step, steps


class StudyKind(ABC):
    """A study of one kind: its steps, and the files that each reads and writes.

    A method that takes ``sites`` works on files of this machine; one that takes a
    ``federation`` queries sites on any machine.
    """

    study: StudyConfig
    """The study file."""
    site_files: ClassVar[tuple[str, ...]]
    """Files, and folders (with a slash at the end), that `reconstruct` writes under a
    site's folder of the study."""
    site_keys: ClassVar[Mapping[str, tuple[str, ...]]]
    """Keys of a site's file that `validate`, `prepare` and `reconstruct` depend on."""
    steps_in_parts: ClassVar[tuple[str, ...]] = ("prepare",)
    """Steps at a site that several jobs may do, each for a part of its people."""

    # --- steps -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the kind."""
        return self.study.kind

    @property
    def result_files(self) -> dict[str, str]:
        """Its steps over all sites, in their order, each with the file it writes."""
        return {name: step.file for name, step in self.study.release_steps.items()}

    @property
    def steps(self) -> dict[str, Step]:
        """The study's steps in their order, by the names of their commands."""
        return {
            name: step
            for name, step in steps().items()
            if step.over != "arms" or name in self.result_files
        }

    @property
    def layout(self) -> str:
        """Digest of the keys of the study file that prepared features depend on."""
        return hashlib.sha256(self.study.depends("prepare").encode()).hexdigest()

    def check_prepared(
        self, site_names: Iterable[str], made_from: str | None = None
    ) -> None:
        """Refuse prepared features that are not those of the study as it is now.

        Parameters
        ----------
        site_names
            Sites whose features are here.
        made_from
            Digest of the released results that features must be made from; None: any.

        Raises
        ------
        ConfigError
            If a study file was changed after a site prepared its data.
        """
        # Privacy: a person's numbers in other places would be charged for nothing.
        for name in site_names:
            people = files.Features(self.study.private(name) / "projected.npz")
            is_current = made_from in (None, people.made_from)
            if people.layout != self.layout or not is_current:
                raise ConfigError(
                    f"site {name}: its prepared features are not those of the study as "
                    "it is now; run `prepare` again"
                )

    @abstractmethod
    def check_public_files(self) -> None:
        """Refuse public files that do not fit the study; they must be there."""

    @abstractmethod
    def validate(self, sites: Sites, threads: int = 1) -> None:
        """Check the sites' data and budgets; write the definition of features."""

    @abstractmethod
    def prepare(self, sites: Sites, site: str, people: SitePeople = EVERYBODY) -> None:
        """Turn one site's data into features; nothing leaves the site.

        Parameters
        ----------
        sites, site
            The sites, and the name of the one whose people are prepared.
        people
            Who of them, and how many at a time.
        """

    @abstractmethod
    def release(
        self, step: str, sites: Sites, threads: int = 1, reference: bool = False
    ) -> None:
        """Run one step over all sites in this process; write its result.

        Parameters
        ----------
        step
            One of ``result_files``.
        sites, threads
            The sites, and how many of them answer at a time.
        reference
            Without privacy, beside the study's own result.
        """

    @abstractmethod
    def release_all(self, federation: Federation, sites: Sites) -> None:
        """Run all steps over sites that work anywhere; write their results."""

    @abstractmethod
    def maps(self, sites: Sites) -> None:
        """Write the released result as maps and tables."""

    @abstractmethod
    def reconstruct(
        self, sites: Sites, site: str, people: SitePeople = EVERYBODY
    ) -> None:
        """Write the result for each person of one site; it stays at the site.

        ``people`` says how many are computed at a time, where that takes long.
        """

    @abstractmethod
    def score(self, sites: Sites) -> None:
        """Compare the result with the truth and with a run without privacy."""

    # --- forecast and report ---------------------------------------------------------

    @abstractmethod
    def forecast(self, site_names: Sequence[str], counts: Counts) -> Forecast:
        """Predict the noise of the result from public numbers alone.

        Raises
        ------
        Unknown
            If a number that it needs is missing from the counts.
        """

    def n_numbers(self, n_features: int) -> int:
        """Numbers in the largest release of D features, or somewhat more.

        By default those of a second moment, with a row for each site and one more.
        """
        n = n_features + len(self.study.sites) + 1
        return n * (n + 1) // 2

    @abstractmethod
    def chapter(self, record: dict[str, Any], threads: int = 1) -> Any:
        """Make the study's chapter of the report: pictures, verdicts, scores."""

    # --- files, for the workflow -----------------------------------------------------

    @abstractmethod
    def input_files(self, site: SiteConfig) -> list[str]:
        """Files of a site that its features depend on."""

    @abstractmethod
    def public_files(self) -> list[str]:
        """Public files that define the features."""

    @abstractmethod
    def validated_files(self) -> list[str]:
        """Files that `validate` writes."""

    @abstractmethod
    def map_files(self) -> list[str]:
        """Files that `maps` writes."""

    @abstractmethod
    def score_inputs(self) -> list[str]:
        """Files that the result is compared with."""

    @abstractmethod
    def made_files(self, sites: Sites) -> list[str]:
        """Files that the data makers write last, where the study has its data made."""

    @abstractmethod
    def runs(self, site: SiteConfig) -> Mapping[str, Sequence[Path]] | None:
        """Images of a site by person; None if images alone do not define the people.

        Raises
        ------
        ConfigError
            If the site's folder cannot be read.
        """

    @property
    def released_files(self) -> list[str]:
        """Files that the steps over all sites write."""
        return [str(self.study.results / file) for file in self.result_files.values()]

    @property
    def reference_files(self) -> list[str]:
        """Files that the steps over all sites write without privacy."""
        folder = self.study.results / "reference"
        return [str(folder / file) for file in self.result_files.values()]
