"""Estimates and errors of a structured fit, from the fast route or from draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._programs import stored_jit
from irtjax.data.responses import Responses
from irtjax.estimators.components import own_covariance
from irtjax.estimators.laplace import Laplace
from irtjax.estimators.mean_responses import mean_responses
from irtjax.estimators.possible_spread import Possible, general_weights
from irtjax.estimators.structured_errors import Errors, errors_of
from irtjax.estimators.structured_state import LaplaceState, StructuredProblem
from irtjax.models.hierarchical import (
    Hierarchical,
    Position,
    general_ability,
    general_variance,
)
from irtjax.models.sampling_frame import SamplingFrame
from irtjax.ranking import scale_loadings

_own_covariance_jit = stored_jit(own_covariance)


@stored_jit
def _told_jit(model: Hierarchical):
    return model.told_components, model.told_spreads


#: What `_spreads` is made of, as kept of draws.
_SPREADS = ("component_sd", "residual_sd", "benchmark_sd")
#: Draws of Sigma that are kept with a fit, for the errors of newcomers.
NUM_POSSIBLE = 200


class Summary(NamedTuple):
    """Means and errors of one fit, by whatever method.

    Attributes:
        general: `[subjects]` general abilities.
        general_error: `[subjects]` their standard errors.
        shared: `[subjects, any]` loadings of what those errors share.
        ability: `[subjects, groups]`.
        error: `[subjects, groups]`.
        coordinates: `[items, columns]`.
        covariance: `[items, columns, columns]`.
        own: `[groups, groups]` Sigma.
        bounds: Lower and upper bounds of its correlations, or None.
        effects: `[effects, columns]`, those of the groups last.
        subject_effects: `[2, covariates]` gamma and their standard errors.
        variance: tau^2, of the general ability.
        possible: Draws of Sigma, tau^2 and units; None with one group.
        spreads: `[components + 1 + clusters, columns]` standard deviations of the
            effects of each level, of items around these, and of each benchmark's items;
            NaN where nothing is learned of one.
        accepted: Share of proposals accepted in drawing `possible`, by the fast route.
        scale: `[subjects]` part of the shared error that stretches all general
            abilities alike (`ranking.scale_loadings`); 0 where there is none.
        expected: `[subjects]` expected scores, means of expected responses over all
            items, and their standard errors.
    """

    general: np.ndarray
    general_error: np.ndarray
    shared: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    coordinates: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray] | None
    effects: np.ndarray
    subject_effects: np.ndarray
    variance: float
    possible: Possible | None
    spreads: np.ndarray
    accepted: float = 1.0
    scale: np.ndarray | float = 0.0
    expected: tuple[np.ndarray, np.ndarray] | None = None


def summary_of_laplace(
    problem: StructuredProblem,
    method: Laplace,
    state: LaplaceState,
    level: float = 0.95,
) -> Summary:
    """What the fast route found; estimates are those of the likeliest spread."""
    model, components = problem.model, state.components
    groups, errors = model.num_groups, errors_of(problem, method, state)
    expected = mean_responses(
        problem, state, order=method.order, num_newton=method.num_newton
    )
    own = np.zeros((1, 1))
    if groups > 1:
        own = np.asarray(
            _own_covariance_jit(model, components.log_scale, components.correlation)
        )
    variance = float(general_variance(components.log_general_sd))
    weights, _ = general_weights(own, variance)
    ability = np.asarray(state.ability, float)
    subjects = len(ability)
    mean = np.asarray(model.subject_design @ components.subject_effects, float)
    given, of_effects = _with_subject_effects(model, errors.given, own + variance)
    # What errors are over all that may be true of the spread is errors given it, on
    # average, and what it moves.
    whole = errors.covariance + given - errors.given
    error = np.sqrt(np.diag(whole)).reshape(groups, subjects).T
    covariance, left, moved = _errors_of_general(errors, given, own, variance, mean)
    general = mean + (ability - mean[:, None]) @ weights
    roots, vectors = np.linalg.eigh(covariance)
    unit = np.asarray(problem.units.unit)
    of_items = np.asarray(state.covariance, float)[unit]
    columns = np.arange(of_items.shape[-1])
    of_items[:, columns, columns] += errors.items[unit]
    stem = np.asarray(model.stem)
    coordinates, of_items = np.asarray(state.mean, float)[unit][stem], of_items[stem]
    effects = np.asarray(components.effects, float) * np.asarray(model.regressed)
    if model.has_group_effects:
        shifts = np.asarray(components.group_effects, float)
        coordinates = coordinates + shifts[np.asarray(model.group)]
        effects = np.concatenate([effects, shifts])
    coordinates = model.family.with_offsets(coordinates)
    bounds, possible = None, errors.possible if groups > 1 else None
    if possible is not None:
        bounds = _correlation_bounds(possible.own, level)
    return Summary(
        general,
        np.sqrt(np.diag(covariance) + left),
        vectors * np.sqrt(np.maximum(roots, 0)),
        ability,
        error,
        coordinates,
        of_items,
        own,
        bounds,
        effects,
        np.stack([np.asarray(components.subject_effects, float), of_effects]),
        variance,
        _thinned(_with_origins(model, possible)),
        _spreads(
            model,
            np.exp(np.asarray(components.log_component_sd, float)),
            np.exp(np.asarray(components.log_residual_sd, float)),
            np.exp(np.asarray(components.spread + components.log_residual_sd, float)),
        ),
        errors.accepted,
        scale_loadings(general, moved.T / len(moved) ** 0.5),
        (np.asarray(expected.mean, float), np.asarray(expected.standard_error, float)),
    )


def _spreads(model: Hierarchical, components, items, clusters) -> np.ndarray:
    """`Summary.spreads` of its parts; NaN where responses tell nothing of one."""
    learned = np.asarray(model.regressed)
    levels, spreads = (np.asarray(x) for x in _told_jit(model))
    told = np.concatenate([(levels > 0) & learned, learned[None], spreads])
    return np.where(told, np.concatenate([components, items[None], clusters]), np.nan)


def _errors_of_general(
    errors: Errors,
    given: np.ndarray,
    own: np.ndarray,
    variance: float,
    mean: np.ndarray,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Covariance of general abilities, the variance that abilities leave open, moves.

    Both are averages over draws of the spread of abilities; to the covariance comes
    what the spread moves: weights, units, and what abilities are drawn to.

    Args:
        errors: Of the fit.
        given: `[groups * subjects] * 2` covariance of the abilities given the spread.
        own: Sigma as estimated.
        variance: tau^2, likewise.
        mean: `[subjects]` means of the abilities, from covariates.
    """
    possible, subjects = errors.possible, len(mean)
    moved = np.zeros((1, subjects))
    if possible is None:
        weights, left = general_weights(own[None], np.array([variance]))
    else:
        weights, left = general_weights(possible.own, possible.variance)
        centre = possible.unit[:, None] * mean[:, None]
        moved = np.einsum("kna,ka->kn", errors.ability - centre, weights)
        moved = moved + possible.unit.mean(axis=1)[:, None] * mean
        moved = moved - moved.mean(axis=0)
    groups = weights.shape[1]
    blocks = given.reshape(groups, subjects, groups, subjects)
    products = weights.T @ weights / len(weights)
    covariance = np.einsum("ab,anbk->nk", products, blocks)
    return covariance + moved.T @ moved / len(moved), float(left.mean()), moved


