r"""Mean responses adjusted for items, with errors of their differences: no model.

Responses are y_ij = a_i + b_j + e_ij, with a_i of subjects and b_j of items by least
squares. Of complete responses a_i - a_k is the difference of two accuracies; else items
that the others answered too count for what they show. With L = diag(n_i) - M C^-1 M'
for the mask M and the numbers C of responses to an item, and the residuals e_k of
cluster k (each item, or each benchmark, as in `ranking.accuracy`),

    a = L^+ sum_j (y_j - mean of item j),    V = K / (K - 1) L^+ (sum_k e_k e_k') L^+.

Where benchmarks count as a sample of others (`variance_between`), V has tau^2
sum_b s_ib^2 more, with the shares s_ib of a subject's responses and the variance tau^2
of its residual means by benchmark, estimated by moments over all subjects.

Of complete responses the error sqrt(V_ii + V_kk - 2 V_ik) of a difference is exactly
that of the paired test. Normal tests take the place of Student's t: errors are enlarged
by the ratio of the two quantiles where one subject of N differs from all others, which
is level 2 / N of Benjamini and Hochberg's procedure, and the level itself for N = 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from irtjax.data.sparse_table import SparseCells
from irtjax.ranking.accuracy import clusters_of
from irtjax.ranking.pairs import leading_loadings

#: Subjects up to which errors have a covariance, and up to which all of it is kept.
MOST_SUBJECTS, MOST_KEPT = 2000, 300
#: Directions of it that are kept beyond.
KEPT = 16
#: Rounds of alternating means beyond `MOST_SUBJECTS`.
ROUNDS = 20
#: Cells of a block of items.
BLOCK_CELLS = 2**22


class PairedMeans(NamedTuple):
    """Adjusted means, 0 on average, and their errors, each array by subject.

    `shared` are loadings of the part of the errors that subjects share. `factor` is how
    much the errors are enlarged for normal tests, and `met` the number of clusters that
    each is over.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    shared: np.ndarray
    factor: np.ndarray
    met: np.ndarray


def paired_means(
    values: np.ndarray | SparseCells,
    exposure: np.ndarray | None = None,
    benchmarks: np.ndarray | None = None,
    *,
    top: float = 1.0,
    level: float = 0.95,
) -> PairedMeans:
    """Adjusted mean responses with errors over items; see the module.

    `values` are `[subjects, items]` responses from 0 to `top`, 0 where missing, or
    observed cells; `exposure` is a mask or the numbers of trials; `benchmarks` are
    names, `[items]`.

    >>> means = paired_means(np.array([[1, 1, 1, 0], [0, 1, 0, 0]]))
    >>> gap, together = means.mean[0] - means.mean[1], means.shared @ means.shared.T
    >>> own = means.standard_error**2
    >>> z = gap / np.sqrt(own.sum() - 2 * together[0, 1])
    >>> round(float(gap), 3), round(float(z), 3)  # Of 3 degrees of freedom t = 1.732.
    (0.5, 1.067)
    """
    cells = _Cells(values, exposure)
    cluster, part = clusters_of(benchmarks), np.zeros(cells.shape[0], int)
    if cells.shape[0] <= MOST_SUBJECTS:
        mean, covariance, met, part = _together(cells, cluster)
    else:
        mean, covariance, met = _apart(cells)
    enlarged = factor = quantile_ratio(met, cells.shape[0], level)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without two clusters there is no error; without variation, one that differs.
        factor = np.where(met > 1, factor * np.sqrt(met / (met - 1)), 0.0)
        least = np.where(met > 1, 0.5 * (top / met) ** 2, top**2)
    if covariance.ndim == 1:
        variance = covariance * factor**2
        shared = np.zeros((len(mean), 0))
    else:
        covariance = covariance * np.outer(factor, factor)
        if part.any():
            # Without a common item, directly or by others, there is no difference.
            covariance += top**2 * (part[:, None] == part)
        variance = np.diagonal(covariance).copy()
        shared = _loadings(covariance)
    variance = np.where(variance > 1e-12 * top**2, variance, least)
    return PairedMeans(mean, np.sqrt(variance), shared, enlarged, met)


def variance_between(
    values: np.ndarray | SparseCells,
    exposure: np.ndarray | None,
    benchmarks: np.ndarray,
    mean: np.ndarray,
) -> np.ndarray:
    """What the choice of benchmarks adds to the variances of adjusted means.

    `mean` are these means; the others as in `paired_means`. Of residual sums x_ib of
    n_ib responses, x_ib^2 exceeds their own variance by tau^2 (n_ib^2 - n_ib) (1 - 2
    s_ib + sum_c s_ic^2) (1 - 1 / subjects).

    >>> rng = np.random.default_rng(0)
    >>> skill = np.repeat(rng.normal(0, 0.1, (200, 8)), 50, axis=1)
    >>> names = np.repeat(np.arange(8), 50)
    >>> values = (rng.random(skill.shape) < 0.5 + skill).astype(np.int8)
    >>> mean = values.mean(axis=1)
    >>> variance = variance_between(values, None, names, mean - mean.mean())
    >>> bool(abs(variance[0] / (0.1**2 / 8) - 1) < 0.2)
    True
    """
    names, label = np.unique(np.asarray(benchmarks), return_inverse=True)
    cells = _Cells(values, exposure)
    sums, own, number = np.zeros((3, cells.shape[0], len(names)))
    for columns, y, m in cells.blocks():
        each = np.maximum(m.sum(axis=0), 1)
        left = m * (y - mean[:, None])
        left -= m * (left.sum(axis=0) / each)
        onto = np.eye(len(names))[label[columns]]
        sums, own, number = sums + left @ onto, own + left**2 @ onto, number + m @ onto
    share = number / np.maximum(number.sum(axis=1, keepdims=True), 1)
    square = np.sum(share**2, axis=1)
    room = (number**2 - number) * (1 - 2 * share + square[:, None])
    excess = np.sum(sums**2 - own * (1 - share))
    room = np.sum(room) * (1 - 1 / cells.shape[0])
    return max(float(excess / room), 0.0) * square if room > 0 else 0.0 * square


