"""Nobody is counted twice, or has more volumes than the study allows."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation import registry
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.registry import counted_elsewhere, known_elsewhere
from capeneuro.federation.site import empty, longer
from capeneuro.privacy import accounting
from capeneuro.site_data.terms import open_ledger, stages_of


def keep_people(study: StudyConfig, site: SiteConfig) -> None:
    """Check the people that were prepared, and register them in the ledger.

    Raises
    ------
    ConfigError
        If a person is in another ledger or cohort, takes part as another site, or has
        more volumes than the study allows. The features that a release would read are
        removed then.
    """
    path = study.private(site.name) / "projected.npz"
    people = files.Features(path).n_samples
    if error := length_error(study, people) or double_error(study, site, people):
        path.unlink()
        raise ConfigError(f"site {site.name}: {error}")


def check_elsewhere(
    study: StudyConfig, site: SiteConfig, people: Collection[str]
) -> None:
    """Refuse people whom :func:`keep_people` would refuse as counted elsewhere.

    Before they are prepared; nothing is registered.

    Raises
    ------
    ConfigError
        If a person is in another ledger, or takes part as another site.
    """
    if site.second_place is None:
        return
    book = open_ledger(site)
    if error := _other_ledger_error(study, site, book, people, counted_elsewhere):
        raise ConfigError(f"site {site.name}: {error}")


def double_error(study: StudyConfig, site: SiteConfig, people: Collection[str]) -> str:
    """Error where people are in another ledger, site or cohort, too; or empty."""
    book, error = open_ledger(site), ""
    if site.second_place is not None:
        error = _other_ledger_error(study, site, book, people, known_elsewhere)
    if not error and site.cohort and (shared := book.register(people)):
        error = "cohort: its people must be in no other cohort of the ledger, got "
        error += ", ".join(f"{n} of {name!r}" for name, n in shared.items())
    return error


def _other_ledger_error(
    study: StudyConfig,
    site: SiteConfig,
    book: Ledger,
    people: Collection[str],
    elsewhere: Callable[[Ledger, Collection[str]], dict[Path, int]],
) -> str:
    """Error where people are in another ledger, or take part as another site.

    ``elsewhere`` is a function of :mod:`.registry` that finds other ledgers.
    """
    if double := registry.in_study_as(
        book, study.identity, study.lineage, site.name, people, stages_of(study)
    ):
        return (
            f"name: people of it are in this study as site {double!r} already, and a "
            "promise counts each of them once; keep that name"
        )
    for folder, n in elsewhere(book, people).items():
        state = "whose folder is gone, so bring it back first"
        if folder.is_dir():
            spent = Ledger(folder, book.ceiling, site.second_place).total()
            rest_mu = max(book.ceiling.mu**2 - spent**2, 0.0) ** 0.5
            state = (
                f"with epsilon {accounting.epsilon_from_mu(spent, site.delta):.4g} "
                f"spent and {accounting.epsilon_from_mu(rest_mu, site.delta):.4g} left "
                f"of {site.epsilon:g} (losses add up like squares, epsilons do not)"
            )
        return (
            f"ledger: {n} of its {len(people)} people are counted in the ledger "
            f"{folder}, {state}; a ceiling belongs to people: set ledger: {folder} in "
            "the site file, or bring the two together with capeneuro ledger move or "
            "merge. If they are other people who carry the same labels, say so: "
            "capeneuro ledger distinct"
        )
    return ""


def length_error(study: StudyConfig, n_samples: Mapping[str, int]) -> str:
    """Error of a person with no volumes, or more than allowed; empty: there is none."""
    if person := empty(n_samples):
        return f"images: {person} has no volumes left; leave them out"
    person = longer(n_samples, study.longest)
    return person and (
        f"expected.longest: nobody may have more than {study.longest} volumes, got "
        f"{n_samples[person]} of {person}; shorten or exclude them"
    )
