"""The command line: one subcommand per step of a study.

Exit status: 0 done, 2 bad input (one clear line), 3 budget refused, 1 failure, and
4 while `aggregate --folder` waits for answers.
"""
# A command imports what it needs when it runs: a study is many short processes.

import argparse
import contextlib
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from capeneuro import __version__, machine
from capeneuro.config import load
from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.sections import BESIDE
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.studies.steps import steps
from capeneuro.studies.usage import Usage

# What the table of a ledger's releases shows; salted ids of people stay in the ledger.
EXPORTED = ("study", "query", "round", "arm", "unit", "relation", "n_colluding")
EXPORTED += ("sensitivity", "noise", "noise_multiplier", "mu", "roster", "reply")
EXPORTED += ("site",)


def init(options: argparse.Namespace) -> None:
    """Write a new study with the keys that must be decided, each with a line on it.

    With `--data simulated` the study makes its people itself and runs as it stands. In
    a folder that has a study file already it adds the workflow alone: for a party that
    was sent one. With `--from` it looks at one folder of images or tables a site, says
    what is there and writes a study of it with the keys that need a decision.
    """
    from capeneuro.config import scaffold
    from capeneuro.data import files

    folder = Path(options.folder)
    has_study = (folder / "config" / "config.yaml").exists()
    is_of_networks = options.kind == "networks"
    is_apart = options.federation != "in-process"
    if is_apart and (options.sources or has_study or options.data == "simulated"):
        raise ConfigError(
            "--federation: begins the study of a lead, who has no data and no study "
            "file yet; leave --from and --data simulated out, and choose a new folder"
        )
    if options.sources and has_study:
        raise ConfigError(
            f"--from: writes a study file, and {folder} has one; leave one out"
        )
    is_contrast = options.kind in ("contrast", "networks")
    if options.sources and options.kind != "components" and not is_contrast:
        raise ConfigError(
            "--from: begins studies of components, networks or contrasts, got --kind "
            f"{options.kind}; leave --from out, and name the folders in the site files "
            "that --kind writes"
        )
    if is_of_networks and not (options.template and options.sources):
        raise ConfigError("--kind networks: needs --template and --from")
    for key in "template", "covariates":
        if getattr(options, key) and not (is_contrast and options.sources):
            raise ConfigError(
                f"--{key}: goes with --from and --kind contrast or networks"
            )
    sites = _site_names(options.sites)
    is_simulated = options.data == "simulated" and not options.sources
    if is_simulated and has_study:
        raise ConfigError(
            f"--data simulated: makes people for a new study, and {folder} has a study "
            "file; choose another folder"
        )
    for name in ("workflow", "config"):
        if (folder / name).exists() and not (has_study and name == "config"):
            raise ConfigError(f"{folder / name}: exists already; choose another folder")
    texts: dict[str, str] = {}
    if options.sources:
        from capeneuro.studies import init_contrast, init_from_folders, init_networks

        protocol = options.people, options.volumes
        if is_contrast:
            write = init_networks.write if is_of_networks else init_contrast.write
            summary, decisions = write(
                folder,
                options.sources,
                options.template,
                options.data,
                protocol,
                options.person,
                options.covariates,
            )
        else:
            summary, decisions = init_from_folders.write(
                folder, options.sources, options.data, protocol, options.person
            )
    elif not has_study:
        texts = scaffold.study_files(
            sites,
            options.kind,
            scaffold.label(folder.resolve().name),
            data=options.data,
            people=options.people,
            volumes=options.volumes,
            federation=options.federation,
        )
    for path, text in (texts | scaffold.workflow_files()).items():
        files.write_text(folder / path, text)
    if options.sources:
        # After all files are written: a reader such as `head` may end this process.
        next_steps = [f"cd {folder}", *decisions, "capeneuro check config/config.yaml"]
        if options.data == "private":
            next_steps += [
                f"capeneuro ledger init config/sites/{site}.yaml"
                for site in init_from_folders.site_names(options.sources)
            ]
        next_steps += [
            f"capeneuro {verb} config/config.yaml" for verb in ("plan", "run")
        ]
        print("\n".join([*summary, "\nnext, in this order:"]))
        print("\n".join(f"  {line}" for line in next_steps))
    elif is_simulated:
        print(f"next: cd {folder}; capeneuro plan config/config.yaml")
        print("then: capeneuro run config/config.yaml  # makes the people first")
    elif is_apart:
        print(f"cd {folder}; fill in config/, then: capeneuro check config/config.yaml")
        print(
            "next: each site gets config/config.yaml, the public files that it names, "
            "and its own draft in config/sites/, which it fills in and nobody else has"
        )
    else:
        first = "" if has_study else "fill in config/, then: "
        print(f"cd {folder}; {first}capeneuro check config/config.yaml")
        if options.data == "private" and not has_study:
            print(
                "next: rename the sites to your institutions, since a ledger goes by "
                "its site's name on this machine; then capeneuro ledger init SITE_FILE "
                "for each file in config/sites, capeneuro plan and run"
            )


