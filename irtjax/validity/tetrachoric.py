"""Tetrachoric correlations: of the normal variables behind right and wrong."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from irtjax.numerics.programs import stored_jit

#: Nodes of the integral over the angle; exact to 1e-9 up to |r| = 0.99.
_NODES = 48
#: Steps of a search at most, and the change of r at which it ends. Newton steps square
#: the error, so that it is far below this one.
_STEPS, _CHANGE = 40, 1e-9
#: Tables of a call: all calls are one program.
_TABLES = 2048
#: Largest size of a correlation that is looked for.
LARGEST = 0.995


@stored_jit
def tetrachoric_of_counts(
    both: Float[Array, "*pairs"],
    first: Float[Array, "*pairs"],
    second: Float[Array, "*pairs"],
    count: Float[Array, "*pairs"],
) -> Float[Array, "*pairs"]:
    """Tetrachoric correlation of each 2 x 2 table.

    The r for which a standard bivariate normal with the thresholds of the two margins
    has the observed share above both: Phi2(h, k, r) = both / count, with
    Phi2(h, k, r) = Phi(h) Phi(k) + (1 / 2 pi) int_0^{asin r} exp(-(h^2 + k^2 -
    2 h k sin t) / (2 cos^2 t)) dt (Sheppard 1900). It is found for all tables at
    once by Newton's method in atanh(r), since the derivative in r is the density at
    (h, k). A step out of the bracket halves the bracket. A table with an empty cell has
    0.5 added to each cell. The numbers are of subjects right on both items, on the
    first, on the second, and of all who answered both. NaN where a margin has no
    variation.

    >>> table = (jnp.array(x) for x in (40.0, 50.0, 50.0, 100.0))
    >>> round(float(tetrachoric_of_counts(*table)), 4)
    0.809
    """
    fixed = (first > 0) & (first < count) & (second > 0) & (second < count)
    neither = count - first - second + both
    cells = jnp.stack([both, first - both, second - both, neither])
    empty = jnp.where(jnp.min(cells, axis=0) < 0.5, 0.5, 0.0)
    total = jnp.where(fixed, count + 4 * empty, 1.0)
    share = jnp.where(fixed, (both + empty) / total, 0.25)
    h = ndtri(jnp.where(fixed, (first + 2 * empty) / total, 0.5))
    k = ndtri(jnp.where(fixed, (second + 2 * empty) / total, 0.5))
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes = jnp.asarray((points + 1) / 2, h.dtype), jnp.asarray(weights / 2, h.dtype)

    apart, twice = h**2 + k**2, 2 * h * k

    def above(r):
        """Chance of both above their thresholds at a correlation."""
        end = jnp.arcsin(r)

        def add(total, node):
            point, weight = node
            sine = jnp.sin(end * point)
            height = jnp.exp((twice * sine - apart) / (2 * (1 - sine**2)))
            return total + weight * height, None

        area, _ = jax.lax.scan(add, jnp.zeros_like(end), nodes)
        return ndtr(h) * ndtr(k) + end * area / (2 * jnp.pi)

    small = jnp.maximum(_CHANGE, 4 * jnp.finfo(h.dtype).eps)

    def step(search):
        low, high, r, change, count = search
        excess = above(r) - share
        low, high = jnp.where(excess < 0, r, low), jnp.where(excess < 0, high, r)
        residual = 1 - r**2
        height = jnp.exp((twice * r - apart) / (2 * residual))
        # The derivative in atanh(r), in which the function has less of a bend.
        slope = height * jnp.sqrt(residual) / (2 * jnp.pi)
        tiny = jnp.finfo(r.dtype).tiny
        new = jnp.tanh(jnp.arctanh(r) - excess / jnp.maximum(slope, tiny))
        within = (new >= low) & (new <= high)
        new = jnp.where(within, new, (low + high) / 2)
        # Where a search has ended, rounding must not begin it again.
        new = jnp.where(change > small, new, r)
        return low, high, new, jnp.abs(new - r), count + 1

    # Near r, by the odds ratio to the power 3/4 (Digby 1983).
    filled = jnp.where(fixed, cells + empty, 1.0)
    same, other = ((filled[i] * filled[j]) ** 0.75 for i, j in ((0, 3), (1, 2)))
    start = jnp.clip((same - other) / (same + other), -0.99, 0.99)
    ends = jnp.full_like(h, -LARGEST), jnp.full_like(h, LARGEST)
    least, most = above(ends[0]) >= share, above(ends[1]) <= share
    ended = least | most | ~fixed
    unfinished = lambda search: jnp.any(search[3] > small) & (search[4] < _STEPS)
    init = (*ends, start, jnp.where(ended, 0, jnp.inf), jnp.zeros((), jnp.int32))
    correlation = jax.lax.while_loop(unfinished, step, init)[2]
    correlation = jnp.where(least, ends[0], jnp.where(most, ends[1], correlation))
    return jnp.where(fixed, correlation, jnp.nan)


class Solved:
    """Correlations of the tables of any number of calls, each of which is solved once.

    Of few subjects many tables are equal, and those of permuted responses are again.
    """

    def __init__(self) -> None:
        self._code, self._correlation = np.empty(0, np.int64), np.empty(0)

    def of(self, num_subjects: int, *numbers: np.ndarray) -> np.ndarray:
        """Correlations of tables of at most so many subjects.

        The numbers are those of `tetrachoric_of_counts`.
        """
        both, first, second, count = numbers
        base = num_subjects + 1
        least, most = np.minimum(first, second), np.maximum(first, second)
        numbers = both, least, most, count
        tables = np.stack([x.ravel() for x in numbers]).astype(np.int64)
        if base**4 >= 2**63:  # Of so many subjects few tables are equal.
            return solve_tables(tables).reshape(both.shape)
        code, back = np.unique(
            np.ravel_multi_index(tuple(tables), (base,) * 4), return_inverse=True
        )
        new = code[~np.isin(code, self._code, assume_unique=True)]
        solutions = solve_tables(np.stack(np.unravel_index(new, (base,) * 4)))
        codes = np.concatenate([self._code, new])
        order = np.argsort(codes)
        self._code = codes[order]
        self._correlation = np.concatenate([self._correlation, solutions])[order]
        place = np.searchsorted(self._code, code)
        return self._correlation[place][back].reshape(both.shape)


def solve_tables(tables: np.ndarray) -> np.ndarray:
    """`tetrachoric_of_counts` of `[4, tables]`, some at a time."""
    parts, count = [np.empty(0)], tables.shape[1]
    # Tables of nobody have no correlation, and take no step.
    tables = np.pad(tables, ((0, 0), (0, -count % _TABLES)))
    for start in range(0, tables.shape[1], _TABLES):
        part = tables[:, start : start + _TABLES]
        both, first, second, observed = (jnp.asarray(x, float) for x in part)
        parts.append(np.asarray(tetrachoric_of_counts(both, first, second, observed)))
    return np.concatenate(parts)[:count]


def tetrachoric(table: Any, solved: Solved | None = None) -> np.ndarray:
    """Tetrachoric correlations of all pairs of items, pairwise complete.

    By `tetrachoric_of_counts`, block by block of items: `[items, items]`, symmetric,
    1 on the diagonal; NaN where an item has no variation among the subjects who
    answered both. Select items first where there are thousands.

    Args:
        table: Right and wrong responses.
        solved: What earlier calls have solved, of tables with as many subjects.

    >>> from irtjax.data import ResponseTable
    >>> pair = ResponseTable.from_arrays([[1, 1], [1, 1], [0, 0], [0, 1], [1, 0]])
    >>> tetrachoric(pair).round(2).tolist()
    [[1.0, 0.26], [0.26, 1.0]]
    """
    if table.kind != "binary":
        raise ValueError(
            f"tetrachoric correlations are of right and wrong responses, not of"
            f" {table.kind} responses"
        )
    right = table.values.astype(np.float32)
    seen = np.ones_like(right)
    if table.observed is not None:
        seen = table.observed.astype(np.float32)
    size = table.num_items
    solved = Solved() if solved is None else solved
    result = np.empty((size, size))
    width = max(1, 4_000_000 // max(size, 1))
    for start in range(0, size, width):
        rows, columns = slice(start, start + width), slice(start, size)
        # Right on both items, on the first, on the second, and answered both.
        numbers = (
            a[:, rows].T @ b[:, columns] for a in (right, seen) for b in (right, seen)
        )
        correlations = solved.of(len(right), *numbers)
        result[rows, columns], result[columns, rows] = correlations, correlations.T
    np.fill_diagonal(result, 1.0)
    return result
