"""Details of lighteval, and of the first Open LLM Leaderboard, which has its layout.

Parquet files ``details_TASK_TIME.parquet``, one row per sample. Since 0.11 a row has
the structs ``doc``, ``metric`` and ``model_response``; before, it had their fields.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from irtjax.data.answers import short_answer
from irtjax.data.decode import Record
from irtjax.data.files import check_parquet, damaged, folders_of
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.logs import digest, load
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import listing, several

_USUAL = tuple(
    "extractive_match acc_norm acc exact_match em prompt_level_strict_acc".split()
)
# What the first leaderboard reported, where it is not the first of those.
_MAIN = {"hendrycksTest": "acc", "winogrande": "acc", "truthfulqa": "mc2"}
_FLAT = "acc", "acc_norm", "mc1", "mc2", "em", "exact_match"
_NAME = re.compile(r"details_(.+)_(\d{4}-\d{2}-\d{2}T[\d.:+-]+?)(\.parquet)?$")
_TIME = re.compile(r"\d{4}[-_]\d{2}[-_]\d{2}T[\d_.:+-]+$")


@dataclasses.dataclass
class _Details:
    """Columns of one file: question, key, id, scores by metric, tokens, answer."""

    queries: list[Any]
    choices: list[Any]
    answers: list[str]
    ids: list[Any]
    scores: list[dict[str, Any]]
    tokens: list[Any]
    predictions: list[dict[str, str]]  # As `_predictions` has them.


class _Metric(Record):
    metric_name: str | list[str] = ""
    higher_is_better: bool | dict[str, bool | None] | None = None

    def ways(self) -> list[tuple[str, bool | None]]:
        """Each metric of a group, and whether higher is better."""
        if isinstance(self.higher_is_better, dict):
            return [*self.higher_is_better.items()]
        names = self.metric_name
        names = names if isinstance(names, list) else [names]
        return [(name, self.higher_is_better) for name in names]


class _Task(Record):
    metric: list[_Metric] = []
    metrics: list[_Metric] = []


class _Results(Record):
    config_tasks: dict[str, _Task] = {}


def recognise_columns(names: set[str], name: str) -> bool | str:
    """Whether columns are those of details."""
    plain = {column.strip("_") for column in names}
    if {"doc", "metric"} <= plain and "model_response" in plain:
        return True
    has_scores = "metrics" in names or any(flat in names for flat in _FLAT)
    return has_scores and {"example", "full_prompt"} <= names


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of details."""
    return path.name.startswith("details_") and path.suffix == ".parquet"


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads details; items join by the question, its choices and the answer."""
    builder = RecordBuilder()
    builder.described = Described("lighteval", options.texts)
    main: dict[str, str] = {}
    for folder in dict.fromkeys(path.parent for path in paths[:]):
        builder.directions |= _directions(folder)
    for path in paths:
        task, run = _task_of(path)
        details = _columns(path)
        _read_details(path, task, run, details, options, builder)
        for start, metric in _MAIN.items():
            if task.startswith(start):
                main[task] = metric
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no sample has a score that is a number")
    records = builder.finish(paths, options.join)
    records.usual_metrics, records.main_metrics = _USUAL, main
    return records


def _directions(folder: Path) -> dict[tuple[str, str], bool]:
    """Whether lower is better, by task and metric, from the results of a run.

    They are in results/MODEL/, and the details in details/MODEL/TIME/.
    """
    above = [place for place in folder.parents if place.name == "details"]
    if not above:
        return {}
    model = folder.parent.relative_to(above[0])
    directions: dict[tuple[str, str], bool] = {}
    for path in sorted((above[0].parent / "results" / model).glob("results_*.json")):
        # The totals are optional.
        with contextlib.suppress(ValueError):
            for task, config in load(path, _Results).config_tasks.items():
                for metric in (*config.metric, *config.metrics):
                    directions |= {
                        (task, name): not higher
                        for name, higher in metric.ways()
                        if higher is not None
                    }
    return directions


def _task_of(path: Path) -> tuple[str, str]:
    """Task with its number of shots, and time, from a name."""
    match = _NAME.match(path.name)
    stem = path.name.removesuffix(".parquet").removeprefix("details_")
    task, run = (match.group(1), match.group(2)) if match else (stem, "")
    parts = task.split("|")
    # "suite|task|shots|truncated", "suite|task|shots", or "task|shots".
    return "|".join(parts[1:3]) if len(parts) >= 3 else task, run


def subject_of(path: Path) -> str:
    """The model, from details/MODEL/TIME/ or a repository's name."""
    folders = [part for part in folders_of(path) if not _TIME.match(part)]
    name = folders[-1] if folders else ""
    if name.startswith("details_"):
        # By default a repository is private, with a name that ends so.
        name = name.removeprefix("details_").removesuffix("_private")
        return name.replace("__", "/", 1)
    if "details" in folders[:-1] and "__" not in name:
        # A name has any number of parts: "gpt2", "PROVIDER/ORG/MODEL", a path.
        start = len(folders) - folders[::-1].index("details")
        return "/".join(folders[start:])
    return name.replace("__", "/", 1)


