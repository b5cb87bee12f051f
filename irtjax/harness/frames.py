"""Data frames of harnesses as response tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irtjax.data.decode import Record, decode
from irtjax.data.reading.options import takes_read_options
from irtjax.data.wording import listing

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data.table import ResponseTable

#: Columns that identify the item and the model of a sample.
_NEEDED = ("id", "epoch", "model", "task_name")
_CURE = (
    "make the frame with samples_df(logs, columns=EvalTask + EvalModel + SampleSummary)"
    " (all in inspect_ai.analysis)"
)


class _Usage(Record):
    """Tokens of one model in a sample, in the column model_usage."""

    output_tokens: float | None = None


@takes_read_options
def from_inspect(samples: Any, **options: Any) -> ResponseTable:
    """Reads the data frame of `inspect_ai.analysis.samples_df` as a response table.

    Each column `score_NAME` is a metric. Verdicts C, I, P are 1, 0, 1/2; N (no answer)
    is missing, or 0 with ``missing_as="wrong"``; a sample in error without a score is
    missing. Items are TASK/ID, as in logs. Of several evaluations of a task by one
    model the latest is read. Output tokens become response lengths. Inspect itself is
    not needed.

    Args:
        samples: The frame, of pandas or any library that narwhals supports, with the
            columns of `EvalTask`, `EvalModel` and `SampleSummary`.
        **options: Those of `irtjax.read`, such as ``metric="match"`` where there are
            several scorers, ``trials`` for epochs, and ``run="all"``.

    Returns:
        The table.

    Raises:
        ValueError: If a column is missing or a choice is open.

    >>> import pandas as pd
    >>> rows = [("a", 1, "m", "t", "C"), ("b", 1, "m", "t", "I"), ("a", 1, "n", "t", 1)]
    >>> names = ["id", "epoch", "model", "task_name", "score_match"]
    >>> table = from_inspect(pd.DataFrame(rows, columns=names).astype(str))
    >>> table.items.tolist(), table.values.tolist(), table.num_observed
    (['t/a', 't/b'], [[1, 0], [1, 0]], 3)
    """
    import pyarrow as pa

    from irtjax.data.reading.open import to_arrow
    from irtjax.data.reading.read import read

    table = to_arrow(samples, "the frame of samples_df")
    lacking = [name for name in _NEEDED if name not in table.column_names]
    if lacking:
        raise ValueError(
            f"the frame of samples_df has no column {listing(lacking)}: {_CURE}"
        )
    if not any(name.startswith("score_") for name in table.column_names):
        raise ValueError(
            "the frame of samples_df has no column score_NAME: the logs hold no scores"
        )
    keep = [name for name in table.column_names if _is_read(name)]
    table, notes = _latest(table, options.pop("run", "latest"))
    lengths = _output_tokens(table)
    table = table.select(keep)
    for name in ("sample_id", "eval_id"):
        # The reader recognises Inspect's frames by their columns.
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    if lengths is not None:
        table = table.append_column("output_tokens", lengths)
    responses = read(table, **options)
    if not notes:
        return responses
    return responses.replace(notes=(*responses.notes, *notes))


def _is_read(name: str) -> bool:
    """Whether a column is read; total tokens count those of the input too."""
    return name in (*_NEEDED, "sample_id", "eval_id") or name.startswith("score_")


def _latest(table: pa.Table, run: str) -> tuple[pa.Table, list[str]]:
    """The rows of the latest evaluation of each task by each model."""
    if run not in ("latest", "all"):
        raise ValueError(f"run={run!r} is not one of 'latest', 'all'")
    if run == "all" or not {"eval_id", "log"} <= set(table.column_names):
        return table, []
    names = ("model", "task_name", "eval_id", "log")
    rows = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    # Names of logs begin with their time.
    time_of = lambda log: str(log).replace("\\", "/").rpartition("/")[2]
    latest: dict[tuple[Any, Any], tuple[Any, Any]] = {}
    for model, task, *run_of in rows:
        chosen = latest.setdefault((model, task), tuple(run_of))
        if time_of(run_of[1]) > time_of(chosen[1]):
            latest[model, task] = tuple(run_of)
    keep = [latest[row[:2]] == row[2:] for row in rows]
    older = len(
        {row for row, is_latest in zip(rows, keep, strict=True) if not is_latest}
    )
    if not older:
        return table, []
    note = (
        f"{older} older logs of the same task by the same model were left out"
        " (run='all' keeps them as repeats)"
    )
    return table.filter(keep), [note]


def _output_tokens(table: pa.Table) -> pa.Array | None:
    """Tokens that the model wrote, thinking included; None where no sample has any."""
    import pyarrow as pa

    if "model_usage" not in table.column_names:
        return None
    tokens = []
    models, usages = (table.column(x).to_pylist() for x in ("model", "model_usage"))
    for number, (model, text) in enumerate(zip(models, usages, strict=True), 1):
        place = f"the frame of samples_df: row {number}, column 'model_usage'"
        usage = decode(text.encode(), dict[str, _Usage], place) if text else {}
        one = next(iter(usage.values())) if len(usage) == 1 else None
        own = usage.get(model, one)
        tokens.append(None if own is None else own.output_tokens)
    return (
        pa.array(tokens, pa.float64()) if any(x is not None for x in tokens) else None
    )
