"""The normal posterior of several abilities given the responses of a test.

With items as known; `factor_errors.flat_posterior` has that of items with errors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.adaptive.factor_errors import find_mode, moments, shared_covariance
from irtjax.adaptive.repeats import Repeats, before_each, next_log_prob
from irtjax.adaptive.state import State
from irtjax.likelihood.products import cells
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_cholesky


class FactorPosterior(NamedTuple):
    """What is known of several abilities.

    Attributes:
        mode: `[dims]` posterior mode.
        precision: `[dims, dims]` P, minus the Hessian of the log posterior there.
        covariance: `[dims, dims]` its inverse C.
        mean: `[dims]` posterior mean (`irtjax.inference.moments`).
        spread: `[dims, dims]` posterior covariance, of the same source.
        gradient: `[dims]` g, of the reported ability.
    """

    mode: Float[Array, "*tests dims"]
    precision: Float[Array, "*tests dims dims"]
    covariance: Float[Array, "*tests dims dims"]
    mean: Float[Array, "*tests dims"]
    spread: Float[Array, "*tests dims dims"]
    gradient: Float[Array, "*tests dims"]


def known_posterior(
    model: Model,
    records: Items,
    after: State,
    prior: tuple[Array, Array],
    start: Array,
    blocks: Float[Array, "cells p p"] | None = None,
) -> FactorPosterior:
    """The posterior given all responses of a test, found by Newton's method.

    Args:
        model: A model with `dims` abilities.
        records: Item records of the responses.
        after: The state of the test, with these responses.
        prior: Mean and precision of the population.
        start: `[dims]` abilities to begin at.
        blocks: Covariances of the items, which responses to one item share; None where
            they are exact.
    """
    (center, precision), change, memory = prior, None, after.memory
    slopes, seen = records.discrimination, after.given[None]
    values = after.observations[None].astype(slopes.dtype)
    if isinstance(memory, Repeats):
        equal, times = before_each(after.items, after.observations, after.given)
        change = lambda first: jnp.where(
            seen, next_log_prob(first, equal, times, memory.odds), 0
        )
    at = lambda theta: cells(model, records, theta[None], values, seen, change)

    def curvature_of(terms):
        # Of families that are not concave the upward part is left out.
        weight = jnp.maximum(terms.curvature[0], 0)
        return precision + slopes.T @ (weight[:, None] * slopes)

    def derivatives(theta):
        terms = at(theta)
        slope = terms.slope[0] @ slopes - precision @ (theta - center)
        return slope, curvature_of(terms)

    mode = find_mode(slopes, derivatives, start)
    terms = at(mode)
    curved = curvature_of(terms)
    root = inverse_cholesky(curved)
    covariance = root.T @ root
    responses = model, records, values, seen, change
    mean, spread = moments(responses, (center, precision), mode, covariance)
    if blocks is not None:
        same = (after.items[:, None] == after.items) & after.given & seen.T
        item_errors = shared_covariance(slopes, blocks, terms, mode, covariance, same)
        covariance, spread = covariance + item_errors, spread + item_errors
        root = inverse_cholesky(covariance)
        curved = root.T @ root
    return FactorPosterior(mode, curved, covariance, mean, spread, mean)
