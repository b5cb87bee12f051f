r"""Ability against size, data and time, and scores of models to come.

The abilities of a fit are regressed on log10 of parameters and training tokens and on
the date of release, with random effects of families (`validity.latent_regression`). A
new model of these covariates has a normal ability; the score on the items of the fit
follows from the expected score as a function of ability. The frontier at a date is the
ability that 5 % of models like these exceed.

A forecast is tested by rolling origins: each later model is predicted from the models
released before it, and so is persistence, the mean score of the latest quarter of them,
or of the family's last model.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit

from irtjax.calibration.calibration import Calibration
from irtjax.calibration.score_curve import (
    errors_given_scale,
    expected_scores,
    why_not_ranked,
)
from irtjax.calibration.tables import floats
from irtjax.data.arrays import places_of
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted, listing, points
from irtjax.validity.latent_regression import (
    LatentRegression,
    latent_regression,
    unshrunk,
)
from irtjax.validity.measures import column_in, lists_of, subjects_in
from irtjax.validity.timed_runs import days_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Share of models like these that exceed the frontier.
ABOVE = 0.05
#: Share of the models, by date, that only earlier ones predict; fewest that predict.
TESTED, FEWEST = 0.5, 8
#: Share of the earlier models, the latest, that persistence is the mean of.
LATEST = 0.25
#: Days of a year.
YEAR = 365.25
#: Parameters in a name: 7b, 0.5B, 8x7b, 350m.
_SIZE = re.compile(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z0-9])")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Forecast(HasTable):
    """Ability against covariates.

    Attributes:
        table: A row for each coefficient: `term`, `estimate` in units of ability, of
            ten times the parameters or tokens, or of a year; `standard_error`, `lower`,
            `upper`.
        subjects: A row for each subject of the regression: `subject`, `family`,
            `ability`, `fitted`, `frontier` (if there are dates), `score`.
        future: A row for each date that was asked for: `date`, `score` of a model like
            the latest quarter of them, with `lower` and `upper`, and `frontier`, with
            its own.
        test: Of rolling origins `models`, `error` and `persistence` (mean absolute
            errors of scores), `gain` of the first over the second with `gain_se`, and
            `coverage` of the intervals; None without enough dates.
        family_sd: Standard deviation of families' effects, in units of ability.
        residual_sd: The same of models within families.
        explained: Share of the variance of abilities that the covariates explain.
        level: Level of intervals.
        sentence: The result in words.
        warnings: Reasons to doubt it.
    """

    title = "Forecast"

    table: pa.Table
    subjects: pa.Table
    future: pa.Table
    test: dict[str, float] | None
    family_sd: float
    residual_sd: float
    explained: float
    level: float
    sentence: str
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Models:
    """The models of a regression: unshrunk abilities, covariates, dates."""

    names: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    score: np.ndarray
    covariates: dict[str, np.ndarray]
    days: np.ndarray | None
    family: np.ndarray | None

    def take(self, rows: np.ndarray) -> _Models:
        """Some of them."""
        cut = lambda x: None if x is None else x[rows]
        parts = {name: x[rows] for name, x in self.covariates.items()}
        fields = "names", "ability", "error", "score", "days", "family"
        changes: Any = {name: cut(getattr(self, name)) for name in fields}
        return dataclasses.replace(self, covariates=parts, **changes)

    @property
    def terms(self) -> list[str]:
        """Names of the coefficients."""
        return ["intercept", *self.covariates, *(["year"] * (self.days is not None))]

    def design(self, origin: float) -> np.ndarray:
        """`[models, terms]`: ones, logarithms, years since a day."""
        columns = [np.ones(len(self.names)), *self.covariates.values()]
        if self.days is not None:
            columns.append((self.days - origin) / YEAR)
        return np.column_stack(columns)

    def quantile(self, level: float) -> float:
        """Student's t of the intervals, whose degrees of freedom the slopes leave."""
        degrees = max(len(self.names) - len(self.terms), 1)
        return float(stdtrit(degrees, 0.5 + level / 2))

    def codes(self) -> np.ndarray | None:
        """Numbers of families."""
        if self.family is None:
            return None
        return np.unique(self.family, return_inverse=True)[1]

    def fit(self, origin: float) -> LatentRegression:
        """The regression."""
        design = self.design(origin)
        return latent_regression(self.ability, self.error, design, self.codes())


