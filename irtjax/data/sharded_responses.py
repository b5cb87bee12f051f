"""Responses whose subjects are divided over the devices of a mesh.

Only the matrix of responses is divided: `[subjects, items]` is large, and each device
has the rows of some subjects. All else, `[subjects]` or `[items]`, every device has.
A pass over the matrix is `AbstractResponses.fold`, and what estimators compute from its
results is the same program with the same numbers on each device.

Sums do not depend on the number of devices, to the last bit. Subjects are cut into
`NUM_SEGMENTS` segments of one size, each is added up by the same program, and their
sums are added in the order of a fixed binary tree. A device adds those of its own
segments, then devices whose numbers differ in one binary digit exchange what they have:
x + y and y + x are the same number, so all devices get the same bits. (An all-reduce
adds in an order that depends on the number of devices.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from irtjax.data.blocks import DenseBlock
from irtjax.data.responses import AbstractResponses, Responses

#: Segments of subjects: at least two to a device, whose loop over them is then the same
#: program on any number of devices.
NUM_SEGMENTS = 16
#: Devices that a mesh may have.
NUM_DEVICES = (1, 2, 4, 8)


def check_mesh(mesh: Mesh) -> None:
    """Refuses meshes over which subjects cannot be divided evenly.

    Raises:
        ValueError: If the mesh has several axes, or a number of devices that is not
            one of `NUM_DEVICES`.
    """
    if not isinstance(mesh, Mesh):
        raise ValueError(
            f"mesh {mesh!r:.60} is no jax.sharding.Mesh: give jax.make_mesh((2,),"
            " ('subjects',))"
        )
    if len(mesh.axis_names) != 1 or mesh.size not in NUM_DEVICES:
        shape = " x ".join(map(str, mesh.devices.shape))
        allowed = ", ".join(map(str, NUM_DEVICES))
        raise ValueError(
            f"a mesh of {shape} devices cannot divide the subjects: give one axis of"
            f" {allowed} devices"
        )


class ShardedResponses(AbstractResponses):
    """Responses with the rows of a dense matrix divided over devices.

    Attributes:
        cells: Values, mask, trials and lengths, `[subjects, items]`, divided by rows.
        mesh: The devices, along one axis.
    """

    cells: Responses
    mesh: Mesh = eqx.field(static=True)

    @classmethod
    def of(cls, data: Responses, mesh: Mesh) -> ShardedResponses:
        """Divides responses whose number of subjects `NUM_SEGMENTS` divides.

        Each process of several gives all rows and transfers those of its own devices.
        """
        # Those of `jax.make_mesh` are explicit axes, which functions cannot close over.
        mesh = Mesh(mesh.devices, mesh.axis_names)
        rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
        whole = NamedSharding(mesh, PartitionSpec())

        def put(array: Any, place: NamedSharding) -> Any:
            if array is None:
                return None
            array = np.asarray(array)
            return jax.make_array_from_callback(
                array.shape, place, lambda index: array[index]
            )

        cells = Responses(
            put(data.values, rows),
            put(data.observed, rows),
            put(data.trials, rows),
            put(data.log_length, rows),
            put(data.length_observed, rows),
        )
        return cls(
            cells,
            mesh,
            subject_weight=put(data.subject_weight, whole),
            item_weight=put(data.item_weight, whole),
            item_facets=jax.tree.map(lambda x: put(x, whole), data.item_facets),
            evidence=put(data.evidence, whole),
        )

    def fold(self, function: Callable[..., Any], rows: Any = None, *whole: Any) -> Any:
        """Sums over segments of subjects, and arrays by subject; see the module."""
        axis = self.mesh.axis_names[0]
        count = NUM_SEGMENTS // self.mesh.size
        size = self.num_subjects // NUM_SEGMENTS

        def segment(
            cells: Responses, by_subject: Any, whole: Any, place: Array, number: Array
        ) -> Any:
            take = lambda start: lambda x: lax.dynamic_slice_in_dim(x, start, size)
            own, theirs = jax.tree.map(take(number * size), by_subject)
            part = jax.tree.map(take(place * size), cells)
            weights = self.item_weight, self.item_facets
            part = eqx.tree_at(
                lambda x: (
                    x.subject_weight,
                    x.evidence,
                    x.item_weight,
                    x.item_facets,
                ),
                part,
                (*own, *weights),
                is_leaf=lambda x: x is None,
            )
            return function(part, theirs, *whole)

        def on_device(cells: Responses, by_subject: Any, whole: Any) -> Any:
            first = lax.axis_index(axis) * count
            one = lambda place: segment(cells, by_subject, whole, place, first + place)
            sums, arrays = jax.eval_shape(one, jnp.zeros((), jnp.int32))
            zeros = lambda x: jnp.zeros(x.shape, x.dtype)
            none = jax.tree.map(zeros, sums)
            empty = jax.tree.map(
                lambda x: jnp.zeros((count * size, *x.shape[1:]), x.dtype), arrays
            )

            def tree(num: int, place: Array, arrays: Any) -> Any:
                """Sums of `num` segments from a place, two halves at a time."""
                if num == 1:
                    sums, new = one(place)
                    put = lambda x, y: lax.dynamic_update_slice_in_dim(
                        x, y, place * size, 0
                    )
                    return sums, jax.tree.map(put, arrays, new)

                def half(number: Array, carry: Any) -> Any:
                    sums, arrays = carry
                    start = place + number * (num // 2)
                    added, arrays = tree(num // 2, start, arrays)
                    return jax.tree.map(jnp.add, sums, added), arrays

                return lax.fori_loop(0, 2, half, (none, arrays))

            sums, arrays = tree(count, jnp.zeros((), jnp.int32), empty)
            step = 1
            while step < self.mesh.size:
                pairs = [(k, k ^ step) for k in range(self.mesh.size)]
                exchange = lambda x, pairs=pairs: x + lax.ppermute(x, axis, pairs)
                sums, step = jax.tree.map(exchange, sums), 2 * step
            gather = lambda x: lax.all_gather(x, axis, tiled=True)
            return sums, jax.tree.map(gather, arrays)

        divided, every = PartitionSpec(axis), PartitionSpec()
        return jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(divided, every, every),
            out_specs=every,
            check_vma=False,
        )(self.cells, ((self.subject_weight, self.evidence), rows), whole)

    @property
    def is_divided(self) -> bool:
        """True: the size stays, and the matrix."""
        return True

    @property
    def values(self) -> Array:
        """`[subjects, items]`, divided by rows."""
        return self.cells.values

    @property
    def observed(self) -> Array | None:
        """`[subjects, items]` mask, divided by rows; None when nothing is missing."""
        return self.cells.observed

    @property
    def trials(self) -> Array | None:
        """`[subjects, items]` trials, divided by rows; None for 1 each."""
        return self.cells.trials

    @property
    def exposure(self) -> Array | None:
        """Trials, the mask, or None for ones."""
        return self.cells.exposure

    @property
    def num_subjects(self) -> int:
        """Number of rows, with those of padding."""
        return self.cells.num_subjects

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return self.cells.num_items

    @property
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""
        return self.cells.is_complete

    @property
    def single(self) -> bool:
        """Whether every observed cell is one trial."""
        return self.cells.single

    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject."""
        if not self.is_complete:
            return np.asarray(_answered(self, weight, trials), np.float64)
        each = np.ones(self.num_items) if weight is None else np.asarray(weight, float)
        return np.full(self.num_subjects, each.sum())

    def map_subjects(
        self,
        function: Callable[[DenseBlock], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """Arrays by subject, with `function` of each block; always of all blocks."""
        del into, between

        def rows(part: Responses, own: Any) -> Any:
            init, number = own
            # Functions of a block read arrays of all subjects at its place.
            moved = lambda block: function(
                block._replace(start=block.start + number[0])
            )
            return None, part.map_subjects(moved, init, dtype, numbers=numbers)

        return self.fold(rows, (init, jnp.arange(self.num_subjects)))[1]

    def sum_subjects(
        self,
        function: Callable[[DenseBlock, Array], Any],
        init: Any,
        dtype: Any,
        *,
        size: int | None = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """Sums over subjects, added to `init`; always of all blocks."""
        del between
        zeros = jax.tree.map(jnp.zeros_like, init)

        def sums(part: Responses, number: Array) -> Any:
            moved = lambda block, is_new: function(
                block._replace(start=block.start + number[0]), is_new
            )
            rows = None if size is None else min(size, part.num_subjects)
            return part.sum_subjects(moved, zeros, dtype, size=rows), None

        added = self.fold(sums, jnp.arange(self.num_subjects))[0]
        return jax.tree.map(jnp.add, init, added)

    def map_items(
        self,
        function: Callable[[DenseBlock], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """As `map_subjects`, of items: XLA divides the work, in an order of its own."""
        options = {"numbers": numbers, "into": into, "between": between}
        return self.cells.map_items(function, init, dtype, **options)

    def stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """All rows as one block: a pass is one call."""
        return self.num_subjects, self.num_subjects

    def item_stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """The same of `map_items`."""
        return self.num_items, self.num_items

    def matrix_blocks(
        self, size: int, dtype: Any = None
    ) -> Callable[[Array], tuple[Array, Array | None]]:
        """From a first subject: values and exposure of `size` subjects, every item."""
        return self.cells.matrix_blocks(size, dtype)

    def among(self, places: np.ndarray, num_items: int) -> Responses:
        """With a column for each of `num_items`, these items at their `places`."""
        return self.cells.among(places, num_items)


@eqx.filter_jit
def _answered(data: ShardedResponses, weight: Any, trials: bool) -> Array:
    """`AbstractResponses.answered` in one program, on all processes."""
    each = jnp.ones(data.num_items) if weight is None else jnp.asarray(weight, float)
    counted = lambda _, exposure: (exposure if trials else exposure > 0,)
    return data.table_products((each[:, None],), counted)[:, 0]
