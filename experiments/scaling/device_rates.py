"""Rates of passes and steps on one device, in under four minutes: one prepared script.

    python experiments/scaling/device_rates.py                       # an accelerator
    python experiments/scaling/device_rates.py --responses 1e5 1e6   # try it anywhere

Complete responses of a 2PL are drawn on the device. For each size: the passes of EM on
61 nodes, the steps of MM with one and with eight abilities, and, for comparison, the
product of the responses with a matrix of items by nodes. `accelerator.py` compares
numbers of whole fits with those of the processor; here small ones are compared first.
A size is left out once more than `--seconds` have gone by.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import irtjax
from irtjax.likelihood.counts import expected_counts
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.numerics.kernels import block_size_for, scan_subject_blocks, take_block
from irtjax.numerics.precision import full_precision

#: Nodes of a pass.
NODES = 61


def responses(subjects: int, items: int) -> irtjax.Responses:
    """Complete responses of a 2PL, drawn a block at a time."""
    keys = jax.random.split(jax.random.key(0), 4)
    slope = jax.random.uniform(keys[0], (items,), minval=0.5, maxval=1.5)
    intercept = jax.random.normal(keys[1], (items,))
    size = max(1, min(subjects, 2**24 // items))

    @jax.jit
    def drawn() -> jax.Array:
        ability = jax.random.normal(keys[2], (subjects, 1))

        def body(values, start, is_new):
            del is_new
            logit = slope * take_block(ability, start, size) + intercept
            uniform = jax.random.uniform(
                jax.random.fold_in(keys[3], start), logit.shape
            )
            part = (uniform < jax.nn.sigmoid(logit)).astype(jnp.int8)
            return lax.dynamic_update_slice_in_dim(values, part, start, 0)

        empty = jnp.zeros((subjects, items), jnp.int8)
        return scan_subject_blocks(body, empty, subjects, size)

    return irtjax.Responses(drawn())


def least(function: Callable[[], Any], times: int = 2) -> float:
    """Least seconds of a call, after one that compiles."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def product_seconds(data: irtjax.Responses, dtype: Any) -> float:
    """Seconds of responses times a matrix of items by nodes, block by block."""
    subjects, items = data.values.shape
    size = block_size_for(subjects, items, jnp.dtype(dtype).itemsize)
    matrix = jnp.ones((items, NODES), dtype)

    @jax.jit
    @full_precision
    def product(values, matrix):
        def body(total, start, is_new):
            del is_new
            return total + take_block(values, start, size).astype(dtype) @ matrix

        return scan_subject_blocks(
            body, jnp.zeros((size, NODES), dtype), subjects, size
        )

    return least(lambda: product(data.values, matrix))


def pass_seconds(data: irtjax.Responses, dtype: Any) -> float:
    """Seconds of a pass of EM: expected counts at the nodes."""
    model = irtjax.MODELS["2pl"]()
    start = irtjax.start_values(model, data, dtype=dtype)
    nodes = jnp.linspace(-6, 6, NODES, dtype=dtype)

    @jax.jit
    @full_precision
    def counts(data, items):
        return expected_counts(model, items, nodes, -(nodes**2) / 2, data).statistics

    return least(lambda: counts(data, start.items))


def step_seconds(data: irtjax.Responses, dims: int, dtype: Any) -> float:
    """Seconds of a step of MM."""
    model = factor_model(Factor(factors=dims)) if dims > 1 else irtjax.MODELS["2pl"]()
    problem, method = irtjax.Problem.create(model, data), irtjax.MM()
    start = irtjax.start_values(model, data, dtype=dtype)

    @jax.jit
    @full_precision
    def step(problem, state):
        return method.step(problem, state, None)

    problem = method.prepared(problem)
    state = step(problem, jax.jit(method.init)(problem, start, None))
    return least(lambda: step(problem, state))


def rows_of(data: irtjax.Responses, dtype: Any) -> list[dict[str, Any]]:
    """Seconds and rates of each quantity; operations are those of its products."""
    size, name = data.values.size, jnp.dtype(dtype).name
    rows = []
    quantities = [
        ("product", lambda: product_seconds(data, dtype), 2 * NODES),
        ("pass of EM", lambda: pass_seconds(data, dtype), 4 * NODES),
        ("step of MM, K = 1", lambda: step_seconds(data, 1, dtype), 8),
        ("step of MM, K = 8", lambda: step_seconds(data, 8, dtype), 48),
    ]
    for what, seconds, operations in quantities:
        taken = seconds()
        rows.append(
            {
                "responses": size,
                "dtype": name,
                "quantity": what,
                "seconds": taken,
                "FLOP/s": operations * size / taken,
            }
        )
    return rows


def parity(device: Any) -> list[dict[str, Any]]:
    """Log-likelihoods of a small fit on the device, relative to the processor's."""
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        values = jax.device_get(responses(400, 60).values)
    table = irtjax.ResponseTable.from_arrays(values)

    def fitted(place, method, dtype):
        with jax.default_device(place):
            options = {"standard_errors": "none", "dtype": dtype}
            return irtjax.fit(table, "2pl", method, **options).log_likelihood

    rows = []
    for method in ("em", "mm"):
        reference = fitted(cpu, method, jnp.float64)
        for dtype in (jnp.float32, jnp.float64):
            ratio = fitted(device, method, dtype) / reference - 1
            what = f"log-likelihood by {method}, relative to the processor"
            rows.append(
                {"dtype": jnp.dtype(dtype).name, "quantity": what, "difference": ratio}
            )
    return rows


def main() -> None:
    """Prints a line for each number, and writes them all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--responses", type=float, nargs="+", default=[1e8, 1e9])
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    print(jax.__version__, device.device_kind, flush=True)
    rows = []

    def add(new: list[dict[str, Any]]) -> None:
        for row in new:
            print(json.dumps(row), flush=True)
            rows.append(row)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")

    add(parity(device))
    for count in options.responses:
        items = min(10_000, math.isqrt(int(count)))
        data = responses(int(count) // items, items)
        for dtype in (jnp.float32, jnp.float64):
            if time.perf_counter() - began > options.seconds:
                print(f"left out: {count:g} responses in {jnp.dtype(dtype).name}")
                continue
            add(rows_of(data, dtype))
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
