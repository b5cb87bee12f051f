"""Coordinates in which means, effects and covariances of items are sampled well.

Four strong posterior correlations are removed. Each change of coordinates has a
Jacobian that is constant or that is returned:

- A group's abilities have mean m and standard deviation s. The means of its items are
  shifted with them, log a by log s and d by a m, as is the group's regression of d on
  log a. Effects that the data hardly identify are not shifted: relative to a standard
  deviation near 0 the shift would be unbounded. Where groups share items, the effects
  of groups are shifted, and the items by what the groups have in common.
- If every item has an effect of a component, adding a constant to these effects and
  subtracting it from the mean of all items changes priors only. The coordinate is
  therefore the mean of all items plus the mean effect, and a reflection (Householder)
  makes the mean effect, identified by its prior, a separate coordinate. The same
  holds for effects of groups on shared items, for regressions within groups and for
  standard deviations by benchmark, of which only differences are identified.
- If the standard deviation of a column is hardly identified, its correlations are
  identified less well than its regression on the columns before it. The coordinates
  are these slopes and the log residual standard deviation: the rows of the Cholesky
  factor of the covariance. The caller chooses the order of the columns, because a
  slope on a column that hardly varies is not identified.
- An effect e = tau z, tau its prior standard deviation, has the coordinate tau^w z.
  The weight w is from 0 to 1, and near 1 where many items inform the effect
  (partially non-centred; Gorinova, Moore and Hoffman 2020).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.models.multilevel.model import MultilevelModel, Position
from irtjax.numerics.bijections import IDENTITY, POSITIVE

#: Variance of items around their level that w assumes, in variances of the levels.
_WITHIN_LEVELS = 4.0
#: Least variance of a start.
_LEAST_VARIANCE = 0.01


class LevelFrame(eqx.Module):
    """The coordinate changes of the module for one model; shapes stay the same.

    `add` are the effects that add 1 to the items of a group, or to all items where
    groups share items; None where priors are given. `share` are weights of effects in
    the mean of a group's items, and `average` those in the mean of all. `normal` has
    the normals of the reflections, `power` w, and `gate` the share of the shift with
    abilities that effects take, 0 to 1. `order` is the correlated column at each place
    of the regressions, from column 0.
    """

    add: Float[Array, "effects groups"] | None
    share: Float[Array, "groups effects"] | None
    average: Float[Array, " effects"]
    normal: Float[Array, "components effects"]
    power: Float[Array, "effects columns"]
    gate: Float[Array, "effects columns"]
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, model: MultilevelModel, data_share: Array | None, order: tuple | None
    ):
        # `known` is the share of an item's precision from the data; None for 1.
        self.order = tuple(range(model.num_correlated)) if order is None else order
        design = model.design
        dtype = design.dtype
        of_component = jnp.arange(model.num_components)[:, None] == model.component
        # Components of which every item has exactly one level.
        sums = design @ of_component.T.astype(dtype)
        dummies = ~of_component | jnp.all((design == 0) | (design == 1), axis=0)
        one_each = jnp.all(sums == 1, axis=0) & jnp.all(dummies, axis=1)
        turned = of_component & one_each[:, None]
        first = turned & (jnp.cumsum(turned, axis=1) == 1)
        count = jnp.maximum(jnp.sum(turned, axis=1, keepdims=True), 1).astype(dtype)
        self.normal = _reflection(turned.astype(dtype) * count**-0.5, first)
        data_share = (
            jnp.ones((model.num_stems, 1), dtype) if data_share is None else data_share
        )
        informing = (design**2).T @ (data_share * jnp.asarray(model.learned, dtype))
        share = informing / (informing + _WITHIN_LEVELS)
        of_level = (model.component >= 0)[:, None]
        only_prior = ~of_level | jnp.any(first, axis=0)[:, None]
        self.power = jnp.where(only_prior, 0, share)
        self.gate = jnp.where(of_level, share**2, 1)
        self.average = jnp.mean(design, axis=0).at[0].set(0)
        self.add = self.share = None
        if not all(model.learned[k] for k in (0, *model.family.intercept_columns)):
            return
        of_group = jnp.ones((model.num_stems, 1), dtype)
        if model.has_group_scales and not model.has_group_effects:
            of_group = jnp.zeros((model.num_stems, model.num_groups), dtype)
            of_group = of_group.at[model.stem, model.group].set(1)
        self.share = (of_group / jnp.sum(of_group, axis=0)).T @ design
        # The group's own effect if there is one, else several.
        same = jnp.all(design[:, :, None] == of_group[:, None, :], axis=0)
        own = same & (jnp.cumsum(same, axis=0) == 1)
        several = jnp.linalg.pinv(design) @ of_group
        self.add = jnp.where(jnp.any(own, axis=0), own.astype(dtype), several)

    def towards(self, model: MultilevelModel, position: Position) -> Position:
        """The coordinates of a position of the model, abilities and items unchanged."""
        if not any(model.learned):
            return position
        moved = self._follow(model, position, 1)
        effects, sd = moved.effects, model.effect_sd(moved)
        effects = effects.at[0].add(self.average @ (sd * effects) / sd[0])
        effects = _reflect(effects, self.normal) * sd**self.power
        moved = self._shared(model, _with_turned(moved, effects), 1)
        if not model.correlated:
            return moved
        left, slopes = _to_slopes(model, position, self.order)
        return moved._replace(log_residual_sd=left, residual_correlation=slopes)

    def back(
        self, model: MultilevelModel, coordinates: Position
    ) -> tuple[Position, Scalar | float]:
        """The position, and the log determinant of its derivatives."""
        if not any(model.learned):
            return coordinates, 0.0
        sd = model.effect_sd(coordinates)
        log_det = -jnp.sum(self.power * jnp.log(sd))
        effects = _reflect(coordinates.effects * sd**-self.power, self.normal)
        effects = effects.at[0].add(-(self.average @ (sd * effects)) / sd[0])
        moved = self._shared(model, _with_turned(coordinates, effects), -1)
        if model.correlated:
            log_sd, y, change = _from_slopes(model, coordinates, self.order)
            moved = moved._replace(log_residual_sd=log_sd, residual_correlation=y)
            log_det = log_det + change
        return self._follow(model, moved, -1), log_det

    def _follow(
        self, model: MultilevelModel, position: Position, sign: int
    ) -> Position:
        """Shifts item means with abilities: `sign` 1 to the frame, -1 to the model."""
        if self.add is None or not moves(model):
            return position
        mean, log_sd = centre(model.abilities(position))
        moved = position
        if scales(model):
            moved = self._moved(model, moved, 0, sign * log_sd)
        # Discriminations of the model, in both directions.
        of_model = position if sign > 0 else moved
        slope = self._mean_slope(model, of_model)
        if model.has_group_effects and model.family.has_slope:
            own = of_model.group_effects[:, 0]
            slope = slope * jnp.exp(own) if scales(model) else slope + own
        step = sign * (slope * mean)
        for column in model.family.intercept_columns:
            moved = self._moved(model, moved, column, step)
        if not model.has_tilts:
            return moved
        return moved._replace(tilt=moved.tilt + step / model.hyperpriors.tilt)

    def _shared(
        self, model: MultilevelModel, position: Position, sign: int
    ) -> Position:
        """Reflects the effects of groups; their mean moves to that of all items."""
        if not model.has_group_effects:
            return position
        turned = turn(position.group_effects)
        of_model = position.group_effects if sign > 0 else turned
        learned = jnp.asarray(model.learned, turned.dtype)
        mean = learned * jnp.mean(of_model, axis=0) / model.effect_sd(position)[0]
        return position._replace(
            effects=position.effects.at[0].add(sign * mean), group_effects=turned
        )

    def _moved(
        self, model: MultilevelModel, position: Position, column: int, by: Array
    ):
        """The position with a column of items shifted, by a step for each group."""
        assert self.add is not None
        # Where groups share items, these take the mean step, and groups the rest.
        shared = self.add.shape[1] < model.num_groups
        common = jnp.mean(by)[None] if shared else by
        step = self.gate[:, column] * (self.add @ common)
        step = step / model.effect_sd(position)[:, column]
        moved = position._replace(effects=position.effects.at[:, column].add(step))
        if not model.has_group_effects:
            return moved
        effects = moved.group_effects.at[:, column].add(by - jnp.mean(by))
        return moved._replace(group_effects=effects)

    def _mean_slope(self, model: MultilevelModel, position: Position) -> Array:
        """Prior mean of the discriminations of each group's items."""
        assert self.share is not None
        if not model.family.has_slope:
            return jnp.ones(self.share.shape[0], self.share.dtype)
        mean = self.share @ (model.effect_sd(position) * position.effects)[:, 0]
        if not scales(model):
            return mean
        return jnp.exp(mean + 0.5 * jnp.exp(2 * position.log_residual_sd[0]))


