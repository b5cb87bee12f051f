"""Errors of adaptive tests after calibrations with few subjects.

    python experiments/coverage/adaptive.py --out results
    python experiments/coverage/adaptive.py --real accuracy.parquet --out results

Items are calibrated by `irtjax.fit`. New subjects are tested with chosen and with
random items, by the bank with errors of its items and by the bank with items as known.
Columns are defined in README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.coverage.tables import write
from irtjax.calibration.item_error import item_errors
from irtjax.inference.expected import response_table_jit
from irtjax.inference.scale_error import with_scale_error
from irtjax.models.predictive import expected_with_errors, with_errors

LENGTHS = (10, 30, 60)
#: Subjects of a calibration, and calibrations of each.
SIZES = {10: 24, 30: 12, 100: 8, 500: 3}
ITEMS, TESTED = 200, 100
NORMAL_95 = 1.959964
#: What a cell of the table is.
CELL = ("data", "subjects", "select", "items", "errors")


def variants(fit: Any) -> dict[str, Any]:
    """The calibration with errors of its items, without those of its scale, or none."""
    alone = dataclasses.replace(fit, ability_shared=None)
    return {"counted": alone, "known": dataclasses.replace(alone, item_covariance=None)}


def expected(fit: Any, ability: np.ndarray, error: np.ndarray):
    """Expected scores and their errors, as in `irtjax.harness.estimate`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    weights = weights / weights.sum()
    grid = np.linspace(-8, 8, 321)
    items = jax.tree.map(jax.numpy.asarray, fit.parameters.items)
    uncertain = item_errors(fit)
    if uncertain is None:
        curves = np.asarray(response_table_jit(fit.model.family, items, grid)).mean(1)
        noise = np.zeros_like(curves)
    else:
        flat, records = with_errors(fit.model, items, uncertain.items)
        nodes_of = jax.numpy.asarray(grid)
        moments = expected_with_errors(flat.family, records, nodes_of)
        mean, spread = np.asarray(moments)
        curves, noise = mean.mean(1), spread.mean(1) / spread.shape[1]
    at = ability[..., None] + error[..., None] * nodes
    value = np.interp(at, grid, curves)
    mean = value @ weights
    spread = (value - mean[..., None]) ** 2 + np.interp(at, grid, noise)
    return mean, np.sqrt(spread @ weights)


class Tested(NamedTuple):
    """Tests of subjects: `[subjects, lengths]`, items given `[subjects, items]`."""

    ability: np.ndarray
    error: np.ndarray
    own_error: np.ndarray  # without the errors of location and scale
    score: np.ndarray
    score_error: np.ndarray
    given: np.ndarray


def tested(fit: Any, table: Any, select: str, seed: int) -> dict[str, Tested]:
    """Tests by the bank with the errors of its items, and with items as known."""
    options: Any = dict(num_items=max(LENGTHS), select=select, replay=table)
    found, at = {}, np.array(LENGTHS) - 1
    errors = item_errors(fit)
    for name, source in variants(fit).items():
        tests = irtjax.simulate_tests(source, key=jax.random.key(seed), **options)
        ability, own = tests.ability[:, at], tests.standard_error[:, at]
        error = own
        if name == "counted" and errors is not None and errors.scale is not None:
            # As the bank of the whole calibration does; its tests are the same.
            known = errors.scale, ability, own**2, tests.prior
            error = np.sqrt(np.asarray(with_scale_error(*known)))
        score = expected(source, ability, own)
        found[name] = Tested(ability, error, own, *score, tests.given)
    return found


