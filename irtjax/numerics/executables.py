"""Programs of arrays: compiled, written to files, and read back without compiling.

A file has the form of the result as JSON (`forms`), shape and dtype of each array in
it, and the machine code that XLA made. Nothing pickled is read. Files appear whole; one
whose digest is wrong, or that is of another key, is compiled again and replaced. JAX
has no public function for machine code alone: in releases without the places that are
used here nothing is stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from irtjax._backend import replace_file
from irtjax.numerics.forms import decode, encode, fill, split

#: Bytes of stored programs; beyond this those that were not used longest are deleted.
MOST_BYTES = 512 * 2**20
#: Options of XLA for programs of small data, which take longer to compile than to run:
#: its own loops in place of fused kernels, and a program as one piece for LLVM. They
#: take a third off the first `irtjax fit` of 1,000 x 5 responses, and leave the time of
#: its programs as it is. A release of XLA may lack some.
QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
#: Numbers in the arguments up to which data are small.
FEW_NUMBERS = 2**18
_unknown_options: set[str] = set()
#: What JAX reports when its own cache has a program, and how often it did.
FROM_CACHE, _seen = "/jax/compilation_cache/cache_hits", threading.local()
_DIGEST_SIZE = hashlib.sha256().digest_size

#: A program of a list of arrays.
Program = Callable[[list[Any]], Any]


def compile_program(
    function: Callable[..., Any], form: Any, arrays: list[Any], path: Path
) -> Program:
    """Compiles a call, and stores its program where that is possible.

    `form` has the arguments of the call but for its arrays (`forms.split`).
    """
    results: list[Any] = []
    impls = [jax.random.key_impl(x) if _is_key(x) else None for x in arrays]

    def flat(*arrays):
        keyed = [
            x if impl is None else jax.random.wrap_key_data(x, impl=impl)
            for x, impl in zip(arrays, impls, strict=True)
        ]
        args, kwargs = fill(form, keyed)
        arrays, result = split(function(*args, **kwargs))
        results[:] = result, [_is_weak(x) for x in arrays]
        return arrays

    flat.__name__ = flat.__qualname__ = f"{function.__name__}_{path.name[:16]}"
    _listen()
    before = _count()
    compiled, outputs = _compile(flat, plain(arrays))
    result, weak = results
    program = lambda inputs: fill(result, compiled(*plain(inputs)))
    if _count() > before:
        # Machine code that JAX's own cache had is incomplete when it is written again.
        return program
    # Not stored: results with random keys, callbacks, results that are no plain
    # records, and all programs of a release of JAX without the places that are used.
    with suppress(AttributeError, TypeError, ValueError, RuntimeError):
        shapes = [
            [list(x.shape), np.dtype(x.dtype).name, bool(y)]
            for x, y in zip(outputs, weak, strict=True)
        ]
        text = json.dumps([encode(result), shapes]).encode()
        whole = len(text).to_bytes(8, "little") + text + _code_of(compiled)
        replace_file(str(path), zlib.compress(_digest(path, whole) + whole, 1))
        _delete_oldest(path.parent)
    return program


def load_program(path: Path) -> Program | None:
    """A stored program; None if there is none, or none that can be read."""
    try:
        whole = zlib.decompress(path.read_bytes())
        digest, content = whole[:_DIGEST_SIZE], whole[_DIGEST_SIZE:]
        if digest != _digest(path, content):
            return None
        size = int.from_bytes(content[:8], "little")
        form, outputs = json.loads(content[8 : 8 + size])
        call = _caller(content[8 + size :], outputs)
        form = decode(form)
    except Exception:  # No file, or a damaged one, which is written again.
        return None
    with suppress(OSError):  # The folder may be of another user.
        os.utime(path)
    return lambda inputs: fill(form, call(plain(inputs)))


@cache
def _listen() -> None:
    """Counts from now on, by thread, the programs that JAX's own cache had."""

    def note(event: str, **details: Any) -> None:
        if event == FROM_CACHE:
            _seen.count = _count() + 1

    jax.monitoring.register_event_listener(note)


