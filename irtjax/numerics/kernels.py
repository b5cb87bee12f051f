"""Numerical kernels that do not depend on response models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import digamma as _digamma
from jax.scipy.special import gammaln as _gammaln
from jaxtyping import Array, Float

from irtjax.numerics.progress import in_stretches

Carry = TypeVar("Carry")
Result = TypeVar("Result")

#: Bytes of one floating-point block of the data inside a pass over it. Measured on
#: four cores at 2,211 x 12,032: 256 to 1,024 subjects a block differ by a tenth, and
#: below 200 the products become too thin.
BLOCK_BYTES = 32 * 2**20
#: Most subjects of a block on a CPU: what is computed for each at every node stays in
#: the cache. At 500,000 x 50 a pass with 167,000 subjects takes twice the time.
MOST_ROWS = 2048


def block_size_for(num_subjects: int, num_items: int, itemsize: int) -> int:
    """Subjects per block, at least 256 and about `BLOCK_BYTES` in size.

    The last block is as full as the others: a nearly empty one would cost as much.
    """
    most = MOST_ROWS if jax.default_backend() == "cpu" else num_subjects
    rows = min(max(256, BLOCK_BYTES // max(1, num_items * itemsize)), most)
    num_blocks = -(-num_subjects // min(rows, num_subjects))
    return -(-num_subjects // num_blocks)


def scan_subject_blocks(
    body: Callable[[Carry, Array, Array], Carry],
    init: Carry,
    num_subjects: int,
    block_size: int,
    between: Array | None = None,
) -> Carry:
    """Folds `body(carry, start, is_new)` over blocks of `block_size` rows.

    The last block is moved back to end at the last row, so nothing is padded or
    copied; `is_new` `[block_size]` marks the rows that are in no earlier block.
    `between` `[2]` are the first block and the one after the last; None for all.
    """
    num_blocks = -(-num_subjects // block_size)

    def step(index, carry):
        start = jnp.minimum(index * block_size, num_subjects - block_size)
        rows = start + jnp.arange(block_size)
        return body(carry, start, rows >= index * block_size)

    if num_blocks == 1:
        return body(init, jnp.zeros((), jnp.int32), jnp.ones(block_size, bool))
    first, last = (0, num_blocks) if between is None else between
    return lax.fori_loop(first, last, step, init)


def blocks_in_stretches(
    program: Callable[..., Carry],
    empty: Callable[[], Carry],
    num_subjects: int,
    block_size: int,
    passes: int = 1,
) -> Carry:
    """`scan_subject_blocks` in a few calls, which show whoever watches the share done.

    A block is computed by the same program whether one call takes it or another.

    Args:
        program: A compiled program of the sums so far, and of the first block and the
            one after the last, passes counted through; without arguments: all blocks.
        empty: Makes the sums of no block, all zeros. It is not run.
        num_subjects: Number of rows.
        block_size: Rows of a block.
        passes: Number of passes.
    """
    num_blocks = -(-num_subjects // block_size)
    if num_blocks < 2:
        return program()

    def advance(carry: Carry, first: int, last: int) -> Carry:
        # As an array: a program for each pair of numbers would be compiled otherwise.
        carry = program(carry, jax.device_put(np.array([first, last], np.int32)))
        return jax.block_until_ready(carry)

    # By way of the host: zeros of JAX would be a program for each shape.
    zeros = lambda leaf: np.zeros(leaf.shape, leaf.dtype)
    init = jax.device_put(jax.tree.map(zeros, jax.eval_shape(empty)))
    return in_stretches(advance, init, passes * num_blocks)


def sums_in_stretches(
    program: Callable[..., tuple[Result, Carry]],
    empty: Callable[[], Carry],
    num_subjects: int,
    block_size: int,
    passes: int = 1,
) -> Result:
    """`blocks_in_stretches` of a program with a result and the sums behind it.

    Arguments are those of `blocks_in_stretches`, but the program, which is given sums
    to go on from, returns its result first. `nothing` are sums over no block.
    """

    def go_on(carry: Any = None, between: Array | None = None) -> Any:
        return program(None if carry is None else carry[1], between)

    return blocks_in_stretches(
        go_on, lambda: (None, empty()), num_subjects, block_size, passes
    )[0]


@overload
def take_block(array: Array, start: Array, size: int) -> Array: ...
@overload
def take_block(array: None, start: Array, size: int) -> None: ...
def take_block(array: Array | None, start: Array, size: int) -> Array | None:
    """Rows `start : start + size` of an array, None of None."""
    if array is None or array.shape[0] == size:
        return array
    return lax.dynamic_slice_in_dim(array, start, size, 0)


def put_block(array: Array, block: Array, start: Array) -> Array:
    """The array with rows from `start` replaced."""
    return lax.dynamic_update_slice_in_dim(array, block, start, 0)


#: Order of matrices up to which solves are written out: quicker to run, not to compile.
WRITTEN_OUT = 4
#: The same of roots; see `inverse_cholesky`.
MOST_WRITTEN = 6


def positive_definite_solve(matrix: Array, vector: Array) -> tuple[Array, Array]:
    """Solves many small systems, bending an indefinite matrix to a positive one.

    From matrices `[..., p, p]` and vectors `[..., p]`: the solutions and the pivots, by
    an LDL' factorisation written out for small p. A pivot that is not clearly positive
    becomes its size, or a small multiple of the diagonal's scale, so that the solution
    ascends along a gradient: the modified Cholesky of Gill and Murray.
    """
    size = matrix.shape[-1]
    scale = jnp.max(jnp.abs(jnp.diagonal(matrix, axis1=-2, axis2=-1)), axis=-1)
    floor = jnp.maximum(scale * 1e-6, jnp.finfo(matrix.dtype).tiny * 1e6)
    if size > WRITTEN_OUT:
        return _looped_solve(matrix, vector, floor)
    lower: dict[tuple[int, int], Array] = {}
    pivots: list[Array] = []
    for column in range(size):
        pivot = matrix[..., column, column]
        for k in range(column):
            pivot = pivot - lower[column, k] ** 2 * pivots[k]
        pivots.append(jnp.maximum(jnp.abs(pivot), floor))
        for row in range(column + 1, size):
            entry = matrix[..., row, column]
            for k in range(column):
                entry = entry - lower[row, k] * lower[column, k] * pivots[k]
            lower[row, column] = entry / pivots[column]
    solution = [vector[..., row] for row in range(size)]
    for row in range(size):
        for k in range(row):
            solution[row] = solution[row] - lower[row, k] * solution[k]
    solution = [x / pivot for x, pivot in zip(solution, pivots, strict=True)]
    for row in reversed(range(size)):
        for k in range(row + 1, size):
            solution[row] = solution[row] - lower[k, row] * solution[k]
    return jnp.stack(solution, -1), jnp.stack(pivots, -1)


def _looped_solve(matrix: Array, vector: Array, floor: Array) -> tuple[Array, Array]:
    """`positive_definite_solve` by a loop over columns: a program of any p is small."""
    size = matrix.shape[-1]
    places = jnp.arange(size)
    rows = jnp.broadcast_to(matrix, (*vector.shape[:-1], size, size))
    rows = jnp.concatenate([rows, vector[..., None]], axis=-1)
    floor = jnp.broadcast_to(floor, vector.shape[:-1])

    def eliminate(k, carry):
        rows, pivots = carry
        row = lax.dynamic_index_in_dim(rows, k, axis=-2, keepdims=False)
        pivot = jnp.maximum(jnp.abs(jnp.take(row, k, axis=-1)), floor)
        column = jnp.where(places > k, jnp.take(rows, k, axis=-1), 0)
        share = column / pivot[..., None]
        rows = rows - share[..., None] * row[..., None, :]
        return rows, pivots + jnp.where(places == k, pivot[..., None], 0)

    rows, pivots = lax.fori_loop(0, size, eliminate, (rows, jnp.zeros_like(vector)))
    upper, right = rows[..., :size], rows[..., size]

    def substitute(step, solution):
        k = size - 1 - step
        row = lax.dynamic_index_in_dim(upper, k, axis=-2, keepdims=False)
        solved = jnp.sum(jnp.where(places > k, row * solution, 0), axis=-1)
        value = (jnp.take(right, k, axis=-1) - solved) / jnp.take(pivots, k, axis=-1)
        return solution + jnp.where(places == k, value[..., None], 0)

    return lax.fori_loop(0, size, substitute, jnp.zeros_like(vector)), pivots


def inverse_cholesky(matrix: Float[Array, "*batch p p"]) -> Array:
    """Lower triangular L^-1 of many small M = L L', NaN where M is not positive.

    Written out for small p like `positive_definite_solve`. LAPACK in batches is
    slower at this size, and under vmap two independent batches at once can wait for
    each other forever on a CPU with as many cores (jaxlib 0.10.2).
    """
    size = matrix.shape[-1]
    lower: dict[tuple[int, int], Array] = {}
    inverse: dict[tuple[int, int], Array] = {}
    for row in range(size):
        for column in range(row + 1):
            entry = matrix[..., row, column]
            for k in range(column):
                entry = entry - lower[row, k] * lower[column, k]
            pivot = jnp.sqrt(entry) if row == column else lower[column, column]
            lower[row, column] = pivot if row == column else entry / pivot
        inverse[row, row] = 1 / lower[row, row]
        for column in range(row):
            total = sum(lower[row, k] * inverse[k, column] for k in range(column, row))
            inverse[row, column] = -total * inverse[row, row]
    zero, places = jnp.zeros_like(matrix[..., 0, 0]), np.ndindex(size, size)
    entries = jnp.stack([inverse.get(at, zero) for at in places], -1)
    return entries.reshape(matrix.shape)


def inverse_of(matrix: Float[Array, "*batch p p"]) -> tuple[Array, Array]:
    """Inverses and log determinants of small positive definite matrices."""
    unit = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    shape = matrix.shape[:-1]
    solve = lambda row: positive_definite_solve(matrix, jnp.broadcast_to(row, shape))
    inverse, pivots = jax.vmap(solve, out_axes=-1)(unit)
    return inverse, jnp.sum(jnp.log(pivots[..., 0]), axis=-1)


def inverse_root(matrix: Float[Array, "p p"]) -> Array:
    """L^-1 of L L', NaN where a matrix is not positive definite."""
    if matrix.shape[-1] <= MOST_WRITTEN:
        return inverse_cholesky(matrix)
    unit = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    root = jnp.linalg.cholesky(matrix)
    return jax.scipy.linalg.solve_triangular(root, unit, lower=True)


