"""The tables of an audit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.auditing.examine import (
    DISCRIMINATES,
    SEEN,
    TESTED,
    ItemStatistics,
    column_of,
)
from irtjax.auditing.properties import (
    PROPERTIES,
    benchmark_difficulty,
    benchmark_ranks,
    group_means,
)
from irtjax.calibration.tables import number_column
from irtjax.data import ResponseTable
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.classical import Classical
from irtjax.validity.missing_matrix import MissingByAbility
from irtjax.validity.tetrachoric import solve_tables


def _names(places: np.ndarray, names: np.ndarray) -> pa.Array:
    """A column of names; null where the place is -1."""
    chosen = [str(names[k]) if k >= 0 else None for k in places.tolist()]
    return pa.array(chosen, pa.string())


def item_table(
    table: ResponseTable,
    statistics: ItemStatistics,
    decided,
    flags,
    missing: MissingByAbility,
    level: float,
) -> pa.Table:
    """One row per item; docs/columns.md defines the columns."""
    c, groups = statistics.classical, statistics.groups
    blank = np.full(table.num_items, np.nan)
    q_zero = benjamini_hochberg(c.p_zero)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist(), pa.string()),
        "benchmark": pa.array(table.benchmarks.tolist(), pa.string()),
        "flags": pa.array(_flag_texts(flags), pa.string()),
        "observed": pa.array(c.observed.astype(np.int64)),
        "missing": pa.array(missing.missing),
        "missing_difference": number_column(missing.difference),
        "missing_more_for": pa.array(missing.more_for(level).tolist(), pa.string()),
        "p_missing": number_column(missing.p_value),
        "q_missing": number_column(missing.q_value),
        "accuracy": number_column(_accuracy(c)),
        **{name: number_column(statistics.properties[name]) for name in PROPERTIES},
        "chance_of_strongest": number_column(statistics.properties["chance"]),
        "item_rest": number_column(c.item_rest),
        "biserial": number_column(c.biserial),
        "tetrachoric": number_column(solve_tables(np.stack(c.rest_table))),
        "alpha_without": number_column(c.alpha_without),
        "infit": number_column(statistics.residuals.infit),
        "outfit": number_column(statistics.residuals.outfit),
        "s_x2": number_column(blank if groups is None else groups.s_x2),
        "s_x2_degrees": number_column(blank if groups is None else groups.degrees),
        "lower_asymptote": number_column(statistics.asymptotes.estimate),
        "surprises": pa.array(statistics.residuals.surprises.astype(np.int64)),
        "surprises_expected": number_column(statistics.residuals.surprises_expected),
        "q3": number_column(statistics.partners.q3),
        "q3_partner": _names(statistics.partners.partner, table.items),
        "duplicate_of": _names(statistics.duplicates.twin, table.items),
        "p_zero_discrimination": number_column(c.p_zero),
        "q_zero_discrimination": number_column(q_zero),
        DISCRIMINATES: pa.array(
            np.nan_to_num(q_zero, nan=1.0) <= level, mask=~np.isfinite(q_zero)
        ),
    }
    p_values = statistics.p_values()
    for defect in TESTED:
        name = column_of(defect)
        columns[name] = number_column(p_values[defect])
        columns["q" + name[1:]] = number_column(decided[defect][0])
    return pa.table(columns)


def _accuracy(c: Classical) -> np.ndarray:
    """Share of right responses of each item; NaN without responses."""
    return np.where(c.observed > 0, c.right / np.maximum(c.observed, 1), np.nan)


def _flag_texts(flags: dict[str, np.ndarray]) -> list[str]:
    """Defects of each item, as text."""
    names = (*TESTED, *SEEN)
    rows = np.stack([flags[name] for name in names], axis=1)
    return ["; ".join(itertools.compress(names, row)) for row in rows]


def _difficulties(
    statistics: ItemStatistics, codes: np.ndarray, size: int
) -> np.ndarray:
    """Difficulties `[benchmarks]`; in the order of accuracy if nothing is missing."""
    c, fitted = statistics.classical, statistics.fitted
    share = (c.right + statistics.residuals.missing_expected) / fitted.ability.size
    share = group_means(np.where(c.observed > 0, share, np.nan), codes, size)
    answers = np.bincount(codes, c.observed, size)
    varied = np.isfinite(c.item_rest)
    slopes = statistics.properties["discrimination"][varied]
    slope = float(np.median(slopes)) if slopes.size else 1.0
    sd = np.sqrt(fitted.ability.var() + np.mean(fitted.error**2))
    ability = float(fitted.ability.mean()), float(sd)
    return benchmark_difficulty(share, answers, slope, ability, fitted.probit)


def benchmark_table(
    table: ResponseTable, statistics: ItemStatistics, flags
) -> pa.Table:
    """One row per benchmark, the best sum of ranks first."""
    names, codes = np.unique(table.benchmarks, return_inverse=True)
    size = len(names)
    count = np.bincount(codes, minlength=size)
    difficulty = _difficulties(statistics, codes, size)
    ranks = benchmark_ranks(statistics.properties, codes, size, difficulty)
    accuracy = _accuracy(statistics.classical)
    columns: dict[str, Any] = {
        "benchmark": pa.array([str(name) for name in names], pa.string()),
        "items": pa.array(count),
        "accuracy": number_column(group_means(accuracy, codes, size)),
        **{name: number_column(values) for name, values in ranks.items()},
        "item_rest": number_column(
            group_means(statistics.classical.item_rest, codes, size)
        ),
    }
    for name in (*TESTED, *SEEN):
        share = np.bincount(codes, flags[name], size) / count
        columns["share_" + name.replace(" ", "_")] = number_column(share)
    out = pa.table(columns)
    return out.take(pa.array(np.argsort(ranks["rank_total"], kind="stable")))
