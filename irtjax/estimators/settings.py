"""Checks of settings, and the learning rate, that several methods share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def check_least(owner: str, settings: Any, **least: int) -> None:
    """Refuses settings below the least number that each needs."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        whole = isinstance(value, int | np.integer)
        if not whole or value < smallest:
            kind = "" if whole else "a whole number of "
            raise ValueError(
                f"{owner} has {name}={value!r}; it needs {kind}at least {smallest}"
            )


def check_rate(
    name: str, value: float | Array | None, *, positive: bool = True
) -> None:
    """Refuses a setting that is no number above, or at least, 0; not arrays or None."""
    if value is None or hasattr(value, "dtype"):
        return
    number = isinstance(value, float | int) and math.isfinite(value)
    if not number or value < 0 or (positive and value == 0):
        least = "above" if positive else "at least"
        raise ValueError(f"{name} {value!r} is not a number {least} 0")


def falling_rate(first: float | Array, num_steps: int) -> Callable[[Any], Array]:
    """Learning rate by step: it falls to a hundredth along half a cosine."""

    def rate(count):
        share = jnp.minimum(count / num_steps, 1.0)
        return first * (0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * share)))

    return rate