def _columns(path: Path) -> _Details:
    """The columns that are read, in either layout."""
    try:
        file = pq.ParquetFile(path)
        names = _names(path, file.schema_arrow.names)
        new = "model_response" in names
        paths = file.schema.to_arrow_schema()
        wanted = [name for name in _wanted(names, new) if _has(paths, name)]
        check_parquet(path, file.metadata, [name.split(".")[0] for name in wanted])
        rows = file.read(columns=wanted).to_pylist()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is damaged: text in it is not UTF-8") from None
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from None
    if not new:
        rows = [_unquoted(row) for row in rows]
        scores = [_scores(path, k, row) for k, row in enumerate(rows, 1)]
        queries = [row.get("example") for row in rows]
        answers = [_answer(row.get("gold"), None) for row in rows]
        choices = [row.get("choices") for row in rows]
        tokens = [row.get("cont_tokens") for row in rows]
        logged = [
            _predictions(
                row.get("choices"), row.get("predictions"), row.get("pred_logits")
            )
            for row in rows
        ]
        ids = [None] * len(rows)
        return _Details(queries, choices, answers, ids, scores, tokens, logged)
    doc, metric, answer = (names[key] for key in ("doc", "metric", "model_response"))
    return _Details(
        [_field(row, doc, "query") for row in rows],
        [_field(row, doc, "choices") for row in rows],
        [
            _answer(_field(row, doc, "choices"), _field(row, doc, "gold_index"))
            for row in rows
        ],
        [_field(row, doc, "id") for row in rows],
        [_mapping(path, k, row.get(metric)) for k, row in enumerate(rows, 1)],
        [_field(row, answer, "output_tokens") for row in rows],
        [
            _predictions(
                _field(row, doc, "choices"),
                _field(row, answer, "text_post_processed")
                or _field(row, answer, "text"),
                _field(row, answer, "logprobs"),
            )
            for row in rows
        ],
    )


def _names(path: Path, columns: list[str]) -> dict[str, str]:
    """Columns by their names without underscores around them."""
    names = {name.strip("_"): name for name in columns}
    lacking = {"doc", "metric"} - names.keys() if "model_response" in names else ()
    if len(set(columns)) < len(columns) or lacking:
        raise ValueError(
            f"{path} is no table of lighteval's details: its columns are"
            f" {listing(columns)}; give the file as lighteval wrote it"
        )
    return names


def _wanted(names: dict[str, str], new: bool) -> list[str]:
    """The columns to read, of new or of old details."""
    if not new:
        own = ("predictions", "pred_logits", "cont_tokens")
        return ["example", "choices", "gold", "metrics", *own, *_FLAT]
    doc, answer = names["doc"], names["model_response"]
    fields = [f"{doc}.{name}" for name in ("query", "id", "choices", "gold_index")]
    own = ("output_tokens", "text_post_processed", "text", "logprobs")
    return [*fields, names["metric"], *(f"{answer}.{name}" for name in own)]


def _has(schema: pa.Schema, column: str) -> bool:
    """Whether a schema has a column, or a field of a column "name.field"."""
    name, _, field = column.partition(".")
    if schema.names.count(name) != 1:
        return False
    kind = schema.field(name).type
    return not field or (pa.types.is_struct(kind) and kind.get_field_index(field) >= 0)


def _field(row: dict[str, Any], column: str, field: str) -> Any:
    """A field of a struct column; None where either is missing."""
    value = row.get(column)
    return value.get(field) if isinstance(value, dict) else None


def _answer(choices: Any, gold: Any) -> str:
    """The expected answer: the choices at the indices of the gold, or all."""
    options = choices if isinstance(choices, list) else [choices]
    if gold is not None:
        places = gold if isinstance(gold, list) else [gold]
        options = [
            options[k] for k in places if type(k) is int and 0 <= k < len(options)
        ]
    return " or ".join(str(choice) for choice in options if choice is not None)


