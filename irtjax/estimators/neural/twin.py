"""Twin networks: one from subjects to abilities, one from items to item parameters.

The response function between the two is that of the model, 1PL to 4PL (Zhou et al.
2025, Lost in Benchmarks?, section 3; Tsutsumi, Kinoshita and Ueno 2021 for the head of
Deep-IRT). Early stopping limits overfitting: it uses responses
that are held out. An epoch is one `lax.scan` over shuffled mini-batches of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
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
from irtjax.estimators.driver import AbstractMethod, Progress, Run, Solution, drive
from irtjax.estimators.joint.objective import identify
from irtjax.estimators.neural.cells import log_lik_of_cells, seen_cells, summed
from irtjax.estimators.neural.settings import plain_settings
from irtjax.estimators.neural.towers import (
    Graph,
    Table,
    Tower,
    aggregate,
    check_rate,
    make_graph,
    make_table,
    make_tower,
    update_rows,
)
from irtjax.likelihood.problem import Parameters, Problem, Start, report_scale
from irtjax.models.families.logistic import Binary


class Networks(NamedTuple):
    """Parameters shared by all cells.

    Attributes:
        subjects: From a subject's row to its ability.
        items: From an item's row to its unconstrained coordinates.
        head: Slope and shift of Deep-IRT's layer on ability less difficulty.
        graphs: Aggregations of subjects and of items, for the graph encoder.
    """

    subjects: Tower
    items: Tower
    head: Float[Array, "2"]
    graphs: tuple[Graph, Graph] | None = None


class Weights(NamedTuple):
    """All that is learned: the shared networks and the rows of each side."""

    networks: Networks
    subjects: Array
    items: Array | None


class NeuralState(NamedTuple):
    """State of the training.

    Attributes:
        networks: Shared networks.
        optimiser: Their optimiser's state.
        subjects: Rows of subjects.
        items: Rows of items; None where items have features.
        held: `[subjects, items]` observed cells kept for validation.
        best: The weights with the best criterion seen.
        best_value: Its criterion: minus log-loss in nats per cell, or F1.
        objective: Log-likelihood of the validation cells (of all, without any) there.
        value: Criterion after the last epoch.
        idle: Epochs since the best.
        num_seen: Epochs.
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


