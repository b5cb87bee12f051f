"""Fits of many data sets of one size: what is compiled, and what runs.

    python experiments/scaling/run.py --full --case repeated

Each size has two processes that share an empty folder of stored programs. The first
fits several data sets by the default `irtjax.fit`, the second the first of them again.
Times are of the processor (all threads), without the imports of irtjax and JAX.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

Row = dict[str, Any]
#: Events of JAX that are spent on tracing, lowering and compiling.
EVENTS = "/jax/core/compile/"


class Compiling:
    """Processor seconds in which this process compiles, and programs compiled."""

    def __init__(self) -> None:
        from jax import monitoring

        self.seconds, self.programs, self._open, self._since = 0.0, 0, 0, 0.0
        monitoring.register_scalar_listener(self._begin)
        monitoring.register_event_time_span_listener(self._end)

    def _begin(self, event: str, value: float, **given: Any) -> None:
        if event.startswith(EVENTS):
            self._since = self._since if self._open else time.process_time()
            self._open += 1

    def _end(
        self, event: str, start_time: float, end_time: float, **given: Any
    ) -> None:
        if event.startswith(EVENTS):
            self.programs += "backend_compile" in event
            self._open -= 1
            if not self._open:
                self.seconds += time.process_time() - self._since


def simulate(subjects: int, items: int, seed: int):
    """Responses of a 2PL, discriminations log-normal about 1.5.

    So all data sets of 60 x 200 are fitted by `em`: of less discrimination some have
    `laplace`, whose programs are compiled once more.
    """
    import irtjax

    rng = np.random.default_rng(seed)
    ability, slope = rng.normal(size=(subjects, 1)), rng.lognormal(0.4, 0.3, items)
    logit = slope * ability + rng.normal(0, 1, items)
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    return irtjax.ResponseTable.from_arrays(right.astype(np.int8))


def fits(sizes: list[list[int]]) -> list[dict[str, float]]:
    """The default fit of a data set of each size: seconds, and programs compiled."""
    import irtjax

    compiling, found = Compiling(), []
    # Imports, and the start of a backend.
    irtjax.ResponseTable.from_arrays(np.eye(8, dtype=np.int8)).responses()
    fit = irtjax.fit
    for seed, (subjects, items) in enumerate(sizes):
        table = simulate(subjects, items, seed)
        before = compiling.seconds, compiling.programs
        began = time.process_time()
        fit(table)
        total = time.process_time() - began
        compiled = compiling.seconds - before[0]
        found.append(
            {"total": total, "compile": compiled, "run": total - compiled,
             "programs": compiling.programs - before[1]}
        )  # fmt: skip
    return found


def in_child(sizes: list[list[int]], folder: str) -> list[dict[str, float]]:
    """`fits` in a process of its own, with stored programs in a folder."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(sizes), "child"],
        # As the command line does: idle threads of OpenBLAS spin.
        env=os.environ | {"IRTJAX_CACHE_DIR": folder, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Rows of the case, with the load of the machine around it."""
    load_before, rows = os.getloadavg()[0], []

    def add(quantity: str, of: dict[str, float], target: float | None) -> None:
        for name in ("total", "compile", "run"):
            limit = target if name == "total" and spec.get("targets") else None
            rows.append(
                {"quantity": f"{quantity}: {name}", "value": of[name], "unit": "s",
                 "target": limit, "at": "<="}
            )  # fmt: skip
        rows.append(
            {"quantity": f"{quantity}: programs compiled", "value": of["programs"],
             "unit": "", "target": None, "at": "<="}
        )  # fmt: skip

    for sizes in spec["sizes"]:
        name = " and ".join(
            f"{subjects} x {items}"
            for subjects, items in dict.fromkeys(tuple(x) for x in sizes)
        )
        with tempfile.TemporaryDirectory() as folder:
            first, *others = in_child(sizes, folder)
            again = in_child(sizes[:1], folder)[0]
        worst = max(others, key=lambda one: one["total"])
        add(f"{name}, first", first, None)
        add(f"{name}, slowest of {len(others)} others", worst, 0.5)
        add(f"{name}, first of a second process", again, 2.0)
    return {
        "rows": rows,
        "load": [load_before, os.getloadavg()[0]],
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    child = len(sys.argv) > 2
    print(json.dumps(fits(given) if child else measure(given)))
