"""Measures the processor time of the command line on small data, and of whole calls.

    python experiments/scaling/front_door.py '{"subjects": 12, "items": 240}'

Worker of `run.py`. Each number is user plus system time of a child process, the least
of several: other programs on the machine make it larger, never smaller. Cold is
with a cache folder that has only the test of jaxlib, once per release and measured
apart; warm with the folder that a cold run has filled. Compiled Python files exist in
both. Of large data the second call of `irtjax.fit` in a process
counts, and the phase that runs EM in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

Spec = dict[str, Any]
Row = dict[str, Any]
#: Responses of 1,000 subjects to five items of the Law School Admission Test, section 7
#: (Bock and Lieberman 1970), where the checkout has the data beside it.
SHARED = Path(__file__).resolve().parents[3] / "shared/data"
LSAT7 = SHARED / "classic/lsat7.parquet"
GSM8K = SHARED / "metabench/gsm8k_2pl_responses.parquet"
#: Items of the second file, which is fitted by the programs of the first.
FEWER = 3
#: Tasks of the logs, and their parts of the items.
TASKS = {"mcq": 20, "math": 12, "reading": 9}
#: What tests a release of jaxlib where the cache folder has no result yet.
IMPORT = ("-c", "import irtjax, jax")


def write_responses(path: Path, subjects: int, items: int) -> None:
    """Writes responses of a 2PL in long form."""
    rng = np.random.default_rng(0)
    ability = rng.normal(size=(subjects, 1))
    slope, intercept = np.exp(0.3 * rng.normal(size=items)), rng.normal(0.5, 1.2, items)
    chance = 1 / (1 + np.exp(-(slope * ability + intercept)))
    right = (rng.uniform(size=chance.shape) < chance).astype(int)
    lines = [
        f"model {i},item {j},{right[i, j]}"
        for i in range(subjects)
        for j in range(items)
    ]
    path.write_text("\n".join(["model,item,correct", *lines]) + "\n", encoding="utf-8")


def write_logs(folder: Path, models: int, items: int) -> None:
    """Writes logs of lm-evaluation-harness of three tasks, by a 2PL."""
    rng = np.random.default_rng(1)
    ability, total = rng.normal(size=(models, 1)), sum(TASKS.values())
    for task, part in TASKS.items():
        size = max(items * part // total, 1)
        slope, shift = np.exp(0.3 * rng.normal(size=size)), rng.normal(0.5, 1.2, size)
        chance = 1 / (1 + np.exp(-(slope * ability + shift)))
        right = rng.uniform(size=chance.shape) < chance
        for i in range(models):
            place = folder / f"org__model-{i}"
            place.mkdir(parents=True, exist_ok=True)
            lines = []
            for j in range(size):
                text = f"{task} question {j}"
                answer = j % 4 if right[i, j] else (j + 1) % 4
                record = {"doc_id": j, "doc": {"question": text}, "target": str(j % 4)}
                record |= {"resps": [[str(answer)]], "filtered_resps": [str(answer)]}
                record |= {"filter": "strict-match", "metrics": ["exact_match"]}
                digest = hashlib.sha256(text.encode()).hexdigest()
                record |= {"doc_hash": digest, "exact_match": float(right[i, j])}
                lines.append(json.dumps(record))
            name = f"samples_{task}_2026-03-01T10-20-30.123456.jsonl"
            (place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_lsat7(path: Path) -> bool:
    """Writes 1,000 subjects by 5 items; whether they are the real responses."""
    if not LSAT7.is_file():
        write_responses(path, 1000, 5)
        return False
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(LSAT7)
    names = [name for name in table.column_names if "item" in name]
    pyarrow.csv.write_csv(table.select(names), path)
    return True


def processor_seconds(
    arguments: list[str], cache: Path, command: tuple[str, ...] = ("-m", "irtjax")
) -> float:
    """User and system time of one run of the command line, or another command."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTHONDONTWRITE"))
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command, *arguments],
        env=inherited | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return user + system


def measure_call(subjects: int, items: int, errors: bool) -> dict[str, float]:
    """Processor seconds of the second of two equal calls of `irtjax.fit`."""
    import jax.numpy as jnp

    import irtjax

    rng = np.random.default_rng(0)
    ability = rng.normal(size=(subjects, 1)).astype(np.float32)
    slope = rng.uniform(0.5, 1.0, items).astype(np.float32)
    logit = slope * ability + rng.normal(0, 0.5, items).astype(np.float32)
    right = rng.random(logit.shape, np.float32) < 1 / (1 + np.exp(-logit))
    table = irtjax.ResponseTable.from_arrays(right.astype(np.int8))
    kind = "observed" if errors else "none"
    for _ in range(2):
        began, wall = time.process_time(), time.perf_counter()
        fit = irtjax.fit(table, "2pl", "em", dtype=jnp.float32, standard_errors=kind)
        spent = time.process_time() - began, time.perf_counter() - wall
    return {"processor": spent[0], "wall": spent[1], "em": fit.timings["run"]}


