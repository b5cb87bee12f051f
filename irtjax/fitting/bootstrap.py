"""Bootstrap over subjects or items by weights: same arrays, one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from irtjax._types import KeyArray, RandomKey
from irtjax.data.responses import Responses
from irtjax.estimators.driver import AbstractMethod, run
from irtjax.fitting.devices import check_devices, divided
from irtjax.inference import score_on_nodes
from irtjax.inference.vector_scores import score_factors
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.numerics.memory import require_memory
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit, unstored_over_devices
from irtjax.numerics.progress import watched
from irtjax.numerics.random_keys import as_key

UNITS = ("subjects", "items")


class Bootstrap(NamedTuple):
    """Replicates of a fit.

    Attributes:
        parameters: Estimates with a leading `[replicates]` axis.
        ability: `[replicates, subjects]` scores: EAP, or joint estimates, or means of
            `Laplace`, NaN of subjects that a replicate lacks. Of several
            abilities `[replicates, subjects, dims]` modes, on the replicate's own
            factors: `numerics.loadings.align` matches those by its slopes.
        status: `[replicates]` status codes.
        weight: `[replicates, size]` weights drawn for subjects or items.
    """

    parameters: Parameters
    ability: Float[Array, "replicates subjects"]
    status: Array
    weight: Float[Array, "replicates size"]


@unstored_over_devices
@full_precision
def bootstrap(
    problem: Problem,
    method: AbstractMethod,
    start: Start | None,
    *,
    key: RandomKey,
    num_replicates: int = 200,
    unit: str = "subjects",
    groups: Sequence[Any] | np.ndarray | None = None,
    max_steps: int = 200,
    batch_size: int = 8,
    mesh: Mesh | None = None,
) -> Bootstrap:
    """Refits under multinomial weights of subjects or items.

    Resampling subjects shows how the items would vary with other subjects; resampling
    items shows how the abilities would vary with other items of the same kind. Weights
    replace resampled rows, so nothing is reshaped or recompiled. Replicates run in
    batches: one replicate that needs many steps then delays its batch only (a vmap over
    all of them was ten times slower).

    Args:
        problem: The problem that was fitted.
        method: Its method; an EM needs its nodes. Windows of nodes are turned off.
        start: Where each replicate starts: the estimates of the full fit; None for
            `Laplace`, which makes its own.
        key: A whole number or a JAX key.
        num_replicates: Number of replicates.
        unit: "subjects" or "items".
        groups: `[size]` the group of each unit, such as the family of a model: groups
            are drawn whole, since their members are not independent. None: each unit
            alone.
        max_steps: Step limit of a replicate.
        batch_size: Replicates run at once.
        mesh: Devices that subjects are divided over; see `irtjax.fit`.

    Returns:
        The replicates; see `percentile_interval`.

    Raises:
        ValueError: If `unit` is neither of the two, or groups are of another size or
            fewer than two.
    """
    size = _size(problem.data, unit)
    what = f"{num_replicates:,} replicates of {size:,} {unit}"
    require_memory(16.0 * num_replicates * size, what, "lower num_replicates")
    keys = jax.random.split(as_key(key), num_replicates)
    first = getattr(start, "items", None)
    dtype = jnp.zeros(()).dtype if first is None else jnp.asarray(first[0]).dtype
    if groups is None:
        weight = _draw_weights(keys, size, dtype)
    else:
        codes, count = _codes(groups, size, unit)
        weight = _draw_weights(keys, count, dtype)[:, codes]
    return refit(
        problem,
        method,
        start,
        weight,
        keys,
        unit=unit,
        max_steps=max_steps,
        batch_size=batch_size,
        mesh=mesh,
    )


def _codes(groups: Any, size: int, unit: str) -> tuple[np.ndarray, int]:
    """The number of each unit's group, and how many groups there are."""
    names = np.asarray(groups)
    if names.shape != (size,):
        raise ValueError(f"groups have shape {names.shape}; {unit} need ({size},)")
    labels, codes = np.unique(names, return_inverse=True)
    if len(labels) < 2:
        raise ValueError(
            f"groups: all {unit} are of one group, which has no replicates"
        )
    return codes, len(labels)


