"""Cost of a million normals against NumPy's, best of five, and of exact noise.

Run ``python benchmarks/noise_cost.py`` from the repository.
"""

import time
from collections.abc import Callable

import numpy as np

from capeneuro.privacy import noise

SIZE = 1_000_000
EXACT = 20_000


def best(draw: Callable[[], object]) -> float:
    """Shortest of five times, seconds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    rng = np.random.default_rng()
    theirs = best(lambda: rng.standard_normal(SIZE))
    ours = best(lambda: noise.standard_normal(SIZE))
    print(f"a million normals: {ours * 1e3:.0f} ms, {ours / theirs:.1f} times NumPy's")
    exact = best(lambda: noise.discrete_normal(EXACT, 2.0**20)) / EXACT
    print(f"exact: {exact * 1e6:.0f} us a value, {exact * SIZE / ours:.0f} times ours")
