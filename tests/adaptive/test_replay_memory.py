"""Replayed responses that do not fit are refused before their matrix is made."""

import jax
import numpy as np
import pytest

import irtjax
from irtjax.data.sparse_table import SparseCells
from irtjax.numerics import memory


@pytest.mark.slow
def test_responses_that_do_not_fit_are_refused(monkeypatch):
    rng = np.random.default_rng(0)
    values = (rng.random((40, 6)) < 0.5).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "rasch", standard_errors="none")
    cells = SparseCells.of([0, 0, 1], [1, 5, 0], [1, 0, 1], (50, 6))
    few = irtjax.ResponseTable.from_cells(cells, subjects=range(50), items=table.items)
    monkeypatch.setattr(memory, "available_memory", lambda: 3000.0)
    monkeypatch.setattr(SparseCells, "dense", property(lambda cells: 1 / 0))
    message = "^replayed responses of 50 subjects to 6 items: .*: select fewer subjects"
    with pytest.raises(ValueError, match=message):
        irtjax.simulate_tests(fit, key=jax.random.key(0), replay=few, num_items=2)
