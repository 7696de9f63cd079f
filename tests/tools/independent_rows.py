"""Rows of docs/book.tsv, drawn by a fixed seed and computed again by other code.

    python tests/tools/independent_rows.py

It imports nothing of this project: numpy, scipy and the standard library. What is a
closed form, an enumeration or algebra is derived anew; what comes of an experiment is
read from papers/results/ by other code than that of `book.py`, which tells a wrong
copy, not a wrong experiment. Numbers have to agree to the digits that the row shows.
"""

import csv
import itertools
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.optimize
from scipy.special import log_ndtr

ROOT = Path(__file__).parents[2]
SEED, N_ROWS = 20261126, 25
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")


# --- accounting of Gaussian noise ----------------------------------------------------


def delta_of(epsilon: float, mu: float) -> float:
    """Delta of a Gaussian release of loss mu [Balle & Wang 2018]."""
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return math.exp(first) * -math.expm1(min(second - first, -1e-300))


def epsilon_of(mu: float, delta: float) -> float:
    """Epsilon at which it is delta."""
    return scipy.optimize.brentq(
        lambda e: delta_of(e, mu) - delta, 0, 10 + mu * mu + 20 * mu
    )


def mu_of(epsilon: float, delta: float) -> float:
    """Loss that (epsilon, delta) allows."""
    return scipy.optimize.brentq(lambda m: delta_of(epsilon, m) - delta, 1e-6, 1e3)


def classic(epsilon: float, delta: float) -> float:
    """Deviation of the classic Gaussian mechanism, sensitivity 1."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def view(S: int, S_C: int, sigma2: float, gamma: float) -> float:
    """mu^2 of one honest site, sensitivity 1, from the covariance of what is seen.

    The aggregator knows the sum of all e^ and the colluders' own noise, so it holds
    y_s = u_s + e^_s + g_s of the S_H honest sites (their means are subtracted) and the
    sum of their e^.
    """
    S_H = S - S_C
    covariance = np.full((S_H + 1, S_H + 1), 0.0)
    covariance[:S_H, :S_H] = (sigma2 + gamma) * np.eye(S_H)
    covariance[:S_H, S_H] = covariance[S_H, :S_H] = sigma2
    covariance[S_H, S_H] = S_H * sigma2
    moved = np.eye(S_H + 1)[0]
    return float(moved @ np.linalg.solve(covariance, moved))


# --- recorded figures ----------------------------------------------------------------


def recorded(figure: str, score: str, **where: str) -> list[float]:
    """Means of a score in all settings of a figure that fit."""
    lines = (ROOT / "papers/results" / f"{figure}.tsv").read_text().splitlines()
    head = lines[0].split("\t")
    rows = [dict(zip(head, line.split("\t"), strict=True)) for line in lines[1:]]
    return [
        float(row["mean"])
        for row in rows
        if row["score"] == score and all(row[k] == v for k, v in where.items())
    ]


def share(values: list[float], least: float = 0.0) -> list[float]:
    """How many are at least a level, of how many."""
    return [sum(v >= least for v in values), len(values)]


# --- rows ----------------------------------------------------------------------------


def x4() -> list[float]:
    cases = (5, 0), (5, 1), (10, 3), (100, 33)
    mu = math.sqrt(2 * view(5, 1, 1, 1 / 5)) / classic(0.5, 1e-5)
    ratios = [view(S, C, 1, 1 / S) for S, C in cases]
    return [*ratios, epsilon_of(mu, 1e-5), delta_of(0.5, mu)]


def x10() -> list[float]:
    w, alpha = np.array([0, -1e6]), np.array([0.1, 0.2])
    return [float(w[0] ** 2 + alpha @ w)]


def x24() -> list[float]:
    return [math.sqrt(1000) / mu_of(0.5, 1e-5), classic(0.5, 1e-5)]


def x28() -> list[float]:
    return [view(5, 0, 1, 1 / 5)]


def l3_1() -> list[float]:
    """Noise of the sum at mu = 1 over a curator's 1, zero-sum noise 1e4 times more."""
    cases = (10, 0), (10, 3), (5, 1)
    return [math.sqrt(S * view(S, C, 1e4, 1.0)) for S, C in cases]


def t3_1_others() -> list[float]:
    S, D, M = 8, 10_000, 3
    return [D, (S + 1) * D * M, 2 * S * D]


def s5_topics() -> list[float]:
    """Largest change of symmetric moments: all documents of three of four words."""
    worst = []
    for order in (2, 3):
        moments = []
        for words in itertools.product(range(4), repeat=3):
            moment = np.zeros((4,) * order)
            chosen = list(itertools.permutations(words, order))
            for tuple_ in chosen:
                moment[tuple_] += 1 / len(chosen)
            moments.append(moment)
        pairs = itertools.combinations(moments, 2)
        worst.append(max(np.linalg.norm((a - b).ravel()) for a, b in pairs))
    assert np.allclose(worst, math.sqrt(2)), worst
    return []


