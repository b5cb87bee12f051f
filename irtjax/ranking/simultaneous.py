r"""Ranks of all subjects at once: the max-t quantile of all differences.

With e drawn from the errors of the abilities, t_ik = (e_i - e_k) / se_ik and S a set of
ordered pairs, c(S) is the quantile of the largest t of S. Over all pairs, every |z_ik|
of equal abilities is below c with the chance `level`, however many subjects there are.
A pair with z_ik >= c then has i above k. Such pairs leave S, and c(S) is computed again
until no pair leaves (the step-down of Romano and Wolf 2005; Mogstad, Romano, Shaikh and
Wilhelm 2024 for ranks). The rank of i lies between 1 + the number of subjects above i
and the number of all less those below i, for all i together.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from irtjax._backend import num_cores
from irtjax.ranking.pairs import EXACT_SUBJECTS, ScoreErrors, z_rows

#: Numbers of one block of draws, which fits into a processor's cache.
BLOCK = 2**19


def simultaneous_z(
    theta: np.ndarray,
    errors: ScoreErrors,
    level: float,
    num_draws: int,
    generator: np.random.Generator,
) -> float:
    """Size of z from which pairs differ, all of them together; see the module.

    Args:
        theta: `[subjects]` abilities.
        errors: Their errors.
        level: Chance that no pair of equal abilities counts as different.
        num_draws: Number of draws; the level has a standard error below
            0.5 / sqrt(num_draws).
        generator: Of the draws.

    Raises:
        ValueError: If there are more than 2,000 subjects.

    >>> errors = ScoreErrors(np.ones(3), None, None)
    >>> generator = np.random.default_rng(0)
    >>> z = simultaneous_z(np.zeros(3), errors, 0.95, 40_000, generator)
    >>> bool(abs(z - 3.31 / 2**0.5) < 0.05)  # Tukey's range of three is 3.31.
    True
    """
    size = theta.size
    if size > EXACT_SUBJECTS:
        raise ValueError(
            f"simultaneous=True is for up to {EXACT_SUBJECTS:,} subjects, and there are"
            f" {size:,}: rank fewer, or leave it out"
        )
    if size < 2:
        return float("nan")
    places = np.arange(size)
    z = z_rows(theta, errors, places, places)
    error = errors.standard_error(places, places)
    scale = np.zeros_like(error)
    # Errors that are equal up to rounding make no difference.
    np.divide(1.0, error, out=scale, where=error > 1e-9 * errors.error.max())
    draws = draw_errors(errors, size, num_draws, generator)
    critical = np.inf
    while scale.any():
        critical = float(np.quantile(_largest(draws, scale), level))
        above = (z >= critical) & (scale > 0)
        if not above.any():
            break
        scale[above] = 0.0
    return critical


def draw_errors(
    errors: ScoreErrors, size: int, num_draws: int, generator
) -> np.ndarray:
    """Errors of all subjects, `[draws, subjects]`."""
    own, factor = errors.own(), errors.shared
    if factor is not None and factor.shape[1] > size:
        # Items that all subjects share are many; a square factor has the same product.
        values, vectors = np.linalg.eigh(factor @ factor.T)
        factor = vectors * np.sqrt(np.maximum(values, 0))
    if errors.covariance is not None:
        values, vectors = np.linalg.eigh((errors.covariance + errors.covariance.T) / 2)
        own, factor = np.zeros(size), vectors * np.sqrt(np.maximum(values, 0))
    draws = generator.standard_normal((num_draws, size)) * own
    if factor is not None:
        draws += generator.standard_normal((num_draws, factor.shape[1])) @ factor.T
    return draws


def _largest(draws: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The largest t of each draw, `[draws]`."""
    num_draws, size = draws.shape
    chunk = max(1, BLOCK // size**2)

    def largest(start: int) -> np.ndarray:
        part = draws[start : start + chunk]
        t = part[:, :, None] - part[:, None, :]
        t *= scale
        return t.max(axis=(1, 2))

    with ThreadPoolExecutor(num_cores()) as pool:
        return np.concatenate([*pool.map(largest, range(0, num_draws, chunk))])


def rank_sets(
    theta: np.ndarray, errors: ScoreErrors, critical: float
) -> tuple[np.ndarray, np.ndarray]:
    """The best and the worst rank of each subject; see the module.

    >>> errors = ScoreErrors(np.full(3, 0.3), None, None)
    >>> [x.tolist() for x in rank_sets(np.array([2.0, 0.1, 0.0]), errors, 2.3)]
    [[1, 2, 2], [1, 3, 3]]
    """
    places = np.arange(theta.size)
    above = z_rows(theta, errors, places, places) >= critical
    return 1 + above.sum(axis=0), theta.size - above.sum(axis=1)
