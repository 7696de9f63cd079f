"""Steps of a study of several stages: what is asked of all of them together."""

import json
from functools import partial

from capeneuro.algorithms.verdicts import ABOVE
from capeneuro.config.stages import StagedStudy
from capeneuro.config.study import Study
from capeneuro.data import files
from capeneuro.report import page
from capeneuro.report.record import write_beside
from capeneuro.studies import kinds
from capeneuro.studies.flow import VERDICTS, Kind
from capeneuro.studies.plan import (
    PLANNED,
    Counts,
    accepted,
    foreseen,
    preview,
    spending,
)
from capeneuro.studies.sites import Sites


def validate(study: StagedStudy, sites: Sites, threads: int = 1) -> None:
    """Check each stage, as far as it can be checked before the one before it ran."""
    for name, member in study.members.items():
        print(f"{name}:")
        kinds.of(member).steps["validate"](member, sites, threads)


def plan(
    study: StagedStudy,
    sites: Sites,
    people: int | None = None,
    volumes: int | None = None,
    features: int | None = None,
) -> None:
    """Show what the stages will spend, and what each will buy; refuse what is drowned.

    Stages are foretold before the first release of any.
    """
    spending(study)
    preview(study, sites)
    found: dict[str, dict[str, float]] = {}
    if study.arm != "non-private":
        for name, member in study.members.items():
            print(f"\nstage {name}: {100 * member._place.share:.0f}% of the budget")
            about = member, sites, Counts(people, volumes, features)
            found[name] = foreseen(kinds.of(member).foretell, *about)
        advise(study, found)
    if not any((people, volumes, features)):
        about = {"noise_over_signal": found, "accepted": accepted(study)}
        files.write_json(study.private("_aggregator") / PLANNED, about)


def advise(study: StagedStudy, found: dict[str, dict[str, float]]) -> None:
    """Say which weights would make the stages' noise alike, beside what leaves one.

    Noise falls with the root of a share.
    """
    if not all(found.values()):
        return
    needs = {
        name: max(ratios.values()) ** 2 * study.members[name]._place.share
        for name, ratios in found.items()
    }
    total = sum(needs.values())
    said = ", ".join(f"{name}: {need / total:.2g}" for name, need in needs.items())
    print(f"\nnoise of all stages would be alike with weights: {{{said}}}")


def report(study: StagedStudy, sites: Sites, threads: int = 1) -> None:
    """Write the page of all stages, which names what each found, and their record."""
    write_beside(study, study.results)
    record = json.loads((study.results / "privacy.json").read_text())
    about = {
        name: {"share": member._place.share, "sentence": sentence_of(member)}
        for name, member in study.members.items()
    }
    text = page.render(
        study, record, [], {}, None, template="stages.html.jinja", stages=about
    )
    files.write_text(study.results / "report.html", text)
    print(study.results / "report.html")


def sentence_of(member: Study) -> str:
    """How many results of a stage stand above the noise, in words."""
    words = [row[3] for row in files.read_table(member.results / VERDICTS)]
    n = words.count(ABOVE)
    verb = "stands" if n == 1 else "stand"
    return f"{n or 'none'} of {len(words)} results {verb} {ABOVE}"


def over(federation: object, study: StagedStudy, sites: Sites) -> None:
    """Run what a federation over a network asks: nothing, stages are asked singly."""
    raise NotImplementedError


KIND = Kind(
    name="several stages",
    steps={"validate": validate, "plan": plan, "report": report},
    foretell=partial(foreseen),
    over=over,
    inputs=lambda study, site: [],
    public_files=lambda study: [],
    released=lambda study: [],
    shown=lambda study: [],
    kept=(),
    validated=lambda study: [],
    stages=(),
    depends=lambda study, step: "",
    site_keys={},
    made=lambda study, sites: [],
    score_inputs=lambda study: [],
)
