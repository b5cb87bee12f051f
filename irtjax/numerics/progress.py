"""The share done of a long computation, for whoever watches it.

A function that loops over parts of its work does so as ``for k in watched(range(5))``.
Of loops within each other the inner one divides the current part of the outer one.
Without a watcher nothing is reported, and nothing takes time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

Part = TypeVar("Part")
Carry = TypeVar("Carry")
#: Seconds between two reports of `in_stretches`.
STRETCH = 0.5
#: Called with the share done of the outermost loop and its name; None at its end.
Watcher = Callable[[float | None, str], None]


class _Stretch(NamedTuple):
    """What a loop divides: the shares of the outermost loop between two ends."""

    watcher: Watcher
    begin: float = 0.0
    end: float = 1.0
    name: str | None = None  # None before the outermost loop.


_current: ContextVar[_Stretch | None] = ContextVar("irtjax_progress", default=None)


@contextmanager
def watching(watcher: Watcher | None) -> Iterator[None]:
    """Reports the share done of loops within the block, in this thread; None: not.

    >>> shares = []
    >>> with watching(lambda share, name: shares.append((share, name))):
    ...     for k in watched("ab", "fold"):
    ...         for m in watched(range(2)):
    ...             pass
    >>> [share for share, _ in shares]
    [0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 1.0, None]
    >>> shares[2]
    (0.25, 'fold 1 of 2')
    """
    token = _current.set(None if watcher is None else _Stretch(watcher))
    try:
        yield
    finally:
        _current.reset(token)


def watched(of: Collection[Part], name: str = "") -> Iterator[Part]:
    """Iterates over parts of a computation of about the same length each.

    Args:
        of: The parts; their number is known.
        name: What one of them is, such as "fold".
    """
    stretch = _current.get()
    if stretch is None or len(of) < 2:
        yield from of
        return
    watcher, begin, end, outer = stretch
    step, text = (end - begin) / len(of), outer or ""
    try:
        for k, part in enumerate(of):
            if outer is None and name:
                text = f"{name} {k + 1:,} of {len(of):,}"
            low = begin + k * step
            watcher(low, text)
            _current.set(_Stretch(watcher, low, low + step, text))
            yield part
            _restore(watcher, stretch)
        watcher(end, text)
    finally:
        _restore(watcher, stretch)
        if outer is None:
            watcher(None, "")


def is_watched() -> bool:
    """Whether anybody watches, for a share that takes time to find."""
    return _current.get() is not None


def note_share(share: float, name: str = "") -> None:
    """Reports the share done of a computation that is no loop over equal parts.

    1 ends it.
    """
    stretch = _current.get()
    if stretch is None:
        return
    done = stretch.begin + min(max(share, 0.0), 1.0) * (stretch.end - stretch.begin)
    outermost = stretch.name is None
    if outermost and share >= 1:
        stretch.watcher(None, "")
    else:
        stretch.watcher(done, name if outermost else stretch.name or "")


def in_stretches(
    advance: Callable[[Carry, int, int], Carry], init: Carry, count: int, name: str = ""
) -> Carry:
    """Folds over `count` parts by a program that takes several of them at once.

    Without a watcher it is one call. With one, calls take about `STRETCH` seconds each.

    Args:
        advance: From what was found so far, the first part to take and the one after
            the last, to what is found with them; returns when it is computed.
        init: What is found of no part.
        count: Number of parts.
        name: What is computed.

    >>> shares = []
    >>> with watching(lambda share, name: shares.append(share)):
    ...     in_stretches(lambda sum, first, last: sum + last - first, 0, 3)
    3
    >>> shares[0], shares[-1]
    (0.0, None)
    """
    if count < 2 or not is_watched():
        return advance(init, 0, count)
    carry, done, size = init, 0, 1
    while done < count:
        note_share(done / count, name)
        began, last = time.perf_counter(), min(done + size, count)
        carry = advance(carry, done, last)
        # The first call may have compiled the program.
        rate = (last - done) / max(time.perf_counter() - began, 1e-6)
        size, done = int(min(max(1, rate * STRETCH), 4 * size)), last
    note_share(1, name)
    return carry


def _restore(watcher: Watcher, stretch: _Stretch) -> None:
    """Ends a part, unless someone else watches by now (a loop was left by an error)."""
    current = _current.get()
    if current is not None and current.watcher is watcher:
        _current.set(stretch)
