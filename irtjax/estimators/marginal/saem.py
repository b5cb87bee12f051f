"""Stochastic-approximation EM: draws in place of expectations, averaged as it goes.

The algorithm of Delyon, Lavielle and Moulines (1999) as the LaRT paper uses it (its
Algorithm 1), for every item model with one ability, with or without response lengths.
What is averaged are the sufficient statistics: counts of draws at the quadrature nodes,
as large as EM's expected counts, and five moments of each subject's draws where there
are lengths. So cost and memory of a step are the same however many went before.

The scale of ability is maximised and folded into the items in every step, as in EM
(parameter expansion), and the averaged counts are moved along with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Progress, Run, Solution
from irtjax.estimators.estimates import Nodes
from irtjax.estimators.marginal.draws import draw_augmented, draw_on_nodes, node_weights
from irtjax.estimators.marginal.em import (
    EM,
    Point,
    residual_of,
    start_lengths,
    update_population,
)
from irtjax.estimators.marginal.refinement import solve_on_nodes
from irtjax.likelihood.counts import (
    Counts,
    block_log_likelihood,
    improve_items,
)
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    orient,
    report_scale,
)
from irtjax.models.families.logistic import Binary
from irtjax.models.lengths import SpeedMoments
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    block_size_for,
    normal_log_weights,
    put_block,
    scan_subject_blocks,
    take_block,
)

SAMPLERS = ("grid", "augmented")


def reciprocal(step: Array) -> Array:
    """Gains 1, 1/2, 1/3, ...: every draw weighs the same. For a good start."""
    return 1 / step


def burn_in(num_steps: int, power: float = 1.0) -> Callable[[Array], Array]:
    """Gains of 1 for `num_steps` steps, then 1, 2^-power, 3^-power, ...

    The traditional sequence, for a start that may be far off (LaRT, Appendix D: 20).

    >>> [round(float(burn_in(2)(jnp.array(t))), 2) for t in range(1, 6)]
    [1.0, 1.0, 1.0, 0.5, 0.33]
    """

    def gain(step: Array) -> Array:
        return 1 / jnp.maximum(step - num_steps, 1.0) ** power

    return gain


class Latent(NamedTuple):
    """Averaged moments of the draws of each subject, each `[subjects]`."""

    ability: Array
    ability_square: Array
    speed: Array
    speed_square: Array
    product: Array

    def moved(self, mean, sd, centre, scale) -> Latent:
        """Moments of (ability - mean) / sd and (speed - centre) / scale."""
        ability, speed = self.ability - mean, self.speed - centre
        square = self.ability_square - 2 * mean * self.ability + mean**2
        product = self.product - mean * self.speed - centre * self.ability
        speed_square = self.speed_square - 2 * centre * self.speed + centre**2
        return Latent(
            ability / sd,
            square / sd**2,
            speed / scale,
            speed_square / scale**2,
            (product + mean * centre) / (sd * scale),
        )


class Statistics(NamedTuple):
    """Statistics that are averaged over steps.

    Attributes:
        base: Exposure at the nodes, `[nodes, items]`; `[nodes, 1]` when complete.
        statistics: R_k for k >= 1, each `[nodes, items]`.
        nodes: `[nodes]` subjects.
        latent: Moments of each subject, for models with lengths.
    """

    base: Array
    statistics: tuple[Array, ...]
    nodes: Array
    latent: Latent | None


class SAEMState(NamedTuple):
    """State of SAEM.

    Attributes:
        point: The last iterate.
        average: Mean of the iterates after the first half of the steps; before, the
            last one.
        averaged: Statistics.
        draws: `[subjects, draws]` last draws of standardised ability.
        objective: Marginal log-likelihood, with priors, of the point of the last step;
            of the average once finished.
        residual: Distance of the last iterate from the average, in standard errors;
            EM's residual at the average once finished.
        log_marginal: `[subjects]` at the average, once finished.
        finished: Whether the average has been judged since the last step.
        frame: Frame of the priors.
        centre: `[subjects]` node nearest the last posterior mean.
        nodes: Standardised nodes, equally spaced.
        log_weights: Their normalised log weights.
        num_seen: Steps taken.
    """

    point: Point
    average: Point
    averaged: Statistics
    draws: Float[Array, "subjects draws"]
    objective: Scalar
    residual: Scalar
    log_marginal: Float[Array, " subjects"]
    finished: Array
    frame: Float[Array, "2"]
    centre: Int[Array, " subjects"]
    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"]
    num_seen: Array


class SAEM(AbstractMethod):
    """Marginal maximum likelihood (or MAP) by stochastic-approximation EM.

    A scan of `num_steps` steps; chains by `vmap` over keys. The estimate is the mean of
    the iterates of the second half (Polyak and Juditsky 1992), and the log-likelihood
    that is reported is the exact one there, on the same nodes as EM's.

    Attributes:
        nodes: Standardised, equally spaced quadrature nodes; see `EM`.
        num_steps: Number of steps.
        num_draws: Draws of each subject in each step; four cost hardly more than one.
        gain: Gain of step 1, 2, ...: `reciprocal`, `burn_in(20)`, or any function.
            None: 1 for a quarter of the steps, then 1, 2^-0.7, 3^-0.7, ..., slow enough
            for any start, with the averaging of iterates to take the noise out.
        sampler: "grid" draws nodes from the posterior (exact, any model); "augmented"
            draws abilities by the unified skew-normal representation, one chain per
            draw going on from step to step (probit models).
        num_newton: Newton steps per maximisation.
        tolerance: Converged when at the estimate, by one exact pass, no parameter's
            gradient or EM move exceeds this many standard errors. An error of a third
            of one, independent of the data's, adds 5 % to the root mean square error.
    """

    marginal: ClassVar[bool] = True
    fixed_length: ClassVar[bool] = True
    limit: ClassVar[str] = "num_steps of SAEM"

    nodes: Float[Array, " nodes"] | None = None
    num_steps: int = eqx.field(static=True, default=200)
    num_draws: int = eqx.field(static=True, default=4)
    gain: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    sampler: str = eqx.field(static=True, default="grid")
    num_newton: int = eqx.field(static=True, default=1)
    tolerance: float | Array = 1 / 3

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> SAEMState:
        """State at the start values."""
        self._check(problem, key)
        start = orient(problem, start)
        coordinates = problem.model.unconstrain(start.items)
        dtype = coordinates.dtype
        population = estimation_scale(problem, start)
        nodes = jnp.asarray(self.nodes, dtype)
        lengths = None
        if problem.model.lengths is not None:
            lengths = start_lengths(problem, start, "normal")
        point = Point(
            coordinates,
            jnp.asarray(population.mean, dtype),
            jnp.log(jnp.asarray(population.sd, dtype)),
            lengths,
        )
        data, num_nodes = problem.data, nodes.shape[0]
        empty = jnp.zeros((num_nodes, data.num_items), dtype)
        zeros = jnp.zeros(data.num_subjects, dtype)
        num_statistics = len(problem.model.family.statistics(data.values[:1, :1]))
        averaged = Statistics(
            jnp.zeros((num_nodes, 1), dtype) if data.exposure is None else empty,
            (empty,) * num_statistics,
            jnp.zeros(num_nodes, dtype),
            None if lengths is None else Latent(*(zeros,) * 5),
        )
        theta = zeros if start.theta is None else start.theta.astype(dtype)
        standard = (theta - population.mean) / population.sd
        return SAEMState(
            point,
            point,
            averaged,
            jnp.broadcast_to(standard[:, None], (data.num_subjects, self.num_draws)),
            jnp.zeros((), dtype),
            jnp.full((), jnp.inf, dtype),
            zeros,
            jnp.zeros((), bool),
            jnp.zeros(2, dtype),
            jnp.zeros(data.num_subjects, jnp.int32),
            nodes,
            normal_log_weights(nodes),
            jnp.zeros((), jnp.int32),
        )

    def _check(self, problem: Problem, key: KeyArray | None) -> None:
        if self.nodes is None:
            raise ValueError(
                "SAEM has no quadrature nodes: pass SAEM(nodes=...) or use irtjax.fit,"
                " which chooses them"
            )
        if key is None:
            raise ValueError("SAEM draws at random: pass key=jax.random.key(0)")
        if self.sampler not in SAMPLERS:
            raise ValueError(
                f"sampler {self.sampler!r} is none of {', '.join(SAMPLERS)}"
            )
        family = problem.model.family
        plain = problem.data.trials is None and problem.data.item_weight is None
        suits = (
            isinstance(family, Binary)
            and family.link == "probit"
            and family.asymptotes == 0
            and plain
        )
        if self.sampler == "augmented" and not suits:
            raise ValueError(
                "the augmented sampler needs a probit model without asymptotes, and"
                " single, unweighted responses; use sampler='grid'"
            )
        if not isinstance(self.nodes, Tracer):
            gaps = np.diff(np.asarray(self.nodes, float))
            if len(gaps) < 2 or gaps.min() <= 0 or np.ptp(gaps) > 1e-4 * gaps.max():
                raise ValueError(
                    "SAEM needs three or more increasing, equally spaced nodes"
                )

    def step(self, problem: Problem, state: SAEMState, key: KeyArray | None):
        """One draw of every subject, one update of the averages, one maximisation."""
        assert key is not None
        model, point = problem.model, state.point
        plain, part = problem, None
        if model.lengths is not None and point.lengths is not None:
            problem, part = with_lengths(
                problem, model.lengths.constrain(point.lengths)
            )
        draw_key, speed_key = jax.random.split(key)
        drawn = self._draw(problem, state, draw_key)
        latent = None
        if part is not None:
            latent = _draw_speeds(part, drawn.draws, speed_key)
        new = Statistics(drawn.base, drawn.statistics, drawn.nodes, latent)
        time = state.num_seen + 1
        gain_of = self.gain or burn_in(self.num_steps // 4, 0.7)
        gain = gain_of(time.astype(drawn.nodes.dtype))
        averaged = jax.tree.map(
            lambda old, now: old + gain * (now - old), state.averaged, new
        )

        frame = state.frame
        if not problem.anchored:
            frame = model.prior_frame(
                point.coordinates, frame, item_weight=problem.data.item_weight
            )
        sd = jnp.exp(point.log_sd)
        prior = model.total_log_prior(
            point.coordinates, frame, problem.data.item_weight
        )
        prior = prior + model.log_common_slope_prior(sd)
        total = drawn.log_marginal
        if part is not None:
            prior = prior + part.model.log_prior(part.parameters)
            total = total + part.constant
        if problem.data.subject_weight is not None:
            total = total * problem.data.subject_weight

        update = improve_items(
            model,
            point.coordinates,
            problem.free,
            point.mean + sd * state.nodes,
            _as_counts(averaged),
            frame,
            self.num_newton,
        )
        raised = point._replace(coordinates=update.coordinates)
        moved = update_population(
            problem, raised, state.nodes, averaged.nodes, histogram=False
        )
        image, curvature = moved.point, None
        latent = averaged.latent
        if part is not None and latent is not None:
            image, latent, curvature = _improve_lengths(
                part, plain, image, latent, moved.mean, moved.sd
            )
        averaged = _on_new_scale(averaged, state.nodes, moved.mean, moved.sd)
        averaged = averaged._replace(latent=latent)
        # The mean of the iterates of the second half.
        count = jnp.maximum(time - self.num_steps // 2, 1).astype(gain.dtype)
        average = jax.tree.map(
            lambda old, now: old + (now - old) / count, state.average, image
        )
        residual = residual_of(
            problem, average, image, update, averaged.nodes, curvature, gradient=False
        )
        return SAEMState(
            image,
            average,
            averaged,
            (drawn.draws - moved.mean) / moved.sd,
            jnp.sum(total) + prior,
            residual,
            state.log_marginal,
            jnp.zeros((), bool),
            frame,
            drawn.centre,
            state.nodes,
            state.log_weights,
            time,
        )

    def _draw(self, problem: Problem, state: SAEMState, key: KeyArray) -> Drawn:
        """One pass over the data: draws of every subject and their counts."""
        model, data, point = problem.model, problem.data, state.point
        sd = jnp.exp(point.log_sd)
        theta = point.mean + sd * state.nodes
        items = model.constrain(point.coordinates)
        tables = model.family.table(items, theta)
        dtype = state.nodes.dtype
        if self.sampler == "augmented":
            keys = jax.random.split(key, self.num_draws)
            one = lambda key, t: draw_augmented(  # noqa: E731
                key, items, data, point.mean + sd * t, point.mean, sd
            )
            new = jax.vmap(one, in_axes=(0, 1), out_axes=1)(keys, state.draws)
            source = (new - point.mean) / sd
        else:
            source = jax.random.uniform(key, state.draws.shape, dtype)
        num_subjects, num_items = data.values.shape
        size = block_size_for(num_subjects, num_items, dtype.itemsize)

        def body(carry: Drawn, start: Array, is_new: Array) -> Drawn:
            log_lik, statistics, exposure = block_log_likelihood(
                model, tables, theta, data, start, size
            )
            joint = log_lik + state.log_weights
            log_marginal = jax.nn.logsumexp(joint, axis=1)
            posterior = jnp.exp(joint - log_marginal[:, None])
            standard = take_block(source, start, size)
            assert standard is not None
            if self.sampler == "grid":
                standard = state.nodes[draw_on_nodes(posterior, standard)]
            weight = is_new.astype(dtype)
            if data.subject_weight is not None:
                own = take_block(data.subject_weight, start, size)
                weight = weight * own.astype(dtype)
            at = node_weights(standard, state.nodes) * weight[:, None]
            index = jnp.arange(state.nodes.shape[0], dtype=dtype)
            centre = jnp.rint(posterior @ index).astype(jnp.int32)
            base = carry.base if exposure is None else carry.base + at.T @ exposure
            return Drawn(
                base,
                tuple(
                    old + at.T @ statistic
                    for old, statistic in zip(carry.statistics, statistics, strict=True)
                ),
                carry.nodes + jnp.sum(at, axis=0),
                put_block(carry.draws, standard, start),
                put_block(carry.log_marginal, log_marginal, start),
                put_block(carry.centre, centre, start),
            )

        empty = jax.tree.map(jnp.zeros_like, state.averaged)
        init = Drawn(
            empty.base,
            empty.statistics,
            empty.nodes,
            state.draws,
            jnp.zeros(num_subjects, dtype),
            state.centre,
        )
        drawn = scan_subject_blocks(body, init, num_subjects, size)
        if data.exposure is None:
            drawn = drawn._replace(base=drawn.nodes[:, None])
        return drawn

    def progress(self, problem: Problem, state: SAEMState) -> Progress:
        """Objective of the last point drawn from; of the average once finished."""
        tolerance = jnp.asarray(self.tolerance, state.residual.dtype)
        return Progress(
            state.objective,
            state.residual,
            state.finished & (state.residual <= tolerance),
            jnp.zeros((), bool),
        )

    def finish(self, problem: Problem, state: SAEMState) -> SAEMState:
        """The average, judged as EM judges a point: by one exact pass.

        Draws are weak evidence that the average is an optimum: iterates that drift lie
        as near to their mean as iterates that have converged.
        """
        judge = EM(state.nodes, memory=0)
        exact = judge.init(problem, self._average(problem, state), None)
        exact = judge.step(problem, exact._replace(frame=state.frame), None)
        return state._replace(
            objective=exact.objective,
            residual=exact.residual,
            log_marginal=exact.log_marginal,
            finished=jnp.ones((), bool),
        )

    def _average(self, problem: Problem, state: SAEMState) -> Start:
        """The averaged estimates on the scale the model reports."""
        model, best = problem.model, state.average
        items = model.constrain(best.coordinates)
        population = Population(best.mean, jnp.exp(best.log_sd))
        lengths = None
        if model.lengths is not None and best.lengths is not None:
            lengths = model.lengths.constrain(best.lengths)
        found = report_scale(problem, Parameters(items, population, None, lengths))
        return Start(found.items, None, found.population, found.lengths)

    def result(self, problem: Problem, state: SAEMState) -> tuple[Parameters, Array]:
        """The averaged estimates, and the exact marginal log-likelihood there."""
        items, _, population, lengths = self._average(problem, state)
        assert population is not None
        return Parameters(items, population, None, lengths), state.log_marginal

    def nodes_of(self, state: SAEMState) -> Nodes:
        """Nodes, their weights, and the one nearest to each subject."""
        return Nodes(state.nodes, state.log_weights, state.centre)

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """A fit on nodes that resolve the posteriors, in `num_steps` steps."""
        method = self
        if run.max_steps is not None and run.max_steps != self.num_steps:
            method = dataclasses.replace(self, num_steps=run.max_steps)
        key = jax.random.key(0) if run.key is None else run.key
        steps = method.num_steps
        return solve_on_nodes(problem, method, start, key, steps, run.clock)


class Drawn(NamedTuple):
    """One draw of every subject, and what a pass over the data makes of it."""

    base: Array
    statistics: tuple[Array, ...]
    nodes: Array
    draws: Array
    log_marginal: Array
    centre: Array


def _as_counts(averaged: Statistics) -> Counts:
    none = jnp.zeros(0, averaged.nodes.dtype)
    return Counts(
        none,
        averaged.base,
        averaged.statistics,
        averaged.nodes,
        jnp.zeros(0, jnp.int32),
    )


def _on_new_scale(averaged: Statistics, nodes: Array, mean, sd) -> Statistics:
    """Counts of (t - mean) / sd from counts of t."""
    share = node_weights(((nodes - mean) / sd)[:, None], nodes)
    return averaged._replace(
        base=share.T @ averaged.base,
        statistics=tuple(share.T @ part for part in averaged.statistics),
        nodes=share.T @ averaged.nodes,
    )


def _draw_speeds(part: LengthPart, ability: Array, key: KeyArray) -> Latent:
    """Moments of the draws of ability and of speed given ability and lengths."""
    zero = jnp.zeros(ability.shape[0], ability.dtype)
    given = jax.vmap(
        lambda theta: part.model.speed(part.parameters, part.summary, theta, zero),
        in_axes=1,
        out_axes=1,
    )(ability)
    noise = jax.random.normal(key, ability.shape, ability.dtype)
    speed = given.mean + jnp.sqrt(given.variance) * noise
    over = lambda values: jnp.mean(values, axis=1)  # noqa: E731
    return Latent(
        over(ability),
        over(ability**2),
        over(speed),
        over(speed**2),
        over(ability * speed),
    )


def _improve_lengths(
    part: LengthPart, problem: Problem, image: Point, latent, mean, sd
):
    """The lengths' parameters that fit the averaged moments best, folded."""
    ability = latent.ability
    lengths = part.model.improve(
        part.parameters,
        problem.data,
        ability,
        latent.ability_square - ability**2,
        SpeedMoments(
            latent.speed,
            latent.speed_square - latent.speed**2,
            latent.product - ability * latent.speed,
        ),
    )
    image = image._replace(lengths=part.model.unconstrain(lengths.folded))
    latent = latent.moved(mean, sd, lengths.centre, lengths.scale)
    return image, latent, lengths.curvature
