"""Measures the processor time of the command line on small data.

    python experiments/scaling/front_door.py '{"subjects": 12, "items": 240}'

Worker of `run.py`. Each number is user plus system time of a child process. Cold is
with an empty cache folder, warm with the folder that a cold run has filled; compiled
Python files exist in both.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

Spec = dict[str, Any]
Row = dict[str, Any]
#: Responses of 1,000 subjects to five items of the Law School Admission Test, section 7
#: (Bock and Lieberman 1970), where the checkout has the data beside it.
LSAT7 = Path(__file__).resolve().parents[3] / "shared/data/classic/lsat7.parquet"


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


def processor_seconds(arguments: list[str], cache: Path) -> float:
    """User and system time of one run of the command line."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTHONDONTWRITE"))
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "irtjax", *arguments],
        env=inherited | {"XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return user + system


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of the case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    repeats = spec.get("repeats", 5)
    rows: list[Row] = []

    def add(quantity: str, seconds: list[float], target: float | None) -> None:
        rows.append(
            {"quantity": quantity, "value": statistics.median(seconds), "unit": "s",
             "target": target if spec.get("targets") else None, "at": "<="}
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        is_real = write_lsat7(place / "lsat7.csv")
        write_responses(place / "default.csv", spec["subjects"], spec["items"])
        processor_seconds(["--help"], place)
        found = [processor_seconds(["--help"], place) for _ in range(repeats)]
        add("irtjax --help", found, 0.3)
        default = f"{spec['subjects']} x {spec['items']}"
        for name, data, more, cold_target, warm_target in (
            ("LSAT7, tables", "lsat7", ["--no-figures"], 8, 2),
            ("LSAT7, figures", "lsat7", [], None, 3.5),
            (default, "default", [], None, 5),
        ):
            fit = ["fit", str(place / f"{data}.csv"), *more, "--overwrite"]
            fit += ["--out", str(place / "out")]
            cold, warm = [], []
            for k in range(repeats):
                cache = place / f"{name} {k}"
                cold.append(processor_seconds(fit, cache))
                warm.append(processor_seconds(fit, cache))
            add(f"{name}, cold", cold, cold_target)
            add(f"{name}, warm", warm, warm_target)
    return {
        "rows": rows,
        "load": [load_before, os.getloadavg()[0]],
        "notes": [] if is_real else ["LSAT7: simulated, the data are not here"],
    }


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
