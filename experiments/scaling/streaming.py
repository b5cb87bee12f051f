"""Fits of files larger than memory, each in a process of its own: time and memory.

    python experiments/scaling/streaming.py                      # 10^6 and 10^7
    python experiments/scaling/streaming.py --responses 1e8      # nightly size
    python experiments/scaling/streaming.py --responses 1e9 --folder /large/disk

Responses of a 2PL are simulated a part at a time: `few` has 100 responses of each
subject to random ones of 10,000 items (100,000 from 10^9 responses on), `all` has
100 items and every response. A small file is fitted first in the process, so that what
Python, JAX and compilation take is separate from what the data take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Responses of each subject, and subjects that are simulated at a time.
EACH, PART = 100, 20_000


def write(path: Path, subjects: int, items: int) -> None:
    """Writes a long Parquet file, sorted by subject, with row groups of a part."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    slope, intercept = rng.uniform(0.5, 1.5, items), rng.normal(size=items)
    names = pa.array([f"item-{j:06d}" for j in range(items)])
    writer: Any = None
    for first in range(0, subjects, PART):
        count = min(PART, subjects - first)
        ability = rng.normal(size=(count, 1))
        if items == EACH:
            item = np.broadcast_to(np.arange(items), (count, items))
        else:
            # Distinct items: a random one, and steps of a random odd size from it.
            start = rng.integers(0, items, (count, 1))
            step = 2 * rng.integers(0, items // (2 * EACH), (count, 1)) + 1
            item = (start + step * np.arange(EACH)) % items
        logit = slope[item] * ability + intercept[item]
        right = rng.random(item.shape) < 1 / (1 + np.exp(-logit))
        who = pa.array(np.repeat(np.arange(count, dtype=np.int32), item.shape[1]))
        labels = pa.array([f"s{first + i:09d}" for i in range(count)])
        columns = {
            "subject": pa.DictionaryArray.from_arrays(who, labels),
            "item": pa.DictionaryArray.from_arrays(
                pa.array(item.ravel().astype(np.int32)), names
            ),
            "response": pa.array(right.ravel().astype(np.int8)),
        }
        table = pa.table(columns)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def peak_bytes() -> int:
    """Largest resident size of this process so far (Linux)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(x for x in text.splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def fit(path: Path, folder: Path, errors: str) -> dict[str, Any]:
    """Fits a file and writes its tables; returns what they took."""
    from irtjax.fitting.streamed import fit_stream
    from irtjax.storage.stream import save_stream

    began, spent = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = fit_stream(path, Path(place), "2pl", standard_errors=errors)
        save_stream(done, folder / f"fit-{path.stem}")
    run = done.timings
    return {
        "responses": done.stream.num_observed,
        "steps": done.estimates.num_steps,
        "status": done.estimates.status.name,
        "nodes": int(done.estimates.resolution.num_nodes),
        "log_likelihood": done.estimates.log_likelihood,
        "passes": done.num_passes,
        "bytes_of_pass": done.stream.bytes_of_pass,
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - spent,
        "timings": run,
        "peak": peak_bytes(),
    }


def child(folder: str, subjects: int, items: int, errors: str) -> None:
    """Measures one size after a small one, and prints the result."""
    import jax

    jax.config.update("jax_enable_x64", True)
    place = Path(folder)
    small = fit(place / "small.parquet", place, errors)
    result = fit(place / "large.parquet", place, errors)
    result["above"] = result["peak"] - small["peak"]
    print(json.dumps({"subjects": subjects, "items": items, **result}))


def in_process(*arguments: str) -> str:
    """The last line that this script prints in a process of its own."""
    call = [sys.executable, __file__, *arguments]
    # As the command line does: idle threads of OpenBLAS spin.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(call, stdout=subprocess.PIPE, check=True, text=True, env=env)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def measure(
    kind: str, responses: int, items: int | None, parent: Path | None, errors: str
) -> dict:
    """One size of one kind."""
    if kind == "all":
        items = EACH
    elif items is None:
        items = 100_000 if responses >= 10**9 else 10_000
    subjects = responses // EACH
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        for name, count in (("small", min(2000, subjects)), ("large", subjects)):
            path = str(Path(folder, f"{name}.parquet"))
            in_process("--write", path, str(count), str(items))
        size = Path(folder, "large.parquet").stat().st_size
        load = os.getloadavg()[0]
        result = json.loads(
            in_process("--child", folder, str(subjects), str(items), errors)
        )
    return {"kind": kind, "file": size, "load": load, **result}


def row(result: dict[str, Any]) -> str:
    """A row of the table of `docs/evidence/scale.md`."""
    run = result["timings"]["run"] / (result["steps"] * result["responses"])
    each = result["processor"] / result["responses"]
    return (
        f"| `{result['kind']}`, {result['subjects']:,} × {result['items']:,} |"
        f" {result['responses']:,} | {result['nodes']} | {result['steps']} |"
        f" {result['passes']} | {result['bytes_of_pass'] / 1e6:,.0f} |"
        f" {result['timings']['read']:.1f} | {result['timings']['run']:.1f} |"
        f" {result['seconds']:.1f} | {result['processor']:.1f} | {run * 1e9:.0f} |"
        f" {each * 1e6:.2f} | {result['peak'] / 1e9:.2f} |"
        f" {result['above'] / 1e9:.2f} |"
    )


def main() -> None:
    """Prints a row for each size and kind."""
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--responses", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--kinds", nargs="+", default=["all", "few"])
    parser.add_argument("--items", type=int, help="items of few")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--errors", default="observed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for kind in options.kinds:
        for responses in options.responses:
            sizes = int(responses), options.items
            result = measure(kind, *sizes, options.folder, options.errors)
            results.append(result)
            print(row(result), flush=True)
            print(json.dumps(result), file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
