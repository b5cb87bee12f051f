"""Estimates of models with several abilities, and their rotation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates, FactorEstimates, of_run
from irtjax.estimators.timing import Clock
from irtjax.inference import Covariance
from irtjax.inference.joint_covariance import estimated, watched_factor_covariance
from irtjax.inference.marginal_covariance import (
    FactorCovariance,
    marginal_covariance,
    normal_rule,
)
from irtjax.inference.rotation_errors import (
    correlation_covariance,
    rotation_moves,
    turned_covariance,
)
from irtjax.inference.vector_scores import (
    expected_with_items,
    watched_on_items,
    watched_score_factors,
)
from irtjax.likelihood.cubature import points_for
from irtjax.likelihood.problem import Problem, correlates, is_positive, rotates
from irtjax.numerics.rotation import ROTATIONS, rotate

#: Points of each posterior with more than three factors, where a method has no number.
DRAWS = 200
#: The contribution of a direction of which nothing is known to a variance.
UNKNOWN = 1e20


def factor_estimates(
    problem: Problem,
    solution: Any,
    *,
    standard_errors: str = "observed",
    item_uncertainty: bool = True,
    clock: Clock,
) -> Estimates:
    """Estimates of a method that solves problems with several abilities.

    The ability that subjects are ranked by is the expected score on all items; the
    abilities on the factors are in `Estimates.factors`, not rotated.
    """
    model, data, parameters = problem.model, problem.data, solution.fit.parameters
    joint = parameters.theta is not None
    coordinates = model.unconstrain(parameters.items)
    items = parameters.items
    clock.report("scores", 0, math.nan, math.nan)
    with clock.phase("scores"):
        modes = watched_score_factors(
            model, items, parameters.population, data, parameters.theta
        )
    errors = None
    clock.report("standard errors", 0, math.nan, math.nan)
    with clock.phase("standard_errors"):
        if standard_errors != "none":
            errors = _item_errors(problem, solution, modes)
        shared = None
        if errors is not None and item_uncertainty:
            blocks = jnp.asarray(errors.items, items.discrimination.dtype)
            ability, error, shared = expected_with_items(
                model, items, data, modes, blocks
            )
        else:
            ability, error = watched_on_items(model, items, modes)
    ability, error = (np.asarray(x, np.float64) for x in (ability, error))
    dims = model.family.dims
    free = int(np.asarray(problem.free).sum())
    pairs = dims * (dims - 1) // 2
    # A rotation of the factors changes nothing; joint methods have no correlations.
    free -= bool(rotates(problem)) * pairs
    free += (not joint and bool(correlates(problem))) * pairs
    return Estimates(
        problem=problem,
        parameters=parameters,
        coordinates=coordinates,
        covariance=None
        if errors is None
        else _in_coordinates(problem, parameters, errors),
        ability=ability,
        error=error,
        shared=None if shared is None else np.asarray(shared, np.float64),
        expected=(ability, error),
        **of_run(problem, solution),
        log_prior=float(jnp.sum(jax.vmap(model.log_prior)(items))),
        num_parameters=free + (dims * len(ability) if joint else 0),
        joint=joint,
        scale=np.zeros(len(ability)),
        unfinished=~np.asarray(modes.converged),
        warnings=(*solution.warnings, *_not_identified(errors)),
        factors=_factors(problem, parameters, modes, errors),
    )


def _item_errors(problem: Problem, solution: Any, modes) -> FactorCovariance:
    """Covariances of (a_j, x_j), by the kind of method."""
    parameters, method = solution.fit.parameters, solution.method
    if not method.marginal:
        # As arrays: other weights need no program of their own.
        dtype = parameters.items.discrimination.dtype
        blocks = watched_factor_covariance(
            problem,
            parameters.items,
            modes.ability,
            modes.covariance,
            jnp.asarray(getattr(method, "penalty", 1.0), dtype),
            jnp.asarray(getattr(method, "temperature", 1.0), dtype),
        )
        return FactorCovariance(*(np.asarray(x, np.float64) for x in blocks))
    family = problem.model.family
    if family.num_categories == 0:
        points = normal_rule(family.dims)
    else:
        draws = getattr(method, "num_samples", DRAWS)
        points = points_for(family.dims, draws, jax.random.key(0))
    prior = getattr(method, "prior_subjects", 0.0)
    return marginal_covariance(
        problem,
        parameters.items,
        parameters.population,
        (modes.ability, modes.covariance),
        points,
        prior,
    )


def _in_coordinates(
    problem: Problem, parameters, errors: FactorCovariance
) -> Covariance:
    """The covariance in the coordinates of the family: logarithms of positive slopes.

    A slope at its bound 0 has no logarithm, and an error that is not known.
    """
    slopes = np.asarray(parameters.items.discrimination, np.float64)
    steps = np.ones(problem.free.shape)
    if is_positive(problem.model):
        steps[:, : slopes.shape[1]] = np.where(slopes > 0, slopes, 1)
    steps = steps[:, :, None] * steps[:, None, :]
    bound = np.asarray(problem.free & ~estimated(problem, parameters.items))
    lost = errors.lost / steps + UNKNOWN * np.eye(steps.shape[1]) * bound[:, :, None]
    lost = np.clip(lost, -UNKNOWN, UNKNOWN)
    dtype = parameters.items.discrimination.dtype
    covariance = Covariance.of_independent(jnp.asarray(errors.items / steps, dtype))
    return covariance._replace(
        lost=(jnp.asarray(lost, dtype), *covariance.lost[1:]),
        definite=jnp.asarray(not np.any(errors.lost)),
    )


def _not_identified(errors: FactorCovariance | None) -> tuple[str, ...]:
    """A warning of items with parameters that have no error, if there are any."""
    if errors is None:
        return ()
    count = int((~errors.is_identified).any(axis=1).sum())
    if not count:
        return ()
    return (
        f"parameters of {counted(count, 'item')} are not identified and have no"
        " standard error: use fewer factors or narrower priors",
    )


def _factors(problem: Problem, parameters, modes, errors) -> FactorEstimates:
    """Standardised loadings with errors, and abilities, not rotated."""
    slopes = np.asarray(parameters.items.discrimination, np.float64)
    correlation = np.asarray(parameters.population.covariance, np.float64)
    variance = _residual_variance(problem.model, parameters.items)
    described = _described(
        slopes, correlation, variance, *(np.asarray(x, np.float64) for x in modes[:4])
    )
    if errors is None:
        return described
    of_loadings = _loading_variances(slopes, errors, correlation, variance)
    size = np.sqrt(np.maximum(of_loadings, 0))
    size = np.where(_unknown_loadings(problem, parameters.items, errors), np.nan, size)
    return described._replace(
        loadings_error=size,
        item_errors=errors,
        correlation_error=_correlation_error(errors, slopes.shape[1]),
    )


def _correlation_error(errors: FactorCovariance, dims: int) -> np.ndarray | None:
    """`[factors, factors]` errors of correlations, 0 on the diagonal."""
    if errors.correlations is None:
        return None
    correlation_errors, (low, high) = np.zeros((dims, dims)), np.triu_indices(dims, 1)
    size = np.sqrt(np.diagonal(errors.correlations))
    correlation_errors[low, high] = correlation_errors[high, low] = size
    return correlation_errors


def _described(slopes, correlation, variance, ability, posterior, mean, spread, **more):
    """Loadings, structure and communality of slopes on factors of variance 1."""
    total = np.sum(slopes @ correlation * slopes, axis=1) + variance
    loadings = slopes / np.sqrt(total)[:, None]
    return FactorEstimates(
        ability=ability,
        covariance=posterior,
        mean=mean,
        spread=spread,
        loadings=loadings,
        loadings_error=None,
        correlation=correlation,
        structure=loadings @ correlation,
        communality=1 - variance / total,
        **more,
    )


def _unknown_loadings(problem: Problem, items, errors: FactorCovariance) -> np.ndarray:
    """`[items, factors]`: free loadings at a bound, or of an item not identified."""
    dims = problem.model.family.dims
    lost = ~_has_loadings(errors, dims, problem.model.family)
    free = np.asarray(problem.free)[:, :dims]
    bound = free & ~np.asarray(estimated(problem, items))[:, :dims]
    return (free & lost[:, None]) | bound


def _has_loadings(errors: FactorCovariance, dims: int, family) -> np.ndarray:
    """`[items]`: whether what loadings depend on is identified."""
    identified = errors.is_identified
    has_loadings = np.asarray(identified[:, :dims].all(axis=1))
    # Of scores the last coordinate is their residual standard deviation.
    return np.asarray(
        has_loadings if family.num_categories else has_loadings & identified[:, -1]
    )


def _loading_jacobian(slopes, columns: int, correlation, variance) -> np.ndarray:
    """`[items, factors, columns]`: derivatives of standardised loadings in (a, x)."""
    dims = slopes.shape[1]
    along = slopes @ correlation
    total = np.sum(along * slopes, axis=1) + variance
    # d lambda / d a = (I - a (Phi a)' / total) / sqrt(total)
    jacobian = np.eye(dims) - slopes[:, :, None] * along[:, None] / total[:, None, None]
    derivatives = np.zeros((len(slopes), dims, columns))
    derivatives[:, :, :dims] = jacobian / np.sqrt(total)[:, None, None]
    if np.ndim(variance):
        # By item: the last coordinate is the logarithm of its root.
        derivatives[:, :, -1] = -slopes * (variance / total**1.5)[:, None]
    return derivatives


def _loading_covariance(slopes, covariance, correlation, variance) -> np.ndarray:
    """`[items, factors, factors]` of standardised loadings, axes being known."""
    columns = covariance.shape[1]
    jacobian = _loading_jacobian(slopes, columns, correlation, variance)
    return jacobian @ covariance @ np.swapaxes(jacobian, 1, 2)


def _loading_variances(
    slopes, errors: FactorCovariance, correlation, variance
) -> np.ndarray:
    """`[items, factors]` of standardised loadings, with the errors of correlations."""
    columns, dims = errors.items.shape[1], slopes.shape[1]
    own = _loading_covariance(slopes, errors.items, correlation, variance)
    variances = np.diagonal(own, axis1=1, axis2=2)
    pairs = 0 if errors.whole is None else len(errors.whole) - len(slopes) * columns
    if not pairs:
        return variances
    assert errors.whole is not None
    jacobian = _loading_jacobian(slopes, columns, correlation, variance)
    total = np.sum(slopes @ correlation * slopes, axis=1) + variance
    low, high = np.triu_indices(dims, 1)
    product = slopes[:, low] * slopes[:, high] / total[:, None] ** 1.5
    by_pair = -slopes[:, :, None] * product[:, None, :]
    cross = errors.whole[:-pairs, -pairs:].reshape(len(slopes), columns, pairs)
    cross = np.sum((jacobian @ cross) * by_pair, axis=2)
    return (
        variances
        + 2 * cross
        + np.sum(by_pair @ errors.whole[-pairs:, -pairs:] * by_pair, 2)
    )


def _residual_variance(model, items) -> Any:
    """Variance of the latent response given abilities: one, or `[items]`."""
    return np.asarray(model.family.residual_variance(items), np.float64)


def rotated(
    estimates: Estimates,
    rotation: str,
    num_starts: int = 100,
    target: np.ndarray | None = None,
) -> Estimates:
    """The same estimates on rotated factors; the likelihood does not change.

    With T the transform, slopes become a T'^-1, abilities theta T and their
    correlations T'T (`numerics.rotation`). What is rotated are the standardised
    loadings, as in mirt. Errors of slopes and loadings include that of the rotation.
    """
    assert estimates.factors is not None
    loadings = jnp.asarray(estimates.factors.loadings)
    goal = None if target is None else jnp.asarray(target, loadings.dtype)
    result = rotate(
        loadings,
        rotation,
        num_starts=num_starts,
        key=jax.random.key(0),
        target=goal,
    )
    transform = np.asarray(result.transform, np.float64)
    inverse = np.linalg.inv(transform).T
    items, population = estimates.parameters.items, estimates.parameters.population
    dtype = items.discrimination.dtype
    slopes = np.asarray(items.discrimination, np.float64) @ inverse
    correlation = transform.T @ transform
    theta = estimates.parameters.theta
    errors, covariance, loadings_error, determined = None, None, None, True
    at_fixed_axes = None
    if estimates.factors.item_errors is not None:
        moves = rotation_moves(loadings, rotation, result.transform, num_starts, goal)
        determined = moves is None
        oblique = ROTATIONS[rotation].oblique and not determined
        if moves is None:
            moves = inverse, np.zeros((*transform.shape, *loadings.shape))
        errors, loadings_error = _turned_errors(estimates, moves, oblique)
        whole = np.eye(errors.items.shape[1])
        whole[: len(inverse), : len(inverse)] = inverse
        at_fixed_axes = whole.T @ estimates.factors.item_errors.items @ whole
    items = items._replace(discrimination=jnp.asarray(slopes, dtype))
    parameters = estimates.parameters._replace(
        items=items,
        population=population._replace(correlation=jnp.asarray(correlation, dtype)),
        theta=None if theta is None else theta @ jnp.asarray(transform, dtype),
    )
    if errors is not None:
        covariance = _in_coordinates(estimates.problem, parameters, errors)
    turned = lambda x: np.einsum("kp,nkl,lq->npq", transform, x, transform)
    factors = _described(
        slopes,
        correlation,
        _residual_variance(estimates.problem.model, items),
        estimates.factors.ability @ transform,
        turned(estimates.factors.covariance),
        estimates.factors.mean @ transform,
        turned(estimates.factors.spread),
        rotation=rotation,
        share_at_best=float(result.share_at_best),
        axes_known=determined,
        item_errors=errors,
    )
    return dataclasses.replace(
        estimates,
        parameters=parameters,
        coordinates=estimates.problem.model.unconstrain(items),
        covariance=covariance,
        factors=factors._replace(
            loadings_error=loadings_error,
            at_fixed_axes=at_fixed_axes,
            from_target=None if target is None else _distance(factors.loadings, target),
            correlation_error=None
            if errors is None
            else _correlation_error(errors, len(transform)),
        ),
    )


def _distance(loadings: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`[factors]`: root mean square over the specified cells of a target."""
    stated = ~np.isnan(target)
    total = np.where(stated, (loadings - target) ** 2, 0).sum(axis=0)
    count = stated.sum(axis=0)
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)


