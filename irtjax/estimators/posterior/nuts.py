"""Draws from a posterior by the no-U-turn sampler, for any log density.

The sampler is that of Hoffman and Gelman (2014) with multinomial draws from each
trajectory (Betancourt 2017), as BlackJAX implements it. Warm-up has Stan's windows: the
first 75 steps adapt the step size alone, by dual averaging, as do the last 50; between
them the mass matrix is estimated in windows of 25, 50, 100, ... steps, the last of
which takes the remainder. Short warm-ups split 15 %, 75 % and 10 %; under 20 steps only
the step size is adapted. A run can resume after any step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray, Status, StatusCode
from irtjax.data.wording import counted
from irtjax.estimators.settings import check_least
from irtjax.numerics.memory import require_memory

#: How chains share the machine; see `NoUTurn`.
CHAIN_METHODS = ("auto", "vectorized", "sequential", "parallel")

#: An unconstrained position, any PyTree of floating arrays.
Position = Any
#: log_density(position, data) -> scalar.
LogDensity = Callable[[Position, Any], Array]
#: keep(position, data) -> what is stored of a draw, by name.
Keep = Callable[[Position, Any], dict[str, Array]]


class NoUTurn(eqx.Module):
    """The no-U-turn sampler and its warm-up, with the settings of `irtjax.NUTS`.

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
        # Refused here, before a start is fitted; `sample` counts all coordinates.
        self.check_size(1)

    def check_size(self, size: float) -> None:
        """Refuses draws of so many coordinates that do not fit into the memory."""
        what = (
            f"{counted(self.num_chains, 'chain')} of {counted(self.num_draws, 'draw')}"
        )
        needed = 4.0 * size * self.num_chains * self.num_draws
        require_memory(needed, what, "lower num_draws, or lower num_chains")

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
    """The state of one chain.

    `gradient` is over the raveled position, `averaging` is of the step size, `window`
    of the mass matrix. The key of a step is `fold_in(key, step)`.
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
    """Draws of a posterior, one for every `thinning` transitions.

    `values` is what was kept by name, each `[chains, draws, ...]`. Of each trajectory:
    whether the energy error exceeded 1,000 (`divergent`), its doublings (`tree_depth`,
    at most `max_depth`), leapfrog steps with one gradient each, mean acceptance
    probability, and the Hamiltonian (`energy`) and log density at its end. `step_size`
    and `inverse_mass` (`[chains, dims]` or `[chains, dims, dims]`) are after warm-up.
    `status` is RUNNING before the last draw, NONFINITE if a log density is not finite,
    else MAX_STEPS, for which `sample.sample` may return CONVERGED.
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
    """The leaves of a position by name, kept by default; of one array, `position`."""
    leaves = jax.tree_util.tree_leaves_with_path(position)
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {name(path) or "position": leaf for path, leaf in leaves}


def dispersed_starts(
    start: Position, num_chains: int, *, key: KeyArray, radius: float = 1.0
) -> Position:
    """Start values with a leading `[chains]` axis, uniform within a radius of one.

    R-hat shows convergence only if starts differ by more than the posterior does; Stan
    takes a radius of 2 around 0.
    """
    flat, unravel = ravel_pytree(start)
    shape = (num_chains, flat.size)
    noise = jax.random.uniform(key, shape, flat.dtype, -radius, radius)
    return jax.vmap(unravel)(flat + noise)


