"""Uncertainty of the covariance of abilities: draws of Sigma and of the scales.

`laplace` estimates one Sigma and one scale of each group's abilities. Many items
determine the abilities relative to each other, but Sigma and the scales depend on the
sample of subjects and on priors. Let y_i be the estimated abilities of subject i, in
units of the fit, and N the mean covariance of their errors. With scales u,

    y_i ~ N(0, U^-1 (tau^2 1 1' + Sigma) U^-1 + N),   U = diag(u).

With the priors this is a density of Sigma, tau and u that needs one small matrix; its
mode is the EM estimate. It is sampled by Hamiltonian Monte Carlo with the expected
information as mass matrix, and results given each draw are averaged (as in Rue, Martino
and Chopin 2009).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from irtjax._types import Scalar
from irtjax.estimators.laplace.components import (
    log_half_normal,
    num_units,
    own_covariance,
)
from irtjax.estimators.laplace.m_step import pull_of_priors
from irtjax.estimators.laplace.problem import (
    Components,
    LaplaceState,
    MultilevelProblem,
)
from irtjax.models.multilevel.covariance_mixture import (
    Possible,
    Subjects,
    told_by_responses,
)
from irtjax.models.multilevel.model import Hierarchical, general_variance
from irtjax.numerics.bijections import lkj_log_density
from irtjax.numerics.programs import stored_jit

#: Chains side by side; trajectories that are left out, and kept, of each.
NUM_CHAINS, NUM_WARMUP, NUM_KEPT = 64, 30, 8
#: Trajectories from one draw that is kept to the next.
THINNING = 5
#: Leapfrog steps are so long in one dimension, and trajectories: a bit more than a
#: quarter of the period of a standard normal.
STEP_SIZE, TRAJECTORY = 0.5, 1.8
#: Least information on a coordinate, so that no first step is longer than 4.
LEAST_INFORMATION = 0.06


class Spread(NamedTuple):
    """Coordinates of the covariance of abilities; fixed parts have no elements.

    Attributes:
        log_scale: `[groups]` log standard deviations of the group-specific abilities.
        correlation: Coordinates of their correlations.
        log_general_sd: `[1]` log tau, for families without slopes.
        log_unit: `[groups]` or `[1]` log u; 0 is the scale of the fit.
    """

    log_scale: Array
    correlation: Array
    log_general_sd: Array
    log_unit: Array


class Evidence(NamedTuple):
    """Statistics of the abilities that determine their covariance.

    Attributes:
        scatter: `[groups, groups]` sum of y y'.
        error: `[groups, groups]` N.
        num_subjects: Subjects less the number of estimated means.
        pull: Minus gradient `[groups]` and curvature `[groups, groups]` of the priors
            of items' effects in the log scales.
    """

    scatter: Array
    error: Array
    num_subjects: Array
    pull: tuple[Array, Array]


def subjects_of(problem: MultilevelProblem, state: LaplaceState) -> Subjects:
    """Abilities of the fit with their own covariances, origins known."""
    model, components = problem.model, state.components
    ability = np.asarray(state.ability, float)
    count, groups = ability.shape
    spread = np.asarray(_covariance(model, _spread_of(model, components)), float)
    mean = np.asarray(model.subject_design @ components.subject_effects, float)
    blocks = np.asarray(state.ability_covariance, float)
    own = np.einsum("anbn->nab", blocks.reshape(groups, count, groups, count))
    # The covariance is given the means of all subjects: it is that of fewer.
    own = own * count / (count - model.num_shifts / groups)
    mean = np.broadcast_to(mean[:, None], ability.shape)
    return Subjects(mean, ability - mean, own, spread)


def evidence_of(
    problem: MultilevelProblem, state: LaplaceState, subjects: Subjects
) -> Evidence:
    """The same for all subjects together, with their average error."""
    model, dtype = problem.model, state.ability.dtype
    average = subjects.covariance.mean(axis=0)
    precision, told = told_by_responses(average, subjects.spread)
    error = np.linalg.inv(told)
    pointed = subjects.gap @ precision @ error
    count = len(pointed) - model.num_shifts / model.num_groups
    pull = _pull_jit(model, problem.units, state.components)
    return Evidence(
        jnp.asarray(pointed.T @ pointed, dtype),
        jnp.asarray((error + error.T) / 2, dtype),
        jnp.asarray(count, dtype),
        pull,
    )


_pull_jit = stored_jit(pull_of_priors)


def draw_spread(
    model: Hierarchical, components: Components, evidence: Evidence
) -> tuple[Possible | None, float]:
    """Draws of Sigma, tau and the scales; None where all are fixed.

    The key is fixed: the same fit has the same draws.

    Returns:
        The draws, and the share of accepted proposals. If it is small, the draws stay
        near the estimate and understate its uncertainty.
    """
    start = _spread_of(model, components)
    if not sum(part.size for part in start):
        return None, 1.0
    found = _draw_jit(model, start, evidence, jax.random.key(0))
    own, variance, unit, accepted = (np.asarray(x, float) for x in found)
    return Possible(own, variance, unit, np.zeros_like(unit)), float(accepted)


def _spread_of(model: Hierarchical, components: Components) -> Spread:
    """Where `laplace` ended."""
    several = model.num_groups > 1
    zeros = jnp.zeros(num_units(model), components.log_residual_sd.dtype)
    return Spread(
        components.log_scale[: model.num_groups * several],
        components.correlation,
        components.log_general_sd,
        zeros,
    )


def _covariance(model: Hierarchical, spread: Spread) -> Array:
    """tau^2 1 1' + Sigma."""
    variance = general_variance(spread.log_general_sd)
    return _own(model, spread) + variance


