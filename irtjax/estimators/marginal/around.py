r"""EM of logistic factor models on points around the posterior of each subject.

With theta_ir = c_i + L_i z_r around the mode c_i of a posterior, L_i L_i' its normal
approximation, the likelihood of a subject is the sum over r of

    |L_i| exp(q_r) N(theta_ir; 0, Sigma) prod_j p(y_ij | theta_ir)

(`likelihood.cubature`): adaptive quadrature (Naylor and Smith 1982) or importance
sampling. The points stay where they are while items change, so that EM never lowers
this sum; they are placed again after it has converged (`refine`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import Scalar, Status
from irtjax.estimators.driver import Fit, Run, drive
from irtjax.estimators.joint.bound import Quadratic
from irtjax.estimators.joint.objective import block_weight
from irtjax.estimators.marginal.quadratic_em import (
    AbstractQuadraticEM,
    FactorPoint,
    Sweep,
    as_parameters,
    point_of,
)
from irtjax.inference.vector_scores import (
    FactorScores,
    score_factors,
    watched_score_factors,
)
from irtjax.likelihood.cubature import Points
from irtjax.likelihood.problem import Parameters, Problem, Start, rotates
from irtjax.likelihood.products import outer
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    blocks_in_stretches,
    inverse_of,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)
from irtjax.numerics.programs import stored_jit

#: Length of an item's slopes below which it has no direction.
SHORTEST = 1e-6
#: Placements of the points, and the gain in nats below which they stay.
MOST_PLACEMENTS, SMALL_GAIN = 4, 0.01


class Placed(NamedTuple):
    """Centres and roots of the points of each subject."""

    centre: Float[Array, "subjects dims"]
    root: Float[Array, "subjects dims dims"]

    @classmethod
    def around(cls, scores: FactorScores) -> Placed:
        """Points around modes."""
        return cls(scores.ability, jnp.linalg.cholesky(scores.covariance))


class Likelihoods(NamedTuple):
    """Log-likelihood of each subject, and the variance of their sum by draws."""

    by_subject: Float[Array, " subjects"]
    variance: Scalar

    @classmethod
    def none(cls, num_subjects: int, dtype: Any) -> Likelihoods:
        """What is found of no subject."""
        return cls(jnp.zeros(num_subjects, dtype), jnp.zeros((), dtype))


class _Constants(NamedTuple):
    """What every block needs of a point: (d, a) and 1 with the weights of the items.

    `precision` is the inverse of the correlations, `log_density` the logarithm of the
    constant of their density.
    """

    right: Float[Array, "items p"]
    each: Float[Array, " items"]
    precision: Float[Array, "dims dims"]
    log_density: Scalar

    @classmethod
    def of(cls, problem: Problem, point: FactorPoint) -> _Constants:
        """Computed once for each pass."""
        weight, (num_items, width) = problem.data.item_weight, point.stacked.shape
        each = weigh_rows(jnp.ones(num_items, point.stacked.dtype), weight)
        precision, log_det = inverse_of(point.correlation)
        constant = -0.5 * (log_det + (width - 1) * jnp.log(2 * jnp.pi))
        return cls(weigh_rows(point.stacked, weight), each, precision, constant)


class _Block(NamedTuple):
    """A block of subjects: responses, abilities at points, and what cells are there.

    `counted` multiplies cells by the number of trials, `chance` and `bend` are those of
    `_logistic`, and `share` is the posterior of the points.
    """

    values: Array
    theta: Float[Array, "block points dims"]
    counted: Callable[[Array], Array]
    chance: Array
    bend: Array
    share: Float[Array, "block points"]
    log_lik: Float[Array, " block"]


class EMAround(AbstractQuadraticEM):
    """Marginal maximum likelihood (or MAP) of factor models on points of each subject.

    Attributes:
        points: Standard points; `likelihood.cubature.points_for` makes them.
    """

    points: Points | None = None

    def first_posterior(self, problem: Problem, start: Start) -> Placed:
        """Points around the modes at the start values."""
        if self.points is None:
            raise ValueError("EMAround has no points: use method='gvem', or points_for")
        population = start.population
        if population is None:
            dims, dtype = self.points.num_abilities, start.items.intercept.dtype
            population = Population(jnp.zeros(dims, dtype), jnp.ones(dims, dtype))
        scores = score_factors(
            problem.model, start.items, population, problem.data, start.theta
        )
        return Placed.around(scores)

    def sweep(self, problem: Problem, point: FactorPoint, posterior: Placed) -> Sweep:
        """Likelihood of every subject, and what items need of its posterior."""
        constants = _Constants.of(problem, point)
        one = lambda data, own: self._pass(data, point, constants, *own)
        rows = posterior, jnp.arange(problem.data.num_subjects)
        (curvature, gradient, second, total), log_lik = problem.data.fold(one, rows)
        curvature = curvature.reshape(*point.stacked.shape, -1)
        items = Quadratic(gradient, curvature)
        settled = jnp.zeros((), point.stacked.dtype)
        return Sweep(log_lik, items, second / total, posterior, settled)

    def _pass(
        self,
        data: Any,
        point: FactorPoint,
        constants: _Constants,
        posterior: Placed,
        numbers: Array,
    ) -> Any:
        """Sums over some subjects, whose numbers are given, and log-likelihoods."""
        num_items, width = point.stacked.shape
        dtype, dims = point.stacked.dtype, width - 1
        size = self.block_size(data.num_subjects, num_items, dtype.itemsize)

        def body(carry, begin, is_new):
            curvature, gradient, second, total, log_lik = carry
            own = posterior, numbers
            part = self._block(data, point, constants, own, begin, size)
            weight = block_weight(data, begin, is_new, dtype)
            at = (part.share * weight[:, None]).reshape(-1, 1)
            flat = part.theta.reshape(-1, dims)
            design = jnp.concatenate([jnp.ones_like(flat[:, :1]), flat], axis=1)
            mean = jnp.einsum("nr,nrk->nk", part.share, part.theta)
            z_mean = jnp.concatenate([jnp.ones_like(mean[:, :1]), mean], axis=1)
            minus = part.counted(part.chance).T @ (design * at)
            moments = outer(flat) * at
            return (
                curvature + part.counted(part.bend).T @ (outer(design) * at),
                gradient + part.values.T @ (z_mean * weight[:, None]) - minus,
                second + jnp.sum(moments, axis=0).reshape(dims, dims),
                total + jnp.sum(weight),
                put_block(log_lik, part.log_lik, begin),
            )

        zeros = lambda *shape: jnp.zeros(shape, dtype)
        sums = zeros(num_items, width**2), zeros(num_items, width), zeros(dims, dims)
        init = *sums, zeros(), zeros(data.num_subjects)
        *sums, log_lik = scan_subject_blocks(body, init, data.num_subjects, size)
        return tuple(sums), log_lik

    def block_size(self, num_subjects: int, num_items: int, itemsize: int) -> int:
        """Subjects of a block, with all cells at all points."""
        assert self.points is not None
        bytes_of_row = self.points.num_points * num_items * itemsize
        size = min(num_subjects, max(1, BLOCK_BYTES // (4 * bytes_of_row)))
        return -(-num_subjects // -(-num_subjects // size))

    def likelihoods(
        self,
        problem: Problem,
        point: FactorPoint,
        scores: FactorScores,
        into: Likelihoods | None = None,
        between: Array | None = None,
    ) -> Likelihoods:
        """Likelihoods on points around modes, some blocks into those of others."""
        num_items, dtype = len(point.stacked), point.stacked.dtype
        constants = _Constants.of(problem, point)

        def one(data: Any, own: tuple[Placed, Array]) -> tuple[Array, Array]:
            num_subjects = data.num_subjects
            size = self.block_size(num_subjects, num_items, dtype.itemsize)

            def body(carry: Likelihoods, begin, is_new) -> Likelihoods:
                part = self._block(data, point, constants, own, begin, size)
                weight = block_weight(data, begin, is_new, dtype)
                variance = carry.variance + weight**2 @ self._variance(part.share)
                by_subject = put_block(carry.by_subject, part.log_lik, begin)
                return Likelihoods(by_subject, variance)

            init = Likelihoods.none(num_subjects, dtype) if into is None else into
            sums = scan_subject_blocks(body, init, num_subjects, size, between)
            return sums.variance, sums.by_subject

        rows = Placed.around(scores), jnp.arange(problem.data.num_subjects)
        variance, by_subject = problem.data.fold(one, rows)
        return Likelihoods(by_subject, variance)

    def watched_likelihoods(
        self, problem: Problem, point: FactorPoint, scores: FactorScores
    ) -> Likelihoods:
        """`likelihoods` around modes, in calls that show the share done."""
        count, dtype = problem.data.num_subjects, point.stacked.dtype
        if problem.data.is_divided:
            return _likelihoods(self, problem, point, scores)
        return blocks_in_stretches(
            lambda *part: _likelihoods(self, problem, point, scores, *part),
            lambda: Likelihoods.none(count, dtype),
            count,
            self.block_size(count, len(point.stacked), dtype.itemsize),
        )

    def _block(
        self,
        data: Any,
        point: FactorPoint,
        constants: _Constants,
        own: tuple[Placed, Array],
        begin: Array,
        size: int,
    ) -> _Block:
        """Likelihoods of a block of subjects, and its cells at all points.

        `own` are points around each subject, and numbers of subjects for their draws.
        """
        assert self.points is not None
        posterior, numbers = own
        dtype = point.stacked.dtype
        num_items, dims = len(point.stacked), posterior.centre.shape[1]
        values = take_block(data.values, begin, size).astype(dtype)
        exposure = take_block(data.exposure, begin, size)
        rows = take_block(numbers, begin, size)
        z, log_ratio = self.points.of_subjects(rows, dtype)
        root = take_block(posterior.root, begin, size)
        theta = take_block(posterior.centre, begin, size)[:, None]
        theta = theta + jnp.einsum(
            "nkl,nrl->nrk", root, jnp.broadcast_to(z, (size, *z.shape[1:]))
        )
        flat = theta.reshape(-1, dims)
        eta = flat @ point.slopes.T + point.intercept

        def counted(cells):
            """Cells at every point, times the number of trials."""
            if exposure is None:
                return cells
            cells = cells.reshape(size, -1, num_items)
            cells = cells * exposure.astype(dtype)[:, None]
            return cells.reshape(-1, num_items)

        base, chance, bend = _logistic(eta)
        up = values @ constants.right
        joint = up[:, :1] + jnp.einsum("nrk,nk->nr", theta, up[:, 1:])
        joint = joint - (counted(base) @ constants.each).reshape(size, -1)
        distance = jnp.sum((flat @ constants.precision) * flat, axis=1)
        scale = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
        joint = joint - distance.reshape(size, -1) / 2 + log_ratio + scale[:, None]
        total = jax.nn.logsumexp(joint, axis=1)
        share = jnp.exp(joint - total[:, None])
        log_lik = total + constants.log_density
        return _Block(values, theta, counted, chance, bend, share, log_lik)

    def _variance(self, share: Float[Array, "block points"]) -> Array:
        """Variance of log-likelihoods by draws, which come in pairs; 0 of a rule."""
        if self.points is None or not self.points.num_draws:
            return jnp.zeros(share.shape[0], share.dtype)
        half = share.shape[1] // 2
        pairs = share[:, :half] + share[:, half:]
        return jnp.sum((pairs - 1 / half) ** 2, axis=1) * half / max(half - 1, 1)


def _logistic(eta: Array) -> tuple[Array, Array, Array]:
    """Of cells: log(1 + e^eta), the chance of a right response, and 2 h(eta)."""
    # One exponential and one logarithm for each cell.
    tail = jnp.exp(-jnp.abs(eta))
    chance = jnp.where(eta >= 0, 1, tail) / (1 + tail)
    far = jnp.abs(eta) > 1e-3
    bend = jnp.where(far, (chance - 0.5) / jnp.where(far, eta, 1), 0.25)
    return jnp.maximum(eta, 0) + jnp.log1p(tail), chance, bend


_likelihoods = stored_jit(EMAround.likelihoods)


class Refined(NamedTuple):
    """A fit on points, and what the record of the fit states of them."""

    fit: Fit
    record: Mapping[str, Any]


def refine(
    problem: Problem, method: EMAround, fit: Fit, max_steps: int, run: Run
) -> Refined:
    """Maximises the likelihood from a fit of its bound; with 0 steps computes it.

    Points are placed around the posteriors, EM on them is run to its end, and so on
    until that gains less than `SMALL_GAIN`. With random draws, the log-likelihood that
    is returned is that of other draws, on which nothing was maximised.
    """
    lasting = max(max_steps, 1)
    weight, reported = problem.data.subject_weight, problem
    problem, parameters = without_rotation(problem, fit.parameters)
    trace, last = [_trace(fit)], fit

    def start() -> Start:
        return Start(parameters.items, None, parameters.population)

    before, gain = -np.inf, 0.0
    for _ in range(MOST_PLACEMENTS if max_steps else 0):
        last = drive(problem, method, start(), None, lasting, run.clock)
        trace.append(_trace(last))
        parameters = last.parameters
        gain = float(last.objective) - before
        before = float(last.objective)
        if gain < SMALL_GAIN or int(last.status) != Status.CONVERGED:
            break
    status = last.status
    if gain >= SMALL_GAIN and int(status) == Status.CONVERGED:
        status = jnp.full_like(status, Status.MAX_STEPS)  # Points still moved.
    points = method.points
    assert points is not None
    if points.key is not None:
        points = dataclasses.replace(points, key=jax.random.fold_in(points.key, 1))
    method = dataclasses.replace(method, points=points)
    items, population = parameters.items, parameters.population
    best = point_of(items, population.covariance)
    scores = watched_score_factors(problem.model, items, population, problem.data)
    seen = method.watched_likelihoods(problem, best, scores)
    by_subject = seen.by_subject
    total = by_subject if weight is None else by_subject * weight
    steps = np.concatenate(trace)
    error = float(np.sqrt(float(seen.variance)))
    record = {"points": points.num_points, "log_likelihood_error": error}
    refined = Fit(
        as_parameters(reported, best),
        jnp.sum(total),
        by_subject,
        last.objective,
        last.residual,
        status,
        jnp.asarray(len(steps), jnp.int32),
        jnp.asarray(steps),
        last.state,
        problem.model,
    )
    return Refined(refined, record)


def without_rotation(
    problem: Problem, parameters: Parameters
) -> tuple[Problem, Parameters]:
    """The problem with slopes fixed at 0 where a rotation of the factors can make them.

    Points that stay do not turn with the factors: the likelihood on them would depend
    a little on the rotation, and EM would creep along it. Of the items with the
    longest slopes in new directions, the first has slopes on one factor, the second on
    two, and so on.
    """
    if not bool(rotates(problem)):
        return problem, parameters
    slopes = np.asarray(parameters.items.discrimination, np.float64)
    free, basis, rest = np.array(problem.free), [], slopes.copy()
    dims = slopes.shape[1]
    for k in range(dims):
        item = int(np.argmax(np.sum(rest**2, axis=1)))
        length = np.linalg.norm(rest[item])
        if length < SHORTEST:
            return problem, parameters
        basis.append(rest[item] / length)
        rest = rest - np.outer(rest @ basis[-1], basis[-1])
        free[item, k + 1 : dims] = False
    turned = np.where(free[:, :dims], slopes @ np.stack(basis, axis=1), 0)
    dtype = parameters.items.discrimination.dtype
    items = parameters.items._replace(discrimination=jnp.asarray(turned, dtype))
    problem = dataclasses.replace(problem, free=jnp.asarray(free))
    return problem, parameters._replace(items=items)


def _trace(fit: Fit) -> np.ndarray:
    """The objectives after the steps that were taken."""
    return np.asarray(fit.trace)[: int(fit.num_steps)]
