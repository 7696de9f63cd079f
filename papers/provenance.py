"""What a finished cell was made of: its code, its data, the versions, and when.

A cell is stale when the code that it depends on, or a file that it read, is no longer
what it was. Its code is every module of this checkout that its experiment imports, at
any depth of the code and through any number of modules: a digest of each one's syntax
tree, so that comments, docstrings, line breaks and what only type checkers import make
nothing stale, and neither does the wording of errors. Whether a changed line was
reached in that cell is not asked. Versions of libraries make nothing stale.
"""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Packages of the checkout, whose modules are the code.
PACKAGES = ("capeneuro", "papers", "sim")
LIBRARIES = ("numpy", "scipy", "capeneuro")
# Modules that only say what is wrong with a file, which changes no number.
WORDS = {"capeneuro.config.errors"}
# Of SHA-256: enough to tell what changed.
LENGTH = 12


class _Bare(ast.NodeTransformer):
    """Takes off what changes no number: docstrings, and imports for type checkers."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(
            node.value.value, str
        )
        return None if text else node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return node


def short(content: bytes | str) -> str:
    """Digest of text or bytes, its first hexadecimal digits."""
    if isinstance(content, str):
        content = content.encode()
    return hashlib.sha256(content).hexdigest()[:LENGTH]


@functools.cache
def _source(module: str) -> Path | None:
    """File of a module of the checkout, or None if there is none of that name."""
    package, *rest = module.split(".")
    if package not in PACKAGES or not re.fullmatch(r"\w+(\.\w+)*", module):
        return None
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.joinpath(*rest)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@functools.cache
def _parsed(module: str) -> tuple[str, frozenset[str]]:
    """Digest of a module, and the modules of the checkout that it imports.

    A string that is a module's whole name counts as an import: that is how modules are
    named that are looked up when they are needed.
    """
    tree = _Bare().visit(ast.parse(_source(module).read_bytes()))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    # A package's own file is run before any of its modules, so it counts, too.
    parts = {n.rsplit(".", i)[0] for n in names for i in range(n.count(".") + 1)}
    return short(ast.unparse(tree)), frozenset(filter(_source, parts))


def code(module: str) -> dict[str, str]:
    """Digest of every module of the checkout that a module depends on, itself included.

    Parameters
    ----------
    module
        Such as ``papers.cells.ica``.
    """
    found: dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        if name not in found and name not in WORDS:
            found[name], imported = _parsed(name)
            left += imported
    return dict(sorted(found.items()))


def together(parts: Mapping[str, str]) -> str:
    """One digest of many."""
    return short("\n".join(f"{name} {parts[name]}" for name in sorted(parts)))


@functools.cache
def _content(path: Path) -> str:
    return short(path.read_bytes())


_LISTENING: list[tuple[Path, set[Path]]] = []
_HOOKS: list[Any] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _LISTENING or not isinstance(arguments[0], str | bytes):
        return
    path = Path(os.fsdecode(arguments[0])).absolute()
    for folder, opened in _LISTENING:
        if path.is_relative_to(folder):
            opened.add(path)


@contextlib.contextmanager
def files_of(folder: str | None) -> Iterator[dict[str, str]]:
    """Note each file of a folder that is opened; digests are there when the block ends.

    Parameters
    ----------
    folder
        Where a cell's data are; None notes nothing.
    """
    found: dict[str, str] = {}
    if folder is None:
        yield found
        return
    # An audit hook stays for good, so there is one, which hears only while it is asked.
    if _hear not in _HOOKS:
        sys.addaudithook(_hear)
        _HOOKS.append(_hear)
    heard: tuple[Path, set[Path]] = Path(folder).absolute(), set()
    _LISTENING.append(heard)
    try:
        yield found
    finally:
        _LISTENING.remove(heard)
    for path in sorted(filter(Path.is_file, heard[1])):
        found[path.relative_to(heard[0]).as_posix()] = _content(path)


def made_of(module: str, data: Mapping[str, str]) -> dict[str, Any]:
    """What a cell is made of that has just been finished.

    Parameters
    ----------
    module
        Of its experiment.
    data
        From :func:`files_of`.
    """
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in LIBRARIES}
    return {
        "code": code(module),
        "data": dict(data),
        "versions": versions,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def changed(made: Mapping[str, Any], module: str, folder: str | None) -> list[str]:
    """Name what a finished cell was made of that is no longer the same.

    Parameters
    ----------
    made
        From :func:`made_of`; empty of a cell that was finished before there was one.
    module
        Of its experiment.
    folder
        Where its data are. A file that is not here cannot be compared: not named.
    """
    if not made:
        return ["not known what it was made of"]
    now, data = code(module), made["data"]
    found = [name for name in now if made["code"].get(name) != now[name]]
    found += [f"{name} (no longer used)" for name in made["code"] if name not in now]
    here = {name: Path(folder or ".", name) for name in data}
    return found + [
        name
        for name, path in here.items()
        if path.is_file() and _content(path.absolute()) != data[name]
    ]
