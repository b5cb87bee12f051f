"""The posterior of one item given the abilities, and its derivatives.

Expectations of items over the error of the abilities differ from those at the mode. To
second order the difference is the derivative of

    h_j = -tr(C A_j(theta)) / 2 + delta' score_j(theta),    A_j = -d2 log m_j / dtheta2,

in weights tau and T added to the log density of item j as tau'x + x'Tx. C is the
covariance of the abilities and delta their mean less their mode. The derivative of the
first part in theta is that of -log|A| / 2, which gives delta (Tierney and Kadane 1986).

The derivative is too small where many subjects respond to an item: their errors then
move the item by more than its uncertainty. It also fails for scores: an item with small
dispersion dominates the abilities, which converge to its scores (Heywood case). There
(`expected`) the first part of A_j, the expected -d2 log p / dtheta2, enters the item's
density exactly, as the mean of log p over the error of each ability. With a dozen
subjects, whose errors are wide, the derivative is more accurate.
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
from irtjax.models.multilevel.model import MultilevelModel
from irtjax.numerics.kernels import (
    inverse_cholesky,
    positive_definite_solve,
    small_symmetric_eigen,
)
from irtjax.numerics.memory import require_memory

#: A coordinate moves by no more than this in one Newton step.
LONGEST_STEP = 2.0
#: Most standard deviations by which the error of the abilities moves an item's mean.
FARTHEST = 2.0
#: Least curvature of an item's posterior, in units of its prior's: nodes are no farther
#: out than the prior's, times the root of one over this. Only with asymptotes is the
#: curvature of the likelihood negative.
LEAST_CURVATURE = 0.25
#: Times that nodes are placed again, by mean and covariance in place of mode and
#: curvature, where likelihoods are not log-concave; and the share of the old covariance
#: that is added to the new one, should a single node have all the weight.
NUM_REFINEMENTS, SMALLEST_REFINED = 1, 0.02
#: Standard deviation in place of a given prior's.
GIVEN_SD = 2.0


class Outer(NamedTuple):
    """The abilities, effects and covariances that items are integrated given.

    Effects are beta, in natural units; factors are those of Omega
    (`MultilevelModel.residual_factor`); group effects have no rows if there are none.
    """

    ability: Float[Array, "subjects groups"]
    effects: Float[Array, "effects columns"]
    residual_factor: Float[Array, "rows columns columns"]
    group_effects: Float[Array, "some columns"]


def hermite_nodes(
    order: int | tuple[int, ...], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Product Gauss-Hermite nodes `[nodes, size]`, log weights for exp(-|z|^2)."""
    orders = (order,) * size if isinstance(order, int) else order
    # A rule is found as the eigenvalues of a matrix of this order.
    needed = 8.0 * (max(map(float, orders)) ** 2 + size * math.prod(map(float, orders)))
    nodes = " x ".join(f"{x:,}" for x in orders)
    require_memory(needed, f"{nodes} quadrature nodes of an item", "lower order")
    rules = [np.polynomial.hermite.hermgauss(each) for each in orders]
    grid = np.stack(np.meshgrid(*[x for x, _ in rules], indexing="ij"), -1)
    logs = np.stack(np.meshgrid(*[np.log(w) for _, w in rules], indexing="ij"), -1)
    return grid.reshape(-1, size), logs.sum(-1).reshape(-1)


def orders_of(model: MultilevelModel, order: int) -> tuple[int, ...]:
    """Nodes of each coordinate: few of those that stay near their prior."""
    two, orders = min(order, 2), []
    for parameter in model.family.parameters:
        few = two if parameter.name == "spacing" else order
        if parameter.bijection.kind == "unit":
            few = max((order + 1) // 2, two)
        orders += [few, *[two] * (parameter.columns - 1)]
    return tuple(orders)


def _find_mode(log_joint, row, num_newton: int) -> tuple[Array, Array]:
    """Newton's method with a step that is shortened where it does not ascend.

    The mode and minus the Hessian there, which one more pass of the loop computes: in
    place of a second copy of the derivatives, most of the time to compile.
    """

    def slope(row):
        gradient = jax.grad(log_joint)(row)
        return gradient, gradient

    def improve(step_number, state):
        row, value, _ = state
        bend, gradient = jax.jacfwd(slope, has_aux=True)(row)
        step, _ = positive_definite_solve(-bend, gradient)
        step = step * jnp.minimum(
            1.0, LONGEST_STEP / jnp.maximum(jnp.max(jnp.abs(step)), 1e-12)
        )
        sizes = jnp.asarray([1.0, 0.3, 0.05], row.dtype)
        trials = row + sizes[:, None] * step
        values = jax.vmap(log_joint)(trials)
        best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))
        new, old = (trials[best], values[best]), (row, value)
        better = (values[best] >= value) & (step_number < num_newton)
        row, value = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)
        return row, value, -bend

    first = row, log_joint(row), jnp.zeros((row.size, row.size), row.dtype)
    mode, _, curvature = lax.fori_loop(0, num_newton + 1, improve, first)
    return mode, curvature


