"""Structured models in seconds: items integrated out, abilities by Laplace, rest by EM.

The fast route beside NUTS. Given variance components, the abilities of all subjects are
a Gaussian vector seen through the product of the items' integrals (`units`): a Newton
step finds its mode, and the curvature A there is its precision (Laplace's
approximation). Means, effects and covariances of items and abilities are then raised
to the mode of their expected log density, EM's way, with their priors: empirical Bayes.

What is expected is expected over the error of the abilities: the mean of the abilities
is off their mode by half of A^-1 times the slope of -log|A| (Tierney and Kadane 1986),
and what items are expected to be follows (`units`). EM with modes in place of means
ends elsewhere: deviations of abilities times c and discriminations over c are as likely
as before, so the mode's unit is too small, and with few responses it shrinks to
nothing. With a dozen subjects derivatives suffice, and the end is a mode of Laplace's
marginal likelihood. With many, or with scores, items are fitted to what is expected,
and their mean log discrimination in each unit of ability is held (`_held_units`): the
end is then that of a variational bound with items integrated out.

The abilities' covariance is held whole, over subjects and groups: errors of abilities
and of their differences count what all subjects share.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.acceleration import Memory, accelerate, empty_memory, forget
from irtjax.estimators.base import AbstractMethod, Progress
from irtjax.estimators.units import (
    Following,
    Outer,
    Summary,
    Units,
    arrange,
    factor_row,
    spread_of_items,
    summarise,
)
from irtjax.models.hierarchical import Hierarchical, general_variance
from irtjax.models.priors import HalfNormal, Normal
from irtjax.numerics import positive_definite_solve
from irtjax.transforms import correlation_cholesky, lkj_log_density

_LOG_TWO_PI = 1.8378770664093453
#: The covariance of abilities is dense; beyond this many the memory is not there.
LARGEST = 6000
#: Share of the abilities' prior precision that items may take away: they have learned
#: priors of their own, so truly they take little.
LARGEST_LOSS = 0.7
#: Share of the items' covariances that must be left once abilities have errors.
SMALLEST_WITHIN = 0.25
#: A log standard deviation of the groups' own abilities that counts as none.
LOG_NOTHING = -3.5
#: A log standard deviation of log discriminations or dispersions (2) that is no spread.
LOG_TOO_WIDE = 0.69
#: Responses of an item from which on they are many.
MANY_PER_ITEM = 20
#: Steps in which neither is taken for the end.
EARLY_STEPS = 15


class StructuredProblem(eqx.Module):
    """A structured model with its data.

    Attributes:
        model: The model.
        data: The responses.
        units: The same by stem.
        expected: Whether items are fitted to what is expected over the error of the
            abilities, and the mean discrimination of each unit's items is held: for
            scores, and from `MANY_PER_ITEM` responses of an item with a slope on.
    """

    model: Hierarchical
    data: Responses
    units: Units
    expected: bool = eqx.field(static=True, default=True)

    @classmethod
    def create(cls, model: Hierarchical, data: Responses) -> StructuredProblem:
        """Arranges the data. Not for use under jit."""
        scores = any(part.name == "dispersion" for part in model.family.parameters)
        seen = data.values.size
        if data.observed is not None:
            seen = float(jnp.sum(data.observed))
        each = seen / max(model.num_stems, 1)
        # Without slopes nothing runs away, and derivatives are nearer to the truth.
        expected = scores or (each >= MANY_PER_ITEM and model.family.has_slope)
        return cls(model, data, arrange(model, data), expected)


class Components(NamedTuple):
    """What is maximised: effects and variances.

    Attributes:
        log_scale: `[groups]` log standard deviations of the groups' own abilities.
        correlation: Coordinates of their correlations.
        effects: `[effects, columns]` beta.
        log_component_sd: `[components, columns]`.
        log_residual_sd: `[columns]` of Omega.
        residual_correlation: Coordinates of its correlations.
        group_effects: `[groups, columns]`; no rows without.
        subject_effects: `[covariates]`.
        log_general_sd: `[1]` log tau, for families without slopes; else empty.
        tilt: `[groups]` slopes k of intercepts on log discriminations, of sum 0, where
            groups have such; else empty.
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


class LaplaceState(NamedTuple):
    """State of the fast route.

    Attributes:
        components: Effects and variances.
        ability_mode: `[subjects, groups]` mode of the abilities.
        ability: `[subjects, groups]` means of the abilities.
        ability_covariance: `[groups * subjects, groups * subjects]`, group by group.
        reported_covariance: The same with what effects that are estimated add, the
            origin and unit of each group's abilities foremost; once finished.
        mode: `[units, columns]` modes of the items.
        mean: `[units, columns]` their posterior means.
        covariance: `[units, columns, columns]` posterior covariances, the error of the
            abilities left out.
        spread: `[units, columns]` variances that the error of the abilities adds.
        log_marginal: `[units]` log-likelihood of each item's responses.
        objective: Laplace's log marginal likelihood, with priors.
        residual: Largest move of the last step, in standard errors.
        image: Components and abilities of the last plain step that was kept, to go back
            to when the acceleration's proposal proves worse.
        reached: Objective of the last point that was kept.
        is_plain: Whether the next point is a plain step.
        memory: Of the acceleration.
        num_seen: Steps taken.
    """

    components: Components
    ability_mode: Float[Array, "subjects groups"]
    ability: Float[Array, "subjects groups"]
    ability_covariance: Array
    reported_covariance: Array
    mode: Array
    mean: Array
    covariance: Array
    spread: Array
    log_marginal: Array
    objective: Scalar
    residual: Scalar
    image: tuple[Components, Array]
    reached: Scalar
    is_plain: Array
    memory: Memory
    num_seen: Array


