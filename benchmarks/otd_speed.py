"""Seconds of capeAGN at the papers' larger size, and of the tensor power method.

Run ``python -m benchmarks.otd_speed`` from the repository, in an environment with
``benchmarks/requirements.txt``; one thread. D = 50, K = 10, 5 sites of 10,000 samples
in one process, epsilon 5, unit sample. tensorly decomposes the same whitened tensor.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorly.decomposition import parafac, symmetric_parafac_power_iteration

from capeneuro import linalg
from capeneuro.algorithms import metrics, tensor_parts, tensors
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting
from sim import mixtures

D, K, S, N = 50, 10, 5, 10_000
BOUND = 2.2
BUDGET = accounting.Budget(5.0, 1e-5, "sample", "replace-one", 1)
CEILING = accounting.Budget(1e8, 1e-5, "sample", "replace-one", 0)  # never met


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one run, and what it gave."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def release(X: np.ndarray, projected: bool) -> tensors.TensorComponents:
    """CapeAGN on samples, shared out over the sites."""
    sites = {}
    for s, x in enumerate(np.split(X, S, axis=1)):
        ledger, limits = Ledger(None, CEILING), Limits("simulated")
        sites[f"s{s}"] = Site(f"s{s}", {"all": x}, {"all": N}, ledger, limits)
    multiplier = np.sqrt(2) / BUDGET.mu
    both = [Mechanism(f"t{i}", "cape", multiplier, BUDGET, 100.0 * S) for i in range(2)]
    federation = InProcess(sites)
    return tensors.mixture_components(federation, both, K, BOUND, projected=projected)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    model = mixtures.draw_mixture(D, K, rng)
    w, A = model
    X = mixtures.gaussian_samples(model, 0.05, S * N, rng)
    for projected in (True, False):
        seconds, found = timed(lambda p=projected: release(X, p))
        error = metrics.component_error(found.components, A)
        where = "of K directions" if projected else "of all features"
        print(f"capeAGN, M3 {where}: {seconds:.2f} s, q_comp {error:.3f}")
    white = tensors.whitening(np.einsum("k,ik,jk->ij", w, A, A), K)
    T = np.einsum("k,ik,jk,lk->ijl", w, *[white.W.T @ A] * 3, optimize=True)
    T += 0.02 * linalg.unpack_symmetric3(
        rng.standard_normal(K * (K + 1) * (K + 2) // 6)
    )
    truth = white.W.T @ A * np.sqrt(w)
    peers = {
        "ours, 50 starts, 50 iterations": lambda: tensor_parts.tensor_power(T, K)[1],
        "tensorly, symmetric power iteration, the same": lambda: (
            symmetric_parafac_power_iteration(T, K, 50, 50)[1]
        ),
        "tensorly, parafac": lambda: parafac(T, K, normalize_factors=True).factors[0],
    }
    for name, run in peers.items():
        seconds, V = timed(run)
        near = np.abs(V.T @ truth).max(axis=0).mean()
        print(f"{name}: {seconds:.3f} s, mean cosine to the truth {near:.5f}")
