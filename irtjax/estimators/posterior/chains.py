"""Types of the sampler in `nuts`: its settings, chains at some step, and draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray, Status, StatusCode
from irtjax.estimators.settings import check_least

#: How chains share the machine; see `NoUTurn`.
CHAIN_METHODS = ("auto", "vectorized", "sequential", "parallel")

#: An unconstrained position, any PyTree of floating arrays.
Position = Any
#: log_density(position, data) -> scalar.
LogDensity = Callable[[Position, Any], Array]
#: keep(position, data) -> what is stored of a draw, by name.
Keep = Callable[[Position, Any], dict[str, Array]]


class NoUTurn(eqx.Module):
    """The no-U-turn sampler and its warm-up.

    Attributes:
        num_warmup: Steps of warm-up, whose draws are discarded.
        num_draws: Draws kept of each chain.
        num_chains: Chains; R-hat needs four or more to be reliable.
        target_acceptance: Mean acceptance that the step size is adapted to. Closer to 1
            means smaller steps: slower, and better where the posterior curves sharply.
        max_depth: A trajectory has at most 2^max_depth - 1 leapfrog steps.
        dense: Adapt the whole covariance `[dims, dims]`, not its diagonal: for strong
            linear correlations among a few hundred coordinates at most.
        thinning: Keep every so many-th draw.
        chain_method: "vectorized" moves all chains in lockstep, each step waiting for
            the longest trajectory; "sequential" runs one after the other; "parallel"
            distributes them over the devices, each of which runs its share by itself.
            "auto": parallel where there are several devices, which run their shares
            sequentially on a CPU, else in lockstep. On one CPU `sample.sample` runs the
            chains of "auto" and "parallel" in threads, with the same draws.

    >>> NoUTurn(num_draws=0)
    Traceback (most recent call last):
        ...
    ValueError: NUTS has num_draws=0; it needs at least 1
    """

    num_warmup: int = eqx.field(static=True, default=1000)
    num_draws: int = eqx.field(static=True, default=1000)
    num_chains: int = eqx.field(static=True, default=4)
    target_acceptance: float | Array = 0.8
    max_depth: int = eqx.field(static=True, default=10)
    dense: bool = eqx.field(static=True, default=False)
    thinning: int = eqx.field(static=True, default=1)
    chain_method: str = eqx.field(static=True, default="auto")

    def __check_init__(self):
        """Refuses settings that no run can have."""
        least = {"num_draws": 1, "num_chains": 1, "max_depth": 1, "thinning": 1}
        check_least("NUTS", self, num_warmup=0, **least)
        target = self.target_acceptance
        if isinstance(target, int | float) and not 0 < target < 1:
            raise ValueError(
                f"NUTS has target_acceptance={target}; choose one between 0 and 1"
            )
        if self.chain_method not in CHAIN_METHODS:
            raise ValueError(
                f"chain_method {self.chain_method!r} is none of"
                f" {', '.join(CHAIN_METHODS)}"
            )

    @property
    def num_transitions(self) -> int:
        """Steps of each chain after warm-up."""
        return self.num_draws * self.thinning

    @property
    def num_steps(self) -> int:
        """Steps of each chain in all."""
        return self.num_warmup + self.num_transitions


class Statistics(NamedTuple):
    """Statistics of each step after warm-up; see `Draws`."""

    divergent: Bool[Array, "*chains transitions"]
    tree_depth: Int[Array, "*chains transitions"]
    num_leapfrog: Int[Array, "*chains transitions"]
    acceptance: Float[Array, "*chains transitions"]
    energy: Float[Array, "*chains transitions"]
    log_density: Float[Array, "*chains transitions"]


class Chain(NamedTuple):
    """Everything that belongs to one chain; `Chains` has them with a leading axis.

    `gradient` `[dims]` is over the raveled position; `averaging` is the state of dual
    averaging, `window` has the running moments of the mass matrix. `inverse_mass` is
    `[dims]`, or `[dims, dims]` if dense. The key of a step is `fold_in(key, step)`.
    `values` `[draws, ...]` are zeros where not drawn yet.
    """

    position: Position
    log_density: Array
    gradient: Array
    averaging: Any
    window: Any
    step_size: Array
    inverse_mass: Array
    key: Array
    values: dict[str, Array]
    statistics: Statistics


class Chains(NamedTuple):
    """The state of a run: chains with a leading `[chains]` axis, and steps taken."""

    each: Chain
    step: Int[Array, ""]


class Draws(eqx.Module):
    """Draws of a posterior; one transition per draw unless draws are thinned.

    Attributes:
        values: What was kept by name, each `[chains, draws, ...]`.
        divergent: Whether the energy error exceeded 1,000 on the trajectory.
        tree_depth: Doublings of the trajectory.
        num_leapfrog: Its leapfrog steps, one gradient each.
        acceptance: Mean acceptance probability along it.
        energy: Hamiltonian at its end.
        log_density: Log density there.
        step_size: After warm-up.
        inverse_mass: `[chains, dims]`, or `[chains, dims, dims]`.
        status: RUNNING before the last draw, NONFINITE if a log density is not finite,
            else MAX_STEPS: `sample.sample` returns CONVERGED where the diagnostics
            of `convergence` find no problem.
        max_depth: The limit of `tree_depth`.
        thinning: Transitions per draw.
    """

    values: dict[str, Array]
    divergent: Bool[Array, "chains transitions"]
    tree_depth: Int[Array, "chains transitions"]
    num_leapfrog: Int[Array, "chains transitions"]
    acceptance: Float[Array, "chains transitions"]
    energy: Float[Array, "chains transitions"]
    log_density: Float[Array, "chains transitions"]
    step_size: Float[Array, " chains"]
    inverse_mass: Array
    status: StatusCode
    max_depth: int = eqx.field(static=True, default=10)
    thinning: int = eqx.field(static=True, default=1)


def check_floating(start: Position) -> None:
    """Refuses start values that are not floating arrays of one dtype."""
    dtypes = {jnp.result_type(leaf) for leaf in jax.tree.leaves(start)}
    if len(dtypes) != 1 or not jnp.issubdtype(dtypes.pop(), jnp.floating):
        raise ValueError(
            "the start values are not floating arrays of one dtype: convert them"
            " to that of the data"
        )


def keep_position(position: Position, data: Any = None) -> dict[str, Array]:
    """The leaves of a position by name, kept by default.

    >>> sorted(keep_position({"ability": jnp.zeros(2), "log_sd": jnp.zeros(())}))
    ['ability', 'log_sd']
    >>> list(keep_position(jnp.zeros(3)))
    ['position']
    """
    leaves = jax.tree_util.tree_leaves_with_path(position)
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path) or "position": leaf for path, leaf in leaves}


def spread_starts(
    start: Position, num_chains: int, *, key: KeyArray, radius: float = 1.0
) -> Position:
    """Start values of several chains, uniform within a radius of one position.

    R-hat shows convergence only if starts differ by more than the posterior does; Stan
    takes a radius of 2 around 0. The result has a leading `[chains]` axis.

    >>> spread_starts(jnp.zeros(3), 2, key=jax.random.key(0)).shape
    (2, 3)
    """
    flat, unravel = ravel_pytree(start)
    noise = jax.random.uniform(
        key, (num_chains, *flat.shape), flat.dtype, minval=-radius, maxval=radius
    )
    return jax.vmap(unravel)(flat + noise)


def draws_of(chains: Chains, method: NoUTurn) -> Draws:
    """The draws of a run up to its step; not for use under jit."""
    each = chains.each
    after = max(int(chains.step) - method.num_warmup, 0)
    statistics = jax.tree.map(lambda leaf: leaf[:, :after], each.statistics)
    values = jax.tree.map(lambda leaf: leaf[:, : after // method.thinning], each.values)
    status = Status.RUNNING
    if after == method.num_transitions:
        finite = bool(jnp.isfinite(statistics.log_density).all())
        status = Status.MAX_STEPS if finite else Status.NONFINITE
    return Draws(
        values,
        *statistics,
        step_size=each.step_size,
        inverse_mass=each.inverse_mass,
        status=jnp.asarray(status, jnp.int32),
        max_depth=method.max_depth,
        thinning=method.thinning,
    )
