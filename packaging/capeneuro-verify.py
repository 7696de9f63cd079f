"""Second opinion on a study's record of privacy, by somebody else's arithmetic.

    python capeneuro-verify.py RESULTS_FOLDER [LEDGER_EXPORT ...] [ANSWER.zip ...]

Reads ``privacy.json`` of a results folder and the sites' signatures beside it; exports
of ledgers (``capeneuro ledger export SITE_FILE --file EXPORT.jsonl``, or the table that
it prints without ``--file``); and the disclosure statements of answers that people
carried (``ANSWER.zip``, or its ``DISCLOSURE.json``). Prints each number that it
recomputed, and names each one that differs with both values. Exit status 0: all agree,
1: something differs, 2: a file cannot be read.

It needs Python 3.11 and SciPy, and nothing of the program that wrote the record: it was
written from docs/proofs.md and docs/privacy.schema.json.
"""

import csv
import hashlib
import io
import json
import math
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from scipy.special import log_ndtr, ndtr

FORMAT = "capeneuro-privacy-3"
TOLERANCE = 1e-9
# How far a unit moves a mean of n units, over clip / n: replace-one. docs/proofs.md, 2.
ROOT2 = math.sqrt(2.0)
REACH = {
    "mean": 2.0,
    "second_moment": ROOT2,
    "moment_product": 2.0,
    "bin_shares": ROOT2,
    "network_gradient": 2.0,
    "log_odds_counts": ROOT2,
    "third_moment": 2.0,
    "whitened_third_moment": 2.0,
    "word_pairs": ROOT2,
    "word_triples": ROOT2,
    "whitened_word_triples": 2.0,
    "white_second_moment": ROOT2,
    "deviation": 2.0,
    "infomax_gradient": 2.0,
    "infomax_skew": 2.0,
    "infomax_curvature": 2.0,
}
# Two queries have a distance that depends on their parameters; the record lists it.
# Moments have one without a histogram and one with it, a pilot one for each choice of
# parts.
LINEAR = [math.sqrt(4.72 / 1.85), math.sqrt(5.44 / 2.21)]
DISTANCES = {"linear_moments": LINEAR, "pilot_moments": []}
VIEWS = ("reader", "partner", "partners", "aggregator")
VIEWS += ("aggregator_and_colluders", "site_as_aggregator")
CHARGED = "aggregator_and_colluders"
EXACT = ("non-private", "pooled")
# Above this epsilon for everything of a person a record is stamped.
WEAK = 10
# Sites of a federation whose every coalition is tried, in exact fractions.
FEW_SITES = 6
# Words of people, which no arithmetic can confirm.
WORDS = ("study", "aggregator", "adversary", "requested", "source", "constants")
WORDS += ("without_noise", "governance", "accepted", "given_up", "versions", "digests")


class Findings:
    """What agreed, what did not, and what nobody can recompute."""

    def __init__(self) -> None:
        self.n_right, self.differences = 0, 0

    def compare(self, name: str, written: Any, right: Any, digits: int = 0) -> None:
        """Print whether a value is the recomputed one, rounded to some digits."""
        if digits and isinstance(right, float):
            right = f"{right:.{digits}g}"
        if _same(written, right):
            self.n_right += 1
            print(f"ok       {name} = {written}")
        else:
            self.differ(name, written, right)

    def differ(self, name: str, written: Any, right: Any) -> None:
        """Print a value that is not the right one."""
        self.differences += 1
        print(f"DIFFERS  {name}: is {written}, must be {right}")

    def require(self, name: str, holds: bool, rule: str) -> None:
        """Print whether a rule holds that has no number."""
        if holds:
            self.n_right += 1
            print(f"ok       {name}: {rule}")
        else:
            self.differ(name, "not so", rule)


def _same(written: Any, right: Any) -> bool:
    numbers = (int, float)
    if isinstance(written, bool) or isinstance(right, bool):
        return written is right
    if isinstance(written, numbers) and isinstance(right, numbers):
        return math.isclose(written, right, rel_tol=TOLERANCE, abs_tol=0.0)
    return written == right


