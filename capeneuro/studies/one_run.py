"""An attack on a whole study in a single run: what canaries show of its epsilon.

The study's own releases run once more, in one process, with its budget, arm, rounds and
noise, on people who are made up: each is one of two by a coin. Whoever sees the results
and what the colluding sites drew guesses the coins by least squares, and the right ones
bound epsilon from below (:mod:`.guesses`). Of the prepared people it reads the number
of features alone, and it spends nothing. The bound never proves the promise; above it,
it would refute it.
"""

import secrets
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Accept
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.audit import CEILING, Witness
from capeneuro.federation.guesses import epsilon_lower, mu_lower
from capeneuro.federation.in_process import InProcess, Replies
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.messages import Message, digest
from capeneuro.federation.requests import Project, Request
from capeneuro.federation.rounds import Checkpoint, Round
from capeneuro.federation.rules import Limits
from capeneuro.privacy import ring
from capeneuro.privacy.accounting import epsilon_from_mu
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import scaled, without_outliers
from capeneuro.privacy.queries import QUERIES
from capeneuro.studies import kinds

# Far beyond every clip, in the unit of the features; and who is no canary.
FAR, ORDINARY = 1e3, np.float32(0)
RIDGE = 1e-6
FILE = "audit.json"


class Shown(NamedTuple):
    """What an attack in one run of a study showed, with confidence ``1 - alpha``.

    ``epsilon`` is shown of any mechanism, ``epsilon_gaussian`` of one with Gaussian
    noise, mostly more; each is below the truth with that confidence.
    """

    study: str
    epsilon: float
    epsilon_gaussian: float
    promised: float
    delta: float
    n_right: int
    n_guesses: int
    n_canaries: int
    alpha: float


class Listening(InProcess):
    """Sites in this process, whose requests and draws are kept."""

    def __init__(self, sites: Mapping[str, Witness]) -> None:
        super().__init__(sites)
        self.requests: dict[str, Request] = {}
        self.drawn: dict[str, dict[str, np.ndarray]] = {}
        self.projections: dict[str, Project] = {}

    def ask(self, what: str, messages: Mapping[str, Message], *args, **more) -> Replies:
        """Ask as :class:`InProcess` does."""
        replies = super().ask(what, messages, *args, **more)
        if what == "project":
            message = next(iter(messages.values()))
            self.projections[digest(message)] = Project.parse(message)
        if what == "release":
            request = Request.parse(next(iter(messages.values()))["request"])
            self.requests[request.digest] = request
            # Of a site the first draw is g; what it draws else is not in the sum.
            self.drawn[request.digest] = {n: self._sites[n].drawn[0] for n in messages}
        return replies


