"""Small data padded to a few sizes, so that fits of other data share their programs.

JAX compiles a program for each shape, which takes far longer than a fit of small data.
Subjects and items are repeated with weight 0 up to the next of four sizes per power of
two. Repeated items are fixed: they add nothing to a sum, and no parameter.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.likelihood.problem import Problem, Start
from irtjax.models.model import Model
from irtjax.numerics.programs import FEW_NUMBERS

#: The arrays of `Responses` that are padded: by cell, by subject and by item.
_CELLS, _SUBJECTS = ("values", "observed", "trials"), ("subject_weight", "evidence")


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

    Large data stay as they are: there the compilation takes a small part of the time.
    So do data of scores, lengths and common parameters, which have terms that weights
    do not reach. Not for use under jit.
    """
    if isinstance(data, SparseResponses):
        return model, data, np.arange(data.num_items)
    (rows, is_row), (columns, is_column) = map(_places, data.values.shape)
    plain = model.family.num_categories > 0 and not model.family.common
    if not plain or model.lengths is not None or data.values.size > FEW_NUMBERS:
        return model, data, np.arange(data.num_items)
    found: dict[str, Any] = {}
    for name in (*_CELLS, *_SUBJECTS, "item_weight"):
        array = getattr(data, name)
        if array is not None:
            array = np.asarray(array)
            array = array[columns if name == "item_weight" else rows]
            found[name] = array[:, columns] if name in _CELLS else array
    for name, kept in (("subject_weight", is_row), ("item_weight", is_column)):
        found[name] = np.where(kept, found.get(name, 1.0), 0.0).astype(dtype)
    # `asarray` compiles a program for each shape, `array` does not.
    arrays: dict[str, Any] = {name: jnp.array(array) for name, array in found.items()}
    model = dataclasses.replace(model, family=model.family.of_items(columns))
    return model, Responses(**arrays), columns


def pad_problem(problem: Problem, dtype: Any) -> Problem:
    """A problem padded as `pad_responses` does, with repeated items fixed."""
    model, data, columns = pad_responses(problem.model, problem.data, dtype)
    if data is problem.data:
        return problem
    kept = np.arange(len(columns))[:, None] < problem.data.num_items
    free = jnp.array(np.asarray(problem.free)[columns] & kept)
    return dataclasses.replace(problem, model=model, data=data, free=free)


def pad_rows(tree: Any, count: int) -> Any:
    """Arrays whose first rows are repeated up to this many rows."""

    def repeated(array):
        lacking = count - len(array)
        if not lacking:
            return array
        array = np.asarray(array)
        return jnp.array(np.concatenate([array, np.repeat(array[:1], lacking, 0)]))

    return jax.tree.map(repeated, tree)


def pad_start(start: Start, data: Responses) -> Start:
    """Start values of as many subjects and items as padded data have."""
    theta = pad_rows(start.theta, data.num_subjects)
    return start._replace(items=pad_rows(start.items, data.num_items), theta=theta)


def cut_start(start: Start, data: Responses) -> Start:
    """Start values without those of padding."""
    items = jax.tree.map(lambda x: x[: data.num_items], start.items)
    theta = None if start.theta is None else start.theta[: data.num_subjects]
    return start._replace(items=items, theta=theta)


def _places(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each row of a padded array comes from, and which are not repeated."""
    index = np.arange(padded_size(count))
    return np.where(index < count, index, 0), index < count
