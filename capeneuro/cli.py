"""The command line: one subcommand per step of a study.

Exit status: 0 done, 2 bad input (one clear line), 3 budget refused, 1 failure.
"""
# A command imports what it needs when it runs: a study is many short processes.

import argparse
import contextlib
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF
from typing import Any, NoReturn

from capeneuro import __version__
from capeneuro.config import load
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.sections import BESIDE
from capeneuro.config.site import SiteConfig
from capeneuro.privacy import cape
from capeneuro.studies.steps import steps

# What the table of a ledger's releases shows; salted ids of people stay in the ledger.
EXPORTED = ("study", "query", "round", "arm", "unit", "relation", "n_colluding")
EXPORTED += ("sensitivity", "noise", "noise_multiplier", "mu", "roster", "reply")


def init(options: argparse.Namespace) -> None:
    """Write a new study with every key explained, ready to be filled in.

    With `--data simulated` the study makes its people itself and runs as it stands. In
    a folder that has a study file already it adds the workflow alone: for a party that
    was sent one. With `--from` it looks at one folder of images a site, says what
    is there and writes a study of it with the keys that need a decision.
    """
    from capeneuro.config import scaffold
    from capeneuro.data import files

    folder = Path(options.folder)
    given = (folder / "config" / "config.yaml").exists()
    if options.sources and (given or options.kind != "components"):
        why = f"{folder} has one" if given else "--kind components is what it makes"
        raise ConfigError(f"--from: writes a study file, and {why}; leave one out")
    if options.sites < 2:
        raise ConfigError(f"--sites: must be at least 2, got {options.sites}")
    made_here = options.data == "simulated" and not options.sources
    if made_here and (given or options.kind != "components"):
        why = "has a study file" if given else f"is of kind {options.kind}"
        raise ConfigError(
            f"--data simulated: makes people for a new study of components, and "
            f"{folder} {why}; `data` blocks of other kinds are in config/ of a checkout"
        )
    if (folder / "workflow").exists() or (not given and (folder / "config").exists()):
        what = folder / ("workflow" if (folder / "workflow").exists() else "config")
        raise ConfigError(f"{what}: exists already; choose another folder")
    made: dict[str, str] = {}
    if options.sources:
        from capeneuro.studies import begin

        protocol = options.people, options.volumes
        about = options.data, protocol, options.person
        said, todo = begin.write(folder, options.sources, *about)
    elif not given:
        names = [f"site-{i + 1}" for i in range(options.sites)]
        own = scaffold.label(folder.resolve().name)
        of = {key: getattr(options, key) for key in ("data", "people", "volumes")}
        made = scaffold.study_files(names, options.kind, own, **of)
    for path, text in (made | scaffold.workflow_files()).items():
        files.write_text(folder / path, text)
    if options.sources:
        # Not before all files are there: who reads may have read enough.
        print(*said, "\nnext, in this order:", f"  cd {folder}", sep="\n")
        print(*(f"  {line}" for line in todo), sep="\n", end="\n" if todo else "")
        print("  capeneuro check config/config.yaml")
        begun = options.data == "private"
        for site in begin.site_names(options.sources) if begun else ():
            print(f"  capeneuro ledger init config/sites/{site}.yaml")
        print("  capeneuro run config/config.yaml")
        return
    if made_here:
        print(f"next: cd {folder}; capeneuro plan config/config.yaml")
        print("then: capeneuro run config/config.yaml  # makes the people first")
        return
    todo = "" if given else "fill in config/, then: "
    print(f"cd {folder}; {todo}capeneuro check config/config.yaml")


def site_means(options: argparse.Namespace) -> None:
    """Print a site's row of `contrast.means`, from its own table of people.

    Counts of groups and means are exact and outside the promise: the site decides
    whether to publish them. Nothing is charged, and nothing leaves but by hand.
    """
    from capeneuro.config.contrast import ContrastConfig
    from capeneuro.studies import contrast_people
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    sites, stages = load_sites(study), study.members.values()
    contrasts = [own for own in stages if isinstance(own, ContrastConfig)]
    if not contrasts:
        raise ConfigError(f"{options.study}: must be a study of kind contrast")
    if options.site not in sites:
        known = ", ".join(sites)
        raise ConfigError(f"--site: must be one of {known}, got {options.site}")
    row = contrast_people.means_row(contrasts[0], sites[options.site])
    print(*row, sep="\t")
    print(*row.values(), sep="\t")