def call_in_child(subjects: int, items: int, errors: bool) -> dict[str, float]:
    """`measure_call` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps([subjects, items, errors])],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of the case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    repeats = spec.get("repeats", 5)
    rows: list[Row] = []

    def add(quantity: str, seconds: list[float], target: float | None) -> None:
        rows.append(
            {"quantity": quantity, "value": min(seconds), "unit": "s",
             "target": target if spec.get("targets") else None, "at": "<="}
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        is_real = write_lsat7(place / "lsat7.csv")
        write_responses(place / "default.csv", spec["subjects"], spec["items"])
        processor_seconds(["--help"], place)
        found = [processor_seconds(["--help"], place) for _ in range(repeats)]
        add("irtjax --help", found, 0.3)
        subjects, items = spec["subjects"], spec["items"]
        write_responses(place / "fewer.csv", subjects, items - FEWER)
        default, tested, imported = f"{subjects} x {items}", [], []
        write_logs(place / "logs", subjects, spec.get("log_items", items))
        tables, figures = ["fit", "--no-page"], ["fit", "--figures"]
        logs = f"run of logs, {subjects} x {spec.get('log_items', items)}"
        for name, file, command, cold_target, warm_target in (
            ("LSAT7, tables", place / "lsat7.csv", tables, 8, 1.5),
            ("LSAT7, page", place / "lsat7.csv", ["fit"], None, 2.5),
            ("LSAT7, page and figures", place / "lsat7.csv", figures, None, None),
            (default, place / "default.csv", ["fit"], None, 5),
            (logs, place / "logs", ["run"], 20, 6),
            ("metabench gsm8k", GSM8K, ["fit"], None, 6),
        ):
            if not file.exists():
                continue
            out = ["--overwrite", "--out", str(place / f"out of {command[0]}")]
            fit = [command[0], str(file), *command[1:], *out]
            cold, warm = [], []
            for k in range(repeats):
                cache = place / f"{name} {k}"
                tested.append(processor_seconds([], cache, IMPORT))
                imported.append(processor_seconds([], cache, IMPORT))
                cold.append(processor_seconds(fit, cache))
                warm.append(processor_seconds(fit, cache))
            add(f"{name}, cold", cold, cold_target)
            add(f"{name}, warm", warm, warm_target)
            if name == default:
                fit[1] = str(place / "fewer.csv")
                other = f"{subjects} x {items - FEWER} after {items} items"
                add(other, [processor_seconds(fit, cache)], warm_target)
        if "added" in spec:
            _measure_add(spec, place, add, repeats)
    first = min(tested) - min(imported)
    add("test of jaxlib, once per release", [first], None)
    add("imports of JAX and irtjax alone", imported, None)
    for size in spec.get("calls", ()):
        call = call_in_child(*size, errors=False)
        name = "{:,} x {:,}".format(*size)
        add(f"{name}, whole call", [call["wall"]], None)
        ratio = call["wall"] / call["em"]
        rows.append(
            {"quantity": f"{name}, whole call over its EM", "value": ratio,
             "unit": "x", "target": 1.5 if spec.get("targets") else None, "at": "<="}
        )  # fmt: skip
    for size in spec.get("with_errors", ()):
        call = call_in_child(*size, errors=True)
        add("{:,} x {:,}, with errors".format(*size), [call["wall"]], 8)
    return {
        "rows": rows,
        "load": [load_before, os.getloadavg()[0]],
        "notes": [] if is_real else ["LSAT7: simulated, the data are not here"],
    }


def _measure_add(spec: Spec, place: Path, add: Any, repeats: int) -> None:
    """Rows of one more model on many: it is scored on the items of the fit."""
    models, items = spec["added"]
    write_responses(place / "many.csv", models + repeats + 1, items)
    lines = (place / "many.csv").read_text(encoding="utf-8").splitlines()
    split = 1 + models * items
    cache, fitted = place / "added", place / "fitted"
    (place / "old.csv").write_text("\n".join(lines[:split]) + "\n", encoding="utf-8")
    fit = ["fit", str(place / "old.csv"), "--out", str(fitted), "--overwrite"]
    processor_seconds(fit, cache)
    name = f"{models} x {items:,}"
    add(f"fit of {name}, warm", [processor_seconds(fit, cache)], 10)
    spent = []
    for k in range(repeats + 1):
        new = [lines[0], *lines[split + k * items : split + (k + 1) * items]]
        path = place / f"new {k}.csv"
        path.write_text("\n".join(new) + "\n", encoding="utf-8")
        arguments = ["add", str(path), "--to", str(fitted), "--refit", "never"]
        spent.append(processor_seconds(arguments, cache))
    add(f"add to {name}, warm", spent[1:], 3)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    one_call = isinstance(given, list)
    print(json.dumps(measure_call(*given) if one_call else measure(given)))
