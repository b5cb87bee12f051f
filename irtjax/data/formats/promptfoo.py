"""Results of promptfoo, ``promptfoo eval --output results.json``, .jsonl or .csv.

A result is of one test, prompt and provider. The subject is the provider; where there
are several prompts, provider and prompt. Tests are the same item if their variables and
assertions are. A CSV file has a row for each test, and for each provider and prompt a
column of text that begins with the verdict, or columns with verdict and score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from irtjax.data.files import read_head
from irtjax.data.item_texts import text_of
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import (
    PlacedRecord,
    listed,
    objects,
    table_rows,
    whole_of,
)
from irtjax.data.reading.records import Records
from irtjax.data.reading.tool import Tool

#: Columns of an output after its text, in newer CSV files.
_PARTS = ["Status", "Score", "Named Scores"]
_OUTPUT = re.compile(r"\[([^\]]+)\] ?(.*)", re.DOTALL)
_CELL = re.compile(r"\[(PASS|FAIL|ERROR)\]\s*(?:\(([-\d.]+)[^)]*\))?")
#: Where a file has its results; `evaluate` of Node returns the inner part alone.
_LISTS = "results.results", "results.outputs", "results", "outputs"
#: Characters of the name of a prompt.
_LONG = 60
#: A variable that promptfoo adds.
_SESSION = "sessionId"
#: `failureReason` of a call that failed, not of an answer that was wrong.
_FAILED = 2
_SUMMARY = "holds a summary of promptfoo without results; write --output results.jsonl"
_YAML = (
    "holds results of promptfoo as YAML; write them as JSON (promptfoo export eval ID"
    " --output results.json)"
)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file has results: all of them, or one a line."""
    if {"promptIdx", "testIdx"} <= fields.keys():
        return True
    summary = _summary(fields)
    if not isinstance(summary.get("stats"), dict):
        return False
    if any(isinstance(summary.get(x), list) for x in ("results", "outputs")):
        return True
    return _SUMMARY if {"table", "prompts"} & summary.keys() else False


