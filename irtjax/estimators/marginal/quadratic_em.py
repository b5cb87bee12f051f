r"""EM of several abilities whose items have quadratic objectives: what is in common.

Each method integrates the abilities out in a way of its own (`sweep`); everything else
is here. With h(t) = tanh(t / 2) / (4 t), the logistic function obeys

    log sigma(t) >= log sigma(s) + (t - s) / 2 - h(s) (t^2 - s^2),

with equality at t = s (Jaakkola and Jordan 2000), so the expected log-likelihood of an
item has a quadratic lower bound in (d, a), which is maximised exactly, with priors, and
with a >= 0 where requested. No step lowers the objective.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.acceptance import check_factors
from irtjax.estimators.ascent import AbstractAscent, AscentState, Image
from irtjax.estimators.driver import tree_where
from irtjax.estimators.joint.bound import Quadratic, add_normal_prior, update_items
from irtjax.estimators.marginal.correlations import (
    PRIOR_SUBJECTS,
    log_prior_of,
    oriented,
    raised_correlation,
    with_own_correlation,
)
from irtjax.estimators.settings import check_least
from irtjax.likelihood.problem import Parameters, Problem, Start, is_positive
from irtjax.models.model import Model
from irtjax.models.priors import Normal
from irtjax.numerics.kernels import inverse_root, weigh_rows


class FactorPoint(NamedTuple):
    """What is estimated: rows (d, a) of the items, and correlations of the factors.

    Items of scores have logarithms of residual standard deviations.
    """

    stacked: Float[Array, "items p"]
    correlation: Float[Array, "dims dims"]
    log_sd: Float[Array, " items"] | None = None

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
        items: The items' expected log-likelihoods in (d, a), or bounds of them.
        second: Weighted mean of E[theta theta'] over subjects.
        posterior: What the next pass starts from.
        settled: Largest move of a posterior mean that is left, in its standard
            deviations; 0 where posteriors are exact.
        sums: What residual standard deviations depend on, of scores.
    """

    log_lik: Float[Array, " subjects"]
    items: Quadratic
    second: Float[Array, "dims dims"]
    posterior: Any = None
    settled: Scalar | float = 0.0
    sums: Any = None


