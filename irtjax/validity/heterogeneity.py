"""Clusters of items, and whether a benchmark measures one skill (AIMS 2.3.2.5).

`item_clusters` clusters the items of a benchmark by a factor fit. `cluster_scores` has
the correlations of subjects' scores on the clusters, raw and corrected for
unreliability.

Clusters are found where chance made items alike, so the corrected correlation of two
clusters of one skill lies below 1, by more the fewer the subjects. Its band is that of
the whole analysis of simulated responses (`one_skill`): one ability for each benchmark,
the same missing cells, then the factor fit, the clusters and the smallest correlation
as for the data. Fixed clusters would leave this out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import RandomKey
from irtjax.calibration.calibration import Calibration
from irtjax.data import read
from irtjax.data.frames import HasTable
from irtjax.data.matching import match_all_items
from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing, percent
from irtjax.numerics.progress import watched
from irtjax.numerics.random_keys import as_key
from irtjax.validity import cluster_scores
from irtjax.validity.cluster_scores import (
    ClusterSums,
    cluster_sums,
    comparable,
    correlations,
    reliabilities,
    resampled_bounds,
)
from irtjax.validity.families import families_of
from irtjax.validity.item_clusters import (
    MOST_STEPS,
    Analysis,
    ItemClusters,
    ItemsByBenchmark,
    varied,
    with_joint_priors,
)
from irtjax.validity.one_skill import fit_one_skill

if TYPE_CHECKING:
    import pyarrow as pa

#: Items without which a benchmark is not clustered.
FEWEST_ITEMS = 6
#: Families of subjects without which an interval is too short.
FEWEST_FAMILIES = 10
#: Name of no facet: all items together.
ALL = "all"
#: Verdicts. One skill is what is not rejected: that does not show that there is one.
ONE = "one skill"
RELATED, CONFLICTING = "related skills", "conflicting skills"
NONE = "no verdict"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Heterogeneity(HasTable):
    """Clusters of the items of each benchmark, and whether they measure one skill.

    Attributes:
        table: A row for each benchmark: `benchmark`, `items` that were clustered,
            `excluded` items without variation, `clusters`, `entropy` of the assignment
            (nats per item), `smallest` correlation of two clusters without their
            unreliability with its interval, the band of it under one
            skill, `band_lower` and `band_upper` (1 for a simulated table without two
            clusters to compare), and `verdict`.
        items: A row for each item: `item`, `benchmark`, `cluster` (1 is the largest;
            null if excluded) and its `probability`.
        clusters: A row for each cluster: `benchmark`, `cluster`, `items`, `share` of
            the benchmark's items, `alpha` (null if no subject has responses to two of
            them), `mean` response.
        correlations: A row for each two clusters of a benchmark: correlation `raw` of
            mean responses, adjusted for the difficulty of the items observed, with its
            interval, and `correlation` without their unreliability with its interval;
            `compared` where both clusters are long and reliable enough for
            the verdict.
        scores: A row for each subject and cluster: `subject`, `benchmark`, `cluster`,
            `accuracy` (mean response), `observed` responses.
        level: Level of the intervals and the band.
        simulations: Number of simulated tables.
        warnings: Reasons to doubt the numbers.
    """

    title = "Skills by benchmark"
    columns = (
        "benchmark",
        "items",
        "clusters",
        "smallest",
        "smallest_lower",
        "smallest_upper",
        "verdict",
    )

    table: pa.Table
    items: pa.Table
    clusters: pa.Table
    correlations: pa.Table
    scores: pa.Table
    level: float
    simulations: int
    warnings: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict on each benchmark in a sentence."""
        return tuple(_sentence(row, self.level) for row in self.table.to_pylist())


