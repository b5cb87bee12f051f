r"""Validity: what abilities and scores correlate with, and what they do not.

Correlations are those without errors of measurement, with intervals that count the
errors (`validity.latent_correlation`). A correlation is a relation where its interval
is beyond `margin` on one side, none where the interval is within it, and undecided
otherwise; what was expected is supported, contradicted or undecided.

Traits that are each measured by several methods have a multitrait-multimethod table
(Campbell and Fiske 1959, Psychological Bulletin 56). A trait's correlation between two
methods is convergent where it is a relation. It is discriminant where it is larger than
each correlation of one of its two measures with a measure of another trait. Each
difference has an interval, from the subjects' influences on both correlations: all must
be above 0, so that no correction for their number is needed (Berger 1982, Technometrics
24). That one is below 0 takes its interval at the level corrected for their number.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from irtjax.data.frames import HasTable
from irtjax.data.result_text import with_level
from irtjax.data.wording import counted, listing, points
from irtjax.validity.latent_correlation import (
    FEWEST,
    LatentCorrelation,
    latent_correlation,
)
from irtjax.validity.measures import (
    Measures,
    column_in,
    columns_of,
    lists_of,
    measures_of,
    subjects_in,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Correlation from which two quantities count as related: 9 % of the variance.
MARGIN = 0.3


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Correlates(HasTable):
    """Correlations of measures with each other and with outside columns.

    Attributes:
        table: A row for each pair of measures, and for each measure with each column:
            `measure`, `other`, `subjects`, `raw` (of estimates as they are),
            `correlation` (without errors) with `lower` and `upper`, `relation` ("yes",
            "no" or "undecided"), `expected` ("related", "unrelated" or none), and
            `verdict` ("supported", "contradicted", "undecided" or none).
        measures: A row for each measure and column: `measure`, `trait`, `method`,
            `subjects`, `reliability`.
        convergence: A row for each trait and two of its methods: `trait`, `first` and
            `second` (the measures), `correlation` with `lower` and `upper`,
            `convergent` ("yes", "no" or "undecided"), the `rival`, which is the pair
            with another trait that correlates most, its `rival_correlation`,
            `difference` with `difference_lower` and `difference_upper`, and
            `discriminant`, over all rivals. Empty without methods.
        margin: Correlation from which two quantities count as related.
        level: Level of intervals.
        sentence: The result in words.
        warnings: Reasons to doubt it.
    """

    title = "Correlates"

    table: pa.Table
    measures: pa.Table
    convergence: pa.Table
    margin: float
    level: float
    sentence: str
    warnings: tuple[str, ...] = ()


class _Pair(NamedTuple):
    """Two measures by their places, and their correlation."""

    first: int
    second: int
    subjects: int
    result: LatentCorrelation


def correlates(
    source: Any,
    subjects: Any = None,
    columns: Sequence[str] = (),
    *,
    related: Sequence[str] = (),
    unrelated: Sequence[str] = (),
    trait: str | None = None,
    method: str | None = None,
    **settings: Any,
) -> Correlates:
    """Correlates abilities or scores with each other and with outside columns.

    Args:
        source: A fit, each of whose abilities (by benchmark, by factor) is a measure;
            abilities or an arena; a mapping of names to these; or responses, whose mean
            scores are correlated.
        subjects: A table (Arrow, a data frame, or a mapping of columns) with a row for
            each subject; None: the measures are correlated with each other only.
        columns: Columns of numbers to correlate with. A column "size_se" has the
            standard errors of "size".
        related: Columns that should correlate with each measure.
        unrelated: Columns that should not.
        trait: Facet of the items of responses that names what they measure, such as
            "benchmark": each value is a measure.
        method: Facet of the items that names how, such as "metric": each pair of trait
            and method is a measure.
        **settings: The settings below.

    Keyword Args:
        reliability: Reliabilities of columns by name, in place of standard errors.
            Columns with neither are taken as free of error.
        name: Column of the names of the subjects; "subject" if it is left out.
        family: Column of families, such as base models, whose subjects are not
            independent of each other.
        margin: Correlation from which two quantities count as related.
        level: Level of intervals.

    Returns:
        The correlations. A column that is computed from the same responses shares
        their errors, so that its correlation is too large.

    Raises:
        ValueError: A column is missing, constant or no number, no subject is in both,
            fewer than eight are, or a fit of abilities by benchmark has covariates.

    >>> rng = np.random.default_rng(0)
    >>> skill = rng.normal(size=(300, 1))
    >>> right = skill + rng.normal(size=(300, 20)) > 0
    >>> import irtjax
    >>> table = irtjax.ResponseTable.from_arrays(right)
    >>> outside = 0.8 * skill[:, 0] + 0.6 * rng.normal(size=300)
    >>> columns = {"subject": table.subjects.tolist(), "outside": outside.tolist()}
    >>> row = correlates(table, columns, related=["outside"]).table.to_pylist()[0]
    >>> row["raw"] < row["correlation"], round(row["correlation"], 1), row["verdict"]
    (True, 0.8, 'supported')
    """
    return _Study(**settings).run(
        measures_of(source, trait, method), subjects, columns, related, unrelated
    )


@dataclasses.dataclass(frozen=True)
class _Study:
    """Settings of `correlates`."""

    reliability: Mapping[str, float] = dataclasses.field(default_factory=dict)
    name: str = "subject"
    family: str | None = None
    margin: float = MARGIN
    level: float = 0.95

    def __post_init__(self) -> None:
        """Refuses a level or a margin that is none."""
        if not 0 < self.level < 1:
            raise ValueError(
                f"level is between 0 and 1, such as 0.95, not {self.level}"
            )
        if not 0 <= self.margin < 1:
            raise ValueError(
                f"margin is at least 0 and below 1, such as 0.3, not {self.margin}"
            )

    def run(
        self,
        measures: Measures,
        subjects: Any,
        columns: Sequence[str],
        related: Sequence[str],
        unrelated: Sequence[str],
    ) -> Correlates:
        """The correlations of measures and columns."""
        chosen = [*dict.fromkeys([*columns, *related, *unrelated])]
        twice = sorted({*related} & {*unrelated})
        if twice:
            raise ValueError(f"column {twice[0]!r} is both related and unrelated")
        if chosen and subjects is None:
            raise ValueError("columns need a table of subjects: subjects=")
        if self.family is not None and subjects is None:
            raise ValueError("families need a table of subjects: subjects=")
        count, names = len(measures.names), measures.subjects
        estimates, errors = measures.estimates, measures.errors
        labels = list(measures.names)
        if chosen:
            side = columns_of(subjects, chosen, self.name, self.reliability)
            if not np.isin(side.subjects, names).any():
                raise ValueError(
                    f"column {self.name!r} names no subject of the measures, such as"
                    f" {str(names[0])!r}"
                )
            outside = side.at(names)
            estimates = np.concatenate([estimates, outside[0]])
            errors = np.concatenate([errors, outside[1]])
            labels += chosen
        if len(labels) < 2:
            raise ValueError(
                "one measure has nothing to correlate with: name columns of a table of"
                " subjects, other fits, or a facet of traits"
            )
        clusters = self._clusters(subjects, names)
        pairs = [
            self._pair(estimates, errors, clusters, (first, second), labels)
            for first, second in itertools.combinations(range(len(labels)), 2)
            if first < count
        ]
        expected = {**dict.fromkeys(related, "related")}
        expected |= dict.fromkeys(unrelated, "unrelated")
        rows = [self._row(pair, labels, expected) for pair in pairs]
        convergence = _Table(measures, pairs, clusters, self.level, self.margin).rows()

        return Correlates(
            _with_rows(rows, self.level),
            _reliabilities(measures, labels, estimates, errors),
            _with_rows(convergence, self.level),
            self.margin,
            self.level,
            _sentence(rows, convergence, self.margin),
            self._doubts(pairs, labels, chosen, errors[count:]),
        )

    def _clusters(self, subjects: Any, names: np.ndarray) -> np.ndarray | None:
        """`[subjects]` names of families; one without is a family of its own."""
        if self.family is None:
            return None
        values = lists_of(subjects)
        own = dict(
            zip(
                subjects_in(values, self.name).tolist(),
                column_in(values, self.family),
                strict=True,
            )
        )
        return np.array([str(own.get(x) or f"\0{x}") for x in names.tolist()])

    def _pair(
        self,
        estimates: np.ndarray,
        errors: np.ndarray,
        clusters: np.ndarray | None,
        places: tuple[int, int],
        labels: list[str],
    ) -> _Pair:
        """The correlation of two rows of estimates."""
        rows = list(places)
        has = np.isfinite(estimates[rows]).all(axis=0)
        has = np.asarray(has & np.isfinite(errors[rows]).all(axis=0))
        first, second = (labels[k] for k in rows)
        if has.sum() < FEWEST:
            raise ValueError(
                f"{first} and {second} have {counted(has.sum(), 'subject')} in common,"
                f" and a correlation needs {FEWEST}: leave one out"
            )
        t, error = estimates[rows][:, has], errors[rows][:, has]
        for label, row in zip((first, second), t, strict=True):
            if np.ptp(row) == 0:
                raise ValueError(
                    f"{label} is constant over the {has.sum()} subjects with both:"
                    " leave it out"
                )
        codes = None
        if clusters is not None:
            codes = np.unique(clusters[has], return_inverse=True)[1]
        result = latent_correlation(t, error, codes, level=self.level)
        influence = np.zeros(len(has))
        influence[has] = result.influence
        return _Pair(*places, int(has.sum()), result._replace(influence=influence))

    def _row(
        self, pair: _Pair, labels: list[str], expected: Mapping[str, str]
    ) -> dict[str, Any]:
        """A row of the table of correlations."""
        result, other = pair.result, labels[pair.second]
        relation = relation_of(result.lower, result.upper, self.margin)
        wanted = expected.get(other, "")
        verdict = "" if not wanted else "undecided"
        if wanted and relation != "undecided":
            agrees = (relation == "yes") == (wanted == "related")
            verdict = "supported" if agrees else "contradicted"
        return {
            "measure": labels[pair.first],
            "other": other,
            "subjects": pair.subjects,
            "raw": result.raw,
            "correlation": result.correlation,
            "lower": result.lower,
            "upper": result.upper,
            "relation": relation,
            "expected": wanted,
            "verdict": verdict,
        }

    def _doubts(
        self,
        pairs: list[_Pair],
        labels: list[str],
        columns: list[str],
        errors: np.ndarray,
    ) -> tuple[str, ...]:
        """Reasons to doubt the correlations."""
        doubts = []
        noise = [
            labels[place]
            for pair in pairs
            for place, share in zip(pair[:2], pair.result.reliabilities, strict=True)
            if share == 0
        ]
        if noise:
            doubts.append(
                "subjects do not differ beyond the errors of"
                f" {listing(sorted({*noise}))}: it has no correlations"
            )
        free = [
            name
            for name, error in zip(columns, errors, strict=True)
            if name not in self.reliability and not np.nansum(error)
        ]
        if free:
            doubts.append(
                f"taken as free of error: {listing(free)} (give reliabilities, or"
                f" errors in a column such as {free[0]}_se)"
            )
        if self.family is None:
            doubts.append("without families errors take all subjects as independent")
        return tuple(doubts)


def relation_of(lower: float, upper: float, margin: float) -> str:
    """Whether an interval of a correlation is beyond a margin on one side.

    >>> [relation_of(*ends, 0.3) for ends in [(0.4, 0.8), (-0.1, 0.2), (0, 0.5)]]
    ['yes', 'no', 'undecided']
    """
    if lower > margin or upper < -margin:
        return "yes"
    return "no" if -margin < lower <= upper < margin else "undecided"


class _Table(NamedTuple):
    """What the multitrait-multimethod table is made of."""

    measures: Measures
    pairs: list[_Pair]
    clusters: np.ndarray | None
    level: float
    margin: float

    def rows(self) -> list[dict[str, Any]]:
        """A row for each trait and two of its methods."""
        traits, methods = self.measures.traits, self.measures.methods
        if traits is None or methods is None or len({*methods}) < 2:
            return []
        inner = [pair for pair in self.pairs if pair.second < len(traits)]
        same = [x for x in inner if traits[x.first] == traits[x.second]]
        other = [x for x in inner if traits[x.first] != traits[x.second]]
        return [self._row(pair, other) for pair in same]

    def _row(self, pair: _Pair, others: list[_Pair]) -> dict[str, Any]:
        """A trait's correlation between two methods, against its rivals."""
        assert self.measures.traits is not None
        result, names = pair.result, self.measures.names
        convergent = relation_of(result.lower, result.upper, self.margin)
        row: dict[str, Any] = {
            "trait": self.measures.traits[pair.first],
            "first": names[pair.first],
            "second": names[pair.second],
            "correlation": result.correlation,
            "lower": result.lower,
            "upper": result.upper,
            "convergent": "no" if result.upper < -self.margin else convergent,
        }
        places = {pair.first, pair.second}
        rivals = [x for x in others if places & {x.first, x.second}]
        rivals = [x for x in rivals if math.isfinite(x.result.correlation)]
        names_of = "rival", "rival_correlation", "difference"
        names_of += "difference_lower", "difference_upper", "discriminant"
        if not rivals or not math.isfinite(result.correlation):
            return row | dict(zip(names_of, ["", *[math.nan] * 4, ""], strict=True))
        rival = max(rivals, key=lambda x: x.result.correlation)
        apart = [self._difference(result, x.result) for x in rivals]
        wide = (1 - self.level) / 2
        half = -float(ndtri(wide))
        corrected = -float(ndtri(wide / len(rivals)))
        discriminant = "undecided"
        if all(value > half * error for value, error in apart):
            discriminant = "yes"
        elif any(value < -corrected * error for value, error in apart):
            discriminant = "no"
        value, error = self._difference(result, rival.result)
        ends = value, value - half * error, value + half * error
        title = f"{names[rival.first]}, {names[rival.second]}"
        cells = [title, rival.result.correlation, *ends, discriminant]
        return row | dict(zip(names_of, cells, strict=True))

    def _difference(
        self, first: LatentCorrelation, second: LatentCorrelation
    ) -> tuple[float, float]:
        """Difference of two correlations, and its standard error."""
        influence = first.influence - second.influence
        if self.clusters is not None:
            code = np.unique(self.clusters, return_inverse=True)[1]
            influence = np.bincount(code, influence)
        count = len(influence)
        error = math.sqrt(float(np.sum(influence**2)) * count / (count - 1))
        return first.correlation - second.correlation, error


