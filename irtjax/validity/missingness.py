r"""Which items are missing more often for weak, or for strong, subjects.

Responses y are explained by a subject effect plus an item effect, by least squares over
the observed cells, so that subjects who met other items can be compared. With m_k the
item effects, the ability of subject i without item j is

    s_ij = mean over the observed k != j of (y_ik - m_k),

of variance tau^2 + v / n_ij over subjects: tau^2 and v are those of a one-way analysis
of variance, n_ij the number of responses in the mean. Divided by its standard
deviation, s_ij has the same mean and variance for all subjects, however many responses
they have.

If whether j is missing does not depend on ability, every choice of the subjects whose
response is missing is equally likely: a permutation test of the sum of s_ij over them,
exact up to 14 subjects, and else with the exact mean, variance and skewness
(`irtjax.numerics.tails`). The item itself is left out of s_ij, since its response is
known for those only who are not missing. Where a subject's rate of missing responses
has nothing to do with its ability, this holds too, as abilities are then exchangeable.

The test is of the association alone. It cannot find responses that are missing because
of what they would have been: given ability, no data are about them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.calibration.discrimination import FALSE_DISCOVERY_RATE, item_blocks
from irtjax.calibration.tables import number_column
from irtjax.data import ResponseTable, read
from irtjax.data.wording import percent
from irtjax.numerics.tails import permutation_tails
from irtjax.ranking.discoveries import benjamini_hochberg

if TYPE_CHECKING:
    import pyarrow as pa

#: Subjects below which nothing is tested.
FEWEST = 3
#: Cells of a block of subjects by items; its arrays stay in the processor's cache.
BLOCK = 200_000
#: Rounds of the least squares, and the change of a subject effect that ends them.
ROUNDS, CHANGE = 100, 1e-6
#: Items that a sentence names.
SHOWN = 5


class MissingByAbility(NamedTuple):
    """Missing responses of each item and ability, each `[items]`.

    `difference` and `p_value` are NaN for items that nobody or everybody misses, and
    `difference` where abilities have no variance beyond that of their errors.
    """

    missing: np.ndarray  # Subjects without a response.
    difference: np.ndarray  # Their mean ability less that of the others, in sds.
    p_value: np.ndarray  # Two-sided.
    weak: np.ndarray  # Whether their mean ability is the lower one.

    def more_for(self, level: float) -> np.ndarray:
        """For each item "weak", "strong" or None, at this false discovery rate."""
        adjusted = np.nan_to_num(benjamini_hochberg(self.p_value), nan=1.0)
        side = np.where(self.weak, "weak", "strong").astype(object)
        side[adjusted > level] = None
        return side


@dataclasses.dataclass(frozen=True, eq=False)
class Missingness:
    """Which items are missing more often for weak or for strong subjects.

    Attributes:
        table: A row for each item: `item`, `missing` (subjects without a response),
            `share_missing`, `difference` (the mean ability of these subjects less that
            of the others, in standard deviations of ability; null if either group is
            empty, or abilities do not vary), `p_value` (two-sided), `q_value` (adjusted
            by Benjamini and Hochberg) and `missing_more_for`: "weak", "strong" or null.
        false_discovery_rate: The level of these decisions.
        sentence: The result in words.
    """

    table: pa.Table
    false_discovery_rate: float
    sentence: str

    def __repr__(self) -> str:
        """The result in words."""
        return self.sentence


def missingness(
    data: ResponseTable | Any, *, false_discovery_rate: float = FALSE_DISCOVERY_RATE
) -> Missingness:
    """Tests for each item whether its missing responses depend on ability.

    Abilities are estimated without the item, so the test needs no model; see the module
    for the formula. An item that is missing more often for weak or for strong subjects
    is no bad item. If responses are missing because they would have been wrong, though,
    estimates are biased, and a fit cannot show it.

    Args:
        data: A `ResponseTable`, or what `irtjax.read` takes.
        false_discovery_rate: Level over the items (Benjamini and Hochberg 1995).

    Returns:
        A table of the items and a sentence.

    Raises:
        ValueError: If the rate is not between 0 and 1.

    >>> rng = np.random.default_rng(0)
    >>> ability, easy = rng.normal(size=(200, 1)), rng.normal(size=40)
    >>> right = 1.0 * (rng.random((200, 40)) < 1 / (1 + np.exp(-ability - easy)))
    >>> right[:, 3] = np.where(right[:, 3] == 0, np.nan, 1)  # Failed calls are lost.
    >>> right[rng.random((200, 40)) < 0.1] = np.nan
    >>> found = missingness(ResponseTable.from_arrays(right))
    >>> [row["item"] for row in found.table.to_pylist() if row["missing_more_for"]]
    ['item 4']
    """
    import pyarrow as pa

    table = data if isinstance(data, ResponseTable) else read(data)
    level = false_discovery_rate
    if not 0 < level < 1:
        raise ValueError(f"false_discovery_rate {level:g} is not between 0 and 1")
    found = missing_by_ability(*unit_responses(table))
    more_for = found.more_for(level)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist(), pa.string()),
        "missing": pa.array(found.missing),
        "share_missing": number_column(found.missing / max(table.num_subjects, 1)),
        "difference": number_column(found.difference),
        "p_value": number_column(found.p_value),
        "q_value": number_column(benjamini_hochberg(found.p_value)),
        "missing_more_for": pa.array(more_for.tolist(), pa.string()),
    }
    sentence = describe(found, table.items, level)
    return Missingness(pa.table(columns), level, sentence)


def unit_responses(table: ResponseTable) -> tuple[np.ndarray, np.ndarray | None]:
    """Responses from 0 to 1 `[subjects, items]`, 0 where missing, and the mask.

    Counts are shares of their trials; other responses are divided by the range of
    their item.

    >>> table = ResponseTable.from_arrays([[0, 1], [4, 3], [2, np.nan]])
    >>> unit_responses(table)[0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.5, 0.0]]
    """
    values, observed = table.values, table.observed
    if table.trials is not None:
        observed = table.trials > 0
        return values / np.maximum(table.trials, 1), observed
    if table.kind == "binary":
        return values, observed
    values = values.astype(np.float64)
    seen = np.ones(values.shape, bool) if observed is None else observed
    low = np.where(seen, values, np.inf).min(0, initial=np.inf)
    size = np.where(seen, values, -np.inf).max(0, initial=-np.inf) - low
    scaled = (values - np.where(np.isfinite(low), low, 0)) / np.where(size > 0, size, 1)
    return np.where(seen, scaled, 0), observed


def missing_by_ability(
    values: np.ndarray, observed: np.ndarray | None
) -> MissingByAbility:
    """The test of each item; see the module.

    `values` and `observed` are `[subjects, items]`, values of about 0 to 1 and 0 where
    missing.

    >>> complete = missing_by_ability(np.eye(3), None)
    >>> complete.missing.tolist(), complete.p_value.tolist()
    ([0, 0, 0], [nan, nan, nan])
    """
    size = values.shape[1]
    missing = np.zeros(size, np.int64)
    difference, p_value = np.full(size, np.nan), np.full(size, np.nan)
    weak = np.zeros(size, bool)
    if observed is None:
        return MissingByAbility(missing, difference, p_value, weak)
    missing = len(observed) - observed.sum(0)
    chosen = np.flatnonzero((missing > 0) & (missing < len(observed)))
    if not chosen.size or len(values) < FEWEST:
        return MissingByAbility(missing, difference, p_value, weak)
    rest = _additive(values, observed)
    for part, block, seen in item_blocks(values[:, chosen], observed[:, chosen], BLOCK):
        found, where = _block(block, seen, rest, rest.item[chosen[part]]), chosen[part]
        difference[where], p_value[where], weak[where] = found
    return MissingByAbility(missing, difference, p_value, weak)


class _Additive(NamedTuple):
    """Item effects, sums of response less item effect, responses, and variances."""

    item: np.ndarray  # [items]
    total: np.ndarray  # [subjects]
    answers: np.ndarray  # [subjects]
    between: float  # tau^2
    within: float  # v


def _block(values, seen, rest: _Additive, item) -> tuple[np.ndarray, ...]:
    """Differences, p-values and whether they are below 0, of a block of items."""
    # The response of an item is no part of the ability that it is compared with.
    count = rest.answers[:, None] - seen
    known = count > 0
    own = np.where(seen, values - item, 0)
    score = (rest.total[:, None] - own) / np.maximum(count, 1)
    variance = rest.between + rest.within / np.maximum(count, 1)
    missing = ~seen & known
    upper, lower = permutation_tails(missing, known, score / np.sqrt(variance))
    varied = missing.any(0) & seen.any(0)
    both = np.minimum(1, 2 * np.minimum(upper, lower))
    means = []
    for group in (missing, seen & known):
        weight = np.where(group, 1 / variance, 0)
        means.append((weight * score).sum(0) / np.maximum(weight.sum(0), 1e-300))
    # Precision-weighted, so abilities known from few responses do not shrink it.
    apart = means[0] - means[1]
    sd = np.sqrt(rest.between) if rest.between > 0 else np.nan
    return (
        np.where(varied, apart / sd, np.nan),
        np.where(varied, both, np.nan),
        apart < 0,
    )


def _additive(values: np.ndarray, observed: np.ndarray) -> _Additive:
    """Effects of subjects and items by least squares, and variances of abilities."""
    answers, count = observed.sum(1).astype(float), observed.sum(0)
    by_row, by_item = values.sum(1, dtype=float), values.sum(0, dtype=float)
    subject = np.zeros(len(values))
    item, total = by_item, by_row
    for _ in range(ROUNDS):
        item = (by_item - _product(observed.T, subject)) / np.maximum(count, 1)
        total = by_row - _product(observed, item)
        old, subject = subject, total / np.maximum(answers, 1)
        if np.abs(subject - old).max() < CHANGE:
            break
    # One-way analysis of variance of response less item effect, by subject.
    square = np.zeros(len(values))
    for start, rows in _rows(values):
        part = np.where(observed[rows], values[rows] - item, 0)
        square[start : start + len(part)] = np.sum(part**2, axis=1)
    cells, some = answers.sum(), int(np.sum(answers > 0))
    within = np.sum(square - total * subject) / max(cells - some, 1)
    centre = np.sum(answers * subject) / cells
    between = np.sum(answers * (subject - centre) ** 2) - (some - 1) * within
    between /= max(cells - np.sum(answers**2) / cells, 1)
    within, between = max(float(within), 1e-12), max(float(between), 0.0)
    # A subject with few responses counts less in the centre of abilities.
    weight = np.where(answers > 0, 1 / (between + within / np.maximum(answers, 1)), 0)
    centre = np.sum(weight * subject) / max(weight.sum(), 1e-300)
    return _Additive(item, total - centre * answers, answers, between, within)


def _rows(matrix: np.ndarray):
    """Blocks of rows."""
    height = max(1, 4_000_000 // max(matrix.shape[1], 1))
    for start in range(0, len(matrix), height):
        yield start, slice(start, start + height)


def _product(mask: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """A mask times a vector, in blocks: a mask of numbers takes eight times as much."""
    parts = [mask[rows] @ vector for _, rows in _rows(mask)]
    return np.concatenate(parts) if parts else np.zeros(0)


def describe(found: MissingByAbility, items: np.ndarray, level: float) -> str:
    """The test in words; `items` are names `[items]`."""
    if not found.missing.any():
        return "No response is missing."
    tested = int(np.isfinite(found.p_value).sum())
    more_for, rate = found.more_for(level), percent(level)
    if not tested:
        return "No item was answered by some subjects and not by others."
    noun = "item" if tested == 1 else "items"
    parts = []
    for side in ("weak", "strong"):
        which = np.flatnonzero(more_for == side)
        which = which[np.argsort(found.p_value[which], kind="stable")]
        if which.size:
            names = [" ".join(str(x).split())[:80] for x in items[which[:SHOWN]]]
            left = f" and {which.size - SHOWN:,} more" if which.size > SHOWN else ""
            verb = "is" if which.size == 1 else "are"
            parts.append(
                f"{which.size:,} {verb} missing more often for {side} subjects"
                f" ({', '.join(names)}{left})"
            )
    if not parts:
        return (
            f"Of {tested:,} {noun} with missing responses, none is missing more often"
            f" for weak or for strong subjects (false discovery rate {rate})."
        )
    return (
        f"Of {tested:,} {noun} with missing responses, {' and '.join(parts)} (false"
        f" discovery rate {rate}). An item is not bad for that, but estimates are"
        " biased if responses are missing because they would have been wrong."
    )
