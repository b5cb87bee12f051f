"""Whether JAX compiles a program, for whoever shows what a process does.

>>> from irtjax.numerics import compiling
>>> compiling.watch()
>>> compiling.is_compiling()
False
"""

from __future__ import annotations

import threading
import time
from typing import Any

import jax.monitoring

#: Events of tracing, lowering and compiling: each is a scalar where it begins, and a
#: span of time where it ends.
EVENTS = "/jax/core/compile/"

_lock = threading.Lock()
_open: dict[str, int] = {}
_watching = False
#: Seconds spent by now, without the event that is open, and when that began.
_spent, _since = 0.0, 0.0


def watch() -> None:
    """Notes from now on what JAX compiles, in any thread."""
    global _watching
    with _lock:
        if not _watching:
            jax.monitoring.register_scalar_listener(_begin)
            jax.monitoring.register_event_time_span_listener(_end)
            _watching = True


def is_compiling() -> bool:
    """Whether a program is traced, lowered or compiled now; False without `watch`."""
    with _lock:  # Another thread may add an event.
        return any(_open.values())


def seconds() -> float:
    """Time in which programs were traced, lowered or compiled, since `watch`."""
    with _lock:
        now = time.perf_counter() - _since if any(_open.values()) else 0.0
        return _spent + now


def _begin(event: str, value: float | int, **details: Any) -> None:
    global _since
    if event.startswith(EVENTS):
        with _lock:
            if not any(_open.values()):
                _since = time.perf_counter()
            _open[event] = _open.get(event, 0) + 1


def _end(event: str, start_time: float, end_time: float, **details: Any) -> None:
    global _spent
    if event.startswith(EVENTS):
        with _lock:
            was = any(_open.values())
            # Releases of JAX without a scalar at the beginning have nothing to end.
            _open[event] = max(_open.get(event, 0) - 1, 0)
            if was and not any(_open.values()):
                _spent += time.perf_counter() - _since
