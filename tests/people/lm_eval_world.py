"""The real lm-evaluation-harness, with the models and tasks of `world`."""

import functools
import os
from collections import Counter
from pathlib import Path

from tests.people import world

HEAD = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
metadata:
  version: 1.0
"""
#: As ARC and MMLU, as GSM8K, and as GSM8K with self-consistency.
TASKS = {
    "mcq_sim": """\
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{choices.index(answer)}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
""",
    "math_sim": """\
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  until: ["Question:"]
filter_list:
  - name: "strict-match"
    filter:
      - function: "regex"
        regex_pattern: "#### ([0-9]+)"
      - function: "take_first"
  - name: "flexible-extract"
    filter:
      - function: "regex"
        group_select: -1
        regex_pattern: "([0-9]+)"
      - function: "take_first"
""",
    "vote_sim": """\
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
repeats: 3
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  until: ["Question:"]
  do_sample: true
  temperature: 0.2
filter_list:
  - name: "score-first"
    filter:
      - function: "regex"
        regex_pattern: "#### ([0-9]+)"
      - function: "take_first"
  - name: "maj@3"
    filter:
      - function: "regex"
        regex_pattern: "#### ([0-9]+)"
      - function: "majority_vote"
      - function: "take_first"
""",
}


@functools.cache
def register() -> None:
    """Give the harness one more model."""
    from lm_eval.api.registry import register_model
    from lm_eval.models.dummy import DummyLM

    @register_model("simulated")
    class Simulated(DummyLM):
        def __init__(self, model: str) -> None:
            super().__init__()
            self.name = model
            self.asked = Counter()

        @classmethod
        def create_from_arg_string(cls, arg_string, additional_config=None):
            return cls(**dict(part.split("=", 1) for part in arg_string.split(",")))

        @classmethod
        def create_from_arg_obj(cls, arg_dict, additional_config=None):
            return cls(**arg_dict)

        def _question(self, context: str) -> world.Question:
            return world.questions()[context.splitlines()[0].removeprefix("Question: ")]

        def loglikelihood(self, requests, disable_tqdm=False):
            found = []
            for request in requests:
                context, choice = request.args
                given = world.answer(self.name, self._question(context))
                found.append((-1.0 if choice.strip() == given else -3.0, False))
            return found

        def generate_until(self, requests, disable_tqdm=False):
            found = []
            for request in requests:
                context = request.args[0]
                given = world.answer(
                    self.name, self._question(context), self.asked[context]
                )
                self.asked[context] += 1
                found.append(f"We count. #### {given}")
            return found


def write_tasks(folder: Path) -> Path:
    """Task files and their questions."""
    # Nothing is loaded from another host.
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    world.write_questions(folder)
    for name, text in TASKS.items():
        head = HEAD.format(name=name, data=folder / f"{name}.jsonl")
        (folder / f"{name}.yaml").write_text(head + text)
    return folder


def evaluate(tasks: Path, folder: Path, model: str, samples=None, names=tuple(TASKS)):
    """What `lm_eval --log_samples --output_path FOLDER` does."""
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    register()
    tracker = EvaluationTracker(output_path=str(folder))
    found = lm_eval.simple_evaluate(
        model="simulated",
        model_args=f"model={model}",
        tasks=list(names if samples is None else samples),
        samples=samples,
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        evaluation_tracker=tracker,
        bootstrap_iters=10,
    )
    assert found is not None
    logged = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=logged)
    for name in logged:
        tracker.save_results_samples(task_name=name, samples=logged[name])
    return found
