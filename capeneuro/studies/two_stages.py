"""A row of the audit that goes through two stages of a study.

Two worlds differ in one person of the first site. Stage 1 releases the second moment of
runs, whose leading directions stand for components; each site measures how strong they
are in its people, as studies of stages do; stage 2 releases the second moment of that.
The adversary has what travelled of both, and the claim is what both together cost.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.config.rows import MeasuresOptions
from capeneuro.federation import audit
from capeneuro.federation.audit import Case, Finding
from capeneuro.federation.in_process import Ungated
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.rules import Limits
from capeneuro.persons.measures import by_components
from capeneuro.privacy import accounting

NAME, QUERY = "two stages", "second_moment"
# Parts of mu^2: most is the later stage's, so that what is wrong there shows.
SHARES = (0.1, 0.9)
# At all sites together, at least one at each.
N_PEOPLE, N_COMPONENTS, CLIP = 12, 2, 1.0
# Courses of two components: of mean 0, and uncorrelated.
COURSES = np.array([[1, -1, 1, -1], [1, 1, -1, -1]], "f4")
# Strengths of both: of everybody else, whose components the release has in either
# world; and of the attacked person, who is all of one component or all of the other
# and so moves both stages as far as may be.
OTHERS, CANARY = (3.0, 0.5), ((1e3, 0.0), (0.0, 1e3))
AMPLITUDE = MeasuresOptions(measures=("amplitude",))


def transcript(case: Case, world: int, study: str = "") -> tuple:
    """Run both stages with new sites, ledgers and keys, see :func:`.audit.transcript`.

    Parameters
    ----------
    case
        What is attacked; ``mu`` is for both stages together.
    world
        Which of the two the attacked person is.
    study
        Name of the transcript.

    Returns
    -------
    tuple
        The adversary's view; what was released less what it is the mean of, over
        persons as clipped; its deviation on record; and the mu that is claimed.
    """
    n = max(N_PEOPLE // case.n_sites, 1)
    people = [
        {f"{s}-{i}": _runs(OTHERS) for i in range(n)} for s in range(case.n_sites)
    ]
    people[0]["0-0"] = _runs(CANARY[world])
    ledgers = [Ledger(None, audit.CEILING) for _ in people]
    budget = accounting.Budget(
        1.0, audit.DELTA, case.unit, "replace-one", case.n_colluding
    )
    view, errors, recorded, releases = [], [], [], []
    features, value = people, np.zeros(0)
    for stage, share in enumerate(SHARES):
        if stage:
            C = linalg.unpack_symmetric(value)
            A = linalg.top_eigenpairs(C, N_COMPONENTS)[1]
            features = [_measured(own, A) for own in people]
        sites = [
            audit.Witness(f"s{s}", own, _lengths(own), ledgers[s], Limits("simulated"))
            for s, own in enumerate(features)
        ]
        about = case.arm, 1 / (case.mu * share**0.5), budget, case.noise_ratio
        mechanism = audit.Clipping(f"{study} {stage}", *about)
        federation = Ungated({site.name: site for site in sites})
        asked = {"norm_bound": 1.0, "clip": CLIP}
        value = mechanism.answer(federation, QUERY, asked, 0).value
        view += audit.seen_by(case, sites, value, [])[0]
        errors.append(value - _mean(features))
        recorded += [[r["noise_deviation"]] * r["size"] for r in mechanism.releases]
        releases += mechanism.releases
    mu = audit.claimed(case, ledgers[0], releases)
    return *map(np.concatenate, (view, errors, recorded)), mu


def rows(**settings: Any) -> Iterator[Finding]:
    """Attack both stages in each arm.

    Parameters
    ----------
    **settings
        As of :func:`.audit.audit`, without what is attacked.

    Yields
    ------
    Finding
        As they come.
    """
    row = {"queries": (NAME,), "canaries": ("constant",), "units": ("subject",)}
    yield from audit.audit(**{**settings, **row, "n_rounds": 2}, run=transcript)


def _runs(strengths: tuple[float, ...]) -> np.ndarray:
    """Features of a person, (2, T)."""
    return np.array(strengths, "f4")[:, None] * COURSES


def _lengths(people: dict[str, np.ndarray]) -> dict[str, int]:
    return {name: X.shape[1] for name, X in people.items()}


def _measured(people: dict[str, np.ndarray], A: np.ndarray) -> dict[str, np.ndarray]:
    """What a site's people are to the second stage, (R, 1) each."""
    about = A, np.zeros(len(A)), ("1", "2")
    return {
        name: by_components(AMPLITUDE, X, *about)[:, None].astype("f4")
        for name, X in people.items()
    }


def _mean(sites: list[dict[str, np.ndarray]]) -> np.ndarray:
    """What a release is the mean of, by no code of sites."""
    parts = [X.astype(float) @ X.T / X.shape[1] for own in sites for X in own.values()]
    parts = [C / max(1.0, np.linalg.norm(C) / CLIP) for C in parts]
    return linalg.pack_symmetric(np.mean(parts, axis=0))