def _predictions(choices: Any, texts: Any, logprobs: Any) -> dict[str, str]:
    """What the model answered, by "norm" where lengths count, and "" elsewhere."""
    texts, logprobs = (_literal(x, None) for x in (texts, logprobs))
    options = [str(x) for x in choices] if isinstance(choices, list) else []
    if isinstance(logprobs, list) and len(logprobs) == len(options) > 1:
        with contextlib.suppress(TypeError, ValueError):
            likelihoods = [float(x[0] if isinstance(x, list) else x) for x in logprobs]
            sizes = [max(len(x.strip()), 1) for x in options]
            plain = max(range(len(likelihoods)), key=likelihoods.__getitem__)
            norm = max(range(len(likelihoods)), key=lambda k: likelihoods[k] / sizes[k])
            return {"": options[plain], "norm": options[norm]}
    first = texts[0] if isinstance(texts, list) and texts else texts
    return {"": short_answer(first)} if isinstance(first, str) else {}


def _content(query: Any, choices: Any, answer: str) -> str:
    """A hash of an item: questions of the same text may differ in their choices."""
    if query is None:
        return ""
    options = choices if isinstance(choices, list) else ()
    # The one choice of an open question is its answer, which older files have alone.
    texts = [str(choice).strip() for choice in options] if len(options) > 1 else []
    return digest(str(query), answer.strip(), *texts)


def _scores(path: Path, number: int, row: dict[str, Any]) -> dict[str, Any]:
    """Scores of a row of the old layout: a struct, its text, or columns."""
    if row.get("metrics") is not None:
        return _mapping(path, number, row["metrics"])
    return {name: row[name] for name in _FLAT if name in row}


def _unquoted(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the old layout; where a column failed, all are texts of Python."""
    if not isinstance(row.get("metrics"), str):
        return row
    quoted = {
        name: row[name] for name in ("choices", "gold", "cont_tokens") if name in row
    }
    plain = {name: _literal(value, value) for name, value in quoted.items()}
    return {**row, **plain}


def _literal(value: Any, otherwise: Any) -> Any:
    """What a text of Python states, such as a list; otherwise if it is none."""
    if not isinstance(value, str):
        return value
    if len(value) < 100_000:
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(value)
    return otherwise


def _mapping(path: Path, number: int, value: Any) -> dict[str, Any]:
    """Metrics by name; uploads of 2024 have their text in place of a struct."""
    value = _literal(value, None)
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: row {number} has no metrics by name; give details as lighteval"
            " wrote them, or leave the file out"
        )
    return value


def _read_details(
    path: Path,
    task: str,
    run: str,
    details: _Details,
    options: ReadOptions,
    builder: RecordBuilder,
) -> None:
    """Adds the scores of one file of details."""
    subject = options.subject_name or subject_of(path)
    documents = zip(details.queries, details.choices, details.answers, strict=True)
    contents = [_content(*one) for one in documents]
    names = [str(k) if i in (None, "") else str(i) for k, i in enumerate(details.ids)]
    copy = copies(zip(names, contents, strict=True))
    # Metrics of other tasks are empty columns of the struct.
    metrics = dict.fromkeys(
        m for row in details.scores for m, score in row.items() if score is not None
    )
    described = builder.described
    texts = zip(names, contents, details.queries, details.answers, strict=True)
    for name, content, query, answer in texts:
        if content and described.needs((task, name, content)):
            described.text((task, name, content), str(query), answer)
    for name, content, choices in zip(names, contents, details.choices, strict=True):
        if content and isinstance(choices, list) and len(choices) > 1:
            described.choices((task, name, content), len(choices))
    columns = names, contents, details.scores, details.tokens, details.predictions
    for name, content, scores, tokens, predictions in zip(*columns, strict=True):
        key = ItemKey(task, name, content, copy[name])
        for metric in metrics:
            score = scores.get(metric)
            # Others, such as lists of a metric of the whole set, score no sample.
            if score is None or isinstance(score, bool | int | float):
                builder.add(
                    subject=subject,
                    item=key,
                    response=score,
                    benchmark=task,
                    metric=metric,
                    run=run,
                    length=_length(tokens),
                    answer=predictions.get("norm" if "norm" in metric else "")
                    or predictions.get(""),
                )


def _length(tokens: Any) -> float | None:
    """Tokens of the one response; choices and repeated samples have several."""
    if not isinstance(tokens, list) or len(tokens) != 1:
        return None
    return float(len(tokens[0])) if isinstance(tokens[0], list) else None
