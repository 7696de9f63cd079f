"""`capeneuro plan`, and the gate: forecast a study's noise before it spends anything.

Each kind of study has a ``forecast`` of its own; here it is printed and judged. A study
whose noise is foretold to drown its result ends before its first release, by `plan`, by
each step and over a network alike, unless the study file accepts that and gives a
reason.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.federation.requests import COOPERATIVE_ARMS, Description
from capeneuro.privacy import accountants, accounting, calibration, parties
from capeneuro.report import sentences
from capeneuro.studies import costs, registry, travel
from capeneuro.studies.counts import SIZES, assumed, counted
from capeneuro.studies.forecasts import Counts, Forecast, Unknown, amount
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    is_complete,
    make_ledgers,
    names,
    paid_for,
    without_ledger,
)

# Under private/_aggregator/<study>/: the forecast that `plan` let pass.
PLANNED = "planned.json"
# Under results/<study>/: noise as foretold, over the most that leaves a result.
FORECAST = "forecast.json"
# Ways of counting, as `plan` names them; RDP converts as dp_accounting does, or as
# the moments accountant of the papers.
ACCOUNTANTS = {
    "gdp": "exact",
    "sharper": "RDP",
    "rdp": "RDP as the papers convert",
    "strong": "strong",
    "basic": "basic",
}
# Rules that `accept` in a study file may set aside.
NOISE, GAIN = "noise", "gain"
# Correlation that private data must be forecast to add to a prior's own maps.
LEAST_GAIN = 0.01
# Numbers that the study file must give where sites are apart, and why.
NOT_COUNTED = {
    "people": "nobody counted them before the sites are asked",
    "volumes": "nobody may count those of a person who is protected",
}
# Forecasts with more people, until noise drowns nothing; and most people.
TRIES, MOST_PEOPLE = 6, 10**9

Forecaster = Callable[[Sequence[str], Counts], Forecast]


def plan(
    study: StudyConfig,
    sites: Sites,
    people: int | None = None,
    volumes: int | None = None,
    features: int | None = None,
) -> dict[str, Any]:
    """Print a study's spending and the forecast of its noise, before any release.

    Refuses a study whose noise drowns its result, unless its file accepts that, and one
    that exceeds a site's ceiling, once the whole forecast is printed. All
    stages are foretold before the first release of any. `validate` counts people,
    volumes of a person and features where it may; the arguments replace these counts,
    for a study that is still on paper.

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
    print(promise_line(study))
    if study.federation == "files":
        print(f"carried by hand: {travel.visits(study)}")
    ratios: dict[str, Any] = {}

    def print_stages() -> None:
        for name, stage in stages.items():
            print(f"\nstage {name}: {100 * stage.stage_share:.0f}% of the budget")
            ratios[name] = print_forecast(stage, sites, counts)
        _advise_weights(study, ratios)

    def print_study() -> None:
        ratios.update(print_forecast(study, sites, counts, spending=True))

    def print_ceilings() -> None:
        if is_private:
            print()
        print_payments(study, sites)

    if has_stages:
        print_spending(study)
    forecasts = [print_stages if has_stages else print_study] if is_private else []
    _refuse_together([*forecasts, print_ceilings])
    if not is_on_paper:
        registry.check_inputs(study, sites)
        folder = study.private("_aggregator")
        if (folder / SIZES).is_file() and is_complete(study, sites):
            measured = (stage for stage in stages.values() if not stage.handed)
            for line in chain.from_iterable(costs.lines(s, sites) for s in measured):
                print(line)
        if has_stages or (folder / SIZES).is_file():
            planned = {"noise_over_signal": ratios, "accepted": accepted(study)}
            files.write_json(folder / PLANNED, planned)
    return ratios


