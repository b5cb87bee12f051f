"""Standardised loadings of items on several factors, their errors, their rotation."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.estimators.estimates import Estimates, FactorEstimates
from irtjax.inference.joint_covariance import estimated
from irtjax.inference.marginal_covariance import FactorCovariance
from irtjax.inference.rotation_errors import (
    correlation_covariance,
    rotation_moves,
    turned_covariance,
)
from irtjax.inference.vector_scores import FactorScores
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.models.model import Model
from irtjax.numerics.rotation import ROTATIONS, rotate


class Slopes(NamedTuple):
    """Slopes on correlated factors, from which loadings are standardised.

    Attributes:
        slopes: `[items, factors]` a.
        correlation: `[factors, factors]` Phi.
        variance: v, of the latent response given abilities: one, or `[items]`.
    """

    slopes: np.ndarray
    correlation: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, model: Model, items: Any, correlation: Any) -> Slopes:
        """Those of items."""
        variance = model.family.residual_variance(items)
        parts = items.discrimination, correlation, variance
        return cls(*(np.asarray(x, np.float64) for x in parts))

    @property
    def total(self) -> np.ndarray:
        """`[items]` variances of the latent responses, a'Phi a + v."""
        return np.sum(self.slopes @ self.correlation * self.slopes, 1) + self.variance

    def estimates(self, ability, covariance, mean, spread, **fields) -> FactorEstimates:
        """With abilities: loadings, structure and communality."""
        loadings = self.slopes / np.sqrt(self.total)[:, None]
        return FactorEstimates(
            ability=ability,
            covariance=covariance,
            mean=mean,
            spread=spread,
            loadings=loadings,
            correlation=self.correlation,
            structure=loadings @ self.correlation,
            communality=1 - self.variance / self.total,
            **fields,
        )

    def jacobian(self, columns: int) -> np.ndarray:
        """`[items, factors, columns]`: derivatives of loadings in (a, x)."""
        slopes, total = self.slopes, self.total
        dims, along = slopes.shape[1], slopes @ self.correlation
        # d lambda / d a = (I - a (Phi a)' / total) / sqrt(total)
        each = total[:, None, None]
        by_slope = np.eye(dims) - slopes[:, :, None] * along[:, None] / each
        derivatives = np.zeros((len(slopes), dims, columns))
        derivatives[:, :, :dims] = by_slope / np.sqrt(each)
        if np.ndim(self.variance):
            # By item: the last coordinate is the logarithm of its root.
            derivatives[:, :, -1] = -slopes * (self.variance / total**1.5)[:, None]
        return derivatives

    def loading_variances(self, errors: FactorCovariance) -> np.ndarray:
        """`[items, factors]` of loadings, with the errors of correlations."""
        slopes, columns = self.slopes, errors.items.shape[1]
        jacobian = self.jacobian(columns)
        own = jacobian @ errors.items @ np.swapaxes(jacobian, 1, 2)
        variances = np.diagonal(own, axis1=1, axis2=2)
        pairs = 0 if errors.whole is None else len(errors.whole) - len(slopes) * columns
        if errors.whole is None or not pairs:
            return variances
        low, high = np.triu_indices(slopes.shape[1], 1)
        product = slopes[:, low] * slopes[:, high] / self.total[:, None] ** 1.5
        by_pair = -slopes[:, :, None] * product[:, None, :]
        cross = errors.whole[:-pairs, -pairs:].reshape(len(slopes), columns, pairs)
        cross = np.sum((jacobian @ cross) * by_pair, axis=2)
        of_pairs = by_pair @ errors.whole[-pairs:, -pairs:] * by_pair
        return variances + 2 * cross + np.sum(of_pairs, 2)


def loadings_of(
    problem: Problem,
    parameters: Parameters,
    modes: FactorScores,
    errors: FactorCovariance | None,
) -> FactorEstimates:
    """Standardised loadings with errors, and abilities, not rotated."""
    items, correlation = parameters.items, parameters.population.covariance
    slopes = Slopes.of(problem.model, items, correlation)
    factors = slopes.estimates(*(np.asarray(x, np.float64) for x in modes[:4]))
    if errors is None:
        return factors
    size = np.sqrt(np.maximum(slopes.loading_variances(errors), 0))
    num_factors = slopes.slopes.shape[1]
    # Free loadings at a bound, or of an item that is not identified, have none.
    free = np.asarray(problem.free)[:, :num_factors]
    bound = free & ~np.asarray(estimated(problem, items))[:, :num_factors]
    lost = free & ~_has_loadings(errors, num_factors, problem.model)[:, None]
    return dataclasses.replace(
        factors,
        loadings_error=np.where(lost | bound, np.nan, size),
        item_errors=errors,
        correlation_error=errors.correlation_error(num_factors),
    )


