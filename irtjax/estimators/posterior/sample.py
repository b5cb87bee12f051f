"""Sampling from start to end: chunks, progress, checkpoints, verdict.

On a CPU chains run side by side, each in a thread of its own: the steps of one are too
short for the threads of XLA to gain anything within them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._backend import num_cores
from irtjax._types import KeyArray, Status
from irtjax.estimators.posterior import has_converged
from irtjax.estimators.posterior.checkpoint import identity, load_chains, save_chains
from irtjax.estimators.posterior.nuts import (
    Chains,
    Draws,
    Keep,
    LogDensity,
    NoUTurn,
    Position,
    advance,
    begin,
    draws_of,
    mesh_of,
    spread_starts,
)

#: Seconds that a chunk of steps should take.
CHUNK_SECONDS = 1.5
#: Seconds between checkpoints, and the largest share of the time they may take.
SAVE_SECONDS, SAVE_SHARE = 20.0, 0.05


class SamplingProgress(NamedTuple):
    """Progress of a run.

    Attributes:
        phase: "warm-up", "sampling" or "finished".
        step: Steps taken by each chain.
        num_steps: Steps in all.
        num_divergent: Divergent transitions so far, of all chains, after warm-up.
        seconds: Since this call began.
    """

    phase: str
    step: int
    num_steps: int
    num_divergent: int
    seconds: float


#: Called with the progress every second or two.
OnProgress = Callable[[SamplingProgress], None]


def sample(
    log_density: LogDensity,
    start: Position,
    data: Any = None,
    *,
    key: KeyArray,
    method: NoUTurn | None = None,
    keep: Keep | None = None,
    spread: float | None = 1.0,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: OnProgress | None = None,
) -> Draws:
    """Draws from the posterior with a log density, by the no-U-turn sampler.

    Args:
        log_density: `log_density(position, data)`, a pure function: the log density of
            the unconstrained position, with the Jacobian of whatever it transforms, up
            to a constant.
        start: A position, any PyTree of floating arrays of one dtype.
        data: Any PyTree; nothing that depends on data should be inside `log_density`.
        key: Random key. The same key, start and data give the same draws.
        method: The sampler; `NoUTurn()` when None.
        keep: `keep(position, data)`, a dictionary of what is stored of each draw, such
            as constrained parameters; the position itself when None.
        spread: Chains start uniformly within this distance of the start, in each
            coordinate. None: `start` has a leading `[chains]` axis of its own.
        checkpoint: A file to save the run in, several times on the way and at the end.
        resume: Go on from the checkpoint, or begin if there is none yet.
        progress: Called every second or two.

    Returns:
        The draws. `status` is CONVERGED if R-hat < 1.01 and at least 400 effective
        draws hold throughout and nothing diverged; `verdict` names the problem
        otherwise.

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
    method = NoUTurn() if method is None else method
    path = None if checkpoint is None else Path(checkpoint)
    if path is None and resume:
        raise ValueError("resume=True needs checkpoint=, the file to go on from")
    if path is not None and path.exists() and not resume:
        raise ValueError(
            f"{path} exists: pass resume=True to go on from it, or name another file"
        )
    start_key, chain_key = jax.random.split(key)
    # A copy: the memory of the chains is used again, and this may be the caller's.
    start = jax.tree.map(jnp.array, start)
    if spread is not None:
        start = spread_starts(start, method.num_chains, key=start_key, radius=spread)
    functions = (log_density, method, keep)
    chains = _begin(functions, start, data, chain_key)
    _check_finite(chains)
    like: dict[str, Any] = {}
    if path is not None:
        like = identity(method, data, chains)
        if path.exists():
            chains = load_chains(path, chains, like)
    save = None if path is None else lambda chains: save_chains(path, chains, like)
    chains = _run(functions, chains, data, save, progress)
    draws = draws_of(chains, method)
    if int(draws.status) == Status.MAX_STEPS and _enough(draws):
        status = jnp.asarray(Status.CONVERGED, jnp.int32)
        draws = eqx.tree_at(lambda d: d.status, draws, status)
    return draws


def _enough(draws: Draws) -> bool:
    return draws.divergent.shape[1] // draws.thinning >= 4 and has_converged(draws)


