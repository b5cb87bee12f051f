r"""Horizons: how long are the tasks, in human time, that subjects complete?

The horizon of a subject is the human time of the tasks at which it succeeds with a
chance of 50 or 80 %, under the model of `irtjax.validity.success_by_length`. With the
link g, :math:`\log_2 h_p = \bar x + (a - c_p) / b`, where

- of typical tasks, :math:`c_p = g(p)`;
- of the mean over tasks of that length ("marginal"), :math:`E\, g^{-1}(c_p + \tau z) =
  p`. At 50 % a symmetrical link gives the same horizon.

Horizons of the best subjects double every :math:`1 / \beta` days, :math:`\beta` the
slope of log2 of the horizon on the date of release, by weighted least squares over the
subjects that exceed all earlier ones.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import t as t_distribution

from irtjax.data.frames import HasTable
from irtjax.data.wording import counted, listing
from irtjax.validity.success_by_length import (
    LINKS,
    Assumptions,
    RunCounts,
    SuccessCurves,
    bound,
    fit_curves,
    separated,
)
from irtjax.validity.timed_runs import TimedRuns, runs_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Values of each assumption.
CHOICES = {
    "link": tuple(LINKS),
    "slope": ("common", "own"),
    "difficulty": ("random", "none"),
    "weights": ("runs", "tasks", "families"),
}
#: Chances of success that horizons are of.
CHANCES = {"50": 0.5, "80": 0.8}
#: Families of tasks below which intervals are doubtful.
FEW_FAMILIES = 10


@dataclasses.dataclass(frozen=True)
class Trend:
    """Growth of the best subjects' 50 % horizon.

    Attributes:
        doubling_days: Days in which it doubles; NaN if it does not grow.
        doubling_days_lower, doubling_days_upper: Interval, which counts tasks, runs and
            the scatter of subjects around the line.
        subjects: Those that exceed all earlier ones, by date.
    """

    doubling_days: float
    doubling_days_lower: float
    doubling_days_upper: float
    subjects: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Horizons(HasTable):
    """Horizons of subjects in minutes of human time.

    Attributes:
        table: A row for each subject, longest horizon first: `subject`, `runs`,
            `tasks`, `success` (share of runs), `horizon_50` and `horizon_80` of typical
            tasks, `horizon_50_marginal` and `horizon_80_marginal` over tasks of that
            length, each with `_lower` and `_upper`; `horizon_50_least` and
            `horizon_50_most` over the assumptions; `date` if there are dates. Of a
            subject that always succeeds the horizons are missing and `_lower` is their
            bound; of one that always fails, `_upper`.
        sensitivity: A row for each set of assumptions, the chosen one first:
            `assumption`, `link`, `slope`, `difficulty`, `weights`, `log_likelihood`
            (comparable if `weights` are the same), `difficulty_sd`, `doubling_days`,
            and for each kind of horizon, such as `ratio_50`, the geometric mean of its
            ratios to the chosen one, with `_least` and `_most` over subjects.
        by_assumption: Horizons by `assumption` and `subject`.
        slope: Of the predictor on log2 of minutes; the median one of own slopes.
        difficulty_sd: Standard deviation of the difficulty of tasks given their length,
            on the scale of the predictor.
        trend: Doubling time, if there are dates of three best subjects; else None.
        families: Independent families of tasks that intervals are based on.
        level: Level of the intervals.
        sentence: The result in words.
        warnings: Reasons to doubt it.
    """

    title = "Horizons"
    columns = ("subject", "runs", "success", "horizon_50", "horizon_80")

    table: pa.Table
    sensitivity: pa.Table
    by_assumption: pa.Table
    slope: float
    difficulty_sd: float
    trend: Trend | None
    families: int
    level: float
    sentence: str
    warnings: tuple[str, ...] = ()


def horizons(
    runs: Any,
    columns: Mapping[str, str] | None = None,
    *,
    dates: Mapping[str, Any] | str | None = None,
    link: str = "logit",
    slope: str = "common",
    difficulty: str = "random",
    weights: str = "runs",
    humans: bool = False,
    level: float = 0.95,
) -> Horizons:
    """Estimates how long the tasks are, in human time, that subjects complete.

    Args:
        runs: A table with a row for each run: a path to a CSV or Parquet file, an Arrow
            table, a data frame, or columns by name.
        columns: Names of the columns of "subject", "task", "minutes" (human time),
            "response" (0 to 1) and "family" (of tasks; each its own by default); by
            default the first usual one, of `irtjax.validity.timed_runs.COLUMNS`.
        dates: Dates of release by subject, or the name of a column with them.
        link: "logit", "probit", or "loglog", the survival of a Weibull distribution.
        slope: "common", or each subject its "own".
        difficulty: Of tasks given their length: "random" or "none".
        weights: "runs"; "tasks", by which the runs of a subject at a task count as one
            (without random difficulty alone); or "families", by which each task counts
            1 / sqrt(tasks of its family).
        humans: Whether people are subjects too.
        level: Level of the intervals. They count tasks, runs and what runs of a family
            of tasks have in common: sandwich by family, t distribution.

    Returns:
        The horizons, and how they change with each assumption.

    Raises:
        ValueError: A column is missing; minutes are not positive, or of one task
            differ; a response is outside [0, 1]; a date is none; all tasks are equally
            long; of no subject successes and failures overlap in length; or success
            does not fall with the length of tasks.

    >>> rng = np.random.default_rng(0)
    >>> model, task = (x.ravel() for x in np.indices((3, 400)))
    >>> minutes = 2.0 ** rng.uniform(0, 9, 400)[task]
    >>> chance = 1 / (1 + minutes / np.array([8, 32, 128])[model])
    >>> runs = {"model": model, "task": task, "minutes": minutes}
    >>> runs["success"] = (rng.random(1200) < chance).astype(float)
    >>> result = horizons(runs)
    >>> [round(x) for x in result.table["horizon_50"].to_pylist()]
    [124, 30, 7]
    """
    chosen = Assumptions(link, slope, difficulty, weights)
    _check(chosen, level)
    data = runs_of(runs, dict(columns or {}), dates, humans)
    _check_overlap(data.counts)
    analyses = {}
    for name, assumed in _variants(chosen, data.has_families).items():
        analyses[name] = _analyse(data, assumed, level)
    first = next(iter(analyses.values()))
    if not np.nanmax(first.curves.slope) > 0:
        raise ValueError(
            "success does not fall with the minutes of tasks (slope"
            f" {np.nanmedian(first.curves.slope):.2g}), so there are no horizons: check"
            " the column of minutes"
        )
    rows = _subject_rows(data, analyses)
    return Horizons(
        _arrow(rows),
        _arrow(_sensitivity(data, analyses)),
        _arrow(_long_rows(data, analyses)),
        float(np.nanmedian(first.curves.slope)),
        first.curves.sd,
        first.trend,
        first.families,
        level,
        _sentence(rows, first),
        (*data.warnings, *_doubts(data, first)),
    )


def _check(chosen: Assumptions, level: float) -> None:
    """Refuses assumptions without a name, and levels outside (0, 1)."""
    for name, value in chosen._asdict().items():
        if value not in CHOICES[name]:
            raise ValueError(f"{name} {value!r} is none of {', '.join(CHOICES[name])}")
    if chosen.weights == "tasks" and chosen.difficulty == "random":
        raise ValueError(
            "weights 'tasks' requires difficulty 'none': with random difficulty each"
            " task counts once"
        )
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")


def _check_overlap(counts: RunCounts) -> None:
    """Refuses data in which every subject's curve is a step, or a bound."""
    always, never = _extreme(counts)
    if (always | never | separated(counts)).all():
        raise ValueError(
            "no subject has both successes and failures at overlapping lengths of"
            " tasks: horizons need one"
        )


