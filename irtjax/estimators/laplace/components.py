"""Effects and variances of multilevel models: derived quantities and priors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax._types import Scalar
from irtjax.estimators.laplace.item_posterior import Outer
from irtjax.estimators.laplace.items import DistinctItems, blocks_of
from irtjax.estimators.laplace.problem import (
    Components,
    LaplaceState,
    MultilevelProblem,
)
from irtjax.models.multilevel.model import MultilevelModel, log_half_normal
from irtjax.models.priors import Normal
from irtjax.numerics.bijections import lkj_height, lkj_log_density

#: Prior precision of an effect that is fixed at 0; no data weigh a millionth of it.
FIXED = 1e12
#: A log standard deviation of group-specific abilities that counts as 0.
LOG_NOTHING = -3.5
#: A log standard deviation of log discriminations or dispersions (2) counted as
#: diverged.
LOG_TOO_WIDE = 0.69
#: Least reliability that the error of the scale of ability counts.
LEAST_RELIABILITY = 0.05


def outer_of(model: MultilevelModel, ability: Array, components: Components) -> Outer:
    """Abilities, effects and covariances that items are integrated given."""
    omega = factors(model, components)
    return Outer(ability, components.effects, omega, components.group_effects)


def items_given(problem: MultilevelProblem, state: LaplaceState):
    """The first arguments of a pass over the items, such as `summarise`."""
    model, distinct, groups = problem.model, problem.distinct, problem.model.num_groups
    outer = outer_of(model, state.ability_mode, state.components)
    blocks = blocks_of(state.ability_covariance, groups, distinct.is_aligned)
    return model, distinct, outer, state.mode, blocks


def without_end(model: MultilevelModel, components: Components) -> tuple[Array, Array]:
    """What diverges: `[groups]` group-specific abilities to 0, `[columns]` log SDs."""
    widest = components.log_residual_sd
    if model.num_clusters:
        widest = widest + jnp.max(components.log_relative_sd, axis=0)
    wide = widest > LOG_TOO_WIDE
    logarithm = [p.bijection.kind == "positive" for p in model.column_parameters]
    logarithms = jnp.asarray(logarithm) & jnp.asarray(model.regressed)
    return components.log_scale < LOG_NOTHING, wide & logarithms[: wide.shape[0]]


def factors(model: MultilevelModel, components: Components) -> Array:
    """Of Omega, one for all items or one for those of each group."""
    return model.residual_factor(
        components.log_residual_sd,
        components.residual_correlation,
        components.tilt,
        components.log_relative_sd,
    )


def inverse_of(factor: Array) -> Array:
    """The inverse of a matrix, of its Cholesky factor."""
    identity = jnp.eye(factor.shape[-1], dtype=factor.dtype)
    return jax.scipy.linalg.cho_solve((factor, True), identity)


def inverses(factors: Array) -> Array:
    """The inverses of several matrices, of their Cholesky factors."""
    return jax.vmap(inverse_of)(factors)


def num_units(model: MultilevelModel) -> int:
    """Number of scales of ability that items can compensate: all groups', 1, or 0."""
    if not model.family.has_slope:
        return 0
    if model.has_group_scales:
        return model.num_groups
    return int(model.learned[0] or model.has_group_effects)


def known_units(model: MultilevelModel, components: Components) -> tuple[Array, Array]:
    """Of `KnownSlopes`: means of the scales' items less the prior's, precisions."""
    prior = model.known_slopes
    assert prior is not None
    first, rows = prior.mean, jnp.asarray(prior.rows)
    count = jnp.reshape(jnp.asarray(model.total_stems), 1)
    if len(prior.rows) == model.num_groups > 1:
        first = 0.0
        column = jnp.zeros(model.num_stems, int).at[model.stem].set(model.group)
        count = jnp.bincount(column, model.weight, length=model.num_groups)
    dtype = components.effects.dtype
    return components.effects[rows, 0] - first, count.astype(dtype) / prior.sd**2


def squares(distinct: DistinctItems, rows: int) -> Array:
    """D'D of all distinct items, or of each group's: `[rows, effects, effects]`."""

    def of(k):
        weight = jnp.where(distinct.row == k, distinct.weight, 0)
        return distinct.design.T @ (distinct.design * weight[:, None])

    return lax.map(of, jnp.arange(rows))


def log_prior(model: MultilevelModel, components: Components) -> Scalar:
    """Log density of effects and variances, in their coordinates, but for constants."""
    own, at, mask = model.hyperpriors, components, jnp.asarray(model.regressed)
    total = log_half_normal(at.log_scale, own.scale)
    total = total + log_half_normal(at.log_general_sd, own.general)
    total = total + log_half_normal(at.log_residual_sd, model.residual_scales, mask)
    total = total + log_half_normal(at.log_component_sd, own.component, mask)
    if model.num_groups > 1:
        # Its mode does not depend on the order of the groups.
        of_groups = model.num_groups, own.concentration
        total = total + lkj_height(at.correlation, *of_groups)
    if model.correlated:
        of_items = model.num_correlated, own.concentration
        total = total + lkj_log_density(at.residual_correlation, *of_items)
    if model.known_slopes is not None:
        gap, precision = known_units(model, at)
        total = total - jnp.sum(gap**2 * precision) / 2
    density = Normal(0.0, model.effect_sd(at)).log_density(at.effects)
    total = total + jnp.sum(jnp.where(mask & model.identified_effects, density, 0))
    for part, sd in (
        (at.group_effects, own.group_effect),
        (at.subject_effects, own.subject_effect),
        (at.tilt, own.tilt),
        (at.log_relative_sd, own.relative_sd),
    ):
        total = total + jnp.sum(Normal(0.0, sd).log_density(part))
    return total


