"""Bounds of MM over observed cells in sorted order, by segment sums.

Pure functions of arrays whose only fixed shapes are the numbers of cells, subjects and
items: cells may be traced, so that `jax.vmap` runs over other cells as well as over
weights. The fits of `irtjax.fit` have `sparse`, which takes less time
(docs/evidence/sparse-sums.md) and needs the cells before compilation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Num

from irtjax.estimators.joint.bound import BilinearParameters, factors_of
from irtjax.estimators.joint.cells import AbstractCells, cells_of
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.precision import full_precision


class ObservedCells(NamedTuple):
    """Observed cells in the order of subjects, and their order by item.

    Attributes:
        subject: Position of the subject of each cell, ascending.
        item: Position of its item.
        value: Its response.
        order: The place of each cell in the order given.
        by_item: The transpose: places of the cells in the order of items.
    """

    subject: Int[Array, " cells"]
    item: Int[Array, " cells"]
    value: Num[Array, " cells"]
    order: Int[Array, " cells"]
    by_item: Int[Array, " cells"]


class CellBounds(NamedTuple):
    """Quadratic bounds of the log-likelihood in the abilities and in the items.

    Near the point the log-likelihood is at least its value there plus gradient times
    step less half of step' curvature step.

    Attributes:
        log_likelihood: Of each subject, in nats.
        subject_gradient: In theta_i.
        subject_curvature: In theta_i.
        item_gradient: In (d_j, a_j), the intercept first.
        item_curvature: In (d_j, a_j).
    """

    log_likelihood: Float[Array, " subjects"]
    subject_gradient: Float[Array, "subjects dims"]
    subject_curvature: Float[Array, "subjects dims dims"]
    item_gradient: Float[Array, "items p"]
    item_curvature: Float[Array, "items p p"]


def observed_cells(
    subjects: Int[Array, " cells"],
    items: Int[Array, " cells"],
    values: Num[Array, " cells"],
) -> ObservedCells:
    """The observed cells of a sparse matrix for `cell_bounds`, in any order.

    Args:
        subjects: Position of the subject of each cell.
        items: Position of its item.
        values: Its response. Two responses of a cell are two cells.

    Returns:
        The cells sorted by subject, and the permutation that sorts them by item.

    Raises:
        ValueError: If the arrays differ in length.

    >>> cells = observed_cells(*map(jnp.array, ([1, 0, 1], [0, 2, 1], [1, 0, 1])))
    >>> cells.subject.tolist(), cells.item.tolist(), cells.by_item.tolist()
    ([0, 1, 1], [2, 0, 1], [1, 2, 0])
    """
    arrays = tuple(map(jnp.asarray, (subjects, items, values)))
    if any(x.shape != arrays[0].shape or x.ndim != 1 for x in arrays):
        shapes = ", ".join(str(x.shape) for x in arrays)
        raise ValueError(f"subjects, items and values have shapes {shapes}, not one")
    subject, item, value = arrays
    order = jnp.argsort(subject, stable=True)
    item = item[order]
    by_item = jnp.argsort(item, stable=True)
    return ObservedCells(subject[order], item, value[order], order, by_item)


@full_precision
def cell_bounds(
    model: Model,
    items: Items,
    theta: Float[Array, "subjects *dims"],
    cells: ObservedCells,
    *,
    temperature: Array | float = 1.0,
    curvature: str = "uniform",
    cell_weight: Float[Array, " cells"] | None = None,
    subject_weight: Float[Array, " subjects"] | None = None,
    item_weight: Float[Array, " items"] | None = None,
) -> CellBounds:
    """The bounds of `mm_surrogate` in abilities and in items, from observed cells.

    Time and memory are proportional to the number of cells (cBMM, appendix A.4). With r
    the slope of log p in eta / s, L the curvature (see `mm_surrogate`), z_i = (1,
    theta_i) and c, v, w the weights of cells, items and subjects, sums over the cells
    of each subject and of each item:

        subjects: gradient sum c v r a_j / s,  curvature sum c v L a_j a_j' / s^2,
        items:    gradient sum c w r z_i / s,  curvature sum c w L z_i z_i' / s^2.

    A step of MM is gradient over curvature, priors added to both.

    Args:
        model: A binary model without asymptotes.
        items: Item records, discriminations `[items]` or `[items, dims]`.
        theta: Abilities, `[subjects]` or `[subjects, dims]`.
        cells: `observed_cells`.
        temperature: s, for P = F(eta / s).
        curvature: "uniform", L of all cells, or "cell".
        cell_weight: Number of copies of each cell, in the order that `observed_cells`
            was given.
        subject_weight: Number of copies of each subject, in the sums of items.
        item_weight: Number of copies of each item, in the sums of subjects.

    Returns:
        Log-likelihoods `[subjects]` in nats, gradients and curvatures.

    Raises:
        ValueError: If MM does not fit the model, or it has several intercepts.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model = two_parameter()
    >>> items = model.family.Items(*(jnp.full(3, x) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> cells = observed_cells(*map(jnp.array, ([1, 0, 1], [0, 2, 1], [1, 0, 1])))
    >>> bounds = jax.jit(cell_bounds)(model, items, jnp.zeros(2), cells)
    >>> bounds.log_likelihood.round(3).tolist()
    [-0.693, -1.386]
    >>> bounds.item_gradient[:, 0].tolist()
    [0.5, 0.5, -0.5]
    """
    kind = cells_of(model, curvature)
    if kind.num_cuts:
        raise ValueError(
            f"cell_bounds is for right and wrong responses, not {model.name!r}"
        )
    point = factors_of(kind, items, theta)
    for name, weight, wanted in (
        ("cell_weight", cell_weight, cells.value),
        ("subject_weight", subject_weight, point.theta[:, 0]),
        ("item_weight", item_weight, point.intercept),
    ):
        if weight is not None and jnp.shape(weight) != wanted.shape:
            raise ValueError(
                f"{name} has shape {jnp.shape(weight)}, not {wanted.shape}"
            )
    if cell_weight is not None:
        cell_weight = cell_weight[cells.order]
    weights = cell_weight, subject_weight, item_weight
    return _bounds(cells, point, temperature, kind, *weights)


def _bounds(
    data: ObservedCells,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells,
    cell_weight: Array | None,
    subject_weight: Array | None,
    item_weight: Array | None,
) -> CellBounds:
    """The bounds of `bound.sweep`; `cell_weight` is in the order of `data`."""
    theta, slope = factors.theta, factors.discrimination
    dtype = theta.dtype
    eta = jnp.sum(theta[data.subject] * slope[data.item], axis=1)
    eta = (eta + factors.intercept[data.item]) / temperature
    value, one = data.value.astype(dtype), jnp.ones((), dtype)
    terms = cells.cell(value, one, eta, None, True)
    weight = one if cell_weight is None else cell_weight.astype(dtype)
    bend = one if terms.bend is None else terms.bend
    bend = jnp.broadcast_to(weight * bend * cells.curvature / temperature**2, eta.shape)
    pull = weight * terms.slope / temperature
    by_subject = _of(item_weight, data.item, dtype)
    sums = _Sums(data.subject, len(theta))
    row = slope[data.item]
    log_lik = sums(by_subject * weight * terms.log_prob)
    subjects = sums.bound(by_subject * pull, by_subject * bend, row)
    by_item = _of(subject_weight, data.subject, dtype)
    design = jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], axis=1)
    pull, bend, row = (
        x[data.by_item] for x in (by_item * pull, by_item * bend, design[data.subject])
    )
    items = _Sums(data.item[data.by_item], len(slope)).bound(pull, bend, row)
    return CellBounds(log_lik, *subjects, *items)


def _of(weight: Array | None, index: Array, dtype) -> Array:
    """The weight of each cell's row, 1 for None."""
    return jnp.ones((), dtype) if weight is None else weight.astype(dtype)[index]


class _Sums(NamedTuple):
    """Sums over the cells of each of `num` rows, whose cells are consecutive."""

    row: Array
    num: int

    def __call__(self, cell: Array) -> Array:
        sums = jax.ops.segment_sum
        return sums(cell, self.row, self.num, indices_are_sorted=True)

    def bound(self, pull: Array, bend: Array, row: Array) -> tuple[Array, Array]:
        """Gradient and curvature: sums of pull * row and of bend * row row'."""
        columns, width = row.T, row.shape[1]
        gradient = lax.map(lambda column: self(pull * column), columns).T
        # A pair of columns at a time: no outer product of each cell exists.
        first, second = np.tril_indices(width)
        pair = lambda at: self(bend * columns[at[0]] * columns[at[1]])
        products = lax.map(pair, (jnp.asarray(first), jnp.asarray(second)))
        curvature = jnp.zeros((self.num, width, width), products.dtype)
        curvature = curvature.at[:, first, second].set(products.T)
        return gradient, curvature.at[:, second, first].set(products.T)
