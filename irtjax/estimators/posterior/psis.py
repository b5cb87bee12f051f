"""Leave-one-out prediction from one set of draws, by smoothed importance weights.

Pareto smoothing is that of Vehtari, Gelman and Gabry (2017, Statistics and Computing
27) and of Vehtari and others (2024, Journal of Machine Learning Research 25).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from irtjax.data.wording import counted
from irtjax.estimators.posterior.convergence import BLOCK, effective_draws, split_chains

#: Pareto's k above which the term of an observation is unreliable.
RELIABLE = 0.7


class LeaveOneOut(NamedTuple):
    """Expected log predictive density of observations left out one at a time.

    Attributes:
        elpd: Its sum over observations; higher is better.
        standard_error: Of the sum, from the standard deviation of its terms.
        p_loo: Effective number of parameters: in-sample log predictive density - elpd.
        pareto_k: Shape of the tail of the importance weights. Above 0.7 the term of
            that observation is unreliable; infinite where a few draws have all weight.
        pointwise: Terms of the sum.
    """

    elpd: float
    standard_error: float
    p_loo: float
    pareto_k: Float[np.ndarray, " observations"]
    pointwise: Float[np.ndarray, " observations"]

    def __repr__(self) -> str:
        """The sum, its error and its reliability, in one line."""
        wrong = int(np.sum(~(self.pareto_k <= RELIABLE)))
        return (
            f"elpd {self.elpd:,.1f} (SE {self.standard_error:.1f}), p_loo"
            f" {self.p_loo:.1f}; {wrong:,} of {counted(self.pareto_k.size, 'term')}"
            f" unreliable"
        )


def psis_loo(log_lik, *, relative_ess: float | None = None) -> LeaveOneOut:
    """Pareto-smoothed importance sampling for leave-one-out cross-validation.

    Draws have weights 1 / p(y_i | draw) for the posterior without observation i; the
    largest of them are replaced by quantiles of a generalised Pareto distribution
    fitted to them (Vehtari, Gelman and Gabry 2017).

    Args:
        log_lik: `[chains, draws, observations]` log p(y_i | draw).
        relative_ess: Effective draws per draw, for the length of the tail; when None,
            the mean of those of the likelihoods p(y_i | draw).

    Returns:
        The sum with its error, and by observation its term and Pareto's k.

    Raises:
        ValueError: If the array has another shape, is not finite, or has fewer than 25
            draws in all.

    >>> mean = np.random.default_rng(0).normal(0, 0.3, (4, 500, 1))
    >>> loo = psis_loo(-0.5 * (np.linspace(-1, 1, 12) - mean) ** 2)
    >>> loo.pareto_k.shape, bool((loo.pareto_k < 0.7).all())
    ((12,), True)
    """
    log_lik = np.asarray(log_lik)
    if log_lik.ndim != 3 or log_lik.shape[2] < 1:
        raise ValueError(
            f"psis_loo: log_lik has shape {log_lik.shape}; it takes"
            " [chains, draws, observations]"
        )
    if not np.isfinite(log_lik).all():
        at = np.argwhere(~np.isfinite(log_lik))[0]
        raise ValueError(
            f"psis_loo: log_lik is not finite in chain {at[0]}, draw {at[1]},"
            f" observation {at[2]}; leave that observation out"
        )
    chains, draws, num = log_lik.shape
    total = chains * draws
    if total < 25 or draws < 4:
        raise ValueError(f"psis_loo: {total} draws are too few; it takes 25 or more")
    if relative_ess is None:
        relative_ess = _relative_ess(log_lik)
    tail = int(np.ceil(min(0.2 * total, 3 * np.sqrt(total / relative_ess))))
    tail = min(tail, total - 1)
    # The fit of the tail stores `[grid, tail, observations]`, the rest all draws.
    size = max(BLOCK // max(total, tail * _grid_size(tail)), 1)
    flat = log_lik.reshape(total, num)
    parts = [_loo_block(flat[:, at : at + size], tail) for at in range(0, num, size)]
    pointwise, posterior, k = map(np.concatenate, zip(*parts, strict=True))
    elpd, error = pointwise.sum(), np.sqrt(num * pointwise.var())
    num_effective = (posterior - pointwise).sum()
    return LeaveOneOut(float(elpd), float(error), float(num_effective), k, pointwise)


def pareto_k(log_ratio) -> float:
    """Shape k of the tail of importance ratios from independent draws.

    The ratios p(x) / q(x) at draws of an approximation q have about 1 / k finite
    moments (Vehtari and others 2024; Yao and others 2018). Below 0.5 the approximation
    is close; up to 0.7 weighting its draws corrects it; above, neither is reliable.

    Args:
        log_ratio: `[draws]` their logarithms, up to a constant.

    Returns:
        k; 0 if all ratios are equal, and infinite where a few have all the weight.

    Raises:
        ValueError: If the array has another shape, fewer than 100 draws, or is not
            finite.

    >>> normal = np.random.default_rng(0).normal(size=2000)
    >>> wide, narrow = normal**2 / 2 - (normal / 2) ** 2, -(normal**2)
    >>> pareto_k(wide) > 0.4 > pareto_k(narrow)
    True
    """
    log_ratio = np.asarray(log_ratio)
    if log_ratio.ndim != 1 or len(log_ratio) < 100:
        raise ValueError(
            f"pareto_k: log_ratio has shape {log_ratio.shape}; it takes [draws], 100 or"
            " more"
        )
    if not np.isfinite(log_ratio).all():
        at = int(np.argmin(np.isfinite(log_ratio)))
        raise ValueError(
            f"pareto_k: log_ratio is not finite in draw {at}; the approximation reaches"
            " where the log density is not finite"
        )
    tail = int(np.ceil(min(0.2 * len(log_ratio), 3 * np.sqrt(len(log_ratio)))))
    wide = log_ratio.astype(np.float64)[:, None]
    return float(smooth_tail(wide, tail)[1][0])


def _relative_ess(log_lik: np.ndarray) -> float:
    """Mean over observations of effective draws per draw of p(y_i | draw)."""
    total = log_lik[:, :, 0].size
    size = max(BLOCK // total, 1)
    shares = []
    for at in range(0, log_lik.shape[2], size):
        block = log_lik[:, :, at : at + size].astype(np.float64)
        shares.append(effective_draws(split_chains(np.exp(block - block.max((0, 1))))))
    return float(np.mean(np.concatenate(shares))) / total


def _loo_block(log_lik: np.ndarray, tail: int) -> tuple[np.ndarray, ...]:
    """Terms, log posterior predictive densities and k of `[draws, observations]`."""
    from scipy.special import logsumexp

    log_lik = log_lik.astype(np.float64)
    log_weight, pareto_k = smooth_tail(-log_lik, tail)
    log_weight = log_weight - logsumexp(log_weight, axis=0)
    pointwise = np.asarray(logsumexp(log_weight + log_lik, axis=0))
    posterior = np.asarray(logsumexp(log_lik, axis=0)) - np.log(len(log_lik))
    return pointwise, posterior, pareto_k


def smooth_tail(log_ratio: np.ndarray, tail: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooths the `tail` largest of log importance ratios `[draws, observations]`.

    Returns log weights up to a constant, at most 0, and k: 0 where the ratios of the
    tail are all equal, and infinite where fewer than five outweigh the rest.
    """
    shifted = log_ratio - log_ratio.max(axis=0)
    order = np.argsort(shifted, axis=0)
    largest = np.take_along_axis(shifted, order[-tail - 1 :], axis=0)
    # exp underflows below it.
    floor = np.log(np.finfo(np.float64).tiny)
    cutoff = np.exp(np.maximum(largest[0], floor))
    excess = np.maximum(np.exp(largest[1:]) - cutoff, 0)
    # A tail is not identified by fewer than five ratios.
    varies = (excess > 0).sum(axis=0) > 4
    safe = np.where(varies, excess, np.linspace(0.5, 1, tail)[:, None])
    shape, scale = fit_pareto(safe)
    log_rest = np.log1p(-(np.arange(tail) + 0.5)[:, None] / tail)
    # (rest^-k - 1) / k, whose limit at k = 0 is -log(rest).
    curved = np.abs(shape) > 1e-12
    growth = np.expm1(-shape * log_rest) / np.where(curved, shape, 1.0)
    quantile = scale * np.where(curved, growth, -log_rest)
    smoothed = np.minimum(np.log(quantile + cutoff), 0)
    new = np.where(varies, smoothed, largest[1:])
    np.put_along_axis(shifted, order[-tail:], new, axis=0)
    equal = largest[0] == largest[-1]
    return shifted, np.where(varies, shape, np.where(equal, 0.0, np.inf))


def _grid_size(tail: int) -> int:
    """Points of the grid over the shape of a tail, as Zhang and Stephens have."""
    return 30 + int(np.sqrt(tail))


def fit_pareto(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of the generalised Pareto distribution of each ascending column.

    The profile likelihood in b = -shape / scale is averaged over a grid under a weak
    prior (Zhang and Stephens 2009, Technometrics 51); the shape is then shrunk towards
    0.5 with the weight of ten observations (Vehtari, Gelman and Gabry 2017).
    """
    num = len(excess)
    grid = _grid_size(num)
    steps = 1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    quartile = np.maximum(excess[int(num / 4 + 0.5) - 1], 1e-12 * excess[-1])
    b = steps[:, None] / (3 * quartile) + 1 / excess[-1]
    b = np.where(np.abs(b) < 1e-300, 1e-300, b)
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_lik = num * (np.log(-b / k) - k - 1)
    weight = np.exp(log_lik - log_lik.max(axis=0))
    weight = weight / weight.sum(axis=0)
    b = np.sum(b * weight, axis=0)
    k = np.log1p(-b * excess).mean(axis=0)
    scale = -k / b
    return (num * k + 5) / (num + 10), scale
