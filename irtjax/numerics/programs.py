"""Compiled programs stored on disk, so that a second process skips tracing.

JAX's own compilation cache saves the time of XLA, but every process traces and lowers a
program before it can look it up. For small data that is most of the time of a fit.
`stored_jit` is `equinox.filter_jit` with a second cache in front: it stores the
compiled program under a key that needs no tracing. It is used only after `store_in` was
called, which the command line does; a library must not choose a user's folders.

A stored program is right only if all that tracing reads is in its key:

- the function's name and every source file of irtjax;
- the static part of the arguments, and shape and dtype of each array;
- the settings of JAX, `XLA_FLAGS`, the kind of processor;
- the releases of Python and of the packages whose code is traced.

The static part is pickled. The code of any other package, such as a user's own response
family, is not in that list, so a call with an object of it is compiled in the ordinary
way. The same holds for calls under a JAX transformation, on accelerators and with
several devices.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import zlib
from collections.abc import Callable
from functools import cache, update_wrapper
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax

from irtjax._backend import processor, replace_file

R = TypeVar("R")

#: Packages whose objects may be static arguments: their releases are in the key.
TRACED = ("jax", "jaxlib", "numpy", "equinox", "optax", "blackjax", "jaxtyping")
#: Roots of modules whose classes and functions may be pickled into a key.
KNOWN = {"irtjax", "builtins", "collections", "copyreg", "functools", *TRACED}
#: Settings of JAX that change where programs are stored, not what they compute.
NEUTRAL = ("jax_compilation_cache_dir", "jax_persistent_cache_")
#: Seconds of compiling from which on JAX stores a program in its own cache.
LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"
#: Bytes of stored programs; beyond this the oldest are deleted.
MOST_BYTES = 512 * 2**20

_folder: Path | None = None


def store_in(folder: Path | None) -> None:
    """Stores programs in a folder from now on; None stores no more."""
    global _folder
    _folder = folder


class _Place(NamedTuple):
    """Stands for an array in a pickled PyTree.

    Pickled PyTree definitions of JAX do not hold nodes of other packages.
    """

    index: int


def _is_place(value: Any) -> bool:
    return isinstance(value, _Place)


class _Program(NamedTuple):
    """A compiled function of a list of arrays, and its result with places."""

    call: Any
    result: Any

    def __call__(self, arrays: list[Any]) -> Any:
        found = self.call(*arrays)
        return jax.tree.map(
            lambda x: found[x.index] if _is_place(x) else x,
            self.result,
            is_leaf=_is_place,
        )


class Stored(Generic[R]):
    """A jitted function whose programs are stored; see `stored_jit`."""

    def __init__(self, function: Callable[..., R]) -> None:
        self.jitted: Any = eqx.filter_jit(function)
        self.programs: dict[str, _Program] = {}
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """The result, by a stored program where there may be one."""
        if _folder is None:
            return self.jitted(*args, **kwargs)
        arrays, form = _split((args, kwargs))
        key = self._key(arrays, form)
        if key is None:
            return self.jitted(*args, **kwargs)
        if key in self.programs:
            return self.programs[key](arrays)
        path = _folder / key
        program = self.programs[key] = _load(path) or self._compile(arrays, form, path)
        return program(arrays)

    def _key(self, arrays: list[Any], form: Any) -> str | None:
        """Name of the file of a call's program; None if it must not be stored."""
        if any(isinstance(array, jax.core.Tracer) for array in arrays):
            return None
        if not (_is_known(self.__module__) and _on_one_cpu()):
            return None
        name = f"{self.__module__}.{self.__qualname__}"
        shapes = [
            (array.shape, str(array.dtype), bool(getattr(array, "weak_type", False)))
            for array in arrays
        ]
        file = io.BytesIO()
        try:
            _KnownOnly(file).dump((name, form, shapes))
        except (pickle.PicklingError, AttributeError, TypeError):
            return None  # Something of another package, or without a name.
        content = file.getvalue() + _settings() + _environment()
        return hashlib.sha256(content).hexdigest()

    def _compile(self, arrays: list[Any], form: Any, path: Path) -> _Program:
        """Compiles the program of a call and stores it."""
        results = []

        def flat(*arrays):
            args, kwargs = _Program(lambda *x: x, form)(list(arrays))
            arrays, result = _split(self.__wrapped__(*args, **kwargs))
            results.append(result)
            return arrays

        # An executable that JAX read from its own cache cannot be written again. Under
        # a name of its own, and never written there, it cannot come from that cache.
        flat.__name__ = f"{self.__name__}_{path.name[:16]}"
        least = jax.config.values[LEAST_SECONDS]
        jax.config.update(LEAST_SECONDS, float("inf"))
        try:
            call = jax.jit(flat).lower(*arrays).compile()
        finally:
            jax.config.update(LEAST_SECONDS, least)
        program = _Program(call, results[0])
        _save(path, program)
        return program