def _count() -> int:
    """Programs of this thread that JAX's own cache had."""
    return getattr(_seen, "count", 0)


def plain(arrays: list[Any]) -> list[jax.Array]:
    """Arrays of JAX, without NumPy's and with the numbers of random keys."""
    return [
        jax.random.key_data(x)
        if _is_key(x)
        # By the settings of JAX for double precision.
        else (x if isinstance(x, jax.Array) else jax.device_put(x))
        for x in arrays
    ]


def _is_key(array: Any) -> bool:
    """Whether an array has random keys."""
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _is_weak(array: Any) -> bool:
    """Whether an array takes on the dtype of another, as Python's numbers do."""
    return bool(getattr(array, "weak_type", False))


def _compile(call: Callable, arrays: list[Any]) -> tuple[Any, list[Any]]:
    """A compiled program, with `QUICK` where the data are small, and its outputs."""
    small = sum(array.size for array in arrays) <= FEW_NUMBERS
    # Arrays that are results of programs are lowered with their device, others without.
    shapes = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=_is_weak(x)) for x in arrays
    ]
    while True:
        options = {k: v for k, v in QUICK.items() if k not in _unknown_options}
        # Unused arguments are kept: a stored program is called with all of them.
        settings: Any = {"compiler_options": options if small else None}
        lowered = jax.jit(call, keep_unused=True, **settings).lower(*shapes)
        try:
            return lowered.compile(), jax.tree.leaves(lowered.out_info)
        except RuntimeError as error:
            lacking = {name for name in options if name in str(error)}
            if not (small and lacking):
                raise
            _unknown_options.update(lacking)


def _code_of(compiled: Any) -> bytes:
    """Machine code of a program; an error where that is not the whole program."""
    call = compiled._executable.unsafe_call
    effects = call.ordered_effects or call.has_unordered_effects or call.mut
    if effects or call.has_host_callbacks or compiled._params.const_args:
        raise ValueError("a program that needs more than its arrays")
    executable = compiled.runtime_executable()
    return bytes(executable.client.serialize_executable(executable))


def _caller(code: bytes, outputs: list[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """The function of machine code that returns arrays of these shapes and dtypes."""
    from jax._src.interpreters.pxla import global_avals_to_results_handler
    from jaxlib import xla_client

    if b"lapack" in code:
        _find_lapack()
    device = jax.devices()[0]
    devices = xla_client.DeviceList((device,))
    executable = device.client.deserialize_executable(code, executable_devices=devices)
    avals = [
        ShapedArray(tuple(shape), np.dtype(kind), weak_type=weak)
        for shape, kind, weak in outputs
    ]
    places = [jax.sharding.SingleDeviceSharding(device)] * len(avals)
    handlers = global_avals_to_results_handler(avals, places, False).handlers

    def call(arrays: Sequence[Any]) -> list[Any]:
        results = executable.execute_sharded(list(arrays))
        return results.consume_with_handlers(handlers)

    return call


@cache
def _find_lapack() -> None:
    """Lets programs call LAPACK: JAX looks its functions up when it lowers a call."""
    shape = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jax.lax.linalg.cholesky).lower(shape)


def _digest(path: Path, content: bytes) -> bytes:
    """Digest of a stored program together with its key, the name of the file."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _delete_oldest(folder: Path) -> None:
    """Deletes the programs not used for longest until at most `MOST_BYTES` are left."""
    with suppress(OSError):  # Another process deletes too.
        programs = [(p.stat().st_mtime, p.stat().st_size, p) for p in folder.iterdir()]
        total = sum(size for _, size, _ in programs)
        for _, size, path in sorted(programs):
            if total <= MOST_BYTES:
                return
            path.unlink()
            total -= size
