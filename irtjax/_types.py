"""Array aliases and the status codes shared by every layer.

Shape words used in annotations: subjects, items, nodes, dims, draws. Classes whose
name starts with ``Abstract`` are interfaces; every other class is final.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

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
