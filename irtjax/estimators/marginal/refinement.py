"""Nodes that resolve the posteriors: chosen before a fit, and refined after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray
from irtjax.estimators.driver import Solution, drive
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import (
    COARSE,
    KEPT,
    REACH,
    Resolution,
    choose_nodes,
    lattice_near,
    resolution,
)
from irtjax.numerics.kernels import equal_nodes
from irtjax.scoring import score

#: Cells from which EM works on windows of nodes, subjects sorted.
LARGE = 2_000_000
#: Nodes each subject may take of a lattice before common nodes are cheaper.
LATTICE_NODES = 20


def solve_on_nodes(
    problem: Problem,
    method: Any,
    first: Start,
    key: KeyArray | None,
    max_steps: int,
    clock: Clock,
    *,
    lattice: bool = False,
    windows: bool = False,
) -> Solution:
    """A fit on nodes that suit the data, refined where the first prove too wide.

    Args:
        problem: The problem.
        method: A method with a field `nodes`; nodes that are given are kept.
        first: Start values.
        key: Random key, or None.
        max_steps: Step limit of each attempt.
        clock: Reports progress.
        lattice: Whether few subjects may have nodes of their own (`_on_lattice`).
        windows: Whether the method has a field `window`, for large data.
    """
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    given = method.nodes is not None
    population = estimation_scale(problem, first)
    for attempt in range(4):
        if not given:
            nodes = choose_nodes(model, first.items, population, data)
            wide = len(nodes) > max(COARSE, LATTICE_NODES * data.num_subjects)
            if lattice and wide:
                return _on_lattice(problem, method, first, key, max_steps, clock)
            if windows:
                large = data.values.size >= LARGE
                window = 20 * (len(nodes) // 50) if large else 0
                method = dataclasses.replace(method, window=window)
            method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
        fit = drive(problem, method, first, key, max_steps, clock)
        estimates = fit.parameters
        grid = np.asarray(fit.state.nodes)
        resolved = resolution(model, estimates.items, estimates.population, grid, data)
        if given or attempt == 3 or resolved.warning() is None:
            return Solution(fit, method, max_steps, resolved)
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")


def _on_lattice(problem, method: Any, first: Start, key, max_steps, clock) -> Solution:
    """EM with few subjects: coarse nodes first, then only nodes near the subjects."""
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    # Standardised abilities of N subjects lie within sqrt(N - 1).
    reach = min(REACH, data.num_subjects**0.5 + 1)
    nodes = equal_nodes(-reach, reach, COARSE)
    method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype), window=0)
    # Good enough to find the subjects; the posteriors fall between these nodes.
    rough = dataclasses.replace(method, tolerance=max(method.tolerance, 0.03))
    fit = drive(problem, rough, first, key, max_steps, clock)
    for attempt in range(5):
        items, population = fit.parameters[:2]
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
        fit = drive(problem, method, first, key, max_steps, clock)
        # Settled once the subjects stay well inside the nodes kept for them.
        at = np.asarray(lattice.nodes)[np.asarray(fit.state.centre)]
        settled = np.max(np.abs(at - centres) / widths) < KEPT / 4
        if settled or attempt == 4:
            smallest = float(np.min(widths)) * sd
            found = Resolution(lattice.nodes.size, lattice.spacing * sd, smallest)
            return Solution(fit, method, max_steps, found)
    raise AssertionError("the last attempt returns")
