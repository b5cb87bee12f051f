r"""EM for several groups of subjects, each with a normal population of its own.

Group g has abilities N(m_g, s_g^2), and all groups share the items (multiple-group
IRT: Bock and Zimowski 1997). The population of a group is evidence of its subjects
(`group_populations`). A maximisation sets m_g and s_g to the moments of the posteriors
of a group. Then location and scale of all subjects are folded into the items, so that
abilities have mean 0 and variance 1 over all subjects.

Items divided by group (`free_by_group`) may have parameters in common
(`likelihood.equality`). Means are equal where no intercept is common, and standard
deviations where no slope is: neither is then identified. Where the items of a set have
one intercept and slopes of their own, the model depends on where ability is 0, so that
the means are maximised under the constraint instead. Slopes of 1 (Rasch, 1PL) are
fixed, and the variance of all subjects is free; that of a 1PL is reported as its slope.
`group_errors` has the errors.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.ascent import (
    AbstractAscent,
    AscentState,
    Image,
    independent_rounding,
)
from irtjax.estimators.driver import Run, Solution
from irtjax.estimators.estimates import Estimates, Nodes
from irtjax.estimators.marginal.group_errors import estimates_of_groups
from irtjax.estimators.marginal.group_populations import (
    GroupCarry,
    GroupPoint,
    GroupScale,
    density_of,
    least_sd,
    of_all,
    pass_of,
)
from irtjax.estimators.marginal.refinement import AbstractOnNodes, solve_on_nodes
from irtjax.likelihood.counts import Counts
from irtjax.likelihood.equality import EqualityConstraints, improve_equal_items
from irtjax.likelihood.item_steps import ItemUpdate, improve_items
from irtjax.likelihood.padding import pad_problem, pad_start
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    orient,
)
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import normal_log_weights

#: Fewest nodes: a group's standard deviation is at least their distance, where sums
#: over nodes are exact to 1e-8 (`numerics.normal_log_weights`).
FEWEST_NODES = 193


class MultipleGroups(AbstractAscent, AbstractOnNodes):
    """Marginal maximum likelihood of items that several groups of subjects share.

    `irtjax.fit(..., groups=FACET)` makes it. With anchors, abilities are on the scale
    of these; otherwise they have mean 0 and variance 1 over all subjects.

    Attributes:
        codes: `[subjects]` the group of each.
        names: Names of the groups.
        sets: `[items]` the item that each was before the division by groups; None
            without `free_by_group`.
        free_names: Names of parameters that are free by group in any item.
        is_free: `[items, free_names]` whether they are free in an item.
        tolerance: As of `EM`.
        memory: Depth of the acceleration; 0 turns it off.
        constraints: Of divided items, for the problem that is solved: `solve` makes it.
        scale: Likewise.
    """

    several: ClassVar[bool] = False

    codes: Int[Array, " subjects"] | None = None
    names: tuple[str, ...] = eqx.field(static=True, default=())
    sets: Int[Array, " items"] | None = None
    free_names: tuple[str, ...] = eqx.field(static=True, default=())
    is_free: Bool[Array, "items names"] | None = None
    tolerance: float | Array = 1e-4
    memory: int = eqx.field(static=True, default=5)
    constraints: EqualityConstraints | None = None
    scale: GroupScale = eqx.field(static=True, default=GroupScale())

    @property
    def name(self) -> str:
        """The method is EM."""
        return "em"

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.memory

    def check(self, problem: Problem) -> None:
        """Refuses response lengths, and parameters that the model does not have."""
        super().check(problem)
        model, family = problem.model, problem.model.family
        if model.has_lengths or family.with_free_slopes() is None:
            raise ValueError(
                f"groups need a model of one ability without response lengths, and not"
                f" {model.name}: use model='2pl' (or rasch, 3pl, graded, continuous)"
            )
        if self.sets is None:
            return
        names = [parameter.name for parameter in family.parameters]
        for name in self.free_names:
            if name not in names:
                raise ValueError(
                    f"free_by_group: a {model.name} model has no parameter {name!r} of"
                    f" items: give one of {', '.join(names)}"
                )
        if family.common:
            raise ValueError(
                f"free_by_group: a {model.name} model has parameters common to all"
                " items: use model='graded', or leave free_by_group out"
            )

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values, all groups alike."""
        self.check_nodes(problem)
        start = orient(problem, start)
        coordinates = problem.model.unconstrain(start.items)
        dtype, zeros = coordinates.dtype, jnp.zeros(len(self.names), coordinates.dtype)
        nodes = jnp.asarray(self.nodes, dtype)
        carry = GroupCarry(jnp.zeros(2, dtype), nodes, normal_log_weights(nodes))
        log_sd = zeros
        if self.scale.unit_slopes and start.population is not None:
            log_sd = log_sd + jnp.log(start.population.sd)
        point = self._on_scale(problem, GroupPoint(coordinates, zeros, log_sd))
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
        density = density_of(point, size)
        nodes = density.mean + density.sd * carry.nodes
        counts, constant = pass_of(problem, self.codes, point, density, carry)
        frame = carry.frame
        if not problem.anchored:
            frame = model.prior_frame(point.coordinates, frame, item_weight=weight)
        prior = model.total_log_prior(point.coordinates, frame, weight)
        update = self._improved(problem, point, nodes, counts, frame)
        least = least_sd(density, carry.nodes)
        image = _maximised(members, size, least, counts, point, self.scale)
        image = image._replace(coordinates=update.coordinates)
        image = self._on_scale(problem, image)
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

    def _improved(
        self,
        problem: Problem,
        point: GroupPoint,
        nodes: Array,
        counts: Counts,
        frame: Array,
    ) -> ItemUpdate:
        """The maximisation of the items."""
        model, free, rows = problem.model, problem.free, point.coordinates
        if self.constraints is not None:
            return improve_equal_items(
                model, rows, free, self.constraints, nodes, counts, frame
            )
        weight = problem.data.item_weight
        return improve_items(model, rows, free, nodes, counts, frame, 1, weight)

    def _on_scale(self, problem: Problem, point: GroupPoint) -> GroupPoint:
        """The same densities where all subjects have mean 0 and variance 1."""
        if not problem.anchored:
            members = self.members(problem.data, point.mean.dtype)
            everyone = of_all(point, jnp.sum(members, axis=0))
            if self.scale.unit_slopes:
                everyone = everyone._replace(sd=jnp.ones_like(everyone.sd))
            point = _folded(problem.model, point, everyone)
        if self.constraints is None:
            return point
        # Exactly equal, not up to rounding.
        rows = self.constraints.applied(point.coordinates)
        return point._replace(coordinates=rows)

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Any, image: Image
    ) -> GroupPoint:
        """Fixed coordinates stay exactly, and abilities have mean 0 and variance 1."""
        rows = jnp.where(problem.free, proposal.coordinates, state.point.coordinates)
        members = self.members(problem.data, proposal.mean.dtype)
        size = jnp.sum(members, axis=0)
        least = jnp.log(least_sd(density_of(proposal, size), state.carry.nodes))
        log_sd = jnp.maximum(proposal.log_sd, least)
        proposal = proposal._replace(coordinates=rows, log_sd=log_sd)
        return self._on_scale(problem, proposal)

    def result(self, problem: Problem, state: AscentState) -> tuple[Parameters, Array]:
        """Items, and the density of the nodes: `estimates` has the populations."""
        point = state.best
        size = jnp.sum(self.members(problem.data, point.mean.dtype), axis=0)
        items = problem.model.constrain(point.coordinates)
        return Parameters(items, density_of(point, size)), state.log_lik

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
        """The form of abilities, and names of parameters that are free by group."""
        names = list(self.free_names)
        return {"population": "normal", **({"free_by_group": names} if names else {})}

    def prepared(self, problem: Problem) -> Problem:
        """With slopes that are fixed at 1, where the model has none."""
        model = problem.model
        if model.family.has_slope:
            return problem
        family: Any = model.family.with_free_slopes()
        priors = {k: x for k, x in model.priors.items() if k != "discrimination"}
        model = dataclasses.replace(model, family=family, priors=priors)
        free = jnp.pad(problem.free, ((0, 0), (1, 0)), constant_values=False)
        return dataclasses.replace(problem, model=model, free=free)

    def suited_to(self, problem: Problem, dtype: Any) -> tuple[MultipleGroups, Problem]:
        """The method and the problem, padded, with constraints of divided items."""
        unit = not problem.model.family.has_slope
        padded = self.prepared(pad_problem(problem, dtype))
        method = dataclasses.replace(
            self,
            codes=_padded(self.codes, padded.data.num_subjects),
            scale=GroupScale(problem.anchored, unit_slopes=unit),
        )
        if self.sets is None or self.is_free is None:
            return method, padded
        family, number = padded.model.family, problem.data.num_items
        places, equal, weights = [], np.zeros(padded.free.shape, bool), []
        sets = np.arange(len(equal))
        sets[:number] = np.asarray(self.sets)
        size = np.bincount(sets)[sets]
        for parameter in family.parameters:
            columns = slice(len(places), len(places) + parameter.columns)
            places += [parameter.name] * parameter.columns
            common = size > 1
            if parameter.name in self.free_names:
                is_free = self.is_free[:, self.free_names.index(parameter.name)]
                common[:number] &= ~np.asarray(is_free)
            equal[:, columns] = common[:, None]
            weights.append(np.where(common, 1 / size, 1))
        common = (equal | (size == 1)[:, None])[:number]
        slopes = common[:, list(family.slope_columns)].all(axis=1) | unit
        intercepts = common[:, list(family.intercept_columns)].all(axis=1)
        scale = method.scale._replace(
            equal_means=not (problem.anchored or intercepts.any()),
            equal_sds=not (problem.anchored or slopes.any()),
            at_zero=not problem.anchored and bool((intercepts & ~slopes).any()),
        )
        constraints = EqualityConstraints(jnp.asarray(sets), jnp.asarray(equal))
        weight = jnp.asarray(np.stack(weights, axis=1), dtype)
        model = dataclasses.replace(padded.model, prior_weight=weight)
        padded = dataclasses.replace(padded, model=model)
        return dataclasses.replace(method, constraints=constraints, scale=scale), padded

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """A fit on nodes that resolve the posteriors."""
        dtype = start.items[0].dtype
        tolerance = self.tolerance
        if dtype == jnp.float32:
            tolerance = max(tolerance, 1e-2)
        method, padded = self.suited_to(problem, dtype)
        method = dataclasses.replace(method, tolerance=tolerance)
        if method.scale.unit_slopes:
            population = estimation_scale(problem, start)
            slope = jnp.ones_like(start.items.discrimination)
            items = start.items._replace(discrimination=slope)
            start = start._replace(items=items, population=population)
        start = pad_start(start, padded.data)
        steps = run.steps(self.runs.max_steps)
        return solve_on_nodes(padded, method, start, None, steps, run.clock)

    def estimates(self, problem: Problem, solution: Solution, run: Run) -> Estimates:
        """Scores by the population of each group, and errors that count theirs."""
        dtype = solution.fit.state.best.mean.dtype
        padded = self.suited_to(problem, dtype)[1]
        return estimates_of_groups(problem, padded, solution, run)


