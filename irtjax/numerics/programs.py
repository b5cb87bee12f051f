"""Programs stored on disk, so that a second process neither traces nor compiles.

JAX compiles a program for each shape in every process: for small data nearly all of the
time of a fit. `stored_jit` is `equinox.filter_jit` with a second cache, of machine code
(`executables`) under a key that needs no tracing. It changes no setting of JAX, and
stores the programs of irtjax alone.

They are in the user's cache folder, 512 MB at most. `IRTJAX_CACHE_DIR` in the
environment names another folder, or is empty or `off` to store none; so does
`store_in`. A folder that cannot be written costs time, not the result.

A stored program is right only if all that tracing and compiling read is in its key:

- the function's name and every source file of irtjax;
- the static part of the arguments, and shape and dtype of each array;
- the settings of JAX, `XLA_FLAGS`, the kind of processor;
- the releases of Python and of the packages whose code is traced.

The static part is pickled for the key alone: nothing pickled is ever read. Calls with
objects of other packages, such as a user's own response family, whose code is not in
the key, are compiled in the ordinary way; so are calls under a JAX transformation, on
accelerators and with several devices.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, update_wrapper, wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
from jax.core import Tracer

from irtjax._backend import processor
from irtjax.numerics.executables import Program, compile_program, load_program
from irtjax.numerics.forms import split
from irtjax.numerics.precision import full_precision

P = ParamSpec("P")
R = TypeVar("R")

#: Packages whose objects may be static arguments: their releases are in the key.
TRACED = ("jax", "jaxlib", "numpy", "equinox", "optax", "blackjax", "jaxtyping")
#: Roots of modules whose classes and functions may be pickled into a key.
KNOWN = {"irtjax", "builtins", "collections", "copyreg", "functools", *TRACED}
#: Settings of JAX on where programs are stored and what is logged, not on what they
#: compute.
NEUTRAL = (
    "jax_compilation_cache_",
    "jax_enable_compilation_cache",
    "jax_explain_cache_misses",
    "jax_log",
    "jax_persistent_cache_",
)

#: The folder of programs, once it is known.
_folder: Path | None = None
_chosen = False
#: Whether calls run stored programs: see `unstored_over_devices`.
_stores = ContextVar("stores", default=True)


def store_in(folder: Path | str | None) -> None:
    """Stores compiled programs in a folder from now on; None stores no more.

    Without this call they are stored in the user's cache folder, or in the one that
    `IRTJAX_CACHE_DIR` names.

    >>> store_in(None)  # doctest: +SKIP
    """
    global _folder, _chosen
    _folder, _chosen = None if folder is None else Path(folder), True


def cache_folder() -> Path | None:
    """The folder for compiled programs; None where nothing is to be stored."""
    setting = os.environ.get("IRTJAX_CACHE_DIR")
    if setting is not None:
        return None if setting.strip().lower() in ("", "off", "0") else Path(setting)
    from platformdirs import user_cache_dir

    folder = Path(user_cache_dir("irtjax"), "compiled")
    # Without a home the path would be one below the working folder.
    return folder if folder.is_absolute() else None


def _storing() -> Path | None:
    """The folder of programs."""
    if not _chosen:
        folder = cache_folder()
        store_in(None if folder is None else folder / "programs")
    return _folder


def unstored_over_devices(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs no stored programs where it is called with a mesh.

    Stored programs are of processes with one device, and small ones are compiled by
    other options (`executables.QUICK`), so they round otherwise: rotated loadings moved
    by up to 3e-8. Over devices results must not depend on their number.

    >>> unstored_over_devices(lambda mesh=None: _stores.get())(mesh="two devices")
    False
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _stores.set(_stores.get() and kwargs.get("mesh") is None)
        try:
            return function(*args, **kwargs)
        finally:
            _stores.reset(token)

    return wrapped


class stored_jit(Generic[R]):
    """`equinox.filter_jit` of a function of a module, with programs stored on disk.

    The function must read nothing but its arguments and constants of its module.
    """

    def __init__(self, function: Callable[..., R]) -> None:
        self.function = function
        self.jitted: Any = eqx.filter_jit(function)
        self.programs: dict[str, Program] = {}
        update_wrapper(self, function)

    @full_precision
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """The result, by a stored program where there may be one."""
        folder = _storing() if _stores.get() else None
        if folder is not None:
            arrays, form = split((args, kwargs))
            key = self._key(arrays, form)
            if key is not None:
                if key not in self.programs:
                    self.programs[key] = self._program(arrays, form, folder / key)
                return self.programs[key](arrays)
        return self.jitted(*args, **kwargs)

    def _program(self, arrays: list[Any], form: Any, path: Path) -> Program:
        """The program of a call: read, or compiled and stored."""
        compiled = lambda: compile_program(self.function, form, arrays, path)
        program = load_program(path)
        if program is None:
            return compiled()

        def checked(inputs: list[Any]) -> Any:
            try:
                return program(inputs)
            except jax.errors.JaxRuntimeError:  # Machine code that lacks something.
                with suppress(OSError):
                    path.unlink()
                self.programs[path.name] = compiled()
                return self.programs[path.name](inputs)

        return checked

    def _key(self, arrays: list[Any], form: Any) -> str | None:
        """Name of the file of a call's program; None if it must not be stored."""
        if any(isinstance(array, Tracer) for array in arrays):
            return None
        if jax.config.values["jax_disable_jit"]:
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
        relevant = [pair for pair in values if not pair[0].startswith(NEUTRAL)]
        settings = repr((relevant, os.environ.get("XLA_FLAGS", ""))).encode()
        content = file.getvalue() + settings + _environment()
        return hashlib.sha256(content).hexdigest()


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
