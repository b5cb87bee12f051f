"""Measures one case in this process and prints JSON: the worker of `run.py`.

    python experiments/scaling/measure.py '{"kind": "em", "subjects": 99, "items": 50}'

A process of its own keeps the memory of one case out of the next. Data come from a
folder written by the kind "simulate", so that the memory of drawing them does not
count either.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import irtjax
from irtjax import ranking
from irtjax._types import Status
from irtjax.adaptive import Design, FactorBank, ItemBank
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.estimators.driver import Run, begin_jit, loop_of, run_jit
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.refinement import LARGE
from irtjax.estimators.marginal.saem import SAEM
from irtjax.estimators.start import start_values
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.catalogue import factor_model, latency_response, two_parameter
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Population
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_length_items,
    simulate_log_lengths,
)
from irtjax.numerics.kernels import equal_nodes

Spec = dict[str, Any]
Row = dict[str, Any]
#: Published marginal log-likelihood to reach on the real data, at 241 nodes.
GSM8K_LOG_LIKELIHOOD = -409_792.3
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "metabench"


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:  # Not Linux: may include what the parent held when it forked.
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size if sys.platform == "darwin" else size * 1024
    line = next(x for x in status.splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def best_seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Least wall-clock time of several calls, after one that compiles."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return min(times)


def row(
    quantity: str,
    value: float,
    unit: str = "",
    target: float | None = None,
    at: str = "<=",
) -> Row:
    """One measured quantity, with what is wanted of it where something is."""
    return {
        "quantity": quantity,
        "value": float(value),
        "unit": unit,
        "target": target,
        "at": at,
    }


def draw(subjects: int, items: int, missing: float = 0.0, seed: int = 0):
    """Responses of the cBMM paper's design A.6: a ~ U(0.5, 1), d ~ N(0, 0.5^2)."""
    model = two_parameter()
    keys = jax.random.split(jax.random.key(seed), 3)
    truth = simulate_items(model, items, keys[0], dtype=jnp.float32)
    theta = simulate_abilities(subjects, keys[1], dtype=jnp.float32)
    make = jax.jit(simulate, static_argnames="missing")
    return make(model, truth, theta, keys[2], missing=missing)


def write_data(spec: Spec) -> list[Row]:
    """Draws responses block by block and writes them as .npy files."""
    folder = Path(spec["data"])
    began = time.perf_counter()
    data = draw(spec["subjects"], spec["items"], spec.get("missing", 0.0))
    np.save(folder / "values.npy", np.asarray(data.values))
    if data.observed is not None:
        np.save(folder / "observed.npy", np.asarray(data.observed))
    return [
        row("seconds to draw", time.perf_counter() - began, "s"),
        row("share right", float(jnp.mean(data.values, dtype=jnp.float32))),
    ]


def load(spec: Spec) -> irtjax.ResponseTable:
    """The table of a case, with its arrays in memory as a reader leaves them."""
    if "data" not in spec:
        data = draw(spec["subjects"], spec["items"], spec.get("missing", 0.0))
        values = np.asarray(data.values)
        observed = None if data.observed is None else np.asarray(data.observed)
    else:
        values = np.load(Path(spec["data"]) / "values.npy")
        path = Path(spec["data"]) / "observed.npy"
        observed = np.load(path) if path.exists() else None
    subjects, items = (np.arange(size).astype(np.str_) for size in values.shape)
    return irtjax.ResponseTable(subjects, items, values, observed)


def raw_bytes(table: irtjax.ResponseTable) -> int:
    """Size of the int8 matrix, and of the mask where cells are missing."""
    mask = 0 if table.observed is None else table.observed.nbytes
    return table.values.nbytes + mask


def memory_rows(table: irtjax.ResponseTable, before: int, spec: Spec) -> list[Row]:
    """What the process held at most, before any reference is computed."""
    peak, raw = peak_bytes(), raw_bytes(table)
    return [
        row("peak memory", peak / 1e9, "GB", spec.get("max_gb")),
        row("peak above the raw data", (peak - raw) / 1e9, "GB",
            spec.get("max_gb_above")),
        row("  of which before the fit (Python, JAX)", (before - raw) / 1e9, "GB"),
        row("peak above the raw data, per response",
            (peak - raw) / table.num_observed, "B"),
        row("  of which due to the fit", (peak - before) / table.num_observed, "B"),
    ]  # fmt: skip