class Neural(AbstractMethod):
    """Twin networks for binary models, trained by mini-batches with early stopping.

    A row of `embedding_size` numbers for each subject and item goes through rectified
    units and the `hidden` layers to the ability, and to the item's coordinates; the
    loss is minus the mean log-likelihood of a batch of cells. Moments of Adam and the
    decay of weights are taken to a row whenever a batch has a cell of it. Priors of the
    model are not used. Abilities are standardised afterwards as for every joint method.

    Attributes:
        embedding_size: Width of a row.
        hidden: Widths of hidden layers after it.
        batch_size: Cells per step.
        epochs: The most passes over the cells; the number of them where nothing is held
            out.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW: share of a weight lost per step and learning rate. It
            shrinks asymptotes, which few responses inform, towards one half.
        patience: Epochs without a better criterion after which training ends.
        validation: Share of the cells held out at random, or the cells `[subjects,
            items]`; 0 trains for all epochs on everything.
        criterion: "log_loss" or "f1", of the cells held out.
        head: "irt", or "deep" (Deep-IRT): a linear layer on ability less difficulty,
            for models with one discrimination, which is then what it learns.
        encoder: "lookup", or "graph": each row is an aggregate of the rows it met, the
            batch's own cells left out; steps cost a pass over the data, so use large
            batches.
        item_features: `[items, features]` in place of rows for items, or None.
        epoch_cells: Cells that make an epoch, a number known before compilation; None
            as if nothing were missing.

    >>> from irtjax.data.responses import Responses
    >>> from irtjax.likelihood.problem import Problem
    >>> from irtjax.estimators.driver import run
    >>> from irtjax.estimators.start import start_values
    >>> from irtjax.models.catalogue import two_parameter
    >>> data = Responses(jnp.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], jnp.int8))
    >>> problem = Problem.create(two_parameter(), data)
    >>> start, method = start_values(problem.model, data), Neural(epochs=3, patience=3)
    >>> fit = run(problem, method, start, key=jax.random.key(0), max_steps=3)
    >>> fit.parameters.theta.shape, int(fit.num_steps)
    ((3,), 3)
    """

    trained: ClassVar[bool] = True
    uses_priors: ClassVar[bool] = False
    limit: ClassVar[str] = "epochs"
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({"start": "proportions"})

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
        for name in ("embedding_size", "batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Neural has {name}={getattr(self, name)}; it needs at least 1"
                )
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden layers {self.hidden} have a width below 1")
        check_rate("learning_rate", self.learning_rate)
        check_rate("weight_decay", self.weight_decay, positive=False)
        for name, known in (
            ("criterion", ("log_loss", "f1")),
            ("head", ("irt", "deep")),
            ("encoder", ("lookup", "graph")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} {getattr(self, name)!r} is none of {', '.join(known)}"
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

    def check(self, problem: Problem) -> None:
        """Refuses what twin networks cannot fit.

        Raises:
            ValueError: One line with the cure.
        """
        family = problem.model.family
        if not isinstance(family, Binary) or problem.model.lengths is not None:
            raise ValueError(
                f"twin networks are for binary models, not {problem.model.name}: use"
                " rasch, 1pl to 4pl, or method='em'"
            )
        if problem.anchored:
            raise ValueError("twin networks have no fixed items: use method='em'")
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
        given = self.validation
        shape = problem.data.values.shape
        if not isinstance(given, float | int) and jnp.shape(given) != shape:
            raise ValueError(
                f"validation cells have shape {jnp.shape(given)}, responses {shape}"
            )
        features = self.item_features
        if features is not None and features.shape[0] != problem.data.num_items:
            raise ValueError(
                f"item_features have {features.shape[0]} rows for"
                f" {problem.data.num_items} items: give one for each"
            )

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """Trains for at most `epochs` epochs; `max_steps` replaces them."""
        steps = run.max_steps
        method = self if steps is None else replace(self, epochs=steps)
        method = method.with_epoch_of(problem.data)
        key = jax.random.key(0) if run.key is None else run.key
        fit = drive(problem, method, start, key, method.epochs, run.clock)
        said = (
            "items come from networks that stopped early, without priors: they have"
            " no standard errors, and those of abilities take the items as known",
        )
        return Solution(fit, method, method.epochs, warnings=said)

    def record(self) -> dict[str, Any]:
        """Settings that are numbers, names, or several of these."""
        return plain_settings(self)

    def with_epoch_of(self, data: Responses) -> Neural:
        """The method with the number of cells that make an epoch of these data.

        Raises:
            ValueError: If every response is held out.
        """
        if self.epoch_cells is not None:
            return self
        seen = np.asarray(True if data.observed is None else data.observed)
        seen = np.broadcast_to(seen, data.values.shape)
        held = self.validation
        if isinstance(held, float | int):
            count = round(int(seen.sum()) * (1 - held))
        else:
            count = int(np.sum(seen & ~np.asarray(held, bool)))
        if count < 1:
            raise ValueError("every response is held out: choose a smaller validation")
        return replace(self, epoch_cells=count)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> NeuralState:
        """Random rows; the networks put out the average item at ability 0.

        Raises:
            ValueError: Without a key, or for models that are not binary.
        """
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
            graphs = (
                make_graph(wide, dtype, key=keys[5]),
                make_graph(wide, dtype, key=keys[6]),
            )
        networks = Networks(
            make_tower(wide, hidden, jnp.zeros(1, dtype), looked_up=True, key=keys[0]),
            make_tower(width, layers, average, looked_up=features is None, key=keys[1]),
            jnp.asarray([1.0, 0.0], dtype),
            graphs,
        )
        subjects = make_table(data.num_subjects, wide, optimiser, dtype, key=keys[2])
        items = None
        if features is None:
            items = make_table(data.num_items, wide, optimiser, dtype, key=keys[3])
        held = seen_cells(data) & self._held(data, keys[4])
        low = jnp.full((), -jnp.inf, dtype)
        weights = Weights(
            networks, subjects.rows, None if items is None else items.rows
        )
        tree: Any = networks
        state = NeuralState(
            networks,
            optimiser.init(tree),
            subjects,
            items,
            held,
            weights,
            low,
            low,
            low,
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )
        value, log_lik = self._judge(problem, state)
        return state._replace(best_value=value, value=value, objective=log_lik)

    def _held(self, data, key: KeyArray) -> Array:
        given = self.validation
        if not isinstance(given, float | int):
            return jnp.asarray(given)
        return jax.random.uniform(key, data.values.shape) < given

    def step(
        self, problem: Problem, state: NeuralState, key: KeyArray | None
    ) -> NeuralState:
        """One epoch: every cell to train on in random order, batch by batch."""
        assert key is not None
        data = problem.data
        cells = self._batches(data, state.held, key)
        one = self._dense_step if self.encoder == "graph" else self._lookup_step

        def body(state: NeuralState, batch: Array):
            return one(problem, state, batch), None

        state, _ = lax.scan(body, state, cells)
        state = state._replace(num_seen=state.num_seen + 1)
        value, log_lik = self._judge(problem, state)
        # Without cells held out the last epoch is the best.
        better = (value > state.best_value) | ~jnp.any(state.held)
        items = None if state.items is None else state.items.rows
        new = Weights(state.networks, state.subjects.rows, items)
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, state.best)
        return state._replace(
            best=best,
            best_value=jnp.where(better, value, state.best_value),
            objective=jnp.where(better, log_lik, state.objective),
            value=value,
            idle=jnp.where(better, 0, state.idle + 1),
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

    def _loss(self, problem: Problem, networks: Networks, rows, others, batch):
        """Minus the mean log-likelihood of some cells, from the rows of each."""
        subject, item = batch // problem.data.num_items, batch % problem.data.num_items
        theta, coordinates = self._outputs(networks, rows, others)
        return -jnp.mean(log_lik_of_cells(problem, theta, coordinates, subject, item))

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
        table, features = state.items, self.item_features
        if table is not None:
            others = table.rows[item]
        else:
            assert features is not None
            others = features[item]
        by_network, by_rows, by_others = jax.grad(self._loss, argnums=(1, 2, 3))(
            problem, state.networks, rows, others, batch
        )
        optimiser = self._optimiser
        networks, kept = _moved(optimiser, by_network, state.optimiser, state.networks)
        if table is not None:
            table = update_rows(table, item, by_others, optimiser)
        return state._replace(
            networks=networks,
            optimiser=kept,
            subjects=update_rows(state.subjects, subject, by_rows, optimiser),
            items=table,
        )

    def _dense_step(self, problem: Problem, state: NeuralState, batch: Array):
        """A step of everything, through the graph without the batch's own cells."""
        data, optimiser = problem.data, self._optimiser
        assert state.items is not None
        linked = jnp.ravel(seen_cells(data) & ~state.held).at[batch].set(False)
        linked = linked.reshape(data.values.shape)
        subject, item = batch // data.num_items, batch % data.num_items

        def loss(weights: Weights):
            rows, others = _representations(data, weights, linked)
            return self._loss(
                problem, weights.networks, rows[subject], others[item], batch
            )

        weights = Weights(state.networks, state.subjects.rows, state.items.rows)
        gradient = jax.grad(loss)(weights)
        parts = []
        for slope, kept, at in (
            (gradient.networks, state.optimiser, weights.networks),
            (gradient.subjects, state.subjects.optimiser, weights.subjects),
            (gradient.items, state.items.optimiser, weights.items),
        ):
            parts.append(_moved(optimiser, slope, kept, at))
        (networks, kept), (rows, by_rows), (others, by_others) = parts
        return state._replace(
            networks=networks,
            optimiser=kept,
            subjects=state.subjects._replace(rows=rows, optimiser=by_rows),
            items=state.items._replace(rows=others, optimiser=by_others),
        )

    def evaluate(
        self, problem: Problem, weights: Weights, held: Array
    ) -> tuple[Float[Array, " subjects"], Float[Array, "items columns"]]:
        """Abilities and item coordinates under some weights.

        Args:
            problem: The problem.
            weights: Such as `state.best`.
            held: `[subjects, items]` cells that the graph encoder may not see.
        """
        rows, others = weights.subjects, weights.items
        if self.encoder == "graph":
            linked = seen_cells(problem.data) & ~held
            rows, others = _representations(problem.data, weights, linked)
        if self.item_features is not None:
            others = self.item_features
        return self._outputs(weights.networks, rows, others)

    def _judge(self, problem: Problem, state: NeuralState) -> tuple[Scalar, Scalar]:
        """Criterion and log-likelihood of the cells held out, or of all."""
        data = problem.data
        items = None if state.items is None else state.items.rows
        weights = Weights(state.networks, state.subjects.rows, items)
        theta, coordinates = self.evaluate(problem, weights, state.held)
        judged = jnp.where(jnp.any(state.held), state.held, seen_cells(data))
        found = summed(problem, theta, coordinates, judged)
        log_lik = jnp.sum(found.log_lik)
        if self.criterion == "f1":
            hits, calls, rights = (jnp.sum(part) for part in found[1:4])
            return 2 * hits / jnp.maximum(calls + rights, 1), log_lik
        return log_lik / jnp.maximum(jnp.sum(found.cells), 1), log_lik

    def progress(self, problem: Problem, state: NeuralState) -> Progress:
        """Log-likelihood held out at the best epoch; the patience that is left."""
        early = jnp.any(state.held)
        over = jnp.where(
            early, state.idle >= self.patience, state.num_seen >= self.epochs
        )
        left = jnp.where(
            early, 1 - state.idle / self.patience, 1 - state.num_seen / self.epochs
        )
        residual = jnp.maximum(left, 0).astype(state.value.dtype)
        return Progress(state.objective, residual, over, jnp.zeros((), bool))

    def result(self, problem: Problem, state: NeuralState) -> tuple[Parameters, Array]:
        """Items, and standardised, oriented abilities, at the best epoch."""
        model = problem.model
        theta, coordinates = self.evaluate(problem, state.best, state.held)
        log_lik = summed(problem, theta, coordinates, seen_cells(problem.data)).log_lik
        slope = model.constrain(coordinates).discrimination
        scale = identify(problem, theta, slope)
        coordinates = model.fold(coordinates, scale.shift, scale.scale)
        theta = (theta - scale.shift) / scale.scale
        found = Parameters(model.constrain(coordinates), scale.population, theta)
        return report_scale(problem, found), log_lik


def _moved(optimiser, gradient: Any, kept: Any, at: Any) -> tuple[Any, Any]:
    """Values and the optimiser's state after one update."""
    move, kept = optimiser.update(gradient, kept, at)
    return optax.apply_updates(at, move), kept


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