def _sentence(row: dict[str, Any], level: float) -> str:
    """The verdict on a benchmark in words."""
    name, count = row["benchmark"] or "all items", row["clusters"]
    if count is None:
        return f"{name}: {NONE}, with fewer than {FEWEST_ITEMS} items that vary."
    verdict = row["verdict"]
    head = f"{name}: {verdict}{' (no evidence against it)' if verdict == ONE else ''}."
    if count == 1:
        return f"{head} The {row['items']:,} items are one cluster."
    if row["smallest"] is None:
        return f"{head[:-1]}, its {count} clusters are too unreliable to compare."
    low, high = row["band_lower"], row["band_upper"]
    band = f"{low:.2f} to {high:.2f}" if low < 1 else "no two clusters to compare"
    return (
        f"{head} The smallest correlation of its {count} clusters is"
        f" {row['smallest']:.2f} ({percent(level)} interval"
        f" {row['smallest_lower']:.2f} to {row['smallest_upper']:.2f});"
        f" one skill gives {band}."
    )


class _Parts(NamedTuple):
    """The items that are analysed, and their groups."""

    names: list[str]  # Of all groups.
    groups: np.ndarray  # [items] code of each item's group.
    used: np.ndarray  # [items] with variation.
    large: list[int]  # Groups with enough of these.
    columns: np.ndarray  # Positions of the items with variation.
    layout: ItemsByBenchmark  # Of the kept groups, in positions of `columns`.


def heterogeneity(
    fit: Calibration,
    data: ResponseTable | Any,
    *,
    by: str = "benchmark",
    family: str | None = None,
    most: int = 10,
    simulations: int = 39,
    level: float = 0.95,
    key: RandomKey | None = None,
    progress: Callable[[str], None] | None = None,
) -> Heterogeneity:
    """Clusters the items of each benchmark, and compares the clusters' scores.

    The verdict on a benchmark depends on the smallest correlation of two clusters,
    without their unreliability, of those with 3 items and a reliability of 0.7:

    - "one skill": there is no evidence against it, since the correlation lies in its
      band or there is one cluster;
    - "related skills": it lies below the band, which one skill does with a probability
      of (1 - level) / 2 at most. Verdicts are not corrected for the number of
      benchmarks;
    - "conflicting skills": moreover its interval lies below 0;
    - "no verdict": there are several clusters but no two to compare, or fewer than 6
      items that vary.

    Clusters are those of a joint fit (`mm`, weak priors) of the model to the responses
    given, since simulated responses are fitted in the same way. Of `fit` they use the
    number of factors, the signs and which loadings are free.

    Args:
        fit: A calibration of a factor model.
        data: Responses to items of the fit: right or wrong.
        by: Facet of the items whose groups are analysed, or "all" for all items
            together, as they are where there are no benchmarks.
        family: Facet of the subjects whose members are resampled together, such as
            fine-tunes of one base model; "family" where the subjects have it.
        most: Largest number of clusters of a benchmark.
        simulations: Number of simulated tables, at least 2 / (1 - level) - 1.
        level: Level of the intervals and the band.
        key: A whole number or a JAX key; a fixed one when None.
        progress: Called with what is being done.

    Returns:
        Clusters, scores, correlations and verdicts.

    Raises:
        ValueError: If the fit has one ability, the responses are not right or wrong or
            of other items, there is no such facet, there are too few simulations, or
            all subjects are of one family.

    >>> rng = np.random.default_rng(0)
    >>> eta = np.repeat(rng.normal(size=(90, 2)), 10, axis=1)
    >>> right = rng.random((90, 20)) < 1 / (1 + np.exp(-2 * eta))
    >>> table = ResponseTable.from_arrays(right)
    >>> from irtjax.fitting.fit import fit
    >>> two = fit(table, "factor", factors=2)  # doctest: +SKIP
    >>> skills = heterogeneity(two, table, most=3)  # doctest: +SKIP
    >>> skills.table["verdict"].to_pylist()  # doctest: +SKIP
    ['related skills']
    """
    table = data if isinstance(data, ResponseTable) else read(data)
    lowest = _check(fit, table, most, simulations, level)
    report = progress or (lambda text: None)
    key = as_key(key)
    own_key, null_key, draw_key = jax.random.split(key, 3)
    families, resample = _resampler(table, family, draw_key)
    parts = _parts(table, by)
    places = match_all_items(table, fit.item_names, "analyse", fit.item_contents)
    places = places[parts.columns]
    small = table.select(items=parts.columns)
    values, seen = (jnp.asarray(x) for x in _cells(small))
    mask = None
    if fit.options.get("loadings") == "given":
        mask = np.asarray(fit.parameters.items.discrimination)[places] != 0
    analysis = Analysis(with_joint_priors(fit.model), mask, parts.layout, most)
    report("clusters")
    clusters, converged = analysis.run(values, seen, own_key)
    one = fit_one_skill(values, seen, parts.layout, report)
    draws = []
    for k in watched(range(simulations)):
        report(f"one skill: simulation {k + 1} of {simulations}")
        first, second = jax.random.split(jax.random.fold_in(null_key, k))
        drawn = one.draw(values, seen, first)
        draws.append(np.asarray(analysis.run(drawn, seen, second)[0].smallest))
    report("intervals")
    ordered = np.sort(draws, axis=0)
    band = ordered[lowest - 1], ordered[-lowest]
    result = _result(table, parts, clusters, band, resample, level, simulations)
    doubts = _doubts(families, converged)
    return dataclasses.replace(result, warnings=(*doubts, *result.warnings))


