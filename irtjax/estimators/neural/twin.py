"""Twin networks: one from subjects to abilities, one from items to item parameters.

The response function between the two is that of the model, 1PL to 4PL (Zhou et al.
2025, Lost in Benchmarks?, section 3; Tsutsumi, Kinoshita and Ueno 2021 for the head of
Deep-IRT). Early stopping by validation responses limits overfitting. An epoch is one
`lax.scan` over shuffled mini-batches of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.driver import Progress
from irtjax.estimators.joint.objective import reported
from irtjax.estimators.neural.cells import cell_log_likelihoods, seen_cells, summed
from irtjax.estimators.neural.towers import (
    Graph,
    Table,
    Tower,
    aggregate,
    make_graph,
    make_table,
    make_tower,
    update_rows,
)
from irtjax.estimators.neural.trained import AbstractTrained
from irtjax.estimators.settings import check_least, check_rate
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.models.model import Model


class Networks(NamedTuple):
    """Parameters shared by all cells.

    Towers to abilities and to items' unconstrained coordinates; slope and shift of
    Deep-IRT's layer on ability less difficulty; aggregations for the graph encoder.
    """

    subjects: Tower
    items: Tower
    head: Float[Array, "2"]
    graphs: tuple[Graph, ...] | None = None


class Weights(NamedTuple):
    """All that is estimated: the shared networks and the rows of each side."""

    networks: Networks
    subjects: Array
    items: Array | None = None


class NeuralState(NamedTuple):
    """State of the training after `num_seen` epochs, `idle` of them since the best.

    `items` is None where items have features; `held` are the cells for validation.
    `best` are the weights with the criterion `best_value` (minus log-loss in nats per
    cell, or F1), `objective` their log-likelihood of the validation cells, or of all if
    there are none, and `value` the last criterion.
    """

    networks: Networks
    optimiser: Any
    subjects: Table
    items: Table | None
    held: Bool[Array, "subjects items"]
    best: Weights
    best_value: Scalar
    objective: Scalar
    value: Scalar
    idle: Array
    num_seen: Array

    @property
    def weights(self) -> Weights:
        """The present weights."""
        rows = None if self.items is None else self.items.rows
        return Weights(self.networks, self.subjects.rows, rows)


class Neural(AbstractTrained):
    """Twin networks for binary models, trained by mini-batches with early stopping.

    A row of `embedding_size` numbers for each subject and item passes through rectified
    units and the `hidden` layers to the ability, and to the item's coordinates; the
    loss is minus the mean log-likelihood of a batch of cells. Moments of Adam and the
    decay of weights apply to a row whenever a batch has a cell of it. Priors of the
    model are not used. Abilities are standardised afterwards as for every joint method.

    Attributes:
        embedding_size: Width of a row.
        hidden: Widths of hidden layers after it.
        batch_size: Cells per step.
        epochs: The most passes over the cells; all are taken without validation cells.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW: share of a weight lost per step and learning rate. It
            shrinks asymptotes, which few responses inform, towards one half.
        patience: Epochs without a better criterion after which training ends.
        validation: Share of the cells kept for validation, at random, or these cells
            `[subjects, items]`; 0 trains for all epochs on all cells.
        criterion: "log_loss" or "f1", of the validation cells.
        head: "irt", or "deep" (Deep-IRT): a linear layer on ability less difficulty,
            for models with one discrimination, which the layer then replaces.
        encoder: "lookup", or "graph": each row is an aggregate of the rows it met, the
            batch's own cells left out. A step is a pass over the data: use large
            batches.
        item_features: `[items, features]` in place of rows for items, or None.
        epoch_cells: Cells of an epoch, a number known before compilation; None as if
            nothing were missing.

    >>> import irtjax
    >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [0, 1, 1]])
    >>> fit = irtjax.fit(table, "2pl", Neural(epochs=3, patience=3))
    >>> fit.parameters.theta.shape, len(fit.trace)
    ((3,), 3)
    """

    warning: ClassVar[str] = (
        "items come from networks that stopped early, without priors: they have"
        " no standard errors, and those of abilities take the items as known"
    )

    embedding_size: int = eqx.field(static=True, default=64)
    hidden: tuple[int, ...] = eqx.field(static=True, default=())
    batch_size: int = eqx.field(static=True, default=512)
    epochs: int = eqx.field(static=True, default=50)
    learning_rate: float | Array = 0.003
    weight_decay: float | Array = 1.0
    patience: int = eqx.field(static=True, default=5)
    validation: float | Bool[Array, "subjects items"] = 0.1
    criterion: str = eqx.field(static=True, default="log_loss")
    head: str = eqx.field(static=True, default="irt")
    encoder: str = eqx.field(static=True, default="lookup")
    item_features: Float[Array, "items features"] | None = None
    epoch_cells: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        """Refuses settings that no training can have."""
        least = {"embedding_size": 1, "batch_size": 1, "epochs": 1, "patience": 1}
        check_least("Neural", self, **least)
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden layers {self.hidden} have a width below 1")
        check_rate("learning_rate", self.learning_rate)
        check_rate("weight_decay", self.weight_decay, positive=False)
        for name, names in (
            ("criterion", ("log_loss", "f1")),
            ("head", ("irt", "deep")),
            ("encoder", ("lookup", "graph")),
        ):
            if getattr(self, name) not in names:
                raise ValueError(
                    f"{name} {getattr(self, name)!r} is none of {', '.join(names)}"
                )
        if isinstance(self.validation, float | int) and not 0 <= self.validation < 1:
            raise ValueError(
                f"validation {self.validation} is not a share from 0 to below 1"
            )
        if self.encoder == "graph" and self.item_features is not None:
            raise ValueError("item_features take the place of rows: use the lookup")

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adamw(self.learning_rate, weight_decay=self.weight_decay)

    def priors_of(self, model: Model) -> Mapping[str, Any]:
        """None: the loss is that of the responses."""
        return {}

    def check(self, problem: Problem) -> None:
        """Refuses what twin networks cannot fit."""
        super().check(problem)
        family: Any = problem.model.family
        if self.head == "deep" and (family.has_slope or family.link != "logit"):
            raise ValueError(
                f"the head of Deep-IRT has one discrimination: use the model 1pl, not"
                f" {problem.model.name}"
            )
        if self.encoder == "graph" and problem.data.trials is not None:
            raise ValueError(
                "the graph encoder takes right and wrong responses, not counts: use the"
                " lookup"
            )
        cells, shape = self.validation, problem.data.values.shape
        if not isinstance(cells, float | int) and jnp.shape(cells) != shape:
            raise ValueError(
                f"validation cells have shape {jnp.shape(cells)}, responses {shape}"
            )
        features = self.item_features
        if features is not None and features.shape[0] != problem.data.num_items:
            raise ValueError(
                f"item_features have {features.shape[0]} rows for"
                f" {problem.data.num_items} items: give one for each"
            )

    def for_data(self, data: Responses) -> Neural:
        """The method with the number of cells that make an epoch of these data."""
        if self.epoch_cells is not None:
            return self
        seen, held = np.asarray(seen_cells(data)), self.validation
        if isinstance(held, float | int):
            count = round(int(seen.sum()) * (1 - held))
        else:
            count = int(np.sum(seen & ~np.asarray(held, bool)))
        if count < 1:
            raise ValueError("every response is held out: choose a smaller validation")
        return replace(self, epoch_cells=count)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> NeuralState:
        """Random rows; the networks return the average item at ability 0."""
        self.check(problem)
        if key is None:
            raise ValueError("training is random: pass run(..., key=)")
        model, data = problem.model, problem.data
        average = jnp.mean(model.unconstrain(start.items), axis=0)
        dtype = average.dtype
        keys = jax.random.split(key, 8)
        wide, optimiser = self.embedding_size, self._optimiser
        features, hidden = self.item_features, self.hidden
        width, layers = wide, hidden
        if features is not None:
            width, layers = features.shape[1], (wide, *hidden)
        graphs = None
        if self.encoder == "graph":
            graphs = tuple(make_graph(wide, dtype, key=key) for key in keys[5:7])
        networks = Networks(
            make_tower(wide, hidden, jnp.zeros(1, dtype), looked_up=True, key=keys[0]),
            make_tower(width, layers, average, looked_up=features is None, key=keys[1]),
            jnp.asarray([1.0, 0.0], dtype),
            graphs,
        )
        subjects = make_table(data.num_subjects, wide, optimiser, dtype, key=keys[2])
        items, weights = None, Weights(networks, subjects.rows)
        if features is None:
            items = make_table(data.num_items, wide, optimiser, dtype, key=keys[3])
            weights = weights._replace(items=items.rows)
        held_out = self.validation
        if isinstance(held_out, float | int):
            held_out = jax.random.uniform(keys[4], data.values.shape) < held_out
        held = seen_cells(data) & jnp.asarray(held_out)
        value, log_lik = self._judge(problem, weights, held)
        tree: Any = networks
        return NeuralState(
            networks,
            optimiser.init(tree),
            subjects,
            items,
            held,
            weights,
            best_value=value,
            objective=log_lik,
            value=value,
            idle=jnp.zeros((), jnp.int32),
            num_seen=jnp.zeros((), jnp.int32),
        )

    def step(self, problem: Problem, state: NeuralState, key: KeyArray | None):
        """One epoch: every cell to train on in random order, batch by batch."""
        assert key is not None
        data = problem.data
        cells = self._batches(data, state.held, key)
        one = self._dense_step if self.encoder == "graph" else self._lookup_step
        body = lambda state, batch: (one(problem, state, batch), None)
        state, _ = lax.scan(body, state, cells)
        value, log_lik = self._judge(problem, state.weights, state.held)
        # Without validation cells the last epoch is the best.
        better = (value > state.best_value) | ~jnp.any(state.held)
        choose = lambda new, old: jnp.where(better, new, old)
        return state._replace(
            best=jax.tree.map(choose, state.weights, state.best),
            best_value=choose(value, state.best_value),
            objective=choose(log_lik, state.objective),
            value=value,
            idle=choose(0, state.idle + 1),
            num_seen=state.num_seen + 1,
        )

    def _batches(self, data, held: Array, key: KeyArray) -> Int[Array, "batches size"]:
        """Numbers of cells, shuffled; the last batch is filled up from the first."""
        trained = jnp.ravel(seen_cells(data) & ~held)
        bits = jax.random.bits(key, trained.shape, jnp.uint32) >> 1
        order = jnp.argsort(jnp.where(trained, bits, jnp.uint32(2**32 - 1)))
        count = self.epoch_cells
        if count is None:
            share = self.validation if isinstance(self.validation, float | int) else 0
            count = max(int(trained.size * (1 - share)), 1)
        size = min(self.batch_size, count)
        number = -(-count // size)
        places = jnp.arange(number * size) % jnp.maximum(jnp.sum(trained), 1)
        return order[places].reshape(number, size).astype(jnp.int32)

    def _loss(self, networks: Networks, rows, others, problem: Problem, subject, item):
        """Minus the mean log-likelihood of some cells, from the rows of each."""
        theta, coordinates = self._outputs(networks, rows, others)
        return -jnp.mean(
            cell_log_likelihoods(problem, theta, coordinates, subject, item)
        )

    def _outputs(self, networks: Networks, rows, others) -> tuple[Array, Array]:
        """Abilities and coordinates of rows of subjects and of items."""
        theta, coordinates = networks.subjects(rows)[:, 0], networks.items(others)
        if self.head == "deep":
            slope, shift = networks.head
            theta = slope * theta
            coordinates = slope * coordinates + shift
        return theta, coordinates

    def _lookup_step(self, problem: Problem, state: NeuralState, batch: Array):
        """A step of the networks and of the rows that the batch has cells of."""
        count = problem.data.num_items
        subject, item = batch // count, batch % count
        rows = state.subjects.rows[subject]
        table = state.items
        inputs = self.item_features if table is None else table.rows
        assert inputs is not None
        slopes = jax.grad(self._loss, argnums=(0, 1, 2))
        at = state.networks, rows, inputs[item]
        by_network, by_rows, by_others = slopes(*at, problem, subject, item)
        optimiser = self._optimiser
        networks, optimiser_state = _moved(
            optimiser, by_network, state.optimiser, state.networks
        )
        if table is not None:
            table = update_rows(table, item, by_others, optimiser)
        return state._replace(
            networks=networks,
            optimiser=optimiser_state,
            subjects=update_rows(state.subjects, subject, by_rows, optimiser),
            items=table,
        )

    def _dense_step(self, problem: Problem, state: NeuralState, batch: Array):
        """A step of all weights, through the graph without the batch's own cells."""
        data, optimiser = problem.data, self._optimiser
        assert state.items is not None
        linked = jnp.ravel(seen_cells(data) & ~state.held).at[batch].set(False)
        linked = linked.reshape(data.values.shape)
        subject, item = batch // data.num_items, batch % data.num_items

        def loss(weights: Weights):
            rows, others = _representations(data, weights, linked)
            at = weights.networks, rows[subject], others[item]
            return self._loss(*at, problem, subject, item)

        parts = [(state.networks, state.optimiser), state.subjects, state.items]
        for k, slope in enumerate(jax.grad(loss)(state.weights)):
            at, optimiser_state = parts[k]
            parts[k] = Table(*_moved(optimiser, slope, optimiser_state, at))
        (networks, optimiser_state), subjects, items = parts
        return state._replace(
            networks=networks, optimiser=optimiser_state, subjects=subjects, items=items
        )

    def evaluate(self, problem: Problem, weights: Weights, held: Array):
        """Abilities and item coordinates; the graph encoder does not use `held`."""
        rows, others = weights.subjects, weights.items
        if self.encoder == "graph":
            linked = seen_cells(problem.data) & ~held
            rows, others = _representations(problem.data, weights, linked)
        if self.item_features is not None:
            others = self.item_features
        return self._outputs(weights.networks, rows, others)

    def _judge(self, problem: Problem, weights: Weights, held: Array):
        """Criterion and log-likelihood of the validation cells, or of all."""
        theta, coordinates = self.evaluate(problem, weights, held)
        judged = jnp.where(jnp.any(held), held, seen_cells(problem.data))
        by_subject = summed(problem, theta, coordinates, judged)
        log_lik, hits, calls, rights, cells = map(jnp.sum, by_subject)
        if self.criterion == "f1":
            return 2 * hits / jnp.maximum(calls + rights, 1), log_lik
        return log_lik / jnp.maximum(cells, 1), log_lik

    @property
    def num_planned(self) -> int:
        """The most epochs; patience may end the training before."""
        return self.epochs

    def progress(self, problem: Problem, state: NeuralState) -> Progress:
        """Validation log-likelihood at the best epoch; the patience that is left."""
        early = jnp.any(state.held)
        count = jnp.where(early, state.idle, state.num_seen)
        limit = jnp.where(early, self.patience, self.epochs)
        residual = jnp.maximum(1 - count / limit, 0).astype(state.value.dtype)
        return Progress(state.objective, residual, count >= limit, jnp.zeros((), bool))

    def result(self, problem: Problem, state: NeuralState) -> tuple[Parameters, Array]:
        """Items, and standardised, oriented abilities, at the best epoch."""
        theta, coordinates = self.evaluate(problem, state.best, state.held)
        log_lik, *_ = summed(problem, theta, coordinates, seen_cells(problem.data))
        return reported(problem, theta, coordinates), log_lik


def _moved(optimiser, gradient: Any, state: Any, at: Any) -> tuple[Any, Any]:
    """Values and the optimiser's state after one update."""
    move, state = optimiser.update(gradient, state, at)
    return optax.apply_updates(at, move), state


def _representations(data, weights: Weights, linked: Array) -> tuple[Array, Array]:
    """Rows of subjects and items as aggregates over the linked cells."""
    assert weights.networks.graphs is not None and weights.items is not None
    right, wrong = linked & (data.values > 0), linked & (data.values <= 0)
    first, second = weights.networks.graphs
    rows, others = weights.subjects, weights.items
    return (
        aggregate(first, rows, others, right, wrong),
        aggregate(second, others, rows, right.T, wrong.T),
    )
