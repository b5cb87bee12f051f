"""Fits whose subjects are divided over the devices of a mesh: before and after."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from irtjax.data.sharded_responses import check_mesh
from irtjax.estimators.acceptance import listed
from irtjax.estimators.catalogue import METHODS, method_class
from irtjax.estimators.driver import AbstractEstimator
from irtjax.estimators.estimates import Estimates, cut_estimates
from irtjax.fitting.specification import Task
from irtjax.likelihood.padding import divide_problem, pad_start
from irtjax.likelihood.problem import Problem, Start
from irtjax.models import catalogue


def check_devices(mesh: Mesh, method: Any) -> None:
    """Refuses devices, and methods or classes of them, before data are prepared.

    Raises:
        ValueError: If the devices, or no passes of the method, divide subjects.
    """
    check_mesh(mesh)
    kind = method if isinstance(method, type) else type(method)
    if kind.divides is AbstractEstimator.divides:
        raise ValueError(_refusal(kind.__name__.lower(), catalogue.two_parameter()))


def _refusal(method: str, model: Any) -> str:
    """Why a fit does not divide, and the methods whose fits do."""
    dividing = lambda of: [x for x in METHODS if method_class(x)().divides(of)]
    names, cure = dividing(model), "use "
    if not names:
        names, cure = dividing(catalogue.two_parameter()), "use a model as 2pl and "
    return (
        f"this fit by method {method!r} does not divide over devices:"
        f" {cure}{listed(names)}, or leave mesh (--devices) out"
    )


def divide(task: Task, mesh: Mesh) -> tuple[Problem, Start]:
    """The problem of a task over the devices of a mesh, and start values of its size.

    Raises:
        ValueError: If passes over its data do not divide; it names the methods whose
            passes do.
    """
    return divided(task.method, task.problem, task.start, mesh)


def divided(
    method: AbstractEstimator, problem: Problem, start: Start | None, mesh: Mesh
) -> tuple[Problem, Start]:
    """`divide` of the parts of a task."""
    if not method.divides(problem.model) or start is None:
        raise ValueError(_refusal(method.name, problem.model))
    problem = divide_problem(problem, start.items[0].dtype, mesh)
    return problem, pad_start(start, problem.data)


def on_one_device(tree: Any) -> Any:
    """Arrays that every device has, on the first device of this process."""
    own = lambda x: jnp.asarray(np.asarray(x)) if isinstance(x, jax.Array) else x
    return jax.tree.map(own, tree)


def whole(problem: Problem, task: Task, solution: Any) -> tuple[Problem, Any]:
    """What errors and scores are computed from, with arrays of this process alone.

    Of several abilities these are not divided: they take the problem of the task.
    """
    fit = on_one_device(solution.fit)
    if problem.model.several:
        problem, own = task.problem, slice(task.problem.data.num_subjects)
        place = lambda x: x.subject_log_lik
        fit = eqx.tree_at(place, fit, fit.subject_log_lik[own])
    return problem, solution._replace(fit=fit)


def joined(estimates: Estimates, problem: Problem) -> Estimates:
    """Estimates of the problem that was divided, with arrays of this process alone."""
    fields = "parameters", "coordinates", "covariance", "expected", "lengths"
    arrays = {name: on_one_device(getattr(estimates, name)) for name in fields}
    return cut_estimates(dataclasses.replace(estimates, **arrays), problem)
