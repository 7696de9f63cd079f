"""What travels is foretold as releases have it, and refused beyond the limits."""

from types import SimpleNamespace as Of

import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.federation.site import MOST_SITES
from capeneuro.studies import travel


def study(kind: str, n_sites: int = 3, **options) -> Of:
    return Of(
        study="s",
        kind=kind,
        arm="cape",
        sites=range(n_sites),
        n_components=20,
        n_releases={"pca": 3},
        **options,
    )


def test_whole_brains_are_measured_in_their_directions():
    """60,000 voxels x 40 directions: two arrays of 19.2 MB, as sites send them."""
    power = study("components", pca=Of(method="power"))
    assert travel.n_bytes(power, 60_000) == 38_400_000
    words = travel.forecast(power, 60_000)
    assert "at most 38.4 MB from a site in a release, of up to 3" in words
    assert "(38 s on a line of 1 MB/s)" in words


def test_a_contrast_travels_as_moments_of_its_covariates():
    covariates = {"group": Of(groups=(0, 1)), "age": Of(groups=None)}
    contrast = study("contrast", contrast=Of(covariates=covariates))
    # p (p + d) products of p = 2 + 3 columns, d squares, and two sums.
    assert travel.n_numbers(contrast, 100) == 5 * 105 + 102


def test_what_cannot_travel_is_refused_in_one_line():
    moment = study("components", pca=Of(method="moment"))
    travel.check(moment, 5000)
    with pytest.raises(ConfigError, match=r"12000 features: .*would be 1\.15 GB"):
        travel.check(moment, 12_000)
    crowd = study("contrast", MOST_SITES + 1, contrast=Of(covariates={}))
    with pytest.raises(ConfigError, match="sites: must be at most 256, got 257"):
        travel.check(crowd, 10)