def after(value: Array, other: Array) -> Array:
    """The value, computed after `other`: a real data dependence.

    For independent batches of LAPACK calls (see `inverse_cholesky`); XLA drops
    optimisation barriers before it schedules work on a CPU.
    """
    return value + (0 * jnp.nan_to_num(other.ravel()[0])).astype(value.dtype)


def symmetric_eigen_2x2(matrix: Float[Array, "2 2"]) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors (columns) of a 2 x 2 matrix, without LAPACK."""
    (a, b), (_, c) = matrix
    angle = 0.5 * jnp.arctan2(2 * b, a - c)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    vectors = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
    middle, half = (a + c) / 2, jnp.hypot((a - c) / 2, b)
    return jnp.stack([middle + half, middle - half]), vectors


def small_symmetric_eigen(matrix: Float[Array, "p p"]) -> tuple[Array, Array]:
    """Eigenvalues, in no order, and eigenvectors (columns), without LAPACK.

    Jacobi's rotations, each of which sets one off-diagonal entry to 0; five sweeps
    suffice for p to 4 in double precision. For batches use `vmap`.
    """
    size = matrix.shape[-1]

    def sweep(_, state):
        matrix, vectors = state
        for i in range(size):
            for j in range(i + 1, size):
                gap = matrix[j, j] - matrix[i, i]
                angle = 0.5 * jnp.arctan2(2 * matrix[i, j], gap)
                cos, sin = jnp.cos(angle), jnp.sin(angle)
                turn = jnp.eye(size, dtype=matrix.dtype)
                turn = turn.at[jnp.array([i, j]), jnp.array([i, j])].set(cos)
                turn = turn.at[i, j].set(sin).at[j, i].set(-sin)
                matrix, vectors = turn.T @ matrix @ turn, vectors @ turn
        return matrix, vectors

    first = (matrix, jnp.eye(size, dtype=matrix.dtype))
    matrix, vectors = lax.fori_loop(0, 5, sweep, first)
    return jnp.diagonal(matrix), vectors


def derivatives_of(
    function: Callable[[Array], Array],
) -> Callable[[Array], tuple[Array, Array, Array]]:
    """A function with the value, gradient and Hessian of a scalar function of a vector.

    In one pass: apart, programs are as long as the three together.

    >>> derivatives_of(lambda x: x @ x)(jnp.array([1.0, 2.0]))[2].tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    def gradient_of(point):
        value, gradient = jax.value_and_grad(function)(point)
        return gradient, (value, gradient)

    def derivatives(point):
        hessian, (value, gradient) = jax.jacfwd(gradient_of, has_aux=True)(point)
        return value, gradient, hessian

    return derivatives


