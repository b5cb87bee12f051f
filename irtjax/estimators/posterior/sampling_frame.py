"""Coordinates in which a multilevel model is sampled well.

All items identify location and scale of ability together. Their posterior is much wider
than that of differences between abilities, so abilities and items lie along two narrow
ridges. The frame removes these: an item is expressed relative to the mean m and
standard deviation s of the abilities in its group (with the mean effect of groups that
share items),

    log a'_j = log a_j + log s(theta),   d'_j = d_j + a_j m(theta),

and the abilities are reflected so that their mean is a coordinate. Deviations from the
mean are identified up to their scale; where rough abilities are given, another
reflection makes their direction a coordinate. Each change has Jacobian 1 for any m and
s, so the density is the model's. For effects and covariances see `level_frame`.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.posterior.level_frame import (
    LevelFrame,
    centre,
    moves,
    reordered,
    scales,
    towards,
    turn,
)
from irtjax.models.multilevel.density import cell_log_lik, log_density
from irtjax.models.multilevel.model import MultilevelModel, Position

#: From so many items with so many responses each, items are sampled directly: with 805
#: items by 58 subjects that gave four times the effective draws, with 24 items by 8 a
#: fourth, and with 275 by 12 a fourteenth of the transitions diverged.
MANY_ITEMS, MANY_RESPONSES = 200, 30
#: Variance of items around their means that centring assumes: a share of the estimate,
#: as with few data the posterior reaches almost 0, and its bounds.
CAUTION, LIKELY_VARIANCES = 0.25, (0.0005, 0.02)


class SamplingFrame(eqx.Module):
    """A multilevel model in the sampler's coordinates; shapes are those of a position.

    With 58 subjects and 805 items of normal scores, 2,000 draws had a smallest
    effective sample size of 11 in the plain coordinates and of 520 in these. Slopes of
    free sign keep their scale.

    Args:
        model: The model.
        centring: Weights w between 0 and 1, such as `item_centring`; None for 1
            throughout. The coordinate of an item is c = w mu + (x + w move - mu) /
            sigma^(1 - w), with `move` the change above, and mu and sigma the prior mean
            and standard deviation given the item's columns before, in the order of
            `levels`. Not used for priors that are given.
        rough: Abilities near the posterior's, of models that are `centred`: reflections
            with the normals `direction` make their deviations' direction a coordinate.
        order: Of the columns; see `LevelFrame`.
    """

    model: MultilevelModel
    centring: Float[Array, "stems columns"] | None
    levels: LevelFrame
    direction: Float[Array, "groups subjects"] | None

    def __init__(
        self,
        model: MultilevelModel,
        centring: Float[Array, "stems columns"] | None = None,
        rough: Float[Array, "subjects groups"] | None = None,
        order: tuple[int, ...] | None = None,
    ):
        self.model, self.centring = model, centring
        self.levels = LevelFrame(model, centring, order)
        self.direction = None
        if rough is not None and model.centred and rough.shape[0] > 2:
            self.direction = towards(turn(rough).at[0].set(0).T, 1)

    def position(self, coordinates: Position) -> Position:
        """The model's position at coordinates of this frame."""
        return self._position(coordinates)[0]

    def coordinates(self, position: Position) -> Position:
        """The coordinates of a position of the model, such as a start."""
        move, prior = self._moves(position), _ItemPrior(self, position)
        rows, columns = position.items, position.items
        for k in prior.order:
            w, column = self._weight(k), rows[:, k]
            if w is None:
                column = column + move(rows, k)
            else:
                mean, log_sd = prior.given(rows, k)
                gap = column + w * move(rows, k) - mean
                column = w * mean + gap * jnp.exp((w - 1) * log_sd)
            columns = columns.at[:, k].set(column)
        # A reflection is its own inverse.
        ability = self._turned(turn(position.ability))
        taken = self.levels.towards(self.model, position)
        return taken._replace(ability=ability, items=columns)

    def log_density(self, coordinates: Position, data: Responses) -> Scalar:
        """Log posterior density in these coordinates, up to a constant of the data."""
        position, log_det = self._position(coordinates)
        return log_density(self.model, position, data) + log_det

    def _position(self, coordinates: Position) -> tuple[Position, Array | float]:
        """The position, and the log determinant of its derivatives."""
        ability = turn(self._turned(coordinates.ability))
        turned = coordinates._replace(ability=ability)
        turned, log_det = self.levels.back(self.model, turned)
        move, prior, rows = self._moves(turned), _ItemPrior(self, turned), turned.items
        # Column by column: a move depends on the model's values of those before.
        for k in prior.order:
            w, column = self._weight(k), rows[:, k]
            if w is None:
                column = column - move(rows, k)
            else:
                mean, log_sd = prior.given(rows, k)
                stretch = (1 - w) * log_sd
                column = mean + jnp.exp(stretch) * (column - w * mean)
                column = column - w * move(rows, k)
                log_det = log_det + jnp.sum(stretch)
            rows = rows.at[:, k].set(column)
        return turned._replace(items=rows), log_det

    def _turned(self, ability: Array) -> Array:
        """Every column reflected, with its own normal."""
        if self.direction is None:
            return ability
        normal = self.direction.T
        return ability - 2 * normal * jnp.sum(normal * ability, axis=0)

    def _weight(self, column: int) -> Array | None:
        """Weights of a column; None where they are 1."""
        if self.centring is None or not self.model.learned[column]:
            return None
        return self.centring[:, column]

    def kept(self, coordinates: Position, data: Responses) -> dict[str, Array]:
        """The parts of the model's position by name: what to keep of each draw."""
        return self.position(coordinates)._asdict()

    def _by_stem(self, values: Float[Array, " items"]) -> Float[Array, " stems"]:
        """The mean of each stem's columns."""
        stem, size = self.model.stem, self.model.num_stems
        width = jnp.bincount(stem, length=size).astype(values.dtype)
        return jax.ops.segment_sum(values, stem, size) / width

    def _moves(self, position: Position) -> Callable[[Array, int], Array | float]:
        """The change of a column of items, given the model's values of those before."""
        model, effects = self.model, position.group_effects
        mean, log_sd = centre(model.abilities(position))
        added: Array | None = None
        if model.has_group_effects:
            learned = jnp.asarray(model.learned, effects.dtype)
            added = learned * jnp.mean(effects, axis=0)

        def of_stems(values: Array) -> Array:
            one = model.num_groups == 1
            return values[0] if one else self._by_stem(values[model.group])

        def move(rows: Array, column: int) -> Array | float:
            own = 0.0 if added is None else added[column]
            if not moves(model):
                return own
            if column == 0 and scales(model):
                return of_stems(log_sd) + own
            if column not in model.family.intercept_columns:
                return own
            # Depends on discriminations only, which are the first column.
            constrain = jax.vmap(model.family.constrain)
            if not model.has_group_effects:
                return constrain(rows).discrimination * of_stems(mean)
            each = rows[model.stem] + effects[model.group]
            shift = constrain(each).discrimination * mean[model.group]
            return self._by_stem(shift) + own

        return move


