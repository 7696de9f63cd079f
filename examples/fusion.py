"""Fusion: what two views of the same 3,000 people at three sites have in common."""

import numpy as np

import capeneuro as cn

rng = np.random.default_rng(0)
TRUE, Dx, Dy = (0.8, 0.5), 20, 12
A, B = (np.linalg.qr(rng.standard_normal((D, 2)))[0] for D in (Dx, Dy))


def person() -> np.ndarray:
    """Features of both views of one person, one sample."""
    common = rng.standard_normal(2)
    own = np.sqrt(1 - np.array(TRUE)) * rng.standard_normal((2, 2))
    x, y = (np.sqrt(TRUE) * common + noise for noise in own)
    x, y = A @ x + 0.2 * rng.standard_normal(Dx), B @ y + 0.2 * rng.standard_normal(Dy)
    return np.concatenate([x, y])[:, None]


sites = cn.federate(
    {f"site-{k + 1}": [person() for _ in range(1000)] for k in range(3)},
    cn.Budget(4, 1e-5, unit="subject"),
)
found = cn.canonical_directions(sites, 2, n_first=Dx, norm_bounds=(1.7, 1.6))
for true, r, (low, high) in zip(
    TRUE, found.correlations, found.variates[:, 1:], strict=True
):
    print(f"true correlation {true:.2f}, found {r:.2f} ({low:.2f} to {high:.2f})")
print(f"noise alone reaches {found.null_level:.2f}")
print(sites.privacy())
