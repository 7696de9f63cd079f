"""Public knowledge in: what `capeneuro prior` made, public maps, or a second moment."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning
from capeneuro.data import files, nifti
from capeneuro.data.basis import Basis


def write(path: Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write a prior, with its metadata as JSON inside."""
    files.write_arrays(path, **arrays, about=json.dumps(metadata))


def read(path: Path, names: Iterable[str], common: dict[str, str]) -> dict[str, Any]:
    """Read a prior that :func:`write` wrote.

    Parameters
    ----------
    path
        Its file.
    names
        Of the arrays that it must have.
    common
        What it must have in common with a study, see :func:`space_of`.

    Returns
    -------
    dict
        Arrays, numbers as such.

    Raises
    ------
    ConfigError
        If it is no prior, or one of another space or cleaning.
    """
    try:
        arrays = files.read_arrays(path)
    except ConfigError:
        raise ConfigError(
            f"{path}: prior: not a readable file of arrays; make it with "
            "`capeneuro prior`"
        ) from None
    if missing := [name for name in [*names, "about"] if name not in arrays]:
        raise ConfigError(
            f"{path}: no prior of this version, lacks {missing[0]}; make it with "
            "`capeneuro prior`"
        )
    metadata = json.loads(str(arrays["about"]))
    for key, study_value in common.items():
        if not _agrees(key, metadata.get(key), study_value):
            raise ConfigError(
                f"{path}: prior: was made with another {key} than the study has; "
                "make it again with the study's own space and cleaning"
            )
    return {n: v.item() if (v := arrays[n]).ndim == 0 else v for n in names}


def _agrees(key: str, prior_value: str | None, study_value: str) -> bool:
    if (
        key == "cleaning" and prior_value is not None
    ):  # keys that are newer are at defaults
        prior_value, study_value = (
            Cleaning.model_validate_json(text) for text in (prior_value, study_value)
        )
    return prior_value == study_value


def space_of(study: ComponentsConfig, mask: Any, basis: Basis) -> dict[str, str]:
    """Properties that a prior and a study must share: space digest, and cleaning."""
    A = basis.analysis.tocsr()
    positions = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    inside = np.asarray(mask.dataobj) > 0
    parts = (mask.affine, np.array(mask.shape), np.packbits(inside), A.data, *positions)
    space = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts))
    cleaning = json.dumps(study.cleaning.model_dump(mode="json"), sort_keys=True)
    return {"space": space.hexdigest(), "cleaning": cleaning}


def read_moment(path: Path, n_features: int) -> np.ndarray:
    """Read a public second moment of the features, (D, D).

    Raises
    ------
    ConfigError
        If it is something else.
    """
    try:
        C = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise ConfigError(f"{path}: prior: not an array of numbers") from None
    D = n_features
    if not isinstance(C, np.ndarray):
        raise ConfigError(f"{path}: prior: not an array of numbers")
    if C.shape != (D, D) or C.dtype.kind not in "fiu" or not np.isfinite(C).all():
        raise ConfigError(
            f"{path}: prior: must be the second moment of the {D} features, of "
            f"finite numbers and shape {(D, D)}, got shape {C.shape}"
        )
    if np.trace(C) <= 0:
        raise ConfigError(f"{path}: prior: its energies must be above 0")
    return (C + C.T).astype(float) / 2


def read_maps(path: Path, mask: Any, basis: Basis) -> np.ndarray:
    """Read public maps as features of norm 1, (D, R).

    Raises
    ------
    ConfigError
        If they are fewer than two, or one is empty in the mask.
    """
    A = basis.analysis @ nifti.read_maps(path, mask)
    norms = np.linalg.norm(A, axis=0)
    if A.shape[1] < 2 or not (norms > 0).all():
        raise ConfigError(
            f"{path}: prior: must hold two public maps or more, none of them "
            "empty in the mask"
        )
    return A / norms
