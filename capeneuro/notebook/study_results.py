"""Results of a study, read back by name: ``load("results/demo").components``."""

import json
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config.load import every_kind
from capeneuro.config.sections import is_cifti
from capeneuro.data import cifti, files, nifti
from capeneuro.data.tables import open_table
from capeneuro.studies import ask as questions

# Files of a study's results by the names that readers use; the first that is there.
COMPONENTS = (
    "ica_components",
    "cca_components",
    "tensor_components",
    "pattern_components",
    "regression_coefficients",
    "network_importance",
    "contrast_sizes",
)
IMAGES = {
    "components": COMPONENTS,
    "scaled": ("icaz_components",),
    "mask": ("brain_mask",),
}
TABLES = {
    "table": COMPONENTS,
    "weights": ("tensor_weights", "pattern_shares"),
    "effects": ("contrast_table",),
}
ARRAYS = {
    step.attribute: (step.file.removeprefix("group_desc-").removesuffix(".npz"),)
    for config in every_kind()
    for step in config.release_steps.values()
}
# Files that the stages of a study share.
SHARED = ("privacy", "promise", "study")
FILES = ("scores", "verdicts", "privacy", "promise", "study", "report")


class Results:
    """Files of a finished study, read when their names are used.

    Attributes
    ----------
    components, scaled, mask : nibabel.Nifti1Image
        Maps as released, and each divided by its root mean square; the study's mask.
        Nilearn plots them. Of parcels they are ``nibabel.Cifti2Image``.
    table, weights, effects, scores, verdicts : pandas.DataFrame
        A row for each component or feature; shares of people; effects of covariates on
        outcomes; scores with their levels of chance; which results exceed the noise.
    subspace, unmixing, directions, tensors, patterns, model, network, contrasts : \
dict of numpy.ndarray
        Arrays of a result by name.
    promise, privacy, study : dict
        The promise, the full privacy record, and the study file as run.
    report : pathlib.Path
        The page for readers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __dir__(self) -> list[str]:
        return [name for name in (*_NAMES, "plot") if self._path(name)]

    def __repr__(self) -> str:
        return f"Results({str(self.folder)!r}: {', '.join(dir(self))})"

    def __getattr__(self, name: str) -> Any:
        path = None if name.startswith("_") else self._path(name)
        if path is None:
            names = ", ".join(dir(self) if name in _NAMES else _NAMES)
            raise AttributeError(f"{name}: not in these results; there are {names}")
        if name in IMAGES:
            if is_cifti(path):
                return cifti.open_scalars(path)
            return nifti.open_image(path, 3 if name == "mask" else 4)
        if name in TABLES or name in ("scores", "verdicts"):
            return open_table(path)
        if name in ARRAYS:
            return files.read_arrays(path)
        if name == "study":
            return yaml.safe_load(path.read_text())
        if name == "report":
            return path
        record = json.loads(path.read_text())
        return record["promise"] if name == "promise" else record

    def plot(self, component: int = 1) -> Any:
        """Draw the map of a component, numbered from 1, as the report does.

        Returns
        -------
        matplotlib.figure.Figure
            Three cuts at the peak.

        Raises
        ------
        ValueError
            If there is no such component.
        """
        from capeneuro.report import maps as group_maps
        from capeneuro.report import plots

        n = self.components.shape[0 if is_cifti(self._path("components")) else -1]
        if component not in range(1, n + 1):
            raise ValueError(f"component: must be 1 to {n}, got {component!r}")
        path = self._path("scaled") or self._path("components")
        unit = group_maps.UNIT if self._path("scaled") else ""
        title = f"component {component}"
        return plots.component_map(path, component - 1, title, unit=unit)

    def ask(self, question: str) -> Any:
        """Answer a question from what was released; no privacy is spent.

        Parameters
        ----------
        question
            As of ``capeneuro ask``: ``"~ age + sex"``, ``"dose[2] - dose[1]"``.

        Returns
        -------
        pandas.DataFrame
            A row for each combination and outcome; the sentences that go with them
            are in ``attrs["lines"]``.

        Raises
        ------
        ConfigError
            If the results hold no moments, or the question names what was not released.
        """
        path, reply = questions.answered(self.folder, question)
        table = open_table(path)
        table.attrs["lines"] = reply.lines
        return table

    def _path(self, name: str) -> Path | None:
        """File of a name, if it is there."""
        endings = {"scores": "scores.tsv", "study": "config.yaml"}
        endings |= {"verdicts": "verdicts.tsv"}
        endings |= {"privacy": "privacy.json", "promise": "privacy.json"}
        endings |= {"report": "report.html"}
        if name == "plot":
            return self._path("components")
        paths = [self.folder / endings[name]] if name in endings else []
        if name in SHARED:  # those of a stage are in the folder above it
            paths.append(self.folder.parent / endings[name])
        formats = (IMAGES, "nii.gz"), (IMAGES, "pscalar.nii")
        for kinds, suffix in (*formats, (TABLES, "tsv"), (ARRAYS, "npz")):
            stems = kinds.get(name, ())
            paths += [self.folder / f"group_desc-{s}.{suffix}" for s in stems]
        return next((path for path in paths if path.is_file()), None)


_NAMES = (*IMAGES, *TABLES, *ARRAYS, *FILES)