def _variants(chosen: Assumptions, has_families: bool) -> dict[str, Assumptions]:
    """The chosen assumptions, each with one changed, and regressions by subject."""
    variants = {"chosen": chosen}
    for field, choices in CHOICES.items():
        for value in choices:
            variant = chosen._replace(**{field: value})
            if variant.difficulty == "random" and variant.weights == "tasks":
                continue
            if value == "families" and not has_families:
                continue
            label = value if field == "link" else f"{field} {value}"
            if variant != chosen:
                variants[label] = variant
    weights = "families" if has_families else "tasks"
    # The usual analysis: a weighted logistic regression for each subject.
    usual = Assumptions("logit", "own", "none", weights)
    if usual not in variants.values():
        variants["regression by subject"] = usual
    return variants


class _Analysis(NamedTuple):
    """Horizons under one set of assumptions.

    Attributes:
        curves: The model of the subjects in it.
        there: `[subjects]` places of the subjects in the model.
        horizons: By name, `[subjects, 3]` horizon, lower, upper; NaN if unknown.
        trend: Doubling time, or None.
        families: Number of families of tasks.
    """

    curves: SuccessCurves
    there: np.ndarray
    horizons: dict[str, np.ndarray]
    trend: Trend | None
    families: int


def _analyse(data: TimedRuns, assumed: Assumptions, level: float) -> _Analysis:
    """Fits the curves and derives horizons, bounds and the doubling time."""
    counts = data.counts
    always, never = _extreme(counts)
    inside = ~(always | never)
    if assumed.slope == "own":
        inside &= ~separated(counts)
    pick = lambda mask: counts._replace(
        right=counts.right[mask], runs=counts.runs[mask]
    )
    curves = fit_curves(pick(inside), assumed)
    there = np.nonzero(inside)[0]
    families = len(np.unique(counts.family))
    tail = t_distribution.ppf((1 + level) / 2, max(families - 1, 1))
    found: dict[str, np.ndarray] = {}
    for name, chance in CHANCES.items():
        for ending in ("", "_marginal"):
            log = curves.log_horizons(chance, bool(ending))
            covariance = curves.log_covariance(chance, bool(ending))
            error = tail * np.sqrt(np.diag(covariance))
            values = np.full((len(always), 3), np.nan)
            with np.errstate(over="ignore"):
                values[there] = np.exp2(np.stack([log, log - error, log + error], 1))
            found[f"horizon_{name}{ending}"] = values
    for place in np.nonzero(always | never)[0]:
        intercept, slope = bound(pick([place]), curves, 1 - level)
        alone = curves._replace(
            intercept=np.array([intercept]), slope=np.array([slope])
        )
        for name, values in found.items():
            chance = CHANCES[name.split("_")[1]]
            log = alone.log_horizons(chance, name.endswith("marginal"))
            with np.errstate(over="ignore"):
                values[place, 1 if always[place] else 2] = np.exp2(log[0])
    trend = None if data.dates is None else _trend(data, curves, there, level)
    return _Analysis(curves, there, found, trend, families)


