"""What public functions take as ``key``: a whole number, or a random key of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, RandomKey
from irtjax.numerics.programs import stored_jit


def is_key(key: Any) -> bool:
    """Whether a value can be a key: a whole number of at least 0, a JAX key, or None.

    >>> [is_key(x) for x in (3, None, jax.random.key(0), -1, 0.5, True)]
    [True, True, True, False, False, False]
    """
    if _is_whole(key):
        return key >= 0
    is_number = isinstance(key, np.generic) or not hasattr(key, "dtype")
    return key is None or not is_number


def as_key(key: RandomKey | None) -> KeyArray:
    """The random key of a whole number or of a key; a fixed one for None.

    Raises:
        ValueError: In one line, for anything else.

    >>> bool(as_key(3) == jax.random.key(3)), bool(as_key(None) == jax.random.key(0))
    (True, True)
    """
    _check(key)
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


def seed_of(key: RandomKey | None) -> int:
    """The whole number of a key, for draws by NumPy and for files.

    >>> seed_of(3), seed_of(jax.random.key(3)), seed_of(None)
    (3, 3, 0)
    """
    _check(key)
    # A whole number does not start JAX's backend.
    if key is None or isinstance(key, int | np.integer):
        return int(key or 0)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key)
    # `jax.random.key(seed)` ends with the two words of its seed.
    high, low = (int(word) for word in words[-2:])
    return (high << 32) | low


def _check(key: Any) -> None:
    """Refuses what is no key."""
    if not is_key(key):
        cure = "a whole number such as 0, or jax.random.key(0)"
        raise ValueError(f"key {key!r}: give {cure}")


def _is_whole(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)
