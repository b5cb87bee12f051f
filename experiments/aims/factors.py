"""Factor models: held-out responses by number of factors, and honest intervals.

    python experiments/aims/factors.py                      # small: half a minute
    python experiments/aims/factors.py --full --out DIR     # the README's tables

Three studies. `held_out` draws responses from the fitted factors of a leaderboard
(`shared/data/llm_factors`, where it lies beside the checkout; else from factors drawn
at random) and predicts a fifth of the cells. `number` compares the number
of factors that `irtjax.dimensions` chooses with the one that predicts held-out cells
best. `coverage` draws three correlated factors and compares intervals with the truth.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import expit
from scipy.stats import rankdata

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import irtjax
from experiments.tabulate import aligned, write_csv

Row = dict[str, Any]
SHARED = Path(__file__).resolve().parents[3] / "shared/data/llm_factors"
#: Correlation of the factors of the second study.
CORRELATION = 0.3
FACTORS = (1, 2, 4, 8)


def published(name: str) -> Path:
    """The file of fitted factors."""
    return SHARED / f"open_llm_5suite_{name}.npz"


def called(name: str) -> str:
    """A generator in tables: drawn factors are not called as the published ones are."""
    return name if published(name).is_file() else f"{name} (drawn, none published)"


def logits(name: str, subjects: int, items: int, rng) -> np.ndarray:
    """Logits of random rows and columns of fitted factors; of drawn ones without."""
    path = published(name)
    if path.is_file():
        with np.load(path) as stored:
            left, right = stored["U"], stored["V"]
    else:
        count = int(name.removeprefix("k"))
        left = rng.normal(size=(subjects, count))
        right = rng.normal(size=(items, count)) / (1 + np.arange(count)) ** 0.5
    rows = np.sort(rng.choice(len(left), subjects, replace=False))
    columns = np.sort(rng.choice(len(right), items, replace=False))
    return (left[rows] @ right[columns].T).astype(float)


def auc(right: np.ndarray, predicted: np.ndarray) -> float:
    """The chance that a right response has the higher prediction."""
    ones = right.sum()
    ranks = rankdata(predicted)[right == 1].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * (right.size - ones)))


def held_out(name: str, subjects: int, items: int, factors=FACTORS) -> list[Row]:
    """Area under the curve and log loss of the fifth of the cells held out."""
    rng = np.random.default_rng(0)
    eta = logits(name, subjects, items, rng)
    right = (rng.random(eta.shape) < expit(eta)).astype(float)
    out = rng.random(eta.shape) < 0.2
    table = irtjax.read(np.where(out, np.nan, right))

    def row(label, predicted, **more) -> Row:
        sign = 2 * right[out] - 1
        loss = float(np.mean(np.logaddexp(0, -sign * predicted[out])))
        found = {"generator": called(name), "model": label}
        return found | {"auc": auc(right[out], predicted[out]), "log_loss": loss} | more

    seen = np.where(out, 0, 1)
    odds = lambda axis: np.log(
        ((right * seen).sum(axis) + 0.5) / (((1 - right) * seen).sum(axis) + 0.5)
    )
    overall = np.log(right[~out].mean() / (1 - right[~out].mean()))
    rows = [row("additive", odds(1)[:, None] + odds(0) - overall)]
    for count in factors:
        began = time.perf_counter()
        fit = irtjax.fit(table, "factor", "mm", factors=count, standard_errors="none")
        seconds = time.perf_counter() - began
        slopes = np.asarray(fit.parameters.items.discrimination).reshape(items, -1)
        theta = np.asarray(fit.parameters.theta).reshape(subjects, -1)
        predicted = theta @ slopes.T + np.asarray(fit.parameters.items.intercept)
        state = {"status": fit.status.name, "steps": fit.num_steps, "seconds": seconds}
        rows.append(row(f"{count} factors", predicted, **state))
    return [*rows, row("truth", eta)]


def number(name: str, subjects: int, items: int, most: int) -> list[Row]:
    """The number of factors by `dimensions`, and the best one for other cells."""
    rng = np.random.default_rng(0)
    eta = logits(name, subjects, items, rng)
    right = (rng.random(eta.shape) < expit(eta)).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(right)
    found = irtjax.dimensions(table, most=most, key=jax.random.key(1))
    rows = held_out(name, subjects, items, range(1, most + 1))
    loss = {int(r["model"].split()[0]): r["log_loss"] for r in rows[1:-1]}
    return [
        {
            "generator": called(name),
            "chosen": found.chosen,
            "best by its folds": found.best,
            "best for other cells": min(loss, key=loss.__getitem__),
            "jic": found.by_jic,
            "parallel analysis": found.by_parallel,
            "penalty of noise": found.by_penalty,
        }
    ]


def drawn_factors(rng, subjects: int, items: int, factors: int):
    """Slopes near simple structure, intercepts, correlated abilities, correlations."""
    correlation = np.full((factors, factors), CORRELATION)
    np.fill_diagonal(correlation, 1)
    slopes = 0.15 * rng.normal(size=(items, factors))
    slopes[np.arange(items), np.arange(items) % factors] += rng.uniform(0.7, 2, items)
    root = np.linalg.cholesky(correlation)
    theta = rng.normal(size=(subjects, factors)) @ root.T
    return slopes, rng.normal(size=items), theta, correlation


def coverage(subjects: int, items: int, factors: int, replications: int) -> list[Row]:
    """Shares of intervals that hold what was drawn, one row for each quantity."""
    rng = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    for _ in range(replications):
        slopes, intercept, theta, correlation = drawn_factors(
            rng, subjects, items, factors
        )
        chance = expit(theta @ slopes.T + intercept)
        right = (rng.random(chance.shape) < chance).astype(np.int8)
        fit = irtjax.fit(
            irtjax.ResponseTable.from_arrays(right), "factor", "mm", factors=factors
        )
        for name, value in one_coverage(fit, chance, slopes, correlation, rng).items():
            found.setdefault(name, []).append(value)
    return [
        {
            "quantity": name,
            "value": float(np.mean(values)),
            "se": float(np.std(values, ddof=1) / len(values) ** 0.5),
        }
        for name, values in found.items()
    ]


def one_coverage(fit, chance, slopes, correlation, rng) -> dict[str, float]:
    """What intervals of one fit hold."""
    score, table = chance.mean(axis=1), fit.abilities.table
    names = ("expected_score", "expected_score_lower", "expected_score_upper")
    estimate, low, high = (table[name].to_numpy() for name in names)
    shared, error = fit.ability_shared, table["ability_se"].to_numpy()
    first, second = rng.integers(0, len(score), (2, 1000))
    own = error**2 - np.sum(shared**2, axis=1)
    variance = own[first] + own[second]
    variance = variance + np.sum((shared[first] - shared[second]) ** 2, axis=1)
    off = (estimate[first] - estimate[second]) - (score[first] - score[second])
    total = np.einsum("jk,kl,jl->j", slopes, correlation, slopes) + np.pi**2 / 3
    true = slopes / np.sqrt(total)[:, None]
    loadings, errors = fit.factors.loadings, fit.factors.loadings_error
    congruence = loadings.T @ true
    congruence /= np.linalg.norm(loadings, axis=0)[:, None]
    congruence /= np.linalg.norm(true, axis=0)
    rows, columns = linear_sum_assignment(-np.abs(congruence))
    turned = loadings[:, rows] * np.sign(congruence[rows, columns])
    true = true[:, columns]
    return {
        "expected scores": float(np.mean((low <= score) & (score <= high))),
        "differences": float(np.mean(np.abs(off) < 1.96 * np.sqrt(variance))),
        "loadings": float(np.mean(np.abs(turned - true) < 1.96 * errors[:, rows])),
        "bias of expected scores": float(np.mean(estimate - score)),
        "loadings over truth": float(np.sum(turned * true) / np.sum(true**2)),
        "smallest congruence": float(np.abs(congruence[rows, columns]).min()),
        "converged": float(fit.status == irtjax.Status.CONVERGED),
    }


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    """Runs the studies and prints their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the sizes of the README")
    parser.add_argument("--out", type=Path, help="folder for a CSV file of each study")
    parser.add_argument("--only", choices=["held_out", "number", "coverage"])
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    full, found = options.full, {}
    if options.only in (None, "held_out"):
        size = (300, 1000) if full else (60, 40)
        names = ("k16", "k64") if full else ("k16",)
        counts = FACTORS if full else (1, 2)
        found["held_out"] = [row for x in names for row in held_out(x, *size, counts)]
    if options.only in (None, "number"):
        size = (300, 1000, 12) if full else (60, 40, 2)
        names = ("k16", "k64") if full else ("k16",)
        found["number"] = [row for name in names for row in number(name, *size)]
    if options.only in (None, "coverage"):
        size = (300, 200, 3, 100) if full else (80, 30, 2, 2)
        found["coverage"] = coverage(*size)
    for study, rows in found.items():
        print(study)
        print(aligned(rows), flush=True)
        write_csv(options.out, study, rows)
    return found


if __name__ == "__main__":
    main()