def check(options: argparse.Namespace) -> None:
    """Check a study file, its site files and public tables; spends nothing.

    Of sites whose images are chosen from a folder of derivatives it shows what was
    chosen, by the names and headers of files; that table is the site's own. Of the
    first run there it also tries the table of confounds.
    """
    from capeneuro.config.site import Derivatives
    from capeneuro.data import survey
    from capeneuro.studies import kinds
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    sites = load_sites(study)
    kinds.check(study)
    features = [getattr(m, "rows", m) for m in study.members.values()]
    features = [getattr(each, "features", each) for each in features]
    cleanings = [f.cleaning for f in features if getattr(f, "cleaning", None)]

    def look(own: SiteConfig) -> None:
        if isinstance(own.images, Derivatives):
            print(*survey.lines(own), sep="\n")
            check_all(partial(survey.check_confounds, own, each) for each in cleanings)
        elif own.images and study.data is None and not survey.is_there(own.folder):
            print(f"note: site {own.name}: images: nothing is at {own.folder!r} yet")
        elif own.images and cleanings:
            for note in survey.notes_on_times(own):
                print(note)

    check_all(partial(look, own) for own in sites.values())
    for path in () if study.data else dict.fromkeys(kinds.masks(study)):
        if not Path(path).exists():
            print(f"note: space.mask: nothing is at {str(path)!r} yet")
    S = len(study.sites)
    here = "" if len(sites) == S else f" ({len(sites)} of their files here)"
    print(f"{options.study}: study {study.study!r} with {S} sites{here} is well formed")


def step(options: argparse.Namespace) -> None:
    """Run one step of a study."""
    from capeneuro.data import files
    from capeneuro.studies import one_process
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study, options.stage)
    sites = load_sites(study)
    files.keep_private()
    names = steps()[options.step].options
    given = {name: getattr(options, name) for name in names}
    one_process.run_step(study, sites, options.step, **given)


def run_study(options: argparse.Namespace) -> int:
    """Run a study from its files to its report; a second call goes on where it was.

    It calls Snakemake, which runs what is new or changed alone. What follows `--` goes
    to Snakemake as it is, such as `-- --until prepare`.
    """
    from capeneuro.studies import workflow

    more = [*(["-n"] if options.dry_run else []), *options.snakemake]
    more += ["--unlock"] if options.unlock else []
    return workflow.run(options.study, options.cores or os.cpu_count() or 1, more)


def bids(options: argparse.Namespace) -> int:
    """Run one site's derivatives as a BIDS app: `participant`, then `group`.

    `participant` prepares everybody's features, `group` finds components and writes
    maps and the report, both in OUT_DIR. It is for data that everybody may see: nothing
    is noised, and every output says NOT PRIVATE. Private people are for a study of
    several sites.
    """
    from capeneuro.studies import bids as app

    about = options.bids_dir, options.out_dir, options.level, options.data
    chosen = options.participant_label, options.task_id
    return app.run(*about, *chosen, options.cores or os.cpu_count() or 1)


def prior(options: argparse.Namespace) -> None:
    """Make a prior of public people, for studies of others to start from.

    Of a study of images whose sites' data are all public or simulated: its space,
    cleaning and sites count. Studies that name the file (`prior:`) must have the same
    space and cleaning.
    """
    from capeneuro.studies import make_prior
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    about = options.source, options.licence, options.threads
    make_prior.make(study, load_sites(study), options.out, *about)


def predict(options: argparse.Namespace) -> None:
    """Predict the target of people in a table by the model of a regression.

    Features are limited to the study's bounds, as where the model was found.
    """
    from capeneuro.data import files
    from capeneuro.studies import model_file

    if options.out is not None and options.out.resolve() == options.table.resolve():
        raise ConfigError(f"--out: {options.out} is the table itself; name another")
    header, rows = model_file.predicted(options.model, options.table, options.site)
    if options.out is not None:
        files.write_table(options.out, header, rows)
        return
    for row in (header, *rows):
        print(*map(files.cell, row), sep="\t")


