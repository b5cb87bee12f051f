"""The intercepts of ordered categories under MM: a safeguarded Newton step by item.

The intercepts c_1 ... c_m of an item have no quadratic bound: where two of them meet,
the curvature is infinite. Given abilities and slopes the likelihood of an item is
concave in them, so a Newton step on the expected information rises if it is short
enough. It keeps the order of graded intercepts, and is quartered until the item's
objective does not fall.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.estimators.joint.bound import (
    BilinearParameters,
    CutSums,
    ItemSweep,
    item_sweep,
)
from irtjax.estimators.joint.cells import AbstractCells, cells_of
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.families.graded import CLOSED, CLOSEST, filled, is_mark
from irtjax.numerics.kernels import positive_definite_solve

#: Share of the distance of two intercepts that a step may close.
LARGEST_CLOSING = 0.9
#: Trials of a step, each a quarter of the one before.
NUM_TRIALS = 8


class CutPrior(NamedTuple):
    """-precision (c - mean)^2 / 2 of each intercept; precision 0 without a prior."""

    mean: Array | float
    precision: Array | float

    def added_to(self, sums: CutSums, point: BilinearParameters) -> CutSums:
        """Scores and information of the posterior."""
        unit = jnp.eye(sums.scores.shape[1], dtype=sums.scores.dtype)
        return sums._replace(
            scores=sums.scores + self.precision * (self.mean - intercepts(point)),
            information=sums.information + self.precision * unit,
        )


def mean_cut(cuts: Float[Array, "items cuts"]) -> Float[Array, " items"]:
    """Mean of the intercepts of the categories that an item has."""
    used = ~is_mark(cuts)
    return jnp.sum(jnp.where(used, cuts, 0), axis=1) / jnp.sum(used, axis=1)


def intercepts(point: BilinearParameters) -> Float[Array, "items cuts"]:
    """All intercepts of the items."""
    assert point.cuts is not None
    return point.intercept[:, None] + point.cuts


def leaders(
    problem: Problem, cells: AbstractCells, dtype
) -> Float[Array, "items cuts cuts"]:
    """Entry (h, g) is 1 where intercept h moves with g, the first of those that do.

    Graded intercepts around a category that nobody chose move as one: its probability
    has no maximum above 0, so they would approach each other without end.
    """
    data, count = problem.data, cells.num_cuts
    place = jnp.broadcast_to(jnp.arange(count), (data.num_items, count))
    if cells.ordered:
        seen = [jnp.ones(data.num_items, bool)]
        for code in problem.model.family.category_codes[1:-1]:
            chosen = data.values == code
            if data.exposure is not None:
                chosen = chosen & (data.exposure > 0)
            if data.subject_weight is not None:
                chosen = chosen & (data.subject_weight > 0)[:, None]
            seen.append(jnp.any(chosen, axis=0))
        # Intercepts that are fixed stay where they are.
        free = jnp.all(_free(problem), axis=1, keepdims=True)
        place = jnp.where(jnp.stack(seen, axis=1) | ~free, place, 0)
        place = lax.cummax(place, axis=1)
    return (place[:, :, None] == jnp.arange(count)).astype(dtype)


def closed(
    together: Array, intercept: Array, cuts: Float[Array, "items cuts"]
) -> tuple[Array, Array]:
    """Mean and deviations with intercepts that move as one as close as may be."""
    tied = jnp.diagonal(together, axis1=1, axis2=2)[:, 1:] == 0
    gap = jnp.where(tied, CLOSEST, -jnp.diff(cuts, axis=1))
    below = jnp.cumsum(gap, axis=1)
    moved = jnp.concatenate([cuts[:, :1], cuts[:, :1] - below], axis=1)
    moved = jnp.where(jnp.any(tied, axis=1, keepdims=True), moved, cuts)
    mean = mean_cut(moved)
    return intercept + mean, moved - mean[:, None]


def tied_coordinates(
    problem: Problem, dtype
) -> Float[Array, "items columns columns"] | None:
    """Which coordinates of the items move as one: see `leaders`; None if none may."""
    cells = cells_of(problem.model)
    if not cells.ordered or cells.num_cuts == 1:
        return None
    together = leaders(problem, cells, dtype)
    dims = len(problem.model.family.slope_columns)
    slopes = jnp.broadcast_to(jnp.eye(dims, dtype=dtype), (len(together), dims, dims))
    upper = jnp.pad(slopes, ((0, 0), (0, 0), (0, cells.num_cuts)))
    lower = jnp.pad(together, ((0, 0), (0, 0), (dims, 0)))
    return jnp.concatenate([upper, lower], axis=1)


def with_tied_intercepts(start: Start, together: Array | None) -> Start:
    """The start with intercepts that move as one as close as may be."""
    if together is None:
        return start
    intercept = start.items.intercept
    cuts, mean = intercept.shape[1], jnp.mean(intercept, axis=1)
    deviations = intercept - mean[:, None]
    mean, deviations = closed(together[:, -cuts:, -cuts:], mean, deviations)
    items = start.items._replace(intercept=mean[:, None] + deviations)
    return start._replace(items=items)


def raise_cuts(
    problem: Problem,
    cells: AbstractCells,
    temperature: Array | float,
    point: BilinearParameters,
    seen: ItemSweep,
    together: Array,
    prior: CutPrior,
) -> tuple[BilinearParameters, Float[Array, "items p"]]:
    """The items with raised intercepts, and their gradients in (d, a) there."""
    assert seen.cuts is not None
    step = _newton_step(problem, cells, point, seen.cuts, together, prior)
    start = intercepts(point)
    log_lik = seen.cuts.log_lik
    slack = 4 * jnp.finfo(start.dtype).eps * jnp.abs(log_lik)

    def moved(share: Array) -> BilinearParameters:
        new = start + share[:, None] * step
        mean = mean_cut(new)
        return point._replace(intercept=mean, cuts=new - mean[:, None])

    def of_prior(at: Array) -> Array:
        gap = jnp.where(is_mark(at), 0, at - prior.mean)
        return -0.5 * prior.precision * jnp.sum(gap**2, axis=1)

    def trial(carry):
        share, done, columns, count = carry
        at = moved(share)
        there, gradients = item_sweep(problem.data, at, temperature, cells)
        gain = there - log_lik + of_prior(intercepts(at)) - of_prior(start)
        rises = gain >= -slack
        columns = jnp.where((rises & ~done)[:, None], gradients, columns)
        done, count = done | rises, count + 1
        shorter = jnp.where(count < NUM_TRIALS, share / 4, 0)
        return jnp.where(done, share, shorter), done, columns, count

    share = jnp.ones_like(log_lik)
    carry = share, share < 0, seen.items.gradient, jnp.zeros((), jnp.int32)
    waits = lambda carry: jnp.any(~carry[1]) & (carry[3] < NUM_TRIALS)
    share, _, columns, _ = lax.while_loop(waits, trial, carry)
    return moved(share), columns


def residual_of(
    problem: Problem,
    point: BilinearParameters,
    sums: CutSums,
    together: Array,
    prior: CutPrior,
) -> Scalar:
    """Largest share of a gradient of the intercepts that does not cancel; see `MM`."""
    scores, information = _reduced(problem, prior.added_to(sums, point), together)
    from_prior = jnp.abs(prior.precision * (prior.mean - intercepts(point)))
    from_prior = jnp.where(is_mark(intercepts(point)), 0, from_prior)
    terms = jnp.einsum("jhg,jh->jg", together, sums.terms + from_prior)
    diagonal = jnp.diagonal(information, axis1=1, axis2=2)
    floor = 0.01 * diagonal * (1 + jnp.abs(intercepts(point)))
    tiny = jnp.finfo(scores.dtype).tiny * 1e6
    return jnp.max(jnp.abs(scores / jnp.maximum(terms + floor, tiny)))


def keep_order(
    cells: AbstractCells, cuts: Float[Array, "items cuts"], safe: Array
) -> Float[Array, "items cuts"]:
    """The cuts, or the safe ones of items whose cuts have lost their order."""
    if not cells.ordered:
        return cuts
    # Intercepts of closed categories are equal to others.
    gap, marked = jnp.diff(filled(cuts), axis=1), is_mark(cuts)
    marked = marked[:, 1:] | marked[:, :-1]
    ordered = jnp.all((gap < 0) | (marked & (gap == 0)), axis=1)
    return jnp.where(ordered[:, None], cuts, safe)


def _free(problem: Problem) -> Array:
    """`[items, cuts]` mask of the cuts to estimate."""
    return problem.free[:, list(problem.model.family.intercept_columns)]


def _newton_step(problem, cells, point, sums, together, prior) -> Array:
    """On expected information, short enough to keep the order."""
    sums = prior.added_to(sums, point)
    scores, information = _reduced(problem, sums, together)
    step, _ = positive_definite_solve(information, scores)
    step = jnp.einsum("jhg,jg->jh", together, step)
    if not cells.ordered:
        return step
    # Intercepts of closed categories move with the next one.
    step_of = list(step.T)
    for h in range(len(step_of) - 2, -1, -1):
        lacks = point.cuts[:, h] < -CLOSED / 2
        step_of[h] = jnp.where(lacks, step_of[h + 1], step_of[h])
    gap = -jnp.diff(filled(point.cuts), axis=1)
    closing = jnp.diff(jnp.stack(step_of, axis=1), axis=1)
    safe = jnp.where(closing > 0, closing, 1)
    most = jnp.where(closing > 0, LARGEST_CLOSING * gap / safe, 1)
    return step * jnp.minimum(jnp.min(most, axis=1, keepdims=True), 1)


def _reduced(problem: Problem, sums: CutSums, together: Array) -> tuple[Array, Array]:
    """Scores and information of those that lead; 0 and 1 of others and fixed ones."""
    scores = jnp.einsum("jhg,jh->jg", together, sums.scores)
    information = jnp.einsum("jhg,jhk,jkl->jgl", together, sums.information, together)
    moves = _free(problem) & (jnp.sum(together, axis=1) > 0)
    unit = jnp.eye(scores.shape[1], dtype=scores.dtype)
    pairs = moves[:, :, None] & moves[:, None, :]
    return jnp.where(moves, scores, 0), jnp.where(pairs, information, unit)
