r"""Marginal maximum likelihood (or MAP) by EM on quadrature nodes.

Bock and Aitkin's EM on common quadrature nodes (AIMS, chapter on estimation), with
three accelerations: the scale of one ability is folded into the items after
each maximisation (parameter expansion: Liu, Rubin and Wu 1998), each M-step is a
modified Newton step per item, and a safeguarded Anderson acceleration.

Several abilities have the nodes L x_t, x_t those of a square grid and L L' the
correlations of the abilities: all subjects share the nodes, and a pass over the data is
two products with the tables of the items (`likelihood.counts`).
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
from irtjax.estimators.acceptance import check_dimensions, check_factors, is_logistic
from irtjax.estimators.ascent import (
    AbstractAscent,
    AscentState,
    Image,
    independent_rounding,
)
from irtjax.estimators.driver import AbstractEstimator, Run, Solution, tree_where
from irtjax.estimators.estimates import Estimates, Nodes, cut_estimates
from irtjax.estimators.marginal.correlations import (
    PRIOR_SUBJECTS,
    raised_correlation,
    with_own_correlation,
)
from irtjax.estimators.marginal.point import (
    Point,
    prior_at,
    reported,
    residual_of,
    start_point,
    update_population,
    with_linear_slopes,
)
from irtjax.estimators.marginal.refinement import (
    LARGE,
    AbstractOnNodes,
    solve_on_grid,
    solve_on_nodes,
)
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
    is_positive,
    orient,
)
from irtjax.likelihood.products import outer
from irtjax.models.families.continuous import LogitNormalScores
from irtjax.models.lengths import LengthCoordinates
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import inverse_root, normal_log_weights

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable


class EMCarry(NamedTuple):
    """What a pass starts from, in addition to its point.

    Attributes:
        frame: That of the priors; see `Model.prior_frame`.
        centre: The node nearest each posterior mean.
        nodes: Standardised nodes, with the logarithms of their weights.
        folding: Whether the scale is folded; off once it lowered the objective.
        together: Which coordinates of items move as one; see `tied_coordinates`.
    """

    frame: Float[Array, "2"]
    centre: Int[Array, " subjects"]
    nodes: Float[Array, "nodes *dims"]
    log_weights: Float[Array, " nodes"]
    folding: Array
    together: Float[Array, "items columns columns"] | None = None


#: The default of `EM.tolerance`.
TOLERANCE = 1e-4


class EM(AbstractAscent, AbstractOnNodes):
    """Marginal maximum likelihood by EM; with priors, the marginal mode (MAP).

    Models may have up to three abilities, in categories.

    Attributes:
        nodes: Standardised quadrature nodes; of several abilities `[nodes, dims]`, such
            as `grid_nodes` gives. `irtjax.fit` chooses them so that they resolve the
            narrowest posterior (`choose_nodes`, `choose_grid`), and takes a list for
            the nodes of each ability.
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
    prior_subjects: ClassVar[float] = PRIOR_SUBJECTS

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
        if isinstance(family, LogitNormalScores) and family.ability_shape:
            from irtjax.estimators.marginal.normal import NormalFactors

            return NormalFactors()
        return super().suited(model, num_subjects)

    def share_of_cells(self, model: Model) -> float:
        """`FEW_ON_NODES` of models of one ability that have passes over cells.

        With .5 % of 12,000 x 4,000 observed 12 times as quick as the matrix on 61
        nodes; on hundreds of nodes the matrix has windows of two fifths of them.
        """
        family = model.family
        possible = family.by_cell and not model.several and not model.has_lengths
        return FEW_ON_NODES if possible else 0.0

    def by_group(self, codes: np.ndarray, names: tuple[str, ...]) -> AbstractEstimator:
        """EM with a normal population for each group of subjects."""
        from irtjax.estimators.marginal.multiple_groups import MultipleGroups

        return MultipleGroups(
            nodes=self.nodes,
            codes=jnp.asarray(codes),
            names=names,
            tolerance=self.tolerance,
            memory=self.memory,
        )

    def divides(self, model: Any) -> bool:
        """Whether a model has one ability."""
        return not (model.multilevel or model.several)

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
        model = problem.model
        if not model.several:
            return
        check_factors(model, "EM", logistic=False)
        (dims,) = model.family.ability_shape
        if dims > MOST_DIMS:
            other = "method='gvem' or " * is_logistic(model.family)
            raise ValueError(
                f"method 'em' integrates over a grid of at most {MOST_DIMS} abilities,"
                f" not {dims}: use {other}method='mm'"
            )
        for name, usual in (("population", "normal"), ("num_newton", 1), ("window", 0)):
            if getattr(self, name) != usual:
                raise ValueError(f"{name} of EM needs one ability: leave {name} out")

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values."""
        self.check_nodes(problem)
        if self.population not in ("normal", "histogram"):
            raise ValueError(
                f"population {self.population!r} is neither 'normal' nor 'histogram'"
            )
        together = None
        if problem.model.several:
            from irtjax.estimators.joint.cuts import (
                tied_coordinates,
                with_tied_intercepts,
            )

            together = tied_coordinates(problem, start.items.intercept.dtype)
            start = with_tied_intercepts(start, together)
            start = with_own_correlation(problem, start)
        else:
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
            together,
        )
        # Of several abilities nothing is folded.
        one = not problem.model.several
        return self.first_state(point, num_subjects, carry=carry, has_fallback=one)

    def with_pass(self, problem: Problem, state: AscentState | None) -> Problem:
        """With the expected counts at a state, of streamed responses."""
        data: Any = problem.data
        if not data.is_streamed:
            return problem
        sums = None
        if state is not None:
            from irtjax.likelihood.streamed_counts import streamed_counts

            point, carry = state.point, state.carry
            model = with_linear_slopes(problem).model
            sums = streamed_counts(
                model,
                model.constrain(point.coordinates),
                point.abilities(carry.nodes),
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
        return super().stalled(state) | (state.flat >= 20)

    def image(self, problem: Problem, state: AscentState) -> Image:
        """One pass over the data and one maximisation, the ability scale folded in.

        The fallback is not folded: on nodes too coarse for the posteriors, folding is
        not exactly neutral. Once only the fallback was accepted, it is the image.
        """
        point, carry = state.point, state.carry
        bounded = problem.model.several and is_positive(problem.model)
        problem, part = with_lengths(
            with_linear_slopes(problem),
            problem.model.length_model.constrain(point.lengths),
        )
        model, data, nodes = problem.model, problem.data, point.abilities(carry.nodes)
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
            bounded,
            carry.together,
        )
        raised = point._replace(coordinates=update.coordinates)
        folded, new = self._with_population(problem, raised, carry, counts)
        curvature = None
        if part is not None:
            raised, folded, curvature = _with_lengths(
                part, data, counts, raised, folded
            )
        image, fallback, folding = folded, None, carry.folding
        if state.fallback is not None:
            folding = folding & (state.refused < 2)
            image, fallback = tree_where(folding, folded, raised), raised
        one = jnp.ones((), log_marginal.dtype) * data.num_subjects**0.5
        of_population = jax.tree.map(
            lambda x: jnp.broadcast_to(one, x.shape),
            (point.mean, point.log_sd, point.correlation),
        )
        mean, log_sd, correlation = of_population
        scale = jnp.where(problem.free, jnp.sqrt(update.curvature), 0)
        lengths = jax.tree.map(jnp.sqrt, curvature)
        return Image(
            image,
            log_marginal,
            prior,
            residual_of(problem, point, image, update, counts.nodes, curvature),
            Point(scale, mean, log_sd, lengths, correlation),
            new._replace(frame=frame, centre=counts.centre, folding=folding),
            fallback,
        )

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Point, image: Image
    ) -> Point:
        """Slopes of several abilities within bounds, correlations positive definite."""
        if proposal.correlation is None:
            return proposal
        rows = proposal.coordinates
        if is_positive(problem.model):
            slopes = list(problem.model.family.slope_columns)
            is_slope = np.isin(np.arange(rows.shape[1]), slopes)
            rows = jnp.where(is_slope, jnp.maximum(rows, 0), rows)
        # Fixed coordinates stay exactly, not up to the rounding of a mixture.
        rows = jnp.where(problem.free, rows, state.point.coordinates)
        fine = jnp.all(jnp.isfinite(inverse_root(proposal.correlation)))
        return tree_where(fine, proposal._replace(coordinates=rows), image.point)

    def _with_population(
        self, problem: Problem, point: Point, carry: EMCarry, counts: Counts
    ) -> tuple[Point, EMCarry]:
        """The point with the best population, and the nodes of a histogram with it."""
        if point.correlation is not None:
            theta, total = point.abilities(carry.nodes), jnp.sum(counts.nodes)
            second = (counts.nodes @ outer(theta)).reshape(point.correlation.shape)
            correlation = raised_correlation(
                problem, point.correlation, second / total, total
            )
            return point._replace(correlation=correlation), carry
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

    def nodes_of(self, state: AscentState) -> Nodes | None:
        """Nodes, their weights, and the one nearest to each subject, of one ability."""
        carry = state.carry
        if state.point.correlation is not None:
            return None
        return Nodes(carry.nodes, carry.log_weights, carry.centre)

    def result(self, problem: Problem, state: AscentState) -> tuple[Parameters, Array]:
        """Item records on the model's reporting scale, and the population."""
        histogram = self.population == "histogram"
        weights = state.carry.log_weights if histogram else None
        return reported(problem, state.best, weights), state.log_lik

    def record(self) -> dict[str, Any]:
        """The form of abilities, and the number of nodes of several."""
        record: dict[str, Any] = {"population": self.population}
        if self.nodes is not None and np.ndim(self.nodes) > 1:
            record["nodes"] = len(self.nodes)
        return record

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
        if problem.model.several:
            return solve_on_grid(problem, method, start, run, steps)
        problem = pad_problem(problem, start.items[0].dtype)
        start = pad_start(start, problem.data)
        return solve_on_nodes(problem, method, start, None, steps, run.clock)

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Errors and abilities of the padded data that `solve` had."""
        if problem.model.several:
            return super().estimates(problem, solution, run)
        dtype = solution.fit.parameters.items[0].dtype
        padded = super().estimates(pad_problem(problem, dtype), solution, run)
        return cut_estimates(padded, problem)


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
    if theta is None or nodes.ndim > 1:
        return jnp.full(num_subjects, nodes.shape[0] // 2, jnp.int32)
    standard = (theta - population.mean) / population.sd
    nearest = jnp.searchsorted(nodes, standard.astype(nodes.dtype))
    return jnp.clip(nearest, 0, nodes.shape[0] - 1).astype(jnp.int32)
