"""Which items misfit, and how far that moves the subjects: S-X2, RMSD, ranks.

S-X2 compares, among subjects of one number-right score, the share o that is right on an
item with the share e that the model implies (Orlando and Thissen 2000):

    S-X2 = sum_s n_s (o_s - e_s)^2 / (e_s (1 - e_s)),

over scores s from 1 to one less than the number of items: with none or all right there
is nothing to compare. RMSD is its size in shares, free of the number of subjects:

    RMSD^2 = sum_s n_s ((o_s - e_s)^2 - e_s (1 - e_s) / n_s) / sum_s n_s.

Scores of subjects with different items do not compare. With missing responses the
groups are of e itself: given a subject's other responses y', the item is right with a
chance of e_i = int P p(theta | y'), in which y' may have any pattern. Each group of an
item is of subjects with neighbouring e_i, and o_s and e_s are means over it. With the
posterior p(theta | y) of all responses, which has the item's factor P or 1 - P,

    e_i = 1 / E[1 / P | y] if the response is right,
    e_i = 1 - 1 / E[1 / (1 - P) | y] if it is wrong.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc
from scipy.stats import rankdata

from irtjax.data.wording import counted
from irtjax.validity.sum_scores import (
    BLOCK,
    LEAST_IN_GROUP,
    MOST_GROUPS,
    group_edges,
    pooled_chi_squared,
    score_windows,
    shares_of_groups,
)

#: Items up to which each score is a group.
MOST_SCORES = 40
#: Expected right and wrong responses of a cell, below which it joins its neighbour.
LEAST_EXPECTED = 1.0
#: Decimals of expected shares: equal ones differ by rounding, and groups may not.
DECIMALS = 9
#: Share of the items that are left out at most: fewer items do not rank subjects.
MOST_LEFT_OUT = 0.5
#: Random choices of items that the effect of misfit is compared with.
DRAWS = 10


class NodeLikelihood(NamedTuple):
    """Responses and the chances of items at nodes of ability.

    Attributes:
        values: `[subjects, items]` responses.
        seen: `[subjects, items]` whether there is a response.
        chance: `[items, nodes, C]` of each category.
        codes: `[C]` scores of the categories.
        nodes: `[nodes]` abilities.
        weights: `[nodes]` of the population, summing to 1.
    """

    values: np.ndarray
    seen: np.ndarray
    chance: np.ndarray
    codes: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray

    def posterior(self, items: np.ndarray | None = None) -> np.ndarray:
        """Posteriors of abilities `[subjects, nodes]` from some items (`[items]`)."""
        chosen = slice(None) if items is None else np.flatnonzero(items)
        logs = np.log(np.maximum(self.chance[chosen], 1e-30))
        values, seen = self.values[:, chosen], self.seen[:, chosen]
        first = logs[..., 0]
        # The sum over complete responses is one for all subjects.
        base = first.sum(0) if seen.all() else seen.astype(float) @ first
        total = np.log(self.weights) + base
        for k, code in enumerate(self.codes[1:], 1):
            total = total + ((values == code) & seen) @ (logs[..., k] - first)
        total -= total.max(1, keepdims=True)
        posterior = np.exp(total)
        return posterior / posterior.sum(1, keepdims=True)

    def ability(self, items: np.ndarray | None = None) -> np.ndarray:
        """Posterior means of abilities `[subjects]`."""
        return self.posterior(items) @ self.nodes


class ScoreGroupFit(NamedTuple):
    """Fit of items `[items]` within groups of scores, NaN or 0 without a test."""

    s_x2: np.ndarray
    degrees: np.ndarray
    p_value: np.ndarray
    rmsd: np.ndarray


def score_group_fit(
    values: np.ndarray, chance: np.ndarray, weights: np.ndarray, num_parameters: int
) -> ScoreGroupFit:
    """S-X2 and RMSD of items of right and wrong responses.

    Args:
        values: `[subjects, items]` of 0 and 1, complete.
        chance: `[items, nodes]` of a right response under the model.
        weights: `[nodes]` of the population, summing to 1.
        num_parameters: Parameters of an item, which degrees of freedom lack.
    """
    size = values.shape[1]
    scores = values.sum(1, dtype=np.int64)
    inner = (scores > 0) & (scores < size)
    blank = np.full(size, np.nan)
    if size < 3 or not inner.any():
        return ScoreGroupFit(blank, np.zeros(size, int), blank, blank)
    values, scores = values[inner], scores[inner]
    edges = np.arange(size) if size <= MOST_SCORES else group_edges(scores)
    edges[0], edges[-1] = 0, size - 1
    code = np.searchsorted(edges, scores, side="left") - 1
    member = (code[:, None] == np.arange(edges.size - 1)).astype(np.float64)
    count = member.sum(0)
    right = values.T.astype(np.float64) @ member
    width = max(1, BLOCK // (count.size * weights.size))
    share = np.empty_like(right)
    for begin in range(0, size, width):
        part = slice(begin, begin + width)
        windows = score_windows(chance, edges, part)
        share[part] = shares_of_groups(weights, windows, chance[part], [])[0]
    return _fit_of_groups(right, share, count, num_parameters)


def _fit_of_groups(
    right: np.ndarray, share: np.ndarray, count: np.ndarray, num_parameters: int
) -> ScoreGroupFit:
    """S-X2 and RMSD of right responses and expected shares `[items, groups]`."""
    s_x2, cells = pooled_chi_squared(right, share, count, LEAST_EXPECTED)
    degrees = np.maximum(cells - num_parameters, 0)
    tested = degrees > 0
    p_value = gammaincc(np.where(tested, degrees, 1) / 2, s_x2 / 2)
    gap = (right - share * count) ** 2 / np.maximum(count, 1)
    square = (gap - share * (1 - share) * (count > 0)).sum(1)
    square = square / np.maximum(count.sum(-1), 1)
    only = lambda x: np.where(tested, x, np.nan)
    rmsd = np.sqrt(np.maximum(square, 0))
    return ScoreGroupFit(only(s_x2), degrees, only(p_value), rmsd)


def rest_chances(data: NodeLikelihood) -> np.ndarray:
    """Chances `[subjects, items]` of a right response given a subject's others.

    Only those of existing responses have a meaning.
    """
    chance = np.clip(data.chance[..., 1], 1e-12, 1 - 1e-12).T
    posterior = data.posterior()
    right, wrong = (1 / (posterior @ (1 / x)) for x in (chance, 1 - chance))
    return np.where(data.values == 1, right, 1 - wrong)


def rest_group_fit(data: NodeLikelihood, num_parameters: int) -> ScoreGroupFit:
    """S-X2 and RMSD of items within groups of what the other responses imply.

    Args:
        data: Responses of 0 and 1, any of them missing, and the model.
        num_parameters: Parameters of an item, which degrees of freedom lack.
    """
    share, is_right = rest_chances(data), data.values == 1
    # Missing responses are behind the last group.
    place = np.where(data.seen, share.round(DECIMALS), np.inf)
    ordered, count = np.sort(place, axis=0), data.seen.sum(0)
    parts = np.clip(count // LEAST_IN_GROUP, 1, MOST_GROUPS)
    last = np.minimum(np.arange(1, MOST_GROUPS + 1)[:, None] * count // parts, count)
    edges = np.take_along_axis(ordered, np.maximum(last - 1, 0), axis=0)
    below = [(place <= edge) & data.seen for edge in edges]
    terms = np.ones(share.shape), is_right, share
    count, right, expected = (
        np.diff([(x * part).sum(0) for part in below], axis=0, prepend=0).T
        for x in terms
    )
    return _fit_of_groups(right, expected / np.maximum(count, 1), count, num_parameters)


@dataclasses.dataclass(frozen=True)
class MisfitEffect:
    """How far subjects move without the items that misfit.

    Abilities are posterior means with the items' parameters fixed. Fewer items move
    subjects in any case: `random_` is the mean of random choices of as many items.

    Attributes:
        misfitting: Items that misfit.
        num_items: All items.
        left_out: Items left out: those that misfit, at most half of all, the largest
            RMSD first.
        num_subjects: Subjects.
        places: Median number of places that a subject moves.
        correlation: Rank correlation of abilities with and without these items.
        ability: Root mean square change of abilities, in their standard deviations.
        random_places: `places` without as many random items.
        random_correlation: `correlation` without as many random items.
        random_ability: `ability` without as many random items.
    """

    misfitting: int
    num_items: int
    left_out: int
    num_subjects: int
    places: float
    correlation: float
    ability: float
    random_places: float
    random_correlation: float
    random_ability: float

    def __str__(self) -> str:
        part = f"{self.misfitting:,} of {counted(self.num_items, 'item')}"
        if not self.misfitting:
            return f"{part} misfit"
        items = f"the items that misfit ({part})"
        if self.left_out < self.misfitting:
            items = f"the {self.left_out:,} items that misfit most ({part} misfit)"
        return (
            f"Without {items} a subject moves {self.places:.0f} of"
            f" {self.num_subjects:,} places in the median (rank correlation"
            f" {self.correlation:.3f}); without as many random items"
            f" {self.random_places:.0f} ({self.random_correlation:.3f})"
        )


def misfit_effect(
    data: NodeLikelihood, misfits: np.ndarray, rmsd: np.ndarray, seed: int = 0
) -> MisfitEffect:
    """Ranks and abilities without the items that misfit.

    Args:
        data: Responses and the model.
        misfits: `[items]` whether an item misfits.
        rmsd: `[items]` size of misfit.
        seed: Seed of the random choices of items.
    """
    size, num_subjects = misfits.size, len(data.values)
    count = int(misfits.sum())
    left_out = min(count, int(MOST_LEFT_OUT * size))
    if not left_out:
        none = (0.0, 1.0, 0.0)
        return MisfitEffect(count, size, 0, num_subjects, *none, *none)
    order = np.argsort(np.where(misfits, -np.nan_to_num(rmsd), np.inf), kind="stable")
    whole = data.ability()
    ranks, sd = rankdata(whole), whole.std()

    def moved(places: np.ndarray) -> tuple[float, float, float]:
        """Median places, rank correlation and change of ability without items."""
        ability = data.ability(~np.isin(np.arange(size), places))
        other = rankdata(ability)
        change = np.sqrt(np.mean((ability - whole) ** 2)) / max(sd, 1e-12)
        correlation = np.corrcoef(ranks, other)[0, 1] if np.ptp(other) else 0.0
        return float(np.median(np.abs(ranks - other))), correlation, change

    random = np.random.default_rng(seed)
    drawn = [moved(random.permutation(size)[:left_out]) for _ in range(DRAWS)]
    means = np.mean(drawn, 0).tolist()
    return MisfitEffect(
        count, size, left_out, num_subjects, *moved(order[:left_out]), *means
    )
