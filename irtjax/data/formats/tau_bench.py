"""Results of tau-bench (a list of attempts) and of tau2-bench (``simulations``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from irtjax.data.decode import Count, Record, decode_lines
from irtjax.data.files import folders_of, read_head
from irtjax.data.item_texts import text_of
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import is_list, load, missing, missing_note, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import several

_NAME = re.compile(
    r"(?P<strategy>tool-calling|act|react|few-shot)-(?P<model>.+)"
    r"-(?P<temperature>[\d.]+)_range_([-\d]+_user-(?P<user>.+)-[a-z]+_\d+)?"
)
#: A list of attempts, or the description of a run of tau2-bench.
_START = re.compile(
    rb'\s*(\[\s*\{\s*"task_id"\s*:[^,{}]*,\s*"reward"\s*:'
    rb'|\{\s*("timestamp"\s*:[^,{}]*,\s*)?"info"\s*:\s*\{\s*"git_commit"\s*:)'
)
_DOMAIN = re.compile(r"(?<![a-z])(retail|airline|telecom)(?![a-z])")
#: The title of the policy that the agent gets first: tau-bench itself writes the domain
#: nowhere else.
_POLICY = re.compile(r"\b(retail|airline|telecom) agent policy\b", re.IGNORECASE)
_POLICY_BEGINS = 1000
# Ends of a simulation that tau2-bench itself does not count.
_NO_RESULT = "infrastructure_error", "context_window_exceeded"


def _at(value: Any, name: str) -> Any:
    """A field of what may be an object; None if it has none."""
    return value.get(name) if isinstance(value, dict) else None


class _Info(Record):
    error: str | None = None
    task: Any = None


class _Attempt(Record):
    cure: ClassVar[str] = "give the file as tau-bench wrote it, or leave it out"

    task_id: int | str
    reward: float | None
    trial: Count = 0
    info: _Info | None = None
    traj: Any = None

    def domain(self) -> str:
        """The domain by the policy at the start of the conversation, or ""."""
        first = self.traj[0] if isinstance(self.traj, list) and self.traj else None
        text = first.get("content") if isinstance(first, dict) else None
        if not isinstance(text, str):
            return ""
        match = _POLICY.search(text[:_POLICY_BEGINS])
        return match.group(1).lower() if match else ""

    def prompt(self) -> str:
        """What the simulated user is asked to do, or ""."""
        return text_of(_at(self.info and self.info.task, "instruction"))


class _Agent(Record):
    llm: str | None = None
    implementation: Any = None
    llm_args: Any = None


class _Environment(Record):
    domain_name: str | None = None


class _RunInfo(Record):
    agent_info: _Agent = msgspec.field(default_factory=_Agent)
    user_info: Any = None
    environment_info: _Environment = msgspec.field(default_factory=_Environment)
    retrieval_config: Any = None
    speech_complexity: Any = None

    def settings(self) -> dict[str, str]:
        """What a run may differ in from another of the same model."""
        own = self.agent_info.llm_args
        settings = {
            "user": _at(self.user_info, "llm"),
            "temperature": _at(own, "temperature"),
            "effort": _at(own, "reasoning_effort"),
            "retrieval": self.retrieval_config,
            "speech": self.speech_complexity,
        }
        plain = {k: v for k, v in settings.items() if isinstance(v, str | int | float)}
        agent = {"agent": text_of(self.agent_info.implementation)}
        return agent | {name: f"{name} {value}" for name, value in plain.items()}


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
        counts = [
            message.usage.completion_tokens
            for message in self.messages or ()
            if message.role == "assistant" and message.usage
        ]
        numbers = [count for count in counts if count is not None]
        return sum(numbers) if numbers and len(numbers) == len(counts) else None


class _Results(Record):
    cure: ClassVar[str] = "give the file as tau2-bench wrote it, or leave it out"

    info: _RunInfo
    tasks: Any = None
    simulations: list[_Simulation] = []
    simulation_index: list[_Simulation] | None = None

    def prompts(self) -> dict[str, str]:
        """What the simulated user of each task is asked to do."""
        instructions = {}
        for task in self.tasks if isinstance(self.tasks, list) else ():
            asked = _at(_at(task, "user_scenario"), "instructions")
            if isinstance(asked, dict):
                lines = [f"{k}: {v}" for k, v in asked.items() if v is not None]
                asked = "\n".join(lines)
            instructions[str(_at(task, "id"))] = text_of(asked)
        return instructions


class _Header(Record):
    cure: ClassVar[str] = _Results.cure

    info: _RunInfo


class _Row(NamedTuple):
    task: str
    trial: int
    score: float | None
    length: float | None


class _Run(NamedTuple):
    model: str
    domain: str
    settings: dict[str, str]
    rows: list[_Row]
    prompts: dict[str, str]  # By task.


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
    """Reads rewards; trials of a task, and runs in the same settings, are repeats."""
    runs = [_first_form(p) if is_list(p) else _second_form(p) for p in paths]
    builder = RecordBuilder()
    builder.described = described = Described(wanted=options.texts)
    failed = 0
    for run, filter_name in zip(runs, _filters(runs), strict=True):
        for task, prompt in run.prompts.items():
            if prompt and described.needs((run.domain, task, "")):
                described.text((run.domain, task, ""), prompt, "")
        for row in run.rows:
            failed += row.score is None
            builder.add(
                subject=options.subject_name or run.model,
                item=ItemKey(run.domain, row.task),
                response=missing(options) if row.score is None else row.score,
                benchmark=run.domain,
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


def _first_form(path: Path) -> _Run:
    """The run of a file of tau-bench."""
    attempts = decode_lines(path, _Attempt)
    model, domain, settings = _from_name(path)
    domain = next(filter(None, (one.domain() for one in attempts)), domain)
    prompts = {str(one.task_id): one.prompt() for one in attempts if one.prompt()}
    return _Run(model, domain, settings, list(_attempted(attempts)), prompts)


def _second_form(path: Path) -> _Run:
    """The run of a file of tau2-bench."""
    results = load(path, _Results)
    model, domain = _named(path, results.info)
    settings, rows = results.info.settings(), list(_simulated(results))
    return _Run(model, domain, settings, rows, results.prompts())


def _filters(runs: Sequence[_Run]) -> list[str]:
    """Names of the settings in which runs of some model on a domain differ."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in runs:
        groups.setdefault((run.model, run.domain), []).append(run.settings)
    names = dict.fromkeys(name for run in runs for name in run.settings)
    differing = [
        name
        for name in names
        if any(len({x.get(name, "") for x in own}) > 1 for own in groups.values())
    ]
    labels = [
        ", ".join(filter(None, (run.settings.get(name) for name in differing)))
        for run in runs
    ]
    models, domains = [run.model for run in runs], [run.domain for run in runs]
    return variants(models, domains, labels)


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


def _named(path: Path, info: _RunInfo) -> tuple[str, str]:
    """Subject and benchmark of a file."""
    model, domain, _ = _from_name(path)
    return info.agent_info.llm or model, info.environment_info.domain_name or domain


def _from_name(path: Path) -> tuple[str, str, dict[str, str]]:
    """Model, domain and settings as far as names of file and folders have them."""
    stem = path.name.removesuffix(".json")
    folders = folders_of(path)
    domains = _DOMAIN.findall("/".join([*folders[-3:], stem]).lower())
    domain = domains[-1] if domains else "tau_bench"
    # The name of a user model with a slash makes a folder of the first part.
    match = _NAME.match(stem) or _NAME.match("/".join([*folders[-1:], stem]))
    if not match:
        return stem.removesuffix(f"-{domain}"), domain, {}
    settings = {
        "agent": match.group("strategy"),
        "temperature": f"temperature {match.group('temperature')}",
        "user": f"user {match.group('user')}" if match.group("user") else "",
    }
    return match.group("model"), domain, settings