# --- losses --------------------------------------------------------------------------


def log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)."""
    above = float(log_ndtr(mu / 2 - epsilon / mu))
    below = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return above + math.log(-math.expm1(below - above)) if below < above else -math.inf


@cache
def epsilon_of(mu: float, delta: float) -> float:
    """Epsilon of mu-GDP at delta, by bisection."""
    if mu <= 0 or log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    for _ in range(200):
        middle = (low + high) / 2
        if log_delta(middle, mu) > math.log(delta):
            low = middle
        else:
            high = middle
    return high


@cache
def mu_of(epsilon: float, delta: float) -> float:
    """Mu whose epsilon at delta is this one, by bisection."""
    low, high = 0.0, 1.0
    while log_delta(epsilon, high) < math.log(delta):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle > 0 and log_delta(epsilon, middle) < math.log(delta):
            low = middle
        else:
            high = middle
    return low


def compose(mus: Iterable[float]) -> float:
    """Loss of adaptive releases together."""
    return math.sqrt(math.fsum(mu**2 for mu in mus))


@cache
def squared_loss(
    gamma: tuple[float, ...], ratio: float, k: int, n_missing: int
) -> float:
    """Squared loss of site k against the aggregator and the worst n_missing others.

    At sensitivity 1, for noises of variance gamma that stay, and ratio * gamma that
    cancel. Of few sites every coalition is tried, on the covariance of its view.
    """
    others = [s for s in range(len(gamma)) if s != k]
    n_left = max(len(others) - n_missing, 0)
    if ratio == 0:
        return 1 / gamma[k]
    if math.isfinite(ratio) and len(gamma) <= FEW_SITES:
        return max(
            _of_view([gamma[k], *(gamma[s] for s in left)], ratio)
            for left in combinations(others, n_left)
        )
    hidden = 1.0 if math.isinf(ratio) else ratio / (1 + ratio)
    least = sorted(gamma[s] for s in others)[:n_left]
    return (1 - hidden) / gamma[k] + hidden / math.fsum([gamma[k], *least])


def _of_view(gamma: Sequence[float], ratio: float) -> float:
    """First diagonal entry of an inverse: the covariance of y_1 .. y_H and sum e."""
    g = [Fraction(x) for x in gamma]
    e = [Fraction(ratio) * x for x in g]
    n = len(g) + 1
    rows = [[Fraction(0)] * n for _ in range(n)]
    for s, (own, zero_sum) in enumerate(zip(g, e, strict=True)):
        rows[s][s] = own + zero_sum
        rows[s][-1] = rows[-1][s] = zero_sum
    rows[-1][-1] = sum(e)
    # Solve for the first unit vector: the rest of elimination is not needed.
    right = [Fraction(1), *[Fraction(0)] * (n - 1)]
    for i in range(n - 1, 0, -1):
        for j in range(i):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
            right[j] -= factor * right[i]
    return float(right[0] / rows[0][0])


def losses_of(
    arm: str, gamma: tuple[float, ...], ratio: float, k: int, c: int, n_lost: int
) -> dict[str, float | None]:
    """Loss of site k by class of parties, at sensitivity 1; None: exact."""
    if arm == "non-private":
        return dict.fromkeys(VIEWS)
    if arm == "pooled":
        mu = 1 / math.sqrt(math.fsum(gamma))
        return dict.fromkeys(VIEWS) | dict.fromkeys(VIEWS[:3], mu)
    ratio = {"cape": ratio, "secure_sum": math.inf}.get(arm, 0.0)
    of_result = {"reader": 0, "partner": 1, "partners": c}
    of_messages = {"aggregator": 0, CHARGED: c, "site_as_aggregator": 1}
    return {
        view: math.sqrt(squared_loss(gamma, math.inf, k, n + n_lost))
        for view, n in of_result.items()
    } | {
        view: math.sqrt(squared_loss(gamma, ratio, k, n + n_lost))
        for view, n in of_messages.items()
    }


def cost_of_rounding(
    draws: list[tuple[int, float]], epsilon: float, delta: float
) -> tuple[float, float]:
    """Epsilon and delta that noise drawn as doubles adds: docs/proofs.md, 4."""
    if not draws:
        return 0.0, 0.0
    mean = math.fsum(n * (5.6 * 2.0**-50 * a) ** 2 for n, a in draws)
    g = math.sqrt(160 * math.log(2))
    spread = max(math.sqrt(2 * mean), 1.5 * g * 2.0**-42.5 * max(a for _, a in draws))
    one = g * spread + 2 * spread**2
    missing = 2.0**-80 + 2.0**-64 * sum(n for n, _ in draws)
    added = math.expm1(min(one, 700.0)) * delta
    added += (1 + math.exp(min(epsilon + one, 700.0))) * missing
    return 2 * one, min(added, 1.0)


# --- the record ----------------------------------------------------------------------


def check_record(record: Mapping[str, Any], found: Findings) -> None:
    """Recompute every number of a privacy.json from its releases."""
    found.compare("format", record["format"], FORMAT)
    names, releases = list(record["sites"]), record["releases"]
    found.compare("n_sites", record["n_sites"], len({*names, *record["given_up"]}))
    t, c, S = record["survivor_threshold"], record["n_colluding"], record["n_sites"]
    found.require("survivor_threshold", c < t <= S or S == 1, "above n_colluding")
    n_units: dict[str, int] = {}
    for i, release in enumerate(releases):
        _check_release(f"releases.{i}", record, release, n_units, found)
    found.compare("n_units", record["n_units"], n_units)
    if record["unit"] == "subject" and len(n_units) == S:
        found.compare("people", record["people"], sum(n_units.values()))
    _check_totals(record, found)
    _check_words(record, found)
    rounding = record.get("rounding")
    if rounding is not None:
        draws = [] if rounding["noise"] == "exact" else _draws(record)
        promise = record["promise"]["epsilon"], record["delta"]
        epsilon, delta = cost_of_rounding(draws, *promise)
        found.require(
            "rounding.noise", rounding["noise"] in ("rounded", "exact"), "a sampler"
        )
        found.compare("rounding.epsilon", rounding["epsilon"], epsilon)
        found.compare("rounding.delta", rounding["delta"], delta)
    content = {key: value for key, value in record.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    found.compare("digest", record["digest"], digest)


def _check_release(
    at: str,
    record: Mapping[str, Any],
    release: Mapping[str, Any],
    n_units: dict[str, int],
    found: Findings,
) -> None:
    """Recompute one release: sensitivities, losses of all classes, noise."""
    query, arm, clip = release["query"], release["arm"], release["clip"]
    if query not in REACH | DISTANCES:
        found.differ(f"{at}.query", query, f"one of {', '.join(REACH | DISTANCES)}")
        return
    distance = release.get("distance")
    if query in REACH:
        found.compare(f"{at}.distance", distance, None)
    elif not _is_distance(query, distance):
        found.differ(f"{at}.distance", distance, "one that its parts can have")
        return
    found.require(f"{at}.arm", arm in (*EXACT, record["arm"]), "the study's, or exact")
    found.require(f"{at}.round", release["round"] >= 0, "at least 0")
    strange = set(release["survivors"]) - set(release["sites"])
    found.require(f"{at}.survivors", not strange, "sites of the release")
    is_void = not release["survivors"]
    found.require(
        f"{at}.size", (release["size"] == 0) == is_void, "0 of a void release alone"
    )
    names = list(release["sites"])
    gamma = tuple(release["sites"][name]["variance"] for name in names)
    n_lost = max(len(names) - record["survivor_threshold"], 0)
    reach = _reach(record, release)
    for k, name in enumerate(names):
        part, at_site = release["sites"][name], f"{at}.sites.{name}"
        found.compare(
            f"{at_site}.n_units",
            part["n_units"],
            n_units.setdefault(name, record["n_units"].get(name)),
        )
        if clip is None:
            found.compare(f"{at_site}.sensitivity", part["sensitivity"], None)
        else:
            right = reach * clip / part["n_units"]
            found.compare(f"{at_site}.sensitivity", part["sensitivity"], right)
        mus = losses_of(
            arm, gamma, record["noise_ratio"], k, record["n_colluding"], n_lost
        )
        for view in VIEWS:
            found.compare(f"{at_site}.mu.{view}", part["mu"].get(view), mus[view])
    if is_void or clip is None:
        right = None if is_void else 0.0
        found.compare(f"{at}.noise_deviation", release["noise_deviation"], right)
        return
    present = [s for s, name in enumerate(names) if name in release["survivors"]]
    in_sum = range(len(names)) if arm == "pooled" else present
    right = reach * clip / sum(release["sites"][names[s]]["n_units"] for s in present)
    right *= math.sqrt(math.fsum(gamma[s] for s in in_sum))
    found.compare(f"{at}.noise_deviation", release["noise_deviation"], right)


def _is_distance(query: str, distance: Any) -> bool:
    if not isinstance(distance, float):
        return False
    known = DISTANCES[query]
    near = TOLERANCE * distance
    is_between = ROOT2 - near <= distance <= 2 + near
    return any(_same(distance, d) for d in known) if known else is_between


def _reach(record: Mapping[str, Any], release: Mapping[str, Any]) -> float:
    """How far a unit moves a mean, over clip / n."""
    own = REACH.get(release["query"]) or release["distance"]
    return own if record["relation"] == "replace-one" else 1.0


def _draws(record: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Number and deviation, in grid steps, of all draws of a study."""
    longest = max((release["size"] for release in record["releases"]), default=0)
    draws = []
    for release in record["releases"]:
        gamma = [part["variance"] for part in release["sites"].values()]
        size = release["size"] or longest
        if release["arm"] in EXACT or not gamma or not size:
            continue
        for variance in gamma:
            a = 2.0**15 * math.sqrt(variance / min(gamma))
            draws.append((size, a))
            if release["arm"] == "cape":
                draws.append((size, a * math.sqrt(record["noise_ratio"])))
    return draws