def _advise_weights(study: StudyConfig, ratios: dict[str, dict[str, float]]) -> None:
    """Print weights with which noise drowns no stage earlier than another.

    Noise falls with the root of a share of the budget.
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


def _refuse_together(checks: Iterable[Callable[[], None]]) -> None:
    """Run all checks, then raise their refusals as one, of the kind of the first."""
    refusals: list[BudgetExceeded | ConfigError] = []
    for check in checks:
        try:
            check()
        except (BudgetExceeded, ConfigError) as refusal:
            refusals.append(refusal)
    if refusals:
        raise type(refusals[0])("\n".join(map(str, refusals)))


def check_ready(study: StudyConfig, sites: Sites) -> None:
    """Refuse a study whose ledgers or files are missing, as a run would.

    Raises
    ------
    ConfigError
        For each site with the remedy.
    """
    if study.arm != "non-private":
        check_ceilings(study, sites)
    registry.check_inputs(study, sites)


def print_forecast(
    study: StudyConfig,
    sites: Sites,
    options: Counts,
    spending: bool = False,
) -> dict[str, float]:
    """Print the forecast of a study, or a stage; refuse one that noise drowns.

    First the verdict and its meaning, then spending, then the numbers behind it.

    Parameters
    ----------
    study, sites
        The study, and its sites.
    options
        Numbers that replace those that are counted.
    spending
        Print the study's spending, too.

    Returns
    -------
    dict
        Noise of each result over the most that leaves one; none where a number is not
        known.
    """
    base = assumed(study, sites)
    counts = base.replaced_by(options)

    def print_costs() -> None:
        if spending:
            print("\nThe promise to each party, and the spending")
            print_spending(study)

    try:
        forecast = registry.of(study).forecast(names(study, sites), counts)
    except Unknown as error:
        if base.is_counted and not any(options):
            raise missing_number(study, error.missing[0]) from None
        missing = ", ".join(f"--{name}" for name in error.missing)
        hint = "; capeneuro validate counts those whose files are here"
        hint = hint if "people" in error.missing and not any(options) else ""
        print(f"note: give {missing} for a prediction{hint}")
        print_costs()
        return {}
    if forecast.ratios:
        result, ratio = max(forecast.ratios.items(), key=lambda pair: pair[1])
        verdict = "results stand above the noise"
        if ratio > 1:
            verdict = "noise drowns the result"
        print(f"forecast: {verdict}, which is {ratio:.3g} times what {result} can bear")
    if forecast.in_short:
        print(textwrap.fill(f"in short: {forecast.in_short}", 100))
    print_costs()
    if study.is_apart and forecast.n_features:
        travel.check(study, forecast.n_features)
        words = travel.forecast(study, forecast.n_features)
        print(f"\n{textwrap.fill(words, 100)}")
    print(f"\nThe forecast, for {base.in_words(counts)}")
    forecast.show()
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
        The sites' descriptions: ``n_units`` of each, which is public. None: no site
        was asked yet, so the study file has to give the number.
    forecaster
        Makes the forecast; None: that of the study's kind.

    Raises
    ------
    BudgetExceeded
        If the forecast is drowned and the study file does not accept it.
    ConfigError
        If a number is missing that the study file may give.
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
    forecaster = forecaster or registry.of(study).forecast
    try:
        forecast = forecaster(names(study, sites), counts)
    except Unknown as error:
        raise missing_number(study, error.missing[0]) from None
    if study.is_apart and forecast.n_features:
        travel.check(study, forecast.n_features)
    refuse(study, sites, counts, forecast, forecaster)
    refuse_later_stages(study, sites)
    if roster is not None:  # the sizes that releases have, and all of it public
        foretold = {"noise": forecast.ratios, "in_short": forecast.in_short}
        files.write_json(study.results / FORECAST, foretold)


def check_stated(study: StudyConfig) -> None:
    """Refuse a study across institutions that lacks a number which nobody may count.

    Without it the aggregator would end the study before its first release, when all
    sites have joined.
    """
    if study.arm == "non-private":
        return
    first = next(iter(study.full_study.members.values()))
    try:
        registry.of(first).forecast(names(first, {}), counted(first, {}))
    except Unknown as error:
        if error.missing[0] in NOT_COUNTED:
            raise missing_number(first, error.missing[0]) from None


def refuse_later_stages(study: StudyConfig, sites: Sites) -> None:
    """Refuse a stage where noise is foretold to drown a later one.

    Its releases would be paid for in vain. A forecast whose numbers are still missing
    refuses nothing.
    """
    members = list(study.full_study.members.values())
    index = [m.identity for m in members].index(study.identity)
    for member in members[index + 1 :]:
        with suppress(Unknown):
            refuse(member, sites, counted(member, sites))


def missing_number(study: StudyConfig, key: str) -> ConfigError:
    """Error of a study file without a number that nobody may count."""
    if key not in NOT_COUNTED:
        return ConfigError(
            f"study {study.study}: space.mask: must be here to count the features"
        )
    return ConfigError(
        f"study {study.study}: expected.{key}: must be given, for {NOT_COUNTED[key]}; "
        "write the number that the study's protocol asks for"
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
        The study, and the numbers that its forecast is for.
    forecast
        The forecast, where it was made already.
    forecaster
        As of :func:`gate`.

    Raises
    ------
    BudgetExceeded
        With the number of people that would be enough, where it is quickly found.
    Unknown
        If a number is missing.
    """
    forecaster = forecaster or registry.of(study).forecast

    def forecast_with(people: int) -> Forecast:
        return forecaster(names(study, sites), counts._replace(people=people))

    forecast, reasons = forecast or forecast_with(counts.people), accepted(study)
    if forecast.adds is not None and forecast.adds < LEAST_GAIN:
        if GAIN not in reasons:
            raise BudgetExceeded(
                f"study {study.study}: prior: private data must be forecast to add "
                f"{LEAST_GAIN} or more to the public maps' r, got {forecast.adds:.3f}; "
                "nothing was released. More people or a "
                f"larger epsilon help; accept: [{{rule: {GAIN}, reason: "
                '"why, in a sentence"}] in the study file lets it run all the same'
            )
        print(f"accepted: private data add nothing measurable; {reasons[GAIN]}")
    ratios = forecast.ratios.items()
    drowned = [f"{x:.3g} times what {name} can bear" for name, x in ratios if x > 1]
    if not drowned:
        return
    if reason := reasons.get(NOISE):
        print(f"accepted: noise of {' and '.join(drowned)}; {reason}")
        return
    n, no_noise = None, _open_data_remedy(sites)
    if forecast.adds is None:
        n = _people_needed(forecast_with, counts.people, forecast)
    enough = "" if n is None else f"With some {amount(counts._replace(people=n))} it "
    enough += "would not be. " if enough else ""
    raise BudgetExceeded(
        f"study {study.study}: budget.epsilon: noise must not drown the result, is "
        f"foretold to be {' and '.join(drowned)} with {amount(counts)}; nothing of it "
        f"is released. {enough}{no_noise}{forecast.remedy} help; accept: "
        f'[{{rule: {NOISE}, reason: "why, in a sentence"}}] in the study file lets it '
        "run all the same"
    )


