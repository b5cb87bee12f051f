"""The comparison of two subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from irtjax.data.frames import HasTable
from irtjax.data.responses import Responses
from irtjax.data.result_text import as_html, lines_below, with_level
from irtjax.data.wording import points, visible
from irtjax.ranking.accuracy import PairedDifference
from irtjax.ranking.pairs import checked, without_scale, z_rows

if TYPE_CHECKING:
    import pyarrow as pa


class Comparison(NamedTuple):
    """Two subjects, the first less the second.

    Attributes:
        difference: Difference of abilities.
        standard_error: Its standard error.
        lower, upper: Ends of its interval, by `standard_error`: it can contain 0 where
            `p_value` is small.
        z: Difference over its standard error given the scale of ability, which is
            smaller than `standard_error` where few subjects determine the scale.
        p_value: Two-sided p-value of z.
        probability_greater: P(first > second), normal around the estimates.
        shared: Items that both answered (None without responses, as all below).
        right_first, right_second: Sums of the two's responses on the shared items.
        only_first, only_second: Shared items on which the first, or second, did better.
        sign_p_value: Exact two-sided sign test of those two counts (McNemar's test
            for right or wrong responses): it needs no model.
        accuracy_difference: Difference of accuracies on the shared items.
        accuracy_se: Its paired standard error over items (`irtjax.ranking.accuracy`).
        accuracy_lower, accuracy_upper: Ends of its interval.
        accuracy_p_value: Two-sided p-value of its t; exact where `accuracy_se` is 0.
        clusters: Clusters that this error is over.
        by_cluster: Whether these are `unit`, else items.
        unit: What the labels of clusters are: "benchmark", or "cluster" where the fit
            has clusters of items.
        score_difference: Difference of expected scores on all items of the fit.
        score_lower, score_upper: Ends of its interval: it contains 0 if and only if
            `p_value` exceeds 1 - level.
        first, second: Names of the two.
        level: Level of the intervals.
    """

    difference: float
    standard_error: float
    lower: float
    upper: float
    z: float
    p_value: float
    probability_greater: float
    shared: int | None = None
    right_first: float | None = None
    right_second: float | None = None
    only_first: int | None = None
    only_second: int | None = None
    sign_p_value: float | None = None
    accuracy_difference: float | None = None
    accuracy_se: float | None = None
    accuracy_lower: float | None = None
    accuracy_upper: float | None = None
    accuracy_p_value: float | None = None
    clusters: int | None = None
    by_cluster: bool | None = None
    unit: str = "benchmark"
    score_difference: float | None = None
    score_lower: float | None = None
    score_upper: float | None = None
    first: str = "first"
    second: str = "second"
    level: float = 0.95

    def __repr__(self) -> str:
        """The difference in one line, folded to the width of the terminal."""
        return "\n".join(lines_below([self._line()]))

    def _line(self) -> str:
        return comparison_line(self.first, self.second, self, level=self.level)

    @property
    def table(self) -> pa.Table:
        """A row for each measure: difference, difference_se, lower, upper, p_value."""
        import pyarrow as pa

        ends = self.score_lower, self.score_upper
        score = (self.score_difference, None, *ends, self.p_value)
        ends = self.lower, self.upper
        ability = (self.difference, self.standard_error, *ends, self.p_value)
        ends = self.accuracy_lower, self.accuracy_upper
        accuracy = (self.accuracy_difference, self.accuracy_se, *ends)
        rows = {
            "expected_score": score,
            "accuracy": (*accuracy, self.accuracy_p_value),
            "ability": ability,
        }
        measures = {name: row for name, row in rows.items() if row[0] is not None}
        columns: dict[str, Any] = {"measure": list(measures)}
        names = ("difference", "difference_se", "lower", "upper", "p_value")
        numbers = zip(*measures.values(), strict=True)
        for name, values in zip(names, numbers, strict=True):
            columns[name] = pa.array(values, pa.float64())
        return with_level(pa.table(columns), self.level)

    # A named tuple derives from no other class.
    to_frame, to_json = HasTable.to_frame, HasTable.to_json

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return as_html(self.table, (), self._line(), ())


def compare(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    first: int,
    second: int,
    *,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    scale: Float[Array, " subjects"] | np.ndarray | None = None,
    level: float = 0.95,
    data: Responses | None = None,
) -> Comparison:
    """Compares two subjects: difference, standard error, z, p, P(first > second).

    Args:
        ability: Scores.
        standard_error: Their standard errors.
        first: Index of one subject.
        second: Index of the other.
        covariance: See `rank`.
        shared: See `rank`.
        scale: The part of the shared errors that stretches all abilities alike
            (`scale_loadings`). It counts in the interval, not in z and what follows
            from z: equal abilities are equal on every scale.
        level: Level of the interval.
        data: Adds sums of the responses to shared items and their exact sign test.

    Returns:
        The comparison.

    Raises:
        ValueError: If the indices are the same or out of range, or as for `rank`.

    >>> c = compare(np.array([1.0, 0.0]), np.array([0.3, 0.4]), 0, 1)
    >>> round(c.z, 3), round(c.probability_greater, 3)
    (2.0, 0.977)
    """
    theta, errors = checked(ability, standard_error, covariance, shared, level)
    for index in (first, second):
        if not 0 <= index < theta.size:
            raise ValueError(f"subject {index} is not one of 0 to {theta.size - 1}")
    if first == second:
        raise ValueError(f"subject {first} cannot be compared with itself")
    difference = float(theta[first] - theta[second])
    rows = np.array([first]), np.array([second])
    error = float(errors.standard_error(*rows)[0, 0])
    scale = None if scale is None else np.asarray(scale, float)
    own, rest = without_scale(errors.error, errors.shared, scale)
    tested = errors._replace(error=own, shared=rest)
    z = float(z_rows(theta, tested, *rows)[0, 0])
    half = float(ndtri(0.5 + level / 2)) * error
    ends = difference - half, difference + half
    p_value = float(2 * ndtr(-abs(z)))
    result = Comparison(difference, error, *ends, z, p_value, float(ndtr(z)))
    return result if data is None else _with_counts(result, data, [first, second])


def _with_counts(result: Comparison, data: Responses, rows: list[int]) -> Comparison:
    """Adds the comparison of responses to shared items."""
    from scipy.stats import binomtest

    values = np.asarray(data.values, np.float64)[rows]
    seen = np.ones(values.shape)
    if data.exposure is not None:
        seen = np.asarray(data.exposure, np.float64)[rows]
    shared = (seen > 0).all(axis=0)
    values, rate = values[:, shared], values[:, shared] / seen[:, shared]
    ahead, behind = int(np.sum(rate[0] > rate[1])), int(np.sum(rate[0] < rate[1]))
    unequal = ahead + behind
    return result._replace(
        shared=int(shared.sum()),
        right_first=float(values[0].sum()),
        right_second=float(values[1].sum()),
        only_first=ahead,
        only_second=behind,
        sign_p_value=float(binomtest(ahead, unequal).pvalue) if unequal else 1.0,
    )


def comparison_line(
    first: str,
    second: str,
    comparison: Comparison | PairedDifference,
    *,
    level: float = 0.95,
    items: int | None = None,
    unit: str = "",
) -> str:
    """Returns the difference of two subjects, first less second, as one line.

    The two are tied where the test of their abilities is not significant, or without a
    fit the paired test of accuracies.

    Args:
        first: Name of the first subject.
        second: Name of the second.
        comparison: Their comparison; without a fit the paired difference of accuracies.
        level: 1 - the level of significance.
        items: The items that both answered, where `found` has no such number.
        unit: What clusters of items are called, where `found` has no such name.

    >>> import numpy as np
    >>> from irtjax.ranking.accuracy import paired_difference
    >>> difference = paired_difference(np.array([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1]]))
    >>> comparison_line("a", "b", difference, items=5)
    'a − b: accuracy +.200 [−.839, +1.239], p .62 (5 paired items): tied, P(better) .70'
    """
    parts = []
    if isinstance(comparison, Comparison):
        if comparison.score_difference is not None:
            ends = comparison.score_lower, comparison.score_upper
            parts.append(f"score {_signed(comparison.score_difference, *ends)}")
        else:
            ends = comparison.lower, comparison.upper
            parts.append(f"ability {_signed(comparison.difference, *ends)}")
        paired = (
            comparison.accuracy_difference,
            comparison.accuracy_lower,
            comparison.accuracy_upper,
        )
        accuracy_p, p_value = comparison.accuracy_p_value, comparison.p_value
        chance = comparison.probability_greater
        items, unit = comparison.shared, comparison.unit
    else:
        paired = comparison.difference, comparison.lower, comparison.upper
        accuracy_p = p_value = comparison.p_value
        size = (
            comparison.difference / comparison.standard_error
            if comparison.standard_error
            else 0.0
        )
        chance = float(ndtr(size))
        if not comparison.standard_error and comparison.difference:
            chance = 1 - p_value / 2 if comparison.difference > 0 else p_value / 2
    if paired[0] is not None:
        over = f"{items:,} paired items"
        if comparison.by_cluster:
            over += f" in {comparison.clusters:,} {unit}s"
        parts.append(f"accuracy {_signed(*paired)}, p {_p_value(accuracy_p)} ({over})")
    else:
        parts[-1] += f", p {_p_value(p_value)}"
    end = f"tied, P(better) {_chance(chance)}"
    if p_value <= 1 - level:
        ahead, sure = (first, chance) if chance >= 0.5 else (second, 1 - chance)
        end = f"{visible(ahead)} is better, P {_chance(sure)}"
    return f"{visible(first)} − {visible(second)}: {'; '.join(parts)}: {end}"


def _signed(value: float | None, low: float | None, high: float | None) -> str:
    """A difference with its interval, with signs.

    >>> _signed(-0.002, -0.052, 0.047), _signed(0.0, None, None), _signed(12.5, 2, 30)
    ('−.002 [−.052, +.047]', '0.000', '+12.50 [+2.00, +30.00]')
    """
    numbers = [x for x in (value, low, high) if x is not None]
    small = max(map(abs, numbers), default=0.0) <= 2
    texts = []
    for x in numbers:
        text = points(x, 3 if small else 2)
        texts.append(text if text[0] == "−" else f"+{text}")
    texts = [("0" if small else "") + x[1:] if not float(x[1:]) else x for x in texts]
    return texts[0] + (f" [{texts[1]}, {texts[2]}]" if len(texts) > 1 else "")


def _p_value(value: float | None) -> str:
    """A p-value with two digits that count.

    >>> _p_value(0.92), _p_value(0.0034), _p_value(1e-9), _p_value(1.0)
    ('.92', '.003', '< .001', '1.00')
    """
    if value is None or value < 0.001:
        return "–" if value is None else "< .001"
    return points(value, 2 if value >= 0.1 else 3)


def _chance(value: float) -> str:
    """A probability, which is not certain.

    >>> _chance(0.51), _chance(0.9999)
    ('.51', '> .99')
    """
    if value > 0.995 or value < 0.005:
        return "> .99" if value > 0.5 else "< .01"
    return points(value, 2)
