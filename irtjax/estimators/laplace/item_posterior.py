"""The posterior of one item given the abilities, and its derivatives.

Expectations of items over the error of the abilities differ from those at the mode. To
second order the difference is the derivative of

    h_j = -tr(C A_j(theta)) / 2 + delta' score_j(theta),    A_j = -d2 log m_j / dtheta2,

in weights tau and T added to the log density of item j as tau'x + x'Tx. C is the
covariance of the abilities and delta their mean less their mode. The derivative of the
first part in theta is that of -log|A| / 2, which gives delta (Tierney and Kadane 1986).

The derivative is too small where many subjects respond to an item: their errors then
move the item by more than its uncertainty. It also fails for scores: an item with small
dispersion dominates the abilities, and in the end its scores are the abilities (Heywood
case). There (`expected`) the first part of A_j, the expected -d2 log p / dtheta2,
enters the item's density exactly, as the mean of log p over the error of each ability.
With a dozen subjects, whose errors are wide, the derivative is more accurate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.models.family import AbstractResponseFamily
from irtjax.models.multilevel.model import Hierarchical
from irtjax.numerics.kernels import (
    inverse_cholesky,
    positive_definite_solve,
    small_symmetric_eigen,
)

#: A coordinate moves by no more than this in one Newton step.
LONGEST_STEP = 2.0
#: Standard deviations that the error of the abilities may move an item's mean by.
FARTHEST = 2.0
#: Least curvature of an item's posterior, in units of its prior's. Only asymptotes bend
#: the likelihood the other way; nodes are then no farther out than the prior's, times
#: the root of one over this.
LEAST_CURVATURE = 0.25
#: Times that nodes are placed again, by mean and covariance in place of mode and
#: curvature, where likelihoods are not log-concave; and the share of the old covariance
#: that is added to the new one, should a single node have all the weight.
NUM_REFINEMENTS, SMALLEST_REFINED = 1, 0.02
#: Standard deviation that stands for a prior that is given.
GIVEN_SD = 2.0


class Outer(NamedTuple):
    """The abilities, effects and covariances that items are integrated given.

    Attributes:
        ability: `[subjects, groups]`.
        effects: `[effects, columns]` beta, in natural units.
        residual_factor: `[rows, columns, columns]` Cholesky factors of Omega, one for
            all units or one for the units of each group.
        group_effects: `[groups, columns]`; no rows without them.
    """

    ability: Float[Array, "subjects groups"]
    effects: Float[Array, "effects columns"]
    residual_factor: Float[Array, "rows columns columns"]
    group_effects: Float[Array, "some columns"]

    def factor(self, unit: Block) -> Float[Array, "columns columns"]:
        """The factor of one unit."""
        return self.residual_factor[unit.row]


def hermite_nodes(
    order: int | tuple[int, ...], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Product Gauss-Hermite nodes `[nodes, size]` and log weights for exp(-|z|^2).

    Args:
        order: Nodes per coordinate, for all or each.
        size: Number of coordinates.

    >>> nodes, log_weights = hermite_nodes(3, 2)
    >>> nodes.shape, round(float(np.exp(log_weights).sum()), 6)  # pi
    ((9, 2), 3.141593)
    """
    orders = (order,) * size if isinstance(order, int) else order
    rules = [np.polynomial.hermite.hermgauss(each) for each in orders]
    grid = np.stack(np.meshgrid(*[x for x, _ in rules], indexing="ij"), -1)
    logs = np.stack(np.meshgrid(*[np.log(w) for _, w in rules], indexing="ij"), -1)
    return grid.reshape(-1, size), logs.sum(-1).reshape(-1)


