"""Results of MTEB: ``results/MODEL/REVISION/TASK.json``.

A task has a `main_score` for each split, and in it for each subset, mostly a language.
The item is the task. Where all models have the same subsets of a task, the response is
the mean of them; else every subset is an item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from irtjax.data.decode import decode
from irtjax.data.files import folders_of, read_bytes
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import load
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import number_of
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import counted, several

_REVISION = re.compile(r"[0-9a-f]{40}|no_revision_available|external|\d+")
_SPLITS = "test", "validation", "dev", "train"
_META = "model_meta.json"
#: By split, scores by subset.
_Scores = dict[str, dict[str, dict[str, float]]]


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file has the scores of a task; the reason for one of a model."""
    if "mteb_version" in fields and {"task_name", "mteb_dataset_name"} & fields.keys():
        return True
    if {"name", "revision", "n_parameters", "similarity_fn_name"} <= fields.keys():
        return "describes a model of MTEB; give the files of tasks next to it"
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file begins as the scores of a task."""
    return re.match(rb'\s*\{\s*"dataset_(revision|version)"', head) is not None


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads the scores of tasks; splits are filters."""
    task_files = [(path, *_task(path)) for path in paths]
    models = [options.subject_name or subject_of(path) for path in paths]
    subsets: dict[tuple[str, str], dict[str, set[str]]] = {}
    for (_, task, splits), model in zip(task_files, models, strict=True):
        for split, scores in splits.items():
            subsets.setdefault((task, split), {}).setdefault(model, set()).update(
                scores
            )
    differ = {
        place for place, x in subsets.items() if len({*map(frozenset, x.values())}) > 1
    }
    builder = RecordBuilder()
    averaged = 0
    for (path, task, splits), model in zip(task_files, models, strict=True):
        builder.begin(path)
        for split, scores in splits.items():
            parts = scores
            if (
                options.parts == "mean"
                and (task, split) not in differ
                and len(scores) > 1
            ):
                averaged += 1
                parts = {"": _means(list(scores.values()))}
            for subset, metrics in parts.items():
                name = task if subset in ("", "default") else f"{task}/{subset}"
                for metric, score in metrics.items():
                    builder.add(
                        subject=model,
                        item=ItemKey("", name),
                        response=score,
                        benchmark="",
                        metric=metric,
                        filter=split,
                    )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no task has a score")
    if averaged:
        builder.notes.append(
            "the score of a task is the mean of its subsets (parts='items' makes each"
            " an item)"
        )
    if differ and options.parts == "mean":
        tasks = counted(len({task for task, _ in differ}), "task")
        builder.notes.append(
            f"models have different subsets of {tasks}, so that each subset is an item"
        )
    records = builder.finish(paths, options.join)
    records.usual_metrics, records.usual_filters = ("main_score",), _SPLITS
    return records


def subject_of(path: Path) -> str:
    """The model: by its description next to the file, or by the folders."""
    meta = path.with_name(_META)
    if meta.is_file():
        name = load(meta, dict[str, Any]).get("name")
        if isinstance(name, str) and name:
            return name
    folders = folders_of(path)
    is_model = "__" in folders[-1] or not (
        _REVISION.fullmatch(folders[-1]) or "__" in folders[-2]
    )
    return folders[-1 if is_model else -2].replace("__", "/", 1)


def _task(path: Path) -> tuple[str, _Scores]:
    """The name of a task and its scores."""
    fields = decode(read_bytes(path), dict[str, Any], str(path))
    name = fields.get("task_name") or fields.get("mteb_dataset_name")
    # Up to 1.10 splits were fields of the file, and subsets of a split.
    splits = fields.get("scores", fields)
    scores: _Scores = {}
    for split, of_split in splits.items() if isinstance(splits, dict) else ():
        subsets = dict(_subsets(of_split))
        if subsets:
            scores[split] = subsets
    return str(name), scores


def _subsets(of_split: Any) -> Iterator[tuple[str, dict[str, float]]]:
    """The scores of the subsets of a split."""
    if isinstance(of_split, list):
        parts = [(x.get("hf_subset", ""), x) for x in of_split if isinstance(x, dict)]
    elif isinstance(of_split, dict):
        inner = [x for x in of_split.items() if isinstance(x[1], dict)]
        parts = inner if "main_score" not in of_split else [("", of_split)]
    else:
        return
    for name, scores in parts:
        values = ((metric, number_of(x)) for metric, x in scores.items())
        numbers = {metric: x for metric, x in values if x is not None}
        if "main_score" in numbers:
            yield str(name), numbers


def _means(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means of the metrics that all parts have."""
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: sum(x[name] for x in parts) / len(parts) for name in shared}
