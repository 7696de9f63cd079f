"""The papers' tensor experiments: data, methods, what each is charged, and scores."""

import math

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import metrics, tensor_parts, tensors
from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.moments import largest_third
from papers import in_memory
from papers.cells import tensors as otd_cells
from papers.commands import EXPERIMENTS

KINDS = ("mixture", "topics")


@pytest.fixture(scope="module")
def drawn() -> dict[str, otd_cells.Data]:
    bounds = {"mixture": 1.6, "topics": 1.0}
    return {
        kind: otd_cells.draw(kind, 10, 3, 5, 4000, 0, bounds[kind]) for kind in KINDS
    }


def promise(epsilon: float = 1.0) -> accounting.Budget:
    return accounting.Budget(epsilon, 1e-2, "sample", "replace-one", 1)


def error(data, arm, epsilon=1.0, **options):
    found = otd_cells.find_components(data, promise(epsilon), arm, **options)
    return metrics.component_error(found[0], data.truth.components)


@pytest.mark.parametrize("kind", KINDS)
def test_methods_stand_between_exact_and_random(drawn, kind):
    data = drawn[kind]
    exact, chance = error(data, "non-private"), error(data, "random")
    assert exact < 0.1 * chance
    for arm in ("cape", "conventional", *otd_cells.CURATORS):
        assert error(data, arm, 1000.0) < 0.2 * chance, arm
        assert error(data, arm, 0.01) > 3 * exact, arm


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arm", ["cape", "conventional", "local"])
def test_each_method_spends_the_promise_and_no_more(drawn, kind, arm, monkeypatch):
    otd_cells.find_components(drawn[kind], promise(), arm)
    whole = in_memory.mechanism
    monkeypatch.setattr(in_memory, "mechanism", lambda mu, *a: whole(1.001 * mu, *a))
    with pytest.raises(RoundFailed, match=r"noise multiplier below|ceiling"):
        otd_cells.find_components(drawn[kind], promise(), arm)


def test_fewer_starts_find_the_same_as_the_default(rng):
    Q = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    T = np.einsum("r,ir,jr,kr->ijk", np.linspace(2, 4, 10), Q, Q, Q)
    T += 0.1 * linalg.unpack_symmetric3(rng.standard_normal(220))
    few = tensor_parts.tensor_power(T, 10, **otd_cells.POWER)
    many = tensor_parts.tensor_power(T, 10)
    np.testing.assert_allclose(np.sort(few[0]), np.sort(many[0]), rtol=1e-4)
    assert np.abs(few[1].T @ many[1]).max(axis=0).min() > 0.999


def test_neighbors_attain_the_real_sensitivities(drawn):
    """In unique entries; no other pair is found that moves them more."""
    data = drawn["mixture"]
    s, rng = data.variance, np.random.default_rng(0)
    i, j, k, _ = linalg.triples(10)

    def third(x):
        return x[i] * x[j] * x[k] - s * (
            x[i] * (j == k) + x[j] * (i == k) + x[k] * (i == j)
        )

    e = np.eye(10)
    _, claimed = otd_cells.real_sensitivities(data)
    assert np.linalg.norm(third(e[0]) - third(-e[0])) == pytest.approx(claimed)
    assert claimed <= 2 * largest_third(10, s) < claimed * 1.01
    X = rng.standard_normal((500, 10)) * (rng.random((500, 10)) < rng.random((500, 1)))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    norms = [np.linalg.norm(third(x)) for x in X]
    assert 0.9 * claimed < 2 * max(norms) < 1.001 * claimed
    # The paper has more for M3 and less for M2.
    assert otd_cells.printed_sensitivities(data)[1] > 1.5 * claimed