def _site_names(given: list[str]) -> list[str]:
    """Names of a new study's sites, from them or from their number."""
    from capeneuro.config import scaffold

    sites = given
    if len(given) == 1 and given[0].isdigit():
        sites = [f"site-{i + 1}" for i in range(int(given[0]))]
    if odd := [site for site in sites if scaffold.label(site) != site]:
        raise ConfigError(
            f"--sites: must be a number, or names of letters, digits, - and _, got "
            f"{odd[0]!r}"
        )
    if len({*sites}) < max(2, len(sites)):
        raise ConfigError(
            f"--sites: must be at least 2, each once, got {' '.join(given)}"
        )
    return sites


def _init_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("folder", help="folder to write the study to")
    command.add_argument(
        "--sites",
        nargs="+",
        default=["2"],
        metavar="NAME",
        help="number of sites, or their names",
    )
    command.add_argument(
        "--federation",
        choices=["in-process", "nvflare", "files"],
        default="in-process",
        help="where sites work: all here, over a network, or by files that are carried",
    )
    command.add_argument(
        "--from",
        dest="sources",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="folders of images, one a site: fMRIPrep derivatives, BIDS, *.nii.gz",
    )
    command.add_argument(
        "--person",
        metavar="PATTERN",
        help="which part of a path in --from names the person, such as '{person}_run*'",
    )
    for name, extent in ("people", "at all sites"), ("volumes", "of one person"):
        command.add_argument(
            f"--{name}",
            type=int,
            metavar="N",
            help=f"number of {name} {extent}, by the protocol or to be simulated",
        )
    command.add_argument(
        "--data",
        choices=["private", "public", "simulated"],
        default="private",
        help="kind of the data; simulated without --from: the study makes them",
    )
    command.add_argument(
        "--kind",
        choices=["components", "networks", *load.KINDS],
        default="components",
        help="kind of the study; networks is a contrast of their connectivity",
    )
    command.add_argument(
        "--template",
        metavar="FILE",
        help="networks or regions (.nii.gz) with a table of names (.tsv) beside it",
    )
    command.add_argument(
        "--covariates",
        nargs="+",
        default=(),
        metavar="COLUMN",
        help="columns of participants.tsv, the primary one first, with --from",
    )


def explain(options: argparse.Namespace) -> None:
    """Explain the keys of study files and site files.

    Without a key it lists all of them, a line each. A key is named by the blocks that
    it is in, such as `budget.epsilon`, or by its last part alone.
    """
    from capeneuro.config import explain as explained

    models = (SiteConfig,) if options.site else load.every_kind()
    if options.kind is not None:
        models = tuple(m for m in load.every_kind() if m.kind == options.kind)
    if not options.keys:
        listed = {key.path: key for model in models for key in explained.keys(model)}
        for path, key in listed.items():
            print(textwrap.shorten(f"{path} ({key.default}): {key.text}", 100))
        return
    check_all(partial(explained.find, models, name) for name in options.keys)
    named = chain.from_iterable(explained.find(models, name) for name in options.keys)
    for key in dict.fromkeys(named):
        print(f"{key.path}: {key.form}; {key.default}")
        lines = textwrap.wrap(key.text, 84)
        print(textwrap.indent("\n".join(lines), "  "))