def _doubts(families: int | None, converged: bool) -> list[str]:
    """Warnings about intervals from few families, and about the factor fit."""
    doubts = []
    if families is not None and families < FEWEST_FAMILIES:
        doubts.append(
            f"intervals are resamples of {families} families: with fewer than"
            f" {FEWEST_FAMILIES} they are too short"
        )
    if not converged:
        doubts.append(
            f"the joint factor fit did not converge in {MOST_STEPS} steps, so clusters"
            " may be rough: fit fewer factors"
        )
    return doubts


def _check(fit: Calibration, table: ResponseTable, most, simulations, level) -> int:
    """Refuses what cannot be analysed; the rank of the band's lower bound."""
    if not fit.factor_names:
        raise ValueError(
            f"the fit of {fit.model.name} has one ability: fit model='factor' with two"
            " or more factors"
        )
    if table.kind != "binary":
        raise ValueError(
            f"clusters need responses that are right or wrong, not {table.kind}: choose"
            " a 0/1 metric"
        )
    if not 0 < level < 1:
        raise ValueError(f"level {level:g} is not between 0 and 1")
    if most < 1:
        raise ValueError(f"most {most}: give at least 1 cluster")
    lowest = int((simulations + 1) * (1 - level) / 2 + 1e-9)
    if lowest < 1:
        least = int(np.ceil(2 / (1 - level) - 1e-9)) - 1
        raise ValueError(
            f"simulations {simulations}: a band of {percent(level)} needs at least"
            f" {least}"
        )
    return lowest


def _groups(table: ResponseTable, by: str) -> tuple[np.ndarray, list[str]]:
    """Code of each item's group, and the names by code."""
    if by not in table.item_facets:
        if by not in ("benchmark", ALL):
            there = listing(sorted(table.item_facets)) or "none"
            raise ValueError(f"no facet {by!r} of items; there are: {there}")
        return np.zeros(table.num_items, int), [""]
    names, codes = np.unique(table.item_facets[by], return_inverse=True)
    return codes, [str(name) for name in names]


def _parts(table: ResponseTable, by: str) -> _Parts:
    """Groups of items, those with enough items that vary as rows."""
    groups, names = _groups(table, by)
    used = varied(*_cells(table))
    sizes = np.bincount(groups[used], minlength=len(names))
    large = np.flatnonzero(sizes >= FEWEST_ITEMS).tolist()
    if not large:
        raise ValueError(
            f"no benchmark has {FEWEST_ITEMS} items with variation: there is nothing to"
            " cluster"
        )
    columns = np.flatnonzero(used)
    rows = [np.flatnonzero(groups[columns] == k) for k in large]
    index = np.zeros((len(rows), sizes.max()), int)
    for place, row in zip(index, rows, strict=True):
        place[: len(row)] = row
    valid = np.arange(sizes.max()) < sizes[large][:, None]
    layout = ItemsByBenchmark(jnp.asarray(index), jnp.asarray(valid))
    return _Parts(names, groups, used, large, columns, layout)


def _cells(table: ResponseTable) -> tuple[np.ndarray, np.ndarray]:
    """Values and mask of all cells."""
    seen = table.observed
    seen = np.ones(table.values.shape, bool) if seen is None else seen
    return table.values, seen


