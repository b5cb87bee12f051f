r"""Gaussian variational EM of logistic factor models (Cho, Wang, Zhang and Xu 2021).

The posterior of the abilities of a subject is taken as N(mu_i, S_i), which with the
bound of `quadratic_em` has closed forms. With h_ij = h(xi_ij), n trials, weights v_j,

    S_i^-1 = Sigma^-1 + 2 sum_j v_j n_ij h_ij a_j a_j',
    mu_i = S_i sum_j v_j ((y_ij - n_ij / 2) - 2 n_ij h_ij d_j) a_j,
    xi_ij^2 = E eta_ij^2 = d_j^2 + 2 d_j a_j'mu_i + a_j'(S_i + mu_i mu_i') a_j,

and with z = (1, theta) the items solve

    (sum_i 2 n_ij h_ij E z z' + prior) (d_j, a_j) = sum_i (y_ij - n_ij / 2) E z + prior.

The lower bound of log p(y_i) is, at these xi,

    sum_j v_j (E eta_ij (y_ij - n_ij / 2) - n_ij log(2 cosh(xi_ij / 2)))
        - KL(N(mu_i, S_i), N(0, Sigma)).

Its estimates have slopes that are too small with few items to a factor. `GVEM` is
therefore followed by EM on points around each posterior (`around`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.estimators.driver import Run, RunSettings, Solution, drive
from irtjax.estimators.joint.bound import Quadratic
from irtjax.estimators.joint.objective import block_weight
from irtjax.estimators.marginal.around import EMAround, refine
from irtjax.estimators.marginal.quadratic_em import (
    AbstractQuadraticEM,
    FactorPoint,
    Sweep,
)
from irtjax.estimators.settings import check_least
from irtjax.likelihood.cubature import points_for
from irtjax.likelihood.problem import Problem, Start
from irtjax.likelihood.products import outer
from irtjax.numerics.kernels import (
    block_size_for,
    inverse_of,
    put_block,
    scan_subject_blocks,
    softplus,
    take_block,
    weigh_rows,
)


class NormalPosteriors(NamedTuple):
    """Normal posteriors of the abilities."""

    mean: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]


class GVEM(AbstractQuadraticEM):
    """Marginal estimation of factor models by Gaussian variational EM, then corrected.

    The variational steps raise a lower bound of the log posterior. With `correct`, EM
    on points around each subject's posterior then maximises the log posterior itself:
    a product Gauss-Hermite rule for up to three factors, importance draws for more. The
    reported log-likelihood is that at these points, with its Monte-Carlo error.
    `irtjax.run` takes the variational steps alone and returns the lower bound.

    Attributes:
        correct: Whether to maximise the likelihood after its bound.
        num_samples: Draws for each subject with more than three factors.
        num_inner: Updates of the posteriors in a pass over the data.

    >>> import irtjax
    >>> from irtjax.estimators.start import start_values
    >>> from irtjax.models.catalogue import factor_model
    >>> data = irtjax.Responses(jnp.eye(6, 9, dtype=jnp.int8))
    >>> problem = irtjax.Problem.create(factor_model(irtjax.Factor(2)), data)
    >>> start = start_values(problem.model, data)
    >>> fit = eqx.filter_jit(irtjax.run)(problem, GVEM(), start)  # One program.
    >>> fit.parameters.items.discrimination.shape
    (9, 2)
    """

    runs: ClassVar[RunSettings] = AbstractQuadraticEM.runs._replace(max_steps=2000)

    correct: bool = eqx.field(static=True, default=True)
    num_samples: int = eqx.field(static=True, default=200)
    num_inner: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        """Refuses settings that no fit can have."""
        check_least("GVEM", self, num_samples=2, num_inner=1)

    def divides(self, model: Any) -> bool:
        """Whether a model has several abilities, and no lengths."""
        return model.several and not (model.multilevel or model.has_lengths)

    def first_posterior(self, problem: Problem, start: Start) -> NormalPosteriors:
        """Posteriors without responses."""
        slopes = start.items.discrimination
        count, dims = problem.data.num_subjects, slopes.shape[1]
        unit = jnp.eye(dims, dtype=slopes.dtype)
        none = jnp.zeros((count, dims), slopes.dtype)
        return NormalPosteriors(none, jnp.broadcast_to(unit, (count, dims, dims)))

    def sweep(
        self, problem: Problem, point: FactorPoint, posterior: NormalPosteriors
    ) -> Sweep:
        """Updates the posteriors, and sums what items need, block by block."""
        rows = _Rows.of(problem, point)
        one = lambda data, old: self._pass(data, rows, old)
        (curvature, linear, second, total), by_subject = problem.data.fold(
            one, posterior
        )
        bound, settled, mean, covariance = by_subject
        curvature = curvature.reshape(*point.stacked.shape, -1)
        gradient = linear - jnp.einsum("jpq,jq->jp", curvature, point.stacked)
        new, items = NormalPosteriors(mean, covariance), Quadratic(gradient, curvature)
        return Sweep(bound, items, second / total, new, jnp.sqrt(jnp.max(settled)))

    def _pass(self, data: Any, rows: _Rows, posterior: NormalPosteriors) -> Any:
        """Sums over some subjects, and their bounds, largest moves and posteriors."""
        stacked = rows.point.stacked
        dtype, (num_items, width) = stacked.dtype, stacked.shape
        num_subjects, dims = data.num_subjects, width - 1
        size = block_size_for(num_subjects, num_items, dtype.itemsize)

        def body(carry, begin, is_new):
            curvature, linear, second, total, *by_subject = carry
            values = take_block(data.values, begin, size).astype(dtype)
            exposure = take_block(data.exposure, begin, size)
            exposure = 1.0 if exposure is None else exposure.astype(dtype)
            centred = values - exposure / 2
            pull = centred @ rows.slopes

            def improve(_, state):
                old = state[0]
                bend = rows.bend(old) * exposure
                matrix = (bend @ rows.products).reshape(-1, dims, dims) + rows.precision
                covariance, log_det = inverse_of(matrix)
                vector = pull - bend @ rows.cross
                mean = jnp.einsum("nkl,nl->nk", covariance, vector)
                move = (mean - old.mean) ** 2 / jnp.diagonal(
                    covariance, axis1=1, axis2=2
                )
                return NormalPosteriors(mean, covariance), -log_det, move

            first = NormalPosteriors(*(take_block(x, begin, size) for x in posterior))
            none = jnp.zeros(first.mean.shape[0], dtype)
            state = first, none, jnp.zeros_like(first.mean)
            new, log_det, move = lax.fori_loop(0, self.num_inner, improve, state)
            bound = rows.bound(new, log_det, centred, exposure)
            weight = block_weight(data, begin, is_new, dtype)
            moments = _moments(new)
            bend = rows.bend(new) * exposure
            design = moments[:, :width] * weight[:, None]
            at = moments.reshape(-1, width, width)[:, 1:, 1:]
            own = bound, jnp.max(move, axis=1), *new
            pairs = zip(by_subject, own, strict=True)
            return (
                curvature + bend.T @ (moments * weight[:, None]),
                linear + centred.T @ design,
                second + jnp.tensordot(weight, at, 1),
                total + jnp.sum(weight),
                *(put_block(x, y, begin) for x, y in pairs),
            )

        zeros = lambda *shape: jnp.zeros(shape, dtype)
        sums = zeros(num_items, width**2), zeros(num_items, width), zeros(dims, dims)
        each = zeros(num_subjects)
        init = *sums, zeros(), each, each, *map(jnp.zeros_like, posterior)
        results = scan_subject_blocks(body, init, num_subjects, size)
        return results[:4], results[4:]

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """The variational steps, then those on points; see the class."""
        steps = run.steps(self.runs.max_steps)
        fit = drive(problem, self, start, run.key, steps, run.clock)
        key = jax.random.key(0) if run.key is None else run.key
        (dims,) = problem.model.family.ability_shape
        points = points_for(dims, self.num_samples, key)
        around = EMAround(self.tolerance, self.memory, points)
        limit = steps if self.correct else 0
        refined = refine(problem, around, fit, limit, run)
        return Solution(refined.fit, self, steps, record=refined.record)

    def record(self) -> dict[str, Any]:
        """Whether the likelihood was maximised after its bound."""
        return {"correct": self.correct}


def _bend_of(square: Array) -> Array:
    """2 h(t) of t^2: the curvature of the bound of log sigma."""
    root = jnp.sqrt(jnp.maximum(square, 1e-6))
    return jnp.where(square > 1e-6, jnp.tanh(root / 2) / (2 * root), 0.25)


def _moments(posterior: NormalPosteriors) -> Array:
    """E z z' of every subject, z = (1, theta), as rows `[subjects, p p]`."""
    mean, covariance = posterior
    dims = mean.shape[1]
    z = jnp.concatenate([jnp.ones_like(mean[:, :1]), mean], axis=1)
    inner = jnp.pad(covariance, ((0, 0), (1, 0), (1, 0)))
    return outer(z) + inner.reshape(-1, (dims + 1) ** 2)


