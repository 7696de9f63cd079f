"""Read the prior that a study names, and check that it is of the study's space."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms.prior import Prior
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.data import files, nifti
from capeneuro.data import priors as prior_files
from capeneuro.studies.flow import mask_file

# Energy of volumes along a direction outside the public maps, over a map's.
REST = 0.05
# Most features with which a prior of maps has all directions, D of them: the release
# has D squared numbers.
FEW_FEATURES = 300


# Prefixes of arrays in a file of `capeneuro prior`: a prior of every second site, and
# the second moment at the other sites.
HALF, OTHER = "half_", "other_"


class StandIns(NamedTuple):
    """Public people for a trial of a study; in the unit of ``x / norm_bound``."""

    prior: Prior | None
    """Prior of other people; None: only a study without one can be tried."""
    moment: np.ndarray
    """Their second moment, (D, D)."""
    digest: str
    """Fixes all of it."""


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
    for key in ("file", "stand_in"):
        named = getattr(study.prior, key)
        if named is not None and not named.is_file():
            raise ConfigError(
                f"study {study.study}: prior.{key}: no such file: {named}"
            )
    if (path_of_mask := mask_file(study)) is None:
        raise ConfigError(
            f"study {study.study}: prior: what it holds is known after `capeneuro "
            "validate`; run that first"
        )
    mask = nifti.read_mask(path_of_mask)
    basis = nifti.build_basis(study.space, mask)
    if path.suffix == ".npz":
        prior = Prior(**_arrays(study, path, Prior.__dataclass_fields__))
        prior = prior.divided_by(study.pca.norm_bound)
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


def open_stand_ins(study: ComponentsConfig) -> StandIns | None:
    """Read the public stand-in people of a study with a prior; None: it names none.

    Raises
    ------
    ConfigError
        If a file is missing or does not fit the study.
    """
    prior, digest = open_prior(study)
    path, stand_in = study.prior.file, study.prior.stand_in
    if stand_in is not None:
        digest += hashlib.sha256(stand_in.read_bytes()).hexdigest()
        return StandIns(prior, _moment(study, stand_in), digest)
    if path.suffix == ".npy":  # its people are no strangers to it
        return StandIns(None, _moment(study, path), digest)
    if path.suffix != ".npz" or f"{HALF}maps" not in files.read_arrays(path):
        return None
    prior = Prior(**_arrays(study, path, Prior.__dataclass_fields__, HALF))
    prior = prior.divided_by(study.pca.norm_bound)
    return StandIns(prior, _moment(study, path, OTHER), digest)


def _arrays(
    study: ComponentsConfig, path: Path, names: Iterable[str], prefix: str = ""
) -> dict[str, Any]:
    """Arrays of a file that `capeneuro prior` made in the study's space."""
    mask = nifti.read_mask(mask_file(study))
    common = prior_files.space_of(study, mask, nifti.build_basis(study.space, mask))
    arrays = prior_files.read(path, [prefix + name for name in names], common)
    return {name.removeprefix(prefix): value for name, value in arrays.items()}


def _moment(study: ComponentsConfig, path: Path, prefix: str = "") -> np.ndarray:
    """Second moment of public people, of all features."""
    if path.suffix == ".npz":
        names = "directions", "energies", "energy_shares"
        U, energies, shares = _arrays(study, path, names, prefix).values()
        D, q = U.shape
        # What lies along no direction is spread evenly.
        level = energies.sum() * (1 / shares[-1] - 1) / max(D - q, 1)
        C = (U * (energies - level)) @ U.T + level * np.eye(D)
    else:
        mask = nifti.read_mask(mask_file(study))
        C = prior_files.read_moment(
            path, nifti.build_basis(study.space, mask).n_features
        )
    return C / study.pca.norm_bound**2


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
