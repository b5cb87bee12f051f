"""Items of a factor model given expected counts at nodes: safeguarded Newton steps.

The expected log-likelihood of an item is concave in its intercepts d and slopes a for
every family that is fitted here: right or wrong by both links, graded responses (Pratt
1981) and partial credit. With normal priors, a Newton step with a >= 0 where requested
therefore rises if it is short enough (`likelihood.item_steps.shortened_step`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax.estimators.joint.bound import Quadratic, add_normal_prior
from irtjax.estimators.joint.cells import cells_of
from irtjax.estimators.joint.cuts import closed, leaders
from irtjax.likelihood.counts import Counts
from irtjax.likelihood.item_steps import (
    expected_derivatives,
    expected_value,
    shortened_step,
)
from irtjax.likelihood.problem import Problem, Start, is_positive
from irtjax.models.model import Model
from irtjax.numerics.kernels import positive_definite_solve
from irtjax.numerics.nnls import nnls


class Raised(NamedTuple):
    """New rows (d, a), and the quadratic of the log posterior at the old ones.

    Of intercepts that move together the first has the derivatives; others have 0.
    """

    stacked: Float[Array, "items p"]
    items: Quadratic


class ExpectedItems(NamedTuple):
    """Expected log-likelihoods of items as functions of rows (d, a).

    Attributes:
        model: The model with slopes of any sign and without priors.
        nodes: `[nodes, dims]` abilities.
        counts: Expected counts there.
    """

    model: Model
    nodes: Float[Array, "nodes dims"]
    counts: Counts

    @classmethod
    def of(cls, model: Model, nodes: Array, counts: Counts) -> ExpectedItems:
        """Of a model with priors, slopes perhaps kept at or above 0."""
        family = dataclasses.replace(model.family, slopes="free")
        return cls(Model(model.name, family), nodes, counts)

    def _given(self, stacked: Array) -> tuple:
        """Arguments of the expected log-likelihood of items."""
        cuts = stacked.shape[1] - self.nodes.shape[1]
        rows = jnp.concatenate([stacked[:, cuts:], stacked[:, :cuts]], axis=1)
        frame = jnp.zeros(2, rows.dtype)  # Of priors, which there are none of.
        return self.model, rows, self.nodes, self.counts, frame

    def value(self, stacked: Array) -> Float[Array, " items"]:
        """The expected log-likelihoods; NaN where intercepts are out of order."""
        return expected_value(*self._given(stacked))

    def derivatives(self, stacked: Array) -> tuple[Array, Quadratic]:
        """Expected log-likelihoods, and their gradients and curvatures."""
        derivatives = expected_derivatives(*self._given(stacked))
        dims, size = self.nodes.shape[1], stacked.shape[1]
        order = np.r_[dims:size, :dims]
        curvature = derivatives.curvature[:, order][:, :, order]
        return derivatives.value, Quadratic(derivatives.gradient[:, order], curvature)


def ties(problem: Problem, dtype) -> Float[Array, "items p p"] | None:
    """Which coordinates (d, a) move as one: see `cuts.leaders`; None if none may."""
    cells = cells_of(problem.model)
    if not cells.ordered or cells.num_cuts == 1:
        return None
    together, dims = leaders(problem, cells, dtype), problem.model.family.dims
    slopes = jnp.broadcast_to(jnp.eye(dims, dtype=dtype), (len(together), dims, dims))
    upper = jnp.pad(together, ((0, 0), (0, 0), (0, dims)))
    lower = jnp.pad(slopes, ((0, 0), (0, 0), (cells.num_cuts, 0)))
    return jnp.concatenate([upper, lower], axis=1)


def with_ties(start: Start, together: Array | None) -> Start:
    """The start with intercepts that move as one as close as may be."""
    if together is None:
        return start
    intercept = start.items.intercept
    cuts, mean = intercept.shape[1], jnp.mean(intercept, axis=1)
    mean, rest = closed(together[:, :cuts, :cuts], mean, intercept - mean[:, None])
    items = start.items._replace(intercept=mean[:, None] + rest)
    return start._replace(items=items)


def raise_items(
    problem: Problem,
    stacked: Float[Array, "items p"],
    expected: ExpectedItems,
    first: tuple[Array, Quadratic],
    priors: tuple[Array, Array],
    free: Bool[Array, "items p"],
    together: Array | None,
) -> Raised:
    """Raises each item's expected log posterior by a safeguarded Newton step.

    Args:
        problem: The problem.
        stacked: Rows (d, a).
        expected: Their expected log-likelihoods.
        first: Those at the rows, and their derivatives.
        priors: Means and precisions of the priors of (d, a).
        free: Which coordinates to estimate.
        together: See `ties`.
    """
    mean, precision = priors
    value, items = first[0], add_normal_prior(first[1], stacked, mean, precision)
    if together is not None:
        free = free & (jnp.sum(together, axis=1) > 0)
        items = Quadratic(
            jnp.einsum("jhg,jh->jg", together, items.gradient),
            jnp.einsum("jhg,jhk,jkl->jgl", together, items.curvature, together),
        )
    dims = problem.model.family.dims
    step = _newton_step(items, stacked, free, dims, is_positive(problem.model))
    if together is not None:
        step = jnp.einsum("jhg,jg->jh", together, step)
    of_priors = lambda at: -0.5 * jnp.sum(precision * (at - mean) ** 2, axis=1)
    value_of = lambda at: expected.value(at) + of_priors(at)
    new = shortened_step(value_of, stacked, step, value + of_priors(stacked))
    return Raised(new, items)


def _newton_step(
    items: Quadratic, stacked: Array, free: Array, dims: int, positive: bool
) -> Float[Array, "items p"]:
    """To the maximum of each quadratic over (d, a), with a >= 0 where requested.

    Then the intercepts are eliminated by their Schur complement, which leaves
    non-negative least squares in the slopes.
    """
    cuts = stacked.shape[1] - dims
    gradient = jnp.where(free, items.gradient, 0)
    free_pairs = free[:, :, None] & free[:, None, :]
    unit = jnp.eye(stacked.shape[1], dtype=stacked.dtype)
    curvature = jnp.where(free_pairs, items.curvature, unit)
    if not positive:
        return jnp.where(free, positive_definite_solve(curvature, gradient)[0], 0)
    base, cross = curvature[:, :cuts, :cuts], curvature[:, :cuts, cuts:]
    right = jnp.concatenate([cross, gradient[:, :cuts, None]], axis=2)
    solve = jax.vmap(lambda x: positive_definite_solve(base, x)[0], 2, 2)
    solved = solve(right)
    inner, alone = solved[..., :-1], solved[..., -1]
    own = curvature[:, cuts:, cuts:]
    eps = jnp.finfo(stacked.dtype).eps
    # A little more curvature where the complement is all rounding error.
    ridge = (
        100 * eps * jnp.diagonal(own, axis1=1, axis2=2)[:, :, None] * unit[:dims, :dims]
    )
    schur = own - jnp.einsum("jmk,jml->jkl", cross, inner) + ridge
    slopes = stacked[:, cuts:]
    target = gradient[:, cuts:] - jnp.einsum("jmk,jm->jk", cross, alone)
    target = target + jnp.einsum("jkl,jl->jk", schur, slopes)
    move = jnp.where(free[:, cuts:], jax.vmap(nnls)(schur, target) - slopes, 0)
    back = alone - jnp.einsum("jmk,jk->jm", inner, move)
    return jnp.where(free, jnp.concatenate([back, move], axis=1), 0)