def _explain_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "keys", nargs="*", metavar="key", help="keys; none: a list of all"
    )
    which = command.add_mutually_exclusive_group()
    kinds = [model.kind for model in load.every_kind()]
    which.add_argument("--kind", choices=kinds, help="kind of the study; none: all")
    which.add_argument("--site", action="store_true", help="keys of site files")


def doctor(_: argparse.Namespace) -> int:
    """Show versions and the state of this machine, without data, to ask for help.

    Versions, processors, memory, disks, locks and the state of ledgers: no data, no
    names of studies, sites or people. Status 1 where something has to be mended.
    """
    from capeneuro.flare import installation

    has_failed = False
    for finding in installation.findings():
        print(finding.line, flush=True)
        has_failed = has_failed or finding.failed
    return int(has_failed)


def _no_arguments(command: argparse.ArgumentParser) -> None:
    """Take no arguments."""


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
    contrasts = [stage for stage in stages if isinstance(stage, ContrastConfig)]
    if not contrasts:
        raise ConfigError(f"{options.study}: must be a study of kind contrast")
    if options.site not in sites:
        raise ConfigError(
            f"--site: must be one of {', '.join(sites)}, got {options.site}"
        )
    row = contrast_people.means_row(contrasts[0], sites[options.site])
    print("\t".join(row))
    print("\t".join(map(str, row.values())))


def _site_means_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", help="study file, of kind contrast")
    command.add_argument("--site", required=True, help="name of the site")


def check(options: argparse.Namespace) -> None:
    """Check a study file, its site files and public tables; spends nothing.

    Of sites whose images are chosen from a folder of derivatives it shows what was
    chosen, by the names and headers of files; that table is the site's own. Of the
    first run there it also tries the table of confounds.
    """
    from capeneuro.config.site import Derivatives
    from capeneuro.data import survey
    from capeneuro.studies import gate, registry
    from capeneuro.studies.decisions import open_decisions
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    sites = load_sites(study)
    registry.check(study)
    if study.is_apart:
        gate.check_stated(study)
    features = [getattr(m, "rows", m) for m in study.members.values()]
    features = [getattr(rows, "features", rows) for rows in features]
    cleanings = [f.cleaning for f in features if getattr(f, "cleaning", None)]

    def check_images(site: SiteConfig) -> None:
        if isinstance(site.images, Derivatives):
            print(*survey.lines(site), sep="\n")
            check_all(partial(survey.check_confounds, site, c) for c in cleanings)
        elif site.images and study.data is None and not survey.is_there(site.folder):
            print(f"note: site {site.name}: images: nothing is at {site.folder!r} yet")
        elif site.images and cleanings:
            for note in survey.notes_on_times(site):
                print(note)

    check_all(partial(check_images, site) for site in sites.values())
    for path in () if study.data else dict.fromkeys(registry.masks(study)):
        if not Path(path).exists():
            print(f"note: space.mask: nothing is at {str(path)!r} yet")
    S = len(study.sites)
    present = "" if len(sites) == S else f" ({len(sites)} of their files here)"
    print(
        f"{options.study}: study {study.study!r} with {S} sites{present} is well formed"
    )
    for line in open_decisions(study, sites):
        print(f"to decide: {line}")
    print(f"next: {_after_check(options.study, study, sites)}")