def equal_nodes(low: float, high: float, num_nodes: int) -> np.ndarray:
    """Equally spaced quadrature nodes, `[num_nodes]`, as a host array."""
    return np.linspace(low, high, num_nodes)


def normal_log_weights(nodes: Float[Array, "nodes *dims"]) -> Float[Array, " nodes"]:
    """Standard normal log weights on nodes, normalised to sum to one.

    Of several abilities nodes are `[nodes, dims]`, and abilities uncorrelated.

    On equally spaced nodes this is the trapezoid rule, whose error for a normal
    integrand of standard deviation s and spacing h is about 2 exp(-2 (pi s / h)^2):
    1.4 % at h = 2s, 5e-9 at h = s.
    """
    square = nodes**2
    return jax.nn.log_softmax(-0.5 * (square if nodes.ndim == 1 else square.sum(1)))


@jax.custom_jvp
def softplus(x: Array) -> Array:
    """log(1 + e^x), with the logistic function as derivative.

    JAX's own derivative, for two arguments that may be infinite, was in higher orders a
    third of the program of a multilevel fit.
    """
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _softplus_jvp(at, move):
    """The derivative of softplus is the logistic function."""
    return softplus(at[0]), lax.logistic(at[0]) * move[0]


def log_sigmoid(x: Array) -> Array:
    """Log of the logistic function; see `softplus`."""
    return -softplus(-x)


