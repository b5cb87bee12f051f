"""How much counts of trials vary beyond independent trials."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Bounds of the estimate, and the step of its numerical slopes.
SMALLEST, LARGEST, STEP = 1e-6, 1 - 1e-6, 1e-4


class Intraclass(NamedTuple):
    """Correlation of two trials of a cell, given its expected chance.

    Attributes:
        icc: The estimate, at least 0.
        standard_error: From the subjects' parts of the score (sandwich), with the
            chances taken as known.
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

        log B(x + p / r, n - x + (1 - p) / r) - log B(p / r, (1 - p) / r) + const.

    Args:
        chance: `[subjects, items]` p; NaN where there is none.
        right: `[subjects, items]` counts of right responses.
        trials: `[subjects, items]` trials, 0 if missing.

    Returns:
        The estimate; None where no cell has two trials.

    >>> rng = np.random.default_rng(0)
    >>> trials = np.full((40, 20), 5)
    >>> found = intraclass(np.full((40, 20), 0.5), rng.binomial(trials, 0.5), trials)
    >>> found.icc < 2 * found.standard_error
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import betaln

    used = (trials > 1) & np.isfinite(chance)
    if not used.any():
        return None
    subject = np.nonzero(used)[0]
    x, n = (np.asarray(part, float)[used] for part in (right, trials))
    p = np.clip(np.asarray(chance, float)[used], 1e-9, 1 - 1e-9)

    def cells(icc: float) -> np.ndarray:
        first, other = p * (1 - icc) / icc, (1 - p) * (1 - icc) / icc
        return betaln(x + first, n - x + other) - betaln(first, other)

    loss = lambda icc: -cells(icc).sum()
    found: Any = minimize_scalar(loss, bounds=(SMALLEST, LARGEST), method="bounded")
    icc = float(found.x)
    # Inside the bounds, so that both neighbours have a likelihood.
    step = min(STEP, icc / 2, (1 - icc) / 2)
    below, here, above = (cells(icc + k * step) for k in (-1, 0, 1))
    bend = -(above - 2 * here + below).sum() / step**2
    slope = np.bincount(subject, (above - below) / (2 * step))
    count = len(np.unique(subject))
    spread = np.sum(slope**2) * count / max(count - 1, 1)
    error = np.sqrt(spread) / bend if bend > 0 else np.inf
    return Intraclass(0.0 if icc < 2 * SMALLEST else icc, float(error), len(x))
