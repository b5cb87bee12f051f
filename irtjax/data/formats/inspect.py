"""Inspect logs: ``.eval`` archives and ``.json`` files."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, ClassVar

from irtjax.data.decode import Count, Record, Score, decode
from irtjax.data.files import Unpacked, read_bytes, read_head
from irtjax.data.item_texts import text_of
from irtjax.data.reading.described import Described, Place
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import digest, missing_note
from irtjax.data.reading.options import ReadOptions, unanswered_note
from irtjax.data.reading.records import UNFINISHED, RecordBuilder, Records
from irtjax.data.wording import counted, several

# What Inspect writes for a verdict: correct, incorrect, partial.
_VERDICTS = {"C": 1.0, "I": 0.0, "P": 0.5}
# No answer, which Inspect counts as 0; here `missing_as` makes it wrong or missing.
_NO_ANSWER = "N"
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ZSTANDARD = 93
#: Characters of an error that are shown.
_LONGEST = 80
#: Characters of an input that identify it, and what stands for an image in summaries.
_COMPARED = 1000
_IMAGES = re.compile(r"\((Image|Audio|Video|Data|Document)\)")
#: Bytes in which the first fields of a JSON log are, and what stands before a name and
#: after it.
_FIRST = 1 << 20
_BEFORE_NAME = re.compile(r'[ \t\r\n]*[{,][ \t\r\n]*(?=")')
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
#: Lists and objects within each other that messages have, and more.
_DEEPEST = 8
# What zipfile raises for archives that are cut off, altered or encrypted, or have names
# of members that are no text.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError),
    UnicodeDecodeError,
)
#: A metric, the part of an item, and the score as written.
_Row = tuple[str, str, Any]


#: A sample of an archive is one file, or a folder with a file sample.json and more.
_SAMPLE = re.compile(r"^samples/(?:[^/]+\.json|[^/]+/sample\.json)$")


class Failure(Record):
    """An error of a sample or a log."""

    message: str | None = None


class ModelUsage(Record):
    """Tokens of a model."""

    output_tokens: float | None = None


class ScoreOf(Record):
    """What a scorer wrote."""

    value: Score = None
    answer: Any = None


class InspectSample(Record):
    """A sample, or what the summaries hold of one."""

    cure: ClassVar[str] = "samples of an Inspect log have an id and scores"

    id: int | str
    epoch: Count | None = None
    scores: dict[str, ScoreOf | bool | float | str | list[Any] | None] | None = None
    error: Failure | str | None = None
    invalidation: Any = None
    model_usage: dict[str, ModelUsage | None] | None = None
    input: Any = None
    target: Any = None


class Eval(Record):
    """What was evaluated."""

    model: str
    task: str
    eval_id: str | None = None
    run_id: str | None = None
    created: str | None = None


class AnnouncedSamples(Record):
    """What the results of a log announce; samples are counted for each epoch."""

    total_samples: Count | None = None


class Header(Record):
    """A log without its samples."""

    cure: ClassVar[str] = (
        "an Inspect log has eval.model, eval.task and samples with ids and scores"
    )

    eval: Eval
    status: str | None = None
    error: Failure | str | None = None
    results: AnnouncedSamples | None = None


class Log(Header):
    """A log in one JSON file."""

    samples: list[InspectSample] | None = None


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether an object is a log in one JSON file."""
    spec = fields.get("eval")
    return isinstance(spec, dict) and {"model", "task"} <= spec.keys()


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the ending of a log."""
    return path.suffix == ".eval"


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads Inspect logs; one evaluation found twice is read once."""
    builder = RecordBuilder()
    seen: set[str] = set()
    failed: Counter[str] = Counter()
    inputs = _Inputs()
    builder.described = Described("inspect", options.texts)
    # A slice: to go through the paths themselves counts as reading the files.
    older = _older(paths[:], options)
    for path in paths:
        header, samples = _load(path)
        spec = header.eval
        # A run evaluates several models and tasks; old logs have no id of their own.
        run = f"{spec.run_id} {spec.task} {spec.model} {spec.created}"
        identity = spec.eval_id or (run if spec.run_id else str(path))
        if identity in seen:
            builder.notes.append(
                f"{path.name} is the same evaluation as another log and was left out"
            )
            continue
        seen.add(identity)
        builder.notes += _counted_notes(path, header, samples)
        status = header.status or "started"
        if status != "success":
            builder.notes.append(f"{path.name}: the evaluation ended as {status!r}")
        builder.described.wanted = options.texts and path not in older
        builder.begin(path)
        contents = inputs.add(spec.task, samples)
        _read_log(path, header, samples, contents, options, builder)
        failed.update(_error_of(sample) for sample in samples)
        if not samples:
            failed[_error_of(header)] += 1
        del header, samples  # before the next are loaded
    if len(builder) == 0:
        raise ValueError(
            f"{several(paths)}: there are no scored samples in it{_failures(failed)}"
        )
    return builder.finish(paths, options.join, inputs.identify)


