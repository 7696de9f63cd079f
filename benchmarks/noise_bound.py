"""How far the noise of queries is from the least that unbiased Gaussian noise can be.

What one unit may add to a sum is a set K of vectors. Normal noise of covariance M hides
it at mu = 1 if ``z' M^-1 z <= 1`` for all differences z of two of its vectors, and an
unbiased mechanism has about as much error at least as the best M, that of the least
trace [Nikolov & Tang 2024]. Ours is spherical, of the query's sensitivity, so it is the
best one where K looks the same from all sides.

Where K is left as it is by a group of rotations, so is a best M, for the problem is
convex: it is a multiple of the identity on each part of the space that the group cannot
split. These are few numbers, found as an A-optimal design is [Silvey, Titterington &
Torsney 1978], with a bound from below. Differences are those of two people who go
through the query itself, in every position that may be extreme; many at random must not
be further apart. A position that is missing would make the least noise too small, and
ours look further from it than it is.

Run ``python -m benchmarks.noise_bound`` from the repository; half a minute.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.queries import QUERIES

N_ROUNDS = 20_000
# Relative distance of the two bounds of the least noise: below what is printed.
GAP = 5e-4
N_RANDOM = 400
Person = np.ndarray


@dataclass(frozen=True)
class Case:
    """A query, pairs of people whose contributions are far apart, and its symmetries.

    Parameters
    ----------
    query, parameters
        As a site is asked; the clip is 1.
    n_rows
        Of a person.
    sizes
        Numbers in each part of the answer, its dimensions.
    parts
        Squared norms of the parts of a vector.
    pairs
        Two people each, in all positions that may be extreme.
    """

    query: str
    n_rows: int
    sizes: Sequence[int]
    parts: Callable[[np.ndarray], np.ndarray]
    pairs: Iterable[tuple[Person, Person]]
    parameters: dict[str, Any] = field(default_factory=dict)


def contribution(case: Case, x: Person) -> np.ndarray:
    """Contribution of one person to the query's sum, in units of the clip."""
    block = Block(x[:, None].astype("f4"), np.zeros(1, int), "sample")
    parameters = {**case.parameters, "clip": 1.0}
    return QUERIES[case.query].total(block, **parameters) / CLIP_SAFETY


