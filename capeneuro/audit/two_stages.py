"""A row of the audit that goes through two stages of a study.

Two worlds differ in one person of the first site. Stage 1 releases the second moment of
runs, whose leading directions stand for components; each site measures the components'
amplitude in its people, as studies of stages do; stage 2 releases the second moment of
these measures. The adversary has the messages of both stages, and the claim is the cost
of both together.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.audit import canaries
from capeneuro.audit.canaries import Case, Finding
from capeneuro.config.rows import MeasuresOptions
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.rules import Limits
from capeneuro.federation.transport import Ungated
from capeneuro.persons.measures import by_components
from capeneuro.privacy import accounting

NAME, QUERY = "two stages", "second_moment"
# Parts of mu^2: the later stage has most, so that an error there shows.
SHARES = (0.1, 0.9)
# People at all sites together, at least one at each; components; and the clip.
N_PEOPLE, N_COMPONENTS, CLIP = 12, 2, 1.0
# Courses of two components: of mean 0, and uncorrelated.
COURSES = np.array([[1, -1, 1, -1], [1, 1, -1, -1]], "f4")
# Strengths of both components: in ordinary people, which the release finds in either
# world; and in the attacked person, who has the first alone or the second alone, which
# moves both stages by their sensitivity.
ORDINARY, CANARY = (3.0, 0.5), ((1e3, 0.0), (0.0, 1e3))
AMPLITUDE = MeasuresOptions(measures=("amplitude",))


def transcript(case: Case, world: int, study: str = "") -> tuple:
    """Run both stages with new sites, ledgers and keys (:func:`.canaries.transcript`).

    Parameters
    ----------
    case
        The attacked row; ``mu`` is for both stages together.
    world
        Which of the two persons the attacked one is, 0 or 1.
    study
        Name of the transcript.

    Returns
    -------
    tuple
        The adversary's view; the released values less the exact means over clipped
        persons; their deviations on record; and the claimed mu.
    """
    n = max(N_PEOPLE // case.n_sites, 1)
    people = [
        {f"{s}-{i}": _runs(ORDINARY) for i in range(n)} for s in range(case.n_sites)
    ]
    people[0]["0-0"] = _runs(CANARY[world])
    ledgers = [Ledger(None, canaries.CEILING) for _ in people]
    budget = accounting.Budget(
        1.0, canaries.DELTA, case.unit, "replace-one", case.n_colluding
    )
    view, errors, recorded, releases = [], [], [], []
    features, value = people, np.zeros(0)
    for stage, share in enumerate(SHARES):
        if stage:
            C = linalg.unpack_symmetric(value)
            A = linalg.top_eigenpairs(C, N_COMPONENTS)[1]
            features = [_measured(subjects, A) for subjects in people]
        sites = [
            canaries.Witness(f"s{s}", X, _lengths(X), ledgers[s], Limits("simulated"))
            for s, X in enumerate(features)
        ]
        mechanism = canaries.Clipping(
            f"{study} {stage}",
            case.arm,
            1 / (case.mu * share**0.5),
            budget,
            case.noise_ratio,
        )
        federation = Ungated({site.name: site for site in sites})
        parameters = {"norm_bound": 1.0, "clip": CLIP}
        value = mechanism.answer(federation, QUERY, parameters, 0).value
        view += canaries.seen_by(case, sites, value, [])[0]
        errors.append(value - _mean(features))
        recorded += [[r["noise_deviation"]] * r["size"] for r in mechanism.releases]
        releases += mechanism.releases
    mu = canaries.claimed(case, ledgers[0], releases)
    return *map(np.concatenate, (view, errors, recorded)), mu


def rows(**settings: Any) -> Iterator[Finding]:
    """Attack both stages in each arm.

    Parameters
    ----------
    **settings
        As of :func:`.canaries.audit`, without queries, canaries, units and rounds.

    Yields
    ------
    Finding
        One for each arm, as soon as it is computed.
    """
    row = {"queries": (NAME,), "canaries": ("constant",), "units": ("subject",)}
    yield from canaries.audit(**{**settings, **row, "n_rounds": 2}, run=transcript)


def _runs(strengths: tuple[float, ...]) -> np.ndarray:
    """Features of a person, (2, T)."""
    return np.array(strengths, "f4")[:, None] * COURSES


def _lengths(people: dict[str, np.ndarray]) -> dict[str, int]:
    return {name: X.shape[1] for name, X in people.items()}


def _measured(people: dict[str, np.ndarray], A: np.ndarray) -> dict[str, np.ndarray]:
    """Amplitudes of components in a site's people, features of stage 2, (R, 1)."""
    amplitudes = {
        name: by_components(AMPLITUDE, X, A, np.zeros(len(A)), ("1", "2"))
        for name, X in people.items()
    }
    return {name: x[:, None].astype("f4") for name, x in amplitudes.items()}


def _mean(sites: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Exact mean of a release, computed without the code of sites."""
    arrays = [X for people in sites for X in people.values()]
    parts = [X.astype(float) @ X.T / X.shape[1] for X in arrays]
    parts = [C / max(1.0, np.linalg.norm(C) / CLIP) for C in parts]
    return linalg.pack_symmetric(np.mean(parts, axis=0))
