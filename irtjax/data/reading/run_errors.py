r"""What the responses of one run share: its variance, from repeated runs.

A run r of subject i shifts its responses to items of benchmark b by an effect with
variance :math:`\sigma_b^2`, of which :math:`\tau^2` is common to all benchmarks. Of the
deviations e of its responses from the means of their cells, of n trials each with
variance v, the sum over the m items of a run has

.. math:: E (\sum_j e_j)^2 = \sum_j v_j (1 - 1/n_j) + m^2 \sigma^2 (1 - 1/n)

without and with the effect, which is also in the v that are estimated. So

.. math:: \hat\sigma^2 = \sum_r [(\sum_j e_j)^2 - \sum_j \hat v_j (1 - 1/n_j)]
    / \sum_r (m_r^2 - m_r) (1 - 1/n_r),

which is the component of subjects by runs in the analysis of variance (Brennan 2001)
where the design is complete. Products of the sums of two benchmarks have no noise, and
estimate the common part as

.. math:: \hat\tau^2 = \sum_r [(\sum_b S_{rb})^2 - \sum_b S_{rb}^2]
    / \sum_r (m_r^2 - \sum_b m_{rb}^2) (1 - 1/n_r), \quad S_{rb} = \sum_{j \in b} e_j.

A component enters where sums of runs have significantly more variance than independent
responses: those of a benchmark for its own, those of all items for the common one.
Independent responses need no such term: intervals have their noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from irtjax.data.runs import RunErrors

#: Chance of an effect where runs have none.
LEVEL = 0.05
#: More labels of items are no benchmarks that a leaderboard has accuracies on.
MOST_BENCHMARKS = 60


def run_errors(
    cell: np.ndarray,
    run: np.ndarray,
    response: np.ndarray,
    shape: tuple[int, int],
    benchmarks: np.ndarray | None = None,
) -> RunErrors | None:
    """Errors of mean scores by what the responses of one run share; see the module.

    Args:
        cell: `[responses]` subject times the number of items, plus item.
        run: `[responses]` a label of the run.
        response: `[responses]` finite scores.
        shape: Subjects and items.
        benchmarks: `[items]` names; None of one benchmark, as more than
            `MOST_BENCHMARKS` are.

    Returns:
        Components as standard deviations by the root of the number of runs; None where
        no cell has two responses or runs do not differ significantly by more than
        independent responses do.

    >>> rng = np.random.default_rng(0)
    >>> run, cell = np.indices((6, 30 * 200)).reshape(2, -1)
    >>> effect = 0.2 * rng.normal(size=(6, 30))[run, cell // 200]
    >>> response = rng.normal(size=len(cell)) + effect
    >>> run_errors(cell, run, response, (30, 200)).common.round(2)[:2].tolist()
    [0.08, 0.08]
    >>> run_errors(cell, run, response - effect, (30, 200)) is None
    True
    """
    labels, run = np.unique(run, return_inverse=True)
    if benchmarks is None or len(np.unique(benchmarks)) > MOST_BENCHMARKS:
        benchmarks = np.zeros(shape[1], np.int8)
    names, code = np.unique(benchmarks, return_inverse=True)
    of_response = code.reshape(-1)[cell % shape[1]]
    group = (cell // shape[1]).astype(np.int64) * len(labels) + run.reshape(-1)
    terms, size = _terms(cell, response, shape[0] * shape[1]), (shape[0], len(labels))
    whole = _Runs(*np.zeros((len(_Runs._fields), *size)))
    squares, weights, parts = 0.0, 0.0, []
    for k in range(len(names)):
        mine = of_response == k
        columns = [np.bincount(group[mine], x[mine], np.prod(size)) for x in terms]
        part = _Runs(*(x.reshape(size) for x in columns))
        whole = _Runs(*map(np.add, whole, part))
        squares += float(np.sum(part.deviation**2))
        weights += float(np.sum(part.items * part.share))
        parts.append((part.variance, part.significant, part.number))
    common = whole.variance if whole.significant else 0.0
    if common and len(names) > 1:
        products = float(np.sum(whole.deviation**2)) - squares
        weights = float(np.sum(whole.items * whole.share)) - weights
        common = max(products / weights, 0.0) if weights > 0 else 0.0
    # Runs that differ in all responses together have components in each benchmark.
    every = whole.significant and not any(significant for _, significant, _ in parts)
    own = {
        name: np.sqrt((variance - common) / np.maximum(number, 1))
        for name, (variance, significant, number) in zip(
            names.tolist(), parts, strict=True
        )
        if variance > common and (significant or every)
    }
    if not common and not own:
        return None
    return RunErrors(np.sqrt(common / np.maximum(whole.number, 1)), own)


class _Runs(NamedTuple):
    """Sums over the responses of each subject and run, `[subjects, runs]`.

    Attributes:
        deviation: Of e.
        noise: Of v (1 - 1/n).
        share: Of 1 - 1/n.
        items: Of 1 where the cell has several responses.
        responses: Of 1.
    """

    deviation: np.ndarray
    noise: np.ndarray
    share: np.ndarray
    items: np.ndarray
    responses: np.ndarray

    @property
    def variance(self) -> float:
        """The component of runs; below 0 where they differ less than by chance."""
        weight = float(np.sum((self.items - 1) * self.share))
        above = float(np.sum(self.deviation**2 - self.noise))
        return above / weight if weight > 0 else 0.0

    @property
    def significant(self) -> bool:
        """Whether runs differ by more than independent responses do."""
        expected = self.noise.sum(axis=1)
        degrees = np.count_nonzero(self.items, axis=1) - 1
        varied = (expected > 0) & (degrees > 0)
        if not varied.any() or self.variance <= 0:
            return False
        ratio = np.sum(self.deviation[varied] ** 2, axis=1) / expected[varied]
        square = float(np.sum(degrees[varied] * ratio))
        return bool(chdtrc(float(degrees[varied].sum()), square) <= LEVEL)

    @property
    def number(self) -> np.ndarray:
        """Runs of each subject, `[subjects]`."""
        return np.count_nonzero(self.responses, axis=1)


def _terms(cell: np.ndarray, response: np.ndarray, size: int) -> list[np.ndarray]:
    """Terms of the sums of `_Runs`, `[responses]` each."""
    number = np.bincount(cell, minlength=size)[cell]
    gap = response - np.bincount(cell, response, minlength=size)[cell] / number
    squares = np.bincount(cell, gap**2, minlength=size)[cell]
    share = np.where(number > 1, 1 - 1 / number, 0.0)
    repeated = (number > 1).astype(float)
    noise = squares / np.maximum(number - 1, 1) * share
    return [gap, noise, share, repeated, np.ones(len(cell))]