def _charged(record: Mapping[str, Any], site: str) -> list[float | None]:
    parts = [r["sites"][site] for r in record["releases"] if site in r["sites"]]
    return [part["mu"][CHARGED] for part in parts]


def _check_totals(record: Mapping[str, Any], found: Findings) -> None:
    """Recompute what each site spent, and the promise."""
    delta, promise, releases = record["delta"], record["promise"], record["releases"]
    mu = mu_of(promise["epsilon"], delta)
    found.compare("promise.mu", promise["mu"], mu)
    bound = float(ndtr(mu / 2))
    found.compare(
        "promise.attack_accuracy_bound", promise["attack_accuracy_bound"], bound
    )
    worst, has_noise, is_kept = mu, True, True
    for site, total in record["sites"].items():
        at = f"sites.{site}"
        of_site = [r for r in releases if site in r["sites"]]
        found.compare(f"{at}.releases", total["releases"], len(of_site))
        survived = sum(site in r["survivors"] for r in of_site)
        found.compare(f"{at}.n_survived", total["n_survived"], survived)
        for view in VIEWS:
            mus = [r["sites"][site]["mu"][view] for r in of_site]
            if None in mus or total[view] is None:
                right = None if None in mus else "three epsilons"
                found.compare(f"{at}.{view}", total[view], right)
                continue
            sums = _epsilons(mus, delta)
            for way, right in sums.items():
                found.compare(f"{at}.{view}.{way}", total[view][way], right)
        charged, own = _charged(record, site), mu_of(total["promise"], delta)
        has_noise = has_noise and all(charged)
        worst = max(worst, own)
        is_kept = is_kept and None not in charged
        is_kept = is_kept and compose(charged) <= own * (1 + TOLERANCE)
    found.compare("promise.has_noise", promise["has_noise"], has_noise)
    found.compare("promise.within_promise", promise["within_promise"], is_kept)
    person = record["person"]
    n = 1 if record["unit"] == "subject" else person["units"]
    found.compare("person.units", person["units"], n)
    right = None if n is None else epsilon_of(n * worst, delta)
    found.compare("person.epsilon_at_worst", person["epsilon_at_worst"], right)
    right = None if n is None else float(ndtr(n * worst / 2))
    found.compare(
        "person.attack_accuracy_bound", person["attack_accuracy_bound"], right
    )


