"""Item banks: what a test needs of its items, computed once.

A bank gives a test three things: the information of each item at an ability, how
probable an observation is, and which one a subject might make. An observation is any
PyTree of scalars, so that it may have more than the response, such as its length.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.likelihood.quadrature import REACH, nodes_for
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import equal_nodes, normal_log_weights
from irtjax.scoring.information import item_information

#: What a subject did with one item: a PyTree of scalars, of the form of `blank`.
Observation = Any
#: What a test stores of its observations: a PyTree of scalars.
Memory = Any


class AbstractBank(eqx.Module):
    """Items with known parameters, and the population that subjects come from.

    Only `information` determines what is selected, only `log_prob` and `node_log_probs`
    what is estimated: a model of several measures (a response and its length, for
    example) adds their informations in the one and their log-likelihoods in the others.
    """

    theta: Float[Array, " nodes"]  # abilities of posteriors, equally spaced
    log_prior: Float[Array, " nodes"]  # log weights of the population, summing to one
    mean: Float[Array, ""]  # of the population
    sd: Float[Array, ""]  # of the population

    @property
    @abstractmethod
    def num_items(self) -> int:
        """Number of items."""

    @property
    @abstractmethod
    def blank(self) -> Observation:
        """An observation of the right form and dtypes, whatever its values."""

    @abstractmethod
    def information(self, theta: Array) -> Float[Array, " items"]:
        """Fisher information of every item about ability at one ability."""

    @abstractmethod
    def log_prob(self, item: Array, observation: Observation, theta: Array) -> Array:
        """Log-likelihood of one observation of one item at one ability."""

    @abstractmethod
    def sample(self, item: Array, theta: Array, key: KeyArray) -> Observation:
        """A random observation of one item at one ability."""

    def node_log_probs(self, item: Array, observation: Observation) -> Array:
        """Log-likelihood of one observation at every node, `[nodes]`."""
        return jax.vmap(lambda node: self.log_prob(item, observation, node))(self.theta)

    # Where observations are not independent given ability, a test stores more of them
    # than the posterior; most banks leave these as they are.

    @property
    def memory(self) -> Memory:
        """What a test stores before its first item."""
        return ()

    def remember(self, memory: Memory, item: Array, observation: Observation) -> Memory:
        """The memory with one more observation."""
        return memory

    def log_memory(self, memory: Memory, theta: Array) -> Array:
        """What the memory adds to the log-likelihood of an ability."""
        return jnp.zeros_like(theta)

    def gain(self, theta: Array, memory: Memory) -> Float[Array, " items"]:
        """What selection maximises: the information of each item, given the memory."""
        return self.information(theta)

    def draw(
        self, item: Array, theta: Array, key: KeyArray, memory: Memory
    ) -> Observation:
        """A random observation given ability and memory."""
        return self.sample(item, theta, key)

    def observe(self, category: int, length: Any = None) -> Observation:
        """The observation of a response, with its length if the bank models lengths."""
        if length is not None:
            raise ValueError("the bank has no model of response lengths: leave it out")
        return jnp.asarray(category, jnp.int32)

    def response_of(self, observation: Observation) -> Array:
        """The response in an observation, or in an array of them."""
        return observation


class ItemBank(AbstractBank):
    """The items of one model of responses; build it with `ItemBank.create`.

    An observation is a response, one of the model's categories. What it adds to a
    posterior is a row of the table.

    >>> from irtjax.models.catalogue import two_parameter
    >>> from irtjax.models.simulate import simulate_items
    >>> model = two_parameter()
    >>> items = simulate_items(model, 40, jax.random.key(0))
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> bank = ItemBank.create(model, items, unit, num_items=10)
    >>> bank.table.shape
    (40, 2, 61)
    """

    model: Model
    items: Items
    table: Float[Array, "items categories nodes"]  # log-probabilities
    histogram: bool = eqx.field(static=True, default=False)  # of the population

    @classmethod
    def create(
        cls,
        model: Model,
        items: Items,
        population: Population,
        *,
        num_items: int | None = None,
        nodes: Float[Array, " nodes"] | np.ndarray | None = None,
        extra_precision: float = 0.0,
    ) -> ItemBank:
        """Computes the tables of a bank, in the dtype of its items. On the host.

        Args:
            model: The model; its abilities have one dimension.
            items: Item records, `[items]`.
            population: Population of ability, the prior of every subject.
            num_items: Length of the longest test, which determines how narrow a
                posterior the nodes must resolve; None for the whole bank.
            nodes: `[nodes]` standardised nodes, equally spaced; None chooses them from
                the most informative items. A histogram population has its own.
            extra_precision: Most precision of ability from other sources.

        Raises:
            ValueError: If the model is of scores, nodes do not suit a histogram, or an
                item has no probabilities (parameters not finite, or out of order).
        """
        if not model.family.num_categories:
            raise ValueError(
                f"a {model.name} model has scores and no categories, among which"
                " adaptive tests choose: fit a model of right and wrong responses"
            )
        items = jax.tree.map(jnp.asarray, items)
        dtype = items[0].dtype
        mean, sd = (jnp.asarray(x, dtype) for x in (population.mean, population.sd))
        log_weights = population.log_weights
        if nodes is None and log_weights is not None:
            nodes = equal_nodes(-REACH, REACH, log_weights.shape[0])
        elif nodes is None:
            nodes = _choose_nodes(model, items, mean, sd, num_items, extra_precision)
        nodes = jnp.asarray(nodes, dtype)
        if log_weights is None:
            log_prior = normal_log_weights(nodes)
        elif log_weights.shape == nodes.shape:
            log_prior = jax.nn.log_softmax(jnp.asarray(log_weights)).astype(dtype)
        else:
            raise ValueError(
                f"the population is a histogram on {log_weights.shape[0]} nodes, but"
                f" {nodes.shape[0]} nodes were given; pass those it was estimated on"
            )
        theta = mean + sd * nodes
        table = _table_jit(model, items, theta)
        # Minus infinity is the log of a probability that underflows; NaN is none.
        bad = np.isnan(np.asarray(table)).any((1, 2))
        if bad.any():
            raise ValueError(
                f"item {bad.argmax() + 1} of the bank has no probabilities under the"
                f" model {model.name}: its parameters are not finite or out of order;"
                " leave it out"
            )
        histogram = log_weights is not None
        return cls(theta, log_prior, mean, sd, model, items, table, histogram)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return self.table.shape[0]

    @property
    def blank(self) -> Observation:
        """A response, int32."""
        return jnp.zeros((), jnp.int32)

    def information(self, theta: Array) -> Float[Array, " items"]:
        """Fisher information of every item at one ability, `[items]`."""
        family = self.model.family
        return jax.vmap(family.information, in_axes=(0, None))(self.items, theta)

    def log_prob(self, item: Array, observation: Observation, theta: Array) -> Array:
        """Log-probability of a response to one item at one ability."""
        return self._log_probs(item, theta)[observation]

    def sample(self, item: Array, theta: Array, key: KeyArray) -> Array:
        """A random response to one item at one ability, int32."""
        drawn = jax.random.categorical(key, self._log_probs(item, theta))
        return drawn.astype(jnp.int32)

    def node_log_probs(self, item: Array, observation: Observation) -> Array:
        """A row of the table, `[nodes]`."""
        return self.table[item, observation]

    def _log_probs(self, item: Array, theta: Array) -> Float[Array, " categories"]:
        record = jax.tree.map(lambda array: array[item], self.items)
        return self.model.family.category_log_probs(record, theta)


@jax.jit
def _table_jit(model: Model, items: Items, theta: Array) -> Array:
    one = model.family.category_log_probs
    over_nodes = jax.vmap(one, in_axes=(None, 0), out_axes=1)
    return jax.vmap(over_nodes, in_axes=(0, None))(items, theta)


def _choose_nodes(model, items, mean, sd, num_items, extra: float) -> np.ndarray:
    """Nodes fine enough for the narrowest posterior a test of this length can give."""
    theta = float(mean) + float(sd) * np.linspace(-4, 4, 65)
    information = item_information(model, items, jnp.asarray(theta, items[0].dtype))
    information = np.nan_to_num(np.asarray(information, float), nan=0.0, posinf=0.0)
    # No test of that length has more information than the best items at an ability.
    best = -np.sort(-information, axis=1)[:, :num_items]
    largest = best.sum(axis=1).max(initial=0.0) + extra
    return nodes_for(1 / math.sqrt(1 + largest * float(sd) ** 2))
