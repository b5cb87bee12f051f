"""The M-step of `laplace`: effects and variances at their expected density's mode."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from irtjax.estimators.laplace.components import (
    effect_precision,
    factors,
    inverse_of,
    inverses,
    known_units,
    num_units,
    squares,
)
from irtjax.estimators.laplace.items import DistinctItems
from irtjax.estimators.laplace.problem import Approximation, Components
from irtjax.models.multilevel.model import MultilevelModel, log_half_normal
from irtjax.numerics.bijections import lkj_height, lkj_log_density
from irtjax.numerics.kernels import positive_definite_solve

#: Least share of the items' covariances that the correction for errors leaves: far from
#: the mode it can remove nearly all.
SMALLEST_WITHIN = 0.25
#: Least share of the items' information about their effects, so that the error of the
#: quadrature does not make it negative: first, and where that is not enough. Larger
#: shares would overstate the information about levels of few items.
LEAST_INFORMATION = (1e-6, 0.02)
#: Least curvature of a factor of all items' deviations, for each item.
LEAST_OF_FACTOR = 0.02
#: Steps of expanded parameters are shortened by so many standard errors.
NEAR = 0.1
#: Newton steps of the scale of one group's abilities, which end at rounding.
NUM_NEWTON = 25
#: Logarithm of the largest factor of all items' deviations in a step.
LARGEST_FACTOR = 0.3


def maximise(
    model: MultilevelModel, distinct: DistinctItems, old: Components, at: Approximation
) -> tuple[Components, Array]:
    """Effects and variances at the mode of their expected density, and the abilities'.

    The scales of abilities are maximised too and folded into the items (parameter
    expansion: Liu, Rubin and Wu 1998), for speed.
    """
    summary, ability, shift = at.items, at.ability_mode, at.shift
    groups, count = model.num_groups, ability.shape[0]
    blocks = at.covariance.reshape(groups, count, groups, count)
    gap = ability + shift - at.prior_mean
    # Of first order in the shift, as all that is expected here.
    scatter = gap.T @ gap - shift.T @ shift + jnp.einsum("anbn->ab", blocks)
    pull = pull_of_priors(model, distinct, old)
    # Given their mean, the deviations from it are one subject's fewer.
    deviations = model.total_subjects - model.num_shifts / groups
    new, log_unit = _improve_covariance(model, old, scatter, deviations, pull)
    unit = jnp.exp(log_unit)
    ability = ability / unit
    slope = jnp.zeros(model.num_columns, ability.dtype).at[0].set(1.0)
    prior = model.known_slopes
    if prior is not None:
        # Only the scale identifies these means: the items' means are fixed at them.
        rows = jnp.asarray(prior.rows)
        taken = log_unit if len(rows) == groups else jnp.mean(log_unit)
        new = new._replace(effects=new.effects.at[rows, 0].add(taken))
    if distinct.is_aligned and model.has_group_effects:
        left = log_unit if prior is None else log_unit - jnp.mean(log_unit)
        moved = new.group_effects + left[:, None] * slope
        new = new._replace(group_effects=moved)
    elif prior is None and model.learned[0] and num_units(model):
        moved = log_unit[distinct.group[:, 0]][:, None] * slope
        summary = summary._replace(mean=summary.mean + moved)
    if any(model.regressed):
        new = _improve_items(model, distinct, new, summary)
    if model.has_group_effects:
        new = _improve_group_effects(model, new, summary)
    if model.subject_design.shape[1]:
        new = _improve_subject_effects(model, new, ability + shift / unit)
    return new, ability


def half_normal_mode(total: Array, count: Array | float, scale: Array | float) -> Array:
    """Log sd at the mode of sd given a sum of squares of N(0, sd^2).

    Maximises -n log s - S / (2 s^2) - s^2 / (2 h^2) + log s, whose root in s^2 is
    2 S / (n - 1 + sqrt((n - 1)^2 + 4 S / h^2)).
    """
    less = count - 1
    square = 2 * total / (less + jnp.sqrt(less**2 + 4 * total / scale**2))
    return 0.5 * jnp.log(jnp.maximum(square, 1e-8))


def _improve_items(
    model: MultilevelModel, distinct: DistinctItems, old: Components, summary
):
    """Regression of item coordinates on the design, and its variance components."""
    design, weight = distinct.design, distinct.weight
    omega = inverses(factors(model, old))
    columns, mask, rows = model.num_columns, jnp.asarray(model.regressed), len(omega)
    # A column with a given prior is not estimated and does not inform others.
    omega = omega * mask * mask[:, None]
    row, square = distinct.row, squares(distinct, rows)
    # A step from the present effects: only priors separate levels from the mean of all
    # items, and rounding of sums of the items would change both.
    gap = summary.mean - design @ old.effects
    pulled = jnp.einsum("u,ua,uab->ub", weight, gap, omega[row])
    prior = effect_precision(model, old)
    # All columns at once, column by column in the vector.
    precision = jnp.sum(jax.vmap(jnp.kron)(omega, square), axis=0)
    ridge = jnp.diag(prior.T.reshape(-1))
    root = jnp.linalg.cholesky(precision + ridge)
    right = (design.T @ pulled - prior * old.effects).T.reshape(-1)
    step = jax.scipy.linalg.cho_solve((root, True), right)
    effects = old.effects + step.reshape(columns, -1).T
    inverse, information = error_of_effects(precision, ridge, omega, summary.square)
    gap = summary.mean - design @ effects
    # The part of an error of effects that items do not follow.
    left = jnp.eye(columns, dtype=gap.dtype) - summary.covariance @ omega[row]
    moved = jnp.einsum("ue,aebf,uf->uab", design, inverse, design)
    scatter = jnp.einsum("ua,ub->uab", gap, gap)
    scatter = scatter + jnp.einsum("uab,ubc,udc->uad", left, moved, left)
    scatter = _by_row(weight[:, None, None] * scatter, row, rows)
    plain = _by_row(summary.covariance * weight[:, None, None], row, rows)
    scatter = scatter + jax.vmap(_within)(plain, summary.within)
    # Otherwise a constant of the loss, too large for steps in single precision.
    scatter = scatter * mask * mask[:, None]
    tilted, scatter = _improve_tilts(model, old, scatter)
    information_of_items = jnp.diagonal(
        inverses(jnp.linalg.cholesky(summary.covariance)) - omega[row], axis1=1, axis2=2
    )
    second = gap**2 + jnp.diagonal(summary.covariance, axis1=1, axis2=2)
    # An item whose quadrature failed does not count.
    information_of_items = jnp.nan_to_num(jnp.maximum(information_of_items, 0))
    of_factor = weight @ (information_of_items * second)
    counts = _by_row(weight, row, rows)
    new = _improve_residual(model, tilted, scatter, counts, of_factor)
    component = old.log_component_sd
    if model.num_components:
        improved = _improve_components(model, component, effects, inverse, information)
        component = jnp.where(mask, improved, component)
    fixed = jnp.where(jnp.asarray(model.learned), old.effects, 0)
    effects = jnp.where(mask, effects, fixed)
    return new._replace(effects=effects, log_component_sd=component)


def _improve_components(
    model: MultilevelModel,
    old: Array,
    effects: Array,
    inverse: Array,
    information: Array,
) -> Array:
    """Standard deviations of the levels' effects, by parameter-expanded EM.

    Near 0 plain EM hardly moves, so a common factor of a component's effects is
    estimated too (Liu, Rubin and Wu 1998), with the same gradient and the curvature of
    the data.
    """
    count, scale = model.num_components, model.hyperpriors.component
    index = jnp.where(model.component < 0, count, model.component)
    by_component = lambda x: jax.ops.segment_sum(x, index, count + 1)[:-1]
    each = model.identified_components.astype(effects.dtype)
    total = by_component(effects**2 + jnp.einsum("aeae->ea", inverse))
    new = half_normal_mode(total, each, scale)
    square = jnp.exp(2 * old)
    gradient = total / square - each + 1 - square / scale**2
    same = model.component[:, None] == model.component
    own = jnp.einsum("aeaf->aef", inverse)
    product = effects.T[:, :, None] * effects.T[:, None, :] + own
    product = jnp.where(same, product * jnp.einsum("aeaf->aef", information), 0)
    information_of_factor = jnp.maximum(by_component(jnp.sum(product, axis=2).T), 0)
    curvature = information_of_factor + 2 * square / scale**2
    factor = jnp.clip(gradient / curvature, -1, 1)
    improved = new + _far(factor, (2 * each) ** -0.5)
    # Levels without information stay.
    return jnp.where(each > 0, improved, old)


def _far(step: Array, error: Array | float) -> Array:
    """Half of the excess over a share of an error.

    Common factors of levels and of items overshoot by up to two together. Near
    convergence only the steps of EM remain, which the acceleration extrapolates well.
    """
    return jnp.sign(step) * jnp.maximum(jnp.abs(step) - NEAR * error, 0) / 2


def error_of_effects(
    precision: Array, ridge: Array, omega: Array, square: Array
) -> tuple[Array, Array]:
    """Covariance of effects with items integrated out, and precision from the data.

    Items with few responses follow their effects and do not inform them, which a
    regression on the items would ignore. `precision` is that given the items, `ridge`
    of the priors, `omega` of the items' priors, and `square` sums of D D' times items'
    covariances.
    """
    columns, size = square.shape[1], square.shape[-1]
    lost = jnp.einsum("rab,rbcef,rcd->aedf", omega, square, omega)
    lost = lost.reshape(precision.shape)
    root, best = jnp.linalg.cholesky(precision + ridge), precision
    for share in reversed(LEAST_INFORMATION):
        reduced = precision - (1 - share) * lost
        better = jnp.linalg.cholesky(reduced + ridge)
        sound = jnp.all(jnp.isfinite(better))
        root = jnp.where(sound, better, root)
        best = jnp.where(sound, reduced, best)
    whole = (columns, size, columns, size)
    return inverse_of(root).reshape(whole), best.reshape(whole)


def _by_row(parts: Array, row: Array, rows: int) -> Array:
    """Sums of the items' parts over all of them, or over those of each group."""
    if rows == 1:
        return jnp.sum(parts, axis=0, keepdims=True)
    return jax.ops.segment_sum(parts, row, rows)