def _extreme(counts: RunCounts) -> tuple[np.ndarray, np.ndarray]:
    """`[subjects]`: those that always succeed, and those that always fail."""
    right, runs = counts.right.sum(axis=1), counts.runs.sum(axis=1)
    return right == runs, right == 0


def _trend(
    data: TimedRuns, curves: SuccessCurves, there: np.ndarray, level: float
) -> Trend | None:
    """Doubling time of the subjects that exceed all earlier ones; None of two or fewer.

    Weighted least squares. The variance of the slope c'y is c'Vc of tasks and runs, and
    s^2 c'c of scatter, where s^2 matches the expected sum of squared residuals,
    tr(M'WM (V + s^2 I)). The degrees of freedom of the sum are Satterthwaite's (1946,
    Biometrics Bulletin 2).
    """
    log, days = curves.log_horizons(0.5), np.asarray(data.dates)[there]
    best: list[int] = []
    for place in np.lexsort((-log, days)):
        longest = log[best[-1]] if best else -np.inf
        if np.isfinite(days[place]) and log[place] > longest:
            best.append(int(place))
    number = len(best)
    if number < 3 or not np.ptp(days[best]) > 0:
        return None
    time = days[best] - days[best].mean()
    design = np.stack([np.ones(number), time], 1)
    own = curves.log_covariance(0.5)[np.ix_(best, best)]
    scatter, inverse = 0.0, np.linalg.pinv(design)
    for _ in range(20):
        # Weights are by the errors; covariances of subjects enter the variance alone,
        # because their inverse is too sensitive to errors of its own.
        weight = 1 / (np.diag(own) + scatter)
        inverse = np.linalg.solve(design.T * weight @ design, design.T * weight)
        maker = np.eye(number) - design @ inverse
        form = maker.T * weight @ maker
        excess = log[best] @ form @ log[best] - np.trace(form @ own)
        scatter = max(float(excess / np.trace(form)), 0.0)
    rows = inverse[1]
    parts = float(rows @ own @ rows), scatter * float(rows @ rows)
    families = len(np.unique(data.counts.family))
    freedom = parts[0] ** 2 / max(families - 1, 1) + parts[1] ** 2 / (number - 2)
    tail = t_distribution.ppf((1 + level) / 2, sum(parts) ** 2 / freedom)
    slope, half = float(rows @ log[best]), tail * math.sqrt(sum(parts))
    days_of = lambda rate, other: 1 / rate if rate > 0 else other
    return Trend(
        days_of(slope, math.nan),
        float(days_of(slope + half, math.nan)),
        float(days_of(slope - half, math.inf)),
        tuple(data.subjects[there][best].tolist()),
    )


