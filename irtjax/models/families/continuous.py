"""Scores between 0 and 1: logit-normal and beta families, and what others share.

Responses are held as z = logit y. With h(y) = -log(y (1 - y)), the slope of the logit,
every log-density here is one of z plus h(y): the `log_base` of a family.
"""

from __future__ import annotations

from abc import abstractmethod
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
from irtjax.models.predictor import predictor
from irtjax.numerics.bijections import IDENTITY, POSITIVE, Parameter
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
    """Item parameters of scores, each `[items]`.

    Attributes:
        discrimination: a.
        intercept: d; logits are centred on a theta + d.
        dispersion: Standard deviation of the logit, or precision of the beta; 0 marks
            the items of `MixedScores` that are right or wrong.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    dispersion: Float[Array, "*items"]


class AbstractScoreFamily(AbstractResponseFamily):
    """A family of scores in [0, 1], held as logits.

    In place of sums over categories, information follows from the covariance of the
    statistics: a score is linear in them, and has mean 0.
    """

    @property
    def num_categories(self) -> int:
        """None: responses are scores."""
        return 0

    @property
    def ends_at(self) -> float | None:
        """How near to 0 or 1 a score is at it; None if an end has no probability."""
        return None

    @abstractmethod
    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """E[l'^2] and E[l' l''] of the log-density l along a path, at 0."""

    def log_base(
        self, values: Float[Array, "subjects items"], items: Any
    ) -> Float[Array, "subjects items"]:
        """The h(y) of each response, from its logit: log density of z to that of y."""
        inside = jnp.abs(values) < END
        slope = softplus(values) + softplus(-values)
        return jnp.where(inside, slope, 0)

    def to_scores(self, values: Array, items: Any) -> Array:
        """The scores of stored values; exactly 0 and 1 at the ends."""
        return jnp.where(
            values <= -END, 0, jnp.where(values >= END, 1, jax.nn.sigmoid(values))
        )

    def tame(self, values: Array) -> Array:
        """Values whose mean and variance give start values."""
        return jnp.clip(values, -8, 8)

    def information(self, item: Any, theta: Array) -> Array:
        """Fisher information of one item about ability at one ability."""
        return self.path_moments(lambda t: (item, theta + t))[0]

    def information_and_skew(self, item: Any, theta: Array) -> tuple[Array, Array]:
        """Information I and J = I' - E[l' l''], which is E[l'^3] + E[l' l'']."""
        along = lambda t: self.information(item, t)  # noqa: E731
        information, slope = jax.jvp(along, (theta,), (jnp.ones_like(theta),))
        return information, slope - self.path_moments(lambda t: (item, theta + t))[1]

    def coordinate_information(
        self, row: Float[Array, " columns"], theta: Array
    ) -> tuple[Float[Array, " columns"], Array]:
        """Fisher information of each coordinate of one item, and of ability."""

        def along(direction):
            path = lambda t: (self.constrain(row + t * direction), theta)  # noqa: E731
            return self.path_moments(path)[0]

        by_row = jnp.stack([along(e) for e in jnp.eye(row.shape[0], dtype=row.dtype)])
        return by_row, self.information(self.constrain(row), theta)

    def category_log_probs(
        self, item: Any, theta: Array
    ) -> Float[Array, " categories"]:
        """Refused: scores have no categories."""
        raise ValueError("scores between 0 and 1 have no categories to list")


def first_and_second(function: Callable[[Array], Any], dtype) -> tuple[Any, Any]:
    """First and second derivatives at 0."""
    zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)
    slope = lambda t: jax.jvp(function, (t,), (one,))[1]  # noqa: E731
    return jax.jvp(slope, (zero,), (one,))


def by_covariance(family, path: Path, covariance) -> tuple[Array, Array]:
    """`path_moments` from the covariance of the statistics, as nested tuples."""
    dtype = path(0.0)[1].dtype  # pyright: ignore[reportArgumentType]
    first, second = first_and_second(lambda t: family.natural(*path(t)), dtype)

    def product(right):
        terms = [
            covariance[k][m] * first[k + 1] * right[m + 1]
            for k in range(len(covariance))
            for m in range(len(covariance))
        ]
        return sum(terms[1:], terms[0])

    return product(first), product(second)


def here(path: Path) -> tuple[Any, Array]:
    """Where a path begins."""
    return path(0.0)  # pyright: ignore[reportArgumentType]


def _correlation(slope: Array) -> Array:
    """Of an item with the first scores, from the slope that `start_values` gives."""
    return slope / jnp.sqrt(1.702**2 + slope**2)


def normal_natural(eta: Array, sd: Array) -> tuple[Array, Array, Array]:
    """The g of the statistics z and z^2 of N(eta, sd^2)."""
    precision = 1 / sd**2
    base = -0.5 * precision * eta**2 - jnp.log(sd) - _HALF_LOG_TWO_PI
    return base, precision * eta, -0.5 * precision


def normal_covariance(eta: Array, sd: Array):
    """Covariance of z and z^2."""
    variance, cross = sd**2, 2 * eta * sd**2
    return (variance, cross), (cross, 2 * variance**2 + 4 * eta**2 * variance)


def normal_mean(eta: Array, sd: Array) -> Array:
    """Mean of sigmoid(z) for z ~ N(eta, sd^2), by the trapezoid rule."""
    nodes = equal_nodes(-_NORMAL_REACH, _NORMAL_REACH, _NORMAL_NODES)
    weights = np.exp(-0.5 * nodes**2)
    weights = jnp.asarray(weights / weights.sum(), eta.dtype)
    return weights @ jax.nn.sigmoid(eta + sd * jnp.asarray(nodes, sd.dtype))


def score_parameters(slopes: str) -> tuple[Parameter, ...]:
    """Discrimination, intercept and dispersion."""
    return (
        Parameter("discrimination", POSITIVE if slopes == "positive" else IDENTITY),
        Parameter("intercept"),
        Parameter("dispersion", POSITIVE),
    )


class LogitNormalScores(AbstractScoreFamily):
    """Logit-normal scores: logit(y) ~ N(a theta + d, sigma^2); sigma the dispersion.

    The continuous model of LEGO-IRT. Information about ability is a^2 / sigma^2.

    Attributes:
        slopes: "free" (any sign) or "positive".

    >>> item = ScoreItems(*map(jnp.asarray, (2.0, 0.0, 0.5)))
    >>> float(LogitNormalScores().information(item, jnp.array(0.3)))
    16.0
    """

    Items: ClassVar[type] = ScoreItems
    simulated: ClassVar[dict[str, tuple[float, float]]] = {"dispersion": (0.5, 1.5)}
    slopes: str = eqx.field(static=True, default="free")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept and dispersion."""
        return score_parameters(self.slopes)

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """The logit and its square."""
        return values, values**2

    def natural(self, item: ScoreItems, theta: Array) -> tuple[Array, ...]:
        """Of the normal density of the logit."""
        eta = predictor(item, theta)
        return normal_natural(eta, item.dispersion)

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """A line through the first scores, by its correlation."""
        mean, square = means
        sd = jnp.sqrt(jnp.maximum(square - mean**2, 1e-4))
        correlation = _correlation(slope)
        if self.slopes == "positive":
            correlation = jnp.maximum(correlation, 0.1)
        return ScoreItems(sd * correlation, mean, sd * jnp.sqrt(1 - correlation**2))

    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """From the covariance of z and z^2."""
        item, theta = here(path)
        eta = predictor(item, theta)
        return by_covariance(self, path, normal_covariance(eta, item.dispersion))

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Mean score."""
        return normal_mean(predictor(item, theta), item.dispersion)

    def sample(self, key: KeyArray, items: ScoreItems, theta: Array) -> Array:
        """Random logits."""
        eta = predictor(items, theta[:, None])
        noise = jax.random.normal(key, eta.shape, eta.dtype)
        return eta + items.dispersion * noise


def _shapes(item, theta: Array) -> tuple[Array, Array]:
    """Shapes of the beta density, mu phi and (1 - mu) phi."""
    eta = predictor(item, theta)
    return (
        item.dispersion * jax.nn.sigmoid(eta),
        item.dispersion * jax.nn.sigmoid(-eta),
    )


def _kept(shape: Array) -> Array:
    """A shape, kept so far from 0 that its inverse has slopes."""
    return jnp.maximum(shape, jnp.finfo(shape.dtype).tiny ** 0.2)


def beta_natural(item, theta: Array) -> tuple[Array, Array, Array]:
    """The g of the statistics log y + log 2 and log(1 - y) + log 2, without h(y).

    log Gamma(x) is taken as log Gamma(1 + x) - log x, so that nothing is infinite where
    a mean underflows.
    """
    eta, precision = predictor(item, theta), item.dispersion
    up, down = _shapes(item, theta)
    base = gammaln(1 + precision) - gammaln(1 + up) - gammaln(1 + down)
    ends = log_sigmoid(eta) + log_sigmoid(-eta)
    return base + jnp.log(precision) + ends - precision * _LOG_TWO, up, down


def beta_moments(path: Path) -> tuple[Array, Array]:
    """`path_moments` of beta scores, from the covariance of log y and log(1 - y)."""
    item, theta = here(path)
    up, down = map(_kept, _shapes(item, theta))
    both = -trigamma(item.dispersion)
    covariance = (
        (trigamma(up) + both, both),
        (both, trigamma(down) + both),
    )
    return by_covariance(BetaScores(), path, covariance)


def beta_start(means: tuple[Array, Array], slope: Array, positive: bool) -> ScoreItems:
    """Start values from the means of log y + log 2 and log(1 - y) + log 2.

    The beta distribution of all subjects together by Fisher scoring on the logarithms
    of its two shapes, then the share of its variance that the first scores explain.
    """
    wanted = jnp.stack(means) - _LOG_TWO

    def improve(_, logs):
        up, down = jnp.exp(logs)
        shapes = jnp.stack([up, down])
        gradient = shapes * (wanted - digamma(shapes) + digamma(up + down))
        common = trigamma(up + down)
        first, second = (
            up**2 * (trigamma(up) - common),
            down**2 * (trigamma(down) - common),
        )
        cross = -up * down * common
        determinant = jnp.maximum(first * second - cross**2, 1e-12)
        step = jnp.stack(
            [
                second * gradient[0] - cross * gradient[1],
                first * gradient[1] - cross * gradient[0],
            ]
        )
        return jnp.clip(logs + jnp.clip(step / determinant, -1, 1), -7, 8)

    up, down = jnp.exp(jax.lax.fori_loop(0, 40, improve, jnp.zeros_like(wanted)))
    correlation = _correlation(slope)
    if positive:
        correlation = jnp.maximum(correlation, 0.1)
    # d E[logit y] / d eta, which turns a slope in z into one in a theta + d.
    spread = trigamma(up) + trigamma(down)
    steepness = up * down / (up + down) * spread
    return ScoreItems(
        jnp.clip(correlation * jnp.sqrt(spread) / steepness, -4, 4),
        jnp.log(up) - jnp.log(down),
        (up + down) / (1 - correlation**2),
    )


def beta_logits(key: KeyArray, items, theta: Array) -> Array:
    """Random logits of beta scores, from gamma variables by their logarithms."""
    up, down = jax.vmap(lambda t: _shapes(items, t))(theta)
    first, second = jax.random.split(key)
    draw = lambda key, shape: jax.random.loggamma(key, _kept(shape))  # noqa: E731
    return jnp.clip(draw(first, up) - draw(second, down), -0.9 * END, 0.9 * END)


class BetaScores(AbstractScoreFamily):
    """Beta scores: y ~ Beta(mu phi, (1 - mu) phi), mu = sigmoid(a theta + d).

    Beta regression (Ferrari and Cribari-Neto 2004) on ability, as in the beta response
    model of Noel and Dauvier (2007); the precision phi is the dispersion.

    Attributes:
        slopes: "free" (any sign) or "positive".

    >>> item = ScoreItems(*map(jnp.asarray, (1.0, 0.0, 5.0)))
    >>> float(BetaScores().expected_response(item, jnp.array(0.0)))
    0.5
    """

    Items: ClassVar[type] = ScoreItems
    simulated: ClassVar[dict[str, tuple[float, float]]] = {"dispersion": (3.0, 12.0)}
    slopes: str = eqx.field(static=True, default="free")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept and dispersion."""
        return score_parameters(self.slopes)

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """Logarithms of y and 1 - y, shifted to vanish at a logit of 0."""
        return (
            log_sigmoid(values) + _LOG_TWO,
            log_sigmoid(-values) + _LOG_TWO,
        )

    def natural(self, item: ScoreItems, theta: Array) -> tuple[Array, ...]:
        """The shapes, and minus the log of the beta function."""
        return beta_natural(item, theta)

    def start(self, means: tuple[Array, ...], slope: Array) -> ScoreItems:
        """From the beta distribution of all subjects together."""
        return beta_start((means[0], means[1]), slope, self.slopes == "positive")

    def path_moments(self, path: Path) -> tuple[Array, Array]:
        """From the covariance of log y and log(1 - y)."""
        return beta_moments(path)

    def expected_response(self, item: ScoreItems, theta: Array) -> Array:
        """Mean score, sigmoid(a theta + d)."""
        return jax.nn.sigmoid(predictor(item, theta))

    def sample(self, key: KeyArray, items: ScoreItems, theta: Array) -> Array:
        """Random logits."""
        return beta_logits(key, items, theta)
