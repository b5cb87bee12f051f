"""Estimates: what every method returns, and all that a calibration is built from.

Arrays and numbers only: names, files and messages with names are in `calibration`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import Status
from irtjax.estimators.joint.objective import diverging
from irtjax.estimators.timing import Clock
from irtjax.inference import (
    Covariance,
    LengthCovariance,
    ScoreFlag,
    SpeedError,
    evidence_moves,
    item_covariance,
    length_covariance,
    score,
    speed_error,
)
from irtjax.inference.expected import watched_expected_scores
from irtjax.inference.marginal_covariance import FactorCovariance
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import Parameters, Problem, Start, estimation_scale
from irtjax.likelihood.products import by_product
from irtjax.likelihood.quadrature import Resolution, choose_nodes
from irtjax.models.families.bounded import log_base_total
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.models.multilevel.covariance_mixture import Possible
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched

#: Log weights of nodes that differ by less from a normal density's are normal.
NORMAL_WEIGHTS = 1e-3


class Nodes(NamedTuple):
    """The nodes that a marginal method integrated abilities on, standardised.

    `log_weights` is None for those of a normal density; `nearest` is the index of the
    node nearest to each subject, or None.
    """

    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"] | None = None
    nearest: Array | None = None


class GroupEstimates(NamedTuple):
    """Abilities by group, and variance components, of a multilevel model.

    Attributes:
        general: `[subjects]` general abilities, with standard errors.
        shared: `[subjects, any]` loadings of what those errors share.
        ability: `[subjects, groups]`, with standard errors.
        coordinates: `[items, columns]`, with covariance `[items, columns, columns]`.
        own: `[groups, groups]` Sigma; `bounds` are those of its correlations.
        effects: `[effects, columns]`, those of the groups last.
        subject_effects: `[2, covariates]` gamma and their standard errors.
        variance: tau^2, of the general ability.
        possible: Draws of Sigma, tau^2 and scales; None with one group.
        standard_deviations: `[components + 1 + clusters, columns]`, of the effects of
            each level, of items around these, and of each benchmark's items; NaN where
            one is not estimated.
        accepted: Share of proposals accepted in drawing `possible`, by `laplace`.
        scale: `[subjects]` part of the shared error that stretches all general
            abilities alike (`ranking.scale_loadings`); 0 where there is none.
        expected: `[subjects]` expected scores, means of expected responses over all
            items, and their standard errors.
        group: `[items]` group of each item.
        vanishing: `[groups]` whether the group-specific abilities shrink to nothing;
            None where that was not requested.
    """

    general: np.ndarray
    general_error: np.ndarray
    shared: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    coordinates: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray] | None
    effects: np.ndarray
    subject_effects: np.ndarray
    variance: float
    possible: Possible | None
    standard_deviations: np.ndarray
    accepted: float = 1.0
    scale: np.ndarray | float = 0.0
    expected: tuple[np.ndarray, np.ndarray] | None = None
    group: np.ndarray | None = None
    vanishing: np.ndarray | None = None


class FactorEstimates(NamedTuple):
    """Several abilities and the loadings of items on them.

    Attributes:
        ability: `[subjects, factors]` modes, with posterior covariance
            `[subjects, factors, factors]` about them; `mean` and `spread` are mean and
            covariance of the nearest normal distribution.
        loadings: `[items, factors]` standardised, a / sqrt(a'Phi a + v), v the variance
            of the link's distribution, with standard errors (None without).
        correlation: `[factors, factors]` Phi.
        structure: `[items, factors]` correlations of items and factors.
        communality: `[items]` share of the item's latent variance due to the factors.
        rotation: Name of the rotation, or "none".
        share_at_best: Share of random starts of the rotation that reached its best
            value; None without rotation.
        axes_known: Whether the errors of loadings are those of known axes, without the
            error of a rotation.
        item_errors: Covariances of the items' natural slopes and other coordinates;
            None without errors.
        correlation_error: `[factors, factors]` standard errors of Phi, 0 on the
            diagonal; None where correlations are fixed or their errors not known.
        at_fixed_axes: `[items, columns, columns]` the covariances of `item_errors`
            without the error of the rotation; None without rotation or errors.
        from_target: `[factors]` root mean square of the differences of loadings from
            the specified cells of a target, NaN without any; None without a target.
        certificate: Of the number of factors, if the penalty of noise found it; None
            without.
    """

    ability: np.ndarray
    covariance: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    loadings: np.ndarray
    loadings_error: np.ndarray | None
    correlation: np.ndarray
    structure: np.ndarray
    communality: np.ndarray
    rotation: str = "none"
    share_at_best: float | None = None
    axes_known: bool = True
    item_errors: FactorCovariance | None = None
    correlation_error: np.ndarray | None = None
    at_fixed_axes: np.ndarray | None = None
    from_target: np.ndarray | None = None
    certificate: float | None = None


class LengthEstimates(NamedTuple):
    """The part of response lengths: its data, errors, and errors of speed."""

    part: LengthPart
    covariance: LengthCovariance | None
    speed: SpeedError | None


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
    """What a method found, in arrays, whatever the method and the model.

    Attributes:
        problem: The items' model, the data, and which coordinates were estimated.
        coordinates: `[items, columns]`, unconstrained, with their covariance, which is
            None where errors were not computed.
        ability: `[subjects]`, with standard errors.
        shared: `[subjects, rank]` loadings of what these errors share, or None.
        expected: Expected scores and their standard errors, each `[subjects]`.
        log_likelihood: In nats, without priors; of scores on their own scale.
        num_parameters: Estimated parameters; effective ones of a multilevel model.
        num_steps: Steps taken, or draws; `trace` has the objective after each.
        residual: Distance from a stationary point.
        priors: Names of item parameters that have priors.
        finite: Whether estimates exist whatever the responses are: the method stopped
            early (`trained`), or every parameter has a prior.
        joint: Whether abilities were parameters.
        sampled: Whether errors are those of draws of all parameters.
        normal: Whether the method assumes normal abilities of unit variance.
        limit: Name of the setting that limits the steps.
        scale: `[subjects]` part of `shared` that stretches all abilities alike; None:
            to be found from `shared`.
        resolution: How nodes compare with the posteriors, or None.
        at_end: Subjects at the first or the last node.
        unfinished: `[subjects]` whether a score is provisional, or None.
        infinite: `[subjects]` whether an ability has no finite estimate, or None.
        diverging: `[items]` whether an item has no finite estimate, or None.
        lengths: Of models with response lengths; `groups`: of multilevel models;
            `factors`: of models with several abilities.
        verdict: What a sampler's diagnostics conclude, or why items have no errors.
        directions: `[items]` signs of slopes and chances of the others, by `laplace`.
    """

    problem: Problem
    parameters: Parameters
    coordinates: Array
    covariance: Covariance | None
    ability: np.ndarray
    error: np.ndarray
    shared: np.ndarray | None
    expected: Any
    log_likelihood: float
    log_prior: float
    num_parameters: int
    status: Status
    num_steps: int
    trace: np.ndarray
    residual: float
    priors: frozenset[str]
    finite: bool = False
    trained: bool = False
    joint: bool = False
    sampled: bool = False
    normal: bool = False
    limit: str = "max_steps"
    scale: np.ndarray | None = None
    resolution: Resolution | None = None
    at_end: int = 0
    unfinished: np.ndarray | None = None
    infinite: np.ndarray | None = None
    diverging: np.ndarray | None = None
    warnings: tuple[str, ...] = ()
    lengths: LengthEstimates | None = None
    groups: GroupEstimates | None = None
    factors: FactorEstimates | None = None
    draws: Any = None
    verdict: tuple[str, ...] = ()
    directions: Any = None

    @property
    def several(self) -> bool:
        """Whether items have slopes on several abilities; these are `factors`."""
        return self.factors is not None

    @property
    def multilevel(self) -> bool:
        """Whether items were integrated out; `groups` has the rest."""
        return self.groups is not None

    @property
    def num_groups(self) -> int:
        """Number of groups of items with an ability each; 1 for one of all items."""
        return self.by_group[0].shape[1]

    @property
    def by_group(self) -> tuple[np.ndarray, np.ndarray]:
        """`[subjects, groups]` abilities, and `[items]` group of each item."""
        if self.groups is None or self.groups.group is None:
            return self.ability[:, None], np.zeros(self.problem.data.num_items, int)
        return self.groups.ability, self.groups.group

    @property
    def by_item(self) -> tuple[Any, Any, np.ndarray]:
        """Family and records for one ability, and `[subjects, items]` that of each."""
        model, items = self.problem.model, self.parameters.items
        if (factors := self.factors) is None:
            ability, group = self.by_group
            return model.family, items, ability[:, group]
        product = factors.mean @ np.asarray(items.discrimination).T
        return *by_product(model, items), product


def item_estimates(
    problem: Problem,
    solution: Any,
    *,
    standard_errors: str = "observed",
    item_uncertainty: bool = True,
    clock: Clock,
) -> Estimates:
    """Estimates of a method that estimates items as parameters, from its `Solution`.

    Parameters without abilities are marginal. `standard_errors` is "observed",
    "cross_product", "sandwich" or "none"; with `item_uncertainty`, errors of abilities
    include the items'.
    """
    fit, method = solution.fit, solution.method
    estimates = fit.parameters
    joint = estimates.theta is not None
    with_all, model = problem, problem.model
    problem, part = with_lengths(problem, estimates.lengths)
    start = Start(estimates.items, None, estimates.population)
    population = estimation_scale(problem, start)
    coordinates, log_prior = _coordinates(problem, estimates.items, population)
    grid = method.nodes_of(fit.state)
    if grid is not None:
        nodes = grid.nodes
        population = population._replace(log_weights=grid.log_weights)
    else:
        items, normal = estimates.items, estimates.population
        nodes = choose_nodes(problem.model, items, normal, problem.data)
        nodes = jnp.asarray(nodes, coordinates.dtype)
    clock.report("standard errors", 0, math.nan, math.nan)
    with clock.phase("standard_errors"):
        covariance, of_lengths, warnings = _errors(
            with_all, problem, part, coordinates, population, nodes, standard_errors
        )
    clock.report("scores", 0, math.nan, math.nan)
    with clock.phase("scores"):
        of_items, moves = covariance if item_uncertainty else None, None
        if of_lengths is not None and item_uncertainty:
            moves = evidence_moves(
                with_all, estimates.lengths, of_lengths.shared_lengths
            )
        scores = _scores(problem, estimates, population, nodes, of_items, moves)
        speed = None
        if part is not None and of_lengths is not None and scores["shared"] is not None:
            ability = jnp.asarray(scores["ability"])
            speed = speed_error(part, with_all.data, ability, of_lengths)
    lost = None
    if estimates.theta is not None and not model.priors and model.family.diverges:
        lost = diverging(model, problem.data, estimates.items, estimates.theta)
    log_prior = float(log_prior)
    if part is not None:
        log_prior += float(
            part.model.log_prior(part.parameters, problem.data.item_weight)
        )
    return Estimates(
        problem=problem,
        parameters=estimates,
        coordinates=coordinates,
        covariance=covariance,
        **scores,
        **of_run(problem, solution),
        log_prior=log_prior,
        num_parameters=_num_parameters(problem, coordinates, estimates.theta, part),
        joint=joint,
        normal=not joint and part is None and _is_normal(problem, grid),
        resolution=solution.resolution,
        at_end=_at_end(grid, problem.data.subject_weight),
        infinite=None if lost is None else np.asarray(lost.subjects),
        diverging=None if lost is None else np.asarray(lost.items),
        warnings=(*solution.warnings, *warnings),
        lengths=None if part is None else LengthEstimates(part, of_lengths, speed),
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


def _num_parameters(problem: Problem, coordinates, theta, part) -> int:
    """Number of estimated parameters, with abilities where these are parameters."""
    family = problem.model.family
    count = int(np.asarray(problem.free).sum())
    count -= (len(coordinates) - 1) * len(family.common_columns)
    # Anchors free mean and standard deviation of ability, equal slopes the latter.
    count += 2 if problem.anchored else not family.has_slope
    count += 0 if theta is None else len(theta)
    return count + (0 if part is None else 3 * len(coordinates) + 1)


def _scores(
    problem: Problem,
    estimates: Parameters,
    population: Population,
    nodes: Array,
    covariance: Covariance | None,
    moves: Any,
) -> dict[str, Any]:
    """Fields of `Estimates`: abilities, given the items or joint, and their scores."""
    weighted = estimates.population._replace(log_weights=population.log_weights)
    model, items, data = problem.model, estimates.items, problem.data
    # Two passes over the data, of about the same length.
    passes = watched(range(2), "pass")
    next(passes)
    scores = score(
        model,
        items,
        weighted,
        data,
        scoring="eap" if estimates.theta is None else "map",
        nodes=nodes,
        item_covariance=covariance,
        evidence_moves=moves,
    )
    next(passes)
    expected = watched_expected_scores(
        model, items, weighted, data, nodes, covariance, moves
    )
    next(passes, None)
    ability = scores.ability if estimates.theta is None else estimates.theta
    shared = scores.shared
    return {
        "ability": np.asarray(ability, np.float64),
        "error": np.asarray(scores.standard_error, np.float64),
        "shared": None if shared is None else np.asarray(shared, np.float64),
        "expected": expected,
        "unfinished": (np.asarray(scores.flag) & int(ScoreFlag.UNFINISHED)) > 0,
    }


def cut_estimates(padded: Estimates, problem: Problem) -> Estimates:
    """Estimates of padded data, those of the problem alone (`likelihood.padding`)."""
    if padded.problem.data is problem.data:
        return padded
    rows, columns = slice(problem.data.num_subjects), slice(problem.data.num_items)
    covariance = padded.covariance
    if covariance is not None:
        lost, scale, cross = covariance.lost
        covariance = covariance._replace(
            items=covariance.items[columns],
            items_scale=covariance.items_scale[columns],
            shared=covariance.shared[:, columns],
            lost=(lost[columns], scale, cross[columns]),
        )
    items = jax.tree.map(lambda x: x[columns], padded.parameters.items)
    return dataclasses.replace(
        padded,
        problem=problem,
        parameters=padded.parameters._replace(items=items),
        coordinates=padded.coordinates[columns],
        covariance=covariance,
        ability=padded.ability[rows],
        error=padded.error[rows],
        shared=None if padded.shared is None else padded.shared[rows],
        expected=jax.tree.map(lambda x: x[rows], padded.expected),
        unfinished=None if padded.unfinished is None else padded.unfinished[rows],
    )


def _errors(
    with_all: Problem,
    problem: Problem,
    part: LengthPart | None,
    coordinates: Array,
    population: Population,
    nodes: Array,
    kind: str,
) -> tuple[Covariance | None, LengthCovariance | None, list[str]]:
    """Covariance of items, that of lengths if any, and what is wrong with them."""
    model = problem.model
    if kind == "none":
        return None, None, []
    if part is None:
        covariance = item_covariance(problem, coordinates, population, nodes, kind=kind)
        negative = int(covariance.negative)
        return covariance, None, [_no_maximum(model, negative)] if negative else []
    of_lengths = length_covariance(with_all, coordinates, part.parameters, nodes)
    of_items = of_lengths.of_items()
    if bool(of_items.definite):
        return of_items, of_lengths, []
    cure = "use fewer items or more subjects" if model.priors else "use priors"
    warning = (
        "the information matrix is not positive definite: some item parameters are not"
        f" identified, so no item standard errors are given; {cure}"
    )
    return None, None, [warning]


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


@stored_jit
def _coordinates(
    problem: Problem, items: Items, population: Population
) -> tuple[Array, Array]:
    """Coordinates of the items, and the log prior of items and common slope."""
    model, weight = problem.model, problem.data.item_weight
    coordinates = model.unconstrain(items)
    frame = jnp.zeros(2, coordinates.dtype)
    if not problem.anchored:
        frame = model.prior_frame(coordinates, frame, 30, weight)
    total = model.total_log_prior(coordinates, frame, weight)
    return coordinates, total + model.log_common_slope_prior(population.sd)
