"""What private data add to public people: the release, the posterior, the maps."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from helpers import in_process, make_mechanism, make_site, make_sites

from capeneuro import linalg
from capeneuro.algorithms import prior, prior_maps, verdict, verdicts
from capeneuro.algorithms.prior import Posterior
from capeneuro.privacy import deviations
from capeneuro.privacy.blocks import Block

D, K = 60, 3
# Heavy-tailed over features, as maps of networks are.
MAPS = np.random.default_rng(5).standard_normal((D, K)) ** 3 / 3


def people(rng, n: int, n_volumes: int, turn: np.ndarray, spread: float = 0.1):
    """Volumes of people who share three maps, each with their own variant."""
    found = []
    for _ in range(n):
        own = MAPS * (1 + spread * rng.standard_normal((1, K)))
        own = own + 0.3 * spread * rng.standard_normal((D, K))
        S = rng.standard_normal((K, n_volumes)) * [[1.5], [1.2], [1.0]]
        found.append(turn @ own @ S + 0.3 * rng.standard_normal((D, n_volumes)))
    return found


def made(rng, turn: np.ndarray | None = None, n: int = 12, sites: int = 3):
    turn = np.eye(D) if turn is None else turn
    X = {f"s{k}": people(rng, n, 60, turn) for k in range(sites)}
    C = {k: np.stack([x @ x.T / x.shape[1] for x in own]) for k, own in X.items()}
    _, U = linalg.top_eigenpairs(np.concatenate([*C.values()]).mean(axis=0), D)
    y = [U.T @ x for own in X.values() for x in own]
    norms = [np.trace(M) for own in C.values() for M in own]
    C = {k: U.T @ M @ U for k, M in C.items()}
    return prior.from_people(U, C, y, norms), X


@pytest.fixture(scope="module")
def public():
    return made(np.random.default_rng(0))[0]


def test_a_prior_says_what_public_people_differ_by(public):
    assert public.n_people == 36 and public.n_sites == 3
    U, n = public.directions, D * (D + 1) // 2
    np.testing.assert_allclose(U.T @ U, np.eye(D), atol=1e-5)
    assert (np.diff(public.energies) <= 1e-9).all() and (public.energies > 0).all()
    for own in (public.person_variance, public.site_variance, public.clipped_moment):
        assert own.shape == (n,)
    assert (public.site_variance >= 0.02 * public.person_variance - 1e-12).all()
    assert public.replicates.shape == (prior.DRAWS, n)
    assert (
        public.energy_shares[-1] == pytest.approx(1)
        and (np.diff(public.energy_shares) > 0).all()
    )
    # People of one site only are no sites that differ.
    alone = made(np.random.default_rng(1), sites=1)[0]
    np.testing.assert_allclose(alone.site_variance, 0.12 * alone.person_variance)
    with pytest.raises(ValueError, match="two people or more, got 1"):
        made(np.random.default_rng(1), n=1, sites=1)


def test_a_prior_over_a_norm_bound_is_that_of_scaled_volumes():
    rng = np.random.default_rng(0)
    whole, _ = made(rng)
    X = {f"s{k}": people(np.random.default_rng(k), 4, 30, np.eye(D)) for k in range(2)}
    found = []
    for b in (1.0, 5.0):
        y = {k: [whole.directions.T @ x / b for x in own] for k, own in X.items()}
        C = {k: np.stack([z @ z.T / z.shape[1] for z in own]) for k, own in y.items()}
        every = [z for own in y.values() for z in own]
        norms = [np.mean(np.sum(z**2, axis=0)) for z in every]
        found.append(prior.from_people(whole.directions, C, every, norms))
    scaled = found[0].divided_by(5.0)
    fields = "energies", "person_variance", "site_variance", "radius", "clipped_moment"
    for name in fields:
        own, expected = (getattr(p, name) for p in (scaled, found[1]))
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.5])
def test_noise_is_spread_where_the_error_is_least(public, noise, rng):
    s = prior.spread(public, noise)
    kept, v, t = np.isfinite(s), public.person_variance, public.site_variance
    assert noise**2 * np.sum(v[kept] / s[kept] ** 2) == pytest.approx(1, rel=1e-6)

    def error(inverse: np.ndarray) -> float:
        return float(np.sum(t / (1 + t * inverse)))

    best = np.where(kept, 1 / np.where(kept, s, 1) ** 2, 0.0)
    for _ in range(50):
        other = best * rng.uniform(0.5, 2, best.shape) + 1e-3 * rng.random(best.shape)
        other /= noise**2 * np.sum(v * other)
        assert error(best) <= error(other) * (1 + 1e-9)


def test_where_nothing_is_told_the_prior_stays(public, rng):
    n = len(public.person_variance)
    loud = np.full(n, 1e3)
    found = prior.posterior(public, loud * rng.standard_normal(n), loud)
    assert np.sum(found.data_weight * public.site_variance) < 1e-3 * np.sum(
        public.site_variance
    )
    assert np.linalg.norm(found.mean) < 0.05 * np.linalg.norm(public.energies)
    nothing = prior.posterior(public, np.zeros(n), np.zeros(n))
    assert not nothing.mean.any() and not nothing.variance.any()


def test_the_posterior_is_where_it_says_it_is(public, rng):
    t = public.site_variance
    tau = np.sqrt(t) * rng.uniform(0.3, 3, t.shape)
    z = []
    for _ in range(200):
        d = np.sqrt(0.5 * t) * rng.standard_normal(t.shape)
        found = prior.posterior(
            public, 0.6 * d + tau * rng.standard_normal(t.shape), tau, 0.6
        )
        z.append((d - found.mean) / np.sqrt(found.variance))
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.05)
    # A factor that is wrong shows.
    wrong = prior.posterior(public, 0.6 * d, tau / 100, 1.0)
    assert np.linalg.norm(wrong.mean - d) > 0.3 * np.linalg.norm(d)


def private(rng, turn: np.ndarray, unit: str):
    """Three sites with forty people each, and their second moment."""
    X = {f"site{k}": people(rng, 40, 60, turn) for k in range(3)}
    sites = make_sites((40, 40, 40), D, 60, rng)
    named = {
        name: {f"p{i}": x.astype("f4") for i, x in enumerate(own)}
        for name, own in X.items()
    }
    sites = {name: make_site(name, own) for name, own in named.items()}
    everybody = [x for own in X.values() for x in own]
    return in_process(sites), np.mean([x @ x.T / 60 for x in everybody], axis=0)


@pytest.mark.parametrize("unit", ["subject", "sample"])
def test_private_data_add_what_the_prior_lacks(public, unit, rng):
    """A population whose maps are turned; with less noise more of it is told."""
    K_ = rng.standard_normal((D, D))
    turn = scipy.linalg.expm(0.01 * (K_ - K_.T))
    federation, C = private(rng, turn, unit)
    P = public.divided_by(4.0)
    errors = []
    for multiplier in (0.02, 30.0 if unit == "subject" else 3000.0):
        mechanism = make_mechanism("cape", unit=unit, noise_multiplier=multiplier)
        if unit == "subject":
            noise = multiplier * 2 / 120
            found = prior.deviation_of_people(federation, mechanism, P, noise, 4.0)
        else:
            found = prior.deviation_of_volumes(federation, mechanism, P, 4.0)
        L = np.diag(P.energies)
        U = P.directions.astype(float)
        exact = U.T @ C @ U / 16 - L
        own = linalg.unpack_symmetric(found.mean)
        errors.append(np.linalg.norm(own - exact) / np.linalg.norm(exact))
        S = prior.subspace(P, found, K, 4.0, 120)
        assert S.posterior.shape == (5, D * (D + 1) // 2)
        V = S.eigenvectors
        np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-5)
    assert errors[0] < 0.45 < 0.9 < errors[1] < 1.1


def test_maps_are_the_priors_own_until_something_is_told(public, rng):
    alone = prior_maps.components(public, None, K)
    n = len(public.person_variance)
    nothing = Posterior(*np.zeros((5, n)))
    same = prior_maps.components(public, nothing, K, alone)
    np.testing.assert_allclose(same.mixing, alone.mixing, rtol=1e-6, atol=1e-9)
    # Sources have unit variance in public people, and courses are as maps assume.
    U, L = public.directions.astype(float), np.diag(public.energies)
    C = U @ L @ U.T
    variance = np.einsum("rd,de,re->r", alone.unmixing, C, alone.unmixing)
    np.testing.assert_allclose(variance, 1, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(alone.W, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(alone.unmixing @ alone.mixing, np.eye(K), atol=1e-5)
    assert ((alone.stability > 0.5) & (alone.stability <= 1 + 1e-9)).all()
    # Named maps give the order and the signs.
    named = replace(public, maps=-alone.mixing[:, ::-1])
    found = prior_maps.components(named, None, K).mixing
    r = [np.corrcoef(a, b)[0, 1] for a, b in zip(found.T, named.maps.T, strict=True)]
    assert min(r) > 0.99
    with pytest.raises(ValueError, match="no 61 components"):
        prior.subspace(public, nothing, D + 1, 1.0, 1)


def test_a_public_moment_or_maps_alone_are_a_prior(rng):
    values = np.array([4.0, 2.0, 1.0, 0.0])
    found = prior.from_moment(np.eye(6, 4), values)
    assert found.energies.min() > 0 and not len(found.replicates)
    assert (found.site_variance < found.person_variance).all()
    alone = prior_maps.components(found, None, 2)
    assert alone.mixing.shape == (6, 2)


@pytest.mark.parametrize(
    ("moved", "n_people", "draws"), [(False, 0, 40), (False, 40, 40), (True, 40, 5)]
)
def test_a_verdict_says_whether_private_data_change_a_map(
    public, moved, n_people, draws, rng, monkeypatch
):
    monkeypatch.setattr(verdicts, "N_NOISE", 300)
    n, t = len(public.person_variance), public.site_variance
    tau = np.full(n, 0.3 * np.sqrt(t.max()))
    alone = prior_maps.components(public, None, K)
    P = alone.unmixing @ public.directions
    alarms = 0
    for _ in range(draws):
        released = tau * rng.standard_normal(n)
        if n_people:  # few people are a sample of such as the public ones
            released += np.sqrt(
                public.person_variance / n_people
            ) * rng.standard_normal(n)
        if moved:
            d = np.zeros((D, D))
            d[0, 1] = d[1, 0] = 20 * tau[0]
            released = released + linalg.pack_symmetric(d)
        found = Posterior(*np.zeros((3, n)), released, tau)
        told = verdicts.of_changes(public, found, P, n_people)
        alarms += told.exceeds_noise.any()
    assert set(told.labels) <= {verdict.ABOVE, verdict.AS_PRIOR}
    assert alarms == draws if moved else alarms <= 6
    assert "public maps by more than privacy noise would" in told.sentence


def test_a_persons_clip_factor_is_released_with_their_deviation(public, rng):
    """Without it, maps of people unlike the public ones would be short or long."""
    P = public.divided_by(4.0)
    asked = prior.request(P, prior.spread(P, 0.01))
    x = (people(rng, 1, 60, np.eye(D), 0.5)[0] / 4).astype("f4")
    y = (P.directions.T @ x).astype("f4")
    found = deviations.deviation(Block(y, np.zeros(1, int), "subject"), **asked)
    c = asked["clip"] / np.sqrt(1 + 1 / 16)
    f = found[-1] / (c / 2) + 0.5
    z = linalg.pack_symmetric(
        (y.astype(float) @ y.T / 60 - np.diag(P.energies)) * asked["weights"]
    )
    assert f == pytest.approx(min(1, c / np.linalg.norm(z)), rel=2e-3)
