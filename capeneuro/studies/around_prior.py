"""Steps of a study of components that starts from public knowledge."""

from capeneuro.algorithms import prior as priors
from capeneuro.algorithms import prior_maps
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.prior import Posterior, Prior, PriorSubspace
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.report import sentences
from capeneuro.studies.components_forecast import noise_of_prior, tried
from capeneuro.studies.priors import open_prior


def subspace(
    federation: Federation, mechanism: Mechanism, study: ComponentsConfig
) -> PriorSubspace | None:
    """Release how people's, or volumes', second moments deviate from the prior's.

    Parameters
    ----------
    federation
        Sites on this machine or elsewhere.
    mechanism
        Of the release.
    study
        With a prior.

    Returns
    -------
    PriorSubspace or None
        None where maps of public stand-in people are better without the prior:
        nothing was released then.
    """
    prior, digest = open_prior(study)
    K, bound = study.n_components, study.pca.norm_bound
    roster = mechanism.describe(federation)
    n = sum(site.n_units for site in roster.values())
    # Of the arm `local` the first site alone described itself.
    n_units = n * (len(study.sites) if study.arm == "local" else 1)
    trial = tried(study, tuple(roster), n_units)
    print(sentences.prior_choice(trial))
    if trial is not None and not trial.has_prior:
        return None
    if study.budget.unit == "subject":
        noise = noise_of_prior(study, tuple(roster), n_units)
        deviation = priors.deviation_of_people(
            federation, mechanism, prior, noise, bound
        )
    else:
        deviation = priors.deviation_of_volumes(federation, mechanism, prior, bound)
    return priors.subspace(prior, deviation, K, bound, n, digest)


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
