"""Do the estimates recover the truth, and do 95 % intervals cover it 95 % of the time?

    python experiments/coverage/run.py                   # small: half a minute
    python experiments/coverage/run.py --full --out DIR  # evidence/coverage-em.md

Every replication draws new items, new subjects and new responses, fits them by EM and
compares the intervals with what was drawn. All replications of a case run in one
compiled program. The README beside this file says what is measured and how.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

if __name__ == "__main__":
    # As a script this file knows its own folder only.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.coverage.replicate import (
    LEVEL,
    Case,
    Replicate,
    bootstrap_intervals,
    fit_nodes,
    replicate_all,
)
from experiments.coverage.tables import markdown, write
from irtjax._types import Status
from irtjax.inference.information import difficulty

Z = 1.959963984540054
#: What the coverage of abilities and items is required to be.
WANTED = (0.93, 0.97)
PARAMETERS = ("discrimination", "intercept", "difficulty", "lower_asymptote")
FULL = (
    Case("2PL, ML", "2pl", None, 500, 40, 200, bootstrapped=40),
    Case("2PL, weak priors", "2pl", "weak", 500, 40, 200),
    Case("2PL, ML, leaderboard", "2pl", None, 100, 200, 200, bootstrapped=10),
    Case("2PL, weak priors, leaderboard", "2pl", "weak", 100, 200, 200),
    Case("Rasch, ML", "rasch", None, 500, 40, 200),
    Case("Rasch, ML, leaderboard", "rasch", None, 100, 200, 200),
    Case(
        "3PL, weak priors", "3pl", "weak", 2000, 30, 200,
        required=False, kinds=("observed",),
    ),
)  # fmt: skip
SMALL = (
    Case("2PL, ML", "2pl", None, 300, 12, 16, bootstrapped=2, draws=40),
    Case("Rasch, ML", "rasch", None, 100, 30, 16, kinds=("observed",)),
)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Mean over replications (rows) of the rank correlation."""
    ranks = [np.argsort(np.argsort(x, axis=1), axis=1) for x in (first, second)]
    pairs = zip(*ranks, strict=True)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))


def coverage_row(case: Case, quantity: str, interval: str, truth, low, high, middle):
    """A row of the table; `[replications, size]` arrays.

    The Monte-Carlo error is that of a mean over replications, since intervals within
    a replication are not independent: they share items, subjects and scale.
    """
    inside = (low <= truth) & (truth <= high)
    each = inside.mean(axis=1)
    mc_error = each.std(ddof=1) / np.sqrt(len(each))
    coverage = float(each.mean())
    # For information only: items are never known, and the sandwich and the bootstrap
    # need more subjects than a leaderboard has.
    required = case.required and interval in ("item uncertainty", "observed")
    # The difficulty of an item with a slope near 0 does not exist: such an interval
    # covers nothing, and is left out of the errors.
    known = np.isfinite(low + high + middle)
    error, half = (middle - truth)[known], ((high - low) / (2 * Z))[known]
    return {
        "case": case.name,
        "subjects": case.num_subjects,
        "items": case.num_items,
        "replications": len(truth),
        "quantity": quantity,
        "interval": interval,
        "coverage": coverage,
        "mc_error": float(mc_error),
        "below": float((truth < low).mean()),
        "above": float((truth > high).mean()),
        "undefined": float(1 - known.mean()),
        "bias": float(np.mean(error)),
        "rmse": float(np.sqrt(np.mean(error**2))),
        # Errors of estimation over stated errors: 1 where the latter are right.
        "error_ratio": float(np.sqrt(np.mean((error / half) ** 2))),
        "required": required,
        "met": bool(WANTED[0] <= coverage <= WANTED[1]) if required else None,
    }


def natural_values(items) -> dict[str, np.ndarray]:
    values = {k: np.asarray(v) for k, v in items._asdict().items()}
    values["difficulty"] = np.asarray(difficulty(items))
    return values


def summarise(case: Case, found: Replicate, boots) -> tuple[list[dict], dict]:
    """Rows of coverage, and the recovery of one case."""
    truth, estimate = (natural_values(i) for i in (found.truth.items, found.items))
    theta = np.asarray(found.truth.theta)
    rows = []
    for name, (ability, error) in found.ability.items():
        middle, half = np.asarray(ability), Z * np.asarray(error)
        row = partial(coverage_row, case, "ability", name, theta)
        rows.append(row(middle - half, middle + half, middle))
    gap, *errors = (np.asarray(part) for part in found.difference)
    apart = theta - np.roll(theta, -1, axis=1)
    for name, error in zip(
        ("item uncertainty", "as if independent"), errors, strict=True
    ):
        row = partial(coverage_row, case, "difference of two abilities", name, apart)
        rows.append(row(gap - Z * error, gap + Z * error, gap))
    varying = [
        p for p in PARAMETERS
        if np.any(np.asarray(found.errors["observed"][p]) > 0)
    ]  # fmt: skip
    for name in varying:
        for kind in case.kinds:
            half = Z * np.asarray(found.errors[kind][name])
            row = partial(coverage_row, case, name, kind, truth[name])
            middle = estimate[name]
            rows.append(row(middle - half, middle + half, middle))
        if name in boots:
            low, high = boots[name]
            size = len(low)
            middle = estimate[name][:size]
            rows.append(
                coverage_row(
                    case, name, "bootstrap", truth[name][:size], low, high, middle
                )
            )
    if "discrimination" not in varying:
        log_sd = np.log(np.asarray(found.sd))[:, None]
        for kind in case.kinds:
            half = Z * np.asarray(found.errors[kind]["sd"])[:, None]
            row = partial(coverage_row, case, "log sd", kind, np.zeros_like(log_sd))
            rows.append(row(log_sd - half, log_sd + half, log_sd))
    slope = "discrimination" in varying
    middle = np.asarray(found.ability["items as known"][0])
    error = estimate["difficulty"] - truth["difficulty"]
    error = error[np.isfinite(error)]
    recovery = {
        "case": case.name,
        "subjects": case.num_subjects,
        "items": case.num_items,
        "replications": len(theta),
        "converged": float(np.mean(np.asarray(found.status) == Status.CONVERGED)),
        "definite": float(np.mean(np.asarray(found.definite))),
        "iterations": float(np.median(np.asarray(found.num_steps))),
        "spearman_ability": spearman(middle, theta),
        "spearman_discrimination": spearman(
            estimate["discrimination"], truth["discrimination"]
        ) if slope else None,
        "rmse_ability": float(np.sqrt(np.mean((middle - theta) ** 2))),
        "rmse_difficulty": float(np.sqrt(np.mean(error**2))),
        "median_error_difficulty": float(np.median(np.abs(error))),
    }  # fmt: skip
    return rows, recovery


