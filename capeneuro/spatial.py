"""Spatial ICA of the released subspace: maps independent over features, at no cost.

Group spatial ICA takes voxels for samples, and every voxel holds everybody: replacing
one person changes all samples, so clipping them bounds nobody's part. The privacy unit
is well-defined in the reduction alone. There it is capePCA, whose noisy second moment
pays for everything; the spatial ICA of its eigenvectors, temporal concatenation in the
words of GIFT, is post-processing. The whole budget goes to the subspace.

# Differs from thesis 6: the papers' joint ICA is temporal.
"""

import numpy as np

from capeneuro.federation import InProcess
from capeneuro.ica import SCALE, Unmixing, infomax, unmixed
from capeneuro.ledger import Ledger
from capeneuro.mechanism import Mechanism
from capeneuro.pca import Subspace
from capeneuro.privacy import Budget
from capeneuro.rules import Limits
from capeneuro.site import Site
from capeneuro.updates import State

# Deviation of an eigenvector over features, of unit norm, below which it is constant.
CONSTANT = 1e-3


def spatial_components(
    subspace: Subspace, n_rounds: int = 500, tol: float = 1e-6
) -> Unmixing:
    """Rotate the released subspace so that its maps are independent over features.

    Parameters
    ----------
    subspace
        From :func:`capeneuro.pca.principal_subspace`.
    n_rounds, tol
        Of :func:`capeneuro.ica.infomax`, whose rounds cost nothing here.

    Returns
    -------
    Unmixing
        ``mixing`` holds the maps, ``W`` the unmixing of whitened samples that gives
        their time courses; these need not be independent.

    Guarantee
    ---------
    Reads the released subspace alone.

    Notes
    -----
    A constant map in the subspace stays a component of its own. With as many
    components as features there always is one.
    """
    V = subspace.eigenvectors
    # Features are the samples: centered and white over them.
    U, s, Qt = np.linalg.svd(V - V.mean(axis=0), full_matrices=False)
    n = len(V)
    # A constant map has nothing to be independent of: a component of its own.
    varies = s > CONSTANT
    varies[0], s = True, np.maximum(s, 1e-12)
    maps = (np.sqrt(n) * U.T[varies]).astype("f4")
    budget = Budget(1.0, 1e-5, "sample", "replace-one", 0)
    ledger, limits = Ledger(None, budget), Limits("public")
    site = Site("map", {"map": maps}, {"map": n}, ledger, limits)
    mechanism = Mechanism("spatial", "non-private", 1.0, budget, 0.0)
    R = len(maps)
    white = Subspace(np.ones(R), np.eye(R), 1.0)
    found = infomax(
        InProcess({"map": site}),
        mechanism,
        white,
        n_rounds=n_rounds,
        clip=np.inf,
        tol=tol,
        start="identity",  # varimax of white maps is the same
    )
    # Maps S' = V T over features, so time courses are T^-1 V'x.
    T = np.hstack([(Qt.T / s)[:, varies] @ found.W.T, Qt.T[:, ~varies]])
    R = len(T)
    W = np.linalg.solve(T, np.linalg.pinv(subspace.whitening() @ V))
    W *= SCALE / np.linalg.norm(W, axis=1, keepdims=True)
    state = State(W=W, b=np.zeros(R), signs=np.ones(R))
    return unmixed(state, subspace, found.trace, found.converged)