class _Rows(NamedTuple):
    """What a pass needs of the items, and of the factors' correlations.

    `slopes`, `products` a a' and `cross` d a have item weights, as `weight` are.
    """

    point: FactorPoint
    flat: Array
    weight: Array
    slopes: Array
    products: Array
    cross: Array
    precision: Array
    log_det: Array

    @classmethod
    def of(cls, problem: Problem, point: FactorPoint) -> _Rows:
        """What a sweep needs of a point, computed once."""
        weight, slopes = problem.data.item_weight, point.slopes
        precision, log_det = inverse_of(point.correlation)
        return cls(
            point,
            outer(point.stacked).T,
            weigh_rows(jnp.ones_like(point.intercept), weight),
            weigh_rows(slopes, weight),
            weigh_rows(outer(slopes), weight),
            weigh_rows(point.intercept[:, None] * slopes, weight),
            precision,
            log_det,
        )

    def square(self, posterior: NormalPosteriors) -> Array:
        """E eta^2 of a block of cells."""
        return jnp.maximum(_moments(posterior) @ self.flat, 0)

    def bend(self, posterior: NormalPosteriors) -> Array:
        """2 h(xi) of a block of cells."""
        return _bend_of(self.square(posterior))

    def bound(
        self, posterior: NormalPosteriors, log_det: Array, centred, exposure
    ) -> Array:
        """The lower bound of each subject of a block; `log_det` are those of S."""
        mean, covariance = posterior
        xi = jnp.sqrt(self.square(posterior))
        eta = mean @ self.point.slopes.T + self.point.intercept
        # log(2 cosh(x / 2)) = log(1 + e^x) - x / 2
        cells = eta * centred - exposure * (softplus(xi) - xi / 2)
        second = covariance + mean[:, :, None] * mean[:, None, :]
        distance = jnp.tensordot(second, self.precision, 2) - mean.shape[1]
        return cells @ self.weight - 0.5 * (distance - log_det + self.log_det)


def for_start(problem: Problem, start: Start, run: Run) -> Start:
    """Start values by the variational steps, without a correction."""
    method = dataclasses.replace(GVEM(), tolerance=1e-2)
    fit = drive(problem, method, start, None, method.runs.max_steps, run.clock)
    return Start(fit.parameters.items, None, fit.parameters.population)
