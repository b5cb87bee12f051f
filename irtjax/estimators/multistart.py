"""Several starts of one method, and how much their results differ."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray, RandomKey, Status
from irtjax.estimators.driver import AbstractMethod, Fit, run, tree_where
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.numerics.precision import full_precision
from irtjax.numerics.random_keys import as_key


class Multistart(eqx.Module):
    """Results of several starts: the best fit, and arrays `[starts]`.

    Attributes:
        best: The fit with the highest objective, from start `best_index`.
        objective: Of each run; -inf where it is not finite.
        gap: Nats below the best.
        status: Codes of `Status`.
        item_difference: Largest difference of an item parameter from the best fit's.
        ability_difference: Likewise for abilities; 0 for marginal methods.
        agrees: Whether the objective is as high as the best within the tolerance. Where
            it is and a difference is large, the likelihood is flat; where it is not,
            there are several optima.
    """

    best: Fit
    best_index: Int[Array, ""]
    objective: Float[Array, " starts"]
    gap: Float[Array, " starts"]
    status: Int[Array, " starts"]
    num_steps: Int[Array, " starts"]
    item_difference: Float[Array, " starts"]
    ability_difference: Float[Array, " starts"]
    agrees: Bool[Array, " starts"]


def random_starts(
    problem: Problem,
    num: int,
    *,
    key: KeyArray,
    around: Start | None = None,
    noise_sd: float = 0.5,
    variance: Array | float | None = None,
) -> Start:
    """The usual start and random ones around it, with a leading axis of `num` starts.

    Free unconstrained item coordinates and abilities get normal noise of standard
    deviation `noise_sd`, except in the first start, `around` or `start_values`. With a
    `variance` v no start depends on the data, the first one neither: abilities are
    N(0, 1), free log discriminations and intercepts N(0, v) (the cBMM paper, A.7).

    Raises:
        ValueError: If `num` is below 1, or a variance is given for a model with other
            parameters than a discrimination and an intercept.
    """
    if num < 1:
        raise ValueError(f"num is {num}; multistart needs at least 1 start")
    if around is None:
        around = start_values(problem.model, problem.data)
    coordinates = problem.model.unconstrain(around.items)
    if variance is not None:
        return _far_starts(problem, num, key, around, coordinates, variance)

    def one(index: Array) -> Start:
        item_key, ability_key = jax.random.split(jax.random.fold_in(key, index))
        size = jnp.where(index == 0, 0, noise_sd).astype(coordinates.dtype)
        noise = jax.random.normal(item_key, coordinates.shape, coordinates.dtype)
        moved = coordinates + size * jnp.where(problem.free, noise, 0)
        # Records pass through the coordinates only where they move: a fixed value
        # at the very end of its range would come back slightly inside.
        moved = problem.model.constrain(moved)
        items = tree_where(index == 0, around.items, moved)
        theta = around.theta
        if theta is not None:
            noise = jax.random.normal(ability_key, theta.shape, theta.dtype)
            theta = theta + size * noise
        return Start(items, theta, around.population)

    return lax.map(one, jnp.arange(num))


def _far_starts(problem, num, key, around: Start, coordinates, variance) -> Start:
    """Starts that do not depend on the data; see `random_starts`."""
    model = problem.model
    own = [(x.name, x.size) for x in model.family.parameters]
    if not set(own) <= {("discrimination", 0), ("intercept", 0)}:
        names = ", ".join(name for name, _ in own)
        raise ValueError(
            "starts of a variance are for a discrimination and an intercept; a"
            f" {model.name} model has {names}"
        )
    dtype = coordinates.dtype
    sd = jnp.sqrt(jnp.asarray(variance, dtype))

    def one(key: KeyArray) -> Start:
        keys = jax.random.split(key, 3)
        draw = lambda k: jax.random.normal(keys[k], (coordinates.shape[0],), dtype)
        values = {"discrimination": jnp.exp(sd * draw(0)), "intercept": sd * draw(1)}
        drawn = around.items._replace(**{name: values[name] for name, _ in own})
        moved = jnp.where(problem.free, model.unconstrain(drawn), coordinates)
        theta = jax.random.normal(keys[2], (problem.data.num_subjects,), dtype)
        return Start(model.constrain(moved), theta)

    return jax.vmap(one)(jax.random.split(key, num))


@full_precision
def multistart(
    problem: Problem,
    method: AbstractMethod,
    starts: Start | None = None,
    *,
    num: int = 10,
    key: RandomKey | None = None,
    noise_sd: float = 0.5,
    tolerance: float = 1e-3,
    max_steps: int = 500,
) -> Multistart:
    """Runs a method from several starts and reports how far the optima differ.

    The starts run one after the other (`lax.map`): under `vmap` every run would take as
    long as the slowest, and all would have their passes over the data in memory at
    once, while each run already uses all cores.

    Args:
        problem: Model, data and free mask.
        method: The estimator.
        starts: A `Start` with a leading axis of starts; None for `random_starts`.
        num: Number of starts when `starts` is None.
        key: A whole number or a JAX key: required for random starts (else a
            ValueError).
        noise_sd: Standard deviation of the noise of random starts.
        tolerance: Nats within which two objectives count as the same (in single
            precision a sum of ten million nats is no better than one).
        max_steps: Step limit of each run.

    Returns:
        The best fit, and every run's objective and distance from it.
    """
    start_key, run_key = (None, None) if key is None else jax.random.split(as_key(key))
    if starts is None:
        if start_key is None:
            raise ValueError("random starts need a key: multistart(..., key=)")
        starts = random_starts(problem, num, key=start_key, noise_sd=noise_sd)
    count = jax.tree.leaves(starts.items)[0].shape[0]

    def one(numbered: tuple[Array, Start]) -> Fit:
        index, start = numbered
        own = None if run_key is None else jax.random.fold_in(run_key, index)
        fit = run(problem, method, start, key=own, max_steps=max_steps)
        return dataclasses.replace(fit, model=None)  # type: ignore[arg-type]

    fits = lax.map(one, (jnp.arange(count), starts))
    finite = jnp.isfinite(fits.objective) & (fits.status != Status.NONFINITE)
    objective = jnp.where(finite, fits.objective, -jnp.inf)
    best_index = jnp.argmax(objective)
    best = jax.tree.map(lambda leaf: leaf[best_index], fits)
    gap = objective[best_index] - objective

    distance = lambda every, one: jnp.max(jnp.abs(every - one).reshape(count, -1), 1)
    items = jax.tree.map(distance, fits.parameters.items, best.parameters.items)
    item_difference = jnp.max(jnp.stack(jax.tree.leaves(items)), axis=0)
    ability_difference = jnp.zeros_like(gap)
    if fits.parameters.theta is not None:
        ability_difference = distance(fits.parameters.theta, best.parameters.theta)
    return Multistart(
        dataclasses.replace(best, model=problem.model),
        best_index,
        objective,
        gap,
        fits.status,
        fits.num_steps,
        item_difference,
        ability_difference,
        gap <= tolerance,
    )
