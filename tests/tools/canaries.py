"""Audits in tests: their level, and a planted bug."""

import numpy as np

from capeneuro.privacy import clipping, contrasts, deviations, gradients, moments

# A false alarm of the bound anywhere in this file has a probability below 1e-3.
ALPHA = 1e-6


def _no_clip(norms: np.ndarray, bound: float) -> np.ndarray:
    return np.ones_like(norms)


def no_clip(monkeypatch):
    for module in (clipping, contrasts, deviations, gradients, moments):
        monkeypatch.setattr(module, "clip_factors", _no_clip)
