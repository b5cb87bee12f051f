"""A calibration in words and tables: for terminals and as Markdown."""

from irtjax.report.audit import (
    audit_page,
    audit_rows,
    benchmark_quality_rows,
    discriminating_sentence,
)
from irtjax.report.leaderboard import leaderboard
from irtjax.report.summary import flag_counts, summarise
from irtjax.report.write import write_report

__all__ = [
    "audit_page",
    "audit_rows",
    "benchmark_quality_rows",
    "discriminating_sentence",
    "flag_counts",
    "leaderboard",
    "summarise",
    "write_report",
]
