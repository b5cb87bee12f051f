"""A calibration in words and tables: for terminals, as Markdown and as HTML."""

from irtjax.report.audit import audit_page
from irtjax.report.leaderboard import leaderboard
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
