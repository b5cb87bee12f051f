"""Sums over several processes that have the same bits for any number of them.

Subjects are cut into `segments` stretches of one size. Each is summed by itself, and
the sums are added in pairs, then in pairs of these, and so on. A process does so with
its own stretches. Then processes whose numbers differ in one binary digit exchange
what they have: x + y and y + x are the same number, so all get the same bits.

Rows of all processes are gathered by the same sum, of bytes that only one of the
processes has and that are 0 elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

#: Numbers of processes that segments are divided over, and segments of a divided pass.
NUM_PROCESSES, NUM_SEGMENTS = (1, 2, 4, 8), 8
#: Bytes that are exchanged at a time: four times as many are in memory.
_CHUNK = 2**24


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a computation, and the segments that they divide.

    Attributes:
        count: How many there are, one of `NUM_PROCESSES`.
        number: Which of them this one is, from 0.
        segments: Stretches of subjects that are summed by themselves.

    >>> alone = Processes(segments=4)
    >>> alone.sum_segments(lambda segment: (np.full(2, segment),))
    (array([6, 6]),)
    >>> alone.edges(10).tolist(), alone.own(10)
    ([0, 2, 5, 7, 10], slice(0, 10, None))
    """

    count: int = 1
    number: int = 0
    segments: int = 1

    @classmethod
    def connected(cls) -> Processes:
        """Those that `jax.distributed.initialize` has connected.

        Raises:
            ValueError: If segments cannot be divided evenly over so many.
        """
        import jax

        count = jax.process_count()
        if count not in NUM_PROCESSES:
            allowed = ", ".join(map(str, NUM_PROCESSES))
            raise ValueError(
                f"{count} processes cannot divide the subjects evenly: start one of"
                f" {allowed}"
            )
        return cls(count, jax.process_index(), NUM_SEGMENTS)

    @property
    def own_segments(self) -> range:
        """The segments of this process."""
        each = self.segments // self.count
        return range(self.number * each, (self.number + 1) * each)

    def edges(self, size: int) -> np.ndarray:
        """`[segments + 1]` first of so many subjects in each segment, and `size`."""
        return np.arange(self.segments + 1) * size // self.segments

    def own(self, size: int) -> slice:
        """Those of so many subjects that this process has."""
        edges, segments = self.edges(size), self.own_segments
        return slice(int(edges[segments.start]), int(edges[segments.stop]))

    def sum_segments(
        self, function: Callable[[int], Sequence[np.ndarray]]
    ) -> tuple[np.ndarray, ...]:
        """Sums over all segments of the arrays that `function` returns of one.

        Args:
            function: Of the number of a segment; its arrays are used up.
        """

        def tree(first: int, count: int) -> Sequence[np.ndarray]:
            if count == 1:
                return function(first)
            sums = tree(first, count // 2)
            later = tree(first + count // 2, count // 2)
            for total, part in zip(sums, later, strict=True):
                total += part
            return sums

        own = self.own_segments
        return tuple(self.sum(x) for x in tree(own.start, len(own)))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of an array over the processes; the array is used up."""
        if self.count == 1:
            return array
        total = np.require(array, requirements=["C", "W"])
        flat, each = total.reshape(-1), max(1, _CHUNK // total.itemsize)
        step = 1
        while step < self.count:
            for start in range(0, flat.size, each):
                part = flat[start : start + each]
                part += _exchange(part.view(np.uint8), step).view(part.dtype)
            step *= 2
        return total

    def gather_rows(self, array: np.ndarray) -> np.ndarray:
        """An array by subject of which each process has its own rows.

        The others are 0. The array is used up.
        """
        if self.count == 1:
            return array
        whole = np.require(array, requirements=["C", "W"])
        self.sum(whole.reshape(-1).view(np.uint8))
        return whole

    def gather(self, own: bytes) -> list[bytes]:
        """The bytes of each process."""
        if self.count == 1:
            return [own]
        lengths = np.zeros(self.count, np.int64)
        lengths[self.number] = len(own)
        ends = np.cumsum(self.sum(lengths))
        whole = np.zeros(ends[-1], np.uint8)
        end = ends[self.number]
        whole[end - len(own) : end] = np.frombuffer(own, np.uint8)
        every = self.sum(whole).tobytes()
        return [every[end - n : end] for end, n in zip(ends, lengths, strict=True)]

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """Refuses in every process what one of them refuses, as a `ValueError`.

        Nothing is exchanged within the block.
        """
        refusal = ""
        try:
            yield
        except ValueError as error:
            refusal = str(error)
            if self.count == 1:
                raise
        if self.count > 1:
            texts = self.gather(refusal.encode())
            first = next((text for text in texts if text), b"")
            if first:
                raise ValueError(first.decode()) from None


#: One process that has all subjects, as one segment.
ALONE = Processes()


def _exchange(own: np.ndarray, step: int) -> np.ndarray:
    """The bytes of the process whose number differs by the digit `step`."""
    import jax

    program, place = _program(step)
    shape = jax.process_count(), own.size
    sent = jax.make_array_from_process_local_data(place, own[None], shape)
    try:
        received = program(sent)
        return np.asarray(received.addressable_shards[0].data)[0]
    except ValueError as error:  # JAX's name for some of the ends of a connection.
        raise RuntimeError(str(error)) from None


@functools.cache
def _program(step: int) -> tuple[Any, Any]:
    """The exchange between first devices of processes, and the layout of its bytes."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    first = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([first[k] for k in sorted(first)]), ("processes",))
    pairs = [(k, k ^ step) for k in range(len(first))]
    divided = PartitionSpec("processes")
    program = jax.shard_map(
        lambda x: jax.lax.ppermute(x, "processes", pairs),
        mesh=mesh,
        in_specs=divided,
        out_specs=divided,
        check_vma=False,
    )
    return jax.jit(program), NamedSharding(mesh, divided)