class Approximation(NamedTuple):
    """The abilities given components, and what is expected of items.

    Attributes:
        items: A pass over them.
        ability_mode: `[subjects, groups]` mode of the abilities, one step nearer.
        shift: `[subjects, groups]` from there to their mean.
        covariance: `[groups * subjects, groups * subjects]` of the abilities.
        error: `[subjects, groups]` roots of its diagonal.
        prior_mean: `[subjects, 1]` of the abilities.
        objective: Laplace's log marginal likelihood, with priors.
    """

    items: Summary
    ability_mode: Array
    shift: Array
    covariance: Array
    error: Array
    prior_mean: Array
    objective: Scalar


class Laplace(AbstractMethod):
    """Empirical Bayes for structured models with few subjects and many items.

    Attributes:
        order: Quadrature nodes per coordinate of an item, 2 or more. With a dozen
            subjects an item's posterior is far from normal: use 5 or more.
        tolerance: Converged when nothing moves by more than this many standard errors.
        num_newton: Newton steps to the mode of each item in a step.
        depth: Of the acceleration; 0 turns it off.
    """

    marginal: ClassVar[bool] = True

    order: int = eqx.field(static=True, default=5)
    tolerance: float | Array = 1e-2
    num_newton: int = eqx.field(static=True, default=3)
    depth: int = eqx.field(static=True, default=10)

    def init(
        self, problem: StructuredProblem, start: Components | None, key: KeyArray | None
    ) -> LaplaceState:
        """State at start values from sums of statistics."""
        model, units = problem.model, problem.units
        subjects, groups = model.subject_design.shape[0], model.num_groups
        if self.order < 2:
            raise ValueError(f"order {self.order} sees no spread of items: give 2 to 9")
        if subjects * groups > LARGEST:
            raise ValueError(
                f"{subjects:,} subjects times {groups} groups are more than the"
                f" {LARGEST:,} abilities that structured fits hold a covariance of;"
                " fit fewer of either"
            )
        ability, mode = start_structured(model, problem.data)
        components = start_components(model, mode) if start is None else start
        size = subjects * groups
        covariance = jnp.zeros((size, size), ability.dtype)
        mode = (
            jnp.zeros((units.weight.shape[0], mode.shape[1]), mode.dtype)
            .at[units.unit]
            .set(mode)
        )
        found = summarise(
            model,
            units,
            _outer(model, ability, components),
            mode,
            blocks_of(covariance, groups, units.is_aligned),
            jnp.zeros_like(ability),
            order=2,
            num_newton=25,
        )
        dtype = ability.dtype
        size = ravel_pytree((components, ability))[0].size
        return LaplaceState(
            components=components,
            ability_mode=ability,
            ability=ability,
            ability_covariance=covariance,
            reported_covariance=covariance,
            mode=found.mode,
            mean=found.mean,
            covariance=found.covariance,
            spread=jnp.zeros_like(mode),
            log_marginal=found.log_marginal,
            objective=jnp.zeros((), dtype),
            residual=jnp.full((), jnp.inf, dtype),
            image=(components, ability),
            reached=jnp.full((), -jnp.inf, dtype),
            is_plain=jnp.ones((), bool),
            memory=empty_memory(size, max(self.depth, 1), dtype),
            num_seen=jnp.zeros((), jnp.int32),
        )

    def step(
        self, problem: StructuredProblem, state: LaplaceState, key: KeyArray | None
    ) -> LaplaceState:
        """One pass over the items, one Newton step, one maximisation."""
        model, components = problem.model, state.components
        found = self.approximate(problem, state)
        moved = _maximise(model, problem.units, components, found)
        scale = (_precisions(model, moved[0]), 1 / found.error)
        point, _ = ravel_pytree((components, state.ability_mode))
        image, unravel = ravel_pytree(moved)
        weight, _ = ravel_pytree(scale)
        moves = (image - point) * weight
        # The map climbs but need not end at the very top of the approximation, so a
        # plain step is always kept, and a proposal if it does not fall.
        kept = state.is_plain | (found.objective >= state.reached)
        choose = lambda a, b: jax.tree.map(  # noqa: E731
            lambda x, y: jnp.where(kept, x, y), a, b
        )
        moved = choose(moved, state.image)
        (components, mode), memory, is_plain = moved, state.memory, jnp.array(True)
        if self.depth:
            proposal, memory = accelerate(memory, point, image, weight)
            components, mode = choose(unravel(proposal), moved)
            is_plain = ~kept | (memory.num_seen == 1)
            memory = forget(memory, ~kept)
        return state._replace(
            components=components,
            ability_mode=mode,
            ability=mode + found.shift,
            ability_covariance=found.covariance,
            mode=found.items.mode,
            mean=found.items.mean,
            covariance=found.items.covariance,
            log_marginal=found.items.log_marginal,
            objective=found.objective,
            residual=jnp.max(jnp.abs(moves)),
            image=moved,
            reached=jnp.where(kept, found.objective, state.reached),
            is_plain=is_plain,
            memory=memory,
            num_seen=state.num_seen + 1,
        )

    def approximate(
        self, problem: StructuredProblem, state: LaplaceState
    ) -> Approximation:
        """A Newton step of the abilities, and one pass over the items where it ends.

        Args:
            problem: The model and its data.
            state: Where; its covariance and means of abilities, which are those of the
                step before, enter what is expected of items.
        """
        model, units, groups = problem.model, problem.units, problem.model.num_groups
        components, shift = state.components, state.ability - state.ability_mode
        factor = covariance_factor(model, components)
        mean = (model.subject_design @ components.subject_effects)[:, None]
        identity = jnp.eye(groups, dtype=shift.dtype)
        precision = jax.scipy.linalg.cho_solve((factor, True), identity)
        flatten, fold = lambda x: x.T.reshape(-1), lambda x: x.reshape(groups, -1).T

        def newton(state, corrected: bool):
            found = self._summarise(problem, state, corrected)
            held = _held_units(problem, components, found)
            gap = state.ability_mode - mean
            gradient = flatten(found.gradient - gap @ precision) + held.gradient
            root, data, log_det = _factorise(found, precision, groups, held.slope)
            flat = jax.scipy.linalg.cho_solve((root, True), gradient)
            # What the mode would add to the point at hand, to second order.
            rise = 0.5 * flat @ gradient + held.value
            inner = rise - 0.5 * jnp.sum((gap @ precision) * gap) - 0.5 * log_det
            step = fold(flat)
            step = step / jnp.maximum(1.0, jnp.max(jnp.abs(step)))
            found = found._replace(mean=held.mean)
            return found, state.ability_mode + step, root, data, inner

        # What is expected of items is that at the abilities to be, not those that were:
        # from the same point both overshoot, and some fits then go to and fro for ever.
        _, ability, *_ = newton(state, corrected=False)
        state = state._replace(ability_mode=ability, ability=ability + shift)
        found, ability, root, data, inner = newton(state, corrected=True)
        solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)  # noqa: E731
        covariance = solve(jnp.eye(root.shape[0], dtype=root.dtype))
        # Half-way, like the shift below: items follow abilities and these follow items,
        # which with free units of many groups goes to and fro.
        covariance = (covariance + state.ability_covariance) / 2
        error = fold(jnp.sqrt(jnp.diagonal(covariance)))
        # The derivative of -log|A| / 2: that of h has the part of the old shift in it.
        bend = flatten(found.bend) + data @ flatten(shift)
        new = jnp.clip(fold(solve(bend)), -error, error)
        shift = (shift + new) / 2
        objective = (
            units.weight @ found.log_marginal
            + inner
            - ability.shape[0] * jnp.sum(jnp.log(jnp.diagonal(factor)))
            + log_prior(model, components)
        )
        if problem.expected:
            # Items' densities are lower by what they lose over the abilities' error.
            variance = fold(jnp.diagonal(state.ability_covariance))
            objective = objective + 0.5 * jnp.sum(found.safe * variance)
        return Approximation(found, ability, shift, covariance, error, mean, objective)

    def _summarise(
        self, problem: StructuredProblem, state: LaplaceState, corrected: bool = True
    ) -> Summary:
        model, units = problem.model, problem.units
        return summarise(
            model,
            units,
            _outer(model, state.ability_mode, state.components),
            state.mode,
            blocks_of(state.ability_covariance, model.num_groups, units.is_aligned),
            state.ability - state.ability_mode,
            order=self.order,
            num_newton=self.num_newton,
            corrected=corrected,
            expected=problem.expected,
        )

    def progress(self, problem: StructuredProblem, state: LaplaceState) -> Progress:
        """Objective of the last point; converged by the last move.

        Stalled where the groups' own abilities have shrunk to nothing, or the spread of
        items' logarithms has no bound: with few responses the approximation can lead
        there whatever the data.
        """
        tolerance = jnp.asarray(self.tolerance, state.residual.dtype)
        components = state.components
        gone = jnp.any(components.log_scale < LOG_NOTHING)
        logarithms = jnp.asarray(problem.model.has_logarithm)
        wide = components.log_residual_sd > LOG_TOO_WIDE
        late = state.num_seen >= EARLY_STEPS
        gone = (gone | jnp.any(wide & logarithms)) & late
        return Progress(
            state.objective,
            state.residual,
            (state.residual <= tolerance) & ~gone,
            gone,
        )

    def finish(self, problem: StructuredProblem, state: LaplaceState) -> LaplaceState:
        """The state with the covariance to report, and what it adds to items."""
        model, units = problem.model, problem.units
        factor = covariance_factor(model, state.components)
        identity = jnp.eye(model.num_groups, dtype=factor.dtype)
        precision = jax.scipy.linalg.cho_solve((factor, True), identity)
        found = self._summarise(problem, state)
        follow = _following(model, units, state.components, found)
        whole = _whole_covariance(model, state, found, precision, follow)
        # Origin and unit of ability are errors of all items too.
        spread = spread_of_items(
            model,
            units,
            _outer(model, state.ability_mode, state.components),
            state.mode,
            blocks_of(state.ability_covariance, model.num_groups, units.is_aligned),
            whole,
            follow,
            order=self.order,
            num_newton=self.num_newton,
            expected=problem.expected,
        )
        return state._replace(reported_covariance=whole, spread=spread)

    def result(
        self, problem: StructuredProblem, state: LaplaceState
    ) -> tuple[LaplaceState, Array]:
        """The state, and the log-likelihood of each item's responses."""
        return state, state.log_marginal[problem.units.unit]


