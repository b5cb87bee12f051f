"""The folder of a streamed fit: tables of subjects are written in parts.

It has the files that `irtjax.storage.load` reads, so that other commands take the fit
where its tables fit into memory. Subjects stand in the order of the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from irtjax._types import Status
from irtjax.calibration import copies, flags
from irtjax.calibration.build import shared_errors, versions
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.calibration.tables import (
    CheckedTables,
    item_errors,
    make_item_table,
    number_column,
    of_benchmark,
    score_interval,
)
from irtjax.data import writing
from irtjax.data.fit_folder import FIT_FILES, FIT_FORMAT, RUN_FILES, STRUCTURE_FILES
from irtjax.data.reading.first_pass import subject_names
from irtjax.fitting.streamed import StreamedFit
from irtjax.models.model import response_ends
from irtjax.numerics.random_keys import as_key
from irtjax.ranking import rank_intervals, without_scale
from irtjax.ranking.accuracy import wilson_interval
from irtjax.storage.checks import digest_of, digests
from irtjax.storage.encoding import to_arrays, to_json
from irtjax.storage.folder import FIT_VERSION, READ, check_folder, write_table
from irtjax.storage.snapshots import now

#: Subjects of a part of the table.
_PART = 2**18


class _Labels(NamedTuple):
    """What `make_item_table` reads of a table of responses."""

    items: np.ndarray
    benchmarks: np.ndarray
    num_items: int
    reversed_scores: None = None


def save_stream(
    fit: StreamedFit,
    folder: str | Path,
    *,
    sources: tuple[str, ...] = (),
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Writes the tables of a streamed fit to a folder, whole or not at all.

    Args:
        fit: What `irtjax.fitting.streamed.fit_stream` returned; its blocks are read.
        folder: Folder to make, or one that holds an earlier fit, which is replaced.
        sources: Names of the files that were read.
        overwrite: Whether to write into a folder that has other files, too.
        **options: Further options, for the record.

    Returns:
        The folder, with `items` (Parquet and CSV), `abilities.parquet`, `fit.json` and
        `parameters.npz`.
    """
    folder = check_folder(folder, overwrite=overwrite)
    common = shared_errors(fit.estimates)
    summary = _summary(fit, common, {**options, "sources": list(sources)})
    stale = (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES)
    with writing.together(folder, stale=stale) as place:
        for ending in ("parquet", "csv"):
            write_table(summary.items.table, place / f"items.{ending}")
        _write_abilities(fit, common, place / "abilities.parquet")
        arrays: dict[str, Any] = to_arrays(summary)
        # The names of subjects are those of their table.
        del arrays["subject_names"]
        np.savez_compressed(place / "parameters.npz", **arrays)
        content = {"format": FIT_FORMAT, "version": FIT_VERSION, **to_json(summary)}
        content |= {"num_subjects": fit.stream.shape[0], "saved": now()}
        content["digests"] = digests(place, READ)
        content["digests"] |= {"fit.json": digest_of(content)}
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
        (place / "fit.json").write_text(text + "\n", encoding="utf-8")
    return folder


def _summary(
    fit: StreamedFit, common: tuple[Any, Any], options: dict[str, Any]
) -> Calibration:
    """The calibration without its subjects."""
    estimates, stream = fit.estimates, fit.stream
    count, status = estimates.num_parameters, estimates.status
    warnings = estimates.warnings
    if status != Status.CONVERGED:
        warnings = (f"the fit has not converged: {status.explain()}", *warnings)
    numbers = (stream.counts, stream.observed, stream.total)
    digest = sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in numbers))
    covariance = estimates.covariance
    return Calibration(
        model=estimates.problem.model,
        parameters=jax.tree.map(np.asarray, estimates.parameters),
        subject_names=np.array([], dtype=str),
        item_names=stream.items,
        benchmarks=stream.benchmarks,
        status=status,
        num_steps=estimates.num_steps,
        trace=estimates.trace,
        residual=estimates.residual,
        log_likelihood=estimates.log_likelihood,
        log_prior=estimates.log_prior,
        num_parameters=count,
        num_observed=stream.num_observed,
        aic=-2 * estimates.log_likelihood + 2 * count,
        bic=-2 * estimates.log_likelihood + count * math.log(stream.shape[0]),
        items=ItemTable(_items(fit)),
        abilities=AbilityTable(pa.table({})),
        warnings=warnings,
        notes=fit.notes,
        options={**fit.options, **options, "passes": fit.num_passes},
        versions=versions(),
        data_hash=digest.hexdigest(),
        timings=fit.timings,
        resolution=estimates.resolution,
        level=fit.options["level"],
        item_covariance=None if covariance is None else np.asarray(covariance.items),
        ability_shared=common[0],
        ability_scale=common[1],
    )


