r"""Scores that are shares of right responses: a 2PL for any mean in [0, 1].

The mean of a score is that of a 2PL, :math:`\mu = \sigma(a\theta + d)`; of its
distribution only the variance :math:`\phi \mu (1 - \mu)` is assumed. A score y then has
the quasi-likelihood (Wedderburn 1974; Papke and Wooldridge 1996 for fractions)

.. math:: w \{ y \log \mu + (1 - y) \log(1 - \mu) \}, \qquad w = 1 / \phi,

which is that of w independent responses of which a share y is right. Scores at the ends
are as good as any others, and nothing has to be moved.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.models.predictor import predictor, slope_parameters, start_slope
from irtjax.numerics.bijections import Parameter
from irtjax.numerics.kernels import softplus


class ShareItems(NamedTuple):
    """Item parameters of shares, those of a 2PL."""

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]


class ShareScores(AbstractScoreFamily):
    """Shares of right responses: mean sigmoid(a theta + d), quasi-likelihood of a 2PL.

    Stored are w y and, as trials, w (`irtjax.data.scores.to_shares`). Information is
    that of one right or wrong response, for a score w times as much.

    Attributes:
        slopes: "free" (any sign), "positive", or "unit" (not estimated per item).

    >>> item = ShareItems(jnp.asarray(2.0), jnp.asarray(0.0))
    >>> float(ShareScores().information(item, jnp.array(0.0)))
    1.0
    """

    Items: ClassVar[type] = ShareItems
    slopes: str = eqx.field(static=True, default="free")

    def of_products(self) -> ShareScores:
        """The family of one ability with slopes of 1."""
        return dataclasses.replace(self, slopes="unit")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination unless "unit", and intercept."""
        return *slope_parameters(self.slopes, 0), Parameter("intercept")

    def complete(self, fields: dict[str, Array]) -> ShareItems:
        """Adds the slopes of 1 where none are estimated."""
        unit = jnp.ones_like(fields["intercept"])
        return ShareItems(**({"discrimination": unit} | fields))

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The share itself."""
        return (values,)

    def natural(self, item: ShareItems, theta: Array) -> tuple[Array, ...]:
        """Log(1 - mu), and the logit of mu."""
        eta = predictor(item, theta)
        return -softplus(eta), eta

    def start(self, means: tuple[Array, ...], slope: Array) -> ShareItems:
        """Intercepts that give the mean shares over N(0, 1) abilities."""
        rate = jnp.clip(means[0], 0.01, 0.99)
        steep = start_slope(slope, self.slopes)
        easy = (jnp.log(rate) - jnp.log1p(-rate)) * jnp.sqrt(1 + (steep / 1.702) ** 2)
        return ShareItems(steep, easy)

    def covariance(self, item: ShareItems, theta: Array) -> tuple[Any, Any]:
        """Variance mu (1 - mu) of one right or wrong response."""
        eta = predictor(item, theta)
        return ((jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta),),)  # pyright: ignore[reportReturnType]

    def log_base(self, values: Array, items: ShareItems) -> Array:
        """0: a quasi-likelihood has no part that depends on the score alone."""
        return jnp.zeros_like(values)

    def to_scores(self, values: Array, items: ShareItems) -> Array:
        """Values as they are."""
        return values

    def tame(self, values: Array) -> Array:
        """Values as they are: shares are bounded."""
        return values

    def expected_response(self, item: ShareItems, theta: Array) -> Array:
        """The mean share, sigmoid(a theta + d)."""
        return jax.nn.sigmoid(predictor(item, theta))

    def sample(self, key: KeyArray, items: ShareItems, theta: Array) -> Array:
        """Random responses that are right or wrong: of shares only means are known."""
        chance = jax.nn.sigmoid(predictor(items, theta[:, None]))
        return jax.random.bernoulli(key, chance).astype(chance.dtype)
