"""How a query is answered: one weighted noisy mean over the sites, in one of six arms.

===============  ============================================  =======================
arm              what the aggregator sees                       noise variance of sum
===============  ============================================  =======================
``non-private``  exact site means (simulated or public data)   0
``pooled``       the same; a trusted curator adds noise once   t^2 / mu^2
``local``        one site's mean with its own noise            (S t)^2 / mu^2, one site
``conventional`` each site's mean with its own noise           S t^2 / mu^2
``cape``         noisy means and the total of zero-sum noise   (S / S_H) t^2 / mu^2
``secure_sum``   only the sum of means with partial noise      (S / S_H) t^2 / mu^2
===============  ============================================  =======================

t is the sensitivity of a weighted site mean, c / N with w_s = N_s / N, the same for
every site, and mu the promise; with unequal promises the sites' noises differ
(:func:`.calibration.calibrate`). S_H counts the honest among the fewest sites that a
release may rest on; where sites dropped out, the mean is over the others. An algorithm
never knows which arm it runs in.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Literal

import numpy as np

from capeneuro.federation.messages import Message, digest
from capeneuro.federation.requests import (
    COOPERATIVE_ARMS,
    Description,
    MaskKey,
    Request,
)
from capeneuro.federation.rounds import (
    Checkpoint,
    RoundFailed,
    RoundVoid,
    ask_enough,
    gather,
)
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.transport import Federation
from capeneuro.privacy import accounting, calibration, noise, parties, ring
from capeneuro.privacy.queries import QUERIES, largest_contribution


@dataclass(frozen=True)
class Release:
    """The answer to one query, as the aggregator gets it.

    Parameters
    ----------
    value
        The packed statistic, float64: the mean over all units of the survivors, with
        the arm's noise.
    deviation
        Standard deviation of that noise in each coordinate; 0 without privacy.
    n_units
        Public number of units behind it, persons or samples.
    survivors
        Sites that are in it.
    mu
        Largest loss of any site against the aggregator and the colluding sites;
        infinite without privacy.
    """

    value: np.ndarray
    deviation: float
    n_units: int
    survivors: tuple[str, ...]
    mu: float


@dataclass(frozen=True)
class Mechanism:
    """How the queries of one stage of a study are answered.

    Parameters
    ----------
    study
        Name and digest of the study; part of the identity of each request.
    arm
        One of :data:`.requests.Arm`.
    noise_multiplier
        1 / mu of one release, against the aggregator and the colluding sites.
    budget
        The study's promise; its unit and relation fix the sensitivities.
    noise_ratio
        ``sigma2 / gamma`` of CAPE.
    mu_factors
        Sites whose promise differs: their mu over that of the other sites.
    noise
        Sampler of the sites, see :mod:`.noise`.
    consistency
        Whether sites sign the survivors before they unmask; see
        :mod:`.secagg`.
    n_releases
        Releases that the promise pays for; a void one is made up for by another
        attempt only while some are left. None: no other attempt.
    checkpoint
        Where the aggregator keeps what it knows of its rounds.
    check
        Called with the roster before the first release; raises where none shall be.
    releases
        Records of what was released so far, void rounds included: what the privacy
        record says of each. :meth:`answer` appends to it; what a release gave is in the
        :class:`Release` that it returns.
    gone
        Sites that the operator gave up, in this order: releases after that are of the
        others, and one that they had not answered is void.
    mask_keys
        By site its offer of a key of masks, as the manifest has it; empty: the sites
        are asked once, on first use.
    roster
        What the sites say of themselves, asked once, on first use.
    """

    study: str
    arm: str
    noise_multiplier: float
    budget: accounting.Budget
    noise_ratio: float
    mu_factors: Mapping[str, float] = field(default_factory=dict)
    noise: Literal["rounded", "exact"] = "rounded"
    consistency: bool = False
    n_releases: int | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    check: Callable[[Mapping[str, Description]], None] | None = None
    releases: list[dict[str, Any]] = field(default_factory=list)
    gone: tuple[str, ...] = ()
    roster: dict[str, Description] = field(default_factory=dict)
    mask_keys: dict[str, bytes] = field(default_factory=dict)

    def describe(self, federation: Federation) -> dict[str, Description]:
        """Public descriptions of the sites of this arm.

        A site that is away is described as it was before.

        Parameters
        ----------
        federation
            The sites.

        Returns
        -------
        dict
            By site what :meth:`.site.Site.describe` gives; the first site alone in the
            arm ``local``.

        Raises
        ------
        RoundFailed
            If too few sites answer, or one is away that never described itself.
        """
        if not self.roster:
            names = federation.names[:1] if self.arm == "local" else federation.names
            before = self.checkpoint.read(self._roster_place)
            described: dict[str, Message] = {}

            def keep(name: str, reply: Message) -> None:
                Description.model_validate(reply)
                described[name] = reply

            present = [name for name in names if name not in self.gone]
            message = {"unit": self.budget.unit}
            messages = dict.fromkeys(present, message)
            replies = federation.ask("describe", messages, fold=keep)
            facts = {**before.get("roster", {}), **described}
            n_dropout = self.budget.coalition(len(names)).n_dropout
            enough = len(described) >= len(present) - n_dropout
            if not enough or set(present) - set(facts):
                raise RoundFailed(replies.lost)
            offers = self._offers(federation, present, before.get("mask_keys", {}))
            # Who was given up before it was in any release is in none.
            known = [name for name in names if name in facts]
            self.roster.update({n: Description.parse(facts[n]) for n in known})
            self.mask_keys.update(offers)
        return self.roster

    @property
    def _roster_place(self) -> str:
        """Name of the state that keeps the roster and the mask keys."""
        return f"roster-{self.arm}-{self.budget.unit}"

    def _keep_roster(self) -> None:
        """Keep the roster of all sites, for releases during which some are away."""
        facts = {name: site.message for name, site in self.roster.items()}
        state = {"roster": facts, "mask_keys": self.mask_keys}
        if state != self.checkpoint.read(self._roster_place):
            self.checkpoint.write(self._roster_place, state)

    def _offers(
        self, federation: Federation, present: list[str], before: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Mask keys of all sites, where the sums of this mechanism have masks."""
        n_sites = len(federation.names)
        waits = self.budget.coalition(n_sites).n_dropout == 0
        if not waits or self.arm not in COOPERATIVE_ARMS:
            return {}
        if self.mask_keys:  # of the manifest
            return self.mask_keys
        offers = {n: key for n, key in before.items() if n in federation.names}

        def keep(name: str, reply: Message) -> None:
            offers[name] = MaskKey.model_validate(reply).mask_key

        message = {"study": self.study}
        messages = dict.fromkeys(present, message)
        replies = federation.ask("mask_key", messages, fold=keep)
        if set(present) - set(offers):
            raise RoundFailed(replies.lost)
        return offers

    @property
    def threshold(self) -> int:
        """Fewest sites that must keep a projection."""
        present = [name for name in self.roster if name not in self.gone]
        return len(present) - self.budget.coalition(len(self.roster)).n_dropout

    def variances(self, names: Collection[str] | None = None) -> dict[str, float]:
        """Variance of each site's noise g at unit sensitivity, for this arm.

        Parameters
        ----------
        names
            Sites of a release; None: all of the roster.

        Returns
        -------
        dict
            By site gamma; times the squared sensitivity it is the variance. Zero
            without privacy.

        Guarantee
        ---------
        Enough noise for every site's promise, from :func:`.calibration.arm_variances`.
        """
        names = self.roster if names is None else names
        mu = [self.mu_factors.get(s, 1.0) / self.noise_multiplier for s in names]
        coalition = self.budget.coalition(len(names))
        gamma = calibration.arm_variances(self.arm, mu, self.noise_ratio, coalition)
        return dict(zip(names, gamma.tolist(), strict=True))

    def clip(self, bound: float) -> float:
        """Bound that one unit's part is clipped to in this arm; none without privacy.

        Parameters
        ----------
        bound
            The bound of the private arms, in the unit of the query.

        Returns
        -------
        float
            ``bound``, or infinity in the arm ``non-private``, whose sites are exact.

        Guarantee
        ---------
        Where sites add noise, each unit's part is bounded: they refuse an infinite
        bound.
        """
        return np.inf if self.arm == "non-private" else float(bound)

    def answer(
        self,
        federation: Federation,
        name: str,
        parameters: dict[str, Any],
        round_number: int = 0,
        reduction: str = "",
    ) -> Release:
        """Release one query: the weighted mean over sites with this arm's noise.

        Parameters
        ----------
        federation
            The sites.
        name, parameters
            Query of :data:`.queries.QUERIES` and its public parameters, ``clip`` among
            them. Whether anything is clipped is the arm's to say (:meth:`clip`).
        round_number
            Which release of this query it is, from 0; part of its identity.
        reduction
            Digest of the projection that the sites must have applied; empty: none.

        Returns
        -------
        Release
            The packed statistic, the level of its noise, and who is in it.

        Raises
        ------
        RoundFailed
            If too few sites answer; the same call goes on from there.

        Guarantee
        ---------
        For each site mu-GDP with mu = factor / noise_multiplier, against the
        aggregator and the colluding sites; :func:`.parties.views` gives the
        others' views. The sites compute the same from the request and charge it.
        """
        roster = self.describe(federation)
        if self.check is not None and not self.releases:
            self.check(roster)
        if not self.releases:
            self._keep_roster()
        parameters = {**parameters, "clip": self.clip(parameters["clip"])}
        message = {
            "study": self.study,
            "query": name,
            "parameters": parameters,
            "round": round_number,
            "reduction": reduction,
            "arm": self.arm,
            "unit": self.budget.unit,
            "relation": self.budget.relation,
            "n_colluding": self.budget.n_colluding,
            "consistency": self.consistency,
            "noise_ratio": self.noise_ratio,
            "noise": self.noise,
        }
        request, total, survivors = self._gather(federation, message)
        # Weights over those who are in the sum; exactly 1 where nobody is missing.
        n_here = sum(roster[name].n_units for name in survivors)
        survivor_factor = request.n_units / n_here
        if self.arm == "non-private":
            self._record(request, total.size, 0.0, survivors)
            return Release(
                value=survivor_factor * total,
                deviation=0.0,
                n_units=n_here,
                survivors=tuple(survivors),
                mu=np.inf,
            )
        t = QUERIES[name].sensitivity(request.n_units, self.budget.relation, parameters)
        gamma = {s: t**2 * v for s, v in request.variances.items()}
        # The pooled arm's noise is the curator's, whoever is in the sum.
        noisy_sites = gamma if self.arm == "pooled" else survivors
        deviation = float(np.sqrt(np.sum([gamma[name] for name in noisy_sites])))
        self._record(request, total.size, survivor_factor * deviation, survivors)
        if self.arm == "pooled":
            value = total + deviation * noise.standard_normal(total.size)
        else:
            h = ring.grid(list(gamma.values()), t, total.size, self.noise)
            value = ring.from_ring(total, h)
        value *= survivor_factor  # in place: of a whole brain it is large
        largest = max(self.mu_factors.get(name, 1.0) for name in request.roster)
        mu = largest / self.noise_multiplier
        return Release(
            value=value,
            deviation=survivor_factor * deviation,
            n_units=n_here,
            survivors=tuple(survivors),
            mu=mu,
        )

    def _gather(
        self, federation: Federation, message: Message
    ) -> tuple[Request, np.ndarray, list[str]]:
        """Sum of a round; a void one is attempted again while the promise lasts.

        Sites that were given up may have been in earlier rounds, which stay as they
        were; a round that began with one of them and did not end is void.
        """
        for n_gone in range(len(self.gone)):
            for form in self._begun(message, self.gone[:n_gone]):
                request = self._linked(form)
                if "total" in self.checkpoint.read(request.digest):
                    return request, *self._ask(federation, request)
                self._give_up(request)
        for attempt in count():
            form = self._of_roster({**message, "attempt": attempt}, self.gone)
            request = self._linked(form)
            if self._has_other_keys(form, request):
                # A site that was charged for it refuses another attempt that its
                # promise does not pay for, so if all go on nobody was.
                if len(self.releases) + 1 < (self.n_releases or 0):
                    self._give_up(request)
                continue
            try:
                return request, *self._ask(federation, request)
            except RoundVoid:
                self._give_up(request)

    def _begun(self, message: Message, gone: Collection[str]) -> Iterator[Message]:
        """Attempts that a round began with, while only these sites were gone."""
        forms = (
            self._of_roster({**message, "attempt": attempt}, gone)
            for attempt in count()
        )
        return takewhile(lambda form: self.checkpoint.read(_link(form)), forms)

    def _has_other_keys(self, form: Message, request: Request) -> bool:
        """Whether a round began under the mask keys of an earlier manifest."""
        began_with = self.checkpoint.read(_link(form)).get("keys", self._keys_digest)
        is_over = "total" in self.checkpoint.read(request.digest)
        return began_with != self._keys_digest and not is_over

    @property
    def _keys_digest(self) -> str:
        """Digest of all sites' mask keys, which a revision of the manifest changes."""
        return one_exchange.digest_of_keys(self.mask_keys)

    def _give_up(self, request: Request) -> None:
        """Record a void round; raise RoundVoid if the promise pays for no other."""
        self._record(request, 0, None, [])
        if len(self.releases) >= (self.n_releases or 0):
            raise RoundVoid({"round": "void: the promise pays for no other attempt"})

    def _ask(
        self, federation: Federation, request: Request
    ) -> tuple[np.ndarray, list[str]]:
        """Sum of one attempt, and the sites in it."""

        def is_sum(total: np.ndarray) -> bool:
            """Whether a sum is no larger than statistics and noise can be."""
            query, parameters = QUERIES[request.query], request.parameters
            t = query.sensitivity(request.n_units, request.relation, parameters)
            gamma = [t**2 * v for v in request.variances.values()]
            h = ring.grid(gamma, t, total.size, self.noise)
            steps = np.abs(total.view(np.int64)).max(initial=0)
            return steps <= largest_total(request, t, h)

        answered = gather(federation, request, self.checkpoint, self.mask_keys, is_sum)
        chain = self.checkpoint.read(self._chain_place)
        if request.digest in chain.get("open", ()):
            self.checkpoint.write(self._chain_place, {"finished": request.digest})
        return answered

    def _of_roster(self, message: Message, gone: Collection[str]) -> Message:
        """Complete a request for the sites that are not gone."""
        roster = {n: site for n, site in self.roster.items() if n not in gone}
        coalition = self.budget.coalition(len(roster))
        return {
            "attempt": 0,
            **message,
            "variances": self.variances(roster),
            "survivor_threshold": len(roster) - coalition.n_dropout,
            "roster": {name: site.message for name, site in roster.items()},
        }

    def _linked(self, message: Message) -> Request:
        """Name the request before this one; the same whenever it is made again."""
        request = Request.parse(message)
        # Rounds of four exchanges that began when they named none stay as they are.
        if request.is_exact or self.checkpoint.read(request.digest):
            return request
        place, link = _link(message), self.checkpoint.read(_link(message))
        if not link:
            chain = self.checkpoint.read(self._chain_place)
            link = {"after": chain.get("finished", ""), "void": []}
            link["keys"] = self._keys_digest
            if set(chain.get("roster", ())) > set(request.roster):
                link["void"] = chain["open"]  # who is gone now did not answer them
            self.checkpoint.write(place, link)
        named = {key: link[key] for key in ("after", "void")}
        request = Request.parse({**message, **named})
        if "total" not in self.checkpoint.read(request.digest):
            open_digests = [*link["void"], request.digest]
            state = {"finished": link["after"], "open": open_digests}
            names = list(request.roster)
            self.checkpoint.write(self._chain_place, {**state, "roster": names})
        return request

    @property
    def _chain_place(self) -> str:
        """Name of the state that keeps the last requests under these mask keys."""
        return f"last-{self._keys_digest[:16]}"

    def project(
        self,
        federation: Federation,
        matrix: np.ndarray,
        norm_bound: float,
        center: np.ndarray | None = None,
    ) -> str:
        """Have all sites keep ``matrix @ (x / norm_bound - center)``; its digest.

        Parameters
        ----------
        federation
            The sites.
        matrix
            Public or released, (n_components, n_features).
        norm_bound
            Public number that samples are divided by, in the unit of the data.
        center
            Released before, (n_features,), in units of ``norm_bound``; None: zero.

        Returns
        -------
        str
            Digest that later requests name as their ``reduction``.

        Raises
        ------
        RoundFailed
            If fewer sites than the threshold answer.

        Guarantee
        ---------
        Nothing is released: sites keep the projected samples to themselves.
        """
        if center is None:
            center = np.zeros(matrix.shape[1])
        message = {"matrix": matrix, "norm_bound": norm_bound, "center": center}
        messages = dict.fromkeys(self.describe(federation), message)
        ask_enough(federation, self.threshold, "project", messages)
        return digest(message)

    def _record(
        self,
        request: Request,
        size: int,
        deviation: float | None,
        survivors: list[str],
    ) -> None:
        """Append this release's entry of the privacy record to ``releases``.

        Losses are those that the sites charge, whoever survives.
        """
        query, parameters = QUERIES[request.query], request.parameters
        clip = float(parameters["clip"])
        bounded = np.isfinite(clip)
        apart = {}
        if query.distance is not None:  # of what was asked for, which is not here
            apart["distance"] = query.distance(parameters)
        gamma = list(request.variances.values())
        coalition = self.budget.coalition(len(request.roster))
        views = parties.views(self.arm, gamma, self.noise_ratio, coalition)
        sites = {}
        for k, (name, site) in enumerate(request.roster.items()):
            t = query.sensitivity(site.n_units, request.relation, parameters)
            mus = {v: None if mu is None else float(mu[k]) for v, mu in views.items()}
            sites[name] = {
                "n_units": site.n_units,
                "sensitivity": float(t) if bounded else None,
                "variance": gamma[k],
                "mu": mus,
            }
        self.releases.append(
            {
                "query": query.name,
                "round": request.round,
                "size": size,
                "arm": self.arm,
                "clip": clip if bounded else None,
                **apart,
                "noise_deviation": deviation,
                "survivors": survivors,
                "sites": sites,
            }
        )


def _link(message: Message) -> str:
    """Name of the state that keeps the request before another one."""
    return f"link-{digest(message)}"


def largest_total(request: Request, sensitivity: float, h: float) -> float:
    """Largest sum of all sites' statistics with noise g, in steps of the grid.

    Parameters
    ----------
    request
        The request.
    sensitivity, h
        As in :func:`perturb`, and the grid step.

    Returns
    -------
    float
        No coordinate of an honest sum exceeds it; one whose masks do not cancel does,
        but for a share of 2^-30.
    """
    deviations = [sensitivity * v**0.5 for v in request.variances.values()]
    noise_reach = noise.LARGEST * sum(deviations) + len(deviations) * h
    return (largest_contribution(request.parameters) + noise_reach) / h
