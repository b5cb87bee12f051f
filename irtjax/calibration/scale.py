"""Errors of abilities whose scale the subjects do not determine.

Tests of pairs are differences of abilities over their errors given the scale. Free
slopes put the scale into the items: with few subjects they follow the responses of
single subjects, so equal abilities differ by much more than their errors. Of pairs of
equal subjects with 100 items these shares were significant at 5 %, where an exact test
of their responses has 2 to 5 %:

    subjects   2     3     4     5
    laplace    63 %  10 %  4 %   7 %
    em         97 %  81 %  -     84 %

An error of at least the range of all abilities makes every z at most 1 / sqrt(2): no
pair differs (as by NUTS, whose errors of two such subjects are 1.3), and intervals of
ranks contain all subjects. Expected scores and accuracies keep their errors, which the
scale does not enter.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from irtjax.data.table import FEW_SUBJECTS
from irtjax.estimators.estimates import Estimates

#: Subjects below which abilities whose items are integrated out have no tested pairs;
#: where items are parameters it is `FEW_SUBJECTS`.
LEAST_INTEGRATED = 4
#: How the warnings begin and end.
BECAUSE = "do not determine slopes and the scale of ability"
CURE = (
    "use a model with slopes of 1 ('rasch', 'pcm'), or the paired test of accuracies"
    " (irtjax compare --data)"
)


def with_errors_of_scale(estimates: Estimates, num_subjects: int) -> Estimates:
    """Estimates whose errors of ability include that of an unidentified scale.

    Of enough subjects, of models with slopes of 1, of fixed slopes, and of samplers,
    whose draws include the scale, they are returned as they are. A warning
    states what was done, and what to use.
    """
    problem, groups = estimates.problem, estimates.groups
    slopes = estimates.factors is None and problem.model.family.has_slope
    if num_subjects >= FEW_SUBJECTS or not slopes:
        return estimates
    if estimates.draws is not None or not np.asarray(problem.free)[:, 0].all():
        return estimates
    because = f"{num_subjects} subjects {BECAUSE}"
    if groups is not None and num_subjects >= LEAST_INTEGRATED:
        if groups.ability.shape[1] > 1:
            return estimates
        warning = f"{because}, on which tests of pairs depend; {CURE}"
        return _warned(estimates, warning)
    known = estimates.ability[np.isfinite(estimates.ability)]
    least = max(float(np.ptp(known)), 1.0) if known.size else 1.0
    warning = (
        f"{because}: errors of ability are set to the range of all abilities or more,"
        f" and no pair of subjects is tested; {CURE}"
    )
    error = np.maximum(estimates.error, least)
    return _warned(estimates, warning, error=error, shared=None, scale=None)


def _warned(estimates: Estimates, warning: str, **changes: Any) -> Estimates:
    """Estimates with changed fields and one more warning."""
    warnings = *estimates.warnings, warning
    return dataclasses.replace(estimates, warnings=warnings, **changes)
