"""The normal posterior of several abilities given the responses of a test."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax.adaptive.normal_errors import shared_covariance
from irtjax.inference.moments import normal_moments
from irtjax.likelihood.product_errors import flat_log_probs, shrinkage, shrunken
from irtjax.likelihood.products import Cells, cells, mean_cells
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_cholesky, positive_definite_solve

#: More Newton steps than a mode needs from the one before the last response.
MOST_NEWTON = 30


class FactorPosterior(NamedTuple):
    """A normal posterior of several abilities.

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


class LogPosterior(NamedTuple):
    """The log posterior of one subject, items as known.

    Attributes:
        model: A model with `dims` abilities.
        records: Item records of the responses, `[cells]`.
        values: `[cells]` responses.
        seen: `[cells]` whether there is one.
        prior: Mean and precision of the population.
        change: See `irtjax.likelihood.products.cells`.
    """

    model: Model
    records: Items
    values: Array
    seen: Bool[Array, " cells"]
    prior: tuple[Array, Array]
    change: Any = None

    def cells(self, theta: Array) -> Cells:
        """Log-probabilities of the responses and their derivatives, `[1, cells]`."""
        values, seen = self.values[None], self.seen[None]
        return cells(self.model, self.records, theta[None], values, seen, self.change)

    def derivatives(
        self, theta: Array, covariance: Array | None = None
    ) -> tuple[Array, Array]:
        """Gradient and minus Hessian, or their means over N(theta, covariance).

        Of families that are not concave the upward part of the Hessian is left out.
        """
        slopes, (center, precision) = self.records.discrimination, self.prior
        if covariance is None:
            slope, curvature = self.cells(theta)[1:3]
        else:
            variance = jnp.sum((slopes @ covariance) * slopes, axis=1)[None]
            values, seen = self.values[None], self.seen[None]
            slope, curvature = mean_cells(
                *(self.model, self.records, theta[None], variance, values, seen),
                self.change,
            )
        weight = jnp.maximum(curvature[0], 0)
        gradient = slope[0] @ slopes - precision @ (theta - center)
        return gradient, precision + slopes.T @ (weight[:, None] * slopes)

    def moments(
        self, mode: Array, covariance: Array, precision: Array | None = None
    ) -> tuple[Array, Array]:
        """Posterior mean `[dims]` and covariance by `irtjax.inference.moments`.

        Args:
            mode: `[dims]`.
            covariance: Of the normal approximation at the mode.
            precision: Its inverse, of curves that differ from those of the records;
                the difference at the mode is then added everywhere. None: the same.
        """
        slope = correction = jnp.zeros_like(covariance)
        if precision is not None:
            slope, bend = self.derivatives(mode)
            correction = precision - bend

        def derivatives(mean, spread):
            gradient, bend = self.derivatives(mean[0], spread[0])
            if precision is not None:
                gradient = gradient - slope - correction @ (mean[0] - mode)
            return gradient[None], (bend + correction)[None]

        moments = normal_moments(derivatives, mode[None], covariance[None])
        mean, spread = (x[0] for x in moments)
        if precision is None:
            return mean, spread
        # The curves are not quite concave.
        proper = jnp.all(jnp.isfinite(inverse_cholesky(spread)))
        proper = proper & jnp.all(jnp.isfinite(mean))
        return jnp.where(proper, mean, mode), jnp.where(proper, spread, covariance)


def known_posterior(
    density: LogPosterior,
    start: Array,
    blocks: Float[Array, "cells p p"] | None = None,
    same: Bool[Array, "cells cells"] | None = None,
) -> FactorPosterior:
    """The normal posterior of a density, found by Newton's method.

    Args:
        density: The log posterior.
        start: `[dims]` abilities to begin at.
        blocks: Covariances of the items, which responses to one item share; None where
            they are exact.
        same: Whether two responses are of one item.
    """
    slopes = density.records.discrimination
    mode = find_mode(slopes, density.derivatives, start)
    precision = density.derivatives(mode)[1]
    root = inverse_cholesky(precision)
    covariance = root.T @ root
    mean, spread = density.moments(mode, covariance)
    if blocks is not None and same is not None:
        terms = density.cells(mode)
        item_errors = shared_covariance(slopes, blocks, terms, mode, covariance, same)
        covariance, spread = covariance + item_errors, spread + item_errors
        root = inverse_cholesky(covariance)
        precision = root.T @ root
    return FactorPosterior(mode, precision, covariance, mean, spread, mean)


def flat_posterior(
    density: LogPosterior, start: Array, blocks: Float[Array, "cells p p"]
) -> FactorPosterior:
    """The normal posterior of a density, errors of items integrated out.

    Args:
        density: The log posterior with the items as known.
        start: `[dims]` abilities to begin at.
        blocks: Covariances of the items, as in `SlopeErrors`.
    """
    model, records, values, seen, (center, precision), _ = density
    slopes = records.discrimination

    def log_density(theta):
        logs = flat_log_probs(model, records, blocks, theta, values)
        gap = theta - center
        return jnp.sum(jnp.where(seen, logs, 0)) - gap @ precision @ gap / 2

    slope_at, bend_at = jax.grad(log_density), jax.hessian(log_density)
    mode = find_mode(slopes, lambda x: (slope_at(x), -bend_at(x)), start)
    bend = -bend_at(mode)
    root = inverse_cholesky(bend)
    # The curves are not quite concave; where that shows the prior is what is known.
    proper = jnp.all(jnp.isfinite(root))
    bend = jnp.where(proper, bend, precision)
    root = jnp.where(proper, root, inverse_cholesky(precision))
    covariance = root.T @ root
    # Around the mode the curves are those of items as flat as they are there.
    wide = jnp.append(mode, jnp.ones_like(mode[:1]))
    factor = shrinkage(model, jnp.einsum("k,jkl,l->j", wide, blocks, wide))
    flat = records._replace(discrimination=jnp.ones_like(factor))
    flat = shrunken(flat, factor)._replace(discrimination=factor[:, None] * slopes)
    mean, spread = density._replace(records=flat).moments(mode, covariance, bend)
    return FactorPosterior(mode, bend, covariance, mean, spread, mean)


def find_mode(slopes: Array, derivatives: Any, start: Array) -> Array:
    """The mode `[dims]` of the abilities of one subject, by Newton's method.

    `derivatives` at abilities are the gradient of their log density, and minus the
    Hessian or a positive definite matrix in its place.
    """

    def newton(search):
        theta, _, count = search
        slope, curvature = derivatives(theta)
        step, _ = positive_definite_solve(curvature, slope)
        # The logistic's third derivative is at most r times its second one along
        # the step, so that a share log(1 + r) / r of it always ascends, and all of
        # it where (e^r - r - 1) / r^2 < 1, r < 1.79 (generalised self-concordance:
        # Sun and Tran-Dinh 2019). The latter converges in fewer steps.
        r = jnp.max(jnp.abs(slopes @ step))
        share = jnp.where(r > 1, jnp.log1p(r) / jnp.maximum(r, 1), 1)
        return theta + share * step, jnp.max(jnp.abs(step)), count + 1

    # The error after a step is of the order of its square.
    tolerance = jnp.finfo(slopes.dtype).eps ** (1 / 3)
    going = lambda search: (search[1] > tolerance) & (search[2] < MOST_NEWTON)
    init = start, jnp.full_like(start[0], jnp.inf), 0
    return lax.while_loop(going, newton, init)[0]
