"""Times factor models by MM: a step by rank, a whole fit, and scipy to the same point.

    python experiments/scaling/factors.py '{"subjects": 300, "items": 200}'

Worker of `run.py`, in single precision. Responses are of eight factors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import irtjax
from experiments.scaling import mirt, pyirt
from experiments.scaling.measure import (
    Row,
    Spec,
    best_seconds,
    iteration_seconds,
    memory_rows,
    peak_bytes,
    row,
)
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.data.sparse_table import SparseCells
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.bound import BilinearParameters as Point
from irtjax.estimators.joint.cells import cells_of
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.joint.sparse import sums_of
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor

FACTORS = 8


def draw(subjects: int, items: int) -> np.ndarray:
    """Right and wrong answers of eight abilities, block by block."""
    rng = np.random.default_rng(0)
    slopes = 0.6 * rng.normal(size=(items, FACTORS)).astype(np.float32)
    slopes[:, 0] += 0.8
    intercept = rng.normal(size=items).astype(np.float32)
    blocks = []
    for rows in np.array_split(np.arange(subjects), max(1, subjects // 256)):
        theta = rng.normal(size=(rows.size, FACTORS)).astype(np.float32)
        chance = 1 / (1 + np.exp(-(theta @ slopes.T + intercept)))
        drawn = rng.random(chance.shape, dtype=np.float32) < chance
        blocks.append(drawn.astype(np.int8))
    return np.concatenate(blocks)


def table_of(values: np.ndarray) -> irtjax.ResponseTable:
    """A labelled table, its arrays as a reader leaves them."""
    subjects, items = (np.arange(size).astype(np.str_) for size in values.shape)
    return irtjax.ResponseTable(subjects, items, values, None)


def problem_of(table: irtjax.ResponseTable, factors: int):
    """Problem and start values as `irtjax.fit` makes them."""
    model, data = factor_model(Factor(factors=factors)), table.responses(jnp.float32)
    if factors > 1:
        start = start_values(model, data, dtype=jnp.float32)
    else:
        start = eqx.filter_jit(start_values)(model, data, dtype=jnp.float32)
    start = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start)
    return Problem.create(model, data), start


def fit_seconds(table: irtjax.ResponseTable, factors: int, **options):
    """Seconds of a second call, as a user makes it, and its fit."""
    call = lambda: irtjax.fit(
        table, "factor", "mm", factors=factors, dtype=jnp.float32, **options
    )
    call()
    began = time.perf_counter()
    fit = call()
    return time.perf_counter() - began, fit


def residual_at(problem: Problem, point: Point) -> float:
    """The largest share of a gradient that does not cancel, as MM computes it."""
    method = MM(memory=0)
    items = problem.model.family.start(
        (jnp.full(len(point.intercept), 0.5),), point.discrimination[:, 0]
    )
    items = items._replace(
        discrimination=point.discrimination[:, 0], intercept=point.intercept
    )
    state = method.init(
        problem, irtjax.Start(items, point.theta[:, 0], None), jax.random.key(0)
    )
    return float(eqx.filter_jit(method.step)(problem, state, None).residual)


def scipy_seconds(values: np.ndarray, goal: float, problem: Problem, most: float):
    """Seconds of L-BFGS-B on the objective of MM, to a residual or a limit of time.

    Priors are those of the factor model of rank one: theta and a ~ N(0, 1),
    d ~ N(0, 3^2).

    Returns:
        Seconds, evaluations, and the residual at the end.
    """
    subjects, items = values.shape
    right, count = values.astype(float), 0
    began = time.perf_counter()
    checking = 0.0
    ended: dict[str, float] = {}

    def split(x):
        return np.split(x, [subjects, subjects + items])

    def loss(x):
        nonlocal count
        count += 1
        theta, a, d = split(x)
        # Single precision ends its line search at a residual of .03.
        eta = np.outer(theta, a) + d
        value = np.logaddexp(0, eta).sum() - np.vdot(right, eta)
        value += theta @ theta / 2 + a @ a / 2 + d @ d / 18
        left = 1 / (1 + np.exp(-eta)) - right
        return value, np.concatenate(
            [left @ a + theta, theta @ left + a, left.sum(axis=0) + d / 9]
        )

    def look(x):
        nonlocal checking
        entered = time.perf_counter()
        theta, a, d = (jnp.asarray(part, jnp.float32) for part in split(x))
        reached = residual_at(problem, Point(a[:, None], d, theta[:, None]))
        ended["residual"] = reached
        checking += time.perf_counter() - entered
        if reached <= goal or time.perf_counter() - began - checking > most:
            raise StopIteration

    score = values.mean(axis=1)
    score = (score - score.mean()) / score.std()
    start = np.concatenate([score, np.ones(items), np.zeros(items)])
    minimize(
        loss, start, jac=True, method="L-BFGS-B", callback=look,
        options={"maxiter": 100_000, "maxfun": 200_000, "ftol": 0, "gtol": 0},
    )  # fmt: skip
    return time.perf_counter() - began - checking, count, ended["residual"]


def against_scipy(values: np.ndarray, spec: Spec) -> list[Row]:
    """MM of rank one against scipy to the residual at which MM stops."""
    problem, start = problem_of(table_of(values), 1)
    method = MM()
    run_once = lambda: run_jit(problem, method, start, max_steps=1000)
    seconds = best_seconds(lambda: run_once().residual, 1)
    fit = run_once()
    goal = float(fit.residual)
    wanted = spec.get("min_ratio", 50)
    least, count, reached = scipy_seconds(
        values, goal, problem, 1.02 * wanted * seconds
    )
    what = "" if reached <= goal else ", stopped before it was there"
    return [
        row("MM of one factor, to convergence", seconds, "s"),
        row("  steps", int(fit.num_steps)),
        row("  KKT residual", goal),
        row(f"scipy L-BFGS-B to that residual{what}", least, "s"),
        row("  evaluations", count),
        row("  KKT residual", reached),
        row("scipy over MM", least / seconds, "times", spec.get("min_ratio"), ">="),
    ]


def steps_by_rank(table: irtjax.ResponseTable, spec: Spec) -> list[Row]:
    """Seconds of an MM step of one factor and of eight."""
    found = {}
    for factors in (1, FACTORS):
        problem, start = problem_of(table, factors)
        found[factors] = iteration_seconds(problem, MM(tolerance=0.0), start, 2, 8)
    ratio = found[FACTORS] / found[1]
    return [
        row("MM step of one factor", found[1], "s"),
        row(f"MM step of {FACTORS} factors", found[FACTORS], "s"),
        row("  ratio", ratio, "times", spec.get("max_step_ratio")),
    ]


def by_call(values: np.ndarray) -> tuple[float, irtjax.Calibration]:
    """Seconds of a second whole call of `mm` for one ability, and its fit."""
    table = table_of(values)
    call = lambda: irtjax.fit(
        table, "2pl", method="mm", standard_errors="none", dtype=jnp.float32
    )
    call()
    began = time.perf_counter()
    fit = call()
    return time.perf_counter() - began, fit


def by_cells(values: np.ndarray, spec: Spec) -> list[Row]:
    """Whole calls of `mm` with the items of the smallest and of the largest suite."""
    sizes = spec.get("cells")
    if not sizes:
        return []
    rows, found = [], []
    for items in sizes:
        seconds, fit = by_call(values[:, :items])
        found.append(seconds)
        rows.append(row(f"2pl by mm, {items:,} items, whole call", found[-1], "s"))
        rows.append(row("  steps", fit.num_steps))
    cells = sizes[1] / sizes[0]
    ratio = found[1] / found[0]
    what = f"  time of {cells:.1f} times the cells"
    return [*rows, row(what, ratio, "times", spec.get("max_cells_ratio"))]


def by_density(spec: Spec) -> list[Row]:
    """An MM step over observed cells alone against one over all cells."""
    subjects, items = spec.get("sparse", (300, 400))
    rng = np.random.default_rng(0)
    model, rows, seconds = factor_model(Factor(factors=1)), [], {}
    start = None
    for share in (0.01, 0.04):
        seen = rng.random((subjects, items), dtype=np.float32) < share
        right = seen & (rng.random(seen.shape, dtype=np.float32) < 0.6)
        data = Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen))
        problem = Problem.create(model, data)
        start = eqx.filter_jit(start_values)(model, data, dtype=jnp.float32)
        start = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start)
        few = eqx.tree_at(lambda x: x.data, problem, SparseResponses.of(data))
        method = MM(tolerance=0.0, penalty=1.0)
        seconds[share] = iteration_seconds(few, method, start, 2, 8)
        rows.append(row(f"MM step, {share:.0%} observed", seconds[share], "s"))
        if share == 0.01:
            dense = iteration_seconds(problem, method, start, 2, 5)
            rows += [
                row("  over all cells", dense, "s"),
                row("  ratio", dense / seconds[share], "times",
                    spec.get("min_sparse_ratio"), ">="),
            ]  # fmt: skip
    ratio = seconds[0.04] / seconds[0.01]
    return [*rows, row("  time of 4 times the cells", ratio, "times",
                       spec.get("max_density_ratio"))]  # fmt: skip


def segment_sums(order, shape: tuple[int, int], own, other):
    """`sparse.sums_of` with one sorted `segment_sum` over the cells of all rows."""
    row, column, value = order
    theirs = other[column]
    eta = jnp.sum(own[row] * theirs, axis=1)
    sums = lambda x: jax.ops.segment_sum(x, row, shape[0], indices_are_sorted=True)
    return (
        sums(jax.nn.log_sigmoid(jnp.where(value > 0, eta, -eta))),
        sums((value - jax.nn.sigmoid(eta))[:, None] * theirs),
        sums(jax.vmap(jnp.outer)(theirs, theirs).reshape(len(row), -1)),
    )


def by_layout(spec: Spec) -> list[Row]:
    """Sums over the cells of each row: rows of one width, beside `segment_sum`."""
    shape = spec.get("sparse", (300, 400))[::-1]
    rng = np.random.default_rng(0)
    place = np.unique(rng.integers(0, shape[0] * shape[1], shape[0] * shape[1] // 100))
    value = rng.integers(0, 2, place.size).astype(np.int8)
    cells = SparseCells.of_places(place, value, shape)
    mapped = SparseResponses.of_cells(cells).map_subjects
    order = tuple(map(jnp.asarray, (place // shape[1], cells.column, value)))
    rows = []
    for factors in (1, FACTORS):
        draw = lambda n, k=factors: jnp.asarray(rng.normal(size=(n, 1 + k)), "f4")
        given = draw(shape[0]), draw(shape[1])
        kind = cells_of(factor_model(Factor(factors=factors)))
        more = None, kind, True, 1 + factors
        padded = jax.jit(lambda a, b, more=more: sums_of(mapped, a, b, *more))
        sorted_sums = jax.jit(lambda a, b: segment_sums(order, shape, a, b))
        ours = best_seconds(lambda run=padded, at=given: run(*at))
        theirs = best_seconds(lambda run=sorted_sums, at=given: run(*at))
        rows += [
            row(f"sums of 1% of the cells, {factors} factors", ours, "s"),
            row("  time of segment_sum", theirs / ours, "times"),
        ]
    return rows


def by_peers(values: np.ndarray, spec: Spec) -> tuple[list[Row], list[str]]:
    """mirt and py-irt on the fewest items of `cells` where installed, and notes.

    Both fit one ability, and so does the call of `mm` beside them.
    """
    rows, notes = [], []
    values = values[:, : spec.get("cells", [values.shape[1]])[0]]
    for peer, fit in ((mirt, mirt.fit_mirt), (pyirt, pyirt.fit_pyirt)):
        why = peer.missing()
        if why is not None:
            notes.append(why)
            continue
        own, _ = by_call(values)
        taken = fit(values).seconds
        rows.append(row(f"{peer.NAME}, {values.shape[1]:,} items", taken, "s"))
        rows.append(row("  over 2pl by mm, whole call", taken / own, "times"))
    return rows, notes


def measure(spec: Spec) -> dict[str, Any]:
    """All rows of the case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    values = draw(spec["subjects"], spec["items"])
    table = table_of(values)
    jnp.zeros(()).block_until_ready()
    before = peak_bytes()
    seconds, fit = fit_seconds(table, FACTORS, standard_errors="none")
    rows = [
        row(f"{FACTORS} factors, whole call after compilation, no errors", seconds, "s",
            spec.get("max_seconds")),
        *(row(f"  {k}", v, "s") for k, v in fit.timings.items()),
        row("  steps", fit.num_steps),
        row("  converged", int(fit.status) == 0, "", 1.0, ">="),
        *memory_rows(table, before, spec),
    ]  # fmt: skip
    seconds, fit = fit_seconds(table, FACTORS)
    rows.append(row(f"{FACTORS} factors, with errors", seconds, "s"))
    rows += [row(f"  {k}", v, "s") for k, v in fit.timings.items()]
    rows += steps_by_rank(table, spec)
    rows += by_cells(values, spec)
    rows += by_density(spec) + by_layout(spec)
    rows += against_scipy(values, spec)
    more, notes = by_peers(values, spec)
    load = [load_before, os.getloadavg()[0]]
    return {"rows": rows + more, "load": load, "notes": notes}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