def _margins(fit: StreamedFit, total: np.ndarray, observed: np.ndarray):
    """Counts of items or subjects, and which of them have no variation."""
    low, top = response_ends(fit.estimates.problem.model).values()
    some = observed > 0
    lowest, highest = total == low * observed, total == top * observed
    return flags.Margins(observed, total, lowest & some, highest & some)


def _items(fit: StreamedFit) -> pa.Table:
    """The table of items."""
    stream, estimates = fit.stream, fit.estimates
    errors, missing, difficulties = item_errors(estimates)
    total = stream.counts @ stream.codes
    margins = _margins(fit, total, stream.counts.sum(axis=1))
    texts = flags.no_variation(margins) + [(flags.NOT_IDENTIFIED, missing)]
    size = len(stream.items)
    judged = CheckedTables(
        (margins, margins),
        (flags.join_flags(size, texts), []),
        None,
        (errors, difficulties),
        copies.NONE,
    )
    benchmarks = np.full(size, "") if stream.benchmarks is None else stream.benchmarks
    labels: Any = _Labels(stream.items, benchmarks, size)
    return make_item_table(labels, estimates, judged)


def _write_abilities(fit: StreamedFit, common: tuple[Any, Any], path: Path) -> None:
    """Writes the table of subjects, a part at a time."""
    import pyarrow.parquet as pq

    estimates, level = fit.estimates, fit.options["level"]
    own, rest = without_scale(estimates.error, *common)
    ranking = rank_intervals(
        estimates.ability, own, key=as_key(None), level=level, shared=rest
    )
    writer = None
    first = 0
    for names in _parts(fit):
        own = slice(first, first + len(names))
        table = _abilities(fit, ranking, names, own)
        for name, sums in fit.by_benchmark.items():
            accuracy = _accuracy(fit, *sums[own].T)
            for column, values in zip(of_benchmark(name), accuracy, strict=True):
                table = table.append_column(column, number_column(values))
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
        first = own.stop
    assert writer is not None
    writer.close()


def _parts(fit: StreamedFit) -> Iterator[pa.Array]:
    """Names of the subjects, so many at a time."""
    for names in subject_names(fit.stream.folder):
        for start in range(0, len(names), _PART):
            yield names.slice(start, _PART)


def _accuracy(
    fit: StreamedFit, observed: np.ndarray, total: np.ndarray, squares: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Mean response of subjects, its error over items, and its interval."""
    ends: dict[str, Any] = response_ends(fit.estimates.problem.model)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / observed
        rest = squares - observed * mean**2
        spread = np.sqrt(np.maximum(rest, 0) / (observed * (observed - 1)))
    options = {**ends, "level": fit.options["level"]}
    return mean, spread, *wilson_interval(mean, spread, observed, **options)


def _abilities(fit: StreamedFit, ranking: Any, names: pa.Array, own: slice) -> pa.Table:
    """The rows of some subjects; columns are those of any fit."""
    stream, estimates, level = fit.stream, fit.estimates, fit.options["level"]
    ends: dict[str, Any] = response_ends(estimates.problem.model)
    ability, error = estimates.ability[own], estimates.error[own]
    half = float(ndtri(0.5 + level / 2)) * error
    observed, total = stream.observed[own].astype(np.int64), stream.total[own]
    accuracy = _accuracy(fit, observed, total, stream.squares[own])
    score, score_error = (np.asarray(x)[own] for x in estimates.expected)
    options: dict[str, Any] = {**ends, "level": level, "num_items": stream.shape[1]}
    means = np.where(observed > 0, accuracy[0], 0.0), observed
    bounds = score_interval(score, score_error, own=means, **options)
    texts = flags.no_variation(_margins(fit, total, observed))
    columns = {
        "subject": names,
        "ability": number_column(ability),
        "ability_se": number_column(error),
        "lower": number_column(ability - half),
        "upper": number_column(ability + half),
        "rank": pa.array(np.asarray(ranking.rank[own], np.int64)),
        "rank_lower": pa.array(np.asarray(ranking.rank_lower[own], np.int64)),
        "rank_upper": pa.array(np.asarray(ranking.rank_upper[own], np.int64)),
        "probability_best": number_column(ranking.probability_best[own]),
    }
    for name, parts in (
        ("expected_score", (score, score_error, *bounds)),
        ("accuracy", accuracy),
    ):
        for end, values in zip(("", "_se", "_lower", "_upper"), parts, strict=True):
            columns[name + end] = number_column(values)
    columns["observed"] = pa.array(observed)
    columns["flags"] = pa.array(flags.join_flags(len(names), texts))
    return pa.table(columns)
