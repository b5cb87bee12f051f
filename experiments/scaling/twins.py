"""Times an epoch of twin networks against the same loop in PyTorch.

    python experiments/scaling/twins.py '{"subjects": 12, "items": 1000}'

Worker of `run.py`. The loop looks rows up as irtjax does; its optimiser is AdamW on all
rows, or the sparse Adam that moves only rows of the batch. Without PyTorch it is named
and skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from experiments.scaling.measure import Row, Spec, best_seconds, row
from irtjax.data.responses import Responses
from irtjax.estimators.neural.twin import Neural
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import four_parameter

WIDTH, BATCH, RATE = 64, 512, 0.003
#: PyTorch's loop is stopped after so long; the rest of its epoch would be the same.
LIMIT = 60.0


def draw(subjects: int, items: int) -> np.ndarray:
    """Right and wrong answers, of whatever model: time does not depend on it."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 2, (subjects, items)).astype(np.int8)


def our_epoch(values: np.ndarray) -> tuple[float, float]:
    """Seconds of one epoch, its judgement included, and of compiling it."""
    model = four_parameter(positive=True)
    problem = Problem.create(model, Responses(jnp.asarray(values)))
    method = Neural(WIDTH, batch_size=BATCH, learning_rate=RATE, validation=0.0)
    start = start_values(model, problem.data, dtype=jnp.float32)
    state = eqx.filter_jit(method.init)(problem, start, jax.random.key(0))
    step = eqx.filter_jit(method.step)
    call = lambda: step(problem, state, jax.random.key(1))
    began = time.perf_counter()
    jax.block_until_ready(call())
    first = time.perf_counter() - began
    seconds = best_seconds(call, 3)
    return seconds, first - seconds


def torch_epoch(values: np.ndarray, *, sparse: bool) -> float:
    """Seconds of one epoch of an eager PyTorch loop over shuffled batches."""
    torch: Any = importlib.import_module("torch")
    subjects, items = values.shape
    of_subjects = torch.nn.Embedding(subjects, WIDTH, sparse=sparse)
    of_items = torch.nn.Embedding(items, WIDTH, sparse=sparse)
    ability, parameters = torch.nn.Linear(WIDTH, 1), torch.nn.Linear(WIDTH, 4)
    tables = [of_subjects.weight, of_items.weight]
    rest = [*ability.parameters(), *parameters.parameters()]
    if sparse:
        optimisers = [torch.optim.SparseAdam(tables, lr=RATE)]
        optimisers.append(torch.optim.AdamW(rest, lr=RATE))
    else:
        optimisers = [torch.optim.AdamW([*tables, *rest], lr=RATE)]
    loss_of = torch.nn.BCELoss()
    right = torch.from_numpy(np.ravel(values).astype(np.float32))
    began = time.perf_counter()
    order = torch.randperm(values.size)
    done = 0
    for first in range(0, values.size, BATCH):
        batch = order[first : first + BATCH]
        subject, item = batch // items, batch % items
        theta = ability(torch.relu(of_subjects(subject)))[:, 0]
        out = parameters(torch.relu(of_items(item)))
        lower = torch.sigmoid(out[:, 2])
        upper = lower + (1 - lower) * torch.sigmoid(out[:, 3])
        rise = torch.sigmoid(torch.exp(out[:, 0]) * theta + out[:, 1])
        loss = loss_of(lower + (upper - lower) * rise, right[batch])
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
        done += len(batch)
        if time.perf_counter() - began > LIMIT:
            break
    return (time.perf_counter() - began) * values.size / done


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of both, turn by turn, with the load of the machine around them."""
    load_before = os.getloadavg()[0]
    values = draw(spec["subjects"], spec["items"])
    seconds, compiling = our_epoch(values)
    rows: list[Row] = [
        row("one epoch of twin 4PL", seconds, "s"),
        row("  compiling", compiling, "s"),
        row("  steps", -(-values.size // BATCH)),
    ]
    notes = []
    if importlib.util.find_spec("torch") is None:
        notes.append("PyTorch: not installed, skipped")
    else:
        whole = torch_epoch(values, sparse=False)
        few = torch_epoch(values, sparse=True)
        # Whichever way the load of the machine went in between.
        again, _ = our_epoch(values)
        wanted = spec.get("min_ratio")
        rows += [
            row("one epoch again", again, "s"),
            row("PyTorch, AdamW on all rows", whole, "s"),
            row("PyTorch, sparse Adam", few, "s"),
            row("ratio, AdamW on all rows", whole / max(seconds, again), "",
                wanted, ">="),
            row("ratio, sparse Adam", few / max(seconds, again)),
        ]  # fmt: skip
    return {"rows": rows, "load": [load_before, os.getloadavg()[0]], "notes": notes}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
