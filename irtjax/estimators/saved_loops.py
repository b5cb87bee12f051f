"""The state of a fit in a file every few steps, from which a stopped fit resumes.

A fit calls the driver once or a few times. The file has the last loop of each call, so
a fit that resumes repeats what it has done at once and takes up the loop of the call
that was stopped: its numbers are those of a fit that was not, to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from irtjax.data.archives import read_archive, write_archive

#: Version of the file's form; raised when its form changes.
FORMAT = "irtjax loops 1"
#: Steps between two looks at the time, the same in every process.
STEPS = 5
#: Share of the time that writing may take.
SHARE = 0.05
#: What a file has for a call of the driver: nothing, its loop, or another fit's.
ABSENT, PRESENT, OTHER = 0, 1, 2

#: Settings of fits that can be saved on their way.
OPTIONS: Mapping[str, Any] = {"checkpoint": None, "resume": False}


class SavedLoops:
    """The loops of a fit in a file: the first process writes, the others are told."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path, self.loops, self.number = path, [], -1
        self.due = 0.0
        if resume and jax.process_index() == 0:
            arrays, counts = read_archive(
                path, FORMAT, "checkpoint of a fit", with_identity=True
            )
            ends = np.cumsum(counts)[:-1]
            starts = [0, *ends.tolist()]
            self.loops = [
                arrays[start : start + count]
                for start, count in zip(starts, counts, strict=True)
            ]

    def begin(self, loop: Any) -> Any:
        """The loop of the next call of the driver: as it was saved, or the first."""
        self.number += 1
        leaves, tree = jax.tree.flatten(loop)
        shapes = [(x.shape, x.dtype) for x in leaves]
        stored = self.loops[self.number : self.number + 1]
        state = ABSENT
        if stored:
            same = [(x.shape, x.dtype) for x in stored[0]] == shapes
            state = PRESENT if same else OTHER
        state = int(_told(np.array(state)))
        if state == OTHER:
            raise ValueError(
                f"{self.path}: it belongs to a fit with other data, another model or"
                " other settings; delete it, or name another checkpoint"
            )
        if state == ABSENT:
            return loop
        own = stored[0] if stored else [np.zeros(*shape) for shape in shapes]
        return jax.tree.unflatten(tree, [jax.numpy.asarray(_told(x)) for x in own])

    def save(self, loop: Any, *, last: bool) -> None:
        """Writes the loop, whole or not at all, unless that was a moment ago."""
        if jax.process_index() or not (last or time.monotonic() >= self.due):
            return
        began = time.monotonic()
        arrays = [np.asarray(x) for x in jax.tree.leaves(loop)]
        self.loops[self.number :] = [arrays]
        every = [x for loop in self.loops for x in loop]
        write_archive(self.path, FORMAT, every, [len(x) for x in self.loops])
        ended = time.monotonic()
        self.due = ended + (ended - began) / SHARE


def _told(array: np.ndarray) -> np.ndarray:
    """The array of the first process, in every process."""
    if jax.process_count() == 1:
        return array
    return np.asarray(multihost_utils.broadcast_one_to_all(array))


_loops: ContextVar[SavedLoops | None] = ContextVar("loops", default=None)


def current() -> SavedLoops | None:
    """Where the driver saves its loops; None for nowhere."""
    return _loops.get()


@contextmanager
def saved_loops(options: Mapping[str, Any]) -> Iterator[None]:
    """Saves the loops of fits within the block, where `checkpoint` names a file."""
    path = options.get("checkpoint")
    loops = None
    if path is not None:
        loops = SavedLoops(Path(path), resume=bool(options.get("resume")))
    token = _loops.set(loops)
    try:
        yield
    finally:
        _loops.reset(token)
