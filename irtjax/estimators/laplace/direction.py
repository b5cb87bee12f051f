r"""Which items have negative slopes, and how certain the direction of each is.

Slopes that are integrated out are positive by their prior. A wrong key makes one
negative: item j then responds to -theta. With m_j(theta) the marginal likelihood of its
responses given the abilities, and pi the share of such items,

    p(y_j | theta) = (1 - pi) m_j(theta) + pi m_j(-theta),                          (1)

so the slope is negative with chance q_j = pi m_j(-theta) / p(y_j | theta). pi is the
mode under a beta prior whose own is 0 and which counts `PRIOR_ITEMS` items, one of them
reversed: by EM, pi = (1 + sum_j q_j) / (PRIOR_ITEMS + J).

Where q_j is above one half the item is fitted with a negative slope, and the abilities
again with it. Where the chance of the other sign is too large for an interval to leave
it out, the interval of the slope includes it (`error_with_directions`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import expit, logit, ndtri

from irtjax.estimators.laplace.components import items_given
from irtjax.estimators.laplace.item_posterior import (
    Block,
    Error,
    joint_density,
    posterior,
)
from irtjax.estimators.laplace.items import arrange, in_blocks
from irtjax.estimators.laplace.problem import LaplaceState, MultilevelProblem
from irtjax.numerics.programs import stored_jit

#: Items that the prior of the share of reversed ones counts; one of them is reversed.
PRIOR_ITEMS = 50
#: Newton steps to the mode of an item with the other sign, and rounds of EM.
NUM_NEWTON, ROUNDS = 15, 200
#: Fits with other signs, after which these stay as they are.
MOST_REFITS = 4
#: Share of reversed items for intervals at least: a good item and a reversed one have
#: the same claim to be covered.
LEAST_SHARE = 0.5
#: Slopes and logarithms of a ratio of slopes are within these: errors stay finite.
SMALLEST, LARGEST_LOG = 1e-6, 10.0
#: Half the interval of a slope whose sign is certain, at most, in sizes of the slope.
CERTAIN = 0.99
#: Chance of the other sign above which a 95 % interval includes it.
TAIL = 0.025


class SlopeDirections(NamedTuple):
    """Signs of slopes as fitted, and what is known of the other signs.

    Attributes:
        sign: `[stems]` 1 or -1.
        negative: `[stems]` chance of a negative slope.
        opposite: `[stems]` chance of the other sign, of a share of reversed items of no
            less than `LEAST_SHARE`.
        size: `[stems]` size of a slope of the other sign.
        error: `[stems]` its standard error.
    """

    sign: np.ndarray
    negative: np.ndarray
    opposite: np.ndarray
    size: np.ndarray
    error: np.ndarray

    @property
    def likelier(self) -> np.ndarray:
        """The likelier sign of each slope."""
        return np.where(self.negative > 0.5, -1.0, 1.0)

    def of(self, places: np.ndarray) -> SlopeDirections:
        """Those at some places."""
        return SlopeDirections(*(x[places] for x in self))


def has_directions(problem: MultilevelProblem) -> bool:
    """Whether the slopes of items may be negative: positive by a learned prior alone.

    Not where an item measures several groups.
    """
    family = problem.model.family
    slopes = family.has_slope and "discrimination" not in problem.model.priors
    free = family.with_any_sign() is not None
    return slopes and free and not problem.distinct.is_aligned


def directions_of(
    problem: MultilevelProblem, state: LaplaceState, order: int
) -> SlopeDirections:
    """Directions of the items of a problem in a fit of it; not for use under jit.

    The state is that of `problem.by_distinct()`.
    """
    arrays = _of_both(problem.by_distinct(), state, order)
    own, other, size, error = (np.asarray(x, float) for x in arrays)
    sign = np.asarray(problem.distinct.sign, float)
    weight = np.asarray(problem.distinct.weight, float)
    # Log odds of a negative slope, without those of pi.
    evidence = np.nan_to_num((other - own) * sign)
    share = 1 / PRIOR_ITEMS
    for _ in range(ROUNDS):
        negative = expit(evidence + logit(share))
        share = (1 + weight @ negative) / (PRIOR_ITEMS + weight.sum())
    negative = expit(evidence + logit(share))
    # By a share of reversed items that is not too small for an interval.
    cautious = expit(evidence + logit(max(share, LEAST_SHARE)))
    opposite = np.where(sign < 0, 1 - negative, cautious)
    directions = SlopeDirections(sign, negative, opposite, size, error)
    return directions.of(np.asarray(problem.distinct.of_stem))


def in_directions(problem: MultilevelProblem, sign: np.ndarray) -> MultilevelProblem:
    """The problem with slopes of other signs, `[stems]`."""
    rows = problem.distinct.weight.shape[0]
    distinct = arrange(problem.model, problem.data, sign, rows)
    return dataclasses.replace(problem, distinct=distinct)


@stored_jit
def _of_both(problem: MultilevelProblem, state: LaplaceState, order: int):
    """Log marginals of distinct items with each sign; slopes with the other, errors."""
    model, distinct, outer, mode, errors = items_given(problem, state)
    nodes, blocks = in_blocks(model, distinct, mode, order)

    def under(item: Block):
        error = Error.of(item, errors, True) if problem.expected else None
        log_joint, *_ = joint_density(model, outer, item, error)
        _, rows, share, log_marginal = posterior(
            model, outer, item, log_joint, nodes, NUM_NEWTON
        )
        return log_marginal, rows[:, 0], share

    def one(item: Block):
        centre = item.design @ outer.effects
        start = item.mode.at[0].set(centre[0])
        # Mapped over the signs, so that the program has the integral once.
        mixture = item._replace(
            sign=jnp.stack([item.sign, -item.sign]), mode=jnp.stack([item.mode, start])
        )
        axes = item._replace(**dict.fromkeys(item._fields))._replace(sign=0, mode=0)
        log_marginal, rows, share = jax.vmap(under, in_axes=(axes,))(mixture)
        mean = share[1] @ rows[1]
        sd = jnp.sqrt(share[1] @ (rows[1] - mean) ** 2)
        size = jnp.exp(mean)
        return *log_marginal, size, size * sd

    results = lax.map(jax.vmap(one), blocks)
    count = distinct.weight.shape[0]
    return tuple(x.reshape(-1)[:count] for x in results)


def error_with_directions(slope, error, directions: SlopeDirections) -> np.ndarray:
    """Standard errors that give slopes intervals of log-normal length.

    Sizes of slopes are log-normal. An interval slope +- z e of the delta method ends
    below the upper quantile, and with few subjects one slope in ten is above. So e
    reaches the upper quantile of the size, but no further than to 0, whose sign is
    certain. Where the chance of the other sign is above `TAIL`, it reaches the upper
    quantile of sizes with the other sign.
    """
    z = float(-ndtri(TAIL))
    upper = lambda size, error: size * np.exp(np.minimum(z * error / size, LARGEST_LOG))
    size = np.maximum(np.abs(slope), SMALLEST)
    own = np.minimum(upper(size, error) - size, CERTAIN * size) / z
    own = np.maximum(own, error)
    other = (size + upper(np.maximum(directions.size, SMALLEST), directions.error)) / z
    return np.where(directions.opposite > TAIL, np.maximum(own, other), own)


def in_any_direction(
    coordinates: np.ndarray, covariance: np.ndarray, sign: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates with slopes of any sign in place of logarithms, and covariances.

    `sign` is that of each row; by the delta method d a / d log a = a.
    """
    slope = sign * np.exp(coordinates[:, 0])
    step = np.ones_like(coordinates)
    step[:, 0] = slope
    moved = np.column_stack([slope, coordinates[:, 1:]])
    return moved, covariance * step[:, :, None] * step[:, None, :]
