"""What a site may be asked and may answer: the table of tasks, and each message's form.

A message is parsed once, where it arrives; below that nobody looks a field up by its
name. What leaves is written from the same objects. On the wire a message is a dict with
the fields of its form (:mod:`.messages`); fields of None are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

from capeneuro.federation import messages
from capeneuro.federation.messages import Message
from capeneuro.federation.secagg import one_exchange
from capeneuro.privacy.accounting import Relation, Unit

Kind = Literal["private", "simulated", "public"]
# Arms that send exact statistics; they run on simulated or public data only.
EXACT_ARMS = ("non-private", "pooled")
# Arms in which a site relies on the noise of others, by a secure sum.
COOPERATIVE_ARMS = ("cape", "secure_sum")
Arm = Literal["non-private", "pooled", "local", "conventional", "cape", "secure_sum"]


class Refused(Exception):
    """The site's own rule forbids the request; the argument names the rule."""


class Form(BaseModel):
    """A message with the fields of its class and no others, each of its type."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )
    rule: ClassVar[str] = "form of the message"
    _message: Message = PrivateAttr(default_factory=dict)

    @classmethod
    def parse(cls, message: Any) -> Self:
        """Read a message as it came over the wire.

        Parameters
        ----------
        message
            Anything.

        Returns
        -------
        Form
            Well formed; whether a site admits it is not checked.

        Raises
        ------
        Refused
            With the first field whose kind or range is wrong, or that lacks; ``fields``
            for one too many.

        Guarantee
        ---------
        It reads no data: the field's name is the protocol's own.
        """
        try:
            form = cls.model_validate(message)
        except ValidationError as error:
            location = error.errors(include_input=False)[0]["loc"]
            field = (
                location[0]
                if location and location[0] in cls.model_fields
                else "fields"
            )
            raise Refused(f"{cls.rule}, {field}") from None
        form._message = message
        return form

    @cached_property
    def packed(self) -> bytes:
        """The message as bytes."""
        return messages.pack(self.message)

    @property
    def message(self) -> Message:
        """On the wire: as it came, bit for bit, since digests are of that."""
        return self._message or {k: v for k, v in self if v is not None}


class Description(Form):
    """Public facts of a site: size, public key, kind and version of its data."""

    n_units: int = Field(gt=0, lt=2**40)
    key: bytes
    kind: Kind
    version: str
    signature: bytes

    @property
    def facts(self) -> bytes:
        """Bytes that its signature is of."""
        return _facts(self.n_units, self.key, self.kind, self.version)


@lru_cache(maxsize=2**11)  # each site packs those of all others, in each round
def _facts(n_units: int, key: bytes, kind: Kind, version: str) -> bytes:
    """Packed facts of a site, which are public."""
    facts = {"n_units": n_units, "key": key, "kind": kind, "version": version}
    return messages.pack(facts)


class Request(Form):
    """A request for a release; parameters are checked by their query.

    Parameters
    ----------
    study, query, parameters, round, attempt, reduction
        Which release: ``attempt`` counts those that were void, ``reduction`` is the
        digest of the projection before it.
    arm, unit, relation, noise
        How it is noised, for whom; ``noise`` is the sampler.
    variances, noise_ratio
        Of each site's noise g, at unit sensitivity, and ``sigma2 / gamma`` of CAPE.
    n_colluding, survivor_threshold, consistency
        Of the secure sum.
    roster
        What every site says of itself.
    after, void
        The digest of the last request before this one in its study that the aggregator
        has finished, empty if there is none; and of those since then that were given
        up, because a site that they named is gone, in their order. What is finished is
        with the aggregator for good, and never asked again.
    """

    rule = "form of the request"
    study: str
    query: str
    parameters: dict[str, Any]
    round: int = Field(ge=0)
    attempt: int = Field(ge=0)
    reduction: str
    arm: Arm
    unit: Unit
    relation: Relation
    # Zero in the exact arm alone; the range keeps ratios and squares finite.
    variances: dict[str, Annotated[float, Field(ge=0, lt=1e30)]]
    n_colluding: int = Field(ge=0)
    survivor_threshold: int = Field(ge=1)
    consistency: bool
    noise_ratio: float = Field(ge=0, lt=1e30)
    noise: Literal["rounded", "exact"]
    roster: dict[str, Description]
    after: str = ""
    void: list[str] = []

    @cached_property
    def digest(self) -> str:
        """Identity of the request: the same for every site that is asked the same."""
        return messages.digest(self.message)

    @cached_property
    def roster_digest(self) -> str:
        """Identity of what all sites say of themselves."""
        return messages.digest({n: site.message for n, site in self.roster.items()})

    @property
    def context(self) -> bytes:
        """Its digest as the context of a secure sum."""
        return bytes.fromhex(self.digest)

    @property
    def n_units(self) -> int:
        """Persons, or samples, of all sites."""
        return sum(site.n_units for site in self.roster.values())

    @property
    def keys(self) -> dict[str, bytes]:
        """Public key of each site."""
        return {name: site.key for name, site in self.roster.items()}

    @property
    def is_exact(self) -> bool:
        """Whether statistics leave without noise."""
        return self.arm in EXACT_ARMS

    @property
    def is_cooperative(self) -> bool:
        """Whether a site relies on the noise of others."""
        return self.arm in COOPERATIVE_ARMS

    @property
    def waits_for_all(self) -> bool:
        """Whether it is a secure sum in one exchange, which every site must answer."""
        everyone = self.survivor_threshold == len(self.roster)
        return self.is_cooperative and everyone

    @property
    def does_without_lost(self) -> bool:
        """Whether it is a secure sum in four exchanges, in which sites may lack."""
        return self.is_cooperative and not self.waits_for_all


Asked = Annotated[Request, BeforeValidator(Request.parse)]


class Describe(Form):
    """Ask for public facts, sizes in one unit."""

    unit: Unit


class AskMaskKey(Form):
    """Ask for the key that the masks of a study's sums derive from."""

    study: str


