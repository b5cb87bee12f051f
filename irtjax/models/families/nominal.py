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

from irtjax.models.families.graded import LEAST_SLOPE, AbstractOrdered, category_shares
from irtjax.models.predictor import predictor
from irtjax.numerics.bijections import IDENTITY, POSITIVE, Parameter


class NominalItems(NamedTuple):
    """Item parameters of the nominal family.

    Attributes:
        discrimination: a, `[items]`: the slope of the last category against the first,
            divided by C - 1.
        intercept: d, `[items]`. The first and the last category are equally likely at
            ability -d / a, the difficulty.
        scoring: s_1 ... s_{C-2}, `[items, C - 2]`.
        offset: e_1 ... e_{C-2}, `[items, C - 2]`.
        category_slope: Bock's a_1 ... a_{C-1}, `[items, C - 1]`.
        category_intercept: Bock's c_1 ... c_{C-1}, `[items, C - 1]`.
    """

    discrimination: Float[Array, "*items"]
    intercept: Float[Array, "*items"]
    scoring: Float[Array, "*items inner"]
    offset: Float[Array, "*items inner"]
    category_slope: Float[Array, "*items upper"]
    category_intercept: Float[Array, "*items upper"]


class Nominal(AbstractOrdered):
    """Nominal response: P(y = k) ~ exp(s_k (a theta + d) + e_k), normalised.

    Number the categories so that able subjects choose the last one rather than the
    first. Mirroring ability changes the sign of a alone. Expected responses are mean
    category numbers, as the accuracies of the table are.

    Attributes:
        categories: C, the number of categories, at least 3.
        slopes: "free", or "positive" to keep discriminations above 0.

    >>> fields = {"discrimination": 1.0, "intercept": 0.0, "scoring": [1.5]}
    >>> fields = {k: jnp.asarray(v) for k, v in fields.items()}
    >>> item = Nominal(3).complete({**fields, "offset": jnp.array([0.0])})
    >>> item.category_slope.tolist()
    [1.5, 2.0]
    """

    Items: ClassVar[type] = NominalItems
    simulated = {"scoring": (0.5, 1.5), "offset": (-0.5, 1.0)}  # noqa: RUF012
    categories: int = eqx.field(static=True)
    slopes: str = eqx.field(static=True, default="free")

    def __check_init__(self):
        if self.categories < 3:
            raise ValueError("two categories have no inner one to score: use the 2pl")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Discrimination, intercept, and C - 2 scoring coefficients and offsets."""
        bijection = POSITIVE if self.slopes == "positive" else IDENTITY
        inner = (Parameter(name, size=self.categories - 2) for name in self.simulated)
        return Parameter("discrimination", bijection), Parameter("intercept"), *inner

    def complete(self, fields: dict[str, Array]) -> NominalItems:
        """Adds Bock's slopes and intercepts of the categories 1 ... C - 1."""
        last = jnp.zeros_like(fields["offset"][..., :1])
        scoring = jnp.append(fields["scoring"], last + self.categories - 1, axis=-1)
        slope = fields["discrimination"][..., None] * scoring
        intercept = fields["intercept"][..., None] * scoring
        intercept = intercept + jnp.append(fields["offset"], last, axis=-1)
        return NominalItems(
            **fields, category_slope=slope, category_intercept=intercept
        )

    def natural(self, item: NominalItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0), and log P(k) - log P(0) = s_k (a theta + d) + e_k."""
        eta = predictor(item, theta)
        odds = item.scoring * eta + item.offset
        odds = jnp.append(odds, (self.categories - 1) * eta)
        return -jax.nn.logsumexp(jnp.append(odds, 0)), *odds

    def start(self, means: tuple[Array, ...], slope: Array) -> NominalItems:
        """Generalised partial credit with the observed shares at mean ability."""
        if self.slopes == "positive":
            slope = jnp.maximum(slope, LEAST_SLOPE)
        odds = jnp.log(category_shares(means))
        odds = odds[:, 1:] - odds[:, :1]
        intercept = odds[:, -1] / (self.categories - 1)
        scoring = jnp.arange(1, self.categories - 1, dtype=odds.dtype)
        offset = odds[:, :-1] - scoring * intercept[:, None]
        fields = slope, intercept, jnp.broadcast_to(scoring, offset.shape), offset
        names = (parameter.name for parameter in self.parameters)
        return self.complete(dict(zip(names, fields, strict=True)))
