"""Plain-language flags: what a reader of the numbers must know about them.

Nothing is dropped in silence: items and subjects without variation, separated items
and items that discriminate the wrong way stay in the tables with a flag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from irtjax._types import Status
from irtjax.models.base import Model

#: Subjects below which a model's item parameters lean on their priors. From the
#: precision of a slope at average difficulty, about sqrt(8 / N) for the 2PL (0.4 at
#: 50), and the usual advice for models with asymptotes.
FEW_SUBJECTS = {1: 20, 2: 50, 3: 250, 4: 500}

#: The same for scores, which say more: the relative error of a standard deviation is
#: sqrt(1 / (2 N)), an eighth at 30.
FEW_SUBJECTS_SCORES = 30

#: Least and most able subjects who are looked at first in search of separated items.
ENDS = 100

ALL_RIGHT = "all right"
ALL_WRONG = "all wrong"
NO_RESPONSES = "no responses"
NEGATIVE = "negative discrimination"
SEPARATED = "separated"
RUNAWAY = "no finite estimate"

MEANING = {
    ALL_RIGHT: "the estimate rests on the prior, or has no finite value without one",
    ALL_WRONG: "the estimate rests on the prior, or has no finite value without one",
    NO_RESPONSES: "nothing was observed",
    NEGATIVE: "more able subjects do worse: check the key",
    SEPARATED: "right and wrong answers do not overlap in ability: the slope is set by"
    " the prior, or has no finite maximum without one",
    RUNAWAY: "the likelihood rises without end: the value given is where the iteration"
    " stopped; use priors",
}


class Margins(NamedTuple):
    """Counts of a table's rows or columns, each `[size]`."""

    observed: np.ndarray
    total: np.ndarray
    lowest: Bool[np.ndarray, " size"]
    highest: Bool[np.ndarray, " size"]


def margins(
    values: np.ndarray,
    observed: np.ndarray | None,
    trials: np.ndarray | None,
    top: int,
    axis: int,
) -> Margins:
    """Observed cells, sum of responses, and whether all are lowest or all highest.

    Args:
        values: `[subjects, items]`, 0 where missing.
        observed: Mask or None.
        trials: Trials or None.
        top: Highest category.
        axis: 0 for items, 1 for subjects.
    """
    exposure = observed if trials is None else trials
    if exposure is None:
        count = np.full(values.shape[1 - axis], values.shape[axis], np.int64)
    else:
        count = exposure.sum(axis=axis, dtype=np.int64)
    total = values.sum(axis=axis, dtype=np.float64)
    return Margins(
        count, total, (total == 0) & (count > 0), (total == top * count) & (count > 0)
    )


def no_variation_flags(found: Margins) -> list[list[str]]:
    """Flags of rows or columns without variation or without responses."""
    return [
        [NO_RESPONSES] if not n else [ALL_RIGHT] if high else [ALL_WRONG] if low else []
        for n, low, high in zip(
            found.observed, found.lowest, found.highest, strict=True
        )
    ]


