"""How plainly the package is written: vague names, riddles, bundles by position.

    python tests/tools/language.py          a line for each room, and all
    python tests/tools/language.py FILE...  every place in these files

A name of :data:`VAGUE` does not say what a variable holds, a docstring that begins with
words of :data:`RIDDLES` mostly avoids the field's noun, and ``f(*name)`` hides which
argument is which. The words are a list to think with: where one is right, keep it. The
ceilings are those of five code bases that are read with pleasure, and only fall.
"""

import ast
import re
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "capeneuro"
VAGUE = {
    *("about", "asked", "at", "both", "done", "drawn", "each", "found", "given"),
    *("held", "here", "kept", "known", "left", "looked", "made", "more", "one"),
    *("other", "others", "own", "rest", "said", "same", "shown", "taken", "them"),
    *("there", "these", "told", "what", "where", "who", "whole", "whom", "whose"),
}
RIDDLES = re.compile(
    r"\b(what|who|whom|whoever|such|so many|of these|told|tells|said|says)\b", re.I
)


class Place(NamedTuple):
    """A place that reads badly."""

    line: int
    kind: str
    """``name``, ``docstring`` or ``bundle``."""
    text: str


class Language(NamedTuple):
    """How many names, docstrings and lines there are, and which places read badly."""

    n_names: int
    n_docstrings: int
    n_lines: int
    places: list[Place]

    def percent(self, kind: str) -> float:
        """Share of names or docstrings, in percent; bundles in 1000 lines."""
        n = sum(place.kind == kind for place in self.places)
        if kind == "bundle":
            return 1000 * n / max(self.n_lines, 1)
        return 100 * n / max(self.n_names if kind == "name" else self.n_docstrings, 1)


def read(source: str) -> Language:
    """Read the names, docstrings and calls of a module."""
    n_names, n_docstrings, places = 0, 0, []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.Name):
            is_bound = isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store)
            name = node.arg if isinstance(node, ast.arg) else node.id
            if is_bound:
                n_names += name not in ("self", "cls")
                if name.strip("_") in VAGUE:
                    places.append(Place(node.lineno, "name", name))
        elif isinstance(node, ast.Call):
            places += [
                Place(node.lineno, "bundle", f"*{argument.value.id}")
                for argument in node.args
                if isinstance(argument, ast.Starred)
                and isinstance(argument.value, ast.Name)
            ]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name.strip("_") in VAGUE:
                places.append(Place(node.lineno, "name", f"def {node.name}"))
            if docstring := ast.get_docstring(node):
                n_docstrings += 1
                first = docstring.strip().split("\n")[0]
                if RIDDLES.search(first):
                    places.append(Place(node.lineno, "docstring", first))
    return Language(n_names, n_docstrings, source.count("\n"), places)


def together(languages: Iterable[Language]) -> Language:
    """Add up the counts of several modules."""
    names, docstrings, lines, places = zip(*languages, strict=True)
    every_place = list(chain.from_iterable(places))
    return Language(sum(names), sum(docstrings), sum(lines), every_place)


def main(paths: list[str]) -> None:
    """Print the places of these files, or a line for each room of the package."""
    for path in paths:
        for place in sorted(read(Path(path).read_text()).places):
            print(f"{path}:{place.line}: {place.kind}: {place.text}")
    if paths:
        return
    rooms = sorted({path.parent for path in PACKAGE.rglob("*.py")})
    folders = {
        str(room.relative_to(PACKAGE.parent)): room.glob("*.py") for room in rooms
    }
    folders["all"] = PACKAGE.rglob("*.py")
    print(f"{'room':32} {'lines':>6} {'names':>7} {'docstrings':>10} {'bundles':>8}")
    for room, files in folders.items():
        language = together(read(path.read_text()) for path in files)
        print(
            f"{room:32} {language.n_lines:6} {language.percent('name'):6.1f}% "
            f"{language.percent('docstring'):9.1f}% {language.percent('bundle'):8.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