def orders_of(model: Hierarchical, order: int) -> tuple[int, ...]:
    """Nodes of each coordinate: few of those that stay near their prior.

    Half as many of shares, and two of each number of several but the first.

    >>> from irtjax.models.multilevel.design import lay_out
    >>> from irtjax.data.table import ResponseTable
    >>> from irtjax.models.families.logistic import Binary
    >>> table = ResponseTable.from_arrays([[1, 0], [0, 1]])
    >>> family = Binary(asymptotes=2, slopes="positive")
    >>> orders_of(lay_out(table, family, grouped=False).model, 5)
    (5, 5, 3, 3)
    """
    two, found = min(order, 2), []
    for parameter in model.family.parameters:
        few = two if parameter.name == "spacing" else order
        if parameter.bijection.kind == "unit":
            few = max((order + 1) // 2, two)
        found += [few, *[two] * (parameter.columns - 1)]
    return tuple(found)


def cell_terms(family: AbstractResponseFamily, row, shift, cells, exposure, theta):
    """Log-likelihood of the cells of one unit, `[width, subjects]`.

    Args:
        family: The response family.
        row: Coordinates of the unit, `[columns]`.
        shift: What its groups and offsets add to them, `[width, columns]`.
        cells: Statistics of the responses, each `[width, subjects]`.
        exposure: `[width, subjects]`.
        theta: Abilities, `[width, subjects]`.
    """
    items = jax.vmap(family.constrain)(row + shift)
    per_subject = jax.vmap(family.natural, in_axes=(None, 0))
    base, *rest = jax.vmap(per_subject)(items, theta)
    total = base * exposure
    for cell, natural in zip(cells, rest, strict=True):
        total = total + cell * natural
    return total


def _find_mode(log_joint, row, num_newton: int):
    """Newton's method with a step that is shortened where it does not climb."""

    def slope(row):
        gradient = jax.grad(log_joint)(row)
        return gradient, gradient

    def improve(_, state):
        row, value = state
        bend, gradient = jax.jacfwd(slope, has_aux=True)(row)
        step, _ = positive_definite_solve(-bend, gradient)
        step = step * jnp.minimum(
            1.0, LONGEST_STEP / jnp.maximum(jnp.max(jnp.abs(step)), 1e-12)
        )
        sizes = jnp.asarray([1.0, 0.3, 0.05], row.dtype)
        trials = row + sizes[:, None] * step
        values = jax.vmap(log_joint)(trials)
        best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))
        better = values[best] >= value
        return (
            jnp.where(better, trials[best], row),
            jnp.where(better, values[best], value),
        )

    return lax.fori_loop(0, num_newton, improve, (row, log_joint(row)))[0]


class Block(NamedTuple):
    """One unit's part of `Units`, with its mode; a leading axis for a block of them."""

    values: Array
    exposure: Array
    group: Array
    design: Array
    offset: Array | None
    weight: Array
    row: Array
    mode: Array


class Found(NamedTuple):
    """What one unit leaves; see `Summary`."""

    mode: Array
    mean: Array
    mean_at: Array
    covariance: Array
    within: Array
    log_marginal: Array
    score: Array
    curve: Array
    by_node: Array
    together: Array
    bend: Array
    effect_gradient: Array
    effect_curvature: Array


class _Nodes(NamedTuple):
    """One unit's posterior as points with shares, `[nodes]` and `[nodes, columns]`."""

    mode: Array
    rows: Array
    logs: Array
    share: Array
    log_marginal: Array


def posterior(
    model: Hierarchical, outer: Outer, unit: Block, log_joint, nodes, num_newton: int
) -> _Nodes:
    """Quadrature nodes around the mode of a log joint density, and their shares."""
    mode = _find_mode(log_joint, unit.mode, num_newton)
    centre = mode
    least = lambda bend: _at_least(model, outer.factor(unit), bend)  # noqa: E731
    root = _root_of_inverse(least(-jax.hessian(log_joint)(mode)))
    points, log_weights = nodes
    log_weights = log_weights + jnp.sum(points**2, axis=1)

    def at(centre, root):
        rows = centre + math.sqrt(2.0) * points @ root.T
        return rows, jax.vmap(log_joint)(rows) + log_weights

    for _ in range(NUM_REFINEMENTS if has_shares(model.family) else 0):
        rows, logs = at(centre, root)
        share = jax.nn.softmax(logs)
        centre = share @ rows
        gap = rows - centre
        covariance = jnp.einsum("q,qa,qb->ab", share, gap, gap)
        lower = inverse_cholesky(covariance + SMALLEST_REFINED * root @ root.T)
        root = _root_of_inverse(least(lower.T @ lower))
    rows, logs = at(centre, root)
    size = points.shape[1]
    log_det = jnp.sum(jnp.log(jnp.diagonal(root))) + 0.5 * size * math.log(2.0)
    log_marginal = jax.nn.logsumexp(logs) + log_det
    return _Nodes(mode, rows, logs, jax.nn.softmax(logs), log_marginal)


def has_shares(family: AbstractResponseFamily) -> bool:
    """Whether a chance is mixed of others: then likelihoods are not log-concave."""
    return any(p.bijection.kind == "unit" for p in family.parameters)


