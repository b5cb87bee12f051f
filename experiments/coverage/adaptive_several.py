"""Errors of adaptive tests of two abilities after calibrations with few subjects.

    python experiments/coverage/adaptive_several.py --sizes 60 100 150 --out results

Items are calibrated by `irtjax.fit(table, "factor", factors=2)`. New subjects take
tests of chosen and of random items, by the bank with errors of its items and its axes,
and by the bank with items as known. Columns are defined in README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import irtjax

if __name__ == "__main__":  # Run as a script, from any folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.coverage.adaptive import CELL, compare, rows_of, summarise
from experiments.coverage.tables import write

LENGTHS = (10, 20, 30)


def true_items(rng: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Slopes `[items, 2]`, one of them small, and intercepts."""
    places = np.arange(size)
    slopes = np.zeros((size, 2))
    slopes[places, places % 2] = np.exp(rng.normal(0.2, 0.35, size))
    slopes[places, 1 - places % 2] = rng.uniform(0, 0.6, size)
    return slopes, rng.normal(0, 1.2, size)


def to_true_axes(fit: Any, slopes: np.ndarray) -> np.ndarray:
    """The matrix from abilities on the axes of a fit to those on the true ones.

    A rotation of the uncorrelated abilities, by the slopes of all items.
    """
    root = np.linalg.cholesky(np.asarray(fit.parameters.population.covariance))
    estimated = np.asarray(fit.parameters.items.discrimination) @ root
    left, _, right = np.linalg.svd(estimated.T @ slopes)
    return np.linalg.inv(root).T @ left @ right


def simulated(size: int, seed: int, items: int, tested: int) -> list[dict[str, Any]]:
    """Rows of one calibration."""
    rng = np.random.default_rng(1000 * size + seed)
    slopes, intercept = true_items(rng, items)
    chance = lambda theta: 1 / (1 + np.exp(-(theta @ slopes.T + intercept)))
    theta = [rng.normal(size=(n, 2)) for n in (size, tested)]
    tables = [
        irtjax.ResponseTable.from_arrays((rng.random((len(x), items)) < chance(x)) * 1)
        for x in theta
    ]
    fit: Any = irtjax.fit(tables[0], "factor", factors=2)
    known = dataclasses.replace(fit.factors, at_fixed_axes=None)
    exact = dataclasses.replace(fit, item_covariance=None).with_part(known)
    score, turn = chance(theta[1]).mean(axis=1), to_true_axes(fit, slopes)
    rows = []
    for select in ("information", "random"):
        for name, source in (("counted", fit), ("known", exact)):
            options: Any = dict(num_items=max(LENGTHS), select=select)
            tests = irtjax.simulate_tests(
                source, key=jax.random.key(seed), replay=tables[1], **options
            )
            found: Any = tests.factors
            spread = np.swapaxes(turn, 0, 1) @ found.covariance @ turn
            error = np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
            for length in LENGTHS:
                at = length - 1
                gap = tests.ability[:, at] - score
                row = dict(subjects=size, seed=seed, select=select, items=length)
                row |= {"errors": name}
                row |= compare("score", gap, tests.standard_error[:, at])
                if length == max(LENGTHS):
                    row |= compare("ability", found.ability @ turn - theta[1], error)
                rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Runs the study and writes adaptive_several.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[60, 100, 150])
    parser.add_argument("--sets", type=int, default=10, help="calibrations of each")
    parser.add_argument("--items", type=int, default=150)
    parser.add_argument("--tested", type=int, default=100, help="new subjects")
    parser.add_argument("--out", type=Path, help="folder for the CSV file")
    given = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    one = lambda size, seed: simulated(size, seed, given.items, given.tested)
    rows = rows_of(given.sizes, lambda size: given.sets, one)
    lines = summarise(rows, CELL[1:])
    if given.out is not None:
        write(given.out, "adaptive_several", lines)
    return lines


if __name__ == "__main__":
    main()
