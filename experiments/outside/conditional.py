"""Marginal estimates and item fit against conditional likelihood by R's eRm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import irtjax
from experiments.outside import data, rscript
from irtjax.data.stored_cells import DenseCells
from irtjax.validity.residuals import item_fit

PACKAGES = ("eRm",)
Row = dict[str, Any]
#: The histogram of abilities converges slowly.
TOLERANCE = 5e-4


def largest_gap(model: str, values: np.ndarray, theirs: dict, population: str) -> float:
    """Largest difference of easiness over eRm's error, after a common shift.

    eRm has sums of steps beta_jh; a shift of ability moves each by h.
    """
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(
        table,
        model,
        "em",
        priors=None,
        population=population,
        tolerance=TOLERANCE,
        max_steps=1000,
    )
    items, top = fit.parameters.items, int(values.max())
    steps = np.asarray(items.intercept, float).reshape(values.shape[1], -1)
    if model == "rsm":
        # The steps of an item are its intercept and the common deviations, sum 0.
        common = np.asarray(items.step, float)
        common = np.concatenate([common, -common.sum(1, keepdims=True)], 1)
        steps = steps + common
    ours = np.cumsum(steps, axis=1)
    gap = ours - np.array(theirs["beta"]).reshape(ours.shape)
    height = np.arange(1, top + 1)
    gap = gap - height * (gap @ height).mean() / (height @ height)
    known = [np.nan if x in (None, "NaN") else float(x) for x in theirs["error"]]
    error = np.reshape(known, ours.shape)
    return float(np.abs(gap / np.where(np.isfinite(error), error, np.inf)).max())


def compare(name: str, binary: np.ndarray, ordered: np.ndarray | None) -> list[Row]:
    """Differences of one table of right and wrong, and one of ordered responses."""
    given = {"binary": binary} | ({} if ordered is None else {"ordered": ordered})
    theirs = rscript.call("conditional.R", given)
    rows: list[Row] = []
    tables = {"rasch": binary}
    if ordered is not None:
        tables |= {"pcm": ordered, "rsm": ordered}
    for model, values in tables.items():
        for population in ("normal", "histogram"):
            gap = largest_gap(model, values, theirs[model], population)
            rows.append({"data": name, "quantity": f"{model}, {population}",
                         "largest gap / SE": gap})  # fmt: skip
    family = irtjax.MODELS["rasch"]().family
    size = binary.shape[1]
    items = irtjax.fit(
        irtjax.ResponseTable.from_arrays(binary), "rasch", "em"
    ).parameters.items._replace(intercept=jnp.asarray(theirs["rasch"]["beta"]))
    inside = (binary.sum(1) > 0) & (binary.sum(1) < size)
    # eRm leaves out those without a finite estimate, all or none right.
    ability = np.array(theirs["ability"], float)[inside]
    statistics = item_fit(family, items, ability, DenseCells(binary[inside]))
    for quantity in ("infit", "outfit"):
        gap = np.abs(getattr(statistics, quantity) - np.array(theirs[quantity])).max()
        rows.append({"data": name, "quantity": f"{quantity}, difference",
                     "largest gap / SE": float(gap)})  # fmt: skip
    return rows


def main(*, small: bool) -> list[Row]:
    """Simulated data, and LSAT7, verbal aggression and Science."""
    rows = compare("simulated 300 x 8", data.simulated(300, 8), None)
    lsat, verbal, science = map(data.classic, ("lsat7", "verbagg", "science"))
    if small or lsat is None or verbal is None:
        return rows
    rows += compare("LSAT7; Science", lsat, science)
    return rows + compare("VerbAgg", (verbal > 0).astype(int), None)
