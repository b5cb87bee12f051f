r"""Families of subjects and clusters of items, and errors that count them.

Fine-tunes of one base model are no independent subjects, and questions on one passage
no independent items. Both are given by name (`family`, `cluster`), or found: labels of
the data and groups of names are tried, then subjects are searched, and items in
blocks of equal size (`calibration.dependence`).

**Clusters of items.** A shift of ability of variance v on each cluster changes the
ability of a subject, whose posterior variance is p_i = 1 / (1 / sd^2 + sum_j w_ij), by

    p_i^2 v sum_k ((sum_{j in k} w_ij)^2 - sum_{j in k} w_ij^2),                    (1)

which is added to its squared error, and to that of its expected score by the delta
method. A single response varies by the shift too, which its own variance includes.

**Families of subjects.** Mean and standard deviation of ability are those of a
population, and the subjects are a sample of it. With r the intraclass correlation of
abilities in families of sizes n_f, of n subjects, the mean has the error of

    m = n^2 / (n + r sum_f n_f (n_f - 1))                                           (2)

independent subjects, and the variance that of k, the same with r^2 (Satterthwaite
1946). To the covariance of abilities are added sd^2 (1 / m - 1 / n), the same for all,
and g g' (1 / (2 (k - 1)) - 1 / (2 (n - 1))), g the abilities less their mean. The
latter is an error of the scale, on which no order depends (`ranking.scale_loadings`).

Residuals of a family that agree, by v on each item, make differences within it more
precise: p_i p_l v sum_j w_ij w_lj is added to the covariance of two of its subjects.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import fdtri

from irtjax.calibration.assumptions import cell_slopes
from irtjax.calibration.dependence import (
    CRITICAL,
    Dependence,
    FreeSlopes,
    residuals_of,
)
from irtjax.calibration.groupings import Grouping, clusters_of_items, families_of
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.estimators.estimates import Estimates
from irtjax.numerics.programs import stored_jit
from irtjax.ranking import scale_loadings
from irtjax.ranking.accuracy import ENOUGH_CLUSTERS

if TYPE_CHECKING:
    import pyarrow as pa

#: Cells above which dependence is not tested: the test keeps a few arrays of them.
MOST_CELLS = 2**24
#: Subjects up to which the covariance within families is counted.
MOST_SUBJECTS = 1000
#: Least ratio of errors with and without clusters that a note is made for.
SMALLEST_FACTOR = 1.02
#: Families that a note names, and subjects of each.
MOST_GROUPS, MOST_NAMES = 4, 4
#: Fewest independent subjects that families are worth: a variance needs two.
FEWEST_WORTH = 2.0


class Relatives(NamedTuple):
    """What `with_relatives` found: the two groupings, or None, and notes."""

    families: Grouping | None = None
    clusters: Grouping | None = None
    notes: tuple[str, ...] = ()

    def with_clusters(self, table: pa.Table) -> pa.Table:
        """The table of items with a column of clusters, if there are any."""
        return _with_labels(table, "cluster", self.clusters)

    def with_families(self, table: pa.Table) -> pa.Table:
        """The table of abilities with a column of families, if there are any."""
        return _with_labels(table, "family", self.families)


def _with_labels(table: pa.Table, name: str, grouping: Grouping | None) -> pa.Table:
    """A table with a column of the names of groups; an unnamed one has a number."""
    import pyarrow as pa

    if grouping is None:
        return table
    return table.append_column(name, pa.array(grouping.labels.tolist()))


def clusters_of(
    table: ResponseTable, related: Relatives, options: dict[str, Any]
) -> np.ndarray | None:
    """Labels of items that accuracies count as dependent: clusters, or benchmarks."""
    facet = options.get("cluster")
    if facet is not None:
        return table.item_facets[facet]
    labels = table.item_facets.get("benchmark")
    several = labels is not None and len(np.unique(labels)) >= ENOUGH_CLUSTERS
    if related.clusters is None or several:
        return labels
    return related.clusters.labels


def with_clusters_as_benchmarks(
    table: ResponseTable, options: dict[str, Any]
) -> ResponseTable:
    """The table whose benchmarks are the clusters that were given, if they were."""
    facet = options.get("cluster")
    if facet is None:
        return table
    facets = {**table.item_facets, "benchmark": table.item_facets[facet]}
    return table.replace(item_facets=facets)


def of_means(table: ResponseTable, options: dict[str, Any]) -> Relatives:
    """The groups that were given, of fits whose subjects are compared by means.

    Their errors count clusters as benchmarks. Subjects are compared as they are, so
    families do not enter.
    """
    family, cluster = options.get("family"), options.get("cluster")
    return Relatives(
        None if family is None else _given(table.subject_facets[family]),
        None if cluster is None else _given(table.item_facets[cluster]),
    )


def _given(labels: np.ndarray) -> Grouping:
    """Groups by label, without a test of their dependence."""
    names, codes = np.unique(np.asarray(labels), return_inverse=True)
    return Grouping(codes, names, "", True, Dependence(math.nan, math.nan))


def with_relatives(
    table: ResponseTable,
    estimates: Estimates,
    options: dict[str, Any],
    paired: bool = False,
) -> tuple[Estimates, Relatives]:
    """Estimates whose errors count families and clusters, and what was found.

    `options` has the names of facets that were given as "family" and "cluster";
    `paired`, whether errors are those of paired means, which include what subjects
    share.
    """
    facets = options.get("family"), options.get("cluster")
    cells = _cells_of(table, estimates)
    if cells is None:
        return estimates, Relatives(notes=_not_counted(facets))
    part = np.zeros(table.num_items, int)
    if "benchmark" in table.item_facets and facets[1] != "benchmark":
        part = np.unique(table.benchmarks, return_inverse=True)[1]
    residuals = residuals_of(*cells, estimates.ability, part)
    families = families_of(table, residuals, facets[0])
    clusters = clusters_of_items(table, residuals, facets[1])
    posterior = _posterior(estimates, residuals)
    notes: list[str] = []
    if clusters is not None:
        estimates = _with_clusters(estimates, residuals, clusters, posterior, notes)
    if families is not None:
        agreeing = None if paired else posterior
        estimates = _with_families(
            table, estimates, residuals, families, agreeing, notes
        )
    return estimates, Relatives(families, clusters, tuple(notes))


def _not_counted(facets: tuple[str | None, str | None]) -> tuple[str, ...]:
    """A note on groups that were given where a fit has no test of them."""
    named = [
        f"{what} {name}"
        for what, name in zip(("family", "cluster"), facets, strict=True)
        if name
    ]
    if not named:
        return ()
    return (
        f"errors do not count {' and '.join(named)}: models of several abilities or of"
        " response lengths, and tables of few responses of many, have no such errors;"
        " accuracies do",
    )


def _cells_of(table: ResponseTable, estimates: Estimates):
    """Slopes and information by cell, or None where they are not tested."""
    if estimates.several or estimates.problem.model.has_lengths:
        return None
    if table.sparse is not None or table.size > MOST_CELLS:
        return None
    if min(table.num_subjects, table.num_items) < 3:
        return None
    problem, items = estimates.problem, estimates.parameters.items
    family, data = problem.model.family, problem.data
    ability, group = estimates.by_group
    if not np.isfinite(ability).all():
        return None
    slope, information = np.zeros((2, table.num_subjects, table.num_items))
    for code in np.unique(group):
        mine = np.flatnonzero(group == code)
        # Taken on the host, where this compiles no program for each shape.
        own = jax.tree.map(lambda x, mine=mine: np.asarray(x)[mine], items)
        exposure = data.exposure
        cells = cell_slopes(
            family.of_items(mine),
            own,
            ability[:, code].astype(np.asarray(items[0]).dtype),
            np.asarray(data.values)[:, mine],
            None if exposure is None else np.asarray(exposure)[:, mine],
        )
        slope[:, mine], information[:, mine] = (np.asarray(x, float) for x in cells)
    finite = np.isfinite(slope) & np.isfinite(information) & (information >= 0)
    return np.where(finite, slope, 0.0), np.where(finite, information, 0.0)


def _posterior(estimates: Estimates, residuals: FreeSlopes) -> np.ndarray:
    """Posterior variance of each ability, given items and population."""
    sd = float(np.asarray(estimates.parameters.population.sd))
    return 1 / (1 / max(sd, 1e-6) ** 2 + residuals.information.sum(axis=1))


@stored_jit
def _scores(family: Any, items: Any, theta):
    """Expected scores `[subjects]`, means over items."""
    over_items = jax.vmap(family.expected_response, in_axes=(0, None))
    return jnp.mean(jax.vmap(over_items, in_axes=(None, 0))(items, theta), axis=1)


def _with_clusters(
    estimates: Estimates,
    residuals: FreeSlopes,
    clusters: Grouping,
    posterior: np.ndarray,
    notes: list[str],
) -> Estimates:
    """Estimates with (1) in the errors of abilities and expected scores."""
    variance = max(clusters.dependence.variance, 0.0)
    onto = np.eye(int(clusters.codes.max()) + 1)[clusters.codes]
    weight = residuals.information
    squares = ((weight @ onto) ** 2 - weight**2 @ onto).sum(axis=1)
    added = posterior**2 * variance * squares
    error = np.sqrt(estimates.error**2 + added)
    factor = float(np.median(error / np.maximum(estimates.error, 1e-12)))
    changes: dict[str, Any] = {"error": error}
    family, items = estimates.problem.model.family, estimates.parameters.items
    dtype = np.asarray(items[0]).dtype
    at = np.asarray(estimates.ability, float)
    step = 0.01 + 0.1 * np.asarray(estimates.error, float)
    high, low = (
        np.asarray(_scores(family, items, jnp.asarray(x, dtype)), float)
        for x in (at + step, at - step)
    )
    slope = (high - low) / (2 * step)
    score, score_error = (np.asarray(x, float) for x in estimates.expected)
    changes["expected"] = score, np.sqrt(score_error**2 + slope**2 * added)
    if factor >= SMALLEST_FACTOR:
        sizes = np.bincount(clusters.codes)
        notes.append(
            f"responses of a subject to items of one cluster agree beyond ability"
            f" ({clusters.of}: {counted(len(sizes), 'cluster')}"
            f" of {_range(sizes)} items, standard deviation of ability between"
            f" clusters {variance**0.5:.2f}): standard errors count it, and are"
            f" {factor:.2f} times as large"
        )
    return dataclasses.replace(estimates, **changes)


def _range(sizes: np.ndarray) -> str:
    """Sizes in words: 5, or 3 to 7."""
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _with_families(
    table: ResponseTable,
    estimates: Estimates,
    residuals: FreeSlopes,
    families: Grouping,
    posterior: np.ndarray | None,
    notes: list[str],
) -> Estimates:
    """Estimates with the errors of few independent subjects."""
    ability, count = np.asarray(estimates.ability, float), table.num_subjects
    # Groups that were searched are impure, which lowers the estimate.
    upper = families.names is None
    correlation = intraclass_of(ability, families.codes, upper=upper)
    sizes = np.bincount(families.codes)
    pairs = float(np.sum(sizes * (sizes - 1.0)))
    worth = lambda r: max(count**2 / (count + r * pairs), FEWEST_WORTH)
    for_mean, for_scale = worth(correlation), worth(correlation**2)
    sd = float(np.asarray(estimates.parameters.population.sd))
    shared = estimates.shared
    shared = np.zeros((count, 0)) if shared is None else np.asarray(shared, float)
    variance = max(families.dependence.variance, 0.0)
    if posterior is not None and variance > 0 and count <= MOST_SUBJECTS:
        shared = _agreeing(estimates.error, shared, residuals, families, posterior)
    moved = np.zeros((count, 2))
    if not estimates.problem.anchored:
        moved[:, 0] = sd * max(1 / for_mean - 1 / count, 0.0) ** 0.5
        gap = ability - ability.mean()
        if estimates.problem.model.family.has_slope:
            excess = 1 / (2 * (for_scale - 1)) - 1 / (2 * max(count - 1, 1))
            moved[:, 1] = gap * max(excess, 0.0) ** 0.5
    scale = estimates.scale
    if scale is None:
        scale = scale_loadings(ability, shared)
    error = np.sqrt(estimates.error**2 + np.sum(moved**2, axis=1))
    gap = ability - ability.mean()
    along = float(gap @ scale) / max(float(gap @ gap), 1e-12)
    extra = float(gap @ moved[:, 1]) / max(float(gap @ gap), 1e-12)
    stretched = moved[:, 1]
    if along > 0:
        stretched = np.asarray(scale) * (1 + (extra / along) ** 2) ** 0.5
    several = np.flatnonzero(sizes > 1).tolist()
    notes.append(_of_families(table, families, several, for_mean, error, estimates))
    return dataclasses.replace(
        estimates,
        error=error,
        shared=np.column_stack([shared, moved]),
        scale=stretched,
    )


def intraclass_of(
    ability: np.ndarray, codes: np.ndarray, *, upper: bool = False
) -> float:
    """Intraclass correlation by the analysis of variance; 0 where it is negative.

    With `upper` the upper limit of its 90 % interval (Searle 1971).

    >>> intraclass_of(np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]), np.arange(6) // 2)
    1.0
    """
    sizes = np.bincount(codes)
    groups, count = len(sizes), len(ability)
    if not 1 < groups < count:
        return 0.0
    means = np.bincount(codes, ability) / np.maximum(sizes, 1)
    within = np.sum((ability - means[codes]) ** 2) / (count - groups)
    between = np.sum(sizes * (means - ability.mean()) ** 2) / (groups - 1)
    size = (count - np.sum(sizes.astype(float) ** 2) / count) / (groups - 1)
    if upper:
        between = between * float(fdtri(count - groups, groups - 1, 0.95))
    total = between + (size - 1) * within
    return float(np.clip((between - within) / total, 0, 1)) if total > 0 else 0.0


def _agreeing(
    error: np.ndarray,
    shared: np.ndarray,
    residuals: FreeSlopes,
    families: Grouping,
    posterior: np.ndarray,
) -> np.ndarray:
    """Loadings of shared errors with the covariance within families."""
    weight = residuals.information
    same = families.codes[:, None] == families.codes
    covariances = weight @ weight.T * families.dependence.variance
    added = np.where(same, posterior[:, None] * posterior * covariances, 0.0)
    own = np.maximum(error**2 - np.sum(shared**2, axis=1), 0.0)
    # The own part of an error cannot be less than 0: correlations are below 1.
    most = 0.9 * np.sqrt(np.outer(posterior, posterior))
    added = np.minimum(added, most)
    np.fill_diagonal(added, 0.0)
    covariance = shared @ shared.T + np.diag(own) + added
    values, vectors = np.linalg.eigh(covariance)
    loadings = vectors * np.sqrt(np.maximum(values, 0.0))
    # Rounding, and what is not positive, change no error.
    size = np.sqrt(np.sum(loadings**2, axis=1))
    return loadings * (error / np.maximum(size, 1e-12))[:, None]


def _of_families(
    table: ResponseTable,
    families: Grouping,
    several: list[int],
    worth: float,
    error: np.ndarray,
    before: Estimates,
) -> str:
    """The note on families: which, and what they mean for errors."""
    names, parts = table.subjects, []
    order = sorted(several, key=lambda k: -int(np.sum(families.codes == k)))
    for k in order[:MOST_GROUPS]:
        own = names[families.codes == k].tolist()
        label = "" if families.names is None else f"{families.names[k]}: "
        parts.append(f"{label}{listing(own, MOST_NAMES)}")
    others = len(order) - len(parts)
    if others > 0:
        parts.append(f"{others} more")
    factor = float(np.median(error / np.maximum(before.error, 1e-12)))
    agree = "responses of related subjects agree beyond ability"
    if families.dependence.z <= CRITICAL:
        agree = "subjects are related as given"
    return (
        f"{agree} ({families.of}: {'; '.join(parts)}): the mean and the scale of"
        f" ability count as from {worth:.1f} independent subjects, not {len(names)},"
        f" and standard errors of ability are {factor:.2f} times as large"
    )
