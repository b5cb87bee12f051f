"""The responses of a block of subjects, and what all blocks share."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.uncertainty.covariance import Covariance


class ItemError(NamedTuple):
    """Errors of items and population, split for adding up over items.

    Attributes:
        items: `[items, columns, columns]`, what is each item's alone.
        columns: For each column, `[items, rank]` what items share.
        population: `[2, rank]`.
        rescaled: Whether abilities are divided by the population's sd.
        evidence: `[subjects, 2, rank]` what moves evidence along with it, or None.
    """

    items: Array
    columns: tuple[Array, ...]
    population: Array
    rescaled: Array
    evidence: Array | None

    @classmethod
    def of(cls, covariance: Covariance, evidence: Array | None, dtype) -> ItemError:
        """Splits a covariance; `evidence` as `evidence_moves` of `score`."""
        items, shared = covariance.items, covariance.shared
        own = items - jnp.einsum("rja,rjb->jab", shared, shared)
        return cls(
            own.astype(dtype),
            tuple(shared[..., c].T.astype(dtype) for c in range(items.shape[-1])),
            covariance.shared_scale.T.astype(dtype),
            covariance.rescaled,
            None if evidence is None else evidence.astype(dtype),
        )


class Task(NamedTuple):
    """What every block shares."""

    model: Model
    items: Items
    method: str
    mean: Array
    sd: Array
    item_error: ItemError | None


class Found(NamedTuple):
    """Scores of a block: `[block]` each, `shared` `[block, rank]` or None."""

    ability: Array
    variance: Array
    flag: Array
    shared: Array | None


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
