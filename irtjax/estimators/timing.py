"""Wall-clock time by phase, with compilation apart from running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.monitoring

#: Called with phase, step, objective, residual and seconds since the start.
ProgressCallback = Callable[[str, int, float, float, float], None]

_PREFIX = "/jax/core/compile/"
_spans: list[tuple[float, float]] = []
_listening = threading.Event()


def _record(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Keeps the times of JAX's events of compilation."""
    if event.startswith(_PREFIX):
        _spans.append((start_time, end_time))


def union_length(spans: list[tuple[float, float]]) -> float:
    """Length of a union of intervals: traces of inner functions lie inside outer ones.

    >>> union_length([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Clock:
    """Times phases of one fit; the time spent compiling is collected apart.

    >>> clock = Clock()
    >>> with clock.phase("run"):
    ...     pass
    >>> sorted(clock.timings)
    ['compile', 'read', 'run']
    """

    def __init__(self, progress: ProgressCallback | None = None):
        # Registered once, at the first fit rather than at import.
        if not _listening.is_set():
            _listening.set()
            jax.monitoring.register_event_time_span_listener(_record)
        self.progress = progress
        self.began = time.perf_counter()
        self.timings: dict[str, float] = {"read": 0.0, "compile": 0.0, "run": 0.0}

    def report(self, phase: str, step: int, objective: float, residual: float) -> None:
        """Reports the progress of a phase to the caller, if requested."""
        if self.progress is not None:
            seconds = time.perf_counter() - self.began
            self.progress(phase, step, objective, residual, seconds)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a phase, less what it spent compiling."""
        first, began = len(_spans), time.perf_counter()
        yield
        elapsed = time.perf_counter() - began
        compiling = min(elapsed, union_length(_spans[first:]))
        self.timings["compile"] += compiling
        self.timings[name] = self.timings.get(name, 0.0) + elapsed - compiling
