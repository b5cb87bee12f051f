"""Binary responses with a complementary log-log response function.

P(y = 1 | theta) = 1 - exp(-exp(a theta + d)): it leaves 0 slowly and nears 1 fast, as
when one success among many chances solves an item.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.models.families.logistic import AbstractBinary, LogisticItems
from irtjax.models.predictor import predictor, slope_parameters, start_slope
from irtjax.numerics.bijections import Parameter

#: Above this -log P(0) rises linearly. P(0) is below 2e-24 there, so estimates do not
#: change; as an exponential it would take the digits of log P(1) in float32.
HIGHEST = 4.0
#: Below this log(1 - exp(-rate)) is its series, exact to rounding in float64.
LOWEST = -17.0
#: Slope of this link over that of the logistic one: the latent standard deviations are
#: pi / sqrt(6) and pi / sqrt(3).
PER_LOGIT = 0.7071


class ComplementaryLogLog(AbstractBinary):
    """P(y = 1) = 1 - exp(-exp(a theta + d)), with slopes "free" or "positive"."""

    slopes: str = eqx.field(static=True, default="free")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination and intercept."""
        return *slope_parameters(self.slopes), Parameter("intercept")

    def natural(self, item: LogisticItems, theta: Array) -> tuple[Array, ...]:
        """Log Q = -exp(eta), and log P - log Q."""
        eta = predictor(item, theta)
        rate = jnp.exp(jnp.clip(eta, LOWEST, HIGHEST))
        log_right = jnp.log(-jnp.expm1(-rate))
        # Where a value is not used it must not have infinite derivatives either.
        small = jnp.exp(jnp.minimum(eta, LOWEST))
        low = eta < LOWEST
        log_right = jnp.where(low, eta - small / 2, log_right)
        rate = rate * (1 + jnp.maximum(eta - HIGHEST, 0))
        rate = jnp.where(low, small, rate)
        return -rate, log_right + rate

    def start(self, means: tuple[Array, ...], slope: Array) -> LogisticItems:
        """Intercepts that give the observed proportions at mean ability."""
        slope = start_slope(PER_LOGIT * slope, self.slopes)
        intercept = jnp.log(-jnp.log1p(-jnp.clip(means[0], 0.01, 0.99)))
        return self.complete({"discrimination": slope, "intercept": intercept})