def recognise_header(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether the columns and the first row of a CSV file are those of outputs."""
    pairs = zip(names, cells, strict=False)
    return any(names[k + 1 : k + 4] == _PARTS for k in range(len(names))) or any(
        _OUTPUT.fullmatch(name) and _CELL.match(cell) for name, cell in pairs
    )


def recognise_yaml(head: bytes) -> str:
    """The reason why results in YAML are not read."""
    return _YAML if re.match(rb"evalId:.*\nresults:", head) else ""


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file begins as results."""
    return re.match(rb'\s*\{\s*"(evalId|promptIdx)"\s*:', head) is not None


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads results; tests of equal variables and assertions are repeats."""
    files = {path: list(_rows(path)) for path in paths}
    for rows in files.values():
        # Some variables, such as the id of a session, differ between providers.
        first: dict[str, Any] = {}
        for _, row, _ in rows:
            row["asked"] = first.setdefault(row["number"], row["asked"])
    prompts: dict[str, dict[str, None]] = {}
    for row in (row for rows in files.values() for _, row, _ in rows):
        prompts.setdefault(row["provider"], {})[row["prompt"]] = None
    several = any(len(texts) > 1 for texts in prompts.values())
    short = _short([*dict.fromkeys(x for texts in prompts.values() for x in texts)])
    for _, row, _ in (row for rows in files.values() for row in rows):
        label = f"{row['provider']}: {short[row['prompt']]}"
        row["subject"] = label if several else row["provider"]
    tool = Tool(
        name="promptfoo",
        marks=(),
        rows=lambda path: files[path],
        subject=("subject",),
        item=("test",),
        content=("asked",),
        repeats=True,
        scores=("scores.success", "scores.score", "named.*"),
        usual=("success",),
        higher=True,
        failed=("failed",),
        length=("length",),
        prompt=("vars",),
        prediction=("output",),
        note="a subject is a provider with a prompt" * several,
    )
    return tool.read_files(paths, options)


def _short(prompts: list[str]) -> dict[str, str]:
    """Names of prompts, which may be long texts; equal ones are numbered."""
    names: dict[str, str] = {}
    for number, prompt in enumerate(prompts, 1):
        name = prompt if len(prompt) <= _LONG else f"{prompt[:_LONG]}..."
        taken = name in names.values()
        names[prompt] = f"{name} ({number})" if taken else name
    return names


def _rows(path: Path) -> Iterator[PlacedRecord]:
    """The results of a file in the form that `read_files` declares."""
    start = read_head(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start not in (b"{", b"["):
        yield from _of_csv(path)
        return
    whole = whole_of(path, _LISTS)
    records = listed(path, _LISTS, whole) if whole else objects(path)
    for place, record, _ in records:
        yield PlacedRecord(place, _result(record, place))


def _summary(fields: dict[str, Any]) -> dict[str, Any]:
    """The part of a file with the results; `evaluate` of Node returns it alone."""
    results = fields.get("results")
    if isinstance(results, dict):
        return results
    return fields if {"timestamp", "stats"} & fields.keys() else {}


def _result(result: dict[str, Any], place: str) -> dict[str, Any]:
    """A result of JSON in the form that `read_files` declares."""
    inner = lambda name: x if isinstance(x := result.get(name), dict) else {}
    provider, prompt, test = inner("provider"), inner("prompt"), inner("testCase")
    name = provider.get("label") or provider.get("id") or result.get("provider")
    vars = test.get("vars") or result.get("vars")
    if isinstance(vars, dict):
        vars = {k: x for k, x in vars.items() if k != _SESSION and k[:1] != "_"}
    usage = inner("response").get("tokenUsage")
    reason = result.get("failureReason")
    failed = reason == _FAILED
    if reason is None:  # Of older versions: an error, and nothing that was graded.
        failed = bool(result.get("error")) and not result.get("gradingResult")
    asserted = test.get("assert") or test.get("description") or ""
    return {
        "provider": text_of(name) or "provider",
        "prompt": text_of(prompt.get("label") or prompt.get("display")),
        "test": text_of(test.get("description") or result.get("testIdx")),
        "number": text_of(result.get("testIdx", place)),
        "asked": text_of([vars, asserted] if asserted else vars),
        "vars": vars,
        "scores": {"success": result.get("success"), "score": result.get("score")},
        "named": inner("namedScores"),
        "failed": failed,
        "output": inner("response").get("output", result.get("output")),
        "length": usage.get("completion") if isinstance(usage, dict) else None,
    }


def _is_output(name: str, k: int, rows: Sequence[tuple[str, list[str]]]) -> bool:
    """Whether a column is one of outputs: its name has the provider in brackets."""
    if not _OUTPUT.fullmatch(name):
        return False
    return any(_CELL.match(cells[k].strip()) for _, cells in rows)


def _of_csv(path: Path) -> Iterator[PlacedRecord]:
    """The results of a CSV file."""
    header, rows = table_rows(path)
    outputs = [
        k
        for k, name in enumerate(header)
        if header[k + 1 : k + 3] == _PARTS[:2] or _is_output(name, k, rows)
    ]
    if not outputs:
        raise ValueError(f"{path}: no column has outputs; give the file as exported")
    first = outputs[0]
    for number, (place, cells) in enumerate(rows):
        asked = dict(zip(header[:first], cells[:first], strict=True))
        for k in outputs:
            named = _OUTPUT.fullmatch(header[k])
            verdict, score = _verdict(header, cells, k, place)
            if verdict is None:
                continue
            yield PlacedRecord(
                place,
                {
                    "provider": named[1] if named else header[k],
                    "prompt": named[2] if named else "",
                    "test": asked.get("Description") or str(number),
                    "number": str(number),
                    "asked": text_of(asked),
                    "vars": asked,
                    "scores": {"success": verdict == "PASS", "score": score},
                    "named": {},
                    "failed": verdict == "ERROR",
                },
            )


def _verdict(
    header: list[str], cells: list[str], k: int, place: str
) -> tuple[str | None, str | None]:
    """Verdict and score of an output; None where a test has none."""
    if header[k + 1 : k + 3] == _PARTS[:2]:
        verdict, score = cells[k + 1].strip().upper(), cells[k + 2] or None
        return verdict or None, score
    if not cells[k].strip():
        return None, None
    match = _CELL.match(cells[k].strip())
    if match is None:
        raise ValueError(
            f"{place}, column {header[k]!r:.80} begins with no verdict ([PASS], [FAIL]"
            " or [ERROR]); give the file as promptfoo wrote it"
        )
    return match[1], match[2]
