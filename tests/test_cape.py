"""The closed form of CAPE's privacy loss is that of the raw view, exactly."""

from fractions import Fraction

import numpy as np
import pytest

from capeneuro import cape

# Delta = tau, the papers' split [privacy.md 11].
PAPERS_SPLIT = """
2 0 4/3; 2 1 2; 3 0 3/2; 3 2 3; 4 0 8/5; 4 1 28/15; 4 3 4; 5 0 5/3; 5 1 15/8; 5 4 5;
6 0 12/7; 6 1 66/35; 6 5 6; 8 0 16/9; 8 2 56/27; 8 7 8; 10 0 20/11; 10 3 170/77;
10 9 10; 20 0 40/21; 20 6 340/147; 20 19 20
"""
SPLITS = [
    (int(S), int(S_C), Fraction(value))
    for S, S_C, value in (row.split() for row in PAPERS_SPLIT.split(";"))
]
COALITIONS = [(S, S_C) for S in (1, 2, 3, 4, 6) for S_C in range(S)]
NOISES = [
    (Fraction(1), Fraction(1)),
    (Fraction(1, 7), Fraction(5, 3)),
    (Fraction(400), Fraction(1)),
    (Fraction(10**12), Fraction(3)),
    (Fraction(0), Fraction(2)),
]


def _view(S: int, S_C: int) -> list[list[int]]:
    """Rows of the adversary's view as combinations of ``e_1 .. e_S, g_1 .. g_S``.

    Site 0 is attacked; the last ``S_C`` sites collude.
    """
    unit = np.eye(2 * S, dtype=int)
    messages = [unit[s] + unit[S + s] for s in range(S)]
    total = unit[:S].sum(axis=0)
    secrets = [unit[k] for s in range(S - S_C, S) for k in (s, S + s)]
    return [row.tolist() for row in (*messages, total, *secrets)]


def _quadratic_form(Sigma: list[list[Fraction]], v: list[Fraction]) -> Fraction:
    """``v' Sigma^+ v`` for v in the range of Sigma, in exact arithmetic."""
    n = len(v)
    rows = [[*Sigma[i], v[i]] for i in range(n)]
    pivots: list[int] = []
    for column in range(n):
        top = len(pivots)
        pivot = next((i for i in range(top, n) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[top], rows[pivot] = rows[pivot], rows[top]
        rows[top] = [x / rows[top][column] for x in rows[top]]
        for i in range(n):
            if i != top and rows[i][column]:
                factor = rows[i][column]
                rows[i] = [
                    x - factor * y for x, y in zip(rows[i], rows[top], strict=True)
                ]
        pivots.append(column)
    assert all(row[-1] == 0 for row in rows[len(pivots) :]), "view reveals the data"
    return sum((v[c] * rows[i][-1] for i, c in enumerate(pivots)), Fraction(0))


def _exact_mu_squared(S: int, S_C: int, sigma2: Fraction, gamma: Fraction) -> Fraction:
    view = _view(S, S_C)
    noise = [sigma2] * S + [gamma] * S
    Sigma = [
        [
            sum((a * b * n for a, b, n in zip(p, q, noise, strict=True)), Fraction(0))
            for q in view
        ]
        for p in view
    ]
    moved = [Fraction(int(i == 0)) for i in range(len(view))]
    return _quadratic_form(Sigma, moved)


@pytest.mark.parametrize(("sigma2", "gamma"), NOISES)
@pytest.mark.parametrize(("S", "S_C"), COALITIONS)
def test_mu_is_that_of_the_raw_view(S, S_C, sigma2, gamma):
    exact = _exact_mu_squared(S, S_C, sigma2, gamma)
    mu = cape.mu_of_round(3.0, float(sigma2), float(gamma), S - S_C)
    assert mu**2 == pytest.approx(9 * float(exact), rel=1e-13)


@pytest.mark.parametrize(("S", "S_C", "expected"), SPLITS)
def test_papers_split_has_the_reference_values(S, S_C, expected):
    mu = cape.mu_of_round(1.0, 1.0, 1 / S, S - S_C)
    assert mu**2 == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 40.0, 4000.0, 1e8])
@pytest.mark.parametrize("n_honest", [1, 2, 7, 40])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 5.0])
def test_variances_invert_mu(mu, n_honest, ratio):
    sigma2, gamma = cape.variances(0.2, mu, n_honest, ratio)
    assert sigma2 == pytest.approx(ratio * gamma)
    assert cape.mu_of_round(0.2, sigma2, gamma, n_honest) == pytest.approx(
        mu, rel=1e-12
    )


@pytest.mark.parametrize(
    ("S", "S_C", "ratio", "expected"),
    [
        (4, 1, 4, 6.494886),
        (4, 1, 400, 4.662342),
        (10, 3, 10, 3.072720),
        (10, 3, 1000, 2.000148),
    ],
)
def test_worked_calibrations(S, S_C, ratio, expected):
    # epsilon 1 at delta 1e-5 [privacy.md 1.4].
    _, gamma = cape.variances(1.0, 0.26805112321129422, S - S_C, ratio)
    assert gamma == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("ratio", [0.5, 10.0, 1000.0])
def test_loss_never_falls_as_sites_collude(ratio):
    mus = [cape.mu_of_round(1.0, ratio, 1.0, n) for n in range(20, 0, -1)]
    assert (np.diff(mus) > 0).all()


@pytest.mark.parametrize(("S", "S_C"), [(3, 0), (4, 1), (10, 0), (10, 3), (50, 16)])
def test_default_ratio_is_close_to_a_trusted_sum(S, S_C):
    # Deviation of the sum, over pooled times sqrt(S / S_H): what the protocol loses.
    _, gamma = cape.variances(1.0, 1.0, S - S_C, cape.NOISE_RATIO_PER_SITE * S)
    loss = np.sqrt(S * gamma) / np.sqrt(S / (S - S_C))
    assert 1 <= loss < 1.005
