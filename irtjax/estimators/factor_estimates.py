"""Estimates of models with several abilities, and their rotation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import Status
from irtjax.estimators.estimates import Estimates, FactorEstimates
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem, correlates, rotates
from irtjax.models.families.bounded import log_base_total
from irtjax.numerics.rotation import rotate
from irtjax.scoring.factors import expected_on_items, expected_with_items, score_factors
from irtjax.uncertainty import Covariance
from irtjax.uncertainty.factors import factor_covariance
from irtjax.uncertainty.rotation import rotated_loading_errors


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
    fit, method, model = solution.fit, solution.method, problem.model
    found, data = fit.parameters, problem.data
    joint = found.theta is not None
    coordinates = model.unconstrain(found.items)
    given = model, found.items
    clock.report("scores", 0, math.nan, math.nan)
    with clock.phase("scores"):
        modes = score_factors(*given, found.population, data, found.theta)
    covariance = None
    clock.report("standard errors", 0, math.nan, math.nan)
    with clock.phase("standard_errors"):
        if standard_errors != "none":
            blocks = factor_covariance(
                problem, found.items, modes.ability, modes.covariance
            )
            covariance = Covariance.of_independent(jnp.nan_to_num(blocks))
            lost = jnp.where(jnp.isnan(blocks), jnp.inf, 0)
            covariance = covariance._replace(lost=(lost, *covariance.lost[1:]))
        shared = None
        if covariance is not None and item_uncertainty:
            blocks = covariance.items
            ability, error, shared = expected_with_items(*given, data, modes, blocks)
        else:
            ability, error = expected_on_items(*given, modes)
    base = log_base_total(model, found.items, data)
    terms = np.asarray(fit.subject_log_lik, np.float64)
    if data.subject_weight is not None:
        terms = terms * np.asarray(data.subject_weight)
    ability, error = (np.asarray(x, np.float64) for x in (ability, error))
    dims = model.family.dims
    free = int(np.asarray(problem.free).sum())
    pairs = dims * (dims - 1) // 2
    # A rotation of the factors changes nothing; joint methods have no correlations.
    free -= bool(rotates(problem)) * pairs
    free += (not joint and bool(correlates(problem))) * pairs
    return Estimates(
        problem=problem,
        parameters=found,
        coordinates=coordinates,
        covariance=covariance,
        ability=ability,
        error=error,
        shared=None if shared is None else np.asarray(shared, np.float64),
        expected=(ability, error),
        log_likelihood=float(terms.sum()) + base,
        log_prior=float(jnp.sum(jax.vmap(model.log_prior)(found.items))),
        num_parameters=free + (dims * len(ability) if joint else 0),
        status=Status(int(fit.status)),
        num_steps=int(fit.num_steps),
        trace=np.asarray(fit.trace)[: int(fit.num_steps)] + base,
        residual=float(fit.residual),
        priors=frozenset(model.priors) if method.uses_priors else frozenset(),
        joint=joint,
        limit=method.limit,
        scale=np.zeros(len(ability)),
        unfinished=~np.asarray(modes.converged),
        warnings=solution.warnings,
        factors=_factors(problem, found, modes, covariance),
    )


def _factors(problem: Problem, found, modes, covariance) -> FactorEstimates:
    """Standardised loadings with errors, and abilities, not rotated."""
    slopes = np.asarray(found.items.discrimination, np.float64)
    population = found.population.covariance
    parts = None if covariance is None else np.asarray(covariance.items, np.float64)
    return _described(
        slopes,
        parts,
        np.asarray(population, np.float64),
        _residual_variance(problem.model, found.items),
        *(np.asarray(x, np.float64) for x in modes[:3]),
    )


def _described(
    slopes, covariance, correlation, variance, ability, posterior, mean, **more
):
    """Loadings, structure and communality of slopes on factors of variance 1."""
    total = np.sum(slopes @ correlation * slopes, axis=1) + variance
    loadings = slopes / np.sqrt(total)[:, None]
    error = None
    if covariance is not None:
        of_loadings = _loading_covariance(slopes, covariance, correlation, variance)
        diagonal = np.diagonal(of_loadings, axis1=1, axis2=2)
        error = np.sqrt(np.maximum(diagonal, 0))
    return FactorEstimates(
        ability=ability,
        covariance=posterior,
        mean=mean,
        loadings=loadings,
        loadings_error=error,
        correlation=correlation,
        structure=loadings @ correlation,
        communality=1 - variance / total,
        **more,
    )


def _loading_covariance(slopes, covariance, correlation, variance) -> np.ndarray:
    """`[items, factors, factors]` of standardised loadings, axes being known."""
    dims = slopes.shape[1]
    along = slopes @ correlation
    total = np.sum(along * slopes, axis=1) + variance
    # d lambda / d a = (I - a (Phi a)' / total) / sqrt(total)
    jacobian = np.eye(dims) - slopes[:, :, None] * along[:, None] / total[:, None, None]
    jacobian, kept = jacobian / np.sqrt(total)[:, None, None], np.arange(dims)
    if np.ndim(variance):
        # By item: the last coordinate is the logarithm of its root.
        move = -slopes * (variance / total**1.5)[:, None]
        jacobian = np.concatenate([jacobian, move[:, :, None]], axis=2)
        kept = np.append(kept, covariance.shape[1] - 1)
    block = covariance[:, kept[:, None], kept]
    return np.einsum("jkl,jlm,jnm->jkn", jacobian, block, jacobian, optimize=True)


def _residual_variance(model, items) -> Any:
    """Variance of the latent response given abilities: one, or `[items]`."""
    return np.asarray(model.family.residual_variance(items), np.float64)


def rotated(found: Estimates, rotation: str, num_starts: int = 100) -> Estimates:
    """The same estimates on rotated factors; the likelihood does not change.

    With T the transform, slopes become a T'^-1, abilities theta T and their
    correlations T'T (`numerics.rotation`). What is rotated are the standardised
    loadings, as in mirt. Errors of loadings include that of the rotation; other errors
    are those of a known one.
    """
    assert found.factors is not None
    result = rotate(
        jnp.asarray(found.factors.loadings),
        rotation,
        num_starts=num_starts,
        key=jax.random.key(0),
    )
    errors = None
    if found.covariance is not None:
        before = _loading_covariance(
            np.asarray(found.parameters.items.discrimination, np.float64),
            np.asarray(found.covariance.items, np.float64),
            found.factors.correlation,
            _residual_variance(found.problem.model, found.parameters.items),
        )
        errors = rotated_loading_errors(
            jnp.asarray(found.factors.loadings),
            jnp.asarray(before),
            rotation,
            result.transform,
            num_starts,
        )
    transform = np.asarray(result.transform, np.float64)
    inverse = np.linalg.inv(transform).T
    items, population = found.parameters.items, found.parameters.population
    dtype = items.discrimination.dtype
    slopes = np.asarray(items.discrimination, np.float64) @ inverse
    correlation = transform.T @ transform
    theta = found.parameters.theta
    covariance = found.covariance
    if covariance is not None:
        whole = np.eye(covariance.items.shape[1])
        dims = transform.shape[0]
        whole[:dims, :dims] = inverse
        turned = np.einsum("kp,jkl,lq->jpq", whole, np.asarray(covariance.items), whole)
        covariance = covariance._replace(items=jnp.asarray(turned, dtype))
    items = items._replace(discrimination=jnp.asarray(slopes, dtype))
    parameters = found.parameters._replace(
        items=items,
        population=population._replace(correlation=jnp.asarray(correlation, dtype)),
        theta=None if theta is None else theta @ jnp.asarray(transform, dtype),
    )
    ability = found.factors.ability @ transform
    posterior = np.einsum(
        "kp,nkl,lq->npq", transform, found.factors.covariance, transform
    )
    factors = _described(
        slopes,
        None if covariance is None else np.asarray(covariance.items, np.float64),
        correlation,
        _residual_variance(found.problem.model, items),
        ability,
        posterior,
        found.factors.mean @ transform,
        rotation=rotation,
        share_at_best=float(result.share_at_best),
    )
    if errors is not None:
        factors = factors._replace(loadings_error=errors, axes_known=False)
    return dataclasses.replace(
        found,
        parameters=parameters,
        coordinates=found.problem.model.unconstrain(items),
        covariance=covariance,
        factors=factors,
    )
