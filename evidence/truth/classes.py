"""What every class of parties learns: claimed, by formula, by covariance, by attack.

    python -m evidence.truth.classes [--pairs 400] [--sites 2 3 5 10 30]

A promise of epsilon 8 at delta 1e-5 (large, so that an attack shows much of it), 2 to
30 sites, all of them there and the fewest that a threshold allows, the aggregator at
none of the sites or at one. ``claimed`` is what :func:`.parties.views` says and the
ledger charges; ``formula`` that of the threat model for equal sites; ``covariance`` the
exact loss from the joint covariance of all that the class sees, built from the noises;
``canary`` the lower bound that an attack on the real code shows with all sites there
(``capeneuro audit --party``).
"""

import argparse
import math

import numpy as np

from capeneuro.audit import canaries
from capeneuro.privacy import accounting, calibration, parties

EPSILON, DELTA = 8.0, 1e-5
SITES = (2, 3, 5, 10, 30)
COLUMNS = ("claimed", "formula", "covariance", "canary")
SHOWN = ("partner", "partners", "aggregator", "aggregator_and_colluders")


def formula(view: str, rho: float, t: int, c: int) -> float:
    """Square of mu times gamma, for equal sites [docs/threat-model.md]."""
    k = canaries.PARTNERS.get(view, c)
    if view not in canaries.HEARS:
        return 1 / (t - k)
    return (1 + rho / (t - k)) / (1 + rho)


def covariance(view: str, gamma: float, rho: float, t: int, c: int) -> float:
    """Loss from the joint covariance of what a class sees about one of t survivors."""
    k = canaries.PARTNERS.get(view, c)
    H = t - k  # noises of the coalition are known and drop out of all it sees
    G, E = np.eye(2 * H)[:H] * gamma**0.5, np.eye(2 * H)[H:] * (rho * gamma) ** 0.5
    if view not in canaries.HEARS:
        seen, moved = G.sum(axis=0)[None], np.ones(1)
    else:  # every honest site's message, and the total of their zero-sum noise
        seen = np.vstack([G + E, E.sum(axis=0)])
        moved = np.r_[1.0, np.zeros(H)]
    C = seen @ seen.T
    return math.sqrt(moved @ np.linalg.solve(C, moved))


def canary(view: str, S: int, c: int, mu: float, n_pairs: int) -> float:
    """Lower bound on mu from an attack with this class's view on the real code."""
    asked = ("cape", "infomax_skew", "subject", "constant", mu)
    case = canaries.Case(*asked, S, c, 1, 100.0 * S, view)
    views = [
        np.array([canaries.transcript(case, w, f"{w}-{i}")[0] for i in range(n_pairs)])
        for w in (0, 1)
    ]
    return canaries.attack(*views, 1e-3)


def main() -> None:
    """Print a row for each class and study."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=400, help="0: none")
    parser.add_argument("--sites", type=int, nargs="+", default=SITES)
    options = parser.parse_args()
    n_pairs = options.pairs
    promise = accounting.Budget(EPSILON, DELTA, "subject")
    names = ("S", "t", "aggregator", "c", "class", *COLUMNS)
    print("|", " | ".join(names), "|")
    print("|---" * len(names), "|", sep="")
    for S in options.sites:
        for seat in ("at none", "at a site"):
            c = accounting.coalition(S, independent=seat == "at none")
            least = next(t for t in range(1, S + 1) if 2 * t > S + c)
            for t in dict.fromkeys((S, least)):
                rho, mu = 100.0 * S, np.full(S, promise.mu)
                coalition = accounting.Coalition(S, c, S - t)
                gamma = calibration.arm_variances("cape", mu, rho, coalition)
                views = parties.views("cape", gamma, rho, coalition)
                for view in SHOWN:
                    losses = [float(views[view][0])]
                    square = formula(view, rho, t, c) / gamma[0]
                    losses += [square**0.5, covariance(view, gamma[0], rho, t, c)]
                    told = [accounting.epsilon_from_mu(x, DELTA) for x in losses]
                    shown = "-"
                    if t == S and n_pairs:
                        found = canary(view, S, c, promise.mu, n_pairs)
                        shown = f"{accounting.epsilon_from_mu(found, DELTA):.2f}"
                    numbers = " | ".join(f"{x:.3f}" for x in told)
                    print(
                        f"| {S} | {t} | {seat} | {c} | {view} | {numbers} | {shown} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