def _after_check(path: str, study: StudyConfig, sites: Mapping[str, SiteConfig]) -> str:
    """Commands that follow `check`, in their order."""
    from capeneuro.studies.sites import without_ledger

    if study.data is not None:
        return f"capeneuro plan {path}; capeneuro run {path}"
    line = f"capeneuro validate {path} reads the tables and images"
    if files := without_ledger(study, sites):
        each = "" if len(files) == 1 else "each of "
        line = f"capeneuro ledger init {each}{some(files.values())}; then {line}"
    return line if study.is_apart else f"{line}; then capeneuro plan and run"


def _study_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", help="study file")


def step(options: argparse.Namespace) -> None:
    """Run one step of a study."""
    from capeneuro.data import files
    from capeneuro.studies import one_process
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study, options.stage)
    sites = load_sites(study)
    files.keep_private()
    names = steps()[options.step].options
    settings = {name: getattr(options, name) for name in names}
    one_process.run_step(study, sites, options.step, **settings)


# Options that steps take, see `studies/steps.py`; the text is that of the example.
STEP_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "site": ("--site site-1", {"required": True, "help": "name of the site"}),
    "people": ("", {"type": int, "help": "people at all sites together"}),
    "volumes": ("", {"type": int, "help": "volumes of one person"}),
    "features": ("", {"type": int, "help": "features of the basis"}),
    "threads": (
        "--threads 2",
        {"type": int, "default": 1, "help": "sites (people, pictures) at a time"},
    ),
    "part": (
        "",
        {
            "default": "",
            "metavar": "K/N",
            "help": "store a part of the people, for a call without it that gathers",
        },
    ),
    "reference": (
        "",
        {"action": "store_true", "help": "without privacy (simulated or public data)"},
    ),
}


def _step_arguments(command: argparse.ArgumentParser, names: Iterable[str]) -> None:
    _study_argument(command)
    command.add_argument("--stage", default="", help="one of several stages")
    for name in names:
        command.add_argument(f"--{name}", **STEP_OPTIONS[name][1])


def run_study(options: argparse.Namespace) -> int:
    """Run a study from its files to its report; a second call continues the first.

    It runs only what is new or changed, in this process. With arguments after `--` it
    calls Snakemake, to which they go unchanged, such as `-- --until prepare`.
    """
    from capeneuro.studies import one_process, workflow

    cores = options.cores or os.cpu_count() or 1
    arguments = [*options.snakemake, *["--unlock"] * options.unlock]
    if not arguments:
        return one_process.run(options.study, cores, is_dry=options.dry_run)
    arguments += ["-n"] * options.dry_run
    return workflow.run(options.study, cores, arguments)


def _run_arguments(command: argparse.ArgumentParser) -> None:
    _study_argument(command)
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "-n", "--dry-run", action="store_true", help="print what it would spend"
    )
    command.add_argument(
        "--unlock", action="store_true", help="after a run that was killed"
    )
    command.add_argument(
        "snakemake", nargs="*", default=[], help="after --: arguments of Snakemake"
    )


def bids(options: argparse.Namespace) -> int:
    """Run one site's derivatives as a BIDS app: `participant`, then `group`.

    `participant` prepares everybody's features, `group` finds components and writes
    maps and the report, both in OUT_DIR. It is for public or simulated data: no noise
    is added, and every output says NOT PRIVATE. Private data need a study of several
    sites.
    """
    from capeneuro.studies import bids as app

    return app.run(
        options.bids_dir,
        options.out_dir,
        options.level,
        options.data,
        options.participant_label,
        options.task_id,
        options.cores or os.cpu_count() or 1,
    )


def _bids_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("bids_dir", type=Path, help="derivatives, as of fMRIPrep")
    command.add_argument("out_dir", type=Path, help="folder for study and results")
    command.add_argument("level", choices=["participant", "group"])
    command.add_argument(
        "--data",
        choices=["public", "simulated"],
        required=True,
        help="kind of the data; private data need a study of several sites",
    )
    for name in ("participant-label", "task-id"):
        command.add_argument(
            f"--{name}",
            nargs="+",
            default=[],
            metavar="LABEL",
            help="only these; else all",
        )
    command.add_argument("--cores", type=int, help="processors; else all")
    command.add_argument(
        "--skip-bids-validation", action="store_true", help="no effect: none is done"
    )


