"""The machine: its cores, and a setting without which its compiler may be wrong.

In jaxlib 0.10.2 and 0.11.0 matrix products on a CPU may be fused with what surrounds
them into kernels of the library YNNPACK, some of which are wrong (wrong values in
github.com/jax-ml/jax, issues 39103 and 39257). Here a product with a broadcast operand,
added to a sum, gave NaN or another number at each call, as if memory were read that
nothing was written to, and so did `irtjax.fit` of 30 subjects and 30 scores. A wrong
number is worse than a slow one: the fusion is turned off, as long as JAX has not read
its settings yet.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version

#: Releases of jaxlib known to be at fault, and to know the option. XLA ends the process
#: at an option it does not know, so others are left alone: a test says of each new one
#: whether it is sound.
AT_FAULT = ("0.10.2", "0.11.0")
#: The kinds of operations that are fused so; none, if empty.
OPTION = "--xla_cpu_experimental_ynn_fusion_type"


def num_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def turn_off_faulty_fusion() -> None:
    """Adds the option to `XLA_FLAGS` where the release is at fault.

    What the user says of the option stands. Once JAX has started it is too late.

    Warns:
        RuntimeWarning: If JAX has started already, without the option.
    """
    try:
        release = version("jaxlib")
    except PackageNotFoundError:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if release not in AT_FAULT or OPTION in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {OPTION}=".strip()
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)
    if started():
        warnings.warn(
            f"jaxlib {release} may compute wrong numbers on a CPU, and JAX had started"
            " before irtjax could turn the faulty part off: import irtjax before the"
            f" first array is made, or set XLA_FLAGS={OPTION}= in the environment",
            RuntimeWarning,
            stacklevel=3,
        )
