"""Comparisons of two subjects each: abilities by maximum likelihood, with errors."""

from irtjax.comparisons.diagnostics import PairDiagnostics, diagnose
from irtjax.comparisons.elo import EloRatings, elo_stream
from irtjax.comparisons.errors import inverse_information, sandwich
from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.fit import Arena, fit_comparisons
from irtjax.comparisons.influence import Influence
from irtjax.comparisons.joint import Agreement, Joint, fit_jointly, without_prior
from irtjax.comparisons.newton import (
    PairCounts,
    PairFit,
    PairParameters,
    log_likelihood,
    maximise,
)
from irtjax.comparisons.plan import BattlePlan
from irtjax.comparisons.settings import PairSettings

__all__ = [
    "Agreement",
    "Arena",
    "BattlePlan",
    "EloRatings",
    "Influence",
    "Joint",
    "PairCounts",
    "PairDiagnostics",
    "PairFamily",
    "PairFit",
    "PairParameters",
    "PairSettings",
    "diagnose",
    "elo_stream",
    "fit_comparisons",
    "fit_jointly",
    "inverse_information",
    "log_likelihood",
    "maximise",
    "sandwich",
    "without_prior",
]
