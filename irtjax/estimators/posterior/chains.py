"""What a sampler takes and gives: settings, chains under way, draws.

The sampling itself is in `irtjax.estimators.posterior.nuts`.
"""

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

#: How chains share the machine; see `NUTS`.
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
        num_warmup: Steps of warm-up, whose draws are thrown away.
        num_draws: Draws kept of each chain.
        num_chains: Chains; four or more, since only chains that agree convince.
        target_acceptance: Mean acceptance that the step size is adapted to. Closer to 1
            means smaller steps: dearer, and right where the posterior curves sharply.
        max_depth: A trajectory has at most 2^max_depth - 1 leapfrog steps.
        dense: Adapt the whole covariance, `[dims, dims]`, not its diagonal. For
            strong linear correlations among few hundred coordinates at most.
        thinning: Keep every so many-th draw.
        chain_method: "vectorized" moves all chains in lockstep, each step waiting for
            the longest trajectory; "sequential" runs one after the other; "parallel"
            spreads them over the devices, each of which runs its share by itself.
            "auto": parallel where there are several devices, which run their shares
            sequentially on a CPU, else in lockstep. On one CPU `sample.sample`
            runs the chains of "auto" and "parallel" side by side in threads, which
            changes no draw.

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
        for name in ("num_draws", "num_chains", "max_depth", "thinning"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"NUTS has {name}={getattr(self, name)}; it needs at least 1"
                )
        if self.num_warmup < 0:
            raise ValueError(f"NUTS has num_warmup={self.num_warmup}; 0 is the least")
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
    """What is known of each step after warm-up; `[chains, transitions]` in results.

    Attributes:
        divergent: Whether the energy error exceeded 1,000 on the trajectory.
        tree_depth: Doublings of the trajectory.
        num_leapfrog: Its leapfrog steps, one gradient each.
        acceptance: Mean acceptance probability along it.
        energy: Hamiltonian at the draw.
        log_density: Log density of the draw.
    """

    divergent: Bool[Array, "*chains transitions"]
    tree_depth: Int[Array, "*chains transitions"]
    num_leapfrog: Int[Array, "*chains transitions"]
    acceptance: Float[Array, "*chains transitions"]
    energy: Float[Array, "*chains transitions"]
    log_density: Float[Array, "*chains transitions"]


class Chain(NamedTuple):
    """Everything that belongs to one chain; `Chains` has them with a leading axis.

    Attributes:
        position: Where it is.
        log_density: There.
        gradient: `[dims]` there, over the raveled position.
        averaging: State of the step size's dual averaging.
        window: Running moments of the mass matrix' window.
        step_size: In use.
        inverse_mass: In use, `[dims]`, or `[dims, dims]` if dense.
        key: The chain's own key; a step's is `fold_in(key, step)`.
        values: What is kept, each `[draws, ...]`, zeros where not drawn yet.
        statistics: Of each step after warm-up.
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
    """A run under way: enough to stop, save and go on as if unbroken.

    Attributes:
        each: The chains, every array with a leading `[chains]` axis.
        step: Steps taken by all of them.
    """

    each: Chain
    step: Int[Array, ""]


class Draws(eqx.Module):
    """Draws of a posterior.

    Attributes:
        values: What was kept by name, each `[chains, draws, ...]`.
        divergent: `[chains, transitions]`, see `Statistics`; one transition per draw
            unless draws are thinned.
        tree_depth: Likewise.
        num_leapfrog: Likewise.
        acceptance: Likewise.
        energy: Likewise.
        log_density: Likewise.
        step_size: `[chains]` after warm-up.
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


def keep_position(position: Position, data: Any = None) -> dict[str, Array]:
    """The leaves of a position by name, kept by default.

    >>> sorted(keep_position({"ability": jnp.zeros(2), "log_sd": jnp.zeros(())}))
    ['ability', 'log_sd']
    >>> list(keep_position(jnp.zeros(3)))
    ['position']
    """
    del data
    leaves = jax.tree_util.tree_leaves_with_path(position)
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path) or "position": leaf for path, leaf in leaves}


def spread_starts(
    start: Position, num_chains: int, *, key: KeyArray, radius: float = 1.0
) -> Position:
    """Start values of several chains, uniform around one position.

    Chains show that they have forgotten their starts only if these differ by more than
    the posterior does; Stan takes a radius of 2 around 0.

    Args:
        start: A position.
        num_chains: Number of chains.
        key: Random key.
        radius: Largest distance of a coordinate from the start.

    Returns:
        A position whose arrays have a leading `[chains]` axis.

    >>> spread_starts(jnp.zeros(3), 2, key=jax.random.key(0)).shape
    (2, 3)
    """
    flat, unravel = ravel_pytree(start)
    noise = jax.random.uniform(
        key, (num_chains, *flat.shape), flat.dtype, minval=-radius, maxval=radius
    )
    return jax.vmap(unravel)(flat + noise)


def draws_of(chains: Chains, method: NoUTurn) -> Draws:
    """The draws of a run, finished or not; those not drawn yet are left out.

    Args:
        chains: From `advance`.
        method: The sampler.

    Returns:
        The draws. Not for use under jit: their number depends on the step.
    """
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
