"""From estimates to a calibration: flags, warnings, tables, in that order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from irtjax.calibration import (
    assumptions,
    identification,
    relatives,
)
from irtjax.calibration.benchmarks import with_errors_of_benchmarks
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.findings import Evidence, benchmark_test, findings_of
from irtjax.calibration.item_findings import check_tables
from irtjax.calibration.parts import parts_of
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.calibration.scale import (
    compares_means,
    scale_first,
    with_errors_of_scale,
)
from irtjax.calibration.tables import (
    make_ability_table,
    make_item_table,
    with_columns,
)
from irtjax.data.result_text import with_level
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.timing import Clock
from irtjax.ranking import leading_loadings, scale_loadings

#: Directions of shared error that are kept: location, scale, and the next few.
SHARED_RANK = 16
#: Fields of a calibration that are those of the estimates.
_SAME = ("status", "num_steps", "trace", "residual", "log_likelihood", "log_prior")
_SAME += ("num_parameters", "resolution")


def build(
    table: ResponseTable,
    estimates: Estimates,
    *,
    options: dict[str, Any],
    clock: Clock,
    key: jax.Array,
    layout: Any,
    warnings: tuple[str, ...],
    original: ResponseTable,
    places: np.ndarray | None,
) -> Calibration:
    """Assembles a calibration; see `Task` for `places` of the `original` subjects."""
    conditional, level = estimates, options["level"]
    vary = identification.variation(table)
    benchmarks = benchmark_test(table, estimates)
    parts = parts_of(table, estimates, layout)
    estimates, related, common, tested = _with_all_errors(
        table, estimates, options, vary, benchmarks
    )
    clock.report("tables", 0, math.nan, math.nan)
    with clock.phase("tables"):
        # Findings about items and assumptions follow from the errors given the scale.
        checked = check_tables(table, conditional)
        tests = vary, benchmarks, tested
        evidence = Evidence(table, conditional, options, layout, parts, *tests, checked)
        findings = findings_of(evidence)
        clusters = relatives.clusters_of(table, related, options)
        abilities = make_ability_table(
            table, estimates, checked, *common, level, key, clusters
        )
        abilities = related.with_families(abilities)
        items = related.with_clusters(make_item_table(table, estimates, checked))
        for part in parts:
            items = with_columns(items, part.item_columns(estimates))
            abilities = with_columns(abilities, part.ability_columns(estimates))
    order = np.arange(table.num_subjects) if places is None else places
    in_order = lambda values: None if values is None else np.asarray(values)[order]
    count = estimates.num_parameters
    return Calibration(
        model=dataclasses.replace(estimates.problem.model, name=options["model"]),
        parameters=jax.tree.map(np.asarray, estimates.parameters)._replace(
            theta=in_order(estimates.parameters.theta)
        ),
        subject_names=original.subjects,
        item_names=table.items,
        benchmarks=table.item_facets.get("benchmark"),
        num_observed=table.num_observed,
        aic=-2 * estimates.log_likelihood + 2 * count,
        bic=-2 * estimates.log_likelihood + count * math.log(table.num_subjects),
        items=ItemTable(items),
        abilities=AbilityTable(with_level(abilities.take(order), level)),
        warnings=scale_first(
            *warnings,
            *estimates.warnings,
            *findings.warnings,
        ),
        notes=(*estimates.verdict, *table.notes, *related.notes, *findings.notes),
        options=options,
        versions=versions(),
        data_hash=original.data_hash(),
        timings=dict(clock.timings),
        level=level,
        item_covariance=_covariance_of_items(estimates),
        ability_shared=in_order(common[0]),
        ability_scale=in_order(common[1]),
        parts=tuple(part.take(order) for part in parts),
        item_texts=original.item_texts,
        item_contents=original.item_contents,
        **{name: getattr(estimates, name) for name in _SAME},
    )


def _with_all_errors(
    table: ResponseTable,
    estimates: Estimates,
    options: dict[str, Any],
    vary: identification.Variation,
    benchmarks: assumptions.BenchmarkTest | None,
) -> tuple[Estimates, relatives.Relatives, tuple[Any, Any], bool]:
    """Adds the errors of scale, benchmarks and relatives.

    The pair has loadings of the errors that abilities share, and of those of location
    and scale among them, None where there are none. The last value states whether
    subjects are compared by abilities.
    """
    level, error = options["level"], estimates.error
    clustered = relatives.with_clusters_as_benchmarks(table, options)
    estimates = with_errors_of_scale(estimates, clustered, vary, level)
    tested = not compares_means(estimates)
    differ = tested and benchmarks is not None and benchmarks.matters(error)
    if differ:
        estimates = with_errors_of_benchmarks(estimates, table, level)
    related = relatives.of_means(table, options)
    if tested:
        estimates, related = relatives.with_relatives(
            table, estimates, options, paired=differ
        )
    shared, scale = estimates.shared, estimates.scale
    if tested and not differ:
        shared, scale = shared_errors(estimates)
    return estimates, related, (shared, scale), tested


def shared_errors(estimates: Estimates) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The first loadings of shared errors, and those of the scale among them."""
    if estimates.shared is None:
        return None, estimates.scale
    shared = leading_loadings(estimates.shared, SHARED_RANK)
    if estimates.scale is not None:
        return shared, estimates.scale
    return shared, scale_loadings(estimates.ability, shared)


def _covariance_of_items(estimates: Estimates) -> np.ndarray | None:
    """The covariance of each item's parameters, NaN where one is not identified."""
    covariance = estimates.covariance
    if covariance is None:
        return None
    identified = np.asarray(covariance.identified)
    pairs = identified[:, :, None] & identified[:, None, :]
    return np.where(pairs, np.asarray(covariance.items), np.nan)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a fit depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("irtjax", "jax", "jaxlib", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions | {"backend": jax.default_backend()}
