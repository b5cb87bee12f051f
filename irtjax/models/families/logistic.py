"""Binary models with logistic or normal-ogive response functions.

P(y = 1 | theta) = c + (u - c) F(a theta + d), with F logistic (Rasch, 1PL to 4PL) or
the normal distribution function (probit 1PL, 2PL); c = 0 and u = 1 where a model does
not estimate them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Float

from irtjax.models.family import AbstractResponseFamily
from irtjax.models.predictor import predictor, slope_parameters, start_slope
from irtjax.numerics.bijections import UNIT, Parameter
from irtjax.numerics.kernels import log_add, softplus


class LogisticItems(NamedTuple):
    """Item parameters a, d, c, u of the binary families; difficulty is -d / a.

    The asymptotes are the chances of a right response at the lowest and the highest
    ability.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    lower_asymptote: Float[Array, "*items"]
    upper_asymptote: Float[Array, "*items"]


class AbstractBinary(AbstractResponseFamily):
    """A family of responses that are right or wrong, with `LogisticItems`."""

    Items: ClassVar[type] = LogisticItems

    @property
    def num_categories(self) -> int:
        """Two: wrong and right."""
        return 2

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The response itself."""
        return (values,)

    def complete(self, fields: dict[str, Array]) -> LogisticItems:
        """Adds the constants that a model does not estimate.

        The upper asymptote is estimated as a share of the room above c, so that c < u.
        """
        intercept = fields["intercept"]
        lower = fields.get("lower_asymptote", jnp.zeros_like(intercept))
        room = fields.get("upper_asymptote")
        upper = jnp.ones_like(intercept) if room is None else lower + (1 - lower) * room
        slope = fields.get("discrimination", jnp.ones_like(intercept))
        return LogisticItems(slope, intercept, lower, upper)


class Binary(AbstractBinary):
    """The binary family: right or wrong, or a number right out of trials.

    Attributes:
        link: "logit" or "probit".
        asymptotes: 0 for c = 0 and u = 1; 1 to estimate c; 2 to estimate c < u.
        slopes: "free" (any sign), "positive", or "unit" (not estimated per item).
        dims: Number of abilities, each with a discrimination; 0 for a single one.
    """

    by_cell: ClassVar[bool] = True

    link: str = eqx.field(static=True, default="logit")
    asymptotes: int = eqx.field(static=True, default=0)
    slopes: str = eqx.field(static=True, default="free")
    dims: int = eqx.field(static=True, default=0)

    def with_free_slopes(self) -> Binary:
        """The family with a discrimination for each item."""
        return dataclasses.replace(self, slopes="free")

    def of_products(self) -> Binary:
        """The family of one ability with slopes of 1."""
        return dataclasses.replace(self, slopes="unit", dims=0)

    @property
    def link_variance(self) -> float:
        """That of the link's distribution."""
        return math.pi**2 / 3 if self.link == "logit" else 1.0

    @property
    def flat_variance(self) -> float:
        """See `AbstractResponseFamily.flat_variance`; 1, exactly, of the probit."""
        return super().flat_variance if self.link == "logit" else 1.0

    @property
    def diverges(self) -> bool:
        """See `AbstractResponseFamily.diverges`: known for two parameters."""
        return self.asymptotes == 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination unless "unit", intercept, then the asymptotes estimated."""
        asymptotes = [Parameter(f"{end}_asymptote", UNIT) for end in ("lower", "upper")]
        slope = slope_parameters(self.slopes, self.dims)
        return *slope, Parameter("intercept"), *asymptotes[: self.asymptotes]

    def unconstrain(self, item: LogisticItems) -> Float[Array, " columns"]:
        """Coordinates: a or log a, d, logit c, logit of (u - c) / (1 - c)."""
        lower = item.lower_asymptote
        room = (item.upper_asymptote - lower) / (1 - jnp.minimum(lower, 1 - 1e-6))
        return super().unconstrain(item._replace(upper_asymptote=room))

    def log_slopes(self, coordinates: Float[Array, " columns"]) -> Array:
        """As for any family; u moves by 1 - c times its share of the room."""
        slopes = super().log_slopes(coordinates)
        if self.asymptotes < 2:
            return slopes
        return slopes.at[-1].add(-softplus(coordinates[-2]))

    def natural(self, item: LogisticItems, theta: Array) -> tuple[Array, ...]:
        """Log Q and log P - log Q, in log space throughout."""
        eta = predictor(item, theta, self.dims)
        if self.asymptotes == 0 and self.link == "logit":
            return -softplus(eta), eta
        if self.link == "logit":
            log_up, log_down = -softplus(-eta), -softplus(eta)
        else:
            log_up, log_down = log_ndtr(eta), log_ndtr(-eta)
        if self.asymptotes == 0:
            return log_down, log_up - log_down
        tiny = jnp.finfo(eta.dtype).tiny
        lower, upper = item.lower_asymptote, item.upper_asymptote
        log_right = log_add(
            jnp.log(jnp.maximum(lower, tiny)) + log_down,
            jnp.log(jnp.maximum(upper, tiny)) + log_up,
        )
        # An asymptote that rounds to 1 must not make missing responses impossible.
        below = 1 - jnp.finfo(eta.dtype).epsneg
        log_wrong = jnp.log1p(-jnp.minimum(lower, below)) + log_down
        if self.asymptotes == 2:
            above = jnp.log(jnp.maximum(1 - upper, tiny))
            log_wrong = log_add(log_wrong, above + log_up)
        return log_wrong, log_right - log_wrong

    def expected_response(self, item: LogisticItems, theta: Array) -> Array:
        """P(y = 1), by one evaluation of the link."""
        if type(self).natural is not Binary.natural:  # A family with its own link.
            return super().expected_response(item, theta)
        eta = predictor(item, theta, self.dims)
        share = jax.nn.sigmoid(eta) if self.link == "logit" else ndtr(eta)
        if self.asymptotes == 0:
            return share
        lower, upper = item.lower_asymptote, item.upper_asymptote
        return lower + (upper - lower) * share

    def information(self, item: LogisticItems, theta: Array) -> Array:
        """Fisher information; a^2 P (1 - P) for the logistic without asymptotes."""
        own = type(self).natural is not Binary.natural
        if own or self.asymptotes or self.link != "logit" or self.dims:
            return super().information(item, theta)
        share = jax.nn.sigmoid(predictor(item, theta))
        return item.discrimination**2 * share * (1 - share)

    def start(self, means: tuple[Array, ...], slope: Array) -> LogisticItems:
        """Intercepts that give the observed proportions at the given slopes.

        The proportion of a normal-ogive item over N(0, 1) abilities is exactly
        Phi(d / sqrt(1 + a^2)); the logistic form uses a / 1.702.
        """
        (proportion,) = means
        factor = 1.702 if self.link == "logit" else 1.0
        slope = start_slope(slope, self.slopes)
        lower = jnp.full_like(slope, 0.1 if self.asymptotes >= 1 else 0.0)
        upper = jnp.full_like(slope, 0.95 if self.asymptotes >= 2 else 1.0)
        rate = jnp.clip((proportion - lower) / (upper - lower), 0.01, 0.99)
        intercept = factor * ndtri(rate) * jnp.sqrt(1 + (slope / factor) ** 2)
        return LogisticItems(slope, intercept, lower, upper)
