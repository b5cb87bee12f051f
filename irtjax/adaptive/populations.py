"""Populations of simulated subjects that differ from that of the bank."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax.adaptive.bank import AbstractBank
from irtjax.models.model import Population


def population_of(bank: AbstractBank, population: Any) -> Population:
    """A normal population from what `simulate_tests` takes: see its `population`.

    Args:
        bank: The bank on whose scale it is.
        population: (mean, sd), each a number or `[dims]`; (mean, covariance) with
            `[dims, dims]`; or a `Population`. With standard deviations the correlations
            are those of the bank.

    Returns:
        A population of as many abilities as the bank has.

    Raises:
        ValueError: If a shape does not suit, a standard deviation is not above 0, or a
            covariance is not symmetric and positive definite.

    >>> from irtjax.models.catalogue import rasch
    >>> from irtjax.models.families.logistic import LogisticItems
    >>> from irtjax.adaptive import ItemBank
    >>> ones, zeros = jnp.ones(5), jnp.zeros(5)
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> items = LogisticItems(ones, zeros, zeros, ones)
    >>> other = population_of(ItemBank.create(rasch(), items, unit), (1, 0.5))
    >>> float(other.mean), float(other.sd)
    (1.0, 0.5)
    """
    if isinstance(population, Population):
        if population.log_weights is not None:
            raise ValueError(
                "population: a histogram is not drawn from; give abilities: ability="
            )
        covariance: Any = (
            population.sd if not jnp.ndim(population.mean) else population.covariance
        )
        population = population.mean, covariance
    try:
        mean, spread = (np.asarray(x, float) for x in population)
    except (TypeError, ValueError):
        raise ValueError(
            f"population {population!r}: give a mean and a standard deviation"
        ) from None
    if not (np.isfinite(mean).all() and np.isfinite(spread).all()):
        raise ValueError("population: a mean or standard deviation is not finite")
    own = bank.population
    dims, dtype = np.size(own.mean), bank.mean.dtype
    if not bank.several:
        if mean.size != 1 or spread.size != 1:
            raise ValueError("population: the bank has one ability, give two numbers")
        mean, spread = mean.reshape(()), spread.reshape(())
    shapes = (), (dims,), (dims,) * 2
    if mean.shape not in shapes[:2] or spread.shape not in shapes:
        raise ValueError(
            f"population: give {dims} means, and {dims} standard deviations or a"
            f" {dims} x {dims} covariance, not {mean.shape} and {spread.shape}"
        )
    correlation, sd = own.correlation, spread
    if spread.ndim == 2:
        symmetric = np.allclose(spread, spread.T)
        if not symmetric or np.linalg.eigvalsh(spread).min() <= 0:
            raise ValueError(
                "population: the covariance is not symmetric and positive definite"
            )
        sd = np.sqrt(np.diagonal(spread))
        correlation = spread / np.outer(sd, sd)
    if (sd <= 0).any():
        raise ValueError(
            f"population: the standard deviation {sd.min():g} is not above 0"
        )
    mean, sd = (np.broadcast_to(x, np.shape(own.mean)) for x in (mean, sd))
    center, sd = jnp.asarray(mean, dtype), jnp.asarray(sd, dtype)
    if correlation is not None:
        correlation = jnp.asarray(correlation, dtype)
    return Population(center, sd, None, correlation)