def ledger(options: argparse.Namespace) -> None:
    """Make, show, verify, export, move, merge, back up or restore a site's ledger.

    `init` makes it, once, where data are private. `show` adds up what was spent,
    `export` writes one row per release as a table, without ids of people, `key` prints
    its public key. `backup` copies its lines to a file, neither key nor salt among
    them. `move` brings the ledger of the folder `--from` to where the site file has it;
    `merge` charges here all that the one there has charged, and ends that one;
    `distinct` says, with a `--reason`, that its people are others who carry the same
    labels. `restore` goes on with what is left of a ledger that was lost or set back:
    under a new key, and with all its studies' promises spent in full; `--from` names
    the folder in which it was lost, where the site file has another one now.
    """
    from capeneuro.data import files
    from capeneuro.privacy import accounting
    from capeneuro.studies.sites import open_ledger

    site = load.load_site(options.site_file)
    book = open_ledger(site)
    if options.action in ("init", "move", "merge", "distinct", "backup", "restore"):
        _keep_ledger(options, site, book)
        return
    if options.action == "key":
        print(book.public_key.hex())
        return
    if options.action == "verify" and not site.ledger.is_dir():
        raise ConfigError(
            f"{options.site_file}: ledger: there is none at {site.ledger} yet; "
            "check the path, or run a study first"
        )
    if options.action == "verify":
        print(f"{site.ledger}: {book.verify()} releases, all checksums match")
        return
    entries = book.releases()
    if options.action == "show" and not entries:
        print(f"{site.ledger}: no releases yet")
        return
    if options.action == "export":
        print(*EXPORTED, sep="\t")
        for entry in entries:
            row = (files.cell(entry.line.get(column, "")) for column in EXPORTED)
            print(*row, sep="\t")
        return
    kinds: dict[tuple[str, ...], list[float]] = {}
    for e in entries:
        kinds.setdefault((e.study, e.query, e.arm), []).append(e.mu)
    for key, mus in kinds.items():
        print(*key, f"rounds {len(mus)}", f"mu {accounting.compose(mus):.5f}", sep="\t")
    mu = book.total()
    spent = accounting.epsilon_from_mu(mu, site.delta)
    whose = "a person" if site.unit == "subject" else "one volume of a person"
    print(
        f"largest total of {whose}: epsilon {spent:.4f} of {site.epsilon:g} at delta "
        f"{site.delta:g}, unit {site.unit}"
    )


def _keep_ledger(options: argparse.Namespace, site: SiteConfig, book: Any) -> None:
    from capeneuro.data import door
    from capeneuro.federation import custody

    if options.action == "backup":
        if options.file is None:
            raise ConfigError("--file: say where the backup goes")
        n = custody.backup(book, options.file)
        print(
            f"{options.file}: {n} lines of {site.ledger}; no key is ever in a backup, "
            f"and {site.ledger / 'salt'} is to be kept apart, as secret as the data"
        )
        return
    if site.second_place is None:
        raise ConfigError(
            f"{options.site_file}: second_place: a ledger of {site.data} data is made "
            "when it is needed, and none is restored; name a folder to have it so"
        )
    if options.action == "init":
        custody.begin(book)
        print(
            f"{site.ledger}: ready; {site.second_place} remembers how far it is. Back "
            "up the first and never the second; capeneuro ledger backup"
        )
        return
    if options.action in ("move", "merge", "distinct"):
        _join_ledgers(options, site, book)
        return
    if not options.new_key:
        print(
            f"nothing was changed. With --new-key {site.ledger} goes on from what is "
            "left of it: all promises of its studies count as spent in full, and the "
            "other sites sign a revision of each manifest with the new key"
        )
        return
    if options.file is not None:
        door.check_file(options.file, "name the backup")
    charged = custody.restore(book, options.file, options.source)
    for entry in charged:
        print(f"charged in full: {entry.study}, mu {entry.mu:.5f} was left")
    print(f"{site.ledger}: restored, with a new key; now: capeneuro join STUDY")


