"""Random keys of JAX, from what public functions take as ``key`` (`seeds`)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from irtjax._types import KeyArray, RandomKey
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.seeds import check_key


def as_key(key: RandomKey | None) -> KeyArray:
    """The random key of a whole number or of a key; a fixed one for None.

    Raises:
        ValueError: In one line, for anything else.

    >>> bool(as_key(3) == jax.random.key(3)), bool(as_key(None) == jax.random.key(0))
    (True, True)
    """
    check_key(key)
    if key is not None and not isinstance(key, int | np.integer):
        return key
    seed, settings = int(key or 0), jax.config.values
    if seed < 2**31 and settings["jax_default_prng_impl"] == "threefry2x32":
        # The same key without the three programs that `jax.random.key` compiles.
        words: Any = np.array([0, seed], np.uint32)
        return jax.random.wrap_key_data(words)
    return jax.random.key(seed)


def split_key(key: KeyArray) -> tuple[KeyArray, KeyArray]:
    """`jax.random.split` in two, by a stored program."""
    words = np.asarray(_split(key))
    first, second = (_key_of(x, key) for x in words)
    return first, second


def fold_in(key: KeyArray, number: int) -> KeyArray:
    """`jax.random.fold_in` by a stored program, the same for all numbers."""
    return _key_of(_fold_in(key, np.uint32(number)), key)


@stored_jit
def _split(key: KeyArray):
    return jax.random.key_data(jax.random.split(key))


@stored_jit
def _fold_in(key: KeyArray, number):
    return jax.random.key_data(jax.random.fold_in(key, number))


def _key_of(words: Any, like: KeyArray) -> KeyArray:
    """A key of the same kind as another: programs that return keys are not stored."""
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(like))
