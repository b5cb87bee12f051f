"""A calibration in words and tables: for terminals and as Markdown."""

from irtjax.report.audit import audit_page
from irtjax.report.leaderboard import leaderboard
from irtjax.report.summary import flag_counts, summarise
from irtjax.report.write import write_report

__all__ = ["audit_page", "flag_counts", "leaderboard", "summarise", "write_report"]
