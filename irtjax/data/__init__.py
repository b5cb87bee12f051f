"""Response data: arrays for ``jit``, labelled tables for people, and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irtjax.data.reading.read import read
from irtjax.data.table import ResponseTable

if TYPE_CHECKING:
    from irtjax.data.responses import Responses

__all__ = ["ResponseTable", "Responses", "read"]


def __getattr__(name: str) -> object:
    # Responses needs jax, which takes most of a second to import: only on demand.
    if name == "Responses":
        from irtjax.data.responses import Responses

        return Responses
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
