"""The real lm-evaluation-harness with a toy model: a script, and tasks for it.

`python toy_lm_eval.py --model toy --model_args model=org/x,ability=0.5 ...` is
`lm_eval` with one more model, which answers a question right where a fixed draw for
the pair of model and question is below the chance of its ability.
"""

import functools
import hashlib
import json
import math
import sys
from pathlib import Path

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["yes", "no"]
doc_to_target: gold
metric_list:
  - metric: acc
metadata:
  version: 3.0
"""


def write_tasks(folder: Path, sizes: dict[str, int]) -> Path:
    """Task files and their questions, whose difficulty is written in them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in sizes.items():
        data = folder / f"{name}.jsonl"
        rows = [
            {
                "question": f"{name} {k}: difficulty {4 * k / size - 2:.3f}",
                "gold": k % 2,
            }
            for k in range(size)
        ]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data))
    return folder


def is_right(model: str, ability: float, question: str) -> bool:
    """Whether a model answers right: a 2PL of slope 1.7, the same at every call."""
    digest = hashlib.sha256(f"{model} {question}".encode()).digest()
    draw = int.from_bytes(digest[:6], "big") / 2**48
    difficulty = float(question.rsplit(" ", 1)[1])
    return draw < 1 / (1 + math.exp(-1.7 * (ability - difficulty)))


@functools.cache
def register() -> None:
    """Give the harness one more model."""
    from lm_eval.api.registry import register_model
    from lm_eval.models.dummy import DummyLM

    @register_model("toy")
    class Toy(DummyLM):
        def __init__(self, model: str, ability: float, tasks: str) -> None:
            super().__init__()
            self.name, self.ability = model, float(ability)
            self.gold = {}
            for path in Path(tasks).glob("*.jsonl"):
                for line in path.read_text().splitlines():
                    row = json.loads(line)
                    self.gold[row["question"]] = ("yes", "no")[row["gold"]]

        @classmethod
        def create_from_arg_string(cls, arg_string, additional_config=None):
            return cls(**dict(part.split("=", 1) for part in arg_string.split(",")))

        @classmethod
        def create_from_arg_obj(cls, arg_dict, additional_config=None):
            return cls(**arg_dict)

        def loglikelihood(self, requests, disable_tqdm=False):
            found = []
            for request in requests:
                question, choice = request.args
                right = is_right(self.name, self.ability, question)
                is_gold = choice.strip() == self.gold[question]
                found.append((-1.0 if is_gold == right else -3.0, False))
            return found


def main() -> None:
    """Run lm_eval with the toy model registered."""
    from lm_eval.__main__ import cli_evaluate

    register()
    cli_evaluate()


if __name__ == "__main__":
    sys.exit(main())
