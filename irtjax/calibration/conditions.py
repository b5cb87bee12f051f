"""Conditions on the comparison of two subjects, as a gate of an evaluation has them.

    condition = side ("<" | ">") side
    side      = ["-"] term {("+" | "-") term}
    term      = number ["%"] | name | quantity "(" name ")" | chance
    chance    = "P(" name ("<" | ">") name ")"
    quantity  = "ability" | "score" | "accuracy"

A name is that of one of the two subjects, in quotes where it has other signs, or A for
the first and B for the second of them; without a quantity it is an ability. All terms
moved to the left and all numbers to the right, a condition is "d < c" or "d > c", where
d is a quantity of one subject, the difference of a quantity of both, or a probability.

A condition on a quantity is a two-sided test of d = c at 1 - level. It holds where d is
significantly on its side of c, does not hold where d is significantly on the other, and
is undecided otherwise. Where d equals c it holds with probability (1 - level) / 2. A
condition on a probability is compared as it is: the probability has the error in it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

from irtjax._types import Status
from irtjax.calibration.compare import compare
from irtjax.calibration.tables import OWN, ability_interval, floats, score_interval
from irtjax.data.matching import find_names
from irtjax.data.wording import percent
from irtjax.models.model import response_ends, response_size
from irtjax.ranking.accuracy import difference_p_value

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

Quantity = Literal["ability", "score", "accuracy", "probability"]
Outcome = Literal["holds", "does not hold", "undecided"]
#: Columns of the ability table.
_COLUMNS = {"ability": "ability", "score": "expected_score", "accuracy": "accuracy"}
#: The longest condition that is read; names of subjects can be long.
LONGEST = 4000
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?\s*(%)?")
_FUNCTION = re.compile(r"(ability|score|accuracy|P)\s*\(")
_WORD = re.compile(r"[^\s<>()+]+")
_EXAMPLES = "A < B, A - B < -0.1, P(A < B) > 0.9, or accuracy(A) < 0.7"


class Verdict(NamedTuple):
    """What a condition comes to.

    Attributes:
        condition: The condition as it was written.
        outcome: Whether it holds.
        estimate: The estimate of the left side, all terms moved there.
        lower, upper: Ends of its interval; None of a probability.
        threshold: The number that it is compared with.
        p_value: Two-sided p-value of their equality; None of a probability.
        level: Level of the test and the interval.
        reason: The numbers behind the outcome, in words.
        tested: Whether the test decided; not if the fit has not converged.
    """

    condition: str
    outcome: Outcome
    estimate: float
    lower: float | None
    upper: float | None
    threshold: float
    p_value: float | None
    level: float
    reason: str
    tested: bool = True


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition that was read: `quantity` of `subjects`, compared with a number.

    Attributes:
        text: As it was written.
        quantity: What is compared.
        subjects: One subject, or two: the first less the second. Of a probability: the
            one that is greater, and the other.
        less: Whether it holds below the threshold.
        threshold: The number.
    """

    text: str
    quantity: Quantity
    subjects: tuple[str, ...]
    less: bool
    threshold: float

    @property
    def needs_data(self) -> bool:
        """Whether the responses are needed: only they pair two accuracies by item."""
        return self.quantity == "accuracy" and len(self.subjects) == 2


