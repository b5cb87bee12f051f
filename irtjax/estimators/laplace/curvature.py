"""Precision of abilities in a multilevel model, and fixed means."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.estimators.laplace.components import num_units
from irtjax.estimators.laplace.items import Summary
from irtjax.estimators.laplace.problem import Components, MultilevelProblem

#: Share of the abilities' prior precision by which items may reduce it: they have
#: estimated priors, so the true reduction is small.
LARGEST_LOSS = 0.7


class _FixedScales(NamedTuple):
    """Contribution of fixed means: value, gradient, S with minus its Hessian S S'.

    `mean` is the means of the items given the fixed mean.
    """

    value: Scalar
    gradient: Float[Array, " abilities"]
    slope: Float[Array, "abilities scales"]
    mean: Float[Array, "items columns"]


def fix_scales(
    problem: MultilevelProblem, components: Components, summary: Summary
) -> _FixedScales:
    """Fixes the mean log discrimination of the items of a scale at its prior.

    An estimated prior mean and the mean of the items are redundant. With few items the
    mode of the abilities separates them, because a mode ignores the volume of the
    abilities, which grows with their scale. The density of the abilities is therefore
    conditioned on the items' mean x-bar, by the factor N(x-bar(theta) - mu; 0, v) /
    N(0; 0, s^2 / J).
    """
    model, distinct = problem.model, problem.distinct
    flat, num = summary.gradient.size, num_units(model)
    if not (problem.expected and num and model.learned[0]):
        zeros = jnp.zeros(flat, summary.mean.dtype)
        return _FixedScales(
            jnp.sum(zeros), zeros, jnp.zeros((flat, 0), zeros.dtype), summary.mean
        )
    num = 1 if distinct.is_aligned else num
    of = distinct.group[:, 0] if num > 1 else jnp.zeros_like(distinct.group[:, 0])
    total = lambda x: jax.ops.segment_sum(distinct.weight * x, of, num)
    count = total(jnp.ones_like(distinct.weight))
    offset = total(summary.mean_at[:, 0] - distinct.design @ components.effects[:, 0])
    variance = total(summary.covariance[:, 0, 0]) / count**2
    by_ability = jnp.sum(summary.cross[:, 0, 0].reshape(-1, flat), axis=0)
    by_ability = by_ability.reshape(num, -1)
    along = jax.scipy.linalg.block_diag(*by_ability[:, :, None]) / count
    offset, root = offset / count, jnp.sqrt(variance)
    slope = along / root
    log_sd = jnp.full_like(distinct.weight, components.log_residual_sd[0])
    if problem.model.num_clusters:
        log_sd = log_sd + components.log_relative_sd[distinct.row, 0]
    prior_variance = total(jnp.exp(2 * log_sd)) / count**2
    value = -0.5 * jnp.sum(offset**2 / variance + jnp.log(variance / prior_variance))
    excess = (
        total(summary.mean[:, 0] - distinct.design @ components.effects[:, 0]) / count
    )
    mean = summary.mean.at[:, 0].add(-excess[of])
    return _FixedScales(value, -slope @ (offset / root), slope, mean)


def centred(array: Array, parts: int, weight: Array | None = None) -> Array:
    """Projects every axis on abilities with means 0 in equal `parts` of the groups.

    Abilities of subjects that pad (`weight` 0) become 0.
    """
    for axis in range(array.ndim if parts or weight is not None else 0):
        split = jnp.moveaxis(array, axis, 0)
        split = split.reshape(max(parts, 1), -1, *array.shape[1:])
        each = weight
        if weight is not None:
            each = jnp.tile(weight, split.shape[1] // len(weight))
        if parts:
            split = split - jnp.average(split, axis=1, weights=each)[:, None]
        if each is not None:
            split = split * each.reshape(-1, *[1] * (array.ndim - 1))
        array = jnp.moveaxis(split.reshape(array.shape), 0, axis)
    return array


def factorise(
    summary,
    precision: Array,
    groups: int,
    fixed: Array | None = None,
    num_shifts: int = 0,
    weight: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Curvature of all abilities: Cholesky factor, the data's part, log determinant.

    If the curvature is not positive, or items remove most of the prior, as can happen
    far from the mode, the expected information replaces the data's part. `fixed` is the
    `slope` of fixed means of items. With `num_shifts` means of abilities fixed, or
    subjects of `weight` 0 (`centred`), these directions get a curvature of 1, which is
    left out.
    """
    subjects = summary.gradient.shape[0]
    size = groups * subjects
    identity = jnp.eye(subjects, dtype=precision.dtype)
    prior = jnp.kron(precision, identity)
    if summary.curvature.shape[0] == 1 and groups > 1:
        data = summary.curvature[0]
    else:
        index = jnp.arange(groups)
        data = jnp.zeros((groups, subjects, groups, subjects), precision.dtype)
        data = data.at[index, :, index].set(summary.curvature).reshape(size, size)
    sound = jnp.linalg.cholesky(data + (1 - LARGEST_LOSS) * prior)
    safe = jnp.diag(jnp.maximum(summary.safe.T.reshape(-1), 0))
    data = jnp.where(jnp.all(jnp.isfinite(sound)), data, safe)
    if fixed is not None:
        data = data + fixed @ fixed.T
    whole = data + prior
    if num_shifts or weight is not None:
        identity, fixing = jnp.eye(size, dtype=whole.dtype), (num_shifts, weight)
        data = centred(data, *fixing)
        whole = centred(whole, *fixing) + identity - centred(identity, *fixing)
    root = jnp.linalg.cholesky(whole)
    return root, data, 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
