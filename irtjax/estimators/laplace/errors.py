"""Errors of a multilevel fit by `laplace`: of abilities, and of items.

First given the estimated covariance of abilities, then averaged over draws of it and of
the scales of ability (`covariance_draws`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.estimators.laplace.components import (
    effect_precision,
    factors,
    inverse_of,
    inverses,
    items_given,
    num_units,
    squares,
)
from irtjax.estimators.laplace.covariance_draws import (
    draw_covariance,
    evidence_of,
    subjects_of,
)
from irtjax.estimators.laplace.curvature import factorise
from irtjax.estimators.laplace.items import (
    DistinctItems,
    Following,
    Summary,
    variance_of_items,
)
from irtjax.estimators.laplace.m_step import error_of_effects
from irtjax.estimators.laplace.problem import (
    Components,
    LaplaceState,
    MultilevelProblem,
    resized,
    with_subjects,
)
from irtjax.models.multilevel.covariance_mixture import Possible, abilities_given
from irtjax.models.multilevel.model import MultilevelModel
from irtjax.numerics.programs import stored_jit


class Errors(NamedTuple):
    """Errors of one fit.

    Attributes:
        given: Covariance of the abilities, group by group, given their covariance
            matrix and scales; `covariance` averaged over draws of these.
        items: Variances that the errors of abilities and of effects add to items.
        possible: Draws of the covariance and the scales; None where these are fixed.
        ability: Means of the abilities given each draw.
        accepted: Share of the sampler's proposals that were accepted.
        follow: How effects follow the abilities, those of padding included; None where
            no prior is estimated.
    """

    given: Float[np.ndarray, "abilities abilities"]
    covariance: Float[np.ndarray, "abilities abilities"]
    items: Float[np.ndarray, "distinct columns"]
    possible: Possible | None
    ability: Float[np.ndarray, "draws subjects groups"]
    accepted: float
    follow: Following | None


def errors_of(problem: MultilevelProblem, method: Any, state: LaplaceState) -> Errors:
    """Errors of a fit at the last state of its `Laplace`. Not for use under jit."""
    compiled, (count, groups) = problem.by_distinct(), state.ability.shape
    rows = compiled.data.num_subjects
    padded = with_subjects(state, rows)
    covariance, follow = _given_covariance_jit(compiled, method, padded)
    covariance = resized(covariance, count, 0, 1, groups=groups)
    given = whole = np.asarray(covariance, float)
    subjects = subjects_of(problem, state)
    evidence = evidence_of(compiled, state, subjects)
    possible, accepted = draw_covariance(compiled.model, state.components, evidence)
    ability = np.zeros((0, *state.ability.shape))
    if possible is not None:
        ability = abilities_given(possible, subjects)
        gap = (ability - ability.mean(axis=0)).transpose(0, 2, 1)
        gap = gap.reshape(len(gap), -1)
        whole = given + gap.T @ gap / len(gap)
    whole_of_rows = resized(
        whole.astype(state.ability.dtype), rows, 0, 1, groups=groups
    )
    items = _of_items_jit(compiled, method, padded, whole_of_rows, follow)
    items = np.asarray(items, float)
    return Errors(given, whole, items, possible, ability, accepted, follow)


@stored_jit
def _given_covariance_jit(
    problem: MultilevelProblem, method: Any, state: LaplaceState
) -> tuple[Array, Following | None]:
    """Covariance of abilities given variance components; how effects follow."""
    # Curvatures are the same with corrections, which only cost time to compile.
    found = method.summarise(problem, state, corrected=False)
    follow = following(problem.model, problem.distinct, state.components, found)
    return given_covariance(problem.model, state, found, follow), follow


@stored_jit
def _of_items_jit(problem, method: Any, state: LaplaceState, whole: Array, follow):
    """`variance_of_items` in one program."""
    return variance_of_items(
        *items_given(problem, state),
        whole,
        follow,
        order=method.order,
        num_newton=method.num_newton,
        expected=problem.expected,
    )


def following(
    model: MultilevelModel,
    distinct: DistinctItems,
    components: Components,
    found: Summary,
) -> Following | None:
    """How effects of items follow the abilities; None where no prior is estimated."""
    if not any(model.regressed):
        return None
    omega = inverses(factors(model, components))
    mask = jnp.asarray(model.regressed, omega.dtype)
    omega = omega * mask * mask[:, None]
    size, rows = model.num_columns * model.design.shape[1], len(omega)
    cross = found.cross.reshape(rows, -1, *found.cross.shape[1:])
    cross = jnp.einsum("rab,rnbe->rnae", omega, cross)
    if model.num_groups == 1:
        cross = jnp.sum(cross, axis=0)
    cross = cross.reshape(-1, size)
    precision = jnp.sum(jax.vmap(jnp.kron)(omega, squares(distinct, rows)), axis=0)
    ridge = jnp.diag(effect_precision(model, components).T.reshape(-1))
    inverse, _ = error_of_effects(precision, ridge, omega, found.square)
    covariance = inverse.reshape(size, size)
    slope = covariance @ cross.T
    return Following(omega, cross, slope, covariance)


def given_covariance(
    model: MultilevelModel,
    state: LaplaceState,
    found: Summary,
    follow: Following | None,
) -> Array:
    """Covariance of the abilities given their covariance matrix and scales.

    The inverse of the curvature of the log posterior of abilities and effects, items
    integrated out, with the effects eliminated (Schur complement).
    """
    groups = model.num_groups
    precision = inverse_of(model.covariance_factor(state.components))
    root, _, _ = factorise(found, precision, groups)
    identity = jnp.eye(len(root), dtype=root.dtype)
    prior = jnp.kron(precision, jnp.eye(len(root) // groups, dtype=root.dtype))
    data = root @ root.T - prior
    if follow is not None:
        data = data - follow.cross @ follow.slope
        # Along shifts of location, rounding and the error of the quadrature can make
        # the information negative.
        roots, vectors = jnp.linalg.eigh((data + data.T) / 2)
        data = (vectors * jnp.maximum(roots, 0)) @ vectors.T
    curvature = data + prior
    if model.correlated:
        # Intercepts and their estimated regression on discriminations compensate a
        # shift of all abilities: only the prior identifies it.
        shifts = jnp.eye(model.num_shifts, dtype=prior.dtype)
        shifts = jnp.repeat(shifts, prior.shape[0] // len(shifts), axis=0)
        if model.subject_weight is not None:
            shifts = shifts * jnp.tile(model.subject_weight, groups)[:, None]
        moved, fixed = curvature @ shifts, prior @ shifts
        own = lambda x: x @ jnp.linalg.solve(shifts.T @ x, x.T)
        curvature = curvature - own(moved) + own(fixed)
    # The data's information about a scale is a small difference of large numbers,
    # dominated by the error of the quadrature: scales are fixed here.
    unit = _units_of(model, state.ability)
    fixed = unit @ unit.T
    clear = identity - fixed
    root = jnp.linalg.cholesky(clear @ curvature @ clear + fixed)
    covariance = inverse_of(root) - fixed
    return jnp.where(jnp.all(jnp.isfinite(root)), covariance, state.ability_covariance)


def _units_of(model: MultilevelModel, ability: Array) -> Array:
    """Deviations of the abilities along each scale, `[groups * subjects, scales]`."""
    count, groups = num_units(model), ability.shape[1]
    # From the mean, which shifts of location identify.
    gap = ability - model.mean_over_subjects(ability)
    if model.subject_weight is not None:
        gap = gap * model.subject_weight[:, None]
    parts = gap.T[:, :, None]
    if count == groups:
        along = jax.scipy.linalg.block_diag(*parts)
    else:
        along = parts.reshape(-1, 1)[:, :count]
    length = jnp.sqrt(jnp.sum(along**2, axis=0))
    return along / jnp.maximum(length, 1e-6)
