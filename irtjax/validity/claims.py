r"""Claims about subjects: how probable they are, and what may be said.

A claim is a sentence such as "A > B". What is random is which items of their kind were
asked, and in which run: scores are means over the items, their errors paired
(`irtjax.ranking.accuracy`, `irtjax.ranking.paired`). A claim is supported where it is
wrong with a chance of at most 1 - level,

- of two subjects by Student's t of the paired differences, two-sided as
  `irtjax compare` is; "within" by two one-sided tests (Schuirmann 1987);
- of ranks by simultaneous rank sets (`irtjax.ranking.simultaneous`), which hold for
  all subjects together: it does no harm that the winner was chosen by its score;
- at every look at growing data, with `anytime`, by the wealth of bets on the items,

.. math:: E_t = \prod_{s \le t} (1 + \lambda_s d_s),

d the differences by item in random order and lambda a function of the earlier ones: if
the mean difference is not positive, E exceeds 1 / alpha with a chance of at most alpha
(Ville; Waudby-Smith and Ramdas 2024, JRSS B 86).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from irtjax.calibration.run_errors import check_run_sd, run_errors_of
from irtjax.data.frames import HasTable
from irtjax.data.matching import find_names
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, points, visible
from irtjax.numerics.seeds import seed_of
from irtjax.ranking.accuracy import accuracies, paired_difference
from irtjax.ranking.paired import paired_means
from irtjax.ranking.pairs import ScoreErrors
from irtjax.ranking.simultaneous import draw_errors, rank_sets, simultaneous_z
from irtjax.validity.alpha import alpha_of

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax._types import RandomKey
    from irtjax.calibration.calibration import Calibration

#: Power of the detectable difference and of the items that would decide.
POWER = 0.8
#: Random halves of the items in which a claim is looked at again.
HALVES = 200
#: Draws of all scores; behind rank sets as many as this number of differences allows.
DRAWS, MOST_DIFFERENCES = 10_000, 100_000_000
#: Largest share of the wealth in a bet: a loss of all of it would end the game.
LARGEST_BET = 0.9
#: Items beyond which no number of items is given.
MOST_ITEMS = 10**7
#: What can be claimed, for messages.
FORMS = (
    '"A > B", "A in top 3", "A is the best", "A within 2 points of B", "A cheaper than'
    ' B and no worse", "A beats the record", "A above 85"'
)

_NUMBER = r"(?P<number>\d+(?:\.\d+)?|\.\d+)"
#: Claims by their form; `B` is another subject.
_PATTERNS = {
    "within": rf"(?P<A>.+?) (?:is )?within {_NUMBER} points? of (?P<B>.+)",
    "no worse": r"(?P<A>.+?) (?:is )?cheaper than (?P<B>.+?) and no worse",
    "top": r"(?P<A>.+?) (?:is )?(?:in|among) (?:the )?top (?P<number>\d+)",
    "best": r"(?P<A>.+?) is (?:the )?best",
    "record": r"(?P<A>.+?) beats (?:the )?record",
    "above": rf"(?P<A>.+?)(?: (?:is above|above|beats) | ?> ?){_NUMBER}(?: ?%)?",
    "greater": r"(?P<A>.+?)(?: ?> ?| (?:is better than|beats) )(?P<B>.+)",
}


class Statement(NamedTuple):
    """A claim that is understood: its kind, subjects, and number."""

    kind: str
    first: str
    second: str | None
    number: float | None


class ClaimEvidence(NamedTuple):
    """What responses say of a claim; fields are those of `Claim`."""

    probability: float
    verdict: str
    estimate: float
    standard_error: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Claim(HasTable):
    """A claim and what may be said of it.

    Attributes:
        text: The claim.
        probability: That it holds, normal or t around the estimates; of anytime-valid
            claims 1 less the p-value.
        verdict: "supported", "refuted" or "open".
        estimate: Difference of two scores, score less a number, or rank of the first.
        standard_error: Of a difference; NaN of ranks.
        lower, upper: Ends of its interval, or of the simultaneous rank set.
        detectable: Least difference that these items find with power .8; NaN of ranks.
        items: Items that were shared.
        items_needed: Items of this kind that would find the estimated difference with
            power .8; None where it is 0 or more than ten million are needed.
        cost_needed: What the missing ones cost, where costs are known.
        corrected: Of ranks the score of the first, drawn to the mean by the
            reliability: the winner was chosen by luck too.
        halves: Share of random halves of the items in which the claim is true of the
            mean scores.
        alpha: Reliability of the scores.
        rebuttals: What could make the claim wrong and is not in the probability.
        level: Level of the verdict.
    """

    title = "Claim"

    text: str
    probability: float
    verdict: str
    estimate: float
    standard_error: float
    lower: float
    upper: float
    detectable: float
    items: int
    items_needed: int | None
    cost_needed: float | None
    corrected: float | None
    halves: float
    alpha: float
    rebuttals: tuple[str, ...]
    level: float

    @property
    def table(self) -> pa.Table:
        """The numbers of the claim, in a row."""
        import pyarrow as pa

        skipped = "rebuttals", "level"
        names = [x.name for x in dataclasses.fields(self) if x.name not in skipped]
        return pa.Table.from_pylist([{name: getattr(self, name) for name in names}])

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        chance = min(max(self.probability, 0.01), 0.99)
        sign = "" if chance == self.probability else ("< " if chance < 0.5 else "> ")
        ends = f"[{points(self.lower, 3)}, {points(self.upper, 3)}]"
        number = f"{points(self.estimate, 3)} {ends}"
        if math.isnan(self.standard_error):
            number = f"rank {self.estimate:.0f} [{self.lower:.0f}, {self.upper:.0f}]"
        return (
            f"{visible(self.text)}: {self.verdict}, P {sign}{points(chance, 2)};"
            f" {number} on {counted(self.items, 'item')}."
        )

    def report(self) -> str:
        """The claim on a page of Markdown: claim, data, warrant, backing, rebuttals."""
        lines = [f"# {self.text}", "", f"**{self.sentence}**", "", "## Data", ""]
        lines += [f"{counted(self.items, 'item')} that were answered.", ""]
        lines += ["## Warrant", "", _WARRANT, "", "## Backing", ""]
        lines += [
            f"- Reliability of the scores (alpha): {points(self.alpha, 2)}.",
            f"- The claim is true of {self.halves:.0%} of random halves of the items.",
        ]
        if not math.isnan(self.detectable):
            least = points(self.detectable, 3)
            lines.append(f"- A difference of {least} is found with power {POWER:.0%}.")
        if self.items_needed is not None:
            needed = f"- The estimated difference needs {self.items_needed:,} items"
            cost = self.cost_needed
            lines.append(f"{needed}{'' if cost is None else f', for {cost:,.2f}'}.")
        if self.corrected is not None:
            score = points(self.corrected, 3)
            lines.append(f"- Without the luck of the winner its score is {score}.")
        lines += ["", "## Rebuttals", "", *(f"- {x}" for x in self.rebuttals), ""]
        return "\n".join(lines)


_WARRANT = (
    "The items are a sample of their kind; scores are means over them, and errors are"
    " those of paired differences over items, or over benchmarks if there are five."
)


def claim(
    text: str,
    data: ResponseTable | Calibration | Any,
    *,
    level: float = 0.95,
    margin: float | None = None,
    record: float | None = None,
    costs: Mapping[str, float] | None = None,
    run_sd: float | None = None,
    anytime: bool = False,
    key: RandomKey | None = None,
) -> Claim:
    """Says whether a claim about subjects is supported by their responses.

    Args:
        text: The claim: "A > B", "A in top 3", "A is the best", "A within 2 points of
            B", "A cheaper than B and no worse", "A beats the record", "A above 85".
            Points are hundredths of scores from 0 to 1, else units of the score.
        data: Responses, or what `irtjax.read` takes.
        level: 1 less the chance of a wrong claim.
        margin: How much worse is no worse, in points; 1 by default.
        record: The score that "beats the record" means, in points; by default the
            record is the best of the other subjects.
        costs: Cost of each subject on all items, by name.
        run_sd: Standard deviation of a score from run to run, in points, that the
            responses do not show: one of coding agents exceeds 1.5 even at temperature
            0 (Bjarnason, Silva and Monperrus 2026, arXiv:2602.07150). It is added to
            each subject's error, as is what repeated runs show.
        anytime: Whether the verdict may be looked at after each batch of items, in
            their order, which must be random: for "A > B" and "A is the best".
        key: Seed of draws and halves; 0 by default.

    Raises:
        ValueError: The claim is not understood, names an unknown subject, or needs
            costs or items that are not there.

    >>> right = [[1, 1, 1, 1, 1, 0, 1], [0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 1, 0]]
    >>> table = ResponseTable.from_arrays(right, subjects=["a", "b", "c"])
    >>> claim("a > b", table).verdict, claim("b in top 2", table).verdict
    ('supported', 'open')
    """
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, such as 0.95, not {level}")
    table = _responses(data)
    statement = parse(text)
    run_sd = check_run_sd(run_sd)
    scores = _Scores.of(table, run_sd, level)
    rng = np.random.default_rng(seed_of(0 if key is None else key))
    first = scores.place(statement.first)
    second = None if statement.second is None else scores.place(statement.second)
    if first == second:
        raise ValueError(f"{statement.first!r} is compared with itself: name another")
    if anytime and statement.kind not in ("greater", "best"):
        raise ValueError('anytime is for "A > B" and "A is the best": leave it out')
    judge = _Judge(statement, scores, first, second, level, margin, record, costs, rng)
    evidence = judge.evidence()
    if anytime:
        evidence = judge.at_any_time(evidence)
    return judge.result(text, evidence, run_sd)


def parse(text: str) -> Statement:
    """Understands a claim.

    Raises:
        ValueError: It has none of the forms.

    >>> parse("gpt-4 within 2 points of claude")
    Statement(kind='within', first='gpt-4', second='claude', number=2.0)
    """
    words = " ".join(text.split()).removesuffix(".")
    for kind, pattern in _PATTERNS.items():
        match = re.fullmatch(pattern, words, re.IGNORECASE)
        if match:
            groups = match.groupdict()
            number = groups.get("number")
            number = None if number is None else float(number)
            return Statement(kind, groups["A"], groups.get("B"), number)
    raise ValueError(f"{text!r} is no claim that is understood: write {FORMS}")


def _responses(data: Any) -> ResponseTable:
    """The responses as a table."""
    if isinstance(data, ResponseTable):
        return data
    from irtjax.calibration.calibration import Calibration

    if isinstance(data, Calibration):
        raise ValueError("a claim is about responses: give them, or --fit DIR")
    from irtjax.data import read

    return read(data)


class _Scores(NamedTuple):
    """Mean scores with the responses behind them; `unit` is the size of a point."""

    table: ResponseTable
    values: np.ndarray
    exposure: np.ndarray | None
    benchmarks: np.ndarray | None
    top: float
    unit: float
    run: np.ndarray
    level: float

    @classmethod
    def of(cls, table: ResponseTable, run_sd: float, level: float) -> _Scores:
        """Those of a table; scores below 0 are moved to begin at 0."""
        if table.num_subjects < 2:
            raise ValueError("a claim needs two subjects or more")
        values = np.asarray(table.values, float)
        exposure = table.trials if table.trials is not None else table.observed
        low = min(float(values.min(initial=0)), 0.0)
        if low < 0:
            seen = 1 if exposure is None else np.asarray(exposure) > 0
            values = (values - low) * seen
        high = 1.0 if table.trials is not None else float(values.max(initial=0))
        unit = 0.01 if high <= 1 and low == 0 else 1.0
        benchmarks = table.benchmarks if (table.benchmarks != "").any() else None
        run = run_errors_of(table, run_sd, clusters=benchmarks)
        return cls(
            table, values, exposure, benchmarks, max(high, 1.0), unit, run, level
        )

    def place(self, name: str) -> int:
        """Number of a subject by its name."""
        return int(find_names(self.table.subjects, [name], "subject")[0])

    def items(self, chosen: np.ndarray) -> _Scores:
        """The scores on some items."""
        exposure = None if self.exposure is None else self.exposure[:, chosen]
        names = None if self.benchmarks is None else self.benchmarks[chosen]
        values = self.values[:, chosen]
        return self._replace(values=values, exposure=exposure, benchmarks=names)

    @property
    def means(self) -> np.ndarray:
        """Mean scores of all subjects; adjusted for items where some are missing."""
        if self.exposure is None:
            return self.values.mean(axis=1)
        seen = np.asarray(self.exposure, float)
        if (seen > 0).all():
            return (self.values / seen).mean(axis=1)
        means = paired_means(self.values, self.exposure, None, top=self.top).mean
        return means + self.values.sum() / seen.sum()

    def pair(self, first: int, second: int) -> tuple[float, float, float, int]:
        """Difference, its error, degrees of freedom, and shared items."""
        rows = [first, second]
        exposure = None if self.exposure is None else self.exposure[rows]
        paired = paired_difference(
            self.values[rows], exposure, self.benchmarks, top=self.top
        )
        if paired is None:
            names = self.table.subjects[rows].tolist()
            raise ValueError(f"{names[0]!r} and {names[1]!r} share fewer than 2 items")
        seen = True if exposure is None else (np.asarray(exposure) > 0).all(axis=0)
        shared = self.values.shape[1] if exposure is None else int(np.sum(seen))
        # Where all items differ alike, the error of one that does not.
        error = paired.standard_error or 0.5 * self.top / paired.clusters
        error = math.hypot(error, *self.run[rows])
        return paired.difference, error, paired.clusters - 1, shared

    def errors(self) -> tuple[np.ndarray, ScoreErrors]:
        """All mean scores with the errors of their differences."""
        paired = paired_means(
            self.values,
            self.exposure,
            self.benchmarks,
            top=self.top,
            level=self.level,
        )
        error = np.hypot(paired.standard_error, self.run)
        return paired.mean, ScoreErrors(error, None, paired.shared)

    def differences(self, first: int, second: int) -> np.ndarray:
        """Differences of two subjects on the items that both answered, by their top."""
        seen = np.ones(self.values.shape) if self.exposure is None else self.exposure
        seen = np.asarray(seen, float)[[first, second]]
        shared = (seen > 0).all(axis=0)
        each = self.values[[first, second]][:, shared] / seen[:, shared]
        return (each[0] - each[1]) / self.top


class _Judge(NamedTuple):
    """A statement with the scores by which it is judged."""

    statement: Statement
    scores: _Scores
    first: int
    second: int | None
    level: float
    margin: float | None
    record: float | None
    costs: Mapping[str, float] | None
    rng: np.random.Generator

    def evidence(self) -> ClaimEvidence:
        """The probability of the claim and the verdict."""
        kind, number = self.statement.kind, self.statement.number
        if kind in ("top", "best"):
            return self._ranked(int(number or 1))
        if kind == "record" and self.record is None:
            return self._ranked(1)
        if kind in ("above", "record"):
            return self._above((number if kind == "above" else self.record) or 0.0)
        assert self.second is not None
        difference, error, degrees, _ = self.scores.pair(self.first, self.second)
        quantile = float(stdtrit(degrees, 0.5 + self.level / 2))
        ends = difference - quantile * error, difference + quantile * error
        below = lambda x: float(stdtr(degrees, (x - difference) / error))
        estimates = difference, error, *ends
        if kind == "greater":
            return ClaimEvidence(
                1 - below(0), _verdict(ends[0] > 0, ends[1] < 0), *estimates
            )
        if kind == "within":
            size = float(number or 0) * self.scores.unit
            one = float(stdtrit(degrees, self.level)) * error
            inside = abs(difference) + one < size
            outside = abs(difference) - one > size
            chance = below(size) - below(-size)
            return ClaimEvidence(chance, _verdict(inside, outside), *estimates)
        size = (1.0 if self.margin is None else self.margin) * self.scores.unit
        cheaper = self._cheaper()
        chance = (1 - below(-size)) if cheaper else 0.0
        verdict = _verdict(ends[0] > -size, ends[1] < -size or not cheaper)
        return ClaimEvidence(chance, verdict, *estimates)

    def _cheaper(self) -> bool:
        """Whether the first costs less than the second."""
        costs = self.costs or {}
        names = self.statement.first, self.statement.second
        for name in names:
            if name not in costs:
                raise ValueError(f"there is no cost of {name!r}: give costs of both")
        return costs[names[0]] < costs[str(names[1])]

    def _ranked(self, most: int) -> ClaimEvidence:
        """A rank of at most `most`, by the simultaneous rank set."""
        theta, errors = self.scores.errors()
        if not 1 <= most < theta.size:
            raise ValueError(
                f"top {most} of {theta.size} subjects is no claim: name 1 to"
                f" {theta.size - 1}"
            )
        draws = min(DRAWS, max(1_000, MOST_DIFFERENCES // theta.size**2))
        critical = simultaneous_z(theta, errors, self.level, draws, self.rng)
        best, worst = (x[self.first] for x in rank_sets(theta, errors, critical))
        draws = theta + draw_errors(errors, theta.size, DRAWS, self.rng)
        above = (draws > draws[:, [self.first]]).sum(axis=1)
        verdict = _verdict(worst <= most, best > most)
        rank = 1.0 + int(np.sum(theta > theta[self.first] + 1e-12))
        chance = float(np.mean(above < most))
        return ClaimEvidence(chance, verdict, rank, math.nan, float(best), float(worst))

    def _above(self, number: float) -> ClaimEvidence:
        """A score above a number of points, by the error over items of one subject."""
        row = np.array([self.first])
        part = self.scores
        cells = part.table.select(subjects=row).stored
        own = accuracies(cells, part.benchmarks, top=part.top, level=self.level)
        mean, error = float(own.accuracy[0]), float(own.standard_error[0])
        run = float(part.run[self.first])
        error = math.hypot(error, run)
        gap = mean - number * part.unit
        half = float(ndtri(0.5 + self.level / 2)) * run
        ends = [x - number * part.unit for x in (own.lower[0], own.upper[0])]
        lower, upper = float(ends[0]) - half, float(ends[1]) + half
        chance = float(ndtr(gap / error)) if error > 0 else float(gap > 0)
        return ClaimEvidence(
            chance, _verdict(lower > 0, upper < 0), gap, error, lower, upper
        )

    def at_any_time(self, evidence: ClaimEvidence) -> ClaimEvidence:
        """The evidence by bets on the items in their order."""
        if self.statement.kind == "greater":
            others = [self.second]
        else:
            others = [k for k in range(len(self.scores.values)) if k != self.first]
        alpha = (1 - self.level) / 2
        gaps = [self.scores.differences(self.first, int(k or 0)) for k in others]
        for_it = max(anytime_p_value(gap) for gap in gaps)
        against = min(anytime_p_value(-gap) for gap in gaps) * len(gaps)
        verdict = _verdict(for_it <= alpha, against <= alpha)
        return evidence._replace(probability=1 - min(for_it, 1.0), verdict=verdict)

    def result(self, text: str, evidence: ClaimEvidence, run_sd: float) -> Claim:
        """The claim with what backs it, and what could rebut it."""
        scores, table = self.scores, self.scores.table
        ranked = math.isnan(evidence.standard_error)
        alpha = alpha_of(table)
        quantiles = float(ndtri(0.5 + self.level / 2) + ndtri(POWER))
        detectable = needed = cost = corrected = None
        shared = table.num_items
        if not ranked:
            detectable = quantiles * evidence.standard_error
            if self.second is not None:
                shared = scores.pair(self.first, self.second)[3]
            if evidence.estimate != 0:
                items = shared * (detectable / abs(evidence.estimate)) ** 2
                needed = math.ceil(items) if items <= MOST_ITEMS else None
            cost = self._cost(needed, shared)
        elif math.isfinite(alpha):
            mean = scores.means
            rho = min(max(alpha, 0.0), 1.0)
            corrected = float(rho * mean[self.first] + (1 - rho) * mean.mean())
        return Claim(
            text,
            evidence.probability,
            evidence.verdict,
            evidence.estimate,
            evidence.standard_error,
            evidence.lower,
            evidence.upper,
            math.nan if detectable is None else detectable,
            shared,
            needed,
            cost,
            corrected,
            self._halves(),
            alpha,
            self._rebuttals(run_sd),
            self.level,
        )

    def _cost(self, needed: int | None, shared: int) -> float | None:
        """Cost of the items that are missing; None where a cost is not known."""
        costs, names = self.costs or {}, (self.statement.first, self.statement.second)
        if needed is None or not all(name in costs for name in names if name):
            return None
        each = sum(costs[name] for name in names if name) / self.scores.table.num_items
        return max(needed - shared, 0) * each

    def _holds(self) -> Callable[[_Scores], bool]:
        """Whether the claim is true of mean scores."""
        kind, number = self.statement.kind, self.statement.number
        unit, first, second = self.scores.unit, self.first, self.second
        if second is not None:
            gap = lambda part: part.means[first] - part.means[second]
            margin = (1.0 if self.margin is None else self.margin) * unit
            if kind == "greater":
                return lambda part: gap(part) > 0
            if kind == "within":
                return lambda part: abs(gap(part)) <= float(number or 0) * unit
            cheaper = self._cheaper()
            return lambda part: cheaper and gap(part) >= -margin
        value = number if kind == "above" else self.record
        if kind in ("above", "record") and value is not None:
            return lambda part: part.means[first] > float(value) * unit
        most = int(number or 1)
        return lambda part: np.sum(part.means > part.means[first]) < most

    def _halves(self) -> float:
        """Share of random halves of the items in which the claim is true."""
        holds, size = self._holds(), self.scores.values.shape[1]
        count = max(size // 2, 1)
        chosen = (self.rng.permutation(size)[:count] for _ in range(HALVES))
        return float(np.mean([holds(self.scores.items(places)) for places in chosen]))

    def _rebuttals(self, run_sd: float) -> tuple[str, ...]:
        """What is not in the probability."""
        table, rebuttals = self.scores.table, []
        trials = table.trials
        if not run_sd and (trials is None or not (trials > 1).any()):
            rebuttals.append(
                "each item was answered once: it is a claim about this run, unless"
                " run_sd (--run-sd) states how scores differ from run to run"
            )
        if table.num_observed < table.size:
            share = 1 - table.num_observed / table.size
            rebuttals.append(f"{share:.0%} of the responses are missing")
        number = 0 if self.scores.benchmarks is None else len(set(table.benchmarks))
        if 1 < number < 5:
            rebuttals.append(
                f"{number} benchmarks are no sample of benchmarks: it is a claim about"
                " items like these"
            )
        rebuttals.append("items that were in the training data count as any others")
        return tuple(rebuttals)


def anytime_p_value(differences: np.ndarray) -> float:
    """p-value of "the mean is not above 0" that is valid at every number of items.

    Args:
        differences: `[items]` in [-1, 1], in random order.

    >>> rng = np.random.default_rng(0)
    >>> anytime_p_value(rng.choice([-1, 1], 400, p=[0.4, 0.6]).astype(float)) < 0.05
    True
    """
    d = np.asarray(differences, float)
    before = np.arange(len(d))
    # Mean and variance of the earlier differences, with one made-up one of 0 +- 1/2.
    sums = np.cumsum(d) - d
    squares = np.cumsum(d**2) - d**2
    mean = sums / (before + 1)
    second = (squares + 0.25) / (before + 1)
    bet = np.clip(mean / np.maximum(second, 1e-12), 0, LARGEST_BET)
    wealth = np.cumsum(np.log1p(bet * d))
    return float(np.exp(-max(wealth.max(initial=0.0), 0.0)))


def _verdict(supported: bool, refuted: bool) -> str:
    """The verdict in a word."""
    return "supported" if supported else ("refuted" if refuted else "open")
