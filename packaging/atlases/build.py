"""Make the wheel of capeneuro-atlases from a folder of its data, without a network.

    python packaging/atlases/build.py FOLDER [--out dist] [--commercial]

The data are no part of the repository. Each file of ``atlases.tsv`` must be in FOLDER
with the checksum that the table has; anything else in FOLDER is left out.
``--commercial`` leaves out what may not be used for profit. The same files make the
same wheel, to the byte.
"""

import argparse
import base64
import hashlib
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).parent
sys.path.insert(0, str(SOURCE))

import capeneuro_atlases as package  # noqa: E402

VERSION = "0.1.0"
NAME = f"capeneuro_atlases-{VERSION}"
METADATA = """Metadata-Version: 2.1
Name: capeneuro-atlases
Version: {version}
Summary: Public atlases of brain networks, each with source, licence and checksum
License: Code: BSD-3-Clause. Data: {licences}
Requires-Python: >=3.11
"""
WHEEL = """Wheel-Version: 1.0
Generator: capeneuro-atlases build.py
Root-Is-Purelib: true
Tag: py3-none-any
"""
ENTRY_POINTS = """[capeneuro.atlases]
public = capeneuro_atlases:path
"""


def main() -> None:
    """Check the data, write the wheel, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--commercial", action="store_true")
    options = parser.parse_args()
    try:
        print(build(options.folder, options.out, options.commercial))
    except ValueError as error:
        parser.exit(2, f"{error}\n")


def build(folder: Path, out: Path, commercial: bool = False) -> Path:
    """Write the wheel of the data in a folder.

    Parameters
    ----------
    folder
        Where the files of the table are.
    out
        Where the wheel goes.
    commercial
        Whether data that may not be used for profit are left out.

    Raises
    ------
    ValueError
        If a file is missing or is not the table's.
    """
    atlases = [
        row
        for row in package.atlases().values()
        if not (commercial and row.noncommercial)
    ]
    sums = {row.file: row.sha256 for row in atlases}
    sums |= {row.labels: row.labels_sha256 for row in atlases}
    contents: dict[str, bytes] = {}
    for name, expected in sorted(sums.items()):
        file = folder / name
        if not file.is_file():
            raise ValueError(
                f"{file}: must be there, is missing; take the whole folder"
            )
        if package.sha256(file) != expected:
            raise ValueError(
                f"{file}: must have the sha256 {expected}, got {package.sha256(file)}; "
                "take the file that atlases.tsv describes"
            )
        contents[f"capeneuro_atlases/data/{name}"] = file.read_bytes()
    for file in (SOURCE / "capeneuro_atlases").iterdir():
        if file.is_file():
            contents[f"capeneuro_atlases/{file.name}"] = file.read_bytes()
    licences = "; ".join(sorted({row.licence for row in atlases}))
    info = f"{NAME}.dist-info"
    texts = {
        "METADATA": METADATA.format(version=VERSION, licences=licences),
        "WHEEL": WHEEL,
        "entry_points.txt": ENTRY_POINTS,
    }
    contents |= {f"{info}/{name}": text.encode() for name, text in texts.items()}
    lines = [
        f"{name},sha256={_digest(content)},{len(content)}"
        for name, content in contents.items()
    ]
    record = f"{info}/RECORD"
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            # A date of its own would make each wheel another.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def _digest(content: bytes) -> str:
    """Checksum as wheels have it."""
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