def _thinned(possible: Possible | None) -> Possible | None:
    """Some of the draws, far apart, to keep with the fit."""
    if possible is None:
        return None
    at = np.linspace(0, len(possible.own) - 1, NUM_POSSIBLE).round().astype(int)
    at = np.unique(at)
    return Possible(
        possible.own[at],
        possible.variance[at],
        possible.unit[at],
        possible.origin[at],
    )


def _with_origins(model: Hierarchical, possible: Possible | None) -> Possible | None:
    """The draws with those of where 0 is: the mean of the subjects that were drawn."""
    if possible is None or not model.num_shifts:
        return possible
    rng = np.random.default_rng(0)
    spread = possible.own + possible.variance[:, None, None]
    noise = rng.normal(size=(*possible.unit.shape, 1))
    if model.num_shifts == 1:
        # Of one shift for all groups their prior alone tells.
        told = np.linalg.inv(spread).sum(axis=(1, 2))
        origin = noise[:, :1, 0] / np.sqrt(told)[:, None] * np.ones(model.num_groups)
    else:
        origin = (np.linalg.cholesky(spread) @ noise)[:, :, 0]
    return possible._replace(origin=origin / model.subject_design.shape[0] ** 0.5)


def _correlation_bounds(own: np.ndarray, level: float):
    """Bounds of the correlations in draws of Sigma, lower and upper."""
    sd = np.sqrt(np.einsum("dmm->dm", own))
    ratio = own / sd[:, :, None] / sd[:, None, :]
    tail = (1 - level) / 2
    return tuple(np.quantile(ratio, [tail, 1 - tail], axis=0))


def _with_subject_effects(model: Hierarchical, whole: np.ndarray, spread: np.ndarray):
    """Covariance of the abilities with what effects of subjects' covariates add.

    Of abilities N(Z gamma, C) whose covariance given gamma is V, gamma has the
    information Z' (P - P V P) Z, P the inverse of C (Louis' identity), and they move
    by V P Z with it.

    Args:
        model: The model.
        whole: V, `[groups * subjects] * 2`.
        spread: `[groups, groups]` covariance of a subject's abilities.

    Returns:
        The covariance, and the standard errors of gamma `[covariates]`.
    """
    design = np.asarray(model.subject_design, float)
    if not design.shape[1]:
        return whole, np.zeros(0)
    held = np.kron(np.linalg.inv(spread).sum(axis=1)[:, None], design)
    moved = whole @ held
    square = design.T @ design * np.linalg.inv(spread).sum()
    ridge = model.hyperpriors.subject_effect**-2.0
    information = square - held.T @ moved + ridge * np.eye(design.shape[1])
    # Never less than the prior's: along a covariate nothing may be known.
    roots, vectors = np.linalg.eigh(information)
    covariance = (vectors / np.maximum(roots, ridge)) @ vectors.T
    return whole + moved @ covariance @ moved.T, np.sqrt(np.diag(covariance))