def _resampler(
    table: ResponseTable, family: str | None, key
) -> tuple[int | None, Callable[[int], np.ndarray]]:
    """The number of families, or None, and a function that gives weights of subjects.

    Subjects of a family have the same weight.
    """
    own, families = np.arange(table.num_subjects), None
    family_codes = families_of(table, family)
    if family_codes is not None:
        names, own = family_codes
        families = len(names)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    units = int(own.max()) + 1
    odds = np.full(units, 1 / units)

    def draw(count: int) -> np.ndarray:
        return rng.multinomial(units, odds, size=count)[:, own].astype(float)

    return families, draw


def _result(
    table: ResponseTable,
    parts: _Parts,
    estimate: ItemClusters,
    band,
    resample,
    level,
    count,
) -> Heterogeneity:
    """Tables of what was found."""
    import pyarrow as pa

    values, seen = _cells(table)
    cluster = np.zeros(table.num_items, int)
    chance = np.full(table.num_items, np.nan)
    rows, clusters, pairs, scores = [], [], [], []
    for k, name in enumerate(parts.names):
        here = parts.groups == k
        row: dict[str, Any] = {
            "benchmark": name,
            "items": int((parts.used & here).sum()),
        }
        rows.append(row)
        row["excluded"] = int((~parts.used & here).sum())
        if k not in parts.large:
            row["verdict"] = NONE
            continue
        at = parts.large.index(k)
        valid = np.asarray(parts.layout.valid[at])
        own = parts.columns[parts.layout.items(at)]
        labels, code = _by_size(np.asarray(estimate.label[at])[valid])
        cluster[own] = code + 1
        chance[own] = np.asarray(estimate.probability[at])[valid]
        member = np.eye(len(labels))[code]
        cells = values[:, own].astype(float), seen[:, own]
        sums, sizes = cluster_sums(*cells, member), member.sum(axis=0)
        alpha = np.asarray(reliabilities(sums, sizes)[0])
        mean, answers = _means(*cells, member)
        same = {"benchmark": name}
        for g, size in enumerate(sizes):
            total = answers[:, g].sum()
            clusters.append(same | {
                "cluster": g + 1, "items": int(size), "share": size / here.sum(),
                "alpha": _number(alpha[g]),
                "mean": float(np.nansum(mean[:, g] * answers[:, g]) / total),
            })  # fmt: skip
        found_pairs = _pairs(same, sums, comparable(alpha, sizes), resample, level)
        pairs += found_pairs
        scores.append(_score_rows(table.subjects, name, mean, answers))
        row |= {"clusters": len(labels), "entropy": float(estimate.entropy[at])}
        row |= _judged(len(labels), found_pairs, band[0][at], band[1][at])
    listed = {
        "item": table.items.tolist(),
        "benchmark": [parts.names[k] for k in parts.groups],
        "cluster": pa.array([int(k) or None for k in cluster], pa.int64()),
        "probability": pa.array(chance, from_pandas=True),
    }
    return Heterogeneity(
        _table_of(rows, _ROW),
        pa.table(listed),
        _table_of(clusters, _CLUSTER),
        _table_of(pairs, _PAIR),
        pa.concat_tables(scores),
        level,
        count,
        tuple(_warnings(rows, clusters)),
    )


#: Columns of the tables, with "s" for text, "i" for whole numbers, "b" for yes or no.
_ROW = (
    "benchmark:s items:i excluded:i clusters:i entropy smallest smallest_lower"
    " smallest_upper band_lower band_upper verdict:s"
)
_CLUSTER = "benchmark:s cluster:i items:i share alpha mean"
_PAIR = (
    "benchmark:s cluster_1:i cluster_2:i raw raw_lower raw_upper correlation"
    " correlation_lower correlation_upper compared:b"
)


def _table_of(rows: list[dict[str, Any]], columns: str) -> pa.Table:
    """A table of columns "name:kind", kind i, s, b or none for a float."""
    import pyarrow as pa

    kinds = {"s": pa.string(), "i": pa.int64(), "b": pa.bool_(), "": pa.float64()}
    pairs = [name.partition(":")[::2] for name in columns.split()]
    schema = pa.schema([(name, kinds[kind]) for name, kind in pairs])
    return pa.Table.from_pylist(rows, schema)


