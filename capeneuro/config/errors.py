"""YAML files read as models, with one line for each error in a file.

A line states the place of the error, the broken rule, the value, and a remedy.
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
    """An error in a study file, a site file or the data, with its text for people."""

    lines: tuple[str, ...] = ()
    """Lines of several checks, before equal ones of several files were merged."""


# Lines of one refusal; more of a kind add nothing.
MOST_LINES = 20
# Names in one line.
MOST_NAMES = 10


def some(names: Iterable[str]) -> str:
    """Names in a line, the first of many."""
    names = list(names)
    suffix = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + suffix


def repeated(names: Iterable[str]) -> list[str]:
    """Names that are there more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def check_all(checks: Iterable[Callable[[], object]]) -> None:
    """Run all checks, and raise their errors as one.

    One line a rule: where several files break it in the same way, the line is that of
    the first and names the people of the others.

    Raises
    ------
    ConfigError
        With the lines of all checks that failed.
    """
    lines: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            lines += error.lines or str(error).splitlines()
    if not lines:
        return
    merged = _together(dict.fromkeys(lines))
    if len(merged) > MOST_LINES:
        remainder = f"and {len(merged) - MOST_LINES} more; mend these first"
        merged = [*merged[:MOST_LINES], remainder]
    refused = ConfigError("\n".join(merged))
    refused.lines = tuple(lines)
    raise refused


def _together(lines: Iterable[str]) -> list[str]:
    """Merge lines with the same message for several files into one."""
    files_by_message: dict[str, list[str]] = {}
    for line in lines:
        file, colon, message = line.partition(": ")
        files_by_message.setdefault(message if colon else line, []).append(file)
    merged = []
    for message, files in files_by_message.items():
        line = f"{files[0]}: {message}" if files[0] != message else message
        if n := len(files) - 1:
            owners = dict.fromkeys(map(_person_or_name, files[1:]))
            listed = ", ".join(list(owners)[:MOST_LINES])
            suffix = ", ..." if len(owners) > MOST_LINES else ""
            line += f"; the same of {n} more: {listed}{suffix}"
        merged.append(line)
    return merged


def _person_or_name(file: str) -> str:
    """The person of a file, by its name, or else the file's name."""
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
# Types of plain text, by its first letter [YAML 1.2, core schema].
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
    _full_match = re.compile(f"^(?:{_pattern})$")
    PlainYaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _full_match, [*_first])
# A key of every file of the kind, and of no file of the other kind.
MARKS = {"study": "sites", "site": "name"}
# Values of earlier versions, and their replacements.
GONE = {
    "gradient-as-printed": "it was for a figure of the thesis alone; use gradient",
}
# Forms of values, in the words of YAML.
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
    mistaken_for: str,
    instead: Mapping[str, type[BaseModel]] = MappingProxyType({}),
    common: Path | None = None,
) -> Any:
    """Read a YAML file as a model.

    Parameters
    ----------
    path, model
        The file, and its model.
    kind, mistaken_for
        Nouns for the file, and for another file that people give in its place.
    instead
        Models of files that have a certain key, by key.
    common
        A file, if it exists, whose keys count where ``path`` does not have them.

    Raises
    ------
    ConfigError
        With all its errors, naming the nearest known keys.
    """
    keys, shared = content(path), {}
    if MARKS[mistaken_for] in keys and MARKS.get(kind) not in keys:
        raise ConfigError(
            f"{path}: must be a {kind} file, this is a {mistaken_for} file"
        )
    if common is not None and common.is_file():
        shared = {k: v for k, v in content(common).items() if k not in keys}
    return build(path, model, keys, instead, shared, common)


