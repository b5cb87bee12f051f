r"""Which comparisons to collect next, and how many decide between two subjects.

A comparison of i and j has the information w = sum_o p_o (d log p_o / d delta)^2 about
their difference. With V the covariance of abilities and c = e_i - e_j, it changes V to

    V - w V c c' V / (1 + w c'V c).

`d_optimal` takes the pair of the largest w c'V c, which shrinks the determinant of V
the most; `adjacent` the one that shrinks most the sum of the variances of the
differences between neighbours in rank. New comparisons are assumed to be independent
of the old ones and of each other.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from scipy.special import ndtr, ndtri

from irtjax.calibration.abilities import Abilities
from irtjax.comparisons.families import LINKS, PairFamily, expected_information
from irtjax.comparisons.fit import Arena
from irtjax.data.frames import HasTable
from irtjax.data.matching import find_names

#: What a plan minimises.
CRITERIA = ("d_optimal", "adjacent")
#: Steps of a plan: more comparisons are placed several at a time.
MOST_STEPS = 2000
#: More comparisons of one pair than anybody collects.
MOST_BATTLES = 2**40


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BattlePlan(HasTable):
    """The next comparisons, and the errors after them.

    Attributes:
        table: `model_a`, `model_b`, `battles`: most first.
        before, after: The abilities with their errors without and with the comparisons.
    """

    title = "The next comparisons"

    table: Any
    before: Abilities
    after: Abilities

    @property
    def sentence(self) -> str:
        """The mean standard error before and after."""
        ends = (float(x.standard_error.mean()) for x in (self.before, self.after))
        return "Mean standard error {:.3f}, after them {:.3f}.".format(*ends)


def information_of_one(arena: Arena) -> np.ndarray:
    """Information of one comparison of each two about their difference, `[K, K]`."""
    options, ability = arena.options, arena.abilities.estimates
    # Rankings of two are Bradley and Terry's.
    link = options["model"] if options["model"] in LINKS else "bradley_terry"
    family = PairFamily(link, options["ties"])
    gaps = (ability[:, None] - ability[None, :]).reshape(-1, 1)
    effect = arena.effects.get("tie", (0.0, 0.0))[0]
    local = np.pad(gaps, [(0, 0), (0, family.num_shapes)], constant_values=effect)
    with jax.enable_x64(True):
        information = expected_information(family, local, np.ones((len(gaps), 1)))
    return information[:, 0, 0].reshape(len(ability), -1)


def plan_battles(
    arena: Arena, num_battles: int, criterion: str = "adjacent"
) -> BattlePlan:
    """The next comparisons, one after the other each the best.

    Args:
        arena: A fit of comparisons.
        num_battles: How many to place.
        criterion: "adjacent" for the order of the ranks, "d_optimal" for all abilities.

    Raises:
        ValueError: If the criterion is unknown or there is no comparison to place.

    >>> from irtjax import ComparisonTable, fit_comparisons
    >>> rows = [[30, 10, 0, 0], [4, 2, 0, 0], [3, 2, 0, 0]]
    >>> table = ComparisonTable.of(["a", "b", "c"], [0, 0, 1], [1, 2, 2], rows)
    >>> plan = plan_battles(fit_comparisons(table), 12)
    >>> plan.table.to_pylist()
    [{'model_a': 'b', 'model_b': 'c', 'battles': 12}]
    >>> print(plan.sentence)
    Mean standard error 0.328, after them 0.247.
    """
    if criterion not in CRITERIA:
        raise ValueError(f"criterion={criterion!r} is not one of {', '.join(CRITERIA)}")
    if num_battles < 1:
        raise ValueError(f"num_battles={num_battles}: give 1 or more")
    import pyarrow as pa

    abilities, weight = arena.abilities, information_of_one(arena)
    covariance, names = abilities.covariance.copy(), np.asarray(abilities.names)
    upper = np.triu(np.ones_like(weight), 1) > 0
    order = np.argsort(-abilities.estimates, kind="stable")
    battles = np.zeros(weight.shape, np.int64)
    step = -(-num_battles // MOST_STEPS)
    while num_battles > 0:
        count = min(step, num_battles)
        gain = _gain(covariance, weight, order if criterion == "adjacent" else None)
        best = np.where(upper, gain, -1.0).argmax()
        i, j = np.unravel_index(best, weight.shape)
        along, w = covariance[:, i] - covariance[:, j], count * weight[i, j]
        covariance -= w * np.outer(along, along) / (1 + w * (along[i] - along[j]))
        battles[i, j] += count
        num_battles -= count
    first, second = np.nonzero(battles)
    largest = np.argsort(-battles[first, second], kind="stable")
    first, second = first[largest], second[largest]
    columns = {"model_a": names[first], "model_b": names[second]}
    table = pa.table({**columns, "battles": battles[first, second]})
    after = dataclasses.replace(abilities, covariance=covariance, expected=None)
    return BattlePlan(table, abilities, after)


def _variances(matrix: np.ndarray) -> np.ndarray:
    """Of each difference of two, from a covariance."""
    own = np.diagonal(matrix)
    return own[:, None] + own[None, :] - 2 * matrix


def _gain(covariance: np.ndarray, weight: np.ndarray, order) -> np.ndarray:
    """What one comparison of each two is worth, `[K, K]`."""
    variance = _variances(covariance)
    if order is None:
        return weight * variance
    neighbours = -np.diff(covariance[order], axis=0)
    return weight * _variances(neighbours.T @ neighbours) / (1 + weight * variance)


def battles_to_decide(
    arena: Arena, first: str, second: str, *, power: float = 0.8, level: float = 0.95
) -> float:
    r"""Number of comparisons of two subjects after which their order is significant.

    With d the estimated difference, v its variance, w the information of one comparison
    and z the quantile of a two-sided test, n comparisons lead to the variance
    v_n = 1 / (1 / v + n w). If d is the true difference, the estimate after them has
    the mean d and the variance v_n^2 n w, so that the power is

        Phi((d - z v_n^(1/2)) / (v_n (n w)^(1/2))).

    Returns:
        The smallest n with the power; 0 if they differ by now, infinite if no number of
        comparisons is large enough.

    >>> from irtjax import ComparisonTable, fit_comparisons
    >>> table = ComparisonTable.of(["a", "b"], [0], [1], [[11, 9, 0, 0]])
    >>> battles_to_decide(fit_comparisons(table), "a", "b")
    762.0
    """
    if not (0 < power < 1 and 0 < level < 1):
        raise ValueError(f"power={power:g}, level={level:g}: give numbers from 0 to 1")
    difference = arena.abilities.compare(first, second)
    i, j = find_names(np.asarray(arena.abilities.names), [first, second], "subject")
    gap, v = abs(float(difference.difference)), float(difference.standard_error) ** 2
    w, z = float(information_of_one(arena)[i, j]), float(ndtri(0.5 + level / 2))
    if gap >= z * math.sqrt(v):
        return 0.0

    def enough(n: int) -> bool:
        after = 1 / (1 / v + n * w)
        return ndtr((gap - z * math.sqrt(after)) / (after * math.sqrt(n * w))) >= power

    high = 1
    while not enough(high):
        high *= 2
        if high > MOST_BATTLES:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(high)
