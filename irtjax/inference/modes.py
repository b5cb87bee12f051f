"""MAP, ML and WLE scores: a safeguarded Newton search from the best grid point."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax.inference.block import BlockScores, Scorer, SubjectBlock, table_of
from irtjax.inference.item_error import Sensitivity, added_variance, coordinate_slopes
from irtjax.inference.result import ScoreFlag

#: More steps than bisection alone needs from a grid interval in double precision.
MOST_STEPS = 40


def warm_table(scorer: Scorer, theta: Array) -> tuple[Array, Array]:
    """I and J of Warm's estimate, of every item at every ability, `[nodes, items]`."""
    return table_of(scorer.model.family.information_and_skew, scorer.items, theta)


def _ratio(information: Array, skew: Array) -> Array:
    """J / (2 I), 0 where information underflows."""
    return skew / (2 * jnp.maximum(information, jnp.finfo(information.dtype).tiny))


def warm_on_grid(block: SubjectBlock, warm: tuple[Array, Array], grid: Array) -> Array:
    """The integral of J / (2 I) along the grid, `[block or 1, nodes]`."""
    tables = [block.weigh(table) for table in warm]
    if block.exposure is None:
        ratio = _ratio(*(jnp.sum(table, axis=1)[None, :] for table in tables))
    else:
        ratio = _ratio(*(block.exposure @ table.T for table in tables))
    steps = (ratio[:, 1:] + ratio[:, :-1]) / 2 * jnp.diff(grid)
    return jnp.pad(jnp.cumsum(steps, axis=1), ((0, 0), (1, 0)))


def _estimating_function(scorer: Scorer, block: SubjectBlock):
    """The function of ability whose root each subject's score is."""
    family = scorer.model.family

    def log_lik(theta):
        return jnp.sum(block.total(family.table(scorer.items, theta)), axis=1)

    def slope(theta):
        value = jax.jvp(log_lik, (theta,), (jnp.ones_like(theta),))[1]
        if scorer.scoring == "map":
            value = value - (theta - scorer.mean) / scorer.sd**2
        if block.evidence is not None:
            value = value + block.evidence[:, 0] - block.evidence[:, 1] * theta
        if scorer.scoring == "wle":
            tables = warm_table(scorer, theta)
            value = value + _ratio(*(jnp.sum(block.expose(x), axis=1) for x in tables))
        return value

    return slope


class _Search(NamedTuple):
    """A bracketed Newton search, one per subject."""

    theta: Array
    low: Array
    high: Array
    curvature: Array
    pinned: Array
    done: Array
    num_steps: Array


def mode_scores(
    scorer: Scorer, block: SubjectBlock, grid: Array, objective: Array
) -> BlockScores:
    """Scores that maximise, and their variances, begun at the best grid point."""
    search = _newton(_estimating_function(scorer, block), grid, objective)
    theta = search.theta
    information = table_of(scorer.model.family.information, scorer.items, theta)
    expected = jnp.sum(block.expose(information), axis=1)
    if scorer.scoring == "map":
        expected = expected + 1 / scorer.sd**2
    if block.evidence is not None:
        expected = expected + block.evidence[:, 1]
    observed = search.curvature
    usable = (observed > 0) & (scorer.scoring != "wle") & ~search.pinned
    precision = jnp.where(usable, observed, expected)
    widest = (grid[-1] - grid[0]) ** 2
    variance = 1 / jnp.maximum(precision, 1 / widest)
    shared = None
    if scorer.item_error is not None:
        one = jnp.ones_like(theta)

        def slopes(theta):
            table = lambda items: scorer.model.family.table(items, theta)
            return coordinate_slopes(scorer, table)

        mixed = jax.jvp(slopes, (theta,), (one,))[1]

        population = jnp.stack([one, 2 * (theta - scorer.mean)], axis=1) / scorer.sd**2
        moves = Sensitivity(
            tuple(block.total(each) * variance[:, None] for each in mixed),
            population * variance[:, None] * (scorer.scoring == "map"),
            jnp.stack([one, -theta], axis=1) * variance[:, None],
        )
        added, shared = added_variance(scorer, block, theta, moves)
        widened = variance + added
        # At a bound, or with hardly any information, an error is the bounds' distance.
        usable = ~search.pinned & (widened <= widest)
        shared = jnp.where(usable[:, None], shared, 0)
        variance = jnp.where(search.pinned, variance, jnp.minimum(widened, widest))
    flag = jnp.where(search.pinned, int(ScoreFlag.AT_BOUND), 0)
    flag = flag | jnp.where(search.done, 0, int(ScoreFlag.UNFINISHED))
    return BlockScores(theta, variance, flag, shared)


def _newton(function, grid: Array, objective: Array) -> _Search:
    """Roots of `function` near the grid points where `objective` is highest."""
    dtype = grid.dtype
    eps = jnp.finfo(dtype).eps
    top = jnp.max(objective, axis=1)
    # Where a likelihood is flat up to rounding towards an end, there is no finite
    # estimate: prefer the end to an arbitrary point of the plateau.
    slack = 256 * eps * jnp.maximum(jnp.abs(top), 1)
    width = grid[-1] - grid[0]
    index = jnp.argmax(objective, axis=1)
    last = grid.shape[0] - 1
    index = jnp.where(objective[:, last] >= top - slack, last, index)
    index = jnp.where(objective[:, 0] >= top - slack, 0, index)
    theta = grid[index]
    low, high = grid[jnp.maximum(index - 2, 0)], grid[jnp.minimum(index + 2, last)]
    tolerance = eps ** (2 / 3)

    def body(search: _Search) -> _Search:
        """A Newton step where it stays between the bounds, else a bisection."""
        theta = search.theta
        value, slope = jax.jvp(function, (theta,), (jnp.ones_like(theta),))
        level = jnp.abs(value) * width <= slack
        outward = ((theta <= grid[0]) & ((value <= 0) | level)) | (
            (theta >= grid[-1]) & ((value >= 0) | level)
        )
        pinned = search.pinned | outward
        low = jnp.where(value > 0, theta, search.low)
        high = jnp.where(value < 0, theta, search.high)
        newton = theta - value / jnp.where(slope < 0, slope, -1)
        trusted = (slope < 0) & (newton >= low) & (newton <= high)
        new = jnp.where(trusted, newton, (low + high) / 2)
        new = jnp.where(pinned | search.done | (value == 0), theta, new)
        done = search.done | (jnp.abs(new - theta) <= tolerance)
        return _Search(new, low, high, -slope, pinned, done, search.num_steps + 1)

    never = jnp.zeros(theta.shape, bool)
    init = _Search(theta, low, high, theta, never, never, jnp.zeros((), jnp.int32))
    is_open = lambda search: ~jnp.all(search.done) & (search.num_steps < MOST_STEPS)
    return lax.while_loop(is_open, body, init)
