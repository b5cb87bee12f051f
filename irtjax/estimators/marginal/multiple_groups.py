r"""EM for several groups of subjects, each with a normal population of its own.

Group g has abilities N(m_g, s_g^2), and all groups share the items (multiple-group
IRT: Bock and Zimowski 1997). On the nodes of one common density N(M, S^2), M the mean
of all subjects and S wide enough for every group, that of a group is a factor

    exp(e_0 t - e_1 t^2 / 2 + c),   e_0 = m / s^2 - M / S^2,   e_1 = 1 / s^2 - 1 / S^2,

which is the `evidence` that responses carry for each subject: all groups share the
nodes and one pass over the data. A maximisation sets m_g and s_g to the moments of the
posteriors of a group. Then location and scale of all subjects are folded into the
items, so that abilities have mean 0 and variance 1 over all subjects.

The errors given m and s are those of any fit with evidence. With A = -d2 l / dx dg, B =
-d2 l / dg dg, x the items and g = (m, log s), and X = Cov(x | g) A, those of g are

    V = Z (Z' (B - A' X) Z)^-1 Z',

Z the directions in which the mean and the variance of all subjects stay, and the items
get X V X' in addition.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.data.wording import counted
from irtjax.estimators.ascent import (
    AbstractAscent,
    AscentState,
    Image,
    independent_rounding,
)
from irtjax.estimators.driver import Run, Solution
from irtjax.estimators.estimates import (
    Estimates,
    GroupPopulations,
    Nodes,
    cut_estimates,
)
from irtjax.estimators.marginal.refinement import AbstractOnNodes, solve_on_nodes
from irtjax.inference import Covariance
from irtjax.likelihood.counts import Counts, expected_counts
from irtjax.likelihood.item_steps import expected_derivatives, improve_items
from irtjax.likelihood.padding import pad_problem, pad_start
from irtjax.likelihood.problem import Parameters, Problem, Start, orient
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import normal_log_weights
from irtjax.numerics.programs import stored_jit

#: Standard deviations on either side that nodes reach, of their density and of groups.
REACH = 6.0
#: Fewest nodes: a group's standard deviation is at least their distance, where sums
#: over nodes are exact to 1e-8 (`numerics.normal_log_weights`).
FEWEST_NODES = 193


class GroupPoint(NamedTuple):
    """Items' coordinates, and means and log standard deviations of the groups."""

    coordinates: Float[Array, "items columns"]
    mean: Float[Array, " groups"]
    log_sd: Float[Array, " groups"]


class GroupCarry(NamedTuple):
    """The frame of the priors (`Model.prior_frame`), and nodes with log weights."""

    frame: Float[Array, "2"]
    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"]