def _epsilons(mus: list[float], delta: float) -> dict[str, float]:
    """Epsilon of releases together, as it is counted in three ways."""
    if not mus:
        return {"gdp": 0.0, "rdp": 0.0, "basic": 0.0}
    mu = compose(mus)
    return {
        "gdp": epsilon_of(mu, delta),
        "rdp": mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)),
        "basic": math.fsum(epsilon_of(m, delta / len(mus)) for m in mus),
    }


def _check_words(record: Mapping[str, Any], found: Findings) -> None:
    """Recompute the numbers in sentences and stamp; say what cannot be checked."""
    delta, text = record["delta"], " ".join(record["assumptions"])
    mus = []
    for site, total in record["sites"].items():
        charged = _charged(record, site)
        if None in charged:
            mus = []
            break
        mus.append(max(mu_of(total["promise"], delta), compose(charged)))
    numbers = [str(record["survivor_threshold"] - record["n_colluding"])]
    if mus:
        numbers.append(f"{epsilon_of(sum(sorted(mus)[-2:]), delta):.3g}")
    rounding = record.get("rounding") or {"epsilon": 0.0}
    if rounding["epsilon"]:
        numbers += [f"{rounding[key]:.1e}" for key in ("epsilon", "delta")]
    if record["unit"] == "sample" and record["person"]["units"] is not None:
        numbers.append(str(record["person"]["units"]))
    # The numbers alone: their words are people's, and may be others tomorrow.
    written = re.findall(r"\d[\d.e+-]*(?<=\d)", text.replace(record["adversary"], ""))
    found.compare("numbers in assumptions", sorted(written), sorted(numbers))
    if not record["stamp"].startswith("NOT PRIVATE"):
        promises = [s["promise"] for s in record["sites"].values()]
        epsilon = max([record["promise"]["epsilon"], *promises])
        if record["unit"] == "sample":
            epsilon = record["person"]["epsilon_at_worst"]
        bound = "nothing" if epsilon is None else f"no more than epsilon {epsilon:,.4g}"
        stamp = f"WEAK PROMISE: {bound} for everything of a person"
        is_weak = epsilon is None or epsilon > WEAK
        found.compare("stamp", record["stamp"], stamp if is_weak else "")
    print(f"unchecked {', '.join(WORDS)}: words; the digest is of them, too")


