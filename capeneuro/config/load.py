"""Study files and site files, read and checked.

A study is of the kind whose block it has: `fusion`, `tensors`, `regression`, `network`,
`contrast`, or none of them for a study of components. Unknown or misspelled keys are
errors that name the nearest known key, and all errors of a file are shown at once.
"""

import json
from pathlib import Path

from pydantic import BaseModel

from capeneuro.config import errors
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import Study
from capeneuro.config.tensors import TensorConfig

# Beside site files: what they share, and what each must say itself.
COMMON = "common.yaml"
OWN = {"name", "data", "seed", "ledger", "images", "eeg", "people"}
# Blocks that tell the kind of a study.
KINDS = {
    "fusion": FusionConfig,
    "tensors": TensorConfig,
    "regression": RegressionConfig,
    "network": NetworkConfig,
    "contrast": ContrastConfig,
}


def load_study(path: Path | str) -> Study:
    """Read and check a study file; raise :class:`ConfigError` with all its errors."""
    return errors.read(
        Path(path), ComponentsConfig, "study", other="site", instead=KINDS
    )


def load_site(path: Path | str) -> SiteConfig:
    """Read and check one site file.

    What several site files of a folder share may lie once in a file :data:`COMMON`
    beside them; a site's own file counts first. What must be a site's own word is
    refused there: its name, and what its data are.
    """
    path = Path(path)
    common = path.with_name(COMMON)
    site = errors.read(path, SiteConfig, "site", other="study", common=common)
    if common.is_file() and (odd := OWN & set(errors.content(common))):
        raise ConfigError(
            f"{common}: {min(odd)}: must stand in each site's own file; move it there"
        )
    return site


def section(model: BaseModel, *names: str) -> str:
    """Chosen keys as one line of JSON: what a workflow step depends on."""
    return json.dumps(model.model_dump(mode="json", include=set(names)), sort_keys=True)
