"""Classical statistics of items: each compared with the rest of the test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from irtjax.calibration.discrimination import Rest, rest_of, tails_for
from irtjax.data.stored_cells import AbstractStoredCells, ItemBlock

#: Cells of a block of subjects by items, in double precision.
BLOCK = 4_000_000
#: Biserial correlation below which an item counts as not discriminating: 4 % of the
#: variance, a logistic slope of 1.7 r / sqrt(1 - r^2) = 0.35, the end of the range
#: that Baker (2001) calls very low.
MARGIN = 0.2
#: Right and wrong responses from which a correlation has a normal error.
ENOUGH = 10
#: Reliability below which an item cannot be judged from the others.
LEAST_RELIABILITY = 0.5


class Classical(NamedTuple):
    """Classical statistics, each `[items]`."""

    observed: np.ndarray  # Subjects who answered.
    right: np.ndarray  # Right responses.
    item_rest: np.ndarray  # Correlation with the rest; NaN without variation.
    biserial: np.ndarray  # That of the normal variable, corrected for unreliability.
    alpha_without: np.ndarray  # Cronbach's alpha of the test without the item.
    # Counts for the tetrachoric correlation with the rest split at its median: both,
    # right, above the median, responses.
    rest_table: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    p_positive: np.ndarray  # Chance of so high an `item_rest` without any relation.
    p_negative: np.ndarray  # Chance of so low a correlation.
    p_weak: np.ndarray  # p-value of "discriminates at least by `MARGIN`".
    p_wrong_key: np.ndarray  # p-value of "not so if it is reversed".
    alpha: float  # Cronbach's alpha of the test, or NaN.

    @property
    def p_zero(self) -> np.ndarray:
        """Two-sided p-value of no relation with the rest; NaN without variation."""
        two_sided = np.minimum(1, 2 * np.minimum(self.p_positive, self.p_negative))
        return np.where(np.isfinite(self.item_rest), two_sided, np.nan)


def classical(cells: AbstractStoredCells) -> Classical:
    """Every item against the rest of the test.

    The rest is defined in `irtjax.calibration.discrimination`: the number right, up to
    a constant, where nothing is missing. `permutation_tails` tests zero discrimination
    without a model, whatever the other items are (the error control that the cBMM
    paper's A.6.4 requires). The biserial correlation is r sqrt(p q) / phi(Phi^-1(p)) /
    sqrt(alpha); its standard error at the margin is taken as sqrt(p q) / phi / sqrt(n).
    """
    rest = rest_of(cells)
    middle = np.median(rest.total / np.maximum(rest.answers, 1))
    tails = tails_for(cells.shape[0])
    columns = np.empty((10, cells.shape[1]))
    for block in cells.item_blocks(BLOCK):
        columns[:, block.items] = _block(block, rest, middle, tails)
    ones, count, r, own, with_rest, pairs, upper, lower, *halves = columns
    alpha, without = alphas(own, with_rest, pairs, count)
    reliability = alpha if np.isfinite(alpha) else 0.0
    share = ones / np.maximum(count, 1)
    varied = np.isfinite(r)
    quantile = ndtri(np.where(varied, share, 0.5))
    density = np.exp(-0.5 * quantile**2) / np.sqrt(2 * np.pi)
    stretch = np.sqrt(share * (1 - share)) / density
    error = np.where(varied, stretch / np.sqrt(np.maximum(count, 1)), 1)
    observed_biserial = np.where(varied, r * stretch, np.nan)
    shrink = np.sqrt(max(reliability, 1e-6))
    judged = reliability >= LEAST_RELIABILITY
    usable = judged & varied & (np.minimum(ones, count - ones) >= ENOUGH)
    weak, reversed_ = (
        np.where(usable, ndtr((observed_biserial + side * shrink) / error), 1.0)
        for side in (-MARGIN, MARGIN)
    )
    return Classical(
        observed=count,
        right=ones,
        item_rest=r,
        biserial=np.where(judged, np.clip(observed_biserial / shrink, -1, 1), np.nan),
        alpha_without=without,
        rest_table=(halves[0], ones, halves[1], count),
        p_positive=upper,
        p_negative=lower,
        p_weak=weak,
        p_wrong_key=np.maximum(reversed_, lower),
        alpha=alpha,
    )


def _block(block: ItemBlock, rest: Rest, middle, tails) -> tuple[np.ndarray, ...]:
    """Sums over subjects for a block of items, each `[items]`."""
    right, seen = block.values > 0, block.seen
    own = np.where(seen, right - rest.means[block.items], 0)
    score = rest.scores(own, block)
    count, ones = seen.sum(0).astype(float), right.sum(0).astype(float)
    centre = np.where(seen, score, 0).sum(0) / np.maximum(count, 1)
    apart = np.where(seen, score - centre, 0)
    square = (own**2).sum(0)
    product = square * (apart**2).sum(0)
    varies = (ones > 0) & (ones < count) & (product > 1e-20)
    covariance = (own * apart).sum(0)
    r = np.where(varies, covariance / np.sqrt(np.where(varies, product, 1)), np.nan)
    upper, lower = tails(right, seen, score)
    high = seen & (score > middle)
    return (
        *(ones, count, r, square),
        (own * (block.of_subjects(rest.total) - own)).sum(0),
        np.where(seen, block.of_subjects(rest.answers) - 1, 0).sum(0),
        *(upper, lower),
        *(x.sum(0).astype(float) for x in (high & right, high)),
    )


def alphas(own, with_rest, pairs, count) -> tuple[float, np.ndarray]:
    """Cronbach's alpha of all items, and of all but each, from pairwise means."""
    # alpha = J c / (v + (J - 1) c) with c the mean covariance of two items and v their
    # mean variance, over the observed cells; with none missing it is KR-20.
    size = own.size

    def alpha(items, covariance, variance):
        bottom = variance + (items - 1) * covariance
        fine = (bottom > 1e-15) & (items >= 2)
        return np.where(fine, items * covariance / np.where(fine, bottom, 1), np.nan)

    covariance = with_rest.sum() / max(pairs.sum(), 1)
    whole = float(alpha(size, covariance, own.sum() / max(count.sum(), 1)))
    left = np.maximum(pairs.sum() - 2 * pairs, 1)
    covariance = (with_rest.sum() - 2 * with_rest) / left
    variance = (own.sum() - own) / np.maximum(count.sum() - count, 1)
    return whole, alpha(size - 1, covariance, variance)