def _with_turned(position: Position, effects: Array) -> Position:
    """The position with these effects, tilts and relative SDs turned."""
    tilt, log_sd = turn(position.tilt[:, None])[:, 0], turn(position.log_relative_sd)
    return position._replace(effects=effects, tilt=tilt, log_relative_sd=log_sd)


def reordered(factor: Array, order: tuple[int, ...]) -> Array:
    """Cholesky factor `[..., columns, columns]` with column `order[k]` at place k."""
    if order == tuple(range(len(order))):
        return factor
    # Gram-Schmidt on the rows: the covariance would lose half of the digits of a small
    # standard deviation. Written out, as LAPACK is slow in loops.
    axes: list[Array] = []
    rows = []
    for place in order:
        left, row = factor[..., place, :], []
        for axis in axes:
            row.append(jnp.sum(left * axis, axis=-1))
            left = left - row[-1][..., None] * axis
        row.append(jnp.sqrt(jnp.sum(left**2, axis=-1)))
        axes.append(left / row[-1][..., None])
        row += [jnp.zeros_like(row[-1])] * (len(order) - len(row))
        rows.append(jnp.stack(row, axis=-1))
    return jnp.stack(rows, axis=-2)


def _to_slopes(model: MultilevelModel, position: Position, order: tuple[int, ...]):
    """Log residual SD of each column, and its slopes on those before."""
    log_sd, size = position.log_residual_sd, model.num_correlated
    factor = model.common_factor(log_sd, position.residual_correlation)
    factor = reordered(factor[:size, :size], order)
    left = jnp.log(jnp.diagonal(factor))
    return log_sd.at[:size].set(left), factor[jnp.tril_indices(size, -1)]


