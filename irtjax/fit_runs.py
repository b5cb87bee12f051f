"""A fit's run: anchors in place, nodes that suit the data, steps with reports."""

from __future__ import annotations

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._programs import stored_jit
from irtjax._types import Status
from irtjax.anchors import Anchor, apply_anchor, read_anchor
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.estimators.base import (
    Fit,
    Problem,
    Start,
    begin,
    estimation_scale,
    loop_of,
    run,
)
from irtjax.estimators.em import EM
from irtjax.estimators.nodes import (
    COARSE,
    KEPT,
    REACH,
    Resolution,
    choose_nodes,
    lattice_near,
    resolution,
)
from irtjax.estimators.saem import SAEM
from irtjax.models.base import Model
from irtjax.models.logistic import Binary
from irtjax.numerics import equal_nodes
from irtjax.scoring import score

#: Cells from which EM sorts the subjects and works on windows of nodes.
LARGE = 2_000_000
#: Nodes each subject may take of a lattice before common nodes are cheaper.
LATTICE_NODES = 20

_begin_jit = stored_jit(begin)
_run_jit = stored_jit(run)


def anchored_problem(
    model: Model,
    responses: Responses,
    first: Start,
    table: ResponseTable,
    anchor: Anchor | None,
    floating,
) -> tuple[Problem, Start]:
    """The problem and start of dtype `floating`, with anchors in place."""
    first = jax.tree.map(lambda a: jnp.asarray(a, floating), first)
    if anchor is None:
        return Problem.create(model, responses), first
    values = read_anchor(anchor)
    family = model.family
    common = None
    if isinstance(family, Binary) and not family.has_slope:
        # Fixed slopes for every item, and the population on the anchors' scale.
        slopes = {v["discrimination"] for v in values.values() if "discrimination" in v}
        if len(slopes) > 1 or (slopes not in (set(), {1.0}) and model.name == "rasch"):
            raise ValueError(
                f"anchors with {len(slopes)} discriminations do not suit a"
                f" {model.name} model; use 2pl"
            )
        common = slopes.pop() if slopes else 1.0
        values = {k: {**v, "discrimination": common} for k, v in values.items()}
        family = dataclasses.replace(family, slopes="free")
        priors = {k: p for k, p in model.priors.items() if k != "discrimination"}
        model = Model(model.name, family, priors, model.scale)
        slope = jnp.full_like(first.items.discrimination, common)
        first = first._replace(items=first.items._replace(discrimination=slope))
    first, free = apply_anchor(model, first, table.items, values)
    first = jax.tree.map(lambda a: jnp.asarray(a, floating), first)
    if common is not None:
        free = free.at[:, 0].set(False)
    return Problem(model, responses, free, anchored=True), first


def with_ability_prior(problem: Problem, method, first: Start) -> Problem:
    """The problem of a joint method with the population that suits a fixed scale.

    Unit slopes fix the unit of ability, and a penalty of N(0, 1) would then squeeze
    abilities of any other spread. A rough marginal fit says what it is.
    """
    if problem.model.family.has_slope or getattr(method, "penalty", 0) == 0:
        return problem
    population = estimation_scale(problem, first)
    chosen = choose_nodes(problem.model, first.items, population, problem.data)
    nodes = jnp.asarray(chosen, first.items[0].dtype)
    rough = _run_jit(
        problem, EM(nodes, 0.05), first._replace(theta=None), max_steps=100
    )
    found = rough.parameters
    prior = estimation_scale(problem, Start(found.items, None, found.population))
    return dataclasses.replace(problem, prior=prior._replace(log_weights=None))


