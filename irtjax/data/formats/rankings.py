"""Rankings of several models, as the comparisons of two that they imply.

A ranking of m models has m (m - 1) / 2 pairs, and models of an equal rank are ties. By
the model of Plackett and Luce (Luce 1959; Plackett 1975) each pair follows Bradley and
Terry's, so that abilities of all pairs are consistent; pairs of one ranking depend on
each other, so that errors need the ranking as their cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

#: Columns of a list of models, best first, and of one model with its rank.
LISTS = ("ranking", "ranked", "ranked_models", "order_of_models")
MODELS, RANKS = ("model", "model_name", "subject"), ("rank", "place", "position")
#: Columns that tell rankings apart, where a row has one model.
IDS = ("ranking_id", "ballot", "question_id", "prompt_id", "id", "voter", "judge")


class RankedPairs(NamedTuple):
    """All pairs of all rankings, each array `[pairs]`.

    Attributes:
        first, second: Names; the first is never the worse one.
        tie: Whether both have the same rank.
        row: Row of the file.
        ranking: Number of the ranking.
    """

    first: np.ndarray
    second: np.ndarray
    tie: np.ndarray
    row: np.ndarray
    ranking: np.ndarray


def is_ranking(names: Iterable[str]) -> bool:
    """Whether columns are those of rankings.

    >>> is_ranking(["id", "ranking"]), is_ranking(["question_id", "model", "rank"])
    (True, True)
    >>> is_ranking(["model", "rank"]), is_ranking(["model_a", "model_b", "rank"])
    (False, False)
    """
    names = {*names}
    return bool(names & {*LISTS}) or all(names & {*x} for x in (MODELS, RANKS, IDS))


def pairs_of(frame: Any, source: str) -> RankedPairs:
    """Returns the pairs of the rankings of a table.

    Raises:
        ValueError: If a rank is no number, or a ranking has a model twice.
    """
    own = {*frame.column_names}
    name = next((x for x in LISTS if x in own), None)
    if name is not None:
        parsed = [_listed(x) for x in frame.column(name).to_pylist()]
        row = np.repeat(np.arange(len(parsed)), [len(x) for x in parsed])
        flat = [pair for ranking in parsed for pair in ranking]
        models = np.array([x for x, _ in flat], dtype=str)
        return _pairs(models, np.array([k for _, k in flat], float), row, row, source)
    model, rank, group = (
        next(x for x in names if x in own) for names in (MODELS, RANKS, IDS)
    )
    models = np.array([str(x) for x in frame.column(model).to_pylist()])
    keys = np.array([str(x) for x in frame.column(group).to_pylist()])
    ranks = np.array([_number(x) for x in frame.column(rank).to_pylist()])
    wrong = np.flatnonzero(~np.isfinite(ranks))
    if wrong.size:
        value = frame.column(rank)[int(wrong[0])].as_py()
        raise ValueError(
            f"{source}, row {wrong[0] + 1}: {rank} is {value!r}, not a number; correct"
            " it, or leave the row out"
        )
    ranking = np.unique(keys, return_inverse=True)[1].reshape(-1)
    return _pairs(models, ranks, ranking, np.arange(len(models)), source)


def _number(value: Any) -> float:
    """A rank; NaN where there is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _listed(value: Any) -> list[tuple[str, int]]:
    """Models with their ranks, of a list or of a text such as "a > b = c".

    >>> _listed("a > b = c"), _listed(["b", "a"])
    ([('a', 0), ('b', 1), ('c', 1)], [('b', 0), ('a', 1)])
    """
    steps = value
    if isinstance(value, str):
        steps = re.split(r"\s*>\s*|\s*,\s*", value.strip())
    ranks = []
    for k, step in enumerate(steps or ()):
        parts = step if isinstance(step, list) else str(step).split(" = ")
        ranks += [(str(x).strip(), k) for x in parts if str(x).strip()]
    return ranks


def _pairs(models, ranks, ranking, row, source: str) -> RankedPairs:
    """All pairs within rankings, those of one size at a time."""
    order = np.lexsort((ranks, ranking))
    models, ranks, ranking, row = (x[order] for x in (models, ranks, ranking, row))
    starts = np.flatnonzero(np.diff(ranking, prepend=-1))
    sizes = np.diff(starts, append=len(ranking))
    one, other = [], []
    for size in np.unique(sizes).tolist():
        upper = np.triu_indices(size, 1)
        begin = starts[sizes == size][:, None]
        one.append((begin + upper[0]).reshape(-1))
        other.append((begin + upper[1]).reshape(-1))
    none = np.zeros(0, int)
    i, j = np.concatenate([none, *one]), np.concatenate([none, *other])
    same = np.flatnonzero(models[i] == models[j])
    if same.size:
        place = int(row[j[same[0]]])
        raise ValueError(
            f"{source}, row {place + 1}: the ranking has {str(models[i[same[0]]])!r}"
            " twice; leave one out"
        )
    return RankedPairs(models[i], models[j], ranks[i] == ranks[j], row[i], ranking[i])
