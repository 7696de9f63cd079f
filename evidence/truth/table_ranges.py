"""How much of what features explain noise takes from regressions; fits the planner.

Tables and grey-matter maps, four sites, N = 300 to 4000 and epsilon 1 to 64, twelve
draws of the noise each. The planner says, for independent features, that a share
``x^2 / (x^2 + 0.3 / D)`` is lost, x the error of a coefficient; here ``k x`` in its
place is what was lost, and k differs from table to table by a factor of a hundred:
features that vary together along what matters bear more noise, skewed ones in a corner
of their bounds less. The range is that of a new table, by a t law over the tables; each
is judged by a range that was made without it. Designs that the gate would stop by far
are left out.

    python -m evidence.truth.table_ranges [--vbm FOLDER]

FOLDER is one in which the study evidence/truth/studies/vbm was prepared.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

from capeneuro import linalg
from capeneuro.algorithms import forecast_rows, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.data import files
from capeneuro.privacy import accounting
from evidence.truth import rates
from evidence.truth.regression import scaled_table

TABLES = ("warfarin", "crime", "twitter", "synthetic", "synthetic_50")
SITES, DRAWS, DELTA = 4, 12, 1e-5
# Ratio of the gate up to which designs are looked at.
MOST_NOISE = 3


def rows(vbm: Path | None) -> Iterator[tuple[str, np.ndarray]]:
    """Name and z (D + 1 + sites, N) of each table, of so many people."""
    rng = np.random.default_rng(0)
    for name in TABLES:
        X, y = scaled_table(name, rates.DATA)
        for N in (300, 1000, 4000):
            if X.shape[1] >= N:
                own = rng.permutation(X.shape[1])[:N]
                parts = [
                    regression.stack(X[:, i], y[i], group=k, n_groups=SITES)
                    for k, i in enumerate(np.array_split(own, SITES))
                ]
                yield name, np.hstack(parts)
    if vbm is not None:
        found = []
        for path in sorted(vbm.glob("private/*/vbm/projected.npz")):
            people = files.Features(path)
            found += [people[name] for name in people]
        yield "vbm", np.hstack(found)


def lost(
    Z: np.ndarray, n_draws: int, rng: np.random.Generator
) -> Iterator[tuple[float, float]]:
    """Error x sqrt(D) of a design, and the share that was lost, by epsilon."""
    Z = Z.astype(float) / regression.norm_bound()
    D, N = len(Z) - 1 - SITES, Z.shape[1]
    inside = Z[D + 1 :] > 0
    w = np.minimum(1, regression.CLIP / np.sum(Z**2, axis=0))
    C, sizes = (Z * w) @ Z.T / N, inside.sum(axis=1)
    centered = Z[: D + 1].copy()
    for own in inside:
        centered[:, own] -= centered[:, own].mean(axis=1, keepdims=True)
    X, y = centered[:D], centered[D] / regression.SCALE

    def explained(w: np.ndarray) -> float:
        return max(1 - float(np.sum((y - w @ X) ** 2) / np.sum(y**2)), 0.0)

    best = explained(np.linalg.lstsq(X.T, y, rcond=None)[0])
    for epsilon in 2.0 ** np.arange(7):
        tau = 2**0.5 * regression.CLIP / N / accounting.mu_from_epsilon(epsilon, DELTA)
        about = SITES, N, D, forecast_rows.FILL / D**0.5, regression.CLIP
        said = forecast_rows.predict_regression(lambda *_, t=tau: t, *about)
        if said[forecast_rows.RATIO] > MOST_NOISE:
            continue
        E = [rng.standard_normal(len(C) * (len(C) + 1) // 2) for _ in range(n_draws)]
        released = [Moment(C + tau * linalg.unpack_symmetric(e), tau) for e in E]
        models = [regression.from_moment(r, sizes, n_groups=SITES) for r in released]
        kept = np.mean([explained(m.coefficients) for m in models]) / best
        x = said["standard error by noise"] * D**0.5
        yield x, float(np.clip(1 - kept, 0, 1))


def share(k: float, x: np.ndarray) -> np.ndarray:
    """Share that is lost where errors are k times as large as is said."""
    return (k * x) ** 2 / ((k * x) ** 2 + forecast_rows.EXPLAINED)


def span(known: pd.DataFrame) -> np.ndarray:
    """Find k at the low end, in the middle and at the high end of tables."""
    logs = np.log(known.k).groupby(known.table)
    n, between = logs.ngroups, logs.mean().var()
    deviation = (between * (1 + 1 / n) + logs.var().mean()) ** 0.5
    t = scipy.stats.t.ppf(0.9, n - 1)
    return np.exp(logs.mean().mean() + deviation * np.array([-t, 0, t]))


def main() -> None:
    """Measure, fit, and print what ranges hold."""
    parser = rates.options(__doc__, DRAWS)
    parser.add_argument("--vbm", type=Path, help="folder of the prepared study")
    given, rng = parser.parse_args(), np.random.default_rng(1)
    found = [
        (name, *one) for name, Z in rows(given.vbm) for one in lost(Z, given.draws, rng)
    ]
    table = pd.DataFrame(found, columns=["table", "x", "lost"])
    odds = table.lost / (1 - table.lost)
    table["k"] = (odds * forecast_rows.EXPLAINED) ** 0.5 / table.x
    known, every = table[table.lost.between(0.01, 0.99)], []
    print(known.groupby("table").k.describe()[["count", "min", "50%", "max"]])
    print("k", *(f"{k:.3f}" for k in span(known)))
    for name, own in table.groupby("table"):
        low, _, high = span(known[known.table != name])
        a, b = share(low, own.x), share(high, own.x)
        held = (own.lost >= a - 0.03) & (own.lost <= b + 0.03)
        about = f"held {held.mean():.2f} of {len(own)}, width {np.mean(b - a):.2f}"
        print(f"{name}, left out: {about}")
        every += held.tolist()
    # Designs of one table go together, so tables are the draws.
    rates.say("forecast-regression/tables", np.mean(every), len(TABLES))


if __name__ == "__main__":
    main()
