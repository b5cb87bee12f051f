r"""Conditional maximum likelihood (CML) of the Rasch model and its kin.

With log weights -psi_jc of category c of item j (psi_j0 = 0), the chance of a
subject's responses given their sum r is free of ability (Rasch 1960; Andersen 1970;
Masters 1982):

    l_c = -sum_jc s_jc psi_jc - sum_r n_r log gamma_r(psi),

s_jc the number of responses c and n_r the number of subjects with sum r, those with the
least or the most that is possible left out. Partial credit has a psi for each category;
the rating scale (Andrich 1978) has psi_jc = c b_j + t_c, the t_c common to the items;
the Rasch model is either of them, of two categories. Subjects with the same items
missing share their gamma, so the likelihood is a sum over these patterns. Newton's
steps have exact second derivatives.

An item's difficulty is psi of its last category over the number of steps to it, the
mean of its thresholds; difficulties sum to 0. Where there are more than `MOST_PATTERNS`
patterns, the pairs of items are used (`conditional.pairs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irtjax.estimators.conditional.pairs import PairLikelihood
from irtjax.numerics.category_sums import log_gamma_of, moments_given_sums
from irtjax.numerics.symmetric_functions import chances_given_sum, log_symmetric

MODELS = ("rasch", "pcm", "rsm")
#: Patterns of missing responses up to which each has its own sums.
MOST_PATTERNS = 1_000
#: Newton steps, and the longest of them, in standard errors, that ends them; trials of
#: a step, each a quarter of the one before.
STEPS, TOLERANCE, TRIALS = 50, 1e-7, 10
#: Right and wrong items from which the first steps take responses given the sum as
#: independent: correlations are then about -1 / items. These steps end once one is
#: more than this share of the one before.
MANY_ITEMS, SHRINKING = 100, 0.5
#: Longest step of a parameter, and the largest error that an estimate may have.
LONGEST, LARGEST_ERROR = 3.0, 100.0


class ConditionalItems(NamedTuple):
    """Estimates of the items; difficulties sum to 0.

    Attributes:
        difficulty: `[items]`; NaN of items that are not used.
        covariance: `[items, items]`, 0 for those.
        log_likelihood: Conditional; of pairs the sum over pairs.
        used: `[items]` whether responses compare an item with the others.
        pairwise: Whether pairs were used.
        thresholds: `[items, categories - 1]` where a category and the one before are
            as likely; NaN next to a category without responses.
        num_parameters: Free ones.
    """

    difficulty: np.ndarray
    covariance: np.ndarray
    log_likelihood: float
    used: np.ndarray
    pairwise: bool
    thresholds: np.ndarray
    num_parameters: int

    @property
    def error(self) -> np.ndarray:
        """`[items]` standard errors, NaN where there is no estimate."""
        variance = np.diagonal(self.covariance)
        return np.where(self.used, np.sqrt(np.maximum(variance, 0)), np.nan)

    @property
    def log_weight(self) -> np.ndarray:
        """`[items, categories]` -psi of the items that are used."""
        steps = np.cumsum(self.thresholds[self.used], axis=1)
        weight = np.where(np.isfinite(steps), -steps, -np.inf)
        return np.concatenate([np.zeros((len(weight), 1)), weight], axis=1)


class _Pattern(NamedTuple):
    """Subjects who answered the same items, with a sum between."""

    items: np.ndarray
    sums: np.ndarray
    counts: np.ndarray


class _Parameters(NamedTuple):
    """How parameters make psi of the categories from the second on.

    Attributes:
        present: `[items, categories - 1]` which categories an item has.
        design: `[items * (categories - 1), parameters]`; None where each category that
            is present has its own parameter.
        shift: `[parameters]` by which a shift of all abilities moves them.
        place: `[items]` parameter of an item's difficulty, which is `scale` times it.
        scale: `[items]`.
    """

    present: np.ndarray
    design: np.ndarray | None
    shift: np.ndarray
    place: np.ndarray
    scale: np.ndarray

    def log_weight(self, values: np.ndarray) -> np.ndarray:
        """`[items, categories]` -psi."""
        weight = np.full(self.present.shape, -np.inf)
        if self.design is None:
            weight[self.present] = -values
        else:
            weight = -(self.design @ values).reshape(weight.shape)
        return np.concatenate([np.zeros((len(weight), 1)), weight], axis=1)

    def gradient(self, of_psi: np.ndarray) -> np.ndarray:
        """`[..., parameters]` derivatives, from those in psi."""
        if self.design is not None:
            return of_psi @ self.design
        return of_psi if self.present.all() else of_psi[..., self.present.ravel()]

    def information(self, of_psi: np.ndarray) -> np.ndarray:
        """`[parameters, parameters]` second derivatives, from those in psi."""
        return self.gradient(self.gradient(of_psi).T)


def informative(codes: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
    """`[subjects]` whether the sum is neither the least nor the most possible."""
    there = np.ones(codes.shape, bool) if seen is None else seen
    total = np.where(there, codes, 0).sum(axis=1)
    most = there @ _highest(codes, there)
    return (total > 0) & (total < most)


def _highest(codes: np.ndarray, there: np.ndarray) -> np.ndarray:
    """`[items]` highest category with responses."""
    return np.where(there, codes, 0).max(axis=0)


def fit_items(
    codes: np.ndarray, seen: np.ndarray | None = None, model: str = "rasch"
) -> ConditionalItems:
    """Conditional estimates of the items.

    Args:
        codes: `[subjects, items]` of categories 0, 1, ..., 0 where missing.
        seen: The same of what was observed; None if all was.
        model: "rasch" of two categories, "pcm" (partial credit) or "rsm" (rating
            scale).

    Raises:
        ValueError: If responses compare fewer than two items, items fall into sets that
            no subject compares, or an estimate is not finite.

    >>> right = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> (fit_items(right).difficulty.round(2) + 0).tolist()
    [-0.83, 0.0, 0.83]
    """
    codes = np.asarray(codes, np.int64)
    count, most = codes.shape[1], int(codes.max())
    used = _compared(codes, seen, model)
    codes = codes[:, used]
    there = None if seen is None else np.asarray(seen, bool)[:, used]
    if model != "rsm":
        # The lowest category of an item is its first.
        low = np.where(True if there is None else there, codes, most).min(axis=0)
        codes = codes - low if there is None else np.where(there, codes - low, 0)
    rows = informative(codes, there)
    codes, there = codes[rows], None if there is None else there[rows]
    numbers = _numbers(codes, there, most)
    parameters = _parameters(numbers, model)
    patterns = _patterns(codes, there)
    pairs = None
    if patterns is None:
        pairs = PairLikelihood(codes, there, most)
        value_of, derivatives = pairs.value, pairs.derivatives
    else:
        value_of, derivatives = _by_patterns(numbers, patterns)
    start = _start(numbers, parameters)
    if most == 1 and patterns is not None and len(start) >= MANY_ITEMS:
        start = _by_diagonal(numbers, patterns, start)
    values, information, value = _maximum(parameters, value_of, derivatives, start)
    covariance = _inverse(information, parameters.shift)
    if pairs is not None:
        scores = parameters.gradient(pairs.scores(parameters.log_weight(values)))
        covariance = covariance @ (scores.T @ scores) @ covariance
    values, covariance = _difficulties(parameters, values, covariance)
    variance = np.diagonal(covariance)
    if not (np.all(variance > 0) and variance.max() < LARGEST_ERROR**2):
        raise ValueError(
            "an item's difficulty is not finite: subjects who do well on it and badly"
            " on the others, or the reverse, are missing; use fewer categories"
            " (irtjax.fit with priors needs none of this)"
        )
    weight = parameters.log_weight(values)
    with np.errstate(invalid="ignore"):
        steps = -np.diff(weight, axis=1)
    thresholds = np.full((count, most), np.nan)
    thresholds[used] = np.where(np.isfinite(steps), steps, np.nan)
    difficulty, matrix = np.full(count, np.nan), np.zeros((count, count))
    difficulty[used] = parameters.scale * values[parameters.place]
    matrix[np.ix_(used, used)] = covariance
    free = len(values) - 1
    pairwise = pairs is not None
    return ConditionalItems(difficulty, matrix, value, used, pairwise, thresholds, free)


def _compared(codes: np.ndarray, seen: np.ndarray | None, model: str) -> np.ndarray:
    """`[items]` the largest set of items that subjects compare both ways.

    An item leads to another if a subject has more than the least on it, and less than
    the most on the other. Where no path leads back, the distance of the two is not
    finite (Fischer 1981); an item of one category is alone.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    there = np.ones(codes.shape, bool) if seen is None else np.asarray(seen, bool)
    high = _highest(codes, there)
    low = np.where(there, codes, high).min(axis=0)
    if model == "rsm":
        high, low = np.full_like(high, high.max()), np.zeros_like(low)
    above = (there & (codes > low)).astype(np.float32)
    below = (there & (codes < high)).astype(np.float32)
    # Without the graph: items that lead to one item and back, then those that lead to
    # any of these and back. Mostly these are all.
    core = np.arange(above.shape[1]) == np.argmin(np.abs(above.mean(0) - below.mean(0)))
    for _ in range(2):
        high_on, low_on = above[:, core].any(axis=1), below[:, core].any(axis=1)
        core |= (low_on @ above > 0) & (high_on @ below > 0)
    if core.all() and len(core) > 1:
        return core
    graph = csr_matrix(above.T @ below > 0)
    _, labels = connected_components(graph, connection="strong")
    sizes = np.bincount(labels)
    used = labels == np.argmax(sizes)
    if used.sum() < 2:
        raise ValueError(
            "fewer than two items have right and wrong responses of subjects with"
            " some of both: there is nothing to compare"
        )
    varied = above.any(axis=0) & below.any(axis=0)
    weak, _ = connected_components(graph[varied][:, varied], directed=False)
    if weak > 1:
        raise ValueError(
            f"items fall into {weak} sets that no subject compares: their difficulties"
            " are on no common scale; fit each alone"
        )
    return used


