"""Subsets chosen and models fitted without the subjects they are judged on.

Folds are weights of 0, so all fits share one compiled program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from irtjax._types import KeyArray, Status
from irtjax.calibration import flags
from irtjax.data import ResponseTable
from irtjax.data.responses import Responses
from irtjax.data.stored_cells import DenseCells
from irtjax.estimators.driver import Run, run_jit
from irtjax.estimators.laplace.estimates import point_estimates
from irtjax.estimators.laplace.items import arrange
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.fitting.devices import check_devices, divided, on_one_device
from irtjax.fitting.problem import make_task, specify
from irtjax.fitting.settings import sort_settings
from irtjax.fitting.specification import Task
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.likelihood.quadrature import REACH, choose_nodes, resolution
from irtjax.models.families.bounded import (
    PreparedScores,
    prepare,
    with_scores,
    worth_of,
)
from irtjax.models.families.shares import ShareScores
from irtjax.models.model import Model, highest_response, unit_responses
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.random_keys import fold_in
from irtjax.subsets.clusters import generator_of
from irtjax.subsets.predictor import NodeCurves, Prediction, Whole, curves_of, predict
from irtjax.subsets.selection import (
    AVOIDED,
    NEED_VECTORS,
    RULES,
    ItemChoice,
    Worth,
    choose,
    worth,
)

MAX_STEPS = 200
#: Near enough for a choice, in standard errors of the parameters.
TOLERANCE = 1e-2

_start_jit = eqx.filter_jit(start_values)


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """The items to choose from and the responses to them."""

    table: ResponseTable
    model: Model
    target: np.ndarray  # [items] what each item counts in the full score
    stratum: np.ndarray  # [items] codes from 0
    aim: str = "score"  # what information is for: "score" or "ability"
    abilities: np.ndarray | None = None  # where it matters; None for the population
    form: str = "normal"  # or "histogram": of the calibration's population
    method: str = "em"  # or "laplace", which integrates items out for few subjects
    avoid: np.ndarray | None = None  # [items] to choose where no others are left
    ends: np.ndarray | None = None  # [2, items] lowest and highest score, if rescaled
    mesh: Mesh | None = None  # devices that the subjects of each fit are divided over

    def over(self, mesh: Mesh | None) -> Pool:
        """The pool whose fits are divided over devices; None for one.

        Raises:
            ValueError: If the devices, or fits by the method, divide no subjects.
        """
        if mesh is None:
            return self
        check_devices(mesh, EM)
        if self.method != "em":
            raise ValueError(
                f"fits of folds by method {self.method!r} do not divide over devices:"
                " give the model as an object, as irtjax.MODELS['2pl'](), or leave mesh"
                " out"
            )
        return dataclasses.replace(self, mesh=mesh)

    @functools.cached_property
    def responses(self) -> Responses:
        """The responses as arrays."""
        dtype = jnp.zeros(()).dtype
        return with_scores(self.table.responses(), self._scores, dtype)

    @functools.cached_property
    def _scores(self) -> PreparedScores | None:
        """Scores as shares of right responses; None of right, wrong or ordered ones."""
        return prepare(self.table, self.model)

    @functools.cached_property
    def score_worth(self) -> np.ndarray:
        """`[items]` right or wrong responses that a score is worth; 1 of categories.

        From all subjects, held out or not: one number for each benchmark.
        """
        options = {} if self._scores is None else self._scores.options
        benchmarks = self.table.item_facets.get("benchmark")
        return worth_of(options, benchmarks, self.table.num_items)

    @functools.cached_property
    def distinct_rows(self) -> int:
        """Rows of the distinct items of all subjects, as `laplace` arranges them."""
        nobody = np.zeros(self.table.num_subjects, bool)
        return _task_of(self, nobody)[0].problem.distinct.weight.shape[0]

    @property
    def integrated(self) -> Model | str:
        """The model as `laplace` takes it: by name, but shares with slopes of 1."""
        family = self.model.family
        unit = isinstance(family, ShareScores) and not family.has_slope
        return self.model if unit else self.model.name

    @property
    def is_special(self) -> bool:
        """Whether the choice is for ability, or at some abilities alone."""
        return self.aim != "score" or self.abilities is not None

    def full_scores(self) -> np.ndarray:
        """`[subjects]` scores on what each subject answered; NaN for nothing."""
        values = unit_responses(self.model, self.table.values.astype(float))
        if self.table.observed is None:
            return values @ self.target / self.target.sum()
        right = np.where(self.table.observed, values, 0) @ self.target
        mass = self.table.observed.astype(float) @ self.target
        return np.divide(right, mass, out=np.full_like(right, np.nan), where=mass > 0)

    def success_vectors(self, held: np.ndarray, centred: bool) -> np.ndarray:
        """`[items, subjects]` responses, perhaps less each item's mean; held-out are 0.

        A gap gets the item's mean plus what the subject lies above the mean.
        """
        values = unit_responses(self.model, self.table.values.astype(np.float32))
        observed = self.table.observed
        if observed is not None:
            seen = observed & ~held[:, None]
            count = np.maximum(seen.sum(0), 1)
            item = np.where(seen, values, 0).sum(0) / count
            gap = np.where(seen, values - item, 0).sum(1) / np.maximum(seen.sum(1), 1)
            guess = np.clip(item + gap[:, None], 0, 1)
            values = np.where(observed, values, guess).astype(np.float32)
        if centred:
            values = values - values[~held].mean(axis=0)
        return np.where(held[:, None], 0, values).T

    def tiers(self, held: np.ndarray) -> np.ndarray:
        """`[items]` 0, 1 for separated items, 2 without variation, 3 to avoid.

        Those of a higher tier are chosen where no others are left.

        A separated item is right for all subjects above some score and wrong for all
        below (or the reverse), so only the prior bounds its discrimination.
        """
        values, observed = self.table.values[~held], self.table.observed
        count = self.model.family.num_categories
        low = high = values
        if observed is not None:
            observed = observed[~held]
            beyond = highest_response(self.model) + 1, -1
            low, high = (np.where(observed, values, x) for x in beyond)
        tier = np.where(low.min(axis=0) >= high.max(axis=0), 2, 0)
        if count == 2:
            ability = self.full_scores()[~held]
            tier[flags.separated_items(DenseCells(values, observed), ability)] = 1
        return tier if self.avoid is None else np.where(self.avoid, AVOIDED, tier)


class Knowledge(NamedTuple):
    """Estimates of the items from the subjects that are not held out."""

    held: np.ndarray
    curves: NodeCurves
    worth: Worth
    tier: np.ndarray


def knowledge_of(pool: Pool, items: Any, population: Any, held: np.ndarray):
    """Curves and worth of items that were estimated from the subjects not held out."""
    weigh = worth(
        pool.model,
        items,
        population,
        pool.target,
        pool.abilities,
        pool.score_worth,
    )
    curves = curves_of(pool.model, items, population, pool.score_worth)
    return Knowledge(held, curves, weigh, pool.tiers(held))


def learn(pool: Pool, held: np.ndarray) -> Knowledge:
    """Fits the model to the subjects that are not held out, `[subjects]`."""
    model = pool.model
    if pool.method == "laplace":
        # It takes no weights: the held-out subjects leave the table.
        integrated, _ = integrated_fit(pool, held)
        return knowledge_of(pool, integrated.items, integrated.population, held)
    dtype = jnp.zeros(()).dtype
    weight = jnp.asarray(~held, dtype)
    data = dataclasses.replace(pool.responses, subject_weight=weight)
    first = _start_jit(model, data, how="proportions", dtype=dtype)
    items, population = first.items, first.population
    assert population is not None
    problem = Problem.create(model, data)
    if pool.mesh is not None:
        problem, first = divided(EM(), problem, first, pool.mesh)
    for _ in range(3):
        size = choose_nodes(model, items, population, data).size
        # Multiples of 60, so that folds share a compiled program.
        nodes = equal_nodes(-REACH, REACH, 60 * math.ceil(size / 60) + 1)
        method = EM(jnp.asarray(nodes, dtype), TOLERANCE, population=pool.form)
        result = run_jit(problem, method, first, max_steps=MAX_STEPS)
        items, population = result.parameters.items, result.parameters.population
        if pool.mesh is not None:
            own = jax.tree.map(lambda x: x[: data.num_items], on_one_device(items))
            items, population = own, on_one_device(population)
        resolved = resolution(model, items, population, nodes, data)
        if resolved.warning() is None or size >= 401:
            break
    if pool.form == "normal":
        population = population._replace(log_weights=None)
    return knowledge_of(pool, items, population, held)


def integrated_fit(pool: Pool, held: np.ndarray) -> tuple[Parameters, Status]:
    """Items and population by `laplace`, as of `irtjax.fit`, without any errors."""
    task, options = padded_task(pool, held)
    run = Run(Clock(None), options=options)
    solution = task.method.solve(task.problem, task.start, run)
    return point_estimates(task.problem, solution), Status(int(solution.fit.status))


def padded_task(pool: Pool, held: np.ndarray) -> tuple[Task, Mapping[str, Any]]:
    """The fit by `laplace` of the subjects that are not held out, and its options.

    Data are padded to all subjects and to as many distinct items as all subjects have,
    so that each fold has the programs of the fit of all.
    """
    task, options = _task_of(pool, held)
    problem = task.problem
    problem = dataclasses.replace(
        problem,
        least_subjects=pool.table.num_subjects,
        distinct=arrange(problem.model, problem.data, None, pool.distinct_rows),
    )
    return task._replace(problem=problem), options


def _task_of(pool: Pool, held: np.ndarray) -> tuple[Task, Mapping[str, Any]]:
    """The same, not padded."""
    table = pool.table.select(subjects=~held)
    specification = specify(pool.integrated, Laplace)
    parts = sort_settings({}, specification, Laplace, None)
    task = make_task(table, specification, "laplace", parts, level=0.95, dtype=None)
    return task, parts.options


def choose_from(
    pool: Pool, knowledge: Knowledge, rule: str, sizes: tuple[int, ...], key: KeyArray
) -> dict[int, ItemChoice]:
    """Subsets of several sizes, by a random key of the rule's own."""
    key, vectors = fold_in(key, RULES.index(rule)), None
    if rule in NEED_VECTORS:
        vectors = pool.success_vectors(knowledge.held, centred=rule == "regression")
    return choose(
        knowledge.worth,
        rule,
        sizes,
        mass=pool.target,
        stratum=pool.stratum,
        tier=knowledge.tier,
        key=key,
        vectors=vectors,
        aim=pool.aim,
    )


