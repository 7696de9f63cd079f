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
(:func:`capeneuro.cape.calibrate`). An algorithm never knows which arm it runs in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from capeneuro import cape, noise, privacy, secagg
from capeneuro.federation import Federation, Message
from capeneuro.queries import QUERIES
from capeneuro.site import digest


class RoundFailed(Exception):
    """A site refused or was lost; ``lost`` gives a code and a rule per site."""

    def __init__(self, lost: dict[str, str]) -> None:
        self.lost = lost
        super().__init__("; ".join(f"{name}: {why}" for name, why in lost.items()))


@dataclass(frozen=True)
class Mechanism:
    """How the queries of one stage of a study are answered.

    Parameters
    ----------
    study
        Name and digest of the study; part of the identity of each request.
    arm
        One of :data:`capeneuro.rules.Arm`.
    noise_multiplier
        1 / mu of one release, against the aggregator and the colluding sites.
    budget
        The study's promise; its unit and relation fix the sensitivities.
    noise_ratio
        ``sigma2 / gamma`` of CAPE.
    mu_factors
        Sites whose promise differs: their mu over that of the other sites.
    noise
        Sampler of the sites, see :mod:`capeneuro.noise`.
    releases
        What was released so far, appended by :meth:`answer`.
    roster
        What the sites say of themselves; asked once, on first use.
    """

    study: str
    arm: str
    noise_multiplier: float
    budget: privacy.Budget
    noise_ratio: float
    mu_factors: Mapping[str, float] = field(default_factory=dict)
    noise: Literal["rounded", "exact"] = "rounded"
    releases: list[dict[str, Any]] = field(default_factory=list)
    roster: dict[str, Message] = field(default_factory=dict)

    def describe(self, federation: Federation) -> dict[str, Message]:
        """Public descriptions of the sites of this arm."""
        if not self.roster:
            names = federation.names[:1] if self.arm == "local" else federation.names
            request = {name: {"unit": self.budget.unit} for name in names}
            self.roster.update(ask_all(federation, "describe", request))
        return self.roster

    def variances(self) -> dict[str, float]:
        """Variance of each site's noise g at unit sensitivity, for this arm."""
        mu = [self.mu_factors.get(s, 1.0) / self.noise_multiplier for s in self.roster]
        gamma = cape.arm_variances(
            self.arm, mu, self.noise_ratio, self.budget.n_colluding
        )
        return dict(zip(self.roster, gamma.tolist(), strict=True))

    def answer(
        self,
        federation: Federation,
        name: str,
        parameters: dict[str, Any],
        round_number: int = 0,
        reduction: str = "",
    ) -> np.ndarray:
        """Release one query: the weighted mean over sites with this arm's noise.

        Parameters
        ----------
        federation
            The sites.
        name, parameters
            Query and its public parameters.
        round_number
            Which release of this query it is; part of its identity.
        reduction
            Digest of the projection that the sites must have applied.

        Returns
        -------
        numpy.ndarray
            The packed statistic, float64.

        Raises
        ------
        RoundFailed
            If a site refuses or is lost.

        Guarantee
        ---------
        For each site mu-GDP with mu = factor / noise_multiplier, against the
        aggregator and the colluding sites; :func:`capeneuro.cape.views` gives the
        others' views. The sites compute the same from the request and charge it.
        """
        roster = self.describe(federation)
        message = {
            "study": self.study,
            "query": name,
            "parameters": parameters,
            "round": round_number,
            "reduction": reduction,
            "arm": self.arm,
            "unit": self.budget.unit,
            "relation": self.budget.relation,
            "variances": self.variances(),
            "n_colluding": self.budget.n_colluding,
            "noise_ratio": self.noise_ratio,
            "noise": self.noise,
            "roster": roster,
        }
        n_units = sum(site["n_units"] for site in roster.values())
        t = QUERIES[name].sensitivity(n_units, self.budget.relation, parameters)
        total: dict[str, np.ndarray] = {}

        def add(_: str, reply: Message) -> None:
            for part, x in reply.items():
                total[part] = total[part] + x if part in total else x

        ask_all(federation, "release", dict.fromkeys(roster, message), add)
        size = next(iter(total.values())).size
        gamma = (
            []
            if self.arm == "non-private"
            else t**2 * np.array(list(message["variances"].values()))
        )
        deviation = float(np.sqrt(np.sum(gamma)))
        self._record(message, size, deviation)
        if self.arm == "pooled":
            z = noise.standard_normal(size)
            return total["noisy"] + deviation * z
        if self.arm not in ("secure_sum", "cape"):
            return total["noisy"]
        h = secagg.grid(gamma, t, size, self.noise)
        if self.arm == "secure_sum":
            return secagg.from_ring(total["masked"], h)
        # Masks cancel in sum(masked) = T = sum e; sum(noisy) - T = sum (u + g).
        return secagg.from_ring(total["noisy"] - total["masked"], h)

    def project(
        self, federation: Federation, matrix: np.ndarray, norm_bound: float, clip: float
    ) -> str:
        """Have every site keep ``matrix @ clip(x / norm_bound)``; return its digest."""
        # A person's clip acts on the statistic; single samples stay as they are.
        clip = clip if self.budget.unit == "sample" else np.inf
        message = {"matrix": matrix, "norm_bound": norm_bound, "clip": clip}
        names = self.describe(federation)
        ask_all(federation, "project", dict.fromkeys(names, message))
        return digest(message)

    def _record(self, message: Message, size: int, deviation: float) -> None:
        """Append to ``releases`` what the privacy record says of this one."""
        query, parameters = QUERIES[message["query"]], message["parameters"]
        bounded = np.isfinite(parameters["clip"])
        gamma = list(message["variances"].values())
        views = cape.views(self.arm, gamma, self.noise_ratio, self.budget.n_colluding)
        sites = {}
        for k, (name, site) in enumerate(message["roster"].items()):
            t = query.sensitivity(site["n_units"], message["relation"], parameters)
            mus = {v: None if mu is None else float(mu[k]) for v, mu in views.items()}
            sites[name] = {"sensitivity": float(t) if bounded else None, "mu": mus}
        self.releases.append(
            {
                "query": query.name,
                "round": message["round"],
                "size": size,
                "arm": self.arm,
                "clip": float(parameters["clip"]) if bounded else None,
                "noise_deviation": deviation,
                "sites": sites,
            }
        )


def ask_all(
    federation: Federation, what: str, messages: dict[str, Message], fold=None
) -> dict[str, Message]:
    """Ask sites that must all answer."""
    replies = federation.ask(what, messages, fold=fold)
    if replies.lost:
        raise RoundFailed(replies.lost)
    return replies.ok
