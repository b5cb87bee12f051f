"""Permutation tests of the sum of few scores, by drawn choices of subjects."""

from __future__ import annotations

import numpy as np

#: P-values below `LOOK` are drawn where at most so many responses are missing, or not.
LOOK, FEW, DRAWS = 0.1, 20, 4999


def draw_few(upper, lower, missing, comparable, score) -> None:
    """Replaces, in place, small p-values of few missing responses, or few others.

    Scores of subjects who met other items may have long tails, so that the sum of a few
    is far from the approximation. Draws are of the sorted scores: the order of subjects
    does not matter.
    """
    ones, count = missing.sum(0), comparable.sum(0)
    least = np.minimum(ones, count - ones)
    small = (np.minimum(upper, lower) < LOOK) & (least > 0) & (least <= FEW)
    draws = TailDraws()
    for item in np.flatnonzero(small):
        mine = comparable[:, item]
        # The sum over the smaller of the two groups: its tails are turned for others.
        turned = ones[item] > least[item]
        group = mine & (missing[:, item] != turned)
        total = score[group, item].sum()
        draws.put(upper, lower, item, score[mine, item], total, least[item], turned)


class TailDraws:
    """Drawn tails, with the same subsets for groups of the same sizes."""

    def __init__(self) -> None:
        self.subsets: dict[tuple[int, int], np.ndarray] = {}

    def put(self, upper, lower, item, values, total, size, turned) -> None:
        """Replaces the tails of an item, from `total`, the sum of `size` of `values`.

        `turned` if these are the responses, not the missing ones.
        """
        key = len(values), int(size)
        if key not in self.subsets:
            self.subsets[key] = _subsets(*key)
        drawn = np.sort(values)[self.subsets[key]].sum(1)
        slack = 1e-9 * (1 + np.abs(values).sum())
        ends = (drawn >= total - slack).sum(), (drawn <= total + slack).sum()
        ends = ends[::-1] if turned else ends
        for tail, as_far in zip((upper, lower), ends, strict=True):
            most = (as_far + 1) / (DRAWS + 1)
            # Beyond all draws the approximation goes on.
            tail[item] = most if as_far else min(most, tail[item])


def _subsets(count: int, size: int) -> np.ndarray:
    """Places of `DRAWS` random subsets of so many of `count`, `[draws, size]`.

    >>> subsets = _subsets(5, 3)
    >>> subsets.shape, bool((np.diff(np.sort(subsets)) > 0).all()), int(subsets.max())
    ((4999, 3), True, 4)
    """
    random, chosen = np.random.default_rng(0), np.empty((DRAWS, 0), np.int64)
    for k in range(size):
        # One of those left, numbered without the places before it.
        new = random.integers(0, count - k, DRAWS)
        for before in np.sort(chosen, axis=1).T:
            new += new >= before
        chosen = np.column_stack([chosen, new])
    return chosen
