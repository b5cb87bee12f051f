"""Data padded to a few sizes, so that fits of other data share their programs.

JAX compiles a program for each shape, which takes seconds whatever the size. Subjects
and items are repeated with weight 0 up to the next of four sizes per power of two, of
eight in larger data. Repeated items are fixed: they add nothing to a sum, and no
parameter.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from irtjax.data.responses import Responses
from irtjax.data.sharded_responses import NUM_SEGMENTS, ShardedResponses
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.model import Model
from irtjax.numerics.executables import FEW_NUMBERS

#: Responses beyond which data keep their size: there what is padded takes about as long
#: as compiling.
MOST_PADDED = 2**26
#: The arrays of `Responses` that are padded: by cell, by subject and by item.
_CELLS, _SUBJECTS = ("values", "observed", "trials"), ("subject_weight", "evidence")
#: Those of cells that are only divided.
_LENGTHS = "log_length", "length_observed"


def padded_size(count: int, halvings: int = 2) -> int:
    """The next of a few sizes: four per power of two, and all up to 8.

    One halving of the steps, not two, gives two sizes per power of two.

    >>> [padded_size(count) for count in (5, 8, 9, 33, 240)]
    [5, 8, 10, 40, 256]
    >>> [padded_size(count, 1) for count in (3, 5, 8, 9, 33, 240)]
    [3, 6, 8, 12, 48, 256]
    """
    step = 2 ** max(int(np.ceil(np.log2(max(count, 1)))) - 1 - halvings, 0)
    return -(-count // step) * step


def pad_responses(
    model: Model, data: Responses, dtype: Any
) -> tuple[Model, Responses, np.ndarray]:
    """The model and the responses, padded, and the item of each column.

    Data of more than `MOST_PADDED` responses stay as they are, and those of a layout
    that takes no padding. So do data of scores, lengths and common parameters, which
    have terms that weights do not reach. Not for use under jit.
    """
    size = data.num_cells
    own_size = size > MOST_PADDED or not data.takes_padding
    if own_size or not _is_weighed(model):
        return model, data, np.arange(data.num_items)
    halvings = 2 if size <= FEW_NUMBERS else 3
    rows, columns = (padded_size(count, halvings) for count in data.values.shape)
    found: dict[str, Any] = {}
    for name in (*_CELLS, *_SUBJECTS, "item_weight"):
        array = getattr(data, name)
        if array is not None:
            found[name] = _enlarged(array, columns if name == "item_weight" else rows)
            if name in _CELLS:
                found[name] = _enlarged(found[name].T, columns).T
    for name, count, kept in (
        ("subject_weight", rows, data.num_subjects),
        ("item_weight", columns, data.num_items),
    ):
        weight = np.where(np.arange(count) < kept, found.get(name, 1.0), 0.0)
        found[name] = weight.astype(dtype)
    # `jnp.array` and `asarray` compile a program for each shape, this does not.
    arrays: dict[str, Any] = jax.device_put(found)
    places = np.minimum(np.arange(columns), data.num_items - 1)
    model = dataclasses.replace(model, family=model.family.of_items(places))
    return model, Responses(**arrays), places


def _is_weighed(model: Model) -> bool:
    """Whether weights of 0 remove all that repeated rows add."""
    plain = model.family.num_categories > 0 and not model.family.common
    return plain and not model.has_lengths


def divide_problem(problem: Problem, dtype: Any, mesh: Mesh) -> Problem:
    """The padded problem with its subjects divided over the devices of a mesh.

    Rows are added until `NUM_SEGMENTS` divides their number: repeated ones, without
    responses where weights do not remove them. Not for use under jit.
    """
    if not problem.model.several:
        problem = pad_problem(problem, dtype)
    data: Responses = problem.data
    count = -(-data.num_subjects // NUM_SEGMENTS) * NUM_SEGMENTS
    is_own = np.arange(count) < data.num_subjects
    if not is_own.all():
        arrays = {
            name: _enlarged(getattr(data, name), count)
            for name in (*_CELLS, *_LENGTHS, *_SUBJECTS)
            if getattr(data, name) is not None
        }
        weight = np.asarray(arrays.get("subject_weight", 1.0), dtype)
        arrays["subject_weight"] = np.where(is_own, weight, 0).astype(dtype)
        if not _is_weighed(problem.model):
            every = np.ones(arrays["values"].shape, bool)
            seen = ["observed"] + ["length_observed"] * problem.model.has_lengths
            for name in seen:
                arrays[name] = arrays.get(name, every) & is_own[:, None]
        data = dataclasses.replace(data, **arrays)
    divided: Any = ShardedResponses.of(data, mesh)
    return dataclasses.replace(problem, data=divided)


def pad_problem(problem: Problem, dtype: Any) -> Problem:
    """A problem padded as `pad_responses` does, with repeated items fixed."""
    model, data, columns = pad_responses(problem.model, problem.data, dtype)
    if data is problem.data:
        return problem
    is_item = np.arange(len(columns))[:, None] < problem.data.num_items
    free = jax.device_put(np.asarray(problem.free)[columns] & is_item)
    return dataclasses.replace(problem, model=model, data=data, free=free)


def pad_rows(tree: Any, count: int) -> Any:
    """Arrays whose last rows are repeated up to this many rows."""
    lacking = lambda array: len(array) < count
    return jax.tree.map(
        lambda x: jax.device_put(_enlarged(x, count)) if lacking(x) else x, tree
    )


def pad_start(start: Start, data: Responses) -> Start:
    """Start values of as many subjects and items as padded data have."""
    theta = pad_rows(start.theta, data.num_subjects)
    return start._replace(items=pad_rows(start.items, data.num_items), theta=theta)


def cut_start(start: Start, data: Responses) -> Start:
    """Start values without those of padding."""
    cut = lambda x, count: jax.device_put(np.asarray(x)[:count])
    items = jax.tree.map(lambda x: cut(x, data.num_items), start.items)
    theta = None if start.theta is None else cut(start.theta, data.num_subjects)
    return start._replace(items=items, theta=theta)


def _enlarged(array: Any, count: int) -> np.ndarray:
    """An array whose last row is repeated up to this many rows.

    Sorted subjects stay sorted, so that windows of nodes serve the repeated ones too.
    """
    array = np.asarray(array)
    lacking = count - len(array)
    if not lacking:
        return array
    return np.concatenate([array, np.repeat(array[-1:], lacking, axis=0)])