def _join_ledgers(options: argparse.Namespace, site: SiteConfig, book: Any) -> None:
    """Move a ledger, merge it into another, or say that two have different people."""
    from capeneuro.federation import custody

    source = options.source
    if source is None:
        raise ConfigError("--from: say which folder the other ledger is in")
    if options.action == "move":
        custody.move(book, source)
        print(f"{site.ledger}: ready, with all that was spent in {source}")
    elif options.action == "merge":
        n = len(custody.merge(book, source))
        print(f"{site.ledger}: {n} releases of {source} are charged here from now on")
    elif not options.reason:
        raise ConfigError("--reason: say in a sentence why these are different people")
    else:
        custody.state_distinct(book, source, options.reason)
        print(
            f"{site.ledger}: its people are not those of {source}; both ledgers count"
        )


def privacy(options: argparse.Namespace) -> None:
    """Check a study's record of privacy, or export it.

    `verify` checks its form, recomputes every sum from its releases, checks sites'
    signatures beside it, and, with `--site-file`, that the site's ledger charged them
    all; `sign` does that and signs it with the site's key. `registry` prints it as an
    entry of the OpenDP registry of deployments (YAML), `schema` the form of every
    record (JSON schema).
    """
    from capeneuro.data import files
    from capeneuro.federation import vouching
    from capeneuro.report import dossier

    if options.action == "schema":
        print(dossier.schema(), end="")
        return
    if options.file is None:
        raise ConfigError("FILE: say which privacy.json")
    record = dossier.verify(options.file)
    if options.action == "registry":
        print(dossier.registry(record), end="")
        return
    n, p = len(record["releases"]), record["promise"]
    said = f"epsilon {p['epsilon']:g} at delta {record['delta']:g} is kept"
    if not (p["holds"] and p["kept"]):
        said = "no promise was made" if not p["holds"] else "THE PROMISE IS NOT KEPT"
    add = "release adds" if n == 1 else "releases add"
    print(f"{options.file}: {n} {add} up to what it says; {said}")
    if options.action == "verify":
        for site, key in dossier.signed(options.file, record).items():
            print(f"signed by {site}, whose key must be {key}")
    if options.action == "sign" and options.site_file is None:
        raise ConfigError("--site-file: say which site signs")
    if options.site_file is not None:
        from capeneuro.studies.sites import open_ledger

        own = load.load_site(options.site_file)
        if not own.ledger.is_dir():
            raise ConfigError(
                f"{options.site_file}: ledger: there is none at {own.ledger}; check "
                "the path"
            )
        book = open_ledger(own)
        charged = dossier.in_ledger(record, own.name, book.releases())
        print(f"{own.ledger}: has charged all {charged} of them")
        if options.action == "sign":
            path = options.file.parent / dossier.SIGNATURES / f"{own.name}.json"
            files.write_json(path, vouching.vouch(book.key, own.name, record["digest"]))
            print(f"{path}: signed; send it to whoever keeps the study's results")


def federation(options: argparse.Namespace) -> int:
    """Make, harden or check kits; put together what the sites agree on.

    `init STUDY FOLDER` prepares a federation, `harden KIT` closes what FLARE leaves
    open, `check KIT` verifies it. `manifest STUDY ENTRY...` puts the sites' entries
    together, `approvals STUDY APPROVAL...` keeps what they signed; see `join`.
    """
    return options.action(options) or 0


