"""What travels is foretold as releases have it, and refused beyond the limits."""

from types import SimpleNamespace as Of

import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.federation.site import MOST_SITES
from capeneuro.studies import travel
from capeneuro.studies.components import ComponentsKind
from capeneuro.studies.contrast import ContrastKind


@pytest.fixture
def study(monkeypatch):
    """A study of components, or of another kind, that asks its own kind."""
    monkeypatch.setattr(travel.registry, "of", lambda study: study.steps)

    def make(steps: type = ComponentsKind, n_sites: int = 3, **options) -> Of:
        made = Of(study="s", arm="cape", sites=range(n_sites), **options)
        made.n_components, made.n_releases = 20, {"pca": 3}
        made.steps = steps.__new__(steps)
        vars(made.steps)["study"] = made
        return made

    return make


def test_whole_brains_are_measured_in_their_directions(study):
    """60,000 voxels x 40 directions: two arrays of 19.2 MB, as sites send them."""
    power = study(pca=Of(method="power"))
    assert travel.n_bytes(power, 60_000) == 38_400_000
    words = travel.forecast(power, 60_000)
    assert "some 38.4 MB from a site in a release, of up to 3" in words
    assert "(38 s on a line of 1 MB/s)" in words


def test_a_contrast_travels_as_moments_of_its_covariates(study):
    contrast = study(ContrastKind)
    vars(contrast.steps)["design"] = Of(effects=range(5))
    # Of 5 covariates: products with 100 outcomes, these' squares, each other's, bins.
    assert contrast.steps.n_numbers(100) == 2 * 5 * 100 + 15 + 24
    # Of one: in the pilot means of outcomes at three sites, of all, and squares.
    vars(contrast.steps)["design"] = Of(effects=range(1))
    assert contrast.steps.n_numbers(100) == 5 * 100 + 3 + 1 + 24


def test_what_cannot_travel_is_refused_in_one_line(study):
    moment = study(pca=Of(method="moment"))
    travel.check(moment, 5000)
    with pytest.raises(ConfigError, match=r"12000 features: .*would be 1\.15 GB"):
        travel.check(moment, 12_000)
    crowd = study(n_sites=MOST_SITES + 1, pca=Of(method="power"))
    with pytest.raises(ConfigError, match="sites: must be at most 256, got 257"):
        travel.check(crowd, 10)


@pytest.mark.parametrize(
    ("n_releases", "said"),
    [
        (1, "two visits a site"),
        (3, "up to 4 visits a site: its entry, and one for each of 3 releases"),
        (12, "over a network they take seconds each; a prior takes two"),
    ],
)
def test_visits_of_files_are_counted(n_releases, said):
    member = Of(with_fewer_releases="a prior takes two")
    made = Of(n_releases={"pca": n_releases}, members={"": member})
    made.full_study = made
    assert said in travel.visits(made)