def forecast(
    fit: Calibration,
    subjects: Any,
    *,
    parameters: str | None = None,
    tokens: str | None = None,
    date: str | None = None,
    family: str | None = None,
    name: str = "subject",
    to: tuple[str, ...] | list[str] = (),
    level: float = 0.95,
) -> Forecast:
    """Regresses abilities on size, data and date, and forecasts scores.

    Args:
        fit: A calibration of one ability.
        subjects: A table (Arrow, a data frame, or a mapping of columns) with a row for
            each subject.
        parameters: Column of numbers of parameters, in any unit; "names" reads them
            from the names of the subjects, as 7b.
        tokens: Column of numbers of training tokens, in any unit.
        date: Column of dates of release, 2024-05-13.
        family: Column of families, such as base models.
        name: Column of the names of the subjects.
        to: Dates to forecast.
        level: Level of intervals.

    Returns:
        Coefficients, forecasts, and their test by rolling origins. Items were
        calibrated with all models, also those that are predicted.

    Raises:
        ValueError: A column is missing, a date is none, a size is not above 0, too few
            subjects have all covariates, or the fit has several abilities.

    >>> import irtjax
    >>> rng = np.random.default_rng(0)
    >>> size = 10 ** rng.uniform(0, 2, 40)
    >>> ability = np.log10(size) - 1 + 0.3 * rng.normal(size=40)
    >>> right = rng.normal(size=(40, 30)) < ability[:, None] - rng.normal(size=30)
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right), "rasch", method="em")
    >>> table = {"subject": fit.subject_names.tolist(), "size": size.tolist()}
    >>> result = forecast(fit, table, parameters="size")
    >>> result.table["term"].to_pylist(), result.explained > 0.5
    (['intercept', 'log10 parameters'], True)
    """
    if not 0 < level < 1:
        raise ValueError(f"level is between 0 and 1, such as 0.95, not {level}")
    if reason := why_not_ranked(fit):
        raise ValueError(f"forecasts are of fits of one ability, and {reason}")
    if to and date is None:
        raise ValueError("dates to forecast need a column of dates: name it with date=")
    columns = lists_of(subjects)
    models, warnings = _models(fit, columns, name, parameters, tokens, date, family)
    origin = 0.0 if models.days is None else float(models.days.max())
    regression = models.fit(origin)
    half = models.quantile(level)
    future = _future(fit, models, regression, origin, to, half)
    test = _test(fit, models, level)
    plain = latent_regression(
        models.ability, models.error, np.ones((len(models.names), 1)), models.codes()
    )
    total = plain.family_sd**2 + plain.residual_sd**2
    rest = regression.family_sd**2 + regression.residual_sd**2
    explained = max(1 - rest / total, 0.0) if total > 0 else math.nan
    error = np.sqrt(np.diagonal(regression.covariance))
    import pyarrow as pa

    table = pa.table(
        {
            "term": models.terms,
            "estimate": regression.slopes,
            "standard_error": error,
            "lower": regression.slopes - half * error,
            "upper": regression.slopes + half * error,
        }
    )
    return Forecast(
        table,
        _fitted(models, regression, origin),
        future,
        test,
        regression.family_sd,
        regression.residual_sd,
        explained,
        level,
        _sentence(table.to_pylist()[1:], explained, test),
        (*warnings, *_doubts(models, test)),
    )


def parameters_of(names: Any) -> np.ndarray:
    """Numbers of parameters in names, in billions; NaN where there is none.

    >>> parameters_of(["llama-7b", "mixtral-8x7B", "gpt-4", "opt-350m"]).tolist()
    [7.0, 56.0, nan, 0.35]
    """
    sizes = []
    for text in names:
        match = _SIZE.search(str(text).replace("_", "-"))
        if match is None:
            sizes.append(math.nan)
            continue
        unit = 1.0 if match[3] in "bB" else 1e-3
        sizes.append(float(match[1] or 1) * float(match[2]) * unit)
    return np.array(sizes)


