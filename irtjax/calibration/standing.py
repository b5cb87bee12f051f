r"""Where new subjects stand among those of a fit, whose items stay as they are.

The errors of two abilities share what the items and the scale leave uncertain. Loadings
u_i of that error are kept for the subjects of a fit. They are nearly linear in ability
(`inference.scale_error`), so those of a new subject of ability t are u = A'(1, t)', A
the regression of the u_i on (1, t_i). With v the variance of its score on the scale of
the fit, a difference of a new subject k and another one i has the variance

    v_k + v_i + |u_k - u_i|^2.

The expected score of a new subject is that of `calibration.score_curve`, over N(t, v).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.calibration.result_tables import AbilityTable
from irtjax.calibration.scale import compares_means
from irtjax.calibration.score_curve import expected_scores
from irtjax.calibration.tables import (
    columns_by_benchmark,
    floats,
    number_column,
    score_interval,
)
from irtjax.data.arrays import places_of
from irtjax.models.model import response_ends
from irtjax.ranking import rank_intervals, without_scale
from irtjax.ranking.accuracy import accuracies

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable

#: Columns of ranks, which change with the subjects.
_RANKS = ("rank", "rank_lower", "rank_upper", "probability_best")


def with_subjects(fit: Calibration, scored: pa.Table, own_error, matched) -> Any:
    """The calibration with further subjects, all ranked together.

    Args:
        fit: The calibration; `score_curve.why_not_ranked` states which do not suit.
        scored: The table of `irtjax.score`. A subject of the fit that is in it again
            is replaced.
        own_error: `[new]` errors of the new abilities given location and scale.
        matched: Responses of the new subjects to items of the fit.
    """
    import pyarrow as pa

    names = scored.column("subject").to_pylist()
    old = fit.abilities.table
    stays = np.array([x not in {*names} for x in fit.subject_names.tolist()], bool)
    before, error = floats(old, "ability", "ability_se")
    (ability,) = floats(scored, "ability")
    shared, scale = (
        _extended(before, loadings, stays, ability)
        for loadings in (fit.ability_shared, fit.ability_scale)
    )
    old = old.filter(pa.array(stays))
    variance = np.asarray(own_error, float) ** 2
    if shared is not None:
        variance = variance + np.sum(shared[old.num_rows :] ** 2, axis=1)
    all_ability = np.concatenate([before[stays], ability])
    all_error = np.concatenate([error[stays], np.sqrt(variance)])
    own, rest = without_scale(all_error, shared, scale)
    key = int(fit.options.get("seed") or 0)
    options = {"shared": rest, "level": fit.level, "pooled": compares_means(fit)}
    ranks = rank_intervals(all_ability, own, key=key, **options)
    new = _rows(fit, scored, np.sqrt(variance), own_error, matched)
    table = pa.concat_tables([old, _as_table(new, old.schema, len(names))])
    for name in _RANKS:
        values = np.asarray(getattr(ranks, name))
        kind = table.schema.field(name).type
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values, kind, from_pandas=True))
    return dataclasses.replace(
        fit,
        subject_names=np.concatenate([fit.subject_names[stays], np.array(names)]),
        abilities=AbilityTable(table),
        ability_shared=shared,
        ability_scale=scale,
        parts=tuple(
            part.with_subjects(stays, ability, own_error) for part in fit.parts
        ),
        parameters=_parameters(fit, stays, ability),
        num_observed=fit.num_observed + matched.num_observed,
    )


def _extended(before: np.ndarray, loadings, rows, ability: np.ndarray) -> Any:
    """Loadings of known subjects, and those of new ones by regression on ability."""
    if loadings is None:
        return None
    loadings = np.asarray(loadings, float)
    usable = np.isfinite(before) & np.isfinite(loadings.reshape(len(before), -1)).all(1)
    design = lambda x: np.column_stack([np.ones(len(x)), x])
    slopes = np.linalg.pinv(design(before[usable])) @ loadings[usable]
    return np.concatenate([loadings[rows], design(ability) @ slopes])


def _rows(fit, scored: pa.Table, error, own_error, matched: ResponseTable) -> dict:
    """Columns of the new subjects, as a fit has them."""
    (ability,) = floats(scored, "ability")
    half = float(ndtri(0.5 + fit.level / 2)) * error
    columns: dict[str, Any] = {
        name: scored.column(name) for name in ("subject", "observed", "flags")
    }
    columns |= {"ability": ability, "ability_se": error}
    columns |= {"lower": ability - half, "upper": ability + half}
    ends = response_ends(fit.model)
    clusters, places = None, places_of(fit.item_names, matched.items)
    if "cluster" in fit.items.table.column_names:
        labels = fit.items.table.column("cluster").to_pylist()
        clusters = np.array(labels)[places]
    accuracy = accuracies(matched.stored, clusters, **ends, level=fit.level)
    score, score_error = expected_scores(fit, ability, np.asarray(own_error, float))
    observed = np.asarray(scored.column("observed"))
    own = np.asarray(accuracy.accuracy), observed
    bounds = score_interval(score, score_error, **ends, level=fit.level, own=own)
    whole = (score, score_error, *bounds)
    for name, values in (("expected_score", whole), ("accuracy", accuracy)):
        for end, column in zip(("", "_se", "_lower", "_upper"), values, strict=True):
            columns[name + end] = column
    if fit.benchmarks is not None:
        facets = {"benchmark": np.asarray(fit.benchmarks)[places]}
        labelled = matched.replace(item_facets=facets)
        columns |= columns_by_benchmark(labelled, ends, fit.level)
    return columns


def _as_table(columns: dict[str, Any], schema: pa.Schema, size: int) -> pa.Table:
    """Columns as a table of this schema, empty where there are none."""
    import pyarrow as pa

    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(size, field.type))
            continue
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            values = number_column(values)
        if isinstance(values, np.ndarray):
            values = pa.array(values)
        arrays.append(values.cast(field.type))
    return pa.table(arrays, schema=schema)


def _parameters(fit: Calibration, rows, ability) -> Any:
    """The parameters with abilities of new subjects, where abilities are parameters."""
    theta = fit.parameters.theta
    if theta is None:
        return fit.parameters
    whole = np.concatenate([np.asarray(theta)[rows], ability.astype(theta.dtype)])
    return fit.parameters._replace(theta=whole)


def standing_columns(whole: Calibration, names: list[str], level: float) -> dict:
    """Columns of new subjects among all of `whole`, which `with_subjects` made.

    Rank and expected score with their intervals, subjects that are tied with each, and
    those that are above it.
    """
    ranked = whole.rank(level=level)
    rows = {row["subject"]: row for row in ranked.table.to_pylist()}
    columns = ("rank", "rank_lower", "rank_upper", "expected_score")
    columns += ("expected_score_se", "expected_score_lower", "expected_score_upper")
    missing = dict.fromkeys(columns)
    new_columns: dict[str, Any] = {
        column: [rows.get(name, missing)[column] for name in names]
        for column in columns
    }
    near = [
        tied_and_above(ranked.table, name) if name in rows else ([], [])
        for name in names
    ]
    for k, name in enumerate(("tied_with", "above")):
        new_columns[name] = ["; ".join(pair[k]) for pair in near]
    return new_columns


def tied_and_above(ranked: pa.Table, name: str) -> tuple[list[str], list[str]]:
    """Subjects that do not differ significantly from one, and those that are above it.

    Args:
        ranked: The table of `irtjax.rank`, best first.
        name: The subject.

    Two are tied where a group has both.
    """
    columns = ("subject", "first_group", "last_group", "rank")
    rows = list(zip(*(ranked.column(x).to_pylist() for x in columns), strict=True))
    mine = next(row for row in rows if row[0] == name)
    tied = [
        row[0]
        for row in rows
        if row[0] != name and row[1] <= mine[2] and mine[1] <= row[2]
    ]
    above = [row[0] for row in rows if row[3] < mine[3] and row[0] not in {*tied}]
    return tied, above
