"""Whether draws can be trusted, what they say, and how well they predict."""

from irtjax.diagnostics.convergence import (
    Diagnosis,
    bfmi,
    diagnose,
    has_converged,
)
from irtjax.diagnostics.loo import LeaveOneOut, pareto_k, psis_loo
from irtjax.diagnostics.words import summary, verdict

__all__ = [
    "Diagnosis",
    "LeaveOneOut",
    "bfmi",
    "diagnose",
    "has_converged",
    "pareto_k",
    "psis_loo",
    "summary",
    "verdict",
]