def start_structured(model: Hierarchical, data: Responses) -> tuple[Array, Array]:
    """First abilities `[subjects, groups]` and item coordinates `[stems, columns]`.

    Abilities are standardised mean deviations from the item means, group by group.
    """
    dtype = model.design.dtype
    values = data.values.astype(dtype)
    exposure = data.exposure
    seen = jnp.ones_like(values) if exposure is None else exposure.astype(dtype)
    count = jnp.maximum(jnp.sum(seen, axis=0), 1e-6)
    deviation = values - seen * (jnp.sum(values, axis=0) / count)
    by_group = lambda cells: (
        jax.ops.segment_sum(  # noqa: E731
            cells.T, model.group, model.num_groups
        ).T
    )
    # Shrunken by one response, so that a subject with few does not lead.
    theta = by_group(deviation) / (by_group(seen) + 1)
    centred = theta - jnp.mean(theta, axis=0)
    spread = jnp.sqrt(jnp.mean(centred**2, axis=0))
    theta = centred / jnp.maximum(spread, 1e-6)
    means = tuple(
        jax.ops.segment_sum(jnp.sum(s, axis=0), model.stem, model.num_stems)
        / jax.ops.segment_sum(count, model.stem, model.num_stems)
        for s in model.family.statistics(values)
    )
    items = model.family.start(means, jnp.ones(model.num_stems, dtype))
    return theta, jax.vmap(model.family.unconstrain)(items)


