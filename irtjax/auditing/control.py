"""What an audit finds where there is nothing to find."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jax.tree_util import Partial

from irtjax import inference
from irtjax.auditing.examine import (
    DISCRIMINATES,
    ItemStatistics,
    OrderedFit,
    decide,
    examine,
)
from irtjax.data import ResponseTable
from irtjax.data.cell_sums import cell_blocks
from irtjax.numerics.progress import watched
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.residuals import chance_at

#: Defects whose absence is a table in which nothing is related to ability.
PERMUTED = (
    "negative discrimination",
    "suspected wrong key",
    "no discrimination",
    DISCRIMINATES,
)


def permuted(table: ResponseTable, random: np.random.Generator) -> ResponseTable:
    """Each item's responses permuted among the subjects who answered it.

    Every item keeps its accuracy, and no two variables are related.

    >>> from irtjax.data import ResponseTable
    >>> table = ResponseTable.from_arrays([[1, 0], [1, 1], [0, 0]])
    >>> new = permuted(table, np.random.default_rng(0))
    >>> new.item_accuracy().tolist() == table.item_accuracy().tolist()
    True
    """
    cells = table.sparse
    if cells is not None:
        # By item, then in a random order: what comes next to what was there.
        dealt = np.lexsort((random.random(len(cells.column)), cells.column))
        value = np.empty_like(cells.value)
        value[cells.by_item[1]] = cells.value[dealt]
        return table.replace(values=dataclasses.replace(cells, value=value))
    values = table.values
    if table.observed is None:
        return dataclasses.replace(table, values=random.permuted(values, axis=0))
    out = np.zeros_like(values)
    width = max(1, 4_000_000 // max(values.shape[0], 1))
    for start in range(0, values.shape[1], width):
        part = slice(start, start + width)
        seen = table.observed[:, part]
        # Sorting random keys, the missing last, deals the responses among the seen.
        keys = np.where(seen, random.random(seen.shape), 2.0)
        dealt = np.take_along_axis(values[:, part], np.argsort(keys, axis=0), axis=0)
        places = np.argsort(~seen, axis=0, kind="stable")
        np.put_along_axis(out[:, part], places, dealt, axis=0)
    return dataclasses.replace(table, values=out * table.observed)


def simulated(
    table: ResponseTable, fitted: OrderedFit, random: np.random.Generator
) -> tuple[ResponseTable, OrderedFit]:
    """Responses of the fitted model, abilities drawn from their posteriors, scored."""
    theta = fitted.ability + fitted.error * random.standard_normal(fitted.ability.size)
    drawn = _drawn(table, fitted, theta, random)
    model, population = fitted.fit.model, fitted.fit.parameters.population
    items, population = jax.tree.map(jnp.asarray, (fitted.items, population))
    few = drawn.sparse is not None
    data: Any = drawn.sparse_responses() if few else drawn.responses()
    scores = inference.score(model, items, population, data, scoring="eap")
    ability, error = (
        np.asarray(x, np.float64) for x in (scores.ability, scores.standard_error)
    )
    return drawn, dataclasses.replace(fitted, ability=ability, error=error)


def _chance(family: Any, item: Any, theta: jax.Array, value: jax.Array) -> jax.Array:
    """Probability of a right response of a cell."""
    del value
    return chance_at(family, item, theta)


def _drawn(
    table: ResponseTable,
    fitted: OrderedFit,
    theta: np.ndarray,
    random: np.random.Generator,
) -> ResponseTable:
    """The table with responses drawn at these abilities in its observed cells."""
    cells = table.sparse
    if cells is not None:
        numbers = Partial(_chance, fitted.fit.model.family)
        ability = np.asarray(theta, np.asarray(fitted.items[0]).dtype)
        places = cells.row, cells.column, cells.value
        blocks = cell_blocks(numbers, fitted.items, ability, *places)
        chance = np.concatenate([part for _, part in blocks])
        value = (random.random(chance.shape) < chance).astype(cells.value.dtype)
        return table.replace(values=dataclasses.replace(cells, value=value))
    values = np.zeros_like(table.values)
    height = max(1, 4_000_000 // table.num_items)
    for start in range(0, table.num_subjects, height):
        rows = slice(start, start + height)
        chance = fitted.curves(theta[rows]).T
        values[rows] = random.random(chance.shape) < chance
    if table.observed is not None:
        values = values * table.observed
    return dataclasses.replace(table, values=values)


def no_signal(
    table: ResponseTable,
    fitted: OrderedFit,
    guess: np.ndarray,
    statistics: ItemStatistics,
    level: float,
    permutations: int,
    seed: int,
) -> pa.Table:
    """Audits tables without defects, and counts what is flagged all the same.

    Defects that concern ability are looked for in tables whose items are permuted over
    subjects; those that concern the model in tables drawn from the fitted model. There
    is a row for each tested defect, and one for "discriminates", the claim that an
    item's discrimination is not 0: number flagged in the data, mean and largest number
    flagged without signal, and the share of these tables with any flag.
    """
    counts = []
    for k in watched(range(permutations), "table without signal"):
        random = np.random.default_rng([seed, k])
        numbers = []
        for draw in watched((_permuted_with, simulated)):
            numbers.append(
                _numbers(examine(*draw(table, fitted, random), guess), level)
            )
        without, of_model = numbers
        counts.append(of_model | {name: without[name] for name in PERMUTED})
    rows = []
    for name, flagged in _numbers(statistics, level).items():
        number = np.array([count[name] for count in counts])
        rows.append(
            {
                "defect": name,
                "flagged": flagged,
                "without_signal_mean": float(number.mean()),
                "without_signal_most": int(number.max()),
                "without_signal_any": float(np.mean(number > 0)),
                "tables": "permuted" if name in PERMUTED else "of the model",
            }
        )
    return pa.Table.from_pylist(rows)


def _permuted_with(
    table: ResponseTable, fitted: OrderedFit, random: np.random.Generator
):
    """A permuted table, with the calibration of the data."""
    return permuted(table, random), fitted


def _numbers(statistics: ItemStatistics, level: float) -> dict[str, int]:
    """How many items each defect is flagged for, and how many discriminate."""
    decided = decide(statistics, level).items()
    adjusted = np.nan_to_num(benjamini_hochberg(statistics.classical.p_zero), nan=1.0)
    numbers = {name: int(flagged.sum()) for name, (_, flagged) in decided}
    return numbers | {DISCRIMINATES: int((adjusted <= level).sum())}
