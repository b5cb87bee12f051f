"""Comparisons of two subjects each: abilities by maximum likelihood, with errors."""

from typing import TYPE_CHECKING

from irtjax._lazy import loader

if TYPE_CHECKING:
    from irtjax.comparisons.diagnostics import PairDiagnostics as PairDiagnostics
    from irtjax.comparisons.diagnostics import diagnose as diagnose
    from irtjax.comparisons.elo import EloRatings as EloRatings
    from irtjax.comparisons.elo import elo_stream as elo_stream
    from irtjax.comparisons.errors import inverse_information as inverse_information
    from irtjax.comparisons.errors import sandwich as sandwich
    from irtjax.comparisons.families import PairFamily as PairFamily
    from irtjax.comparisons.fit import Arena as Arena
    from irtjax.comparisons.fit import fit_comparisons as fit_comparisons
    from irtjax.comparisons.influence import Influence as Influence
    from irtjax.comparisons.joint import Agreement as Agreement
    from irtjax.comparisons.joint import Joint as Joint
    from irtjax.comparisons.joint import fit_jointly as fit_jointly
    from irtjax.comparisons.joint import without_prior as without_prior
    from irtjax.comparisons.newton import PairCounts as PairCounts
    from irtjax.comparisons.newton import PairFit as PairFit
    from irtjax.comparisons.newton import PairParameters as PairParameters
    from irtjax.comparisons.newton import log_likelihood as log_likelihood
    from irtjax.comparisons.newton import maximise as maximise
    from irtjax.comparisons.plan import BattlePlan as BattlePlan
    from irtjax.comparisons.settings import PairSettings as PairSettings

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

__getattr__ = loader(
    __name__,
    {
        "irtjax.comparisons.diagnostics": "PairDiagnostics diagnose",
        "irtjax.comparisons.elo": "EloRatings elo_stream",
        "irtjax.comparisons.errors": "inverse_information sandwich",
        "irtjax.comparisons.families": "PairFamily",
        "irtjax.comparisons.fit": "Arena fit_comparisons",
        "irtjax.comparisons.influence": "Influence",
        "irtjax.comparisons.joint": "Agreement Joint fit_jointly without_prior",
        "irtjax.comparisons.newton": "PairCounts PairFit PairParameters"
        " log_likelihood maximise",
        "irtjax.comparisons.plan": "BattlePlan",
        "irtjax.comparisons.settings": "PairSettings",
    },
)