def parse_condition(text: str, first: str, second: str) -> Condition:
    """Reads a condition on two subjects; see the module for what can be written.

    Args:
        text: The condition.
        first: Name of the subject that A stands for.
        second: Name of the subject that B stands for.

    Returns:
        The condition.

    Raises:
        ValueError: In one line, if it is not of the form, or names someone else.

    >>> found = parse_condition("new - old < -10 %", "new", "old")
    >>> found.quantity, found.subjects, found.less, found.threshold
    ('ability', ('new', 'old'), True, -0.1)
    >>> parse_condition("0.9 < P(B > A)", "new", "old").subjects
    ('old', 'new')
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(f"it is longer than {LONGEST:,} characters")
        # Names of a table of NumPy would be shown as np.str_('...').
        return _Reader(text, str(first), str(second)).condition()
    except ValueError as error:
        shown = text if len(text) < 80 else f"{text[:77]}..."
        raise ValueError(f"condition {shown!r}: {error}") from None


class _Term(NamedTuple):
    """A quantity of a subject, or of two for a probability."""

    quantity: Quantity
    subjects: tuple[str, ...]


class _Reader:
    """Reads a condition from left to right."""

    def __init__(self, text: str, first: str, second: str) -> None:
        self.text, self.place = text, 0
        # Names win over letters, and long names over those that they begin with.
        names = {"A": first, "B": second} | {first: first, second: second}
        self.names = dict(sorted(names.items(), key=lambda pair: -len(pair[0])))

    def condition(self) -> Condition:
        """The condition, its terms on the left and its number on the right."""
        terms, constant = self.side()
        sign = self.sign("<>")
        if not sign:
            raise self.error("a < or > is missing")
        if self.sign("="):
            raise ValueError("write < or >: equal estimates are never significant")
        others, other = self.side()
        if self.rest():
            raise self.error("this is too much")
        terms += [(-times, term) for times, term in others]
        less, threshold = sign == "<", other - constant
        # One term, or two of the same quantity, the positive one first.
        terms.sort(key=lambda pair: -pair[0])
        if not terms:
            raise ValueError("it names neither of the two subjects")
        signs, measured = [times for times, _ in terms], [term for _, term in terms]
        if signs == [-1]:
            less, threshold, signs = not less, -threshold, [1]
        quantity = measured[0].quantity
        if signs == [1]:
            if quantity == "probability" and not 0 < threshold < 1:
                raise ValueError("compare a probability with a number between 0 and 1")
            return Condition(
                self.text, quantity, measured[0].subjects, less, _plain(threshold)
            )
        if signs != [1, -1] or quantity != measured[1].quantity:
            raise ValueError(f"compare two of the same quantity, as in {_EXAMPLES}")
        if quantity in ("score", "probability"):
            raise ValueError(
                f"compare a {quantity} with a number, and two subjects by ability or"
                " accuracy: only their differences have an error here"
            )
        subjects = measured[0].subjects + measured[1].subjects
        if subjects[0] == subjects[1]:
            raise ValueError(f"{subjects[0]!r} is compared with itself")
        return Condition(self.text, quantity, subjects, less, _plain(threshold))

    def side(self) -> tuple[list[tuple[int, _Term]], float]:
        """Terms of one side with their signs, and the sum of its numbers."""
        terms: list[tuple[int, _Term]] = []
        constant, sign = 0.0, self.sign("+-") or "+"
        while sign:
            times = 1 if sign == "+" else -1
            term = self.term()
            if isinstance(term, _Term):
                terms.append((times, term))
            else:
                constant += times * term
            sign = self.sign("+-")
        return terms, constant

    def term(self) -> _Term | float:
        """A number, or a quantity of a subject."""
        name = self.name()
        if name is not None:
            return _Term("ability", (name,))
        number = _NUMBER.match(self.text, self.place)
        if number:
            self.place = number.end()
            if _WORD.match(self.text, self.place) and self.text[self.place] != "-":
                self.place = number.start()
                raise self.unknown()
            digits, power, percent = number.groups()
            # Powers of ten beyond these are no number that is meant.
            if power and abs(int(power[:6])) > 300:
                raise self.error("this number is too large or too small")
            value = float(digits) * 10.0 ** int(power or 0) / (100 if percent else 1)
            if not math.isfinite(value):
                raise self.error("this number is too large")
            return value
        function = _FUNCTION.match(self.text, self.place)
        if not function:
            raise self.unknown()
        self.place = function.end()
        subject = self.named()
        if function[1] != "P":
            self.expect(")")
            return _Term(function[1], (subject,))  # pyright: ignore[reportArgumentType]
        sign = self.sign("<>")
        if not sign:
            raise self.error("write P(A < B) or P(A > B)")
        pair = subject, self.named()
        self.expect(")")
        if pair[0] == pair[1]:
            raise ValueError(f"{pair[0]!r} is compared with itself")
        return _Term("probability", pair if sign == ">" else pair[::-1])

    def named(self) -> str:
        """A name where there must be one."""
        name = self.name()
        if name is None:
            raise self.unknown()
        return name

    def name(self) -> str | None:
        """The subject that is named here, or None."""
        rest = self.rest()
        for quote in "'\"":
            inside, end, _ = rest[1:].partition(quote)
            if rest.startswith(quote) and end:
                if inside not in self.names:
                    raise self.stranger(inside)
                self.place += len(inside) + 2
                return self.names[inside]
        for written, name in self.names.items():
            if not (written and rest.startswith(written)):
                continue
            after = rest[len(written) : len(written) + 1]
            # Otherwise it is the beginning of another name.
            if not after or after in "<>)" or after.isspace():
                self.place += len(written)
                return name
        return None

    def sign(self, among: str) -> str:
        """The next sign, if it is among these; else nothing."""
        rest = self.rest()
        if not rest or rest[0] not in among:
            return ""
        self.place += 1
        self.rest()
        return rest[0]

    def expect(self, sign: str) -> None:
        """Refuses anything but a sign."""
        if not self.sign(sign):
            raise self.error(f"a {sign} is missing")

    def rest(self) -> str:
        """What is left, without space before it."""
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
        return self.text[self.place :]

    def unknown(self) -> ValueError:
        """The error of a word that is not known."""
        word = _WORD.match(self.text, self.place)
        if not word:
            return self.error("a name or a number is missing")
        return self.stranger(word[0])

    def stranger(self, word: str) -> ValueError:
        """The error of a name that is of neither subject."""
        names = " nor ".join(repr(x) for x in self.names)
        cure = "put spaces around -" if "-" in word[1:] else f"write {_EXAMPLES}"
        return ValueError(f"{word!r} is neither {names} nor a number: {cure}")

    def error(self, message: str) -> ValueError:
        """An error with the place where it was found."""
        rest = self.rest()
        where = f"at {rest[:20]!r}" if rest else "at the end"
        return ValueError(f"{message} {where}; write {_EXAMPLES}")


def judge(
    condition: Condition,
    fit: Calibration,
    *,
    data: Any = None,
    level: float | None = None,
) -> Verdict:
    """Judges a condition by a fit.

    Args:
        condition: The condition.
        fit: The calibration that has the subjects.
        data: The responses, as for `irtjax.compare`; needed to compare two accuracies.
        level: Level of the test; None takes that of the calibration. The accuracy of
            one subject has an interval at the level of the calibration only.

    Returns:
        The verdict. Where the fit has not converged, all but accuracies is undecided.

    Raises:
        ValueError: If the fit, or the responses, lack what the condition needs.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> judge(parse_condition("A < B", "subject 1", "subject 2"), fit).outcome
    'undecided'
    """
    level = fit.level if level is None else level
    if not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")
    measure = _of_one if len(condition.subjects) == 1 else _of_two
    measured = measure(condition, fit, level, data)
    if not np.isfinite([measured.estimate, measured.lower, measured.upper]).all():
        raise ValueError(
            f"condition {condition.text!r}: this fit has no error of the"
            f" {condition.quantity} to judge it by"
        )
    place, exact = condition.threshold, condition.quantity == "probability"
    below, above = measured.upper < place, measured.lower > place
    if measured.by_p_value:
        significant = measured.p_value is not None and measured.p_value <= 1 - level
        below = significant and measured.estimate < place
        above = significant and measured.estimate > place
    good, bad = (below, above) if condition.less else (above, below)
    outcome: Outcome = "holds" if good else "does not hold" if bad else "undecided"
    if exact and outcome == "undecided":  # It equals the number.
        outcome = "does not hold"
    reason = _reason(condition, measured, level)
    tested = Status(int(fit.status)) == Status.CONVERGED
    tested |= condition.quantity == "accuracy"
    if not tested:
        outcome, reason = "undecided", f"the fit has not converged ({reason})"
    return Verdict(
        condition.text,
        outcome,
        measured.estimate,
        None if exact else measured.lower,
        None if exact else measured.upper,
        place,
        measured.p_value,
        level,
        reason,
        tested,
    )


class _Measured(NamedTuple):
    """An estimate with its interval, and its test against the threshold.

    `by_p_value`: whether that decides, not the interval. The interval of a difference
    of abilities has the error of the scale of ability, on which no order depends.
    """

    estimate: float
    lower: float
    upper: float
    p_value: float | None = None
    by_p_value: bool = False


def _of_two(condition: Condition, fit: Calibration, level: float, data) -> _Measured:
    """A difference of two subjects, or the probability that one is greater."""
    if condition.needs_data and data is None:
        raise ValueError(
            f"condition {condition.text!r}: the difference of two accuracies is paired"
            " by item, which needs the responses: data="
        )
    data = data if condition.needs_data else None
    result = compare(fit, *condition.subjects, data=data, level=level)
    if condition.quantity == "probability":
        chance = result.probability_greater
        return _Measured(chance, chance, chance)
    place = condition.threshold
    if condition.quantity == "ability":
        p_value = result.p_value
        if place:
            z = (result.difference - place) / result.standard_error
            p_value = float(2 * ndtr(-abs(z)))
        ends = result.lower, result.upper
        return _Measured(
            result.difference, *ends, p_value=p_value, by_p_value=not place
        )
    difference, error = result.accuracy_difference, result.accuracy_se
    low, high = result.accuracy_lower, result.accuracy_upper
    p_value, clusters = result.accuracy_p_value, result.clusters or 0
    if difference is None or error is None or low is None or high is None:
        raise ValueError(
            f"condition {condition.text!r}: the two have fewer than two items in common"
        )
    if place:
        size = response_size(fit.model)
        p_value = difference_p_value(difference, error, clusters, place=place, top=size)
    return _Measured(difference, low, high, p_value)


def _of_one(condition: Condition, fit: Calibration, level: float, _) -> _Measured:
    """A quantity of one subject, with the interval that the ability table has."""
    row = find_names(fit.subject_names, condition.subjects, "subject")
    name = _COLUMNS[condition.quantity]
    names = [name + end for end in ("", "_se", "_lower", "_upper")]
    if condition.quantity == "ability":
        names[2:] = ["lower", "upper"]
    value, error, low, high = (
        float(x[row[0]]) for x in floats(fit.abilities.table, *names)
    )
    if level == fit.level:
        return _Measured(value, low, high)
    if condition.quantity == "accuracy":
        raise ValueError(
            f"condition {condition.text!r}: the accuracy of one subject has an interval"
            f" at the level of the fit, {fit.level:g}, only: leave level= out"
        )
    mean, count = (x[row] for x in floats(fit.abilities.table, *OWN))
    numbers, own = (np.array([value]), np.array([error])), (mean, count)
    if condition.quantity == "ability":
        lower, upper = ability_interval(fit, *numbers, level, own=own)
    else:
        ends = response_ends(fit.model)
        lower, upper = score_interval(*numbers, **ends, level=level, own=own)
    return _Measured(value, float(lower[0]), float(upper[0]))


def _reason(condition: Condition, measured: _Measured, level: float) -> str:
    """The numbers behind an outcome."""
    names = condition.subjects
    if condition.quantity == "probability":
        return f"P({names[0]} > {names[1]}) = {measured.estimate:.3f}"
    what = {"ability": "ability", "score": "expected score"}.get(condition.quantity)
    what = f"{what or 'accuracy'} of {names[0]}"
    if len(names) == 2:
        what += f" less that of {names[1]}"
    text = (
        f"{what} {_figure(measured.estimate)}, {percent(level)} interval"
        f" {_figure(measured.lower)} to {_figure(measured.upper)}"
    )
    return text if measured.p_value is None else f"{text}, p = {measured.p_value:.2g}"


def _figure(value: float) -> str:
    """A number with three decimals."""
    return f"{value:.3f}"


def _plain(value: float) -> float:
    """A number without the rounding of its sums, and no negative zero."""
    return round(value, 12) + 0.0
