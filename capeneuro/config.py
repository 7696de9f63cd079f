"""The study file and the site files: read, checked, nothing optional left open.

Unknown or misspelled keys are errors that name the nearest known key, and all errors of
a file are shown at once. Paths are relative to the working directory, as in Snakemake.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from capeneuro import explain, privacy
from capeneuro.explain import ConfigError as ConfigError
from capeneuro.fusion_sections import Fusion, Linked
from capeneuro.sections import (
    LABEL,
    BudgetOptions,
    Cleaning,
    Fraction,
    IcaOptions,
    Key,
    Label,
    Painting,
    PcaOptions,
    Positive,
    Score,
    Section,
    Simulation,
    Space,
    fail,
)

# Share of mu^2 that the moment leaves to the center: D numbers against D^2 / 2.
CENTER_SHARE = 0.05


class SiteConfig(Section):
    """One site's own file: its data and its own rules. Never leaves the site."""

    name: Label
    """Name of the site in the study."""
    images: str
    """BIDS folder, or a pattern of 4-D NIfTI files such as `data/*_bold.nii.gz`. Files
    named sub-<label>... belong to that person, any other file is one person. In a
    fusion study 3-D files (in a BIDS folder `*_statmap.nii.gz`), one for each person,
    or a table."""
    eeg: str | None = None
    """Its EEG in a fusion study: BIDS folder, pattern of recordings, or a table."""
    data: Literal["private", "simulated", "public"]
    """What the data are. Only `simulated` and `public` allow runs without privacy and
    fixed seeds; every output that used them is stamped."""
    epsilon: Positive
    """Ceiling on the largest total epsilon of any of its people, over all studies."""
    delta: Fraction
    """Delta of the ceiling."""
    unit: privacy.Unit
    """Unit of the ceiling; a `subject` ceiling refuses `sample` studies."""
    ledger: Path
    """Folder of its ledger and keys; keep it, and back it up."""
    task: Label | None = None
    """BIDS task to use; null: all."""
    mask: Path | None = None
    """Public mask of what its scans cover; voxels outside count as 0. Null: all."""
    repetition_time: Positive | None = None
    """[s]; null: from the JSON sidecar."""
    min_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    """Refuse any single release with less noise."""
    min_colluding: Annotated[int, Field(ge=0)] | None = None
    """Refuse studies that guard against fewer colluding sites; null: ceil(S/3) - 1."""
    peers: dict[Label, Key] | None = None
    """Public keys of the other sites it agreed to work with, by name (each site prints
    its own with `capeneuro ledger key`); null: the study's sites with any key."""
    seed: int | None = None
    """Fixes the noise; simulated or public data only."""

    @model_validator(mode="after")
    def _seed_needs_open_data(self) -> "SiteConfig":
        if self.seed is not None and self.data == "private":
            fail("a fixed seed would make the noise of private data predictable")
        return self


