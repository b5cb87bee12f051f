"""Means and standard deviations of groups of subjects, and a pass over their data.

On the nodes of one common density N(M, S^2), M the mean of all subjects and S wide
enough for every group, the population N(m_g, s_g^2) of a group is a factor

    exp(e_0 t - e_1 t^2 / 2 + c),   e_0 = m / s^2 - M / S^2,   e_1 = 1 / s^2 - 1 / S^2,

which is the `evidence` that responses carry for each subject: all groups share the
nodes and one pass over the data.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.likelihood.counts import Counts, expected_counts
from irtjax.likelihood.problem import Problem
from irtjax.models.model import Population

#: Standard deviations on either side that nodes reach, of their density and of groups.
REACH = 6.0


class GroupPoint(NamedTuple):
    """Items' coordinates, and means and log standard deviations of the groups."""

    coordinates: Float[Array, "items columns"]
    mean: Float[Array, " groups"]
    log_sd: Float[Array, " groups"]


class GroupCarry(NamedTuple):
    """The frame of the priors (`Model.prior_frame`), and nodes with log weights."""

    frame: Float[Array, "2"]
    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"]


class GroupScale(NamedTuple):
    """What fixes location and scale of the abilities of all groups.

    Attributes:
        anchored: Anchored items do; otherwise all subjects have mean 0 and variance 1.
        equal_means: Whether all groups have one mean: no intercept is common.
        equal_sds: Whether all have one standard deviation: no slope is common.
        at_zero: Whether items with a common intercept differ in their slopes: they are
            the same where ability is 0, so that it cannot be moved.
        unit_slopes: Whether all slopes are 1, so that the variance is free.
    """

    anchored: bool = False
    equal_means: bool = False
    equal_sds: bool = False
    at_zero: bool = False
    unit_slopes: bool = False


def of_all(point: GroupPoint, size: Array) -> Population:
    """Mean and standard deviation of all subjects."""
    share = size / jnp.sum(size)
    mean = share @ point.mean
    second = share @ (jnp.exp(2 * point.log_sd) + point.mean**2)
    return Population(mean, jnp.sqrt(second - mean**2))


def density_of(point: GroupPoint, size: Array) -> Population:
    """The density of the nodes: centred, and wide enough for every group."""
    everyone = of_all(point, size)
    away = jnp.abs(point.mean - everyone.mean) + REACH * jnp.exp(point.log_sd)
    return everyone._replace(sd=jnp.maximum(everyone.sd, jnp.max(away) / REACH))


def evidence_of(point: GroupPoint, population: Population) -> tuple[Array, Array]:
    """`[groups, 2]` evidence and `[groups]` constants, on the nodes of a population."""
    mean, variance = point.mean, jnp.exp(2 * point.log_sd)
    centre, spread = population.mean, population.sd**2
    evidence = jnp.stack([mean / variance - centre / spread, 1 / variance - 1 / spread])
    constant = (centre**2 / spread - mean**2 / variance + jnp.log(spread)) / 2
    return evidence.T, constant - point.log_sd


def pass_of(
    problem: Problem,
    codes: Any,
    point: GroupPoint,
    population: Population,
    carry: GroupCarry,
) -> tuple[Counts, Array]:
    """Expected counts, and the constant of each subject's log-likelihood."""
    evidence, constant = evidence_of(point, population)
    data = dataclasses.replace(problem.data, evidence=evidence[codes])
    counts = expected_counts(
        problem.model,
        problem.model.constrain(point.coordinates),
        population.mean + population.sd * carry.nodes,
        carry.log_weights,
        data,
        moments=True,
    )
    return counts, constant[codes]


def least_sd(density: Population, nodes: Array) -> Scalar:
    """The smallest standard deviation of a group: the distance of the nodes."""
    return density.sd * (nodes[1] - nodes[0])
