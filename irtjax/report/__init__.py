"""A calibration in words and tables: for terminals, as Markdown and as HTML.

Parts are loaded when they are used: the command line needs `words` alone to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.report.audit import audit_page
    from irtjax.report.leaderboard_page import leaderboard
    from irtjax.report.page import report_page, write_page
    from irtjax.report.page_subset import subset_page
    from irtjax.report.summary import flag_counts, summarise
    from irtjax.report.write import write_report

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

__getattr__ = loader(
    __name__,
    {
        "irtjax.report.audit": "audit_page",
        "irtjax.report.leaderboard_page": "leaderboard",
        "irtjax.report.page": "report_page write_page",
        "irtjax.report.page_subset": "subset_page",
        "irtjax.report.summary": "flag_counts summarise",
        "irtjax.report.write": "write_report",
    },
)
