"""Time and error of a regression, beside scikit-learn's and diffprivlib's.

    python -m benchmarks.regression_speed

One fit, everything included: keys, masks and noise of the ``cape`` arm, solving,
intervals. scikit-learn fits all rows without privacy. diffprivlib's LinearRegression is
the functional mechanism with Laplace noise, pure epsilon, pooled: another promise. It
needs an environment of its own, see ``evidence/truth/outside_pca.py``.
"""

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from threadpoolctl import threadpool_limits

from capeneuro import PrivateClassifier, PrivateRegressor
from sim.rows import rows

EPSILON = 1.0


def main() -> None:
    """Print median times, and R^2 or accuracy on rows not seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in (("--features", 101), ("--samples", 1800)):
        parser.add_argument(name, type=int, default=size)
    asked = parser.parse_args()
    D, N, high = asked.features, asked.samples, 1 / np.sqrt(asked.features)
    for task in ("linear", "logistic"):
        X, y, _ = rows(D, 2 * N, np.random.default_rng(0), task)
        site = np.arange(N) * 5 // N
        about: dict[str, Any] = {"bounds": (-high, high), "kind": "simulated"}
        about["accept"] = "time is measured"
        model: Any = PrivateClassifier(EPSILON, **about)
        if task == "linear":
            model = PrivateRegressor(EPSILON, **about, target_bounds=(-1, 1))

        other = LinearRegression() if task == "linear" else LogisticRegression()
        methods = {
            "cape": lambda m=model, X=X, y=y, site=site: m.fit(X.T[:N], y[:N], site),
            "scikit-learn": lambda m=other, X=X, y=y: m.fit(X.T[:N], y[:N]),
        }
        if task == "linear":
            methods |= outside(X.T[:N], y[:N], high)
        for name, fit in methods.items():
            took, scores = [], []
            for _ in range(7):
                start = time.perf_counter()
                model = fit()
                took.append(time.perf_counter() - start)
                found, new = model.predict(X.T[N:]), y[N:]
                error = np.mean((found - new) ** 2) / new.var()
                scores.append(1 - error if task == "linear" else np.mean(found == new))
            score = "R2" if task == "linear" else "accuracy"
            took, score = 1e3 * np.median(took), f"{score} {np.median(scores):.3f}"
            print(f"{task}, {name}: {took:.1f} ms, {score}")


def outside(X: np.ndarray, y: np.ndarray, high: float) -> dict[str, Callable[[], Any]]:
    """Linear regression of diffprivlib, where that is installed."""
    if importlib.util.find_spec("diffprivlib") is None:
        return {}
    from diffprivlib.models import LinearRegression as Theirs

    warnings.filterwarnings("ignore", module="diffprivlib")
    about = {"bounds_X": (-high, high), "bounds_y": (-1, 1)}
    return {"diffprivlib": lambda: Theirs(epsilon=EPSILON, **about).fit(X, y)}


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
