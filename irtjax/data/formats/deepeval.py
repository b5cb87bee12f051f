"""Test runs of deepeval: ``.latest_test_run.json``, or a file a run.

The files of ``DEEPEVAL_RESULTS_FOLDER`` have no ending. A test case has the verdict of
all its metrics, and the score of each. ``evaluate()`` returns the same with other
names, which people dump as JSON.
"""

from __future__ import annotations

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
    start=r'\s*\{\s*"(testFile|testCases|testRunData)"|\.latest_test_run\.json',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