def effect_precision(model: MultilevelModel, components: Components) -> Array:
    """`[effects, columns]` prior precisions; nearly infinite for effects fixed at 0."""
    precision = model.effect_sd(components) ** -2.0
    return jnp.where(model.identified_effects, precision, FIXED)


def num_effective(model: MultilevelModel, components: Components) -> Scalar:
    """Effective number of effects and variances, as in AIC.

    Effects of levels count as far as they are free of their prior, the trace of
    (P + R)^-1 P, P the precision of the items and R that of the prior (Vaida and
    Blanchard 2005); all else counts fully, except for sums fixed at 0.
    """
    at = components
    total = at.log_scale.size + at.correlation.size + at.residual_correlation.size
    total += at.subject_effects.size + at.log_general_sd.size + max(at.tilt.size - 1, 0)
    total += max(at.group_effects.shape[0] - 1, 0) * model.num_columns
    if not any(model.regressed):
        return jnp.asarray(float(total))
    mask = jnp.asarray(model.regressed)
    # A standard deviation of each level, and of each benchmark relative to their mean,
    # as far as the data identify it.
    levels = jnp.sum((model.identified_components > 0) & mask)
    clusters = jnp.maximum(jnp.sum(model.identified_clusters, axis=0) - 1, 0)
    total = total + sum(model.regressed) + levels + jnp.sum(clusters)
    omega = inverses(factors(model, at)) * (mask & mask[:, None])
    row = model.factor_row if len(omega) > 1 else jnp.zeros(model.num_stems, int)
    member = jax.nn.one_hot(row, len(omega), dtype=omega.dtype)
    if model.weight is not None:
        member = member * model.weight[:, None]
    by_row = jnp.einsum("jr,je->rje", member, model.design)
    square = jnp.einsum("rje,jf->ref", by_row, model.design)
    data = jnp.sum(jax.vmap(jnp.kron)(omega, square), axis=0)
    prior = effect_precision(model, at).T.reshape(-1)
    return total + jnp.trace(jnp.linalg.solve(data + jnp.diag(prior), data))


def judged(
    model: MultilevelModel, components: Components, ability: Array, error: Array
) -> tuple[Components, Array]:
    """Weights of the moves that determine convergence of components and abilities.

    Precisions; where a quantity changes with the scale of ability (abilities, log
    discriminations, intercepts that depend on these) with the error of that scale in a
    sample of subjects, which rounding does not exceed. `error` is given the scales.
    """
    weights = precisions(model, components)
    if not num_units(model):
        return weights, 1 / error
    # Squared error of a log unit: larger where abilities have little reliability.
    squared, error_square = (
        jnp.mean(model.mean_over_subjects(x**2)) for x in (ability, error)
    )
    reliability = jnp.maximum(squared / (squared + error_square), LEAST_RELIABILITY)
    unit = 1 / (2 * model.total_subjects * reliability**2)
    if model.learned[0]:
        slopes = jnp.zeros(model.num_columns, ability.dtype).at[0].set(1.0)
        if model.has_tilts:
            columns = jnp.asarray(model.family.intercept_columns)
            slopes = slopes.at[columns].set(jnp.sqrt(jnp.mean(components.tilt**2)))
        complete = weights.effects
        joint = complete / jnp.sqrt(1 + unit * (slopes * complete) ** 2)
        weights = weights._replace(effects=joint)
    return weights, 1 / jnp.sqrt(error**2 + unit * ability**2)


def precisions(model: MultilevelModel, components: Components) -> Components:
    """One over the standard errors of effects and variances, of complete data."""
    subjects, stems = model.total_subjects, model.total_stems
    by_item = jnp.exp(-components.log_residual_sd) * stems**0.5
    levels = jnp.ones(model.num_components, int)
    if model.num_components:
        index = jnp.where(model.component < 0, model.num_components, model.component)
        levels = jnp.bincount(index, length=model.num_components + 1)[:-1]
    tilt = jnp.ones(())
    if model.has_tilts:
        sd = components.log_residual_sd
        tilt = jnp.exp(sd[0] - sd[1]) * (stems / model.num_groups) ** 0.5
    weights = Components(
        log_scale=(2.0 * subjects) ** 0.5,
        correlation=subjects**0.5,
        # The number of stems of an average level.
        effects=by_item / max(model.design.shape[1] - 1, 1) ** 0.5,
        log_component_sd=(2.0 * levels[:, None]) ** 0.5,
        log_residual_sd=(2.0 * stems) ** 0.5,
        residual_correlation=stems**0.5,
        group_effects=by_item / model.num_groups**0.5,
        subject_effects=subjects**0.5,
        log_general_sd=(2.0 * subjects) ** 0.5,
        tilt=tilt,
        log_relative_sd=(2.0 * stems / max(model.num_clusters, 1)) ** 0.5,
    )
    like = lambda part, value: jnp.broadcast_to(value, part.shape).astype(part.dtype)
    return jax.tree.map(like, components, weights)