def check_vouchers(
    folder: Path, record: Mapping[str, Any], found: Findings
) -> dict[str, str]:
    """Check the sites' signatures beside a record; their keys by site."""
    keys = {}
    for path in sorted((folder / "signatures").glob("*.json")):
        voucher = json.loads(path.read_text())
        site, digest = voucher.get("site", ""), record["digest"]
        found.compare(f"{path.name}: digest", voucher.get("digest"), digest)
        found.require(f"{path.name}: site", site in record["sites"], "in the record")
        statement = f"capeneuro record charged\0{site}\0{digest}".encode()
        is_signed = verify_signature(voucher["key"], voucher["signature"], statement)
        found.require(f"{path.name}: signature", is_signed, f"by {voucher['key']}")
        keys[site] = voucher["key"]
    if not keys:
        print(
            "unchecked who wrote the record: no site signed it (capeneuro privacy sign)"
        )
    return keys


# --- ledgers -------------------------------------------------------------------------


def check_ledger(
    path: Path, record: Mapping[str, Any], keys: dict[str, str], found: Findings
) -> None:
    """Check an export of a ledger, and that it charged what the record says."""
    text = path.read_text()
    if text.startswith("{"):
        lines, key = _chained(path.name, text, found)
    else:
        lines, key = _table(text), ""
        print(f"unchecked {path.name}: a table has no chain and no signature")
    mus = []
    for i, line in enumerate(lines):
        at = f"{path.name}, release {i + 1}"
        if line.get("mu") and line.get("noise_multiplier") is not None:
            found.compare(
                f"{at}: noise_multiplier", line["noise_multiplier"], 1 / line["mu"]
            )
        mus.append(line["mu"])
    delta = record["delta"]
    print(
        f"ok       {path.name}: {len(mus)} releases, together epsilon "
        f"{epsilon_of(compose(mus), delta):.6g} at delta {delta:g}"
    )
    studies = record["digests"]["identities"]
    own_lines = [line for line in lines if line.get("study") in studies]
    sites = {line["site"] for line in own_lines if line.get("site")}
    if not sites:  # a table of before does not name the site
        sites = {_site_of(record, own_lines)} - {""}
    sites |= {site for site, of_site in keys.items() if key and of_site == key}
    if not sites:  # as of all but the first in arm `local`
        private = [r for r in record["releases"] if r["arm"] not in EXACT]
        n_charged = len({site for release in private for site in release["sites"]})
        words = f"no charge of this study, as at {record['n_sites'] - n_charged} sites"
        if n_charged < record["n_sites"]:
            print(f"unchecked {path.name}: {words}")
        else:
            found.differ(
                path.name, "without charges", "a ledger of a site of this record"
            )
    for site in sites:
        of_site = [line for line in own_lines if line.get("site") in (None, "", site)]
        _check_charges(path.name, record, site, of_site, found)
        if key and keys.setdefault(site, key) != key:
            found.differ(f"{path.name}: key of {site}", key, keys[site])


