"""An attack on a study in a single run: a lower bound of its epsilon by canaries.

The study's own releases run once more, in one process, with its budget, arm, rounds and
noise, on made-up people: each is one of two by a coin. An adversary who sees the
results and the colluding sites' noise guesses the coins by least squares, and the
number of right guesses bounds epsilon from below (:mod:`.one_run_bounds`). Of the
prepared people only the number of features is read, and nothing is spent. A bound below
the promise does not prove it; a bound above refutes it.
"""

import secrets
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.audit.canaries import CEILING, Witness
from capeneuro.audit.one_run_bounds import epsilon_lower, mu_lower
from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Accept
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.messages import Message, digest
from capeneuro.federation.requests import Project, Request
from capeneuro.federation.rounds import Checkpoint, Round
from capeneuro.federation.rules import Limits
from capeneuro.federation.transport import InProcess, Replies
from capeneuro.privacy import ring
from capeneuro.privacy.accounting import epsilon_from_mu
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import scaled, without_outliers
from capeneuro.privacy.queries import QUERIES
from capeneuro.studies import registry
from capeneuro.studies.threads import limit_threads

# Deviation of canaries, far beyond every clip, in the unit of the features; and the
# factor that makes a canary an ordinary person.
FAR, ORDINARY = 1e3, np.float32(0)
RIDGE = 1e-6
FILE = "audit.json"


class AttackBounds(NamedTuple):
    """Lower bounds of a study's epsilon by an attack in one run of it.

    ``epsilon`` holds for any mechanism, ``epsilon_gaussian``, mostly more, for one with
    Gaussian noise; each is below the true epsilon with confidence ``1 - alpha``.
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


class RecordingSites(InProcess):
    """Sites in this process that record the requests and their noise."""

    def __init__(self, sites: Mapping[str, Witness]) -> None:
        super().__init__(sites)
        self.requests: dict[str, Request] = {}
        self.noise: dict[str, dict[str, np.ndarray]] = {}
        self.projections: dict[str, Project] = {}

    def ask(
        self, method: str, messages: Mapping[str, Message], *args: Any, **options: Any
    ) -> Replies:
        """Ask as :class:`InProcess` does."""
        replies = super().ask(method, messages, *args, **options)
        if method == "project":
            message = next(iter(messages.values()))
            self.projections[digest(message)] = Project.parse(message)
        if method == "release":
            request = Request.parse(next(iter(messages.values()))["request"])
            self.requests[request.digest] = request
            # A site's first draw is g; its later ones are not in the sum.
            self.noise[request.digest] = {n: self._sites[n].drawn[0] for n in messages}
        return replies


def attack(
    study: StudyConfig,
    n_canaries: int = 200,
    alpha: float = 0.05,
    seed: int | None = None,
) -> AttackBounds:
    """Run a study on canaries and bound its epsilon from below.

    Parameters
    ----------
    study
        Validated and prepared: only the number of its features is read.
    n_canaries
        Number of made-up people, at the sites that do not collude.
    alpha
        Probability of a bound that is too large.
    seed
        Of coins and people; None: new ones at each call.

    Returns
    -------
    AttackBounds
        The bounds and the promise.

    Raises
    ------
    ConfigError
        If the study is not prepared, is exact, or has several stages.
    """
    if study.arm in ("non-private", "pooled"):
        raise ConfigError(
            f"study {study.study}: arm: {study.arm} has no sites to attack"
        )
    if len(study.members) > 1:
        raise ConfigError(
            f"study {study.study}: stages: an attack is on a study of one stage, got "
            f"{', '.join(study.members)}; attack each as a study of its own, and the "
            "chain of stages by `capeneuro audit`"
        )
    rng = np.random.default_rng(seed)
    coins = rng.random(n_canaries) < 0.5
    pairs = _canary_pairs(study, n_canaries, rng)
    people = [pair[int(coin)] for pair, coin in zip(pairs, coins, strict=True)]
    # No study can have this name, so removing its folders harms no other study.
    name = f".{study.study}-attack-{secrets.token_hex(4)}"
    reason = Accept(rule="noise", reason="an attack with made-up people")
    changes = {"study": name, "accept": (reason,), "federation": "nvflare"}
    expected = {"people": n_canaries, "volumes": pairs[0][0].shape[1]}
    changes["expected"] = study.expected.model_copy(update=expected)
    attacked = study.model_copy(update=changes)
    try:
        for path in map(Path, registry.of(study).validated_files()):
            target = attacked.results / path.relative_to(study.results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        federation = RecordingSites(_sites(attacked, people))
        with limit_threads(1), redirect_stdout(StringIO()):
            registry.of(attacked).release_all(federation, {})
        scores = _scores(attacked, federation, pairs)
    finally:
        _remove_folders(attacked)
    n_guesses = n_canaries // 2
    surest = np.argsort(-np.abs(scores))[:n_guesses]
    n_right = int(np.sum((scores[surest] > 0) == coins[surest]))
    delta = study.budget.delta
    mu = mu_lower(n_right, n_guesses, n_canaries, alpha)
    return AttackBounds(
        study=study.identity,
        epsilon=epsilon_lower(n_right, n_guesses, n_canaries, delta, alpha),
        epsilon_gaussian=epsilon_from_mu(mu, delta),
        promised=study.promise.epsilon,
        delta=delta,
        n_right=n_right,
        n_guesses=n_guesses,
        n_canaries=n_canaries,
        alpha=alpha,
    )


def _canary_pairs(
    study: StudyConfig, n: int, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw two people for each coin; under the unit sample of one volume each."""
    paths = sorted(Path("private").glob(f"*/{study.study}/projected.npz"))
    if not paths:
        raise ConfigError(f"study {study.study}: not prepared; run `prepare` first")
    prepared = files.Features(paths[0])
    D = len(prepared[next(iter(prepared))])
    n_volumes = 1 if study.together > 1 or study.budget.unit == "sample" else 2
    shape = (2, D, 1)
    draws = (FAR * rng.standard_normal(shape).astype("f4") for _ in range(n))
    return [tuple(np.repeat(x, n_volumes, axis=1) for x in pair) for pair in draws]