def start_components(model: Hierarchical, mode: Array) -> Components:
    """First effects: items around their mean with standard deviation 1."""
    zeros = model.zeros(mode.dtype)
    effects = jnp.zeros((model.design.shape[1], model.num_columns), mode.dtype)
    return Components(
        zeros.log_scale - 0.5,
        zeros.correlation,
        effects.at[0].set(jnp.mean(mode, axis=0)),
        jnp.full((model.num_components, model.num_columns), -0.5, mode.dtype),
        jnp.zeros(model.num_columns, mode.dtype),
        zeros.residual_correlation,
        zeros.group_effects,
        zeros.subject_effects,
        zeros.log_general_sd,
        zeros.tilt,
    )


def _factors(model: Hierarchical, components: Components) -> Array:
    """Of Omega, one for all items or one for those of each group."""
    return model.residual_factor(
        components.log_residual_sd, components.residual_correlation, components.tilt
    )


def _inverses(factors: Array) -> Array:
    """Of Omega, of its factors."""
    identity = jnp.eye(factors.shape[-1], dtype=factors.dtype)
    invert = lambda factor: jax.scipy.linalg.cho_solve((factor, True), identity)  # noqa: E731
    return jax.vmap(invert)(factors)


def _outer(model: Hierarchical, ability: Array, components: Components) -> Outer:
    return Outer(
        ability,
        components.effects,
        _factors(model, components),
        components.group_effects,
    )


def blocks_of(covariance: Array, groups: int, aligned: bool) -> Array:
    """The covariance as `units.summarise` wants it: whole, or group by group."""
    if aligned:
        return covariance[None]
    subjects = covariance.shape[0] // groups
    whole = covariance.reshape(groups, subjects, groups, subjects)
    index = jnp.arange(groups)
    return whole[index, :, index]


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


def _deviations(
    model: Hierarchical, state: LaplaceState, precision: Array
) -> tuple[Array, Array, Array]:
    """Deviations of abilities from their centre, `[subjects, groups]`.

    And of the unit of each group, how many deviations it has of those that the data
    determine, and the sum of their squares.
    """
    ability, groups = state.ability, state.ability.shape[1]
    count = ability.shape[0]
    blocks = state.ability_covariance.reshape(groups, count, groups, count)
    held = jnp.diagonal(precision @ jnp.einsum("anbn->ab", blocks))
    used = jnp.clip(count - 1 - held, 0, count)
    centred = ability - jnp.mean(ability, axis=0)
    square = jnp.maximum(jnp.sum(centred**2, axis=0), 1e-6)
    if not model.has_group_scales:
        used, square = (jnp.full_like(x, jnp.sum(x)) for x in (used, square))
    return centred, used, square


class _Held(NamedTuple):
    """What holding the mean log discrimination of each unit's items adds.

    Attributes:
        value: To the log density of the abilities.
        gradient: `[groups * subjects]` of it.
        slope: `[groups * subjects, units]` whose products with themselves are minus its
            second derivatives.
        mean: `[items, columns]` the items' means once theirs is held.
    """

    value: Scalar
    gradient: Array
    slope: Array
    mean: Array


def _held_units(
    problem: StructuredProblem, components: Components, found: Summary
) -> _Held:
    """The mean log discrimination of the items of a unit of ability, held at its prior.

    A prior mean that is learned and items whose mean may differ from it say the same
    thing twice, and with few items the mode of the abilities is where the two fall
    apart: it takes no account of the volume of abilities, which grows with their unit.
    So the items' mean x-bar is what the learned mean is of: the abilities' density is
    conditioned on it, by the factor N(x-bar(theta) - mu; 0, v) / N(0; 0, s^2 / J).
    """
    model, units = problem.model, problem.units
    flat, num = found.gradient.size, _num_units(model)
    if not (problem.expected and num and model.learned[0]):
        dtype = found.mean.dtype
        zero = jnp.zeros((), dtype)
        return _Held(zero, jnp.zeros(flat, dtype), jnp.zeros((flat, 0)), found.mean)
    num = 1 if units.is_aligned else num
    of = units.group[:, 0] if num > 1 else jnp.zeros_like(units.group[:, 0])
    total = lambda x: jax.ops.segment_sum(units.weight * x, of, num)  # noqa: E731
    count = total(jnp.ones_like(units.weight))
    offset = total(found.mean_at[:, 0] - units.design @ components.effects[:, 0])
    variance = total(found.covariance[:, 0, 0]) / count**2
    by_ability = found.cross[:, 0, 0].reshape(num, -1)
    along = jax.scipy.linalg.block_diag(*by_ability[:, :, None]) / count
    offset, root = offset / count, jnp.sqrt(variance)
    slope = along / root
    spread = jnp.exp(2 * components.log_residual_sd[0]) / count
    value = -0.5 * jnp.sum(offset**2 / variance + jnp.log(variance / spread))
    more = total(found.mean[:, 0] - units.design @ components.effects[:, 0]) / count
    mean = found.mean.at[:, 0].add(-more[of])
    return _Held(value, -slope @ (offset / root), slope, mean)


