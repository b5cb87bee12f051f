"""Diagnostics and summaries of draws, and how well they predict."""

from irtjax.estimators.posterior.convergence import (
    Diagnosis,
    bfmi,
    diagnose,
    has_converged,
    summary,
    trajectories,
    verdict,
)
from irtjax.estimators.posterior.psis import LeaveOneOut, pareto_k, psis_loo
from irtjax.estimators.posterior.sbc import Uniformity, rank_statistics, uniformity

__all__ = [
    "Diagnosis",
    "LeaveOneOut",
    "Uniformity",
    "bfmi",
    "diagnose",
    "has_converged",
    "pareto_k",
    "psis_loo",
    "rank_statistics",
    "summary",
    "trajectories",
    "uniformity",
    "verdict",
]
