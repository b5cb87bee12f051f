"""Nominal responses: categories 0, 1, ..., C - 1 without a given order (Bock 1972).

Bock's model gives category k the log odds a_k theta + c_k against category 0. Here the
slopes a_k are a common discrimination times scoring coefficients,

    a_k = a s_k,   c_k = d s_k + e_k,   s_0 = e_0 = c_0 = 0,  s_{C-1} = C - 1,
    e_{C-1} = 0,

so that ability enters through a theta + d only, as every estimator requires. The map
between (a, d, s, e) and Bock's slopes and intercepts is one to one where category
C - 1 has another slope than category 0. With s_k = k it is generalised partial credit.

An item that lacks categories (`graded`) has marks among its offsets e: minus `CLOSED`
for a category that it lacks; if it lacks category 0, plus `CLOSED` for its first one,
with s = e = 0; if it lacks category C - 1, twice that for its last one, which has e = 0
and s one less than the item's number of categories.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtjax.models.families.graded import (
    CLOSED,
    AbstractOrdered,
    category_shares,
    is_mark,
    of_open,
)
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


#: Where the mark of a first category ends and that of a last one begins.
_BETWEEN = 1.5 * CLOSED


class _Odds(NamedTuple):
    """Scoring and offset of every category of an item, and which categories it has."""

    scoring: Float[Array, "*items categories"]
    offset: Float[Array, "*items categories"]
    exists: Bool[Array, "*items categories"]


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
    closable: ClassVar[bool] = True
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
        odds = self._odds(fields["scoring"], fields["offset"])
        slope = fields["discrimination"][..., None] * odds.scoring
        intercept = fields["intercept"][..., None] * odds.scoring + odds.offset
        slope, intercept = slope[..., 1:], intercept[..., 1:]
        if self.gaps:
            intercept = jnp.where(odds.exists[..., 1:], intercept, -CLOSED)
        own = {"category_slope": slope, "category_intercept": intercept}
        return NominalItems(**fields, **own)

    def natural(self, item: NominalItems, theta: Array) -> tuple[Array, ...]:
        """Log P(0), and log P(k) - log P(0) = s_k (a theta + d) + e_k."""
        eta = predictor(item, theta)
        scoring, offset, exists = self._odds(item.scoring, item.offset)
        odds = scoring * eta + offset
        if self.gaps:
            odds = jnp.where(exists, odds, -jnp.inf)
            return of_open(odds - jax.nn.logsumexp(odds), exists)
        return -jax.nn.logsumexp(odds), *odds[1:]

    def _odds(self, scoring: Array, offset: Array) -> _Odds:
        """Of the categories 0 ... C - 1, without their marks."""
        zero = jnp.zeros_like(offset[..., :1])
        exists, top = jnp.ones((*zero.shape[:-1], self.categories), bool), zero
        top = top + self.categories - 1
        if self.gaps:
            first = (offset > CLOSED / 2) & (offset < _BETWEEN)
            last, lacks = offset > _BETWEEN, offset < -CLOSED / 2
            some = lambda marks: ~jnp.any(marks, axis=-1, keepdims=True)
            exists = jnp.concatenate([some(first), ~lacks, some(last)], axis=-1)
            top = jnp.sum(exists, axis=-1, keepdims=True).astype(zero.dtype) - 1
            scoring = jnp.where(is_mark(offset), jnp.where(last, top, 0), scoring)
            offset = jnp.where(is_mark(offset), 0, offset)
        scoring = jnp.concatenate([zero, scoring, top], axis=-1)
        return _Odds(scoring, jnp.concatenate([zero, offset, zero], axis=-1), exists)

    def in_use(self, item: NominalItems, name: str) -> Array | bool:
        """Numbers are those of the categories that an item has."""
        if not self.gaps:
            return True
        if name in self.simulated:
            return ~is_mark(item.offset)
        exists = self._odds(item.scoring, item.offset).exists[..., 1:]
        return exists if name.startswith("category") else True

    def existing(self, items: NominalItems) -> np.ndarray:
        """By the marks of offsets."""
        parts = (jnp.asarray(x) for x in (items.scoring, items.offset))
        return np.asarray(self._odds(*parts).exists)

    def close(self, items: NominalItems, exists: np.ndarray) -> tuple[Any, np.ndarray]:
        """Partial credit of the categories there are, marks of the others."""
        steps = np.asarray(items.category_intercept, float)
        odds = np.concatenate([np.zeros((len(steps), 1)), steps], axis=1)
        place, inner = np.arange(self.categories), np.s_[:, 1:-1]
        rank = np.cumsum(exists, axis=1) - 1
        first = exists & (rank == 0)
        last = exists & (rank == exists.sum(1, keepdims=True) - 1)
        odds = odds - odds[first][:, None]
        level = odds[last] / rank[last]
        offset = odds - rank * level[:, None]
        lowest, highest = (first & (place > 0)), (last & (place < self.categories - 1))
        marks = np.select([lowest, highest, ~exists], [CLOSED, 2 * CLOSED, -CLOSED])
        offset = np.where(marks != 0, marks, offset)[inner]
        dtype = np.asarray(items.offset).dtype
        fields = {"discrimination": items.discrimination, "intercept": level}
        fields |= {"scoring": rank[inner], "offset": offset}
        made = {name: jnp.asarray(x, dtype) for name, x in fields.items()}
        free = np.array(self.free_columns(len(exists)))
        for name in self.simulated:
            free[:, list(self._columns_of(name))] &= (marks == 0)[inner]
        return self.complete(made), free

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
