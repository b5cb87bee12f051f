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
    if not bank.several:
        if mean.size != 1 or spread.size != 1:
            raise ValueError("population: the bank has one ability, give two numbers")
        return _one(bank, mean.reshape(()), spread.reshape(()))
    return _several(bank, mean, spread)


def _one(bank: Any, mean: np.ndarray, sd: np.ndarray) -> Population:
    """The population of one ability."""
    if sd <= 0:
        raise ValueError(f"population: the standard deviation {sd:g} is not above 0")
    return Population(*(jnp.asarray(x, bank.mean.dtype) for x in (mean, sd)))


def _several(bank: Any, mean: np.ndarray, spread: np.ndarray) -> Population:
    """The population of several abilities."""
    dims, dtype = bank.center.size, bank.center.dtype
    if mean.shape not in ((), (dims,)) or spread.shape not in (
        (),
        (dims,),
        (dims,) * 2,
    ):
        raise ValueError(
            f"population: give {dims} means, and {dims} standard deviations or a"
            f" {dims} x {dims} covariance, not {mean.shape} and {spread.shape}"
        )
    reference = np.asarray(bank.spread, float)
    if spread.ndim < 2:
        if (spread <= 0).any():
            raise ValueError("population: a standard deviation is not above 0")
        sd = np.broadcast_to(spread, (dims,))
        own = np.sqrt(np.diagonal(reference))
        correlation = reference / np.outer(own, own)
    else:
        symmetric = np.allclose(spread, spread.T)
        if not symmetric or np.linalg.eigvalsh(spread).min() <= 0:
            raise ValueError(
                "population: the covariance is not symmetric and positive definite"
            )
        sd = np.sqrt(np.diagonal(spread))
        correlation = spread / np.outer(sd, sd)
    mean = np.broadcast_to(mean, (dims,))
    parts = (jnp.asarray(x, dtype) for x in (mean, sd, correlation))
    center, sd, correlation = parts
    return Population(center, sd, None, correlation)
