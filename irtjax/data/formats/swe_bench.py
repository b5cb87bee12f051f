"""Reports of SWE-bench.

Four layouts: the report of a run, ``MODEL.RUN.json`` (also of sb-cli); the report of
one task, ``logs/run_evaluation/RUN/MODEL/TASK/report.json``; the results of the public
leaderboard, ``evaluation/SPLIT/SYSTEM/results/results.json``; and what its page shows
of single tasks, by model and task (``info_for_leaderboard.json``).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, repeated_keys
from irtjax.data.files import folders_of, read_bytes
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import load, missing, missing_note, natural
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import counted, several

_CLI = re.compile(r"(?P<subset>swe-bench[\w-]*?)__(dev|test)__(?P<run>.+)$", re.I)
#: A report of a run, of a task, or of the leaderboard.
_START = re.compile(
    rb'\s*\{\s*("(total|submitted)_instances"\s*:|"(no_generation|no_logs)"\s*:\s*\['
    rb'|"[^"]+"\s*:\s*\{\s*"patch_)'
)
#: Responses of one run by task, None where the evaluation failed.
_Scores = dict[str, float | None]


class _RunReport(Record):
    cure: ClassVar[str] = "give the file as SWE-bench wrote it, or leave it out"

    resolved_ids: list[str]
    unresolved_ids: list[str] | None = None
    submitted_ids: list[str] = []
    completed_ids: list[str] = []
    empty_patch_ids: list[str] = []
    error_ids: list[str] = []
    incomplete_ids: list[str] = []
    pending_ids: list[str] = []
    failed_ids: list[str] = []
    #: Of those that are unresolved or in error, where the machine was at fault.
    infra_failure_ids: list[str] = []

    def scores(self) -> _Scores:
        """Tasks that were submitted; a task that was not is absent."""
        failed = {*self.error_ids, *self.pending_ids, *self.failed_ids}
        failed.update(self.infra_failure_ids)
        wrong = self.unresolved_ids
        if wrong is None:
            wrong = self.completed_ids or self.submitted_ids
        out: _Scores = dict.fromkeys([*wrong, *self.empty_patch_ids], 0.0)
        out |= dict.fromkeys(failed)
        return out | dict.fromkeys(self.resolved_ids, 1.0)


class _TaskReport(Record):
    cure: ClassVar[str] = "give the file as SWE-bench wrote it, or leave it out"

    resolved: bool | None = None
    infra_failure: bool | None = None

    def score(self) -> float | None:
        """1 or 0; None where the machine, not the model, failed."""
        if self.resolved is None or (self.infra_failure and not self.resolved):
            return None
        return float(self.resolved)


class _Board(Record):
    cure: ClassVar[str] = "give the file as SWE-bench wrote it, or leave it out"

    resolved: list[str]
    no_generation: list[str] = []
    no_logs: list[str] = []


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether an object is one of the four kinds of reports."""
    if "resolved_ids" in fields:
        is_list = isinstance(fields["resolved_ids"], list)
        return is_list or "submitted_ids" in fields
    if isinstance(fields.get("resolved"), list):
        return bool({"no_generation", "no_logs", "applied"} & fields.keys())
    return _is_task(fields) or _is_info(fields)


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether damaged JSON begins as a report, or has the place of one."""
    places = {"report.json": "run_evaluation", "results.json": "evaluation"}
    if places.get(path.name, "") in folders_of(path)[-4:]:
        return True
    if head.strip():
        return _START.match(head) is not None
    return re.fullmatch(r"[^.]+__.+\..+\.json", path.name) is not None


def _is_task(fields: dict[str, Any]) -> bool:
    """Whether fields are reports by task."""
    report = next(iter(fields.values()), None)
    return isinstance(report, dict) and {"resolved", "patch_exists"} <= report.keys()


def _is_info(fields: dict[str, Any]) -> bool:
    """Whether fields are outcomes by model and task, with what they cost."""
    tasks = next(iter(fields.values()), None)
    if not isinstance(tasks, dict) or not tasks:
        return False
    task, first = next(iter(tasks.items()))
    costs = {"cost", "api_calls", "instance_cost"}
    return (
        isinstance(first, dict)
        and "resolved" in first
        and (bool(costs & first.keys()) or "__" in task)
    )


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads reports; several runs of a model are repeats."""
    runs: dict[tuple[str, str], dict[str, _Scores]] = {}
    boards: dict[str, list[tuple[Path, str, dict[str, Any]]]] = {}
    tasks: list[tuple[Path, dict[str, Any]]] = []
    whole: list[Path] = []
    for path in paths:
        fields = load(path, dict[str, Any])
        if "resolved_ids" in fields:
            whole.append(path)
        elif _is_task(fields):
            tasks.append((path, fields))
        elif _is_info(fields):
            for model, by_task in load(path, dict[str, dict[str, _TaskReport]]).items():
                scores = {task: report.score() for task, report in by_task.items()}
                _add_run(runs.setdefault(("swe_bench", model), {}), path.stem, scores)
        else:
            split, system = _place(path)
            boards.setdefault(split, []).append((path, system, fields))
    named = {f"{model}.{run}": (model, run) for model, run in map(_folders, tasks)}
    for path in whole:
        benchmark, model, run = _origin(path, named)
        scores = load(path, _RunReport).scores()
        _add_run(runs.setdefault((benchmark, model), {}), run, scores)
    _add_tasks(tasks, runs)
    notes = _add_boards(boards, runs)
    for path, _ in tasks:
        notes += repeated_keys(read_bytes(path), str(path))
    builder = RecordBuilder()
    builder.notes += notes
    failed: Counter[str] = Counter()
    for (benchmark, model), by_run in runs.items():
        for trial, run in enumerate(sorted(by_run, key=natural)):
            for task, score in sorted(by_run[run].items()):
                failed[benchmark] += score is None
                builder.add(
                    subject=options.subject_name or model,
                    item=ItemKey(benchmark, task),
                    response=missing(options) if score is None else score,
                    benchmark=benchmark,
                    trial=trial,
                )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no task was submitted")
    if failed.total():
        what = "whose evaluation ended in an error"
        builder.notes.append(missing_note(failed.total(), "task", what, options))
    return builder.finish(paths, options.join)


