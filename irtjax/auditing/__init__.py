"""Auditing benchmarks: which items are bad, with false discoveries under control."""

from irtjax.auditing.agreement import ItemsToRead, items_to_read
from irtjax.auditing.audit import Audit, audit
from irtjax.auditing.control import permuted
from irtjax.auditing.examine import SEEN, TESTED
from irtjax.auditing.properties import (
    PROPERTIES,
    benchmark_difficulty,
    benchmark_ranks,
    item_properties,
)
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.tetrachoric import tetrachoric, tetrachoric_of_counts

__all__ = [
    "PROPERTIES",
    "SEEN",
    "TESTED",
    "Audit",
    "ItemsToRead",
    "audit",
    "benchmark_difficulty",
    "benchmark_ranks",
    "benjamini_hochberg",
    "item_properties",
    "items_to_read",
    "permuted",
    "tetrachoric",
    "tetrachoric_of_counts",
]
