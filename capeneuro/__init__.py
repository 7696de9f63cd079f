"""Differentially private, decentralised analysis of brain imaging.

In a notebook, on arrays that are all here:

    >>> import capeneuro as cn
    >>> promise = cn.Budget(2, 1e-5, unit="subject")
    >>> sites = cn.federate({"north": people, "south": others}, promise, arm="cape")
    >>> V = cn.principal_subspace(sites, 10, norm_bound=30, share=0.5)
    >>> U = cn.infomax(sites, V)            # the rest of the budget
    >>> cn.verdicts(U)                      # what is distinguishable from noise
    >>> sites.privacy()                     # what was promised, spent and is left

A site's people are arrays (n_features, n_samples), by name or in a list. A study of
files, or across institutions, is a YAML file that `snakemake` runs (`capeneuro
--help`), or Python:

    >>> study = cn.load("config/config.yaml")
    >>> study.plan()                        # what it would spend, and what that buys
    >>> found = study.run()                 # from data to report
    >>> found.plot(1)                       # or cn.load("results/demo"), later

Nouns
    Budget      the promise: epsilon, delta, and whose data it protects
    Ledger      what a site has spent, on its own disk
    Site        one data holder; its public methods are the wire protocol
    Mechanism   how queries are answered: the arm, and the level of noise
    Release     what the aggregator learns of one query

Verbs, each with a share of the budget, the same call in every arm
    principal_subspace     the directions that all sites share: capePCA
    infomax                independent components and their maps: capeDJICA
    spatial_components     the same over space, of a subspace alone: free of charge
    canonical_directions   what two views of the same people share: capeCCA
    pattern_components     patterns of features that people differ by: PCA and ICA
    mixture_components     groups of people: capeAGN
    topic_components       topics in counts of words: capeAGN
    linear_model           linear and logistic regression: capeFM
    cross_validate         the same of all folds but one, at the price of one model
    train_network          a network of two layers
    distribution           how numbers are distributed: quantiles
    linear_contrasts       many outcomes between groups, and with numbers

Estimators, for tables of rows in scikit-learn's manner
    PrivateRegressor, PrivateClassifier

Doors
    federate    sites made of arrays in this process, with one budget
    plot        a picture of what a verb found
    verdicts    which parts of a verb's result are distinguishable from noise
    load        a study file, to plan and run; the results of a study

Rooms, from the door to the ground; each lists its files
    warm, cli, notebook, flare, audit, studies, report, site_data, persons,
    algorithms, data, config, federation, privacy, linalg, machine
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capeneuro.federation.ledger import Ledger as Ledger
    from capeneuro.federation.mechanism import Mechanism as Mechanism
    from capeneuro.federation.mechanism import Release as Release
    from capeneuro.federation.site import Site as Site
    from capeneuro.notebook.estimators import PrivateClassifier as PrivateClassifier
    from capeneuro.notebook.estimators import PrivateRegressor as PrivateRegressor
    from capeneuro.notebook.loading import load as load
    from capeneuro.notebook.plot import plot as plot
    from capeneuro.notebook.sites import federate as federate
    from capeneuro.notebook.verbs.components import (
        canonical_directions as canonical_directions,
    )
    from capeneuro.notebook.verbs.components import infomax as infomax
    from capeneuro.notebook.verbs.components import (
        pattern_components as pattern_components,
    )
    from capeneuro.notebook.verbs.components import (
        principal_subspace as principal_subspace,
    )
    from capeneuro.notebook.verbs.components import (
        spatial_components as spatial_components,
    )
    from capeneuro.notebook.verbs.contrasts import linear_contrasts as linear_contrasts
    from capeneuro.notebook.verbs.distributions import distribution as distribution
    from capeneuro.notebook.verbs.groups import mixture_components as mixture_components
    from capeneuro.notebook.verbs.groups import topic_components as topic_components
    from capeneuro.notebook.verbs.models import cross_validate as cross_validate
    from capeneuro.notebook.verbs.models import linear_model as linear_model
    from capeneuro.notebook.verbs.models import train_network as train_network
    from capeneuro.notebook.verdicts import verdicts as verdicts
    from capeneuro.privacy.accounting import Budget as Budget

__version__ = "0.1.0"
# Where each public name lives; loaded on first use, so that importing is quick.
_HOMES = {
    "Budget": "privacy.accounting",
    "Ledger": "federation.ledger",
    "Site": "federation.site",
    "Mechanism": "federation.mechanism",
    "Release": "federation.mechanism",
    "federate": "notebook.sites",
    "load": "notebook.loading",
    "plot": "notebook.plot",
    "verdicts": "notebook.verdicts",
    "principal_subspace": "notebook.verbs.components",
    "infomax": "notebook.verbs.components",
    "spatial_components": "notebook.verbs.components",
    "canonical_directions": "notebook.verbs.components",
    "distribution": "notebook.verbs.distributions",
    "pattern_components": "notebook.verbs.components",
    "mixture_components": "notebook.verbs.groups",
    "topic_components": "notebook.verbs.groups",
    "linear_model": "notebook.verbs.models",
    "cross_validate": "notebook.verbs.models",
    "train_network": "notebook.verbs.models",
    "linear_contrasts": "notebook.verbs.contrasts",
    "PrivateRegressor": "notebook.estimators",
    "PrivateClassifier": "notebook.estimators",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'capeneuro' has no attribute {name!r}")
    attribute = getattr(importlib.import_module(f"capeneuro.{_HOMES[name]}"), name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
