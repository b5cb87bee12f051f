"""Whether draws can be trusted, what they say, and how well they predict."""

from irtjax.diagnostics.convergence import (
    Diagnosis,
    bfmi,
    diagnose,
    has_converged,
)
from irtjax.diagnostics.loo import LeaveOneOut, pareto_k, psis_loo
from irtjax.diagnostics.ranks import Uniformity, rank_statistics, uniformity
from irtjax.diagnostics.words import summary, trajectories, verdict

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
