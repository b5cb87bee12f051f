"""Studies of real responses, and of draws from factors fitted to a leaderboard."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import irtjax
from experiments.cbmm.designs import SHARED, simulated, suites
from experiments.cbmm.simulations import Scale
from irtjax.calibration.flow import rank_flow
from irtjax.calibration.heterogeneity import discrimination_heterogeneity
from irtjax.plots import plot_rank_flow, save_figure

Row = dict[str, Any]
#: Cells from which there are no starts of variances 4 and 5, which take up to thirty
#: times the steps of the others, and those from which there are `FEW` of each variance.
LARGE, LARGEST, FEW = 500_000, 10_000_000, 2
#: Tiers of the paper by billions of parameters; a size on a border is in the upper one.
TIERS = (("small", 0, 7), ("medium", 7, 20), ("large", 20, np.inf))


@cache
def fitted(name: str, most: int):
    """The responses of a suite, and their 2PL by `em`."""
    table = irtjax.ResponseTable.from_arrays(suites(most, most)[name])
    return table, irtjax.fit(table, "2pl", "em")


def rho(x, y) -> float:
    """Spearman's correlation."""
    return float(np.asarray(spearmanr(x, y))[0])


def stability(scale: Scale) -> list[Row]:
    """Spearman's correlations of runs from starts of five variances, by suite."""
    rows = []
    all_suites = suites(scale.side, scale.side, stand_in=True)
    for name, values in sorted(all_suites.items(), key=lambda pair: pair[1].size):
        # The suites of the paper.
        if not (name.startswith("simulated") or name == "math500" or "drawn" in name):
            continue
        began = time.perf_counter()
        table = irtjax.ResponseTable.from_arrays(values)
        starts = scale.starts if values.size < LARGEST else FEW
        variances = range(1, 6 if values.size < LARGE else 4)
        found = irtjax.stability(table, "starts", num=starts, variances=variances)
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
    return rows


def discrimination(scale: Scale) -> list[Row]:
    """How much discriminations differ, and how far ability ranks as accuracy does."""
    rows = []
    for name in suites(scale.most, scale.most):
        _, fit = fitted(name, scale.most)
        found = discrimination_heterogeneity(fit)
        ability, accuracy = (
            fit.ability_table[x].to_numpy() for x in ("ability", "accuracy")
        )
        best = accuracy >= np.quantile(accuracy, 0.8)
        rows.append(
            {"suite": name, "subjects": len(fit.subjects)}
            | found._asdict()
            | {"spearman_top_fifth": rho(ability[best], accuracy[best])}
        )
    return rows


def flow(scale: Scale, out: Path | None = None) -> list[Row]:
    """Moves from accuracy to ability in the tops of the suites, and their figures."""
    rows = []
    for name in suites(scale.most, scale.most):
        table, fit = fitted(name, scale.most)
        try:
            found = rank_flow(fit, 30, data=table)
        except ValueError as error:
            if "both rankings" not in str(error):
                raise
            # Nobody is in both tops.
            rows.append({"suite": name, "in_both_tops": 0})
            continue
        moves = found.table.to_pylist()
        rows.append(
            {
                "suite": name,
                "in_both_tops": len(moves),
                "moved": sum(row["move"] != 0 for row in moves),
                "farthest": max(abs(row["move"]) for row in moves),
                "beyond_interval": sum(bool(row["beyond"]) for row in moves),
                "kendall": found.kendall,
            }
        )
        if out is not None:
            figure = plot_rank_flow(fit, 30, data=table)
            save_figure(figure, out / f"flow_{name.split()[0]}.png")
    return rows


def billions(name: str) -> float | None:
    """Billions of parameters in a model's name: all of them, where several are named.

    >>> billions("qwen_qwen3_30b_a3b_instruct"), billions("phi_4_mini")
    (30.0, None)
    """
    found = re.findall(r"(?:^|[_-])(\d+(?:\.\d+)?)b(?=[_-]|$)", name.lower())
    return max(map(float, found)) if found else None


def math500(scale: Scale) -> list[Row]:
    """Ability on MATH-500 by size of the model, and of the two prompts of a model."""
    path = SHARED / "lart/accuracy_math500.parquet"
    if not path.is_file():
        table = irtjax.ResponseTable.from_arrays(
            simulated(scale.most, scale.most, 0).values,
            subjects=[f"model_{k + 1}b_zero_shot" for k in range(scale.most)],
        )
    else:
        import pandas as pd

        frame = pd.read_parquet(path)
        table = irtjax.ResponseTable.from_arrays(
            frame.to_numpy(), subjects=frame.index.tolist()
        )
    fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
    ability = fit.ability_table["ability"].to_numpy()
    names = fit.subjects.tolist()
    size = np.array([billions(name) or np.nan for name in names])
    known = np.isfinite(size)
    rows: list[Row] = [
        {"quantity": "Spearman of ability and size", "models": int(known.sum()),
         "value": rho(ability[known], size[known])}
    ]  # fmt: skip
    for tier, low, high in TIERS:
        mine = known & (size >= low) & (size < high)
        if mine.any():
            value = float(np.median(ability[mine]))
            rows.append({"quantity": f"median ability, {tier}", "value": value,
                         "models": int(mine.sum())})  # fmt: skip
    place = {name: k for k, name in enumerate(names)}
    pairs = [
        (k, place[other])
        for name, k in place.items()
        if name.endswith("zero_shot")
        and (other := name.replace("zero_shot", "one_shot")) in place
    ]
    if len(pairs) > 2:
        zero, one = ability[np.array(pairs)].T
        rows.append({"quantity": "Spearman of the two prompts", "models": len(pairs),
                     "value": rho(zero, one)})  # fmt: skip
        rows.append({"quantity": "mean gain of one shot", "models": len(pairs),
                     "value": float(np.mean(one - zero))})  # fmt: skip
    large = np.flatnonzero(known & (size >= 20))
    for k in large:
        if "yi" in re.split(r"[_-]", names[k].lower()):
            rank = 1 + int(np.sum(ability[large] > ability[k]))
            rows.append({"quantity": f"place of {names[k]} among the large",
                         "models": len(large), "value": rank})  # fmt: skip
    return rows