def _open_data_remedy(sites: Sites) -> str:
    """Advice to run a study of open data without noise, as a sentence."""
    kinds_of_data = {site.data for site in sites.values()}
    if not kinds_of_data or "private" in kinds_of_data:
        return ""
    return (
        f"These data are {' and '.join(sorted(kinds_of_data))}, which need no noise: "
        "`arm: non-private` in the study file adds none. "
    )


def _people_needed(
    forecast_with: Callable[[int], Forecast], people: int, forecast: Forecast
) -> int | None:
    """People that are enough, rounded up to two digits; None if not soon found."""
    for _ in range(TRIES):
        worst = max(forecast.ratios.values())
        if not np.isfinite(worst) or people > MOST_PEOPLE:
            return None
        if worst <= 1:
            return people
        people = math.ceil(people * worst)
        step = 10 ** max(len(str(people)) - 2, 0)
        people = math.ceil(people / step) * step
        forecast = forecast_with(people)
    return None


def accepted(study: StudyConfig) -> dict[str, str]:
    """Reasons in the study file, by the rule that it sets aside."""
    return {exception.rule: exception.reason for exception in study.accept}


def promise_line(study: StudyConfig) -> str:
    """A study's promise, as a line."""
    if study.arm == "non-private":
        return "arm non-private: no noise is added, nobody is promised anything"
    promise, S = study.promise, len(study.sites)
    return (
        f"promise: epsilon {promise.epsilon:g}, delta {promise.delta:g}, unit "
        f"{promise.unit}, {promise.relation}, mu {promise.mu:.4f}; against "
        f"{study.adversary}, of {S} sites"
    )


