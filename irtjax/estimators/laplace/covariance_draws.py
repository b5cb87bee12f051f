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
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.estimators.laplace.components import inverse_of, num_units
from irtjax.estimators.laplace.m_step import pull_of_priors
from irtjax.estimators.laplace.problem import (
    Components,
    LaplaceState,
    MultilevelProblem,
)
from irtjax.models.multilevel.covariance_mixture import (
    Possible,
    Subjects,
    information_of_responses,
)
from irtjax.models.multilevel.model import (
    MultilevelModel,
    general_variance,
    log_half_normal,
)
from irtjax.numerics.bijections import lkj_log_density
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.random_keys import as_key

#: Chains; trajectories of each that are left out, and that are kept.
NUM_CHAINS, NUM_WARMUP, NUM_KEPT = 64, 30, 8
#: Trajectories from one kept draw to the next.
THINNING = 5
#: Length of leapfrog steps in one dimension, and of trajectories: a bit more than a
#: quarter of the period of a standard normal.
STEP_SIZE, TRAJECTORY = 0.5, 1.8
#: Least information on a coordinate, so that no first step is longer than 4.
LEAST_INFORMATION = 0.06


class CovarianceCoordinates(NamedTuple):
    """Coordinates of the covariance of abilities; fixed parts have no elements.

    The first three are those of `Components`; `log_unit` is `[groups]` or `[1]` log u,
    0 being the scale of the fit.
    """

    log_scale: Array
    correlation: Array
    log_general_sd: Array
    log_unit: Array


class CovarianceEvidence(NamedTuple):
    """Statistics of the abilities: the sum of y y', N, subjects less estimated means.

    `pull` is minus gradient and curvature of the priors of effects in the log scales.
    """

    scatter: Float[Array, "groups groups"]
    error: Float[Array, "groups groups"]
    num_subjects: Scalar
    pull: tuple[Array, Array]


def subjects_of(problem: MultilevelProblem, state: LaplaceState) -> Subjects:
    """Posteriors of the abilities of each subject in a fit, locations known."""
    model, components = problem.model, state.components
    ability = state.ability_on_host
    count, groups = ability.shape
    prior_covariance = np.asarray(_covariance_jit(model, components), float)
    effects = np.asarray(components.subject_effects, float)
    mean = np.asarray(model.subject_design, float) @ effects
    blocks = np.asarray(state.ability_covariance, float)
    own = np.einsum("anbn->nab", blocks.reshape(groups, count, groups, count))
    # The covariance is given the means of all subjects: it is that of fewer.
    own = own * count / (count - model.num_shifts / groups)
    mean = np.broadcast_to(mean[:, None], ability.shape)
    return Subjects(mean, ability - mean, own, prior_covariance)


def evidence_of(
    problem: MultilevelProblem, state: LaplaceState, subjects: Subjects
) -> CovarianceEvidence:
    """Statistics of all subjects together, with their average error."""
    model, dtype = problem.model, state.ability_mode.dtype
    average = subjects.covariance.mean(axis=0)
    precision, information = information_of_responses(
        average, subjects.prior_covariance
    )
    error = np.linalg.inv(information)
    pointed = subjects.gap @ precision @ error
    count = len(pointed) - model.num_shifts / model.num_groups
    pull = _pull_jit(model, problem.distinct, state.components)
    return CovarianceEvidence(
        jnp.asarray(pointed.T @ pointed, dtype),
        jnp.asarray((error + error.T) / 2, dtype),
        jax.device_put(np.asarray(count, dtype)),
        pull,
    )


_pull_jit = stored_jit(pull_of_priors)


def draw_covariance(
    model: MultilevelModel, components: Components, evidence: CovarianceEvidence
) -> tuple[Possible | None, float]:
    """Draws of Sigma, tau and the scales, or None where all are fixed; acceptance rate.

    The key is fixed: the same fit has the same draws. If few proposals are accepted,
    the draws stay near the estimate and understate its uncertainty.
    """
    start = _coordinates_of(model, components)
    if not sum(part.size for part in start):
        return None, 1.0
    draws = _draw_jit(model, start, evidence, as_key(0))
    own, variance, unit, accepted = (np.asarray(x, float) for x in draws)
    return Possible(own, variance, unit, np.zeros_like(unit)), float(accepted)


def _coordinates_of(
    model: MultilevelModel, components: Components
) -> CovarianceCoordinates:
    """The estimates of `laplace`."""
    several = model.num_groups > 1
    return CovarianceCoordinates(
        components.log_scale[: model.num_groups * several],
        components.correlation,
        components.log_general_sd,
        jax.device_put(np.zeros(num_units(model), components.log_residual_sd.dtype)),
    )


def _covariance(
    model: MultilevelModel, coordinates: CovarianceCoordinates | Components
) -> Array:
    """tau^2 1 1' + Sigma."""
    general = general_variance(coordinates.log_general_sd)
    return model.specific_covariance(coordinates) + general


_covariance_jit = stored_jit(_covariance)


