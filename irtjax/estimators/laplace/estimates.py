"""Estimates of the Laplace approximation, with errors that include its own."""

from __future__ import annotations

import equinox as eqx
import numpy as np

from irtjax.estimators.estimates import Summary
from irtjax.estimators.laplace.components import own_covariance
from irtjax.estimators.laplace.errors import Errors, errors_of
from irtjax.estimators.laplace.expected_scores import mean_responses
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import LaplaceState, StructuredProblem
from irtjax.models.multilevel.covariance_mixture import Possible, general_weights
from irtjax.models.multilevel.model import (
    Hierarchical,
    general_variance,
)
from irtjax.ranking import scale_loadings

_own_covariance_jit = eqx.filter_jit(own_covariance)


#: Draws of Sigma that are kept with a fit, for the errors of newcomers.
NUM_POSSIBLE = 200


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
        bounds = correlation_bounds(possible.own, level)
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
        thinned(_with_origins(model, possible)),
        spreads(
            model,
            np.exp(np.asarray(components.log_component_sd, float)),
            np.exp(np.asarray(components.log_residual_sd, float)),
            np.exp(np.asarray(components.spread + components.log_residual_sd, float)),
        ),
        errors.accepted,
        scale_loadings(general, moved.T / len(moved) ** 0.5),
        (np.asarray(expected.mean, float), np.asarray(expected.standard_error, float)),
    )


def spreads(model: Hierarchical, components, items, clusters) -> np.ndarray:
    """`Summary.spreads` of its parts; NaN where responses tell nothing of one."""
    learned = np.asarray(model.regressed)
    levels = np.asarray(model.told_components > 0) & learned
    told = np.concatenate([levels, learned[None], model.told_spreads])
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


def thinned(possible: Possible | None) -> Possible | None:
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


def correlation_bounds(own: np.ndarray, level: float):
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
