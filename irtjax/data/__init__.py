"""Response data: arrays for ``jit``, labelled tables for people, and readers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irtjax.data.reading.read import read
    from irtjax.data.responses import Responses
    from irtjax.data.table import ResponseTable

_MODULES = {
    "ResponseTable": "irtjax.data.table",
    "Responses": "irtjax.data.responses",
    "read": "irtjax.data.reading.read",
}

__all__ = ["ResponseTable", "Responses", "read"]


def __getattr__(name: str) -> object:
    # Tables need numpy and Responses needs jax: `irtjax --help` is to wait for neither.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
