"""Ranks and comparisons of subjects, from scores and their standard errors.

Scores are taken as normal around their estimates. No array of subjects x subjects is
made unless one is given or requested: pairs are compared in blocks of rows. Everything
runs on the host in double precision; draws are seeded by a JAX key.
"""

from irtjax.ranking.comparison import Comparison, compare
from irtjax.ranking.pairs import (
    Pairs,
    leading_loadings,
    pairwise,
    scale_loadings,
    without_scale,
)
from irtjax.ranking.ranks import Ranking, RankIntervals, rank, rank_intervals

__all__ = [
    "Comparison",
    "Pairs",
    "RankIntervals",
    "Ranking",
    "compare",
    "leading_loadings",
    "pairwise",
    "rank",
    "rank_intervals",
    "scale_loadings",
    "without_scale",
]
