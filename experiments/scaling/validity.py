"""Measures tests of items and of models; worker of `run.py`.

    python experiments/scaling/validity.py '{"subjects": 200, "items": 40}'

Seconds of processor time and of the clock, the least of some calls after one that
compiles; targets are of processor time, since other work stretches the clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    # As the command line does: idle threads of OpenBLAS spin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import irtjax
from experiments.scaling.predict import responses, row
from irtjax.estimators.conditional.items import fit_items
from irtjax.validity.group_scores import Normals, group_steps
from irtjax.validity.score_tests import step_tests


def timed(
    quantity: str, call: Callable[[], Any], repeats: int, target: float | None
) -> list[dict[str, Any]]:
    """Rows of processor time and of the clock."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time(), time.perf_counter()
        call()
        times.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    processor, clock = np.min(times, axis=0)
    return [
        row(f"{quantity}: processor", float(processor), target),
        row(f"{quantity}: clock", float(clock), None),
    ]


def differential(
    subjects: int, items: int, repeats: int, target: float | None
) -> list[dict[str, Any]]:
    """Tests of all items by two groups, whole calls and the score tests of a fit."""
    table = responses(subjects, items)
    codes = np.arange(subjects) % 2
    labels = np.array(["a", "b"])[codes]
    rows = []
    for method in ("mh", "logistic", "score"):
        call = lambda method=method: irtjax.dif(table, labels, method=method)
        rows += timed(f"DIF by {method}", call, repeats, target)
    rng = np.random.default_rng(1)
    slope, intercept = np.exp(0.3 * rng.normal(size=items)), rng.normal(size=items)
    both = lambda x: np.stack([x, x])
    normals = Normals(both(slope), both(intercept), np.zeros(2), np.ones(2))
    right = np.asarray(table.values, np.float64)
    # As many as `irtjax.dif` takes: as far apart as the narrowest posterior is wide.
    count = 2 * int(np.ceil(6 * np.sqrt(1 + items / 2))) + 1
    nodes = np.linspace(-6, 6, max(count, 49))
    tests = lambda: step_tests(group_steps(right, None, codes, normals, nodes))
    return rows + timed("score tests alone, given the fit", tests, repeats, target)


def measure(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of all quantities."""
    repeats = spec.get("repeats", 1)
    target = lambda name: spec.get("targets", {}).get(name)
    rows = differential(spec["subjects"], spec["items"], repeats, target("dif"))
    table = responses(*spec["fit"])
    fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
    name = "M2 of {:,} x {:,}".format(*spec["fit"])
    call = lambda: irtjax.fit_statistics(fit, table)
    rows += timed(name, call, repeats, target("m2"))
    for subjects, items in spec["conditional"]:
        codes = np.asarray(responses(subjects, items).values, np.int64)
        name = f"Rasch by conditional likelihood, {subjects:,} x {items:,}"
        call = lambda codes=codes: fit_items(codes, None, "rasch")
        rows += timed(name, call, repeats, target(f"conditional {items}"))
    return rows


if __name__ == "__main__":
    load = [os.getloadavg()[0]]
    lines = measure(json.loads(sys.argv[1]))
    print(json.dumps({"rows": lines, "load": [*load, os.getloadavg()[0]]}))
