"""A site's people, prepared one by one: here, or by several jobs of a cluster.

Each of these jobs prepares a part of the people and stores what it has of each in a
file, so that a job which is killed goes on at the next person. A last job gathers them.
Small features that took long stay in their files for the next time.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from joblib import Parallel, delayed

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.report import progress
from capeneuro.studies.threads import one_thread

# Seconds after which small features are worth a file of their own, and their bytes.
SLOW, LARGEST_KEPT = 0.1, 2**20
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
    key_without_people
        Makes a digest of all that features are made from but people's own files, for
        people whose files :meth:`prepared` is told.
    stores_all
        Whether everybody is stored until all are done, as in a part; else those whose
        files it is told, where that pays.
    lasting
        Files of people that stay when all are done.
    """

    folder: Path | None = None
    key: str = ""
    part: int = 0
    n_parts: int = 1
    threads: int = 1
    key_without_people: Callable[[], str] = str
    stores_all: bool = False
    lasting: set[Path] = field(default_factory=set, compare=False, repr=False)

    def names(self, people: Iterable[str]) -> list[str]:
        """Names of the people of this job: everybody, or every ``n_parts``-th."""
        names = list(people)
        return names[self.part - 1 :: self.n_parts] if self.part else names

    def share(self, people: Mapping[str, Source]) -> dict[str, Source]:
        """People of this job."""
        return {name: people[name] for name in self.names(people)}

    def prepared(
        self,
        people: Mapping[str, Source],
        prepare: Callable[[str, Source], Prepared],
        title: str,
        has_files: Callable[[str], bool] = lambda _: True,
        state_of: Callable[[Source], str] | None = None,
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
        state_of
            Makes a digest of one person's files from the value of ``people``. With it,
            small features that took long stay stored, so that a job that is killed
            goes on at the next person, and a person who is added or withdrawn later
            costs nobody else's time.

        Yields
        ------
        tuple
            Name, features, and what else the site keeps.
        """
        lasts = self.folder is not None and state_of is not None
        paths = dict.fromkeys(people)
        if lasts:
            key = self.key_without_people()
            paths = {n: self._path(f"{key} {state_of(people[n])}", n) for n in people}
        elif self.folder is not None:
            paths = {name: self._path(self.key, name) for name in people}
        if lasts and not self.part:
            # Privacy: of a person who is withdrawn nothing stays, whatever fails here.
            self._remove_others({*paths.values()})
        is_stored = {n for n in people if self._is_stored(paths[n]) and has_files(n)}
        work = Parallel(self.threads, return_as="generator")
        stores = "all" if self.part or self.stores_all else "slow" if lasts else ""
        compute = partial(_compute, Path.cwd(), prepare, stores)
        computed = work(
            delayed(compute)(name, people[name], paths[name])
            for name in people
            if name not in is_stored
        )
        for name in progress.bar(people, title):
            person = self._read(paths[name]) if name in is_stored else next(computed)
            X, notes = person or compute(name, people[name], paths[name])
            if lasts and X.nbytes <= LARGEST_KEPT:
                self.lasting.add(paths[name])
            yield name, X, notes

    def store(
        self,
        people: Mapping[str, Source],
        prepare: Callable[[str, Source], Prepared],
        title: str,
        has_files: Callable[[str], bool] = lambda _: True,
        state_of: Callable[[Source], str] | None = None,
    ) -> None:
        """Prepare the people of a part, and store them for the job that gathers."""
        for _ in self.prepared(people, prepare, title, has_files, state_of):
            pass

    def end(self) -> None:
        """Write the file of a part that is done, or remove files that do not stay."""
        if self.part:
            text = f"{self.part} of {self.n_parts} parts of the people is done\n"
            files.write_text(self.folder / part_name(self.part, self.n_parts), text)
        elif self.folder is not None and self.folder.is_dir():
            self._remove_others(self.lasting)
            for path in self.folder.glob(part_name("*", "*")):
                path.unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _remove_others(self, current: set[Path | None]) -> None:
        """Remove files of people but those that are current."""
        for path in {*self.folder.glob("*.npz")} - current:
            path.unlink(missing_ok=True)

    def _is_stored(self, path: Path | None) -> bool:
        """Whether a job before has stored a person, of the same data and keys."""
        return path is not None and path.is_file()

    def _read(self, path: Path) -> Prepared | None:
        """Read a stored person; None where a lost node left half of the file."""
        try:
            arrays = files.read_arrays(path)
            return arrays["features"], json.loads(str(arrays["notes"]))
        except (ConfigError, KeyError, ValueError):
            return None

    def _path(self, made_from: str, name: str) -> Path:
        """File of a person; its name is a digest, since any letter may be in theirs."""
        digest = hashlib.sha256(f"{made_from} {name}".encode()).hexdigest()
        return self.folder / f"{digest[:32]}.npz"


def _compute(
    folder: Path,
    prepare: Callable[[str, Source], Prepared],
    stores: Literal["all", "slow", ""],
    name: str,
    source: Source,
    path: Path | None,
) -> Prepared:
    """Prepare one person, in a process that may have been started elsewhere."""
    os.chdir(folder)
    start = time.process_time()
    with one_thread():  # or the last digits depend on the machine
        X, notes = prepare(name, source)
    took_long = time.process_time() - start > SLOW
    if stores == "all" or (stores and took_long and X.nbytes <= LARGEST_KEPT):
        files.write_arrays(path, features=X, notes=np.array(json.dumps(notes)))
    return X, notes


# All of them, and nothing is stored.
EVERYBODY = SitePeople()


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
