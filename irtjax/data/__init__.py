"""Response data: arrays for ``jit``, labelled tables for people, and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.data.reading.read import read
    from irtjax.data.responses import Responses
    from irtjax.data.table import ResponseTable

__all__ = ["ResponseTable", "Responses", "read"]

# Tables need numpy and Responses needs jax: `irtjax --help` is to wait for neither.
__getattr__ = loader(
    __name__,
    {
        "irtjax.data.reading.read": "read",
        "irtjax.data.responses": "Responses",
        "irtjax.data.table": "ResponseTable",
    },
)