class Project(Form):
    """Ask to project samples; :func:`.queries.is_projection` checks all of it."""

    matrix: Any
    norm_bound: Any
    center: Any


class Advertise(Form):
    """Ask to agree to a request."""

    request: Asked


class Share(Form):
    """Ask to share secrets of masks with the sites that advertised keys."""

    request: Asked
    advertised: dict[str, bytes]


class Release(Form):
    """Ask for the answer.

    A secure sum in one exchange has the mask keys of all sites of the study; one in
    four has the keys that they advertised for it, and what they sealed for this one.
    """

    request: Asked
    mask_keys: dict[str, bytes] = {}
    advertised: dict[str, bytes] = {}
    sealed: dict[str, bytes] = {}

    @cached_property
    def keys_digest(self) -> str:
        """Digest of all sites' mask keys."""
        return one_exchange.digest_of_keys(self.mask_keys)


class Confirm(Form):
    """Ask for a signature of the survivors of the request of a digest."""

    request: str
    survivors: list[str] | tuple[str, ...]


class Unmask(Form):
    """Ask to unmask the survivors' sum, with signatures of them if it takes any."""

    request: str
    survivors: list[str] | tuple[str, ...]
    signatures: dict[str, bytes] = {}


class Nothing(Form):
    """An acknowledgment."""


class MaskKey(Form):
    """Public key of a site's masks in one study, signed, 96 bytes."""

    mask_key: bytes


class Keys(Form):
    """Public keys for one secure sum in four exchanges, 160 bytes, signed."""

    keys: bytes


class Boxes(Form):
    """Shares of secrets, sealed for each other site."""

    sealed: dict[str, bytes]


class Answer(Form):
    """Weighted statistic with noise, the part of a secure sum, a signature of both.

    Which of them there are depends on the arm.
    """

    noisy: np.ndarray | None = None
    masked: np.ndarray | None = None
    signature: bytes | None = None


