"""Start values of factor models: the leading singular vectors of the responses."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from irtjax.data.responses import AbstractResponses
from irtjax.likelihood.problem import Start
from irtjax.models.model import Model, Population, response_ends
from irtjax.numerics.programs import stored_jit

#: Steps of the subspace iteration, and vectors in addition to those wanted.
NUM_ITERATIONS, OVERSAMPLED = 10, 6
#: Logits per unit of a response, at chances of one half; other links have fewer units.
LOGITS, LOGISTIC_VARIANCE = 4.0, math.pi**2 / 3
#: Largest slope of a start.
LARGEST = 4.0


def category_means(
    model: Model, data: AbstractResponses, mean: Array
) -> tuple[Array, ...]:
    """Means of the statistics of each item, from which intercepts start."""
    count = model.family.num_categories
    if count == 2:
        return (mean,)
    ones = jnp.ones((data.num_subjects, 1), mean.dtype)
    statistics, _, exposure = data.column_products(ones, model.family.statistics)
    return tuple((s[:, 0] + 1 / count) / (exposure[:, 0] + 1) for s in statistics)


def _standardised(model: Model, data: Any, dtype):
    """Scores in units of each item's standard deviation, their means and these.

    Scores are stored as a matrix.
    """
    ones = jnp.ones((data.num_subjects, 1), dtype)
    totals, _, exposure = data.column_products(ones, model.family.statistics)
    total, square = totals
    count = jnp.maximum(exposure[:, 0], 1)
    mean = total[:, 0] / count
    sd = jnp.sqrt(jnp.maximum(square[:, 0] / count - mean**2, 1e-4))
    values = (data.values.astype(dtype) - mean) / sd
    if data.exposure is not None:
        values = jnp.where(data.exposure > 0, values, 0)
    return dataclasses.replace(data, values=values), mean, sd


def _low_and_size(model: Model) -> tuple[int, int]:
    """The lowest response, and the distance of the highest one from it."""
    ends = response_ends(model)
    return ends["low"], ends["top"] - ends["low"]


@stored_jit
def leading_factors(
    model: Model, data: AbstractResponses, dims: int, dtype
) -> tuple[Array, Array, Array]:
    """Scores `[subjects, dims]`, slopes `[items, dims]` and proportions right.

    Subspace iteration on the responses less the items' means, block by block: with
    N the subjects and U S V' the leading part, scores are sqrt(N) U and slopes
    4 V S / sqrt(N), the factor of linear responses on the logit scale. Responses are
    from 0 to 1.
    """
    ones, (low, size) = jnp.ones((data.num_subjects, 1), dtype), _low_and_size(model)
    _, values, exposure = data.column_products(ones)
    mean = ((values - low * exposure) / size + 0.5) / (exposure + 1)

    def right(left):
        _, values, exposure = data.column_products(left)
        return (values - low * exposure) / size - mean * exposure

    def iterate(_, vectors):
        left = data.row_products(vectors / size, -(mean + low / size) * vectors)
        return jnp.linalg.qr(right(jnp.linalg.qr(left)[0]))[0]

    width = min(dims + OVERSAMPLED, data.num_items, data.num_subjects)
    first = jax.random.normal(jax.random.key(0), (data.num_items, width), dtype)
    vectors = lax.fori_loop(0, NUM_ITERATIONS, iterate, jnp.linalg.qr(first)[0])
    product = data.row_products(vectors / size, -(mean + low / size) * vectors)
    left, singular, turned = jnp.linalg.svd(product, full_matrices=False)
    root = jnp.asarray(data.num_subjects, dtype) ** 0.5
    # Of responses that are missing at random a share of each product is missing.
    size = data.num_subjects * data.num_items
    share = jnp.maximum(jnp.sum(exposure) / size, 1e-6)
    unit = 1.0  # Scores are standardised.
    if model.family.num_categories:
        unit = LOGITS * (model.family.link_variance / LOGISTIC_VARIANCE) ** 0.5
    slopes = unit * (vectors @ turned.T)[:, :dims] * singular[:dims] / root / share
    return left[:, :dims] * root, jnp.clip(slopes, -LARGEST, LARGEST), mean[:, 0]


def factor_start(
    model: Model,
    data: AbstractResponses,
    *,
    mask: np.ndarray | None = None,
    dtype=None,
) -> Start:
    """Start values for models with several abilities.

    Args:
        model: A model with `dims`.
        data: Responses, all cells or the observed ones alone.
        mask: `[items, dims]` slopes to estimate, others being 0; None for all.
        dtype: Floating type; that of default JAX arrays when None.

    >>> from irtjax.data.responses import Responses
    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> data = Responses(jnp.asarray(np.eye(6, 9), jnp.int8))
    >>> start = factor_start(factor_model(Factor(2)), data)
    >>> start.items.discrimination.shape, start.theta.shape
    ((9, 2), (6, 2))
    """
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    family = model.family
    dims = family.dims
    centre, spread = None, None
    if not family.num_categories:
        data, centre, spread = _standardised(model, data, dtype)
    scores, slopes, mean = leading_factors(model, data, dims, dtype)
    positive = family.parameters[0].bijection.kind == "positive"
    if mask is not None or positive:
        wanted = np.ones((data.num_items, dims), bool) if mask is None else mask
        if mask is None:
            from irtjax.numerics.rotation import rotate

            # Varimax comes nearest to one factor for each item.
            slopes = rotate(slopes, "varimax", num_starts=1).loadings
            slopes = jnp.asarray(slopes, dtype)
        else:
            slopes = jnp.full((data.num_items, dims), 0.5, dtype)
        slopes = jnp.where(wanted, jnp.maximum(slopes, 0.1), 0.0)
        share = slopes / jnp.maximum(jnp.sum(slopes, axis=0), 1e-6)
        low, size = _low_and_size(model)
        shift = mean[:, None] + low / size
        scores = data.row_products(share / size, -shift * share)
        deviation = scores - jnp.mean(scores, axis=0)
        sd = jnp.sqrt(jnp.mean(deviation**2, axis=0))
        scores = deviation / jnp.maximum(sd, 1e-6)
    size = jnp.sqrt(jnp.sum(slopes**2, axis=1))
    if spread is None:
        items = family.start(category_means(model, data, mean), size)
    else:
        # At least a fifth of the variance is residual at the start.
        slopes = slopes * jnp.minimum(1, 0.9 / jnp.maximum(size, 1e-6))[:, None]
        rest = jnp.sqrt(1 - jnp.sum(slopes**2, axis=1))
        items = family.Items(slopes, centre, spread * rest)
        slopes = slopes * spread[:, None]
    items = items._replace(discrimination=slopes)
    population = Population(jnp.zeros(dims, dtype), jnp.ones(dims, dtype))
    return Start(items, scores, population)
