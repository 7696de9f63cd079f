"""``load``: open a study file, to plan and run it, or the results of a study."""

from pathlib import Path
from typing import Any

from capeneuro.config.errors import ConfigError
from capeneuro.notebook.study import Study
from capeneuro.notebook.study_results import Results


def load(path: Path | str) -> Any:
    """Open a study file, to plan and run it, or the results of a study, by name.

    Parameters
    ----------
    path
        A study file, ``config/config.yaml``; or ``results/<study>``, or of a stage
        ``results/<study>/<stage>``.

    Returns
    -------
    Study or Results
        Of a file a :class:`.study.Study`, which can be planned and run; of a folder
        :class:`.study_results.Results`: images, tables, promise and scores.

    Raises
    ------
    ConfigError
        If the file is wrong, or there are no results in the folder.
    """
    path = Path(path)
    if path.suffix in (".yaml", ".yml"):
        return Study(path)
    if not any((f / "privacy.json").is_file() for f in (path, path.parent)):
        reason = "no results of a study here; check the path"
        if (path / "dataset_description.json").is_file() or any(path.glob("group_*")):
            reason = "privacy.json, the record of the budget, is missing; run the study"
        raise ConfigError(f"{path}: {reason}")
    return Results(path)
