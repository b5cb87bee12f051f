r"""What the responses of one run share: its variance, from repeated runs.

A run r of subject i shifts all its responses by an effect with variance
:math:`\sigma^2`. Of the deviations e of its responses from the means of their cells, of
n trials each with variance v, the sum over the m items of a run has

.. math:: E (\sum_j e_j)^2 = \sum_j v_j (1 - 1/n_j) + m^2 \sigma^2 (1 - 1/n)

without and with the effect, which is also in the v that are estimated. So

.. math:: \hat\sigma^2 = \sum_r [(\sum_j e_j)^2 - \sum_j \hat v_j (1 - 1/n_j)]
    / \sum_r (m_r^2 - m_r) (1 - 1/n_r),

which is the component of subjects by runs in the analysis of variance (Brennan 2001)
where the design is complete. Independent responses need no such term: intervals have
their noise.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtrc

#: Chance of an effect where runs have none.
LEVEL = 0.05


def run_errors(
    cell: np.ndarray, run: np.ndarray, response: np.ndarray, shape: tuple[int, int]
) -> np.ndarray | None:
    """Standard errors of mean scores by what the responses of one run share.

    Args:
        cell: `[responses]` subject times the number of items, plus item.
        run: `[responses]` a label of the run.
        response: `[responses]` finite scores.
        shape: Subjects and items.

    Returns:
        `[subjects]` sigma / sqrt(runs); None where no cell has two responses or runs
        do not differ significantly by more than independent responses do.

    >>> rng = np.random.default_rng(0)
    >>> run, cell = np.indices((6, 30 * 200)).reshape(2, -1)
    >>> effect = 0.2 * rng.normal(size=(6, 30))[run, cell // 200]
    >>> response = rng.normal(size=len(cell)) + effect
    >>> run_errors(cell, run, response, (30, 200)).round(2)[:2].tolist()
    [0.08, 0.08]
    >>> run_errors(cell, run, response - effect, (30, 200)) is None
    True
    """
    size, subjects = shape[0] * shape[1], shape[0]
    count = np.bincount(cell, minlength=size)
    number = count[cell]
    total = np.bincount(cell, response, minlength=size)
    gap = response - total[cell] / number
    variance = np.bincount(cell, gap**2, minlength=size) / np.maximum(count - 1, 1)
    labels, run = np.unique(run, return_inverse=True)
    group = (cell // shape[1]).astype(np.int64) * len(labels) + run.reshape(-1)
    of_group = lambda x: np.bincount(group, x, minlength=subjects * len(labels))
    share = np.where(number > 1, 1 - 1 / number, 0.0)
    sums, items = of_group(gap), of_group((number > 1).astype(float))
    noise = of_group(variance[cell] * share)
    weight = (items - 1) * of_group(share)
    by_subject = lambda x: x.reshape(subjects, len(labels)).sum(axis=1)
    expected, degrees = by_subject(noise), by_subject((items > 0).astype(float)) - 1
    ratio = np.divide(
        by_subject(sums**2), expected, out=np.zeros(subjects), where=expected > 0
    )
    varied = (expected > 0) & (degrees > 0)
    if not varied.any() or not weight.sum() > 0:
        return None
    square = float(np.sum(degrees[varied] * ratio[varied]))
    effect = float(np.sum(sums**2 - noise) / weight.sum())
    if effect <= 0 or chdtrc(float(degrees[varied].sum()), square) > LEVEL:
        return None
    runs = by_subject((of_group(np.ones(len(cell))) > 0).astype(float))
    return np.sqrt(effect / np.maximum(runs, 1))
