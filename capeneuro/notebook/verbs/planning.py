"""What a verb plans before it spends: the size of its release, its noise, refusals."""

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np

from capeneuro.algorithms import forecast_components
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verdicts import verdicts
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import sentences

Progress = Callable[[range], range]


def with_verdict(result: Any, arm: str) -> Any:
    """Print the verdict of a result in one sentence, and return the result.

    The same sentence is in a study's report; :func:`.verdicts` has it by result.
    """
    line = sentences.found_line(arm, verdicts(result))
    print(line[0].upper() + line[1:] + ".")
    return result


def check_option(name: str, value: str, options: Any) -> None:
    """Refuse an unknown option of a Literal type, before anything is planned."""
    if value not in get_args(options):
        raise ValueError(
            f"{name}: must be of {', '.join(get_args(options))}, got {value!r}"
        )


def all_people(sites: Sites) -> list[np.ndarray]:
    """Features of everybody at all sites, (n_features, n_samples) each."""
    return [X for people in sites.people.values() for X in people.values()]


def n_features(sites: Sites) -> int:
    """Number of features, the same of everybody."""
    return len(all_people(sites)[0])


def check_one_sample(sites: Sites) -> None:
    """Refuse people of several samples."""
    for people in sites.people.values():
        for name, X in people.items():
            if X.shape[1] != 1:
                raise ValueError(
                    f"each person must have one sample, {name} has several"
                )


class ReleaseSize(NamedTuple):
    """Sites and people of a release in an arm, and its noise."""

    n_sites: int
    people: list[np.ndarray]
    """Features of each, (n_features, n_samples)."""
    noise_over_pooled: float
    """Deviation of the noise over that of a trusted curator."""


def release_size(sites: Sites) -> ReleaseSize:
    """Count the sites and people of a release."""
    people = all_people(sites)
    S, S_C = len(sites.names), sites.budget.n_colluding
    if sites.arm == "local":
        return ReleaseSize(1, list(next(iter(sites.people.values())).values()), 1.0)
    if sites.arm in ("pooled", "non-private"):
        return ReleaseSize(S, people, 1.0)
    factor = S if sites.arm == "conventional" else S / (S - S_C)
    return ReleaseSize(S, people, factor**0.5)


def design(
    sites: Sites, n_components: int, **options: float | None
) -> forecast_components.Design:
    """Make the planner's design from sites of arrays."""
    size = release_size(sites)
    volumes = max(int(np.median([X.shape[1] for X in size.people])), 1)
    return forecast_components.Design(
        size.n_sites,
        len(size.people),
        volumes,
        n_features(sites),
        n_components,
        noise_over_pooled=size.noise_over_pooled,
        **options,
    )


def noise_deviation(sites: Sites, share: float) -> Callable[[str, float, str], float]:
    """Deviation of the noise of a release that takes this share, by query and clip."""
    size = release_size(sites)
    n = len(size.people)
    if sites.budget.unit == "sample":
        n = sum(X.shape[1] for X in size.people)

    def noise(query: str, clip: float, stage: str) -> float:
        t = QUERIES[query].sensitivity(n, sites.budget.relation, {"clip": clip})
        return size.noise_over_pooled * float(t) / (sites.budget.mu * share**0.5)

    return noise


def refuse_noise(sites: Sites, ratio: float) -> None:
    """Refuse a release that is predicted to be unusable, before anything is spent."""
    if sites.arm != "non-private" and ratio > 1 and not sites.accept:
        raise BudgetExceeded(
            f"noise is foretold to be {ratio:.3g} times what the result can bear: use "
            "more people, fewer features or components, or a larger budget; "
            'federate(..., accept="why") releases the result all the same'
        )