def _improve_tilts(
    model: MultilevelModel, old: Components, scatter: Array
) -> tuple[Components, Array]:
    """The groups' slopes of intercepts on log discriminations; the scatter without.

    With P the inverse of Omega without slopes and S the scatter, both of group m, the
    expected log density is k b - k^2 w / 2 with b = u'P S e and
    w = u'P u e'S e + 1 / sd^2, e for the log discrimination and u for all intercepts;
    the k sum to 0.
    """
    if not model.has_tilts:
        return old, scatter
    columns = jnp.asarray(model.family.intercept_columns)
    without = factors(model, old._replace(tilt=jnp.zeros_like(old.tilt)))
    own = inverses(without)
    onto = jnp.zeros(model.num_columns, own.dtype).at[columns].set(1.0)
    product = jnp.einsum("a,rab,rb->r", onto, own, scatter[:, :, 0])
    weight = jnp.einsum("a,rab,b->r", onto, own, onto) * scatter[:, 0, 0]
    weight = weight + model.hyperpriors.tilt**-2.0
    held = jnp.sum(product / weight) / jnp.sum(1 / weight)
    tilt = (product - held) / weight
    turn = jnp.eye(model.num_columns, dtype=own.dtype)
    turn = turn - tilt[:, None, None] * onto[:, None] * turn[0]
    return old._replace(tilt=tilt), jnp.einsum("rab,rbc,rdc->rad", turn, scatter, turn)