def _subject_rows(
    data: TimedRuns, analyses: dict[str, _Analysis]
) -> list[dict[str, Any]]:
    """Rows of the subjects, longest horizon first."""
    first = next(iter(analyses.values()))
    every = np.stack([x.horizons["horizon_50"][:, 0] for x in analyses.values()])
    counts = data.counts
    rows = []
    for place, name in enumerate(data.subjects.tolist()):
        runs = counts.runs[place]
        row: dict[str, Any] = {
            "subject": name,
            "runs": int(runs.sum()),
            "tasks": int(np.count_nonzero(runs)),
            "success": float(counts.right[place].sum() / runs.sum()),
        }
        for key, values in first.horizons.items():
            for ending, value in zip(
                ("", "_lower", "_upper"), values[place], strict=True
            ):
                row[key + ending] = float(value)
        seen = every[np.isfinite(every[:, place]), place]
        row["horizon_50_least"] = float(seen.min()) if len(seen) else math.nan
        row["horizon_50_most"] = float(seen.max()) if len(seen) else math.nan
        if data.dates is not None:
            day = data.dates[place]
            dated = np.isfinite(day)
            # As text, which JSON has too.
            row["date"] = str(datetime.date.fromordinal(int(day))) if dated else None
        rows.append(row)
    value = first.horizons["horizon_50"]
    # Bounds stand for horizons that are unknown: at least, or at most so long.
    length = np.fmax.reduce(value, axis=1)
    length = np.where(np.isnan(value[:, 0]), length, value[:, 0])
    return [rows[k] for k in np.argsort(-length, kind="stable")]


def _sensitivity(
    data: TimedRuns, analyses: dict[str, _Analysis]
) -> list[dict[str, Any]]:
    """A row for each set of assumptions, with ratios to the chosen horizons.

    Ratios are of the subjects whose horizon is not beyond all tasks, if there are any:
    others are extrapolated, and change without limit.
    """
    first = next(iter(analyses.values()))
    inside = ~_beyond(data, first)
    rows = []
    for name, analysis in analyses.items():
        row: dict[str, Any] = {"assumption": name}
        row |= analysis.curves.assumptions._asdict()
        row["log_likelihood"] = analysis.curves.log_likelihood
        row["difficulty_sd"] = analysis.curves.sd
        for key, values in analysis.horizons.items():
            log = np.log(values[:, 0] / first.horizons[key][:, 0])
            log = log[np.isfinite(log) & (inside | ~inside.any())]
            ratios = np.exp([log.mean(), log.min(), log.max()]) if len(log) else None
            mean, least, most = [math.nan] * 3 if ratios is None else ratios.tolist()
            ratio = key.replace("horizon", "ratio")
            row |= {ratio: mean, f"{ratio}_least": least, f"{ratio}_most": most}
        trend = analysis.trend
        row["doubling_days"] = math.nan if trend is None else trend.doubling_days
        rows.append(row)
    return rows