class Error(NamedTuple):
    """What a unit hears of the error of its abilities: C and delta of the module.

    And whether what is expected over C stands in the density of the item.
    """

    covariance: Array
    shift: Array
    inside: bool

    def own(self, shape: tuple[int, ...]) -> Array:
        """Variances of the abilities of the unit's cells."""
        return jnp.diagonal(self.covariance).reshape(shape)


def joint_density(
    model: Hierarchical, outer: Outer, unit: Block, error: Error | None = None
):
    """The log joint density of a unit's row, its terms, and what they are made of."""
    family, dtype = model.family, outer.ability.dtype
    theta = outer.ability.T[unit.group]
    cells = tuple(s.astype(dtype) for s in family.statistics(unit.values))
    exposure = unit.exposure.astype(dtype)
    shift = jnp.zeros((theta.shape[0], model.num_columns), dtype)
    if model.has_group_effects:
        shift = outer.group_effects[unit.group]
    if unit.offset is not None:
        shift = shift + unit.offset
    terms = lambda row, theta, shift: cell_terms(  # noqa: E731
        family, row, shift, cells, exposure, theta
    )
    expected = terms
    if error is not None and error.inside:
        own = error.own(theta.shape)

        def expected(row, theta, shift):
            return over_error(lambda t: terms(row, t, shift), theta, own)

    prior_mean = unit.design @ outer.effects

    def log_joint(row):
        prior = model.log_item_prior(row, prior_mean, outer.factor(unit))
        return jnp.sum(expected(row, theta, shift)) + prior

    return log_joint, terms, expected, (theta, shift, cells, exposure)


def over_error(function, theta, own):
    """Mean of a function over normal errors of its argument, by three nodes."""
    far = jnp.sqrt(3.0 * own)
    sides = function(theta - far) + function(theta + far)
    return (4 * function(theta) + sides) / 6


def _by_ability(terms, theta, shift):
    """First to third derivatives of the terms of a row in the abilities."""

    def of(row):
        one = jnp.ones_like(theta)
        along = lambda f: lambda t: jax.jvp(f, (t,), (one,))[1]  # noqa: E731
        slope = along(lambda t: terms(row, t, shift))
        curve = lambda t: jax.jvp(slope, (t,), (one,))  # noqa: E731
        (first, second), (_, third) = jax.jvp(curve, (theta,), (one,))
        return first, second, third

    return of


class _Corrections(NamedTuple):
    """Derivatives of h_j in abilities, tau, T and the groups' shifts."""

    ability: Array
    tau: Array
    weights: Array
    shift: Array


def _corrections(
    model: Hierarchical, found: _Nodes, terms, theta, shift, error: Error
) -> _Corrections:
    """Of h_j, which is the posterior mean of g_q = c'Cc / 2 + b''C / 2 + delta'b.

    Here b are the derivatives of node q in the abilities, c = b less their mean.
    Weights change the posterior only, so their derivatives are covariances with g.
    """
    rows, share = found.rows, found.share
    # Unless the second derivatives are in the density of the item already.
    own = jnp.zeros_like(theta) if error.inside else error.own(theta.shape)

    def parts(shift):
        first, second, third = jax.vmap(_by_ability(terms, theta, shift))(rows)
        score = jnp.einsum("q,qwn->wn", share, first)
        centred = first - score
        flat = centred.reshape(share.shape[0], -1)
        pulled = (flat @ error.covariance).reshape(first.shape)
        each = 0.5 * jnp.sum(pulled * centred + second * own, axis=(1, 2))
        each = each + jnp.sum(first * error.shift, axis=(1, 2))
        return each, first, second, third, pulled

    each, first, second, third, pulled = parts(shift)
    tilt = share * (each - share @ each)
    explicit = (pulled + error.shift) * second + 0.5 * own * third
    by_shift = jnp.zeros_like(shift)
    if model.has_group_effects:

        def h(shift_now):
            change = jax.vmap(
                lambda row: jnp.sum(
                    terms(row, theta, shift_now) - terms(row, theta, shift)
                )
            )(rows)
            return tilt @ change + share @ parts(shift_now)[0]

        by_shift = jax.grad(h)(shift)
    return _Corrections(
        jnp.einsum("q,qwn->wn", tilt, first) + jnp.einsum("q,qwn->wn", share, explicit),
        tilt @ rows,
        jnp.einsum("q,qa,qb->ab", tilt, rows, rows),
        by_shift,
    )


