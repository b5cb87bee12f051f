"""What is known of abilities in a structured model, and what rests on their prior.

The curvature of their log density, with what items' effects add to it once they too are
estimated; and the unit of ability, of which the items know nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax._types import Scalar
from irtjax.estimators.components import (
    effect_sd,
    factors,
    inverses,
    num_units,
    squares,
)
from irtjax.estimators.structured_state import (
    Components,
    LaplaceState,
    StructuredProblem,
)
from irtjax.estimators.units import Following, Summary, Units
from irtjax.models.hierarchical import Hierarchical

#: Share of the abilities' prior precision that items may take away: they have learned
#: priors of their own, so truly they take little.
LARGEST_LOSS = 0.7


class _Held(NamedTuple):
    """What holding the mean log discrimination of each unit's items adds.

    Attributes:
        value: To the log density of the abilities.
        gradient: `[groups * subjects]` of it.
        slope: `[groups * subjects, units]` whose products with themselves are minus its
            second derivatives.
        mean: `[items, columns]` the items' means once theirs is held.
    """

    value: Scalar
    gradient: Array
    slope: Array
    mean: Array


def held_units(
    problem: StructuredProblem, components: Components, found: Summary
) -> _Held:
    """The mean log discrimination of the items of a unit of ability, held at its prior.

    A prior mean that is learned and items whose mean may differ from it say the same
    thing twice, and with few items the mode of the abilities is where the two fall
    apart: it takes no account of the volume of abilities, which grows with their unit.
    So the items' mean x-bar is what the learned mean is of: the abilities' density is
    conditioned on it, by the factor N(x-bar(theta) - mu; 0, v) / N(0; 0, s^2 / J).
    """
    model, units = problem.model, problem.units
    flat, num = found.gradient.size, num_units(model)
    if not (problem.expected and num and model.learned[0]):
        dtype = found.mean.dtype
        zero = jnp.zeros((), dtype)
        return _Held(zero, jnp.zeros(flat, dtype), jnp.zeros((flat, 0)), found.mean)
    num = 1 if units.is_aligned else num
    of = units.group[:, 0] if num > 1 else jnp.zeros_like(units.group[:, 0])
    total = lambda x: jax.ops.segment_sum(units.weight * x, of, num)  # noqa: E731
    count = total(jnp.ones_like(units.weight))
    offset = total(found.mean_at[:, 0] - units.design @ components.effects[:, 0])
    variance = total(found.covariance[:, 0, 0]) / count**2
    by_ability = found.cross[:, 0, 0].reshape(num, -1)
    along = jax.scipy.linalg.block_diag(*by_ability[:, :, None]) / count
    offset, root = offset / count, jnp.sqrt(variance)
    slope = along / root
    spread = jnp.exp(2 * components.log_residual_sd[0]) / count
    value = -0.5 * jnp.sum(offset**2 / variance + jnp.log(variance / spread))
    more = total(found.mean[:, 0] - units.design @ components.effects[:, 0]) / count
    mean = found.mean.at[:, 0].add(-more[of])
    return _Held(value, -slope @ (offset / root), slope, mean)


def centred(array: Array, parts: int) -> Array:
    """What is left of `[groups * subjects]`, or of a matrix, once means are 0.

    Args:
        array: By group and subject, along every axis.
        parts: Number of means, each of so many groups; with 0 all is left.
    """
    if not parts:
        return array
    for axis in range(array.ndim):
        split = jnp.moveaxis(array, axis, 0).reshape(parts, -1, *array.shape[1:])
        split = split - jnp.mean(split, axis=1, keepdims=True)
        array = jnp.moveaxis(split.reshape(array.shape), 0, axis)
    return array


def factorise(
    found,
    precision: Array,
    groups: int,
    held: Array | None = None,
    num_shifts: int = 0,
) -> tuple[Array, Array, Array]:
    """Curvature of all abilities: Cholesky factor, the data's part, log determinant.

    Where that is not positive, or items take most of the prior away, as can be far from
    the mode, the expected part of the data's. With `held` @ `held`', the part of what
    is held of items, where it is given. With `num_shifts` given that so many means of
    abilities are known (`centred`): these have then a curvature of 1, to be left out.
    """
    subjects = found.gradient.shape[0]
    size = groups * subjects
    identity = jnp.eye(subjects, dtype=precision.dtype)
    prior = jnp.kron(precision, identity)
    if found.curvature.shape[0] == 1 and groups > 1:
        data = found.curvature[0]
    else:
        index = jnp.arange(groups)
        data = jnp.zeros((groups, subjects, groups, subjects), precision.dtype)
        data = data.at[index, :, index].set(found.curvature).reshape(size, size)
    sound = jnp.linalg.cholesky(data + (1 - LARGEST_LOSS) * prior)
    safe = jnp.diag(jnp.maximum(found.safe.T.reshape(-1), 0))
    data = jnp.where(jnp.all(jnp.isfinite(sound)), data, safe)
    if held is not None:
        data = data + held @ held.T
    whole = data + prior
    if num_shifts:
        identity = jnp.eye(size, dtype=whole.dtype)
        data = centred(data, num_shifts)
        whole = centred(whole, num_shifts) + identity - centred(identity, num_shifts)
    root = jnp.linalg.cholesky(whole)
    return root, data, 2 * jnp.sum(jnp.log(jnp.diagonal(root)))


def following(
    model: Hierarchical, units: Units, components: Components, found: Summary
) -> Following | None:
    """How effects of items follow the abilities; None where no prior is learned."""
    if not any(model.learned):
        return None
    omega = inverses(factors(model, components))
    mask = jnp.asarray(model.learned, omega.dtype)
    omega = omega * mask * mask[:, None]
    size, rows = model.num_columns * model.design.shape[1], len(omega)
    cross = found.cross.reshape(rows, -1, *found.cross.shape[1:])
    cross = jnp.einsum("rab,rnbe->rnae", omega, cross).reshape(-1, size)
    square = squares(units, rows)
    known = jnp.einsum("rab,rbcef,rcd->adef", omega, found.square, omega)
    block = jnp.einsum("rab,ref->aebf", omega, square) - known.transpose(0, 2, 1, 3)
    ridge = effect_sd(model, components.log_component_sd).T.reshape(-1) ** -2.0
    root = jnp.linalg.cholesky(block.reshape(size, size) + jnp.diag(ridge))
    solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)  # noqa: E731
    return Following(
        omega, cross, solve(cross.T), solve(jnp.eye(size, dtype=root.dtype))
    )


def _deviations(
    model: Hierarchical, state: LaplaceState, precision: Array
) -> tuple[Array, Array, Array]:
    """Deviations of abilities from their centre, `[subjects, groups]`.

    And of the unit of each group, how many deviations it has of those that the data
    determine, and the sum of their squares.
    """
    ability, groups = state.ability, state.ability.shape[1]
    count = ability.shape[0]
    blocks = state.ability_covariance.reshape(groups, count, groups, count)
    held = jnp.diagonal(precision @ jnp.einsum("anbn->ab", blocks))
    used = jnp.clip(count - 1 - held, 0, count)
    centred = ability - jnp.mean(ability, axis=0)
    square = jnp.maximum(jnp.sum(centred**2, axis=0), 1e-6)
    if not model.has_group_scales:
        used, square = (jnp.full_like(x, jnp.sum(x)) for x in (used, square))
    return centred, used, square


def whole_covariance(
    model: Hierarchical,
    state: LaplaceState,
    found: Summary,
    precision: Array,
    follow: Following | None,
) -> Array:
    """Covariance of abilities and effects together, the part of the abilities.

    The curvature of the log posterior in both, items integrated out, with that of the
    common unit, and the effects' block taken out (Schur complement).
    """
    groups = model.num_groups
    root, _, _ = factorise(found, precision, groups)
    prior = jnp.kron(precision, jnp.eye(state.ability.shape[0], dtype=precision.dtype))
    data = root @ root.T - prior
    if follow is not None:
        data = data - follow.cross @ follow.slope
        # What is left along origins is rounding and the error of the quadrature, of
        # either sign: information is not negative.
        roots, vectors = jnp.linalg.eigh((data + data.T) / 2)
        data = (vectors * jnp.maximum(roots, 0)) @ vectors.T
    if num_units(model):
        centred, used, square = _deviations(model, state, precision)
        if groups > 1 and not model.has_group_scales:
            along, used, square = centred.T.reshape(-1, 1), used[:1], square[:1]
        else:
            along = jax.scipy.linalg.block_diag(*centred.T[:, :, None])
        # The data know no unit: what is left is a small difference of large numbers,
        # which the error of the quadrature rules. Only the deviations, as many as are
        # known, say how large they are.
        unit = along / jnp.sqrt(square)
        clear = jnp.eye(data.shape[0], dtype=data.dtype) - unit @ unit.T
        data = clear @ data @ clear + (unit * used / square) @ unit.T
    curvature = data + prior
    if model.correlated:
        # A shift of all abilities is taken up by intercepts and by their regression on
        # discriminations, which is estimated: only the prior knows it.
        shifts = jnp.eye(model.num_shifts, dtype=prior.dtype)
        shifts = jnp.repeat(shifts, prior.shape[0] // len(shifts), axis=0)
        moved, held = curvature @ shifts, prior @ shifts
        own = lambda x: x @ jnp.linalg.solve(shifts.T @ x, x.T)  # noqa: E731
        curvature = curvature - own(moved) + own(held)
    root = jnp.linalg.cholesky(curvature)
    identity = jnp.eye(curvature.shape[0], dtype=curvature.dtype)
    covariance = jax.scipy.linalg.cho_solve((root, True), identity)
    return jnp.where(jnp.all(jnp.isfinite(root)), covariance, state.ability_covariance)
