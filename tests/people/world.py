"""Questions and models whose truth is known, for real evaluation harnesses to ask.

A model answers a question right with the chance of a Rasch model with slope 1.3; of
wrong answers half are the same distractor. Draws are fixed by model, question and
attempt, so that a harness gets the same answer at every call. Two questions of the
multiple-choice task have a wrong key.
"""

import functools
import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple

#: Questions of each task: multiple choice, generated numbers, and votes of three.
TASKS = {"mcq_sim": 120, "math_sim": 60, "vote_sim": 40}
#: Abilities of ten models, of which the first two are equal, and of an eleventh.
MODELS = {
    "org/llama-70b": 1.6,
    "org/qwen-72b": 1.6,
    "org/mistral-large": 1.0,
    "org/llama-8b": 0.7,
    "org/qwen-7b": 0.5,
    "org/gemma-9b": 0.3,
    "org/phi-4": 0.0,
    "org/olmo-7b": -0.4,
    "org/falcon-7b": -0.8,
    "org/pythia-6b": -1.3,
}
NEW, NEW_ABILITY = "org/new-13b", 1.3
#: Questions of `mcq_sim` with a wrong key.
WRONG_KEYS = (17, 64)
SLOPE, ATTEMPTS = 1.3, 3
LETTERS = "ABCD"


class Question(NamedTuple):
    """A question as the tasks' files have it."""

    task: str
    number: int
    difficulty: float
    true: str  # What a model that can solve it answers.
    key: str  # What counts as right.
    others: tuple[str, str, str]  # Wrong answers, the common one first.

    @property
    def text(self) -> str:
        """What a model is asked."""
        return f"{self.task} question {self.number}"

    @property
    def name(self) -> str:
        """The name of its item, of logs of lm-evaluation-harness."""
        return f"{self.task}/{self.number}"


def _draw(*words: object) -> float:
    """A fixed draw from 0 to 1."""
    digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


@functools.cache
def questions() -> dict[str, Question]:
    """Every question by its text."""
    found = {}
    for task, size in TASKS.items():
        for k in range(size):
            if task == "mcq_sim":
                first = int(4 * _draw("key", task, k))
                options = [LETTERS[(first + j) % 4] for j in range(4)]
            else:
                value = 10 + int(900 * _draw("key", task, k))
                options = [str(value + j) for j in (0, 1, 10, 100)]
            key = options[task == "mcq_sim" and k in WRONG_KEYS and 2 or 0]
            difficulty = 3 * _draw("difficulty", task, k) - 1.5
            one = Question(task, k, difficulty, options[0], key, tuple(options[1:]))
            found[one.text] = one
    return found


def chance(ability: float, question: Question) -> float:
    """The chance that a model solves a question."""
    return 1 / (1 + math.exp(-SLOPE * (ability - question.difficulty)))


def answer(model: str, question: Question, attempt: int = 0) -> str:
    """What a model answers."""
    words = model, question.text, attempt
    if _draw(*words) < chance({**MODELS, NEW: NEW_ABILITY}[model], question):
        return question.true
    other = _draw("other", *words)
    return question.others[0 if other < 0.5 else 1 if other < 0.75 else 2]


def expected(ability: float, question: Question) -> float:
    """The chance of an answer that counts as right, at one attempt."""
    p = chance(ability, question)
    return p if question.key == question.true else (1 - p) / 4


def expected_score(model: str, tasks=tuple(TASKS)) -> float:
    """The mean of these chances over all questions of tasks."""
    ability = {**MODELS, NEW: NEW_ABILITY}[model]
    asked = [x for x in questions().values() if x.task in tasks]
    return sum(expected(ability, x) for x in asked) / len(asked)


def write_questions(folder: Path) -> Path:
    """The tasks' data, a line for each question."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        rows = [
            {"question": x.text, "choices": list(LETTERS), "answer": x.key}
            for x in questions().values()
            if x.task == task
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{task}.jsonl").write_text(text)
    return folder
