"""What items that differ change: parameters by group, and ranks of subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from irtjax.data.table import ResponseTable
from irtjax.validity.group_scores import GroupSteps
from irtjax.validity.subject_groups import SubjectGroups

if TYPE_CHECKING:
    import pyarrow as pa


def parameter_table(
    data: ResponseTable, groups: SubjectGroups, differs: np.ndarray, steps: GroupSteps
) -> pa.Table:
    """Parameters of the items that differ, a row for each group, with errors.

    The errors are conditional on the items that do not differ.
    """
    import pyarrow

    places = np.flatnonzero(differs)
    error = np.sqrt(np.diagonal(np.linalg.inv(steps.information), axis1=2, axis2=3))
    flat = lambda array: array[:, places].T.ravel()
    return pyarrow.table(
        {
            "item": np.repeat(data.items[places], len(groups.names)).tolist(),
            "group": groups.names * len(places),
            "discrimination": flat(steps.step[..., 0]),
            "discrimination_se": flat(error[..., 0]),
            "intercept": flat(steps.step[..., 1]),
            "intercept_se": flat(error[..., 1]),
        }
    )


def subject_table(
    data: ResponseTable,
    groups: SubjectGroups,
    level: np.ndarray,
    split: np.ndarray | None,
    without: np.ndarray,
) -> pa.Table:
    """Ranks of subjects by their ability or share right, in three ways.

    Args:
        data: Responses.
        groups: Groups of the subjects.
        level: `[subjects]` of all items.
        split: The same with items that differ free in each group; None if unknown.
        without: The same without the items that differ.
    """
    import pyarrow

    rank = lambda x: rankdata(-x, method="min").astype(int)
    ranks = {"rank": level, "rank_split": split, "rank_without": without}
    return pyarrow.table(
        {
            "subject": data.subjects.tolist(),
            "group": [groups.names[k] for k in groups.codes],
            "level": level,
            **{name: rank(x) for name, x in ranks.items() if x is not None},
        }
    )


def moves(subjects: pa.Table) -> str:
    """How many places subjects move, in one sentence."""
    texts = []
    for name, how in (("split", "free in each group"), ("without", "left out")):
        if f"rank_{name}" in subjects.column_names:
            columns = subjects["rank"].to_numpy(), subjects[f"rank_{name}"].to_numpy()
            places = np.abs(columns[1] - columns[0])
            most = int(places.max())
            texts.append(
                f"{how}, subjects move {places.mean():.1f} places on"
                f" average, at most {most}"
            )
    return "with these items " + "; ".join(texts)