def _init_federation(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    study = load.load_study(options.study)
    kit.init(study, options.folder, options.server, options.port, options.here)


def _harden(options: argparse.Namespace) -> None:
    from capeneuro.flare import kit

    kit.harden(options.kit)
    print(f"{options.kit}: hardened; now: capeneuro federation check {options.kit}")


def _check_kit(options: argparse.Namespace) -> int:
    from capeneuro.flare import kit, reach

    path = options.site_file
    name = None if path is None else load.load_site(path).name
    found = [*kit.check(options.kit, name), *reach.check(options.kit)]
    for rule, wrong, warning in found:
        word = "warning" if warning else "wrong" if wrong else "ok"
        print(f"{word:8} {rule}{': ' if wrong else ''}{wrong}")
    return 2 if any(f.wrong and not f.warning for f in found) else 0


def _manifest(options: argparse.Namespace) -> None:
    from capeneuro.flare import joining

    study = load.load_study(options.study)
    about = options.entries, options.before, options.why, options.ends
    made = joining.assemble(study, *about)
    print(joining.summary(made))
    print(
        f"\npublish this fingerprint where all sites see the same:\n  "
        f"{made.fingerprint}\nsend manifest.json to every site, which types\n"
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

    Without `--manifest` it shows what the study asks and promises, and writes the
    site's entry. With the manifest that the coordinator made of all entries, and the
    fingerprint that was published, it shows who takes part and signs.
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
            raise ConfigError("--institution, --contact: say who answers for the site")
        parties.show(study, options.site)
        about = options.institution, options.contact
        path = joining.enter(study, options.site, *about)
        print(
            f"wrote {path} with institution, contact, kind of data, key and number of "
            "releases before; send it to the study's coordinator; nothing is signed yet"
        )
        return
    if options.institution or options.contact:
        raise ConfigError("--institution, --contact: stand in the entry, before")
    before = joining.approved(study, options.site)
    manifest = joining.looked_at(study, options.site, options.manifest)
    print(joining.summary(manifest, before))
    if not options.fingerprint:
        print("not signed; to sign, add --fingerprint as it was published")
        return
    about = options.manifest, " ".join(options.fingerprint)
    path = joining.approve(study, options.site, *about)
    print(f"signed; wrote {path}; send it to the study's coordinator")


def site(options: argparse.Namespace) -> int:
    """Wait for the aggregator as one site, until interrupted."""
    from capeneuro.flare import parties

    about = options.study, options.site, options.kit, options.once
    return parties.site(*about, options.stage)


def aggregate(options: argparse.Namespace) -> int:
    """Run the steps over all sites of a study, each at its own institution."""
    from capeneuro.flare import parties

    kits = {"CAPENEURO_SERVER_KIT": options.kit, "CAPENEURO_LEAD_KIT": options.lead}
    for variable, option in zip(kits, ("--kit", "--lead"), strict=True):
        kits[variable] = kits[variable] or os.environ.get(variable)
        if not kits[variable]:
            raise ConfigError(f"{option}: give the kit here or in {variable}")
    server, lead = map(Path, kits.values())
    about = options.timeout, options.segment, options.patience, options.stage
    return parties.aggregate(options.study, server, lead, *about)


def audit(options: argparse.Namespace) -> int:
    """Attack this installation with canaries; it touches no data and spends nothing.

    Two worlds differ in one unit; the real code runs in both. A lower bound above what
    the ledger charges is a leak. Ends with status 1 if any row does not hold. With
    `--study` one run of a prepared study on made-up people is attacked, of whom each is
    one of two by a coin; the report shows what it found.
    """
    if options.study is not None:
        return _audit_study(options)
    from capeneuro.federation import audit as canaries
    from capeneuro.report import progress
    from capeneuro.studies import two_stages

    settings = {
        "arms": options.arms.split(","),
        "units": (options.unit,),
        "n_pairs": options.pairs,
        "n_sites": options.sites,
        "n_colluding": options.colluding,
        "party": options.party,
        "progress": progress.named("transcripts"),
    }
    if unknown := set(settings["arms"]) - set(canaries.ARMS):
        known = ", ".join(canaries.ARMS)
        raise ConfigError(f"--arms: must be of {known}, got {', '.join(unknown)}")
    if not 0 <= options.colluding < options.sites:
        raise ConfigError(
            f"--colluding: must be below --sites {options.sites}, got "
            f"{options.colluding}"
        )
    if options.pairs < 100:
        raise ConfigError(f"--pairs: must be at least 100, got {options.pairs}")
    row = "{:12} {:16} {:11} {:>7} {:>7} {:>8} {:>8} {:>7}  {}"
    names = ["arm", "query", "canary", "mu", "shown", "epsilon", "shown", "noise"]
    print(row.format(*names, "verdict"))
    right = True
    rows = canaries.audit(**settings)
    if options.unit == "subject":  # as later stages need
        rows = chain(rows, two_stages.rows(**settings))
    for f in rows:
        numbers = [f.mu, f.mu_lower, f.epsilon, f.epsilon_lower, f.deviation]
        shown = [f"{x:.3f}" for x in numbers]
        print(row.format(f.arm, f.query, f.canary, *shown, f.verdict), flush=True)
        right &= f.verdict == "holds"
    return 0 if right else 1


def _audit_study(options: argparse.Namespace) -> int:
    from capeneuro.data import files
    from capeneuro.studies import one_run

    study = load.load_study(options.study)
    files.keep_private()
    found = one_run.attack(study, options.canaries)
    files.write_json(study.results / one_run.FILE, found._asdict())
    holds = max(found.epsilon, found.epsilon_gaussian) <= found.promised
    print(
        f"{found.n_right} of the {found.n_guesses} surest guesses at "
        f"{found.n_canaries} coins were right: epsilon is {found.epsilon:.3g} or more, "
        f"{found.epsilon_gaussian:.3g} or more if noise is Gaussian, each with "
        f"{100 * (1 - found.alpha):g}% confidence; promised are {found.promised:g}: "
        f"{'holds' if holds else 'LEAKS'}"
    )
    return 0 if holds else 1


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with arguments, as every other mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Build the command line's parser."""
    top = _Parser(prog="capeneuro", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(
        function: Callable[..., Any], usage: str, name: str = "", text: str = ""
    ) -> argparse.ArgumentParser:
        name, text = name or function.__name__, text or function.__doc__ or ""
        command = commands.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            epilog=f"example: capeneuro {name} {usage}",
        )
        command.set_defaults(run=function, step=name)
        command.add_argument("--log", type=Path, help="also write messages here")
        command.add_argument("--version", action="version", version=__version__)
        loud = command.add_mutually_exclusive_group()
        loud.add_argument("-v", "--verbose", action="store_true", help="say more")
        loud.add_argument("-q", "--quiet", action="store_true", help="only errors")
        return command

    command = add(init, "my-study --sites 3")
    command.add_argument("folder", help="folder to write the study to")
    command.add_argument("--sites", type=int, default=2, help="number of sites")
    command.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="folders of images, one a site: fMRIPrep derivatives, BIDS, *.nii.gz",
    )
    about = "of paths in --from, what is the person, such as '{person}_run*'"
    command.add_argument("--person", metavar="PATTERN", help=about)
    for of, what in ("people", "at all sites"), ("volumes", "of one person"):
        about = f"{of} {what}, as the protocol says or as they are simulated"
        command.add_argument(f"--{of}", type=int, metavar="N", help=about)
    command.add_argument(
        "--data",
        choices=["private", "public", "simulated"],
        default="private",
        help="what the data are; simulated without --from: made by the study",
    )
    command.add_argument(
        "--kind",
        choices=["components", *load.KINDS],
        default="components",
        help="what is looked for",
    )
    command = add(site_means, "config/config.yaml --site north", "site-means")
    command.add_argument("study", help="study file, of kind contrast")
    command.add_argument("--site", required=True, help="name of the site")
    command = add(check, "config/config.yaml")
    command.add_argument("study", help="study file")
    arguments = {
        "site": ("demo-1", {"required": True, "help": "name of the site"}),
        "people": ("", {"type": int, "help": "people at all sites together"}),
        "volumes": ("", {"type": int, "help": "volumes of one person"}),
        "features": ("", {"type": int, "help": "features of the basis"}),
        "threads": (
            "2",
            {"type": int, "default": 1, "help": "sites (people, pictures) at a time"},
        ),
        "reference": (
            "",
            {
                "action": "store_true",
                "help": "run without privacy (simulated or public data)",
            },
        ),
    }
    for name, of_study in steps().items():
        names = of_study.options
        shown = [f"--{n} {arguments[n][0]}" for n in names if arguments[n][0]]
        usage = " ".join(["config/config.yaml", *shown])
        command = add(step, usage, name, of_study.summary)
        command.add_argument("study", help="study file")
        command.add_argument("--stage", default="", help="one of several stages")
        for option in names:
            command.add_argument(f"--{option}", **arguments[option][1])
    command = add(run_study, "config/config.yaml", "run")
    command.add_argument("study", help="study file")
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "-n", "--dry-run", action="store_true", help="say what it would spend"
    )
    command.add_argument(
        "--unlock", action="store_true", help="after a run that was killed"
    )
    command.add_argument(
        "snakemake", nargs="*", default=[], help="after --: to Snakemake"
    )
    command = add(bids, "fmriprep out participant --data public")
    command.add_argument("bids_dir", type=Path, help="derivatives, as of fMRIPrep")
    command.add_argument("out_dir", type=Path, help="where study and results go")
    command.add_argument("level", choices=["participant", "group"])
    command.add_argument(
        "--data",
        choices=["public", "simulated"],
        required=True,
        help="what the data are; private ones take a study of several sites",
    )
    for name in ("participant-label", "task-id"):
        about = {"nargs": "+", "default": [], "metavar": "LABEL"}
        command.add_argument(f"--{name}", help="only these; else all", **about)
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "--skip-bids-validation", action="store_true", help="there is none to skip"
    )
    command = add(prior, "config/public.yaml --out public.npz --source ABIDE")
    command.add_argument("study", help="study file, of public or simulated people")
    command.add_argument("--out", type=Path, required=True, help="file, .npz")
    command.add_argument("--source", required=True, help="where the data are from")
    command.add_argument("--licence", default="", help="what may be done with them")
    command.add_argument("--threads", type=int, default=1, help="people at a time")
    command = add(predict, "results/my-study/group_desc-regression_model.json new.tsv")
    command.add_argument("model", type=Path, help="model file of a study")
    command.add_argument("table", type=Path, help="participant_id and the features")
    command.add_argument("--site", help="site of the study that the people are of")
    command.add_argument("--out", type=Path, help="table to write; else printed")
    command = add(ledger, "show config/demo/sites/demo-1.yaml")
    actions = ["show", "verify", "export", "key", "init", "move", "merge", "distinct"]
    actions += ["backup", "restore"]
    command.add_argument("action", choices=actions)
    command.add_argument("site_file", help="file of the site")
    command.add_argument("--file", type=Path, help="the backup")
    command.add_argument(
        "--from", dest="source", type=Path, help="folder of another ledger"
    )
    command.add_argument("--reason", help="why people with equal labels are different")
    command.add_argument(
        "--new-key", action="store_true", help="restore for good, under a new key"
    )
    command = add(privacy, "verify results/demo/privacy.json")
    command.add_argument("action", choices=["verify", "sign", "registry", "schema"])
    command.add_argument("file", type=Path, nargs="?", help="a privacy.json")
    command.add_argument("--site-file", type=Path, help="also compare its ledger")
    command = add(audit, "--arms cape --pairs 10000")
    command.add_argument("--arms", default="cape", help="some, with commas between")
    command.add_argument("--study", type=Path, help="a prepared study, in one run")
    command.add_argument("--canaries", type=int, default=200, help="with --study")
    command.add_argument(
        "--unit",
        choices=["sample", "subject"],
        default="subject",
        help="in what the two worlds differ",
    )
    command.add_argument(
        "--party",
        choices=cape.VIEWS,
        default="aggregator_and_colluders",
        help="whose view is attacked",
    )
    command.add_argument("--sites", type=int, default=3, help="number of sites")
    command.add_argument("--colluding", type=int, default=1, help="colluding sites")
    command.add_argument(
        "--pairs",
        type=int,
        default=2000,
        help="transcripts per world; 10000 show 0.8 mu",
    )
    command = add(federation, "check kits/site-1 --site-file config/sites/site-1.yaml")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    action = actions.add_parser("init", help="prepare a federation")
    action.set_defaults(action=_init_federation)
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("folder", type=Path, help="new folder for its authority")
    action.add_argument("--server", required=True, help="host of the aggregator")
    action.add_argument("--port", type=int, default=8002, help="its only open port")
    action.add_argument("--here", action="store_true", help="also make every kit")
    action = actions.add_parser("harden", help="close what FLARE leaves open")
    action.set_defaults(action=_harden)
    action.add_argument("kit", type=Path, help="folder above startup/")
    action = actions.add_parser("check", help="verify a kit, rule by rule")
    action.set_defaults(action=_check_kit)
    action.add_argument("kit", type=Path, help="folder above startup/")
    action.add_argument("--site-file", type=Path, help="file of the kit's site")
    action = actions.add_parser("manifest", help="put the sites' entries together")
    action.set_defaults(action=_manifest)
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("entries", type=Path, nargs="+", help="what each site sent")
    action.add_argument("--before", type=Path, help="the manifest that it supersedes")
    action.add_argument("--why", default="", help="reason of a revision")
    action.add_argument("--ends", type=date.fromisoformat, help="last day, in a year")
    action = actions.add_parser("approvals", help="keep what the sites signed")
    action.set_defaults(action=_approvals)
    action.add_argument("study", type=Path, help="study file")
    action.add_argument("approvals", type=Path, nargs="+", help="what each site sent")
    for action in actions.choices.values():
        action.add_argument("--version", action="version", version=__version__)
    command = add(join, "config/config.yaml --site north --institution I --contact C")
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--site", required=True, help="name of the site")
    command.add_argument("--institution", default="", help="who answers for the site")
    command.add_argument("--contact", default="", help="how to reach them")
    command.add_argument("--manifest", type=Path, help="what the coordinator sent")
    command.add_argument(
        "--fingerprint", nargs="+", default=[], help="as it was published"
    )
    command = add(site, "config/config.yaml --site site-1 --kit kits/site-1")
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--site", required=True, help="name of the site")
    command.add_argument("--kit", type=Path, required=True, help="its kit")
    command.add_argument("--once", action="store_true", help="end when it is finished")
    command.add_argument("--stage", default="", help="one of several stages")
    command = add(aggregate, "config/config.yaml --kit kits/server --lead kits/lead")
    command.add_argument("study", type=Path, help="study file")
    command.add_argument("--stage", default="", help="one of several stages")
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
    return top


