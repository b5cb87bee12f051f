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
    cluster_products,
    inverse_information,
    kinds_of,
    number_of,
    products,
    row_scores,
    sums_of_rows,
)
from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.newton import PairFit
from irtjax.data.comparison_table import ComparisonTable

#: One sentence under the table.
MEDIATOR = (
    "Length and style may be mediators, part of why a model is preferred: read both"
    " columns, abilities at equal style and abilities as they are."
)


def style_table(
    family: PairFamily,
    fits: Sequence[tuple[PairFit, np.ndarray]],
    table: ComparisonTable,
    outcomes: np.ndarray,
    clusters: Sequence[np.ndarray] = (),
) -> Any:
    """Returns the table: subject, ability, ability_without, difference, difference_se.

    Args:
        family: The model.
        fits: The fit with covariates and that without, each with its features
            `[rows, features]`.
        table: The comparisons that count.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
        clusters: Codes of clusters `[rows]`, one or two kinds; without any, each
            comparison is alone.
    """
    import pyarrow as pa

    (one, _), (other, _) = fits
    with_style, without = (np.asarray(x.parameters.ability) for x in (one, other))
    columns = {"ability": with_style, "ability_without": without}
    columns["difference"] = with_style - without
    variance = _difference_variance(family, fits, table, outcomes, clusters)
    columns["difference_se"] = np.sqrt(np.maximum(variance, 0))
    order = np.argsort(-with_style, kind="stable")
    arrays = {name: values[order] for name, values in columns.items()}
    return pa.table({"subject": table.subjects[order].tolist(), **arrays})


def _difference_variance(
    family: PairFamily, fits, table: ComparisonTable, outcomes, clusters
) -> np.ndarray:
    """Variances of the differences of abilities, `[subjects]`."""
    count, sides = table.num_subjects, (table.first, table.second)
    ends = [inverse_information(fit)[:count] for fit, _ in fits]
    bread = np.concatenate([ends[0], -ends[1]], axis=1)
    scores = [(row_scores(family, fit, x, *sides), x) for fit, x in fits]
    if clusters:
        sums = [sums_of_rows(local, x, outcomes) for local, x in scores]
        middle = sum(
            sign * cluster_products(codes, sides, sums, count)
            for sign, codes in kinds_of(clusters)
        )
        number = min(map(number_of, clusters))
    else:
        middle, number = products(sides, scores, outcomes, count), outcomes.sum()
    variance = np.sum((bread @ middle) * bread, axis=1)
    return variance * number / max(number - 1, 1)