def _has_loadings(
    errors: FactorCovariance, num_factors: int, model: Model
) -> np.ndarray:
    """`[items]`: whether what loadings depend on is identified."""
    identified = np.asarray(errors.is_identified)
    has_slopes = np.all(identified[:, :num_factors], axis=1)
    # Of scores the last coordinate is their residual standard deviation.
    return has_slopes if model.family.num_categories else has_slopes & identified[:, -1]


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
    factors = estimates.factors
    assert factors is not None
    loadings = jnp.asarray(factors.loadings)
    goal = None if target is None else jnp.asarray(target, loadings.dtype)
    result = rotate(
        loadings, rotation, num_starts=num_starts, key=jax.random.key(0), target=goal
    )
    transform = np.asarray(result.transform, np.float64)
    parameters, slopes = _turned(estimates, transform)
    problem, covariance, fields = estimates.problem, None, {}
    if factors.item_errors is not None:
        moves = rotation_moves(loadings, rotation, result.transform, num_starts, goal)
        fields = _turned_errors(
            estimates, transform, moves, ROTATIONS[rotation].oblique
        )
        covariance = fields["item_errors"].in_coordinates(problem, parameters.items)
    turned = lambda x: np.einsum("kp,nkl,lq->npq", transform, x, transform)
    on_axes = slopes.estimates(
        factors.ability @ transform,
        turned(factors.covariance),
        factors.mean @ transform,
        turned(factors.spread),
        rotation=rotation,
        share_at_best=float(result.share_at_best),
        **fields,
    )
    if target is not None:
        apart = _distance(on_axes.loadings, target)
        on_axes = dataclasses.replace(on_axes, from_target=apart)
    return dataclasses.replace(
        estimates,
        parameters=parameters,
        coordinates=problem.model.unconstrain(parameters.items),
        covariance=covariance,
        factors=on_axes,
    )


def _turned(estimates: Estimates, transform: np.ndarray) -> tuple[Parameters, Slopes]:
    """The parameters on rotated factors, and their slopes in double precision."""
    items, population, theta, _ = estimates.parameters
    dtype, inverse = items.discrimination.dtype, np.linalg.inv(transform).T
    slopes = Slopes.of(estimates.problem.model, items, transform.T @ transform)
    slopes = slopes._replace(slopes=slopes.slopes @ inverse)
    correlation = jnp.asarray(slopes.correlation, dtype)
    parameters = estimates.parameters._replace(
        items=items._replace(discrimination=jnp.asarray(slopes.slopes, dtype)),
        population=population._replace(correlation=correlation),
        theta=None if theta is None else theta @ jnp.asarray(transform, dtype),
    )
    return parameters, slopes


def _distance(loadings: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`[factors]`: root mean square over the specified cells of a target."""
    stated = ~np.isnan(target)
    total = np.where(stated, (loadings - target) ** 2, 0).sum(axis=0)
    count = stated.sum(axis=0)
    return np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)


def _turned_errors(
    estimates: Estimates, transform: np.ndarray, moves: Any, oblique: bool
) -> dict[str, Any]:
    """Fields of `FactorEstimates`: errors of rotated slopes, loadings, correlations.

    `moves` are those of `rotation_moves`, U and its slopes in the loadings; None where
    loadings do not determine the rotation, whose axes are then taken as known.
    Correlations of the factors have errors where the rotation is `oblique` and the
    covariance of all loadings is known.
    """
    factors, inverse = estimates.factors, np.linalg.inv(transform).T
    assert factors is not None and factors.item_errors is not None
    errors, model = factors.item_errors, estimates.problem.model
    (num_items, columns, _), dims = errors.items.shape, len(transform)
    turn, by_loading = inverse, np.zeros((dims, dims, num_items, dims))
    if moves is not None:
        turn, by_loading = moves
    before = Slopes.of(model, estimates.parameters.items, factors.correlation)
    slopes, jacobian = before.slopes, before.jacobian(columns)
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
    own = turned_covariance(factors.loadings, turn, by_loading, of_loadings)
    size = np.sqrt(np.maximum(np.diagonal(own, axis1=1, axis2=2), 0))
    # A rotation mixes the slopes of an item: none is identified if one is not.
    has_loadings = _has_loadings(errors, dims, model)
    size[~has_loadings | (slopes == 0).all(axis=1)] = np.nan  # 0 by a lasso.
    correlations = None
    determined = moves is not None
    if determined and oblique and errors.whole is not None and has_loadings.all():
        matrix = of_loadings.reshape(num_items * dims, -1)
        correlations = correlation_covariance(turn, by_loading, matrix)
    fixed, whole = np.eye(columns), np.eye(columns)
    fixed[:dims, :dims], whole[:dims, :dims] = inverse, turn
    lost = whole.T @ errors.lost @ whole
    turned = FactorCovariance(items, lost, correlations=correlations)
    return {
        "axes_known": not determined,
        "item_errors": turned,
        "loadings_error": size,
        "at_fixed_axes": fixed.T @ errors.items @ fixed,
        "correlation_error": turned.correlation_error(dims),
    }
