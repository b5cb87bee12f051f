"""Marginal maximum likelihood (or MAP) by a parameter-expanded EM algorithm.

Bock and Aitkin's EM on common quadrature nodes (AIMS, chapter on estimation), with
three accelerations: the ability scale is folded into the items after
each maximisation (parameter expansion: Liu, Rubin and Wu 1998), each M-step is a
modified Newton step per item, and a safeguarded Anderson acceleration.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.data.sparse_table import FEW_ON_NODES
from irtjax.estimators.acceptance import check_dimensions
from irtjax.estimators.ascent import (
    AbstractAscent,
    AscentState,
    Image,
    independent_rounding,
)
from irtjax.estimators.driver import AbstractEstimator, Run, Solution, tree_where
from irtjax.estimators.estimates import Estimates, Nodes, cut_estimates
from irtjax.estimators.marginal.factor_em import check_factors, is_logistic
from irtjax.estimators.marginal.grid import solve_on_grid
from irtjax.estimators.marginal.normal import NormalFactors
from irtjax.estimators.marginal.refinement import LARGE, AbstractOnNodes, solve_on_nodes
from irtjax.estimators.settings import check_least
from irtjax.likelihood.counts import NARROW, Counts, expected_counts
from irtjax.likelihood.cubature import MOST_DIMS
from irtjax.likelihood.item_steps import improve_items
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.padding import pad_problem, pad_start
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    orient,
    report_scale,
)
from irtjax.likelihood.streamed_counts import streamed_counts
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.lengths import LengthCoordinates, orient_speed
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import normal_log_weights

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable


class Point(NamedTuple):
    """What EM estimates: item coordinates, the population, and lengths if any."""

    coordinates: Float[Array, "items columns"]
    mean: Scalar
    log_sd: Scalar
    lengths: LengthCoordinates | None = None


class EMCarry(NamedTuple):
    """What a pass starts from, in addition to its point.

    Attributes:
        frame: That of the priors; see `Model.prior_frame`.
        centre: The node nearest each posterior mean.
        nodes: Standardised nodes, with the logarithms of their weights.
        folding: Whether the scale is folded; off once it lowered the objective.
    """

    frame: Float[Array, "2"]
    centre: Int[Array, " subjects"]
    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"]
    folding: Array


#: The default of `EM.tolerance`.
TOLERANCE = 1e-4


class EM(AbstractAscent, AbstractOnNodes):
    """Marginal maximum likelihood by EM; with priors, the marginal mode (MAP).

    Models with two or three abilities are solved on a product grid (`marginal.grid`).

    Attributes:
        nodes: Standardised quadrature nodes. `irtjax.fit` chooses them so that they
            resolve the narrowest posterior; see `choose_nodes`.
        tolerance: Converged when every free parameter's gradient and last move are
            below this many standard errors. With histograms `irtjax.fit` uses 1e-3
            for 1e-4, the default, also where it is given.
        population: "normal", or "histogram" to estimate the form of the ability
            distribution (its weights at the nodes) with mean 0 and variance 1.
        num_newton: Newton steps per maximisation.
        memory: Depth of the acceleration; 0 turns it off.
        window: Nodes on which a block of subjects is tried first; see
            `likelihood.counts.expected_counts`. 0 for all nodes; keep 0 under vmap.
    """

    several: ClassVar[bool] = True

    tolerance: float | Array = TOLERANCE
    population: str = eqx.field(static=True, default="normal")
    num_newton: int = eqx.field(static=True, default=1)
    memory: int = eqx.field(static=True, default=5)
    window: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        """Refuses settings that no fit can have."""
        check_least("EM", self, num_newton=1, memory=0, window=0)

    def suited(self, model: Any, num_subjects: int) -> AbstractEstimator:
        """Exact EM for several abilities of scores."""
        family = getattr(model, "family", None)
        if isinstance(family, LogitNormalScores) and family.dims:
            return NormalFactors()
        return super().suited(model, num_subjects)

    def share_of_cells(self, model: Model) -> float:
        """`FEW_ON_NODES` of models of one ability that have passes over cells.

        With .5 % of 12,000 x 4,000 observed 12 times as quick as the matrix on 61
        nodes; on hundreds of nodes the matrix has windows of two fifths of them.
        """
        family = model.family
        possible = family.by_cell and not family.dims and not model.has_lengths
        return FEW_ON_NODES if possible else 0.0

    def divides(self, model: Any) -> bool:
        """Whether a model has one ability, and no lengths."""
        return not (model.multilevel or model.family.dims or model.has_lengths)

    def subject_order(self, table: ResponseTable) -> np.ndarray | None:
        """By accuracy in large data: neighbours share a window of nodes.

        See `expected_counts`. Padding may make the data large.
        """
        if table.size < LARGE // 2:
            return None
        return np.argsort(table.subject_accuracy(), kind="stable")

    def padded(self, problem: Problem, dtype: Any) -> Problem:
        """Data of one of a few sizes."""
        return pad_problem(problem, dtype)

    def check(self, problem: Problem) -> None:
        """Refuses more abilities than a grid has, and settings that need one."""
        check_dimensions(self, problem)
        dims = problem.model.family.dims
        if not dims:
            return
        check_factors(problem.model, "EM", logistic=False)
        if dims > MOST_DIMS:
            other = "method='gvem' or " * is_logistic(problem.model.family)
            raise ValueError(
                f"method 'em' integrates over a grid of at most {MOST_DIMS} abilities,"
                f" not {dims}: use {other}method='mm'"
            )
        for name, usual in (("population", "normal"), ("num_newton", 1), ("window", 0)):
            if getattr(self, name) != usual:
                raise ValueError(f"{name} of EM needs one ability: leave {name} out")

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values."""
        self.check_nodes()
        if problem.model.family.dims:
            raise ValueError(
                f"a step of EM needs one ability, and a {problem.model.name} model has"
                f" {problem.model.family.dims}: use GVEM(), or GridEM with nodes of"
                " several abilities (irtjax.estimators.marginal.grid)"
            )
        if self.population not in ("normal", "histogram"):
            raise ValueError(
                f"population {self.population!r} is neither 'normal' nor 'histogram'"
            )
        start = orient(problem, start)
        population = estimation_scale(problem, start)
        point = start_point(problem, start, self.population)
        dtype, num_subjects = point.coordinates.dtype, problem.data.num_subjects
        nodes = jnp.asarray(self.nodes, dtype)
        log_weights = population.log_weights
        if log_weights is None or log_weights.shape != nodes.shape:
            log_weights = normal_log_weights(nodes)
        carry = EMCarry(
            jnp.zeros(2, dtype),
            _nearest_nodes(start, population, nodes, num_subjects),
            nodes,
            log_weights,
            jnp.ones((), bool),
        )
        return self.first_state(point, num_subjects, carry=carry, has_fallback=True)

    def with_pass(self, problem: Problem, state: AscentState | None) -> Problem:
        """With the expected counts at a state, of streamed responses."""
        data: Any = problem.data
        if not data.is_streamed:
            return problem
        sums = None
        if state is not None:
            point, carry = state.point, state.carry
            sums = streamed_counts(
                problem.model,
                problem.model.constrain(point.coordinates),
                point.mean + jnp.exp(point.log_sd) * carry.nodes,
                carry.log_weights,
                data,
                centre=carry.centre if self.window else None,
            )
        return dataclasses.replace(problem, data=data.with_sums(sums))

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration; 0 of histograms: weights are not in a point."""
        return 0 if self.population == "histogram" else self.memory

    def accepts(self, state: AscentState, gain: Scalar, terms: Array) -> Array:
        """Whether a point gains, or loses no more than what all subjects share.

        The log probabilities of items at the nodes are rounded once for all subjects:
        these errors add. In single precision they are up to 0.3 nats at 50,000 x 100,
        where the last steps gain far less and would be refused.
        """
        shared = 2 * jnp.finfo(terms.dtype).eps * jnp.sum(jnp.abs(terms))
        return (state.num_seen == 0) | (gain >= -independent_rounding(terms) - shared)

    def stalled(self, state: AscentState) -> Array:
        """Whether no point is left, or twenty in a row gained no more than rounding.

        The shared rounding lets steps continue that lower the objective a little.
        """
        return (state.refused >= 3) | (state.flat >= 20)

    def image(self, problem: Problem, state: AscentState) -> Image:
        """One pass over the data and one maximisation, the ability scale folded in.

        The fallback is not folded: on nodes too coarse for the posteriors, folding is
        not exactly neutral. Once only the fallback was accepted, it is the image.
        """
        model, point, carry = problem.model, state.point, state.carry
        problem, part = with_lengths(
            problem, model.length_model.constrain(point.lengths)
        )
        data, nodes = problem.data, point.mean + jnp.exp(point.log_sd) * carry.nodes
        counts = expected_counts(
            model,
            model.constrain(point.coordinates),
            nodes,
            carry.log_weights,
            data,
            centre=carry.centre,
            window=self.window,
            moments=part is not None,
        )
        log_marginal = counts.log_marginal
        if part is not None:
            log_marginal = log_marginal + part.constant
        prior, frame = prior_at(problem, part, point, carry.frame)
        update = improve_items(
            model,
            point.coordinates,
            problem.free,
            nodes,
            counts,
            frame,
            self.num_newton,
            data.item_weight,
        )
        raised = point._replace(coordinates=update.coordinates)
        folded, new = self._with_population(problem, raised, carry, counts)
        curvature = None
        if part is not None:
            raised, folded, curvature = _with_lengths(
                part, data, counts, raised, folded
            )
        folding = carry.folding & (state.refused < 2)
        image = tree_where(folding, folded, raised)
        one = jnp.ones((), log_marginal.dtype) * data.num_subjects**0.5
        scale = jnp.where(problem.free, jnp.sqrt(update.curvature), 0)
        return Image(
            image,
            log_marginal,
            prior,
            residual_of(problem, point, image, update, counts.nodes, curvature),
            Point(scale, one, one, jax.tree.map(jnp.sqrt, curvature)),
            new._replace(frame=frame, centre=counts.centre, folding=folding),
            raised,
        )

    def _with_population(
        self, problem: Problem, point: Point, carry: EMCarry, counts: Counts
    ) -> tuple[Point, EMCarry]:
        """The point with the best population, and the nodes of a histogram with it."""
        histogram = self.population == "histogram"
        folded, mean, sd = update_population(
            problem, point, carry.nodes, counts.nodes, histogram=histogram
        )
        if not histogram:
            return folded, carry
        share = jnp.maximum(counts.nodes / jnp.sum(counts.nodes), 1e-12)
        log_weights = jnp.log(share / jnp.sum(share))
        nodes = (carry.nodes - mean) / sd
        return folded, carry._replace(nodes=nodes, log_weights=log_weights)

    def nodes_of(self, state: AscentState) -> Nodes:
        """Nodes, their weights, and the one nearest to each subject."""
        carry = state.carry
        return Nodes(carry.nodes, carry.log_weights, carry.centre)

    def result(self, problem: Problem, state: AscentState) -> tuple[Parameters, Array]:
        """Item records on the model's reporting scale, and the population."""
        histogram = self.population == "histogram"
        weights = state.carry.log_weights if histogram else None
        return reported(problem, state.best, weights), state.log_lik

    def record(self) -> dict[str, Any]:
        """The form of abilities."""
        return {"population": self.population}

    def for_vmap(self) -> EM:
        """On all nodes: a window under `vmap` computes both branches."""
        return dataclasses.replace(self, window=0)

    def on_nodes(self, nodes: Array, data: Responses) -> EM:
        """On these nodes; for large data in windows of them, subjects being sorted."""
        least = NARROW[nodes.dtype.itemsize]
        window = max(20 * (len(nodes) // 50), least) * (data.num_cells >= LARGE)
        return dataclasses.replace(self, nodes=nodes, window=window)

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """A fit on nodes that resolve the posteriors; see `solve_on_nodes`."""
        tolerance = self.tolerance
        if self.population == "histogram":
            # Hundreds of weights move slowly and matter little: a thousandth of a
            # standard error will do, unless another tolerance is asked for.
            tolerance = 1e-3 if tolerance == TOLERANCE else tolerance
        if start.items[0].dtype == jnp.float32:
            # Rounding of a long sum leaves gradients of some thousandths of an error.
            tolerance = max(tolerance, 1e-2)
        method = dataclasses.replace(self, tolerance=tolerance)
        steps = run.steps(self.runs.max_steps)
        if problem.model.family.dims:
            line = None if self.nodes is None else np.asarray(self.nodes)
            return solve_on_grid(
                problem, start, run, tolerance, self.memory, steps, line
            )
        problem = pad_problem(problem, start.items[0].dtype)
        start = pad_start(start, problem.data)
        return solve_on_nodes(problem, method, start, None, steps, run.clock)

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Errors and abilities of the padded data that `solve` had."""
        if problem.model.family.dims:
            return super().estimates(problem, solution, run)
        dtype = solution.fit.parameters.items[0].dtype
        padded = super().estimates(pad_problem(problem, dtype), solution, run)
        return cut_estimates(padded, problem)


def start_point(problem: Problem, start: Start, population: str) -> Point:
    """The point at start values that are oriented (`orient`).

    Raises:
        ValueError: If the model or the start does not suit lengths.
    """
    model = problem.model
    coordinates = model.unconstrain(start.items)
    normal = estimation_scale(problem, start)
    mean, sd = (jnp.asarray(x, coordinates.dtype) for x in (normal.mean, normal.sd))
    point = Point(coordinates, mean, jnp.log(sd))
    if not model.has_lengths:
        return point
    if problem.anchored or not model.family.has_slope:
        raise ValueError(
            "response lengths need a model with item discriminations and without"
            " anchors: ability and speed are standardised together"
        )
    if population != "normal":
        raise ValueError("response lengths need population='normal'")
    if start.lengths is None:
        raise ValueError(
            "the start values hold no parameters of the response lengths; make them"
            " by start_values"
        )
    lengths = model.length_model.unconstrain(orient_speed(start.lengths))
    return point._replace(lengths=lengths)


def prior_at(
    problem: Problem, part: LengthPart | None, point: Point, frame: Array
) -> tuple[Scalar, Array]:
    """Log prior of a point, and the frame of the priors, found from the last `frame`.

    Weighted as the likelihood is: a resampled item brings its prior with it.
    """
    model, weight = problem.model, problem.data.item_weight
    if not problem.anchored:
        frame = model.prior_frame(point.coordinates, frame, item_weight=weight)
    prior = model.total_log_prior(point.coordinates, frame, weight)
    prior = prior + model.log_common_slope_prior(jnp.exp(point.log_sd))
    if part is not None:
        prior = prior + part.model.log_prior(part.parameters, problem.data.item_weight)
    return prior, frame


def reported(
    problem: Problem, point: Point, log_weights: Array | None = None
) -> Parameters:
    """The estimates of a point on the scale that the model reports."""
    items = problem.model.constrain(point.coordinates)
    population = Population(point.mean, jnp.exp(point.log_sd), log_weights)
    lengths = problem.model.length_model.constrain(point.lengths)
    return report_scale(problem, Parameters(items, population, None, lengths))


def _with_lengths(
    part: LengthPart, data: Responses, counts: Counts, raised: Point, folded: Point
) -> tuple[Point, Point, LengthCoordinates]:
    """Both points with the best parameters of the lengths, and their curvatures."""
    assert counts.mean is not None and counts.variance is not None
    moments = counts.mean, counts.variance
    speed = part.model.speed(part.parameters, part.summary, *moments)
    lengths = part.model.improve(part.parameters, data, *moments, speed)
    return (
        raised._replace(lengths=part.model.unconstrain(lengths.raised)),
        folded._replace(lengths=part.model.unconstrain(lengths.folded)),
        lengths.curvature,
    )


def _nearest_nodes(start: Start, population: Population, nodes, num_subjects: int):
    """Node nearest each start ability; the middle where none is given."""
    theta = start.theta
    if theta is None:
        return jnp.full(num_subjects, nodes.shape[0] // 2, jnp.int32)
    standard = (theta - population.mean) / population.sd
    nearest = jnp.searchsorted(nodes, standard.astype(nodes.dtype))
    return jnp.clip(nearest, 0, nodes.shape[0] - 1).astype(jnp.int32)


def residual_of(
    problem, point, image, update, at_nodes, curvature, *, gradient: bool = True
) -> Scalar:
    """Largest move, and gradient if requested, of a free parameter, in standard errors.

    Lengths are maximised in closed form: their move is gradient over curvature.
    """
    scale = jnp.sqrt(update.curvature)
    move = jnp.abs(image.coordinates - point.coordinates) * scale
    if gradient:
        move = jnp.maximum(move, jnp.abs(update.gradient) / scale)
    largest = jnp.max(jnp.where(problem.free, move, 0))
    root = jnp.sqrt(jnp.sum(at_nodes))
    shift = jnp.abs(image.mean - point.mean) * jnp.exp(-point.log_sd) * root
    stretch = jnp.abs(image.log_sd - point.log_sd) * root
    largest = jnp.maximum(largest, jnp.maximum(shift, stretch))
    if curvature is None:
        return largest
    moves = jax.tree.map(
        lambda new, old, bend: jnp.max(jnp.abs(new - old) * jnp.sqrt(bend)),
        image.lengths,
        point.lengths,
        curvature,
    )
    return jnp.maximum(largest, jnp.max(jnp.stack(jax.tree.leaves(moves))))


def update_population(
    problem: Problem, point: Point, standard: Array, at_nodes: Array, *, histogram: bool
) -> tuple[Point, Scalar, Scalar]:
    """The point with the population that fits best, folded in where the scale is free.

    `at_nodes` is the expected number of subjects at each standardised node; with
    `histogram` the form of the population is free. Standardised abilities t become
    (t - mean) / sd of the mean and sd that are returned.
    """
    model = problem.model
    total = jnp.sum(at_nodes)
    mean = jnp.sum(at_nodes * standard) / total
    variance = jnp.sum(at_nodes * (standard - mean) ** 2) / total
    sd = jnp.sqrt(jnp.maximum(variance, 1e-8))
    if not histogram and not model.family.has_slope:
        sd = _common_scale(model, point.log_sd, variance, total)
    old = jnp.exp(point.log_sd)
    if problem.anchored:
        new = point._replace(
            mean=point.mean + old * mean, log_sd=point.log_sd + jnp.log(sd)
        )
    elif model.family.has_slope:
        new = point._replace(coordinates=model.fold(point.coordinates, mean, sd))
    else:
        shifted = model.fold(point.coordinates, old * mean, jnp.ones_like(sd))
        new = point._replace(coordinates=shifted, log_sd=point.log_sd + jnp.log(sd))
    return new, mean, sd


def _common_scale(model: Model, log_sd: Scalar, variance: Scalar, total: Scalar):
    """Factor s on the standard deviation of ability where all slopes are one.

    Maximises -n (log s + v / (2 s^2)) + log prior of the common slope, by Newton steps
    from the maximum-likelihood value sqrt(v).
    """

    def objective(log_factor):
        fit = -log_factor - variance * jnp.exp(-2 * log_factor) / 2
        return total * fit + model.log_common_slope_prior(jnp.exp(log_sd + log_factor))

    start = 0.5 * jnp.log(jnp.maximum(variance, 1e-8))
    best = start
    for _ in range(4):
        slope = jax.grad(objective)(best)
        curvature = jnp.abs(jax.grad(jax.grad(objective))(best)) + 1e-12
        best = best + jnp.clip(slope / curvature, -0.5, 0.5)
    return jnp.exp(jnp.where(objective(best) >= objective(start), best, start))
