r"""Group lasso of discriminations: items whose slopes on all abilities are 0.

The objective has -sum_j lambda_j |a_j|_C, where |a|_C^2 = a'C a with C the covariance
of abilities in the sample: |a_j|_C is the standard deviation of a_j'theta_i over
subjects. It does not depend on the scale and the rotation of abilities. With one
ability it is sd(theta) |a_j|.

The slopes of an item are 0 where its score g = sum_i theta_i (y_ij - p_ij), abilities
centred, has g'C^-1 g <= lambda_j^2. If the item does not discriminate, g has the
covariance n p_j (1 - p_j) C with responses of all n subjects, so g'C^-1 g is
n p_j (1 - p_j) times a chi-squared variable with K degrees of freedom.

Given the quadratic bound of an item, -(1/2) a'H a + c'a - lambda |a|_C has its maximum
at 0 if c'C^-1 c <= lambda^2. Else that is a = t v(t), v(t) = (t H + lambda C)^-1 c, at
the length t for which f(t) = 1 / |v(t)|_C is 1. f is an increasing power mean of
functions that are linear in t, hence concave: Newton's steps from the length without
penalty go below the root once and then rise to it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax._types import Scalar
from irtjax.estimators.joint.objective import weighted_moments
from irtjax.numerics.kernels import positive_definite_solve, weigh_rows

#: Most Newton steps for a length, and the relative step, in roots of the rounding
#: error, after which the next one would be below that error.
MOST_NEWTON, CLOSE = 50, 0.03


class GroupLasso(NamedTuple):
    """The penalty for given abilities.

    Attributes:
        pull: lambda of each item.
        mean: Mean of the abilities.
        covariance: C; an ability without variation has variance 1.
        total: Sum of the subject weights.
    """

    pull: Float[Array, " items"]
    mean: Float[Array, " dims"]
    covariance: Float[Array, "dims dims"]
    total: Scalar

    @classmethod
    def of(
        cls, pull: Array, theta: Float[Array, "subjects dims"], weight: Array | None
    ) -> GroupLasso:
        """With the moments of abilities, by subject weights if there are any."""
        mean, sd = weighted_moments(theta, weight)
        rest = theta - mean
        one = jnp.ones_like(theta[:, 0])
        total = jnp.sum(weigh_rows(one, weight))
        covariance = weigh_rows(rest, weight).T @ rest / total
        covariance = jnp.where(jnp.eye(len(mean)) > 0, jnp.diag(sd**2), covariance)
        return cls(pull, mean, covariance, total)

    def lengths(self, slopes: Float[Array, "items dims"]) -> Float[Array, " items"]:
        """|a_j|_C of each item."""
        return jnp.sqrt(jnp.maximum(jnp.sum(slopes @ self.covariance * slopes, 1), 0))

    def gradient(
        self,
        gradient: Float[Array, "items dims"],
        slopes: Float[Array, "items dims"],
        free: Bool[Array, "items dims"],
    ) -> Float[Array, "items dims"]:
        """The gradient with the penalty; at 0 its shortest subgradient."""
        slopes, gradient = jnp.where(free, slopes, 0), jnp.where(free, gradient, 0)
        length = self.lengths(slopes)[:, None]
        pulled = self.pull[:, None] * (slopes @ self.covariance)
        away = gradient - pulled / jnp.where(length > 0, length, 1)
        solved, _ = positive_definite_solve(_within(self.covariance, free), gradient)
        size = jnp.sqrt(jnp.maximum(jnp.sum(gradient * solved, axis=1), 0))
        share = 1 - self.pull / jnp.where(size > 0, size, 1)
        at_zero = gradient * jnp.where(size > self.pull, share, 0)[:, None]
        return jnp.where(free, jnp.where(length > 0, away, at_zero), 0)

    def ability_precision(
        self, slopes: Float[Array, "items dims"], item_weight: Array | None
    ) -> Float[Array, "dims dims"]:
        """P of the bound -(theta_i - mean)'P(theta_i - mean) / 2 of each subject.

        A length is concave in its square, and the variance is at most the mean square
        distance from any point.
        """
        length = self.lengths(slopes)
        share = jnp.where(length > 0, self.pull / jnp.where(length > 0, length, 1), 0)
        weighted = weigh_rows(share[:, None] * slopes, item_weight)
        return weighted.T @ slopes / self.total

    def maximum(
        self,
        curvature: Float[Array, "items dims dims"],
        target: Float[Array, "items dims"],
        free: Bool[Array, "items dims"],
    ) -> Float[Array, "items dims"]:
        """Argmax -(1/2) a'H a + c'a - lambda |a|_C over free slopes of each item.

        Args:
            curvature: H, that of the unit matrix where a coordinate is not free.
            target: c.
            free: What is estimated; other slopes are 0 in the result.
        """
        target, pull = jnp.where(free, target, 0), self.pull[:, None]
        metric = _within(self.covariance, free)
        inverse, _ = positive_definite_solve(metric, target)
        beyond = jnp.sum(target * inverse, axis=1) > self.pull**2
        apply = lambda matrix, x: jnp.einsum("jkl,jl->jk", matrix, x)
        size = lambda x: jnp.sum(x * apply(metric, x), axis=1)
        alone, _ = positive_definite_solve(curvature, target)
        close = CLOSE * jnp.finfo(target.dtype).eps ** 0.5

        def at(length):
            """Matrix t H + lambda C, v and f; C where slopes are 0."""
            matrix = length[:, None, None] * curvature + pull[..., None] * metric
            matrix = jnp.where(beyond[:, None, None], matrix, metric)
            v, _ = positive_definite_solve(matrix, target)
            square = jnp.where(beyond, size(v), 1)
            return matrix, v, square**-0.5

        def unfinished(state):
            _, gap, count = state
            return (jnp.max(gap, initial=0.0) > close) & (count < MOST_NEWTON)

        def newton(state):
            length, _, count = state
            matrix, v, value = at(length)
            back, _ = positive_definite_solve(matrix, apply(metric, v))
            slope = value**3 * jnp.sum(back * apply(curvature, v), axis=1)
            step = jnp.where(beyond, (1 - value) / jnp.where(beyond, slope, 1), 0)
            new = jnp.maximum(length + step, 0)
            moved = jnp.where(new > 0, jnp.abs(step) / jnp.where(new > 0, new, 1), 1)
            return new, jnp.where(beyond, moved, 0), count + 1

        first = jnp.sqrt(jnp.maximum(size(alone), 0))
        state = first, jnp.full_like(first, jnp.inf), jnp.zeros((), jnp.int32)
        length, _, _ = lax.while_loop(unfinished, newton, state)
        _, v, _ = at(length)
        return jnp.where(beyond[:, None] & free, length[:, None] * v, 0)


def _within(matrix: Array, free: Array) -> Float[Array, "items dims dims"]:
    """The matrix on the free coordinates of each item, the unit matrix elsewhere."""
    pairs = free[:, :, None] & free[:, None, :]
    return jnp.where(pairs, matrix, jnp.eye(len(matrix), dtype=matrix.dtype))
