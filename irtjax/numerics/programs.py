"""Programs stored on disk, so that a second process skips tracing.

With JAX's own compilation cache every process still traces and lowers a program before
it can look it up: for small data most of the time of a fit. `stored_jit` is
`equinox.filter_jit` with a second cache, of lowered programs (`jax.export`) under a key
that needs no tracing. It is used only after `store_in` was called, which the command
line does; a library must not choose a user's folders.

A stored program is right only if all that tracing reads is in its key:

- the function's name and every source file of irtjax;
- the static part of the arguments, and shape and dtype of each array;
- the settings of JAX, `XLA_FLAGS`, the kind of processor;
- the releases of Python and of the packages whose code is traced.

The static part is pickled for the key alone: nothing pickled is ever read. A file has
the program as StableHLO and the form of its result as JSON (`forms`). Calls with
objects of other packages, such as a user's own response family, whose code is not in
the key, are compiled in the ordinary way; so are calls under a JAX transformation, on
accelerators and with several devices.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
from jax import export
from jax.core import Tracer

from irtjax._backend import processor, replace_file
from irtjax.numerics.forms import decode, encode, fill, split
from irtjax.numerics.precision import full_precision

R = TypeVar("R")

#: Packages whose objects may be static arguments: their releases are in the key.
TRACED = ("jax", "jaxlib", "numpy", "equinox", "optax", "blackjax", "jaxtyping")
#: Roots of modules whose classes and functions may be pickled into a key.
KNOWN = {"irtjax", "builtins", "collections", "copyreg", "functools", *TRACED}
#: Settings of JAX that change where programs are stored, not what they compute.
NEUTRAL = ("jax_compilation_cache_dir", "jax_persistent_cache_")
#: Bytes of stored programs; beyond this the oldest are deleted.
MOST_BYTES = 512 * 2**20

_folder: Path | None = None


def store_in(folder: Path | None) -> None:
    """Stores programs in a folder from now on; None stores no more."""
    global _folder
    _folder = folder


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

#: A program of a list of arrays.
_Program = Callable[[list[Any]], Any]


def _program(call: Callable, form: Any) -> _Program:
    """The program of a function of arrays, and the form of its result."""
    compiled: Any = None

    def program(arrays: list[Any]) -> Any:
        nonlocal compiled
        compiled = compiled or _compile(call, arrays)
        return fill(form, compiled(*arrays))

    return program


def _compile(call: Callable, arrays: list[Any]) -> Any:
    """A compiled program, with `QUICK` where the data are small."""
    small = sum(array.size for array in arrays) <= FEW_NUMBERS
    # Arrays that are results of programs are lowered with their device, others without.
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    while True:
        options = {k: v for k, v in QUICK.items() if k not in _unknown_options}
        jitted = jax.jit(call, compiler_options=options if small else None)
        try:
            return jitted.lower(*shapes).compile()
        except RuntimeError as error:
            lacking = {name for name in options if name in str(error)}
            if not (small and lacking):
                raise
            _unknown_options.update(lacking)


class stored_jit(Generic[R]):
    """`equinox.filter_jit` of a function of a module, with programs stored on disk.

    The function must read nothing but its arguments and constants of its module.
    """

    def __init__(self, function: Callable[..., R]) -> None:
        self.function = function
        self.jitted: Any = eqx.filter_jit(function)
        self.programs: dict[str, _Program | None] = {}
        update_wrapper(self, function)

    @full_precision
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """The result, by a stored program where there may be one."""
        if _folder is not None:
            arrays, form = split((args, kwargs))
            key = self._key(arrays, form)
            if key is not None and key not in self.programs:
                path = _folder / key
                self.programs[key] = _load(path) or self._export(arrays, form, path)
            program = self.programs.get(key or "")
            if program is not None:
                return program(arrays)
        return self.jitted(*args, **kwargs)

    def _key(self, arrays: list[Any], form: Any) -> str | None:
        """Name of the file of a call's program; None if it must not be stored."""
        if any(isinstance(array, Tracer) for array in arrays):
            return None
        if not (_is_known(self.function.__module__) and _on_one_cpu()):
            return None
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        weak = lambda array: bool(getattr(array, "weak_type", False))
        shapes = [(x.shape, str(x.dtype), weak(x)) for x in arrays]
        file = io.BytesIO()
        try:
            _KnownOnly(file).dump((name, form, shapes))
        except (pickle.PicklingError, AttributeError, TypeError):
            return None  # Something of another package, or without a name.
        values = sorted((k, repr(v)) for k, v in jax.config.values.items())
        kept = [pair for pair in values if not pair[0].startswith(NEUTRAL)]
        settings = repr((kept, os.environ.get("XLA_FLAGS", ""))).encode()
        content = file.getvalue() + settings + _environment()
        return hashlib.sha256(content).hexdigest()

    def _export(self, arrays: list[Any], form: Any, path: Path) -> _Program | None:
        """Lowers the program of a call and stores it; None if it cannot be stored."""
        results = []

        def flat(*arrays):
            args, kwargs = fill(form, arrays)
            arrays, result = split(self.function(*args, **kwargs))
            results.append(result)
            return arrays

        flat.__name__ = flat.__qualname__ = f"{self.function.__name__}_{path.name[:16]}"
        try:
            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
            exported = export.export(jax.jit(flat))(*shapes)
            content = exported.serialize()
            text = json.dumps(encode(results[0])).encode()
        except (ValueError, NotImplementedError, TypeError):
            # Programs with keys, callbacks or results that are no plain records.
            return None
        whole = len(text).to_bytes(8, "little") + text + bytes(content)
        replace_file(str(path), zlib.compress(_digest(path, whole) + whole, 1))
        _delete_oldest(path.parent)
        return _program(exported.call, results[0])


