"""Prediction of responses that were not seen: scores, and answers to benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np

import irtjax
from experiments.lego_irt.methods import (
    area_under_curve,
    log_loss,
    mean_chances,
    mean_predictions,
    plain_chances,
    structured,
)
from experiments.lego_irt.tables import masked, observed

#: Of the cells, kept for judging: of scores, and of answers to benchmarks.
HELD_OUT, BENCHMARKS_HELD_OUT = 0.1, 0.2


def prediction(
    tables: dict[str, irtjax.ResponseTable],
    families: dict[str, irtjax.ResponseTable],
    shares: Sequence[float],
    trials: int,
    seed: int,
) -> list[dict]:
    """Mean squared error of held-out scores against the share of the rest trained on.

    Args:
        tables: Scores of one metric by name.
        families: For some of the names, all metrics of the same answers, the first
            items those of the table. Cells are seen or held out in all metrics alike:
            what is predicted are answers nobody has scored.
        shares: Of the cells that are not held out.
        trials: Random splits.
        seed: Of the splits.
    """
    rows = []
    for name, table in tables.items():
        for trial, share, seen, held in splits(table, shares, trials, seed, HELD_OUT):
            found = mean_predictions(table.values, seen)
            fits = {"LEGO-CM": structured(masked(table, seen))}
            if name in families:
                metrics = families[name]
                repeats = metrics.num_items // table.num_items
                cells = masked(metrics, np.tile(seen, repeats))
                fits["LEGO-MM"] = structured(cells, grouped=True, stems=True)
            for model, fit in fits.items():
                if fit.usable(f"{name} {trial} {share:.1f} {model}"):
                    found[model] = fit.predictions()[:, : table.num_items]
            for model, means in found.items():
                error = np.mean((means - table.values)[held] ** 2)
                rows.append(
                    {"trial": trial, "data": name, "share": share, "model": model,
                     "value": float(error)}
                )  # fmt: skip
            said = "  ".join(f"{r['value']:.5f}" for r in rows[-len(found) :])
            print(f"  {name} {trial} {share:.1f} {said}", file=sys.stderr, flush=True)
    return rows


def continuous_benchmarks(
    table: irtjax.ResponseTable, shares: Sequence[float], trials: int, seed: int
) -> list[dict]:
    """Mean squared error on each of several benchmarks of scores.

    LEGO-CM and the means see the benchmark alone; LEGO-MB sees all, with an ability for
    each.
    """
    rows = []
    names = list(dict.fromkeys(table.benchmarks.tolist()))
    for trial, share, seen, held in splits(table, shares, trials, seed, HELD_OUT):
        joint = structured(masked(table, seen), grouped=True)
        usable = joint.usable(f"{trial} {share:.1f} LEGO-MB")
        means = joint.predictions() if usable else None
        for name in names:
            mine = table.benchmarks == name
            part, cells = table.select(items=mine), seen[:, mine]
            found = mean_predictions(part.values, cells)
            alone = structured(masked(part, cells))
            if alone.usable(f"{name} {trial} {share:.1f} LEGO-CM"):
                found["LEGO-CM"] = alone.predictions()
            if means is not None:
                found["LEGO-MB"] = means[:, mine]
            for model, predicted in found.items():
                error = np.mean((predicted - part.values)[held[:, mine]] ** 2)
                rows.append(
                    {"trial": trial, "data": name, "share": share, "model": model,
                     "value": float(error)}
                )  # fmt: skip
            said = "  ".join(f"{r['value']:.5f}" for r in rows[-len(found) :])
            print(f"  {name} {trial} {share:.1f} {said}", file=sys.stderr, flush=True)
    return rows


def splits(
    table: irtjax.ResponseTable,
    shares: Sequence[float],
    trials: int,
    seed: int,
    held_out: float,
) -> Iterator[tuple[int, float, np.ndarray, np.ndarray]]:
    """Trial, share, the cells trained on and those held out; smaller in larger ones."""
    there = observed(table)
    for trial in range(trials):
        rng = np.random.default_rng([seed, trial])
        held = there & (rng.random(there.shape) < held_out)
        order = rng.random(there.shape)
        for share in shares:
            yield trial, share, there & ~held & (order < share), held


def benchmarks(
    table: irtjax.ResponseTable, shares: Sequence[float], trials: int, seed: int
) -> list[dict]:
    """AUC and log-loss of held-out answers: an ability per benchmark against one.

    Beside them means, and a plain 2PL by EM at its estimates.
    """
    rows = []
    cells = splits(table, shares, trials, seed, BENCHMARKS_HELD_OUT)
    for trial, share, seen, held in cells:
        whole, bare = masked(table, seen), masked(table, seen, benchmarks=False)
        found = {
            **mean_chances(table.values, seen),
            "plain 2PL": plain_chances(bare),
            "one ability": structured(bare).predictions(),
            "one ability, priors by benchmark": structured(whole).predictions(),
            "multibenchmark": structured(whole, grouped=True).predictions(),
        }
        right = table.values[held]
        for model, chance in found.items():
            row = {"trial": trial, "share": share, "model": model}
            scores = {
                "AUC": area_under_curve(right, chance[held]),
                "log-loss": log_loss(right, chance[held]),
            }
            rows += [row | {"measure": k, "value": v} for k, v in scores.items()]
        said = "  ".join(f"{r['value']:.4f}" for r in rows[-2 * len(found) :])
        print(f"  {trial} {share:.1f} {said}", file=sys.stderr, flush=True)
    return rows