def _own(model: Hierarchical, spread: Spread) -> Array:
    if model.num_groups == 1:
        return jnp.zeros((1, 1), spread.log_unit.dtype)
    return own_covariance(model, spread.log_scale, spread.correlation)


def _seen(model: Hierarchical, spread: Spread, evidence: Evidence) -> Array:
    """Covariance of y."""
    shrink = jnp.exp(-_log_units(model, spread))
    return _covariance(model, spread) * shrink * shrink[:, None] + evidence.error


def _log_units(model: Hierarchical, spread: Spread) -> Array:
    """`[groups]` log u."""
    whole = jnp.zeros(model.num_groups, spread.log_unit.dtype)
    return whole + spread.log_unit if spread.log_unit.shape[0] else whole


def log_evidence(model: Hierarchical, spread: Spread, evidence: Evidence) -> Scalar:
    """Log density of the covariance, up to a constant; see the module."""
    seen, own = _seen(model, spread, evidence), model.hyperpriors
    # Derivatives by hand: that of a Cholesky factor takes as long to compile as a fit.
    fixed = jax.lax.stop_gradient(seen)
    root = jnp.linalg.cholesky(fixed)
    identity = jnp.eye(len(seen), dtype=seen.dtype)
    inverse = jax.scipy.linalg.cho_solve((root, True), identity)
    slope = (inverse @ evidence.scatter @ inverse - evidence.num_subjects * inverse) / 2
    total = -evidence.num_subjects * jnp.sum(jnp.log(jnp.diagonal(root)))
    total = total - jnp.sum(inverse * evidence.scatter) / 2
    total = total + jnp.sum(slope * (seen - fixed))
    if model.num_groups > 1:
        total = total + lkj_log_density(
            spread.correlation, model.num_groups, own.concentration
        )
    total = total + log_half_normal(spread.log_scale, own.scale)
    total = total + log_half_normal(spread.log_general_sd, own.general)
    taken, (slope, curvature) = -_log_units(model, spread), evidence.pull
    return total - slope @ taken - taken @ curvature @ taken / 2


def _information(model: Hierarchical, spread: Spread, evidence: Evidence) -> Array:
    """Expected information on the coordinates, that of the priors with it."""
    flat, unravel = ravel_pytree(spread)
    seen = lambda x: _seen(model, unravel(x), evidence)  # noqa: E731
    along = jax.vmap(lambda way: jax.jvp(seen, (flat,), (way,))[1])(
        jnp.eye(flat.size, dtype=flat.dtype)
    )
    root = jnp.linalg.cholesky(seen(flat))
    identity = jnp.eye(len(root), dtype=root.dtype)
    inverse = jax.scipy.linalg.cho_solve((root, True), identity)
    part = inverse @ along
    whole = evidence.num_subjects / 2 * jnp.einsum("iab,jba->ij", part, part)
    own, groups = model.hyperpriors, model.num_groups
    _, columns = np.tril_indices(groups, -1)
    shape = own.concentration + (groups - 2 - columns) / 2
    of_half_normal = lambda log_sd, scale: 2 * jnp.exp(2 * log_sd) / scale**2  # noqa: E731
    prior = Spread(
        of_half_normal(spread.log_scale, own.scale),
        2 * jnp.asarray(shape, flat.dtype) / jnp.cosh(spread.correlation) ** 2,
        of_half_normal(spread.log_general_sd, own.general),
        jnp.zeros_like(spread.log_unit),
    )
    diagonal, _ = ravel_pytree(prior)
    whole = whole + jnp.diag(diagonal)
    if not spread.log_unit.shape[0]:
        return whole
    # One unit of all groups, or one of each.
    pull = evidence.pull[1]
    units = slice(-spread.log_unit.shape[0], None)
    pull = pull if len(pull) == spread.log_unit.shape[0] else jnp.sum(pull)
    return whole.at[units, units].add(pull)


@stored_jit
def _draw_jit(model: Hierarchical, start: Spread, evidence: Evidence, key):
    """Sigma, tau^2 and u of every draw, and the share of accepted proposals."""
    import blackjax  # Half a second that fits without groups need not wait for.

    flat, unravel = ravel_pytree(start)
    roots, vectors = jnp.linalg.eigh(_information(model, start, evidence))
    scale = vectors / jnp.sqrt(jnp.maximum(roots, LEAST_INFORMATION))
    spread_at = lambda z: unravel(flat + scale @ z)  # noqa: E731

    def density(z):
        value = log_evidence(model, spread_at(z), evidence)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf).astype(float)

    step_size = STEP_SIZE * flat.size**-0.25
    sampler: Any = blackjax.hmc(
        density,
        step_size,
        jnp.ones(flat.size, flat.dtype),
        round(TRAJECTORY / step_size),
    )
    begin = jax.vmap(sampler.init)(jnp.zeros((NUM_CHAINS, flat.size), flat.dtype))

    def step(chains, step_key):
        keys = jax.random.split(step_key, NUM_CHAINS)
        chains, found = jax.vmap(sampler.step)(keys, chains)
        return chains, (chains.position, jnp.mean(found.is_accepted))

    keys = jax.random.split(key, NUM_WARMUP + THINNING * NUM_KEPT)
    _, (positions, accepted) = jax.lax.scan(step, begin, keys)
    kept = positions[NUM_WARMUP + THINNING - 1 :: THINNING].reshape(-1, flat.size)
    spreads = jax.vmap(spread_at)(kept)
    own = jax.vmap(partial(_own, model))(spreads)
    variance = jax.vmap(lambda x: general_variance(x) * jnp.ones(()))(
        spreads.log_general_sd
    )
    unit = jnp.exp(jax.vmap(partial(_log_units, model))(spreads))
    return own, variance, unit, jnp.mean(accepted)
