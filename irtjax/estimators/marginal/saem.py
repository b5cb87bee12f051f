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
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.driver import Progress, Run, RunSettings, Solution
from irtjax.estimators.marginal.draws import draw_augmented, draw_on_nodes, node_weights
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.marginal.point import (
    Point,
    prior_at,
    reported,
    residual_of,
    start_point,
    update_population,
)
from irtjax.estimators.marginal.refinement import AbstractOnNodes, solve_on_nodes
from irtjax.estimators.settings import check_least
from irtjax.likelihood.counts import Counts, block_log_likelihood
from irtjax.likelihood.item_steps import improve_items
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    orient,
)
from irtjax.models.families.logistic import Binary
from irtjax.models.lengths import SpeedMoments
from irtjax.models.model import Model
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

    def moments(self) -> tuple[Array, Array, SpeedMoments]:
        """Mean and variance of ability, and the moments of speed."""
        ability, speed = self.ability, self.speed
        speeds = SpeedMoments(
            speed, self.speed_square - speed**2, self.product - ability * speed
        )
        return ability, self.ability_square - ability**2, speeds

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


class AveragedStatistics(NamedTuple):
    """Statistics that are averaged over steps.

    Exposure at the nodes `[nodes, items]` (`[nodes, 1]` when complete), R_k for k >= 1
    likewise, subjects `[nodes]`, and moments of each subject for models with lengths.
    """

    base: Array
    statistics: tuple[Array, ...]
    nodes: Array
    latent: Latent | None = None


class SAEMState(NamedTuple):
    """State of SAEM.

    Attributes:
        point: The last iterate.
        average: Mean of the iterates after the first half of the steps; before, the
            last one.
        draws: `[subjects, draws]` last draws of standardised ability.
        objective: Marginal log-likelihood, with priors, of the point of the last step;
            of the average once finished.
        residual: Distance of the last iterate from the average, in standard errors;
            EM's residual at the average once finished.
        log_marginal: `[subjects]` at the average, once finished.
        finished: Whether the average has been judged since the last step.
        centre: `[subjects]` node nearest the last posterior mean.
    """

    point: Point
    average: Point
    averaged: AveragedStatistics
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


