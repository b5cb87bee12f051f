"""How many items a comparison needs, before it is made: power as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from irtjax.data.frames import HasTable
from irtjax.data.reading.read import read
from irtjax.data.stored_cells import DenseCells
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.ranking.accuracy import (
    ENOUGH_CLUSTERS,
    accuracies,
    paired_difference,
    wilson_interval,
)
from irtjax.ranking.power import (
    PairedDesign,
    detectable_difference,
    items_needed,
    paired_power,
    paired_variance,
)

#: Items of the rows of the table where none are given.
ITEMS = (50, 100, 200, 400, 1000, 2000, 5000)
#: Without data: accuracy, correlation of the responses of two models to an item, and of
#: differences within a cluster. Of real logs (LiveCodeBench, MATH, GSM8K, 41,871 items
#: of PSN-IRT) the median correlation of two models is 0.2 to 0.4, of ten close ones 0.3
#: to 0.6.
ACCURACY, CORRELATION, CLUSTER_CORRELATION = 0.7, 0.3, 0.1
#: Pairs of subjects of the data that are averaged.
MOST_PAIRS = 500


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Power(HasTable):
    """What `irtjax.power` returns.

    Attributes:
        table: A row for each number of items: `items`, `power` to find the difference
            by one planned comparison, `detectable` (the smallest difference that is
            found with the power wanted), `half_width` of the interval of a score; with
            more than two models, `power_of_pairs` and `detectable_of_pairs` of one pair
            among all.
        items_needed: Fewest items that find the difference with the power wanted by one
            planned comparison; None if more than a thousand million.
        items_needed_of_pairs: The same of a pair among all pairs; None without models.
        difference: The difference of two mean responses.
        models: Number of models that are compared, or None.
        accuracy: Mean response.
        correlation: Of the responses of two models to one item.
        design: Variance of the difference of two responses, and the clusters of items.
        level: Of tests and intervals.
        power: The power wanted.
    """

    title = "Power, by number of items"

    table: pa.Table
    items_needed: int | None
    items_needed_of_pairs: int | None
    difference: float
    models: int | None
    accuracy: float
    correlation: float
    design: PairedDesign
    level: float
    power: float

    @property
    def sentences(self) -> list[str]:
        """The answer in words: assumptions, and the items that are needed."""
        clusters, design = "", self.design
        if design.clusters is not None:
            clusters = f", in the same {counted(design.clusters, 'benchmark')}"
        elif design.cluster_size > 1:
            clusters = f", clusters of {design.cluster_size:.3g} items"
        lines = [
            f"Two models on the same items, mean score {self.accuracy:.2f}, responses"
            f" to an item correlated by {self.correlation:.2f}{clusters}."
        ]
        what = f"a difference of {self.difference:.3g} with power {self.power:.2f}"
        lines.append(f"{_needed(self.items_needed)} needed to find {what}.")
        if "power_of_pairs" in self.table.column_names:
            assert self.models is not None
            pairs = self.models * (self.models - 1) // 2
            lines.append(
                f"{_needed(self.items_needed_of_pairs)} needed among"
                f" {counted(pairs, 'pair')} of {counted(self.models, 'model')}, if no"
                " other pair differs (strictest case)."
            )
        return lines


def _needed(items: int | None) -> str:
    """How many items, and the verb."""
    if items is None:
        return "No number of items suffices: more benchmarks are"
    return f"{counted(items, 'item')} {'is' if items == 1 else 'are'}"


def power(
    data: Any = None,
    *,
    sizes: int | Sequence[int] | None = None,
    models: int | None = None,
    difference: float = 0.05,
    accuracy: float | None = None,
    correlation: float | None = None,
    cluster_size: float | None = None,
    cluster_correlation: float | None = None,
    level: float = 0.95,
    power: float = 0.8,
) -> Power:
    r"""Computes the power of paired comparisons of two models, and the items they need.

    The test is the paired t test of mean responses that `irtjax.compare` reports. Its
    power is that of the noncentral t distribution (`irtjax.ranking.power` has the
    formulas). With `models`, the smallest of all p-values must be below
    (1 - level) / pairs, the first step of Benjamini and Hochberg's procedure: the
    strictest case, where one pair alone differs.

    Args:
        data: Responses to take accuracy, variance and clusters from (a `ResponseTable`
            or anything `irtjax.read` takes): means over pairs of subjects. None takes
            the numbers below.
        sizes: Numbers of items, the rows of the table. None: those of the data, and 50
            to 5,000.
        models: Number of models whose pairs are all compared. None: of the data.
        difference: Of two mean responses, such as 0.05 for five points.
        accuracy: Mean response of the two. None: of the data, else 0.7.
        correlation: Of the responses of two models to one item. None: of the data, else
            0.3.
        cluster_size: Items that share a passage, a repository or the like. None: the
            benchmarks of the data are clusters if there are five or more; more items
            are then more items of each.
        cluster_correlation: Of two items of a cluster; None: 0.1. For `cluster_size`.
        level: Of intervals; tests are at 1 - level.
        power: The power wanted.

    Returns:
        The table, the items needed, and what was assumed.

    Raises:
        ValueError: If a number is out of its range, a difference is larger than the
            accuracy allows, or the data have fewer than two subjects with two shared
            items.

    >>> import irtjax
    >>> study = irtjax.power(sizes=[200, 1000], accuracy=0.7, correlation=0.5)
    >>> study.items_needed
    661
    >>> [round(x, 3) for x in study.table["power"].to_pylist()]
    [0.336, 0.932]
    """
    _check(locals())
    typical = None if data is None else _typical(data)
    scores, differences, together = _designs(accuracy, correlation, difference, typical)
    if cluster_size is not None:
        inside = cluster_correlation or CLUSTER_CORRELATION
        clusters = {"cluster_size": float(cluster_size), "clusters": None}
        clusters["cluster_correlation"] = inside if cluster_size > 1 else 0.0
        scores, differences = (x._replace(**clusters) for x in (scores, differences))
    if differences.variance <= 0:
        raise ValueError(
            "power needs responses in which two subjects differ: give an accuracy"
            " (--accuracy) in place of that of the data"
        )
    mean = _first(accuracy, typical and typical.accuracy, ACCURACY)
    models = models if typical is None or models is not None else typical.models
    pairs = None if models is None or models == 2 else models * (models - 1) // 2
    among = None if pairs is None else 1 - (1 - level) / pairs
    rows = _rows(sizes, typical)
    columns: dict[str, list] = {"items": rows}
    for end, at in {"": level, "_of_pairs": among}.items():
        if at is not None:
            columns["power" + end] = [
                paired_power(differences, n, difference, at) for n in rows
            ]
            columns["detectable" + end] = [
                detectable_difference(differences, n, power, at) for n in rows
            ]
    columns["half_width"] = [_half_width(mean, scores, n, level) for n in rows]
    return Power(
        pa.table(columns),
        items_needed(differences, difference, power, level),
        None if among is None else items_needed(differences, difference, power, among),
        difference,
        models,
        mean,
        together,
        differences,
        level,
        power,
    )


class _Typical(NamedTuple):
    """Of data: means over subjects, and over pairs of subjects."""

    items: int
    models: int
    accuracy: float
    correlation: float
    scores: PairedDesign
    differences: PairedDesign


def _first(*values: float | None) -> float:
    """The first value that is given."""
    return next(x for x in values if x is not None)


def _designs(
    accuracy: float | None,
    correlation: float | None,
    difference: float,
    typical: _Typical | None,
) -> tuple[PairedDesign, PairedDesign, float]:
    """Of scores and of differences, and the correlation of responses to an item."""
    together = _first(correlation, typical and typical.correlation, CORRELATION)
    if typical is None:
        scores, differences = PairedDesign(0.0), PairedDesign(0.0)
    else:
        scores, differences = typical.scores, typical.differences
    if typical is not None and accuracy is None:
        if correlation is not None:
            spread = 2 * scores.variance * (1 - correlation)
            differences = differences._replace(variance=spread)
        return scores, differences, together
    mean = _first(accuracy, ACCURACY)
    high, low = mean + difference / 2, mean - difference / 2
    if low < 0 or high > 1:
        raise ValueError(
            f"a difference of {difference:g} is impossible at accuracy {mean:g}:"
            f" {low:g} and {high:g} are not both from 0 to 1"
        )
    scores = scores._replace(variance=mean * (1 - mean))
    differences = differences._replace(variance=paired_variance(high, low, together))
    return scores, differences, together


def _rows(sizes: int | Sequence[int] | None, typical: _Typical | None) -> list[int]:
    """Numbers of items, from few to many."""
    if sizes is None:
        return sorted({*ITEMS} | ({typical.items} if typical else set()))
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    if not sizes or min(sizes) < 2:
        raise ValueError("sizes must be at least 2: a test needs two items")
    return sorted({int(x) for x in sizes})


def _half_width(mean: float, scores: PairedDesign, items: int, level: float) -> float:
    """Half of Wilson's interval of a mean response (`ranking.accuracy`)."""
    error, clusters = scores.error(items), scores.degrees(items) + 1
    values = np.array([[mean], [error], [clusters]])
    low, high = wilson_interval(*values, level=level)
    return float(high[0] - low[0]) / 2


