"""Chances of right responses from part of the responses: models and baselines.

**On nodes.** Models of one ability that `em` estimates have posteriors W `[subjects,
nodes]` and chances P `[nodes, items]` at common nodes: predictions are W P, posterior
means of the abilities. One compiled program serves every mask and every prior.

In two stages, as a user meets new subjects and items: items and abilities are estimated
from old ones alone. New subjects are scored from their exposed responses with the items
fixed. New items are estimated from theirs with the posteriors of abilities fixed, each
by its own marginal likelihood (`fitting.new_items`), and their errors are integrated
over.

**By a fit.** Other models are fitted by `irtjax.fit` to the training responses, and
predict by `irtjax.predict`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import logsumexp

from irtjax.data.table import ResponseTable
from irtjax.estimators.driver import Fit, run_jit
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.fitting.defaults import choose
from irtjax.fitting.fit import fit as fit_table
from irtjax.fitting.new_items import item_posteriors
from irtjax.inference.expected import response_table
from irtjax.likelihood.counts import log_likelihood_at_nodes
from irtjax.likelihood.padding import padded_size
from irtjax.likelihood.problem import Problem, Start
from irtjax.likelihood.quadrature import SHORT_REACH, TOO_WIDE, test_information
from irtjax.models.catalogue import MODELS, model_class
from irtjax.models.factors import Factor
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics.programs import stored_jit
from irtjax.prediction.rectified import predicted_responses
from irtjax.prediction.responses import predict
from irtjax.prediction.splits import Split
from irtjax.prediction.stacking import additive

#: EM ends where gradients and moves are below this many standard errors. The objective
#: is then short by half its square a parameter, 0.2 nats of 500 parameters.
TOLERANCE, MOST_STEPS = 0.03, 300
#: Fewest intervals of nodes, and their width in posterior standard deviations by start
#: values, whose slopes are too small.
FEWEST_NODES, WIDTH = 48, 0.75
#: Most intervals, and grids that a fit is tried on: few subjects leave slopes so large
#: that no grid resolves their posteriors.
MOST_NODES, ATTEMPTS = 512, 3
#: Abilities at which information is computed.
PROBES = 401
#: Responses, at their mean, that proportions are drawn by.
PRIOR_RESPONSES = 1.0

#: A model of one's own: chances `[subjects, items]` from the training responses.
Predictor = Callable[[ResponseTable], np.ndarray]


class BaselineChances(NamedTuple):
    """`[subjects, items]` chances of models without abilities; see `baselines`."""

    mean: np.ndarray
    subjects: np.ndarray
    items: np.ndarray
    additive: np.ndarray


def baselines(
    right: np.ndarray, count: np.ndarray, train: np.ndarray
) -> BaselineChances:
    """Mean response of all, of a subject, of an item, and additive effects of both.

    Means of subjects and items have one response at the mean of all in addition.

    Args:
        right: `[subjects, items]` right responses.
        count: `[subjects, items]` responses.
        train: `[subjects, items]` mask of those that are used.

    >>> chances = baselines(np.eye(4), np.ones((4, 4)), np.ones((4, 4), bool))
    >>> float(chances.mean[0, 0]), float(chances.items[0, 0])
    (0.25, 0.25)
    """
    right, count = right * train, count * train
    mean = right.sum() / count.sum()
    subjects, items = (
        (right.sum(axis, keepdims=True) + PRIOR_RESPONSES * mean)
        / (count.sum(axis, keepdims=True) + PRIOR_RESPONSES)
        for axis in (1, 0)
    )
    whole = lambda x: np.broadcast_to(x, right.shape)
    effects = additive(right, count)
    return BaselineChances(whole(mean), whole(subjects), whole(items), effects)


def training_table(table: ResponseTable, train: np.ndarray) -> ResponseTable:
    """The table with its training responses alone."""
    trials = table.trials
    if trials is not None:
        trials = np.where(train, trials, 0)
    values = np.where(train, table.values, 0).astype(table.values.dtype)
    return table.replace(values=values, observed=train, trials=trials)


class Grid(NamedTuple):
    """Standardised nodes, with the logarithms of their weights."""

    nodes: Array
    log_weights: Array


class OnNodes:
    """A model of one ability by EM on nodes.

    With `rho(x)` the reciprocal of the posterior standard deviation of a subject of
    ability x with all items, nodes are equally spaced in the integral of rho: dense
    where items are informative. Weights are phi(x) / rho(x), the trapezoid rule.

    Attributes:
        model: The model. One with equal slopes has slopes of 1 and an estimated
            standard deviation of ability: new items are then on its scale.
    """

    def __init__(self, table: ResponseTable, model: Model) -> None:
        if not model.family.has_slope:
            model = dataclasses.replace(model, scale="unit_slope")
        dtype = jnp.zeros(()).dtype
        # Arrays: other numbers are the same program.
        priors = jax.tree.map(lambda x: jnp.asarray(x, dtype), model.priors)
        self.model = dataclasses.replace(model, priors=priors)
        self.table, self.dtype = table, dtype
        self.responses = table.responses(dtype).with_mask()
        self.grid: Grid | None = None
        self.exposure = float(self.responses.answered().max()) / table.num_items

    def scaled(self, scale: float) -> OnNodes:
        """The same with standard deviations of priors times `scale`."""
        other = copy(self)

        def wider(prior: Any) -> Any:
            if not hasattr(prior, "sd"):
                return prior
            return dataclasses.replace(prior, sd=prior.sd * scale)

        priors = {name: wider(prior) for name, prior in self.model.priors.items()}
        other.model = dataclasses.replace(self.model, priors=priors)
        return other

    def fit(self, data: Any, start: Start | None = None) -> Fit:
        """The fit to some responses, from start values or those of another fit."""
        problem = Problem.create(self.model, data)
        used = data.item_weight[:, None] > 0
        problem = dataclasses.replace(problem, free=problem.free & used)
        if start is None:
            start = _start_jit(self.model, data, how="proportions", dtype=self.dtype)
        population = start.population
        if population is None:
            unit = jnp.ones((), self.dtype)
            population = Population(jnp.zeros_like(unit), unit)
        if self.grid is None:
            self.grid = self._grid(start.items, population)
        for attempt in range(ATTEMPTS):
            nodes, log_weights = self.grid
            population = population._replace(log_weights=log_weights)
            method = EM(nodes=nodes, tolerance=jnp.asarray(TOLERANCE, self.dtype))
            start = Start(start.items, None, population)
            fit = run_jit(problem, method, start, max_steps=MOST_STEPS)
            items, population = fit.parameters[:2]
            x, density = self._density(items, population)
            gaps = np.diff(np.asarray(nodes))
            between = (nodes[1:] + nodes[:-1]) / 2
            widest = np.max(gaps * np.interp(between, x, density))
            if widest <= TOO_WIDE or attempt == ATTEMPTS - 1:
                return fit
            self.grid = self._grid(items, population)
            start = Start(items, None, population)
        raise AssertionError("the last attempt returns")

    def _density(
        self, items: Items, population: Population
    ) -> tuple[np.ndarray, np.ndarray]:
        """Standardised abilities, and rho there."""
        x = np.linspace(-SHORT_REACH, SHORT_REACH, PROBES)
        theta = population.mean + population.sd * jnp.asarray(x, self.dtype)
        information = np.asarray(_information(self.model, items, theta), float)
        square = float(population.sd) ** 2 * self.exposure
        return x, np.sqrt(1 + square * np.nan_to_num(information))

    def _grid(self, items: Items, population: Population) -> Grid:
        """Nodes for these items; few sizes, so that data share programs."""
        x, density = self._density(items, population)
        middle = (density[1:] + density[:-1]) / 2
        total = np.concatenate([[0.0], np.cumsum(middle * np.diff(x))])
        wanted = int(np.ceil(total[-1] / WIDTH))
        wanted = min(max(wanted, FEWEST_NODES), MOST_NODES)
        count = padded_size(wanted, 1) + 1
        nodes = np.interp(np.linspace(0, total[-1], count), total, x)
        log_weights = -(nodes**2) / 2 - np.log(np.interp(nodes, x, density))
        log_weights -= logsumexp(log_weights)
        return Grid(*(jnp.asarray(y, self.dtype) for y in (nodes, log_weights)))

    def data(self, seen: np.ndarray) -> Any:
        """Some of the responses; subjects and items without any have no weight."""
        mask = jnp.asarray(seen)
        zeros = lambda x: None if x is None else jnp.where(mask, x, 0)
        data = self.responses
        return dataclasses.replace(
            data,
            values=zeros(data.values),
            observed=mask,
            trials=zeros(data.trials),
            subject_weight=jnp.asarray(seen.any(1), self.dtype),
            item_weight=jnp.asarray(seen.any(0), self.dtype),
        )

    def joint(self, train: np.ndarray, start: Start | None = None) -> _Predicted:
        """Chances from one fit to all training responses, and the next start."""
        data = self.data(train)
        fit = self.fit(data, start)
        items, population = fit.parameters[:2]
        at = self.model, items, population, self.grid
        chance = _expected(*at, _posterior(*at, data))
        return _Predicted(np.asarray(chance), Start(items, None, population))

    def staged(self, split: Split) -> np.ndarray | None:
        """Chances in two stages; None of counts of responses to new items."""
        old_items = ~split.new_items
        if self.table.trials is not None and not old_items.all():
            return None
        old = split.train & old_items
        fit = self.fit(self.data(old & ~split.new_subjects[:, None]))
        items, population = fit.parameters[:2]
        at = self.model, items, population, self.grid
        posterior = _posterior(*at, self.data(old))
        chance = np.array(_expected(*at, posterior))
        if not old_items.all():
            assert self.grid is not None
            theta = population.mean + population.sd * self.grid.nodes
            new = split.new_items
            # All items have one program; of old ones nothing is seen.
            seen = jnp.asarray(split.train & new)
            values = self.responses.values
            curves = _new_curves(self.model, theta, posterior, values, seen)
            chance[:, new] = np.asarray(posterior @ curves)[:, new]
        return chance


class _Predicted(NamedTuple):
    """`[subjects, items]` chances, and start values for a similar fit."""

    chance: np.ndarray
    start: Start | None = None


class ByFit:
    """A model that `irtjax.fit` fits, with its settings."""

    def __init__(self, table: ResponseTable, model: Any, settings: Mapping[str, Any]):
        self.table, self.model, self.settings = table, model, dict(settings)

    def joint(self, train: np.ndarray, start: Start | None = None) -> _Predicted:
        """Chances from a fit to all training responses; NaN where it has none."""
        del start
        table = training_table(self.table, train)
        rows, columns = (np.asarray(train.any(axis)) for axis in (1, 0))
        part = table.select(subjects=rows, items=columns)
        fit = fit_table(part, self.model, **self.settings)
        chance = np.full(train.shape, np.nan)
        chance[np.ix_(rows, columns)] = predict(
            fit, subject_names=part.subjects, item_names=part.items
        ).expected
        return _Predicted(chance)

    def staged(self, split: Split) -> np.ndarray | None:
        """New subjects scored by a fit of the old ones; None of new items, groups."""
        if split.new_items.any() or not split.new_subjects.any():
            return None
        table, new = training_table(self.table, split.train), split.new_subjects
        columns = np.asarray(split.train[~new].any(0))
        fit = fit_table(
            table.select(subjects=~new, items=columns), self.model, **self.settings
        )
        if fit.num_groups > 1:
            return None
        answers = np.where(split.train, self.table.values, np.nan)[np.ix_(new, columns)]
        chance = np.full(split.train.shape, np.nan)
        chance[np.ix_(new, columns)] = predicted_responses(fit, answers)
        return chance


class ByFunction:
    """A predictor of one's own."""

    def __init__(self, table: ResponseTable, function: Predictor) -> None:
        self.table, self.function = table, function

    def joint(self, train: np.ndarray, start: Start | None = None) -> _Predicted:
        """Its chances from the training responses.

        Raises:
            ValueError: If they are not chances of all cells.
        """
        del start
        table = training_table(self.table, train)
        chance = np.asarray(self.function(table), float)
        if chance.shape != train.shape:
            raise ValueError(
                f"a predictor returned shape {chance.shape}, not {train.shape}"
                " (subjects, items)"
            )
        return _Predicted(chance)

    def staged(self, split: Split) -> np.ndarray | None:
        """None: it has one stage."""
        del split
        return None


