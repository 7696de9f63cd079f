"""Studies of several stages with one promise: components, then what goes with them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PrivateAttr, model_validator

from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.sections import Label, Positive, fail
from capeneuro.config.study import USES, StagePlace, StudyConfig

# Keys of every study that a stage may have itself; the others stand at the top.
ITS_OWN = ("score", "expected")
OF_ALL = tuple(name for name in StudyConfig.model_fields if name not in ITS_OWN)


class StagedStudy(StudyConfig):
    """A study of several stages, one after the other, with one promise."""

    uses: ClassVar = {**USES, "stages": "identity", "weights": "identity"}

    stages: Annotated[dict[Label, dict[str, Any]], Field(min_length=2)]
    """Stages in their order, by name. Each has the keys of a study of its kind, but for
    those that all have in common and that stand above. `rows.features: {kind:
    components, of: NAME}` takes features from an earlier stage."""
    weights: Annotated[dict[Label, Positive], Field(default_factory=dict)]
    """Parts of the budget that stages have, in any unit, by name; none: all alike.
    `capeneuro plan` says which would drown none of them more than another."""
    _members: dict[str, StudyConfig] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _stages_have_names_and_weights(self) -> "StagedStudy":
        if self.weights and set(self.weights) != set(self.stages):
            fail(
                f"weights: must be of all stages ({', '.join(self.stages)}) or of "
                f"none, got {', '.join(self.weights)}"
            )
        rules = [name.replace("-", "_") for name in self.stages]
        if len(set(rules)) < len(rules):
            fail(
                "stages: names must differ by more than - and _, got "
                + ", ".join(self.stages)
            )
        return self

    @property
    def members(self) -> Mapping[str, StudyConfig]:
        """Stages by name, in their order."""
        return self._members

    @property
    def longest(self) -> int | None:
        """Most samples that one person has in any stage; None: not bounded."""
        limits = [member.longest for member in self.members.values()]
        return None if None in limits else max(limits, default=None)

    def fill(self, members: Mapping[str, StudyConfig]) -> None:
        """Fill in the stages.

        Parameters
        ----------
        members
            A study for each stage, as if it were alone.

        Raises
        ------
        ConfigError
            If a stage takes features from something that is no stage before it.
        """
        weights = self.weights or dict.fromkeys(members, 1.0)
        for name, alone in members.items():
            earlier = self._members.items()
            sources = [n for n, s in earlier if isinstance(s, ComponentsConfig)]
            of = alone.handed.of if alone.handed else ""
            if of not in (*sources, ""):
                raise ConfigError(
                    f"stages.{name}: of: must be an earlier stage that finds "
                    f"components ({', '.join(sources) or 'there is none'}), got {of!r}"
                )
            member = alone.model_copy(update={"study": f"{self.study}/{name}"})
            share = weights[name] / sum(weights.values())
            member._place = StagePlace(self, share, dict(self._members))
            self._members[name] = member

    @property
    def identity(self) -> str:
        """Name, and digest of all that fixes the releases of all stages."""
        text = json.dumps([member.identity for member in self._members.values()])
        return f"{self.study}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def lineage(self) -> str:
        """Name under which releases of all stages are counted in one process."""
        return self.identity

    @property
    def data(self) -> Any:
        """Data that a stage has made for all of them; None: they exist."""
        of_stages = (member.data for member in self._members.values())
        return next((data for data in of_stages if data is not None), None)

    @property
    def computes_mask(self) -> bool:
        """Whether a mask comes from the data."""
        return any(member.computes_mask for member in self._members.values())

    @property
    def leaves_out(self) -> str:
        """That of any stage."""
        return next((m.leaves_out for m in self._members.values() if m.leaves_out), "")

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each step of each stage pays for."""
        return self._of_steps("n_releases")

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each step of each stage."""
        return {
            f"{name}.{step}": member.share_of(step)
            for name, member in self._members.items()
            for step in member.n_releases
        }

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each step of each stage, in words."""
        return self._of_steps("queries")

    def _of_steps(self, attribute: str) -> dict[str, Any]:
        return {
            f"{name}.{step}": value
            for name, member in self._members.items()
            for step, value in getattr(member, attribute).items()
        }
