"""Compares two subjects of a calibration, or of responses without a model."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax import ranking
from irtjax.calibration.run_errors import run_errors_of
from irtjax.calibration.score_curve import score_slope
from irtjax.calibration.tables import floats
from irtjax.data import ResponseTable, read
from irtjax.data.coding import coded_as
from irtjax.data.matching import find_two
from irtjax.data.reversal import aligned
from irtjax.data.wording import NOUNS
from irtjax.models.families.bounded import in_unit_range
from irtjax.models.model import response_size
from irtjax.ranking.accuracy import (
    ENOUGH_CLUSTERS,
    PairedDifference,
    paired_difference,
)

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration


def _clusters_of(fit: Calibration, table: ResponseTable) -> tuple[Any, str]:
    """Labels of the clusters of items, `[items]`, and what one of them is called."""
    benchmarks = table.item_facets.get("benchmark")
    several = benchmarks is not None and len(np.unique(benchmarks)) >= ENOUGH_CLUSTERS
    named = fit.options.get("cluster") is not None
    if "cluster" not in fit.items.table.column_names or (several and not named):
        return benchmarks, NOUNS[1]
    labels = fit.items.table.column("cluster").to_pylist()
    by_name = dict(zip(fit.item_names.tolist(), labels, strict=True))
    # Items that the fit has not are clusters of their own.
    clusters = [by_name.get(x, f"item {x}") for x in table.items.tolist()]
    return np.array(clusters), "cluster"


def compare(
    fit: Calibration,
    first: str,
    second: str,
    *,
    data: Any = None,
    level: float | None = None,
) -> ranking.Comparison:
    """Compares two subjects of a calibration.

    Args:
        fit: The calibration.
        first: Name of one subject.
        second: Name of the other.
        data: The responses, which a calibration does not keep (a `ResponseTable`, or
            anything `irtjax.read` takes); adds a sign test on the items that both
            answered and the paired difference of accuracies (`ranking.accuracy`).
        level: Level of the interval; None takes that of the calibration.

    Returns:
        The comparison, first less second.

    Raises:
        ValueError: If a name is not among the subjects, or both are the same.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> compare(fit, "subject 1", "subject 2").difference > 0
    True
    """
    places = find_two(fit.subject_names, first, second)
    first, second = fit.subject_names[places].tolist()
    ability, error = (
        x[places] for x in floats(fit.abilities.table, "ability", "ability_se")
    )
    for name, value in zip((first, second), ability, strict=True):
        if not np.isfinite(value):
            raise ValueError(f"{name!r} has no finite ability to compare")
    responses, paired, unit = None, None, NOUNS[1]
    chosen = fit.level if level is None else level
    if data is not None:
        table = data if isinstance(data, ResponseTable) else read(data)
        table = aligned(table, fit.reversed_scores, fit.item_names.tolist())
        table = coded_as(fit.options, table).select(subjects=[first, second])
        if fit.options.get("bounds"):
            shares = in_unit_range(fit.options, table, fit.item_names, fit.benchmarks)
            table = dataclasses.replace(table, values=shares)
        responses = table.responses()
        exposure = table.observed if table.trials is None else table.trials
        labels, unit = _clusters_of(fit, table)
        top = 1.0 if table.trials is not None else response_size(fit.model)
        run_sd = fit.options.get("run_sd", 0.0)
        runs = run_errors_of(table, run_sd, fit.options, labels)
        options = {"top": top, "level": chosen, "run_error": math.hypot(*runs)}
        paired = paired_difference(table.values, exposure, labels, **options)
    shared, scale = (
        None if part is None else part[places]
        for part in (fit.ability_shared, fit.ability_scale)
    )
    options = {"shared": shared, "scale": scale, "level": chosen}
    result = ranking.compare(ability, error, 0, 1, **options, data=responses)
    result = result._replace(
        unit=unit,
        first=first,
        second=second,
        level=chosen,
        **_score_difference(fit, places, result, chosen),
    )
    if paired is None:
        return result
    return result._replace(**dict(zip(_PAIRED, paired, strict=True)))


def compare_responses(
    table: ResponseTable,
    first: str,
    second: str,
    *,
    level: float = 0.95,
    run_sd: float = 0.0,
) -> tuple[PairedDifference, int]:
    """Compares the accuracies of two subjects, without a model.

    Args:
        table: The responses of the two, and perhaps of others.
        first: Name of one subject.
        second: Name of the other.
        level: Level of the interval.
        run_sd: Standard deviation of a score from run to run (`calibration.runs`).

    Returns:
        The paired difference, first less second, and the number of shared items.

    Raises:
        ValueError: If a name is not among the subjects, both are the same, or they
            share fewer than 2 items.

    >>> table = ResponseTable.from_arrays([[1, 1, 1, 0], [1, 0, 0, 0]])
    >>> found, items = compare_responses(table, "subject 1", "subject 2")
    >>> found.difference, items
    (0.5, 4)
    """
    places = find_two(table.subjects, first, second)
    table = table.select(subjects=table.subjects[places].tolist())
    exposure = table.observed if table.trials is None else table.trials
    top = 1.0 if table.trials is not None else float(max(table.values.max(), 1))
    labels = table.item_facets.get("benchmark")
    runs = run_errors_of(table, run_sd, clusters=labels)
    options: dict[str, Any] = {"top": top, "level": level}
    options["run_error"] = math.hypot(*runs)
    difference = paired_difference(table.values, exposure, labels, **options)
    seen = np.ones(table.values.shape) if exposure is None else exposure
    if difference is None:
        raise ValueError(
            f"{first!r} and {second!r} share fewer than 2 items: name more logs of them"
        )
    return difference, int((seen > 0).all(axis=0).sum())


#: Fields of a comparison in the order of `ranking.accuracy.PairedDifference`.
_PAIRED = ("accuracy_difference", "accuracy_se", "accuracy_lower", "accuracy_upper")
_PAIRED += ("accuracy_p_value", "clusters", "by_cluster")
#: z below which a difference of scores is too small to have a slope of its own.
_SMALL = 0.5


def _score_difference(
    fit: Calibration, places: np.ndarray, result: ranking.Comparison, level: float
) -> dict[str, float]:
    """The difference D of expected scores with its interval; empty without scores.

    By the delta method its standard error is that of the abilities, given the scale,
    times the slope of the score: between the two subjects, D / z. So the interval and
    the test of the abilities agree. Of abilities that hardly differ it is the
    derivative between them; where the score is no function of one ability, the slope
    of a regression over the other subjects, weighted by their distance.
    """
    ability, score = floats(fit.abilities.table, "ability", "expected_score")
    gap = float(score[places[0]] - score[places[1]])
    if not np.isfinite(gap):
        return {}
    z, error = result.z, result.standard_error
    own = abs(result.difference / z) if z else error
    middle = float(ability[places].mean())
    if abs(z) >= _SMALL and gap * z > 0:
        spread = abs(gap / z)
    elif slope := score_slope(fit, middle, own / np.sqrt(2)):
        spread = abs(slope) * own
    else:
        finite = np.isfinite(ability) & np.isfinite(score)
        x, y = ability[finite], score[finite]
        distance = (x - middle) / max(x.std() / 2, error)
        weight = np.exp(-0.5 * distance**2)
        x = x - np.average(x, weights=weight)
        square = np.average(x * x, weights=weight)
        if not square > 0:
            return {}
        slope = np.average(x * y, weights=weight) / square
        spread = abs(slope) * own
    half = float(ndtri(0.5 + level / 2)) * spread
    names = ("score_difference", "score_lower", "score_upper")
    return dict(zip(names, (gap, gap - half, gap + half), strict=True))
