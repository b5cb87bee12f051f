r"""Errors of abilities and scores by how runs of a subject differ.

Intervals have the noise of independent responses. What all responses of one run share
(a seed, a state of a server, a version of a tool) moves a mean score by a standard
error r, which repeated runs show (`data.reading.run_errors`) or a user states
(`run_sd`). It is added to the errors of expected scores, accuracies and, with the slope
b of the expected score in ability over the subjects, of abilities:

.. math:: s^2 + r^2, \qquad s_\theta^2 + r^2 / b^2.

It is each subject's own error: tests of pairs, ranks and P(best) are computed from it.

Of several benchmarks each has a component of its own beside that of all (`data.runs`).
An accuracy on a benchmark has the two, a mean over all items each by the share of its
items. Errors over clusters of items that are the benchmarks have the own components,
which differ from one to the next: there only the common one is added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.relatives import Relatives
from irtjax.calibration.relatives import clusters_of as clusters_of_items
from irtjax.calibration.result_tables import AbilityTable
from irtjax.calibration.run_errors import check_run_sd, run_errors_of, runs_of
from irtjax.calibration.scale import compares_means
from irtjax.calibration.tables import (
    floats,
    interval_columns,
    number_column,
    of_benchmark,
)
from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing, points
from irtjax.models.model import response_ends
from irtjax.ranking import RankIntervals, rank_intervals, without_scale

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: What a fit notes of models with one run.
ONE_RUN = (
    "intervals are of this run of each model: run_sd= adds how scores differ from run"
    " to run"
)

#: Columns of the accuracy on all items: it, its error, and its interval.
ACCURACY = ["accuracy", "accuracy_se", "accuracy_lower", "accuracy_upper"]


def with_run_sd(fit: Calibration, run_sd: float | None) -> Calibration:
    """A fit whose errors count that scores differ from run to run.

    Args:
        fit: The calibration.
        run_sd: Standard deviation of a score from run to run, in points: hundredths of
            scores from 0 to 1, else units of the score. None or 0 changes nothing.

    Raises:
        ValueError: `run_sd` is negative, or the fit counts one already.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> error = lambda fit: fit.table["expected_score_se"][0].as_py()
    >>> wider = with_run_sd(fit, 20)
    >>> round(error(wider) ** 2 - error(fit) ** 2, 6), wider.options["run_sd"]
    (0.04, 20.0)
    """
    if not run_sd:
        return fit
    if fit.options.get("run_sd"):
        raise ValueError(
            f"the errors of this fit have a run_sd of {fit.options['run_sd']:g}"
            " points already: leave the new one out"
        )
    error = np.full(len(fit.subject_names), check_run_sd(run_sd) * _unit(fit))
    errors = _Errors(error, error, {name: error for name in _benchmarks(fit)})
    note = (
        f"errors count a standard deviation of {points(run_sd, 2)} points from run to"
        " run, as stated"
    )
    return _with_errors(fit, errors, note, {"run_sd": float(run_sd)})


def with_runs(
    fit: Calibration, table: ResponseTable, run_sd: float | None
) -> Calibration:
    """A fit whose errors count what repeated runs of its table show, and `run_sd`."""
    runs = runs_of(table, fit.options)
    if runs is not None:
        clusters = clusters_of_items(table, Relatives(), fit.options)
        errors = _Errors(
            run_errors_of(table, 0.0, fit.options),
            run_errors_of(table, 0.0, fit.options, clusters),
            {name: runs.of_benchmark(name) for name in _benchmarks(fit)},
        )
        size = lambda x: points(float(np.median(x)) / _unit(fit), 2)
        own = [f"{x} {size(runs.of_benchmark(x))}" for x in runs.own]
        note = (
            "runs of a subject differ by more than independent responses do: errors"
            f" count it (standard error of a score by runs {size(errors.score)} points"
            f"{f'; on {listing(own)}' if own else ''})"
        )
        fit = _with_errors(fit, errors, note, {})
    if run_sd:
        return with_run_sd(fit, run_sd)
    if table.trials is None and table.runs is None and table.nouns[0] == "model":
        return dataclasses.replace(fit, notes=(*fit.notes, ONE_RUN))
    return fit


def ability_errors_by_runs(fit: Calibration, table: ResponseTable) -> np.ndarray:
    """Errors `[subjects]` of abilities of new subjects by runs: r / b of the module.

    r is what the runs of their table show, and the `run_sd` of the fit.
    """
    run_sd = check_run_sd(fit.options.get("run_sd"))
    if table.runs is None and not run_sd:
        return np.zeros(table.num_subjects)
    slope = _slope(*floats(fit.abilities.table, "ability", "expected_score"))
    return run_errors_of(table, run_sd, fit.options) / slope


class _Errors(NamedTuple):
    """Errors by runs `[subjects]`, in units of the scores of a fit.

    Attributes:
        score: Of expected scores.
        accuracy: Of accuracies, beside their errors over items.
        benchmarks: Of accuracies on each benchmark.
    """

    score: np.ndarray
    accuracy: np.ndarray
    benchmarks: Mapping[str, np.ndarray]


def _benchmarks(fit: Calibration) -> list[str]:
    """The benchmarks on which a fit has accuracies."""
    names = [] if fit.benchmarks is None else np.unique(fit.benchmarks).tolist()
    columns = fit.abilities.table.column_names
    return [name for name in names if of_benchmark(name)[0] in columns]


def _with_errors(
    fit: Calibration, errors: _Errors, note: str, options: dict[str, Any]
) -> Calibration:
    """A fit with errors of scores by runs in its table of abilities."""
    table = fit.abilities.table
    names = "ability", "ability_se", "expected_score", "expected_score_se"
    ability, error, score, score_error = floats(table, *names)
    error = np.hypot(error, errors.score / _slope(ability, score))
    columns = {
        "ability_se": error,
        "expected_score_se": np.hypot(score_error, errors.score),
        **_wider(fit, ACCURACY, errors.accuracy),
    }
    for name, by_runs in errors.benchmarks.items():
        columns |= _wider(fit, of_benchmark(name), by_runs)
    table = _replaced(table, columns)
    table = _replaced(table, interval_columns(fit, table, fit.level))
    # Given the scale, which no order depends on.
    own, shared = without_scale(error, fit.ability_shared, fit.ability_scale)
    ranks = rank_intervals(
        ability,
        own,
        key=int(fit.options.get("seed") or 0),
        shared=shared,
        level=fit.level,
        pooled=compares_means(fit),
    )
    table = _replaced(table, dict(zip(RankIntervals._fields, ranks, strict=True)))
    return dataclasses.replace(
        fit,
        abilities=AbilityTable(table),
        notes=(*(x for x in fit.notes if x != ONE_RUN), note),
        options={**fit.options, **options},
    )


def _wider(
    fit: Calibration, names: Sequence[str], errors: np.ndarray
) -> dict[str, np.ndarray]:
    """Error and interval of an accuracy with errors by runs, by name of the column.

    `names` are those of the accuracy, its error and the ends of its interval.
    """
    accuracy, own, low, high = floats(fit.abilities.table, *names)
    half = float(ndtri(0.5 + fit.level / 2)) * errors
    ends = response_ends(fit.model)
    lower = accuracy - np.hypot(accuracy - low, half)
    upper = accuracy + np.hypot(high - accuracy, half)
    clipped = (np.clip(x, ends["low"], ends["top"]) for x in (lower, upper))
    return dict(zip(names[1:], (np.hypot(own, errors), *clipped), strict=True))


def _unit(fit: Calibration) -> float:
    """The size of a point in units of the scores of a fit."""
    ends = response_ends(fit.model)
    return 0.01 if (ends["low"], ends["top"]) == (0, 1) else 1.0


def _slope(ability: np.ndarray, score: np.ndarray) -> float:
    """The slope of the expected score in ability, over the subjects; above 0."""
    finite = np.isfinite(ability) & np.isfinite(score)
    x, y = ability[finite], score[finite]
    x = x - x.mean() if len(x) else x
    square = float(x @ x)
    slope = float(x @ y) / square if square > 0 else 0.0
    return slope if slope > 0 else np.inf


def _replaced(table: Any, columns: dict[str, Any]) -> Any:
    """A table of Arrow with other values in some of its columns, of the same types."""
    import pyarrow as pa

    for name, values in columns.items():
        kind = table.schema.field(name)
        column = values
        if not isinstance(values, pa.Array):
            column = number_column(values).cast(kind.type)
        table = table.set_column(table.column_names.index(name), kind, column)
    return table
