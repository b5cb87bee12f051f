r"""Marginal estimation of factor models: what its methods have in common.

Each method integrates the abilities out in a way of its own (`AbstractFactorEM.sweep`);
everything else is here. With h(t) = tanh(t / 2) / (4 t), the logistic function obeys

    log sigma(t) >= log sigma(s) + (t - s) / 2 - h(s) (t^2 - s^2),

with equality at t = s (Jaakkola and Jordan 2000), so the expected log-likelihood of an
item has a quadratic lower bound in (d, a), which is maximised exactly, with priors, and
with a >= 0 where requested. No step lowers the objective. (On a grid, where other
families are fitted too, items are raised by Newton steps: `newton`.)

Correlations R of factors are estimated in confirmatory models. Given the mean C of
E[theta theta'] over n subjects and a prior worth k subjects with uncorrelated factors,

    -k/2 (log |R| + tr R^-1),

which keeps R away from singular matrices, R maximises -log |R| - tr R^-1 C* with
C* = (n C + k I) / (n + k).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.ascent import AbstractAscent, AscentState, Image
from irtjax.estimators.driver import tree_where
from irtjax.estimators.joint.bound import Quadratic, add_normal_prior, update_items
from irtjax.estimators.marginal.newton import Raised
from irtjax.estimators.settings import check_least
from irtjax.likelihood.cubature import MOST_DIMS
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    correlates,
    is_positive,
    rotates,
)
from irtjax.models.families.graded import AbstractCuts
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model, Population
from irtjax.models.priors import Normal
from irtjax.numerics.kernels import (
    inverse_of,
    inverse_root,
    positive_definite_solve,
    weigh_rows,
)

#: Scoring steps for the correlations of the factors in a step, each from the last.
NUM_SCORING = 3
#: Subjects that the prior of the correlations is worth.
PRIOR_SUBJECTS = 2.0


class FactorPoint(NamedTuple):
    """What is estimated: rows (d, a) of the items, and correlations of the factors.

    Items of ordered categories have several intercepts d.
    """

    stacked: Float[Array, "items p"]
    correlation: Float[Array, "dims dims"]

    @property
    def slopes(self) -> Float[Array, "items dims"]:
        """The discriminations."""
        return self.stacked[:, -len(self.correlation) :]

    @property
    def intercept(self) -> Float[Array, "items *cuts"]:
        """The intercepts."""
        cuts = self.stacked[:, : -len(self.correlation)]
        return cuts[:, 0] if cuts.shape[1] == 1 else cuts


class Sweep(NamedTuple):
    """One pass over the data at a point.

    Attributes:
        log_lik: Log-likelihood of each subject, or its lower bound.
        items: Quadratic bounds of the items' expected log-likelihoods.
        second: Weighted mean of E[theta theta'] over subjects.
        posterior: What the next pass starts from.
        settled: Largest move of a posterior mean that is left, in its standard
            deviations; 0 where posteriors are exact.
        raised: Items that the pass has raised itself; None to maximise the bounds.
    """

    log_lik: Float[Array, " subjects"]
    items: Quadratic
    second: Float[Array, "dims dims"]
    posterior: Any
    settled: Scalar
    raised: Raised | None = None


class AbstractFactorMarginal(AbstractAscent):
    """Base class of marginal methods of several abilities.

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

    def _correlation(self, problem, correlation: Array, second: Array, total: Array):
        """The best correlations where they are estimated."""
        unit = jnp.eye(len(correlation), dtype=correlation.dtype)
        second = total * second + PRIOR_SUBJECTS * unit
        best = best_correlation(correlation, second / (total + PRIOR_SUBJECTS))
        return jnp.where(correlates(problem), best, correlation)

    def _residual(self, problem, point, image, scale, items: Quadratic) -> Scalar:
        """Largest gradient or move of a free parameter, in standard errors."""
        tiny = jnp.finfo(items.diagonal.dtype).tiny * 1e6
        root = jnp.sqrt(jnp.maximum(items.diagonal, tiny))
        gradient = jnp.abs(items.gradient) / root
        if is_positive(problem.model):  # A slope of 0 may be pushed against its bound.
            cuts = point.stacked.shape[1] - len(point.correlation)
            inside = point.stacked.at[:, :cuts].set(1) > 0
            gradient = jnp.where(inside, gradient, 0)
        moves = jax.tree.map(
            lambda new, old, by: jnp.abs(new - old) * by, image, point, scale
        )
        at_items = jnp.maximum(gradient, moves.stacked)
        moves = moves._replace(stacked=jnp.where(free_of(problem), at_items, 0))
        return jnp.max(jnp.stack([jnp.max(x) for x in moves]))

    def feasible(
        self, problem: Problem, state: AscentState, proposal: Any, image: Image
    ) -> Any:
        """Slopes within their bounds, and correlations that are positive definite."""
        stacked = proposal.stacked
        if is_positive(problem.model):
            cuts = stacked.shape[1] - len(proposal.correlation)
            slopes = jnp.maximum(stacked[:, cuts:], 0)
            stacked = jnp.concatenate([stacked[:, :cuts], slopes], axis=1)
        # Fixed coordinates stay exactly, not up to the rounding of a mixture.
        stacked = jnp.where(free_of(problem), stacked, state.point.stacked)
        fine = jnp.all(jnp.isfinite(inverse_root(proposal.correlation)))
        return tree_where(fine, proposal._replace(stacked=stacked), image.point)

    def goal(self, problem: Any, dtype: Any) -> Any:
        """The tolerance, by default that of the precision."""
        usual = 1e-4 if dtype == jnp.float64 else 1e-2
        return usual if self.tolerance is None else self.tolerance


class AbstractFactorEM(AbstractFactorMarginal):
    """Base class of marginal methods for categories and several abilities.

    The residual is the largest gradient or move of a free parameter, in standard errors
    given the abilities. Settings are those of `AbstractFactorMarginal`. `logistic`
    states whether the method needs the bound of logits of right or wrong responses.
    """

    logistic: ClassVar[bool] = True

    @abstractmethod
    def sweep(self, problem: Problem, point: FactorPoint, posterior: Any) -> Sweep:
        """One pass over the data."""

    @abstractmethod
    def first_posterior(self, problem: Problem, start: Start) -> Any:
        """What the first pass starts from."""

    def check(self, problem: Problem) -> None:
        """Refuses what the method does not solve."""
        super().check(problem)
        check_factors(problem.model, type(self).__name__, self.logistic)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values."""
        check_factors(problem.model, type(self).__name__, self.logistic)
        start = with_own_correlation(problem, start)
        assert start.population is not None
        slopes, intercept = start.items.discrimination, start.items.intercept
        dtype = intercept.dtype
        correlation = start.population.covariance.astype(dtype)
        cuts = intercept.reshape(len(intercept), -1)
        stacked = jnp.concatenate([cuts, slopes], axis=1)
        point = FactorPoint(stacked, correlation)
        posterior = self.first_posterior(problem, start)
        return self.first_state(point, problem.data.num_subjects, carry=posterior)

    def image(self, problem: Problem, state: AscentState) -> Image:
        """Raises items and correlations: a pass over the data."""
        data, point, model = problem.data, state.point, problem.model
        seen = self.sweep(problem, point, state.carry)
        if seen.raised is None:
            mean, precision = prior_moments(model, point)
            items = add_normal_prior(seen.items, point.stacked, mean, precision)
            stacked = update_items(
                items, point.stacked, free_of(problem), is_positive(model)
            )
        else:
            stacked, items = seen.raised
        total = jnp.sum(weigh_rows(jnp.ones_like(seen.log_lik), data.subject_weight))
        correlation = self._correlation(problem, point.correlation, seen.second, total)
        raised = FactorPoint(stacked, correlation)
        bend = weigh_rows(items.diagonal, data.item_weight)
        of_pairs = jnp.full_like(point.correlation, jnp.sqrt(total))
        scale = FactorPoint(jnp.sqrt(bend), of_pairs)
        residual = self._residual(problem, point, raised, scale, items)
        return Image(
            raised,
            seen.log_lik,
            log_prior_of(problem, items_of(model, point), point.correlation),
            jnp.maximum(residual, seen.settled),
            scale,
            seen.posterior,
        )

    def result(
        self, problem: Problem, state: AscentState
    ) -> tuple[Parameters, Float[Array, " subjects"]]:
        """Items and correlations, in a fixed order, and `Sweep.log_lik`."""
        return as_parameters(problem, state.best), state.log_lik


def is_logistic(family: Any) -> bool:
    """Whether responses are right or wrong, by the logistic link."""
    return (
        isinstance(family, Binary) and family.link == "logit" and not family.asymptotes
    )


def check_factors(model: Model, what: str, logistic: bool = True) -> None:
    """Refuses models without several abilities in categories and normal priors.

    Args:
        model: The model.
        what: The name of the method.
        logistic: Whether only right or wrong by the logistic link will do.
    """
    family = model.family
    if not family.dims:
        raise ValueError(
            f"{what} fits at least two abilities, and a {model.name} model has one: use"
            " method='em'"
        )
    if logistic and not is_logistic(family):
        cure = "'em'" if family.dims <= MOST_DIMS or not family.num_categories else ""
        cure = " or ".join(filter(None, [cure, "'mm'" * bool(family.num_categories)]))
        raise ValueError(
            f"{what} fits several abilities with logits of right or wrong responses"
            f" alone: use method={cure}"
        )
    binary = isinstance(family, Binary) and not family.asymptotes
    if not (binary or isinstance(family, AbstractCuts)):
        raise ValueError(
            f"{what} fits several abilities with right or wrong responses, graded ones"
            f" and partial credit, not with those of this model {model.name!r}"
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


def free_of(problem: Problem) -> Bool[Array, "items p"]:
    """The free mask in the order (d, a)."""
    free, dims = problem.free, problem.model.family.dims
    cuts = list(problem.model.family.intercept_columns)
    return jnp.concatenate([free[:, cuts], free[:, :dims]], axis=1)


def prior_moments(model: Model, point: FactorPoint) -> tuple[Array, Array]:
    """Means and precisions of the priors of (d, a); precision 0 without one."""
    means, precisions, dims = [], [], point.slopes.shape[1]
    cuts = point.stacked.shape[1] - dims
    for name in [*["intercept"] * cuts, *["discrimination"] * dims]:
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
    if model.family.parameters[-1].size:
        fields["intercept"] = point.intercept.reshape(len(point.stacked), -1)
    return model.family.complete(fields)


def log_prior_of(problem: Problem, items: Any, correlation: Array) -> Scalar:
    """Log priors of the items, with item weights, and of the correlations."""
    priors = jax.vmap(problem.model.log_prior)(items)
    inverse, log_det = inverse_of(correlation)
    # 0 for uncorrelated factors.
    rest = log_det + jnp.trace(inverse) - len(inverse)
    total = jnp.sum(weigh_rows(priors, problem.data.item_weight))
    return total - 0.5 * PRIOR_SUBJECTS * rest


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
        root = inverse_root(matrix)
        log_det = -2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        value = -log_det - jnp.sum((root @ second) * root)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

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


def with_own_correlation(problem: Problem, start: Start) -> Start:
    """Start values with correlations of the factors as the model has them.

    Where a rotation changes nothing, factors are uncorrelated: with L L' the given
    correlations, slopes A L on such factors mean the same. Other models without free
    correlations start from the slopes as they are.
    """
    slopes = start.items.discrimination
    dtype, dims = slopes.dtype, slopes.shape[1]
    none, unit = jnp.zeros(dims, dtype), jnp.eye(dims, dtype=dtype)
    own = unit
    if start.population is not None and start.population.correlation is not None:
        own = start.population.correlation.astype(dtype)
    slopes = jnp.where(rotates(problem), slopes @ jnp.linalg.cholesky(own), slopes)
    population = Population(
        none, none + 1, None, jnp.where(correlates(problem), own, unit)
    )
    items = start.items._replace(discrimination=slopes)
    return start._replace(items=items, population=population)


def oriented(problem: Problem, point: Any) -> tuple[Array, Population]:
    """Slopes and population of a point, factors in a fixed order and direction.

    Where a rotation changes nothing, factors are the principal axes of the slopes, the
    largest sum of squares first. Slopes of any sign have a positive sum.
    """
    correlation = point.correlation
    slopes = point.stacked[:, -len(correlation) :]
    unit = jnp.eye(len(correlation), dtype=correlation.dtype)
    _, axes = jnp.linalg.eigh(slopes.T @ slopes)
    slopes = slopes @ jnp.where(rotates(problem), axes[:, ::-1], unit)
    turn = (jnp.sum(slopes, axis=0) < 0) & (not is_positive(problem.model))
    sign = jnp.where(turn, -1, 1).astype(slopes.dtype)
    none = jnp.zeros_like(correlation[0])
    correlation = correlation * sign[:, None] * sign + 0.0
    return slopes * sign, Population(none, none + 1, None, correlation)


def as_parameters(problem: Problem, point: FactorPoint) -> Parameters:
    """A point as `oriented` has it."""
    slopes, population = oriented(problem, point)
    items = items_of(problem.model, point)._replace(discrimination=slopes)
    return Parameters(items, population, None)
