"""Tests of all pairs of many subjects without visiting the pairs.

Two subjects differ by the variance r_i^2 + r_j^2 + |u(t_i) - u(t_j)|^2, in the symbols
of `irtjax.ranking.mixture`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irtjax.ranking.mixture import Mixture, histogram

#: Classes of errors. With 16 the critical z differs from that of all pairs by less
#: than 0.001 at 3,000 subjects.
CLASSES = 16
#: Points at which mean loadings are compared.
LOADING_POINTS = 512
#: Where the errors leave too many decisive subjects, only the one of smallest error
#: within this share of a critical difference is compared.
SLOT = 0.002
#: Subjects compared pair by pair without that.
MOST_PLACES = 4000


def pair_counter(theta: np.ndarray, mixture: Mixture) -> Callable[[float], float]:
    """Returns the function z -> number of pairs at least z standard errors apart."""
    pairs = theta.size * (theta.size - 1) / 2
    frame = mixture.start, mixture.spacing, len(mixture.above)
    levels, counts = histogram(theta, mixture.local_residual, *frame, CLASSES)
    occupied = np.flatnonzero(counts.sum(axis=0))
    counts = counts[:, occupied[0] : occupied[-1] + 1]
    points = np.arange(counts.shape[1], dtype=np.float64)
    below = np.cumsum(counts, axis=1) - counts / 2
    apart, centres = None, points
    if mixture.local_loading is not None:
        step = max(1, counts.shape[1] // LOADING_POINTS)
        centres = points[step // 2 :: step]
        near = mixture.local_loading[occupied[0] + centres.astype(np.int64)]
        square = np.sum(near**2, axis=1)
        apart = np.maximum(square[:, None] + square - 2 * near @ near.T, 0)
    variances = levels[:, None] ** 2 + levels**2

    def count(z: float) -> float:
        gaps = z * np.sqrt(variances[..., None]) / mixture.spacing
        if apart is not None:
            gaps = _gaps(z, variances.ravel(), apart, centres, mixture.spacing)
            gaps = gaps.reshape(*variances.shape, -1)
        total = 0.0
        for higher, row in zip(counts, gaps, strict=True):
            for cumulative, gap in zip(below, row, strict=True):
                if apart is not None:
                    gap = np.interp(points, centres, gap)
                end = np.interp(points - gap, points, cumulative, left=0.0)
                total += float(higher @ end)
        return min(total, pairs)

    return count


def _gaps(z: float, variances, apart, centres, spacing: float) -> np.ndarray:
    """How far below each point abilities begin to differ, `[variances, points]`."""
    # An ability d below differs once d^2 / z^2, less what the loadings add to the
    # variance, reaches the variance of the two residual errors.
    gaps = np.empty((len(variances), len(centres)))
    for k, centre in enumerate(centres):
        down = centre - centres[k::-1]
        excess = np.maximum.accumulate((down * spacing / z) ** 2 - apart[k, k::-1])
        gaps[:, k] = np.interp(variances, excess, down, right=2 * centres[-1] + 2)
    return gaps


def decisive_places(
    theta: np.ndarray, error: np.ndarray, critical: float, *, sharing: bool
) -> np.ndarray:
    """Places, in descending order of ability, that determine where groups end.

    Let h(r) = sqrt(r^2 + max r^2) and z the critical one. If a lower ability has no
    smaller t - z h(r) than subject i, every subject further down that differs from i
    differs from it too, so i does not determine where a run with both ends; likewise a
    higher ability with no larger t + z h(r) in place of j. This is exact where errors
    are independent. With shared errors (`sharing`), or where more than `MOST_PLACES`
    remain, see `SLOT`.
    """
    places = np.arange(theta.size)
    if not sharing:
        reach = critical * np.hypot(error, error.max())
        lower, upper = theta - reach, theta + reach
        best_later = np.maximum.accumulate(lower[::-1])[::-1]
        worst_before = np.minimum.accumulate(upper)
        keep = np.append(lower[:-1] > best_later[1:], True)
        keep |= np.append(True, upper[1:] < worst_before[:-1])
        places = places[keep]
    if places.size <= MOST_PLACES:
        return places
    width = SLOT * critical * np.median(error)
    if width > 0:
        slot = np.floor((theta[0] - theta[places]) / width)
        order = np.lexsort((error[places], slot))
        first = np.diff(slot[order], prepend=-1) > 0
        places = np.sort(places[order[first]])
    return places
