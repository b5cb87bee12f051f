"""Factor models with few items to a factor: joint and marginal estimates.

    python experiments/aims/short_tests.py                        # small: half a minute
    python experiments/aims/short_tests.py --full --out DIR       # the README's table
    python experiments/aims/short_tests.py --full --only 30x2     # one row of it
    python experiments/aims/short_tests.py --full --only 15x2 --method gvem \
        --replications 200

Draws responses of 300 subjects to items that each measure one of several correlated
factors, and fits the confirmatory model by `mm` and `gvem`. In designs of four graded
categories the marginal method is `em`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.special import expit

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv

Row = dict[str, Any]
#: Correlation of the factors.
CORRELATION = 0.3
METHODS, OF_CATEGORIES = ("mm", "gvem"), ("mm", "em")
#: Items, factors, categories if more than two, and data sets, of a full run.
DESIGNS = {"15x2": 40, "30x2": 40, "60x3": 40, "200x2": 20, "15x2x4": 40, "30x2x4": 40}
#: Distance of the intercepts of neighbouring categories.
DISTANCE = 1.2


def compared(
    subjects: int,
    items: int,
    factors: int,
    replications: int,
    categories: int = 2,
    first: int = 1000,
    methods: tuple[str, ...] | None = None,
) -> list[Row]:
    """One row for each method: means over data sets, with their standard errors.

    Args:
        subjects: Number of subjects.
        items: Number of items; item j measures the factor j modulo their number.
        factors: Number of factors.
        replications: Number of data sets.
        categories: Number of categories, graded if more than two.
        first: Seed of the first one.
        methods: What fits each of them.
    """
    correlation = np.full((factors, factors), CORRELATION)
    np.fill_diagonal(correlation, 1)
    root = np.linalg.cholesky(correlation)
    free = np.arange(items)[:, None] % factors == np.arange(factors)
    methods = methods or (METHODS if categories == 2 else OF_CATEGORIES)
    found: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
    cuts = DISTANCE * (np.arange(categories - 1) - categories / 2 + 1)
    for seed in range(first, first + replications):
        rng = np.random.default_rng(seed)
        slopes = free * rng.uniform(0.7, 2, (items, 1))
        theta = rng.normal(size=(subjects, factors)) @ root.T
        eta = theta @ slopes.T + rng.normal(size=items)
        chance = expit(eta[..., None] - cuts)  # Of each category or a higher one.
        values = (rng.random((*eta.shape, 1)) < chance).sum(axis=2)
        table = irtjax.ResponseTable.from_arrays(values.astype(np.int8))
        for method in methods:
            fit = irtjax.fit(table, "factor", method, loadings=free)
            expected = chance.sum(axis=2)
            found[method].append(one_fit(fit, table, expected, slopes))
    rows = []
    for method, values in found.items():
        row: Row = {"items": items, "factors": factors, "method": method}
        row |= {"categories": categories} if categories > 2 else {}
        for name in values[0]:
            each = np.array([x[name] for x in values])
            row[name] = float(each.mean())
            row[f"{name} se"] = float(each.std(ddof=1) / len(each) ** 0.5)
        deviation = row["correlation se"] * len(values) ** 0.5
        row["deviation of correlations"] = deviation
        error = deviation / (2 * len(values) - 2) ** 0.5
        row["deviation of correlations se"] = error
        rows.append(row)
    return rows


def one_fit(fit, table, expected, slopes) -> dict[str, float]:
    """Loadings, scores and correlations of one fit against the truth."""
    used = slopes != 0
    # Each item has one factor, of variance 1.
    true = slopes[used] / np.sqrt(slopes[used] ** 2 + np.pi**2 / 3)
    loadings, error = fit.factors.loadings[used], fit.factors.loadings_error[used]
    score, place = fit.abilities.table, {n: k for k, n in enumerate(table.subjects)}
    rows = [place[name] for name in score["subject"].to_pylist()]
    truth = expected.mean(axis=1)[rows]
    low, high = (
        score[f"expected_score_{end}"].to_numpy() for end in ("lower", "upper")
    )
    pairs = np.tril_indices(slopes.shape[1], -1)
    error_of, covered = fit.factors.correlation_error, np.nan
    if error_of is not None:
        ends = fit.factors.correlation_interval()
        inside = (ends[0] <= CORRELATION) & (ends[1] >= CORRELATION)
        covered = inside[pairs].mean()
    return {
        "loadings over truth": float(loadings.sum() / true.sum()),
        "error of loadings": float(np.sqrt(np.mean((loadings - true) ** 2))),
        "loadings covered": float(np.mean(np.abs(loadings - true) < 1.96 * error)),
        "scores covered": float(np.mean((low <= truth) & (truth <= high))),
        "correlation": float(fit.factors.correlation[pairs].mean()),
        "correlations covered": float(covered),
        "error of correlations": np.nan
        if error_of is None
        else float(error_of[pairs].mean()),
        "converged": float(fit.status == irtjax.Status.CONVERGED),
    }


def main(arguments: list[str] | None = None) -> list[Row]:
    """Runs the designs and prints their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the README")
    parser.add_argument("--out", type=Path, help="folder for a CSV file")
    parser.add_argument("--only", choices=DESIGNS, help="one design of a full run")
    parser.add_argument(
        "--method", choices=("mm", "gvem", "em"), help="one method alone"
    )
    parser.add_argument("--replications", type=int, help="data sets of a design")
    options = parser.parse_args(arguments)
    methods = None if options.method is None else (options.method,)
    jax.config.update("jax_enable_x64", True)
    rows = []
    if not options.full:
        rows = compared(80, 12, 2, options.replications or 2, methods=methods)
    for name, replications in DESIGNS.items() if options.full else ():
        if options.only in (None, name):
            items, factors, *categories = (int(x) for x in name.split("x"))
            number = options.replications or replications
            rows += compared(300, items, factors, number, *categories, methods=methods)
    print(aligned(rows))
    write_csv(options.out, "short_tests", rows)
    return rows


if __name__ == "__main__":
    main()