def fit_twice(table, spec: Spec, **options) -> tuple[irtjax.Calibration, list[Row]]:
    """A user's call, first with compilation and then, best of a few, without."""
    call = lambda: irtjax.fit(table, "2pl", dtype=jnp.float32, **options)
    began = time.perf_counter()
    first = call()
    cold = time.perf_counter() - began
    compiling = first.timings["compile"]
    found: list[tuple[float, irtjax.Calibration]] = []
    for _ in range(spec.get("repeats", 3)):
        began = time.perf_counter()
        again = call()
        found.append((time.perf_counter() - began, again))
    warm, best = min(found, key=lambda pair: pair[0])
    return best, [
        row("first call", cold, "s"),
        row("  of which compiling", compiling, "s"),
        row("whole call after compilation", warm, "s", spec.get("max_seconds")),
        *(
            row("  compiling again" if k == "compile" else f"  {k}", v, "s")
            for k, v in best.timings.items()
        ),
        row("  outside every phase", warm - sum(best.timings.values()), "s"),
        row("iterations", best.num_steps),
        row("converged", best.status == Status.CONVERGED, "", 1.0, ">="),
    ]


def iteration_seconds(problem, method, start, first: int, last: int) -> float:
    """Seconds per iteration from step `first` to step `last`, or to the end."""
    max_steps = 1000

    def until(step, loop):
        return run_jit(
            problem, method, start, max_steps=max_steps, resume=loop,
            stop_after=jnp.asarray(step, jnp.int32),
        )  # fmt: skip

    loop = begin_jit(problem, method, start, max_steps=max_steps)
    if first:
        loop = loop_of(until(first, loop))
    reached = int(until(last, loop).num_steps)
    if reached == first:
        raise RuntimeError(f"the fit ended within {first} steps: nothing to time")
    return best_seconds(lambda: until(last, loop), 3) / (reached - first)


def prepared(table: irtjax.ResponseTable) -> tuple[Problem, Any]:
    """Problem and start values as `irtjax.fit` makes them in single precision."""
    if table.values.size >= LARGE:
        order = np.argsort(table.subject_accuracy(), kind="stable")
        table = table.select(subjects=order)
    model, data = two_parameter(), table.responses(jnp.float32)
    start = eqx.filter_jit(start_values)(model, data, dtype=jnp.float32)
    start = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start)
    return Problem.create(model, data), start


def product_seconds(table: irtjax.ResponseTable, num_nodes: int) -> float:
    """One product of the data as float32 with an (items x nodes) matrix."""
    matrix = jnp.asarray(table.values, jnp.float32)
    right = jax.random.normal(jax.random.key(0), (table.num_items, num_nodes))
    right = right.astype(jnp.float32)
    multiply = jax.jit(jnp.matmul)
    return best_seconds(lambda: multiply(matrix, right), 5)


def measure_em(spec: Spec) -> list[Row]:
    """A whole fit and its iterations against one matrix product."""
    table = load(spec)
    jnp.zeros(()).block_until_ready()
    before = peak_bytes()
    fit, rows = fit_twice(table, spec, standard_errors="none")
    rows += memory_rows(table, before, spec)
    assert fit.resolution is not None
    num_nodes = fit.resolution.num_nodes
    problem, start = prepared(table)
    # The method as chosen for these data: its nodes, window and tolerance.
    method = EM().solve(problem, start, Run(Clock())).method
    mean = iteration_seconds(problem, method, start, 0, 1000)
    later = iteration_seconds(problem, method, start, 1, 4)
    del problem, start
    product = product_seconds(table, num_nodes)
    flops = 2 * table.values.size * num_nodes / product
    fitting_only = fit.timings["start"] + fit.timings["run"]
    rows += [
        row("nodes", num_nodes),
        row("nodes in the window (0: no window)", method.window),
        row("one matrix product", product, "s"),
        row("  its speed", flops / 1e9, "GFLOP/s"),
        row("EM iteration, mean over the fit", mean, "s"),
        row("EM iteration, mean over the fit", mean / product, "products",
            spec.get("max_iteration")),
        row("EM iteration, steps 2 to 4", later / product, "products"),
        row("whole fit (start values and EM)", fitting_only / product, "products",
            spec.get("max_fit")),
    ]  # fmt: skip
    return rows


