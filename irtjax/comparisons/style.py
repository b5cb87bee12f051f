r"""Abilities with and without covariates, and the error of their difference.

Both fits see the same comparisons, so that their errors are correlated. With s_c and
t_c the scores of cluster c in the two fits, and A and B the rows of the inverse
information that belong to abilities,

    V = sum_c (A s_c - B t_c) (A s_c - B t_c)'

is the sandwich covariance of the difference (White 1980, of stacked equations).

A covariate that a model brings about itself, such as the length of its responses, may
be a mediator: part of why it is preferred. The fit with it compares models at equal
style, the fit without it models as they are; neither is the corrected other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irtjax.comparisons.errors import (
    cluster_middle,
    cluster_products,
    inverse_information,
    products,
    scores_of,
)
from irtjax.comparisons.newton import PairFit
from irtjax.comparisons.problem import PairProblem
from irtjax.comparisons.rows import pair_scores

#: One sentence under the table.
MEDIATOR = (
    "Length and style may be mediators, part of why a model is preferred: read both"
    " columns, abilities at equal style and abilities as they are."
)


def style_table(
    problem: PairProblem,
    fit: PairFit,
    without: PairFit,
    clusters: Sequence[np.ndarray] = (),
) -> Any:
    """Returns the table: subject, ability, ability_without, difference, difference_se.

    Args:
        problem: The comparisons with their features, covariates first.
        fit: Its estimates.
        without: Those without covariates.
        clusters: Codes of clusters `[rows]`, one or two kinds; without any, each
            comparison is alone.
    """
    import pyarrow as pa

    with_style, plain = (np.asarray(x.parameters.ability) for x in (fit, without))
    columns = {"ability": with_style, "ability_without": plain}
    columns["difference"] = with_style - plain
    variance = _difference_variance(problem, fit, without, clusters)
    columns["difference_se"] = np.sqrt(np.maximum(variance, 0))
    table = pa.table({"subject": problem.table.subjects.tolist(), **columns})
    return table.take(np.argsort(-with_style, kind="stable"))


def _difference_variance(
    problem: PairProblem, fit: PairFit, without: PairFit, clusters
) -> np.ndarray:
    """Variances of the differences of abilities, `[subjects]`."""
    family, table, outcomes = problem.family, problem.table, problem.outcomes
    count, rows, sides = table.num_subjects, problem.rows, (table.first, table.second)
    ends = [inverse_information(x)[:count] for x in (fit, without)]
    bread = np.concatenate([ends[0], -ends[1]], axis=1)
    styles = problem.features.shape[1] - len(without.parameters.effect)
    if clusters:
        scores = [
            scores_of(family, x, sides, problem.features[:, begin:], outcomes)
            for x, begin in ((fit, 0), (without, styles))
        ]
        middle = cluster_middle(
            clusters, lambda codes: cluster_products(codes, sides, scores, count)
        )
        return np.sum((bread @ middle) * bread, axis=1)
    # Of the fit without covariates, their effects are 0.
    effect = np.concatenate([np.zeros(styles), without.parameters.effect])
    other = without.parameters._replace(effect=effect)
    fits = [
        (pair_scores(family, rows.gaps(x), x.shape), rows.features[:, begin:])
        for x, begin in ((fit.parameters, 0), (other, styles))
    ]
    middle, number = products(rows, fits, rows.outcomes(outcomes)), outcomes.sum()
    return np.sum((bread @ middle) * bread, axis=1) * number / (number - 1)
