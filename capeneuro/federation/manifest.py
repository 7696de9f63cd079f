"""What all parties of a study agreed on, in one file whose digest they all signed.

Who takes part with which keys, what is promised to whom, who may ask, until when. Its
digest is the full SHA-256 of all that, so two manifests that differ in anything are
two. Sites answer only for a manifest over which every site has signed the same digest:
one comparison for each site, however many there are. A change of the parties, a renewed
key or another study file is a *revision*, signed by all who remain; the promise is
counted by *lineage*, the digest of the first one, over all revisions.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from capeneuro.federation.gate import Aggregator
from capeneuro.federation.requests import Kind
from capeneuro.federation.secagg import signing
from capeneuro.privacy.accounting import Relation, Unit

Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LONGEST = 200
# Other parties read it before they sign: no line and no escape may be put into it.
Line = Annotated[
    str,
    Field(max_length=LONGEST),
    AfterValidator(lambda x: x if x.isprintable() else _fail("must be one plain line")),
]
Text = Annotated[
    Line, AfterValidator(lambda x: x if x.strip() else _fail("must not be blank"))
]


def _fail(rule: str) -> Any:
    raise ValueError(rule)


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StageFacts(_Form):
    """Facts about a site in one stage of a study, signed for that stage.

    ``offer`` is the signature of its mask key; the others are those of
    :class:`.requests.Description`, 0 and empty where the stage is not prepared yet.
    """

    offer: Hex
    n_units: int = 0
    version: Line = ""
    signature: Hex = ""


class Entry(_Form):
    """A site's facts before there is a manifest, signed with its key.

    ``mask_key`` is made for this manifest alone, and ``stages`` are facts by the
    identity of each stage.
    """

    name: Text
    institution: Text
    contact: Text
    key: Digest
    kind: Kind
    unit: Unit  # of its ceiling
    n_releases: int  # in its ledger: how much else it takes part in
    study: Digest
    mask_key: Digest
    stages: dict[Line, StageFacts]
    signature: Hex = ""

    @property
    def statement(self) -> bytes:
        """The bytes that its signature covers."""
        return b"capeneuro entry\0" + _canonical(self, "signature")

    @property
    def is_signed(self) -> bool:
        """Whether its own key signed it."""
        signature = bytes.fromhex(self.signature)
        return signing.is_signed(bytes.fromhex(self.key), signature, self.statement)


class Promise(_Form):
    """The study's promise: unit, epsilon, delta and coalition."""

    arm: Text
    epsilon: float
    site_epsilon: dict[str, float]
    delta: float
    unit: Unit
    relation: Relation
    n_colluding: int
    survivor_threshold: int


class Approval(_Form):
    """A site's signature of a manifest, in a file."""

    name: Text
    manifest: Digest
    signature: Hex


class Seat(_Form):
    """The aggregator: its keys, and its stated address."""

    at: str
    sign: Digest
    seal: Digest


