r"""Crossed random effects of subjects and items, with variances by marginal likelihood.

The logit of a right response is the sum of an effect of the subject and one of the item
(Rasch's model with random effects on both sides: De Boeck and Wilson 2004, Explanatory
Item Response Models),

.. math:: \eta_{ij} = o_{ij} + \alpha_i + \beta_j, \quad
          \alpha = \sum_c F_c g_c + r, \quad \beta = \sum_c E_c b_c + s,

with normal effects :math:`g_c \sim N(0, \sigma_c^2 I)` of each block of features and a
residual on either side. The logarithms of the variances maximise Laplace's
approximation of the marginal likelihood, with its exact gradient (and a weak prior of
those of features):

.. math:: L = \log p(y \mid \hat x) + \log p(\hat x) - \tfrac12 \log |H|,

with the mode :math:`\hat x` of all effects and the negative Hessian H there. A side
with many members has its residuals eliminated from H, whose size is then that of the
other side plus the features.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import expit

#: Prior standard deviation of the mean logit: 10 is flat for all that is not 0 or 1.
MEAN_SD = 10.0
#: Bounds of log variances: below, effects are 0 in effect; above, responses are.
LOWEST, HIGHEST = -9.0, 6.0
#: Newton steps to a mode, and the gain in log density that ends them.
STEPS, GAIN = 60, 1e-12
#: Share of a Newton step below which it is not halved again.
SMALLEST_STEP = 1e-4
#: Of a log density, relative.
ROUNDING = 1e-12
#: Standard deviation of the normal prior of a block's log variance, around a variance
#: of 1 of the logit: without it a block of few features can end at a variance of 0.
LOG_SD = 2.0


class CrossedResponses(NamedTuple):
    """Numbers right and of trials, `[subjects, items]`; 0 trials where missing."""

    right: np.ndarray
    trials: np.ndarray

    @property
    def turned(self) -> CrossedResponses:
        """Items as rows."""
        return CrossedResponses(self.right.T, self.trials.T)


class Variances(NamedTuple):
    """Variances of the blocks of features of a side, and of its residual."""

    blocks: np.ndarray
    residual: float


@dataclasses.dataclass(frozen=True)
class CrossedEffects:
    """Effects of subjects and items at their posterior mode.

    Attributes:
        row: `[rows]` effects of subjects, features and residual, with the mean.
        column: `[columns]` effects of items.
        row_variance: `[rows]`.
        column_variance: `[columns]`.
        variance: `[rows, columns]` posterior variances of the logits.
        row_variances: Variances of subjects' features and residual.
        column_variances: Those of items.
        row_blocks: Mean and covariance of each block's effects, of subjects.
        column_blocks: Those of items.
        log_likelihood: Laplace's approximation, at the variances.
    """

    row: np.ndarray
    column: np.ndarray
    row_variance: np.ndarray
    column_variance: np.ndarray
    variance: np.ndarray
    row_variances: Variances
    column_variances: Variances
    row_blocks: tuple[tuple[np.ndarray, np.ndarray], ...]
    column_blocks: tuple[tuple[np.ndarray, np.ndarray], ...]
    log_likelihood: float

    @property
    def turned(self) -> CrossedEffects:
        """The same with rows as columns."""
        return CrossedEffects(
            self.column,
            self.row,
            self.column_variance,
            self.row_variance,
            self.variance.T,
            self.column_variances,
            self.row_variances,
            self.column_blocks,
            self.row_blocks,
            self.log_likelihood,
        )


class _System(NamedTuple):
    """H with the residuals of columns eliminated.

    Attributes:
        factor: Cholesky factor of the reduced H, for `cho_solve`.
        cross: `[rows + effects, columns]` H between these and the residuals.
        diagonal: `[columns]` H of the residuals.
    """

    factor: tuple
    cross: np.ndarray
    diagonal: np.ndarray

    def solve(self, first: np.ndarray, rest: np.ndarray):
        """H^-1 times rows with effects, and residuals."""
        x = cho_solve(self.factor, first - self.cross @ (rest / self.diagonal))
        return x, (rest - self.cross.T @ x) / self.diagonal

    @property
    def log_determinant(self) -> float:
        """Of H."""
        return 2 * float(np.log(np.diag(self.factor[0])).sum()) + float(
            np.log(self.diagonal).sum()
        )


class _Point(NamedTuple):
    """Rows, effects of columns' features, and columns' residuals."""

    row: np.ndarray
    effects: np.ndarray
    rest: np.ndarray

    def moved(self, step: np.ndarray, rest: np.ndarray) -> _Point:
        """After a step of rows with effects, and of residuals."""
        count = len(self.row)
        row, effects = self.row + step[:count], self.effects + step[count:]
        return _Point(row, effects, self.rest + rest)


class _Mode(NamedTuple):
    """The posterior mode at some variances, and what its density is made of."""

    row: np.ndarray
    effects: np.ndarray
    rest: np.ndarray
    chance: np.ndarray
    system: _System
    precision: np.ndarray
    objective: float


class _Problem:
    """Responses and features with the larger side as columns."""

    def __init__(self, data: CrossedResponses, rows, columns, offset):
        self.data, self.offset = data, offset
        self.row_blocks = rows
        number = len(data.right)
        self.design = np.concatenate(
            [np.zeros((data.right.shape[1], 0)), *columns], axis=1
        )
        self.sizes = [block.shape[1] for block in columns]
        self.kernels = [block @ block.T for block in rows]
        self.mean_kernel = np.full((number, number), MEAN_SD**2)
        self.start = _Point(
            np.zeros(number),
            np.zeros(self.design.shape[1]),
            np.zeros(len(self.design)),
        )
        # A logit's variance of 1 from the features of each block, and for a residual.
        scales = [np.mean(np.sum(x**2, axis=1)) for x in (*rows, *columns)]
        centre = np.insert(-np.log(np.maximum(scales, 1e-6)), len(rows), 0.0)
        self.centre = np.append(centre, 0.0)
        # Residuals have no prior.
        self.has_prior = np.ones(len(self.centre))
        self.has_prior[[len(rows), -1]] = 0

    def mode(self, logs: np.ndarray) -> _Mode:
        """Newton's method with halved steps; the density is log-concave."""
        variance = np.exp(logs)
        split = len(self.kernels) + 1
        own, others = variance[:split], variance[split:]
        covariance = self.mean_kernel + own[-1] * np.eye(len(self.mean_kernel))
        for part, kernel in zip(own, self.kernels, strict=False):
            covariance = covariance + part * kernel
        factor = cho_factor(covariance, lower=True)
        precision = cho_solve(factor, np.eye(len(covariance)))
        precision = (precision + precision.T) / 2
        ridge = 1 / np.repeat(others[:-1], self.sizes)
        point = self.start
        value, chance = self._density(point, precision, ridge, others[-1])
        system = self._system(chance, precision, ridge, others[-1])
        for _ in range(STEPS):
            error = self.data.right - self.data.trials * chance
            by_row, by_column = error.sum(axis=1), error.sum(axis=0)
            slope = (
                by_row - precision @ point.row,
                self.design.T @ by_column - ridge * point.effects,
            )
            first, last = np.concatenate(slope), by_column - point.rest / others[-1]
            step, step_rest = system.solve(first, last)
            if first @ step + last @ step_rest < GAIN:
                break
            size, start = 1.0, (point, value)
            while size > SMALLEST_STEP:
                point = start[0].moved(size * step, size * step_rest)
                value, chance = self._density(point, precision, ridge, others[-1])
                if value >= start[1] - ROUNDING * abs(start[1]):
                    break
                size /= 2
            system = self._system(chance, precision, ridge, others[-1])
        self.start = point
        normal = 2 * float(np.log(np.diag(factor[0])).sum())
        normal -= float(np.log(ridge).sum())
        normal += len(point.rest) * float(np.log(others[-1]))
        objective = value - (normal + system.log_determinant) / 2
        return _Mode(*point, chance, system, precision, objective)

    def _density(self, point: _Point, precision, ridge, residual: float):
        """Log density of responses and effects, and the chances of right ones."""
        row, effects, rest = point
        logit = row[:, None] + (self.design @ effects + rest) + self.offset
        right, trials = self.data
        value = float(np.sum(right * logit - trials * np.logaddexp(0, logit)))
        value -= (row @ precision @ row + ridge @ effects**2) / 2
        return value - rest @ rest / (2 * residual), expit(logit)

    def _system(self, chance, precision, ridge, residual: float) -> _System:
        weight = self.data.trials * chance * (1 - chance)
        by_column = weight.sum(axis=0)
        design, count = self.design, len(weight)
        diagonal = by_column + 1 / residual
        cross = np.concatenate([weight, design.T * by_column])
        whole = np.empty((len(cross), len(cross)))
        whole[:count, :count] = precision
        whole[range(count), range(count)] += weight.sum(axis=1)
        whole[:count, count:] = weight @ design
        whole[count:, :count] = whole[:count, count:].T
        whole[count:, count:] = (design.T * by_column) @ design + np.diag(ridge)
        whole -= (cross / diagonal) @ cross.T
        return _System(cho_factor(whole, lower=True), cross, diagonal)

    def covariances(self, mode: _Mode):
        """Covariance of rows with effects, variances of columns and of logits."""
        system = mode.system
        count, size = len(mode.row), len(system.cross)
        covariance = cho_solve(system.factor, np.eye(size))
        scaled = system.cross / system.diagonal
        toward = np.concatenate([np.zeros_like(scaled[:count]), self.design.T]) - scaled
        shared = covariance @ toward
        column = 1 / system.diagonal + np.sum(toward * shared, axis=0)
        own = np.diag(covariance)[:count]
        logits = own[:, None] + column + 2 * shared[:count]
        rest = 1 / system.diagonal + np.sum(scaled * (covariance @ scaled), axis=0)
        return covariance, column, logits, rest

    def value_and_slope(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the objective with the prior, and its gradient in the log variances."""
        mode = self.mode(logs)
        gap = self.has_prior * (logs - self.centre) / LOG_SD
        variance = np.exp(logs)
        split = len(self.kernels) + 1
        own, others = variance[:split], variance[split:]
        count = len(mode.row)
        covariance, _, logits, rest_variance = self.covariances(mode)
        # The mode moves with the variances, and the weights in H with the mode.
        p = mode.chance
        bend = self.data.trials * p * (1 - p) * (1 - 2 * p) * logits / 2
        by_column = bend.sum(axis=0)
        first = np.concatenate([bend.sum(axis=1), self.design.T @ by_column])
        move, move_rest = mode.system.solve(first, by_column)
        alpha = mode.precision @ mode.row
        inner = mode.precision @ covariance[:count, :count] @ mode.precision
        inner = mode.precision - inner
        pull = mode.precision @ move[:count]
        slopes = []
        for part, block in zip(own, (*self.row_blocks, None), strict=True):
            to = (lambda x: x) if block is None else (lambda x, b=block: b.T @ x)
            trace = (
                np.trace(inner) if block is None else np.sum(block * (inner @ block))
            )
            quadratic = float(to(alpha) @ to(alpha)) - float(trace)
            slopes.append(part * (quadratic / 2 - to(pull) @ to(alpha)))
        diagonal, start = np.diag(covariance)[count:], 0
        for part, size in zip(others, (*self.sizes, None), strict=True):
            if size is None:
                x, own_variance, shift = mode.rest, rest_variance, move_rest
            else:
                place = slice(start, start + size)
                start += size
                x, own_variance = mode.effects[place], diagonal[place]
                shift = move[count:][place]
            total = (x @ x + own_variance.sum()) / part - len(x)
            slopes.append(total / 2 - shift @ x / part)
        slope = np.asarray(slopes, float) - gap / LOG_SD
        return float(gap @ gap) / 2 - mode.objective, -slope

    def result(self, logs: np.ndarray) -> CrossedEffects:
        """Effects with their covariances at some variances."""
        mode = self.mode(logs)
        covariance, column, logits, _ = self.covariances(mode)
        variance, count = np.exp(logs), len(mode.row)
        split = len(self.kernels) + 1
        own, others = variance[:split], variance[split:]
        alpha = mode.precision @ mode.row
        inner = mode.precision @ covariance[:count, :count] @ mode.precision
        inner = mode.precision - inner
        row_blocks = tuple(
            (
                part * block.T @ alpha,
                part * np.eye(block.shape[1]) - part**2 * block.T @ inner @ block,
            )
            for part, block in zip(own, self.row_blocks, strict=False)
        )
        ends = np.cumsum([0, *self.sizes])
        column_blocks = tuple(
            (
                mode.effects[a:b],
                covariance[count + a : count + b, count + a : count + b],
            )
            for a, b in zip(ends, ends[1:], strict=False)
        )
        return CrossedEffects(
            mode.row,
            self.design @ mode.effects + mode.rest,
            np.diag(covariance)[:count],
            column,
            logits,
            Variances(own[:-1], float(own[-1])),
            Variances(others[:-1], float(others[-1])),
            row_blocks,
            column_blocks,
            mode.objective,
        )


def fit_effects(
    data: CrossedResponses,
    rows: tuple[np.ndarray, ...] = (),
    columns: tuple[np.ndarray, ...] = (),
    offset: np.ndarray | float = 0.0,
) -> CrossedEffects:
    """Effects with the variances of the highest marginal likelihood; see the module.

    Args:
        data: CrossedResponses, `[rows, columns]`.
        rows: Features of subjects by block, `[rows, features]` each.
        columns: Features of items by block, `[columns, features]` each.
        offset: Added to the logits.
    """
    problem = _Problem(data, rows, columns, offset)
    best = minimize(
        problem.value_and_slope,
        np.clip(problem.centre, LOWEST, HIGHEST),
        jac=True,
        method="L-BFGS-B",
        bounds=[(LOWEST, HIGHEST)] * len(problem.centre),
        options={"maxiter": 100, "ftol": 1e-9, "gtol": 1e-3},
    )
    return problem.result(best.x)
