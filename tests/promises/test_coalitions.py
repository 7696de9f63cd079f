"""What the aggregator and colluding sites learn from a secure sum: one number each.

The masks are ideal here: independent uniform elements of a small prime field, which is
also the ring of the sum; a site's pair key is the list of its pair masks. Polynomials
are split by the real code, and who gives which share is the protocol's rule; a test
ties both to the real messages. What stays assumed is that the real masks are as good as
uniform ones, which is X25519, HKDF and AES.
"""

from collections.abc import Collection, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from sums import SIZE, Sum

from capeneuro.federation.secagg import masking, shamir, unmasking
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.privacy import parties
from capeneuro.privacy.accounting import Coalition, threshold_holds

LEAKS = (
    "both shares of lost sites",
    "no self-masks",
    "two sets of survivors",
    "all shares on lines",
)


class Ideal:
    """Messages of a secure sum with ideal masks, as seen by sites who collude.

    Parameters
    ----------
    S, t
        Sites and threshold.
    honest
        Sites that do not collude.
    survivors
        Whose vectors are in the sum; those of others arrive late.
    leak
        What is wrong with the protocol, one of ``LEAKS``.
    """

    def __init__(
        self,
        S: int,
        t: int,
        honest: Collection[int],
        survivors: Collection[int],
        leak: str = "",
    ) -> None:
        self.S, self.t, self.leak = S, t, leak
        self.honest, self.survivors = sorted(honest), set(survivors)
        pairs = list(combinations(self.honest, 2))
        self.secrets = [("self", v) for v in self.honest] + pairs
        # Two sites share each pair mask, each with a polynomial of its own.
        self.polynomials = [(("self", v), v) for v in self.honest]
        self.polynomials += [(pair, v) for pair in pairs for v in pair]
        self.n_random = len(self.secrets) + (t - 1) * len(self.polynomials)

    def view(self, x: list[Any], random: list[Any], prime: int) -> list[Any]:
        """All that the aggregator and its colluders see; linear in ``x, random``."""
        values = dict(zip(self.secrets, random, strict=False))
        if self.leak == "no self-masks":
            values |= {("self", v): 0 * random[0] for v in self.honest}
        rest = iter(random[len(self.secrets) :])
        seen = []
        for v, own in zip(self.honest, x, strict=True):
            y = own + values["self", v]
            for pair in combinations(self.honest, 2):
                if v in pair:
                    y = y + (values[pair] if v == pair[0] else -values[pair])
            seen.append(y % prime)
        sets = [self.survivors]
        if self.leak == "two sets of survivors":
            sets.append(set(range(self.S)))
        for secret, v in self.polynomials:
            a = [next(rest) for _ in range(self.t - 1)]
            if self.leak == "all shares on lines":
                a = a[:1] + [0 * one for one in a[1:]]
            shares = shamir.split(values[secret], a, range(1, self.S + 1), prime)
            seen += [shares[c] for c in range(self.S) if c not in self.honest]
            for survivors in sets:
                kind = (secret[0] == "self") == (v in survivors)
                both = self.leak == "both shares of lost sites" and v not in survivors
                if kind or both:
                    seen += [shares[h] for h in self.honest if h in survivors]
        return seen

    def learned(self, prime: int = 101) -> list[tuple[int, ...]]:
        """Combinations of the honest inputs that the view gives away, reduced."""
        H, n = len(self.honest), self.n_random
        unit = np.eye(H + n, dtype=np.int64)
        rows = self.view(list(unit[:H]), list(unit[H:]), prime)
        # Randomness first: what is left of a row without any is about the inputs.
        matrix = _reduced(np.roll(np.array(rows), n, axis=1), prime)
        known = matrix[(matrix[:, :n] == 0).all(axis=1)][:, n:]
        return [tuple(row) for row in known.tolist() if any(row)]


