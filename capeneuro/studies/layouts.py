"""Where projects and programs that do not follow BIDS keep preprocessed runs."""

from pathlib import Path
from typing import NamedTuple

from capeneuro.config.errors import ConfigError


class Layout(NamedTuple):
    """How a project or program names its preprocessed runs."""

    name: str
    patterns: tuple[str, ...]
    """Below the site's folder; the first of which there is a file is taken."""
    note: str = ""
    """For the user: how these runs were preprocessed."""
    is_denoised: bool = False
    """Whether noise was removed from these runs before."""
    why_not: str = ""
    """Why these files cannot be read as they are, and the remedy; empty: they can."""


class Selection(NamedTuple):
    """Preprocessed runs in a folder of a known layout."""

    images: str
    """Pattern of their files, for `images` of a site file."""
    notes: list[str]
    is_denoised: bool


# Of each run: beside them may lie `rfMRI_REST`, all of a person's in one.
_HCP = "*/MNINonLinear/Results/rfMRI_REST[0-9]*/rfMRI_REST[0-9]*"
_HCP_ALL = "*/MNINonLinear/Results/rfMRI_REST/rfMRI_REST"
_CLEANED = ("hp0_clean_rclean_tclean", "hp2000_clean_rclean_tclean", "hp2000_clean")
_CLEANED += ("hp0_clean",)
_ALIGNED = ("_MSMAll", "")  # by areas, else by folds
LAYOUTS = (
    Layout(
        "the Human Connectome Project",
        (
            *(f"{_HCP}_{how}.nii.gz" for how in _CLEANED),
            *(f"{_HCP_ALL}_{how}.nii.gz" for how in _CLEANED),
        ),
        "these runs are cleaned by ICA-FIX: no confounds are taken out again",
        is_denoised=True,
    ),
    Layout(
        "the Human Connectome Project",
        tuple(
            f"{runs}_Atlas{aligned}_{how}.dtseries.nii"
            for runs in (_HCP, _HCP_ALL)
            for aligned in _ALIGNED
            for how in _CLEANED
        ),
        "these runs are cleaned by ICA-FIX: no confounds are taken out again",
        is_denoised=True,
    ),
    Layout(
        "the Human Connectome Project",
        (f"{_HCP}[LRAP].nii.gz",),
        "no cleaned runs (*_clean.nii.gz) are here: these have their motion in them",
    ),
    Layout(
        "UK Biobank",
        ("*/fMRI/rfMRI.ica/reg_standard/filtered_func_data_clean.nii.gz",),
        "these runs are cleaned by ICA-FIX: no confounds are taken out again",
        is_denoised=True,
    ),
    Layout(
        "UK Biobank",
        ("*/fMRI/rfMRI.ica/filtered_func_data_clean.nii.gz",),
        why_not="its runs are in each person's own space; warp them first to the "
        "standard one (applywarp with reg/example_func2standard_warp.nii.gz), into "
        "fMRI/rfMRI.ica/reg_standard/",
    ),
    Layout(
        "UK Biobank",
        ("*_20227_*_*.zip",),
        why_not="these are its bulk files; unzip each into a folder of its own name",
    ),
    Layout(
        "CONN",
        ("**/niftiDATA_Subject*_Condition000.nii*",),
        "these runs are denoised by CONN: no confounds are taken out again",
        is_denoised=True,
    ),
    Layout(
        "SPM",
        ("**/dsw*.nii*", "**/dw*.nii*", "**/swa*.nii*", "**/sw*.nii*", "**/wa*.nii*"),
        "taken by SPM's prefixes (d denoised, s smoothed, w warped); for others "
        "change the pattern in `images` of the site files",
    ),
    Layout(
        "a program that writes CIFTI",
        ("**/*.ptseries.nii", "**/*.dtseries.nii"),
        "taken by what they end with; narrow `images` if one scan is there twice",
    ),
)


def find(folder: Path) -> Selection | None:
    """Find runs of a known layout in a folder; None if it has none.

    Raises
    ------
    ConfigError
        If the layout is known, and its files cannot be read as they are.
    """
    for layout in LAYOUTS:
        for pattern in layout.patterns:
            if not any(folder.glob(pattern)):
                continue
            if layout.why_not:
                raise ConfigError(
                    f"--from: {folder}: looks like {layout.name}: {layout.why_not}"
                )
            note = f"looks like {layout.name}: took {pattern}"
            notes = [note, *filter(None, [layout.note])]
            return Selection(f"{folder}/{pattern}", notes, layout.is_denoised)
    return None
