"""Sampling from start to end: chunks, progress, checkpoints, verdict.

On a CPU each chain runs in its own thread: the steps of one chain are too short to gain
from the threads of XLA.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax._backend import num_cores
from irtjax._types import KeyArray, Status
from irtjax.estimators.posterior.checkpoint import identity, load_chains, save_chains
from irtjax.estimators.posterior.convergence import has_converged
from irtjax.estimators.posterior.nuts import (
    Chains,
    Draws,
    Keep,
    LogDensity,
    NoUTurn,
    Position,
    advance,
    begin,
    dispersed_starts,
    draws_of,
    mesh_of,
)

#: Seconds that a chunk of steps should take.
CHUNK_SECONDS = 1.5
#: Seconds between checkpoints, and the largest share of the time they may take.
SAVE_SECONDS, SAVE_SHARE = 20.0, 0.05


class SamplingProgress(NamedTuple):
    """Progress of a run: its phase "warm-up", "sampling" or "finished", and counts.

    Steps are each chain's, divergent transitions those of all chains after warm-up.
    """

    phase: str
    step: int
    num_steps: int
    num_divergent: int
    seconds: float


def sample(
    log_density: LogDensity,
    start: Position,
    data: Any = None,
    *,
    key: KeyArray,
    method: NoUTurn | None = None,
    keep: Keep | None = None,
    radius: float | None = 1.0,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[SamplingProgress], None] | None = None,
) -> Draws:
    """Draws from the posterior with a log density, by the no-U-turn sampler.

    Args:
        log_density: `log_density(position, data)`, a pure function: the log density of
            the unconstrained position up to a constant, with the Jacobian of
            transformed parameters.
        start: A position, any PyTree of floating arrays of one dtype.
        data: Any PyTree; nothing that depends on data should be inside `log_density`.
        key: Random key. The same key, start and data give the same draws.
        method: The sampler; `NoUTurn()` when None.
        keep: `keep(position, data)`, a dictionary of what is stored of each draw, such
            as constrained parameters; the position itself when None.
        radius: Chains start uniformly within this distance of the start, in each
            coordinate. None: `start` has a leading `[chains]` axis.
        checkpoint: A file to save the run in, several times and at the end.
        resume: Resume from the checkpoint, or begin if there is none yet.
        progress: Called every second or two.

    Returns:
        The draws. `status` is CONVERGED if every R-hat is below 1.01, every effective
        sample size at least 400 and no transition divergent; else see `verdict`.

    Raises:
        ValueError: If the log density or its gradient is not finite at the start, the
            checkpoint exists and `resume` is not set, or it belongs to another run.

    >>> import jax.numpy as jnp
    >>> normal = lambda x, scale: -0.5 * jnp.sum((x / scale) ** 2)
    >>> method = NoUTurn(num_warmup=200, num_draws=500)
    >>> start, scale, key = jnp.zeros(2), jnp.array([1.0, 5.0]), jax.random.key(0)
    >>> draws = sample(normal, start, scale, key=key, method=method)
    >>> draws.values["position"].shape
    (4, 500, 2)
    """
    method = method or NoUTurn()
    path = None if checkpoint is None else Path(checkpoint)
    if path is None and resume:
        raise ValueError("resume=True needs checkpoint=, the file to resume from")
    if path is not None and path.exists() and not resume:
        raise ValueError(
            f"{path} exists: pass resume=True to resume from it, or name another file"
        )
    size = sum(float(np.size(leaf)) for leaf in jax.tree.leaves(start))
    # Without dispersed starts each leaf has an axis of chains already.
    method.check_size(size if radius is not None else size / method.num_chains)
    start_key, chain_key = jax.random.split(key)
    # A copy: the memory of the chains is reused, and this may be the caller's.
    start = jax.tree.map(jnp.array, start)
    if radius is not None:
        start = _starts_jit(start, method.num_chains, key=start_key, radius=radius)
    save = None
    chains = _begin(log_density, start, data, key=chain_key, method=method, keep=keep)
    _check_finite(chains)
    if path is not None:
        like = identity(method, data, chains)
        save = lambda chains: save_chains(path, chains, like)
        if path.exists():
            chains = load_chains(path, chains, like)
    chains = _run((log_density, method, keep), chains, data, save, progress)
    draws = draws_of(chains, method)
    if method.num_draws < 4 or not has_converged(draws):
        return draws
    status = jnp.asarray(Status.CONVERGED, jnp.int32)
    return eqx.tree_at(lambda d: d.status, draws, status)


_begin = eqx.filter_jit(begin)
_starts_jit = jax.jit(dispersed_starts, static_argnums=1)


# The old chains' memory becomes that of the new: draws are not stored twice.
@eqx.filter_jit(donate="all-except-first")
def _advance(fixed, chains) -> Chains:
    """Some steps of chains, for `stored_jit`."""
    (log_density, method, keep), data, num_steps = fixed
    return advance(
        chains, log_density, data, method=method, num_steps=num_steps, keep=keep
    )


def _advance_in_threads() -> Callable[[Any, Chains], Chains]:
    """`_advance` in other threads, with those settings of JAX that one thread has."""
    config: Any = jax.config
    double, device = config.jax_enable_x64, config.jax_default_device
    precision = config.jax_default_matmul_precision

    def advanced(fixed, chains: Chains) -> Chains:
        with (
            jax.enable_x64(double),
            jax.default_device(device),
            jax.default_matmul_precision(precision),
        ):
            # Waiting here: programs that are only ordered run one after the other.
            return jax.block_until_ready(_advance(fixed, chains))

    return advanced


def _check_finite(chains: Chains) -> None:
    """Refuses chains whose density or gradient is not finite."""
    finite = np.isfinite(np.asarray(chains.each.log_density))
    finite &= np.isfinite(np.asarray(chains.each.gradient)).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"the log density or its gradient is not finite at the start of chain"
            f" {int(np.argmin(finite))}: choose another start or a smaller radius"
        )


def _run(functions, chains: Chains, data, save, progress) -> Chains:
    """Steps the chains to their end in chunks of a second or two."""
    method = functions[1]
    began = saved = time.monotonic()
    saving, size = 0.0, 1
    step = int(chains.step)
    parts, advanced = _apart(chains, method), _advance_in_threads()
    at_once = 1 if method.chain_method == "sequential" else num_cores()
    with ThreadPoolExecutor(min(len(parts), at_once)) as workers:
        # First in turn, so that one compiles for all.
        each = map
        while step < method.num_steps:
            chunk_began = time.monotonic()
            fixed = functions, data, jnp.asarray(size, jnp.int32)
            parts = list(each(advanced, [fixed] * len(parts), parts))
            each = workers.map
            taken = int(parts[0].step) - step
            step += taken
            now = time.monotonic()
            # Warm-up steps differ a hundredfold; growing slowly keeps chunks short.
            per_step = max((now - chunk_began) / taken, 1e-9)
            size = int(np.clip(CHUNK_SECONDS / per_step, 1, 4 * size))
            if progress is not None:
                progress(_progress(method, parts, now - began))
            pause = max(SAVE_SECONDS, saving / SAVE_SHARE)
            if save is not None and (now - saved > pause or step == method.num_steps):
                save(_together(parts))
                saved = time.monotonic()
                saving = saved - now
    return _together(parts)


def _apart(chains: Chains, method: NoUTurn) -> list[Chains]:
    """Single chains on a CPU, except in lockstep or over several devices."""
    several = jax.device_count() > 1 and method.chain_method != "sequential"
    lockstep = method.chain_method == "vectorized" or jax.default_backend() != "cpu"
    if several or lockstep or method.num_chains == 1:
        mesh = mesh_of(method)
        if mesh is None:
            return [chains]
        # On the devices where steps leave them: elsewhere would be a second program.
        split, whole = (jax.NamedSharding(mesh, p) for p in (jax.P("chains"), jax.P()))
        # Donated: draws are not stored twice.
        each = jax.device_put(chains.each, split, donate=True)
        return [Chains(each, jax.device_put(chains.step, whole))]
    leaves, tree = jax.tree.flatten(chains.each)
    parts = []
    for leaf in leaves:
        parts.append(_slices_jit(leaf))
        # Draws are not stored twice.
        leaf.delete()
    each = [jax.tree.unflatten(tree, part) for part in zip(*parts, strict=True)]
    # A copy of the step for each chain, as its memory is donated with the chain.
    return [Chains(part, chains.step + 0) for part in each]


@jax.jit
def _slices_jit(leaf: Array) -> list[Array]:
    """The rows of an array, each an array of one row."""
    return [leaf[k : k + 1] for k in range(leaf.shape[0])]


def _together(parts: list[Chains]) -> Chains:
    """The chains of all devices as one."""
    if len(parts) == 1:
        return parts[0]
    return Chains(_join_jit([part.each for part in parts]), parts[0].step)


@jax.jit
def _join_jit(parts: list):
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _progress(method: NoUTurn, parts: list[Chains], seconds: float) -> SamplingProgress:
    """Where sampling is."""
    step = int(parts[0].step)
    phase = "warm-up" if step < method.num_warmup else "sampling"
    phase = "finished" if step == method.num_steps else phase
    count = sum(int(jnp.sum(part.each.statistics.divergent)) for part in parts)
    return SamplingProgress(phase, step, method.num_steps, count, seconds)
