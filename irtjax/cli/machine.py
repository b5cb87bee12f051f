"""Settings of JAX that a program may choose and a library may not.

They are set for the whole process, which is one command. The compilation cache and the
platform have no scope in JAX, and a scope of one thread is not valid in another.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

from irtjax._backend import turn_off_faulty_fusion

DEVICES = ("cpu", "gpu", "tpu")


def prepare(
    float32: bool = False, device: str | None = None, devices: int | None = None
) -> Any:
    """Sets precision, platform and compilation cache, before any backend starts.

    Returns the floating-point dtype to compute in. Without a device JAX chooses one.
    A CPU counts as `devices` devices.
    """
    if device is not None and device not in DEVICES:
        raise ValueError(f"--device {device} is not one of {', '.join(DEVICES)}")
    import jax
    import numpy as np

    from irtjax.numerics import compiling

    compiling.watch()
    jax.config.update("jax_enable_x64", not float32)
    if devices is not None:
        from irtjax.numerics.programs import store_in

        jax.config.update("jax_num_cpu_devices", devices)
        # One device would compute by other programs than several.
        store_in(None)
    # Numbers that do not exist are NaN, and no mistake.
    jax.config.update("jax_debug_nans", False)
    jax.config.update("jax_debug_infs", False)
    if device is not None:
        _choose(jax, device)
    else:
        _check_platforms(jax)
    _keep_compiled_code(jax)
    return np.float32 if float32 else np.float64


def mesh_of(devices: int | None) -> Any:
    """The mesh of so many of the devices that JAX computes on; None for all."""
    import jax
    import numpy as np

    here = jax.devices()
    devices = len(here) if devices is None else devices
    if len(here) < devices:
        platform = here[0].platform
        raise ValueError(
            f"--devices {devices}: this machine has {len(here)} of platform {platform};"
            f" use --devices {len(here)}, or --device cpu"
        )
    return jax.sharding.Mesh(np.array(here[:devices]), ("subjects",))


class _PandasForXarray(MetaPathFinder):
    """Hides pandas until xarray asks for it; see `hide_pandas`."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Finds nothing: other finders look for all that is not hidden."""
        if fullname == "pandas" and "xarray" not in sys.modules:
            raise ImportError(name=fullname)


def hide_pandas() -> None:
    """Keeps pyarrow from importing pandas (0.3 s), which the commands do not use.

    pyarrow tries the import at each conversion to or from NumPy.
    """
    sys.meta_path.insert(0, _PandasForXarray())


def _choose(jax: Any, device: str) -> None:
    """Sets the platform and the default device."""
    if device == "cpu":
        # Before a backend starts this keeps an idle GPU's memory free.
        jax.config.update("jax_platforms", "cpu")
        # JAX_PLATFORMS may have named an accelerator alone.
        turn_off_faulty_fusion()
    try:
        # Of several processes each has its own.
        devices = jax.local_devices(backend=device)
    except RuntimeError:
        cure = "install irtjax[gpu]" if device == "gpu" else "leave --device out"
        raise ValueError(f"no {device} was found on this machine: {cure}") from None
    # It becomes the default, whatever else there is.
    jax.config.update("jax_default_device", devices[0])


def _check_platforms(jax: Any) -> None:
    """Refuses platforms of the environment that this machine does not have."""
    if jax.config.jax_platforms in (None, "", "cpu"):
        return
    try:
        jax.devices()
    except (RuntimeError, AssertionError):
        named = jax.config.jax_platforms
        cure = "unset JAX_PLATFORMS, or install irtjax[gpu] for an NVIDIA GPU"
        raise ValueError(
            f"JAX_PLATFORMS is {named!r:.80}, which JAX cannot use here: {cure}"
        ) from None


def _keep_compiled_code(jax: Any) -> None:
    """Lets the next run of the same shapes skip compilation."""
    is_set = jax.config.jax_compilation_cache_dir is not None
    if is_set or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    from irtjax.cli.compiled import check_entries
    from irtjax.numerics.programs import cache_folder

    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # A home that cannot be written costs time, not the result.
    if not os.access(folder, os.W_OK):
        return
    check_entries()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # The many small programs take as long to compile as the few large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
