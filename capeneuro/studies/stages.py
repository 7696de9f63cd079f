"""Steps of a study of several stages: what is asked of all of them together."""

from capeneuro.config.stages import StagedStudy
from capeneuro.data import files
from capeneuro.studies import kinds
from capeneuro.studies.counts import Counts
from capeneuro.studies.flow import Kind
from capeneuro.studies.plan import (
    PLANNED,
    accepted,
    check_ready,
    foreseen,
    preview,
    promised,
    spending,
)
from capeneuro.studies.reports import report
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
) -> dict[str, dict[str, float]]:
    """Show what the stages will spend, and what each will buy; refuse what is drowned.

    Stages are foretold before the first release of any.
    """
    print(promised(study))
    spending(study)
    preview(study, sites)
    found: dict[str, dict[str, float]] = {}
    if study.arm != "non-private":
        for name, member in study.members.items():
            print(f"\nstage {name}: {100 * member.stage_share:.0f}% of the budget")
            about = member, sites, Counts(people, volumes, features)
            found[name] = foreseen(kinds.of(member).foretell, *about)
        advise(study, found)
    if not any((people, volumes, features)):
        check_ready(study, sites)
        about = {"noise_over_signal": found, "accepted": accepted(study)}
        files.write_json(study.private("_aggregator") / PLANNED, about)
    return found


def advise(study: StagedStudy, found: dict[str, dict[str, float]]) -> None:
    """Say which weights would make the stages' noise alike, beside what leaves one.

    Noise falls with the root of a share.
    """
    if not all(found.values()):
        return
    needs = {
        name: max(ratios.values()) ** 2 * study.members[name].stage_share
        for name, ratios in found.items()
    }
    total = sum(needs.values())
    said = ", ".join(f"{name}: {need / total:.2g}" for name, need in needs.items())
    print(f"\nnoise of all stages would be alike with weights: {{{said}}}")


KIND = Kind(
    name="several stages",
    steps={"validate": validate, "plan": plan, "report": report},
    chapter=None,
    foretell=None,
    over=None,
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