def build(
    path: Path,
    model: type[BaseModel],
    keys: Mapping[str, Any],
    instead: Mapping[str, type[BaseModel]] = MappingProxyType({}),
    shared: Mapping[str, Any] = MappingProxyType({}),
    common: Path | None = None,
    prefix: str = "",
) -> Any:
    """Make a model from the keys of a file.

    Parameters
    ----------
    path, model, instead, common
        As of :func:`read`.
    keys, shared
        Keys of the file, and of the common one.
    prefix
        Of the keys in errors: the name of the block that has ``keys``.

    Raises
    ------
    ConfigError
        As of :func:`read`.
    """
    model = next((m for key, m in instead.items() if key in keys), model)
    try:
        return model.model_validate({**shared, **keys})
    except ValidationError as error:
        lines = []
        for e in error.errors(include_url=False):
            file = common if e["loc"][:1] and e["loc"][0] in shared else path
            lines.append(f"{file}: {prefix}{_explain(e, model)}")
        lacks = {e["loc"][0] for e in error.errors() if e["type"] == "missing"}
        # A forgotten block makes a study of another kind.
        if model not in instead.values() and {"pca", "ica"} <= lacks:
            blocks = ", ".join(instead)
            lines.append(f"{path}: or one of the blocks {blocks} is missing")
        raise ConfigError("\n".join(lines)) from None


def content(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file; raises :class:`ConfigError` if it is none."""
    try:
        keys = yaml.load(path.read_text("utf-8-sig"), PlainYaml)
    except FileNotFoundError:
        moved = next((p for p in _moved(path) if p.is_file()), None)
        start = "" if path.is_absolute() else f", which starts from {Path.cwd()}"
        hint = f"it is now {moved}" if moved else f"check the path{start}"
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
    if not isinstance(keys, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {keys!r:.40}")
    return keys


def _moved(path: Path) -> list[Path]:
    """Paths of a missing file in other places: example studies have folders."""
    return [
        path.with_suffix("") / "study.yaml",
        *sorted(path.parent.parent.glob(f"*/sites/{path.name}")),
        Path("papers/grids") / path.name,
    ]


def _explain(error: Any, model: type[BaseModel]) -> str:
    """One line: key, rule, value, remedy."""
    # The kind of a block that has several is no key of the file.
    loc = error["loc"]
    # The kind of a block follows the block's name; `rows` is a block, too.
    kinds = [part in KINDS and i > 0 for i, part in enumerate(loc)]
    steps = [
        str(part)
        for part, is_kind in zip(loc, kinds, strict=True)
        if not is_kind and part not in TAGS
    ]
    key = ".".join(steps) or "study"
    if error["type"] == "union_tag_not_found":
        return f"{key}.kind: required key is missing"
    if error["type"] == "union_tag_invalid":
        context = error["ctx"]
        kinds_of_block = context["expected_tags"].replace("'", "")
        return f"{key}.kind: must be of {kinds_of_block}, got {context['tag']!r}"
    if error["type"] == "extra_forbidden":
        names, name = sorted(_keys(model, error["loc"][:-1])), str(error["loc"][-1])
        near = difflib.get_close_matches(name, names, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
        in_list = any(isinstance(part, int) for part in error["loc"])
        homes = [block for block in _names(model) if name in _keys(model, (block,))]
        if homes and not in_list:
            hint = f"it is a key of {' and '.join(sorted(homes))}"
        return f"{key}: unknown key; {hint}"
    if error["type"] == "missing":
        return f"{key}: required key is missing"
    if isinstance(error["input"], str) and error["input"] in GONE:
        gone = error["input"]
        return f"{key}: {gone!r} is no more; {GONE[gone]}"
    message = FORMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    message = message[0].lower() + message[1:]
    if isinstance(error["input"], (dict, list)) or error["loc"] == ():
        return message if error["loc"] == () else f"{key}: {message}"
    return f"{key}: {message}, got {error['input']!r}"


def _keys(model: type[BaseModel], path: tuple[Any, ...]) -> set[str]:
    """Known keys at a path of nested models."""
    models: list[Any] = [model]
    # A place in a list is no key.
    for part in (p for p in path if p not in TAGS and not isinstance(p, int)):
        annotations = [
            m.model_fields[part].annotation for m in models if part in _names(m)
        ]
        models = [m for a in annotations for m in _models(a)] or [
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
