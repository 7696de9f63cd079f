"""Names of people and files: one name for one person, however it is written.

Names come from file systems, spreadsheets and people's fingers, which differ in letter
case, in the code of a letter with an accent, in invisible signs.
"""

import re
import unicodedata
from pathlib import Path, PurePath

# Hyphens and dashes of all lengths, and the minus sign, of which word processors make
# one from a plain hyphen.
DASHES = "[\u2010-\u2015\u2212]"
# Ending that a spreadsheet appends to a whole number.
OF_FLOATS = r"\.0*$"
# Position of the person in paths of projects without BIDS.
LAYOUTS = {
    "the Human Connectome Project": (
        r"(?:^|/)([^/]+?)(?:_V\d+)?(?:_MR|_[37]T)?/MNINonLinear/"
    ),
    "UK Biobank": r"(?:^|/)(\d{7})(?:_\d+_\d+_\d+)?/fMRI/",
    "UK Biobank's bulk files": r"(?:^|/)(\d{7})_\d{5}_\d+_\d+[^/]*$",
    "CONN": r"niftiDATA_(Subject\d+)_Condition\d+",
    "PhysioNet": r"(?:^|/)(S\d{3})R\d{2}\.[^/]*$",
    "Sleep-EDF": r"(?:^|/)((?:SC4|ST7)\d\d)\d[A-Z][A-Z0-9](?:-PSG)?\.[^/]*$",
    "the Temple University Hospital": r"(?:^|/)([a-z]{8})_s\d{3}_t\d{3}[._][^/]*$",
}
# Text before a label: nothing, a separator, or SPM's prefixes.
BEFORE = r"(?:^[a-z]{0,6}|[^a-z0-9])"
# Label in a name: letters and digits as BIDS has it, or all up to the next entity.
LABEL = rf"(?i){BEFORE}sub-([a-z0-9]+)"
END_OF_LABEL = r"_[a-z]+-|_[a-z][a-z0-9]*$|-(?:epo|raw|eeg|ave)$|\.|$"
WHOLE_LABEL = rf"(?i){BEFORE}sub-(.+?)(?={END_OF_LABEL})"
# Label of a folder; C-PAC adds the session, and FSL and AFNI an ending.
BEHIND_LABEL = r"_(?:ses|task|acq|dir|run|echo|rec)-.*|\+*\.(?:g?feat|ica|results)"
FOLDER_LABEL = rf"(?i)sub-(.+?)(?:{BEHIND_LABEL})?"
# Endings of names of EEG, which state the content of a file and not its person.
OF_EEG = r"(?i)[-_](eeg|epo|raw)$"
FORMATS = r"(\.[dp](tseries|scalar))?\.nii(\.gz)?$"  # CIFTI has its kind before
FORMATS += r"|\.(hdr|img|edf|bdf|vhdr|set|fif|xdfz?|csv|tsv)(\.gz)?$|\.[^.]*$"


def tidy(text: str) -> str:
    """Normalize a text: composed letters, plain hyphens, no invisible signs."""
    if text.isascii():
        return text.strip()
    seen = "".join(sign for sign in text if unicodedata.category(sign) != "Cf")
    return re.sub(DASHES, "-", unicodedata.normalize("NFC", seen)).strip()


def label(person: str) -> str:
    """The name of a person without `sub-`."""
    return re.sub("^(?i:sub)-", "", tidy(person))


def plain(person: str) -> str:
    """Reduce a person's name to a form that is the same for all ways to write it.

    That is the label without letter case, kinds of digits and separators, leading
    zeros, and the decimals that spreadsheets append: `sub-01`, `SUB_1` and `1.0` are
    `1`.
    """
    text = unicodedata.normalize("NFKC", label(person)).casefold()
    text = re.sub(r"[\W_]+", "-", re.sub(OF_FLOATS, "", text)).strip("-")
    text = re.sub(r"^sub-?(?=.)", "", text)
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def stem(file: PurePath) -> str:
    """Name of a file without its format."""
    return re.sub(FORMATS, "", file.name, count=1, flags=re.IGNORECASE)


def folder_label(folder: str) -> str | None:
    """Label of a person in a folder's name; None: it has none."""
    match = re.fullmatch(FOLDER_LABEL, tidy(folder))
    return match and match[1]


def repeats(name: str, person: str) -> bool:
    """Whether a name of a file has a certain label."""
    has = rf"(?i){BEFORE}sub-{re.escape(person)}(?![A-Za-z0-9])"
    return re.search(has, tidy(name)) is not None


def stated(file: PurePath) -> str | None:
    """Person in a file's path; None: it has none.

    The nearest folder `sub-<label>` counts first, if the name has no other label, then
    the label in the name, then the positions in :data:`LAYOUTS`.
    """
    name, labels = tidy(stem(file)), map(folder_label, reversed(file.parts[:-1]))
    outer, inner = next(filter(None, labels), None), re.search(WHOLE_LABEL, name)
    if outer and (inner is None or repeats(name, outer)):
        return f"sub-{outer}"
    return f"sub-{inner[1]}" if inner else by_layout(file)


def by_layout(file: PurePath) -> str | None:
    """Person in a path of one of the :data:`LAYOUTS`; None: it has none."""
    matches = (re.search(layout, file.as_posix()) for layout in LAYOUTS.values())
    return next((match[1] for match in matches if match), None)


def name_of(file: Path | str) -> str:
    """Person of a file by its path: the stated person, or the file's name."""
    path = PurePath(file)
    return stated(path) or re.sub(OF_EEG, "", tidy(stem(path)))
