r"""Exact EM of the factor model of scores: normal logits, abilities integrated out.

    z_ij = d_j + a_j'theta_i + s_j e_ij,   theta_i ~ N(0, R),  e_ij ~ N(0, 1).

With w_j = s_j^-2 and z = (1, theta), the posterior of theta_i is normal, with

    C_i^-1 = R^-1 + sum_j w_j a_j a_j',   mu_i = C_i sum_j w_j (z_ij - d_j) a_j

over the observed cells, and the log-likelihood of a subject is

    sum_j log N(z_ij; d_j, s_j^2) + mu_i' C_i^-1 mu_i / 2 - log(|R| |C_i^-1|) / 2.

Items are then least squares with E[z z'], and s_j^2 is the mean expected square that is
left, with its prior. (In a joint likelihood, without C_i, the residual variance of an
item goes to 0: with 300 subjects and 10 items of 2 factors in every data set tried.)
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.estimators.ascent import AscentState, Image
from irtjax.estimators.joint.bound import Quadratic, add_normal_prior, update_items
from irtjax.estimators.joint.objective import block_weight
from irtjax.estimators.marginal.correlations import (
    oriented,
    raised_correlation,
    with_own_correlation,
)
from irtjax.estimators.marginal.quadratic_em import (
    AbstractFactorMarginal,
    FactorPoint,
    free_of,
    log_prior_at,
    prior_moments,
)
from irtjax.likelihood.problem import Parameters, Problem, Start, is_positive
from irtjax.likelihood.products import outer
from irtjax.models.families.continuous import LogitNormalScores, ScoreItems
from irtjax.models.model import Model
from irtjax.models.priors import InverseChi, Normal
from irtjax.numerics.kernels import (
    block_size_for,
    inverse_of,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)

_LOG_TWO_PI = 1.8378770664093453


class NormalPoint(NamedTuple):
    """Rows (d, a), logarithms of residual standard deviations, correlations."""

    stacked: Float[Array, "items p"]
    log_sd: Float[Array, " items"]
    correlation: Float[Array, "dims dims"]


class ItemSums(NamedTuple):
    """Sums over subjects of an item: of E[z z'], z_ij (1, mu_i), z_ij^2 and 1."""

    design: Float[Array, "items p p"]
    products: Float[Array, "items p"]
    squares: Float[Array, " items"]
    total: Float[Array, " items"]


class NormalFactors(AbstractFactorMarginal):
    """Marginal maximum likelihood (or MAP) of a factor model of scores, by exact EM.

    What `irtjax.fit(scores, "factor")` uses, by the name "em". Settings are those of
    `AbstractFactorMarginal`.
    """

    @property
    def name(self) -> str:
        """Its name in `irtjax.fit`."""
        return "em"

    def check(self, problem: Problem) -> None:
        """Refuses other families, and priors that are not conjugate."""
        model = problem.model
        if not (isinstance(model.family, LogitNormalScores) and model.several):
            raise ValueError(
                f"NormalFactors fits several abilities to scores, not {model.name!r}"
            )
        for parameter in model.family.parameters:
            prior = model.priors.get(parameter.name)
            kind = InverseChi if parameter.name == "dispersion" else Normal
            if not (prior is None or isinstance(prior, kind)):
                raise ValueError(
                    f"method 'em' needs a prior {kind.__name__} for {parameter.name} of"
                    f" several abilities, not {type(prior).__name__}"
                )

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values."""
        self.check(problem)
        slopes, intercept, dispersion = with_own_correlation(problem, start).items
        dtype, dims = intercept.dtype, slopes.shape[1]
        stacked = jnp.concatenate([intercept[:, None], slopes], axis=1)
        point = NormalPoint(stacked, jnp.log(dispersion), jnp.eye(dims, dtype=dtype))
        return self.first_state(point, problem.data.num_subjects)

    def image(self, problem: Problem, state: AscentState) -> Image:
        """Raises items and correlations: a pass over the data."""
        data, point = problem.data, state.point
        log_lik, moments, second = normal_sweep(data, point)
        log_prior = log_prior_at(problem, _items_of(point), point.correlation)
        total = jnp.sum(weigh_rows(jnp.ones_like(log_lik), data.subject_weight))
        raised, scale, residual = self._raised(problem, point, moments, second, total)
        return Image(raised, log_lik, log_prior, residual, scale)

    def _raised(self, problem, point: NormalPoint, moments: ItemSums, second, total):
        """One EM step, the roots of its curvatures, and the residual."""
        model, old = problem.model, point.stacked
        bend = jnp.exp(-2 * point.log_sd)
        gradient = moments.products - jnp.einsum("jpq,jq->jp", moments.design, old)
        bound = Quadratic(
            gradient * bend[:, None], moments.design * bend[:, None, None]
        )
        factors = FactorPoint(old, point.correlation)
        items = add_normal_prior(bound, old, *prior_moments(model, factors))
        stacked = update_items(items, old, free_of(problem), is_positive(model))
        log_sd = _log_sd(model, moments, stacked)
        correlation = raised_correlation(problem, point.correlation, second, total)
        image = NormalPoint(stacked, log_sd, correlation)
        each = weigh_rows(items.diagonal, problem.data.item_weight)
        scale = NormalPoint(
            jnp.sqrt(each),
            jnp.sqrt(2 * jnp.maximum(moments.total, 1)),
            jnp.broadcast_to(jnp.sqrt(total), correlation.shape),
        )
        return image, scale, self._residual(problem, point, image, scale, items)

    def result(
        self, problem: Problem, state: AscentState
    ) -> tuple[Parameters, Float[Array, " subjects"]]:
        """Items and correlations, in the order of `oriented`."""
        best = state.best
        slopes, population = oriented(problem, best.stacked[:, 1:], best.correlation)
        items = _items_of(best)._replace(discrimination=slopes)
        return Parameters(items, population), state.log_lik


def normal_sweep(
    data: Responses, point: NormalPoint
) -> tuple[Float[Array, " subjects"], ItemSums, Float[Array, "dims dims"]]:
    """Log-likelihoods, sums for the items, and the mean of E[theta theta']."""
    num_subjects, num_items = data.values.shape
    intercept, slopes = point.stacked[:, 0], point.stacked[:, 1:]
    dtype, dims = slopes.dtype, slopes.shape[1]
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    each = weigh_rows(jnp.ones(num_items, dtype), data.item_weight)
    bend = each * jnp.exp(-2 * point.log_sd)
    constant = each * (_LOG_TWO_PI + 2 * point.log_sd)
    prior, log_det = inverse_of(point.correlation)
    products = outer(slopes) * bend[:, None]

    def body(carry, start, is_new):
        log_lik, design, cross, squares, second = carry
        values = take_block(data.values, start, size).astype(dtype)
        exposure = take_block(data.exposure, start, size)
        seen = jnp.ones_like(values) if exposure is None else exposure.astype(dtype)
        rest = seen * (values - intercept)
        precision = (seen @ products).reshape(-1, dims, dims) + prior
        covariance, log_precision = inverse_of(precision)
        pull = (rest * bend) @ slopes
        mean = jnp.einsum("nkl,nl->nk", covariance, pull)
        density = -(seen @ constant + rest**2 @ bend) + jnp.sum(pull * mean, axis=1)
        density = 0.5 * (density - log_det - log_precision)
        weight = block_weight(data, start, is_new, dtype)
        square = covariance + mean[:, :, None] * mean[:, None, :]
        full = jnp.concatenate([jnp.ones_like(mean[:, :1]), mean], axis=1)
        full_square = jnp.concatenate(
            [full[:, None, :], jnp.concatenate([mean[:, :, None], square], 2)], axis=1
        )
        left = full * weight[:, None]
        return (
            put_block(log_lik, density, start),
            design + seen.T @ (full_square.reshape(size, -1) * weight[:, None]),
            cross + (seen * values).T @ left,
            squares + weight @ (seen * values**2),
            second + jnp.tensordot(weight, square, 1),
        )

    zeros = lambda *shape: jnp.zeros(shape, dtype)
    width = dims + 1
    of_items = zeros(num_items, width**2), zeros(num_items, width), zeros(num_items)
    init = zeros(num_subjects), *of_items, zeros(dims, dims)
    results = scan_subject_blocks(body, init, num_subjects, size)
    log_lik, design, cross, squares, second = results
    design = design.reshape(num_items, width, width)
    weight = data.subject_weight
    total = num_subjects if weight is None else jnp.sum(weight.astype(dtype))
    moments = ItemSums(design, cross, squares, design[:, 0, 0])
    return log_lik, moments, second / total


def _log_sd(model: Model, moments: ItemSums, stacked: Array) -> Array:
    """Logarithms of the best residual standard deviations of given (d, a)."""
    along = jnp.einsum("jpq,jq->jp", moments.design, stacked)
    rest = moments.squares + jnp.sum((along - 2 * moments.products) * stacked, axis=1)
    rest, count = jnp.maximum(rest, 0), moments.total
    prior = model.priors.get("dispersion")
    if isinstance(prior, InverseChi):
        rest = rest + prior.degrees * jnp.square(prior.scale)
        count = count + prior.degrees + 1
    tiny = jnp.finfo(rest.dtype).tiny ** 0.25
    return 0.5 * jnp.log(jnp.maximum(rest / jnp.maximum(count, 1), tiny))


def _items_of(point: NormalPoint) -> ScoreItems:
    """Item records of a point."""
    return ScoreItems(point.stacked[:, 1:], point.stacked[:, 0], jnp.exp(point.log_sd))
