r"""Marginal estimation of logistic factor models: what its methods have in common.

Each method integrates the abilities out in a way of its own (`AbstractFactorEM.sweep`)
and has the rest from here. With h(t) = tanh(t / 2) / (4 t), the logistic function obeys

    log sigma(t) >= log sigma(s) + (t - s) / 2 - h(s) (t^2 - s^2),

with equality at t = s (Jaakkola and Jordan 2000), so the expected log-likelihood of an
item has a quadratic lower bound in (d, a), which is maximised exactly, with priors, and
with a >= 0 where requested. No step lowers the objective.

Abilities are kept on the scale of the start values, where their covariance V is
estimated (parameter expansion: Liu, Rubin and Wu 1998), so that posteriors stay where
they are while V and the items move. What is reported are abilities of variance 1, with
slopes V^(1/2) a where a rotation changes nothing, else D a with D the standard
deviations. Priors N(0, sd^2) are those of the reported slopes. Given the mean C of
E[theta theta'] over n subjects, and G the sum over items of a a' / sd^2 (its diagonal
where slopes become D a), the objective in V is

    -n/2 (log |V| + tr V^-1 C) - tr(G V) / 2,

whose maximum solves V + V G V / n = C: with C = R R' and R'GR = Q diag(g) Q',

    V = R Q diag(b) Q'R',   b = 2 / (1 + sqrt(1 + 4 g / n)).

A method whose integrals depend on the scale, if only by their error, fixes the scale in
place of that (`expands`): V is then a correlation matrix.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Progress, tree_where
from irtjax.estimators.joint.bound import (
    Quadratic,
    add_normal_prior,
    update_items,
)
from irtjax.estimators.settings import check_least
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.model import Model, Population
from irtjax.models.priors import Normal
from irtjax.numerics.acceleration import Memory, accelerate, empty_memory, forget
from irtjax.numerics.kernels import positive_definite_solve, weigh_rows

#: Scoring steps for the correlations of the factors in a step, each from the last.
NUM_SCORING = 3


class FactorPoint(NamedTuple):
    """What is estimated: rows (d, a) of the items, and the covariance of abilities."""

    stacked: Float[Array, "items p"]
    covariance: Float[Array, "dims dims"]

    @property
    def slopes(self) -> Float[Array, "items dims"]:
        """The discriminations."""
        return self.stacked[:, 1:]

    @property
    def intercept(self) -> Float[Array, " items"]:
        """The intercepts."""
        return self.stacked[:, 0]


class Sweep(NamedTuple):
    """One pass over the data at a point.

    Attributes:
        log_lik: Log-likelihood of each subject, or its lower bound.
        items: Quadratic bounds of the items' expected log-likelihoods.
        second: Weighted mean of E[theta theta'] over subjects.
        posterior: What the next pass starts from.
        settled: Largest move of a posterior mean that is left, in its standard
            deviations; 0 where posteriors are exact.
        variance: Of the log-likelihood, by random draws of abilities.
    """

    log_lik: Float[Array, " subjects"]
    items: Quadratic
    second: Float[Array, "dims dims"]
    posterior: Any
    settled: Scalar
    variance: Scalar


class FactorState(NamedTuple):
    """State: the point to evaluate next, and the best one so far.

    `log_lik`, `log_prior`, `objective`, `residual` and `variance` are those of `best`.
    `image` is one step from it, tried when a proposal is refused. `refused` counts
    points refused in a row.
    """

    point: FactorPoint
    best: FactorPoint
    image: FactorPoint
    posterior: Any
    log_lik: Float[Array, " subjects"]
    log_prior: Scalar
    objective: Scalar
    residual: Scalar
    variance: Scalar
    memory: Memory
    refused: Array
    num_seen: Array


class AbstractFactorEM(AbstractMethod):
    """Base class of marginal methods for logistic items with several abilities.

    The residual is the largest gradient or move of a free parameter, in standard errors
    given the abilities.

    Attributes:
        expands: Whether the scale of the abilities is estimated; see the module.
        tolerance: Converged at this residual; None for 1e-4 (1e-2 in single precision).
        memory: Depth of the acceleration; 0 turns it off.
    """

    marginal: ClassVar[bool] = True
    several: ClassVar[bool] = True
    expands: ClassVar[bool] = True

    tolerance: float | Array | None = None
    memory: int = eqx.field(static=True, default=5)

    def __check_init__(self):
        """Refuses settings that no fit can have."""
        check_least(type(self).__name__, self, memory=0)

    @abstractmethod
    def sweep(self, problem: Problem, point: FactorPoint, posterior: Any) -> Sweep:
        """One pass over the data."""

    @abstractmethod
    def first_posterior(self, problem: Problem, start: Start) -> Any:
        """What the first pass starts from."""

    def check(self, problem: Problem) -> None:
        """Refuses what the method does not solve."""
        super().check(problem)
        check_factors(problem.model, type(self).__name__)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> FactorState:
        """State at the start values."""
        check_factors(problem.model, type(self).__name__)
        slopes, intercept = start.items.discrimination, start.items.intercept
        dtype, dims = intercept.dtype, slopes.shape[1]
        covariance = jnp.eye(dims, dtype=dtype)
        if start.population is not None:
            covariance = start.population.covariance.astype(dtype)
        stacked = jnp.concatenate([intercept[:, None], slopes], axis=1)
        point = FactorPoint(stacked, covariance)
        flat, _ = ravel_pytree(point)
        zero, none = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return FactorState(
            point,
            best=point,
            image=point,
            posterior=self.first_posterior(problem, start),
            log_lik=jnp.zeros(problem.data.num_subjects, dtype),
            log_prior=zero,
            objective=zero,
            residual=jnp.full((), jnp.inf, dtype),
            variance=zero,
            memory=empty_memory(flat.size, max(self.memory, 1), dtype),
            refused=none,
            num_seen=none,
        )

    def step(
        self, problem: Problem, state: FactorState, key: KeyArray | None
    ) -> FactorState:
        """Judges the point, and raises items and correlations: a pass over the data."""
        data, point, model = problem.data, state.point, problem.model
        seen = self.sweep(problem, point, state.posterior)
        log_prior = log_prior_of(problem, point)
        weight = data.subject_weight
        weight = jnp.ones_like(seen.log_lik) if weight is None else weight
        first = state.num_seen == 0
        # The first objective is a plain sum; later ones add small, accurate gains.
        gain = jnp.sum(weight * (seen.log_lik - state.log_lik))
        gain = gain + log_prior - state.log_prior
        slack = 4 * jnp.finfo(gain.dtype).eps * jnp.linalg.norm(weight * seen.log_lik)
        accepted = first | (gain >= -slack)

        items = with_prior(problem, seen.items, point)
        free = free_of(problem)
        stacked = update_items(items, point.stacked, free, is_positive(model))
        total = jnp.sum(weight)
        if self.expands:
            covariance = best_covariance(problem, stacked[:, 1:], seen.second, total)
        else:
            covariance = best_correlation(point.covariance, seen.second)
            covariance = jnp.where(correlates(problem), covariance, point.covariance)
        image = FactorPoint(stacked, covariance)
        bend = weigh_rows(items.diagonal, data.item_weight)
        size = jnp.sqrt(jnp.diagonal(point.covariance))
        scale = FactorPoint(
            jnp.sqrt(bend), jnp.sqrt(total) / (size[:, None] * size[None])
        )
        gradient = jnp.abs(items.gradient) / jnp.sqrt(items.diagonal)
        if is_positive(model):  # A slope of 0 may be pushed against its bound.
            inside = point.stacked.at[:, 0].set(1) > 0
            gradient = jnp.where(inside, gradient, 0)
        moves = jax.tree.map(
            lambda new, old, by: jnp.abs(new - old) * by, image, point, scale
        )
        at_items = jnp.where(free, jnp.maximum(gradient, moves.stacked), 0)
        residual = jnp.maximum(jnp.max(at_items), jnp.max(moves.covariance))
        proposal, memory = self._propose(problem, point, image, scale, state.memory)
        better = FactorState(
            point=proposal,
            best=point,
            image=image,
            posterior=seen.posterior,
            log_lik=seen.log_lik,
            log_prior=log_prior,
            objective=state.objective + gain,
            residual=jnp.maximum(residual, seen.settled),
            variance=seen.variance,
            memory=memory,
            refused=state.refused,
            num_seen=state.num_seen,
        )
        again = state._replace(point=state.image, memory=memory)
        return tree_where(accepted, better, again)._replace(
            memory=forget(memory, ~accepted),
            refused=jnp.where(accepted, 0, state.refused + 1),
            num_seen=state.num_seen + 1,
        )

    def _propose(self, problem, point, image, scale, memory):
        """Accelerated proposal; the image itself when acceleration is off."""
        if self.memory == 0:
            return image, memory
        flat_point, unravel = ravel_pytree(point)
        flat_image, flat_scale = ravel_pytree(image)[0], ravel_pytree(scale)[0]
        flat, memory = accelerate(memory, flat_point, flat_image, flat_scale)
        proposal = unravel(flat)
        stacked = proposal.stacked
        if is_positive(problem.model):
            stacked = jnp.maximum(stacked, 0).at[:, 0].set(stacked[:, 0])
        # Fixed coordinates stay exactly, not up to the rounding of a mixture.
        stacked = jnp.where(free_of(problem), stacked, point.stacked)
        matrix = proposal.covariance
        fine = jnp.all(jnp.isfinite(jnp.linalg.cholesky(matrix)))
        return tree_where(fine, FactorPoint(stacked, matrix), image), memory

    def progress(self, problem: Problem, state: FactorState) -> Progress:
        """Objective and residual of the best point."""
        dtype = state.residual.dtype
        usual = 1e-4 if dtype == jnp.float64 else 1e-2
        tolerance = usual if self.tolerance is None else self.tolerance
        solved = state.residual <= jnp.asarray(tolerance, dtype)
        return Progress(state.objective, state.residual, solved, state.refused >= 2)

    def result(
        self, problem: Problem, state: FactorState
    ) -> tuple[Parameters, Float[Array, " subjects"]]:
        """Items and correlations, in a fixed order, and `Sweep.log_lik`."""
        slopes, correlation = oriented(problem, state.best)
        intercept = state.best.intercept
        zero, none = jnp.zeros_like(intercept), jnp.zeros_like(correlation[0])
        items = LogisticItems(slopes, intercept, zero, zero + 1)
        population = Population(none, none + 1, None, correlation)
        return Parameters(items, population, None), state.log_lik


def check_factors(model: Model, what: str) -> None:
    """Refuses models other than logistic ones with several abilities, normal priors."""
    if not model.family.dims:
        raise ValueError(
            f"{what} fits at least two abilities, and a {model.name} model has one: use"
            " method='em'"
        )
    family = model.family
    logistic = isinstance(family, Binary) and family.link == "logit"
    if not logistic or family.asymptotes:
        raise ValueError(
            f"{what} fits several abilities with logits of right or wrong responses"
            " alone: use method='mm'"
        )
    for parameter in model.family.parameters:
        prior = model.priors.get(parameter.name)
        if not (prior is None or isinstance(prior, Normal)):
            raise ValueError(
                f"{what} needs a Normal prior for {parameter.name}, not"
                f" {type(prior).__name__}: pass priors={{'{parameter.name}':"
                " Normal(0, sd)}"
            )
    mean = getattr(model.priors.get("discrimination"), "mean", 0.0)
    if isinstance(mean, float | int) and mean != 0:
        raise ValueError(
            f"{what} needs a prior of discriminations with mean 0, not {mean:g}: pass"
            " priors={'discrimination': Normal(0, sd)}, or use method='mm'"
        )


def is_positive(model: Model) -> bool:
    """Whether discriminations are kept at or above 0."""
    return model.family.parameters[0].bijection.kind == "positive"


def free_of(problem: Problem) -> Bool[Array, "items p"]:
    """The free mask in the order (d, a)."""
    return jnp.concatenate([problem.free[:, -1:], problem.free[:, :-1]], axis=1)


def rotates(problem: Problem) -> Array:
    """Whether a rotation of the factors changes nothing: all slopes free, any sign."""
    return jnp.all(problem.free) & (not is_positive(problem.model))


def correlates(problem: Problem) -> Array:
    """Whether correlations of the factors are estimated.

    They are not identified where the items of a factor include all those of another:
    in exploratory and bifactor models factors are uncorrelated.
    """
    mask = problem.free[:, : problem.model.family.dims].astype(jnp.int32)
    common, size = mask.T @ mask, jnp.sum(mask, axis=0)
    nested = common >= jnp.minimum(size[:, None], size)
    return ~jnp.any(nested & ~jnp.eye(len(size), dtype=bool))


def _precision(problem: Problem, covariance: Array) -> Array:
    """Precision of the slopes' prior on the scale of abilities of this covariance."""
    prior = problem.model.priors.get("discrimination")
    inverse = 1 / jnp.square(prior.sd) if isinstance(prior, Normal) else 0.0
    unit = jnp.eye(len(covariance), dtype=covariance.dtype)
    return jnp.where(rotates(problem), covariance, covariance * unit) * inverse


def with_prior(problem: Problem, items: Quadratic, point: FactorPoint) -> Quadratic:
    """The bounds with the items' priors."""
    prior, zero = problem.model.priors.get("intercept"), point.stacked[:1] * 0
    if isinstance(prior, Normal):
        first = zero.at[:, 0].set(1 / jnp.square(prior.sd))
        items = add_normal_prior(items, point.stacked, zero + prior.mean, first)
    precision = _precision(problem, point.covariance)
    gradient = items.gradient.at[:, 1:].add(-point.slopes @ precision)
    return Quadratic(gradient, items.curvature.at[:, 1:, 1:].add(precision))


def log_prior_of(problem: Problem, point: FactorPoint) -> Scalar:
    """Sum of the items' log priors at the reported slopes, with item weights."""
    zero = jnp.zeros_like(point.intercept)
    slopes, _ = standardised(problem, point)
    items = LogisticItems(slopes, point.intercept, zero, zero + 1)
    priors = jax.vmap(problem.model.log_prior)(items)
    return jnp.sum(weigh_rows(priors, problem.data.item_weight))


def standardised(problem: Problem, point: FactorPoint) -> tuple[Array, Array]:
    """Slopes and correlations of abilities of variance 1; see the module."""
    covariance = point.covariance
    size = jnp.sqrt(jnp.diagonal(covariance))
    values, axes = jnp.linalg.eigh(covariance)
    symmetric = (axes * jnp.sqrt(jnp.maximum(values, 0))) @ axes.T
    turns = rotates(problem)
    slopes = point.slopes @ jnp.where(turns, symmetric, jnp.diag(size))
    unit = jnp.eye(len(size), dtype=size.dtype)
    correlation = jnp.where(unit > 0, 1, covariance / size[:, None] / size)
    return slopes, jnp.where(turns, unit, correlation)


def inverse_of(matrix: Float[Array, "*batch p p"]) -> tuple[Array, Array]:
    """Inverses and log determinants of small positive definite matrices."""
    unit = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    shape = matrix.shape[:-1]
    solve = lambda row: positive_definite_solve(matrix, jnp.broadcast_to(row, shape))
    inverse, pivots = jax.vmap(solve, out_axes=-1)(unit)
    return inverse, jnp.sum(jnp.log(pivots[..., 0]), axis=-1)


def bend_of(square: Array) -> Array:
    """2 h(t) of t^2: the curvature of the bound of log sigma."""
    root = jnp.sqrt(jnp.maximum(square, 1e-6))
    return jnp.where(square > 1e-6, jnp.tanh(root / 2) / (2 * root), 0.25)


def best_covariance(
    problem: Problem, slopes: Array, second: Array, total: Array
) -> Array:
    """V given slopes, C (`second`) and n (`total`); see the module."""
    dtype = slopes.dtype
    gram = slopes.T @ weigh_rows(slopes, problem.data.item_weight)
    gram = gram * _precision(problem, jnp.ones_like(second))
    root = jnp.linalg.cholesky(second)
    at_root, vectors = jnp.linalg.eigh(root.T @ gram @ root)
    shrink = lambda g: 2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(g, 0) / total))
    wide = root @ vectors
    whole = (wide * shrink(at_root)) @ wide.T
    own = jnp.diagonal(second)
    alone = own * shrink(jnp.diagonal(gram) * own)
    whole = (whole + whole.T) / 2
    free = rotates(problem) | correlates(problem)
    return jnp.where(free, whole, jnp.diag(alone)).astype(dtype)