class Signature(Form):
    """A signature, 64 bytes."""

    signature: bytes


class Shares(Form):
    """Shares that unmask a sum, 33 bytes by name of each site in it."""

    shares: dict[str, bytes]


@dataclass(frozen=True)
class Task:
    """One task of the wire protocol; the method of its name answers it.

    Parameters
    ----------
    takes, leaves
        Forms of the message and of the answer. An error has ``error`` and ``rule``
        instead.
    guarantee
        What the answer tells about the people of the site.
    charges
        Whether the ledger charges it.
    is_timed
        Whether the time that it takes depends on data.
    names_sites
        Whether its answer grows with the number of sites.
    """

    takes: type[Form]
    leaves: type[Form]
    guarantee: str
    charges: bool = False
    is_timed: bool = False
    names_sites: bool = False


# The wire protocol: what is not in this table can be neither asked nor answered.
PROTOCOL: Mapping[str, Task] = {
    "describe": Task(
        Describe,
        Description,
        "Public facts: the number of persons, or of samples where the unit is the "
        "sample, and a keyed digest that tells only whether the data changed.",
    ),
    "mask_key": Task(
        AskMaskKey,
        MaskKey,
        "Nothing leaves but a public key, which derives from no data.",
    ),
    "project": Task(
        Project,
        Nothing,
        "Nothing leaves but the acknowledgment.",
        is_timed=True,
    ),
    "advertise": Task(
        Advertise,
        Keys,
        "Nothing leaves but public keys; every rule and the ceiling are checked first.",
    ),
    "share": Task(
        Share,
        Boxes,
        "Nothing leaves but shares of secrets of masks, sealed for other sites; fewer "
        "than the survivor threshold tell nothing even in clear.",
        names_sites=True,
    ),
    "release": Task(
        Release,
        Answer,
        "mu-GDP against the aggregator and n_colluding sites, charged before it "
        "leaves. Exact arms have none, and are refused on private data.",
        charges=True,
        is_timed=True,
    ),
    "confirm": Task(
        Confirm,
        Signature,
        "Nothing leaves but a signature of what the aggregator said.",
    ),
    "unmask": Task(
        Unmask,
        Shares,
        "For one set of survivors only: the aggregator learns the sum of a release "
        "that is charged already.",
        names_sites=True,
    ),
}


# A message is looked at several times at a site, and by each site of a process.
_last_form: list[tuple[str, Message, Form]] = []


def opens_round(task: str, messages: Mapping[str, Message]) -> bool:
    """Whether messages to sites are the first of a round.

    Parameters
    ----------
    task, messages
        What sites are asked, by name.

    Returns
    -------
    bool
        A sum in four exchanges begins when sites advertise keys; any other is one.
    """
    is_last_of_four = any(message.get("sealed") for message in messages.values())
    return task == "advertise" or (task == "release" and not is_last_of_four)


def adds_floats(task: str, messages: Mapping[str, Message]) -> bool:
    """Whether the order matters in which answers to messages are added.

    Parameters
    ----------
    task, messages
        What sites are asked, by name.

    Returns
    -------
    bool
        In exact arms alone: ring integers add up to the same in any order.
    """
    requests = [message.get("request", {}) for message in messages.values()]
    return task == "release" and any(r.get("arm") in EXACT_ARMS for r in requests)


def parse(task: Any, message: Any) -> Any:
    """Read the message of a task, or refuse it.

    Parameters
    ----------
    task
        Name of a task, as it came over the wire: anything.
    message
        Likewise.

    Returns
    -------
    Form
        Of the class that the task takes.

    Raises
    ------
    Refused
        If there is no such task; with the name of the first field that is wrong.

    Guarantee
    ---------
    It reads no data.
    """
    if not isinstance(task, str) or task not in PROTOCOL:
        raise Refused("unknown request")
    for last_task, last_message, form in _last_form:
        if last_task == task and last_message is message:
            return form
    form = PROTOCOL[task].takes.parse(message)
    _last_form[:] = [(task, message, form)]
    return form
