"""Multilevel models in seconds: items integrated out, abilities by Laplace, rest by EM.

Given the variance components, the abilities of all subjects have a Gaussian prior and
the likelihood is the product of the items' integrals (`items`). A Newton step finds
their mode; the curvature A there is their precision (Laplace approximation). Means,
effects and covariances of items and abilities are then updated as in EM, with their
priors: empirical Bayes.

Expectations are over the error of the abilities. Their mean differs from their mode by
half of A^-1 times the gradient of -log|A| (Tierney and Kadane 1986), and expectations
of items follow (`item_posterior`). With modes in place of means the scale of ability is
too small, and with few responses it shrinks to 0. With a dozen subjects derivatives
suffice, and the fixed point is a mode of Laplace's marginal likelihood. With many
subjects, or with scores, the items' densities are averaged over the error of the
abilities, and the mean log discrimination of each scale is fixed (`fix_scales`): the
fixed point then maximises a variational bound with items integrated out.

Where the regression of intercepts on discriminations is estimated, only the prior
identifies a shift of all abilities, or of a group with its own regression, and EM would
converge slowly along it: the mean of the abilities is fixed at 0 (`centred`), and its
prior variance is added to what is reported.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.acceptance import check_integrable
from irtjax.estimators.ascent import AbstractAscent, AscentState, Image
from irtjax.estimators.driver import Progress, Run, RunSettings, Solution, tree_where
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.laplace.components import (
    inverse_of,
    items_given,
    judged,
    log_prior,
    precisions,
    without_end,
)
from irtjax.estimators.laplace.curvature import centred, factorise, fix_scales
from irtjax.estimators.laplace.direction import (
    MOST_REFITS,
    directions_of,
    has_directions,
    in_directions,
)
from irtjax.estimators.laplace.estimates import laplace_estimates
from irtjax.estimators.laplace.item_posterior import has_shares
from irtjax.estimators.laplace.items import Summary, summarise
from irtjax.estimators.laplace.m_step import maximise
from irtjax.estimators.laplace.problem import (
    AbilityPoint,
    Approximation,
    Components,
    LaplaceCarry,
    LaplaceState,
    MultilevelProblem,
    start_components,
    start_multilevel,
    with_subjects,
)
from irtjax.likelihood.problem import Parameters, Problem
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.model import Population

#: Most abilities, whose covariance is a dense matrix.
LARGEST = 6000
#: Steps before a variance component can count as diverged.
EARLY_STEPS = 15
#: Steps before the acceleration, whose long first steps depend on rounding and can end
#: at a lower mode of the likelihood.
PLAIN_STEPS = 10
#: Responses up to which both passes of a step with one group are one program,
#: corrections included: compiling takes seconds, and a pass milliseconds. Not with
#: several groups, where the acceleration amplifies the difference in rounding.
FEW_CELLS = 2**14
#: Fall of the log marginal likelihood that a proposal of the acceleration may bring.
LARGEST_FALL = 0.5
#: The log marginal likelihood has converged when it changes in `WINDOW` steps by fewer
#: nats than `CHANGE` times the tolerance, or by no more than so many roundings of it.
CHANGE, WINDOW, ROUNDINGS = 10.0, 5, 4


class Laplace(AbstractAscent):
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
    runs: ClassVar[RunSettings] = RunSettings(max_steps=300)
    num_plain: ClassVar[int] = PLAIN_STEPS
    # Errors of abilities and modes of items approach their fixed point by half steps,
    # whatever the point: those of a refused one are nearer than older ones.
    carries_refused: ClassVar[bool] = True

    order: int = eqx.field(static=True, default=5)
    tolerance: float | Array = 1e-2
    num_newton: int = eqx.field(static=True, default=3)
    depth: int = eqx.field(static=True, default=10)

    def prepared(self, problem: MultilevelProblem | Problem) -> MultilevelProblem:
        """The problem with its items integrated out."""
        if not isinstance(problem, Problem):
            return problem
        model, free = problem.model, problem.free
        every = model.several or model.family.free_columns(problem.data.num_items)
        concrete = not isinstance(free, Tracer) and not model.several
        if problem.anchored or (concrete and not np.array_equal(free, every)):
            raise ValueError(
                "method 'laplace' integrates all items out and fixes none: use EM()"
            )
        return MultilevelProblem.create(model, problem.data)

    def check(self, problem: MultilevelProblem | Problem) -> None:
        """Refuses models whose items cannot be integrated out."""
        check_integrable(self, problem)

    def weight_of(self, problem: MultilevelProblem) -> Array | None:
        """The weight of each stem: the log-likelihood has a term for each."""
        return problem.model.weight

    def init(
        self, problem: MultilevelProblem, start: Any, key: KeyArray | None
    ) -> LaplaceState:
        """State at given `Components`, else at start values from sums of statistics."""
        model, distinct = problem.model, problem.distinct
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
        is_position = isinstance(start, Components)
        components = start if is_position else start_components(model, mode)
        dtype = ability.dtype
        empty = jnp.zeros((distinct.weight.shape[0], mode.shape[1]), mode.dtype)
        mode = empty.at[distinct.of_stem].set(mode)
        size = ability.size
        carry = LaplaceCarry(
            jnp.zeros_like(ability),
            jnp.zeros((size, size), dtype),
            mode,
            mean=mode,  # This and the next one are replaced below.
            covariance=mode,
            recent=jnp.full(WINDOW - 1, -jnp.inf, dtype),
        )
        point = AbilityPoint(components, ability)
        state = LaplaceState(
            *self.first_state(point, len(distinct.weight), carry=carry)
        )
        # Abilities have no error yet, so nothing to correct.
        options = {"order": 2, "num_newton": 25, "corrected": False}
        first = summarise(*items_given(problem, state), carry.shift, **options)
        return state._replace(carry=carry._replace(**_of_items(first)))

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.depth

    def term_weight(self, problem: MultilevelProblem) -> Array:
        """The weight of each distinct item."""
        return problem.distinct.weight

    def accepts(self, state: AscentState, gain: Scalar, terms: Array) -> Array:
        """Whether a point is kept: an image always, as it may lower the objective.

        A proposal unless the objective falls by more than `LARGEST_FALL`.
        """
        return state.is_plain | (gain >= -LARGEST_FALL)

    def image(self, problem: MultilevelProblem, state: Any) -> Image:
        """One pass over the items, one Newton step, one maximisation."""
        model = problem.model
        approximation = self.approximate(problem, state)
        image = AbilityPoint(
            *maximise(model, problem.distinct, state.components, approximation)
        )
        move, _ = ravel_pytree(jax.tree.map(jnp.subtract, image, state.point))
        judge, _ = ravel_pytree(judged(model, *image, approximation.error))
        last = jnp.where(state.num_seen == 0, -jnp.inf, state.objective)
        recent = state.carry.recent.at[state.num_seen % (WINDOW - 1)].set(last)
        carry = state.carry._replace(
            shift=approximation.shift,
            ability_covariance=approximation.covariance,
            **_of_items(approximation.items),
        )
        # A proposal without a likelihood leaves nothing to start from.
        sound = state.is_plain | jnp.isfinite(approximation.objective)
        carry = tree_where(sound, carry, state.carry)._replace(recent=recent)
        likelihood = problem.distinct.weight @ approximation.items.log_marginal
        return Image(
            image,
            approximation.items.log_marginal,
            approximation.objective - likelihood,
            jnp.max(jnp.abs(move * judge)),
            AbilityPoint(precisions(model, image.components), 1 / approximation.error),
            carry,
        )

    def approximate(
        self, problem: MultilevelProblem, state: LaplaceState
    ) -> Approximation:
        """A Newton step of the abilities, and a pass over the items after it."""
        model, distinct = problem.model, problem.distinct
        groups = model.num_groups
        components, shift = state.components, state.carry.shift
        factor = model.covariance_factor(components)
        precision = inverse_of(factor)
        mean = (model.subject_design @ components.subject_effects)[:, None]
        flatten, fold = lambda x: x.T.reshape(-1), lambda x: x.reshape(groups, -1).T
        shifts, weight = model.num_shifts, model.subject_weight

        def newton(state, corrected: bool):
            summary = self.summarise(problem, state, corrected)
            fixed = fix_scales(problem, components, summary)
            gap = state.ability_mode - mean
            gradient = flatten(summary.gradient - gap @ precision) + fixed.gradient
            gradient = centred(gradient, shifts, weight)
            root, data, log_det = factorise(
                summary, precision, groups, fixed.slope, shifts, weight
            )
            flat = jax.scipy.linalg.cho_solve((root, True), gradient)
            # The rise from the given point to the mode, to second order.
            rise = 0.5 * flat @ gradient + fixed.value
            inner = rise - 0.5 * jnp.sum((gap @ precision) * gap) - 0.5 * log_det
            step = fold(flat)
            step = step / jnp.maximum(1.0, jnp.max(jnp.abs(step)))
            summary = summary._replace(mean=fixed.mean)
            return summary, state.ability_mode + step, root, data, fixed, inner

        # Items are expected at the new abilities: from the same point both overshoot,
        # and some fits then alternate between two points.
        moved = lambda mode: state._replace(
            point=state.point._replace(ability_mode=mode)
        )
        if groups == 1 and distinct.values.size <= FEW_CELLS:

            def again(mode, _):
                summary, mode, *rest = newton(moved(mode), corrected=True)
                return mode, (summary, *rest)

            ability, passes = lax.scan(again, state.ability_mode, length=2)
            summary, root, data, fixed, inner = jax.tree.map(lambda x: x[-1], passes)
        else:
            _, ability, *_ = newton(state, corrected=False)
            summary, ability, root, data, fixed, inner = newton(moved(ability), True)
        solve = lambda x: jax.scipy.linalg.cho_solve((root, True), x)
        # Half a step, as for the shift: items depend on abilities and these on items,
        # which alternates where many groups have free scales.
        covariance = centred(inverse_of(root), shifts, weight)
        covariance = (covariance + state.ability_covariance) / 2
        error = fold(jnp.sqrt(jnp.diagonal(covariance)))
        if weight is not None:
            # Abilities that are fixed do not move; no division by 0.
            error = error + 1 - weight[:, None]
        # The derivative of -log|A| / 2: that of h includes the old shift, except for
        # the fixed means, which h does not contain.
        old = flatten(shift)
        of_items = data @ old - fixed.slope @ (fixed.slope.T @ old)
        bend = centred(flatten(summary.bend) + of_items, shifts, weight)
        new = jnp.clip(fold(solve(bend)), -error, error)
        shift = (shift + new) / 2
        objective = (
            distinct.weight @ summary.log_marginal
            + inner
            - (model.total_subjects - shifts / groups)
            * jnp.sum(jnp.log(jnp.diag(factor)))
            + log_prior(model, components)
        )
        if problem.expected:
            # The items' densities were averaged over the error of the abilities.
            variance = fold(jnp.diagonal(state.ability_covariance))
            objective = objective + 0.5 * jnp.sum(summary.safe * variance)
        return Approximation(
            summary, ability, shift, covariance, error, mean, objective
        )

    def summarise(
        self, problem: MultilevelProblem, state: LaplaceState, corrected: bool = True
    ) -> Summary:
        """A pass over the items; see `items.summarise`."""
        return summarise(
            *items_given(problem, state),
            state.carry.shift,
            order=self.order,
            num_newton=self.num_newton,
            corrected=corrected,
            expected=problem.expected,
        )

    def progress(self, problem: MultilevelProblem, state: AscentState) -> Progress:
        """Converged by the last move and the objective of the last steps.

        Where items have little information, short steps of their variances can continue
        for long. Stalled where group-specific abilities have shrunk to 0, or the
        variance of items' logarithms diverges: with few responses the approximation can
        lead there.
        """
        tolerance = jnp.asarray(self.tolerance, state.residual.dtype)
        # By the last kept point: a proposal can be refused.
        gone, wide = without_end(problem.model, state.image.components)
        gone = (jnp.any(gone) | jnp.any(wide)) & (state.num_seen >= EARLY_STEPS)
        rounding = ROUNDINGS * jnp.finfo(state.objective.dtype).eps
        small = jnp.maximum(CHANGE * tolerance, rounding * jnp.abs(state.objective))
        recent = jnp.append(state.carry.recent, state.objective)
        converged = jnp.max(recent) - jnp.min(recent) <= small
        converged = converged & (state.residual <= tolerance) & ~gone
        converged = converged & (state.refused == 0)
        return Progress(state.objective, state.residual, converged, gone)

    def result(
        self, problem: MultilevelProblem, state: LaplaceState
    ) -> tuple[Parameters, Array]:
        """Means of items and abilities, and the log-likelihood of each stem.

        Abilities are `[subjects]` or `[subjects, groups]`, NaN where a weight is 0.
        """
        model, parts, distinct = problem.model, state.components, problem.distinct
        rows = state.mean[distinct.of_stem][model.stem]
        if model.has_group_effects:
            rows = rows + parts.group_effects[model.group]
        items = model.family.constrain
        items = jax.vmap(items)(model.family.with_offsets(rows))
        sign = distinct.sign[distinct.of_stem][model.stem]
        items = items._replace(discrimination=items.discrimination * sign)
        root = model.covariance_factor(parts)
        covariance = root @ root.T
        sd = jnp.sqrt(jnp.diagonal(covariance))
        theta = problem.of_subjects(state.ability)
        population = Population(
            jnp.zeros_like(sd), sd, None, covariance / sd / sd[:, None]
        )
        if model.num_groups == 1:
            theta, population = theta[:, 0], Population(jnp.zeros_like(sd[0]), sd[0])
        each = state.log_lik[distinct.of_stem]
        return Parameters(items, population, theta), each

    def solve(self, problem: MultilevelProblem, start: Any, run: Run) -> Solution:
        """Drives the method on padded data; results are those of the data.

        Again with other signs of slopes where these are likelier (`direction`).
        """
        # No step is random: with and without a key it is one compiled program.
        run, directions = run._replace(key=None), None
        solution = super().solve(problem.by_distinct(), start, run)
        if has_directions(problem):
            directions = directions_of(problem, solution.fit.state, self.order)
            for _ in range(MOST_REFITS):
                if np.array_equal(directions.likelier, directions.sign):
                    break
                problem = in_directions(problem, directions.likelier)
                start = solution.fit.state.components
                solution = super().solve(problem.by_distinct(), start, run)
                directions = directions_of(problem, solution.fit.state, self.order)
        each = np.asarray(solution.fit.state.log_lik)
        each = each[np.asarray(problem.distinct.of_stem)]
        # The parameters are those of distinct items: estimates are from the state.
        weight = self.weight_of(problem)
        total = np.sum(each if weight is None else each * np.asarray(weight))
        each, total = jax.device_put((each, total))
        fit = dataclasses.replace(
            solution.fit,
            log_lik=total,
            subject_log_lik=each,
            model=problem.model,
            state=with_subjects(solution.fit.state, problem.data.num_subjects),
        )
        return solution._replace(fit=fit, directions=directions)

    def suited(self, model: Any, num_subjects: int) -> Laplace:
        """With the nodes that integrate items of the model's family well enough."""
        return Laplace(suitable_order(model.family, num_subjects))

    def estimates(
        self, problem: MultilevelProblem, solution: Solution, run: Run
    ) -> Estimates:
        """Errors of abilities and items, averaged over draws of their covariance."""
        run.clock.report("standard errors", 0, math.nan, math.nan)
        with run.clock.phase("tables"):
            return laplace_estimates(problem, solution, level=run.level)


def _of_items(summary: Summary) -> dict[str, Array]:
    """The parts of a pass over the items that the next one starts from."""
    return {
        "mode": summary.mode,
        "mean": summary.mean,
        "covariance": summary.covariance,
    }


def suitable_order(family: AbstractResponseFamily, subjects: int) -> int:
    """Nodes per coordinate that integrate items well enough.

    The fewer subjects respond to an item, the less normal its posterior; with
    asymptotes it is never normal: variances estimated with 6 nodes from 12 subjects and
    550 items had a log-likelihood 17 nats below those with 8 (checked with 16 and
    more).
    """
    if has_shares(family):
        return 8 if subjects < 40 else 5
    return 5 if subjects < 40 else 3 if subjects < 200 else 2