def _factorise(
    found, precision: Array, groups: int, held: Array | None = None
) -> tuple[Array, Array, Array]:
    """Curvature of all abilities: Cholesky factor, the data's part, log determinant.

    Where that is not positive, or items take most of the prior away, as can be far from
    the mode, the expected part of the data's. With `held` @ `held`', the part of what
    is held of items, where it is given.
    """
    subjects = found.gradient.shape[0]
    size = groups * subjects
    identity = jnp.eye(subjects, dtype=precision.dtype)
    prior = jnp.kron(precision, identity)
    if found.curvature.shape[0] == 1 and groups > 1:
        data = found.curvature[0]
    else:
        index = jnp.arange(groups)
        data = jnp.zeros((groups, subjects, groups, subjects), precision.dtype)
        data = data.at[index, :, index].set(found.curvature).reshape(size, size)
    sound = jnp.linalg.cholesky(data + (1 - LARGEST_LOSS) * prior)
    safe = jnp.diag(jnp.maximum(found.safe.T.reshape(-1), 0))
    data = jnp.where(jnp.all(jnp.isfinite(sound)), data, safe)
    if held is not None:
        data = data + held @ held.T
    root = jnp.linalg.cholesky(data + prior)
    return root, data, 2 * jnp.sum(jnp.log(jnp.diagonal(root)))


def _following(
    model: Hierarchical, units: Units, components: Components, found: Summary
) -> Following | None:
    """How effects of items follow the abilities; None where no prior is learned."""
    if not any(model.learned):
        return None
    omega = _inverses(_factors(model, components))
    mask = jnp.asarray(model.learned, omega.dtype)
    omega = omega * mask * mask[:, None]
    size, rows = model.num_columns * model.design.shape[1], len(omega)
    cross = found.cross.reshape(rows, -1, *found.cross.shape[1:])
    cross = jnp.einsum("rab,rnbe->rnae", omega, cross).reshape(-1, size)
    square = _squares(units, rows)
    known = jnp.einsum("rab,rbcef,rcd->adef", omega, found.square, omega)
    block = jnp.einsum("rab,ref->aebf", omega, square) - known.transpose(0, 2, 1, 3)
    ridge = _effect_sd(model, components.log_component_sd).T.reshape(-1) ** -2.0
    root = jnp.linalg.cholesky(block.reshape(size, size) + jnp.diag(ridge))
    solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)  # noqa: E731
    return Following(
        omega, cross, solve(cross.T), solve(jnp.eye(size, dtype=root.dtype))
    )


def _squares(units: Units, rows: int) -> Array:
    """D'D over all units, or over those of each group: `[rows, effects, effects]`."""
    row = factor_row(units.group, rows)

    def of(k):
        weight = jnp.where(row == k, units.weight, 0)
        return units.design.T @ (units.design * weight[:, None])

    return lax.map(of, jnp.arange(rows))


