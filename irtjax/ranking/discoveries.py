"""Control of the false discovery rate."""

from __future__ import annotations

import numpy as np


def benjamini_hochberg(p_value: np.ndarray) -> np.ndarray:
    """Adjusted p-values that control the false discovery rate.

    With the m values in order, min over k >= i of m p_(k) / k (Benjamini and Hochberg
    1995). If those at or below q are called significant, the expected share of false
    ones among them is at most q; if every null hypothesis is true, so is the chance of
    any. NaN is no test, and stays NaN.

    >>> benjamini_hochberg(np.array([0.01, 0.04, np.nan, 0.9])).round(2).tolist()
    [0.03, 0.06, nan, 0.9]
    """
    p_value = np.asarray(p_value, np.float64)
    adjusted = np.full(p_value.shape, np.nan)
    finite = np.flatnonzero(np.isfinite(p_value))
    order = finite[np.argsort(p_value[finite], kind="stable")]
    scaled = p_value[order] * finite.size / np.arange(1, finite.size + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1)
    return adjusted
