"""`capeneuro plan`, and the gate: what a study will spend, and what that will buy.

Each kind of study foretells what noise leaves of its results (its ``forecast``); here
is what is asked of all of them. A study whose noise is foretold to drown its result
ends before its first release, by `plan`, by each step and over a network alike, unless
the study file accepts that and says why.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.federation.requests import COOPERATIVE_ARMS, Description
from capeneuro.privacy import accounting, cape
from capeneuro.report import words
from capeneuro.studies import kinds
from capeneuro.studies.counts import SIZES, assumed, counted
from capeneuro.studies.forecasts import Counts, Forecast, Unknown, amount
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    names,
    paid_for,
    without_ledger,
)

# Under private/_aggregator/<study>/: that `plan` agreed.
PLANNED = "planned.json"
# Under results/<study>/: noise that was foretold, over the most that leaves a result.
FORECAST = "forecast.json"
# What `accept` in a study file may set aside.
NOISE, GAIN = "noise", "gain"
# Agreement that private data must be foretold to add to a prior.
LEAST_GAIN = 0.01
# How often more people are tried until noise drowns nothing, and how many at most.
TRIES, MOST_PEOPLE = 6, 10**9

Forecaster = Callable[[Sequence[str], Counts], Forecast]


def plan(
    study: StudyConfig,
    sites: Sites,
    people: int | None = None,
    volumes: int | None = None,
    features: int | None = None,
) -> dict[str, Any]:
    """Show what a study will spend and what that will buy, before it spends anything.

    Refuses a study whose noise drowns its result, unless its file accepts that. All
    stages are foretold before the first release of any. People, volumes of a person and
    features are counted by `validate` where they may be; what is given here goes
    before, for a study that is still on paper.

    Returns
    -------
    dict
        Noise of each result over the most that leaves one, by stage where there are
        several.
    """
    counts = Counts(people, volumes, features)
    for option, value in counts._asdict().items():
        if value is not None and value < 1:
            raise ConfigError(f"--{option}: must be at least 1, got {value}")
    is_on_paper, is_private = any(counts), study.arm != "non-private"
    stages, has_stages = study.members, "" not in study.members
    print(promised(study))
    ratios: dict[str, Any] = {}
    if has_stages or not is_private:
        _print_costs(study, sites)
    if is_private and has_stages:
        for name, stage in stages.items():
            print(f"\nstage {name}: {100 * stage.stage_share:.0f}% of the budget")
            ratios[name] = foreseen(stage, sites, counts)
        _advise_weights(study, ratios)
    elif is_private:
        ratios = foreseen(study, sites, counts, costs=True)
    if not is_on_paper:
        check_ready(study, sites)
        folder = study.private("_aggregator")
        if has_stages or (folder / SIZES).is_file():
            planned = {"noise_over_signal": ratios, "accepted": accepted(study)}
            files.write_json(folder / PLANNED, planned)
    return ratios


def _advise_weights(study: StudyConfig, ratios: dict[str, dict[str, float]]) -> None:
    """Say which weights would make the stages' noise alike, beside what leaves one.

    Noise falls with the root of a share.
    """
    if not all(ratios.values()):
        return
    needs = {
        name: max(of_results.values()) ** 2 * study.members[name].stage_share
        for name, of_results in ratios.items()
    }
    total = sum(needs.values())
    weights = ", ".join(f"{name}: {need / total:.2g}" for name, need in needs.items())
    print(f"\nnoise of all stages would be alike with weights: {{{weights}}}")


def _print_costs(study: StudyConfig, sites: Sites) -> None:
    spending(study)
    preview(study, sites)


def check_ready(study: StudyConfig, sites: Sites) -> None:
    """Refuse what a run would before it begins: ledgers or files that are not there.

    Raises
    ------
    ConfigError
        For each site with the remedy.
    """
    if study.arm != "non-private":
        check_ceilings(study, sites)
    kinds.check_inputs(study, sites)


def foreseen(
    study: StudyConfig, sites: Sites, given: Counts, costs: bool = False
) -> dict[str, float]:
    """Show what is foretold of a study, or a stage, and refuse what is drowned.

    First the verdict, and what it means; then costs; then the numbers behind it.

    Parameters
    ----------
    study, sites
        The study, and its sites.
    given
        Numbers that go before those that are counted.
    costs
        Print what the study spends, too.

    Returns
    -------
    dict
        Noise of each result over the most that leaves one; none where a number is not
        known.
    """
    base = assumed(study, sites)
    counts = base.of(given)
    what_if = (study.private("_aggregator") / SIZES).is_file() and any(given)

    def print_costs() -> None:
        if costs:
            print("\nWhat it promises and to whom, and what it would spend")
            _print_costs(study, sites)

    try:
        forecast = kinds.of(study).forecast(names(study, sites), counts)
    except Unknown as error:
        if base.is_counted and not any(given):
            raise must_tell(study, error.missing[0]) from None
        options = ", ".join(f"--{name}" for name in error.missing)
        hint = "; capeneuro validate counts those whose files are here"
        hint = hint if "people" in error.missing and not any(given) else ""
        print(f"note: give {options} for a prediction{hint}")
        print_costs()
        return {}
    if forecast.ratios:
        result, ratio = max(forecast.ratios.items(), key=lambda pair: pair[1])
        verdict = "results stand above the noise"
        if ratio > 1:
            verdict = "noise drowns the result"
        print(f"forecast: {verdict}, which is {ratio:.2g} times what {result} can bear")
    if forecast.in_short:
        print(textwrap.fill(f"in short: {forecast.in_short}", 100))
    print_costs()
    print(f"\nWhat is foretold, and from what: {base.in_words(counts)}")
    forecast.show(not what_if)
    refuse(study, sites, counts, forecast)
    return forecast.ratios


def gate(
    study: StudyConfig,
    sites: Sites,
    roster: Mapping[str, Description] | None = None,
    forecaster: Forecaster | None = None,
) -> None:
    """End a study before its first release where noise will drown its result.

    Parameters
    ----------
    study, sites
        The study, and its sites as far as their files are here.
    roster
        What the sites say of themselves: ``n_units`` of each, which is public. None:
        nobody was asked yet, so the study file has to tell.
    forecaster
        Foretells what noise leaves; None: as studies of its kind do.

    Raises
    ------
    BudgetExceeded
        If the forecast is drowned and the study file does not accept it.
    ConfigError
        If there is none for lack of a number that the study file may give.
    """
    if study.arm == "non-private":
        return
    counts = counted(study, sites)
    if roster is not None:
        n_units = sum(site.n_units for site in roster.values())
        if study.arm == "local":  # the first site alone described itself
            n_units *= len(study.sites)
        counts = counts._replace(people=n_units)
        if study.budget.unit == "sample":
            counts = counts._replace(volumes=1)
    forecaster = forecaster or kinds.of(study).forecast
    try:
        forecast = forecaster(names(study, sites), counts)
    except Unknown as error:
        raise must_tell(study, error.missing[0]) from None
    refuse(study, sites, counts, forecast, forecaster)
    refuse_later(study, sites)
    if roster is not None:  # the sizes that releases have, and all of it public
        files.write_json(study.results / FORECAST, forecast.ratios)


def refuse_later(study: StudyConfig, sites: Sites) -> None:
    """Refuse a stage where one after it is foretold to be drowned.

    What would come to nothing later is not paid for now. A forecast that needs numbers
    which nobody told yet refuses nothing.
    """
    members = list(study.full_study.members.values())
    at = [m.identity for m in members].index(study.identity)
    for member in members[at + 1 :]:
        with suppress(Unknown):
            refuse(member, sites, counted(member, sites))


def must_tell(study: StudyConfig, key: str) -> ConfigError:
    """Refusal of a study file that has to tell a number where nobody may count."""
    why = {
        "people": "nobody counted them before the sites are asked",
        "volumes": "nobody may count those of a person who is protected",
    }
    if key not in why:
        return ConfigError(
            f"study {study.study}: space.mask: must be here to count the features"
        )
    return ConfigError(
        f"study {study.study}: expected.{key}: must be given, for {why[key]}; write "
        "the number that the study's protocol asks for"
    )


def refuse(
    study: StudyConfig,
    sites: Sites,
    counts: Counts,
    forecast: Forecast | None = None,
    forecaster: Forecaster | None = None,
) -> None:
    """Raise where a forecast is drowned, unless the study file accepts it.

    Parameters
    ----------
    study, sites, counts
        The study, and what its forecast is of.
    forecast
        The forecast, where it is known already.
    forecaster
        As of :func:`gate`.

    Raises
    ------
    BudgetExceeded
        With the number of people that would do, where it is quickly found.
    Unknown
        If a number is missing.
    """
    forecaster = forecaster or kinds.of(study).forecast

    def of(people: int) -> Forecast:
        return forecaster(names(study, sites), counts._replace(people=people))

    forecast, reasons = forecast or of(counts.people), accepted(study)
    if forecast.adds is not None and forecast.adds < LEAST_GAIN:
        if GAIN not in reasons:
            raise BudgetExceeded(
                f"study {study.study}: prior: private data must be foretold to add "
                f"{LEAST_GAIN} or more to what is public, add {forecast.adds:.3f}: "
                "nothing that can be told; nothing of it is released. More people or a "
                f"larger epsilon help; accept: [{{rule: {GAIN}, reason: "
                '"why, in a sentence"}] in the study file lets it run all the same'
            )
        print(f"accepted: private data add nothing that can be told; {reasons[GAIN]}")
    ratios = forecast.ratios.items()
    drowned = [f"{x:.3g} times what {of} can bear" for of, x in ratios if x > 1]
    if not drowned:
        return
    if reason := reasons.get(NOISE):
        print(f"accepted: noise of {' and '.join(drowned)}; {reason}")
        return
    n = None if forecast.adds is not None else _enough(of, counts.people, forecast)
    enough = "" if n is None else f"With some {amount(counts._replace(people=n))} it "
    enough += "would not be. " if enough else ""
    raise BudgetExceeded(
        f"study {study.study}: budget.epsilon: noise must not drown the result, is "
        f"foretold to be {' and '.join(drowned)} with {amount(counts)}; nothing of it "
        f"is released. {enough}{_no_need(sites)}{forecast.remedy} help; accept: "
        f'[{{rule: {NOISE}, reason: "why, in a sentence"}}] in the study file lets it '
        "run all the same"
    )


def _no_need(sites: Sites) -> str:
    """What a study of open data may do instead, as a sentence."""
    kinds_of_data = {site.data for site in sites.values()}
    if not kinds_of_data or "private" in kinds_of_data:
        return ""
    return (
        f"These data are {' and '.join(sorted(kinds_of_data))}, which need no noise: "
        "`arm: non-private` in the study file adds none. "
    )


def _enough(
    of: Callable[[int], Forecast], people: int, forecast: Forecast
) -> int | None:
    """How many people would do, in two digits upward; None if it is not soon found."""
    for _ in range(TRIES):
        worst = max(forecast.ratios.values())
        if not np.isfinite(worst) or people > MOST_PEOPLE:
            return None
        if worst <= 1:
            return people
        people = math.ceil(people * worst)
        step = 10 ** max(len(str(people)) - 2, 0)
        people = math.ceil(people / step) * step
        forecast = of(people)
    return None


def accepted(study: StudyConfig) -> dict[str, str]:
    """Reasons of what the study file accepts, by rule."""
    return {one.rule: one.reason for one in study.accept}


def promised(study: StudyConfig) -> str:
    """What a study promises, as a line."""
    if study.arm == "non-private":
        return "arm non-private: no noise is added, nobody is promised anything"
    promise, S = study.promise, len(study.sites)
    return (
        f"promise: epsilon {promise.epsilon:g}, delta {promise.delta:g}, unit "
        f"{promise.unit}, {promise.relation}, mu {promise.mu:.4f}; against "
        f"{study.adversary}, of {S} sites"
    )


def spending(study: StudyConfig) -> None:
    """Say to whom a study promises how much, and what each stage spends."""
    if study.arm == "non-private":
        return
    promise, S = study.promise, len(study.sites)
    for who, epsilon in by_party(study).items():
        print(f"  {who}: epsilon {epsilon:.3g}")
    if promise.unit == "sample":
        print(f"for a person: {person_in_words(study)}")
    for name, epsilon in study.budget.site_epsilon.items():
        print(f"{name}: promises epsilon {epsilon:g} instead")
    coalition = promise.coalition(S)
    if n := coalition.n_dropout:
        more = (
            coalition.noise_over_pooled
            / replace(coalition, n_dropout=0).noise_over_pooled
        )
        print(f"{n} of {S} sites may drop out, for {more:.2f} times the noise")
    if study.arm in COOPERATIVE_ARMS:
        _price_of_the_coalition(study)
    for stage, multiplier in study.multipliers.items():
        n = study.n_releases[stage]
        mu = n**0.5 / multiplier
        print(
            f"{stage}: {n} round{'s' * (n > 1)} at noise multiplier {multiplier:.3f}, "
            f"epsilon {accounting.epsilon_from_mu(mu, promise.delta):.3f} alone"
        )


def by_party(study: StudyConfig, site: str = "") -> dict[str, float]:
    """Epsilon of a whole study for each class of parties, in words.

    Parameters
    ----------
    study
        The study; of an arm without noise there is nothing to say.
    site
        Whose people; those of a site without a promise of its own by default.

    Returns
    -------
    dict
        By class; at most what is promised.
    """
    S, local = len(study.sites), study.arm == "local"
    if site not in study.budget.site_epsilon:
        site = ""
    everyone = [site] if local else [*study.budget.site_epsilon, *[""] * S][:S]
    mu = [study.promise_of(name).mu for name in everyone]
    coalition = accounting.Coalition(1, 0) if local else _coalition(study)
    gamma = cape.arm_variances(study.arm, mu, study.noise_ratio, coalition)
    losses = cape.views(study.arm, gamma, study.noise_ratio, coalition)
    k = everyone.index(site) if site in everyone else 0
    return {
        who: accounting.epsilon_from_mu(float(losses[view][k]), study.budget.delta)
        for view, who in words.parties(study).items()
        if losses[view] is not None
    }


def _coalition(study: StudyConfig) -> accounting.Coalition:
    """Sites of a study whose noise does not count."""
    S = len(study.sites)
    return accounting.Coalition(S, study.n_colluding, S - study.survivor_threshold)


def person_in_words(study: StudyConfig) -> str:
    """What a promise to one volume is for everything of one person, in words."""
    if study.person_epsilon is None:
        return "not bounded, for no expected.longest limits how many volumes one has"
    n = study.person_units
    return f"epsilon {study.person_epsilon:,.4g} at worst, with {n} volumes at most"


def _price_of_the_coalition(study: StudyConfig) -> None:
    """Say what it costs that a partner, and the aggregator's own site, count."""
    S, t, c = len(study.sites), study.survivor_threshold, study.n_colluding
    given = study.budget.n_colluding
    others = math.ceil(S / 3) - 1 if given is None else given
    if others < c:
        more = ((t - others) / (t - c)) ** 0.5
        why = "a partner takes its own noise off the result, so one always counts"
        if not study.is_independent:
            why = "an aggregator at a site counts; `aggregator: independent` if at none"
        print(
            f"{more:.2f} times the noise of a promise against {others} colluding "
            f"{'site' if others == 1 else 'sites'}: {why}"
        )
    if t - c == 1:
        print("of one site alone the noise counts, as in the arm `conventional`")


