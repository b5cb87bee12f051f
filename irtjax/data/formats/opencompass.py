"""Results of OpenCompass: ``results/MODEL/DATASET.json`` with details.

Details come in three shapes: today's list of examples with the verdicts of all runs, an
older mapping from positions to examples, and the mapping of an evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, repeated_keys
from irtjax.data.files import folders_of, read_bytes
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import load
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import are, counted, several

_TIME = re.compile(r"\d{8}_\d{6}$")
#: Scores, then details.
_START = re.compile(rb'\s*\{\s*("[^"]*"\s*:\s*[-+.\deE]+\s*,\s*)+"details"\s*:\s*[\[{]')
_VERDICTS = "correct", "is_correct", "cascade_correct"
# What OpenCompass writes where its evaluator gives no details.
_UNDECIDED = {"origin_prediction", "predictions", "references"}
_Verdict = bool | float | None


class _Example(Record):
    example_abbr: str | None = None
    correct: _Verdict | list[_Verdict] = None
    is_correct: _Verdict | list[_Verdict] = None
    cascade_correct: _Verdict | list[_Verdict] = None
    prompt: Any = None
    references: Any = None
    pred: Any = None
    prediction: Any = None
    predictions: Any = None
    answer: Any = None
    gold: Any = None

    def key(self) -> Any:
        """What was expected."""
        keys = (self.references, self.answer, self.gold)
        return next((x[0] if _is_one(x) else x for x in keys if x), "")

    def answers(self) -> list[Any]:
        """The answer of each run."""
        answers = next(
            (
                x
                for x in (self.pred, self.prediction, self.predictions)
                if x is not None
            ),
            None,
        )
        return answers if isinstance(answers, list) else [answers]

    def verdicts(self) -> list[_Verdict]:
        """The verdict of each run; none if the evaluator gave no verdict."""
        verdicts = next(
            (v for v in (getattr(self, name) for name in _VERDICTS) if v is not None),
            None,
        )
        return verdicts if isinstance(verdicts, list) else [verdicts]


def _is_one(value: Any) -> bool:
    """Whether a value is a list of one."""
    return isinstance(value, list) and len(value) == 1


class _Results(Record):
    cure: ClassVar[str] = "give the file as OpenCompass wrote it, or leave it out"

    # A mapping also has the mode, such as "type": "GEN".
    details: list[_Example] | dict[str, _Example | str | int | float | list[Any] | None]

    def examples(self, path: Path) -> Iterator[tuple[str, _Example]]:
        """The examples with their names, without that of the dataset."""
        dataset = path.name.removesuffix(".json")
        if isinstance(self.details, list):
            for k, example in enumerate(self.details):
                name = example.example_abbr or str(k)
                yield name.removeprefix(f"{dataset}_"), example
            return
        for name, example in self.details.items():
            if not isinstance(example, _Example) and name.isdecimal():
                field = f"field 'details.{name}'"
                raise ValueError(f"{path}: {field} is no object; {self.cure}")
            if isinstance(example, _Example):
                name = example.example_abbr or name
                yield name.removeprefix(f"{dataset}_"), example


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file has details; the reason for predictions, which have none."""
    details = fields.get("details")
    if isinstance(details, dict):
        details = [v for v in details.values() if isinstance(v, dict)]
    if isinstance(details, list):
        keys = {k for d in details[:100] if isinstance(d, dict) for k in d}
        if not keys & set(_VERDICTS) and _UNDECIDED <= keys:
            return (
                "holds details of OpenCompass without verdicts: the evaluator scored"
                " the whole dataset, not each example; leave the file out"
            )
        return bool(keys & {*_VERDICTS, "example_abbr"})
    first = fields.get("0")
    if isinstance(first, dict) and "prediction" in first and "origin_prompt" in first:
        return (
            "holds predictions of OpenCompass without verdicts; give the folder results"
            " next to predictions"
        )
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether damaged JSON begins with scores and details, or has results' place."""
    if head.strip():
        return _START.match(head) is not None
    return path.suffix == ".json" and "results" in folders_of(path)[-2:]


def subject_of(path: Path) -> str:
    """The model of a file, by its folder."""
    return folders_of(path)[-1]


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads results; the model is the folder, the benchmark the name of the file."""
    builder = RecordBuilder()
    builder.described = described = Described(wanted=options.texts)
    undecided = 0
    for path in paths:
        dataset = path.name.removesuffix(".json")
        folders = folders_of(path)
        run = next((part for part in reversed(folders) if _TIME.match(part)), "")
        builder.notes += repeated_keys(read_bytes(path), str(path))
        for name, example in load(path, _Results).examples(path):
            place = dataset, name, ""
            prompt, key = example.prompt, example.key()
            if described.needs(place) and (isinstance(prompt, str) or key):
                prompt = prompt if isinstance(prompt, str) else ""
                described.text(place, prompt, str(key))
            answers = example.answers()
            for trial, verdict in enumerate(example.verdicts()):
                undecided += verdict is None
                builder.add(
                    subject=options.subject_name or subject_of(path),
                    item=ItemKey(dataset, name),
                    response=None if verdict is None else float(verdict),
                    benchmark=dataset,
                    run=run,
                    trial=trial,
                    answer=answers[trial] if trial < len(answers) else None,
                )
    if len(builder) == 0:
        raise ValueError(
            f"{several(paths)}: no example has details; evaluate again with"
            " --dump-eval-details"
        )
    if undecided:
        builder.notes.append(
            f"{counted(undecided, 'example')} without a verdict {are(undecided)}"
            " missing"
        )
    return builder.finish(paths, options.join)