def integrate(
    model: Hierarchical,
    outer: Outer,
    unit: Block,
    error: Error | None,
    nodes,
    num_newton: int,
    corrected: bool,
) -> Found:
    """Integrates one unit; over the error of the abilities where that is wanted."""
    family, dtype = model.family, outer.ability.dtype
    log_joint, terms, expected, parts = joint_density(model, outer, unit, error)
    theta, shift, cells, exposure = parts
    found = posterior(model, outer, unit, log_joint, nodes, num_newton)
    mode, rows, _, share, log_marginal = found
    mean = share @ rows
    gap = rows - mean
    covariance = jnp.einsum("q,qa,qb->ab", share, gap, gap)
    by_node, bends, _ = jax.vmap(_by_ability(expected, theta, shift))(rows)
    own = jnp.zeros_like(theta)
    if error is not None and error.inside:
        own = error.own(theta.shape)
    score = jnp.einsum("q,qwn->wn", share, by_node)
    centred = (by_node - score) * jnp.sqrt(share)[:, None, None]
    together = jnp.einsum("q,qa,qwn->awn", jnp.sqrt(share), gap, centred)
    columns = model.num_columns
    more = _Corrections(
        jnp.zeros_like(theta),
        jnp.zeros(columns, dtype),
        jnp.zeros((columns, columns), dtype),
        jnp.zeros_like(shift),
    )
    if error is not None and corrected:
        more = _corrections(model, found, expected, theta, shift, error)
    # E[xx'] less the square of the mean, both corrected.
    over = covariance + jnp.outer(mean, mean) + more.weights
    # Of second order, so limited to the precision of the first order.
    bound = FARTHEST * jnp.sqrt(jnp.diagonal(covariance))
    whole = mean + jnp.clip(more.tau, -bound, bound)
    over = over - jnp.outer(whole, whole)
    gradient = jnp.zeros((0, model.num_columns), dtype)
    effect_curvature = jnp.zeros((0, model.num_columns, model.num_columns), dtype)
    if model.has_group_effects:

        def by_column(one, row, cell, seen, at, own):
            parts = tuple(c[None] for c in cell)

            def each(t):
                return cell_terms(family, row, one[None], parts, seen[None], t)

            if error is not None and error.inside:
                return jnp.sum(over_error(each, at[None], own[None]))
            return jnp.sum(each(at[None]))

        each = lambda f: jax.vmap(  # noqa: E731
            jax.vmap(f, in_axes=(0, None, 0, 0, 0, 0)),
            in_axes=(None, 0, None, None, None, None),
        )(shift, rows, cells, exposure, theta, own)
        gradient = jnp.einsum("q,qwa->wa", share, each(jax.grad(by_column)))
        gradient = gradient + more.shift
        effect_curvature = -jnp.einsum(
            "q,qwab->wab", share, each(jax.hessian(by_column))
        )
    return Found(
        mode,
        whole,
        mean,
        covariance,
        over * unit.weight,
        log_marginal,
        score * unit.weight,
        jnp.einsum("q,qwn->wn", share, bends) * unit.weight,
        centred * jnp.sqrt(unit.weight),
        together,
        more.ability * unit.weight,
        gradient * unit.weight,
        effect_curvature * unit.weight,
    )


def _at_least(model: Hierarchical, factor: Array, curvature: Array) -> Array:
    """The curvature, no less than a share of the prior's in any direction.

    With asymptotes a mode can be next to flat, or bent upwards: nodes placed by that
    curvature are anywhere, and in single precision beyond what a chance can be.
    """
    if not has_shares(model.family):
        return curvature
    scale = jnp.where(jnp.asarray(model.learned), 1.0, GIVEN_SD)
    factor = factor * scale[:, None]
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    back = jax.scipy.linalg.solve_triangular(factor, identity, lower=True)
    values, vectors = small_symmetric_eigen(factor.T @ curvature @ factor)
    lacking = vectors.T @ back
    size = jnp.maximum(LEAST_CURVATURE - values, 0)
    return curvature + lacking.T @ (size[:, None] * lacking)


def _root_of_inverse(curvature: Array) -> Array:
    """A root of the inverse; of that of the diagonal where it is not positive."""
    upper = inverse_cholesky(curvature).T
    size = jnp.maximum(jnp.abs(jnp.diagonal(curvature)), 1e-4)
    return jnp.where(jnp.all(jnp.isfinite(upper)), upper, jnp.diag(size**-0.5))
