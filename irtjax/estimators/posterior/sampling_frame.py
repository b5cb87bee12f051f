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
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
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
from irtjax.models.families.continuous import first_and_second
from irtjax.models.multilevel.density import cell_log_lik, log_density
from irtjax.models.multilevel.model import MultilevelModel, Position

#: From so many items with so many responses each, items are sampled directly: with 805
#: items by 58 subjects that gave four times the effective draws, with 24 items by 8 a
#: fourth, and with 275 by 12 a fourteenth of the transitions diverged.
MANY_ITEMS, MANY_RESPONSES = 200, 30
#: Variance of items around their means that centring assumes: a share of the estimate,
#: as with few data the posterior reaches almost 0, and its bounds.
CAUTION, LIKELY_VARIANCES = 0.25, (0.0005, 0.02)


class Centring(NamedTuple):
    """Rough values of abilities and items, and what the responses inform about them.

    A coordinate x ~ N(mu, v) with estimated v about which the responses have the
    information I, near y, is about normal given them, with mean (1 - w) mu + w y and
    variance v / (1 + I v), w = I v / (1 + I v). Standardised so it depends little on v,
    from v near 0, where a direct coordinate makes a funnel, to large v, where distances
    from mu make one (Papaspiliopoulos, Roberts and Skoeld 2007). Where items are None
    they are sampled directly.

    Attributes:
        ability: y of abilities.
        ability_information: I of a mean subject's responses about each ability.
        items: y of items, relative to the rough abilities (`SamplingFrame`).
        item_information: `item_information` at the rough values.
        share: `share_of_data` at a plausible variance: which effects items inform.
    """

    ability: Float[Array, "subjects groups"]
    ability_information: Float[Array, " groups"]
    items: Float[Array, "stems columns"] | None
    item_information: Float[Array, "stems columns"] | None
    share: Float[Array, "stems columns"] | None

    @classmethod
    def create(
        cls,
        model: MultilevelModel,
        ability: Float[Array, "subjects groups"],
        items: Float[Array, "stems columns"],
        data: Responses,
        *,
        variance: float | Float[Array, " columns"] = 0.02,
    ) -> Centring:
        """From rough abilities and items; `variance` of items given columns before."""
        move, moved = (
            _moves(model, ability, model.zeros(items.dtype).group_effects),
            items,
        )
        for k in range(model.num_columns):
            moved = moved.at[:, k].add(move(items, k))
        information = item_information(model, ability, items, data)
        share = share_of_data(information, variance)
        own = ability_information(model, ability, items, data)
        return cls(ability, own, moved, information, share)

    def of_abilities(self) -> Centring:
        """The same with items sampled directly."""
        return self._replace(items=None, item_information=None, share=None)


