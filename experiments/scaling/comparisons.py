"""Measures arenas: fits of battles, from arrays and from a file; worker of `run.py`.

    python experiments/scaling/comparisons.py '{"subjects": 20, "items": 5000}'

Seconds are of processor time, the least of some calls after one that compiles, since
other work on the machine stretches wall time. Where ARENA_RANK_PYTHON names a Python
that has arena-rank, its fit of the same battles is timed too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # As the command line does: idle threads of OpenBLAS spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import irtjax

#: What the Python of the peer runs: the time of fits after compilation.
PEER = """
import sys, time, json
import pandas as pd
from arena_rank.models.bradley_terry import BradleyTerry
from arena_rank.models.contextual_bradley_terry import ContextualBradleyTerry
from arena_rank.utils.data_utils import ContextualPairDataset, PairDataset
frame = pd.read_parquet(sys.argv[1])
frame["winner"] = frame["winner"].astype(str)
count, seconds = len(set(frame.model_a) | set(frame.model_b)), {}
def plain():
    data = PairDataset.from_pandas(frame)
    BradleyTerry(count).compute_ratings_and_cis(data)
def style():
    data = ContextualPairDataset.from_pandas(frame, feature_cols=["length"])
    ContextualBradleyTerry(count, 1).compute_ratings_and_cis(data)
for call in (plain, style):
    call()
    began = time.process_time()
    call()
    seconds[call.__name__] = time.process_time() - began
print(json.dumps(seconds))
"""


def least(call: Callable[[], Any], repeats: int) -> float:
    """Least processor time of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def battles(models: int, number: int, seed: int = 0) -> pa.Table:
    """A table of battles with prompts and a length."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1, models)
    first = rng.integers(models, size=number, dtype=np.int32)
    step = rng.integers(1, models, size=number, dtype=np.int32)
    second = (first + step) % models
    length = rng.normal(size=number)
    gap = ability[first] - ability[second] + 0.2 * length + rng.logistic(size=number)
    kind = np.where(gap > 0.3, 0, np.where(gap < -0.3, 1, 2)).astype(np.int32)
    names = pa.array([f"model-{k:03d}" for k in range(models)])
    words = pa.array(["model_a", "model_b", "tie"])
    prompts = max(number // 10, 20)
    prompt = rng.integers(prompts, size=number, dtype=np.int32)
    texts = pa.array([f"q{k}" for k in range(prompts)])
    code = pa.DictionaryArray.from_arrays
    columns = {
        "model_a": code(first, names),
        "model_b": code(second, names),
        "winner": code(kind, words),
        "question_id": code(prompt, texts),
        "length": length,
    }
    return pa.table(columns)


def row(
    quantity: str, value: float, target: float | None = None, unit: str = "s"
) -> dict[str, Any]:
    """One row of the table."""
    at = "<=" if unit == "s" else ">="
    return dict(quantity=quantity, value=value, unit=unit, target=target, at=at)


def large(models: int, number: int, limit: float | None) -> list[dict[str, Any]]:
    """Rows of a file of battles, to ranks with clustered errors."""
    with tempfile.TemporaryDirectory() as folder:
        path, name = Path(folder) / "battles.parquet", f"{number:,} from Parquet"
        pq.write_table(battles(models, number), path)
        began, wall = time.process_time(), time.perf_counter()
        read = irtjax.read_comparisons(path)
        middle = time.process_time()
        irtjax.fit_comparisons(read, cluster="question_id").abilities.rank()
        end, ended = time.process_time(), time.perf_counter()
    return [
        row(f"{name}: reading", middle - began),
        row(f"{name}: clustered fit, ranks", end - middle),
        row(f"{name}: all", end - began, limit),
        row(f"{name}: all, wall time", ended - wall),
    ]


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """All rows of the case, with the load of the machine around it."""
    models, number, load = spec["subjects"], spec["items"], os.getloadavg()[0]
    frame, peer = battles(models, number), os.environ.get("ARENA_RANK_PYTHON")
    table = irtjax.read_comparisons(frame, features=["length"])
    fits = {
        "plain": {},
        "clustered": {"cluster": "question_id"},
        "style": {"covariates": ["length"]},
        "bootstrapped": {"cluster": "question_id", "bootstrap": 1000},
    }
    seconds = {
        name: least(lambda o=options: irtjax.fit_comparisons(table, **o), 5)
        for name, options in fits.items()
    }
    limits = {"plain": spec.get("max_seconds")}
    limits["bootstrapped"] = spec.get("max_bootstrap_seconds")
    rows = [row(f"{name} fit", x, limits.get(name)) for name, x in seconds.items()]
    if peer:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "battles.parquet"
            pq.write_table(frame, path)
            command = [peer, "-c", PEER, str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        for name, value in json.loads(done.stdout.splitlines()[-1]).items():
            least_ratio = spec.get("min_ratios", {}).get(name)
            rows.append(row(f"arena-rank, {name}", value))
            ratio = value / seconds[name]
            rows.append(row(f"ratio to arena-rank, {name}", ratio, least_ratio, "x"))
    if "large" in spec:
        rows += large(models, spec["large"], spec.get("max_large"))
    notes = [] if peer else ["arena-rank: not measured, ARENA_RANK_PYTHON is not set"]
    return {"rows": rows, "load": [load, os.getloadavg()[0]], "notes": notes}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
