"""The record of a method that is trained."""

from __future__ import annotations

import dataclasses
from typing import Any


def plain_settings(method: Any) -> dict[str, Any]:
    """Fields of a method that are numbers, names, or tuples of these.

    >>> from irtjax.estimators.neural.vibo import VIBO
    >>> plain_settings(VIBO(hidden=(8, 4)))["hidden"]
    [8, 4]
    """
    plain = (bool, int, float, str, tuple)
    values = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if isinstance(value, plain)
    }
