"""Sites in memory for experiments: simulated or public data, exact statistics kept.

Many methods of a grid are run on the same data, and their exact statistics are what
takes time. Ledgers are in memory, so what a cell spends ends with it. Everything is
checked, charged and noised as in a study; nothing is signed, masked or sealed, since
there is nobody to keep it from, and what is released has the same law.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any
from unittest import mock

import numpy as np

from capeneuro.algorithms import confidence
from capeneuro.algorithms.pca import Subspace, principal_subspace
from capeneuro.config.errors import ConfigError
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.messages import Message, digest
from capeneuro.federation.noise_addition import perturb
from capeneuro.federation.requests import Answer, Release, Request
from capeneuro.federation.rounds import ask_enough
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Federation, Ungated
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.queries import Query

People = dict[str, dict[str, np.ndarray]]


class RememberingSite(Site):
    """A site that computes a statistic of its features once for all runs on its data.

    Exact statistics are what takes time; every run adds noise of its own. It also notes
    the weights of each round, of mini-blocks those of each epoch, which the aggregator
    knows.
    """

    def __init__(self, *arguments: Any, memo: dict[Any, np.ndarray]) -> None:
        super().__init__(*arguments)
        self.weights: list[np.ndarray] = []
        self._memo = memo

    def _mean(self, query: Query, request: Request) -> np.ndarray:
        parameters = request.parameters
        if query.stage != "features" or "center" in parameters:
            if "W" in parameters and not parameters.get("block"):
                self.weights.append(parameters["W"])
            return super()._mean(query, request)
        # Parameters may be arrays.
        key = (self.name, query.name, request.unit, digest(parameters))
        if key not in self._memo:
            self._memo[key] = super()._mean(query, request)
        return self._memo[key]

    def _check_keys(self, message: Release) -> None:
        if message.mask_keys:  # else nothing is masked
            super()._check_keys(message)

    def _noisy(self, u: np.ndarray, sensitivity: float, message: Release) -> Answer:
        if message.mask_keys or message.advertised:  # a secure sum, after all
            return super()._noisy(u, sensitivity, message)
        # CAPE's zero-sum noise leaves the sum again, to the last bit: it is not drawn.
        request = Request.parse({**message.request.message, "arm": "conventional"})
        noise_draw = perturb(u, sensitivity, request, self.name, self._normal)
        return Answer(noisy=noise_draw.f)


class Open(Mechanism):
    """Releases whose parts the sites give in the open; charge, noise and law stay."""

    def _gather(
        self, federation: Federation, message: Message
    ) -> tuple[Request, np.ndarray, list[str]]:
        request = Request.parse(self._of_roster(message, ()))
        question = {"request": request.message}
        messages = dict.fromkeys(request.roster, question)
        parts: list[np.ndarray] = []

        def keep(_: str, reply: Message) -> None:
            parts.append(reply["noisy"])

        there = ask_enough(federation, self.threshold, "release", messages, keep)
        return request, reduce(np.add, parts), there


def federate(
    people: People,
    ceiling: accounting.Budget,
    memo: dict[Any, np.ndarray] | None = None,
) -> dict[str, RememberingSite]:
    """Make sites that refuse to spend more than ``ceiling``, ledgers in memory."""
    memo = {} if memo is None else memo
    sites = {}
    for name, own in people.items():
        lengths = {person: X.shape[1] for person, X in own.items()}
        about = (name, own, lengths, Ledger(None, ceiling), Limits("simulated"))
        sites[name] = RememberingSite(*about, memo=memo)
    return sites


def at(options: Mapping[str, Any], epsilon: float) -> dict[str, Any]:
    """Look options up that differ by epsilon, such as ``clip: {0.1: 1.5, 1: 3}``."""
    found = {}
    for name, value in options.items():
        by_epsilon = isinstance(value, dict) and not any(map(_is_word, value))
        if by_epsilon and epsilon not in value:
            known = ", ".join(map(str, value))
            raise ConfigError(f"{name}: lacks epsilon {epsilon:g}, has {known}")
        found[name] = value[epsilon] if by_epsilon else value
    return found


def _is_word(key: Any) -> bool:
    return isinstance(key, str)


def mechanism(
    mu: float,
    arm: str,
    budget: accounting.Budget,
    n_sites: int,
    noise_ratio_per_site: float = cape.NOISE_RATIO_PER_SITE,
) -> Mechanism:
    """How sites answer in an arm with releases of mu each."""
    ratio = noise_ratio_per_site * n_sites
    return Open("figure", arm, 1 / mu, budget, ratio)


@contextmanager
def whole_release() -> Iterator[None]:
    """Choose models on all that was released: nothing is stated of them.

    A study chooses on one half of a noise split, with 14% more noise; printed methods
    split nothing, and all are to be compared alike.
    """
    with mock.patch.multiple(
        confidence,
        split=lambda released: (released, released),
        split_sampling=lambda chosen, judged, like: (chosen, judged),
        correlation=lambda *_: confidence.UNKNOWN,
    ):
        yield


def run_pca(
    sites: Mapping[str, Site],
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> Subspace:
    """Run PCA in the arm of a mechanism."""
    return principal_subspace(
        Ungated(sites), mechanism, n_components, norm_bound, clip, center
    )
