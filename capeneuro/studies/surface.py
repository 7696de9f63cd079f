"""`capeneuro init --from` of series on the surface (CIFTI): their public parcels."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.sections import is_cifti
from capeneuro.data import cifti, derivatives

PARCELS = "config/parcels.pscalar.nii"
# The user puts a parcellation here where series have no parcels.
TO_DECIDE = "data/parcels.dlabel.nii"

# By entity the labels that are taken where there are several: parcellation, statistic.
USUAL = {"seg": ("4S156Parcels",), "atlas": (), "stat": ("mean",), "den": ("91k",)}
# For a note where a folder also has volumes.
BESIDE = "there are also series on the surface (CIFTI), images.series"


class Parcels(NamedTuple):
    """Public parcels of a study on the surface."""

    mask: str
    """For `space.mask`."""
    number: int | None
    """Number of parcels; None: the user has to choose a parcellation."""
    why: str
    """Why these, for a comment in the study file."""


def find(folders: Iterable[Path]) -> tuple[Path, str] | None:
    """Find the first folder with series on the surface; parcels before dense ones."""
    folders = [folder for folder in folders if folder.is_dir()]
    for series in ("parcels", "dense"):
        for folder in folders:
            if derivatives.candidates(folder, series):
                return folder, series
    return None


def has_parcels(run: Path) -> bool:
    """Whether a run on the surface has parcels already."""
    return ".ptseries." in run.name


def choose(first: dict[str, Path], base: Path) -> Parcels:
    """Choose the parcels of the first series that has parcels, and write them.

    Parameters
    ----------
    first
        A run of each site.
    base
        Folder of the study, for the file of parcels: names and places of an atlas,
        nothing of a person.

    Raises
    ------
    ConfigError
        If sites have series of different kinds.
    """
    if voxels := [name for name, run in first.items() if not is_cifti(run)]:
        raise ConfigError(
            f"--from: series of {some(set(first) - set(voxels))} are on the surface "
            f"(CIFTI), and those of {some(voxels)} volumes; all sites need the same"
        )
    run = next((run for run in first.values() if has_parcels(run)), None)
    if run is None:
        why = "DECIDE: a public parcellation (.dlabel.nii) of these grayordinates"
        return Parcels(TO_DECIDE, None, why)
    n = cifti.write_public(base / PARCELS, run)
    why = "the parcels of the series: names and places of their atlas"
    return Parcels(PARCELS, n, why)


def space_text(mask: str, why: str, features: int | None) -> str:
    """The space block of a study file."""
    n = f", {features} of them" if features else ""
    return f"""\
space:
  # {why[0].upper() + why[1:]}.
  mask: {mask}
  # Means over these parcels are the features{n}; dense series (.dtseries.nii)
  # and series of parcels (.ptseries.nii) both become that. Fewer have less noise.
  basis: parcels"""
