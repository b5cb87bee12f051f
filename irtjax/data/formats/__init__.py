"""Readers of the logs of evaluation tools, one module for each format.

A module has ``read_files(paths, options)``, and recognises its own files:
``recognise(fields, name)`` by the first JSON object of a file, and
``recognise_columns(names, name)`` by the columns of a Parquet file. They return True,
or the reason why a file of this tool holds no responses, or False.
``recognise_start(head, path)`` is for files that are damaged or empty, by their first
bytes and their names: reading such a file is then refused, where without it the
responses in it would be missing unnoticed.

Tables of the Item Response Warehouse are long tables of CSV or Parquet: `irw` has the
names of their columns, and no reader of its own.
"""

#: The modules by name, with what they read.
LOGS = {
    "lm_eval": "lm-evaluation-harness sample logs (--log_samples)",
    "inspect": "Inspect logs (.eval and .json)",
    "every_eval_ever": "Every Eval Ever instance files (*_samples.jsonl)",
    "helm": "HELM runs (per_instance_stats.json or display_predictions.json)",
    "lighteval": "lighteval and Open LLM Leaderboard details (.parquet)",
    "opencompass": "OpenCompass results with details",
    "evalplus": "EvalPlus *eval_results.json",
    "livecodebench": "LiveCodeBench *_eval_all.json",
    "swe_bench": "SWE-bench reports",
    "tau_bench": "tau-bench and tau2-bench results",
    "alpaca_eval": "AlpacaEval annotations.json",
    "measurement_db": "the AI Measurement Data Bank (responses.parquet)",
    "py_irt": "py-irt .jsonlines",
}
#: Modules that recognise files which irtjax does not read.
OTHERS = ("arena", "promptfoo", "openai_evals")
