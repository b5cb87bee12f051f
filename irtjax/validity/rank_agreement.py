"""Rankings by replicates of a fit: their tables, and how much they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.numerics.order import kendall
from irtjax.ranking.ranks import tied_ranks

if TYPE_CHECKING:
    import pyarrow as pa


def ranks_of(ability: np.ndarray) -> np.ndarray:
    """Ranks `[replicates, subjects]`, 1 the best; equal abilities share the best one.

    Abilities that differ by rounding are equal. NaN where there is none.

    >>> ranks_of(np.array([[0.5, 1.0, 1.0 + 1e-12, np.nan]])).tolist()
    [[3.0, 1.0, 1.0, nan]]
    """
    slack = np.sqrt(np.finfo(ability.dtype).eps)
    ranks = np.full(ability.shape, np.nan)
    for row, values in zip(ranks, ability, strict=True):
        finite = np.isfinite(values)
        row[finite] = tied_ranks(values[finite], slack)
    return ranks


def agreement_of(
    first: np.ndarray, second: np.ndarray, top: int
) -> tuple[float, float]:
    """Kendall's tau-b of two rankings, and the share of the top that they share."""
    finite = np.isfinite(first) & np.isfinite(second)
    if finite.sum() < 2:
        return np.nan, np.nan
    x, y = first[finite], second[finite]
    ahead, other = x <= top, y <= top
    overlap = (ahead & other).sum() / max(ahead.sum(), other.sum())
    return kendall(x, y), float(overlap)


def partners(kind: str, good: np.ndarray) -> np.ndarray:
    """The replicate that each is compared with, -1 for none: each pair once."""
    partner = np.full(len(good), -1)
    if kind == "halves":
        partner[::2] = np.arange(1, len(good), 2)
        usable = good[::2] & good[1::2]
        partner[::2][~usable] = -1
    elif kind not in ("benchmarks", "families"):
        places = np.flatnonzero(good)
        following = np.roll(places, -1)
        if places.size == 2:
            # In a ring of two each would follow the other: one pair, counted twice.
            following[1] = -1
        partner[places] = following
    return partner


def reliability(ability: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """Spearman and Brown's reliability of all items from each pair of halves."""
    pairs = []
    for first in np.flatnonzero(partner >= 0):
        x, y = ability[first], ability[partner[first]]
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.sum() > 2 and np.ptp(x[finite]) > 0 and np.ptp(y[finite]) > 0:
            r = np.corrcoef(x[finite], y[finite])[0, 1]
            pairs.append(2 * r / (1 + r) if r > -1 else np.nan)
    return np.array(pairs or [np.nan])


def interval(name: str, values: np.ndarray, level: float) -> dict[str, Any]:
    """Mean and central `level` of a measure over replicates."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {"measure": name, "mean": None, "lower": None, "upper": None}
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    ends = {"lower": float(low), "upper": float(high)}
    return {"measure": name, "mean": float(finite.mean()), **ends}


def nullable(values: np.ndarray) -> Any:
    """A column in which numbers that are not finite are missing."""
    import pyarrow as pa

    floating = np.issubdtype(values.dtype, np.floating)
    return pa.array(values, mask=~np.isfinite(values) if floating else None)


def ranks_of_fit(fit: Calibration) -> np.ndarray:
    """Ranks from all responses; NaN for subjects without any."""
    # In the precision of the fit, whose rounding `ranks_of` leaves out.
    dtype = np.asarray(fit.parameters.items[0]).dtype
    ability = fit.abilities.table.column("ability").to_numpy().astype(dtype)
    observed = fit.abilities.table.column("observed").to_numpy()
    return ranks_of(np.where(observed > 0, ability, np.nan)[None])[0]


def subject_table(fit, full, ranks, top: int, level: float) -> pa.Table:
    """Ranks of each subject over the replicates, best first."""
    import pyarrow as pa

    finite = np.isfinite(ranks)
    tail = (1 - level) / 2
    # A subject without a rank in any replicate keeps its own.
    filled = np.where(finite.any(axis=0), ranks, full)
    filled = np.where(np.isnan(full), 0, filled)
    low = np.nanquantile(filled, tail, axis=0, method="lower")
    high = np.nanquantile(filled, 1 - tail, axis=0, method="higher")
    count = finite.sum(axis=0)
    count = np.where(count > 0, count, np.nan)
    columns = {
        "subject": np.asarray(fit.subject_names),
        "ability": fit.abilities.table.column("ability").to_numpy(),
        "rank": full,
        "rank_lower": np.minimum(low, full),
        "rank_upper": np.maximum(high, full),
        "share_first": (ranks == 1).sum(axis=0) / count,
        "share_in_top": (ranks <= top).sum(axis=0) / count,
    }
    order = np.lexsort((-columns["ability"], np.nan_to_num(full, nan=np.inf)))
    ranked = ("rank", "rank_lower", "rank_upper")
    made = {k: nullable(v[order]) for k, v in columns.items()}
    return pa.table(made | {k: made[k].cast(pa.int64()) for k in ranked})
