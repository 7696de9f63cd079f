"""Pages that are written from others: the command line, every key, and every figure.

The site's build (`conf.py`) calls `write`; the pages are not kept in the repository.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from capeneuro import cli
from capeneuro.config import load
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.explain import default_of, form_of, models_in
from capeneuro.config.rows import RowStudy
from capeneuro.config.sections import key_texts
from capeneuro.config.site import SiteConfig
from capeneuro.config.stages import StagedStudy
from capeneuro.config.study import StudyConfig

COMMANDS = """# Command line

Every command, with its options and their defaults, as `capeneuro COMMAND --help` says
them. A command exits with 0 when done, 2 on bad input, 3 when a budget or a forecast is
refused and 1 on failure, and says why in one line.
"""
KEYS = """# Study files and site files

Every key, with its form, its default and its meaning, as `capeneuro explain KEY` prints
it. `capeneuro init` writes those that must be decided. Units stand in brackets, such as
[mm]. Unknown keys are errors that name the nearest known one. Paths are relative to the
folder where commands run.
"""
FIGURES = """# Every figure

All figures of these pages, each with the page that explains it. Those of the results
are made by `papers/Snakefile` and `evidence/truth/`, the parts of reports by
`docs/gallery.py`.
"""
# What each part of the page is about, and the models whose own keys it has.
PARTS: list[tuple[str, type[BaseModel]]] = [
    ("Keys of every study", StudyConfig),
    ("Studies of components", ComponentsConfig),
    ("Studies of rows: one row for each person", RowStudy),
    *((f"Studies with a block `{name}`", model) for name, model in load.KINDS.items()),
    ("Studies of several stages", StagedStudy),
    ("Site files", SiteConfig),
]


def escaped(text: str) -> str:
    """Text of a docstring as Markdown: signs outside of backticks are signs."""
    parts = re.split(r"(``?[^`]+``?)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([<*_\\])", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", "".join(parts))


def entry(term: str, *texts: str) -> str:
    """One item of a definition list."""
    return f"{term}\n: " + "\n\n  ".join(filter(None, texts)) + "\n"


def _is_command(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Items of a command's arguments."""
    for action in parser._actions:
        if _is_command(action) or action.help == argparse.SUPPRESS:
            continue
        value = action.metavar or action.dest.upper()
        names = ", ".join(action.option_strings) or action.dest
        if action.option_strings and action.nargs != 0:
            values = f"{{{','.join(action.choices)}}}" if action.choices else value
            names += f" {values}" + ("..." if action.nargs in ("+", "*") else "")
        elif action.choices:
            names = f"{{{','.join(action.choices)}}}"
        default = (
            action.default if action.default not in (None, False, "", [], ()) else ""
        )
        said = " (required)" if action.required and action.option_strings else ""
        if isinstance(default, list):
            default = " ".join(default)
        said = f" (default {default})" if default != "" and action.nargs != 0 else said
        yield entry(f"`{names}`", escaped(action.help or "which, as above") + said)


def commands(parser: argparse.ArgumentParser, common: set[str]) -> Iterator[str]:
    """Sections of all commands below a parser."""
    for action in filter(_is_command, parser._actions):
        helps = {a.dest: a.help for a in action._choices_actions}
        for name, command in action.choices.items():
            depth = "#" * len(command.prog.split())
            yield f"{depth} `{command.prog}`\n"
            paragraphs = (command.description or helps.get(name) or "").split("\n\n")
            yield "\n\n".join(map(escaped, paragraphs)) + "\n"
            own = [item for item in options(command) if item not in common]
            yield "\n".join(own)
            if command.epilog:
                yield f"```text\n{command.epilog.removeprefix('example: ')}\n```\n"
            yield from commands(command, common)


def command_line() -> str:
    """The page of the command line."""
    top = cli.parser()
    every = next(filter(_is_command, top._actions)).choices.values()
    common = set.intersection(*(set(options(command)) for command in every))
    shown = [item for item in options(next(iter(every))) if item in common]
    about = ["## Every command\n", "\n".join(shown)]
    return "\n".join([COMMANDS, *about, *commands(top, common)])


def anchor(model: type[BaseModel]) -> str:
    """Where a block is explained: rooms have blocks of the same name."""
    return f"{model.__module__.split('.')[-1]}-{model.__name__}".lower()


def linked(words: str, model: type[BaseModel]) -> str:
    """Words for a block, with a link to where it is explained."""
    return f"[{words}](#{anchor(model)})"


def block(
    path: str, model: type[BaseModel], without: set[str], shown: set[str]
) -> Iterator[str]:
    """A block's keys, then those of the blocks in it that were not shown before."""
    schema, texts = model.model_json_schema()["properties"], key_texts(model)
    inside = []
    for name, field in model.model_fields.items():
        if name in without:
            continue
        inner = list(dict.fromkeys(models_in(field.annotation)))
        form = form_of(schema[name], inner, linked)
        facts = f"*{form}; {default_of(field)}*"
        text = texts.get(name) or ("" if not inner else inner[0].__doc__ or "")
        yield entry(f"`{path}{name}`", facts, escaped(text))
        inside += [(f"{path}{name}", each) for each in inner]
    for where, each in inside:
        if anchor(each) in shown:
            continue
        shown.add(anchor(each))
        yield f"({anchor(each)})=\n### `{where}`\n"
        about = (each.__doc__ or "").split("\n\n")
        yield "\n\n".join(map(escaped, about)) + "\n"
        yield from block(f"{where}.", each, set(), shown)


def configuration() -> str:
    """The page of study files and site files."""
    lines, shown = [KEYS], set()
    for title, model in PARTS:
        above = {name for base in model.__mro__[1:] for name in _keys(base)}
        lines += [
            f"## {title}\n",
            escaped((model.__doc__ or "").split("\n\n")[0]) + "\n",
        ]
        lines += block("", model, above, shown)
    return "\n".join(lines)


def _keys(model: type) -> set[str]:
    return set(getattr(model, "model_fields", ()))


def figures(folder: Path) -> str:
    """The page of all figures that pages show, small, below the page's title."""
    parts = [FIGURES]
    for page in sorted(folder.glob("*.md")):
        text = page.read_text()
        shown = re.findall(r"^!\[([^]]+)\]\((figures/[^)]+)\)", text, re.MULTILINE)
        if not shown or page.name.startswith("reference-"):
            continue
        title = text.partition("\n")[0].removeprefix("# ")
        parts.append(f"## [{title}]({page.name})\n")
        for words, path in shown:
            options = f":alt: {words}\n:width: 420px\n:target: {page.stem}.html"
            parts.append(f"```{{figure}} {path}\n{options}\n\n{words}\n```\n")
    return "\n".join(parts)


def write(folder: Path) -> None:
    """Write the pages where Sphinx reads them; one that is as it was stays."""
    pages = {"reference-cli.md": command_line(), "reference-config.md": configuration()}
    pages["reference-figures.md"] = figures(folder)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