def _number(value: float) -> float | None:
    """A finite number, else None."""
    return float(value) if np.isfinite(value) else None


def _by_size(label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels that occur, most frequent first, and each item's place among them."""
    names, code, sizes = np.unique(label, return_inverse=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    return names[order], np.argsort(order)[code]


def _means(values, seen, member) -> tuple[np.ndarray, np.ndarray]:
    """Mean responses by subject and cluster, NaN without any, and their number."""
    answers = seen @ member
    total = (values * seen) @ member
    blank = np.full_like(total, np.nan)
    return np.divide(total, answers, out=blank, where=answers > 0), answers


def _score_rows(subjects, name: str, mean, answers) -> pa.Table:
    """Rows of the mean responses of subjects in each cluster."""
    import pyarrow as pa

    rows, count = mean.shape
    return pa.table(
        {
            "subject": np.repeat(subjects, count).tolist(),
            "benchmark": [name] * mean.size,
            "cluster": np.tile(np.arange(1, count + 1), rows),
            "accuracy": pa.array(mean.ravel(), from_pandas=True),
            "observed": answers.ravel().astype(int),
        }
    )


def _pairs(same, sums: ClusterSums, compared, resample, level) -> list[dict[str, Any]]:
    """Correlations of each two clusters with their intervals."""
    ones = np.ones((1, len(sums.total)))
    raw, corrected = (x[0] for x in correlations(sums, ones))
    raw_bounds, bounds = resampled_bounds(sums, resample, level)
    rows = []
    for g in range(len(raw)):
        for h in range(g + 1, len(raw)):
            at = g, h
            kinds = (raw, *raw_bounds, corrected, *bounds)
            ends = ("", "_lower", "_upper")
            names = [x + end for x in ("raw", "correlation") for end in ends]
            row = same | {"cluster_1": g + 1, "cluster_2": h + 1}
            row |= {n: _number(x[at]) for n, x in zip(names, kinds, strict=True)}
            rows.append(row | {"compared": bool(compared[g] and compared[h])})
    return rows


def _judged(clusters: int, pairs, low: float, high: float) -> dict[str, Any]:
    """The smallest correlation of clusters that can be compared, and the verdict."""
    fine = [row for row in pairs if row["compared"] and row["correlation"] is not None]
    band = {"band_lower": float(low), "band_upper": float(high)}
    if not fine:
        return band | {"verdict": ONE if clusters == 1 else NONE}
    least = min(fine, key=lambda row: row["correlation"])
    smallest = {"smallest": least["correlation"]}
    ends = ("lower", "upper")
    smallest |= {f"smallest_{end}": least[f"correlation_{end}"] for end in ends} | band
    verdict = ONE
    if least["correlation"] < low:
        below = (
            least["correlation_upper"] is not None and least["correlation_upper"] < 0
        )
        verdict = CONFLICTING if below else RELATED
    return smallest | {"verdict": verdict}


def _warnings(rows, clusters) -> list[str]:
    """Lines on benchmarks, items and clusters that have no sound verdict."""
    warnings = []
    few = [row["benchmark"] for row in rows if row.get("clusters") is None]
    if few:
        warnings.append(
            f"fewer than {FEWEST_ITEMS} items with variation, so no verdict:"
            f" {listing(few)}"
        )
    excluded = sum(row["excluded"] for row in rows)
    if excluded:
        warnings.append(
            f"items in no cluster, since all or none of the subjects solved them:"
            f" {excluded:,}"
        )
    several = {row["benchmark"] for row in rows if (row.get("clusters") or 0) > 1}
    vague = [
        f"{row['benchmark'] or 'all items'} {row['cluster']}"
        for row in clusters
        if row["benchmark"] in several
        and not comparable(row["alpha"] or 0, row["items"])
    ]
    if vague:
        warnings.append(
            f"clusters of fewer than {cluster_scores.FEWEST_ITEMS} items or with a"
            f" reliability below {cluster_scores.LEAST_RELIABILITY} are not compared:"
            f" {listing(vague)}"
        )
    return warnings
