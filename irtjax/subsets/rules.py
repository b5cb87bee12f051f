"""Which rule of choice predicts best: rules compared on held-out subjects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irtjax.subsets.predictor import Calibrator, Prediction, correct, scale
from irtjax.subsets.selection import RULES


class Compared(NamedTuple):
    """Rules compared on held-out subjects."""

    rule: str  # the rule taken
    calibrator: Calibrator
    enough: bool  # whether there were subjects enough for the level
    rows: tuple[dict[str, Any], ...]  # see `Shrunken.rules`
    score: np.ndarray  # of each subject by the rule that the other folds would take
    prediction: Prediction  # what `score` comes from


def compare(
    predictions: Mapping[str, Prediction],
    fold: np.ndarray,
    score: np.ndarray,
    level: float,
) -> Compared:
    """Takes a rule by its error on held-out subjects, and calibrates its intervals.

    The rule is the simplest one whose mean absolute error is at most one standard
    error above the smallest (one-standard-error rule; Breiman et al. 1984). Errors are
    paired by subject, so the standard error is that of their mean difference. The
    smallest of several errors is too small. Misfit and reach of the intervals are
    therefore what each fold's subjects need under the rule that the other folds take.
    `found` has predictions by rule of subjects that choice and fit have not seen.
    """
    rules = [rule for rule in RULES if rule in predictions]
    corrections = [correct(predictions[rule], score) for rule in rules]
    corrected = np.stack([score - left for _, left in corrections])
    miss = np.abs(corrected - score)
    taken = take(miss, fold)
    own = np.empty(len(score), int)
    for code in np.unique(fold):
        others = fold != code
        own[~others] = take(miss[:, others], fold[others])
    pick = own, np.arange(len(score))
    fields = zip(*(predictions[rule] for rule in rules), strict=True)
    prediction = Prediction(*(np.stack(field)[pick] for field in fields))
    corrected = corrected[pick]
    correction, left = corrections[taken][0], score - corrected
    calibrator, enough = scale(prediction, left, level, correction)
    rows = _rows(rules, miss, fold, taken)
    return Compared(rules[taken], calibrator, enough, rows, corrected, prediction)


def take(miss: np.ndarray, fold: np.ndarray) -> int:
    """Place of the first rule that is within one standard error of the best.

    `miss` has the absolute errors, `[rules, subjects]`, the simplest rule first.

    >>> fold = np.array([0, 0, 1, 1])
    >>> miss = np.array([[1, 3, 2, 4], [1, 2, 2, 5], [9, 9, 9, 9]])
    >>> take(miss, fold), take(miss[[2, 0]], fold)
    (0, 1)
    """
    best = int(np.argmin(miss.mean(axis=1)))
    for place, own in enumerate(miss):
        excess = own - miss[best]
        if excess.mean() <= standard_error(excess, fold):
            return place
    return best


def standard_error(value: np.ndarray, fold: np.ndarray) -> float:
    """Standard error of a mean over subjects.

    The larger of two: from the variance over subjects, and from that over the means of
    folds, which differ also because each has its own choice and fit.
    """
    means = np.array([value[fold == code].mean() for code in np.unique(fold)])
    several = (x for x in (value, means) if len(x) > 1)
    return float(max((x.std(ddof=1) / len(x) ** 0.5 for x in several), default=0.0))


def _rows(rules, miss: np.ndarray, fold: np.ndarray, taken: int):
    """Errors by rule, the smallest first."""
    order = np.argsort(miss.mean(axis=1), kind="stable")
    excess = miss - miss[order[0]]
    return tuple(
        {
            "rule": rules[place],
            "mean_absolute_error": float(miss[place].mean()),
            "standard_error": standard_error(miss[place], fold),
            "excess": float(excess[place].mean()),
            "excess_se": standard_error(excess[place], fold),
            "taken": bool(place == taken),
        }
        for place in order
    )


def sentence(rows: tuple[dict[str, Any], ...]) -> str:
    """One line on why the rule was taken, from `Compared.rows`.

    >>> rows = {"rule": "clustering", "taken": False}, {"rule": "random", "taken": True}
    >>> sentence(rows)
    'rule taken: random, the simplest within one standard error of the best, clustering'
    """
    # The rows are sorted by error.
    best = rows[0]
    taken = next(row for row in rows if row["taken"])
    why = f"the best of {len(rows)} on subjects left out"
    if taken is not best:
        why = f"the simplest within one standard error of the best, {best['rule']}"
    return f"rule taken: {taken['rule']}, {why}"


def points(error: float) -> str:
    """An error of a score with two decimals, or as many as show its first digit.

    >>> points(0.0312), points(0.004), points(1.0)
    ('.03', '.004', '1.00')
    """
    decimals = 2
    while decimals < 4 and 0 < error < 10.0**-decimals:
        decimals += 1
    text = f"{error:.{decimals}f}"
    return text.removeprefix("0") if error < 1 else text


def counts(rules: list[str]) -> str:
    """Rules with the number of folds that took each.

    >>> counts(["random", "regression", "regression"])
    'regression 2, random 1'
    """
    tally = Counter(rules).most_common()
    words = (f"{rule} {count}" for rule, count in tally)
    return tally[0][0] if len(tally) == 1 else ", ".join(words)