def separated_items(
    values: np.ndarray,
    observed: np.ndarray | None,
    ability: Float[np.ndarray, " subjects"],
) -> Bool[np.ndarray, " items"]:
    """Items whose highest and lower responses do not overlap in ability.

    A binary item is separated when every subject who is right is more able than every
    one who is wrong, or the reverse; items without variation are not.

    Args:
        values: `[subjects, items]` binary responses.
        observed: Mask or None.
        ability: Ability estimates.
    """
    order = np.argsort(ability, kind="stable")
    result = np.zeros(values.shape[1], bool)
    # Most items have right and wrong answers among the least able and among the most
    # able: those overlap, and need no look at the other subjects.
    ends = min(ENDS, order.size // 2)
    overlap = np.ones(values.shape[1], bool)
    for rows in (order[:ends], order[order.size - ends :]):
        seen = True if observed is None else observed[rows]
        for response in (0, 1):
            overlap &= ((values[rows] == response) & seen).any(axis=0)
    left = np.flatnonzero(~overlap)
    # Places instead of abilities: equal abilities are not apart.
    _, place = np.unique(ability, return_inverse=True)
    width = max(1, 20_000_000 // max(1, values.shape[0]))
    for start in range(0, left.size, width):
        part = left[start : start + width]
        seen = True if observed is None else observed[:, part]
        right, wrong = ((values[:, part] == y) & seen for y in (1, 0))
        lowest, highest = (
            [
                extreme(np.where(kind, place[:, None], none), axis=0)
                for kind in (right, wrong)
            ]
            for extreme, none in ((np.min, place.size), (np.max, -1))
        )
        both = right.any(0) & wrong.any(0)
        apart = (lowest[0] > highest[1]) | (lowest[1] > highest[0])
        result[part] = both & apart
    return result


def num_components(observed: np.ndarray | None) -> int:
    """Connected components of the graph of who answered what.

    Subjects and items without any response do not count. More than one component
    means that abilities in one cannot be compared with those in another.

    >>> num_components(np.array([[True, True, False], [False, False, True]]))
    2
    """
    if observed is None:
        return 1
    subjects = observed.any(axis=1)
    components = 0
    while subjects.any():
        reached = np.zeros_like(subjects)
        reached[np.argmax(subjects)] = True
        size = 0
        while reached.sum() > size:
            size = int(reached.sum())
            items = np.logical_or.reduce(observed, axis=0, where=reached[:, None])
            reached |= np.logical_or.reduce(observed, axis=1, where=items[None, :])
        subjects &= ~reached
        components += 1
    return components


def item_flags(
    model: Model,
    items: Margins,
    discrimination: np.ndarray,
    separated: np.ndarray,
    runaway: np.ndarray,
) -> list[str]:
    """One string of flags per item, "; " between them and "" for none."""
    flags = no_variation_flags(items)
    for j, found in enumerate(flags):
        if found:
            continue
        if discrimination[j] < 0:
            found.append(NEGATIVE)
        if separated[j] and model.family.has_slope:
            found.append(SEPARATED)
        if runaway[j]:
            found.append(RUNAWAY)
    return ["; ".join(found) for found in flags]


def fit_warnings(
    model: Model,
    *,
    status: Status,
    residual: float,
    num_subjects: int,
    components: int,
    flags: list[str],
    subject_flags: list[str],
    joint: bool,
    trained: bool = False,
) -> tuple[str, ...]:
    """What the whole fit should be read with, each a sentence.

    Args:
        model: What was fitted.
        status: How it ended.
        residual: Last move, in the method's own measure.
        num_subjects: How many.
        components: Groups of the data without a common subject or item.
        flags: Of the items.
        subject_flags: Of the subjects.
        joint: Whether subjects were estimated beside items, without a population.
        trained: Whether the method goes by epochs, and joint estimates are not its own.
    """
    found = []
    if status != Status.CONVERGED:
        found.append(
            f"{status.explain()} (residual {residual:.2g}): treat the estimates as"
            f" provisional; raise {'epochs' if trained else 'max_steps'}"
            + ("" if trained else ", or use priors if items run away")
        )
    needed = FEW_SUBJECTS.get(model.family.num_columns, 50)
    if model.family.num_categories == 0:
        needed = FEW_SUBJECTS_SCORES
    if num_subjects < needed:
        basis = (
            "item parameters rest on the priors"
            if model.priors
            else ("item parameters are poorly determined")
        )
        found.append(
            f"only {num_subjects} subjects for a {model.name} model (about {needed}"
            f" advised): {basis}"
        )
    if components > 1:
        found.append(
            f"the data fall into {components} groups without a common subject or item:"
            " abilities in different groups are comparable only through the population"
        )
    for name in (ALL_RIGHT, ALL_WRONG, NO_RESPONSES, NEGATIVE, SEPARATED, RUNAWAY):
        for what, several in ((flags, "items"), (subject_flags, "subjects")):
            count = sum(name in flag.split("; ") for flag in what)
            if count:
                noun = several if count > 1 else several[:-1]
                found.append(f"{count} {noun}: {name} ({MEANING[name]})")
    if joint and not trained:
        found.append(
            "joint estimates of items are biased when each subject met few items; use"
            " method='em' unless there are hundreds"
        )
    return tuple(found)
