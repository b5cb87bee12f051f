"""Studies of real responses, and of draws from factors fitted to a leaderboard."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import irtjax
from experiments.cbmm.designs import SHARP, suites
from experiments.cbmm.simulations import Scale
from irtjax.calibration.flow import rank_flow
from irtjax.calibration.heterogeneity import discrimination_heterogeneity
from irtjax.plots import plot_rank_flow, save_figure

Row = dict[str, Any]
#: Resamples of subjects, and permutations of suites.
RESAMPLES = 1000
#: Ranks at the top in the study of moves, where the paper has others than 30.
TOPS, TOP = {"gpqa": 90}, 30


@cache
def _suites(most: int) -> dict[str, np.ndarray]:
    return suites(most, most, sharp=True)


@cache
def fitted(name: str, most: int):
    """The responses of a suite, and their 2PL by `em`."""
    table = irtjax.ResponseTable.from_arrays(_suites(most)[name])
    return table, irtjax.fit(table, "2pl", "em")


def rho(x, y) -> float:
    """Spearman's correlation."""
    return float(np.asarray(spearmanr(x, y))[0])


def stability(
    scale: Scale, only: list[str] | None = None, variances: list[int] | None = None
) -> list[Row]:
    """Spearman's correlations of runs from starts of five variances, by suite.

    `only` are parts of the names of suites; without `variances` there are five.
    """
    rows = []
    all_suites = suites(scale.side, scale.side, stand_in=True)
    for name, values in sorted(all_suites.items(), key=lambda pair: pair[1].size):
        # The suites of the paper.
        if not (name.startswith("simulated") or name == "math500" or "drawn" in name):
            continue
        if only and not any(part in name for part in only):
            continue
        began = time.perf_counter()
        table = irtjax.ResponseTable.from_arrays(values)
        given = {"num": scale.starts, "variances": variances or range(1, 6)}
        found = irtjax.stability(table, "starts", **given)
        runs = found.runs.to_pylist()
        more = {
            "at_best": np.mean([row["at_best"] for row in runs]),
            "reversed": sum(row["reversed"] for row in runs),
            "steps": np.mean([row["steps"] for row in runs]),
        }
        size = {"suite": name, "subjects": len(values), "items": values.shape[1]}
        size["runs"] = len(runs)
        rows += [size | row | more for row in found.agreement.to_pylist()]
        gaps = [row["gap"] for row in runs if row["reversed"]]
        print(
            f"  {name}, {time.perf_counter() - began:.0f} s: {found.sentence}",
            f"{more['reversed']} reversed, at least {min(gaps):.4g} nats lower"
            if gaps
            else "none reversed",
            *found.warnings,
            sep="\n    ",
            flush=True,
        )
    if not rows:
        raise ValueError(f"no suite is called {only}: {', '.join(all_suites)}")
    return rows


def discrimination(scale: Scale) -> list[Row]:
    """How much discriminations differ, and how far ability ranks as accuracy does.

    The last rows have the rank correlation of both over the suites.
    """
    rows = []
    for name in _suites(scale.most):
        _, fit = fitted(name, scale.most)
        found = discrimination_heterogeneity(fit)
        ability, accuracy = (
            fit.abilities.table[x].to_numpy() for x in ("ability", "accuracy")
        )
        best = accuracy >= np.quantile(accuracy, 0.8)
        rows.append(
            {"suite": name, "subjects": len(fit.subject_names)}
            | found._asdict()
            | top(ability[best], accuracy[best])
        )
    return rows + relations(rows)


def top(ability: np.ndarray, accuracy: np.ndarray) -> Row:
    """Spearman's correlation of the best subjects, and its interval by resampling."""
    rng, draws = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        kept = rng.integers(0, len(ability), len(ability))
        if np.ptp(ability[kept]) > 0 and np.ptp(accuracy[kept]) > 0:
            draws.append(rho(ability[kept], accuracy[kept]))
    low, high = np.quantile(draws, [0.025, 0.975])
    found = {"spearman_top_fifth": rho(ability, accuracy)}
    return found | {"top_lower": float(low), "top_upper": float(high)}


def relations(rows: list[Row]) -> list[Row]:
    """Do correlations fall as the CV rises? Spearman over suites, one-sided p-value.

    Suites that were drawn twice count once: rows with 16 factors, and with 64.
    """
    found, sharp = [], lambda row: SHARP in row["suite"]
    base = lambda row: row["suite"].split(" (drawn")[0]
    twice = {base(row) for row in rows if sharp(row)}
    for factors in (16, 64):
        mine = [x for x in rows if base(x) not in twice or sharp(x) == (factors == 64)]
        for column in ("spearman", "spearman_top_fifth"):
            pairs = [(x["cv"], x[column]) for x in mine if x[column] is not None]
            if len(pairs) < 3 or (factors == 64 and not twice):
                continue
            cv, value = np.array(pairs).T
            rng, own = np.random.default_rng(0), rho(cv, value)
            drawn = [rho(cv, rng.permutation(value)) for _ in range(RESAMPLES)]
            below = np.sum(np.array(drawn) <= own + 1e-12)
            label = f"relation of CV and {column}, {factors} factors"
            found.append(
                {"suite": label, "subjects": len(pairs), "relation": own}
                | {"p_value": float((1 + below) / (1 + RESAMPLES))}
            )
    return found


def flow(scale: Scale, out: Path | None = None) -> list[Row]:
    """Moves from accuracy to ability in the tops of the suites, and their figures."""
    rows = []
    for name in _suites(scale.most):
        if SHARP in name:
            continue
        table, fit = fitted(name, scale.most)
        best = TOPS.get(name.split()[0], TOP)
        try:
            found = rank_flow(fit, best, data=table)
        except ValueError as error:
            if "both rankings" not in str(error):
                raise
            # Nobody is in both tops.
            rows.append({"suite": name, "top": best, "in_both_tops": 0})
            continue
        moves = found.table.to_pylist()
        rows.append(
            {
                "suite": name,
                "top": best,
                "in_both_tops": len(moves),
                "moved": sum(row["move"] != 0 for row in moves),
                "farthest": max(abs(row["move"]) for row in moves),
                "beyond_interval": sum(bool(row["beyond"]) for row in moves),
                "kendall": found.kendall,
            }
        )
        if out is not None:
            figure = plot_rank_flow(fit, best, data=table)
            save_figure(figure, out / f"flow_{name.split()[0]}.png")
    return rows
