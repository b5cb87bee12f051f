"""Functions that run in threads, for work that NumPy, SciPy and files do unlocked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_order(
    function: Callable[[T], R], arguments: Iterable[T], workers: int
) -> Iterator[R]:
    """`map` in threads: results in the order of the arguments, a few of them ahead.

    At most `workers + 1` results are computed or wait, so that memory is bounded.

    Args:
        function: A function of one argument, which may run at the same time as itself.
        arguments: Its arguments; they are made in the thread of the caller.
        workers: Number of threads, at least 1.

    >>> list(map_in_order(abs, [-2, 1, -3], 2))
    [2, 1, 3]
    """
    with ThreadPoolExecutor(workers) as pool:
        waiting = deque()
        for argument in arguments:
            waiting.append(pool.submit(function, argument))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
