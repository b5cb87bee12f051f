"""Factor models of few subjects: do intervals of expected scores cover?

    python experiments/aims/few_subjects.py                    # small: some seconds
    python experiments/aims/few_subjects.py --full --out DIR   # the README's table

Abilities on the factors correlate at 0.3. Exploratory: an item has a slope from
U(0.7, 2) on one factor and N(0, 0.15^2) on the others, and all slopes are estimated.
Simple: the others are 0, and known to be. Fits are the default ones, except that their
errors are computed for few subjects as for many.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv
from irtjax.calibration import scale

Row = dict[str, Any]
CORRELATION = 0.3
#: Factors, whether the structure is simple, and subjects x items.
DESIGNS: list[tuple[int, bool, list[tuple[int, int]]]] = [
    (
        2,
        False,
        [(10, 100), (10, 300), (15, 300), (20, 300), (30, 100), (30, 300), (60, 300)],
    ),
    (3, False, [(30, 300), (45, 300), (60, 300)]),
    (3, True, [(10, 300), (15, 300), (20, 300), (30, 300)]),
]
REPLICATES = 24


def drawn(
    rng: np.random.Generator, subjects: int, items: int, factors: int, simple: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances and responses, and which slopes are on an item's own factor."""
    correlation = np.full((factors, factors), CORRELATION)
    np.fill_diagonal(correlation, 1)
    theta = rng.normal(size=(subjects, factors)) @ np.linalg.cholesky(correlation).T
    own = np.arange(items)[:, None] % factors == np.arange(factors)
    other = 0.0 if simple else rng.normal(0, 0.15, (items, factors))
    slopes = np.where(own, rng.uniform(0.7, 2, (items, 1)), other)
    chance = expit(theta @ slopes.T + rng.normal(0, 1.2, items))
    return chance, (rng.random(chance.shape) < chance).astype(np.int8), own


def one(subjects: int, items: int, factors: int, simple: bool, seed: int) -> Row:
    """Coverage and errors of expected scores and their differences in a data set."""
    rng = np.random.default_rng([seed, subjects, items, factors, simple])
    chance, right, own = drawn(rng, subjects, items, factors, simple)
    table = irtjax.ResponseTable.from_arrays(right)
    model = irtjax.Factor(loadings=own) if simple else irtjax.Factor(factors)
    with patch.multiple(scale, LEAST_SEVERAL=0, LEAST_A_SLOPE=0):
        fit = irtjax.fit(table, model)
    found = fit.abilities.table
    place = {name: k for k, name in enumerate(table.subjects)}
    rows = [place[name] for name in found["subject"].to_pylist()]
    truth = chance.mean(axis=1)[rows]
    score, error, low, high = (
        found[f"expected_score{end}"].to_numpy()
        for end in ("", "_se", "_lower", "_upper")
    )
    assert fit.ability_shared is not None
    order = {name: k for k, name in enumerate(fit.subject_names)}
    shared = fit.ability_shared[[order[x] for x in found["subject"].to_pylist()]]
    variance = np.add.outer(error**2, error**2) - 2 * shared @ shared.T
    pairs = np.triu_indices(subjects, 1)
    off = np.subtract.outer(score, score) - np.subtract.outer(truth, truth)
    covered = np.abs(off[pairs]) <= 1.96 * np.sqrt(np.maximum(variance[pairs], 0))
    return {
        "scores covered": float(np.mean((low <= truth) & (truth <= high))),
        "differences covered": float(covered.mean()),
        "squared error": float(np.mean((score - truth) ** 2)),
        "standard error": float(error.mean()),
        "squared error of accuracy": float(
            np.mean((right.mean(axis=1) - chance.mean(axis=1)) ** 2)
        ),
    }


def main(arguments: list[str] | None = None) -> list[Row]:
    """Runs the designs, and prints and writes a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the README's table")
    parser.add_argument("--out", type=Path, help="folder for few_subjects.csv")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    designs = DESIGNS if options.full else [(2, False, [(10, 60)])]
    replicates, rows = REPLICATES if options.full else 2, []
    for factors, simple, sizes in designs:
        for subjects, items in sizes:
            settings = subjects, items, factors, simple
            each = [one(*settings, seed) for seed in range(replicates)]
            mean = {name: float(np.mean([x[name] for x in each])) for name in each[0]}
            scores = [x["scores covered"] for x in each]
            row: Row = {"subjects": subjects, "items": items, "factors": factors}
            row |= {"simple": simple} | mean
            row["scores covered se"] = float(np.std(scores, ddof=1) / replicates**0.5)
            for name in ("squared error", "squared error of accuracy"):
                row[name.replace("squared", "root mean squared")] = row.pop(name) ** 0.5
            print(f"{subjects} x {items} done", file=sys.stderr, flush=True)
            rows.append(row)
    print(aligned(rows))
    write_csv(options.out, "few_subjects", rows)
    return rows


if __name__ == "__main__":
    main()