def print_spending(study: StudyConfig) -> None:
    """Print the promise against each class of parties, and each stage's spending."""
    if study.arm == "non-private":
        return
    promise, S = study.promise, len(study.sites)
    for party, epsilon in epsilon_by_parties(study).items():
        print(f"  {party}: epsilon {epsilon:.3g}")
    if promise.unit == "sample":
        print(f"for a person: {person_in_words(study)}")
    for name, epsilon in study.budget.site_epsilon.items():
        print(f"{name}: promises epsilon {epsilon:g} instead")
    coalition = promise.coalition(S)
    if n := coalition.n_dropout:
        complete = replace(coalition, n_dropout=0)
        factor = coalition.noise_over_pooled / complete.noise_over_pooled
        print(f"{n} of {S} sites may drop out, for {factor:.2f} times the noise")
    if study.arm in COOPERATIVE_ARMS:
        _print_coalition_noise(study)
    for stage, multiplier in study.multipliers.items():
        n = study.n_releases[stage]
        mu = n**0.5 / multiplier
        print(
            f"{stage}: {n} round{'s' * (n > 1)} at noise multiplier {multiplier:.3f}, "
            f"epsilon {accounting.epsilon_from_mu(mu, promise.delta):.3f} alone"
        )
    mus = [
        1 / multiplier
        for stage, multiplier in study.multipliers.items()
        for _ in range(study.n_releases[stage])
    ]
    if len(mus) > 1:
        print("epsilon after so many releases, against the worst class of parties:")
        print(curve_in_words(mus, promise.delta))


def curve_in_words(mus: list[float], delta: float) -> str:
    """Lines of a table: total epsilon over the releases, by every accountant."""
    head = ["releases", *ACCOUNTANTS.values()]
    lines = ["  " + "  ".join(head)]
    for row in accountants.curve(mus, delta):
        cells = [f"{row['releases']}", *(f"{row[k]:.3f}" for k in ACCOUNTANTS)]
        padded = (cell.rjust(len(name)) for cell, name in zip(cells, head, strict=True))
        lines.append("  " + "  ".join(padded))
    return "\n".join(lines)


def epsilon_by_parties(study: StudyConfig, site: str = "") -> dict[str, float]:
    """Epsilon of a whole study against each class of parties, by its description.

    Parameters
    ----------
    study
        The study, in an arm with noise.
    site
        Site of the people; by default one without an epsilon of its own.

    Returns
    -------
    dict
        By class; at most the epsilon that is promised.
    """
    S, local = len(study.sites), study.arm == "local"
    if site not in study.budget.site_epsilon:
        site = ""
    site_names = [site] if local else [*study.budget.site_epsilon, *[""] * S][:S]
    mu = [study.promise_of(name).mu for name in site_names]
    coalition = accounting.Coalition(1, 0) if local else _coalition(study)
    gamma = calibration.arm_variances(study.arm, mu, study.noise_ratio, coalition)
    losses = parties.views(study.arm, gamma, study.noise_ratio, coalition)
    k = site_names.index(site) if site in site_names else 0
    return {
        parties: accounting.epsilon_from_mu(float(losses[view][k]), study.budget.delta)
        for view, parties in sentences.parties(study).items()
        if losses[view] is not None
    }


