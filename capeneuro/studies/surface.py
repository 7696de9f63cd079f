"""What a first study says of series on the surface (CIFTI): its public parcels."""

from collections.abc import Iterable
from pathlib import Path

from capeneuro.data import cifti

PARCELS = "config/parcels.pscalar.nii"
# Where a parcellation goes that those who begin the study have to choose.
TO_DECIDE = "data/parcels.dlabel.nii"


def has_parcels(run: Path) -> bool:
    """Whether a run on the surface has parcels already."""
    return ".ptseries." in run.name


def choose(runs: Iterable[Path], base: Path) -> tuple[str, int | None, str]:
    """Name the public parcels of a study: those that the first series has.

    Parameters
    ----------
    runs
        Of all sites, on the surface.
    base
        Folder of the study, which the file of parcels is written into: names and
        places of an atlas, nothing of a person.

    Returns
    -------
    tuple
        For `space.mask`, how many parcels, and why these. None where series are dense
        alone, of which parcels have to be chosen.
    """
    run = next((run for run in runs if has_parcels(run)), None)
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