class Block(NamedTuple):
    """The first parts of `DistinctItems` for one item, or a block, and its mode."""

    values: Array
    exposure: Array
    group: Array
    design: Array
    offset: Array | None
    weight: Array
    row: Array
    sign: Array
    mode: Array


def posterior(
    model: MultilevelModel, outer: Outer, item: Block, log_joint, nodes, num_newton: int
) -> tuple[Array, Array, Array, Array]:
    """Mode, nodes `[nodes, columns]` around it, their shares, log marginal density."""
    mode, curvature = _find_mode(log_joint, item.mode, num_newton)
    centre, factor = mode, outer.residual_factor[item.row]
    root = _root_of_inverse(at_least_prior(model, factor, curvature))
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
        root = _root_of_inverse(at_least_prior(model, factor, lower.T @ lower))
    rows, logs = at(centre, root)
    log_det = jnp.sum(jnp.log(jnp.diagonal(root)))
    log_det = log_det + 0.5 * points.shape[1] * math.log(2.0)
    return mode, rows, jax.nn.softmax(logs), jax.nn.logsumexp(logs) + log_det


def has_shares(family: AbstractResponseFamily) -> bool:
    """Whether a probability is a mixture: then likelihoods are not log-concave."""
    return any(p.bijection.kind == "unit" for p in family.parameters)


class Error(NamedTuple):
    """C and delta of the module for an item; `inside`: its density is that over C."""

    covariance: Array
    shift: Array
    inside: bool

    @classmethod
    def of(
        cls, item: Block, covariance: Array, inside: bool, shift: Array | None = None
    ) -> Error:
        """From `Summary`'s covariance and shift `[subjects, groups]`; None is 0."""
        place = item.group[0] if item.group.shape[0] == 1 else 0
        gap = jnp.zeros(item.values.shape, covariance.dtype)
        if shift is not None:
            gap = shift.T[item.group]
        return cls(covariance[place], gap, inside)

    def own(self, shape: tuple[int, ...]) -> Array:
        """Variances of the abilities of the item's cells."""
        return jnp.diagonal(self.covariance).reshape(shape)


def joint_density(
    model: MultilevelModel, outer: Outer, item: Block, error: Error | None = None
):
    """The log joint density of an item's row, its terms, and what they depend on.

    Terms are the log-likelihoods `[width, subjects]` of the item's cells, by row,
    abilities `[width, subjects]` and the shifts `[width, columns]` of groups and
    offsets: at the abilities, and averaged over their error where that is `inside`.
    """
    family, dtype = model.family, outer.ability.dtype
    theta = outer.ability.T[item.group]
    cells = tuple(s.astype(dtype) for s in family.statistics(item.values))
    exposure = item.exposure.astype(dtype)
    shift = jnp.zeros((theta.shape[0], model.num_columns), dtype)
    if model.has_group_effects:
        shift = outer.group_effects[item.group]
    if item.offset is not None:
        shift = shift + item.offset

    def terms(row, theta, shift):
        items = jax.vmap(family.constrain)(row + shift)
        per_subject = jax.vmap(family.natural, in_axes=(None, 0))
        base, *rest = jax.vmap(per_subject)(items, item.sign * theta)
        total = base * exposure
        for cell, natural in zip(cells, rest, strict=True):
            total = total + cell * natural
        return total

    expected = terms
    if error is not None and error.inside:
        own = error.own(theta.shape)

        def expected(row, theta, shift):
            return over_error(lambda t: terms(row, t, shift), theta, own)

    prior_mean = item.design @ outer.effects

    def log_joint(row):
        factor = outer.residual_factor[item.row]
        prior = model.log_item_prior(row, prior_mean, factor)
        return jnp.sum(expected(row, theta, shift)) + prior

    return log_joint, terms, expected, theta, shift


def over_error(function, theta, own):
    """Mean of a function over normal errors of its argument, by three nodes."""
    far = jnp.sqrt(3.0 * own)
    sides = function(theta - far) + function(theta + far)
    return (4 * function(theta) + sides) / 6


def _by_ability(terms, theta, shift):
    """First to third derivatives of the terms of a row in the abilities."""

    def of(row):
        one = jnp.ones_like(theta)
        along = lambda f: lambda t: jax.jvp(f, (t,), (one,))[1]
        slope = along(lambda t: terms(row, t, shift))
        curve = lambda t: jax.jvp(slope, (t,), (one,))
        (first, second), (_, third) = jax.jvp(curve, (theta,), (one,))
        return first, second, third

    return of


