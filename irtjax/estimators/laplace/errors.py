"""Errors of a multilevel fit by `laplace`: of abilities, and of items with them.

First given the estimated covariance of abilities: the curvature of the log density of
abilities and effects, items integrated out. Then averaged over draws of that
covariance and of the scales of ability, which many items do not identify better
(`covariance_draws`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax.estimators.laplace.components import (
    covariance_factor,
    effect_precision,
    factors,
    inverses,
    num_units,
    squares,
)
from irtjax.estimators.laplace.covariance_draws import (
    draw_spread,
    evidence_of,
    subjects_of,
)
from irtjax.estimators.laplace.curvature import factorise
from irtjax.estimators.laplace.items import Following, Summary, Units, spread_of_items
from irtjax.estimators.laplace.outer import blocks_of, outer_of
from irtjax.estimators.laplace.problem import (
    Components,
    LaplaceState,
    MultilevelProblem,
)
from irtjax.models.multilevel.covariance_mixture import Possible, abilities_given
from irtjax.models.multilevel.model import Hierarchical
from irtjax.numerics.programs import stored_jit


class Errors(NamedTuple):
    """Errors of one fit.

    Attributes:
        given: `[groups * subjects] * 2` covariance of the abilities given their
            covariance matrix and scales, group by group.
        covariance: The same, averaged over draws of these.
        items: `[units, columns]` variances that the errors of abilities and of effects
            add to the coordinates of each item.
        possible: Draws of the covariance and the scales; None where these are fixed.
        ability: `[draws, subjects, groups]` means of the abilities given each draw.
        accepted: Share of the sampler's proposals that were accepted.
    """

    given: np.ndarray
    covariance: np.ndarray
    items: np.ndarray
    possible: Possible | None
    ability: np.ndarray
    accepted: float


def errors_of(problem: MultilevelProblem, method: Any, state: LaplaceState) -> Errors:
    """Errors of a fit. Not for use under jit.

    Args:
        problem: The model and its data.
        method: The `Laplace` that fitted it.
        state: The last state of the fit.
    """
    covariance, follow = _given_spread_jit(problem, method, state)
    given = whole = np.asarray(covariance, float)
    subjects = subjects_of(problem, state)
    evidence = evidence_of(problem, state, subjects)
    possible, accepted = draw_spread(problem.model, state.components, evidence)
    ability = np.zeros((0, *state.ability.shape))
    if possible is not None:
        ability = abilities_given(possible, subjects)
        gap = (ability - ability.mean(axis=0)).transpose(0, 2, 1)
        gap = gap.reshape(len(gap), -1)
        whole = given + gap.T @ gap / len(gap)
    by_ability = jnp.asarray(whole, state.ability.dtype)
    items = _of_items_jit(problem, method, state, by_ability, follow)
    items = np.asarray(items, float)
    return Errors(given, whole, items, possible, ability, accepted)


@stored_jit
def _given_spread_jit(
    problem: MultilevelProblem, method: Any, state: LaplaceState
) -> tuple[Array, Following | None]:
    """Covariance of abilities given variance components; how effects follow."""
    # Curvatures are the same with corrections, which only cost time to compile.
    found = method.summarise(problem, state, corrected=False)
    follow = following(problem.model, problem.units, state.components, found)
    return given_covariance(problem.model, state, found, follow), follow


@stored_jit
def _of_items_jit(problem, method: Any, state: LaplaceState, whole: Array, follow):
    model, units = problem.model, problem.units
    return spread_of_items(
        model,
        units,
        outer_of(model, state.ability_mode, state.components),
        state.mode,
        blocks_of(state.ability_covariance, model.num_groups, units.is_aligned),
        whole,
        follow,
        order=method.order,
        num_newton=method.num_newton,
        expected=problem.expected,
    )


def following(
    model: Hierarchical, units: Units, components: Components, found: Summary
) -> Following | None:
    """How effects of items follow the abilities; None where no prior is learned."""
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
    square = squares(units, rows)
    known = jnp.einsum("rab,rbcef,rcd->adef", omega, found.square, omega)
    block = jnp.einsum("rab,ref->aebf", omega, square) - known.transpose(0, 2, 1, 3)
    ridge = effect_precision(model, components.log_component_sd).T.reshape(-1)
    root = jnp.linalg.cholesky(block.reshape(size, size) + jnp.diag(ridge))
    solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)  # noqa: E731
    return Following(
        omega, cross, solve(cross.T), solve(jnp.eye(size, dtype=root.dtype))
    )


def given_covariance(
    model: Hierarchical,
    state: LaplaceState,
    found: Summary,
    follow: Following | None,
) -> Array:
    """Covariance of the abilities given their covariance matrix and scales.

    The inverse of the curvature of the log posterior of abilities and effects, items
    integrated out, with the effects eliminated (Schur complement).
    """
    groups = model.num_groups
    factor = covariance_factor(model, state.components)
    identity = jnp.eye(groups, dtype=factor.dtype)
    precision = jax.scipy.linalg.cho_solve((factor, True), identity)
    root, _, _ = factorise(found, precision, groups)
    identity = jnp.eye(len(root), dtype=root.dtype)
    prior = jnp.kron(precision, jnp.eye(len(root) // groups, dtype=root.dtype))
    data = root @ root.T - prior
    if follow is not None:
        data = data - follow.cross @ follow.slope
        # What is left along origins is rounding and the error of the quadrature, of
        # either sign: information is not negative.
        roots, vectors = jnp.linalg.eigh((data + data.T) / 2)
        data = (vectors * jnp.maximum(roots, 0)) @ vectors.T
    curvature = data + prior
    if model.correlated:
        # A shift of all abilities is taken up by intercepts and by their regression on
        # discriminations, which is estimated: only the prior identifies it.
        shifts = jnp.eye(model.num_shifts, dtype=prior.dtype)
        shifts = jnp.repeat(shifts, prior.shape[0] // len(shifts), axis=0)
        moved, held = curvature @ shifts, prior @ shifts
        own = lambda x: x @ jnp.linalg.solve(shifts.T @ x, x.T)  # noqa: E731
        curvature = curvature - own(moved) + own(held)
    # The data's information about a scale is a small difference of large numbers, which
    # the error of the quadrature rules: it is given here.
    unit = _units_of(model, state.ability)
    held = unit @ unit.T
    clear = identity - held
    root = jnp.linalg.cholesky(clear @ curvature @ clear + held)
    covariance = jax.scipy.linalg.cho_solve((root, True), identity) - held
    return jnp.where(jnp.all(jnp.isfinite(root)), covariance, state.ability_covariance)


def _units_of(model: Hierarchical, ability: Array) -> Array:
    """Directions in which each unit moves the abilities, `[groups * subjects, units]`.

    Deviations from the mean of all subjects, of length 1: what moves with it is told
    apart by the origin.
    """
    count, groups = num_units(model), ability.shape[1]
    deviations = ability - jnp.mean(ability, axis=0)
    parts = deviations.T[:, :, None]
    if count == groups:
        along = jax.scipy.linalg.block_diag(*parts)
    else:
        along = parts.reshape(-1, 1)[:, :count]
    length = jnp.sqrt(jnp.sum(along**2, axis=0))
    return along / jnp.maximum(length, 1e-6)
