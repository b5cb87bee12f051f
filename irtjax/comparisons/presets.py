r"""Settings under which published arenas are reproduced.

`arena_rank` has those of arena-rank 0.1.1: a tie is half a win, a comparison of a pair
with n comparisons has the weight 1 / max(n, 50) divided by the mean weight, covariates
are centred, and effects have the penalty

    1/N sum_i w_i l_i - 1/2 sum_k beta_k^2,

with N comparisons: a normal prior of precision N, which shrinks an effect to a fraction
however many comparisons there are. Weights give rare pairs as much to say as frequent
ones, at the cost of precision. Neither is maximum likelihood, so neither is a default.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irtjax.data.comparison_table import ComparisonTable, pairs_of


class Preset(NamedTuple):
    """Settings of a published arena.

    Attributes:
        fewest: Comparisons of a pair below which its weight grows no more.
        penalty: Precision of the prior of effects for each comparison.
        reason: Why results differ from the defaults.
    """

    fewest: float
    penalty: float
    reason: str


PRESETS = {
    "arena_rank": Preset(
        50.0,
        1.0,
        "settings of arena-rank: pairs have about equal weights, and effects are shrunk"
        " by a penalty that does not fade with more comparisons, so that abilities and"
        " effects differ from maximum likelihood",
    )
}


def preset_of(name: str | None) -> Preset | None:
    """The preset of a name.

    Raises:
        ValueError: If there is none.
    """
    if name is None:
        return None
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} is not one of {', '.join(PRESETS)}")
    return PRESETS[name]


def pair_weights(
    preset: Preset, table: ComparisonTable, outcomes: np.ndarray
) -> np.ndarray:
    """Weights of the comparisons of all rows, with a mean of 1 over comparisons.

    >>> wins = [[100, 0, 0, 0], [50, 0, 0, 0]]
    >>> table = ComparisonTable.of("abc", [0, 1], [1, 2], wins)
    >>> pair_weights(PRESETS["arena_rank"], table, table.outcomes[:, :3]).tolist()
    [0.75, 1.5]
    """
    low, high = (f(table.first, table.second) for f in (np.minimum, np.maximum))
    _, place = pairs_of(low, high, table.num_subjects)
    games = outcomes.sum(axis=1)
    of_pair = np.bincount(place, games)[place]
    weight = 1 / np.maximum(of_pair, preset.fewest)
    return weight * games.sum() / np.sum(weight * games)