def _took(seconds: float) -> str:
    """What a command has cost, its helpers' work included; for its log."""
    whose = [resource.getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    work = sum(used.ru_utime + used.ru_stime for used in whose)
    unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, else KiB
    most = max(used.ru_maxrss for used in whose) / unit
    return f"took {seconds:.1f} s, {work:.1f} s of a processor, at most {most:.0f} MiB"


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what may come next
        import argcomplete

        argcomplete.autocomplete(top)
    given = sys.argv[1:] if argv is None else argv
    # Where options stand before `--`, argparse refuses what stands behind it.
    cut = given.index("--") if given[:1] == ["run"] and "--" in given else len(given)
    options = top.parse_args(given[:cut])
    if cut < len(given):
        options.snakemake = given[cut + 1 :]
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    logging.raiseExceptions = False  # a full disk is said once, not by each message
    handlers[0].setLevel(logging.INFO if options.verbose else logging.WARNING)
    try:
        if options.log is not None:
            options.log.parent.mkdir(parents=True, exist_ok=True)
            handlers.append(logging.FileHandler(options.log, mode="w"))
    except OSError as error:
        print(f"error: --log: {options.log}: {error.strerror}", file=sys.stderr)
        return 2
    logging.basicConfig(
        format="%(message)s", handlers=handlers, force=True, level=logging.INFO
    )
    start = time.monotonic()
    if options.step in steps() and "CAPENEURO_RUN" in os.environ and options.log:
        handlers[0].setLevel(logging.CRITICAL)  # `run` says it, last of all
        beside = BESIDE if getattr(options, "reference", False) else ""
        names = (options.step, options.stage, getattr(options, "site", ""), beside)
        # In one piece: steps of two sites say it at the same time.
        sys.stdout.write(f"{' '.join(filter(None, names))}\n")
        sys.stdout.flush()
    try:
        with contextlib.ExitStack() as stack:
            if options.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = options.run(options) or 0
            sys.stdout.flush()
        logging.info(_took(time.monotonic() - start))
        return status
    except BrokenPipeError:  # whoever read has read enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        logging.error("interrupted; the same command goes on where it was")
        return 130
    except Exception as error:
        from capeneuro.studies.flow import outcome

        status, lines = outcome(error)
        for line in lines:
            logging.error("error: %s", line)
        logging.info("ended with status %d", status)
        if status == 1:  # the whole story goes to --log alone
            logging.info("", exc_info=True)
        return status


if __name__ == "__main__":
    sys.exit(main())