def _typical(data: Any) -> _Typical:
    """Means over subjects and over pairs of subjects of the data."""
    table = data if isinstance(data, ResponseTable) else read(data)
    values = np.asarray(table.values, float)
    seen = np.ones(values.shape, bool) if table.observed is None else table.observed
    if table.trials is not None:
        seen = seen & (table.trials > 0)
        values = values / np.where(seen, table.trials, 1)
    if values[seen].min(initial=0) < 0 or values[seen].max(initial=0) > 1:
        raise ValueError(
            "power needs responses from 0 to 1: read them with bounds (--bounds LOW"
            " HIGH), or give numbers in place of data"
        )
    pairs = [(i, k) for k in range(len(values)) for i in range(k)]
    if len(pairs) > MOST_PAIRS:
        chosen = np.random.default_rng(0).choice(len(pairs), MOST_PAIRS, replace=False)
        pairs = [pairs[k] for k in np.sort(chosen)]
    labels = table.item_facets.get("benchmark")
    clusters = None
    if labels is not None and len(np.unique(labels)) >= ENOUGH_CLUSTERS:
        clusters = len(np.unique(labels))
    differences = [_pair(values, seen, labels, list(p)) for p in pairs]
    differences = [x for x in differences if x is not None]
    if not differences:
        raise ValueError("power needs two subjects that answered two of the same items")
    variance, error, size, covariance, spread = np.mean(differences, axis=0).tolist()
    cells = DenseCells(values * seen, seen)
    own, count = accuracies(cells, labels), seen.sum(axis=1)
    many = np.isfinite(own.standard_error)
    alone = accuracies(cells).standard_error[many] ** 2 @ count[many]
    clustered = own.standard_error[many] ** 2 @ count[many]
    return _Typical(
        table.num_items,
        table.num_subjects,
        float(own.accuracy[many].mean()),
        covariance / spread if spread > 0 else 0.0,
        _clustered(
            float(alone / many.sum()), float(clustered / many.sum()), size, clusters
        ),
        _clustered(variance, error, size, clusters),
    )