def _whole_covariance(
    model: Hierarchical,
    state: LaplaceState,
    found: Summary,
    precision: Array,
    follow: Following | None,
) -> Array:
    """Covariance of abilities and effects together, the part of the abilities.

    The curvature of the log posterior in both, items integrated out, with that of the
    common unit, and the effects' block taken out (Schur complement).
    """
    groups = model.num_groups
    root, _, _ = _factorise(found, precision, groups)
    prior = jnp.kron(precision, jnp.eye(state.ability.shape[0], dtype=precision.dtype))
    data = root @ root.T - prior
    if follow is not None:
        data = data - follow.cross @ follow.slope
        # What is left along origins is rounding and the error of the quadrature, of
        # either sign: information is not negative.
        roots, vectors = jnp.linalg.eigh((data + data.T) / 2)
        data = (vectors * jnp.maximum(roots, 0)) @ vectors.T
    if _num_units(model):
        centred, used, square = _deviations(model, state, precision)
        if groups > 1 and not model.has_group_scales:
            along, used, square = centred.T.reshape(-1, 1), used[:1], square[:1]
        else:
            along = jax.scipy.linalg.block_diag(*centred.T[:, :, None])
        # The data know no unit: what is left is a small difference of large numbers,
        # which the error of the quadrature rules. Only the deviations, as many as are
        # known, say how large they are.
        unit = along / jnp.sqrt(square)
        clear = jnp.eye(data.shape[0], dtype=data.dtype) - unit @ unit.T
        data = clear @ data @ clear + (unit * used / square) @ unit.T
    curvature = data + prior
    if model.correlated:
        # A shift of all abilities is taken up by intercepts and by their regression on
        # discriminations, which is estimated: only the prior knows it.
        shifts = jnp.eye(groups if model.has_tilts else 1, dtype=prior.dtype)
        shifts = jnp.repeat(shifts, prior.shape[0] // len(shifts), axis=0)
        moved, held = curvature @ shifts, prior @ shifts
        own = lambda x: x @ jnp.linalg.solve(shifts.T @ x, x.T)  # noqa: E731
        curvature = curvature - own(moved) + own(held)
    root = jnp.linalg.cholesky(curvature)
    identity = jnp.eye(curvature.shape[0], dtype=curvature.dtype)
    covariance = jax.scipy.linalg.cho_solve((root, True), identity)
    return jnp.where(jnp.all(jnp.isfinite(root)), covariance, state.ability_covariance)


def log_prior(model: Hierarchical, components: Components) -> Scalar:
    """Log density of effects and variances, in their coordinates."""
    own = model.hyperpriors
    total = jnp.zeros((), components.effects.dtype)
    if model.num_groups > 1:
        total = total + lkj_log_density(
            components.correlation, model.num_groups, own.concentration
        )
        total = total + _log_half_normal(components.log_scale, own.scale)
    if model.correlated:
        total = total + lkj_log_density(
            components.residual_correlation, model.num_correlated, own.concentration
        )
    total = total + _log_half_normal(components.log_general_sd, own.general)
    if any(model.learned):
        mask = jnp.asarray(model.learned)
        total = total + _log_half_normal(components.log_residual_sd, own.residual, mask)
        total = total + _log_half_normal(
            components.log_component_sd, own.component, mask
        )
        scale = _effect_sd(model, components.log_component_sd)
        density = Normal(0.0, scale).log_density(components.effects)
        total = total + jnp.sum(jnp.where(mask, density, 0))
    for part, sd in (
        (components.group_effects, own.group_effect),
        (components.subject_effects, own.subject_effect),
        (components.tilt, own.tilt),
    ):
        total = total + jnp.sum(Normal(0.0, sd).log_density(part))
    return total


def _log_half_normal(log_sd: Array, scale: float, mask: Array | bool = True) -> Array:
    density = HalfNormal(scale).log_density(jnp.exp(log_sd)) + log_sd
    return jnp.sum(jnp.where(mask, density, 0))


def _effect_sd(model: Hierarchical, log_component_sd: Array) -> Array:
    """`[effects, columns]` prior standard deviations of the effects."""
    sd = jnp.exp(log_component_sd)
    fixed = jnp.full((1, model.num_columns), model.hyperpriors.effect, sd.dtype)
    return jnp.concatenate([sd, fixed])[model.component]


def _maximise(
    model: Hierarchical, units: Units, old: Components, at: Approximation
) -> tuple[Components, Array]:
    """Effects and variances that suit the expectations best, and the abilities' mode.

    The unit of abilities is maximised too and folded into the items (parameter
    expansion: Liu, Rubin and Wu 1998), for speed.
    """
    found, ability, shift = at.items, at.ability_mode, at.shift
    groups, count = model.num_groups, ability.shape[0]
    blocks = at.covariance.reshape(groups, count, groups, count)
    gap = ability + shift - at.prior_mean
    # Of first order in the shift, as all that is expected here.
    scatter = gap.T @ gap - shift.T @ shift + jnp.einsum("anbn->ab", blocks)
    pull = _pull_of_priors(model, units, old)
    new, log_unit = _improve_covariance(model, old, scatter, count, pull)
    unit = jnp.exp(log_unit)
    ability = ability / unit
    slope = jnp.zeros(model.num_columns, ability.dtype).at[0].set(1.0)
    if units.is_aligned and model.has_group_effects:
        moved = new.group_effects + log_unit[:, None] * slope
        new = new._replace(group_effects=moved)
    elif model.learned[0] and _num_units(model):
        moved = log_unit[units.group[:, 0]][:, None] * slope
        found = found._replace(mean=found.mean + moved)
    if any(model.learned):
        new = _improve_items(model, units, new, found)
    if model.has_group_effects:
        new = _improve_group_effects(model, new, found)
    if model.subject_design.shape[1]:
        new = _improve_subject_effects(model, new, ability + shift / unit)
    return new, ability


def half_normal_mode(total: Array, count: Array | float, scale: float) -> Array:
    """Log sd at the mode of sd given a sum of squares of N(0, sd^2).

    Maximises -n log s - S / (2 s^2) - s^2 / (2 h^2) + log s, whose root in s^2 is
    2 S / (n - 1 + sqrt((n - 1)^2 + 4 S / h^2)).
    """
    less = count - 1
    square = 2 * total / (less + jnp.sqrt(less**2 + 4 * total / scale**2))
    return 0.5 * jnp.log(jnp.maximum(square, 1e-8))


def _improve_items(model: Hierarchical, units: Units, old: Components, found):
    """Regression of item coordinates on the design, and its variance components."""
    design, own, weight = units.design, model.hyperpriors, units.weight
    weighted = design * weight[:, None]
    omega = _inverses(_factors(model, old))
    columns, mask, rows = model.num_columns, jnp.asarray(model.learned), len(omega)
    row, square = factor_row(units.group, rows), _squares(units, rows)
    pulled = jnp.einsum("ua,uab->ub", found.mean, omega[row])
    prior = _effect_sd(model, old.log_component_sd)
    # All columns at once, column by column in the vector.
    precision = jnp.sum(jax.vmap(jnp.kron)(omega, square), axis=0)
    root = jnp.linalg.cholesky(precision + jnp.diag(prior.T.reshape(-1) ** -2.0))
    right = (weighted.T @ pulled).T.reshape(-1)
    effects = jax.scipy.linalg.cho_solve((root, True), right).reshape(columns, -1).T
    inverse = jax.scipy.linalg.cho_solve((root, True), jnp.eye(right.shape[0]))
    inverse = inverse.reshape(columns, square.shape[1], columns, -1)
    gap = found.mean - design @ effects
    scatter = _by_row(jnp.einsum("u,ua,ub->uab", weight, gap, gap), row, rows)
    plain = _by_row(found.covariance * weight[:, None, None], row, rows)
    scatter = scatter + jax.vmap(_within)(plain, found.within)
    scatter = scatter + jnp.einsum("ref,afbe->rab", square, inverse)
    tilted, scatter = _improve_tilts(model, old, scatter)
    new = _improve_residual(model, tilted, scatter)
    own_variance = jnp.einsum("aeae->ea", inverse)
    component = old.log_component_sd
    if model.num_components:
        index = jnp.where(model.component < 0, model.num_components, model.component)
        count = jnp.bincount(index, length=model.num_components + 1)[:-1, None]
        second = effects**2 + own_variance
        total = jax.ops.segment_sum(second, index, model.num_components + 1)[:-1]
        component = half_normal_mode(total, count, own.component)
    return new._replace(effects=jnp.where(mask, effects, 0), log_component_sd=component)


def _by_row(parts: Array, row: Array, rows: int) -> Array:
    """Sums of the units' parts over all of them, or over those of each group."""
    if rows == 1:
        return jnp.sum(parts, axis=0, keepdims=True)
    return jax.ops.segment_sum(parts, row, rows)


def _improve_tilts(
    model: Hierarchical, old: Components, scatter: Array
) -> tuple[Components, Array]:
    """The groups' slopes of intercepts on log discriminations, given Omega0.

    With P its inverse and S_m the groups' scatter, the expected log density is
    k b - k^2 w / 2 with b = u'P S e and w = u'P u e'S e + 1 / sd^2 in each group, e for
    the log discrimination and u for all intercepts, and the sum of k is 0.

    Returns:
        The new components, and what is left of the scatter `[columns, columns]`.
    """
    if not model.has_tilts:
        return old, scatter[0]
    columns = jnp.asarray(model.family.intercept_columns)
    factor = model.common_factor(old.log_residual_sd, old.residual_correlation)
    common = _inverses(factor[None])[0]
    onto = jnp.zeros(model.num_columns, common.dtype).at[columns].set(1.0)
    product = onto @ common @ scatter[:, :, 0].T
    weight = onto @ common @ onto * scatter[:, 0, 0] + model.hyperpriors.tilt**-2.0
    held = jnp.sum(product / weight) / jnp.sum(1 / weight)
    tilt = (product - held) / weight
    turn = jnp.eye(model.num_columns, dtype=common.dtype)
    turn = turn - tilt[:, None, None] * onto[:, None] * turn[0]
    rest = jnp.einsum("rab,rbc,rdc->ad", turn, scatter, turn)
    return old._replace(tilt=tilt), rest


def _within(plain: Array, within: Array) -> Array:
    """Sum of items' covariances over the error of the abilities, kept positive.

    The correction is of second order; where it would take nearly all away from the sum
    without it, as can be far from the mode, it is held.
    """
    root = jnp.linalg.cholesky(plain)
    half = jax.scipy.linalg.solve_triangular(root, within, lower=True)
    ratio = jax.scipy.linalg.solve_triangular(root, half.T, lower=True)
    values, vectors = jnp.linalg.eigh((ratio + ratio.T) / 2)
    whole = root @ (vectors * jnp.sqrt(jnp.maximum(values, SMALLEST_WITHIN)))
    return whole @ whole.T


def _improve_residual(model: Hierarchical, old: Components, scatter: Array):
    """Omega that suits a scatter matrix of as many items as there are."""
    count, own = float(model.num_stems), model.hyperpriors
    mask = jnp.asarray(model.learned)
    if not model.correlated:
        log_sd = half_normal_mode(jnp.diagonal(scatter), count, own.residual)
        return old._replace(
            log_residual_sd=jnp.where(mask, log_sd, old.log_residual_sd)
        )

    def loss(point):
        # Columns that are not learned keep what they have.
        log_sd, correlation = jnp.where(mask, point[0], old.log_residual_sd), point[1]
        factor = model.common_factor(log_sd, correlation)
        fit = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), scatter))
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
        prior = lkj_log_density(
            correlation, model.num_correlated, own.concentration
        ) + _log_half_normal(log_sd, own.residual, mask)
        return ((count * log_det + fit) / 2 - prior) / count

    best = _descend(loss, (old.log_residual_sd, old.residual_correlation))
    return old._replace(log_residual_sd=best[0], residual_correlation=best[1])