class Study(Section):
    """What every kind of study says.

    A kind adds `space`, its options, and the properties `n_releases`, `shares`, `idle`.
    """

    study: Label
    """Name; results go to results/<study>/, features to private/<site>/<study>/."""
    sites: list[Path]
    """The site files, at least two."""
    federation: Literal["in-process", "nvflare"] = "in-process"
    """Where the sites work: all in one process on this machine, or each at its own
    institution over NVIDIA FLARE. With `nvflare` each party has its own site file
    alone, named after the site; see docs/federation.md."""
    n_components: Annotated[int, Field(ge=1)]
    """Number R of components."""
    arm: Literal["non-private", "pooled", "local", "conventional", "cape", "secure_sum"]
    """How queries are answered: `cape`, or one of the baselines."""
    noise: Literal["rounded", "exact"] = "rounded"
    """Sampler: normal noise rounded to a grid, or the exact discrete normal (slower,
    needs the extra `exact`); see the threat model in the docs."""
    budget: BudgetOptions
    score: Score = Score()

    @model_validator(mode="after")
    def _colluders_leave_an_honest_site(self) -> "Study":
        if len(self.sites) < 2:
            fail(f"sites: a federation needs at least 2, got {len(self.sites)}")
        if self.n_colluding >= len(self.sites):
            fail(
                f"budget.n_colluding: must be below the number of sites "
                f"{len(self.sites)}, got {self.n_colluding}"
            )
        S, t = len(self.sites), self.survivor_threshold
        if not privacy.threshold_holds(S, self.n_colluding, t):
            fail(
                f"budget.survivor_threshold: must be at most the number of sites {S} "
                f"and above (sites + n_colluding) / 2 = "
                f"{(S + self.n_colluding) / 2:g}, got {t}"
            )
        return self

    @model_validator(mode="after")
    def _parties_know_each_other(self) -> "Study":
        if self.federation == "in-process":
            return self
        stems = [path.stem for path in self.sites]
        odd = [s for s in stems if not re.fullmatch(LABEL, s) or stems.count(s) > 1]
        if odd:
            fail(
                "sites: with federation: nvflare each file is named after its site, "
                f"and no two sites are alike, got {', '.join(sorted(set(odd)))}"
            )
        if self.computes_mask:
            fail(
                "space.mask: no party of federation: nvflare has all images, got "
                "'computed'; give a public mask"
            )
        return self

    @property
    def computes_mask(self) -> bool:
        """Whether the mask comes from the data."""
        return self.space is not None and self.space.mask == "computed"

    @property
    def n_colluding(self) -> int:
        """Colluding sites, with the default filled in."""
        given = self.budget.n_colluding
        return privacy.default_n_colluding(len(self.sites)) if given is None else given

    @property
    def survivor_threshold(self) -> int:
        """Fewest sites of a release, with the default filled in."""
        return self.budget.survivor_threshold or len(self.sites)

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names of all sites, by their files; a federation over a network has these."""
        return tuple(path.stem for path in self.sites)

    @property
    def consistency(self) -> bool:
        """Whether sites sign who survived: not where all of them must."""
        return self.budget.consistency and self.survivor_threshold < len(self.sites)

    @property
    def promise(self) -> privacy.Budget:
        """The promise of the study."""
        return self.promise_of("")

    def promise_of(self, site: str) -> privacy.Budget:
        """The promise to the people of one site."""
        b = self.budget
        epsilon = b.site_epsilon.get(site, b.epsilon)
        sites = (self.n_colluding, self.survivor_threshold)
        return privacy.Budget(epsilon, b.delta, b.unit, b.relation, *sites)

    @property
    def mu_factors(self) -> dict[str, float]:
        """Mu of the sites with a promise of their own, over that of the others."""
        return {
            site: self.promise_of(site).mu / self.promise.mu
            for site in self.budget.site_epsilon
        }

    @property
    def noise_ratio(self) -> float:
        """``sigma2 / gamma`` of CAPE."""
        return self.budget.noise_ratio_per_site * len(self.sites)

    @property
    def multipliers(self) -> dict[str, float]:
        """Noise multiplier of one release in each stage, from the promise."""
        return {
            stage: (n / self.shares[stage]) ** 0.5 / self.promise.mu
            for stage, n in self.n_releases.items()
        }

    @property
    def identity(self) -> str:
        """Name and digest of all that fixes the releases."""
        always = dict.fromkeys(("score", "sites", "federation", "data"), True)
        kept = self.model_dump_json(exclude={**always, **self.idle})
        return f"{self.study}:{hashlib.sha256(kept.encode()).hexdigest()[:16]}"

    @property
    def results(self) -> Path:
        """Released files."""
        return Path("results") / self.study

    def private(self, site: str) -> Path:
        """Files of one site that never leave it."""
        return Path("private") / site / self.study


class Config(Study):
    """A study of components: PCA, then ICA."""

    space: Space
    cleaning: Cleaning
    pca: PcaOptions
    ica: IcaOptions
    data: Annotated[Simulation | Painting, Field(discriminator="kind")] | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _components_are_enough(self) -> "Config":
        n = self.ica.sub_gaussian
        if n != "measured" and n > self.n_components:
            fail(
                f"ica.sub_gaussian: must be at most n_components "
                f"{self.n_components}, got {n}"
            )
        return self

    @model_validator(mode="after")
    def _start_has_a_grid(self) -> "Config":
        edge, size = self.pca.start_grid, self.space.grid_size
        if edge is None:
            return self
        if self.space.basis not in ("voxels", "grid"):
            fail(f"pca.start_grid: needs basis voxels or grid, got {self.space.basis}")
        if self.space.basis == "grid" and (edge % size or edge == size):
            fail(
                f"pca.start_grid: must be a multiple of space.grid_size {size}, "
                f"got {edge}"
            )
        return self

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        stages = {"center": 1} if self.pca.center else {}
        stages["pca"] = self.pca.n_iterations if self.pca.method == "power" else 1
        if self.ica.independence == "temporal":
            stages["ica"] = self.ica.n_rounds * self.ica.n_runs
        return stages

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        share = self.budget.pca_share if "ica" in self.n_releases else 1.0
        center = CENTER_SHARE * share if self.pca.center else 0.0
        return {"center": center, "pca": share - center, "ica": 1 - share}

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        whole = self.pca.method == "moment"
        return {"pca": {"n_iterations", "start_grid"}} if whole else {}


class FusionConfig(Study):
    """A study of fusion: canonical correlations of two views of the same people."""

    space: Space | None
    """Null where `fusion.fmri` is a table."""
    fusion: Fusion
    data: Linked | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _persons_are_samples(self) -> "FusionConfig":
        if self.budget.unit != "subject":
            fail(
                "budget.unit: must be subject in a fusion study, where a person is one "
                f"sample, got {self.budget.unit!r}"
            )
        kept, K = self.fusion.n_directions, self.n_components
        if kept is not None and kept < K:
            fail(f"fusion.n_directions: must be at least n_components {K}, got {kept}")
        if (self.fusion.fmri.kind == "table") != (self.space is None):
            fail("space: must be null where fusion.fmri is a table, and only there")
        if self.computes_mask:
            fail("space.mask: must be a file in a fusion study, got 'computed'")
        kinds = self.fusion.fmri.kind, self.fusion.eeg.kind
        if self.score.truth is not None and kinds != ("maps", "erp"):
            fail(f"score.truth: needs views of maps and erp, got {' and '.join(kinds)}")
        return self

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {"center": 1, "cca": 1} if self.fusion.center else {"cca": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        center = CENTER_SHARE if self.fusion.center else 0.0
        return {"center": center, "cca": 1 - center}

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        return {
            "n_components": True,
            "budget": {"pca_share"},
            "fusion": {"n_directions", "debias", "within_sites"},
        }


def load(path: Path | str) -> Config | FusionConfig:
    """Read and check a study file; raise :class:`ConfigError` with all its errors."""
    kinds = {"fusion": FusionConfig}
    return explain.read(Path(path), Config, "study", other="site", instead=kinds)


def load_site(path: Path | str) -> SiteConfig:
    """Read and check one site file."""
    return explain.read(Path(path), SiteConfig, "site", other="study")


def section(model: BaseModel, *names: str) -> str:
    """Chosen keys as one line of JSON: what a workflow step depends on."""
    return json.dumps(model.model_dump(mode="json", include=set(names)), sort_keys=True)
