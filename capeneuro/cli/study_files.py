"""Commands before a study runs, which write, explain and check its files."""

import argparse
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path

from capeneuro.cli.command import STUDY, Command, study_argument
from capeneuro.config import load
from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig

# Numbers that `simulate` takes.
SIZES = ("people", "sites", "volumes", "seed")
# Kinds whose forecast needs no table: of images all is known before they are made.
PLANNED_BEFORE = ("components", "fusion")


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
    _check_init(options, folder, has_study)
    sites = _site_names(options.sites)
    for name in ("workflow", "config"):
        if (folder / name).exists() and not (has_study and name == "config"):
            raise ConfigError(f"{folder / name}: exists already; choose another folder")
    texts: dict[str, str] = {}
    if options.sources:
        summary, decisions = _write_from_folders(options)
        lines = [*summary, "\nnext, in this order:"]
        lines += [f"  {step}" for step in _steps_of_folders(options, decisions)]
    else:
        lines = _next_lines(options, has_study)
        if not has_study:
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
    # After all files are written: a reader such as `head` may end this process.
    print("\n".join(lines))


def _check_init(options: argparse.Namespace, folder: Path, has_study: bool) -> None:
    """Refuse options of `init` that do not go together."""
    is_contrast = options.kind in ("contrast", "networks")
    if options.federation != "in-process" and (
        options.sources or has_study or options.data == "simulated"
    ):
        raise ConfigError(
            "--federation: begins the study of a lead, who has no data and no study "
            "file yet; leave --from and --data simulated out, and choose a new folder"
        )
    if options.sources and has_study:
        raise ConfigError(
            f"--from: writes a study file, and {folder} has one; leave one out"
        )
    if options.sources and options.kind != "components" and not is_contrast:
        raise ConfigError(
            "--from: begins studies of components, networks or contrasts, got --kind "
            f"{options.kind}; leave --from out, and name the folders in the site files "
            "that --kind writes"
        )
    if options.kind == "networks" and not (options.template and options.sources):
        raise ConfigError("--kind networks: needs --template and --from")
    for key in "template", "covariates":
        if getattr(options, key) and not (is_contrast and options.sources):
            raise ConfigError(
                f"--{key}: goes with --from and --kind contrast or networks"
            )
    if options.data == "simulated" and has_study and not options.sources:
        raise ConfigError(
            f"--data simulated: makes people for a new study, and {folder} has a study "
            "file; choose another folder"
        )


def _write_from_folders(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Write a study of folders of data; return a summary, and decisions to be made."""
    from capeneuro.studies import init_contrast, init_from_folders, init_networks

    beginning = init_from_folders.Beginning(
        Path(options.folder),
        options.sources,
        options.data,
        (options.people, options.volumes),
        options.person,
        options.template,
        options.covariates,
    )
    kinds = {"networks": init_networks, "contrast": init_contrast}
    return kinds.get(options.kind, init_from_folders).write(beginning)


def _steps_of_folders(options: argparse.Namespace, decisions: list[str]) -> list[str]:
    """List decisions and commands from a new study of folders to its report."""
    from capeneuro.studies import init_from_folders

    is_private = options.data == "private"
    if is_private:
        decisions = [
            *decisions,
            "set epsilon in each file of config/sites: the site's ceiling of all "
            "studies, some times budget.epsilon",
            "say who answers for the study: capeneuro explain governance",
        ]
    ledgers = [
        f"capeneuro ledger init config/sites/{site}.yaml"
        for site in init_from_folders.site_names(options.sources)
        if is_private
    ]
    return [
        f"cd {Path(options.folder)}",
        *decisions,
        "capeneuro check config/config.yaml",
        *ledgers,
        "capeneuro plan config/config.yaml",
        "capeneuro run config/config.yaml",
    ]


def _next_lines(options: argparse.Namespace, has_study: bool) -> list[str]:
    """Say the next steps after a new study without folders of data."""
    folder, check = Path(options.folder), "capeneuro check config/config.yaml"
    if options.data == "simulated" and options.kind in PLANNED_BEFORE:
        return [
            f"next: cd {folder}; capeneuro plan config/config.yaml",
            "then: capeneuro run config/config.yaml  # makes the people first",
        ]
    if options.data == "simulated":
        return [
            f"next: cd {folder}; capeneuro run config/config.yaml",
            "it makes the people, says what may come out, and releases it",
        ]
    if options.federation != "in-process":
        return [
            f"cd {folder}; fill in config/, then: {check}",
            "next: each site gets config/config.yaml, the public files that it names, "
            "and its own draft in config/sites/, which it fills in and nobody else has",
        ]
    if has_study:
        return [f"cd {folder}; {check}"]
    lines = [f"cd {folder}; fill in config/, then: {check}"]
    if options.data == "private":
        lines.append(
            "next: rename the sites to your institutions, since a ledger goes by "
            "its site's name on this machine; then capeneuro ledger init SITE_FILE "
            "for each file in config/sites, capeneuro plan and run"
        )
    return lines


def _site_names(words: list[str]) -> list[str]:
    """Names of a new study's sites, from them or from their number."""
    from capeneuro.config import scaffold

    sites = words
    if len(words) == 1 and words[0].isdigit():
        sites = [f"site-{i + 1}" for i in range(int(words[0]))]
    if odd := [site for site in sites if scaffold.label(site) != site]:
        raise ConfigError(
            f"--sites: must be a number, or names of letters, digits, - and _, got "
            f"{odd[0]!r}"
        )
    if len({*sites}) < max(2, len(sites)):
        raise ConfigError(
            f"--sites: must be at least 2, each once, got {' '.join(words)}"
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


def simulate(options: argparse.Namespace) -> int:
    """Write folders of simulated people at some sites, to begin studies of.

    Grey-matter maps, 4-D runs with a template of networks, or tables of cortical
    thickness; public files lie beside the sites' folders.
    """
    from capeneuro.studies import workflow

    sizes = {name: getattr(options, name) for name in SIZES}
    numbers = {name: size for name, size in sizes.items() if size is not None}
    if "volumes" in numbers and options.maker != "networks":
        raise ConfigError(f"--volumes: belongs to networks, got {options.maker}")
    maker = options.maker.replace("-", "_")
    return workflow.simulate(maker, Path(options.folder), **numbers)


def _simulate_arguments(command: argparse.ArgumentParser) -> None:
    makers = ("grey-matter", "networks", "thickness")
    command.add_argument("maker", choices=makers, help="what people have")
    command.add_argument("folder", help="folder to write to")
    for name in SIZES:
        text = "of the random numbers" if name == "seed" else f"number of {name}"
        command.add_argument(f"--{name}", type=int, metavar="N", help=text)


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
        before = f"capeneuro plan {path}; " if study.kind in PLANNED_BEFORE else ""
        return f"{before}capeneuro run {path}"
    line = f"capeneuro validate {path} reads the tables and images"
    if files := without_ledger(study, sites):
        each = "" if len(files) == 1 else "each of "
        line = f"capeneuro ledger init {each}{some(files.values())}; then {line}"
    return line if study.is_apart else f"{line}; then capeneuro plan and run"


def commands() -> Iterator[Command]:
    """Subcommands in the order of the help."""
    yield Command(init, _init_arguments, "my-study --sites 3")
    yield Command(explain, _explain_arguments, "budget.n_colluding contrast.primary")
    yield Command(simulate, _simulate_arguments, "grey-matter people --sites 3")
    yield Command(doctor, _no_arguments, "> doctor.txt")
    yield Command(
        site_means, _site_means_arguments, f"{STUDY} --site site-1", "site-means"
    )
    yield Command(check, study_argument, STUDY)