def best_correlation(
    first: Float[Array, "dims dims"], second: Float[Array, "dims dims"]
) -> Float[Array, "dims dims"]:
    """The correlation matrix R of highest -log |R| - tr R^-1 C, C being `second`.

    Scoring steps from a first one, each as long as it raises that.
    """
    dims, dtype = first.shape[0], first.dtype
    if dims == 1:
        return first
    low, high = np.tril_indices(dims, -1)
    basis = np.zeros((len(low), dims, dims))
    basis[np.arange(len(low)), low, high] = basis[np.arange(len(low)), high, low] = 1
    basis = jnp.asarray(basis, dtype)

    def height(matrix):
        root = jnp.linalg.cholesky(matrix)
        inner = jax.scipy.linalg.cho_solve((root, True), second)
        found = -2 * jnp.sum(jnp.log(jnp.diagonal(root))) - jnp.trace(inner)
        return jnp.where(jnp.isfinite(found), found, -jnp.inf)

    def improve(_, matrix):
        inverse, _ = inverse_of(matrix)
        rest = inverse @ second @ inverse - inverse
        gradient = jnp.tensordot(basis, rest, 2)
        along = inverse @ basis @ inverse
        step, _ = positive_definite_solve(
            jnp.tensordot(along, basis, [(1, 2)] * 2), gradient
        )
        move = jnp.tensordot(step, basis, 1)
        tried = matrix + jnp.array([1.0, 0.5, 0.1, 0.01], dtype)[:, None, None] * move
        heights = jnp.stack([height(x) for x in (*tried, matrix)])
        return jnp.concatenate([tried, matrix[None]])[jnp.argmax(heights)]

    return lax.fori_loop(0, NUM_SCORING, improve, first)


def oriented(problem: Problem, point: FactorPoint) -> tuple[Array, Array]:
    """Slopes and correlations of factors in a fixed order and direction.

    Where a rotation changes nothing, factors are the principal axes of the slopes, the
    largest sum of squares first. Slopes of any sign have a positive sum.
    """
    slopes, correlation = standardised(problem, point)
    unit = jnp.eye(len(correlation), dtype=correlation.dtype)
    _, axes = jnp.linalg.eigh(slopes.T @ slopes)
    slopes = slopes @ jnp.where(rotates(problem), axes[:, ::-1], unit)
    turn = (jnp.sum(slopes, axis=0) < 0) & (not is_positive(problem.model))
    sign = jnp.where(turn, -1, 1).astype(slopes.dtype)
    return slopes * sign, correlation * sign[:, None] * sign
