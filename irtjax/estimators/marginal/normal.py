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

from irtjax.data.responses import Responses
from irtjax.estimators.joint.bound import Quadratic
from irtjax.estimators.joint.objective import block_weight
from irtjax.estimators.marginal.quadratic_em import (
    AbstractQuadraticEM,
    FactorPoint,
    Sweep,
)
from irtjax.likelihood.problem import Problem, Start
from irtjax.likelihood.products import outer
from irtjax.models.families.continuous import LogitNormalScores
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


class ItemSums(NamedTuple):
    """Sums over subjects of an item: of E[z z'], z_ij (1, mu_i), z_ij^2 and 1."""

    design: Float[Array, "items p p"]
    products: Float[Array, "items p"]
    squares: Float[Array, " items"]
    total: Float[Array, " items"]


class NormalFactors(AbstractQuadraticEM):
    """Marginal maximum likelihood (or MAP) of a factor model of scores, by exact EM.

    What `irtjax.fit(scores, "factor")` uses, by the name "em". Settings are those of
    `AbstractQuadraticEM`.
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

    def first_posterior(self, problem: Problem, start: Start) -> None:
        """Nothing: posteriors are exact."""

    def sweep(self, problem: Problem, point: FactorPoint, posterior: None) -> Sweep:
        """Exact posteriors of a pass over the data, and sums of items."""
        log_lik, sums, second = normal_sweep(problem.data, point)
        assert point.log_sd is not None
        bend = jnp.exp(-2 * point.log_sd)
        along = jnp.einsum("jpq,jq->jp", sums.design, point.stacked)
        items = Quadratic(
            (sums.products - along) * bend[:, None], sums.design * bend[:, None, None]
        )
        return Sweep(log_lik, items, second, sums=sums)

    def residual_sd(
        self, model: Model, sums: ItemSums, stacked: Array
    ) -> tuple[Array, Array]:
        """Best logarithms of residual standard deviations given (d, a)."""
        of_sd = jnp.sqrt(2 * jnp.maximum(sums.total, 1))
        return _log_sd(model, sums, stacked), of_sd


def normal_sweep(
    data: Responses, point: FactorPoint
) -> tuple[Float[Array, " subjects"], ItemSums, Float[Array, "dims dims"]]:
    """Log-likelihoods, sums for the items, and the mean of E[theta theta']."""
    num_subjects, num_items = data.values.shape
    intercept, slopes = point.intercept, point.slopes
    assert point.log_sd is not None
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
