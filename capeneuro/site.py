"""One data holder. Its public methods are the wire protocol: read this file to audit.

What ``describe``, ``project`` and ``release`` return may leave the site; nothing else
may, and a test pins the list. An error leaves as a code and the name of a rule, never
as text. Sites enforce, the aggregator only asks (:mod:`capeneuro.rules`): a site
refuses queries it does not know, noise below its floor, a charge beyond its ceiling, a
unit weaker than its own, a smaller number of colluding sites than its own, sites it did
not agree on, and arms without privacy on real data.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from capeneuro import noise, secagg
from capeneuro.federation import Message, pack, unpack
from capeneuro.ledger import BudgetExceeded, Ledger, LedgerDamaged
from capeneuro.queries import QUERIES, Query, bounded, without_outliers
from capeneuro.rules import EXACT_ARMS, Limits, Refused, admit, check_form


class Site:
    """One data holder in a federation.

    Parameters
    ----------
    name
        Its name in the study.
    subjects
        Features of each person, (n_features, n_samples) float32, by id; read lazily.
    n_samples
        Number of samples of each person, by id.
    ledger
        Its record of spending, with its ceiling and keys.
    limits
        Its own rules.
    digest
        Identity of the data, so that a stored answer is not reused for other data.
    seed
        Fixes the noise; simulated or public data only.
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
    ) -> None:
        if limits.kind == "private" and (seed is not None or ledger.folder is None):
            raise ValueError(
                f"{name}: private data need a ledger on disk and noise from the "
                "operating system; remove `seed`, give `ledger`"
            )
        self.name = name
        self._subjects = subjects
        self._n_samples = dict(n_samples)
        self._ledger = ledger
        self._limits = limits
        self._digest = digest
        self._seed = seed
        self._reduced: np.ndarray | None = None
        self._reduction = ""

    def answer(self, what: str, message: Message) -> Message:
        """Answer one request; errors become a code and the name of a rule."""
        try:
            if what not in ("describe", "project", "release"):
                raise Refused("unknown request")
            return getattr(self, what)(message)
        except Refused as error:
            return {"error": "refused", "rule": str(error)}
        except BudgetExceeded as error:
            logging.getLogger(f"capeneuro.{self.name}").error("%s", error)
            return {"error": "budget", "rule": "ceiling"}
        except (LedgerDamaged, OSError) as error:
            logging.getLogger(f"capeneuro.{self.name}").error("%s", error)
            return {"error": "failed", "rule": "ledger"}
        except Exception as error:  # Privacy: the text may carry data; it stays here.
            logging.getLogger(f"capeneuro.{self.name}").exception("%s", error)
            return {"error": "failed", "rule": "internal"}

    def describe(self, message: Message) -> Message:
        """Tell what is public: sizes in the study's unit, public key, kind of data.

        ``version`` changes when the data do, so that a request about other data is
        another request: stored answers and masks belong to one version.

        Guarantee
        ---------
        Under the subject unit only the number of subjects leaves. The version is a
        keyed digest: it tells that data changed, nothing about them.
        """
        # Privacy: numbers of samples are public only where the unit is the sample.
        if self._guards_subjects() and message["unit"] != "subject":
            raise Refused("unit weaker than the ceiling's")
        return {
            "n_units": self._n_units(message["unit"]),
            "key": self._ledger.public_key,
            "kind": self._limits.kind,
            "version": self._ledger.pseudonym(self._digest),
        }

    def project(self, message: Message) -> Message:
        """Keep ``V' clip(x / norm_bound)`` of every sample for the queries to come.

        Parameters
        ----------
        message
            ``matrix`` (n_components, n_features), ``norm_bound``, ``clip``: public.

        Guarantee
        ---------
        Nothing leaves but the acknowledgment.
        """
        V = message["matrix"].astype("f4")
        if V.ndim != 2 or V.shape[1] != self._n_features():
            raise Refused("matrix does not fit the features")
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [
                V @ bounded(X, message["norm_bound"], message["clip"])
                for X in self._subjects.values()
            ]
            reduced = without_outliers(np.concatenate(parts, axis=1))
        lengths = [self._n_samples[s] for s in self._subjects]
        if [part.shape[1] for part in parts] != lengths:
            raise Refused("lengths of the data")
        self._reduced = reduced
        self._reduction = digest(message)
        return {}

    def release(self, message: Message) -> Message:
        """Answer a query in the asked arm, charged before it leaves.

        Parameters
        ----------
        message
            ``study``, ``query``, ``parameters``, ``round``, ``reduction``, ``arm``,
            ``unit``, ``relation``, ``variances`` (of every site's noise g, at unit
            sensitivity), ``n_colluding``, ``noise_ratio``, ``noise`` (sampler) and
            the ``roster`` (what every site described).

        Returns
        -------
        Message
            ``noisy``: weighted statistic with noise; ``masked``: the site's share of a
            secure sum. Which of them depends on the arm.

        Guarantee
        ---------
        For the whole view of the aggregator and ``n_colluding`` sites, mu-GDP with the
        mu that the site computes from the request and charges; exact arms have none.
        Sites that were told other variances share no masks with this one, so the
        total of their noise stays hidden and the loss is smaller.
        """
        query, sensitivity, mu = self._admit(message)
        # The name, for sites that share a ledger: each has an answer of its own.
        request = digest({**message, "site": self.name})
        n_units = _total(message["roster"])
        weight = self._n_units(message["unit"]) / n_units
        if message["arm"] in EXACT_ARMS:
            return {"noisy": weight * self._mean(query, message)}
        stored = self._ledger.stored(request)
        if stored is None:
            u = weight * self._mean(query, message)
            # The same expression as the aggregator's: its grid must be bit-equal.
            t = query.sensitivity(n_units, message["relation"], message["parameters"])
            reply = pack(self._noisy(u, t, message))
            # Privacy: the charge is on disk before the reply exists for anyone else.
            stored = self._ledger.charge(
                request, self._subjects, self._entry(message, sensitivity, mu), reply
            )
        return unpack(stored)

    def _admit(self, message: Message) -> tuple[Query, float, float | None]:
        """Check a request against all rules; returns its query, sensitivity, mu."""
        check_form(message)
        query = QUERIES.get(message["query"])
        if query is None:
            raise Refused("unknown query")
        described = self.describe(message)
        ceiling = self._ledger.ceiling
        mu = admit(message, self.name, described, self._limits, ceiling)
        n_rows = self._n_features()
        if query.stage == "components":
            if self._reduced is None or message["reduction"] != self._reduction:
                raise Refused("query before its projection")
            n_rows = len(self._reduced)
        if not query.admits(message["parameters"], n_rows):
            raise Refused("parameters of the query")
        sensitivity = query.sensitivity(
            self._n_units(message["unit"]), message["relation"], message["parameters"]
        )
        if message["arm"] not in EXACT_ARMS and not np.isfinite(sensitivity):
            raise Refused("unbounded sensitivity")
        return query, sensitivity, mu

    def _mean(self, query: Query, message: Message) -> np.ndarray:
        """Exact site mean of a query; must not leave this object without noise."""
        unit, total = message["unit"], 0.0
        for X, starts in self._data(query.stage):
            total = total + query.total(X, starts, unit, **message["parameters"])
        return total / self._n_units(unit)

    def _data(self, stage: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of data with the first column of each subject."""
        if stage == "features":
            for X in self._subjects.values():
                yield X, np.zeros(1, dtype=int)
        else:
            lengths = np.array([self._n_samples[s] for s in self._subjects])
            yield self._reduced, np.cumsum(lengths) - lengths

    def _noisy(self, u: np.ndarray, sensitivity: float, message: Message) -> Message:
        """Add the arm's noise to the weighted statistic [thesis, Alg. 3.1]."""
        arm = message["arm"]
        # Bit-equal everywhere: products of numbers that all sites were sent.
        gamma = {s: v * sensitivity**2 for s, v in message["variances"].items()}
        h = secagg.grid(list(gamma.values()), sensitivity, u.size, message["noise"])
        own, sigma2 = gamma[self.name], message["noise_ratio"] * gamma[self.name]
        # Privacy: refused by public numbers alone; a value that did not fit the ring
        # would be an answer.
        largest = noise.LARGEST * np.sqrt(max(own, sigma2))
        reach = message["parameters"]["clip"] + largest
        if not reach / h < secagg.LARGEST / len(gamma):
            raise Refused("range of the noise")
        # Privacy: doubles are a lattice too; what is not far finer than the grid shows.
        if message["noise"] == "rounded" and not (
            np.sqrt(own) <= secagg.FINEST * h
            and np.sqrt(sigma2) <= secagg.FINEST_ZERO_SUM * h
        ):
            raise Refused("range of the noise")
        k_f = self._on_grid(u, own, h, message, "g")
        if arm in ("local", "conventional"):
            return {"noisy": secagg.from_ring(k_f, h)}
        masks = self._masks(message, u.size)
        if arm == "secure_sum":
            return {"masked": k_f + masks}
        k_e = self._on_grid(np.zeros(u.size), sigma2, h, message, "e")
        return {"noisy": k_f + k_e, "masked": k_e + masks}

    def _on_grid(
        self, u: np.ndarray, variance: float, h: float, message: Message, which: str
    ) -> np.ndarray:
        """Statistic with noise as ring integers [docs/threat-model.md]."""
        n_sites = len(message["roster"])
        if message["noise"] == "exact":
            k = noise.discrete_normal(u.size, np.sqrt(variance) / h)
            return secagg.to_ring(u, h, n_sites) + k.view(np.uint64)
        z = self._normal(u.size, variance, message, which)
        # Privacy: add, then round once, so that rounding is post-processing.
        return secagg.to_ring(u + z, h, n_sites)

    def _masks(self, message: Message, size: int) -> np.ndarray:
        keys = {name: site["key"] for name, site in message["roster"].items()}
        # Privacy: the whole request is the context, so no mask serves two vectors.
        context = bytes.fromhex(digest(message))
        return secagg.pairwise_masks(self._ledger.key, self.name, keys, context, size)

    def _normal(
        self, size: int, variance: float, message: Message, which: str
    ) -> np.ndarray:
        """Normal noise; from a seed only where the constructor allowed one."""
        if self._seed is None:
            return np.sqrt(variance) * noise.standard_normal(size)
        label = [self._seed, self.name, which]
        label += [message[key] for key in ("study", "query", "round")]
        seed = hashlib.sha256(repr(label).encode()).digest()
        rng = np.random.default_rng(np.frombuffer(seed, dtype="<u4"))
        return np.sqrt(variance) * rng.standard_normal(size)

    def _n_units(self, unit: str) -> int:
        counts = self._n_samples
        return len(counts) if unit == "subject" else sum(counts.values())

    def _entry(self, message: Message, sensitivity: float, mu: float) -> dict[str, Any]:
        """What the ledger keeps of a release."""
        kept = ("study", "query", "round", "arm", "unit", "relation", "n_colluding")
        return {
            **{key: message[key] for key in kept},
            "roster": digest(message["roster"]),
            "sensitivity": float(sensitivity),
            "noise": message["noise"],
            "noise_multiplier": 1 / mu,
            "mu": mu,
        }

    def _guards_subjects(self) -> bool:
        private = self._limits.kind == "private"
        return private and self._ledger.ceiling.unit == "subject"

    def _n_features(self) -> int:
        return next(iter(self._subjects.values())).shape[0]


def digest(message: Message) -> str:
    """Identity of a message: the same for every site that is asked the same."""
    return hashlib.sha256(pack(message)).hexdigest()


def _total(roster: Mapping[str, dict[str, Any]]) -> int:
    return sum(site["n_units"] for site in roster.values())