class _KnownOnly(pickle.Pickler):
    """Refuses classes and functions whose code is not in the key."""

    def reducer_override(self, obj: Any) -> Any:
        """Refuses functions and classes of other packages."""
        if callable(obj) and not _is_known(getattr(obj, "__module__", None)):
            raise pickle.PicklingError(f"{obj!r} is not of irtjax")
        return NotImplemented


def _is_known(module: str | None) -> bool:
    """Whether a module is of a package whose objects may be stored."""
    return str(module).partition(".")[0] in KNOWN


def _on_one_cpu() -> bool:
    """Whether JAX computes on one CPU device."""
    devices = jax.devices()
    return len(devices) == 1 and devices[0].platform == "cpu"


@cache
def _environment() -> bytes:
    """The code that is traced, and the machine."""
    releases = []
    for name in TRACED:
        with suppress(PackageNotFoundError):  # A vendored one may have no metadata.
            releases.append((name, version(name)))
    code = _code(Path(__file__).parents[1])
    return repr((code, releases, sys.version, processor())).encode()


def _code(package: Path) -> str:
    """Digest of the source files of a package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def _find_lapack() -> None:
    """Lets programs call LAPACK: JAX looks its functions up when it lowers a call."""
    shape = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jax.lax.linalg.cholesky).lower(shape)


_DIGEST_SIZE = hashlib.sha256().digest_size


def _digest(path: Path, content: bytes) -> bytes:
    """Digest of a stored program together with its key, the name of the file."""
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _load(path: Path) -> _Program | None:
    """A stored program; None if there is none, or none that can be read."""
    try:
        whole = zlib.decompress(path.read_bytes())
        digest, content = whole[:_DIGEST_SIZE], whole[_DIGEST_SIZE:]
        if digest != _digest(path, content):
            return None
        if b"lapack" in content:
            _find_lapack()
        size = int.from_bytes(content[:8], "little")
        form = decode(json.loads(content[8 : 8 + size]))
        exported = export.deserialize(bytearray(content[8 + size :]))
        return _program(exported.call, form)
    except Exception:  # No file, or a damaged one, which is written again.
        return None


def _delete_oldest(folder: Path) -> None:
    """Deletes the oldest programs until at most `MOST_BYTES` are left."""
    with suppress(OSError):  # Another process deletes too.
        found = [(p.stat().st_mtime, p.stat().st_size, p) for p in folder.iterdir()]
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= MOST_BYTES:
                return
            path.unlink()
            total -= size