def _descend(loss, first, num_steps: int = 25):
    """A lower point of a loss, by some steps of L-BFGS; the first if they fail."""
    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    def body(_, carry):
        point, state = carry
        value, gradient = value_and_grad(point, state=state)
        moves, state = solver.update(
            gradient, state, point, value=value, grad=gradient, value_fn=loss
        )
        return optax.apply_updates(point, moves), state

    best, _ = lax.fori_loop(0, num_steps, body, (first, solver.init(first)))
    finite = jnp.all(jnp.isfinite(ravel_pytree(best)[0]))
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), best, first)


def _improve_group_effects(model: Hierarchical, old: Components, found) -> Components:
    """A Newton step of the groups' effects; their learned mean goes to the items."""
    prior = model.hyperpriors.group_effect**-2.0
    identity = jnp.eye(model.num_columns, dtype=found.mean.dtype)
    curvature = found.effect_curvature + prior * identity
    gradient = found.effect_gradient - prior * old.group_effects
    # Far from the mode the curvature may point down; ascent is wanted all the same.
    step, _ = positive_definite_solve(curvature, gradient)
    effects = old.group_effects + jnp.clip(step, -0.5, 0.5)
    mean = jnp.where(jnp.asarray(model.learned), jnp.mean(effects, axis=0), 0)
    return old._replace(
        group_effects=effects - mean, effects=old.effects.at[0].add(mean)
    )