def measure_mm(spec: Spec) -> list[Row]:
    """Joint estimation: an iteration against an elementwise sigmoid of the matrix."""
    table = load(spec)
    jnp.zeros(()).block_until_ready()
    before = peak_bytes()
    _, rows = fit_twice(
        table, spec, method="mm", standard_errors="none",
        max_steps=spec.get("max_steps"),
    )  # fmt: skip
    rows += memory_rows(table, before, spec)
    problem, start = prepared(table)
    seconds = iteration_seconds(problem, MM(tolerance=0.0), start, 2, 12)
    del problem, start
    predictor = jax.random.normal(jax.random.key(0), table.values.shape, jnp.float32)
    sigmoid = best_seconds(lambda: _sigmoid(predictor))
    summed = best_seconds(lambda: _sigmoid_sum(predictor))
    return [
        *rows,
        row("one elementwise sigmoid, written out", sigmoid, "s"),
        row("one elementwise sigmoid, summed by rows", summed, "s"),
        row("MM iteration", seconds, "s"),
        row("MM iteration", seconds / sigmoid, "sigmoid passes",
            spec.get("max_iteration")),
        row("MM iteration", seconds / summed, "summed sigmoid passes"),
    ]  # fmt: skip


_sigmoid = jax.jit(jax.nn.sigmoid)
_sigmoid_sum = jax.jit(lambda x: jnp.sum(jax.nn.sigmoid(x), axis=1))


def measure_errors(spec: Spec) -> list[Row]:
    """Standard errors and scores, as phases of a user's call."""
    table = load(spec)
    jnp.zeros(()).block_until_ready()
    before = peak_bytes()
    _, rows = fit_twice(table, spec, standard_errors="observed", item_uncertainty=True)
    return rows + memory_rows(table, before, spec)


def measure_convergence(spec: Spec) -> list[Row]:
    """EM iterations to a parameter change below 1e-3, in double precision."""
    if not jax.config.jax_enable_x64:
        raise RuntimeError("this case needs float64: set JAX_ENABLE_X64=1")
    path = SHARED / "gsm8k_2pl_responses.parquet"
    real = spec.get("real", True) and path.exists()
    table = irtjax.read(path) if real else load(spec)
    data = table.responses(jnp.float64)
    problem = Problem.create(two_parameter(None), data)
    start = eqx.filter_jit(start_values)(problem.model, data)
    method = EM(jnp.asarray(equal_nodes(-6.0, 6.0, spec.get("nodes", 241))))
    began = time.perf_counter()
    loop = begin_jit(problem, method, start, max_steps=500)
    previous, needed, fit = None, 0, None
    while fit is None or int(fit.status) == Status.RUNNING:
        step = int(loop.step) + 1
        fit = run_jit(
            problem, method, start, max_steps=500, resume=loop,
            stop_after=jnp.asarray(step, jnp.int32),
        )  # fmt: skip
        loop, items = loop_of(fit), fit.parameters.items
        now = np.stack([items.discrimination, items.intercept])
        # A refused step leaves the best point where it was: no sign of convergence.
        if previous is not None and int(fit.state.refused) == 0 and not needed:
            needed = step if np.abs(now - previous).max() < 1e-3 else 0
        previous = now
    stepping = time.perf_counter() - began
    whole = best_seconds(
        lambda: run_jit(problem, method, start, max_steps=500), 3
    )  # fmt: skip
    steps = int(fit.num_steps)
    return [
        row("real data (1) or simulated (0)", real),
        row("iterations to a change of 1e-3", needed or np.inf, "",
            spec.get("max_iterations")),
        row("iterations to convergence (1e-4 standard errors)", steps),
        row("converged", int(fit.status) == Status.CONVERGED, "", 1.0, ">="),
        row("seconds, stepped with compilation", stepping, "s"),
        row("seconds, whole fit compiled", whole, "s"),
        row("log-likelihood", float(fit.log_lik), "nats",
            GSM8K_LOG_LIKELIHOOD if real else None, ">="),
    ]  # fmt: skip