def _numbers(codes: np.ndarray, there: np.ndarray | None, most: int) -> np.ndarray:
    """`[items, most + 1]` numbers of responses in each category."""
    place = codes + np.arange(codes.shape[1]) * (most + 1)
    chosen = place.ravel() if there is None else place[there]
    size = codes.shape[1] * (most + 1)
    return np.bincount(chosen, minlength=size).reshape(-1, most + 1)


def _parameters(numbers: np.ndarray, model: str) -> _Parameters:
    """Parameters of a model for items with these numbers of responses."""
    items, size = len(numbers), numbers.shape[1] - 1
    category = np.arange(1, size + 1)
    present = numbers[:, 1:] > 0
    if model == "rsm":
        own = np.kron(np.eye(items), category[:, None])
        common = np.tile(np.eye(size)[:, : size - 1], (items, 1))
        shift = np.repeat([1.0, 0.0], [items, size - 1])
        design = np.concatenate([own, common], axis=1)
        place, one = np.arange(items), np.ones(items)
        return _Parameters(np.ones_like(present), design, shift, place, one)
    shift = np.tile(category, items)[present.ravel()].astype(float)
    last = np.cumsum(present.sum(axis=1)) - 1
    return _Parameters(present, None, shift, last, 1 / shift[last])


def _start(numbers: np.ndarray, parameters: _Parameters) -> np.ndarray:
    """Log shares of the categories, as parameters: within some tenths of the end."""
    share = np.log(np.maximum(numbers[:, :1], 0.5) / np.maximum(numbers[:, 1:], 0.5))
    if parameters.design is None:
        return share[parameters.present]
    weight = np.sqrt(numbers[:, 1:].ravel() + 0.5)
    scaled = parameters.design * weight[:, None]
    return np.linalg.lstsq(scaled, share.ravel() * weight, rcond=None)[0]


