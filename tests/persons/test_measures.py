"""Numbers of a person from their time courses, against what they are defined as."""

import numpy as np
import pytest
import scipy.signal

from capeneuro.config.errors import ConfigError
from capeneuro.config.rows import Domains, MeasuresOptions
from capeneuro.data import measures
from capeneuro.persons.measures import PersonCourses, measured

ALL = ("connectivity", "amplitude", "spectra", "similarity")
BANDS = ((0.01, 0.05), (0.05, 0.1))


@pytest.fixture
def S(rng):
    """Four courses of unlike scale, two of them alike."""
    S = rng.standard_normal((4, 300)) * np.array([[1.0], [2.0], [3.0], [4.0]])
    S[1] += S[0]
    return S + 5


def test_measures_are_as_defined_and_named_in_order(rng, S):
    options, domains = MeasuresOptions(measures=ALL, bands=BANDS), tuple("abcd")
    A = rng.standard_normal((50, 4))
    maps = A + rng.standard_normal((50, 4))
    values = measured(options, PersonCourses(S, 2.0, (), maps, A), domains)
    names, bounds = measures.named(options, domains)
    found = dict(zip(names, values, strict=True))
    assert len(names) == len(bounds) == 6 + 4 + 8 + 4
    r = np.corrcoef(S)
    assert found["a - b"] == pytest.approx(np.arctanh(r[0, 1]))
    assert found["c - d"] == pytest.approx(np.arctanh(r[2, 3]))
    shares = S.var(axis=1) / S.var(axis=1).sum()
    assert found["amplitude of d"] == pytest.approx(shares[3])
    f, density = scipy.signal.welch(S, 0.5, nperseg=128)
    low = density[2, (f >= 0.01) & (f < 0.05)].sum()
    both = low + density[2, (f >= 0.05) & (f < 0.1)].sum()
    assert found["c at 0.01-0.05 Hz"] == pytest.approx(low / both)
    own = np.corrcoef(maps[:, 1], A[:, 1])[0, 1]
    assert found["similarity of b"] == pytest.approx(np.arctanh(own))


def test_of_networks_measures_are_means_and_amplitudes_are_sums(S):
    options = MeasuresOptions(
        measures=("connectivity", "amplitude", "spectra"), bands=BANDS
    )
    domains = ("x", "x", "", "y")
    names, _ = measures.named(options, domains)
    found = dict(
        zip(names, measured(options, PersonCourses(S, 2.0), domains), strict=True)
    )
    assert names[:4] == ["x", "x - y", "amplitude of x", "amplitude of y"]
    z = np.arctanh(np.corrcoef(S) - 2 * np.eye(4) * (1 - 1e-9))
    assert found["x"] == pytest.approx(z[0, 1])
    assert found["x - y"] == pytest.approx((z[0, 3] + z[1, 3]) / 2)
    variance = S.var(axis=1)
    assert found["amplitude of x"] == pytest.approx(
        variance[:2].sum() / variance[[0, 1, 3]].sum()
    )


@pytest.mark.parametrize(
    "values", [np.zeros((3, 60)), np.full((3, 60), 1e30), np.eye(3, 60) * 1e-30]
)
def test_whatever_a_persons_data_are_measures_keep_their_bounds(values):
    options, domains = MeasuresOptions(measures=ALL, bands=BANDS), tuple("abc")
    found = measured(
        options, PersonCourses(values, 2.0, (), values.T, values.T), domains
    )
    low, high = np.array(measures.named(options, domains)[1]).T
    assert ((low <= found) & (found <= high)).all()


def test_networks_as_a_spreadsheet_numbers_them(tmp_path):
    path = tmp_path / "domains.tsv"
    path.write_text("index\tnetwork\n1.0\tA\n02\tB\n3\tnone\n")
    given = Domains(file=path, without=["none"])
    assert measures.domains(given, [1, 2, 3]) == ("A", "B", "")
    with pytest.raises(ConfigError, match="no network is called 'nine'; it has none"):
        measures.domains(Domains(file=path, without=["nine"]), [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("index\tnetwork\n1\tA\n2\tB\n", "lacks 3"),
        ("index\tnet\n1\tA\n", "lacks the columns network; it has index, net"),
        ("index\tnetwork\n1\tA\n2\tA\n3\tnone\n", "must name two networks or more"),
    ],
)
def test_a_wrong_table_of_networks_is_one_line(tmp_path, text, said):
    path = tmp_path / "domains.tsv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        measures.domains(Domains(file=path, without=["none"]), [1, 2, 3])