def s5_power() -> list[float]:
    """Whitening and power iterations on exact moments of three components."""
    rng = np.random.default_rng(1)
    A, w = rng.dirichlet(np.ones(6), 3).T, np.array([0.5, 0.3, 0.2])
    M2 = np.einsum("k,ik,jk->ij", w, A, A)
    M3 = np.einsum("k,ik,jk,lk->ijl", w, A, A, A)
    values, U = np.linalg.eigh(M2)
    W = U[:, -3:] / np.sqrt(values[-3:])
    T = np.einsum("ijl,ia,jb,lc->abc", M3, W, W, W)
    found = []
    for _ in range(3):
        tries = []
        for _ in range(20):
            u = rng.standard_normal(3)
            for _ in range(100):
                u = np.einsum("abc,b,c->a", T, u, u)
                u /= np.linalg.norm(u)
            tries.append((np.einsum("abc,a,b,c", T, u, u, u), u))
        value, u = max(tries, key=lambda one: one[0])
        T = T - value * np.einsum("a,b,c->abc", u, u, u)
        found.append(value * U[:, -3:] @ (np.sqrt(values[-3:]) * u))
    away = [min(np.linalg.norm(a - f) for f in found) for a in A.T]
    assert max(away) < 1e-8, away
    return []


def s5_k3() -> list[float]:
    rng = np.random.default_rng(2)
    W, M = rng.standard_normal((10, 3)), rng.standard_normal((5, 10, 10, 10))
    each = [
        np.tensordot(np.tensordot(np.tensordot(m, W, 1), W, (1, 0)), W, (0, 0))
        for m in M
    ]
    m = M.mean(axis=0)
    whole = np.tensordot(np.tensordot(np.tensordot(m, W, 1), W, (1, 0)), W, (0, 0))
    assert np.allclose(np.mean(each, axis=0), whole, rtol=1e-12)
    return [10**3, 3**3]


def s6_least() -> list[float]:
    rounds = (0.1, 0.3, 1, 3)
    many = 12 / 0.7  # PCA has 0.3 of mu^2
    exact = [epsilon_of(mu_of(e, 1e-2) * math.sqrt(many), 1e-5) for e in rounds]
    return [*exact, *(e * many for e in rounds), 2 * 12 * 0.1, 2 * 12 * 3]


def t_2016() -> list[float]:
    """Two samples of norm 1 / (2 sqrt(d)) through W = I: sqrt(r / d) of the noise."""
    d, r = 60, 15
    worst = np.abs(np.ones(r) / math.sqrt(r * d)).sum()
    assert math.isclose(1 / worst, math.sqrt(d / r))
    W = np.random.default_rng(3).standard_normal((r, r))
    u = np.random.default_rng(4).standard_normal((r, 10_000))
    u /= np.linalg.norm(u, axis=0) * math.sqrt(d)
    assert np.abs(W @ u).sum(axis=0).max() <= np.abs(W).sum(axis=0).max()
    return []


def f3_5_print() -> list[float]:
    mu = math.sqrt(4 * 500) / classic(1, 0.01)
    return [64, epsilon_of(mu, 1e-5)]


def f1a_gd() -> list[float]:
    """From results, and ratios in closed form."""
    printed = {"method": "noisy-gd (as printed)"}
    behind = [
        value
        for figure in ("fm_printed", "fm_printed_logistic")
        for value in recorded(figure, "behind", **printed)
    ]
    ahead = len(behind) - share(behind)[0]
    equal = [
        value
        for figure in ("fm_epsilon", "fm_epsilon_logistic")
        for value in recorded(figure, "behind", method="noisy-gd")
    ]
    ratios = [
        epsilon_of(math.sqrt(1000) / classic(e, 1e-5), 1e-5) / e for e in (0.1, 10)
    ]
    return [ahead, len(behind), round(ratios[0]), *share(equal)]


def of_results(figure: str, *cells: tuple[str, dict[str, str]]) -> Callable[[], list]:
    """A row whose numbers are means of a figure, in their order."""

    def values() -> list[float]:
        means = []
        for score, where in cells:
            (mean,) = recorded(figure, score, **where)
            means.append(mean)
        return means

    values.__doc__ = "From results."
    return values


MIX10, MIX50 = "mixture of 5 in 10", "mixture of 10 in 50"
TOPICS10 = "5 topics of 10 words"


def otd(data: str, method: str, n: str, epsilon: str) -> tuple[str, dict[str, str]]:
    return "error", {"data": data, "method": method, "n_samples": n, "epsilon": epsilon}


def f5_1a() -> list[float]:
    """From results."""
    counts = []
    for method in ("conventional", "local"):
        behind = [
            v
            for figure in ("otd_epsilon", "otd_samples", "otd_delta")
            for v in recorded(figure, "behind", method=method)
        ]
        counts.append(share(behind))
    return [*counts[0], counts[1][0]]


def f5_2b() -> list[float]:
    """From results."""
    for data in ("5 topics of 10 words", "10 topics of 50 words"):
        for e in ("0.3", "3"):
            rise = recorded(
                "otd_samples", "rise", data=data, method="capeAGN", epsilon=e
            )
            assert min(rise) >= 0, (data, e, rise)
    return []