def _seen(
    model: MultilevelModel,
    coordinates: CovarianceCoordinates,
    evidence: CovarianceEvidence,
) -> Array:
    """Covariance of y."""
    shrink = jnp.exp(-_log_units(model, coordinates))
    return _covariance(model, coordinates) * shrink * shrink[:, None] + evidence.error


def _log_units(model: MultilevelModel, coordinates: CovarianceCoordinates) -> Array:
    """`[groups]` log u."""
    whole = jnp.zeros(model.num_groups, coordinates.log_unit.dtype)
    return whole + coordinates.log_unit if coordinates.log_unit.shape[0] else whole


def log_evidence(
    model: MultilevelModel,
    coordinates: CovarianceCoordinates,
    evidence: CovarianceEvidence,
) -> Scalar:
    """Log density of the covariance, up to a constant; see the module."""
    seen, own = _seen(model, coordinates, evidence), model.hyperpriors
    # Derivatives by hand: that of a Cholesky factor takes as long to compile as a fit.
    fixed = jax.lax.stop_gradient(seen)
    root = jnp.linalg.cholesky(fixed)
    inverse = inverse_of(root)
    slope = (inverse @ evidence.scatter @ inverse - evidence.num_subjects * inverse) / 2
    total = -evidence.num_subjects * jnp.sum(jnp.log(jnp.diagonal(root)))
    total = total - jnp.sum(inverse * evidence.scatter) / 2
    total = total + jnp.sum(slope * (seen - fixed))
    if model.num_groups > 1:
        total = total + lkj_log_density(
            coordinates.correlation, model.num_groups, own.concentration
        )
    total = total + log_half_normal(coordinates.log_scale, own.scale)
    total = total + log_half_normal(coordinates.log_general_sd, own.general)
    taken, (slope, curvature) = -_log_units(model, coordinates), evidence.pull
    return total - slope @ taken - taken @ curvature @ taken / 2


def _information(
    model: MultilevelModel,
    coordinates: CovarianceCoordinates,
    evidence: CovarianceEvidence,
) -> Array:
    """Expected information on the coordinates, that of the priors with it."""
    flat, unravel = ravel_pytree(coordinates)
    seen = lambda x: _seen(model, unravel(x), evidence)
    along = jax.vmap(lambda way: jax.jvp(seen, (flat,), (way,))[1])(
        jnp.eye(flat.size, dtype=flat.dtype)
    )
    part = inverse_of(jnp.linalg.cholesky(seen(flat))) @ along
    whole = evidence.num_subjects / 2 * jnp.einsum("iab,jba->ij", part, part)
    own, groups = model.hyperpriors, model.num_groups
    _, columns = np.tril_indices(groups, -1)
    shape = own.concentration + (groups - 2 - columns) / 2
    of_half_normal = lambda log_sd, scale: 2 * jnp.exp(2 * log_sd) / scale**2
    prior = CovarianceCoordinates(
        of_half_normal(coordinates.log_scale, own.scale),
        2 * jnp.asarray(shape, flat.dtype) / jnp.cosh(coordinates.correlation) ** 2,
        of_half_normal(coordinates.log_general_sd, own.general),
        jnp.zeros_like(coordinates.log_unit),
    )
    whole, count = whole + jnp.diag(ravel_pytree(prior)[0]), len(coordinates.log_unit)
    if not count:
        return whole
    # One unit of all groups, or one of each.
    pull = evidence.pull[1]
    pull = pull if len(pull) == count else jnp.sum(pull)
    return whole.at[-count:, -count:].add(pull)


@stored_jit
def _draw_jit(
    model: MultilevelModel,
    start: CovarianceCoordinates,
    evidence: CovarianceEvidence,
    key,
):
    """Sigma, tau^2 and u of every draw, and the share of accepted proposals."""
    import blackjax  # Half a second that fits without groups need not wait for.

    flat, unravel = ravel_pytree(start)
    roots, vectors = jnp.linalg.eigh(_information(model, start, evidence))
    scale = vectors / jnp.sqrt(jnp.maximum(roots, LEAST_INFORMATION))
    coordinates_at = lambda z: unravel(flat + scale @ z)

    def density(z):
        value = log_evidence(model, coordinates_at(z), evidence)
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
        chains, moves = jax.vmap(sampler.step)(keys, chains)
        return chains, (chains.position, jnp.mean(moves.is_accepted))

    keys = jax.random.split(key, NUM_WARMUP + THINNING * NUM_KEPT)
    _, (positions, accepted) = jax.lax.scan(step, begin, keys)
    thinned = positions[NUM_WARMUP + THINNING - 1 :: THINNING].reshape(-1, flat.size)
    draws = jax.vmap(coordinates_at)(thinned)
    own = jax.vmap(model.specific_covariance)(draws)
    variance = jax.vmap(lambda x: general_variance(x) * jnp.ones(()))(
        draws.log_general_sd
    )
    unit = jnp.exp(jax.vmap(partial(_log_units, model))(draws))
    return own, variance, unit, jnp.mean(accepted)
