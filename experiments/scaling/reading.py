"""Measures `irtjax.read` on large files: seconds, processor time and peak memory.

    python experiments/scaling/reading.py \
        '{"subjects": 200, "items": 1000, "logs": [20, 50]}'

Worker of `run.py`. Every file is read in a process of its own, and written by another.
The memory is that above what the same process needs to read a few rows of the same
format.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

Spec = dict[str, Any]
Row = dict[str, Any]
BENCHMARKS = 10
#: Most of a prompt: 400 characters.
FILLER = "think step by step. " * 20
#: The file with prompts has as many times fewer rows.
FEWER = 10


def long_batches(subjects: int, items: int, scores: bool, prompts: bool):
    """Yields the responses of some subjects at a time, as Arrow tables."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    benchmark = np.arange(items) * BENCHMARKS // items
    parts = [f"benchmark-{k}" for k in range(BENCHMARKS)]
    names = [f"{parts[k]}/{j:05d}" for j, k in enumerate(benchmark.tolist())]
    step = max(1, 500_000 // items)
    for first in range(0, subjects, step):
        models = [f"org/model-{i:05d}" for i in range(first, first + step)]
        models = models[: subjects - first]
        size = len(models) * items
        response: Any = rng.random(size) < 0.6
        response = rng.random(size).round(4) if scores else response.astype(np.int8)
        codes = {
            "model": (np.repeat(np.arange(len(models)), items), models),
            "item": (np.tile(np.arange(items), len(models)), names),
            "benchmark": (np.tile(benchmark, len(models)), parts),
        }
        columns: dict[str, Any] = {
            name: pa.DictionaryArray.from_arrays(
                pa.array(code.astype(np.int32)), pa.array(labels)
            ).cast(pa.string())
            for name, (code, labels) in codes.items()
        }
        if prompts:
            texts = pa.array([f"{name}: {FILLER}" for name in names])
            columns["prompt"] = texts.take(pa.array(codes["item"][0]))
            columns["target"] = columns["item"]
        yield pa.table({**columns, "score": response})


def write_long(
    path: Path, subjects: int, items: int, scores: bool, prompts: bool = False
) -> None:
    """Writes one row per response, as CSV or Parquet."""
    import pyarrow.csv
    import pyarrow.parquet

    writer: Any = None
    for batch in long_batches(subjects, items, scores, prompts):
        if writer is None:
            if path.suffix == ".csv":
                plain = pyarrow.csv.WriteOptions(quoting_style="none")
                writer = pyarrow.csv.CSVWriter(path, batch.schema, write_options=plain)
            else:
                writer = pyarrow.parquet.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    writer.close()


def write_wide(path: Path, subjects: int, items: int) -> None:
    """Writes one row per subject, as CSV or Parquet."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    right = (np.random.default_rng(0).random((items, subjects)) < 0.6).astype(np.int8)
    names = pa.array([f"org/model-{i:05d}" for i in range(subjects)])
    columns = {f"item-{j:05d}": column for j, column in enumerate(right)}
    table = pa.table({"model": names, **columns})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)


def write_logs(folder: Path, files: int, documents: int) -> None:
    """Writes sample logs of lm-evaluation-harness: a model and a task in each file."""
    rng = np.random.default_rng(0)
    tasks = 20
    for k in range(files):
        place = folder / f"org__model-{k // tasks:04d}"
        place.mkdir(parents=True, exist_ok=True)
        task, lines = f"task{k % tasks}", []
        for j, right in enumerate((rng.random(documents) < 0.6).astype(float)):
            prompt = f"Question: what is {task} {j}? " + "Think step by step. " * 20
            record = {"doc_id": j, "doc": {"question": prompt, "answer": str(j)}}
            record |= {"target": str(j), "resps": [["so it is " * 20]]}
            record |= {"arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}}
            record |= {"filtered_resps": [str(j + int(right))], "filter": "none"}
            record |= {"doc_hash": f"{task}{j}", "metrics": ["exact_match"]}
            lines.append(json.dumps(record | {"exact_match": right}))
        name = f"samples_{task}_2026-03-01T10-20-30.123456.jsonl"
        (place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def peak_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(x for x in text.splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def read_one(small: str, path: str, options: Spec) -> Spec:
    """Reads a small file and then a large one, and returns what the latter took."""
    import irtjax

    irtjax.read(small, **options)
    before, began, spent = peak_bytes(), time.perf_counter(), time.process_time()
    table = irtjax.read(path, **options)
    return {
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - spent,
        "peak": peak_bytes() - before,
        "responses": table.num_observed,
    }


def in_child(call: list[Any]) -> Spec:
    """One function of this file in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(call)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout or "null")


#: Files by name: the function that writes it, and its arguments after the sizes.
FILES: dict[str, tuple[str, list[Any]]] = {
    "long.csv": ("write_long", [False]),
    "long.parquet": ("write_long", [False]),
    "scores.csv": ("write_long", [True]),
    "prompts.csv": ("write_long", [False, True]),
    "prompts.parquet": ("write_long", [False, True]),
    "wide.csv": ("write_wide", []),
    "wide.parquet": ("write_wide", []),
}


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of the case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    rows: list[Row] = []

    def add(what: str, value: float, unit: str, target: Any = None, at: str = "<="):
        target = target if spec.get("targets") else None
        row = {"quantity": what, "value": value, "unit": unit}
        rows.append({**row, "target": target, "at": at})

    with tempfile.TemporaryDirectory(dir=spec.get("folder")) as folder:
        place = Path(folder)
        for name in spec.get("files", FILES):
            writer, more = FILES[name]
            path, small = place / name, place / f"small-{name}"
            texts = name.startswith("prompts")
            size = spec["subjects"] // (FEWER if texts else 1), spec["items"]
            in_child([writer, str(small), 20, 30, *more])
            in_child([writer, str(path), *size, *more])
            found = in_child(["read_one", str(small), str(path), {}])
            count = found["responses"]
            if texts:
                bare = in_child(["read_one", str(small), str(path), {"texts": False}])
                for quantity, unit in (("processor", "time"), ("peak", "memory")):
                    ratio = found[quantity] / bare[quantity]
                    add(f"{name}, {unit} over that without texts", ratio, "x")
                path.unlink()
                continue
            strict = name.startswith("long")
            add(f"{name}, size", path.stat().st_size / count, "bytes a response")
            peak = found["peak"] / count
            add(f"{name}, peak memory", peak, "bytes a response", 60 * strict or None)
            rate, least = count / found["processor"], 2e6 if strict else None
            unit = "responses per second of processor time"
            add(f"{name}, speed", rate, unit, least, ">=")
            add(f"{name}, whole call", found["seconds"], "s")
            path.unlink()
        files, documents = spec["logs"]
        in_child(["write_logs", str(place / "small"), 1, 2])
        in_child(["write_logs", str(place / "logs"), files, documents])
        for label, texts in (("", True), (", no texts", False)):
            paths = str(place / "small"), str(place / "logs")
            found = in_child(["read_one", *paths, {"texts": texts}])
            name, count = f"{files:,} lm-eval files{label}", found["responses"]
            add(f"{name}, processor time", found["processor"], "s")
            add(f"{name}, peak memory", found["peak"] / count, "bytes a response")
    return {"rows": rows, "load": [load_before, os.getloadavg()[0]]}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if isinstance(given, dict):
        print(json.dumps(measure(given)))
    else:
        name, *arguments = given
        paths = [Path(arguments[0]), *arguments[1:]] if "write" in name else arguments
        print(json.dumps(globals()[name](*paths)))