def run_case(case: Case, seed: int) -> tuple[list[dict], dict]:
    """Rows of coverage and the recovery of a case."""
    model = case.make_model()
    began = time.perf_counter()
    node_key, key = jax.random.split(jax.random.key(seed))
    nodes = fit_nodes(case, model, node_key)
    keys = jax.random.split(key, case.replications)
    found = jax.block_until_ready(replicate_all(case, model, nodes, keys))
    seconds = time.perf_counter() - began
    boots = bootstrap_intervals(case, model, nodes, keys, found)
    rows, recovery = summarise(case, found, boots)
    recovery |= {"nodes": len(nodes), "seconds": seconds}
    recovery["bootstrap_seconds"] = time.perf_counter() - began - seconds
    return rows, recovery


COVERAGE_COLUMNS = {
    "case": "case", "subjects": "N", "items": "J", "replications": "replications",
    "quantity": "quantity", "interval": "interval", "coverage": "coverage",
    "mc_error": "± MC error", "below": "truth below", "above": "truth above",
    "undefined": "undefined",
    "bias": "bias", "rmse": "RMSE", "error_ratio": "error / stated",
    "met": "93–97 %",
}  # fmt: skip
RECOVERY_COLUMNS = {
    "case": "case", "subjects": "N", "items": "J", "replications": "replications",
    "converged": "converged", "iterations": "EM iterations (median)",
    "nodes": "nodes", "spearman_ability": "Spearman θ",
    "spearman_discrimination": "Spearman a", "rmse_ability": "RMSE θ",
    "rmse_difficulty": "RMSE b", "median_error_difficulty": "median abs. error b",
    "seconds": "seconds",
}  # fmt: skip


def draw_figure(rows: list[dict], path: Path) -> None:
    """Coverage with two Monte-Carlo errors, one panel per case."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(row["case"] for row in rows))
    sizes = [sum(row["case"] == case for row in rows) for case in cases]
    figure = Figure(figsize=(7.5, 0.24 * sum(sizes) + 0.7 * len(cases)))
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(cases), 1, sharex=True, squeeze=False, height_ratios=sizes
    )[:, 0]
    for case, axes in zip(cases, panels, strict=True):
        mine = [row for row in rows if row["case"] == case][::-1]
        axes.axvspan(*WANTED, color="0.92", zorder=0)
        axes.axvline(LEVEL, color="0.6", linewidth=0.8, zorder=1)
        for at, row in enumerate(mine):
            colour = "#1f5a8a" if row["required"] else "0.55"
            axes.errorbar(
                row["coverage"], at, xerr=2 * row["mc_error"], fmt="o", markersize=4,
                color=colour, elinewidth=1.2,
            )  # fmt: skip
        names = [f"{row['quantity']}, {row['interval']}" for row in mine]
        axes.set_yticks(range(len(mine)), names, fontsize=7)
        axes.set_ylim(-0.7, len(mine) - 0.3)
        head = f"{case}: {mine[0]['subjects']} subjects, {mine[0]['items']} items"
        axes.set_title(head, fontsize=9, loc="left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[-1].set_xlabel("coverage of 95 % intervals, ± 2 Monte-Carlo errors")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def save(out: Path, rows: list[dict], recoveries: list[dict], text: str) -> None:
    """Writes coverage.csv, recovery.csv, coverage.md and coverage.png."""
    write(out, "coverage", rows, text)
    write(out, "recovery", recoveries)
    draw_figure(rows, out / "coverage.png")


def main(argv: list[str] | None = None) -> tuple[list[dict], list[dict]]:
    """Runs the cases, prints the tables and returns their rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="a quick look (default)")
    size.add_argument("--full", action="store_true", help="200 replications and more")
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for CSV, Markdown and PNG")
    options = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    rows: list[dict] = []
    recoveries: list[dict] = []
    cases = FULL if options.full else SMALL
    for case in (c for c in cases if (options.case or "") in c.name):
        found, recovery = run_case(case, options.seed)
        rows += found
        recoveries.append(recovery)
        print(f"{case.name}: {recovery['seconds']:.1f} s", file=sys.stderr, flush=True)
    if not rows:
        parser.error(f"no case name contains {options.case!r}")
    tables = (markdown(recoveries, RECOVERY_COLUMNS), markdown(rows, COVERAGE_COLUMNS))
    text = "\n\n".join(tables)
    print(text)
    if options.out:
        save(options.out, rows, recoveries, text)
    return rows, recoveries


if __name__ == "__main__":
    main()