@jax.custom_jvp
def log_add(a: Array, b: Array) -> Array:
    """log(e^a + e^b) of finite arrays of one shape, with short derivatives."""
    return jnp.maximum(a, b) + jnp.log1p(jnp.exp(-jnp.abs(a - b)))


@log_add.defjvp
def _log_add_jvp(at, move):
    """The derivatives of log(e^a + e^b) are the shares of the two terms."""
    (a, b), (along_a, along_b) = at, move
    share = lax.logistic(a - b) * along_a + lax.logistic(b - a) * along_b
    return log_add(a, b), share


#: Bernoulli numbers of the asymptotic series of the trigamma function.
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)


def trigamma(x: Array) -> Array:
    """Second derivative of log Gamma, to 1e-13, for x > 0.

    Eight steps of its recurrence and an asymptotic series: plain arithmetic, where
    `polygamma` is a general zeta function and took most of the time of a fit.
    """
    total = sum(1 / (x + k) ** 2 for k in range(1, 8)) + 1 / x**2
    inverse = 1 / (x + 8)
    square, power = inverse**2, inverse**3
    total = total + inverse + square / 2
    for number in _TRIGAMMA:
        total = total + number * power
        power = power * square
    return total


@jax.custom_jvp
def digamma(x: Array) -> Array:
    """First derivative of log Gamma, with `trigamma` as its own."""
    return _digamma(x)


@jax.custom_jvp
def gammaln(x: Array) -> Array:
    """Logarithm of Gamma, with `digamma` as derivative."""
    return _gammaln(x)


digamma.defjvp(lambda at, move: (digamma(at[0]), trigamma(at[0]) * move[0]))
gammaln.defjvp(lambda at, move: (gammaln(at[0]), digamma(at[0]) * move[0]))


def weigh_rows(rows: Array, weight: Array | None) -> Array:
    """Rows multiplied by their weights; None counts as 1 each."""
    if weight is None:
        return rows
    return rows * weight.astype(rows.dtype).reshape(-1, *[1] * (rows.ndim - 1))
