r"""The correlation of two quantities that are measured with errors.

Two estimates :math:`t_i = (t_{i1}, t_{i2})` of subject i have independent errors of
known variances :math:`v_{i1}, v_{i2}`:

.. math:: t_i \sim N(\mu, V_i), \quad V_i = \begin{pmatrix} \sigma_1^2 + v_{i1} &
    \rho \sigma_1 \sigma_2 \\ \rho \sigma_1 \sigma_2 & \sigma_2^2 + v_{i2}
    \end{pmatrix}.

:math:`\rho`, the correlation without the errors, maximises the likelihood; where errors
are equal it is Spearman's (1904, American Journal of Psychology 15) correction for
attenuation, :math:`r / \sqrt{r_{11} r_{22}}`, as long as that is a correlation. Its
interval has the values whose profile deviance is below the quantile of chi-square, so
that it ends at 1 where the errors allow no better. The deviance is multiplied by
:math:`(n - 3) / n`: without errors it is then that of Fisher's z with its variance of
:math:`1 / (n - 3)`.

Subjects of a family are not independent. The deviance is divided by the ratio of the
sandwich variance by family to that of the model (Chandler and Bate 2007, Biometrika
94), and its quantile is that of F with one and (families - 1) degrees of freedom.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

#: Largest correlation, as Fisher's z: .9999.
REACH = 4.95
#: Standard deviations that are searched, in those of the estimates.
LEAST, MOST = 1e-3, 3.0
#: Steps of Fisher scoring, halvings of one, and the expected gain that ends them.
STEPS, HALVINGS, TOLERANCE = 100, 30, 1e-9
#: Fewest subjects: the deviance keeps five eighths of its size.
FEWEST = 8


class LatentCorrelation(NamedTuple):
    """A correlation without the errors of the two quantities.

    Attributes:
        correlation: The estimate; NaN where a quantity does not vary beyond its errors.
        lower: Lower end of the interval.
        upper: Upper end.
        raw: Correlation of the estimates as they are.
        reliabilities: Share of each variance that is not error, `[2]`.
        influence: `[subjects]` effect of each on the estimate; their squares add up to
            its variance, and products to covariances of two correlations.
    """

    correlation: float
    lower: float
    upper: float
    raw: float
    reliabilities: np.ndarray
    influence: np.ndarray


def latent_correlation(
    estimates: np.ndarray,
    errors: np.ndarray,
    cluster: np.ndarray | None = None,
    *,
    level: float = 0.95,
) -> LatentCorrelation:
    """Estimates the correlation of two quantities without their errors.

    Args:
        estimates: `[2, subjects]` finite estimates, not shrunk to their mean.
        errors: `[2, subjects]` standard errors, independent between the two.
        cluster: `[subjects]` numbers from 0 of families; None: all are independent.
        level: Level of the interval.

    Returns:
        The correlation with its interval.

    Raises:
        ValueError: There are fewer than eight subjects, or fewer than three families.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.normal(size=(2, 400))
    >>> true[1] = 0.8 * true[0] + 0.6 * true[1]
    >>> seen = true + 0.7 * rng.normal(size=(2, 400))
    >>> result = latent_correlation(seen, np.full((2, 400), 0.7))
    >>> round(result.raw, 1), round(result.correlation, 1)
    (0.5, 0.8)
    """
    t, v = np.asarray(estimates, float), np.asarray(errors, float) ** 2
    count = t.shape[1]
    if count < FEWEST:
        raise ValueError(f"{count} subjects are too few for a correlation: {FEWEST}")
    scale = t.std(axis=1)[:, None]
    raw = float(np.corrcoef(t)[0, 1])
    problem = _Likelihood(t / scale, v / scale**2)
    flat = np.array(
        [not _varies(*row) for row in zip(t / scale, problem.v, strict=True)]
    )
    best = problem.maximum(raw)
    sds = np.where(flat, 0.0, np.exp(best[:2]))
    reliabilities = sds**2 / (sds**2 + problem.v.mean(axis=1))
    if flat.any():
        nan = np.full(count, math.nan)
        return LatentCorrelation(math.nan, math.nan, math.nan, raw, reliabilities, nan)
    influence, variance = problem.influence(best)
    weight, degrees = (count - 3) / count, math.inf
    if cluster is not None:
        sums = np.bincount(cluster, influence)
        degrees = len(sums) - 1
        if degrees < 2:
            raise ValueError(f"{len(sums)} families are too few for an error: 3")
        ratio = float(np.sum(sums**2)) * len(sums) / degrees / variance
        weight /= max(ratio, 1e-9)
    quantile = float(stdtrit(degrees, 0.5 + level / 2)) ** 2
    lower, upper = problem.interval(best, quantile / weight)
    rho = math.tanh(best[2])
    return LatentCorrelation(rho, lower, upper, raw, reliabilities, influence)


def _varies(t: np.ndarray, v: np.ndarray) -> bool:
    """Whether the likelihood of a variance beyond the errors increases at 0."""
    if v.min() <= 0:
        return True
    precision = 1 / v
    gap = t - np.average(t, weights=precision)
    return bool(np.sum((precision * gap) ** 2) > np.sum(precision))


class _Likelihood(NamedTuple):
    """Estimates and error variances, `[2, subjects]`, in standard deviations."""

    t: np.ndarray
    v: np.ndarray

    def _inverse(self, point: np.ndarray) -> tuple[np.ndarray, ...]:
        """Entries of V^-1, `[subjects]` each, and log determinants."""
        first, second = np.exp(2 * point[:2])
        c = math.tanh(point[2]) * math.sqrt(first * second)
        a, b = first + self.v[0], second + self.v[1]
        determinant = a * b - c**2
        return b / determinant, a / determinant, -c / determinant, np.log(determinant)

    def _scores(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log-likelihood, and `[3, subjects]` slopes in (a, b, c)."""
        p, q, r, log_determinant = self._inverse(point)
        whole = np.array([[p.sum(), r.sum()], [r.sum(), q.sum()]])
        x, y = self.t
        mean = np.linalg.solve(whole, [(p * x + r * y).sum(), (r * x + q * y).sum()])
        x, y = self.t - mean[:, None]
        u, w = p * x + r * y, r * x + q * y
        value = 0.5 * float((log_determinant + u * x + w * y).sum())
        return value, np.stack([0.5 * (u**2 - p), 0.5 * (w**2 - q), u * w - r])

    def _slopes(self, point: np.ndarray) -> np.ndarray:
        """`[3, 3]` slopes of (a, b, c) in log sigma_1, log sigma_2 and rho."""
        first, second = np.exp(point[:2])
        c = math.tanh(point[2]) * first * second
        return np.array(
            [[2 * first**2, 0, 0], [0, 2 * second**2, 0], [c, c, first * second]]
        )

    def value(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the log-likelihood and its slopes in log sigmas and z of rho."""
        value, scores = self._scores(point)
        slopes = scores.sum(axis=1) @ self._slopes(point)
        slopes[2] *= 1 - math.tanh(point[2]) ** 2
        return value, -slopes

    def information(self, point: np.ndarray) -> np.ndarray:
        """`[3, 3]` expected information of log sigma_1, log sigma_2 and rho."""
        p, q, r, _ = self._inverse(point)
        of_abc = [[p**2 / 2, r**2 / 2, p * r], [r**2 / 2, q**2 / 2, q * r]]
        of_abc += [[p * r, q * r, p * q + r**2]]
        jacobian = self._slopes(point)
        return jacobian.T @ np.array(of_abc).sum(axis=2) @ jacobian

    def minimum(
        self, start: np.ndarray, z: float | None = None
    ) -> tuple[np.ndarray, float]:
        """The point of the least value, and that value, at any z or at one.

        Fisher scoring with halved steps.
        """
        low = np.array([math.log(LEAST)] * 2 + [-REACH if z is None else z])
        high = np.array([math.log(MOST)] * 2 + [REACH if z is None else z])
        point = np.clip(start, low, high)
        value, slopes = self.value(point)
        for _ in range(STEPS):
            # A coordinate that its bound keeps from a lower value stays there.
            free = np.where(slopes > 0, point > low, point < high)
            scale = np.array([1, 1, 1 - math.tanh(point[2]) ** 2])
            information = self.information(point) * scale * scale[:, None]
            information += np.eye(3) * (1e-9 * np.trace(information) + 1e-12)
            information = np.where(free & free[:, None], information, np.eye(3))
            step = np.linalg.solve(information, np.where(free, -slopes, 0.0))
            if -float(step @ slopes) < TOLERANCE:
                break
            step /= max(1.0, float(np.abs(step).max()))
            for _ in range(HALVINGS):
                trial = np.clip(point + step, low, high)
                at_trial, trial_slopes = self.value(trial)
                if at_trial <= value:
                    break
                step /= 2
            else:
                break
            point, value, slopes = trial, at_trial, trial_slopes
        return point, value

    def maximum(self, raw: float) -> np.ndarray:
        """Log standard deviations and Fisher's z of the correlation at the maximum."""
        own = np.maximum(1 - self.v.mean(axis=1), 0.05)
        z = math.atanh(np.clip(raw / math.sqrt(own.prod()), -0.95, 0.95))
        return self.minimum(np.array([*0.5 * np.log(own), z]))[0]

    def interval(self, best: np.ndarray, limit: float) -> tuple[float, float]:
        """Ends of the correlations whose deviance is below a limit."""
        least = self.value(best)[0]
        # The deviance of Fisher's z without errors, about: the end is further out.
        step = math.sqrt(limit / self.t.shape[1])

        def excess(z: float) -> float:
            # From the maximum each time: far out, sigmas run into their bounds.
            return 2 * (self.minimum(best, z)[1] - least) - limit

        ends = []
        for side in (-1, 1):
            inner, outer = best[2], np.clip(best[2] + side * step, -REACH, REACH)
            while abs(outer) < REACH and excess(outer) < 0:
                inner, outer = outer, np.clip(outer + side * step, -REACH, REACH)
            if inner == outer or excess(outer) < 0:
                ends.append(float(side))
                continue
            end: Any = brentq(excess, inner, outer, xtol=1e-4)
            ends.append(math.tanh(end))
        return ends[0], ends[1]

    def influence(self, point: np.ndarray) -> tuple[np.ndarray, float]:
        """`[subjects]` influence on rho, and its variance by the expected information.

        Means are orthogonal to variances. Scores are centred: at a largest correlation
        they do not add up to 0.
        """
        jacobian = self._slopes(point)
        inverse = np.linalg.inv(self.information(point))
        scores = self._scores(point)[1]
        scores = scores - scores.mean(axis=1, keepdims=True)
        return inverse[2] @ jacobian.T @ scores, float(inverse[2, 2])
