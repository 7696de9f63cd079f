"""Commands about what was spent: a site's ledger, a study's record of privacy."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capeneuro.cli.command import Command
from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig

# What the table of a ledger's releases shows; salted ids of people stay in the ledger.
EXPORTED = ("study", "query", "round", "arm", "unit", "relation", "n_colluding")
EXPORTED += ("sensitivity", "noise", "noise_multiplier", "mu", "roster", "reply")
EXPORTED += ("site",)


def ledger(options: argparse.Namespace) -> None:
    """Make, show, verify, export, move, merge, back up or restore a site's ledger.

    `init` makes it, once, where data are private. `show` adds up the spent epsilon,
    `export` writes one row per release as a table, without ids of people; with `--file`
    it writes all lines but those with people, chained and signed, for
    `capeneuro-verify.py` of a study's results. `key` prints the ledger's public key.
    `backup` copies its lines to a file, without key and salt. `move` brings the ledger
    of the folder `--from` to the folder that the site file names; `merge` charges here
    all releases of the ledger in `--from`, and closes that one; `distinct` records,
    with a `--reason`, that its people are different people with the same labels.
    `restore` continues with the remaining lines of a ledger that was lost or set back:
    under a new key, and with all its studies' promises spent in full; `--from` names
    the folder in which it was lost, if the site file now names
    another one.
    """
    from capeneuro.data import files
    from capeneuro.federation import ledger_export
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
    if options.action == "export" and options.file is not None:
        files.write_text(options.file, ledger_export.export(book))
        print(f"{options.file}: all lines of {site.ledger}, without people, signed")
        return
    entries = book.releases()
    if options.action == "show" and not entries:
        print(f"{site.ledger}: no releases yet")
        return
    if options.action == "export":
        print("\t".join(EXPORTED))
        for entry in entries:
            row = (files.cell(entry.line.get(column, "")) for column in EXPORTED)
            print("\t".join(map(str, row)))
        return
    mus_by_query: dict[tuple[str, ...], list[float]] = {}
    for e in entries:
        mus_by_query.setdefault((e.study, e.query, e.arm), []).append(e.mu)
    for key, mus in mus_by_query.items():
        mu = accounting.compose(mus)
        print("\t".join([*key, f"rounds {len(mus)}", f"mu {mu:.5f}"]))
    spent = accounting.epsilon_from_mu(book.total(), site.delta)
    unit = "a person" if site.unit == "subject" else "one volume of a person"
    print(
        f"largest total of {unit}: epsilon {spent:.4f} of {site.epsilon:g} at delta "
        f"{site.delta:g}, unit {site.unit}"
    )


def _ledger_arguments(command: argparse.ArgumentParser) -> None:
    actions = ["show", "verify", "export", "key", "init", "move", "merge", "distinct"]
    actions += ["backup", "restore"]
    command.add_argument("action", choices=actions)
    command.add_argument("site_file", help="file of the site")
    command.add_argument("--file", type=Path, help="the backup, or the export")
    command.add_argument(
        "--from", dest="source", type=Path, help="folder of another ledger"
    )
    command.add_argument("--reason", help="why people with equal labels are different")
    command.add_argument(
        "--new-key", action="store_true", help="restore for good, under a new key"
    )


def _keep_ledger(options: argparse.Namespace, site: SiteConfig, book: Any) -> None:
    from capeneuro.data import door
    from capeneuro.federation import ledger_backup

    if options.action == "backup":
        if options.file is None:
            raise ConfigError("--file: must name the file for the backup; add it")
        n = ledger_backup.backup(book, options.file)
        print(
            f"{options.file}: {n} lines of {site.ledger}; a backup contains no key; "
            f"keep {site.ledger / 'salt'} elsewhere, as secret as the data"
        )
        return
    if site.second_place is None:
        raise ConfigError(
            f"{options.site_file}: second_place: must name a folder for `ledger "
            f"{options.action}`, got none; a ledger of {site.data} data is made when "
            "a study needs it, and is not restored"
        )
    if options.action == "init":
        ledger_backup.begin(book)
        print(
            f"{site.ledger}: ready; {site.second_place} records its number of lines. "
            "Back up the first and never the second; capeneuro ledger backup"
        )
        return
    if options.action in ("move", "merge", "distinct"):
        _join_ledgers(options, site, book)
        return
    if not options.new_key:
        print(
            f"nothing was changed. With --new-key {site.ledger} continues from its "
            "remaining lines: all promises of its studies count as spent in full, and "
            "the other sites sign a revision of each manifest with the new key"
        )
        return
    if options.file is not None:
        door.check_file(options.file, "name the backup")
    charged = ledger_backup.restore(book, options.file, options.source)
    for entry in charged:
        print(f"charged in full: {entry.study}, mu {entry.mu:.5f} was left")
    print(f"{site.ledger}: restored, with a new key; now: capeneuro join STUDY")


def _join_ledgers(options: argparse.Namespace, site: SiteConfig, book: Any) -> None:
    """Move a ledger, merge it into another, or record that their people differ."""
    from capeneuro.federation import ledger_backup

    source = options.source
    if source is None:
        raise ConfigError("--from: must name the folder of the other ledger; add it")
    if options.action == "move":
        ledger_backup.move(book, source)
        print(f"{site.ledger}: ready, with all releases charged in {source}")
    elif options.action == "merge":
        n = len(ledger_backup.merge(book, source))
        print(f"{site.ledger}: {n} releases of {source} are charged here from now on")
    elif not options.reason:
        raise ConfigError(
            "--reason: must be a sentence that explains why these are different "
            "people; add it"
        )
    else:
        ledger_backup.state_distinct(book, source, options.reason)
        print(
            f"{site.ledger}: its people are not those of {source}; both ledgers count"
        )


def privacy(options: argparse.Namespace) -> None:
    """Check a study's record of privacy, or export it.

    `verify` checks its form, recomputes every sum from its releases, checks the sites'
    signatures beside it, and, with `--site-file`, that the site's ledger charged all
    its releases; `sign` also signs it with the site's key. `registry` prints it as an
    entry of the OpenDP registry of deployments (YAML), `schema` the form of every
    record (JSON schema).
    """
    from capeneuro.data import files
    from capeneuro.federation import vouching
    from capeneuro.report import privacy_schema

    if options.action == "schema":
        print(privacy_schema.schema(), end="")
        return
    if options.file is None:
        raise ConfigError("FILE: must name a privacy.json; add it")
    if options.file.suffix == ".zip":
        _verify_answer(options.file, options.manifest)
        return
    record = privacy_schema.verify(options.file)
    if options.action == "registry":
        print(privacy_schema.registry(record), end="")
        return
    n, p = len(record["releases"]), record["promise"]
    verdict = f"epsilon {p['epsilon']:g} at delta {record['delta']:g} is kept"
    if not (p["has_noise"] and p["within_promise"]):
        verdict = (
            "no promise was made" if not p["has_noise"] else "THE PROMISE IS NOT KEPT"
        )
    add = "release adds" if n == 1 else "releases add"
    print(f"{options.file}: {n} {add} up to its totals; {verdict}")
    if options.action == "verify":
        for site, key in privacy_schema.signed(options.file, record).items():
            print(f"signed by {site}, whose key must be {key}")
    if options.action == "sign" and options.site_file is None:
        raise ConfigError("--site-file: must name the file of the site; add it")
    if options.site_file is not None:
        from capeneuro.studies.sites import open_ledger

        site = load.load_site(options.site_file)
        if not site.ledger.is_dir():
            raise ConfigError(
                f"{options.site_file}: ledger: there is none at {site.ledger}; check "
                "the path"
            )
        book = open_ledger(site)
        charged = privacy_schema.in_ledger(record, site.name, book.releases())
        print(f"{site.ledger}: has charged all {charged} of them")
        if options.action == "sign":
            path = options.file.parent / privacy_schema.SIGNATURES / f"{site.name}.json"
            voucher = vouching.vouch(book.key, site.name, record["digest"])
            files.write_json(path, voucher)
            print(f"{path}: signed; send it to the keeper of the study's results")


def _verify_answer(path: Path, manifest_path: Path | None) -> None:
    """Check the disclosure statement of an answer that is carried as a file."""
    from capeneuro.flare import joining
    from capeneuro.report import disclosure

    manifest = None if manifest_path is None else joining.read(manifest_path)
    try:
        statement = disclosure.verify(path, manifest)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    key = f"whose key must be {statement['key']}"
    if manifest is not None:
        key = "whose key is that of the manifest"
    print(
        f"{path}: what it discloses, in all three forms, is signed by "
        f"{statement['site']} for the study {statement['study']!r}, {key}, and the "
        "sealed answer is the one it speaks of"
    )


def _privacy_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=["verify", "sign", "registry", "schema"])
    command.add_argument(
        "file", type=Path, nargs="?", help="a privacy.json, or an answer's zip"
    )
    command.add_argument("--manifest", type=Path, help="of an answer: names its keys")
    command.add_argument("--site-file", type=Path, help="also compare its ledger")


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    yield Command(ledger, _ledger_arguments, "show config/sites/site-1.yaml")
    yield Command(privacy, _privacy_arguments, "verify results/my-study/privacy.json")