def whole_of(pool: Pool, knowledge: Knowledge, subjects: np.ndarray) -> Whole:
    """The full score of all items that subjects answered."""
    observed = pool.table.observed
    answered = None if observed is None else observed[subjects]
    return Whole.of(knowledge.curves, pool.target, answered)


def predict_held(
    pool: Pool,
    knowledge: Knowledge,
    choice: ItemChoice,
    subjects: np.ndarray,
    whole: Whole,
) -> Prediction:
    """Predicts the scores of subjects on the items they answered (`whole_of`)."""
    cells, table = np.ix_(subjects, choice.items), pool.table
    observed = None if table.observed is None else table.observed[cells]
    curves, target = knowledge.curves.select(choice.items), pool.target[choice.items]
    prediction = predict(
        pool.model,
        curves,
        table.values[cells],
        observed,
        target=target,
        weight=choice.weight,
        whole=whole,
    )
    # Scores are means over what was answered.
    mass = np.maximum(whole.mass, 1e-300)
    scaled = ("score", "error", "unseen", "answered")
    return prediction._replace(
        **{name: getattr(prediction, name) / mass for name in scaled}
    )


def folds_of(subjects: int, count: int, key: KeyArray) -> np.ndarray:
    """`[subjects]` the fold of each, of sizes that differ by one at most."""
    return np.argsort(generator_of(key).permutation(subjects)) % count