def _within(plain: Array, within: Array) -> Array:
    """Sum of items' covariances over the error of abilities, kept positive."""
    root = jnp.linalg.cholesky(plain)
    half = jax.scipy.linalg.solve_triangular(root, within, lower=True)
    ratio = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
    values, vectors = jnp.linalg.eigh((ratio + ratio.T) / 2)
    whole = root @ (vectors * jnp.sqrt(jnp.maximum(values, SMALLEST_WITHIN)))
    return whole @ whole.T


def _improve_residual(
    model: MultilevelModel, old: Components, scatter: Array, counts: Array, of_factor
) -> Components:
    """Omega0, and relative standard deviations of benchmarks, from the scatter by row.

    A common factor of all items' deviations, with curvatures `of_factor` of the data by
    column, is estimated too, as for levels.
    """
    count, own = model.total_stems, model.hyperpriors
    mask = jnp.asarray(model.regressed)
    if not (model.correlated or model.num_clusters):
        total = jnp.sum(jnp.diagonal(scatter, axis1=1, axis2=2), axis=0)
        log_sd = half_normal_mode(total, count, model.residual_scales)
        log_sd = jnp.where(mask, log_sd, old.log_residual_sd)
        return old._replace(log_residual_sd=log_sd)
    scatter = scatter if model.num_clusters else jnp.sum(scatter, axis=0, keepdims=True)

    centred = model.centred_log_relative_sds

    def loss(point):
        # Columns that are not estimated keep their values.
        log_sd, correlation = jnp.where(mask, point[0], old.log_residual_sd), point[1]
        factor = model.common_factor(log_sd, correlation)
        inner, log_det = scatter, 2 * count * jnp.sum(jnp.log(jnp.diagonal(factor)))
        prior = log_half_normal(log_sd, model.residual_scales, mask)
        if model.correlated:
            prior = prior + lkj_log_density(
                correlation, model.num_correlated, own.concentration
            )
        if model.num_clusters:
            log_relative_sd = centred(point[2])
            inner = scatter * jnp.exp(
                -log_relative_sd[:, :, None] - log_relative_sd[:, None, :]
            )
            log_det = log_det + 2 * counts @ jnp.sum(log_relative_sd, axis=1)
            prior = prior - jnp.sum((log_relative_sd / own.relative_sd) ** 2) / 2
        inner = jnp.sum(inner, axis=0)
        fit = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), inner))
        return ((log_det + fit) / 2 - prior) / count

    first = (old.log_residual_sd, old.residual_correlation, old.log_relative_sd)
    log_sd, correlation, log_relative_sd = _descend(loss, first)
    slope = -count * jax.grad(loss)(first)[0]
    factor = jnp.where(mask, slope / jnp.maximum(of_factor, LEAST_OF_FACTOR * count), 0)
    factor = jnp.clip(factor, -LARGEST_FACTOR, LARGEST_FACTOR)
    log_sd = log_sd + _far(factor, (2 * count) ** -0.5)
    if model.num_clusters:
        log_relative_sd = centred(log_relative_sd)
    return old._replace(
        log_residual_sd=jnp.where(mask, log_sd, old.log_residual_sd),
        residual_correlation=correlation,
        log_relative_sd=log_relative_sd,
    )


