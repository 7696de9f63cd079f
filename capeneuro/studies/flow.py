"""Functions that the steps of every kind of study share."""

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from capeneuro import machine
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.ledger import (
    BudgetExceeded,
    LedgerDamaged,
    LedgerUnwritable,
    LedgerWithoutLocks,
)
from capeneuro.federation.manifest import Manifest, parse
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rounds import Checkpoint, RoundFailed, RoundVoid
from capeneuro.report import privacy_record, progress, sentences
from capeneuro.studies.sites import Sites, gone

MASK = "group_desc-brain_mask.nii.gz"
# Whether each result stands above the noise.
VERDICTS = "verdicts.tsv"
# Features of one second moment: 12.5 million numbers, 100 MB a site.
MOST_FEATURES = 5000


# Meanings of the rules of sites whose names do not state the remedy.
RULES = {
    "clock": "the clocks of the aggregator and the site differ by more than a minute: "
    "one is wrong; switch on a time service at both",
    "masks do not cancel": "a site remembers other requests than the rest: it was set "
    "back, or a second copy of it is in use; capeneuro ledger restore at that site, "
    "then a revision of the manifest",
    "a release that this ledger does not know": "the ledger was set back: capeneuro "
    "ledger restore at that site, then a revision of the manifest",
    "an answer that the aggregator has confirmed": "this release was made before, the "
    "aggregator confirmed that it had the result, and the site has removed the bytes; "
    "nothing was charged. The results are with the aggregator: bring its folder "
    "private/_aggregator back. A study under another name would be charged anew",
    "own entry in the roster": "the site's people or data are not those that it told: "
    "prepare them as they were, or join again",
    "ledger": "the site's own log says what is wrong with its ledger",
}