def _beyond(data: TimedRuns, analysis: _Analysis) -> np.ndarray:
    """`[subjects]`: whether the horizon is beyond all tasks, or only a bound."""
    length = data.counts.length
    log = np.log2(analysis.horizons["horizon_50"][:, 0])
    return ~((log >= length.min()) & (log <= length.max()))


def _long_rows(data: TimedRuns, analyses: dict[str, _Analysis]) -> list[dict[str, Any]]:
    """Horizons by assumption and subject."""
    return [
        {
            "assumption": name,
            "subject": subject,
            **{key: float(x[place, 0]) for key, x in analysis.horizons.items()},
        }
        for name, analysis in analyses.items()
        for place, subject in enumerate(data.subjects.tolist())
    ]


def minutes_text(value: float) -> str:
    """Minutes with three digits, a dash where unknown.

    >>> minutes_text(1392.7), minutes_text(0.0511), minutes_text(math.nan)
    ('1,393', '0.0511', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sentence(rows: list[dict[str, Any]], first: _Analysis) -> str:
    """The longest horizon and the doubling time in words."""
    best = max(rows, key=lambda row: np.nan_to_num(row["horizon_50"], nan=-1.0))
    shown = {name: minutes_text(x) for name, x in best.items() if "horizon" in name}
    text = (
        f"{best['subject']} has the longest 50 % horizon: {shown['horizon_50']}"
        f" minutes [{shown['horizon_50_lower']}, {shown['horizon_50_upper']}],"
        f" {shown['horizon_50_least']} to {shown['horizon_50_most']} by"
        f" assumptions; 80 %: {shown['horizon_80']} on typical tasks,"
        f" {shown['horizon_80_marginal']} over tasks of that length"
    )
    if first.trend is not None and math.isfinite(first.trend.doubling_days):
        trend = first.trend
        text += (
            f"; horizons double every {trend.doubling_days:.0f} days"
            f" [{trend.doubling_days_lower:.0f}, {trend.doubling_days_upper:.0f}]"
        )
    return f"{text}."


def _doubts(data: TimedRuns, first: _Analysis) -> list[str]:
    """Warnings about horizons, intervals and the doubling time."""
    doubts = []
    for mask, what in zip(
        _extreme(data.counts),
        (
            "always succeeds: its horizon is at least",
            "always fails: its horizon is at most",
        ),
        strict=True,
    ):
        for place in np.nonzero(mask)[0]:
            limit = minutes_text(np.nanmax(first.horizons["horizon_50"][place]))
            doubts.append(f"{data.subjects[place]} {what} {limit} minutes")
    apart = np.setdiff1d(np.arange(len(data.subjects)), first.there)
    apart = [x for x in apart if not any(m[x] for m in _extreme(data.counts))]
    if apart:
        doubts.append(
            f"no own slope of {listing(data.subjects[apart].tolist())}: a length"
            " separates successes from failures; take the common slope"
        )
    rising = data.subjects[first.there[first.curves.slope <= 0]].tolist()
    if rising:
        doubts.append(f"no horizon of {listing(rising)}: success rises with length")
    length = data.counts.length
    there = np.isfinite(first.horizons["horizon_50"][:, 0])
    beyond = np.nonzero(_beyond(data, first) & there)[0]
    if len(beyond):
        doubts.append(
            f"50 % horizons beyond all tasks ({minutes_text(2 ** length.min())} to"
            f" {minutes_text(2 ** length.max())} minutes) are extrapolated:"
            f" {listing(data.subjects[beyond].tolist())}"
        )
    if first.families < FEW_FAMILIES:
        doubts.append(
            f"intervals are based on {counted(first.families, 'family', 'families')} of"
            f" tasks, fewer than {FEW_FAMILIES}: they may be too short"
        )
    if data.dates is not None:
        dateless = data.subjects[np.isnan(data.dates)].tolist()
        if dateless:
            doubts.append(f"without a date: {listing(dateless)}")
        if first.trend is None:
            doubts.append("no doubling time: fewer than three best subjects with dates")
        elif not math.isfinite(first.trend.doubling_days):
            doubts.append("no doubling time: horizons do not grow with the date")
    if not first.curves.converged:
        doubts.append("the likelihood has not converged: horizons may be wrong")
    return doubts


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows)