def _chained(name: str, text: str, found: Findings) -> tuple[list[dict[str, Any]], str]:
    """Check the chain of an export and its signature; its releases and key."""
    *rows, end = (json.loads(line) for line in text.splitlines())
    chain, lines, n_withheld = "", [], 0
    for i, row in enumerate(rows):
        if "entry" not in row:  # lines with people's pseudonyms are not exported
            chain, n_withheld = row["chain"], n_withheld + 1
            continue
        link = f"{chain}\0{row['entry']}".encode()
        chain = hashlib.sha256(link).hexdigest()
        if row["chain"] != chain:
            found.differ(f"{name}, line {i + 1}: chain", row["chain"], chain)
            chain = row["chain"]
        entry = json.loads(row["entry"])
        lines += [entry] if entry["kind"] == "release" else []
    found.compare(f"{name}: n_lines", end["n_lines"], len(rows))
    found.compare(f"{name}: last chain", end["chain"], chain)
    statement = f"capeneuro ledger export\0{len(rows)}\0{chain}".encode()
    is_signed = verify_signature(end["key"], end["signature"], statement)
    found.require(f"{name}: signature", is_signed, f"by {end['key']}")
    if n_withheld:
        print(f"unchecked {name}: {n_withheld} lines with people's pseudonyms")
    return lines, end["key"]


def _table(text: str) -> list[dict[str, Any]]:
    """Rows of an exported table, numbers as numbers."""
    rows = []
    for row in csv.DictReader(io.StringIO(text), delimiter="\t"):
        for column in ("mu", "noise_multiplier", "sensitivity"):
            row[column] = float(row[column]) if row.get(column) else None
        row["round"] = int(row["round"])
        row["n_colluding"] = int(row["n_colluding"]) if row["n_colluding"] else None
        rows.append(row)
    return rows


