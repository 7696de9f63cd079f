"""Leading pairs of a whitened cross-block, and what noise makes of their correlations.

Post-processing of :mod:`.cca`: all of it is drawn from released values and known noise.
"""

from dataclasses import dataclass

import numpy as np

# Draws behind intervals and levels, both 95%; the generator is fixed.
DRAWS = 400
# Numbers drawn at a time; with very many directions draws are fewer.
MOST_NUMBERS = 10**6


def pairs(
    T: np.ndarray, w_x: np.ndarray, w_y: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leading pairs of a whitened cross-block.

    Noise in T is large along directions of little energy. With weights, which are those
    of a ridge, it does not choose the K directions of each view; the correlations are
    then of T as it is between them, or the ridge would make them small.

    Parameters
    ----------
    T
        Whitened cross-block, (p, q).
    w_x, w_y
        Weights of the directions, in (0, 1], (p,) and (q,); 1 without noise.
    K
        Number of pairs, at most p and q.

    Returns
    -------
    left, r, right : numpy.ndarray
        Orthonormal (p, K), correlations (K,) descending, orthonormal (q, K).
    """
    u, _, v = np.linalg.svd(w_x[:, None] * T * w_y, full_matrices=False)
    A = np.linalg.qr(w_x[:, None] * u[:, :K])[0]
    B = np.linalg.qr(w_y[:, None] * v[:K].T)[0]
    a, r, b = np.linalg.svd(A.T @ T @ B)
    return A @ a, r, B @ b.T


@dataclass(frozen=True)
class Noise:
    """Noise of a whitened cross-block, of shape (p, q).

    Parameters
    ----------
    tau, N
        Deviation of the noise of privacy in one coordinate; people.
    l_x, l_y
        Energies along the directions, (p,) and (q,).
    w_x, w_y
        Their weights, see :func:`pairs`.
    """

    tau: float
    N: int
    l_x: np.ndarray
    l_y: np.ndarray
    w_x: np.ndarray
    w_y: np.ndarray

    def taken_off(
        self, left: np.ndarray, r: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Correlations of these pairs that noise, on average, turns into r."""
        exact = r
        for _ in range(3):
            bias = self.draw(left, exact, right).mean(axis=0) - exact
            exact = np.clip(np.minimum.accumulate(r - bias), 0, 1)
        return exact

    def draw(self, left: np.ndarray, r: np.ndarray, right: np.ndarray) -> np.ndarray:
        """What noise makes of correlations r (K,) of these pairs: (n_draws, K)."""
        rng, K, shape = np.random.default_rng(0), len(r), (len(left), len(right))
        n_draws = int(np.clip(MOST_NUMBERS / np.prod(shape), 40, DRAWS))
        # Correlations near 1 vary less over samples [Anderson 2003, 12.4.2].
        less = np.sqrt(1 - np.minimum(r, 1) ** 2) - 1
        B_x, B_y = ((side * less) @ side.T for side in (left, right))
        deviation = np.sqrt(np.outer(self.tau / self.l_x, self.tau / self.l_y) / 2)
        drawn = np.empty((n_draws, K))
        for i in range(n_draws):
            G, H = rng.standard_normal((2, *shape))
            H = H + B_x @ H
            T = (left * r) @ right.T + deviation * G
            # Energies, too, are known within tau.
            error = [
                1 + self.tau * rng.standard_normal(len(energies)) / energies
                for energies in (self.l_x, self.l_y)
            ]
            T /= np.sqrt(np.outer(*(np.maximum(e, 0.1) for e in error)))
            T += (H + H @ B_y) / np.sqrt(self.N)
            drawn[i] = pairs(T, self.w_x, self.w_y, K)[1]
        return drawn
