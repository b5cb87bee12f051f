"""The comparisons of the LEGO-IRT paper on the shared data.

    python experiments/lego_irt/run.py --small       # simulated data, minutes
    python experiments/lego_irt/run.py --out DIR     # the data beside the repository
    python experiments/lego_irt/run.py --data FOLDER --only prediction --trials 5

Each comparison gives a table and a figure; the README beside this file says what each
measures.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.lego_irt import (
    abilities,
    accuracy,
    distances,
    proofs,
    structure,
    tables,
)
from experiments.lego_irt.drawing import draw
from irtjax.estimators.posterior.methods import NUTS

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SHARES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
BENCHMARK_SHARES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
ITEM_COUNTS = (5, 10, 20, 35, 50, 100, 200, 400)
#: Metrics of REALSumm that are predicted, the first one also from all metrics.
TARGETS = ("litepyramid_recall", "rouge_1_f_score")
#: Metrics of REALSumm that are sampled, with the articles a level.
THREE = (*TARGETS, "bert_f_score")
#: Comparisons that print or draw intervals instead of a table.
WITH_ENDS = ("counts", "ratings")
Plan = dict[str, Callable[[], list[dict]]]


def summary(rows: list[dict]) -> list[dict]:
    """Mean, standard deviation and standard error over trials of each combination."""
    skipped = ("trial", "value", "signed")
    labels = [k for k in rows[0] if k not in skipped]
    groups: dict[tuple, list[float]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in labels), []).append(row["value"])
    out = []
    for label, values in groups.items():
        count = len(values)
        sd = float(np.std(values, ddof=1)) if count > 1 else 0.0
        row = dict(zip(labels, label, strict=True))
        row |= {"mean": float(np.mean(values)), "sd": sd, "se": sd / count**0.5}
        out.append(row | {"n": count})
    return out


def small_plan(seed: int, out: Path | None) -> Plan:
    """Every comparison on simulated data."""
    scores = tables.simulated_groups(12, 15, 3, scores=True, seed=seed)
    one = scores.select(items=np.arange(15))
    answers = tables.simulated_groups(30, 20, 3, scores=False, seed=seed)
    kinds = {"scores": (scores, "multimetric"), "answers": (answers, "multibenchmark")}
    ratings = {"ratings": tables.simulated_ratings(20, 10, seed)}
    quick = NUTS(num_warmup=100, num_draws=39, num_chains=1)
    return {
        "prediction": partial(
            accuracy.prediction, {"scores": one}, {"scores": scores}, (1.0,), 1, seed
        ),
        "benchmarks": partial(accuracy.benchmarks, answers, (1.0,), 1, seed),
        "continuous_benchmarks": partial(
            accuracy.continuous_benchmarks, scores, (1.0,), 1, seed
        ),
        "distinguish": partial(abilities.distinguish, {"scores": one}, (1.0,), 1, seed),
        "newcomers": partial(abilities.newcomers, one, 6, 4, seed),
        "stability": partial(abilities.stability, one, 8, 3, seed),
        "data_efficiency": partial(abilities.data_efficiency, one, (2, 5), 3, seed),
        "intervals": partial(abilities.intervals, one, (1.0,), 1, seed),
        "structure": partial(structure.structure, kinds, out),
        "counts": partial(
            structure.counts, tables.simulated_counts(20, 12, 10, seed), out
        ),
        "ratings": partial(structure.ratings, ratings, out),
        "distances": partial(
            distances.distances, {"answers": kinds["answers"]}, quick, seed
        ),
        "sbc": partial(proofs.sbc, 20, seed, ("LEGO-CM",), quick, subjects=6, items=6),
        "coverage": partial(proofs.coverage, 4, seed, ("LEGO-MB",), quick, 10, 12),
        "recovery": partial(proofs.recovery, 2, seed, ("LEGO-MB",), 10, 30),
        "recovery_given_prior": partial(
            proofs.recovery, 2, seed, ("LEGO-MB",), 60, 30, given_prior=True
        ),
        "fast_coverage": partial(
            proofs.recovery, 4, seed, ("LEGO-MB",), 10, 30, fixed=False
        ),
    }


def real_plan(
    folder: Path,
    trials: int,
    seed: int,
    out: Path | None,
    items: int | None,
) -> Plan:
    """Every comparison on the shared data, with so many items of each benchmark."""
    alpaca = tables.alpaca_eval(folder)
    every = tables.off_ends(tables.real_summ(folder))
    names = list(dict.fromkeys(every.benchmarks.tolist()))
    # The metric that is predicted comes first.
    families = {
        t: tables.off_ends(tables.real_summ(folder, [t, *(n for n in names if n != t)]))
        for t in TARGETS
    }
    single = {t: tables.real_summ(folder, [t]) for t in TARGETS}
    psn = tables.psn_irt(folder)
    psn = psn if items is None else tables.thinned(psn, items, seed)
    kinds = {"realsumm": (every, "multimetric"), "psn_irt": (psn, "multibenchmark")}
    ratings = {f"{who}s": tables.summ_eval(folder, who) for who in ("expert", "turker")}
    scores = {"alpaca_eval": alpaca, **single}
    near = {
        "alpaca_eval": (alpaca, "continuous"),
        "realsumm": (tables.off_ends(tables.real_summ(folder, THREE)), "multimetric"),
        "psn_irt": (tables.thinned(tables.psn_irt(folder), 25, seed), "multibenchmark"),
    }
    return {
        "prediction": partial(
            accuracy.prediction, scores, families, SHARES, trials, seed
        ),
        "benchmarks": partial(accuracy.benchmarks, psn, BENCHMARK_SHARES, trials, seed),
        "continuous_benchmarks": partial(
            accuracy.continuous_benchmarks,
            tables.alpaca_sources(folder),
            SHARES,
            trials,
            seed,
        ),
        "distinguish": partial(abilities.distinguish, scores, SHARES, trials, seed),
        "newcomers": partial(abilities.newcomers, alpaca, 100, 50, seed),
        "stability": partial(abilities.stability, alpaca, 100, 50, seed),
        "data_efficiency": partial(
            abilities.data_efficiency, alpaca, ITEM_COUNTS, 20, seed
        ),
        "intervals": partial(abilities.intervals, alpaca, SHARES, 1, seed),
        "structure": partial(structure.structure, kinds, out),
        "counts": partial(structure.counts, tables.live_code_bench(folder), out),
        "ratings": partial(structure.ratings, ratings, out),
        "distances": partial(distances.distances, near, seed=seed),
    }


def save(out: Path, name: str, rows: list[dict], trials: list[dict]) -> None:
    """Writes NAME.csv and NAME.png."""
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / f".{name}.csv"
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(out / f"{name}.csv")
    draw(name, rows, trials, out / f"{name}.png")


def main(argv: list[str] | None = None) -> dict[str, list[dict]]:
    """Runs the comparisons, prints their tables and returns all rows."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="simulated data")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--trials", type=int, default=3, help="random splits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--items", type=int, help="of each benchmark, at most; or all")
    parser.add_argument(
        "--replicates", type=int, default=100, help="data sets of simulations"
    )
    parser.add_argument("--only", action="append", help="a comparison; can be repeated")
    parser.add_argument("--out", type=Path, help="folder for tables and figures")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    seed, out = options.seed, options.out
    # All simulate what they need: they are run without the data too.
    plan: Plan = {
        "sbc": partial(proofs.sbc, options.replicates, seed),
        "coverage": partial(proofs.coverage, options.replicates, seed),
        "recovery": partial(proofs.recovery, options.replicates, seed),
        "recovery_given_prior": partial(
            proofs.recovery, options.replicates, seed, subjects=400, given_prior=True
        ),
        "fast_coverage": partial(
            proofs.recovery, options.replicates, seed, items=60, fixed=False
        ),
    }
    if options.small:
        plan = small_plan(seed, out)
    elif options.only is None or set(options.only) - set(plan):
        if not options.data.is_dir():
            parser.error(f"no folder {options.data}: give it with --data, or --small")
        plan = real_plan(options.data, options.trials, seed, out, options.items) | plan
    unknown = set(options.only or []) - set(plan)
    if unknown:
        parser.error(f"no comparison {min(unknown)!r}; there are {', '.join(plan)}")
    results: dict[str, Any] = {}
    for name in options.only or plan:
        began = time.perf_counter()
        rows = plan[name]()
        table = summary(rows)
        results[name] = rows
        print(f"\n{name}, {time.perf_counter() - began:.0f} s")
        for row in table if name not in WITH_ENDS else []:
            words = [v for k, v in row.items() if k not in ("mean", "sd", "se", "n")]
            label = "  ".join(
                f"{v:.3f}" if isinstance(v, float) else f"{v!s:<12}" for v in words
            )
            spread = f" ± {row['sd']:.4f}" if row["n"] > 1 else ""
            print(f"  {label}  {row['mean']:.4f}{spread} (n {row['n']})")
        if options.out is not None:
            save(options.out, name, table, rows)
        sys.stdout.flush()
    return results


if __name__ == "__main__":
    main()
