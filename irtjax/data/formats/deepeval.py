"""Test runs of deepeval: ``.latest_test_run.json``, or a file a run.

The files of ``DEEPEVAL_RESULTS_FOLDER`` have no ending. A test case has the verdict of
all its metrics, and the score of each with its threshold: of some, such as toxicity,
scores below the threshold pass. ``evaluate()`` returns the same with other
names, which people dump as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import number_of, values
from irtjax.data.reading.records import Records
from irtjax.data.reading.tool import Tool

TOOL = Tool(
    name="deepeval",
    marks=(
        {"testCases", "metricsScores"},
        {"testCases", "testFile"},
        {"testCases", "hyperparameters"},
        {"testCases", "testPassed"},
        {"name", "success", "metrics_data"},
        {"name", "success", "metricsData"},
    ),
    lists=(
        *("testCases", "conversationalTestCases", "test_results"),
        *("testRunData.testCases", "testRunData.conversationalTestCases"),
    ),
    subject=(
        *("^hyperparameters.model", "^hyperparameters.Model"),
        *("^testRunData.hyperparameters.model", "^identifier"),
    ),
    common=r"^(test_run_|\.?latest_test_run$|\.?temp_test_run_data$)",
    own_subject=True,
    item=("name",),
    content=("input", "expectedOutput", "expected_output", "scenario"),
    scores=("success", "metricsData[name].score", "metrics_data[name].score"),
    lower=dict.fromkeys(("Hallucination", "Bias", "Toxicity"), True),
    usual=("success",),
    failed=("metricsData[name].error", "metrics_data[name].error"),
    length=("outputTokenCount",),
    prompt=("input", "scenario"),
    answer=("expectedOutput", "expected_output"),
    prediction=("actualOutput", "actual_output"),
    start=r'\s*\{\s*"(testFile|testCases|testRunData)"|\.latest_test_run\.json',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads test runs; the verdicts show in which metrics lower is better."""
    records = TOOL.read_files(paths, options)
    lower: dict[str, set[bool]] = {}
    for path in paths:
        for case in TOOL.records_in(path):
            for name, metric in _metrics(case.record):
                score = number_of(metric.get("score"))
                threshold = number_of(metric.get("threshold"))
                passed = metric.get("success")
                if score is None or threshold is None or not isinstance(passed, bool):
                    continue
                if score != threshold:
                    lower.setdefault(name, set()).add((score < threshold) == passed)
    sure = {
        name: agreements for name, agreements in lower.items() if len(agreements) == 1
    }
    records.directions |= {
        ("", name): True in agreements for name, agreements in sure.items()
    }
    return records


def _metrics(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metrics of a test case by name."""
    for place in ("metricsData[name]", "metrics_data[name]"):
        yield from values(record, place)
