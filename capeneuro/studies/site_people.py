"""A site's people, prepared one by one: here, or by several jobs of a cluster.

Each of these jobs prepares a part of the people and stores what it has of each in a
file, so that a job which is killed goes on at the next person. A last job gathers them.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import ThreadpoolController

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.report import progress

# A person's features, and what else the site keeps of them: numbers, words and lists.
Prepared = tuple[np.ndarray, Any]
Source = TypeVar("Source")


@dataclass(frozen=True)
class SitePeople:
    """People of a site: everybody, or the part of one job.

    Parameters
    ----------
    folder
        Folder of people's files, private; None: nothing is stored.
    key
        Digest of all that features are made from; files of another one are not used.
    part, n_parts
        Number of this job, from 1, of those that prepare the site; 0: it gathers.
    threads
        People at a time, each in a process of its own.
    """

    folder: Path | None = None
    key: str = ""
    part: int = 0
    n_parts: int = 1
    threads: int = 1

    def share(self, people: Mapping[str, Source]) -> dict[str, Source]:
        """People of this job: everybody, or every ``n_parts``-th."""
        names = list(people)
        chosen = names[self.part - 1 :: self.n_parts] if self.part else names
        return {name: people[name] for name in chosen}

    def prepared(
        self,
        people: Mapping[str, Source],
        prepare: Callable[[str, Source], Prepared],
        title: str,
        has_files: Callable[[str], bool] = lambda _: True,
    ) -> Iterator[tuple[str, np.ndarray, Any]]:
        """Prepare people, in their order and as they come: few are in memory at a time.

        Parameters
        ----------
        people
            Of this job, see :meth:`share`.
        prepare
            Makes the features of a person, given the name and the value of ``people``.
        title
            Of the progress bar.
        has_files
            Whether the files that ``prepare`` writes of a person, by name, are there:
            Snakemake removes what a job that failed has written.

        Yields
        ------
        tuple
            Name, features, and what else the site keeps.
        """
        stored = {n for n in people if self._is_stored(n) and has_files(n)}
        work = Parallel(self.threads, return_as="generator")
        compute = partial(self._compute, Path.cwd(), prepare)
        computed = work(
            delayed(compute)(name, people[name])
            for name in people
            if name not in stored
        )
        for name in progress.bar(people, title):
            person = self._read(name) if name in stored else next(computed)
            yield name, *(person or compute(name, people[name]))

    def store(
        self,
        people: Mapping[str, Source],
        prepare: Callable[[str, Source], Prepared],
        title: str,
    ) -> None:
        """Prepare the people of a part, and store them for the job that gathers."""
        for _ in self.prepared(people, prepare, title):
            pass

    def end(self) -> None:
        """Write the file of a part that is done, or remove the files of all parts."""
        if self.part:
            text = f"{self.part} of {self.n_parts} parts of the people is prepared\n"
            files.write_text(self.folder / part_name(self.part, self.n_parts), text)
        elif self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _compute(
        self,
        folder: Path,
        prepare: Callable[[str, Source], Prepared],
        name: str,
        source: Source,
    ) -> Prepared:
        """Prepare one person, in a process that may have been started elsewhere."""
        os.chdir(folder)
        with _one_thread():  # or the last digits depend on the machine
            X, notes = prepare(name, source)
        if self.part:
            text = np.array(json.dumps(notes))
            files.write_arrays(self._path(name), features=X, notes=text)
        return X, notes

    def _is_stored(self, name: str) -> bool:
        """Whether a job before has stored a person, of the same data and keys."""
        return self.folder is not None and self._path(name).is_file()

    def _read(self, name: str) -> Prepared | None:
        """Read a stored person; None where a lost node left half of the file."""
        try:
            arrays = files.read_arrays(self._path(name))
            return arrays["features"], json.loads(str(arrays["notes"]))
        except (ConfigError, KeyError, ValueError):
            return None

    def _path(self, name: str) -> Path:
        """File of a person; its name is a digest, since any letter may be in theirs."""
        digest = hashlib.sha256(f"{self.key} {name}".encode()).hexdigest()
        return self.folder / f"{digest[:32]}.npz"


# All of them, and nothing is stored.
EVERYBODY = SitePeople()


# Found by the number of modules at that time: a new module may bring a new library.
_libraries: dict[int, ThreadpoolController] = {}


def _one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread.

    Libraries are looked for once: to find them takes longer than a row of a table.
    """
    n_modules = len(sys.modules)
    if n_modules not in _libraries:
        _libraries.clear()
        _libraries[n_modules] = ThreadpoolController()
    return _libraries[n_modules].limit(limits=1)


def part_name(part: int | str, n_parts: int) -> str:
    """Name of the file of a part that is done."""
    return f"part-{part}-of-{n_parts}"


def parse_part(text: str) -> tuple[int, int]:
    """Read the number of a part and of all parts, as in ``3/8``.

    Raises
    ------
    ConfigError
        If it is none.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part, n_parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= n_parts:
        raise ConfigError(f"--part: must be one of several, such as 3/8, got {text!r}")
    return part, n_parts
