"""Results of Terminal-Bench: of a run, or of a trial.

The harness writes ``RUN/results.json`` with all trials, next to ``run_metadata.json``,
and the same for each trial in its folder. Terminal-Bench 2 is run by Harbor, which
writes ``JOB/TRIAL/result.json``, with rewards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irtjax.data.files import folders_of
from irtjax.data.reading.logs import load
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import values
from irtjax.data.reading.records import Records
from irtjax.data.reading.tool import Tool

_RUN, _METADATA = "results.json", "run_metadata.json"


def _who(path: Path) -> tuple[str, str]:
    """Model and agent of a file: by its fields, or by the description of its run."""
    fields = load(path, dict[str, Any])
    agent = fields.get("agent_info")
    if isinstance(agent, dict):
        config, info = fields.get("config"), agent.get("model_info")
        fields_of_model = {"config": config, "info": info}
        names = (
            x
            for p in ("config.agent.model_name", "info.name")
            for x in values(fields_of_model, p)
        )
        model = next((str(x) for _, x in names if x), "")
        return model, str(agent.get("name") or "")
    for folder in path.absolute().parents[:3]:
        if (folder / _METADATA).is_file():
            metadata = load(folder / _METADATA, dict[str, Any])
            model, name = metadata.get("model_name"), metadata.get("agent_name")
            return str(model or ""), str(name or "")
    # The file of a trial is two folders below that of its run.
    return "", folders_of(path)[-3 if "trial_name" in fields else -1]


TOOL = Tool(
    name="Terminal-Bench",
    marks=(
        {"task_id", "trial_name", "is_resolved"},
        {"task_name", "trial_name", "verifier_result"},
    ),
    lists=("results",),
    common="^results?$",
    item=("task_id", "task_name"),
    scores=("is_resolved", "verifier_result.rewards.*"),
    usual=("is_resolved", "reward"),
    length=("total_output_tokens", "agent_result.n_output_tokens"),
    without=(
        (
            {"run_id", "agent_name", "accuracy"},
            "describes a run of Terminal-Bench; give the results.json next to it",
        ),
        (
            {"n_total_trials", "stats"},
            "holds the totals of a job of Harbor; give the result.json of its trials",
        ),
    ),
    start=r'\s*\{\s*"id"\s*:.*"(trial_name|task_id)"\s*:',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads results; several runs of a model are repeats."""
    folders = {path.parent for path in paths}
    # The file of a run has the trials whose own files are in folders below it.
    is_run = lambda path: path.name.removesuffix(".gz") == _RUN
    paths = [x for x in paths if not is_run(x) or folders.isdisjoint(x.parents[1:])]
    who = {path: _who(path) for path in paths}
    agents: dict[str, set[str]] = {}
    for model, agent in who.values():
        agents.setdefault(model, set()).add(agent)

    def subject_of(path: Path) -> str:
        model, agent = who[path]
        if not model:
            return agent
        return f"{model} ({agent})" if len(agents[model]) > 1 else model

    return dataclasses.replace(TOOL, subject_of=subject_of).read_files(paths, options)
