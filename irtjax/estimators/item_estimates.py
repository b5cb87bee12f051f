"""Estimates of methods that have items as parameters: errors, abilities, scores.

Errors and scores are made of the posteriors of abilities given the items. Of one
ability these are on nodes, for populations of any shape. Of several abilities they are
normal around their modes, since nodes would be a number to the power of the abilities.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax._types import Status
from irtjax.estimators.estimates import (
    Estimates,
    LengthEstimates,
    Nodes,
    ParameterErrors,
    on_host,
)
from irtjax.estimators.timing import Clock
from irtjax.inference.covariance import item_covariance
from irtjax.inference.expected import watched_expected_scores
from irtjax.inference.result import ScoreFlag
from irtjax.inference.scores import score
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    correlates,
    estimation_scale,
    rotates,
)
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.families.bounded import log_base_total
from irtjax.models.model import Model, Population
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched

#: Log weights of nodes that differ by less from a normal density's are normal.
NORMAL_WEIGHTS = 1e-3


def item_estimates(
    problem: Problem,
    solution: Any,
    *,
    standard_errors: str = "observed",
    item_uncertainty: bool = True,
    clock: Clock,
    posteriors: Any = None,
) -> Estimates:
    """Estimates of a method that estimates items as parameters, from its `Solution`.

    Parameters without abilities are marginal. `standard_errors` is "observed",
    "cross_product", "sandwich" or "none"; with `item_uncertainty`, errors of abilities
    include the items'. Of several abilities there are observed ones alone; subjects are
    ranked by the expected score on all items, and the abilities on the factors, not
    rotated, are in `Estimates.factors`. `posteriors` is the class of the posteriors of
    one ability, `NodePosteriors` where None.
    """
    parameters = solution.fit.parameters
    if problem.model.several:
        from irtjax.estimators.modal_posteriors import ModalPosteriors

        posteriors = ModalPosteriors.of(problem, solution, clock)
    else:
        posteriors = (posteriors or NodePosteriors).of(problem, solution)
    problem = posteriors.problem
    coordinates, log_prior = _coordinates(problem, parameters)
    errors = ParameterErrors()
    clock.report("standard errors", 0, math.nan, math.nan)
    with clock.phase("standard_errors"):
        if standard_errors != "none":
            errors = posteriors.errors(coordinates, standard_errors)
    clock.report("scores", 0, math.nan, math.nan)
    with clock.phase("scores"):
        scores = posteriors.scores(errors if item_uncertainty else ParameterErrors())
    return Estimates(
        problem=problem,
        parameters=parameters,
        coordinates=coordinates,
        covariance=errors.covariance,
        **scores,
        **of_run(problem, solution),
        log_prior=float(log_prior),
        num_parameters=_num_parameters(problem, parameters),
        joint=parameters.theta is not None,
        warnings=(*solution.warnings, *errors.warnings),
        **posteriors.fields(errors, scores),
    )


def of_run(problem: Problem, solution: Any) -> dict[str, Any]:
    """Fields of `Estimates`: the log-likelihood, and how the run of a method ended."""
    fit, method = solution.fit, solution.method
    data, steps = problem.data, int(fit.num_steps)
    base = log_base_total(problem.model, fit.parameters.items, data)
    # In double precision on the host: a float32 sum of millions of nats is coarse.
    terms = np.asarray(fit.subject_log_lik, np.float64)
    if data.subject_weight is not None:
        terms = terms * np.asarray(data.subject_weight)
    return {
        "log_likelihood": float(terms.sum()) + base,
        "status": Status(int(fit.status)),
        "num_steps": steps,
        "trace": np.asarray(fit.trace)[:steps] + base,
        "residual": float(fit.residual),
        "priors": frozenset(method.priors_of(problem.model)),
        "limit": method.runs.limit,
    }


def _num_parameters(problem: Problem, parameters: Parameters) -> int:
    """Number of estimated parameters, with abilities where these are parameters."""
    family, num_items = problem.model.family, problem.data.num_items
    count = int(np.asarray(problem.free).sum())
    count -= (num_items - 1) * len(family.common_columns)
    # Anchors free mean and standard deviation of ability, equal slopes the latter.
    count += 2 if problem.anchored else not family.has_slope
    size = np.size(parameters.population.mean)
    if size > 1:
        # A rotation of the factors changes nothing; joint methods have no correlations.
        estimated = parameters.theta is None and bool(correlates(problem))
        count += (estimated - bool(rotates(problem))) * (size * (size - 1) // 2)
    count += 0 if parameters.theta is None else np.size(parameters.theta)
    return count + (0 if parameters.lengths is None else 3 * num_items + 1)


@stored_jit
def _coordinates(problem: Problem, parameters: Parameters) -> tuple[Array, Array]:
    """Coordinates of the items, and the log prior of items, common slope, lengths."""
    model, weight = problem.model, problem.data.item_weight
    items, population, _, lengths = parameters
    coordinates = model.unconstrain(items)
    frame = jnp.zeros(2, coordinates.dtype)
    if not problem.anchored:
        frame = model.prior_frame(coordinates, frame, 30, weight)
    total = model.total_log_prior(coordinates, frame, weight)
    sd = estimation_scale(problem, Start(items, None, population)).sd
    total = total + jnp.sum(model.log_common_slope_prior(sd))
    return coordinates, total + model.length_model.log_prior(lengths, weight)


class NodePosteriors(NamedTuple):
    """Posteriors of one ability on nodes.

    `with_all` is the problem as it was solved; `problem` has its response lengths,
    the `part`, as evidence of abilities. `population` is on the scale of the
    coordinates; its weights and `nodes` are those of `grid`, the method's, if any.
    """

    with_all: Problem
    problem: Problem
    part: LengthPart | None
    solution: Any
    population: Population
    grid: Nodes | None
    nodes: Array

    @classmethod
    def of(cls, problem: Problem, solution: Any) -> NodePosteriors:
        """Those on the nodes of the method; else on nodes that suit the posteriors."""
        items, normal, _, lengths = solution.fit.parameters
        with_evidence, part = with_lengths(problem, lengths)
        population = estimation_scale(with_evidence, Start(items, None, normal))
        grid = solution.method.nodes_of(solution.fit.state)
        if grid is None:
            nodes = choose_nodes(problem.model, items, normal, with_evidence.data)
            nodes = jnp.asarray(nodes, jnp.asarray(items[0]).dtype)
        else:
            nodes = grid.nodes
            population = population._replace(log_weights=grid.log_weights)
        return cls(problem, with_evidence, part, solution, population, grid, nodes)

    @property
    def centre(self) -> np.ndarray | None:
        """The node nearest to each posterior, where the method has it."""
        nearest = None if self.grid is None else self.grid.nearest
        return None if nearest is None else np.asarray(nearest)

    def errors(self, coordinates: Array, kind: str) -> ParameterErrors:
        """Errors of the items at their coordinates."""
        problem, model = self.problem, self.problem.model
        if self.part is None:
            of = problem, coordinates, self.population, self.nodes
            if problem.data.is_streamed:
                from irtjax.inference.streamed import streamed_covariance

                covariance = streamed_covariance(*of, self.centre)
            else:
                covariance = item_covariance(*of, kind=kind)
            count = int(covariance.negative)
            return ParameterErrors(
                covariance, (_no_maximum(model, count),) if count else ()
            )
        from irtjax.inference.length_errors import length_covariance

        lengths = length_covariance(
            self.with_all, coordinates, self.part.parameters, self.nodes
        )
        covariance = lengths.of_items()
        if bool(covariance.definite):
            return ParameterErrors(covariance, (), lengths)
        cure = "use fewer items or more subjects" if model.priors else "use priors"
        warning = (
            "the information matrix is not positive definite: some item parameters are"
            f" not identified, so no item standard errors are given; {cure}"
        )
        return ParameterErrors(warnings=(warning,))

    def moves(self, errors: ParameterErrors) -> Array | None:
        """How the evidence of subjects moves along the rows of the covariance."""
        if errors.lengths is None:
            return None
        from irtjax.inference.length_errors import evidence_moves

        lengths, shared = self.solution.fit.parameters.lengths, errors.lengths
        return evidence_moves(self.with_all, lengths, shared.shared_lengths)

    def scores(self, errors: ParameterErrors) -> dict[str, Any]:
        """Fields of `Estimates`: abilities, given the items or joint, and scores."""
        items, normal, theta, _ = self.solution.fit.parameters
        model, data = self.problem.model, cast(Any, self.problem.data)
        population = normal._replace(log_weights=self.population.log_weights)
        if data.is_streamed:
            from irtjax.inference.streamed import streamed_scores

            return streamed_scores(
                model,
                items,
                population,
                data,
                self.nodes,
                errors.covariance,
                self.centre,
            )
        moves = self.moves(errors)
        # Two passes over the data, of about the same length.
        passes = watched(range(2), "pass")
        next(passes)
        scores = score(
            model,
            items,
            population,
            data,
            scoring="eap" if theta is None else "map",
            nodes=self.nodes,
            item_covariance=errors.covariance,
            evidence_moves=moves,
        )
        next(passes)
        expected = watched_expected_scores(
            model, items, population, data, self.nodes, errors.covariance, moves
        )
        next(passes, None)
        return {
            "ability": on_host(scores.ability if theta is None else theta),
            "error": on_host(scores.standard_error),
            "shared": on_host(scores.shared),
            "expected": expected,
            "unfinished": (np.asarray(scores.flag) & int(ScoreFlag.UNFINISHED)) > 0,
        }

    def fields(self, errors: ParameterErrors, scores: dict[str, Any]) -> dict[str, Any]:
        """Other fields of `Estimates`."""
        items, _, theta, _ = self.solution.fit.parameters
        model, data, lengths = self.problem.model, self.problem.data, None
        if self.part is not None:
            speed = None
            if errors.lengths is not None and scores["shared"] is not None:
                from irtjax.inference.length_errors import speed_error

                ability = jnp.asarray(scores["ability"])
                speed = speed_error(
                    self.part, self.with_all.data, ability, errors.lengths
                )
            lengths = LengthEstimates(self.part, errors.lengths, speed)
        normal = theta is None and lengths is None
        fields = {
            "normal": normal and _is_normal(self.problem, self.grid),
            "resolution": self.solution.resolution,
            "at_end": _at_end(self.grid, data.subject_weight),
            "lengths": lengths,
        }
        if theta is not None and not model.priors and model.family.diverges:
            from irtjax.estimators.joint.objective import diverging

            lost = diverging(model, data, items, theta)
            fields["infinite"] = np.asarray(lost.subjects)
            fields["diverging"] = np.asarray(lost.items)
        return fields


def _no_maximum(model: Model, count: int) -> str:
    """Warning of a stationary point that is not a maximum."""
    directions = f"{count} directions" if count > 1 else "one direction"
    cure = "use priors, or" if not model.priors else "use narrower priors, or"
    return (
        "the estimate is not a maximum: the log-posterior curves upwards in"
        f" {directions} (negative eigenvalues of the observed information);"
        f" {cure} a model with fewer parameters per item"
    )


def _at_end(grid: Nodes | None, weight: Array | None) -> int:
    """How many subjects with any weight are at the first or the last node."""
    if grid is None or grid.nearest is None:
        return 0
    nearest, last = np.asarray(grid.nearest), grid.nodes.shape[0] - 1
    counts = True if weight is None else np.asarray(weight) > 0
    return int(np.sum(((nearest == 0) | (nearest == last)) & counts))


def _is_normal(problem: Problem, grid: Nodes | None) -> bool:
    """Whether abilities are assumed normal: no histogram, no scale of anchors."""
    if problem.anchored or problem.model.scale != "standard":
        return False
    if grid is None or grid.log_weights is None:
        return True
    nodes, weights = np.asarray(grid.nodes), np.asarray(grid.log_weights)
    return bool(np.ptp(weights + nodes**2 / 2) < NORMAL_WEIGHTS)
