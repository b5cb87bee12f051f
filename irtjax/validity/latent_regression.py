r"""Regression of abilities on covariates, with random effects of families.

An estimated ability :math:`t_i` with the error variance :math:`v_i` is

.. math:: t_i = x_i' \beta + u_{f(i)} + e_i + \epsilon_i, \quad
    u \sim N(0, \tau^2),\; e \sim N(0, \sigma^2),\; \epsilon_i \sim N(0, v_i).

The two variances maximise the restricted likelihood (Patterson and Thompson 1971,
Biometrika 58), :math:`\beta` is the generalised least squares estimate. Within a family
the covariance is a diagonal and a constant, whose inverse has a closed form.

Posterior means of ability m with variances p, from a population :math:`N(\mu, s^2)`,
are drawn to its mean. The estimate without it has :math:`1/v = 1/p - 1/s^2` and
:math:`t = v (m / p - \mu / s^2)`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

#: Standard deviations that the search begins with, as shares of that of the abilities,
#: and the least share, which counts as none.
STARTS, LEAST = ((0.7, 0.7), (0.2, 0.9), (0.9, 0.2)), 1e-4


class LatentRegression(NamedTuple):
    """A regression of abilities.

    Attributes:
        slopes: `[covariates]` coefficients, in units of ability.
        covariance: `[covariates, covariates]` of their errors, given the variances.
        family_sd: Standard deviation of the families' effects.
        residual_sd: Standard deviation of abilities around them.
        effects: `[families]` predicted effects.
        effect_variance: `[families]` of their prediction errors, given the slopes.
        log_likelihood: Restricted, in nats.
    """

    slopes: np.ndarray
    covariance: np.ndarray
    family_sd: float
    residual_sd: float
    effects: np.ndarray
    effect_variance: np.ndarray
    log_likelihood: float

    def predict(
        self, covariates: np.ndarray, family: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Abilities of further subjects `[subjects]`, and their standard deviations.

        Args:
            covariates: `[subjects, covariates]`.
            family: `[subjects]` numbers of their families, -1 of unknown ones; None:
                all are unknown.
        """
        x = np.asarray(covariates, float)
        mean = x @ self.slopes
        variance = np.einsum("ij,jk,ik->i", x, self.covariance, x)
        codes = np.full(len(x), -1) if family is None else np.asarray(family)
        has = codes >= 0
        if len(self.effects):
            mean = mean + np.where(has, self.effects[codes], 0.0)
            own = np.where(has, self.effect_variance[codes], self.family_sd**2)
        else:
            own = np.full(len(x), self.family_sd**2)
        return mean, np.sqrt(variance + own + self.residual_sd**2)