def _split(tree: Any) -> tuple[list[Any], Any]:
    """The arrays of a PyTree, and the tree with places for them."""
    dynamic, static = eqx.partition(tree, eqx.is_array)
    arrays, structure = jax.tree.flatten(dynamic)
    places = jax.tree.unflatten(structure, map(_Place, range(len(arrays))))
    return arrays, eqx.combine(places, static, is_leaf=_is_place)


def stored_jit(function: Callable[..., R]) -> Stored[R]:
    """`equinox.filter_jit` of a function of a module, with programs stored on disk.

    The function must read nothing but its arguments and constants of its module.
    """
    return Stored(function)


class _KnownOnly(pickle.Pickler):
    """Refuses classes and functions whose code is not in the key."""

    def reducer_override(self, obj: Any) -> Any:
        if callable(obj) and not _is_known(getattr(obj, "__module__", None)):
            raise pickle.PicklingError(f"{obj!r} is not of irtjax")
        return NotImplemented


def _is_known(module: str | None) -> bool:
    return str(module).partition(".")[0] in KNOWN


def _on_one_cpu() -> bool:
    devices = jax.devices()
    return len(devices) == 1 and devices[0].platform == "cpu"


def _settings() -> bytes:
    """Settings of JAX that a program may depend on."""
    values = sorted((k, repr(v)) for k, v in jax.config.values.items())
    kept = [pair for pair in values if not pair[0].startswith(NEUTRAL)]
    return repr((kept, os.environ.get("XLA_FLAGS", ""))).encode()


@cache
def _environment() -> bytes:
    """The code that is traced, and the machine."""
    releases = [(name, _release(name)) for name in TRACED]
    code = _code(Path(__file__).parents[1])
    return repr((code, releases, sys.version, processor())).encode()


def _code(package: Path) -> str:
    """Digest of the source files of a package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _flat_trees(num_arguments: int, num_results: int) -> tuple[Any, Any]:
    """Arguments and results of a program, shaped as JAX has them."""
    return ((0,) * num_arguments, {}), [0] * num_results


@cache
def _find_lapack() -> None:
    """Lets programs call LAPACK: JAX looks its functions up when it lowers a call."""
    shape = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jax.lax.linalg.cholesky).lower(shape)


def _load(path: Path) -> _Program | None:
    """A stored program; None if there is none, or none that can be read."""
    from jax.experimental import serialize_executable

    try:
        _find_lapack()
        content, sizes, result = pickle.loads(zlib.decompress(path.read_bytes()))
        trees = [jax.tree.structure(x) for x in _flat_trees(*sizes)]
        call = serialize_executable.deserialize_and_load(
            content, *trees, execution_devices=jax.devices()[:1]
        )
        return _Program(call, result)
    except Exception:  # No file, or a damaged one, which is written again.
        return None


def _save(path: Path, program: _Program) -> None:
    """Writes a program; one that cannot be written costs time, not the result."""
    from jax.experimental import serialize_executable

    try:
        content, *trees = serialize_executable.serialize(program.call)
        sizes = [tree.num_leaves for tree in trees]
        if trees != [jax.tree.structure(x) for x in _flat_trees(*sizes)]:
            return
        stored = content, sizes, program.result
        content = zlib.compress(pickle.dumps(stored), 1)
    except Exception:  # Programs with constants or callbacks cannot be stored.
        return
    replace_file(str(path), content)
    _delete_oldest(path.parent)


def _delete_oldest(folder: Path) -> None:
    try:
        found = [(p.stat().st_mtime, p.stat().st_size, p) for p in folder.iterdir()]
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= MOST_BYTES:
                return
            path.unlink()
            total -= size
    except OSError:
        return  # Another process deletes too.