def begin(
    log_density: LogDensity,
    start: Position,
    data: Any,
    *,
    key: KeyArray,
    method: NoUTurn,
    keep: Keep | None = None,
) -> Chains:
    """The chains before their first step. Pure: jit it with `log_density` static.

    The first step size is that at which a leapfrog step is accepted with about the
    target probability (Hoffman and Gelman 2014, Algorithm 4). Start values are those of
    `dispersed_starts`; `keep` returns what is stored of each draw, None the position.
    """
    check_floating(start)
    num_chains, keep = method.num_chains, keep or keep_position
    if any(jnp.shape(leaf)[:1] != (num_chains,) for leaf in jax.tree.leaves(start)):
        raise ValueError(
            f"the start values have no leading axis of {num_chains} chains: make it"
            " with dispersed_starts, or change num_chains"
        )

    def one(position: Position, index: Array) -> Chain:
        """A chain at its start, with a first step size."""
        flat, unravel = ravel_pytree(position)
        density = _wide(log_density, unravel, data)
        value, gradient = jax.value_and_grad(density)(flat)
        dtype = flat.dtype
        chain_key = jax.random.fold_in(key, index)
        inverse_mass = jnp.ones(flat.shape, dtype)
        if method.dense:
            inverse_mass = jnp.diag(inverse_mass)
        step_key = jax.random.fold_in(chain_key, method.num_steps)
        at = flat, value, gradient
        target = jnp.asarray(method.target_acceptance, dtype)
        step_size = _first_step_size(step_key, density, at, inverse_mass, target)
        (init_step, _, _), (init_mass, _, _) = _adaptation(method)
        counts = jnp.zeros(method.num_transitions, jnp.int32)
        zeros = jnp.zeros(method.num_transitions, dtype)
        empty = lambda leaf: jnp.zeros((method.num_draws, *leaf.shape), leaf.dtype)
        return Chain(
            position,
            value.astype(dtype),
            gradient,
            _as_dtype(init_step(step_size), dtype),
            _as_dtype(init_mass(flat.shape[0]), dtype),
            step_size,
            inverse_mass,
            chain_key,
            jax.tree.map(empty, jax.eval_shape(keep, position, data)),
            Statistics(counts > 0, counts, counts, zeros, zeros, zeros),
        )

    each = jax.vmap(one)(start, jnp.arange(num_chains))
    return Chains(each, jnp.zeros((), jnp.int32))


def _wide(log_density: LogDensity, unravel, data: Any):
    """The density of flat positions as a scalar of JAX' default dtype."""
    # With double precision enabled BlackJAX' weights have that dtype, and JAX would
    # refuse to mix them with energies in single precision.
    return lambda x: jnp.asarray(log_density(unravel(x), data), jnp.result_type(float))


def _first_step_size(key, density, state, inverse_mass, target) -> Array:
    """A step size at which about the target share of leapfrog steps is accepted."""
    from blackjax.adaptation.step_size import find_reasonable_step_size
    from blackjax.mcmc import hmc

    # BlackJAX annotates numbers where it also takes arrays; also further down.
    kernel, find = cast(Any, hmc.build_kernel()), cast(Any, find_reasonable_step_size)
    bound = lambda step_size: (
        lambda key, state: kernel(key, state, density, step_size, inverse_mass, 1)
    )
    one = jnp.ones((), state[0].dtype)
    size = find(key, bound, hmc.HMCState(*state), one, target)
    return size.astype(one.dtype)