def preview(study: StudyConfig, sites: Sites) -> None:
    """Say what is paid and will be replayed, what is new, and what each ceiling leaves.

    Raises
    ------
    BudgetExceeded
        If the study as it now is does not fit under a site's ceiling.
    """
    if study.arm == "non-private":
        print("without privacy: nothing is charged")
        return
    n = sum(study.n_releases.values())
    unmade = without_ledger(study, sites)
    for name, why in unmade.items():
        print(f"note: {name}: {why}; until then nothing counts as spent")
    for name, spent in check_ceilings(study, sites, on_paper=True).items():
        site, promise = sites[name], study.promise_of(name)
        n_paid = 0 if name in unmade else paid_for(study, name, site)
        mus = [accounting.Budget(spent, site.delta, site.unit).mu] if spent else []
        after = accounting.compose([*mus, promise.mu])
        total = accounting.epsilon_from_mu(after, site.delta)
        print(
            f"{name}: {n_paid} of {n} releases are paid and replayed at no cost; other "
            f"studies spent {spent:.4g}, with this one {total:.4g} of the ceiling "
            f"{site.epsilon:g}"
        )


def noise_over_pooled(
    study: StudyConfig, everyone: Sequence[str], people: int
) -> tuple[int, int, float]:
    """Sites and people of a release in the study's arm; its noise over the pooled."""
    S, local = len(study.sites), study.arm == "local"
    factors = [study.mu_factors.get(name, 1.0) for name in everyone]
    ratio, coalition = study.noise_ratio, _coalition(study)
    gamma = cape.arm_variances(study.arm, factors, ratio, coalition)
    over = float(np.sqrt(gamma[:1].sum() if local else gamma.sum()))
    return (1, max(people // S, 1), over) if local else (S, people, over)
