"""Multilevel problems, the estimated components, and start values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.ascent import AscentState
from irtjax.estimators.laplace.items import (
    FEW_CELLS,
    DistinctItems,
    Summary,
    arrange,
    stem_weight,
    weigh_stems,
)
from irtjax.likelihood.padding import padded_size
from irtjax.models.model import Model
from irtjax.models.multilevel.model import MultilevelModel, slopes_known

#: Responses of an item from which on `MultilevelProblem.expected` is set.
MANY_PER_ITEM = 20
#: Cells, and abilities, up to which subjects are padded.
PADDED_CELLS, PADDED_ABILITIES = 2**16, 512


class MultilevelProblem(eqx.Module):
    """A multilevel model with its data.

    Attributes:
        model: The model; where `expected`, given discriminations are `known_slopes`.
        data: The responses.
        distinct: The same by stem, equal items merged.
        expected: Whether items' densities are averaged over the error of the abilities,
            and the mean log discrimination of each scale is fixed: for scores, and from
            `MANY_PER_ITEM` responses of an item with a slope on.
        least_subjects: Subjects that small data are padded to, if they have fewer, so
            that a fit without some subjects shares the programs of the whole.
        copies: `[subjects]` numbers of copies of the subjects that were given, where
            they had weights: `data` has a row for each copy (`weighted`).
    """

    model: MultilevelModel
    data: Responses
    distinct: DistinctItems
    expected: bool = eqx.field(static=True, default=True)
    least_subjects: int = eqx.field(static=True, default=0)
    copies: Float[Array, " subjects"] | None = None

    @classmethod
    def create(
        cls, model: MultilevelModel | Model, data: Responses
    ) -> MultilevelProblem:
        """Arranges the data.

        Under `jit` the responses and their weights may be traced, not the model. Equal
        items are then not merged, and missing responses count for `expected`. Weights
        of items multiply their marginal likelihoods; weights of subjects are numbers of
        copies, see `weighted`.

        Args:
            model: A multilevel model; a model of one ability has one group of items,
                and the priors of its items are estimated in place of its own.
            data: The responses.

        Raises:
            ValueError: If the model has several abilities, lengths or discriminations
                of any sign, or the weights are no numbers of copies.

        >>> from irtjax.models.catalogue import two_parameter
        >>> data = Responses(jnp.asarray(np.eye(4, 6), jnp.int8))
        >>> problem = MultilevelProblem.create(two_parameter(positive=True), data)
        >>> problem.model.num_groups, problem.distinct.values.shape
        (1, (6, 1, 4))
        """
        if isinstance(model, Model):
            model = one_group(model, data)
        copies = data.subject_weight
        data = dataclasses.replace(data, subject_weight=None)
        scores = any(part.name == "dispersion" for part in model.family.parameters)
        seen = data.values.size
        if data.observed is not None and not isinstance(data.observed, Tracer):
            seen = float(jnp.sum(data.observed))
        each = seen / max(model.num_stems, 1)
        # Without slopes no scale diverges, and derivatives are more accurate.
        expected = scores or (each >= MANY_PER_ITEM and model.family.has_slope)
        model = slopes_known(model) if expected else model
        model = dataclasses.replace(model, weight=stem_weight(model, data))
        problem = cls(model, data, arrange(model, data), expected)
        return problem if copies is None else problem.weighted("subjects", copies)

    def weighted(self, unit: str, weight: Array) -> MultilevelProblem:
        """The problem with weights of "subjects" or "items"; for use under `jit` too.

        A weight of an item multiplies its marginal likelihood. Copies of a subject have
        an ability each, so their rows are repeated, those of weight 0 left out:
        `[subjects]` whole numbers whose sum is at most the number of subjects. Under
        `jit`, where others cannot be refused, a fit by them ends with the status
        NONFINITE.
        """
        if unit == "items":
            old = self.data.item_weight
            weight = weight if old is None else weight * old
            data = dataclasses.replace(self.data, item_weight=weight)
            total: Any = stem_weight(self.model, data)
            model = dataclasses.replace(self.model, weight=total)
            distinct = weigh_stems(self.distinct, total)
            return dataclasses.replace(self, model=model, data=data, distinct=distinct)
        size = self.data.num_subjects
        if self.copies is not None:
            raise ValueError("subjects have weights already: multiply these")
        whole = jnp.round(weight)
        total = jnp.sum(whole)
        valid = jnp.all((whole == weight) & (whole >= 0)) & (total <= size)
        if not isinstance(valid, Tracer) and not valid:
            raise ValueError(
                "weights of subjects whose items are integrated out are numbers of"
                f" copies: give whole numbers of sum {size} or less"
            )
        rows = jnp.repeat(jnp.arange(size), whole.astype(int), total_repeat_length=size)
        alive = jnp.arange(size) < total
        dtype = self.model.design.dtype
        shown = jnp.where(valid, alive.astype(dtype), jnp.nan)
        take = lambda cells: jnp.asarray(cells)[rows] * alive[:, None]
        cut = lambda cells: None if cells is None else take(cells)
        observed = self.data.observed
        if self.data.trials is None:
            observed = alive[:, None] if observed is None else take(observed)
            observed = jnp.broadcast_to(observed, self.data.values.shape)
        data = dataclasses.replace(
            self.data,
            values=cut(self.data.values),
            observed=None if observed is None else observed.astype(bool),
            trials=cut(self.data.trials),
            evidence=cut(self.data.evidence),
        )
        model = dataclasses.replace(
            self.model,
            subject_design=cut(self.model.subject_design),
            subject_weight=shown,
        )
        copied = lambda cells: (jnp.asarray(cells)[..., rows] * alive).astype(
            cells.dtype
        )
        distinct = self.distinct._replace(
            values=copied(self.distinct.values), exposure=copied(self.distinct.exposure)
        )
        return dataclasses.replace(
            self, model=model, data=data, distinct=distinct, copies=weight
        )

    def of_subjects(self, rows: Float[Array, "rows ..."]) -> Array:
        """Rows of the subjects that were given; NaN of those without a copy."""
        if self.copies is None:
            return rows
        last = jnp.cumsum(self.copies).astype(int) - 1
        has = (self.copies > 0).reshape(-1, *(1,) * (rows.ndim - 1))
        return jnp.where(has, rows[jnp.maximum(last, 0)], jnp.nan)

    def by_distinct(self) -> MultilevelProblem:
        """The same problem with the distinct items as its stems. Not for use under jit.

        Its arrays have the padded size of these and, in small data, of the subjects, so
        programs that are compiled for it serve all data of about this size. Large data
        stay as they are: there the compilation takes a small part of the time. Subjects
        that pad have no responses and weight 0.
        """
        model, distinct = self.model, self.distinct
        if model.family.offsets() is not None or distinct.values.size > FEW_CELLS:
            return self
        size, width, count = distinct.values.shape
        own_weight, weight = model.subject_weight, None
        least = max(count, self.least_subjects)
        rows = padded_size(least, 1)
        if size * width * rows > PADDED_CELLS:
            rows = least
        if rows * model.num_groups > PADDED_ABILITIES:
            rows = count
        elif size * width * rows <= PADDED_CELLS or self.least_subjects:
            weight = jax.device_put(
                (np.arange(rows) < count).astype(model.design.dtype)
            )
        if own_weight is not None:
            weight = resized(own_weight, rows, 0)
        distinct = distinct._replace(
            values=resized(distinct.values, rows, 2),
            exposure=resized(distinct.exposure, rows, 2),
            of_stem=jax.device_put(np.arange(size)),
        )
        columns = lambda x: jax.device_put(np.asarray(x).reshape(size * width, rows).T)
        seen = columns(distinct.exposure)
        masked = seen.dtype == bool
        data = Responses(
            columns(distinct.values),
            observed=seen if masked else None,
            trials=None if masked else seen,
            item_weight=jax.device_put(np.repeat(np.asarray(distinct.weight), width)),
        )
        model = dataclasses.replace(
            model,
            group=jax.device_put(np.asarray(distinct.group).reshape(-1)),
            stem=jax.device_put(np.repeat(np.arange(size), width)),
            design=distinct.design,
            cluster=None if model.cluster is None else distinct.row,
            weight=distinct.weight,
            num_stems=size,
            subject_design=resized(model.subject_design, rows, 0),
            subject_weight=weight,
        )
        return MultilevelProblem(model, data, distinct, self.expected)


def one_group(model: Model, data: Responses) -> MultilevelModel:
    """The multilevel model of one ability whose items have estimated priors."""
    family, named = model.family, f"items of the model {model.name!r}"
    if model.several or model.has_lengths or family.common:
        what = "several abilities" if model.several else "response lengths"
        what = "parameters in common" if family.common else what
        raise ValueError(f"{named} have {what} and cannot be integrated out: use EM()")
    if family.has_slope and family.parameters[0].bijection.kind != "positive":
        raise ValueError(
            f"{named} have discriminations of any sign; those that are integrated out"
            " are above 0: make the model with positive=True"
        )
    if not family.has_slope and model.scale == "standard":
        raise ValueError(
            f"{named} have equal slopes; to be integrated out they have slopes of 1 as"
            " 'rasch', with an estimated standard deviation of ability"
        )
    subjects, items = data.values.shape
    dtype = jnp.zeros(()).dtype
    # On the host: under jit arrays of JAX would be traced.
    arrays: Any = (
        np.zeros(items, int),
        np.arange(items),
        np.ones((items, 1), dtype),
        np.full(1, -1),
        np.zeros((subjects, 0), dtype),
    )
    return MultilevelModel(family, *arrays, num_stems=items)


class Components(NamedTuple):
    """Estimated effects and variances, with the shapes of `Position`.

    In natural units: `effects` is beta, `tilt` k and `log_relative_sd` delta. Effects
    and standard deviations of items have elements even where nothing is estimated.
    """

    log_scale: Array
    correlation: Array
    effects: Array
    log_component_sd: Array
    log_residual_sd: Array
    residual_correlation: Array
    group_effects: Array
    subject_effects: Array
    log_general_sd: Array
    tilt: Array
    log_relative_sd: Array


class AbilityPoint(NamedTuple):
    """What is maximised: the components, and the mode of the abilities given them."""

    components: Components
    ability_mode: Float[Array, "subjects groups"]


class LaplaceCarry(NamedTuple):
    """What a pass starts from, in addition to its point.

    Attributes:
        shift: From the mode of the abilities to their mean.
        ability_covariance: Of the abilities, group by group.
        mode: Posterior modes of the items; `mean` likewise.
        covariance: Posterior covariances of the items given the abilities.
        recent: Objectives before the last `WINDOW` - 1 steps.
    """

    shift: Float[Array, "subjects groups"]
    ability_covariance: Float[Array, "abilities abilities"]
    mode: Float[Array, "distinct columns"]
    mean: Float[Array, "distinct columns"]
    covariance: Float[Array, "distinct columns columns"]
    recent: Float[Array, " steps"]


class LaplaceState(AscentState):
    """State of `laplace`, with names for what its point and its carry hold.

    `log_lik` is the log-likelihood of each distinct item's responses.
    """

    __slots__ = ()

    @property
    def components(self) -> Components:
        """The components of the next point."""
        return self.point.components

    @property
    def ability_mode(self) -> Float[Array, "subjects groups"]:
        """The mode of the abilities at the next point."""
        return self.point.ability_mode

    @property
    def ability(self) -> Float[Array, "subjects groups"]:
        """The mean of the abilities."""
        return self.point.ability_mode + self.carry.shift

    @property
    def ability_on_host(self) -> Float[np.ndarray, "subjects groups"]:
        """The same without a program. Not for use under jit."""
        mode, shift = self.point.ability_mode, self.carry.shift
        return np.asarray(mode, float) + np.asarray(shift, float)

    @property
    def ability_covariance(self) -> Float[Array, "abilities abilities"]:
        """Covariance of the abilities, group by group."""
        return self.carry.ability_covariance

    @property
    def mode(self) -> Float[Array, "distinct columns"]:
        """Posterior modes of the items."""
        return self.carry.mode

    @property
    def mean(self) -> Float[Array, "distinct columns"]:
        """Posterior means of the items."""
        return self.carry.mean

    @property
    def covariance(self) -> Float[Array, "distinct columns columns"]:
        """Posterior covariances of the items given the abilities."""
        return self.carry.covariance


def resized(
    array: Array | np.ndarray, count: int, *axes: int, groups: int = 1
) -> Array:
    """The first `count` of each group along some axes, or zeros after what there is.

    Not for use under jit: on the host, as slices compile a program for each size, and
    so does `jnp.array`.
    """
    parts_of_all = np.asarray(array)
    for axis in axes:
        if parts_of_all.shape[axis] == groups * count:
            continue
        parts = np.moveaxis(parts_of_all, axis, 0)
        parts = parts.reshape(groups, len(parts) // groups, *parts.shape[1:])
        parts = parts[:, :count]
        padding = [
            (0, 0),
            (0, count - parts.shape[1]),
            *[(0, 0)] * (parts_of_all.ndim - 1),
        ]
        parts = np.pad(parts, padding).reshape(groups * count, *parts.shape[2:])
        parts_of_all = np.moveaxis(parts, 0, axis)
    return jax.device_put(parts_of_all)


def with_subjects(state: LaplaceState, count: int) -> LaplaceState:
    """The state of as many subjects: without those that pad, or with them."""
    before, groups = state.ability_mode.shape
    if count == before:
        return state
    # Abilities come last in the coordinates that are accelerated.
    size = state.memory.last_point.size + (count - before) * groups
    names = "points", "residuals", "last_point", "last_residual"
    memory = {name: resized(getattr(state.memory, name), size, -1) for name in names}
    points = {
        name: point._replace(ability_mode=resized(point.ability_mode, count, 0))
        for name in ("point", "best", "image")
        for point in [getattr(state, name)]
    }
    covariance = resized(state.ability_covariance, count, 0, 1, groups=groups)
    carry = state.carry._replace(
        shift=resized(state.carry.shift, count, 0), ability_covariance=covariance
    )
    return state._replace(**points, carry=carry, memory=state.memory._replace(**memory))


class Approximation(NamedTuple):
    """The abilities given components, and expectations of items.

    The mode after a Newton step, the shift from there to the mean, covariance and
    standard errors, prior mean, and Laplace's log marginal likelihood with priors.
    """

    items: Summary
    ability_mode: Float[Array, "subjects groups"]
    shift: Float[Array, "subjects groups"]
    covariance: Float[Array, "abilities abilities"]
    error: Float[Array, "subjects groups"]
    prior_mean: Float[Array, "subjects 1"]
    objective: Scalar


def start_multilevel(model: MultilevelModel, data: Responses) -> tuple[Array, Array]:
    """First abilities `[subjects, groups]` and item coordinates `[stems, columns]`.

    Abilities are standardised mean deviations from the item means, group by group.
    """
    dtype = model.design.dtype
    values = data.values.astype(dtype)
    exposure, weight = data.exposure, jnp.ones(values.shape[1], dtype)
    seen = jnp.ones_like(values) if exposure is None else exposure.astype(dtype)
    if data.item_weight is not None:
        weight = data.item_weight.astype(dtype)
    count = jnp.maximum(jnp.sum(seen, axis=0), 1e-6)
    deviation = values - seen * (jnp.sum(values, axis=0) / count)
    group = model.group, model.num_groups
    by_group = lambda cells: jax.ops.segment_sum((cells * weight).T, *group).T
    # Shrunken as by one response more: those with few responses are no outliers.
    theta = by_group(deviation) / (by_group(seen) + 1)
    centred = theta - model.mean_over_subjects(theta)
    if model.subject_weight is not None:
        centred = centred * model.subject_weight[:, None]
    sd = jnp.sqrt(model.mean_over_subjects(centred**2))
    theta = centred / jnp.maximum(sd, 1e-6)
    means = tuple(jnp.sum(s, axis=0) / count for s in model.family.statistics(values))
    items = model.family.start(means, jnp.ones(len(count), dtype))
    rows = jax.vmap(model.family.unconstrain)(items)
    offsets = model.family.offsets()
    used = jnp.ones_like(rows) if offsets is None else jnp.asarray(offsets == 0, dtype)
    # The mean of a stem's columns; that of all columns where it has none.
    times = used * weight[:, None]
    mean = jnp.sum(rows * times, axis=0) / jnp.sum(times, axis=0)
    weight = jnp.where(used > 0, count[:, None], 1e-6)
    by_stem = lambda x: jax.ops.segment_sum(x, model.stem, model.num_stems)
    total = by_stem(weight * jnp.where(used > 0, rows, mean))
    return theta, total / by_stem(weight)


def start_components(model: MultilevelModel, mode: Array) -> Components:
    """First effects: items around their mean with standard deviation 1, or less.

    Log discriminations have the scale of their prior: from larger ones the fit of
    subjects who hardly differ can end with a few large slopes, a lower mode.
    """
    zeros = model.zeros(mode.dtype)
    effects = jnp.zeros((model.design.shape[1], model.num_columns), mode.dtype)
    effects = effects.at[0].set(jnp.average(mode, axis=0, weights=model.weight))
    log_residual_sd = jnp.log(jnp.minimum(model.residual_scales, 1.0))
    log_residual_sd = log_residual_sd.astype(mode.dtype)
    if model.known_slopes is not None:
        effects = effects.at[0, 0].set(model.known_slopes.mean)
        log_residual_sd = log_residual_sd.at[0].set(math.log(model.known_slopes.sd))
    parts = {name: getattr(zeros, name) for name in Components._fields}
    levels = jnp.full((model.num_components, model.num_columns), -0.5, mode.dtype)
    return Components(**parts)._replace(
        log_scale=zeros.log_scale - 0.5,
        effects=effects,
        log_component_sd=levels,
        log_residual_sd=log_residual_sd,
    )
