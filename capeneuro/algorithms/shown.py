"""The line that a notebook shows of a result: names and shapes, no arrays."""

from typing import Any

import numpy as np


def brief(result: Any) -> str:
    """Name a result's fields, arrays by their shapes, without empty ones."""
    parts = []
    for name, value in vars(result).items():
        if isinstance(value, np.ndarray) and value.ndim:
            parts += [f"{name} {value.shape}"] if value.size else []
        elif isinstance(value, float):
            parts += [f"{name} {value:g}"] if np.isfinite(value) else []
        elif isinstance(value, str | int | np.generic | np.ndarray):
            parts += [f"{name} {value}"] if str(value) else []
        else:
            parts.append(f"{name} ({type(value).__name__})")
    return f"{type(result).__name__}: {', '.join(parts)}"