def _from_slopes(model: MultilevelModel, taken: Position, order: tuple[int, ...]):
    """The inverse of `_to_slopes`, and the log determinant of its derivatives."""
    log_sd, size = taken.log_residual_sd, model.num_correlated
    left, (rows, columns) = log_sd[:size], jnp.tril_indices(size, -1)
    theirs = jnp.diag(jnp.exp(left)).at[rows, columns].set(taken.residual_correlation)
    factor = reordered(theirs, tuple(order.index(k) for k in range(size)))
    squares = jnp.cumsum(factor**2, axis=1)
    log_marginal_sd = 0.5 * jnp.log(jnp.diagonal(squares))
    # d Omega / d (log L_kk, L_kj) is a constant times the product of L_kk^(p + 1 - k),
    # k from 0; and the product of all L_kk is that of the determinant in any order.
    own = jnp.log(jnp.diagonal(factor))
    log_det = jnp.arange(size, dtype=left.dtype) @ (own - left)
    # A correlation's coordinate is y of L_kj = r tanh y, r^2 the rest of row k.
    rest = jnp.flip(jnp.cumsum(jnp.flip(factor**2, axis=1), axis=1), axis=1)
    log_det = log_det - 0.5 * jnp.sum(jnp.log(rest[rows, columns]))
    y = jnp.arcsinh(factor[rows, columns] / jnp.sqrt(rest[rows, columns + 1]))
    return log_sd.at[:size].set(log_marginal_sd), y, log_det


def moves(model: MultilevelModel) -> bool:
    """Whether intercepts are unconstrained, so that they can be shifted."""
    name = model.family.intercept_name
    parameters = [p for p in model.family.parameters if p.name == name]
    return all(p.bijection == IDENTITY for p in parameters)


def scales(model: MultilevelModel) -> bool:
    """Whether a change of the scale of ability shifts log discriminations."""
    family = model.family
    return family.has_slope and family.parameters[0].bijection == POSITIVE


def centre(ability: Float[Array, "subjects groups"]) -> tuple[Array, Array]:
    """Mean and log standard deviation of the abilities in each group."""
    mean = jnp.mean(ability, axis=0)
    variance = jnp.mean((ability - mean) ** 2, axis=0)
    return mean, 0.5 * jnp.log(variance + _LEAST_VARIANCE)


def turn(rows: Float[Array, "size columns"]) -> Float[Array, "size columns"]:
    """Reflects columns: the first row becomes their mean, times the root of size.

    Householder's reflection exchanges first axis and diagonal; it is its own inverse.
    """
    size, dtype = rows.shape[0], rows.dtype
    if not size:
        return rows
    diagonal = jnp.full((1, size), size**-0.5, dtype)
    return _reflect(rows, _reflection(diagonal, jnp.arange(size) == 0))


def towards(vectors: Float[Array, "planes size"], axis: int) -> Array:
    """Normals of reflections that exchange vectors' directions and an axis; 0 for 0."""
    length = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    at_axis = jnp.arange(vectors.shape[1]) == axis
    # The direction that is further from the axis, against cancellation.
    sign = jnp.where(vectors[:, axis, None] > 0, -1, 1)
    unit = vectors / jnp.where(length > 0, length, 1)
    normal = jnp.where(length > 0, sign * unit - at_axis, 0)
    size = jnp.linalg.norm(normal, axis=1, keepdims=True)
    return normal / jnp.where(size > 0, size, 1)


def _reflection(diagonal: Float[Array, "planes size"], first: Array) -> Array:
    """Normals of the reflections that exchange unit vectors with the first axes."""
    normal = diagonal - jnp.where(first, jnp.ones((), diagonal.dtype), 0)
    # A single entry is its own mean: no reflection.
    length = jnp.linalg.norm(normal, axis=1, keepdims=True)
    return normal / jnp.maximum(length, 0.1)


def _reflect(rows: Array, normal: Float[Array, "planes size"]) -> Array:
    """Rows reflected at every plane; normals have no entries in common."""
    return rows - 2 * normal.T @ (normal @ rows)
