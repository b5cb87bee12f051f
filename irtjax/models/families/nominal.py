"""Nominal responses: categories 0, 1, ..., C - 1 without a given order (Bock 1972).

Bock's model gives category k the log odds a_k theta + c_k against category 0. Here the
slopes a_k are a common discrimination times scoring coefficients,

    a_k = a s_k,   c_k = d s_k + e_k,   s_0 = e_0 = c_0 = 0,  s_{C-1} = C - 1,
    e_{C-1} = 0,

so that ability enters through a theta + d only, as every estimator requires. The map
between (a, d, s, e) and Bock's slopes and intercepts is one to one where category
C - 1 has another slope than category 0. With s_k = k it is generalised partial credit.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.models.families.graded import AbstractOrdered, category_shares
from irtjax.models.predictor import predictor, slope_parameters, start_slope
from irtjax.numerics.bijections import Parameter


class NominalItems(NamedTuple):
    """Item parameters: a, d, s_1 ... s_{C-2} and e_1 ... e_{C-2} as in the module."""

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]  # first and last are equally likely at -d / a
    scoring: Float[Array, "*items inner"]
    offset: Float[Array, "*items inner"]
    category_slope: Float[Array, "*items upper"]  # Bock's a_1 ... a_{C-1}
    category_intercept: Float[Array, "*items upper"]  # Bock's c_1 ... c_{C-1}


class Nominal(AbstractOrdered):
    """Nominal response: P(y = k) ~ exp(s_k (a theta + d) + e_k), normalised.

    Number the categories so that able subjects choose the last one rather than the
    first. Mirroring ability changes the sign of a alone. Expected responses are mean
    category numbers, as the accuracies of the table are. C >= 3; `slopes` is "free" or
    "positive".
    """

    Items: ClassVar[type] = NominalItems
    simulated = {"scoring": (0.5, 1.5), "offset": (-0.5, 1.0)}
    integrable: ClassVar[bool] = False
    slopes: str = eqx.field(static=True, default="free")

    def __check_init__(self):
        if self.categories < 3:
            raise ValueError("two categories have no inner one to score: use the 2pl")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept, and C - 2 scoring coefficients and offsets."""
        inner = (Parameter(name, size=self.categories - 2) for name in self.simulated)
        return *slope_parameters(self.slopes), Parameter("intercept"), *inner

    def complete(self, fields: dict[str, Array]) -> NominalItems:
        """Adds Bock's slopes and intercepts of the categories 1 ... C - 1."""
        last = jnp.zeros_like(fields["offset"][..., :1])
        scoring = jnp.append(fields["scoring"], last + self.categories - 1, axis=-1)
        slope = fields["discrimination"][..., None] * scoring
        intercept = fields["intercept"][..., None] * scoring
        intercept = intercept + jnp.append(fields["offset"], last, axis=-1)
        own = {"category_slope": slope, "category_intercept": intercept}
        return NominalItems(**fields, **own)

    def natural(self, item: NominalItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0), and log P(k) - log P(0) = s_k (a theta + d) + e_k."""
        eta = predictor(item, theta)
        odds = item.scoring * eta + item.offset
        odds = jnp.append(odds, (self.categories - 1) * eta)
        return -jax.nn.logsumexp(jnp.append(odds, 0)), *odds

    def start(self, means: tuple[Array, ...], slope: Array) -> NominalItems:
        """Generalised partial credit with the observed shares at mean ability."""
        odds = jnp.log(category_shares(means))
        odds = odds[:, 1:] - odds[:, :1]
        intercept = odds[:, -1] / (self.categories - 1)
        scoring = jnp.arange(1, self.categories - 1, dtype=odds.dtype)
        offset = odds[:, :-1] - scoring * intercept[:, None]
        fields = {"intercept": intercept, "offset": offset}
        fields["discrimination"] = start_slope(slope, self.slopes)
        fields["scoring"] = jnp.broadcast_to(scoring, offset.shape)
        return self.complete(fields)
