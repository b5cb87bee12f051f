"""Bootstrap over subjects or items by weights: same arrays, one compiled program."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.estimators.driver import AbstractMethod, run
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.numerics.precision import full_precision
from irtjax.scoring import score_on_nodes

UNITS = ("subjects", "items")


class Bootstrap(NamedTuple):
    """Replicates of a fit.

    Attributes:
        parameters: Estimates with a leading `[replicates]` axis.
        ability: `[replicates, subjects]` scores (EAP, or joint estimates).
        status: `[replicates]` status codes.
        weight: `[replicates, size]` weights drawn for subjects or items.
    """

    parameters: Parameters
    ability: Float[Array, "replicates subjects"]
    status: Array
    weight: Float[Array, "replicates size"]


@full_precision
def bootstrap(
    problem: Problem,
    method: AbstractMethod,
    start: Start,
    *,
    key: KeyArray,
    num_replicates: int = 200,
    unit: str = "subjects",
    max_steps: int = 200,
    batch_size: int = 8,
) -> Bootstrap:
    """Refits under multinomial weights of subjects or items.

    Resampling subjects shows how the items would vary with other subjects; resampling
    items shows how the abilities would vary with other items of the same kind. Weights
    replace resampled rows, so nothing is reshaped or recompiled. Replicates run in
    batches under `lax.map`: one replicate that needs many steps then delays its batch
    only (a vmap over all of them was ten times slower).

    Args:
        problem: The problem that was fitted.
        method: Its method; an EM needs its nodes. Windows of nodes are turned off.
        start: Where each replicate starts: the estimates of the full fit.
        key: Random key.
        num_replicates: Number of replicates.
        unit: "subjects" or "items".
        max_steps: Step limit of a replicate.
        batch_size: Replicates run at once.

    Returns:
        The replicates; see `percentile_interval`.

    Raises:
        ValueError: If `unit` is neither of the two.
    """
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r} is neither 'subjects' nor 'items'")
    method = method.for_vmap()
    return _bootstrap(
        problem, method, start, key, num_replicates, unit, max_steps, batch_size
    )


@eqx.filter_jit
def _bootstrap(
    problem, method, start, key, num_replicates, unit, max_steps, batch_size
):
    data = problem.data
    size = data.num_subjects if unit == "subjects" else data.num_items
    dtype = jnp.asarray(start.items[0]).dtype

    def replicate(replicate_key):
        """A fit of subjects or items drawn with replacement."""
        draws = jax.random.randint(replicate_key, (size,), 0, size)
        weight = jnp.zeros(size, dtype).at[draws].add(1)
        weighted = _with_weight(data, unit, weight)
        resampled = eqx.tree_at(lambda p: p.data, problem, weighted)
        fit = run(resampled, method, start, key=replicate_key, max_steps=max_steps)
        parameters = fit.parameters
        # A histogram's nodes move, and every replicate has its own.
        grid, ability = method.nodes_of(fit.state), parameters.theta
        if grid is not None:
            ability = score_on_nodes(
                problem.model,
                parameters.items,
                parameters.population,
                weighted,
                grid.nodes,
                jnp.asarray([-6.0, 6.0], dtype),
                method="eap",
            ).ability
        return parameters, ability, fit.status, weight

    keys = jax.random.split(key, num_replicates)
    return Bootstrap(*lax.map(replicate, keys, batch_size=batch_size))


def _with_weight(data: Responses, unit: str, weight: Array) -> Responses:
    """The data with drawn weights multiplied into those it has."""
    name = "subject_weight" if unit == "subjects" else "item_weight"
    old = getattr(data, name)
    new = weight if old is None else weight * old
    return dataclasses.replace(data, **{name: new})


def percentile_interval(replicates: Any, level: float = 0.95) -> tuple[Any, Any]:
    """Lower and upper percentile over the leading axis of each array of a PyTree.

    >>> low, high = percentile_interval(jnp.arange(101.0), 0.9)
    >>> float(low), float(high)
    (5.0, 95.0)
    """
    tail = (1 - level) / 2
    lower = jax.tree.map(lambda a: jnp.quantile(a, tail, axis=0), replicates)
    upper = jax.tree.map(lambda a: jnp.quantile(a, 1 - tail, axis=0), replicates)
    return lower, upper
