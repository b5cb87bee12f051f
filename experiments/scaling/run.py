"""Speed and memory of irtjax, against matrix products, other packages and targets.

    python experiments/scaling/run.py                       # small: a few minutes
    python experiments/scaling/run.py --full --json out.json
    python experiments/scaling/run.py --full --case mm

Each case runs in a fresh process. Targets are for the full sizes: at small sizes the
ratios are shown without a verdict. The README beside this file says how each quantity
is defined.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Spec = dict[str, Any]

#: Kinds of cases with a worker of their own name.
APART = (
    "peers", "bayes", "twins", "front_door", "factors", "reading", "sparse", "repeated",
    "comparisons", "predict", "validity",
)  # fmt: skip
#: Cases at their full size, with the targets in the units of the rows.
FULL: dict[str, Spec] = {
    "em_complete": {
        "kind": "em", "subjects": 2211, "items": 12032,
        "max_iteration": 3, "max_fit": 40, "max_gb_above": 1.2,
    },
    "em_large": {
        "kind": "em", "subjects": 11785, "items": 36259,
        "max_seconds": 15, "max_gb": 3, "repeats": 1,
    },
    "em_missing": {
        "kind": "em", "subjects": 2211, "items": 12032, "missing": 0.8,
        "max_iteration": 6,
    },
    "mm": {"kind": "mm", "subjects": 2211, "items": 12032, "max_iteration": 6,
           "repeats": 1},
    "factors": {
        "kind": "factors", "subjects": 2211, "items": 12032, "cells": [541, 12032],
        "max_seconds": 60, "max_gb_above": 1.5, "max_step_ratio": 4,
        "max_cells_ratio": 25, "min_ratio": 50,
        "sparse": [3000, 20_000], "min_sparse_ratio": 10, "max_density_ratio": 5,
    },
    "convergence": {
        "kind": "convergence", "subjects": 5041, "items": 249, "max_iterations": 20,
    },
    "errors": {"kind": "errors", "subjects": 2211, "items": 12032, "repeats": 1},
    "lengths": {
        "kind": "lengths", "subjects": 128, "items": 100,
        "max_em_seconds": 1, "max_saem_seconds": 5,
    },
    "adaptive": {
        "kind": "adaptive", "subjects": 100, "items": 1000, "length": 50, "dims": 4,
        "max_seconds": 0.5, "max_several_seconds": 0.2,
    },
    "audit": {
        "kind": "audit", "subjects": 2211, "items": 12032,
        "max_seconds": 60, "max_gb": 4,
    },
    "bayes": {
        "kind": "bayes", "subjects": 58, "items": 805,
        "warmup": 1000, "draws": 1000, "chains": 4, "min_ratio": 2,
        "fast_subjects": 12, "fast_items": 41871, "fast_groups": 11, "max_seconds": 60,
    },
    "twins": {"kind": "twins", "subjects": 12, "items": 41871, "min_ratio": 20},
    "ranks": {
        "kind": "ranks", "subjects": 500_000, "items": 50,
        "sizes": [10, 1000, 50_000, 500_000], "max_seconds": 3,
    },
    "front_door": {
        "kind": "front_door", "subjects": 10, "items": 240, "targets": True,
        "log_items": 410, "added": [60, 5000],
        "calls": [[50_000, 100], [500_000, 50]], "with_errors": [[2211, 12032]],
    },
    "reading": {
        "kind": "reading", "subjects": 2000, "items": 10_000, "targets": True,
        "logs": [2000, 100],
    },
    "sparse": {
        "kind": "sparse", "subjects": 50_000, "items": 20_000,
        "responses": [500_000, 1_000_000, 2_000_000], "dense": [3000, 20_000],
        "max_bytes": 200, "max_ratio": 6, "min_ratio": 10,
    },
    "repeated": {
        "kind": "repeated", "subjects": 60, "items": 200, "targets": True,
        "sizes": [
            10 * [[60, 200]], 3 * [[10, 240]], 3 * [[200, 40]],
            [[5000, 100], [4997, 100], [4997, 99]],
        ],
    },
    "comparisons": {
        "kind": "comparisons", "subjects": 150, "items": 200_000,
        "max_seconds": 0.05, "max_bootstrap_seconds": 0.5,
        "min_ratios": {"plain": 500, "style": 100},
        "large": 10_000_000, "max_large": 5,
    },
    "predict": {
        "kind": "predict", "subjects": 5041, "items": 249, "side": 1000,
        "claim": [100, 1000], "new": 10_000, "people": [500, 2000],
        "targets": {"folds": 10, "reml": 10, "claim": 1, "new": 2},
    },
    "validity": {
        "kind": "validity", "subjects": 2211, "items": 12032, "fit": [5041, 249],
        "conditional": [[1000, 500], [1000, 5000]],
        "targets": {"dif": 2, "m2": 2, "conditional 500": 1, "conditional 5000": 30},
    },
    "peers": {"kind": "peers", "subjects": 1000, "items": 200},
}  # fmt: skip
#: The same cases, small enough for a look.
SMALL: dict[str, Spec] = {
    "em_complete": {"kind": "em", "subjects": 400, "items": 1000},
    "em_large": {"kind": "em", "subjects": 1200, "items": 2000, "repeats": 1},
    "em_missing": {"kind": "em", "subjects": 400, "items": 1000, "missing": 0.8},
    "mm": {"kind": "mm", "subjects": 400, "items": 1000, "repeats": 1},
    "factors": {"kind": "factors", "subjects": 300, "items": 200},
    "convergence": {
        "kind": "convergence", "subjects": 800, "items": 60, "real": False,
    },
    "errors": {"kind": "errors", "subjects": 400, "items": 300, "repeats": 1},
    "lengths": {"kind": "lengths", "subjects": 60, "items": 20},
    "adaptive": {
        "kind": "adaptive", "subjects": 20, "items": 100, "length": 10, "dims": 2,
    },
    "audit": {"kind": "audit", "subjects": 400, "items": 300},
    "bayes": {
        "kind": "bayes", "subjects": 10, "items": 20,
        "warmup": 200, "draws": 200, "chains": 2,
        "fast_subjects": 12, "fast_items": 100, "fast_groups": 2,
    },
    "twins": {"kind": "twins", "subjects": 12, "items": 1000},
    "ranks": {"kind": "ranks", "subjects": 3000, "items": 50, "sizes": [10, 3000]},
    "front_door": {
        "kind": "front_door", "subjects": 6, "items": 20, "repeats": 1,
        "calls": [[2000, 20]], "with_errors": [[300, 200]],
    },
    "reading": {"kind": "reading", "subjects": 40, "items": 500, "logs": [4, 20]},
    "sparse": {
        "kind": "sparse", "subjects": 1000, "items": 400,
        "responses": [8000, 16_000], "dense": [300, 400],
    },
    "repeated": {
        "kind": "repeated", "subjects": 60, "items": 30, "sizes": [2 * [[60, 30]]],
    },
    "comparisons": {"kind": "comparisons", "subjects": 20, "items": 5000},
    "predict": {
        "kind": "predict", "subjects": 200, "items": 30, "side": 30,
        "claim": [20, 40], "new": 20, "people": [100],
    },
    "validity": {
        "kind": "validity", "subjects": 100, "items": 20, "fit": [200, 10],
        "conditional": [[100, 20]],
    },
    "peers": {"kind": "peers", "subjects": 200, "items": 30},
}  # fmt: skip


def worker(spec: Spec) -> dict[str, Any]:
    """Runs one worker process on a specification and returns what it printed."""
    script = f"{spec['kind']}.py" if spec["kind"] in APART else "measure.py"
    # The checkout beside this file, whether or not the package is installed.
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "JAX_ENABLE_X64": "1" if spec["kind"] in ("convergence", "sparse") else "0",
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / script), json.dumps(spec)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{spec} ended with exit code {done.returncode}")
    # A package under test may print too: the result is the last line.
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_case(spec: Spec) -> dict[str, Any]:
    """One case: its data from one process, its measurements from another."""
    if spec["kind"] in (*APART, "adaptive", "lengths", "ranks"):
        return worker(spec)  # They draw what they need themselves.
    with tempfile.TemporaryDirectory() as folder:
        with_data = spec | {"data": folder}
        worker(with_data | {"kind": "simulate"})
        return worker(with_data)


def verdict(row: dict[str, Any]) -> str:
    """Met, MISSED, or nothing where nothing is wanted."""
    target, value = row["target"], row["value"]
    if target is None:
        return ""
    met = value <= target if row["at"] == "<=" else value >= target
    return "met" if met else "MISSED"


def table(name: str, spec: Spec, result: dict[str, Any]) -> str:
    """The rows of one case as text."""
    missing = f", {spec['missing']:.0%} missing" if "missing" in spec else ""
    load = " to ".join(f"{x:.1f}" for x in result["load"])
    lines = [
        f"{name}: {spec['subjects']:,} x {spec['items']:,}{missing}"
        f"   (load average {load})"
    ]
    for row in result["rows"]:
        target = "" if row["target"] is None else f"{row['at']} {row['target']:,g}"
        digits = ",.0f" if abs(row["value"]) >= 10_000 else ".4g"
        measured = f"{format(row['value'], digits)} {row['unit']}".strip()
        lines.append(
            f"  {row['quantity']:<51} {measured:<24}{target:<14}{verdict(row)}".rstrip()
        )
    lines += [f"  {note}" for note in result.get("notes", ())]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Runs the cases, prints their table, and returns the results by case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a quick look (default)")
    size.add_argument("--full", action="store_true", help="the sizes of the targets")
    parser.add_argument(
        "--case", action="append", choices=list(FULL), help="may be repeated"
    )
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args(argv)
    specs = FULL if options.full else SMALL
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, {'full' if options.full else 'small'} sizes"
    )
    results: dict[str, dict[str, Any]] = {}
    failed = []
    for name in options.case or specs:
        try:
            results[name] = {"spec": specs[name], **run_case(specs[name])}
        except RuntimeError as error:
            # The other cases still tell something; the failure is reported last.
            failed.append(f"{name} FAILED: {error}")
            print(failed[-1], flush=True)
            continue
        print("\n" + table(name, specs[name], results[name]), flush=True)
    missed = [
        f"{name}: {row['quantity']}"
        for name, result in results.items()
        for row in result["rows"]
        if verdict(row) == "MISSED"
    ]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(
        "\n"
        + "\n".join(["Targets missed:", *missed] if missed else ["No target missed."])
    )
    if failed:
        raise SystemExit("\n".join(failed))
    return results


if __name__ == "__main__":
    main()
