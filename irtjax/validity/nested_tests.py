"""Score and Wald tests, item by item, of what a larger model adds to a smaller one.

With s_i the derivative of log p(y_i) of subject i in parameters, and n of the estimated
ones, a score test asks whether a further parameter x would raise the likelihood without
fitting it (Rao 1948). Its residual r_i = s_ix - b' s_in, b by least squares, has

    z = sum_i r_i / sqrt(V),   V = sum_i r_i^2 - (sum_i r_i)^2 / N,

standard normal if x is 0 (at its bound: one-sided); sum r / V is one step of Newton's
method to its estimate. Derivatives are expectations over posteriors of ability (Louis
1982): s_ij = E[(y - P_j) P_j' / (P_j Q_j) | y_i].

The information is the sum of products of scores. It needs no sum over patterns of
responses, and V is positive at any estimates, which that of a Hessian is not. If slopes
are equal 4.8 % of z^2 are above 3.84 and 1.1 % above 6.63 (600 x 20); at 150 x 20 5.5 %
and 1.7 %.

The Wald test asks whether estimated slopes a of covariance C are equal: with their mean
m by generalised least squares, (a - m)' C^-1 (a - m) is chi-squared with one degree of
freedom less than items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irtjax.validity.fitted_curves import FittedCurves
from irtjax.validity.limited_information import p_value

#: Subjects for each estimated parameter, below which their covariance is too noisy.
LEAST_SUBJECTS = 5


class ScoreTests(NamedTuple):
    """Tests `[items]` of a further parameter of each item.

    Attributes:
        z: Standard normal if the parameter is at its value in the smaller model.
        step: One-step estimate of the parameter less that value.
    """

    z: np.ndarray
    step: np.ndarray


class WaldTests(NamedTuple):
    """Tests of equal slopes: of all, and `[items]` of each against the mean."""

    statistic: float
    degrees: int
    p_value: float
    z: np.ndarray


def subject_scores(
    values: np.ndarray,
    seen: np.ndarray,
    posterior: np.ndarray,
    chance: np.ndarray,
    derivatives: np.ndarray,
) -> np.ndarray:
    """Derivatives of log p(y_i) `[subjects, items, columns]` in parameters of items.

    Args:
        values: `[subjects, items]` of 0 and 1.
        seen: `[subjects, items]` whether there is a response.
        posterior: `[subjects, nodes]` of ability.
        chance: `[items, nodes]` of a right response.
        derivatives: `[items, nodes, columns]` of the chance in parameters.
    """
    chance = np.clip(chance, 1e-12, 1 - 1e-12)[..., None]
    weight = derivatives / (chance * (1 - chance))
    right, mean = (
        np.tensordot(posterior, x, axes=(1, 1)) for x in (weight, weight * chance)
    )
    return (values[..., None] * right - mean) * seen[..., None]


def _estimated_scores(fitted: FittedCurves, data, posterior) -> np.ndarray:
    """`[subjects, parameters]` derivatives in the estimated parameters of a fit."""
    curves = fitted.curves
    chance, labels = curves.probabilities[..., 1], fitted.parameters.reshape(-1)
    of_subjects = data.values, data.seen, posterior, chance
    scores = subject_scores(*of_subjects, curves.by_item[:, :, 1])
    flat = scores.reshape(len(scores), -1)
    estimated = labels >= 0
    names, place = np.unique(labels[estimated], return_inverse=True)
    add = np.zeros((place.size, names.size))
    add[np.arange(place.size), place] = 1
    flat = flat[:, estimated] @ add
    if fitted.with_scale:
        scale = subject_scores(*of_subjects, curves.by_scale[:, :, 1:2])
        flat = np.column_stack([flat, scale[..., 0].sum(1)])
    return flat


def enough_subjects(num_subjects: int, num_parameters: int) -> bool:
    """Whether the information of so many parameters is estimated well enough."""
    return num_subjects >= LEAST_SUBJECTS * num_parameters


def slope_scores(fitted: FittedCurves, values, seen) -> ScoreTests:
    """Score tests of a slope of its own for each item of a fit of equal slopes.

    `step` is the change of the slope as a share of the common one.
    """
    # Of the factor of an item's slope: the derivative in ability times ability.
    theta = fitted.nodes - fitted.weights @ fitted.nodes
    deviation = np.sqrt(fitted.weights @ theta**2)
    derivative = fitted.curves.by_scale[:, :, 1] * deviation
    return _score_tests(fitted, values, seen, derivative)


def guess_scores(fitted: FittedCurves, values, seen) -> ScoreTests:
    """Score tests of a lower asymptote c above 0 for each item of a 2PL: `step` is c.

    dP / dc = 1 - P at c = 0.
    """
    return _score_tests(fitted, values, seen, fitted.curves.probabilities[..., 0])


def _score_tests(fitted: FittedCurves, values, seen, derivative) -> ScoreTests:
    """Score tests of one further parameter of each item."""
    data = fitted.likelihood(values, seen)
    posterior = data.posterior()
    nuisance = _estimated_scores(fitted, data, posterior)
    chance = fitted.curves.probabilities[..., 1]
    further = subject_scores(values, seen, posterior, chance, derivative[..., None])
    further = further[..., 0]
    size, number = nuisance.shape
    b = np.linalg.lstsq(nuisance.T @ nuisance, nuisance.T @ further, rcond=1e-12)[0]
    residual = further - nuisance @ b
    total = residual.sum(0)
    # Residuals of a regression on so many columns are too small.
    square = (residual**2).sum(0) * size / max(size - number, 1)
    variance = np.maximum(square - total**2 / size, 1e-300)
    return ScoreTests(total / np.sqrt(variance), total / variance)


def slope_wald(fitted: FittedCurves, values, seen) -> WaldTests:
    """Wald tests of equal slopes in a fit whose first coordinates are slopes."""
    data = fitted.likelihood(values, seen)
    scores = _estimated_scores(fitted, data, data.posterior())
    covariance = np.linalg.pinv(scores.T @ scores, hermitian=True)
    names = np.unique(fitted.parameters[fitted.parameters >= 0])
    places = np.searchsorted(names, fitted.parameters[:, 0])
    covariance = covariance[np.ix_(places, places)]
    slopes = fitted.rows[:, 0].astype(np.float64)
    inverse = np.linalg.inv(covariance)
    weight = inverse.sum(0)
    gap = slopes - weight @ slopes / weight.sum()
    statistic, degrees = float(gap @ inverse @ gap), len(slopes) - 1
    variance = np.maximum(np.diag(covariance) - 1 / weight.sum(), 1e-300)
    chance = p_value(statistic, degrees)
    return WaldTests(statistic, degrees, chance, gap / np.sqrt(variance))
