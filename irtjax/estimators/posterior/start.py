"""Start values of samplers, and draws of a variational approximation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from irtjax._types import KeyArray, Status
from irtjax.data.responses import Responses
from irtjax.estimators.laplace.problem import (
    LaplaceState,
    StructuredProblem,
)
from irtjax.estimators.posterior import pareto_k
from irtjax.estimators.posterior.estimates import kept_quantities
from irtjax.estimators.posterior.sampling_frame import SamplingFrame
from irtjax.estimators.posterior.variational import Variational, fit_variational
from irtjax.models.multilevel.model import Hierarchical, Position

#: Draws of a variational approximation that its summary is made of.
VI_DRAWS = 2000


def vary(first: Position, data, method: Variational, key: KeyArray):
    """Draws of a variational approximation by name, what to say of it, its status."""
    fit_key, draw_key = jax.random.split(key)
    found = _vary_jit(frame_log_density, first, data, key=fit_key, method=method)
    positions = found.sample(VI_DRAWS, key=draw_key)
    values = _kept_jit(positions, data)
    status, said = Status(int(found.status)), []
    if status != Status.CONVERGED:
        said.append(
            f"the bound of the evidence has not settled ({status.explain()}): pass"
            " Variational(num_steps=...) with more steps"
        )
    k = pareto_k(found.log_ratio)
    if not k < 0.7:
        said.append(
            f"the Gaussian approximation is far from the posterior (Pareto k {k:.2f},"
            " good below 0.7): its means may be of use, its errors are too small; use"
            " method='nuts'"
        )
    return {name: value[None] for name, value in values.items()}, said, status


_vary_jit = eqx.filter_jit(fit_variational)


def frame_log_density(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> jax.Array:
    """Log posterior density in coordinates of a frame; `data` is it with responses."""
    frame, responses = data
    return frame.log_density(coordinates, responses)


def position_of(
    model: Hierarchical, problem: StructuredProblem, state: LaplaceState
) -> Position:
    """Where the fast route ended, as a position to sample from."""
    components, zeros = state.components, model.zeros(state.ability.dtype)
    ability = state.ability
    position = zeros._replace(
        log_scale=jnp.maximum(components.log_scale, -3.0),
        correlation=components.correlation,
        items=state.mean[problem.units.unit],
        group_effects=components.group_effects,
        subject_effects=components.subject_effects,
        log_general_sd=components.log_general_sd,
    )
    if any(model.learned):
        sd = jnp.maximum(components.log_component_sd, -3.0)
        position = position._replace(
            log_component_sd=sd,
            log_residual_sd=jnp.maximum(components.log_residual_sd, -3.0),
            residual_correlation=components.residual_correlation,
            tilt=components.tilt / model.hyperpriors.tilt,
            spread=components.spread / model.hyperpriors.spread,
        )
        scale = model.effect_sd(position)
        position = position._replace(effects=components.effects / scale)
    if not model.centred:
        mean = model.subject_design @ position.subject_effects
        factor = model.covariance_factor(position)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(factor, gap, lower=True).T
    return position._replace(ability=ability)


_kept_jit = jax.jit(jax.vmap(kept_quantities, in_axes=(0, None)))
