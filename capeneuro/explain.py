"""Errors of a file, one line each: where, which rule, the value, the remedy."""

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError


def all_errors(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Describe every error that a model found, naming the nearest known key."""
    return [_explain(e, model) for e in error.errors(include_url=False)]


def _explain(error: Any, model: type[BaseModel]) -> str:
    """One line: where, rule, value, remedy."""
    # The kind of a `data` block is no key of the file.
    steps = [str(part) for part in error["loc"] if part not in ("simtb", "painted")]
    where = ".".join(steps) or "study"
    if error["type"] == "union_tag_not_found":
        return f"{where}.kind: required key is missing"
    if error["type"] == "extra_forbidden":
        known = sorted(_keys(model, error["loc"][:-1]))
        near = difflib.get_close_matches(str(error["loc"][-1]), known, 1, 0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        return f"{where}: unknown key; {hint}"
    if error["type"] == "missing":
        return f"{where}: required key is missing"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if isinstance(error["input"], (dict, list)) or error["loc"] == ():
        return message if error["loc"] == () else f"{where}: {message}"
    return f"{where}: {message}, got {error['input']!r}"


def _keys(model: type[BaseModel], path: tuple[Any, ...]) -> set[str]:
    """Known keys at a path of nested models."""
    models: list[Any] = [model]
    for part in path:
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


def one_line(error: Exception) -> str:
    """Text of an error without line breaks."""
    return " ".join(str(error).split())
