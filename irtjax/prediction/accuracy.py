r"""How well chances predict right and wrong responses, with errors.

With r_c right responses and w_c wrong ones of cell c, predicted by p_c, the area under
the curve within groups (all cells, those of a subject, or of an item) is the chance
that of a right and a wrong response of one group the right one is predicted higher,

.. math:: A = \frac{\sum_g \sum_{c, d \in g} r_c w_d h_{cd}}
                   {\sum_g \sum_{c \in g} r_c \sum_{d \in g} w_d},
          \quad h_{cd} = [p_c > p_d] + \tfrac12 [p_c = p_d].

**Intervals.** Subjects and items are drawn again, both with replacement (bootstrap of
two crossed factors: Owen 2007, The Pigeonhole Bootstrap, Annals of Applied Statistics).
A mean of cells is computed again with the weights u_i v_j of each draw. An area is
computed to the first order, by the derivative of A in the weight of each cell: one
product of matrices for all draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irtjax._types import RandomKey
from irtjax.numerics.seeds import seed_of

#: Draws of subjects and items.
DRAWS = 400
#: Nearest that a chance is to 0 or 1 in a log score.
NEAREST = 1e-6
#: Groups of cells by their chances, of the calibration error and its curve.
BINS = 10
#: The scores, in the order of tables.
SCORES = ("auc", "auc_subjects", "auc_items", "log_score", "brier")


class PredictedCells(NamedTuple):
    """Cells that were predicted.

    Attributes:
        subject: `[cells]` place of the subject.
        item: `[cells]` place of the item.
        right: `[cells]` right responses.
        responses: `[cells]` responses, of which some are right.
        split: `[cells]` number of the split that they are of.
    """

    subject: np.ndarray
    item: np.ndarray
    right: np.ndarray
    responses: np.ndarray
    split: np.ndarray


def concordance(
    right: np.ndarray, wrong: np.ndarray, chance: np.ndarray, group: np.ndarray
) -> tuple[float, np.ndarray]:
    """The area under the curve within groups, and its derivatives.

    Args:
        right: `[cells]` right responses.
        wrong: `[cells]` wrong responses.
        chance: `[cells]` predictions.
        group: `[cells]` whole numbers; cells of one are compared.

    Returns:
        The area, NaN where no group has right and wrong responses, and `[cells]` its
        derivatives in the weights of the cells.

    >>> right = np.array([1.0, 0.0, 1.0, 0.0])
    >>> chance, group = np.array([0.9, 0.2, 0.1, 0.1]), np.array([0, 0, 1, 1])
    >>> concordance(right, 1 - right, chance, group)[0]
    0.75
    """
    order = np.argsort(chance)
    if group.size and (group != group[0]).any():
        order = order[np.argsort(group[order], kind="stable")]
    group, chance = group[order], chance[order]
    begins = np.append(True, group[1:] != group[:-1])
    apart = begins | np.append(True, chance[1:] != chance[:-1])
    groups, ties = _runs(begins), _runs(apart)
    sums = []
    for part in (right[order], wrong[order]):
        total = np.concatenate([[0.0], np.cumsum(part)])
        before = np.repeat(total[groups.start], groups.length)
        inside = np.repeat(np.diff(total[groups.bounds]), groups.length)
        middle = (total[ties.bounds[1:]] + total[ties.start]) / 2
        sums.append((part, inside, np.repeat(middle, ties.length) - before))
    (r, all_right, low_right), (w, all_wrong, low_wrong) = sums
    pairs = float(r @ all_wrong)
    if not pairs:
        return float("nan"), np.zeros(len(right))
    area = float(r @ low_wrong) / pairs
    slope = r * (low_wrong - area * all_wrong)
    slope += w * (all_right - low_right - area * all_right)
    derivative = np.empty(len(right))
    derivative[order] = slope / pairs
    return area, derivative


def area_under_curve(right: np.ndarray, wrong: np.ndarray, chance: np.ndarray) -> float:
    """The area under the curve of all cells: `concordance` without derivatives.

    >>> right = np.array([1.0, 0.0, 1.0, 0.0])
    >>> area_under_curve(right, 1 - right, np.array([0.9, 0.2, 0.1, 0.1]))
    0.625
    """
    if not len(right):
        return float("nan")
    order = np.argsort(chance)
    chance = chance[order]
    starts = np.flatnonzero(np.append(True, chance[1:] != chance[:-1]))
    r, w = (np.add.reduceat(x[order], starts) for x in (right, wrong))
    pairs = float(r.sum() * w.sum())
    below = np.cumsum(w) - 0.5 * w
    return float(r @ below) / pairs if pairs else float("nan")


class _Runs(NamedTuple):
    """Runs of cells: first places and the end of the last, and their lengths."""

    bounds: np.ndarray
    length: np.ndarray

    @property
    def start(self) -> np.ndarray:
        """`[runs]` first places."""
        return self.bounds[:-1]


def _runs(begins: np.ndarray) -> _Runs:
    """The runs that begin at some cells."""
    bounds = np.append(np.flatnonzero(begins), len(begins))
    return _Runs(bounds, np.diff(bounds))


class BootstrapDraws(NamedTuple):
    """Weights of subjects `[draws, subjects]` and items `[draws, items]`."""

    subjects: np.ndarray
    items: np.ndarray

    @classmethod
    def of(cls, num_subjects: int, num_items: int, key: RandomKey) -> BootstrapDraws:
        """Multinomial weights of both."""
        rng = np.random.default_rng([seed_of(key), 1])
        each = [
            rng.multinomial(size, np.full(size, 1 / size), DRAWS).astype(float)
            for size in (num_subjects, num_items)
        ]
        return cls(*each)

    def sums(self, cells: PredictedCells, values: np.ndarray) -> np.ndarray:
        """`[draws]` sums of values of cells with the weights of their subject, item."""
        matrix = np.zeros((self.subjects.shape[1], self.items.shape[1]))
        np.add.at(matrix, (cells.subject, cells.item), values)
        return np.einsum("bj,bj->b", self.subjects @ matrix, self.items)


class Accuracy(NamedTuple):
    """Scores of predictions, and those of each draw of subjects and items.

    Attributes:
        value: The scores by name: `SCORES`, and `calibration`.
        draws: `[draws]` of each of `SCORES`.
    """

    value: dict[str, float]
    draws: dict[str, np.ndarray]


def accuracy(
    cells: PredictedCells, chance: np.ndarray, draws: BootstrapDraws
) -> Accuracy:
    """Scores of the chances of cells.

    Areas are means over splits, weighted by pairs. The log score is the mean
    log-likelihood of a response in nats, the Brier score its mean squared error, and
    the calibration error the mean absolute difference of chance and frequency in ten
    groups of equal size.

    Args:
        cells: The cells.
        chance: `[cells]` predictions.
        draws: Weights of subjects and items.
    """
    right, wrong = cells.right, cells.responses - cells.right
    scores: dict[str, float] = {}
    drawn: dict[str, np.ndarray] = {}
    for name, of in (
        ("auc", cells.split),
        ("auc_subjects", _pairs(cells.split, cells.subject)),
        ("auc_items", _pairs(cells.split, cells.item)),
    ):
        scores[name], slope = concordance(right, wrong, chance, of)
        drawn[name] = np.clip(scores[name] + draws.sums(cells, slope), 0, 1)
    near = np.clip(chance, NEAREST, 1 - NEAREST)
    number = draws.sums(cells, cells.responses)
    for name, loss in (
        ("log_score", right * np.log(near) + wrong * np.log1p(-near)),
        ("brier", right * (1 - chance) ** 2 + wrong * chance**2),
    ):
        scores[name] = float(loss.sum() / cells.responses.sum())
        drawn[name] = draws.sums(cells, loss) / np.maximum(number, 1e-9)
    curve = reliability_curve(cells, chance)
    share = curve["responses"] / curve["responses"].sum()
    scores["calibration"] = float(share @ np.abs(curve["chance"] - curve["right"]))
    return Accuracy(scores, drawn)


def reliability_curve(
    cells: PredictedCells, chance: np.ndarray
) -> dict[str, np.ndarray]:
    """Mean chance, share right and responses of groups of cells of similar chances.

    >>> zeros, right = np.zeros(4, int), np.array([0, 0, 1, 1.0])
    >>> cells = PredictedCells(zeros, zeros, right, np.ones(4), zeros)
    >>> reliability_curve(cells, np.array([0.2, 0.2, 0.7, 0.7]))["right"].tolist()
    [0.0, 1.0]
    """
    edges = np.unique(np.quantile(chance, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, chance, side="right")
    number = np.bincount(place, cells.responses, BINS)
    used = number > 0
    means = [
        np.bincount(place, x, BINS)[used] / number[used]
        for x in (cells.responses * chance, cells.right)
    ]
    return {"chance": means[0], "right": means[1], "responses": number[used]}


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A number of each pair of two numbers."""
    return first * (int(second.max(initial=0)) + 1) + second
