"""The promise of a study, and the answers that left its sites, for data protection."""

from collections.abc import Iterable, Mapping
from typing import Any

# Answers of sites in words, by the name of the query (:mod:`.queries`).
ANSWERS = {
    "mean": "the mean of the features",
    "bin_shares": "how many people are in each of public bins, as shares",
    "second_moment": "how strongly each two features vary together (second moments)",
    "moment_product": "the same, along some directions only",
    "white_second_moment": "how strongly directions of the prior vary together",
    "deviation": "how the second moments differ from the public prior's",
    "infomax_gradient": "how to change the unmixing so that components depend less on "
    "each other (a gradient)",
    "infomax_skew": "how to turn the components so that they depend less on each other "
    "(a gradient)",
    "infomax_curvature": "how peaked the components are, which scales their steps",
    "third_moment": "how each three features vary together (third moments)",
    "whitened_third_moment": "how each three directions vary together (third moments)",
    "word_pairs": "how often each two words occur together",
    "word_triples": "how often each three words occur together",
    "whitened_word_triples": "the same of three words, along directions found before",
    "network_gradient": "the change that improves the weights of the network (a "
    "gradient)",
    "log_odds_counts": "how many people of each group are in each of public bins of "
    "the network's log-odds, as shares",
    "pilot_moments": "the mean of each outcome, and how many people are how far from "
    "expected outcomes, as shares; mostly also the means of covariates and outcomes at "
    "each site, how much each outcome varies, and how covariates vary with each other",
    "linear_moments": "how covariates vary with each outcome, how much that differs "
    "between people, and how covariates vary with each other; in a draft also how many "
    "people count how much, as shares",
}
# Content that sites send without noise, by its name in their messages: description, and
# the party that states it.
WITHOUT_NOISE = {
    "n_units": ("number of its {units}", "each site, which signs it"),
    "version": (
        "whether its data changed (a keyed digest, which reveals nothing else)",
        "each site",
    ),
    "kind": ("that its data are private, simulated or public", "each site"),
    "key": ("its public key", "each site; of no data"),
    "mask_key": ("public key of its masks in this study", "each site; of no data"),
    "keys": ("public keys of one sum", "each site; of no data"),
    "sealed": ("shares of secrets, sealed for other sites", "each site; of no data"),
    "shares": ("shares of secrets of masks", "each site; of no data"),
    "signature": ("signatures of what it sent", "each site; of no data"),
    "error": (
        "that it refused",
        "each site, by requests and what its ledger has charged, not by its data",
    ),
    "rule": ("the name of the rule", "each site; as that it refused"),
}
# Of them those that leave only where a sum takes one exchange, and where it takes four.
IN_ONE, IN_FOUR = {"mask_key"}, {"keys", "sealed", "shares"}
# Of the public constants of a study, by the last part of their key.
CONSTANTS = {
    "norm_bound": "typical size of a person's or a volume's features",
    "clip": "most that one person (or volume) may add to an answer",
    "center_clip": "most that one person (or volume) may add to the mean",
    "bounds": "lowest and highest value that counts",
    "covariates": "further columns, with what is public of them",
    "mask": "where the brain is",
    "basis_file": "regions or maps that features are means over",
    "features": "the features and their bounds",
    "means": "exact counts and means of covariates, which each site published",
    "covariance": "public covariance of outcomes",
    "file": "public knowledge that the study starts from",
    "ridge": "how strongly coefficients are shrunk",
}
# Files that say where features are; `source` of the study tells of its numbers.
FILES_OF_PLACES = ("mask", "basis_file")
UNITS = {
    "subject": "everything of one person that the study used",
    "sample": "one volume (one image of the series) of one person",
}


def n_units(record: Mapping[str, Any]) -> dict[str, int]:
    """Units of each site as the releases were charged for; empty in old records."""
    units_by_site = {}
    for release in record["releases"]:
        for name, site in release["sites"].items():
            if "n_units" in site:
                units_by_site[name] = site["n_units"]
    return units_by_site


def participants(record: Mapping[str, Any]) -> str:
    """Number of people, volumes and sites of a study, in words."""
    n, S = record.get("people"), record["n_sites"]
    people = f"{n:,} people" if n else "people"
    volumes = sum(n_units(record).values())
    if record["unit"] == "sample" and volumes:
        people = f"{volumes:,} volumes of {people}"
    return f"{people} at {S} sites"


