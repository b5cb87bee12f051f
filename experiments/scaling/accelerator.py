"""The same fits on the processor and on an accelerator: numbers and seconds.

    python experiments/scaling/accelerator.py                # of this machine
    python experiments/scaling/accelerator.py --large        # and large data

Reference of every number is double precision on the processor. An accelerator may
multiply single-precision matrices with fewer digits by default, which irtjax turns off;
`--as-is` leaves that as JAX has it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import irtjax
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items

#: Model, method, settings, subjects and items.
CASES: list[tuple[str, str, dict[str, Any], int, int]] = [
    ("2pl", "em", {}, 400, 100),
    ("2pl", "mm", {}, 400, 100),
    ("3pl", "gradient", {}, 400, 60),
    ("2pl", "laplace", {}, 10, 240),
    ("graded", "em", {}, 300, 20),
    ("factor", "mm", {"factors": 4, "rotation": "none"}, 400, 200),
]


def table_of(model: str, subjects: int, items: int) -> irtjax.ResponseTable:
    """Simulated responses of a size."""
    if model == "graded":
        rng = np.random.default_rng(0)
        ability = rng.normal(size=(subjects, 1)) + rng.normal(size=items)
        cuts = np.array([-1.0, 0.5, 1.5])
        noise = rng.logistic(size=(subjects, items))
        values = (1.2 * ability + noise)[:, :, None] > cuts
        return irtjax.ResponseTable.from_arrays(values.sum(axis=2).astype(np.int8))
    keys = jax.random.split(jax.random.key(0), 3)
    two = irtjax.MODELS["2pl"]()
    with jax.default_device(jax.devices("cpu")[0]):
        truth = simulate_items(two, items, keys[0], dtype=jnp.float32)
        theta = simulate_abilities(subjects, keys[1], dtype=jnp.float32)
        values = np.asarray(jax.jit(simulate)(two, truth, theta, keys[2]).values)
    return irtjax.ResponseTable.from_arrays(values)


def numbers(table, case, dtype, device) -> tuple[dict[str, np.ndarray], float, str]:
    """Numbers of a fit by name, seconds of a second call, and its status."""
    model, method, settings, *_ = case
    call = lambda: irtjax.fit(table, model, method=method, dtype=dtype, **settings)
    with jax.default_device(device):
        call()
        began = time.perf_counter()
        fit = call()
        seconds = time.perf_counter() - began
    columns = fit.abilities.table.sort_by("subject")
    get = lambda name: columns[name].to_numpy(zero_copy_only=False)
    found = {
        "log-likelihood": np.asarray(fit.log_likelihood),
        "ability": get("ability"),
        "ability_se": get("ability_se"),
        "expected_score": get("expected_score"),
        "difficulty": fit.items.table["difficulty"].to_numpy(zero_copy_only=False),
    }
    return found, seconds, fit.status.name


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, as a share of the spread of the reference (or its size)."""
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    good = np.isfinite(wanted)
    scale = np.std(wanted[good]) if wanted.ndim else abs(wanted)
    return float(np.max(np.abs(found - wanted)[good]) / scale)


def compare(case, devices, precision: str | None) -> list[dict[str, Any]]:
    """Rows of one case: each device and precision against the processor's double."""
    table = table_of(case[0], *case[3:])
    cpu = jax.devices("cpu")[0]
    wanted, seconds, status = numbers(table, case, jnp.float64, cpu)
    rows = [{"case": f"{case[0]} by {case[1]}", "device": "cpu", "dtype": "float64",
             "seconds": seconds, "status": status}]  # fmt: skip
    for device in devices:
        for dtype in (jnp.float64, jnp.float32):
            if device == cpu and dtype == jnp.float64:
                continue
            given = contextlib.nullcontext()
            if precision is not None:
                given = jax.default_matmul_precision(precision)
            with given:
                found, seconds, status = numbers(table, case, dtype, device)
            row = {"case": f"{case[0]} by {case[1]}", "device": device.platform,
                   "dtype": np.dtype(dtype).name, "seconds": seconds,
                   "status": status}  # fmt: skip
            row |= {k: difference(found[k], v) for k, v in wanted.items()}
            rows.append(row)
    return rows


def show(row: dict[str, Any]) -> str:
    """A row as text."""
    first = f"{row['case']:<18}{row['device']:<5}{row['dtype']:<9}"
    first += f"{row['seconds']:8.3f} s  {row['status']:<14}"
    shown = {k: v for k, v in row.items() if isinstance(v, float) and k != "seconds"}
    return first + "  ".join(f"{k} {v:.1e}" for k, v in shown.items())


def large(device, precision: str | None) -> None:
    """Seconds of whole calls on a leaderboard of 2,211 x 12,032, single precision."""
    table = table_of("2pl", 2211, 12032)
    given = contextlib.nullcontext()
    if precision is not None:
        given = jax.default_matmul_precision(precision)
    for model, method, settings in (
        ("2pl", "em", {}),
        ("2pl", "mm", {}),
        ("factor", "mm", {"factors": 8, "rotation": "none"}),
    ):
        with given, jax.default_device(device):
            call = lambda a=model, b=method, c=settings: irtjax.fit(
                table, a, method=b, dtype=jnp.float32, standard_errors="none", **c
            )
            call()
            began = time.perf_counter()
            fit = call()
            seconds = time.perf_counter() - began
        phases = ", ".join(f"{k} {v:.2f}" for k, v in fit.timings.items() if v > 0.01)
        print(
            f"2,211 x 12,032 {model} by {method} on {device.platform}: {seconds:.2f} s"
            f" ({phases}), {fit.num_steps} steps, {fit.status.name},"
            f" log-likelihood {fit.log_likelihood:.1f}",
            flush=True,
        )


def main() -> None:
    """Prints a row for each fit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--as-is", action="store_true")
    parser.add_argument("--accelerator-only", action="store_true")
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    devices = [jax.devices("cpu")[0]]
    if jax.default_backend() != "cpu":
        devices.append(jax.devices()[0])
    print(jax.__version__, [d.device_kind for d in devices], flush=True)
    if options.accelerator_only:
        devices = devices[-1:]
    # What irtjax sets itself; bfloat16 and TensorFloat-32 are the devices' own choices.
    precision = "default" if options.as_is else None
    rows = []
    for case in CASES[: options.cases]:
        for row in compare(case, devices, precision):
            print(show(row), flush=True)
            rows.append(row)
    if options.large:
        large(devices[-1], precision)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
