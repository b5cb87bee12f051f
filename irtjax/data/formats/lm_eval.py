"""Sample logs of lm-evaluation-harness (``--log_samples``), all versions since 0.4.

One record per document and answer filter. Files of one task differ in their order and
may differ in their document numbers, so documents are joined by ``doc_hash``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from irtjax.data.answers import short_answer
from irtjax.data.decode import Fields, Record, Score, decode, json_values
from irtjax.data.files import read_bytes
from irtjax.data.formats import lmms_eval
from irtjax.data.item_texts import LONGEST_WRONG, cut, text_of
from irtjax.data.reading.columns import PROMPT
from irtjax.data.reading.described import Described, Place
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.options import ReadOptions, asked_filters
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import counted, several

_NOT_METRICS = set(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash"
    " prompt_hash target_hash scores_per_repeat schema_version".split()
)
# Metrics of the whole set, logged per sample as (gold, predicted) or (sum, count).
_PAIRS = set(
    "f1 mcc likelihood word_perplexity byte_perplexity bits_per_byte perplexity"
    " acc_mutual_info".split()
)
#: Totals of a run, which are next to its logs.
SIDE_FILES = "*results*.json"
# What is usually reported of a task, in order of preference.
USUAL_METRICS = ("acc_norm", "acc", "exact_match", "prompt_level_strict_acc")
USUAL_FILTERS = ("strict-match",)
# The harness writes this constant where it was set not to score the responses.
_UNSCORED = "bypass"
_NUMBER = bool | int | float
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T[\d.+:-]+$")


class LoggedDocument(Record):
    """One document and answer filter; fields of any other name are metrics."""

    cure: ClassVar[str] = (
        "sample logs of lm-evaluation-harness (--log_samples) have it in every record"
    )

    doc_id: int | float | str
    doc_hash: str | int | None = None
    #: Named since 0.4.7.
    filter: str | None = None
    metrics: list[str] | None = None
    scores_per_repeat: dict[str, list[Score] | None] | None = None


class _Named(Record):
    """The names of the metrics of a record."""

    metrics: list[str] | None = None


class _Config(Record):
    model_args: str | dict[str, Any] | None = None


class _Results(Record):
    """Totals of a run (``results_*.json``), which are optional."""

    results: dict[str, msgspec.Raw]
    model_name: str | None = None
    config: _Config | None = None
    higher_is_better: dict[str, dict[str, bool | None] | None] | None = None
    sizes: Any = msgspec.field(default=None, name="n-samples")


@dataclasses.dataclass(slots=True)
class _Row:
    """What is kept of a record: the name of its item, and its metrics by name."""

    sample: LoggedDocument
    place: str  # The file and its line, for messages.
    name: str
    content: str  # A hash of it; "" where it does not identify the item.
    metrics: dict[str, Score]
    unscored: bool
    wrong: str  # The answer, where it is wrong and texts are wanted.
    #: Answers by metric, "" for all others.
    answers: dict[str, str]


#: Repeats of a record whose answers are kept.
_MOST_REPEATS = 256
#: Logs that a note on many names.
_NAMED = 3


@dataclasses.dataclass
class _NoScores:
    """Values of a metric that are no scores: how many, and where the first is."""

    count: int
    place: str
    field: str
    kind: str  # What the first is; "" of a total of the whole set.

    def note(self, metric: str) -> str:
        """The note on them."""
        where = f"{counted(self.count, 'record')}, first in {self.place}"
        if not self.kind:
            return f"metric {metric!r} has no score per item in {where}"
        return (
            f"{self.place}, field {self.field!r}: it is {self.kind}, not a number; the"
            f" score is missing, as of {metric!r} in {counted(self.count, 'record')} in"
            " all: write a number or null, or evaluate the task again"
        )


@dataclasses.dataclass
class _Log:
    path: Path
    subject: str
    task: str
    run: str
    rows: list[_Row]


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    others = {"doc", "resps", "filtered_resps", "arguments"}
    return "doc_id" in fields and bool(others & fields.keys())


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file begins as a log, or has the name of one."""
    is_named = path.name.startswith("samples_") or lmms_eval.NAME.match(path.name)
    is_named = bool(is_named) and path.name.endswith((".jsonl", ".jsonl.gz", ".json"))
    return is_named or re.match(rb'\s*\{\s*"doc_id"\s*:', head) is not None


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads sample logs; items join across the files by content."""
    builder = RecordBuilder()
    totals = _Totals()
    skipped: dict[tuple[str, bool], _NoScores] = {}
    unscored: list[Path] = []
    unnamed: set[str] = set()
    short: list[tuple[str, str]] = []
    filters = lambda task: (*asked_filters(options, task), *USUAL_FILTERS)
    builder.described = described = Described("lm-eval", options.texts, filters)
    texts = _Texts(described)
    # A slice: to go through the paths themselves counts as reading the files.
    older = _older(paths[:], totals) if options.run == "latest" else set()
    for path in paths:
        subject, task, run = _origin(path, totals)
        mine = None if path in older else texts
        rows = [
            _row(value, place, options, task, mine)
            for place, value in json_values(path)
        ]
        log = _Log(path, options.subject_name or subject, task, run, rows)
        short += [] if path in older else _cut_off(log, totals)
        if any(row.unscored for row in rows) and not any(row.metrics for row in rows):
            unscored.append(path)
        else:
            builder.begin(path)
            named_filters = totals.filters(path.parent, run, task)
            if _read_log(log, options, builder, skipped, named_filters):
                unnamed.add(task)
    if unscored and len(builder) == 0 and not skipped:
        raise ValueError(
            f"{several(unscored)} holds answers without scores: the run was made with"
            " --predict_only; evaluate it again without that, or give other logs"
        )
    notes = [no_scores.note(metric) for (metric, _), no_scores in skipped.items()]
    if len(builder) == 0:
        about = "".join(f"; {note}" for note in notes[:1])
        raise ValueError(
            f"{several(paths)}: no record has a score that is a number{about}"
        )
    builder.directions |= totals.directions()
    records = builder.finish(paths, options.join)
    records.usual_metrics, records.usual_filters = USUAL_METRICS, USUAL_FILTERS
    records.first_filter = True
    records.unnamed_filters = frozenset(unnamed)
    records.notes += notes
    if short:
        records.notes.append(_cut_off_note(short))
    records.notes += [
        f"{path} holds answers without scores (--predict_only) and was left out"
        for path in unscored
    ]
    return records


def _cut_off(log: _Log, totals: _Totals) -> list[tuple[str, str]]:
    """Name and size of a log that ends before the run that its results describe did."""
    size = totals.size(log.path.parent, log.run, log.task)
    documents = {str(row.sample.doc_id) for row in log.rows}
    # A run of some documents (--samples) states the number of all, too, but rarely has
    # the first ones.
    if size <= len(documents) or documents != set(map(str, range(len(documents)))):
        return []
    name = f"{log.subject}: {log.path.name}"
    return [(name, f"{len(documents):,} of the {counted(size, 'document')}")]


def _cut_off_note(short: list[tuple[str, str]]) -> str:
    """The note on logs that end before their runs did; the first ones by name."""
    if len(short) == 1:
        ((name, size),) = short
        return f"{name} has {size} of its run: copy the file again if it was cut off"
    named = "; ".join(f"{name} has {size}" for name, size in short[:_NAMED])
    left = len(short) - _NAMED
    named += f"; and {left:,} more" if left > 0 else ""
    return (
        f"{len(short):,} logs have fewer documents than their runs: copy them again if"
        f" they were cut off ({named})"
    )


def subject_of(path: Path) -> str:
    """The model of a log, by its folder and the results there."""
    return _origin(path, _Totals())[0]


def _older(paths: Sequence[Path], totals: _Totals) -> set[Path]:
    """Files of runs that are not read, because the subject has a later one of the task.

    A later one without scores does not count.
    """
    runs: dict[tuple[str, str], dict[str, list[Path]]] = {}
    for path in paths:
        subject, task, run = _origin(path, totals)
        runs.setdefault((subject, task), {}).setdefault(run, []).append(path)
    older: set[Path] = set()
    for logs_by_run in runs.values():
        names = sorted(logs_by_run)
        while len(names) > 1 and all(map(_is_unscored, logs_by_run[names[-1]])):
            names.pop()
        older.update(path for name in names[:-1] for path in logs_by_run[name])
    return older


def _is_unscored(path: Path) -> bool:
    """Whether a file, by its first record, holds answers without scores."""
    place, value = next(iter(json_values(path)), ("", b"{}"))
    names = decode(value, _Named, place).metrics
    return names is not None and set(names) <= {_UNSCORED}


def _row(
    value: bytes | msgspec.Raw,
    place: str,
    options: ReadOptions,
    task: str,
    texts: _Texts | None,
) -> _Row:
    """Decodes a record; before 0.4.7 it did not list its metrics.

    Without ``texts``, nothing is kept of what its item asks.
    """
    sample = decode(value, LoggedDocument, place)
    fields: Fields = decode(value, Fields, place)
    names = sample.metrics or [name for name in fields if name not in _NOT_METRICS]
    metrics: dict[str, Score] = {}
    for name in names:
        score = fields.get(name)
        if name == _UNSCORED:
            continue
        where = f"{place}, field {name!r}"
        metrics[name] = None if score is None else decode(score, Score, where)
    name, content = str(sample.doc_id), str(sample.doc_hash or "")
    if isinstance(options.item, str):
        name = _named(value, options.item, place)
    if options.item is not None:
        # A name that the caller chose is what joins items, whatever their content.
        content = ""
    item = task, name, content
    wrong, answers = "", {}
    if texts is not None:
        texts.described.id(item, name if options.item is None else str(sample.doc_id))
        if options.texts:
            answers, wrong = texts.take(item, fields, metrics)
    unscored = _UNSCORED in names
    return _Row(sample, place, name, content, metrics, unscored, wrong, answers)


class _Texts:
    """Prompts and answers of documents, from the first record that has them."""

    def __init__(self, described: Described) -> None:
        self.described = described
        #: What the model chose from, and characters and bytes of each.
        self._choices: dict[Place, list[str]] = {}
        self._sizes: dict[Place, dict[str, list[int]]] = {}
        #: Items of which the next record may show what was expected.
        self._unsettled: set[Place] = set()

    def take(
        self, item: Place, fields: Fields, metrics: dict[str, Score]
    ) -> tuple[dict[str, str], str]:
        """Keeps the text of a record, if it is the first.

        Returns:
            The answers by metric, "" for all others; and the answer if it is wrong,
            which is if it scores 0 in every metric.
        """
        if self.described.needs(item) or item in self._unsettled:
            prompt, choices, is_context = _prompt(fields)
            target = text_of(_loose(fields, "target")).strip()
            self._choices[item] = [cut(x, LONGEST_WRONG) for x in choices]
            self._sizes[item] = {
                "acc_norm": list(map(len, choices)),
                "acc_bytes": [len(x.encode("utf-8", "replace")) for x in choices],
            }
            if len(choices) > 1:
                self.described.choices(item, len(choices))
            self._unsettled.discard(item)
            if choices:
                likely = _most_likely(_loose(fields, "filtered_resps"), len(choices))
                picked = None if likely is None else choices[likely]
                targets = choices if is_context else _meant(target, choices)
                target = _right(targets, picked, metrics.get("acc"))
                if not target:
                    self._unsettled.add(item)
            self.described.text(item, prompt, target)
        answers = self._answers(item, _loose(fields, "filtered_resps"), metrics)
        scores = [x for x in metrics.values() if isinstance(x, float | bool)]
        is_wrong = bool(scores) and not any(scores)
        wrong = answers.get("", "")[: 4 * LONGEST_WRONG] if is_wrong else ""
        return {name: short_answer(text) for name, text in answers.items()}, wrong

    def _answers(
        self, item: Place, responses: Any, metrics: dict[str, Score]
    ) -> dict[str, str]:
        """The answers of a record by metric: `take`."""
        if not isinstance(responses, list) or not responses:
            return {}
        choices = self._choices.get(item, [])
        sizes = self._sizes.get(item, {})
        texts = responses[0] if isinstance(responses[0], list) else responses
        of_choices = len(responses) == len(choices) > 1 and texts is not responses
        if texts and not of_choices and all(isinstance(x, str) for x in texts):
            repeats = {
                f"#{k}": text for k, text in enumerate(texts[1:_MOST_REPEATS], 1)
            }
            return {"": texts[0], **repeats}
        answers = {}
        for metric in ("", *(x for x in sizes if x in metrics)):
            likely = _most_likely(responses, len(choices), sizes.get(metric))
            if likely is not None:
                answers[metric] = choices[likely]
        return answers


def _most_likely(
    answers: Any, count: int, sizes: Sequence[int] | None = None
) -> int | None:
    """The most likely of several choices; None if the answers are not of choices.

    With ``sizes``, by the log-likelihood of a character or byte.
    """
    if not isinstance(answers, list) or count < 2 or len(answers) != count:
        return None
    try:
        # The log-likelihood of each choice, and whether it was the most likely.
        likelihoods = [float(pair[0]) for pair in answers]
        likelihoods = (
            [x / y for x, y in zip(likelihoods, sizes, strict=True)]
            if sizes
            else likelihoods
        )
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return None
    return max(range(count), key=likelihoods.__getitem__)


def _meant(target: str, choices: list[str]) -> list[str]:
    """What a logged target may stand for: a choice or the number of one."""
    meant = [target] if target in choices else []
    if target.isdecimal() and len(target) < 4 and int(target) < len(choices):
        meant.append(choices[int(target)])
    return list(dict.fromkeys(meant)) or [target]


def _right(texts: list[str], picked: str | None, accuracy: Score) -> str:
    """The one of several texts that was expected; "" if the record leaves it open.

    What the model picked is right if its accuracy is 1, and wrong if it is 0.
    """
    if len(texts) > 1 and picked is not None and accuracy in (0, 1):
        texts = [text for text in texts if (text == picked) == bool(accuracy)]
    return texts[0] if len(texts) == 1 else ""


def _loose(fields: Fields, name: str) -> Any:
    """A field of any kind, which need not be there; "" without it."""
    value = fields.get(name)
    try:
        return "" if value is None else decode(value, Any, "")
    except ValueError:
        return ""


def _prompt(fields: Fields) -> tuple[str, list[str], bool]:
    """What the model was given, and what it chose from if that is several texts.

    Also whether these are parts of the contexts, as of WinoGrande: the continuation is
    then the same for all, and no answer.
    """
    requests = _loose(fields, "arguments")
    if isinstance(requests, dict):
        requests = [
            list(x.values()) if isinstance(x, dict) else x for x in requests.values()
        ]
    if not isinstance(requests, list):
        requests = []
    pairs = [x for x in requests if isinstance(x, list) and x]
    if pairs and isinstance(pairs[0][0], str) and pairs[0][0].strip():
        # Of multiple choice a request for each choice, after the same prompt.
        second = [x[1] for x in pairs if len(x) > 1 and isinstance(x[1], str)]
        first = [x[0] for x in pairs if isinstance(x[0], str)]
        if len(set(second)) == 1 < len(set(first)) == len(second) == len(pairs):
            start = os.path.commonprefix(first)
            start = start[: max(map(start.rfind, " \n")) + 1]
            parts = [x.removeprefix(start).strip() for x in first]
            return f"{start}_{second[0]}", parts, True
        choices = [x.strip() for x in second] if len(second) > 1 else []
        return pairs[0][0], choices, False
    document = _loose(fields, "doc")
    if isinstance(document, dict):
        texts = {k.lower(): v for k, v in document.items() if isinstance(v, str)}
        prompt = next((texts[k] for k in PROMPT if texts.get(k)), None)
        return prompt or text_of(document), [], False
    return text_of(document), [], False


def _named(value: bytes | msgspec.Raw, item: str, place: str) -> str:
    """The field of a record that a dotted path names, as text."""
    for step in item.split("."):
        is_object = bytes(value).lstrip()[:1] == b"{"
        names: Fields = decode(value, Fields, place) if is_object else {}
        if step not in names:
            raise ValueError(
                f"{place}: item={item!r}: no field {step!r}; there are:"
                f" {', '.join(names) or 'no fields'}"
            )
        value = names[step]
    return str(decode(value, Any, place))


def _origin(path: Path, totals: _Totals) -> tuple[str, str, str]:
    """Returns subject, task and run by the names of the file and its folder."""
    # Not Path.stem, which would cut a date at the point of its seconds.
    stem = re.sub(r"(\.jsonl?)?(\.gz)?$", "", path.name)
    folder = path.absolute().parent.name
    if path.name.startswith("samples_"):
        task, run = stem.removeprefix("samples_"), ""
        if "_" in task and _DATE.match(task.rsplit("_", 1)[1]):
            task, run = task.rsplit("_", 1)
        model = totals.model(path.parent, run) or folder.replace("__", "/", 1)
        return model, task, run
    if match := lmms_eval.NAME.match(stem):
        model = totals.model(path.parent, match["run"]) or folder.replace("__", "/", 1)
        return model, match["task"], match["run"]
    # Up to 0.4.2 the name was {model_args}_{task}, with / and = both turned into __, as
    # in pretrained__org__name,dtype__float16_task.
    tasks = sorted(totals.tasks(path.parent), key=len, reverse=True)
    task = next((t for t in tasks if stem.endswith(f"_{t}")), stem.rsplit("_", 1)[-1])
    arguments = stem.removesuffix(task).removesuffix("_").split(",", 1)[0]
    model = re.sub(r"^(pretrained|model|path)__", "", arguments).replace("__", "/", 1)
    return totals.model(path.parent, "") or model or folder, task, ""


class _Totals:
    """Results files in the folder of the logs: model name, directions of metrics."""

    def __init__(self) -> None:
        self._seen: dict[Path, list[tuple[str, _Results]]] = {}

    def _in(self, folder: Path) -> list[tuple[str, _Results]]:
        """Names and contents of the results files in a folder."""
        if folder in self._seen:
            return self._seen[folder]
        results_files = self._seen[folder] = []
        for path in sorted(folder.glob(SIDE_FILES)):
            # The totals are optional.
            with contextlib.suppress(ValueError):
                results = decode(read_bytes(path), _Results, str(path))
                results_files.append((path.stem, results))
        return results_files

    def model(self, folder: Path, run: str) -> str | None:
        """Name of the model, from the results of the same run if they are there."""
        results = self._in(folder)
        exact = [pair for pair in results if run and pair[0].endswith(run)]
        names = {_model_name(content) for _, content in exact or results} - {None}
        return names.pop() if len(names) == 1 else None

    def tasks(self, folder: Path) -> set[str]:
        """Names of the tasks that the results mention."""
        return {task for _, content in self._in(folder) for task in content.results}

    def filters(self, folder: Path, run: str, task: str) -> dict[str, dict[str, Any]]:
        """Filters of a task in their order, each with the means of its metrics.

        Empty where the results of the run are not there.
        """
        results = self._in(folder)
        exact = [content for name, content in results if run and name.endswith(run)]
        contents = exact or [content for _, content in results]
        if len(contents) != 1 or task not in contents[0].results:
            return {}
        means: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(ValueError):
            for name, value in decode(contents[0].results[task], Fields, task).items():
                metric, comma, filter = name.partition(",")
                if comma and not metric.endswith("_stderr"):
                    means.setdefault(filter, {})[metric] = decode(value, Any, task)
        return means

    def size(self, folder: Path, run: str, task: str) -> int:
        """Number of documents of a task in a run; 0 where it is not known."""
        exact = [x for name, x in self._in(folder) if run and name.endswith(run)]
        sizes = exact[0].sizes if len(exact) == 1 else None
        size = sizes.get(task) if isinstance(sizes, dict) else None
        number = size.get("effective") if isinstance(size, dict) else None
        return number if isinstance(number, int) else 0

    def directions(self) -> dict[tuple[str, str], bool]:
        """Whether lower is better, by task and metric."""
        return {
            (task, metric): not higher
            for results in self._seen.values()
            for _, content in results
            for task, senses in (content.higher_is_better or {}).items()
            for metric, higher in (senses or {}).items()
            if higher is not None
        }


def _model_name(content: _Results) -> str | None:
    """The model that a file of results names, or None."""
    if content.model_name:
        return content.model_name
    arguments = (content.config.model_args if content.config else None) or ""
    if isinstance(arguments, dict):
        name = arguments.get("pretrained") or arguments.get("model")
        return None if name is None else str(name)
    match = re.search(r"(?:^|,)(?:pretrained|model)=([^,]+)", arguments)
    return match.group(1) if match else None


def _unnamed(
    rows: Sequence[_Row], means_by_filter: dict[str, dict[str, Any]]
) -> list[str]:
    """Names of the filters of a log up to 0.4.6, which has none.

    The k-th record of a document is of the k-th filter. The results of the run name
    them in this order; where they are several, their means must agree.
    """
    count: Counter[str] = Counter(row.name for row in rows)
    size = max(count.values(), default=0)
    numbered = [f"filter{k}" for k in range(size)] if size > 1 else ["none"]
    if len(means_by_filter) != size or size == 0:
        return numbered
    if size > 1:
        place: Counter[str] = Counter()
        scores: list[dict[str, list[float]]] = [{} for _ in means_by_filter]
        for row in rows:
            for metric, value in row.metrics.items():
                if isinstance(value, _NUMBER):
                    of_filter = scores[place[row.name]]
                    of_filter.setdefault(metric, []).append(float(value))
            place[row.name] += 1
        for means, by_metric in zip(means_by_filter.values(), scores, strict=True):
            same = [
                math.isclose(sum(by_metric[x]) / len(by_metric[x]), mean, abs_tol=1e-6)
                for x, mean in means.items()
                if x in by_metric and isinstance(mean, _NUMBER)
            ]
            if not same or not all(same):
                return numbered
    return list(means_by_filter)


def _read_log(
    log: _Log,
    options: ReadOptions,
    builder: RecordBuilder,
    skipped: dict[tuple[str, bool], _NoScores],
    filters: dict[str, dict[str, Any]],
) -> bool:
    """Adds the records of a log; whether its only filter has no name."""
    rows = log.rows
    names = [row.name for row in rows]
    hashes = [row.content for row in rows]
    # By number, then by name: digits without leading zeros sort as numbers by length.
    order = lambda pair: (len(pair[0]) if pair[0].isdecimal() else 0, pair[0])
    copy = copies(sorted(zip(names, hashes, strict=True), key=order))
    repeats: Counter[str] = Counter()
    has_names = any(row.sample.filter is not None for row in rows)
    unnamed = _unnamed(rows, {} if has_names else filters)
    totals = _pair_metrics(rows)
    if lmms_eval.NAME.match(log.path.name):
        means = {
            x: mean for of_filter in filters.values() for x, mean in of_filter.items()
        }
        of_lmms, without = lmms_eval.take_scores([row.metrics for row in rows], means)
        totals |= without
        for metric, text in of_lmms.items():
            builder.note(metric, f"{log.task}: {text}")
    lists: set[str] = set()
    for row, name, content in zip(rows, names, hashes, strict=True):
        filter_name = row.sample.filter
        if filter_name is None:
            filter_name = unnamed[repeats[name]]
            repeats[name] += 1
        key = ItemKey(log.task, name, content, copy[name])
        if row.wrong:
            builder.described.wrong((log.task, name, content), row.wrong, filter_name)
        scores = row.sample.scores_per_repeat or {}
        for metric, value in row.metrics.items():
            repeated = scores.get(metric)
            answers = _answers_of(row, metric, len(repeated or [value]))
            for trial, attempt in enumerate(repeated or [value]):
                total = metric in totals
                parts = None if total else _score(attempt, options.parts)
                if parts is None:
                    field = "scores_per_repeat" if repeated else metric
                    kind = "" if total else _kind(attempt)
                    first = _NoScores(0, row.place, field, kind)
                    skipped.setdefault((metric, total), first).count += 1
                    continue
                if isinstance(attempt, list):
                    lists.add(metric)
                for part, score in parts:
                    builder.add(
                        subject=log.subject,
                        item=dataclasses.replace(key, part=part) if part else key,
                        response=score,
                        benchmark=log.task,
                        metric=metric,
                        filter=filter_name,
                        run=log.run,
                        trial=trial,
                        answer=answers[trial],
                    )
    how = "averaged" if options.parts == "mean" else "made items of their own"
    for metric in lists:
        builder.note(metric, f"{log.task}: the parts of {metric!r} were {how}")
    return not has_names and unnamed == ["none"] and len(filters) != 1


def _answers_of(row: _Row, metric: str, count: int) -> list[str]:
    """The answers of so many repeats, as far as a record has them."""
    first = row.answers.get(metric, row.answers.get("", ""))
    return [first, *(row.answers.get(f"#{k}", "") for k in range(1, count))]


def _pair_metrics(rows: Sequence[_Row]) -> set[str]:
    """Metrics whose value is always two numbers: parts of a total, not scores."""
    sizes: dict[str, set[int]] = {}
    for row in rows:
        for name, value in row.metrics.items():
            size = -1
            if isinstance(value, list) and bool not in map(type, value):
                size = len(value)
            sizes.setdefault(name, set()).add(size)
    return {
        name
        for name, lengths in sizes.items()
        if lengths == {2} or (name in _PAIRS and -1 not in lengths)
    }


def _score(value: Any, parts: str) -> list[tuple[str, float | None]] | None:
    """Returns (part, score) pairs, or None if the value is no score."""
    if value is None or isinstance(value, _NUMBER):
        return [("", value)]
    numbers = isinstance(value, list) and all(isinstance(v, _NUMBER) for v in value)
    if not value or not numbers:
        return None
    if parts == "mean":
        return [("", sum(map(float, value)) / len(value))]
    return [(f"#{k}", number) for k, number in enumerate(value, 1)]


def _kind(value: Any) -> str:
    """What a value is that is no score."""
    if isinstance(value, list):
        return "a list with others than numbers" if value else "an empty list"
    return "an object" if isinstance(value, dict) else "text"
