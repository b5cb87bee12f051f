"""Errors of mean scores by runs, from a table of responses; JAX is not loaded.

`calibration.runs` has the formulas and adds them to a fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data.runs import RunErrors
from irtjax.data.scores import item_ends
from irtjax.data.table import ResponseTable
from irtjax.ranking.accuracy import clusters_of


def run_errors_of(
    table: ResponseTable,
    run_sd: float = 0.0,
    options: Mapping[str, Any] | None = None,
    clusters: np.ndarray | None = None,
) -> np.ndarray:
    """Standard errors `[subjects]` of mean scores, of runs like those of a table.

    Args:
        table: The responses; what its repeated runs show is in its `runs`.
        run_sd: A further standard deviation of a score from run to run, in points:
            hundredths of scores from 0 to 1, else units of the score.
        options: Options of a fit; bounds of scores among them become 0 and 1.
        clusters: Labels `[items]` of clusters over which the errors are that these are
            added to; fewer than `ENOUGH_CLUSTERS` are none.

    Raises:
        ValueError: `run_sd` is negative or not finite.

    >>> run_errors_of(ResponseTable.from_arrays([[1, 0], [1, 1]]), 1.5).tolist()
    [0.015, 0.015]
    """
    unit = 0.01
    if not (options or {}).get("bounds") and table.trials is None:
        seen = table.seen
        unit = 0.01 if 0 <= seen.min(initial=0) <= seen.max(initial=0) <= 1 else 1.0
    stated = np.full(table.num_subjects, check_run_sd(run_sd) * unit)
    runs, benchmarks = runs_of(table, options), table.benchmarks
    if runs is None:
        return stated
    of_items, of_benchmarks = clusters_of(clusters), clusters_of(benchmarks)
    if of_items is not None and of_benchmarks is not None:
        if np.array_equal(of_items, of_benchmarks):
            return np.hypot(stated, runs.common)
    return np.hypot(stated, runs.of_scores(table.stored, benchmarks))


def runs_of(
    table: ResponseTable, options: Mapping[str, Any] | None
) -> RunErrors | None:
    """Errors by runs of a table, in units of the scores of a fit."""
    bounds = (options or {}).get("bounds")
    if table.runs is None or not bounds:
        return table.runs
    low, high = item_ends(bounds, table.benchmarks)
    return table.runs.scaled(high - low, table.benchmarks)


def check_run_sd(run_sd: float | None) -> float:
    """A standard deviation of a score from run to run, in points; 0 for None.

    Raises:
        ValueError: It is negative or not finite.
    """
    run_sd = 0.0 if run_sd is None else float(run_sd)
    if not 0 <= run_sd < np.inf:
        raise ValueError(
            f"run_sd is a standard deviation in points, such as 1.5, not {run_sd:g}"
        )
    return run_sd
