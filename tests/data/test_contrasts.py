"""A public table of covariances: whatever people may have, and nothing else."""

import numpy as np
import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.data import contrasts
from capeneuro.data.files import write_table

NAMES = ["a", "b", "c"]


def written(path, S):
    """Write the table of a covariance."""
    rows = [[name, "0.5", *map(str, row)] for name, row in zip(NAMES, S, strict=True)]
    write_table(path, ["feature", "mean", *NAMES], rows)
    return path


def test_outcomes_that_are_one_another_have_a_covariance(tmp_path, rng):
    x = rng.standard_normal((2, 50)) * [[1e-3], [1e3]]
    S = np.cov([*x, x[0]])
    names, mean, found = contrasts.covariance(written(tmp_path / "s.tsv", S))
    assert names == NAMES and mean.tolist() == [0.5] * 3
    np.testing.assert_allclose(found, S, rtol=1e-12)


@pytest.mark.parametrize("off", [1e-6, 0.5])
def test_what_no_people_have_is_refused(tmp_path, off):
    S = np.ones((3, 3))
    S[0, 1] = S[1, 0] = 1 - 2 * off  # an eigenvalue below 0
    with pytest.raises(ConfigError, match="must be a covariance of outcomes"):
        contrasts.covariance(written(tmp_path / "s.tsv", S))
