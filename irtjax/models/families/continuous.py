"""Scores between 0 and 1: logit-normal and beta families, and what others share.

Responses are stored as z = logit y. With h(y) = -log(y (1 - y)), the slope of the
logit, every log-density here is one of z plus h(y): the `log_base` of a family.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.scores import END
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.predictor import predictor, slope_parameters
from irtjax.numerics.bijections import POSITIVE, Parameter
from irtjax.numerics.kernels import (
    digamma,
    equal_nodes,
    gammaln,
    log_sigmoid,
    softplus,
    trigamma,
)

_LOG_TWO = 0.6931471805599453
_HALF_LOG_TWO_PI = 0.9189385332046727
#: Half width and number of the nodes of a mean over a normal logit: with standard
#: deviation 5 the trapezoid rule errs by 1e-7, its error being exp(-2 pi^2 / step).
_NORMAL_REACH, _NORMAL_NODES = 8.0, 65

#: An item and an ability as functions of one number: a direction to differentiate in.
Path = Callable[[Array], tuple[Any, Array]]


class ScoreItems(NamedTuple):
    """Item parameters of scores; logits are centred on a theta + d.

    The dispersion is the standard deviation of the logit, or the precision of the beta;
    0 marks the items of `MixedScores` that are right or wrong.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    dispersion: Float[Array, "*items"]