def kept_quantities(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> dict[str, jax.Array]:
    """What is kept of a draw: natural parameters."""
    frame, responses = data
    model, position = frame.model, frame.position(coordinates)
    own = model.own_covariance(position)
    variance = general_variance(position.log_general_sd)
    general = general_ability(own, variance)
    theta = model.abilities(position)
    mean = model.subject_design @ position.subject_effects
    kept = {
        "ability": theta,
        "general_mean": mean + (theta - mean[:, None]) @ general.weights,
        "general_variance": general.variance,
        "coordinates": model.coordinates(position),
        "log_likelihood": model.total_log_likelihood(position, responses),
        "expected_score": _expected_scores(model, theta, model.coordinates(position)),
    }
    if model.num_groups > 1:
        kept["own_covariance"] = own
    if any(model.learned):
        kept["effects"] = position.effects * model.effect_sd(position)
        kept["residual_sd"] = jnp.exp(position.log_residual_sd)
        if model.num_clusters:
            log_sd = position.log_residual_sd + model.spreads(position)
            kept["benchmark_sd"] = jnp.exp(log_sd)
        if model.num_components:
            kept["component_sd"] = jnp.exp(position.log_component_sd)
    if model.has_group_effects:
        kept["group_effects"] = position.group_effects
    if model.has_general_scale:
        kept["general_sd"] = jnp.exp(position.log_general_sd)
    if position.subject_effects.shape[0]:
        kept["subject_effects"] = position.subject_effects
    return kept


def _expected_scores(model: Hierarchical, ability: jax.Array, coordinates: jax.Array):
    """Mean over the items of each subject's expected response, `[subjects]`."""
    items = jax.vmap(model.family.constrain)(coordinates)
    over_items = jax.vmap(model.family.expected_response)
    at = lambda theta: jnp.mean(over_items(items, theta[model.group]))  # noqa: E731
    return jax.vmap(at)(ability)


def summary_of_draws(
    model: Hierarchical, values: Mapping[str, Any], level: float = 0.95
) -> Summary:
    """Means and covariances of draws by name, `[chains, draws, ...]`."""
    flat = {
        name: np.asarray(value, float).reshape(-1, *value.shape[2:])
        for name, value in values.items()
    }
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
        possible = Possible(flat["own_covariance"], variance, unit, origin)
        own = flat["own_covariance"].mean(axis=0)
        bounds = _correlation_bounds(flat["own_covariance"], level)
    effects = flat.get("effects", np.zeros((1, model.design.shape[1], 1)))
    effects = np.broadcast_to(effects, (*effects.shape[:2], model.num_columns))
    if model.has_group_effects:
        shifts = flat["group_effects"]
        effects = np.broadcast_to(effects, (len(shifts), *effects.shape[1:]))
        effects = np.concatenate([effects, shifts], axis=1)
    gamma = flat.get("subject_effects", np.zeros((1, 0)))
    return Summary(
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
        np.stack([gamma.mean(axis=0), gamma.std(axis=0)]),
        float(np.mean(sd**2)),
        _thinned(possible),
        _spreads(model, *(_mean_spread(model, flat, name) for name in _SPREADS)),
        expected=(
            flat["expected_score"].mean(axis=0),
            flat["expected_score"].std(axis=0, ddof=1),
        ),
    )


def _mean_spread(model: Hierarchical, flat: dict[str, np.ndarray], name: str):
    """Mean over draws of standard deviations; NaN where priors were given."""
    if name in flat:
        return flat[name].mean(axis=0)
    rows = {
        "component_sd": (model.num_components,),
        "residual_sd": (),
        "benchmark_sd": (model.num_clusters,),
    }
    return np.full((*rows[name], model.num_columns), np.nan)


def _units_of_draws(model: Hierarchical, coordinates: np.ndarray) -> np.ndarray:
    """Units of the abilities in draws, by the steepness of items, `[draws, groups]`.

    Where a group's items are steeper than on average over draws, abilities are as much
    nearer to each other, and what its responses point at too.
    """
    groups = model.num_groups
    if not model.family.has_slope:
        return np.ones((len(coordinates), groups))
    member = np.eye(groups)[np.asarray(model.group)]
    steep = coordinates[:, :, 0] @ member / member.sum(axis=0)
    return np.exp(steep.mean(axis=0) - steep)