class SamplingFrame(eqx.Module):
    """A multilevel model in the sampler's coordinates; shapes are those of a position.

    With 58 subjects and 805 items of normal scores, 2,000 draws had a smallest
    effective sample size of 11 in the plain coordinates and of 520 in these. Slopes of
    free sign keep their scale.

    Args:
        model: The model.
        centring: See `Centring`; None to sample abilities and items directly. The
            coordinate of an item is c = (x + w move - (1 - w) mu - w y) sqrt(1 / v +
            I), with `move` the change above, and mu and v the prior mean and variance
            given the item's columns before, in the order of `levels`. Not used for
            priors that are given. Abilities likewise, each group's given those before,
            of models that are `centred`.
        rough: Abilities near the posterior's, of models that are `centred`: reflections
            with the normals `direction` make their deviations' direction a coordinate.
        order: Of the columns; see `LevelFrame`.
    """

    model: MultilevelModel
    centring: Centring | None
    levels: LevelFrame
    direction: Float[Array, "groups subjects"] | None

    def __init__(
        self,
        model: MultilevelModel,
        centring: Centring | None = None,
        rough: Float[Array, "subjects groups"] | None = None,
        order: tuple[int, ...] | None = None,
    ):
        self.model, self.centring = model, centring
        share = None if centring is None else centring.share
        self.levels = LevelFrame(model, share, order)
        self.direction = None
        if rough is not None and model.centred and rough.shape[0] > 2:
            self.direction = towards(turn(rough).at[0].set(0).T, 1)

    def position(self, coordinates: Position) -> Position:
        """The model's position at coordinates of this frame."""
        return self._position(coordinates)[0]

    def coordinates(self, position: Position) -> Position:
        """The coordinates of a position of the model, such as a start."""
        theta = self.model.abilities(position)
        move = _moves(self.model, theta, position.group_effects)
        prior = _ItemPrior(self, position)
        rows, columns = position.items, position.items
        for k in prior.order:
            column, rough = rows[:, k], self._known(k)
            if rough is None:
                column = column + move(rows, k)
            else:
                near, information = rough
                mean, log_sd = prior.given(rows, k)
                w, log_scale = posterior_scale(information, log_sd)
                gap = column + w * (move(rows, k) - near) - (1 - w) * mean
                column = gap * jnp.exp(-log_scale)
            columns = columns.at[:, k].set(column)
        ability = position.ability
        if self._standardises:
            change = self._of_abilities(position)
            gap = (ability - change.mean[:, None]).T
            standard = solve_triangular(change.factor, gap, lower=True)
            gap = (change.mixed @ standard).T - change.offset
            ability = gap * jnp.exp(-change.log_scale)
        # A reflection is its own inverse.
        ability = self._turned(turn(ability))
        taken = self.levels.towards(self.model, position)
        return taken._replace(ability=ability, items=columns)

    def log_density(self, coordinates: Position, data: Responses) -> Scalar:
        """Log posterior density in these coordinates, up to a constant of the data."""
        position, log_det = self._position(coordinates)
        return log_density(self.model, position, data) + log_det

    def _position(self, coordinates: Position) -> tuple[Position, Array | float]:
        """The position, and the log determinant of its derivatives."""
        ability, of_ability = turn(self._turned(coordinates.ability)), 0.0
        if self._standardises:
            change = self._of_abilities(coordinates)
            gap = ability * jnp.exp(change.log_scale) + change.offset
            standard = solve_triangular(change.mixed, gap.T, lower=True)
            ability = change.mean[:, None] + (change.factor @ standard).T
            of_ability = ability.shape[0] * jnp.sum(change.log_scale)
        turned = coordinates._replace(ability=ability)
        turned, log_det = self.levels.back(self.model, turned)
        log_det = log_det + of_ability
        theta = self.model.abilities(turned)
        move = _moves(self.model, theta, turned.group_effects)
        prior, rows = _ItemPrior(self, turned), turned.items
        # Column by column: a move depends on the model's values of those before.
        for k in prior.order:
            column, rough = rows[:, k], self._known(k)
            if rough is None:
                column = column - move(rows, k)
            else:
                near, information = rough
                mean, log_sd = prior.given(rows, k)
                w, log_scale = posterior_scale(information, log_sd)
                column = jnp.exp(log_scale) * column + (1 - w) * mean
                column = column + w * (near - move(rows, k))
                log_det = log_det + jnp.sum(log_scale)
            rows = rows.at[:, k].set(column)
        return turned._replace(items=rows), log_det

    @property
    def _standardises(self) -> bool:
        """Whether abilities are standardised: others are, by the model."""
        return self.centring is not None and self.model.centred

    def _of_abilities(self, at: Position) -> _AbilityChange:
        """The change of abilities at hyperparameters."""
        assert self.centring is not None
        factor = self.model.covariance_factor(at)
        own = jnp.diagonal(factor)
        information = self.centring.ability_information
        w, log_scale = posterior_scale(information, jnp.log(own))
        # L_kk z_k + w_k sum_j<k L_kj z_j = scale_k c_k + w_k (y_k - mean).
        mixed = w[:, None] * factor + jnp.diag((1 - w) * own)
        mean = self.model.subject_design @ at.subject_effects
        offset = w * (self.centring.ability - mean[:, None])
        return _AbilityChange(factor, mixed, log_scale, mean, offset)

    def _turned(self, ability: Array) -> Array:
        """Every column reflected, with its own normal."""
        if self.direction is None:
            return ability
        normal = self.direction.T
        return ability - 2 * normal * jnp.sum(normal * ability, axis=0)

    def _known(self, column: int) -> tuple[Array, Array] | None:
        """Rough values of a column and their information; None if sampled directly."""
        centring = self.centring
        if centring is None or not self.model.learned[column]:
            return None
        if centring.items is None or centring.item_information is None:
            return None
        return centring.items[:, column], centring.item_information[:, column]

    def kept(self, coordinates: Position, data: Responses) -> dict[str, Array]:
        """The parts of the model's position by name: what to keep of each draw."""
        return self.position(coordinates)._asdict()


