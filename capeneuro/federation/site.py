"""One data holder: what it answers, one method for each task that it may be asked.

:data:`.requests.PROTOCOL` is all that may be asked, and all that leaves: what the
method of a task returns may leave the site, nothing else may, and tests pin the list
and the fields. A release is one exchange, ``release``; in the cooperative arms it is a
secure sum that all sites must answer (:mod:`.secagg.one_exchange`). Where a study does
without lost sites it takes four: ``advertise``, ``share``, ``release``, ``unmask``
(:mod:`.secagg.protocol`). An error
leaves as a code and the name of a rule, never as text. Sites enforce, the aggregator
only asks (:mod:`.rules`): a site refuses queries it does not know, noise below its
floor, a charge beyond its ceiling, a unit weaker than its own, a smaller number of
colluding sites than its own, sites it did not agree on, and arms without privacy on
real data.
"""

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capeneuro.federation import requests
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.gate import ROOM, ROOM_A_SITE
from capeneuro.federation.ledger import (
    AnswerRemoved,
    BudgetExceeded,
    Ledger,
    LedgerDamaged,
    LedgerUnwritable,
    PromiseExceeded,
)
from capeneuro.federation.messages import Message, digest, pack, unpack
from capeneuro.federation.noise_addition import perturb
from capeneuro.federation.requests import (
    PROTOCOL,
    Advertise,
    Answer,
    AskMaskKey,
    Boxes,
    Confirm,
    Describe,
    Description,
    Keys,
    MaskKey,
    Nothing,
    Project,
    Refused,
    Release,
    Request,
    Share,
    Shares,
    Signature,
    Unmask,
)
from capeneuro.federation.rules import Limits, admit
from capeneuro.federation.secagg import masking, one_exchange, signing
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.sums import Memory, Sums
from capeneuro.privacy import noise
from capeneuro.privacy.accounting import Unit
from capeneuro.privacy.blocks import Block, people
from capeneuro.privacy.clipping import scaled, without_outliers
from capeneuro.privacy.queries import QUERIES, Query, is_projection

# Vectors of an answer where they are not one.
PARTS = {"cape": 2}
# Sites that an answer may name.
MOST_SITES = 256
# Seconds of the least step of answers whose time depends on data.
LEAST_QUANTUM = 0.25


def longer(n_samples: Mapping[str, int], longest: int | None) -> str:
    """Name one person with more samples than anybody may have; empty: there is none.

    Parameters
    ----------
    n_samples
        Numbers of samples by person.
    longest
        Public limit; None: there is none.

    Returns
    -------
    str
        The name, which stays at the site.
    """
    if longest is None:
        return ""
    return min((person for person, n in n_samples.items() if n > longest), default="")


def empty(n_samples: Mapping[str, int]) -> str:
    """Name one person without samples; empty: there is none.

    Parameters
    ----------
    n_samples
        Numbers of samples by person.

    Returns
    -------
    str
        The name, which stays at the site; empty: there is none.
    """
    return min((person for person, n in n_samples.items() if n < 1), default="")


def _check_four_exchanges(request: Request) -> None:
    """Refuse an exchange that the request's kind of sum does not have."""
    if not request.does_without_lost:
        raise Refused("exchange of another kind of sum")


