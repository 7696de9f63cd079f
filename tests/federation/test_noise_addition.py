"""What the grid of a release cannot hold, or would not hide, is refused beforehand."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from capeneuro.federation.noise_addition import NoiseDraw, perturb
from capeneuro.federation.requests import Refused
from capeneuro.privacy import noise, ring

SIZE = 5


def _drawn(*, largest: float = 0.0, clip: float = 1.0, **changes: Any) -> NoiseDraw:
    """Noise of site a, each draw ``largest`` deviations, on the largest statistic."""
    asked = {
        "arm": "cape",
        "noise": "rounded",
        "noise_ratio": 300.0,
        "roster": ["a", "b", "c"],
        "variances": {"a": 1.0, "b": 1.0, "c": 1.0},
        "parameters": {"clip": clip},
        **changes,
    }

    def draw(size: int, variance: float, request: Any, term: str) -> np.ndarray:
        assert request.noise == "rounded", "exact noise has a sampler of its own"
        return np.full(size, largest * math.sqrt(variance))

    return perturb(np.full(SIZE, clip), 1.0, SimpleNamespace(**asked), "a", draw)


def _refused(**changes: Any) -> bool:
    try:
        _drawn(largest=noise.LARGEST, **changes)
    except Refused:
        return True
    return False


@pytest.mark.parametrize("kind", ["rounded", "exact"])
def test_what_does_not_fit_the_ring_is_refused_before_anything_is_drawn(kind):
    """Three sites' largest values are to stay below 2^62 steps of the grid."""
    h = _drawn(noise=kind).h
    most = ring.LARGEST / 3 * h
    for clip in (0.9 * most, 1.1 * most):
        assert _refused(clip=clip, noise=kind) is (clip > most)
    # Of the noise the largest draw counts; all that is left for it is half of it.
    if kind == "exact":
        tight = {"noise": kind, "clip": most / 2}
        for size in (0.45 * most, 0.55 * most):
            ratio = (size / noise.LARGEST) ** 2
            assert _refused(noise_ratio=ratio, **tight) is (size > most / 2)


def test_noise_hardly_finer_than_doubles_is_refused():
    """Own noise to 2^22 grid steps, zero-sum noise to 2^30."""
    # The grid is 2^-14 at the smallest deviation, 1.
    for variance, refused in ((2.0**16, False), (2.0**16 * 1.01, True)):
        variances = {"a": variance, "b": 1.0, "c": 1.0}
        assert _refused(variances=variances, noise_ratio=300.0) is refused
    for ratio, refused in ((2.0**32, False), (2.0**32 * 1.01, True)):
        assert _refused(noise_ratio=ratio) is refused
    # Discrete noise is exact, however coarse.
    assert not _refused(noise="exact", noise_ratio=2.0**32 * 1.01)


def test_exact_noise_is_never_that_of_doubles():
    draw = _drawn(noise="exact", arm="cape")
    assert draw.h <= 2.0**-ring.ROUNDING_BITS / math.sqrt(SIZE)
    assert len(set(draw.f.tolist())) == len(set(draw.e.tolist())) == SIZE


def test_noise_is_added_to_the_statistic_and_to_zero():
    draw = _drawn(largest=2.0, noise_ratio=400.0)
    assert ring.from_ring(draw.f, draw.h) == pytest.approx(3.0, abs=draw.h)
    assert ring.from_ring(draw.e, draw.h) == pytest.approx(40.0, abs=draw.h)
    assert _drawn(arm="secure_sum").e is None