def _num_units(model: Hierarchical) -> int:
    """How many units of ability items can take up: every group's, one, or none."""
    if not model.family.has_slope:
        return 0
    if model.has_group_scales:
        return model.num_groups
    return int(model.learned[0] or model.has_group_effects)


def _pull_of_priors(
    model: Hierarchical, units: Units, old: Components
) -> tuple[Array, Array]:
    """What the priors of effects take for the groups' log units, to second order.

    A unit is folded into effects of items, whose priors do not let it go for nothing:
    minus their slope `[groups]` and curvature `[groups, groups]` in the log units.
    """
    groups, own = model.num_groups, model.hyperpriors
    dtype = old.effects.dtype
    if units.is_aligned and model.has_group_effects:
        precision = own.group_effect**-2.0
        curvature = precision * jnp.eye(groups, dtype=dtype)
        return precision * old.group_effects[:, 0], curvature
    if not (model.learned[0] and _num_units(model)):
        return jnp.zeros(groups, dtype), jnp.zeros((groups, groups), dtype)
    weighted = units.design * units.weight[:, None]
    square = weighted.T @ units.design
    ridge = 1e-9 * jnp.trace(square) * jnp.eye(square.shape[0], dtype=dtype)
    # Effects that add 1 to all items of a group and to no others.
    member = jax.nn.one_hot(units.group[:, 0], groups, dtype=dtype)
    to_groups = jnp.linalg.solve(square + ridge, weighted.T @ member)
    prior = _effect_sd(model, old.log_component_sd)[:, 0] ** -2.0
    curvature = to_groups.T @ (to_groups * prior[:, None])
    return to_groups.T @ (prior * old.effects[:, 0]), curvature


def _improve_covariance(
    model: Hierarchical,
    old: Components,
    scatter: Array,
    count: int,
    pull: tuple[Array, Array],
) -> tuple[Components, Array]:
    """Scales and correlations of the groups' own abilities, and their log units.

    Some steps of L-BFGS from the old values; closed where there is one scale only.
    """
    groups, hyper = model.num_groups, model.hyperpriors
    whole = jnp.zeros(groups, scatter.dtype)
    if groups == 1 and model.has_general_scale:
        best = half_normal_mode(scatter[0], count, hyper.general)
        return old._replace(log_general_sd=best), whole

    def loss(point):
        log_scale, correlation, log_unit, log_general = point
        log_unit = log_unit + whole if _num_units(model) else whole
        unit = jnp.exp(log_unit)
        pulled = pull[0] @ log_unit + log_unit @ pull[1] @ log_unit / 2
        if groups == 1:
            return jnp.sum(count * log_unit + scatter / unit**2 / 2) + pulled
        own = own_covariance(model, log_scale, correlation)
        factor = jnp.linalg.cholesky(own + general_variance(log_general))
        inner = scatter / unit / unit[:, None]
        fit = jnp.trace(jax.scipy.linalg.cho_solve((factor, True), inner))
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)) + log_unit)
        prior = lkj_log_density(correlation, groups, hyper.concentration)
        prior = prior + _log_half_normal(log_scale, hyper.scale)
        prior = prior + _log_half_normal(log_general, hyper.general)
        return (count * log_det + fit) / 2 - prior + pulled

    first = (
        old.log_scale,
        old.correlation,
        whole[: _num_units(model)],
        old.log_general_sd,
    )
    log_scale, correlation, log_unit, log_general = _descend(loss, first)
    new = old._replace(
        log_scale=log_scale, correlation=correlation, log_general_sd=log_general
    )
    return new, log_unit + whole if _num_units(model) else whole


def _improve_subject_effects(
    model: Hierarchical, old: Components, ability: Array
) -> Components:
    """Generalised least squares of abilities on the subjects' covariates."""
    factor = covariance_factor(model, old)
    ones = jnp.ones(model.num_groups, ability.dtype)
    weights = jax.scipy.linalg.cho_solve((factor, True), ones)
    design = model.subject_design
    ridge = model.hyperpriors.subject_effect**-2.0
    identity = jnp.eye(design.shape[1], dtype=design.dtype)
    precision = design.T @ design * jnp.sum(weights) + ridge * identity
    effects = jnp.linalg.solve(precision, design.T @ (ability @ weights))
    return old._replace(subject_effects=effects)


def _precisions(model: Hierarchical, components: Components) -> Components:
    """One over the standard errors of effects and variances, of complete data."""
    subjects, stems = model.subject_design.shape[0], model.num_stems
    like = lambda part, value: jnp.broadcast_to(value, part.shape).astype(part.dtype)  # noqa: E731
    by_item = jnp.exp(-components.log_residual_sd) * stems**0.5
    levels = jnp.ones(model.num_components, int)
    if model.num_components:
        index = jnp.where(model.component < 0, model.num_components, model.component)
        levels = jnp.bincount(index, length=model.num_components + 1)[:-1]
    return Components(
        like(components.log_scale, (2.0 * subjects) ** 0.5),
        like(components.correlation, subjects**0.5),
        # As many stems as the average level has.
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
    )