class _Cells:
    """Responses per trial with their mask, in blocks of items."""

    def __init__(self, values: np.ndarray | SparseCells, exposure) -> None:
        self.values, self.exposure, self.shape = values, exposure, values.shape

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Items of a block, their values and mask, both in double precision."""
        width = max(1, BLOCK_CELLS // max(self.shape[0], 1))
        for start in range(0, self.shape[1], width):
            part = slice(start, min(start + width, self.shape[1]))
            if isinstance(self.values, SparseCells):
                y, m = self.values.select(None, np.arange(*part.indices(1 << 62))).dense
                yield part, np.asarray(y, float), np.asarray(m, float)
                continue
            y = np.asarray(self.values[:, part], float)
            if self.exposure is None:
                yield part, y, np.ones_like(y)
                continue
            trials = np.asarray(self.exposure[:, part], float)
            yield part, y / np.maximum(trials, 1), (trials > 0).astype(float)


def _together(cells: _Cells, cluster: np.ndarray | None):
    """Means, covariance up to factors, clusters that compare each subject, and parts.

    `cluster` is the number of each item's cluster; None where each item is one.
    """
    size = cells.shape[0]
    laplacian, total = np.zeros((size, size)), np.zeros(size)
    for _, y, m in cells.blocks():
        each = np.maximum(m.sum(axis=0), 1)
        laplacian += np.diag(m.sum(axis=1)) - (m / each) @ m.T
        total += (y - m * (y.sum(axis=0) / each)).sum(axis=1)
    inverse, part = _inverse(laplacian)
    mean = inverse @ total
    outer, met = np.zeros((size, size)), np.zeros(size)
    sums, seen = np.zeros((2, size, 0 if cluster is None else cluster.max() + 1))
    for columns, y, m in cells.blocks():
        each = np.maximum(m.sum(axis=0), 1)
        left = m * (y - mean[:, None])
        left -= m * (left.sum(axis=0) / each)
        shown = m * (m.sum(axis=0) > 1)
        if cluster is None:
            outer += left @ left.T
            met += shown.sum(axis=1)
        else:
            np.add.at(sums.T, cluster[columns], left.T)
            np.add.at(seen.T, cluster[columns], shown.T)
    if cluster is not None:
        outer, met = sums @ sums.T, (seen > 0).sum(axis=1).astype(float)
    return mean, inverse @ outer @ inverse, met, part


def _inverse(laplacian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Its pseudo-inverse, and a number for each part without links to another."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, part = connected_components(csr_array(np.abs(laplacian) > 1e-12), directed=False)
    # With a link among all of a part the matrix has an inverse, equal on differences.
    size = np.bincount(part)[part]
    join = (part[:, None] == part) / size
    return np.linalg.inv(laplacian + join) - join, part


def _apart(cells: _Cells):
    """`_together` of many subjects, as if items were known: variances alone."""
    size, width = cells.shape
    sparse = cells.values if isinstance(cells.values, SparseCells) else None
    mean, place = np.zeros(size), np.zeros(width)
    number, met, square = np.zeros(size), np.zeros(size), np.zeros(size)
    if sparse is not None:
        number, each = sparse.count(1), np.maximum(sparse.count(0), 1)
        row, column = sparse.row, sparse.column
        for _ in range(ROUNDS):
            place = sparse.sum(0, sparse.value - mean[row]) / each
            mean = sparse.sum(1, sparse.value - place[column]) / np.maximum(number, 1)
            mean -= mean.mean()
        square = sparse.sum(1, (sparse.value - mean[row] - place[column]) ** 2)
        met = sparse.sum(1, (each > 1)[column].astype(float))
        return mean, square / np.maximum(number, 1) ** 2, met
    rounds = 1 if cells.exposure is None else ROUNDS
    for turn in range(rounds + 1):
        total, number = np.zeros(size), np.zeros(size)
        for columns, y, m in cells.blocks():
            each = m.sum(axis=0)
            left = m * (y - mean[:, None])
            place[columns] = left.sum(axis=0) / np.maximum(each, 1)
            left = m * (y - place[columns])
            total, number = total + left.sum(axis=1), number + m.sum(axis=1)
            if turn == rounds:
                square += (m * (left - mean[:, None]) ** 2).sum(axis=1)
                met += (m * (each > 1)).sum(axis=1)
        if turn < rounds:
            mean = total / np.maximum(number, 1)
            mean -= mean.mean()
    return mean, square / np.maximum(number, 1) ** 2, met


def quantile_ratio(met: np.ndarray, subjects: int, level: float) -> np.ndarray:
    """Quantiles of Student's t over the normal's, of one degree less than `met`."""
    tail = (1 - level) / max(subjects, 2)
    degrees, place = np.unique(np.maximum(met - 1, 1), return_inverse=True)
    return (stdtrit(degrees, 1 - tail) / ndtri(1 - tail))[place]


def _loadings(covariance: np.ndarray) -> np.ndarray:
    """Loadings of all of a covariance, of many subjects the leading ones."""
    values, vectors = np.linalg.eigh(covariance)
    whole = vectors * np.sqrt(np.maximum(values, 0))
    if len(values) <= MOST_KEPT:
        return whole[:, values > 1e-14 * max(values[-1], 0)]
    return leading_loadings(whole, KEPT)
