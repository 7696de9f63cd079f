"""A study file from Python: ``load("config/config.yaml")``, planned and run.

The steps are those that the workflow runs, in its order, one after the other in this
process. Both print, write, charge and refuse the same, and either replays at no cost
a release that the other has paid for.
"""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from tqdm.contrib import DummyTqdmFile

from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.data import files
from capeneuro.notebook.study_results import Results
from capeneuro.studies import one_process, registry
from capeneuro.studies.gate import plan
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import tasks


class Study:
    """A study file, read and checked; made by :func:`.loading.load`.

    Paths in it are relative to the working directory, as in Snakemake.

    Parameters
    ----------
    path
        The study file.

    Attributes
    ----------
    config : capeneuro.config.study.StudyConfig
        Every key of the file.
    sites : dict of SiteConfig
        Its site files, by name.
    results : Results
        Files that were written so far, by name.

    Raises
    ------
    ConfigError
        With all errors of the files.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = load_study(self.path)
        self.sites = load_sites(self.config)

    def __repr__(self) -> str:
        promise = self.config.promise
        stages = [registry.of(stage).name for stage in self.config.members.values()]
        return (
            f"Study({self.config.study}: {' and '.join(stages)}, sites "
            f"{', '.join(self.sites)}, epsilon {promise.epsilon:g} a {promise.unit})"
        )

    @property
    def results(self) -> Results:
        """Files that the study has written so far, by name."""
        return Results(self.config.results)

    def plan(self, **counts: int) -> dict[str, Any]:
        """Print the budget and the predicted precision of a run; nothing is spent.

        Parameters
        ----------
        **counts
            ``people`` at all sites, ``volumes`` of one person and ``features``, for a
            study without data yet; numbers that are public are counted where there are
            data.

        Returns
        -------
        dict
            Noise of each result over the most at which it is usable, by stage where
            there are several. Empty where a number is missing.

        Raises
        ------
        BudgetExceeded
            If the noise is predicted to exceed the signal, and the study file does not
            accept that.
        """
        files.keep_private()
        return plan(self.config, self.sites, **counts)

    def run(self, threads: int = 1, progress: bool = True) -> Results:
        """Run all steps, from the data to the report; a rerun is charged once.

        Parameters
        ----------
        threads
            Number of sites, people or pictures at a time.
        progress
            Show the steps as a bar, with the time that is left.

        Returns
        -------
        Results
            Files of the study, by name.

        Raises
        ------
        ConfigError
            If files or data are wrong; if sites work at their own institutions.
        BudgetExceeded
            If a ceiling, or the predicted noise, does not allow it.
        """
        if self.config.is_apart:
            raise ConfigError(
                f"{self.path}: federation: each site works at its own institution; "
                "see docs/federation.md for who runs what, or set it to in-process"
            )
        # What steps print stands above the bar, not in it.
        out = DummyTqdmFile(sys.stdout) if progress else sys.stdout
        due = tasks(self.config, self.sites)
        with tqdm(total=len(due), disable=not progress) as bar, redirect_stdout(out):
            for _ in one_process.run_study(
                self.path, self.config, self.sites, threads, bar.set_description
            ):
                bar.update()
        return self.results
