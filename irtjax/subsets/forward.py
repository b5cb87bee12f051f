"""Orders of items from the responses alone: forward selection, spread difficulty."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from irtjax._types import KeyArray
from irtjax.subsets.clusters import generator_of

#: Variance added to each item's own in forward selection, per mean variance of items.
#: On metabench's GSM8K (50 of 249 items) 0, 0.1 and 1 gave errors of 2.32, 2.24, 2.32.
RIDGE = 0.1
#: Items taken one by one; further ones follow by what they would then take away.
MOST_STEPS = 500


def first_tier(
    allowed: Bool[Array, " items"], tier: Int[Array, " items"]
) -> Bool[Array, " items"]:
    """Those of the allowed items that are of the lowest tier among them."""
    lowest = jnp.min(jnp.where(allowed, tier, jnp.iinfo(tier.dtype).max))
    return allowed & (tier == lowest)


def _forward(
    centred: np.ndarray,
    target: np.ndarray,
    stratum: np.ndarray,
    turns: np.ndarray,
    tier: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`[steps]` positions in order of choice and `[items]` gains after the last."""
    count = centred.shape[1]
    variance = np.sum(centred**2, axis=1) / count
    noise = RIDGE * np.mean(variance)
    with_score = centred @ (target @ centred) / count
    floor = np.finfo(float).tiny
    left, order = np.ones(len(centred), bool), np.empty(len(turns), int)
    loadings = np.zeros((len(turns), len(centred)))

    def gain():
        return with_score**2 / np.maximum(variance + noise, floor)

    for step, turn in enumerate(turns):
        allowed = left & (stratum == turn)
        allowed &= tier == tier[allowed].min()
        best = order[step] = int(np.argmax(np.where(allowed, gain(), -np.inf)))
        before = loadings[:step]
        column = centred @ centred[best] / count - before[:, best] @ before
        scale = np.sqrt(max(variance[best] + noise, floor))
        loadings[step] = loading = column / scale
        with_score = with_score - loading * with_score[best] / scale
        variance = np.maximum(variance - loading**2, 0)
        left[best] = False
    return order, gain()


def forward_priority(vectors, target, stratum, turns, tier) -> np.ndarray:
    """Priorities `[items]` whose falling order is forward selection for full scores.

    With C the covariance of the responses over subjects and t what items count
    (`target`), item j takes away (C t)_j^2 / (C_jj + r) of the variance of the full
    score t'y; r is a ridge. The item that takes away most is chosen, C becomes the
    covariance given it, C - C_j C_j' / (C_jj + r), and so on (forward regression; as
    the choice of sensors for a Gaussian process). No model of the responses is needed,
    so what items share in addition to ability counts too.

    Vectors are `[items, subjects]` responses less each item's mean, 0 for held-out
    subjects; each choice is from the stratum in `turns`, a higher tier comes last.
    """
    vectors, target = np.asarray(vectors, float), np.asarray(target, float)
    order, gain = _forward(vectors, target, stratum, turns[:MOST_STEPS], tier)
    priority = gain / max(float(gain.max()), np.finfo(float).tiny)
    priority[order] = 1 + np.arange(len(order), 0, -1)
    return priority


def spread_priority(
    total: np.ndarray, stratum: np.ndarray, tier: np.ndarray, key: KeyArray
) -> np.ndarray:
    """Priorities `[items]` whose falling order spreads items over the difficulties.

    Items of each stratum and tier are ranked by their totals (equal ones at random),
    shifted in a circle by a random number of places and taken in the order of the van
    der Corput sequence (bits of the place reversed), whose beginnings are all spread
    evenly.
    """
    rng = generator_of(key)
    draw, shift = rng.random((2, len(total)))
    _, group = np.unique(np.stack([stratum, tier]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    order = np.lexsort((draw, total, group))
    count = np.bincount(group)
    first = np.cumsum(count) - count
    place = np.empty(len(total), int)
    place[order] = np.arange(len(total)) - np.repeat(first, count)
    own = count[group]
    place = (place + (shift[group] * own).astype(int)) % own
    bits = max(int(count.max() - 1).bit_length(), 1)
    digits = [((place >> bit) & 1) << (bits - 1 - bit) for bit in range(bits)]
    return -np.sum(digits, axis=0).astype(float)
