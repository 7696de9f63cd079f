"""What a site sees of its people's images."""

import numpy as np

from capeneuro.persons import quality


def test_a_run_is_told_by_its_signal_its_reach_and_its_motion(rng):
    """More voxels than are looked at together, some outside, some without change."""
    n = quality.CHUNK + 100
    covered = np.arange(n + 50) < n
    V = (1000 + 10 * rng.standard_normal((200, n))).astype(np.float32)
    V[:, :30] = 7.0
    motion = np.array([np.nan, *np.full(150, 0.1), *np.full(49, 0.9)])
    one = quality.run_quality(V, covered, motion)
    assert 95 < one.tsnr < 105
    assert one.coverage == (n - 30) / (n + 50)
    np.testing.assert_allclose(one.image[:n], V.mean(axis=0), rtol=1e-6)
    assert (one.image[n:] == 0).all()
    other = quality.run_quality(V - V.mean(axis=0), covered, np.empty(0))
    assert np.isnan(other.tsnr) and 9 < np.median(other.image[30:n]) < 11
    person = quality.person_quality([one, other])
    assert person["coverage"] == min(one.coverage, other.coverage)
    assert np.isnan(person["tsnr"])
    assert abs(person["motion"] - (150 * 0.1 + 49 * 0.9) / 199) < 1e-12
    assert person["moved"] == 49 / 199
