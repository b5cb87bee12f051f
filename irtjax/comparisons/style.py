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

from irtjax.comparisons.errors import inverse_information, row_scores
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
    count = table.num_subjects
    signs = [(1.0, x) for x in clusters] or [(1.0, None)]
    if len(clusters) == 2:
        both = np.unique(np.column_stack(clusters), axis=0, return_inverse=True)[1]
        signs.append((-1.0, both.reshape(-1)))
    ends = [inverse_information(fit)[:count] for fit, _ in fits]
    bread = np.concatenate([ends[0], -ends[1]], axis=1)
    middle = 0.0
    for sign, codes in signs:
        parts = [
            cluster_scores(family, fit, x, table, outcomes, codes) for fit, x in fits
        ]
        middle = middle + sign * _stacked(parts)
    number = min((len(np.unique(x)) for x in clusters), default=outcomes.sum())
    variance = np.einsum("ip,pq,iq->i", bread, middle, bread)
    return variance * number / max(number - 1, 1)


def cluster_scores(family, fit: PairFit, features, table, outcomes, codes) -> Any:
    """Scores `[clusters, parameters]` as a sparse array; each comparison alone.

    Comparisons of a row with one outcome are alike: n of them count as one of weight
    the square root of n.
    """
    from scipy.sparse import coo_array

    slope, rest = row_scores(family, fit, features, table.first, table.second)
    rows, size = slope.shape
    if codes is None:
        weight, unit = np.sqrt(outcomes), np.arange(rows * size).reshape(rows, size)
    else:
        weight, unit = outcomes, np.repeat(codes[:, None], size, axis=1)
    count = table.num_subjects
    shape = int(unit.max()) + 1, count + rest.shape[2]
    sides = [np.repeat(x[:, None], size, axis=1) for x in (table.first, table.second)]
    values, columns = [slope * weight, -slope * weight], sides
    for k in range(rest.shape[2]):
        values.append(rest[:, :, k] * weight)
        columns.append(np.full((rows, size), count + k))
    places = np.tile(unit.reshape(-1), len(values)), np.concatenate(columns).reshape(-1)
    return coo_array((np.concatenate(values).reshape(-1), places), shape).tocsr()


def _stacked(parts: Sequence[Any]) -> np.ndarray:
    """Sum over clusters of the outer products of the scores of both fits."""
    one, other = parts
    mixed = (one.T @ other).toarray()
    top = np.concatenate([(one.T @ one).toarray(), mixed], axis=1)
    below = np.concatenate([mixed.T, (other.T @ other).toarray()], axis=1)
    return np.concatenate([top, below])