class AbstractScoreFamily(AbstractResponseFamily):
    """A family of scores in [0, 1], stored as logits; `slopes` "free" or "positive".

    In place of sums over categories, information follows from the covariance of the
    statistics: a score is linear in them, and has mean 0.
    """

    Items: ClassVar[type] = ScoreItems

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept and dispersion."""
        family: Any = self  # Each family has its own field `slopes`.
        rest = Parameter("intercept"), Parameter("dispersion", POSITIVE)
        return *slope_parameters(family.slopes, family.dims), *rest

    @property
    def num_categories(self) -> int:
        """None: responses are scores."""
        return 0

    @property
    def ends_at(self) -> float | None:
        """How near to 0 or 1 a score is at it; None if an end has no probability."""
        return None

    def covariance(self, item: Any, theta: Array) -> tuple[Any, Any]:
        """Covariance of the statistics; not used if `path_moments` is overridden."""
        raise NotImplementedError

    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """E[l'^2] and E[l' l''] of the log-density l along a path, at 0."""
        item, theta = here(path)
        along = lambda t: self.natural(*path(t))
        first, second = first_and_second(along, theta.dtype)
        covariance = self.covariance(item, theta)

        def product(right):
            terms = [
                entry * first[k + 1] * right[m + 1]
                for k, row in enumerate(covariance)
                for m, entry in enumerate(row)
            ]
            return sum(terms[1:], terms[0])

        return product(first), product(second)

    def log_base(self, values: Array, items: Any) -> Array:
        """The h(y) of each response, from its logit: log density of z to that of y."""
        slope = softplus(values) + softplus(-values)
        return jnp.where(jnp.abs(values) < END, slope, 0)

    def to_scores(self, values: Array, items: Any) -> Array:
        """The scores of stored values; exactly 0 and 1 at the ends."""
        inside = jnp.where(values >= END, 1, jax.nn.sigmoid(values))
        return jnp.where(values <= -END, 0, inside)

    def tame(self, values: Array) -> Array:
        """Values whose mean and variance give start values."""
        return jnp.clip(values, -8, 8)

    def information(self, item: Any, theta: Array) -> Array:
        """Fisher information of one item about ability at one ability."""
        return self.path_moments(lambda t: (item, theta + t))[0]

    def information_and_skew(self, item: Any, theta: Array) -> tuple[Array, Array]:
        """Information I and J = I' - E[l' l''], which is E[l'^3] + E[l' l'']."""
        along = lambda t: self.information(item, t)
        information, slope = jax.jvp(along, (theta,), (jnp.ones_like(theta),))
        return information, slope - self.path_moments(lambda t: (item, theta + t))[1]

    def coordinate_information(self, row: Array, theta: Array) -> tuple[Array, Array]:
        """Fisher information of each coordinate of one item, and of ability."""

        def along(direction):
            path = lambda t: (self.constrain(row + t * direction), theta)
            return self.path_moments(path)[0]

        by_row = jnp.stack([along(e) for e in jnp.eye(row.shape[0], dtype=row.dtype)])
        return by_row, self.information(self.constrain(row), theta)

    def category_log_probs(self, item: Any, theta: Array) -> Array:
        """Refused: scores have no categories."""
        raise ValueError("scores between 0 and 1 have no categories to list")


def first_and_second(function: Callable[[Array], Any], dtype) -> tuple[Any, Any]:
    """First and second derivatives at 0."""
    zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)
    slope = lambda t: jax.jvp(function, (t,), (one,))[1]
    return jax.jvp(slope, (zero,), (one,))


def here(path: Path) -> tuple[Any, Array]:
    """Where a path begins."""
    return path(0.0)  # pyright: ignore[reportArgumentType]


def _start_correlation(slope: Array, slopes: str) -> Array:
    """Of an item with the first scores, from the slope that `start_values` gives."""
    correlation = slope / jnp.sqrt(1.702**2 + slope**2)
    return jnp.maximum(correlation, 0.1) if slopes == "positive" else correlation


class LogitNormalScores(AbstractScoreFamily):
    """Logit-normal scores: logit(y) ~ N(a theta + d, sigma^2); sigma the dispersion.

    The continuous model of LEGO-IRT. Information about ability is a^2 / sigma^2. Of
    `dims` abilities it is the factor model of the logits.
    """

    simulated = {"dispersion": (0.5, 1.5)}
    slopes: str = eqx.field(static=True, default="free")
    dims: int = eqx.field(static=True, default=0)

    def of_products(self) -> LogitNormalScores:
        """The family of one ability with slopes of 1."""
        return dataclasses.replace(self, slopes="unit", dims=0)

    def residual_variance(self, items: ScoreItems) -> Array:
        """That of the logit given abilities, of each item."""
        return items.dispersion**2

    def complete(self, fields: dict[str, Array]) -> ScoreItems:
        """Adds the slopes of 1 where none are estimated."""
        unit = jnp.ones_like(fields["intercept"])
        return ScoreItems(**({"discrimination": unit} | fields))

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The logit and its square."""
        return values, values**2

    def natural(self, item: ScoreItems, theta: Array) -> tuple[Array, ...]:
        """Of the normal density of the logit."""
        eta, sd = predictor(item, theta, self.dims), item.dispersion
        precision = 1 / sd**2
        base = -0.5 * precision * eta**2 - jnp.log(sd) - _HALF_LOG_TWO_PI
        return base, precision * eta, -0.5 * precision

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """A line through the first scores, by its correlation."""
        mean, square = means
        sd = jnp.sqrt(jnp.maximum(square - mean**2, 1e-4))
        correlation = _start_correlation(slope, self.slopes)
        return ScoreItems(sd * correlation, mean, sd * jnp.sqrt(1 - correlation**2))

    def covariance(self, item: Any, theta: Array) -> tuple[Any, Any]:
        """Covariance of z and z^2 for z ~ N(eta, sd^2)."""
        eta, sd = predictor(item, theta, self.dims), item.dispersion
        variance, cross = sd**2, 2 * eta * sd**2
        return (variance, cross), (cross, 2 * variance**2 + 4 * eta**2 * variance)

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Mean of sigmoid(z) for z ~ N(a theta + d, sigma^2), by the trapezoid rule."""
        eta, sd = predictor(item, theta, self.dims), item.dispersion
        nodes = equal_nodes(-_NORMAL_REACH, _NORMAL_REACH, _NORMAL_NODES)
        weights = np.exp(-0.5 * nodes**2)
        weights = jnp.asarray(weights / weights.sum(), eta.dtype)
        return weights @ jax.nn.sigmoid(eta + sd * jnp.asarray(nodes, sd.dtype))

    def sample(self, key: KeyArray, items: ScoreItems, theta: Array) -> Array:
        """Random logits."""
        eta = predictor(items, theta[:, None], self.dims)
        noise = jax.random.normal(key, eta.shape, eta.dtype)
        return eta + items.dispersion * noise


def _shapes(item, theta: Array) -> tuple[Array, Array]:
    """Shapes of the beta density, mu phi and (1 - mu) phi."""
    eta, precision = predictor(item, theta), item.dispersion
    return precision * jax.nn.sigmoid(eta), precision * jax.nn.sigmoid(-eta)


def _above_zero(shape: Array) -> Array:
    """A shape, so far from 0 that its inverse has slopes."""
    return jnp.maximum(shape, jnp.finfo(shape.dtype).tiny ** 0.2)


def _beta_shapes(wanted: Float[Array, "2 items"]) -> tuple[Array, Array]:
    """Shapes of beta variables of given means of log y and log(1 - y).

    By Fisher scoring on the logarithms of the shapes.
    """

    def improve(_, logs):
        shapes = jnp.exp(logs)
        up, down = shapes
        gradient = shapes * (wanted - digamma(shapes) + digamma(up + down))
        common = trigamma(up + down)
        first = up**2 * (trigamma(up) - common)
        second = down**2 * (trigamma(down) - common)
        cross = -up * down * common
        determinant = jnp.maximum(first * second - cross**2, 1e-12)
        step_up = second * gradient[0] - cross * gradient[1]
        step_down = first * gradient[1] - cross * gradient[0]
        step = jnp.stack([step_up, step_down]) / determinant
        return jnp.clip(logs + jnp.clip(step, -1, 1), -7, 8)

    up, down = jnp.exp(jax.lax.fori_loop(0, 40, improve, jnp.zeros_like(wanted)))
    return up, down


class BetaScores(AbstractScoreFamily):
    """Beta scores: y ~ Beta(mu phi, (1 - mu) phi), mu = sigmoid(a theta + d).

    Beta regression (Ferrari and Cribari-Neto 2004) on ability, as in the beta response
    model of Noel and Dauvier (2007); the precision phi is the dispersion. Methods take
    any record with the fields of `ScoreItems`.
    """

    simulated = {"dispersion": (3.0, 12.0)}
    slopes: str = eqx.field(static=True, default="free")

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """Logarithms of y and 1 - y, shifted to vanish at a logit of 0."""
        return log_sigmoid(values) + _LOG_TWO, log_sigmoid(-values) + _LOG_TWO

    def natural(self, item: Any, theta: Array) -> tuple[Array, ...]:
        """Minus the log of the beta function, and the shapes."""
        eta, precision = predictor(item, theta), item.dispersion
        up, down = _shapes(item, theta)
        # By log Gamma(x) = log Gamma(1 + x) - log x: finite where a mean underflows.
        base = gammaln(1 + precision) - gammaln(1 + up) - gammaln(1 + down)
        ends = log_sigmoid(eta) + log_sigmoid(-eta)
        return base + jnp.log(precision) + ends - precision * _LOG_TWO, up, down

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """From the beta distribution of all subjects, and what first scores explain."""
        up, down = _beta_shapes(jnp.stack(means) - _LOG_TWO)
        correlation = _start_correlation(slope, self.slopes)
        # d E[logit y] / d eta, which turns a slope in z into one in a theta + d.
        variance = trigamma(up) + trigamma(down)
        steepness = up * down / (up + down) * variance
        slope = jnp.clip(correlation * jnp.sqrt(variance) / steepness, -4, 4)
        precision = (up + down) / (1 - correlation**2)
        return ScoreItems(slope, jnp.log(up) - jnp.log(down), precision)

    def covariance(self, item: Any, theta: Array) -> tuple[Any, Any]:
        """Covariance of log y and log(1 - y)."""
        up, down = map(_above_zero, _shapes(item, theta))
        common = -trigamma(item.dispersion)
        return (trigamma(up) + common, common), (common, trigamma(down) + common)

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Mean score, sigmoid(a theta + d)."""
        return jax.nn.sigmoid(predictor(item, theta))

    def sample(self, key: KeyArray, items: Any, theta: Array) -> Array:
        """Random logits, from gamma variables by their logarithms."""
        up, down = jax.vmap(lambda t: _shapes(items, t))(theta)
        first, second = jax.random.split(key)
        draw = lambda key, shape: jax.random.loggamma(key, _above_zero(shape))
        return jnp.clip(draw(first, up) - draw(second, down), -0.9 * END, 0.9 * END)
