"""Ten models on three tasks whose truth is known, as logs of lm-evaluation-harness."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

#: Abilities: three pairs are equal, the others differ by 0.15 to 0.5.
ABILITIES = (1.5, 1.5, 1.1, 0.8, 0.5, 0.5, 0.35, 0.0, -0.5, -0.5)
#: Items and mean intercept of each task; the first is multiple choice.
TASKS = {"mcq_sim": (200, 0.6), "math_sim": (110, -0.4), "code_sim": (100, 0.2)}
#: Items of the multiple-choice task with a wrong key, and its number of choices.
WRONG_KEYS, CHOICES = 6, 4


class Data(NamedTuple):
    """Responses and their truth.

    Attributes:
        right: `[models, items]`, 1 where the response has the key of the item.
        answer: `[models, items]`, the choice of a model: 0 is right, 1 most attractive.
        key: `[items]`, the choice that counts as right: 0 but for wrong keys.
        task: `[items]` names.
        expected: `[models]`, expected score on these items.
        population: `[models]`, expected score on all items that might have been drawn.
    """

    right: np.ndarray
    answer: np.ndarray
    key: np.ndarray
    task: np.ndarray
    expected: np.ndarray
    population: np.ndarray


def models() -> list[str]:
    """Their names."""
    return [f"model-{letter}" for letter in "abcdefghij"]


def draw(seed: int) -> Data:
    """Draws a data set: 2PL items, wrong answers that agree by chance only.

    Abilities are the same in every data set, items and responses are drawn.
    """
    rng = np.random.default_rng(seed)
    task = np.repeat(list(TASKS), [size for size, _ in TASKS.values()])
    slope, intercept = _items(rng, task)
    chance = _chance(slope, intercept)
    solved = rng.random(chance.shape) < chance
    # Of those who fail, half give the most attractive of the other choices.
    other = np.where(
        rng.random(chance.shape) < 0.5, 1, rng.integers(2, 4, chance.shape)
    )
    answer = np.where(solved, 0, other)
    key = np.zeros(len(task), int)
    key[rng.choice(np.flatnonzero(task == "mcq_sim"), WRONG_KEYS, False)] = 2
    wrong = key > 0
    # Failing answers are 1, or 2 and 3 alike.
    expected = np.where(wrong, (1 - chance) / 4, chance)
    return Data(
        (answer == key).astype(np.int8),
        answer,
        key,
        task,
        expected.mean(axis=1),
        population(),
    )


@functools.cache
def population(size: int = 100_000) -> np.ndarray:
    """Expected scores over items as they are drawn, wrong keys among them."""
    rng = np.random.default_rng(2**32)
    total, sizes = 0.0, [n for n, _ in TASKS.values()]
    for name, number in zip(TASKS, sizes, strict=True):
        chance = _chance(*_items(rng, np.repeat(name, size))).mean(axis=1)
        if name == "mcq_sim":
            share = WRONG_KEYS / number
            chance = (1 - share) * chance + share * (1 - chance) / 4
        total = total + chance * number
    return total / sum(sizes)


def _items(rng, task: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = np.array([TASKS[name][1] for name in task.tolist()])
    slope = np.exp(0.3 * rng.normal(size=task.size))
    return slope, middle + 1.2 * rng.normal(size=task.size)


def _chance(slope: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    ability = np.array(ABILITIES)[:, None]
    return 1 / (1 + np.exp(-slope * ability - intercept))


def write_logs(data: Data, folder: Path) -> None:
    """Writes the sample logs that the harness writes with `--log_samples`."""
    letters = np.array(list("ABCD"))
    for model, name in enumerate(models()):
        place = folder / name
        place.mkdir(parents=True)
        for task in TASKS:
            lines = []
            for number, j in enumerate(np.flatnonzero(data.task == task).tolist()):
                answer, key = data.answer[model, j], data.key[j]
                choice = str(letters[answer])
                text = {"question": f"{task} {number}", "choices": list(letters)}
                record = {"doc_id": number, "doc": text, "target": str(letters[key])}
                record |= {"doc_hash": f"{task} {number}", "filter": "none"}
                record |= {"resps": [[choice]], "filtered_resps": [choice]}
                record |= {"metrics": ["acc"], "acc": float(data.right[model, j])}
                lines.append(json.dumps(record))
            file = place / f"samples_{task}_2026-03-01T10-20-30.123456.jsonl"
            file.write_text("\n".join(lines), encoding="utf-8")