class _AbilityChange(NamedTuple):
    """Abilities mean + L z of coordinates c, by M z = scale c + offset."""

    factor: Float[Array, "groups groups"]
    mixed: Float[Array, "groups groups"]
    log_scale: Float[Array, " groups"]
    mean: Float[Array, " subjects"]
    offset: Float[Array, "subjects groups"]


def _moves(
    model: MultilevelModel,
    ability: Float[Array, "subjects groups"],
    effects: Float[Array, "groups columns"],
) -> Callable[[Array, int], Array | float]:
    """The change of a column of items, given the model's values of those before."""
    mean, log_sd = centre(ability)
    added: Array | None = None
    if model.has_group_effects:
        learned = jnp.asarray(model.learned, effects.dtype)
        added = learned * jnp.mean(effects, axis=0)

    def by_stem(values: Float[Array, " items"]) -> Float[Array, " stems"]:
        """The mean of each stem's columns."""
        stem, size = model.stem, model.num_stems
        width = jnp.bincount(stem, length=size).astype(values.dtype)
        return jax.ops.segment_sum(values, stem, size) / width

    def of_stems(values: Array) -> Array:
        return values[0] if model.num_groups == 1 else by_stem(values[model.group])

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
        return by_stem(shift) + own

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
    centring = _centring_jit(model, *start, data)
    if model.num_stems >= MANY_ITEMS and each >= MANY_RESPONSES:
        return _frame_jit(model, centring.of_abilities(), ability, None)
    information = centring.item_information
    assert information is not None
    size, sd = model.num_correlated, jnp.diagonal(factor)
    shares = share_of_data(information, sd**2)
    by_data = np.argsort(-np.asarray(shares).mean(axis=0)[1:size], kind="stable") + 1
    order = (*range(min(size, 1)), *by_data.tolist())
    if size:
        left = jnp.diagonal(reordered(factor[:size, :size], order))
        sd = sd.at[jnp.asarray(order)].set(left)
    variance = jnp.clip(CAUTION * sd**2, *LIKELY_VARIANCES)
    centring = centring._replace(share=share_of_data(information, variance))
    return _frame_jit(model, centring, ability, order)


def posterior_scale(
    information: Array, log_sd: Array, least: float = 1e-9
) -> tuple[Array, Array]:
    """Weight w = I v / (1 + I v) and log sqrt(v / (1 + I v)), by the log of sqrt(v)."""
    ratio = jnp.log(jnp.maximum(information, least)) + 2 * log_sd
    return jax.nn.sigmoid(ratio), log_sd - 0.5 * jax.nn.softplus(ratio)


def share_of_data(information: Array, variance: float | Array) -> Array:
    """I v / (1 + I v): share of precision from the data; v is the prior variance."""
    return information * variance / (1 + information * variance)


def ability_information(
    model: MultilevelModel,
    ability: Float[Array, "subjects groups"],
    items: Float[Array, "stems columns"],
    data: Responses,
) -> Float[Array, " groups"]:
    """Information of a mean subject's responses about the ability of each group."""
    rows = model.family.with_offsets(items[model.stem])
    records, theta = jax.vmap(model.family.constrain)(rows), ability[:, model.group]
    along = lambda t: cell_log_lik(model.family, records, theta + t, data)
    curvature = -jnp.mean(first_and_second(along, theta.dtype)[1], axis=0)
    by_group = jax.ops.segment_sum(curvature, model.group, model.num_groups)
    return _at_least_zero(by_group)


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
    information = _at_least_zero(information)
    return jax.ops.segment_sum(information, model.stem, model.num_stems)


def _at_least_zero(information: Array) -> Array:
    """Information where it is a number and positive, else 0."""
    information = jnp.nan_to_num(information, nan=0.0, posinf=1e9, neginf=0.0)
    return jnp.maximum(information, 0)


_centring_jit = eqx.filter_jit(Centring.create)
_frame_jit = eqx.filter_jit(SamplingFrame)
