"""What a method solves: responses, a model, start values and free parameters."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from irtjax.data.responses import Responses
from irtjax.models.family import Items
from irtjax.models.lengths import LengthParameters
from irtjax.models.model import Model, Population

#: What a method estimates from: a `Problem`, or a kind of its own with data and model.
AnyProblem = Any


class Start(NamedTuple):
    """Where an estimator begins.

    Attributes:
        items: Item records, `[items]`.
        theta: Abilities `[subjects]` (or `[subjects, dims]`); None lets a joint method
            choose. Marginal methods ignore it.
        population: Population of ability; None for mean 0, standard deviation 1.
        lengths: Parameters of the response lengths, for models with them.
    """

    items: Items
    theta: Array | None = None
    population: Population | None = None
    lengths: LengthParameters | None = None


class Problem(eqx.Module):
    """A model, its data, and which item coordinates may move.

    Attributes:
        model: The model.
        data: Responses.
        free: `[items, columns]` mask of the unconstrained coordinates to estimate;
            the others keep their start values.
        anchored: Whether fixed item parameters set the ability scale. The population
            is then estimated instead of being standardised.
        prior: Population whose density joint methods penalise abilities with; None for
            N(0, 1). Where the scale of ability is fixed (anchors, models without item
            discriminations) it must be that of the subjects: `irtjax.fit` estimates it
            first. Marginal methods ignore it.
    """

    model: Model
    data: Responses
    free: Bool[Array, "items columns"]
    anchored: bool = eqx.field(static=True, default=False)
    prior: Population | None = None

    @classmethod
    def create(cls, model: Model, data: Responses) -> Problem:
        """The problem in which every item parameter is estimated."""
        return cls(model, data, model.family.free_columns(data.num_items))

    def weighted(self, unit: str, weight: Array) -> Problem:
        """The problem with weights of "subjects" or "items", times those it has."""
        name = "subject_weight" if unit == "subjects" else "item_weight"
        old = getattr(self.data, name)
        new = weight if old is None else weight * old
        data = dataclasses.replace(self.data, **{name: new})
        return dataclasses.replace(self, data=data)


class Parameters(NamedTuple):
    """Estimates in natural form.

    Attributes:
        items: Item records, `[items]`.
        population: Population of ability.
        theta: Abilities of joint methods; None for marginal methods.
        lengths: Parameters of the response lengths, for models with them.
    """

    items: Items
    population: Population
    theta: Array | None = None
    lengths: LengthParameters | None = None


def is_rescaled(problem: Problem) -> bool:
    """Whether the standard deviation of ability is reported as a common slope."""
    model = problem.model
    fixed_slopes = model.scale == "standard" and not model.family.has_slope
    return fixed_slopes and not problem.anchored


def report_scale(problem: Problem, parameters: Parameters) -> Parameters:
    """Estimates on the scale a model reports: 1PL carries its scale in the slope.

    A family without item discriminations is estimated with slope 1 and the standard
    deviation of ability free. A model on the "standard" scale (1PL) reports that
    standard deviation as the common discrimination of abilities with unit variance.
    """
    if not is_rescaled(problem):
        return parameters
    items, population, theta, lengths = parameters
    sd = population.sd
    slope = jnp.broadcast_to(sd, jnp.shape(items.discrimination))
    items = items._replace(discrimination=slope)
    population = population._replace(mean=population.mean / sd, sd=jnp.ones_like(sd))
    theta = None if theta is None else theta / sd
    return Parameters(items, population, theta, lengths)


def estimation_scale(problem: Problem, start: Start) -> Population:
    """Population on the scale of the coordinates: the inverse of `report_scale`."""
    items, population = start.items, start.population
    dtype = jnp.asarray(items[0]).dtype
    if population is None:
        population = Population(jnp.zeros((), dtype), jnp.ones((), dtype))
    if not is_rescaled(problem):
        return population
    slope = items.discrimination[0]
    return population._replace(mean=population.mean * slope, sd=population.sd * slope)


def orient(problem: Problem, start: Start) -> Start:
    """The start, mirrored if its discriminations sum to less than zero.

    Ability and discriminations may change sign together; the direction is fixed by
    a positive sum. Anchored problems have their direction already.
    """
    if problem.anchored or not problem.model.family.has_slope:
        return start
    slope, weight = start.items.discrimination, problem.data.item_weight
    total = jnp.sum(slope if weight is None else slope * weight.astype(slope.dtype))
    sign = jnp.where(total < 0, -1, 1).astype(slope.dtype)
    items = start.items._replace(discrimination=sign * slope)
    theta = None if start.theta is None else sign * start.theta
    return start._replace(items=items, theta=theta)


def is_positive(model: Model) -> bool:
    """Whether there are discriminations, kept at or above 0."""
    family = model.family
    return family.has_slope and family.parameters[0].bijection.kind == "positive"


def rotates(problem: Problem) -> Array:
    """Whether a rotation of the factors changes nothing: all slopes free, any sign."""
    return jnp.all(problem.free) & (not is_positive(problem.model))


def correlates(problem: Problem) -> Array:
    """Whether correlations of the factors are estimated.

    They are not identified where the items of a factor include all those of another:
    in exploratory and bifactor models factors are uncorrelated.
    """
    columns = np.array(problem.model.family.slope_columns)
    mask = problem.free[:, columns].astype(jnp.int32)
    common, size = mask.T @ mask, jnp.sum(mask, axis=0)
    nested = common >= jnp.minimum(size[:, None], size)
    return ~jnp.any(nested & ~jnp.eye(len(size), dtype=bool))
