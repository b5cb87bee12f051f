"""Effects and variances of multilevel models: derived quantities and priors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax._types import Scalar
from irtjax.estimators.laplace.items import Units
from irtjax.estimators.laplace.problem import Components
from irtjax.models.multilevel.model import Hierarchical, general_variance
from irtjax.models.priors import HalfNormal, Normal
from irtjax.numerics.bijections import correlation_cholesky, lkj_height, lkj_log_density

#: Prior precision of an effect that is held at 0; no data weigh a millionth of it.
HELD = 1e12


def factors(model: Hierarchical, components: Components) -> Array:
    """Of Omega, one for all items or one for those of each group."""
    return model.residual_factor(
        components.log_residual_sd,
        components.residual_correlation,
        components.tilt,
        components.spread,
    )


def inverses(factors: Array) -> Array:
    """Of Omega, of its factors."""
    identity = jnp.eye(factors.shape[-1], dtype=factors.dtype)
    invert = lambda factor: jax.scipy.linalg.cho_solve((factor, True), identity)  # noqa: E731
    return jax.vmap(invert)(factors)


def covariance_factor(model: Hierarchical, components: Components) -> Array:
    """The Cholesky factor of tau^2 1 1' + Sigma; tau with one group."""
    variance = general_variance(components.log_general_sd)
    if model.num_groups == 1:
        one = jnp.ones((1, 1), components.log_residual_sd.dtype)
        return one * variance**0.5
    own = own_covariance(model, components.log_scale, components.correlation)
    return jnp.linalg.cholesky(own + variance)


def own_covariance(model: Hierarchical, log_scale: Array, correlation: Array) -> Array:
    """Sigma of its coordinates."""
    factor = correlation_cholesky(correlation, model.num_groups)
    factor = jnp.exp(log_scale)[:, None] * factor
    return factor @ factor.T


def num_units(model: Hierarchical) -> int:
    """How many units of ability items can take up: every group's, one, or none."""
    if not model.family.has_slope:
        return 0
    if model.has_group_scales:
        return model.num_groups
    return int(model.learned[0] or model.has_group_effects)


def known_units(model: Hierarchical, components: Components) -> tuple[Array, Array]:
    """Of `KnownSlopes`: how far units' means are from the prior's, its precisions."""
    known = model.known_slopes
    assert known is not None
    first, rows = known.mean, jnp.asarray(known.rows)
    count = jnp.reshape(jnp.asarray(model.total_stems), 1)
    if len(known.rows) == model.num_groups > 1:
        first = 0.0
        column = jnp.zeros(model.num_stems, int).at[model.stem].set(model.group)
        count = jnp.bincount(column, model.weight, length=model.num_groups)
    dtype = components.effects.dtype
    return components.effects[rows, 0] - first, count.astype(dtype) / known.sd**2


def squares(units: Units, rows: int) -> Array:
    """D'D over all units, or over those of each group: `[rows, effects, effects]`."""

    def of(k):
        weight = jnp.where(units.row == k, units.weight, 0)
        return units.design.T @ (units.design * weight[:, None])

    return lax.map(of, jnp.arange(rows))


def log_prior(model: Hierarchical, components: Components) -> Scalar:
    """Log density of effects and variances, in their coordinates, but for constants.

    The groups' correlations have `lkj_height`, whose mode does not depend on their
    order.
    """
    own = model.hyperpriors
    total = jnp.zeros((), components.effects.dtype)
    if model.num_groups > 1:
        total = total + lkj_height(
            components.correlation, model.num_groups, own.concentration
        )
        total = total + log_half_normal(components.log_scale, own.scale)
    if model.correlated:
        total = total + lkj_log_density(
            components.residual_correlation, model.num_correlated, own.concentration
        )
    total = total + log_half_normal(components.log_general_sd, own.general)
    if model.known_slopes is not None:
        gap, precision = known_units(model, components)
        total = total - jnp.sum(gap**2 * precision) / 2
    if any(model.learned):
        mask = jnp.asarray(model.regressed)
        total = total + log_half_normal(components.log_residual_sd, own.residual, mask)
        total = total + log_half_normal(
            components.log_component_sd, own.component, mask
        )
        scale = effect_sd(model, components.log_component_sd)
        density = Normal(0.0, scale).log_density(components.effects)
        total = total + jnp.sum(jnp.where(mask & model.told_effects, density, 0))
    for part, sd in (
        (components.group_effects, own.group_effect),
        (components.subject_effects, own.subject_effect),
        (components.tilt, own.tilt),
        (components.spread, own.spread),
    ):
        total = total + jnp.sum(Normal(0.0, sd).log_density(part))
    return total


def log_half_normal(log_sd: Array, scale: float, mask: Array | bool = True) -> Array:
    """Log density of logarithms of half-normals, those outside the mask left out."""
    density = HalfNormal(scale).log_density(jnp.exp(log_sd)) + log_sd
    return jnp.sum(jnp.where(mask, density, 0))


def effect_sd(model: Hierarchical, log_component_sd: Array) -> Array:
    """`[effects, columns]` prior standard deviations of the effects."""
    sd = jnp.exp(log_component_sd)
    fixed = jnp.full((1, model.num_columns), model.hyperpriors.effect, sd.dtype)
    return jnp.concatenate([sd, fixed])[model.component]


