"""Steps of a study of components that starts from public knowledge."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from capeneuro.algorithms import prior as priors
from capeneuro.algorithms import prior_maps
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.prior import Posterior, Prior, PriorSubspace
from capeneuro.algorithms.prior_fit import PriorFit, release_fit
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.requests import Description
from capeneuro.federation.transport import Federation
from capeneuro.report import sentences
from capeneuro.studies.components_forecast import (
    forecast_without_prior,
    least_share,
    noise_of_prior,
)
from capeneuro.studies.gate import gate
from capeneuro.studies.priors import open_prior
from capeneuro.studies.sites import Sites


def subspace(
    federation: Federation,
    stages: Sequence[Mechanism],
    study: ComponentsConfig,
    sites: Sites,
) -> PriorSubspace | PriorFit:
    """Release how people's, or volumes', second moments deviate from the prior's.

    Parameters
    ----------
    federation, sites
        Sites on this machine or elsewhere, and the site files that are here.
    stages
        Of the prior's check, and of the release.
    study
        With a prior.

    Returns
    -------
    PriorSubspace or PriorFit
        The fit alone where a study without the prior is better: nothing but the check
        was released then.

    Raises
    ------
    BudgetExceeded
        If the prior is dropped, and noise would drown the result of a study without it.
    ConfigError
        If it is dropped, and a study without it would need more rounds.
    """
    (check, mechanism), (prior, digest) = stages, open_prior(study)
    K, bound = study.n_components, study.pca.norm_bound
    roster = mechanism.describe(federation)
    n = sum(site.n_units for site in roster.values())
    # Of the arm `local` the first site alone described itself.
    n_units = n * (len(study.sites) if study.arm == "local" else 1)
    least, _ = least_share(study, tuple(roster), n_units)
    fit = release_fit(federation, check, prior, K, least)
    print(sentences.prior_fit(fit, K))
    if not fit.passes:
        _check_without_prior(study, sites, roster)
        return fit
    if study.budget.unit == "subject":
        noise = noise_of_prior(study, tuple(roster), n_units)
        deviation = priors.deviation_of_people(
            federation, mechanism, prior, noise, bound
        )
    else:
        deviation = priors.deviation_of_volumes(federation, mechanism, prior, bound)
    values = np.array([*vars(fit).values()])
    return priors.subspace(prior, deviation, K, bound, n, values, digest)


def _check_without_prior(
    study: ComponentsConfig, sites: Sites, roster: dict[str, Description]
) -> None:
    """Refuse to go on without the prior where noise would drown the result."""
    if study.pca.method == "power":
        raise ConfigError(
            f"study {study.study}: prior.file: holds too little of people's energy, "
            "and pca.method power would need more rounds than are paid for; give "
            "another prior, or none, under another name of the study"
        )
    gate(study, sites, roster, partial(forecast_without_prior, study))


def prior_and_posterior(
    study: ComponentsConfig, subspace: PriorSubspace
) -> tuple[Prior, Posterior]:
    """Open the prior that a subspace was found around, and its posterior.

    Raises
    ------
    ConfigError
        If the prior's file has changed since.
    """
    prior, digest = open_prior(study)
    if digest != subspace.prior:
        raise ConfigError(
            f"{study.prior.file}: prior.file: is another than when `pca` ran; put that "
            "back, or run another study"
        )
    return prior, Posterior(*subspace.posterior)


def public(study: ComponentsConfig, prior: Prior) -> Unmixing:
    """Components of the prior alone: its R temporal maps if it has them, or spatial."""
    temporal = study.ica.independence == "temporal"
    if temporal and prior.maps.shape[1:] == (study.n_components,):
        return prior_maps.of_maps(prior)
    return prior_maps.components(prior, None, study.n_components)