def _counted_notes(
    path: Path, header: Header, samples: Sequence[InspectSample]
) -> list[str]:
    """Notes on samples that a log announces and does not hold, or holds twice."""
    notes = []
    total = header.results.total_samples if header.results else None
    if total and len(samples) < total:
        notes.append(
            f"{path.name} announces {counted(total, 'sample')} and holds"
            f" {len(samples):,}: the others are missing"
        )
    pairs = Counter((str(x.id), x.epoch) for x in samples)
    twice = [pair for pair, count in pairs.items() if count > 1]
    if twice:
        notes.append(
            f"{path.name} holds {counted(len(twice), 'sample')} more than once, such as"
            f" {twice[0][0]!r:.80}"
        )
    if path.suffix == ".eval":
        notes += _archive_notes(path, len(samples))
    return notes


def _archive_notes(path: Path, num_samples: int) -> list[str]:
    """Notes on members of an archive that are not what is read of it."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    notes = []
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        notes.append(
            f"{path.name} holds {twice[0]!r:.80} more than once: the last was read"
        )
    stored = len({name for name in names if _SAMPLE.match(name)})
    if stored and stored != num_samples:
        notes.append(
            f"{path.name} holds {counted(stored, 'sample')}, and its summaries list"
            f" {num_samples:,}, which were read"
        )
    return notes


def subject_of(path: Path) -> str:
    """The model of a log, by its header."""
    return _load(path, whole=False)[0].eval.model


class _Inputs:
    """Inputs of samples, which identify them where logs give one id to several.

    Without ids in the data, Inspect numbers samples in the order of the run, which may
    be shuffled. Elsewhere the id identifies a sample: tasks of agents may have one
    input for all.
    """

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], str] = {}
        self._differing: set[str] = set()
        #: Those that several samples of a log have.
        self._shared: set[tuple[str, str]] = set()

    def add(self, task: str, samples: Sequence[InspectSample]) -> list[str]:
        """Compares samples with those of the logs before; returns their contents."""
        names: dict[str, str] = {}
        contents = list(map(_content, samples))
        for sample, content in zip(samples, contents, strict=True):
            if not content:
                continue
            name = str(sample.id)
            if self._of.setdefault((task, name), content) != content:
                self._differing.add(task)
            if names.setdefault(content, name) != name:
                self._shared.add((task, content))
        return contents

    def identify(self, key: ItemKey) -> ItemKey:
        """The key by which a sample joins those of other logs."""
        task, content = key.benchmark, key.content
        if task not in self._differing:
            return dataclasses.replace(key, content="")
        if (task, content) in self._shared:
            return dataclasses.replace(key, content=digest(content, key.name))
        return key


def _content(sample: InspectSample) -> str:
    """A hash of what a sample asks, "" without an input.

    The summaries of a log have its first 5,000 characters or so, and words for images.
    """
    text = " ".join(_IMAGES.sub("", _plain(sample.input)).split())
    targets = sample.target if isinstance(sample.target, list) else [sample.target]
    shown = [text_of(target)[:_COMPARED] for target in targets]
    return digest(text[:_COMPARED], *shown) if text else ""


def _in_order(created: str | None) -> str:
    """A time as text that sorts by time, whatever its zone."""
    try:
        time = datetime.fromisoformat(created or "")
    except ValueError:
        return created or ""
    zone = time.tzinfo or UTC
    return time.replace(tzinfo=zone).astimezone(UTC).isoformat(timespec="microseconds")


def _older(paths: Sequence[Path], options: ReadOptions) -> set[Path]:
    """Logs that are not read, since the model has a later one of the task.

    Only where that succeeded: others may hold no samples.
    """
    if len(paths) < 2 or options.run == "all" or not options.texts:
        return set()
    runs: dict[tuple[str, str], dict[str, list[Path]]] = {}
    for path in paths:
        header = _load(path, whole=False)[0]
        pair = options.subject_name or header.eval.model, header.eval.task
        runs.setdefault(pair, {}).setdefault(_run_of(header), []).append(path)
    older: set[Path] = set()
    for logs_by_run in runs.values():
        succeeded = [run for run in logs_by_run if not run.startswith(UNFINISHED)]
        last = max(succeeded, default=None)
        if last is not None:
            older.update(
                x for run, logs in logs_by_run.items() if run != last for x in logs
            )
    return older


def _run_of(header: Header) -> str:
    """Name of a run, by which it is sorted."""
    mark = "" if header.status == "success" else UNFINISHED
    return mark + _in_order(header.eval.created)


def _error_of(holder: InspectSample | Header) -> str:
    """The first line of an error of a sample or a log; "" without one."""
    error = holder.error
    message = error.message if isinstance(error, Failure) else error
    lines = str(message or "").strip().splitlines()
    return lines[0][:_LONGEST] if lines else ""


def _failures(failed: Counter[str]) -> str:
    """How many samples or logs ended in which error, the most frequent first."""
    del failed[""]
    if not failed:
        return ""
    shown = [f"{n:,} ended in {text!r}" for text, n in failed.most_common(3)]
    left = sum(failed.values()) - sum(n for _, n in failed.most_common(3))
    others = f", {left:,} in others" if left else ""
    return f": {', '.join(shown)}{others}"


def _load(path: Path, whole: bool = True) -> tuple[Header, list[InspectSample]]:
    """Returns the header and, if wanted, the samples of a log, in whichever form."""
    unpacked = Unpacked(path)
    if not zipfile.is_zipfile(path) and path.suffix != ".eval":
        if not whole:
            first = _first_fields(path)
            return first or decode(read_bytes(path), Header, str(path)), []
        log = decode(read_bytes(path), Log, str(path))
        return log, log.samples or []
    try:
        with zipfile.ZipFile(path) as archive:
            return _load_archive(path, archive, unpacked, whole)
    except _DAMAGE as error:
        raise ValueError(
            f"{path} is a damaged or cut off Inspect log ({error}); copy it again"
        ) from None


def _first_fields(path: Path) -> Header | None:
    """Status and evaluation of a JSON log, which stand before its samples.

    None where they are not in the first bytes: the whole log has them.
    """
    text = (
        read_head(path, _FIRST).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "ignore")
    )
    fields: dict[str, Any] = {}
    json_value, at = json.JSONDecoder().raw_decode, 0
    try:
        while not {"status", "eval"} <= fields.keys():
            before = _BEFORE_NAME.match(text, at)
            name, at = json_value(text, before.end() if before else at)
            colon = _COLON.match(text, at)
            if before is None or colon is None or name == "samples":
                return None
            fields[name], at = json_value(text, colon.end())
        return decode(json.dumps(fields).encode(), Header, str(path))
    except (ValueError, RecursionError, TypeError):
        return None  # Cut off, or damaged, which reading the whole log names.


def _load_archive(
    path: Path, archive: zipfile.ZipFile, unpacked: Unpacked, whole: bool
) -> tuple[Header, list[InspectSample]]:
    """Header and samples of a zipped log; no samples unless `whole`."""
    names = set(archive.namelist())

    def load(name: str, type: Any) -> Any:
        return decode(_member(path, archive, name, unpacked), type, f"{path}: {name}")

    header_name = "header.json" if "header.json" in names else "_journal/start.json"
    if header_name not in names:
        raise ValueError(
            f"{path} is a zip archive, but no Inspect log: it has no header.json"
        )
    header = load(header_name, Header)
    if not whole:
        return header, []
    if "summaries.json" in names:
        return header, load("summaries.json", list[InspectSample])
    samples = sorted(name for name in names if _SAMPLE.match(name))
    if samples:
        return header, [load(name, InspectSample) for name in samples]
    # A run that was interrupted has only its journal.
    parts = [n for n in names if re.fullmatch(r"_journal/summaries/\d+\.json", n)]
    parts.sort(key=lambda name: (len(name), name))
    return header, [one for name in parts for one in load(name, list[InspectSample])]


def _member(
    path: Path, archive: zipfile.ZipFile, name: str, unpacked: Unpacked
) -> bytes:
    """Unpacks a member, counted while it is read."""
    info = archive.getinfo(name)
    if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(info) as file:
            return unpacked.read(file)
    if info.compress_type != _ZSTANDARD:
        # Others unpack a member at once, and Inspect does not write them.
        raise ValueError(
            f"{path}: {name} is packed in a way that Inspect does not use; pack the"
            " log again with zip"
        )
    file, damage = _unpacking(io.BytesIO(_raw_member(path, info)))
    try:
        data = unpacked.read(file)
    except damage as error:
        raise zipfile.BadZipFile(str(error)) from None
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise zipfile.BadZipFile(f"{name} does not match its checksum")
    return data


def _unpacking(raw: IO[bytes]) -> tuple[IO[bytes], type[Exception]]:
    """The stream that unpacks zstandard, and what it raises for damage."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdFile(raw), zstd.ZstdError
    import zstandard

    return zstandard.ZstdDecompressor().stream_reader(raw), zstandard.ZstdError