def least_noise(sizes: np.ndarray, P: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Least noise of a covariance that is a multiple of the identity on each part.

    Parameters
    ----------
    sizes
        Dimensions of the parts, (n_parts,).
    P
        Squared norms of the parts of each difference, (n_pairs, n_parts).

    Returns
    -------
    trace, precision, bound
        Total variance at mu = 1; one over the variance in each part; a number that no
        total variance is below.
    """
    weights = np.full(len(P), 1 / len(P))
    for _ in range(N_ROUNDS):
        moved = np.maximum(weights @ P, 1e-300)
        root = np.sqrt(sizes * moved).sum()
        precision = np.sqrt(sizes / moved) / root
        reached = P @ precision
        weights = weights * reached
        weights /= weights.sum()
    # A part in which nobody ever differs needs no noise.
    used = P.any(axis=0)
    precision = precision / reached.max()
    trace = (sizes[used] / precision[used]).sum()
    return float(trace), np.where(used, precision, np.inf), float(root**2)


# --- queries -------------------------------------------------------------------------


def symmetric_parts(C: np.ndarray) -> np.ndarray:
    """Squared norms of trace and rest of a symmetric matrix."""
    trace = np.trace(C) ** 2 / len(C)
    return np.array([trace, (C**2).sum() - trace])


def axes(D: int, *entries: float) -> Person:
    """A person with the given first features; all others are 0."""
    return np.array([*entries, *np.zeros(D - len(entries))])


def mean(D: int) -> Case:
    """K is a ball."""
    pair = axes(D, 1), axes(D, -1)
    return Case(
        "mean",
        D,
        [D],
        lambda v: np.array([(v**2).sum()]),
        [pair],
        {"norm_bound": 1.0},
    )


def second_moment(D: int) -> Case:
    """Squares x x' of a ball, turned as x is: trace, and the rest."""
    zero, first, second = axes(D), axes(D, 1), axes(D, 0, 1)
    return Case(
        "second_moment",
        D,
        [1, D * (D + 1) // 2 - 1],
        lambda v: symmetric_parts(linalg.unpack_symmetric(v)),
        [(first, second), (first, zero)],
        {"norm_bound": 1.0},
    )


def moment_product(D: int, R: int) -> Case:
    """Products x (Q'x)', which rotations inside Q's span and outside it turn."""

    def parts(v: np.ndarray) -> np.ndarray:
        M = v.reshape(D, R)
        top = M[:R]
        skew = (top - top.T) / 2
        below = (M[R:] ** 2).sum()
        return np.array([*symmetric_parts((top + top.T) / 2), (skew**2).sum(), below])

    # Of a person b within Q and a outside; |b| (|a|^2 + |b|^2)^(1/2) is at most 1.
    pairs = []
    for b, d in np.random.default_rng(0).uniform(0, 1, (40, 2)) ** 0.5:
        for angle in np.linspace(0, np.pi / 2, 7):
            x, y = np.zeros(D), np.zeros(D)
            x[0], y[0], y[1] = b, d * np.cos(angle), d * np.sin(angle)
            for z, c in ((x, b), (y, d)):
                z[R] = np.sqrt(max(1 / c**2 - c**2, 0))
            y[R] *= -1
            pairs.append((x, y))
    for b in np.linspace(1e-3, 1, 60):
        x = axes(D, b)
        x[R] = np.sqrt(1 / b**2 - b**2)
        mirrored = x.copy()
        mirrored[R] *= -1
        pairs += [(x, mirrored), (x, np.zeros(D))]
    pairs.append((axes(D, 1), axes(D, 0, 1)))
    sizes = [1, R * (R + 1) // 2 - 1, R * (R - 1) // 2, (D - R) * R]
    Q = np.eye(D, R, dtype="f4")
    parameters = {"Q": Q, "norm_bound": 1.0}
    return Case("moment_product", D, sizes, parts, pairs, parameters)


def bin_shares(D: int) -> Case:
    """The positive part of a ball, whose axes may be exchanged: mean, and the rest."""

    def parts(v: np.ndarray) -> np.ndarray:
        mean = v.sum() ** 2 / D
        return np.array([mean, (v**2).sum() - mean])

    pairs = []
    for k in range(1, D):
        for m in range(D - k + 1):
            x, y = np.zeros(D), np.zeros(D)
            x[:k], y[k : k + m] = 1 / np.sqrt(k), 1 / np.sqrt(max(m, 1))
            pairs.append((x, y))
    pairs.append((np.full(D, 1 / np.sqrt(D)), np.zeros(D)))
    return Case("bin_shares", D, [1, D - 1], parts, pairs)


def third_moment(D: int) -> Case:
    """Cubes of a ball, turned as x is: their traces, a vector, and the rest."""

    def parts(v: np.ndarray) -> np.ndarray:
        traces = np.einsum("ijj->i", linalg.unpack_symmetric3(v))
        vector = 3 / (D + 2) * (traces**2).sum()
        return np.array([vector, (v**2).sum() - vector])

    sizes = [D, D * (D + 1) * (D + 2) // 6 - D]
    pair = axes(D, 1), axes(D, -1)
    parameters = {"covariance": np.zeros((D, D))}
    return Case("third_moment", D, sizes, parts, [pair], parameters)


CASES = [
    mean(50),
    second_moment(10),
    second_moment(100),
    moment_product(100, 10),
    moment_product(1000, 20),
    bin_shares(8),
    bin_shares(50),
    third_moment(10),
    third_moment(40),
]


def main() -> None:
    """Print a row for each query: deviation of our noise over that of the least."""
    rng = np.random.default_rng(1)
    print("| query | numbers | deviation, ours over the least |")
    print("|---|---|---|")
    for case in CASES:
        apart = [contribution(case, x) - contribution(case, y) for x, y in case.pairs]
        P = np.array([case.parts(z) for z in apart])
        sizes = np.array(case.sizes, float)
        trace, precision, bound = least_noise(sizes, P)
        for scale in rng.choice([0.3, 1.0, 30.0], N_RANDOM):
            x, y = scale * rng.standard_normal((2, case.n_rows))
            z = case.parts(contribution(case, x) - contribution(case, y))
            used = np.isfinite(precision)
            assert z[used] @ precision[used] <= 1 + 1e-6, case.query
            assert (z[~used] <= 1e-9).all(), case.query
        t = QUERIES[case.query].sensitivity(1, "replace-one", {"clip": 1.0})
        ours = t**2 * sizes.sum()
        assert trace <= bound * (1 + GAP), "the least noise was not found"
        row = f"| `{case.query}` | {int(sizes.sum()):,} | "
        print(f"{row}{np.sqrt(ours / bound):.3f} |", flush=True)


if __name__ == "__main__":
    main()