class AbstractQuadraticEM(AbstractAscent):
    """Base class of marginal methods of several abilities with quadratic items.

    The residual is the largest gradient or move of a free parameter, in standard errors
    given the abilities.

    Attributes:
        tolerance: Converged at this residual; None for 1e-4 (1e-2 in single precision).
        memory: Depth of the acceleration; 0 turns it off.
    """

    marginal: ClassVar[bool] = True
    several: ClassVar[bool] = True
    prior_subjects: ClassVar[float] = PRIOR_SUBJECTS

    tolerance: float | Array | None = None
    memory: int = eqx.field(static=True, default=5)

    def __check_init__(self):
        """Refuses settings that no fit can have."""
        check_least(type(self).__name__, self, memory=0)

    @property
    def num_differences(self) -> int:
        """Depth of the acceleration."""
        return self.memory

    def _residual(self, problem, point, image, scale, items: Quadratic) -> Scalar:
        """Largest gradient or move of a free parameter, in standard errors."""
        tiny = jnp.finfo(items.diagonal.dtype).tiny * 1e6
        root = jnp.sqrt(jnp.maximum(items.diagonal, tiny))
        gradient = jnp.abs(items.gradient) / root
        if is_positive(problem.model):  # A slope of 0 may be pushed against its bound.
            inside = point.stacked.at[:, 0].set(1) > 0
            gradient = jnp.where(inside, gradient, 0)
        moves = jax.tree.map(
            lambda new, old, by: jnp.abs(new - old) * by, image, point, scale
        )
        at_items = jnp.maximum(gradient, moves.stacked)
        moves = moves._replace(stacked=jnp.where(free_of(problem), at_items, 0))
        return jnp.max(jnp.stack([jnp.max(x) for x in jax.tree.leaves(moves)]))

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Any, image: Image
    ) -> Any:
        """Slopes within their bounds, and correlations that are positive definite."""
        stacked = proposal.stacked
        if is_positive(problem.model):
            slopes = jnp.maximum(stacked[:, 1:], 0)
            stacked = jnp.concatenate([stacked[:, :1], slopes], axis=1)
        # Fixed coordinates stay exactly, not up to the rounding of a mixture.
        stacked = jnp.where(free_of(problem), stacked, state.point.stacked)
        fine = jnp.all(jnp.isfinite(inverse_root(proposal.correlation)))
        return tree_where(fine, proposal._replace(stacked=stacked), image.point)

    def goal(self, problem: Any, dtype: Any) -> Any:
        """The tolerance, by default that of the precision."""
        usual = 1e-4 if dtype == jnp.float64 else 1e-2
        return usual if self.tolerance is None else self.tolerance

    @abstractmethod
    def sweep(self, problem: Problem, point: FactorPoint, posterior: Any) -> Sweep:
        """One pass over the data."""

    @abstractmethod
    def first_posterior(self, problem: Problem, start: Start) -> Any:
        """What the first pass starts from."""

    def residual_sd(
        self, model: Model, sums: Any, stacked: Array
    ) -> tuple[Array | None, Array | None]:
        """Best `FactorPoint.log_sd` given (d, a), and roots of its curvature."""
        return None, None

    def check(self, problem: Problem) -> None:
        """Refuses what the method does not solve."""
        super().check(problem)
        check_factors(problem.model, type(self).__name__)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values."""
        start = with_own_correlation(problem, start)
        assert start.population is not None
        point = point_of(start.items, start.population.covariance)
        posterior = self.first_posterior(problem, start)
        return self.first_state(point, problem.data.num_subjects, carry=posterior)

    def image(self, problem: Problem, state: AscentState) -> Image:
        """Raises items and correlations: a pass over the data."""
        data, point, model = problem.data, state.point, problem.model
        seen = self.sweep(problem, point, state.carry)
        mean, precision = prior_moments(model, point)
        items = add_normal_prior(seen.items, point.stacked, mean, precision)
        stacked = update_items(
            items, point.stacked, free_of(problem), is_positive(model)
        )
        total = jnp.sum(weigh_rows(jnp.ones_like(seen.log_lik), data.subject_weight))
        correlation = raised_correlation(problem, point.correlation, seen.second, total)
        log_sd, of_sd = self.residual_sd(model, seen.sums, stacked)
        raised = FactorPoint(stacked, correlation, log_sd)
        bend = weigh_rows(items.diagonal, data.item_weight)
        of_pairs = jnp.full_like(point.correlation, jnp.sqrt(total))
        scale = FactorPoint(jnp.sqrt(bend), of_pairs, of_sd)
        residual = self._residual(problem, point, raised, scale, items)
        return Image(
            raised,
            seen.log_lik,
            log_prior_at(problem, point),
            jnp.maximum(residual, seen.settled),
            scale,
            seen.posterior,
        )

    def result(
        self, problem: Problem, state: AscentState
    ) -> tuple[Parameters, Float[Array, " subjects"]]:
        """Items and correlations, in a fixed order, and `Sweep.log_lik`."""
        return as_parameters(problem, state.best), state.log_lik


def point_of(items: Any, correlation: Float[Array, "dims dims"]) -> FactorPoint:
    """The point of item records."""
    stacked = jnp.concatenate([items.intercept[:, None], items.discrimination], axis=1)
    dispersion = getattr(items, "dispersion", None)
    log_sd = None if dispersion is None else jnp.log(dispersion)
    return FactorPoint(stacked, correlation.astype(stacked.dtype), log_sd)


def free_of(problem: Problem) -> Bool[Array, "items p"]:
    """The free mask in the order (d, a)."""
    family = problem.model.family
    return problem.free[:, [*family.intercept_columns, *family.slope_columns]]


def prior_moments(model: Model, point: FactorPoint) -> tuple[Array, Array]:
    """Means and precisions of the priors of (d, a); precision 0 without one."""
    means, precisions = [], []
    for name in ["intercept", *["discrimination"] * point.slopes.shape[1]]:
        prior = model.priors.get(name)
        normal = isinstance(prior, Normal)
        means.append(prior.mean if normal else 0.0)
        precisions.append(1 / jnp.square(prior.sd) if normal else 0.0)
    dtype = point.stacked.dtype
    stack = lambda part: jnp.stack([jnp.asarray(x, dtype) for x in part])
    return stack(means), stack(precisions)


def items_of(model: Model, point: FactorPoint) -> Any:
    """Item records of a point."""
    fields = {"discrimination": point.slopes, "intercept": point.intercept}
    if point.log_sd is not None:
        fields["dispersion"] = jnp.exp(point.log_sd)
    return model.family.complete(fields)


def log_prior_at(problem: Problem, point: FactorPoint) -> Scalar:
    """Log priors of the items, with item weights, and of the correlations."""
    items = items_of(problem.model, point)
    priors = jax.vmap(problem.model.log_prior)(items)
    total = jnp.sum(weigh_rows(priors, problem.data.item_weight))
    return total + log_prior_of(point.correlation)


def as_parameters(problem: Problem, point: FactorPoint) -> Parameters:
    """A point as `oriented` has it."""
    slopes, population = oriented(problem, point.slopes, point.correlation)
    items = items_of(problem.model, point)._replace(discrimination=slopes)
    return Parameters(items, population, None)