def predictor(
    table: ResponseTable, model: Any, settings: Mapping[str, Any] | None = None
) -> OnNodes | ByFit | ByFunction:
    """What predicts with a model, by the method that `irtjax.fit` would choose.

    Args:
        table: All responses, of which masks choose.
        model: A name such as "2pl" or "factor:4" (its number of factors), a model, or a
            function from training responses to chances `[subjects, items]`.
        settings: Settings of `irtjax.fit`.

    Raises:
        ValueError: If there is no such model.
    """
    settings = dict(settings or {})
    if callable(model) and not isinstance(model, type):
        own: Any = model
        return ByFunction(table, own)
    if isinstance(model, str):
        model, factors = _named(model)
        settings |= {} if factors is None else {"factors": factors}
    method = settings.pop("method", None)
    if issubclass(model_class(model), Factor):
        settings |= {"standard_errors": "none"}
    elif not settings and issubclass(model_class(model), Model):
        chosen = choose(table, model, method or "auto", {}).method
        on_nodes: Any = MODELS[model]() if isinstance(model, str) else model
        plain = on_nodes.family.num_categories == 2 and not on_nodes.has_lengths
        if chosen == "em" and plain:
            return OnNodes(table, on_nodes)
    return ByFit(
        table, model, settings | ({} if method is None else {"method": method})
    )