def _sites(study: StudyConfig, people: list[np.ndarray]) -> dict[str, Witness]:
    """Make sites of people; the last ones collude and have one ordinary person each."""
    S, c = len(study.site_names), study.n_colluding
    honest = study.site_names[: 1 if study.arm == "local" else max(S - c, 1)]
    sites = {}
    for k, name in enumerate(study.site_names):
        arrays = people[k :: len(honest)] if name in honest else [ORDINARY * people[0]]
        subjects = {f"{name}-{i}": X for i, X in enumerate(arrays)}
        sites[name] = Witness(
            name,
            subjects,
            {subject: X.shape[1] for subject, X in subjects.items()},
            Ledger(None, CEILING),
            Limits("simulated"),
            together=study.together,
        )
    return sites


def _scores(
    study: StudyConfig,
    federation: RecordingSites,
    pairs: list[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Least-squares estimate of each coin, less one half, from all releases.

    Nearly without shrinkage: with it, contributions of the other coins would remain and
    hide a leak. That costs little where there are more numbers than coins.
    """
    m = len(pairs)
    G, r = np.zeros((m, m)), np.zeros(m)
    rounds = Checkpoint(Path("private") / "_aggregator" / study.study)
    # Sites that do not collude come first.
    colluding = federation.names[len(federation.names) - study.n_colluding :]
    for key, request in federation.requests.items():
        total_sum = Round.read(rounds, request).total
        if total_sum is None:
            continue
        query, parameters = QUERIES[request.query], request.parameters
        n_units = request.n_units
        t = query.sensitivity(n_units, request.relation, parameters)
        gamma = {s: t**2 * v for s, v in request.variances.items()}
        h = ring.grid(list(gamma.values()), t, total_sum.size, request.noise)
        y = ring.from_ring(total_sum, h)
        noise = federation.noise[key]
        y = y - sum(noise[name] for name in colluding if name in noise)
        deviation = np.sqrt(sum(v for s, v in gamma.items() if s not in colluding))
        projection = federation.projections.get(request.reduction)

        def total(
            X: np.ndarray,
            query: Any = query,
            parameters: Any = parameters,
            projection: Project | None = projection,
        ) -> np.ndarray:
            if projection is not None:
                bound, center = projection.norm_bound, projection.center
                X = projection.matrix.astype("f4") @ scaled(X, bound, center)
                X = without_outliers(X)
            block = Block(X, np.zeros(1, int), study.budget.unit)
            return query.total(block, **parameters)

        out, into = (np.array([total(pair[b]) for pair in pairs]) for b in (0, 1))
        C = (into - out) / n_units / deviation
        n_ordinary = len([name for name in colluding if name in noise])
        ordinary = n_ordinary * total(ORDINARY * pairs[0][0])
        base = ((into + out).sum(axis=0) / 2 + ordinary) / n_units
        G += C @ C.T
        r += C @ ((y - base) / deviation)
    G[np.diag_indices(m)] += RIDGE * np.trace(G) / m
    return np.linalg.solve(G, r)


def _remove_folders(study: StudyConfig) -> None:
    for folder in (study.results, Path("private") / "_aggregator" / study.study):
        shutil.rmtree(folder, ignore_errors=True)