def _corrections(
    model: MultilevelModel,
    rows: Array,
    share: Array,
    derivatives: tuple[Array, Array, Array],
    terms,
    theta,
    shift,
    error: Error,
) -> tuple[Array, Array, Array, Array]:
    """Derivatives of h_j in abilities, tau, T and the groups' shifts.

    h_j is the posterior mean of g_q = c'Cc / 2 + b''C / 2 + delta'b. Here b are the
    derivatives of node q in the abilities, c = b less their mean. Weights change the
    posterior only, so their derivatives are covariances with g.
    """
    # Unless the second derivatives are in the density of the item already.
    own = jnp.zeros_like(theta) if error.inside else error.own(theta.shape)

    def parts(first, second):
        score = jnp.einsum("q,qwn->wn", share, first)
        centred = first - score
        flat = centred.reshape(share.shape[0], -1)
        pulled = (flat @ error.covariance).reshape(first.shape)
        each = 0.5 * jnp.sum(pulled * centred + second * own, axis=(1, 2))
        return each + jnp.sum(first * error.shift, axis=(1, 2)), pulled

    first, second, third = derivatives
    each, pulled = parts(first, second)
    tilt = share * (each - share @ each)
    explicit = (pulled + error.shift) * second + 0.5 * own * third
    by_shift = jnp.zeros_like(shift)
    if model.has_group_effects:

        def h(shift):
            height = jax.vmap(lambda row: jnp.sum(terms(row, theta, shift)))(rows)
            first, second, _ = jax.vmap(_by_ability(terms, theta, shift))(rows)
            return tilt @ height + share @ parts(first, second)[0]

        by_shift = jax.grad(h)(shift)
    by_ability = jnp.einsum("q,qwn->wn", tilt, first)
    by_ability = by_ability + jnp.einsum("q,qwn->wn", share, explicit)
    weights = jnp.einsum("q,qa,qb->ab", tilt, rows, rows)
    return by_ability, tilt @ rows, weights, by_shift


def integrate(
    model: MultilevelModel,
    outer: Outer,
    item: Block,
    error: Error | None,
    nodes,
    num_newton: int,
    corrected: bool,
) -> dict[str, Array]:
    """One item, over the error of abilities if `corrected`; named as in `Summary`."""
    log_joint, _, expected, theta, shift = joint_density(model, outer, item, error)
    mode, rows, share, log_marginal = posterior(
        model, outer, item, log_joint, nodes, num_newton
    )
    mean = share @ rows
    gap = rows - mean
    covariance = jnp.einsum("q,qa,qb->ab", share, gap, gap)
    derivatives = jax.vmap(_by_ability(expected, theta, shift))(rows)
    by_node, bends, _ = derivatives
    score = jnp.einsum("q,qwn->wn", share, by_node)
    centred = (by_node - score) * jnp.sqrt(share)[:, None, None]
    corrections = jax.tree.map(jnp.zeros_like, (theta, mean, covariance, shift))
    if error is not None and corrected:
        corrections = _corrections(
            model, rows, share, derivatives, expected, theta, shift, error
        )
    by_ability, tau, weights, by_shift = corrections
    # E[xx'] less the square of the mean, both corrected.
    within = covariance + jnp.outer(mean, mean) + weights
    # Of second order, so limited to the precision of the first order.
    bound = FARTHEST * jnp.sqrt(jnp.diagonal(covariance))
    whole = mean + jnp.clip(tau, -bound, bound)
    within = within - jnp.outer(whole, whole)
    results = {
        "mode": mode,
        "mean": whole,
        "mean_at": mean,
        "covariance": covariance,
        "within": within * item.weight,
        "log_marginal": log_marginal,
        "gradient": score * item.weight,
        "safe": -jnp.einsum("q,qwn->wn", share, bends) * item.weight,
        "bend": by_ability * item.weight,
        # These make `curvature` and `cross`.
        "by_node": centred * jnp.sqrt(item.weight),
        "together": jnp.einsum("q,qa,qwn->awn", jnp.sqrt(share), gap, centred),
    }
    if model.has_group_effects:

        def of_shift(row):
            slope = jax.grad(lambda shift: jnp.sum(expected(row, theta, shift)))
            along = lambda way: jax.jvp(
                slope, (shift,), (jnp.broadcast_to(way, shift.shape),)
            )
            return jax.vmap(along, out_axes=(None, 1))(
                jnp.eye(model.num_columns, dtype=shift.dtype)
            )

        slopes, curvatures = jax.vmap(of_shift)(rows)
        gradient = jnp.einsum("q,qwa->wa", share, slopes) + by_shift
        results["effect_gradient"] = gradient * item.weight
        curvature = -jnp.einsum("q,qwab->wab", share, curvatures)
        results["effect_curvature"] = curvature * item.weight
    return results


def at_least_prior(model: MultilevelModel, factor: Array, curvature: Array) -> Array:
    """The curvature, no less than a share of the prior's in any direction.

    With asymptotes the curvature at a mode can be 0 or negative, and place nodes
    anywhere.
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
