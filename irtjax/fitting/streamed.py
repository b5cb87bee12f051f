"""A fit of a file larger than memory, by passes over blocks of its responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration.tables import MOST_BENCHMARKS
from irtjax.data.reading.first_pass import make_stream
from irtjax.data.reading.options import ReadOptions
from irtjax.data.stream import ResponseStream
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.data.wording import counted, listing
from irtjax.estimators import saved_loops
from irtjax.estimators.driver import Run
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock, ProgressCallback
from irtjax.fitting.resolve import make_method, with_codes
from irtjax.inference.streamed import is_whole
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import BINARY_MODELS, MODELS, ORDERED_MODELS
from irtjax.models.model import Model
from irtjax.numerics.precision import full_precision
from irtjax.numerics.processes import ALONE, Processes

#: Settings of a streamed fit, in addition to the fields of `EM`.
SETTINGS = (
    "priors",
    "positive",
    "standard_errors",
    "item_uncertainty",
    *saved_loops.OPTIONS,
)
#: On the errors of many items.
APPROXIMATE = (
    "standard errors are approximate: those of an item are given the other items, and"
    " those of abilities take the items as known"
)
#: On the items of several benchmarks.
OF_BENCHMARKS = (
    "errors do not count that abilities differ between benchmarks: a fit of a sample of"
    " subjects without --stream tests this"
)
#: Fields of `EM` that a streamed fit chooses.
_CHOSEN = ("nodes", "window")


class StreamedFit(NamedTuple):
    """Estimates of a streamed fit, with what their tables are made from.

    Attributes:
        stream: The responses, and the names of the items.
        estimates: As of any fit.
        options: Settings, for the record.
        timings: Seconds by phase.
        num_passes: Passes over the responses.
        notes: What the reader of the numbers should know.
        by_benchmark: For each of several benchmarks, `[subjects, 3]`: responses, their
            sum, and that of their squares.
    """

    stream: ResponseStream
    estimates: Estimates
    options: dict[str, Any]
    timings: dict[str, float]
    num_passes: int
    notes: tuple[str, ...]
    by_benchmark: dict[str, np.ndarray]


@full_precision
def fit_stream(
    path: Path | str,
    folder: Path,
    model: str = "auto",
    *,
    reading: ReadOptions | None = None,
    level: float = 0.95,
    dtype: Any = None,
    max_steps: int | None = None,
    progress: ProgressCallback | None = None,
    processes: Processes = ALONE,
    **settings: Any,
) -> StreamedFit:
    """Fits a model of one ability to a file, with two blocks of it in memory.

    Args:
        path: A Parquet or CSV file: a row for each response in any order, or for each
            subject. Responses are whole numbers from 0, such as right or wrong.
        folder: An empty folder for the responses as plain numbers: five to nine bytes
            each, or one for each cell.
        model: "auto" (2pl, or graded), or the name of a model of binary responses or
            ordered categories.
        reading: `subject`, `item` and `response` name columns.
        level: Level of the intervals.
        dtype: Floating type; JAX's default when None.
        max_steps: Step limit.
        progress: Called while the fit runs.
        processes: Those that divide the subjects, each of which calls this; see
            `Processes.connected`. The results have the same bits for any number of
            them.
        **settings: `priors`, `positive`, `standard_errors` ("observed" or "none"),
            `item_uncertainty`, `checkpoint` and `resume`, and fields of `irtjax.EM`.

    Returns:
        The estimates: `irtjax.storage.save_stream` writes their tables. Every process
        has those of all subjects.

    Raises:
        ValueError: For a file, a model or a setting that does not suit, in one line.
    """
    _check(settings, level)
    clock = Clock(progress)
    with clock.phase("read"):
        stream = make_stream(Path(path), folder, reading or ReadOptions(), processes)
    made = _model(model, stream, settings, Path(path))
    fields = {x: y for x, y in settings.items() if x not in SETTINGS}
    method: Any = make_method("em", fields, made, stream.shape[0])
    if settings.get("priors", "weak") == "weak":
        made = method.adapted(made)
    data: Any = StreamedResponses.of(stream)
    problem: Any = Problem.create(made, data)
    notes: tuple[str, ...] = ()
    errors = settings.get("standard_errors", "observed")
    if errors != "none" and not is_whole(problem):
        if made.family.common_columns:
            raise ValueError(
                f"a {made.name} model has standard errors from all parameters at once,"
                f" here {problem.free.size:,}: use --standard-errors none"
            )
        notes = (APPROXIMATE,)
    if stream.benchmarks is not None and len(np.unique(stream.benchmarks)) > 1:
        notes = (*notes, OF_BENCHMARKS)
    with clock.phase("start"):
        floating = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
        start = start_values(made, data, dtype=floating)
    options = {"standard_errors": errors}
    options["item_uncertainty"] = settings.get("item_uncertainty", True)
    run = Run(clock, None, max_steps, level, options)
    with clock.phase("run"), method.saving(settings):
        solution = method.solve(problem, start, run)
        jax.block_until_ready(solution.fit)
    estimates = method.estimates(problem, solution, run)
    record = {
        "model": made.name,
        "method": method.name,
        "priors": {name: repr(prior) for name, prior in made.priors.items()},
        "positive": settings.get("positive", False),
        "population": method.population,
        **options,
        "storage": "stream",
        "bytes_of_pass": stream.bytes_of_pass,
        "level": level,
        "dtype": str(floating),
        "max_steps": solution.max_steps,
    }
    by_benchmark = _sums_by_benchmark(stream)
    # Start values take four; scores one, and errors two.
    passes = 4 + estimates.num_steps + 1 + 2 * (errors != "none")
    timings = dict(clock.timings)
    return StreamedFit(stream, estimates, record, timings, passes, notes, by_benchmark)


def _sums_by_benchmark(stream: ResponseStream) -> dict[str, np.ndarray]:
    """For each of several benchmarks, `[subjects, 3]`: responses, sum, of squares too.

    By one pass; nothing for as many benchmarks as tables of a fit leave out.
    """
    labels = np.array([""]) if stream.benchmarks is None else stream.benchmarks
    names = [name for name in np.unique(labels).tolist() if name]
    if not 2 <= len(names) <= MOST_BENCHMARKS:
        return {}
    each = stream.codes[:, None] ** np.arange(3.0)
    own = (labels[:, None] == np.array(names))[:, None, :, None]
    table = (own * each[:, None]).reshape(len(labels), len(each), -1)
    sums = stream.row_sums(table).reshape(-1, len(names), 3)
    return dict(zip(names, np.moveaxis(sums, 1, 0), strict=True))


def _check(settings: Mapping[str, Any], level: float) -> None:
    """Refuses settings that a streamed fit does not have, before it takes time."""
    fields = {field.name for field in dataclasses.fields(EM)} - {*_CHOSEN}
    allowed = sorted({*SETTINGS, *fields})
    other = next((name for name in settings if name not in allowed), None)
    if other is not None:
        raise ValueError(
            f"{other} is no setting of a streamed fit: leave --stream out, or use"
            f" {listing(allowed)}"
        )
    errors = settings.get("standard_errors", "observed")
    if errors not in ("observed", "none"):
        raise ValueError(
            f"standard errors {errors!r} are not available of a streamed fit: use"
            " 'observed' or 'none'"
        )
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")


def _model(
    name: str, stream: ResponseStream, settings: Mapping[str, Any], path: Path
) -> Model:
    """The model of a name, with the categories of the responses."""
    codes = tuple(stream.codes.tolist())
    binary = codes == (0, 1)
    if name == "auto":
        name = "2pl" if binary else "graded"
    served = [*BINARY_MODELS, *ORDERED_MODELS]
    if name not in served:
        raise ValueError(
            f"a streamed fit has no model {name!r}: use {listing(served)}, or leave"
            " --stream out"
        )
    for count, what in zip(stream.shape, ("subject", "item"), strict=True):
        if count < 2:
            raise ValueError(
                f"{path}: {counted(count, what)}: a fit needs at least two"
            )
    options = {x: y for x, y in settings.items() if x in ("priors", "positive")}
    if name in BINARY_MODELS and not binary:
        raise ValueError(
            f"{path}: a {name} model needs responses 0 and 1, not {listing(codes)}: use"
            " --model graded"
        )
    if name in ORDERED_MODELS:
        lacking = np.argwhere(stream.counts == 0)
        if len(lacking):
            item, code = lacking[0]
            raise ValueError(
                f"{path}: item {str(stream.items[item])!r:.80} has no response"
                f" {codes[code]}, and a streamed fit needs all categories of each item:"
                " merge categories, or leave --stream out"
            )
        options["num_categories"] = len(codes)
    if not settings.get("positive"):
        options.pop("positive", None)
    return with_codes(MODELS[name](**options), codes)