@pytest.mark.parametrize(
    ("method", "scale"),
    [("printed", 1), ("printed_conventional", math.sqrt(5)), ("printed_local", 5)],
)
def test_printed_noise_is_that_of_the_paper(drawn, method, scale):
    data = drawn["mixture"]
    noise, _ = otd_cells.printed(data, method, promise(), 5)
    root = math.sqrt(2 * math.log(1.25 / 0.005)) / 0.5
    for name, size, claimed, unpack in (
        ("second_moment", 55, 1.0, linalg.unpack_symmetric),
        ("third_moment", 220, 2 + 60 * data.variance, linalg.unpack_symmetric3),
    ):
        draws = [unpack(noise(name, {}, np.zeros(size))[0]) for _ in range(300)]
        tau = scale * claimed * root / 20_000
        # Entries on and off the diagonal have the same deviation, as printed.
        assert np.std([E.flat[0] for E in draws]) == pytest.approx(tau, rel=0.2)
        assert np.std([E.flat[1] for E in draws]) == pytest.approx(tau, rel=0.2)


def test_the_epsilon_of_printed_noise(drawn):
    """Topics: two Gaussians at half the promise, times what CAPE shows."""
    eta = 0.5 / math.sqrt(2 * math.log(1.25 / 0.005))
    loss = math.sqrt(2) * eta
    ratio = cape.losses(1.0, np.ones(5), np.ones(5) / 5, 1).max() ** 2
    assert ratio == pytest.approx(1.875)
    for method, mu in (
        ("printed", loss * math.sqrt(1.875)),
        ("printed_conventional", loss),
    ):
        _, epsilon = otd_cells.printed(drawn["topics"], method, promise(), 5)
        assert epsilon == pytest.approx(accounting.epsilon_from_mu(mu, 0.01))
    # The classic mechanism is too small where epsilon is large.
    assert otd_cells.printed(drawn["topics"], "printed", promise(10.0), 5)[1] > 10
    assert otd_cells.printed(drawn["topics"], "printed", promise(1.0), 5)[1] < 1


def test_printed_whitening_takes_singular_values():
    C = np.diag([3.0, 1.0, 0.1, -2.0]) + 0.05 * np.eye(4)
    white = otd_cells.singular_whitening(C, 2, 0.0, 0.05)
    np.testing.assert_allclose(white.values, [3, 2])
    assert tensors.whitening(C, 2, 0.0, 0.05).values[1] == pytest.approx(1)


def test_rows_tell_who_is_behind_and_how_the_error_falls():
    methods = {
        "cape": {"arm": "cape"},
        "local": {"arm": "local", "after": "cape"},
        "random": {"arm": "random"},
        "exact": {"arm": "non-private"},
    }
    rows = otd_cells.otd_scores(
        data="m",
        seed=0,
        model="mixture",
        n_features=10,
        n_components=3,
        methods=methods,
        epsilons=[0.3, 30],
        n_samples=[2000],
        deltas=[1e-5],
        norm_bound=1.6,
    )
    assert [row["method"] for row in rows] == 2 * [*methods]
    low, high = ({r["method"]: r for r in half} for half in (rows[:4], rows[4:]))
    cape_error = low["cape"]["error"]
    assert low["local"]["behind"] == 1 - cape_error / low["local"]["error"] > 0.3
    assert low["cape"]["rise"] is None
    assert high["cape"]["rise"] == 1 - high["cape"]["error"] / cape_error > 0.3
    assert high["cape"]["to_random"] < 0.1
    assert high["cape"]["to_exact"] < 3 < low["cape"]["to_exact"]
    assert low["exact"]["error"] == high["exact"]["error"]
    assert low["cape"]["real_epsilon"] == 0.3
    assert low["exact"]["real_epsilon"] is None
    # Both are the same sum in another order where components match.
    assert all(row["matched"] >= row["error"] * (1 - 1e-12) for row in rows)


def test_an_unknown_model_is_one_line():
    with pytest.raises(ConfigError, match="model: must be mixture or topics"):
        otd_cells.draw("hmm", 10, 3, 5, 10, 0)


def test_the_experiment_is_known():
    assert EXPERIMENTS["otd"] == "papers.cells.tensors:otd_scores"
