"""Several starts of non-negative factor models, whose objective has several optima.

Without a rotation that leaves the likelihood as it is, joint fits with slopes at or
above 0 may end at different optima (cBMM S1; nonnegative factorisation is unique only
where each factor has items of its own). The best of a few runs is kept, and how far the
others end below it is stated.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from irtjax._types import KeyArray, Status
from irtjax.estimators.driver import run_jit
from irtjax.estimators.multistart import random_starts
from irtjax.fitting.specification import Task
from irtjax.likelihood.problem import Start
from irtjax.models.factors import Factor
from irtjax.numerics.progress import watched

#: Starts where no number is given: the usual one and five random ones.
USUAL = 6
#: Cells from which there is one start where no number is given: six runs of a
#: million cells and three factors took half a minute.
MANY_CELLS = 1_000_000
#: Standard deviation of log slopes, intercepts and abilities around the usual start.
NOISE_SD = 1.0
#: Nats within which a run has reached the best, and that share of its objective in
#: single precision.
NEAR, ROUNDING = 0.01, 1e-6
#: Runs from other starts end at the limit of the fit or here.
MOST_STEPS = 1000


def num_starts_of(plan: Factor, task: Task) -> int:
    """The number of starts of a fit: 1 where the starting values are given.

    Raises:
        ValueError: If several are asked of a method that has one.
    """
    number = plan.num_starts
    if task.method.name != "mm" and number is not None and number > 1:
        raise ValueError(
            f"num_starts requires method='mm', not {task.method.name!r}: leave it out"
        )
    several = plan.positive and plan.count > 1 and plan.loadings is None
    if not several or task.method.name != "mm" or task.options["start"] == "given":
        return 1
    data = task.problem.data
    few = data.num_subjects * data.num_items <= MANY_CELLS
    return number or (USUAL if few else 1)


def with_best_start(task: Task, num: int, key: KeyArray) -> Task:
    """The task from the best end of several runs, with what they reached."""
    starts = random_starts(
        task.problem, num, key=key, around=task.start, noise_sd=NOISE_SD
    )
    best: Any = None
    objective = np.full(num, -np.inf)
    for k in watched(range(num), "start"):
        one = jax.tree.map(lambda leaf, k=k: leaf[k], starts)
        fit = run_jit(task.problem, task.method, one, max_steps=MOST_STEPS)
        value = float(fit.objective)
        if int(fit.status) == Status.NONFINITE or not np.isfinite(value):
            continue
        objective[k] = value
        if value == objective.max():
            best = fit
    if best is None:
        return task
    gap = objective.max() - objective
    slack = NEAR + ROUNDING * abs(objective.max()) * (
        best.objective.dtype == np.float32
    )
    reached, spread = int((gap <= slack).sum()), float(np.max(gap[np.isfinite(gap)]))
    items, population, theta = best.parameters[:3]
    note = f"all {num} starts reached one objective"
    if reached < num:
        note = (
            f"{reached} of {num} starts reached the highest objective; the others end"
            f" up to {spread:.3g} nats lower: slopes of at least 0 have several optima"
        )
    record = {"num": num, "reached": reached, "gap": [float(x) for x in gap]}
    return task._replace(
        start=Start(items, theta, population),
        options={**task.options, "starts": record},
        table=task.table.replace(notes=(*task.table.notes, note)),
    )
