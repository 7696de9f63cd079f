"""The command that attacks this installation with canaries."""

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from capeneuro.cli.command import Command
from capeneuro.config import load
from capeneuro.config.errors import ConfigError


def audit(options: argparse.Namespace) -> int:
    """Attack this installation with canaries; it touches no data and spends nothing.

    Two worlds differ in one unit; the real code runs in both. A lower bound on epsilon
    above the ledger's charge is a leak. Ends with status 1 if any row leaks. With
    `--study` one run of a prepared study on simulated people is attacked: a coin
    decides which of two candidates each person is; `capeneuro report` then writes the
    outcome into the report.
    """
    if options.study is not None:
        return _audit_study(options)
    from capeneuro.audit import canaries, two_stages
    from capeneuro.report import progress

    settings = {
        "arms": options.arms.split(","),
        "units": (options.unit,),
        "n_pairs": options.pairs,
        "n_sites": options.sites,
        "n_colluding": options.colluding,
        "party": options.party,
        "progress": progress.named("transcripts"),
    }
    queries = [*canaries.CANARIES]
    if options.queries:
        queries = options.queries.split(",")
    for key, chosen, known in (
        ("arms", settings["arms"], canaries.ARMS),
        ("queries", queries, canaries.CANARIES),
    ):
        if unknown := set(chosen) - set(known):
            raise ConfigError(
                f"--{key}: must be of {', '.join(known)}, got {', '.join(unknown)}"
            )
    if not 0 <= options.colluding < options.sites:
        raise ConfigError(
            f"--colluding: must be below --sites {options.sites}, got "
            f"{options.colluding}"
        )
    if options.pairs < 100:
        raise ConfigError(f"--pairs: must be at least 100, got {options.pairs}")
    widths = ["12", "16", "11", ">7", ">7", ">8", ">8", ">7"]
    names = ["arm", "query", "canary", "mu", "shown", "epsilon", "shown", "noise"]
    print(" ".join(map(format, names, widths)), "verdict", sep="  ")
    all_hold = True
    rows = canaries.audit(queries=queries, **settings)
    if options.unit == "subject" and not options.queries:  # as later stages need
        rows = chain(rows, two_stages.rows(**settings))
    for f in rows:
        numbers = [f.mu, f.mu_lower, f.epsilon, f.epsilon_lower, f.deviation]
        cells = [f.arm, f.query, f.canary, *(f"{x:.3f}" for x in numbers)]
        line = " ".join(map(format, cells, widths))
        print(f"{line}  {f.verdict}", flush=True)
        all_hold &= f.verdict == "holds"
    return 0 if all_hold else 1


def _audit_study(options: argparse.Namespace) -> int:
    from capeneuro.audit import one_run
    from capeneuro.data import files

    study = load.load_study(options.study)
    files.keep_private()
    attack = one_run.attack(study, options.canaries)
    files.write_json(study.results / one_run.FILE, attack._asdict())
    holds = max(attack.epsilon, attack.epsilon_gaussian) <= attack.promised
    print(
        f"{attack.n_right} of the {attack.n_guesses} surest guesses at "
        f"{attack.n_canaries} coins were right: epsilon is at least "
        f"{attack.epsilon:.3g}, and at least {attack.epsilon_gaussian:.3g} if noise is "
        f"Gaussian, each with {100 * (1 - attack.alpha):g}% confidence; the promise "
        f"of epsilon {attack.promised:g} {'holds' if holds else 'LEAKS'}"
    )
    return 0 if holds else 1


def _audit_arguments(command: argparse.ArgumentParser) -> None:
    from capeneuro.privacy import parties

    command.add_argument("--arms", default="cape", help="some, with commas between")
    command.add_argument("--queries", help="some; by default all, and two stages")
    command.add_argument("--study", type=Path, help="a prepared study, in one run")
    command.add_argument("--canaries", type=int, default=200, help="with --study")
    command.add_argument(
        "--unit",
        choices=["sample", "subject"],
        default="subject",
        help="unit in which the two worlds differ",
    )
    command.add_argument(
        "--party",
        choices=parties.VIEWS,
        default="aggregator_and_colluders",
        help="whose view is attacked",
    )
    command.add_argument("--sites", type=int, default=3, help="number of sites")
    command.add_argument("--colluding", type=int, default=1, help="colluding sites")
    command.add_argument(
        "--pairs",
        type=int,
        default=2000,
        help="transcripts of each world; 1000 take up to a minute a row, and 10000, "
        "ten times as long, show 0.8 mu",
    )


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    yield Command(audit, _audit_arguments, "--arms cape --queries mean --pairs 500")