def f7_1a() -> list[float]:
    """From results."""
    at = {"data": "mnist", "epsilon": "1", "delta": "1e-05"}
    methods = "capeCCA", "conventional", "local", "chance"
    return [m for k in methods for m in recorded("cca_epsilon", "ch", method=k, **at)]


def network(method: str, n: str) -> tuple[str, dict[str, str]]:
    return "wrong", {"method": method, "n_samples": n, "split": "test"}


def cca(method: str, delta: str) -> tuple[str, dict[str, str]]:
    return "ch", {"data": "mnist", "method": method, "delta": delta}


def objective(method: str, n: str) -> tuple[str, dict[str, str]]:
    return "err_w", {"data": "synthetic", "method": method, "n_samples": n}


def f6_4() -> list[float]:
    """From results."""
    deltas, at = ("1e-07", "1e-05", "0.001"), {"method": "capeDJICA"}
    ngi = [recorded("ica_delta", "ngi", delta=d, epsilon="0.5", **at) for d in deltas]
    agreement = [recorded("abide_delta", "share", delta=d, **at) for d in deltas]
    return [v for (v,) in (*ngi, *agreement)]


def s8_cost() -> list[float]:
    """No number is shown: a symmetric matrix has D (D + 1) / 2 distinct entries."""
    D = 100
    assert np.triu_indices(D)[0].size == D * (D + 1) // 2
    return []


ROWS: dict[str, Callable[[], list[float]]] = {
    "X4": x4,
    "X10": x10,
    "X24": x24,
    "X28": x28,
    "L3.1": l3_1,
    "T3.1-others": t3_1_others,
    "R-abide": of_results(
        "pca_abide",
        ("share", {"unit": "sample", "method": "capePCA", "epsilon": "0.5"}),
        ("share", {"unit": "subject", "method": "capePCA", "epsilon": "4"}),
    ),
    "A5.1": of_results(
        "otd_epsilon",
        *(otd(MIX10, m, "20000", "1") for m in ("capeAGN", "conventional", "local")),
    ),
    "F5.1a": f5_1a,
    "F5.2a": of_results(
        "otd_epsilon",
        *(
            otd(TOPICS10, m, n, e)
            for m, e in (("capeAGN", "0.1"), ("non-private", "0.1"), ("capeAGN", "1"))
            for n in ("2000", "20000")
        ),
    ),
    "F5.2b": f5_2b,
    "S-M3": of_results(
        "otd_epsilon",
        *(
            otd(MIX50, m, "2000", e)
            for e in ("1", "0.3")
            for m in ("capeAGN", "capeAGN, whole M3")
        ),
    ),
    "S5-topics": s5_topics,
    "S5-power": s5_power,
    "S5-K3": s5_k3,
    "S6-least": s6_least,
    "F6.4": f6_4,
    "2016-T1": t_2016,
    "F7.1a": f7_1a,
    "F7.2": of_results(
        "cca_delta",
        *(cca(m, d) for m in ("capeCCA", "pooled") for d in ("1e-09", "0.01")),
    ),
    "F3.5c": of_results(
        "network_samples",
        *(network(m, n) for m in ("CAPE", "conventional") for n in ("500", "8000")),
    ),
    "F3.5-print": f3_5_print,
    "F1a-gd": f1a_gd,
    "S8-obj": of_results(
        "fm_thesis_samples",
        *(objective(m, n) for n in ("1500", "15000") for m in ("objPert", "capeFM")),
    ),
    "S8-cost": s8_cost,
}


def numbers(text: str) -> list[tuple[float, float]]:
    """Numbers of a sentence, each with half of its last digit."""
    found = []
    for match in NUMBER.findall(text):
        digits = match.replace(",", "").rstrip(".")
        mantissa, _, power = digits.partition("e")
        decimals = len(mantissa.partition(".")[2])
        found.append((float(digits), 0.5001 * 10.0 ** (int(power or 0) - decimals)))
    return found


def missing(row: dict[str, str]) -> list[float]:
    """Recomputed values that the row's number does not have."""
    shown = numbers(row["number"])

    def near(value: float) -> bool:
        return any(abs(value - number) <= half for number, half in shown)

    return [value for value in ROWS[row["id"]]() if not near(value)]


def main() -> int:
    """Print one line a row; status 1 if a number differs."""
    with (ROOT / "docs/book.tsv").open(newline="") as lines:
        table = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    drawn = np.random.default_rng(SEED).choice(len(table), N_ROWS, replace=False)
    failed = 0
    for i in sorted(drawn):
        row = table[i]
        if row["id"] not in ROWS:
            print(f"{row['id']}: NO CODE")
            failed += 1
            continue
        try:
            wrong = missing(row)
        except AssertionError as error:
            wrong = [f"claim does not hold: {error}"]
        failed += bool(wrong)
        about = (ROWS[row["id"]].__doc__ or "").split("\n")[0]
        kind = "recorded figure" if about.startswith("From results") else "derived anew"
        verdict = f"DIFFERS: {wrong}" if wrong else "agrees"
        print(f"{row['id']}: {verdict} ({kind})")
    print(f"{N_ROWS - failed} of {N_ROWS} agree")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
