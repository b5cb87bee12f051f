"""The responses of a block of subjects, and what all blocks share."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.models.base import Items, Model


class Task(NamedTuple):
    """What every block shares."""

    model: Model
    items: Items
    method: str
    mean: Array
    sd: Array
    item_covariance: Array | None


class Block(NamedTuple):
    """The responses of a block of subjects, as floats."""

    start: Array
    statistics: tuple[Array, ...]
    exposure: Array | None
    item_weight: Array | None
    evidence: Array | None = None

    def total(self, tables: tuple[Array, ...]) -> Array:
        """Each cell's weight times sum_k s_k g_k, `[block, items]`."""
        base, *rest = tables
        total = base if self.exposure is None else base * self.exposure
        for statistic, table in zip(self.statistics, rest, strict=True):
            total = total + statistic * table
        return self.weigh(total)

    def weigh(self, cells: Array) -> Array:
        """Cells times item weights."""
        weight = self.item_weight
        return cells if weight is None else cells * weight.astype(cells.dtype)

    def expose(self, cells: Array) -> Array:
        """Cells times exposure and item weights."""
        return self.weigh(cells if self.exposure is None else cells * self.exposure)


def is_empty(block: Block) -> Array:
    """Which subjects have no response that counts, `[block]`."""
    if block.exposure is None or block.evidence is not None:
        return jnp.zeros(block.statistics[0].shape[0], bool)
    return jnp.sum(block.weigh(block.exposure), axis=1) == 0
