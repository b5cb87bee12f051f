"""Prior distributions for single parameters.

Densities are taken with respect to the natural parameter (a discrimination, not its
logarithm), so a mode found with them is the mode that R's mirt reports.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

_LOG_ROOT_TWO_PI = 0.9189385332046727


class AbstractPrior(eqx.Module):
    """A density of one parameter, elementwise."""

    @abstractmethod
    def log_density(self, value: Array) -> Array:
        """Log density at natural values."""


class Normal(AbstractPrior):
    """Normal with a mean and a standard deviation.

    >>> round(float(Normal(0.0, 1.0).log_density(jnp.array(0.0))), 4)
    -0.9189
    """

    mean: float | Float[Array, ""]
    sd: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density: -(x - mean)^2 / (2 sd^2) - log sd - log(2 pi) / 2."""
        standard = (value - self.mean) / self.sd
        return -0.5 * standard**2 - jnp.log(self.sd) - _LOG_ROOT_TWO_PI


class LogNormal(AbstractPrior):
    """Log-normal: the logarithm is Normal(mean, sd). Zero density at values <= 0."""

    mean: float | Float[Array, ""]
    sd: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density of the natural (positive) value."""
        log_value = jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny))
        standard = (log_value - self.mean) / self.sd
        density = -0.5 * standard**2 - log_value - jnp.log(self.sd) - _LOG_ROOT_TWO_PI
        return jnp.where(value > 0, density, -jnp.inf)


class Gamma(AbstractPrior):
    """Gamma with a shape and a rate: mean shape / rate. Zero density at values <= 0.

    >>> round(float(Gamma(2.0, 0.5).log_density(jnp.array(4.0))), 4)
    -2.0
    """

    shape: float | Float[Array, ""]
    rate: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density: k log r + (k - 1) log x - r x - log Gamma(k)."""
        shape, rate = (jnp.asarray(x, value.dtype) for x in (self.shape, self.rate))
        log_value = jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny))
        constant = shape * jnp.log(rate) - gammaln(shape)
        density = constant + (shape - 1) * log_value - rate * value
        return jnp.where(value > 0, density, -jnp.inf)


class HalfNormal(AbstractPrior):
    """Half-normal: the size of a Normal(0, scale). Zero density below 0."""

    scale: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density: -x^2 / (2 scale^2) - log scale + log(2 / pi) / 2."""
        density = -0.5 * (value / self.scale) ** 2 - jnp.log(self.scale)
        density = density + jnp.log(2.0) - _LOG_ROOT_TWO_PI
        return jnp.where(value >= 0, density, -jnp.inf)


class Beta(AbstractPrior):
    """Beta(alpha, beta) on (0, 1), such as Beta(5, 17) for guessing near 0.2."""

    alpha: float | Float[Array, ""]
    beta: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density of the natural value."""
        alpha, beta = self.alpha, self.beta
        # The log of the beta function; JAX's own is good to 7 digits only.
        log_beta = gammaln(alpha) + gammaln(beta) - gammaln(alpha + beta)
        density = (alpha - 1) * jnp.log(value) + (beta - 1) * jnp.log1p(-value)
        return density - log_beta.astype(value.dtype)


class Exponential(AbstractPrior):
    """Exponential with a mean, on values above 0.

    >>> round(float(Exponential(2.0).log_density(jnp.array(0.0))), 4)
    -0.6931
    """

    mean: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density: -x / mean - log mean."""
        return -value / self.mean - jnp.log(jnp.asarray(self.mean, value.dtype))


class InverseChi(AbstractPrior):
    """Of a standard deviation whose square is scaled inverse chi-square.

    It has the weight of `degrees` residuals with root mean square `scale`, and no mass
    at 0, where a constant item would otherwise go.

    >>> round(float(InverseChi(1.0, 1.0).log_density(jnp.array(1.0))), 4)
    -0.7258
    """

    degrees: float | Float[Array, ""]
    scale: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density of sigma: -(n + 1) log sigma - n s^2 / (2 sigma^2) + constant."""
        half = jnp.asarray(self.degrees, value.dtype) / 2
        rate = half * jnp.asarray(self.scale, value.dtype) ** 2
        constant = jnp.log(2.0) + half * jnp.log(rate) - gammaln(half)
        inside = jnp.maximum(value, jnp.finfo(value.dtype).tiny ** 0.25)
        constant = constant.astype(value.dtype)
        return constant - (2 * half + 1) * jnp.log(inside) - rate / inside**2


class LogitNormal(AbstractPrior):
    """Logit-normal on (0, 1): the logit is Normal(mean, sd)."""

    mean: float | Float[Array, ""]
    sd: float | Float[Array, ""]

    def log_density(self, value: Array) -> Array:
        """Log density of the natural value."""
        log_value, log_rest = jnp.log(value), jnp.log1p(-value)
        density = Normal(self.mean, self.sd).log_density(log_value - log_rest)
        return density - log_value - log_rest
