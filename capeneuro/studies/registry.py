"""The kinds of study: finding the class of each, and checks of any study's files."""

from importlib import import_module
from pathlib import Path

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.studies.sites import Sites, is_complete
from capeneuro.studies.study_kind import StudyKind


def of(study: StudyConfig) -> StudyKind:
    """Make the steps of a study, or of a stage of one, after its kind.

    A kind is the class of its name in the file of its name. One is imported when a
    study is of it: a step starts in half the time without the others.

    Raises
    ------
    ConfigError
        If the study has several stages: each is of a kind of its own.
    """
    if not study.kind:
        raise ConfigError(
            f"study {study.study}: stages: each is run by itself; give one of "
            f"{', '.join(study.members)} as --stage"
        )
    kind = getattr(import_module(module(study)), f"{study.kind.capitalize()}Kind")
    return kind(study)


def module(study: StudyConfig) -> str:
    """Name of the module that holds the steps of a study's kind."""
    return f"capeneuro.studies.{study.kind}"


def makes_data(study: StudyConfig, sites: Sites) -> bool:
    """Whether the study's data are made here: where all its sites' files are."""
    return study.data is not None and is_complete(study, sites)


def images(study: StudyConfig, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    are_folders = study.space is not None or study.handed or study.has_eeg
    if makes_data(study.full_study, sites) and are_folders:
        mask = [] if study.space is None else [study.space.mask]
        return [f"{sites[name].folder}/dataset_description.json", *mask]
    return of(study).input_files(sites[name])


def masks(study: StudyConfig) -> list[str]:
    """Mask files that a study, or its stages, name."""
    spaces = [m.space for m in study.members.values() if m.space is not None]
    return [str(space.mask) for space in spaces if space.mask != "computed"]


def check_inputs(study: StudyConfig, sites: Sites) -> None:
    """Refuse a study whose named files are missing, before it runs.

    Raises
    ------
    ConfigError
        If a site has none of the files that it names, or a public file is missing.
    """
    for member in study.members.values():
        for name in sites:
            images(member, sites, name)
        for path in () if makes_data(study, sites) else of(member).public_files():
            if not Path(path).exists():
                from capeneuro.data.images import NO_MASK

                hint = NO_MASK if str(path) in masks(study) else "check the path"
                raise ConfigError(f"{path}: file not found; {hint}")


def check(study: StudyConfig) -> None:
    """Open the public files of a study, and refuse those that do not fit it.

    Not before the data makers have written them, where the study has its data made.

    Raises
    ------
    ConfigError
        If one is missing, or does not fit the study.
    """
    for member in study.members.values():
        kind = of(member)
        is_there = all(Path(path).exists() for path in kind.public_files())
        if study.data is None or is_there:
            kind.check_public_files()
