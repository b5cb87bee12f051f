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

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax.likelihood.product_errors import shrinkage
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_cholesky


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