def _models(
    fit: Calibration,
    columns: Mapping[str, list[Any]],
    name: str,
    parameters: str | None,
    tokens: str | None,
    date: str | None,
    family: str | None,
) -> tuple[_Models, list[str]]:
    """The models with all covariates, and what was left out."""
    chosen = parameters, tokens, date
    if not any(chosen):
        raise ValueError(
            "no covariate: give a column as parameters, tokens or date (--parameters,"
            " --tokens, --date)"
        )
    names = subjects_in(columns, name)
    place = places_of(names, fit.subject_names)
    in_fit = place >= 0
    if not in_fit.any():
        raise ValueError(
            f"column {name!r} names no subject of the fit, such as"
            f" {str(fit.subject_names[0])!r}"
        )
    covariates = {}
    of_fit = lambda x: np.where(in_fit, np.asarray(x, float)[place], np.nan)
    for title, source in (("parameters", parameters), ("tokens", tokens)):
        if source == "names" and title == "parameters" and "names" not in columns:
            size = parameters_of(fit.subject_names)
        elif source is not None:
            size = of_fit(_sizes(source, column_in(columns, source)))
        else:
            continue
        covariates[f"log10 {title}"] = np.log10(size)
    days = None
    if date is not None:
        dates = dict(zip(names.tolist(), column_in(columns, date), strict=True))
        days = of_fit(days_of(names, dates))
    labels = None
    if family is not None:
        texts = np.array(
            ["" if x is None else str(x) for x in column_in(columns, family)]
        )
        # One without a family is one of its own.
        labels = np.where(in_fit, texts[place], "")
        labels = np.where(labels == "", fit.subject_names, labels)
    ability, score = floats(fit.abilities.table, "ability", "expected_score")
    population = fit.parameters.population
    estimate, error = unshrunk(
        ability, errors_given_scale(fit), float(population.mean), float(population.sd)
    )
    whole = _Models(fit.subject_names, estimate, error, score, covariates, days, labels)
    parts = [estimate, error, score, *covariates.values()]
    parts += [] if days is None else [days]
    has = np.asarray(np.isfinite(np.stack(parts)).all(axis=0))
    warnings = []
    if not has.all():
        left = fit.subject_names[~has].tolist()
        warnings.append(
            f"{counted(len(left), 'subject')} without a covariate or a finite ability"
            f" {'is' if len(left) == 1 else 'are'} left out: {listing(left, 4)}"
        )
    return whole.take(has), warnings


def _sizes(source: str, values: list[Any]) -> np.ndarray:
    """Numbers above 0, NaN where there is none."""
    sizes = np.full(len(values), np.nan)
    for k, value in enumerate(values):
        if value is None or value == "" or value != value:
            continue
        try:
            sizes[k] = float(value)
        except ValueError:
            raise ValueError(f"column {source!r}: {value!r} is no number") from None
        if not 0 < sizes[k] < np.inf:
            raise ValueError(f"column {source!r}: {value!r} is not above 0")
    return sizes


def _fitted(models: _Models, regression: LatentRegression, origin: float) -> pa.Table:
    """Subjects with fitted abilities and the frontier."""
    import pyarrow as pa

    design = models.design(origin)
    mean = design @ regression.slopes
    codes = models.codes()
    effect = 0.0 if codes is None else regression.effects[codes]
    columns: dict[str, Any] = {"subject": models.names.tolist()}
    if models.family is not None:
        columns["family"] = models.family.tolist()
    columns |= {"ability": models.ability, "fitted": mean + effect}
    if models.days is not None:
        columns["frontier"] = mean + _ahead(regression)
    return pa.table(columns | {"score": models.score})


def _ahead(regression: LatentRegression) -> float:
    """How far the frontier is above the mean."""
    spread = math.hypot(regression.family_sd, regression.residual_sd)
    return -float(ndtri(ABOVE)) * spread


def _latest(days: np.ndarray) -> np.ndarray:
    """Places of the latest quarter of the models."""
    count = max(1, math.ceil(LATEST * len(days)))
    return np.argsort(days, kind="stable")[-count:]


def _future(
    fit: Calibration,
    models: _Models,
    regression: LatentRegression,
    origin: float,
    to: tuple[str, ...] | list[str],
    half: float,
) -> pa.Table:
    """Scores of models like the latest ones, and of the frontier, at later dates."""
    import pyarrow as pa

    rows = []
    asked = [str(x) for x in to]
    ends = days_of(np.array(asked), dict(zip(asked, asked, strict=True)))
    for text, day in zip(asked, ends, strict=True):
        assert models.days is not None
        point = models.design(origin)[_latest(models.days)].mean(axis=0)
        point[-1] = (day - origin) / YEAR
        mean, sd = (float(x[0]) for x in regression.predict(point[None]))
        error = math.sqrt(float(point @ regression.covariance @ point))
        row: dict[str, Any] = {"date": text}
        front = mean + _ahead(regression)
        for title, at, width in (("score", mean, sd), ("frontier", front, error)):
            place = np.array([at, at - half * width, at + half * width])
            spread = np.array([width * (title == "score"), 0.0, 0.0])
            values = expected_scores(fit, place, spread)[0]
            heads = (title, "lower", "upper")
            if title == "frontier":
                heads = (title, "frontier_lower", "frontier_upper")
            row |= dict(zip(heads, map(float, values), strict=True))
        rows.append(row)
    names = "date", "score", "lower", "upper"
    names += "frontier", "frontier_lower", "frontier_upper"
    return pa.table({name: [row[name] for row in rows] for name in names})


