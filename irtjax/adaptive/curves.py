"""Response curves of the items of a bank, at an ability.

A response depends on several abilities through the product a_j'theta of its item alone:
it is that of an item of one ability with a slope of 1. So curves are functions of one
number for each item, the ability or the product, whatever the number of abilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.adaptive.repeats import Repeats, next_log_prob
from irtjax.adaptive.state import Memory


class Curves(NamedTuple):
    """Curves of items, or of one item, at a place each.

    Attributes:
        family: A response family of one ability.
        records: Item records of it.
        place: The ability, or the product with it, of each item.
    """

    family: Any
    records: Any
    place: Float[Array, "*items"]

    def _each(self, function: Any) -> Any:
        """The value of a function of a record and its place, for each item."""
        function = jax.vmap(function) if jnp.ndim(self.place) else function
        return function(self.records, self.place)

    def log_probs(self) -> Float[Array, "*items categories"]:
        """Log-probabilities of responses."""
        return self._each(self.family.category_log_probs)

    def information(self) -> Float[Array, "*items"]:
        """Fisher information about the place."""
        return self._each(self.family.information)

    def expected(self) -> tuple[Array, Array]:
        """Expected responses and their slopes, each `[items]`."""
        at = lambda place: self._replace(place=place)._each(
            self.family.expected_response
        )
        return jax.jvp(at, (self.place,), (jnp.ones_like(self.place),))

    def around(
        self, distance: Float[Array, "items nodes"]
    ) -> Float[Array, "items categories nodes"]:
        """Log-probabilities at places around these, `distance` away."""
        over_nodes = jax.vmap(self.family.natural, (None, 0))
        places = self.place[:, None] + distance
        base, *rest = jax.vmap(over_nodes)(self.records, places)
        codes = jnp.asarray(self.family.category_codes)
        kinds = [x.astype(base.dtype) for x in self.family.statistics(codes)]
        # One category at a time: a short last axis of them is several times slower.
        each = [
            base + sum(k[y] * g for k, g in zip(kinds, rest, strict=True))
            for y in range(self.family.num_categories)
        ]
        return jnp.stack(each, axis=1)


def next_log_probs(
    log_probs: Float[Array, "items categories *nodes"], memory: Memory
) -> Float[Array, "items categories *nodes"]:
    """Log-probabilities of the next response, from those of a first one."""
    if not isinstance(memory, Repeats):
        return log_probs
    wide = lambda x: x.reshape(-1, *[1] * (log_probs.ndim - 2))
    times, parts = wide(memory.times), []
    for y in range(2):
        equal = wide(memory.counts(y))
        parts.append(next_log_prob(log_probs[:, y], equal, times, memory.odds))
    return jnp.stack(parts, axis=1)
