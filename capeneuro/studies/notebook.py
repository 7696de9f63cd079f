"""A study file from Python: ``load("config/config.yaml")``, planned and run.

The steps are those that the workflow runs, in its order, one after the other in this
process. What they print, write, charge and refuse is the same: what was paid for is
replayed at no cost, by either.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from tqdm.contrib import DummyTqdmFile

from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.sections import BESIDE
from capeneuro.data import files
from capeneuro.studies import kinds, workflow
from capeneuro.studies.found import Results
from capeneuro.studies.sites import load_sites

Step = tuple[str, Callable[[], Any]]


class Study:
    """A study file, read and checked; made by :func:`.results.load`.

    Paths in it are relative to the working directory, as in Snakemake.

    Parameters
    ----------
    path
        The study file.

    Attributes
    ----------
    config : capeneuro.config.study.Study
        Every key of the file.
    sites : dict of SiteConfig
        Its site files, by name.
    results : Results
        What was found so far.

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
        return (
            f"Study({self.config.study}: {kinds.of(self.config).name}, sites "
            f"{', '.join(self.sites)}, epsilon {promise.epsilon:g} a {promise.unit})"
        )

    @property
    def results(self) -> Results:
        """What the study has found so far, by name."""
        return Results(self.config.results)

    def plan(self, **counts: int) -> dict[str, Any]:
        """Print what a run would spend and what that would buy; nothing is spent.

        Parameters
        ----------
        **counts
            ``people`` at all sites, ``volumes`` of one of them and ``features``, for a
            study that is still on paper; what data tell and may is counted.

        Returns
        -------
        dict
            Noise of each result over the most that leaves one, by stage where there are
            several; above 1 it is drowned. Empty where a number is missing.

        Raises
        ------
        BudgetExceeded
            If noise is foretold to drown the result, and the study file does not
            accept that.
        """
        files.keep_private()
        return kinds.of(self.config).steps["plan"](self.config, self.sites, **counts)

    def run(self, threads: int = 1, progress: bool = True) -> Results:
        """Run all steps, from the data to the report; a rerun is charged once.

        Parameters
        ----------
        threads
            Sites, people or pictures at a time.
        progress
            Show the steps as a bar, with the time that is left.

        Returns
        -------
        Results
            What was found, by name.

        Raises
        ------
        ConfigError
            If files or data are wrong; if sites work at their own institutions.
        BudgetExceeded
            If a ceiling, or the noise that is foretold, does not allow it.
        """
        if self.config.federation == "nvflare":
            raise ConfigError(
                f"{self.path}: federation: each site works at its own institution; "
                "see docs/federation.md for who runs what, or set it to in-process"
            )
        files.keep_private()
        # What steps print stands above the bar, not in it.
        out = DummyTqdmFile(sys.stdout) if progress else sys.stdout
        steps = tqdm([*self._steps(threads)], disable=not progress)
        with steps as bar, redirect_stdout(out):
            for name, step in bar:
                bar.set_description(name)
                step()
        return self.results

    def _steps(self, threads: int) -> Iterator[Step]:
        """Steps in the workflow's order, named as the command line names them."""
        members = workflow.members(self.config, self.sites)
        made = workflow.made_data(self.config, self.sites)
        if made and not all(Path(path).exists() for path in made):
            yield "make_data", self._make_data

        def step(member: Any, name: str, **options: Any) -> Step:
            about = member.study, self.sites
            beside = BESIDE if options.get("reference") else ""
            words = [name, *member.option[1:], options.get("site", ""), beside]
            shown = " ".join(filter(None, words))
            return shown, lambda: member.kind.steps[name](*about, **options)

        for m in members:
            yield step(m, "validate", threads=threads)
        yield "plan", self.plan
        for m in members:
            for site in m.sites:
                yield step(m, "prepare", site=site, threads=threads)
            for reference in (False, True)[: 1 + m.study.score.reference]:
                for name, _ in m.kind.stages:
                    yield step(m, name, threads=threads, reference=reference)
            yield step(m, "maps")
            for site in m.sites:
                yield step(m, "reconstruct", site=site)
            yield step(m, "score")
        report = kinds.of(self.config).steps["report"]
        yield "report", lambda: report(self.config, self.sites, threads=threads)

    def _make_data(self) -> None:
        """Simulate the data, where the study asks for it, as the workflow does."""
        workflow.find_maker(self.path)
        subprocess.run([sys.executable, "-m", "sim", str(self.path)], check=True)
