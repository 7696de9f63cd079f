"""A YAML file read as a model, and what is wrong with it: one line for each error.

A line says where the error is, which rule it breaks, the value, and a remedy.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from capeneuro.config.names import stated


class ConfigError(Exception):
    """Something in a study file, a site file or the data is wrong; the text says it."""

    each: tuple[str, ...] = ()
    """Of several checks what each said, before the same of many files became one."""


# Lines of one refusal; more of a kind tell nothing new.
MOST_LINES = 20
# Names in one line.
MOST_NAMES = 10


def some(names: Iterable[str]) -> str:
    """Names in a line, the first of many."""
    names = list(names)
    rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + rest


def repeated(names: Iterable[str]) -> list[str]:
    """Names that are there more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Run all checks; what they refuse is told at once.

    One line a rule: where several files break it in the same way, the line is that of
    the first and names whose the others are.

    Raises
    ------
    ConfigError
        With what every check that failed says.
    """
    lines: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            lines += error.each or str(error).splitlines()
    if not lines:
        return
    shown = _together(dict.fromkeys(lines))
    if len(shown) > MOST_LINES:
        rest = f"and {len(shown) - MOST_LINES} more; mend these first"
        shown = [*shown[:MOST_LINES], rest]
    refused = ConfigError("\n".join(shown))
    refused.each = tuple(lines)
    raise refused


def _together(lines: Iterable[str]) -> list[str]:
    """One line of those that say the same of several files."""
    of: dict[str, list[str]] = {}
    for line in lines:
        where, colon, what = line.partition(": ")
        of.setdefault(what if colon else line, []).append(where)
    found = []
    for what, places in of.items():
        line = f"{places[0]}: {what}" if places[0] != what else what
        if n := len(places) - 1:
            others = dict.fromkeys(map(_whose, places[1:]))
            shown = ", ".join(list(others)[:MOST_LINES])
            rest = ", ..." if len(others) > MOST_LINES else ""
            line += f"; the same of {n} more: {shown}{rest}"
        found.append(line)
    return found


def _whose(file: str) -> str:
    """The person that a file is of, or its name."""
    return stated(Path(file)) or Path(file).name


class RepeatedKey(Exception):
    """A key stands twice in one block; YAML would take the last one silently."""


class PlainYaml(yaml.SafeLoader):
    """Read YAML 1.2: no octal or sexagesimal numbers, `no` is text, keys are unique.

    A number that begins with 0, such as the label 010 of a person, stays text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """Build one block."""
        keys = [key.value for key, _ in node.value if key.tag != _MERGE]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise RepeatedKey(
                    f"{key}: stands {keys.count(key)} times in the block from line "
                    f"{line}; keep one"
                )
        return super().construct_mapping(node, deep)


_MERGE = "tag:yaml.org,2002:merge"
# What plain text becomes, by its first letter [YAML 1.2, core schema].
PlainYaml.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
        "-+.0123456789",
    ),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _whole = re.compile(f"^(?:{_pattern})$")
    PlainYaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _whole, [*_first])
# A key that every file of its kind has, and none of the other.
MARKS = {"study": "sites", "site": "name"}
# Values that are no more, and what is there instead.
GONE = {
    "gradient-as-printed": "it was for a figure of the thesis alone; take gradient",
}
# What a value has to look like, in the words of YAML.
LIST, BLOCK = "must be a list", "must be a block of keys and values"
FORMS = {"tuple_type": LIST, "list_type": LIST, "model_type": BLOCK, "dict_type": BLOCK}
FORMS["float_parsing"] = "must be a number, with a point as in 1.5"
FORMS["string_pattern_mismatch"] = (
    "must be letters, digits, - and _, the first of them a letter or digit"
)
FORMS["path_type"] = "must be the path of a file"
FORMS["int_parsing"] = FORMS["int_from_float"] = "must be a whole number"
# Kinds of blocks that have a key `kind`.
KINDS = ("simtb", "painted", "linked", "maps", "erp", "table", "runs", "components")
KINDS += ("bands", "rows", "recorded")
# Forms of a key that has several; no keys either.
TAGS = ("as-text", "as-list", "as-block", "as-table", "as-numbers", "as-words")


def read(
    path: Path,
    model: type[BaseModel],
    kind: str,
    other: str,
    instead: Mapping[str, type[BaseModel]] = MappingProxyType({}),
    common: Path | None = None,
) -> Any:
    """Read a YAML file as a model.

    Parameters
    ----------
    path, model
        The file, and what it must be.
    kind, other
        What it is called, and what it is mistaken for.
    instead
        What it must be if it has a certain key, by key.
    common
        A file whose keys count where ``path`` does not have them, if it is there.

    Raises
    ------
    ConfigError
        With all its errors, naming the nearest known keys.
    """
    own, shared = content(path), {}
    if MARKS[other] in own and MARKS.get(kind) not in own:
        raise ConfigError(f"{path}: must be a {kind} file, this is a {other} file")
    if common is not None and common.is_file():
        shared = {k: v for k, v in content(common).items() if k not in own}
    return build(path, model, own, instead, shared, common)


