"""Measures fits of large tables of which few responses are observed.

    python experiments/scaling/sparse.py '{"subjects": 4000, "items": 1000,
        "responses": [20000, 40000], "dense": [300, 400]}'

Worker of `run.py`. Each file is written by another process than the one that reads and
fits it, so that peak memory is that of reading and fitting. Bytes per response are the
difference of two peaks with the same subjects and items.
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

from experiments.scaling.measure import peak_bytes, row

Spec = dict[str, Any]
Row = dict[str, Any]
#: Share observed where the dense passes are compared.
SHARE = 0.01


def write_responses(path: Path, subjects: int, items: int, count: int) -> None:
    """Writes so many responses of a 2PL, a row for each, in any order."""
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    place = np.unique(rng.integers(0, subjects * items, count + count // 10))
    place = rng.permutation(place)[:count]
    who, which = place // items, place % items
    ability, easiness = rng.normal(size=subjects), rng.normal(0, 0.5, items)
    slope = rng.uniform(0.5, 1.5, items)
    chance = 1 / (1 + np.exp(-slope[which] * ability[who] - easiness[which]))
    names = lambda what, codes, size: pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array([f"{what}{k}" for k in range(size)])
    ).cast(pa.string())
    columns = {
        "model": names("m", who, subjects),
        "item": names("q", which, items),
        "score": (rng.random(count) < chance).astype(np.int8),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)


def fit_file(spec: Spec) -> dict[str, Any]:
    """Reads and fits one file in this process: seconds, steps and peak memory."""
    import irtjax
    from irtjax.data import sparse_table
    from irtjax.estimators.joint import sparse

    if spec["storage"] == "dense":
        sparse_table.FEW_OBSERVED = sparse.FEW_OBSERVED = -1.0
    elif spec["storage"] == "sparse":
        sparse_table.MANY_CELLS = 0
    began = time.perf_counter()
    table = irtjax.read(spec["path"])
    found: dict[str, Any] = {"read": time.perf_counter() - began}
    assert (table.sparse is None) == (spec["storage"] == "dense")
    fit: Any = None
    for _ in range(spec["calls"]):  # The last one does not compile.
        began = time.perf_counter()
        fit = irtjax.fit(table, "2pl", "mm", standard_errors="none")
        found["fit"] = time.perf_counter() - began
        found["step"] = fit.timings["run"] / fit.num_steps
        found["steps"] = fit.num_steps
        found["done"] = found["fit"] - fit.timings["compile"]
    return found | {"peak": peak_bytes(), "converged": int(fit.status) == 0}


def in_process(spec: Spec) -> dict[str, Any]:
    """`fit_file` in a process of its own."""
    root = str(Path(__file__).resolve().parents[2])
    paths = filter(None, [root, os.environ.get("PYTHONPATH", "")])
    own = {"PYTHONPATH": os.pathsep.join(paths), "JAX_ENABLE_X64": "1"}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(spec)],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def by_responses(spec: Spec, folder: Path) -> list[Row]:
    """Time and memory of as many subjects and items with more and more responses."""
    rows, found, sizes = [], [], spec["responses"]
    for count in sizes:
        path = folder / "cells.parquet"
        write_responses(path, spec["subjects"], spec["items"], count)
        each = in_process({"path": str(path), "storage": "sparse", "calls": 1})
        found.append(each)
        rows += [
            row(f"{count:,} responses: read", each["read"], "s"),
            row("  2pl by mm, whole call without compilation", each["done"], "s"),
            row("  an MM step", each["step"], "s"),
            row("  steps", each["steps"]),
            row("  converged", each["converged"], "", 1.0, ">="),
            row("  peak memory", each["peak"] / 1e9, "GB", spec.get("max_gb")),
        ]
    more = sizes[-1] - sizes[0]
    memory = (found[-1]["peak"] - found[0]["peak"]) / more
    ratio = found[-1]["step"] / found[0]["step"]
    times = sizes[-1] / sizes[0]
    return [
        *rows,
        row("memory of one more response", memory, "bytes", spec.get("max_bytes")),
        row(f"time of a step, {times:.3g} times the responses", ratio, "times",
            spec.get("max_ratio")),
    ]  # fmt: skip


def against_dense(spec: Spec, folder: Path) -> list[Row]:
    """Whole fits of the same file, by observed cell and over all cells."""
    subjects, items = spec["dense"]
    path = folder / "some.parquet"
    write_responses(path, subjects, items, int(SHARE * subjects * items))
    few, dense = (
        in_process({"path": str(path), "storage": storage, "calls": 2})
        for storage in ("sparse", "dense")
    )
    size = f"{subjects:,} x {items:,}, {SHARE:.0%} observed"
    return [
        row(f"{size}: whole call", few["fit"], "s"),
        row("  over all cells", dense["fit"], "s"),
        row("  ratio of whole calls", dense["fit"] / few["fit"], "times"),
        row("  ratio of MM steps", dense["step"] / few["step"], "times",
            spec.get("min_ratio"), ">="),
        row("  ratio of peak memories", dense["peak"] / few["peak"], "times"),
    ]  # fmt: skip


def measure(spec: Spec) -> dict[str, Any]:
    """All rows of the case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = by_responses(spec, Path(folder)) + against_dense(spec, Path(folder))
    return {"rows": rows, "load": [load_before, os.getloadavg()[0]]}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(fit_file(given) if "path" in given else measure(given)))
