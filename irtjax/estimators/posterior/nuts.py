"""Draws from a posterior by the no-U-turn sampler, for any log density.

The sampler is that of Hoffman and Gelman (2014) with multinomial draws from each
trajectory (Betancourt 2017), as BlackJAX implements it. Warm-up has Stan's windows: the
first 75 steps adapt the step size alone, by dual averaging, as do the last 50; between
them the mass matrix is estimated in windows of 25, 50, 100, ... steps, the last of
which takes the remainder. Short warm-ups split 15 %, 75 % and 10 %; under 20 steps only
the step size is adapted. This module has the loop: chains, keys by step, and a state
from which a run can resume after any step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from irtjax._types import KeyArray
from irtjax.estimators.posterior.chains import (
    Chain,
    Chains,
    Keep,
    LogDensity,
    NoUTurn,
    Position,
    Statistics,
    check_floating,
    keep_position,
)


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

    The first step size is found by doubling and halving until a leapfrog step is
    accepted with probability 0.8 or so (Hoffman and Gelman 2014, Algorithm 4). Start
    values have a leading `[chains]` axis (`spread_starts`); `keep` returns what is
    stored of each draw, the position if it is None.

    Raises:
        ValueError: If the start values have another number of chains, or are not
            floating arrays of one dtype.
    """
    check_floating(start)
    num_chains, keep = method.num_chains, keep or keep_position
    if any(jnp.shape(leaf)[:1] != (num_chains,) for leaf in jax.tree.leaves(start)):
        raise ValueError(
            f"the start values have no leading axis of {num_chains} chains: make it"
            " with spread_starts, or change num_chains"
        )

    def one(position: Position, index: Array) -> Chain:
        flat, unravel = ravel_pytree(position)
        density = _wide(lambda x: log_density(unravel(x), data))
        value, gradient = jax.value_and_grad(density)(flat)
        dtype = flat.dtype
        chain_key = jax.random.fold_in(key, index)
        inverse_mass = jnp.ones(flat.shape, dtype)
        if method.dense:
            inverse_mass = jnp.diag(inverse_mass)
        step_size = _first_step_size(
            jax.random.fold_in(chain_key, method.num_steps),
            density,
            (flat, value, gradient),
            inverse_mass,
            jnp.asarray(method.target_acceptance, dtype),
        )
        (init_step, _, _), (init_mass, _, _) = _adaptation(method)
        counts = jnp.zeros(method.num_transitions, jnp.int32)
        zeros = jnp.zeros(method.num_transitions, dtype)
        return Chain(
            position,
            value.astype(dtype),
            gradient,
            _as_dtype(init_step(step_size), dtype),
            _as_dtype(init_mass(flat.shape[0]), dtype),
            step_size,
            inverse_mass,
            chain_key,
            jax.tree.map(
                lambda leaf: jnp.zeros((method.num_draws, *leaf.shape), leaf.dtype),
                jax.eval_shape(keep, position, data),
            ),
            Statistics(counts > 0, counts, counts, zeros, zeros, zeros),
        )

    each = jax.vmap(one)(start, jnp.arange(num_chains))
    return Chains(each, jnp.zeros((), jnp.int32))


def _wide(density):
    """The density as a scalar of JAX' default dtype, its gradient in its own.

    BlackJAX' weights have that dtype: with double precision enabled, JAX would refuse
    to mix them with energies in single precision.
    """
    return lambda x: jnp.asarray(density(x), jnp.result_type(float))


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
    found = find(key, bound, hmc.HMCState(*state), one, target)
    return found.astype(one.dtype)


def _adaptation(method: NoUTurn):
    """The pure pieces of both adaptations, each (init, update, final)."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    averaging = cast(Any, dual_averaging_adaptation)(method.target_acceptance)
    return averaging, cast(Any, mass_matrix_adaptation)(not method.dense)


def _as_dtype(state: Any, dtype) -> Any:
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

    Functions, data and method are those of `begin`. The key of a step depends on its
    number alone and `num_steps` may be traced, so parts under one `jit` give the draws
    of an unbroken run, bit for bit.
    """
    stop = jnp.minimum(chains.step + num_steps, method.num_steps).astype(jnp.int32)
    keep = keep or keep_position

    def run(each: Chain, data: Any, begin: Array, stop: Array) -> Chain:
        body = partial(_step, log_density, keep, method, data)
        return lax.fori_loop(begin, stop, body, each)

    each = _over_chains(run, method, chains.each, data, chains.step, stop)
    return Chains(each, stop)


def mesh_of(method: NoUTurn) -> jax.sharding.Mesh | None:
    """The devices that chains are distributed over; None where one has them all."""
    devices = jax.devices()
    num_parts = max(n for n in range(1, len(devices) + 1) if method.num_chains % n == 0)
    if method.chain_method in ("vectorized", "sequential") or num_parts == 1:
        return None
    return jax.make_mesh(
        (num_parts,),
        ("chains",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=devices[:num_parts],
    )


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
    # Not a sharding of the batch: its loops would synchronise all devices after every
    # leapfrog step whether any still needs another.
    return jax.shard_map(
        in_turn if on_cpu else lockstep,
        mesh=mesh,
        in_specs=(split, *(whole for _ in shared)),
        out_specs=split,
        check_vma=False,
    )(each, *shared)


def _step(log_density, keep, method: NoUTurn, data, step: Array, chain: Chain) -> Chain:
    """One transition of one chain, with its adaptation and its record."""
    from blackjax.mcmc import nuts
    from blackjax.mcmc.hmc import HMCState

    flat, unravel = ravel_pytree(chain.position)
    dtype, wide = flat.dtype, jnp.result_type(float)
    kernel, begin = cast(Any, nuts.build_kernel()), cast(Any, HMCState)
    state, info = kernel(
        jax.random.fold_in(chain.key, step),
        begin(flat, jnp.asarray(chain.log_density, wide), chain.gradient),
        _wide(lambda x: log_density(unravel(x), data)),
        chain.step_size,
        chain.inverse_mass,
        method.max_depth,
    )
    moved = chain._replace(
        position=unravel(state.position),
        log_density=state.logdensity.astype(dtype),
        gradient=state.logdensity_grad,
    )
    acceptance = jnp.asarray(info.acceptance_rate, dtype)
    if method.num_warmup:
        moved = lax.cond(
            step < method.num_warmup,
            lambda c: _adapt(method, step, c, state.position, acceptance),
            lambda c: c,
            moved,
        )
    now = Statistics(
        *(info.is_divergent, info.num_trajectory_expansions),
        *(info.num_integration_steps, acceptance, info.energy, state.logdensity),
    )
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

    averaging, window = lax.cond(
        ends, close, lambda parts: parts, _as_dtype((averaging, window), dtype)
    )
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
    kept = counted & ((after + 1) % method.thinning == 0)
    row = lax.cond(
        kept,
        lambda c: keep(c.position, data),
        lambda c: jax.tree.map(lambda v: jnp.zeros(v.shape[1:], v.dtype), c.values),
        chain,
    )

    def put(old: Array, new: Array, index: Array, wanted: Array) -> Array:
        # Chosen row by row: a choice between whole arrays would copy them every step.
        index = jnp.maximum(index, 0)
        new = jnp.where(wanted, jnp.asarray(new, old.dtype), old[index])
        return lax.dynamic_update_index_in_dim(old, new, index, 0)

    put_row = partial(put, index=after, wanted=counted)
    put_draw = partial(put, index=after // method.thinning, wanted=kept)
    return chain._replace(
        statistics=jax.tree.map(put_row, chain.statistics, now),
        values=jax.tree.map(put_draw, chain.values, row),
    )