def _reduced(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Reduced row echelon form over the field."""
    matrix, row = matrix % prime, 0
    for column in range(matrix.shape[1]):
        pivots = np.flatnonzero(matrix[row:, column])
        if not pivots.size:
            continue
        matrix[[row, row + pivots[0]]] = matrix[[row + pivots[0], row]]
        matrix[row] = matrix[row] * pow(int(matrix[row, column]), -1, prime) % prime
        others = np.arange(len(matrix)) != row
        matrix[others] -= np.outer(matrix[others, column], matrix[row])
        matrix %= prime
        row += 1
        if row == len(matrix):
            break
    return matrix


def _distribution(ideal: Ideal, x: tuple[int, ...], prime: int) -> tuple[bytes, bytes]:
    """Every view and how often it occurs, over all randomness."""
    grids = np.indices((prime,) * ideal.n_random).reshape(ideal.n_random, -1)
    inputs = [np.full(grids.shape[1], value) for value in x]
    code = np.zeros(grids.shape[1], dtype=np.int64)
    for part in ideal.view(inputs, list(grids), prime):
        code = code * prime + part
    views, counts = np.unique(code, return_counts=True)
    return views.tobytes(), counts.tobytes()


TINY = {"S": 3, "t": 2, "honest": (0, 1)}
SETS = [(0, 1, 2), (0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("survivors", SETS, ids=str)
def test_all_inputs_of_one_honest_sum_give_the_same_views(survivors):
    """All 5^7 random choices and all inputs of two honest sites and a colluder."""
    ideal, prime = Ideal(**TINY, survivors=survivors), 5
    views: dict[int, set] = {}
    for x in product(range(prime), repeat=2):
        total = sum(x[v] for v in (0, 1) if v in survivors) % prime
        views.setdefault(total, set()).add(_distribution(ideal, x, prime))
    assert len(views) == prime
    assert all(len(alike) == 1 for alike in views.values())
    assert len(set.union(*views.values())) == prime, "the sum itself is not learned"


@pytest.mark.parametrize("leak", LEAKS[:3])
def test_the_exhaustive_views_notice_a_leak(leak):
    ideal = Ideal(**TINY, survivors=(0, 2), leak=leak)
    # Site 1 is lost, and its vector comes late: nothing of it may be seen.
    seen = {_distribution(ideal, (1, other), 5) for other in range(5)}
    assert len(seen) > 1


def _cases() -> Iterator[tuple[int, int, int]]:
    for S in range(1, 6):
        for S_C, t in product(range(S), range(1, S + 1)):
            if threshold_holds(S, S_C, t):
                yield S, S_C, t


@pytest.mark.parametrize(("S", "S_C", "t"), list(_cases()))
def test_nothing_but_the_honest_sum_is_learned(S, S_C, t):
    """By linear algebra over the field, for every set of survivors and of colluders."""
    for colluding in combinations(range(S), S_C):
        honest = sorted(set(range(S)) - set(colluding))
        for n in range(t, S + 1):
            for survivors in combinations(range(S), n):
                total = tuple(int(v in survivors) for v in honest)
                assert Ideal(S, t, honest, survivors).learned() == [total]


@pytest.mark.parametrize("leak", LEAKS)
def test_the_linear_algebra_notices_a_leak(leak):
    # Site 2 is lost; against shares on lines, two colluders know them anyway.
    S, honest, survivors = 5, (0, 1, 2), (0, 1, 3, 4)
    total = (1, 1, 0)
    assert Ideal(S, 4, honest, survivors).learned() == [total]
    assert len(Ideal(S, 4, honest, survivors, leak).learned()) > 1


def test_real_masks_and_shares_follow_the_ideal_rules():
    run = Sum(4, 3)
    keys = {n: secagg.Keys.read(k).pair for n, k in run.advertised.items()}
    signs = {}
    for name, party in run.parties.items():
        total = masking.self_mask(party.secret("self"), run.context, SIZE)
        for other in run.parties:
            pair = {other: keys[other]}
            mask = masking.pairwise_masks(party.pair, name, pair, run.context, SIZE)
            signs[name, other] = mask
            total = total + mask
        np.testing.assert_array_equal(run.masks[name], total)
    for a, b in combinations(run.parties, 2):
        assert not (signs[a, b] + signs[b, a]).any()
        assert signs[a, b].all()
    told = secagg._digest_of_keys(run.advertised)
    for name, party in run.parties.items():
        rows = secagg._split(party, told, run.parties)
        for use, at in (("self", 0), ("pair", 33)):
            y = [int.from_bytes(rows[n][at : at + 33]) for n in sorted(rows)]
            for chosen in combinations(range(4), 3):
                w = unmasking.weights([i + 1 for i in chosen])
                secret = unmasking.combine([y[i] for i in chosen], w)
                assert secret.to_bytes(32) == party.secret(use), name


# --- one exchange: every site must answer --------------------------------------------


def learned_in_one(honest: Collection[int], n_sites: int, missing=()) -> np.ndarray:
    """Combinations of honest vectors that their masked ones give away, as rows.

    Masks that a colluder has in common with them are taken off; ``missing`` are pairs
    without a mask.
    """
    pairs = [p for p in combinations(range(n_sites), 2) if set(p) <= set(honest)]
    pairs = [pair for pair in pairs if pair not in missing]
    signs = np.zeros((len(honest), len(pairs)), int)
    for j, (a, b) in enumerate(pairs):
        signs[list(honest).index(a), j], signs[list(honest).index(b), j] = 1, -1
    # Whatever combination of views has no mask left in it is of the vectors alone.
    u, s, _ = np.linalg.svd(signs.astype(float), full_matrices=True)
    rank = int((s > 1e-9).sum())
    return u[:, rank:].T


@pytest.mark.parametrize("n_sites", [2, 3, 4, 5, 6])
def test_in_one_exchange_every_coalition_learns_the_honest_total_alone(n_sites):
    for n in range(1, n_sites + 1):
        for honest in combinations(range(n_sites), n):
            rows = learned_in_one(honest, n_sites)
            assert len(rows) == 1
            np.testing.assert_allclose(np.abs(rows[0]), n**-0.5)


def test_it_is_noticed_when_two_halves_have_no_mask_in_common():
    missing = [(a, b) for a in (0, 1) for b in (2, 3)]
    assert len(learned_in_one(range(4), 4, missing)) == 2


@pytest.mark.parametrize("ratio", [0.5, 6.0, 600.0])
@pytest.mark.parametrize("n_sites", [2, 3, 4, 6])
def test_the_charge_is_that_of_the_joint_covariance_of_all_that_is_seen(n_sites, ratio):
    """``f + e + g`` of each honest site and the total of e, for every coalition."""
    gamma = np.random.default_rng(n_sites).uniform(0.5, 3.0, n_sites)
    for n_colluding in range(n_sites):
        coalition = Coalition(n_sites, n_colluding, 0)
        claimed = parties.views("cape", gamma, ratio, coalition)[
            "aggregator_and_colluders"
        ]
        worst = np.zeros(n_sites)
        for honest in combinations(range(n_sites), n_sites - n_colluding):
            g = gamma[list(honest)]
            # The last coordinate is T, to which the colluders' e is known.
            C = np.diag(np.append((1 + ratio) * g, ratio * g.sum()))
            C[:-1, -1] = C[-1, :-1] = ratio * g
            inverse = np.linalg.inv(C)
            for k, site in enumerate(honest):
                worst[site] = max(worst[site], inverse[k, k] ** 0.5)
        np.testing.assert_allclose(claimed, worst, rtol=1e-9)
