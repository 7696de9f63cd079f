"""A prior is used where it captures more than none at the study's noise."""

import numpy as np
import pytest
from capeneuro.algorithms.prior_fit import PriorFit
from helpers import in_process, make_mechanism, make_sites

from capeneuro import linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms import prior_fit
from capeneuro.report import sentences
from capeneuro.studies.priors import of_maps

D, K = 60, 6
# Noise of the second moment, of the deviation over its clip, and of the share: few
# people, some, and many.
NOISES = ((0.06, 2.0, 0.2), (0.01, 0.3, 0.03), (0.002, 0.06, 0.006))


def population(rng) -> tuple[np.ndarray, np.ndarray]:
    """A second moment of trace 1, its energies as of parcels, and its directions."""
    U, _ = np.linalg.qr(rng.standard_normal((D, D)))
    values = 1 / np.arange(1, D + 1)
    return (U * (values / values.sum())) @ U.T, U


def named(kind: str, C: np.ndarray, U: np.ndarray, rng) -> priors.Prior:
    """Public maps or a public second moment, of these people or of other parcels."""
    order = rng.permutation(D) if "other" in kind else np.arange(D)
    if "maps" in kind:
        mixed = U[:, :8] @ rng.standard_normal((8, 8))
        return of_maps((mixed / np.linalg.norm(mixed, axis=0))[order])
    values, V = linalg.top_eigenpairs(C, D)
    return priors.from_moment(V[order].astype(np.float32), values, 1.0)


@pytest.mark.parametrize("kind", ["moment", "maps", "other moment", "other maps"])
def test_a_prior_is_used_where_it_captures_more_than_none(kind, rng):
    decisions, lost = [], []
    for tau, noise, check in NOISES * 2:
        C, U = population(rng)
        P = named(kind, C, U, rng)
        n = 200
        without = prior_fit.captured_without(P, K, tau, 10.0, "subject")
        about = noise, "subject", n, without, check
        least = prior_fit.least_energy_share(P, K, *about)
        share = np.trace(P.directions[:, :K].T @ C @ P.directions[:, :K])
        fits = [
            PriorFit(x, check, least).passes
            for x in share + check * rng.standard_normal(200)
        ]
        # What a study around the prior captures, and one without.
        W = P.directions.astype(float)
        deviation = W.T @ C @ W - np.diag(P.energies)
        found = prior_fit.simulated_release(P, deviation, noise, "subject", n, rng)
        V = priors.subspace(P, found, K, 1.0, n).eigenvectors
        E = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        _, V0 = linalg.top_eigenpairs(C + tau * E, K)
        around, alone = (np.trace(B.T @ C @ B) for B in (V, V0))
        kept = np.mean(fits)
        decisions.append((around - alone, kept))
        lost.append(max(alone - around, 0) * kept + max(around - alone, 0) * (1 - kept))
    assert np.mean(lost) < 0.02
    assert all(kept > 0.9 for gain, kept in decisions if gain > 0.1)
    assert all(kept < 0.1 for gain, kept in decisions if gain < -0.1)
    # The cases are of both kinds.
    assert any(gain > 0.1 for gain, _ in decisions) == ("other" not in kind)
    assert any(gain < -0.1 for gain, _ in decisions) == ("other" in kind)


def test_the_share_along_a_prior_is_in_its_interval_as_often_as_is_said(rng):
    federation = in_process(make_sites((30, 20), D, 4, rng))
    Q, _ = np.linalg.qr(rng.standard_normal((D, D)))
    P = priors.from_moment(Q, 1 / np.arange(1.0, D + 1))
    exact = make_mechanism("non-private")
    truth = prior_fit.release_fit(federation, exact, P, K, 0.0).energy_share
    held = []
    for i in range(100):  # the same request again would be the same release
        about = {"unit": "subject", "noise_multiplier": 5.0 + 1e-3 * i}
        mechanism = make_mechanism("cape", **about)
        low, high = prior_fit.release_fit(federation, mechanism, P, K, 0.0).interval
        held.append(low <= truth <= high)
    assert 0.88 <= np.mean(held) <= 0.99


def test_what_is_said_of_a_prior_has_its_interval_and_its_reason():
    kept = sentences.prior_fit(PriorFit(0.5, 0.05, -np.inf), K)
    assert "was used" in kept and "50% of people's energy" in kept
    assert "(95% interval for noise 40% to 60%)" in kept
    dropped = sentences.prior_fit(PriorFit(0.3, 0.05, 0.4), K)
    assert "was not used" in dropped and "below 40% the forecast is" in dropped
    assert "for any people" in sentences.prior_fit(PriorFit(0.3, 0.05, 1.0), K)
    assert "no prior would capture less" in sentences.requirement(K, -np.inf, 0.1)
    assert "will be dropped" in sentences.requirement(K, 1.0, 0.9)
    assert "less than 40% is released" in sentences.requirement(K, 0.4, 0.5)