def build(
    path: Path,
    model: type[BaseModel],
    own: Mapping[str, Any],
    instead: Mapping[str, type[BaseModel]] = MappingProxyType({}),
    shared: Mapping[str, Any] = MappingProxyType({}),
    common: Path | None = None,
    where: str = "",
) -> Any:
    """Make a model of what a file says.

    Parameters
    ----------
    path, model, instead, common
        As of :func:`read`.
    own, shared
        What the file says, and what the common one does.
    where
        Before the keys in errors: the block that ``own`` is.

    Raises
    ------
    ConfigError
        As of :func:`read`.
    """
    model = next((m for key, m in instead.items() if key in own), model)
    try:
        return model.model_validate({**shared, **own})
    except ValidationError as error:
        lines = []
        for e in error.errors(include_url=False):
            file = common if e["loc"][:1] and e["loc"][0] in shared else path
            lines.append(f"{file}: {where}{_explain(e, model)}")
        lacks = {e["loc"][0] for e in error.errors() if e["type"] == "missing"}
        # A forgotten block makes a study of another kind.
        if model not in instead.values() and {"pca", "ica"} <= lacks:
            blocks = ", ".join(instead)
            lines.append(f"{path}: or one of the blocks {blocks} is missing")
        raise ConfigError("\n".join(lines)) from None


def content(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file; raises :class:`ConfigError` if it is none."""
    try:
        found = yaml.load(path.read_text("utf-8-sig"), PlainYaml)
    except FileNotFoundError:
        moved = next((p for p in _moved(path) if p.is_file()), None)
        here = "" if path.is_absolute() else f", which starts from {Path.cwd()}"
        hint = f"it is now {moved}" if moved else f"check the path{here}"
        raise ConfigError(f"{path}: file not found; {hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name the file in it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except RepeatedKey as error:
        raise ConfigError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path}: not a YAML file: must be text in UTF-8; save it so"
        ) from None
    except yaml.YAMLError as error:
        text = " ".join(str(error).split())
        if "character '\\t'" in text:
            text = f"indent with blanks, not with tabs: {text}"
        elif "\u00a0" in path.read_text("utf-8-sig"):
            text = f"blanks must be plain ones, some are not: type them anew: {text}"
        else:
            text += "; mend that line, or the indent of it or of the line before"
        raise ConfigError(f"{path}: not a YAML file: {text}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {found!r:.40}")
    return found


def _moved(path: Path) -> list[Path]:
    """Where a file may lie that is not at its path: example studies have folders."""
    return [
        path.with_suffix("") / "study.yaml",
        *sorted(path.parent.parent.glob(f"*/sites/{path.name}")),
        Path("papers/grids") / path.name,
    ]


def _explain(error: Any, model: type[BaseModel]) -> str:
    """One line: where, rule, value, remedy."""
    # The kind of a block that has several is no key of the file.
    loc = error["loc"]
    # A kind of block stands behind the block's name; `rows` is a block, too.
    kinds = [part in KINDS and i > 0 for i, part in enumerate(loc)]
    steps = [
        str(part)
        for part, is_kind in zip(loc, kinds, strict=True)
        if not is_kind and part not in TAGS
    ]
    where = ".".join(steps) or "study"
    if error["type"] == "union_tag_not_found":
        return f"{where}.kind: required key is missing"
    if error["type"] == "union_tag_invalid":
        about = error["ctx"]
        known, got = about["expected_tags"].replace("'", ""), about["tag"]
        return f"{where}.kind: must be of {known}, got {got!r}"
    if error["type"] == "extra_forbidden":
        known, name = sorted(_keys(model, error["loc"][:-1])), str(error["loc"][-1])
        near = difflib.get_close_matches(name, known, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        if homes := [key for key in _names(model) if name in _keys(model, (key,))]:
            hint = f"it is a key of {' and '.join(sorted(homes))}"
        return f"{where}: unknown key; {hint}"
    if error["type"] == "missing":
        return f"{where}: required key is missing"
    if isinstance(error["input"], str) and error["input"] in GONE:
        gone = error["input"]
        return f"{where}: {gone!r} is no more; {GONE[gone]}"
    message = FORMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    message = message[0].lower() + message[1:]
    if isinstance(error["input"], (dict, list)) or error["loc"] == ():
        return message if error["loc"] == () else f"{where}: {message}"
    return f"{where}: {message}, got {error['input']!r}"


def _keys(model: type[BaseModel], path: tuple[Any, ...]) -> set[str]:
    """Known keys at a path of nested models."""
    models: list[Any] = [model]
    for part in (part for part in path if part not in TAGS):
        found = [m.model_fields[part].annotation for m in models if part in _names(m)]
        models = [m for a in found for m in _models(a)] or [
            m for m in models if part in str(m.model_fields.get("kind", ""))
        ]
    return {name for m in models for name in _names(m)}


def _names(model: Any) -> set[str]:
    return set(getattr(model, "model_fields", ()))


def _models(annotation: Any) -> list[Any]:
    """Models inside an annotation, through unions and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in getattr(annotation, "__args__", ()) for m in _models(a)]
