"""How much counts vary beyond independent trials, and how little shares vary."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Largest estimate: of cells whose trials are all equal.
LARGEST = 1 - 1e-6
#: Trials of a cell that are used, drawn at random: fewer are as exchangeable.
MOST_TRIALS = 64
#: Subjects below which cells, and not subjects, count as independent.
FEW_SUBJECTS = 10
#: Cells, and subjects at least, whose shares are used, and steps to their means.
MOST_CELLS, SOME_SUBJECTS, STEPS = 200_000, 20, 30
#: Largest logit of a mean share.
LARGEST_LOGIT = 12.0
#: Least dispersion: that of shares of 10,000 independent trials.
LEAST_DISPERSION = 1e-4


class Intraclass(NamedTuple):
    """Correlation of two trials of a cell, given its expected chance.

    Attributes:
        icc: The estimate, 0 where counts vary no more than independent trials.
        standard_error: From the parts of the score (sandwich), those of subjects, or
            of cells with few subjects; chances are taken as known.
        num_cells: Cells with two trials or more.
    """

    icc: float
    standard_error: float
    num_cells: int


def intraclass(
    chance: np.ndarray, right: np.ndarray, trials: np.ndarray
) -> Intraclass | None:
    r"""Maximum likelihood of the correlation in beta-binomial counts.

    With r = icc / (1 - icc), a count x of n trials has the log-likelihood

        sum_{m < x} log(p + m r) + sum_{m < n - x} log(1 - p + m r)
            - sum_{m < n} log(1 + m r) + const,

    which is regular at r = 0, that of independent trials.

    Args:
        chance: `[subjects, items]` p; NaN where there is none.
        right: `[subjects, items]` counts of right responses.
        trials: `[subjects, items]` trials, 0 if missing.

    Returns:
        The estimate; None where no cell has two trials.

    >>> rng = np.random.default_rng(0)
    >>> trials = np.full((40, 20), 5)
    >>> estimate = intraclass(np.full((40, 20), 0.5), rng.binomial(trials, 0.5), trials)
    >>> estimate.icc < 2 * estimate.standard_error < 0.1
    True
    """
    from scipy.optimize import brentq

    used = (trials > 1) & np.isfinite(chance)
    if not used.any():
        return None
    subject = np.nonzero(used)[0]
    x, n = (np.asarray(part)[used].astype(np.int64) for part in (right, trials))
    if n.max() > MOST_TRIALS:
        few = np.minimum(n, MOST_TRIALS)
        x, n = np.random.default_rng(0).hypergeometric(x, n - x, few), few
    p = np.clip(np.asarray(chance, float)[used], 1e-9, 1 - 1e-9)

    def slopes(icc: float) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives in icc of the log-likelihood of each cell."""
        r = icc / (1 - icc)
        first, second = np.zeros_like(p), np.zeros_like(p)
        for m in range(1, int(n.max())):
            for base, count, sign in ((p, x, 1), (1 - p, n - x, 1), (1.0, n, -1)):
                part = np.where(count > m, sign * m / (base + m * r), 0)
                first += part
                second -= sign * part**2
        rise = (1 + r) ** 2  # Of r in icc.
        return first * rise, second * rise**2 + first * 2 * rise * (1 + r)

    total = lambda icc: float(slopes(icc)[0].sum())
    if total(0.0) <= 0:
        icc = 0.0
    elif total(LARGEST) >= 0:
        # The likelihood rises to the end, by e over one of its slope.
        return Intraclass(LARGEST, 1 / max(total(LARGEST), 1.0), len(x))
    else:
        root: Any = brentq(total, 0.0, LARGEST)
        icc = float(root)
    first, second = slopes(icc)
    bend = -float(second.sum())
    parts = np.bincount(subject, first)
    count = len(np.unique(subject))
    if count < FEW_SUBJECTS:
        parts, count = first, len(first)
    spread = np.sum((parts - parts.sum() / count * (parts != 0)) ** 2)
    error = np.sqrt(spread * count / max(count - 1, 1)) / bend if bend > 0 else np.nan
    return Intraclass(icc, float(error), len(x))


def share_dispersion(shares: np.ndarray, observed: np.ndarray) -> float:
    r"""The variance of shares over that of right or wrong responses of their means.

    Means are :math:`\mu_{ij} = \sigma(t_i + d_j)`, those of a Rasch model by maximum
    quasi-likelihood. The ratio of the two sums, R, is 1 of right and wrong responses,
    and too small of others since each mean follows its own scores: with n scores to an
    item :math:`R = (n - 1) \phi / (n - \phi)`, and so of subjects. Discriminations that
    differ make the estimate larger.

    Args:
        shares: `[subjects, items]` scores in [0, 1].
        observed: `[subjects, items]` which are there.

    Returns:
        The dispersion, from `LEAST_DISPERSION` to 1. It is 1 of scores that are all 0
        or 1, and where no estimate exists: with scores of one subject or one item, and
        where no item has different scores.

    >>> rng = np.random.default_rng(0)
    >>> shares = rng.binomial(4, 0.3, size=(50, 40)) / 4
    >>> round(share_dispersion(shares, np.ones(shares.shape, bool)), 1)
    0.2
    """
    some = max(SOME_SUBJECTS, MOST_CELLS // max(shares.shape[1], 1))
    if shares.shape[0] > some:
        rows = np.random.default_rng(0).choice(shares.shape[0], some, replace=False)
        shares, observed = shares[rows], observed[rows]
    if np.all((shares == 0) | (shares == 1) | ~observed):
        return 1.0
    # Scores of an item that are all equal have no residuals, whatever the dispersion.
    low = np.where(observed, shares, np.inf).min(axis=0, initial=np.inf)
    varied = low < np.where(observed, shares, -np.inf).max(axis=0, initial=-np.inf)
    shares, observed = shares[:, varied], observed[:, varied]
    seen = observed.astype(float)
    y = np.where(observed, shares, 0.0)
    by_subject, by_item = seen.sum(1), seen.sum(0)
    answered, used = by_subject > 0, by_item > 0
    y, seen = y[answered][:, used], seen[answered][:, used]
    if not y.size:
        return 1.0
    by_subject, by_item = seen.sum(1), seen.sum(0)
    t, d = (
        np.log(x + 0.5) - np.log(n - x + 0.5)
        for x, n in ((y.sum(1), by_subject), (y.sum(0), by_item))
    )
    t -= t.mean()

    def means() -> np.ndarray:
        """Mean shares, 0 where none is observed."""
        return seen / (1 + np.exp(-np.clip(t[:, None] + d, -30, 30)))

    for _ in range(STEPS):
        for values, axis in ((d, 0), (t, 1)):
            mean = means()
            bend = (mean * (1 - mean)).sum(axis) + 1e-9
            values += np.clip((y - mean).sum(axis) / bend, -1, 1)
            np.clip(values, -LARGEST_LOGIT, LARGEST_LOGIT, out=values)
    mean = means()
    ratio = ((y - mean) ** 2).sum() / max((mean * (1 - mean)).sum(), 1e-12)
    for count in (by_item.mean(), by_subject.mean()):
        ratio = count * ratio / (count - 1 + ratio) if count > 1 else 1.0
    return float(np.clip(ratio, LEAST_DISPERSION, 1))