@eqx.filter_jit
def _begin(functions, start, data, key) -> Chains:
    log_density, method, keep = functions
    return begin(log_density, start, data, key=key, method=method, keep=keep)


# The old chains' memory becomes that of the new: draws are not held twice.
@eqx.filter_jit(donate="all-except-first")
def _advance(fixed, chains) -> Chains:
    (log_density, method, keep), data, num_steps = fixed
    return advance(
        chains, log_density, data, method=method, num_steps=num_steps, keep=keep
    )


class _Settings(NamedTuple):
    """Settings of JAX that a program may have made for a thread of its own only."""

    double: bool
    device: Any
    precision: Any

    @classmethod
    def here(cls) -> _Settings:
        """Those of this thread."""
        config: Any = jax.config
        return cls(
            config.jax_enable_x64,
            config.jax_default_device,
            config.jax_default_matmul_precision,
        )


def _advance_in_thread(settings: _Settings, fixed, chains: Chains) -> Chains:
    double, device, precision = settings
    with (
        jax.enable_x64(double),
        jax.default_device(device),
        jax.default_matmul_precision(precision),
    ):
        # Waiting here: programs that are only ordered run one after the other.
        return jax.block_until_ready(_advance(fixed, chains))


def _check_finite(chains: Chains) -> None:
    each = chains.each
    sound = np.isfinite(np.asarray(each.log_density))
    sound &= np.isfinite(np.asarray(each.gradient)).all(axis=1)
    if not sound.all():
        raise ValueError(
            f"the log density or its gradient is not finite at the start of chain"
            f" {int(np.argmin(sound))}: choose another start or a smaller spread"
        )


def _run(functions, chains: Chains, data, save, progress) -> Chains:
    """Steps the chains to their end in chunks of a second or two."""
    method = functions[1]
    began = saved = time.monotonic()
    saving, size = 0.0, 1
    step = int(chains.step)
    parts, settings = _apart(chains, method), _Settings.here()
    at_once = 1 if method.chain_method == "sequential" else num_cores()
    with ThreadPoolExecutor(min(len(parts), at_once)) as workers:
        # First in turn, so that one compiles for all.
        each = map
        while step < method.num_steps:
            chunk_began = time.monotonic()
            fixed = functions, data, jnp.asarray(size, jnp.int32)
            advanced = partial(_advance_in_thread, settings, fixed)
            parts = list(each(advanced, parts))
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
    """One by one on a CPU, unless in lockstep or over several devices; else as one."""
    several = jax.device_count() > 1 and method.chain_method != "sequential"
    lockstep = method.chain_method == "vectorized" or jax.default_backend() != "cpu"
    if several or lockstep or method.num_chains == 1:
        return [_shared_out(chains, method)]
    leaves, tree = jax.tree.flatten(chains.each)
    parts = [[] for _ in range(method.num_chains)]
    for leaf in leaves:
        for k, part in enumerate(parts):
            part.append(leaf[k : k + 1])
        # Draws are not held twice.
        leaf.delete()
    # A step of its own for each, which is given away with the chain.
    return [Chains(jax.tree.unflatten(tree, part), chains.step + 0) for part in parts]


def _shared_out(chains: Chains, method: NoUTurn) -> Chains:
    """Chains on the devices where steps leave them: elsewhere, a second program."""
    mesh = mesh_of(method)
    if mesh is None:
        return chains
    split = jax.sharding.NamedSharding(mesh, jax.P("chains"))
    whole = jax.sharding.NamedSharding(mesh, jax.P())
    # Draws are not held twice.
    each = jax.device_put(chains.each, split, donate=True)
    return Chains(each, jax.device_put(chains.step, whole))


def _together(parts: list[Chains]) -> Chains:
    if len(parts) == 1:
        return parts[0]
    each = [part.each for part in parts]
    return Chains(jax.tree.map(lambda *x: jnp.concatenate(x), *each), parts[0].step)


def _progress(method: NoUTurn, parts: list[Chains], seconds: float) -> SamplingProgress:
    step = int(parts[0].step)
    phase = "warm-up" if step < method.num_warmup else "sampling"
    return SamplingProgress(
        "finished" if step == method.num_steps else phase,
        step,
        method.num_steps,
        sum(int(jnp.sum(part.each.statistics.divergent)) for part in parts),
        seconds,
    )
