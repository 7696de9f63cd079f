"""What each key of a study file or site file is: its form, its default, its meaning.

All of it is read from the models that check these files.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import key_texts

BOUNDS = {
    "exclusiveMinimum": "above {:g}",
    "minimum": "at least {:g}",
    "exclusiveMaximum": "below {:g}",
    "maximum": "at most {:g}",
}
FORMS = {
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "null": "null",
    "string": "text",
    "object": "block",
}
FORMATS = {"path": "path", "date": "date"}


class Key(NamedTuple):
    """A key of a file."""

    path: str
    """Its name after those of the blocks that it is in, such as `budget.epsilon`."""
    form: str
    """What its values look like, in words."""
    default: str
    """Its default in words, or that it is required."""
    text: str
    """Its meaning."""


def keys(model: type[BaseModel], within: str = "") -> Iterator[Key]:
    """All keys of a file, those of blocks after the block.

    Parameters
    ----------
    model
        Model of the file, or of a block of it.
    within
        Path of the block, with a dot at its end.
    """
    schema, texts = model.model_json_schema()["properties"], key_texts(model)
    for name, field in model.model_fields.items():
        blocks = list(dict.fromkeys(models_in(field.annotation)))
        text = texts.get(name) or ("" if not blocks else blocks[0].__doc__ or "")
        form = form_of(schema[name], blocks)
        yield Key(f"{within}{name}", form, default_of(field), " ".join(text.split()))
        for block in blocks:
            yield from keys(block, f"{within}{name}.")


def find(models: Sequence[type[BaseModel]], name: str) -> list[Key]:
    """Keys of a name, or whose path ends with it, in files of some kinds.

    Raises
    ------
    ConfigError
        If there is none, with the nearest names.
    """
    every = {key: None for model in models for key in keys(model)}
    named = [key for key in every if key.path == name]
    named = named or [key for key in every if key.path.endswith(f".{name}")]
    if named:
        return named
    endings = {key.path.split(".")[-1] for key in every} | {k.path for k in every}
    near = difflib.get_close_matches(name, sorted(endings), 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ConfigError(f"{name}: is no key of these files{hint}")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that an annotation names, in their order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def form_of(
    schema: dict[str, Any],
    blocks: Sequence[type[BaseModel]],
    name_of: Callable[[str, type[BaseModel]], str] = lambda words, _: words,
) -> str:
    """Describe the values that a key may have.

    Parameters
    ----------
    schema
        JSON schema of the value.
    blocks
        Models of blocks that it may be.
    name_of
        Function of the words for a block and its model to those that are written.
    """
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        model = next(block for block in blocks if name.endswith(block.__name__))
        kind = model.model_fields.get("kind")
        which = f" of kind `{get_args(kind.annotation)[0]}`" if kind else ""
        return name_of(f"block{which}", model)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            forms = (form_of(option, blocks, name_of) for option in schema[choice])
            return " or ".join(dict.fromkeys(forms))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return f"{len(schema['prefixItems'])} numbers"
        return f"list, each: {form_of(schema.get('items', {}), blocks, name_of)}"
    if values := _values(schema):
        return f"names, each with: {form_of(values, blocks, name_of)}"
    words = FORMATS.get(schema.get("format", ""), FORMS.get(kind, "any value"))
    bounds = [text.format(schema[b]) for b, text in BOUNDS.items() if b in schema]
    return " ".join([words, " and ".join(bounds)]).strip()


def _values(schema: dict[str, Any]) -> dict[str, Any]:
    """Schema of the values of a block whose keys are names; empty: keys are fixed."""
    patterns = list(schema.get("patternProperties", {}).values())
    free = schema.get("additionalProperties")
    return patterns[0] if patterns else free if isinstance(free, dict) else {}


def default_of(field: FieldInfo) -> str:
    """The default of a key, as a file would have it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "default: its own defaults"
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()
    return f"default `{text}`"
