r"""What errors of the items add to tests of several abilities.

**Items.** Responses are those of curves with the errors of the items integrated out
(`irtjax.likelihood.product_errors`), so the posterior, its mode and its covariance C
count them. The expected score on J items also depends on the items that were not
given. With g its gradient, u = C g, m'_j the slopes of the expected responses and w_j
the information of the responses given,

    Var = g'C g + sum_j (m'_j / J)^2 v_j - 2 sum_given (m'_j / J) w_j (u'a_j) v_j.

Where all items are given the responses determine the score, and the last two terms
take away what C has too much. Responses to one item share its error: with repeats the
items are at their estimates, and C is that of the modes as these move with the items,

    C + sum_j G_j C_j G_j',    G_j = C (r_j E - w_j a_j z'),    E = (I, 0),

r_j and w_j the first and minus the second derivative of the log-likelihood of all
responses to item j in a_j'theta.

**Axes.** The sample of N subjects defines where abilities have mean 0 and variance 1.
At abilities x from the mean of the population, of covariance Phi, this is an error of

    V = Phi / N + (x'Phi^-1 x Phi + x x') / (4 N),

of axes that are fixed Phi / N + x_k x_l r_kl^2 / (2 N), r the correlations. All
subjects share it, and expected scores do not depend on it. As in
`irtjax.inference.scale_error`, responses are about abilities with this error, and modes
at x with covariance C under the population are off by

    C + R D + R x x' R',    R = D Phi^-1 (V^-1 + Phi^-1 D Phi^-1)^-1 Phi^-1,

D = Phi - C: never below C, and C where the responses say nothing, D = 0.

The error of a rotation is left out: abilities are those on the rotated axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax.inference.moments import normal_moments
from irtjax.likelihood.product_errors import flat_log_probs, shrinkage, shrunken
from irtjax.likelihood.products import mean_cells
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_cholesky, positive_definite_solve

#: More Newton steps than a mode needs from the one before the last response.
MOST_NEWTON = 30


class SlopeErrors(NamedTuple):
    """Covariances of the slopes and the shift of the predictor of each item.

    Attributes:
        blocks: `[items, p, p]`, p one more than the abilities.
        packed: `[p (p + 1) / 2, items]` their entries, for sums over products of z.
    """

    blocks: Float[Array, "items p p"]
    packed: Float[Array, "pairs items"]

    @classmethod
    def of(cls, blocks: Array) -> SlopeErrors:
        """Of covariances."""
        low, high = np.triu_indices(blocks.shape[1])
        double = jnp.asarray(np.where(low == high, 1.0, 2.0), blocks.dtype)
        return cls(blocks, (blocks[:, low, high] * double).T)

    def variance(self, theta: Array, spread: Array | None = None) -> Array:
        """`[items]` variance of the predictors at abilities, or over N(theta, spread).

        The latter is that by the errors of items alone.
        """
        wide = jnp.append(theta, jnp.ones_like(theta[:1]))
        square = wide[:, None] * wide
        if spread is not None:
            square = square + jnp.pad(spread, ((0, 1), (0, 1)))
        return square[np.triu_indices(len(wide))] @ self.packed

    def shrinkage(self, model: Model, theta: Array) -> Float[Array, " items"]:
        """K of each item at abilities."""
        return shrinkage(model, self.variance(theta))


class NormalPosterior(NamedTuple):
    """A normal posterior: see `irtjax.adaptive.factor_posterior.FactorPosterior`."""

    mode: Array
    precision: Array
    covariance: Array
    mean: Array
    spread: Array


def flat_posterior(
    model: Model,
    records: Any,
    blocks: Float[Array, "cells p p"],
    values: Array,
    seen: Bool[Array, " cells"],
    prior: tuple[Array, Array],
    start: Array,
) -> NormalPosterior:
    """The normal posterior of one subject, errors of items integrated out.

    Args:
        model: A model with `dims` abilities and categories.
        records: Item records of the responses.
        blocks: Covariances of the items, as in `SlopeErrors`.
        values: Responses.
        seen: Whether there is one.
        prior: Mean and precision of the population.
        start: `[dims]` abilities to begin at.
    """
    center, precision = prior
    slopes = records.discrimination

    def log_density(theta):
        logs = flat_log_probs(model, records, blocks, theta, values)
        gap = theta - center
        return jnp.sum(jnp.where(seen, logs, 0)) - gap @ precision @ gap / 2

    slope_at, bend_at = jax.grad(log_density), jax.hessian(log_density)

    derivatives = lambda theta: (slope_at(theta), -bend_at(theta))
    mode = find_mode(slopes, derivatives, start)
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
    responses = model, flat, values[None], seen[None], None
    mean, spread = moments(responses, prior, mode, covariance, bend)
    return NormalPosterior(mode, bend, covariance, mean, spread)


def moments(
    responses: tuple[Model, Any, Array, Array, Any],
    prior: tuple[Array, Array],
    mode: Array,
    covariance: Array,
    precision: Array | None = None,
) -> tuple[Array, Array]:
    """Posterior mean `[dims]` and covariance by `irtjax.inference.moments`.

    Args:
        responses: Model, item records, values `[1, cells]`, whether there is one, and
            the change of log-probabilities (`irtjax.likelihood.products.cells`).
        prior: Mean and precision of the population.
        mode: `[dims]`.
        covariance: Of the normal approximation at the mode.
        precision: Its inverse, of curves that differ from those of the item records;
            the difference at the mode is then added everywhere. None: they are these.
    """
    model, records, values, seen, change = responses
    center, inverse = prior
    slopes = records.discrimination

    def derivatives(mean, spread):
        variance = jnp.sum((slopes @ spread[0]) * slopes, axis=1)[None]
        slope, curvature = mean_cells(
            model, records, mean, variance, values, seen, change
        )
        weight = jnp.maximum(curvature[0], 0)
        bend = inverse + slopes.T @ (weight[:, None] * slopes)
        return slope @ slopes - (mean - center) @ inverse, bend[None]

    at_mode, square = mode[None], covariance[None]
    if precision is None:
        mean, spread = normal_moments(derivatives, at_mode, square)
        return mean[0], spread[0]
    slope, bend = derivatives(at_mode, jnp.zeros_like(square))
    correction = precision - bend

    def moved(mean, spread):
        gradient, curvature = derivatives(mean, spread)
        return gradient - slope - (mean - at_mode) @ correction[
            0
        ], curvature + correction

    mean, spread = (x[0] for x in normal_moments(moved, at_mode, square))
    root = inverse_cholesky(spread)
    # As the curves are not quite concave.
    proper = jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(mean))
    choose = lambda x, y: jnp.where(proper, x, y)
    return choose(mean, mode), choose(spread, covariance)


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


def shared_covariance(
    slopes: Float[Array, "cells dims"],
    blocks: Float[Array, "cells p p"],
    cells: Any,
    theta: Array,
    covariance: Array,
    same: Bool[Array, "cells cells"],
) -> Float[Array, "dims dims"]:
    """What errors of items add to C where responses to an item share its error.

    Args:
        slopes: a of each response.
        blocks: Covariances of its item.
        cells: `irtjax.likelihood.products.Cells`, 0 where there is no response.
        theta: The mode.
        covariance: C.
        same: Whether two responses are of one item.
    """
    wide = jnp.append(theta, jnp.ones_like(theta[:1]))
    unit = jnp.eye(len(theta), len(wide), dtype=theta.dtype)
    bend = (cells.curvature[0][:, None] * slopes)[:, :, None] * wide
    each = jnp.einsum(
        "kl,jlp->jkp", covariance, cells.slope[0][:, None, None] * unit - bend
    )
    item = jnp.einsum("ij,jkp->ikp", same.astype(theta.dtype), each)
    number = jnp.maximum(jnp.sum(same, axis=1), 1).astype(theta.dtype)
    return jnp.einsum("jkp,jpq,jlq->kl", item / number[:, None, None], blocks, item)


def axes_variance(
    gap: Array, spread: Array, precision: Array, sample: Array, fixed: bool
) -> Array:
    """V, the error of the axes at abilities `gap` from the mean of the population.

    Args:
        gap: `[dims]` x.
        spread: Phi.
        precision: Its inverse.
        sample: 1 / N.
        fixed: Whether the axes are those of a confirmatory model.

    >>> one = jnp.eye(1)
    >>> float(axes_variance(jnp.array([2.0]), one, one, jnp.array(0.01), False)[0, 0])
    0.03
    """
    if fixed:
        sd = jnp.sqrt(jnp.diagonal(spread))
        correlation = spread / (sd[:, None] * sd)
        moved = gap[:, None] * gap * correlation**2 / 2
    else:
        moved = ((gap @ precision @ gap) * spread + gap[:, None] * gap) / 4
    return sample * (spread + moved)


def with_axes_error(
    covariance: Array, gap: Array, spread: Array, precision: Array, error: Array
) -> Float[Array, "dims dims"]:
    """C of abilities with the error V of their axes, given the population.

    Args:
        covariance: `[dims, dims]` C.
        gap: `[dims]` x, the abilities from the mean of the population.
        spread: `[dims, dims]` Phi.
        precision: Its inverse.
        error: `[dims, dims]` V.

    >>> one = jnp.eye(1)
    >>> gap, error = jnp.array([0.0]), 0.1 * one
    >>> float(with_axes_error(0.2 * one, gap, one, one, error)[0, 0].round(4))
    0.2593
    """
    reduction = (spread - covariance) @ precision
    root = inverse_cholesky(error)
    factor = inverse_cholesky(root.T @ root + precision @ reduction)
    moved = reduction @ factor.T
    shift = moved @ (factor @ (precision @ gap))
    widened = covariance + moved @ moved.T + shift[:, None] * shift
    # Errors of items may make C much larger than Phi: without the population then.
    return jnp.where(jnp.all(jnp.isfinite(factor)), widened, covariance + error)
