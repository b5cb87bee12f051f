"""A calibration in words and tables: for terminals, as Markdown and as HTML.

Parts are loaded when they are used: the command line needs `words` alone to start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irtjax.report.audit import audit_page
    from irtjax.report.leaderboard_page import leaderboard
    from irtjax.report.page import report_page, write_page
    from irtjax.report.page_subset import subset_page
    from irtjax.report.summary import flag_counts, summarise
    from irtjax.report.write import write_report

#: Where each name is.
_PLACES = {
    "audit_page": "audit",
    "flag_counts": "summary",
    "leaderboard": "leaderboard_page",
    "report_page": "page",
    "subset_page": "page_subset",
    "summarise": "summary",
    "write_page": "page",
    "write_report": "write",
}
__all__ = [
    "audit_page",
    "flag_counts",
    "leaderboard",
    "report_page",
    "subset_page",
    "summarise",
    "write_page",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_PLACES[name]}")
    return getattr(module, name)
