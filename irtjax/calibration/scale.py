"""Abilities of fits whose slopes the subjects do not determine.

Tests of pairs are differences of abilities over their errors given the scale. Free
slopes put the scale into the items: with few subjects, or subjects who hardly differ,
they follow the responses of single subjects. Equal abilities then differ by much more
than their errors. A test of equal subjects needs no scale, so mean responses take the
place of abilities (`ranking.paired`), and pairs are tested as by the paired test, where

- abilities are not significantly different, or the responses to an item times the mean
  correlation of two items are below 0.75 (`identification.variation`). Of 20 or 50
  equal subjects with 100 items 95 to 100 % of the data sets had a significant pair by
  `em`. By `laplace` none had, and one of 20 whose log odds were higher by 1 differed
  from nobody, where the paired test found 16 of 19 pairs;
- there are fewer than 12 subjects, 8 where abilities are parameters too (`mm`), and 4
  where items are integrated out. Of equal subjects with 100 items, by `laplace`, half
  of the data sets of 2 and 12 % of those of 3 had a significant pair, none of 4 and 7 %
  of 6 (40 data sets each);
- there are several abilities, and fewer than 20 subjects, or 10 for each slope of an
  item: 95 % intervals of expected scores, by which subjects are ranked, covered 68 to
  80 % with 10 subjects, and 86 to 90 % at the limit (`experiments/aims/README.md`).

`docs/evidence/few-subjects.md` has the simulations behind the limits.

Adjusted means are abilities with a mean of 0 and a standard deviation of 1, as the
population's. Their scale is uncertain by a factor from 0 to 2 at a level of 95 %: that
is part of the errors of abilities and of their differences, and of no test. Of several
abilities the ability is an expected score, and so is a mean response: there is no such
error. Expected scores are these means, partially pooled (`ranking.pooling`): given
the slopes they would have the errors of one spread of subjects, which is not known. Of
60 x 1,000 with a standard deviation of 0.2 logits and 70 % missing their intervals
covered 31 %. Ranks are drawn with the same spread.

Scores given the items of such a fit have errors of at least the range of abilities.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from irtjax.calibration.identification import LEVEL, Variation
from irtjax.data.table import FEW_SUBJECTS, LEAST_INTEGRATED, ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.models.model import response_ends, response_size
from irtjax.ranking.paired import PairedMeans, paired_means
from irtjax.ranking.pooling import pooled_means

#: Subjects below which means are compared where items are parameters but abilities are
#: not. By `em` 95 % intervals of differences covered 67 % with 8 subjects, 89 % with 10
#: and 92 % with 12 (100 items). By `mm` they covered 97 % with 8, and `FEW_SUBJECTS` is
#: the limit.
LEAST_ESTIMATED = 12
#: Subjects below which they are by models of several abilities: so many, and
#: so many for each slope of an item.
LEAST_SEVERAL, LEAST_A_SLOPE = 20, 10
#: Responses to an item times the mean correlation of two items, below which slopes that
#: are parameters are not determined. Of the significant pairs 20 to 86 % were false
#: below 0.75, and at most 4 % above.
LEAST_STRENGTH = 0.75
#: The same, and that of a subject's responses, below which one slope of all items is
#: not determined either: by posterior means of `1pl` one of 60 subjects with 50 items
#: differed from 2 others, where the paired test found all 59.
ENOUGH_STRENGTH, LEAST_CARRIED = 7.0, 1.5
#: Standard error of the scale, by which its 95 % interval is from 0 to 2.
SCALE_ERROR = 1 / 1.959964
#: How the warnings begin and go on.
BECAUSE = "do not determine slopes and the scale of ability"
BY_MEANS = "subjects are ranked and compared by mean responses"


def with_errors_of_scale(
    estimates: Estimates,
    table: ResponseTable,
    differences: Variation,
    level: float = 0.95,
) -> Estimates:
    """Estimates with mean responses for abilities whose scale is not identified.

    Of slopes that the subjects determine, of models with slopes of 1, of fixed slopes,
    and of methods whose draws include the scale (`nuts`, `vi`), they are returned as
    they are. A warning states what was done. `found` is the variation of the responses.
    """
    num_subjects = table.num_subjects
    if estimates.several:
        return _with_errors_of_several(estimates, table, level)
    if estimates.sampled:
        return estimates
    if not estimates_slopes(estimates):
        # A common slope, the scale alone, is estimated: that is 0 of equal subjects.
        model = estimates.problem.model
        common = model.scale == "standard" and not model.family.has_slope
        why = _alike(num_subjects, differences)
        if not why and differences.strength < ENOUGH_STRENGTH:
            few = differences.strength * table.num_items < LEAST_CARRIED * num_subjects
            why = f"{num_subjects:,} subjects who differ so little" * few
        if common and not model.has_lengths and why:
            return _by_means(estimates, table, why, level)
        return estimates
    if num_subjects < _least(estimates):
        return _by_means(estimates, table, f"{num_subjects} subjects", level)
    if estimates.num_groups > 1:
        return estimates
    if why := _alike(num_subjects, differences):
        return _by_means(estimates, table, why, level)
    if num_subjects < FEW_SUBJECTS:
        warning = (
            f"{num_subjects} subjects {BECAUSE}, on which tests of pairs depend: use a"
            " model with slopes of 1 ('rasch', 'pcm'), or the paired test of accuracies"
            " (irtjax compare A B LOGS)"
        )
        return _warned(estimates, warning)
    return estimates


def responses_of(table: ResponseTable) -> tuple[Any, np.ndarray | None]:
    """Responses, and their mask or numbers of trials; of a sparse table its cells."""
    if table.sparse is not None:
        return table.sparse, None
    return table.values, table.observed if table.trials is None else table.trials


def means_of(
    estimates: Estimates,
    table: ResponseTable,
    level: float,
    benchmarks: np.ndarray | None = None,
) -> PairedMeans:
    """Adjusted mean responses with their errors (`ranking.paired`)."""
    top = 1.0 if table.trials is not None else response_size(estimates.problem.model)
    return paired_means(*responses_of(table), benchmarks, top=top, level=level)


def _by_means(
    estimates: Estimates, table: ResponseTable, why: str, level: float
) -> Estimates:
    """Estimates with adjusted mean responses and their errors for abilities."""
    means = means_of(estimates, table, level, table.item_facets.get("benchmark"))
    if estimates.several:  # The ability is the expected score.
        return _of_scores(estimates, means, why)
    factor = 1 / float(np.std(means.mean) or 1.0)
    gap = factor * (means.mean - means.mean.mean())
    scale = SCALE_ERROR * gap
    # The mean of these subjects is not that of the population.
    location = np.full(len(gap), 1 / np.sqrt(len(gap)))
    error = np.sqrt((factor * means.standard_error) ** 2 + scale**2 + location**2)
    warning = (
        f"{why} {BECAUSE}: {BY_MEANS}, by the paired test, which needs neither;"
        " abilities are these means with a standard deviation of 1, and their errors"
        " include that of the scale; a model with slopes of 1 ('rasch', 'pcm') has a"
        " scale"
    )
    changes: dict[str, Any] = {
        "ability": gap,
        "error": error,
        "shared": np.column_stack([factor * means.shared, scale, location]),
        "scale": scale,
        "expected": _pooled_scores(estimates, table, level),
    }
    return _warned(estimates, warning, **changes)


def _pooled_scores(
    estimates: Estimates, table: ResponseTable, level: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Expected scores on these items and their errors, from partially pooled means."""
    if estimates.expected is None:
        return None
    means = means_of(estimates, table, level)
    own = means.standard_error / means.factor
    # Subjects who hardly differ have one variance of a response, which each one's few
    # responses would give with a large error.
    met = np.maximum(means.met, 1)
    own = np.where(
        means.met > 1, (np.average(own**2 * met, weights=met) / met) ** 0.5, own
    )
    mean, error = pooled_means(means.mean, own)
    score = np.asarray(estimates.expected[0], float)
    score = mean - mean.mean() + score[np.isfinite(score)].mean()
    # The mean of all subjects is estimated too.
    error = np.sqrt(error**2 + np.mean(own**2) / len(own))
    return _within(estimates, score), error