def true_items(rng: Any, graded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and intercepts, `[items]` and `[items, thresholds]`."""
    slopes = np.exp(rng.normal(0, 0.5, ITEMS))
    steps = np.array([1.5, 0.0, -1.5]) if graded else np.zeros(1)
    return slopes, rng.normal(0, 1.5, ITEMS)[:, None] + steps * slopes[:, None]


def respond(rng: Any, items: tuple[np.ndarray, np.ndarray], theta: np.ndarray):
    """Responses and expected scores of subjects."""
    slopes, intercepts = items
    above = 1 / (1 + np.exp(-(theta[:, None, None] * slopes[:, None] + intercepts)))
    drawn = rng.random(above.shape[:2])[..., None] < above
    return drawn.sum(-1).astype(float), above.sum(-1).mean(-1)


def simulated(size: int, seed: int, graded: bool) -> list[dict[str, Any]]:
    """Rows of one calibration of simulated data."""
    rng = np.random.default_rng(10_000 * size + seed)
    items = true_items(rng, graded)
    first, _ = respond(rng, items, rng.normal(size=size))
    theta = rng.normal(size=TESTED)
    values, score = respond(rng, items, theta)
    fit = irtjax.fit(
        irtjax.ResponseTable.from_arrays(first), "graded" if graded else "2pl"
    )
    table = irtjax.ResponseTable.from_arrays(values)
    rows = []
    for select in ("information", "random"):
        for name, parts in tested(fit, table, select, seed).items():
            for k, length in enumerate(LENGTHS):
                rows.append(
                    {
                        "data": "graded" if graded else "2pl",
                        "subjects": size,
                        "seed": seed,
                        "select": select,
                        "items": length,
                        "errors": name,
                        **compare(
                            "ability", parts.ability[:, k] - theta, parts.error[:, k]
                        ),
                        **compare(
                            "score", parts.score[:, k] - score, parts.score_error[:, k]
                        ),
                    }
                )
    return rows


def compare(name: str, gap: np.ndarray, error: np.ndarray) -> dict[str, float]:
    """Squared errors, squared stated errors and coverage, means over subjects."""
    covered = np.abs(gap) < NORMAL_95 * error
    return {
        f"{name}_square": float(np.mean(gap**2)),
        f"{name}_stated": float(np.mean(error**2)),
        f"{name}_coverage": float(np.mean(covered)),
    }


def real(path: str, size: int, seed: int) -> list[dict[str, Any]]:
    """Rows of one calibration of recorded data; rows of one base model stay together.

    Nobody's ability is known: abilities are compared with those from all items by the
    same bank, whose error the stated one is reduced by, and scores with accuracies,
    whose binomial error is added.
    """
    import pandas as pd

    frame = pd.read_parquet(path)
    base = frame.index.str.replace(r"_(zero|one)_shot$", "", regex=True)
    rng = np.random.default_rng(seed)
    names = rng.permutation(base.unique())
    held = base.isin(names[: len(names) * 25 // 79])
    rest = rng.permutation(np.flatnonzero(~held))
    chosen = rest if size >= len(rest) else rest[:size]
    read = lambda part: irtjax.ResponseTable.from_arrays(
        part.to_numpy(float), subjects=part.index, items=part.columns
    )
    values = frame[held].to_numpy(float)
    fit = irtjax.fit(read(frame.iloc[chosen]), "2pl")
    table, rows = read(frame[held]), []
    for select in ("information", "random"):
        for name, parts in tested(fit, table, select, seed).items():
            source = variants(fit)[name]
            all_items = irtjax.score(source, table)
            assert all_items.own_error is not None
            whole = all_items.table["ability"].to_numpy()
            chance = np.clip(chances(source, whole), 1e-9, 1 - 1e-9)
            for k, length in enumerate(LENGTHS):
                left = np.ones(values.shape, bool)
                np.put_along_axis(left, parts.given[:, :length], False, axis=1)
                noise = (chance * (1 - chance) * left).sum(1) / values.shape[1] ** 2
                narrow = np.maximum(
                    parts.own_error[:, k] ** 2 - all_items.own_error**2, 1e-6
                )
                rows.append(
                    {
                        "data": "real",
                        "subjects": len(chosen),
                        "seed": seed,
                        "select": select,
                        "items": length,
                        "errors": name,
                        **compare(
                            "ability", parts.ability[:, k] - whole, np.sqrt(narrow)
                        ),
                        **compare(
                            "score",
                            parts.score[:, k] - values.mean(1),
                            np.sqrt(parts.score_error[:, k] ** 2 + noise),
                        ),
                    }
                )
    return rows


def chances(fit: Any, ability: np.ndarray) -> np.ndarray:
    """Probabilities of right responses `[subjects, items]` at the estimates."""
    items = jax.tree.map(jax.numpy.asarray, fit.parameters.items)
    return np.asarray(response_table_jit(fit.model.family, items, ability))


def summarise(
    rows: list[dict[str, Any]], keys: tuple[str, ...] = CELL
) -> list[dict[str, Any]]:
    """One row per cell: ratios of actual to stated errors, and coverage with errors.

    Cells without a quantity have NaN.
    """
    cells: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(tuple(row[k] for k in keys), []).append(row)
    found = []
    for cell, parts in cells.items():
        line = dict(zip(keys, cell, strict=True)) | {"sets": len(parts)}
        for name in ("ability", "score"):
            square, stated, cover = (
                np.array([r.get(f"{name}_{kind}", np.nan) for r in parts])
                for kind in ("square", "stated", "coverage")
            )
            line[f"{name}_rmse"] = float(np.sqrt(square.mean()))
            line[f"{name}_stated"] = float(np.sqrt(stated.mean()))
            line[f"{name}_ratio"] = float(np.sqrt(square.mean() / stated.mean()))
            line[f"{name}_coverage"] = float(cover.mean())
            spread = np.std(cover, ddof=1) if len(cover) > 1 else np.nan
            line[f"{name}_coverage_se"] = float(spread / np.sqrt(len(cover)))
        found.append(line)
    return found


def rows_of(
    sizes: list[int], sets: Callable[[int], int], one: Callable[[int, int], list]
) -> list[dict[str, Any]]:
    """Rows of so many calibrations of each size, by `one` size and seed."""
    return [
        row for size in sizes for seed in range(sets(size)) for row in one(size, seed)
    ]


def main() -> None:
    """Runs the study and writes adaptive.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--sets", type=int, help="calibrations of each size")
    parser.add_argument("--graded", action="store_true")
    parser.add_argument("--real", help="parquet of models x items, of 0 and 1")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)

    def one(size: int, seed: int) -> list[dict[str, Any]]:
        if given.real:
            return real(given.real, size, seed)
        return simulated(size, seed, given.graded)

    sets = lambda size: given.sets or SIZES.get(size, 4)
    name = "real" if given.real else "graded" if given.graded else "2pl"
    lines = summarise(rows_of(given.sizes, sets, one))
    write(given.out, f"adaptive_{name}", lines)


if __name__ == "__main__":
    main()
