r"""True abilities of the same subjects in several sources, from estimates with errors.

Source s has the estimate :math:`y_{is}` of subject i's ability, and the covariance V of
all errors. The model is that of a multivariate meta-analysis (Jackson, Riley and White
2011, Statistics in Medicine 30):

.. math::

    y_{is} = m_s + t_{is} + e_{is}, \qquad t_i \sim N(0, \Sigma), \qquad e \sim N(0, V).

A mean for each source absorbs its origin, and a standard deviation its scale, so that
estimates in any units are joined. With A = V + Z Sigma Z' and X the design of means,
the restricted log-likelihood of Sigma is

.. math::

    -\tfrac12 (\log|A| + \log|X'A^{-1}X| + (y - X\hat m)'A^{-1}(y - X\hat m)),

which depends on differences within a source only: a covariance whose rows sum to 0 is
as good as one with an origin. The correlations of Sigma are those of true abilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.special import fdtri

#: Added to the diagonal of A, in squared standard deviations of a source's estimates:
#: with correlations of 1 and exact estimates A is singular.
RIDGE = 1e-9
#: Fisher's z of the farthest correlation that an interval is searched to: .99999.
FARTHEST = 6.1


class SourceEstimates(NamedTuple):
    """Estimates of all sources, one after the other.

    Attributes:
        value: `[estimates]`.
        covariance: `[estimates, estimates]` of their errors.
        source: `[estimates]` source of each.
        subject: `[estimates]` subject of each.
    """

    value: np.ndarray
    covariance: np.ndarray
    source: np.ndarray
    subject: np.ndarray

    @property
    def num_sources(self) -> int:
        """Number of sources."""
        return int(self.source.max()) + 1

    @property
    def design(self) -> np.ndarray:
        """X `[estimates, sources]`."""
        return np.eye(self.num_sources)[self.source]

    @property
    def same(self) -> np.ndarray:
        """`[estimates, estimates]` whether two are of one subject."""
        return self.subject[:, None] == self.subject


class Likelihood(NamedTuple):
    """The restricted likelihood at a covariance of true abilities.

    Attributes:
        value: Restricted log-likelihood, without constants.
        gradient: `[sources, sources]` its derivative by the entries of Sigma.
        inverse: A^-1.
        projection: P = A^-1 - A^-1 X Q X'A^-1.
        means: `[sources]` m.
        means_covariance: Q = (X'A^-1 X)^-1.
    """

    value: float
    gradient: np.ndarray
    inverse: np.ndarray
    projection: np.ndarray
    means: np.ndarray
    means_covariance: np.ndarray


def likelihood(estimates: SourceEstimates, sigma: np.ndarray) -> Likelihood:
    """The restricted log-likelihood of `sigma`, and what follows from it."""
    y, x, same = estimates.value, estimates.design, estimates.same
    spread = np.array([y[estimates.source == s].std() for s in range(x.shape[1])])
    total = estimates.covariance + np.where(same, x @ sigma @ x.T, 0.0)
    total[np.diag_indices_from(total)] += RIDGE * (x @ spread**2)
    root = cholesky(total, lower=True)
    inverse = cho_solve((root, True), np.eye(len(y)))
    weighted = inverse @ x
    information = x.T @ weighted
    q = np.linalg.inv(information)
    projection = inverse - weighted @ q @ weighted.T
    rest = projection @ y
    value = -np.log(np.diagonal(root)).sum()
    value -= 0.5 * (np.linalg.slogdet(information)[1] + y @ rest)
    by_cell = np.where(same, np.outer(rest, rest) - projection, 0.0)
    gradient = 0.5 * x.T @ by_cell @ x
    means = q @ (weighted.T @ y)
    return Likelihood(float(value), gradient, inverse, projection, means, q)


def maximum(estimates: SourceEstimates) -> tuple[np.ndarray, Likelihood]:
    """The covariance of true abilities with the greatest restricted likelihood.

    Sigma = L L', L free, so correlations of 1 and variances of 0 are reached smoothly.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 60)
    >>> y = (true + 0.1 * rng.normal(size=(60, 2))).T.ravel()
    >>> source, subject = np.repeat([0, 1], 60), np.tile(np.arange(60), 2)
    >>> sigma, _ = maximum(SourceEstimates(y, 0.01 * np.eye(120), source, subject))
    >>> bool(abs(sigma[0, 1] - np.cov(true.T)[0, 1]) < 0.1)
    True
    """
    start = _start(estimates)
    places = np.tril_indices(len(start))

    def negative(values):
        lower = np.zeros_like(start)
        lower[places] = values
        at = likelihood(estimates, lower @ lower.T)
        return -at.value, -2 * (at.gradient @ lower)[places]

    lower = np.zeros_like(start)
    lower[places] = _minimum(negative, np.linalg.cholesky(start)[places])[0]
    sigma = lower @ lower.T
    return sigma, likelihood(estimates, sigma)


def correlation_interval(
    estimates: SourceEstimates, sigma: np.ndarray, pair: tuple[int, int], level: float
) -> tuple[float, float]:
    """The correlations of two sources that a test of likelihood ratio does not reject.

    For a correlation the likelihood is maximised over all else. An end that no value
    in (-1, 1) rejects is -1 or 1. Of n subjects without errors of measurement the ratio
    is (n - 1) log(1 + t^2 / (n - 2)) / 2, with t of Student's distribution at
    correlation 0: its quantile replaces the one of chi-squared, which is for many.
    """
    order = [*pair, *(s for s in range(len(sigma)) if s not in pair)]
    source = np.argsort(order)[estimates.source]
    ordered = estimates._replace(source=source)
    start = sigma[np.ix_(order, order)]
    deviation = np.sqrt(np.diagonal(start))
    if not deviation[:2].min() > 0:
        return -1.0, 1.0
    start = start + 1e-6 * np.diag(deviation**2)
    best = likelihood(estimates, sigma).value
    sets = [set(estimates.subject[estimates.source == s]) for s in pair]
    count = len(sets[0] & sets[1])
    quantile = fdtri(1, count - 2, level)
    drop = float(0.5 * (count - 1) * np.log1p(quantile / (count - 2)))
    centre = np.arctanh(
        np.clip(sigma[pair] / deviation[0] / deviation[1], -0.999, 0.999)
    )
    first = np.linalg.cholesky(start)
    first[1, 1] = deviation[1]
    places: dict[float, np.ndarray] = {float(centre): np.asarray(first)}
    depths: dict[float, float] = {}

    def depth(z: float) -> float:
        if z not in depths:  # The search begins at the nearest correlation.
            nearest = places[min(places, key=lambda x: abs(x - z))]
            end = _profile(ordered, nearest, float(np.tanh(z)))
            places[z], depths[z] = end[0], best - drop - end[1]
        return depths[z]

    lower, upper = (_end(depth, float(centre), sign) for sign in (-1.0, 1.0))
    return lower, upper


def _end(depth: Callable[[float], float], centre: float, sign: float) -> float:
    """Where depth crosses 0 outwards from the centre, as a correlation."""
    inside, outside = centre, centre + 0.5 * sign
    while depth(outside) < 0:
        if abs(outside) > FARTHEST:
            return sign
        inside, outside = outside, outside + 0.8 * sign
    if depth(inside) >= 0:  # The estimate is nearer to a bound than `centre`.
        return float(np.tanh(inside))
    from scipy.optimize import brentq  # A quarter of a second.

    crossing: Any = brentq(depth, inside, outside, xtol=2e-3)
    return float(np.tanh(crossing))


def _profile(
    estimates: SourceEstimates, start: np.ndarray, rho: float
) -> tuple[np.ndarray, float]:
    """Where the likelihood is greatest with correlation rho of the first two sources.

    L[1, 1] is the second's standard deviation here, and L[1, 0] has no effect.
    """
    size = range(len(start))
    places = [(i, j) for i in size for j in range(i + 1) if (i, j) != (1, 0)]
    rows, columns = np.transpose(places)
    side = np.sqrt(1 - rho**2)

    def lower_of(values):
        lower = np.zeros_like(start)
        lower[rows, columns] = values
        lower[1, :2] = lower[1, 1] * np.array([rho, side])
        return lower

    def negative(values):
        lower = lower_of(values)
        at = likelihood(estimates, lower @ lower.T)
        slope = 2 * at.gradient @ lower
        slope[1, 1] = slope[1, :2] @ [rho, side]
        return -at.value, -slope[rows, columns]

    values, value = _minimum(negative, start[rows, columns])
    end = np.zeros_like(start)
    end[rows, columns] = values
    return end, -value


def _minimum(negative, start: np.ndarray) -> tuple[np.ndarray, float]:
    """Where a function with its gradient is least, and the value."""
    from scipy.optimize import minimize

    end = minimize(negative, start, jac=True, method="BFGS", options={"gtol": 1e-4})
    return end.x, float(end.fun)


def _start(estimates: SourceEstimates) -> np.ndarray:
    """Variances of estimates less those of errors, with halved raw correlations."""
    size = estimates.num_sources
    error = np.diagonal(estimates.covariance)
    wide = np.full((size, estimates.subject.max() + 1), np.nan)
    wide[estimates.source, estimates.subject] = estimates.value
    variance = np.nanvar(wide, axis=1)
    noise = np.bincount(estimates.source, error) / np.bincount(estimates.source)
    deviation = np.sqrt(np.maximum(variance - noise, 0.1 * variance))
    correlation = np.eye(size)
    for one in range(size):
        for other in range(one):
            common = np.isfinite(wide[one] + wide[other])
            raw = np.corrcoef(wide[one, common], wide[other, common])[0, 1]
            correlation[one, other] = correlation[other, one] = raw / 2
    values, vectors = np.linalg.eigh(correlation)
    correlation = (vectors * np.maximum(values, 0.05)) @ vectors.T
    return correlation * np.outer(deviation, deviation)


def combination(
    estimates: SourceEstimates, sigma: np.ndarray, at: Likelihood, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean `[subjects]` and covariance of sum_s w_s t_is for each subject.

    Subjects without an estimate in a source have its expectation given the others.
    """
    x, count = estimates.design, estimates.subject.max() + 1
    cross = np.where(
        estimates.subject == np.arange(count)[:, None], (weight @ sigma) @ x.T, 0.0
    )
    gain = cross @ at.inverse
    mean = gain @ (estimates.value - x @ at.means)
    shift = gain @ x
    covariance = np.eye(count) * (weight @ sigma @ weight) - gain @ cross.T
    return mean, covariance + shift @ at.means_covariance @ shift.T


def residuals(
    estimates: SourceEstimates, sigma: np.ndarray, at: Likelihood
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""What each estimate is beyond its expectation from the other sources.

    With O the other sources that have the subject, beta = Sigma_OO^-1 Sigma_Os and
    r = y_s - m_s - beta'(y_O - m_O). Errors of y_O enter the error of r, and beta is of
    true abilities: it is not attenuated. The error counts V, the means, and Sigma by
    its information 1/2 tr(P dA_j P dA_k).

    Returns:
        Expectations, residuals and standard errors, `[estimates]`; NaN where no other
        source has the subject.
    """
    x, size = estimates.design, len(sigma)
    places = np.array(np.tril_indices(size)).T
    basis = np.zeros((len(places), size, size))
    for unit, (i, j) in zip(basis, places, strict=True):
        unit[i, j] = unit[j, i] = 1.0
    operator = np.zeros((len(x), len(x)))
    slopes = np.zeros((len(x), len(places)))
    centred = estimates.value - x @ at.means
    has = np.zeros((estimates.subject.max() + 1, size), bool)
    has[estimates.subject, estimates.source] = True
    place = np.zeros(has.shape, int)
    place[estimates.subject, estimates.source] = np.arange(len(x))
    kinds, kind = np.unique(
        np.column_stack([has[estimates.subject], estimates.source]),
        axis=0,
        return_inverse=True,
    )
    for number, row in enumerate(kinds):  # A handful of patterns of missing sources.
        own = int(row[-1])
        others = np.flatnonzero(row[:-1].astype(bool) & (np.arange(size) != own))
        rows = np.flatnonzero(kind.reshape(-1) == number)
        if not others.size:
            operator[rows] = np.nan
            continue
        inverse = np.linalg.pinv(sigma[np.ix_(others, others)], hermitian=True)
        beta = inverse @ sigma[others, own]
        columns = place[estimates.subject[rows]][:, others]
        operator[rows, rows] = 1.0
        operator[rows[:, None], columns] = -beta
        moved = basis[:, others, own] - basis[:, others[:, None], others] @ beta
        slopes[rows] = centred[columns] @ (moved @ inverse).T
    whole = np.all(np.isfinite(operator), axis=1, keepdims=True)[:, 0]
    mapped = np.where(whole[:, None], operator, 0.0)
    residual = mapped @ centred
    shift, v = mapped @ x, estimates.covariance
    shared = mapped @ v @ at.inverse @ x @ at.means_covariance
    variance = np.einsum("ij,jk,ik->i", mapped, v, mapped)
    variance += np.einsum("ij,jk,ik->i", shift, at.means_covariance, shift)
    variance -= 2 * np.sum(shared * shift, axis=1)
    moves = [at.projection @ np.where(estimates.same, x @ u @ x.T, 0.0) for u in basis]
    information = 0.5 * np.array([[np.sum(a * b.T) for b in moves] for a in moves])
    of_sigma = np.linalg.pinv(information, hermitian=True)
    variance += np.einsum("ij,jk,ik->i", slopes, of_sigma, slopes)
    missing = np.where(whole, 0.0, np.nan)
    error = np.sqrt(np.maximum(variance, 0)) + missing
    return estimates.value - residual + missing, residual + missing, error