def _within(estimates: Estimates, score: np.ndarray) -> np.ndarray:
    """Scores within the bounds: an interval on the logit scale needs that."""
    ends = response_ends(estimates.problem.model)
    margin = 0.01 * (ends["top"] - ends["low"])
    return np.clip(score, ends["low"] + margin, ends["top"] - margin)


def _of_scores(estimates: Estimates, means: PairedMeans, why: str) -> Estimates:
    """Of several abilities: mean responses for expected scores."""
    warning = (
        f"{why} {BECAUSE}: {BY_MEANS}, by the paired test, which needs neither;"
        " expected scores are these means"
    )
    score = np.asarray(estimates.ability, float)
    score = means.mean - means.mean.mean() + score[np.isfinite(score)].mean()
    score = _within(estimates, score)
    changes: dict[str, Any] = {
        "ability": score,
        "error": means.standard_error,
        "shared": means.shared,
        "scale": np.zeros_like(score),
        "expected": (score, means.standard_error),
    }
    return _warned(estimates, warning, **changes)


def _with_errors_of_several(
    estimates: Estimates, table: ResponseTable, level: float
) -> Estimates:
    """Of a model of several abilities, whose slopes few subjects do not determine."""
    num_subjects = table.num_subjects
    free = np.asarray(estimates.problem.free)[:, : estimates.num_factors]
    slopes = free.sum(axis=1).max(initial=0)
    least = max(LEAST_SEVERAL, LEAST_A_SLOPE * int(slopes))
    if not slopes or estimates.sampled or num_subjects >= least:
        return estimates
    return _by_means(estimates, table, f"{num_subjects} subjects", level)


