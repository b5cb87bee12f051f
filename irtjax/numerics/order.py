"""Ranks and their correlations for small data; `scipy.stats` takes 0.5 s to import."""

from __future__ import annotations

import numpy as np

#: Values up to which all pairs are compared.
FEW = 2000


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 of `[values]`, the mean rank where some are equal.

    >>> average_ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    groups = np.unique(values, return_inverse=True, return_counts=True)
    _, place, count = groups
    return (np.cumsum(count) - (count - 1) / 2)[place.reshape(-1)]


def kendall(first: np.ndarray, second: np.ndarray) -> float:
    """Kendall's tau-b of two orders `[values]`; NaN where one does not vary.

    >>> kendall(np.arange(3.0), np.array([0.0, 2.0, 1.0]))
    0.3333333333333333
    """
    if len(first) > FEW:
        from scipy.stats import kendalltau

        return float(np.asarray(kendalltau(first, second))[0])
    one, other = (np.sign(x[:, None] - x) for x in map(np.asarray, (first, second)))
    total = np.sum(one**2) * np.sum(other**2)
    return float(np.sum(one * other) / total**0.5) if total > 0 else float("nan")


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation of `[values]`.

    >>> spearman(np.arange(3.0), np.array([0.0, 2.0, 1.0]))
    0.5
    """
    return float(np.corrcoef(average_ranks(first), average_ranks(second))[0, 1])
