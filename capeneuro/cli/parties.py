"""Commands of a study across institutions, which each party runs on its own host."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from capeneuro import __version__
from capeneuro.cli.command import STUDY, Command
from capeneuro.config import load
from capeneuro.config.errors import ConfigError


def federation(options: argparse.Namespace) -> int:
    """Make, harden or check kits; assemble the sites' entries and signatures.

    `init STUDY FOLDER` prepares a federation. At a party `request NAME.yaml` makes its
    key, and `package NAME.signed.zip` its kit; `harden KIT` closes the doors that FLARE
    leaves open, as `package` does, and `check KIT` verifies it. `renew KIT
    NAME.signed.zip --from FOLDER` puts a renewed certificate in place, while a study
    runs. `manifest STUDY ENTRY...` assembles the sites' entries, `approvals STUDY
    APPROVAL...` stores their signatures; see `join`.
    """
    return options.action(options) or 0


def _federation_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(required=True, metavar="ACTION")
    made_by = {"dest": "request", "type": Path, "help": "folder that `request` made"}

    def add(run: Callable, name: str, summary: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=summary)
        action.set_defaults(action=run)
        action.add_argument("--version", action="version", version=__version__)
        return action

    action = add(_init_federation, "init", "prepare a federation")
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("folder", type=Path, help="new folder for its authority")
    action.add_argument("--server", required=True, help="host of the aggregator")
    action.add_argument("--port", type=int, default=8002, help="its only open port")
    action.add_argument("--here", action="store_true", help="also make every kit")
    action = add(_request, "request", "make a key, and a request for its certificate")
    action.add_argument("party", type=Path, help="NAME.yaml of the project's admin")
    action.add_argument("--out", type=Path, required=True, help="new folder of the key")
    action = add(_package, "package", "make a kit of a signed request")
    action.add_argument("signed", type=Path, help="NAME.signed.zip as it came back")
    action.add_argument("--from", required=True, **made_by)
    action.add_argument("--fingerprint", required=True, help="of the authority")
    action.add_argument("--kit", type=Path, required=True, help="new folder of the kit")
    action = add(_harden, "harden", "close the doors that FLARE leaves open")
    action.add_argument("kit", type=Path, help="folder above startup/")
    action = add(_check_kit, "check", "verify a kit, rule by rule")
    action.add_argument("kit", type=Path, help="folder above startup/")
    action.add_argument("--site-file", type=Path, help="file of the kit's site")
    action = add(_renew, "renew", "put a renewed certificate into a kit")
    action.add_argument("kit", type=Path, help="folder above startup/")
    action.add_argument("signed", type=Path, help="NAME.signed.zip as it came back")
    action.add_argument("--from", **made_by)
    action = add(_manifest, "manifest", "assemble the sites' entries")
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("entries", type=Path, nargs="+", help="file of each site")
    action.add_argument("--before", type=Path, help="the manifest that it supersedes")
    action.add_argument("--why", default="", help="reason of a revision")
    action.add_argument("--ends", type=date.fromisoformat, help="last day, in a year")
    action = add(_approvals, "approvals", "store the sites' signatures")
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("approvals", type=Path, nargs="+", help="file of each site")


def _init_federation(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    study = load.load_study(options.study)
    kit.init(study, options.folder, options.server, options.port, options.here)


def _request(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    path = kit.request(options.party, options.out)
    print(f"send {path} to the project's admin; the rest of {options.out} stays here")


def _package(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    kit.package(options.signed, options.request, options.fingerprint, options.kit)
    print(f"{options.kit}: made and hardened; now at a site: capeneuro site STUDY")
    print("  --site NAME --kit KIT --check (elsewhere: capeneuro federation check KIT)")


def _harden(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    kit.harden(options.kit)
    print(f"{options.kit}: hardened; now: capeneuro federation check {options.kit}")


def _check_kit(options: argparse.Namespace) -> int:
    from capeneuro.flare import kit, reach

    path = options.site_file
    name = None if path is None else load.load_site(path).name
    return 2 * _failed([*kit.check(options.kit, name), *reach.check(options.kit)])


def _failed(findings: Iterable[Any]) -> bool:
    """Print findings, each as it comes; whether any failed."""
    failed = False
    for finding in findings:
        print(finding.line, flush=True)
        failed |= finding.failed
    return failed


def _renew(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit, renewal

    until = renewal.renew(options.kit, options.signed, options.request)
    is_lead = kit.kind_of(options.kit) == "lead"
    running = "" if is_lead else "; what runs with this kit takes it within seconds"
    print(f"{options.kit}: renewed until {until:%Y-%m-%d}{running}")


def _manifest(options: argparse.Namespace) -> None:
    from capeneuro.flare import joining

    study = load.load_study(options.study)
    manifest = joining.assemble(
        study, options.entries, options.before, options.why, options.ends
    )
    print(joining.summary(manifest))
    print(
        f"\npublish this fingerprint where all sites can read it:\n  "
        f"{manifest.fingerprint}"
    )
    if study.federation == "files":
        print(
            "it rides with the first requests, which sites approve and answer in one:\n"
            f"  capeneuro aggregate {options.study} --folder DIR"
        )
        return
    print(
        "send manifest.json to every site, which types\n"
        f"  capeneuro join {options.study} --site NAME --manifest manifest.json "
        "--fingerprint ..."
    )


def _approvals(options: argparse.Namespace) -> None:
    from capeneuro.flare import joining

    study = load.load_study(options.study)
    missing = joining.collect(study, options.approvals)
    still = f"still missing: {', '.join(missing)}"
    print(still if missing else "all sites have signed")


def join(options: argparse.Namespace) -> None:
    """Join a study across institutions: look at it, write an entry, later sign.

    Without `--manifest` it prints the study's queries and its promise, and writes the
    site's entry. With the coordinator's manifest of all entries, and the published
    fingerprint, it prints the participating institutions and signs.
    """
    from capeneuro.data import files
    from capeneuro.flare import joining, parties

    study = load.load_study(options.study)
    joining.over_network(study)
    files.keep_private()
    if options.manifest is None:
        if options.fingerprint:
            raise ConfigError("--manifest: needed with --fingerprint")
        if not (options.institution and options.contact):
            raise ConfigError(
                "--institution, --contact: must name the institution that is "
                "responsible for the site, and its contact; add both"
            )
        parties.show(study, options.site)
        path = joining.enter(study, options.site, options.institution, options.contact)
        joining.note_study_file(study, options.site, options.study)
        print(
            f"wrote {path} with institution, contact, kind of data, keys and number of "
            "earlier releases; send it to the study's coordinator; it approves no study"
        )
        if joining.is_prepared(study, options.site):
            print("it tells the number of people, too")
        elif study.federation == "files":
            print("not prepared yet: to save a visit prepare it, and join again")
        return
    if options.institution or options.contact:
        raise ConfigError(
            "--institution, --contact: belong to the entry, which was made before "
            "--manifest; remove them"
        )
    before = joining.approved(study, options.site)
    manifest = joining.signable_manifest(study, options.site, options.manifest)
    print(joining.summary(manifest, before))
    if not options.fingerprint:
        print("not signed; to sign, add --fingerprint with the published fingerprint")
        return
    fingerprint = " ".join(options.fingerprint)
    path = joining.approve(study, options.site, options.manifest, fingerprint)
    print(f"signed; wrote {path}; send it to the study's coordinator")


def _join_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--site", required=True, help="name of the site")
    command.add_argument(
        "--institution", default="", help="institution responsible for the site"
    )
    command.add_argument("--contact", default="", help="how to reach it")
    command.add_argument("--manifest", type=Path, help="file of the coordinator")
    command.add_argument(
        "--fingerprint", nargs="+", default=[], help="the published fingerprint"
    )


def site(options: argparse.Namespace) -> int:
    """Wait for the aggregator as one site, until interrupted.

    With `--check` it looks at this machine instead and ends: name and port of the
    server, who answers, proxy, clock, certificate, disks, locks, memory, manifest,
    features. A line each; status 1 where any failed.
    """
    from capeneuro.flare import host, joining, parties

    if options.check:
        study = load.load_study(options.study, options.stage)
        joining.over_network(study)
        return int(_failed(host.check(study, options.site, options.kit)))
    return parties.site(
        options.study, options.site, options.kit, options.once, options.stage
    )


def _site_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--site", required=True, help="name of the site")
    command.add_argument("--kit", type=Path, required=True, help="its kit")
    command.add_argument("--once", action="store_true", help="end when it is finished")
    command.add_argument("--check", action="store_true", help="check this machine")
    command.add_argument("--stage", default="", help="one of several stages")


def aggregate(options: argparse.Namespace) -> int:
    """Run the steps over all sites of a study, each at its own institution.

    With `--folder` requests and answers are files that people carry: it goes as far as
    there are answers, ends with status 4 while it waits, and goes on when it is called
    again. `--gone SITE --reason TEXT` gives a site up: the round that it did not answer
    is void, stays charged, and the others go on where the promise pays for it.
    """
    from capeneuro.flare import by_files, joining, parties

    if options.reason and not options.gone:
        raise ConfigError("--reason: says why a site is given up; add --gone SITE")
    if options.gone:
        study = load.load_study(options.study)
        joining.give_up(study, options.gone, options.reason)
    if options.folder is not None:
        return by_files.aggregate(
            options.study,
            options.folder,
            options.watch,
            options.threads,
            options.gone,
        )
    kits = {"CAPENEURO_SERVER_KIT": options.kit, "CAPENEURO_LEAD_KIT": options.lead}
    for variable, option in zip(kits, ("--kit", "--lead"), strict=True):
        kits[variable] = kits[variable] or os.environ.get(variable)
        if not kits[variable]:
            raise ConfigError(f"{option}: must name the kit; add it, or set {variable}")
    server, lead = map(Path, kits.values())
    return parties.aggregate(
        options.study,
        server,
        lead,
        options.timeout,
        options.segment,
        options.patience,
        options.stage,
    )


def _aggregate_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--stage", default="", help="one of several stages")
    command.add_argument("--folder", type=Path, help="requests and answers as files")
    command.add_argument("--watch", action="store_true", help="wait for the answers")
    command.add_argument("--threads", type=int, default=1, help="for maps and report")
    command.add_argument("--gone", default="", help="site to give up")
    command.add_argument("--reason", default="", help="why it is given up")
    command.add_argument("--kit", help="the server's kit; or CAPENEURO_SERVER_KIT")
    command.add_argument("--lead", help="the lead's kit; or CAPENEURO_LEAD_KIT")
    seconds = {"type": float, "metavar": "S"}
    command.add_argument(
        "--timeout", default=600.0, help="wait for a site in a round [s]", **seconds
    )
    command.add_argument("--segment", type=int, default=200, help="releases of one job")
    command.add_argument(
        "--patience", default=600.0, help="give up without progress [s]", **seconds
    )


def answer(options: argparse.Namespace) -> int:
    """Answer a request of a study by files, and state what the answer discloses.

    It checks that the aggregator of the study asks, shows what is asked and what it
    costs, and after a yes charges the ledger and writes `....answer.zip` with
    `....DISCLOSURE.html`. The same request again gives the same file and costs nothing.
    """
    from capeneuro.data import files
    from capeneuro.flare import by_files

    files.keep_private()
    fingerprint = " ".join(options.fingerprint)
    return by_files.answer(options.request, fingerprint, options.yes, options.study)


def _answer_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("request", type=Path, help="file of the aggregator")
    command.add_argument("--yes", action="store_true", help="answer without asking")
    command.add_argument(
        "--fingerprint", nargs="+", default=[], help="the published fingerprint, once"
    )
    command.add_argument("--study", type=Path, help="study file; that of `join`")


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    kit_check = "check kits/site-1 --site-file config/sites/site-1.yaml"
    yield Command(federation, _federation_arguments, kit_check)
    entry = f"{STUDY} --site site-1 --institution I --contact C"
    yield Command(join, _join_arguments, entry)
    yield Command(site, _site_arguments, f"{STUDY} --site site-1 --kit kits/site-1")
    kits = "--kit kits/server --lead kits/lead"
    yield Command(aggregate, _aggregate_arguments, f"{STUDY} {kits}")
    yield Command(answer, _answer_arguments, "my-study-1.site-1.request.zip")