class Manifest(_Form):
    """The agreement of all parties.

    Parameters
    ----------
    lineage
        Digest of revision 0; empty in it.
    revision, supersedes, why
        Number of the revision, digest of the one before, and its reason.
    study, study_digest, version
        Name, digest of the whole study file, version of the package.
    promise, aggregator, sites
        To whom, who asks, and every site's signed entry by name.
    without_noise
        What leaves each site without noise, with who states it.
    inputs
        SHA-256 of each public file that the study starts from, by its path.
    ends
        Last day on which it holds.
    """

    format: Literal[2] = 2
    lineage: Hex = ""
    revision: Annotated[int, Field(ge=0)] = 0
    supersedes: Hex = ""
    why: Line = ""
    study: Text
    study_digest: Digest
    version: Text
    promise: Promise
    without_noise: tuple[Line, ...] = ()
    inputs: dict[str, Digest] = {}
    aggregator: Seat
    sites: dict[str, Entry]
    ends: date

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        return hashlib.sha256(b"capeneuro manifest\0" + _canonical(self)).digest()

    @property
    def fingerprint(self) -> str:
        """Its digest as people publish it, 64 hexadecimal digits."""
        return self.digest.hex()

    @property
    def root(self) -> str:
        """Its lineage, of revision 0 its own digest."""
        return self.lineage or self.fingerprint

    @property
    def asker(self) -> Aggregator:
        """Keys of the aggregator."""
        keys = self.aggregator.sign, self.aggregator.seal
        return Aggregator(*map(bytes.fromhex, keys))

    @property
    def keys(self) -> dict[str, bytes]:
        """Every site's key."""
        return {name: bytes.fromhex(entry.key) for name, entry in self.sites.items()}

    @property
    def mask_keys(self) -> dict[str, bytes]:
        """Public key of every site's masks."""
        return {n: bytes.fromhex(entry.mask_key) for n, entry in self.sites.items()}

    def mask_offers(self, stage: str) -> dict[str, bytes]:
        """Every site's public mask key with its signature for a stage of the study.

        Parameters
        ----------
        stage
            Identity of the stage.

        Returns
        -------
        dict
            By site what :func:`.one_exchange.offer` gave.
        """
        return {
            name: bytes.fromhex(entry.mask_key + entry.stages[stage].offer)
            for name, entry in self.sites.items()
            if stage in entry.stages
        }

    def wrong(self) -> str:
        """A contradiction within the manifest; empty: there is none."""
        for name, entry in self.sites.items():
            if entry.name != name or entry.study != self.study_digest:
                return f"entry of {name}: for another site or study"
            if not entry.is_signed:
                return f"entry of {name}: not signed with its key"
        if len({entry.key for entry in self.sites.values()}) < len(self.sites):
            return "two sites with one key"
        if bool(self.revision) != bool(self.lineage and self.supersedes):
            return "a revision names its lineage and what it supersedes"
        return ""

    def missing(self, approvals: Mapping[str, bytes]) -> list[str]:
        """Sites whose signature of this manifest lacks among the approvals.

        Parameters
        ----------
        approvals
            By site, what :func:`approval` gave.

        Returns
        -------
        list of str
            Empty where all sites signed this very digest.

        Guarantee
        ---------
        Where it is empty, every site saw these parties, keys and promises.
        """
        statement = _approval(self.digest)
        return [
            name
            for name, key in self.keys.items()
            if not signing.is_signed(key, approvals.get(name, b""), statement)
        ]


def parse(form: type[Entry] | type[Approval] | type[Manifest], text: bytes) -> Any:
    """Read an entry, an approval or a manifest.

    Parameters
    ----------
    form
        Which of them.
    text
        Its JSON.

    Returns
    -------
    Entry, Approval or Manifest
        Well formed; what it says is not checked.

    Raises
    ------
    ValueError
        With the first key that is wrong.
    """
    try:
        return form.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        why = f"{location}: {first['msg']}" if location else "not JSON"
        kind = f"is no {form.__name__.lower()} of a study ({why.lower()})"
        raise ValueError(f"{kind}; ask for the file again") from None


def approval(manifest: Manifest, key: Ed25519PrivateKey) -> bytes:
    """A site's signature of a manifest.

    Parameters
    ----------
    manifest
        What it approves.
    key
        The key of its entry.

    Returns
    -------
    bytes
        64 bytes.
    """
    return key.sign(_approval(manifest.digest))


def entry(key: Ed25519PrivateKey, **entry_fields: Any) -> Entry:
    """A site's signed entry.

    Parameters
    ----------
    key
        Its key.
    **about
        Fields of :class:`Entry`.

    Returns
    -------
    Entry
        Signed.

    Raises
    ------
    ValueError
        With the first field that is wrong.
    """
    try:
        plain = Entry(key=key.public_key().public_bytes_raw().hex(), **entry_fields)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from None
    return plain.model_copy(update={"signature": key.sign(plain.statement).hex()})


def _approval(digest: bytes) -> bytes:
    return b"capeneuro approval\0" + digest


def _canonical(form: BaseModel, *without: str) -> bytes:
    content = form.model_dump(mode="json", exclude=set(without))
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