def _descend(loss, first, num_steps: int = 25):
    """A point of lower loss, by L-BFGS; the first if that fails."""
    import optax  # Not needed where the program is stored.

    # The line search mixes in numbers of JAX's default type and takes no other.
    wide = jnp.zeros(()).dtype
    as_given = lambda point: jax.tree.map(lambda x, y: x.astype(y.dtype), point, first)
    widened = lambda point: loss(as_given(point)).astype(wide)
    # The default line search is a third of what compiling a whole fit takes.
    search = optax.scale_by_backtracking_linesearch(
        20, increase_factor=float("inf"), store_grad=True
    )
    solver = optax.lbfgs(linesearch=search)
    value_and_grad = optax.value_and_grad_from_state(widened)

    def body(_, carry):
        point, state = carry
        value, gradient = value_and_grad(point, state=state)
        moves, state = solver.update(
            gradient, state, point, value=value, grad=gradient, value_fn=widened
        )
        return optax.apply_updates(point, moves), state

    begun = jax.tree.map(lambda x: x.astype(wide), first)
    best, _ = lax.fori_loop(0, num_steps, body, (begun, solver.init(begun)))
    best = as_given(best)
    finite = jnp.all(jnp.isfinite(ravel_pytree(best)[0]))
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), best, first)


def _improve_group_effects(
    model: MultilevelModel, old: Components, summary
) -> Components:
    """A Newton step of the groups' effects; their estimated mean moves to the items."""
    prior = model.hyperpriors.group_effect**-2.0
    identity = jnp.eye(model.num_columns, dtype=summary.mean.dtype)
    curvature = summary.effect_curvature + prior * identity
    gradient = summary.effect_gradient - prior * old.group_effects
    # Far from the mode the curvature may be negative; the step must still ascend.
    step, _ = positive_definite_solve(curvature, gradient)
    effects = old.group_effects + jnp.clip(step, -0.5, 0.5)
    mean = jnp.where(jnp.asarray(model.learned), jnp.mean(effects, axis=0), 0)
    return old._replace(
        group_effects=effects - mean,
        effects=old.effects.at[0].add(jnp.where(jnp.asarray(model.regressed), mean, 0)),
    )


