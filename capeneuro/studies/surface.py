"""What a first study says of series on the surface (CIFTI): its public parcels."""

from collections.abc import Iterable
from pathlib import Path

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.sections import is_cifti
from capeneuro.data import cifti, derivatives

PARCELS = "config/parcels.pscalar.nii"
# Where a parcellation goes that those who begin the study have to choose.
TO_DECIDE = "data/parcels.dlabel.nii"


# Of several series that one, by entity: which parcellation, and what of its parcels.
USUAL = {"seg": ("4S156Parcels",), "atlas": (), "stat": ("mean",), "den": ("91k",)}

# What is said of them where there are volumes too.
BESIDE = "there are also series on the surface (CIFTI), images.series"


def find(places: Iterable[Path]) -> tuple[Path, str] | None:
    """First folder of people with series on the surface; those of parcels go first."""
    places = [place for place in places if place.is_dir()]
    for series in ("parcels", "dense"):
        for place in places:
            if derivatives.candidates(place, series):
                return place, series
    return None


def has_parcels(run: Path) -> bool:
    """Whether a run on the surface has parcels already."""
    return ".ptseries." in run.name


def choose(first: dict[str, Path], base: Path) -> tuple[str, int | None, str]:
    """Name the public parcels of a study: those that the first series has.

    Parameters
    ----------
    first
        A run of each site.
    base
        Folder of the study, which the file of parcels is written into: names and
        places of an atlas, nothing of a person.

    Returns
    -------
    tuple
        For `space.mask`, how many parcels, and why these. None where series are dense
        alone, of which parcels have to be chosen.

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
        return TO_DECIDE, None, why
    n = cifti.write_public(base / PARCELS, run)
    return PARCELS, n, "the parcels of the series: names and places of their atlas"


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
