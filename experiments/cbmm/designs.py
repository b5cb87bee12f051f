"""Simulated and real responses of the studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from experiments.cbmm.methods import record
from irtjax.models.families.logistic import LogisticItems

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
#: Items of MMLU-Pro, whose factors are not in the shared data.
MMLU_PRO = 12_032
#: What draws from 64 factors are called, after the name of the suite.
SHARP = "(drawn, 64)"
#: Slope of the chance that a cell is missing, by place (A.6.3).
BETA = 2.0


class Simulated(NamedTuple):
    """Responses, the mask of those observed (None for all), the truth, its s."""

    values: np.ndarray
    observed: np.ndarray | None
    truth: tuple[LogisticItems, jnp.ndarray]
    temperature: float = 1.0


def simulated(
    rows: int,
    columns: int,
    seed: int,
    *,
    temperature: float = 1.0,
    pattern: str = "none",
    rate: float = 0.0,
    zeros: float = 0.0,
) -> Simulated:
    """theta ~ N(0, 1), a ~ U(.5, 1), d ~ N(0, .5^2) (A.6), P = sigma(X / temperature).

    `zeros` is the share of discriminations set to 0, `rate` that of a missing pattern.
    """
    rng = np.random.default_rng([seed, rows, columns])
    theta, a = rng.normal(size=rows), rng.uniform(0.5, 1, columns)
    a[rng.permutation(columns)[: round(zeros * columns)]] = 0
    a, d = a / temperature, 0.5 * rng.normal(size=columns) / temperature
    values = (rng.random((rows, columns)) < expit(np.outer(theta, a) + d)).astype(
        np.int8
    )
    observed = mask(rng, values, pattern, rate)
    truth = record(a, d), jnp.asarray(theta)
    return Simulated(values, observed, truth, temperature)


def mask(rng, values: np.ndarray, pattern: str, rate: float) -> np.ndarray | None:
    """Which cells are observed: "none", "mcar", "mar" (by place) or "mnar" (gates)."""
    rows, columns = values.shape
    if pattern == "none":
        return None
    if pattern == "mcar":
        return rng.random(values.shape) >= rate
    if pattern == "mar":
        return rng.random(values.shape) >= by_place(rows, columns, rate)
    # All wrong responses of a gated item are missing.
    return (values == 1) | (rng.random(columns) >= rate)


def by_place(rows: int, columns: int, rate: float) -> np.ndarray:
    """Chances sigma(alpha + 2 (r_i + c_j) / 2) that a cell is missing, mean `rate`."""
    place = np.add.outer(np.linspace(0, 1, rows), np.linspace(0, 1, columns)) / 2
    if rate <= 0:
        return np.zeros(place.shape)
    off = lambda alpha: float(expit(alpha + BETA * place).mean()) - rate
    alpha: Any = brentq(off, -40, 40, xtol=1e-12)
    return expit(alpha + BETA * place)


def suites(
    most_rows: int, most_columns: int, stand_in: bool = False, sharp: bool = False
) -> dict[str, np.ndarray]:
    """Response matrices by name: real ones, and draws from fitted factors.

    Random rows and columns where a matrix is larger. Simulated stand-ins, and so
    named, where the shared data are not beside the checkout. With `stand_in` there is
    one of the size of MMLU-Pro too: draws of items that are resampled from the others.
    With `sharp` there are draws from 64 factors too, whose chances are nearer to 0 or 1
    than those of the leaderboard, as those from 16 are farther from them.
    """
    if not SHARED.is_dir():
        size = min(most_rows, 60), min(most_columns, 40)
        return {f"simulated {k}": simulated(*size, k).values for k in range(2)}
    import pandas as pd

    found = {}
    for name in ("math500", "amc23", "aime24"):
        found[name] = pd.read_parquet(SHARED / f"lart/accuracy_{name}.parquet")
    for name, file in (("gsm8k", "gsm8k_2pl"), ("mmlu", "mmlu_3pl")):
        found[name] = pd.read_parquet(SHARED / f"metabench/{file}_responses.parquet")
    matrices = {name: np.asarray(table, np.int8) for name, table in found.items()}
    labels = pd.read_parquet(SHARED / "llm_factors/open_llm_5suite_items.parquet")
    with np.load(SHARED / "llm_factors/open_llm_5suite_k16.npz") as stored:
        left, right = stored["U"], stored["V"]
    rng = np.random.default_rng(0)
    places = {
        name: np.flatnonzero(labels.benchmark == name)
        for name in labels.benchmark.unique()
    }
    of_suite = {f"{name} (drawn)": items for name, items in places.items()}
    if stand_in:
        resampled = np.random.default_rng(2).integers(0, len(right), MMLU_PRO)
        of_suite["stand-in of mmlu_pro (drawn)"] = resampled
    draw = lambda rng, logit: (
        rng.random(logit.shape, np.float32) < expit(logit)
    ).astype(np.int8)
    for name, items in of_suite.items():
        matrices[name] = draw(rng, left @ right[items].T)
    if sharp:
        with np.load(SHARED / "llm_factors/open_llm_5suite_k64.npz") as stored:
            left, right = stored["U"], stored["V"]
        rng = np.random.default_rng(3)
        for name, items in places.items():
            matrices[f"{name} {SHARP}"] = draw(rng, left @ right[items].T)
    return {name: cut(x, most_rows, most_columns) for name, x in matrices.items()}


def cut(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Random rows and columns, at most so many, in their order."""
    rng = np.random.default_rng(1)
    keep = [
        np.sort(rng.choice(size, min(size, most), replace=False))
        for size, most in zip(values.shape, (rows, columns), strict=True)
    ]
    return np.ascontiguousarray(values[np.ix_(*keep)])
