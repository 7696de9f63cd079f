"""Files of a study that are not images: features, results, tables, pages.

Every file is written under a temporary name and renamed, so none is ever half there.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config import ConfigError


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: image writers choose the format by it.
    temporary = path.with_name(f".part-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def keep_private() -> None:
    """Make `private/` its owner's alone, whoever made it."""
    folder = Path("private")
    folder.mkdir(exist_ok=True, mode=0o700)
    with suppress(PermissionError):  # another user's, who decides
        folder.chmod(0o700)


class Features(Mapping[str, np.ndarray]):
    """Features of each person in a file, read one at a time.

    Parameters
    ----------
    path
        File written by :func:`write_features`.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._arrays = np.load(path)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            raise ConfigError(f"{path}: not readable; run `prepare` again") from None
        meta = json.loads(str(self._arrays[".meta"]))
        self.n_samples: dict[str, int] = meta["n_samples"]
        self.digest: str = meta["digest"]

    def __getitem__(self, subject: str) -> np.ndarray:
        return self._arrays[subject]

    def __iter__(self) -> Iterator[str]:
        return iter(self.n_samples)

    def __len__(self) -> int:
        return len(self.n_samples)


def write_features(path: Path, subjects: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write features person by person; one is held in memory at a time."""
    digest = hashlib.sha256()
    n_samples: dict[str, int] = {}
    with atomic(path) as part, zipfile.ZipFile(part, "w") as archive:

        def add(name: str, array: np.ndarray) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, array)

        for subject, X in subjects:
            add(subject, X)
            n_samples[subject] = X.shape[1]
            digest.update(subject.encode() + X.tobytes())
        meta = {"n_samples": n_samples, "digest": digest.hexdigest()}
        add(".meta", np.array(json.dumps(meta)))


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write named arrays and numbers (npz)."""
    with atomic(path) as part, open(part, "wb") as f:
        np.savez(f, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays (npz).

    Raises
    ------
    ConfigError
        If the file is missing or damaged.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        raise ConfigError(f"{path}: not readable; run the step before again") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic(path) as part:
        part.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_table(path: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a tab-separated table."""
    lines = ["\t".join(map(str, row)) for row in [header, *rows]]
    write_text(path, "\n".join(lines) + "\n")