def _turned_errors(
    found: Estimates, moves, oblique: bool
) -> tuple[FactorCovariance, np.ndarray]:
    """Covariances of rotated slopes, and errors of rotated loadings.

    `moves` are those of `inference.rotation_errors`: U and its slopes in the loadings.
    Correlations of the factors have errors where the rotation is `oblique` and the
    covariance of all loadings is known.
    """
    assert found.factors is not None and found.factors.item_errors is not None
    errors, (turn, by_loading) = found.factors.item_errors, moves
    slopes = np.asarray(found.parameters.items.discrimination, np.float64)
    (num_items, columns, _), dims = errors.items.shape, slopes.shape[1]
    variance = _residual_variance(found.problem.model, found.parameters.items)
    jacobian = _loading_jacobian(slopes, columns, found.factors.correlation, variance)
    covariance = errors.items
    of_loadings = jacobian @ covariance @ np.swapaxes(jacobian, 1, 2)
    if errors.whole is not None:
        covariance = errors.whole.reshape(num_items, columns, num_items, columns)
        half = jacobian @ errors.whole.reshape(num_items, columns, -1)
        half = half.reshape(num_items * dims, num_items, columns)
        of_loadings = np.einsum("fmp,mlp->fml", half, jacobian)
        of_loadings = of_loadings.reshape(num_items, dims, num_items, dims)
    by_slope = np.einsum("kljm,jmp->kljp", by_loading, jacobian)
    items = turned_covariance(slopes, turn, by_slope, covariance)
    before = found.factors.loadings, turn, by_loading, of_loadings
    size = np.diagonal(turned_covariance(*before), axis1=1, axis2=2)
    size = np.sqrt(np.maximum(size, 0))
    # A rotation mixes the slopes of an item: none is identified if one is not.
    has_loadings = _has_loadings(errors, dims, found.problem.model.family)
    size[~has_loadings | (slopes == 0).all(axis=1)] = np.nan  # 0 by a lasso.
    correlations = None
    if oblique and errors.whole is not None and has_loadings.all():
        matrix = of_loadings.reshape(num_items * dims, -1)
        correlations = correlation_covariance(turn, by_loading, matrix)
    whole = np.eye(columns)
    whole[:dims, :dims] = turn
    lost = whole.T @ errors.lost @ whole
    return FactorCovariance(items, lost, correlations=correlations), size