def _coalition(study: StudyConfig) -> accounting.Coalition:
    """Sites of a study whose noise does not count."""
    S = len(study.sites)
    return accounting.Coalition(S, study.n_colluding, S - study.survivor_threshold)


def person_in_words(study: StudyConfig) -> str:
    """Epsilon of all of a person's volumes, under a promise to one volume, in words.

    Row: person-bound, person-limit
    """
    if study.person_epsilon is None:
        return "not bounded, for no expected.longest limits how many volumes one has"
    n = study.person_units
    return f"epsilon {study.person_epsilon:,.4g} at worst, with {n} volumes at most"


def _print_coalition_noise(study: StudyConfig) -> None:
    """Print the noise that is added since a partner, or the aggregator, colludes."""
    S, t, c = len(study.sites), study.survivor_threshold, study.n_colluding
    n_named = study.budget.n_colluding
    if n_named is None:
        n_named = math.ceil(S / 3) - 1
    if n_named < c:
        factor = ((t - n_named) / (t - c)) ** 0.5
        why = "a partner takes its own noise off the result, so one always counts"
        if accounting.coalition(S, study.budget.n_colluding, True) < c:
            why = "an aggregator at a site counts; `aggregator: independent` if at none"
        print(
            f"{factor:.2f} times the noise of a promise against {n_named} colluding "
            f"{'site' if n_named == 1 else 'sites'}: {why}"
        )
    if t - c == 1:
        print("of one site alone the noise counts, as in the arm `conventional`")


def print_payments(study: StudyConfig, sites: Sites) -> None:
    """Print how many releases are paid already, and each site's use of its ceiling.

    Raises
    ------
    BudgetExceeded
        If the study as it now is does not fit under a site's ceiling.
    """
    if study.arm == "non-private":
        print("without privacy: nothing is charged")
        return
    n = sum(study.n_releases.values())
    if unmade := without_ledger(study, sites):
        print(f"note: {make_ledgers(unmade)}; until then nothing counts as spent")
    names_by_use: dict[str, list[str]] = {}
    for name, spent in check_ceilings(study, sites, on_paper=True).items():
        site, promise = sites[name], study.promise_of(name)
        n_paid = 0 if name in unmade else paid_for(study, name, site)
        mus = [accounting.Budget(spent, site.delta, site.unit).mu] if spent else []
        after = accounting.compose([*mus, promise.mu])
        total = accounting.epsilon_from_mu(after, site.delta)
        use = (
            f"{n_paid} of {n} releases are paid and replayed at no cost; other studies "
            f"spent {spent:.4g}, with this one {total:.4g} of the ceiling "
            f"{site.epsilon:g}"
        )
        names_by_use.setdefault(use, []).append(name)
    for use, alike in names_by_use.items():
        print(f"{some(alike)}: {use}")


class ArmNoise(NamedTuple):
    """Size of a release in a study's arm, and its noise."""

    n_sites: int
    n_people: int
    over_pooled: float
    """Deviation of the noise over that of the arm `pooled`."""


def noise_over_pooled(
    study: StudyConfig, site_names: Sequence[str], people: int
) -> ArmNoise:
    """Sites and people of a release in the study's arm; its noise over the pooled."""
    S, local = len(study.sites), study.arm == "local"
    factors = [study.mu_factors.get(name, 1.0) for name in site_names]
    ratio, coalition = study.noise_ratio, _coalition(study)
    gamma = calibration.arm_variances(study.arm, factors, ratio, coalition)
    over = float(np.sqrt(gamma[:1].sum() if local else gamma.sum()))
    if local:
        return ArmNoise(1, max(people // S, 1), over)
    return ArmNoise(S, people, over)
