"""Array aliases and the status codes shared by every layer.

Shape words used in annotations: subjects, items, nodes, dims, draws. Classes whose
name starts with ``Abstract`` are interfaces; every other class is final.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeAlias

from jaxtyping import Array, Float, Int, Key

KeyArray: TypeAlias = Key[Array, ""]
#: What public functions take: a whole number, or a key of JAX.
RandomKey: TypeAlias = int | KeyArray
Scalar: TypeAlias = Float[Array, ""]
StatusCode: TypeAlias = Int[Array, ""]


class Status(IntEnum):
    """How an iteration ended. Stored as an integer array, so it survives ``vmap``.

    >>> Status(0).explain()
    'converged'
    """

    CONVERGED = 0
    MAX_STEPS = 1
    NONFINITE = 2
    RUNNING = 3
    STALLED = 4

    def explain(self) -> str:
        """Explains the status in one sentence."""
        return {
            Status.CONVERGED: "converged",
            Status.MAX_STEPS: "stopped at the step limit before converging",
            Status.NONFINITE: "stopped at a non-finite value; the last finite"
            " state was kept",
            Status.RUNNING: "not finished: the state can be resumed",
            Status.STALLED: "stopped short of the tolerance because the objective no"
            " longer rises",
        }[self]


def check_keywords(function: str, keywords: Mapping[str, Any], options: type) -> None:
    """Refuses a keyword that a `TypedDict` of options lacks, as Python does.

    Raises:
        TypeError: With the nearest name, or all of them.

    >>> from typing import TypedDict
    >>> Options = TypedDict("Options", {"level": float, "folds": int})
    >>> check_keywords("shrink", {"levels": 0.9}, Options)
    Traceback (most recent call last):
    TypeError: shrink() has no keyword argument 'levels'; did you mean level=?
    """
    names = [*options.__annotations__]
    unknown = next((name for name in keywords if name not in names), None)
    if unknown is None:
        return
    from difflib import get_close_matches

    near = get_close_matches(unknown, names, 1)
    cure = f"did you mean {near[0]}=?" if near else f"there are {', '.join(names)}"
    raise TypeError(f"{function}() has no keyword argument {unknown!r}; {cure}")
