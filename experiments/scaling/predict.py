"""Measures what predicts and what separates noise from difference; worker of `run.py`.

    python experiments/scaling/predict.py '{"subjects": 200, "items": 40}'

Seconds are of processor time, the least of some calls after one that compiles, since
other work on the machine stretches wall time.
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

#: Prior scales of the cross-validation, and folds of it.
SCALES, FOLDS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0), 5
#: Items by which subjects of new items are scored.
OLD = 100


def least(call: Callable[[], Any], repeats: int) -> float:
    """Least processor time of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def row(quantity: str, seconds: float, target: float | None) -> dict[str, Any]:
    """One row of the table."""
    values = dict(quantity=quantity, value=seconds, unit="s", target=target)
    return values | {"at": "<="}


def responses(subjects: int, items: int, seed: int = 0) -> irtjax.ResponseTable:
    """Right and wrong responses of a 2PL."""
    rng = np.random.default_rng(seed)
    slope = np.exp(0.3 * rng.normal(size=items)).astype(np.float32)
    gap = rng.normal(size=(subjects, 1)) - rng.normal(size=items)
    chance = 1 / (1 + np.exp(-slope * gap.astype(np.float32)))
    values = (rng.random(chance.shape, dtype=np.float32) < chance).astype(np.int8)
    names = np.array([f"q{k}" for k in range(items)])
    people = np.array([f"m{k}" for k in range(subjects)])
    return irtjax.ResponseTable(people, names, values)


def measure(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of all quantities."""
    subjects, items, repeats = spec["subjects"], spec["items"], spec.get("repeats", 2)
    target = lambda name: spec.get("targets", {}).get(name)
    rows = []
    validate = getattr(irtjax, "cross_validate", None)
    if validate is not None:
        table = responses(subjects, items)
        call = lambda: validate(table, ["2pl"], prior_scales=SCALES, folds=FOLDS)
        name = f"{FOLDS} x {len(SCALES)} cross-validation of a 2PL"
        rows.append(row(name, least(call, 1), target("folds")))
    side = spec["side"]
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(side, 1)) + rng.normal(size=side)
    scores = scores + rng.normal(size=(side, side))
    study = lambda x: lambda: irtjax.generalisability(x)
    name = f"REML of {side} x {side} scores"
    rows.append(row(name, least(study(scores), repeats), target("reml")))
    gaps = np.where(rng.random(scores.shape) < 0.1, np.nan, scores)
    name += ", 10 % missing"
    rows.append(row(name, least(study(gaps), repeats), target("reml")))
    table = responses(*spec["claim"], seed=2)
    claim = lambda: irtjax.claim("m1 in top 3", table)
    name = "claim of a rank, {:,} x {:,}".format(*spec["claim"])
    rows.append(row(name, least(claim, repeats), target("claim")))
    for people in spec["people"]:
        table = responses(people, OLD + spec["new"], seed=3)
        old = table.select(items=np.arange(OLD))
        fit = irtjax.fit(old, "2pl", "em", standard_errors="none")
        fresh = table.select(items=np.arange(OLD, OLD + spec["new"]))
        call = lambda fit=fit, fresh=fresh: irtjax.calibrate_items(fit, fresh)
        name = f"{spec['new']:,} new items of {people:,} subjects"
        rows.append(row(name, least(call, repeats), target("new")))
    return rows


if __name__ == "__main__":
    load = [os.getloadavg()[0]]
    lines = measure(json.loads(sys.argv[1]))
    print(json.dumps({"rows": lines, "load": [*load, os.getloadavg()[0]]}))
