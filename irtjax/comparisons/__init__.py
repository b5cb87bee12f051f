"""Comparisons of two subjects each: abilities by maximum likelihood, with errors."""

from irtjax.comparisons.elo import EloRatings, elo_stream
from irtjax.comparisons.errors import inverse_information, sandwich
from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.fit import Arena, fit_comparisons
from irtjax.comparisons.influence import Influence
from irtjax.comparisons.newton import (
    PairCounts,
    PairFit,
    PairParameters,
    log_likelihood,
    maximise,
)
from irtjax.comparisons.plan import BattlePlan

__all__ = [
    "Arena",
    "BattlePlan",
    "EloRatings",
    "Influence",
    "PairCounts",
    "PairFamily",
    "PairFit",
    "PairParameters",
    "elo_stream",
    "fit_comparisons",
    "inverse_information",
    "log_likelihood",
    "maximise",
    "sandwich",
]
