"""Which items to keep: rules of choice, and what a subset leaves unknown.

All orders but that of clusters are nested: the first n items of one are the subset of
size n. Stratified ones go through the strata by a divisor rule, so that every prefix
is shared out in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import equal_nodes, normal_log_weights
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.random_keys import fold_in
from irtjax.subsets.clusters import anchors, generator_of
from irtjax.subsets.forward import first_tier, forward_priority, spread_priority
from irtjax.subsets.predictor import as_records, moments

#: Rules of choice, the simplest first: a tie between rules goes to the first of them.
RULES = (
    "random",
    "difficulty",
    "discrimination",
    "clustering",
    "information",
    "regression",
)
#: Rules that read the responses, in addition to the estimated items.
NEED_VECTORS = ("difficulty", "clustering", "regression")
AIMS = ("score", "ability")
#: Tier of items that are chosen where no stratum has others left.
AVOIDED = 3
#: Abilities at which choices weigh a population.
NUM_ABILITIES = 61


class Worth(NamedTuple):
    """Information of items at weighted abilities."""

    weight: Array  # [abilities], sums to one
    precision: Array  # of ability before any response
    information: Array  # [abilities, items] Fisher information
    slope: Array  # [abilities, items] slope of the item's part of the full score
    noise: Array  # [abilities, items] variance of that part given ability
    discrimination: Array  # [items]


class ItemChoice(NamedTuple):
    """A subset: `[size]` positions in order of choice, and weights that sum to one."""

    items: np.ndarray
    weight: np.ndarray


@stored_jit
def _worth(model: Model, items: Any, mean, sd, target, abilities, responses):
    """`worth` of arrays of one dtype, in one program."""
    family, dtype = model.family, sd.dtype
    if abilities is None:
        nodes = jnp.asarray(equal_nodes(-4.0, 4.0, NUM_ABILITIES), dtype)
        theta, weight = mean + sd * nodes, jax.nn.softmax(normal_log_weights(nodes))
    else:
        theta, weight = abilities, jnp.full(abilities.shape, 1 / abilities.size, dtype)

    def of_item(item, ability):
        at = lambda t: moments(family, item, t)
        (_, noise), (slope, _) = jax.jvp(at, (ability,), (jnp.ones_like(ability),))
        return slope, noise, family.information(item, ability)

    over_items = jax.vmap(of_item, in_axes=(0, None))
    slope, noise, information = lax.map(lambda t: over_items(items, t), theta)
    slope, noise = slope * target, noise * target**2
    if responses is not None:
        information, noise = information * responses, noise / responses
    return Worth(weight, 1 / sd**2, information, slope, noise, items.discrimination)


def worth(
    model: Model,
    items: Any,
    population: Population,
    target: Float[Array, " items"] | np.ndarray,
    abilities: Float[Array, " abilities"] | np.ndarray | None = None,
    responses: Float[Array, " items"] | np.ndarray | None = None,
) -> Worth:
    """Information, slopes and noise of items at abilities, or over the population.

    The model is of one ability and of categories or shares; `target` is what each item
    counts in the full score, `responses` how many right or wrong ones a share is worth.
    """
    items = as_records(items)
    dtype = items[0].dtype
    numbers = population.mean, population.sd, target, abilities, responses
    arrays = (None if x is None else jnp.asarray(x, dtype) for x in numbers)
    return _worth(model, items, *arrays)


@stored_jit
def greedy_order(
    worth: Worth,
    stratum: Int[Array, " items"],
    turns: Int[Array, " size"],
    aim: str,
    tier: Int[Array, " items"],
) -> Int[Array, " size"]:
    """Items one after another, each the one that takes away most expected variance.

    With prior precision c and the information I of what was chosen, ability has
    variance 1 / (c + I), and the full score T(theta) about T'(theta)^2 / (c + I). Item
    j takes away I_j / ((c + I)(c + I + I_j)) of the former; both are averaged over
    the abilities that matter (Bayesian A-optimality; Chaloner and Verdinelli 1995). At
    one ability this is the order of the items' information. For the score, the noise
    of the item's own response, which need no longer be predicted, is added. Each choice
    is from the stratum in `turns`; items of a higher tier are taken when none of a
    lower one is left.
    """
    value, own = worth.weight, jnp.zeros_like(worth.discrimination)
    if aim == "score":
        value = worth.weight * jnp.sum(worth.slope, axis=1) ** 2
        own = worth.weight @ worth.noise

    def step(carry, turn):
        precision, left = carry
        after = precision[:, None] + worth.information
        gain = (value / precision) @ (worth.information / after) + own
        allowed = first_tier(left & (stratum == turn), tier)
        best = jnp.argmax(jnp.where(allowed, gain, -jnp.inf))
        precision = precision + worth.information[:, best]
        return (precision, left.at[best].set(False)), best

    first = jnp.full_like(value, worth.precision)
    left = jnp.ones(stratum.shape, bool)
    return lax.scan(step, (first, left), turns)[1]


@stored_jit
def expected_errors(worth: Worth, order: Int[Array, " size"]) -> tuple[Array, Array]:
    """Root mean variance of ability, and of the full score, after 1, 2, ... items."""
    variance = 1 / (worth.precision + jnp.cumsum(worth.information[:, order], axis=1))

    def unseen(part):
        return part.sum(1, keepdims=True) - jnp.cumsum(part[:, order], axis=1)

    noise = jnp.maximum(unseen(worth.noise), 0)
    score = worth.weight @ (unseen(worth.slope) ** 2 * variance + noise)
    return jnp.sqrt(worth.weight @ variance), jnp.sqrt(score)


def shares(
    mass: np.ndarray,
    stratum: np.ndarray,
    length: int,
    avoid: np.ndarray | None = None,
) -> np.ndarray:
    """The stratum of each of the first `[length]` choices, in proportion at any length.

    Each stratum gets a seat before any gets a second one. Seats go by largest mass /
    (2 k + 1), k being the seats a stratum has (Sainte-Lague, Webster), so each prefix
    is that rule's apportionment with one seat for each. No stratum gets more seats than
    it has items, nor, while others have some, than it has items that need not be
    avoided (`avoid`, `[items]`). `mass` is `[items]` what each item counts.

    >>> shares(np.full(6, 1 / 6), np.array([0, 0, 0, 0, 1, 1]), 3).tolist()
    [0, 1, 0]
    """
    count = np.bincount(stratum)
    total = np.bincount(stratum, weights=mass)
    code = np.repeat(np.arange(len(count)), count)
    seat = np.arange(len(code)) - np.repeat(np.cumsum(count) - count, count)
    # Rounding must not decide between equal claims: the first stratum goes first.
    claim = np.round(total[code] / (2 * seat + 1), 12)
    fine = (
        count if avoid is None else np.bincount(stratum[~avoid], minlength=len(count))
    )
    return code[np.lexsort((code, -claim, seat > 0, seat >= fine[code]))][:length]


def _in_turns(priority, stratum: np.ndarray, turns: np.ndarray, tier) -> np.ndarray:
    """Items by tier and falling priority, each from the stratum whose turn it is."""
    by_stratum = np.lexsort((np.arange(len(priority)), -priority, tier, stratum))
    first = np.searchsorted(stratum[by_stratum], np.arange(stratum.max() + 1))
    earlier = np.zeros(len(turns), int)
    for code in np.unique(turns):
        mine = turns == code
        earlier[mine] = np.arange(mine.sum())
    return by_stratum[first[turns] + earlier]


def _nested_order(worth, rule: str, turns, mass, stratum, tier, key, vectors, aim):
    """Positions in the order of any rule but "clustering", one for each turn."""
    if rule == "information":
        return np.asarray(greedy_order(worth, stratum, turns, aim, tier))
    if rule == "discrimination":
        priority = np.asarray(worth.discrimination, float)
    elif rule == "regression":
        priority = forward_priority(vectors, mass, stratum, turns, tier)
    elif rule == "difficulty":
        priority = spread_priority(vectors.sum(1), stratum, tier, key)
    else:
        priority = generator_of(key).random(len(mass))
    return _in_turns(priority, stratum, turns, tier)


def choose(
    worth: Worth,
    rule: str,
    sizes: Sequence[int],
    *,
    mass: np.ndarray,
    stratum: np.ndarray,
    key: KeyArray,
    tier: np.ndarray | None = None,
    vectors: np.ndarray | None = None,
    aim: str = "score",
) -> dict[int, ItemChoice]:
    """Subsets of given sizes with the weights of their plain weighted means.

    Each item of a stratum has an equal part of the stratum's mass, of which all items
    have one in total; with clusters, an item has the mass of its cluster. Items of a
    higher tier are last in their stratum, and those of `AVOIDED` last of all. The
    rules of `NEED_VECTORS` require success vectors, `[items, subjects]`, and
    "regression" those less each item's mean.
    """
    tier = np.zeros(len(mass), int) if tier is None else tier
    turns = shares(mass, stratum, max(sizes), tier >= AVOIDED)
    if rule == "clustering":
        assert vectors is not None
        return {
            size: _clustered(turns[:size], vectors, mass, stratum, tier, key)
            for size in sizes
        }
    order = _nested_order(worth, rule, turns, mass, stratum, tier, key, vectors, aim)
    return {size: _weighted(order[:size], mass, stratum) for size in sizes}


def _weighted(items: np.ndarray, mass: np.ndarray, stratum: np.ndarray) -> ItemChoice:
    """The first items of a nested order, with equal parts of their strata's mass."""
    count = np.bincount(stratum[items], minlength=stratum.max() + 1)
    total = np.bincount(stratum, weights=mass)
    weight = total[stratum[items]] / count[stratum[items]]
    if len(items) == len(mass):
        weight = mass[items]
    return ItemChoice(items, weight / weight.sum())


