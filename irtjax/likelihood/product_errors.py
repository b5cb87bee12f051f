r"""Items of several abilities whose parameters have errors: curves without these.

The linear predictor of item j, eta_j = a_j'theta + d_j, has the variance

    v_j(theta) = z'C_j z,    z = (theta, 1),

C_j the covariance of (a_j, d_j). The mean of a logistic curve over a normal predictor
is nearly the curve of a smaller one,

    E sigmoid(eta_j) = sigmoid(k_j eta_j),    k_j = 1 / sqrt(1 + v_j / s^2),

with s^2 = 8 / pi (MacKay 1992); it is exact for the normal ogive, s^2 = 1. So responses
to items with errors are those to items whose slopes and intercepts are k_j times as
large. Of ordered responses s^2 serves every intercept, and an error of the
intercepts counts as that of a shift which moves the expected response as much.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.likelihood.products import by_product
from irtjax.models.model import Model


def shift_shares(
    model: Model, items: Any, center: Array
) -> Float[np.ndarray, "items intercepts"]:
    """What an error of each intercept counts as a shift of the predictor. On the host.

    Of one intercept 1; of several, shares of the change of the expected response, which
    sum to 1.

    Args:
        model: A model with `dims` abilities.
        items: Item records, discriminations `[items, dims]`.
        center: `[dims]` abilities at which intercepts move the expected response.
    """
    family, records = by_product(model, items)
    rows = jax.vmap(family.unconstrain)(records)
    if rows.shape[1] == 1:
        return np.ones(rows.shape)
    expected = lambda row, t: family.expected_response(family.constrain(row), t)
    product = items.discrimination @ jnp.asarray(center, rows.dtype)
    moves = np.asarray(jax.vmap(jax.grad(expected))(rows, product), float)
    return moves / np.maximum(moves.sum(axis=1, keepdims=True), 1e-30)


def of_predictor(
    model: Model, items: Any, covariance: Any, center: Array
) -> Float[np.ndarray, "items p p"]:
    """Covariances of the slopes and of a shift of the predictor. On the host.

    Args:
        model: A model with `dims` abilities.
        items: Item records, discriminations `[items, dims]`.
        covariance: `[items, columns, columns]` of (a_j, x_j), x_j the intercepts; or of
            the slopes and the shift already.
        center: See `shift_shares`.

    Returns:
        `[items, dims + 1, dims + 1]`.

    Raises:
        ValueError: If the covariance has another shape, or is not finite.
    """
    size, dims = items.discrimination.shape
    shares = shift_shares(model, items, center)
    blocks, columns = np.asarray(covariance, float), dims + shares.shape[1]
    shapes = [(size, n, n) for n in (columns, dims + 1)]
    if blocks.shape not in shapes:
        raise ValueError(
            f"the covariance of items has shape {blocks.shape}: give"
            f" {shapes[0]} for a {model.name} model"
        )
    if not np.isfinite(blocks).all():
        raise ValueError("the covariance of items has values that are not finite")
    if blocks.shape[1] == dims + 1:
        return blocks
    turn = np.zeros((size, dims + 1, columns))
    turn[:, :dims, :dims] = np.eye(dims)
    turn[:, dims, dims:] = shares
    return turn @ blocks @ np.swapaxes(turn, 1, 2)


def shrinkage(model: Model, variance: Array) -> Array:
    """K of predictors with a variance.

    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> model = factor_model(Factor(factors=2, link="probit"))
    >>> float(shrinkage(model, jnp.array(3.0)))
    0.5
    """
    return lax.rsqrt(1 + variance / model.family.of_products().flat_variance)


def shrunken(records: Any, factor: Array) -> Any:
    """Records of products with slopes and intercepts `factor` times as large."""
    intercept = records.intercept
    wide = factor.reshape(factor.shape + (1,) * (intercept.ndim - factor.ndim))
    slopes = records.discrimination * factor
    return records._replace(discrimination=slopes, intercept=intercept * wide)


def flat_log_probs(
    model: Model, items: Any, covariance: Array, theta: Array, values: Array
) -> Float[Array, " cells"]:
    """Log-probabilities of responses of one subject, errors of items integrated out.

    Args:
        model: A model with `dims` abilities and categories.
        items: Item records, `[cells]`.
        covariance: `[cells, dims + 1, dims + 1]`.
        theta: `[dims]`.
        values: `[cells]` responses.
    """
    family, records = by_product(model, items)
    wide = jnp.append(theta, jnp.ones_like(theta[:1]))
    variance = jnp.einsum("k,jkl,l->j", wide, covariance, wide)
    records = shrunken(records, shrinkage(model, variance))
    base, *rest = jax.vmap(family.natural)(records, items.discrimination @ theta)
    pairs = zip(family.statistics(values), rest, strict=True)
    return base + sum(statistic * each for statistic, each in pairs)
