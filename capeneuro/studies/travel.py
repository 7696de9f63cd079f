"""How much travels between a site and the aggregator, and what is too much."""

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.federation.gate import LARGE
from capeneuro.federation.requests import COOPERATIVE_ARMS
from capeneuro.federation.site import MOST_SITES
from capeneuro.studies import registry

# Bytes of a number; arrays of a cooperative arm's answer: with noise, and of masks.
NUMBER, ARRAYS = 8, 2
# Bytes of the aggregator's memory whatever the study, measured with up to 50 sites; and
# times an answer beside that, while it is opened and added.
MEMORY, OPENED = 400 * 2**20, 4
# Bytes a second of a line in the forecast.
LINE = 10**6
# Releases from which on a network is better than files that people carry.
MANY = 4


def n_bytes(study: StudyConfig, n_features: int) -> int:
    """Bytes of the largest answer of one site to a study, or to a stage of one."""
    arrays = ARRAYS if study.arm in COOPERATIVE_ARMS else 1
    return NUMBER * arrays * registry.of(study).n_numbers(n_features)


def check(study: StudyConfig, n_features: int) -> None:
    """Refuse a study whose sites or answers are too many or too large to travel.

    Raises
    ------
    ConfigError
        With what is too large, the limit, and what would be smaller.
    """
    n_sites, largest = len(study.sites), n_bytes(study, n_features)
    if n_sites > MOST_SITES:
        raise ConfigError(
            f"study {study.study}: sites: must be at most {MOST_SITES}, got {n_sites}"
        )
    if largest > LARGE:
        raise ConfigError(
            f"study {study.study}: {n_features} features: an answer must be at most "
            f"{size_in_words(LARGE)}, and would be {size_in_words(largest)}; use a "
            "coarser basis, or pca.method: power"
        )


def forecast(study: StudyConfig, n_features: int) -> str:
    """Describe the traffic of a release, its time, and the memory of the aggregator.

    Parameters
    ----------
    study, n_features
        The study, or a stage of one, and D.
    """
    n_sites, largest = len(study.sites), n_bytes(study, n_features)
    seconds = largest / LINE
    time = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.2g} s"
    n_releases = sum(study.n_releases.values())
    return (
        f"travels: some {size_in_words(largest)} from a site in a release, of up to "
        f"{n_releases} ({time} on a line of 1 MB/s); the aggregator needs some "
        f"{size_in_words(MEMORY + OPENED * largest)} of memory, and while answers "
        f"arrive {size_in_words(n_sites * largest)} of disk"
    )


def visits(study: StudyConfig) -> str:
    """How often a file goes to each site and back, as a line."""
    n = sum(study.full_study.n_releases.values())
    line = f"up to {n + 1} visits a site: its entry, and one for each of {n} releases, "
    line += "beside a last file that ends the study"
    if n == 1:
        line = "two visits a site: its entry, then approval and answer in one; a last "
        line += "file ends the study"
    elif n > MANY:
        line += "; over a network they take seconds each"
        choices = {s.with_fewer_releases for s in study.full_study.members.values()}
        line += "".join(f"; {choice}" for choice in sorted(choices - {""}))
    return line


def size_in_words(size: int) -> str:
    """A number of bytes in the largest unit of which there is one."""
    for unit, length in ("GB", 1e9), ("MB", 1e6), ("kB", 1e3):
        if size >= length:
            return f"{size / length:.3g} {unit}"
    return f"{size} bytes"
