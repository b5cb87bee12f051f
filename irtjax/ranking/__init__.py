"""Ranks and comparisons of subjects, from scores and their standard errors.

Scores are taken as normal around their estimates. No array of subjects x subjects is
made unless one is given or requested: pairs are compared in blocks of rows. Everything
runs on the host in double precision; draws are seeded by a JAX key.
"""

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
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

# Claims wait for neither JAX nor Equinox, which draws of ranks need.
__getattr__ = loader(
    __name__,
    {
        "irtjax.ranking.comparison": "Comparison compare",
        "irtjax.ranking.pairs": "Pairs leading_loadings pairwise scale_loadings"
        " without_scale",
        "irtjax.ranking.ranks": "RankIntervals Ranking rank rank_intervals",
    },
)