def latent_regression(
    ability: np.ndarray,
    error: np.ndarray,
    covariates: np.ndarray,
    family: np.ndarray | None = None,
) -> LatentRegression:
    """Regresses estimated abilities on covariates, by restricted maximum likelihood.

    Args:
        ability: `[subjects]` estimates without shrinkage (`unshrunk`).
        error: `[subjects]` their standard errors.
        covariates: `[subjects, covariates]`, with a column of ones.
        family: `[subjects]` numbers of families from 0; None: no families.

    Raises:
        ValueError: There are no more subjects than covariates, or one covariate
            follows from the others.

    >>> rng = np.random.default_rng(0)
    >>> x = np.column_stack([np.ones(300), rng.normal(size=300)])
    >>> family = np.arange(300) % 30
    >>> true = x @ [0.0, 0.5] + 0.6 * rng.normal(size=30)[family]
    >>> seen = true + 0.4 * rng.normal(size=300) + 0.3 * rng.normal(size=300)
    >>> result = latent_regression(seen, np.full(300, 0.3), x, family)
    >>> round(float(result.slopes[1]), 1), round(result.family_sd, 1)
    (0.5, 0.6)
    """
    t, x = np.asarray(ability, float), np.asarray(covariates, float)
    count, width = x.shape
    if np.linalg.matrix_rank(x) < width or count <= width:
        raise ValueError(
            f"{count} subjects do not determine {width} coefficients: leave a covariate"
            " out that is constant or follows from others"
        )
    code = np.zeros(count, int) if family is None else np.asarray(family)
    problem = _Restricted(t, np.asarray(error, float) ** 2, x, code)
    scale = float(np.std(t)) or 1.0
    free = 1 if family is None else 2
    variances = lambda log: (*(np.exp(2 * log) * scale**2), *(0.0,) * (2 - free))
    bounds = [(math.log(LEAST), math.log(10.0))] * free
    best = min(
        (
            minimize(
                lambda log: -problem.log_likelihood(*variances(log)),
                np.log(start[:free]),
                method="L-BFGS-B",
                bounds=bounds,
            )
            for start in STARTS
        ),
        key=lambda run: run.fun,
    )
    at_least = best.x <= bounds[0][0] + 1e-6
    residual, between = variances(np.where(at_least, -np.inf, best.x))
    slopes, inverse, gap = problem.solve(residual, between)
    d = problem.error + residual
    weight = np.bincount(code, 1 / d)
    shrunk = between / (1 + between * weight)
    has = family is not None
    return LatentRegression(
        slopes,
        inverse,
        math.sqrt(between),
        math.sqrt(residual),
        shrunk * np.bincount(code, gap / d) if has else np.zeros(0),
        shrunk if has else np.zeros(0),
        -float(best.fun),
    )


class _Restricted(NamedTuple):
    """Abilities, error variances, covariates and families, `[subjects]` each."""

    t: np.ndarray
    error: np.ndarray
    x: np.ndarray
    code: np.ndarray

    def products(self, residual: float, between: float) -> tuple[np.ndarray, float]:
        """`[X t]' V^-1 [X t]` and the log determinant of V."""
        d = self.error + residual
        d = np.maximum(d, 1e-12)
        columns = np.column_stack([self.x, self.t])
        sums = np.stack(
            [np.bincount(self.code, column / d) for column in columns.T], axis=1
        )
        weight = np.bincount(self.code, 1 / d)
        shrunk = between / (1 + between * weight)
        product = (columns / d[:, None]).T @ columns - (sums * shrunk[:, None]).T @ sums
        return product, float(np.log(d).sum() + np.log1p(between * weight).sum())

    def log_likelihood(self, residual: float, between: float) -> float:
        """The restricted log-likelihood."""
        product, log_determinant = self.products(residual, between)
        square = product[:-1, :-1]
        slopes = np.linalg.solve(square, product[:-1, -1])
        rest = product[-1, -1] - product[:-1, -1] @ slopes
        count, width = self.x.shape
        constant = (count - width) * math.log(2 * math.pi)
        log_square = np.linalg.slogdet(square)[1]
        return -0.5 * float(log_determinant + log_square + rest + constant)

    def solve(
        self, residual: float, between: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slopes, their covariance, and the residuals."""
        product, _ = self.products(residual, between)
        inverse = np.linalg.inv(product[:-1, :-1])
        slopes = inverse @ product[:-1, -1]
        return slopes, inverse, self.t - self.x @ slopes


def unshrunk(
    ability: np.ndarray,
    error: np.ndarray,
    mean: float | np.ndarray,
    sd: float | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and errors that posterior means of a normal population stand for.

    NaN where the posterior is no narrower than the population.

    >>> [round(float(x[0]), 3) for x in unshrunk(np.ones(1), np.array([0.6]), 0.0, 1.0)]
    [1.562, 0.75]
    """
    precision = 1 / np.asarray(error, float) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(precision > 1 / sd**2, precision - 1 / sd**2, np.nan)
        estimate = (ability * precision - mean / sd**2) / own
    return estimate, np.sqrt(1 / own)