def _named(text: str) -> tuple[str, int | None]:
    """The name of a model, and the number of factors behind a colon."""
    name, colon, number = text.partition(":")
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(MODELS)}")
    if not colon:
        return name, None
    if name != "factor" or not number.isdecimal():
        raise ValueError(f"model {text!r}: only factor has a number, as factor:4")
    return name, int(number)


_start_jit = stored_jit(start_values)


@stored_jit
def _information(model, items: Items, theta: Array) -> Array:
    """Test information at abilities."""
    return test_information(model, items, theta)


@stored_jit
def _posterior(model, items, population, grid: Grid, data) -> Array:
    """`[subjects, nodes]` posteriors of abilities."""
    tables = model.family.table(items, population.mean + population.sd * grid.nodes)
    joint = log_likelihood_at_nodes(model, tables, data)
    return jax.nn.softmax(joint + grid.log_weights, axis=1)


@stored_jit
def _expected(model, items: Items, population, grid: Grid, posterior: Array) -> Array:
    """`[subjects, items]` chances, averaged over the posteriors."""
    theta = population.mean + population.sd * grid.nodes
    return posterior @ response_table(model.family, items, theta)


@stored_jit
def _new_curves(model, theta, posterior, values, seen) -> Array:
    """`[nodes, items]` chances of new items, averaged over their posteriors.

    By the cubature rule of degree 3, at the points m +- sqrt(k) L e_c of k coordinates.
    """
    coordinates, covariance = item_posteriors(model, theta, posterior, values, seen)
    values, vectors = jnp.linalg.eigh(covariance)
    roots = vectors * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]
    far = jnp.sqrt(roots.shape[-1]) * jnp.moveaxis(roots, -1, 0)
    points = coordinates + jnp.concatenate([far, -far])
    of_point = lambda x: response_table(model.family, model.constrain(x), theta)
    return jnp.mean(jax.lax.map(of_point, points), axis=0)
