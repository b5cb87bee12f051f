"""Figures of predictions and of similar items: parts of `figures.py`.

`penalty` (4.6.2) has the printed program, recomputed with scipy. `semantic` (6.1, 6.5)
has judged features of tasks in place of embeddings, which are not shared. `filtering`
is of section 6.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
from experiments.aims.book import truth
from experiments.aims.cold_start import load, table_of
from experiments.aims.generalise import PENALTIES, book
from irtjax.plots import plot_filter, plot_semantic_space, style
from irtjax.validity.filtering import simulated_chances

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
Part = tuple[Any, list[dict[str, Any]]]


def printed_score(train: np.ndarray, values: np.ndarray, penalty: float) -> float:
    """Mean log-likelihood of responses left out, at the printed program's estimates."""

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds = point[:100, None] - point[100:]
        fit = np.sum(train * (values * log_odds - np.logaddexp(0, log_odds)))
        rest = train * (values - expit(log_odds))
        slope = np.concatenate([rest.sum(axis=1), -rest.sum(axis=0)])
        return penalty / 2 * np.sum(point**2) - fit, penalty * point - slope

    point = minimize(objective, np.zeros(150), jac=True, method="L-BFGS-B").x
    chance = expit(point[:100, None] - point[100:])
    likelihood = values * np.log(chance + 1e-10)
    likelihood += (1 - values) * np.log(1 - chance + 1e-10)
    return float(np.sum((1 - train) * likelihood) / np.sum(1 - train))


def penalty(full: bool) -> Part:
    """Log scores by the penalty: joint estimates, and abilities integrated over."""
    values, folds = truth()[2], np.random.RandomState(42).randint(0, 5, (100, 50))
    scores = np.array(
        [[printed_score(folds != k, values, x) for k in range(5)] for x in PENALTIES]
    )
    printed, error = scores.mean(axis=1), scores.std(axis=1) / 5**0.5
    ours = sorted(book(full, SHARED), key=lambda row: row["penalty"])
    figure, (axes,) = style.new_figure(6.4, 3.8, grid="y")
    columns = [row["penalty"] for row in ours], [row["log_score"] for row in ours]
    bars = {"marker": "o", "ms": 4, "capsize": 3, "lw": 1.4}
    axes.errorbar(
        PENALTIES, printed, error, color=style.PALETTE[1], label="printed", **bars
    )
    error_ours = [row["log_score_se"] for row in ours]
    text = "ours: abilities integrated over"
    axes.errorbar(*columns, error_ours, color=style.PALETTE[0], label=text, **bars)
    axes.set_xscale("log")
    axes.set_xticks(PENALTIES, [f"{x:g}" for x in PENALTIES])
    axes.minorticks_off()
    axes.set_xlabel("penalty, the reciprocal of the prior's variance")
    axes.set_ylabel("mean log-likelihood")
    axes.legend(fontsize=8, frameon=False)
    style.title(axes, "Responses left out", "five folds; bars are standard errors")
    by_penalty = {round(row["penalty"], 6): row["log_score"] for row in ours}
    rows = [
        {"penalty": x, "printed": float(y), "ours": by_penalty.get(x)}
        for x, y in zip(PENALTIES, printed, strict=True)
    ]
    return figure, rows


def semantic(full: bool) -> Part:
    """Similar tasks: responses of agents, and a simulated table of one ability."""
    name = "swebench_verified" if full else "terminal_bench_2"
    right, path = load(name)
    features = pd.read_csv(path).set_index("instance_id").loc[right.columns]
    table = table_of(right, right.to_numpy())
    space = irtjax.semantic_space(table, features.to_numpy(float))
    rng = np.random.default_rng(0)
    (chance,) = simulated_chances(table, rng, 1)
    simulated = table_of(right, (rng.random(chance.shape) < chance) * 1.0)
    null = irtjax.semantic_space(simulated, features.to_numpy(float), tables=0)
    rows = []
    for label, one in (("responses", space), ("one ability, simulated", null)):
        cosine, tetrachoric = (
            one.pairs[x].to_numpy() for x in ("cosine", "tetrachoric")
        )
        similar = tetrachoric[cosine >= np.quantile(cosine, 0.9)]
        low, high = np.nanquantile(similar, [0.025, 0.975])
        rows.append(
            {
                "table": label,
                "similar pairs": len(similar),
                "mean": float(np.nanmean(similar)),
                "2.5 %": float(low),
                "97.5 %": float(high),
                "r with cosines": one.correlation["tetrachoric"][0],
                "r of residuals": one.correlation["residual"][0],
            }
        )
    return plot_semantic_space(space), rows


def filtering(full: bool) -> Part:
    """Negative correlations by round of a filter of tasks."""
    right, _ = load("swebench_verified" if full else "terminal_bench_2")
    table = table_of(right, right.to_numpy())
    rounds, drop = (8, 15) if full else (8, 4)
    result = irtjax.filter_items(table, rounds=rounds, drop=drop)
    return plot_filter(result), result.table.to_pylist()
