"""Multilevel models: abilities of several groups of items, items with estimated priors.

Any response family, by three additions to a plain model:

    theta_im = psi_i + zeta_im + z_i' gamma            one ability per group m of items
    psi_i ~ N(0, 1),  zeta_i ~ N(0, Sigma),  Sigma = diag(s) R diag(s),  R ~ LKJ
    x_j ~ N(D_j beta, Omega)                           coordinates of item j

Groups are metrics (LEGO-MM) or benchmarks (LEGO-MB); with one group theta = psi
(LEGO-CM). Rows of the design D are dummies of benchmark and domain, whose effects have
standard deviations of their own (two and three levels: AIMS 2.3.5), and covariates
(LLTM). Where groups have items of their own, each also has its own regression of
intercepts on log discriminations: in a benchmark that is hard for all, steeper items
have lower intercepts, and a common slope would move its abilities away from 0. With
Omega0 common to all groups, and e the coordinates' residuals,

    (e_log a, e_d - k_m e_log a, ...) ~ N(0, Omega0),   sum_m k_m = 0.

On request, standard deviations are those of Omega0 times exp(delta_b) in benchmark b,
of sum 0 over b. z are covariates of subjects (latent regression). Where all slopes are
1 (Rasch), the items fix the scale of ability: then psi_i ~ N(0, tau^2), tau estimated.

psi and zeta are summed out: abilities of a subject are N(z'gamma, tau^2 1 1' + Sigma),
without a ridge between psi and zeta; psi given them is normal (`general_ability`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import Scalar
from irtjax.models.family import AbstractResponseFamily, Items
from irtjax.models.priors import AbstractPrior, HalfNormal, LogNormal
from irtjax.numerics.bijections import Parameter, correlation_cholesky

LOG_TWO_PI = 1.8378770664093453


class Position(NamedTuple):
    """Unconstrained parameters of a multilevel model; unused parts have no elements.

    With s, R, beta, Omega, gamma, tau, k and delta of the module: log s, coordinates of
    R, beta in units of its standard deviations, log standard deviations of Omega and
    coordinates of its correlations, gamma, log tau, and standard normals that make k
    and delta. A group adds `group_effects` to the coordinates of all its items.
    """

    ability: Float[Array, "subjects groups"]
    log_scale: Float[Array, " groups"]
    correlation: Float[Array, " pairs"]
    items: Float[Array, "stems columns"]
    group_effects: Float[Array, "groups columns"]
    effects: Float[Array, "effects columns"]
    log_component_sd: Float[Array, "components columns"]
    log_residual_sd: Float[Array, " columns"]
    residual_correlation: Float[Array, " pairs"]
    subject_effects: Float[Array, " covariates"]
    log_general_sd: Float[Array, " scales"]
    tilt: Float[Array, " tilts"]
    log_relative_sd: Float[Array, "clusters columns"]


class Hyperpriors(eqx.Module):
    """Priors of hyperparameters: scales of (half-)normals, concentration of LKJ.

    Attributes:
        concentration: Of the LKJ priors of R and of the correlations in Omega.
        scale: Half-normal, of the standard deviations s of group-specific abilities.
        effect: Normal, of effects without a component (covariates, mean of all items).
        component: Half-normal, of the standard deviations of the facets' effects.
        residual: Half-normal, of the standard deviations of items around them.
        discrimination: The same for log discriminations.
        group_effect: Normal, of the groups' effects on coordinates.
        subject_effect: Normal, of the effects of subjects' covariates.
        general: Half-normal, of the SD tau of general ability, without slopes.
        tilt: Normal, of the groups' slopes k of intercepts on log discriminations.
        relative_sd: Normal, of the log relative SDs delta of a benchmark's items.
    """

    concentration: float = eqx.field(static=True, default=2.0)
    scale: float = 1.0
    effect: float = 5.0
    component: float = 2.0
    residual: float = 2.0
    # With a dozen subjects of nearly equal ability a few items whose responses agree by
    # chance would give all others slopes near 0.
    discrimination: float = 0.5
    group_effect: float = 3.0
    subject_effect: float = 2.0
    general: float = 5.0
    tilt: float = 2.0
    relative_sd: float = 0.5

    def __check_init__(self):
        """Refuses scales that no prior has."""
        for name, value in vars(self).items():
            plain = isinstance(value, int | float)
            if plain and not (value > 0 and math.isfinite(value)):
                raise ValueError(
                    f"Hyperpriors has {name}={value}; it needs a number above 0"
                )


class KnownSlopes(NamedTuple):
    """A given normal prior N(mean, sd^2) of log discriminations.

    The mean of the items of one scale is an effect, one of `rows`, that moves with the
    scale of ability, as with an estimated prior; it is N(mean, sd^2 / items).
    """

    mean: float
    sd: float
    rows: tuple[int, ...]


class MultilevelModel(eqx.Module):
    """A multilevel model; see the module for its formula.

    Attributes:
        family: The response family.
        group: Group of each column.
        stem: Row of item coordinates of each column: one for metrics of a question.
        design: D; the first column is 1.
        component: Component of each effect; -1 for none.
        subject_design: z; no columns without covariates.
        priors: Given priors by item parameter; those of the others are estimated.
        hyperpriors: See `Hyperpriors`.
        cluster: Benchmark (the group, if groups have regressions of their own) of each
            stem, where benchmarks have standard deviations of their own; else None.
        weight: Number of equal stems that each stands for, 0 for padding; None for 1.
            Used by `laplace` alone, not by densities of positions.
        subject_weight: 0 for subjects that pad, likewise, with abilities fixed at 0.
        num_clusters: Number of benchmarks with their own standard deviations; or 0.
        has_group_effects: Whether groups shift coordinates of their items; the mean of
            these shifts is identified by the priors alone.
        has_group_scales: Whether items can compensate a change of scale of each group's
            abilities: the design or the groups' effects separate groups.
        centred: Whether abilities are sampled as they are, or as standard normals that
            the covariance is applied to: better where a subject answers few items.
        known_slopes: A given prior of discriminations taken out of `priors`.
    """

    multilevel: ClassVar[bool] = True
    has_lengths: ClassVar[bool] = False

    family: AbstractResponseFamily
    group: Int[Array, " items"]
    stem: Int[Array, " items"]
    design: Float[Array, "stems effects"]
    component: Int[Array, " effects"]
    subject_design: Float[Array, "subjects covariates"]
    priors: dict[str, AbstractPrior] = eqx.field(default_factory=dict)
    hyperpriors: Hyperpriors = eqx.field(default_factory=Hyperpriors)
    cluster: Int[Array, " stems"] | None = None
    weight: Float[Array, " stems"] | None = None
    subject_weight: Float[Array, " subjects"] | None = None
    num_groups: int = eqx.field(static=True, default=1)
    num_stems: int = eqx.field(static=True, default=1)
    num_components: int = eqx.field(static=True, default=0)
    num_clusters: int = eqx.field(static=True, default=0)
    has_group_effects: bool = eqx.field(static=True, default=False)
    has_group_scales: bool = eqx.field(static=True, default=False)
    centred: bool = eqx.field(static=True, default=True)
    known_slopes: KnownSlopes | None = eqx.field(static=True, default=None)

    @property
    def num_columns(self) -> int:
        """Coordinates of an item."""
        return self.family.num_columns

    @property
    def column_parameters(self) -> tuple[Parameter, ...]:
        """The parameter of each column."""
        return tuple(p for p in self.family.parameters for _ in range(p.columns))

    @property
    def total_stems(self) -> Any:
        """Number of stems, each as often as it counts."""
        return float(self.num_stems) if self.weight is None else jnp.sum(self.weight)

    @property
    def total_subjects(self) -> Any:
        """Number of subjects, without those that pad."""
        if self.subject_weight is None:
            return float(self.subject_design.shape[0])
        return jnp.sum(self.subject_weight)

    def mean_over_subjects(self, array: Array) -> Array:
        """Mean of the rows of subjects, without those that pad."""
        return jnp.average(array, axis=0, weights=self.subject_weight)

    @property
    def regressed(self) -> tuple[bool, ...]:
        """Whether effects and standard deviations of each column are estimated."""
        first = self.known_slopes is None
        return tuple(has and (first or k > 0) for k, has in enumerate(self.learned))

    @property
    def learned(self) -> tuple[bool, ...]:
        """Whether the prior of each column is estimated."""
        return tuple(p.name not in self.priors for p in self.column_parameters)

    @property
    def correlated(self) -> bool:
        """Whether correlations of an item's coordinates are estimated.

        If not, ability is 0 where discriminations and intercepts do not correlate.
        """
        return self.num_correlated > 1

    @property
    def num_correlated(self) -> int:
        """How many columns, the first ones, have estimated correlations.

        Those before the first given prior, if all after it are given too (asymptotes).
        """
        learned = self.regressed
        leading = sum(learned)
        return leading if all(learned[:leading]) else 0

    @property
    def has_tilts(self) -> bool:
        """Whether intercepts are regressed on discriminations within each group."""
        if not self.has_group_scales or self.has_group_effects:
            return False
        return max(self.family.intercept_columns) < self.num_correlated

    @property
    def num_shifts(self) -> int:
        """Shifts of abilities that only the prior identifies: by group, one, or 0."""
        return self.num_groups if self.has_tilts else int(self.correlated)

    @property
    def identified_effects(self) -> Bool[Array, "effects columns"]:
        """Which effects the responses identify, by the coordinates that items use.

        Not dispersions by binary items in mixed data, nor a variance by a single level:
        as estimates such effects would confirm any standard deviation. They are fixed
        at 0.
        """
        free = jnp.asarray(self.regressed) | (self.known_slopes is None)
        offsets = self.family.offsets()
        if offsets is None:
            return jnp.broadcast_to(free, (self.design.shape[1], self.num_columns))
        used = jnp.asarray(offsets) == 0
        stems = jnp.zeros((self.num_stems, self.num_columns), int)
        stems = stems.at[self.stem].max(used.astype(int))
        reached = (self.design != 0).T.astype(int) @ stems > 0
        same = (self.component[:, None] == self.component) & (self.component >= 0)
        alone = (same.astype(int) @ reached < 2) & (self.component >= 0)[:, None]
        return reached & ~alone & free

    @property
    def identified_components(self) -> Int[Array, "components columns"]:
        """Identified effects of each facet; see `identified_effects`."""
        same = self.component == jnp.arange(self.num_components)[:, None]
        return same.astype(int) @ self.identified_effects.astype(int)

    @property
    def identified_clusters(self) -> Bool[Array, "clusters columns"]:
        """Benchmarks whose SDs the responses identify; see `identified_effects`."""
        learned = jnp.asarray(self.regressed)
        if self.cluster is None:
            return jnp.zeros((0, self.num_columns), bool)
        offsets = self.family.offsets()
        if offsets is None:
            return jnp.broadcast_to(learned, (self.num_clusters, self.num_columns))
        used = (jnp.asarray(offsets) == 0).astype(int)
        identified = jnp.zeros((self.num_clusters, self.num_columns), int)
        identified = identified.at[self.cluster[self.stem]].max(used) > 0
        return identified & learned & (jnp.sum(identified, axis=0) > 1)

    @property
    def factor_row(self) -> Int[Array, " stems"]:
        """Which of `residual_factor` is each stem's."""
        if self.cluster is not None:
            return self.cluster
        rows = jnp.zeros(self.num_stems, int)
        return rows.at[self.stem].set(self.group) if self.has_tilts else rows

    @property
    def has_general_scale(self) -> bool:
        """Whether items fix the scale of ability, whose SD is then estimated."""
        return not self.family.has_slope

    def zeros(self, dtype: Any = float) -> Position:
        """A position of zeros."""
        groups, columns = self.num_groups, self.num_columns
        several, learned = int(groups > 1), int(any(self.learned))
        subjects, covariates = self.subject_design.shape
        zeros = lambda *shape: jnp.zeros(shape, dtype)
        return Position(
            zeros(subjects, groups),
            zeros(several * groups),
            zeros(groups * (groups - 1) // 2),
            zeros(self.num_stems, columns),
            zeros(groups * self.has_group_effects, columns),
            zeros(learned * self.design.shape[1], columns),
            zeros(learned * self.num_components, columns),
            zeros(learned * columns),
            zeros(self.num_correlated * (self.num_correlated - 1) // 2),
            zeros(covariates),
            zeros(int(self.has_general_scale)),
            zeros(groups * self.has_tilts),
            zeros(self.num_clusters, columns),
        )

    def covariance_factor(self, at: Any) -> Float[Array, "groups groups"]:
        """The Cholesky factor of tau^2 1 1' + Sigma, of parts as in `Position`."""
        own = self.specific_covariance(at)
        variance = general_variance(at.log_general_sd)
        if self.num_groups == 1:
            return own + variance**0.5
        return jnp.linalg.cholesky(own + variance)

    def specific_covariance(self, at: Any) -> Float[Array, "groups groups"]:
        """Sigma, the covariance of group-specific abilities, likewise."""
        if self.num_groups == 1:
            return jnp.zeros((1, 1), at.log_general_sd.dtype)
        factor = correlation_cholesky(at.correlation, self.num_groups)
        factor = jnp.exp(at.log_scale)[:, None] * factor
        return factor @ factor.T

    def abilities(self, position: Position) -> Float[Array, "subjects groups"]:
        """Abilities of every subject in every group."""
        if self.centred:
            return position.ability
        mean = self.subject_design @ position.subject_effects
        return mean[:, None] + position.ability @ self.covariance_factor(position).T

    def effect_sd(self, at: Any) -> Float[Array, "effects columns"]:
        """Prior standard deviations of the effects, by `log_component_sd` of `at`."""
        sd = jnp.exp(at.log_component_sd)
        fixed = jnp.full((1, self.num_columns), self.hyperpriors.effect, sd.dtype)
        # Component -1 is the last row: the fixed effects.
        return jnp.concatenate([sd, fixed])[self.component]

    @property
    def residual_scales(self) -> Float[Array, " columns"]:
        """Scales of the half-normals of the items' standard deviations."""
        own = self.hyperpriors
        scales = jnp.full(self.num_columns, own.residual)
        return scales.at[0].set(own.discrimination) if self.family.has_slope else scales

    def item_means(self, position: Position) -> Float[Array, "stems columns"]:
        """D beta."""
        effects = self.effect_sd(position) * position.effects
        # Column by column takes half of the time of one product with rows so short.
        columns = [self.design @ effects[:, k] for k in range(self.num_columns)]
        return jnp.stack(columns, axis=1)

    def coordinates(self, position: Position) -> Float[Array, "items columns"]:
        """Unconstrained coordinates of every column of the data."""
        rows = position.items[self.stem]
        if self.has_group_effects:
            rows = rows + position.group_effects[self.group]
        return self.family.with_offsets(rows)

    def items(self, position: Position) -> Items:
        """Item records of every column of the data."""
        return jax.vmap(self.family.constrain)(self.coordinates(position))

    def tilts(self, position: Position) -> Float[Array, " tilts"]:
        """k, one for each group; the common correlation represents their mean."""
        if not self.has_tilts:
            return position.tilt
        return self.hyperpriors.tilt * (position.tilt - jnp.mean(position.tilt))

    def log_relative_sds(self, position: Position) -> Float[Array, "clusters columns"]:
        """delta, one row for each benchmark; Omega0 represents their mean."""
        own = self.centred_log_relative_sds(position.log_relative_sd)
        return self.hyperpriors.relative_sd * own

    def centred_log_relative_sds(self, free: Array) -> Float[Array, "clusters columns"]:
        """Delta with sum 0 over the benchmarks where it is identified, 0 elsewhere."""
        identified = self.identified_clusters
        mean = jnp.sum(jnp.where(identified, free, 0), axis=0)
        mean = mean / jnp.maximum(jnp.sum(identified, axis=0, dtype=mean.dtype), 1)
        return jnp.where(identified, free - mean, 0)

    def residual_factor(
        self,
        log_sd: Float[Array, " sds"],
        correlation: Float[Array, " pairs"],
        tilts: Float[Array, " tilts"],
        log_relative_sds: Float[Array, "clusters columns"],
    ) -> Float[Array, "rows columns columns"]:
        """Cholesky factors of Omega, one or by `factor_row`; of Omega0, k and delta."""
        rows = self.common_factor(log_sd, correlation)[None]
        if self.num_clusters:
            rows = jnp.exp(log_relative_sds)[:, :, None] * rows
        if not self.has_tilts:
            return rows
        columns = jnp.asarray(self.family.intercept_columns)
        added = jnp.zeros_like(rows).at[:, columns].set(rows[:, :1])
        return rows + tilts[:, None, None] * added

    def common_factor(
        self, log_sd: Float[Array, " sds"], correlation: Float[Array, " pairs"]
    ) -> Float[Array, "columns columns"]:
        """The Cholesky factor of Omega0; see `residual_factor`."""
        size = self.num_columns
        if not any(self.learned):
            return jnp.eye(size, dtype=correlation.dtype)
        factor = jnp.eye(size, dtype=log_sd.dtype)
        if self.correlated:
            several = self.num_correlated
            block = correlation_cholesky(correlation, several)
            factor = factor.at[:several, :several].set(block)
        return jnp.exp(log_sd)[:, None] * factor

    def log_item_prior(
        self,
        row: Float[Array, " columns"],
        mean: Float[Array, " columns"],
        factor: Float[Array, "columns columns"],
    ) -> Scalar:
        """Log density of one item's coordinates; `mean` and `factor` if estimated."""
        total = self.fixed_log_prior(row)
        if any(self.learned):
            # Forward substitution, written out to keep LAPACK out of batches.
            standard: list[Array] = []
            for k in range(self.num_columns):
                left = row[k] - mean[k]
                for i, earlier in enumerate(standard):
                    left = left - factor[k, i] * earlier
                standard.append(left / factor[k, k])
            gap = jnp.stack(standard)
            density = -0.5 * (gap**2 + LOG_TWO_PI) - jnp.log(jnp.diagonal(factor))
            total = total + jnp.sum(jnp.where(jnp.asarray(self.learned), density, 0))
        return total

    def fixed_log_prior(self, row: Float[Array, " columns"]) -> Scalar:
        """Log density of one item's coordinates under the priors that are given."""
        if not self.priors:
            return jnp.zeros((), row.dtype)
        item, slopes = self.family.constrain(row), self.family.log_slopes(row)
        total, column = jnp.zeros((), row.dtype), 0
        for parameter in self.family.parameters:
            prior = self.priors.get(parameter.name)
            if prior is not None:
                slope = slopes[column : column + parameter.columns]
                value = jnp.atleast_1d(getattr(item, parameter.name))
                total = total + jnp.sum(prior.log_density(value) + slope)
            column += parameter.columns
        return total


def slopes_known(model: MultilevelModel) -> MultilevelModel:
    """The model with a given log-normal prior of discriminations as `KnownSlopes`.

    Unchanged where groups have scales of their own and no effects for their means.
    """
    prior = model.priors.get("discrimination")
    if not (model.family.has_slope and isinstance(prior, LogNormal)):
        return model
    rows: tuple[int, ...] = (0,)
    if model.has_group_scales and not model.has_group_effects:
        group = np.zeros(model.num_stems, int)
        group[np.asarray(model.stem)] = np.asarray(model.group)
        member = group == np.arange(model.num_groups)[:, None]
        same = (np.asarray(model.design).T == member[:, None]).all(axis=2)
        if not same.any(axis=1).all():
            return model
        rows = tuple(same.argmax(axis=1).tolist())
    slopes = KnownSlopes(float(prior.mean), float(prior.sd), rows)
    priors = {k: v for k, v in model.priors.items() if k != "discrimination"}
    return dataclasses.replace(model, priors=priors, known_slopes=slopes)


def log_half_normal(
    log_sd: Array, scale: Array | float, mask: Array | bool = True
) -> Array:
    """Log density of logarithms of half-normals, those outside the mask left out."""
    density = HalfNormal(scale).log_density(jnp.exp(log_sd)) + log_sd
    return jnp.sum(jnp.where(mask, density, 0))


def general_variance(log_general_sd: Float[Array, " scales"]) -> Array | float:
    """tau^2, the variance of general ability: 1 unless it is estimated."""
    if log_general_sd.shape[0] == 0:
        return 1.0
    return jnp.exp(2 * log_general_sd[0])


class General(NamedTuple):
    """Normal distribution of general ability given the groups', by weights of these."""

    weights: Float[Array, " groups"]
    variance: Scalar


def general_ability(
    specific_covariance: Float[Array, "groups groups"], variance: Array | float = 1.0
) -> General:
    """The general ability psi given the abilities of the groups.

    For theta ~ N(0, tau^2 1 1' + Sigma) and w = tau^2 (tau^2 1 1' + Sigma)^-1 1,
    E[psi | theta] = w' theta and Var = tau^2 (1 - w' 1). `variance` is tau^2.
    """
    size = specific_covariance.shape[0]
    ones = jnp.ones(size, specific_covariance.dtype)
    weights = variance * jnp.linalg.solve(specific_covariance + variance, ones)
    return General(weights, variance * jnp.maximum(1 - jnp.sum(weights), 0))
