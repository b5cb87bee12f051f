"""Items integrated out, one small posterior each, by adaptive quadrature.

With few subjects and many items, each item has a handful of responses and cannot be
estimated. Given the abilities, items are independent, so the likelihood of the
abilities is a product of integrals over two to four coordinates,

    m_j(theta) = int p(y_j | theta, x) p(x | hyper) dx,

each by Gauss-Hermite nodes around its mode, scaled by the curvature there (Naylor and
Smith 1982; one node is the Laplace approximation). Derivatives in the abilities are
posterior expectations at the same nodes (Fisher's and Louis' identities). Items are
processed in blocks, so no items x nodes x subjects array exists. One item's integral is
in `item_posterior`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Num

from irtjax.data.responses import Responses
from irtjax.estimators.laplace.item_posterior import (
    Block,
    Error,
    Found,
    Outer,
    hermite_nodes,
    integrate,
    joint_density,
    orders_of,
    posterior,
)
from irtjax.models.multilevel.model import Hierarchical

#: Items up to which equal ones are not merged to save time: a pass over so many takes
#: milliseconds.
MOST_UNMERGED = 1024
#: Floats of a block's largest array, about what a processor keeps close by.
BLOCK_FLOATS = 2**19


class Units(NamedTuple):
    """Responses arranged by stem: the columns of one stem side by side.

    Attributes:
        values: `[units, width, subjects]` responses.
        exposure: Likewise the mask or number of trials; 0 where a stem has no column.
        group: `[units, width]` group of each column.
        design: `[units, effects]` D.
        offset: `[units, width, columns]` offsets that take coordinates of a column out
            of use (`AbstractResponseFamily.offsets`), or None.
        weight: `[units]` number of stems with the same responses, groups and design:
            with few subjects many are equal. 0 for rows that pad a block.
        row: `[units]` index of the unit's factor of Omega (`Hierarchical.factor_row`).
        unit: `[stems]` unit of each stem.
    """

    values: Num[Array, "units width subjects"]
    exposure: Num[Array, "units width subjects"]
    group: Int[Array, "units width"]
    design: Float[Array, "units effects"]
    offset: Float[Array, "units width columns"] | None
    weight: Float[Array, " units"]
    row: Int[Array, " units"]
    unit: Int[Array, " stems"]

    @property
    def is_aligned(self) -> bool:
        """Whether a unit has several columns: column k then measures group k."""
        return self.group.shape[1] > 1


def arrange(model: Hierarchical, data: Responses) -> Units:
    """Arranges responses by stem. Not for use under jit.

    Raises:
        ValueError: If a stem has two columns of one group.
    """
    stem, group = np.asarray(model.stem), np.asarray(model.group)
    width = int(np.bincount(stem, minlength=1).max())
    column = np.full((model.num_stems, width), -1)
    if width == 1:
        column[stem, 0] = np.arange(len(stem))
        groups = np.zeros((model.num_stems, 1), int)
        groups[stem, 0] = group
    else:
        width = model.num_groups
        column = np.full((model.num_stems, width), -1)
        groups = np.broadcast_to(np.arange(width), column.shape)
        if len(np.unique(stem * width + group)) < len(stem):
            raise ValueError(
                "an item has two columns of one metric: give each column an item and"
                " a metric of its own"
            )
        column[stem, group] = np.arange(len(stem))
    absent = column[..., None] < 0
    values = np.asarray(data.values).T[column]
    seen = np.ones(values.shape, bool)
    if data.exposure is not None:
        seen = np.asarray(data.exposure).T[column]
    # A column that is not there holds another's values: they must count for nothing.
    values, seen = (np.where(absent, 0, x).astype(x.dtype) for x in (values, seen))
    offset = model.family.offsets()
    if offset is not None:
        offset = np.where(absent, 0, offset[column])
    design = np.asarray(model.design)
    first, unit, count = _distinct(values, seen, groups, design)
    # Rows that count for nothing, so that data of about this size share programs.
    lacking = padded_size(model.num_stems, len(first)) - len(first)
    first = np.concatenate([first, np.full(lacking, first[0])])
    count = np.concatenate([count, np.zeros(lacking, count.dtype)])
    # `asarray` without a dtype compiles a program for each shape, `array` does not.
    return Units(
        jnp.array(values[first]),
        jnp.array(seen[first]),
        jnp.array(groups[first]),
        jnp.array(design[first]),
        None if offset is None else jnp.asarray(offset[first], design.dtype),
        jnp.asarray(count, design.dtype),
        jnp.array(np.asarray(model.factor_row)[first]),
        jnp.array(unit),
    )


def padded_size(stems: int, distinct: int) -> int:
    """Number of rows that distinct items are stored in: the next of a few sizes.

    A program compiled for their exact number would suit one data set only. There are
    four sizes per power of two, from 8 on. Few items are counted as if all differed,
    since how many do varies with the responses.

    >>> padded_size(231, 151), padded_size(41_871, 5_055)
    (256, 5120)
    """
    count = stems if stems <= MOST_UNMERGED else distinct
    step = 2 ** max(int(np.ceil(np.log2(max(count, 1)))) - 3, 1)
    return -(-count // step) * step


def _distinct(values, seen, groups, design):
    """First of each distinct unit, the unit of each, and how many each stands for."""
    count = values.shape[0]
    if not np.issubdtype(values.dtype, np.integer):
        return np.arange(count), np.arange(count), np.ones(count)
    _, row = np.unique(design, axis=0, return_inverse=True)
    parts = (values, seen.astype(values.dtype), groups, row.reshape(-1, 1))
    flat = np.concatenate(
        [np.ascontiguousarray(p).reshape(count, -1).astype(np.int32) for p in parts],
        axis=1,
    )
    _, first, unit, times = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, unit.reshape(-1), times


class Summary(NamedTuple):
    """Results of a pass over all items.

    Attributes:
        mode: `[units, columns]` posterior modes, where the next pass starts.
        mean: `[units, columns]` posterior means, averaged over the error of abilities.
        mean_at: `[units, columns]` posterior means at the abilities.
        covariance: `[units, columns, columns]` of each posterior at the abilities.
        within: `[rows, columns, columns]` sums of the covariances averaged over the
            error of abilities, by `factor_row`.
        log_marginal: `[units]` log m_j.
        gradient: `[subjects, groups]` of their sum in the abilities.
        curvature: Minus its second derivatives, `[groups, subjects, subjects]` where a
            unit measures one group, else `[1, groups * subjects, groups * subjects]`.
        safe: Its expected, non-negative part: `[subjects, groups]` diagonal.
        bend: `[subjects, groups]` sum of the derivatives of h_j in the abilities.
        cross: `[groups * subjects, columns, effects]` sums of D times the posterior
            covariance of an item's coordinates with its derivative in the abilities;
            for one group with standard deviations by benchmark these one by one,
            `[rows * subjects, columns, effects]`.
        square: `[rows, columns, columns, effects, effects]` sums of D D' times
            `covariance`, by `factor_row`.
        effect_gradient: `[groups, columns]` of the groups' effects, averaged over the
            error of abilities; no rows without them.
        effect_curvature: `[groups, columns, columns]`, expected; likewise.
    """

    mode: Array
    mean: Array
    mean_at: Array
    covariance: Array
    within: Array
    log_marginal: Array
    gradient: Array
    curvature: Array
    safe: Array
    bend: Array
    cross: Array
    square: Array
    effect_gradient: Array
    effect_curvature: Array


def block_size(units: Units, num_nodes: int) -> int:
    """Units of one block."""
    _, width, subjects = units.values.shape
    size = BLOCK_FLOATS // (num_nodes * width * subjects)
    return int(min(max(size, 1), units.values.shape[0]))


def in_blocks(model: Hierarchical, units: Units, mode: Array, order: int, *more):
    """Quadrature nodes, and the units in blocks, the last one filled up.

    Arrays in `more`, with an axis of units, are put in blocks with them.
    """
    points = hermite_nodes(orders_of(model, order), model.num_columns)
    nodes = tuple(jnp.asarray(x, mode.dtype) for x in points)
    size = block_size(units, len(points[1]))
    fill = -units.values.shape[0] % size

    def block(array):
        if fill:
            rest = jnp.zeros((fill, *array.shape[1:]), array.dtype)
            array = jnp.concatenate([array, rest])
        return array.reshape(-1, size, *array.shape[1:])

    return (nodes, *jax.tree.map(block, (Block(*units[:7], mode), *more)))


def expected_responses(
    model: Hierarchical,
    units: Units,
    outer: Outer,
    mode: Float[Array, "units columns"],
    *,
    order: int,
    num_newton: int = 3,
    ability_covariance: Array | None = None,
    at: Float[Array, "subjects groups"] | None = None,
) -> Float[Array, "units width subjects"]:
    """Mean of each response, observed or not, over the posterior of its item.

    Args:
        model: The model.
        units: The responses that the items are estimated from.
        outer: Abilities and effects that the items are integrated given.
        mode: Modes of the items.
        order: Nodes per coordinate.
        num_newton: Newton steps to the modes.
        ability_covariance: As in `summarise`: the items' densities are then averaged
            over the error of the abilities.
        at: Abilities that respond, if other than those of `outer`.
    """
    ability = outer.ability if at is None else at
    nodes, blocks = in_blocks(model, units, mode, order)
    family = model.family
    per_subject = jax.vmap(family.expected_response, in_axes=(None, 0))

    def one(unit: Block):
        error = None
        if ability_covariance is not None:
            place = unit.group[0] if unit.group.shape[0] == 1 else 0
            nothing = jnp.zeros(unit.values.shape, ability.dtype)
            error = Error(ability_covariance[place], nothing, True)
        log_joint, _, _, (_, shift, _, _) = joint_density(model, outer, unit, error)
        theta = ability.T[unit.group]
        found = posterior(model, outer, unit, log_joint, nodes, num_newton)

        def at(row):
            return jax.vmap(per_subject)(jax.vmap(family.constrain)(row + shift), theta)

        return jnp.einsum("q,qwn->wn", found.share, jax.vmap(at)(found.rows))

    found = lax.map(jax.vmap(one), blocks)
    return found.reshape(-1, *found.shape[2:])[: units.values.shape[0]]


def summarise(
    model: Hierarchical,
    units: Units,
    outer: Outer,
    mode: Float[Array, "units columns"],
    ability_covariance: Array,
    ability_shift: Float[Array, "subjects groups"],
    *,
    order: int,
    num_newton: int,
    corrected: bool = True,
    expected: bool = False,
) -> Summary:
    """One pass over all items; see `Summary`.

    Args:
        model: The model.
        units: The responses by stem.
        outer: Abilities and effects that the items are integrated given.
        mode: Start of the search for their modes.
        ability_covariance: Of the abilities, shaped as `Summary.curvature`.
        ability_shift: From their mode to their mean.
        order: Nodes per coordinate.
        num_newton: Newton steps to each mode.
        corrected: Whether expectations of items are averaged over the error of the
            abilities; the derivatives in the abilities are the same without.
        expected: Whether the items' densities are averaged over the error of the
            abilities; see the module.
    """
    num_units, width, subjects = units.values.shape
    groups, dtype = model.num_groups, outer.ability.dtype
    nodes, blocks = in_blocks(model, units, mode, order)
    columns = model.num_columns

    def one(unit: Block) -> Found:
        place = unit.group[0] if width == 1 else 0
        error = None
        if corrected or expected:
            shift = ability_shift.T[unit.group]
            error = Error(ability_covariance[place], shift, expected)
        return integrate(model, outer, unit, error, nodes, num_newton, corrected)

    rows = model.num_groups if model.has_group_effects else 0
    num_rows = len(outer.residual_factor)
    by_row = groups == 1 and num_rows > 1
    empty = (
        jnp.zeros((groups, subjects), dtype),
        jnp.zeros((groups, subjects), dtype),
        jnp.zeros((num_rows, columns, columns), dtype),
        jnp.zeros_like(ability_covariance),
        jnp.zeros((groups, subjects), dtype),
        jnp.zeros(
            (num_rows if by_row else groups, subjects, columns, units.design.shape[1]),
            dtype,
        ),
        jnp.zeros((num_rows, columns, columns, *[units.design.shape[1]] * 2), dtype),
        jnp.zeros((rows, columns), dtype),
        jnp.zeros((rows, columns, columns), dtype),
    )

    def body(carry, block: Block):
        found = jax.vmap(one)(block)
        group = block.group.reshape(-1)
        add = (
            lambda old, new: old.at[group].add(  # noqa: E731
                new.reshape(-1, *new.shape[2:])
            )
        )
        gradient, bend, within, curvature, safe, cross, square, effect, bow = carry
        weighted = block.design * block.weight[:, None]
        row = jax.nn.one_hot(block.row, num_rows, dtype=dtype)
        square = square + jnp.einsum(
            "ur,uab,ue,uf->rabef", row, found.covariance, weighted, block.design
        )
        ties = jnp.einsum("uawn,ue->uwnae", found.together, weighted)
        cross = cross.at[block.row if by_row else group].add(
            ties.reshape(-1, *ties.shape[2:])
        )
        if width == 1:
            # [units, subjects, subjects], added up by group.
            shared = found.by_node[:, :, 0]
            product = jnp.einsum("uqn,uqk->unk", shared, shared)
            curvature = curvature.at[group].add(-product)
        else:
            shared = found.by_node.reshape(-1, groups * subjects)
            curvature = curvature.at[0].add(-shared.T @ shared)
        if model.has_group_effects:
            effect = add(effect, found.effect_gradient)
            bow = add(bow, found.effect_curvature)
        carry = (
            add(gradient, found.score),
            add(bend, found.bend),
            within + jnp.einsum("ur,uab->rab", row, found.within),
            curvature,
            add(safe, -found.curve),
            cross,
            square,
            effect,
            bow,
        )
        at = found.mean, found.mean_at, found.covariance
        kept = found.mode, *at, found.log_marginal
        return carry, kept

    carry, kept = lax.scan(body, empty, blocks)
    gradient, bend, within, curvature, safe, cross, square, effect, bow = carry
    mode, mean, mean_at, covariance, log_marginal = (
        x.reshape(-1, *x.shape[2:])[:num_units] for x in kept
    )
    diagonal = jnp.arange(curvature.shape[-1])
    at_diagonal = (
        safe if curvature.shape[0] == groups and width == 1 else safe.reshape(1, -1)
    )
    curvature = curvature.at[:, diagonal, diagonal].add(at_diagonal)
    return Summary(
        mode,
        mean,
        mean_at,
        covariance,
        within,
        log_marginal,
        gradient.T,
        curvature,
        safe.T,
        bend.T,
        cross.reshape(-1, *cross.shape[2:]),
        square,
        effect,
        bow,
    )


class Following(NamedTuple):
    """How the effects of items change with the abilities, at the mode of both.

    Attributes:
        omega: `[rows, columns, columns]` precisions of items around their prior means.
        cross: `[groups * subjects, columns * effects]` mixed second derivatives of the
            log-likelihood.
        slope: `[columns * effects, groups * subjects]` derivatives of the effects.
        covariance: `[columns * effects] * 2` of the effects given the abilities.
    """

    omega: Array
    cross: Array
    slope: Array
    covariance: Array


def spread_of_items(
    model: Hierarchical,
    units: Units,
    outer: Outer,
    mode: Float[Array, "units columns"],
    ability_covariance: Array,
    whole: Array,
    follow: Following | None,
    *,
    order: int,
    num_newton: int,
    expected: bool = False,
) -> Float[Array, "units columns"]:
    """Variance that the errors of abilities and effects add to each item's coordinates.

    An item's mean changes with the abilities by its posterior covariance with its
    derivative in them, and with the effects by that with its prior. The effects change
    with the abilities too, so a change of the scale of ability is passed on to the
    items fully.

    Args:
        model: The model.
        units: The responses by stem.
        outer: Abilities and effects that the items are integrated given.
        mode: Start of the search for their modes.
        ability_covariance: As in `summarise`, for expectations of scores.
        whole: `[groups * subjects] * 2` covariance of the abilities, effects unknown.
        follow: How effects change with abilities; None where they are given.
        order: Nodes per coordinate.
        num_newton: Newton steps to each mode.
        expected: As in `summarise`.
    """
    width = units.group.shape[1]
    groups, subjects = model.num_groups, outer.ability.shape[0]
    nodes, blocks = in_blocks(model, units, mode, order)

    def one(unit: Block):
        place = unit.group[0] if width == 1 else 0
        error = None
        if expected:
            nothing = jnp.zeros((width, subjects), whole.dtype)
            error = Error(ability_covariance[place], nothing, expected)
        found = integrate(model, outer, unit, error, nodes, num_newton, False)
        along = jnp.zeros((model.num_columns, groups, subjects), whole.dtype)
        along = along.at[:, unit.group].set(found.together)
        along = along.reshape(model.num_columns, -1)
        more = jnp.zeros(model.num_columns, whole.dtype)
        if follow is not None:
            row = unit.row
            by_effect = found.covariance @ follow.omega[row]
            by_effect = jnp.kron(by_effect, unit.design)
            along = along + by_effect @ follow.slope
            more = jnp.sum((by_effect @ follow.covariance) * by_effect, axis=1)
        return jnp.sum((along @ whole) * along, axis=1) + more

    found = lax.map(jax.vmap(one), blocks)
    return found.reshape(-1, model.num_columns)[: units.values.shape[0]]
