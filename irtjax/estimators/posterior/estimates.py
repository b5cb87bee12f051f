"""Estimates from posterior draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses
from irtjax.estimators.estimates import GroupEstimates
from irtjax.estimators.laplace.estimates import (
    correlation_bounds,
    standard_deviations,
    thinned,
)
from irtjax.estimators.posterior.sampling_frame import SamplingFrame
from irtjax.models.multilevel.covariance_mixture import Possible
from irtjax.models.multilevel.density import total_log_likelihood
from irtjax.models.multilevel.model import (
    MultilevelModel,
    Position,
    general_ability,
    general_variance,
)


def kept_quantities(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> dict[str, jax.Array]:
    """What is kept of a draw: natural parameters."""
    frame, responses = data
    model, position = frame.model, frame.position(coordinates)
    own = model.specific_covariance(position)
    general = general_ability(own, general_variance(position.log_general_sd))
    theta, rows = model.abilities(position), model.coordinates(position)
    mean = model.subject_design @ position.subject_effects
    quantities = {
        "ability": theta,
        "general_mean": mean + (theta - mean[:, None]) @ general.weights,
        "general_variance": general.variance,
        "coordinates": rows,
        "log_likelihood": total_log_likelihood(model, position, responses),
        "expected_score": _expected_scores(model, theta, rows),
    }
    if model.num_groups > 1:
        quantities["specific_covariance"] = own
    if any(model.learned):
        quantities["effects"] = position.effects * model.effect_sd(position)
        quantities["residual_sd"] = jnp.exp(position.log_residual_sd)
        if model.num_clusters:
            log_sd = position.log_residual_sd + model.log_relative_sds(position)
            quantities["benchmark_sd"] = jnp.exp(log_sd)
        if model.num_components:
            quantities["component_sd"] = jnp.exp(position.log_component_sd)
    if model.has_group_effects:
        quantities["group_effects"] = position.group_effects
    if model.has_general_scale:
        quantities["general_sd"] = jnp.exp(position.log_general_sd)
    if position.subject_effects.shape[0]:
        quantities["subject_effects"] = position.subject_effects
    return quantities


def _expected_scores(
    model: MultilevelModel, ability: jax.Array, coordinates: jax.Array
):
    """Mean over the items of each subject's expected response, `[subjects]`."""
    items = jax.vmap(model.family.constrain)(coordinates)
    over_items = jax.vmap(model.family.expected_response)
    at = lambda theta: jnp.mean(over_items(items, theta[model.group]))
    return jax.vmap(at)(ability)


def summary_of_draws(
    model: MultilevelModel, values: Mapping[str, Any], level: float = 0.95
) -> GroupEstimates:
    """Means and covariances of draws by name, `[chains, draws, ...]`."""
    joined = lambda value: np.asarray(value, float).reshape(-1, *value.shape[2:])
    flat = {name: joined(value) for name, value in values.items()}
    general, ability = flat["general_mean"], flat["ability"]
    left = flat["general_variance"].mean()
    covariance = np.atleast_2d(np.cov(general.T))
    roots, vectors = np.linalg.eigh(covariance)
    coordinates = flat["coordinates"]
    centre = coordinates.mean(axis=0)
    gap = coordinates - centre
    of_items = np.einsum("dja,djb->jab", gap, gap) / (len(gap) - 1)
    sd = flat.get("general_sd", np.ones((1, 1)))
    own, bounds, possible = np.zeros((1, 1)), None, None
    if model.num_groups > 1:
        variance = np.broadcast_to(sd[:, 0] ** 2, len(general))
        unit = _units_of_draws(model, coordinates)
        means = ability.mean(axis=1)
        origin = means - unit * means.mean(axis=0)
        possible = Possible(flat["specific_covariance"], variance, unit, origin)
        own = flat["specific_covariance"].mean(axis=0)
        bounds = correlation_bounds(flat["specific_covariance"], level)
    effects = flat.get("effects", np.zeros((1, model.design.shape[1], 1)))
    effects = np.broadcast_to(effects, (*effects.shape[:2], model.num_columns))
    if model.has_group_effects:
        shifts = flat["group_effects"]
        effects = np.broadcast_to(effects, (len(shifts), *effects.shape[1:]))
        effects = np.concatenate([effects, shifts], axis=1)
    gamma = flat.get("subject_effects", np.zeros((1, 0)))
    gamma_gap = gamma - gamma.mean(axis=0)
    # Standard deviations are not in the draws where priors were given.
    unknown = np.full(model.num_columns, np.nan)
    rows = {"component_sd": model.num_components, "benchmark_sd": model.num_clusters}
    levels, clusters = (
        flat[name].mean(axis=0) if name in flat else np.tile(unknown, (size, 1))
        for name, size in rows.items()
    )
    items = flat["residual_sd"].mean(axis=0) if "residual_sd" in flat else unknown
    score = flat["expected_score"]
    return GroupEstimates(
        general.mean(axis=0),
        np.sqrt(np.diag(covariance) + left),
        vectors * np.sqrt(np.maximum(roots, 0)),
        ability.mean(axis=0),
        ability.std(axis=0, ddof=1),
        centre,
        of_items,
        own,
        bounds,
        effects.mean(axis=0),
        (gamma.mean(axis=0), gamma_gap.T @ gamma_gap / len(gamma)),
        float(np.mean(sd**2)),
        thinned(possible),
        standard_deviations(model, levels, items, clusters),
        expected=(score.mean(axis=0), score.std(axis=0, ddof=1)),
    )


def _units_of_draws(model: MultilevelModel, coordinates: np.ndarray) -> np.ndarray:
    """Scales of abilities in draws `[draws, groups]`: smaller with steeper items."""
    groups = model.num_groups
    if not model.family.has_slope:
        return np.ones((len(coordinates), groups))
    member = np.eye(groups)[np.asarray(model.group)]
    steep = coordinates[:, :, 0] @ member / member.sum(axis=0)
    return np.exp(steep.mean(axis=0) - steep)