def attack(
    study: StudyConfig,
    n_canaries: int = 200,
    alpha: float = 0.05,
    seed: int | None = None,
) -> Shown:
    """Run a study on canaries, and bound its epsilon from below.

    Parameters
    ----------
    study
        Validated and prepared: only the number of its features is read.
    n_canaries
        Made-up people, at the sites that do not collude.
    alpha
        Probability of a bound that is too large.
    seed
        Of coins and people; None: others each time.

    Returns
    -------
    Shown
        The bound beside the promise.

    Raises
    ------
    ConfigError
        If the study is not prepared, or exact.
    """
    if study.arm in ("non-private", "pooled"):
        raise ConfigError(
            f"study {study.study}: arm: {study.arm} has no sites to attack"
        )
    if len(study.members) > 1:
        raise ConfigError(
            f"study {study.study}: stages: an attack is on a study of one stage, got "
            f"{', '.join(study.members)}; attack each as a study of its own, and what "
            "stages hand on by `capeneuro audit`"
        )
    rng = np.random.default_rng(seed)
    coins = rng.random(n_canaries) < 0.5
    both = _people(study, n_canaries, rng)
    here = [pair[int(coin)] for pair, coin in zip(both, coins, strict=True)]
    # No study can have this name: what is removed in the end is nobody else's.
    name = f".{study.study}-attack-{secrets.token_hex(4)}"
    reason = Accept(rule="noise", reason="an attack with made-up people")
    changes = {"study": name, "accept": (reason,), "federation": "nvflare"}
    expected = {"people": n_canaries, "volumes": both[0][0].shape[1]}
    changes["expected"] = study.expected.model_copy(update=expected)
    own, kind = study.model_copy(update=changes), kinds.of(study)
    try:
        for path in map(Path, kind.validated_files()):
            target = own.results / path.relative_to(study.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        federation = Listening(_sites(own, here))
        with threadpool_limits(1), redirect_stdout(StringIO()):
            kinds.of(own).release_all(federation, {})
        scores = _scores(own, federation, both)
    finally:
        _clean(own)
    n_guesses = n_canaries // 2
    surest = np.argsort(-np.abs(scores))[:n_guesses]
    n_right = int(np.sum((scores[surest] > 0) == coins[surest]))
    delta = study.budget.delta
    counts = n_right, n_guesses, n_canaries
    bounds = (
        epsilon_lower(*counts, delta, alpha),
        epsilon_from_mu(mu_lower(*counts, alpha), delta),
    )
    about = study.promise.epsilon, delta, *counts, alpha
    return Shown(study.identity, *bounds, *about)


def _people(
    study: StudyConfig, n: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two people for each coin; under the unit sample of one volume each."""
    found = sorted(Path("private").glob(f"*/{study.study}/projected.npz"))
    if not found:
        raise ConfigError(f"study {study.study}: not prepared; run `prepare` first")
    prepared = files.Features(found[0])
    D = len(prepared[next(iter(prepared))])
    n_volumes = 1 if study.together > 1 or study.budget.unit == "sample" else 2
    shape = (2, D, 1)
    draws = (FAR * rng.standard_normal(shape).astype("f4") for _ in range(n))
    return [tuple(np.repeat(x, n_volumes, axis=1) for x in pair) for pair in draws]


def _sites(study: StudyConfig, people: list[np.ndarray]) -> dict[str, Witness]:
    """Sites of which the last ones collude and have one ordinary person each."""
    S, c = len(study.site_names), study.n_colluding
    honest = study.site_names[: 1 if study.arm == "local" else max(S - c, 1)]
    made = {}
    for k, name in enumerate(study.site_names):
        own = people[k :: len(honest)] if name in honest else [ORDINARY * people[0]]
        own = {f"{name}-{i}": X for i, X in enumerate(own)}
        lengths = {who: X.shape[1] for who, X in own.items()}
        about = own, lengths, Ledger(None, CEILING), Limits("simulated")
        made[name] = Witness(name, *about, together=study.together)
    return made


def _scores(
    study: StudyConfig, federation: Listening, both: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Least-squares estimate of each coin, less one half, from all releases.

    Nearly without shrinkage: what a shrunk estimate leaves of the other coins would
    hide a leak, and costs little where there are more numbers than coins.
    """
    m = len(both)
    G, r = np.zeros((m, m)), np.zeros(m)
    rounds = Checkpoint(Path("private") / "_aggregator" / study.study)
    for key, request in federation.requests.items():
        total_sum = Round.read(rounds, request).total
        if total_sum is None:
            continue
        query, asked = QUERIES[request.query], request.parameters
        n_units = request.n_units
        t = query.sensitivity(n_units, request.relation, asked)
        gamma = {s: t**2 * v for s, v in request.variances.items()}
        h = ring.grid(list(gamma.values()), t, total_sum.size, request.noise)
        y = ring.from_ring(total_sum, h)
        known = list(federation.names)[len(federation.names) - study.n_colluding :]
        drawn = federation.drawn[key]
        y = y - sum(drawn[name] for name in known if name in drawn)
        deviation = np.sqrt(sum(v for name, v in gamma.items() if name not in known))
        projection = federation.projections.get(request.reduction)

        def total(
            X: np.ndarray,
            query: Any = query,
            asked: Any = asked,
            projection: Project | None = projection,
        ) -> np.ndarray:
            if projection is not None:
                bound, center = projection.norm_bound, projection.center
                X = projection.matrix.astype("f4") @ scaled(X, bound, center)
                X = without_outliers(X)
            block = Block(X, np.zeros(1, int), study.budget.unit)
            return query.total(block, **asked)

        out, into = (np.array([total(pair[b]) for pair in both]) for b in (0, 1))
        C = (into - out) / n_units / deviation
        n_others = len([name for name in known if name in drawn])
        others = n_others * total(ORDINARY * both[0][0])
        base = ((into + out).sum(axis=0) / 2 + others) / n_units
        G += C @ C.T
        r += C @ ((y - base) / deviation)
    G[np.diag_indices(m)] += RIDGE * np.trace(G) / m
    return np.linalg.solve(G, r)


def _clean(study: StudyConfig) -> None:
    for folder in (study.results, Path("private") / "_aggregator" / study.study):
        shutil.rmtree(folder, ignore_errors=True)