def prior(options: argparse.Namespace) -> None:
    """Make a prior from public data, for other studies to start from.

    Needs a study whose sites' data are all public or simulated. Of a study of
    components it writes the file (.npz) that others name as `prior`; these must have
    the same space and cleaning. Of a study of contrasts, of images or tables, it
    writes the table (.tsv) that others name as `contrast.covariance`; these must have
    the same outcomes.
    """
    from capeneuro.studies import make_prior
    from capeneuro.studies.sites import load_sites

    study = load.load_study(options.study)
    make_prior.make(
        study,
        load_sites(study),
        options.out,
        options.source,
        options.licence,
        options.threads,
    )


def _prior_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", help="study file, of public or simulated data")
    command.add_argument(
        "--out", type=Path, required=True, help="file: .npz, or of contrasts .tsv"
    )
    command.add_argument("--source", required=True, help="origin of the data")
    command.add_argument("--licence", default="", help="licence of the data")
    command.add_argument("--threads", type=int, default=1, help="people at a time")


def predict(options: argparse.Namespace) -> None:
    """Predict the target of the people in a table by a study's regression model.

    Features are clipped to the study's bounds, as in the fit of the model.
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


def _predict_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, help="model file of a study")
    command.add_argument("table", type=Path, help="participant_id and the features")
    command.add_argument("--site", help="site of the study that the people belong to")
    command.add_argument("--out", type=Path, help="table to write; else printed")


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
            "earlier releases; send it to the study's coordinator; nothing is signed "
            "yet"
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


def ask(options: argparse.Namespace) -> None:
    """Answer a question from what a study has released; nothing is asked of sites.

    `~ patient + age` regresses outcomes on these covariates alone, `dose[2] - dose[1]`
    is a difference of groups, `dose[1] = dose[2] = 0` tests them together, `chart age
    by sex` draws means and centiles over a number with knots. Of a study of components
    or patterns: `components=20`, `connectivity`, `partial`, `seed=NAME`, `strength`,
    `merge=FILE.tsv`; of a regression: `~ a + b`, `ridge=0.1`. No privacy is spent: it
    is algebra of the released moments, in the folder of results alone.
    """
    from capeneuro.studies import ask as questions

    print(*questions.ask(options.results, options.question), sep="\n")


def _ask_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("results", type=Path, help="folder of a study's results")
    command.add_argument("question", help="such as '~ patient + age'")


def audit(options: argparse.Namespace) -> int:
    """Attack this installation with canaries; it touches no data and spends nothing.

    Two worlds differ in one unit; the real code runs in both. A lower bound on epsilon
    above the ledger's charge is a leak. Ends with status 1 if any row leaks. With
    `--study` one run of a prepared study on simulated people is attacked: a coin
    decides which of two candidates each person is. The report shows the outcome.
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


class _Parser(argparse.ArgumentParser):
    """A parser that refuses wrong arguments in one line, as all other mistakes."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


class Command(NamedTuple):
    """One subcommand."""

    run: Callable[[argparse.Namespace], int | None]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    example: str
    """Arguments that its help shows."""
    name: str = ""
    """Empty: the function's name."""
    text: str = ""
    """Of its help; empty: the function's docstring."""