def _pair(values, seen, labels, rows: list[int]) -> list[float] | None:
    """Of two subjects: variance of a difference of two responses to an item.

    Then what it is with clusters, the size of these, and covariance and mean variance
    of their responses.
    """
    difference = paired_difference(values[rows], seen[rows], labels)
    if difference is None:
        return None
    shared = seen[rows].all(axis=0)
    two, items = np.cov(values[rows][:, shared]), int(shared.sum())
    variance = two[0, 0] + two[1, 1] - 2 * two[0, 1]
    clustered = difference.standard_error**2 * items
    spread = (two[0, 0] + two[1, 1]) / 2
    return [variance, clustered, items / difference.clusters, two[0, 1], spread]


def _clustered(variance: float, clustered: float, size: float, clusters: int | None):
    """The design whose clusters explain by how much they change a variance."""
    if clusters is None or size <= 1 or variance <= 0:
        return PairedDesign(variance)
    inside = (clustered / variance - 1) / (size - 1)
    return PairedDesign(variance, size, max(inside, 0.0), clusters)


def _check(numbers: dict[str, Any]) -> None:
    """Refuses numbers out of their ranges."""
    for name, low, high in (
        ("difference", 0, 1),
        ("accuracy", 0, 1),
        ("level", 0, 1),
        ("power", 0, 1),
    ):
        value = numbers[name]
        if value is not None and not low < value < high:
            hint = ""
            if name == "difference" and 1 <= value <= 100:
                hint = f"; {value:g} points are {value / 100:g}"
            raise ValueError(f"{name} {value:g} is not between {low} and {high}{hint}")
    for name in ("correlation", "cluster_correlation"):
        value = numbers[name]
        if value is not None and not -1 < value < 1:
            raise ValueError(f"{name} {value:g} is not between -1 and 1")
    if numbers["power"] <= 1 - numbers["level"]:
        raise ValueError(
            f"power {numbers['power']:g} must be above 1 - level,"
            f" {1 - numbers['level']:.3g}, which tests reach where nothing differs"
        )
    if numbers["models"] is not None and numbers["models"] < 2:
        raise ValueError("models must be at least 2: a comparison needs two models")
    if numbers["cluster_size"] is not None and numbers["cluster_size"] < 1:
        raise ValueError("cluster_size must be at least 1 item")