def measure_adaptive(spec: Spec) -> list[Row]:
    """Simulated adaptive tests side by side, against tests of random items."""
    model, length = two_parameter(), spec["length"]
    keys = jax.random.split(jax.random.key(0), 3)
    items = simulate_items(model, spec["items"], keys[0], dtype=jnp.float32)
    theta = simulate_abilities(spec["subjects"], keys[1], dtype=jnp.float32)
    unit = Population(jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32))
    make = lambda: ItemBank.create(model, items, unit, num_items=length)
    bank = make()
    rows = [
        row("nodes", bank.theta.shape[0]),
        row("tables of the bank", best_seconds(lambda: make().table), "s"),
    ]
    kinds: list[tuple[str, dict[str, Any], Any]] = [
        ("most informative item, EAP", {}, spec.get("max_seconds")),
        ("most informative item, MAP", {"score": "map"}, spec.get("max_seconds")),
        ("one of the 5 most informative", {"randomesque": 5}, None),
        ("random item", {"select": "random"}, None),
    ]
    for name, rules, target in kinds:
        design = Design.create(length, **rules)
        run_them = lambda d=design: run_tests_jit(bank, d, key=keys[2], theta=theta)
        began = time.perf_counter()
        tests = jax.block_until_ready(run_them())
        first = time.perf_counter() - began
        rows += [
            row(f"{name}: all tests", best_seconds(run_them), "s", target),
            row("  first call", first, "s"),
            row("  RMSE of the ability",
                float(jnp.sqrt(jnp.mean((tests.ability[:, -1] - theta) ** 2)))),
            row("  mean standard error", float(jnp.mean(tests.standard_error[:, -1]))),
        ]  # fmt: skip
    return rows + (_measure_several(spec) if "dims" in spec else [])


def _measure_several(spec: Spec) -> list[Row]:
    """Simulated adaptive tests of several abilities, in double precision."""
    dims, size, length = spec["dims"], spec["items"], spec["length"]
    rng = np.random.default_rng(0)
    parts = rng.normal(0.6, 0.5, (size, dims)), rng.normal(size=size)
    with jax.enable_x64(True):
        parts += np.zeros(size), np.ones(size)
        items = LogisticItems(*(jnp.asarray(x) for x in parts))
        unit = Population(jnp.zeros(dims), jnp.ones(dims))
        model = factor_model(Factor(factors=dims))
        bank = FactorBank.create(model, items, unit)
        theta = bank.draw_abilities(spec["subjects"], jax.random.key(1))
        truth, rows = bank.truth(theta), []
        for select in ("information", "d_optimal", "mutual_information", "random"):
            design = Design.create(length, select=select)
            run_them = lambda d=design: run_tests_jit(
                bank, d, key=jax.random.key(2), theta=theta
            )
            tests = jax.block_until_ready(run_them())
            target = spec.get("max_several_seconds")
            known = target if select in ("information", "d_optimal") else None
            seconds = best_seconds(run_them)
            error = jnp.sqrt(jnp.mean((tests.ability[:, -1] - truth) ** 2))
            rows += [
                row(f"{dims} abilities, {select}: all tests", seconds, "s", known),
                row("  RMSE of the expected score", float(error)),
            ]
    return rows