def _site_of(record: Mapping[str, Any], lines: list[dict[str, Any]]) -> str:
    """Site of a record whose sensitivities a table has."""
    for site in record["sites"]:
        parts = [r["sites"][site] for r in record["releases"] if site in r["sites"]]
        if lines and all(
            any(_same(line["sensitivity"], part["sensitivity"]) for part in parts)
            for line in lines
        ):
            return site
    return ""


def _check_charges(
    name: str,
    record: Mapping[str, Any],
    site: str,
    lines: list[dict[str, Any]],
    found: Findings,
) -> None:
    """Compare a ledger's lines of a study with the record's releases of a site."""
    left = list(lines)
    for i, release in enumerate(record["releases"]):
        if site not in release["sites"] or release["arm"] in EXACT:
            continue
        part, at = release["sites"][site], f"{name}: releases.{i}.sites.{site}"
        key = release["query"], release["round"]
        matches = [x for x in left if (x["query"], x["round"]) == key]
        best = [x for x in matches if _same(x["mu"], part["mu"][CHARGED])] or matches
        if not best:
            found.differ(at, "charged nowhere", f"charged mu {part['mu'][CHARGED]}")
            continue
        line = best[0]
        left.remove(line)
        found.compare(f"{at}.mu", part["mu"][CHARGED], line["mu"])
        found.compare(f"{at}.sensitivity", part["sensitivity"], line["sensitivity"])
        found.compare(f"{at}.arm", release["arm"], line["arm"])
        for field in ("unit", "relation", "n_colluding", "survivor_threshold"):
            if line.get(field) is None:
                continue
            right = line[field]
            if field == "survivor_threshold":  # of fewer sites, where one was given up
                found.require(f"{at}.{field}", right <= record[field], "no larger")
            else:
                found.compare(f"{at}.{field}", record[field], right)
    found.compare(f"{name}: releases of {site} that the record lacks", len(left), 0)


# --- disclosure statements -----------------------------------------------------------