class MultipleGroups(AbstractAscent, AbstractOnNodes):
    """Marginal maximum likelihood of items that several groups of subjects share.

    `irtjax.fit(..., groups=FACET)` makes it. With anchors, abilities are on the scale
    of these; otherwise they have mean 0 and variance 1 over all subjects.

    Attributes:
        codes: `[subjects]` the group of each.
        names: Names of the groups.
        tolerance: As of `EM`.
        memory: Depth of the acceleration; 0 turns it off.
    """

    several: ClassVar[bool] = False

    codes: Int[Array, " subjects"] | None = None
    names: tuple[str, ...] = eqx.field(static=True, default=())
    tolerance: float | Array = 1e-4
    memory: int = eqx.field(static=True, default=5)

    @property
    def name(self) -> str:
        """The method is EM."""
        return "em"

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.memory

    def check(self, problem: Problem) -> None:
        """Refuses models without slopes, and response lengths."""
        super().check(problem)
        model = problem.model
        if model.has_lengths or not model.family.has_slope:
            raise ValueError(
                f"groups need a model of one ability whose items have slopes, and not"
                f" {model.name}: use model='2pl' (or 3pl, graded, continuous)"
            )

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values, all groups alike."""
        self.check_nodes(problem)
        start = orient(problem, start)
        coordinates = problem.model.unconstrain(start.items)
        dtype, zeros = coordinates.dtype, jnp.zeros(len(self.names), coordinates.dtype)
        nodes = jnp.asarray(self.nodes, dtype)
        carry = GroupCarry(jnp.zeros(2, dtype), nodes, normal_log_weights(nodes))
        point = GroupPoint(coordinates, zeros, zeros)
        return self.first_state(point, problem.data.num_subjects, carry=carry)

    def accepts(self, state: AscentState, gain: Scalar, terms: Array) -> Array:
        """As `EM.accepts`: rounding of the items' tables is shared by all subjects."""
        shared = 2 * jnp.finfo(terms.dtype).eps * jnp.sum(jnp.abs(terms))
        return (state.num_seen == 0) | (gain >= -independent_rounding(terms) - shared)

    def stalled(self, state: AscentState) -> Array:
        """Whether no point is left, or twenty in a row gained no more than rounding."""
        return super().stalled(state) | (state.flat >= 20)

    def members(self, data: Responses, dtype: Any) -> Float[Array, "subjects groups"]:
        """The weight of each subject in the column of its group."""
        assert self.codes is not None
        one = jax.nn.one_hot(self.codes, len(self.names), dtype=dtype)
        weight = data.subject_weight
        return one if weight is None else one * weight.astype(dtype)[:, None]

    def image(self, problem: Problem, state: AscentState) -> Image:
        """One pass over the data and one maximisation of items and populations."""
        point, carry = state.point, state.carry
        model, weight = problem.model, problem.data.item_weight
        members = self.members(problem.data, point.mean.dtype)
        size = jnp.sum(members, axis=0)
        density = _density(point, size)
        nodes = density.mean + density.sd * carry.nodes
        counts, constant = _pass(problem, self.codes, point, density, carry)
        frame = carry.frame
        if not problem.anchored:
            frame = model.prior_frame(point.coordinates, frame, item_weight=weight)
        prior = model.total_log_prior(point.coordinates, frame, weight)
        update = improve_items(
            model, point.coordinates, problem.free, nodes, counts, frame, 1, weight
        )
        image = _maximised(members, size, _least_sd(density, carry.nodes), counts)
        image = image._replace(coordinates=update.coordinates)
        if not problem.anchored:
            image = _folded(model, image, size)
        scale = GroupPoint(
            jnp.where(problem.free, jnp.sqrt(update.curvature), 0),
            jnp.sqrt(size) * jnp.exp(-point.log_sd),
            jnp.sqrt(2 * size),
        )
        moves = jax.tree.map(
            lambda new, old, by: jnp.max(jnp.abs(new - old) * by), image, point, scale
        )
        gradient = jnp.abs(update.gradient) / jnp.sqrt(update.curvature)
        of_items = jnp.max(jnp.where(problem.free, gradient, 0))
        return Image(
            image,
            counts.log_marginal + constant,
            prior,
            jnp.max(jnp.stack([of_items, *moves])),
            scale,
            carry._replace(frame=frame),
        )

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Any, image: Image
    ) -> GroupPoint:
        """Fixed coordinates stay exactly, and abilities have mean 0 and variance 1."""
        rows = jnp.where(problem.free, proposal.coordinates, state.point.coordinates)
        members = self.members(problem.data, proposal.mean.dtype)
        size = jnp.sum(members, axis=0)
        least = jnp.log(_least_sd(_density(proposal, size), state.carry.nodes))
        log_sd = jnp.maximum(proposal.log_sd, least)
        proposal = proposal._replace(coordinates=rows, log_sd=log_sd)
        if problem.anchored:
            return proposal
        return _folded(problem.model, proposal, size)

    def result(self, problem: Problem, state: AscentState) -> tuple[Parameters, Array]:
        """Items, and the density of the nodes: `estimates` has the populations."""
        point = state.best
        size = jnp.sum(self.members(problem.data, point.mean.dtype), axis=0)
        items = problem.model.constrain(point.coordinates)
        return Parameters(items, _density(point, size)), state.log_lik

    def nodes_of(self, state: AscentState) -> Nodes | None:
        """Nodes and their weights; posterior means differ, so none is the nearest."""
        middle = jnp.full(state.log_lik.shape, len(state.carry.nodes) // 2, jnp.int32)
        return Nodes(state.carry.nodes, state.carry.log_weights, middle)

    def on_nodes(self, nodes: Array, data: Responses) -> MultipleGroups:
        """On these nodes, or on more over the same range."""
        if len(nodes) < FEWEST_NODES:
            nodes = jnp.linspace(nodes[0], nodes[-1], FEWEST_NODES)
        return dataclasses.replace(self, nodes=nodes)

    def record(self) -> dict[str, Any]:
        """The form of abilities."""
        return {"population": "normal"}

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """A fit on nodes that resolve the posteriors."""
        dtype = start.items[0].dtype
        tolerance = self.tolerance
        if dtype == jnp.float32:
            tolerance = max(tolerance, 1e-2)
        problem = pad_problem(problem, dtype)
        method = dataclasses.replace(
            self,
            codes=_padded(self.codes, problem.data.num_subjects),
            tolerance=tolerance,
        )
        start = pad_start(start, problem.data)
        steps = run.steps(self.runs.max_steps)
        return solve_on_nodes(problem, method, start, None, steps, run.clock)

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Scores by the population of each group, and errors that count theirs."""
        method, state = solution.method, solution.fit.state
        padded = pad_problem(problem, state.best.mean.dtype)
        dtype = state.best.mean.dtype
        members = method.members(padded.data, dtype)
        size = jnp.sum(members, axis=0)
        density = solution.fit.parameters.population
        evidence, _ = _evidence(state.best, density)
        data = dataclasses.replace(padded.data, evidence=evidence[method.codes])
        # Populations are known here: the errors of groups are added below.
        with_evidence = dataclasses.replace(padded, data=data, anchored=False)
        estimates = super().estimates(with_evidence, solution, run)
        covariance, by_group = estimates.covariance, None
        sd = np.exp(np.asarray(state.best.log_sd, np.float64))
        least = float(_least_sd(density, state.carry.nodes))
        names = np.asarray(self.names)
        warnings = _warnings(names[sd <= 1.01 * least], least)
        if covariance is not None:
            cross, own = _information(padded, method, state.best, density, state)
            by_group = _group_covariance(
                cross,
                own,
                covariance,
                state.best,
                size,
                anchored=problem.anchored,
                at_bound=sd <= 1.01 * least,
            )
            if by_group is None:
                covariance, warnings = None, (*warnings, INDEFINITE)
            else:
                covariance = _with_groups(covariance, cross, by_group)
        errors = of_means = None
        if by_group is not None:
            of_means = by_group[: len(sd), : len(sd)]
            errors = np.sqrt(np.maximum(np.diagonal(by_group), 0)).reshape(2, -1)
        groups = GroupPopulations(
            names=names,
            size=np.asarray(size, np.float64),
            mean=np.asarray(state.best.mean, np.float64),
            sd=sd,
            group=np.asarray(method.codes)[: problem.data.num_subjects],
            mean_error=None if errors is None else errors[0],
            sd_error=None if errors is None else errors[1] * sd,
            mean_covariance=of_means,
        )
        free = 2 * len(self.names) - (0 if problem.anchored else 2)
        estimates = dataclasses.replace(
            estimates,
            problem=padded,
            parameters=estimates.parameters._replace(
                population=_of_all(state.best, size)
            ),
            covariance=covariance,
            populations=groups,
            normal=False,
            num_parameters=estimates.num_parameters + free,
            warnings=(*estimates.warnings, *warnings),
        )
        return cut_estimates(estimates, problem)


def _padded(codes: Array | None, count: int) -> Array:
    """The codes, with those of the first group for subjects of weight 0."""
    assert codes is not None
    return jnp.asarray(np.pad(np.asarray(codes), (0, count - len(codes))))


def _of_all(point: GroupPoint, size: Array) -> Population:
    """Mean and standard deviation of all subjects."""
    share = size / jnp.sum(size)
    mean = share @ point.mean
    second = share @ (jnp.exp(2 * point.log_sd) + point.mean**2)
    return Population(mean, jnp.sqrt(second - mean**2))


def _density(point: GroupPoint, size: Array) -> Population:
    """The density of the nodes: centred, and wide enough for every group."""
    everyone = _of_all(point, size)
    away = jnp.abs(point.mean - everyone.mean) + REACH * jnp.exp(point.log_sd)
    return everyone._replace(sd=jnp.maximum(everyone.sd, jnp.max(away) / REACH))


def _evidence(point: GroupPoint, population: Population) -> tuple[Array, Array]:
    """`[groups, 2]` evidence and `[groups]` constants, on the nodes of a population."""
    mean, variance = point.mean, jnp.exp(2 * point.log_sd)
    centre, spread = population.mean, population.sd**2
    evidence = jnp.stack([mean / variance - centre / spread, 1 / variance - 1 / spread])
    constant = (centre**2 / spread - mean**2 / variance + jnp.log(spread)) / 2
    return evidence.T, constant - point.log_sd


def _pass(
    problem: Problem,
    codes: Any,
    point: GroupPoint,
    population: Population,
    carry: GroupCarry,
) -> tuple[Counts, Array]:
    """Expected counts, and the constant of each subject's log-likelihood."""
    evidence, constant = _evidence(point, population)
    data = dataclasses.replace(problem.data, evidence=evidence[codes])
    counts = expected_counts(
        problem.model,
        problem.model.constrain(point.coordinates),
        population.mean + population.sd * carry.nodes,
        carry.log_weights,
        data,
        moments=True,
    )
    return counts, constant[codes]


def _least_sd(density: Population, nodes: Array) -> Scalar:
    """The smallest standard deviation of a group: the distance of the nodes."""
    return density.sd * (nodes[1] - nodes[0])


def _maximised(members, size, least, counts: Counts) -> GroupPoint:
    """Means and standard deviations of the posteriors of each group."""
    assert counts.mean is not None and counts.variance is not None
    mean = counts.mean @ members / size
    second = (counts.variance + counts.mean**2) @ members / size
    log_sd = 0.5 * jnp.log(jnp.maximum(second - mean**2, least**2))
    return GroupPoint(mean, mean, log_sd)


def _folded(model: Model, point: GroupPoint, size: Array) -> GroupPoint:
    """The same densities where all subjects have mean 0 and variance 1."""
    all_of_them = _of_all(point, size)
    return GroupPoint(
        model.fold(point.coordinates, all_of_them.mean, all_of_them.sd),
        (point.mean - all_of_them.mean) / all_of_them.sd,
        point.log_sd - jnp.log(all_of_them.sd),
    )


@stored_jit
def _information(problem, method, point, population, state) -> tuple[Array, Array]:
    """A `[2 groups, items, columns]` and B, by derivatives of the gradients."""
    carry, members = state.carry, method.members(problem.data, point.mean.dtype)
    size, shape = jnp.sum(members, axis=0), (2, len(method.names))

    def gradients(flat):
        mean, log_sd = flat.reshape(shape)
        at = point._replace(mean=mean, log_sd=log_sd)
        counts, _ = _pass(problem, method.codes, at, population, carry)
        nodes = population.mean + population.sd * carry.nodes
        items = expected_derivatives(
            problem.model, point.coordinates, nodes, counts, carry.frame
        ).gradient
        assert counts.mean is not None and counts.variance is not None
        gap = counts.mean - mean[method.codes]
        square = (counts.variance + gap**2) @ members * jnp.exp(-2 * log_sd)
        own = jnp.stack([gap @ members * jnp.exp(-2 * log_sd), square - size])
        return jnp.where(problem.free, items, 0), own.ravel()

    flat = jnp.stack([point.mean, point.log_sd]).ravel()
    along = lambda v: jax.jvp(gradients, (flat,), (v,))[1]
    cross, own = jax.lax.map(along, jnp.eye(flat.size, dtype=flat.dtype))
    return -cross, -own


def _applied(covariance: Covariance, vectors: np.ndarray) -> np.ndarray:
    """The covariance of all items times vectors `[count, items, columns]`."""
    items, shared = np.asarray(covariance.items), np.asarray(covariance.shared)
    own = items - np.einsum("rja,rjb->jab", shared, shared)
    along = np.einsum("rja,vja->rv", shared, vectors)
    return np.einsum("jab,vjb->vja", own, vectors) + np.einsum(
        "rv,rja->vja", along, shared
    )


def _group_covariance(
    cross: Array,
    own: Array,
    covariance: Covariance,
    point: GroupPoint,
    size: Array,
    *,
    anchored: bool,
    at_bound: np.ndarray,
) -> np.ndarray | None:
    """V, `[2 groups, 2 groups]`: of the means, then of the log standard deviations.

    Standard deviations at their bound are fixed. None where V is not positive definite.
    """
    vectors, rest = np.asarray(cross, np.float64), np.asarray(own, np.float64)
    image = _applied(covariance, vectors)
    rest = rest - np.einsum("vja,wja->vw", vectors, image)
    rest = (rest + rest.T) / 2
    mean, sd = np.asarray(point.mean), np.exp(np.asarray(point.log_sd))
    zeros, count = np.zeros_like(mean), np.asarray(size, np.float64)
    fixed = np.eye(len(rest))[len(mean) :][at_bound]
    if not anchored:
        of_mean = np.concatenate([count, zeros])
        of_variance = np.concatenate([count * mean, count * sd**2])
        fixed = np.concatenate([fixed, [of_mean, of_variance]])
    directions = scipy.linalg.null_space(fixed) if len(fixed) else np.eye(len(rest))
    inner = directions.T @ rest @ directions
    values, axes = np.linalg.eigh(inner)
    if not np.all(values > 1e-8 * np.abs(values).max()):
        return None
    root = directions @ axes / np.sqrt(values)
    return root @ root.T


def _with_groups(
    covariance: Covariance, cross: Array, by_group: np.ndarray
) -> Covariance:
    """The covariance of the items with the errors of the populations."""
    values, vectors = np.linalg.eigh(by_group)
    root = vectors * np.sqrt(np.maximum(values, 0))
    image = _applied(covariance, np.asarray(cross, np.float64))
    rows = np.einsum("vr,vja->rja", root, image)
    dtype = covariance.items.dtype
    added = jnp.asarray(np.einsum("rja,rjb->jab", rows, rows), dtype)
    zeros = jnp.zeros((len(rows), 2), dtype)
    return covariance._replace(
        items=covariance.items + added,
        shared=jnp.concatenate([covariance.shared, jnp.asarray(rows, dtype)]),
        shared_scale=jnp.concatenate([covariance.shared_scale, zeros]),
    )


#: Where groups have too few subjects for errors.
INDEFINITE = (
    "no standard errors: the responses do not determine means and standard deviations"
    " of all groups; join small groups"
)


def _warnings(at_bound: np.ndarray, least: float) -> tuple[str, ...]:
    """That standard deviations of groups are at their bound."""
    if not len(at_bound):
        return ()
    return (
        f"the standard deviation of {counted(len(at_bound), 'group')} is at its lower"
        f" bound, {least:.2g}: {', '.join(at_bound[:4])}",
    )
