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
scale does not enter. With 8 subjects or more by `em` there is a warning only. A test of
whether all accuracies are equal is no cure: of 10 subjects of which one differed, or
two groups of five, it was significant in 10 of 10 data sets, and 59 % and 36 % of the
equal pairs differed by `em` all the same (5 data sets each, 100 items, 60 steps).

Scores given the items of such a fit have the same least error.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.table import FEW_SUBJECTS
from irtjax.estimators.estimates import Estimates

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Subjects below which abilities whose items are integrated out have no tested pairs;
#: where items are parameters it is `FEW_SUBJECTS`.
LEAST_INTEGRATED = 4
#: How the warnings begin and end.
BECAUSE = "do not determine slopes and the scale of ability"
UNTESTED = "no pair of subjects is tested"
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
    groups = estimates.groups
    if num_subjects >= FEW_SUBJECTS or not estimates_slopes(estimates):
        return estimates
    if estimates.draws is not None:
        return estimates
    because = f"{num_subjects} subjects {BECAUSE}"
    if groups is not None and num_subjects >= LEAST_INTEGRATED:
        if groups.ability.shape[1] > 1:
            return estimates
        warning = f"{because}, on which tests of pairs depend; {CURE}"
        return _warned(estimates, warning)
    warning = (
        f"{because}: errors of ability are set to the range of all abilities or more,"
        f" and {UNTESTED}; {CURE}"
    )
    error = np.maximum(estimates.error, _least_error(estimates.ability))
    return _warned(estimates, warning, error=error, shared=None, scale=None)


def estimates_slopes(estimates: Estimates) -> bool:
    """Whether all items have slopes that are estimated, on one ability."""
    if estimates.factors is not None or not estimates.problem.model.family.has_slope:
        return False
    return bool(np.asarray(estimates.problem.free)[:, 0].all())


def leaves_pairs_untested(fit: Calibration) -> bool:
    """Whether the errors of ability of a fit were set so that no pair is tested."""
    return any(BECAUSE in line and UNTESTED in line for line in fit.warnings)


def least_error(fit: Calibration) -> float:
    """The least error of an ability given the items of a fit; 0 for most fits."""
    if not leaves_pairs_untested(fit):
        return 0.0
    return _least_error(fit.ability_table.column("ability").to_numpy())


def _least_error(ability: np.ndarray) -> float:
    known = ability[np.isfinite(ability)]
    return max(float(np.ptp(known)), 1.0) if known.size else 1.0


def _warned(estimates: Estimates, warning: str, **changes: Any) -> Estimates:
    """Estimates with changed fields and one more warning."""
    warnings = *estimates.warnings, warning
    return dataclasses.replace(estimates, warnings=warnings, **changes)