def check_answer(
    path: Path, record: Mapping[str, Any], keys: dict[str, str], found: Findings
) -> None:
    """Check the disclosure statement of an answer, and the sealed answer beside it."""
    answer = None
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as members:
            statement = json.loads(members.read("DISCLOSURE.json"))
            parts = [n for n in members.namelist() if n.endswith(".answer")]
            parts.sort(key=lambda name: int(name.partition("-")[0]))
            answer = hashlib.sha256(b"".join(map(members.read, parts))).hexdigest()
    else:
        statement = json.loads(path.read_text())
    name, site = path.name, statement["site"]
    content = {k: v for k, v in statement.items() if k != "signature"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    is_signed = verify_signature(
        statement["key"],
        statement["signature"],
        b"capeneuro disclosure\0" + text.encode(),
    )
    found.require(f"{name}: signature", is_signed, f"by {statement['key']}")
    if answer is not None:
        found.compare(f"{name}: answer_sha256", statement["answer_sha256"], answer)
    if keys.setdefault(site, statement["key"]) != statement["key"]:
        found.differ(f"{name}: key of {site}", statement["key"], keys[site])
    _check_statement(name, record, statement, found)


def _check_statement(
    name: str, record: Mapping[str, Any], statement: Mapping[str, Any], found: Findings
) -> None:
    """Recompute the numbers of a disclosure statement."""
    site, p = statement["site"], statement["promise"]
    found.compare(f"{name}: study", statement["study"], record["study"])
    if site not in record["sites"]:
        found.differ(f"{name}: site", site, f"one of {', '.join(record['sites'])}")
        return
    promised = f"{record['sites'][site]['promise']:g}"
    found.compare(f"{name}: promise.epsilon", p["epsilon"], promised)
    found.compare(f"{name}: promise.delta", p["delta"], f"{record['delta']:g}")
    mu = mu_of(float(p["epsilon"]), float(p["delta"]))
    share = f"{100 * float(ndtr(mu / 2)):.0f}"
    if p["guess"]:
        words = f"at most {share} times in 100"
        found.require(f"{name}: promise.guess", words in p["guess"], words)
    spent = mu_of(float(statement["spent"]), record["delta"])
    left = 100 * max(0.0, 1 - (spent / mu) ** 2)
    # The statement rounds what was spent to three digits.
    near = abs(left - statement["left"]) <= 1.5 if spent else statement["left"] == 100
    found.require(f"{name}: left", near, f"about {left:.0f} percent")
    if statement["is_exact"]:
        return
    losses = set()
    for row in statement["arrays"]:
        fits = [
            release["sites"][site]["mu"][CHARGED]
            for release in record["releases"]
            if site in release["sites"]
            and _deviation_of(record, release, site, row["name"]) == row["deviation"]
            and release["size"] == row["size"]
        ]
        what = f"{name}: {row['name']}, {row['size']} numbers, deviation"
        found.require(what, bool(fits), f"{row['deviation']} is that of a release")
        losses |= {*fits}
    if len(losses) == 1 and len(statement["asked"]) == 1 and not statement["is_repeat"]:
        right = epsilon_of(losses.pop(), record["delta"])
        found.compare(f"{name}: spends", statement["spends"], right, digits=3)


def _deviation_of(
    record: Mapping[str, Any], release: Mapping[str, Any], site: str, part: str
) -> str:
    """Deviation of the noise of one part of a site's answer, to three digits."""
    if release["clip"] is None:
        return ""
    n = sum(x["n_units"] for x in release["sites"].values())
    reach = _reach(record, release)
    gamma = (reach * release["clip"] / n) ** 2 * release["sites"][site]["variance"]
    zero_sum = record["noise_ratio"] * gamma if release["arm"] == "cape" else 0.0
    is_part = part == "masked" and release["arm"] == "cape"
    return f"{math.sqrt(zero_sum if is_part else gamma + zero_sum):.3g}"


# --- Ed25519, RFC 8032, section 5.1 --------------------------------------------------

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def _point(raw: bytes) -> tuple[int, int, int, int] | None:
    """Decode a point into extended coordinates; None: it is none (5.1.3)."""
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if len(raw) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if (x & 1) != sign else x
    return x, y, 1, x * y % P


def _add(p: tuple[int, ...], q: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(k: int, p: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    total = (0, 1, 1, 0)
    while k:
        total = _add(total, p) if k & 1 else total
        p, k = _add(p, p), k >> 1
    return total


def verify_signature(key: str, signature: str, message: bytes) -> bool:
    """Whether a public key signed a message; key and signature in hex (5.1.7)."""
    try:
        public, raw = bytes.fromhex(key), bytes.fromhex(signature)
    except ValueError:
        return False
    a, r = _point(public), _point(raw[:32])
    s = int.from_bytes(raw[32:], "little")
    if a is None or r is None or len(raw) != 64 or s >= ORDER:
        return False
    digest = hashlib.sha512(raw[:32] + public + message).digest()
    k = int.from_bytes(digest, "little") % ORDER
    base = _point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    left, right = _times(s, base), _add(r, _times(k, a))
    x, y = (
        left[0] * right[2] - right[0] * left[2],
        left[1] * right[2] - right[1] * left[2],
    )
    return x % P == 0 and y % P == 0


# -------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Check a folder of results and what was named beside it."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    found, folder = Findings(), Path(arguments[0])
    folder = folder.parent if folder.is_file() else folder
    try:
        record = json.loads((folder / "privacy.json").read_text())
        check_record(record, found)
        keys = check_vouchers(folder, record, found)
        for path in map(Path, arguments[1:]):
            is_answer = path.suffix in (".zip", ".json")
            (check_answer if is_answer else check_ledger)(path, record, keys, found)
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        print(f"DIFFERS  form: cannot be read: {type(error).__name__} {error}")
        return 2
    print(f"{found.n_right} right, {found.differences} differ")
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
