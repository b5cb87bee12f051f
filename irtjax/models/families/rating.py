"""Rating scales: partial credit with the same steps for all items (Andrich 1978)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.models.families.graded import AbstractOrdered, category_shares
from irtjax.models.predictor import predictor
from irtjax.numerics.bijections import Parameter


class RatingItems(NamedTuple):
    """1, minus the item's location, and s_1 ... s_{C-2}, the same for all items.

    The last step is minus their sum. Andrich's thresholds are tau_h = -s_h.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    step: Float[Array, "*items steps"]


class RatingScale(AbstractOrdered):
    """Rating scale: P(y = k) ~ exp(k (theta + d) + s_1 + ... + s_k), normalised.

    Andrich (1978), C >= 3. The steps s_h are common to all items and sum to 0.
    """

    Items: ClassVar[type] = RatingItems
    common: ClassVar[tuple[str, ...]] = ("step",)
    simulated = {"step": (0.0, 1.0)}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Intercept and C - 2 steps."""
        return Parameter("intercept"), Parameter("step", size=self.categories - 2)

    def complete(self, fields: dict[str, Array]) -> RatingItems:
        """Adds the slopes of 1."""
        return RatingItems(jnp.ones_like(fields["intercept"]), **fields)

    def natural(self, item: RatingItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0), and log P(k) - log P(0) = k (theta + d) + s_1 + ... + s_k."""
        steps = jnp.append(item.step, -jnp.sum(item.step))
        terms = jnp.cumsum(predictor(item, theta) + steps)
        return -jax.nn.logsumexp(jnp.append(terms, 0)), *terms

    def start(self, means: tuple[Array, ...], slope: Array) -> RatingItems:
        """The mean and the common part of the steps that give the observed shares."""
        steps = jnp.diff(jnp.log(category_shares(means)), axis=-1)
        level = jnp.mean(steps, axis=-1)
        common = jnp.mean(steps - level[:, None], axis=0)[:-1]
        steps = jnp.broadcast_to(common, (*level.shape, *common.shape))
        return RatingItems(jnp.ones_like(slope), level, steps)
