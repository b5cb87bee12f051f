"""Ordered responses in C categories: graded response and partial credit families.

Both see ability only through eta_h = a theta + d_h, h = 1 ... C - 1, and both use
indicators of the categories as statistics, with g_k = log P(y = k) - log P(y = 0), the
categories numbered from 0 in the order of their codes.

**Closed categories.** An item on which nobody gave a response that others have does not
have this category: it is fitted as if its own responses were numbered without gaps.
One intercept is out of use for each closed category. It is fixed at `CLOSED`, or at
minus this: d_1 ... d_k at +`CLOSED` close the categories 0 ... k - 1, and d_k at
-`CLOSED` closes category k. Records therefore show which categories an item has.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from irtjax.models.family import AbstractResponseFamily
from irtjax.models.predictor import predictor, slope_parameters, start_slope
from irtjax.numerics.bijections import POSITIVE, Parameter
from irtjax.numerics.kernels import softplus

#: Distance that two neighbouring intercepts have at least at the start.
LEAST_START = 0.05
#: Distance of two graded intercepts around a category that no subject chose: its
#: probability, below 3e-5, has its limit at 0, where the intercepts meet.
CLOSEST = 1e-4


#: Intercepts this large, or offsets, are marks of categories that an item lacks.
CLOSED = 1000.0
#: Log-probability of a category that an item lacks: below 1e-8.
FLOOR = -20.0


def is_mark(values: Array) -> Array:
    """Which numbers of an item are marks of categories that it lacks."""
    return jnp.abs(values) > CLOSED / 2


def category_numbers(values: Array, codes: tuple[int, ...]) -> Array:
    """The number of the category of each response, 0 of the lowest."""
    if not codes:
        return values
    above = [(values >= code).astype(values.dtype) for code in codes[1:]]
    return sum(above[1:], above[0])


def filled(intercept: Array) -> Array:
    """Intercepts `[*items, thresholds]`, those of closed categories the next higher."""
    cuts = list(jnp.moveaxis(intercept, -1, 0))
    for h in range(len(cuts) - 2, -1, -1):
        cuts[h] = jnp.where(cuts[h] < -CLOSED / 2, cuts[h + 1], cuts[h])
    return jnp.stack(cuts, axis=-1)


def open_categories(intercept: Float[Array, "*items thresholds"]) -> Array:
    """Which categories items have, `[*items, C]`, by the marks of their intercepts."""
    none = jnp.zeros_like(intercept[..., :1], bool)
    not_below = jnp.concatenate([intercept > CLOSED / 2, none], axis=-1)
    not_here = jnp.concatenate([none, intercept < -CLOSED / 2], axis=-1)
    return ~(not_below | not_here)


def of_open(log_probs: Array, exists: Array) -> tuple[Array, ...]:
    """Log P(0) and log P(k) - log P(0), `FLOOR` for categories that do not exist."""
    logs = jnp.where(exists, log_probs, FLOOR)
    return logs[0], *(logs[k] - logs[0] for k in range(1, len(logs)))


class GradedItems(NamedTuple):
    """a, and d_1 ... d_{C-1}; the thresholds are -d_h / a."""

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items thresholds"]


def category_shares(means: tuple[Array, ...]) -> Float[Array, "items categories"]:
    """Share of each category, kept away from 0, from the means of the indicators."""
    upper = jnp.stack(means, -1)
    all_shares = jnp.concatenate([1 - jnp.sum(upper, -1, keepdims=True), upper], -1)
    shares = jnp.maximum(all_shares, 0.005)
    return shares / jnp.sum(shares, -1, keepdims=True)


def _graded_terms(eta: Array, steps: Array) -> tuple[Array, ...]:
    """Log P(0), log P(k) - log P(0), of a theta + d_h and of d_{h+1} - d_h."""
    above, below = -softplus(-eta), -softplus(eta)
    between = above[:-1] + below[1:] + jnp.log(-jnp.expm1(steps))
    log_probs = jnp.append(between, above[-1])
    return below[0], *(log_prob - below[0] for log_prob in log_probs)


def _cumulative_logits(means: tuple[Array, ...], slope: Array) -> Array:
    """Intercepts `[items, C - 1]` that give the observed cumulative shares."""
    cumulative = jnp.cumsum(category_shares(means)[:, :0:-1], axis=-1)[:, ::-1]
    sd = jnp.sqrt(1 + (slope / 1.702) ** 2)[:, None]
    return 1.702 * ndtri(cumulative) * sd


def _with_slopes(fields: dict[str, Array]) -> GradedItems:
    """Items of the fields; discriminations are 1 where there are none."""
    unit = jnp.ones_like(fields["intercept"][..., 0])
    return GradedItems(fields.get("discrimination", unit), fields["intercept"])


class AbstractOrdered(AbstractResponseFamily):
    """A family of C `categories`, whose statistics are their indicators.

    Attributes:
        categories: C.
        codes: Rising whole numbers from 0, the responses that are the categories; ()
            for 0 ... C - 1. Expected responses are on this scale.
        gaps: Whether items may lack categories, which `close` fixes.
    """

    categories: int = eqx.field(static=True)
    codes: tuple[int, ...] = eqx.field(static=True, default=(), kw_only=True)
    gaps: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def num_categories(self) -> int:
        """The number of categories."""
        return self.categories

    @property
    def category_codes(self) -> tuple[int, ...]:
        """The response that each category is."""
        return self.codes or tuple(range(self.categories))

    def statistics(self, values: Array) -> tuple[Array, ...]:
        """Indicators of the categories above the lowest."""
        upper = self.category_codes[1:]
        return tuple((values == code).astype(values.dtype) for code in upper)

    def with_codes(self, codes: tuple[int, ...]) -> AbstractOrdered:
        """The family whose categories are these responses."""
        return dataclasses.replace(self, codes=codes)

    def existing(self, items: Any) -> np.ndarray:
        """Which categories items have, `[items, C]`."""
        return np.ones((len(items[0]), self.categories), bool)

    def close(self, items: Any, exists: np.ndarray) -> tuple[Any, np.ndarray]:
        """Items without some categories, and which coordinates they leave free.

        Args:
            items: Records of items that have all categories.
            exists: `[items, C]`, at least two of each item.
        """
        raise NotImplementedError(f"{type(self).__name__} closes no categories")


class AbstractCuts(AbstractOrdered):
    """An ordered family with slopes, and C - 1 intercepts of each item.

    `slopes` is "free", "positive" or "unit" (1, not estimated), and `dims` the number
    of abilities, 0 for a single one.
    """

    Items: ClassVar[type] = GradedItems
    closable: ClassVar[bool] = True
    slopes: str = eqx.field(static=True, default="free")
    dims: int = eqx.field(static=True, default=0)

    def of_products(self) -> AbstractCuts:
        """The family of one ability with slopes of 1."""
        return dataclasses.replace(self, slopes="unit", dims=0)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination unless "unit", and C - 1 intercepts."""
        cuts = Parameter("intercept", size=self.categories - 1)
        return *slope_parameters(self.slopes, self.dims), cuts

    def complete(self, fields: dict[str, Array]) -> GradedItems:
        """Adds the slopes of 1 where none are estimated."""
        return _with_slopes(fields)

    def in_use(self, item: GradedItems, name: str) -> Array | bool:
        """Intercepts are those of the categories that an item has."""
        return ~is_mark(item.intercept) if name == "intercept" and self.gaps else True

    def existing(self, items: GradedItems) -> np.ndarray:
        """By the marks of intercepts."""
        return np.asarray(open_categories(jnp.asarray(items.intercept)))

    def close(self, items: GradedItems, exists: np.ndarray) -> tuple[Any, np.ndarray]:
        """Marks of the intercepts that are out of use."""
        intercept = self._without(np.asarray(items.intercept), exists)
        lowest = np.argmax(exists, axis=1)[:, None]
        place = np.arange(1, self.categories)
        used = exists[:, 1:] & (place > lowest)
        marks = np.where(place <= lowest, CLOSED, -CLOSED)
        marked = np.where(used, intercept, marks).astype(intercept.dtype)
        free = np.array(self.free_columns(len(exists)))
        free[:, list(self.intercept_columns)] &= used
        return items._replace(intercept=jnp.asarray(marked)), free

    def _without(self, intercept: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """Intercepts that start an item without its closed categories."""
        return intercept


class Graded(AbstractCuts):
    """Graded response: P(y >= h) = sigmoid(a theta + d_h), d_1 > ... > d_{C-1}.

    Samejima (1969). Intercepts out of order have no probabilities: their
    log-probability is NaN, and estimators refuse the step that leads there. Fields are
    those of `AbstractCuts`.
    """

    decreasing: ClassVar[tuple[str, ...]] = ("intercept",)

    @property
    def link_variance(self) -> float:
        """That of the logistic distribution."""
        return math.pi**2 / 3

    def natural(self, item: GradedItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0) and log P(k) - log P(0), without a difference of probabilities.

        sigmoid(x) - sigmoid(z) = sigmoid(x) sigmoid(-z) (1 - e^(z - x)), and z - x is
        a difference of intercepts, which theta does not enter.
        """
        if self.gaps:
            return self._with_gaps(item, theta)
        eta = predictor(item, theta, self.dims)
        return _graded_terms(eta, jnp.diff(item.intercept))

    def _with_gaps(self, item: GradedItems, theta: Array) -> tuple[Array, ...]:
        """As `natural`; P(y >= k) of a closed category k is that of the next one."""
        intercept, exists = filled(item.intercept), open_categories(item.intercept)
        eta = predictor(item._replace(intercept=intercept), theta, self.dims)
        steps = jnp.where(exists[1:-1], jnp.diff(intercept), -1)
        base, *rest = _graded_terms(eta, steps)
        return of_open(jnp.stack([base, *(base + x for x in rest)]), exists)

    def start(self, means: tuple[Array, ...], slope: Array) -> GradedItems:
        """Intercepts that give the observed cumulative shares."""
        slope = start_slope(slope, self.slopes)
        return GradedItems(slope, _cumulative_logits(means, slope))


class SpacedItems(NamedTuple):
    """a, d, the mean of d_1 ... d_{C-1}, and the distances d_h - d_{h+1} > 0."""

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    spacing: Float[Array, "*items spacings"]


class SpacedGraded(AbstractOrdered):
    """Graded response by a mean intercept and positive distances of its neighbours.

    The model of `Graded` (Samejima 1969), C >= 3, with intercepts in order whatever the
    coordinates: those may be normal around an estimated mean. Where all items have the
    same distances it is the rating-scale form (Muraki 1990). `slopes` is "positive" or
    "free".
    """

    Items: ClassVar[type] = SpacedItems
    simulated = {"spacing": (0.5, 2.0)}
    slopes: str = eqx.field(static=True, default="positive")

    def __check_init__(self):
        if self.categories < 3:
            raise ValueError(
                f"{self.categories} categories have no distances between intercepts:"
                " use the binary family of the 2pl"
            )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, mean intercept and C - 2 distances."""
        spacing = Parameter("spacing", POSITIVE, size=self.categories - 2)
        return *slope_parameters(self.slopes), Parameter("intercept"), spacing

    def by_intercept(self) -> Graded:
        """The same model, in which each intercept is a parameter of its own."""
        return Graded(self.categories, slopes="positive", codes=self.codes)

    def natural(self, item: SpacedItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0) and log P(k) - log P(0), as `Graded` has them."""
        below = jnp.append(0, jnp.cumsum(item.spacing))
        eta = predictor(item, theta) + jnp.mean(below) - below
        return _graded_terms(eta, -item.spacing)

    def start(self, means: tuple[Array, ...], slope: Array) -> SpacedItems:
        """Distances and mean of intercepts that give the observed cumulative shares."""
        slope = start_slope(slope, self.slopes)
        intercept = _cumulative_logits(means, slope)
        spacing = jnp.maximum(-jnp.diff(intercept, axis=-1), LEAST_START)
        return SpacedItems(slope, jnp.mean(intercept, axis=-1), spacing)


class PartialCredit(AbstractCuts):
    """Generalised partial credit: P(y) ~ exp(y a theta + d_1 + ... + d_y), normalised.

    Muraki (1992), with a = 1 Masters (1982); the intercepts d_h of its steps may come
    in any order. Fields are those of `AbstractCuts`.
    """

    @property
    def link_variance(self) -> float:
        """That of the logistic distribution over C - 1, by which loadings are graded.

        Of the partial credit items nearest to graded ones (Kullback and Leibler), with
        loadings from .4 to .8, 3 to 7 categories and intercepts .8 to 1.8 apart,
        loadings differ by .09 at most; over 1 they would be .1 to .4 smaller.
        """
        return math.pi**2 / 3 / (self.categories - 1)

    def natural(self, item: GradedItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0), and log P(k) - log P(0) = k a theta + d_1 + ... + d_k."""
        eta = predictor(item, theta, self.dims)
        if self.gaps:
            odds = jnp.cumsum(jnp.where(is_mark(item.intercept), 0, eta))
            exists = open_categories(item.intercept)
            odds = jnp.where(
                exists, jnp.concatenate([jnp.zeros(1, odds.dtype), odds]), -jnp.inf
            )
            return of_open(odds - jax.nn.logsumexp(odds), exists)
        steps = jnp.cumsum(eta)
        return -jax.nn.logsumexp(jnp.append(steps, 0)), *steps

    def _without(self, intercept: np.ndarray, exists: np.ndarray) -> np.ndarray:
        """A step over closed categories is the sum of the steps over each."""
        odds = np.cumsum(intercept, axis=1)
        last, steps = np.zeros(len(odds), odds.dtype), np.array(intercept)
        for h, here in enumerate(exists[:, 1:].T):
            steps[:, h] = odds[:, h] - last
            last = np.where(here, odds[:, h], last)
        return steps

    def start(self, means: tuple[Array, ...], slope: Array) -> GradedItems:
        """Intercepts that give the observed shares to a subject of mean ability."""
        steps = jnp.diff(jnp.log(category_shares(means)), axis=-1)
        return GradedItems(start_slope(slope, self.slopes), steps)
