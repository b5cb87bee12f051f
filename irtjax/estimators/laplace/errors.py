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
from irtjax.numerics.progress import is_watched, note_share

#: Abilities from which their covariance takes seconds.
MANY_ABILITIES = 1500


class Shares(NamedTuple):
    """Shares of the time of all errors that are done after each step."""

    information: float
    eigenvectors: float
    covariance: float
    items: float


#: Measured with 1,600 abilities and 400 items. The last 5 % are `mean_responses`.
SHARES = Shares(0.13, 0.77, 0.9, 0.95)


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
    compiled, (count, groups) = problem.by_distinct(), state.ability_mode.shape
    rows = compiled.data.num_subjects
    padded = with_subjects(state, rows)
    note_share(0.0)
    covariance, follow = _given_covariance(compiled, method, padded)
    covariance = resized(covariance, count, 0, 1, groups=groups)
    conditional = whole = np.asarray(covariance, float)
    note_share(SHARES.covariance)
    subjects = subjects_of(problem, state)
    evidence = evidence_of(compiled, state, subjects)
    possible, accepted = draw_covariance(compiled.model, state.components, evidence)
    ability = np.zeros((0, *state.ability_mode.shape))
    if possible is not None:
        ability = abilities_given(possible, subjects)
        gap = (ability - ability.mean(axis=0)).transpose(0, 2, 1)
        gap = gap.reshape(len(gap), -1)
        whole = conditional + gap.T @ gap / len(gap)
    whole_of_rows = resized(
        whole.astype(state.ability_mode.dtype), rows, 0, 1, groups=groups
    )
    items = _of_items_jit(compiled, method, padded, whole_of_rows, follow)
    items = np.asarray(items, float)
    note_share(SHARES.items)
    return Errors(conditional, whole, items, possible, ability, accepted, follow)


def _given_covariance(
    problem: MultilevelProblem, method: Any, state: LaplaceState
) -> tuple[Array, Following | None]:
    """Covariance of abilities given variance components; how effects follow.

    In one program, or in three that show the share done.
    """
    if state.ability_mode.size < MANY_ABILITIES or not is_watched():
        return _given_covariance_jit(problem, method, state)
    wait, model = jax.block_until_ready, problem.model
    data, prior, follow = wait(_information_jit(problem, method, state))
    note_share(SHARES.information)
    if follow is not None:
        data = wait(_without_negative_jit(data))
    note_share(SHARES.eigenvectors)
    covariance = wait(_inverted_jit(model, state, data, prior))
    return covariance, follow


@stored_jit
def _given_covariance_jit(
    problem: MultilevelProblem, method: Any, state: LaplaceState
) -> tuple[Array, Following | None]:
    """`_given_covariance` in one program."""
    data, prior, follow = _information(problem, method, state)
    if follow is not None:
        data = _without_negative(data)
    return _inverted(problem.model, state, data, prior), follow


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
    summary: Summary,
) -> Following | None:
    """How effects of items follow the abilities; None where no prior is estimated."""
    if not any(model.regressed):
        return None
    omega = inverses(factors(model, components))
    mask = jnp.asarray(model.regressed, omega.dtype)
    omega = omega * mask * mask[:, None]
    size, rows = model.num_columns * model.design.shape[1], len(omega)
    cross = summary.cross.reshape(rows, -1, *summary.cross.shape[1:])
    cross = jnp.einsum("rab,rnbe->rnae", omega, cross)
    if model.num_groups == 1:
        cross = jnp.sum(cross, axis=0)
    cross = cross.reshape(-1, size)
    precision = jnp.sum(jax.vmap(jnp.kron)(omega, squares(distinct, rows)), axis=0)
    ridge = jnp.diag(effect_precision(model, components).T.reshape(-1))
    inverse, _ = error_of_effects(precision, ridge, omega, summary.square)
    covariance = inverse.reshape(size, size)
    slope = covariance @ cross.T
    return Following(omega, cross, slope, covariance)


def _information(
    problem: MultilevelProblem, method: Any, state: LaplaceState
) -> tuple[Array, Array, Following | None]:
    """Information about abilities in the data and in the prior; how effects follow.

    Items are integrated out and effects eliminated (Schur complement).
    """
    # Curvatures are the same with corrections, which only cost time to compile.
    summary = method.summarise(problem, state, corrected=False)
    model, groups = problem.model, problem.model.num_groups
    follow = following(model, problem.distinct, state.components, summary)
    precision = inverse_of(model.covariance_factor(state.components))
    root, _, _ = factorise(summary, precision, groups)
    prior = jnp.kron(precision, jnp.eye(len(root) // groups, dtype=root.dtype))
    data = root @ root.T - prior
    if follow is not None:
        data = data - follow.cross @ follow.slope
    return data, prior, follow


def _without_negative(data: Array) -> Array:
    """The information without its negative part.

    Along shifts of location, rounding and the error of the quadrature can make it
    negative.
    """
    roots, vectors = jnp.linalg.eigh((data + data.T) / 2)
    return (vectors * jnp.maximum(roots, 0)) @ vectors.T


def _inverted(
    model: MultilevelModel, state: LaplaceState, data: Array, prior: Array
) -> Array:
    """Covariance of the abilities given their covariance matrix and scales.

    The inverse of the curvature of their log posterior.
    """
    curvature, identity = data + prior, jnp.eye(len(prior), dtype=prior.dtype)
    if model.correlated:
        # Intercepts and their estimated regression on discriminations compensate a
        # shift of all abilities: only the prior identifies it.
        shifts = jnp.eye(model.num_shifts, dtype=prior.dtype)
        shifts = jnp.repeat(shifts, prior.shape[0] // len(shifts), axis=0)
        if model.subject_weight is not None:
            shifts = shifts * jnp.tile(model.subject_weight, model.num_groups)[:, None]
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


_information_jit = stored_jit(_information)
_without_negative_jit = stored_jit(_without_negative)
_inverted_jit = stored_jit(_inverted)


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
