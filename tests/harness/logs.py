"""A small fit of two tasks, and logs in the exact form of lm-evaluation-harness."""

import functools
import hashlib
import json
import random
from pathlib import Path

import jax
import numpy as np

import irtjax

TASKS = {"toy_math": 12, "toy_text": 8}
NAMES = [f"{task}/{k}" for task, size in TASKS.items() for k in range(size)]


def chance(ability, difficulty):
    return 1 / (1 + np.exp(-1.7 * (ability - difficulty)))


@functools.cache
def toy_fit() -> irtjax.Calibration:
    """A Rasch fit of 40 models, with items named as the logs name them."""
    rng = np.random.default_rng(5)
    difficulty = np.concatenate([np.linspace(-2, 2, n) for n in TASKS.values()])
    right = rng.random((40, 20)) < chance(np.linspace(-2, 2, 40)[:, None], difficulty)
    benchmark = [name.split("/")[0] for name in NAMES]
    table = irtjax.ResponseTable.from_arrays(right, items=NAMES, benchmark=benchmark)
    key = jax.random.key(0)
    return irtjax.fit(table, "rasch", "em", standard_errors="none", key=key)


def right_of(model: str, item: str) -> float:
    """The response of a model to a document: half of them are right."""
    return float(hashlib.sha256(f"{model} {item}".encode()).digest()[0] % 2)


def write_logs(
    samples: dict[str, list[int]],
    folder: Path,
    model: str = "org/new",
    date: str = "2026-03-01T10-20-30.123456",
    without: tuple[str, ...] = (),
) -> None:
    """What `lm_eval --samples ... --output_path FOLDER --log_samples` leaves.

    Records are in a random order, as several GPUs leave them; those of items in
    `without` have no score.
    """
    place = folder / model.replace("/", "__")
    place.mkdir(parents=True, exist_ok=True)
    for task, numbers in samples.items():
        lines = []
        for number in random.Random(0).sample(numbers, len(numbers)):
            item = f"{task}/{number}"
            score = None if item in without else right_of(model, item)
            record = {
                "doc_id": number,
                "doc": {"question": item},
                "target": "1",
                "arguments": {"gen_args_0": {"arg_0": item, "arg_1": " yes"}},
                "resps": [[["-1.0", "False"]]],
                "filtered_resps": [["-1.0", "False"]],
                "filter": "none",
                "metrics": ["acc", "acc_norm"],
                "doc_hash": hashlib.sha256(item.encode()).hexdigest(),
                "prompt_hash": "p",
                "target_hash": "t",
                "acc": 1.0,
                "acc_norm": score,
            }
            lines.append(json.dumps(record))
        (place / f"samples_{task}_{date}.jsonl").write_text("\n".join(lines) + "\n")
    totals = {
        "results": {task: {"acc_norm,none": 0.5} for task in samples},
        "configs": {},
        "versions": dict.fromkeys(samples, 3.0),
        "n-shot": dict.fromkeys(samples, 0),
        "higher_is_better": dict.fromkeys(samples, {"acc_norm": True}),
        "model_name": model,
    }
    (place / f"results_{date}.json").write_text(json.dumps(totals))