class SAEM(AbstractOnNodes):
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

    runs: ClassVar[RunSettings] = AbstractOnNodes.runs._replace(
        limit="num_steps", scanned=True
    )

    num_steps: int = eqx.field(static=True, default=200)
    num_draws: int = eqx.field(static=True, default=4)
    gain: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    sampler: str = eqx.field(static=True, default="grid")
    num_newton: int = eqx.field(static=True, default=1)
    tolerance: float | Array = 1 / 3

    def __check_init__(self):
        """Refuses settings that no fit can have."""
        check_least("SAEM", self, num_steps=1, num_draws=1, num_newton=1)

    def divides(self, model: Any) -> bool:
        """Whether draws are on nodes, of a model with one ability."""
        plain = not (model.multilevel or model.several)
        return plain and self.sampler == "grid"

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> SAEMState:
        """State at the start values."""
        self._check(problem, key)
        start = orient(problem, start)
        population = estimation_scale(problem, start)
        point = start_point(problem, start, "normal")
        dtype, data = point.coordinates.dtype, problem.data
        nodes = jnp.asarray(self.nodes, dtype)
        empty = jnp.zeros((nodes.shape[0], data.num_items), dtype)
        zero, zeros = jnp.zeros((), dtype), jnp.zeros(data.num_subjects, dtype)
        num_statistics = len(problem.model.family.statistics(data.values[:1, :1]))
        theta = zeros if start.theta is None else start.theta.astype(dtype)
        standard = (theta - population.mean) / population.sd
        return SAEMState(
            point,
            average=point,
            averaged=AveragedStatistics(
                empty[:, :1] if data.exposure is None else empty,
                (empty,) * num_statistics,
                empty[:, 0],
                Latent(*(zeros,) * 5) if problem.model.has_lengths else None,
            ),
            draws=jnp.broadcast_to(standard[:, None], (len(zeros), self.num_draws)),
            objective=zero,
            residual=jnp.full((), jnp.inf, dtype),
            log_marginal=zeros,
            finished=jnp.zeros((), bool),
            frame=jnp.zeros(2, dtype),
            centre=jnp.zeros(data.num_subjects, jnp.int32),
            nodes=nodes,
            log_weights=normal_log_weights(nodes),
            num_seen=jnp.zeros((), jnp.int32),
        )

    def _check(self, problem: Problem, key: KeyArray | None) -> None:
        """Refuses a run without key, and models that the sampler does not serve."""
        self.check_nodes(problem)
        if key is None:
            raise ValueError("SAEM draws at random: pass key=jax.random.key(0)")
        if self.sampler not in SAMPLERS:
            raise ValueError(
                f"sampler {self.sampler!r} is none of {', '.join(SAMPLERS)}"
            )
        family = problem.model.family
        suits = (
            isinstance(family, Binary)
            and family.link == "probit"
            and family.asymptotes == 0
            and problem.data.trials is None
            and problem.data.item_weight is None
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
        problem, part = with_lengths(
            problem, model.length_model.constrain(point.lengths)
        )
        draw_key, speed_key = jax.random.split(key)
        drawn = self._draw(problem, state, draw_key)
        new, total = drawn.counts, drawn.log_marginal
        if part is not None:
            new = new._replace(latent=_draw_speeds(part, drawn.draws, speed_key))
            total = total + part.constant
        if problem.data.subject_weight is not None:
            total = total * problem.data.subject_weight
        time = state.num_seen + 1
        gain_of = self.gain or burn_in(self.num_steps // 4, 0.7)
        gain = gain_of(time.astype(new.nodes.dtype))
        averaged = jax.tree.map(
            lambda old, now: old + gain * (now - old), state.averaged, new
        )

        prior, frame = prior_at(problem, part, point, state.frame)
        counts = Counts(
            jnp.zeros(0, new.nodes.dtype),
            averaged.base,
            averaged.statistics,
            averaged.nodes,
            centre=jnp.zeros(0, jnp.int32),
        )
        update = improve_items(
            model,
            point.coordinates,
            problem.free,
            point.mean + jnp.exp(point.log_sd) * state.nodes,
            counts,
            frame,
            self.num_newton,
        )
        raised = point._replace(coordinates=update.coordinates)
        image, mean, sd = update_population(
            problem, raised, state.nodes, averaged.nodes, histogram=False
        )
        latent, curvature = averaged.latent, None
        if part is not None and latent is not None:
            lengths = part.model.improve(
                part.parameters, problem.data, *latent.moments()
            )
            image = image._replace(lengths=part.model.unconstrain(lengths.folded))
            latent = latent.moved(mean, sd, lengths.centre, lengths.scale)
            curvature = lengths.curvature
        # Counts of (t - mean) / sd from counts of t.
        share = node_weights(((state.nodes - mean) / sd)[:, None], state.nodes)
        moved = jax.tree.map(lambda counts: share.T @ counts, averaged[:3])
        averaged = AveragedStatistics(*moved, latent=latent)
        # The mean of the iterates of the second half.
        count = jnp.maximum(time - self.num_steps // 2, 1).astype(gain.dtype)
        average = jax.tree.map(
            lambda old, now: old + (now - old) / count, state.average, image
        )
        residual = residual_of(
            problem, average, image, update, averaged.nodes, curvature, gradient=False
        )
        return state._replace(
            point=image,
            average=average,
            averaged=averaged,
            draws=(drawn.draws - mean) / sd,
            objective=jnp.sum(total) + prior,
            residual=residual,
            finished=jnp.zeros((), bool),
            frame=frame,
            centre=drawn.centre,
            num_seen=time,
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
            draw = jax.vmap(draw_augmented, (0, None, None, 1, None, None), 1)
            old = point.mean + sd * state.draws
            new = draw(keys, items, data, old, point.mean, sd)
            source = (new - point.mean) / sd
        else:
            source = jax.random.uniform(key, state.draws.shape, dtype)
        counts, rows = data.fold(
            partial(self._draw_some, model),
            source,
            (tables, theta, state.nodes, state.log_weights),
        )
        if data.exposure is None:
            counts = counts._replace(base=counts.nodes[:, None])
        return Drawn(counts, *rows)

    def _draw_some(
        self,
        model: Model,
        data: Responses,
        source: Array,
        at_nodes: tuple[tuple[Array, ...], Array, Array, Array],
    ) -> tuple[AveragedStatistics, tuple[Array, ...]]:
        """`_draw` of some subjects: their counts; draws, log-likelihoods and nodes."""
        tables, theta, nodes, log_weights = at_nodes
        dtype, (num_subjects, num_items) = source.dtype, data.values.shape
        size = block_size_for(num_subjects, num_items, dtype.itemsize)

        def body(carry: Drawn, start: Array, is_new: Array) -> Drawn:
            """Draws abilities of a block of subjects, and adds up their statistics."""
            log_lik, statistics, exposure = block_log_likelihood(
                model, tables, theta, data, start, size
            )
            joint = log_lik + log_weights
            log_marginal = jax.nn.logsumexp(joint, axis=1)
            posterior = jnp.exp(joint - log_marginal[:, None])
            standard = take_block(source, start, size)
            assert standard is not None
            if self.sampler == "grid":
                standard = nodes[draw_on_nodes(posterior, standard)]
            weight = is_new.astype(dtype)
            if data.subject_weight is not None:
                own = take_block(data.subject_weight, start, size)
                weight = weight * own.astype(dtype)
            at = node_weights(standard, nodes) * weight[:, None]
            index = jnp.arange(nodes.shape[0], dtype=dtype)
            centre = jnp.rint(posterior @ index).astype(jnp.int32)
            base, old, subjects, _ = carry.counts
            pairs = zip(old, statistics, strict=True)
            counts = AveragedStatistics(
                base if exposure is None else base + at.T @ exposure,
                tuple(total + at.T @ statistic for total, statistic in pairs),
                subjects + jnp.sum(at, axis=0),
            )
            return Drawn(
                counts,
                put_block(carry.draws, standard, start),
                put_block(carry.log_marginal, log_marginal, start),
                put_block(carry.centre, centre, start),
            )

        empty = jnp.zeros((nodes.shape[0], num_items), dtype)
        empty = AveragedStatistics(
            empty[:, :1] if data.exposure is None else empty,
            (empty,) * (len(tables) - 1),
            empty[:, 0],
        )
        log_marginal = jnp.zeros(num_subjects, dtype)
        centre = jnp.zeros(num_subjects, jnp.int32)
        init = Drawn(empty, jnp.zeros_like(source), log_marginal, centre)
        counts, *rows = scan_subject_blocks(body, init, num_subjects, size)
        return counts, tuple(rows)

    def goal(self, problem: Any, dtype: Any) -> Any:
        """None: the residual is found after the last step."""
        return None

    @property
    def num_planned(self) -> int:
        """All steps."""
        return self.num_steps

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

        Draws are weak evidence of an optimum: iterates that drift are as near to their
        mean as iterates that have converged.
        """
        judge, parameters = EM(state.nodes, memory=0), reported(problem, state.average)
        start = Start(parameters.items, None, parameters.population, parameters.lengths)
        exact = judge.init(problem, start, None)
        carry = exact.carry._replace(frame=state.frame)
        exact = judge.step(problem, exact._replace(carry=carry), None)
        return state._replace(
            objective=exact.objective,
            residual=exact.residual,
            log_marginal=exact.log_lik,
            finished=jnp.ones((), bool),
        )

    def result(self, problem: Problem, state: SAEMState) -> tuple[Parameters, Array]:
        """The averaged estimates, and the exact marginal log-likelihood there."""
        return reported(problem, state.average), state.log_marginal

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """A fit on nodes that resolve the posteriors, in `num_steps` steps."""
        steps = run.steps(self.num_steps)
        method = dataclasses.replace(self, num_steps=steps)
        key = jax.random.key(0) if run.key is None else run.key
        return solve_on_nodes(problem, method, start, key, steps, run.clock)


class Drawn(NamedTuple):
    """One draw of every subject, and what a pass over the data makes of it."""

    counts: AveragedStatistics
    draws: Array
    log_marginal: Array
    centre: Array


def _draw_speeds(part: LengthPart, ability: Array, key: KeyArray) -> Latent:
    """Moments of the draws of ability and of speed given ability and lengths."""
    zero = jnp.zeros(ability.shape[0], ability.dtype)
    moments = jax.vmap(
        lambda theta: part.model.speed(part.parameters, part.summary, theta, zero),
        in_axes=1,
        out_axes=1,
    )(ability)
    noise = jax.random.normal(key, ability.shape, ability.dtype)
    speed = moments.mean + jnp.sqrt(moments.variance) * noise
    products = ability, ability**2, speed, speed**2, ability * speed
    return Latent(*(jnp.mean(values, axis=1) for values in products))