class _ItemPrior:
    """The estimated prior of items, by column in `order`."""

    def __init__(self, frame: SamplingFrame, position: Position):
        model, own = frame.model, frame.levels.order
        self.order = (*own, *range(len(own), model.num_columns))
        if any(model.learned):
            self._means = model.item_means(position)
            factor = model.residual_factor(
                position.log_residual_sd,
                position.residual_correlation,
                model.tilts(position),
                model.log_relative_sds(position),
            )
            self._factor = reordered(factor, self.order)[model.factor_row]

    def given(self, rows: Array, column: int) -> tuple[Array, Array]:
        """Mean `[stems]` and log standard deviation, given the columns before."""
        factor, standard = self._factor, []
        for place, k in enumerate(self.order):
            mean = self._means[:, k]
            for i, earlier in enumerate(standard):
                mean = mean + factor[:, place, i] * earlier
            own = factor[:, place, place]
            if k == column:
                return mean, jnp.log(own)
            standard.append((rows[:, k] - mean) / own)
        raise AssertionError(f"no column {column}")


def suitable_frame(
    model: MultilevelModel,
    data: Responses,
    start: tuple[Array, Array],
    factor: Float[Array, "columns columns"],
    ability: Float[Array, "subjects groups"],
) -> SamplingFrame:
    """The frame for these data: the centring of items and the order of their columns.

    Correlated columns are ordered by the information of the data, discriminations
    first. Many items with many responses each are sampled directly (`MANY_ITEMS`).
    `start` has rough abilities and item coordinates from the responses alone, as an
    estimate may have diverged; `factor` is the estimated factor of the common
    covariance of items around their means, `ability` is near the posterior's.
    """
    count = data.values.size if data.observed is None else jnp.sum(data.observed)
    each = float(count) / max(model.num_stems, 1)
    if model.num_stems >= MANY_ITEMS and each >= MANY_RESPONSES:
        return _frame_jit(model, None, ability, None)
    information = _information_jit(model, *start, data)
    size, sd = model.num_correlated, jnp.diagonal(factor)
    known = share_of_data(information, sd**2)
    by_data = np.argsort(-np.asarray(known).mean(axis=0)[1:size], kind="stable") + 1
    order = (*range(min(size, 1)), *by_data.tolist())
    if size:
        left = jnp.diagonal(reordered(factor[:size, :size], order))
        sd = sd.at[jnp.asarray(order)].set(left)
    variance = jnp.clip(CAUTION * sd**2, *LIKELY_VARIANCES)
    weights = share_of_data(information, variance)
    return _frame_jit(model, weights, ability, order)


