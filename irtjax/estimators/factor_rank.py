r"""Factors above noise: the rank of a joint fit under a prior as strong as noise.

With N(0, 1) abilities and N(0, s^2) slopes the joint log posterior is concave in the
intercepts and in X = Theta A' but for its rank, since the least
(|Theta|^2 + |A|^2 / s^2) / 2 of all factorisations is the nuclear norm of X over s
(Srebro, Rennie and Jaakkola 2004). At a stationary point with residuals
R = M o (Y - P), M the mask of observed cells, the estimate is the global maximum over
all numbers of factors where q = s sigma_max(R) is at most 1. There q is 1, or less
without factors; elsewhere it is above 1. With 1 / s the largest singular value of
M o (Y* - P) over 20 draws of responses Y* from a fit, factors of the size of noise
vanish.

The fit that noise is simulated from has to have the right number of factors. With too
many its chances are too near to 0 and 1, noise is too small, and factors of noise stay:
from the fit of 8 factors to 300 x 200 responses of none, 2 of 3 ranks were 1. With too
few it is a little too large. `rank_above_noise` therefore begins without factors, and
refits with those found until no more are found.

MM may end where a factor has vanished though another one would raise the posterior:
q > 1 there, and the singular pair of the residuals is a direction in which it rises. A
vanished factor then begins again in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray
from irtjax.estimators.driver import Fit, run_jit
from irtjax.estimators.factor_residuals import leading_residual
from irtjax.estimators.factor_start import factor_start
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.joint.quasi_newton import QuasiNewton
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watched

#: Steps of a fit, and the gradient in standard errors at which it ends.
#: Where all fits of MM to MATH-500 converged, mean log-likelihoods of held-out cells
#: differ by up to 4e-6 nats from those of MM; the smallest standard error is 4e-4.
MOST_STEPS, TOLERANCE = 1000, 3e-4
#: The same of a fit at the penalty of noise, in which factors that vanish do so slowly.
OF_NOISE = 1e-4
#: The smallest tolerance that single precision reaches.
SINGLE = 1e-2
#: Residuals simulated, of which the largest counts.
SIMULATED = 20
#: Largest certificate of a global maximum.
GLOBAL = 1.01
#: A factor that moves no logit by as much is none.
LEAST_LOGIT = 0.01
#: Of that, what a factor has that has vanished.
VANISHED = 1e-3


class NoiseRank(NamedTuple):
    """The fit at the penalty of noise.

    Attributes:
        rank: Number of factors that it keeps.
        certificate: q: at most `GLOBAL` at the best fit of any number of factors.
        slope_sd: s, the standard deviation of the prior of slopes.
        log_likelihood: Of the joint fit, in nats.
        objective: With the log priors.
        used: Factors that have not vanished; some may be too small to be kept.
    """

    rank: int
    certificate: float
    slope_sd: float
    log_likelihood: float
    objective: float
    used: int


def factor_problem(
    data: Any, size: int, most: int, slope_sd: Any, dtype
) -> tuple[Problem, Start]:
    """The problem of `size` of `most` factors, and its start."""
    dims = max(most, 2)
    model = factor_model(Factor(dims))
    # Arrays, not numbers: the program is compiled once.
    pair = lambda sd: Normal(jnp.zeros((), dtype), jnp.asarray(sd, dtype))
    priors = {"discrimination": pair(slope_sd), "intercept": pair(3.0)}
    model = dataclasses.replace(model, priors=priors)
    used = np.arange(dims) < size
    free = np.ones((data.num_items, dims + 1), bool)
    free[:, :dims] = used
    start = factor_start(model, data, dtype=dtype)
    assert start.theta is not None
    slopes = jnp.where(used, start.items.discrimination, 0)
    start = start._replace(
        items=start.items._replace(discrimination=slopes),
        theta=jnp.where(used, start.theta, 0),
    )
    return Problem(model, data, jnp.asarray(free)), start


def fit_factors(
    data: Any,
    size: int,
    most: int,
    dtype,
    slope_sd: Any = 1.0,
    tolerance: float = TOLERANCE,
    begin: BilinearParameters | None = None,
) -> Fit:
    """The joint fit of `size` factors; one program for all sizes up to `most`.

    From the point `begin`; None for the usual start values.
    """
    problem, start = factor_problem(data, size, most, slope_sd, dtype)
    if begin is not None:
        items = start.items._replace(
            discrimination=begin.discrimination, intercept=begin.intercept
        )
        start = start._replace(items=items, theta=begin.theta)
    if dtype == jnp.float32:
        tolerance = max(tolerance, SINGLE)
    # An array: another tolerance is the same program.
    method = QuasiNewton(tolerance=jnp.asarray(tolerance, dtype))
    return run_jit(problem, method, start, max_steps=MOST_STEPS)


def noise_rank(
    data: Any,
    fit: Fit,
    most: int,
    dtype,
    key: KeyArray,
    tolerance: float = OF_NOISE,
) -> NoiseRank:
    """The rank at the penalty of noise, which is simulated from a fit."""
    items, _, theta = fit.parameters[:3]
    assert theta is not None
    draws = jax.random.split(key, SIMULATED)
    residuals = (leading_residual(fit.model, items, theta, data, x) for x in draws)
    slope_sd = float(1 / max(leading_of_noise.value for leading_of_noise in residuals))
    least = LEAST_LOGIT * np.sqrt(len(theta) * len(items.intercept))
    begin, result = None, None
    for _ in range(most + 1):
        fit_of_noise = fit_factors(data, most, most, dtype, slope_sd, tolerance, begin)
        best: BilinearParameters = fit_of_noise.state.best
        record = items._replace(
            discrimination=best.discrimination, intercept=best.intercept
        )
        leading = leading_residual(fit_of_noise.model, record, best.theta, data)
        left, values, right = _singular(best)
        rank = int(np.sum(values > least))
        result = NoiseRank(
            rank,
            slope_sd * float(leading.value),
            slope_sd,
            float(fit_of_noise.log_lik),
            float(fit_of_noise.objective),
            used := int(np.sum(values > VANISHED * least)),
        )
        if result.certificate <= GLOBAL or used >= most:
            break
        values[used:] = 0
        left[:, used], right[:, used] = leading.subjects, leading.items
        values[used] = least
        # The sizes of both sides that have the highest prior for these products.
        sizes = np.sqrt(values / slope_sd)
        slopes, theta = (
            jnp.asarray(x, dtype) for x in (slope_sd * sizes * right, sizes * left)
        )
        begin = BilinearParameters(slopes, best.intercept, theta)
    assert result is not None
    return result


def _singular(point: BilinearParameters) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular vectors and values of Theta A', `[., dims]`, largest first."""
    sides = (np.asarray(x, float) for x in (point.theta, point.discrimination))
    (first, upper), (second, lower) = (np.linalg.qr(side) for side in sides)
    left, values, right = np.linalg.svd(upper @ lower.T)
    return first @ left, values, second @ right.T


def rank_above_noise(data: Any, most: int, dtype, key: KeyArray) -> NoiseRank:
    """The number of factors above noise, from the bottom up.

    Args:
        data: Right and wrong responses: all cells with a mask, or the observed cells.
        most: The largest number.
        dtype: Floating type.
        key: Random key of the draws.

    Returns:
        The rank, its certificate, and the fit at the penalty of noise.

    >>> from irtjax.data.responses import Responses
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((60, 12)) < 1 / (1 + np.exp(-3 * rng.normal(size=(60, 1))))
    >>> data = Responses(jnp.asarray(right, jnp.int8), jnp.ones((60, 12), bool))
    >>> rank_above_noise(data, 2, jnp.zeros(()).dtype, jax.random.key(0)).rank
    1
    """
    rank, size = None, 0
    # Each pass but the last finds more factors; two or three are usual.
    for _ in watched(range(most + 1), "pass"):
        fit = fit_factors(data, size, most, dtype)
        rank = noise_rank(data, fit, most, dtype, key)
        if rank.rank <= size:
            break
        size = rank.rank
    assert rank is not None
    return rank
