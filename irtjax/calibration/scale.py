"""Errors of abilities of fits whose slopes the subjects do not determine.

Tests of pairs are differences of abilities over their errors given the scale. Free
slopes put the scale into the items: with few subjects, or subjects who hardly differ,
they follow the responses of single subjects. Equal abilities then differ by much more
than their errors. So no pair is tested where

- items are integrated out, and there are fewer than 4 subjects. Of equal subjects with
  100 items, by `laplace`, half of the data sets of 2 and 12 % of those of 3 had a
  significant pair, none of 4 and 7 % of 6 (40 data sets each);
- items are parameters (`em`, `mm`), and there are fewer than 12 subjects (8 where
  abilities are parameters too), abilities are not significantly different, or the
  responses to an item times the mean correlation of two items are below 0.75
  (`identification.variation`). Of 20 or 50 equal subjects with 100 items 95 to 100 % of
  the data sets had a significant pair by `em`.

- there are several abilities, and fewer than 20 subjects, or 10 for each slope of an
  item: 95 % intervals of expected scores, by which subjects are ranked, covered 68 to
  80 % with 10 subjects, and 86 to 90 % at the limit (`experiments/aims/README.md`).

`docs/evidence/few-subjects.md` has the simulations behind the limits.

An error of at least the range of all abilities makes every z at most 1 / sqrt(2): no
pair differs (as by NUTS, whose errors of two such subjects are 1.3). Intervals of ranks
contain all subjects, and P(best) is the same for all. Expected scores and accuracies
keep their errors, which the scale does not enter.

Scores given the items of such a fit have the same least error.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from irtjax.calibration.identification import LEVEL, Variation
from irtjax.data.table import FEW_SUBJECTS, LEAST_INTEGRATED
from irtjax.estimators.estimates import Estimates
from irtjax.ranking import Ranking, RankIntervals

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

Ranks = TypeVar("Ranks", RankIntervals, Ranking)

#: Subjects below which no pair is tested where items are parameters but abilities are
#: not. By `em` 95 % intervals of differences covered 67 % with 8 subjects, 89 % with 10
#: and 92 % with 12 (100 items). By `mm` they covered 97 % with 8, and `FEW_SUBJECTS` is
#: the limit.
LEAST_ESTIMATED = 12
#: Subjects below which no pair is tested by models of several abilities: so many, and
#: so many for each slope of an item.
LEAST_SEVERAL, LEAST_A_SLOPE = 20, 10
#: Responses to an item times the mean correlation of two items, below which slopes that
#: are parameters are not determined. Of the significant pairs 20 to 86 % were false
#: below 0.75, and at most 4 % above.
LEAST_STRENGTH = 0.75
#: How the warnings begin and end.
BECAUSE = "do not determine slopes and the scale of ability"
UNTESTED = "no pair of subjects is tested"
CURE = (
    "use the default model and method, a model with slopes of 1 ('rasch', 'pcm'), or"
    " the paired test of accuracies (irtjax compare --data)"
)


def with_errors_of_scale(
    estimates: Estimates, num_subjects: int, found: Variation
) -> Estimates:
    """Estimates whose errors of ability include that of an unidentified scale.

    Of slopes that the subjects determine, of models with slopes of 1, of fixed slopes,
    and of methods whose draws include the scale (`nuts`, `vi`), they are returned as
    they are. A warning states what was done, and what to use. `found` is the variation
    of the responses.
    """
    if estimates.factors is not None:
        return _with_errors_of_several(estimates, num_subjects)
    if not estimates_slopes(estimates) or estimates.sampled:
        return estimates
    groups = estimates.groups
    if groups is None:
        why = _undetermined(num_subjects, found, estimates.joint)
    else:
        why = f"{num_subjects} subjects" * (num_subjects < FEW_SUBJECTS)
    if not why:
        return estimates
    if groups is not None and num_subjects >= LEAST_INTEGRATED:
        if groups.ability.shape[1] > 1:
            return estimates
        warning = f"{why} {BECAUSE}, on which tests of pairs depend; {CURE}"
        return _warned(estimates, warning)
    return _untested(estimates, why)


def _untested(estimates: Estimates, why: str) -> Estimates:
    """Estimates with errors of ability by which no pair is significant."""
    warning = (
        f"{why} {BECAUSE}: errors of ability are set to the range of all abilities or"
        f" more, {UNTESTED}, and rank intervals and P(best) are the same for all"
        f" subjects; {CURE}"
    )
    error = np.maximum(estimates.error, _least_error(estimates.ability))
    changes: dict[str, Any] = {"error": error, "shared": None, "scale": None}
    if estimates.factors is not None:  # The ability is the expected score.
        changes["expected"] = estimates.ability, error
    return _warned(estimates, warning, **changes)


def _with_errors_of_several(estimates: Estimates, num_subjects: int) -> Estimates:
    """Of a model of several abilities, whose slopes few subjects do not determine."""
    dims = estimates.problem.model.family.dims
    slopes = np.asarray(estimates.problem.free)[:, :dims].sum(axis=1).max(initial=0)
    least = max(LEAST_SEVERAL, LEAST_A_SLOPE * int(slopes))
    if not slopes or estimates.sampled or num_subjects >= least:
        return estimates
    return _untested(estimates, f"{num_subjects} subjects")


def _undetermined(num_subjects: int, found: Variation, joint: bool) -> str:
    """Subject of the sentence on slopes that are not determined; "" if they are."""
    few = f"{num_subjects:,} subjects"
    if num_subjects < (FEW_SUBJECTS if joint else LEAST_ESTIMATED):
        return few
    if found.p_value > LEVEL:
        return f"{few} whose abilities are not significantly different"
    if found.strength < LEAST_STRENGTH:
        return f"{few} who differ so little"
    return ""


def estimates_slopes(estimates: Estimates) -> bool:
    """Whether all items have slopes that are estimated, on one ability."""
    if estimates.factors is not None or not estimates.problem.model.family.has_slope:
        return False
    return bool(np.asarray(estimates.problem.free)[:, 0].all())


def leaves_pairs_untested(fit: Any) -> bool:
    """Whether the errors of ability of a fit were set so that no pair is tested."""
    return any(BECAUSE in line and UNTESTED in line for line in fit.warnings)


def scale_first(*warnings: str) -> tuple[str, ...]:
    """Warnings, with that of an unidentified scale first: its cure makes others moot.

    >>> scale_first("b", f"a {BECAUSE}: {UNTESTED}")[1]
    'b'
    """
    return tuple(sorted(warnings, key=lambda line: UNTESTED not in line))


def unknown_ranks(found: Ranks) -> Ranks:
    """Ranks where no pair is tested: any rank, and the same P(best) for all.

    >>> import jax
    >>> from irtjax.ranking import rank_intervals
    >>> found = rank_intervals(np.array([0.0, 9.0]), np.ones(2), key=jax.random.key(0))
    >>> unknown_ranks(found).probability_best.tolist()
    [0.5, 0.5]
    """
    count = len(found.rank)
    return found._replace(
        rank_lower=np.ones_like(found.rank_lower),
        rank_upper=np.full_like(found.rank_upper, count),
        probability_best=np.full(count, 1 / max(count, 1)),
    )


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