def _padded(codes: Array | None, count: int) -> Array:
    """The codes, with those of the first group for subjects of weight 0."""
    assert codes is not None
    return jnp.asarray(np.pad(np.asarray(codes), (0, count - len(codes))))


def _maximised(
    members, size, least, counts: Counts, point: GroupPoint, scale: GroupScale
) -> GroupPoint:
    """Means and standard deviations that suit the posteriors of each group.

    Means that are constrained are maximised given the standard deviations, which are
    maximised given these means: no step lowers the objective.
    """
    assert counts.mean is not None and counts.variance is not None
    average = counts.mean @ members / size
    second = (counts.variance + counts.mean**2) @ members / size
    mean, variance = average, jnp.exp(2 * point.log_sd)
    if scale.equal_means:
        weight = size / variance
        mean = jnp.sum(weight * average) / jnp.sum(weight) + 0 * mean
    elif scale.at_zero:
        mean = mean - variance * jnp.sum(size * average) / jnp.sum(size * variance)
    variance = second - average**2 + (average - mean) ** 2
    if scale.equal_sds:
        variance = jnp.sum(size * variance) / jnp.sum(size) + 0 * variance
    log_sd = 0.5 * jnp.log(jnp.maximum(variance, least**2))
    return GroupPoint(point.coordinates, mean, log_sd)


def _folded(model: Model, point: GroupPoint, everyone: Population) -> GroupPoint:
    """The same densities where a population has mean 0 and variance 1."""
    return GroupPoint(
        model.fold(point.coordinates, everyone.mean, everyone.sd),
        (point.mean - everyone.mean) / everyone.sd,
        point.log_sd - jnp.log(everyone.sd),
    )
