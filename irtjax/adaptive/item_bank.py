"""The bank of a model of one ability, with errors of items and repeated responses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.adaptive import merits
from irtjax.adaptive.bank import reproducible
from irtjax.adaptive.curves import Curves, next_log_probs
from irtjax.adaptive.model_bank import (
    AbstractModelBank,
    check_categories,
    check_items,
    of_several,
)
from irtjax.adaptive.node_bank import AbstractNodeBank
from irtjax.adaptive.repeats import (
    Repeats,
    before_each,
    logit_slope,
    next_log_prob,
)
from irtjax.adaptive.state import Observation, Posterior, State
from irtjax.data.responses import Responses
from irtjax.inference import score
from irtjax.inference.information import item_information
from irtjax.inference.scale_error import scale_variance, with_scale_error
from irtjax.likelihood.quadrature import REACH, nodes_for
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.models.predictive import Predictive, UncertainItems, with_errors
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.precision import full_precision


class ItemBank(AbstractModelBank, AbstractNodeBank):
    """The items of a model of one ability; build it with `ItemBank.create`.

    What a response adds to a posterior is a row of the table. Errors of the items are
    integrated out of the table (`models.predictive`); their information at an ability
    is then linear between nodes.

    >>> from irtjax.models.catalogue import two_parameter
    >>> from irtjax.models.simulate import simulate_items
    >>> model = two_parameter()
    >>> items = simulate_items(model, 40, jax.random.key(0))
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> bank = ItemBank.create(model, items, unit, num_items=10)
    >>> bank.table.shape
    (40, 2, 61)
    """

    selections: ClassVar[tuple[str, ...]] = (
        "information",
        "mutual_information",
        "kl",
        "score",
    )
    decides: ClassVar[bool] = True

    model: Model
    items: Items
    table: Float[Array, "items categories nodes"]  # log-probabilities
    histogram: bool = eqx.field(static=True, default=False)  # of the population
    errors: UncertainItems | None = None  # None: the items are exact
    at_nodes: Float[Array, "nodes items"] | None = None  # information, with errors
    scale: Float[Array, "2 2"] | None = None  # V of `inference.scale_error`
    #: With errors and repeats, `Predictive.logit_moves`.
    moves: Float[Array, "items columns nodes"] | None = None

    @classmethod
    def create(
        cls,
        model: Model,
        items: Items,
        population: Population,
        *,
        num_items: int | None = None,
        repeats: int = 1,
        nodes: Float[Array, " nodes"] | np.ndarray | None = None,
        extra_precision: float = 0.0,
        covariance: Any = None,
        scale: Float[Array, "2 2"] | np.ndarray | None = None,
    ) -> ItemBank:
        """Computes the tables of a bank, in the dtype of its items. On the host.

        Args:
            model: The model; its abilities have one dimension.
            items: Item records, `[items]`.
            population: Population of ability, the prior of every subject.
            num_items: Length of the longest test, which determines how narrow a
                posterior the nodes must resolve; None for the whole bank.
            repeats: Times that a test may give an item; above 1 errors of items are
                counted by the delta method.
            nodes: `[nodes]` standardised nodes, equally spaced; None chooses them from
                the most informative items. A histogram population has its own.
            extra_precision: Most precision of ability from other sources.
            covariance: `[items, columns, columns]` of the items' unconstrained
                coordinates; None or zeros where they are exact.
            scale: Covariance of the errors of location and scale
                (`inference.scale_error`), which standard errors then count.

        Raises:
            ValueError: If the model is of scores, nodes do not suit a histogram, or an
                item has no probabilities (parameters not finite, or out of order).
        """
        if of_several(items):
            raise ValueError(
                f"an ItemBank is for one ability, and a {model.name} model has"
                " several: use FactorBank"
            )
        check_categories(model)
        items = jax.tree.map(jnp.asarray, items)
        dtype = items[0].dtype
        mean, sd = (jnp.asarray(x, dtype) for x in (population.mean, population.sd))
        curves: Any = model, items
        flat: Any = None
        if covariance is not None and np.any(covariance):
            flat = with_errors(model, items, covariance, population.mean)
            curves = flat if repeats == 1 else curves
        log_weights = population.log_weights
        if nodes is None and log_weights is not None:
            nodes = equal_nodes(-REACH, REACH, log_weights.shape[0])
        elif nodes is None:
            longest = num_items, repeats
            nodes = _choose_nodes(
                curves[0], curves[1], mean, sd, longest, extra_precision
            )
        nodes = jnp.asarray(nodes, dtype)
        log_prior = population.log_weights_at(nodes)
        theta = mean + sd * nodes
        table = _table_jit(*curves, theta)
        check_items(model, table)
        bank = cls(
            theta=theta,
            log_prior=log_prior,
            mean=mean,
            sd=sd,
            model=model,
            items=items,
            table=table,
            histogram=log_weights is not None,
        )
        if curves[1] is not items:
            at_nodes = item_information(*curves, theta)
            bank = dataclasses.replace(bank, errors=curves[1], at_nodes=at_nodes)
        if flat is not None and repeats > 1:
            moves = _moves_jit(flat[0].family, flat[1], theta)
            bank = dataclasses.replace(bank, moves=moves)
        if scale is None or not np.any(scale):
            return bank
        return dataclasses.replace(bank, scale=jnp.asarray(scale, dtype))

    def rebuilt(
        self,
        items: Items,
        covariance: np.ndarray | None,
        counts: np.ndarray,
        repeats: int,
    ) -> ItemBank:
        """A bank of drawn items of the same population and nodes.

        Args:
            items: Item records.
            covariance: `[items, columns, columns]` of their errors; None: exact items.
            counts: `[items]` numbers of responses of their calibration, unused.
            repeats: Responses to an item.
        """
        return ItemBank.create(
            self.model,
            items,
            self.population,
            repeats=repeats,
            nodes=(self.theta - self.mean) / self.sd,
            covariance=covariance,
        )

    @property
    def items_without_errors(self) -> tuple[int, str] | None:
        """Items of zero covariance with repeats; else those not identified."""
        if self.moves is not None:
            exact = ~np.asarray(self.moves).any(axis=(1, 2))
            return int(exact.sum()), "items without errors are taken as known"
        if self.errors is None:
            return None
        identified = np.asarray(self.errors.identified)
        return int(np.sum(~identified)), "no response to such an item counts"

    def identity(self) -> tuple[Any, Any]:
        """Family; items, population, errors of items, location and scale."""
        errors: tuple[Any, ...] = ()
        if self.errors is not None:
            # Roots of one covariance may differ in signs between machines.
            root = np.asarray(self.errors.root, float)
            errors = root @ np.swapaxes(root, 1, 2), self.errors.identified
        elif self.moves is not None:
            errors = (np.sum(np.asarray(self.moves, float) ** 2, axis=1),)
        if self.scale is not None:
            errors += (self.scale,)
        population = self.mean, self.sd
        return self.model.family, (self.items, *population, *map(reproducible, errors))

    @property
    def population(self) -> Population:
        """The population, a histogram on the nodes or normal."""
        histogram = self.log_prior if self.histogram else None
        return Population(self.mean, self.sd, histogram)

    @property
    def _curves(self) -> tuple[Any, Any]:
        """The family and the records that respond, errors of items integrated out."""
        if self.errors is None:
            return self.model.family, self.items
        return Predictive(self.model.family), self.errors

    def _between(self, theta: Array, row: Callable[[Array], Array]) -> Array:
        """A quantity of all items at an ability, linear between its rows by node.

        Errors of items are summed over dozens of points, once for the bank.
        """
        last = self.theta.shape[0] - 1
        place = (theta - self.theta[0]) / (self.theta[1] - self.theta[0])
        node = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, last - 1)
        share = jnp.clip(place - node, 0, 1)
        return (1 - share) * row(node) + share * row(node + 1)

    def curves(self, theta: Array, at: Any = slice(None), flat: bool = True) -> Curves:
        """Curves of items at one ability; those with errors are always flat."""
        family, every = self._curves
        records = jax.tree.map(lambda x: x[at], every)
        shape = records[0].shape[: records[0].ndim - every[0].ndim + 1]
        return Curves(family, records, jnp.broadcast_to(theta, shape))

    def log_probs(
        self, theta: Array, flat: bool = True
    ) -> Float[Array, "items categories"]:
        """Log-probabilities of first responses to all items at one ability."""
        if self.errors is not None:
            return self._between(theta, lambda node: self.table[:, :, node])
        return super().log_probs(theta, flat)

    def whole_variance(self, theta: Array, variance: Array) -> Array:
        """With the errors of location and scale."""
        if self.scale is None:
            return variance
        return with_scale_error(self.scale, theta, variance, (self.mean, self.sd))

    def item_variance(self, state: State) -> Array:
        """With repeats, g' C g of EAP: its change with the items (the delta method).

        The derivative of a posterior mean is the posterior covariance of the ability
        and the derivative of the log-likelihood. A mode takes that of the mean.
        """
        if self.moves is None or not isinstance(state.memory, Repeats):
            return super().item_variance(state)
        slope = logit_slope(jnp.exp(self.table[:, 1]), state.memory)
        posterior = jax.nn.softmax(state.posterior)
        weight = posterior * (self.theta - posterior @ self.theta)
        change = jnp.einsum("jn,jcn->jc", slope * weight, self.moves)
        return jnp.sum(change**2)

    def placed(self, theta: Array, key: KeyArray) -> Array:
        """Abilities on the scale of a calibration whose location and scale err."""
        if self.scale is None:
            return theta
        noise = jax.random.normal(key, theta.shape, theta.dtype)
        return theta + jnp.sqrt(scale_variance(self.scale, theta)) * noise

    def information(self, theta: Array, flat: bool = True) -> Float[Array, " items"]:
        """Fisher information of every item at one ability, `[items]`."""
        rows = self.at_nodes
        if rows is not None:
            return self._between(theta, lambda node: rows[node])
        return super().information(theta, flat)

    def learn(
        self, before: State, after: State, item: Array, observation: Observation
    ) -> Posterior:
        """Log weights plus the log-likelihood of the response, given those before."""
        memory = before.memory
        if not isinstance(memory, Repeats):
            return super().learn(before, after, item, observation)
        first = self.node_log_probs(item, observation)
        equal, times = memory.counts(observation)[item], memory.times[item]
        return before.posterior + next_log_prob(first, equal, times, memory.odds)

    def log_likelihood(self, state: State) -> Callable[[Array], Array]:
        """Log-likelihood of all responses of a test, of an ability.

        With errors of items it is the polynomial through the five nearest nodes, half a
        posterior standard deviation apart.
        """
        memory = state.memory
        if self.errors is not None:
            return lambda theta: self._through_five(theta, state)
        if not isinstance(memory, Repeats):
            return super().log_likelihood(state)
        equal, times = before_each(state.items, state.observations, state.given)

        def log_lik(theta):
            one = lambda item, seen: self.log_prob(item, seen, theta)
            first = jax.vmap(one)(state.items, state.observations)
            cells = next_log_prob(first, equal, times, memory.odds)
            return jnp.sum(jnp.where(state.given, cells, 0))

        return log_lik

    def _through_five(self, theta: Array, state: State) -> Array:
        """The log-likelihood between nodes (Lagrange's formula)."""
        step = self.theta[1] - self.theta[0]
        last = self.theta.shape[0] - 1
        place = jnp.clip((theta - self.theta[0]) / step, 0, last)
        begin = jnp.clip(jnp.round(place).astype(jnp.int32) - 2, 0, last - 4)
        values = lax.dynamic_slice(state.posterior - self.log_prior, (begin,), (5,))
        x, total = place - begin, jnp.zeros_like(theta)
        for k in range(5):
            others = [m for m in range(5) if m != k]
            basis = math.prod(x - m for m in others)
            total = total + values[k] * basis / math.prod(k - m for m in others)
        return total

    def around(self, select: str, state: State) -> tuple[Array, Array, Array]:
        """The table, with the weights of the posterior or of KL's interval."""
        if select == "mutual_information":
            return self.table, jax.nn.softmax(state.posterior), state.ability
        number = state.num_given.astype(self.theta.dtype)
        reach = merits.KL_REACH * self.sd / jnp.sqrt(number + 1)
        weight = merits.interval_weights(self.theta, state.ability, reach)
        return self.table, weight, state.ability

    def decrease(self, design: Any, state: State) -> Float[Array, " items"]:
        """Expected decrease of the loss, exactly: over the responses to each item."""
        posterior = jax.nn.softmax(state.posterior)
        chance = jnp.exp(next_log_probs(self.table, state.memory))
        marginal = chance @ posterior
        if design.pass_mark is None:
            # That of the variance is the variance of the posterior mean.
            moved = chance @ (posterior * (self.theta - posterior @ self.theta))
            tiny = jnp.finfo(moved.dtype).tiny
            return jnp.sum(moved**2 / jnp.maximum(marginal, tiny), axis=-1)
        dtype = chance.dtype
        wrong_pass, wrong_fail = design.losses.astype(dtype)
        above = posterior * self._above(*design.mark(dtype))
        over = chance @ above
        after = jnp.minimum(wrong_pass * (marginal - over), wrong_fail * over)
        total = jnp.sum(above)
        now = jnp.minimum(wrong_pass * (1 - total), wrong_fail * total)
        return now - jnp.sum(after, axis=-1)

    def predicted(self, state: State) -> tuple[Float[Array, " items"], Array]:
        """Chances of right responses over the posterior; variance of their sum."""
        posterior, right = jax.nn.softmax(state.posterior), jnp.exp(self.table[:, 1])
        total = state.available.astype(right.dtype) @ right
        return right @ posterior, posterior @ (total - posterior @ total) ** 2

    def log_prob(self, item: Array, observation: Observation, theta: Array) -> Array:
        """Log-probability of a response to one item at one ability."""
        return self.curves(theta, item).log_probs()[observation]

    def draw_abilities(self, num_subjects: int, key: KeyArray) -> Array:
        """Abilities of subjects from the population, a histogram too."""
        if not self.histogram:
            return super().draw_abilities(num_subjects, key)
        # A histogram has mass between its nodes: each stands for its surroundings.
        node_key, offset_key = jax.random.split(key)
        node = jax.random.categorical(node_key, self.log_prior, shape=(num_subjects,))
        dtype = self.theta.dtype
        offset = jax.random.uniform(offset_key, (num_subjects,), dtype, -0.5, 0.5)
        return self.theta[node] + offset * (self.theta[1] - self.theta[0])

    def all_items(self, data: Responses) -> Array:
        """EAP abilities from responses of many subjects, on nodes that suit so many."""
        model, items = self.model, self.items
        if self.errors is not None and data.trials is None:
            model = dataclasses.replace(model, family=self._curves[0], priors={})
            items = self.errors
        return score(model, items, self.population, data).ability

    def chances(self, data: Responses) -> Float[Array, "subjects items"]:
        """Probabilities of right responses at the abilities of many subjects."""
        return jax.vmap(self.right)(jnp.asarray(self.all_items(data)))

    def check(self, design: Any) -> None:
        """Refuses rules that do not suit, such as the mode of a histogram."""
        super().check(design)
        if design.repeats > 1 and self.errors is not None:
            raise ValueError(
                f"repeats {design.repeats}: errors of items are those of one response:"
                f" build the bank with ItemBank.create(repeats={design.repeats})"
            )
        if design.scoring == "map" and self.histogram:
            raise ValueError(
                "scoring 'map' is not defined for a histogram population: use 'eap'"
            )

    def node_log_probs(self, item: Array, observation: Observation) -> Array:
        """A row of the table, `[nodes]`."""
        return self.table[item, observation]


@full_precision
@jax.jit
def _table_jit(model: Model, items: Items, theta: Array) -> Array:
    """`[items, categories, nodes]` log-probabilities of responses."""
    one = model.family.category_log_probs
    over_nodes = jax.vmap(one, in_axes=(None, 0), out_axes=1)
    return jax.vmap(over_nodes, in_axes=(0, None))(items, theta)


@full_precision
@eqx.filter_jit
def _moves_jit(family: Predictive, items: UncertainItems, theta: Array) -> Array:
    """Moves of the logits with the errors of each item, at every node."""
    over_nodes = jax.vmap(family.logit_moves, in_axes=(None, 0), out_axes=1)
    return jax.vmap(over_nodes, in_axes=(0, None))(items, theta)


def _choose_nodes(model, items, mean, sd, longest, extra: float) -> np.ndarray:
    """Nodes fine enough for the narrowest posterior a test of this length can give."""
    theta = float(mean) + float(sd) * np.linspace(-4, 4, 65)
    information = item_information(model, items, jnp.asarray(theta, items[0].dtype))
    information = np.nan_to_num(np.asarray(information, float), nan=0.0, posinf=0.0)
    # No test of that length has more information than the best items at an ability.
    num_items, repeats = longest
    repeats = repeats if num_items is None else min(repeats, num_items)
    best = -np.sort(-information, axis=1).repeat(repeats, axis=1)[:, :num_items]
    largest = best.sum(axis=1).max(initial=0.0) + extra
    return nodes_for(1 / math.sqrt(1 + largest * float(sd) ** 2))
