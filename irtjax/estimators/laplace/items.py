"""Items integrated out, one small posterior each, by adaptive quadrature.

With few subjects and many items, each item has a handful of responses and cannot be
estimated. Given the abilities, items are independent, so the likelihood of the
abilities is a product of integrals over two to four coordinates,

    m_j(theta) = int p(y_j | theta, x) p(x | hyper) dx,

each by Gauss-Hermite nodes around its mode, scaled by the curvature there (Naylor and
Smith 1982; one node is the Laplace approximation). Derivatives in the abilities are
posterior expectations at the same nodes (Fisher's and Louis' identities). Items are
processed in blocks, so no items x nodes x subjects array exists.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Num

from irtjax.data.responses import Responses
from irtjax.estimators.laplace.item_posterior import (
    Block,
    Error,
    Outer,
    hermite_nodes,
    integrate,
    joint_density,
    orders_of,
    posterior,
)
from irtjax.likelihood.padding import padded_size
from irtjax.models.multilevel.model import MultilevelModel

#: Items up to which a pass takes milliseconds: merging equal ones saves no time.
MOST_UNMERGED = 1024
#: Cells up to which `MultilevelProblem.by_distinct` is what programs are compiled for.
FEW_CELLS = 2**20
#: Floats of a block's largest array, about the size of a processor's cache.
BLOCK_FLOATS = 2**19


class DistinctItems(NamedTuple):
    """Distinct items, or stems: the columns of one stem side by side.

    Attributes:
        exposure: The mask or number of trials; 0 where a stem has no column.
        offset: Offsets that take coordinates of a column out of use, or None.
        weight: Number of stems with the same responses, groups and design: with few
            subjects many are equal. 0 for rows that pad a block.
        row: Index of the item's factor of Omega (`MultilevelModel.factor_row`).
        sign: -1 for items with negative slopes, whose abilities are reversed; else 1.
        of_stem: Place of each stem among the distinct items.
    """

    values: Num[Array, "distinct width subjects"]
    exposure: Num[Array, "distinct width subjects"]
    group: Int[Array, "distinct width"]
    design: Float[Array, "distinct effects"]
    offset: Float[Array, "distinct width columns"] | None
    weight: Float[Array, " distinct"]
    row: Int[Array, " distinct"]
    sign: Float[Array, " distinct"]
    of_stem: Int[Array, " stems"]

    @property
    def is_aligned(self) -> bool:
        """Whether an item has several columns: column k then measures group k."""
        return self.group.shape[1] > 1


def arrange(
    model: MultilevelModel,
    data: Responses,
    sign: np.ndarray | None = None,
    least_rows: int = 0,
) -> DistinctItems:
    """Responses by stem. Refuses two columns of one group.

    `sign` is that of each stem's slope; None for positive ones. Equal stems are merged,
    but not under jit, where only the responses and the stems' weights may be traced.
    Distinct items are padded to `least_rows`, those of similar data, at least, so that
    these share programs.
    """
    sign = np.ones(model.num_stems) if sign is None else sign
    stem, group = np.asarray(model.stem), np.asarray(model.group)
    aligned = int(np.bincount(stem, minlength=1).max()) > 1
    width = model.num_groups if aligned else 1
    place = group if aligned else np.zeros_like(group)
    if len(np.unique(stem * width + place)) < len(stem):
        raise ValueError(
            "an item has two columns of one metric: give each column an item and a"
            " metric of its own"
        )
    column = np.full((model.num_stems, width), -1)
    column[stem, place] = np.arange(len(stem))
    groups = np.broadcast_to(np.arange(width), column.shape)
    if not aligned:
        groups = np.zeros((model.num_stems, 1), int)
        groups[stem, 0] = group
    absent = column[..., None] < 0
    traced = any(isinstance(x, Tracer) for x in (data.values, data.exposure))
    on: Any = jnp if traced else np
    values = on.asarray(data.values).T[column]
    seen = np.ones(values.shape, bool)
    if data.exposure is not None:
        seen = on.asarray(data.exposure).T[column]
    # An absent column has another's values: they must not count.
    values, seen = (on.where(absent, 0, x).astype(x.dtype) for x in (values, seen))
    offset = model.family.offsets()
    if offset is not None:
        offset = np.where(absent, 0, offset[column])
    design = np.asarray(model.design)
    if traced:
        every = np.arange(model.num_stems)
        first, of_stem, count = every, every, np.ones(model.num_stems)
    else:
        first, of_stem, count = _distinct(values, seen, groups, design, sign)
    # Rows of weight 0, so that data of about this size share programs. Few items are
    # counted as if all differed, since how many do varies with the responses.
    few = model.num_stems <= MOST_UNMERGED
    rows = max(padded_size(model.num_stems if few else len(first)), least_rows)
    if offset is not None or rows * values[0].size > FEW_CELLS:
        rows = min(rows, model.num_stems)
    lacking = rows - len(first)
    first = np.concatenate([first, np.full(lacking, first[0])])
    count = np.concatenate([count, np.zeros(lacking, count.dtype)])
    factor_row: Any = np.zeros(model.num_stems, int)
    if model.cluster is not None or model.has_tilts:
        factor_row = model.factor_row
    if not isinstance(factor_row, Tracer):
        factor_row = np.asarray(factor_row)
    # `array` and `asarray` compile a program for each shape, this does not.
    arrays: Any = jax.device_put(
        (
            values[first],
            seen[first],
            groups[first],
            design[first],
            None if offset is None else offset[first].astype(design.dtype),
            count.astype(design.dtype),
            factor_row[first],
            sign[first].astype(design.dtype),
            of_stem,
        )
    )
    distinct = DistinctItems(*arrays)
    return distinct if model.weight is None else weigh_stems(distinct, model.weight)


def weigh_stems(
    distinct: DistinctItems, weight: Float[Array, " stems"]
) -> DistinctItems:
    """The distinct items with the weights of the stems that each stands for."""
    zeros = jnp.zeros_like(distinct.weight)
    total = zeros.at[distinct.of_stem].add(weight.astype(zeros.dtype))
    return distinct._replace(weight=total)


def stem_weight(model: MultilevelModel, data: Responses) -> Array | None:
    """The weight of each stem, the mean of its columns'; as the model has it if none.

    Where a stem has several columns they have one item's weight.
    """
    if data.item_weight is None:
        return model.weight
    weight = data.item_weight.astype(model.design.dtype)
    zeros = jnp.zeros(model.num_stems, weight.dtype)
    # Traced where the whole problem is an argument of a compiled function.
    stem = jnp.asarray(model.stem)
    return zeros.at[stem].add(weight) / zeros.at[stem].add(1)


def _distinct(values, seen, groups, design, sign):
    """First of each kind of items, the kind of each, and how many each stands for."""
    count = values.shape[0]
    if not np.issubdtype(values.dtype, np.integer):
        return np.arange(count), np.arange(count), np.ones(count)
    _, row = np.unique(design, axis=0, return_inverse=True)
    parts = (values, seen.astype(values.dtype), groups, row.reshape(-1, 1))
    parts += (sign[:, None],)
    flat = np.concatenate(
        [np.ascontiguousarray(p).reshape(count, -1).astype(np.int32) for p in parts],
        axis=1,
    )
    _, first, kind, times = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, kind.reshape(-1), times


class Summary(NamedTuple):
    """Results of a pass over all items.

    Attributes:
        mode: Posterior modes, where the next pass starts.
        mean: Posterior means, averaged over the error of abilities.
        mean_at: Posterior means at the abilities; `covariance` likewise.
        within: Sums of covariances over the error of abilities, by `factor_row`.
        log_marginal: log m_j.
        gradient: Of their sum in the abilities.
        curvature: Minus its second derivatives, `[groups, subjects, subjects]` where a
            item measures one group, else `[1, groups * subjects, groups * subjects]`.
        safe: Diagonal of its expected, non-negative part.
        bend: Sum of the derivatives of h_j in the abilities.
        cross: Sums of D times the posterior covariance of an item's coordinates with
            its derivative in the abilities; with SDs by benchmark in one group, by row.
        square: Sums of D D' times `covariance`, by `factor_row`.
        effect_gradient: Of the groups' effects, averaged over the error of abilities.
        effect_curvature: Expected; both have no rows without such effects.
    """

    mode: Float[Array, "distinct columns"]
    mean: Float[Array, "distinct columns"]
    mean_at: Float[Array, "distinct columns"]
    covariance: Float[Array, "distinct columns columns"]
    within: Float[Array, "rows columns columns"]
    log_marginal: Float[Array, " distinct"]
    gradient: Float[Array, "subjects groups"]
    curvature: Float[Array, "blocks abilities abilities"]
    safe: Float[Array, "subjects groups"]
    bend: Float[Array, "subjects groups"]
    cross: Float[Array, "abilities columns effects"]
    square: Float[Array, "rows columns columns effects effects"]
    effect_gradient: Float[Array, "some columns"]
    effect_curvature: Float[Array, "some columns columns"]


def in_blocks(
    model: MultilevelModel, distinct: DistinctItems, mode: Array, order: int, *others
):
    """Quadrature nodes, and the items (with arrays in `more`) in blocks, filled up."""
    points = hermite_nodes(orders_of(model, order), model.num_columns)
    nodes = tuple(jnp.asarray(x, mode.dtype) for x in points)
    count, width, subjects = distinct.values.shape
    size = BLOCK_FLOATS // (len(points[1]) * width * subjects)
    size = min(max(size, 1), count)
    fill = -count % size

    def block(array):
        if fill:
            rest = jnp.zeros((fill, *array.shape[1:]), array.dtype)
            array = jnp.concatenate([array, rest])
        return array.reshape(-1, size, *array.shape[1:])

    return (nodes, *jax.tree.map(block, (Block(*distinct[:8], mode), *others)))


def expected_responses(
    model: MultilevelModel,
    distinct: DistinctItems,
    outer: Outer,
    mode: Float[Array, "distinct columns"],
    *,
    order: int,
    num_newton: int = 3,
    ability_covariance: Array | None = None,
    at: Float[Array, "subjects groups"] | None = None,
) -> Float[Array, "distinct width subjects"]:
    """Mean of each response, observed or not, over the posterior of its item.

    With `ability_covariance` (as in `summarise`) the items' densities are averaged over
    the error of the abilities. `at` are the abilities that respond, if not those of
    `outer`.
    """
    ability = outer.ability if at is None else at
    nodes, blocks = in_blocks(model, distinct, mode, order)
    family = model.family
    per_subject = jax.vmap(family.expected_response, in_axes=(None, 0))

    def one(item: Block):
        error = None
        if ability_covariance is not None:
            error = Error.of(item, ability_covariance, True)
        log_joint, *_, shift = joint_density(model, outer, item, error)
        theta = item.sign * ability.T[item.group]
        _, rows, share, _ = posterior(model, outer, item, log_joint, nodes, num_newton)

        def at(row):
            return jax.vmap(per_subject)(jax.vmap(family.constrain)(row + shift), theta)

        return jnp.einsum("q,qwn->wn", share, jax.vmap(at)(rows))

    means = lax.map(jax.vmap(one), blocks)
    return means.reshape(-1, *means.shape[2:])[: distinct.values.shape[0]]


def summarise(
    model: MultilevelModel,
    distinct: DistinctItems,
    outer: Outer,
    mode: Float[Array, "distinct columns"],
    ability_covariance: Array,
    ability_shift: Float[Array, "subjects groups"],
    *,
    order: int,
    num_newton: int,
    corrected: bool = True,
    expected: bool = False,
) -> Summary:
    """One pass over all items from start values `mode`; see `Summary`.

    `ability_covariance` is shaped as `Summary.curvature`; `ability_shift` is from the
    mode of the abilities to their mean. If `corrected`, expectations of items are
    averaged over the error of the abilities; derivatives in the abilities are the same
    without. If `expected`, the items' densities are (see `item_posterior`).
    """
    count = distinct.values.shape[0]
    nodes, blocks = in_blocks(model, distinct, mode, order)

    def one(item: Block) -> dict[str, Array]:
        error = None
        if corrected or expected:
            error = Error.of(item, ability_covariance, expected, ability_shift)
        return integrate(model, outer, item, error, nodes, num_newton, corrected)

    def body(sums, block: Block):
        results = jax.vmap(one)(block)
        names = "mode", "mean", "mean_at", "covariance", "log_marginal"
        return _add_block(sums, block, results), {name: results[name] for name in names}

    empty = _empty_sums(model, outer, distinct, ability_covariance)
    sums, by_item = lax.scan(body, empty, blocks)
    by_item = {k: x.reshape(-1, *x.shape[2:])[:count] for k, x in by_item.items()}
    curvature, cross = sums["curvature"], sums["cross"]
    diagonal = jnp.arange(curvature.shape[-1])
    at_diagonal = sums["safe"].reshape(curvature.shape[:-1])
    sums["curvature"] = curvature.at[:, diagonal, diagonal].add(at_diagonal)
    sums["cross"] = cross.reshape(-1, *cross.shape[2:])
    sums |= {name: sums[name].T for name in ("gradient", "bend", "safe")}
    return Summary(**by_item, **sums)


def _empty_sums(
    model: MultilevelModel, outer: Outer, distinct: DistinctItems, covariance: Array
) -> dict[str, Array]:
    """Zeros for the sums of a `Summary`, abilities as `[groups, subjects]`."""
    subjects, size = distinct.values.shape[2], distinct.design.shape[1]
    groups, columns = model.num_groups, model.num_columns
    rows = groups if model.has_group_effects else 0
    num_rows = len(outer.residual_factor)
    by_row = groups == 1 and num_rows > 1
    zeros = lambda *shape: jnp.zeros(shape, outer.ability.dtype)
    return {
        "gradient": zeros(groups, subjects),
        "bend": zeros(groups, subjects),
        "safe": zeros(groups, subjects),
        "within": zeros(num_rows, columns, columns),
        "curvature": jnp.zeros_like(covariance),
        "cross": zeros(num_rows if by_row else groups, subjects, columns, size),
        "square": zeros(num_rows, columns, columns, size, size),
        "effect_gradient": zeros(rows, columns),
        "effect_curvature": zeros(rows, columns, columns),
    }


def _add_block(
    sums: dict[str, Array], block: Block, results: dict[str, Array]
) -> dict[str, Array]:
    """The sums with those of a block of items."""
    (groups, subjects), num_rows = sums["gradient"].shape, len(sums["within"])
    group = block.group.reshape(-1)
    sums = dict(sums)

    def add(name, parts, at=group):
        parts = parts.reshape(-1, *parts.shape[2:])
        sums[name] = sums[name].at[at].add(parts)

    weighted = block.design * block.weight[:, None]
    row = jax.nn.one_hot(block.row, num_rows, dtype=weighted.dtype)
    sums["within"] += jnp.einsum("ur,uab->rab", row, results["within"])
    sums["square"] += jnp.einsum(
        "ur,uab,ue,uf->rabef", row, results["covariance"], weighted, block.design
    )
    ties = jnp.einsum("uawn,ue->uwnae", results["together"], weighted)
    add("cross", ties, block.row if groups == 1 and num_rows > 1 else group)
    if block.group.shape[1] == 1:
        # [distinct, subjects, subjects], added up by group.
        shared = results["by_node"][:, :, 0]
        add("curvature", -jnp.einsum("uqn,uqk->unk", shared, shared)[:, None])
    else:
        shared = results["by_node"].reshape(-1, groups * subjects)
        sums["curvature"] = sums["curvature"].at[0].add(-shared.T @ shared)
    for name in ("gradient", "bend", "safe", "effect_gradient", "effect_curvature"):
        if name in results:
            add(name, results[name])
    return sums


def blocks_of(covariance: Array, groups: int, aligned: bool) -> Array:
    """The covariance as `summarise` takes it: dense, or group by group."""
    if aligned:
        return covariance[None]
    subjects = covariance.shape[0] // groups
    whole = covariance.reshape(groups, subjects, groups, subjects)
    index = jnp.arange(groups)
    return whole[index, :, index]


class Following(NamedTuple):
    """How the effects of items change with the abilities, at the mode of both.

    `omega` are precisions of items around their prior means, `cross` mixed second
    derivatives of the log-likelihood; `covariance` is given the abilities.
    """

    omega: Float[Array, "rows columns columns"]
    cross: Float[Array, "abilities effects"]
    slope: Float[Array, "effects abilities"]
    covariance: Float[Array, "effects effects"]


def variance_of_items(
    model: MultilevelModel,
    distinct: DistinctItems,
    outer: Outer,
    mode: Float[Array, "distinct columns"],
    ability_covariance: Array,
    whole: Array,
    follow: Following | None,
    *,
    order: int,
    num_newton: int,
    expected: bool = False,
) -> Float[Array, "distinct columns"]:
    """Variance that the errors of abilities and effects add to each item's coordinates.

    An item's mean changes with the abilities by its posterior covariance with its
    derivative in them, and with the effects by that with its prior. The effects change
    with the abilities too, so the items follow a change of the scale of ability fully.
    `whole` is the covariance of the abilities with unknown effects; `follow` is None
    where effects are given; the other arguments are those of `summarise`.
    """
    groups, subjects = model.num_groups, outer.ability.shape[0]
    nodes, blocks = in_blocks(model, distinct, mode, order)

    def one(item: Block):
        error = Error.of(item, ability_covariance, True) if expected else None
        results = integrate(model, outer, item, error, nodes, num_newton, False)
        along = jnp.zeros((model.num_columns, groups, subjects), whole.dtype)
        along = along.at[:, item.group].set(results["together"])
        along = along.reshape(model.num_columns, -1)
        by_effects = jnp.zeros(model.num_columns, whole.dtype)
        if follow is not None:
            by_effect = results["covariance"] @ follow.omega[item.row]
            by_effect = jnp.kron(by_effect, item.design)
            along = along + by_effect @ follow.slope
            by_effects = jnp.sum((by_effect @ follow.covariance) * by_effect, axis=1)
        return jnp.sum((along @ whole) * along, axis=1) + by_effects

    variances = lax.map(jax.vmap(one), blocks)
    return variances.reshape(-1, model.num_columns)[: distinct.values.shape[0]]
