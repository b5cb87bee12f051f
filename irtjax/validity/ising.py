r"""The Ising model of right and wrong responses.

With thresholds tau_j and symmetric weights omega_jk,

    p(y) = exp(sum_j tau_j y_j + sum_{j<k} omega_jk y_j y_k) / Z,

so that logit P(y_j = 1 | other items) = tau_j + sum_k omega_jk y_k. Z is a sum over all
2^J patterns. The pseudo-likelihood (Besag 1975), the product over subjects and items of
p(y_j | other items), needs no Z; it is concave and its maximum is consistent. Errors
are those of the sandwich H^-1 (sum_i s_i s_i') H^-1 over subjects i with scores s_i,
since the chances of one subject share its responses.

As y_j y_j = y_j, thresholds are the diagonal of a symmetric matrix of parameters, which
is estimated as the vector of its upper triangle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logsumexp

#: Items up to which all patterns are summed over: 32,768 of 15.
MOST_EXACT = 15
#: Items up to which the second derivatives of all pairs are a matrix: 200 MB of 100.
MOST_ITEMS = 100
#: Newton steps at most; the longest change of a parameter in one; the gain of the
#: log-likelihood, in nats, that ends them, whose square is left; halvings of a step.
STEPS, LONGEST, TOLERANCE, HALVINGS = 50, 3.0, 1e-6, 30
#: Size of a parameter beyond which its maximum is at infinity: chances of 1e-11.
FAR = 25.0
#: Added to second derivatives, for directions without information.
RIDGE = 1e-8
#: Numbers of a block of subjects, 80 MB.
BLOCK = 10_000_000

#: Log-likelihood at parameters, its gradient, and the negative second derivatives.
Objective = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


class Ising(NamedTuple):
    """Estimates of an Ising model.

    Attributes:
        thresholds: `[items]` tau, the logit of an item if all others are wrong.
        weights: `[items, items]` omega, symmetric, 0 on the diagonal.
        log_likelihood: In nats; of the pseudo-likelihood the sum over items.
        errors: `[items, items]` standard errors of the weights, on the diagonal of the
            thresholds; None if penalised.
    """

    thresholds: np.ndarray
    weights: np.ndarray
    log_likelihood: float
    errors: np.ndarray | None = None

    def logits(self, right: np.ndarray) -> np.ndarray:
        """`[subjects, items]` logits of each response given the subject's others."""
        return self.thresholds + right @ self.weights


def features(right: np.ndarray) -> np.ndarray:
    """`[subjects, items (items + 1) / 2]` products y_j y_k of pairs j <= k.

    >>> features(np.array([[1.0, 1.0, 0.0]])).tolist()
    [[1.0, 1.0, 0.0, 1.0, 0.0, 0.0]]
    """
    first, second = np.triu_indices(right.shape[1])
    return right[:, first] * right[:, second]


def all_patterns(count: int) -> np.ndarray:
    """`[2^count, count]` of 0 and 1."""
    return (np.arange(2**count)[:, None] >> np.arange(count)) % 2 * 1.0


