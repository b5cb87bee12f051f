"""What public functions take as ``key``: a whole number, or a random key of JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from irtjax._types import RandomKey


def is_key(key: Any) -> bool:
    """Whether a value can be a key: a whole number of at least 0, a JAX key, or None.

    >>> import jax
    >>> [is_key(x) for x in (3, None, jax.random.key(0), -1, 0.5, True)]
    [True, True, True, False, False, False]
    """
    if _is_whole(key):
        return key >= 0
    is_number = isinstance(key, np.generic) or not hasattr(key, "dtype")
    return key is None or not is_number


def seed_of(key: RandomKey | None) -> int:
    """The whole number of a key, for draws by NumPy and for files.

    >>> import jax
    >>> seed_of(3), seed_of(jax.random.key(3)), seed_of(None)
    (3, 3, 0)
    """
    check_key(key)
    # A whole number does not start JAX's backend.
    if key is None or isinstance(key, int | np.integer):
        return int(key or 0)
    import jax
    import jax.numpy as jnp

    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key)
    # `jax.random.key(seed)` ends with the two words of its seed.
    high, low = (int(word) for word in words[-2:])
    return (high << 32) | low


def check_key(key: Any) -> None:
    """Refuses what is no key."""
    if not is_key(key):
        cure = "a whole number such as 0, or jax.random.key(0)"
        raise ValueError(f"key {key!r}: give {cure}")


def _is_whole(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)
