"""What one sample adds to releases of contrasts, by the formulas of their docs."""

from typing import Any

import numpy as np

from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.contrasts import EDGES


def clipped(x: np.ndarray, bound: float) -> np.ndarray:
    return x * min(1.0, CLIP_SAFETY * bound / max(np.linalg.norm(x), 1e-300))


def square(x: np.ndarray) -> np.ndarray:
    """Products of pairs, each once, of the norm of the matrix."""
    M = np.outer(x, x) * np.where(np.eye(len(x)), 1.0, 2**0.5)
    return M[np.triu_indices(len(x))]


def bins(distance: float, unit: float) -> np.ndarray:
    return np.histogram([distance / unit], EDGES)[0].astype(float)


def one_pilot(X: np.ndarray, about: dict[str, Any], is_exact: bool) -> np.ndarray:
    """Contribution of one sample, part by part, over the clip."""
    q, S = len(about["weights"]), about["n_sites"]
    x, e = X[:q] * about["weights"], X[q : q + S]
    y = X[q + S :] - about["center"][q + S :]
    distance, r = np.linalg.norm(y), about["radius"]
    if not is_exact:
        x, e, y = clipped(x, 1.0), clipped(e, 1.0), clipped(y, r)
    parts = np.outer(e, x), y / r, np.outer(e, y) / r, (y / r) ** 2, square(x)
    a = about["parts"] / np.linalg.norm(about["parts"])
    parts = (*parts, bins(distance, about["unit"]))
    return np.concatenate([w * p.ravel() for w, p in zip(a, parts, strict=True) if w])


def one_linear(X: np.ndarray, about: dict[str, Any], clip: float) -> np.ndarray:
    """The same of moments."""
    q, S = about["centers"].shape
    e = X[q : q + S]
    z = X[:q] - about["centers"] @ e
    y = X[q + S :] - about["means"] @ e - about["slopes"].T @ z
    u, n, unit = about["weights"] * z, about["norms_of"] * z, about.get("unit")
    size, w, K = np.linalg.norm(u) * np.linalg.norm(y), 1.0, 1.0
    if np.isfinite(clip):
        K = clip / (1.85 if unit is None else 2.21) ** 0.5
        longest = CLIP_SAFETY * about["longest"]
        w = min(1.0, CLIP_SAFETY * K / size, longest / (n @ n))
    product = w * np.outer(u, y).ravel()
    parts = [product, 0.6 * K / about["longest"] * w * square(n), 0.7 / K * product**2]
    return np.concatenate(
        [*parts, *([] if unit is None else [0.6 * K * bins(size, unit)])]
    )