def _least(estimates: Estimates) -> int:
    """Subjects below which no slopes are determined."""
    if estimates.multilevel:
        return LEAST_INTEGRATED
    return FEW_SUBJECTS if estimates.joint else LEAST_ESTIMATED


def _alike(num_subjects: int, differences: Variation) -> str:
    """Subject of the sentence on subjects who differ too little; "" if they do not."""
    few = f"{num_subjects:,} subjects"
    if differences.p_value > LEVEL:
        return f"{few} whose abilities are not significantly different as a whole"
    if differences.strength < LEAST_STRENGTH:
        return f"{few} who differ so little"
    return ""


def estimates_slopes(estimates: Estimates) -> bool:
    """Whether all items have slopes that are estimated, on one ability."""
    if estimates.several or not estimates.problem.model.family.has_slope:
        return False
    return bool(np.asarray(estimates.problem.free)[:, 0].all())


def compares_means(fit: Any) -> bool:
    """Whether abilities of a fit are mean responses, as its slopes are unknown."""
    return any(BECAUSE in line and BY_MEANS in line for line in fit.warnings)


def scale_first(*warnings: str) -> tuple[str, ...]:
    """Warnings, with that of an unidentified scale first: its cure makes others moot.

    >>> scale_first("b", f"a {BECAUSE}: {BY_MEANS}")[1]
    'b'
    """
    return tuple(sorted(warnings, key=lambda line: BY_MEANS not in line))


def least_error(fit: Any) -> float:
    """The least error of an ability given the items of a fit; 0 for most fits."""
    if not compares_means(fit):
        return 0.0
    ability = fit.abilities.table.column("ability").to_numpy()
    finite = ability[np.isfinite(ability)]
    return max(float(np.ptp(finite)), 1.0) if finite.size else 1.0


def _warned(estimates: Estimates, warning: str, **changes: Any) -> Estimates:
    """Estimates with changed fields and one more warning."""
    warnings = *estimates.warnings, warning
    return dataclasses.replace(estimates, warnings=warnings, **changes)
