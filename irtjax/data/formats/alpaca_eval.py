"""Annotations of AlpacaEval: which of two outputs a judge prefers.

``preference`` is 1 if the baseline (generator_1) wins, 2 if the model (generator_2)
does, 1.5 for a draw, which old files write as 0; weighted judges give values between.
The response is the preference less 1: the probability of a win of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, decode_lines
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import digest, missing_note, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import several

_USUAL = "weighted_alpaca_eval_gpt4_turbo", "alpaca_eval_gpt4"
_DRAW = 1.5


class _Annotation(Record):
    cure: ClassVar[str] = "give the file as AlpacaEval wrote it, or leave it out"

    instruction: str
    generator_1: str
    generator_2: str
    preference: float | None = None
    dataset: str | None = None
    annotator: str | None = None


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a first record is a judgement; the reason for outputs without one."""
    if {"instruction", "generator_1", "generator_2", "preference"} <= fields.keys():
        return True
    if {"instruction", "output", "generator"} <= fields.keys():
        return (
            "holds outputs that were not judged; give the annotations.json that"
            " alpaca_eval writes"
        )
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name and the fields of annotations."""
    has_fields = not head.strip() or b'"instruction"' in head
    return has_fields and path.name in ("annotations.json", "annotations.json.gz")


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads annotations; the judge is the metric, the part of the set the benchmark."""
    rows = [(path, decode_lines(path, _Annotation)) for path in paths]
    annotations = [row for _, judged in rows for row in judged]
    # Wins against two baselines are two measures.
    same = [""] * len(annotations)
    baselines = variants(same, same, [row.generator_1 for row in annotations])
    baseline = iter(baselines)
    builder = RecordBuilder()
    builder.described = described = Described(wanted=options.texts)
    failed = 0
    for path, judged in rows:
        builder.begin(path)
        for number, row in enumerate(judged, 1):
            score = _win(row.preference, f"{path}: record {number}")
            failed += score is None
            dataset = row.dataset or "alpaca_eval"
            content = digest(dataset, row.instruction)
            if described.needs((dataset, content[:8], content)):
                described.text((dataset, content[:8], content), row.instruction, "")
            builder.add(
                subject=options.subject_name or row.generator_2,
                item=ItemKey(dataset, content[:8], content),
                response=score,
                benchmark=dataset,
                metric=row.annotator or "preference",
                filter=next(baseline),
            )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: there are no annotations in it")
    if failed:
        builder.notes.append(missing_note(failed, "failed judgement", "", options))
    names = sorted({row.generator_1 for row in annotations})
    if len(names) == 1:
        builder.notes.append(
            f"a response is the judge's probability of a win against {names[0]}"
        )
    records = builder.finish(paths, options.join)
    records.usual_metrics = _USUAL
    return records


def _win(preference: float | None, place: str) -> float | None:
    """The share of a win, 0 to 1, of a preference from 1 to 2; None if missing."""
    if preference is None or preference != preference or preference == -1:
        return None
    preference = preference or _DRAW
    if not 1 <= preference <= 2:
        raise ValueError(
            f"{place} has the preference {preference:g}, which is not between 1 (the"
            " baseline wins) and 2 (the model wins)"
        )
    return preference - 1