def _clustered(turns, vectors, mass, stratum, tier, key: KeyArray) -> ItemChoice:
    """The anchors of each stratum, as many as it has turns."""
    parts = []
    for code, count in enumerate(np.bincount(turns).tolist()):
        if count:
            mine = np.flatnonzero(stratum == code)
            own_key = fold_in(key, code)
            places, weight = _anchors_by_tier(
                vectors[mine], mass[mine], tier[mine], count, own_key
            )
            parts.append((mine[places], weight))
    items, weight = map(np.concatenate, zip(*parts, strict=True))
    by_weight = np.argsort(-weight, kind="stable")
    return ItemChoice(items[by_weight], weight[by_weight] / weight.sum())


def _anchors_by_tier(vectors, mass, tier, size: int, key: KeyArray):
    """Anchors among the items of the first tier, then of the next if need be."""
    parts = []
    for code in np.unique(tier):
        mine = np.flatnonzero(tier == code)
        count = min(size, len(mine))
        size -= count
        if count:
            places, weight = anchors(vectors[mine], mass[mine], count, key)
            parts.append((mine[places], weight))
    items, weight = map(np.concatenate, zip(*parts, strict=True))
    # The items of tiers without an anchor are in the full score all the same.
    return items, weight * mass.sum() / weight.sum()
