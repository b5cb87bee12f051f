"""Multilevel models in seconds: items integrated out, abilities by Laplace, rest by EM.

Given the variance components, the abilities of all subjects have a Gaussian prior and
the likelihood is the product of the items' integrals (`items`). A Newton step finds
their mode; the curvature A there is their precision (Laplace approximation). Means,
effects and covariances of items and abilities are then updated as in EM, with their
priors: empirical Bayes.

Expectations are over the error of the abilities. Their mean differs from their mode by
half of A^-1 times the gradient of -log|A| (Tierney and Kadane 1986), and expectations
of items follow (`item_posterior`). EM with modes in place of means is biased:
deviations of abilities times c with discriminations over c are as likely as before, so
the scale at the mode is too small, and with few responses it shrinks to 0. With a dozen
subjects derivatives suffice, and the fixed point is a mode of Laplace's marginal
likelihood. With many subjects, or with scores, the items' densities are averaged over
the error of the abilities, and the mean log discrimination of each scale is fixed
(`held_units`): the fixed point then maximises a variational bound with items integrated
out.

The covariance of the abilities is a dense matrix over subjects and groups, so errors of
abilities and of their differences include what subjects share. Where the regression of
intercepts on discriminations is learned, a shift of all abilities is identified by
their prior alone, and so is the shift of a group with its own regression. EM would
converge slowly along that direction: the mean of the abilities is fixed at 0
(`centred`), and its prior variance is added to what is reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from irtjax._types import KeyArray
from irtjax.estimators.driver import AbstractMethod, Progress, Run, Solution
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.laplace.components import (
    covariance_factor,
    judged,
    log_prior,
    precisions,
)
from irtjax.estimators.laplace.curvature import centred, factorise, held_units
from irtjax.estimators.laplace.estimates import laplace_estimates
from irtjax.estimators.laplace.item_posterior import has_shares
from irtjax.estimators.laplace.items import Summary, summarise
from irtjax.estimators.laplace.m_step import maximise
from irtjax.estimators.laplace.outer import blocks_of, outer_of, without_end
from irtjax.estimators.laplace.problem import (
    Approximation,
    Components,
    LaplaceState,
    MultilevelProblem,
    start_components,
    start_multilevel,
)
from irtjax.models.family import AbstractResponseFamily
from irtjax.numerics.acceleration import accelerate, empty_memory, forget

#: The covariance of abilities is dense; beyond this many the memory is not there.
LARGEST = 6000
#: Steps in which neither is taken for running away.
EARLY_STEPS = 15
#: Steps before the acceleration: far from the end it leaps, rounding decides where to,
#: and a likelihood with several tops has one below another within its reach.
PLAIN_STEPS = 10
#: Responses up to which both passes of a step with one group are one program,
#: corrections included: compiling takes seconds, and a pass milliseconds. With several
#: groups the acceleration amplifies the difference in rounding.
FEW_CELLS = 2**14
#: Fall of the log marginal likelihood that a proposal of the acceleration may bring.
LARGEST_FALL = 0.5
#: The log marginal likelihood has converged when it changes in `WINDOW` steps by fewer
#: nats than `CHANGE` times the tolerance, or by no more than so many roundings of it.
CHANGE, WINDOW, ROUNDINGS = 10.0, 5, 4


class Laplace(AbstractMethod):
    """Empirical Bayes for multilevel models with few subjects and many items.

    Attributes:
        order: Quadrature nodes per coordinate of an item, 2 or more. With a dozen
            subjects an item's posterior is far from normal: use 5 or more.
        tolerance: Converged when nothing moves by more than this many standard errors
            and the log marginal likelihood changes in five steps by fewer nats than ten
            times that.
        num_newton: Newton steps to the mode of each item in a step.
        depth: Depth of the acceleration; 0 turns it off.
    """

    marginal: ClassVar[bool] = True
    multilevel: ClassVar[bool] = True
    max_steps: ClassVar[int] = 300
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    order: int = eqx.field(static=True, default=5)
    tolerance: float | Array = 1e-2
    num_newton: int = eqx.field(static=True, default=3)
    depth: int = eqx.field(static=True, default=10)

    def init(
        self, problem: MultilevelProblem, start: Components | None, key: KeyArray | None
    ) -> LaplaceState:
        """State at start values from sums of statistics."""
        model, units = problem.model, problem.units
        subjects, groups = model.subject_design.shape[0], model.num_groups
        if self.order < 2:
            raise ValueError(f"order {self.order} has too few nodes: give 2 to 9")
        if subjects * groups > LARGEST:
            raise ValueError(
                f"{subjects:,} subjects times {groups} groups are more than the"
                f" {LARGEST:,} abilities that multilevel fits hold a covariance of;"
                f" calibrate on {LARGEST // groups:,} subjects and score the others by"
                " irtjax.score, or fit a plain model by method='em', such as '2pl'"
            )
        ability, mode = start_multilevel(model, problem.data)
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
            outer_of(model, ability, components),
            mode,
            blocks_of(covariance, groups, units.is_aligned),
            jnp.zeros_like(ability),
            order=2,
            num_newton=25,
            corrected=False,  # Abilities have no error yet, so nothing to correct.
        )
        dtype = ability.dtype
        size = ravel_pytree((components, ability))[0].size
        return LaplaceState(
            components=components,
            ability_mode=ability,
            ability=ability,
            ability_covariance=covariance,
            mode=found.mode,
            mean=found.mean,
            covariance=found.covariance,
            log_marginal=found.log_marginal,
            objective=jnp.zeros((), dtype),
            residual=jnp.full((), jnp.inf, dtype),
            image=(components, ability),
            reached=jnp.full((), -jnp.inf, dtype),
            recent=jnp.full(WINDOW, -jnp.inf, dtype),
            is_plain=jnp.ones((), bool),
            memory=empty_memory(size, max(self.depth, 1), dtype),
            num_seen=jnp.zeros((), jnp.int32),
        )

    def step(
        self, problem: MultilevelProblem, state: LaplaceState, key: KeyArray | None
    ) -> LaplaceState:
        """One pass over the items, one Newton step, one maximisation."""
        model, components = problem.model, state.components
        found = self.approximate(problem, state)
        moved = maximise(model, problem.units, components, found)
        precision = precisions(model, moved[0])
        scale = (precision, 1 / found.error)
        point, _ = ravel_pytree((components, state.ability_mode))
        image, unravel = ravel_pytree(moved)
        weight, _ = ravel_pytree(scale)
        judge, _ = ravel_pytree(judged(model, *moved, found.error))
        residual = jnp.max(jnp.abs((image - point) * judge))
        # The map climbs but need not end at the very top of the approximation, so a
        # plain step is always kept, and a proposal if it falls by next to nothing.
        kept = state.is_plain | (found.objective >= state.reached - LARGEST_FALL)
        choose = lambda a, b: jax.tree.map(  # noqa: E731
            lambda x, y: jnp.where(kept, x, y), a, b
        )
        moved = choose(moved, state.image)
        (components, mode), memory, is_plain = moved, state.memory, jnp.array(True)
        if self.depth:
            proposal, memory = accelerate(memory, point, image, weight)
            first = state.num_seen < PLAIN_STEPS
            components, mode = jax.tree.map(
                lambda x, y: jnp.where(kept & ~first, x, y), unravel(proposal), moved
            )
            is_plain = first | ~kept | (memory.num_seen == 1)
            memory = forget(memory, first | ~kept)
        reached = jnp.where(kept, found.objective, state.reached)
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
            residual=residual,
            image=moved,
            reached=reached,
            recent=state.recent.at[state.num_seen % WINDOW].set(reached),
            is_plain=is_plain,
            memory=memory,
            num_seen=state.num_seen + 1,
        )

    def approximate(
        self, problem: MultilevelProblem, state: LaplaceState
    ) -> Approximation:
        """A Newton step of the abilities, and one pass over the items at the new point.

        Args:
            problem: The model and its data.
            state: The state; its covariance and means of abilities are those of the
                step before.
        """
        model, units, groups = problem.model, problem.units, problem.model.num_groups
        components, shift = state.components, state.ability - state.ability_mode
        factor = covariance_factor(model, components)
        mean = (model.subject_design @ components.subject_effects)[:, None]
        identity = jnp.eye(groups, dtype=shift.dtype)
        precision = jax.scipy.linalg.cho_solve((factor, True), identity)
        flatten, fold = lambda x: x.T.reshape(-1), lambda x: x.reshape(groups, -1).T
        shifts = model.num_shifts

        def newton(state, corrected: bool):
            found = self.summarise(problem, state, corrected)
            held = held_units(problem, components, found)
            gap = state.ability_mode - mean
            gradient = flatten(found.gradient - gap @ precision) + held.gradient
            gradient = centred(gradient, shifts)
            root, data, log_det = factorise(
                found, precision, groups, held.slope, shifts
            )
            flat = jax.scipy.linalg.cho_solve((root, True), gradient)
            # What the mode would add to the point given, to second order.
            rise = 0.5 * flat @ gradient + held.value
            inner = rise - 0.5 * jnp.sum((gap @ precision) * gap) - 0.5 * log_det
            step = fold(flat)
            step = step / jnp.maximum(1.0, jnp.max(jnp.abs(step)))
            found = found._replace(mean=held.mean)
            return found, state.ability_mode + step, root, data, held, inner

        # What is expected of items is that at the abilities to be, not those that were:
        # from the same point both overshoot, and some fits then go to and fro for ever.
        moved = lambda mode: state._replace(ability_mode=mode, ability=mode + shift)  # noqa: E731
        if groups == 1 and units.values.size <= FEW_CELLS:

            def again(mode, _):
                found, mode, *rest = newton(moved(mode), corrected=True)
                return mode, (found, *rest)

            ability, passes = lax.scan(again, state.ability_mode, length=2)
            found, root, data, held, inner = jax.tree.map(lambda x: x[-1], passes)
        else:
            _, ability, *_ = newton(state, corrected=False)
            found, ability, root, data, held, inner = newton(moved(ability), True)
        solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)  # noqa: E731
        covariance = solve(jnp.eye(root.shape[0], dtype=root.dtype))
        covariance = centred(covariance, shifts)
        # Half-way, like the shift below: items follow abilities and these follow items,
        # which with free units of many groups goes to and fro.
        covariance = (covariance + state.ability_covariance) / 2
        error = fold(jnp.sqrt(jnp.diagonal(covariance)))
        # The derivative of -log|A| / 2: that of h has the part of the old shift in it,
        # except for the fixed means, which h does not contain.
        old = flatten(shift)
        of_items = data @ old - held.slope @ (held.slope.T @ old)
        bend = centred(flatten(found.bend) + of_items, shifts)
        new = jnp.clip(fold(solve(bend)), -error, error)
        shift = (shift + new) / 2
        objective = (
            units.weight @ found.log_marginal
            + inner
            - (ability.shape[0] - shifts / groups) * jnp.sum(jnp.log(jnp.diag(factor)))
            + log_prior(model, components)
        )
        if problem.expected:
            # Items' densities are lower by what they lose over the abilities' error.
            variance = fold(jnp.diagonal(state.ability_covariance))
            objective = objective + 0.5 * jnp.sum(found.safe * variance)
        return Approximation(found, ability, shift, covariance, error, mean, objective)

    def summarise(
        self, problem: MultilevelProblem, state: LaplaceState, corrected: bool = True
    ) -> Summary:
        """A pass over the items; see `units.summarise`."""
        model, units = problem.model, problem.units
        return summarise(
            model,
            units,
            outer_of(model, state.ability_mode, state.components),
            state.mode,
            blocks_of(state.ability_covariance, model.num_groups, units.is_aligned),
            state.ability - state.ability_mode,
            order=self.order,
            num_newton=self.num_newton,
            corrected=corrected,
            expected=problem.expected,
        )

    def progress(self, problem: MultilevelProblem, state: LaplaceState) -> Progress:
        """Objective of the last point; converged by the last move and the objective.

        Where items have little information, short steps of their variances can continue
        for long: the log marginal likelihood must have converged too.

        Stalled where the group-specific abilities have shrunk to 0, or the variance of
        items' logarithms has no bound: with few responses the approximation can lead
        there whatever the data.
        """
        tolerance = jnp.asarray(self.tolerance, state.residual.dtype)
        # By the last kept point: a proposal can leap there and will be taken back.
        gone, wide = without_end(problem.model, state.image[0])
        gone = (jnp.any(gone) | jnp.any(wide)) & (state.num_seen >= EARLY_STEPS)
        rounding = ROUNDINGS * jnp.finfo(state.objective.dtype).eps
        small = jnp.maximum(CHANGE * tolerance, rounding * jnp.abs(state.objective))
        rests = jnp.max(state.recent) - jnp.min(state.recent) <= small
        return Progress(
            state.objective,
            state.residual,
            (state.residual <= tolerance) & rests & ~gone,
            gone,
        )

    def result(
        self, problem: MultilevelProblem, state: LaplaceState
    ) -> tuple[LaplaceState, Array]:
        """The state, and the log-likelihood of each item's responses."""
        return state, state.log_marginal[problem.units.unit]

    def solve(self, problem: MultilevelProblem, start: Any, run: Run) -> Solution:
        """Drives the method on units; log-likelihoods are of the stems."""
        solution = super().solve(problem.by_unit(), start, run)
        each = np.asarray(solution.fit.state.log_marginal)
        each = jnp.array(each[np.asarray(problem.units.unit)])
        fit = dataclasses.replace(
            solution.fit,
            log_lik=jnp.sum(each),
            subject_log_lik=each,
            model=problem.model,
        )
        return solution._replace(fit=fit)

    def suited(self, model: Any, num_subjects: int) -> Laplace:
        """With the nodes that integrate items of the model's family well enough."""
        return Laplace(suitable_order(model.family, num_subjects))

    def check(self, problem: MultilevelProblem) -> None:
        """Solves every `MultilevelProblem`; models with lengths do not become one."""

    def estimates(
        self, problem: MultilevelProblem, solution: Solution, run: Run
    ) -> Estimates:
        """Errors of abilities and items, averaged over draws of their covariance."""
        with run.clock.phase("tables"):
            return laplace_estimates(problem, solution, level=run.level)


def suitable_order(family: AbstractResponseFamily, subjects: int) -> int:
    """Nodes per coordinate that integrate items well enough.

    The fewer subjects respond to an item, the less normal its posterior. With
    asymptotes it is not normal with many either: variances estimated with 6 nodes from
    12 subjects and 550 items had a log-likelihood 17 nats below those with 8 (checked
    with 16 and more).

    >>> from irtjax.models.families.logistic import Binary
    >>> suitable_order(Binary(), 12), suitable_order(Binary(asymptotes=2), 12)
    (5, 8)
    """
    if has_shares(family):
        return 8 if subjects < 40 else 5
    return 5 if subjects < 40 else 3 if subjects < 200 else 2