def pull_of_priors(
    model: MultilevelModel, distinct: DistinctItems, old: Components
) -> tuple[Array, Array]:
    """The cost of a change of the groups' log scales in the priors of effects.

    A scale is folded into effects of items, which have priors. To second order: minus
    their slope `[groups]` and curvature `[groups, groups]` in the log scales.
    """
    groups, own = model.num_groups, model.hyperpriors
    dtype = old.effects.dtype
    slope, curvature = jnp.zeros(groups, dtype), jnp.zeros((groups, groups), dtype)
    if model.known_slopes is not None:
        gap, precision = known_units(model, old)
        share = jnp.full((groups, 1), 1 / groups, dtype)
        share = jnp.eye(groups, dtype=dtype) if len(gap) == groups else share
        slope, curvature = share @ (precision * gap), (share * precision) @ share.T
    if distinct.is_aligned and model.has_group_effects:
        precision = own.group_effect**-2.0
        curvature = curvature + precision * jnp.eye(groups, dtype=dtype)
        return slope + precision * old.group_effects[:, 0], curvature
    if model.known_slopes is not None or not (model.learned[0] and num_units(model)):
        return slope, curvature
    weighted = distinct.design * distinct.weight[:, None]
    square = weighted.T @ distinct.design
    # Levels add up to all items, so it is singular; the ridge must exceed rounding.
    least = max(1e-9, 50 * float(jnp.finfo(dtype).eps))
    ridge = least * jnp.trace(square) * jnp.eye(square.shape[0], dtype=dtype)
    # Effects that add 1 to all items of a group and to no others.
    member = jax.nn.one_hot(distinct.group[:, 0], groups, dtype=dtype)
    to_groups = jnp.linalg.solve(square + ridge, weighted.T @ member)
    # A common scale of all groups changes the mean of all items, whose prior is wide:
    # in levels with a standard deviation near 0 it would converge slowly.
    common = jnp.mean(to_groups, axis=1, keepdims=True)
    to_groups = (to_groups - common).at[0].add(1 / groups)
    # Effects that are fixed at 0 do not change.
    to_groups = jnp.where(model.identified_effects[:, :1], to_groups, 0)
    prior = effect_precision(model, old)[:, 0]
    curvature = to_groups.T @ (to_groups * prior[:, None])
    return to_groups.T @ (prior * old.effects[:, 0]), curvature


def _improve_covariance(
    model: MultilevelModel, old: Components, scatter: Array, count: float, pull
) -> tuple[Components, Array]:
    """Scales and correlations of group-specific abilities, log scales of abilities."""
    groups, hyper = model.num_groups, model.hyperpriors
    whole = jnp.zeros(groups, scatter.dtype)
    if groups == 1 and model.has_general_scale:
        best = half_normal_mode(scatter[0], count, hyper.general)
        return old._replace(log_general_sd=best), whole
    if groups == 1:
        return old, _log_unit(scatter[0], count, pull) if num_units(model) else whole

    def replaced(point):
        log_scale, correlation, _, log_general_sd = point
        return old._replace(
            log_scale=log_scale, correlation=correlation, log_general_sd=log_general_sd
        )

    def loss(point):
        log_scale, correlation, log_unit, log_general = point
        log_unit = log_unit + whole if num_units(model) else whole
        unit = jnp.exp(log_unit)
        pulled = pull[0] @ log_unit + log_unit @ pull[1] @ log_unit / 2
        factor = model.covariance_factor(replaced(point))
        inner = scatter / unit / unit[:, None]
        fit = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), inner))
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)) + log_unit)
        prior = lkj_height(correlation, groups, hyper.concentration)
        prior = prior + log_half_normal(log_scale, hyper.scale)
        prior = prior + log_half_normal(log_general, hyper.general)
        return (count * log_det + fit) / 2 - prior + pulled

    start = old.log_scale, old.correlation, whole[: num_units(model)]
    point = _descend(loss, (*start, old.log_general_sd))
    return replaced(point), point[2] + whole if num_units(model) else whole


def _log_unit(scatter: Array, count: Array | float, pull) -> Array:
    """Log scale u of the abilities of one group, `[1]`: the minimum of a convex loss.

    By Newton steps on n u + S exp(-2 u) / 2 + p u + q u^2 / 2 with the priors' pull p
    and q, from the minimum without them. For this one coordinate a program of L-BFGS
    would take long to compile.
    """
    slope, curvature = pull[0], pull[1][0]

    def improve(_, log_unit):
        square = scatter * jnp.exp(-2 * log_unit)
        gradient = count - square + slope + curvature * log_unit
        return log_unit - jnp.clip(gradient / (2 * square + curvature), -1, 1)

    log_unit = lax.fori_loop(0, NUM_NEWTON, improve, 0.5 * jnp.log(scatter / count))
    return jnp.where(jnp.isfinite(log_unit), log_unit, 0)


def _improve_subject_effects(
    model: MultilevelModel, old: Components, ability: Array
) -> Components:
    """Generalised least squares of abilities on the subjects' covariates."""
    factor = model.covariance_factor(old)
    ones = jnp.ones(model.num_groups, ability.dtype)
    weights = jax.scipy.linalg.cho_solve((factor, True), ones)
    design = model.subject_design
    ridge = model.hyperpriors.subject_effect**-2.0
    identity = jnp.eye(design.shape[1], dtype=design.dtype)
    precision = design.T @ design * jnp.sum(weights) + ridge * identity
    effects = jnp.linalg.solve(precision, design.T @ (ability @ weights))
    return old._replace(subject_effects=effects)
