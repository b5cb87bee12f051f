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

__all__ = [
    "Diagnosis",
    "LeaveOneOut",
    "bfmi",
    "diagnose",
    "has_converged",
    "pareto_k",
    "psis_loo",
    "summary",
    "trajectories",
    "verdict",
]
