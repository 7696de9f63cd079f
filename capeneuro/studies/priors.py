"""Read the prior that a study names, and check that it is of the study's space."""

import hashlib
from dataclasses import replace

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms.prior import Prior
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.data import nifti
from capeneuro.data import priors as prior_files
from capeneuro.studies.flow import mask_file

# Energy of volumes along a direction outside the public maps, over a map's.
REST = 0.05
# Most features with which a prior of maps has all directions, D of them: the release
# has D squared numbers.
FEW_FEATURES = 300


def open_prior(study: ComponentsConfig) -> tuple[Prior, str]:
    """Read the prior that a study names; in the unit of ``x / norm_bound``.

    Returns
    -------
    tuple
        The prior, and the SHA-256 of its file.

    Raises
    ------
    ConfigError
        If the file is missing, no prior, or one of another space or cleaning; or if it
        has fewer directions than the study has components.
    """
    path = study.prior.file
    if not path.is_file():
        raise ConfigError(f"study {study.study}: prior.file: no such file: {path}")
    if (path_of_mask := mask_file(study)) is None:
        raise ConfigError(
            f"study {study.study}: prior: what it holds is known after `capeneuro "
            "validate`; run that first"
        )
    mask = nifti.read_mask(path_of_mask)
    basis = nifti.build_basis(study.space, mask)
    if path.suffix == ".npz":
        common = prior_files.space_of(study, mask, basis)
        names = Prior.__dataclass_fields__
        arrays = prior_files.read(path, names, common)
        prior = Prior(**arrays).divided_by(study.pca.norm_bound)
    elif path.suffix == ".npy":
        C = prior_files.read_moment(path, basis.n_features)
        q = min(priors.DIRECTIONS, len(C))
        C = C / study.pca.norm_bound**2
        values, U = linalg.top_eigenpairs(C, q)
        prior = priors.from_moment(U.astype(np.float32), values, float(np.trace(C)))
    else:
        prior = of_maps(prior_files.read_maps(path, mask, basis))
    if len(prior.energies) < study.n_components:
        raise ConfigError(
            f"study {study.study}: n_components: must be at most the "
            f"{len(prior.energies)} directions of the prior, got {study.n_components}"
        )
    return prior, hashlib.sha256(path.read_bytes()).hexdigest()


def of_maps(A: np.ndarray) -> Prior:
    """Make a prior of public maps alone, (D, R), of equal strength; volumes of norm 1.

    With few features it also has the directions outside the maps, or people's energy
    there would be lost, however many they are.
    """
    U, s, _ = np.linalg.svd(A, full_matrices=len(A) <= FEW_FEATURES)
    values = np.full(U.shape[1], REST)
    values[: len(s)] += s**2
    values /= values.sum()
    return replace(priors.from_moment(U.astype(np.float32), values), maps=A)