@partial(jax.jit, static_argnums=(1, 2))
def _draw_weights(keys, size: int, dtype) -> Array:
    """Multinomial weights `[replicates, size]`: how often each one is drawn."""

    def one(key):
        draws = jax.random.randint(key, (size,), 0, size)
        return jnp.zeros(size, dtype).at[draws].add(1)

    return jax.vmap(one)(keys)


def refit(
    problem: Problem,
    method: AbstractMethod,
    start: Start | None,
    weight: Float[Array, "replicates size"],
    keys: KeyArray | None = None,
    *,
    unit: str = "subjects",
    max_steps: int = 200,
    batch_size: int = 8,
    mesh: Mesh | None = None,
) -> Bootstrap:
    """Refits under given weights of subjects or items, in one compiled program.

    Every subject is scored with the items of a replicate, those of weight 0 too.

    Args:
        problem: The problem that was fitted.
        method: Its method; an EM needs its nodes. Windows of nodes are turned off.
        start: Where each replicate starts: the estimates of the full fit.
        weight: Numbers of copies, a row for each replicate.
        keys: `[replicates]` random keys, for methods that use randomness.
        unit: What has the weights: "subjects" or "items".
        max_steps: Step limit of a replicate.
        batch_size: Replicates run at once.
        mesh: Devices that subjects are divided over; see `irtjax.fit`.

    Returns:
        The replicates, in the order of the weights.

    Raises:
        ValueError: If `unit` is neither of the two, or the weights are of another size.
    """
    size = _size(problem.data, unit)
    if weight.ndim != 2 or weight.shape[1] != size:
        raise ValueError(
            f"weights have shape {weight.shape}; {unit} need (replicates, {size})"
        )
    shape = problem.data.num_subjects, problem.data.num_items
    if mesh is not None:
        check_devices(mesh, method)
        problem, start = divided(method, problem, start, mesh)
        lacking = _size(problem.data, unit) - size
        weight = jnp.pad(weight, ((0, 0), (0, lacking)))
    method, count, batches = method.for_vmap(), len(weight), []
    problem = method.prepared(problem)
    for begin in watched(range(0, count, batch_size), "batch of replicates"):
        # Whole batches, so that one program serves any number of replicates.
        rows = jnp.minimum(begin + jnp.arange(batch_size), count - 1)
        drawn = None if keys is None else keys[rows]
        part = _refit(problem, method, start, weight[rows], drawn, unit, max_steps)
        # Waited for, so that the share done is that of finished batches.
        part = jax.block_until_ready(part)
        batches.append(jax.tree.map(lambda leaf: leaf[: count - begin], part))  # noqa: B023
    every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *batches)
    return every if mesh is None else _cut(every, *shape, size)


def _cut(every: Bootstrap, num_subjects: int, num_items: int, size: int) -> Bootstrap:
    """The replicates without the rows and columns that were added to divide them."""
    parameters = every.parameters
    theta = None if parameters.theta is None else parameters.theta[:, :num_subjects]
    items = jax.tree.map(lambda x: x[:, :num_items], parameters.items)
    return every._replace(
        parameters=parameters._replace(items=items, theta=theta),
        ability=every.ability[:, :num_subjects],
        weight=every.weight[:, :size],
    )


def _size(data: Responses, unit: str) -> int:
    """Number of units that are resampled."""
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r} is neither 'subjects' nor 'items'")
    return data.num_subjects if unit == "subjects" else data.num_items


@stored_jit
def _refit(problem, method, start, weight, keys, unit, max_steps):
    """Fits `[replicates]` of the data under their weights, by batches."""
    dtype = weight.dtype

    def replicate(drawn):
        """The fit of subjects or items under their weights."""
        weight, key = drawn
        resampled = problem.weighted(unit, weight)
        weighted = resampled.data
        fit = run(resampled, method, start, key=key, max_steps=max_steps)
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
                scoring="eap",
            ).ability
        if ability is None:  # Marginal methods of several abilities.
            ability = score_factors(
                problem.model, parameters.items, parameters.population, weighted
            ).ability
        return parameters, ability, fit.status, weight

    return Bootstrap(*jax.vmap(replicate)((weight, keys)))


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
