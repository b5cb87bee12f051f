"""Readers of the logs of evaluation tools, one module for each format.

A module has ``read_files(paths, options)``, and recognises its own files:
``recognise(fields, name)`` by the first JSON object of a file, and
``recognise_columns(names, name)`` by the columns of a Parquet file. They return True,
or the reason why a file of this tool holds no responses, or False.
``recognise_start(head, path)`` is for files that are damaged or empty, by their first
bytes and their names: reading such a file is then refused, where without it the
responses in it would be missing unnoticed. ``recognise_header(names, cells)`` is for
CSV files, by the names of their columns and the first row, and ``recognise_yaml(head)``
for YAML. ``SIDE_FILES`` is a pattern of the names of files with totals or settings of
the runs, which it reads with the logs.

Tables of the Item Response Warehouse are long tables of CSV or Parquet: `irw` has the
names of their columns, and no reader of its own.
"""

import re

#: The modules by name, with what they read.
LOGS = {
    "lm_eval": "lm-evaluation-harness sample logs (--log_samples)",
    "inspect": "Inspect logs (.eval and .json)",
    "every_eval_ever": "Every Eval Ever instance files (*_samples.jsonl)",
    "helm": "HELM runs (per_instance_stats.json or display_predictions.json)",
    "lighteval": "lighteval and Open LLM Leaderboard details (.parquet)",
    "opencompass": "OpenCompass results with details",
    "evalplus": "EvalPlus and BigCodeBench *eval_results.json",
    "livecodebench": "LiveCodeBench *_eval_all.json",
    "terminal_bench": "Terminal-Bench results.json, and those of Harbor",
    "swe_bench": "SWE-bench reports",
    "tau_bench": "tau-bench and tau2-bench results",
    "alpaca_eval": "AlpacaEval annotations.json",
    "measurement_db": "the AI Measurement Data Bank (responses.parquet)",
    "deepeval": "deepeval test runs",
    "evalscope": "evalscope reviews",
    "mteb": "MTEB results of tasks",
    "braintrust": "Braintrust experiments",
    "wildbench": "WildBench scores",
    "langfuse": "Langfuse scores (CSV or JSON)",
    "promptfoo": "promptfoo results (JSON, JSON lines or CSV)",
    "mlflow": "MLflow eval_results_table.json",
    "aider": "Aider's .aider.results.json",
    "arena_hard": "Arena-Hard judgments",
    "nemo_skills": "NeMo-Skills output*.jsonl",
    "py_irt": "py-irt .jsonlines",
    "efficient_lm_eval": "efficient-lm-eval (LEGO-IRT) metrics (JSON lines)",
}
#: Modules that recognise files which irtjax does not read.
OTHERS = ("arena", "openai_evals", "totals")
#: Formats of CSV files, and a column without which a file is not of the format, so that
#: other tables do not load its module.
HEADERS = {
    "langfuse": re.compile("traceId"),
    "promptfoo": re.compile(r"Status|\[[^\]]+\].*", re.DOTALL),
    "livecodebench": re.compile("Pass@1"),
}
#: Those of them of which options may name the columns.
TABLES = ("langfuse",)
#: Names of files that are read in folders, although they are hidden.
HIDDEN = (".aider.results.json", ".latest_test_run.json")