def fit_on_nodes(
    problem, method: EM | SAEM, first: Start, key, max_steps, clock
) -> tuple[Fit, EM | SAEM, Resolution]:
    """A fit on nodes fit for the data, refined where the first prove too wide."""
    model, data = problem.model, problem.data
    if isinstance(method, EM):
        # It draws nothing: with a key or without, it is one program.
        key = None
    dtype = first.items[0].dtype
    if isinstance(method, EM) and method.population == "histogram":
        # Hundreds of weights move slowly and matter little: no acceleration, and a
        # thousandth of a standard error.
        method = eqx.tree_at(lambda m: m.tolerance, method, max(method.tolerance, 1e-3))
    if dtype == jnp.float32 and isinstance(method, EM):
        # Rounding of a long sum leaves gradients of some thousandths of an error.
        method = eqx.tree_at(lambda m: m.tolerance, method, max(method.tolerance, 1e-2))
    given = method.nodes is not None
    population = estimation_scale(problem, first)
    for attempt in range(4):
        if not given:
            nodes = choose_nodes(model, first.items, population, data)
            if isinstance(method, EM):
                plain = method.population == "normal" and model.lengths is None
                if plain and len(nodes) > COARSE:
                    if LATTICE_NODES * data.num_subjects < len(nodes):
                        return _fit_lattice(
                            problem, method, first, key, max_steps, clock
                        )
                window = 20 * (len(nodes) // 50) if data.values.size >= LARGE else 0
                method = dataclasses.replace(method, window=window)
            method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
        result = drive(problem, method, first, key, max_steps, clock)
        estimates = result.parameters
        grid = np.asarray(result.state.nodes)
        resolved = resolution(model, estimates.items, estimates.population, grid, data)
        if given or attempt == 3 or resolved.warning() is None:
            return result, method, resolved
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")


def _fit_lattice(problem, method: EM, first: Start, key, max_steps, clock):
    """EM with few subjects: coarse nodes first, then only nodes near the subjects."""
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    # Standardised abilities of N subjects lie within sqrt(N - 1).
    reach = min(REACH, data.num_subjects**0.5 + 1)
    nodes = equal_nodes(-reach, reach, COARSE)
    method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype), window=0)
    # Good enough to find the subjects; the posteriors fall between these nodes.
    rough = dataclasses.replace(method, tolerance=max(method.tolerance, 0.03))
    result = drive(problem, rough, first, key, max_steps, clock)
    for attempt in range(5):
        items, population = result.parameters[:2]
        plain = population._replace(log_weights=None)
        sd = float(plain.sd)
        grid = equal_nodes(-reach, reach, COARSE // 2)
        scores = score(model, items, plain, data, method="map", nodes=grid)
        centres = (np.asarray(scores.ability, float) - float(plain.mean)) / sd
        widths = np.asarray(scores.standard_error, float) / sd
        lattice = lattice_near(centres, widths)
        method = dataclasses.replace(method, nodes=jnp.asarray(lattice.nodes, dtype))
        weighted = plain._replace(log_weights=jnp.asarray(lattice.log_weights, dtype))
        first = Start(items, jnp.asarray(scores.ability), weighted)
        result = drive(problem, method, first, key, max_steps, clock)
        # Settled once the subjects stay well inside the nodes kept for them.
        at = np.asarray(lattice.nodes)[np.asarray(result.state.centre)]
        settled = np.max(np.abs(at - centres) / widths) < KEPT / 4
        if settled or attempt == 4:
            smallest = float(np.min(widths)) * sd
            found = Resolution(lattice.nodes.size, lattice.spacing * sd, smallest)
            return result, method, found
    raise AssertionError("the last attempt returns")


def drive(problem, method, first: Start, key, max_steps: int, clock) -> Fit:
    """Runs a method to its end, in one call or, to report progress, in chunks."""
    loop = _begin_jit(problem, method, first, key=key, max_steps=max_steps)
    # Unwatched, all steps are one chunk: of the same program, compiled once.
    chunk, done = max_steps if clock.progress is None else 1, 0
    while True:
        began = time.perf_counter()
        done += chunk
        result = _run_jit(
            problem,
            method,
            first,
            key=key,
            max_steps=max_steps,
            resume=loop,
            stop_after=jnp.asarray(done, jnp.int32),
        )
        status = int(result.status)
        clock.report(
            "fit",
            int(result.num_steps),
            float(result.objective),
            float(result.residual),
        )
        if status != Status.RUNNING:
            return result
        loop = loop_of(result)
        done = int(result.num_steps)
        # About a third of a second between reports.
        rate = chunk / max(time.perf_counter() - began, 1e-3)
        chunk = int(min(max(1, rate / 3), 4 * chunk))
