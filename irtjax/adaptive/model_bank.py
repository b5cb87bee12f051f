"""Banks of the items of a response model, of one ability or of several.

The rules are written once, for curves of one number for each item (`adaptive.curves`).
What the responses so far imply of the abilities is a table at nodes of one ability
(`adaptive.item_bank`), and a normal distribution of several (`adaptive.normal_bank`).
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.adaptive import merits
from irtjax.adaptive.bank import AbstractBank
from irtjax.adaptive.curves import Curves, next_log_probs
from irtjax.adaptive.repeats import (
    Repeats,
    expected_shares,
    next_information,
    next_log_prob,
)
from irtjax.adaptive.state import Memory, Observation, State
from irtjax.data.responses import Responses
from irtjax.models.family import Items
from irtjax.models.model import Model

#: Rules of selection that integrate over abilities around the estimate.
INTEGRALS = ("mutual_information", "kl")


class AbstractModelBank(AbstractBank):
    """The items of one model of responses; an observation is a response, int32.

    Errors of the items are integrated out of their curves ("flat" ones), by which
    subjects respond and items are selected too. Responses to one item share its error:
    with repeats the curves are those of the estimates, and standard errors count the
    errors of items by the delta method.
    """

    repeatable: ClassVar[bool] = True

    model: eqx.AbstractVar[Model]
    items: eqx.AbstractVar[Items]

    @abstractmethod
    def curves(self, theta: Array, at: Any = slice(None), flat: bool = True) -> Curves:
        """Curves of the items `at` positions, at the abilities of one subject."""

    @abstractmethod
    def around(self, select: str, state: State) -> tuple[Array, Array, Array]:
        """What a rule of `INTEGRALS` sums over, for first responses to items.

        Returns:
            Log-probabilities `[items, categories, nodes]`, weights `[nodes]`, and
            abilities at the centre.
        """

    def with_items(
        self, items: Any, order: np.ndarray | None = None
    ) -> AbstractModelBank:
        """A bank that draws responses by other, exact items; it scores nothing by them.

        Args:
            items: Item records.
            order: `[items]` positions of these items in this bank; None: the same.
        """
        changes: Any = {"items": items, "errors": None}
        return dataclasses.replace(self, **changes)

    def responses_of(self, observations: Any, observed: Array) -> Responses:
        """Observations `[subjects, items]` as data; `observed` masks them."""
        return Responses(observations.astype(jnp.int8), observed)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return jnp.shape(self.items[0])[0]

    @property
    def num_categories(self) -> int:
        """Number of categories of a response."""
        return self.model.family.num_categories

    @property
    def category_codes(self) -> tuple[int, ...]:
        """The response that each category is."""
        return self.model.family.category_codes

    @property
    def blank(self) -> Observation:
        """A response, int32."""
        return jnp.zeros((), jnp.int32)

    def log_probs(
        self, theta: Array, flat: bool = True
    ) -> Float[Array, "items categories"]:
        """Log-probabilities of first responses to all items at abilities."""
        return self.curves(theta, flat=flat).log_probs()

    def information(self, theta: Array, flat: bool = True) -> Float[Array, " items"]:
        """Fisher information of each item about its place (`Curves`) at abilities."""
        return self.curves(theta, flat=flat).information()

    def right(self, theta: Array) -> Float[Array, " items"]:
        """Probability of a first right response, items at their estimates."""
        return jnp.exp(self.log_probs(theta, flat=False)[:, 1])

    def gain(self, theta: Array, memory: Memory) -> Float[Array, " items"]:
        """The information of the next response to each item."""
        if not isinstance(memory, Repeats):
            return self.information(theta)
        share = next_information(self.right(theta), memory)
        return self.information(theta, flat=False) * share

    def shares(self, design: Any, theta: Array) -> Float[Array, "items repeats"]:
        """Information of each response to an item over that of the first."""
        if design.repeats == 1:
            return super().shares(design, theta)
        return expected_shares(self.right(theta), design.repeats, design.icc)

    def merit(self, select: str, state: State) -> Float[Array, " items"]:
        """What each item adds by a rule (`merits`): information, or an integral."""
        if select not in INTEGRALS:
            return self.gain(state.ability, state.memory)
        log_probs, weight, center = self.around(select, state)
        log_probs = next_log_probs(log_probs, state.memory)
        if select == "mutual_information":
            return merits.mutual_information(log_probs, weight)
        flat = not isinstance(state.memory, Repeats)
        here = next_log_probs(self.log_probs(center, flat), state.memory)
        return merits.kullback_leibler(log_probs, weight, here)

    def sample(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory = ()
    ) -> Array:
        """A random response to one item, given those before to it, int32."""
        if not isinstance(memory, Repeats):
            logits = self.curves(theta, item).log_probs()
        else:
            first = self.curves(theta, item, flat=False).log_probs()
            counts = jnp.stack([memory.counts(y)[item] for y in range(2)])
            logits = next_log_prob(first, counts, memory.times[item], memory.odds)
        return jax.random.categorical(key, logits).astype(jnp.int32)

    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory
    ) -> Observation:
        """A random response, given those before to the same item."""
        return self.sample(item, theta, key, memory)


def of_several(items: Any) -> bool:
    """Whether item records are of several abilities, with a discrimination of each."""
    return jnp.ndim(items.discrimination) > 1


def check_categories(model: Model) -> None:
    """Refuses models of scores, of which no next response can be listed.

    Raises:
        ValueError: With the cure.
    """
    if not model.family.num_categories:
        raise ValueError(
            f"a {model.name} model has scores and no categories, among which"
            " adaptive tests choose: fit a model of right and wrong responses"
        )


def check_items(model: Model, values: Any) -> None:
    """Refuses an item with a NaN among its `[items, ...]` values.

    Raises:
        ValueError: With the first such item and the cure.
    """
    bad = np.isnan(np.asarray(values)).reshape(len(values), -1).any(axis=1)
    if bad.any():
        raise ValueError(
            f"item {bad.argmax() + 1} of the bank has no probabilities under the"
            f" model {model.name}: its parameters are not finite or out of order;"
            " leave it out"
        )