class StepFailed(Exception):
    """A step failed at sites, with its exit status and lines that give the reason."""

    def __init__(self, status: int, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.status = status
        self.lines = list(lines)


# --- shared by the steps -------------------------------------------------------------


def outcome(error: Exception) -> tuple[int, list[str]]:
    """Exit status for an error, and lines that give the user the reason."""
    if isinstance(error, StepFailed):
        return error.status, error.lines
    if isinstance(error, RoundFailed):
        codes = {reason.split(":")[0] for reason in error.lost.values()}
        status = 3 if "budget" in codes else 2 if codes == {"refused"} else 1
        event = "the round failed"
        if isinstance(error, RoundVoid):
            event = (
                "a charged round is void and the promise pays for no other; begin a "
                "study under another name"
            )
        rules = {reason.partition(": ")[2] for reason in error.lost.values()}
        remedies = [f"; {RULES[rule]}" for rule in sorted(rules & RULES.keys())]
        return status, [f"{event}: {error}{''.join(remedies)}"]
    if isinstance(error, BudgetExceeded):
        return 3, str(error).splitlines()
    if isinstance(error, (ConfigError, LedgerDamaged, LedgerWithoutLocks)):
        return 2, str(error).splitlines()
    if isinstance(error, LedgerUnwritable):
        return 1, [str(error)]
    if isinstance(error, OSError):
        return 1, [machine.in_words(error)]
    if isinstance(error, MemoryError):
        return 1, [f"memory ran out: {error}; {machine.REMEDIES[errno.ENOMEM]}"]
    return 1, [f"{type(error).__name__}: {error}"]


def one_site(sites: Sites, name: str) -> SiteConfig:
    """Configuration of the named site, whose file must be on this machine."""
    if name not in sites:
        local = ", ".join(sites) or "the sites whose files are here (none)"
        raise ConfigError(f"--site: must be one of {local}, got {name!r}")
    return sites[name]


def check_each(
    check: Callable[..., object], arguments: Sequence[tuple[Any, ...]], threads: int
) -> None:
    """Call a check for each tuple of arguments in threads; raise all errors together.

    Files are read in parallel and not kept. No check may catch warnings: their filters
    are the process's.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        futures = [pool.submit(check, *values) for values in arguments]
        check_all(future.result for future in progress.bar(futures, "validate"))
    finally:
        pool.shutdown(cancel_futures=True)


def is_exact(study: StudyConfig, reference: bool) -> bool:
    """Whether a run is without privacy."""
    return reference or study.arm == "non-private"


def mask_path(study: StudyConfig) -> Path:
    """Path of the mask, or of the parcels, that `validate` writes."""
    path = study.results / MASK
    return files.of_parcels(path) if study.space.has_parcels else path


def mask_file(study: StudyConfig) -> Path | None:
    """Path of the study's mask, or of the public one; None if neither exists."""
    paths = [mask_path(study)]
    if not study.computes_mask:
        paths.append(Path(study.space.mask))
    return next((path for path in paths if path.is_file()), None)


def validated_mask(study: StudyConfig) -> Path:
    """Path of the mask that `validate` wrote.

    Raises
    ------
    ConfigError
        If it is missing.
    """
    path = mask_path(study)
    if not path.is_file():
        raise ConfigError(f"{path}: is not there; run `validate` first")
    return path


def folder_of(study: StudyConfig, reference: bool) -> Path:
    """Folder of a run's released files."""
    return study.results / "reference" if reference else study.results


def mechanism_of(
    study: StudyConfig,
    stage: str,
    reference: bool,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Mechanism:
    """Make the mechanism of one stage; a private one calls ``check`` beforehand."""
    # Exact rounds cost nothing, so the promise does not limit their number.
    exact = is_exact(study, reference)
    n_releases = None if exact else study.n_releases[stage]
    return Mechanism(
        study.identity,
        "non-private" if reference else study.arm,
        study.multipliers[stage],
        study.promise,
        study.noise_ratio,
        study.mu_factors,
        study.noise,
        study.consistency,
        n_releases,
        Checkpoint(Path("private") / "_aggregator" / study.study),
        check=None if exact else check,
        gone=tuple(gone(study)),
        mask_keys=_mask_keys(study),
    )


def _mask_keys(study: StudyConfig) -> dict[str, bytes]:
    """Keys of the sites' masks, as the aggregator's manifest has them."""
    path = study.full_study.private("_aggregator") / "manifest.json"
    if not (study.is_apart and path.exists()):
        return {}
    return parse(Manifest, path.read_bytes()).mask_offers(study.identity)


def write_released(
    study: StudyConfig,
    sites: Sites,
    reference: bool,
    name: str,
    result: Any,
    stages: Sequence[Mechanism],
    beside: Mapping[str, Any] | None = None,
) -> None:
    """Write a result with its releases inside, and the privacy record beside it.

    Parameters
    ----------
    study, sites, reference
        The study, its sites, and whether this is the run without privacy.
    name, result
        File, and the dataclass whose fields become its arrays.
    stages
        Mechanisms that answered for it, in their order.
    beside
        Further arrays of the file, such as what later questions are answered from.
    """
    folder = folder_of(study, reference)
    kinds = {site_name: site.data for site_name, site in sites.items()}
    # Of sites on other machines only their descriptions of themselves are known.
    kinds |= {site_name: info.kind for site_name, info in stages[-1].roster.items()}
    metadata = {
        "releases": json.dumps([r for stage in stages for r in stage.releases]),
        "sites": json.dumps(kinds),
        "accepted": json.dumps({accept.rule: accept.reason for accept in study.accept}),
        "given_up": json.dumps({} if is_exact(study, reference) else gone(study)),
        "stamp": privacy_record.stamp(study, kinds),
    }
    files.write_arrays(folder / name, **vars(result), **(beside or {}), **metadata)
    privacy_record.write_beside(study, folder)


def read_released(
    study: StudyConfig, name: str, result: type, command: str, reference: bool = False
) -> Any:
    """Read a result that :func:`write_released` wrote.

    Parameters
    ----------
    study, reference
        The study, and whether of its run without privacy.
    name, result
        File, and the dataclass whose fields are its arrays.
    command
        The step that wrote it.

    Raises
    ------
    ConfigError
        If another version wrote it.
    """
    path = folder_of(study, reference) / name
    arrays, names = files.read_arrays(path), result.__dataclass_fields__
    if missing := [name for name in names if name not in arrays]:
        raise ConfigError(
            f"{path}: was written by another version, lacks {missing[0]}; remove it "
            f"and run `{command}` again: the same request costs nothing"
        )
    values = {name: arrays[name] for name in names}
    return result(**{n: v.item() if v.ndim == 0 else v for n, v in values.items()})


def write_verdicts(study: StudyConfig, verdicts: Verdicts) -> None:
    """Write and count the results that exceed the noise, a row for each result."""
    rows = (
        [name, f"{value:.4g}", f"{level:.4g}", label]
        for name, value, level, label in zip(
            verdicts.names,
            verdicts.values,
            verdicts.levels,
            verdicts.labels,
            strict=True,
        )
    )
    header = ["result", "value", "level", "verdict"]
    files.write_table(study.results / VERDICTS, header, rows)
    print(sentences.found_line(study.arm, verdicts))


def releases_of(study: StudyConfig, name: str) -> list[dict[str, Any]]:
    """Records of the releases behind a result file."""
    return json.loads(str(files.read_arrays(study.results / name)["releases"]))
