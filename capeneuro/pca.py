"""The subspace that all sites share: capePCA [thesis, Alg. 4.1] in every arm.

Each site sends its second moment ``C_s = mean x x'`` once, packed (svec), through the
mechanism; the aggregator keeps the top eigenpairs of the noisy average. One round,
D (D + 1) / 2 numbers per site.

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n). Eigenpairs,
the whole spectrum, floors and whitening are post-processing.

# Differs from thesis 4: sensitivity sqrt(2) / n instead of 1 / n, which is spectral or
# zero-out; symmetric noise in svec coordinates instead of an asymmetric E_s.
"""

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from capeneuro import linalg
from capeneuro.federation import Federation
from capeneuro.mechanism import Mechanism


@dataclass(frozen=True)
class Subspace:
    """Top eigenpairs of the pooled second moment of ``x / norm_bound``.

    Parameters
    ----------
    eigenvalues
        Shape (K,), descending; noise can make them negative.
    eigenvectors
        Shape (n_features, K), orthonormal columns.
    norm_bound, clip
        Public constants that bounded the samples.
    spectrum
        All eigenvalues, shape (n_features,), descending; what :mod:`capeneuro.order`
        reads. Empty where a subspace was not found from a second moment.
    noise_deviation
        Deviation of the noise in one packed coordinate; 0 without privacy.
    n_units
        Public number of units behind it; 0 where unknown.
    """

    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    norm_bound: float
    clip: float
    spectrum: np.ndarray = field(default_factory=lambda: np.zeros(0))
    noise_deviation: float = 0.0
    n_units: int = 0

    def whitening(self, floor: float = 1e-3) -> np.ndarray:
        """Matrix ``Lambda^(-1/2) V'`` of shape (K, n_features).

        Parameters
        ----------
        floor
            Smallest eigenvalue as a share of the largest: noise can make the small
            ones tiny or negative, and dividing by them would blow noise up.

        Raises
        ------
        ValueError
            If no eigenvalue is positive.
        """
        if self.eigenvalues[0] <= 0:
            raise ValueError("no eigenvalue of the released second moment is positive")
        values = np.maximum(self.eigenvalues, floor * self.eigenvalues[0])
        return self.eigenvectors.T / np.sqrt(values)[:, None]


def principal_subspace(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float = 1.0,
) -> Subspace:
    """Find the directions that capture most energy over all sites.

    With the ``cape`` arm this is capePCA [thesis, Alg. 4.1].

    Parameters
    ----------
    federation
        Sites whose columns are samples.
    mechanism
        How the second moment is released.
    n_components
        Dimension K of the subspace, in [1, n_features].
    norm_bound
        Public constant in the unit of the features: samples are divided by it.
    clip
        Largest Frobenius norm of a unit's ``x x'`` after that; ``inf`` for exact arms.

    Returns
    -------
    Subspace
        Eigenpairs in descending order, signs fixed, with the whole spectrum.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    parameters = {"norm_bound": float(norm_bound), "clip": float(clip)}
    packed = mechanism.answer(federation, "second_moment", parameters)
    C = linalg.unpack_symmetric(packed)
    values, vectors = linalg.top_eigenpairs(C, n_components)
    last = mechanism.releases[-1]
    return Subspace(
        values,
        vectors,
        float(norm_bound),
        float(clip),
        # A second pass over C: 0.8 s at D = 2000, 10 s at 4000, as the top pairs take.
        spectrum=scipy.linalg.eigvalsh(C)[::-1],
        noise_deviation=last["noise_deviation"],
        n_units=sum(mechanism.roster[site]["n_units"] for site in last["survivors"]),
    )
