r"""Tests of items that the same subjects answered twice, as under two prompts.

Subject i has response y_1 to item j under the first condition and y_2 under the second.
Where the condition moves the ability of i by any amount delta_i, under a Rasch model

    logit P(y_2 = 1 | y_1 + y_2 = 1) = delta_i

for every item. So the w_i items of its n_i discordant pairs that only y_2 has right are
any w_i of them with equal chances, whatever abilities, difficulties and delta_i are:

    T_j = sum_i (y_2ij - w_i / n_i),   var T_j = sum_i w_i (n_i - w_i) / n_i^2

over the subjects whose pair at j is discordant. T_j^2 / var T_j is chi-square with one
degree of freedom: McNemar's test (1947) given the subject's own change, which is the
Mantel-Haenszel test of item j against the other items with a stratum for each subject.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool


class PairedTests(NamedTuple):
    """Each `[items]`; NaN where no pair of an item can differ.

    Attributes:
        statistic: Chi-square with one degree of freedom.
        effect: Difference of the share right, second less first, beyond that of the
            other items, in points of a hundred.
        effect_se: Its standard error.
        discordant: Pairs of which one response is right.
    """

    statistic: np.ndarray
    effect: np.ndarray
    effect_se: np.ndarray
    discordant: np.ndarray


def paired_tests(
    first: Bool[np.ndarray, "pairs items"],
    second: Bool[np.ndarray, "pairs items"],
    seen: Bool[np.ndarray, "pairs items"],
    anchors: Bool[np.ndarray, " items"],
) -> PairedTests:
    """The test of every item against the anchors; an item always counts for itself.

    Args:
        first: Whether the response under the first condition is right.
        second: The same under the second.
        seen: Whether both were observed.
        anchors: Whether the item is one that others are judged by.
    """
    gained, lost = second & ~first & seen, first & ~second & seen
    discordant = gained | lost
    outside = ~anchors
    wins = gained[:, anchors].sum(axis=1)[:, None] + (gained & outside)
    pairs = discordant[:, anchors].sum(axis=1)[:, None] + (discordant & outside)
    share = np.where(discordant, wins / np.maximum(pairs, 1), 0)
    total = (gained - share).sum(axis=0)
    variance = (share * (1 - share)).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = total**2 / variance
        points = 200 / seen.sum(axis=0)
    return PairedTests(
        np.where(variance > 0, statistic, np.nan),
        points * total,
        points * np.sqrt(variance),
        discordant.sum(axis=0),
    )
