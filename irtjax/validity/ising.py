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
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

#: Items up to which all patterns are summed over: 32,768 of 15.
MOST_EXACT = 15
#: Items up to which the second derivatives of all pairs are a matrix: 200 MB of 100.
MOST_ITEMS = 100
#: The gradient of the mean log-likelihood of a subject that ends a search.
STOP = 1e-9
#: Added to second derivatives, for directions without information.
RIDGE = 1e-8
#: Numbers of a block of subjects, 80 MB.
BLOCK = 10_000_000


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
    """`[subjects, items (items + 1) / 2]` products y_j y_k of pairs j <= k."""
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

    chances = lambda x: softmax(table @ x)

    def value(x):
        value = total @ x - size * logsumexp(table @ x)
        return value, total - size * chances(x) @ table

    def information(x):
        centred = table - chances(x) @ table
        return size * (centred.T * chances(x)) @ centred

    x, log_likelihood, inverse = _maximise(value, information, table.shape[1], size)
    return _ising(x, log_likelihood, np.diagonal(inverse))


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
    upper, diagonal = np.triu_indices(count), np.eye(count, dtype=bool)
    numbers = _symmetric(np.arange(len(upper[0])), count)
    height = max(1, BLOCK // count**2)
    blocks = [slice(k, k + height) for k in range(0, size, height)]
    logits = lambda x: offset + _ising(x).logits(right)

    def gathered(scores):
        """Derivatives by parameters from those by [j, k] and by [k, j]."""
        total = scores + np.where(diagonal, 0, np.swapaxes(scores, -1, -2))
        return total[..., *upper]

    def value(x):
        eta = logits(x)
        rest = right - expit(eta)
        product = np.where(diagonal, rest.sum(axis=0), rest.T @ right)
        return log_chances(eta, right).sum(), gathered(product)

    def information(x):
        """A regression of each item j on z_j, which is y with 1 in place of y_j."""
        chance, sums = expit(logits(x)), np.zeros((count, count, count))
        for rows in blocks:
            z = np.where(diagonal, 1, right[rows, None])
            weight = (chance * (1 - chance))[rows, :, None]
            sums += (weight * z).transpose(1, 2, 0) @ z.transpose(1, 0, 2)
        out = np.zeros((len(upper[0]),) * 2)
        np.add.at(out, (numbers[:, :, None], numbers[:, None, :]), sums)
        return out

    x, log_likelihood, bread = _maximise(value, information, len(upper[0]), size)
    rest, variance = right - expit(logits(x)), np.zeros(len(x))
    for rows in blocks:
        z = np.where(diagonal, 1, right[rows, None])
        variance += ((gathered(rest[rows, :, None] * z) @ bread) ** 2).sum(axis=0)
    return _ising(x, log_likelihood, variance)


def _maximise(
    value: Callable, information: Callable, width: int, size: int
) -> tuple[np.ndarray, float, np.ndarray]:
    """The maximum of a concave log-likelihood, and the inverse of its information.

    Where it is at infinity, as with responses that separate, the search ends far out.

    Args:
        value: The log-likelihood and its gradient at `[width]` parameters.
        information: `[width, width]` its negative second derivatives.
        width: Parameters, of `size` subjects.
        size: Subjects.
    """
    result = minimize(
        lambda x: tuple(-y / size for y in value(x)),
        np.zeros(width),
        jac=True,
        hess=lambda x: information(x) / size,
        method="trust-exact",
        options={"gtol": STOP},
    )
    factor = cho_factor(information(result.x) + RIDGE * np.eye(width))
    return result.x, -size * result.fun, cho_solve(factor, np.eye(width))


def _symmetric(values: np.ndarray, count: int) -> np.ndarray:
    """`[count, count]` of the values of its upper triangle."""
    out = np.zeros((count, count), values.dtype)
    out[np.triu_indices(count)] = values
    return np.where(np.tri(count, dtype=bool), out.T, out)


def _ising(x: Any, log_likelihood: float = np.nan, variance: Any = 0.0) -> Ising:
    """The model of the upper triangle of its parameters, and of their variances."""
    count = int(np.sqrt(2 * len(x)))
    matrix = _symmetric(x, count)
    errors = _symmetric(np.sqrt(np.maximum(variance, 0 * x)), count)
    weights = np.where(np.eye(count) == 1, 0, matrix)
    return Ising(np.diagonal(matrix), weights, float(log_likelihood), errors)