def _raw_member(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Returns the compressed bytes of a member, which zipfile refuses to hand out."""
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("a member is not where the directory says")
        name_size, extra_size = struct.unpack("<HH", head[26:30])
        file.seek(name_size + extra_size, 1)
        return file.read(info.compress_size)


def _read_log(
    path: Path,
    header: Header,
    samples: list[InspectSample],
    contents: list[str],
    options: ReadOptions,
    builder: RecordBuilder,
) -> None:
    """Adds the scores of one log, and notes what has none."""
    model, task = header.eval.model, header.eval.task
    run = _run_of(header)
    scored = [list(_scores(sample, options)) for sample in samples]
    answers = [_answers(sample) for sample in samples]
    # A sample in error has no score of any kind: it is missing, not wrong.
    metrics = dict.fromkeys(metric for rows in scored for metric, _, _ in rows)
    no_scores = [(metric, "", None) for metric in metrics]
    unscored = invalid = 0
    unanswered: Counter[str] = Counter()
    each = zip(samples, contents, scored, answers, strict=True)
    for sample, content, rows, said in each:
        name = str(sample.id)
        wrong = bool(rows)
        is_invalid = bool(sample.invalidation)
        invalid += is_invalid
        unscored += not rows
        for metric, part, raw in rows or no_scores:
            number = _convert(raw)
            if _is_unanswered(raw):
                number = 0.0 if options.missing_as == "wrong" else None
                unanswered[metric] += not is_invalid
            elif number is None:
                # Other metrics may be fine: an error only if this one is chosen.
                if (task, metric) not in builder.unscored:
                    message = _no_number(path, sample, metric, raw)
                    builder.unscored[task, metric] = message
            builder.add(
                subject=options.subject_name or model,
                item=ItemKey(task, name, content, part=part),
                response=None if is_invalid else number,
                benchmark=task,
                metric=metric,
                run=run,
                trial=sample.epoch or 1,
                length=_output_tokens(sample, model),
                answer=None if part else said.get(metric.partition("/")[0]),
            )
            wrong = wrong and number == 0
        _describe(sample, (task, name, content), wrong, builder.described)
    for what, count in (("without a score", unscored), ("marked invalid", invalid)):
        if count:
            note = missing_note(count, "sample", what, options)
            builder.notes.append(f"{path.name}: {note}")
    for metric, count in unanswered.items():
        builder.note(metric, f"{path.name}: {unanswered_note(count, options)}")


def _no_number(path: Path, sample: InspectSample, metric: str, raw: Any) -> str:
    """Where a score is text or an object, and what it may be."""
    scorer = next(x for x in sample.scores or {} if f"{metric}/".startswith(f"{x}/"))
    field = f"scores.{scorer}.value{metric[len(scorer) :].replace('/', '.')}"
    return (
        f"{path}: sample {sample.id!r:.80}, epoch {sample.epoch or 1}, field"
        f" {field!r:.200}: the score is {json.dumps(raw)[:40]}, not a number: score the"
        " logs with a scorer that returns a number, true or false, or C, I, P or N"
        " (`inspect score LOG --scorer NAME`)"
    )


def _describe(
    sample: InspectSample, place: Place, wrong: bool, described: Described
) -> None:
    """Keeps the id and the texts of a sample, and counts a wrong answer."""
    described.id(place, place[1])
    if not described.wanted:
        return
    if described.needs(place):
        targets = sample.target if isinstance(sample.target, list) else [sample.target]
        answer = " or ".join(filter(None, map(text_of, targets)))
        described.text(place, _plain(sample.input), answer)
    for score in (sample.scores or {}).values() if wrong else ():
        if isinstance(score, ScoreOf) and isinstance(score.answer, str):
            described.wrong(place, score.answer)
            return


def _plain(content: Any, depth: int = 0) -> str:
    """The input of a sample as text: it may be a list of messages with parts."""
    if depth > _DEEPEST:
        return ""
    if isinstance(content, list):
        return "\n\n".join(filter(None, (_plain(x, depth + 1) for x in content)))
    if isinstance(content, dict):
        text = _plain(content.get("text") or content.get("content"), depth + 1)
        return f"{content['role']}: {text}" if text and content.get("role") else text
    return content if isinstance(content, str) else ""


def _answers(sample: InspectSample) -> dict[str, str]:
    """The answers of a sample by scorer."""
    scores = sample.scores or {}
    answers = {k: v.answer for k, v in scores.items() if isinstance(v, ScoreOf)}
    return {k: text for k, text in answers.items() if isinstance(text, str)}


def _is_unanswered(value: Any) -> bool:
    """Whether a score is the mark of a missing answer."""
    return isinstance(value, str) and value.strip() == _NO_ANSWER


def _scores(sample: InspectSample, options: ReadOptions) -> Iterator[_Row]:
    """Yields all scores of a sample."""
    for scorer, score in (sample.scores or {}).items():
        value = score.value if isinstance(score, ScoreOf) else score
        yield from _flatten(scorer, value, options)


def _flatten(metric: str, value: Any, options: ReadOptions) -> Iterator[_Row]:
    """Yields the parts of a score that may be a mapping or a list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(f"{metric}/{key}", inner, options)
    elif isinstance(value, list) and value and options.parts == "items":
        for k, inner in enumerate(value, 1):
            yield metric, f"#{k}", inner
    else:
        yield metric, "", _mean(value, options) if isinstance(value, list) else value


def _mean(values: list[Any], options: ReadOptions) -> Any:
    """The mean of a list of scores; the list itself if not all are numbers."""
    if any(map(_is_unanswered, values)):
        if options.missing_as == "missing":
            return _NO_ANSWER  # The mean is missing, too.
        values = [0.0 if _is_unanswered(inner) else inner for inner in values]
    numbers = [_convert(inner) for inner in values]
    finite = [n for n in numbers if n is not None and not math.isnan(n)]
    return (
        sum(finite) / len(finite) if values and len(finite) == len(values) else values
    )


def _convert(value: Any) -> float | None:
    """Returns a score as a number, NaN where unscored, None if it is no number."""
    if value is None:
        return math.nan
    if isinstance(value, bool | float):
        return float(value)
    if not isinstance(value, int | str):
        return None
    text = str(value).strip()  # A whole number may be too large for a float.
    try:
        number = _VERDICTS.get(text, _WORDS.get(text.lower()))
        return float(text) if number is None else number
    except ValueError:
        return None


def _output_tokens(sample: InspectSample, model: str) -> float | None:
    """Tokens that the model wrote, thinking included."""
    usage = sample.model_usage or {}
    own = usage.get(model) or (next(iter(usage.values())) if len(usage) == 1 else None)
    return None if own is None else own.output_tokens