def measure_lengths(spec: Spec) -> list[Row]:
    """Accuracy and response lengths: the exact EM and SAEM."""
    model = latency_response()
    keys = jax.random.split(jax.random.key(0), 6)
    items = simulate_items(model, spec["items"], keys[0])
    theta = simulate_abilities(spec["subjects"], keys[1])
    lengths = simulate_length_items(spec["items"], keys[2])
    truth = LengthParameters(lengths, jnp.asarray(-0.8))
    log_length, _ = simulate_log_lengths(truth, theta, keys[3])
    data = simulate(model, items, theta, keys[4])
    data = dataclasses.replace(data, log_length=log_length)
    problem, start = Problem.create(model, data), start_values(model, data)
    unit = Population(jnp.zeros(()), jnp.ones(()))
    nodes = jnp.asarray(choose_nodes(model, items, unit, data))
    rows = [row("nodes", nodes.shape[0])]
    for name, method, steps, target in (
        ("EM", EM(nodes, 1e-3), 500, spec.get("max_em_seconds")),
        ("SAEM", SAEM(nodes, num_steps=200), 200, spec.get("max_saem_seconds")),
    ):
        fit = lambda m=method, n=steps: run_jit(
            problem, m, start, key=keys[5], max_steps=n
        )
        began = time.perf_counter()
        found = jax.block_until_ready(fit())
        first = time.perf_counter() - began
        rows += [
            row(f"{name}: whole fit", best_seconds(fit), "s", target),
            row("  first call", first, "s"),
            row("  steps", int(found.num_steps)),
            row("  log-likelihood", float(found.log_lik)),
            row("  correlation", float(found.parameters.lengths.correlation)),
        ]
    return rows


def measure_audit(spec: Spec) -> list[Row]:
    """The audit of a table, with the 2PL that it fits; the fit's time apart."""
    table = load(spec)
    before = peak_bytes()
    options = {"standard_errors": "none", "dtype": jnp.float32}
    began = time.perf_counter()
    calibration = irtjax.fit(table, "2pl", **options)
    fitted = time.perf_counter()
    report = irtjax.audit(calibration, table)
    ended = time.perf_counter()
    most_gb = spec.get("max_gb")
    return [
        row("audit, first call", ended - fitted, "s", spec.get("max_seconds")),
        row("  the fit before it, first call", fitted - began, "s"),
        row("peak memory in all", peak_bytes() / 2**30, "GB", most_gb),
        row("  before", before / 2**30, "GB"),
        row("items with a tested flag", sum(list(report.counts().values())[:7])),
    ]


def measure_ranks(spec: Spec) -> list[Row]:
    """Ranks, intervals, P(best), pair tests and groups; processor time and memory."""
    rows = []
    for size in spec["sizes"]:
        for rank in (0, 16):
            scores = _scores(size, rank)
            before, began = peak_bytes(), time.process_time()
            found = ranking.rank(*scores[:2], shared=scores[2], key=jax.random.key(0))
            seconds = time.process_time() - began
            name = f"{size:,} subjects, {rank or 'no'} loadings"
            target = spec.get("max_seconds")
            rows += [
                row(f"{name}: processor time", seconds, "s", target),
                row("  peak above that before", (peak_bytes() - before) / 1e6, "MB"),
                row("  share of pairs that differ",
                    found.num_different / found.num_pairs),
                row("  groups", len(found.groups)),
            ]  # fmt: skip
    return rows


def _scores(size: int, rank: int):
    """Abilities, errors that depend on ability and chance, smooth loadings or None."""
    rng = np.random.default_rng(0)
    theta = 0.93 * rng.normal(size=size)
    error = 0.35 * rng.uniform(0.8, 1.3, size) * np.sqrt(1 + 0.2 * theta**2)
    if not rank:
        return theta, error, None
    waves = np.sin(np.arange(1, rank - 1) * theta[:, None] / 2)
    columns = [np.ones((size, 1)), theta[:, None], 0.2 * waves]
    shared = 0.1 * np.concatenate(columns, axis=1)
    return theta, np.sqrt(error**2 + np.sum(shared**2, axis=1)), shared


KINDS: dict[str, Callable[[Spec], list[Row]]] = {
    "simulate": write_data,
    "em": measure_em,
    "mm": measure_mm,
    "errors": measure_errors,
    "convergence": measure_convergence,
    "adaptive": measure_adaptive,
    "lengths": measure_lengths,
    "audit": measure_audit,
    "ranks": measure_ranks,
}


def measure(spec: Spec) -> dict[str, Any]:
    """Rows of one case, with the load of the machine around it."""
    load_before = os.getloadavg()[0]
    rows = KINDS[spec["kind"]](spec)
    return {"rows": rows, "load": [load_before, os.getloadavg()[0]]}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