def _difficulties(
    parameters: _Parameters, values: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters so that difficulties sum to 0, and the difficulties' covariance."""
    weight = np.zeros(len(values))
    weight[parameters.place] = parameters.scale
    along = parameters.shift / (weight @ parameters.shift)
    values = values - along * (weight @ values)
    moved = covariance @ weight
    covariance = covariance - np.outer(along, moved) - np.outer(moved, along)
    covariance += np.outer(along, along) * (weight @ moved)
    own = covariance[np.ix_(parameters.place, parameters.place)]
    return values, own * np.outer(parameters.scale, parameters.scale)


def _patterns(codes: np.ndarray, seen: np.ndarray | None) -> list[_Pattern] | None:
    """Patterns of missing responses; None if there are too many."""
    total = codes.sum(axis=1)
    if seen is None:
        sums, counts = np.unique(total, return_counts=True)
        return [_Pattern(np.arange(codes.shape[1]), sums, counts.astype(float))]
    packed = np.packbits(seen, axis=1)
    keys, labels = np.unique(packed, axis=0, return_inverse=True)
    labels = labels.ravel()
    if len(keys) > MOST_PATTERNS:
        return None
    patterns = []
    for label in range(len(keys)):
        rows = labels == label
        sums, counts = np.unique(total[rows], return_counts=True)
        items = np.flatnonzero(seen[np.argmax(rows)])
        patterns.append(_Pattern(items, sums, counts.astype(float)))
    return patterns


def _by_patterns(numbers: np.ndarray, patterns: list[_Pattern]) -> tuple:
    """The log-likelihood of log weights, and its derivatives in psi."""
    responses = numbers[:, 1:].ravel()
    size = numbers.shape[1] - 1
    category = np.arange(size)

    def value_of(log_weight: np.ndarray) -> float:
        weight = np.where(np.isfinite(log_weight), log_weight, 0.0)
        value = float(responses @ weight[:, 1:].ravel())
        for items, sums, counts in patterns:
            value -= float(counts @ log_gamma_of(log_weight[items], sums))
        return value

    def derivatives(log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradient = -responses.astype(float)
        information = np.zeros((len(responses), len(responses)))
        for items, sums, counts in patterns:
            place = (items[:, None] * size + category).ravel()
            first, second = moments_given_sums(log_weight[items], sums, counts)
            gradient[place] += first
            information[np.ix_(place, place)] += second
        return gradient, information

    return value_of, derivatives


def _by_diagonal(
    numbers: np.ndarray, patterns: list[_Pattern], values: np.ndarray
) -> np.ndarray:
    """Difficulties of right and wrong items after steps by their own variances."""
    length = np.inf
    for _ in range(STEPS):
        gradient = -numbers[:, 1].astype(float)
        variance = np.zeros(len(values))
        for items, sums, counts in patterns:
            difficulty = values[items]
            log_gamma = log_symmetric(difficulty)
            chances = chances_given_sum(difficulty, log_gamma, sums)
            gradient[items] += counts @ chances
            variance[items] += counts @ (chances * (1 - chances))
        step = gradient / np.maximum(variance, 1e-300)
        step -= step.mean()
        before, length = length, float(np.max(np.abs(step) * np.sqrt(variance)))
        if length > SHRINKING * before:
            break
        values = values + np.clip(step, -LONGEST, LONGEST)
        if length < TOLERANCE:
            break
    return values


def _maximum(
    parameters: _Parameters,
    value_of: Callable[[np.ndarray], float],
    derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Parameters by Newton's method, the information there, and the value."""
    along = parameters.shift / np.linalg.norm(parameters.shift)
    values, size = start - along * (along @ start), len(start)
    value = value_of(parameters.log_weight(values))
    information = np.eye(size)
    for _ in range(STEPS):
        gradient, information = derivatives(parameters.log_weight(values))
        gradient = parameters.gradient(gradient)
        information = parameters.information(information)
        # All abilities and items may move together: their mean is fixed.
        trace = np.trace(information)
        fixed = information + trace / size * np.outer(along, along)
        step = np.linalg.solve(fixed, gradient)
        if np.max(np.abs(step) * np.sqrt(np.diagonal(information))) < TOLERANCE:
            break
        step = np.clip(step, -LONGEST, LONGEST)
        trial, new = values, -np.inf
        for _ in range(TRIALS):
            trial = values + step - along * (along @ step)
            new = value_of(parameters.log_weight(trial))
            if new >= value - 1e-9 * abs(value):
                break
            step = step / 4
        values, value = trial, new
    return values, information, value


def _inverse(information: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The covariance of parameters that do not move along a shift."""
    from scipy.linalg import get_lapack_funcs

    along = shift / np.linalg.norm(shift)
    trace = np.trace(information) / len(information)
    # By Cholesky's factor: half of the operations of a general inverse.
    factorise, invert = get_lapack_funcs(("potrf", "potri"), (information,))
    factor, failed = factorise(information + trace * np.outer(along, along), lower=1)
    if failed:
        return np.full_like(information, np.nan)
    inverse = np.tril(invert(factor, lower=1)[0])
    inverse += np.tril(inverse, -1).T
    return inverse - np.outer(along, along) / trace
