"""Results of tau-bench (a list of attempts) and of tau2-bench (``simulations``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from irtjax.data.decode import Count, Record, decode_lines
from irtjax.data.files import folders_of, read_head
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import is_list, load, missing, missing_note, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import several

_NAME = re.compile(
    r"(?P<strategy>tool-calling|act|react|few-shot)-(?P<model>.+)-[\d.]+_range_"
)
#: A list of attempts, or the description of a run of tau2-bench.
_START = re.compile(
    rb'\s*(\[\s*\{\s*"task_id"\s*:[^,{}]*,\s*"reward"\s*:'
    rb'|\{\s*("timestamp"\s*:[^,{}]*,\s*)?"info"\s*:\s*\{\s*"git_commit"\s*:)'
)
_DOMAIN = re.compile(r"(?<![a-z])(retail|airline|telecom)(?![a-z])")
# Ends of a simulation that tau2-bench itself does not count.
_NO_RESULT = "infrastructure_error", "context_window_exceeded"


class _Info(Record):
    error: str | None = None


class _Attempt(Record):
    cure: ClassVar[str] = "give the file as tau-bench wrote it, or leave it out"

    task_id: int | str
    reward: float | None
    trial: Count = 0
    info: _Info | None = None


class _Agent(Record):
    llm: str | None = None


class _Environment(Record):
    domain_name: str | None = None


class _RunInfo(Record):
    agent_info: _Agent = msgspec.field(default_factory=_Agent)
    environment_info: _Environment = msgspec.field(default_factory=_Environment)


class _Reward(Record):
    reward: float | None = None


class _Usage(Record):
    completion_tokens: float | None = None


class _Message(Record):
    role: str | None = None
    usage: _Usage | None = None


class _Simulation(Record):
    task_id: int | str
    trial: Count | None = None
    reward_info: _Reward | None = None
    reward: float | None = None  # In the index of a folder of simulations.
    termination_reason: str | None = None
    messages: list[_Message] | None = None

    def score(self) -> float | None:
        """The reward; None where there is none, or it does not count."""
        if self.termination_reason in _NO_RESULT:
            return None
        return self.reward_info.reward if self.reward_info else self.reward

    def tokens(self) -> float | None:
        """Tokens that the agent wrote, where the run logged them."""
        found = [
            message.usage.completion_tokens
            for message in self.messages or ()
            if message.role == "assistant" and message.usage
        ]
        known = [count for count in found if count is not None]
        return sum(known) if known and len(known) == len(found) else None


class _Results(Record):
    cure: ClassVar[str] = "give the file as tau2-bench wrote it, or leave it out"

    info: _RunInfo
    simulations: list[_Simulation] = []
    simulation_index: list[_Simulation] | None = None


class _Header(Record):
    cure: ClassVar[str] = _Results.cure

    info: _RunInfo


class _Row(NamedTuple):
    task: str
    trial: int
    score: float | None
    length: float | None


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a first record is an attempt, or an object has simulations."""
    if {"task_id", "reward", "traj"} <= fields.keys():
        return True
    if {"simulations", "info", "tasks"} <= fields.keys():
        return True
    if {"simulation_index", "info", "tasks"} <= fields.keys():
        return True
    if {"task_id", "reward_info", "termination_reason"} <= fields.keys():
        return "is one simulation of tau2-bench; give the results.json of its run"
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether damaged JSON begins with an attempt, or with what describes the run."""
    if head.strip():
        return _START.match(head) is not None
    named = _NAME.match(path.name) or _DOMAIN.search(path.name.lower())
    return path.suffix == ".json" and named is not None


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads rewards; trials of a task are repeats."""
    origins, rows = [], []
    for path in paths:
        if is_list(path):
            rows.append(list(_attempted(decode_lines(path, _Attempt))))
            origins.append(_from_name(path))
        else:
            results = load(path, _Results)
            rows.append(list(_simulated(results)))
            origins.append(_named(path, results.info))
    models, domains, strategies = zip(*origins, strict=True)
    filters = variants(models, domains, strategies)
    builder = RecordBuilder()
    failed = 0
    for (model, domain, _), filter_name, attempts in zip(
        origins, filters, rows, strict=True
    ):
        for row in attempts:
            failed += row.score is None
            builder.add(
                subject=options.subject_name or model,
                item=ItemKey(domain, row.task),
                response=missing(options) if row.score is None else row.score,
                benchmark=domain,
                filter=filter_name,
                trial=row.trial,
                length=row.length,
            )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: there are no attempts in it")
    if failed:
        what = "that ended in an error, without a reward,"
        builder.notes.append(missing_note(failed, "attempt", what, options))
    return builder.finish(paths, options.join)


def _attempted(attempts: Sequence[_Attempt]) -> Iterator[_Row]:
    """Rows of the first form of results."""
    for one in attempts:
        # The harness writes a reward of 0 where a call failed.
        is_failed = one.info is not None and one.info.error is not None
        score = None if is_failed else one.reward
        yield _Row(str(one.task_id), one.trial, score, None)


def _simulated(results: _Results) -> Iterator[_Row]:
    """Rows of the second form of results."""
    for one in results.simulations or results.simulation_index or ():
        yield _Row(str(one.task_id), one.trial or 0, one.score(), one.tokens())


def subject_of(path: Path) -> str:
    """The model of a file, by its name or by what it has of the run."""
    if is_list(path) or not read_head(path).strip():
        return _from_name(path)[0]
    return _named(path, load(path, _Header).info)[0]


def _named(path: Path, info: _RunInfo) -> tuple[str, str, str]:
    """Subject, benchmark and run of a file."""
    model, domain, _ = _from_name(path)
    domain = info.environment_info.domain_name or domain
    return info.agent_info.llm or model, domain, path.parent.name


def _from_name(path: Path) -> tuple[str, str, str]:
    """Model, domain and strategy as far as names of file and folders have them."""
    stem = path.name.removesuffix(".json")
    text = "/".join([*folders_of(path)[-3:], stem]).lower()
    domains = _DOMAIN.findall(text)
    domain = domains[-1] if domains else "tau_bench"
    found = _NAME.match(stem)
    if found:
        return found.group("model"), domain, found.group("strategy")
    return stem.removesuffix(f"-{domain}"), domain, ""
