"""Rare subjects and items, and copies of items, are left out."""

import numpy as np
import pytest

from irtjax.data.cleaning import clean
from irtjax.data.table import ResponseTable


def table_of(subjects=60, items=50, share=0.7):
    """Responses of which some are missing, with rare subjects and items, and copies."""
    rng = np.random.default_rng(0)
    values = (rng.random((subjects, items)) < 0.6).astype(float)
    values[rng.random(values.shape) > share] = np.nan
    values[5:, 0] = np.nan
    values[0, 4:] = np.nan
    values[:, 10] = values[:, 11]
    values[:, 12] = np.where(np.isnan(values[:, 12]), np.nan, 1)
    return ResponseTable.from_arrays(values)


def test_rules_hold_together_and_a_second_time_changes_nothing():
    result = clean(table_of(), min_subjects=30, min_items=20)
    left = result.table
    assert left.num_answered(0).min() >= 30 and left.num_answered(1).min() >= 20
    names = left.items.tolist()
    assert sum(name in names for name in ("item 11", "item 12")) == 1
    again = clean(left, min_subjects=30, min_items=20)
    assert again.report.num_rows == 0
    assert again.table.items.tolist() == names


def test_constant_items_are_no_duplicates():
    values = np.random.default_rng(1).integers(0, 2, (40, 30)).astype(float)
    values[:, :3] = 1
    table = ResponseTable.from_arrays(values)
    assert clean(table, min_items=20).table.num_items == 30
    result = clean(table, min_items=20, drop_constant=True)
    assert result.table.num_items == 27
    assert result.report.to_pylist()[0]["reason"] == "constant"


def test_nothing_left_is_refused():
    with pytest.raises(ValueError, match="nothing is left: each item needs 100"):
        clean(table_of(), min_subjects=100)