def _with_rows(rows: list[dict[str, Any]], level: float) -> pa.Table:
    """A table of intervals of a level, empty without rows."""
    import pyarrow as pa

    return with_level(pa.Table.from_pylist(rows), level) if rows else pa.table({})


def _reliabilities(
    measures: Measures, labels: list[str], estimates: np.ndarray, errors: np.ndarray
) -> pa.Table:
    """Measures and columns with their reliabilities, 1 - mean v / variance."""
    import pyarrow as pa

    rows = []
    for k, label in enumerate(labels):
        has = np.isfinite(estimates[k]) & np.isfinite(errors[k])
        noise = float(np.mean(errors[k, has] ** 2)) if has.any() else math.nan
        variance = float(np.var(estimates[k, has])) if has.any() else math.nan
        inner = k < len(measures.names)
        rows.append(
            {
                "measure": label,
                "trait": measures.traits[k] if inner and measures.traits else "",
                "method": measures.methods[k] if inner and measures.methods else "",
                "subjects": int(has.sum()),
                "reliability": max(1 - noise / variance, 0.0),
            }
        )
    return pa.Table.from_pylist(rows)


def _sentence(
    rows: list[dict[str, Any]], convergence: list[dict[str, Any]], margin: float
) -> str:
    """The result in words."""
    parts = []
    for verdict in ("supported", "contradicted", "undecided"):
        names = [
            f"{row['measure']} with {row['other']} {points(row['correlation'], 2)}"
            for row in rows
            if row["verdict"] == verdict
        ]
        if names:
            parts.append(f"{verdict.capitalize()}: {listing(names, 6)}.")
    if convergence:
        total = len(convergence)
        for name in ("convergent", "discriminant"):
            number = sum(row[name] == "yes" for row in convergence)
            parts.append(f"{name.capitalize()}: {number} of {total} pairs of methods.")
    if not parts:
        relations = [row["relation"] for row in rows]
        yes, no, undecided = map(relations.count, ("yes", "no", "undecided"))
        parts.append(
            f"{counted(len(rows), 'pair')}: {yes} beyond {points(margin, 2)}, {no}"
            f" within, {undecided} undecided."
        )
    return " ".join(parts)