def _add_run(by_run: dict[str, _Scores], run: str, scores: _Scores) -> None:
    """Adds scores; reports of one name on other tasks are parts of one run."""
    names = itertools.chain([run], (f"{run} {k}" for k in itertools.count(2)))
    for name in names:
        run_scores = by_run.setdefault(name, {})
        if all(run_scores.get(task, score) == score for task, score in scores.items()):
            run_scores.update(scores)
            return


def _origin(path: Path, named: dict[str, tuple[str, str]]) -> tuple[str, str, str]:
    """Benchmark, model and run from the name of a report.

    Both may have dots; the folders of tasks have them one by one.
    """
    stem = path.name.removesuffix(".json")
    match = _CLI.match(stem)
    if match:
        return match.group("subset"), match.group("run"), ""
    last = stem.rpartition(".")
    model, run = named.get(stem, (last[0], last[2]) if last[0] else (stem, ""))
    return "swe_bench", model.replace("__", "/", 1), run


def _place(path: Path) -> tuple[str, str]:
    """Split and system of a file of the leaderboard."""
    folders = folders_of(path)
    if folders[-1] == "results":
        folders.pop()
    if len(folders) > 2 and folders[-3] == "evaluation":
        return f"swe_bench_{folders[-2]}", folders[-1]
    return "swe_bench", folders[-1]


def _folders(task: tuple[Path, Any]) -> tuple[str, str]:
    """Model and run by the folders of the report of a task."""
    folders = folders_of(task[0])
    return (folders[-2], folders[-3]) if len(folders) > 3 else ("", "")


def _add_tasks(
    tasks: Sequence[tuple[Path, dict[str, Any]]],
    runs: dict[tuple[str, str], dict[str, _Scores]],
) -> None:
    """Adds reports of single tasks, where the report of their run is not there."""
    reported = {key: set(by_run) for key, by_run in runs.items()}
    for path, fields in tasks:
        model, run = _folders((path, fields))
        key = "swe_bench", model.replace("__", "/", 1)
        if run in reported.get(key, ()):
            continue
        report = load(path, dict[str, _TaskReport])
        scores = runs.setdefault(key, {}).setdefault(run, {})
        for task in fields:
            scores[task] = report[task].score()


def _add_boards(
    boards: dict[str, list[tuple[Path, str, dict[str, Any]]]],
    runs: dict[tuple[str, str], dict[str, _Scores]],
) -> list[str]:
    """Adds results of the leaderboard, which name resolved tasks only."""
    notes = []
    for split, entries in boards.items():
        resolved = {
            system: set(load(path, _Board).resolved) for path, system, _ in entries
        }
        # Lists of other outcomes name tasks too.
        lists = [v for _, _, fields in entries for v in fields.values()]
        others = {t for v in lists if isinstance(v, list) for t in v if type(t) is str}
        tasks = sorted(others.union(*resolved.values()))
        for system, solved in resolved.items():
            scores: _Scores = {task: float(task in solved) for task in tasks}
            runs.setdefault((split, system), {})[""] = scores
        notes.append(
            f"{split}: results.json lists resolved tasks only, so that each of the"
            f" {counted(len(tasks), 'task')} that any of these files names counts as"
            " unresolved"
            " where it is not listed; tasks that no file names are absent"
        )
    return notes
