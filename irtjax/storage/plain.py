"""Values as JSON has them; JAX is not loaded."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Returns a value for strict JSON, with None for each number that is not finite.

    >>> plain({"a": float("nan"), "b": (1, np.float32(0.5)), "c": np.arange(2)})
    {'a': None, 'b': [1, 0.5], 'c': [0, 1]}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, IntEnum):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    is_array = type(value).__module__.startswith(("jax", "numpy"))
    if is_array or isinstance(value, np.generic):
        return plain(np.asarray(value).tolist())
    return str(value)