def effect_precision(model: Hierarchical, log_component_sd: Array) -> Array:
    """`[effects, columns]` prior precisions; of effects that are 0 next to infinite."""
    precision = effect_sd(model, log_component_sd) ** -2.0
    return jnp.where(model.told_effects, precision, HELD)


def num_effective(model: Hierarchical, components: Components) -> Scalar:
    """Effective number of effects and variances, as in AIC.

    Effects of levels count as far as they are free of their prior, the trace of
    (P + R)^-1 P, P the precision of the items and R that of the prior (Vaida and
    Blanchard 2005); all else counts fully, except for sums fixed at 0.
    """
    learned = sum(model.regressed)
    total = sum(
        part.size
        for part in (
            components.log_scale,
            components.correlation,
            components.residual_correlation,
            components.subject_effects,
            components.log_general_sd,
        )
    )
    total += max(components.tilt.size - 1, 0)
    total += max(components.group_effects.shape[0] - 1, 0) * model.num_columns
    if not learned:
        return jnp.asarray(float(total))
    mask = jnp.asarray(model.regressed)
    # A standard deviation of each level, and of each benchmark relative to their mean,
    # as far as the data identify it.
    levels = jnp.sum((model.told_components > 0) & mask)
    clusters = jnp.maximum(jnp.sum(model.told_spreads, axis=0) - 1, 0)
    total = total + learned + levels + jnp.sum(clusters)
    omega = inverses(factors(model, components)) * (mask & mask[:, None])
    row = model.factor_row if len(omega) > 1 else jnp.zeros(model.num_stems, int)
    member = jax.nn.one_hot(row, len(omega), dtype=omega.dtype)
    if model.weight is not None:
        member = member * model.weight[:, None]
    by_row = jnp.einsum("jr,je->rje", member, model.design)
    square = jnp.einsum("rje,jf->ref", by_row, model.design)
    data = jnp.sum(jax.vmap(jnp.kron)(omega, square), axis=0)
    prior = effect_precision(model, components.log_component_sd).T.reshape(-1)
    return total + jnp.trace(jnp.linalg.solve(data + jnp.diag(prior), data))


def judged(
    model: Hierarchical, components: Components, ability: Array, error: Array
) -> tuple[Components, Array]:
    """Quantities whose change decides convergence of components and abilities.

    Precisions, but for what goes up and down with the units of ability, whose errors
    are those of a sample of subjects: abilities, log discriminations, and intercepts
    where groups' depend on these. Of complete data the mean of many items, and an
    ability given the items, are known so well that in single precision the rounding of
    the units alone moves them.

    Args:
        model: The model.
        components: Where.
        ability: `[subjects, groups]`.
        error: `[subjects, groups]` errors of the abilities, their units given.
    """
    weights = precisions(model, components)
    if not num_units(model):
        return weights, 1 / error
    # Squared error of a log unit.
    unit = 1 / (2 * model.subject_design.shape[0])
    if model.learned[0]:
        slopes = jnp.zeros(model.num_columns, ability.dtype).at[0].set(1.0)
        if model.has_tilts:
            columns = jnp.asarray(model.family.intercept_columns)
            slopes = slopes.at[columns].set(jnp.sqrt(jnp.mean(components.tilt**2)))
        complete = weights.effects
        both = complete / jnp.sqrt(1 + unit * (slopes * complete) ** 2)
        weights = weights._replace(effects=both)
    return weights, 1 / jnp.sqrt(error**2 + unit * ability**2)


def precisions(model: Hierarchical, components: Components) -> Components:
    """One over the standard errors of effects and variances, of complete data."""
    subjects, stems = model.subject_design.shape[0], model.total_stems
    like = lambda part, value: jnp.broadcast_to(value, part.shape).astype(part.dtype)  # noqa: E731
    by_item = jnp.exp(-components.log_residual_sd) * stems**0.5
    levels = jnp.ones(model.num_components, int)
    if model.num_components:
        index = jnp.where(model.component < 0, model.num_components, model.component)
        levels = jnp.bincount(index, length=model.num_components + 1)[:-1]
    return Components(
        like(components.log_scale, (2.0 * subjects) ** 0.5),
        like(components.correlation, subjects**0.5),
        # The number of stems of an average level.
        like(components.effects, by_item / max(model.design.shape[1] - 1, 1) ** 0.5),
        like(components.log_component_sd, (2.0 * levels[:, None]) ** 0.5),
        like(components.log_residual_sd, (2.0 * stems) ** 0.5),
        like(components.residual_correlation, stems**0.5),
        like(components.group_effects, by_item / model.num_groups**0.5),
        like(components.subject_effects, subjects**0.5),
        like(components.log_general_sd, (2.0 * subjects) ** 0.5),
        like(
            components.tilt,
            jnp.exp(components.log_residual_sd[0] - components.log_residual_sd[1])
            * (stems / model.num_groups) ** 0.5
            if model.has_tilts
            else 1.0,
        ),
        like(components.spread, (2.0 * stems / max(model.num_clusters, 1)) ** 0.5),
    )
