"""A test under way: arrays of fixed size, so that one program serves every item."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray

#: What a subject did with one item: a PyTree of scalars, of the form of `blank`.
Observation = Any
#: What a test stores of its observations: a PyTree of scalars.
Memory = Any
#: What is known of the abilities: log weights of nodes, or a normal distribution.
Posterior = Any


class State(NamedTuple):
    """A test under way."""

    num_given: Int[Array, ""]  # number of items with a response
    items: Int[Array, " num_items"]  # in the order given, 0 beyond `num_given`
    observations: Observation  # what was observed of each, leading axis as `items`
    available: Bool[Array, " items"]  # whether each item may still be given
    posterior: Posterior
    ability: Float[Array, ""]  # the score so far
    standard_error: Float[Array, ""]
    merit: Float[Array, " items"] | None  # of each item, by the rule of selection
    information: Float[Array, " items"] | None  # at the ability, if a rule needs it
    worth: Float[Array, ""] | None  # best decrease of the expected loss per cost
    memory: Memory  # what the bank stores with the posterior
    priority: Float[Array, " items"] | None  # of "random", "fixed": the highest is next
    key: KeyArray

    @property
    def given(self) -> Bool[Array, " num_items"]:
        """Whether each place of the test has an item."""
        places = jnp.arange(self.items.shape[0], dtype=self.num_given.dtype)
        return places < self.num_given