def log_chances(logits: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Log chance of each response from the logits of right ones."""
    return right * logits - np.logaddexp(0, logits)


def fit_exact(right: np.ndarray) -> Ising:
    """Maximum likelihood with the sum over all patterns.

    Args:
        right: `[subjects, items]` of 0 and 1, every item with both.

    Raises:
        ValueError: If there are more than `MOST_EXACT` items.
    """
    size, count = right.shape
    if count > MOST_EXACT:
        raise ValueError(
            f"exact likelihood sums over 2^{count} patterns of {count} items: choose at"
            f" most {MOST_EXACT} items, or method='pseudolikelihood'"
        )
    table, total = features(all_patterns(count)), features(right).sum(axis=0)

    def objective(x):
        energy = table @ x
        log_z = logsumexp(energy)
        chance = np.exp(energy - log_z)
        mean = chance @ table
        covariance = (table * chance[:, None]).T @ table - np.outer(mean, mean)
        return total @ x - size * log_z, total - size * mean, size * covariance

    x, value, information = maximise(objective, table.shape[1])
    return _estimates(x, value, np.diagonal(_inverse(information)), count)


def fit_pseudolikelihood(right: np.ndarray, offset: np.ndarray | float = 0.0) -> Ising:
    """Maximum pseudo-likelihood, with the errors of the sandwich over subjects.

    Args:
        right: `[subjects, items]` of 0 and 1, every item with both.
        offset: `[subjects, items]` added to the logits, such as those of a 2PL: weights
            are then of what it leaves unexplained.

    Raises:
        ValueError: If there are more than `MOST_ITEMS` items.
    """
    size, count = right.shape
    if count > MOST_ITEMS:
        raise ValueError(
            f"{count:,} items have {count * (count - 1) // 2:,} weights: choose at most"
            f" {MOST_ITEMS} items (top=60 takes those with the largest variance)"
        )
    first, second = np.triu_indices(count)
    apart, numbers = first != second, _symmetric(np.arange(len(first)), count)
    height = max(1, BLOCK // len(first))
    blocks = [slice(k, k + height) for k in range(0, size, height)]
    offset = np.broadcast_to(offset, right.shape)

    def residuals(x, rows):
        thresholds, weights = _parts(x, count)
        eta = offset[rows] + thresholds + right[rows] @ weights
        return right[rows], eta, right[rows] - expit(eta)

    def objective(x):
        value, gradient = 0.0, np.zeros(len(first))
        sums = np.zeros((count, 1 + len(first)))
        for rows in blocks:
            y, eta, rest = residuals(x, rows)
            value += log_chances(eta, y).sum()
            product = y.T @ rest
            np.fill_diagonal(product, rest.sum(axis=0) / 2)
            gradient += (product + product.T)[first, second]
            weight = (y - rest) * (1 - y + rest)
            sums[:, 0] += weight.sum(axis=0)
            sums[:, 1:] += weight.T @ features(y)
        return float(value), gradient, _second_derivatives(sums, numbers)

    x, value, hessian = maximise(objective, len(first))
    variance, bread = np.zeros(len(first)), _inverse(hessian)
    for rows in blocks:
        y, _, rest = residuals(x, rows)
        scores = rest[:, first] * np.where(apart, y[:, second], 1)
        scores += y[:, first] * rest[:, second] * apart
        variance += ((scores @ bread) ** 2).sum(axis=0)
    return _estimates(x, value, variance, count)


def _second_derivatives(sums: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Negative second derivatives of the pseudo-likelihood.

    That of item j is a logistic regression on z_j, y with 1 in place of y_j, with
    sum_i w_ij z_ij z_ij' from the `[items, 1 + parameters]` sums of w_ij times
    (1, features). Its coefficients are row j of the `[items, items]` numbers of the
    parameters.
    """
    count, width = len(numbers), sums.shape[1] - 1
    item, first, second = np.ogrid[:count, :count, :count]
    pair = (
        np.where(first == item, second, first),
        np.where(second == item, first, second),
    )
    at = np.where((first == item) & (second == item), 0, 1 + numbers[pair])
    out = np.zeros((width, width))
    np.add.at(out, (numbers[:, :, None], numbers[:, None, :]), sums[item, at])
    return out


def _symmetric(values: np.ndarray, count: int) -> np.ndarray:
    """`[count, count]` of the values of its upper triangle."""
    out = np.zeros((count, count), values.dtype)
    out[np.triu_indices(count)] = values
    return np.where(np.tri(count, dtype=bool), out.T, out)


def _parts(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds and weights."""
    matrix = _symmetric(x, count)
    return np.diagonal(matrix), matrix * ~np.eye(count, dtype=bool)


def _estimates(x, value: float, variance: np.ndarray, count: int) -> Ising:
    """The parts of a vector of parameters."""
    errors = _symmetric(np.sqrt(np.maximum(variance, 0)), count)
    return Ising(*_parts(x, count), value, errors)


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, with `RIDGE` added."""
    unit = np.eye(len(matrix))
    return cho_solve(cho_factor(matrix + RIDGE * unit), unit)


def maximise(objective: Objective, size: int) -> tuple[np.ndarray, float, np.ndarray]:
    """Newton's method from 0 for a concave function.

    Where a maximum is at infinity, as with responses that separate, it ends far out.

    Returns:
        Parameters, and the value and negative second derivatives there.
    """
    x = np.zeros(size)
    value, gradient, matrix = objective(x)
    for _ in range(STEPS):
        step = cho_solve(cho_factor(matrix + RIDGE * np.eye(size)), gradient)
        gain = gradient @ step / 2
        step *= min(1.0, LONGEST / max(np.abs(step).max(), 1e-300))
        for _ in range(HALVINGS):
            new = objective(x + step)
            if new[0] >= value - 1e-9 * abs(value) * (gain < 1e-6):
                break
            step = step / 2
        else:
            break
        x, (value, gradient, matrix) = x + step, new
        if gain < TOLERANCE or np.abs(x).max() > FAR:
            break
    return x, value, matrix