def commands() -> Iterator[Command]:
    """All subcommands in the order of the help."""
    study = "config/config.yaml"
    yield Command(init, _init_arguments, "my-study --sites 3")
    yield Command(explain, _explain_arguments, "budget.n_colluding contrast.primary")
    yield Command(doctor, _no_arguments, "> doctor.txt")
    yield Command(
        site_means, _site_means_arguments, f"{study} --site site-1", "site-means"
    )
    yield Command(check, _study_argument, study)
    for name, of_study in steps().items():
        add_arguments = partial(_step_arguments, names=of_study.options)
        words = [study, *(STEP_OPTIONS[option][0] for option in of_study.options)]
        example = " ".join(filter(None, words))
        yield Command(step, add_arguments, example, name, of_study.summary)
    yield Command(run_study, _run_arguments, study, "run")
    yield Command(bids, _bids_arguments, "fmriprep out participant --data public")
    prior_example = f"{study} --out public.npz --source ABIDE"
    yield Command(prior, _prior_arguments, prior_example)
    model = "results/my-study/group_desc-regression_model.json"
    yield Command(predict, _predict_arguments, f"{model} new.tsv")
    yield Command(ledger, _ledger_arguments, "show config/sites/site-1.yaml")
    yield Command(privacy, _privacy_arguments, "verify results/my-study/privacy.json")
    yield Command(audit, _audit_arguments, "--arms cape --queries mean --pairs 500")
    kit_check = "check kits/site-1 --site-file config/sites/site-1.yaml"
    yield Command(federation, _federation_arguments, kit_check)
    entry = f"{study} --site site-1 --institution I --contact C"
    yield Command(join, _join_arguments, entry)
    yield Command(site, _site_arguments, f"{study} --site site-1 --kit kits/site-1")
    kits = "--kit kits/server --lead kits/lead"
    yield Command(aggregate, _aggregate_arguments, f"{study} {kits}")
    yield Command(answer, _answer_arguments, "my-study-1.site-1.request.zip")
    yield Command(ask, _ask_arguments, "results/my-study '~ patient + age'")


def parser() -> argparse.ArgumentParser:
    """Build the command line's parser."""
    top = _Parser(prog="capeneuro", description=__doc__)
    top.add_argument("--version", action="version", version=__version__)
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    for command in commands():
        name = command.name or command.run.__name__
        text = command.text or command.run.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            epilog=f"example: capeneuro {name} {command.example}",
        )
        subparser.set_defaults(run=command.run, step=name)
        subparser.add_argument("--log", type=Path, help="also write messages here")
        subparser.add_argument("--version", action="version", version=__version__)
        loudness = subparser.add_mutually_exclusive_group()
        loudness.add_argument("-v", "--verbose", action="store_true", help="say more")
        loudness.add_argument("-q", "--quiet", action="store_true", help="only errors")
        command.add_arguments(subparser)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what may come next
        import argcomplete

        argcomplete.autocomplete(top)
    words = sys.argv[1:] if argv is None else argv
    # Where options stand before `--`, argparse refuses words after it.
    cut = words.index("--") if words[:1] == ["run"] and "--" in words else len(words)
    options = top.parse_args(words[:cut])
    if cut < len(words):
        options.snakemake = words[cut + 1 :]
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    logging.raiseExceptions = False  # report a full disk once, not for each message
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
    usage = Usage()
    if options.step in steps() and "CAPENEURO_RUN" in os.environ and options.log:
        handlers[0].setLevel(logging.CRITICAL)  # `run` prints errors, last of all
        beside = BESIDE if getattr(options, "reference", False) else ""
        names = (options.step, options.stage, getattr(options, "site", ""), beside)
        # In one piece: steps of two sites write at the same time.
        sys.stdout.write(f"{' '.join(filter(None, names))}\n")
        sys.stdout.flush()
    try:
        with contextlib.ExitStack() as stack:
            if options.quiet:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            status = options.run(options) or 0
            sys.stdout.flush()
        logging.info(usage.in_words())
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        logging.error(machine.INTERRUPTED)
        return 130
    except Exception as error:
        from capeneuro.studies.flow import outcome

        status, lines = outcome(error)
        for line in lines:
            logging.error("error: %s", line)
        logging.info("ended with status %d", status)
        if status == 1:  # the traceback goes to --log alone
            logging.info("", exc_info=True)
        return status


if __name__ == "__main__":
    sys.exit(main())