def _test(fit: Calibration, models: _Models, level: float) -> dict[str, float] | None:
    """Errors of forecasts and of persistence, by rolling origins."""
    if models.days is None:
        return None
    days = np.unique(models.days)
    count = len(models.names)
    start = np.sort(models.days)[int((1 - TESTED) * count)]
    errors = []
    for day in days[days >= start]:
        before, now = models.days < day, models.days == day
        earlier, later = models.take(before), models.take(now)
        if before.sum() < max(FEWEST, 2 * len(models.terms)):
            continue
        try:
            regression = earlier.fit(day)
        except ValueError:
            continue  # Covariates that the earlier models share.
        families = None
        if models.family is not None:
            assert earlier.family is not None and later.family is not None
            families = places_of(np.unique(earlier.family), later.family)
        mean, sd = regression.predict(later.design(day), families)
        # The score that is known has the error of its ability.
        half = earlier.quantile(level) * np.hypot(sd, later.error)
        score = expected_scores(fit, mean, sd)[0]
        low, high = (expected_scores(fit, mean + x, 0 * sd)[0] for x in (-half, half))
        errors.append(
            np.column_stack(
                [
                    np.abs(score - later.score),
                    np.abs(_persistence(earlier, later) - later.score),
                    (low <= later.score) & (later.score <= high),
                ]
            )
        )
    if not errors:
        return None
    ours, other, covered = np.concatenate(errors).T
    gain = other - ours
    return {
        "models": float(len(gain)),
        "error": float(ours.mean()),
        "persistence": float(other.mean()),
        "gain": float(gain.mean()),
        "gain_se": float(gain.std(ddof=1) / math.sqrt(len(gain)))
        if len(gain) > 1
        else math.nan,
        "coverage": float(covered.mean()),
    }


def _persistence(earlier: _Models, later: _Models) -> np.ndarray:
    """Scores of the families' last models, else the mean of the latest quarter."""
    assert earlier.days is not None
    score = np.full(len(later.names), earlier.score[_latest(earlier.days)].mean())
    if earlier.family is None or later.family is None:
        return score
    order = np.argsort(earlier.days, kind="stable")
    # Of equal names the last one stays.
    last = dict(zip(earlier.family[order].tolist(), earlier.score[order], strict=True))
    return np.array(
        [last.get(x, y) for x, y in zip(later.family.tolist(), score, strict=True)]
    )


def _doubts(models: _Models, test: dict[str, float] | None) -> list[str]:
    """Warnings about the regression and its test."""
    doubts = []
    if models.family is None and len(models.names) > 2:
        doubts.append("without families errors take all subjects as independent")
    if models.days is not None and test is None:
        doubts.append("too few dated subjects to test the forecast")
    elif test is not None and test["gain"] < 0:
        doubts.append("persistence predicts later models better than the regression")
    return doubts


def _sentence(
    rows: list[dict[str, Any]], explained: float, test: dict[str, float] | None
) -> str:
    """The result in words."""
    units = {
        "year": "a year",
        "log10 parameters": "tenfold parameters",
        "log10 tokens": "tenfold tokens",
    }
    parts = [
        f"{units[row['term']]} {points(row['estimate'], 2)}"
        f" [{points(row['lower'], 2)}, {points(row['upper'], 2)}]"
        for row in rows
    ]
    text = (
        f"Differences of ability: {listing(parts)}; they explain {explained:.0%} of the"
        " variance."
    )
    if test is None:
        return text
    return (
        f"{text} Of {test['models']:.0f} later models scores were predicted with a mean"
        f" absolute error of {points(test['error'], 3)}, by persistence"
        f" {points(test['persistence'], 3)}."
    )
