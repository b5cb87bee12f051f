"""The comparison of two subjects in one line."""

from __future__ import annotations

from scipy.special import ndtr

from irtjax.calibration.leaderboard_text import points
from irtjax.ranking import Comparison
from irtjax.ranking.accuracy import PairedDifference
from irtjax.report.words import visible


def comparison_line(
    first: str,
    second: str,
    found: Comparison | PairedDifference,
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
        found: Their comparison; without a fit the paired difference of accuracies.
        level: 1 - the level of significance.
        items: The items that both answered, where `found` has no such number.
        unit: What clusters of items are called, where `found` has no such name.

    >>> import numpy as np
    >>> from irtjax.ranking.accuracy import paired_difference
    >>> found = paired_difference(np.array([[1, 1, 0, 1, 1], [1, 0, 1, 0, 1]]))
    >>> comparison_line("a", "b", found, items=5)
    'a − b: accuracy +.200 [−.839, +1.239], p .62 (5 paired items): tied, P(better) .70'
    """
    parts = []
    if isinstance(found, Comparison):
        if found.score_difference is not None:
            ends = found.score_lower, found.score_upper
            parts.append(f"score {_signed(found.score_difference, *ends)}")
        else:
            ends = found.lower, found.upper
            parts.append(f"ability {_signed(found.difference, *ends)}")
        paired = (found.accuracy_difference, found.accuracy_lower, found.accuracy_upper)
        accuracy_p, p_value, chance = (
            found.accuracy_p_value, found.p_value, found.probability_greater,
        )  # fmt: skip
        items, unit = found.shared, found.unit
    else:
        paired = found.difference, found.lower, found.upper
        accuracy_p = p_value = found.p_value
        size = found.difference / found.standard_error if found.standard_error else 0.0
        chance = float(ndtr(size))
        if not found.standard_error and found.difference:
            chance = 1 - p_value / 2 if found.difference > 0 else p_value / 2
    if paired[0] is not None:
        over = f"{items:,} paired items"
        if found.by_cluster:
            over += f" in {found.clusters:,} {unit}s"
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
    known = [x for x in (value, low, high) if x is not None]
    small = max(map(abs, known), default=0.0) <= 2
    texts = []
    for x in known:
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
