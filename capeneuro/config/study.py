"""Keys of every study file; each kind of study adds its own keys.

Paths are relative to the working directory, as in Snakemake.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    PrivateAttr,
    StringConstraints,
    model_validator,
)

from capeneuro.config.sections import (
    LABEL,
    Accept,
    BudgetOptions,
    ExpectedCounts,
    Governance,
    Label,
    ScoreOptions,
    Section,
    fail,
)
from capeneuro.config.site import ImageTable, SiteConfig
from capeneuro.privacy import accounting

# Share of mu^2 that the moment leaves to the center: D numbers against D^2 / 2.
CENTER_SHARE = 0.05
# What the keys of every study change [StudyConfig.uses].
USES = {
    "study": "report identity",
    "sites": "",
    "federation": "",
    "aggregator": "",
    "arm": "private identity",
    "noise": "private identity",
    "budget": "private identity",
    "score": "score report",
    "expected": "plan",
    "accept": "plan report",
    "source": "report",
    "governance": "report",
    "data": "make_data",
    "names": "maps report",
}


# Epsilon for everything of a person above which a promise is called weak, and above
# which private data need `accept: weak`.
WEAK_EPSILON, WEAKEST_EPSILON = 10.0, 20.0


def _inside(path: Path) -> Path:
    # A study file may come from another party: it names no file elsewhere.
    odd = path.is_absolute() or ".." in path.parts or not str(path).isprintable()
    if odd or path.suffix not in (".yaml", ".yml"):
        fail(
            "must be a .yaml file inside this folder, without / before it or .. in it; "
            "move it here and write a path like config/sites/north.yaml"
        )
    return path


Source = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class StagePlace(NamedTuple):
    """Position of a stage in a study of several stages."""

    full_study: Any
    """The study of all stages."""
    share: float
    """Share of mu^2 that the stage may spend."""
    earlier: Mapping[str, Any]
    """Stages before it, by name."""


class ReleaseStep(NamedTuple):
    """A step over all sites, whose releases make one result."""

    summary: str
    """Its work, in a sentence."""
    file: str
    """The result, under results/<study>/."""
    attribute: str
    """Name by which :func:`capeneuro.load` gives the result."""


class StudyConfig(Section):
    """Keys of every kind of study.

    A kind adds `space`, its options and what they change, and the properties
    `n_releases`, `shares` and `queries`.
    """

    kind: ClassVar[str] = ""
    """Name of the kind, and of the block that only its studies have; empty: the study
    has stages, each of a kind of its own."""
    release_steps: ClassVar[Mapping[str, ReleaseStep]] = MappingProxyType({})
    """Its steps over all sites, in their order, by the name of their command."""
    uses: ClassVar[Mapping[str, str]] = MappingProxyType(USES)
    """The steps that each key changes: another value of it reruns them. A key inside a
    section, such as `pca.clip`, stands alone where it differs from its section's.
    `private` are the steps over all sites, `releases` the same with their runs without
    privacy, and `identity` says that another value is another release, to be paid."""
    study: Label
    """Name; results go to results/<study>/, features to private/<site>/<study>/."""
    sites: list[Annotated[Path, AfterValidator(_inside)]]
    """The site files, at least two, all inside this folder."""
    federation: Literal["in-process", "nvflare", "files"] = "in-process"
    """Where the sites work: all in one process on this machine, or each at its own
    institution: over NVIDIA FLARE, or by files that people carry. With `nvflare` and
    `files` each party has its own site file alone, named after the site; see
    docs/federation.md and docs/by-files.md."""
    aggregator: Literal["independent"] | Label | None = None
    """Where the aggregator sits: `independent`, at no site; or the name of the site
    that also runs it, which then is one colluding site more; null: as if at a site."""
    arm: Literal["non-private", "pooled", "local", "conventional", "cape", "secure_sum"]
    """How queries are answered: `cape`, with noise of which most cancels between sites;
    or, for public and simulated data, `non-private`, without noise. The other ones are
    baselines (docs/components.md)."""
    noise: Literal["rounded", "exact"] = "rounded"
    """Sampler: normal noise rounded to a grid, or the exact discrete normal (slower,
    needs the extra `exact`); see the threat model in the docs."""
    budget: BudgetOptions
    score: ScoreOptions = ScoreOptions()
    expected: ExpectedCounts = ExpectedCounts()
    accept: tuple[Accept, ...] = ()
    """Rules that this study sets aside, each with the reason; they stand at the top of
    the report and in privacy.json. `noise`: noise is foretold to drown the result;
    `gain`: private data are foretold to add nothing to the prior that can be told. For
    private data also `epsilon`: it is above 10; `weak`: it is above 20; `unit`: it is
    the sample, one volume of a person; `bounds`: they have no public `source`."""
    source: Source | None = None
    """Where norm bounds, clips, ranges and public tables come from: a protocol, a
    paper, a public data set, so that nothing in this file was looked up in private
    data. For private data one is needed."""
    governance: Governance = Governance()
    """Who answers for the study; stands in the report and in privacy.json."""
    _place: StagePlace | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _colluders_leave_an_honest_site(self) -> "StudyConfig":
        if len(self.sites) < 2:
            fail(f"sites: a federation needs at least 2, got {len(self.sites)}")
        S, t, n_colluding = (
            len(self.sites),
            self.survivor_threshold,
            self.budget.n_colluding,
        )
        if n_colluding is not None and n_colluding >= S:
            rule = f"must be below the number of sites {S}"
            fail(f"budget.n_colluding: {rule}, got {n_colluding}")
        if not accounting.threshold_holds(S, self.n_colluding, t):
            seat = "" if self.is_independent else ", with the aggregator's own site"
            fail(
                f"budget.survivor_threshold: must be the number of sites {S}, or below "
                f"it and above (sites + colluding sites{seat} + 1) / 2 = "
                f"{(S + self.n_colluding + 1) / 2:g}, got {t}"
            )
        return self

    @model_validator(mode="after")
    def _parties_know_each_other(self) -> "StudyConfig":
        if self.federation == "in-process":
            return self
        stems = [path.stem for path in self.sites]
        odd = [s for s in stems if not re.fullmatch(LABEL, s) or stems.count(s) > 1]
        if odd:
            fail(
                f"sites: with federation: {self.federation} each file is named after "
                "its site, and no two sites are alike, got "
                + ", ".join(sorted(set(odd)))
            )
        if self.computes_mask:
            fail(
                f"space.mask: no party of federation: {self.federation} has all "
                "images, got 'computed'; give a public mask"
            )
        return self

    @property
    def is_apart(self) -> bool:
        """Whether sites work at their own institutions, by network or by files."""
        return self.federation != "in-process"

    @property
    def with_fewer_releases(self) -> str:
        """Another choice in the study file that needs fewer releases; empty: none."""
        return ""

    @property
    def together(self) -> int:
        """People that a site's sums take at a time: many where each is one sample."""
        return 1

    def misfit(self, site: SiteConfig) -> str:
        """Why a site file does not fit this kind of study; empty: it fits."""
        if site.images is None and not all(m.has_eeg for m in self.members.values()):
            return "images: this study needs them, got null"
        spaces = [m.space for m in self.members.values() if m.space is not None]
        if site.mask is not None and any(space.has_parcels for space in spaces):
            return (
                "mask: is of voxels, and this study of parcels (CIFTI), got "
                f"'{site.mask}'; set it to null"
            )
        is_listed = isinstance(site.images, ImageTable)
        if is_listed and not all(m.has_maps for m in self.members.values()):
            return (
                "images: a table of files is for studies of one map of each person, "
                "got a study without maps; give a folder or a pattern"
            )
        return ""

    @property
    def has_maps(self) -> bool:
        """Whether features are places of an image of each person."""
        return False

    @property
    def has_eeg(self) -> bool:
        """Whether features are of recordings of EEG, and of nothing else."""
        return False

    @property
    def volumes(self) -> int | None:
        """Volumes of one person, by the study's files; None: they do not have it."""
        if self.together > 1:  # a row each
            return 1
        simulated = getattr(self.full_study.data, "n_volumes", None)
        return self.expected.volumes or simulated

    @property
    def longest(self) -> int | None:
        """Most samples of one person, as sites enforce it; None: not bounded."""
        return 1 if self.together > 1 else self.expected.longest  # else a row each

    @property
    def person_units(self) -> int | None:
        """Most units that one person has; None: not bounded."""
        return 1 if self.budget.unit == "subject" else self.full_study.longest

    @property
    def person_mu(self) -> float | None:
        """Largest loss for everything of one person; None: not bounded."""
        if self.person_units is None:
            return None
        sites = ("", *self.budget.site_epsilon)
        return self.person_units * max(self.promise_of(site).mu for site in sites)

    @property
    def person_epsilon(self) -> float | None:
        """Epsilon at worst for everything of one person; None: not bounded."""
        if self.person_mu is None:
            return None
        return accounting.epsilon_from_mu(self.person_mu, self.budget.delta)

    @property
    def computes_mask(self) -> bool:
        """Whether the mask comes from the data."""
        return self.space is not None and self.space.mask == "computed"

    @property
    def leaves_out(self) -> str:
        """Key by which data decide how many volumes are left; empty: none does."""
        return ""

    @property
    def is_independent(self) -> bool:
        """Whether the aggregator was declared to sit at no site."""
        return self.aggregator == "independent"

    @property
    def n_colluding(self) -> int:
        """Sites of the coalition, the aggregator's own among them; at least 1."""
        n_colluding = self.budget.n_colluding
        return accounting.coalition(len(self.sites), n_colluding, self.is_independent)

    @property
    def adversary(self) -> str:
        """Adversaries of the promise, in words."""
        n = self.n_colluding
        if self.is_independent:
            return f"the aggregator and any {n} {'sites' if n > 1 else 'site'}"
        seat = f"at {self.aggregator}" if self.aggregator else "which may sit at a site"
        partners = f" and any {n - 1} other {'sites' if n > 2 else 'site'}"
        return f"the aggregator, {seat},{partners if n > 1 else ''}".removesuffix(",")

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
        """Whether sites sign the list of survivors: not where all must survive."""
        return self.budget.consistency and self.survivor_threshold < len(self.sites)

    @property
    def promise(self) -> accounting.Budget:
        """The promise of the study."""
        return self.promise_of("")

    def promise_of(self, site: str) -> accounting.Budget:
        """The promise to the people of one site."""
        b = self.budget
        epsilon = b.site_epsilon.get(site, b.epsilon)
        return accounting.Budget(
            epsilon,
            b.delta,
            b.unit,
            b.relation,
            self.n_colluding,
            self.survivor_threshold,
        )

    @property
    def own_promise(self) -> accounting.Budget:
        """Part of the promise that one stage may spend; all for a single stage."""
        if self._place is None:
            return self.promise
        mu = self.promise.mu * self.stage_share**0.5
        epsilon = accounting.epsilon_from_mu(mu, self.budget.delta)
        return replace(self.promise, epsilon=epsilon)

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
        """Noise multiplier of one release in each step, from the promise."""
        return {
            step: (n / self.share_of(step)) ** 0.5 / self.promise.mu
            for step, n in self.n_releases.items()
        }

    def share_of(self, step: str) -> float:
        """Share of the whole promise's mu^2 that the releases of a step spend."""
        return self.shares[step] * self.stage_share

    @property
    def stage_share(self) -> float:
        """Share of mu^2 that a stage may spend; 1 where there is one."""
        return 1.0 if self._place is None else self._place.share

    @property
    def full_study(self) -> "StudyConfig":
        """The study that this is a stage of, whose promise counts; else itself."""
        return self if self._place is None else self._place.full_study

    @property
    def handed(self) -> Any:
        """The features that an earlier stage computes; None: there are none."""
        return None

    @property
    def earlier(self) -> Mapping[str, "StudyConfig"]:
        """Stages before this one by name; none where there is one stage."""
        return {} if self._place is None else self._place.earlier

    @property
    def members(self) -> Mapping[str, "StudyConfig"]:
        """Stages by name; a study of one stage is its own, without a name."""
        return {"": self}

    @property
    def lineage(self) -> str:
        """Name under which all stages' releases are counted; empty: one stage."""
        return "" if self._place is None else self._place.full_study.identity

    @property
    def exact_public(self) -> tuple[str, ...]:
        """Exact numbers about their people that sites publish, outside the promise."""
        return ()

    @property
    def has_places(self) -> bool:
        """Whether rows contain the place of their site among the study's sites."""
        return False

    @property
    def identity(self) -> str:
        """Name and digest of all that fixes the releases.

        Keys at their defaults are left out, whether the file has them or not: a new key
        with a default does not make another study of one that is under way. A default
        must therefore never come to mean something else.
        """
        keys = stated(self, self.idle)
        if self.has_places:  # all parties must mean the same order
            keys["~places"] = self.site_names
        if self._place is not None:
            keys["~share"] = self.stage_share
        if self.handed:  # what features are made from
            keys["~of"] = self.earlier[self.handed.of].identity
        text = json.dumps(keys, sort_keys=True)
        return f"{self.study}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on: True, or the names of keys in a section."""
        keys: dict[str, Any] = {}
        for name, value in self:
            key_uses = {
                inner: self._uses_of(f"{name}.{inner}")
                for inner in (type(value).model_fields if is_section(value) else ())
            } or {"": self._uses_of(name)}
            idle = {inner for inner, uses in key_uses.items() if "identity" not in uses}
            if idle:
                keys[name] = True if len(idle) == len(key_uses) else idle
        return keys

    def depends(self, step: str) -> str:
        """Say as JSON which keys a step depends on, with their values.

        Parameters
        ----------
        step
            Name of its command; ``reference_<command>`` is its run without privacy.
        """
        words = {step}
        if step in self.release_steps:
            words |= {"private", "releases"}
        elif step.removeprefix("reference_") in self.release_steps:
            words.add("releases")
        keys: dict[str, Any] = {}
        for name, value in self.model_dump(mode="json").items():
            if not is_section(getattr(self, name)):
                if words & self._uses_of(name):
                    keys[name] = value
            elif inner_keys := {
                inner: inner_value
                for inner, inner_value in value.items()
                if words & self._uses_of(f"{name}.{inner}")
            }:
                keys[name] = inner_keys
        if step == "prepare" and self.has_places:
            keys["~places"] = self.site_names
        return json.dumps(keys, sort_keys=True)

    def _uses_of(self, key: str) -> set[str]:
        """Steps that a key changes: its own, or else those of its section."""
        section = key.partition(".")[0]
        everything = "validate prepare releases report identity"
        return set(self.uses.get(key, self.uses.get(section, everything)).split())

    @property
    def digest(self) -> str:
        """SHA-256 of the study file, on which parties agree."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def results(self) -> Path:
        """Released files."""
        return Path("results") / self.study

    def private(self, site: str) -> Path:
        """Files of one site that never leave it."""
        return Path("private") / site / self.study


def is_section(value: Any) -> bool:
    """Whether a value of a study file has keys of its own."""
    return isinstance(value, BaseModel)


def stated(section: BaseModel, idle: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a section that are not at their defaults, as plain values.

    Parameters
    ----------
    section
        A study, or a part of one.
    idle
        Keys to leave out: True, or the names of keys inside a section.
    """
    keys: dict[str, Any] = {}
    plain = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if idle.get(name) is True or value == field.get_default(
            call_default_factory=True
        ):
            continue
        if isinstance(value, BaseModel):
            inside = dict.fromkeys(idle.get(name, ()), True)
            keys[name] = stated(value, inside)
        else:
            keys[name] = plain[name]
    return keys