# What an entry tells beside the number of people, of earlier releases, and keys.
IN_ENTRY = "institution, contact and unit of its ceiling"


def answers(releases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers that each site sent, one row for each query."""
    rows: dict[str, dict[str, Any]] = {}
    for release in releases:
        row = rows.setdefault(
            release["query"],
            {
                "description": ANSWERS.get(release["query"], release["query"]),
                "query": release["query"],
                "answers": 0,
                "numbers": 0,
            },
        )
        row["answers"] += 1
        row["numbers"] += release["size"]
    return [*rows.values()]


def without_noise(
    unit: str,
    exact_public: Iterable[str] = (),
    longest: int | None = None,
    waits_for_all: bool = True,
) -> list[dict[str, str]]:
    """List the content that leaves each site without noise, and its source.

    Parameters
    ----------
    unit
        ``"subject"`` or ``"sample"``.
    exact_public
        Numbers about their people that sites publish in a table of the study, in words.
    longest
        Most volumes that anybody has, as sites enforce it; None: not bounded.
    waits_for_all
        Whether every site must answer; else a sum takes four exchanges.

    Returns
    -------
    list of dict
        ``description``, ``stated_by`` and ``sent_as``, the name in a site's messages;
        empty where it is in the study's public files. All of it is exact, and outside
        the promise.
    """
    units = "people" if unit == "subject" else "volumes"
    rows = [_exact(text, "each site, in a public table") for text in exact_public]
    if longest is not None:
        description = f"that nobody has more than {longest} volumes"
        rows.append(_exact(description, "the study's protocol; each site enforces it"))
    rows += [
        _exact(description.format(units=units), stated_by, name)
        for name, (description, stated_by) in WITHOUT_NOISE.items()
        if name not in (IN_FOUR if waits_for_all else IN_ONE)
    ]
    return rows


def in_entries() -> list[dict[str, str]]:
    """List the facts in the entry of a site that works elsewhere.

    Rows are as of :func:`without_noise`.
    """
    facts = "number of releases in its ledger", IN_ENTRY
    return [_exact(fact, "each site, in its entry") for fact in facts]


def _exact(description: str, stated_by: str, sent_as: str = "") -> dict[str, str]:
    return {"description": description, "stated_by": stated_by, "sent_as": sent_as}


def constants(
    content: Mapping[str, Any], idle: Mapping[str, Any], stated: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Public constants of a study, each with its meaning and its source.

    Parameters
    ----------
    content
        The study's keys with file names instead of paths.
    idle
        Keys that no release depends on, by section.
    stated
        The keys that the study file has: all others are defaults.
    """
    source = content.get("source") or "not stated"
    prior = (content.get("prior") or {}).get("source", source)
    rows = []

    def walk(section: Any, key: str) -> None:
        above, _, name = key.rpartition(".")
        unread = idle.get(above.partition(".")[0], ())
        if unread is True or name in unread:
            return
        if name in CONSTANTS and section not in (None, {}) and not is_section(section):
            origin = prior if key.startswith("prior.") else source
            if not _has(stated, key):
                origin = "a default"
            elif name in FILES_OF_PLACES and section != "computed":
                origin = "a file that all sites have"
            row = {"key": key, "value": written(section), "source": origin}
            rows.append({**row, "description": CONSTANTS[name]})
        elif isinstance(section, Mapping):
            for inner, value in section.items():
                walk(value, f"{key}.{inner}" if key else inner)

    def is_section(value: Any) -> bool:
        return isinstance(value, Mapping) and "kind" in value

    studied = {k: v for k, v in content.items() if k not in ("data", "score", "names")}
    walk(studied, "")
    return rows


def _has(content: Mapping[str, Any], key: str) -> bool:
    """Whether nested keys have one that is named with dots."""
    for part in key.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return False
        content = content[part]
    return True


def written(value: Any) -> str:
    """A value of a study file as a line."""
    if isinstance(value, Mapping):
        pairs = {k: v for k, v in value.items() if v is not None}
        return "; ".join(f"{k}: {written(v)}" for k, v in pairs.items())
    if isinstance(value, list | tuple):
        is_range = len(value) == 2 and not any(isinstance(v, str) for v in value)
        return (" to " if is_range else ", ").join(map(written, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