class Site:
    """One data holder in a federation.

    Parameters
    ----------
    name, limits
        Its name in the study, and its own rules.
    subjects, n_samples
        Features of each person, (n_features, n_samples) float32, by id, read lazily;
        numbers of their samples.
    ledger
        Its record of spending, with its ceiling and keys.
    digest
        Identity of the data, so that a stored answer is not reused for other data.
    seed
        Fixes the noise; simulated or public data only.
    together
        People in a block of sums; more than 1 only where each has one sample.
    longest
        Public number of samples that nobody has more of; None: not bounded.
    mask_key
        Secret key of its masks, 32 bytes, made for one manifest; None: derived from the
        key of the ledger for each study, where all sites are in one process.

    Raises
    ------
    ValueError
        If private data come without a ledger on disk or with a seed, or a person has
        no samples or more than ``longest``.
    """

    def __init__(
        self,
        name: str,
        subjects: Mapping[str, np.ndarray],
        n_samples: Mapping[str, int],
        ledger: Ledger,
        limits: Limits,
        digest: str = "",
        seed: int | None = None,
        together: int = 1,
        longest: int | None = None,
        mask_key: bytes | None = None,
    ) -> None:
        if limits.kind == "private" and (seed is not None or ledger.folder is None):
            raise ValueError(
                f"{name}: private data need a ledger on disk and noise from the "
                "operating system; remove `seed`, give `ledger`"
            )
        if person := empty(n_samples):
            raise ValueError(f"{name}: {person} has no samples; leave them out")
        # Privacy: what is said of everything of a person counts so many samples.
        if person := longer(n_samples, longest):
            raise ValueError(
                f"{name}: longest: nobody may have more than {longest} samples, got "
                f"{n_samples[person]} of {person}; shorten or exclude them"
            )
        self.name = name
        self._subjects = subjects
        self._n_samples = dict(n_samples)
        self._ledger = ledger
        self._limits = limits
        self._digest = digest
        self._seed, self._together = seed, together
        self._mask_key = mask_key
        self._pair_secrets: dict[tuple[str, str, bytes], bytes] = {}
        self._longest = longest or max(self._n_samples.values(), default=1)
        self._quanta: dict[tuple[Any, ...], float] = {}
        self._reduced: np.ndarray | None = None
        self._reduction = ""

    def answer(self, task: str, message: Message) -> Message:
        """Answer one task; errors become a code and the name of a rule.

        Parameters
        ----------
        task
            Name of a task of :data:`.requests.PROTOCOL`; any other is refused.
        message
            Its fields, as they came over the wire.

        Returns
        -------
        Message
            What the method of that name returns; or ``error`` (``refused``, ``budget``
            or ``failed``) and ``rule``, the name of the rule.

        Guarantee
        ---------
        No text of an error leaves: it may carry data, and stays in the site's log.
        """
        log = logging.getLogger(f"capeneuro.{self.name}")
        try:
            form = requests.parse(task, message)
            return getattr(self, task)(form).message
        except (Refused, AnswerRemoved, PromiseExceeded, secagg.Mismatch) as error:
            log.info("refused: %s", error)
            return {"error": "refused", "rule": str(error)}
        except BudgetExceeded as error:
            log.error("%s", error)
            return {"error": "budget", "rule": "ceiling"}
        except (LedgerDamaged, LedgerUnwritable) as error:
            log.error("error: %s", error)  # the last words of a run look for these
            return {"error": "failed", "rule": "ledger"}
        except Exception as error:  # Privacy: the text may carry data; it stays here.
            log.exception("%s", error)
            return {"error": "failed", "rule": "internal"}

    def room(self, task: str, message: Message) -> int:
        """Bytes that the largest answer to a task takes, for the gate.

        Parameters
        ----------
        task
            Its name.
        message
            Its fields, anything.

        Returns
        -------
        int
            The same for an answer and for a refusal.

        Guarantee
        ---------
        It depends on the request and on public numbers alone.
        """
        try:
            form = requests.parse(task, message)
            if PROTOCOL[task].names_sites:
                return ROOM + ROOM_A_SITE * MOST_SITES
            if not PROTOCOL[task].charges:
                return ROOM
            query, n_rows = self._query(form.request)
        except Refused:  # then nothing but a refusal leaves
            return ROOM
        size = query.size(n_rows, form.request.parameters)
        return ROOM + 8 * PARTS.get(form.request.arm, 1) * size

    def quantum(self, task: str, message: Message) -> float:
        """Seconds at whose multiples a task is answered over a network.

        Twice what it takes here if everybody had as many samples as anybody may have,
        measured on made-up numbers when the first request of its size comes.

        Parameters
        ----------
        task
            Its name.
        message
            Its fields, anything.

        Returns
        -------
        float
            0 for tasks whose time does not depend on data.

        Guarantee
        ---------
        It depends on the request, the number of people and public numbers alone.
        """
        if task not in PROTOCOL or not PROTOCOL[task].is_timed:
            return 0.0
        try:
            form = requests.parse(task, message)
            if isinstance(form, Project):
                key: tuple[Any, ...] = (task, *form.matrix.shape)
            else:
                request = form.request
                query, n_rows = self._query(request)
                shapes = [np.shape(x) for x in request.parameters.values()]
                key = (task, query.name, n_rows, request.arm, *shapes)
            if key not in self._quanta:
                self._quanta[key] = max(LEAST_QUANTUM, 2 * self._rehearsed(form))
            return self._quanta[key]
        except Exception:  # then it will be refused, whatever the data are
            return LEAST_QUANTUM

    def _rehearsed(self, form: Project | Release) -> float:
        """Seconds that a task takes on numbers of the largest public size."""
        n = self._together if self._together > 1 else self._longest
        n_blocks = -(-len(self._n_samples) // self._together)
        X = np.ones((self._n_features, n), np.float32)
        start = time.perf_counter()
        if isinstance(form, Project):
            form.matrix.astype("f4") @ scaled(X, form.norm_bound, form.center)
            return n_blocks * (time.perf_counter() - start)
        request = form.request
        query, n_rows = self._query(request)
        starts = np.arange(n) if self._together > 1 else np.zeros(1, int)
        start = time.perf_counter()
        block = Block(X[:n_rows], starts, request.unit)
        u = query.total(block, **request.parameters)
        spent = n_blocks * (time.perf_counter() - start)
        start = time.perf_counter()
        if not request.is_exact:
            t = query.sensitivity(request.n_units, request.relation, request.parameters)
            self._noisy(0.0 * u, t, form)
        return spent + time.perf_counter() - start

    def describe(self, message: Describe) -> Description:
        """Describe the site by public facts: sizes, public key, kind of data.

        ``version`` changes when the data do, so that a request about other data is
        another request: stored answers and masks belong to one version.

        Parameters
        ----------
        message
            ``unit``: ``"sample"`` or ``"subject"``.

        Returns
        -------
        Description
            Signed for the other sites, which check it.

        Raises
        ------
        Refused
            If the unit is weaker than that of a ceiling over private data.

        Guarantee
        ---------
        Under the subject unit only the number of subjects leaves. The version is a
        keyed digest: it tells that data changed, nothing about them.
        """
        return self._description(message.unit)

    def _description(self, unit: str) -> Description:
        if (self._limits.study or {}).get("unit", unit) != unit:
            raise Refused("study that was not agreed on")
        # Privacy: numbers of samples are public only where the unit is the sample.
        if self._guards_subjects() and unit != "subject":
            raise Refused("unit weaker than the ceiling's")
        description = Description(
            n_units=self._n_units(unit),
            key=self._ledger.public_key,
            kind=self._limits.kind,
            version=self._ledger.pseudonym(self._digest),
            signature=b"",
        )
        agreed, name = self._limits.agreed, self.name
        statement = signing.of_description(agreed, name, description.facts)
        signature = self._ledger.key.sign(statement)
        return description.model_copy(update={"signature": signature})

    def mask_key(self, message: AskMaskKey) -> MaskKey:
        """Offer the public key of its masks in a study's sums, signed.

        Parameters
        ----------
        message
            ``study``: identity of the study, or of its stage.

        Returns
        -------
        MaskKey
            The same in all stages of a study.

        Guarantee
        ---------
        Nothing leaves but a public key and a signature of it.
        """
        key = self._secret_mask_key(message.study)
        agreed = self._limits.agreed
        offer = one_exchange.offer(key, self._ledger.key, agreed, self.name)
        return MaskKey(mask_key=offer)

    def _secret_mask_key(self, study: str) -> X25519PrivateKey:
        """Secret key of its masks in a study."""
        if self._mask_key is not None:
            return X25519PrivateKey.from_private_bytes(self._mask_key)
        if self._limits.mask_keys is not None:
            raise Refused("masks of a study that has ended")
        # Privacy: sites may share a ledger and its key, never a mask.
        lineage = self._limits.lineage or study
        info = f"mask key\0{lineage}\0{self.name}".encode()
        secret = masking.derive(self._ledger.key.private_bytes_raw(), info)
        return X25519PrivateKey.from_private_bytes(secret)

    def project(self, message: Project) -> Nothing:
        """Keep ``V' (x / norm_bound - center)`` of samples for the queries to come.

        Parameters
        ----------
        message
            ``matrix`` (n_components, n_features), ``norm_bound`` and ``center``
            (n_features,): public, or released before.

        Returns
        -------
        Nothing
            The acknowledgment.

        Raises
        ------
        Refused
            If it is of another form: what data make of an odd one would be an answer.

        Guarantee
        ---------
        Nothing leaves but the acknowledgment.
        """
        if not is_projection(message.message, self._n_features):
            raise Refused("matrix does not fit the features")
        V, reduction = message.matrix.astype("f4"), digest(message.message)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [
                V @ scaled(X, message.norm_bound, message.center)
                for X in self._subjects.values()
            ]
            reduced = without_outliers(np.concatenate(parts, axis=1))
        lengths = [self._n_samples[s] for s in self._subjects]
        if [part.shape[1] for part in parts] != lengths:
            raise ValueError("lengths of the data")
        self._reduced, self._reduction = reduced, reduction
        return Nothing()

    def advertise(self, message: Advertise) -> Keys:
        """Agree to a request, and offer keys for its secure sum in four exchanges.

        Every rule and the ceiling are checked here, so that a site that will refuse
        does so before any other has spent anything.

        Parameters
        ----------
        message
            The request.

        Returns
        -------
        Keys
            For this sum.

        Raises
        ------
        Refused
            With the name of the rule that the request breaks.
        BudgetExceeded
            If the charge would go beyond the ceiling, or the study's promise.

        Guarantee
        ---------
        Nothing leaves but public keys.
        """
        request = message.request
        _, mu = self._admit(request)
        if (
            mu is not None
            and self._ledger.stored(self._answer_id(request.digest)) is None
        ):
            limits = self._limits
            self._ledger.check(self._entry(request, mu), limits.promise, limits.stages)
        _check_four_exchanges(request)
        return Keys(keys=secagg.advertise(self._party(request)))

    def share(self, message: Share) -> Boxes:
        """Split the secrets of the masks among the sites, sealed for each.

        Parameters
        ----------
        message
            ``request``, and ``advertised``: the keys of each site.

        Returns
        -------
        Boxes
            Bytes by name of each other site that advertised.

        Raises
        ------
        Refused
            With the name of the rule that the request breaks.
        Mismatch
            If keys are not those of the roster's sites, or of too few of them.

        Guarantee
        ---------
        Nothing leaves but ciphertexts for other sites; fewer of them than the survivor
        threshold tell nothing even in clear.
        """
        self._admit(message.request)
        _check_four_exchanges(message.request)
        # Privacy: read once; a word that changed without the keys would tell itself.
        before = self._fixed_before(message.request)
        party = self._party(message.request, before)
        seen = {name: bytes.fromhex(asked) for name, asked in before.last.items()}
        return Boxes(sealed=secagg.share(party, message.advertised, seen))

    def release(self, message: Release) -> Answer:
        """Answer a query in the asked arm, charged before it leaves.

        Parameters
        ----------
        message
            ``request``; of a secure sum in one exchange also ``mask_keys``, of one in
            four ``advertised``, and ``sealed``: what each other site shared with this
            one.

        Returns
        -------
        Answer
            Signed but in the exact arms.

        Raises
        ------
        Refused
            With the name of the rule that the request breaks; if the same request was
            answered in another form.
        AnswerRemoved
            If it was answered, and the aggregator has confirmed that since.
        BudgetExceeded
            If the charge would go beyond the ceiling, or the study's promise.
        Mismatch
            If what the other sites offered, advertised or sealed is not theirs for this
            study or sum; if one of them saw this site in a release that its ledger does
            not know.

        Guarantee
        ---------
        For the whole view of the aggregator and ``n_colluding`` sites, mu-GDP with the
        mu that the site computes from the request and charges; exact arms have none.
        It counts on the noise of ``survivor_threshold - n_colluding`` sites only. A
        request is answered in one form: other keys would show the difference of masks.
        """
        request = message.request
        query, mu = self._admit(request)
        if request.waits_for_all:
            self._check_keys(message)
        weight = self._n_units(request.unit) / request.n_units
        if request.is_exact:
            return Answer(noisy=weight * self._mean(query, request))
        answer_id = self._answer_id(request.digest)
        asked = hashlib.sha256(message.packed).hexdigest()
        stored = self._ledger.stored(answer_id)
        if stored is None:
            entry = replace(self._entry(request, mu), asked=asked)
            if request.waits_for_all:
                entry = self._follows(message, entry)
            limits = self._limits
            self._ledger.check(entry, limits.promise, limits.stages)
            # The same expression as the aggregator's: its grid must be bit-equal.
            t = query.sensitivity(request.n_units, request.relation, request.parameters)
            # No names for what is large of a whole brain, so that it is freed.
            noisy = self._noisy(weight * self._mean(query, request), t, message)
            reply = self._signed(request, noisy)
            del noisy
            if request.waits_for_all:  # whoever is given up later is found in it
                self._ledger.keep_roster(request.roster_digest, request.roster)
            # Privacy: the charge is on disk before the reply exists for anyone else.
            stored = self._ledger.charge(
                answer_id,
                self._subjects,
                entry,
                reply,
                message.packed if request.does_without_lost else b"",  # to unmask it
                limits.promise,
                limits.stages,
            )
        # Privacy: one request, one vector under its masks, one set of sites.
        if stored.asked != asked:
            raise Refused("another form of an answered request")
        return Answer.parse(unpack(stored.reply))

    def confirm(self, message: Confirm) -> Signature:
        """Sign the survivors of a secure sum, for the other sites to see.

        Parameters
        ----------
        message
            ``request``: its digest; ``survivors``: names.

        Returns
        -------
        Signature
            Of the survivors.

        Raises
        ------
        Refused
            If the request was not answered, or with other survivors before.
        Mismatch
            If the survivors are too few, or not in the sum.

        Guarantee
        ---------
        Nothing leaves but a signature of what the aggregator said.
        """
        party, _, _ = self._fixed(message)
        return Signature(signature=secagg.sign(party, message.survivors))

    def unmask(self, message: Unmask) -> Shares:
        """Give the shares that take the masks off the survivors' sum.

        Parameters
        ----------
        message
            ``request``: its digest; ``survivors``: names; with ``consistency`` also
            ``signatures`` of them.

        Returns
        -------
        Shares
            For each site in the sum.

        Raises
        ------
        Refused
            If the request was not answered, or with other survivors before.
        Mismatch
            If the survivors are too few or not in the sum, or their signatures are.

        Guarantee
        ---------
        For one set of survivors only, at least the survivor threshold: for each site a
        share of its self-mask or of its pair key, never both. The release that it
        belongs to is charged already.
        """
        party, request, shares = self._fixed(message)
        if request.consistency:
            secagg.check_signatures(party, message.survivors, message.signatures)
        return Shares(shares=shares)

    def _fixed(
        self, message: Confirm | Unmask
    ) -> tuple[secagg.Party, Request, dict[str, bytes]]:
        """Fix the survivors of an answered request; the shares that unmask them."""
        answer_id = self._answer_id(message.request)
        stored = self._ledger.stored(answer_id)
        if stored is None:
            raise Refused("survivors of a request that was not answered")
        if not stored.message:  # kept where it takes four exchanges
            raise Refused("survivors of a request that all sites must answer")
        release_request = Release.parse(unpack(stored.message))
        request, survivors = release_request.request, message.survivors
        if not request.does_without_lost:  # of a ledger of before
            raise Refused("survivors of a request that all sites must answer")
        # Privacy: another study's aggregator has no say in this one's sums.
        self._check_rules(request)
        party = self._party(request)
        # What is refused here is not kept as the only answer.
        shares = secagg.unmask(
            party, release_request.advertised, release_request.sealed, survivors
        )
        # Privacy: sums over two sets of survivors differ by single sites' vectors.
        is_same = self._ledger.fix_survivors(
            answer_id,
            survivors,
            asked=message.request,
            lineage=self._lineage(request),
            site=self.name,
        )
        if not is_same:
            raise Refused("other survivors than before")
        return party, request, shares

    def _answer_id(self, request: str) -> str:
        """Identity of this site's answer; sites may share a ledger."""
        return digest({"request": request, "site": self.name})

    def _party(self, request: Request, before: Memory | None = None) -> secagg.Party:
        """Its part in the secure sum of a request."""
        before = self._fixed_before(request) if before is None else before
        # Privacy: what others sealed before the last sum was fixed opens nothing now,
        # and other words have other keys.
        return secagg.Party(
            self.name,
            self._ledger.key,
            request.keys,
            request.survivor_threshold,
            # Privacy: the whole request is the context, so no mask serves two vectors.
            request.context,
            bytes.fromhex(before.digest),
        )

    def _lineage(self, request: Request) -> str:
        """Identity under which the rounds of one promise are counted."""
        return self._limits.lineage or request.study

    def _fixed_before(self, request: Request) -> Memory:
        """Sums of this lineage that this site fixed before a request's, in order."""
        answer_id = self._answer_id(request.digest)
        return self._ledger.fixed_before(answer_id, self._lineage(request), self.name)

    def _check_rules(self, request: Request) -> float | None:
        """Check a request against the rules from public facts; returns its mu."""
        description = self._description(request.unit)
        ceiling = self._ledger.ceiling
        return admit(request, self.name, description, self._limits, ceiling)

    def _admit(self, request: Request) -> tuple[Query, float | None]:
        """Check a request against all rules; returns its query and mu."""
        mu = self._check_rules(request)
        query, _ = self._query(request)
        if not (request.is_exact or np.isfinite(self._sensitivity(request))):
            raise Refused("unbounded sensitivity")
        return query, mu

    def _query(self, request: Request) -> tuple[Query, int]:
        """Query of a request, and the rows of the data that it reads."""
        query = QUERIES.get(request.query)
        if query is None:
            raise Refused("unknown query")
        n_rows = self._n_features
        if query.stage == "components":
            if self._reduced is None or request.reduction != self._reduction:
                raise Refused("query before its projection")
            n_rows = len(self._reduced)
        if not query.admits(request.parameters, n_rows):
            raise Refused("parameters of the query")
        return query, n_rows

    def _sensitivity(self, request: Request) -> float:
        """L2 sensitivity of this site's unweighted mean."""
        n_units, query = self._n_units(request.unit), QUERIES[request.query]
        return query.sensitivity(n_units, request.relation, request.parameters)

    def _mean(self, query: Query, request: Request) -> np.ndarray:
        """Exact site mean of a query; must not leave this object without noise."""
        total: np.ndarray | float = 0.0
        for block in self._blocks(query.stage, request.unit):
            part = query.total(block, **request.parameters)
            part += total  # in place: of a whole brain it is large
            total = part
        total /= self._n_units(request.unit)
        return total

    def _blocks(self, stage: str, unit: Unit) -> Iterator[Block]:
        """Yield the site's samples at a query's stage, some people at a time."""
        if stage == "features":
            yield from people(self._subjects, self._together, unit)
        else:
            lengths = np.array([self._n_samples[s] for s in self._subjects])
            yield Block(self._reduced, np.cumsum(lengths) - lengths, unit)

    def _noisy(self, u: np.ndarray, sensitivity: float, message: Release) -> Answer:
        """Add the arm's noise to the weighted statistic [thesis, Alg. 3.1]."""
        request = message.request
        noise_draw = perturb(u, sensitivity, request, self.name, self._normal)
        f, e = noise_draw.f, noise_draw.e
        del u, noise_draw  # sums below are in place: of a whole brain each is large
        if not request.is_cooperative:
            return Answer(noisy=f)
        masked = self._masks(message, f.size)
        if e is None:
            masked += f
            return Answer(masked=masked)
        masked += e
        e += f
        return Answer(noisy=e, masked=masked)

    def _masks(self, message: Release, size: int) -> np.ndarray:
        """Masks of a secure sum, in one exchange or in four."""
        request = message.request
        if request.does_without_lost:
            return secagg.masks(
                self._party(request),
                advertised=message.advertised,
                sealed=message.sealed,
                size=size,
                knows=lambda word: self._ledger.knows(self._answer_id(word.hex())),
            )
        partners = [name for name in request.roster if name != self.name]
        secrets = {name: self._pair_secret(name, message) for name in partners}
        return one_exchange.masks(secrets, self.name, self._context(message), size)

    def _context(self, message: Release) -> bytes:
        """All that the masks of a sum in one exchange are bound to."""
        # Privacy: the whole request and what this site answered last are the context,
        # so no mask serves two vectors, and none cancels where memories differ.
        memory = self._memory(message)
        digest = message.request.digest
        return one_exchange.context(digest, message.keys_digest, memory)

    def _pair_secret(self, partner: str, message: Release) -> bytes:
        """Secret in common with another site, agreed on once."""
        public = message.mask_keys[partner][: one_exchange.KEY_BYTES]
        place = message.request.study, partner, public
        if place not in self._pair_secrets:
            key = self._secret_mask_key(message.request.study)
            secret = one_exchange.agree(key, self.name, partner, public)
            self._pair_secrets[place] = secret
        return self._pair_secrets[place]

    def _check_keys(self, message: Release) -> None:
        """Refuse mask keys that are not the sites' own for this study."""
        offers, limits = message.mask_keys, self._limits
        one_exchange.check_offers(message.request.keys, limits.agreed, offers)
        if limits.mask_keys is not None:
            # Privacy: a key of before a revision may have been stolen since.
            keys = {n: offer[: one_exchange.KEY_BYTES] for n, offer in offers.items()}
            if keys != limits.mask_keys:
                raise Refused("mask keys that were not agreed on")

    def _sums(self, message: Release) -> Sums:
        """Sums that this site answered under the mask keys of a request."""
        return self._ledger.sums(message.keys_digest, self.name)

    def _memory(self, message: Release) -> dict[str, str]:
        """Digest of all sums answered before in a request's stage and the one before.

        Sums that were given up are left out: not all sites answered them.
        """
        request = message.request
        stages = {request.study, self._limits.made_from}
        return self._sums(message).memory(request.digest, stages, request.void)

    def _follows(self, message: Release, entry: ReleaseLine) -> ReleaseLine:
        """Refuse a request that does not follow the last sum; complete its ledger line.

        An honest aggregator's names a request that a restored ledger does not have.
        What it gives up is the last ones alone, of which each lost a site.
        """
        request, sums = message.request, self._sums(message)
        # Privacy: what is not known was forgotten, and would be spent again.
        if request.after and request.after not in sums.by_digest:
            raise Refused("a release that this ledger does not know")
        # Privacy: its sum would be left out of what all remember.
        if request.digest in sums.void:
            raise Refused("a release that was given up")
        of_stage = sums.of_stage[request.study]
        given_up = {*request.void} & sums.by_digest.keys()
        last = of_stage[len(of_stage) - len(given_up) :]
        # Privacy: each release that all leave out of what they remember costs a site.
        rosters = [self._roster_of(line, request) for line in last]
        pairs = pairwise([*rosters, request.roster.keys()])
        is_last = {line.sum for line in last} == given_up
        if not (is_last and all(larger > smaller for larger, smaller in pairs)):
            raise Refused("a release that was not given up")
        if of_stage and not self._roster_of(of_stage[-1], request) >= {*request.roster}:
            raise Refused("a site that was given up")
        return replace(
            entry,
            mask_keys=message.keys_digest,
            void=request.void or None,
        )

    def _roster_of(self, line: ReleaseLine, request: Request) -> Set[str]:
        """Names of the sites of a release that was answered before a request."""
        if line.roster == request.roster_digest:
            return request.roster.keys()
        names = self._ledger.roster(line.roster)
        if names is None:  # not in what was restored
            raise Refused("a release that this ledger does not know")
        return {*names}

    def _signed(self, request: Request, answer: Answer) -> bytes:
        """Pack an answer with its signature, by which a change on the way shows."""
        answer_digest = digest(answer.message)
        statement = signing.of_answer(request.context, self.name, answer_digest)
        signature = self._ledger.key.sign(statement)
        return pack({**answer.message, "signature": signature})

    def _normal(
        self, size: int, variance: float, request: Request, term: str
    ) -> np.ndarray:
        """Normal noise; from a seed only where the constructor allowed one."""
        if self._seed is None:
            z = noise.standard_normal(size)
            z *= np.sqrt(variance)
            return z
        label = [self._seed, self.name, term]
        label += [request.study, request.query, request.round, request.attempt]
        seed = hashlib.sha256(repr(label).encode()).digest()
        rng = np.random.default_rng(np.frombuffer(seed, dtype="<u4"))
        return np.sqrt(variance) * rng.standard_normal(size)

    def _n_units(self, unit: str) -> int:
        counts = self._n_samples
        return len(counts) if unit == "subject" else sum(counts.values())

    def _entry(self, request: Request, mu: float) -> ReleaseLine:
        """Line of the ledger for a release."""
        is_confirming = request.after and not self._limits.keeps_answers
        return ReleaseLine(
            study=request.study,
            query=request.query,
            round=request.round,
            attempt=request.attempt,
            arm=request.arm,
            unit=request.unit,
            relation=request.relation,
            n_colluding=request.n_colluding,
            survivor_threshold=request.survivor_threshold,
            sum=request.digest,
            after=self._answer_id(request.after) if is_confirming else None,
            site=self.name,
            roster=request.roster_digest,
            version=request.roster[self.name].version,
            lineage=self._limits.lineage or None,
            sensitivity=float(self._sensitivity(request)),
            noise=request.noise,
            noise_multiplier=1 / mu,
            mu=mu,
        )

    def _guards_subjects(self) -> bool:
        private = self._limits.kind == "private"
        return private and self._ledger.ceiling.unit == "subject"

    @cached_property
    def _n_features(self) -> int:
        """Of all people alike; each look at a person opens the file."""
        return next(iter(self._subjects.values())).shape[0]
