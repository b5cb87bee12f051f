"""What an audit finds where there is nothing to find."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from irtjax.auditing.examine import DISCRIMINATES, TESTED, Found, Known, decide, examine
from irtjax.ranking.discoveries import benjamini_hochberg

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data import ResponseTable

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
    table: ResponseTable, known: Known, random: np.random.Generator
) -> tuple[ResponseTable, Known]:
    """Responses of the fitted model, abilities drawn from their posteriors, scored."""
    import jax
    import jax.numpy as jnp

    from irtjax import scoring
    from irtjax.validity.residuals import chances

    theta = known.ability + known.error * random.standard_normal(known.ability.size)
    records = jax.tree.map(jnp.asarray, known.items)
    family = known.fit.model.family
    values = np.zeros_like(table.values)
    height = max(1, 4_000_000 // table.num_items)
    for start in range(0, table.num_subjects, height):
        rows = slice(start, start + height)
        grid = jnp.asarray(theta[rows], records[0].dtype)
        chance = np.asarray(chances(family, records, grid))
        values[rows] = random.random(chance.shape) < chance
    if table.observed is not None:
        values = values * table.observed
    drawn = dataclasses.replace(table, values=values)
    population = jax.tree.map(jnp.asarray, known.fit.parameters.population)
    scores = scoring.score(
        known.fit.model, records, population, drawn.responses(), method="eap"
    )
    return drawn, dataclasses.replace(
        known,
        ability=np.asarray(scores.ability, np.float64),
        error=np.asarray(scores.standard_error, np.float64),
    )


def no_signal(
    table: ResponseTable,
    known: Known,
    guess: np.ndarray,
    found: Found,
    *,
    level: float,
    permutations: int,
    seed: int,
) -> pa.Table:
    """Audits tables without defects, and counts what is flagged all the same.

    Defects that concern ability are looked for in tables whose items are permuted over
    subjects; those that concern the model in tables drawn from the fitted model.

    Returns:
        One row per tested defect, and one for "discriminates", the claim that an item's
        discrimination is not 0: flagged in the data, mean and largest number flagged
        without signal, and the share of these tables with any flag.
    """
    import pyarrow as pa

    names = (*TESTED, DISCRIMINATES)
    counts: dict[str, list[int]] = {name: [] for name in names}
    for k in range(permutations):
        random = np.random.default_rng([seed, k])
        without = _numbers(examine(permuted(table, random), known, guess), level)
        drawn, scored = simulated(table, known, random)
        of_model = _numbers(examine(drawn, scored, guess), level)
        for name in names:
            counts[name].append((without if name in PERMUTED else of_model)[name])
    flagged = _numbers(found, level)
    rows = [
        {
            "defect": name,
            "flagged": flagged[name],
            "without_signal_mean": float(np.mean(counts[name])),
            "without_signal_most": int(np.max(counts[name])),
            "without_signal_any": float(np.mean(np.array(counts[name]) > 0)),
            "tables": "permuted" if name in PERMUTED else "of the model",
        }
        for name in names
    ]
    return pa.Table.from_pylist(rows)


def _numbers(found: Found, level: float) -> dict[str, int]:
    """How many items each defect is flagged for, and how many surely discriminate."""
    decided = decide(found, level)
    adjusted = np.nan_to_num(benjamini_hochberg(found.classical.p_zero), nan=1.0)
    return {
        **{name: int(decided[name][1].sum()) for name in TESTED},
        DISCRIMINATES: int((adjusted <= level).sum()),
    }