def _adaptation(method: NoUTurn):
    """The pure pieces of both adaptations, each (init, update, final)."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    averaging = cast(Any, dual_averaging_adaptation)(method.target_acceptance)
    return averaging, cast(Any, mass_matrix_adaptation)(not method.dense)


def _as_dtype(state: Any, dtype) -> Any:
    """The state with all its numbers in one dtype."""
    # Counts too: they enter powers and quotients, which must not change the dtype.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), state)


def advance(
    chains: Chains,
    log_density: LogDensity,
    data: Any,
    *,
    method: NoUTurn,
    num_steps: Array | int,
    keep: Keep | None = None,
) -> Chains:
    """Takes every chain some steps further, to the end of the run at most. Pure.

    The key of a step depends on its number alone and `num_steps` may be traced, so
    parts under one `jit` give the draws of an unbroken run, bit for bit.
    """
    stop = jnp.minimum(chains.step + num_steps, method.num_steps).astype(jnp.int32)
    keep = keep or keep_position

    def run(each: Chain, data: Any, begin: Array, stop: Array) -> Chain:
        body = partial(_step, log_density, keep, method, data)
        return lax.fori_loop(begin, stop, body, each)

    each = _over_chains(run, method, chains.each, data, chains.step, stop)
    return Chains(each, stop)


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


def mesh_of(method: NoUTurn) -> jax.sharding.Mesh | None:
    """The devices that chains are distributed over; None where one has them all."""
    devices = jax.devices()
    num_parts = max(n for n in range(1, len(devices) + 1) if method.num_chains % n == 0)
    if method.chain_method in ("vectorized", "sequential") or num_parts == 1:
        return None
    chosen, auto = devices[:num_parts], (jax.sharding.AxisType.Auto,)
    return jax.make_mesh((num_parts,), ("chains",), axis_types=auto, devices=chosen)


def _over_chains(run, method: NoUTurn, each: Chain, *shared) -> Chain:
    """`run(chain, *shared)` for every chain, by `chain_method`."""
    lockstep = jax.vmap(run, in_axes=(0, *(None for _ in shared)))
    in_turn = lambda each, *shared: lax.map(lambda chain: run(chain, *shared), each)
    on_cpu, chosen = jax.default_backend() == "cpu", method.chain_method
    mesh = mesh_of(method)
    if mesh is None:
        one_by_one = chosen == "sequential" or (chosen != "vectorized" and on_cpu)
        return (in_turn if one_by_one else lockstep)(each, *shared)
    split, whole = jax.P("chains"), jax.P()
    specs = {"in_specs": (split, *(whole for _ in shared)), "out_specs": split}
    one = in_turn if on_cpu else lockstep
    # Not a sharding of the batch: its loops would synchronise all devices after every
    # leapfrog step whether any still needs another.
    return jax.shard_map(one, mesh=mesh, **specs, check_vma=False)(each, *shared)


def _step(log_density, keep, method: NoUTurn, data, step: Array, chain: Chain) -> Chain:
    """One transition of one chain, with its adaptation and its record."""
    from blackjax.mcmc import nuts
    from blackjax.mcmc.hmc import HMCState

    flat, unravel = ravel_pytree(chain.position)
    dtype, kernel = flat.dtype, cast(Any, nuts.build_kernel())
    density = jnp.asarray(chain.log_density, jnp.result_type(float))
    key, target = jax.random.fold_in(chain.key, step), _wide(log_density, unravel, data)
    at = cast(Any, HMCState)(flat, density, chain.gradient)
    scale = chain.step_size, chain.inverse_mass
    state, info = kernel(key, at, target, *scale, method.max_depth)
    moved = chain._replace(
        position=unravel(state.position),
        log_density=state.logdensity.astype(dtype),
        gradient=state.logdensity_grad,
    )
    acceptance = jnp.asarray(info.acceptance_rate, dtype)
    if method.num_warmup:
        adapt = lambda c: _adapt(method, step, c, state.position, acceptance)
        moved = lax.cond(step < method.num_warmup, adapt, lambda c: c, moved)
    depth, leapfrog = info.num_trajectory_expansions, info.num_integration_steps
    energies = info.energy, state.logdensity
    now = Statistics(info.is_divergent, depth, leapfrog, acceptance, *energies)
    return _record(method, keep, step, moved, now, data)


def _adapt(method: NoUTurn, step, chain: Chain, flat, acceptance) -> Chain:
    """The chain with step size and mass matrix after one step of warm-up."""
    from blackjax.adaptation.window_adaptation import build_schedule

    of_step, (_, update_mass, final_mass) = _adaptation(method)
    init_step, update_step, final_step = of_step
    dtype = flat.dtype
    # Whether the step counts for the mass matrix, and whether it ends a window.
    slow, ends = build_schedule(method.num_warmup)[step] > 0
    averaging = update_step(chain.averaging, acceptance)
    window = lax.cond(slow, lambda w: update_mass(w, flat), lambda w: w, chain.window)

    def close(parts):
        averaging, window = parts
        restarted = init_step(final_step(averaging))
        return _as_dtype((restarted, final_mass(window)), dtype)

    parts = _as_dtype((averaging, window), dtype)
    averaging, window = lax.cond(ends, close, lambda parts: parts, parts)
    last = step == method.num_warmup - 1
    step_size = jnp.where(last, final_step(averaging), jnp.exp(averaging.log_step_size))
    return chain._replace(
        averaging=averaging,
        window=window,
        step_size=step_size.astype(dtype),
        inverse_mass=window.inverse_mass_matrix,
    )


def _record(method: NoUTurn, keep, step, chain: Chain, now: Statistics, data) -> Chain:
    """The chain with this step stored, if it is past warm-up and kept."""
    after = step - method.num_warmup
    counted = after >= 0
    stored = counted & ((after + 1) % method.thinning == 0)
    none = lambda c: jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), c.values)
    row = lax.cond(stored, lambda c: keep(c.position, data), none, chain)

    def put(old: Array, new: Array, index: Array, wanted: Array) -> Array:
        # Chosen row by row: a choice between whole arrays would copy them every step.
        index = jnp.maximum(index, 0)
        new = jnp.where(wanted, jnp.asarray(new, old.dtype), old[index])
        return lax.dynamic_update_index_in_dim(old, new, index, 0)

    put_row = partial(put, index=after, wanted=counted)
    put_draw = partial(put, index=after // method.thinning, wanted=stored)
    return chain._replace(
        statistics=jax.tree.map(put_row, chain.statistics, now),
        values=jax.tree.map(put_draw, chain.values, row),
    )
