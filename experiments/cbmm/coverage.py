"""Coverage of the intervals of joint and marginal fits by the number of items."""

from __future__ import annotations

from typing import Any

import numpy as np

import irtjax
from experiments.cbmm.designs import simulated
from experiments.cbmm.simulations import Scale
from experiments.coverage.adaptive import compare

Row = dict[str, Any]
METHODS = ("mm", "em")
#: Columns of the tables of a fit with the truth of each.
QUANTITIES = ("ability", "discrimination", "intercept")


def coverage(scale: Scale) -> list[Row]:
    """Shares of 95 % intervals of `irtjax.fit` that hold the truth, 2PL.

    Errors of a joint fit are those of the marginal likelihood at its estimates.
    """
    rows: list[Row] = []
    for columns in scale.sizes:
        for seed in scale.seeds:
            drawn = simulated(scale.fixed, columns, seed)
            table = irtjax.ResponseTable.from_arrays(drawn.values)
            for method in scale.chosen(METHODS):
                fit: Any = irtjax.fit(table, "2pl", method)
                row: Row = {"rows": scale.fixed, "columns": columns, "replicate": seed}
                row |= {"method": method, "status": fit.status.name}
                rows.append(row | _covered(fit, drawn.truth))
    return rows


def _covered(fit: Any, truth: Any) -> Row:
    """Of each quantity: squared errors, squared stated ones, and coverage."""
    items, theta = truth
    true = theta, items.discrimination, items.intercept
    tables = fit.abilities.table, fit.items.table, fit.items.table
    row: Row = {}
    for name, table, value in zip(QUANTITIES, tables, true, strict=True):
        gap = table[name].to_numpy() - np.asarray(value)
        error = table[f"{name}_se"].to_numpy()
        row |= compare(name, gap, error)
    return row