def share_of_data(information: Array, variance: float | Array) -> Array:
    """I v / (1 + I v): share of precision from the data; v is the prior variance."""
    return information * variance / (1 + information * variance)


def item_centring(
    model: MultilevelModel,
    ability: Float[Array, "subjects groups"],
    items: Float[Array, "stems columns"],
    data: Responses,
    *,
    variance: float | Float[Array, " columns"] = 0.02,
) -> Float[Array, "stems columns"]:
    """Share of the precision of each item coordinate that comes from the data.

    `share_of_data`, for a plausible `variance` of an estimated prior given the columns
    before. If the data are informative, the coordinate is sampled; if not, its
    standardised distance from the prior mean (Papaspiliopoulos, Roberts and Skoeld
    2007; in between, Gorinova, Moore and Hoffman 2020). Otherwise an estimated sd near
    0 makes a funnel that the sampler cannot enter. Other arguments may be rough.
    """
    return share_of_data(item_information(model, ability, items, data), variance)


def item_information(
    model: MultilevelModel,
    ability: Float[Array, "subjects groups"],
    items: Float[Array, "stems columns"],
    data: Responses,
) -> Float[Array, "stems columns"]:
    """Information of the responses about each item coordinate, the others fixed."""
    rows = model.family.with_offsets(items[model.stem])

    def log_lik(row: Array, theta: Array, column: Responses) -> Scalar:
        item = jax.tree.map(lambda leaf: leaf[None], model.family.constrain(row))
        return jnp.sum(cell_log_lik(model.family, item, theta[:, None], column))

    cells = Responses(data.values, data.observed, data.trials)
    columns = jax.tree.map(lambda leaf: leaf.T[:, :, None], cells)
    curvature = jax.vmap(jax.hessian(log_lik))(rows, ability.T[model.group], columns)
    information = -jnp.diagonal(curvature, axis1=1, axis2=2)
    information = jnp.nan_to_num(information, nan=0.0, posinf=1e9, neginf=0.0)
    return jax.ops.segment_sum(jnp.maximum(information, 0), model.stem, model.num_stems)


_information_jit = eqx.filter_jit(item_information)
_frame_jit = eqx.filter_jit(SamplingFrame)
