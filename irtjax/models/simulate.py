"""Simulated items, abilities and responses of any model."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray, RandomKey
from irtjax.data.responses import Responses
from irtjax.models.family import Items
from irtjax.models.lengths import LengthItems, LengthParameters
from irtjax.models.model import Model, Population, highest_response
from irtjax.numerics.kernels import put_block, scan_subject_blocks, take_block
from irtjax.numerics.memory import require_memory
from irtjax.numerics.random_keys import as_key

#: Bytes of random numbers drawn at once.
_DRAW_BYTES = 64 * 2**20


def require_cells(num_subjects: int, num_items: int, categories: bool) -> None:
    """Refuses a table of responses that does not fit into the memory.

    Of a response in categories with its mask 2 bytes, of a score 9.
    """
    require_memory(
        (2.0 if categories else 9.0) * num_subjects * num_items,
        f"{num_subjects:,} subjects x {num_items:,} items",
        "simulate fewer",
    )


def simulate_abilities(
    num_subjects: int, key: KeyArray, population: Population | None = None, dtype=None
) -> Float[Array, "subjects *dims"]:
    """Abilities drawn from a normal population, N(0, 1) unless one is given.

    Of a population of several abilities `[subjects, dims]`.
    """
    if population is not None and jnp.ndim(population.mean):
        dtype = population.mean.dtype if dtype is None else dtype
        shape = num_subjects, population.mean.size
        root = jnp.linalg.cholesky(population.covariance).astype(dtype)
        return population.mean + jax.random.normal(key, shape, dtype) @ root.T
    theta = jax.random.normal(key, (num_subjects,), dtype)
    if population is None:
        return theta
    return (population.mean + population.sd * theta).astype(theta.dtype)


def simulate_items(
    model: Model,
    num_items: int,
    key: KeyArray,
    *,
    discrimination: tuple[float, float] = (0.5, 1.0),
    intercept_sd: float = 0.5,
    dtype=None,
) -> Items:
    """Items with a ~ U(*discrimination), d ~ N(0, 0.5^2): the cBMM paper's design, A.6.

    Lower asymptotes are U(0.05, 0.3), upper asymptotes lie U(0.85, 1) of the way from
    the lower one to 1, intercepts of ordered families lie evenly within +-1.5 of d,
    easiest first. Other parameters are uniform over the family's `simulated`.
    """
    ranges = {
        "discrimination": discrimination,
        "lower_asymptote": (0.05, 0.3),
        "upper_asymptote": (0.85, 1.0),
        **model.family.simulated,
    }
    fields = {}
    for index, parameter in enumerate(model.family.parameters):
        part = jax.random.fold_in(key, index)
        if parameter.name in ranges:
            shape = (num_items, parameter.size) if parameter.size else (num_items,)
            value = jax.random.uniform(part, shape, dtype, *ranges[parameter.name])
            if parameter.name in model.family.common:
                value = jnp.broadcast_to(value[:1], shape)
        else:
            value = intercept_sd * jax.random.normal(part, (num_items,), dtype)
            if parameter.size:
                offsets = jnp.linspace(1.5, -1.5, parameter.size, dtype=value.dtype)
                value = value[:, None] + (offsets if parameter.size > 1 else 0)
        fields[parameter.name] = value
    return model.family.complete(fields)


def simulate(
    model: Model,
    items: Items,
    theta: Float[Array, " subjects"],
    key: RandomKey,
    *,
    missing: float = 0.0,
    observed: Bool[Array, "subjects items"] | None = None,
    trials: int | None = None,
) -> Responses:
    """Random responses of given subjects to given items.

    Subjects are drawn block by block, so the result is the only array of size subjects
    x items: int8, or logits of scores (see `to_scores` of their family). Pure: jit it
    with the model, `missing` and `trials` static.

    Args:
        model: The model.
        items: Item records, `[items]`.
        theta: Abilities.
        key: A whole number or a JAX key.
        missing: Probability that a cell is missing, independently of all else.
        observed: A mask of the cells to keep, `[subjects, items]`.
        trials: Number of trials of each cell, at most 127; the values are then numbers
            right. None for single responses.

    Returns:
        Responses, with 0 in missing cells.

    Raises:
        ValueError: If `missing` is not in [0, 1), or `trials` is out of range or given
            for a model with more than two categories.

    >>> from irtjax.models.catalogue import two_parameter
    >>> model, key = two_parameter(), jax.random.key(0)
    >>> items = simulate_items(model, 4, key)
    >>> simulate(model, items, jnp.zeros(3), key).values.dtype
    dtype('int8')
    """
    if not 0 <= missing < 1:
        raise ValueError(f"missing {missing} is not a probability below 1")
    if trials is not None and not (1 <= trials <= 127):
        raise ValueError(f"trials {trials} is not between 1 and 127")
    if trials is not None and model.family.num_categories != 2:
        raise ValueError(f"the model {model.name} has no right responses to count")
    shape = num_subjects, num_items = theta.shape[0], jnp.shape(items[0])[0]
    require_cells(num_subjects, num_items, model.family.num_categories > 0)
    size = _block_size(model, num_subjects, num_items, theta.dtype.itemsize)
    value_key, missing_key = jax.random.split(as_key(key))
    holes = missing > 0

    def body(carry, start, is_new):
        values, mask = carry
        part = take_block(theta, start, size)
        block_key = jax.random.fold_in(value_key, start)
        cells = _draw(model, items, part, block_key, trials or 1)
        if holes:
            block_key = jax.random.fold_in(missing_key, start)
            seen = jax.random.bernoulli(block_key, 1 - missing, cells.shape)
            mask = put_block(mask, seen, start)
        return put_block(values, cells, start), mask

    kind = theta.dtype
    if model.family.num_categories:
        large = highest_response(model) > jnp.iinfo(jnp.int8).max
        kind = jnp.int32 if large else jnp.int8
    init = (jnp.zeros(shape, kind), jnp.zeros(shape, bool) if holes else None)
    values, mask = scan_subject_blocks(body, init, num_subjects, size)
    if observed is not None:
        mask = observed if mask is None else mask & observed
    if mask is not None:
        values = jnp.where(mask, values, 0)
    if trials is None:
        return Responses(values, mask)
    counts = jnp.full(shape, trials, jnp.int8)
    return Responses(values, mask, counts if mask is None else counts * mask)


def _block_size(model: Model, num_subjects: int, num_items: int, itemsize: int) -> int:
    """Balanced blocks whose draws for all categories take about `_DRAW_BYTES`."""
    row_bytes = num_items * (model.family.num_categories or 4) * itemsize
    rows = min(num_subjects, max(1, _DRAW_BYTES // max(1, row_bytes)))
    num_blocks = -(-num_subjects // rows)
    return -(-num_subjects // num_blocks)


@eqx.filter_jit
def _draw(model: Model, items: Items, theta: Array, key: KeyArray, trials: int):
    """Responses of a block, or sums of several, int8 `[block, items]`."""
    one = lambda key: model.family.sample(key, items, theta)
    if trials == 1:
        return one(key)
    add = lambda index, total: total + one(jax.random.fold_in(key, index))
    shape = theta.shape[0], jnp.shape(items[0])[0]
    return lax.fori_loop(0, trials, add, jnp.zeros(shape, jnp.int8))


def simulate_length_items(num_items: int, key: KeyArray) -> LengthItems:
    """Lengths with omega ~ N(6, 0.5^2), phi ~ U(0.3, 0.9) and lambda ~ U(0.1, 0.4).

    Like chain-of-thought lengths: a few hundred tokens, with logarithms that vary by
    subject about as much as by chance.
    """
    keys, shape = jax.random.split(key, 3), (num_items,)
    omega = 6 + 0.5 * jax.random.normal(keys[0], shape)
    phi = jax.random.uniform(keys[1], shape, minval=0.3, maxval=0.9)
    variance = jax.random.uniform(keys[2], shape, minval=0.1, maxval=0.4)
    return LengthItems(omega, phi, variance)


def simulate_log_lengths(
    parameters: LengthParameters, theta: Float[Array, " subjects"], key: KeyArray
) -> tuple[Float[Array, "subjects items"], Float[Array, " subjects"]]:
    """Log lengths of given subjects, abilities having variance 1, and their speeds."""
    items, rho = parameters
    speed_key, noise_key = jax.random.split(key)
    own = jax.random.normal(speed_key, theta.shape, theta.dtype)
    speed = rho * theta + jnp.sqrt(1 - rho**2) * own
    shape = (theta.shape[0], items.speed_intercept.shape[0])
    noise = jax.random.normal(noise_key, shape, theta.dtype)
    mean = items.speed_intercept - items.speed_discrimination * speed[:, None]
    return mean + jnp.sqrt(items.residual_variance) * noise, speed
